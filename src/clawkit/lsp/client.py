"""One language server for one project, from its start to its end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from clawkit.lsp.documents import (
    CREATED,
    DELETED,
    Capabilities,
    Documents,
    Published,
    State,
    new_problems,
    to_uri,
)
from clawkit.lsp.jsonrpc import NOT_OFFERED, UNREADABLE, Connection, ServerError
from clawkit.lsp.protocols import Edited, Problem
from clawkit.lsp.servers import Launch, Server
from clawkit.process.confine import start_helper

GONE_S = 1.0
MAX_NOTED = 5_000
_POLL_S = 0.005

log = logging.getLogger(__name__)


class _Item(msgspec.Struct):
    section: str | None = None


class _Asked(msgspec.Struct):
    items: list[_Item]


class _Initialized(msgspec.Struct):
    capabilities: Capabilities


class _Status(msgspec.Struct):
    quiescent: bool


class ServerSession:
    """A server, started on first use.

    It is stopped if it does not answer for `patience_s`. `on_end` is called once, when it is gone.
    """

    def __init__(
        self,
        server: Server,
        root: str,
        launch: Launch,
        *,
        patience_s: float,
        on_end: Callable[[ServerSession], None],
    ) -> None:
        self.server = server
        self.last_used = time.monotonic()
        self._root = root
        self._launch = launch
        self._patience_s = patience_s
        self._on_end = on_end
        self._process: subprocess.Popen[bytes] | None = None
        self._wire: Connection | None = None
        self._documents: Documents | None = None
        self._ready = asyncio.Event()
        self._lock = asyncio.Lock()
        self._turn = 0
        self._waiting: dict[str, tuple[int, str | None]] = {}
        """By file, the last turn that checks it, and its text before the first turn."""
        self._unreported: dict[str, State] = {}
        self._noted: dict[str, int] = {}

    @property
    def is_busy(self) -> bool:
        return self._lock.locked()

    def note(self, changes: Mapping[str, int]) -> None:
        """Record changed files; the server is notified before the next check."""
        if self._wire is None:
            return  # not started yet: it will read the current files
        self._noted |= changes
        if len(self._noted) > MAX_NOTED:
            self._wire.end("too much has changed")

    async def compare(self, edits: Sequence[Edited]) -> list[Problem] | None:
        """The problems that edits introduced; None if later edits of the same files superseded
        them.

        Until `deliver` confirms that they were reported, they count as new in the next call too.
        Raises `ServerError` or OSError.
        """
        self._turn += 1
        turn = self._turn
        for each in edits:
            _, before = self._waiting.get(each.place, (0, each.before))
            self._waiting[each.place] = (turn, before)
        async with self._lock:
            current = [
                Edited(each.place, self._waiting.pop(each.place)[1], each.after)
                for each in edits
                if self._waiting.get(each.place, (0, None))[0] == turn
            ]
            self.last_used = time.monotonic()
            try:
                async with asyncio.timeout(self._patience_s):
                    return await self._compare(current) if current else None
            except TimeoutError:
                if self._wire is not None:
                    self._wire.end("it does not answer")
                raise ServerError("it does not answer") from None

    def deliver(self, edits: Sequence[Edited]) -> None:
        """The problems of these edits were reported."""
        for each in edits:
            self._unreported.pop(each.place, None)

    async def _compare(self, edits: Sequence[Edited]) -> list[Problem]:
        """Show all files as before, then all as after the edits, so that a change of several files
        is checked as a whole."""
        documents = self._documents or await self._open()
        edited = {each.place for each in edits}
        # The server must read files that others changed from the disk again.
        others = {place: kind for place, kind in self._noted.items() if place not in edited}
        self._noted = {}
        for place in others:
            documents.forget(place)
        documents.notify_changes(others)
        for each in edits:
            if each.before is not None:
                documents.show(each.place, each.before)
        kept = [each.place for each in edits if None not in (each.before, each.after)]
        old = await documents.look(kept)
        for each in edits:
            if each.after is None:
                documents.forget(each.place)
            else:
                documents.show(each.place, each.after)
                documents.save(each.place)
        documents.notify_changes({each.place: CREATED for each in edits if each.before is None})
        documents.notify_changes({each.place: DELETED for each in edits if each.after is None})
        new = await documents.look([each.place for each in edits if each.after is not None])
        documents.forget_oldest(keep=len(new))
        found: list[Problem] = []
        for place, state in new.items():
            before = self._unreported.setdefault(place, old.get(place, State("", ())))
            found += new_problems(place, self.server.name, before, state, utf16=documents.utf16)
        return found

    async def _open(self) -> Documents:
        if self._wire is not None:
            raise ServerError(self._wire.ended)
        self._process = start_helper(
            self._launch.argv,
            cwd=self._root,
            env=self._launch.env,
            hold=self._launch.hold,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        wire = self._wire = Connection(
            self._process, self._answer, self._take_notice, self._take_end
        )
        answer = await wire.request("initialize", self._introduction())
        try:
            capabilities = msgspec.json.decode(answer, type=_Initialized).capabilities
        except UNREADABLE:
            wire.end("its capabilities are invalid")
            raise ServerError(wire.ended) from None
        wire.notify("initialized", {})
        if self.server.tells_ready:
            await self._ready.wait()
        self._documents = Documents(wire, capabilities)
        return self._documents

    def _introduction(self) -> dict[str, Any]:
        return {
            "processId": os.getpid(),
            "clientInfo": {"name": "clawkit"},
            "rootUri": to_uri(self._root),
            "workspaceFolders": self._folders(),
            "initializationOptions": self.server.options,
            "capabilities": {
                "general": {"positionEncodings": ["utf-32", "utf-16"]},
                "textDocument": {
                    "synchronization": {"didSave": True},
                    "diagnostic": {"dynamicRegistration": False},
                    "publishDiagnostics": {"versionSupport": True},
                },
                "workspace": {
                    "configuration": True,
                    "workspaceFolders": True,
                    "didChangeWatchedFiles": {"dynamicRegistration": True},
                },
                "experimental": {"serverStatusNotification": True},
            },
        }

    def _folders(self) -> list[dict[str, str]]:
        return [{"uri": to_uri(self._root), "name": os.path.basename(self._root) or "/"}]

    def _answer(self, method: str, params: msgspec.Raw) -> object:
        """Answer requests of the server. All others are refused, above all edits."""
        match method:
            case "workspace/configuration":
                items = msgspec.json.decode(params, type=_Asked).items
                return [self.server.settings.get(item.section or "") for item in items]
            case "workspace/workspaceFolders":
                return self._folders()
            case "client/registerCapability" | "client/unregisterCapability":
                return None
        return NOT_OFFERED

    def _take_notice(self, method: str, params: msgspec.Raw) -> None:
        try:
            if method == "textDocument/publishDiagnostics" and self._documents:
                self._documents.take(msgspec.json.decode(params, type=Published))
            elif method == "experimental/serverStatus":
                status = msgspec.json.decode(params, type=_Status)
                if status.quiescent:
                    self._ready.set()
        except UNREADABLE:
            log.debug("%s: invalid %s", self.server.name, method)

    def _take_end(self) -> None:
        self._ready.set()
        if self._documents:
            self._documents.wake()
        self._on_end(self)

    async def close(self) -> None:
        """Kill the server and everything that it started, and wait for its end."""
        self._kill()
        for _ in range(round(GONE_S / _POLL_S)):
            if self._process is None or self._process.poll() is not None:
                break
            await asyncio.sleep(_POLL_S)
        with suppress(OSError):
            os.rmdir(self._launch.cache)  # fails unless it is empty

    def abandon(self) -> None:
        """Like `close`, without an event loop. Blocks."""
        self._kill()
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(GONE_S)

    def _kill(self) -> None:
        if self._wire is not None:
            self._wire.end("closed")
        # Until it is reaped, its pid is that of its process group; afterwards it may be reused.
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
