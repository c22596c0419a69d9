"""A local embedding model without inference: a table with one vector for each token.

The vector of a text is the sum of those of its tokens. Such a table can be distilled from a
sentence transformer: each token of its vocabulary is embedded alone, and weighted by its rarity.

The file starts with one line of JSON, `{"format": "clawkit-static-embeddings", "version": 1,
"model": NAME, "dimensions": D, "tokens": N}`. N lines follow, one token each, as in a WordPiece
vocabulary: lower case, `##` before a continuation of a word. Then N weights, 32-bit floats, and N
rows of D signed bytes, both little-endian.
"""

from __future__ import annotations

import mmap
import os
import re
import sys
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from operator import mul
from typing import NamedTuple

import msgspec

from clawkit.core.tasks import in_thread
from clawkit.memory.words import fold
from clawkit.models.protocols import ModelError

FORMAT = "clawkit-static-embeddings"
_MAX_HEADER, _MAX_WORD = 4_096, 100
_WORD = r"\w+|[^\w\s]"


class _Header(msgspec.Struct):
    format: str
    version: int
    model: str
    dimensions: int
    tokens: int


class StaticTable(NamedTuple):
    model: str
    dimensions: int
    rows: dict[str, int]
    weights: Sequence[float]
    matrix: memoryview

    def embed(self, text: str) -> list[float]:
        """The vector of a text; zeros if it has no known token."""
        found = list(self._tokens(text))
        if not found:
            return [0.0] * self.dimensions
        weights = [self.weights[at] for at in found]
        size = self.dimensions
        lines = [self.matrix[at * size : (at + 1) * size] for at in found]
        return [sum(map(mul, column, weights)) for column in zip(*lines, strict=True)]

    def _tokens(self, text: str) -> Iterator[int]:
        """The rows of the longest pieces of each word. A word with an unknown piece has none."""
        for word in re.findall(_WORD, fold(text)):
            at = 0
            pieces: list[int] = []
            while at < len(word) <= _MAX_WORD:
                for end in range(len(word), at, -1):
                    row = self.rows.get(word[at:end] if at == 0 else f"##{word[at:end]}")
                    if row is not None:
                        break
                else:
                    pieces = []
                    break
                pieces.append(row)
                at = end
            yield from pieces


def read_table(path: str) -> StaticTable:
    """Raises OSError, and ValueError for a file of another format."""
    with open(path, "rb") as file:
        header = msgspec.json.decode(file.readline(_MAX_HEADER), type=_Header)
        if (header.format, header.version) != (FORMAT, 1):
            raise ValueError("another format or version")
        if not (0 < header.dimensions <= 4_096 and 0 < header.tokens <= 1_000_000):
            raise ValueError("a table of this size is not supported")
        tokens = [file.readline(1_024).rstrip(b"\n").decode() for _ in range(header.tokens)]
        weights = array("f", file.read(4 * header.tokens))
        start = file.tell()
        size = header.tokens * header.dimensions
        if os.fstat(file.fileno()).st_size != start + size:
            raise ValueError("its size does not match its first line")
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if sys.byteorder == "big":
        weights.byteswap()
    matrix = memoryview(content)[start:].cast("b")
    rows = {token: at for at, token in enumerate(tokens)}
    return StaticTable(header.model, header.dimensions, rows, weights, matrix)


class StaticEmbedder:
    """Implements `Embedder`. The file is read on first use."""

    provider = "local"

    def __init__(self, path: str) -> None:
        self._path = os.path.expanduser(path)
        self.model = os.path.basename(path)
        self._space = ""

    @property
    def space(self) -> str:
        """A replaced file of the same name counts as another model after the next start, because
        the table is read once."""
        with suppress(OSError):
            info = os.stat(self._path)
            self._space = self._space or f"{info.st_size}.{info.st_mtime_ns}"
        return self._space

    @cached_property
    def _table(self) -> StaticTable:
        if not self._path:
            raise ModelError("not_found", "no local model: set memory.search.local.modelPath")
        try:
            return read_table(self._path)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise ModelError("not_found", f"{self._path}: not a usable model: {why}") from None

    async def check(self) -> None:
        await in_thread(lambda: self._table)

    async def embed(self, texts: Sequence[str], _purpose: str) -> list[list[float]]:
        def embed() -> list[list[float]]:
            return [self._table.embed(text) for text in texts]

        found: list[list[float]] = await in_thread(embed)
        return found
