"""Programs that are started, held to what they need."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.fs.tricks import open_handles
from tests.lacking import lack, needs

from clawkit.process import landlock
from clawkit.process.confine import start_helper
from clawkit.process.landlock import SYSTEM, Hold

PYTHON = os.path.realpath(sys.executable)
RUN = (*SYSTEM, os.path.dirname(os.path.dirname(PYTHON)))
held = needs(landlock.available(), "Landlock")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("inside", "outside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text(name)
    return tmp_path


def run(*argv: str, hold: Hold | None, cwd: str | int = "/") -> tuple[int, str]:
    """How a program ended, and all that it said."""
    program = start_helper(argv, cwd=cwd, env={}, hold=hold, stderr=subprocess.STDOUT)
    said, _ = program.communicate(timeout=40)
    return program.returncode, said.decode()


def attempt(code: str, *arguments: str, hold: Hold | None) -> str:
    """What becomes of some Python: `done`, or what the system said."""
    lines = "\n    ".join(code.splitlines())
    program = (
        "import os, socket, sys\n"
        f"try:\n    {lines}\n    print('done')\n"
        "except OSError as error:\n    print(error.strerror)\n"
    )
    code_, said = run(PYTHON, "-I", "-S", "-c", program, *arguments, hold=hold)
    assert code_ == 0, said
    return said.strip()


def test_without_a_hold_a_program_may_do_what_its_user_may(place: Path) -> None:
    assert run("/bin/cat", f"{place}/outside/f", hold=None) == (0, "outside")


@held
def test_a_program_reads_only_what_it_may(place: Path) -> None:
    (place / "inside" / "link").symlink_to(place / "outside" / "f")
    hold = Hold(read=(f"{place}/inside", "/not/there", f"{place}/inside/f/x"), run=SYSTEM)
    assert run("/bin/cat", f"{place}/inside/f", hold=hold) == (0, "inside")
    for path in (f"{place}/outside/f", f"{place}/inside/link", f"{place}/inside/../outside/f"):
        code, said = run("/bin/cat", path, hold=hold)
        assert code == 1
        assert "Permission denied" in said
    code, said = run("/bin/ls", f"{place}/outside", hold=hold)
    assert (code != 0, "f\n" in said) == (True, False)


@held
def test_a_single_file_may_be_all_that_is_read(place: Path) -> None:
    (place / "outside" / "g").write_text("g")
    hold = Hold(read=(f"{place}/outside/f",), run=SYSTEM)
    assert run("/bin/cat", f"{place}/outside/f", hold=hold) == (0, "outside")
    assert run("/bin/cat", f"{place}/outside/g", hold=hold)[0] == 1


@held
@pytest.mark.parametrize("kind", ["read", "write"])
def test_only_what_may_be_run_is_run(place: Path, kind: str) -> None:
    script = place / "inside" / "tool"
    script.write_text("#!/bin/sh\necho ran\n")
    script.chmod(0o755)
    inside = (f"{place}/inside",)
    hold = Hold(run=SYSTEM, read=inside) if kind == "read" else Hold(run=SYSTEM, write=inside)
    with pytest.raises(PermissionError):
        run(str(script), hold=hold)
    assert run(str(script), hold=Hold(run=(*SYSTEM, f"{place}/inside"))) == (0, "ran\n")


CHANGES = {
    "write": "open(sys.argv[1], 'r+').write('x')",
    "append": "open(sys.argv[1], 'a').write('x')",
    "create": "open(sys.argv[1] + 'new', 'x')",
    "delete": "os.unlink(sys.argv[1])",
    "rename": "os.rename(sys.argv[1], sys.argv[1] + '2')",
    "link": "os.link(sys.argv[1], sys.argv[1] + '2')",
    "symlink": "os.symlink('/etc', sys.argv[1] + '2')",
    "make a directory": "os.mkdir(sys.argv[1] + '2')",
    "make a pipe": "os.mkfifo(sys.argv[1] + '2')",
    "cut": "os.truncate(sys.argv[1], 1)",
    "cut by opening": "os.open(sys.argv[1], os.O_RDONLY | os.O_TRUNC)",
    "cut by opening for nothing": "os.open(sys.argv[1], 3 | os.O_TRUNC)",
}
FACTS = {
    "mode": "os.chmod(sys.argv[1], 0o777)",
    "owner": "os.chown(sys.argv[1], os.getuid(), os.getgid())",
    "times": "os.utime(sys.argv[1], (1, 1))",
    "attributes": "os.setxattr(sys.argv[1], 'user.x', b'1')",
}


def facts(path: Path) -> tuple[object, ...]:
    info = path.stat()
    return (info.st_mode, info.st_mtime_ns, os.listxattr(path), path.read_text())


@held
@pytest.mark.parametrize("code", {**CHANGES, **FACTS}.values(), ids={**CHANGES, **FACTS}.keys())
def test_read_access_allows_no_changes(place: Path, code: str) -> None:
    hold = Hold(read=(f"{place}/inside",), run=RUN)
    for name in ("inside", "outside"):
        file = place / name / "f"
        before = facts(file)
        assert attempt(code, str(file), hold=hold) in (
            "Permission denied",
            "Operation not permitted",
        )
        assert facts(file) == before
        assert os.listdir(file.parent) == ["f"]


@held
@pytest.mark.parametrize("code", CHANGES.values(), ids=CHANGES.keys())
def test_write_access_allows_changes_only_there(place: Path, code: str) -> None:
    hold = Hold(write=(f"{place}/inside",), run=RUN)
    file = place / "outside" / "f"
    before = facts(file)
    assert attempt(code, str(file), hold=hold) == "Permission denied"
    assert facts(file) == before
    assert os.listdir(place / "outside") == ["f"]
    assert attempt(code, f"{place}/inside/f", hold=hold) == "done"


@held
def test_a_file_is_not_carried_in_or_out(place: Path) -> None:
    hold = Hold(write=(f"{place}/inside",), run=RUN)
    for one, other in (("inside/f", "outside/g"), ("outside/f", "inside/g")):
        for how in ("rename", "link"):
            code = f"os.{how}(sys.argv[1], sys.argv[2])"
            said = attempt(code, f"{place}/{one}", f"{place}/{other}", hold=hold)
            assert said in ("Permission denied", "Invalid cross-device link")


@held
def test_without_the_network_there_are_no_sockets(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        connect = "socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5)"
        listen = "socket.create_server(('127.0.0.1', 0))"
        send = "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))"
        for code in (connect, listen, send, "socket.socket(socket.AF_UNIX)"):
            assert attempt(code, port, hold=Hold(run=RUN)) == "Permission denied"
            if code is not connect:
                assert attempt(code, port, hold=Hold(run=RUN, network=True)) == "done"
        assert attempt("socket.socketpair()", hold=Hold(run=RUN)) == "done"
        assert attempt(connect, port, hold=Hold(run=RUN, network=True)) == "done"


@held
def test_every_program_has_what_it_needs(place: Path) -> None:
    code = "open('/dev/null', 'r+b', 0).write(b'x')\nopen('/dev/urandom', 'rb').read(1)"
    for hold in (Hold(run=RUN), Hold(run=RUN, write=(f"{place}/inside",))):
        assert attempt(code, hold=hold) == "done"
    with_shell = Hold(run=SYSTEM, write=(f"{place}/inside",))
    assert run("/bin/sh", "-c", "echo x > /dev/null && echo ok", hold=with_shell) == (0, "ok\n")


@held
def test_children_of_a_confined_program_are_confined(place: Path) -> None:
    hold = Hold(run=SYSTEM, read=(f"{place}/inside",))
    code, said = run("/bin/sh", "-c", f"/bin/cat {place}/outside/f; /bin/true", hold=hold)
    assert code == 0
    assert "Permission denied" in said
    assert "outside\n" not in said


@held
def test_the_one_who_starts_a_held_program_is_not_held(place: Path) -> None:
    for _ in range(3):
        run("/bin/true", hold=Hold(run=SYSTEM))
    (place / "outside" / "f").write_text("changed")
    assert (place / "outside" / "f").read_text() == "changed"
    socket.socket().close()
    status = Path("/proc/self/status").read_text()
    assert "NoNewPrivs:\t0" in status
    assert "Seccomp:\t0" in status
    assert run("/bin/cat", f"{place}/outside/f", hold=None) == (0, "changed")


@pytest.mark.parametrize("hold", [None, Hold(run=SYSTEM)], ids=["free", "held"])
def test_a_missing_program_is_an_error(hold: Hold | None) -> None:
    if hold and not landlock.available():
        lack("this kernel has no Landlock")
    before, threads = open_handles(), set(threading.enumerate())
    for path in ("/usr/not-there", "/usr/bin", "/etc/hostname"):
        with pytest.raises(OSError):  # noqa: PT011  # which one depends on the file
            start_helper([path], cwd="/", env={}, hold=hold)
    with pytest.raises(OSError, match="No such file"):
        start_helper(["/bin/true"], cwd="/not-there", env={}, hold=hold)
    # Threads of earlier tests may still be closing theirs, and end.
    assert open_handles() <= before
    assert set(threading.enumerate()) <= threads


@held
def test_other_mistakes_reach_the_one_who_made_them() -> None:
    with pytest.raises(ValueError, match="null byte"):
        start_helper(["/bin/true", "\0"], cwd="/", env={}, hold=Hold(run=SYSTEM))


def test_a_program_starts_in_a_directory_that_is_open(place: Path) -> None:
    fd = os.open(place / "inside", os.O_PATH)
    (place / "inside").rename(place / "moved")
    try:
        for hold in (None, Hold(run=SYSTEM, read=(str(place),))):
            if hold is None or landlock.available():
                assert run("/bin/cat", "f", hold=hold, cwd=fd) == (0, "inside")
    finally:
        os.close(fd)


def test_a_program_has_its_own_session_and_environment(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "x")
    program = start_helper(["/usr/bin/env"], cwd="/", env={"A": "b"}, hold=None)
    assert program.communicate(timeout=40)[0] == b"A=b\n"
    program = start_helper(["/bin/sleep", "60"], cwd="/", env={}, hold=None)
    try:
        assert os.getsid(program.pid) == program.pid
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


@held
def test_input_goes_to_a_held_program(place: Path) -> None:
    hold = Hold(run=SYSTEM)
    program = start_helper(["/bin/cat"], cwd="/", env={}, hold=hold, stdin=subprocess.PIPE)
    assert program.communicate(b"hello", timeout=40)[0] == b"hello"
    with (place / "outside" / "f").open("rb") as file:
        program = start_helper(["/bin/cat"], cwd="/", env={}, hold=hold, stdin=file)
        # What is open already stays so.
        assert program.communicate(timeout=40)[0] == b"outside"


@held
def test_programs_start_from_several_threads_at_once(place: Path) -> None:
    before, threads = open_handles(), set(threading.enumerate())

    def work(number: int) -> bool:
        mine = place / f"{number}"
        mine.mkdir()
        (mine / "f").write_text(f"{number}")
        hold = Hold(run=SYSTEM, read=(str(mine),))
        allowed = run("/bin/cat", f"{mine}/f", hold=hold) == (0, f"{number}")
        return allowed and run("/bin/cat", f"{place}/outside/f", hold=hold)[0] == 1

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(24)))
    # Threads of earlier tests may still be closing theirs, and end.
    assert open_handles() <= before
    assert set(threading.enumerate()) <= threads
