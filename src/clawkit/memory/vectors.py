"""Vectors of passages in the index: one byte for each number, compared by cosine.

The signs of the numbers choose the candidates, which is a comparison of bits: those of all passages
are kept in memory. The candidates are compared by sqlite-vec if it is installed, else in Python.
"""

from __future__ import annotations

import hashlib
import math
import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from importlib.util import find_spec
from operator import mul
from typing import TYPE_CHECKING, Any

from msgspec.json import encode

from clawkit.config.sections.plugins import MemoryVector
from clawkit.memory.index import RANGES, MemoryIndex, version
from clawkit.memory.protocols import Corpus

if TYPE_CHECKING:
    from apsw import Connection

CACHE_ENTRIES = 50_000
_OVERSAMPLING = 4
"""Candidates by their signs, for each passage wanted."""
_NEAREST = (
    "SELECT id, 1 - coalesce(vec_distance_cosine(vec_int8(data), vec_int8(?)), 1) AS near"
    " FROM vector WHERE id IN (SELECT value FROM json_each(?)) ORDER BY near DESC LIMIT ?"
)
_SIGNS = bytes(ord("1" if 0 < value < 128 else "0") for value in range(256))
"""For each byte of a vector, whether the number is positive."""
Waiting = tuple[int, bytes, str]
"""A passage without a vector: its number, the hash of its text, and the text."""


