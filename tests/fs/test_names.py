"""File names that look like another one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clawkit.errors import NotFoundError
from clawkit.fs.roots import Roots, alike_names, fold_name


def test_names_that_read_the_same_are_alike(subtests: pytest.Subtests) -> None:
    for one, other in [
        ("a\u00a0b", "a b"),
        ("Screenshot 9.41\u202fPM.png", "Screenshot 9.41 PM.png"),
        ("a\u2009\u3000b", "a  b"),
        ("caf\u00e9", "cafe\u0301"),
        ("Capture d\u2019e\u0301cran", "Capture d'\u00e9cran"),
        ("\u201cq\u201d", '"q"'),
        ("5\u2032 2\u2033", "5' 2\""),
        ("a\u2013b\u2014c\u2212d\u2011e", "a-b-c-d-e"),
        ("\uff21", "A"),
    ]:
        with subtests.test(one=one):
            assert fold_name(one) == fold_name(other)
            assert alike_names(one, [other, "unlike", one]) == [other]
            assert alike_names(other, [one, "unlike", other]) == [one]


def test_other_names_are_not(subtests: pytest.Subtests) -> None:
    for one, other in [
        ("a b", "a  b"),
        ("a", "A"),
        ("a ", "a"),
        ("a\u00a0", "a"),
        ("e", "\u00e9"),
        ("ab", "a\u200bb"),
        ("a", "\u0430"),
    ]:
        with subtests.test(one=one):
            assert alike_names(one, [other]) == []


def test_near_names_are_few_and_the_nearest_first(tmp_path: Path) -> None:
    def near(name: str) -> str:
        with pytest.raises(NotFoundError) as caught:
            Roots(str(tmp_path)).open(name, os.O_RDONLY)
        return str(caught.value).partition("similar names: ")[2]

    for name in ("reports", "report.txt", "deport.txt", "x", "report.text"):
        (tmp_path / name).touch()
    assert near("repotr.txt").startswith("'report.txt'")
    assert near("entirely") == ""
    for number in range(9):
        (tmp_path / f"report{number}.txt").touch()
    assert near("report_.txt").count("'") == 6


def test_names_that_are_not_text_can_be_compared() -> None:
    assert alike_names("a\udcff", ["a\udcff", "a\udcfe"]) == []
