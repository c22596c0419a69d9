"""Finds out when a service wants to be asked again."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from clawkit.models.fault_words import Said
from clawkit.redact.masking import regex

_MAX_WAIT_S = 31 * 86_400.0
_EPOCH_S = 1_000_000_000
"""Numbers from here on are points in time, not spans."""
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_SPAN = r"(?:\d{1,9}(?:\.\d{1,12})?(?:ms|[smhd]))+"


def find_wait(headers: Mapping[str, str], said: Said, now: float) -> float | None:
    """Seconds to wait, as told by the headers or the body; None when nothing is said."""
    for wait in _told(headers, said, now):
        if wait is not None and math.isfinite(wait):
            return min(max(0.0, wait), _MAX_WAIT_S)
    return None


def _told(headers: Mapping[str, str], said: Said, now: float) -> Iterable[float | None]:
    """Everything that is said about it, the most exact first."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    yield None if milliseconds is None else milliseconds / 1_000
    if text := headers.get("retry-after"):
        yield _moment(text, now)
    for wait in said.waits:
        yield _moment(str(wait), now)
    phrase = regex(rf"(?:try again|retry|reset) (?:in|after) ({_SPAN}|\d{{1,9}}(?:\.\d+)?)")
    if found := phrase.search(said.search):
        yield _moment(found[1], now)
    yield _exhausted(headers, now)
    for name in ("anthropic-ratelimit-unified-reset", "x-ratelimit-reset", "ratelimit-reset"):
        if text := headers.get(name):
            yield _moment(text, now)


def _exhausted(headers: Mapping[str, str], now: float) -> float | None:
    """When the last one of the limits that are used up begins anew."""
    waits = []
    for what in ("requests", "tokens", "input-tokens", "output-tokens"):
        for left, reset in (
            (f"x-ratelimit-remaining-{what}", f"x-ratelimit-reset-{what}"),
            (f"anthropic-ratelimit-{what}-remaining", f"anthropic-ratelimit-{what}-reset"),
        ):
            if _number(headers.get(left, "")) == 0 and reset in headers:
                waits.append(_moment(headers[reset], now))
    return max((wait for wait in waits if wait is not None), default=None)


def _moment(text: str, now: float) -> float | None:
    """Seconds from now: of a number, a span (`6m0s`), a point in time or a date."""
    text = text.strip()[:64]
    number = _number(text)
    if number is not None:
        if number >= _EPOCH_S * 1_000:
            return number / 1_000 - now
        return number - now if number >= _EPOCH_S else number
    if regex(_SPAN).fullmatch(text):
        return sum(
            float(number) * _UNITS[unit]
            for number, unit in re.findall(r"([\d.]+)(ms|[smhd])", text)
        )
    return _date(text, now)


def _number(text: Any) -> float | None:
    return float(text) if regex(r"\d{1,15}(?:\.\d{1,12})?").fullmatch(text.strip()) else None


def _date(text: str, now: float) -> float | None:
    from datetime import UTC, datetime
    from email.utils import parsedate_to_datetime

    try:
        when = datetime.fromisoformat(text) if text[:4].isdigit() else parsedate_to_datetime(text)
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        return when.timestamp() - now
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
