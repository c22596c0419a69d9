"""Messages between sessions as they are stored.

A message is stored before it is sent, and removed in the transaction that adds it to the
recipient's transcript, so it is read exactly once even after a crash.
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
"""Characters of unread messages that are added to a turn; the rest wait for the next one."""
_FIELDS = "id, session, sender, channel, text, chain, sandboxed, wakes, sent_ms"


class Mail(Struct, frozen=True):
    """A message from one session to another."""

    id: str
    session: str
    """Id of the recipient."""
    sender: str
    """Key of the sending session."""
    channel: str
    """Channel of the sending session; empty if it has none."""
    text: str
    chain: tuple[str, ...] = ()
    """Keys of the sessions whose messages led to this one, the sender last."""
    sandboxed: bool = False
    """Whether the sender is sandboxed; then only a sandboxed session may read it."""
    wakes: bool = False
    """Whether it may start a turn once the recipient is idle."""
    sent_ms: int = 0


class Mailbox:
    """The unread messages of one home."""

    def __init__(self, database: Database, redact: Redact | None = None) -> None:
        self._database = database
        self._redact = redact

    def put(self, mail: Mail) -> None:
        """Store a message. Raises `ConflictError` if the recipient has too many unread ones."""
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
                raise ConflictError(f"{count} messages from here are already waiting there")
            db.execute(
                f"INSERT INTO mailbox ({_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                (*names, chain, mail.sandboxed, mail.wakes, mail.sent_ms),
            )

    def unread(self, session: str, *, sandboxed: bool) -> list[Mail]:
        """The unread messages of a session, oldest first; those from sandboxed sessions only if
        the session is `sandboxed` itself."""
        with self._database.using() as db:
            rows: list[Any] = db.execute(
                f"SELECT {_FIELDS} FROM mailbox WHERE session = ? AND sandboxed <= ?"  # noqa: S608
                " ORDER BY rowid",
                (sound(session), sandboxed),
            ).fetchall()
        return [_mail(row) for row in rows]

    def remove(self, id_: str) -> bool:
        """Withdraw a message; false if it was already read."""
        with self._database.writing() as db:
            mark_read(db, (id_,))
            return bool(db.changes())


def mark_read(db: Connection, mail: Iterable[str]) -> None:
    """Remove messages in the transaction that adds them to a transcript."""
    for each in mail:
        db.execute("DELETE FROM mailbox WHERE id = ?", (sound(each),))


def _mail(row: tuple[Any, ...]) -> Mail:
    chain = msgspec.json.decode(row[5], type=tuple[str, ...])
    fields: Any = (*row[:5], chain, bool(row[6]), bool(row[7]), row[8])
    return Mail(*fields)
