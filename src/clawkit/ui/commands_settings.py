"""Commands that change something: model, thinking, how commands are run, pending approvals."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, get_args

from clawkit.config.paths import waiting_file
from clawkit.config.sections.shared import Thinking
from clawkit.config.sections.tools import Ask, Host, Mode, Security
from clawkit.content import Text, User
from clawkit.errors import ConfigError, ToolAuthorizationError, ToolInputError
from clawkit.models.operator import REF as OPERATOR
from clawkit.models.protocols import Request
from clawkit.text import nearest, one_line
from clawkit.ui.paint import Row
from clawkit.ui.session import ChatSession, ChatView, exec_in_force

if TYPE_CHECKING:
    from clawkit.approvals.pending_store import PendingStore, Stored


LEVELS = ("on", "off", "ask", "full")
_EXEC: dict[str, tuple[str, ...]] = {
    "security": get_args(Security),
    "ask": get_args(Ask),
    "host": get_args(Host),
    "mode": get_args(Mode),
}
Words = Iterable[tuple[str, str]]
_CHOICES = {
    "allow": "allow-once",
    "yes": "allow-once",
    "always": "allow-always",
    "deny": "deny",
    "no": "deny",
}


def check_person() -> None:
    """What an agent runs may not decide for a person. Raises `ToolAuthorizationError`."""
    from clawkit.process.process_table import is_inside_command

    if is_inside_command():
        raise ToolAuthorizationError(
            "a command that clawkit runs cannot change how clawkit works; a person has to type "
            "this in their own terminal",
            reason="approval",
        )


def in_workspace(talk: ChatSession, path: str) -> str:
    given = path.strip().strip("'\"").removeprefix("@")
    return os.path.join(talk.agent.kit.workspace, os.path.expanduser(given))


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


def thinking_words(_talk: ChatSession) -> Words:
    return ((each, "") for each in (*get_args(Thinking), "show", "hide"))


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
    """Whether the service would be sent anything else."""
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
        else:
            _show_pending(_pending(waiting), face)
    finally:
        waiting.close()


def _pending(waiting: PendingStore) -> list[Stored]:
    # Nobody has asked anything yet when there is no store.
    return waiting.pending(round(time.time() * 1000)) if os.path.lexists(waiting.path) else []


def _show_pending(found: list[Stored], face: ChatView) -> None:
    if not found:
        face.say("There are no pending approvals.")
        return
    face.rows([Row(f"{each.slug}  {one_line(each.question.title, 200)}") for each in found])
    face.say("/approve ID allow, always or deny answers one.", "dim")


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
