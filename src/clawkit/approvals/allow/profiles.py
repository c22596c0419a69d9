"""Which arguments of programs that only turn their input into output cannot do anything else.

What is listed neither opens a file nor starts a program, whatever its value. What a program has
beside that is listed too, as denied, so that a shortened flag is taken as the program takes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from clawkit.config.sections.exec import SafeBinProfile

NEVER = frozenset(
    """
    awk gawk mawk nawk original-awk goawk bwk sed gsed ssed ed ex vi vim nvim emacs nano less more
    ash bash bun busybox cmd cscript csh dash deno elvish expect fish gdb groovy guile irb java
    jshell julia ksh lua luajit m4 mksh make gmake node nodejs nu ocaml osascript osh perl php pry
    powershell psh pwsh pypy python R Rscript raku rlwrap ruby scala sh sqlite sqlite3 tclsh tcsh
    toybox ts-node tsx wish wscript xonsh yash zsh env find xargs parallel sudo doas su ssh git
    """.split()  # noqa: SIM905  # a list of words is easier to read and to add to
)
"""Run code that they are given, or programs: no list of flags makes them harmless."""

_SHORT = re.compile(r"-[A-Za-z0-9]")
_COMMON = "--help --version"


class Profile(NamedTuple):
    """What a program may be given."""

    flags: frozenset[str] = frozenset()
    """Without a value."""
    values: frozenset[str] = frozenset()
    """With a value, attached or in the next argument."""
    maybe: frozenset[str] = frozenset()
    """With a value behind `=`, or none."""
    denied: frozenset[str] = frozenset()
    least: int = 0
    most: int | None = 0
    """Arguments that are no flags, `-` for the standard input aside."""
    numbers: bool = False
    """Whether `-5` is a number of lines."""
    complete: bool = True
    """Whether all flags of the program are known, so that it is certain what a short form means,
    and that no other argument is ever a file."""

    @property
    def known(self) -> frozenset[str]:
        return self.flags | self.values | self.maybe | self.denied

    def knows(self, flag: str) -> bool:
        return (
            flag in self.flags or flag in self.values or flag in self.maybe or flag in self.denied
        )


def _profile(
    flags: str,
    values: str = "",
    maybe: str = "",
    denied: str = "",
    *,
    least: int = 0,
    most: int = 0,
    numbers: bool = False,
) -> Profile:
    """Letters of short flags come first, before the long ones: `cds --count`."""
    return Profile(
        _words(f"{flags} {_COMMON}"),
        _words(values),
        _words(maybe),
        _words(denied),
        least=least,
        most=most,
        numbers=numbers,
    )


def _words(text: str) -> frozenset[str]:
    found: set[str] = set()
    for word in text.split():
        found |= {word} if word.startswith("--") else {f"-{letter}" for letter in word}
    return frozenset(found)


PROFILES: Mapping[str, Profile] = MappingProxyType(
    {
        "cut": _profile(
            "nsz --complement --only-delimited --zero-terminated",
            "bcdf --bytes --characters --delimiter --fields --output-delimiter",
        ),
        "grep": _profile(
            """EFGHILTUZabchilnoqsvwxyzV --basic-regexp --binary --byte-offset --count
            --extended-regexp --files-with-matches --files-without-match --fixed-regexp
            --fixed-strings --ignore-case --initial-tab --invert-match --line-buffered
            --line-number --line-regexp --no-filename --no-group-separator --no-ignore-case
            --no-messages --null --null-data --only-matching --quiet --silent --text
            --with-filename --word-regexp""",
            """ABCem --after-context --before-context --binary-files --context --group-separator
            --label --max-count --regexp""",
            "--color --colour",
            """DPRXdfru --dereference-recursive --devices --directories --exclude --exclude-dir
            --exclude-from --file --include --perl-regexp --recursive --unix-byte-offsets""",
            least=1,
            most=1,
            numbers=True,
        ),
        "head": _profile(
            "qvz --quiet --silent --verbose --zero-terminated",
            "cn --bytes --lines",
            numbers=True,
        ),
        "jq": _profile(
            """CMRSacejrs --ascii-output --color-output --compact-output --exit-status
            --join-output --monochrome-output --raw-input --raw-output --slurp --sort-keys --tab""",
            "--indent",
            denied="""Lfnu --arg --argfile --argjson --args --from-file --jsonargs --null-input
            --rawfile --run-tests --seq --slurpfile --stream --unbuffered""",
            least=1,
            most=1,
        ),
        "sort": _profile(
            """CMRVbcdfghimnrsuz --debug --dictionary-order --general-numeric-sort
            --human-numeric-sort --ignore-case --ignore-leading-blanks --ignore-nonprinting
            --merge --month-sort --numeric-sort --random-sort --reverse --stable --unique
            --version-sort --zero-terminated""",
            "Skt --batch-size --buffer-size --field-separator --key --parallel --sort",
            "--check",
            """Toy --compress-program --files0-from --output --random-source
            --temporary-directory""",
        ),
        "tail": _profile(
            "qvz --quiet --silent --verbose --zero-terminated",
            "cn --bytes --lines",
            denied="Ffsb --debug --follow --max-unchanged-stats --pid --retry --sleep-interval",
            numbers=True,
        ),
        "tr": _profile(
            "Ccdst --complement --delete --squeeze-repeats --truncate-set1", least=1, most=2
        ),
        "uniq": _profile(
            "Dcduiz --count --ignore-case --repeated --unique --zero-terminated",
            "fsw --check-chars --skip-chars --skip-fields",
            "--all-repeated --group",
        ),
        "wc": _profile(
            "Lclmw --bytes --chars --debug --lines --max-line-length --words",
            "--total",
            denied="--files0-from",
        ),
    }
)


def find_profile(name: str, own: Mapping[str, SafeBinProfile]) -> Profile | None:
    """What a program may be given: as the operator says, else as known here."""
    given = own.get(name)
    if given is None:
        return PROFILES.get(name)
    least = given.min_positional or 0
    most = given.max_positional
    return Profile(
        flags=frozenset(given.allowed_flags),
        values=frozenset(given.allowed_value_flags),
        denied=frozenset(given.denied_flags),
        least=least,
        most=None if most is None else max(least, most),
        complete=False,
    )


def is_short(flag: str) -> bool:
    """Whether a flag is one letter, which can stand among others."""
    return _SHORT.fullmatch(flag) is not None


_FILTER = re.compile(
    r"""(?P<space>[ \t\r\n]+)
    |(?P<text>"(?:[^"\\]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+")
    |(?P<number>[0-9]+(?:\.[0-9]+)?)
    |(?P<field>\.[A-Za-z_][A-Za-z0-9_]*)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>\.(?!\.)|==|!=|<=|>=|//|[][(){}:;,|?<>+-])""",
    re.VERBOSE,
)
_WORDS = frozenset(
    """
    add all and any arrays ascii_downcase ascii_upcase booleans ceil contains elif else empty end
    endswith false first flatten floor from_entries fromjson group_by has if index inside iterables
    join keys keys_unsorted last length ltrimstr map map_values max max_by min min_by not null nulls
    numbers objects or reverse round rtrimstr scalars select sort sort_by split startswith strings
    then to_entries tojson tonumber tostring true type unique unique_by values with_entries
    """.split()  # noqa: SIM905
)
_MAX_FILTER = 4_096
_GROWING = frozenset(("+", ",", "tojson"))
_MAX_GROWTH = 8
"""What can make an output a multiple of its input: each one could double it."""


