"""The full-terminal chat: you can type while the agent works."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from clawkit.agent.events import (
    AnswerStored,
    Compacted,
    Event,
    MessageAdded,
    TurnEnded,
    TurnStarted,
)
from clawkit.content import Image, Message, User
from clawkit.core.result import Result
from clawkit.errors import ClawkitError
from clawkit.ui import calls, commands
from clawkit.ui.input_area import Prompt
from clawkit.ui.paint import PaintedRow
from clawkit.ui.screen_chat import ScreenChat
from clawkit.ui.session import ChatSession, SessionOpener, TypedCallApprover, without_tail


class TuiChat(ChatSession, ScreenChat):
    has_keyboard = True

    def __init__(self, opener: SessionOpener, prompt: Prompt) -> None:
        ScreenChat.__init__(self, prompt)
        self._work: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn_status = "done"
        self._facts = ""
        ChatSession.__init__(self, opener, self._tell, TypedCallApprover(prompt.questions))
        prompt.questions.scope = lambda: self.agent.kit.run.scope
        prompt.questions.waits = lambda call, asked: self.display.pause(call, is_asked=asked)

    def redact(self, text: str) -> str:
        return self.agent.kit.run.redactor.text(text)

    async def begin(self, message: str, pictures: Sequence[str]) -> None:
        self.rows(list(self.greeting()))
        self.show_history(self.agent.conversation.history)
        self._update()
        self._run_beside(self._look())
        for path in pictures:
            self.images.append(await self.agent.attach(path))
        if message:
            self.cli_message = self.read(message)[0]
            self.submit(message)
        else:
            self.hear_results()

    async def _look(self) -> None:
        await self.look()
        self.say(self.describe_commands(why=True), "dim")

    async def stop(self) -> None:
        tasks = {each for each in (self._work, *self._tasks) if each is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        session = self.agent.session
        if session is not None and session.turns:
            self.say_how_to_continue(session.name)
        await super().close()

    # Called by the prompt

    def submit(self, text: str, *, later: bool = False) -> None:
        text, is_later = self.read(text)
        if self.is_command(text):
            self.display.show_typed(text, "dim")
            command = commands.COMMANDS.get(commands.split(text)[0])
            work = commands.run(self, text)
            if command is not None and not command.is_alone:
                self._run_beside(work)
            elif self.is_busy:
                work.close()
                self.say("The agent is working: wait until it is done, or press Esc.", "warning")
            else:
                self._start(work, is_turn=False)
        else:
            self._post(text, is_later=later or is_later)
            self._update()
        self.prompt.refresh()

    def _post(self, text: str, *, is_later: bool) -> None:
        """Post at once, not in the task that follows the turn: what is typed next comes after."""
        is_free = not self.is_busy
        try:
            turn = self.agent.post(
                self.blocks(text), mode="followup" if is_later or is_free else None
            )
        except ClawkitError as error:
            self.say(str(error), "warning")
            self.type_again([text])
            return
        if is_free:
            self._start(self.agent.turns.follow(turn))

    def _run_beside(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.ensure_future(self._carry(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def is_busy(self) -> bool:
        return self.is_working or self.agent.turns.lane.is_busy

    @property
    def is_working(self) -> bool:
        return self._work is not None and not self._work.done()

    def interrupt(self) -> bool:
        if not self.is_busy:
            return False
        self.display.is_stopping = True
        if not self.agent.turns.lane.stop() and self._work is not None:
            # Not now: a task that has not begun would not withdraw its message.
            asyncio.get_running_loop().call_soon(self._work.cancel)
        return True

    def take_back(self) -> str | None:
        message = self.agent.turns.take_back()
        self._update()
        return message.text if message is not None else None

    def waiting(self) -> Iterable[str]:
        return (each.text for each in self.agent.turns.waiting)

    def working(self) -> Iterable[str]:
        return self.describe_subagents()

    def toolbar(self) -> str:
        return self._facts

    # Work

    def _start(self, work: Coroutine[Any, Any, object], *, is_turn: bool = True) -> None:
        self.display.is_stopping = False
        self._work = asyncio.ensure_future(self._carry(work, says_interrupted=not is_turn))
        self._work.add_done_callback(self._settle)

    async def _carry(
        self, work: Coroutine[Any, Any, object], *, says_interrupted: bool = False
    ) -> None:
        """Run something, redrawing while it runs, and show its errors."""
        ticking = asyncio.ensure_future(self.tick())
        lane = self.agent.turns.lane
        try:
            with lane.paused() if says_interrupted else nullcontext():
                await work
        except asyncio.CancelledError:
            if says_interrupted:  # a turn reports it itself
                self.display.end_running()
                self.display.note("interrupted", "warning")
            self.display.running.clear()
        except (ClawkitError, OSError) as error:
            self.display.note(str(error), "error")
        except Exception as error:  # noqa: BLE001  # raised again when the terminal is restored
            self.failure = error
            self.prompt.quit(1)
        finally:
            ticking.cancel()
        self._update()
        if self.is_over:
            self.prompt.quit()

    def _settle(self, _work: object) -> None:
        """Follow turns that start on their own, and have the model read results of sub-agents."""
        self.prompt.is_armed = self.prompt.is_armed and self._turn_status == "aborted"
        if self.is_over or self.failure or not self.prompt.app.is_running:
            return
        delegation = self.agent.delegation
        if delegation is not None and delegation.active():
            # Keeps redrawing, to show their progress.
            self._run_beside(delegation.wait((), None))
        if self.agent.turns.lane.is_busy:
            self._start(self.agent.turns.lane.idle())
        if self._turn_status == "done":  # do not retry endlessly after a failure
            self.hear_results()
        self._update()

    def hear_results(self) -> None:
        if not self.is_busy and self.agent.has_results:
            self._start(self.agent.report())

    def _tell(self, event: Event) -> None:
        self.display.show_thinking = self.show_thinking
        self.display(event)
        if isinstance(event, TurnStarted) and not self.is_working:
            self._start(self.agent.turns.lane.idle())
        if isinstance(event, TurnEnded):
            self._turn_status = event.how
            if event.how == "aborted":
                self.display.running.clear()
            if event.how not in ("done", "aborted") or self.display.is_stopping:
                # Messages that the model did not read come back into the line.
                waiting: list[User] = []
                while (message := self.agent.turns.take_back()) is not None:
                    waiting.insert(0, message)
                blocks = [block for each in waiting for block in each.content]
                self.images += [block for block in blocks if isinstance(block, Image)]
                self.type_again(each.text for each in waiting)
            self.display.is_stopping = False
        if isinstance(event, AnswerStored | Compacted | MessageAdded | TurnEnded):
            self._update()

    def _update(self) -> None:
        self._facts = self.describe()
        self.prompt.refresh()

    # Completion

    def words_after(self, name: str) -> commands.Words:
        return commands.words_after(self, name)

    @property
    def workspace(self) -> str:
        return self.agent.kit.workspace

    # Showing

    def rows(self, rows: Sequence[PaintedRow]) -> None:
        self.display.rows("note", list(rows))

    def show_call(self, event: Mapping[str, Any]) -> None:
        self.display.show_call(without_tail(event))

    def show_result(self, result: Result) -> None:
        if rows := list(calls.result_rows(result)):
            self.display.rows("text", rows)

    def show_image(self, image: Image) -> None:
        self.display.show_image(image)

    def show_history(self, messages: Sequence[Message]) -> None:
        self.recall(messages, len(messages))
