"""Data types of sessions, the interface for tools that query them, and the location of the
store."""

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
"""Enough for five nested sub-agents, each with a UUID."""
_URL = r"[A-Za-z][A-Za-z0-9+.-]+://"
_NOTHING: Mapping[str, Any] = MappingProxyType({})


def session_key(agent: str, name: str) -> str:
    """The key of an agent's session, such as `agent:main:main`. A key is returned unchanged."""
    return name if name.startswith("agent:") else f"agent:{agent}:{name}"


def check_name(name: str, label: str = "a session") -> str:
    """A name that can be part of a key. Raises `ToolInputError` for an invalid one."""
    good = name.isprintable() and not any(map(str.isspace, name)) and 0 < len(name) <= MAX_NAME
    if not good or name == "current" or name.startswith("agent:"):
        raise ToolInputError(
            f"invalid name for {label}: {one_line(name, 40)!r}; use up to {MAX_NAME} characters "
            "without spaces, but not 'current' and nothing that starts with 'agent:'"
        )
    return name


class Session(msgspec.Struct, frozen=True):
    """A stored conversation, without its messages."""

    id: str
    key: str
    agent: str
    title: str = ""
    workspace: str = ""
    model: str = ""  # `provider/id`; empty if none was used yet
    model_override: str = ""  # the model chosen for this session instead
    thinking: str = ""
    created_ms: int = 0
    updated_ms: int = 0
    turns: int = 0
    usage: Usage = Usage()  # of all answers; frozen
    context_tokens: int = 0  # context size after the last answer; 0 if unknown
    parent: str = ""  # id of the session that started this one
    version: int = 0  # number of the last change, see `Changes`
    label: str = ""  # short description that people and tools can find it by
    archived_ms: int = 0  # when it was archived; 0 if it is not
    state: Mapping[str, Any] = _NOTHING  # settings of this session alone

    @property
    def name(self) -> str:
        return self.key.removeprefix(f"agent:{self.agent}:")


class StoredMessage(Struct, frozen=True):
    number: int
    message: Message


class SessionChange(Struct, frozen=True):
    sequence: int
    type: Event
    at_ms: int
    details: Mapping[str, Any]


class Changes(Struct, frozen=True):
    """The changes after a given number. Only the latest are kept."""

    version: int  # number of the last change; pass it as `since` next time
    events: Sequence[SessionChange] = ()
    truncated: bool = False  # whether more follow: ask again with the number of the last event
    earliest: int = 0  # number of the oldest change that is kept; 0 if there is none
    gap: bool = False  # whether changes after the given number are no longer stored


class Visible(Struct, frozen=True):
    """Which sessions a session may see: itself, all sessions of some agents, and those of other
    agents that it started. Decided in `visibility.py`."""

    key: str
    id: str = ""
    agents: tuple[str, ...] = ()
    own_agents: tuple[str, ...] = ()


class Filter(Struct, frozen=True):
    """Selects among the visible sessions."""

    kinds: tuple[str, ...] = ()  # see `keys.Kind`; empty means all
    since_ms: int = 0  # last used at or after this time
    label: str = ""
    agent: str = ""
    text: str = ""  # substring of key, label or title
    archived: bool | None = False  # None means both
    sub_agents: bool = True
    in_use: bool = False  # only those that a process has open
    workspace: str = ""
    main: str = "main"  # name of the main session


class Relative(Struct, frozen=True):
    """The parent or a child of another session."""

    id: str
    parent: str
    key: str


class MessagePage(Struct, frozen=True):
    """Some messages of a session, oldest first."""

    entries: Sequence[StoredMessage]
    total: int  # how many messages of the requested kinds there are
    newer: int = 0  # how many of them are newer than this page


class MessageHit(Struct, frozen=True):
    """A message that contains all words of a query."""

    session: Session
    number: int
    role: Literal["user", "assistant"]
    at_ms: int
    snippet: str  # text around the first match, redacted


class MessageHits(Struct, frozen=True):
    """Search results, most recently used sessions first."""

    hits: Sequence[MessageHit]
    more: bool = False  # whether there are more matches
    unsearched: int = 0  # sessions with messages that are not indexed yet


Refuse = Callable[[Session], str]
"""Why a session may not be seen; empty when it may."""


