"""The index: one SQLite file with the passages of all notes, their words and their vectors.

It contains only derived data, so a damaged one is moved aside and rebuilt. Several processes may
use it: each file is replaced in one transaction, and only if its content has changed.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
import time
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import reduce
from heapq import nlargest
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from clawkit.errors import ToolError
from clawkit.memory.chunks import NoteChunk, split_note
from clawkit.memory.files import MAX_PROBLEMS, UNSURE, NoteFiles, Scan
from clawkit.memory.protocols import Corpus, Hit, IndexStatus, OnProgress, Source
from clawkit.memory.words import index_text, match_any
from clawkit.store import DamagedError, Database

if TYPE_CHECKING:
    from apsw import Connection, FTS5ExtensionApi

SESSION_ROOT = "sessions/"
_APPLICATION = 0x636C6D34
"""Changes with the schema: an old index is not migrated but rebuilt."""
_SESSIONS_FROM, _END = 1 << 40, 1 << 62
RANGES: Mapping[Corpus, tuple[int, int]] = {
    "memory": (0, _SESSIONS_FROM - 1),
    "sessions": (_SESSIONS_FROM, _END),
    "all": (0, _END),
}
"""Ranges of passage numbers by source, because FTS5 can filter only ranges without a join."""
_TOKENIZER = ("remove_diacritics", "2", "categories", "L* M* N* Co")
_SCHEMA = """
CREATE TABLE file (
  id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, source TEXT NOT NULL, stamp TEXT NOT NULL,
  hash BLOB NOT NULL, problem TEXT NOT NULL);
CREATE TABLE chunk (
  id INTEGER PRIMARY KEY, file INTEGER NOT NULL, start_line INTEGER NOT NULL,
  end_line INTEGER NOT NULL, hash BLOB NOT NULL, trail TEXT NOT NULL, text TEXT NOT NULL);
CREATE INDEX chunk_of_file ON chunk (file);
CREATE INDEX chunk_by_hash ON chunk (hash);
CREATE VIRTUAL TABLE words USING fts5(body, content='',
  tokenize="porter unicode61 remove_diacritics 2 categories 'L* M* N* Co'");
INSERT INTO words (words, rank) VALUES ('secure-delete', 1);
CREATE VIRTUAL TABLE term USING fts5vocab(words, row);
CREATE TABLE vector (
  id INTEGER PRIMARY KEY, space BLOB NOT NULL, hash BLOB NOT NULL, data BLOB NOT NULL,
  UNIQUE (space, hash));
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""
_SIZES = (
    "SELECT sz, count(*) FROM carray(:among) CROSS JOIN words_docsize ON id = value GROUP BY sz"
)
"""Numbers of words, as FTS5 stores them, of some passages."""
_MATCH = (
    "words MATCH value AND words.rowid BETWEEN :first AND :last"
    " AND +words.rowid IN (SELECT value FROM carray(:among))"
)
_COUNTS = f"SELECT (SELECT count(*) FROM words WHERE {_MATCH}), value FROM json_each(:terms)"  # noqa: S608
_SATURATIONS = (
    "SELECT value, words.rowid, saturation(words, :mean)"  # noqa: S608
    f" FROM json_each(:terms) CROSS JOIN words WHERE {_MATCH}"
)
_BATCH_FILES, _BATCH_CHARS, _BATCH_S = 64, 512 * 1024, 0.2
"""Limits of one transaction; files are never split."""
_LOCK_WAIT_S = 10.0
_MAX_COUNTED = 2_000
_MAX_WORK = 20_000
"""Maximum passages times terms compared for one query, which takes about 7 ms."""

T = TypeVar("T")


class PastSessions(Protocol):
    """The past sessions of one agent. Methods are called in a thread."""

    def stamps(self) -> Mapping[str, str]:
        """Id of each session -> a stamp that changes with it."""

    def read(self, id_: str) -> str:
        """The messages, redacted; empty for an unknown session."""

    def may_see(self, id_: str) -> bool:
        """Whether the searching session may see this one."""

    def visible(self) -> Collection[str] | None:
        """All ids that it may see; None if it may see all."""


