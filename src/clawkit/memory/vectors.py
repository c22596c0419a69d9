"""Vectors of passages in the index: one byte for each number, compared by cosine.

Candidates are chosen by comparing the signs of the numbers as bits, which are kept in memory for
all passages. The candidates are compared by sqlite-vec if it is installed, else in Python.
"""

from __future__ import annotations

import hashlib
import math
import os
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from heapq import nlargest
from importlib.util import find_spec
from operator import itemgetter, mul
from typing import TYPE_CHECKING, Any, cast

from msgspec.json import encode

from clawkit.config.sections.plugins import MemoryVector
from clawkit.memory.index import RANGES, MemoryIndex, version
from clawkit.memory.protocols import Corpus

if TYPE_CHECKING:
    from apsw import Connection

CACHE_ENTRIES = 50_000
_OVERSAMPLING = 4
"""Candidates per requested passage."""
_VECTORS = (
    "SELECT chunk.id, vector.id, data FROM vector JOIN chunk USING (hash)"
    " WHERE space = ? AND length(data) = ? ORDER BY chunk.id"
)
_COSINES = (
    "SELECT id, 1 - coalesce(vec_distance_cosine(vec_int8(data), vec_int8(?)), 1) FROM vector"
    " WHERE id IN (SELECT value FROM json_each(?))"
)
_SIGNS = bytes(ord("1" if 0 < value < 128 else "0") for value in range(256))
"""For each byte of a vector, whether the number is positive."""
Among = Set[int] | None
"""The only passages that are compared; None for all."""
Waiting = tuple[int, bytes, str]
"""A passage without a vector: its number, the hash of its text, and the text."""


def pack(vector: Sequence[float]) -> bytes:
    """One byte for each number. The cosine does not depend on the length of a vector."""
    largest = max(map(abs, vector), default=0.0) or 1.0
    return array("b", [round(value / largest * 127) for value in vector]).tobytes()


def find_extension(settings: MemoryVector) -> str:
    """The file of sqlite-vec; empty for none. Its module is not imported: that loads numpy."""
    if not settings.enabled:
        return ""
    if settings.extension_path:
        return os.path.expanduser(settings.extension_path)
    found = find_spec("sqlite_vec")
    folders = found.submodule_search_locations if found else None
    return os.path.join(folders[0], "vec0") if folders else ""


