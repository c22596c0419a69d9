from __future__ import annotations

from typing import Any

from tests.tables import table

from clawkit.schema.choose import adapt, is_strict_ready

from .rules import openai_problems, strict_problems


def one(schema: Any) -> Any:
    """The strict form of a required property."""
    root = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    return adapt(root, "openai", strict=True)["properties"]["x"]


def test_what_may_not_stand_at_the_root_moves_into_the_description() -> None:
    schema = {"type": "object", "description": "D.", "not": {"required": ["a", "b"]}, "enum": [{}]}
    form = adapt(schema, "openai")
    assert openai_problems(form) == []
    assert form["description"] == 'D. (not {"required":["a","b"]}; enum [{}])'


def test_optional_properties_become_required_and_may_be_null() -> None:
    schema = {
        "type": "object",
        "properties": {
            "must": {"type": "string"},
            "may": {"type": "string", "default": "d"},
            "pick": {"enum": ["a", "b"]},
            "only": {"const": 1},
            "union": {"anyOf": [{"type": "string"}, {"type": "number"}]},
            "inner": {"type": "object", "properties": {"deep": {"type": "boolean"}}},
        },
        "required": ["must"],
    }
    form = adapt(schema, "openai", strict=True)
    assert strict_problems(form) == []
    assert form["required"] == ["must", "may", "pick", "only", "union", "inner"]
    assert form["properties"] == {
        "must": {"type": "string"},
        "may": {"type": ["string", "null"], "description": "d if left out"},
        "pick": {"type": ["string", "null"], "enum": ["a", "b", None]},
        "only": {"type": ["integer", "null"], "enum": [1, None]},
        "union": {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "null"}]},
        "inner": {
            "type": ["object", "null"],
            "properties": {"deep": {"type": ["boolean", "null"]}},
            "required": ["deep"],
            "additionalProperties": False,
        },
    }


@table(
    ("given", "expected"),
    [
        (
            {"type": "string", "minLength": 2},
            {"type": "string", "description": "length at least 2"},
        ),
        ({"type": "string", "format": "uuid"}, {"type": "string", "format": "uuid"}),
        ({"type": "string", "format": "uri"}, {"type": "string", "description": "format uri"}),
        ({"type": "string", "pattern": "^a$"}, {"type": "string", "pattern": "^a$"}),
        (
            {"type": "string", "pattern": "(?=a)"},
            {"type": "string", "description": "matching (?=a)"},
        ),
        ({"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 1}),
        (
            {"oneOf": [{"type": "string"}, {"type": "number"}]},
            {"anyOf": [{"type": "string"}, {"type": "number"}]},
        ),
        (
            {"allOf": [{"type": "string"}, {"enum": ["a"]}]},
            {"type": "string", "enum": ["a"]},
        ),
        ({"oneOf": [{"const": "a"}, {"const": "b"}]}, {"type": "string", "enum": ["a", "b"]}),
    ],
)
def test_unsupported_keywords_are_rewritten_or_said_in_words(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert one(given) == expected


def test_a_property_that_is_never_allowed_disappears() -> None:
    schema = {"type": "object", "properties": {"no": False, "yes": {"type": "string"}}}
    assert adapt(schema, "openai", strict=True)["required"] == ["yes"]


@table(
    ("schema", "ready"),
    [
        ({"type": "object", "properties": {}, "required": [], "additionalProperties": False}, True),
        ({"type": "object", "properties": {}}, False),
        ({"type": "object"}, False),
        ({"type": "string"}, False),
        ({"properties": {"self": {"$ref": "#"}}}, False),
    ],
)
def test_readiness_for_strict_mode(schema: dict[str, Any], ready: bool) -> None:
    assert is_strict_ready(schema) is ready


def closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def test_readiness_looks_at_every_level() -> None:
    assert is_strict_ready(closed(b={"type": "string"}, a={"type": ["string", "null"]}))
    assert is_strict_ready(
        closed(a={"type": "array", "items": closed(b={"const": 1, "type": "integer"})})
    )
    assert not is_strict_ready(closed(a={"type": "object", "properties": {}}))
    assert not is_strict_ready(closed(a={"type": "string", "minLength": 1}))
    assert not is_strict_ready(closed(a={"oneOf": [{"type": "string"}, {"type": "number"}]}))
    assert not is_strict_ready(closed(a={}))


def test_readiness_keeps_the_documented_limits() -> None:
    deep: dict[str, Any] = closed()
    for _ in range(9):
        deep = closed(a=deep)
    assert is_strict_ready(deep)
    assert not is_strict_ready(closed(a=deep))
    text = {"type": "string"}
    assert is_strict_ready(closed(a={**text, "enum": [str(n) for n in range(1_000)]}))
    assert not is_strict_ready(closed(a={**text, "enum": [str(n) for n in range(1_001)]}))
    assert is_strict_ready(closed(a={**text, "enum": ["x" * 100_000]}))
    assert not is_strict_ready(closed(a={**text, "enum": ["x" * 120_001]}))
    assert is_strict_ready(closed(**{f"p{n}": text for n in range(5_000)}))
    assert not is_strict_ready(closed(**{f"p{n}": text for n in range(5_001)}))
