"""File names that look like another one."""

from __future__ import annotations

import pytest

from clawkit.fs.roots import alike_names, fold_name, near_names


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a\u00a0b", "a b"),
        ("Screenshot 9.41\u202fPM.png", "Screenshot 9.41 PM.png"),
        ("a\u2009\u3000b", "a  b"),
        ("caf\u00e9", "cafe\u0301"),
        ("Capture d\u2019e\u0301cran", "Capture d'\u00e9cran"),
        ("\u201cq\u201d", '"q"'),
        ("5\u2032 2\u2033", "5' 2\""),
        ("a\u2013b\u2014c\u2212d\u2011e", "a-b-c-d-e"),
        ("\uff21", "A"),
    ],
)
def test_names_that_read_the_same_are_alike(one: str, other: str) -> None:
    assert fold_name(one) == fold_name(other)
    assert alike_names(one, [other, "unlike", one]) == [other]
    assert alike_names(other, [one, "unlike", other]) == [one]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a b", "a  b"),
        ("a", "A"),
        ("a ", "a"),
        ("a\u00a0", "a"),
        ("e", "\u00e9"),
        ("ab", "a\u200bb"),
        ("a", "\u0430"),
    ],
)
def test_other_names_are_not(one: str, other: str) -> None:
    assert alike_names(one, [other]) == []


def test_near_names_are_few_and_the_nearest_first() -> None:
    names = ["reports", "report.txt", "report1.txt", "deport.txt", "x", "report.text"]
    assert near_names("repotr.txt", names)[0] == "report.txt"
    assert len(near_names("report.txt", [f"report{n}.txt" for n in range(9)])) == 3
    assert near_names("entirely", ["different"]) == []


def test_names_that_are_not_text_can_be_compared() -> None:
    assert alike_names("a\udcff", ["a\udcff", "a\udcfe"]) == []
