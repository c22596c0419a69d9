"""Changes of several files that are killed, disturbed, or find hostile journals."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.fs.crashes import KINDS
from tests.fs.tricks import fail, just_before, open_handles
from tests.scale import FULL

from clawkit.errors import ConflictError, ToolError
from clawkit.fs import journal as module
from clawkit.fs.journal import Journal, load, recover
from clawkit.fs.local import LocalFileSystem
from clawkit.fs.protocols import Change
from clawkit.fs.roots import Roots

slow = pytest.mark.timeout(300)
REPOSITORY = Path(__file__).parent.parent.parent


def crash(kind: str, tmp_path: Path, stride: int) -> list[dict[str, Any]]:
    """The attempts of the program in `crashes.py`."""
    argv = [sys.executable, "-m", "tests.fs.crashes", kind, str(tmp_path), str(stride)]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@slow
@pytest.mark.long
@pytest.mark.parametrize("kind", ["point", "both", "recovery", "poor-both"])
def test_wherever_it_is_killed_all_files_are_changed_or_none(tmp_path: Path, kind: str) -> None:
    ends = crash(kind, tmp_path, 1 if FULL else 3)
    assert [each for each in ends if each["ended"] == "half" or each["left"]] == []
    count = Counter(each["ended"] for each in ends)
    assert min(count["old"], count["new"]) >= 5


@slow
@pytest.mark.long
@pytest.mark.parametrize("kind", ["time", "time-both"])
def test_whenever_it_is_killed_all_of_many_files_are_changed_or_none(
    tmp_path: Path, kind: str
) -> None:
    ends = crash(kind, tmp_path, 1 if FULL else 10)
    assert len(ends) == (30 if FULL else 3)
    assert [each for each in ends if each["ended"] == "half" or each["left"]] == []


@slow
@pytest.mark.long
@pytest.mark.parametrize("kind", ["user", "poor-user"])
def test_changes_made_after_a_crash_are_kept(tmp_path: Path, kind: str) -> None:
    ends = crash(kind, tmp_path, 1 if FULL else 10)
    assert len(ends) > (50 if FULL else 15)
    wrong = [each for each in ends if each["ended"] != "kept" or each["left"]]
    assert wrong == []
    assert [each for each in ends if not each["others"]] == []


def test_every_kind_of_crash_is_tried() -> None:
    assert set(KINDS) == {"point", "both", "recovery", "user", "time", "time-both"}


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    ws = tmp_path.resolve() / "ws"
    (ws / "dir").mkdir(parents=True)
    (ws / "a").write_text("old")
    (ws / "dir" / "b").write_text("old")
    (ws / "c").write_text("old")
    return ws


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    return tmp_path / "journals"


def files(ws: Path, journals: Path) -> LocalFileSystem:
    return LocalFileSystem(str(ws), journals=str(journals))


def change(ws: Path, journals: Path) -> None:
    files(ws, journals)._change(CHANGES, frozenset())


CHANGES = [
    Change("a", b"new"),
    Change("dir/b", b"new"),
    Change("c", None),
    Change("made/d/e", b"new"),
    Change("f", b"new"),
]


def snapshot(ws: Path) -> dict[str, str]:
    return {
        str(path.relative_to(ws)): "/" if path.is_dir() else path.read_text()
        for path in sorted(ws.rglob("*"))
    }


AT_THE_DELETION = ("os.rename", "-2.old")
"""When two files are in place, and two are not."""


@pytest.mark.parametrize(
    ("event", "name"), [("open", "-4.tmp"), AT_THE_DELETION, ("os.mkdir", "d")]
)
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EACCES])
def test_a_failing_step_takes_everything_back(
    ws: Path, journals: Path, event: str, name: str, error: int
) -> None:
    before, handles = snapshot(ws), open_handles()
    with just_before(event, name, fail(error)), pytest.raises(ToolError, match="nothing was"):
        change(ws, journals)
    assert snapshot(ws) == before
    assert os.listdir(journals) == []
    assert open_handles() <= handles


def test_a_failing_step_names_the_file(ws: Path, journals: Path) -> None:
    with (
        just_before(*AT_THE_DELETION, fail(errno.ENOSPC)),
        pytest.raises(ToolError, match=f"'{ws}/c' cannot be changed: no space left on device"),
    ):
        change(ws, journals)


@pytest.mark.parametrize("name", ["a", "dir/b", "f", "made/d/e"])
@pytest.mark.parametrize("how", ["in place", "replaced"])
def test_a_file_that_someone_changes_meanwhile_is_kept_and_the_others_are_taken_back(
    ws: Path, journals: Path, name: str, how: str
) -> None:
    before = snapshot(ws)
    theirs = "a longer text of somebody else"

    def interfere() -> None:
        if how == "replaced":
            (ws / name).unlink(missing_ok=True)
        (ws / name).write_text(theirs)
        (ws / "f").write_text(theirs)

    with just_before(*AT_THE_DELETION, interfere), pytest.raises(ConflictError, match=f"'{ws}/"):
        change(ws, journals)
    made = {"made": "/", "made/d": "/"} if name.startswith("made") else {}
    assert snapshot(ws) == {**before, **made, name: theirs, "f": theirs}
    assert os.listdir(journals) == []


def test_staged_content_that_was_changed_is_not_moved_into_place(ws: Path, journals: Path) -> None:
    before = snapshot(ws)

    def interfere() -> None:
        (waiting,) = ws.glob(".clawkit-*-4.tmp")
        waiting.unlink()
        waiting.symlink_to("/etc/passwd")

    with just_before(*AT_THE_DELETION, interfere), pytest.raises(ConflictError):
        change(ws, journals)
    assert snapshot(ws) == before


def test_a_directory_replaced_by_a_link_is_not_followed(
    ws: Path, journals: Path, tmp_path: Path
) -> None:
    """Not when a step is done, not when it is taken back, not when that is tried again."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "b").write_text("SECRET")
    before = snapshot(ws)

    def swap() -> None:
        (ws / "dir").rename(ws / "away")
        (ws / "dir").symlink_to("../outside")
        raise OSError(errno.EIO, "failed")

    one = files(ws, journals)
    with (
        just_before(*AT_THE_DELETION, swap),
        pytest.raises(ToolError, match="not all of them could be restored yet"),
    ):
        one._change(CHANGES, frozenset())
    outside = {path.name: path.read_text() for path in (tmp_path / "outside").iterdir()}
    assert outside == {"b": "SECRET"}
    assert (ws / "away" / "b").read_text() == "new"
    assert len(os.listdir(journals)) == 1
    (ws / "dir").unlink()
    (ws / "away").rename(ws / "dir")
    one._change([Change("later", b"")], frozenset())
    (ws / "later").unlink()
    assert snapshot(ws) == before
    assert os.listdir(journals) == []


