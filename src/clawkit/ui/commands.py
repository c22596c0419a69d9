"""The commands that begin with a slash: a table, how a line finds its row, and most of them."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from clawkit.agent.compact import cut_at, estimate
from clawkit.config.paths import waiting_file
from clawkit.config.sections.shared import Thinking
from clawkit.config.sections.tools import Ask, Host, Mode, Security
from clawkit.content import Summary, Text, User
from clawkit.core.catalog import CATALOG, canonical
from clawkit.errors import ConfigError, ToolAuthorizationError, ToolInputError, UnknownToolError
from clawkit.models.operator import REF as OPERATOR
from clawkit.models.protocols import Request
from clawkit.services import Services
from clawkit.sessions.protocols import Plan
from clawkit.text import human_time, nearest, one_line
from clawkit.ui.paint import Row
from clawkit.ui.session import ChatSession, ChatView, describe_commands, exec_in_force, look

if TYPE_CHECKING:
    from clawkit.approvals.pending_store import PendingStore, Stored

_COLUMN = 21
"""Where the words about a tool begin."""
_LISTED = 15
WORTH_TOKENS = 1_000
"""A summary of less than this would hardly be shorter."""
Words = Iterable[tuple[str, str]]
_CLOSE = 3
_ALIASES = {"exit": "quit", "q": "quit", "?": "help", "models": "model", "sessions": "resume"}
LEVELS = ("on", "off", "ask", "full")
_EXEC: dict[str, tuple[str, ...]] = {
    "security": get_args(Security),
    "ask": get_args(Ask),
    "host": get_args(Host),
    "mode": get_args(Mode),
}
_CHOICES = {
    "allow": "allow-once",
    "yes": "allow-once",
    "always": "allow-always",
    "deny": "deny",
    "no": "deny",
}


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
    names = [canonical(rest)] if rest else list(assembly.tools)
    if rest and names[0] not in assembly.sources:
        close = nearest(names[0], tuple(assembly.sources), 2)
        hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise UnknownToolError(f"there is no tool called {one_line(rest, 60)!r}{hint}")
    for name in names:
        verdict = assembly.decision.verdicts[name]
        if name in assembly.tools:
            rows = [Row(f"{name} ({assembly.sources[name]}): in force", "good")]
        elif verdict.kept:
            rows = [Row(f"{name}: allowed, but not available in this build", "warning")]
        else:
            rows = [Row(f"{name} ({assembly.sources[name]}): removed", "error")]
        for step in verdict.traces:
            mark = "keeps  " if step.effect == "allow" else "removes"
            rows.append(Row(f"  step {step.number:>2} {mark} {step.step}: {step.why}"))
        if not verdict.traces:
            rows.append(Row("  no step restricts it", "dim"))
        rules = [each for each in assembly.rules if each.tools.find(name) is not None]
        rows += (Row(f"  tools.rules[{rule.number}]: {rule.effect}") for rule in rules)
        face.rows(rows)


def tool_words(talk: ChatSession) -> Words:
    assembly = talk.agent.kit.assembly
    return ((name, "" if name in assembly.tools else "removed") for name in assembly.sources)


async def plan(talk: ChatSession, face: ChatView, _rest: str) -> None:
    services = talk.agent.kit.run.services
    made = isinstance(services, Services) and services.is_made(Plan)
    current: Any = services[Plan] if made else None
    if current is None or not current.steps:
        face.say("There is no plan.")
        return
    details = {"plan": [each._asdict() for each in current.steps]}
    face.show_call({"type": "end", "tool": "plan", "callId": "", "details": details})


async def status(talk: ChatSession, face: ChatView, _rest: str) -> None:
    agent = talk.agent
    conversation, session = agent.conversation, agent.session
    in_force = exec_in_force(talk)
    security, ask = in_force.policy()
    await look(talk)
    used, window = conversation.context_tokens, conversation.model.facts.window
    share = f", {used * 100 // window} %" if window else ""
    facts = [
        ("model", f"{conversation.model.ref}, {agent.models.auth(conversation.model.ref)}"),
        ("session", f"{session.name}: {session.title or '(no title)'}" if session else "not saved"),
        ("workspace", agent.kit.workspace),
        ("context", f"{used:,} of {window:,} tokens{share}"),
        ("cost", spent(talk)),
        ("thinking", conversation.thinking),
        ("fast", how_fast(talk)),
        ("commands", f"host={in_force.host} security={security} ask={ask}"),
        ("place", describe_commands(talk)),
        ("tools", f"{len(agent.kit.tools)} in force"),
        ("waiting", f"{conversation.queued} messages" if conversation.queued else "nothing"),
    ]
    face.rows([Row(f"{name:<10} {one_line(text, 300)}", "", 11) for name, text in facts])


def spent(talk: ChatSession) -> str:
    usage = talk.agent.conversation.usage
    parts = [f"{usage.input:,} tokens sent", f"{usage.output:,} received"]
    if usage.cache_read or usage.cache_write:
        parts.append(f"{usage.cache_read:,} read from a cache, {usage.cache_write:,} written")
    price = "price not known" if usage.context and not usage.cost else f"${usage.cost:.4f}"
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


def session_words(talk: ChatSession) -> Words:
    store, session = talk.agent.store, talk.agent.session
    if store is None or session is None:
        return
    for each in store.recent(session.agent, session.workspace, _LISTED):
        if each.id != session.id:
            yield each.name, each.title


def check_person() -> None:
    """What an agent runs may not decide for a person. Raises `ToolAuthorizationError`."""
    from clawkit.process.process_table import is_inside_command

    if is_inside_command():
        raise ToolAuthorizationError(
            "a command that clawkit runs cannot change how clawkit works; a person has to type "
            "this in their own terminal",
            reason="approval",
        )


async def model(talk: ChatSession, face: ChatView, rest: str) -> None:
    """Without a name the models that can be used; with `all`, all that are known."""
    now = talk.agent.conversation.model.ref
    if rest and rest != "all":
        check_person()
        talk.agent.use_model("" if rest == "default" else rest)
        talk.chosen_model = "" if rest == "default" else rest
        face.say(f"Now using {talk.agent.conversation.model.ref}", "good")
        return
    entries = talk.agent.models.catalog.list()
    usable = [each for each in entries if each.has_credential and not each.problem]
    shown = entries if rest else usable
    rows = [Row(f"{'>' if now == OPERATOR else ' '} {OPERATOR}  offline, for trying tools")]
    for each in shown:
        mark = ">" if each.ref == now else " "
        names = f" ({', '.join(each.aliases)})" if each.aliases else ""
        why = "" if each.has_credential else "no key"
        facts = ", ".join(
            filter(None, (f"{each.facts.window:,} tokens", why, one_line(each.problem, 120)))
        )
        style: Any = "bold" if mark == ">" else "dim" if why or each.problem else ""
        rows.append(Row(f"{mark} {each.ref}{names}  {facts}", style))
    face.rows(rows)
    hidden = len(entries) - len(shown)
    more = f" {hidden} more are known but have no key: /model all." if hidden else ""
    face.say(f"/model NAME switches models; /model default is the configured one.{more}", "dim")


def model_words(talk: ChatSession) -> Words:
    yield "default", "the configured one"
    yield str(OPERATOR), "offline, for trying tools"
    for each in talk.agent.models.catalog.list():
        if each.has_credential and not each.problem:
            yield str(each.ref), each.facts.name
            yield from ((alias, str(each.ref)) for alias in each.aliases)


async def thinking(talk: ChatSession, face: ChatView, rest: str) -> None:
    conversation = talk.agent.conversation
    level: Any = rest.lower()
    if level in ("show", "hide"):
        face.show_thinking = level == "show"
        face.say(f"What the model thinks is {'shown' if face.show_thinking else 'shortened'}.")
        return
    if level and level not in get_args(Thinking):
        more = "/thinking show and /thinking hide say whether you see what it thinks"
        raise _unknown("thinking level", level, get_args(Thinking), more, also=("show", "hide"))
    if level:
        check_person()
        talk.agent.use_thinking(level)
    facts = conversation.model.facts
    doubt = "" if facts.reasoning or not level else f" ({conversation.model.ref} may ignore it)"
    face.say(f"Thinking: {conversation.thinking}{doubt}")


async def fast(talk: ChatSession, face: ChatView, rest: str) -> None:
    conversation = talk.agent.conversation
    if rest and rest not in ("on", "off"):
        raise _unknown("setting", rest, ("on", "off"))
    if rest:
        conversation.params = {**conversation.params, "fastMode": rest == "on"}
    face.say(f"Fast: {how_fast(talk)}")


def how_fast(talk: ChatSession) -> str:
    """Whether the faster variant is wanted, and whether there is one."""
    conversation = talk.agent.conversation
    if conversation.params.get("fastMode") is not True:
        return "off"
    return "on" if _has_faster(talk) else f"on, but {conversation.model.ref} has no faster variant"


def _has_faster(talk: ChatSession) -> bool:
    """Whether the service would be sent anything different."""
    from clawkit.models.client import make_wire

    try:
        endpoint = talk.agent.models.catalog.endpoint(talk.agent.conversation.model.ref)
    except ConfigError:
        return False
    said = (User((Text("?"),)),)
    plain, fast = (
        make_wire(endpoint).write(Request("", said, params={"fastMode": wanted}))
        for wanted in (False, True)
    )
    return plain != fast


async def elevated(talk: ChatSession, face: ChatView, rest: str) -> None:
    if rest:
        if rest not in LEVELS:
            raise _unknown("elevated mode", rest, LEVELS)
        check_person()
        talk.agent.use_elevated(rest)
    level = talk.agent.kit.config.agents.defaults.elevated_default or "on where allowed"
    allowed = talk.agent.kit.config.tools.elevated.enabled
    face.say(f"Elevated: {level}{'' if allowed else ' (but tools.elevated.enabled is false)'}")


async def exec_(talk: ChatSession, face: ChatView, rest: str) -> None:
    """Settings of exec for this conversation; `default` takes them back."""
    if rest:
        check_person()
        changes = {} if rest == "default" else _changes(talk, rest)
        talk.agent.use_exec(changes)
        talk.exec_changes = changes
    settings = exec_in_force(talk)
    security, ask = settings.policy()
    face.say(f"exec: host={settings.host} security={security} ask={ask}")
    for key, value in talk.exec_changes.items():
        if value is not None and getattr(settings, key) != value:
            face.say(
                f"but {key}={value} has no effect: the agent has settings of its own", "warning"
            )


def _changes(talk: ChatSession, rest: str) -> dict[str, Any]:
    """The changes so far, with those that a line asks for."""
    found = dict(talk.exec_changes)
    for word in rest.replace(",", " ").split():
        key, equals, value = word.partition("=")
        if key not in _EXEC or not equals:
            raise _unknown("setting", key, tuple(_EXEC), "Say it as in /exec ask=always")
        if value not in _EXEC[key]:
            raise _unknown(key, value, _EXEC[key])
        if key == "mode":
            found |= {"mode": value, "security": None, "ask": None}
        elif key in ("security", "ask"):
            security, ask = exec_in_force(talk).policy()
            old = {"security": security, "ask": ask}
            kept = {name: found.get(name) or old[name] for name in old}
            found |= {"mode": None, **kept, key: value}
        else:
            found[key] = value
    return found


def exec_words(_talk: ChatSession) -> Words:
    yield "default", "as configured"
    for key, values in _EXEC.items():
        yield from ((f"{key}={value}", "") for value in values)


def _unknown(
    what: str, given: str, known: Iterable[str], more: str = "", *, also: Iterable[str] = ()
) -> ToolInputError:
    """`also` are words that are understood, but of another kind."""
    listed = tuple(known)
    close = nearest(given, (*listed, *also), 1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(listed)}"
    said = f"unknown {what} {one_line(given, 40)!r}; {hint}"
    return ToolInputError(f"{said}. {more}" if more else said)


async def approve(_talk: ChatSession, face: ChatView, rest: str) -> None:
    """Show the questions that wait, or answer one."""
    from clawkit.approvals.pending_store import PendingStore

    waiting = PendingStore(waiting_file(os.environ))
    try:
        if rest:
            check_person()
            _answer(waiting, face, rest)
        elif found := _pending(waiting):
            face.rows([Row(f"{each.slug}  {one_line(each.question.title, 200)}") for each in found])
            face.say("/approve ID allow, always or deny answers one.", "dim")
        else:
            face.say("There are no pending approvals.")
    finally:
        waiting.close()


def _pending(waiting: PendingStore) -> list[Stored]:
    # Without a store there has been no request yet.
    return waiting.pending(round(time.time() * 1000)) if os.path.lexists(waiting.path) else []


def _answer(waiting: PendingStore, face: ChatView, rest: str) -> None:
    from clawkit.approvals.broker import Broker

    wanted, choice, reason = _read(waiting, rest)
    asked = waiting.get(wanted)
    stored = asked.question.stored
    done = Broker(waiting).resolve(
        asked.id,
        _CHOICES[choice],
        extent=stored[0].extent if stored and choice == "always" else None,
        reason=reason,
        actor="the person at another terminal",
        authorized=True,
    )
    face.say(f"{done.slug}: {_CHOICES[choice]}", "good")
    if asked.orphaned and _CHOICES[choice] != "deny":
        face.say("The process that asked is gone: nothing will run.", "warning")


def _read(waiting: PendingStore, rest: str) -> tuple[str, str, str]:
    """Which question, what to answer, and why; the id can be left out when only one waits."""
    first, _, second = rest.partition(" ")
    if first in _CHOICES:
        found = _pending(waiting)
        if len(found) != 1:
            raise ToolInputError(
                f"{len(found)} approvals are pending; say which: /approve ID {first}"
            )
        return found[0].id, first, second.strip()
    choice, _, reason = second.strip().partition(" ")
    if choice not in _CHOICES:
        raise ToolInputError("say what to answer: /approve ID allow, always or deny")
    return first, choice, reason.strip()


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


def _in_workspace(talk: ChatSession, path: str) -> str:
    given = os.path.expanduser(path.strip("'\"").removeprefix("@"))
    return os.path.join(talk.agent.kit.workspace, given)


async def _image(talk: ChatSession, face: ChatView, rest: str) -> None:
    """A picture for the next message."""
    model = talk.agent.conversation.model
    if not rest:
        attached = len(talk.images) or "none"
        face.say(f"Say which: /image PATH. Images attached to your next message: {attached}.")
    elif not model.facts.images:
        face.say(f"{model.ref} does not accept images; /model lists others", "warning")
    else:
        picture = await talk.agent.attach(_in_workspace(talk, rest))
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
        model,
        words=model_words,
    ),
    Command(
        "thinking",
        "[LEVEL|show|hide]",
        "how long the model may think; show or hide it",
        thinking,
        words=lambda _: ((each, "") for each in (*get_args(Thinking), "show", "hide")),
    ),
    Command(
        "fast",
        "[on|off]",
        "use the faster variant, if there is one",
        fast,
        words=lambda _: (("on", ""), ("off", "")),
    ),
    Command("image", "PATH", "send an image with the next message", _image),
    Command("later", "TEXT", "send it when the agent is done (Ctrl-Q)", _later),
    Command("tools", "", "the tools in force, and the removed ones with the reason", tools),
    Command("policy", "[TOOL]", "why a tool is in force or not", policy, words=tool_words),
    Command(
        "exec",
        "[KEY=VALUE …]",
        "how commands run: security, ask, host, mode",
        exec_,
        is_alone=True,
        words=exec_words,
    ),
    Command(
        "elevated",
        "[on|off|ask|full]",
        "running outside the sandbox",
        elevated,
        is_alone=True,
        words=lambda _: ((each, "") for each in LEVELS),
    ),
    Command(
        "approve",
        "[ID] [ANSWER]",
        "pending approvals, also of other processes: allow, always or deny",
        approve,
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
