"""Which JSON Schema keywords hold schemas, and how to visit those and nothing else.

A property may be called `format`, `anyOf` or `$ref`: names inside `properties` are never keywords,
and what stands in `enum`, `const`, `default` or `examples` is data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

Schema = dict[str, Any]


def names(text: str) -> frozenset[str]:
    """The words of a text, for tables of keywords."""
    return frozenset(text.split())


ONE = names(
    "additionalProperties propertyNames unevaluatedProperties items additionalItems contains "
    "unevaluatedItems not if then else contentSchema"
)
MAPS = names("properties patternProperties dependentSchemas dependencies")
LISTS = names("allOf anyOf oneOf prefixItems")
NOTES = names("title description default examples deprecated")
"""Keywords that inform and never forbid anything."""
NEVER: Schema = {"not": {}}
"""The schema `false`, written so that every provider reads it."""


def map_schemas(
    schema: Mapping[str, Any],
    visit: Callable[[Any], Any],
    data: Callable[[Any], Any] = lambda value: value,
) -> Schema:
    """A copy with `visit` applied to every direct subschema and `data` to everything else."""
    out: Schema = {}
    for key, value in schema.items():
        if key in MAPS and isinstance(value, Mapping):
            out[key] = {name: visit(child) for name, child in value.items()}
        elif (key in LISTS or key == "items") and isinstance(value, list | tuple):
            out[key] = [visit(child) for child in value]
        else:
            out[key] = visit(value) if key in ONE else data(value)
    return out


def fingerprint(value: Any) -> bytes:
    """Equal for values that are equal as JSON; `1` and `true` are not."""
    return msgspec.json.encode(value, order="sorted")


def distinct(values: list[Any]) -> list[Any]:
    """The values in order, each once."""
    return list({fingerprint(value): value for value in values}.values())
