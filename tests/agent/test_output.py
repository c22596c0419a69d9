"""Answers of models that are data."""

from __future__ import annotations

import pytest

from clawkit.agent.output import read_output, schema_of, unfenced


def test_a_block_of_markdown_at_the_end_is_the_answer() -> None:
    for text, body in {
        " 1 ": "1",
        "```json\n1\n```": "1",
        "```JSON\n1```\n": "1",
        "Here:\n```\n[1]\n```": "[1]",
        '```\n{"a": "```"}\n```': '{"a": "```"}',
        '{"a": "```"}': '{"a": "```"}',
        '{"a": "```json\\n1\\n```"}': '{"a": "```json\\n1\\n```"}',
        "```\n1\n```\nDone.": "```\n1\n```\nDone.",
        "```": "```",
    }.items():
        assert unfenced(text) == body


def test_fences_without_end_take_no_time() -> None:
    for text in ("```\n" + "\n```" * 100_000 + "x", "```" + " " * 1_000_000, "`" * 1_000_001):
        with pytest.raises(ValueError, match=r"JSON|truncated"):
            read_output(dict, text)


@pytest.mark.parametrize("given", [3, complex])
def test_a_type_without_a_schema_is_named(given: object) -> None:
    with pytest.raises(TypeError, match=r"^output_type: .*(3|complex).* is not supported$"):
        schema_of(given)
