"""What OpenAI's two APIs have in common: one conversation with one endpoint, out and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from clawkit.content import Assistant, Block, Image, Message, Stop, Text, ToolResult, Usage
from clawkit.models.base import Delta, Endpoint, ModelError, Request, ServerEvent
from clawkit.models.faults import cut_off
from clawkit.models.wire.answer import Answer
from clawkit.models.wire.dialect import Dialect
from clawkit.models.wire.items import Piece, arrange, blocks_of, join_body, max_tokens
from clawkit.models.wire.offered import Offered
from clawkit.models.wire.shared import NO_IMAGE, Pieces, encode


class OpenAiWire(ABC):
    """Writes requests. Each message is written once, whatever the number of requests it is in."""

    PATH: ClassVar[str]
    FORM: ClassVar[Literal["openai", "openai-responses"]]
    LIST: ClassVar[str]
    """The field that holds the conversation."""
    TEXT: ClassVar[str]
    """What a part with text is called."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._dialect = Dialect.of(endpoint)
        self._offered = Offered(endpoint, self.FORM)
        self._pieces: Pieces[Piece] = Pieces(self._piece)
        self._has_after = bool(endpoint.compat.requires_assistant_after_tool_result)
        self._system: tuple[str, bytes] = ("", b"")

    @property
    def path(self) -> str:
        return self.PATH

    @property
    def headers(self) -> Mapping[str, str]:
        return {}

    def write(self, request: Request) -> bytes:
        tools = self._offered.of(request.tools) if self._dialect.takes_tools else b""
        items = self._items(request)
        fields = self._fields(request, max_tokens(request, self._endpoint, [*items, tools]))
        return join_body(self.LIST, items, tools, fields, request, self._endpoint)

    def _items(self, request: Request) -> list[bytes]:
        """The conversation, the system prompt first."""
        pieces = self._marked(request, self._pieces.of(request.messages))
        if self._has_after:
            bridge = bool(self._endpoint.compat.requires_assistant_after_tool_result)
            items = arrange(pieces, bridge=bridge)
        else:
            items = [piece[1] for piece in pieces if piece[1]]
        if not self._says_system(request):
            return items
        if request.system != self._system[0]:
            self._system = (request.system, self._system_item(request.system))
        return [self._system[1], *items]

    def _says_system(self, request: Request) -> bool:
        """Whether the system prompt is part of the conversation."""
        return bool(request.system.strip())

    def _marked(self, _request: Request, pieces: list[Piece]) -> list[Piece]:
        """The pieces with marks for the provider's cache, where it wants some."""
        return pieces

    def _piece(self, message: Message) -> Piece:
        piece = self._make(message)
        self._has_after = self._has_after or bool(piece.after)
        return piece

    def _make(self, message: Message) -> Piece:
        if isinstance(message, Assistant):
            return Piece("assistant", self._answer(message))
        if isinstance(message, ToolResult):
            return self._result(message)
        blocks = blocks_of(message)
        if not blocks:
            return Piece("user", b"")
        return Piece("user", encode({"role": "user", "content": self._content(blocks)}))

    def _content(self, blocks: list[Block]) -> str | list[dict[str, Any]]:
        """One text as a string, which every service takes; anything else as parts."""
        parts = self._parts(blocks)
        is_text = all("text" in part for part in parts)
        if is_text and (len(parts) == 1 or self._endpoint.compat.requires_string_content):
            return "\n".join(part["text"] for part in parts)
        return parts

    def _parts(self, blocks: list[Block]) -> list[dict[str, Any]]:
        takes_images = self._endpoint.facts.images
        return [
            self._image(block)
            if isinstance(block, Image) and takes_images
            else {"type": self.TEXT, "text": block.text if isinstance(block, Text) else NO_IMAGE}
            for block in blocks
        ]

    @abstractmethod
    def _answer(self, message: Assistant) -> bytes:
        """Items of an answer; empty for one that says nothing."""

    @abstractmethod
    def _result(self, result: ToolResult) -> Piece: ...
    @abstractmethod
    def _image(self, image: Image) -> dict[str, Any]: ...
    @abstractmethod
    def _system_item(self, system: str) -> bytes: ...
    @abstractmethod
    def _fields(self, request: Request, limit: int | None) -> dict[str, Any]:
        """What is beside the conversation; `limit` is that of the answer."""


class OpenAiDecoder(ABC):
    """Reads the events of one answer, to `[DONE]` or until it is clear that it is complete."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._answer = Answer(endpoint)
        self._usage = Usage()
        self._stop: Stop | None = None
        self._refused = False
        self._done = False

    def feed(self, event: ServerEvent) -> Iterable[Delta]:
        data = event.data.strip()
        if not data or self._done:
            return ()
        if data == "[DONE]":
            self._done = True
            return ()
        try:
            return self._read(data, event.name)
        except ModelError as error:
            error.partial = self._answer.failed(self.partial())
            raise

    def finish(self) -> Assistant:
        if self._stop is None and not self._done:
            message = cut_off(self._endpoint.ref.provider)
            raise ModelError("cut", message, partial=self._answer.failed(self.partial()))
        self._seal()
        stop: Stop = "refusal" if self._refused else self._stop or "stop"
        return self._answer.whole(stop, self._usage)

    def partial(self) -> Assistant:
        self._seal()
        return self._answer.partial(self._usage)

    def _seal(self) -> None:  # noqa: B027  # there may be nothing to settle
        """Settle what is known only when nothing more comes."""

    @abstractmethod
    def _read(self, data: str, name: str) -> Iterable[Delta]: ...
