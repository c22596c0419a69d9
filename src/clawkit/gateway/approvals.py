"""Approvals: agents of the gateway wait for an answer from any client or terminal."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from clawkit.approvals.binding import choice_of
from clawkit.approvals.broker import PendingStore, StoredQuestion
from clawkit.core.approval import Answer, Question
from clawkit.errors import ToolError
from clawkit.gateway.protocol import now_ms

if TYPE_CHECKING:
    from clawkit.gateway.server import Gateway

POLL_S = 1.0
"""Interval for checking questions of other processes, and answers given elsewhere."""
_BUSY_POLL_S = 0.1
CLIENT = "gatewayClient"
"""Key in the binding of a question: the connection of the client that asked it."""
_STATUS = {"used": "allowed", "withdrawn": "cancelled"}
_REASON = {"expired": "timeout", "cancelled": "run-aborted"}

log = logging.getLogger(__name__)


def to_json(stored: StoredQuestion) -> dict[str, Any]:
    """A question as clients see it."""
    question, shown = stored.question, presentation(stored)
    request: dict[str, Any] = {"command": shown["commandText"], "cwd": question.cwd or None}
    request |= {key: shown[key] for key in ("host", "nodeId", "warningText", "allowedDecisions")}
    request |= {"agentId": question.agent, "sessionKey": question.session}
    request |= {"toolCallId": question.call_id or None, "toolName": question.tool}
    request |= {"title": question.title} | dict.fromkeys(("security", "ask", "resolvedPath"))
    times = {"createdAtMs": stored.created_ms, "expiresAtMs": stored.expires_ms}
    about = {"id": stored.id, "approvalKind": "exec", "request": request, **times}
    return about | {"clawkit": msgspec.to_builtins(question)}


def presentation(stored: StoredQuestion) -> dict[str, Any]:
    """The information that a person needs to answer."""
    question = stored.question
    # Permanent approvals are offered for the exact command.
    lasting = ["allow-always"] if any(e.extent == "exact" for e in question.lasting) else []
    return {
        "kind": "exec",
        "commandText": question.command or question.title,
        "commandPreview": None,
        "warningText": "\n".join((question.description, *question.notes)).strip() or None,
        "host": question.host or "gateway",
        "nodeId": stored.binding.get("nodeId"),
        "agentId": question.agent,
        "allowedDecisions": ["allow-once", *lasting, "deny"],
    }


def is_awaited(question: StoredQuestion) -> bool:
    """Whether an answer can have an effect. A client that asked may reconnect, even to another
    process."""
    return not question.orphaned or CLIENT in question.binding


class ApprovalDesk:
    """Asks clients, and notifies them of questions and answers.

    It gives no answers itself: they are stored, and the agent reads them from the store.
    """

    def __init__(self, store: PendingStore, gateway: Gateway) -> None:
        self.store = store
        self._gateway, self._hub = gateway, gateway.hub
        self.keeps_questions = False
        """Whether questions stay open for a turn that the next gateway resumes."""
        self._known_questions: dict[str, StoredQuestion] = {}
        self._waiting = 0
        self._look = asyncio.Event()
        self._ended = asyncio.Event()

    async def ask(self, request: Question) -> Answer:
        """Wait until cancelled: the broker takes the answer from the store."""
        self._waiting += 1
        self._look.set()
        never: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        try:
            return await never
        finally:
            self._waiting -= 1
            self._look.set()

    async def watch(self) -> None:
        """Notify clients of new and ended questions, until cancelled."""
        while True:
            self._look.clear()
            try:
                self.look()
            except ToolError as error:
                log.warning("%s", error)
            with suppress(TimeoutError):
                wait_s = _BUSY_POLL_S if self._waiting else POLL_S
                await asyncio.wait_for(self._look.wait(), wait_s)

    def pending(self) -> list[StoredQuestion]:
        """The questions that can be answered; does not create their file."""
        return [each for each in self._all_pending() if is_awaited(each)]

    def _all_pending(self) -> list[StoredQuestion]:
        return self.store.pending(now_ms()) if os.path.exists(self.store.path) else []

    def drop_left(self, key: str) -> None:
        """Withdraw questions that a session or its sub-agents asked before a restart and have not
        repeated."""
        try:
            for asked in self._all_pending():
                if not is_awaited(asked) and self._is_within(asked.question.session, key):
                    self.store.withdraw(asked.id)
        except ToolError as error:
            log.warning("%s", error)

    def _is_within(self, name: str, key: str) -> bool:
        sessions = self._gateway.store
        session = sessions.find(name)
        while session is not None and session.key != key:
            session = sessions.find(session.parent) if session.parent else None
        return session is not None

    def look(self) -> None:
        pending = {each.id: each for each in self.pending()}
        for id_ in [id_ for id_ in self._known_questions if id_ not in pending]:
            self._tell_end(self._known_questions.pop(id_))
        for id_, asked in pending.items():
            if id_ not in self._known_questions:
                self._known_questions[id_] = asked
                self._tell_asked(asked)

    def _tell_asked(self, question: StoredQuestion) -> None:
        own = question.binding.get(CLIENT)
        data = to_json(question)
        self._hub.broadcast("exec.approval.requested", data, lambda each: each.id != own)
        self._tell_session(question, "pending")

    def _tell_end(self, question: StoredQuestion) -> None:
        answer = self.store.answer(question.id, now_ms())
        by = (answer.by or None) if answer is not None else None
        decision = choice_of(answer) if answer is not None else "deny"
        payload = {"id": question.id, "decision": decision, "resolvedBy": by, "ts": now_ms()}
        request = to_json(question)["request"]
        self._hub.broadcast("exec.approval.resolved", payload | {"request": request})
        self._tell_session(self.store.get(question.id), "terminal")
        self._ended.set()
        self._ended = asyncio.Event()

    def _tell_session(self, question: StoredQuestion, phase: str) -> None:
        key = question.question.session
        payload = {"sessionKey": key, "sourceSessionKey": key, "updatedAtMs": now_ms()}
        payload |= {"phase": phase, "approval": self.snapshot(question)}
        self._hub.broadcast("session.approval", payload, lambda each: key in each.watched)
        there = self._gateway.live.find(key)
        if CLIENT not in question.binding and there is not None:
            state = "waiting-approval" if phase == "pending" else "approval-resolved"
            there.reporter.tell_approval(state, question.id, question.question.call_id)

    async def outcome(self, id_: str) -> Answer:
        """Wait for the answer to a question. Raises `NotFoundError`."""
        while (answer := self.store.answer(id_, now_ms())) is None:
            await self._ended.wait()
        return answer

    def snapshot(self, question: StoredQuestion) -> dict[str, Any]:
        """The state of a question, pending or ended."""
        status: str = _STATUS.get(question.state, question.state)
        reason = _REASON.get(status, "user")
        if status == "pending" and question.expires_ms <= now_ms():
            status, reason = "expired", "timeout"
        elif status == "pending" and not is_awaited(question):
            status, reason = "cancelled", "gateway-restart"
        shown: dict[str, Any] = {
            "id": question.id,
            "status": status,
            "urlPath": f"/approve/{question.id}",
        }
        shown |= {"createdAtMs": question.created_ms, "expiresAtMs": question.expires_ms}
        shown |= {"presentation": presentation(question)}
        if status == "pending":
            return shown
        shown |= {"resolvedAtMs": question.ended_ms or question.expires_ms, "reason": reason}
        shown |= {
            "source": {"agentId": question.question.agent, "sessionKey": question.question.session}
        }
        if status not in ("allowed", "denied"):
            return shown | {"resolver": {"kind": "system"}}
        answer = self.store.answer(question.id) or Answer("deny")
        resolver = {"kind": "runtime", "id": answer.by or "a person"}
        return shown | {"decision": choice_of(answer), "resolver": resolver}
