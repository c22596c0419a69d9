"""Somebody who looks at every call before anything is done about it, and at what came of it.

A watch that fails on the way in blocks: what it was to look at must not pass unseen. One that
fails on the way out changes nothing any more: the call has happened, and its result stands.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from clawkit.core.result import Result

log = logging.getLogger(__name__)


class Asked(NamedTuple):
    """A call that is asked for."""

    tool: str
    """Its canonical name."""
    params: object
    """As they were sent."""
    known: bool = True
    """Whether the run has such a tool."""


class Admission(msgspec.Struct, frozen=True):
    """What a watch says to the calls of one message."""

    tickets: Sequence[object]
    """One for each call; the watch gets it back together with the result."""
    refusals: Sequence[Result] = ()
    """One for each call when none of them is to run."""


class Watch(Protocol):
    """Looks at all calls of a session, one turn after the other."""

    def begin(self) -> None:
        """A new turn begins."""
        ...

    def compacted(self) -> None:
        """The conversation was shortened: what the model had seen before, it may have forgotten."""
        ...

    def admit(self, calls: Sequence[Asked]) -> Admission:
        """Let the calls of one message pass, or none of them."""
        ...

    def note(self, ticket: object, result: Result, *, acts: bool) -> Result:
        """Take note of a result, and give back the one that goes out.

        `acts` says that the tool ran and is one that may change something.
        """
        ...


def admit(watch: Watch, calls: Sequence[Asked]) -> Admission:
    """What the watch says; when it fails, none of the calls is to run."""
    try:
        admission = watch.admit(calls)
        if len(admission.refusals or admission.tickets) == len(calls):
            return admission
        log.warning("the watch over calls gave an answer that does not fit")
    except Exception as error:  # noqa: BLE001  # whatever it does wrong, nothing passes unseen
        log.warning("the watch over calls failed: %r", error)
    return Admission((), [_unseen(call.tool) for call in calls])


def note(watch: Watch, ticket: object, result: Result, *, acts: bool) -> Result:
    """The result as the watch lets it out; as it is when the watch fails."""
    try:
        return watch.note(ticket, result, acts=acts)
    except Exception as error:  # noqa: BLE001  # the call has happened: its result stands
        log.warning("the watch over calls failed to take note: %r", error)
        return result


def _unseen(tool: str) -> Result:
    reason = "not executed: the guard against loops failed, and without it no call is made"
    return Result.text(
        reason,
        status="blocked",
        tool=tool[:80],
        deniedReason="loop_admission_failure",
        reason=reason,
        code=403,
    )
