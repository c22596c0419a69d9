"""Asks for approval: stores each question, and asks all reachable people at once.

Any process of the same user can answer, and all answers go through the store. So exactly one
counts, and later ones are rejected with an error. Decisions, who made them, and whether an approval
has been used are stored only there; any problem with the file is an error, never an approval.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec.structs import replace

from clawkit import errors
from clawkit.approvals import binding as bind
from clawkit.approvals.protocols import RESUMABLE
from clawkit.approvals.types import Pending
from clawkit.core.approval import MAX_WAIT_S, NO_ONE, Answer, Approver, Question
from clawkit.store import Database
from clawkit.text import cut, human_time, one_line

if TYPE_CHECKING:
    import asyncio

    from apsw import Connection, SQLiteValue

State = Literal["pending", "allowed", "denied", "expired", "withdrawn", "used"]

MAX_PENDING = 200
"""Limit per agent: more requests would only cause approval fatigue."""
TAKE_WITHIN_MS = 15_000
"""Grace period after a question expires in which an approval can still be used."""
MAX_TIMEOUT_MS = KEEP_MS = 24 * 3600 * 1000
KEEP_ENDED = 1_000
_MAX_REASON, _MAX_BY = 2_000, 200
_VERDICTS: dict[str, Literal["allow", "deny"]]
_VERDICTS = {"allowed": "allow", "used": "allow", "denied": "deny"}
_UNKNOWN = "unknown request {!r}; list them with: clawkit approvals pending"
_ID = re.compile(r"[0-9a-f]{4,32}")
_APPLICATION = 0x636C6177
_SCHEMA = """
CREATE TABLE question (
    id TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    agent BLOB NOT NULL,
    owner TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    fields BLOB NOT NULL,
    params BLOB NOT NULL,
    binding BLOB NOT NULL,
    answer BLOB
) STRICT;
CREATE INDEX question_by_state ON question (state, agent);
CREATE INDEX question_by_end ON question (ended_ms);
-- Parameters can be long, and are not needed once a question has ended.
CREATE TRIGGER question_ended AFTER UPDATE OF state ON question
    WHEN NEW.state NOT IN ('pending', 'allowed')
    BEGIN UPDATE question SET params = CAST('{}' AS BLOB) WHERE id = NEW.id; END;