def test_a_directory_that_is_gone_is_not_waited_for(ws: Path, journals: Path) -> None:
    def remove() -> None:
        for name in (ws / "dir").iterdir():
            name.unlink()
        (ws / "dir").rmdir()
        raise OSError(errno.EIO, "failed")

    with just_before(*AT_THE_DELETION, remove), pytest.raises(ToolError, match="nothing was"):
        change(ws, journals)
    assert snapshot(ws) == {"a": "old", "c": "old"}
    assert os.listdir(journals) == []


def test_without_a_watcher_the_changes_are_still_made(ws: Path, journals: Path) -> None:
    with just_before("subprocess.Popen", "", fail(errno.EAGAIN)):
        change(ws, journals)
    assert snapshot(ws)["a"] == "new"
    assert os.listdir(journals) == []


def test_the_watcher_needs_nothing_but_the_standard_library(ws: Path, journals: Path) -> None:
    """It is started without the packages of the site; a journal that it cannot settle would only be
    noticed after a crash."""
    with leave_behind(ws, journals) as (file, fd):
        watcher = module._start_watcher(str(file), fd)
        assert watcher is not None
        watcher.communicate()
        assert watcher.returncode == 0
    assert "a" in snapshot(ws)
    assert not [name for name in snapshot(ws) if ".clawkit-" in name]
    assert os.listdir(journals) == []


@contextmanager
def leave_behind(ws: Path, journals: Path) -> Iterator[tuple[Path, int]]:
    """A journal whose contents wait, as a program leaves it that dies before it is ready."""
    journals.mkdir(mode=0o700, exist_ok=True)
    one = Journal._create(str(journals))
    reach = Roots(str(ws))
    for path in ("a", "dir/b", "new"):
        step = one.plan(reach.locate(path), delete=False)
        (ws / path).with_name(step.temp).write_text("waits")
    try:
        yield Path(one.file), one.fd
    finally:
        os.close(one.fd)


