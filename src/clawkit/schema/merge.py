"""Merges schemas into one without `allOf`, `anyOf` or `oneOf` at the top.

Merging is one level deep: two definitions of the same property are combined in a nested `allOf` or
`anyOf`. The result accepts everything the parts accept; a constraint that cannot be expressed in
one schema is dropped. A variant that allows other keys only counts for the properties it names:
taken literally, it would allow any value for all the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clawkit.errors import SchemaError
from clawkit.schema.walk import NEVER, NOTES, Schema, as_json, distinct, fingerprint, names

MAX_CHOICES = 400
"""Maximum characters of the note on which properties go together."""
UNIONS = ("anyOf", "oneOf")
KEYWORDS = {
    "object": names(
        "properties required additionalProperties patternProperties propertyNames minProperties "
        "maxProperties dependentRequired dependentSchemas"
    ),
    "array": names(
        "items prefixItems minItems maxItems uniqueItems contains minContains maxContains"
    ),
    "string": names(
        "minLength maxLength pattern format contentEncoding contentMediaType contentSchema"
    ),
    "number": names("minimum maximum exclusiveMinimum exclusiveMaximum multipleOf"),
}
"""Keywords that only apply to values of one type."""
_STRUCTURE = names("properties required additionalProperties patternProperties items prefixItems")
_LOWER = names("minimum exclusiveMinimum minLength minItems minProperties")
_UPPER = names("maximum exclusiveMaximum maxLength maxItems maxProperties")
_TYPE_NAMES = {dict: "object", list: "array", str: "string", int: "integer", float: "number"}
_TYPE_NAMES |= {bool: "boolean", type(None): "null"}
_TOGETHER = (names("if then else"), names("contains minContains maxContains"))
"""Keywords that depend on each other: they are all taken from one part, or dropped."""


def types_of(schema: Schema) -> list[str]:
    """The JSON types of a schema, given or implied; empty if it may be anything."""
    if "type" in schema:
        return schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    values = values_of(schema)
    if values is None:
        return [kind for kind, keywords in KEYWORDS.items() if schema.keys() & keywords]
    return list(dict.fromkeys(_TYPE_NAMES[type(value)] for value in values))


def values_of(schema: Schema) -> list[Any] | None:
    """The allowed values, by `const`, `enum` or `"type": "null"`; None if not limited."""
    if schema.get("type") == "null":
        return [None]
    values: list[Any] | None = [schema["const"]] if "const" in schema else schema.get("enum")
    return values


def object_root(schema: Schema) -> Schema:
    """The schema of a call's parameters: an object with `properties`, no union at the root."""
    node = fold(schema, only="object")
    if "object" not in types_of({"type": node.get("type", "object")}):
        raise SchemaError(f"parameters must be an object, not {node['type']!r}")
    return {**node, "type": "object", "properties": node.get("properties", {})}


def fold(schema: Schema, *, only: str = "") -> Schema:
    """One schema without unions or `allOf` at the top; `only` drops variants of other types."""
    merged = {key: value for key, value in schema.items() if key not in ("allOf", *UNIONS)}
    for part in schema.get("allOf", ()):
        merged = _both(merged, fold(part, only=only))
    for keyword in UNIONS:
        variants = [fold(v, only=only) for v in schema.get(keyword, ()) if v != NEVER]
        if only:
            variants = [v if types_of(v) else {"type": only, **v} for v in variants]
            variants = [v for v in variants if only in types_of(v)]
            if keyword in schema and not variants:
                raise SchemaError(f"parameters must be an {only}; no variant of {keyword!r} is")
        merged = _both(merged, any_of(variants)) if variants else merged
    return merged


def any_of(variants: list[Schema]) -> Schema:
    """One schema that accepts everything that any variant accepts."""
    if len(variants := distinct(variants)) == 1:
        return variants[0]
    kinds = [types_of(variant) for variant in variants]
    types = list(dict.fromkeys(name for kind in kinds for name in kind))
    literals = distinct([x for variant in variants for x in values_of(variant) or ()])
    out = _words(variants)
    if all(kinds):
        out["type"] = types if len(types) > 1 else types[0]
        out |= {"items": {}} if "array" in types else {}
    if all(values_of(variant) is not None for variant in variants):
        return out | {"enum": literals}
    if literals := [value for value in literals if value is not None]:
        out["examples"] = literals
    if not all(kinds):
        return out
    for kind, keywords in KEYWORDS.items():
        fitting = {kind, "integer"} if kind == "number" else {kind}
        members = [v for v, t in zip(variants, kinds, strict=True) if fitting & {*t}]
        for name, value in members[0].items() if members else ():
            shared = len({fingerprint(member.get(name)) for member in members}) == 1
            out |= {name: value} if shared and name in keywords - _STRUCTURE else {}
        if members and kind == "object":
            out |= _any_object(members)
            words = " ".join(filter(None, (out.get("description"), _choices(members))))
            out |= {"description": words} if words else {}
        if members and kind == "array":
            items = [items_of(member) for member in members]
            out["items"] = either(items) if all(items) else {}
    return out