"""
_WITHDRAW = "state = 'withdrawn', ended_ms = ? WHERE id = ? AND state IN ('pending', 'allowed')"
POLL_S = 0.2
"""How often to check the store for an answer from another process."""
_GRACE_S = 1.0

SocketAddress = tuple[str, str]
Changed = Callable[[Mapping[str, Any]], str]
"""Describes changes since a binding was made; empty if none."""

log = logging.getLogger(__name__)


class StoredQuestion(Pending, frozen=True):
    """A question in the store."""

    state: State = "pending"
    orphaned: bool = False
    """Whether the process that asked has ended, so that an answer has no effect."""
    ended_ms: int = 0
    """When it was answered, expired or withdrawn; 0 if it is pending."""


class _Row(NamedTuple):
    id: str
    state: State
    owner: str
    created_ms: int
    expires_ms: int
    ended_ms: int | None
    fields: bytes
    params: bytes
    binding: bytes
    answer: bytes


_SELECT = f"SELECT {', '.join(_Row._fields)} FROM question "  # noqa: S608
_asked: dict[str, None] = {}
"""Questions of this process; empty after the process has replaced itself by `exec`."""
MAX_ASKED = 10_000


class PendingStore:
    """The questions of one home directory of clawkit. Every method is atomic."""

    def __init__(self, path: str, *, lock_wait_s: float = 2.0) -> None:
        self._database = Database(
            path,
            "the store of pending approvals",
            _APPLICATION,
            (_SCHEMA,),
            lock_wait_s=lock_wait_s,
            # A used approval must not become usable again after a power failure.
            outlives_power=True,
        )
        self.path = self._database.path

    def add(
        self,
        question: Question,
        binding: Mapping[str, Any],
        now_ms: int,
        timeout_ms: int,
        *,
        changed: Changed | None = None,
        id_: str = "",
    ) -> Pending:
        """Store a question. An orphaned question that differs only in the call is taken over, or
        withdrawn if `changed` reports another binding. The id is new unless given. Raises
        `ToolAuthorizationError` if too many are pending, and `ConflictError` if another question
        has the id."""
        packed = bind.pack_question(question, binding)
        agent, me = bind.encode(question.agent), bind.identify_process()
        expires_ms = now_ms + min(max(timeout_ms, 0), MAX_TIMEOUT_MS)
        with self._database.writing() as db:
            _expire(db, now_ms)
            db.execute(
                "DELETE FROM question WHERE ended_ms < ? OR id IN (SELECT id FROM question"
                " WHERE ended_ms NOT NULL ORDER BY ended_ms DESC LIMIT -1 OFFSET ?)",
                (now_ms - KEEP_MS, KEEP_ENDED),
            )
            if (left := self._left_behind(db, agent, packed, now_ms, changed)) is not None:
                change = "UPDATE question SET owner = ?, fields = ?, binding = ? WHERE id = ?"
                db.execute(change, (me, packed[0], packed[2], left.id))
                _remember(left.id)
                return Pending(left.id, question, left.created_ms, left.expires_ms, dict(binding))
            counting = "SELECT count(*) FROM question WHERE state = 'pending' AND agent = ?"
            if db.execute(counting, (agent,)).get >= MAX_PENDING:
                said = f"{MAX_PENDING} requests of {one_line(question.agent, 40)!r} are pending"
                raise errors.ToolAuthorizationError(
                    f"{said}; answer some first", reason="approval-limit"
                )
            id_ = id_ or uuid.uuid4().hex
            if db.execute("SELECT 1 FROM question WHERE id = ?", (id_,)).get is not None:
                raise errors.ConflictError("another request has this id; use a new one")
            db.execute(
                "INSERT INTO question VALUES (?, 'pending', ?, ?, ?, ?, NULL, ?, ?, ?, NULL)",
                (id_, agent, me, now_ms, expires_ms, *packed),
            )
        _remember(id_)
        return Pending(id_, question, now_ms, expires_ms, dict(binding))

    def _left_behind(
        self,
        db: Connection,
        agent: bytes,
        packed: tuple[bytes, bytes, bytes],
        now_ms: int,
        changed: Changed | None,
    ) -> _Row | None:
        where = "WHERE state = 'pending' AND agent = ? AND params = ? ORDER BY created_ms, id"
        fields, params, binding = packed
        for row in [_Row._make(row) for row in db.execute(_SELECT + where, (agent, params))]:
            if _without_call(row.fields) != _without_call(fields):
                continue
            left = self._unpack(row)
            if not left.orphaned:
                continue
            if row.binding == binding or (changed is not None and not changed(left.binding)):
                return row
            if changed is not None:
                db.execute(f"UPDATE question SET {_WITHDRAW}", (now_ms, row.id))  # noqa: S608
        return None

    def get(self, id_or_prefix: str) -> StoredQuestion:
        """A question by its id or a unique prefix of 4 or more characters."""
        wanted = id_or_prefix.strip().lower()
        if not _ID.fullmatch(wanted):
            shown = one_line(id_or_prefix, 40)
            raise errors.NotFoundError(
                f"invalid request id {shown!r}; use at least its first 4 characters"
            )
        rows = self._rows("WHERE id >= ? AND id < ? LIMIT 9", wanted, f"{wanted}g")
        if not rows:
            raise errors.NotFoundError(_UNKNOWN.format(wanted))
        if len(rows) > 1:
            found = ", ".join(row.id[: len(wanted) + 8] for row in rows[:8])
            found += " and more" if len(rows) > 8 else ""
            raise errors.ToolInputError(f"{wanted!r} matches more than one request: {found}")
        return self._unpack(rows[0])

    def pending(self, now_ms: int) -> list[StoredQuestion]:
        """The questions that are waiting for an answer, oldest first."""
        with self._database.writing() as db:
            _expire(db, now_ms)
        rows = self._rows("WHERE state = 'pending' ORDER BY created_ms, id")
        return [self._unpack(row) for row in rows]

    def ended(self, limit: int, before: tuple[int, str]) -> list[StoredQuestion]:
        """The questions that ended before a time and id, latest first."""
        where = (
            "WHERE ended_ms NOT NULL AND (ended_ms, id) < (?, ?) ORDER BY ended_ms DESC, id DESC"
        )
        return [self._unpack(row) for row in self._rows(f"{where} LIMIT ?", *before, limit)]

    def decide(self, id_: str, answer: Answer, now_ms: int) -> None:
        """Record an answer. Raises unless it is the first one, in time, and among the offers."""
        if wrong := bind.why_invalid(self._unpack(self._row(id_)).question, answer):
            raise errors.ToolInputError(f"invalid answer: {wrong}")
        reason, by = cut(answer.reason, _MAX_REASON), one_line(answer.by, _MAX_BY)
        said = bind.encode({"reason": reason, "extent": answer.extent, "by": by})
        state = "allowed" if answer.verdict == "allow" else "denied"
        if not self._update(
            "state = ?, answer = ?, ended_ms = ?"
            " WHERE id = ? AND state = 'pending' AND expires_ms > ?",
            *(state, said, now_ms, id_, now_ms),
        ):
            raise self._too_late(self._row(id_), now_ms)

    def answer(self, id_: str, now_ms: int | None = None) -> Answer | None:
        """The answer; None while pending. Expired and withdrawn questions count as no."""
        row = self._row(id_)
        late = row.state == "pending" and row.expires_ms <= _ms(now_ms)
        if row.state == "expired" or late:
            return bind.no_answer((row.expires_ms - row.created_ms) / 1000)
        if row.state == "withdrawn":
            return Answer("deny", "the question was withdrawn before it was answered")
        return None if row.state == "pending" else self._answer_of(row)

    def consume(self, id_: str, now_ms: int | None = None) -> bool:
        """Use an approval. True only the first time, and before it expires."""
        now_ms = _ms(now_ms)
        return self._update(
            "state = 'used', ended_ms = ? WHERE id = ? AND state = 'allowed' AND expires_ms > ?",
            *(now_ms, id_, now_ms - TAKE_WITHIN_MS),
        )

    def expire(self, id_: str, now_ms: int | None = None) -> bool:
        """Expire a question now, whatever its time limit; False if it is not pending."""
        return self._update(
            "state = 'expired', ended_ms = ? WHERE id = ? AND state = 'pending'", _ms(now_ms), id_
        )

    def withdraw(self, id_: str, now_ms: int | None = None) -> bool:
        """Withdraw a question, or an approval that has not been used."""
        return self._update(_WITHDRAW, _ms(now_ms), id_)

    def close(self) -> None:
        self._database.close()

    def _rows(self, where: str, *given: SQLiteValue) -> list[_Row]:
        with self._database.using() as db:
            return [_Row._make(row) for row in db.execute(_SELECT + where, given)]

    def _row(self, id_: str) -> _Row:
        for row in self._rows("WHERE id = ?", id_ if _ID.fullmatch(id_) else ""):
            return row
        raise errors.NotFoundError(_UNKNOWN.format(one_line(id_, 40)))

    def _update(self, change: str, *given: SQLiteValue) -> bool:
        with self._database.writing() as db:
            db.execute(f"UPDATE question SET {change}", given)  # noqa: S608
            return db.changes() == 1

    def _unpack(self, row: _Row) -> StoredQuestion:
        try:
            question = bind.unpack_question(row.fields, row.params)
            binding = dict(bind.decode(row.binding))
            is_open = row.state in ("pending", "allowed") and RESUMABLE not in binding
            gone = is_open and (
                bind.has_ended(row.owner)
                or (row.owner == bind.identify_process() and row.id not in _asked)
            )
        except (ValueError, TypeError) as error:
            why = f"the question {row.id} in it is damaged: {error}"
            raise self._database.broken(why) from error
        return StoredQuestion(
            *(row.id, question, row.created_ms, row.expires_ms, binding),
            *(row.state, gone, row.ended_ms or 0),
        )

    def _answer_of(self, row: _Row) -> Answer:
        try:
            return Answer(_VERDICTS[row.state], **bind.decode(row.answer))
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            why = f"the answer to {row.id} in it is damaged: {error}"
            raise self._database.broken(why) from error

    def _too_late(self, row: _Row, now_ms: int) -> errors.ConflictError:
        ended_ms = row.expires_ms if row.ended_ms is None else row.ended_ms
        ago = f"{human_time((now_ms - ended_ms) / 1000)} ago"
        if row.state in ("pending", "expired"):
            what = f"expired {ago} and counts as refused"
        elif row.state == "withdrawn":
            what = f"was withdrawn {ago} by the process that made it"
        else:
            answer = self._answer_of(row)
            choice, who = bind.choice_of(answer), answer.by or "a person"
            what = f"was already answered: {choice} by {who}, {ago}"
        return errors.ConflictError(f"the request {row.id[:8]} {what}")


def _without_call(fields: bytes) -> dict[str, Any]:
    return {**bind.decode(fields), "call_id": ""}


def _remember(id_: str) -> None:
    _asked[id_] = None
    if len(_asked) > MAX_ASKED:
        del _asked[next(iter(_asked))]


def _expire(db: Connection, now_ms: int) -> None:
    db.execute(
        "UPDATE question SET state = 'expired', ended_ms = expires_ms"
        " WHERE state = 'pending' AND expires_ms <= ?",
        (now_ms,),
    )


def _ms(now_ms: int | None) -> int:
    return int(time.time() * 1000) if now_ms is None else now_ms


class Broker:
    """Asks for approval, for one run."""

    def __init__(
        self,
        waiting: PendingStore,
        *,
        approver: Approver | None = None,
        socket: SocketAddress | Callable[[], SocketAddress | None] | None = None,
        later: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._waiting = waiting
        self._approver = approver
        self._socket = socket
        self._later = later
        self._clock = clock

    def route(self) -> Literal["wait", "later", "none"]:
        if self._approver is not None or self._find_socket() is not None:
            return "wait"
        return "later" if self._later else "none"

    async def ask(
        self,
        request: Question,
        binding: Mapping[str, Any] | None = None,
        changed: Changed | None = None,
    ) -> Answer:
        try:
            if self.route() == "none":
                return Answer("deny", NO_ONE, silent=True)
            pending = self.submit(request, binding, changed)
        except errors.ToolError as error:
            return Answer("deny", str(error))
        return await self._settle(pending, self._approver, patient=self._later)

    def submit(
        self,
        request: Question,
        binding: Mapping[str, Any] | None = None,
        changed: Changed | None = None,
    ) -> Pending:
        timeout_s = min(request.timeout_s, MAX_WAIT_S)
        timeout_ms = round(timeout_s * 1000) if timeout_s > 0 else 0
        now_ms = self._now_ms()
        return self._waiting.add(request, binding or {}, now_ms, timeout_ms, changed=changed)

    async def outcome(self, pending: Pending) -> Answer:
        return await self._settle(pending, None, patient=True)

    def collect(self, id_: str) -> Answer | None:
        now_ms = self._now_ms()
        with suppress(errors.NotFoundError):
            is_used = self._waiting.consume(id_, now_ms)
            answer, state = self._waiting.answer(id_, now_ms), self._waiting.get(id_).state
            if answer is None or is_used or state == "denied":
                return answer
        return Answer("deny", "there is no usable answer", silent=True)

    def withdraw(self, id_: str) -> None:
        self._waiting.withdraw(id_, self._now_ms())

    def resolve(
        self,
        id_or_prefix: str,
        choice: str,
        *,
        extent: str | None = None,
        reason: str = "",
        actor: str = "",
        authorized: bool,
    ) -> StoredQuestion:
        """Answer a question on another surface, which requires more rights than seeing it."""
        if authorized is not True:
            raise errors.ToolAuthorizationError(
                "only an approver can answer this", reason="approver"
            )
        asked = self._waiting.get(id_or_prefix)
        answer = bind.answer_for(asked.question, choice, extent, reason=reason, by=actor)
        self._waiting.decide(asked.id, answer, self._now_ms())
        return self._waiting.get(asked.id)

    async def close(self) -> None:
        """Close the store; it is reopened when needed."""
        self._waiting.close()

    async def _settle(
        self, pending: Pending, approver: Approver | None, *, patient: bool
    ) -> Answer:
        import asyncio

        try:
            answer = await self._wait(pending, approver, patient=patient)
            if answer.verdict == "allow" and not self._waiting.consume(pending.id, self._now_ms()):
                return Answer("deny", "the approval has expired or was already used")
            return answer
        except asyncio.CancelledError:
            if not getattr(approver, "keeps_questions", False):
                with suppress(errors.ToolError):
                    self._waiting.withdraw(pending.id, self._now_ms())
            raise
        except errors.ToolError as error:
            log.warning("waiting for an answer failed: %s", error)
            return Answer("deny", str(error))

    async def _wait(self, pending: Pending, approver: Approver | None, *, patient: bool) -> Answer:
        import asyncio

        loop = asyncio.get_running_loop()
        # In addition to the store's clock, use a monotonic one.
        until = loop.time() + min((pending.expires_ms - self._now_ms()) / 1000, MAX_WAIT_S)
        asked = self._ask_all(pending, approver)
        try:
            while (answer := self._poll(pending.id, late=loop.time() >= until)) is None:
                if not asked and not patient:
                    self._waiting.withdraw(pending.id, self._now_ms())
                    return Answer("deny", "asking for approval failed")
                left_s = max(0.0, min(POLL_S, until - loop.time()))
                if not asked:
                    await asyncio.sleep(left_s)
                    continue
                done, asked = await asyncio.wait(
                    asked, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    self._record(pending, task)
            return answer
        finally:
            for task in asked:
                task.cancel()
            if asked:
                await asyncio.wait(asked)

    def _ask_all(self, pending: Pending, approver: Approver | None) -> set[asyncio.Task[Any]]:
        import asyncio

        from clawkit.core.tasks import bounded

        async def ask_here(surface: Approver) -> Any:
            return await bounded(surface.ask(pending.question), None, _GRACE_S)

        asked: set[asyncio.Task[Any]] = set()
        if approver is not None:
            asked.add(asyncio.create_task(ask_here(approver)))
        if (socket := self._find_socket()) is not None:
            from clawkit.approvals.socket import ask_over

            asked.add(asyncio.create_task(ask_over(*socket, pending, MAX_WAIT_S)))
        return asked

    def _poll(self, id_: str, *, late: bool) -> Answer | None:
        """The stored answer. If it is late, expire the question, unless it was just answered."""
        answer = self._waiting.answer(id_, self._now_ms())
        if late or (answer is not None and answer.silent):
            self._waiting.expire(id_, self._now_ms())
            return self._waiting.answer(id_, self._now_ms())
        return answer

    def _record(self, pending: Pending, task: asyncio.Task[Any]) -> None:
        if task.cancelled() or task.exception() is not None:
            log.warning("asking for approval failed: %r", task)
            return
        answer = task.result()
        if wrong := bind.why_invalid(pending.question, answer):
            log.warning("ignored an invalid answer: %s", wrong)
            return
        with suppress(errors.ConflictError):
            signed = replace(answer, by=answer.by or "a person")
            self._waiting.decide(pending.id, signed, self._now_ms())

    def _find_socket(self) -> SocketAddress | None:
        socket = self._socket() if callable(self._socket) else self._socket
        if socket is None:
            return None
        from clawkit.approvals.socket import is_reachable

        return socket if is_reachable(*socket) else None

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)
