"""One language server for one project: its lifetime, its documents, and the diagnostics that a
change introduced."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec

from clawkit.lsp.protocols import Edited, Problem, Severity
from clawkit.lsp.servers import LanguageServer, ServerLaunch, language_of
from clawkit.process import jsonrpc
from clawkit.process.confine import start_helper
from clawkit.text import one_line

GONE_S = 1.0
MAX_NOTED = 5_000
_POLL_S = 0.005
_PREFIX = "file://"
CREATED, CHANGED, DELETED = 1, 2, 3
"""Kinds of file changes, as numbered by the protocol."""
MAX_MESSAGE = 500
MAX_CODE = 100
_SEVERITIES: dict[int, Severity] = {1: "error", 2: "warning"}
_LINE_END = re.compile(r"\r\n|\r|\n")
MAX_OPEN = 50
"""Maximum open documents; the oldest is closed for the next one."""
SETTLE_S = 0.1
"""Silence after which the diagnostics of a server without versions count as complete."""
_TRIES = 5
_RETRY_S = 0.05
_CONTENT_MODIFIED, _SERVER_CANCELLED = -32801, -32802

log = logging.getLogger(__name__)


def to_uri(path: str) -> str:
    return _PREFIX + quote_from_bytes(os.fsencode(path))


def to_path(uri: str) -> str:
    """The path of a URI; empty if it is not a file of this machine. Compare paths, not URIs:
    servers write one path in several ways."""
    path = uri.removeprefix(_PREFIX).removeprefix("localhost")
    if path == uri or not path.startswith("/"):
        return ""
    return os.fsdecode(unquote_to_bytes(path))


class _Position(msgspec.Struct):
    line: int
    character: int


class _Range(msgspec.Struct):
    start: _Position


class Diagnostic(msgspec.Struct):
    """A problem that a server reports for one place of a document."""

    range: _Range
    message: str
    severity: int = 1
    code: int | str | None = None


class State(NamedTuple):
    text: str
    diagnostics: Sequence[Diagnostic]


def new_problems(
    path: str, server: str, before: State, after: State, *, utf16: bool
) -> Iterator[Problem]:
    """The problems of a text that its earlier state did not have.

    A problem is the same if its message and the text of its line are, wherever that line is now.
    With `utf16`, the server counts columns in UTF-16 units.
    """
    old = Counter(key for key, _, _ in _keyed(before))
    for key, each, line in _keyed(after):
        if old[key] > 0:
            old[key] -= 1
            continue
        start = each.range.start
        column = start.character
        if utf16:  # convert UTF-16 units to characters
            prefix = line.encode("utf-16-le")[: 2 * max(column, 0)]
            column = len(prefix.decode("utf-16-le", "ignore"))
        yield Problem(
            place=path,
            line=max(start.line, 0) + 1,
            column=min(max(column, 0), len(line)) + 1,
            severity=_SEVERITIES[each.severity],
            # The text after a blank line is help for people.
            message=one_line(each.message.partition("\n\n")[0], MAX_MESSAGE, whole_words=True),
            code=one_line("" if each.code is None else str(each.code), MAX_CODE),
            server=server,
        )


def _keyed(state: State) -> Iterator[tuple[tuple[object, ...], Diagnostic, str]]:
    """Errors and warnings, each with its key and the text of its line."""
    lines = _LINE_END.split(state.text) if state.diagnostics else []
    for each in state.diagnostics:
        if each.severity not in _SEVERITIES:
            continue
        number = each.range.start.line
        line = lines[number] if 0 <= number < len(lines) else ""
        yield (each.severity, each.code, each.message, line.strip()), each, line


class Capabilities(msgspec.Struct, rename="camel"):
    diagnostic_provider: Any = None
    position_encoding: str | None = None
    text_document_sync: Any = None

    @property
    def pulls(self) -> bool:
        """Whether diagnostics are requested, not published by the server."""
        return self.diagnostic_provider not in (None, False)

    @property
    def utf16(self) -> bool:
        return self.position_encoding != "utf-32"

    @property
    def saves(self) -> bool:
        sync = self.text_document_sync
        return isinstance(sync, dict) and bool(sync.get("save"))


class Published(msgspec.Struct):
    """Diagnostics that a server publishes for one document."""

    uri: str
    diagnostics: list[Diagnostic]
    version: int | None = None


class _Report(msgspec.Struct):
    items: list[Diagnostic]


@dataclass
class _Document:
    uri: str
    text: str
    version: int = 1
    diagnostics: Sequence[Diagnostic] | None = None
    """None while unknown."""
    has_version: bool = False
    published: asyncio.Event = field(default_factory=asyncio.Event)


class Documents:
    """The open documents of one server, least recently shown first."""

    def __init__(self, wire: jsonrpc.Connection, capabilities: Capabilities) -> None:
        self.utf16 = capabilities.utf16
        """Whether the server counts columns in UTF-16 units."""
        self._wire = wire
        self._capabilities = capabilities
        self._open: dict[str, _Document] = {}

    def show(self, path: str, text: str) -> None:
        """Let the server use this text as the content of the file."""
        document = self._open.pop(path, None)
        if document is None:
            document = _Document(to_uri(path), text)
            opened = {"uri": document.uri, "languageId": language_of(path), "version": 1}
            self._wire.notify("textDocument/didOpen", {"textDocument": opened | {"text": text}})
        elif document.text != text:
            document.text = text
            document.version += 1
            document.diagnostics = None
            document.published.clear()
            changed = {"uri": document.uri, "version": document.version}
            change = {"textDocument": changed, "contentChanges": [{"text": text}]}
            self._wire.notify("textDocument/didChange", change)
        self._open[path] = document

    def save(self, path: str) -> None:
        """Notify that the text that was shown last was saved."""
        if self._capabilities.saves:
            saved = {"textDocument": {"uri": self._open[path].uri}}
            self._wire.notify("textDocument/didSave", saved)

    def forget(self, path: str) -> None:
        """Close a document: the server then uses the file on disk."""
        document = self._open.pop(path, None)
        if document is not None:
            closed = {"textDocument": {"uri": document.uri}}
            self._wire.notify("textDocument/didClose", closed)

    def forget_oldest(self, keep: int) -> None:
        surplus = len(self._open) - max(MAX_OPEN, keep)
        for place in list(self._open)[: max(surplus, 0)]:
            self.forget(place)

    def notify_changes(self, changes: Mapping[str, int]) -> None:
        """Notify of changed files, given with their kinds of changes."""
        if changes:
            events = [{"uri": to_uri(place), "type": kind} for place, kind in changes.items()]
            self._wire.notify("workspace/didChangeWatchedFiles", {"changes": events})

    def take(self, published: Published) -> None:
        document = self._open.get(to_path(published.uri))
        if document is None or self._capabilities.pulls:
            return
        document.has_version = published.version is not None
        if published.version is None or published.version >= document.version:
            document.diagnostics = published.diagnostics
            document.published.set()

    def wake(self) -> None:
        """Wake all waiters: the server is gone."""
        for document in self._open.values():
            document.published.set()

    async def look(self, places: Iterable[str]) -> dict[str, State]:
        """The current diagnostics of documents. Raises `ServerError`."""
        documents = {place: self._open[place] for place in places}
        found = await asyncio.gather(*(self._diagnostics(each) for each in documents.values()))
        return {
            place: State(document.text, each)
            for (place, document), each in zip(documents.items(), found, strict=True)
        }

    async def _diagnostics(self, document: _Document) -> Sequence[Diagnostic]:
        if document.diagnostics is not None:
            return document.diagnostics
        if self._capabilities.pulls:
            document.diagnostics = await self._pull(document.uri)
            return document.diagnostics
        return await self._receive(document)

    async def _pull(self, uri: str) -> Sequence[Diagnostic]:
        tries = 0
        while True:
            tries += 1
            try:
                answer = await self._wire.request(
                    "textDocument/diagnostic", {"textDocument": {"uri": uri}}
                )
                return msgspec.json.decode(answer, type=_Report).items
            except jsonrpc.UNREADABLE:
                raise jsonrpc.ServerError("its report is invalid") from None
            except jsonrpc.ServerError as error:
                # It was busy with something newer, such as loading the project.
                if tries == _TRIES or error.code not in (_CONTENT_MODIFIED, _SERVER_CANCELLED):
                    raise
            await asyncio.sleep(_RETRY_S)

    async def _receive(self, document: _Document) -> Sequence[Diagnostic]:
        await document.published.wait()
        while not document.has_version and not self._wire.ended:
            # Without versions the first report may be about the previous text; the last one counts.
            document.published.clear()
            try:
                async with asyncio.timeout(SETTLE_S):
                    await document.published.wait()
            except TimeoutError:
                break
        if document.diagnostics is None:
            raise jsonrpc.ServerError(self._wire.ended)
        return document.diagnostics


class _Item(msgspec.Struct):
    section: str | None = None


class _ClientRequest(msgspec.Struct):
    items: list[_Item]


class _Initialized(msgspec.Struct):
    capabilities: Capabilities


class _Status(msgspec.Struct):
    quiescent: bool


class ServerSession:
    """A server, started on first use. It is stopped if it does not answer for `patience_s`.
    `on_end` is called once, when it is gone."""

    def __init__(
        self,
        server: LanguageServer,
        root: str,
        launch: ServerLaunch,
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
        self._wire: jsonrpc.Connection | None = None
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
                raise jsonrpc.ServerError("it does not answer") from None

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
            raise jsonrpc.ServerError(self._wire.ended)
        self._process = start_helper(
            self._launch.argv,
            cwd=self._root,
            env=self._launch.env,
            hold=self._launch.hold,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        pipes = self._process.stdin, self._process.stdout
        wire = self._wire = jsonrpc.Connection(
            *pipes, jsonrpc.HeaderFrames(), self._answer, self._take_notice, self._take_end
        )
        answer = await wire.request("initialize", self._introduction())
        try:
            capabilities = msgspec.json.decode(answer, type=_Initialized).capabilities
        except jsonrpc.UNREADABLE:
            wire.end("its capabilities are invalid")
            raise jsonrpc.ServerError(wire.ended) from None
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
                items = msgspec.json.decode(params, type=_ClientRequest).items
                return [self.server.settings.get(item.section or "") for item in items]
            case "workspace/workspaceFolders":
                return self._folders()
            case "client/registerCapability" | "client/unregisterCapability":
                return None
        return jsonrpc.NOT_OFFERED

    def _take_notice(self, method: str, params: msgspec.Raw) -> None:
        try:
            if method == "textDocument/publishDiagnostics" and self._documents:
                self._documents.take(msgspec.json.decode(params, type=Published))
            elif method == "experimental/serverStatus":
                status = msgspec.json.decode(params, type=_Status)
                if status.quiescent:
                    self._ready.set()
        except jsonrpc.UNREADABLE:
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
