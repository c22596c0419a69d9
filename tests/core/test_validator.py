"""Patterns that operators write."""

from __future__ import annotations

import pytest

from clawkit.core.tool import make_pattern
from clawkit.errors import SchemaError


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("pattern", ["(", "(?=x)", "(?<!x)y", r"(a)\1"])
def test_what_could_not_run_in_linear_time_is_refused(pattern: str) -> None:
    with pytest.raises(SchemaError, match="not a valid pattern"):
        make_pattern(pattern)


def test_patterns_that_blow_up_elsewhere_answer_at_once() -> None:
    assert make_pattern("^(a+)+$")("a" * 50_000 + "!") is False
