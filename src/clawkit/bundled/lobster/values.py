"""JSON values as pipelines see them: paths, loose comparison, text."""

from __future__ import annotations

import json
import math
import re
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.json import Decoder

from clawkit.errors import ToolError

MAX_TEXT = 64 * 1024**2
"""Maximum characters that a run may produce: a few stages can multiply a text endlessly."""


class PipelineError(ToolError):
    """A pipeline or workflow cannot run, or failed. The message says where and why."""

    kind = "runtime_error"


class PipelineSyntaxError(PipelineError):
    """It is not a pipeline, or the answer to a gate is invalid."""

    kind = "parse_error"


class Ledger(Struct):
    """The cost of a run so far, and the characters that it may still produce."""

    left: int = MAX_TEXT
    cost: float = 0.0  # dollars
    warnings: dict[str, str] = {}

    def spend(self, count: int) -> None:
        """Count characters before a text is created. Raises `PipelineError` if they are too
        many."""
        self.left -= count
        if self.left < 0:
            raise PipelineError(f"it produces more than {MAX_TEXT:,} characters")

    def text_of(self, value: Value) -> str:
        """A value inside a text."""
        text = to_text(value)
        self.spend(len(text))
        return text


Value = Any
MISSING = UNSET
"""The value of a missing path; unlike null, it does not compare."""
NOTHING = (None, MISSING)
_NUMBER = re.compile(r"\s*[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\s*")
_EQUALITY = {"=": eq, "==": eq, "!=": ne}
_OPERATORS = {"<": lt, "<=": le, ">": gt, ">=": ge, **_EQUALITY}


def _read_number(text: str) -> float | int:
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


_JSON = Decoder(float_hook=_read_number)


def parse_json(text: str, what: str = "it") -> Value:
    """Parse JSON. Raises `PipelineError`, including for values that cannot be encoded again."""
    try:
        return _JSON.decode(text)
    except (ValueError, RecursionError):
        raise PipelineError(f"{what} must be valid JSON") from None


def to_json(value: Value, indent: int | None = None) -> str:
    separators = (",", ":") if indent is None else None
    try:
        return json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=separators, indent=indent
        )
    except (RecursionError, ValueError):
        raise PipelineError("a value is nested too deeply, or infinite") from None


def identity(value: Value) -> str:
    """The same text for equal values, regardless of key order."""
    return "" if value is MISSING else json.dumps(value, sort_keys=True)


def to_text(value: Value) -> str:
    """A value inside a text: empty for null, JSON unless it is a string."""
    if value in NOTHING:
        return ""
    return value if isinstance(value, str) else to_json(value)


def get_path(value: Value, path: str) -> Value:
    for part in filter(None, path.split(".")):
        if isinstance(value, dict):
            value = value.get(part, MISSING)
        elif isinstance(value, list) and re.fullmatch("[0-9]{1,9}", part):
            value = value[int(part)] if int(part) < len(value) else MISSING
        else:
            return MISSING
    return value


def is_true(value: Value) -> bool:
    """Empty lists and objects are true."""
    return isinstance(value, list | dict) or bool(value)


def to_number(value: Value) -> float:
    if isinstance(value, str):
        return float(value) if _NUMBER.fullmatch(value) else 0.0 if not value.strip() else math.nan
    return math.nan if isinstance(value, list | dict | UnsetType) else float(value or 0)


def compare(left: Value, operator: str, right: Value) -> bool:
    """Loose comparison: if only one of them is text, both are compared as numbers."""
    if operator in _EQUALITY and (left in NOTHING or right in NOTHING):
        left, right = left in NOTHING, right in NOTHING
    if not (isinstance(left, str) and isinstance(right, str)):
        left, right = to_number(left), to_number(right)
    return bool(_OPERATORS[operator](left, right))


def read_word(text: str) -> Value:
    """A word of an expression: true, false, null, a number, or text."""
    fixed = {"true": True, "false": False, "null": None}
    return _read_number(text) if _NUMBER.fullmatch(text) else fixed.get(text, text)


def fill_template(template: str, item: Value, ledger: Ledger) -> str:
    """The text with each `{{path}}` replaced by its value in the item."""

    def find(match: re.Match[str]) -> str:
        path = match[1].strip()
        return ledger.text_of(item if path in (".", "this") else get_path(item, path))

    ledger.spend(len(template))
    return re.sub(r"\{\{([^{}|]+)\}\}", find, template)
