"""A conversation in a full terminal: typing and watching at the same time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from clawkit.agent.events import Answered, Compacted, Event, Said, TurnEnded
from clawkit.content import Assistant, Image, Message, Text, User
from clawkit.errors import ClawkitError
from clawkit.text import cut_start, one_line
from clawkit.ui import commands
from clawkit.ui.paint import Row, Style, find_protocol
from clawkit.ui.prompt import Prompt
from clawkit.ui.session import (
    ChatSession,
    SessionOpener,
    TypedCallApprover,
    describe_commands,
    look,
)
from clawkit.ui.turn_display import TurnDisplay

_TICK_S = 0.1
_MAX_OUTPUT = 20_000
_RECALLED = 2
"""Messages of a conversation that goes on which are shown again."""


class TuiChat:
    """The desk of a prompt, and the face of a conversation."""

    def __init__(self, doors: SessionOpener, prompt: Prompt) -> None:
        self.prompt = prompt
        self.failure: BaseException | None = None
        """What ended the program, if it was a fault of its own."""
        self.watcher = TurnDisplay(prompt, prompt.paint, protocol=find_protocol(os.environ))
        self._doors = doors
        self._work: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._how = "done"
        self._facts = ""
        self._approver = TypedCallApprover(prompt.questions)
        self.talk = ChatSession(doors.open(self._tell, self._approver), self._reopen, doors.ending)
        prompt.questions.who = self._who
        prompt.questions.waits = lambda tool, asked: self.watcher.pause(tool, is_asked=asked)

    async def begin(self, message: str, pictures: Sequence[str]) -> None:
        """Greet, and say the first thing there is to say."""
        agent = self.talk.agent
        self.rows(list(self.talk.greeting()))
        self.show_history(agent.conversation.history)
        self._update()
        self._run_beside(self._look())
        for path in pictures:
            self.talk.images.append(await agent.attach(path))
        if message:
            self.talk.given = self.talk.read(message)
            self.submit(message)

    async def _look(self) -> None:
        await look(self.talk)
        self.say(describe_commands(self.talk), "dim")

    def _who(self) -> tuple[str, str]:
        scope = self.talk.agent.kit.run.scope
        return scope.agent, scope.session

    def _reopen(self, session: str | None) -> Any:
        return self._doors.reopen(session, self._tell, self._approver)

    async def stop(self) -> None:
        """End what is under way."""
        tasks = {each for each in (self._work, *self._tasks) if each is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Leave the conversation, and say how to come back."""
        session = self.talk.agent.session
        if session is not None and session.turns:
            said = f"To continue later: clawkit chat --session {session.name}\n"
            self.prompt.print(self.prompt.paint(said, "dim"))
        self._doors.ending(self.talk.agent)
        await self.talk.agent.close()

    # What the prompt asks for

    def submit(self, text: str, *, later: bool = False) -> None:
        talk = self.talk
        text = talk.read(text)
        name, rest = commands.split(text)
        if text.startswith("/later ") and rest and name == "later":
            text, later = rest, True
        if talk.is_command(text):
            self._run_command(talk, text)
        elif self.is_busy:
            said = talk.blocks(text)
            conversation = talk.agent.conversation
            (conversation.follow_up if later else conversation.steer)(said)
            self._update()
        else:
            self._start(talk.agent.send(talk.blocks(text)))
        self.prompt.refresh()

    def _run_command(self, talk: ChatSession, text: str) -> None:
        self.watcher.show_typed(text, "dim")
        command = commands.find(text)
        work = commands.run(talk, self, text)
        if command is not None and not command.is_alone:
            self._run_beside(work)
        elif self.is_busy:
            work.close()
            self.say("The agent is working: wait until it is done, or press Esc first.", "warning")
        else:
            self._start(self._until_interrupted(work))

    def _run_beside(self, work: Coroutine[Any, Any, object]) -> None:
        """Do something while the person types and the agent works."""
        task = asyncio.ensure_future(self._carry(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def is_busy(self) -> bool:
        return self._work is not None and not self._work.done()

    def interrupt(self) -> bool:
        if self._work is None or self._work.done():
            return False
        self.watcher.is_stopping = True
        self._work.cancel()
        return True

    def take_back(self) -> str | None:
        message = self.talk.agent.conversation.take_back()
        self._update()
        return _text_of(message) if message is not None else None

    def live(self, columns: int, rows: int) -> str:
        self.watcher.is_asked = self.prompt.questions.current is not None
        return self.watcher.live(columns, rows)

    def queue(self) -> list[str]:
        waiting = self.talk.agent.conversation.waiting
        width = max(20, self.prompt.columns - 12)
        rows = [f"  queued: {one_line(_text_of(each), width)}" for each in waiting]
        return [*rows, "  (Up takes the last one back)"] if rows else []

    def toolbar(self) -> str:
        return self._facts

    # Work

    async def _until_interrupted(self, work: Coroutine[Any, Any, object]) -> None:
        """A command; of a turn it is said that it was interrupted."""
        try:
            await work
        except asyncio.CancelledError:
            self.watcher.end_running()
            self.watcher.note("interrupted", "warning")
            raise

    def _start(self, work: Coroutine[Any, Any, object]) -> None:
        self.watcher.is_stopping = False
        self._work = asyncio.ensure_future(self._carry(work))
        self._work.add_done_callback(self._settle)

    async def _carry(self, work: Coroutine[Any, Any, object]) -> None:
        """Do something, and show that it goes on, and what went wrong."""
        ticking = asyncio.ensure_future(self._tick())
        try:
            await work
        except asyncio.CancelledError:
            self.watcher.running.clear()
        except (ClawkitError, OSError) as error:
            self.watcher.note(str(error), "error")
        except Exception as error:  # noqa: BLE001  # raised again when the terminal is restored
            self.failure = error
            self.prompt.quit(1)
        finally:
            ticking.cancel()
        self._update()
        if self.talk.is_over:
            self.prompt.quit()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self.prompt.refresh()

    def _settle(self, _work: object) -> None:
        """What the model did not get to read is said now, or comes back into the line."""
        self.prompt.is_armed = self.prompt.is_armed and self._how == "aborted"
        if self.talk.is_over or self.failure or not self.prompt.app.is_running:
            return
        waiting: list[User] = []
        while (message := self.talk.agent.conversation.take_back()) is not None:
            waiting.insert(0, message)
        blocks = [block for each in waiting for block in each.content]
        if waiting and self._how == "done":
            self._start(self.talk.agent.send(blocks))
        elif waiting:
            self.talk.images += [block for block in blocks if isinstance(block, Image)]
            texts = [*map(_text_of, waiting), self.prompt.buffer.text]
            self.prompt.buffer.text = "\n".join(filter(None, texts))
            self.prompt.buffer.cursor_position = len(self.prompt.buffer.text)
        self._update()

    def _tell(self, event: Event) -> None:
        self.watcher(event)
        if isinstance(event, TurnEnded):
            self._how = event.how
        if isinstance(event, Answered | Compacted | Said | TurnEnded):
            self._update()

    def _update(self) -> None:
        """The facts at the bottom of the screen."""
        self._facts = describe(self.talk)
        self.prompt.refresh()

    # What a line may go on with

    def command_words(self) -> commands.Words:
        return commands.names()

    def words_after(self, name: str) -> commands.Words:
        return commands.words_after(self.talk, name)

    @property
    def workspace(self) -> str:
        return self.talk.agent.kit.workspace

    # The face

    @property
    def show_thinking(self) -> bool:
        return self.watcher.show_thinking

    @show_thinking.setter
    def show_thinking(self, shown: bool) -> None:
        self.watcher.show_thinking = shown

    def say(self, text: str, style: Style = "") -> None:
        self.watcher.rows("note", [Row(text, style)])

    def rows(self, rows: Sequence[Row]) -> None:
        self.watcher.rows("note", list(rows))

    def show_call(self, event: Mapping[str, Any]) -> None:
        # All of the output follows.
        details = event.get("details")
        kept = {key: details[key] for key in details if key != "aggregated"} if details else {}
        self.watcher.show_call({**event, "details": kept})

    def show_output(self, text: str, *, failed: bool) -> None:
        # What went wrong is in the line of the call, if one line is enough for it.
        if not failed or "\n" in text.strip():
            shown = cut_start(text.rstrip(), _MAX_OUTPUT)
            self.watcher.rows("text", [Row(shown or "(no output)")])

    def show_image(self, image: Image) -> None:
        self.watcher.show_image(image)

    def show_history(self, messages: Sequence[Message]) -> None:
        told = [
            each
            for each in messages
            if isinstance(each, User) or (isinstance(each, Assistant) and each.text.strip())
        ]
        if len(told) > _RECALLED:
            self.say(f"{len(messages) - _RECALLED} earlier messages are not shown.", "dim")
        for each in told[-_RECALLED:]:
            if isinstance(each, User):
                self.watcher.show_said(each)
            elif isinstance(each, Assistant):
                self.watcher.show_text(each.text)


def describe(talk: ChatSession) -> str:
    """Model, title, context, cost, queue and where commands run in one line."""
    conversation, session = talk.agent.conversation, talk.agent.session
    used, window = conversation.context_tokens, conversation.model.facts.window
    parts = [
        str(conversation.model.ref),
        one_line(session.title or session.name, 30) if session else "not saved",
        f"{_short(used)}/{_short(window)} {used * 100 // max(1, window)}%",
        f"${conversation.usage.cost:.2f}" if conversation.usage.cost else "",
        f"{conversation.queued} waiting" if conversation.queued else "",
        describe_commands(talk),
    ]
    return " · ".join(filter(None, parts))


def _short(tokens: int) -> str:
    return f"{tokens / 1000:.1f}k".replace(".0k", "k") if tokens >= 1000 else str(tokens)


def _text_of(message: User) -> str:
    return "\n".join(block.text for block in message.content if isinstance(block, Text))
