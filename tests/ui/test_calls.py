"""Calls in a few words."""

from __future__ import annotations

from typing import Any

from tests.tables import table

from clawkit.call_summary import has_failed, summarize_params
from clawkit.ui.calls import (
    diff_rows,
    head_lines,
    more_of,
    outcome,
    plan_rows,
    tail_rows,
)
from clawkit.ui.paint import Paint

PAINT = Paint(colours=False)
PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n*** Add File: b.py\n+y\n*** End Patch"


@table(
    ("params", "words"),
    [
        ({"command": "git status", "workdir": "x"}, "git status"),
        ({"path": "a.txt", "limit": 3}, "a.txt"),
        ({"action": "poll", "sessionId": "brave-fox"}, "poll brave-fox"),
        ({"input": PATCH}, "a.py, b.py"),
        ({"input": "no patch"}, "no patch"),
        ({"plan": []}, ""),
        ({"task": "count them", "cleanup": "delete"}, "count them"),
        ({"task": "count them", "label": "counting"}, "counting: count them"),
        ({"count": 3, "deep": {"a": 1}}, 'count=3, deep={"a": 1}'),
        ({}, ""),
        (None, ""),
        ([1], ""),
        ('{"path": "a', '{"path": "a'),
        ({"command": "a\nb\x1b[2J"}, "a b [2J"),
    ],
)
def test_a_call_is_summarized_by_its_main_parameter(params: Any, words: str) -> None:
    assert summarize_params(params) == words


@table(
    ("event", "words", "failed"),
    [
        ({"isError": True, "error": "no such file"}, "no such file", True),
        ({"isError": True, "tool": "read", "error": "read: no path"}, "no path", True),
        ({"details": {"exitCode": 2}}, "exit code 2", True),
        ({"details": {"exitCode": 0}}, "", False),
        ({"details": {"status": "running"}}, "running in the background as ", False),
        ({"details": {"diff": "@@ -1 +1,2 @@\n-a\n+b\n+c\n"}}, "+2 -1", False),
        ({"details": "odd"}, "", False),
        ({}, "", False),
    ],
)  # fmt: skip
def test_the_outcome_of_a_call_is_shown_if_it_matters(
    event: dict[str, Any], words: str, failed: bool
) -> None:
    assert outcome(event) == words
    assert has_failed(event) == failed


def test_a_difference_is_coloured_and_cut() -> None:
    rows = list(diff_rows("@@ -1 +1 @@\n-a\n+b\n c\n" + "+x\n" * 40, PAINT, 6))
    assert [row.style for row in rows] == ["accent", "error", "good", "dim", "good", "good", "dim"]
    assert rows[-1].text == "  … 38 more lines"
    assert list(diff_rows("", PAINT)) == []


def test_a_plan_is_a_checklist() -> None:
    plan = [
        {"step": "one", "status": "completed"},
        {"step": "two", "status": "in_progress"},
        {"step": "three\nlines", "status": "odd"},
        "junk",
    ]
    assert [row.text for row in plan_rows(plan, PAINT)] == ["  ☑ one", "  ▸ two", "  ☐ three lines"]
    assert next(plan_rows(plan, Paint(encoding="ascii"))).text == "  [x] one"


def test_of_an_output_the_end_is_shown() -> None:
    assert [row.text for row in tail_rows("a\nb\nc\n", PAINT, 2)] == ["  …", "  b", "  c"]
    assert list(tail_rows(" \n", PAINT)) == []
    event = {"details": {"aggregated": "x\n"}}
    assert [row.text for row in more_of(event, PAINT)] == ["  x"]
    assert list(more_of({"details": {"plan": "odd"}}, PAINT)) == []


@table(
    ("text", "lines"),
    [
        ("one", ["one"]),
        ("a\nb\nc", ["a", "b", "c"]),
        ("a\nb\nc\nd", ["a", "b", "… 2 more lines"]),
        ("x\n" * 3_000, ["x", "x", "… 2,999 more lines"]),
        ("y" * 5_000, ["y" * 1_000 + "…"]),
    ],
)
def test_of_what_was_typed_the_beginning_is_shown(text: str, lines: list[str]) -> None:
    assert head_lines(text, PAINT, 2) == lines
