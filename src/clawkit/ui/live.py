"""The part of the screen that changes: what is being thought, written and done at this moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawkit.text import human_time, one_line
from clawkit.ui.calls import Row
from clawkit.ui.folding import fold_rows
from clawkit.ui.paint import Paint

if TYPE_CHECKING:
    from clawkit.ui.watcher import Answer, Watcher

TAIL = 3
"""Rows of output of a running call, and of what is being thought."""
_MAX_LAID_OUT = 2_000
"""Characters of the open block that are laid out every time it grows."""


@dataclass
class Running:
    """A call that is being carried out."""

    tool: str
    words: str
    since: float
    size: str = ""
    tail: str = ""


def show_live(watcher: Watcher, paint: Paint, columns: int, rows: int, now: float) -> str:
    """The last rows of everything that is under way; empty when nothing is."""
    if watcher.began is None and not watcher.running:
        return ""
    lines = [
        *_thinking(watcher.answer, paint, columns),
        *_text(watcher, paint, columns),
        *_calls(watcher, paint, columns, now),
    ]
    if watcher.began is not None:
        lines.append(_wheel(watcher, paint, now))
    return "\n".join(lines[-max(1, rows) :])


def _thinking(answer: Answer, paint: Paint, columns: int) -> Iterator[str]:
    text = "".join(answer.thought[-200:])[-4_000:].strip()
    for line in text.split("\n")[-TAIL:] if text else ():
        yield paint(one_line(line, columns - 2), "dim")


def _text(watcher: Watcher, paint: Paint, columns: int) -> Iterator[str]:
    rest = watcher.answer.blocks.rest
    if not rest.strip():
        return
    if watcher.is_plain or len(rest) > _MAX_LAID_OUT:
        yield from fold_rows([Row(rest[-_MAX_LAID_OUT:].strip("\n"))], paint, columns)
        return
    # The wheel turns more often than text comes.
    if watcher.answer.laid_out[:2] != (rest, columns):
        watcher.answer.laid_out = (rest, columns, paint.markdown(rest, columns))
    yield from watcher.answer.laid_out[2].split("\n")


def _calls(watcher: Watcher, paint: Paint, columns: int, now: float) -> Iterator[str]:
    wheel = paint.glyphs.wheel[int(now * 10) % len(paint.glyphs.wheel)]
    for tool, chars in watcher.answer.writing.values():
        size = f"  {chars:,} characters" if chars > 1_000 else ""
        yield paint(one_line(f"{wheel} {tool} {paint.glyphs.more}{size}", columns - 1), "dim")
    for each in watcher.running.values():
        time = human_time(now - each.since) if now - each.since >= 1 else ""
        facts = "  ".join(filter(None, (time, each.size)))
        room = max(10, columns - 4 - len(each.tool) - len(facts))
        words = f"{wheel} {each.tool} {one_line(each.words, room)}  {facts}"
        yield paint(one_line(words, columns - 1), "accent")
        for line in each.tail.rstrip().split("\n")[-TAIL:] if each.tail.strip() else ():
            yield paint(f"  {one_line(line, columns - 3)}", "dim")


def _wheel(watcher: Watcher, paint: Paint, now: float) -> str:
    wheel = paint.glyphs.wheel[int(now * 10) % len(paint.glyphs.wheel)]
    took = human_time(now - (watcher.began or now)) if watcher.began else ""
    if watcher.is_asked:
        return paint(f"{wheel} waits for your answer {took}", "dim")
    word = "stopping" if watcher.is_stopping else "working"
    return paint(f"{wheel} {word} {took} · Esc interrupts", "dim")
