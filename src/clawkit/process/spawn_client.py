"""The client of the spawn server: starts it, sends it commands, and receives their ends."""

from __future__ import annotations

import array
import asyncio
import functools
import marshal
import os
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from clawkit.core.tasks import in_thread
from clawkit.errors import ToolError, ToolInputError
from clawkit.process import process_table
from clawkit.process.protocols import LOST, Exit, LeftoverProcess
from clawkit.process.spawn_server import Unframer, frame
from clawkit.text import printable

if TYPE_CHECKING:
    from clawkit.process.landlock import Hold

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_ROUNDS = 10
_AT_ONCE = 16 * 1024
_PATIENCE_S = 10.0
"""For the server to stop everything and exit."""
_MAX_MESSAGE, _MAX_LEFT, _MAX_NAME = 1 << 20, 1_000, 64
"""Limits for messages of an untrusted server."""
_MAX_WORDS = 200
_INVALID = (ValueError, TypeError, LookupError, OSError, ArithmeticError, RecursionError)
"""Exceptions raised by an invalid message or by a file descriptor that is not a socket."""


def server_args(root: str = _ROOT, /, **options: bool | int) -> tuple[str, ...]:
    """The arguments of Python that run the server; `root` is where it finds clawkit. An imported
    module has cached bytecode; a script that is started by its path would be compiled each time.
    Garbage collection is off during imports, which create no garbage."""
    code = (
        f"import gc, sys; gc.disable(); sys.path.append({root!r})\n"
        f"from clawkit.process.spawn_server import main; main(**{options!r})"
    )
    return "-I", "-S", "-c", code


def _pack(*request: Any) -> bytes:
    return frame(marshal.dumps(request, 2))


class ServerLostError(ToolError):
    """The server exited before it received the command."""

    def __init__(self) -> None:
        super().__init__("the program that starts commands has stopped; try again")


class NoDirectoryError(ToolInputError):
    """The working directory of a command cannot be used. The message is the system's."""


class ServerProcess(NamedTuple):
    """A running spawn server, and how to stop it."""

    socket: socket.socket
    kill: Callable[[], object]
    """Kills it and everything it started."""
    wait: Callable[[float], object]
    """Blocks until it is gone; raises `TimeoutExpired` after that many seconds."""
    pid: int = 0
    """Its process if it runs unconfined on this machine, and so is trusted. One in a sandbox could
    be controlled by its commands: its messages are checked, and it gets no file descriptor that
    leads outside."""
    find: Callable[[], int] = int
    """Its pid on this machine if it runs in a sandbox; 0 if it cannot be seen from here."""


class SpawnedChild:
    """A command as its spawn server reports it; `SpawnClient.run` starts it."""

    def __init__(self, client: SpawnClient, id_: str, detached: str = "") -> None:
        """`detached` is the file for its exit code, if it is to outlive clawkit."""
        self.client = client
        self.id = id_
        self.detached = detached
        self.mark = 0
        # 0 if its process cannot be seen from here.
        self.pid = self.since = 0
        self.started: asyncio.Future[int] = client.loop.create_future()
        self.ended: asyncio.Future[Exit] = client.loop.create_future()
        self.left_behind: tuple[LeftoverProcess, ...] = ()
        """Processes that it left running when it ended."""
        self.gone: asyncio.Future[tuple[int, ...]] = client.loop.create_future()
        """Done when no process of the command is left; the result is what could not be killed."""
        self.server_lost = False
        """Whether the server was lost before it reported that nothing is left."""
        self.crowd = 0
        """Number of processes when it was killed for having too many."""

    @property
    def server(self) -> tuple[int, int]:
        return self.client.server

    def members(self, processes: process_table.Table, orphans: Collection[int]) -> set[int]:
        return process_table.members(self.pid or -1, self.id, self.mark, processes, orphans)


C = TypeVar("C", bound=SpawnedChild)


