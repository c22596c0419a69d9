"""The known models, from `known_models.txt`."""

from __future__ import annotations

from typing import NamedTuple

from clawkit.word_tables import read_groups

_Prices = tuple[float, float, float, float]


class KnownModel(NamedTuple):
    """One row of the table."""

    id: str
    name: str
    context_window: int
    max_tokens: int
    marks: str = ""
    """`i`: accepts images. `r`: can think before it answers."""
    prices: _Prices | None = None
    """Dollars per million tokens: input, output, cache read, cache write."""

    @property
    def images(self) -> bool:
        return "i" in self.marks

    @property
    def reasoning(self) -> bool:
        return "r" in self.marks


def _read(row: str) -> KnownModel:
    name, title, window, most, marks, *prices = row.split(" | ")
    cost: list[_Prices] = []
    for each in prices:
        read, write, cache_read, cache_write = map(float, each.split())
        cost.append((read, write, cache_read, cache_write))
    return KnownModel(name, title, int(window), int(most), marks.strip("-"), *cost)


MODELS: dict[str, tuple[KnownModel, ...]] = {
    provider: tuple(map(_read, rows))
    for providers, rows in read_groups(__file__, "known_models.txt").items()
    for provider in providers.split()
}
