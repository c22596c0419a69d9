"""A pool of warm language servers, one per project. Detects files that others changed, so that
servers do not rely on outdated content."""

from __future__ import annotations

import asyncio
import glob
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, TypeVar

from msgspec.structs import replace

from clawkit.core.paths import is_below
from clawkit.core.tasks import in_thread
from clawkit.lsp.client import CHANGED, CREATED, DELETED, ServerSession
from clawkit.lsp.protocols import Edited, Problem, Problems
from clawkit.lsp.servers import LanguageServer, ServerCatalog
from clawkit.process.jsonrpc import ServerError

MAX_ENTRIES = 10_000
MAX_FILES = 3_000
# Large, and full of files that others own. Hidden directories are skipped as well.
_SKIPPED = frozenset(("node_modules", "__pycache__", "target", "venv", "vendor", "dist", "build"))
MAX_SESSIONS = 8
MAX_RESTARTS = 3
RESTARTS_WITHIN_S = 300.0
MAX_TEXT = 2 * 1024 * 1024
MAX_TEXTS = 24 * 1024 * 1024
"""Bytes of all texts in one check; further files are not checked."""
MAX_PROBLEMS = 200

T = TypeVar("T")

log = logging.getLogger(__name__)


class WatchedTree:
    """Detects changed files below a directory. Covers a bounded number of files, those near the top
    first; in a larger tree changes of others are not detected."""

    def __init__(self, root: str, matters: Callable[[str], bool]) -> None:
        self._root = root
        self._matters = matters
        self._last_stamps: dict[str, tuple[int, int]] | None = None

    def changes(self) -> dict[str, int]:
        """The files that changed since the last call, with the kind of change; empty at first."""
        old, new = self._last_stamps, self._scan()
        self._last_stamps = new
        if old is None:
            return {}
        # A file may also be missing because the scan stopped before it.
        gone = old.keys() - new.keys()
        found = {place: DELETED for place in gone if not os.path.lexists(place)}
        for place, stamp in new.items():
            known = old.get(place)
            if known != stamp:
                found[place] = CREATED if known is None else CHANGED
        return found

    def _scan(self) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        folders = [self._root]
        entries = 0
        # The list grows during the loop: breadth first.
        for folder in folders:
            try:
                with os.scandir(folder) as scan:
                    for entry in scan:
                        entries += 1
                        if entries > MAX_ENTRIES or len(found) >= MAX_FILES:
                            return found
                        if entry.is_dir(follow_symlinks=False):
                            if entry.name not in _SKIPPED and not entry.name.startswith("."):
                                folders.append(entry.path)
                        elif self._matters(entry.name):
                            info = entry.stat(follow_symlinks=False)
                            found[entry.path] = (info.st_mtime_ns, info.st_size)
            except OSError:
                continue  # removed in the meantime, or not readable
        return found


_Key = tuple[str, str]
"""The name of a server, and its project."""


