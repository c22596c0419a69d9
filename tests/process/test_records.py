"""What is written down about commands, and what of it is believed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.process.started import KEY, TOGETHER, make, until

from clawkit.process import process_table, records
from clawkit.process.protocols import LOST, Exit
from clawkit.process.records import CommandRecord

pytestmark = TOGETHER
ENDED = make(pid=2**31 - 1, started=1.0)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "home" / "commands"
    place.mkdir(mode=0o700, parents=True)
    return place


def read(folder: Path) -> list[CommandRecord]:
    return list(records.read_all(str(folder)))


def raw(**changes: Any) -> dict[str, Any]:
    return {**msgspec.structs.asdict(make()), **changes}


def put(folder: Path, value: Any, name: str = f"{KEY}.json") -> Path:
    file = folder / name
    file.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return file


@pytest.mark.parametrize("terminal", [None, (120, 30)])
@pytest.mark.parametrize(
    "text",
    ["sleep 60", "printf 'a\nb'", "echo \udc80 \x1b[2J é 🦦", "x" * 128 * 1024, "\x01" * 2**17],
)
def test_a_written_record_is_read_back(
    folder: Path, text: str, terminal: tuple[int, int] | None
) -> None:
    record = make(text=text, terminal=terminal, owner="main/sub", since=123_456)
    records.write(str(folder), record)
    assert read(folder) == [record]


def test_only_the_owner_can_enter_what_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "commands"
    before = os.umask(0)
    try:
        records.write(str(folder), make())
    finally:
        os.umask(before)
    modes = [each.stat().st_mode & 0o777 for each in (folder.parent, folder)]
    assert modes == [0o700, 0o700]
    assert (folder / f"{KEY}.json").stat().st_mode & 0o777 == 0o600
    assert os.listdir(folder) == [f"{KEY}.json"]


def test_commands_are_read_in_the_order_of_their_start(folder: Path) -> None:
    for key, started in (("c-3", 30.0), ("a-2", 20.0), ("b-1", 10.0), ("a-1", 20.0)):
        records.write(str(folder), make(key=key, started=started))
    assert [record.key for record in read(folder)] == ["b-1", "a-1", "a-2", "c-3"]


def test_without_a_folder_there_are_no_commands(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")
    assert list(records.read_all(nowhere)) == []
    assert records.distrust(nowhere) == ""
    records.sweep(nowhere)
    assert not os.path.exists(nowhere)


WRONG: dict[str, list[Any]] = {
    "pid": [0, 1, -1, -5, 2**31, 2**80, 3.5, "7", None, True, [], float("nan")],
    "since": [0, -1, "1", None, 1.5, False],
    "keeper": [0, -1, "1", None],
    "started": [-1, 1e300, float("inf"), float("nan"), "now", None],
    "detached": ["yes", None, 1],
    "terminal": [[], [80], [80, 24, 1], ["80", "24"], [0, 24], [80, -1], 80, "80x24"],
    "text": [None, 5, ["sleep"], {}],
    "owner": [None, 5],
    "cwd": [None, 5],
    "id": ["", "../x", "A", "a b", "a\n", "é", None, "a" * 81],
    "key": ["", "other", "../calm-otter-ab1", None, 5],
    "place": [None, 5],
    "mark": [-1, "1", None, 1.5],
    "server": [None, 5, [], [1], [1, 2, 3], ["1", 2]],
}
NEW = ("place", "mark", "server")  # what an older clawkit does not write


DAMAGED: list[Any] = [
    "",
    "{",
    "null",
    "[]",
    '"text"',
    "[" * 100_000,
    '{"key": ' + "9" * 10_000 + "}",
    "\x00" * 100,
    *(raw(**{name: wrong}) for name, wrongs in WRONG.items() for wrong in wrongs),
    *({k: v for k, v in raw().items() if k != missing} for missing in raw() if missing not in NEW),
]


def test_a_damaged_record_is_not_a_record(folder: Path, subtests: pytest.Subtests) -> None:
    put(folder, raw(key="fine-1"), "fine-1.json")
    for value in DAMAGED:
        with subtests.test(f"{value!r:.80}"):
            put(folder, value)
            assert [record.key for record in read(folder)] == ["fine-1"]


def test_a_file_that_is_not_utf8_is_not_a_record(folder: Path) -> None:
    (folder / f"{KEY}.json").write_bytes(json.dumps(raw()).encode().replace(b"sleep", b"\xff"))
    assert read(folder) == []


def test_an_oversized_record_is_not_read(folder: Path) -> None:
    with put(folder, raw()).open("r+b") as file:
        file.truncate(records.MAX_BYTES + 1)
    assert read(folder) == []


def test_a_record_of_a_later_clawkit_may_say_more(folder: Path) -> None:
    put(folder, raw(later="thing"))
    assert [record.id for record in read(folder)] == ["calm-otter"]


def test_a_file_with_another_name_is_not_a_record(folder: Path, subtests: pytest.Subtests) -> None:
    names = ["UPPER-1.json", "a b.json", ".json", "é-1.json", "a.b.json", "a-1.json.new"]
    for name in (*names, "a-1.JSON", "a\n.json"):
        with subtests.test(name):
            put(folder, raw(key=name.removesuffix(".json")), name)
            assert read(folder) == []


def make_link(place: Path) -> None:
    target = place.parent.parent / "elsewhere"
    target.write_text(json.dumps(raw()), encoding="utf-8")
    place.symlink_to(target)


@pytest.mark.parametrize(
    "make_it", [make_link, os.mkfifo, os.mkdir, lambda p: p.symlink_to("/dev/zero")]
)
def test_only_a_plain_file_is_a_record(folder: Path, make_it: Callable[[Path], None]) -> None:
    make_it(folder / f"{KEY}.json")
    assert read(folder) == []
    make_it(folder / f"{KEY}.exit")
    assert records.exit_of(str(folder), ENDED) == LOST
    make_it(folder / f"{KEY}.log")
    with pytest.raises(OSError, match=r"not a regular file|symbolic"):
        records.open_file(str(folder), KEY, "log")


@needs_root
def test_a_file_of_another_user_is_not_a_record(folder: Path) -> None:
    file = put(folder, raw())
    assert len(read(folder)) == 1
    os.chown(file, 12_345, -1)
    assert read(folder) == []


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o750, 0o701, 0o755])
def test_nothing_in_an_open_folder_is_trusted(folder: Path, mode: int) -> None:
    put(folder, raw())
    put(folder, "0 5.0\n", f"{KEY}.exit")
    folder.chmod(mode)
    assert "chmod 700" in records.distrust(str(folder))
    assert read(folder) == []
    assert records.keys(str(folder), "json") == []
    assert records.exit_of(str(folder), ENDED) == LOST
    with pytest.raises(PermissionError):
        records.write(str(folder), make(key="other-1"))
    records.sweep(str(folder), -1)
    assert len(os.listdir(folder)) == 2
    folder.chmod(0o700)
    assert len(read(folder)) == 1


@needs_root
def test_nothing_in_the_folder_of_another_user_is_trusted(folder: Path) -> None:
    put(folder, raw())
    os.chown(folder, 12_345, -1)
    assert "another user" in records.distrust(str(folder))
    assert read(folder) == []


def test_a_file_in_place_of_the_folder_is_not_trusted(tmp_path: Path) -> None:
    place = tmp_path / "commands"
    place.write_text("", encoding="utf-8")
    assert records.distrust(str(place)) == "is not a directory"
    assert read(place) == []
    assert "cannot be inspected" in records.distrust(str(place / "below"))


def test_a_record_that_cannot_be_placed_leaves_nothing_behind(folder: Path) -> None:
    (folder / f"{KEY}.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        records.write(str(folder), make())
    assert os.listdir(folder) == [f"{KEY}.json"]


def test_a_command_runs_while_its_own_process_does(folder: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    seen = process_table.look(process.pid)
    assert seen is not None
    record = make(pid=process.pid, since=seen.started)
    assert record.runs
    assert not make(pid=process.pid, since=seen.started - 1).runs
    assert not make(pid=process.pid, since=seen.started, place="another machine").runs
    process.kill()
    # Nobody has taken note of its end yet.
    until(lambda: not record.runs)
    process.communicate()
    assert not record.runs


@pytest.mark.parametrize(
    ("said", "end"),
    [
        ("0 1700000000.5\n", (0, 1_700_000_000.5)),
        ("-9 5", (-9, 5.0)),
        ("255 0.0", (255, 0.0)),
        ("", None),
        ("0", None),
        ("0 1 2", None),
        ("x 1", None),
        ("1.5 1", None),
        ("0 nan", None),
        ("0 inf", None),
        ("256 1", None),
        ("-129 1", None),
        ("0 1" + " " * 100, None),
        ("٣ 1", None),
    ],
)
def test_the_end_of_a_command(folder: Path, said: str, end: tuple[int, float] | None) -> None:
    put(folder, said, f"{KEY}.exit")
    expected = Exit.of(end[0], max(0.0, end[1] - ENDED.started)) if end else LOST
    assert records.exit_of(str(folder), ENDED) == expected
    if end is not None:
        put(folder, f"{said.strip()} timeout", f"{KEY}.exit")
        expected = expected._replace(reason="overall-timeout")
        assert records.exit_of(str(folder), ENDED) == expected


def test_an_end_that_was_not_written_is_not_known(folder: Path) -> None:
    assert records.exit_of(str(folder), ENDED) == LOST


def age(file: Path, seconds: float) -> None:
    at = time.time() - seconds
    os.utime(file, (at, at))


def test_sweeping_leaves_what_runs(folder: Path) -> None:
    me = process_table.look(os.getpid())
    assert me is not None
    records.write(str(folder), make(pid=me.pid, since=me.started))
    put(folder, "output", f"{KEY}.log")
    for each in folder.iterdir():
        age(each, 1e6)
    records.sweep(str(folder), 60)
    assert len(os.listdir(folder)) == 2


@pytest.mark.parametrize(
    ("fields", "ages", "left"),
    [
        # Its clawkit died: the note goes at once, the output when it is old.
        ({}, {"json": 0, "log": 0}, {"log"}),
        ({}, {"json": 90, "log": 90}, set()),
        # One that was to live on is remembered from its end on, however long ago it began.
        ({"detached": True}, {"json": 0, "log": 0, "exit": 0}, {"json", "log", "exit"}),
        ({"detached": True}, {"json": 9e6, "log": 9e6, "exit": 0}, {"json", "log", "exit"}),
        ({"detached": True}, {"json": 90, "log": 90, "exit": 90}, set()),
        # Of another machine it is not known whether it runs.
        ({"place": "there"}, {"json": 90, "log": 90}, {"json", "log"}),
        ({"place": "there"}, {"json": 9e6, "log": 9e6}, set()),
        # Output that outlived the note.
        (None, {"log": 0}, {"log"}),
        (None, {"log": 90, "exit": 90, "json.new": 90}, set()),
    ],
)
def test_sweeping_removes_what_is_over(
    folder: Path, fields: dict[str, Any] | None, ages: dict[str, float], left: set[str]
) -> None:
    for kind, seconds in ages.items():
        given = raw(pid=2**31 - 1, keeper=2**31 - 1, **fields or {}) if kind == "json" else "x"
        age(put(folder, given, f"{KEY}.{kind}"), seconds)
    records.sweep(str(folder), 60)
    assert set(os.listdir(folder)) == {f"{KEY}.{kind}" for kind in left}


def test_sweeping_leaves_files_that_are_not_command_s(folder: Path) -> None:
    names = {"notes.txt", "Photo.json", "a-1.json.bak", "README", ".hidden.log"}
    for name in names:
        age(put(folder, "mine", name), 1e8)
    (folder / "dir-1.log").mkdir()
    age(folder / "dir-1.log", 1e8)
    records.sweep(str(folder), 60)
    assert set(os.listdir(folder)) == names | {"dir-1.log"}


def test_sweeping_removes_a_link_but_not_its_target(folder: Path, tmp_path: Path) -> None:
    precious = put(tmp_path, "precious", "precious")
    link = folder / f"{KEY}.log"
    link.symlink_to(precious)
    os.utime(link, (0, 0), follow_symlinks=False)
    records.sweep(str(folder), 60)
    assert os.listdir(folder) == []
    assert precious.read_text(encoding="utf-8") == "precious"
