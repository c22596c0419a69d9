"""`clawkit agent`: one turn for scripts; `clawkit chat` and `up`: a conversation."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from clawkit.cli import shared_options as cli
from clawkit.errors import ClawkitError
from clawkit.text import one_line

if TYPE_CHECKING:
    from clawkit.agent.events import Tell
    from clawkit.agent_session import Agent
    from clawkit.core.approval import Approver

MAX_MESSAGE = 4 * 1024 * 1024
"""Bytes."""
BLIND = (
    "does not accept images and only learns that there was one. If it does accept them, put "
    'input: ["text", "image"] into its entry under models.providers'
)


@click.command(context_settings={"allow_extra_args": True})
@click.option("-m", "--message", metavar="TEXT", help="The message; - reads standard input.")
@click.option("--json", "as_json", is_flag=True, help="Print every event as a line of JSON.")
@click.option("--print-prompt", is_flag=True, help="Print the system prompt and exit.")
@cli.conversation_options
def agent(**options: Any) -> int:
    """Send an agent one message, let it work until it is done, and print its answer.

    The answer goes to standard output, progress to standard error. With --json every event is one
    line on standard output; the last one has `"type": "turn_end"`. Without a terminal, what needs
    an approval is refused; if a gateway is running, it waits for an answer from elsewhere.

    \b
    clawkit agent -m "Which tests are slow here?"
    git diff | clawkit agent -m - --session review
    clawkit agent -m "Fix the failing test" --json --max-turns 30
    """
    from clawkit.cli.turn import run_agent

    def read_message() -> str:
        _refuse_more_words("quote the message after -m: clawkit agent -m", options["message"])
        return "" if options["print_prompt"] else _read_message(options["message"])

    return run_agent(options, read_message)


def _refuse_more_words(what: str, message: str | None) -> None:
    """Raise if the message was given without its option, or without quotes."""
    if words := click.get_current_context().args:
        import shlex

        said = shlex.quote(one_line(" ".join(filter(None, (message, *words))), 60))
        raise ClawkitError(f"{what} {said}")


def _read_message(text: str | None) -> str:
    if text is None:
        raise ClawkitError("a message is needed: -m TEXT, or -m - to read standard input")
    # Typed or piped text is UTF-8 regardless of the locale.
    data = cli.read_input("-", MAX_MESSAGE) if text == "-" else os.fsencode(text)
    if len(data) > MAX_MESSAGE:
        raise ClawkitError(f"the message is longer than {MAX_MESSAGE} bytes")
    if b"\0" in data:
        raise ClawkitError("standard input is not text; name the file in the message instead")
    text = data.decode("utf-8", "replace")
    if not text.strip():
        raise ClawkitError("the message is empty")
    return text


@click.command(context_settings={"allow_extra_args": True})
@click.argument("message", required=False, default="")
@cli.conversation_options
def chat(message: str, **options: Any) -> int:
    """Chat with an agent: what you type goes to the model, which can use the tools in force.

    MESSAGE is the first message. While the agent works you can keep typing: Enter sends a message
    that it reads before its next answer, Esc interrupts it. `/help` lists the commands, Ctrl-D
    or `exit` quits.

    From a pipe every line is a message; the exit code is 1 if the last one failed.

    \b
    clawkit chat "What is in this folder?"
    clawkit chat --continue
    printf 'list src\\n/cost\\n' | clawkit chat
    """
    import asyncio

    from clawkit.cli.gateway_turn import find_gateway, open_chat
    from clawkit.cli.turn import choose_approver

    _refuse_more_words("quote the message: clawkit chat", message)
    pictures = options.pop("images")
    target = find_gateway(options, ("max_turns", "max_cost"))
    doors = _Doors(options)
    has_cursor = (os.environ.get("TERM") or "dumb") not in ("dumb", "unknown")
    is_full = (
        has_cursor and cli.is_terminal(sys.stdin) and cli.is_terminal(sys.stdout) and has_tui()
    )
    hosted = open_chat(target, options, keyboard=is_full) if target is not None else None
    if is_full:
        from clawkit.ui.input_area import open_here, run_full

        opener = open_here(doors)
        if hosted is not None:
            from clawkit.cli.gateway_chat import GatewayChat

            opener = GatewayChat.opener(hosted[0], options, hosted[1])
        return asyncio.run(run_full(opener, message, pictures))
    from clawkit.cli.turn_output import PlainOutput
    from clawkit.ui.line_chat import LineChat, run_plain

    if hosted is not None:
        from clawkit.cli.gateway_line_chat import RemoteLines

        link, opened = hosted
        lines = partial(RemoteLines, link, options, opened, choose_approver(None))
        return asyncio.run(run_plain(lines, message, pictures))
    if cli.can_ask() and not has_tui():
        from clawkit.installation import how_to_add

        click.echo(f"For the full terminal interface: {how_to_add('tui')}", err=True)
    here = partial(LineChat, doors, PlainOutput(), choose_approver(None))
    return asyncio.run(run_plain(here, message, pictures))


def has_tui() -> bool:
    """Whether the packages of the extra `tui` are installed."""
    from importlib.util import find_spec

    return all(find_spec(name) for name in ("rich", "prompt_toolkit"))


class _Doors:
    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options

    def open(self, tell: Tell, approver: Approver | None, **changes: Any) -> Agent:
        from clawkit.cli.turn import open_agent

        return open_agent({**self._options, **changes}, tell, approver)

    def ending(self, agent: Agent) -> None:
        cli.tell_ending(agent.kit.run)
