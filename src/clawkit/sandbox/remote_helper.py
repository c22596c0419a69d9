"""The program on the remote machine of the ssh sandbox: runs commands and synchronizes files.

It runs the same code as clawkit on its own machine, and gets requests on standard input: messages
of JSON and attached bytes. When standard input closes or is silent for too long, the program stops
all commands and exits.
"""

from __future__ import annotations

import asyncio
import contextlib
import glob
import json
import os
import shutil
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from clawkit.core.tasks import in_thread
from clawkit.errors import ToolError, ToolInputError
from clawkit.process.local_host import LocalHost, LocalRunning
from clawkit.process.protocols import Exit, Launch
from clawkit.sandbox.file_sync import FileState, Mirror
from clawkit.sandbox.tree_removal import remove_tree
from clawkit.store import private_dir

_HEAD = struct.Struct("<II")
MAX_JSON = 64 * 1024**2
MAX_DATA = 257 * 1024**2  # both sides refuse more in one message
PIECE = 4 * 1024**2  # preferred size of a message, in bytes
SILENCE_S = 90.0  # without a message for this long, the connection is lost
FAILED = 96  # exit code if it could not start; the reason is on stderr
_LOOK_S, _NEWS_S = 0.2, 20.0
_MEMORY = 1 << 20
_OWN = ("HOME", "PATH", "TMPDIR", "USER", "LOGNAME", "SHELL")
_STATE = ".clawkit"
AGENT = "-agent"  # suffix of a sandbox's name for the copy of a read-only workspace


def pack(message: object, data: bytes = b"") -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return _HEAD.pack(len(body), len(data)) + body + data


def join(contents: Mapping[str, bytes]) -> tuple[dict[str, int], bytes]:
    """Sizes by name, and the concatenated contents."""
    return {name: len(data) for name, data in contents.items()}, b"".join(contents.values())


def split(sizes: Mapping[str, int], data: bytes) -> dict[str, bytes]:
    """The inverse of `join`; the caller must validate the result."""
    found, at = {}, 0
    for name, size in sizes.items():
        found[name] = data[at : at + size]
        at += size
    return found


async def receive(reader: asyncio.StreamReader) -> tuple[list[Any], bytes]:
    """The next message. Raises `EOFError` at the end, `ValueError` for an invalid message."""
    try:
        size, beside = _HEAD.unpack(await reader.readexactly(_HEAD.size))
        if size > MAX_JSON or beside > MAX_DATA:
            raise ValueError("a message is too large")
        message = json.loads(await reader.readexactly(size))
        data = await reader.readexactly(beside) if beside else b""
    except asyncio.IncompleteReadError:
        raise EOFError from None
    except RecursionError:
        raise ValueError("a message is nested too deeply") from None
    if not isinstance(message, list) or not message:
        raise ValueError("a message is not a list")
    return message, data


