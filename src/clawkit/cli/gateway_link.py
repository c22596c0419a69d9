"""Follows a session in a gateway: requests, events, questions, and a connection that is reopened
when it breaks."""

from __future__ import annotations

import asyncio
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any

import click

from clawkit.agent import events
from clawkit.approvals.binding import choice_of
from clawkit.cli import gateway_answers as answers
from clawkit.cli.gateway_turn import CHAT, chat_params
from clawkit.core.approval import Approver, Question
from clawkit.core.tasks import in_thread
from clawkit.errors import ClawkitError, ToolError
from clawkit.gateway import client
from clawkit.text import printable

GIVE_UP_S = 180.0
"""Shorter than a gateway remembers idempotency keys, so that a repeated request is not executed
twice."""
FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 10.0
SHUTTING_DOWN = "SHUTTING_DOWN"
_LATER = "later "
"""Prefix of the ids of requests that were not sent."""
LOST = "the connection to the gateway was lost"
_PIECES = (events.TextPiece, events.ThinkingPiece, events.CallBegun, events.CallWritten)
_BETWEEN = (
    *(events.TurnStarted, events.RequestSent, events.AnswerRestarted, events.AnswerStored),
    events.TurnEnded,
)
"""Events that are never in the middle of a streamed answer."""
Waiting = tuple[asyncio.Future[Any], str, dict[str, Any], float]
"""A request: the future of its answer, its method, its parameters, and the time when the gateway
was last heard before the request's first connection broke, else 0."""


