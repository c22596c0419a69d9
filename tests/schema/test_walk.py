from __future__ import annotations

from typing import Any

from tests.tables import table

from clawkit.schema.clean import distinct, map_schemas


def visited(schema: dict[str, Any]) -> list[Any]:
    found: list[Any] = []
    map_schemas(schema, found.append)
    return found


@table("keyword", ["additionalProperties", "items", "not", "if", "contains"])
def test_a_keyword_that_holds_one_schema_is_visited(keyword: str) -> None:
    assert visited({keyword: {"type": "string"}}) == [{"type": "string"}]


@table("keyword", ["anyOf", "oneOf", "allOf", "prefixItems", "items"])
def test_every_schema_of_a_list_is_visited(keyword: str) -> None:
    assert visited({keyword: [{"minimum": 1}, True]}) == [{"minimum": 1}, True]


def test_property_names_are_not_keywords() -> None:
    names = ["format", "pattern", "const", "enum", "$ref", "anyOf", "properties", "default"]
    schema = {"properties": {name: {"title": name} for name in names}}
    assert visited(schema) == [{"title": name} for name in names]


@table("keyword", ["enum", "const", "default", "examples", "required", "x-any"])
def test_data_is_carried_over_untouched(keyword: str) -> None:
    data = [{"properties": {"a": {"$ref": "#/nowhere"}}}]
    assert visited({keyword: data}) == []
    assert map_schemas({keyword: data}, lambda schema: None) == {keyword: data}


def test_values_are_told_apart_as_json_tells_them_apart() -> None:
    assert distinct([1, True, 1, "1", {"a": 1, "b": 2}, {"b": 2, "a": 1}]) == [
        1,
        True,
        "1",
        {"a": 1, "b": 2},
    ]
