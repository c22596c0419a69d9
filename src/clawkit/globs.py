"""Globs, matched against whole strings without catastrophic backtracking.

In names, `*` matches any characters. In paths, `*` and `?` do not match a slash, `**` matches
anything, and `**/` zero or more directories. All other characters are literal. This is the dialect
of settings; that of searches, with classes and braces, is `fs.search.ripgrep_globs`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_PATH_PIECE = r"(?<![^/])(?:\*\*+/)+|\*\*+|\*|\?|[^*?]+"


class Glob:
    """A compiled glob for names or, with `path`, for paths; `match` tests a string."""

    __slots__ = ("_first", "_last", "_middle", "_path", "match")

    def __init__(self, pattern: str, *, path: bool = False) -> None:
        if path:
            self._path = re.compile(_translate(pattern), re.DOTALL)
            self.match: Callable[[str], bool] = self._match_path
            return
        first, *rest = re.sub(r"\*+", "*", pattern).split("*")
        self._first = first
        self._last: str | None = rest[-1] if rest else None
        self._middle = tuple(rest[:-1])
        self.match = self._starts if rest == [""] else self._match_name

    def _match_path(self, text: str) -> bool:
        return self._path.fullmatch(text) is not None

    def _starts(self, text: str) -> bool:
        return text.startswith(self._first)

    def _match_name(self, text: str) -> bool:
        if self._last is None:
            return text == self._first
        end = len(text) - len(self._last)
        at = len(self._first)
        if at > end or not text.startswith(self._first) or not text.endswith(self._last):
            return False
        for piece in self._middle:
            at = text.find(piece, at, end)
            if at < 0:
                return False
            at += len(piece)
        return True


def _translate(pattern: str) -> str:
    """Translate a path glob into a regular expression. The text after a wildcard is matched at its
    first occurrence, in an atomic group: a later occurrence could not make the rest match where the
    first one fails. The exception is a `*` after a `**`, because it must not skip a slash; so
    everything up to the next `**` is one group."""
    segments: list[tuple[str, list[str]]] = [("", [""])]
    for piece in re.findall(_PATH_PIECE, pattern):
        if piece == "*":
            segments[-1][1].append("")
        elif piece.startswith("**"):
            segments.append((r"(?:.*?/)??" if piece.endswith("/") else ".*?", [""]))
        else:
            segments[-1][1][-1] += "[^/]" if piece == "?" else re.escape(piece)
    parts = []
    for number, (wildcard, (first, *others)) in enumerate(segments):
        if number < len(segments) - 1:
            tail = "".join(f"(?>[^/]*?{each})" for each in others)
            parts.append(f"(?>{wildcard}{first}{tail})")
        elif others:
            tail = "".join(f"(?>[^/]*?{each})" for each in others[:-1])
            parts.append(f"{wildcard}{first}{tail}[^/]*{others[-1]}")
        else:
            parts.append(wildcard + first)
    return "".join(parts)