class SessionFollower(ABC):
    """Follows a session. Requests with an idempotency key survive a lost connection."""

    def __init__(self, link: client.Link) -> None:
        self.link = link
        self.is_connected = False
        self.key: str | None = None
        """The session whose events are shown; None for all."""
        self.is_opening = False
        """Whether events are kept until the session is open."""
        self.last_shown = 0
        """The number of the last shown message."""
        self.sessions: set[str] = set()
        """Keys of the sessions whose questions are asked at this terminal."""
        self._waiting: dict[str, Waiting] = {}
        self._questions: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_inside = True
        """Whether an answer may be streaming whose start was missed here."""
        self._last_heard = 0.0
        """When the gateway was last heard, on a clock that includes suspended time."""
        self._loop = asyncio.get_running_loop()
        self._watch = self._loop.call_later(client.SILENCE_S, self._lose, "it does not answer")
        self._listen()

    # Implemented by terminals

    @abstractmethod
    def show(self, event: events.Event, run: str) -> None: ...
    @abstractmethod
    def hear(self, payload: answers.ToldEvent) -> None:
        """Show something other than an agent's event."""

    @abstractmethod
    def say(self, text: str) -> None:
        """Show a problem."""

    @abstractmethod
    def approver(self) -> Approver | None:
        """The approver here; None if others must answer."""

    @abstractmethod
    def how_to_go_on(self) -> str:
        """The command to continue when the gateway runs again."""

    @abstractmethod
    async def back(self) -> None:
        """Called after a reconnect, before waiting requests are sent."""

    def on_disconnected(self, error: ToolError) -> None:  # noqa: B027  # the error may be enough
        """Called if the reconnect failed; pending requests get the error."""

    def accept(self, payload: answers.TurnAccepted) -> None:
        """Called when the gateway has accepted a request; the final answer follows."""
        if payload["blind"]:
            from clawkit.cli.agent import BLIND

            self.show(events.Notice(f"{payload['blind']} {BLIND}", "warning"), "")

    # Requests

    async def call(self, method: str, params: dict[str, Any], kind: Any = Any) -> Any:
        """Call a method and return its last answer, validated as `kind`. Raises `CallError`,
        `ToolError`."""
        if not self.is_connected and "idempotencyKey" not in params:
            raise ToolError("not connected to the gateway")
        future: asyncio.Future[Any] = self._loop.create_future()
        self._send(future, method, params, 0.0)
        return client.read_as(kind, client.payload_of(await future))

    def _send(self, *waiting: *Waiting) -> None:
        future, method, params, _ = waiting
        id_ = f"{_LATER}{id(future)}"
        if self.is_connected:
            try:
                id_ = self.link.request(method, params)
            except OSError as error:
                self._loop.call_soon(self._lose, str(error))
        self._waiting[id_] = waiting

    def adopt(self, id_: str, method: str, params: dict[str, Any]) -> asyncio.Future[Any]:
        """The future of the answer to a request that was already sent."""
        self._waiting[id_] = self._loop.create_future(), method, params, 0.0
        return self._waiting[id_][0]

    def run(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[None]:
        """Run work in the background, and show its errors."""
        task = asyncio.ensure_future(self._carry(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _carry(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except (ClawkitError, OSError) as error:
            self.say(str(error))

    def leave(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._disconnect()

    # The connection

    def _listen(self) -> None:
        self.is_connected, self._last_heard = True, time.time()
        self._loop.add_reader(self.link.socket.fileno(), self._read)

    def _disconnect(self) -> None:
        self._watch.cancel()
        if self.is_connected:
            self._loop.remove_reader(self.link.socket.fileno())
            self.link.close()
        self.is_connected = False

    def _read(self) -> None:
        self._watch.cancel()
        self._watch = self._loop.call_later(client.SILENCE_S, self._lose, "it does not answer")
        now, before = time.time(), self._last_heard
        try:
            for frame in self.link.read():
                self._take_frame(frame)
            if now - before > client.SILENCE_S:  # the received data may be old
                raise ToolError("it did not respond for too long")
            self._last_heard = now
        except client.MalformedAnswerError as error:
            self._disconnect()
            self._give_up(f"{self.link.target.url}: {error}")
        except (OSError, ToolError) as error:
            self._lose(str(error))

    def take_early(self) -> None:
        """Process events that arrived before the session was open."""
        early, self.link.events = self.link.events, []
        for frame in early:
            self._take_frame(frame)

    def _lose(self, why: str) -> None:
        if not self.is_connected:
            return
        self._disconnect()
        self._is_inside = True
        for id_, (future, method, params, since) in list(self._waiting.items()):
            if "idempotencyKey" not in params:
                future.cancel()
                del self._waiting[id_]
            elif not id_.startswith(_LATER):
                self._waiting[id_] = future, method, params, since or self._last_heard
        for task in self._questions.values():
            task.cancel()
        self._questions = {}
        self.show(events.AnswerRestarted(f"{LOST} ({why}); connecting again", 0.0, ""), "")
        self.run(self._return(self._last_heard))

    async def _return(self, lost: float) -> None:
        began, pause_s = time.monotonic(), FIRST_PAUSE_S
        while not self.is_connected:
            await asyncio.sleep(pause_s)
            pause_s = min(MAX_PAUSE_S, pause_s * 2)
            try:
                self.link = await in_thread(client.connect_again, self.link.target)
                self._listen()
                await self.back()
            except asyncio.CancelledError:
                return None  # lost again, or closed
            except (OSError, ToolError) as error:
                is_refused = isinstance(error, client.CallError) and error.code != SHUTTING_DOWN
                is_final = is_refused and (self.is_connected or not self.link.target.is_own)
                if is_final or time.monotonic() - began > GIVE_UP_S:
                    return self._give_up(f"{LOST} and could not be restored: {error}")
                self._disconnect()
        left, self._waiting = self._unanswered(), {}
        for each in left:
            if time.time() - (each[3] or lost) < GIVE_UP_S:  # the machine may have been suspended
                self._send(*each)
            else:
                each[0].set_exception(ToolError(f"{LOST} before it confirmed this"))
        self.run(self.ask_pending())
        return None

    def _unanswered(self) -> list[Waiting]:
        """The requests that are still awaited."""
        return [each for each in self._waiting.values() if not each[0].done()]

    def _give_up(self, why: str) -> None:
        how = self.how_to_go_on()
        why = why.removesuffix(how).rstrip(". ")
        error = ToolError(f"{why}{'' if why.endswith('?') else '.'} {how}")
        for future, *_ in self._unanswered():
            future.set_exception(error)
        self.on_disconnected(error)

    # Frames from the gateway

    def _take_frame(self, frame: dict[str, Any]) -> None:
        payload, name = frame.get("payload"), frame.get("event")
        if (id_ := str(frame.get("id"))) in self._waiting:
            self._answer(id_, frame)
        elif name == "clawkit.event" and self.is_opening:
            self.link.events.append(frame)
        elif name == "clawkit.event":
            told: answers.ToldEvent = client.read_as(answers.ToldEvent, payload)
            if self.key not in (None, told["key"]):
                pass  # from a session that was left
            elif "event" in told:
                self._tell(told, told["event"])
            else:
                self.hear(told)
        elif name == "exec.approval.requested" and "clawkit" in client.as_object(payload):
            self._ask(client.read_as(answers.AskedApproval, payload))
        elif name == "exec.approval.resolved":
            resolved: answers.ResolvedApproval = client.read_as(answers.ResolvedApproval, payload)
            if (asking := self._questions.pop(resolved["id"], None)) is not None:
                asking.cancel()

    def _answer(self, id_: str, frame: dict[str, Any]) -> None:
        future, method, params, _ = self._waiting[id_]
        if frame.get("ok") and client.is_first_answer(method, frame.get("payload")):
            return self.accept(client.read_as(answers.TurnAccepted, frame["payload"]))
        is_ending = client.as_object(frame.get("error")).get("details") == {"code": SHUTTING_DOWN}
        if is_ending and "idempotencyKey" in params:
            return None  # it is repeated when the gateway is back
        del self._waiting[id_]
        if not future.done():
            future.set_result(frame)
        return None

    def _tell(self, payload: answers.ToldEvent, event: events.Event) -> None:
        if isinstance(event, events.MessageAdded | events.AnswerStored | events.ResultStored):
            number = payload.get("number", 0)
            if number <= self.last_shown:
                return  # it was shown before the connection was lost
            self.last_shown = number
        self._is_inside = self._is_inside and not isinstance(event, _BETWEEN)
        if not (self._is_inside and isinstance(event, _PIECES)):
            self.show(event, payload["run"])

    # Questions

    async def ask_pending(self) -> None:
        for asked in await self.call("exec.approval.list", {}, list[answers.AskedApproval]):
            self._ask(asked)

    def _ask(self, approval: answers.AskedApproval) -> None:
        id_, question = approval["id"], approval["clawkit"]
        if question.session not in self.sessions or id_ in self._questions:
            return
        if (approver := self.approver()) is not None:
            self._questions[id_] = self.run(self._ask_here(approver, id_, question))
            return
        what = printable(question.command or question.title)
        how = f"clawkit approvals resolve {id_} allow-once"
        click.echo(f"clawkit: waiting for approval: {what}. To allow it: {how}", err=True)

    async def _ask_here(self, approver: Approver, id_: str, question: Question) -> None:
        """Ask a person here; meanwhile the turn continues, and others may answer first."""
        answer = await approver.ask(question)
        self._questions.pop(id_, None)
        params = {"id": id_, "decision": choice_of(answer), "reason": answer.reason}
        params |= {"extent": answer.extent} if answer.extent else {}
        await self.call("exec.approval.resolve", params)


class RemoteChat(SessionFollower):
    """A chat in a gateway: input is sent there, and the session is reopened after a reconnect."""

    is_over = has_keyboard = False

    def __init__(self, link: client.Link, options: dict[str, Any]) -> None:
        super().__init__(link)
        self._options = options
        self.key, self.name, self.is_opening = "", "", True

    @abstractmethod
    def show_opened(self, opened: answers.ChatOpened) -> None:
        """Show an opened session."""

    def show_state(self, state: answers.ChatState) -> None: ...

    def enter(self, opened: answers.ChatOpened, *, is_known: bool = False) -> None:
        """Switch to an opened session."""
        self.key, self.name, self.is_opening = opened["key"], opened["name"], False
        self.sessions = {opened["key"]}
        if not is_known:
            self.last_shown = opened["number"]
            self.show_opened(opened)
        self.show_state(opened["state"])
        self.take_early()

    async def back(self) -> None:
        settings = {**self._options, "model": None, "thinking": None}  # may have changed since
        await self._open(settings, self.name, after=self.last_shown)
        reset = " Your /exec and /elevated settings no longer apply." if self.has_keyboard else ""
        self.show(events.Notice(f"connected again.{reset}"), "")

    async def _open(self, options: dict[str, Any], session: str, **more: Any) -> None:
        self.is_opening = True  # show new events after the history
        params = chat_params(self.link.target, options, session, keyboard=self.has_keyboard)
        try:
            opened = await self.call(CHAT, params | more, answers.ChatOpened)
        finally:
            self.is_opening = False
        self.enter(opened, is_known=bool(more))

    async def type(self, line: str, key: str = "", **more: Any) -> answers.LineDone:
        """Send a typed line; returns the gateway's answer. Raises `ToolError`."""
        params = {"key": self.key, "line": line, "idempotencyKey": key or os.urandom(16).hex()}
        done: answers.LineDone = await self.call(
            "clawkit.chat.type", params | more, answers.LineDone
        )
        self.is_over = done.get("over", False)
        if "state" in done:
            self.show_state(done["state"])
        if (session := done.get("session")) is not None:
            await self._open(self._options, session)
        return done

    @property
    def unsent(self) -> dict[str, str]:
        """Lines waiting for the connection, by request id."""
        found = self._waiting.items()
        return {id_: each[2]["line"] for id_, each in found if id_.startswith(_LATER)}

    def take_back_unsent(self) -> str:
        id_, line = self.unsent.popitem()
        self._waiting.pop(id_)[0].cancel()
        return line

    def how_to_go_on(self) -> str:
        return f"To continue: clawkit chat --session {self.name}"
