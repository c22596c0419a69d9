"""Content blocks and messages of a conversation.

All of these are immutable, independent of the provider, and stored as JSON. Data that only one
provider understands is kept in a `signature` and never sent to another one.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Stop = Literal["stop", "length", "tool_calls", "refusal", "error", "aborted"]
"""Why an answer ended. With `error` and `aborted` the answer is incomplete."""


class Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, tag_field="type"):
    """Common base: immutable, camelCase in JSON."""


class Text(Value, frozen=True, tag="text"):
    """Plain text."""

    text: str
    signature: str = ""
    """Opaque data that the model's provider expects back."""

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
    """Reasoning of a model before its answer."""

    text: str = ""
    """Empty if the provider does not reveal it."""
    signature: str = ""
    """Opaque data of the provider, sent back unchanged, and only to the same model."""
    hidden: bool = False
    """Whether there is only an encrypted signature."""


class ToolCall(Value, frozen=True, tag="toolCall"):
    id: str
    name: str
    arguments: dict[str, Any] | str = msgspec.field(default_factory=dict)
    """The raw text if it is not a JSON object."""
    signature: str = ""
    """Opaque data that the provider expects back with the call."""


Part = Text | Thinking | ToolCall


class Usage(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Tokens of one answer, and their cost."""

    input: int = 0
    """Input tokens that did not come from a cache."""
    output: int = 0
    """Output tokens, including thinking."""
    cache_read: int = 0
    cache_write: int = 0
    cost: float = 0.0
    """In dollars, as far as prices are known."""

    @property
    def context(self) -> int:
        """Tokens in the context after this answer."""
        return self.input + self.cache_read + self.cache_write + self.output

    def plus(self, other: Usage, sign: int = 1) -> Usage:
        mine, others = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return Usage(*(a + sign * b for a, b in zip(mine, others, strict=True)))

    def minus(self, other: Usage) -> Usage:
        return self.plus(other, -1)


class Source(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Origin of a message that no person wrote."""

    kind: Literal["subagent", "session", "gateway", "cron", "hook"]
    """`subagent`: results of the session's own runs; `session`: a message from another one;
    `gateway`: a notice of the gateway, such as a restart; `cron`: a due job, or its result; `hook`:
    a web request."""
    runs: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()
    """One line per run or message, for people."""
    mail: tuple[str, ...] = ()
    """Ids of the messages of another session."""
    chain: tuple[str, ...] = ()
    """Keys of the sessions on its way, the sender last."""


class User(Value, frozen=True, tag="user"):
    """A message of a person, or of a program on their behalf."""

    content: tuple[Block, ...]
    at_ms: int = 0
    source: Source | None = None
    """Set if the message is not from the user of this session."""
    ids: tuple[str, ...] = ()
    """The client's id and clawkit's own id (which tells after a restart whether it was read), for
    each message that was joined into it."""

    @property
    def text(self) -> str:
        return "\n".join([block.text for block in self.content if isinstance(block, Text)])


class Assistant(Value, frozen=True, tag="assistant"):
    content: tuple[Part, ...] = ()
    stop: Stop = "stop"
    model: str = ""
    """`provider/id` of the model that answered."""
    api: str = ""
    """The API that was used; signatures are valid for that API and model only."""
    usage: Usage = Usage()
    error: str = ""
    """The error, for people."""
    at_ms: int = 0

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple([part for part in self.content if isinstance(part, ToolCall)])

    @property
    def text(self) -> str:
        return "".join([part.text for part in self.content if isinstance(part, Text)])


class ToolResult(Value, frozen=True, tag="toolResult"):
    call_id: str
    tool: str
    content: tuple[Block, ...] = ()
    is_error: bool = False
    details: dict[str, Any] = msgspec.field(default_factory=dict)
    """For people and programs, never sent to a model. Bounded in size when stored."""
    at_ms: int = 0


class Summary(Value, frozen=True, tag="summary"):
    """Replaces all earlier messages in what is sent to models."""

    text: str
    tokens_before: int = 0
    at_ms: int = 0
    usage: Usage = Usage()
    """Tokens used to write the summary."""


Message = User | Assistant | ToolResult | Summary
