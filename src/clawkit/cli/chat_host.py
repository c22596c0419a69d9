"""The chats that a gateway hosts for remote terminals: their commands, without their screen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import msgspec

from clawkit.agent.events import Notice, no_listener
from clawkit.agent_session import Agent
from clawkit.content import Image, Message
from clawkit.core.result import Result
from clawkit.errors import ConflictError, ToolAuthorizationError
from clawkit.ui import calls, commands
from clawkit.ui.paint import PaintedRow
from clawkit.ui.session import ChatSession, without_tail

Push = Callable[[dict[str, Any]], None]
Report = Callable[[], None]
Override = Callable[[Mapping[str, Any]], None]
_SETTING = ("exec", "elevated")


class ChatRoom(ChatSession):
    def __init__(
        self, agent: Agent, push: Push, report: Report, override: Override, *, keyboard: bool
    ) -> None:
        self._given_agent = agent
        self._override = override
        self._overrides: dict[str, Any] = {}
        self._push = push
        self._report = report
        self.has_keyboard = keyboard
        self._next: str | None = None
        """The session to switch to: an id or a name, empty for a new one."""
        self._work: asyncio.Future[None] | None = None
        super().__init__(self, no_listener, None)
        self._looking = asyncio.ensure_future(self._look())

    # Opens nothing itself: the agent belongs to the gateway.

    def open(self, *_given: Any, **_changes: Any) -> Agent:
        return self._given_agent

    def ending(self, agent: Agent) -> None: ...

    async def switch(self, session: str | None) -> None:
        self._next = session or ""

    def hear_results(self) -> None:
        self._report()

    async def _look(self) -> None:
        await self.look()
        if self.has_keyboard:
            self.say(self.describe_commands(why=True), "dim")
        self._push({"state": self.state()})

    # Updates for the terminal

    def start(self) -> dict[str, Any]:
        names = ("", *commands.COMMANDS, "tool")
        words = {name: list(commands.words_after(self, name)) for name in names}
        return {"rows": list(self.greeting()), "words": words}

    def state(self) -> dict[str, Any]:
        return {
            "facts": self.describe(),
            "waiting": [each.text for each in self.agent.turns.waiting],
            "working": list(self.describe_subagents()),
            "busy": self.is_busy,
        }

    @property
    def is_busy(self) -> bool:
        is_working = self._work is not None and not self._work.done()
        return is_working or self.agent.turns.lane.is_busy

    def leave(self) -> None:
        """Called when the terminal has disconnected."""
        self._looking.cancel()
        self.has_keyboard = False  # pending lines no longer have an author
        if self._overrides:
            self._override({})
            self._tell_all("A terminal has left; its settings for commands no longer apply here.")

    # The session is shared, so a person's settings end when they leave.

    def use_exec(self, changes: Mapping[str, Any]) -> None:
        self._set({"exec": changes})

    def use_elevated(self, level: str) -> None:
        self._set({"elevated": level})

    def _set(self, overrides: dict[str, Any]) -> None:
        self._override(self._overrides | overrides)
        self._overrides |= overrides
        level = self.agent.kit.config.agents.defaults.elevated_default
        elevated = f", elevated {level}" if level else ""
        what = f"{self.describe_commands()}{elevated}"
        self._tell_all(f"Set by a terminal for this session, until it leaves: {what}")

    def _tell_all(self, text: str) -> None:
        self.agent.conversation.tell(Notice(text, "warning"))

    def stop(self) -> bool:
        return self._work is not None and self._work.cancel()

    async def carry_out(self, text: str) -> dict[str, Any]:
        command = commands.COMMANDS.get(commands.split(text)[0])
        is_alone = command is None or command.is_alone
        if is_alone and self.is_busy:
            raise ConflictError("the agent is working: wait until it is done, or stop it")
        self._push({"typed": text})
        # Messages wait meanwhile, as during a turn.
        with self.agent.turns.lane.paused() if is_alone else nullcontext():
            self._work = work = asyncio.ensure_future(self.run(text))
            self._push({"state": self.state()})
            try:
                await asyncio.wait({work})
            finally:
                work.cancel()
        if work.cancelled():
            self._push({"interrupted": True})
        else:
            work.result()
        after, self._next = self._next, None
        shown = {"over": self.is_over, "showThinking": self.show_thinking}
        return shown if after is None else shown | {"session": after}

    async def run(self, text: str) -> None:
        name, rest = commands.split(text)
        if name in _SETTING and rest and not self.is_typed(text):
            how = "type it in the chat, or add --local"
            raise ToolAuthorizationError(f"in a gateway, only a person can set that: {how}")
        await commands.run(self, text)

    def rows(self, rows: Sequence[PaintedRow]) -> None:
        self._push({"rows": list(rows)})

    def show_call(self, event: Mapping[str, Any]) -> None:
        self._push({"call": without_tail(event)})

    def show_result(self, result: Result) -> None:
        if rows := list(calls.result_rows(result)):
            self._push({"output": rows})

    def show_image(self, image: Image) -> None:
        self._push({"image": msgspec.to_builtins(image)})

    def show_history(self, messages: Sequence[Message]) -> None: ...
