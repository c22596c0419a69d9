"""Shows a turn: finished lines above, work in progress in the live area below."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from clawkit.agent import events
from clawkit.call_summary import MAX_CHARS, ending, has_failed, summarize_params, summarize_source
from clawkit.content import Image, User
from clawkit.text import human_time, one_line
from clawkit.ui import calls
from clawkit.ui import paint as painting
from clawkit.ui.markdown import Blocks
from clawkit.ui.paint import Paint, PaintedRow, Style

_CODES = re.compile(r"\x1b\[[0-9;]*m")

Kind = Literal["said", "text", "call", "note"]
_PLAIN_MODEL = "clawkit/operator"
_THOUGHT = 100
TAIL = 3
"""Rows shown of the output of a running call, and of the thinking."""
_MAX_LAID_OUT = 2_000
"""A longer open block is shown as plain text, because it is formatted again as it grows."""


class ScreenOutput(Protocol):
    """The terminal: prints finished lines, and redraws the live area on `refresh`."""

    @property
    def columns(self) -> int: ...
    def print(self, text: str) -> None: ...
    def refresh(self) -> None: ...


@dataclass
class AnswerText:
    blocks: Blocks = field(default_factory=Blocks)
    is_streamed: bool = False
    is_shown: bool = False
    """Whether part of it has been printed."""
    laid_out: tuple[str, int, str] = ("", 0, "")
    """Cache: the open block, the columns, and the formatted text."""
    thought: list[str] = field(default_factory=list)
    thinking_since: float = 0.0
    writing: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Calls that the model is writing: tool and number of characters so far."""


@dataclass
class RunningCall:
    tool: str
    words: str
    since: float
    params: Any = None
    size: str = ""
    tail: str = ""
    paused: float | None = None

    def elapsed(self, now: float) -> float:
        """Elapsed seconds, without the time spent waiting for approval."""
        return (now if self.paused is None else self.paused) - self.since


def _tail(text: str, columns: int) -> list[str]:
    lines = text.strip().split("\n")[-TAIL:]
    return [one_line(line, columns) for line in lines] if text.strip() else []