def pack(vector: Sequence[float]) -> bytes:
    """One byte for each number. The length of a vector does not matter to the cosine."""
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
    """The vectors in an index. They belong to one space: what another model made is not comparable.

    All methods block, and raise `ToolError` if the file cannot be used.
    """

    def __init__(
        self, index: MemoryIndex, extension: str = "", *, cache_entries: int = CACHE_ENTRIES
    ) -> None:
        self._index = index
        self._cache_entries = cache_entries
        self._extension = extension
        self._loaded: object = None
        self._signs: tuple[list[int], list[int]] = ([], [])
        """The passages that have a vector, in their order, and the signs of each as bits."""
        self._signs_at: object = None
        self._complete_at: object = None
        """When no passage lacked a vector."""
        self.problem = ""
        """Why vectors are compared in Python although there is an extension."""

    def use_space(self, space: str) -> None:
        """Keep only vectors of this space."""

        def use(db: Connection) -> None:
            if _meta(db, "space") != space:
                db.execute("DELETE FROM vector; DELETE FROM meta WHERE name = 'dimension'")
                db.execute("INSERT OR REPLACE INTO meta VALUES ('space', ?)", (space,))

        if self._index.run(lambda db: _meta(db, "space")) != space:
            self._index.run(use, write=True)

    def waiting(self, after: int, limit: int) -> list[Waiting]:
        """Passages without a vector, from one number on."""
        sql = (
            "SELECT id, hash, trim(trail || char(10) || text, char(10)) FROM chunk"
            " WHERE id > ? AND id NOT IN (SELECT id FROM vector) ORDER BY id LIMIT ?"
        )

        def look(db: Connection) -> list[Waiting]:
            if (at := version(db)) == self._complete_at:
                return []
            found: Any = list(db.execute(sql, (after, limit)))
            if not found and not after:
                self._complete_at = at
            return list(found)

        return self._index.run(look)

    def cached(self, space: str, hashes: Iterable[bytes]) -> dict[bytes, bytes]:
        """Vectors of texts that were embedded before, by the hash of the text."""

        def look(db: Connection) -> dict[bytes, bytes]:
            keys = {_key(space, each): each for each in hashes}
            size = int(_meta(db, "dimension") or 0)
            sql = "SELECT key, data FROM cache WHERE key = ? AND ? IN (0, length(data))"
            found: Any = db.executemany(sql, [(key, size) for key in keys])
            return {keys[key]: data for key, data in found}

        return self._index.run(look)

    def put(
        self, space: str, waiting: Sequence[Waiting], made: Mapping[bytes, bytes], *, cache: bool
    ) -> None:
        """Store vectors by the hash of the text, also for later if `cache`. Passages that have
        changed in the meantime get none."""

        def put(db: Connection) -> None:
            if _meta(db, "space") != space:
                return
            dimension = str(max(map(len, made.values()), default=0))
            if _meta(db, "dimension") != dimension:
                db.execute("DELETE FROM vector")
                db.execute("INSERT OR REPLACE INTO meta VALUES ('dimension', ?)", (dimension,))
            rows = [(made[key], id_, key) for id_, key, _ in waiting if key in made]
            sql = "INSERT OR REPLACE INTO vector SELECT id, ? FROM chunk WHERE id = ? AND hash = ?"
            db.executemany(sql, rows)
            if cache:
                entries = [(_key(space, key), data) for key, data in made.items()]
                # A new row for what is used again: the oldest rows are removed.
                db.executemany("INSERT OR REPLACE INTO cache (key, data) VALUES (?, ?)", entries)
                oldest = "SELECT row FROM cache ORDER BY row DESC LIMIT 1 OFFSET ?"
                db.execute(f"DELETE FROM cache WHERE row <= ({oldest})", (self._cache_entries,))  # noqa: S608

        self._index.run(put, write=True)

    def nearest(
        self, space: str, vector: bytes, corpus: Corpus, limit: int
    ) -> list[tuple[int, float]]:
        """The passages with the most similar vectors, most similar first: number and cosine."""

        def look(db: Connection) -> list[tuple[int, float]]:
            if _meta(db, "space") != space or _meta(db, "dimension") != str(len(vector)):
                return []
            can_compare = self._can_compare(db)
            count = limit * _OVERSAMPLING // (1 if can_compare else 2)
            ids = self._alike(db, vector, corpus, count)
            if not can_compare:
                return _compare(db, vector, ids, limit)
            found: Any = db.execute(_NEAREST, (vector, encode(ids).decode(), limit))
            return list(found)

        return self._index.run(look)

    def _alike(self, db: Connection, vector: bytes, corpus: Corpus, limit: int) -> list[int]:
        """Passages whose signs differ least from those of a vector."""
        if (at := version(db)) != self._signs_at:
            rows: Any = db.execute("SELECT id, data FROM vector ORDER BY id")
            bits = {id_: int(data.translate(_SIGNS), 2) for id_, data in rows}
            self._signs, self._signs_at = (list(bits), list(bits.values())), at
        ids, signs = self._signs
        first, last = RANGES[corpus]
        part = slice(bisect_left(ids, first), bisect_right(ids, last))
        wanted = int(vector.translate(_SIGNS), 2)
        distances = [(wanted ^ each).bit_count() for each in signs[part]]
        nearest = sorted(range(len(distances)), key=distances.__getitem__)
        return [ids[part.start + at] for at in nearest[:limit]]

    def _can_compare(self, db: Connection) -> bool:
        """Whether the extension is there; loads it into a new connection."""
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


def _compare(
    db: Connection, vector: bytes, ids: Iterable[int], limit: int
) -> list[tuple[int, float]]:
    wanted = array("b", vector)
    length = math.sqrt(sum(map(mul, wanted, wanted))) or 1.0
    scored = []
    rows: Any = db.executemany("SELECT id, data FROM vector WHERE id = ?", [(id_,) for id_ in ids])
    for id_, data in rows:
        other = array("b", data)
        size = math.sqrt(sum(map(mul, other, other))) or 1.0
        scored.append((sum(map(mul, wanted, other)) / (length * size), id_))
    return [(id_, score) for score, id_ in nlargest(limit, scored)]


def _meta(db: Connection, name: str) -> str:
    return str(db.execute("SELECT value FROM meta WHERE name = ?", (name,)).get or "")


def _key(space: str, text_hash: bytes) -> bytes:
    return hashlib.blake2b(space.encode() + b"\0" + text_hash, digest_size=16).digest()
