from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any

import pytest
from tests.tables import table

from clawkit.errors import SchemaError
from clawkit.schema.clean import MAX_DEPTH, MAX_NODES, inline

TEXT = {"type": "string"}


@table(
    ("ref", "holder"),
    [
        ("#/$defs/a", {"$defs": {"a": TEXT}}),
        ("#/definitions/a", {"definitions": {"a": TEXT}}),
        ("#/components/schemas/a", {"components": {"schemas": {"a": TEXT}}}),
        ("#/properties/other", {"properties": {"other": TEXT}}),
        ("#/anyOf/1", {"anyOf": [{}, TEXT]}),
        ("#/$defs/a~1b~0c", {"$defs": {"a/b~c": TEXT}}),
        ("#/$defs/a%20b%C3%BC", {"$defs": {"a bü": TEXT}}),
        ("#/%24defs/a%25", {"$defs": {"a%": TEXT}}),
        ("#/$defs/", {"$defs": {"": TEXT}}),
    ],
)
def test_a_local_reference_is_put_in_its_place(ref: str, holder: dict[str, Any]) -> None:
    assert inline({**holder, "items": {"$ref": ref}})["items"] == TEXT


def test_references_to_references_are_followed() -> None:
    schema = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": TEXT}, "items": {"$ref": "#/$defs/a"}}
    assert inline(schema) == {"items": TEXT}


def test_a_root_that_is_a_reference_becomes_its_target() -> None:
    schema = {"$schema": "x", "$ref": "#/definitions/A", "definitions": {"A": {"type": "object"}}}
    assert inline(schema) == {"type": "object"}


def test_what_stands_beside_a_reference_is_kept_and_its_description_wins() -> None:
    holder = {"$defs": {"a": {"type": "string", "description": "general", "title": "A"}}}
    assert inline({**holder, "items": {"$ref": "#/$defs/a", "description": "here"}})["items"] == {
        "type": "string",
        "description": "here",
        "title": "A",
    }
    beside = {
        "$ref": "#/$defs/a",
        "description": "here",
        "maxLength": 3,
        "allOf": [{"minLength": 1}],
    }
    assert inline({**holder, "items": beside})["items"] == {
        "description": "here",
        "maxLength": 3,
        "allOf": [{"type": "string", "title": "A"}, {"minLength": 1}],
    }


def test_references_to_true_and_false_keep_their_meaning() -> None:
    holder = {"$defs": {"yes": True, "no": False}}
    assert inline({**holder, "items": {"$ref": "#/$defs/yes", "title": "T"}})["items"] == {
        "title": "T"
    }
    assert inline({**holder, "items": {"$ref": "#/$defs/no"}})["items"] == {"not": {}}


def test_a_property_called_ref_is_not_a_reference() -> None:
    schema = {"properties": {"$ref": TEXT, "$defs": TEXT}, "default": {"$ref": "https://x.test"}}
    assert inline(schema) == schema


@table(
    ("schema", "circle"),
    [
        ({"properties": {"child": {"$ref": "#"}}}, "# -> #"),
        ({"$defs": {"n": {"items": {"$ref": "#/$defs/n"}}}, "$ref": "#/$defs/n"}, "#/$defs/n ->"),
        (
            {
                "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"not": {"$ref": "#/%24defs/a"}}},
                "items": {"$ref": "#/$defs/a"},
            },
            "#/$defs/a -> #/$defs/b -> #/$defs/a",
        ),
        ({"properties": {"x": {"items": {"$ref": "#/properties/x"}}}}, "#/properties/x ->"),
    ],
)
def test_a_recursive_schema_is_refused_and_the_circle_named(
    schema: dict[str, Any], circle: str
) -> None:
    with pytest.raises(SchemaError, match="recursive") as error:
        inline(schema)
    assert circle in str(error.value)


def test_a_recursive_definition_that_nothing_uses_does_no_harm() -> None:
    assert inline({"type": "object", "$defs": {"n": {"$ref": "#/$defs/n"}}}) == {"type": "object"}