def test_recovery_leaves_a_running_transaction_alone(
    ws: Path, journals: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.05)
    with leave_behind(ws, journals) as (file, _):
        recover(str(journals))
        assert file.exists()
        assert len([name for name in snapshot(ws) if ".clawkit-" in name]) == 3
    recover(str(journals))
    assert not file.exists()
    assert not [name for name in snapshot(ws) if ".clawkit-" in name]


def test_recovery_waits_for_a_transaction_that_is_about_to_end(
    ws: Path, journals: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawkit.fs.journal._PATIENCE_S", 60.0)
    with leave_behind(ws, journals) as (file, fd):
        lock = os.dup(fd)

    def finish() -> None:
        time.sleep(0.1)
        os.close(lock)

    thread = threading.Thread(target=finish)
    thread.start()
    recover(str(journals))
    thread.join()
    assert not file.exists()


async def test_every_operation_recovers_left_over_journals_first(ws: Path, journals: Path) -> None:
    for look in ("list", "open", "start", "change"):
        with leave_behind(ws, journals):
            pass
        one = files(ws, journals)
        if look == "list":
            listing = await one.list(".")
            assert [entry.name for entry in listing.entries] == ["a", "c", "dir"]
        elif look == "open":
            async with one.open("a"):
                pass
        elif look == "start":
            os.close(one.start(".").fd)
        else:
            await one.change([Change("a", b"old")])
        assert os.listdir(journals) == []


def plant(journals: Path, ws: Path, **other: Any) -> Path:
    """A journal that deletes a file of the workspace when it is believed."""
    place = {"root": str(ws), "folder": ".", "name": "a", "place": f"{ws}/a", **other}
    info = (ws / "a").stat()
    version = f"{info.st_dev}-{info.st_ino}-{info.st_size}-{info.st_mtime_ns}-{info.st_ctime_ns}"
    steps = [
        [0, *(place[key] for key in ("root", "folder", "name", "place")), version, True, ""],
        # Something is in place already: the others are to follow.
        [1, str(ws), ".", "c", f"{ws}/c", "1-2-3-4-5", True, ""],
    ]
    journals.mkdir(mode=0o700, exist_ok=True)
    file = journals / "0123456789abcdef.patch"
    file.write_text("r\n" + "".join(f"{json.dumps(step)}\n" for step in steps) + "2\n")
    file.chmod(0o600)
    (ws / ".clawkit-0123456789abcdef-1.old").write_text("")
    (ws / "c").unlink(missing_ok=True)
    return file


def test_a_journal_in_a_safe_place_is_trusted(ws: Path, journals: Path) -> None:
    """Otherwise the tests below would prove nothing."""
    plant(journals, ws)
    recover(str(journals))
    assert not (ws / "a").exists()


@pytest.mark.parametrize(
    "how", ["open directory", "open file", "other owner", "second name", "link", "a directory"]
)
def test_a_journal_that_someone_else_may_have_put_there_is_not_trusted(
    ws: Path, journals: Path, how: str, tmp_path: Path
) -> None:
    file = plant(journals, ws)
    if how == "open directory":
        journals.chmod(0o777)
    elif how == "open file":
        file.chmod(0o666)
    elif how == "other owner":
        if os.geteuid():
            pytest.skip("needs the superuser")
        os.chown(file, 1234, 1234)
    elif how == "second name":
        os.link(file, tmp_path / "other")
    elif how == "link":
        file.rename(tmp_path / "elsewhere.patch")
        file.symlink_to(tmp_path / "elsewhere.patch")
    else:
        file.unlink()
        file.mkdir()
    recover(str(journals))
    assert (ws / "a").exists()
    assert file.is_symlink() or file.exists()


@pytest.mark.parametrize(
    "other",
    [
        {"name": "../a", "folder": "dir"},
        {"name": "dir/../a"},
        {"name": "a\0"},
        {"root": "ws"},
        {"folder": "../ws"},
        {"place": "/etc/passwd"},
        {"place": 5},
        {"name": None},
        {"root": ["/"]},
    ],
)
def test_a_step_that_does_not_fit_is_not_done(
    ws: Path, journals: Path, other: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ws.parent)
    plant(journals, ws, **other)
    recover(str(journals))
    assert (ws / "a").read_text() == "old"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"r",
        b"\0\0\0\0",
        b"\xff\xfe" * 1000,
        b"r\n5\n",
        b'r\n{"step": 1}\n[1, 2, 3]\n"text"\nnull\n',
        b"u\n" + b"[" * 100_000 + b"\n",
        b'p\n[0, "/", ".", "x", "/x", "", false, ""',
        b'p\n["ws", "dir"]\n["", ""]\n',
        b"d\n" + b"9" * 10_000 + b"\n",
    ],
)
def test_a_damaged_journal_is_removed_without_changes(
    ws: Path, journals: Path, content: bytes
) -> None:
    before = snapshot(ws)
    journals.mkdir(mode=0o700)
    file = journals / "00.patch"
    file.write_bytes(content)
    file.chmod(0o600)
    recover(str(journals))
    assert snapshot(ws) == before
    assert not file.exists()


