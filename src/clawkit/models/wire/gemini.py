"""What each generation of Gemini wants to be told about thinking."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from clawkit.config.sections.models import Compat
from clawkit.config.sections.shared import Thinking as Level

_ID = re.compile(r"gemini-(\d{1,2})(?:\.(\d{1,2}))?(?=-|$)")
_LATEST = re.compile(r"gemini-(?:\w+-)*latest")
_WITHOUT = ("-image", "-tts", "-embedding")
BUDGETS: Mapping[str, int] = {
    "minimal": 1_024,
    "low": 4_096,
    "medium": 8_192,
    "high": 16_384,
    "xhigh": 24_576,
    "max": 32_768,
}
"""Tokens of thinking for each level."""
_LEVELS: Mapping[str, str] = {
    "off": "MINIMAL",
    "minimal": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
    "xhigh": "HIGH",
    "max": "HIGH",
}
_MOST, _MOST_OF_PRO, _LEAST_OF_PRO = 24_576, 32_768, 128


class Gemini(NamedTuple):
    """A Gemini model as its id tells it; version 0 for an id that is none."""

    version: tuple[int, int] = (0, 0)
    is_pro: bool = False
    can_think: bool = False

    @classmethod
    def of(cls, model_id: str) -> Gemini:
        name = model_id.lower()
        found = _ID.search(name)
        version = (int(found[1]), int(found[2] or 0)) if found else (0, 0)
        if _LATEST.search(name) and not found:
            version = (3, 0)
        can_think = version >= (2, 5) and not any(each in name for each in _WITHOUT)
        return cls(version, "-pro" in name, can_think)

    @property
    def is_third(self) -> bool:
        """Of the third generation or later: wants signatures and ids back, takes levels."""
        return self.version >= (3, 0)


class Plan(NamedTuple):
    """What a request says about thinking."""

    config: dict[str, Any] | None = None
    budget: int = 0
    """Tokens that the thinking may take from those of the answer."""


def plan(level: Level, gemini: Gemini, compat: Compat, levels: Mapping[str, Any]) -> Plan:
    """The `thinkingConfig` for a level. `levels`, the model's own words, win over everything."""
    if level in levels:
        own = levels[level]
        if isinstance(own, Mapping):
            return Plan(dict(own))
        if isinstance(own, str) and own and own != "off":
            return _shown({"thinkingLevel": own.upper()}, level)
        if isinstance(own, int | float) and not isinstance(own, bool) and own:
            return _shown({"thinkingBudget": int(own)}, level)
        level = "off"
    if gemini.is_third:
        return _shown({"thinkingLevel": _word(level, gemini, compat)}, level)
    if level == "off":
        # The large one cannot stop thinking.
        return Plan({"thinkingBudget": _LEAST_OF_PRO if gemini.is_pro else 0})
    most = _MOST_OF_PRO if gemini.is_pro else _MOST
    return _shown({"thinkingBudget": min(BUDGETS[level], most)}, level)


def _shown(config: dict[str, Any], level: Level) -> Plan:
    if level == "off":
        return Plan(config)
    return Plan(config | {"includeThoughts": True}, BUDGETS[level])


def _word(level: Level, gemini: Gemini, compat: Compat) -> str:
    if level in compat.reasoning_effort_map:
        return compat.reasoning_effort_map[level].upper()
    word = _LEVELS[level]
    if gemini.is_pro and word == "MINIMAL":
        return "LOW"
    # The first of them knows two levels only.
    return "HIGH" if gemini.is_pro and gemini.version == (3, 0) and word == "MEDIUM" else word
