"""Schemas from a seed: wild ones as strangers write them, and ones with a value they accept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Schema = dict[str, Any]

NAMES = [
    *("a", "b", "path", "format", "pattern", "const", "enum", "type", "items", "$ref", "anyOf"),
    *("properties", "required", "default", "not", "nullable", "definitions", "filter[id]", "ü x"),
]
TYPES = ["object", "array", "string", "number", "integer", "boolean", "null"]
_SCALARS = [None, True, False, -1, 0, 1, 2**70, 0.5, 1.0, 1e300, "", "x", "1", "true", "yes"]
_CHOICES: dict[str, list[Any]] = {
    "type": [
        *TYPES,
        "STRING",
        "any",
        None,
        ["string", "null"],
        ["number", "string"],
        [],
        ["object"],
    ],
    "title": ["Title"],
    "description": ["A thing.", "Another thing", ""],
    "minimum": [-1, 0, 2, 2.5, "1"],
    "exclusiveMinimum": [0, 1, True, False],
    "maximum": [5, 9],
    "multipleOf": [2, 0.5, 0, -1],
    "minLength": [0, 1, 2.0, -1],
    "maxLength": [3, 9, None],
    "pattern": ["^a+$", "(?=x)x", "[a-z]"],
    "format": ["date-time", "uuid", "uri", "int32", 7],
    "minItems": [0, 1],
    "uniqueItems": [True, False],
    "maxProperties": [0, 4],
    "deprecated": [True, False],
    "nullable": [True, False],
    "readOnly": [True],
    "x-order": [1],
    "$comment": ["internal"],
    "discriminator": [{"propertyName": "type"}],
    "dependentRequired": [{"a": ["b"]}, {"a": "b"}, []],
    "dependencies": [{"a": ["b"], "b": {"minProperties": 1}}, 3],
    "required": [["a"], ["a", "b", "a"], ["path", 1], True, []],
}
_NESTED = ["properties", "patternProperties", "additionalProperties", "items", "additionalItems"]
_NESTED += ["prefixItems", "anyOf", "oneOf", "allOf", "not", "if", "then", "contains"]
REFS = ["#/$defs/one", "#/definitions/t~1wo", "#/definitions/t%7E1wo", "#/%24defs/one"]


class Wild:
    """Anything a tool server might send, keywords with wrong values included."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def root(self) -> Schema:
        schema = self.schema(3)
        if self.random.random() < 0.7:
            schema["type"] = self.random.choice(["object", ["object", "null"], "OBJECT", None])
        return {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$defs": {"one": self.schema(0), "endless": {"$ref": "#/$defs/endless"}},
            "definitions": {"t/wo": {"$ref": "#/$defs/one"}},
            **schema,
        }

    def schema(self, depth: int) -> Schema:
        pick = self.random
        node: Schema = {}
        for key in pick.sample(list(_CHOICES), pick.randrange(5)):
            node[key] = pick.choice(_CHOICES[key])
        for key in pick.sample(
            ["enum", "const", "default", "examples", "example"], pick.randrange(2)
        ):
            node[key] = self.data(2) if pick.random() < 0.3 else [self.data(1), self.data(1)]
        for key in pick.sample(_NESTED, pick.randrange(4) if depth else 0):
            wrong = pick.random() < 0.05
            node[key] = pick.choice(_SCALARS) if wrong else self.nested(key, depth - 1)
        if depth < 3 and pick.random() < 0.15:
            node["$ref"] = pick.choice(REFS) if depth else None
            node = node if depth else {k: v for k, v in node.items() if k != "$ref"}
        return node

    def nested(self, key: str, depth: int) -> Any:
        pick = self.random
        if key in ("properties", "patternProperties"):
            names = NAMES if key == "properties" else ["^x-"]
            return {
                n: self.child(depth)
                for n in pick.sample(names, pick.randrange(1 + min(4, len(names))))
            }
        if key in ("prefixItems", "anyOf", "oneOf", "allOf") or (
            key == "items" and pick.random() < 0.2
        ):
            return [self.child(depth) for _ in range(pick.randrange(4))]
        return self.child(depth)

    def child(self, depth: int) -> Any:
        odd = self.random.random()
        return self.random.choice([True, False, None, 3]) if odd < 0.1 else self.schema(depth)

    def data(self, depth: int) -> Any:
        odd = self.random.random()
        if depth and odd < 0.2:
            return {self.random.choice(NAMES): self.data(depth - 1)}
        if depth and odd < 0.4:
            return [self.data(depth - 1) for _ in range(self.random.randrange(3))]
        return self.random.choice(_SCALARS)


