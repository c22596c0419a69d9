"""Adapts a schema to each provider, and declares a tool for each model API.

Anthropic: draft 2020-12 with an object root and plain property names. OpenAI: an object without a
union at the root; in strict mode, a closed subset. Gemini: a small subset of OpenAPI, one type per
value, no unions; what a declaration cannot express is added to the description.

Where unions are not possible, variants are merged, one level deep: two definitions of the same
property are combined in a nested `allOf` or `anyOf`. The result accepts everything the parts
accept; a constraint that cannot be expressed in one schema is dropped. A variant that allows other
keys only counts for the properties it names: taken literally, it would allow any value for all the
others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from clawkit.core.struct_schema import CleanSchema
from clawkit.core.tool import make_validator
from clawkit.errors import SchemaError, ToolInputError
from clawkit.schema.clean import (
    NEVER,
    NOTES,
    TYPES,
    Schema,
    as_json,
    brief,
    clean,
    describe,
    distinct,
    fingerprint,
    inline,
    names,
    nullable,
)

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator

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
_MERGED = names("properties required additionalProperties patternProperties items prefixItems")
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
            out |= {name: value} if shared and name in keywords - _MERGED else {}
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


def _both(first: Schema, other: Schema) -> Schema:
    """One schema for values that satisfy both; if keywords cannot be combined, `first` wins."""
    if not first or not other:
        return first or other
    for keywords in _TOGETHER:
        if first.keys() & keywords:
            other = {key: value for key, value in other.items() if key not in keywords}
    if "prefixItems" in first and "prefixItems" in other:
        other = {k: v for k, v in other.items() if k not in ("items", "prefixItems")}
    out = {**first, **other, **first, **_words([first, other])}
    for name in first.keys() & other.keys() & _COMBINE.keys():
        out[name] = _COMBINE[name](first[name], other[name])
    mine, theirs = values_of(first), values_of(other)
    if mine is not None and theirs is not None:
        known = {fingerprint(value) for value in theirs}
        out.pop("const", None)
        out["enum"] = [value for value in mine if fingerprint(value) in known] or mine
    return {k: v for k, v in out.items() if k not in ("unevaluatedProperties", "unevaluatedItems")}


def _all(first: Any, other: Any) -> Any:
    """A nested `allOf`, simplified to one schema if nothing is lost."""
    if first is False or other is False:
        return False
    if first in (True, {}) or other in (True, {}) or first == other:
        return other if first in (True, {}) else first
    if first.keys() | other.keys() <= NOTES | _LOWER | _UPPER | {"type", "enum"}:
        return _both(first, other)
    parts = [part["allOf"] if part.keys() == {"allOf"} else [part] for part in (first, other)]
    return {"allOf": [*parts[0], *parts[1]]}


def _meet(first: Any, other: Any) -> Any:
    mine, theirs = types_of({"type": first}), types_of({"type": other})
    both = [name for name in mine if name in theirs or (name == "integer" and "number" in theirs)]
    both += ["integer"] if "number" in mine and "integer" in theirs and not both else []
    return first if not both else both if len(both) > 1 else both[0]


_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "type": _meet,
    "required": lambda one, other: list(dict.fromkeys([*one, *other])),
    **dict.fromkeys(_LOWER, max),
    **dict.fromkeys(_UPPER, min),
    **dict.fromkeys(
        ("properties", "patternProperties"),
        lambda one, other: one | {n: _all(one[n], s) if n in one else s for n, s in other.items()},
    ),
    **dict.fromkeys(("items", "additionalProperties"), _all),
}


def _words(schemas: list[Schema]) -> Schema:
    """Titles and other notes: the first of each kind, and all descriptions joined."""
    out: Schema = {}
    for schema in reversed(schemas):
        out |= {key: value for key, value in schema.items() if key in NOTES}
    texts = dict.fromkeys(s["description"].strip() for s in schemas if "description" in s)
    return out | {"description": " ".join(filter(None, texts))} if texts else out


Target = Literal["anthropic", "openai", "google"]

_NAME = r"[a-zA-Z0-9_.-]{1,64}"
_SYNTAX = r"([\\^$.*+?()\[\]{}|/])"


def _anthropic(schema: Schema) -> Schema:
    """The `input_schema` of a tool; expects a clean schema with an object root.

    A name such as `filter[id]` is rejected in the root's `properties`, but an equivalent
    `patternProperties` is accepted.
    """
    given = schema["properties"]
    odd = {name: child for name, child in given.items() if not re.fullmatch(_NAME, name)}
    if not odd:
        return schema
    patterns = {"^" + re.sub(_SYNTAX, r"\\\1", name) + "$": child for name, child in odd.items()}
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


def _openai(schema: Schema) -> Schema:
    """The `parameters` of a function; expects a clean schema with an object root."""
    kept = {key: value for key, value in schema.items() if key not in _NOT_AT_ROOT}
    return kept | describe(schema, frozenset(kept))


def _strict(schema: Schema) -> Schema:
    """Like `_openai`, for `strict: true`. Optional properties become required and nullable.

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
        return either([_strict(child) for child in variants]) | out
    types = types_of(node)
    if not types:
        return out | {"anyOf": [{"type": name} for name in _SCALARS]}
    out["type"] = types if len(types) > 1 else types[0]
    if "object" in types:
        given = {n: _strict(s) for n, s in node.get("properties", {}).items() if s != NEVER}
        required = [name for name in node.get("required", ()) if name in given]
        out["properties"] = {n: s if n in required else nullable(s) for n, s in given.items()}
        out["required"] = [*required, *(name for name in given if name not in required)]
        out["additionalProperties"] = False
    if "array" in types:
        out["items"] = _strict(items_of(node))
    return out