class TurnDisplay:
    def __init__(
        self,
        screen: ScreenOutput,
        paint: Paint,
        *,
        protocol: painting.ImageProtocol | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.paint = paint
        self.show_thinking = False
        self._screen = screen
        self._protocol = protocol
        self._clock = clock
        self._last: Kind | None = None
        self.answer = AnswerText()
        self.running: dict[str, RunningCall] = {}
        self._call_params: dict[str, Any] = {}
        """Parameters of the calls in the last answer; a refused call never starts."""
        self._background: dict[str, str] = {}
        """Summaries of calls that continue in the background."""
        self._model = ""
        self._held_back: list[str] = []
        """Failed calls; the operator repeats them in its answer, if it answers."""
        self.is_plain = False
        """Whether the model is the operator, whose answers are not Markdown."""
        self.is_stopping = False
        self.is_asked = False
        self.began: float | None = None
        """When the turn began; None between turns."""

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.TurnStarted(model=model):
                self.began, self.is_plain = self._clock(), model == _PLAIN_MODEL
                self.answer, self.running, self._call_params = AnswerText(), {}, {}
                self._held_back, self.is_stopping = [], False
            case events.RequestSent(model=model):
                self._model, self._held_back = model, []
            case events.MessageAdded(message=message):
                self.show_said(message)
            case events.TextPiece(text=text):
                self._end_thinking()
                self.answer.is_streamed = True
                self._show_blocks(self.answer.blocks.feed(text))
            case events.ThinkingPiece(text=text):
                self.answer.thinking_since = self.answer.thinking_since or self._clock()
                self.answer.thought.append(text)
            case events.CallBegun(number=number, tool=tool):
                self._end_text()
                self.answer.writing[number] = (tool, 0)
            case events.CallWritten(number=number, chars=chars):
                tool = self.answer.writing.get(number, ("", 0))[0]
                self.answer.writing[number] = (tool, chars)
            case events.AnswerStored(message=message):
                if not self.answer.is_streamed:
                    self._show_blocks(self.answer.blocks.feed(message.text))
                self._end_text()
                self.answer = AnswerText()
                self._call_params = {each.id: each.arguments for each in message.calls}
            case events.AnswerRestarted():
                self._void(event)
            case events.ToolEvent(event=happened):
                self.show_call(happened)
            case events.ResultStored(message=message):
                for block in message.content:
                    if isinstance(block, Image):
                        self.show_image(block)
            case events.Notice(text=text, level=level):
                self.note(text, "dim" if level == "info" else "warning")
            case events.Compacted(tokens_before=before, tokens_after=after):
                self.note(f"the conversation was summarized: {before:,} → {after:,} tokens")
            case events.TurnEnded():
                self._end(event)
        self._screen.refresh()

    def live(self, columns: int, rows: int) -> str:
        """The live area: the last rows of everything in progress; empty if nothing is."""
        if self.began is None and not self.running:
            return ""
        now, turns = self._clock(), self.paint.glyphs.wheel
        wheel = turns[int(now * 10) % len(turns)]
        lines: list[str] = []
        # Below a question, free text could imitate another one.
        if not self.is_asked:
            thought = "".join(self.answer.thought[-200:])[-4_000:]
            lines += [self.paint(line, "dim") for line in _tail(thought, columns - 2)]
            lines += self._live_text(columns)
        lines += self._live_calls(columns, now, wheel)
        if self.began is not None:
            took = human_time(now - self.began)
            word = "stopping" if self.is_stopping else "working"
            said = f"{word} {took} · Esc interrupts"
            said = "waiting for your answer" if self.is_asked else said
            lines.append(self.paint(f"{wheel} {said}", "dim"))
        return "\n".join(lines[-max(1, rows) :])

    def _live_text(self, columns: int) -> Iterable[str]:
        answer, rest = self.answer, self.answer.blocks.rest
        if not rest.strip():
            return ()
        if self.is_plain or len(rest) > _MAX_LAID_OUT:
            return painting.fold_rows(
                [PaintedRow(rest[-_MAX_LAID_OUT:].strip("\n"))], self.paint, columns
            )
        # Cached: the spinner redraws more often than text arrives.
        if answer.laid_out[:2] != (rest, columns):
            answer.laid_out = (rest, columns, self.paint.markdown(rest, columns))
        return answer.laid_out[2].split("\n")

    def _live_calls(self, columns: int, now: float, wheel: str) -> Iterator[str]:
        paint = self.paint
        for tool, chars in self.answer.writing.values():
            size = f"  {chars:,} characters" if chars > 1_000 else ""
            yield paint(one_line(f"{wheel} {tool} {paint.glyphs.more}{size}", columns - 1), "dim")
        for each in self.running.values():
            elapsed = each.elapsed(now)
            time = human_time(elapsed) if elapsed >= 1 else ""
            facts = "  ".join(filter(None, (time, each.size)))
            room = max(10, columns - 4 - len(each.tool) - len(facts))
            words = f"{wheel} {each.tool} {one_line(each.words, room)}  {facts}"
            yield paint(one_line(words, columns - 1), "accent")
            if not self.is_asked:
                yield from (paint(f"  {line}", "dim") for line in _tail(each.tail, columns - 3))

    def emit(self, kind: Kind, text: str) -> None:
        """Print finished lines, with a blank line between different kinds."""
        gap = "" if kind == self._last and kind in ("call", "note") else "\n"
        self._last = kind
        self._screen.print(f"{gap}{text}\n")

    def rows(self, kind: Kind, rows: list[PaintedRow]) -> None:
        """Print rows, wrapped at word boundaries."""
        if rows:
            self.emit(kind, "\n".join(painting.fold_rows(rows, self.paint, self._screen.columns)))

    def note(self, text: str, style: Style = "dim") -> None:
        self.rows("note", [PaintedRow(f"{self.paint.glyphs.note} {one_line(text, 500)}", style)])

    def show_said(self, message: User) -> None:
        if message.source is not None:
            titles, report = summarize_source(message)
            for title in titles:
                self.note(title, "dim")
            self.show_text(report)
            return
        pictures = [
            painting.describe_image(each) for each in message.content if isinstance(each, Image)
        ]
        self.show_typed(message.text.strip("\n"), "user", pictures)

    def show_typed(self, text: str, style: Style, pictures: Iterable[str] = ()) -> None:
        """Show typed text; of a long one, only the start."""
        lines = [*(calls.head_lines(text, self.paint) if text else ()), *pictures] or [""]
        mark = f"{self.paint.glyphs.prompt} "
        rows = [
            PaintedRow(f"{'  ' if at else mark}{line}", style, 2) for at, line in enumerate(lines)
        ]
        self.rows("said", rows)

    def show_text(self, text: str) -> None:
        if text.strip():
            columns = self._screen.columns
            if self.is_plain:
                rows: Iterable[str] = painting.fold_rows(
                    [PaintedRow(text.strip("\n"))], self.paint, columns
                )
            else:
                rows = self.paint.markdown(text, columns).split("\n")
            self.emit("text", "\n".join(map(self._as_text, rows)))

    def _as_text(self, row: str) -> str:
        """Indent a row of an answer that could be mistaken for ours or for the person's."""
        glyphs = self.paint.glyphs
        marks = (glyphs.yes, glyphs.no, glyphs.note, glyphs.prompt)
        return f" {row}" if _CODES.sub("", row).startswith(marks) else row

    def show_image(self, image: Image) -> None:
        words = self.paint(f"  {painting.describe_image(image)}", "dim")
        self.emit("call", f"{painting.draw_image(image, self._protocol)}{words}")

    def _show_blocks(self, blocks: list[str]) -> None:
        for block in blocks:
            self.answer.is_shown = self.answer.is_shown or bool(block.strip())
            self.show_text(block)

    def _end_text(self) -> None:
        self._end_thinking()
        self._show_blocks(self.answer.blocks.finish())

    def _end_thinking(self) -> None:
        text = "".join(self.answer.thought).strip()
        if not text:
            return
        took = calls.since(self._clock() - self.answer.thinking_since)
        self.answer.thought, self.answer.thinking_since = [], 0.0
        if self.show_thinking:
            self.rows("text", [PaintedRow(text, "dim")])
        else:
            start = f"thought {took}: " if took else "thought: "
            self.note(start + one_line(text, _THOUGHT))

    def _void(self, event: events.AnswerRestarted) -> None:
        """Printed text cannot be removed, so a note says that it was discarded."""
        wait = f" in {human_time(event.wait_s)}" if event.wait_s >= 1 else ""
        void = "the text above was discarded; " if self.answer.is_shown else ""
        again = " again" if event.model == self._model else ""
        asks = f"asking {event.model}{again}{wait}" if event.model else ""
        self.answer, self._model = AnswerText(), event.model
        said = f"{event.reason}; {void}{asks}"
        self.note(said.removesuffix("; "), "warning")

    def show_call(self, event: Mapping[str, Any]) -> None:
        call_id, tool = str(event.get("callId", "")), str(event.get("tool", ""))
        kind = event.get("type")
        if kind == "start":
            params = event.get("params")
            self.running[call_id] = RunningCall(
                tool, summarize_params(params), self._clock(), params
            )
        elif kind == "update" and call_id in self.running:
            self.running[call_id].size, self.running[call_id].tail = calls.progress(event)
        elif kind == "end":
            began = self.running.pop(call_id, None)
            words = began.words if began else summarize_params(self._call_params.get(call_id))
            seconds = calls.duration_s(event)
            if seconds is None:
                seconds = began.elapsed(self._clock()) if began else 0.0
            if (event.get("details") or {}).get("status") == "running":
                self._background[call_id] = words
            is_repeated = self.is_plain and tool == "exec"
            params = began.params if began else None
            more = () if is_repeated else calls.more_of(event, self.paint, params)
            how = calls.outcome(event)
            if self.is_plain and self.began is not None and event.get("isError"):
                # The operator's answer gives the reason.
                self._held_back.append(f"{tool} failed: {how}")
                how = ""
            said = (calls.since(seconds), how)
            self._emit_call(tool, words, said, more, failed=has_failed(event))
        elif kind == "notice":
            self._show_notice(call_id, tool, event)
        self._screen.refresh()

    def _show_notice(self, call_id: str, tool: str, event: Mapping[str, Any]) -> None:
        """News about a call that has already returned, such as the end of a background command."""
        how, details = ending(event), event.get("details") or {}
        text = calls.text_of(event)
        if not how:
            lines = (text.strip() or tool).replace("\n", "\n  ")
            self.rows("note", [PaintedRow(f"{self.paint.glyphs.note} {lines}", "dim")])
            return
        words = self._background.pop(call_id, "")
        took = calls.since(calls.duration_s(event) or 0.0)
        name = one_line(str(details.get("sessionId") or tool), 40)
        tail = str(details.get("tail") or details.get("aggregated") or "")
        rows = calls.tail_rows(tail, self.paint)
        self._emit_call(name, words, (took, how), rows, failed=has_failed(event))

    def _emit_call(
        self,
        tool: str,
        words: str,
        facts: Iterable[str],
        more: Iterable[PaintedRow] = (),
        *,
        failed: bool,
    ) -> None:
        glyphs, columns = self.paint.glyphs, self._screen.columns
        line = (
            PaintedRow(glyphs.no, "error") if failed else PaintedRow(glyphs.yes, "good"),
            PaintedRow(tool, "bold"),
            PaintedRow(one_line(words, MAX_CHARS)),
            PaintedRow("  ".join(filter(None, facts)), "warning" if failed else "dim"),
        )
        rows = (
            *painting.fold_parts(line, self.paint, columns),
            *painting.fold_rows(more, self.paint, columns),
        )
        self.emit("call", "\n".join(rows))

    def pause(self, call_id: str, *, is_asked: bool) -> None:
        """Stop or restart the clock of a call while the person is asked about it."""
        call, now = self.running.get(call_id), self._clock()
        if call is not None and is_asked:
            call.paused = now
        elif call is not None and call.paused is not None:
            call.since, call.paused = call.since + now - call.paused, None

    def end_running(self) -> None:
        """Mark all running calls as interrupted."""
        running, self.running = self.running, {}
        for each in running.values():
            took = calls.since(each.elapsed(self._clock()))
            self._emit_call(each.tool, each.words, (took, "interrupted"), failed=True)

    def _end(self, event: events.TurnEnded) -> None:
        self._end_text()
        self.end_running()
        self.answer, self.began = AnswerText(), None
        for each in self._held_back:
            self.note(each, "warning")
        if event.how == "aborted":
            self.note("interrupted", "warning")
        elif event.error:
            self.note(event.error, "error")
