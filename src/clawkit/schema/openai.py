"""OpenAI functions: an object without a union at the root; in strict mode a closed subset."""

from __future__ import annotations

from clawkit.schema.clean import nullable
from clawkit.schema.merge import UNIONS, either, fold, items_of, types_of
from clawkit.schema.notes import describe
from clawkit.schema.walk import NEVER, NOTES, Schema, names

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
