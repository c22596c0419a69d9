"""Places where nothing can be written: real disks that are full or read-only."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fs.tricks import small_disk

from clawkit.cli.doctor_checks import NEEDED, obstacle_at
from clawkit.cli.main import run
from clawkit.sessions.store import SessionStore

READ_ONLY, DENIED = os.strerror(errno.EROFS), os.strerror(errno.EACCES)
ELSEWHERE = "set CLAWKIT_HOME to a writable location"
NOTHING = "or do not save sessions: clawkit agent --no-session"
SOUND = {
    "f_flag": 0,
    "f_frsize": 4096,
    "f_blocks": 1000,
    "f_bavail": 500,
    "f_files": 100,
    "f_favail": 50,
}


@pytest.mark.parametrize(
    ("changed", "may_write", "why"),
    [
        ({}, True, ""),
        ({"f_flag": os.ST_RDONLY}, True, READ_ONLY),
        ({"f_flag": os.ST_RDONLY, "f_bavail": 0}, False, READ_ONLY),
        ({"f_flag": os.ST_NOSUID}, True, ""),
        ({}, False, DENIED),
        ({"f_bavail": 0}, True, "the disk is full"),
        ({"f_bavail": NEEDED // 4096 - 1}, True, "the disk is full"),
        ({"f_bavail": NEEDED // 4096}, True, ""),
        ({"f_favail": 0}, True, "the disk is full"),
        # These do not count.
        ({"f_blocks": 0, "f_bavail": 0}, True, ""),
        ({"f_files": 0, "f_favail": 0}, True, ""),
    ],
)
def test_full_and_read_only_disks_are_obstacles(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, int],
    may_write: bool,
    why: str,
) -> None:
    monkeypatch.setattr("os.statvfs", lambda _: SimpleNamespace(**{**SOUND, **changed}))
    monkeypatch.setattr("os.access", lambda *_, **__: may_write)
    place = tmp_path / "a b"
    place.mkdir()
    found = obstacle_at(str(place / "not" / "there"), "X")
    room = f"free some space there: df -h '{place}'"
    do = room if "full" in why else "set X to a writable location"
    assert found == ((why, do) if why else None)


@pytest.mark.parametrize("home", ["/proc/nope", "/sys"])
def test_a_home_that_the_kernel_does_not_keep(
    home: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLAWKIT_HOME", home)
    for args, code in ((["doctor"], 1), (["agent", "-m", "list"], 1)):
        with pytest.raises(SystemExit) as ended:
            run(args)
        assert ended.value.code == code
    done = capsys.readouterr()
    assert "the kernel keeps no files there" in done.out
    assert ELSEWHERE in done.out
    assert "`clawkit doctor` says how to fix it; with --no-session nothing is saved" in done.err


def test_a_path_that_cannot_be_inspected_is_an_obstacle(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    found = obstacle_at(str(tmp_path / "loop"), "X")
    assert found == (os.strerror(errno.ELOOP), "set X to a writable location")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "1m") as place:
        yield place


def look(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, tuple[str, str]]]:
    """The exit code of the doctor, and its findings and advice about home and sessions."""
    with pytest.raises(SystemExit) as end:
        run(["doctor", "--json"])
    found: list[Any] = json.loads(capsys.readouterr().out)["findings"]
    errors = [each for each in found if each["level"] == "error"]
    assert isinstance(end.value.code, int)
    return end.value.code, {each["section"]: (each["what"], each["do"]) for each in errors}


@pytest.mark.parametrize("is_there", [False, True])
def test_a_home_on_a_read_only_disk_is_an_error(
    disk: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_there: bool,
) -> None:
    home, store = disk / "home", disk / "home" / "sessions.sqlite"
    monkeypatch.setenv("CLAWKIT_HOME", str(home))
    if is_there:
        keep_one(store)
    assert look(capsys) == (0, {})
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    problem = "cannot be written" if is_there else "does not exist and cannot be created"
    assert look(capsys) == (
        1,
        {
            "home": (f"{home} {problem}: {READ_ONLY}", ELSEWHERE),
            "sessions": (
                f"{store} cannot be written, so sessions are not saved: {READ_ONLY}",
                f"{ELSEWHERE}, {NOTHING}",
            ),
        },
    )


def test_a_full_disk_is_not_the_fault_of_the_store(
    disk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = disk / "home"
    monkeypatch.setenv("CLAWKIT_HOME", str(home))
    keep_one(home / "sessions.sqlite")
    with (disk / "fill").open("wb", 0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    code, errors = look(capsys)
    assert code == 1
    assert errors["home"] == (
        f"{home} cannot be written: the disk is full",
        f"free some space there: df -h {home}",
    )
    assert errors["sessions"][1].startswith(f"free some space there: df -h {home}, {NOTHING}")


def test_a_store_elsewhere_is_not_looked_for_at_home(
    disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(os.environ["CLAWKIT_HOME"], "clawkit.json5")
    file.write_text(json.dumps({"session": {"store": str(disk / "s.sqlite")}}), encoding="utf-8")
    file.chmod(0o600)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    code, errors = look(capsys)
    assert (code, list(errors)) == (1, ["sessions"])
    assert errors["sessions"][1].startswith("set session.store to a writable location")


def keep_one(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    store = SessionStore(str(path))
    store.create("main", workspace="/work")
    store.close()