@table(
    ("ref", "message"),
    [
        ("https://example.test/schema.json", "does not point into the schema itself"),
        ("other.json#/$defs/a", "does not point into the schema itself"),
        ("#anchor", "does not point into the schema itself"),
        ("", "does not point into the schema itself"),
        ("#/$defs/missing", "points to nothing"),
        ("#/anyOf/7", "points to nothing"),
        ("#/anyOf/0/title/deeper", "points to nothing"),
        ("#/anyOf/0/title", "does not point to a schema"),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused(ref: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        inline({"anyOf": [{"title": "T"}], "items": {"$ref": ref}})


@table("keyword", ["$dynamicRef", "$dynamicAnchor", "$recursiveRef"])
def test_dynamic_references_are_refused(keyword: str) -> None:
    with pytest.raises(SchemaError, match="cannot be resolved"):
        inline({"properties": {"a": {keyword: "#x"}}})


def test_references_that_multiply_are_stopped() -> None:
    defs: dict[str, Any] = {"l0": TEXT}
    for level in range(1, 25):
        below = {"$ref": f"#/$defs/l{level - 1}"}
        defs[f"l{level}"] = {"anyOf": [below, below]}
    with pytest.raises(SchemaError, match=str(MAX_NODES)):
        inline({"$defs": defs, "items": {"$ref": "#/$defs/l24"}})


@table(
    "big",
    [
        {"type": "string", "description": "z" * 300_000},
        {"enum": ["z" * 300_000]},
        {"properties": {"z" * 300_000: True}},
        {"default": {"z" * 300_000: 1}},
    ],
)
def test_repeating_long_text_is_stopped(big: dict[str, Any]) -> None:
    assert inline({"$defs": {"big": big}, "items": {"$ref": "#/$defs/big"}})
    many = {f"p{number}": {"$ref": "#/$defs/big"} for number in range(20)}
    with pytest.raises(SchemaError, match=str(MAX_NODES)):
        inline({"$defs": {"big": big}, "properties": many})


def test_deep_nesting_is_stopped() -> None:
    def nested(levels: int) -> dict[str, Any]:
        return {"properties": {"a": nested(levels - 1)}} if levels else TEXT

    assert inline(nested(MAX_DEPTH - 1))
    with pytest.raises(SchemaError, match=str(MAX_DEPTH)):
        inline(nested(MAX_DEPTH + 1))


def test_an_object_that_contains_itself_is_refused() -> None:
    schema: dict[str, Any] = {"properties": {}}
    schema["properties"]["self"] = schema
    data: list[Any] = []
    data.append(data)
    for circular in (schema, {"enum": data}):
        with pytest.raises(SchemaError, match="contains itself"):
            inline(circular)


def test_what_is_not_json_is_refused(subtests: pytest.Subtests) -> None:
    values: list[Any] = [
        (math.nan, "not finite"),
        (math.inf, "not finite"),
        (-math.inf, "not finite"),
        (10**400, "far too large"),
        (object(), "not JSON"),
        ({1: 2}, "not a string"),
        (b"bytes", "not JSON"),
        ({"a", "b"}, "not JSON"),
        ("\ud800", "not valid Unicode"),
        ({"\udfff": 1}, "not valid Unicode"),
    ]
    places: list[Any] = ["default", "minimum", "items"]
    for value, message in values:
        for place in places:
            raw = {"properties": {"a": {place: value}}}
            with subtests.test(raw=raw), pytest.raises(SchemaError, match=message):
                inline(raw)


@table("schema", [None, True, [], "object", 3])
def test_a_schema_must_be_an_object(schema: Any) -> None:
    with pytest.raises(SchemaError, match="must be an object"):
        inline(schema)


def test_numbers_are_written_the_short_way() -> None:
    given = {"enum": [1.0, 0.5, 2**63 - 1, 2**80, 1e300, True]}
    enum = inline(given)["enum"]
    assert enum == [1, 0.5, 2**63 - 1, float(2**80), 1e300, True]
    assert [type(value) for value in enum] == [int, float, int, float, float, bool]


def test_read_only_mappings_and_tuples_are_copied_to_plain_ones() -> None:
    schema = MappingProxyType(
        {"required": ("a",), "properties": MappingProxyType({"a": TEXT}), "anyOf": ({}, TEXT)}
    )
    copy = inline(schema)
    assert copy == {"required": ["a"], "properties": {"a": TEXT}, "anyOf": [{}, TEXT]}
    assert copy["properties"]["a"] is not TEXT