_SAID = names("type title description enum const items properties required default")
"""Keywords that a declaration can express."""
_SPOKEN = {"object": "an object", "array": "a list", "string": "text", "number": "a number"}
_SPOKEN |= {"integer": "a whole number", "boolean": "true or false"}


def _declare(schema: Schema) -> Schema:
    node = fold(schema)
    types = types_of(node)
    kind, *notes = _one_type([name for name in types if name != "null"], any_value=not types)
    out: Schema = {"type": kind} | {
        k: node[k] for k in ("title", "default") if node.get(k) is not None
    }
    values = [value for value in values_of(node) or () if value is not None]
    # Only strings may be enumerated, and none may be empty.
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
    """The type that can represent values of all `kinds`, or most, and notes on the others."""
    if not kinds:
        return ["string", "any JSON value" if any_value else "always null"]
    kinds = [kind for kind in kinds if kind != "integer" or "number" not in kinds]
    rich = [kind for kind in TYPES if kind in kinds and (len(kinds) == 1 or kind in TYPES[:3])]
    kind = rich[0] if rich else "string"
    others = [_SPOKEN[name] for name in kinds if name != kind]
    return [kind, " or ".join(others) + " is accepted too"] if others else [kind]


_FORMS: dict[Target, Callable[[Schema], Schema]] = {
    "anthropic": _anthropic,
    "openai": _openai,
    "google": lambda schema: {"type": "object", "properties": {}} | _declare(schema),
}


def adapt(schema: Mapping[str, Any], target: Target, *, strict: bool = False) -> dict[str, Any]:
    """The schema in the form that `target` accepts; a new object each time.

    It accepts everything the original accepts, except with `strict`, which selects OpenAI's strict
    subset and has no effect for other targets. Raises `SchemaError` if it cannot be adapted:
    recursion, external references, no object at the root, too large, not JSON.
    """
    is_clean = isinstance(schema, CleanSchema)
    source = msgspec.json.encode(schema if is_clean else inline(schema))
    adapted: dict[str, Any] = msgspec.json.decode(_adapt(source, target, strict, is_clean))
    return adapted


@lru_cache(maxsize=2048)
def _adapt(source: bytes, target: Target, strict: bool, is_clean: bool) -> bytes:
    """Takes and returns bytes, so that callers cannot change cached values."""
    node = msgspec.json.decode(source)
    schema = _FORMS[target](node if is_clean else object_root(clean(node)))
    return msgspec.json.encode(_strict(schema) if strict and target == "openai" else schema)


