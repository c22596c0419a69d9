"""Programs that find and xargs start."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any

import pytest
from tests.tables import table

from clawkit.approvals.launchers import read_carried
from clawkit.approvals.types import Arg


def read(line: str) -> list[str] | None:
    """The outer and the inner call, patterns marked."""
    argv = tuple(
        Arg(each.removeprefix("glob:"), each.startswith("glob:")) for each in shlex.split(line)
    )
    found = read_carried(argv)
    if found is None:
        return None
    return [" ".join(f"<{arg.text}>" if arg.glob else arg.text for arg in call) for call in found]


@table(
    ("line", "outer", "inner"),
    [
        ("find . -exec cat {} ';'", "find .", "cat <./**>"),
        ("find -exec cat {} ';'", "find", "cat <./**>"),
        ("find a/ b -type f -exec grep -n x {} +", "find a/ b -type f", "grep -n x <a/**> <b/**>"),
        (
            "find / '(' -name x ')' -exec ls -l {} ';' -print",
            "find / ( -name x ) -print",
            "ls -l </**>",
        ),
        ("find . ! -name x -exec wc -l {} +", "find . ! -name x", "wc -l <./**>"),
        ("find . -exec echo done ';'", "find .", "echo done"),
        ("/usr/bin/find . -exec sort {} +", "/usr/bin/find .", "sort <./**>"),
        ("xargs cat", "xargs", "cat <*>"),
        ("xargs -0 -r -t grep -l x", "xargs -0 -r -t", "grep -l x <*>"),
        ("xargs -n 5 -P4 wc -l", "xargs -n 5 -P4", "wc -l <*>"),
        ("xargs --max-args=5 wc", "xargs --max-args=5", "wc <*>"),
        ("xargs -I {} head -5 {}", "xargs -I {}", "head -5 <*>"),
    ],
)
def test_find_and_xargs_with_read_only_programs_are_understood(
    line: str, outer: str, inner: str
) -> None:
    assert read(line) == [outer, inner]


def _other_calls_of_find_and_xargs_are_in_doubt(line: str) -> None:
    assert read(line) is None


def test_other_calls_of_find_and_xargs_are_in_doubt(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        *("find . -exec rm {} +", "find . -exec ./cat {} +", "find . -exec sh -c cat ';'"),
        *("find . -execdir cat {} +", "find . -ok cat {} ';'", "find . -exec cat {}"),
        *("find . -exec cat x +", "find . -exec cat {}.bak ';'", "find . -exec ';'"),
        *("find . -exec cat {} + -exec cat {} +", "find . -exec cat {} + -execdir rm {} +"),
        *(
            "find -L . -exec cat {} +",
            "find . -follow -exec cat {} +",
            "find glob:* -exec cat {} +",
        ),
        *("find -files0-from x -exec cat {} +", "find . -exec glob:cat {} +", "find ."),
        *(
            "xargs",
            "xargs rm",
            "xargs -a x cat",
            "xargs -n x cat",
            "xargs -n",
            "xargs --arg-file=x cat",
        ),
        *("xargs sort", "xargs glob:cat", "xargs glob:-0 cat", "xargs -I x cat x", "xargs -I"),
        *("xargs sh -c cat", "xargs env cat", "parallel cat", "fd -x cat"),
    ]
    for line in cases:
        with subtests.test(line=line):
            _other_calls_of_find_and_xargs_are_in_doubt(line)
