"""Patterns of programs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from clawkit.approvals.entries import (
    MAX_CHARS,
    find_entries,
    is_literal,
    is_same_name,
    literal_folder,
    matches_path,
    normalize_to,
)
from clawkit.approvals.types import AllowlistEntry, Arg, Program

HOME = "/home/[me]"


def program(resolved: str, real: str | None = None, name: str | None = None) -> Program:
    """A program, called by its bare name by default."""
    bare = resolved.rpartition("/")[2]
    return Program((Arg(bare if name is None else name),), resolved, real or resolved, "/ws")


def _a_pattern_with_a_slash_is_compared_with_the_whole_path(
    pattern: str, path: str, expected: bool
) -> None:
    for name in (None, path):
        assert matches_path(pattern, program(path, name=name), HOME) is expected


def test_a_pattern_with_a_slash_is_compared_with_the_whole_path(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        ("/usr/bin/git", "/usr/bin/git", True),
        ("/usr/bin/git", "/usr/bin/git-shell", False),
        ("/usr/bin/git", "/usr/bin/Git", False),
        ("/usr/bin/git", "/opt/usr/bin/git", False),
        ("/usr/bin/gi", "/usr/bin/git", False),
        ("/usr/bin/un*", "/usr/bin/uname", True),
        ("/usr/bin/un*", "/usr/bin/un", True),
        ("/usr/bin/l?", "/usr/bin/ls", True),
        ("/usr/bin/l?", "/usr/bin/l", False),
        ("/usr?bin/ls", "/usr/bin/ls", False),
        ("/usr/*/ls", "/usr/bin/ls", True),
        ("/usr/*/ls", "/usr/local/bin/ls", False),
        ("/usr/*", "/usr/bin/ls", False),
        ("/usr/**", "/usr/bin/ls", True),
        ("/usr/***", "/usr/bin/ls", True),
        ("/usr/**", "/usr2/bin/ls", False),
        ("**/ls", "/usr/bin/ls", True),
        ("**/ls", "/usr/bin/als", False),
        ("/usr/**/ls", "/usr/bin/ls", True),
        ("/usr/**/ls", "/usr/ls", True),
        ("/usr/**/ls", "/usr/local/bin/ls", True),
        ("/usr/**/ls", "/usr/binls", False),
        ("/usr/**/**/ls", "/usr/ls", True),
        ("/usr/**/**/ls", "/usr/a/b/c/ls", True),
        ("/usr/b**", "/usr/bin/ls", True),
        ("/**/b*/l?", "/usr/bin/ls", True),
        ("/usr/bin/[", "/usr/bin/[", True),
        ("/usr/bin/[a-z]", "/usr/bin/l", False),
        ("/usr/bin/a.b", "/usr/bin/axb", False),
        ("~/bin/x", f"{HOME}/bin/x", True),
        ("~/bin/*", f"{HOME}/bin/x", True),
        ("~/bin/*", "/home/m/bin/x", False),
        ("~other/bin/x", f"{HOME}/bin/x", False),
        ("~", HOME, True),
        ("usr/bin/git", "/usr/bin/git", False),
        ("bin/*", "/usr/bin/git", False),
        ("./git", "/ws/git", False),
        ("*/git", "/git", False),
        ("/usr/bin/../bin/git", "/usr/bin/git", False),
        ("", "/usr/bin/git", False),
    ]
    for pattern, path, expected in cases:
        with subtests.test(pattern=pattern, path=path, expected=expected):
            _a_pattern_with_a_slash_is_compared_with_the_whole_path(pattern, path, expected)


def _a_pattern_without_one_is_compared_with_the_name_looked_up_in_path(
    pattern: str, expected: bool
) -> None:
    assert matches_path(pattern, program("/usr/bin/npm"), HOME) is expected
    assert not matches_path(pattern, program("/ws/bin/npm", name="bin/npm"), HOME)
    assert not matches_path(pattern, program("/usr/bin/npm", name="/usr/bin/npm"), HOME)


def test_a_pattern_without_one_is_compared_with_the_name_looked_up_in_path(
    subtests: pytest.Subtests,
) -> None:
    cases: Iterable[Any] = [
        *((each, True) for each in ("npm", "n*", "?pm", "**", "npm*")),
        *((each, False) for each in ("NPM", "np", "pnpm", "?npm", "n\\pm")),
    ]
    for pattern, expected in cases:
        with subtests.test(pattern=pattern, expected=expected):
            _a_pattern_without_one_is_compared_with_the_name_looked_up_in_path(pattern, expected)


def test_a_star_means_every_program_that_is_there() -> None:
    assert matches_path("*", program("/usr/bin/npm"), HOME)
    assert matches_path("*", program("/ws/x", name="./x"), HOME)
    assert not matches_path("*", program("", name="nothing"), HOME)
    assert not matches_path("**/*", program("", name="nothing"), HOME)


@table(
    ("pattern", "resolved", "real", "expected"),
    [
        ("/usr/bin/python3", "/usr/bin/python3", "/usr/bin/python3.11", True),
        ("/usr/bin/python3.11", "/usr/bin/python3", "/usr/bin/python3.11", True),
        ("/usr/bin/python3.11", "/usr/bin/python", "/usr/bin/python3.11", True),
        ("/usr/bin/gcc-12", "/usr/bin/gcc", "/usr/bin/gcc-12", True),
        ("/usr/bin/git", "/ws/git", "/usr/bin/git", True),
        ("/usr/bin/git", "/ws/mygit", "/usr/bin/git", False),
        ("/usr/bin/busybox", "/usr/bin/ls", "/usr/bin/busybox", False),
        ("/usr/bin/ls", "/usr/bin/ls", "/usr/bin/busybox", True),
        ("/bin/*", "/ws/anything", "/bin/dash", False),
        ("/opt/2", "/ws/1", "/opt/2", False),
    ],
)
def test_a_link_is_its_target_only_if_it_has_the_same_name(
    pattern: str, resolved: str, real: str, expected: bool
) -> None:
    assert matches_path(pattern, program(resolved, real, name=resolved), HOME) is expected


@table(
    ("name", "other", "expected"),
    [
        ("/a/python3", "/b/python3.11", True),
        ("/a/lua", "/b/lua5.4", True),
        ("/a/ls", "/b/ls", True),
        ("/a/7", "/b/7", True),
        ("/a/7", "/b/8", False),
        ("/a/sh", "/b/dash", False),
        ("/a/bunzip2", "/b/bzip2", False),
        ("/a/git", "", False),
    ],
)
def test_names_are_alike_but_for_a_version(name: str, other: str, expected: bool) -> None:
    assert is_same_name(name, other) is expected


def test_dots_in_the_path_of_a_command_do_not_matter() -> None:
    for path in ("/usr/bin/./git", "/usr/./bin/git", "//usr/bin/git", "/usr//bin/git"):
        assert matches_path("/usr/bin/git", program(path, "/usr/bin/git", name=path), HOME)


def test_two_dots_behind_a_link_lead_elsewhere(tmp_path: Path) -> None:
    for folder in ("a/bin", "b/deep"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "a/x").touch()
    (tmp_path / "b/x").touch()
    (tmp_path / "a/link").symlink_to(tmp_path / "b/deep")
    plain = f"{tmp_path}/a/bin/../x"
    assert normalize_to(plain, f"{tmp_path}/a/x") == f"{tmp_path}/a/x"
    crooked = program(f"{tmp_path}/a/link/../x", f"{tmp_path}/b/x", name="./link/../x")
    assert normalize_to(crooked.resolved, crooked.real) == ""
    assert not matches_path(f"{tmp_path}/a/x", crooked, HOME)
    assert not matches_path(f"{tmp_path}/a/**", crooked, HOME)
    assert matches_path(f"{tmp_path}/b/*", crooked, HOME)


def test_without_a_home_directory_nothing_is_below_it() -> None:
    assert not matches_path("~/x", program("/x"), "")
    assert not matches_path("~/x", program("/home/x"), "home")
    assert matches_path("~/x", program("/x"), "/")


@table(
    ("pattern", "folder"),
    [
        ("/ws/tools/*", "/ws/tools"),
        ("/ws/to*/x", "/ws"),
        ("/ws/?", "/ws"),
        ("/ws/x", "/ws"),
        ("~/bin/*", f"{HOME}/bin"),
        ("/*", ""),
        ("**/x", ""),
        ("x", ""),
        ("ws/x", ""),
    ],
)
def test_the_directory_that_a_pattern_names(pattern: str, folder: str) -> None:
    assert literal_folder(pattern, HOME) == folder


def test_only_a_path_without_wildcards_means_one_file() -> None:
    assert is_literal("/usr/bin/git")
    assert is_literal("~/x")
    assert not any(map(is_literal, ("git", "*", "/usr/bin/g*", "/usr/bin/gi?", "**/git")))


def test_a_text_too_long_for_a_path_matches_nothing() -> None:
    long = "/" + "a" * MAX_CHARS
    assert not matches_path(f"{long}*", program(long), HOME)
    assert not matches_path("/**", program(long), HOME)
    assert matches_path("/**", program(long[:-1]), HOME)


def test_many_stars_take_no_longer_than_the_path() -> None:
    for star in ("*", "**", "**/"):
        hostile = "/" + f"{star}a" * 1_000 + f"{star}b"
        assert not matches_path(hostile, program("/" + "a" * 4_000), HOME)
    assert matches_path("/" + "*a" * 1_000, program("/" + "a" * 4_000), HOME)


@given(st.text("/ab*?", max_size=12), st.text("/ab", max_size=12))
def test_wildcards_mean_what_a_regular_expression_says(pattern: str, path: str) -> None:
    pattern, path = f"/{pattern}", f"/{path}"
    # Directories in the middle may be none; other runs of stars are one.
    form = re.sub(r"(?<=/)\*{2,}/(?:\*{2,}/)*", "§", pattern)
    form = re.sub(r"\*{2,}", "¶", form)
    meaning = {"§": "(?:.*/)?", "¶": ".*", "*": "[^/]*", "?": "[^/]"}
    expected = re.fullmatch("".join(meaning.get(char, char) for char in form), path) is not None
    plain = normalize_to(path, path)
    if plain == path:
        assert matches_path(pattern, program(path), HOME) is expected


@table(
    ("pattern", "resolved", "is_meant"),
    [
        ("l*", "/usr/bin/ls", True),
        ("/usr/*/ls", "/usr/bin/ls", True),
        ("/usr/*/ls", "/usr/a/b/ls", False),
        ("/usr/**/ls", "/usr/a/b/ls", True),
        ("*x", "/usr/bin/ls", False),
        ("*", "/usr/bin/ls", True),
    ],
)
def test_entries_are_found_by_what_their_patterns_mean(
    pattern: str, resolved: str, is_meant: bool
) -> None:
    entries = (AllowlistEntry("other"), AllowlistEntry(pattern))
    found = find_entries(entries, program(resolved), HOME)
    assert found == ([entries[1]] if is_meant else [])


def test_entries_that_name_arguments_come_first_and_each_kind_in_its_order() -> None:
    patterns = ("**/git", "git", "/usr/bin/git", "*", "g?t", "/usr/*/git", "/usr/bin/*")
    entries = tuple(map(AllowlistEntry, patterns)) + tuple(
        AllowlistEntry(each, arg_pattern="x") for each in patterns
    )
    found = find_entries(entries, program("/usr/bin/git"), HOME)
    assert found == [*entries[len(patterns) :], *entries[: len(patterns)]]


@table(
    ("resolved", "real", "name"),
    [
        ("/usr/bin/git", "/usr/bin/git", "git"),
        ("/usr/bin/git", "/usr/bin/git", "/usr/bin/git"),
        ("/usr/bin/git", "/opt/git/git2", "git"),
        ("/usr/bin/git", "/opt/git/other", "git"),
        (f"{HOME}/bin/git", f"{HOME}/bin/git", "git"),
        ("", "", "git"),
    ],
)
def test_looking_entries_up_finds_what_comparing_all_of_them_does(
    resolved: str, real: str, name: str
) -> None:
    patterns = (
        *("*", "git", "gi", "", "~", "~/bin/git", "~/bin/*", "~/*/git", "bin/git", "/usr/bin/git"),
        *(
            "/usr/bin/gi",
            "/opt/git/git2",
            "/opt/**",
            "/usr/?/git",
            "/usr/*",
            "g*",
            "?it",
            "**/git?",
        ),
        *("**", "**/git", "/home/[me]/bin/git", "/home/?me?/bin/g*t"),
    )
    entries = tuple(map(AllowlistEntry, patterns))
    called = program(resolved, real, name)
    expected = [each for each in entries if matches_path(each.pattern, called, HOME)]
    assert find_entries(entries, called, HOME) == expected


def test_of_many_lists_each_is_taken_for_itself() -> None:
    lists = [(AllowlistEntry(f"/opt/{number}/*"),) for number in range(40)]
    for _ in range(2):
        for number, entries in enumerate(lists):
            assert find_entries(entries, program(f"/opt/{number}/x"), HOME) == list(entries)
            assert find_entries(entries, program("/opt/x/x"), HOME) == []


def test_a_name_that_is_not_text_fits_no_wildcard() -> None:
    odd = Program((Arg("/opt/\udcff"),), "/opt/\udcff", "/opt/\udcff", "/")
    assert not matches_path("/opt/*", odd, "/")
    assert matches_path("/opt/\udcff", odd, "/")
