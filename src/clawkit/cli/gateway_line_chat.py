"""The chat line by line with a gateway, for pipes and simple terminals."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import click

from clawkit.agent.events import Event, ToolEvent, TurnEnded
from clawkit.cli.console import echo
from clawkit.cli.gateway_answers import ChatOpened, ToldEvent
from clawkit.cli.gateway_link import RemoteChat
from clawkit.cli.gateway_turn import attach
from clawkit.cli.shared_options import warn
from clawkit.cli.turn_output import PlainOutput
from clawkit.core.approval import Approver
from clawkit.errors import ToolError
from clawkit.gateway.client import Link
from clawkit.text import printable
from clawkit.ui.line_chat import LineLoop, print_rows


class RemoteLines(RemoteChat, LineLoop):
    def __init__(
        self,
        link: Link,
        options: dict[str, Any],
        opened: ChatOpened,
        approver: Approver | None,
    ) -> None:
        LineLoop.__init__(self, PlainOutput())
        RemoteChat.__init__(self, link, options)
        self._approver = approver
        self._opened, self._run = opened, ""

    async def greet(self, pictures: Sequence[str]) -> None:
        self._pictures = [attach(each) for each in pictures]
        self.enter(self._opened)

    def show_opened(self, opened: ChatOpened) -> None:
        warn(opened["warnings"])
        print_rows(opened["rows"], err=not self._run)

    async def carry_out(self, line: str, *, is_initial: bool = False) -> TurnEnded | None:
        if not line:
            return None
        self._run = os.urandom(16).hex()
        attached, self._pictures = self._pictures, []
        more = {"wait": True, "given": is_initial, "attachments": attached}
        try:
            done = await self.type(line, self._run, **more)
        except asyncio.CancelledError:
            if self.is_connected:
                await self.call("clawkit.chat.stop", {"key": self.key})
            raise
        return done.get("ended")

    def show(self, event: Event, run: str) -> None:
        if run not in (self._run, ""):
            return
        is_prompted = self.is_interactive and not self.is_working
        if is_prompted:
            click.echo(err=True)
        self.printer(event)
        if is_prompted:
            click.echo("> ", nl=False, err=True)

    def hear(self, payload: ToldEvent) -> None:
        if "call" in payload:
            self.printer(ToolEvent(payload["call"]))
        print_rows(payload.get("rows") or payload.get("output") or ())

    def say(self, text: str) -> None:
        echo(f"clawkit: {printable(text)}", err=True)

    def approver(self) -> Approver | None:
        return self._approver if self.is_working else None

    def on_disconnected(self, error: ToolError) -> None:
        if not self.is_working:
            self.say(str(error))
        # The error says how to continue.
        self.is_over, self.has_failed, self.has_turns = True, True, False
        self.has_news.set()

    async def close(self) -> None:
        self.say_how_to_continue(self.name)
        self.leave()
