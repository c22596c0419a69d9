"""Unions and `allOf` at the root, the same for every provider."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from tests.tables import table

from clawkit.errors import SchemaError
from clawkit.schema.choose import Target, adapt

TARGETS: list[Target] = ["anthropic", "openai", "google"]
A = {
    "type": "object",
    "properties": {"action": {"const": "a"}, "path": {"type": "string"}},
    "required": ["action", "path"],
}
B = {
    "type": "object",
    "properties": {"action": {"const": "b"}, "count": {"type": "integer"}},
    "required": ["action"],
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_a_root_union_becomes_one_object(keyword: str, target: Target) -> None:
    form = adapt({keyword: [A, B]}, target)
    assert form["properties"] == {
        "action": {"type": "string", "enum": ["a", "b"]},
        "path": {"type": "string"},
        "count": {"type": "integer"},
    }
    assert form["required"] == ["action"]
    assert form["description"] == 'Give action "a" and path; or action "b".'


@table("target", TARGETS)
def test_what_the_root_requires_stays_required(target: Target) -> None:
    schema = {"properties": {"id": {"type": "string"}}, "required": ["id"], "anyOf": [A, B]}
    assert sorted(adapt(schema, target)["required"]) == ["action", "id"]


def test_alternatives_that_only_require_are_said_in_words() -> None:
    schema = {
        "type": "object",
        "description": "Find it.",
        "properties": {"id": {"type": "string"}, "name": {"type": "string"}},
        "anyOf": [{"required": ["id"]}, {"required": ["name"]}],
    }
    form = adapt(schema, "anthropic")
    assert "required" not in form
    assert form["description"] == "Find it. Give id; or name."


def test_different_definitions_of_one_property_are_both_kept() -> None:
    one = {"type": "object", "properties": {"x": {"type": "string"}}}
    two = {"type": "object", "properties": {"x": {"type": "array", "items": {"type": "string"}}}}
    x = adapt({"anyOf": [one, two]}, "openai")["properties"]["x"]
    assert x == {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}


@table(
    ("extras", "expected"),
    [
        ([False, False], False),
        ([False, None], None),
        ([True, False], None),
        ([{"type": "string"}, False], {"type": "string"}),
        (
            [{"type": "string"}, {"type": "null"}],
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
        ),
    ],
)
def test_other_keys_stay_allowed_where_one_variant_allows_them(
    extras: list[Any], expected: Any
) -> None:
    variants = []
    for number, extra in enumerate(extras):
        variant: dict[str, Any] = {"type": "object", "properties": {f"p{number}": {"type": "null"}}}
        variants.append(variant | ({} if extra is None else {"additionalProperties": extra}))
    assert adapt({"anyOf": variants}, "anthropic").get("additionalProperties") == expected


def test_a_key_that_one_variant_declares_and_another_types_is_given_both() -> None:
    named = {"type": "object", "properties": {"n": {"type": "string"}}}
    free = {"type": "object", "additionalProperties": {"type": "integer"}}
    form = adapt({"anyOf": [named, free]}, "anthropic")
    assert form["properties"]["n"] == {"anyOf": [{"type": "string"}, {"type": "integer"}]}


@table("target", TARGETS)
def test_a_root_all_of_is_merged(target: Target) -> None:
    schema = {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"properties": {"b": {"type": "number"}}, "required": ["b"]},
        ],
        "required": ["a"],
    }
    form = adapt(schema, target)
    assert form["properties"] == {"a": {"type": "string"}, "b": {"type": "number"}}
    assert form["required"] == ["a", "b"]
    assert "allOf" not in form


@table(
    ("one", "other", "merged"),
    [
        ({"type": "number"}, {"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 1}),
        ({"minimum": 1, "maximum": 9}, {"minimum": 3, "maximum": 12}, {"minimum": 3, "maximum": 9}),
        ({"type": "string"}, {"enum": ["a"]}, {"type": "string", "enum": ["a"]}),
        ({"enum": ["a", "b"]}, {"enum": ["b", "c"]}, {"enum": ["b"]}),
        ({"type": ["string", "null"]}, {"type": ["null", "string"]}, {"type": ["string", "null"]}),
        ({"pattern": "a"}, {"pattern": "b"}, {"allOf": [{"pattern": "a"}, {"pattern": "b"}]}),
        ({}, {"pattern": "b"}, {"pattern": "b"}),
        ({"title": "T"}, {"title": "T"}, {"title": "T"}),
    ],
)
def test_a_property_defined_twice_satisfies_both(
    one: dict[str, Any], other: dict[str, Any], merged: dict[str, Any]
) -> None:
    schema = {"allOf": [{"properties": {"x": one}}, {"properties": {"x": other}}]}
    assert adapt(schema, "anthropic")["properties"]["x"] == merged


def test_conditions_of_two_parts_are_never_mixed() -> None:
    """`if` of one part with `then` of another would forbid what neither forbids."""
    part = {"if": {"required": ["a"]}, "else": {"required": ["b"]}}
    other = {"if": {"required": ["c"]}, "then": {"required": ["d"]}}
    form = adapt({"type": "object", "allOf": [part, other]}, "anthropic")
    assert form["if"] == {"required": ["a"]}
    assert "then" not in form


def test_nested_unions_at_the_root_are_flattened_too() -> None:
    schema = {"oneOf": [{"anyOf": [A, B]}, {"allOf": [{"properties": {"z": True}}]}]}
    form = adapt(schema, "openai")
    assert list(form["properties"]) == ["action", "path", "count", "z"]
    assert "required" not in form


def test_variants_that_are_not_objects_are_left_out() -> None:
    assert adapt({"anyOf": [A, {"type": "null"}, {"type": "string"}, False]}, "google")[
        "required"
    ] == ["action", "path"]


@table(
    "schema",
    [
        {"type": "string"},
        {"type": ["array", "null"]},
        {"anyOf": [{"type": "string"}, {"type": "array"}]},
        {"oneOf": [False]},
    ],
)
def test_a_root_that_can_never_be_an_object_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match="must be an object"):
        adapt(schema, "openai")


def test_the_merged_object_takes_what_each_variant_took() -> None:
    validator = jsonschema_rs.validator_for(adapt({"oneOf": [A, B]}, "anthropic"))
    assert validator.is_valid({"action": "a", "path": "x"})
    assert validator.is_valid({"action": "b", "count": 2})
    assert not validator.is_valid({"action": "c"})
    assert not validator.is_valid({"path": "x"})
