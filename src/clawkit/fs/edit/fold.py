"""Texts with a difference left away, in which a place can be found and told in the original."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from functools import lru_cache
from typing import Literal

Fold = Literal["trailing", "lookalike", "indentation"]

_ODD = r"\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
# Blanks are looked at from the first of a row only: else a long row would be looked at again and
# again from each of its blanks.
_TRAILING = r"(?<![ \t])[ \t]*+\r(?=\n)|(?<![ \t])[ \t]++(?=\n|\Z)"
_PATTERNS: dict[Fold, str] = {
    "trailing": _TRAILING,
    "lookalike": (
        rf"(?<![ \t{_ODD}])[ \t{_ODD}]*+\r(?=\n)|(?<![ \t{_ODD}])[ \t{_ODD}]++(?=\n|\Z)"
        r"|(?P<other>[^\x00-\x7f])"
    ),
    "indentation": rf"(?<![^\n])[ \t]++|{_TRAILING}|\r(?=\n)",
}
_ALIKE = {
    **dict.fromkeys("‘’‚‛ʼ′´", "'"),
    **dict.fromkeys("“”„‟″«»", '"'),
    **dict.fromkeys("‐‑‒–—―−﹣－", "-"),
    # Nobody sees these.
    **dict.fromkeys("\u00ad\u200b\u200c\u200d\u2060\ufeff", ""),
}


class Folded:
    """A text after folding, and where the pieces that are not as they were came from."""

    def __init__(self, original: str, fold: Fold) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._origins: list[int] = []
        self._origin_ends: list[int] = []
        self.text = self._fold(original, fold)

    def _fold(self, original: str, fold: Fold) -> str:
        parts: list[str] = []
        done = size = 0
        for found in re.finditer(_PATTERNS[fold], original):
            piece = found[0]
            instead = _alike(piece) if found.lastgroup else ""
            if instead == piece:
                continue
            start, end = found.span()
            parts += (original[done:start], instead)
            size += start - done
            self._starts.append(size)
            size += len(instead)
            self._ends.append(size)
            self._origins.append(start)
            self._origin_ends.append(end)
            done = end
        return "".join((*parts, original[done:])) if parts else original

    def start(self, at: int) -> int | None:
        """Where in the original something begins; after what was left away there. None inside of a
        character that was replaced by several."""
        piece = bisect_right(self._starts, at) - 1
        if piece >= 0 and self._starts[piece] == at < self._ends[piece]:
            return self._origins[piece]
        return self._plain(piece, at)

    def end(self, at: int) -> int | None:
        """Where in the original something ends; before what was left away there."""
        return self._plain(bisect_left(self._starts, at) - 1, at)

    def _plain(self, piece: int, at: int) -> int | None:
        if piece < 0:
            return at
        beyond = at - self._ends[piece]
        return self._origin_ends[piece] + beyond if beyond >= 0 else None


def fold_text(text: str, fold: Fold) -> str:
    """The text after folding, when the way back is of no interest."""
    return Folded(text, fold).text


@lru_cache(4096)
def _alike(char: str) -> str:
    """The plainest character, or characters, that look like this one."""
    import unicodedata  # a megabyte of tables that few edits need

    known = _ALIKE.get(char)
    return unicodedata.normalize("NFKD", char) if known is None else known
