"""Approvals: agents of the gateway wait for an answer from any client or terminal."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any

from clawkit.approvals.binding import choice_of
from clawkit.approvals.broker import PendingStore, StoredQuestion
from clawkit.core.approval import Answer, Question
from clawkit.errors import ToolError
from clawkit.gateway.hub import Hub
from clawkit.gateway.protocol import now_ms

POLL_S = 1.0
"""How often to look for questions of other processes, and for answers given elsewhere."""
_BUSY_POLL_S = 0.1

log = logging.getLogger(__name__)


def to_json(asked: StoredQuestion) -> dict[str, Any]:
    """A question as clients see it."""
    question = asked.question
    warning = "\n".join((question.description, *question.notes)).strip()
    request: dict[str, Any] = {"command": question.command or question.title}
    request |= {"host": question.host or "gateway", "warningText": warning or None}
    request |= {"allowedDecisions": decisions(question), "agentId": question.agent}
    request |= {"sessionKey": question.session, "toolCallId": question.call_id or None}
    request |= {"cwd": question.cwd or None, "toolName": question.tool, "title": question.title}
    request |= dict.fromkeys(("nodeId", "security", "ask", "resolvedPath", "runId"))
    times = {"createdAtMs": asked.created_ms, "expiresAtMs": asked.expires_ms}
    return {"id": asked.id, "approvalKind": "exec", "request": request, **times}


def decisions(question: Question) -> list[str]:
    """What a client may answer; permanent approvals are offered for the exact command."""
    is_lasting = any(each.extent == "exact" for each in question.lasting)
    return ["allow-once", *(["allow-always"] if is_lasting else []), "deny"]


class ApprovalDesk:
    """Asks clients, and tells them what was asked and answered.

    It answers nothing itself: an answer goes into the store, where the agent finds it.
    """

    def __init__(
        self, store: PendingStore, hub: Hub, on_asked: Callable[[str, str, str], None]
    ) -> None:
        """`on_asked` is called with the session, the question's id and the id of the call."""
        self.store = store
        self._hub = hub
        self._on_asked = on_asked
        self.keeps_questions = False
        """Whether questions stay open for a turn that the next gateway resumes."""
        self._seen: dict[str, dict[str, Any]] = {}
        self._waiting = 0
        self._look = asyncio.Event()

    async def ask(self, request: Question) -> Answer:
        """Wait until cancelled: the broker takes the answer from the store."""
        self._waiting += 1
        self._look.set()
        try:
            await asyncio.Event().wait()
        finally:
            self._waiting -= 1
            self._look.set()
        return Answer("deny", silent=True)

    async def watch(self) -> None:
        """Tell clients about new and ended questions, until cancelled."""
        while True:
            self._look.clear()
            try:
                self.look()
            except ToolError as error:
                log.warning("%s", error)
            try:
                wait_s = _BUSY_POLL_S if self._waiting else POLL_S
                await asyncio.wait_for(self._look.wait(), wait_s)
            except TimeoutError:
                pass

    def pending(self) -> list[StoredQuestion]:
        """The questions that can be answered; their file is not created for that."""
        if not os.path.exists(self.store.path):
            return []
        return [each for each in self.store.pending(now_ms()) if not each.orphaned]

    def look(self) -> None:
        pending = {each.id: each for each in self.pending()}
        for id_ in [id_ for id_ in self._seen if id_ not in pending]:
            self._tell_end(id_, self._seen.pop(id_))
        for id_, asked in pending.items():
            if id_ not in self._seen:
                self._seen[id_] = to_json(asked)
                self._hub.broadcast("exec.approval.requested", self._seen[id_])
                self._on_asked(asked.question.session, id_, asked.question.call_id)

    def _tell_end(self, id_: str, shown: dict[str, Any]) -> None:
        answer = self.store.answer(id_, now_ms())
        by = (answer.by or None) if answer is not None else None
        decision = choice_of(answer) if answer is not None else "deny"
        payload = {"id": id_, "decision": decision, "resolvedBy": by, "ts": now_ms()}
        self._hub.broadcast("exec.approval.resolved", payload | {"request": shown["request"]})
