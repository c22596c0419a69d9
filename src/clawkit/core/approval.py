"""Asking a person before a call continues. The user interfaces are in higher layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct

from clawkit.errors import ToolAuthorizationError

StoredExtent = Literal["exact", "subcommand", "preset", "program", "access"]
"""What a stored approval covers: the exact command, all with the same sub-command, what a preset
lists, everything of a program; or hosts and directories that any command may request."""
Extent = Literal["session", StoredExtent]
"""`session` approvals last as long as the session, and are not stored."""
DEFAULT_TIMEOUT_S = 120.0
MAX_TIMEOUT_S = 600.0
"""Longest wait that a hook or tool can ask for."""
MAX_WAIT_S = 86_400.0
"""Longest wait that an operator can configure."""
FINAL = "This is final: do not try it again in any way that the person has not named"
"""For the model, after a refusal and the person's own words."""


class Lasting(Struct, frozen=True):
    """A lasting approval that a person can give instead of a one-time one."""

    extent: Extent
    words: str  # what it covers, in one line


class Question(Struct, frozen=True):
    tool: str
    params: Mapping[str, Any]
    title: str
    description: str = ""
    asked_by: str = ""  # the hook or rule that asks, by its configuration key if it has one
    to_allow: str = ""  # the command to type so that the question is not asked again
    timeout_s: float = DEFAULT_TIMEOUT_S
    agent: str = "main"
    session: str = "main"
    command: str = ""  # the command to run, if it is one; secrets are masked
    cwd: str = ""
    host: str = ""
    place: str = ""  # how it is confined, such as `on the host, unconfined`; empty if unknown
    modes: tuple[str, ...] = ()  # how it runs, other than to completion: `in the background`, …
    notes: tuple[str, ...] = ()
    """More to know: each part that needs approval, how many do not, variables."""
    lasting: tuple[Lasting, ...] = ()
    """Lasting approvals on offer, stored ones first; empty if only a one-time one is possible."""
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
    """With `allow`: what is allowed from now on; must be one of the offers."""
    by: str = ""  # who answered, for the record
    silent: bool = False  # whether no one answered: a `deny` for which a fallback may be configured


class Approver(Protocol):
    """Asks a person. Must answer or raise; a missing answer times out and means no. One that comes
    back, as a gateway that is restarted, may set `keeps_questions`: then a question stays open when
    the call that waits for it is stopped."""

    async def ask(self, request: Question) -> Answer: ...


class Ask(Struct, frozen=True):
    """A request of a hook or rule that a person decide."""

    title: str
    description: str = ""
    asked_by: str = ""
    to_allow: str = ""
    timeout_s: float | None = None
    """How long to wait for an answer; None for the operator's setting."""


class Deny(Struct, frozen=True):
    """A refusal by a hook or rule. The model gets the reason."""

    reason: str


NO_ONE = "there is no one here to ask"
TO_BE_ASKED = "To be asked, run clawkit or `clawkit approvals watch` in a terminal"


def no_approver(title: str, to_allow: str) -> ToolAuthorizationError:
    """The refusal of something that needs approval when no one can be asked."""
    return ToolAuthorizationError(
        f"{title}: this needs a person's approval and {NO_ONE}. {TO_BE_ASKED}"
        + (f". To allow it: {to_allow}" if to_allow else ""),
        reason="approval-unavailable",
    )
