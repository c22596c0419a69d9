"""The documents of a language server, its diagnostics, and which of them a change introduced."""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from clawkit.lsp.jsonrpc import UNREADABLE, Connection, ServerError
from clawkit.lsp.protocols import Problem, Severity
from clawkit.lsp.servers import language_of
from clawkit.text import one_line

_PREFIX = "file://"
CREATED, CHANGED, DELETED = 1, 2, 3
"""Kinds of file changes, as numbered by the protocol."""
MAX_MESSAGE = 500
MAX_CODE = 100
_SEVERITIES: dict[int, Severity] = {1: "error", 2: "warning"}
_LINE_END = re.compile(r"\r\n|\r|\n")
MAX_OPEN = 50
"""Documents that are kept open; the oldest is closed for the next one."""
SETTLE_S = 0.1
"""Silence after which the diagnostics of a server without versions count as complete."""
_TRIES = 5
_RETRY_S = 0.05
_CONTENT_MODIFIED, _SERVER_CANCELLED = -32801, -32802


def to_uri(path: str) -> str:
    from urllib.parse import quote_from_bytes

    return _PREFIX + quote_from_bytes(os.fsencode(path))


def to_path(uri: str) -> str:
    """The path of a URI; empty if it is not a file of this machine.

    Compare paths, not URIs: servers write one path in several ways.
    """
    from urllib.parse import unquote_to_bytes

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
    """A text and its diagnostics."""

    text: str
    found: Sequence[Diagnostic]


def new_problems(
    place: str, server: str, before: State, after: State, *, utf16: bool
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
            place=place,
            line=max(start.line, 0) + 1,
            column=min(max(column, 0), len(line)) + 1,
            severity=_SEVERITIES[each.severity],
            # The text after a blank line is help for people.
            message=one_line(each.message.partition("\n\n")[0], MAX_MESSAGE),
            code=one_line("" if each.code is None else str(each.code), MAX_CODE),
            server=server,
        )


def _keyed(state: State) -> Iterator[tuple[tuple[object, ...], Diagnostic, str]]:
    """Errors and warnings, each with its key and the text of its line."""
    lines = _LINE_END.split(state.text) if state.found else []
    for each in state.found:
        if each.severity not in _SEVERITIES:
            continue
        number = each.range.start.line
        line = lines[number] if 0 <= number < len(lines) else ""
        yield (each.severity, each.code, each.message, line.strip()), each, line


class Capabilities(msgspec.Struct, rename="camel"):
    """The capabilities of a server that matter here."""

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
    found: Sequence[Diagnostic] | None = None
    """None while unknown."""
    has_version: bool = False
    published: asyncio.Event = field(default_factory=asyncio.Event)


class Documents:
    """The open documents of one server, least recently shown first."""

    def __init__(self, wire: Connection, capabilities: Capabilities) -> None:
        self.utf16 = capabilities.utf16
        """Whether the server counts columns in UTF-16 units."""
        self._wire = wire
        self._capabilities = capabilities
        self._open: dict[str, _Document] = {}

    def show(self, place: str, text: str) -> None:
        """Let the server use this text as the content of the file."""
        document = self._open.pop(place, None)
        if document is None:
            document = _Document(to_uri(place), text)
            opened = {"uri": document.uri, "languageId": language_of(place), "version": 1}
            self._wire.notify("textDocument/didOpen", {"textDocument": opened | {"text": text}})
        elif document.text != text:
            document.text = text
            document.version += 1
            document.found = None
            document.published.clear()
            changed = {"uri": document.uri, "version": document.version}
            change = {"textDocument": changed, "contentChanges": [{"text": text}]}
            self._wire.notify("textDocument/didChange", change)
        self._open[place] = document

    def save(self, place: str) -> None:
        """Notify that the text that was shown last was saved."""
        if self._capabilities.saves:
            saved = {"textDocument": {"uri": self._open[place].uri}}
            self._wire.notify("textDocument/didSave", saved)

    def forget(self, place: str) -> None:
        """Close a document: the server then uses the file on disk."""
        document = self._open.pop(place, None)
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
            document.found = published.diagnostics
            document.published.set()

    def wake(self) -> None:
        """Wake all waiters: the server is gone."""
        for document in self._open.values():
            document.published.set()

    async def look(self, places: Iterable[str]) -> dict[str, State]:
        """The current diagnostics of documents. Raises `ServerError`."""
        documents = {place: self._open[place] for place in places}
        found = await asyncio.gather(*(self._found(each) for each in documents.values()))
        return {
            place: State(document.text, each)
            for (place, document), each in zip(documents.items(), found, strict=True)
        }

    async def _found(self, document: _Document) -> Sequence[Diagnostic]:
        if document.found is not None:
            return document.found
        if self._capabilities.pulls:
            document.found = await self._pull(document.uri)
            return document.found
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
            except UNREADABLE:
                raise ServerError("its report is invalid") from None
            except ServerError as error:
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
        if document.found is None:
            raise ServerError(self._wire.ended)
        return document.found
