from __future__ import annotations

from typing import Any

from tests.tables import table

from clawkit.schema.choose import adapt

from .rules import google_problems

NUMBER_TOO = "a whole number is accepted too"


def one(schema: Any) -> Any:
    """The declaration of one property."""
    form = adapt({"type": "object", "properties": {"x": schema}}, "google")
    assert google_problems(form) == []
    return form["properties"].get("x")


@table(
    ("keywords", "words"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 10}, "at least 1; at most 10"),
        (
            {"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.5},
            "more than 0; a multiple of 0.5",
        ),
        ({"type": "string", "minLength": 1, "maxLength": 9}, "length at least 1; length at most 9"),
        ({"type": "string", "pattern": "^a{2}$"}, "matching ^a{2}$"),
        ({"type": "string", "format": "date-time"}, "format date-time"),
        ({"type": "string", "examples": ["a", "b"]}, 'for example ["a","b"]'),
        ({"type": "string", "deprecated": True}, "deprecated"),
        (
            {"type": "object", "additionalProperties": {"type": "string"}},
            "values of other keys: string",
        ),
        (
            {"type": "object", "additionalProperties": False, "minProperties": 0},
            "number of keys at least 0",
        ),
        ({"type": "string", "not": {"const": "x"}}, 'not {"const":"x"}'),
    ],
)
def test_constraints_a_declaration_cannot_hold_are_kept_as_words(
    keywords: dict[str, Any], words: str
) -> None:
    assert one(keywords) == {"type": keywords["type"], "description": words}
    assert one({**keywords, "description": "How many"})["description"] == f"How many ({words})"


def test_a_very_long_constraint_is_cut() -> None:
    described = one({"type": "string", "pattern": "x" * 5_000})["description"]
    assert len(described) < 400
    assert described.endswith("…")


@table(
    ("schema", "expected"),
    [
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        ({"enum": ["a", "b", None]}, {"type": "string", "enum": ["a", "b"], "nullable": True}),
        (
            {"enum": ["a", "1", 1]},
            {"type": "string", "enum": ["a", "1"], "description": NUMBER_TOO},
        ),
        ({"type": "integer", "enum": [1, 2]}, {"type": "integer", "description": "one of [1,2]"}),
        ({"const": True}, {"type": "boolean", "description": "one of [true]"}),
        ({"enum": ["", "eq"]}, {"type": "string", "description": 'one of ["","eq"]'}),
        ({"anyOf": [{"const": "a"}, {"enum": ["b", "a"]}]}, {"type": "string", "enum": ["a", "b"]}),
        (
            {"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]},
            {"type": "string", "enum": ["a", "b"], "nullable": True},
        ),
        (
            {"anyOf": [{"enum": ["a"]}, {"type": "string"}]},
            {"type": "string", "description": 'for example ["a"]'},
        ),
    ],
)
def test_literals(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert one(schema) == expected


@table(
    ("types", "kind", "words"),
    [
        (["string", "number"], "string", "a number is accepted too"),
        (
            ["integer", "string", "boolean"],
            "string",
            "a whole number or true or false is accepted too",
        ),
        (["number", "boolean"], "string", "a number or true or false is accepted too"),
        (["integer", "number"], "number", None),
        (["string", "array"], "array", "text is accepted too"),
        (["object", "string"], "object", "text is accepted too"),
    ],
)
def test_one_type_is_chosen_and_the_others_are_mentioned(
    types: list[str], kind: str, words: str | None
) -> None:
    as_list, as_union = one({"type": types}), one({"anyOf": [{"type": name} for name in types]})
    for declared in (as_list, as_union):
        assert declared["type"] == kind
        assert declared.get("description") == words


@table(
    "schema",
    [
        {"type": ["string", "null"]},
        {"type": "string", "nullable": True},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"oneOf": [{"type": "null"}, {"type": "string"}], "default": None},
    ],
)
def test_null_is_kept_as_nullable(schema: dict[str, Any]) -> None:
    assert one(schema) == {"type": "string", "nullable": True}


def test_a_union_of_objects_merges_properties_and_requires_what_all_require() -> None:
    declared = one(
        {
            "description": "Where.",
            "oneOf": [
                {
                    "type": "object",
                    "properties": {"kind": {"const": "page"}, "id": {"type": "string"}},
                    "required": ["kind", "id"],
                },
                {
                    "type": "object",
                    "properties": {"kind": {"const": "top"}, "id": {"type": "integer"}},
                    "required": ["kind"],
                },
            ],
        }
    )
    assert declared == {
        "type": "object",
        "description": 'Where. Give kind "page" and id; or kind "top".',
        "properties": {
            "kind": {"type": "string", "enum": ["page", "top"]},
            "id": {"type": "string", "description": "a whole number is accepted too"},
        },
        "required": ["kind"],
    }


def test_arrays_always_say_what_they_hold() -> None:
    anything = {"type": "string", "description": "any JSON value"}
    assert one({"type": "array"}) == {"type": "array", "items": anything}
    assert one({"items": {"type": "number"}}) == {"type": "array", "items": {"type": "number"}}
    pair = one({"type": "array", "prefixItems": [{"const": "a"}, {"const": "b"}], "maxItems": 2})
    assert pair["items"] == {"type": "string", "enum": ["a", "b"]}
    assert "items in order" in pair["description"]


def test_a_value_of_any_kind_says_so() -> None:
    for schema in ({}, True, {"anyOf": [{}, {"type": "string"}]}):
        assert one(schema) == {"type": "string", "description": "any JSON value"}


def test_a_property_that_is_never_allowed_is_not_declared() -> None:
    assert one(False) is None


@table(
    "name", ["format", "pattern", "const", "enum", "default", "anyOf", "$ref", "not", "minLength"]
)
def test_a_property_named_like_a_keyword_survives(name: str) -> None:
    schema = {
        "type": "object",
        "properties": {name: {"type": "string"}},
        "required": [name, "gone"],
    }
    assert adapt(schema, "google") == {**schema, "required": [name]}
    nested = {"type": "object", "properties": {"x": schema}}
    assert adapt(nested, "google")["properties"]["x"]["properties"] == {name: {"type": "string"}}


def test_titles_and_defaults_are_documented_fields_and_stay() -> None:
    schema = {"type": "integer", "title": "Count", "default": 5}
    assert one(schema) == schema


def test_an_object_without_properties_is_declared_as_such() -> None:
    assert adapt({}, "google") == {"type": "object", "properties": {}}
    assert one({"type": "object"}) == {"type": "object"}
