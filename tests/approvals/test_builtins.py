"""What the shell does itself, and which variables a command may set."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from typing import Any

import pytest
from tests.tables import table

from clawkit.approvals.shell_words import RESERVED
from clawkit.approvals.simple_command import (
    BUILTINS,
    check_builtin,
    check_name,
    read_cd,
    read_exports,
)
from clawkit.approvals.types import Arg, Doubt

STAR = Arg("*", glob=True, at=7)


def args(*texts: str | Arg) -> list[Arg]:
    return [text if isinstance(text, Arg) else Arg(text) for text in texts]


@pytest.mark.parametrize("option", ["-b", "-k"])
def test_every_builtin_and_keyword_of_bash_is_known(option: str) -> None:
    names = subprocess.run(
        ["bash", "--norc", "-c", f"compgen {option}"], capture_output=True, text=True, check=True
    )
    assert set(names.stdout.split()) <= (BUILTINS if option == "-b" else RESERVED)


FINE = [
    [":"],
    [":", "anything", "-v", STAR],
    ["true", STAR],
    ["false"],
    ["echo", "-e", r"\x41", "a[$(x)]", STAR],
    ["pwd"],
    ["pwd", "-P"],
    ["pwd", "-L", "-P"],
    ["exit"],
    ["exit", "0"],
    ["exit", "9"],
    ["exit", "77"],
    ["exit", "199"],
    ["exit", "255"],
    ["set", "-e"],
    ["set", "+e"],
    ["set", "-eu"],
    ["set", "-euo", "pipefail"],
    ["set", "-e", "-u", "-o", "pipefail", "+o", "errexit", "-o", "nounset"],
    ["command", "-v", "git"],
    ["command", "-v", "git", "a[$(x)]"],
    ["printf", "hello"],
    ["printf", "--", "-v"],
    ["printf", "%s\n", "a", "b", "-v"],
    ["printf", "%%%-10.3s|%05d|%x\n", "text", "12", "0xff"],
    ["printf", "%d %s\n", "1", "a", "-2", "b", ""],
    ["printf", "%q %b %c %.2f", "a b", r"\n", "x", "3.14"],
    ["printf", "no conversion", "a[$(x)]"],
    ["test"],
    ["test", "x"],
    ["test", "!"],
    ["test", "-f", "a[0]"],
    ["test", "!", "x"],
    ["test", "!", "-d", "x"],
    ["test", "!", "a", "=", "b"],
    ["test", "!", "=", "x"],
    ["test", "a", "-nt", "b"],
    ["test", "1", "-lt", "-20"],
    ["[", "-n", "x", "]"],
    ["[", "x", "==", "y", "]"],
    ["[", "]"],
]


def _builtins_that_only_show_or_compare_are_understood(words: list[str | Arg]) -> None:
    check_builtin(str(words[0]), args(*words[1:]), 0)


def test_builtins_that_only_show_or_compare_are_understood(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = FINE
    for words in cases:
        with subtests.test(words=words):
            _builtins_that_only_show_or_compare_are_understood(words)


DOUBTFUL = [
    *([name, "x"] for name in sorted(BUILTINS - {":", "true", "false", "echo", "test", "printf"})),
    *([name] for name in sorted(RESERVED)),
    ["pwd", "x"],
    ["pwd", STAR],
    ["exit", "256"],
    ["exit", "-1"],
    ["exit", "a[$(x)]"],
    ["exit", "1", "2"],
    ["exit", ""],
    ["exit", "08"],
    ["exit", STAR],
    ["set"],
    ["set", ""],
    ["set", "-"],
    ["set", "--"],
    ["set", "-x"],
    ["set", "-ex"],
    ["set", "-o"],
    ["set", "-eo"],
    ["set", "-o", "posix"],
    ["set", "-oe", "pipefail"],
    ["set", "-e", "x"],
    ["set", STAR],
    ["command"],
    ["command", "-v"],
    ["command", "-p", "ls"],
    ["command", "-v", "-p"],
    ["command", "-v", STAR],
    ["printf"],
    ["printf", "--"],
    ["printf", "-v", "a[$(x)]", "y"],
    ["printf", "-va[$(x)]", "y"],
    ["printf", "%n", "a[$(x)]"],
    ["printf", "%s%n", "x", "a[$(x)]"],
    ["printf", "%*d", "5", "5"],
    ["printf", "%.*f", "5", "5"],
    ["printf", "%(%Y)T", "-1"],
    ["printf", "%"],
    ["printf", "%99999d", "1"],
    ["printf", "%ld", "1"],
    ["printf", "%d", "a[$(x)]"],
    ["printf", "%s %d", "a", "1", "b", "c"],
    ["printf", STAR],
    ["printf", "%s", STAR],
    ["test", "-v", "a[$(x)]"],
    ["test", "-v"],
    ["test", "-R", "x"],
    ["test", "!", "-v", "x"],
    ["test", "-n", "x", "-a", "-v", "x"],
    ["test", "x", "-o", "y"],
    ["test", "(", "x", ")"],
    ["test", "-o", "x"],
    ["test", "a", "-eq", "1"],
    ["test", "1", "-eq", "a[$(x)]"],
    ["test", "x", "y"],
    ["test", "x", "=~", "y"],
    ["test", "x", "y", "=", "z"],
    ["test", "!", "!", "x", "=", "y"],
    ["test", STAR],
    ["[", "x"],
    ["["],
    ["[", STAR, "]"],
    ["[", "x", Arg("]", glob=True)],
    ["[", "-v", "x", "]"],
]


def _builtins_that_evaluate_or_change_the_shell_are_in_doubt(words: list[str | Arg]) -> None:
    with pytest.raises(Doubt) as caught:
        check_builtin(str(words[0]), args(*words[1:]), 3)
    assert caught.value.code == "builtin"
    assert caught.value.reason


def test_builtins_that_evaluate_or_change_the_shell_are_in_doubt(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = DOUBTFUL
    for words in cases:
        with subtests.test(words=words):
            _builtins_that_evaluate_or_change_the_shell_are_in_doubt(words)


def test_the_doubt_points_at_the_pattern() -> None:
    with pytest.raises(Doubt) as caught:
        check_builtin("test", args("-f", STAR), 3)
    assert caught.value.at == 7


@table(("words", "target"), [(["src"], "src"), (["--", "src"], "src"), (["--", "-x"], "-x")])
def test_cd_takes_one_directory(words: list[str], target: str) -> None:
    assert read_cd(args(*words), 0).text == target


@table("words", [[], [""], ["-"], ["--", "-"], ["--"], ["-P", "x"], ["a", "b"], [STAR], ["--", ""]])
def test_any_other_cd_is_in_doubt(words: list[str | Arg]) -> None:
    with pytest.raises(Doubt, match="cd"):
        read_cd(args(*words), 0)


def test_export_sets_variables() -> None:
    assert read_exports(args("A=1", "B=x=y z", "C="), 0) == [("A", "1"), ("B", "x=y z"), ("C", "")]


@table("words", [[], ["A"], ["-n", "A"], ["-p"], ["A=1", "B"], ["A=~/x"], ["A=x:~"], [STAR]])
def test_any_other_export_is_in_doubt(words: list[str | Arg]) -> None:
    with pytest.raises(Doubt) as caught:
        read_exports(args(*words), 0)
    assert caught.value.code == "builtin"


@table(
    ("name", "value"),
    [
        ("FOO", "anything $(x)"),
        ("_x1", ""),
        ("DEBUG", "1"),
        ("LANG", "C"),
        ("LANG", ""),
        ("LC_ALL", "C.UTF-8"),
        ("LC_ALL", "POSIX"),
        ("LC_TIME", "de_DE.utf8"),
        ("LC_TIME", "de_DE.UTF-8@euro"),
    ],
)
def test_ordinary_variables_may_be_set_for_a_program(name: str, value: str) -> None:
    check_name(name, value, 0, in_shell=False)


def _variables_that_steer_a_shell_or_programs_may_not_be_set(name: str, value: str) -> None:
    for in_shell in (False, True):
        with pytest.raises(Doubt) as caught:
            check_name(name, value, 5, in_shell=in_shell)
        assert (caught.value.code, caught.value.at) == ("assignment", 5)


def test_variables_that_steer_a_shell_or_programs_may_not_be_set(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        ("", "x"),
        ("1A", "x"),
        ("A B", "x"),
        ("A\n", "x"),
        ("Ä", "x"),
        ("a[0]", "x"),
        ("PATH", "/tmp"),
        ("Path", "/tmp"),
        ("HOME", "/tmp"),
        ("IFS", "x"),
        ("BASH_ENV", "x"),
        ("BASHOPTS", "x"),
        ("HISTFILE", "x"),
        ("EPOCHSECONDS", "1"),
        ("PS4", "$(x)"),
        ("PROMPT_COMMAND", "x"),
        ("TMPDIR", "x"),
        ("CDPATH", "x"),
        ("_", "x"),
        ("LD_PRELOAD", "x"),
        ("GIT_SSH_COMMAND", "x"),
        ("EDITOR", "x"),
        ("XDG_CONFIG_HOME", "x"),
        ("PYTHONPATH", "x"),
        ("LC_ALL", "ja_JP.SJIS"),
        ("LC_ALL", "de_DE"),
        ("LC_ALL", "../../x"),
        ("LANG", "C\n"),
        ("LANGUAGE", "de:en"),
    ]
    for name, value in cases:
        with subtests.test(name=name, value=value):
            _variables_that_steer_a_shell_or_programs_may_not_be_set(name, value)


def test_the_language_of_the_shell_itself_stays() -> None:
    with pytest.raises(Doubt, match="LANG"):
        check_name("LANG", "C", 0, in_shell=True)
    check_name("FOO", "x", 0, in_shell=True)