def is_strict_ready(schema: Mapping[str, Any]) -> bool:
    """Whether OpenAI accepts the schema with `strict: true`, unchanged.

    That is so if the strict form changes nothing and the documented limits are met: 10 levels,
    5,000 properties, 1,000 literals, 120,000 characters of names and literals.
    """
    try:
        form = adapt(schema, "openai", strict=True)
    except SchemaError:
        return False
    if fingerprint(inline(schema)) != fingerprint(form):
        return False
    todo: list[tuple[Schema, int]] = [(form, 1)]
    for node, level in todo:
        todo += [(child, level + 1) for child in node.get("properties", {}).values()]
        todo += [(child, level) for child in node.get("anyOf", ())]
        todo += [(node["items"], level)] if "items" in node else []
    found = [name for node, _ in todo for name in node.get("properties", ())]
    literals = [value for node, _ in todo for value in values_of(node) or ()]
    chars = sum(len(text) for text in (*found, *literals) if isinstance(text, str))
    deep = max(level for _, level in todo)
    return deep <= 10 and len(found) <= 5_000 and len(literals) <= 1_000 and chars <= 120_000


def target_for(provider: str | None, model_id: str | None = None, api: str | None = None) -> Target:
    """The provider whose rules apply to the tools of a request.

    The protocol decides, if it is known: an Anthropic endpoint gets Anthropic's form even for a
    Gemini model, while a relay that speaks OpenAI's protocol passes schemas on to Gemini.
    """
    who, model, protocol = (text.lower() for text in (provider or "", model_id or "", api or ""))
    if "anthropic" in (protocol or who):
        return "anthropic"
    if any(word in text for text in (who, model, protocol) for word in ("google", "gemini")):
        return "google"
    return "anthropic" if "claude" in model and "openai" not in protocol else "openai"


Provider = Literal["anthropic", "openai", "openai-responses", "google"]
PROVIDERS: tuple[Provider, ...] = get_args(Provider)
CHARS_PER_TOKEN = 4


def declare(
    name: str,
    description: str,
    schema: Mapping[str, Any],
    provider: Provider,
    *,
    strict: bool = False,
) -> dict[str, Any]:
    """A tool declaration with the schema adapted. `strict` is for the OpenAI APIs."""
    target: Target = "openai" if provider == "openai-responses" else provider
    try:
        adapted = adapt(schema, target, strict=strict and target == "openai")
    except SchemaError as error:
        raise SchemaError(f"{name}: {error}") from None
    if provider == "anthropic":
        return {"name": name, "description": description, "input_schema": adapted}
    function: dict[str, Any] = {"name": name, "description": description, "parameters": adapted}
    if provider == "google":
        if not adapted["properties"]:
            del function["parameters"]  # an object without properties is rejected
        return function
    if strict and is_strict_ready(adapted):
        function["strict"] = True  # otherwise the API would reject it as too large or too deep
    if provider == "openai-responses":
        return {"type": "function", **function}
    return {"type": "function", "function": function}


def check_schema(schema: Mapping[str, Any], name: str) -> None:
    """Raise `SchemaError` for a schema that no model accepts: recursive, too large, or external."""
    try:
        inline(schema)
    except SchemaError as error:
        raise SchemaError(f"{name}: {error}") from None


def validator_for(schema: Mapping[str, Any], label: str) -> Draft202012Validator:
    """A validator for a schema that a model wrote. Raises `ToolInputError` if it is invalid, or if
    validation could take forever: a few references can branch a billion times."""
    made = make_validator(schema, label)
    try:
        check_schema(schema, label)
    except SchemaError as error:
        raise ToolInputError(str(error)) from None
    return made


def token_cost(name: str, description: str, schema: Mapping[str, Any], provider: Provider) -> int:
    """Estimated tokens of the tool in every request: characters of its declaration / 4."""
    import json

    text = json.dumps(declare(name, description, schema, provider), separators=(",", ":"))
    return -(-len(text) // CHARS_PER_TOKEN)
