"""Patterns that operators write, and schemas that models do."""

from __future__ import annotations

import pytest
from tests.tables import table

from clawkit.core.tool import make_pattern, make_validator
from clawkit.errors import SchemaError, ToolInputError


@table(
    ("pattern", "text", "found"),
    [
        ("b+", "abc", True),
        ("^b", "abc", False),
        ("c$", "abc", True),
        ("c$", "abc\n", False),
        ("(?i:B)", "abc", True),
    ],
)
def test_a_pattern_searches(pattern: str, text: str, found: bool) -> None:
    assert make_pattern(pattern)(text) is found


@table("pattern", ["(", "(?=x)", "(?<!x)y", r"(a)\1"])
def test_patterns_that_need_more_than_linear_time_are_refused(pattern: str) -> None:
    with pytest.raises(SchemaError, match="not a valid pattern"):
        make_pattern(pattern)


def test_exponential_patterns_are_matched_in_linear_time() -> None:
    assert make_pattern("^(a+)+$")("a" * 50_000 + "!") is False


def test_a_schema_checks_values() -> None:
    check = make_validator({"type": "object", "required": ["a"]}, "outputSchema")
    assert check.is_valid({"a": 1})
    assert not check.is_valid({})


@table("schema", [{"type": 7}, {"pattern": "("}, {"$ref": "https://example.com/schema"}])
def test_an_unusable_schema_is_an_input_error(schema: dict[str, object]) -> None:
    with pytest.raises(ToolInputError, match="outputSchema is not a usable JSON Schema: ") as error:
        make_validator(schema, "outputSchema")
    assert "\n" not in str(error.value)
