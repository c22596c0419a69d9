"""The form of a schema that each provider accepts.

Anthropic: draft 2020-12 with an object root and plain property names. OpenAI: an object without a
union at the root; in strict mode a closed subset. Gemini: a small part of OpenAPI, one type per
value, no unions; what a declaration cannot express goes into the description.
"""

from __future__ import annotations

import re

from clawkit.schema.clean import TYPES, nullable
from clawkit.schema.merge import UNIONS, either, fold, items_of, types_of, values_of
from clawkit.schema.walk import NEVER, NOTES, Schema, as_json, brief, describe, names

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


_NOT_AT_ROOT = names("enum const not")
_STRICT = names(
    "type title description enum const pattern format minimum maximum exclusiveMinimum "
    "exclusiveMaximum multipleOf minItems maxItems"
)
_STRUCTURE = names("properties required additionalProperties items anyOf oneOf")
_SCALARS = ("string", "number", "boolean", "null")
_FORMATS = names("date-time time date duration email hostname ipv4 ipv6 uuid")


def openai(schema: Schema) -> Schema:
    """The `parameters` of a function; expects a clean schema with an object root."""
    kept = {key: value for key, value in schema.items() if key not in _NOT_AT_ROOT}
    return kept | describe(schema, frozenset(kept))


def strict(schema: Schema) -> Schema:
    """The same for `strict: true`. Optional properties become required and may be null.

    Objects are closed: free-form keys and values of any type cannot be expressed and are narrowed.
    """
    variants = [child for name in UNIONS for child in schema.get(name, ()) if child != NEVER]
    is_union = bool(variants) and schema.keys() <= NOTES | {*UNIONS}
    node = schema if is_union else fold(schema)
    lost = {"format"} if node.get("format") not in _FORMATS else set()
    lost |= {"pattern"} if "(?" in node.get("pattern", "") else set()
    out = {key: value for key, value in node.items() if key in _STRICT - lost}
    out |= describe(node, _STRICT - lost | _STRUCTURE)
    if is_union:
        return either([strict(child) for child in variants]) | out
    types = types_of(node)
    if not types:
        return out | {"anyOf": [{"type": name} for name in _SCALARS]}
    out["type"] = types if len(types) > 1 else types[0]
    if "object" in types:
        given = {n: strict(s) for n, s in node.get("properties", {}).items() if s != NEVER}
        required = [name for name in node.get("required", ()) if name in given]
        out["properties"] = {n: s if n in required else nullable(s) for n, s in given.items()}
        out["required"] = [*required, *(name for name in given if name not in required)]
        out["additionalProperties"] = False
    if "array" in types:
        out["items"] = strict(items_of(node))
    return out


_SAID = names("type title description enum const items properties required default")
"""Keywords a declaration takes itself, in one form or another."""
_SPOKEN = {"object": "an object", "array": "a list", "string": "text", "number": "a number"}
_SPOKEN |= {"integer": "a whole number", "boolean": "true or false"}


def google(schema: Schema) -> Schema:
    """The parameters of a function declaration; expects a clean schema with an object root."""
    return {"type": "object", "properties": {}} | _declare(schema)


def _declare(schema: Schema) -> Schema:
    node = fold(schema)
    types = types_of(node)
    kind, *notes = _one_type([name for name in types if name != "null"], any_value=not types)
    out: Schema = {"type": kind} | {
        k: node[k] for k in ("title", "default") if node.get(k) is not None
    }
    values = [value for value in values_of(node) or () if value is not None]
    # Only text may be enumerated, and no value may be empty.
    if values and kind == "string" and "" not in values:
        texts = [value if isinstance(value, str) else as_json(value) for value in values]
        out["enum"] = list(dict.fromkeys(texts))
    elif values:
        notes.insert(0, "one of " + brief(values))
    if "null" in types:
        out["nullable"] = True
    if kind == "array":
        out["items"] = _declare(items_of(node))
    if kind == "object":
        given = node.get("properties", {}).items()
        properties = {name: _declare(child) for name, child in given if child != NEVER}
        required = [name for name in node.get("required", ()) if name in properties]
        out |= {"properties": properties} if properties else {}
        out |= {"required": required} if required else {}
    return out | describe(node, _SAID, *notes)


def _one_type(kinds: list[str], *, any_value: bool) -> list[str]:
    """The type that can carry values of all `kinds` or comes nearest, and words on the others."""
    if not kinds:
        return ["string", "any JSON value" if any_value else "always null"]
    kinds = [kind for kind in kinds if kind != "integer" or "number" not in kinds]
    rich = [kind for kind in TYPES if kind in kinds and (len(kinds) == 1 or kind in TYPES[:3])]
    kind = rich[0] if rich else "string"
    others = [_SPOKEN[name] for name in kinds if name != kind]
    return [kind, " or ".join(others) + " is accepted too"] if others else [kind]
