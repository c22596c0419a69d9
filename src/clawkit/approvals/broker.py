"""Asks everyone who can be reached at the same time; the first answer counts.

All answers go through the store, including those given in this process. So exactly one counts, and
later ones are rejected with an error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from clawkit.approvals.binding import answer_for, why_invalid
from clawkit.approvals.pending_store import PendingStore, Stored
from clawkit.approvals.types import Pending
from clawkit.core.approval import MAX_WAIT_S, Answer, Approver, Question
from clawkit.errors import ConflictError, ToolAuthorizationError, ToolError

if TYPE_CHECKING:
    import asyncio

POLL_S = 0.2
"""How often to check the store for an answer from another process."""
_GRACE_S = 1.0

SocketAddress = tuple[str, str]

log = logging.getLogger(__name__)


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

    async def ask(self, request: Question, binding: Mapping[str, Any] | None = None) -> Answer:
        try:
            if self.route() == "none":
                return Answer("deny", "there is no one here to ask", silent=True)
            pending = self.submit(request, binding)
        except ToolError as error:
            return Answer("deny", str(error))
        return await self._settle(pending, self._approver, patient=self._later)

    def submit(self, request: Question, binding: Mapping[str, Any] | None = None) -> Pending:
        timeout_s = min(request.timeout_s, MAX_WAIT_S)
        timeout_ms = round(timeout_s * 1000) if timeout_s > 0 else 0
        return self._waiting.add(request, binding or {}, self._now_ms(), timeout_ms)

    async def outcome(self, pending: Pending) -> Answer:
        return await self._settle(pending, None, patient=True)

    def resolve(
        self,
        id_or_prefix: str,
        choice: str,
        *,
        extent: str | None = None,
        reason: str = "",
        actor: str = "",
        authorized: bool,
    ) -> Stored:
        """Answer a question from elsewhere, which takes more than being able to see it."""
        if authorized is not True:
            raise ToolAuthorizationError("only an approver can answer this", reason="approver")
        asked = self._waiting.get(id_or_prefix)
        answer = answer_for(asked.question, choice, extent, reason=reason, by=actor)
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
            with suppress(ToolError):
                self._waiting.withdraw(pending.id, self._now_ms())
            raise
        except ToolError as error:
            log.warning("waiting for an answer failed: %s", error)
            return Answer("deny", str(error))

    async def _wait(self, pending: Pending, approver: Approver | None, *, patient: bool) -> Answer:
        import asyncio

        loop = asyncio.get_running_loop()
        # Besides the store's clock, use one that cannot be set.
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

    def _record(self, pending: Pending, asked: asyncio.Task[Any]) -> None:
        if asked.cancelled() or asked.exception() is not None:
            log.warning("asking for approval failed: %r", asked)
            return
        answer = asked.result()
        if wrong := why_invalid(pending.question, answer):
            log.warning("ignored an invalid answer: %s", wrong)
            return
        with suppress(ConflictError):
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