class _Reading(Struct, frozen=True):
    """A file to be written to the index."""

    path: str
    source: Source
    stamp: str
    hash: bytes
    chunks: Sequence[NoteChunk] = ()
    problem: str = ""


class MemoryIndex:
    """All methods block, and raise `ToolError` if the file cannot be used."""

    def __init__(self, path: str, workspace: str = "") -> None:
        """The workspace is recorded, because the file name does not contain it."""
        self._workspace = os.fsencode(workspace)
        self._database = Database(
            path,
            "the index of memory",
            _APPLICATION,
            (_SCHEMA,),
            lock_wait_s=_LOCK_WAIT_S,
            erases=True,
        )
        self.path = self._database.path
        self._known: dict[str, str] = {}
        self._known_at: object = None
        self._counts: dict[str, int] = {}
        """Cached number of passages per term, because counting is slow."""
        self._counted_at: object = None
        self._scoring: object = None
        """The connection that has the function of `_SATURATIONS`."""
        self._syncing = threading.Lock()
        self.pending = 0
        """Known number of files that are not indexed yet."""

    def close(self) -> None:
        self._database.close()

    def recovering(self, work: Callable[[], T]) -> T:
        """Run the work; if the file is damaged, remove it and run the work again."""
        try:
            return work()
        except DamagedError:
            aside = f"{self.path}.damaged"
            self._database.discard(aside)
            with suppress(FileNotFoundError):
                os.unlink(aside)
            return work()

    def run(self, work: Callable[[Connection], T], *, write: bool = False) -> T:
        """Run the work, in a transaction if it writes."""
        with self._database.writing() if write else self._database.using() as db:
            return work(db)

    def sync(
        self,
        files: NoteFiles | None,
        transcripts: PastSessions | None,
        *,
        stop: threading.Event,
        on_progress: OnProgress | None = None,
    ) -> None:
        """Update the index, until done or `stop` is set."""
        with self._syncing:
            changed, gone, scan = self.changed(files, transcripts)
            is_less = bool(gone) or not self._known.keys().isdisjoint(changed)
            if gone:
                self.run(lambda db: _forget(db, gone), write=True)
            self.pending = len(changed)
            batch: list[_Reading] = []
            size, until = 0, time.monotonic() + _BATCH_S
            for at, (path, stamp) in enumerate(changed.items(), 1):
                if stop.is_set():
                    break
                if files and path in scan.stamps:
                    found = _read_note(files, path, stamp)
                elif transcripts:
                    text = transcripts.read(path.removeprefix(SESSION_ROOT))
                    found = _reading(path, "sessions", stamp, text, "")
                batch.append(found)
                size += sum(len(chunk.text) for chunk in found.chunks)
                is_full = len(batch) >= _BATCH_FILES or size > _BATCH_CHARS
                if is_full or at == len(changed) or time.monotonic() > until:
                    self._write(batch)
                    self.pending = len(changed) - at
                    if on_progress:
                        on_progress(at, len(changed))
                    batch, size, until = [], 0, time.monotonic() + _BATCH_S
            if len(changed) > _BATCH_FILES:  # merging the segments makes searches faster
                sql = "INSERT INTO words (words) VALUES ('optimize')"
                self.run(lambda db: db.execute(sql), write=True)
            if is_less:  # the log still contains old pages
                self.run(lambda db: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())

    def changed(
        self, files: NoteFiles | None, transcripts: PastSessions | None
    ) -> tuple[dict[str, str], list[str], Scan]:
        """Outdated files with their stamps, removed files, and all files."""
        scan = files.scan() if files else Scan({}, ())
        sessions = transcripts.stamps() if transcripts else {}
        wanted = {**scan.stamps, **{SESSION_ROOT + id_: at for id_, at in sessions.items()}}
        known = self.run(self._read_known)
        gone = [path for path in known if path not in wanted]
        changed = {path: stamp for path, stamp in wanted.items() if known.get(path) != stamp}
        return changed, gone, scan

    def _read_known(self, db: Connection) -> dict[str, str]:
        """Path -> stamp of indexed files; reloaded only after a change."""
        if (at := version(db)) != self._known_at:
            self._known = dict(db.execute("SELECT path, stamp FROM file"))
            self._known_at = at
        return self._known

    def _write(self, batch: Sequence[_Reading]) -> None:
        def write(db: Connection) -> None:
            db.execute("INSERT OR REPLACE INTO meta VALUES ('workspace', ?)", (self._workspace,))
            for each in batch:
                _replace(db, each)

        self.run(write, write=True)

    def clear(self) -> None:
        """Remove everything except vectors."""

        def clear(db: Connection) -> None:
            db.execute("DELETE FROM file; DELETE FROM chunk")
            db.execute("INSERT INTO words (words) VALUES ('delete-all')")

        with self._syncing:
            self.run(clear, write=True)

    def split(self, text: str) -> Sequence[str]:
        """The words of a text, as split by the index."""
        return self.run(lambda db: _tokens(db, text, "unicode61", *_TOKENIZER))

    def groups(self, terms: Sequence[str]) -> Iterator[list[str]]:
        """The terms in groups that can be searched quickly, the rarest first. Later ones, which
        hardly affect the order, are needed only if no passage with the earlier ones counts."""

        def count(db: Connection) -> list[tuple[int, str]]:
            if (at := version(db)) != self._counted_at or len(self._counts) > _MAX_COUNTED:
                self._counts, self._counted_at = {}, at
            for term in terms:
                if term not in self._counts:
                    self._counts[term] = _frequency(db, term)
            return sorted((self._counts[term], term) for term in terms if self._counts[term])

        return _split_work(self.run(count))

    def match(self, terms: Sequence[str], corpus: Corpus, limit: int) -> list[tuple[int, float]]:
        """Passages with any of the terms, best first: number and score (higher is better)."""
        sql = (
            "SELECT rowid, -rank FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ?"
            " ORDER BY rank LIMIT ?"
        )
        given = (match_any(terms), *RANGES[corpus], limit)
        found: Any = self.run(lambda db: list(db.execute(sql, given)))
        return list(found)

    def match_among(
        self, among: Set[int], terms: Sequence[str], limit: int
    ) -> list[tuple[int, float]]:
        """Like `match` with the first of the `groups`, as if only some passages existed. The rank
        of FTS5 always depends on all."""
        import apsw

        if not among:
            return []
        queries = msgspec.json.encode([match_any([term]) for term in terms]).decode()
        numbers = apsw.carray(array("q", among))
        given = {"among": numbers, "first": min(among), "last": max(among), "terms": queries}

        def match(db: Connection) -> list[tuple[int, float]]:
            if self._scoring is not db:
                db.register_fts5_function("saturation", _saturation)
                self._scoring = db
            scores: dict[int, float] = {}
            with db:  # in one snapshot
                sizes: Any = list(db.execute(_SIZES, given))
                total = sum(count for _, count in sizes)
                words = sum(count * reduce(_read_varint, size, 0) for size, count in sizes)
                found: Any = db.execute(_COUNTS, given)
                counted = sorted((count, query) for count, query in found if count)
                rarity = {query: _rarity(total, count) for count, query in counted}
                kept = msgspec.json.encode(next(_split_work(counted), ())).decode()
                parts: Any = db.execute(
                    _SATURATIONS, {**given, "terms": kept, "mean": words / (total or 1)}
                )
                for query, id_, part in parts:
                    scores[id_] = scores.get(id_, 0.0) + rarity[query] * part
            return nlargest(limit, scores.items(), key=itemgetter(1))

        return self.run(match)

    def numbers(self, corpus: Corpus, sessions: Collection[str]) -> frozenset[int]:
        """The passages of notes, and of some sessions by id, in a corpus."""
        sql = (  # CROSS JOIN: without a look at the passages of other sessions
            "SELECT chunk.id FROM file CROSS JOIN chunk ON chunk.file = file.id WHERE chunk.id"
            " BETWEEN ? AND ?"
            " AND (source = 'memory' OR path IN (SELECT value FROM json_each(?)))"
        )
        paths = msgspec.json.encode([SESSION_ROOT + id_ for id_ in sessions]).decode()
        found: Any = self.run(lambda db: list(db.execute(sql, (*RANGES[corpus], paths))))
        return frozenset(id_ for (id_,) in found)

    def passages(self, scores: Mapping[int, float], *, text: bool = False) -> dict[int, Hit]:
        """Passages by their numbers, with their full text if requested."""
        shown = "text" if text else "''"
        sql = (
            f"SELECT chunk.id, file.path, start_line, end_line, source, {shown} FROM json_each(?)"  # noqa: S608
            " JOIN chunk ON chunk.id = json_each.value JOIN file ON file.id = chunk.file"
        )
        given = (msgspec.json.encode(list(scores)).decode(),)
        found: Any = self.run(lambda db: list(db.execute(sql, given)))
        return {
            id_: Hit(path, start, end, source, scores[id_], said)
            for id_, path, start, end, source, said in found
        }

    def status(
        self, files: NoteFiles | None = None, transcripts: PastSessions | None = None
    ) -> IndexStatus:
        """The state of the index compared with the files. Creates no file."""
        if not os.path.lexists(self.path):
            scan = files.scan() if files else Scan({}, ())
            return IndexStatus(0, 0, 0, len(scan.stamps), 0, self.path, problems=scan.problems)
        changed, gone, scan = self.changed(files, transcripts)
        known = self._known
        is_new = (known.get(path) != UNSURE + at for path, at in changed.items())

        def look(db: Connection) -> IndexStatus:
            sql = "SELECT problem FROM file WHERE problem <> '' ORDER BY path LIMIT ?"
            unread = [str(row[0]) for row in db.execute(sql, (MAX_PROBLEMS,))]
            notes = db.execute("SELECT count(*) FROM file").get
            chunks = db.execute("SELECT count(*) FROM chunk").get
            size = db.pragma("page_count") * db.pragma("page_size")
            problems = [*scan.problems, *unread]
            pending = len(gone) + sum(is_new)
            return IndexStatus(notes, chunks, 0, pending, size, self.path, problems=problems)

        return self.run(look)


