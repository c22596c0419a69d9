"""What an argument could turn out to be once the shell and the kernel are done with it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from clawkit.approvals.base import Arg

# In a pattern, characters whose meaning depends on how the pattern is written down.
_UNSURE = re.compile(r"[^\w.,:/~*?=%-]", re.ASCII)
_DEVICES = frozenset({"dev", "proc"})
_WILD = frozenset("*?")
_STARS = re.compile(r"\*+")


def words_of(text: str) -> frozenset[str]:
    """The words of a table."""
    return frozenset(text.split())


def base_name(path: str) -> str:
    """What comes after the last slash."""
    return path.rpartition("/")[2]


def may_be_option(arg: Arg) -> bool:
    """Whether an argument begins with a dash, or is a pattern that could."""
    first = arg.text[:1]
    if arg.glob:
        return not (first.isalnum() or first in ("_", ".", "/", "~"))
    return first == "-"


def may_be(arg: Arg, words: Iterable[str]) -> bool:
    """Whether an argument is one of these words, or a pattern that could name such a file."""
    if not arg.glob:
        return arg.text in words
    if _UNSURE.search(arg.text):
        return True
    pattern = _STARS.sub("*", arg.text)
    needed = len(pattern) - pattern.count("*")
    letters = set(pattern) - _WILD
    return any(
        needed <= len(word) and letters.issubset(word) and fnmatchcase(word, pattern)
        for word in words
    )


def is_device(text: str, cwd: str | None = None) -> bool:
    """Whether a path leads below /dev or /proc, where a file can be the standard input."""
    start = cwd or ""
    if not any(name in text or name in start for name in _DEVICES):
        return False
    path = posixpath.normpath(posixpath.join(start, text))
    parts = path.lstrip("/").split("/")
    if path.startswith("/"):
        return parts[0] in _DEVICES and parts[:2] != ["dev", "shm"]
    # From an unknown directory, enough steps up lead anywhere.
    return parts[0] == ".." and not _DEVICES.isdisjoint(parts)
