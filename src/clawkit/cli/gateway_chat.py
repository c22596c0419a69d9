"""`clawkit chat` with a gateway: the terminal is local, the conversation runs in the gateway.

Several terminals can follow one conversation, and all show its events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from clawkit.agent.events import (
    AnswerStored,
    Compacted,
    Event,
    MessageAdded,
    Notice,
    TurnEnded,
    TurnStarted,
)
from clawkit.cli.gateway_answers import ChatOpened, ChatState, TakenBack, ToldEvent
from clawkit.cli.gateway_link import RemoteChat
from clawkit.cli.gateway_turn import attach
from clawkit.core.approval import Answer, Approver, Question
from clawkit.errors import ToolError
from clawkit.gateway.client import Link
from clawkit.redact.redactor import Redactor
from clawkit.ui.input_area import OpenFull, Prompt
from clawkit.ui.line_input import Words
from clawkit.ui.screen_chat import ScreenChat

_AWAY: ChatState = {"waiting": [], "working": [], "busy": False}
"""The state without a connection."""


class GatewayChat(RemoteChat, ScreenChat):
    has_keyboard = True

    def __init__(
        self, prompt: Prompt, link: Link, options: dict[str, Any], opened: ChatOpened
    ) -> None:
        ScreenChat.__init__(self, prompt)
        self.workspace = ""
        self.redact = Redactor().text
        self._opened, self._state = opened, _AWAY
        self._words: Mapping[str, Words] = {}
        self._is_busy = self._has_said = False
        self._ticking: asyncio.Task[None] | None = None
        RemoteChat.__init__(self, link, options)

    @classmethod
    def opener(cls, link: Link, options: dict[str, Any], opened: ChatOpened) -> OpenFull:
        async def open_chat(prompt: Prompt) -> GatewayChat:
            return cls(prompt, link, options, opened)

        return open_chat

    # The conversation

    async def begin(self, message: str, pictures: Sequence[str]) -> None:
        self.enter(self._opened)
        self.run(self.ask_pending())
        attached = [attach(each) for each in pictures]
        if message or attached:
            self.run(self._type(message, attachments=attached, given=True))

    def show_opened(self, opened: ChatOpened) -> None:
        self.workspace, self._words = opened["workspace"], opened["words"]
        self.display.rows("note", opened["rows"])
        for text in opened["warnings"]:
            self.display.note(text, "warning")
        self.recall(opened["history"], opened["total"])
        self._has_said = bool(opened["total"])

    async def stop(self) -> None:
        for line in self.unsent.values():
            self.display.note(f"not sent: {line}", "warning")
        self.leave()

    async def close(self) -> None:
        if self._has_said and self.failure is None:  # which reports it as well
            self.say_how_to_continue(self.name)

    def say(self, text: str) -> None:
        self.display.note(text, "error")
        self.prompt.refresh()

    def on_disconnected(self, error: ToolError) -> None:
        self.failure = error
        self.prompt.quit(1)

    # Typed

    def submit(self, text: str, *, later: bool = False) -> None:
        self.run(self._type(text, later=later))

    async def _type(self, text: str, **more: Any) -> None:
        done = await self.type(text, **more)
        self.display.show_thinking = done.get("showThinking", self.display.show_thinking)
        if self.is_over:
            self.prompt.quit()

    def interrupt(self) -> bool:
        if not self._is_busy:
            return False
        self.display.is_stopping = True
        self.run(self.call("clawkit.chat.stop", {"key": self.key}))
        return True

    def take_back(self) -> str | None:
        if self.unsent:
            return self.take_back_unsent()
        if not self._state["waiting"]:
            return None
        self.run(self._take_back())
        return self.prompt.buffer.text

    async def _take_back(self) -> None:
        found = await self.call("clawkit.chat.takeBack", {"key": self.key}, TakenBack)
        self.show_state(found["state"])
        self.type_again([found["text"]])

    # Shown

    def waiting(self) -> list[str]:
        return [*self._state["waiting"], *self.unsent.values()]

    def working(self) -> list[str]:
        return list(self._state["working"])

    def toolbar(self) -> str:
        return str(self._state.get("facts", "no connection to the gateway"))

    def words_after(self, name: str) -> Words:
        return self._words.get(name, ())

    def show_state(self, state: ChatState) -> None:
        self._state, self._is_busy = state, state["busy"]
        if self._is_busy and self._ticking is None:
            self._ticking = self.run(self.tick())
        elif not self._is_busy:
            self._rest()
        self.prompt.refresh()

    def _rest(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None
        if self.display.began is not None:  # it ended while disconnected
            self.display.running.clear()
            self.display(TurnEnded("done"))

    def hear(self, payload: ToldEvent) -> None:
        match payload:
            case {"rows": rows}:
                self.display.rows("note", rows)
            case {"output": rows}:
                self.display.rows("text", rows)
            case {"typed": text}:
                self.display.show_typed(text, "dim")
            case {"call": event}:
                self.display.show_call(event)
            case {"image": image}:
                self.display.show_image(image)
            case {"interrupted": _}:
                self.display.end_running()
                self.display.note("interrupted", "warning")
                self.display.running.clear()
                self.display.is_stopping = False
            case {"state": state}:
                self.show_state(state)

    def show(self, event: Event, run: str) -> None:
        self.display(event)
        if isinstance(event, TurnStarted):
            self._is_busy = self._has_said = True
        if isinstance(event, TurnEnded):
            self._is_busy = self.display.is_stopping = False
            if event.how == "aborted":
                self.display.running.clear()
        if not self.is_connected:
            self._state, self._is_busy = _AWAY, False
            self.display.running.clear()
        elif isinstance(event, AnswerStored | Compacted | Notice | MessageAdded | TurnEnded):
            self.run(self._update())
        self.prompt.refresh()

    async def _update(self) -> None:
        self.show_state(await self.call("clawkit.chat.state", {"key": self.key}, ChatState))

    def approver(self) -> Approver:
        return self

    async def ask(self, request: Question) -> Answer:
        self.display.pause(request.call_id, is_asked=True)
        try:
            return await self.prompt.questions.ask(request)
        finally:
            self.display.pause(request.call_id, is_asked=False)
