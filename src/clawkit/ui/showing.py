"""Commands that show how things are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clawkit.core.catalog import CATALOG, canonical
from clawkit.errors import UnknownToolError
from clawkit.services import Services
from clawkit.sessions.base import Plan
from clawkit.text import nearest, one_line
from clawkit.ui.calls import Row
from clawkit.ui.setting import exec_in_force, how_fast
from clawkit.ui.talk import Face, Talk

_COLUMN = 21
"""Where the words about a tool begin."""


async def tools(talk: Talk, face: Face, _rest: str) -> None:
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


async def policy(talk: Talk, face: Face, rest: str) -> None:
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


def _known(talk: Talk, name: str) -> str:
    sources, key = talk.agent.kit.assembly.sources, canonical(name)
    if key in sources:
        return key
    close = nearest(key, tuple(sources), 2)
    hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
    raise UnknownToolError(f"there is no tool called {one_line(name, 60)!r}{hint}")


def tool_words(talk: Talk) -> Iterable[tuple[str, str]]:
    assembly = talk.agent.kit.assembly
    return ((name, "" if name in assembly.tools else "removed") for name in assembly.sources)


async def plan(talk: Talk, face: Face, _rest: str) -> None:
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


async def status(talk: Talk, face: Face, _rest: str) -> None:
    agent = talk.agent
    conversation, session = agent.conversation, agent.session
    settings = exec_in_force(talk)
    security, ask = settings.policy()
    facts = [
        ("model", f"{conversation.model.ref}, {agent.models.auth(conversation.model.ref)}"),
        ("session", f"{session.name}: {session.title or '(no title)'}" if session else "not kept"),
        ("workspace", agent.kit.workspace),
        ("context", context(talk)),
        ("cost", spent(talk)),
        ("thinking", conversation.thinking),
        ("fast", how_fast(talk)),
        ("commands", f"host={settings.host} security={security} ask={ask}"),
        ("tools", f"{len(agent.kit.tools)} in force"),
        ("waiting", f"{conversation.queued} messages" if conversation.queued else "nothing"),
    ]
    face.rows([Row(f"{name:<10} {one_line(text, 300)}", "", 11) for name, text in facts])


def context(talk: Talk) -> str:
    conversation = talk.agent.conversation
    used, window = conversation.context_tokens, conversation.model.facts.window
    share = f", {used * 100 // window} %" if window else ""
    return f"{used:,} of {window:,} tokens{share}"


def spent(talk: Talk) -> str:
    usage = talk.agent.conversation.usage
    parts = [f"{usage.input:,} tokens sent", f"{usage.output:,} received"]
    if usage.cache_read or usage.cache_write:
        parts.append(f"{usage.cache_read:,} read from a cache, {usage.cache_write:,} written")
    is_priced = usage.cost or not usage.context
    price = f"${usage.cost:.4f}" if is_priced else "price not known"
    return f"{price}: {', '.join(parts)}"


async def cost(talk: Talk, face: Face, _rest: str) -> None:
    most = talk.agent.conversation.limits.max_cost
    limit = f" The limit is ${most:g}." if most is not None else ""
    face.say(f"{spent(talk)}.{limit}")


async def prompt(talk: Talk, face: Face, _rest: str) -> None:
    face.say(talk.agent.prompt())