def _split_work(counted: Sequence[tuple[int, str]]) -> Iterator[list[str]]:
    """Terms, sorted by their number of passages, in groups that can be searched quickly."""
    while counted:
        totals = accumulate(count for count, _ in counted)
        kept = [
            term
            for number, (total, (_, term)) in enumerate(zip(totals, counted, strict=True))
            if not number or total * (number + 1) <= _MAX_WORK
        ]
        yield kept
        counted = counted[len(kept) :]


def _rarity(total: int, matches: int) -> float:
    """The factor of a term in BM25, as in the rank of FTS5."""
    return max(math.log((total - matches + 0.5) / (matches + 0.5)), 1e-6)


def _saturation(row: FTS5ExtensionApi, *given: Any) -> float:
    """The other factor, which grows with the number of matches in a passage."""
    (mean,), count, size = given, row.inst_count, row.column_size()
    return count * 2.2 / (count + 1.2 * (0.25 + 0.75 * size / float(mean)))


def _read_varint(found: int, byte: int) -> int:
    return found << 7 | byte & 127


def version(db: Connection) -> object:
    """Differs after any change, by this process or another."""
    return db, db.pragma("data_version"), db.total_changes()


def _tokens(db: Connection, text: str, *tokenizer: str) -> list[str]:
    import apsw

    split = db.fts5_tokenizer(tokenizer[0], list(tokenizer[1:]))
    options = {"include_offsets": False, "include_colocated": False}
    data = text.encode("utf-8", "replace")
    return [str(word) for word in split(data, apsw.FTS5_TOKENIZE_QUERY, None, **options)]


