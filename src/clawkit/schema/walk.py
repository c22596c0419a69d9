"""Walks a JSON Schema, and adds notes to descriptions on what a provider's form cannot express."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

Schema = dict[str, Any]


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ONE = names(
    "additionalProperties propertyNames unevaluatedProperties items additionalItems contains "
    "unevaluatedItems not if then else contentSchema"
)
MAPS = names("properties patternProperties dependentSchemas dependencies")
LISTS = names("allOf anyOf oneOf prefixItems")
NOTES = names("title description default examples deprecated")
"""Keywords without constraints."""
NEVER: Schema = {"not": {}}
"""The schema `false`, in a form that every provider accepts."""


def map_schemas(
    schema: Mapping[str, Any],
    visit: Callable[[Any], Any],
    data: Callable[[Any], Any] = lambda value: value,
) -> Schema:
    """A copy with `visit` applied to every direct subschema and `data` to everything else."""
    out: Schema = {}
    for key, value in schema.items():
        if key in MAPS and isinstance(value, (dict, Mapping)):
            out[key] = {name: visit(child) for name, child in value.items()}
        elif (key in LISTS or key == "items") and isinstance(value, (list, tuple)):
            out[key] = [visit(child) for child in value]
        else:
            out[key] = visit(value) if key in ONE else data(value)
    return out


def fingerprint(value: Any) -> bytes:
    """Equal for values that are equal as JSON; `1` and `true` differ."""
    return msgspec.json.encode(value, order="sorted")


def distinct(values: list[Any]) -> list[Any]:
    return list({fingerprint(value): value for value in values}.values())


MAX_CHARS = 300
"""Maximum length of one note; longer patterns and examples are truncated."""

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
    """A short form of a value: strings unchanged, a bare type by name, the rest as JSON."""
    if isinstance(value, dict) and value.keys() == {"type"}:
        value = value["type"]
    text = value if isinstance(value, str) else as_json(value)
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"


def as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
