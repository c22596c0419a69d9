"""The texts that a language server has been shown, what it finds wrong with them, and which of that
a change brought."""

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
"""Kinds of changes of files, as servers number them."""
MAX_MESSAGE = 500
MAX_CODE = 100
_SEVERITIES: dict[int, Severity] = {1: "error", 2: "warning"}
_LINE_END = re.compile(r"\r\n|\r|\n")
MAX_OPEN = 50
"""Texts that a server keeps in mind; the oldest goes for the next one."""
SETTLE_S = 0.1
"""Silence after which a server that gives no versions is taken to have said everything."""
_TRIES = 5
_RETRY_S = 0.05
_CONTENT_MODIFIED, _SERVER_CANCELLED = -32801, -32802


def to_uri(path: str) -> str:
    from urllib.parse import quote_from_bytes

    return _PREFIX + quote_from_bytes(os.fsencode(path))


def to_path(uri: str) -> str:
    """The path that a URI names; empty when it does not name a file of this machine.

    Servers spell one path in several ways, so that paths are compared and not URIs.
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
    """What a server says about one place of a document."""

    range: _Range
    message: str
    severity: int = 1
    code: int | str | None = None


class State(NamedTuple):
    """A text and what a server finds wrong with it."""

    text: str
    found: Sequence[Diagnostic]


def new_problems(
    place: str, server: str, before: State, after: State, *, utf16: bool
) -> Iterator[Problem]:
    """The problems of a text that its earlier state did not have.

    A problem is the same when it is worded the same and its line is, wherever that line is now.
    `utf16` says how the server counts columns.
    """
    old = Counter(key for key, _, _ in _keyed(before))
    for key, each, line in _keyed(after):
        if old[key] > 0:
            old[key] -= 1
            continue
        start = each.range.start
        column = _characters(line, start.character) if utf16 else start.character
        yield Problem(
            place=place,
            line=max(start.line, 0) + 1,
            column=min(max(column, 0), len(line)) + 1,
            severity=_SEVERITIES[each.severity],
            # What follows a blank line is help for people who look at a screen.
            message=one_line(each.message.partition("\n\n")[0], MAX_MESSAGE),
            code=one_line("" if each.code is None else str(each.code), MAX_CODE),
            server=server,
        )


def _keyed(state: State) -> Iterator[tuple[tuple[object, ...], Diagnostic, str]]:
    """Errors and warnings, each with what it is known by and the line it is about."""
    lines = _LINE_END.split(state.text) if state.found else []
    for each in state.found:
        if each.severity not in _SEVERITIES:
            continue
        number = each.range.start.line
        line = lines[number] if 0 <= number < len(lines) else ""
        yield (each.severity, each.code, each.message, line.strip()), each, line


def _characters(line: str, units: int) -> int:
    """How many characters of a line make that many UTF-16 units."""
    return len(line.encode("utf-16-le")[: 2 * max(units, 0)].decode("utf-16-le", "ignore"))


class Capabilities(msgspec.Struct, rename="camel"):
    """What a server offers, as far as it matters here."""

    diagnostic_provider: Any = None
    position_encoding: str | None = None
    text_document_sync: Any = None

    @property
    def pulls(self) -> bool:
        """Whether it can be asked for what it found, instead of telling by itself."""
        return self.diagnostic_provider not in (None, False)

    @property
    def utf16(self) -> bool:
        return self.position_encoding != "utf-32"

    @property
    def saves(self) -> bool:
        sync = self.text_document_sync
        return isinstance(sync, dict) and bool(sync.get("save"))


class Published(msgspec.Struct):
    """What a server tells by itself about one document."""

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
    """None while that is not known."""
    has_version: bool = False
    published: asyncio.Event = field(default_factory=asyncio.Event)


class Documents:
    """The documents of one server, least recently shown first."""

    def __init__(self, wire: Connection, capabilities: Capabilities) -> None:
        self.utf16 = capabilities.utf16
        """How the server counts columns."""
        self._wire = wire
        self._capabilities = capabilities
        self._open: dict[str, _Document] = {}

    def show(self, place: str, text: str) -> None:
        """Have the server take this text for what is in the file."""
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
        """Tell that the file has the text that was shown last."""
        if self._capabilities.saves:
            saved = {"textDocument": {"uri": self._open[place].uri}}
            self._wire.notify("textDocument/didSave", saved)

    def forget(self, place: str) -> None:
        """Have the server look at the file itself again."""
        document = self._open.pop(place, None)
        if document is not None:
            closed = {"textDocument": {"uri": document.uri}}
            self._wire.notify("textDocument/didClose", closed)

    def forget_oldest(self, keep: int) -> None:
        surplus = len(self._open) - max(MAX_OPEN, keep)
        for place in list(self._open)[: max(surplus, 0)]:
            self.forget(place)

    def tell(self, changes: Mapping[str, int]) -> None:
        """Tell of files that were changed; by their kinds of changes."""
        if changes:
            told = [{"uri": to_uri(place), "type": kind} for place, kind in changes.items()]
            self._wire.notify("workspace/didChangeWatchedFiles", {"changes": told})

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
        """What the server finds wrong now. Raises `ServerError` when it cannot be had."""
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
                raise ServerError("its report cannot be read") from None
            except ServerError as error:
                # It was busy with something newer, such as a project that it still loads.
                if tries == _TRIES or error.code not in (_CONTENT_MODIFIED, _SERVER_CANCELLED):
                    raise
            await asyncio.sleep(_RETRY_S)

    async def _receive(self, document: _Document) -> Sequence[Diagnostic]:
        await document.published.wait()
        while not document.has_version and not self._wire.ended:
            # Without versions the first word may be about the text before; the last one counts.
            document.published.clear()
            try:
                async with asyncio.timeout(SETTLE_S):
                    await document.published.wait()
            except TimeoutError:
                break
        if document.found is None:
            raise ServerError(self._wire.ended)
        return document.found
