"""Anthropic tools: draft 2020-12 with an object root and plain property names."""

from __future__ import annotations

import re

from clawkit.schema.walk import Schema

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_SYNTAX = re.compile(r"([\\^$.*+?()\[\]{}|/])")


def anthropic(schema: Schema) -> Schema:
    """The `input_schema` of a tool; expects a clean schema with an object root.

    A name such as `filter[id]` is refused under the root's `properties`. Spelt as a pattern it is
    accepted and means the same.
    """
    given = schema["properties"]
    odd = {name: child for name, child in given.items() if not _NAME.fullmatch(name)}
    if not odd:
        return schema
    patterns = {"^" + _SYNTAX.sub(r"\\\1", name) + "$": child for name, child in odd.items()}
    return schema | {
        "properties": {name: child for name, child in given.items() if name not in odd},
        "patternProperties": schema.get("patternProperties", {}) | patterns,
    }
