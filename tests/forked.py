"""Clawkit without the wait: a program that has imported everything becomes clawkit in a copy.

A page of examples starts clawkit dozens of times, tests of the command line hundreds of times, and
most of each start is the import of the same modules. A copy is a process with an environment, a
directory, open files and, if wanted, a terminal of its own. What differs from `python -m clawkit`:
it is not a child of who asked for it, and it ends without taking the interpreter apart.

Whoever needs a program to start gets a small one that hands on what it was given, sends on the
signals that come, and ends as the copy does. It is no match for `python -m clawkit` in a shell with
a terminal, where a copy would be in another session.

    python tests/forked.py SOCKET

With `-c CODE` as its first arguments a copy runs that code instead, as `python -c` does.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import io
import marshal
import os
import pkgutil
import pty
import re
import selectors
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TextIO

_PR_SET_PDEATHSIG = 1
_HEAD = struct.Struct("I")
_NUMBER = struct.Struct("i")
_NEVER = re.compile(r"\.(adapters|testing)\b")
_GIVEN = ("stdin", "stdout", "stderr", "cwd")
# Nothing that takes time to import, or the wait would be back.
_TYPED = """#!{python} -IS
import marshal, os, sys, _signal, _socket
other = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
other.connect({socket!r})
cwd = os.open(".", os.O_RDONLY)
given = marshal.dumps((sys.argv, dict(os.environ), os.umask(0o77), False))
fds = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1, 2, cwd))
size = len(given).to_bytes(4, sys.byteorder)
other.sendmsg([size], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fds)])
other.sendall(given)
for number in (1, 2, 15):
    _signal.signal(number, lambda number, _: other.send(bytes([number])))
other.recv(4)
ended = int.from_bytes(other.recv(4), sys.byteorder, signed=True)
for number in (1, 2, 15):
    _signal.signal(number, _signal.SIG_DFL)
if ended < 0:
    os.kill(os.getpid(), -ended)
