"""What each provider documents about parameter schemas, as checks that list every breach.

Written from the providers' own pages, not from the code under test: the keyword tables here are
deliberately separate from the ones in `clawkit.schema`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs

_ONE = {"additionalProperties", "propertyNames", "unevaluatedProperties", "items", "contains"}
_ONE |= {"unevaluatedItems", "not", "if", "then", "else", "contentSchema"}
_MAPS = {"properties", "patternProperties", "dependentSchemas"}
_LISTS = {"allOf", "anyOf", "oneOf", "prefixItems"}
_VALUES = {"type", "enum", "const", "default", "examples", "required", "title", "description"}
_VALUES |= {"format", "pattern", "minLength", "maxLength", "contentEncoding", "contentMediaType"}
_VALUES |= {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_VALUES |= {"minItems", "maxItems", "uniqueItems", "minContains", "maxContains", "deprecated"}
_VALUES |= {"minProperties", "maxProperties", "dependentRequired"}
VOCABULARY = _ONE | _MAPS | _LISTS | _VALUES

_STRICT = {"type", "title", "description", "enum", "const", "properties", "required", "items"}
_STRICT |= {"additionalProperties", "anyOf", "pattern", "format", "minItems", "maxItems"}
_STRICT |= {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}

_GOOGLE = {"type", "title", "description", "nullable", "enum", "items", "properties", "required"}
_GOOGLE |= {"default"}
_GOOGLE_TYPES = {"object", "array", "string", "number", "integer", "boolean"}


def nodes(schema: Any, path: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object schema with its path."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for key, value in schema.items():
        if key in _ONE:
            yield from nodes(value, f"{path}/{key}")
        elif key in _MAPS:
            for name, child in value.items():
                yield from nodes(child, f"{path}/{key}/{name}")
        elif key in _LISTS:
            for index, child in enumerate(value):
                yield from nodes(child, f"{path}/{key}/{index}")


def types(node: dict[str, Any]) -> list[str]:
    given = node.get("type", [])
    return given if isinstance(given, list) else [given]


def _object_root(schema: dict[str, Any], forbidden: set[str]) -> Iterator[str]:
    if schema.get("type") != "object":
        yield f"root type is {schema.get('type')!r}"
    for key in sorted(forbidden & schema.keys()):
        yield f"{key} at the root"


def anthropic_problems(schema: dict[str, Any]) -> list[str]:
    found = list(_object_root(schema, {"oneOf", "allOf", "anyOf"}))
    if not jsonschema_rs.meta.is_valid(schema):
        found.append("not a valid draft 2020-12 schema")
    for name in schema.get("properties", {}):
        if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name):
            found.append(f"property name {name!r}")
    for path, node in nodes(schema):
        found += [f"{path}: {key} is no 2020-12 keyword" for key in node if key not in VOCABULARY]
    return found


def openai_problems(schema: dict[str, Any]) -> list[str]:
    found = list(_object_root(schema, {"oneOf", "anyOf", "allOf", "enum", "const", "not"}))
    if not isinstance(schema.get("properties"), dict):
        found.append("no properties at the root")
    if not jsonschema_rs.meta.is_valid(schema):
        found.append("not a valid draft 2020-12 schema")
    for path, node in nodes(schema):
        found += [f"{path}: {key} is no 2020-12 keyword" for key in node if key not in VOCABULARY]
        if "array" in types(node) and "items" not in node:
            found.append(f"{path}: array without items")
    return found


def strict_problems(schema: dict[str, Any]) -> list[str]:
    found = openai_problems(schema)
    for path, node in nodes(schema):
        found += [f"{path}: {key} in strict mode" for key in node if key not in _STRICT]
        if "type" not in node and "anyOf" not in node:
            found.append(f"{path}: neither type nor anyOf")
        if "object" in types(node):
            if node.get("additionalProperties") is not False:
                found.append(f"{path}: open object")
            if sorted(node.get("required", [])) != sorted(node.get("properties", {})):
                found.append(f"{path}: not every property is required")
        if node.get("format", "uuid") not in _FORMATS:
            found.append(f"{path}: format {node['format']!r}")
        if "(?" in node.get("pattern", ""):
            found.append(f"{path}: look-around in a pattern")
    return found


def google_problems(schema: dict[str, Any]) -> list[str]:
    found = list(_object_root(schema, {"nullable"}))
    for path, node in nodes(schema):
        found += [f"{path}: {key} is not a declaration field" for key in node if key not in _GOOGLE]
        kind = node.get("type")
        if kind not in _GOOGLE_TYPES:
            found.append(f"{path}: type {kind!r}")
        if ("items" in node) != (kind == "array"):
            found.append(f"{path}: items and type {kind!r}")
        if kind != "object" and {"properties", "required"} & node.keys():
            found.append(f"{path}: properties of a {kind}")
        if not set(node.get("required", [])) <= set(node.get("properties", {})):
            found.append(f"{path}: a required property that does not exist")
        if "enum" in node:
            texts = [text for text in node["enum"] if isinstance(text, str) and text]
            if kind != "string" or not texts or texts != list(dict.fromkeys(node["enum"])):
                found.append(f"{path}: enum {node['enum']!r} of type {kind!r}")
        if node.get("nullable", True) is not True:
            found.append(f"{path}: nullable {node['nullable']!r}")
    return found


def fits_google(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a declaration lets a value through, counting what its description promises."""
    text = schema.get("description", "")
    kinds: dict[str, tuple[type, ...]] = {"object": (dict,), "array": (list,), "string": (str,)}
    kinds |= {"number": (int, float), "integer": (int,), "boolean": (bool,)}
    if value is None:
        return schema.get("nullable") is True or "any JSON value" in text or "always null" in text
    right = isinstance(value, kinds[schema["type"]]) and (
        isinstance(value, bool) == (schema["type"] == "boolean")
    )
    if not right:
        return "any JSON value" in text or "is accepted too" in text
    if isinstance(value, dict):
        known = schema.get("properties", {})
        return all(name in value for name in schema.get("required", [])) and all(
            fits_google(child, known[name]) for name, child in value.items() if name in known
        )
    if isinstance(value, list):
        return all(fits_google(child, schema["items"]) for child in value)
    return value in schema.get("enum", [value])
