"""`clawkit agent`: one turn for scripts."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from typing import Any

import click

from clawkit.agent.events import Noticed, TurnEnded
from clawkit.assistant import Agent
from clawkit.cli.options import (
    conversation_options,
    is_command,
    is_terminal,
    warn,
    wrong_usage,
)
from clawkit.cli.watching_turns import JsonLines, PlainWatcher, Watcher
from clawkit.content import Block, Text
from clawkit.core.context import Sender
from clawkit.errors import ClawkitError
from clawkit.text import one_line, printable

MAX_MESSAGE = 4 * 1024 * 1024
"""Bytes."""
_BLIND = (
    "takes no images: it is only told that there was one. If it does, put "
    'input: ["text", "image"] into its entry under models.providers'
)


@click.command(
    short_help="Give an agent one message and print its answer.",
    context_settings={"allow_extra_args": True},
)
@click.option("-m", "--message", metavar="TEXT", help="What to say; - reads standard input.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print everything that happens as JSON lines."
)
@click.option("--print-prompt", is_flag=True, help="Print the system prompt and end.")
@conversation_options
def agent(**options: Any) -> int:
    """Give an agent one message, let it work until it is done, and print its answer.

    The answer goes to standard output, what the agent does to standard error. With --json every
    event is one line on standard output; the last one has `"type": "turn_end"`. Where nobody can be
    asked, whatever needs an approval is refused.

    \b
    clawkit agent -m "Which tests are slow here?"
    git diff | clawkit agent -m - --session review
    clawkit agent -m "Fix the failing test" --json --max-turns 30
    """
    watcher: Watcher = JsonLines() if options["as_json"] else PlainWatcher()
    try:
        _refuse_words(click.get_current_context().args, options["message"])
        if options["print_prompt"]:
            return asyncio.run(_print_prompt(open_agent(options, watcher)))
        said = _read_message(options["message"])
        opened = open_agent(options, watcher, _approver_beside_pipe(options))
        ended = asyncio.run(_one_turn(opened, said, options["images"], watcher))
    except KeyboardInterrupt:
        watcher.give_up("aborted")
        raise
    except (ClawkitError, click.ClickException, OSError) as error:
        watcher.give_up("error", getattr(error, "strerror", "") or str(error))
        raise
    watcher.finish(ended)
    return 0 if ended.how == "done" else 1


def _refuse_words(words: list[str], message: str | None) -> None:
    """Words without an option are a message whose `-m`, or whose quotes, were forgotten."""
    if words:
        said = shlex.quote(one_line(" ".join(filter(None, (message, *words))), 60))
        raise click.UsageError(f"the message is one argument, after -m: clawkit agent -m {said}")


def _approver_beside_pipe(options: dict[str, Any]) -> Any:
    """Asks who sits at the terminal while the message takes up standard input."""
    is_piped = options["message"] == "-" and not is_terminal(sys.stdin)
    if not is_piped or not is_terminal(sys.stderr) or options["as_json"] or is_command():
        return None
    from clawkit.cli.terminal import TerminalApprover, open_terminal

    fd = open_terminal()
    return None if fd is None else TerminalApprover(fd)


def open_agent(options: dict[str, Any], tell: Any, approver: Any = None) -> Agent:
    """The conversation that the options ask for."""
    from clawkit.process.hidden import hide_memory

    hide_memory()
    if is_command():
        approver = None
    elif approver is None and is_terminal(sys.stdin) and is_terminal(sys.stderr):
        from clawkit.cli.terminal import TerminalApprover

        approver = TerminalApprover()
    session = options["session"]
    if options["no_session"] and (session or options["go_on"]):
        raise click.UsageError("--no-session keeps nothing: there is no conversation to go on with")
    if options["go_on"]:
        if session:
            raise click.UsageError("--continue and --session are two ways to say it; use one")
        session = _latest(options)
    with wrong_usage():
        opened = Agent.open(
            options["config_file"],
            workspace=options["workspace"],
            agent=options["agent"],
            session=session,
            keep=not options["no_session"],
            model=options["model"],
            thinking=options["thinking"],
            max_turns=options["max_turns"],
            max_cost=options["max_cost"],
            channel=options["channel"],
            group=options["group"],
            sender=Sender(owner=options["owner"], id=options["sender"]),
            sandboxed=options["sandboxed"],
            depth=options["depth"],
            approver=approver,
            tell=tell,
        )
    warn(opened.warnings)
    return opened


def _latest(options: dict[str, Any]) -> str:
    """The id of the conversation that was last used in this directory."""
    from clawkit.config.load import load
    from clawkit.runtime import resolve_workspace
    from clawkit.sessions.place import locate_store
    from clawkit.sessions.store import SessionStore

    loaded = load(options["config_file"])
    name = options["agent"] or loaded.config.agents.default_id()
    place = resolve_workspace(loaded.config, name, options["workspace"])
    store = SessionStore(locate_store(loaded.config.session.store, os.environ))
    try:
        found = store.recent(name, place, 1)
    finally:
        store.close()
    if not found:
        raise click.UsageError(f"there is no conversation of the agent {name!r} in {place} yet")
    return found[0].id


async def _print_prompt(opened: Agent) -> int:
    async with opened:
        text = opened.prompt()
        click.echo(printable(text) if is_terminal(sys.stdout) else text, nl=False)
    return 0


async def _one_turn(
    opened: Agent, text: str, images: tuple[str, ...], watcher: Watcher
) -> TurnEnded:
    """The turn, stopped cleanly by Ctrl-C, a polite kill, or when nobody takes the output."""
    async with opened:
        with wrong_usage():
            said: list[Block] = [Text(text), *[await opened.attach(path) for path in images]]
        model = opened.conversation.model
        if images and not model.facts.images:
            watcher(Noticed(f"{model.ref} {_BLIND}", "warning"))
        task = asyncio.ensure_future(opened.send(said))
        watcher.stop = task.cancel
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            raise watcher.failed or KeyboardInterrupt from None
        finally:
            for each in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(each)


def _read_message(text: str | None) -> str:
    if text is None:
        raise click.UsageError("say something: -m TEXT, or -m - to read standard input")
    # Whatever the locale, what was typed or piped is taken for UTF-8.
    data = _read_input() if text == "-" else os.fsencode(text)
    if len(data) > MAX_MESSAGE:
        raise click.UsageError(f"the message is longer than {MAX_MESSAGE} bytes")
    if b"\0" in data:
        raise click.UsageError("standard input is no text: give a file's name in the message")
    text = data.decode("utf-8", "replace")
    if not text.strip():
        raise click.UsageError("the message is empty")
    return text


def _read_input() -> bytes:
    return sys.stdin.buffer.read(MAX_MESSAGE + 1) if sys.stdin is not None else b""
