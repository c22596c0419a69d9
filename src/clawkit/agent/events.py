"""What happens in a turn, as it is told to whoever watches: terminals, programs, logs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from clawkit.content import Assistant, ToolResult, Usage, User

Ended = Literal["done", "aborted", "error", "max-turns", "max-cost", "timeout", "loop"]


class Happening(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, tag_field="type"):
    """What the events have in common."""


class TurnStarted(Happening, frozen=True, tag="turn_start"):
    """A turn begins."""

    session: str
    model: str


class Said(Happening, frozen=True, tag="user"):
    """A message of the person entered the conversation: the first one, or one in between."""

    message: User
    steering: bool = False


class Requested(Happening, frozen=True, tag="request"):
    """The model is asked for its next answer."""

    model: str


class TextPiece(Happening, frozen=True, tag="text"):
    """More text of the answer."""

    text: str


class ThinkingPiece(Happening, frozen=True, tag="thinking"):
    """More of what the model thinks."""

    text: str


class CallBegun(Happening, frozen=True, tag="call_start"):
    """The model begins to write a call; it is not complete yet."""

    number: int
    tool: str


class CallWritten(Happening, frozen=True, tag="call_delta"):
    """More of a call's arguments has come: how many characters there are by now."""

    number: int
    chars: int


class Voided(Happening, frozen=True, tag="retry"):
    """What was streamed of this answer is void; another attempt follows."""

    reason: str
    wait_s: float
    model: str
    kind: str = ""
    """Of error, as in `models.protocols.ErrorKind`."""


class Unanswered(Happening, frozen=True, tag="request_failed"):
    """There is no answer: the turn ends, or continues with a shortened conversation."""

    kind: str
    """Of error, as in `models.protocols.ErrorKind`."""
    error: str


class Answered(Happening, frozen=True, tag="assistant"):
    """An answer is complete and stored."""

    message: Assistant


class ToolHappened(Happening, frozen=True, tag="tool"):
    """A call starts, makes progress, or ends: `event` comes from `core.call`."""

    event: dict[str, Any]


class ResultStored(Happening, frozen=True, tag="tool_result"):
    """The result of a call is part of the conversation."""

    message: ToolResult


class Noticed(Happening, frozen=True, tag="notice"):
    """Something a person should know: one line."""

    text: str
    level: Literal["info", "warning", "error"] = "info"


class Compacted(Happening, frozen=True, tag="compaction"):
    """The conversation was shortened."""

    tokens_before: int
    tokens_after: int
    summary: str = ""


class TurnEnded(Happening, frozen=True, tag="turn_end"):
    """The turn is over."""

    how: Ended
    usage: Usage = Usage()
    error: str = ""
    text: str = ""
    """The last answer."""


class RunEnded(Happening, frozen=True, tag="run_end"):
    """The run of a sub-agent is over; only inside `subagent`."""

    status: str
    error: str = ""
    usage: Usage = Usage()


class SubagentHappened(Happening, frozen=True, tag="subagent"):
    """Something happened in a sub-agent, at any depth: `event` is one of these."""

    label: str
    depth: int
    run: str
    session: str
    event: Event


Event = (
    TurnStarted
    | Said
    | Requested
    | TextPiece
    | ThinkingPiece
    | CallBegun
    | CallWritten
    | Voided
    | Unanswered
    | Answered
    | ToolHappened
    | ResultStored
    | Noticed
    | Compacted
    | TurnEnded
    | RunEnded
    | SubagentHappened
)
Tell = Callable[[Event], None]


def no_listener(_event: object) -> None:
    """What a listener is while there is none."""


class Relay:
    """Passes the events of a sub-agent on, marked as its own, to a listener that comes and goes."""

    def __init__(self, listener: Callable[[], Tell], mark: Callable[[Event], Event]) -> None:
        self._listener = listener
        self._mark = mark

    @property
    def is_idle(self) -> bool:
        return self._listener() is no_listener

    def __call__(self, event: Event) -> None:
        if not self.is_idle:
            self._listener()(self._mark(event))
