"""`clawkit chat` and `clawkit up`: a conversation in the terminal."""

from __future__ import annotations

import asyncio
import copy
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from clawkit.cli.options import can_ask, conversation_options, is_terminal

if TYPE_CHECKING:
    from clawkit.agent.events import Tell
    from clawkit.agent_session import Agent
    from clawkit.core.approval import Approver


@click.command(short_help="Chat with an agent in the terminal.")
@click.argument("message", required=False, default="")
@conversation_options
def chat(message: str, **options: Any) -> int:
    """Chat with an agent: what you type goes to the model, which can use the tools in force.

    MESSAGE is the first message. While the agent works you can keep typing: Enter sends a message
    that it reads before its next answer, Esc interrupts it. `/help` lists the commands, Ctrl-D
    quits.

    From a pipe every line is a message; the exit code is 1 if the last one failed.

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


def has_tui() -> bool:
    """Whether the packages of the extra `tui` are installed."""
    return all(importlib.util.find_spec(name) for name in ("rich", "prompt_toolkit"))


def is_full() -> bool:
    """Whether the terminal can do more than lines, and the extra `tui` is installed."""
    return (
        is_terminal(sys.stdin)
        and is_terminal(sys.stdout)
        and (os.environ.get("TERM") or "dumb") not in ("dumb", "unknown")
        and has_tui()
    )


def _talk_plainly(doors: _Doors, message: str, pictures: tuple[str, ...]) -> int:
    from clawkit.cli.turn_output import PlainOutput
    from clawkit.ui.line_chat import run_plain

    approver: Approver | None = None
    if can_ask():
        from clawkit.cli.terminal import TerminalApprover

        approver = TerminalApprover()
        if not has_tui():
            click.echo("For the full terminal interface: pip install 'clawkit[tui]'", err=True)

    if os.environ.get("NO_COLOR") or (os.environ.get("TERM") or "dumb") == "dumb":
        click.get_current_context().color = False
    return asyncio.run(run_plain(doors, PlainOutput(), approver, message, pictures))


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
        from clawkit.cli.tools import tell_ending

        tell_ending(agent.kit.run)
