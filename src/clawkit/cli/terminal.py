"""Asking the person at the terminal."""

from __future__ import annotations

import asyncio
import json
import sys
import termios

import click

from clawkit.core.approval import Answer, Question
from clawkit.text import printable


class TerminalApprover:
    """Asks on standard error and reads the answer from standard input. Only `y` means yes."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()

    async def ask(self, request: Question) -> Answer:
        async with self._one_at_a_time:
            return await self._ask(request)

    async def _ask(self, request: Question) -> Answer:
        # What was typed before the question was not an answer to it.
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        click.secho(f"\n{printable(request.title, '')}", bold=True, err=True)
        for label, text in (
            ("why", request.description),
            ("asked by", request.asked_by),
            ("parameters", json.dumps(dict(request.params), ensure_ascii=False)),
        ):
            if text:
                click.echo(f"  {label}: {printable(text, '')}", err=True)
        click.echo("Allow this once? [y/N] ", nl=False, err=True)
        line = await _read_line()
        if line.strip().lower() in ("y", "yes"):
            return Answer("allow")
        return Answer("deny", "the person at the terminal said no")


async def _read_line() -> str:
    """A line from the terminal, without a thread that could not be stopped."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ready.set)
    try:
        await ready.wait()
        return sys.stdin.readline()
    finally:
        loop.remove_reader(sys.stdin.fileno())
