"""A turn as plain text or as JSON lines, for `clawkit agent` and the chat without a terminal."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from clawkit.agent import events
from clawkit.agent.events import Ended, Event, TurnEnded
from clawkit.call_summary import ending, has_failed, summarize_params, summarize_source
from clawkit.cli.console import GREY, YELLOW, echo, is_terminal
from clawkit.config.modelref import OPERATOR
from clawkit.text import human_time, one_line, printable

_SHOWN = 120
_MARK = "·"
"""The first character of a line about a tool call."""
_NOT_SHOWN = (events.CallBegun, events.CallWritten, events.RequestSent, events.ResultStored)
"""The most frequent events that plain output does not show."""


class TurnOutput(ABC):
    """Shows the events of a turn, until the output can no longer be written."""

    shows_subagents = False
    """Whether events of sub-agents are shown as well."""
    is_brief = False
    """Whether results of calls are not shown, so that events can omit them."""

    def __init__(self) -> None:
        self.failed: OSError | None = None
        """Why the output can no longer be written."""
        self.stop: Callable[[], object] = lambda: None
        """Called when writing fails."""

    def __call__(self, event: Event) -> None:
        if self.failed is None:
            try:
                self.show(event)
            except OSError as error:
                self.failed = error
                self.stop()

    @abstractmethod
    def show(self, event: Event) -> None: ...

    def finish(self, ended: TurnEnded) -> None:  # noqa: B027  # the events may be enough
        """Show the rest when the turn has ended."""

    def give_up(self, how: Ended, error: str = "") -> None:  # noqa: B027  # the caller reports it
        """Called when the turn cannot start or was aborted."""


class JsonOutput(TurnOutput):
    """One JSON line per event on standard output."""

    shows_subagents = True

    def __init__(self) -> None:
        super().__init__()
        self._is_live = is_terminal(sys.stdout)
        self._last: Event | None = None

    def give_up(self, how: Ended, error: str = "") -> None:
        # A finished turn may have active sub-agents.
        if not isinstance(self._last, TurnEnded) or self._last.how == "done":
            self(TurnEnded(how, error=error))

    def finish(self, ended: TurnEnded) -> None:
        # An exchange with another session may have followed: the last line is the answer.
        if self._last != ended:
            self(ended)

    def show(self, event: Event) -> None:
        self._last = event
        try:
            line = b"" if self._is_live else msgspec.json.encode(event)
        except UnicodeEncodeError:
            line = b""
        if not line:
            import json

            # ASCII only: lone surrogates can be escaped, and nothing can deceive the terminal.
            line = json.dumps(msgspec.to_builtins(event)).encode()
        echo(line)


class PlainOutput(TurnOutput):
    """Streams the answer to standard output, and the agent's activity to standard error."""

    is_brief = True

    def __init__(self) -> None:
        super().__init__()
        self._in_line = False
        self._streamed: list[str] = []
        """Pieces of this answer so far; they are void if the request is retried."""
        self._is_live = is_terminal(sys.stdout)
        self._calls: dict[str, str] = {}
        """The calls so far, for news about them."""
        self._held_back: list[str] | None = None
        """Failed calls, which the operator repeats in its answer; None for any other model."""
        self._is_exchange = False
        """Whether the turn answers another session: its answers are not for standard output."""

    def show(self, event: Event) -> None:
        """A gateway sends only those events that are shown here: see its `is_plain`."""
        if isinstance(event, _NOT_SHOWN):
            return
        if self._held_back and isinstance(event, events.AnswerStored):
            self._held_back = []
        match event:
            case events.TurnStarted(model=model):
                self._is_exchange = False
                self._held_back = [] if model == str(OPERATOR) else None
            case events.TextPiece() | events.AnswerStored() if self._is_exchange:
                pass
            case events.TextPiece(text=text):
                self._streamed.append(text)
                if self._is_live:
                    self._write(self._as_text(printable(text)))
            case events.AnswerStored(message=message):
                # A pipe gets only complete answers: not one that was restarted.
                if not self._is_live and message.text.strip():
                    self._write(message.text)
                elif not self._streamed:
                    self._write(self._as_text(printable(message.text)))
                self._end_line()
                self._streamed = []
            case events.AnswerRestarted(reason=reason, wait_s=wait_s, model=model):
                wait = f" in {human_time(wait_s)}" if wait_s >= 1 else ""
                is_shown = self._is_live and bool(self._streamed)
                void = "; the text above was discarded" if is_shown else ""
                # The reason starts with the model that failed.
                again = " again" if reason.startswith(f"{model} ") else ""
                asks = f"; asking {model}{again}{wait}" if model else ""
                self._note(f"{reason}{void}{asks}", YELLOW)
                self._streamed = []
            case events.ToolEvent(event=happened):
                self._show_call(happened)
            case events.MessageAdded(message=message, steering=is_steering) if message.source:
                if message.source.kind == "session" and not is_steering:
                    self._is_exchange = True
                titles, report = summarize_source(message)
                for title in titles:
                    self._note(title)
                for line in report.splitlines():
                    echo(printable(line), err=True)
            case events.Notice(text=text, level=level):
                self._note(text, GREY if level == "info" else YELLOW)
            case events.Compacted(tokens_before=before, tokens_after=after):
                self._note(f"the session was compacted: {before} → {after} tokens")
            case TurnEnded():
                # The operator was stopped before it could repeat them.
                held_back, self._held_back = self._held_back or (), None
                for words in held_back:
                    self._note(words, YELLOW)

    def _show_call(self, event: Mapping[str, Any]) -> None:
        kind, tool, id_ = event["type"], event["tool"], event.get("callId", "")
        if kind == "start":
            self._calls[id_] = f"{tool} {summarize_params(event.get('params'), _SHOWN)}"
            self._note(self._calls[id_])
        elif kind == "end" and has_failed(event):
            # Results of `process` say how its command ended; the call itself succeeded.
            error = event.get("error")
            words = f"{tool} failed: {error}" if error else f"{tool}: {ending(event)}"
            if self._held_back is None:
                self._note(words, YELLOW)
            else:
                self._held_back.append(words)
        elif kind == "notice":
            colour = YELLOW if has_failed(event) else GREY
            if how := ending(event):
                return self._note(f"{self._calls.get(id_, tool)}: {how}", colour)
            texts = (str(each.get("text", "")) for each in event.get("content", ()))
            self._note("\n".join(texts) or tool, colour)
        return None

    def finish(self, ended: TurnEnded) -> None:
        self._end_line()
        if ended.error:
            echo(f"clawkit: {printable(ended.error)}", err=True)

    def _note(self, text: str, colour: str = GREY) -> None:
        self._end_line()
        echo(f"{_MARK} {printable(one_line(text, 400))}", colour, err=True)

    def _as_text(self, text: str) -> str:
        """Indent lines of an answer that could be mistaken for lines about tool calls."""
        text = text.replace(f"\n{_MARK}", f"\n {_MARK}")
        return f" {text}" if text.startswith(_MARK) and not self._in_line else text

    def _write(self, text: str) -> None:
        if text:
            echo(text, nl=False)
            self._in_line = not text.endswith("\n")

    def _end_line(self) -> None:
        if self._in_line:
            echo()
            self._in_line = False
