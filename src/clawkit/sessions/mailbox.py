"""Messages between sessions as they are stored.

A message is stored before it is sent, and removed in the transaction that adds it to the transcript
of the session it is for. So whatever happens in between, it is read once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from clawkit.errors import ConflictError, NotFoundError
from clawkit.sessions.encode import Redact, sound

if TYPE_CHECKING:
    from apsw import Connection

    from clawkit.store import Database

MAX_MESSAGE = 20_000
"""Characters."""
MAX_UNREAD = 10
"""Messages that one session may leave in another one."""
MAX_AT_ONCE = 32_000
"""Characters of messages that one turn reads besides what it is about; the others wait."""
_FIELDS = "id, session, sender, channel, text, chain, sandboxed, wakes, sent_ms"


class Mail(Struct, frozen=True):
    """A message from one session to another."""

    id: str
    session: str
    """Id of the session that it is for."""
    sender: str
    """Key of the session that sent it."""
    channel: str
    """The messenger behind the sender; empty when there is none."""
    text: str
    chain: tuple[str, ...] = ()
    """Keys of the sessions that led to it, the sender last."""
    sandboxed: bool = False
    """Whether the sender is: only a sandboxed session reads it then."""
    wakes: bool = False
    """Whether it may start a turn by itself, once the session is idle."""
    sent_ms: int = 0


class Mailbox:
    """The messages of one home that were not read yet."""

    def __init__(self, database: Database, redact: Redact | None = None) -> None:
        self._database = database
        self._redact = redact

    def put(self, mail: Mail) -> None:
        """Store a message. Raises `ConflictError` when too many wait already."""
        text = self._redact(mail.text) if self._redact else mail.text
        names = map(sound, (mail.id, mail.session, mail.sender, mail.channel, text))
        chain = msgspec.json.encode(mail.chain).decode()
        with self._database.writing() as db:
            count: Any = db.execute(
                "SELECT (SELECT count(*) FROM mailbox WHERE session = ?1 AND sender = ?2)"
                " FROM session WHERE id = ?1",
                (mail.session, sound(mail.sender)),
            ).get
            if count is None:
                raise NotFoundError("that session was deleted")
            if count >= MAX_UNREAD:
                raise ConflictError(
                    f"{count} messages from here wait there already; its next turn reads them"
                )
            db.execute(
                f"INSERT INTO mailbox ({_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                (*names, chain, mail.sandboxed, mail.wakes, mail.sent_ms),
            )

    def unread(self, session: str, *, sandboxed: bool) -> list[Mail]:
        """The messages for a session, the oldest first; from a sandbox only to a sandbox."""
        with self._database.using() as db:
            rows: list[Any] = db.execute(
                f"SELECT {_FIELDS} FROM mailbox WHERE session = ? AND sandboxed <= ?"  # noqa: S608
                " ORDER BY rowid",
                (sound(session), sandboxed),
            ).fetchall()
        return [_mail(row) for row in rows]

    def remove(self, id_: str) -> bool:
        """Take a message back; false when it was read."""
        with self._database.writing() as db:
            mark_read(db, (id_,))
            return bool(db.changes())


def mark_read(db: Connection, mail: Iterable[str]) -> None:
    """Messages are in a transcript, in the transaction that puts them there."""
    for each in mail:
        db.execute("DELETE FROM mailbox WHERE id = ?", (sound(each),))


def _mail(row: tuple[Any, ...]) -> Mail:
    chain = msgspec.json.decode(row[5], type=tuple[str, ...])
    fields: Any = (*row[:5], chain, bool(row[6]), bool(row[7]), row[8])
    return Mail(*fields)
