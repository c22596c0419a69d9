"""Globs, compared with a slow and obvious matcher."""

from __future__ import annotations

from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from clawkit.globs import Glob


def _fits(pattern: str, text: str, *, path: bool) -> bool:
    """By trying everything."""

    @cache
    def fits(p: int, t: int) -> bool:
        if p == len(pattern):
            return t == len(text)
        if not path:
            if pattern[p] == "*":
                return any(fits(p + 1, end) for end in range(t, len(text) + 1))
        elif pattern.startswith("**", p):
            end = p
            while pattern[end : end + 1] == "*":
                end += 1
            if pattern[end : end + 1] == "/" and (p == 0 or pattern[p - 1] == "/"):
                stops = [at + 1 for at in range(t, len(text)) if text[at] == "/"]
                return any(fits(end + 1, stop) for stop in (t, *stops))
            return any(fits(end, stop) for stop in range(t, len(text) + 1))
        elif pattern[p] == "*":
            stop = text.find("/", t)
            ends = range(t, (stop if stop >= 0 else len(text)) + 1)
            return any(fits(p + 1, end) for end in ends)
        elif pattern[p] == "?":
            return t < len(text) and text[t] != "/" and fits(p + 1, t + 1)
        return t < len(text) and text[t] == pattern[p] and fits(p + 1, t + 1)

    return fits(0, 0)


@given(st.text("ab*?/", max_size=10), st.text("ab/", max_size=10), st.booleans())
def test_globs_match_the_same_texts_as_a_simple_matcher(
    pattern: str, text: str, path: bool
) -> None:
    assert Glob(pattern, path=path).match(text) == _fits(pattern, text, path=path)


def test_cases_of_paths() -> None:
    cases = [
        ("**/bin/*x", "/a/bin/b/bin/cx", True),
        ("/a/**/b*c/d", "/a/b/xc/bbc/d", True),
        ("/a/**b*c", "/a/b/c/b1c", True),
        ("**/a/**/*.py", "x/a/y.py", True),
        ("**/a/**/*.py", "x/ba/y.py", False),
        ("*", "a\nb", True),
        ("a.c", "abc", False),
    ]
    wrong = [case for case in cases if Glob(case[0], path=True).match(case[1]) is not case[2]]
    assert wrong == []


def test_many_wildcards_do_not_take_exponential_time() -> None:
    """By backtracking this would take years."""
    text = "/" + "a" * 4_000
    for pattern in ("/" + "*a" * 200 + "b", "**a" * 200 + "b", "/**/" * 100 + "*a" * 100 + "b"):
        assert not Glob(pattern, path=True).match(text)
        assert not Glob(pattern).match(text)
