"""Follows a turn in a gateway: shows it, asks its questions, and stops it on Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from clawkit.agent.events import AnswerRestarted, Event, Notice, SubagentEvent, TurnEnded
from clawkit.cli import shared_options as cli
from clawkit.cli.console import echo
from clawkit.cli.gateway_answers import StoppedRuns, ToldEvent, TurnAccepted, TurnOver
from clawkit.cli.gateway_link import SessionFollower
from clawkit.cli.gateway_turn import METHOD, StartedTurn, say_or_raise
from clawkit.cli.turn_output import TurnOutput
from clawkit.core.approval import Approver
from clawkit.errors import ToolError
from clawkit.gateway.client import CallError, Target, payload_of, read_as
from clawkit.text import printable

STOP_S = 10.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def follow_turn(
    target: Target,
    started: StartedTurn,
    output: TurnOutput,
    make_approver: Callable[[], Approver | None],
) -> TurnEnded | None:
    """Show a turn until it is over; None if it must run without the gateway. Raises `ToolError`."""

    async def follow() -> TurnEnded:
        return await TurnFollower(started, output, make_approver).follow()

    try:
        return asyncio.run(follow())
    except CallError as error:
        say_or_raise(target, error)
        return None


class TurnFollower(SessionFollower):
    """Shows one turn and its consequences, such as sub-agents, until all are over."""

    def __init__(
        self,
        started: StartedTurn,
        output: TurnOutput,
        make_approver: Callable[[], Approver | None],
    ) -> None:
        super().__init__(started.link)
        self._run, self._params, self._output = started.run, started.params, output
        self._make_approver = make_approver
        self._is_stopped = self._has_begun = False
        self._name = ""
        self._end = self.adopt(started.number, METHOD, started.params)
        output.stop = self._stop
        self.take_early()

    async def follow(self) -> TurnEnded:
        for each in _SIGNALS:
            self._loop.add_signal_handler(each, self._stop)
        try:
            over: TurnOver = read_as(TurnOver, payload_of(await self._end))
        except asyncio.CancelledError:
            self._is_stopped = True
        finally:
            for each in _SIGNALS:
                self._loop.remove_signal_handler(each)
            self.leave()
        if self._output.failed is not None or self._is_stopped:
            raise self._output.failed or KeyboardInterrupt
        return over["ended"]

    def _stop(self) -> None:
        if self._is_stopped or not self.is_connected:
            if self._has_begun and not self.is_connected:
                self.say("the turn continues when the gateway is back")
            self._end.cancel()  # a second Ctrl-C does not wait
            return
        self._is_stopped = True
        self.run(self._abort())

    async def _abort(self) -> None:
        done = await self.call("sessions.abort", {"runId": self._run}, StoppedRuns)
        if not done["aborted"] and self._has_begun:
            # The turn is over; only its sub-agents continue.
            self.say("its sub-agents continue in the gateway")
            self._end.cancel()
        await asyncio.sleep(STOP_S)
        if not self._end.done():
            text = "the gateway did not confirm the stop; the turn may still be running"
            self._end.set_exception(ToolError(text))

    async def back(self) -> None:
        if self._name:
            self._params["after"] = self.last_shown

    def how_to_go_on(self) -> str:
        if not self._name:
            return "See: clawkit gateway status"
        answer = f"clawkit sessions show {self._name}"
        return f"The gateway resumes this turn after its restart; to see the answer: {answer}"

    def accept(self, payload: TurnAccepted) -> None:
        self._name, self.last_shown = payload["name"], payload["number"]
        self.sessions.add(payload["key"])
        cli.warn(filter(None, (*payload["warnings"], cli.workspace_warning(payload["workspace"]))))
        super().accept(payload)

    def show(self, event: Event, run: str) -> None:
        """Show an event of this turn, or of one that reads the results of its sub-agents."""
        self._has_begun |= run == self._run
        is_of_link = isinstance(event, Notice | AnswerRestarted)
        if not (self._has_begun or is_of_link) or run not in (self._run, ""):
            return
        if isinstance(event, SubagentEvent):
            self.sessions.add(event.session)
            if not self._output.shows_subagents:
                return
        self._output(event)

    def hear(self, payload: ToldEvent) -> None: ...

    def say(self, text: str) -> None:
        echo(f"clawkit: {printable(text)}", err=True)

    def approver(self) -> Approver | None:
        return self._make_approver()
