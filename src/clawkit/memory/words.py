"""Normalizes text and queries for the keyword index."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise

from clawkit.word_tables import read_words

MAX_QUERY_CHARS, MAX_TERMS = 8_000, 64
"""Maximum characters of a query that are used."""
_CJK = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003fffd"
)
_ONE_CJK, _CJK_RUN = re.compile(f"([{_CJK}])"), re.compile(f"([{_CJK}]+)")

Split = Callable[[str], Sequence[str]]
"""The words of a text, as the index splits it, before stemming."""


def fold(text: str) -> str:
    """Normalize different spellings of the same characters."""
    if text.isascii():
        return text.lower()
    # Imported on use: a megabyte of tables that English notes do not need.
    from unicodedata import normalize

    # Folding may undo the normal form.
    return normalize("NFKC", normalize("NFKC", text).casefold())


def index_text(text: str) -> str:
    """The text with a blank around every Chinese, Japanese and Korean character, because these
    languages do not separate words, and the index searches whole words only."""
    text = fold(text)
    return text if text.isascii() else _ONE_CJK.sub(r" \1 ", text)


def read_terms(query: str, split: Split) -> list[str]:
    """The unique search terms: words without stop words, and pairs of neighbouring Chinese,
    Japanese or Korean characters. If there are only stop words, they count."""
    terms = list(dict.fromkeys(_terms(fold(query[:MAX_QUERY_CHARS]), split)))
    stop = _stop_words()
    kept = [term for term in terms if not stop.issuperset(term.split()) and not _is_letter(term)]
    return (kept or terms)[:MAX_TERMS]


def match_any(terms: Sequence[str]) -> str:
    """An FTS5 query for any of the terms. Quoted, so that no term is parsed as an operator."""
    return " OR ".join('"{}"'.format(term.replace('"', '""')) for term in terms)


def _terms(text: str, split: Split) -> Iterator[str]:
    for at, part in enumerate(_CJK_RUN.split(text)):
        if at % 2 == 0:
            yield from split(part) if part.strip() else ()
        elif len(part) == 1:
            yield part
        else:
            yield from map(" ".join, pairwise(part))


def _is_letter(term: str) -> bool:
    return len(term) == 1 and term.isascii() and term.isalpha()


@cache
def _stop_words() -> frozenset[str]:
    groups = read_words(__file__, "stop_words.txt")
    return frozenset(word for words in groups.values() for word in words)
