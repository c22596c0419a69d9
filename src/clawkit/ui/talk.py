"""A conversation as people have it: messages, commands that begin with a slash, shell commands.

The same for every terminal; how things are shown is up to the `Face`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from clawkit.content import Block, Image, Message, Text
from clawkit.core.call import CallRequest, call
from clawkit.models.operator import REF as OPERATOR
from clawkit.models.operator import read_line
from clawkit.ui.calls import Row
from clawkit.ui.paint import Style

if TYPE_CHECKING:
    from clawkit.agent.events import Tell, TurnEnded
    from clawkit.assistant import Agent
    from clawkit.core.approval import Approver


class Face(Protocol):
    """Where a conversation is shown."""

    show_thinking: bool

    def say(self, text: str, style: Style = "") -> None:
        """Words of ours, harmless or not; lines stay lines."""
        ...

    def rows(self, rows: Sequence[Row]) -> None: ...
    def show_call(self, event: Mapping[str, Any]) -> None:
        """What happens in a call that the person made."""
        ...

    def show_output(self, text: str, *, failed: bool) -> None:
        """What such a call returned."""
        ...

    def show_image(self, image: Image) -> None: ...
    def show_history(self, messages: Sequence[Message]) -> None:
        """How a conversation that goes on has ended so far."""
        ...


class Doors(Protocol):
    """How conversations are opened, and what is said when one is left."""

    def open(self, tell: Tell, approver: Approver | None) -> Agent: ...
    def reopen(self, session: str | None, tell: Tell, approver: Approver | None) -> Agent:
        """Another conversation: an earlier one by its id, or one of a new name, or of none."""
        ...

    def ending(self, agent: Agent) -> None:
        """Say what ends with it."""
        ...


class Talk:
    """One conversation after the other, with everything that can be said in it."""

    def __init__(
        self, agent: Agent, reopen: Callable[[str | None], Agent], ending: Callable[[Agent], None]
    ) -> None:
        """`reopen` opens a conversation by name, or a new one; `ending` says what ends with it."""
        self.agent = agent
        self.reopen = reopen
        self.ending = ending
        self.images: list[Image] = []
        """Pictures that go with the next message."""
        self.exec_changes: dict[str, Any] = {}
        self.chosen_model = ""
        self.is_over = False

    @property
    def is_operator(self) -> bool:
        return self.agent.conversation.model.ref == OPERATOR

    def read(self, text: str) -> str:
        """A line as it is meant: blanks before a command do not make a message of it."""
        bare = text.lstrip(" \t")
        return bare if "\n" not in bare and self.is_command(bare) else text

    def is_command(self, text: str) -> bool:
        """Whether a line is for clawkit, not for the model."""
        if text.startswith("!"):
            return not self.is_operator
        if not text.startswith("/") or text.startswith("//"):
            return False
        name = text[1:].partition(" ")[0].partition("\n")[0]
        if name == "tool":
            return not self.is_operator
        # A path is nothing that anybody would type as a command.
        return "/" not in name

    def blocks(self, text: str) -> list[Block]:
        """A message, with the pictures that wait for one."""
        pictures, self.images = self.images, []
        words = text[1:] if text.startswith("//") else text
        return [Text(clean(words)), *pictures]

    async def send(self, said: Iterable[Block]) -> TurnEnded:
        return await self.agent.send(said)

    async def call(self, line: str, face: Face) -> None:
        """Carry out what the person typed as a command (`!ls`) or a call (`/tool ls {}`)."""
        try:
            name, params = read_line(line)
        except ValueError as error:
            face.say(str(error), "warning")
            return
        # Whoever repeats a command by hand has a reason to.
        run = replace(self.agent.kit.run, watch=None)
        result = await call(
            run, CallRequest(name, params, f"typed_{os.urandom(4).hex()}"), face.show_call
        )
        face.show_output(
            str(result.details.get("error") or result.as_text()), failed=result.is_error
        )
        for block in result.content:
            if isinstance(block, Image):
                face.show_image(block)

    async def switch(self, session: str | None, face: Face) -> None:
        """Go on in another conversation; this one stays as it is, and stays if that fails."""
        old, new = self.agent, self.reopen(session)
        if not new.conversation.history and self.chosen_model:
            new.use_model(self.chosen_model)
        if "fastMode" in old.conversation.params:
            is_fast = old.conversation.params["fastMode"]
            new.conversation.params = {**new.conversation.params, "fastMode": is_fast}
        self.agent, self.exec_changes, self.images = new, {}, []
        self.ending(old)
        await old.close()
        face.show_history(new.conversation.history)

    def greeting(self) -> Iterable[Row]:
        agent = self.agent
        session = agent.session
        where = f"session {session.name}" if session else "nothing is kept"
        yield Row(f"{agent.conversation.model.ref}, {where}. /help shows what you can type.", "dim")
        if self.is_operator:
            yield Row(
                "This is the built-in operator, not a language model. For a real one type `clawkit "
                "onboard`, or set a key such as ANTHROPIC_API_KEY or OPENAI_API_KEY.",
                "warning",
            )


def clean(text: str) -> str:
    """Text in which every character can be encoded."""
    return text.encode("utf-8", "replace").decode()