def check_filter(text: str) -> str:
    """Why a filter of jq is not certainly harmless; empty when it is.

    Only words that look at the input: none that reads the environment, files or further input,
    none that defines, imports or loops.
    """
    if len(text) > _MAX_FILTER:
        return "the filter is too long"
    open_brackets: list[str] = []
    at, last, growth = 0, "", 0
    while at < len(text):
        found = _FILTER.match(text, at)
        if found is None:
            return f"the filter has {text[at]!r}, which is not known to be harmless"
        at = found.end()
        token = found[0]
        if found.lastgroup == "space":
            continue
        if found.lastgroup == "word" and token not in _WORDS:
            # In `{name, size: .bytes}` they are keys.
            is_key = open_brackets[-1:] == ["{"] and last in ("{", ",")
            if not is_key or not re.match(r"\s*[:,}]", text[at : at + 64]):
                return f"the filter has {token!r}, which is not known to be harmless"
        elif token in ("{", "[", "("):
            open_brackets.append(token)
        elif token in ("}", "]", ")") and open_brackets:
            open_brackets.pop()
        # In `{a, b}` a comma only separates.
        growth += token in _GROWING and (token != "," or open_brackets[-1:] != ["{"])  # noqa: S105
        if growth > _MAX_GROWTH:
            return "the filter could make its output many times as large as its input"
        last = token
    return ""
