"""The commands that begin with a slash: a table, and how a line finds its row."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from clawkit.text import nearest, one_line
from clawkit.ui import approve, sessions, setting, showing
from clawkit.ui.calls import Row
from clawkit.ui.talk import Face, Talk

Words = Iterable[tuple[str, str]]


class Command(NamedTuple):
    """One command."""

    name: str
    usage: str
    help: str
    run: Callable[[Talk, Face, str], Awaitable[None]]
    is_alone: bool = False
    """Whether it has to wait until the agent is done."""
    words: Callable[[Talk], Words] | None = None
    """What can follow."""


async def _help(talk: Talk, face: Face, _rest: str) -> None:
    listed = [(f"/{each.name} {each.usage}".rstrip(), each.help) for each in COMMANDS]
    others = [
        ("!COMMAND", "run a command yourself: policy and approvals hold for it, too"),
        ("/tool NAME {json}", "call a tool yourself"),
        ("//…", "a message that begins with a slash"),
    ]
    width = max(len(typed) for typed, _ in (*listed, *others)) + 1
    for table in (listed, others):
        face.rows([Row(f"{typed:<{width}} {about}", "", width + 1) for typed, about in table])


async def _quit(talk: Talk, _face: Face, _rest: str) -> None:
    talk.is_over = True


async def _image(talk: Talk, face: Face, rest: str) -> None:
    """A picture for the next message."""
    model = talk.agent.conversation.model
    if not rest:
        waiting = f"{len(talk.images)} wait for your next message" if talk.images else "none waits"
        face.say(f"Say which: /image PATH. Of pictures, {waiting}.")
    elif not model.facts.images:
        face.say(f"{model.ref} takes no pictures; /model shows others", "warning")
    else:
        picture = await talk.agent.attach(setting.in_workspace(talk, rest))
        talk.images.append(picture)
        face.show_image(picture)
        face.say("It goes with your next message.", "dim")


async def _later(_talk: Talk, face: Face, _rest: str) -> None:
    """Only without a text; with one it is a message."""
    face.say("Say what: /later TEXT is said when the agent is done with what it does now.")


COMMANDS: tuple[Command, ...] = (
    Command("help", "", "this list", _help),
    Command(
        "model",
        "[NAME]",
        "the models there are; use another one",
        setting.model,
        words=setting.model_words,
    ),
    Command(
        "thinking",
        "[LEVEL|show|hide]",
        "how long the model may think; show it or not",
        setting.thinking,
        words=setting.thinking_words,
    ),
    Command(
        "fast",
        "[on|off]",
        "use the faster variant, where there is one",
        setting.fast,
        words=lambda _: (("on", ""), ("off", "")),
    ),
    Command("image", "PATH", "send a picture with the next message", _image),
    Command("later", "TEXT", "say it when the agent is done (Ctrl-Q)", _later),
    Command("tools", "", "the tools in force, and the removed ones with the reason", showing.tools),
    Command(
        "policy",
        "[TOOL]",
        "why a tool is in force or not",
        showing.policy,
        words=showing.tool_words,
    ),
    Command(
        "exec",
        "[KEY=VALUE …]",
        "how commands are run: security, ask, host, mode",
        setting.exec_,
        is_alone=True,
        words=setting.exec_words,
    ),
    Command(
        "elevated",
        "[on|off|ask|full]",
        "running outside the sandbox",
        setting.elevated,
        is_alone=True,
        words=lambda _: ((each, "") for each in setting.LEVELS),
    ),
    Command(
        "approve",
        "[ID] [ANSWER]",
        "questions that wait, also of others; answer allow, always or deny",
        approve.approve,
    ),
    Command("plan", "", "the steps the agent has before it", showing.plan),
    Command("status", "", "model, context, settings", showing.status),
    Command("cost", "", "tokens and dollars so far", showing.cost),
    Command("prompt", "", "the system prompt", showing.prompt),
    Command(
        "compact", "[WHAT MATTERS]", "sum up the conversation", sessions.compact, is_alone=True
    ),
    Command("new", "[NAME]", "begin another conversation", sessions.new, is_alone=True),
    Command(
        "resume",
        "[ID]",
        "go on with an earlier one; without an id, show them",
        sessions.resume,
        is_alone=True,
        words=sessions.session_words,
    ),
    Command("quit", "", "end (Ctrl-D)", _quit),
)
BY_NAME = {each.name: each for each in COMMANDS}
_CLOSE = 3
_ALIASES = {"exit": "quit", "q": "quit", "?": "help", "models": "model", "sessions": "resume"}


def split(line: str) -> tuple[str, str]:
    """Name and the rest of a line that begins with a slash."""
    name, _, rest = line[1:].partition(" ")
    name = name.strip().lower()
    return _ALIASES.get(name, name), rest.strip()


def find(line: str) -> Command | None:
    return BY_NAME.get(split(line)[0])


async def run(talk: Talk, face: Face, line: str) -> None:
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
        face.say(f"There is no command /{one_line(name, 40)}.{hint}", "warning")
        return
    await command.run(talk, face, rest)


def names() -> Words:
    return ((each.name, each.help) for each in COMMANDS)


def words_after(talk: Talk, name: str) -> Words:
    """What can follow a command."""
    command = BY_NAME.get(_ALIASES.get(name, name))
    if name == "tool":
        return ((tool.name, tool.label) for tool in talk.agent.kit.tools)
    return command.words(talk) if command and command.words else ()