class Typed:
    """Schemas that mean something, each with one value written for it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def root(self) -> tuple[Schema, Any]:
        """An object schema and a value that satisfies it."""
        make = self.random.choice([self.object, self.object, self.objects, self.both])
        schema, value = make(3)
        tag = {"enum": ["red", "green"], "description": "A colour."}
        return {**schema, "$defs": {"tag": tag}}, value

    def any(self, depth: int) -> tuple[Any, Any]:
        makers: Sequence[Callable[[int], tuple[Any, Any]]]
        makers = [self.simple, self.simple, self.text, self.whole]
        if depth:
            makers = [*makers, self.list, self.object, self.union, self.objects, self.both]
        return self.random.choice(makers)(depth)

    def simple(self, _depth: int) -> tuple[Any, Any]:
        cases: list[tuple[Any, list[Any]]] = [
            ({"type": "boolean"}, [True, False]),
            ({"type": "number", "exclusiveMinimum": -3}, [-2, 0.5]),
            ({"type": ["string", "null"]}, [None, "n"]),
            ({"type": "string", "nullable": True}, [None, "n"]),
            ({"type": ["string", "number"]}, ["s", 1]),
            ({"type": ["number", "boolean"]}, [True, 1]),
            ({"enum": ["a", 1, None]}, ["a", 1, None]),
            ({"enum": ["", "a"]}, ["", "a"]),
            ({"type": "null"}, [None]),
            ({}, [None, 1, "x", [], {"a": {}}]),
            (True, [None, 1, "x", [], {"a": {}}]),
            ({"$ref": "#/$defs/tag"}, ["red", "green"]),
            ({"$ref": "#/$defs/tag", "description": "d", "maxLength": 3}, ["red"]),
        ]
        schema, values = self.random.choice(cases)
        return schema, self.random.choice(values)

    def text(self, _depth: int) -> tuple[Any, Any]:
        if self.random.random() < 0.5:
            values = self.random.sample(["x", "y", "z"], self.random.randrange(1, 4))
            return {"type": "string", "enum": values}, self.random.choice(values)
        length = self.random.randrange(3)
        return {"type": "string", "minLength": length, "maxLength": length + 1}, "a" * length

    def whole(self, _depth: int) -> tuple[Any, Any]:
        low = self.random.randrange(-3, 3)
        if self.random.random() < 0.5:
            return {"const": low}, low
        return {"type": "integer", "minimum": low, "maximum": low + 2}, low + 1

    def list(self, depth: int) -> tuple[Any, Any]:
        schema, value = self.any(depth - 1)
        if self.random.random() < 0.5:
            return {"type": "array", "items": schema}, [value] * self.random.randrange(3)
        second, other = self.any(depth - 1)
        tail: Schema = self.random.choice([{"items": False}, {"maxItems": 2}])
        return {"type": "array", "prefixItems": [schema, second], **tail}, [value, other]

    def object(self, depth: int) -> tuple[Any, Any]:
        fields = {
            n: self.any(depth - 1) for n in self.random.sample(NAMES, self.random.randrange(4))
        }
        required = [name for name in fields if self.random.random() < 0.5]
        schema: Schema = {"type": "object", "properties": {n: p[0] for n, p in fields.items()}}
        value = {n: p[1] for n, p in fields.items() if n in required or self.random.random() < 0.7}
        schema |= {"required": required} if required else {}
        extra = self.random.choice([None, False, {"type": "integer"}])
        schema |= {"additionalProperties": extra} if extra is not None else {}
        # A key that other variants may declare as something else.
        if extra and self.random.random() < 0.5:
            value = {self.random.choice([n for n in NAMES if n not in fields]): 7, **value}
        return schema, value

    def objects(self, depth: int) -> tuple[Any, Any]:
        """A union of objects with something in common beside it."""
        variants = [self.object(depth) for _ in range(self.random.randrange(1, 4))]
        keyword = self.random.choice(["anyOf", "oneOf"])
        if keyword == "oneOf":
            for index, (schema, value) in enumerate(variants):
                schema["properties"] = {**schema["properties"], "kind": {"const": f"k{index}"}}
                schema["required"] = [*schema.get("required", []), "kind"]
                value["kind"] = f"k{index}"
        value = self.random.choice(variants)[1]
        return {"description": "some", keyword: [variant[0] for variant in variants]}, value

    def union(self, depth: int) -> tuple[Any, Any]:
        variants = [self.any(depth - 1) for _ in range(self.random.randrange(1, 4))]
        return {"anyOf": [v[0] for v in variants]}, self.random.choice(variants)[1]

    def both(self, depth: int) -> tuple[Any, Any]:
        """Two open objects at once."""
        one, two = self.any(depth - 1), self.any(depth - 1)
        left = {"type": "object", "properties": {"left": one[0]}, "required": ["left"]}
        right = {"properties": {"right": two[0], "left": {}}}
        value = {"left": one[1]} | ({"right": two[1]} if self.random.random() < 0.5 else {})
        return {"allOf": [left, right], "description": "both"}, value


def without_openapi(schema: Any) -> Any:
    """The same schema for a validator that knows nothing of `nullable`."""
    if not isinstance(schema, dict):
        return [without_openapi(item) for item in schema] if isinstance(schema, list) else schema
    if schema.get("nullable") is True and isinstance(schema.get("type"), str):
        return {"type": [schema["type"], "null"]}
    return {key: without_openapi(value) for key, value in schema.items()}