class VectorIndex:
    """The vectors in an index, by the hash of the text. They belong to spaces, because vectors of
    different models are not comparable. Unused vectors are kept as a cache.

    All methods block, and raise `ToolError` if the file cannot be used.
    """

    def __init__(
        self, index: MemoryIndex, extension: str = "", *, cache_entries: int = CACHE_ENTRIES
    ) -> None:
        self._index = index
        self._cache_entries = cache_entries
        self._extension = extension
        self._loaded: object = None
        self._signs: tuple[Sequence[int], Sequence[int], Sequence[int]] = ((), (), ())
        """The passages with a vector, in order; the row of each vector, and its signs as bits."""
        self._signs_at: object = None
        self._complete_at: object = None
        """The index version at which no passage lacked a vector."""
        self.problem = ""
        """Why vectors are compared in Python although there is an extension."""

    def waiting(self, space: str, after: int, limit: int, *kept: str) -> list[Waiting]:
        """Passages without a vector, after a number. If there are none at all, removes vectors
        unused by this space and by `kept`, except the newest."""
        spaces = encode([_key(each).hex().upper() for each in {space, *kept}]).decode()
        missing = (
            "SELECT id, hash, trim(trail || char(10) || text, char(10)) FROM chunk"
            " WHERE id > ? AND NOT EXISTS"
            " (SELECT 1 FROM vector WHERE space = ? AND vector.hash = chunk.hash)"
            " ORDER BY id LIMIT ?"
        )
        unused = (
            "DELETE FROM vector WHERE NOT (hash IN (SELECT hash FROM chunk)"
            " AND hex(space) IN (SELECT value FROM json_each(?)))"
            " AND id <= (SELECT id FROM vector ORDER BY id DESC LIMIT 1 OFFSET ?)"
        )

        def look(db: Connection) -> list[Waiting]:
            found: Any = list(db.execute(missing, (after, _key(space), limit)))
            if not found and not after:
                db.execute(unused, (spaces, self._cache_entries))
                self._complete_at = version(db), space
            return list(found)

        if self._index.run(lambda db: (version(db), space) == self._complete_at):
            return []
        return self._index.run(look, write=True)

    def put(self, space: str, vectors: Mapping[bytes, bytes]) -> bool:
        """Store vectors by the hash of the text. Removes vectors of another length, from an older
        model of the same name; returns whether there were any."""
        size = max(map(len, vectors.values()))

        def put(db: Connection) -> bool:
            sql = "SELECT length(data) FROM vector WHERE space = ? LIMIT 1"
            is_other = db.execute(sql, (_key(space),)).get not in (None, size)
            if is_other:
                db.execute("DELETE FROM vector WHERE space = ?", (_key(space),))
            sql = "INSERT OR REPLACE INTO vector (space, hash, data) VALUES (?, ?, ?)"
            db.executemany(sql, [(_key(space), hash_, data) for hash_, data in vectors.items()])
            return is_other

        return self._index.run(put, write=True)

    def count(self, space: str) -> int:
        """How many passages have a vector."""
        sql = "SELECT count(*) FROM chunk JOIN vector USING (hash) WHERE space = ?"
        return self._index.run(lambda db: cast(int, db.execute(sql, (_key(space),)).get))

    def nearest(
        self, space: str, vector: bytes, corpus: Corpus, limit: int, among: Among = None
    ) -> list[tuple[int, float]]:
        """The passages with the most similar vectors, most similar first: number and cosine."""

        def look(db: Connection) -> list[tuple[int, float]]:
            can_compare = self._can_compare(db)
            count = limit * _OVERSAMPLING // (1 if can_compare else 2)
            compare = _compare_in_sqlite if can_compare else _compare
            with db:  # in one snapshot: other processes may remove vectors in the meantime
                alike = self._alike(db, space, vector, corpus, count, among)
                near = compare(db, vector, set(alike.values()))
            found = ((id_, near[row]) for id_, row in alike.items())
            return nlargest(limit, found, key=itemgetter(1))

        return self._index.run(look)

    def _alike(
        self, db: Connection, space: str, vector: bytes, corpus: Corpus, limit: int, among: Among
    ) -> dict[int, int]:
        """The passages whose signs differ least from those of a vector, and their vectors' rows."""
        if (at := (version(db), space, len(vector))) != self._signs_at:
            found: Any = db.execute(_VECTORS, (_key(space), len(vector)))
            signs = [(id_, row, int(data.translate(_SIGNS), 2)) for id_, row, data in found]
            columns: Any = tuple(zip(*signs, strict=True)) or ((), (), ())
            self._signs, self._signs_at = columns, at
        ids, rows, bits = self._signs
        if among is not None:
            kept = [at for at, id_ in enumerate(ids) if id_ in among]
            ids, rows, bits = ([column[at] for at in kept] for column in self._signs)
        first, last = RANGES[corpus]
        start, end = bisect_left(ids, first), bisect_right(ids, last)
        wanted = int(vector.translate(_SIGNS), 2)
        distances = [(wanted ^ each).bit_count() for each in bits[start:end]]
        # There are few distances, so counting them is faster than sorting all passages.
        counts, left, farthest = Counter(distances), limit, 0
        for farthest in sorted(counts):
            left -= counts[farthest]
            if left <= 0:
                break
        near = [at for at, distance in enumerate(distances) if distance <= farthest]
        nearest = sorted(near, key=distances.__getitem__)[:limit]
        return {ids[start + at]: rows[start + at] for at in nearest}

    def _can_compare(self, db: Connection) -> bool:
        """Whether the extension is available; loads it into a new connection."""
        if not self._extension or self.problem:
            return False
        if self._loaded is not db:
            import apsw

            try:
                db.enable_load_extension(True)
                db.load_extension(self._extension)
            except apsw.ExtensionLoadingError as error:
                self.problem = f"{self._extension}: cannot be loaded: {error}"
                return False
            finally:
                db.enable_load_extension(False)
            self._loaded = db
        return True


def _compare_in_sqlite(db: Connection, vector: bytes, rows: Iterable[int]) -> dict[int, float]:
    found: Any = db.execute(_COSINES, (vector, encode(list(rows)).decode()))
    return dict(found)


def _compare(db: Connection, vector: bytes, rows: Iterable[int]) -> dict[int, float]:
    wanted = array("b", vector)
    length = math.sqrt(sum(map(mul, wanted, wanted))) or 1.0
    near: dict[int, float] = {}
    sql = "SELECT id, data FROM vector WHERE id = ?"
    found: Any = db.executemany(sql, [(row,) for row in rows])
    for row, data in found:
        other = array("b", data)
        size = math.sqrt(sum(map(mul, other, other))) or 1.0
        near[row] = sum(map(mul, wanted, other)) / (length * size)
    return near


def _key(space: str) -> bytes:
    return hashlib.blake2b(space.encode(), digest_size=8).digest()