def _frequency(db: Connection, term: str) -> int:
    """Upper bound of the passages with all words of a term."""
    stems = _tokens(db, term, "porter", "unicode61", *_TOKENIZER)
    sql = "SELECT doc FROM term WHERE term = ?"
    return min((int(db.execute(sql, (stem,)).get or 0) for stem in stems), default=0)


def _read_note(files: NoteFiles, path: str, stamp: str) -> _Reading:
    try:
        note = files.read(path)
    except (FileNotFoundError, ToolError) as error:
        # Stored with its stamp, so that it is read again only after a change.
        problem = f"{path}: was removed" if isinstance(error, FileNotFoundError) else str(error)
        return _Reading(path, "memory", stamp, b"", problem=problem)
    name = os.path.splitext(os.path.basename(path))[0]
    return _reading(path, "memory", note.stamp, note.text, name)


def _reading(path: str, source: Source, stamp: str, text: str, name: str) -> _Reading:
    chunks = [
        NoteChunk(each.start_line, each.end_line, each.text, f"{name} {each.trail}".strip())
        for each in split_note(text)
    ]
    return _Reading(path, source, stamp, digest(text), chunks)


def digest(*texts: str) -> bytes:
    made = hashlib.blake2b(digest_size=16)
    for text in texts:
        made.update(text.encode("utf-8", "surrogatepass"))
        made.update(b"\0")
    return made.digest()


