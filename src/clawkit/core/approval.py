"""Asking a person before a call goes on. The surfaces that ask live in higher layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct

from clawkit.errors import ToolAuthorizationError

StoredExtent = Literal["exact", "subcommand", "preset", "program", "access"]
"""How much an approval covers that is stored: this very command, all with this sub-command, what a
preset lists, all of a program; or hosts and directories that any command may ask for."""
Extent = Literal["session", StoredExtent]
"""With `session`, the same as long as the session lasts, which is stored nowhere."""
DEFAULT_TIMEOUT_S = 120.0
MAX_TIMEOUT_S = 600.0
"""The longest a hook or a tool can have somebody wait."""
MAX_WAIT_S = 86_400.0
"""The longest an operator can."""
FINAL = "This is final: do not try it again in any way that the person has not named"
"""For the model, after a no and the person's own words."""


class Lasting(Struct, frozen=True):
    """An approval that lasts, which a person can give instead of one for once."""

    extent: Extent
    words: str
    """What it covers, in one line."""


class Question(Struct, frozen=True):
    """One question to a person."""

    tool: str
    params: Mapping[str, Any]
    title: str
    description: str = ""
    asked_by: str = ""
    """The hook or rule that wants to know, by its configuration key where it has one."""
    to_allow: str = ""
    """What to type so that the question does not come up again."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    agent: str = "main"
    session: str = "main"
    command: str = ""
    """What is to run, when it is a command; secrets are masked."""
    cwd: str = ""
    host: str = ""
    place: str = ""
    """How it is confined there, such as `on the host, unconfined`; empty when that is not known."""
    modes: tuple[str, ...] = ()
    """How it runs, if not simply to its end: `in the background`, …"""
    notes: tuple[str, ...] = ()
    """What else there is to know: each part that asks, how many do not, variables."""
    lasting: tuple[Lasting, ...] = ()
    """Approvals that last, stored ones first; empty when only once is possible."""
    call_id: str = ""
    """The call that waits for the answer; empty for a question about no call in particular."""

    @property
    def stored(self) -> tuple[Lasting, ...]:
        """Approvals that can be made permanent, the narrowest first."""
        return tuple(each for each in self.lasting if each.extent != "session")


class Answer(Struct, frozen=True):
    """What the person said. Only `allow` lets the call go on, once."""

    verdict: Literal["allow", "deny"]
    reason: str = ""
    """Told to the model."""
    extent: Extent | None = None
    """With `allow`: what is allowed from now on; one of those that were offered."""
    by: str = ""
    """Who answered, for the record."""
    silent: bool = False
    """Whether nobody answered, which is a `deny` that somebody may have settled beforehand."""


class Approver(Protocol):
    """Somebody who can be asked. Must answer or raise; silence is cut off and means no."""

    async def ask(self, request: Question) -> Answer: ...


class Ask(Struct, frozen=True):
    """A hook's or a rule's wish to have a person decide."""

    title: str
    description: str = ""
    asked_by: str = ""
    to_allow: str = ""
    timeout_s: float | None = None
    """How long to wait for an answer; None takes the operator's setting."""


class Deny(Struct, frozen=True):
    """A hook's or a rule's no. The model is told the reason."""

    reason: str


def nobody_to_ask(title: str, to_allow: str) -> ToolAuthorizationError:
    """The refusal of what needs a person when there is none."""
    return ToolAuthorizationError(
        f"{title}: this needs a person's approval and there is no one here to ask"
        + (f". To allow it: {to_allow}" if to_allow else ""),
        reason="approval-unavailable",
    )