class Helper:
    """Answers requests, each in its own task."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        options = json.loads(sys.argv[2])
        self._root = os.path.abspath(options["root"])
        self._name: str = options["name"]
        self._state = os.path.join(self._root, _STATE)
        self._directory = os.path.join(os.path.realpath(self._root), self._name)
        self._meta = os.path.join(self._state, f"{self._name}.json")
        trees = ("", AGENT) if options["access"] == "ro" else ("",)
        self._mirrors = {tree: Mirror(self._directory + tree) for tree in trees}
        self._make(options["scope"], options["access"])
        self._host = LocalHost(os.path.join(self._state, f"output-{os.getpid()}"))
        self._running: dict[str, LocalRunning] = {}
        self._exits: dict[str, asyncio.Task[Exit]] = {}
        self._dropped: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def _make(self, scope: str, access: str) -> None:
        # If the directory was removed and created again, its new creation time tells clawkit that
        # the files in it were not deleted one by one.
        is_new = not os.path.lexists(self._directory)
        places = (self._directory + tree for tree in self._mirrors)
        for path in (self._root, self._state, *places):
            if os.path.islink(path):
                raise ToolError(f"{path!r} is a link; choose another sandbox.ssh.workspaceRoot")
            private_dir(path)
            os.chmod(path, 0o700)
        self._created = time.time()
        if not is_new:
            with contextlib.suppress(OSError, ValueError, LookupError):
                self._created = float(_load(self._meta)["created"])
        now = {"scope": scope, "created": self._created, "access": access}
        with open(self._meta, "w", encoding="utf-8") as file:
            json.dump(now, file)

    async def run(self) -> None:
        """Serve until clawkit is gone."""
        await self._send(["ready", self._created])
        with contextlib.suppress(EOFError, TimeoutError, ConnectionError):
            while True:
                async with asyncio.timeout(SILENCE_S):
                    message, data = await receive(self._reader)
                task = asyncio.create_task(self._answer(message, data))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        await self._host.close()
        shutil.rmtree(os.path.join(self._state, f"output-{os.getpid()}"), ignore_errors=True)

    async def _send(self, message: object, data: bytes = b"") -> None:
        self._writer.write(pack(message, data))
        await self._writer.drain()

    async def _answer(self, message: list[Any], data: bytes) -> None:
        number, method, *params = message
        call: Callable[..., Awaitable[Any]] = getattr(self, f"do_{method}")
        beside = b""
        try:
            answer = await call(*params, data)
            if method in ("fetch", "follow"):
                answer, beside = answer
            reply = ["done", number, answer]
        except Exception as error:  # noqa: BLE001 - a task root: every request has an answer
            reply = ["fail", number, isinstance(error, ToolInputError), str(error)]
        with contextlib.suppress(ConnectionError):
            if number:
                await self._send(reply, beside)

    async def do_ping(self, _: bytes) -> None:
        """Keeps the connection alive."""

    # Commands

    async def do_start(self, id_: str, launch: dict[str, Any], _: bytes) -> None:
        os.utime(self._meta)
        own = (name for name in os.environ if name in _OWN or name.startswith("XDG_"))
        launch["env"] |= {name: os.environ[name] for name in own}
        running = await self._host.start(Launch(**launch, memory=_MEMORY), id_)
        if id_ in self._dropped:
            await running.end(0)
            return
        exiting = self._exits[id_] = asyncio.create_task(running.wait())
        exiting.add_done_callback(lambda _: running.output.wake())
        self._running[id_] = running

    async def do_drop(self, id_: str, _: bytes) -> None:
        """Cancel the start of a command, whether it has started already or not."""
        self._dropped.add(id_)
        if (running := self._running.get(id_)) is not None:
            await running.end(0)

    async def do_follow(self, id_: str, at: int, left: list[Any] | None, _: bytes) -> object:
        """Long poll: output from `at` on; without more output, the exit and what the command left
        running if that differs from `left`; nothing on a timeout."""
        running, exiting, end = self._running[id_], self._exits[id_], time.monotonic() + _NEWS_S
        while time.monotonic() < end:
            is_over = exiting.done()
            now = [list(each) for each in running.left] if is_over else None
            if data := await running.output.read(at, PIECE // 4):
                return [None, left], data
            if now == []:
                running.close()
                running.output.remove()
                del self._running[id_], self._exits[id_]
            if now != left:
                return [exiting.result(), now], b""
            if running.output.size == at and exiting.done() == is_over:
                await running.output.changed(_LOOK_S if is_over else end - time.monotonic())
        return [None, left], b""

    async def do_write(self, id_: str, eof: bool, data: bytes) -> None:
        await self._find(id_).write(data, eof=eof)

    async def do_resize(self, id_: str, columns: int, rows: int, _: bytes) -> None:
        self._find(id_).resize(columns, rows)

    async def do_signal(self, id_: str, number: int, _: bytes) -> None:
        await self._find(id_).signal(number)

    async def do_end(self, id_: str, grace_s: float, _: bytes) -> object:
        """Stop a command; returns what could not be stopped."""
        running = self._running.get(id_)
        if running is None:
            return ()
        await running.end(grace_s)
        return running.left

    def _find(self, id_: str) -> LocalRunning:
        try:
            return self._running[id_]
        except KeyError:
            raise ToolInputError("its input is closed: the command has ended") from None

    # Copies

    async def do_scan(self, tree: str, known_digest: str, _: bytes) -> object:
        """A digest, the manifest (None if clawkit has it already), and skipped paths."""
        mirror = self._mirrors[tree]
        found: dict[str, FileState] = await in_thread(mirror.scan)
        digest = str(hash(tuple(found.items())))
        return [digest, None if digest == known_digest else found, list(mirror.skipped)]

    async def do_fetch(self, tree: str, paths: list[str], _: bytes) -> object:
        return join(await in_thread(self._mirrors[tree].read, paths))

    async def do_apply(self, tree: str, steps: list[Any], sizes: Any, data: bytes) -> object:
        given = [(path, None if entry is None else FileState(*entry)) for path, entry in steps]
        return await in_thread(self._mirrors[tree].apply, given, split(sizes, data))

    # Instances

    async def do_instances(self, _: bytes) -> object:
        found = []
        for place in glob.glob("*.json", root_dir=self._state):
            with contextlib.suppress(OSError, ValueError, LookupError):
                used = os.stat(os.path.join(self._state, place)).st_mtime
                meta = _load(os.path.join(self._state, place))
                name = place.removesuffix(".json")
                found.append([name, meta["scope"], meta["created"], used, meta["access"]])
        return found

    async def do_remove(self, name: str, _: bytes) -> None:
        if name == self._name:
            await self._host.close()
        await in_thread(self._remove, name)

    def _remove(self, name: str) -> None:
        meta = os.path.join(self._state, f"{name}.json")
        if "/" in name or name.startswith(".") or not os.path.exists(meta):
            raise ToolInputError(f"unknown sandbox {name!r}; see `clawkit sandbox list`")
        places = (os.path.join(self._root, name + tree) for tree in ("", AGENT))
        for place in filter(os.path.lexists, places):
            remove_tree(place)
            if os.path.lexists(place):
                raise ToolError(f"{place!r} could not be removed completely; try again")
        os.unlink(meta)


def _load(path: str) -> Any:
    with open(path, encoding="utf-8") as file:
        return json.load(file)


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=PIECE)
    # Commands must not inherit the connection, and a stray print must not corrupt it.
    given, taken = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(2):
        os.dup2(null, fd)
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(given, "rb", 0)
    )
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop), os.fdopen(taken, "wb", 0)
    )
    await Helper(reader, asyncio.StreamWriter(transport, protocol, None, loop)).run()


def main() -> None:
    """Arguments: a token to print first, and the options as JSON."""
    os.write(1, f"{sys.argv[1]}\n".encode())
    try:
        asyncio.run(_serve())
    except (ToolError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(FAILED)
