"""Diffs: true to the texts, in the form that `patch` takes, and bounded."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from clawkit.fs.edit.diff import (
    MAX_CHANGED,
    MAX_CHARS,
    MAX_LINES,
    Diff,
    diff_texts,
    match_lines,
    split_lines,
)

NO_END = "\\ no newline at the end"
LINES = st.lists(st.sampled_from(["a", "b", "c", "", "d d"]), max_size=30)
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, LINES, st.sampled_from(["", "\n"]))


def patch(before: str, diff: str) -> str:
    """What a strict reader of the diff makes of the old text."""
    old, new, at = split_lines(before), list[str](), 0
    lines = diff.split("\n") if diff else []
    for number, line in enumerate(lines):
        unended = lines[number + 1 : number + 2] == [NO_END]
        if head := re.fullmatch(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", line):
            start = int(head[1]) - (head[2] != "0")
            new += old[at:start]
            at = start
            assert len(new) == int(head[3]) - (head[4] != "0")
        elif line != NO_END:
            text = line[1:] + ("" if unended else "\n")
            if line[0] in " -":
                assert old[at] == text
                at += 1
            if line[0] in " +":
                new.append(text)
    return "".join((*new, *old[at:]))


@given(TEXTS, TEXTS)
def test_applying_a_diff_gives_the_new_text(before: str, after: str) -> None:
    diff = diff_texts(before, after)
    assert patch(before, diff.text) == after
    assert (diff.first_line == 0) == (before == after)


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_only_what_lies_between_the_common_ends_is_compared(
    head: str, tail: str, old: str, new: str
) -> None:
    before, after = f"{head}{old}{tail}", f"{head}{new}{tail}"
    assert patch(before, diff_texts(before, after).text) == after


def test_a_hunk_has_three_lines_of_context_and_its_numbers() -> None:
    before = "".join(f"{n}\n" for n in range(1, 21))
    after = before.replace("10\n", "ten\nand more\n")
    assert diff_texts(before, after) == Diff(
        "@@ -7,7 +7,8 @@\n 7\n 8\n 9\n-10\n+ten\n+and more\n 11\n 12\n 13", first_line=10
    )


def test_distant_changes_are_separate_hunks() -> None:
    before = "".join(f"{n}\n" for n in range(100))
    after = before.replace("10\n", "x\n").replace("80\n", "y\n")
    assert diff_texts(before, after).text.count("@@ -") == 2


def test_a_missing_line_end_is_marked() -> None:
    assert diff_texts("a", "a\n").text == f"@@ -1 +1 @@\n-a\n{NO_END}\n+a"


def test_line_ends_are_not_shown_unless_they_are_mixed() -> None:
    assert diff_texts("a\r\nb\r\n", "a\r\nc\r\n").text == "@@ -1,2 +1,2 @@\n a\n-b\n+c"
    assert "+a\r" in diff_texts("a\nb\n", "a\r\nb\n").text


def test_moved_lines_are_anchored() -> None:
    old = ["}", "first", "}", "second", "}"]
    new = ["}", "second", "}", "first", "}"]
    kept = [line for a, _, length in match_lines(old, new) for line in old[a : a + length]]
    assert "first" in kept or "second" in kept


@table(
    ("before", "after", "reason"),
    [
        ("x" * MAX_CHARS, "y", "too much"),
        ("a\n" * MAX_LINES, "b\n", "too much"),
        ("a\0b", "c", "binary"),
        ("a\n", "".join(f"{n}\n" for n in range(MAX_CHANGED + 1)), "too much"),
        ("a\n", "b" * 200_000, "too long"),
    ],
)
def test_a_diff_that_would_be_of_no_use_is_left_out(before: str, after: str, reason: str) -> None:
    diff = diff_texts(before, after)
    assert diff.text == ""
    assert reason in diff.left_out


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("a\n" + "x" * 200_000, "a\n" + "x" * 200_000 + "y", "too long"),
        ("a\n" + "x\na" * 10_000, "a\n" + "x\nb" * 10_000, "too much"),
    ],
)
def test_what_is_not_shown_is_placed(before: str, after: str, reason: str) -> None:
    diff = diff_texts(before, after)
    assert (diff.first_line, diff.text) == (2 + (reason == "too much"), "")
    assert reason in diff.left_out


def test_a_large_file_with_a_small_change_is_compared() -> None:
    before = "".join(f"{n}\n" for n in range(MAX_CHARS))
    diff = diff_texts(before, before.replace("\n70000\n", "\nseventy\n"))
    assert diff.text.startswith("@@ -69998,7 +69998,7 @@\n 69997\n")
    assert diff.first_line == 70_001


def test_what_is_shown_goes_through_the_filter_before_it_gets_its_sign() -> None:
    seen: list[str] = []

    def show(text: str) -> str:
        seen.append(text)
        return text.replace("secret", "***")

    before, after = "a=secret\nb=1\n", "a=secret\nb=2\n"
    assert diff_texts(before, after, show).text == "@@ -1,2 +1,2 @@\n a=***\n-b=1\n+b=2"
    assert seen == [before, after]


def test_a_filter_that_loses_lines_is_used_line_by_line() -> None:
    diff = diff_texts("a\nb\n", "a\nc\n", lambda text: text.replace("a\nb\n", "both\n"))
    assert diff.text == "@@ -1,2 +1,2 @@\n a\n-b\n+c"


def test_private_keys_are_not_shown_in_part() -> None:
    key = "\n".join(f"MIIEpAIBAAKCAQEA{n:020}" for n in range(30))
    before = f"-----BEGIN RSA PRIVATE KEY-----\n{key}\n-----END RSA PRIVATE KEY-----\nnext\n"
    diff = diff_texts(before, before.replace("next", "last"))
    assert "-next\n+last" in diff.text
    assert "MII" not in diff.text
    within = diff_texts(before, before.replace("0025", "9999"))
    assert (within.text, within.first_line) == ("", 27)


@table("kinds", [1, 100, 10_000])
def test_hostile_lines_are_compared_in_bounded_time(kinds: int) -> None:
    rng = random.Random(kinds)
    old = [str(rng.randrange(kinds)) for _ in range(10_000)]
    new = [str(rng.randrange(kinds)) for _ in range(10_000)]
    a = b = 0
    for i, j, length in match_lines(old, new):
        assert i >= a
        assert j >= b
        assert old[i : i + length] == new[j : j + length]
        a, b = i + length, j + length
