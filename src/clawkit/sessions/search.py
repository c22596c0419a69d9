"""Selection of sessions in SQL, since there may be many, and full-text search over messages.

Messages are indexed by the next search rather than when they are stored, so that storing one stays
cheap.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from clawkit.content import Assistant, Text, User
from clawkit.errors import ToolInputError
from clawkit.sessions.encode import Redact, decode, sound
from clawkit.sessions.protocols import Filter, MessageHit, Session, Visible
from clawkit.store import Database
from clawkit.text import one_line

if TYPE_CHECKING:
    from apsw import Connection

MAX_QUERY, MAX_PHRASES = 1_000, 32
SNIPPET = 300
INDEX_S = 20.0
"""Seconds that one search may spend on indexing; the next one continues."""
BATCH_MESSAGES, BATCH_CHARS = 400, 1_000_000
_PAUSE_S = 0.001
FEW = 2_000
"""Up to this many matches are sorted in memory; with more, each session is searched in turn."""
NOT_A_RESULT = 'substr(body, 1, 20) <> CAST(\'{"type":"toolResult"\' AS BLOB)'
_LAST_NUMBER = 2**32 - 1
_MARGIN = 8_192  # characters redacted beyond a snippet: longer than any secret across its end
_PHRASE = r'"([^"]*)"?|([^\s"]+)'
_NEW = "FROM session LEFT JOIN searched USING (row) WHERE last > coalesce(number, 0)"
FORGET_WORDS = (
    "DELETE FROM words WHERE rowid BETWEEN (SELECT row << 32 FROM session WHERE id = ?1)"
    " AND (SELECT (row << 32) + 4294967295 FROM session WHERE id = ?1)",
    "DELETE FROM searched WHERE row = (SELECT row FROM session WHERE id = ?1)",
)
_SEEN = (
    "(key = :key OR agent IN (SELECT value FROM json_each(:agents)) OR"
    " (agent IN (SELECT value FROM json_each(:own_agents)) AND id IN ("
    "WITH RECURSIVE own (id) AS (SELECT id FROM session WHERE parent = :id AND :id <> ''"
    " UNION SELECT session.id FROM session JOIN own ON session.parent = own.id)"
    " SELECT id FROM own)))"
)
# The same as `keys.kind_of`; a test compares the two.
_KIND = (
    "CASE WHEN name = :main THEN 'main' WHEN name GLOB 'cron:*' THEN 'cron'"
    " WHEN name GLOB 'hook:*' THEN 'hook' WHEN name GLOB 'node-*' THEN 'node'"
    " WHEN substr(name, instr(name, ':')) GLOB ':group:?*' THEN 'group'"
    " WHEN substr(name, instr(name, ':')) GLOB ':channel:?*' THEN 'group' ELSE 'other' END"
)
LAST_USED = "ORDER BY updated_ms DESC, row DESC"
_VISIBLE_ROWS = f"SELECT row FROM session WHERE {_SEEN} {LAST_USED}"  # noqa: S608
_WANTED = " AND ".join(
    (
        _SEEN,
        "updated_ms >= :since_ms",
        "name <> 'unknown'",
        "(name <> 'global' OR :main = 'global')",
        "(:archived IS NULL OR (archived_ms <> 0) = :archived)",
        "(:label = '' OR label = :label)",
        "(:agent = '' OR lower(agent) = :agent)",
        "(:workspace IS NULL OR workspace = :workspace)",
        "(:sub_agents OR name NOT GLOB 'subagent:*')",
        "(:ids IS NULL OR id IN (SELECT value FROM json_each(:ids)))",
        f"(:kinds IS NULL OR {_KIND} IN (SELECT value FROM json_each(:kinds)))",  # noqa: S608
        "(:text = '' OR instr(lower(key || char(10) || label || char(10) || title), :text))",
    )
)
# Only numbers are sorted, not whole rows.
_PAGE = f"SELECT row FROM session WHERE {_WANTED} {LAST_USED} LIMIT :limit OFFSET :offset"  # noqa: S608
COUNT = f"SELECT count(*) FROM session WHERE {_WANTED}"  # noqa: S608
LISTING = f"WHERE row IN ({_PAGE}) {LAST_USED}"
RELATIVES = (
    f"SELECT id, parent, key FROM session"  # noqa: S608
    " WHERE (id IN (SELECT value FROM json_each(:parents))"
    " OR parent IN (SELECT value FROM json_each(:children)))"
    f" AND {_SEEN} {LAST_USED}"
)


def see(visible: Visible) -> dict[str, str]:
    return {
        "id": visible.id,
        "key": visible.key,
        "agents": in_json(visible.agents),
        "own_agents": in_json(visible.own_agents),
    }


def want(wanted: Filter, ids: Iterable[str] | None) -> Mapping[str, str | bytes | int | None]:
    """The parameters of `LISTING`; `ids` restricts the sessions, None for any."""
    return {
        "since_ms": wanted.since_ms,
        "main": wanted.main,
        "archived": wanted.archived,
        "label": wanted.label,
        "agent": wanted.agent.lower(),
        "workspace": os.fsencode(wanted.workspace) if wanted.workspace else None,
        "sub_agents": wanted.sub_agents,
        "ids": None if ids is None else in_json(ids),
        "kinds": in_json(wanted.kinds) if wanted.kinds else None,
        "text": wanted.text.lower(),
    }


def in_json(values: Iterable[str | int]) -> str:
    """Several values as one parameter, for `json_each`."""
    return msgspec.json.encode(list(values)).decode()


def read_query(text: str) -> list[str]:
    """The words and quoted phrases of a query. Raises `ToolInputError` for none or too many."""
    pieces = [one or other for one, other in re.findall(_PHRASE, sound(text).replace("\0", " "))]
    phrases = [each for each in pieces if any(map(str.isalnum, each))]
    if not phrases:
        raise ToolInputError("the query has no words; give one or more that must all occur")
    if len(text) > MAX_QUERY or len(phrases) > MAX_PHRASES:
        limits = f"{MAX_PHRASES} words and {MAX_QUERY:,} characters"
        raise ToolInputError(f"the query is too long; the maximum is {limits}")
    return phrases


def bring_up_to_date(database: Database, index_s: float) -> int:
    """Index new messages. Returns the number of sessions that are not fully indexed yet."""
    end = time.monotonic() + index_s
    with database.using() as db:
        left = _count_new(db)
    while left and time.monotonic() < end:
        # One transaction per batch, with a pause in between so that others can store messages:
        # without it, they might never get the lock.
        with database.writing() as db:
            _index_batch(db)
            left = _count_new(db)
        time.sleep(_PAUSE_S)
    return left


def _count_new(db: Connection) -> int:
    return int(db.execute(f"SELECT count(*) {_NEW}").get or 0)


def _index_batch(db: Connection) -> None:
    messages, chars = BATCH_MESSAGES, BATCH_CHARS
    query = f"SELECT row, last, coalesce(number, 0) {_NEW} ORDER BY updated_ms DESC LIMIT 100"
    sessions: list[Any] = db.execute(query).fetchall()
    for row, last, done in sessions:
        start = row << 32
        query = f"SELECT place, body FROM message WHERE place > ? AND place <= ? AND {NOT_A_RESULT}"  # noqa: S608
        for place, body in db.execute(query, (start + done, start + last)):
            if messages <= 0 or chars <= 0:
                break
            text = _text_of(body)
            if text:
                db.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (place, text))
            messages, chars = messages - 1, chars - len(text)
            done = place - start
        else:
            done = last
        db.execute("INSERT OR REPLACE INTO searched VALUES (?, ?)", (row, done))
        if messages <= 0 or chars <= 0:
            return


def _text_of(body: bytes) -> str:
    """The text of a user or assistant message; empty for all others."""
    try:
        message = decode(body)
    except (ValueError, RecursionError):
        return ""  # the damage is reported when the session is read
    if not isinstance(message, (User, Assistant)):
        return ""
    return "\n".join(part.text for part in message.content if isinstance(part, Text))


def find_places(db: Connection, phrases: Sequence[str], visible: Visible, limit: int) -> list[int]:
    """Places of messages that contain all phrases: most recently used sessions first, and the
    latest messages of each first."""
    # Quoted text is literal in an FTS5 query; quotes in it are doubled.
    match = " ".join('"{}"'.format(phrase.replace('"', '""')) for phrase in phrases)
    rows = [int(row) for (row,) in db.execute(_VISIBLE_ROWS, see(visible))]
    found = _match(db, match, 0, 2**62, FEW)
    if len(found) < FEW:
        order = {row: at for at, row in enumerate(rows)}
        seen = [place for place in found if place >> 32 in order]
        return sorted(seen, key=lambda place: (order[place >> 32], -place))[:limit]
    places: list[int] = []
    for row in rows:
        start = row << 32
        places += _match(db, match, start, start + _LAST_NUMBER, limit - len(places))
        if len(places) >= limit:
            break
    return places


def _match(db: Connection, match: str, first: int, last: int, limit: int) -> list[int]:
    query = (
        "SELECT rowid FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ?"
        " ORDER BY rowid DESC LIMIT ?"
    )
    return [int(place) for (place,) in db.execute(query, (match, first, last, limit))]


def make_hit(
    session: Session, number: int, body: bytes, phrases: Sequence[str], redact: Redact | None
) -> MessageHit:
    message = decode(body)
    role: Any = "user" if isinstance(message, User) else "assistant"
    return MessageHit(
        session, number, role, message.at_ms, _cut_out(_text_of(body), phrases, redact)
    )


def _cut_out(text: str, phrases: Sequence[str], redact: Redact | None) -> str:
    """The text around the first phrase, on one line."""
    at = _locate(text, phrases)
    near = text[max(0, at - _MARGIN) : at + _MARGIN]
    near = " ".join((redact(near) if redact else near).split())
    begin = max(0, _locate(near, phrases) - SNIPPET // 3)
    return one_line(f"{'…' if begin else ''}{near[begin:]}", SNIPPET)


def _locate(text: str, phrases: Sequence[str]) -> int:
    """Offset of the first phrase; 0 if only the index matches it, such as without an accent."""
    words = (r"\W+".join(re.findall(r"\w+", phrase)) for phrase in phrases)
    found = re.search("|".join(rf"\b{word}\b" for word in words), text, re.IGNORECASE)
    return found.start() if found else 0