def _replace(db: Connection, new: _Reading) -> None:
    row = db.execute("SELECT id, hash, problem FROM file WHERE path = ?", (new.path,)).fetchone()
    if row and row[1:] == (new.hash, new.problem):
        db.execute("UPDATE file SET stamp = ? WHERE id = ?", (new.stamp, row[0]))
        return
    if row:
        _remove_chunks(db, row[0])
    file = db.execute(
        "INSERT INTO file (path, source, stamp, hash, problem) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (path) DO UPDATE SET stamp = excluded.stamp, hash = excluded.hash,"
        " problem = excluded.problem RETURNING id",
        (new.path, new.source, new.stamp, new.hash, new.problem),
    ).get
    first, last = RANGES[new.source]
    sql = "SELECT max(id) FROM chunk WHERE id BETWEEN ? AND ?"
    id_ = db.execute(sql, (first, last)).get or first
    for each in new.chunks:
        id_ += 1
        key = digest(each.trail, each.text)
        db.execute(
            "INSERT INTO chunk VALUES (?, ?, ?, ?, ?, ?, ?)",
            (id_, file, each.start_line, each.end_line, key, each.trail, each.text),
        )
        body = index_text(f"{each.trail}\n{each.text}")
        db.execute("INSERT INTO words (rowid, body) VALUES (?, ?)", (id_, body))


def _remove_chunks(db: Connection, file: Any) -> None:
    rows: Any = db.execute("SELECT id, trail, text FROM chunk WHERE file = ?", (file,))
    words = [(id_, index_text(f"{trail}\n{text}")) for id_, trail, text in rows]
    db.executemany("INSERT INTO words (words, rowid, body) VALUES ('delete', ?, ?)", words)
    db.execute("DELETE FROM chunk WHERE file = ?", (file,))


def _forget(db: Connection, paths: Iterable[str]) -> None:
    for path in paths:
        for (file,) in db.execute("SELECT id FROM file WHERE path = ?", (path,)).fetchall():
            _remove_chunks(db, file)
            db.execute("DELETE FROM file WHERE id = ?", (file,))
