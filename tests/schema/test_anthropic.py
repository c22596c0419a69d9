from __future__ import annotations

from typing import Any

import jsonschema_rs
from tests.tables import table

from clawkit.schema.choose import adapt

from .rules import anthropic_problems


def test_a_plain_schema_is_left_as_it_is() -> None:
    schema = {
        "type": "object",
        "properties": {
            "format": {"type": "string", "format": "date-time", "minLength": 1},
            "many": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
        },
        "required": ["format"],
        "additionalProperties": False,
    }
    assert adapt(schema, "anthropic") == schema


@table("name", ["filter[id]", "$top", "@odata.type", "a b", "ü", "x" * 65, "", "a/b"])
def test_a_name_the_api_refuses_is_spelt_as_a_pattern_that_means_the_same(name: str) -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: {"type": "string"}, "plain": {"type": "string"}},
        "required": [name],
        "additionalProperties": False,
    }
    form = adapt(schema, "anthropic")
    assert anthropic_problems(form) == []
    assert list(form["properties"]) == ["plain"]
    before, after = jsonschema_rs.validator_for(schema), jsonschema_rs.validator_for(form)
    for value in ({name: "x"}, {name: 1}, {"plain": "x"}, {name: "x", name + "x": "y"}, {}):
        assert after.is_valid(value) == before.is_valid(value), value


def test_conditions_below_the_root_stay() -> None:
    nested = {"oneOf": [{"type": "string"}, {"not": {"type": "number"}}], "if": {"minLength": 1}}
    schema = {"type": "object", "properties": {"x": nested}}
    assert adapt(schema, "anthropic")["properties"]["x"] == nested