class SpawnClient:
    """One spawn server and its commands. Bound to the event loop that it was created in."""

    def __init__(self, server: ServerProcess | None = None) -> None:
        """Starts a server without a sandbox on this machine unless one is given."""
        self.loop = asyncio.get_running_loop()
        self._children: dict[str, SpawnedChild] = {}
        self._backlog: deque[tuple[bytes, tuple[int, ...]]] = deque()
        self._env: Mapping[str, str] | None = None
        """The environment that was sent last; most commands have the same."""
        self._is_closing = self._refuses = False
        self._server = server or start_server((sys.executable, *server_args()), trusted=True)
        self._socket = self._server.socket
        self._socket.setblocking(False)
        self._unframer = Unframer(0 if self.is_local else _MAX_MESSAGE)
        self.closed: asyncio.Future[None] = self.loop.create_future()
        """Done when the server is gone."""
        self.proxy: asyncio.Future[tuple[socket.socket, int]] = self.loop.create_future()
        """A listening socket inside the sandbox, and its port, if the server sends one."""
        self.mounts: asyncio.Future[str] = self.loop.create_future()
        """The mounts in the sandbox, if the server sends them, before any command runs."""
        self.loop.add_reader(self._socket, self._read)

    @property
    def is_local(self) -> bool:
        """Whether its commands are processes of this machine, outside of any sandbox. Only then
        the server is trusted."""
        return self._server.pid > 0

    @functools.cached_property
    def server(self) -> tuple[int, int]:
        """Pid and start time of the server; zeros if it cannot be seen from here."""
        found = process_table.look(self._server.pid or self._server.find())
        return (found.pid, found.started) if found is not None else (0, 0)

    def _children_outside(self) -> Iterator[tuple[int, process_table.Process]]:
        """The processes that a server in a sandbox can name, with the pids that they have there.
        Whatever it claims, these are all in its sandbox."""
        pid, _ = self.server
        return process_table.children_inside(pid) if pid else iter(())

    @property
    def is_busy(self) -> bool:
        return bool(self._children)

    @property
    def is_open(self) -> bool:
        return not (self.closed.done() or self._is_closing or self._refuses)

    async def run(
        self,
        child: C,
        argv: Sequence[str],
        env: Mapping[str, str],
        fds: Sequence[int],
        *,
        limit: int,
        tty: str = "",
        timeout_s: float = 0,
        programs: Sequence[str] | None = None,
        hold: Hold | None = None,
        cwd: str = "",
    ) -> C:
        """Start a program, given as an absolute path. `fds` are its directory, unless `cwd` names
        it, and either standard input and output or its terminal, named `tty`; the caller keeps
        ownership. The server adds the id to the environment. `programs` are absolute paths: it can
        execute only these and itself. `hold` confines it."""
        if not (cwd or self.is_local):
            raise ValueError("a descriptor of a directory would lead out of the sandbox")
        child.mark = process_table.new_mark({other.mark for other in self._children.values()})
        options = {
            "cwd": cwd,
            "hold": hold and tuple(hold),
            "mark": child.mark,
            "limit": limit,
            "tty": tty,
            "detached": child.detached,
            "timeout_s": timeout_s,
            "programs": programs and tuple(programs),
        }
        is_known, self._env = env == self._env, dict(env)
        self._post(_pack("run", child.id, [*argv], None if is_known else self._env, options), fds)
        self._children[child.id] = child
        try:
            await asyncio.wait({child.started}, timeout=_PATIENCE_S)
            if not child.started.done():
                self._give_up()
            child.pid = await child.started
        except asyncio.CancelledError:
            child.started.add_done_callback(lambda it: it.cancelled() or it.exception())
            with suppress(ServerLostError):
                self._post(_pack("drop", child.id))
            raise
        return child

    async def signal(self, child: SpawnedChild, number: int) -> None:
        with suppress(ServerLostError):
            self._post(_pack("signal", child.id, int(number)))

    async def end(self, child: SpawnedChild, grace_s: float) -> tuple[int, ...]:
        """Stop it and wait until nothing is left; returns what could not be killed."""
        if not child.gone.done():
            with suppress(ServerLostError):  # then it is gone
                self._post(_pack("end", child.id, grace_s))
            await asyncio.wait({child.gone}, timeout=grace_s + _PATIENCE_S)
            if not child.gone.done():
                self._give_up()
        return child.gone.result()

    def drop(self) -> None:
        """Close the connection from another event loop: the server then stops everything."""
        self._socket.close()
        self._reap_later()

    def _wait(self, seconds: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._server.wait(seconds)

    def _reap_later(self, seconds: float = 1e6) -> None:
        threading.Thread(target=self._wait, args=(seconds,), name="clawkit", daemon=True).start()

    async def close(self) -> None:
        """Stop all commands that are not detached, and the server."""
        if self.closed.done():
            return
        if self.loop is not asyncio.get_running_loop():
            self.drop()
            return
        self._is_closing = True
        has_detached = any(child.detached for child in self._children.values())
        with suppress(ServerLostError):
            self._post(_pack("close"))
        await asyncio.wait({self.closed}, timeout=_PATIENCE_S)
        if not self.closed.done():
            self._give_up()
        if has_detached:
            # It runs as long as its detached commands, and only has to be reaped.
            self._reap_later()
            return
        await in_thread(self._wait, _PATIENCE_S)
        if not self.is_local:
            # It may claim to have stopped everything and continue.
            self._server.kill()

    def _post(self, data: bytes, fds: Sequence[int] = ()) -> None:
        """Send, or queue until the socket is writable; `fds` may be closed afterwards."""
        if self.closed.done():
            raise ServerLostError
        if not self._backlog:
            rest = self._send(data, fds)
            if self.closed.done():
                raise ServerLostError
            if not rest:
                return
            self.loop.add_writer(self._socket, self._flush)
            # The descriptors were sent with the first byte.
            data, fds = rest, fds if len(rest) == len(data) else ()
        self._backlog.append((data, tuple(map(os.dup, fds))))

    def _send(self, data: bytes, fds: Sequence[int]) -> bytes:
        """Send what the socket accepts; returns the rest."""
        beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            return data[self._socket.sendmsg([data], beside) :]
        except BlockingIOError:
            return data
        except OSError:
            self._lose()
            return b""

    def _flush(self) -> None:
        while self._backlog:
            data, fds = self._backlog[0]
            rest = self._send(data, fds)
            if self.closed.done() or len(rest) == len(data):
                return
            self._backlog[0] = (rest, ())
            for fd in fds:
                os.close(fd)
            if not rest:
                self._backlog.popleft()
        if not self.closed.done():
            self.loop.remove_writer(self._socket)

    def _read(self) -> None:
        handles: list[int] = []
        try:
            if self.is_local or self.proxy.done():
                data = self._socket.recv(_AT_ONCE)
            else:
                data, handles, _, _ = socket.recv_fds(self._socket, _AT_ONCE, 1)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            for body in self._unframer.feed(data):
                id_, kind, *rest = body.decode("utf-8", "surrogatepass").split("\0")
                if kind == "proxy" and not id_ and handles and not self.proxy.done():
                    port, listener = int(rest[0]), socket.socket(fileno=handles[0])
                    handles.clear()
                    self.proxy.set_result((listener, port))
                elif kind == "mounts" and not id_ and not self.mounts.done():
                    self.mounts.set_result(rest[0])
                elif (child := self._children.get(id_)) is not None:
                    self._handle(child, kind, rest)
        except _INVALID:
            if self.is_local:
                raise
            data = b""
        finally:
            for fd in handles:
                os.close(fd)
        if not data:
            self._lose()

    def _handle(self, child: SpawnedChild, kind: str, fields: list[str]) -> None:
        if kind == "pid":
            pid, since = map(int, fields)
            if not self.is_local:
                seen = ((id_, found.started, found.pid) for id_, found in self._children_outside())
                pid = next((real for *same, real in seen if same == [pid, since]), 0)
                since = since if pid else 0
            child.since = since
            _settle(child.started, pid)
        elif kind in ("error", "unconfined", "nowhere", "refused"):
            self._refuses |= kind == "refused"
            del self._children[child.id]
            if not child.started.done():
                child.started.set_exception(_why_not_started(kind, fields))
        elif kind == "crowd":
            child.crowd = int(fields[0])
        elif kind == "exit":
            code, cpu_s, memory, is_oom, wanted_network, *found = fields
            left = tuple(
                LeftoverProcess(int(pid), printable(name, keep="")[:_MAX_NAME])
                for pid, name in zip(
                    found[: 2 * _MAX_LEFT : 2], found[1 : 2 * _MAX_LEFT : 2], strict=True
                )
            )
            exit_ = Exit.of(min(max(int(code), -255), 255), 0.0)._replace(
                cpu_s=round(int(float(cpu_s) * 1_000_000) / 1_000_000, 6),
                memory=int(memory),
                wanted_network=bool(int(wanted_network)),
            )
            if int(is_oom):
                exit_ = exit_._replace(reason="out-of-memory")
            if not child.ended.done():
                if left and not self.is_local:
                    known = {id_: found.pid for id_, found in self._children_outside()}
                    left = tuple(each._replace(pid=known.get(each.pid, each.pid)) for each in left)
                child.left_behind = left
                child.ended.set_result(exit_)
            if not left:
                self._release(child)
        elif kind == "gone":
            self._release(child, tuple(map(int, fields[:_MAX_LEFT])))

    def _release(self, child: SpawnedChild, stuck: tuple[int, ...] = ()) -> None:
        self._children.pop(child.id, None)
        _settle(child.ended, LOST)
        _settle(child.gone, stuck)

    def _give_up(self) -> None:
        """The server does not answer; a command may have stopped it. Kill everything below it
        first: once it is gone, its descendants can no longer be determined."""
        if not self.is_local:
            self._lose()
            return
        processes = process_table.table()
        below = process_table.family([self._server.pid], processes) - {self._server.pid}
        for child in self._children.values():
            if child.detached:
                below -= child.members(processes, below)
        process_table.stop(-1, below, processes, force=True)
        self._server.kill()
        self._lose()

    def _lose(self) -> None:
        """The server is gone. If it was killed, kill what it left behind."""
        if self.closed.done():
            return
        self.closed.set_result(None)
        for unregister in (self.loop.remove_reader, self.loop.remove_writer):
            unregister(self._socket)
        self._socket.close()
        if not self.is_local:
            self._server.kill()
        elif not self._is_closing:
            self._wait(0.5)
        for _, fds in self._backlog:
            for fd in fds:
                os.close(fd)
        self._backlog.clear()
        left, self._children = list(self._children.values()), {}
        ours = [child for child in left if self.is_local and not child.detached]
        for _ in range(_ROUNDS):
            processes = process_table.table() if ours else {}
            found = [(child.pid, child.members(processes, processes)) for child in ours]
            for pid, members in found:
                process_table.stop(pid, members, processes, force=True)
            if not any(members for _, members in found):
                break
        why = "the program that starts commands was killed; the command may have run"
        for child in left:
            if not child.started.done():
                child.started.set_exception(ToolError(why))
            child.server_lost = True
            _settle(child.ended, LOST)
            _settle(child.gone, ())
        if not self._is_closing:  # `close` waits for the server itself
            # A fork bomb may have taken all tasks: nothing above may depend on a thread.
            with suppress(RuntimeError):
                self._reap_later(_PATIENCE_S)


def start_server(
    argv: Sequence[str], *, trusted: bool = False, pass_fds: Sequence[int] = ()
) -> ServerProcess:
    """Start a server, with its socket as standard input; unless it is trusted, as the only child of
    a sandbox. Killing that must also kill everything it started. Raises OSError."""
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            process = subprocess.Popen(
                argv,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Commands inherit nothing from it, and its /proc/…/environ has no secrets.
                env={},
                start_new_session=True,
                pass_fds=pass_fds,
            )
    except OSError:
        ours.close()
        raise

    def find() -> int:
        return next(iter(process_table.children_of(process.pid)), 0)

    return ServerProcess(ours, process.kill, process.wait, process.pid if trusted else 0, find)


def _settle(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _why_not_started(kind: str, fields: list[str]) -> ToolError:
    if kind == "refused":
        return ServerLostError()
    words = printable(fields[-1], keep="")[:_MAX_WORDS]
    if kind == "nowhere":
        return NoDirectoryError(words)
    if kind == "unconfined":
        return ToolError(f"the kernel could not confine the command: {words}")
    return ToolError(f"the shell could not be started: {words.lower()} (error {fields[0]})")
