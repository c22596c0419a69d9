"""The texts that a language server has been shown, and what it finds wrong with them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from clawkit.lsp.compare import Diagnostic, State
from clawkit.lsp.servers import language_of
from clawkit.lsp.uri import to_path, to_uri
from clawkit.lsp.wire import UNREADABLE, ServerError, Wire

MAX_OPEN = 50
"""Texts that a server keeps in mind; the oldest goes for the next one."""
SETTLE_S = 0.1
"""Silence after which a server that gives no versions is taken to have said everything."""
_TRIES = 5
_RETRY_S = 0.05
_CONTENT_MODIFIED, _SERVER_CANCELLED = -32801, -32802


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


class _Document:
    def __init__(self, uri: str, text: str) -> None:
        self.uri = uri
        self.text = text
        self.version = 1
        self.found: Sequence[Diagnostic] | None = None
        """None while that is not known."""
        self.has_version = False
        self.published = asyncio.Event()


class Documents:
    """The documents of one server, least recently shown first."""

    def __init__(self, wire: Wire, capabilities: Capabilities) -> None:
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
        """Tell of files that were changed; see `watch` for the kinds of changes."""
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
        """Let nobody wait any longer: the server is gone."""
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
