"""Converts any schema to draft 2020-12 without references.

Local references are inlined; older drafts and OpenAPI are converted; unknown keywords, and keywords
whose value has the wrong type, are dropped. One bad schema makes a provider reject the whole
request, and dropping a keyword only makes a schema more permissive. What a provider's form cannot
express is noted in descriptions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from clawkit.errors import SchemaError

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


def describe(schema: Schema, keywords: frozenset[str], *extra: str) -> Schema:
    """`{"description": ...}` with a note for each keyword of `schema` that is not in `keywords`."""
    lost = {k: v for k, v in schema.items() if k not in keywords and v not in ({}, [])}
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


MAX_NODES = 20_000
"""Maximum values in one schema with references inlined; real tools use less than a tenth."""
MAX_DEPTH = 64
CHARS_PER_NODE = 32
"""A long string counts as several values, so that repeating it is limited, too."""

_SCAFFOLDING = names("$schema $id $anchor $comment $vocabulary $defs definitions $ref")
_DYNAMIC = ("$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor")
_PERCENT = r"(?:%[0-9A-Fa-f]{2})+"


def inline(schema: Mapping[str, Any]) -> Schema:
    """A copy without `$ref` and definitions that consists of plain JSON values.

    Raises `SchemaError` for recursion, external references, and a schema that is too large or not
    JSON.
    """
    if not isinstance(schema, Mapping):
        raise SchemaError(f"a parameter schema must be an object, not {type(schema).__name__}")
    copy: Schema = _Inliner(schema).schema(schema, ("#",), 0)
    return copy


class _Inliner:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self.left = MAX_NODES

    def schema(self, node: Any, trail: tuple[str, ...], depth: int) -> Any:
        """A copy of a schema; `trail` lists the references being followed."""
        if not isinstance(node, (dict, Mapping)):
            return self.data(node, depth)
        kept = {key: value for key, value in node.items() if key not in _SCAFFOLDING}
        maps = [kept[key] for key in kept if key in MAPS and isinstance(kept[key], Mapping)]
        self.spend(depth, *kept, *(name for each in maps for name in each))
        for keyword in _DYNAMIC:
            if keyword in kept:
                raise SchemaError(f"{keyword!r} cannot be resolved; use a plain $ref")
        rest = map_schemas(
            kept,
            lambda child: self.schema(child, trail, depth + 1),
            lambda value: self.data(value, depth + 1),
        )
        if not isinstance(node.get("$ref"), str):
            return rest
        pointer, target = self.find(node["$ref"])
        if pointer in trail:
            circle = " -> ".join((*trail[trail.index(pointer) :], pointer))
            raise SchemaError(f"the schema is recursive ({circle}), which no provider accepts")
        target = self.schema(target, (*trail, pointer), depth + 1)
        if isinstance(target, bool):
            return rest if target else NEVER
        if rest.keys() <= NOTES:
            return {**target, **rest}
        quiet = {key: value for key, value in target.items() if key not in NOTES & rest.keys()}
        others = rest.get("allOf")
        return {**rest, "allOf": [quiet, *(others if isinstance(others, list) else ())]}

    def data(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            self.spend(depth, value)
            return value
        if isinstance(value, (dict, Mapping)):
            self.spend(depth, *value)
            return {key: self.data(child, depth + 1) for key, child in value.items()}
        self.spend(depth)
        if isinstance(value, (list, tuple)):
            return [self.data(child, depth + 1) for child in value]
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (int, float)):
            number = float(value) if abs(value) < 2**1023 else math.inf
            if not math.isfinite(number):
                raise SchemaError(
                    "the schema contains a number that is not finite or far too large"
                )
            whole = number.is_integer() and abs(number) < 2**53
            return (
                int(value) if whole or (isinstance(value, int) and abs(value) < 2**63) else number
            )
        raise SchemaError(f"the schema contains a {type(value).__name__}, which is not JSON")

    def spend(self, depth: int, *texts: Any) -> None:
        """Count one value and its keys, or one string, towards the limit."""
        for text in texts:
            if not isinstance(text, str):
                raise SchemaError(f"the schema has a key that is not a string: {text!r}")
            if not text.isascii() and text.encode("utf-8", "replace").decode() != text:
                raise SchemaError("the schema contains text that is not valid Unicode")
            self.left -= len(text) // CHARS_PER_NODE
        self.left -= 1
        if self.left < 0:
            raise SchemaError(f"the schema has more than {MAX_NODES} values; make it smaller")
        if depth > MAX_DEPTH:
            raise SchemaError(f"the schema is nested over {MAX_DEPTH} levels, or contains itself")

    def find(self, ref: str) -> tuple[str, Any]:
        """The reference in canonical form, and the schema it points to."""
        if ref != "#" and not ref.startswith("#/"):
            raise SchemaError(f"$ref {ref!r} does not point into the schema itself ('#/...')")
        tokens = [_unescape(token) for token in ref.split("/")[1:]]
        found: Any = self.root
        for token in tokens:
            if isinstance(found, list | tuple):
                found = {str(index): child for index, child in enumerate(found)}
            if not isinstance(found, Mapping) or token not in found:
                raise SchemaError(f"$ref {ref!r} points to nothing")
            found = found[token]
        if not isinstance(found, Mapping | bool):
            raise SchemaError(f"$ref {ref!r} does not point to a schema")
        return "/".join(("#", *(t.replace("~", "~0").replace("/", "~1") for t in tokens))), found


def _unescape(token: str) -> str:
    def decode(match: re.Match[str]) -> str:
        return bytes.fromhex(match[0].replace("%", "")).decode("utf-8", "replace")

    return re.sub(_PERCENT, decode, token).replace("~1", "/").replace("~0", "~")


TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
"""Most general first: if one type must represent several, it is the first of them."""

_TEXTS = names("title description format pattern contentEncoding contentMediaType")
_COUNTS = names("minLength maxLength minItems maxItems minContains maxContains")
_NUMBERS = names("minimum maximum exclusiveMinimum exclusiveMaximum")
_CLOSERS = names("additionalProperties unevaluatedProperties items unevaluatedItems")
"""Keywords for which `false` means "nothing else"."""


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
    """The schema as draft 2020-12; anything that is not a schema allows everything."""
    if not isinstance(schema, dict):
        return NEVER if schema is False else {}
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


def _mapping(value: Any) -> Schema:
    return value if isinstance(value, dict) else {}


def _texts(value: Any) -> list[str]:
    texts = value if isinstance(value, list) else []
    return list(dict.fromkeys(text for text in texts if isinstance(text, str)))


def nullable(node: Schema) -> Schema:
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
