"""`clawkit chat` and `clawkit up`: a conversation in the terminal."""

from __future__ import annotations

import asyncio
import copy
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from clawkit.cli.options import conversation_options, is_terminal

if TYPE_CHECKING:
    from clawkit.agent.events import Tell
    from clawkit.assistant import Agent
    from clawkit.core.approval import Approver

_NEEDED = ("rich", "prompt_toolkit")


@click.command(short_help="Talk with an agent in the terminal.")
@click.argument("message", required=False, default="")
@conversation_options
def chat(message: str, **options: Any) -> int:
    """Talk with an agent: what you type goes to the model, which can use the tools in force.

    MESSAGE is the first thing to say. While the agent works you can go on typing: Enter is read
    before its next answer, Esc interrupts it. `/help` shows the commands, Ctrl-D ends.

    From a pipe every line is a message; the exit code is 1 when the last one failed.

    \b
    clawkit chat "What is in this folder?"
    clawkit chat --continue
    printf 'list src\\n/cost\\n' | clawkit chat
    """
    pictures = options.pop("images")
    doors = _Doors(options)
    if is_full():
        from clawkit.ui.start import run_full

        return asyncio.run(run_full(doors, message, pictures))
    return _talk_plainly(doors, message, pictures)


up = copy.copy(chat)
up.name = "up"


def is_full() -> bool:
    """Whether there is a terminal that can do more than lines, and what is needed for it."""
    return (
        is_terminal(sys.stdin)
        and is_terminal(sys.stdout)
        and (os.environ.get("TERM") or "dumb") not in ("dumb", "unknown")
        and all(importlib.util.find_spec(name) for name in _NEEDED)
    )


def _talk_plainly(doors: _Doors, message: str, pictures: tuple[str, ...]) -> int:
    from clawkit.cli.watching_turns import PlainWatcher
    from clawkit.ui.plain import run_plain

    approver: Approver | None = None
    if is_terminal(sys.stdin) and is_terminal(sys.stderr):
        from clawkit.cli.terminal import TerminalApprover

        approver = TerminalApprover()
        if not all(importlib.util.find_spec(name) for name in _NEEDED):
            click.echo("For more than lines: pip install 'clawkit[tui]'", err=True)

    if os.environ.get("NO_COLOR") or (os.environ.get("TERM") or "dumb") == "dumb":
        click.get_current_context().color = False
    return asyncio.run(run_plain(doors, PlainWatcher(), approver, message, pictures))


class _Doors:
    """Opens conversations as the options say."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options

    def open(self, tell: Tell, approver: Approver | None) -> Agent:
        from clawkit.cli.agent import open_agent

        return open_agent(self._options, tell, approver)

    def reopen(self, session: str | None, tell: Tell, approver: Approver | None) -> Agent:
        from clawkit.cli.agent import open_agent

        return open_agent({**self._options, "session": session, "go_on": False}, tell, approver)

    def ending(self, agent: Agent) -> None:
        from clawkit.cli.calling import tell_ending

        tell_ending(agent.kit.run)
