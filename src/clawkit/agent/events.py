"""Events of a turn, for listeners: terminals, programs, logs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

import msgspec

from clawkit.content import Assistant, ToolResult, Usage, User

Ended = Literal["done", "aborted", "error", "max-turns", "max-cost", "timeout", "loop"]


class AgentEvent(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, tag_field="type"):
    """Base class of all events."""


class TurnStarted(AgentEvent, frozen=True, tag="turn_start"):
    """A turn begins."""

    session: str
    model: str


class MessageAdded(AgentEvent, frozen=True, tag="user"):
    """A user message was added to the conversation: at the start of a turn, or during it."""

    message: User
    steering: bool = False


class RequestSent(AgentEvent, frozen=True, tag="request"):
    """A request is sent to the model."""

    model: str


class TextPiece(AgentEvent, frozen=True, tag="text"):
    """More text of the answer."""

    text: str


class ThinkingPiece(AgentEvent, frozen=True, tag="thinking"):
    """More of the model's thinking."""

    text: str


class CallBegun(AgentEvent, frozen=True, tag="call_start"):
    """The model starts to write a tool call."""

    number: int
    tool: str


class CallWritten(AgentEvent, frozen=True, tag="call_delta"):
    """More of a call's arguments has arrived: the number of characters so far."""

    number: int
    chars: int


class AnswerRestarted(AgentEvent, frozen=True, tag="retry"):
    """Everything streamed of this answer is discarded; a retry follows."""

    reason: str
    wait_s: float
    model: str
    """Empty if only the connection to the listener was lost: the whole answer follows again."""
    kind: str = ""
    """Kind of error, as in `models.protocols.ErrorKind`."""


class RequestFailed(AgentEvent, frozen=True, tag="request_failed"):
    """The request failed: the turn ends, or continues after compaction."""

    kind: str
    """Kind of error, as in `models.protocols.ErrorKind`."""
    error: str


class AnswerStored(AgentEvent, frozen=True, tag="assistant"):
    """An answer is complete and stored."""

    message: Assistant


class ToolEvent(AgentEvent, frozen=True, tag="tool"):
    """A call starts, makes progress, or ends: `event` comes from `core.call`."""

    event: dict[str, Any]


class ResultStored(AgentEvent, frozen=True, tag="tool_result"):
    """The result of a call is part of the conversation."""

    message: ToolResult


class Notice(AgentEvent, frozen=True, tag="notice"):
    """A one-line notice for people."""

    text: str
    level: Literal["info", "warning", "error"] = "info"


class Compacted(AgentEvent, frozen=True, tag="compaction"):
    """The conversation was shortened."""

    tokens_before: int
    tokens_after: int
    summary: str = ""


class TurnEnded(AgentEvent, frozen=True, tag="turn_end"):
    """The turn is over."""

    how: Ended
    usage: Usage = Usage()
    error: str = ""
    text: str = ""
    """The last answer."""
    kind: str = ""
    """The kind of an error of the model, such as `rate_limit`."""


class RunEnded(AgentEvent, frozen=True, tag="run_end"):
    """The run of a sub-agent has ended; only inside `subagent`."""

    status: str
    error: str = ""
    usage: Usage = Usage()


class SubagentEvent(AgentEvent, frozen=True, tag="subagent"):
    """An event of a sub-agent, at any depth: `event` is one of the events here."""

    label: str
    depth: int
    run: str
    session: str
    event: Event


Event = (
    TurnStarted
    | MessageAdded
    | RequestSent
    | TextPiece
    | ThinkingPiece
    | CallBegun
    | CallWritten
    | AnswerRestarted
    | RequestFailed
    | AnswerStored
    | ToolEvent
    | ResultStored
    | Notice
    | Compacted
    | TurnEnded
    | RunEnded
    | SubagentEvent
)
Tell = Callable[[Event], None]


class EventRecorder(Protocol):
    """Records what happens in one conversation."""

    @property
    def warnings(self) -> tuple[str, ...]: ...

    def beside(self, tell: Tell, /) -> Tell:
        """A listener that calls `tell`, and records the event."""

    async def close(self) -> None:
        """Complete the record. Must not raise."""


def no_listener(_event: object) -> None:
    """The default listener; ignores all events."""


def both(first: Tell, second: Tell) -> Tell:
    """A listener that calls two others."""

    def tell(event: Event) -> None:
        first(event)
        second(event)

    return first if second is no_listener else tell


class Relay:
    """Forwards the events of a sub-agent, marked with its identity, to the current listener."""

    def __init__(self, listener: Callable[[], Tell], mark: Callable[[Event], Event]) -> None:
        self._listener = listener
        self._mark = mark

    @property
    def is_idle(self) -> bool:
        return self._listener() is no_listener

    def __call__(self, event: Event) -> None:
        if not self.is_idle:
            self._listener()(self._mark(event))
