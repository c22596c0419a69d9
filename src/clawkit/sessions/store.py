"""Conversations on the disk: whatever was appended is there again, however the process ended."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from clawkit.content import Assistant, Message, Summary, Text, Usage, User
from clawkit.errors import ConflictError, NotFoundError, ToolInputError
from clawkit.sessions.encode import Redact, bound_usage, decode, encode, sound
from clawkit.sessions.protocols import (
    Change,
    Changes,
    Entry,
    Event,
    Session,
    check_name,
    session_key,
)
from clawkit.sessions.repair import repair
from clawkit.store import Database, hold_lock, remove_lock
from clawkit.text import human_size, nearest, one_line

if TYPE_CHECKING:
    from apsw import Connection, SQLiteValue


APPLICATION = 0x636C6173
MIGRATIONS = (
    """
    CREATE TABLE session (
        id TEXT PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        agent TEXT NOT NULL,
        name TEXT NOT NULL,
        title TEXT NOT NULL DEFAULT '',
        workspace BLOB NOT NULL,
        model TEXT NOT NULL,
        model_override TEXT NOT NULL DEFAULT '',
        thinking TEXT NOT NULL,
        created_ms INTEGER NOT NULL,
        updated_ms INTEGER NOT NULL,
        turns INTEGER NOT NULL DEFAULT 0,
        input INTEGER NOT NULL DEFAULT 0,
        output INTEGER NOT NULL DEFAULT 0,
        cache_read INTEGER NOT NULL DEFAULT 0,
        cache_write INTEGER NOT NULL DEFAULT 0,
        cost REAL NOT NULL DEFAULT 0,
        context_tokens INTEGER NOT NULL DEFAULT 0,
        parent TEXT NOT NULL,
        version INTEGER NOT NULL DEFAULT 0,
        state BLOB NOT NULL DEFAULT x'7b7d',
        last INTEGER NOT NULL DEFAULT 0,
        -- The message that stands for all before it but those from keep_from on.
        summary INTEGER NOT NULL DEFAULT 0,
        keep_from INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    CREATE INDEX session_by_name ON session (name);
    CREATE INDEX session_by_use ON session (updated_ms);
    CREATE TABLE message (
        session TEXT NOT NULL,
        number INTEGER NOT NULL,
        body BLOB NOT NULL,
        UNIQUE (session, number)
    ) STRICT;
    CREATE TABLE change (
        session TEXT NOT NULL,
        number INTEGER NOT NULL,
        type TEXT NOT NULL,
        at_ms INTEGER NOT NULL,
        details BLOB NOT NULL,
        PRIMARY KEY (session, number)
    ) STRICT, WITHOUT ROWID;
    """,
)
COLUMNS = (
    "id, key, agent, title, workspace, model, model_override, thinking, created_ms, updated_ms,"
    " turns, input, output, cache_read, cache_write, cost, context_tokens, parent, version, state"
)
NO_USAGE = Usage()
_ADD = (
    "UPDATE session SET last = last + 1, updated_ms = max(updated_ms, ?1), version = version + ?2,"
    " turns = turns + ?3, title = iif(title = '', ?4, title), input = input + ?5,"
    " output = output + ?6, cache_read = cache_read + ?7, cache_write = cache_write + ?8,"
    " cost = cost + ?9, context_tokens = iif(?10 > 0, ?10, context_tokens),"
    " model = iif(?11 = '', model, ?11) WHERE id = ?12 RETURNING last, version"
)
KEEP_CHANGES = 200
MAX_STATE = 8_192
LETTERS = "abcdefghjkmnpqrstuvwxyz"
"""Without what is easily taken for something else. An id begins with one: it is no number."""
DIGITS = "23456789"
MAX_TITLE = 120
_TITLE_FROM = 60
_ID = re.compile(f"[{LETTERS}][{LETTERS}{DIGITS}]{{3,7}}")
_ANCESTORS = 64
_LAST = 2**62


class SessionStore:
    """The sessions of one home. Every method is one step that happens whole or not at all.

    Looking for sessions makes no file where there is none. Methods that take an `id_` want it
    whole, and raise `NotFoundError` when there is no such session.
    """

    def __init__(self, path: str, redact: Redact | None = None, *, lock_wait_s: float = 2) -> None:
        """`redact` takes secrets out of all text before it is stored; it may be set later on."""
        what = "the store of sessions"
        self._database = Database(path, what, APPLICATION, MIGRATIONS, lock_wait_s=lock_wait_s)
        self.path = self._database.path
        self.redact = redact

    def close(self) -> None:
        self._database.close()

    def create(
        self,
        agent: str,
        *,
        workspace: str,
        model: str = "",
        name: str | None = None,
        parent: str = "",
        thinking: str = "",
    ) -> Session:
        """A new session; without a name it is called by its id.

        Raises `ConflictError` when the agent has one of that name.
        """
        check_name(agent, "an agent")
        if name is not None:
            check_name(name)
        at_ms = _now_ms()
        with self._database.writing() as db:
            id_ = _new_id(db)
            key = session_key(agent, name or id_)
            _check_free(db, key, id_)
            given = (os.fsencode(workspace), sound(model), sound(thinking), parent, at_ms, at_ms)
            db.execute(
                "INSERT INTO session (id, key, agent, name, workspace, model, thinking, parent,"
                " created_ms, updated_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (id_, key, agent, name or id_, *given),
            )
            _log(db, id_, "created", at_ms)
        return self._exact(id_)

    def get(self, text: str, agent: str = "") -> Session:
        """By id, 4 characters of one or more, key, or name (of the agent, if one is named).

        Raises `NotFoundError`, or `ToolInputError` when more than one could be meant.
        """
        found = self.find(text, agent)
        if found is not None:
            return found
        known = [name for each in self.recent(limit=500) for name in (each.name, each.id)]
        close = nearest(text.strip(), known)
        hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise NotFoundError(f"{_unknown(text)}{hint}")

    def find(self, text: str, agent: str = "") -> Session | None:
        """The same; None when there is none."""
        wanted = sound(text.strip())
        start = wanted.lower() if _ID.fullmatch(wanted.lower()) else ""
        ways: list[tuple[str, tuple[str, ...]]] = [
            ("id = ? OR key = ?", (wanted, wanted)),
            ("name = ? AND agent = ?", (wanted, agent)) if agent else ("name = ?", (wanted,)),
            ("id >= ? AND id < ?", (start, f"{start}~" if start else "")),
        ]
        for where, given in ways:
            found = self._select(f"WHERE {where} ORDER BY updated_ms DESC LIMIT 9", *given)
            if len(found) > 1:
                listed = ", ".join(f"{each.id} ({each.key})" for each in found[:8])
                more = " and more" if len(found) > 8 else ""
                raise ToolInputError(
                    f"{one_line(wanted, 60)!r} may be any of these sessions: {listed}{more}; "
                    "give the id"
                )
            if found:
                return found[0]
        return None

    def recent(
        self, agent: str | None = None, workspace: str | None = None, limit: int = 20
    ) -> list[Session]:
        """The sessions that were used last, of one agent or place if one is named."""
        place = None if workspace is None else os.fsencode(workspace)
        return self._select(
            "WHERE (?1 IS NULL OR agent = ?1) AND (?2 IS NULL OR workspace = ?2)"
            " ORDER BY updated_ms DESC, rowid DESC LIMIT ?3",
            *(agent, place, limit),
        )

    def descends(self, id_: str, ancestor: str) -> bool:
        """Whether a session was started by another, or by one that was."""
        for _ in range(_ANCESTORS):
            found = self._select("WHERE id = ?", sound(id_))
            id_ = found[0].parent if found else ""
            if not id_ or id_ == ancestor:
                return bool(id_)
        return False

    def rename(self, id_: str, name: str) -> Session:
        """Call a session, and its key, by another name."""
        check_name(name)
        with self._database.writing() as db:
            key = session_key(self._exact(id_, db).agent, name)
            _check_free(db, key, id_)
            db.execute("UPDATE session SET key = ?, name = ? WHERE id = ?", (key, name, id_))
            _log(db, id_, "renamed", _now_ms(), name=name)
        return self._exact(id_)

    def update(
        self,
        id_: str,
        *,
        title: str | UnsetType = UNSET,
        workspace: str | UnsetType = UNSET,
        model: str | UnsetType = UNSET,
        model_override: str | UnsetType = UNSET,
        thinking: str | UnsetType = UNSET,
        state: Mapping[str, Any] | UnsetType = UNSET,
    ) -> Session:
        """Change what is given. Of `state`, only the keys given; None takes a key away."""
        fields: dict[str, SQLiteValue] = {}
        for column, text in (
            ("title", title if title is UNSET else self._title(title, MAX_TITLE)),
            ("model", model),
            ("model_override", model_override),
            ("thinking", thinking),
        ):
            if text is not UNSET:
                fields[column] = sound(text)
        if workspace is not UNSET:
            fields["workspace"] = os.fsencode(workspace)
        with self._database.writing() as db:
            before = self._exact(id_, db)
            if state is not UNSET:
                fields["state"] = _pack_state({**before.state, **state})
            for column, value in fields.items():
                db.execute(f"UPDATE session SET {column} = ? WHERE id = ?", (value, id_))  # noqa: S608
            for event, details in _changed(before, self._exact(id_, db)):
                _log(db, id_, event, _now_ms(), **details)
        return self._exact(id_)

    def set_model(self, id_: str, model: str) -> Session:
        """Have a session use another model; empty for its own."""
        return self.update(id_, model_override=model)

    def delete(self, id_: str) -> None:
        """Forget a session and its messages. Raises `ConflictError` while somebody uses it."""
        with self.hold(id_):
            with self._database.writing() as db:
                for change in (
                    "DELETE FROM message WHERE session = ?",
                    "DELETE FROM change WHERE session = ?",
                    "UPDATE session SET parent = '' WHERE parent = ?",
                    "DELETE FROM session WHERE id = ?",
                ):
                    db.execute(change, (id_,))
            remove_lock(self._lock_file(id_))

    def append(self, id_: str, message: Message, *, is_redacted: bool = False) -> int:
        """Add a message; it is on the disk when this returns its number. One that `is_redacted`
        has been through the same redaction before."""
        if isinstance(message, Summary):
            return self.compact(id_, message, _LAST)
        redact = None if is_redacted else self.redact
        id_, body, at_ms = sound(id_), encode(message, redact), _now_ms()
        with self._database.writing() as db:
            if isinstance(message, User):
                said = " ".join(part.text for part in message.content if isinstance(part, Text))
                title = self._title(said, _TITLE_FROM)
                return _add_message(db, id_, body, at_ms, "turn", title=title)
            if isinstance(message, Assistant):
                event: Event | None = None if message.calls else "answered"
                usage = bound_usage(message.usage)
                model = sound(message.model)
                return _add_message(db, id_, body, at_ms, event, usage=usage, model=model)
            return _add_message(db, id_, body, at_ms)

    def compact(self, id_: str, summary: Summary, keep_from: int) -> int:
        """Have a summary stand for all messages before the number `keep_from`."""
        id_, body = sound(id_), encode(summary, self.redact)
        with self._database.writing() as db:
            usage = bound_usage(summary.usage)
            number = _add_message(db, id_, body, _now_ms(), "compacted", usage=usage)
            # What another summary already stands for stays away.
            db.execute(
                "UPDATE session SET summary = ?, keep_from = max(keep_from, ?), context_tokens = 0"
                " WHERE id = ?",
                (number, min(keep_from, number), id_),
            )
        return number

    def messages(self, id_: str, *, all: bool = False) -> list[Message]:  # noqa: A002
        """What a model is to be sent: the last summary, what it keeps, and what came after, mended.

        With `all`, everything that was ever appended, as it was.
        """
        return [each.message for each in (self.history(id_, _LAST) if all else self.load(id_))]

    def load(self, id_: str) -> list[Entry]:
        """What a model is to be sent, with the numbers that `compact` takes."""
        with self._database.using() as db:
            query = "SELECT summary, keep_from FROM session WHERE id = ?"
            found = db.execute(query, (sound(id_),)).get
        if found is None:
            raise _unknown(id_)
        summary, keep_from = found
        entries = self._read("number >= ? ORDER BY number", id_, keep_from)
        entries = [each for each in entries if not isinstance(each.message, Summary)]
        if summary:
            entries = self._read("number = ?", id_, summary) + entries
        mended = repair([each.message for each in entries])
        return [Entry(entries[at].number, message) for at, message in mended]

    def history(self, id_: str, limit: int = 50, before: int | None = None) -> list[Entry]:
        """The last messages before a number, as they were appended, the oldest first."""
        self._exact(id_)
        end = _LAST if before is None else before
        return self._read("number < ? ORDER BY number DESC LIMIT ?", id_, end, limit)[::-1]

    def changes(self, id_: str, since: int = 0, limit: int = 50) -> Changes:
        """What happened to a session after a number."""
        with self._database.using() as db:
            key = (sound(id_),)
            version = db.execute("SELECT version FROM session WHERE id = ?", key).get
            earliest = db.execute("SELECT min(number) FROM change WHERE session = ?", key).get or 0
            rows: list[Any] = db.execute(
                "SELECT number, type, at_ms, details FROM change WHERE session = ? AND number > ?"
                " ORDER BY number LIMIT ?",
                (*key, min(since, _LAST), limit + 1),
            ).fetchall()
        if version is None:
            raise _unknown(id_)
        events = tuple(
            Change(number, event, at_ms, self._decode(details, id_))
            for number, event, at_ms, details in rows[:limit]
        )
        gap = since > version or since < earliest - 1
        return Changes(version, events, len(rows) > limit, earliest, gap)

    @contextmanager
    def hold(self, id_: str) -> Iterator[None]:
        """Keep a session for this process, which runs a turn in it.

        Raises `ConflictError` that says who has it. It is free again when the process is gone,
        however it ended.
        """
        session = self._exact(id_)
        with hold_lock(self._lock_file(session.id), f"the session {session.name!r}"):
            yield

    def _lock_file(self, id_: str) -> str:
        return os.path.join(os.path.dirname(self.path), "sessions", f"{id_}.lock")

    def _title(self, text: str, max_chars: int) -> str:
        line = one_line(text, max_chars * 8)
        return sound(one_line(self.redact(line) if self.redact else line, max_chars))

    def _exact(self, id_: str, db: Connection | None = None) -> Session:
        for session in self._select("WHERE id = ?", sound(id_), db=db):
            return session
        raise _unknown(id_)

    def _select(
        self, where: str, *given: SQLiteValue, db: Connection | None = None
    ) -> list[Session]:
        query = f"SELECT {COLUMNS} FROM session {where}"  # noqa: S608
        if db is not None:
            return [self._session(row) for row in db.execute(query, given)]
        if not os.path.lexists(self.path):
            return []
        with self._database.using() as db:
            return [self._session(row) for row in db.execute(query, given)]

    def _session(self, row: Sequence[Any]) -> Session:
        id_, key, agent, title, place = row[:5]
        state = self._decode(row[19], id_)
        counted = (*row[5:11], Usage(*row[11:16]), *row[16:19], state)
        return Session(id_, key, agent, title, os.fsdecode(place), *counted)

    def _read(self, where: str, id_: str, *given: int) -> list[Entry]:
        query = f"SELECT number, body FROM message WHERE session = ? AND {where}"  # noqa: S608
        with self._database.using() as db:
            rows: list[Any] = db.execute(query, (sound(id_), *given)).fetchall()
        entries: list[Entry] = []
        for number, body in rows:
            try:
                entries.append(Entry(number, decode(body)))
            except (ValueError, RecursionError) as error:
                why = f"the message {number} of the session {id_} in it is damaged: {error}"
                raise self._database.broken(why) from error
        return entries

    def _decode(self, data: bytes, id_: str) -> dict[str, Any]:
        try:
            return msgspec.json.decode(data, type=dict[str, Any])
        except (ValueError, RecursionError) as error:
            why = f"what it says about the session {id_} is damaged: {error}"
            raise self._database.broken(why) from error


def _check_free(db: Connection, key: str, id_: str) -> None:
    holder = db.execute("SELECT id FROM session WHERE key = ?", (key,)).get
    if holder not in (None, id_):
        raise ConflictError(f"the session {key!r} already exists; choose another name")


def _changed(before: Session, after: Session) -> Iterator[tuple[Event, dict[str, Any]]]:
    """What is to be told of an update."""
    if before.model_override != after.model_override:
        yield "model", {"model": after.model_override or after.model}
    if before.thinking != after.thinking:
        yield "thinking", {"thinking": after.thinking}
    if before.title != after.title:
        yield "title", {"title": after.title}
    if before.state != after.state:
        both = {**before.state, **after.state}
        keys = [key for key in both if before.state.get(key) != after.state.get(key)]
        yield "settings", {"keys": [one_line(key, 40) for key in keys[:20]]}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _unknown(id_: str) -> NotFoundError:
    return NotFoundError(f"there is no session {one_line(id_, 60)!r}")


def _new_id(db: Connection) -> str:
    while True:
        rest = (secrets.choice(LETTERS + DIGITS) for _ in range(7))
        id_ = secrets.choice(LETTERS) + "".join(rest)
        if db.execute("SELECT 1 FROM session WHERE id = ? OR name = ?", (id_, id_)).get is None:
            return id_


def _add_message(
    db: Connection,
    id_: str,
    body: bytes,
    at_ms: int,
    event: Event | None = None,
    *,
    title: str | None = None,
    usage: Usage = NO_USAGE,
    model: str = "",
) -> int:
    """Add a message, with what it brings about; its number.

    With a `title` it begins a turn, and a session that has none yet is called by it. A `model` is
    the one that the session has from now on.
    """
    counted = (*msgspec.structs.astuple(usage), usage.context)
    begun = (event is not None, title is not None, title or "")
    found = db.execute(_ADD, (at_ms, *begun, *counted, model, id_)).get
    if found is None:
        raise _unknown(id_)
    number, version = found
    db.execute("INSERT INTO message VALUES (?, ?, ?)", (id_, number, body))
    if event is not None:
        _write_down(db, id_, version, event, at_ms, {"number": number})
    return int(number)


def _log(db: Connection, id_: str, event: Event, at_ms: int, **details: Any) -> None:
    version = db.execute(
        "UPDATE session SET version = version + 1 WHERE id = ? RETURNING version", (id_,)
    ).get
    _write_down(db, id_, version, event, at_ms, details)


def _write_down(
    db: Connection, id_: str, version: int, event: Event, at_ms: int, details: Mapping[str, Any]
) -> None:
    """The oldest of many is forgotten."""
    body = msgspec.json.encode(details)
    db.execute("INSERT INTO change VALUES (?, ?, ?, ?, ?)", (id_, version, event, at_ms, body))
    if version > KEEP_CHANGES:
        old = (id_, version - KEEP_CHANGES)
        db.execute("DELETE FROM change WHERE session = ? AND number <= ?", old)


def _pack_state(state: Mapping[str, Any]) -> bytes:
    """Settings of a session as they are stored; those that are None are not."""
    try:
        data = msgspec.json.encode({key: each for key, each in state.items() if each is not None})
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolInputError(f"the settings of a session are not JSON: {error}") from None
    if len(data) > MAX_STATE:
        raise ToolInputError(
            f"the settings of a session have {human_size(len(data))}, more than "
            f"{human_size(MAX_STATE)}"
        )
    return data
