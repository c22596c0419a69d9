"""`clawkit approvals watch`: a terminal that answers the questions of all one's clawkits."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import click

from clawkit.approvals.document import ensure_socket
from clawkit.approvals.line import serve, socket_path
from clawkit.approvals.waiting import Waiting
from clawkit.cli.terminal import TerminalApprover
from clawkit.config.paths import approvals_file, home, waiting_file
from clawkit.errors import ConflictError

_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def watch_questions() -> None:
    """Answer until Ctrl-C."""
    asyncio.run(_watch())


async def _watch() -> None:
    path, token = ensure_socket(approvals_file(os.environ), socket_path(home(os.environ)))
    # Before anything else: what comes to an end early leaves no socket behind.
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in _ENDINGS:
        loop.add_signal_handler(each, done.set)
    try:
        server = await serve(path, token, TerminalApprover(bell=True).ask)
    except ConflictError:
        raise ConflictError(
            f"{path}: questions are answered elsewhere already, by another `clawkit approvals "
            "watch` most likely; end that one first"
        ) from None
    try:
        click.echo(f"Waiting for questions at {path}. Ctrl-C ends it.", err=True)
        if waiting := _count_waiting():
            said = "1 question waits" if waiting == 1 else f"{waiting} questions wait"
            click.echo(f"{said} already: clawkit approvals pending", err=True)
        await done.wait()
    finally:
        await server.close()


def _count_waiting() -> int:
    """Questions from before, which only `resolve` can answer."""
    file = waiting_file(os.environ)
    return len(Waiting(file).pending(round(time.time() * 1000))) if os.path.lexists(file) else 0
