"""The commands that begin with a slash: a table, how a line finds its row, and most of them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from clawkit.agent.compact import cut_at, estimate
from clawkit.content import Summary
from clawkit.core.catalog import CATALOG, canonical
from clawkit.errors import ToolInputError, UnknownToolError
from clawkit.services import Services
from clawkit.sessions.protocols import Plan
from clawkit.text import human_time, nearest, one_line
from clawkit.ui import commands_settings as settings
from clawkit.ui.paint import Row
from clawkit.ui.session import ChatSession, ChatView, describe_commands, exec_in_force, look

_COLUMN = 21
"""Where the words about a tool begin."""
_LISTED = 15
WORTH_TOKENS = 1_000
"""A summary of less than this would hardly be shorter."""
Words = Iterable[tuple[str, str]]
_CLOSE = 3
_ALIASES = {"exit": "quit", "q": "quit", "?": "help", "models": "model", "sessions": "resume"}


async def tools(talk: ChatSession, face: ChatView, _rest: str) -> None:
    assembly = talk.agent.kit.assembly
    rows = [Row(f"{len(assembly.tools)} in force", "bold")]
    for name, tool in assembly.tools.items():
        entry = CATALOG.get(name)
        about = entry.description if entry else tool.description
        rows.append(Row(f"  {tool.name:<18} {one_line(about, 100)}", "", _COLUMN))
    removed = [name for name in assembly.refused if name in CATALOG and CATALOG[name].available]
    if removed:
        rows.append(Row(f"{len(removed)} removed", "bold"))
    for name in removed:
        cause = assembly.decision.verdicts[name].removed_by
        why = one_line(cause.why if cause else "", 200)
        rows.append(Row(f"  {name:<18} {why}", "warning", _COLUMN))
    face.rows(rows)
    face.say("/policy TOOL says why.", "dim")


async def policy(talk: ChatSession, face: ChatView, rest: str) -> None:
    """Every step that kept or removed a tool."""
    assembly = talk.agent.kit.assembly
    names = [_known(talk, rest)] if rest else list(assembly.tools)
    for name in names:
        verdict, tool = assembly.decision.verdicts[name], assembly.tools.get(name)
        if tool is not None:
            head = Row(f"{name} ({assembly.sources[name]}): in force", "good")
        elif verdict.kept:
            head = Row(f"{name}: allowed, but not available in this build", "warning")
        else:
            head = Row(f"{name} ({assembly.sources[name]}): removed", "error")
        rows = [head]
        for step in verdict.traces:
            mark = "keeps  " if step.effect == "allow" else "removes"
            rows.append(Row(f"  step {step.number:>2} {mark} {step.step}: {step.why}"))
        if not verdict.traces:
            rows.append(Row("  no step restricts it", "dim"))
        rules = [each for each in assembly.rules if each.tools.find(name) is not None]
        rows += (Row(f"  tools.rules[{rule.number}]: {rule.effect}") for rule in rules)
        face.rows(rows)


def _known(talk: ChatSession, name: str) -> str:
    sources, key = talk.agent.kit.assembly.sources, canonical(name)
    if key in sources:
        return key
    close = nearest(key, tuple(sources), 2)
    hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
    raise UnknownToolError(f"there is no tool called {one_line(name, 60)!r}{hint}")


def tool_words(talk: ChatSession) -> Iterable[tuple[str, str]]:
    assembly = talk.agent.kit.assembly
    return ((name, "" if name in assembly.tools else "removed") for name in assembly.sources)


async def plan(talk: ChatSession, face: ChatView, _rest: str) -> None:
    services = talk.agent.kit.run.services
    made = isinstance(services, Services) and services.is_made(Plan)
    current: Any = services[Plan] if made else None
    if current is None or not current.steps:
        face.say("There is no plan.")
        return
    face.show_call(
        {
            "type": "end",
            "tool": "plan",
            "callId": "",
            "details": {"plan": [each._asdict() for each in current.steps]},
        }
    )


async def status(talk: ChatSession, face: ChatView, _rest: str) -> None:
    agent = talk.agent
    conversation, session = agent.conversation, agent.session
    in_force = exec_in_force(talk)
    security, ask = in_force.policy()
    await look(talk)
    facts = [
        ("model", f"{conversation.model.ref}, {agent.models.auth(conversation.model.ref)}"),
        ("session", f"{session.name}: {session.title or '(no title)'}" if session else "not saved"),
        ("workspace", agent.kit.workspace),
        ("context", context(talk)),
        ("cost", spent(talk)),
        ("thinking", conversation.thinking),
        ("fast", settings.how_fast(talk)),
        ("commands", f"host={in_force.host} security={security} ask={ask}"),
        ("place", describe_commands(talk)),
        ("tools", f"{len(agent.kit.tools)} in force"),
        ("waiting", f"{conversation.queued} messages" if conversation.queued else "nothing"),
    ]
    face.rows([Row(f"{name:<10} {one_line(text, 300)}", "", 11) for name, text in facts])


def context(talk: ChatSession) -> str:
    conversation = talk.agent.conversation
    used, window = conversation.context_tokens, conversation.model.facts.window
    share = f", {used * 100 // window} %" if window else ""
    return f"{used:,} of {window:,} tokens{share}"


def spent(talk: ChatSession) -> str:
    usage = talk.agent.conversation.usage
    parts = [f"{usage.input:,} tokens sent", f"{usage.output:,} received"]
    if usage.cache_read or usage.cache_write:
        parts.append(f"{usage.cache_read:,} read from a cache, {usage.cache_write:,} written")
    is_priced = usage.cost or not usage.context
    price = f"${usage.cost:.4f}" if is_priced else "price not known"
    return f"{price}: {', '.join(parts)}"


async def cost(talk: ChatSession, face: ChatView, _rest: str) -> None:
    most = talk.agent.conversation.limits.max_cost
    limit = f" The limit is ${most:g}." if most is not None else ""
    face.say(f"{spent(talk)}.{limit}")


async def prompt(talk: ChatSession, face: ChatView, _rest: str) -> None:
    face.say(talk.agent.prompt())


async def compact(talk: ChatSession, face: ChatView, rest: str) -> None:
    conversation = talk.agent.conversation
    history = conversation.history
    old = history[: cut_at(history, conversation.compaction, conversation.model.facts)]
    tokens = estimate([each for each in old if not isinstance(each, Summary)])
    if tokens < WORTH_TOKENS:
        why = f": all but about {tokens:,} tokens is recent and stays as it is" if tokens else ""
        face.say(f"There is nothing to shorten yet{why}.")
        return
    face.say("Summarizing …", "dim")
    if not await conversation.compact(rest):
        face.say("There is nothing to shorten yet.")


async def new(talk: ChatSession, face: ChatView, rest: str) -> None:
    if rest and talk.agent.store and talk.agent.store.find(rest, talk.agent.kit.run.scope.agent):
        raise ToolInputError(
            f"a conversation {one_line(rest, 60)!r} already exists: /resume continues it"
        )
    await talk.switch(rest or None, face)
    face.rows(list(talk.greeting()))


async def resume(talk: ChatSession, face: ChatView, rest: str) -> None:
    store, session = talk.agent.store, talk.agent.session
    if store is None or session is None:
        raise ToolInputError("nothing is saved here (--no-session), so there is nothing to resume")
    if not rest:
        now = time.time() * 1000
        for each in store.recent(session.agent, session.workspace, _LISTED):
            mark = ">" if each.id == session.id else " "
            ago = human_time(max(0.0, now - each.updated_ms) / 1000)
            name = f" {each.name}" if each.name != each.id else ""
            title = one_line(each.title, 80) or "(nothing said yet)"
            turns = "1 turn" if each.turns == 1 else f"{each.turns} turns"
            face.say(f"{mark} {each.id}{name}  {ago} ago, {turns}: {title}")
        face.say("/resume ID continues one of them.", "dim")
        return
    wanted = store.get(rest, session.agent)
    if wanted.id == session.id:
        face.say("You are already in this conversation.")
        return
    await talk.switch(wanted.id, face)
    face.rows(list(talk.greeting()))


def session_words(talk: ChatSession) -> Iterable[tuple[str, str]]:
    store, session = talk.agent.store, talk.agent.session
    if store is None or session is None:
        return
    for each in store.recent(session.agent, session.workspace, _LISTED):
        if each.id != session.id:
            yield each.name, each.title


class Command(NamedTuple):
    """One command."""

    name: str
    usage: str
    help: str
    run: Callable[[ChatSession, ChatView, str], Awaitable[None]]
    is_alone: bool = False
    """Whether it has to wait until the agent is done."""
    words: Callable[[ChatSession], Words] | None = None
    """What can follow."""


async def _help(talk: ChatSession, face: ChatView, _rest: str) -> None:
    listed = [(f"/{each.name} {each.usage}".rstrip(), each.help) for each in COMMANDS]
    others = [
        ("!COMMAND", "run a command yourself; policy and the sandbox apply"),
        ("/tool NAME {json}", "call a tool yourself"),
        ("//…", "a message that begins with a slash"),
    ]
    width = max(len(typed) for typed, _ in (*listed, *others)) + 1
    for table in (listed, others):
        face.rows([Row(f"{typed:<{width}} {about}", "", width + 1) for typed, about in table])


async def _quit(talk: ChatSession, _face: ChatView, _rest: str) -> None:
    talk.is_over = True


async def _image(talk: ChatSession, face: ChatView, rest: str) -> None:
    """A picture for the next message."""
    model = talk.agent.conversation.model
    if not rest:
        attached = len(talk.images) or "none"
        face.say(f"Say which: /image PATH. Images attached to your next message: {attached}.")
    elif not model.facts.images:
        face.say(f"{model.ref} does not accept images; /model lists others", "warning")
    else:
        picture = await talk.agent.attach(settings.in_workspace(talk, rest))
        talk.images.append(picture)
        face.show_image(picture)
        face.say("It will be sent with your next message.", "dim")


async def _later(_talk: ChatSession, face: ChatView, _rest: str) -> None:
    """Only without a text; with one it is a message."""
    face.say("Say what: /later TEXT is said when the agent is done with what it does now.")


COMMANDS: tuple[Command, ...] = (
    Command("help", "", "this list", _help),
    Command(
        "model",
        "[NAME]",
        "list the models; switch to another one",
        settings.model,
        words=settings.model_words,
    ),
    Command(
        "thinking",
        "[LEVEL|show|hide]",
        "how long the model may think; show or hide it",
        settings.thinking,
        words=settings.thinking_words,
    ),
    Command(
        "fast",
        "[on|off]",
        "use the faster variant, if there is one",
        settings.fast,
        words=lambda _: (("on", ""), ("off", "")),
    ),
    Command("image", "PATH", "send an image with the next message", _image),
    Command("later", "TEXT", "send it when the agent is done (Ctrl-Q)", _later),
    Command("tools", "", "the tools in force, and the removed ones with the reason", tools),
    Command(
        "policy",
        "[TOOL]",
        "why a tool is in force or not",
        policy,
        words=tool_words,
    ),
    Command(
        "exec",
        "[KEY=VALUE …]",
        "how commands run: security, ask, host, mode",
        settings.exec_,
        is_alone=True,
        words=settings.exec_words,
    ),
    Command(
        "elevated",
        "[on|off|ask|full]",
        "running outside the sandbox",
        settings.elevated,
        is_alone=True,
        words=lambda _: ((each, "") for each in settings.LEVELS),
    ),
    Command(
        "approve",
        "[ID] [ANSWER]",
        "pending approvals, also of other processes: allow, always or deny",
        settings.approve,
    ),
    Command("plan", "", "the agent's current plan", plan),
    Command("status", "", "model, context, settings", status),
    Command("cost", "", "tokens and dollars so far", cost),
    Command("prompt", "", "the system prompt", prompt),
    Command("compact", "[WHAT MATTERS]", "summarize the conversation", compact, is_alone=True),
    Command("new", "[NAME]", "start a new conversation", new, is_alone=True),
    Command(
        "resume",
        "[ID]",
        "continue an earlier one; without an id, list them",
        resume,
        is_alone=True,
        words=session_words,
    ),
    Command("quit", "", "quit (Ctrl-D)", _quit),
)
BY_NAME = {each.name: each for each in COMMANDS}


def split(line: str) -> tuple[str, str]:
    """Name and the rest of a line that begins with a slash."""
    name, _, rest = line[1:].partition(" ")
    name = name.strip().lower()
    return _ALIASES.get(name, name), rest.strip()


def find(line: str) -> Command | None:
    return BY_NAME.get(split(line)[0])


async def run(talk: ChatSession, face: ChatView, line: str) -> None:
    """Carry out a line that is for clawkit. Raises what goes wrong, as `ClawkitError`."""
    if line.startswith("!") or split(line)[0] == "tool":
        await talk.call(line, face)
        return
    name, rest = split(line)
    command = BY_NAME.get(name)
    if command is None:
        close = nearest(name, BY_NAME, 1) or [each for each in BY_NAME if each.startswith(name)]
        meant = " or ".join(f"/{each}" for each in close[:_CLOSE])
        hint = f" Did you mean {meant}?" if meant and name else " /help shows all."
        face.say(f"Unknown command /{one_line(name, 40)}.{hint}", "warning")
        return
    await command.run(talk, face, rest)


def names() -> Words:
    return ((each.name, each.help) for each in COMMANDS)


def words_after(talk: ChatSession, name: str) -> Words:
    """What can follow a command."""
    command = BY_NAME.get(_ALIASES.get(name, name))
    if name == "tool":
        return ((tool.name, tool.label) for tool in talk.agent.kit.tools)
    return command.words(talk) if command and command.words else ()