def _any_object(members: list[Schema]) -> Schema:
    extras = [member.get("additionalProperties", True) for member in members]
    fields = [member.get("properties", {}) for member in members]
    needs = [member.get("required", ()) for member in members]
    properties = {
        name: either(
            [
                own.get(name, extra)
                for own, extra in zip(fields, extras, strict=True)
                if name in own or isinstance(extra, dict)
            ]
        )
        for name in dict.fromkeys(name for own in fields for name in own)
    }
    required = [name for name in needs[0] if all(name in need for need in needs)]
    out: Schema = {"properties": properties} if properties else {}
    out |= {"required": required} if required else {}
    if True not in extras and not any("patternProperties" in member for member in members):
        schemas = [extra for extra in extras if extra is not False]
        out["additionalProperties"] = either(schemas) if schemas else False
    return out


def _choices(members: list[Schema]) -> str:
    """A note on what each variant requires, if they differ."""
    choices = []
    for member in members:
        fields = member.get("properties", {})
        needs = []
        for name in member.get("required", ()):
            values = values_of(fields.get(name, {})) or []
            needs.append(f"{name} {as_json(values[0])}" if len(values) == 1 else name)
        choices.append(" and ".join(needs))
    text = f"Give {'; or '.join(dict.fromkeys(choices))}."
    return text if all(choices) and len({*choices}) > 1 and len(text) <= MAX_CHOICES else ""


def items_of(schema: Schema) -> Schema:
    """The schema of an array element, including tuples; empty for anything."""
    prefix: list[Schema] = schema.get("prefixItems", [])
    rest = schema.get("items", {})
    if prefix and (rest is False or schema.get("maxItems", len(prefix) + 1) <= len(prefix)):
        return either(prefix)
    return either([*prefix, rest]) if isinstance(rest, dict) and rest else {}


def either(schemas: list[Schema]) -> Schema:
    """A nested union; simple literals are combined into one `enum`."""
    parts = [schema["anyOf"] if schema.keys() == {"anyOf"} else [schema] for schema in schemas]
    flat = distinct([schema for part in parts for schema in part])
    literals = [value for schema in flat for value in values_of(schema) or [{}]]
    if len(flat) == 1 or not any(isinstance(value, dict | list) for value in literals):
        return any_of(flat)
    return {"anyOf": flat}


def _both(one: Schema, other: Schema) -> Schema:
    """One schema for values that satisfy both; if keywords cannot be combined, `one` wins."""
    if not one or not other:
        return one or other
    for keywords in _TOGETHER:
        if one.keys() & keywords:
            other = {key: value for key, value in other.items() if key not in keywords}
    if "prefixItems" in one and "prefixItems" in other:
        other = {k: v for k, v in other.items() if k not in ("items", "prefixItems")}
    out = {**one, **other, **one, **_words([one, other])}
    for name in one.keys() & other.keys() & _COMBINE.keys():
        out[name] = _COMBINE[name](one[name], other[name])
    mine, theirs = values_of(one), values_of(other)
    if mine is not None and theirs is not None:
        known = {fingerprint(value) for value in theirs}
        out.pop("const", None)
        out["enum"] = [value for value in mine if fingerprint(value) in known] or mine
    return {k: v for k, v in out.items() if k not in ("unevaluatedProperties", "unevaluatedItems")}


def _all(one: Any, other: Any) -> Any:
    """A nested `allOf`, simplified to one schema if nothing is lost."""
    if one is False or other is False:
        return False
    if one in (True, {}) or other in (True, {}) or one == other:
        return other if one in (True, {}) else one
    if one.keys() | other.keys() <= NOTES | _LOWER | _UPPER | {"type", "enum"}:
        return _both(one, other)
    parts = [part["allOf"] if part.keys() == {"allOf"} else [part] for part in (one, other)]
    return {"allOf": [*parts[0], *parts[1]]}


def _each(one: Schema, other: Schema) -> Schema:
    return one | {n: _all(one[n], s) if n in one else s for n, s in other.items()}


def _meet(one: Any, other: Any) -> Any:
    mine, theirs = types_of({"type": one}), types_of({"type": other})
    both = [name for name in mine if name in theirs or (name == "integer" and "number" in theirs)]
    both += ["integer"] if "number" in mine and "integer" in theirs and not both else []
    return one if not both else both if len(both) > 1 else both[0]


_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "type": _meet,
    "required": lambda one, other: list(dict.fromkeys([*one, *other])),
    **dict.fromkeys(_LOWER, max),
    **dict.fromkeys(_UPPER, min),
    **dict.fromkeys(("properties", "patternProperties"), _each),
    **dict.fromkeys(("items", "additionalProperties"), _all),
}


def _words(schemas: list[Schema]) -> Schema:
    """Titles and other notes: the first of each kind, and all descriptions joined."""
    out: Schema = {}
    for schema in reversed(schemas):
        out |= {key: value for key, value in schema.items() if key in NOTES}
    texts = dict.fromkeys(s["description"].strip() for s in schemas if "description" in s)
    return out | {"description": " ".join(filter(None, texts))} if texts else out