os._exit(ended)
"""


@contextlib.contextmanager
def ready_clawkit(folder: Path, env: Mapping[str, str]) -> Iterator[Path]:
    """While a program waits, `clawkit` in a folder is what a person types."""
    argv = [sys.executable, "-P", __file__, str(folder / "socket")]
    with subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as waiting:
        try:
            assert waiting.stdout is not None
            assert waiting.stdout.readline() == b"ready\n"
            waiting.wait()  # it was a child of this one that said so
            typed = folder / "clawkit"
            typed.write_text(_TYPED.format(python=sys.executable, socket=argv[-1]))
            typed.chmod(0o755)
            yield typed
        finally:
            assert waiting.stdin is not None
            waiting.stdin.close()


class InTerminal:
    """Clawkit in a terminal of its own, a copy of the program that waits in a folder."""

    def __init__(
        self, folder: Path, *args: str, cwd: Path, size: tuple[int, int], env: Mapping[str, str]
    ) -> None:
        self.fd, inside = pty.openpty()
        """Our end of the terminal."""
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        directory = os.open(cwd, os.O_RDONLY)
        self._copy = socket.socket(socket.AF_UNIX)
        self._copy.connect(str(folder / "socket"))
        given = marshal.dumps((["clawkit", *args], dict(env), 0o22, True))
        fds = [inside, inside, inside, directory]
        socket.send_fds(self._copy, [_HEAD.pack(len(given))], fds)
        self._copy.sendall(given)
        os.close(inside)
        os.close(directory)
        self.pid = self._heard()

    def wait(self) -> int:
        """The exit code."""
        with self._copy:
            return self._heard()

    def _heard(self) -> int:
        [number] = _NUMBER.unpack(self._copy.recv(_NUMBER.size, socket.MSG_WAITALL))
        return int(number)


class ForkServer:
    """Forks a process that becomes clawkit for each request."""

    def __init__(self, address: str) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(address)
        self._listening.listen(100)
        self._events = selectors.DefaultSelector()
        self._events.register(self._listening, selectors.EVENT_READ, self._begin)
        # It ends with who started it, however that ended.
        self._events.register(0, selectors.EVENT_READ, sys.exit)

    def become(self) -> None:
        """Returns in a copy, which is to go on as clawkit; never in the one that waits."""
        while True:
            for key, _ in self._events.select():
                act: Callable[[], bool] = key.data
                if act():
                    return

    def _begin(self) -> bool:
        asking, _ = self._listening.accept()
        fds: list[int] = []
        try:
            head, fds, *_ = socket.recv_fds(asking, _HEAD.size, len(_GIVEN))
            [size] = _HEAD.unpack(head)
            given = marshal.loads(asking.recv(size, socket.MSG_WAITALL))
        except (OSError, EOFError, ValueError, TypeError, struct.error):
            # Whoever asked was killed meanwhile.
            for fd in fds:
                os.close(fd)
            asking.close()
            return False
        pid = os.fork()
        if not pid:
            # It ends with the one that waits, if it has not ended by then.
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            self._close()
            asking.close()
            _take(given, fds)
            return True
        for fd in fds:
            os.close(fd)
        with contextlib.suppress(OSError):
            asking.send(_NUMBER.pack(pid))
        handle = os.pidfd_open(pid)
        self._events.register(handle, selectors.EVENT_READ, lambda: self._end(pid, handle, asking))
        self._events.register(asking, selectors.EVENT_READ, lambda: self._pass_on(pid, asking))
        return False

    def _pass_on(self, pid: int, asking: socket.socket) -> bool:
        """A signal; or whoever asked was killed, and so is what was asked for."""
        if asking.fileno() < 0:  # it has ended, in the same round of events
            return False
        try:
            numbers = asking.recv(100)
        except OSError:
            numbers = b""
        with contextlib.suppress(ProcessLookupError):
            for number in numbers or [signal.SIGKILL]:
                os.kill(pid, number)
        return False

    def _end(self, pid: int, handle: int, asking: socket.socket) -> bool:
        _, status = os.waitpid(pid, 0)
        self._events.unregister(handle)
        os.close(handle)
        self._events.unregister(asking)
        with asking, contextlib.suppress(OSError):
            asking.send(_NUMBER.pack(os.waitstatus_to_exitcode(status)))
        return False

    def _close(self) -> None:
        for key in list(self._events.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
            else:
                os.close(key.fd)
        self._events.close()


def _take(given: tuple[list[str], dict[str, str], int, bool], fds: list[int]) -> None:
    argv, env, mask, in_terminal = given
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
    os.fchdir(fds[3])
    for fd in fds:
        os.close(fd)
    if in_terminal:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.umask(mask)
    os.environ.clear()
    os.environ.update(env)
    sys.stdin, sys.stdout = _opened(sys.stdin, "r"), _opened(sys.stdout, "w")
    sys.stderr = _opened(sys.stderr, "w", buffering=1)
    sys.argv = argv


def _opened(old: TextIO, mode: str, buffering: int = -1) -> TextIO:
    """Whether one can seek in a file is asked only when it is opened."""
    if mode == "w" and os.environ.get("PYTHONUNBUFFERED"):
        raw = io.FileIO(old.fileno(), mode, closefd=False)
        return io.TextIOWrapper(raw, old.encoding, old.errors, write_through=True)
    return open(  # type: ignore[return-value]
        old.fileno(), mode, buffering, old.encoding, old.errors, closefd=False
    )


def _import_all() -> None:
    import clawkit

    for found in pkgutil.walk_packages(clawkit.__path__, "clawkit."):
        # No command imports adapters, and the SDKs that they need take longest.
        if not found.name.endswith("__main__") and not _NEVER.search(found.name):
            with contextlib.suppress(ImportError):  # what needs a component that is missing
                importlib.import_module(found.name)
    gc.freeze()


def _end(code: object) -> None:
    """As the interpreter ends, but for taking everything apart that was imported."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    # Not a child of the tests, some of which count theirs.
    if os.fork():
        os._exit(0)
    _import_all()
    waiting = ForkServer(sys.argv[1])
    print("ready", flush=True)
    waiting.become()
    from clawkit.cli.start import run

    try:
        if sys.argv[1:2] == ["-c"]:
            code = sys.argv.pop(2)
            del sys.argv[0]
            sys.path.insert(0, str(Path(__file__).parents[1]))
            exec(code, {"__name__": "__main__"})
        else:
            run()
    except SystemExit as ended:
        _end(ended.code)
    _end(0)
