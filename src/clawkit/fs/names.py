"""File names that look like another one."""

from __future__ import annotations

from collections.abc import Iterable

from clawkit.text import nearest

_TYPOGRAPHIC = str.maketrans("‘’‚‛“”„‟′″‐‑‒–—―−", "''''\"\"\"\"'\"-------")


def fold_name(name: str) -> str:
    """What is left of a name when spaces, quotes, dashes and accents are written in one way."""
    if name.isascii():
        return name
    import unicodedata

    plain = unicodedata.normalize("NFKC", name.translate(_TYPOGRAPHIC)).translate(_TYPOGRAPHIC)
    return "".join(" " if char.isspace() else char for char in plain)


def alike_names(name: str, names: Iterable[str]) -> list[str]:
    """The names that read the same as one that is missing."""
    wanted = fold_name(name)
    return sorted(each for each in names if each != name and fold_name(each) == wanted)


def near_names(name: str, names: Iterable[str]) -> list[str]:
    """Up to three names that somebody may have meant."""
    return nearest(name, list(names), 3)