class Pool:
    """The servers for some directories. Bound to one event loop.

    A check returns after `check_s` at the latest. A server that does not answer for `patience_s`,
    or is idle for `idle_s`, is stopped.
    """

    def __init__(
        self,
        folders: Sequence[str],
        catalog: ServerCatalog,
        *,
        check_s: float,
        patience_s: float,
        idle_s: float,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._folders = tuple(folders)
        self._catalog = catalog
        self._check_s, self._patience_s, self._idle_s = check_s, patience_s, idle_s
        self._sessions: dict[_Key, ServerSession] = {}
        self._stamps: dict[_Key, tuple[object, ...]] = {}
        self._ends: dict[_Key, deque[float]] = {}
        self._trees = [WatchedTree(folder, catalog.is_watched) for folder in folders]
        self._noticing = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def check(self, edits: Sequence[Edited]) -> Problems:
        """The new problems that are found in time. Must not raise. Late servers continue, so that
        the next check is faster."""
        merged: dict[str, Edited] = {}
        for edit in edits:
            first = merged.get(edit.place, edit)
            merged[edit.place] = replace(edit, before=first.before)
        edits = tuple(merged.values())
        by_server: dict[tuple[LanguageServer, str], list[Edited]] = {}
        room = MAX_TEXTS
        for edit in edits:
            within = [each for each in self._folders if is_below(edit.place, each)]
            size = _size(edit)
            if not within or size is None or size > room:
                continue
            room -= size
            for server in self._catalog.servers_for(edit.place):
                root = _find_root(edit.place, max(within, key=len), server.root_markers)
                by_server.setdefault((server, root), []).append(edit)
        if not by_server and not self._sessions:
            return Problems()
        noticed = self._spawn(self._notice(edits), self._tasks)
        work = {
            self._spawn(self._compare(noticed, server, root, theirs), self._tasks): server.name
            for (server, root), theirs in by_server.items()
        }
        if not work:
            return Problems()
        done, late = await asyncio.wait(work, timeout=self._check_s)
        found: list[Problem] = []
        answered: set[str] = set()
        for task in done:
            answer = None if task.cancelled() or task.exception() else task.result()
            if answer is not None:
                session, problems = answer
                answered.add(work[task])
                found += problems
                session.deliver(edits)
        return Problems(
            _in_order(found), tuple(sorted(answered)), tuple(sorted({work[each] for each in late}))
        )

    async def close(self) -> None:
        if self.loop is not asyncio.get_running_loop():
            self.abandon()
            return
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for key in list(self._sessions):
            self._retire(key)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def abandon(self) -> None:
        """Kill all servers, if their event loop is closed. Blocks."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            session.abandon()

    async def _notice(self, edits: Sequence[Edited]) -> None:
        """Record changed files for every server, by these edits or by others."""
        async with self._noticing:
            for tree in self._trees:
                changes: dict[str, int] = await in_thread(tree.changes)
                for session in list(self._sessions.values()):
                    session.note(changes)
        changes = {
            edit.place: CREATED
            if edit.before is None
            else DELETED
            if edit.after is None
            else CHANGED
            for edit in edits
        }
        for session in list(self._sessions.values()):
            session.note(changes)

    async def _compare(
        self,
        noticed: asyncio.Task[None],
        server: LanguageServer,
        root: str,
        edits: Sequence[Edited],
    ) -> tuple[ServerSession, list[Problem]] | None:
        """The problems that one server finds; None if it is not available."""
        await asyncio.wait({noticed}, timeout=self._patience_s)
        session: ServerSession | None = None
        try:
            session = self._session(server, root)
            problems = await session.compare(edits) if session else None
            return (session, problems) if session and problems is not None else None
        except ServerError as error:
            log.debug("%s: %s", server.name, error)
        except OSError as error:
            log.debug("%s cannot be started: %s", server.name, error)
            if session is not None:
                self._note_end(session)
        return None

    def _session(self, server: LanguageServer, root: str) -> ServerSession | None:
        key = (server.name, root)
        stamps: list[object] = []
        for pattern in server.environment:
            for path in sorted(glob.glob(os.path.join(glob.escape(root), pattern))):
                with suppress(OSError):
                    stamps.append((path, os.stat(path).st_mtime_ns))
        stamp = tuple(stamps)
        session = self._sessions.get(key)
        if session is not None and stamp != self._stamps[key] and not session.is_busy:
            self._retire(key)
            session = None
        if session is None:
            since = time.monotonic() - RESTARTS_WITHIN_S
            restarts = sum(at > since for at in self._ends.get(key, ()))
            if restarts > MAX_RESTARTS or not self._make_room():
                return None
            launch = self._catalog.launch(server, root, self._folders)
            session = ServerSession(
                server, root, launch, patience_s=self._patience_s, on_end=self._note_end
            )
            self._sessions[key], self._stamps[key] = session, stamp
            if self._timer is None:
                self._timer = self.loop.call_later(self._idle_s, self._retire_idle)
        return session

    def _make_room(self) -> bool:
        if len(self._sessions) < MAX_SESSIONS:
            return True
        idle = [key for key, session in self._sessions.items() if not session.is_busy]
        if idle:
            self._retire(min(idle, key=lambda key: self._sessions[key].last_used))
        return bool(idle)

    def _note_end(self, session: ServerSession) -> None:
        """Called when a server exited or was given up."""
        for key, each in self._sessions.items():
            if each is session:
                ends = self._ends.setdefault(key, deque(maxlen=MAX_RESTARTS + 1))
                ends.append(time.monotonic())
                self._retire(key)
                return

    def _retire(self, key: _Key) -> None:
        self._spawn(self._sessions.pop(key).close(), self._closing)

    def _retire_idle(self) -> None:
        before = time.monotonic() - self._idle_s
        for key, session in list(self._sessions.items()):
            if session.last_used <= before and not session.is_busy:
                self._retire(key)
        self._timer = None
        if self._sessions:
            self._timer = self.loop.call_later(self._idle_s, self._retire_idle)

    def _spawn(
        self, work: Coroutine[Any, Any, T], among: set[asyncio.Task[Any]]
    ) -> asyncio.Task[T]:
        def on_done(task: asyncio.Task[T]) -> None:
            among.discard(task)
            if not task.cancelled() and (error := task.exception()):
                log.warning("could not check for problems", exc_info=error)

        task = self.loop.create_task(work)
        among.add(task)
        task.add_done_callback(on_done)
        return task


def _size(edit: Edited) -> int | None:
    """Bytes of the texts of an edit; None if they are too large or not valid Unicode."""
    texts = [text for text in (edit.place, edit.before, edit.after) if text is not None]
    if any(len(text) > MAX_TEXT for text in texts):
        return None
    try:
        sizes = [len(text.encode()) for text in texts]
    except UnicodeEncodeError:
        return None
    return sum(sizes) if max(sizes) <= MAX_TEXT else None


def _find_root(path: str, folder: str, markers: Sequence[str]) -> str:
    """The nearest directory above a file, up to `folder`, that has one of the markers."""
    at = os.path.dirname(path)
    while is_below(at, folder) and at != folder:
        if any(os.path.lexists(os.path.join(at, marker)) for marker in markers):
            return at
        at = os.path.dirname(at)
    return folder


def _place(each: Problem) -> tuple[object, ...]:
    return each.place, each.line, each.column, each.message


def _in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Errors first, then by place; a problem that two servers report alike appears once."""
    unique: dict[tuple[object, ...], Problem] = {}
    for each in sorted(problems, key=lambda each: (each.severity, *_place(each), each.server)):
        unique.setdefault(_place(each), each)
    return tuple(islice(unique.values(), MAX_PROBLEMS))
