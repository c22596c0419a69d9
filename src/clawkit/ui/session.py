"""A conversation as people have it: messages, commands that begin with a slash, shell commands.

The same for every terminal; how things are shown is up to the `ChatView`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from clawkit.approvals.protocols import Confines
from clawkit.config.sections.tools import Exec
from clawkit.content import Block, Image, Message, Text
from clawkit.core.approval import Answer, Approver, Question
from clawkit.core.call import CallRequest, call
from clawkit.core.catalog import canonical
from clawkit.core.tasks import in_thread
from clawkit.models.operator import REF as OPERATOR
from clawkit.models.operator import read_line
from clawkit.ui.paint import Row, Style
from clawkit.ui.questions import BY

if TYPE_CHECKING:
    from clawkit.agent.events import Tell
    from clawkit.agent_session import Agent

_NETWORKS = {"none": "no network", "allowlist": "listed hosts only", "full": "with network"}


class ChatView(Protocol):
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


class SessionOpener(Protocol):
    """How conversations are opened, and what is said when one is left."""

    def open(self, tell: Tell, approver: Approver | None) -> Agent: ...
    def reopen(self, session: str | None, tell: Tell, approver: Approver | None) -> Agent:
        """Another conversation: an earlier one by its id, or one of a new name, or of none."""
        ...

    def ending(self, agent: Agent) -> None:
        """Say what ends with it."""
        ...


_LEAVING = frozenset({"access", "detach", "elevated", "host"})
"""Parameters that ask for more than the sandbox gives: these are always asked about."""
_typed: ContextVar[set[str] | None] = ContextVar("typed", default=None)
"""Tools of the calls that the person typed and that go on."""


@contextmanager
def _typed_by_person(tool: str) -> Iterator[None]:
    """Questions about the call inside are answered with yes: the person has just said so. What an
    agent runs is not a person, even if it types into a terminal."""
    from clawkit.process.process_table import is_inside_command

    typed = set() if is_inside_command() else {tool}
    token = _typed.set(typed)
    try:
        yield
    finally:
        # What the call started and left running has this set, too: it asks again.
        typed.clear()
        _typed.reset(token)


class TypedCallApprover:
    """Asks the person, but not whether they may do what they have just typed."""

    def __init__(self, approver: Approver) -> None:
        self._approver = approver

    async def ask(self, request: Question) -> Answer:
        # A host that a command wants to reach is not what was typed.
        if request.tool in (_typed.get() or ()) and request.asked_by != "sandbox.network":
            return Answer("allow", by=BY)
        return await self._approver.ask(request)


class ChatSession:
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
        self.sandbox: str | None = None
        """The sandbox of commands in a few words; empty when there is none, None until known."""
        self.given = ""
        """The message that the program was started with; the person may not have written it."""
        self.has_no_commands = False
        """Whether a sandbox is configured that cannot be used."""

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
        # A path is not a command.
        return "/" not in name

    def blocks(self, text: str) -> list[Block]:
        """A message, with the pictures that wait for one."""
        pictures, self.images = self.images, []
        words = text[1:] if text.startswith("//") else text
        return [Text(clean(words)), *pictures]

    async def call(self, line: str, face: ChatView) -> None:
        """Carry out what the person typed as a command (`!ls`) or a call (`/tool ls {}`)."""
        try:
            name, params = read_line(line)
        except ValueError as error:
            face.say(str(error), "warning")
            return
        # A command that is repeated by hand is no loop.
        run = replace(self.agent.kit.run, watch=None)
        request = CallRequest(name, params, f"typed_{os.urandom(4).hex()}")
        is_typed = line != self.given and _LEAVING.isdisjoint(params)
        with _typed_by_person(canonical(name)) if is_typed else nullcontext():
            result = await call(run, request, face.show_call)
        if result.details.get("status") != "blocked":  # the line of the call says why
            text = str(result.details.get("error") or result.as_text())
            face.show_output(text, failed=result.is_error)
        for block in result.content:
            if isinstance(block, Image):
                face.show_image(block)

    async def switch(self, session: str | None, face: ChatView) -> None:
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
        where = f"session {session.name}" if session else "nothing is saved"
        home, place = os.path.expanduser("~"), agent.kit.workspace
        if place == home or place.startswith(f"{home}/"):
            place = f"~{place.removeprefix(home)}"
        yield Row(f"{agent.conversation.model.ref}, {where}, in {place}", "dim")
        yield Row("/help shows what you can type.", "dim")
        if self.is_operator:
            yield Row(
                "This is the built-in operator, not a language model. For a real one type `clawkit "
                "onboard`, or set a key such as ANTHROPIC_API_KEY or OPENAI_API_KEY.",
                "warning",
            )


def exec_in_force(talk: ChatSession) -> Exec:
    """The settings of exec that hold for this conversation."""
    kit = talk.agent.kit
    return kit.config.tools.exec.merged(kit.config.agents.get(kit.run.scope.agent).tools.exec)


def clean(text: str) -> str:
    """Text in which every character can be encoded."""
    return text.encode("utf-8", "replace").decode()


async def look(talk: ChatSession) -> None:
    """Find out which sandbox there is. Takes a while on the first start on a machine."""
    confines: Any = talk.agent.kit.run.services[Confines]
    choice = await in_thread(lambda: confines.choice)
    network = confines.settings.network if choice.backend in ("bwrap", "landlock") else ""
    words = ", ".join(filter(None, (choice.backend, _NETWORKS.get(network))))
    talk.sandbox = words
    talk.has_no_commands = bool(confines.problem)


def describe_commands(talk: ChatSession) -> str:
    """Such as `sandbox: bwrap, no network`; what is not known yet is left out."""
    settings = exec_in_force(talk)
    security, ask = settings.policy()
    if security == "deny" or talk.has_no_commands:
        return "no commands"
    if security == "full":
        return "no sandbox: all commands run" if ask == "off" else f"asks {ask}"
    is_inside = settings.host in ("auto", "sandbox")
    if talk.sandbox and is_inside:
        always = ", asks always" if ask == "always" else ""
        return f"sandbox: {talk.sandbox}{always}"
    how = "allowlist only" if ask == "off" else f"asks {ask}"
    if talk.sandbox is None and is_inside:
        return how
    return f"no sandbox: {'allowlist only' if ask == 'off' else 'commands ask'}"
