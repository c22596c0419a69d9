"""clawkit's side of the keeper: starting it, asking it, hearing from it."""

from __future__ import annotations

import array
import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from clawkit.core.bounded import in_thread
from clawkit.errors import ToolError
from clawkit.process import tree
from clawkit.process.base import Left
from clawkit.process.wire import Unpacker, pack

_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "keeper.py")
_ROUNDS = 10
_PATIENCE_S = 10.0
"""For the keeper to end everything and itself."""


class Facts(NamedTuple):
    """The end of a command, as the keeper saw it."""

    code: int | None
    """Negative for a signal; None when nobody saw the end."""
    cpu_s: float = 0.0
    memory: int = 0
    oom: bool = False
    left: tuple[Left, ...] = ()


class KeeperLostError(ToolError):
    """The keeper ended before it was asked to start a command."""

    def __init__(self) -> None:
        super().__init__("the program that starts commands has ended; try again")


class Child:
    """A command that the keeper started."""

    def __init__(self, id_: str, *, detached: bool, mark: int) -> None:
        loop = asyncio.get_running_loop()
        self.id = id_
        self.detached = detached
        self.mark = mark
        self.pid = 0
        self.since = 0
        """When its process began, as the system counts."""
        self.started: asyncio.Future[int] = loop.create_future()
        self.ended: asyncio.Future[Facts] = loop.create_future()
        self.gone: asyncio.Future[tuple[int, ...]] = loop.create_future()
        """Set when nothing of the command is left, with what could not be ended."""
        self.crowd = 0
        """How many processes it had when it was ended for having too many."""