def test_a_journal_that_lost_a_line_is_rolled_back(ws: Path, journals: Path) -> None:
    file = plant(journals, ws)
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join((*lines[:3], "damaged\n", "3\n")))
    recover(str(journals))
    assert snapshot(ws) == {"a": "old", "c": "", "dir": "/", "dir/b": "old"}


def test_a_huge_journal_is_left_alone(ws: Path, journals: Path) -> None:
    journals.mkdir(mode=0o700)
    file = journals / "00.patch"
    with file.open("wb") as out:
        out.truncate(10**12)
    file.chmod(0o600)
    recover(str(journals))
    assert file.exists()
    with file.open("rb") as opened, pytest.raises(OSError, match="too large"):
        load(str(file), opened.fileno())


def test_a_journal_that_can_never_be_settled_is_given_up_after_a_week(
    ws: Path, journals: Path
) -> None:
    with leave_behind(ws, journals) as (file, _):
        pass
    (ws / "dir").rename(ws / "away")
    (ws / "dir").symlink_to("away")
    recover(str(journals))
    assert file.read_bytes().startswith(b"u")
    recover(str(journals))
    week_s = 7 * 24 * 3600
    os.utime(file, (time.time(), time.time() - week_s - 60))
    recover(str(journals))
    assert not file.exists()


def test_a_new_journal_that_was_cleaned_up_before_it_was_locked_is_made_anew(
    journals: Path,
) -> None:
    journals.mkdir(mode=0o700)
    with (
        just_before("fcntl.flock", "", lambda: recover(str(journals))),
        Journal.begin(str(journals)) as journal,
    ):
        assert os.listdir(journals) == [os.path.basename(journal.file)]


def test_a_journal_that_cannot_be_locked_is_not_left_behind(journals: Path) -> None:
    journals.mkdir(mode=0o700)
    before = open_handles()
    with (
        just_before("fcntl.flock", "", fail(errno.ENOLCK)),
        pytest.raises(OSError, match="No locks"),
        Journal.begin(str(journals)),
    ):
        pass
    assert os.listdir(journals) == []
    assert open_handles() <= before  # threads of earlier tests may still be closing theirs


def test_no_handle_is_left_open_by_a_recovery(ws: Path, journals: Path) -> None:
    recover(str(journals))
    before = open_handles()
    for _ in range(20):
        with leave_behind(ws, journals):
            pass
        (journals / "x.patch").write_text("?")
        recover(str(journals))
    assert open_handles() <= before  # threads of earlier tests may still be closing theirs


def test_names_of_any_bytes_survive_a_crash(tmp_path: Path, journals: Path) -> None:
    ws = tmp_path / "ws"
    ws.mkdir()
    name = os.fsdecode(b"\xff \n\xc3\xa9")
    (ws / name).write_text("old")
    journals.mkdir(mode=0o700)
    one = Journal._create(str(journals))
    step = one.plan(Roots(str(ws)).locate(name), delete=False)
    (ws / step.temp).write_text("waits")
    watcher = module._start_watcher(one.file, one.fd)
    assert watcher is not None
    watcher.communicate()
    os.close(one.fd)
    assert os.listdir(ws) == [name]
