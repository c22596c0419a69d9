"""Output of commands, and facts about the terminal and the options.

Does not import click, which takes a tenth of the start of `clawkit agent`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TextIO

from clawkit.terminal_text import hold_back
from clawkit.text import printable

if TYPE_CHECKING:
    import asyncio

    from clawkit.core.call import Run
    from clawkit.policy.selectors import Origin

YELLOW, GREY = "33", "90"
_STYLES = r"\x1b\[[0-?]*[ -/]*[@-~]"


def echo(text: str | bytes = "", code: str = "", *, nl: bool = True, err: bool = False) -> None:
    """Print and flush, as `click.echo` does: without styles where they are not shown. `code` is the
    style of the whole text."""
    stream = sys.stderr if err else sys.stdout
    if stream is None or hold_back(stream, lambda: echo(text, code, nl=nl, err=err)):
        return
    if isinstance(text, bytes):
        stream.flush()
        stream.buffer.write(text + b"\n" * nl)
        stream.buffer.flush()
        return
    if (code or "\x1b" in text) and not has_styles(stream):
        text = re.sub(_STYLES, "", text) if "\x1b" in text else text
    elif code:
        text = style(text, code)
    stream.write(text + "\n" * nl)
    stream.flush()


def style(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m"


@lru_cache(maxsize=2)
def has_styles(stream: TextIO) -> bool:
    """Whether a stream is a terminal that shows colours."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown")
    return stream.isatty() and not is_plain


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal; None is a stream that was closed at start-up."""
    return stream is not None and stream.isatty()


def can_ask() -> bool:
    """Whether questions can be asked and answered on a terminal."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def print_text(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Print text unchanged; on a terminal, with unprintable characters escaped."""
    is_shown = is_terminal(sys.stderr if err else sys.stdout)
    echo(printable(text) if is_shown else text, nl=nl, err=err)


def warn(messages: Any) -> None:
    """Print warnings on standard error."""
    for message in messages:
        echo(f"{style('warning:', YELLOW)} {printable(message)}", err=True)


def is_command() -> bool:
    """Whether an agent's command runs this process, so that no person is at the terminal."""
    from clawkit.process import process_table

    return process_table.is_inside_command()


def workspace_warning(workspace: str) -> str:
    """Why a directory is too broad for a workspace; empty if it is not."""
    real = os.path.realpath(workspace)
    homes = {"/": "the root directory", os.path.realpath(os.path.expanduser("~")): "your home"}
    if real not in homes:
        return ""
    return (
        f"the workspace is {homes[real]} ({real}): the agent can change every file in it. Start "
        "clawkit in a project directory, or add --workspace DIR"
    )


def origin_of(options: dict[str, Any]) -> Origin:
    """The origin of the message, according to the options."""
    from clawkit.core.context import Sender
    from clawkit.policy.selectors import Origin

    sender = Sender(owner=options["owner"], id=options["sender"], roles=options["roles"])
    places = {name: options[name] for name in ("channel", "account", "group", "space")}
    return Origin(sender=sender, **places)


@contextmanager
def cancelled_by_signals(task: asyncio.Future[Any]) -> Iterator[None]:
    """Within this block, Ctrl-C and SIGTERM cancel the task."""
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, task.cancel)
    try:
        yield
    finally:
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)


def tell_ending(run: Run) -> None:
    """Print which background commands are about to be stopped, because clawkit exits."""
    from clawkit.process.protocols import Commands
    from clawkit.services import Services
    from clawkit.tools._commands import owner_of

    if isinstance(run.services, Services) and run.services.is_created(Commands):
        mine = run.services[Commands].all(owner_of(run.scope))
        running = [each for each in mine if each.exit is None or each.left]
        names = [each.id for each in running if not each.launch.detach]
        if names:
            echo(
                f"clawkit: stopping {', '.join(names)} (commands started with detach keep running)",
                err=True,
            )
