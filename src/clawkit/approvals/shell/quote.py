"""Words of bash that mean exactly a given text."""

from __future__ import annotations

import re

RESERVED = frozenset(
    {"!", "[[", "]]", "{", "}", "case", "coproc", "do", "done", "elif", "else", "esac", "fi"}
    | {"for", "function", "if", "in", "select", "then", "time", "until", "while"}
)
"""Words that are no command where one could begin."""

# Without `=`, which could make an assignment of a word, and without anything that depends on the
# encoding bash believes to read.
_PLAIN = re.compile(r"[A-Za-z0-9_./,:@%+-]+")


# In GB18030 a digit after half of what bash takes for a character makes it swallow the next quote.
_BEFORE_DIGIT = re.compile(r"(?<=[^\x00-\x7f])(?=[0-9])")


def quote(value: str) -> str:
    """A word that bash takes for this text, wherever a word can stand."""
    if "\0" in value:
        raise ValueError("a word of the shell cannot hold a NUL character")
    if _PLAIN.fullmatch(value) and value not in RESERVED:
        return value
    quoted = "'" + value.replace("'", r"'\''") + "'"
    return quoted if value.isascii() else _BEFORE_DIGIT.sub("''", quoted)
