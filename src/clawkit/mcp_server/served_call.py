"""A call on behalf of a client: its progress, and the questions it asks the person there.

Until 2025-11-25, a question is a request to the client, sent while the call waits. From 2026-07-28
on, it is the result of the client's request, which ends with that: the call is suspended until the
client repeats the request with an answer and with the state that names the call.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from clawkit.core.approval import Answer, Question, no_approver
from clawkit.core.call import CallRequest, Event, Run, call
from clawkit.core.result import Result
from clawkit.mcp import protocol as mcp
from clawkit.mcp_server.describe import show_progress

Send = Callable[[bytes], None]
"""Sends a message that precedes the answer to a request."""
Ask = Callable[[Send, str, object], Awaitable[msgspec.Raw]]
"""Sends a request to the client, and returns its answer."""
MAX_SUSPENDED = 32
SUSPENDED_S = 900.0
"""Seconds that a client has to repeat a request; a question may expire earlier."""
_ELICIT = "elicitation/create"
_ONCE, _SESSION, _DENY = "allow-once", "allow-session", "deny"


class Elicited(Struct):
    """The reaction of the person at the client to a question."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] | None = None


class ServedCall:
    """One call, and the request that currently waits for it."""

    task: asyncio.Task[Result]
    until = 0.0
    """Time until which it stays suspended."""
    digest = b""
    """Digest of the parameters that a client must repeat."""

    def __init__(
        self,
        run: Run,
        request: CallRequest,
        send: Send,
        token: mcp.Id | None,
        ask: Ask | None,
        *,
        can_ask: bool,
    ) -> None:
        """`token` is the client's progress token. `ask` is None for a client whose requests must
        end with a question; without `can_ask` it gets no questions."""
        self.run, self.request = run, request
        self.send, self.token, self.can_ask = send, token, can_ask
        self.questions: dict[str, tuple[dict[str, Any], asyncio.Future[Elicited]]] = {}
        self._ask = ask
        self._reports = 0
        self._changed = asyncio.Event()

    async def perform(self) -> Result:
        """Make the call, and wait for its result."""
        # Events cost a third of a small call, so they are created only if the client may want them.
        on_event = self._report if self.can_ask or self.token is not None else None
        current.set(self)
        try:
            return await call(self.run, self.request, on_event)
        finally:
            self.can_ask = False
            self._changed.set()

    def start(self) -> None:
        """Make the call in a task, so that it can be suspended."""
        self.task = asyncio.ensure_future(self.perform())

    async def advance(self) -> Result | None:
        """Wait for the result; None if a question has to be answered first."""
        while self.can_ask and not self.questions:
            self._changed.clear()
            await self._changed.wait()
        return None if self.can_ask else await self.task

    def resume(self, send: Send, token: mcp.Id | None, answers: Mapping[str, msgspec.Raw]) -> None:
        """Continue for a request that repeats the first one, with answers to questions. Missing and
        invalid answers are requested again."""
        self.send, self.token = send, token
        for name in self.questions.keys() & answers.keys():
            with suppress(mcp.McpError):
                elicited = mcp.read(answers[name], Elicited)
                _form, future = self.questions.pop(name)
                future.set_result(elicited)

    async def elicit(self, form: dict[str, Any], name: str = "approval") -> Elicited:
        """Ask the person at the client. Only the client sees `name`. Raises `McpError`."""
        if not self.can_ask:
            raise mcp.McpError(mcp.MISSING_CAPABILITY, "the client cannot ask its user")
        if self._ask is not None:
            return mcp.read(await self._ask(self.send, _ELICIT, form), Elicited)
        name = f"{name}-{len(self.questions)}" if name in self.questions else name
        future: asyncio.Future[Elicited] = asyncio.get_running_loop().create_future()
        self.questions[name] = {"method": _ELICIT, "params": form}, future
        self._changed.set()
        try:
            return await future
        finally:
            self.questions.pop(name, None)

    def _report(self, event: Event) -> None:
        if event["type"] == "update" and self.token is not None:
            self._reports += 1
            said = {"progress": self._reports, "message": show_progress(event)}
            message = {"progressToken": self.token, **said}
            self.send(mcp.notification("notifications/progress", message))


current: ContextVar[ServedCall | None] = ContextVar("served", default=None)


class ClientApprover:
    """Asks the person at the client, by elicitation.

    An approval counts once, or while the client is connected: answers of clients are never stored
    permanently.
    """

    def __init__(self, client: str) -> None:
        self._by = f"the person at {client}"

    async def ask(self, request: Question) -> Answer:
        served = current.get()
        if served is None:
            raise no_approver(request.title, request.to_allow)
        return read_answer(await served.elicit(show_question(request)), request, self._by)


def show_question(request: Question) -> dict[str, Any]:
    """The question as a form with one choice."""
    from clawkit.approvals.prompt import render  # not needed to start

    lasting = tuple(each for each in request.lasting if each.extent == "session")
    choices = {_DENY: "Deny", _ONCE: "Allow once"}
    if lasting:
        choices[_SESSION] = f"Allow {lasting[0].words}"
    decision = {
        "type": "string",
        "title": "Decision",
        "enum": list(choices),
        "enumNames": list(choices.values()),
    }
    schema = {"type": "object", "properties": {"decision": decision}, "required": ["decision"]}
    text = render(replace(request, lasting=lasting), "plain")
    return {"mode": "form", "message": text, "requestedSchema": schema}


def read_answer(elicited: Elicited, request: Question, by: str) -> Answer:
    """The person's decision: anything but a clear yes denies."""
    chosen = (elicited.content or {}).get("decision")
    if elicited.action == "accept" and chosen == _ONCE:
        return Answer("allow", by=by)
    is_offered = any(each.extent == "session" for each in request.lasting)
    if elicited.action == "accept" and chosen == _SESSION and is_offered:
        return Answer("allow", extent="session", by=by)
    return Answer("deny", by.removeprefix("the person "), by=by)


class SuspendedCalls:
    """The suspended calls of a client. Each can be taken once, by the same client, with the same
    parameters, before it expires."""

    def __init__(self) -> None:
        self._suspended: dict[str, ServedCall] = {}

    def put(self, served: ServedCall, digest: bytes) -> str:
        """Suspend a call; returns an unguessable state that the client must repeat. Raises
        `McpError`."""
        self.sweep()
        if len(self._suspended) >= MAX_SUSPENDED:
            served.task.cancel()
            why = f"{MAX_SUSPENDED} calls already wait for answers"
            raise mcp.McpError(mcp.INTERNAL_ERROR, why)
        state = secrets.token_urlsafe(32)
        served.until, served.digest = time.monotonic() + SUSPENDED_S, digest
        self._suspended[state] = served
        return state

    def take(self, state: str, digest: bytes) -> ServedCall:
        """The call that a state names. Raises `McpError`."""
        self.sweep()
        if state not in self._suspended or self._suspended[state].digest != digest:
            message = "invalid requestState: unknown, expired, used, or of another request"
            raise mcp.McpError(mcp.INVALID_PARAMS, message)
        return self._suspended.pop(state)

    def sweep(self) -> None:
        """Stop expired calls."""
        now = time.monotonic()
        for name, served in list(self._suspended.items()):
            if served.until <= now:
                self._suspended.pop(name).task.cancel()

    def tasks(self) -> list[asyncio.Task[Result]]:
        return [served.task for served in self._suspended.values()]

    def stop(self) -> None:
        for task in self.tasks():
            task.cancel()

    @property
    def is_empty(self) -> bool:
        self.sweep()
        return not self._suspended
