"""Asking a person before a call continues. The user interfaces are in higher layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct

from clawkit.errors import ToolAuthorizationError

StoredExtent = Literal["exact", "subcommand", "preset", "program", "access"]
"""What a stored approval covers: the exact command, all commands with the same sub-command, the
list of a preset, everything a program does; or hosts and directories that any command may
request."""
Extent = Literal["session", StoredExtent]
"""`session` approvals last as long as the session, and are not stored."""
DEFAULT_TIMEOUT_S = 120.0
MAX_TIMEOUT_S = 600.0
"""Longest wait that a hook or tool can ask for."""
MAX_WAIT_S = 86_400.0
"""Longest wait that an operator can configure."""
FINAL = "This is final: do not retry it in any form that the person did not suggest"
"""For the model, after a refusal and the person's own words."""


class Lasting(Struct, frozen=True):
    """A lasting approval that a person can give instead of a one-time one."""

    extent: Extent
    words: str  # what it covers, in one line


class Question(Struct, frozen=True):
    """What an approver is asked: a call, what it wants to do, and who demands the question."""

    tool: str
    params: Mapping[str, Any]
    title: str
    description: str = ""
    asked_by: str = ""  # the hook or rule that asks, by its configuration key if it has one
    to_allow: str = ""  # the command that makes this question unnecessary
    timeout_s: float = DEFAULT_TIMEOUT_S
    agent: str = "main"
    session: str = "main"
    command: str = ""  # the command to run, if it is one; secrets are masked
    cwd: str = ""
    host: str = ""
    place: str = ""  # its confinement, such as `on the host, unconfined`; empty if unknown
    modes: tuple[str, ...] = ()  # how it runs, other than to completion: `in the background`, …
    notes: tuple[str, ...] = ()
    """Details: each part that needs approval, the number of those that do not, variables."""
    lasting: tuple[Lasting, ...] = ()
    """Lasting approvals on offer, stored ones first; empty if only a one-time one is possible."""
    plain: bool = False
    """Whether it is the command and nothing else: on this machine, in its directory, to completion,
    without variables or access that the call asks for."""
    call_id: str = ""
    """The call that waits for the answer; empty if the question is not about a call."""

    @property
    def stored(self) -> tuple[Lasting, ...]:
        """Approvals that can be stored, the narrowest first."""
        return tuple(each for each in self.lasting if each.extent != "session")


class Answer(Struct, frozen=True):
    """A person's answer. Only `allow` lets the call continue, once."""

    verdict: Literal["allow", "deny"]
    reason: str = ""  # passed on to the model
    extent: Extent | None = None
    """With `allow`: the lasting approval that was chosen; must be one of the offers."""
    by: str = ""  # who answered, for the record
    silent: bool = False  # a `deny` because no one answered; a fallback may be configured


class Approver(Protocol):
    """Asks a person. Must answer or raise; a missing answer times out and means no. An approver
    that survives a restart, such as the gateway's, may set `keeps_questions`: then a question stays
    open when its waiting call is stopped."""

    async def ask(self, request: Question) -> Answer: ...


class Ask(Struct, frozen=True):
    """The demand of a hook or rule that a person decide."""

    title: str
    description: str = ""
    asked_by: str = ""
    to_allow: str = ""
    timeout_s: float | None = None
    """How long to wait for an answer; None for the operator's setting."""


class Deny(Struct, frozen=True):
    """A refusal by a hook or rule. The model gets the reason."""

    reason: str


NO_ONE = "no one can be asked here"
TO_BE_ASKED = "To approve calls, run clawkit or `clawkit approvals watch` in a terminal"


def no_approver(title: str, to_allow: str) -> ToolAuthorizationError:
    """The refusal of something that needs approval when no one can be asked."""
    return ToolAuthorizationError(
        f"{title}: this needs a person's approval and {NO_ONE}. {TO_BE_ASKED}"
        + (f". To allow it: {to_allow}" if to_allow else ""),
        reason="approval-unavailable",
    )
