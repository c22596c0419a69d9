"""Clawkit without the wait: a program that has imported everything becomes clawkit in a copy.

A page of examples starts clawkit dozens of times, and most of each start is the import of the same
modules. What is typed is a small program that hands its arguments, environment, directory and open
files to the one that waits, sends on the signals that come, and ends as the copy does.

    python tests/forked.py SOCKET
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import marshal
import os
import pkgutil
import selectors
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

_HEAD = struct.Struct("I")
_GIVEN = ("stdin", "stdout", "stderr", "cwd")
# Nothing that takes time to import, or the wait would be back.
_TYPED = """#!{python} -IS
import marshal, os, sys, _signal, _socket
other = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
other.connect({socket!r})
cwd = os.open(".", os.O_RDONLY)
given = marshal.dumps((sys.argv, dict(os.environ), os.umask(0o77)))
fds = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1, 2, cwd))
size = len(given).to_bytes(4, sys.byteorder)
other.sendmsg([size], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fds)])
other.sendall(given)
for number in (1, 2, 15):
    _signal.signal(number, lambda number, _: other.send(bytes([number])))
ended = int.from_bytes(other.recv(4), sys.byteorder, signed=True)
for number in (1, 2, 15):
    _signal.signal(number, _signal.SIG_DFL)
if ended < 0:
    os.kill(os.getpid(), -ended)
os._exit(ended)
"""


@contextlib.contextmanager
def ready_clawkit(folder: Path, env: dict[str, str]) -> Iterator[None]:
    """While a program waits, `clawkit` in a folder is what a person types."""
    address = str(folder / "socket")
    argv = [sys.executable, "-P", __file__, address]
    with subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as waiting:
        try:
            assert waiting.stdout is not None
            assert waiting.stdout.readline() == b"ready\n"
            typed = folder / "clawkit"
            typed.write_text(_TYPED.format(python=sys.executable, socket=address))
            typed.chmod(0o755)
            yield
        finally:
            assert waiting.stdin is not None
            waiting.stdin.close()


class ForkServer:
    """Becomes clawkit for everyone who asks."""

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
            self._close()
            asking.close()
            _take(given, fds)
            return True
        for fd in fds:
            os.close(fd)
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
            asking.send(struct.pack("i", os.waitstatus_to_exitcode(status)))
        return False

    def _close(self) -> None:
        for key in list(self._events.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
            else:
                os.close(key.fd)
        self._events.close()


def _take(given: tuple[list[str], dict[str, str], int], fds: list[int]) -> None:
    argv, env, mask = given
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
    os.fchdir(fds[3])
    for fd in fds:
        os.close(fd)
    sys.stdin, sys.stdout = _opened(sys.stdin, "r"), _opened(sys.stdout, "w")
    sys.stderr = _opened(sys.stderr, "w", buffering=1)
    os.umask(mask)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = argv


def _opened(old: TextIO, mode: str, buffering: int = -1) -> TextIO:
    """Whether one can seek in a file is asked only when it is opened."""
    return open(  # type: ignore[return-value]
        old.fileno(), mode, buffering, old.encoding, old.errors, closefd=False
    )


def _import_all() -> None:
    import clawkit

    for found in pkgutil.walk_packages(clawkit.__path__, "clawkit."):
        if not found.name.endswith("__main__") and ".testing" not in found.name:
            with contextlib.suppress(ImportError):  # what needs a component that is missing
                importlib.import_module(found.name)
    gc.freeze()


if __name__ == "__main__":
    # Not a child of the tests, some of which count theirs.
    if os.fork():
        os._exit(0)
    _import_all()
    waiting = ForkServer(sys.argv[1])
    print("ready", flush=True)
    waiting.become()
    from clawkit.cli.main import run

    run()
