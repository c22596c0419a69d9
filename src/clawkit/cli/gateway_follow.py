"""Follows a turn in a gateway: shows it, asks what it asks, and stops it on Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
import msgspec

from clawkit.agent.events import Event, Noticed, SubagentHappened, TurnEnded
from clawkit.cli import options as cli
from clawkit.cli.gateway_turn import StartedTurn, begin, say_or_raise
from clawkit.cli.turn_output import TurnOutput
from clawkit.core.approval import Approver
from clawkit.errors import ToolError
from clawkit.gateway.client import CallError, Target, payload_of, read_frame
from clawkit.gateway.websocket import SocketClosedError
from clawkit.text import printable

STOP_S = 10.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_turn(
    target: Target,
    options: dict[str, Any],
    message: str,
    output: TurnOutput,
    make_approver: Callable[[], Approver | None],
) -> TurnEnded | None:
    """Run one turn; None if it has to run without the gateway. Raises `ToolError`."""
    started = begin(target, options, message)
    if started is None:
        return None
    try:
        with started.link:
            return TurnFollower(started, output, make_approver).run()
    except CallError as error:
        say_or_raise(target, error)
        return None


class TurnFollower:
    """Shows a turn, asks what it asks, and stops it on Ctrl-C."""

    def __init__(
        self,
        started: StartedTurn,
        output: TurnOutput,
        make_approver: Callable[[], Approver | None],
    ) -> None:
        self._link, self._number, self._run = started.link, started.number, started.run
        self._output = output
        self._make_approver = make_approver
        self._ended: TurnEnded | None = None
        self._error: Exception | None = None
        self._is_stopped = self._has_begun = False
        self._sessions: set[str] = set()
        """Of the agent and its sub-agents: whose questions are asked here."""
        self._name = self._abort = ""
        self._questions: dict[str, dict[str, Any]] = {}
        self._asking: asyncio.Task[Any] | None = None
        self._asked = ""
        output.stop = self._stop

    def run(self) -> TurnEnded:
        with self._stopped_by_signals():
            while self._ended is None:
                if self._questions:
                    self._ask()
                else:
                    self._next()
        if self._output.failed is not None or self._is_stopped:
            raise self._output.failed or KeyboardInterrupt
        return self._ended

    def _next(self) -> None:
        try:
            frame = self._link.receive(STOP_S) if self._is_stopped else self._link.receive()
        except SocketClosedError as error:
            raise ToolError(f"{error}{self._how_to_go_on()}") from None
        except ToolError as error:
            if self._is_stopped:
                raise ToolError(f"{error}; the turn may still be running there") from None
            raise
        self._take(frame)

    def _how_to_go_on(self) -> str:
        if not self._name:
            return ""
        return (
            ". It goes on with this turn when it runs again; to see the answer: clawkit sessions "
            f"show {self._name}"
        )

    @contextmanager
    def _stopped_by_signals(self) -> Iterator[None]:
        before = {each: signal.signal(each, self._on_signal) for each in _SIGNALS}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _on_signal(self, *_args: object) -> None:
        if self._is_stopped:
            raise KeyboardInterrupt  # the second one does not wait
        self._stop()

    def _stop(self) -> None:
        self._is_stopped = True
        self._abort = self._link.request("sessions.abort", {"runId": self._run})

    def _take(self, frame: dict[str, Any]) -> None:
        payload = frame.get("payload") or {}
        if frame.get("id") == self._number:
            payload = payload_of(frame)
            if payload.get("status") == "accepted":
                self._accept(payload)
            else:
                self._end(payload)
            return
        if frame.get("id") == self._abort and not payload.get("aborted") and self._has_begun:
            # The turn is over: what goes on are its sub-agents.
            click.echo("clawkit: its sub-agents go on in the gateway", err=True)
            raise KeyboardInterrupt
        match frame.get("event"):
            case "clawkit.event":
                self._show(payload)
            case "exec.approval.requested" if payload["clawkit"]["session"] in self._sessions:
                self._questions[payload["id"]] = payload["clawkit"]
            case "exec.approval.resolved":
                self._questions.pop(payload["id"], None)
                if self._asking is not None and payload["id"] == self._asked:
                    self._asking.cancel()

    def _accept(self, payload: dict[str, Any]) -> None:
        self._name = payload["name"]
        self._sessions.add(payload["key"])
        cli.warn(filter(None, (*payload["warnings"], cli.workspace_warning(payload["workspace"]))))
        if payload["blind"]:
            from clawkit.cli.agent import BLIND

            self._output(Noticed(f"{payload['blind']} {BLIND}", "warning"))

    def _show(self, payload: dict[str, Any]) -> None:
        """Show an event of this turn, or of one that reads the results of its sub-agents."""
        self._has_begun |= payload["run"] == self._run
        if not self._has_begun or payload["run"] not in (self._run, ""):
            return
        event = msgspec.convert(payload["event"], Event)
        if isinstance(event, SubagentHappened):
            self._sessions.add(event.session)
            if not self._output.shows_subagents:
                return
        self._output(event)

    def _end(self, payload: dict[str, Any]) -> None:
        self._ended = msgspec.convert(payload["ended"], TurnEnded)
        if self._asking is not None:
            self._asking.cancel()

    def _ask(self) -> None:
        """Ask a person here; the turn goes on, and others may answer before."""
        approver = self._make_approver()
        id_, question = self._questions.popitem()
        if approver is None:
            what = printable(question["command"] or question["title"])
            how = f"clawkit approvals resolve {id_} allow-once"
            click.echo(f"clawkit: waiting for approval: {what}. To allow it: {how}", err=True)
            return
        asyncio.run(self._ask_here(approver, id_, question))
        if self._error is not None:
            raise self._error

    async def _ask_here(self, approver: Approver, id_: str, question: dict[str, Any]) -> None:
        from clawkit.approvals.binding import choice_of, read_question

        loop = asyncio.get_running_loop()
        self._asked = id_
        self._asking = asyncio.ensure_future(approver.ask(read_question(question)))
        loop.add_reader(self._link.socket.fileno(), self._read)
        try:
            answer = await self._asking
        except asyncio.CancelledError:
            return  # answered elsewhere, or over
        finally:
            loop.remove_reader(self._link.socket.fileno())
            self._asking = None
        choice = choice_of(answer)
        params = {"id": id_, "decision": choice, "reason": answer.reason}
        self._link.request(
            "exec.approval.resolve", params | ({"extent": answer.extent} if answer.extent else {})
        )

    def _read(self) -> None:
        try:
            self._link.socket.read()
            for text in self._link.socket.messages():
                self._take(read_frame(text))
        except (ToolError, OSError) as error:
            self._error = error
            if self._asking is not None:
                self._asking.cancel()
