"""Regular expressions over arguments: those of JavaScript, as far as they can be searched for in
linear time.

What another engine would take in another way is not accepted: no look-around, no back-references,
no flags, no escapes of letters that mean nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from clawkit.approvals.base import Arg, Program

MAX_CHARS = 10_000
"""Longest pattern: compiling one takes time too."""
EXACT = "sha256:cwd-argv:v1:"
"""What the hash of one very call begins with."""

_SYNTAX = frozenset("\\^$.*+?()[]{}|/-&~")
_ANY = r"[^\n\r\u2028\u2029]"
_REPEAT = re.compile(r"(?:[*+?]|\{[0-9]{1,4}(?:,(?:[0-9]{1,4})?)?\})\??")
_ESCAPE = re.compile(
    r"\\(?:[dDwWsSnrtvf]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|c[A-Za-z]|[!-/:-@\[-^`{-~ ])"
)
_GROUP = re.compile(r"\((?:\?:|\?<[A-Za-z_][A-Za-z0-9_]{0,63}>|(?!\?))")


def search(pattern: str, text: str) -> bool | None:
    """Whether a pattern is found in a text; None when it cannot be used at all."""
    test = _compile(pattern)
    if test is None:
        return None
    try:
        return test(text)
    except UnicodeEncodeError:
        # Half of a character is no text.
        return False


def fits_arguments(pattern: str, program: Program) -> bool:
    """Whether the arguments of a program are those an `argPattern` means.

    They are joined by single spaces; with a NUL in the pattern each is followed by one instead.
    """
    arguments = program.argv[1:]
    if any(each.glob for each in arguments):
        return False
    if pattern.startswith("sha256:"):
        return program.cwd is not None and pattern == hash_call(program.cwd, arguments)
    texts = [each.text for each in arguments]
    if "\0" in pattern:
        return not any("\0" in each for each in texts) and bool(
            search(pattern, "".join(f"{each}\0" for each in texts))
        )
    # Joined, `a b` and `'a b'` look alike, and so do nothing and `''`.
    if not all(texts) or any(char.isspace() for each in texts for char in each):
        return False
    return bool(search(pattern, " ".join(texts)))


def hash_call(cwd: str, arguments: Iterable[Arg]) -> str:
    """What stands for one very call of a program: these arguments, in this directory."""
    texts = [each.text for each in arguments]
    parts = [*_measured(cwd), b"%d" % len(texts)]
    for each in texts:
        parts += _measured(each)
    whole = b"".join(part + b"\0" for part in parts)
    return f"{EXACT}{hashlib.sha256(whole).hexdigest()}"


def _measured(text: str) -> tuple[bytes, bytes]:
    data = text.encode("utf-8", "surrogatepass")
    return b"%d" % len(data), data


@lru_cache(maxsize=1024)
def _compile(pattern: str) -> Callable[[str], bool] | None:
    # An empty pattern is found everywhere; nobody who wants that writes it down.
    translated = _translate(pattern) if 0 < len(pattern) <= MAX_CHARS else None
    if translated is None:
        return None
    from clawkit.core.validator import make_pattern
    from clawkit.errors import SchemaError

    try:
        return make_pattern(translated)
    except SchemaError:
        return None


def _translate(pattern: str) -> str | None:
    """The same for an engine that is not JavaScript's; None for what it has not, or takes in
    another way."""
    out: list[str] = []
    at = 0
    repeatable = False
    while at < len(pattern):
        char = pattern[at]
        if found := _REPEAT.match(pattern, at):
            if not repeatable:
                return None
            piece, at, repeatable = found[0], found.end(), False
        elif char == "[":
            read = _translate_class(pattern, at)
            if read is None:
                return None
            (piece, at), repeatable = read, True
        elif char == "(":
            found = _GROUP.match(pattern, at)
            if found is None:
                return None
            piece, at, repeatable = found[0], found.end(), False
        elif pattern.startswith((r"\b", r"\B"), at):
            # Words are made of ASCII letters there.
            piece, at, repeatable = f"(?-u:{pattern[at : at + 2]})", at + 2, False
        elif char == "\\":
            found = _ESCAPE.match(pattern, at)
            if found is None:
                return None
            piece, at, repeatable = _plain_escape(found[0]), found.end(), True
        elif char == "{":
            return None
        else:
            piece = _ANY if char == "." else f"\\{char}" if char in "]}" else char
            at, repeatable = at + 1, char not in "^$|"
        out.append(piece)
    return "".join(out)


def _plain_escape(escape: str) -> str:
    """Without the backslash before what needs none: elsewhere `\\<` means more than `<`."""
    char = escape[1]
    return escape if char.isalpha() or char in _SYNTAX else char


def _translate_class(pattern: str, start: int) -> tuple[str, int] | None:
    """A class in brackets and where it ends."""
    out = ["["]
    at = start + 1
    if pattern.startswith("^", at):
        out.append("^")
        at += 1
    first = at
    while at < len(pattern):
        char = pattern[at]
        if char == "]":
            return ("".join((*out, "]")), at + 1) if at > first else None
        if char == "\\":
            found = _ESCAPE.match(pattern, at)
            if found is None:
                return None
            out.append(_plain_escape(found[0]))
            at = found.end()
            continue
        if pattern.startswith("--", at):
            return None
        # Elsewhere a bracket opens a class within the class, and `&&` and `~~` combine two.
        out.append(f"\\{char}" if char in "[&~^" else char)
        at += 1
    return None
