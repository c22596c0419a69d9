from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from tests.tables import table

from clawkit.schema.clean import clean, nullable

NULL = {"type": "null"}


@table(
    ("given", "expected"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "string", "nullable": False}, {"type": "string"}),
        ({"type": ["string", "null"], "nullable": True}, {"type": ["string", "null"]}),
        ({"enum": ["a"], "nullable": True}, {"enum": ["a", None]}),
        ({"const": "a", "nullable": True}, {"enum": ["a", None]}),
        ({"nullable": True}, {}),
        ({"anyOf": [{"minimum": 1}], "nullable": True}, {"anyOf": [{"minimum": 1}, NULL]}),
        (
            {"allOf": [{"minimum": 1}], "title": "T", "nullable": True},
            {"title": "T", "anyOf": [{"allOf": [{"minimum": 1}]}, NULL]},
        ),
    ],
)
def test_openapi_null_becomes_a_type(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert clean(given) == expected


def test_leftovers_are_dropped_and_properties_of_that_name_kept(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        *("discriminator", "externalDocs", "xml", "readOnly", "writeOnly", "x-order", "optional"),
        *("id", "components", "strict", "$vocabulary", "markdownDescription"),
    ]
    for leftover in cases:
        with subtests.test(leftover=leftover):
            schema = {"type": "object", leftover: {}, "properties": {leftover: {"type": "string"}}}
            assert clean(schema) == {"type": "object", "properties": {leftover: {"type": "string"}}}


@table(
    ("given", "expected"),
    [
        ({"minimum": 1, "exclusiveMinimum": True}, {"exclusiveMinimum": 1}),
        ({"maximum": 1, "exclusiveMaximum": False}, {"maximum": 1}),
        (
            {"items": [{"type": "string"}], "additionalItems": False},
            {"prefixItems": [{"type": "string"}], "items": False},
        ),
        ({"items": [{"type": "string"}]}, {"prefixItems": [{"type": "string"}], "items": {}}),
        (
            {"dependencies": {"a": ["b"], "c": {"required": ["d"]}}},
            {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"c": {"required": ["d"]}}},
        ),
        ({"example": 3}, {"examples": [3]}),
        ({"type": "array"}, {"type": "array", "items": {}}),
        ({"type": "STRING"}, {"type": "string"}),
        ({"type": ["integer"]}, {"type": "integer"}),
        ({"additionalProperties": {}}, {"additionalProperties": True}),
    ],
)
def test_older_forms_become_the_present_one(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert clean(given) == expected


def test_a_keyword_with_a_value_of_the_wrong_shape_is_dropped(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        *({"type": "file"}, {"type": None}, {"type": []}, {"type": 3}, {"required": True}),
        *({"properties": []}, {"properties": None}, {"items": None}, {"anyOf": []}, {"anyOf": {}}),
        *({"minLength": -1}, {"minLength": "1"}, {"minLength": True}, {"multipleOf": 0}),
        *({"description": None}, {"pattern": 3}, {"enum": "a"}, {"enum": []}, {"format": {}}),
        *({"uniqueItems": 1}, {"examples": {"a": 1}}, {"minimum": "0"}, {"minimum": True}),
    ]
    for wrong in cases:
        with subtests.test(wrong=wrong):
            assert clean(wrong) == {}


def test_repeated_and_misplaced_entries_of_lists_are_dropped() -> None:
    assert clean({"type": "object", "required": ["a", 1, "a"]})["required"] == ["a"]
    assert clean({"enum": [1, 1, True, "1"]})["enum"] == [1, True, "1"]
    assert clean({"dependentRequired": {"a": ["b", "b"], "c": 1}}) == {
        "dependentRequired": {"a": ["b"], "c": []}
    }


def test_true_and_false_are_spelt_out_where_a_schema_is_expected() -> None:
    schema = {"properties": {"a": True, "b": False, "c": None}, "additionalProperties": False}
    assert clean(schema) == {
        "properties": {"a": {}, "b": {"not": {}}, "c": {}},
        "additionalProperties": False,
    }


@table(
    "schema",
    [
        {"type": "string", "minLength": 1},
        {"const": 1},
        {"enum": [1, 2]},
        {"type": "object", "required": ["a"]},
        {"not": {"type": "null"}},
        {"oneOf": [{"type": "string"}, {"type": "number"}]},
        {"anyOf": [{"type": "string"}], "description": "d"},
    ],
)
def test_a_nullable_schema_takes_null_and_all_it_took_before(schema: dict[str, Any]) -> None:
    before, after = (
        jsonschema_rs.validator_for(schema),
        jsonschema_rs.validator_for(nullable(schema)),
    )
    assert after.is_valid(None)
    for value in ("", "x", 1, 2, {}, {"a": 1}, [1]):
        assert after.is_valid(value) == before.is_valid(value)
    assert nullable(nullable(schema)) == nullable(schema)
