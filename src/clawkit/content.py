"""What conversations are made of: blocks of content, and messages.

Everything here is a value: never changed once made, stored as the JSON it reads as, and the same
for every provider. What only one provider understands is kept in a `signature` and goes back to
no other one.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Stop = Literal["stop", "length", "tool_calls", "refusal", "error", "aborted"]
"""Why an answer ended. With `error` and `aborted` it is what had come until then."""


class Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, tag_field="type"):
    """What the classes here have in common."""


class Text(Value, frozen=True, tag="text"):
    """Plain text."""

    text: str
    signature: str = ""
    """What the provider of a model's own text wants to have back with it."""

    def to_json(self) -> dict[str, Any]:
        return {"type": "text", "text": self.text}


class Image(Value, frozen=True, tag="image"):
    """An image, base64-encoded."""

    data: str
    mime_type: str

    def to_json(self) -> dict[str, Any]:
        return {"type": "image", "data": self.data, "mimeType": self.mime_type}


Block = Text | Image


class Thinking(Value, frozen=True, tag="thinking"):
    """What a model thought before it answered."""

    text: str = ""
    """Empty when the provider keeps it to itself."""
    signature: str = ""
    """The provider's own form or proof of it, sent back word for word to the model it is from."""
    hidden: bool = False
    """Whether the signature is all there is, encrypted."""


class ToolCall(Value, frozen=True, tag="toolCall"):
    """A call that a model asks for."""

    id: str
    name: str
    arguments: dict[str, Any] | str = msgspec.field(default_factory=dict)
    """The text as it came where it is not a JSON object."""
    signature: str = ""
    """What the provider wants to have back with the call."""


Part = Text | Thinking | ToolCall


class Usage(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Tokens of one answer, and what they cost."""

    input: int = 0
    """Sent, and read by the model afresh; what came from a cache is not counted here."""
    output: int = 0
    """Received, thinking included."""
    cache_read: int = 0
    cache_write: int = 0
    cost: float = 0.0
    """In dollars, as far as prices are known."""

    @property
    def context(self) -> int:
        """Tokens that the next request will find in the context."""
        return self.input + self.cache_read + self.cache_write + self.output

    def plus(self, other: Usage, sign: int = 1) -> Usage:
        mine, others = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return Usage(*(a + sign * b for a, b in zip(mine, others, strict=True)))

    def minus(self, other: Usage) -> Usage:
        """What came on top of it."""
        return self.plus(other, -1)


class Source(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where a message comes from that no person wrote."""

    kind: Literal["subagent", "session"]
    """`subagent`: the results of runs that the session started; `session`: what another session
    sent."""
    runs: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()
    """What it is about, for people: a line for each run or message."""
    mail: tuple[str, ...] = ()
    """Ids of the messages of another session."""
    chain: tuple[str, ...] = ()
    """Keys of the sessions that it went through, the sender last."""


class User(Value, frozen=True, tag="user"):
    """What a person, or a program in their place, said."""

    content: tuple[Block, ...]
    at_ms: int = 0
    source: Source | None = None
    """Set when it was not the user of this session who said it."""


class Assistant(Value, frozen=True, tag="assistant"):
    """What a model answered."""

    content: tuple[Part, ...] = ()
    stop: Stop = "stop"
    model: str = ""
    """`provider/id` of the model that answered."""
    api: str = ""
    """The API it came through; signatures hold for that API and model only."""
    usage: Usage = Usage()
    error: str = ""
    """What went wrong, in words for a person."""
    at_ms: int = 0

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.content if isinstance(part, ToolCall))

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.content if isinstance(part, Text))


class ToolResult(Value, frozen=True, tag="toolResult"):
    """What came of one call."""

    call_id: str
    tool: str
    content: tuple[Block, ...] = ()
    is_error: bool = False
    details: dict[str, Any] = msgspec.field(default_factory=dict)
    """For people and programs; no model sees it. What is stored of it is bounded."""
    at_ms: int = 0


class Summary(Value, frozen=True, tag="summary"):
    """Replaces everything before it in what models are sent."""

    text: str
    tokens_before: int = 0
    at_ms: int = 0
    usage: Usage = Usage()
    """What it took to write it."""


Message = User | Assistant | ToolResult | Summary
