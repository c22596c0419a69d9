"""The ssh sandbox: commands on another machine, and a directory that is synchronized with it.

Everything goes over one connection to a program there that runs clawkit's code. Its messages are
not trusted: it may be as hostile as the commands that it runs. The file tools work on the local
copy.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from clawkit.core.paths import is_below
from clawkit.core.tasks import in_thread
from clawkit.errors import ToolError, ToolInputError
from clawkit.fs.protected_files import Protection
from clawkit.fs.protocols import Changed, Listing, OpenFile
from clawkit.process.protocols import Exit, Launch, LeftoverProcess
from clawkit.process.spool import Spool
from clawkit.process.terminal import TerminalState
from clawkit.sandbox.file_sync import (
    FileState,
    Mirror,
    Step,
    SyncPlan,
    check_manifest,
    explain_link,
)
from clawkit.sandbox.paths import MountedFiles, SandboxPaths, SearchableFiles, portable, to_inside
from clawkit.sandbox.protocols import Instance, SandboxUnavailableError, check_elsewhere
from clawkit.sandbox.remote_helper import AGENT, PIECE, join, split
from clawkit.sandbox.ssh_connection import SshLink, connect, convert, parse_target
from clawkit.store import private_dir, write_atomic
from clawkit.text import printable

if TYPE_CHECKING:
    from clawkit.fs.protocols import Start

_GAP = "commands can do everything that the remote account can: network, files, processes"
_CLOSE_S = 10.0
_MAX_SIDE = 65_535
_MAX_LEFT, _MAX_REPORTED = 1_000, 5
_MAX_STEPS = 2_000
_Instance = tuple[str, str, float, float, str]  # name, scope, created, last used, access


class SshRunning:
    """A command on the other machine; see `Running`."""

    pid = since = mark = 0
    server = (0, 0)

    def __init__(self, link: SshLink, id_: str, launch: Launch, output: Spool) -> None:
        self._link, self._id = link, id_
        self._takes_input = launch.open_input or launch.size is not None
        self.started = time.monotonic()
        self._writing = asyncio.Lock()
        self.done: asyncio.Future[Exit] = link.loop.create_future()
        self.output = output
        self.left: tuple[LeftoverProcess, ...] = ()
        self.terminal = None if launch.size is None else TerminalState(*launch.size)
        self.is_over = self._is_closed = False
        self.following: asyncio.Task[None] | None = None

    @property
    def can_write(self) -> bool:
        return self._takes_input and not self.is_over

    async def wait(self) -> Exit:
        return await asyncio.shield(self.done)

    async def write(self, data: bytes, *, eof: bool = False) -> None:
        if not self.can_write:
            raise ToolInputError("its input is closed; start it with pty or background to write")
        async with self._writing:
            for at in range(0, max(len(data), 1), PIECE):
                last = at + PIECE >= len(data)
                piece = data[at : at + PIECE]
                await self._link.call("write", self._id, eof and last, data=piece)
        if eof and self.terminal is None:
            self._takes_input = False

    def resize(self, columns: int, rows: int) -> None:
        if self.terminal is None or self.is_over:
            raise ToolInputError("it has no terminal")
        if not (1 <= columns <= _MAX_SIDE and 1 <= rows <= _MAX_SIDE):
            raise ToolInputError(f"a terminal cannot have {columns} columns and {rows} rows")
        self._link.post("resize", self._id, columns, rows)
        self.terminal.resize(columns, rows)

    async def signal(self, number: int) -> None:
        if not self.is_over:
            await self._link.call("signal", self._id, number)

    async def end(self, grace_s: float) -> None:
        if self._link.is_open:
            with suppress(ToolError):  # if the connection was lost, so was the command
                answer, _ = await self._link.call("end", self._id, grace_s)
                await asyncio.wait({self.done})
                self.left = _clean(convert(answer, list[LeftoverProcess]))
        await asyncio.wait({self.done})

    def close(self) -> None:
        self._is_closed = True

    def add_output(self, data: bytes) -> None:
        if not self._is_closed:
            self.output.add(data)
            if self.terminal is not None:
                self.terminal.feed(data)

    def finish(self, exit_: Exit) -> None:
        """Set the exit; only the first call counts."""
        self.is_over = True
        if not self.done.done():
            self.left = () if exit_.reason == "lost" else self.left
            self.done.set_result(exit_)
        self.output.wake()


class SshHost:
    """Runs commands on the other machine."""

    name = "sandbox"

    def __init__(self, sandbox: SshSandbox, spool_dir: str) -> None:
        self._sandbox, self._spool_dir = sandbox, spool_dir
        self._running: dict[str, SshRunning] = {}

    @property
    def is_busy(self) -> bool:
        return bool(self._running)

    def prepare(self) -> None:
        """No-op: a command that may still be refused must not open a connection."""

    async def start(self, launch: Launch, id_: str) -> SshRunning:
        check_elsewhere(launch, "the ssh sandbox")
        if any("\0" in text for each in launch.env.items() for text in each):
            raise ToolInputError("env: a variable has a NUL character; remove it")
        link = await self._sandbox.sync()
        spool = Spool(os.path.join(self._spool_dir, f"{id_}.log"), launch.memory)
        running = self._running[id_] = SshRunning(link, id_, launch, spool)
        try:
            sent = {name: getattr(launch, name) for name in ("text", "size", "open_input")}
            sent["cwd"] = to_inside(launch.cwd, self._sandbox.mounts)
            await link.call("start", id_, {**sent, "env": portable(launch.env)})
        except BaseException as error:
            self._running.pop(id_, None)
            if not isinstance(error, ToolError) and link.is_open:
                link.post("drop", id_)
            raise
        running.following = asyncio.create_task(self._follow(link, id_, running))
        return running

    async def close(self) -> None:
        # Commands that do not end in time are stopped when the connection closes.
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await asyncio.gather(*(each.end(0) for each in self._running.values()))

    async def _follow(self, link: SshLink, id_: str, running: SshRunning) -> None:
        """Receive its output and its exit; after that, what it left running."""
        at, note = 0, "the other side did not report how the command ended"
        left: list[LeftoverProcess] | None = None
        try:
            while left != []:
                answer, data = await link.call("follow", id_, at, left)
                exit_, left = convert(answer, tuple[Exit | None, list[LeftoverProcess] | None])
                at += len(data)
                running.add_output(data)
                running.left = _clean(left or ())
                if exit_ is not None and not running.is_over:
                    running.is_over = True
                    # Its end is reported after its files were copied back.
                    notes = (printable(exit_.note, "")[:1_000], await self._sandbox.sync_back())
                    said = "; ".join(filter(None, notes))
                    running.finish(exit_._replace(note=said, signal=exit_.signal[:20]))
        except ToolError as error:
            note = f"{error}. The command was stopped there, or will be soon"
        finally:
            self._running.pop(id_, None)
            running.finish(Exit("lost", seconds=time.monotonic() - running.started, note=note))


def _clean(left: Iterable[LeftoverProcess]) -> tuple[LeftoverProcess, ...]:
    found = islice(left, _MAX_LEFT)
    return tuple(
        LeftoverProcess(each.pid, printable(each.name, "")[:64], each.is_stuck) for each in found
    )


class SyncedFiles(MountedFiles):
    """The local copy, synchronized while commands run."""

    def __init__(self, files: SearchableFiles, sandbox: SshSandbox) -> None:
        super().__init__(files, sandbox.mounts)
        self._sandbox = sandbox

    @asynccontextmanager
    async def open(self, path: str) -> AsyncIterator[OpenFile]:
        await self._sandbox.refresh()
        async with super().open(path) as file:
            yield file

    async def list(self, *args: Any, **options: Any) -> Listing:
        await self._sandbox.refresh()
        return await super().list(*args, **options)

    async def change(self, *args: Any, **options: Any) -> tuple[Changed, ...]:
        done = await super().change(*args, **options)
        with suppress(ToolError):  # the next command reports the error
            await self._sandbox.refresh()
        return done

    def start(self, path: str) -> Start:
        link = self._sandbox.link
        if link is not None and link.is_open:
            # Searches start in a thread, outside the event loop.
            asyncio.run_coroutine_threadsafe(self._sandbox.refresh(), link.loop).result()
        return super().start(path)


class SshSandbox:
    """One directory on another machine, a copy of one here, and commands in it."""

    backend = "ssh"

    def __init__(self, paths: SandboxPaths, reason: str = "") -> None:
        """The mounts of `paths` are copied; `reason` says why this backend was chosen."""
        self._settings = settings = paths.settings.ssh
        self._paths, self._reason = paths, reason
        self.name = paths.name
        root = settings.workspace_root
        if not root.startswith("/") or ".." in root.split("/"):
            why = f"sandbox.ssh.workspaceRoot is {root!r}; it must be an absolute path"
            raise SandboxUnavailableError(why)
        parse_target(settings.target)
        self.workdir = f"{root.rstrip('/')}/{self.name}"
        self.mounts = tuple(
            mount._replace(target=self.workdir if mount.writable else self.workdir + AGENT)
            for mount in paths.mounts
        )
        key = hashlib.sha256(f"{settings.target}\0{root}\0{paths.workdir}".encode()).hexdigest()[:8]
        state = os.path.join(paths.state, "sandboxes", f"{self.name}-{key}.json")
        around = paths.context.protection, paths.context.secrets
        self._copies = [
            SyncedDirectory(source, *(("", state) if writable else (AGENT, "")), *around)
            for source, _, writable in self.mounts
        ]
        self._conflicts: set[tuple[str, str]] = set()
        self._uncopied: set[tuple[str, str]] = set()
        self._reported: set[tuple[str, str]] = set()
        self._host = SshHost(self, paths.context.spool_dir)
        self.link: SshLink | None = None
        self._connecting, self._syncing = asyncio.Lock(), asyncio.Lock()

    async def prepare(self) -> None:
        await self.sync()

    async def sync(self) -> SshLink:
        """Synchronize all copies; returns the connection. Raises `ToolError`."""
        link = await self.connect()
        async with self._syncing:
            self._uncopied = set()
            for copies in self._copies:
                try:
                    conflicts, uncopied = await copies.sync(link)
                except OSError as error:
                    raise ToolError(f"the workspace cannot be copied: {error}") from None
                self._conflicts |= conflicts.items()
                self._uncopied |= uncopied.items()
        return link

    async def refresh(self) -> None:
        """Synchronize if commands run; otherwise nothing can have changed there."""
        if self._host.is_busy:
            await self.sync()

    async def sync_back(self) -> str:
        """Synchronize after a command; returns a note about new conflicts and uncopied files."""
        try:
            await self.sync()
        except (ToolError, OSError) as error:
            return f"its files were not copied back: {error}"
        found = sorted((self._conflicts | self._uncopied) - self._reported)
        self._reported.update(found)
        said = [f"{printable(path, '')}: {what}" for path, what in found[:_MAX_REPORTED]]
        more = len(found) - len(said)
        return "; ".join([*said, f"and {more} more"] if more else said)

    def host(self) -> SshHost:
        return self._host

    def files(self) -> SyncedFiles:
        return SyncedFiles(self._paths.context.files(self.mounts), self)

    def describe(self) -> Mapping[str, Any]:
        return {
            **self._paths.describe(self, self._reason),
            "target": self._settings.target,
            "name": self.name,
            "network": "full",
            "connected": self.link is not None and self.link.is_open,
            "conflicts": sorted(map(": ".join, self._conflicts | self._uncopied)),
            "gaps": [_GAP],
        }

    async def list(self) -> Sequence[Instance]:
        link = await self.connect()
        raw, _ = await link.call("instances")
        found = []
        for name, scope, created, used, access in convert(raw, list[_Instance]):
            shown = printable(name, ""), self.backend, printable(scope, "")
            is_busy = name == self.name and self._host.is_busy
            is_outdated = name == self.name and access != self._paths.access
            found.append(Instance(*shown, created, used, is_busy, is_outdated))
        return found

    async def remove(self, name: str) -> None:
        link = await self.connect()
        await link.call("remove", name)
        if name == self.name:
            for copies in self._copies:
                copies.forget()
            await self.close()

    async def close(self) -> None:
        link = self.link
        if link is not None and link.loop is asyncio.get_running_loop():
            await self._host.close()
            await link.close()
        elif link is not None:
            link.drop()
        self.link = None
        await in_thread(self._paths.remove)

    async def connect(self) -> SshLink:
        """The connection, reopened if it was lost. Raises `SandboxUnavailableError`."""
        loop = asyncio.get_running_loop()
        if self.link is not None and self.link.loop is not loop:
            self.link.drop()
            self.link = None
            self._connecting, self._syncing = asyncio.Lock(), asyncio.Lock()
        async with self._connecting:
            if self.link is None or not self.link.is_open:
                paths = self._paths
                paths.get_ready()
                options = {"name": paths.name, "scope": paths.scope, "access": paths.access}
                self.link = await connect(self._settings, options, paths.context.reveal)
            return self.link


class SyncedDirectory:
    """A directory here, and its copy on the other machine."""

    def __init__(
        self, root: str, tree: str, state: str, protection: Protection, secrets: Iterable[str]
    ) -> None:
        """`tree` is the other side's name of its copy; `state` is the file with the last common
        state. Without one, changes are only copied there, and changes made there are undone.
        `secrets` are never copied."""
        self._root, self._tree, self._state = root, tree, state
        # The directory itself may be inside clawkit's home; nothing else in there is copied.
        self._protection = replace(protection, open=(*protection.open, root))
        self._secrets = tuple(map(os.path.realpath, secrets))
        self._mirror = Mirror(root, (*protection.own, *self._secrets))
        self._link: SshLink | None = None
        self._base: dict[str, FileState] = {}
        self._known: tuple[str, dict[str, FileState]] = ("", {})

    async def sync(self, link: SshLink) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Synchronize both. Returns the paths that were in conflict, with what was done, and the
        paths that could not be copied, with the reason. Raises `ToolError` and `OSError`."""
        if link is not self._link:
            self._link, self._known, self._base = link, ("", {}), self._load(link)
        remote, skipped = await self._scan(link)
        local: dict[str, FileState] = await in_thread(self._mirror.scan)
        skipped |= self._mirror.skipped
        todo = SyncPlan(self._base if self._state else remote, local, remote, skipped)
        todo.refuse(self._why_not_taken)
        failed = await self._carry_out(link, todo)
        if self._state and (new := todo.next_base()) != self._base:
            self._base = new
            await in_thread(self._save, link)
        return todo.conflicts, skipped | failed

    async def _scan(self, link: SshLink) -> tuple[dict[str, FileState], dict[str, str]]:
        answer, _ = await link.call("scan", self._tree, self._known[0])
        digest, raw, skipped = convert(answer, tuple[str, dict[str, FileState] | None, list[str]])
        if raw is not None:
            check_manifest(raw)
            self._known = digest, raw
        elif digest != self._known[0]:
            raise ToolError("the other side sent an invalid answer: no manifest")
        words = "not copied: it is too large, or cannot be read on the other machine"
        return self._known[1], dict.fromkeys(skipped, words)

    async def _carry_out(self, link: SshLink, todo: SyncPlan) -> dict[str, str]:
        """Execute the plan; failed steps are removed from it and returned with the reason."""
        failed: dict[str, str] = {}
        for steps in _batches(todo.to_local):
            wanted = {todo.source.get(path, path): path for path in _files(steps)}
            contents: dict[str, bytes] = {}
            if wanted:
                answer, data = await link.call("fetch", self._tree, list(wanted))
                got = split(convert(answer, dict[str, int]), data)
                contents = {wanted[path]: got[path] for path in got if path in wanted}
            failed |= await in_thread(self._mirror.apply, steps, contents)
        todo.leave(failed)
        for steps in _batches(todo.to_remote):
            self._known = ("", {})
            sizes, data = join(await in_thread(self._mirror.read, _files(steps)))
            answer, _ = await link.call("apply", self._tree, steps, sizes, data=data)
            failed |= convert(answer, dict[str, str])
        todo.leave(failed)
        if failed:
            self._known = ("", {})
        return {path: f"not copied: {printable(why, '')[:200]}" for path, why in failed.items()}

    def _why_not_taken(self, path: str, entry: FileState | None) -> str:
        place = os.path.join(self._root, path)
        if any(is_below(place, each) for each in self._secrets):
            return "it belongs to clawkit's own secrets"
        return self._protection.explain(place) or explain_link(path, entry)

    def _load(self, link: SshLink) -> dict[str, FileState]:
        """The last common state, if the copy there is still the same one."""
        with suppress(OSError, ValueError, LookupError, ToolError):
            with open(self._state, encoding="utf-8") as file:
                kept = json.load(file)
            if kept["created"] == link.created:
                return convert(kept["base"], dict[str, FileState])
        return {}

    def _save(self, link: SshLink) -> None:
        private_dir(os.path.dirname(self._state))
        kept = {"created": link.created, "base": self._base}
        write_atomic(self._state, json.dumps(kept).encode())

    def forget(self) -> None:
        """Drop the state after the copy there was removed."""
        self._link = None
        with suppress(FileNotFoundError):
            os.unlink(self._state)


def _files(steps: Sequence[Step]) -> list[str]:
    return [path for path, entry in steps if entry is not None and entry.kind == "file"]


def _batches(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """The steps in order, in batches that fit into a message."""
    batch: list[Step] = []
    size = 0
    for path, entry in steps:
        more = entry.size if entry is not None else 0
        if batch and (size + more > PIECE or len(batch) >= _MAX_STEPS):
            yield batch
            batch, size = [], 0
        batch.append((path, entry))
        size += more
    if batch:
        yield batch
