"""Regular expressions over arguments."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawkit.approvals.entries import (
    EXACT,
    MAX_REGEX_CHARS,
    arguments_match,
    hash_call,
    search_regex,
)
from clawkit.approvals.types import Arg, Program


def call(*arguments: str | Arg, cwd: str | None = "/srv/app") -> Program:
    args = (each if isinstance(each, Arg) else Arg(each) for each in arguments)
    return Program((Arg("x"), *args), "/usr/bin/x", "/usr/bin/x", cwd)


def _a_pattern_means_what_it_means_in_javascript(pattern: str, text: str, expected: bool) -> None:
    assert search_regex(pattern, text) is expected


def test_a_pattern_means_what_it_means_in_javascript(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        (r"^script\.py$", "script.py", True),
        (r"^script\.py$", "script.py\n", False),
        (r"^script\.py$", "scriptxpy", False),
        (r"^script\.py$", "evil.py\nscript.py", False),
        ("b+", "abbc", True),
        (r"^a{2,3}?$", "aaa", True),
        (r"^a{2}$", "aaa", False),
        (r"^(?:a|b)+$", "abab", True),
        (r"^(?<name>a)$", "a", True),
        (r"^\d+$", "12", True),
        (r"\d", "٣", False),
        (r"^\w$", "é", False),
        (r"^.$", "\r", False),
        (r"^.$", "\u2028", False),
        (r"^.$", "é", True),
        (r"\bé", "é", False),
        (r"\bcat\b", "a cat!", True),
        (r"a\Bb", "ab", True),
        (r"^[a^]$", "^", True),
        (r"[^^]", "^", False),
        (r"^[^/]+$", "a/b", False),
        (r"^[\d-]$", "-", True),
        (r"^[<\-&~ \]]+$", "<-&~ ]", True),
        (r"^\x41\u0042$", "AB", True),
        (r"^a\/b$", "a/b", True),
        (r"\$\{x\}", "${x}", True),
        ("}]", "}]", True),
        ("a", "\ud800", False),
        ("^(a+)+$", "a" * 5_000 + "b", False),
    ]
    for pattern, text, expected in cases:
        with subtests.test(pattern=pattern, text=text, expected=expected):
            _a_pattern_means_what_it_means_in_javascript(pattern, text, expected)


def _what_cannot_be_used_as_it_is_meant_is_not_used(pattern: str) -> None:
    assert search_regex(pattern, "a") is None
    assert search_regex(pattern, "") is None
    assert not arguments_match(pattern, call("a"))


def test_what_cannot_be_used_as_it_is_meant_is_not_used(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        *("((", ")", "a)", "^(a|b", "[a", "[]", "[^]", "[z-a]", "[a--z]", r"[\b]", r"[\q]"),
        *("[a&&b]", "[a~~b]", "[[a]]", r"\<a", r"\~", r"[\&]", r"\cJ"),
        *("(?=a)a", "(?!a)", "(?<=a)b", "(?<!a)b", r"(a)\1", r"(?<n>a)\k<n>"),
        *("(?i)a", "(?s).", "(?P<n>a)", "(?#x)", "(?", "(?<n>a)(?<n>b)"),
        *("*a", "+", "?", "a**", "a*+", "a{2}{3}", "^*a", "a|*", "(*a)", r"\b+"),
        *("a{,2}", "{", "{2}", "a{1,2", "a{99999}", "a{9999}{9999}", "(a{9999}){9999}"),
        *(r"\z", r"\A", r"\Z", r"\e", r"\p{L}", r"\u{41}", r"\x4", r"\c", r"\0", "a\\", r"\é"),
        *("\ud800", r"\ud800", "", "a" * (MAX_REGEX_CHARS + 1)),
    ]
    for pattern in cases:
        with subtests.test(pattern=pattern):
            _what_cannot_be_used_as_it_is_meant_is_not_used(pattern)


@given(st.text(r"ab.*+?|()[]^-\dw{}1, ", max_size=10), st.text("ab1-\n ", max_size=6))
def test_nothing_is_found_that_another_engine_would_not_find(pattern: str, text: str) -> None:
    found = search_regex(pattern, text)
    if found is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # brackets within brackets
            assert found is (re.search(pattern, text, re.ASCII) is not None)


def _arguments_are_joined_so_that_their_borders_are_certain(
    pattern: str, arguments: tuple[str, ...], expected: bool
) -> None:
    assert arguments_match(pattern, call(*arguments)) is expected


def test_arguments_are_joined_so_that_their_borders_are_certain(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        ("^a b$", ("a", "b"), True),
        ("^a b$", ("a b",), False),
        ("^a b$", ("a\tb",), False),
        (r"^a\nb$", ("a\nb",), False),
        ("^a b$", ("a", "b", "c"), False),
        ("b", ("a", "b", "c"), True),
        ("^$", (), True),
        ("^$", ("",), False),
        ("^a $", ("a", ""), False),
        ("^a\0b\0$", ("a", "b"), False),
        ("^a b\0$", ("a b",), False),
        ("^a b\0$", ("a", "b"), False),
        ("^a\0b\0$", ("a\0b",), False),
        ("\0", (), False),
        (r"^a\x00b\x00$", ("a", "b"), False),
    ]
    for pattern, arguments, expected in cases:
        with subtests.test(pattern=pattern, arguments=arguments, expected=expected):
            _arguments_are_joined_so_that_their_borders_are_certain(pattern, arguments, expected)


def test_a_pattern_of_file_names_never_fits() -> None:
    star = Arg("*.py", glob=True)
    assert not arguments_match(".*", call(star))
    assert not arguments_match(hash_call("/srv/app", [star]), call(star))
    assert arguments_match(".*", call("*.py"))


NOTHING = "f08be75af18c7ca28e17429c70a8f25441ea8d5aac38fc83822a78a6631752ad"
LIST_ALL = "18b69d7d3f854d8c2e2e967c5f943c2d1a70ae71e25fc96657e5f7424fdf491c"


def test_a_hash_is_for_one_call_in_one_directory() -> None:
    assert hash_call("/srv/app", []) == f"{EXACT}{NOTHING}"
    assert hash_call("/srv/app", [Arg("-la")]) == f"{EXACT}{LIST_ALL}"
    assert arguments_match(f"{EXACT}{LIST_ALL}", call("-la"))
    assert not arguments_match(f"{EXACT}{LIST_ALL}", call())
    assert not arguments_match(f"{EXACT}{LIST_ALL}", call("-l", "a"))
    assert not arguments_match(f"{EXACT}{LIST_ALL}", call("-la", cwd="/srv"))
    assert not arguments_match(f"{EXACT}{LIST_ALL}", call("-la", cwd=None))
    assert not arguments_match(f"{EXACT}{LIST_ALL.upper()}", call("-la"))


def test_other_hashes_fit_nothing() -> None:
    for prefix in ("sha256:argv:", "sha256:", "sha256:cwd-argv:v2:"):
        assert not arguments_match(f"{prefix}{LIST_ALL}", call("-la"))


@given(
    st.lists(st.text(max_size=3), max_size=3),
    st.lists(st.text(max_size=3), max_size=3),
    st.sampled_from(["/", "/a", "/a\0"]),
)
def test_two_calls_have_two_hashes(one: list[str], other: list[str], cwd: str) -> None:
    hashes = [hash_call(cwd, map(Arg, each)) for each in (one, other)]
    assert (hashes[0] == hashes[1]) is (one == other)
    assert hash_call("/b", map(Arg, one)) not in hashes


def test_half_a_character_has_a_hash_too() -> None:
    assert hash_call("/", [Arg("\ud800")]) != hash_call("/", [Arg("\ud801")])