class Sessions(Protocol):
    """The sessions of one home."""

    def get(self, text: str, agent: str = "", refuse: Refuse | None = None) -> Session:
        """Find a session by id, key, name (of `agent`, if given), UUID in its key, a prefix of its
        id (at least 4 characters), or label. Raises `NotFoundError`, `ToolInputError` for an
        ambiguous reference, and `ToolAuthorizationError` for a session that `refuse` rejects."""

    def find(self, text: str, agent: str = "") -> Session | None:
        """The session with exactly that id or key, or that name of the agent."""

    def lineage(self, id_: str) -> tuple[str, ...]:
        """Ids of the ancestors of a session, its parent first."""

    def agents(self) -> Sequence[str]:
        """The agents that have sessions."""

    def listing(
        self, visible: Visible, wanted: Filter, limit: int, offset: int = 0
    ) -> Sequence[Session]:
        """Sessions, most recently used first."""

    def relatives(self, sessions: Sequence[Session], visible: Visible) -> Sequence[Relative]:
        """The visible parents and children of the given sessions."""

    def page(
        self, id_: str, limit: int, offset: int = 0, upto: int | None = None, *, tools: bool = False
    ) -> MessagePage:
        """The latest messages up to `upto`, except the last `offset`; results only with `tools`."""

    def search(self, query: str, visible: Visible, limit: int) -> MessageHits:
        """Messages that contain all words of the query, most recently used sessions first. Indexes
        new messages first, which can take long the first time. Raises `ToolInputError` for a query
        without words."""

    def changes(self, id_: str, since: int = 0, limit: int = 50) -> Changes: ...
    def set_model(self, id_: str, model: str) -> Session:
        """Switch a session to another model; empty switches back."""


class SessionState(Protocol):
    """The current state of a running agent's session; provided by the agent."""

    @property
    def session(self) -> Session: ...
    @property
    def model(self) -> str:
        """`provider/id` of the model that gets the next request."""

    @property
    def auth(self) -> str:
        """Kind and source of the credential in use; never the credential itself."""

    @property
    def context_tokens(self) -> int:
        """Tokens in the context; 0 if unknown."""

    @property
    def context_window(self) -> int:
        """Maximum tokens of the context; 0 if unknown."""

    @property
    def queued(self) -> int:
        """Messages waiting for a turn."""

    def resolve_model(self, text: str) -> str:
        """`provider/id` of a model given by any of its names; empty for `default`. Raises
        `ToolInputError` for an unknown model, `ToolAuthorizationError` if it may not be chosen, or
        not by the sender of this run."""

    def set_model(self, model: str) -> None:
        """Use a model, by its resolved name, from the next request on; empty is the default."""


class PlannedStep(Struct, frozen=True):
    step: str
    status: Literal["pending", "in_progress", "completed"] = "pending"


class Plan(Struct):
    """The agent's current plan."""

    steps: tuple[PlannedStep, ...] = ()
    explanation: str = ""


def locate_store(setting: str | None, env: Mapping[str, str]) -> str:
    """Path of the database set by `session.store`. Raises `ConfigError` for unsupported stores."""
    if not setting:
        return sessions_file(env)
    wrong = ""
    if re.match(_URL, setting):
        # The address is not shown: it may contain a password.
        what = "PostgreSQL" if setting.lower().startswith("postgres") else "a URL"
        wrong = f"{what} is not supported as a session store yet"
    elif setting.endswith((".json", ".json5", ".jsonl")):
        wrong = f"sessions are stored in a database, but {setting!r} does not name one"
    if wrong:
        raise ConfigError([Issue("session.store", wrong, hint="Set a file name, or remove it")])
    if setting.startswith("~/"):
        setting = (env.get("HOME") or os.path.expanduser("~")) + setting[1:]
    return os.path.abspath(os.path.join(home(env), setting))


def files_of_store(path: str) -> list[str]:
    """All files of the store at `path`."""
    beside = (f"{path}{end}" for end in ("", "-wal", "-shm", "-journal", ".lock", ".new"))
    return [*beside, os.path.join(os.path.dirname(path), "sessions")]


SendMode = Literal["notify", "steer", "followup", "resume"]
SendStatus = Literal["accepted", "ok", "no_reply", "timeout", "error", "queued"]


class Sent(Struct, frozen=True):
    status: SendStatus
    id: str
    reply: str = ""
    error: str = ""
    note: str = ""
    """A remark for the model."""
    disposition: Literal["", "queued", "steered"] = ""
    is_announced: bool = False
    """Whether the outcome is announced on the channel of the session."""


class Messenger(Protocol):
    """Sends messages to other sessions on behalf of the calling session."""

    def main_of(self, agent: str, check: Callable[[Session], None]) -> Session:
        """The main session of a configured agent, created if missing unless `check` raises. Raises
        `NotFoundError` for an unknown agent."""

    async def send(
        self, target: Session, text: str, timeout_s: float, mode: SendMode | None
    ) -> Sent:
        """Send a message, and wait for the answer if a timeout is given. Raises `ToolInputError`
        and `ToolAuthorizationError` if it cannot be sent."""
