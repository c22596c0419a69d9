"""Finding and reading sessions. Nothing here modifies them; only the search index is written."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from clawkit.content import Summary, Usage
from clawkit.errors import NotFoundError, ToolAuthorizationError, ToolInputError
from clawkit.sessions import search
from clawkit.sessions.encode import Redact, decode, sound
from clawkit.sessions.protocols import (
    Changes,
    Filter,
    MessageHits,
    MessagePage,
    Refuse,
    Relative,
    Session,
    SessionChange,
    StoredMessage,
    Visible,
)
from clawkit.sessions.repair import repair
from clawkit.store import Database, is_held
from clawkit.text import nearest, one_line

if TYPE_CHECKING:
    from apsw import Connection, SQLiteValue

COLUMNS = (
    "id, key, agent, title, workspace, model, model_override, thinking, created_ms, updated_ms,"
    " turns, input, output, cache_read, cache_write, cost, context_tokens, parent, version, label,"
    " archived_ms, state"
)
_FOUND = (
    f"SELECT place, body, {COLUMNS} FROM message JOIN session ON row = place >> 32"  # noqa: S608
    " WHERE place IN (SELECT value FROM json_each(?))"
)
MAX_NUMBER = 2**32 - 1
_OF_SESSION = "id = ?1 AND place BETWEEN (row << 32) + ?2 AND (row << 32) + ?3"
_MESSAGES = (
    f"SELECT place & 4294967295, body FROM session, message WHERE {_OF_SESSION} ORDER BY place"  # noqa: S608
)
_LAST_SAID = (
    "SELECT (SELECT json_extract(CAST(body AS TEXT), '$.atMs') FROM message"
    " WHERE place BETWEEN row << 32 AND (row << 32) + 4294967295"
    ' AND substr(body, 1, 14) = CAST(\'{"type":"user"\' AS BLOB)'
    " AND json_extract(CAST(body AS TEXT), '$.source') IS NULL ORDER BY place DESC LIMIT 1)"
    " FROM session WHERE agent = ? AND updated_ms >= ? AND parent = ''"
)
MAX_ANCESTORS = 64
_LINEAGE = (
    "WITH RECURSIVE above (id, depth) AS ("
    " SELECT parent, 1 FROM session WHERE id = ?1 AND parent <> '' UNION"
    " SELECT parent, depth + 1 FROM session JOIN above USING (id)"
    " WHERE parent <> '' AND depth < ?2"
    ") SELECT id FROM above ORDER BY depth"
)
LETTERS = "abcdefghjkmnpqrstuvwxyz"
"""Letters without easily confused ones. An id starts with a letter so that it is not a number."""
DIGITS = "23456789"
_ID = f"[{LETTERS}][{LETTERS}{DIGITS}]{{3,7}}"
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
LAST = 2**62


class SessionReader:
    """Read access to the sessions of one home: `Sessions`. Reading never creates the database."""

    def __init__(self, database: Database, redact: Redact | None) -> None:
        self._database = database
        self.path = database.path
        self.redact = redact

    def find(self, text: str, agent: str = "", *, is_short: bool = False) -> Session | None:
        """The session with exactly that id or key, or that name of the agent; with `is_short`, a
        unique id prefix is also accepted. Raises `ToolInputError` if it is ambiguous."""
        wanted = sound(text)
        ways = [("id = ? OR key = ?", wanted, wanted), ("name = ? AND agent = ?", wanted, agent)]
        return self._first(wanted, None, *ways, *[_beginning(wanted)] * is_short)

    def get(self, text: str, agent: str = "", refuse: Refuse | None = None) -> Session:
        wanted = sound(text.strip())
        uuid = f"*:{wanted.lower()}" if re.fullmatch(_UUID, wanted.lower()) else ""
        # Models choose labels, so everything else takes precedence, and no label can pass for a
        # key.
        label = "" if wanted.startswith("agent:") else wanted
        ways = [
            ("id = ? OR key = ?", wanted, wanted),
            ("name = ? AND ? IN (agent, '')", wanted, agent),
            ("name GLOB ?", uuid),
            _beginning(wanted),
            ("label = ? AND archived_ms = 0", label),
        ]
        if (found := self._first(wanted, refuse, *ways)) is not None:
            return found
        recent = self.recent(agent or None, limit=500)
        recent = [each for each in recent if not (refuse and refuse(each))]
        close = nearest(text.strip(), [name for each in recent for name in (each.name, each.id)])
        hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise NotFoundError(f"{unknown(text)}{hint}")

    def _first(self, wanted: str, refuse: Refuse | None, *ways: tuple[str, ...]) -> Session | None:
        """The result of the first of the `ways` that finds anything; each is a condition and its
        arguments. Those with an empty argument are skipped."""
        refused, shown = "", repr(one_line(wanted, 60))
        for where, *given in (each for each in ways if each[1]):
            found = self._select(f"WHERE {where} ORDER BY updated_ms DESC LIMIT 50", *given)
            why = [refuse(each) if refuse else "" for each in found]
            seen = [each for each, hidden in zip(found, why, strict=True) if not hidden]
            if len(seen) > 1:
                listed = ", ".join(f"{each.id} ({each.key})" for each in seen[:8])
                listed += " and more" if len(seen) > 8 else ""
                what = f"{shown} is ambiguous; it matches these sessions: {listed}"
                raise ToolInputError(f"{what}; give the id")
            if seen:
                return seen[0]
            refused = refused or "".join(why[:1])
        if refused:
            hidden = f"the session {shown} cannot be seen from here: {refused}"
            raise ToolAuthorizationError(hidden, reason="rule")
        return None

    def recent(
        self, agent: str | None = None, workspace: str | None = None, limit: int = 20
    ) -> list[Session]:
        """The most recently used sessions, optionally of one agent or workspace."""
        place = None if workspace is None else os.fsencode(workspace)
        which = "WHERE (?1 IS NULL OR agent = ?1) AND (?2 IS NULL OR workspace = ?2)"
        return self._select(f"{which} {search.LAST_USED} LIMIT ?3", agent, place, limit)

    def lineage(self, id_: str) -> tuple[str, ...]:
        rows = self._rows(_LINEAGE, (sound(id_), MAX_ANCESTORS))
        return tuple(str(parent) for (parent,) in rows)

    def unused_since(self, names: str, before_ms: int) -> list[Session]:
        """The sessions whose names fit a glob and that were last used before a time."""
        return self._select("WHERE name GLOB ? AND updated_ms < ?", names, before_ms)

    def last_said(self, agent: str, since_ms: int) -> int:
        """When a person last wrote to an agent, since a given time; 0 if never."""
        found = self._rows(_LAST_SAID, (agent, since_ms))
        return max((at_ms or 0 for (at_ms,) in found), default=0)

    def agents(self) -> list[str]:
        return [str(agent) for (agent,) in self._rows("SELECT DISTINCT agent FROM session")]

    def listing(
        self, visible: Visible, wanted: Filter, limit: int, offset: int = 0
    ) -> list[Session]:
        given = {**self._choose(visible, wanted), "limit": limit, "offset": offset}
        return self._select(search.LISTING, given)

    def count(self, visible: Visible, wanted: Filter) -> int:
        """The number of sessions that `listing` would return without a limit."""
        if not os.path.lexists(self.path):
            return 0
        given = self._choose(visible, wanted)
        with self._database.using() as db:
            found: Any = db.execute(search.COUNT, given).get
        return int(found)

    def _choose(self, visible: Visible, wanted: Filter) -> dict[str, Any]:
        ids = self._in_use() if wanted.in_use else None
        return {**search.see(visible), **search.want(wanted, ids)}

    def relatives(self, sessions: Sequence[Session], visible: Visible) -> list[Relative]:
        given = search.see(visible) | {
            "children": search.in_json(each.id for each in sessions),
            "parents": search.in_json({each.parent for each in sessions}),
        }
        return [Relative(*row) for row in self._rows(search.RELATIVES, given)]

    def page(
        self, id_: str, limit: int, offset: int = 0, upto: int | None = None, *, tools: bool = False
    ) -> MessagePage:
        self._exact(id_)
        last = MAX_NUMBER if upto is None else min(max(upto, 0), MAX_NUMBER)
        which = "" if tools else f" AND {search.NOT_A_RESULT}"
        with self._database.using() as db:
            count = f"SELECT count(*) FROM session, message WHERE {_OF_SESSION}{which}"  # noqa: S608
            total: Any = db.execute(count, (sound(id_), 0, MAX_NUMBER)).get
            newer: Any = db.execute(count, (sound(id_), last + 1, MAX_NUMBER)).get
            query = (
                f"SELECT place & 4294967295, body FROM session, message WHERE {_OF_SESSION}{which}"  # noqa: S608
                " ORDER BY place DESC LIMIT ?4 OFFSET ?5"
            )
            rows: Any = db.execute(query, (sound(id_), 0, last, limit, offset)).fetchall()
        return MessagePage(self._entries(id_, rows[::-1]), total, newer + offset)

    def search(
        self, query: str, visible: Visible, limit: int, *, index_s: float = search.INDEX_S
    ) -> MessageHits:
        """Indexes for at most `index_s` seconds; counts the sessions left unindexed."""
        phrases = search.read_query(query)
        if not os.path.lexists(self.path):
            return MessageHits(())
        left = search.bring_up_to_date(self._database, index_s)
        with self._database.using() as db:
            places = search.find_places(db, phrases, visible, limit + 1)
            found: Any = db.execute(_FOUND, (search.in_json(places[:limit]),)).fetchall()
        rows = {row[0]: row[1:] for row in found}
        hits = [
            search.make_hit(
                self._session(row[1:]), place & MAX_NUMBER, row[0], phrases, self.redact
            )
            for place in places[:limit]
            if (row := rows.get(place))  # it may have been deleted in the meantime
        ]
        return MessageHits(hits, len(places) > limit, left)

    def _in_use(self) -> list[str]:
        """Ids of the sessions that a process has open."""
        folder = os.path.dirname(self._lock_file(""))
        names = os.listdir(folder) if os.path.isdir(folder) else []
        return [name.removesuffix(".lock") for name in names if is_held(os.path.join(folder, name))]

    def load(self, id_: str) -> list[StoredMessage]:
        """The messages to send to a model, repaired: the last summary, the messages it keeps, and
        everything after; with the numbers that `compact` takes."""
        with self._database.using() as db:
            query = "SELECT summary, keep_from FROM session WHERE id = ?"
            found = db.execute(query, (sound(id_),)).get
        if found is None:
            raise unknown(id_)
        summary, keep_from = found
        entries = self._read(id_, keep_from)
        entries = [each for each in entries if not isinstance(each.message, Summary)]
        if summary:
            entries = self._read(id_, summary, summary) + entries
        mended = repair([each.message for each in entries])
        return [StoredMessage(entries[at].number, message) for at, message in mended]

    def history(
        self, id_: str, limit: int = LAST, before: int | None = None
    ) -> list[StoredMessage]:
        """The last messages before a number, as appended, oldest first."""
        self._exact(id_)
        last = LAST if before is None else before - 1
        return self._read(id_, last=last, limit=limit, newest=True)[::-1]

    def changes(self, id_: str, since: int = 0, limit: int = 50) -> Changes:
        with self._database.using() as db:
            key = (sound(id_),)
            version = db.execute("SELECT version FROM session WHERE id = ?", key).get
            earliest = db.execute("SELECT min(number) FROM change WHERE session = ?", key).get or 0
            rows: list[Any] = db.execute(
                "SELECT number, type, at_ms, details FROM change WHERE session = ? AND number > ?"
                " ORDER BY number LIMIT ?",
                (*key, min(since, LAST), limit + 1),
            ).fetchall()
        if version is None:
            raise unknown(id_)
        events = tuple(
            SessionChange(number, event, at_ms, self._decode(details, id_))
            for number, event, at_ms, details in rows[:limit]
        )
        gap = since > version or since < earliest - 1
        return Changes(version, events, len(rows) > limit, earliest, gap)

    def _lock_file(self, id_: str) -> str:
        return os.path.join(os.path.dirname(self.path), "sessions", f"{id_}.lock")

    def _exact(self, id_: str, db: Connection | None = None) -> Session:
        for session in self._select("WHERE id = ?", sound(id_), db=db):
            return session
        raise unknown(id_)

    def _select(
        self,
        where: str,
        *given: SQLiteValue | Mapping[str, SQLiteValue],
        db: Connection | None = None,
    ) -> list[Session]:
        bound: Any = given[0] if given and isinstance(given[0], Mapping) else given
        query = f"SELECT {COLUMNS} FROM session {where}"  # noqa: S608
        rows = self._rows(query, bound) if db is None else db.execute(query, bound)
        return [self._session(row) for row in rows]

    def _rows(self, query: str, values: Any = ()) -> list[Any]:
        if not os.path.lexists(self.path):
            return []
        with self._database.using() as db:
            return db.execute(query, values).fetchall()

    def _session(self, row: Sequence[Any]) -> Session:
        id_, key, agent, title, place = row[:5]
        state = self._decode(row[21], id_)
        counted = (*row[5:11], Usage(*row[11:16]), *row[16:21], state)
        return Session(id_, key, agent, title, os.fsdecode(place), *counted)

    def _read(
        self, id_: str, first: int = 0, last: int = LAST, limit: int = -1, *, newest: bool = False
    ) -> list[StoredMessage]:
        """Messages of a range of numbers, in order; with `newest`, the latest first."""
        query = _MESSAGES + (" DESC LIMIT ?4" if newest else " LIMIT ?4")
        given = (sound(id_), max(first, 0), min(max(last, -1), MAX_NUMBER), limit)
        return self._entries(id_, self._rows(query, given))

    def _entries(self, id_: str, rows: Sequence[tuple[int, bytes]]) -> list[StoredMessage]:
        entries: list[StoredMessage] = []
        for number, body in rows:
            try:
                entries.append(StoredMessage(number, decode(body)))
            except (ValueError, RecursionError) as error:
                why = f"the message {number} of the session {id_} in it is damaged: {error}"
                raise self._database.broken(why) from error
        return entries

    def _decode(self, data: bytes, id_: str) -> dict[str, Any]:
        try:
            return msgspec.json.decode(data, type=dict[str, Any])
        except (ValueError, RecursionError) as error:
            why = f"the data of the session {id_} in it is damaged: {error}"
            raise self._database.broken(why) from error


def _beginning(wanted: str) -> tuple[str, str, str]:
    start = wanted.lower() if re.fullmatch(_ID, wanted.lower()) else ""
    return "id >= ? AND id < ?", start, f"{start}~"


def unknown(id_: str) -> NotFoundError:
    return NotFoundError(f"there is no session {one_line(id_, 60)!r}")
