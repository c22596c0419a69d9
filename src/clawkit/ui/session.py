"""The chat without its terminal: messages, `/commands`, `!commands`, and their approval."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from clawkit.approvals.protocols import Confines
from clawkit.config.modelref import OPERATOR
from clawkit.config.paths import abbreviate_home
from clawkit.config.sections.tools import Exec
from clawkit.content import Block, Image, Message, Text
from clawkit.core.approval import Answer, Approver, Question
from clawkit.core.call import CallRequest, call
from clawkit.core.catalog import canonical
from clawkit.core.result import Result
from clawkit.core.tasks import in_thread
from clawkit.models.operator import read_line
from clawkit.sessions.subagent_protocols import now_ms
from clawkit.text import human_time, one_line
from clawkit.ui.paint import PaintedRow, Style
from clawkit.ui.questions import BY

if TYPE_CHECKING:
    from clawkit.agent.events import Tell
    from clawkit.agent_session import Agent
    from clawkit.skills.skill import Skill

_NETWORKS = {"none": "no network", "allowlist": "listed hosts only", "full": "with network"}
_LEAVING = frozenset({"access", "detach", "elevated", "host"})
"""Parameters that request more than the sandbox allows: such calls always need approval."""
_OTHER_SUBJECTS = ("sandbox.network", "the tool ", "mcp:", "tools.web.search.provider")
"""Sources of questions that typing the call does not answer: a host that a command connects to, a
tool's or MCP server's own question, and the service that may get a query."""
COMMAND_NAMES: set[str] = set()
"""Names of the /commands, which skills cannot take; `skill` itself is not one of them."""
_typed: ContextVar[set[str] | None] = ContextVar("typed", default=None)
"""The tool of the call that the person typed, while it runs."""


class SessionOpener(Protocol):
    def open(self, tell: Tell, approver: Approver | None, **changes: Any) -> Agent:
        """Open a conversation with the options of the command line, apart from `changes`."""

    def ending(self, agent: Agent) -> None:
        """Called before a conversation is closed."""


@contextmanager
def _typed_by_person(tool: str) -> Iterator[None]:
    """Approve calls of the tool inside this block: the person has just typed one. An agent's
    command is not a person, even if it types into a terminal."""
    from clawkit.process.process_table import is_inside_command

    typed = set() if is_inside_command() else {tool}
    token = _typed.set(typed)
    try:
        yield
    finally:
        # Processes that the call left running share this set: they must ask again from now on.
        typed.clear()
        _typed.reset(token)


class TypedCallApprover:
    """Asks the person, except about a call they have just typed."""

    def __init__(self, approver: Approver) -> None:
        self._approver = approver

    @property
    def keeps_questions(self) -> bool:
        return getattr(self._approver, "keeps_questions", False)

    async def ask(self, request: Question) -> Answer:
        is_about_call = not request.asked_by.startswith(_OTHER_SUBJECTS)
        if is_about_call and request.tool in (_typed.get() or ()):
            return Answer("allow", by=BY)
        return await self._approver.ask(request)


class ChatSession(ABC):
    """One conversation after another, with its commands. Subclasses read lines and show output."""

    show_thinking = False
    has_keyboard = False
    """Whether lines are typed by a person; other lines may have been pasted or piped."""

    def __init__(self, opener: SessionOpener, tell: Tell, approver: Approver | None) -> None:
        self.opener = opener
        self._open = partial(opener.open, tell, approver)
        self.agent = self._open()
        self.agent.on_results = self.hear_results
        self.images: list[Image] = []
        self.exec_changes: dict[str, Any] = {}
        self.chosen_model = ""
        self.is_over = False
        self.why_no_sandbox = ""
        self.sandbox: str | None = None
        """A short description of the sandbox; empty if there is none, None until known."""
        self.cli_message = ""
        """The message from the command line, which the person may not have written."""
        self.has_no_commands = False
        """Whether the configured sandbox cannot be used."""

    def say(self, text: str, style: Style = "") -> None:
        """Print a message; unprintable characters are escaped, line breaks are kept."""
        self.rows([PaintedRow(text, style)])

    @abstractmethod
    def hear_results(self) -> None:
        """Have the model read the results of sub-agents as soon as it is idle."""

    @abstractmethod
    def rows(self, rows: Sequence[PaintedRow]) -> None: ...
    @abstractmethod
    def show_call(self, event: Mapping[str, Any]) -> None:
        """Show an event of a call that the person typed."""

    @abstractmethod
    def show_result(self, result: Result) -> None: ...
    @abstractmethod
    def show_image(self, image: Image) -> None: ...
    @abstractmethod
    def show_history(self, messages: Sequence[Message]) -> None:
        """Show the end of a conversation that is resumed."""

    @property
    def is_operator(self) -> bool:
        return self.agent.conversation.model.ref == OPERATOR

    def read(self, text: str) -> tuple[str, bool]:
        """A line without its reading instructions, and whether it is for later. Leading blanks do
        not turn a command into a message, and `exit` and `quit` are commands."""
        if text.strip().lower() in ("exit", "quit"):
            return "/quit", False
        bare = text.lstrip(" \t")
        text = bare if "\n" not in bare and self.is_command(bare) else text
        later = text.removeprefix("/later ").strip() if text.startswith("/later ") else ""
        return (later, True) if later else (text, False)

    def is_command(self, text: str) -> bool:
        """Whether a line is a command for clawkit, not a message for the model."""
        if text.startswith("//") or not text.startswith(("/", "!")):
            return False
        name = text[1:].partition(" ")[0].partition("\n")[0]
        if text.startswith("!") or name == "tool":
            # Without a keyboard the operator makes these calls, and they are approved like any
            # other model's.
            return self.has_keyboard or not self.is_operator
        # A path is not a command, and neither is a skill that the model is told to use.
        if "/" in name or name.lower() in COMMAND_NAMES or (skills := self.agent.skills) is None:
            return "/" not in name
        found = skills.find(text)
        return found is None or bool(found[0].tool)

    @property
    def skills(self) -> dict[str, Skill]:
        """The skills that a person can invoke, by what they type."""
        found = skills.commands if (skills := self.agent.skills) else {}
        return {name: found[name] for name in found if name not in COMMAND_NAMES}

    def skill_words(self) -> Iterable[tuple[str, str]]:
        return ((name, each.description) for name, each in self.skills.items())

    async def dispatch(self, skill: Skill, words: str) -> None:
        """Call the tool of a skill. The person did not type this call, so it may need approval."""
        params = {"command": words, "commandName": skill.command, "skillName": skill.name}
        await self.make_call(skill.tool, params, is_typed=False)

    def blocks(self, text: str) -> list[Block]:
        pictures, self.images = self.images, []
        words = text[1:] if text.startswith("//") else text
        if words != text and self.agent.skills and self.agent.skills.find(words):
            words = f" {words}"  # not an invocation
        return [Text(words.encode("utf-8", "replace").decode()), *pictures]

    def is_typed(self, line: str) -> bool:
        """Whether a person has certainly typed a line."""
        return self.has_keyboard and line != self.cli_message

    async def call(self, line: str) -> None:
        """Run a command (`!ls`) or a tool call (`/tool ls {}`) of the person."""
        try:
            name, params = read_line(line)
        except ValueError as error:
            self.say(str(error), "warning")
            return
        await self.make_call(name, params, is_typed=self.is_typed(line))

    async def make_call(self, name: str, params: Mapping[str, Any], *, is_typed: bool) -> None:
        """Call a tool; `is_typed` if the person typed just this call, which approves it."""
        # No loop detection: a person may repeat a command.
        run = replace(self.agent.kit.run, watch=None)
        request = CallRequest(name, params, f"typed_{os.urandom(4).hex()}")
        is_approved = is_typed and _LEAVING.isdisjoint(params)
        with _typed_by_person(canonical(name)) if is_approved else nullcontext():
            result = await call(run, request, self.show_call)
        if result.details.get("status") != "blocked":  # the call's own line shows the reason
            self.show_result(result)
        for block in result.content:
            if isinstance(block, Image):
                self.show_image(block)

    def use_exec(self, changes: Mapping[str, Any]) -> None:
        self.agent.use_exec(changes)

    def use_elevated(self, level: str) -> None:
        self.agent.use_elevated(level)

    async def switch(self, session: str | None) -> None:
        """Switch to another conversation, or to a new one; if that fails, this one stays open."""
        old, new = self.agent, self._open(session=session, go_on=False)
        if not new.conversation.history and self.chosen_model:
            new.use_model(self.chosen_model)
        if "fastMode" in old.conversation.params:
            is_fast = old.conversation.params["fastMode"]
            new.conversation.params = {**new.conversation.params, "fastMode": is_fast}
        new.on_results = self.hear_results
        self.agent, self.exec_changes, self.images = new, {}, []
        self.opener.ending(old)
        await old.close()
        self.show_history(new.conversation.history)
        self.rows(list(self.greeting()))

    async def close(self) -> None:
        self.opener.ending(self.agent)
        await self.agent.close()

    def greeting(self) -> Iterable[PaintedRow]:
        agent = self.agent
        session = agent.session
        where = f"session {session.name}" if session else "nothing is saved"
        place = abbreviate_home(agent.kit.workspace)
        yield PaintedRow(f"{agent.conversation.model.ref}, {where}, in {place}", "dim")
        yield PaintedRow("/help shows what you can type.", "dim")
        if self.is_operator:
            yield PaintedRow(
                "This is the built-in operator, not a language model. To use a real one, type "
                "`clawkit onboard` in a shell, or set a key such as ANTHROPIC_API_KEY.",
                "warning",
            )

    @property
    def exec(self) -> Exec:
        kit = self.agent.kit
        return kit.config.tools.exec.merged(kit.config.agents.get(kit.run.scope.agent).tools.exec)

    async def look(self) -> None:
        """Find out which sandbox is used. Slow on the first start on a machine."""
        confines: Any = self.agent.kit.run.services[Confines]
        choice = await in_thread(lambda: confines.choice)
        network = confines.settings.network if choice.backend in ("bwrap", "landlock") else ""
        self.sandbox = ", ".join(filter(None, (choice.backend, _NETWORKS.get(network))))
        self.has_no_commands = bool(confines.problem)
        self.why_no_sandbox = "" if choice.backend else f" ({choice.reason})"

    def describe_commands(self, *, why: bool = False) -> str:
        """Where commands run, such as `sandbox: bwrap, no network`; with `why`, also why there is
        no sandbox."""
        settings = self.exec
        security, ask = settings.policy()
        if security == "deny" or self.has_no_commands:
            return "no commands"
        if security == "full":
            return "no sandbox: all commands run" if ask == "off" else f"asks {ask}"
        is_inside = settings.host in ("auto", "sandbox")
        if self.sandbox and is_inside:
            return f"sandbox: {self.sandbox}{', asks always' if ask == 'always' else ''}"
        if self.sandbox is None and is_inside:
            return "allowlist only" if ask == "off" else f"asks {ask}"
        how = "allowlist only" if ask == "off" else "commands need approval"
        return f"no sandbox: {how}{self.why_no_sandbox if why and is_inside else ''}"

    def describe(self) -> str:
        """Model, session, context, cost, and where commands run, in one line."""
        conversation, session = self.agent.conversation, self.agent.session
        used, window = conversation.context_tokens, conversation.model.facts.window
        parts = [
            str(conversation.model.ref),
            one_line(session.title or session.name, 30) if session else "not saved",
            f"{_short(used)}/{_short(window)} {used * 100 // max(1, window)}%",
            f"${conversation.usage.cost:.2f}" if conversation.usage.cost else "",
            f"{queued} waiting" if (queued := self.agent.turns.queued) else "",
            self.describe_commands(),
        ]
        return " · ".join(filter(None, parts))

    def describe_subagents(self) -> Iterator[str]:
        """A line for each running sub-agent: what it does, its tokens and its time."""
        for each in self.agent.delegation.subagents.working() if self.agent.delegation else ():
            time = human_time(max(0, now_ms() - each.run.created_ms) // 1000)
            yield f"{each.run.label}: {each.step} · {each.usage.context:,} tokens · {time}"


def without_tail(event: Mapping[str, Any]) -> dict[str, Any]:
    """An event of a call, without the end of its output: all of it follows."""
    details = event.get("details") or {}
    return {**event, "details": {key: each for key, each in details.items() if key != "aggregated"}}


def _short(tokens: int) -> str:
    return f"{tokens / 1000:.1f}k".replace(".0k", "k") if tokens >= 1000 else str(tokens)
