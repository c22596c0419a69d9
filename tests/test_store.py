"""Atomic files, with real failures of the system instead of mocks."""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import apsw
import pytest

from clawkit.errors import ToolError
from clawkit.store import (
    Database,
    hold_lock,
    is_held,
    locked,
    locked_async,
    open_private,
    private_dir,
    rotate_backups,
    why_foreign,
    write_atomic,
)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def run_child(code: str, *args: str) -> str:
    """Runs code in its own process, so that limits and a changed user affect nothing else."""
    done = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_new_file_is_readable_by_the_owner_alone(tmp_path: Path) -> None:
    target = tmp_path / "a.json5"
    old = os.umask(0)
    try:
        write_atomic(target, b"{}")
    finally:
        os.umask(old)
    assert (target.read_bytes(), mode_of(target)) == (b"{}", 0o600)
    assert os.listdir(tmp_path) == ["a.json5"]


@pytest.mark.parametrize("data", [b"", b"\x00\xff", b"x" * 3_000_000])
def test_the_bytes_arrive_whole(tmp_path: Path, data: bytes) -> None:
    write_atomic(tmp_path / "a", b"before")
    write_atomic(str(tmp_path / "a"), data)
    assert (tmp_path / "a").read_bytes() == data


@pytest.mark.parametrize(
    ("before", "asked", "after"),
    [
        (0o400, 0o600, 0o400),
        (0o644, 0o600, 0o600),
        (0o600, 0o644, 0o600),
        (0o664, 0o644, 0o644),
        (0o4755, 0o755, 0o755),
    ],
)
def test_the_stricter_mode_wins(tmp_path: Path, before: int, asked: int, after: int) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")
    target.chmod(before)
    write_atomic(target, b"new", mode=asked)
    assert (target.read_bytes(), mode_of(target)) == (b"new", after)


def test_a_relative_path_is_taken_from_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_atomic("a", b"1")
    assert (tmp_path / "a").read_bytes() == b"1"


def test_a_name_of_the_greatest_length_is_fine(tmp_path: Path) -> None:
    write_atomic(tmp_path / ("n" * 255), b"1")
    assert os.listdir(tmp_path) == ["n" * 255]


def test_a_symbolic_link_is_refused_and_what_it_points_to_is_kept(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.write_bytes(b"precious")
    (tmp_path / "link").symlink_to(real)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("link", "dangling"):
        with pytest.raises(OSError, match="symbolic link"):
            write_atomic(tmp_path / name, b"new")
    assert real.read_bytes() == b"precious"
    assert sorted(os.listdir(tmp_path)) == ["dangling", "link", "real"]


def test_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError, match="is a directory"):
        write_atomic(tmp_path / "folder", b"new")
    with pytest.raises(OSError, match="No such file"):
        write_atomic(f"{tmp_path}/folder/", b"new")
    assert os.listdir(tmp_path) == ["folder"]
    assert os.listdir(tmp_path / "folder") == []


def test_a_pipe_is_refused_without_waiting_for_a_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for act in (lambda path: write_atomic(path, b"new"), rotate_backups):
        with pytest.raises(OSError, match="not a regular file"):
            act(tmp_path / "pipe")
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "no" / "a", b"new")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        write_atomic(tmp_path / "file" / "a", b"new")


def test_data_of_the_wrong_type_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(TypeError):
        write_atomic(tmp_path / "a", "text")  # type: ignore[arg-type]
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


WRITE_AS_NOBODY = """
import os, sys
from clawkit.store import write_atomic
os.chdir(sys.argv[1])
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    write_atomic("a", b"new")
except PermissionError as error:
    print("refused", error.errno)
"""


