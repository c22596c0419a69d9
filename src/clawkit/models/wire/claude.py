"""What a request has to say about thinking, for each generation of Claude."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from clawkit.config.sections.models import Compat
from clawkit.config.sections.shared import Thinking as Level

_ID = re.compile(r"claude-(?:([a-z]+)-)?(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?(?:-([a-z]+))?")
_ALWAYS_THINK = frozenset({"fable", "mythos"})

BUDGETS: Mapping[str, int] = {
    "minimal": 1_024,
    "low": 4_096,
    "medium": 8_192,
    "high": 16_384,
    "xhigh": 32_768,
    "max": 65_536,
}
"""Tokens of thinking for each level."""
LEAST_BUDGET = 1_024
EFFORTS = ("low", "medium", "high", "xhigh", "max")
INTERLEAVED = "interleaved-thinking-2025-05-14"
BINDING = "thinking-binding-controls-2026-08-01"


class Claude(NamedTuple):
    """A Claude model as its id tells it. Everything is false for an id that is none."""

    family: str = ""
    version: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, model_id: str) -> Claude:
        name = model_id.lower()
        if found := _ID.search(name):
            family = found[1] or found[4] or ""
            return cls(family, (int(found[2]), int(found[3] or 0)))
        return cls("mythos", (4, 6)) if "claude-mythos" in name else cls()

    @property
    def is_adaptive(self) -> bool:
        """Decides itself how long to think, and is told an effort instead of a budget."""
        return self.version >= (4, 6)

    @property
    def hides_thinking(self) -> bool:
        """Tells what it thinks only where it is asked to."""
        return self.version >= (4, 7) or self.family == "mythos"

    @property
    def is_bound(self) -> bool:
        """Refuses its earlier thinking where anything before it has changed since."""
        return self.version >= (5, 1)

    @property
    def takes_temperature(self) -> bool:
        return self.version < (4, 7)

    @property
    def efforts(self) -> tuple[str, ...]:
        return EFFORTS if self.version >= (4, 7) else ("low", "medium", "high", "max")

    @property
    def off(self) -> dict[str, Any] | None:
        """How thinking is turned off; None where nothing has to be said, or nothing can be."""
        if self.version < (5, 0) or self.cannot_stop:
            return None
        if self.family == "sonnet" and self.version >= (5, 5):
            return {"type": "between_tools"}
        return {"type": "disabled"}

    @property
    def cannot_stop(self) -> bool:
        """Thinks always; the least effort is the nearest to not thinking."""
        opus = self.family == "opus" and self.version >= (5, 5)
        return opus or self.family in _ALWAYS_THINK


class Plan(NamedTuple):
    """What a request says about thinking."""

    thinking: dict[str, Any] | None = None
    effort: str = ""
    budget: int = 0
    """Tokens that the thinking may take from those of the answer."""

    @property
    def is_on(self) -> bool:
        return self.thinking is not None and self.thinking.get("type") in ("enabled", "adaptive")

    @property
    def is_off(self) -> bool:
        return self.thinking is not None and not self.is_on


def plan(level: Level, claude: Claude, compat: Compat, levels: Mapping[str, Any]) -> Plan:
    """The fields for a level. `levels`, the model's own words for levels, win over everything."""
    if level in levels:
        own = levels[level]
        if isinstance(own, Mapping):
            return Plan(dict(own))
        if isinstance(own, str) and own and own != "off":
            return _adaptive(own, claude, BUDGETS.get(level, 0))
        if isinstance(own, int | float) and own >= LEAST_BUDGET:
            return _budget(int(own))
        return _off(claude)
    if level == "off":
        return _off(claude)
    if claude.is_adaptive:
        return _adaptive(_effort(level, claude, compat), claude, BUDGETS[level])
    return _budget(BUDGETS[level])


def _off(claude: Claude) -> Plan:
    if claude.cannot_stop:
        # Not asked to show what it thinks: nobody wants to see it.
        return Plan({"type": "adaptive"}, "low")
    return Plan(claude.off)


def _budget(tokens: int) -> Plan:
    return Plan({"type": "enabled", "budget_tokens": tokens}, budget=tokens)


def _adaptive(effort: str, claude: Claude, room: int) -> Plan:
    thinking = {"type": "adaptive"}
    if claude.hides_thinking:
        thinking["display"] = "summarized"
    return Plan(thinking, effort, room)


def _effort(level: Level, claude: Claude, compat: Compat) -> str:
    if compat.supports_reasoning_effort is False:
        return ""
    if level in compat.reasoning_effort_map:
        return compat.reasoning_effort_map[level]
    known = compat.supported_reasoning_efforts or claude.efforts
    wanted = EFFORTS.index("low" if level == "minimal" else level)
    # Where a level is missing, the next one below: nobody pays for more than was asked for.
    below = [effort for effort in EFFORTS[: wanted + 1] if effort in known]
    return below[-1] if below else next((effort for effort in EFFORTS if effort in known), "")
