"""Programs that only start another one, and shells that are given text."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any

import pytest
from tests.tables import table

from clawkit.approvals.launchers import Inner, Opaque, look_through
from clawkit.approvals.types import Arg


def args(command: str) -> tuple[Arg, ...]:
    """Words of a command; those with a star or question mark are patterns."""
    return tuple(Arg(word, glob="*" in word or "?" in word) for word in shlex.split(command))


def look(command: str, *names: str) -> str:
    """`ls` for a started program, `text ls` for shell text, a code in brackets, or ""."""
    argv = args(command)
    found = look_through(frozenset({argv[0].text.rpartition("/")[2], *names}), argv)
    match found:
        case Inner(index, is_text):
            words = " ".join(arg.text for arg in argv[index:])
            return f"text {words}" if is_text else words
        case Opaque(reason, code):
            assert reason
            assert not reason.endswith(".")
            return f"<{code}>"
    return ""


LOOKED_THROUGH: list[tuple[str, str]] = [
    ("env ls", "ls"),
    ("env -- ls -la", "ls -la"),
    ("env env ls", "env ls"),
    ("nice ls", "ls"),
    ("nice -n 5 ls", "ls"),
    ("nice -n5 ls -n", "ls -n"),
    ("nice -n -5 ls", "ls"),
    ("nice -n -- ls", "ls"),
    ("nice -n 1 -n 2 ls", "ls"),
    ("nice --adjustment=5 ls", "ls"),
    ("nice --adjustment 5 ls", "ls"),
    ("nice -- ls", "ls"),
    ("nice nice nice nice ls", "nice nice nice ls"),
    ("nice - ls", "- ls"),
    ("nohup ls", "ls"),
    ("nohup -- ls", "ls"),
    ("stdbuf -oL ls", "ls"),
    ("stdbuf -o L -e 0 -i0 ls", "ls"),
    ("stdbuf --output=L --error 0 ls", "ls"),
    ("timeout 5 ls", "ls"),
    ("timeout 0.5m ls", "ls"),
    ("timeout -s KILL 5 ls", "ls"),
    ("timeout -sKILL -k 3 -v 5 ls", "ls"),
    ("timeout -vk3 5 ls", "ls"),
    ("timeout -vs KILL 5 ls", "ls"),
    ("timeout --signal=9 --kill-after 3 --foreground --preserve-status --verbose 5 ls", "ls"),
    ("timeout -- 5 ls", "ls"),
    ("timeout 5 -x", "-x"),
    ("time ls", "ls"),
    ("time -p ls", "ls"),
    ("time -pqv -f %e ls", "ls"),
    ("time --format=%e --portability ls", "ls"),
    ("gtimeout 5 ls", "ls"),
    ("/usr/bin/nice -n 5 ls", "ls"),
    ("/bin/env ls", "ls"),
    ("command ls -v", "ls -v"),
    ("command -- ls", "ls"),
    ("exec ls", "ls"),
    ("nice ls *.py", "ls *.py"),
]


def test_a_wrapper_is_looked_through_to_what_it_starts() -> None:
    for command, inner in LOOKED_THROUGH:
        assert look(command) == inner


UNKNOWN = [
    "nice",
    "nice -n",
    "nice -n 5",
    "nice -x ls",
    "nice -19 ls",
    "nice -100 ls",
    "nice --5 ls",
    "nice -+5 ls",
    "nice --adj=5 ls",
    "nice --help",
    "nice -nx*",
    "nohup",
    "nohup --help",
    "nohup -p 1",
    "stdbuf -x ls",
    "stdbuf --out=L ls",
    "stdbuf -o",
    "stdbuf -o L",
    "timeout",
    "timeout 5",
    "timeout x ls",
    "timeout 5x ls",
    "timeout 1e3 ls",
    "timeout '٣' ls",
    "timeout -- ls 5",
    "timeout --unknown 5 ls",
    "timeout --sig=KILL 5 ls",
    "timeout --verbose=1 5 ls",
    "timeout -t 5 ls",
    "timeout -vt 5 ls",
    "timeout 5* ls",
    "timeout -s K* 5 ls",
    "timeout --signal K* 5 ls",
    "time -o out ls",
    "time -oout ls",
    "time -po out ls",
    "time -a ls",
    "time --output=out ls",
    "time --append ls",
    "time -V",
    "command",
    "command --",
    "command -p ls",
    "command -pv ls",
    "exec",
    "exec -a x ls",
    "exec -c ls",
    "exec -l ls",
    "flock /tmp/l ls",
    "flock a.txt -c 'touch x'",
    "flock 9",
    "env -i ls",
    "env - ls",
    "env -- - ls",
    "env -u X ls",
    "env -C / ls",
    "env --ignore-environment ls",
]


def test_a_wrapper_with_anything_unknown_is_in_doubt() -> None:
    for command in UNKNOWN:
        assert look(command) == "<blocked-wrapper>"


def _the_reason_has_a_code(command: str, code: str) -> None:
    assert look(command) == f"<{code}>"


def test_the_reason_has_a_code(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        ("env", "environment"),
        ("env --", "environment"),
        ("env A=1 ls", "assignment"),
        ("env -- A=1 ls", "assignment"),
        ("env =x ls", "assignment"),
        ("env A=1", "assignment"),
        ("env -S 'ls -la'", "blocked-wrapper"),
        ("env '-Sls -la'", "blocked-wrapper"),
        ("env --split-string='ls -la'", "blocked-wrapper"),
        ("env --s 'ls -la'", "blocked-wrapper"),
        ("env l*", "glob"),
        ("nohup ls*", "glob"),
        ("env *", "blocked-wrapper"),
        ("exec -", "blocked-wrapper"),
        ("command -- -x", "blocked-wrapper"),
        ("timeout 5 l?", "glob"),
        ("command l*", "glob"),
        ("exec ./ev*.sh", "glob"),
        ("exec -- ls", "blocked-wrapper"),
    ]
    for command, code in cases:
        with subtests.test(command=command, code=code):
            _the_reason_has_a_code(command, code)


@table("command", ["command -v ls", "command -V ls", "ls", "git status", "echo"])
def test_what_starts_nothing_else_is_an_ordinary_program(command: str) -> None:
    assert look(command) == ""


@pytest.mark.parametrize("command", ["command -v*", "command -?"])
def test_a_pattern_is_not_an_option_of_command(command: str) -> None:
    assert look(command) == "<blocked-wrapper>"


@table("shell", ["sh", "bash", "dash", "ash"])
def test_the_text_of_a_shell_is_found(shell: str) -> None:
    assert look(f"{shell} -c 'ls | wc'") == "text ls | wc"
    assert look(f"{shell} -c ''") == "text "
    assert look(f"{shell} s.sh a b") == ""
    assert look(f"/bin/{shell} ./s.sh *") == ""


SHELLS: list[tuple[str, str]] = [
    ("sh", "stdin"),
    ("bash /dev/stdin", "stdin"),
    ("bash /dev//fd/0", "stdin"),
    ("bash /proc/self/fd/0", "stdin"),
    ("bash ../../../dev/stdin", "stdin"),
    ("bash -c", "shell-options"),
    ("bash -c ls x", "shell-options"),
    ("bash -c -x", "shell-options"),
    ("bash -c +x", "shell-options"),
    ("bash -c -- ls", "shell-options"),
    ("bash -lc ls", "shell-options"),
    ("bash -ec ls", "shell-options"),
    ("bash -e -c ls", "shell-options"),
    ("bash -x s.sh", "shell-options"),
    ("bash -s", "shell-options"),
    ("bash -", "shell-options"),
    ("bash -- s.sh", "shell-options"),
    ("bash +x s.sh", "shell-options"),
    ("bash ''", "shell-options"),
    ("bash --rcfile rc.sh -i -c true", "shell-options"),
    ("sh -i -c ls", "shell-options"),
    ("bash *.sh", "glob"),
    ("bash -c *", "glob"),
    ("/bin/sh -c ls", "blocked-wrapper"),
    ("./sh -c ls", "blocked-wrapper"),
    ("zsh -c ls", "shell"),
    ("ksh s.sh", "shell"),
    ("fish", "shell"),
    ("pwsh -Command ls", "shell"),
    ("rbash -c ls", "shell"),
    ("tcsh -c ls", "shell"),
    ("ksh93 -c ls", "shell"),
    ("cmd.exe /c dir", "shell"),
]


def test_any_other_call_of_a_shell_is_in_doubt() -> None:
    for command, code in SHELLS:
        assert look(command) == f"<{code}>"


BY_NAMES: list[tuple[str, list[str], str]] = [
    ("sh -c ls", ["dash"], "text ls"),
    ("sh -c ls", ["bash"], "text ls"),
    ("sh -c ls", ["busybox"], "text ls"),
    ("sh -c ls", ["evil"], "<blocked-wrapper>"),
    ("ls -c x", ["bash"], "<blocked-wrapper>"),
    ("ls x.sh", ["bash"], ""),
    ("ls", ["bash"], "<stdin>"),
    ("rbash -c ls", ["bash"], "<blocked-wrapper>"),
    ("nice ls", ["bash"], "<blocked-wrapper>"),
    ("nice ls", ["sudo"], "<blocked-wrapper>"),
    ("nice ls", ["evil"], "<blocked-wrapper>"),
    ("nice ls", ["", "nice"], "ls"),
    ("x ls", ["nice"], "<blocked-wrapper>"),
    ("x ls", ["sudo"], "<blocked-wrapper>"),
    ("x ls", ["xargs"], "<carrier>"),
    ("x host ls", ["ssh"], "<remote>"),
    ("nice ls", ["coreutils"], "ls"),
    ("timeout 5 ls", ["busybox"], "ls"),
    ("timeout -s KILL 5 ls", ["busybox"], "<blocked-wrapper>"),
    ("nice -n 5 ls", ["coreutils"], "<blocked-wrapper>"),
    ("ls -la", ["coreutils"], ""),
    ("ls -la", ["busybox"], ""),
    ("vi x", ["busybox"], ""),
    ("xargs ls", ["busybox"], "<carrier>"),
    ("su x", ["busybox"], "<blocked-wrapper>"),
    ("busybox ls", [], "<carrier>"),
    ("busybox sh -c ls", [], "<carrier>"),
    ("busybox.static ls", [], "<carrier>"),
    ("busybox-x ls", ["busybox"], "<carrier>"),
    ("toybox ls", [], "<carrier>"),
    ("coreutils --coreutils-prog=timeout 5 ls", [], "<carrier>"),
    ("x --coreutils-prog=timeout 5 ls", ["coreutils"], "<carrier>"),
    ("./nice ls", [], "<blocked-wrapper>"),
    ("/tmp/stdbuf -oL ls", ["stdbuf"], "<blocked-wrapper>"),
    ("/usr/bin/../../tmp/nice ls", [], "<blocked-wrapper>"),
    ("/usr/bin/command ls", [], "<blocked-wrapper>"),
    ("/usr/bin/exec ls", [], "<blocked-wrapper>"),
    ("Nice ls", [], ""),
    ("nice\u200b ls", [], ""),
    ("nice2 ls", [], ""),
]


def test_every_name_of_a_program_counts() -> None:
    for command, names, expected in BY_NAMES:
        assert look(command, *names) == expected


def test_the_typed_name_counts_even_when_it_is_not_among_the_names() -> None:
    assert look_through(frozenset(), args("timeout 5 ls")) == Inner(2)
    assert isinstance(look_through(frozenset({"ls"}), args("/opt/sudo ls")), Opaque)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("nice " * 12_000 + "ls", Inner(1)),
        ("timeout " + "-v " * 20_000 + "5 ls", Inner(20_002)),
        ("timeout -" + "v" * 60_000 + " 5 ls", Inner(3)),
        ("x" * 64_000 + " ls", None),
        ("nice -n " + "1" * 64_000 + " ls", Inner(3)),
    ],
)
def test_a_huge_call_is_read_like_a_small_one(command: str, expected: Inner | None) -> None:
    assert look_through(frozenset(), args(command)) == expected
