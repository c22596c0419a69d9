"""Ranks passages by keywords and vectors, lowers older dated notes, and cuts snippets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import date

from clawkit.memory.words import fold
from clawkit.text import regex

CANDIDATES = 100
"""Number of passages from keywords and from vectors each."""
VECTOR_SHARE = 0.3
HALF_LIFE_DAYS = 30.0
AGE_SHARE = 0.25
"""Maximum share of its score that a note loses by age. If old notes could lose all of it, a third
of the questions in `bench/memory.py` would no longer find their answer."""
SNIPPET_CHARS = 700
_MAX_PLACES = 6
"""Maximum places of each term in a passage."""
_DATED = r"(\d{4})-(\d{2})-(\d{2})(?:-[^/]*)?\.md"

Leg = Sequence[tuple[int, float]]
"""Passage numbers with scores (higher is better), best first."""


def mix(text: Leg, vector: Leg) -> dict[int, float]:
    """One score from 0 to 1 per passage, combined from both legs; with only one leg, its keyword
    score or its cosine."""
    if not text:
        return {id_: min(1.0, max(0.0, cosine)) for id_, cosine in vector}
    by_text = _spread(text)
    if not vector:
        return by_text
    by_vector = _spread(vector)
    return {
        id_: (1 - VECTOR_SHARE) * by_text.get(id_, 0.0) + VECTOR_SHARE * by_vector.get(id_, 0.0)
        for id_ in {**by_text, **by_vector}
    }


def _spread(leg: Leg) -> dict[int, float]:
    """The scores scaled to 0 to 1, so that legs with different scales can be added."""
    best, worst = leg[0][1], leg[-1][1]
    width = best - worst
    return {id_: (score - worst) / width if width > 0 else 1.0 for id_, score in leg}


def recency(path: str, today: date) -> float:
    """The age factor of a note: 1 unless its name starts with a past date."""
    found = regex(_DATED).fullmatch(path.rpartition("/")[2])
    if found is None:
        return 1.0
    try:
        written = date(*map(int, found.groups()))
    except ValueError:
        return 1.0
    fresh = 0.5 ** (max(0, (today - written).days) / HALF_LIFE_DAYS)
    return float(1 - AGE_SHARE + AGE_SHARE * fresh)


def choose(
    scores: Mapping[int, float], also: Set[int], max_results: int, min_score: float, *, strict: bool
) -> list[int]:
    """The best passages. Those in `also` are exempt from `min_score` if not `strict`, or if none
    reaches it."""
    ranked = sorted(scores, key=lambda id_: (-scores[id_], id_))
    good = [id_ for id_ in ranked if scores[id_] >= min_score]
    if not strict or not good:
        good = [id_ for id_ in ranked if scores[id_] >= min_score or id_ in also]
    return good[:max_results]


def cut_snippet(text: str, terms: Sequence[str]) -> str:
    """The part of a passage with most of the terms, from the start of a line or a word."""
    if len(text) <= SNIPPET_CHARS:
        return text
    folded = fold(text)
    if len(folded) != len(text):  # positions would differ
        folded = text
    places = [(at, term) for term in terms for at in _places(folded, term.replace(" ", ""))]

    def count(start: int) -> int:
        return len({term for at, term in places if 0 <= at - start < SNIPPET_CHARS * 3 // 4})

    start = max((at for at, _ in places), key=count, default=0)
    start = min(start, len(text) - SNIPPET_CHARS)
    line = text.rfind("\n", max(0, start - SNIPPET_CHARS // 4), start + 1)
    start = (line if line >= 0 else text.rfind(" ", max(0, start - 40), start + 1)) + 1 or start
    start = start if start > SNIPPET_CHARS // 4 else 0
    shown, end = text[start : start + SNIPPET_CHARS].strip(), start + SNIPPET_CHARS
    return f"{'…' if start else ''}{shown}{'…' if end < len(text) else ''}"


def _places(text: str, term: str) -> Iterator[int]:
    """The first places of a term in a passage."""
    at = -1
    for _ in range(_MAX_PLACES):
        if (at := text.find(term, at + 1)) < 0:
            return
        yield at
