"""What a model is told about a loop: in a notice under a result, or in the place of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from clawkit.core.result import Result
from clawkit.text import one_line

Detector = Literal[
    "generic_repeat",
    "known_poll_no_progress",
    "ping_pong",
    "argument_churn",
    "unknown_tool_repeat",
    "global_circuit_breaker",
    "compaction_loop_persisted",
]

FINAL: frozenset[Detector] = frozenset(("global_circuit_breaker", "compaction_loop_persisted"))
"""After these no call of the turn is carried out any more."""

_MAX_NAME = 80
_FOUND: dict[Detector, str] = {
    "generic_repeat": "{tool} was called {count} times with the same parameters and gave the same "
    "result each time",
    "known_poll_no_progress": "{tool} was asked {count} times and had nothing new to say",
    "ping_pong": "the same calls ({tools}) were made in turns, {count} in a row, with the same "
    "results each time",
    "argument_churn": "{tool} came to nothing {count} times in a row, with the same few parameters",
    "unknown_tool_repeat": "{tool} was called {count} times, and there is no such tool here",
    "global_circuit_breaker": "{count} calls led nowhere, the last ones of {tool}",
    "compaction_loop_persisted": "{tool} goes on with the same call and the same result, also "
    "after the conversation was shortened",
}
_FAILING = "{count} commands in a row failed in the same way, whatever their parameters were"
_REPEATED = "Do not send it again: use what it gave, try another way, or answer with what you know"
_INSTEAD: dict[Detector, str] = {
    "known_poll_no_progress": "Do not ask again at once: wait longer in one call, look for what "
    "holds it up, end it, or answer that it is not done yet",
    "ping_pong": "Do not go on in turns: try another way, or answer with what you know",
    "unknown_tool_repeat": "Use only the tools you were given",
}
_NO_MORE = "No further call is made in this turn: answer with what you know"
_SECOND = "This is the second loop in this turn, which ends here"


class Hit(msgspec.Struct, frozen=True):
    """A loop that was found."""

    detector: Detector
    level: Literal["warning", "critical"]
    times: int
    tools: tuple[str, ...]
    """The tools in it; first that of the call it was found at."""
    about: tuple[object, ...] = ()
    """What it is about: there is one notice about the same thing in a while."""
    failing: bool = False
    """Commands that fail alike, not one call that repeats."""


def notice(hit: Hit) -> str:
    """For the end of a result."""
    return f"[Loop guard: {_found(hit)}. {_instead(hit)}.]"


def refusals(hit: Hit, tools: Sequence[str], trigger: int, *, ends: bool) -> list[Result]:
    """For the calls of a message, none of which is carried out because of the one at `trigger`."""
    if hit.detector in FINAL:
        reason = others = f"not executed: {_found(hit)}. {_NO_MORE}."
    else:
        reason = f"not executed: {_found(hit)}. {_SECOND if ends else _instead(hit)}."
        others = "not executed: another call of the same message was refused as a loop. " + (
            "The turn ends here." if ends else "Send this one without it if it is still needed."
        )
    return [
        _blocked(reason if number == trigger else others, tool, hit, ends=ends)
        for number, tool in enumerate(tools)
    ]


def intervention(hit: Hit) -> dict[str, Any]:
    """A loop, for programs."""
    return {"detector": hit.detector, "level": hit.level, "count": hit.times}


def _blocked(reason: str, tool: str, hit: Hit, *, ends: bool) -> Result:
    return Result.text(
        reason,
        status="blocked",
        tool=one_line(tool, _MAX_NAME),
        deniedReason="tool-loop",
        reason=reason,
        code=403,
        intervention=intervention(hit),
        **({"terminate": True} if ends else {}),
    )


def _found(hit: Hit) -> str:
    names = [repr(one_line(tool, _MAX_NAME)) for tool in hit.tools]
    words = _FAILING if hit.failing else _FOUND[hit.detector]
    return words.format(tool=names[0], tools=", ".join(names), count=hit.times)


def _instead(hit: Hit) -> str:
    return _INSTEAD.get(hit.detector, _REPEATED)