class Keeping:
    """One keeper and the commands that it keeps. Belongs to the event loop it was made in."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._children: dict[str, Child] = {}
        self._unpacker = Unpacker()
        self._backlog: deque[tuple[bytes, tuple[int, ...]]] = deque()
        self._closed: asyncio.Future[None] = self.loop.create_future()
        self._env: Mapping[str, str] | None = None
        """The variables that the keeper was told last; mostly the next command has the same."""
        self._is_closing = self._refuses = False
        self._socket, other = socket.socketpair()
        self._socket.setblocking(False)
        with other:
            try:
                self._process = _start(other.fileno())
            except OSError:
                self._socket.close()
                raise
        self.loop.add_reader(self._socket, self._read)

    @property
    def is_open(self) -> bool:
        return not (self._closed.done() or self._is_closing or self._refuses)

    async def run(
        self,
        id_: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        fds: Sequence[int],
        *,
        limit: int,
        tty: str = "",
        detached: str = "",
        timeout_s: float = 0,
        programs: Sequence[str] | None = None,
    ) -> Child:
        """Start a program, by its absolute path. `fds` are its directory and either its standard
        input and output or a handle of its terminal, named `tty`; they stay the caller's. The
        keeper adds the id to its variables. With `programs`, by absolute paths, it can start no
        others but itself."""
        taken = {child.mark for child in self._children.values()}
        child = Child(id_, detached=bool(detached), mark=tree.new_mark(taken))
        options = {
            "mark": child.mark,
            "limit": limit,
            "tty": tty,
            "detached": detached,
            "timeout_s": timeout_s,
            "programs": programs,
        }
        is_known, self._env = env == self._env, dict(env)
        self._post(pack("run", id_, argv, None if is_known else env, options), fds)
        self._children[id_] = child
        try:
            await asyncio.wait({child.started}, timeout=_PATIENCE_S)
            if not child.started.done():
                self._give_up()
            child.pid = await child.started
        except asyncio.CancelledError:
            child.started.add_done_callback(_ignore)
            with suppress(KeeperLostError):
                self._post(pack("drop", id_))
            raise
        return child

    async def signal(self, child: Child, number: int) -> None:
        with suppress(KeeperLostError):
            self._post(pack("signal", child.id, number))

    async def end(self, child: Child, grace_s: float) -> tuple[int, ...]:
        """Until nothing of it is left; what could not be ended."""
        if not child.gone.done():
            with suppress(KeeperLostError):  # which has ended it
                self._post(pack("end", child.id, grace_s))
            await asyncio.wait({child.gone}, timeout=grace_s + _PATIENCE_S)
            if not child.gone.done():
                self._give_up()
        return child.gone.result()

    def drop(self) -> None:
        """Let go of it from another event loop: it ends everything when nobody is there."""
        self._socket.close()
        threading.Thread(target=self._process.wait, name="clawkit", daemon=True).start()

    async def close(self) -> None:
        """End everything that was not to live on, and the keeper."""
        if self._closed.done():
            return
        self._is_closing = True
        lives_on = any(child.detached for child in self._children.values())
        with suppress(KeeperLostError):
            self._post(pack("close"))
        await asyncio.wait({self._closed}, timeout=_PATIENCE_S)
        if not self._closed.done():
            self._give_up()
        if lives_on:
            # It lives as long as what it keeps, and only has to be taken note of.
            threading.Thread(target=self._process.wait, name="clawkit", daemon=True).start()
            return
        with suppress(subprocess.TimeoutExpired):
            await in_thread(self._process.wait, _PATIENCE_S)

    def _post(self, data: bytes, fds: Sequence[int] = ()) -> None:
        """Send, or keep until there is room; the handles may be closed afterwards."""
        if self._closed.done():
            raise KeeperLostError
        if not self._backlog:
            data = self._send(data, fds)
            if self._closed.done():
                raise KeeperLostError
            if not data:
                return
            self.loop.add_writer(self._socket, self._flush)
            fds = () if self._took_some else fds
        self._backlog.append((data, tuple(map(os.dup, fds))))

    def _send(self, data: bytes, fds: Sequence[int]) -> bytes:
        """What there was no room for."""
        beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self._took_some = False
        try:
            sent = self._socket.sendmsg([data], beside)
        except BlockingIOError:
            return data
        except OSError:
            self._lose()
            return b""
        self._took_some = sent > 0
        return data[sent:]

    def _flush(self) -> None:
        while self._backlog:
            data, fds = self._backlog[0]
            rest = self._send(data, fds)
            if self._closed.done() or (rest and not self._took_some):
                return
            self._backlog[0] = (rest, ())
            for fd in fds:
                os.close(fd)
            if not rest:
                self._backlog.popleft()
        if not self._closed.done():
            self.loop.remove_writer(self._socket)

    def _read(self) -> None:
        try:
            data = self._socket.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        for id_, kind, *rest in self._unpacker.feed(data):
            if (child := self._children.get(id_)) is not None:
                self._hear(child, kind, rest)
        if not data:
            self._lose()

    def _hear(self, child: Child, kind: str, rest: list[Any]) -> None:
        if kind == "pid":
            child.since = rest[1]
            _settle(child.started, rest[0])
        elif kind == "error":
            del self._children[child.id]
            if not child.started.done():
                child.started.set_exception(_explain(*rest))
        elif kind == "refused":
            self._refuses = True
            del self._children[child.id]
            if not child.started.done():
                child.started.set_exception(KeeperLostError())
        elif kind == "crowd":
            child.crowd = rest[0]
        elif kind == "exit":
            facts = rest[0]
            left = tuple(Left(*each) for each in facts.pop("left"))
            _settle(child.ended, Facts(left=left, **facts))
            if not left:
                self._release(child)
        elif kind == "gone":
            self._release(child, tuple(rest[0]))

    def _release(self, child: Child, stuck: tuple[int, ...] = ()) -> None:
        self._children.pop(child.id, None)
        _settle(child.ended, Facts(None))
        _settle(child.gone, stuck)

    def _give_up(self) -> None:
        """It does not answer: a command of ours may have stopped it. As long as it is there, it is
        known what is below it."""
        processes = tree.table()
        below = tree.family([self._process.pid], processes) - {self._process.pid}
        for child in self._children.values():
            if child.detached:
                below -= tree.members(child.pid or -1, child.id, child.mark, processes, below)
        tree.stop(-1, below, processes, force=True)
        self._process.kill()
        self._lose()

    def _lose(self) -> None:
        """The keeper is gone. What it has left behind, if somebody killed it, is ended."""
        if self._closed.done():
            return
        self._closed.set_result(None)
        for unregister in (self.loop.remove_reader, self.loop.remove_writer):
            unregister(self._socket)
        self._socket.close()
        if not self._is_closing:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.5)
        for _, fds in self._backlog:
            for fd in fds:
                os.close(fd)
        self._backlog.clear()
        left, self._children = list(self._children.values()), {}
        ours = [child for child in left if not child.detached]
        for _ in range(_ROUNDS):
            processes = tree.table() if ours else {}
            found = [
                (child, tree.members(child.pid or -1, child.id, child.mark, processes, processes))
                for child in ours
            ]
            for child, members in found:
                tree.stop(child.pid, members, processes, force=True)
            if not any(members for _, members in found):
                break
        for child in left:
            if not child.started.done():
                child.started.set_exception(
                    ToolError(
                        "the program that starts commands was killed; the command may have run"
                    )
                )
            _settle(child.ended, Facts(None))
            _settle(child.gone, ())


def _start(control: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        (sys.executable, "-I", "-S", _PROGRAM),
        stdin=control,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # The commands inherit none of it, and nobody who looks into it finds a secret.
        env={},
        start_new_session=True,
    )


def _ignore(future: asyncio.Future[int]) -> None:
    """What becomes of it is nobody's concern any more."""
    if not future.cancelled():
        future.exception()


def _settle(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _explain(number: int | None, words: str) -> ToolError:
    if number is None:
        return ToolError(f"the kernel would not confine the command: {words}")
    return ToolError(f"the shell could not be started: {words.lower()} (error {number})")
