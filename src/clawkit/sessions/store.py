"""Durable storage of conversations: an appended message survives a crash of the process.

A message between sessions is stored before it is sent, and removed in the transaction that adds it
to the recipient's transcript, so it is read exactly once even after a crash.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from clawkit.config.paths import attachments_dir
from clawkit.content import Assistant, Message, Summary, Text, Usage, User
from clawkit.errors import ConflictError, NotFoundError, ToolError, ToolInputError
from clawkit.sessions.encode import Redact, bound_usage, encode, sound
from clawkit.sessions.protocols import Event, Session, check_name, session_key
from clawkit.sessions.reader import DIGITS, LAST, LETTERS, SessionReader, unknown
from clawkit.sessions.schema import APPLICATION, MIGRATIONS
from clawkit.sessions.search import FORGET_WORDS
from clawkit.sessions.subagent_protocols import SubagentRun, now_ms
from clawkit.sessions.subagent_runs import RunStore, add_run, mark_told
from clawkit.store import Database, hold_lock, remove_lock
from clawkit.text import human_size, one_line

if TYPE_CHECKING:
    from apsw import Connection

NO_USAGE = Usage()
_ADD = (
    "UPDATE session SET last = last + 1, updated_ms = max(updated_ms, ?1), version = version + ?2,"
    " turns = turns + ?3, title = iif(title = '', ?4, title), input = input + ?5,"
    " output = output + ?6, cache_read = cache_read + ?7, cache_write = cache_write + ?8,"
    " cost = cost + ?9, context_tokens = iif(?10 > 0, ?10, context_tokens),"
    " model = iif(?11 = '', model, ?11) WHERE id = ?12 RETURNING last, version, row"
)
_COPY = (
    "INSERT INTO message SELECT (mine.row << 32) + (place & 4294967295), body"
    " FROM session AS mine, session AS other, message WHERE mine.id = ?1 AND other.id = ?2"
    " AND place BETWEEN other.row << 32 AND (other.row << 32) + 4294967295",
    "UPDATE session SET (last, summary, keep_from, context_tokens) = (SELECT last, summary,"
    " keep_from, context_tokens FROM session WHERE id = ?2) WHERE id = ?1",
)
_DELETE_MESSAGES = (
    "DELETE FROM message WHERE place BETWEEN (SELECT row << 32 FROM session WHERE id = ?1)"
    " AND (SELECT (row << 32) + 4294967295 FROM session WHERE id = ?1)"
)
KEEP_CHANGES = 200
MAX_STATE = 8_192
_SIGNS = LETTERS + DIGITS
MAX_TITLE = 120
_FLUSHED = "memoryFlushed"
"""A key of the state."""
_TITLE_FROM = 60
MAX_MESSAGE = 20_000
"""Characters."""
MAX_UNREAD = 10
"""Maximum unread messages from one session to another."""
MAX_AT_ONCE = 32_000
"""Characters of unread messages that are added to a turn; the rest wait for the next one."""
_MAIL_FIELDS = "id, session, sender, channel, text, chain, sandboxed, wakes, sent_ms"


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
                f"INSERT INTO mailbox ({_MAIL_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                (*names, chain, mail.sandboxed, mail.wakes, mail.sent_ms),
            )

    def unread(self, session: str, *, sandboxed: bool) -> list[Mail]:
        """The unread messages of a session, oldest first; those from sandboxed sessions only if
        the session is `sandboxed` itself."""
        with self._database.using() as db:
            rows: list[Any] = db.execute(
                f"SELECT {_MAIL_FIELDS} FROM mailbox WHERE session = ? AND sandboxed <= ?"  # noqa: S608
                " ORDER BY rowid",
                (sound(session), sandboxed),
            ).fetchall()
        return [_mail(row) for row in rows]

    def remove(self, id_: str) -> bool:
        """Withdraw a message; false if it was already read."""
        with self._database.writing() as db:
            _mark_read(db, (id_,))
            return bool(db.changes())


class SessionStore(SessionReader):
    """The sessions of one home. Every method is atomic. Reading never creates the database. Methods
    that take an `id_` expect the full id and raise `NotFoundError` if there is no such session."""

    def __init__(self, path: str, redact: Redact | None = None, *, lock_wait_s: float = 2) -> None:
        """`redact` removes secrets from all text before it is stored; it may be set later."""
        what = "the store of sessions"
        database = Database(path, what, APPLICATION, MIGRATIONS, lock_wait_s=lock_wait_s)
        super().__init__(database, redact)

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
        label: str = "",
        run: SubagentRun | None = None,
        copy_of: str = "",
    ) -> Session:
        """Create a session; without a name, its id is used. Raises `ConflictError` if the agent
        already has a session of that name. With `run`, the run is stored in the same transaction.
        The messages of the session `copy_of` are copied into the new one."""
        check_name(agent, "an agent")
        if name is not None:
            check_name(name)
        at_ms = now_ms()
        with self._database.writing() as db:
            id_ = _new_id(db)
            key = session_key(agent, name or id_)
            _check_free(db, key, id_)
            given = (os.fsencode(workspace), sound(model), sound(thinking), parent, at_ms, at_ms)
            db.execute(
                "INSERT INTO session (id, key, agent, name, workspace, model, thinking, parent,"
                " created_ms, updated_ms, label) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (id_, key, agent, name or id_, *given, self._title(label, MAX_TITLE)),
            )
            if copy_of:
                for change in _COPY:
                    db.execute(change, (id_, sound(copy_of)))
            if run is not None:
                add_run(db, msgspec.structs.replace(run, session=id_), self.redact)
            _log(db, id_, "created", at_ms, {})
        return self._exact(id_)

    @property
    def runs(self) -> RunStore:
        return RunStore(self._database, self.redact)

    @property
    def mailbox(self) -> Mailbox:
        return Mailbox(self._database, self.redact)

    def bring_back(self, id_: str) -> Session:
        """Unarchive a session."""
        with self._database.writing() as db:
            db.execute("UPDATE session SET archived_ms = 0 WHERE id = ?", (sound(id_),))
        return self._exact(id_)

    def rename(self, id_: str, name: str) -> Session:
        """Change the name of a session, and with it its key."""
        check_name(name)
        with self._database.writing() as db:
            key = session_key(self._exact(id_, db).agent, name)
            _check_free(db, key, id_)
            db.execute("UPDATE session SET key = ?, name = ? WHERE id = ?", (key, name, id_))
            _log(db, id_, "renamed", now_ms(), {"name": name})
        return self._exact(id_)

    def update(
        self,
        id_: str,
        *,
        title: str | None = None,
        model_override: str | None = None,
        thinking: str | None = None,
        label: str | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Session:
        """Change the given fields. `state` is merged key by key; None removes a key."""
        new_title = None if title is None else self._title(title, MAX_TITLE)
        given: tuple[tuple[Event, str, str | None], ...] = (
            ("model", "model_override", model_override),
            ("thinking", "thinking", thinking),
            ("title", "title", new_title),
        )
        with self._database.writing() as db:
            before, at_ms = self._exact(id_, db), now_ms()
            for event, column, text in given:
                if text is not None and (new := sound(text)) != getattr(before, column):
                    db.execute(f"UPDATE session SET {column} = ? WHERE id = ?", (new, id_))  # noqa: S608
                    shown = before.model if event == "model" and not new else new
                    _log(db, id_, event, at_ms, {event: shown})
            if label is not None:
                short = self._title(label, MAX_TITLE)
                db.execute("UPDATE session SET label = ? WHERE id = ?", (short, id_))
                _log(db, id_, "settings", at_ms, {"keys": ["label"]})
            if state is not None:
                after = {**before.state, **state}
                db.execute("UPDATE session SET state = ? WHERE id = ?", (_pack_state(after), id_))
                keys = [key for key in after if before.state.get(key) != after[key]]
                if keys:
                    changed = [one_line(key, 40) for key in keys[:20]]
                    _log(db, id_, "settings", at_ms, {"keys": changed})
        return self._exact(id_)

    def set_model(self, id_: str, model: str) -> Session:
        return self.update(id_, model_override=model)

    def delete(self, id_: str) -> None:
        """Delete a session with messages and attachments. Raises `ConflictError` while in use."""
        key = self._exact(id_).key
        with self.hold(id_):
            with self._database.writing() as db:
                for change in (
                    *FORGET_WORDS,
                    _DELETE_MESSAGES,
                    "DELETE FROM change WHERE session = ?",
                    "DELETE FROM run WHERE root = ?1 OR requester = ?1",
                    "DELETE FROM mailbox WHERE session = ?",
                    "UPDATE session SET parent = '' WHERE parent = ?",
                    "DELETE FROM session WHERE id = ?",
                ):
                    db.execute(change, (id_,))
            remove_lock(self._lock_file(id_))
        if ":subagent:" in key:
            import shutil

            shutil.rmtree(attachments_dir(os.environ, key), ignore_errors=True)

    def append(self, id_: str, message: Message, *, is_redacted: bool = False) -> int:
        """Store a message and return its number. `is_redacted`: secrets were already removed."""
        if isinstance(message, Summary):
            return self.compact(id_, message, LAST)
        redact = None if is_redacted else self.redact
        id_, body, at_ms = sound(id_), encode(message, redact), now_ms()
        event: Event | None = None
        title, usage, model = None, NO_USAGE, ""
        if isinstance(message, User):
            words = (part.text for part in message.content if isinstance(part, Text))
            said = " ".join(message.source.titles if message.source else words)
            event, title = "turn", self._title(said, _TITLE_FROM)
        elif isinstance(message, Assistant):
            event = None if message.calls else "answered"
            usage, model = bound_usage(message.usage), sound(message.model)
        with self._database.writing() as db:
            if isinstance(message, User) and message.source is not None:
                mark_told(db, message.source.runs)
                _mark_read(db, message.source.mail)
            return _add_message(db, id_, body, at_ms, event, title=title, usage=usage, model=model)

    def compact(self, id_: str, summary: Summary, keep_from: int) -> int:
        """Replace all messages before the number `keep_from` with a summary."""
        id_, body = sound(id_), encode(summary, self.redact)
        with self._database.writing() as db:
            usage = bound_usage(summary.usage)
            number = _add_message(db, id_, body, now_ms(), "compacted", usage=usage)
            # Messages that an earlier summary replaced stay replaced.
            db.execute(
                "UPDATE session SET summary = ?, keep_from = max(keep_from, ?), context_tokens = 0"
                " WHERE id = ?",
                (number, min(keep_from, number), id_),
            )
        return number

    @contextmanager
    def hold(self, id_: str) -> Iterator[None]:
        """Lock a session for this process. Raises `ConflictError` that names the holder."""
        session = self._exact(id_)
        with hold_lock(self._lock_file(session.id), f"the session {session.name!r}"):
            yield

    def _title(self, text: str, max_chars: int) -> str:
        line = one_line(text, max_chars * 8)
        return sound(one_line(self.redact(line) if self.redact else line, max_chars))


class LiveSession:
    """The conversation of a running agent, locked for its process."""

    def __init__(
        self,
        store: SessionStore,
        session: Session,
        *,
        is_new: bool = False,
        shares_store: bool = False,
    ) -> None:
        """Raises `ConflictError` if another process has the session open. A store that is not
        shared is closed together with it."""
        self.store = store
        self._shares_store = shares_store
        self.id = session.id
        self._is_empty = is_new
        self._numbers: dict[int, tuple[Message, int]] = {}
        """`id()` of a message to the message, which keeps the `id()` valid, and its number."""
        self.last = 0
        """The number of the last message."""
        self._locks = ExitStack()
        self._locks.enter_context(store.hold(session.id))

    @classmethod
    def open(cls, store: SessionStore, agent: str, name: str | None, workspace: str) -> LiveSession:
        """Open the session with exactly that name, id or key, or create one of that name; takes
        ownership of the store."""
        try:
            session = store.find(name, agent) if name else None
            if session is None:
                created = store.create(agent, workspace=workspace, name=name)
                return cls(store, created, is_new=True)
            if session.agent != agent:
                what = f"the session {session.name!r} belongs to the agent {session.agent!r}"
                raise ToolInputError(f"{what}, not to {agent!r}")
            return cls(store, session)
        except BaseException:
            store.close()
            raise

    @property
    def session(self) -> Session:
        return self.store._exact(self.id)

    def load(self) -> list[Message]:
        entries = self.store.load(self.id)
        self._numbers = {id(each.message): (each.message, each.number) for each in entries}
        self.last = max((each.number for each in entries), default=0)
        return [each.message for each in entries]

    def append(self, message: Message, *, is_redacted: bool = False) -> None:
        self.last = self.store.append(self.id, message, is_redacted=is_redacted)
        self._numbers[id(message)] = message, self.last
        self._is_empty = False

    def compact(self, summary: Summary, kept: Sequence[Message]) -> None:
        # A message that could not be stored has no number.
        known = {id(each): self._numbers[id(each)] for each in kept if id(each) in self._numbers}
        after = max((number for _, number in self._numbers.values()), default=0) + 1
        keep_from = min((number for _, number in known.values()), default=after)
        self.last = self.store.compact(self.id, summary, keep_from)
        self._numbers = {**known, id(summary): (summary, self.last)}

    @property
    def is_flushed(self) -> bool:
        """Whether notes were saved since the last compaction."""
        return bool(self.session.state.get(_FLUSHED))

    def mark_flushed(self, is_flushed: bool) -> None:
        self.update(state={_FLUSHED: is_flushed or None})

    def update(self, **changes: Any) -> None:
        self.store.update(self.id, **changes)
        self._is_empty = False

    def close(self) -> None:
        """Release the session. It is deleted if it has no messages and no settings."""
        self._locks.close()
        if self._is_empty:
            # Nothing is lost if this fails; another process may have opened the session.
            with suppress(ToolError):
                self.store.delete(self.id)
        if not self._shares_store:
            self.store.close()


def _mark_read(db: Connection, mail: Iterable[str]) -> None:
    """Remove messages in the transaction that adds them to a transcript."""
    for each in mail:
        db.execute("DELETE FROM mailbox WHERE id = ?", (sound(each),))


def _mail(row: tuple[Any, ...]) -> Mail:
    chain = msgspec.json.decode(row[5], type=tuple[str, ...])
    fields: Any = (*row[:5], chain, bool(row[6]), bool(row[7]), row[8])
    return Mail(*fields)


def _check_free(db: Connection, key: str, id_: str) -> None:
    holder = db.execute("SELECT id FROM session WHERE key = ?", (key,)).get
    if holder not in (None, id_):
        raise ConflictError(f"the session {key!r} already exists; choose another name")


def _new_id(db: Connection) -> str:
    while True:
        first, *rest = os.urandom(8)
        id_ = LETTERS[first % len(LETTERS)]
        id_ += "".join(_SIGNS[byte % len(_SIGNS)] for byte in rest)
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
    """Add a message and return its number. A message with a `title` starts a turn, and its title
    becomes that of a session without one."""
    counted = (*msgspec.structs.astuple(usage), usage.context)
    begun = (event is not None, title is not None, title or "")
    found = db.execute(_ADD, (at_ms, *begun, *counted, model, id_)).get
    if found is None:
        raise unknown(id_)
    number, version, row = found
    db.execute("INSERT INTO message VALUES (?, ?)", ((row << 32) + number, body))
    if event is not None:
        _log(db, id_, event, at_ms, {"number": number}, version)
    return int(number)


def _log(
    db: Connection,
    id_: str,
    event: Event,
    at_ms: int,
    details: Mapping[str, Any],
    version: int = 0,
) -> None:
    """Log a change under the next or the given number; the oldest of too many are deleted."""
    if not version:
        query = "UPDATE session SET version = version + 1 WHERE id = ? RETURNING version"
        version = db.execute(query, (id_,)).get
    body = msgspec.json.encode(details)
    db.execute("INSERT INTO change VALUES (?, ?, ?, ?, ?)", (id_, version, event, at_ms, body))
    old = (id_, version - KEEP_CHANGES)
    db.execute("DELETE FROM change WHERE session = ? AND number <= ?", old)


def _pack_state(state: Mapping[str, Any]) -> bytes:
    """Encode the settings of a session; those that are None are left out."""
    try:
        data = msgspec.json.encode({key: each for key, each in state.items() if each is not None})
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolInputError(f"the settings of a session are not JSON: {error}") from None
    if len(data) > MAX_STATE:
        sizes = f"{human_size(len(data))}, more than {human_size(MAX_STATE)}"
        raise ToolInputError(f"the settings of a session have {sizes}")
    return data
