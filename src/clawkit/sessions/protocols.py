"""What a session is, what tools may ask about it, and where sessions are stored."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from clawkit.config.paths import home, sessions_file
from clawkit.content import Message, Usage
from clawkit.errors import ConfigError, Issue, ToolInputError
from clawkit.text import one_line

Event = Literal[
    "created", "turn", "answered", "compacted", "model", "thinking", "title", "renamed", "settings"
]
MAX_NAME = 256
"""Enough for five sub-agents below each other, each with a UUID."""
_URL = r"[A-Za-z][A-Za-z0-9+.-]+://"
_NOTHING: Mapping[str, Any] = MappingProxyType({})


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
    model: str = ""  # `provider/id`; empty when there is none
    model_override: str = ""  # what was chosen instead for this session
    thinking: str = ""
    created_ms: int = 0
    updated_ms: int = 0
    turns: int = 0
    usage: Usage = Usage()  # of all answers; frozen
    context_tokens: int = 0  # what was in the context after the last answer; 0 when not known
    parent: str = ""  # id of the session that started this one
    version: int = 0  # number of the last change, see `Changes`
    label: str = ""  # what it is about, for people and for finding it
    archived_ms: int = 0  # when it was put away; 0 when it is in use
    state: Mapping[str, Any] = _NOTHING  # small settings that hold for this session alone

    @property
    def name(self) -> str:
        return self.key.removeprefix(f"agent:{self.agent}:")


class Entry(Struct, frozen=True):
    """A message and its number in the session."""

    number: int
    message: Message


class Change(Struct, frozen=True):
    """Something that happened to a session."""

    sequence: int
    type: Event
    at_ms: int
    details: Mapping[str, Any]


class Changes(Struct, frozen=True):
    """What happened since a number. Only the latest are kept."""

    version: int  # number of the last change: what to ask with next time
    events: Sequence[Change] = ()
    truncated: bool = False  # whether there is more than `events`: ask again, from the last of them
    earliest: int = 0  # number of the oldest change that is kept; 0 when there is none
    gap: bool = False  # whether changes after the number are not kept any more


class Visible(Struct, frozen=True):
    """Which sessions one may see: itself, all of some agents, and of some those it started. What
    it says is decided in `visibility.py`."""

    key: str
    id: str = ""
    agents: tuple[str, ...] = ()
    own_agents: tuple[str, ...] = ()


class Filter(Struct, frozen=True):
    """Which of the visible sessions are wanted."""

    kinds: tuple[str, ...] = ()  # see `keys.Kind`; empty is all
    since_ms: int = 0  # used since then
    label: str = ""
    agent: str = ""
    text: str = ""  # somewhere in key, label or title
    archived: bool | None = False  # None: whether archived or not
    sub_agents: bool = True
    in_use: bool = False  # only those that a process works in
    workspace: str = ""
    main: str = "main"  # name of the main session


class Relative(Struct, frozen=True):
    """The parent or a child of another session."""

    id: str
    parent: str
    key: str


class Page(Struct, frozen=True):
    """Some messages of a session, the oldest first."""

    entries: Sequence[Entry]
    total: int  # how many there are of the kinds that were asked for
    newer: int = 0  # how many of them come after these


class Hit(Struct, frozen=True):
    """A message in which all words of a search occur."""

    session: Session
    number: int
    role: Literal["user", "assistant"]
    at_ms: int
    snippet: str  # what is around the first of the words, without secrets


class Hits(Struct, frozen=True):
    """What a search found, in the sessions that were used last first."""

    hits: Sequence[Hit]
    more: bool = False  # whether there are more than these
    unsearched: int = 0  # sessions with messages that are not in the index yet


Refuse = Callable[[Session], str]
"""Why a session may not be seen; empty when it may."""


class Sessions(Protocol):
    """The sessions of one home."""

    def get(self, text: str, agent: str = "", refuse: Refuse | None = None) -> Session:
        """By id, key, name (of the agent, if one is named), UUID in its key, the first 4 characters
        of its id or more, or label. Raises `NotFoundError`, or `ToolInputError` when more than one
        could be meant; `ToolAuthorizationError` for one that `refuse` keeps secret."""

    def find(self, text: str, agent: str = "") -> Session | None:
        """The one with exactly that id or key, or that name of the agent."""

    def lineage(self, id_: str) -> tuple[str, ...]:
        """Ids of the sessions that a session was started by, its parent first."""

    def agents(self) -> Sequence[str]:
        """The agents that have sessions."""

    def listing(
        self, visible: Visible, wanted: Filter, limit: int, offset: int = 0
    ) -> Sequence[Session]:
        """Sessions, those used last first."""

    def relatives(self, sessions: Sequence[Session], visible: Visible) -> Sequence[Relative]:
        """The parents and children of some sessions, as far as they may be seen."""

    def page(
        self, id_: str, limit: int, offset: int = 0, upto: int | None = None, *, tools: bool = False
    ) -> Page:
        """The last messages but `offset`, up to the number `upto`; results of tools with `tools`
        only."""

    def search(self, query: str, visible: Visible, limit: int) -> Hits:
        """Messages with all words of the query, in sessions that were used last first. Raises
        `ToolInputError` for a query without words. Indexes what is new, which takes long the first
        time."""

    def changes(self, id_: str, since: int = 0, limit: int = 50) -> Changes: ...
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


class Step(Struct, frozen=True):
    """One step of a plan."""

    step: str
    status: Literal["pending", "in_progress", "completed"] = "pending"


class Plan:
    """What the agent says it is going to do. A new plan takes the place of the old one."""

    def __init__(self) -> None:
        self.steps: tuple[Step, ...] = ()
        self.explanation = ""

    def replace(self, steps: Sequence[Step], explanation: str = "") -> None:
        self.steps, self.explanation = tuple(steps), explanation


def locate_store(setting: str | None, env: Mapping[str, str]) -> str:
    """The file that `session.store` means. Raises `ConfigError` for what is not built in."""
    if not setting:
        return sessions_file(env)
    wrong = ""
    if re.match(_URL, setting):
        # The address is not repeated: there may be a password in it.
        what = "PostgreSQL" if setting.lower().startswith("postgres") else "an address"
        wrong = f"{what} as the store of sessions is not built in yet"
    elif setting.endswith((".json", ".json5", ".jsonl")):
        wrong = f"sessions are stored in a database, and {setting!r} does not name one"
    if wrong:
        raise ConfigError([Issue("session.store", wrong, hint="Name a file, or leave it out")])
    if setting.startswith("~/"):
        setting = (env.get("HOME") or os.path.expanduser("~")) + setting[1:]
    return os.path.abspath(os.path.join(home(env), setting))


def files_of_store(path: str) -> list[str]:
    """Everything that the store at `path` is made of."""
    beside = (f"{path}{end}" for end in ("", "-wal", "-shm", "-journal", ".lock", ".new"))
    return [*beside, os.path.join(os.path.dirname(path), "sessions")]


SendMode = Literal["notify", "steer", "followup", "resume"]
SendStatus = Literal["accepted", "ok", "no_reply", "timeout", "error", "queued"]


class Sent(Struct, frozen=True):
    """What became of a message."""

    status: SendStatus
    id: str
    reply: str = ""
    error: str = ""
    note: str = ""
    """What else there is to know, for the model."""
    disposition: Literal["", "queued", "steered"] = ""
    is_announced: bool = False
    """Whether what comes of it is told where the session is read by people."""


class Messenger(Protocol):
    """Sends messages to other sessions, for the one that a tool works for."""

    def main_of(self, agent: str, check: Callable[[Session], None]) -> Session:
        """The main session of a configured agent, made if there is none and `check` has nothing
        against it. Raises `NotFoundError` for an unknown agent."""

    async def send(
        self, target: Session, text: str, timeout_s: float, mode: SendMode | None
    ) -> Sent:
        """Send a message, and wait for the answer if there is a time for that. Raises
        `ToolInputError` and `ToolAuthorizationError` for what cannot be sent."""
