"""Draft 2020-12 without leftovers: older drafts and OpenAPI rewritten, everything unknown dropped.

A keyword whose value has the wrong shape is dropped as well. One bad schema makes a provider refuse
the whole request, and dropping a keyword only ever allows more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clawkit.schema.walk import LISTS, MAPS, NEVER, NOTES, ONE, Schema, distinct, map_schemas, names

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
"""Richest first: where one type must stand for several, it is the first."""

_TEXTS = names("title description format pattern contentEncoding contentMediaType")
_COUNTS = names("minLength maxLength minItems maxItems minContains maxContains")
_NUMBERS = names("minimum maximum exclusiveMinimum exclusiveMaximum")
_CLOSERS = names("additionalProperties unevaluatedProperties items unevaluatedItems")
"""Here `false` is the usual way to say "nothing else"."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_SHAPES: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(_TEXTS, lambda value: isinstance(value, str)),
    **dict.fromkeys(
        _COUNTS | {"minProperties", "maxProperties"},
        lambda value: _is_number(value) and isinstance(value, int) and value >= 0,
    ),
    **dict.fromkeys(_NUMBERS, _is_number),
    "multipleOf": lambda value: _is_number(value) and value > 0,
    **dict.fromkeys(("deprecated", "uniqueItems"), lambda value: isinstance(value, bool)),
    **dict.fromkeys(("const", "default"), lambda value: True),
    **dict.fromkeys(
        LISTS | {"enum", "type"}, lambda value: isinstance(value, list) and bool(value)
    ),
    **dict.fromkeys(("examples", "required"), lambda value: isinstance(value, list)),
    **dict.fromkeys(ONE - {"additionalItems"}, lambda value: isinstance(value, dict | bool)),
    **dict.fromkeys(MAPS | {"dependentRequired"}, lambda value: isinstance(value, dict)),
}


def clean(schema: Any) -> Schema:
    """The schema as draft 2020-12; what is no schema at all allows everything."""
    if not isinstance(schema, dict):
        return NEVER if schema is False else {}
    node = _modern(schema)
    node = {key: value for key, value in node.items() if key in _SHAPES and _SHAPES[key](value)}
    flags = {key: False for key in node if key in _CLOSERS and node[key] is False}
    node = map_schemas(node, clean) | flags
    if node.get("additionalProperties") == {}:
        node["additionalProperties"] = True
    if "array" in node.get("type", ()):
        node.setdefault("items", {})
    if len(node.get("type", ())) == 1:
        node["type"] = node["type"][0]
    return nullable(node) if schema.get("nullable") is True else node


def _modern(schema: Schema) -> Schema:
    """Keywords of older drafts and of OpenAPI under their present names, lists without repeats."""
    node = dict(schema)
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if node.get(exclusive) is True and bound in node:
            node[exclusive] = node.pop(bound)
    if isinstance(node.get("items"), list):
        node["prefixItems"] = node.pop("items")
        node["items"] = node.get("additionalItems", {})
    if "example" in node:
        node.setdefault("examples", [node["example"]])
    for name, need in _mapping(node.pop("dependencies", None)).items():
        key = "dependentRequired" if isinstance(need, list) else "dependentSchemas"
        node[key] = _mapping(node.get(key)) | {name: need}
    if isinstance(node.get("enum"), list):
        node["enum"] = distinct(node["enum"])
    if isinstance(node.get("required"), list):
        node["required"] = _texts(node["required"])
    if "dependentRequired" in node:
        needs = _mapping(node["dependentRequired"])
        node["dependentRequired"] = {name: _texts(others) for name, others in needs.items()}
    if "type" in node:
        given = _texts(node["type"]) if isinstance(node["type"], list) else [str(node["type"])]
        node["type"] = [name for name in _texts([t.lower() for t in given]) if name in TYPES]
    return node


def _mapping(value: Any) -> Schema:
    return value if isinstance(value, dict) else {}


def _texts(value: Any) -> list[str]:
    texts = value if isinstance(value, list) else []
    return list(dict.fromkeys(text for text in texts if isinstance(text, str)))


def nullable(node: Schema) -> Schema:
    """The schema with null allowed too."""
    words = {key: value for key, value in node.items() if key in NOTES}
    rules = {key: value for key, value in node.items() if key not in NOTES}
    if rules.keys() & {"not", "if", *LISTS - {"prefixItems"}}:
        variants = rules["anyOf"] if rules.keys() == {"anyOf"} else [rules]
        return {**words, "anyOf": distinct([*variants, {"type": "null"}])}
    if "type" in rules:
        types = rules["type"] if isinstance(rules["type"], list) else [rules["type"]]
        rules["type"] = [*types, "null"] if "null" not in types else rules["type"]
    if "const" in rules:
        rules["enum"] = [rules.pop("const")]
    if "enum" in rules:
        rules["enum"] = distinct([*rules["enum"], None])
    return words | rules
