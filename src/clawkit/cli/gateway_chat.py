"""`clawkit chat` with a gateway: the terminal here, the conversation there.

Several terminals can follow one conversation: all of them show what happens in it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from clawkit.agent.events import Answered, Compacted, Event, Noticed, Said, TurnEnded, TurnStarted
from clawkit.approvals.binding import choice_of, read_question
from clawkit.cli.gateway_turn import CHAT, attach, chat_params
from clawkit.content import Assistant, Image, User
from clawkit.errors import ClawkitError, ToolError
from clawkit.gateway.client import SILENCE_S, Link, payload_of, read_frame
from clawkit.redact.redactor import Redactor
from clawkit.text import one_line
from clawkit.ui.commands import Words
from clawkit.ui.paint import PaintedRow, find_protocol
from clawkit.ui.prompt import InputHandler, OpenFull, Prompt
from clawkit.ui.turn_display import TurnDisplay

_TICK_S = 0.1
_RECALLED = 2


class LinkReader:
    """Reads a link in an event loop: answers go to those who wait, events to a listener."""

    def __init__(
        self, link: Link, on_event: Callable[[dict[str, Any]], None], on_lost: Callable[[str], None]
    ) -> None:
        self.link = link
        self._on_event, self._on_lost = on_event, on_lost
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(link.socket.fileno(), self._read)
        self._watch = self._loop.call_later(SILENCE_S, self._lose, "it does not answer")

    async def call(self, method: str, params: dict[str, Any]) -> Any:
        """Call a method. Raises `CallError`."""
        id_ = self.link.request(method, params)
        self._waiting[id_] = future = self._loop.create_future()
        return payload_of(await future)

    def _read(self) -> None:
        self._watch.cancel()
        self._watch = self._loop.call_later(SILENCE_S, self._lose, "it does not answer")
        try:
            self.link.socket.read()
            for text in self.link.socket.messages():
                frame = read_frame(text)
                waiting = self._waiting.pop(str(frame.get("id")), None)
                if waiting is None:
                    self._on_event(frame)
                elif not waiting.done():
                    waiting.set_result(frame)
        except (OSError, ToolError) as error:
            self._lose(str(error))

    def _lose(self, why: str) -> None:
        self._loop.remove_reader(self.link.socket.fileno())
        self._on_lost(why)

    def close(self) -> None:
        self._watch.cancel()
        self._loop.remove_reader(self.link.socket.fileno())
        self.link.close()


class GatewayChat(InputHandler):
    """The conversation as the input line sees it."""

    def __init__(
        self, prompt: Prompt, link: Link, options: dict[str, Any], opened: dict[str, Any]
    ) -> None:
        super().__init__()
        self.prompt = prompt
        self.failure: BaseException | None = None
        self.display = TurnDisplay(prompt, prompt.paint, protocol=find_protocol(os.environ))
        self.workspace = ""
        self.redact = Redactor().text
        self._options, self._opened = options, opened
        self._reader = LinkReader(link, self._take, self._lose)
        self._key = self._name = ""
        self._state: dict[str, Any] = {"facts": "starting", "waiting": [], "working": []}
        self._words: dict[str, Words] = {}
        self._is_busy = self._has_said = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ticking: asyncio.Task[None] | None = None
        self._questions: dict[str, asyncio.Task[Any]] = {}

    @classmethod
    def opener(cls, link: Link, options: dict[str, Any], opened: dict[str, Any]) -> OpenFull:
        async def open_chat(prompt: Prompt) -> GatewayChat:
            return cls(prompt, link, options, opened)

        return open_chat

    # The conversation

    async def begin(self, message: str, pictures: Sequence[str]) -> None:
        self._enter(self._opened)
        for asked in await self._reader.call("exec.approval.list", {}):
            self._ask(asked)
        attached = [attach(each) for each in pictures]
        if message or attached:
            self._run(self._type(message, attachments=attached, given=True))

    def _enter(self, opened: dict[str, Any]) -> None:
        """Show a conversation that was opened."""
        self._key, self._name = opened["key"], opened["name"]
        self.workspace, self._words = opened["workspace"], opened["words"]
        self._set_state(opened["state"])
        self._show_rows(opened["rows"])
        for text in opened["warnings"]:
            self.display.note(text, "warning")
        self._show_history(opened["history"], opened["total"])
        self._has_said = bool(opened["total"])
        link = self._reader.link
        early, link.events = link.events, []
        for frame in early:
            self._take(frame)

    def _show_history(self, given: list[Any], total: int) -> None:
        said = msgspec.convert(given, list[User | Assistant])[-_RECALLED:]
        if total > len(said):
            self.display.note(f"{total - len(said)} earlier messages are not shown.")
        for each in said:
            if isinstance(each, User):
                self.display.show_said(each)
            else:
                self.display.show_text(each.text)

    async def stop(self) -> None:
        ticking = () if self._ticking is None else (self._ticking,)
        for task in (*self._tasks, *self._questions.values(), *ticking):
            task.cancel()

    async def close(self) -> None:
        self._reader.close()
        if self._has_said and self.failure is None:  # which says it, too
            said = f"To continue later: clawkit chat --session {self._name}\n"
            self.prompt.print(self.prompt.paint(said, "dim"))

    def _run(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(self._carry(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except (ClawkitError, OSError) as error:
            self.display.note(str(error), "error")
        self.prompt.refresh()

    # Typed

    def submit(self, text: str, *, later: bool = False) -> None:
        self._run(self._type(text, later=later))

    async def _type(self, text: str, **more: Any) -> None:
        params = {"key": self._key, "line": text, "idempotencyKey": os.urandom(16).hex(), **more}
        done = await self._reader.call("clawkit.chat.type", params)
        self.display.show_thinking = done.get("showThinking", self.display.show_thinking)
        self._set_state(done["state"])
        if done.get("over"):
            self.prompt.quit()
        elif (session := done.get("session")) is not None:
            target = self._reader.link.target
            params = chat_params(target, self._options, session, keyboard=True)
            self._enter(await self._reader.call(CHAT, params))

    def interrupt(self) -> bool:
        if not self._is_busy:
            return False
        self.display.is_stopping = True
        self._run(self._reader.call("clawkit.chat.stop", {"key": self._key}))
        return True

    def take_back(self) -> str | None:
        if not self._state["waiting"]:
            return None
        self._run(self._take_back())
        return self.prompt.buffer.text

    async def _take_back(self) -> None:
        found = await self._reader.call("clawkit.chat.takeBack", {"key": self._key})
        self._set_state(found["state"])
        self.prompt.buffer.text = "\n".join(filter(None, (found["text"], self.prompt.buffer.text)))
        self.prompt.buffer.cursor_position = len(self.prompt.buffer.text)

    # Shown

    def live(self, columns: int, rows: int) -> str:
        self.display.is_asked = self.prompt.questions.current is not None
        return self.display.live(columns, rows)

    def queue(self) -> list[str]:
        width = max(20, self.prompt.columns - 12)
        rows = [f"  queued: {one_line(each, width)}" for each in self._state["waiting"]]
        rows += ["  (press Up to edit the last one)"] if rows else []
        return [*(f"  {one_line(each, width)}" for each in self._state["working"]), *rows]

    def toolbar(self) -> str:
        return str(self._state["facts"])

    def words_after(self, name: str) -> Words:
        return [(word, about) for word, about in self._words.get(name, ())]

    def _set_state(self, state: dict[str, Any]) -> None:
        self._state, self._is_busy = state, state["busy"]
        if self._is_busy and self._ticking is None:
            self._ticking = asyncio.ensure_future(self._tick())
        self.prompt.refresh()

    def _show_rows(self, rows: Sequence[Any]) -> None:
        self.display.rows("note", [PaintedRow(*each) for each in rows])

    def _take(self, frame: dict[str, Any]) -> None:
        payload = frame.get("payload") or {}
        match frame.get("event"):
            case "clawkit.event" if payload["key"] == self._key:
                self._hear(payload)
            case "clawkit.event":
                self._reader.link.events.append(frame)  # of a session that is being opened
            case "exec.approval.requested":
                self._ask(payload)
            case "exec.approval.resolved" if task := self._questions.pop(payload["id"], None):
                task.cancel()

    def _hear(self, payload: dict[str, Any]) -> None:
        match payload:
            case {"event": event}:
                self._tell(msgspec.convert(event, Event))
            case {"rows": rows}:
                self._show_rows(rows)
            case {"output": rows}:
                self.display.rows("text", [PaintedRow(*each) for each in rows])
            case {"typed": text}:
                self.display.show_typed(text, "dim")
            case {"call": event}:
                self.display.show_call(event)
            case {"image": image}:
                self.display.show_image(msgspec.convert(image, Image))
            case {"interrupted": _}:
                self.display.end_running()
                self.display.note("interrupted", "warning")
                self.display.running.clear()
                self.display.is_stopping = False
            case {"state": state}:
                self._set_state(state)

    def _tell(self, event: Event) -> None:
        self.display(event)
        if isinstance(event, TurnStarted):
            self._is_busy = self._has_said = True
        if isinstance(event, TurnEnded):
            self._is_busy = self.display.is_stopping = False
            if event.how == "aborted":
                self.display.running.clear()
        if isinstance(event, Answered | Compacted | Noticed | Said | TurnEnded):
            self._run(self._update())
        self.prompt.refresh()

    async def _update(self) -> None:
        self._set_state(await self._reader.call("clawkit.chat.state", {"key": self._key}))

    async def _tick(self) -> None:
        while self._is_busy:
            await asyncio.sleep(_TICK_S)
            self.prompt.refresh()
        self._ticking = None

    def _lose(self, why: str) -> None:
        how = f"; to continue: clawkit chat --session {self._name}" if self._name else ""
        self.failure = ToolError(f"the gateway is gone ({why}){how}")
        self.prompt.quit(1)

    # Questions

    def _ask(self, payload: dict[str, Any]) -> None:
        if payload["clawkit"]["session"] == self._key and payload["id"] not in self._questions:
            self._questions[payload["id"]] = asyncio.ensure_future(self._answer(payload))

    async def _answer(self, payload: dict[str, Any]) -> None:
        question = read_question(payload["clawkit"])
        self.display.pause(question.call_id, is_asked=True)
        try:
            answer = await self.prompt.questions.ask(question)
        finally:
            self.display.pause(question.call_id, is_asked=False)
        params = {"id": payload["id"], "decision": choice_of(answer), "reason": answer.reason}
        params |= {"extent": answer.extent} if answer.extent else {}
        await self._carry(self._reader.call("exec.approval.resolve", params))
