"""What a session is, and what tools may ask about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from clawkit.content import Message, Usage
from clawkit.errors import ToolInputError
from clawkit.text import one_line

Event = Literal[
    "created", "turn", "answered", "compacted", "model", "thinking", "title", "renamed", "settings"
]
MAX_NAME = 200
_NOTHING: Mapping[str, Any] = MappingProxyType({})
Sight = Literal["self", "spawned", "tree", "agent", "all"]
"""`spawned` is `tree` without the right of the main session to see all of its agent."""
SETTING = "tools.sessions.visibility"


def session_key(agent: str, name: str) -> str:
    """What a session is called everywhere: `agent:main:main`. A key stays as it is."""
    return name if name.startswith("agent:") else f"agent:{agent}:{name}"


def check_name(name: str, whose: str = "a session") -> str:
    """A name that can be part of a key. Raises `ToolInputError` for what cannot."""
    good = name.isprintable() and not any(map(str.isspace, name)) and 0 < len(name) <= MAX_NAME
    if not good or name == "current" or name.startswith("agent:"):
        raise ToolInputError(
            f"{one_line(name, 40)!r} cannot be the name of {whose}: up to {MAX_NAME} characters "
            "without spaces, and neither 'current' nor the beginning of a key ('agent:')"
        )
    return name


class Session(msgspec.Struct, frozen=True):
    """One conversation, as it is in the store; without its messages."""

    id: str
    key: str
    agent: str
    title: str = ""
    workspace: str = ""
    model: str = ""
    """`provider/id`; empty when there is none."""
    model_override: str = ""
    """What is used instead, by somebody's wish."""
    thinking: str = ""
    created_ms: int = 0
    updated_ms: int = 0
    turns: int = 0
    usage: Usage = Usage()  # frozen
    """Of all answers."""
    context_tokens: int = 0
    """What was in the context after the last answer; 0 when not known."""
    parent: str = ""
    """Id of the session that started this one."""
    version: int = 0
    """Number of the last change, see `Changes`."""
    state: Mapping[str, Any] = _NOTHING
    """Small settings that hold for this session alone."""

    @property
    def name(self) -> str:
        return self.key.removeprefix(f"agent:{self.agent}:")


class Entry(NamedTuple):
    """A message and its number in the session."""

    number: int
    message: Message


class Change(NamedTuple):
    """Something that happened to a session."""

    sequence: int
    type: Event
    at_ms: int
    details: Mapping[str, Any]


class Changes(NamedTuple):
    """What happened since a number. Only the latest are kept."""

    version: int
    """Number of the last change: what to ask with next time."""
    events: Sequence[Change] = ()
    truncated: bool = False
    """Whether there is more than `events`: ask again, from the last of them."""
    earliest: int = 0
    """Number of the oldest change that is kept; 0 when there is none."""
    gap: bool = False
    """Whether changes after the number are not kept any more."""


class Sessions(Protocol):
    """The sessions of one home."""

    def get(self, text: str, agent: str = "") -> Session:
        """By id, 4 characters of one or more, key, or name (of the agent, if one is named).

        Raises `NotFoundError`, or `ToolInputError` when more than one could be meant.
        """

    def find(self, text: str, agent: str = "") -> Session | None:
        """The same; None when there is none."""

    def changes(self, id_: str, since: int = 0, limit: int = 50) -> Changes: ...
    def descends(self, id_: str, ancestor: str) -> bool:
        """Whether a session was started by another, or by one that was."""

    def set_model(self, id_: str, model: str) -> Session:
        """Have a session use another model; empty for its own."""


class SessionState(Protocol):
    """The session of a running agent as it is at this moment; the agent fills it in."""

    @property
    def session(self) -> Session: ...
    @property
    def model(self) -> str:
        """`provider/id` of what is asked next."""

    @property
    def auth(self) -> str:
        """What kind of credential is used and where it is from; never the credential."""

    @property
    def context_tokens(self) -> int:
        """Tokens in the context; 0 when not known."""

    @property
    def context_window(self) -> int:
        """Tokens that fit in; 0 when not known."""

    @property
    def queued(self) -> int:
        """Messages that wait for their turn."""

    def resolve_model(self, text: str) -> str:
        """`provider/id` of a model by any of its names; empty for `default`. Raises
        `ToolInputError` when there is none such, `ToolAuthorizationError` when it may not be
        chosen, or not by whom this run is for."""

    def set_model(self, model: str) -> None:
        """Use a model, by its resolved name, from the next request on; empty for the default."""


class Step(NamedTuple):
    """One step of a plan."""

    step: str
    status: Literal["pending", "in_progress", "completed"] = "pending"


class Plan(Protocol):
    """What the agent says it is going to do."""

    @property
    def steps(self) -> tuple[Step, ...]: ...
    @property
    def explanation(self) -> str: ...
    def replace(self, steps: Sequence[Step], explanation: str = "") -> None: ...


class CurrentPlan:
    """The latest plan. A new one takes its place as a whole."""

    def __init__(self) -> None:
        self.steps: tuple[Step, ...] = ()
        self.explanation = ""

    def replace(self, steps: Sequence[Step], explanation: str = "") -> None:
        self.steps, self.explanation = tuple(steps), explanation


def why_hidden(
    sight: Sight,
    here: Session,
    there: Session,
    descends: Callable[[str, str], bool],
    main: str = "main",
) -> str:
    """Why one session may not know about another; empty when it may."""
    if here.key == there.key:
        return ""
    if here.agent != there.agent:
        return f"it is of the agent {there.agent!r}, and this one is {here.agent!r}"
    if sight == "self":
        return f"{SETTING} is 'self'"
    if sight in ("agent", "all") or (sight == "tree" and here.name == main):
        return ""
    if here.id and descends(there.id, here.id):
        return ""
    if sight == "spawned":
        return "a sandboxed session sees what it started itself (sandbox.sessionToolsVisibility)"
    return f"{SETTING} is 'tree', and this session did not start it"
