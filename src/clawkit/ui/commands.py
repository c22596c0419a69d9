"""The /commands of the chat. The decorators are the rows of `/help`, in order."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from msgspec.structs import asdict

from clawkit.agent.compact import cut_at, estimate
from clawkit.agent.session_overrides import LEVELS
from clawkit.config.modelref import OPERATOR
from clawkit.config.paths import waiting_file
from clawkit.config.sections.shared import Thinking
from clawkit.config.sections.tools import Ask, Host, Mode, Security
from clawkit.content import Summary, Text, User
from clawkit.core.catalog import CATALOG, canonical
from clawkit.errors import (
    ConfigError,
    NotFoundError,
    ToolAuthorizationError,
    ToolInputError,
    UnknownToolError,
)
from clawkit.models.protocols import Request
from clawkit.services import Services
from clawkit.sessions.protocols import Plan
from clawkit.sessions.subagent_protocols import now_ms
from clawkit.text import human_time, nearest, one_line
from clawkit.ui.paint import PaintedRow
from clawkit.ui.session import COMMAND_NAMES, ChatSession

if TYPE_CHECKING:
    from clawkit.approvals.broker import PendingStore, StoredQuestion

Words = Iterable[tuple[str, str]]
"""Words that can be typed next, each with a short description."""
Run = Callable[[ChatSession, str], Awaitable[None]]

_COLUMN = 21
"""The column where the description of a tool starts."""
_LISTED = 15
WORTH_TOKENS = 1_000
"""Summarizing less than this would save little."""
_CLOSE = 3
_ALIASES = {"exit": "quit", "q": "quit", "?": "help", "models": "model", "sessions": "resume"}
_EXEC: dict[str, tuple[str, ...]] = {
    "security": get_args(Security),
    "ask": get_args(Ask),
    "host": get_args(Host),
    "mode": get_args(Mode),
}
_ANSWERS = {
    "allow": "allow-once",
    "yes": "allow-once",
    "always": "allow-always",
    "deny": "deny",
    "no": "deny",
}
_HOW_TO_ANSWER = "type /approve ID allow, /approve ID always or /approve ID deny"


class ChatCommand(NamedTuple):
    name: str
    usage: str
    help: str
    run: Run
    is_alone: bool
    """Whether it cannot run while the agent is working."""
    words: Callable[[ChatSession], Words]


COMMANDS: dict[str, ChatCommand] = {}
COMMAND_NAMES.update(_ALIASES, ("tool",))


def _command(
    usage: str,
    help: str,  # noqa: A002
    *choices: str,
    is_alone: bool = False,
    words: Callable[[ChatSession], Words] | None = None,
) -> Callable[[Run], Run]:
    """Register a command; `choices`, or what `words` returns, complete its argument."""
    name = usage.partition(" ")[0]

    def add(run: Run) -> Run:
        follow = words or (lambda _chat: ((each, "") for each in choices))
        COMMANDS[name] = ChatCommand(name, usage, help, run, is_alone, follow)
        COMMAND_NAMES.update({name} - {"skill"})
        return run

    return add


def split(line: str) -> tuple[str, str]:
    name, _, rest = line[1:].partition(" ")
    name = name.strip().lower()
    return _ALIASES.get(name, name), rest.strip()


async def run(chat: ChatSession, line: str) -> None:
    """Run a line that is a command. Raises `ClawkitError`."""
    name, rest = split(line)
    if line.startswith("!") or name == "tool":
        await chat.call(line)
    elif name in COMMANDS:
        await COMMANDS[name].run(chat, rest)
    elif skill := chat.skills.get(name):
        await chat.dispatch(skill, rest)
    else:
        close = nearest(name, COMMANDS, 1) or [each for each in COMMANDS if each.startswith(name)]
        meant = " or ".join(f"/{each}" for each in close[:_CLOSE])
        hint = f" Did you mean {meant}?" if meant and name else " /help lists them all."
        chat.say(f"Unknown command /{one_line(name, 40)}.{hint}", "warning")


def words_after(chat: ChatSession, name: str) -> Words:
    if not name:
        return (*((each.name, each.help) for each in COMMANDS.values()), *chat.skill_words())
    if name == "tool":
        return ((tool.name, tool.label) for tool in chat.agent.kit.tools)
    command = COMMANDS.get(_ALIASES.get(name, name))
    return command.words(chat) if command else ()


def _check_person() -> None:
    """Raise `ToolAuthorizationError` inside an agent's command, which must not decide for a
    person."""
    from clawkit.process.process_table import is_inside_command

    if is_inside_command():
        raise ToolAuthorizationError(
            "a command that clawkit runs cannot change how clawkit works; a person must type "
            "this in their own terminal",
            reason="approval",
        )


def _unknown(
    kind: str, given: str, known: Iterable[str], more: str = "", *, also: Iterable[str] = ()
) -> ToolInputError:
    """`also` are words to suggest but not to list."""
    listed = tuple(known)
    close = nearest(given, (*listed, *also), 1)
    hint = f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(listed)}"
    said = f"unknown {kind} {one_line(given, 40)!r}; {hint}"
    return ToolInputError(f"{said}{'' if close else '.'} {more}" if more else said)


@_command("help", "show this list")
async def _help(chat: ChatSession, _rest: str) -> None:
    listed = [(f"/{each.usage}", each.help) for each in COMMANDS.values()]
    listed += [
        ("!COMMAND", "run a command yourself; policy and the sandbox apply"),
        ("/tool NAME {json}", "call a tool yourself"),
        ("//…", "send a message that starts with a slash"),
    ]
    width = max(len(typed) for typed, _ in listed) + 1
    chat.rows([PaintedRow(f"{typed:<{width}} {about}", "", width + 1) for typed, about in listed])


def _model_words(chat: ChatSession) -> Words:
    yield "default", "the configured model"
    yield str(OPERATOR), "offline, for trying tools"
    for each in chat.agent.models.catalog.list():
        if each.has_credential and not each.problem:
            yield str(each.ref), each.facts.name
            yield from ((alias, str(each.ref)) for alias in each.aliases)


@_command("model [NAME]", "list models, or switch to another one", words=_model_words)
async def _model(chat: ChatSession, rest: str) -> None:
    """Without a name, lists the usable models; with `all`, every known model."""
    if rest and rest != "all":
        _check_person()
        name = "" if rest == "default" else rest
        chat.agent.use_model(name)
        chat.chosen_model = name
        chat.say(f"Now using {chat.agent.conversation.model.ref}", "good")
        return
    now = chat.agent.conversation.model.ref
    entries = chat.agent.models.catalog.list()
    usable = [each for each in entries if each.has_credential and not each.problem]
    shown = entries if rest else usable
    rows = [PaintedRow(f"{'>' if now == OPERATOR else ' '} {OPERATOR}  offline, for trying tools")]
    for each in shown:
        mark = ">" if each.ref == now else " "
        names = f" ({', '.join(each.aliases)})" if each.aliases else ""
        why = "" if each.has_credential else "no key"
        facts = (f"{each.facts.window:,} tokens", why, one_line(each.problem, 120))
        style: Any = "bold" if mark == ">" else "dim" if why or each.problem else ""
        rows.append(
            PaintedRow(f"{mark} {each.ref}{names}  {', '.join(filter(None, facts))}", style)
        )
    chat.rows(rows)
    hidden = len(entries) - len(shown)
    more = f" /model all also lists {hidden} that cannot be used." if hidden else ""
    chat.say(f"Switch with /model NAME; /model default is the configured one.{more}", "dim")


@_command(
    "thinking [LEVEL|show|hide]",
    "set how long the model may think; show or hide its thinking",
    *(*get_args(Thinking), "show", "hide"),
)
async def _thinking(chat: ChatSession, rest: str) -> None:
    conversation = chat.agent.conversation
    level: Any = rest.lower()
    if level in ("show", "hide"):
        chat.show_thinking = level == "show"
        how = "shown in full" if chat.show_thinking else "shortened to one line"
        chat.say(f"The model's thinking is {how}.")
        return
    if level and level not in get_args(Thinking):
        more = "/thinking show and /thinking hide show or hide it"
        raise _unknown("thinking level", level, get_args(Thinking), more, also=("show", "hide"))
    if level:
        _check_person()
        chat.agent.use_thinking(level)
    has_effect = conversation.model.facts.reasoning or not level
    note = "" if has_effect else f" ({conversation.model.ref} may ignore it)"
    chat.say(f"Thinking: {conversation.thinking}{note}")


@_command("fast [on|off]", "use the model's faster variant, if it has one", "on", "off")
async def _fast(chat: ChatSession, rest: str) -> None:
    conversation = chat.agent.conversation
    if rest and rest not in ("on", "off"):
        raise _unknown("setting", rest, ("on", "off"))
    if rest:
        conversation.params = {**conversation.params, "fastMode": rest == "on"}
    chat.say(f"Fast: {_how_fast(chat)}")


def _how_fast(chat: ChatSession) -> str:
    """Whether the faster variant is on, and whether it exists: only then do the requests differ."""
    from clawkit.models.client import make_wire

    ref = chat.agent.conversation.model.ref
    if chat.agent.conversation.params.get("fastMode") is not True:
        return "off"
    try:
        wire = make_wire(chat.agent.models.catalog.endpoint(ref))
    except ConfigError:
        return f"on, but {ref} has no faster variant"
    said = (User((Text("?"),)),)
    plain, fast = (wire.write(Request("", said, params={"fastMode": on})) for on in (False, True))
    return "on" if plain != fast else f"on, but {ref} has no faster variant"


def _in_workspace(chat: ChatSession, path: str) -> str:
    given = os.path.expanduser(path.strip("'\"").removeprefix("@"))
    return os.path.join(chat.agent.kit.workspace, given)


@_command("image PATH", "attach an image to the next message")
async def _image(chat: ChatSession, rest: str) -> None:
    model = chat.agent.conversation.model
    if not rest:
        attached = len(chat.images) or "none"
        chat.say(f"Type /image PATH. Images attached to your next message: {attached}.")
    elif not model.facts.images:
        chat.say(f"{model.ref} does not accept images; /model lists others", "warning")
    else:
        picture = await chat.agent.attach(_in_workspace(chat, rest))
        chat.images.append(picture)
        chat.show_image(picture)
        chat.say("It will be sent with your next message.", "dim")


@_command("later TEXT", "send TEXT when the agent is done (Ctrl-Q)")
async def _later(chat: ChatSession, _rest: str) -> None:
    """Only reached without a text: with one, the line is a message."""
    chat.say("Type /later TEXT: TEXT is sent when the agent is done.")


@_command("tools", "list the tools in force, and why others were removed")
async def _tools(chat: ChatSession, _rest: str) -> None:
    assembly = chat.agent.kit.assembly
    rows = [PaintedRow(f"{len(assembly.tools)} in force", "bold")]
    for name, tool in assembly.tools.items():
        about = CATALOG[name].description if name in CATALOG else tool.description
        rows.append(PaintedRow(f"  {tool.name:<18} {one_line(about, 100)}", "", _COLUMN))
    removed = [name for name in assembly.refused if name in CATALOG and CATALOG[name].available]
    if removed:
        rows.append(PaintedRow(f"{len(removed)} removed", "bold"))
    for name in removed:
        cause = assembly.decision.verdicts[name].removed_by
        why = one_line(cause.why if cause else "", 200)
        rows.append(PaintedRow(f"  {name:<18} {why}", "warning", _COLUMN))
    chat.rows([*rows, PaintedRow("/policy TOOL explains why.", "dim")])


def _tool_words(chat: ChatSession) -> Words:
    assembly = chat.agent.kit.assembly
    return ((name, "" if name in assembly.tools else "removed") for name in assembly.sources)


@_command(
    "skill [NAME [TEXT]]",
    "list skills, or have the model use one (or /NAME)",
    words=lambda chat: chat.skill_words(),
)
async def _skill(chat: ChatSession, rest: str) -> None:
    """Not called for a skill that the model uses: that line is a message."""
    name, _, words = rest.partition(" ")
    if name in chat.skills:
        await chat.dispatch(chat.skills[name], words.strip())
    elif rest:
        raise _unknown("skill", name, chat.skills or ("one from `clawkit skills list`",))
    else:
        rows = [PaintedRow(f"  /{name:<17} {about}", "", 21) for name, about in chat.skill_words()]
        chat.rows(rows or [PaintedRow("There are no skills here.", "dim")])


@_command("policy [TOOL]", "explain why a tool is in force or not", words=_tool_words)
async def _policy(chat: ChatSession, rest: str) -> None:
    assembly = chat.agent.kit.assembly
    names = [canonical(rest)] if rest else list(assembly.tools)
    if rest and names[0] not in assembly.sources:
        close = nearest(names[0], tuple(assembly.sources), 2)
        hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise UnknownToolError(f"unknown tool {one_line(rest, 60)!r}{hint}")
    for name in names:
        verdict = assembly.decision.verdicts[name]
        if name in assembly.tools:
            rows = [PaintedRow(f"{name} ({assembly.sources[name]}): in force", "good")]
        elif verdict.allowed:
            rows = [PaintedRow(f"{name}: allowed, but not available in this build", "warning")]
        else:
            rows = [PaintedRow(f"{name} ({assembly.sources[name]}): removed", "error")]
        for step in verdict.traces:
            mark = "keeps  " if step.effect == "allow" else "removes"
            rows.append(PaintedRow(f"  step {step.number:>2} {mark} {step.step}: {step.why}"))
        if not verdict.traces:
            rows.append(PaintedRow("  no step restricts it", "dim"))
        rules = [each for each in assembly.rules if each.tools.find(name) is not None]
        chat.rows(
            [*rows, *(PaintedRow(f"  tools.rules[{rule.number}]: {rule.effect}") for rule in rules)]
        )


def _exec_words(_chat: ChatSession) -> Words:
    yield "default", "as configured"
    for key, values in _EXEC.items():
        yield from ((f"{key}={value}", "") for value in values)


@_command(
    "exec [KEY=VALUE …]",
    "show or set how commands run: security, ask, host, mode",
    is_alone=True,
    words=_exec_words,
)
async def _exec(chat: ChatSession, rest: str) -> None:
    """Settings of exec for this conversation; `default` restores the configured ones."""
    if rest:
        _check_person()
        changes = {} if rest == "default" else _exec_changes(chat, rest)
        chat.use_exec(changes)
        chat.exec_changes = changes
    settings = chat.exec
    security, ask = settings.policy()
    chat.say(f"exec: host={settings.host} security={security} ask={ask}")
    for key, value in chat.exec_changes.items():
        if value is not None and getattr(settings, key) != value:
            chat.say(f"{key}={value} has no effect: the agent has its own settings", "warning")


def _exec_changes(chat: ChatSession, rest: str) -> dict[str, Any]:
    found = dict(chat.exec_changes)
    for word in rest.replace(",", " ").split():
        key, equals, value = word.partition("=")
        if key not in _EXEC or not equals:
            raise _unknown("setting", key, tuple(_EXEC), "Type it like /exec ask=always")
        if value not in _EXEC[key]:
            raise _unknown(key, value, _EXEC[key])
        if key == "mode":
            found |= {"security": None, "ask": None}
        elif key != "host":
            old = zip(("security", "ask"), chat.exec.policy(), strict=True)
            found |= {"mode": None, **{name: found.get(name) or now for name, now in old}}
        found[key] = value
    return found


@_command("elevated [on|off|ask|full]", "allow leaving the sandbox", *LEVELS, is_alone=True)
async def _elevated(chat: ChatSession, rest: str) -> None:
    if rest:
        if rest not in LEVELS:
            raise _unknown("elevated mode", rest, LEVELS)
        _check_person()
        chat.use_elevated(rest)
    config = chat.agent.kit.config
    level = config.agents.defaults.elevated_default or "on where allowed"
    but = "" if config.tools.elevated.enabled else " (but tools.elevated.enabled is false)"
    chat.say(f"Elevated: {level}{but}")


@_command("approve [ID] [ANSWER]", "list pending approvals of all processes, or answer one")
async def _approve(chat: ChatSession, rest: str) -> None:
    from clawkit.approvals.broker import Broker, PendingStore

    store = PendingStore(waiting_file(os.environ))
    try:
        pending = _pending(store)
        if rest:
            _check_person()
            if rest.partition(" ")[0] in _ANSWERS:
                if len(pending) != 1:
                    how = f"type /approve ID {rest.partition(' ')[0]}"
                    raise ToolInputError(f"{len(pending)} approvals are pending; {how}")
                rest = f"{pending[0].id} {rest}"
            wanted, choice, reason, *_ = (*rest.split(maxsplit=2), "", "")
            if choice not in _ANSWERS:
                raise ToolInputError(_HOW_TO_ANSWER)
            asked, answer = store.get(wanted), _ANSWERS[choice]
            stored = asked.question.stored
            done = Broker(store).resolve(
                asked.id,
                answer,
                extent=stored[0].extent if stored and choice == "always" else None,
                reason=reason.strip(),
                actor="the person at another terminal",
                authorized=True,
            )
            chat.say(f"{done.slug}: {answer}", "good")
            if asked.orphaned and answer != "deny":
                chat.say("The process that asked has exited, so nothing will run.", "warning")
        elif pending:
            chat.rows(
                [PaintedRow(f"{one.slug}  {one_line(one.question.title, 200)}") for one in pending]
            )
            chat.say(f"To answer one, {_HOW_TO_ANSWER}", "dim")
        else:
            chat.say("There are no pending approvals.")
    finally:
        store.close()


def _pending(store: PendingStore) -> list[StoredQuestion]:
    # Without the file, nothing has been asked yet; opening the store would create it.
    return store.pending(now_ms()) if os.path.lexists(store.path) else []


@_command("plan", "show the agent's current plan")
async def _plan(chat: ChatSession, _rest: str) -> None:
    services = chat.agent.kit.run.services
    made = isinstance(services, Services) and services.is_created(Plan)
    current: Any = services[Plan] if made else None
    if current is None or not current.steps:
        chat.say("There is no plan.")
        return
    details = {"plan": [asdict(each) for each in current.steps]}
    chat.show_call({"type": "end", "tool": "plan", "callId": "", "details": details})


@_command("status", "show model, context, cost and settings")
async def _status(chat: ChatSession, _rest: str) -> None:
    agent = chat.agent
    conversation, session, queued = agent.conversation, agent.session, agent.turns.queued
    security, ask = chat.exec.policy()
    await chat.look()
    used, window = conversation.context_tokens, conversation.model.facts.window
    share = f", {used * 100 // window} %" if window else ""
    facts = {
        "model": f"{conversation.model.ref}, {agent.models.auth(conversation.model.ref)}",
        "session": f"{session.name}: {session.title or '(no title)'}" if session else "not saved",
        "workspace": agent.kit.workspace,
        "context": f"{used:,} of {window:,} tokens{share}",
        "cost": _spent(chat),
        "thinking": conversation.thinking,
        "fast": _how_fast(chat),
        "commands": f"host={chat.exec.host} security={security} ask={ask}",
        "isolation": chat.describe_commands(why=True),
        "tools": f"{len(agent.kit.tools)} in force",
        "waiting": f"{queued} message{'s'[queued == 1 :]}" if queued else "nothing",
    }
    chat.rows(
        [PaintedRow(f"{name:<10} {one_line(text, 300)}", "", 11) for name, text in facts.items()]
    )


def _spent(chat: ChatSession) -> str:
    usage = chat.agent.conversation.usage
    parts = [f"{usage.input:,} tokens sent", f"{usage.output:,} received"]
    if usage.cache_read or usage.cache_write:
        parts.append(f"{usage.cache_read:,} read from the cache, {usage.cache_write:,} written")
    price = "price unknown" if usage.context and not usage.cost else f"${usage.cost:.4f}"
    return f"{price}: {', '.join(parts)}"


@_command("subagents", "list the sub-agents of this session")
async def _subagents(chat: ChatSession, _rest: str) -> None:
    states = chat.agent.delegation.list()[-20:] if chat.agent.delegation else ()
    for each in states:
        run = each.run
        about = f": {each.step}" if each.step else f" ({run.error})" if run.error else ""
        chat.say(f"{run.id[:8]} {each.status:<11} {run.label}{about}")
    if not states:
        chat.say("This session has started no sub-agents.")


@_command("stop [ID]", "stop a sub-agent and all it started; without ID, all of them")
async def _stop(chat: ChatSession, rest: str) -> None:
    delegation = chat.agent.delegation
    run = delegation.find(rest) if delegation and rest else None
    count = await delegation.cancel(run, "the user") if delegation else 0
    done = f"Stopped {count} sub-agent{'s' * (count != 1)}."
    chat.say(done if count else "No sub-agents are running.")


@_command("cost", "show the tokens and dollars spent so far")
async def _cost(chat: ChatSession, _rest: str) -> None:
    most = chat.agent.conversation.limits.max_cost
    limit = f" The limit is ${most:g}." if most is not None else ""
    chat.say(f"{_spent(chat)}.{limit}")


@_command("prompt", "show the system prompt")
async def _prompt(chat: ChatSession, _rest: str) -> None:
    chat.say(chat.agent.prompt())


@_command("compact [WHAT MATTERS]", "summarize the conversation", is_alone=True)
async def _compact(chat: ChatSession, rest: str) -> None:
    conversation = chat.agent.conversation
    history = conversation.history
    old = history[: cut_at(history, conversation.compaction, conversation.model.facts)]
    tokens = estimate([each for each in old if not isinstance(each, Summary)])
    if tokens < WORTH_TOKENS:
        why = f": only about {tokens:,} tokens are old enough" if tokens else ""
        chat.say(f"There is nothing to summarize yet{why}.")
        return
    chat.say("Summarizing …", "dim")
    if not await conversation.compact(rest):
        chat.say("There is nothing to summarize yet.")


@_command("new [NAME]", "start a new conversation", is_alone=True)
async def _new(chat: ChatSession, rest: str) -> None:
    store = chat.agent.store
    if rest and store and store.find(rest, chat.agent.kit.run.scope.agent, is_short=True):
        name = one_line(rest, 60)
        raise ToolInputError(f"a conversation {name!r} already exists; continue it with /resume")
    await chat.switch(rest or None)


def _session_words(chat: ChatSession) -> Words:
    store, session = chat.agent.store, chat.agent.session
    if store is None or session is None:
        return
    for each in store.recent(session.agent, session.workspace, _LISTED):
        if each.id != session.id:
            yield each.name, each.title


@_command(
    "resume [ID]",
    "continue an earlier conversation, or list them",
    is_alone=True,
    words=_session_words,
)
async def _resume(chat: ChatSession, rest: str) -> None:
    store, session = chat.agent.store, chat.agent.session
    if store is None or session is None:
        raise ToolInputError("with --no-session, nothing is saved, so there is nothing to resume")
    if rest:
        try:
            wanted = store.get(rest, session.agent)
        except NotFoundError as error:
            hint = "" if str(error).endswith("?") else ". /resume lists them"
            raise NotFoundError(f"{error}{hint}") from None
        if wanted.id == session.id:
            chat.say("You are already in this conversation.")
        else:
            await chat.switch(wanted.id)
        return
    for each in store.recent(session.agent, session.workspace, _LISTED):
        mark = ">" if each.id == session.id else " "
        ago = human_time(max(0, now_ms() - each.updated_ms) / 1000)
        name = f" {each.name}" if each.name != each.id else ""
        title = one_line(each.title, 80) or "(empty)"
        turns = "1 turn" if each.turns == 1 else f"{each.turns} turns"
        chat.say(f"{mark} {each.id}{name}  {ago} ago, {turns}: {title}")
    chat.say("To continue one: /resume ID", "dim")


@_command("cron [JOB]", "list scheduled jobs and recent runs, or those of a job")
async def _cron(chat: ChatSession, rest: str) -> None:
    from clawkit.ui.jobs import show_in_chat

    show_in_chat(chat, rest)


@_command("quit", "end the chat (Ctrl-D, or type exit)")
async def _quit(chat: ChatSession, _rest: str) -> None:
    chat.is_over = True