def test_a_read_only_directory_keeps_the_old_file(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    target = folder / "a"
    target.write_bytes(b"old")
    folder.chmod(0o555)
    assert run_child(WRITE_AS_NOBODY, str(folder)) == "refused 13"
    assert target.read_bytes() == b"old"
    assert os.listdir(folder) == ["a"]
    folder.chmod(0o755)


WRITE_TOO_MUCH = """
import resource, signal, sys
from clawkit.store import write_atomic
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    write_atomic(sys.argv[1], b"x" * 1_000_000)
except OSError as error:
    print("failed", error.errno)
"""


def test_a_disk_that_takes_only_part_keeps_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")
    assert run_child(WRITE_TOO_MUCH, str(target)) == "failed 27"
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


WRITE_INTERRUPTED = """
import os, signal, sys, threading
from clawkit.store import write_atomic
try:
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    while True:
        write_atomic(sys.argv[1], b"y" * 2_000_000)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_leaves_a_whole_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")
    assert run_child(WRITE_INTERRUPTED, str(target)) == "interrupted"
    assert target.read_bytes() in (b"old", b"y" * 2_000_000)
    assert os.listdir(tmp_path) == ["a"]


def test_readers_and_writers_at_once_only_ever_see_whole_files(tmp_path: Path) -> None:
    target = tmp_path / "a"
    versions = [bytes([letter]) * 50_000 for letter in b"abcd"]
    write_atomic(target, versions[0])

    def write(data: bytes) -> None:
        for _ in range(20):
            write_atomic(target, data)

    writers = [threading.Thread(target=write, args=(data,)) for data in versions]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert target.read_bytes() in versions
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_written_by_root_keeps_its_owner(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")
    os.chown(target, 12345, 12346)
    write_atomic(target, b"new")
    assert (target.stat().st_uid, target.stat().st_gid) == (12345, 12346)


def test_a_private_directory_and_its_missing_parents_are_closed_to_others(tmp_path: Path) -> None:
    private_dir(tmp_path / "a" / "b")
    private_dir(str(tmp_path / "a" / "b"))
    assert [mode_of(tmp_path / "a"), mode_of(tmp_path / "a" / "b")] == [0o700, 0o700]


def test_an_existing_directory_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(mode=0o755)
    (tmp_path / "mine").chmod(0o755)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    private_dir(tmp_path / "mine")
    private_dir(tmp_path / "link")
    assert mode_of(tmp_path / "mine") == 0o755


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702])
def test_a_directory_that_others_can_change_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(mode)
    with pytest.raises(PermissionError, match="chmod go-w"):
        private_dir(tmp_path / "shared")
    assert mode_of(tmp_path / "shared") == mode


PRIVATE_DIR_AS_NOBODY = """
import os, sys
from clawkit.store import private_dir
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    private_dir(sys.argv[1])
except PermissionError as error:
    print(error.strerror)
"""


def test_a_directory_of_another_user_is_refused() -> None:
    assert run_child(PRIVATE_DIR_AS_NOBODY, "/usr") == "belongs to another user"


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(NotADirectoryError):
            private_dir(path)


def test_backups_move_up_one_place_and_the_oldest_goes(tmp_path: Path) -> None:
    target = tmp_path / "a"
    for version in range(8):
        rotate_backups(target)
        write_atomic(target, b"%d" % version)
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert found == {
        "a": b"7",
        "a.bak": b"6",
        "a.bak.1": b"5",
        "a.bak.2": b"4",
        "a.bak.3": b"3",
        "a.bak.4": b"2",
    }


def test_fewer_backups_can_be_kept(tmp_path: Path) -> None:
    for version in range(4):
        rotate_backups(tmp_path / "a", keep=1)
        write_atomic(tmp_path / "a", b"%d" % version)
    assert sorted(os.listdir(tmp_path)) == ["a", "a.bak"]
    assert (tmp_path / "a.bak").read_bytes() == b"2"


def test_a_backup_is_never_more_open_than_the_file(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"1")
    for mode in (0o644, 0o400):
        target.chmod(mode)
        rotate_backups(target)
        assert mode_of(tmp_path / "a.bak") == mode & 0o600


def test_a_link_planted_as_a_backup_is_moved_and_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "a.bak").symlink_to(victim)
    rotate_backups(tmp_path / "a")
    assert victim.read_bytes() == b"precious"
    assert (tmp_path / "a.bak").read_bytes() == b"1"
    assert (tmp_path / "a.bak.1").is_symlink()


def test_a_link_is_not_backed_up(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"s")
    (tmp_path / "a").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic link"):
        rotate_backups(tmp_path / "a")
    assert sorted(os.listdir(tmp_path)) == ["a", "secret"]


@pytest.mark.parametrize(
    ("me", "owner", "mode", "why"),
    [
        (1000, 1000, 0o600, ""),
        (1000, 1000, 0o644, ""),
        (1000, 0, 0o644, ""),
        (0, 1000, 0o600, ""),
        (1000, 1001, 0o600, "belongs to another user"),
        (1000, 1000, 0o620, "can be written by others"),
        (0, 0, 0o602, "can be written by others"),
    ],
)
def test_files_that_others_may_have_written_are_recognised(
    monkeypatch: pytest.MonkeyPatch, me: int, owner: int, mode: int, why: str
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: me)
    info = os.stat_result((stat.S_IFREG | mode, 1, 1, 1, owner, owner, 0, 0, 0, 0))
    assert why_foreign(info) == why


def test_a_private_file_is_created_for_its_owner_only_and_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "file"
    fd = open_private(str(path), os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"mine")
    os.close(fd)
    fd = open_private(str(path))
    assert (mode_of(path), os.get_inheritable(fd)) == (0o600, False)
    assert os.read(fd, 9) == b"mine"
    os.close(fd)


def test_files_that_are_not_private_are_refused_with_advice(tmp_path: Path) -> None:
    for name in ("shared", "target"):
        (tmp_path / name).touch()
    (tmp_path / "shared").chmod(0o620)
    (tmp_path / "link").symlink_to("target")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    for name, why in (
        ("shared", "can be written by others; run `chmod go-w`"),
        ("link", "is a symbolic link; replace it"),
        ("pipe", "is not a regular file; move it away"),
        ("folder", "is not a regular file; move it away"),
        ("missing", "No such file"),
    ):
        with pytest.raises(OSError, match=why) as found:
            open_private(str(tmp_path / name))
        assert found.value.filename == str(tmp_path / name)
    assert len(os.listdir("/proc/self/fd")) == before
    os.close(open_private(str(tmp_path / "shared"), shared_ok=True))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("shared_ok", [False, True])
def test_a_file_of_another_user_is_not_opened(tmp_path: Path, shared_ok: bool) -> None:
    path = tmp_path / "file"
    path.touch()
    os.chown(path, 12345, 12345)
    with pytest.raises(PermissionError, match="belongs to another user; change that with chown"):
        open_private(str(path), shared_ok=shared_ok)


async def test_other_tasks_run_while_one_waits_for_a_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "file.lock")
    with pytest.raises(TimeoutError, match="locked by another process"), locked(path):
        async with locked_async(path, wait_s=0):
            pass
    later = locked_async(path)
    with locked(path):
        waiting = asyncio.ensure_future(later.__aenter__())
        await asyncio.sleep(0.05)
        assert not waiting.done()
    await waiting
    with pytest.raises(TimeoutError), locked(path, wait_s=0):
        pass
    await later.__aexit__(None, None, None)
    with locked(path, wait_s=0):
        pass


def test_a_lock_is_waited_for_until_the_timeout(tmp_path: Path) -> None:
    path = str(tmp_path / "file.lock")
    held = pytest.raises(TimeoutError, match="locked by another process")
    with locked(path), held, locked(path, wait_s=0):
        pass
    with locked(path, wait_s=0):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_lock_file_of_another_user_or_kind_is_refused(tmp_path: Path) -> None:
    path, pipe = tmp_path / "file.lock", tmp_path / "pipe.lock"
    path.touch()
    os.chown(path, 12345, 12345)
    os.mkfifo(pipe)
    for each, why in ((path, "belongs to another user"), (pipe, "not a regular file")):
        with pytest.raises(OSError, match=why), locked(str(each)):
            pass
    with pytest.raises(ToolError, match="not a regular file"), hold_lock(str(pipe), "it"):
        pass
    # Root may use sessions in the home of a user.
    with hold_lock(str(path), "it"):
        assert path.stat().st_uid == 12345


def test_a_lock_file_may_have_any_mode(tmp_path: Path) -> None:
    """Some file systems have no modes, and the content of a lock file does not matter."""
    path = tmp_path / "file.lock"
    path.touch()
    path.chmod(0o666)
    with locked(str(path)), pytest.raises(TimeoutError), locked(str(path), wait_s=0):
        pass


def test_whether_a_lock_is_held_can_be_seen_without_taking_it(tmp_path: Path) -> None:
    path = str(tmp_path / "locks" / "x.lock")
    assert not is_held(path)
    with hold_lock(path, "it"):
        assert is_held(path)
        assert is_held(path)
    assert not is_held(path)
    with hold_lock(path, "it"):
        pass
    for text in ("", "nobody", "999999999"):
        Path(path).write_text(text, encoding="utf-8")
        with open(path, encoding="utf-8") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            assert not is_held(path)


def test_a_file_that_is_busy_whenever_it_is_read_is_said_to_be_locked(tmp_path: Path) -> None:
    # SQLite gives up by itself after some seconds, whatever the busy timeout is.
    database = Database(str(tmp_path / "store.db"), "the store", 1, ("CREATE TABLE t (x)",))
    with pytest.raises(ToolError, match="the store cannot be used: it is locked by another proc"):
        database.explain(apsw.ProtocolError("locking protocol"))
