"""Gemini function declarations: a small part of OpenAPI, one type per value, no unions.

What a declaration cannot express goes into the description, so that the model still reads it.
"""

from __future__ import annotations

from clawkit.schema.clean import TYPES
from clawkit.schema.merge import fold, items_of, types_of, values_of
from clawkit.schema.notes import as_json, brief, describe
from clawkit.schema.walk import NEVER, Schema, names

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
