"""The display of a full-terminal chat, with a local or remote agent."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from clawkit.content import Assistant, Message, User
from clawkit.text import one_line
from clawkit.ui.input_area import InputHandler, Prompt
from clawkit.ui.paint import find_protocol
from clawkit.ui.turn_display import TurnDisplay

_TICK_S = 0.1
_RECALLED = 2
"""Maximum messages shown of a resumed conversation."""


class ScreenChat(InputHandler, ABC):
    """The conversation as the input line sees it."""

    def __init__(self, prompt: Prompt) -> None:
        InputHandler.__init__(self)
        self.prompt = prompt
        self.failure: BaseException | None = None
        """The unexpected exception that ended the chat, if any."""
        self.display = TurnDisplay(prompt, prompt.paint, protocol=find_protocol(os.environ))

    @abstractmethod
    def waiting(self) -> Iterable[str]:
        """Messages that the model has not read yet."""

    @abstractmethod
    def working(self) -> Iterable[str]:
        """Activity besides the turn."""

    def live(self, columns: int, rows: int) -> str:
        self.display.is_asked = self.prompt.questions.current is not None
        return self.display.live(columns, rows)

    def queue(self) -> list[str]:
        width = max(20, self.prompt.columns - 12)
        rows = [f"  queued: {one_line(each, width)}" for each in self.waiting()]
        rows += ["  (press Up to edit the last one)"] if rows else []
        return [*(f"  {one_line(each, width)}" for each in self.working()), *rows]

    async def tick(self) -> None:
        """Redraw until cancelled, to update times."""
        while True:
            await asyncio.sleep(_TICK_S)
            self.prompt.refresh()

    def type_again(self, texts: Iterable[str]) -> None:
        """Put texts into the line, before its current text."""
        self.prompt.buffer.text = "\n".join(filter(None, (*texts, self.prompt.buffer.text)))
        self.prompt.buffer.cursor_position = len(self.prompt.buffer.text)

    def recall(self, messages: Sequence[Message], total: int) -> None:
        """Show the end of a conversation that is resumed."""
        said = [each for each in messages if isinstance(each, User | Assistant) and is_said(each)]
        if len(said) > _RECALLED or total > len(messages):
            self.display.note(f"{total - _RECALLED} earlier messages are not shown.")
        for each in said[-_RECALLED:]:
            if isinstance(each, User):
                self.display.show_said(each)
            else:
                self.display.show_text(each.text)

    def say_how_to_continue(self, session: str) -> None:
        said = f"To continue later: clawkit chat --session {session}\n"
        self.prompt.print(self.prompt.paint(said, "dim"))


def is_said(message: User | Assistant) -> bool:
    """Whether it is for people to read; false for tool calls."""
    return isinstance(message, User) or bool(message.text.strip())
