"""The tables of the session store, and the steps that its changes are made of."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from clawkit.content import Usage
from clawkit.errors import NotFoundError, ToolInputError
from clawkit.sessions.base import Event
from clawkit.text import human_size, one_line

if TYPE_CHECKING:
    from apsw import Connection

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


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def unknown(id_: str) -> NotFoundError:
    return NotFoundError(f"there is no session {one_line(id_, 60)!r}")


def new_id(db: Connection) -> str:
    while True:
        rest = (secrets.choice(LETTERS + DIGITS) for _ in range(7))
        id_ = secrets.choice(LETTERS) + "".join(rest)
        if db.execute("SELECT 1 FROM session WHERE id = ? OR name = ?", (id_, id_)).get is None:
            return id_


def add_message(
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
    found = db.execute(
        _ADD,
        (
            at_ms,
            event is not None,
            title is not None,
            title or "",
            *msgspec.structs.astuple(usage),
            usage.context,
            model,
            id_,
        ),
    ).get
    if found is None:
        raise unknown(id_)
    number, version = found
    db.execute("INSERT INTO message VALUES (?, ?, ?)", (id_, number, body))
    if event is not None:
        _write_down(db, id_, version, event, at_ms, {"number": number})
    return int(number)


def cut_off(db: Connection, id_: str, summary: int, keep_from: int) -> None:
    """Have a message stand for all before `keep_from`. What another one stands for stays away."""
    db.execute(
        "UPDATE session SET summary = ?, keep_from = max(keep_from, ?), context_tokens = 0"
        " WHERE id = ?",
        (summary, min(keep_from, summary), id_),
    )


def log(db: Connection, id_: str, event: Event, at_ms: int, **details: Any) -> None:
    """Write down that something happened."""
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


def pack_state(state: Mapping[str, Any]) -> bytes:
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
