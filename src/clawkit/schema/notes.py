"""What a provider's schema cannot say, said in the description."""

from __future__ import annotations

from typing import Any

import msgspec

from clawkit.schema.walk import Schema

MAX_CHARS = 300
"""For one note: a long pattern or example is cut."""

_PHRASES = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "length at least {}",
    "maxLength": "length at most {}",
    "pattern": "matching {}",
    "minItems": "number of items at least {}",
    "maxItems": "number of items at most {}",
    "minProperties": "number of keys at least {}",
    "maxProperties": "number of keys at most {}",
    "additionalProperties": "values of other keys: {}",
    "prefixItems": "items in order: {}",
    "default": "{} if left out",
    "examples": "for example {}",
}
_FLAGS = {"uniqueItems": "no item twice", "deprecated": "deprecated"}


def describe(schema: Schema, kept: frozenset[str], *extra: str) -> Schema:
    """`{"description": ...}` with a note for each keyword of `schema` that is not `kept`."""
    lost = {k: v for k, v in schema.items() if k not in kept and v not in ({}, [])}
    notes = [phrase for key, phrase in _FLAGS.items() if lost.get(key) is True]
    for key, value in lost.items():
        if not isinstance(value, bool):
            notes.append(_PHRASES.get(key, key + " {}").replace("{}", brief(value)))
    text, note = schema.get("description", ""), "; ".join([*extra, *notes])
    words = f"{text} ({note})" if text and note else text or note
    return {"description": words} if words else {}


def brief(value: Any) -> str:
    """The value in a few words: text as it is, a bare type by its name, the rest as JSON."""
    if isinstance(value, dict) and value.keys() == {"type"}:
        value = value["type"]
    text = value if isinstance(value, str) else as_json(value)
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"


def as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
