"""What is understood is what bash understands, and shfmt agrees."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.approvals.shell.cases import SHAPES, WORDS
from tests.approvals.shell.second import (
    ask_bash,
    ask_shfmt,
    foresee,
    like_shfmt,
    need_shfmt,
)

from clawkit.approvals.shell_parse import parse
from clawkit.approvals.shell_words import CommandList
from clawkit.approvals.types import Doubt

pytestmark = pytest.mark.untraced
ACCEPTED = [text for text, _ in (*WORDS, *SHAPES)]
# As pieces, they meet more often where they mean something.
PIECES = (
    *("a", "b1", "p", "'x y'", '"d e"', '""', "''", " ", "  ", "\t", "\n", ";", "; ", "|", " | "),
    *(
        "|&",
        "&&",
        " && ",
        "||",
        "(",
        ")",
        "{ ",
        "; }",
        " }",
        "if ",
        "; then ",
        "; elif ",
        "; else ",
    ),
    *("; fi", "for x in ", "; do ", "; done", "! ", "!", "time ", "time -p ", "-p", "\\\n", "\\"),
    *("#", " # c\n", "$x", "${x}", "$", "*", "?", "[a]", "[", "]", "~", "~/a", "=", "A=1 ", "A="),
    *("+=", "2", ">", "<", ">>", " >f ", " <<'E'", "\nE\n", "b\nE\n", "\tE\n", ' <<-"E"', " 2>&1"),
    *(">&", "1", "0", " &>f", " <<<", "-", "{a,b}", "{}", "@{1}", ",", "..", "é", "$'a\\n'", "$'"),
    *('"', "'", "`", "$(", "&", ":", "/", "%", "fi", "then", "do", "done", "in", "{", "}", "\\'"),
    *('\\"', "\\$", "\\ ", "^", "\\a", "$_", "日本", "\u00a0", "time", "[[", "]]", "((", "))"),
)
NASTY = (
    *"ab 2\t\n;|&(){}<>'\"\\$`*?[]~=!#,.:-+@%^/éE",
    *("\\\n", "$x", "${", "$(", "$'", "<<", "'E'", "fi", "do", "{a,b}", "..", "&>", ">&", "2>"),
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "empty").mkdir()
    return tmp_path


def understood(texts: Iterable[str]) -> list[tuple[str, CommandList]]:
    found = []
    for text in texts:
        with contextlib.suppress(Doubt):
            found.append((text, parse(text)))
    return found


def check_with_bash(texts: Iterable[str], place: Path, **env: str) -> int:
    """How many of the texts could also be run."""
    found = [(text, foresee(script)) for text, script in understood(texts)]
    told = ask_bash([(text, calls is not None) for text, calls in found], place, **env)
    for (text, calls), (ok, real) in zip(found, told, strict=True):
        assert ok, f"bash does not read {text!r}"
        if calls is not None:
            assert (text, real.words) == (text, calls.words)
            assert (text, calls.bodies - real.bodies) == (text, calls.bodies - calls.bodies)
    return sum(calls is not None for _, calls in found)


def change(text: str, luck: random.Random) -> str:
    """Insert, remove or repeat a few characters."""
    for _ in range(luck.randint(1, 4)):
        at = luck.randint(0, len(text))
        match luck.choice("iird"):
            case "i":
                text = text[:at] + luck.choice(NASTY) + text[at:]
            case "r":
                text = text[:at] + text[at + luck.randint(1, 3) :]
            case _:
                to = luck.randint(0, len(text))
                text = text[:to] + text[at : at + luck.randint(1, 8)] + text[to:]
    return text


def compose(luck: random.Random) -> str:
    return "".join(luck.choices(PIECES, k=luck.randint(1, 14)))


def test_bash_agrees_with_the_tables(place: Path) -> None:
    assert check_with_bash(ACCEPTED, place) > len(ACCEPTED) / 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BASHOPTS", "extglob:nullglob:failglob:globstar:dotglob"),
        ("BASH_COMPAT", "3.1"),
        ("LC_ALL", "C.UTF-8"),
        ("IFS", "ab"),
    ],
)
def test_variables_do_not_change_how_bash_reads(place: Path, name: str, value: str) -> None:
    assert check_with_bash(ACCEPTED, place, **{name: value})


def test_a_wrong_reading_would_be_seen(place: Path) -> None:
    (told,) = ask_bash([("a 'b'; c <<'E'\nd\nE", True)], place)
    assert told.ok
    assert set(told.calls.words) == {("a", "b"), ("c",)}
    assert told.calls.bodies[("c",), "d\n"] == 1
    told, other = ask_bash([("a; )", False), ("a;", True)], place)
    assert (told.ok, other.ok) == (False, True)


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers())
def test_bash_agrees_about_changed_commands(place: Path, seed: int) -> None:
    luck = random.Random(seed)
    texts = {change(luck.choice(ACCEPTED), luck) for _ in range(400)}
    assert check_with_bash(texts, place)


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers())
def test_bash_agrees_about_composed_commands(place: Path, seed: int) -> None:
    luck = random.Random(seed)
    assert check_with_bash({compose(luck) for _ in range(800)}, place)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.lists(st.sampled_from(NASTY), max_size=12).map("".join), min_size=20, max_size=40)
)
def test_bash_agrees_about_any_text(place: Path, texts: list[str]) -> None:
    check_with_bash([f"p {text}" for text in texts], place)


def check_with_shfmt(texts: Iterable[str]) -> None:
    found = understood(texts)
    # One run for all of them; the lines between keep them apart.
    text = "\n".join(text for text, _ in found)
    together = [each for text, script in found for each in like_shfmt(script, text)]
    if ask_shfmt(text) != together:
        for text, script in found:
            assert (text, ask_shfmt(text)) == (text, like_shfmt(script, text))
        raise AssertionError("shfmt reads the commands otherwise when they stand together")


def test_shfmt_agrees_with_the_tables() -> None:
    need_shfmt()
    check_with_shfmt(ACCEPTED)


@settings(max_examples=10, deadline=None)
@given(st.integers())
def test_shfmt_agrees_about_changed_commands(seed: int) -> None:
    need_shfmt()
    luck = random.Random(seed)
    check_with_shfmt(change(luck.choice(ACCEPTED), luck) for _ in range(200))


@settings(max_examples=10, deadline=None)
@given(st.integers())
def test_shfmt_agrees_about_composed_commands(seed: int) -> None:
    need_shfmt()
    luck = random.Random(seed)
    check_with_shfmt(compose(luck) for _ in range(400))
