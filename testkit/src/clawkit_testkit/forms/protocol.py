"""The Protocol of API formats, and what they share."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from clawkit.content import Part, Stop, Thinking, Usage
from clawkit.testing.answers import encode, length, pieces, tokens
from clawkit_testkit.fault import Kind

ErrorForm = Literal["error", "nested", "failed"]


class Event(NamedTuple):
    """One event of a stream, encoded."""

    data: bytes
    is_piece: bool = False
    """Whether it has content; other events do not count as pieces."""


class Words(NamedTuple):
    """An API's message for one kind of error."""

    status: int
    type: str
    message: str
    code: str | None = None
    param: str | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer, and what the server knows about it."""

    parts: tuple[Part, ...]
    stop: Stop
    usage: Usage
    model: str
    seed: str
    """Sixteen hex digits, unique for every answer, from which ids are made."""
    at_s: int
    tells_usage: bool = True
    has_objects: bool = False
    """Arguments are sent as objects."""
    piece_chars: int = 0

    def id(self, prefix: str, index: int = 0) -> str:
        return f"{prefix}{self.seed}{index:08x}"

    def pieces(self, text: str) -> list[str]:
        return pieces(text, self.piece_chars)

    def proof(self, part: Part, index: int) -> str:
        """The signature of a part: its own, or a generated one."""
        if not isinstance(part, Thinking) or not part.signature:
            return base64.b64encode(f"scripted {self.seed} {index}".encode()).decode()
        return part.signature

    @property
    def thinking_tokens(self) -> int:
        """Tokens of the output that are thinking."""
        thought = sum(length(part) for part in self.parts if isinstance(part, Thinking))
        return min(tokens(thought), self.usage.output)

    @property
    def prompt_tokens(self) -> int:
        """The input including cached tokens, as most APIs count it."""
        return self.usage.input + self.usage.cache_read + self.usage.cache_write


class Form(Protocol):
    """One API, on the server side."""

    @property
    def words(self) -> Mapping[Kind, Words]: ...
    @property
    def id_header(self) -> str:
        """Header with the id of a request."""
        ...

    def events(self, reply: Reply) -> Iterator[Event]:
        """The stream of an answer."""
        ...

    def whole(self, reply: Reply) -> bytes:
        """An answer that is not streamed."""
        ...

    def error(self, words: Words, request_id: str, retry_after: float | str | None) -> bytes:
        """The body of an error."""
        ...

    def error_event(self, words: Words, reply: Reply, form: ErrorForm) -> bytes:
        """An error in the middle of a stream."""
        ...


def data_event(value: object) -> bytes:
    return b"data: %b\n\n" % encode(value)


def named_event(name: str, value: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), encode(value))


class Asked(msgspec.Struct):
    """The fields of a request that determine the format of the answer."""

    model: str = ""
    stream: bool | None = False
    stream_options: dict[str, Any] | None = None

    @property
    def tells_usage(self) -> bool:
        return bool((self.stream_options or {}).get("include_usage"))


_ask = msgspec.json.Decoder(Asked, strict=False).decode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def read_asked(body: bytes, *, with_options: bool) -> Asked:
    """Read these fields of a body. Raises `msgspec.MsgspecError` if it is not a JSON object.

    They are usually before or after the conversation, which then need not be decoded.
    """
    wanted = {"model", "stream", "stream_options"} if with_options else {"model", "stream"}
    found: dict[str, msgspec.Raw] = {}
    head, _, _ = body[: body.find(b"[")].rpartition(b',"')
    tail = body[body.rfind(b"]") + 1 :].lstrip(b", \r\n\t")
    for text in (head + b"}", b"{" + tail):
        try:
            found |= _fields(text)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            break
    if wanted <= found.keys():
        body = encode({name: found[name] for name in wanted})
    return _ask(body)
