"""Questions as people see them: nothing hidden, nothing that acts on a screen or pings anybody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from clawkit.core.approval import Question
from clawkit.text import printable

Surface = Literal["terminal", "plain", "markdown"]
"""A terminal, a chat that shows text as it is, and one that reads Markdown."""

MAX_SHOWN = 16_384
"""Characters of a command; of a longer one its beginning and its end."""
MANY_LINES = 30
"""More than this push the beginning of a command out of sight."""
MIN_WIDTH = 20
_BAR = "  | "
"""Begins every row of a command, so that none of it can pass for words of ours."""
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)
"""What takes no ink although it counts as a letter or a mark."""
_GAP = re.compile(r"[ \t\n]{40,}")
_NAME = re.compile(r"[^\s;|&()<>'\"]+")
_ALIKE = re.compile("[\u0370-\u058f\u13a0-\u13ff\uff21-\uff5a\U0001d400-\U0001d7ff]")
"""Letters of other alphabets that look like Latin ones."""
_LETTER = re.compile("[A-Za-z]")
_WORDS = 3


def show_command(text: str, *, keep: str = "\n\t") -> str:
    """A command with whatever cannot be seen spelled out, cut in the middle when it is long."""
    if len(text) > MAX_SHOWN:
        half = MAX_SHOWN // 2
        cut = f"[… {len(text) - 2 * half:,} characters in between are not shown …]"
        parts = show_command(text[:half], keep=keep), cut, show_command(text[-half:], keep=keep)
        return ("\n" if "\n" in keep else " ").join(parts)
    shown = printable(text, keep)
    return shown if shown.isascii() else _BLANK.sub(_spell, shown)


def _spell(found: re.Match[str]) -> str:
    return f"\\u{{{ord(found[0]):x}}}"


def warnings_about(command: str) -> Iterator[str]:
    """What is odd about the looks of a command."""
    yield from _odd_names(command)
    if show_command(command[:MAX_SHOWN]) != command[:MAX_SHOWN]:
        yield "it has characters that cannot be seen; they are spelled out as \\u{…}"
    if _GAP.search(command):
        yield "it has a long stretch of blanks, behind which something may be out of sight"
    if (lines := command.count("\n") + 1) > MANY_LINES:
        yield f"it has {lines:,} lines; look at the first ones too"
    if len(command) > MAX_SHOWN:
        yield f"it is {len(command):,} characters long; only its beginning and end are shown"


def _odd_names(command: str) -> Iterator[str]:
    """Words with letters of another alphabet that pass for plain ones."""
    command = command[:MAX_SHOWN]
    if command.isascii():
        return
    first, *others = _NAME.findall(command) or [""]
    odd = [word for word in others if _ALIKE.search(word) and _LETTER.search(word)]
    if not first.isascii():
        yield f"the program's name has letters that only look like plain ones: {_spell_out(first)}"
    if odd:
        shown = ", ".join(map(_spell_out, list(dict.fromkeys(odd))[:_WORDS]))
        yield f"it has letters that only look like plain ones: {shown}"


def _spell_out(word: str) -> str:
    return "".join(f"\\u{{{ord(char):x}}}" if ord(char) > 126 else char for char in word[:80])


def render(question: Question, surface: Surface = "terminal", *, width: int | None = None) -> str:
    """All a person needs to decide, as plain lines.

    With the width of a terminal, every row is begun here: no part of a long line can pass for a
    line of its own.
    """
    facts = [f"{label}: {_line(text, surface)}" for label, text in _facts(question) if text]
    title, command = _line(question.title, surface), show_command(question.command)
    if width is None:
        fenced = [_fence(command, surface)] if command else []
        return "\n".join([title, *fenced, *facts])
    width = max(width, MIN_WIDTH)
    if command:
        # The title says nothing but the command.
        title = "Run this command?"
    rows = [
        *fold(title, width),
        *(row for line in command.split("\n") if command for row in fold(line, width, _BAR)),
        *(row for fact in facts for row in fold(fact, width, "  ", "      ")),
    ]
    return "\n".join(rows)


def _facts(question: Question) -> Iterator[tuple[str, str]]:
    # This machine goes without saying.
    elsewhere = question.host if question.host != "gateway" else ""
    yield "where", " on ".join(each for each in (question.cwd, elsewhere) if each)
    yield "agent", _who(question)
    yield "why", question.description
    yield "asked by", question.asked_by
    for note, times in _new_notes(question).items():
        yield "part", note if times == 1 else f"{note} ({times:,} times)"
    for warning in warnings_about(question.command):
        yield "look out", warning
    for each in question.lasting:
        yield f"always ({each.extent})", each.words


def _new_notes(question: Question) -> dict[str, int]:
    """The notes that say more than why it is asked, and how often each is there."""
    why = question.description
    found: dict[str, int] = {}
    for note in question.notes:
        start, _, rest = note.partition(": ")
        if start != "not understood" or rest not in why:
            found[note] = found.get(note, 0) + 1
    is_single = len(found) == 1 and next(iter(found)).endswith(f": {why}")
    return {} if is_single else found


def _who(question: Question) -> str:
    same = question.session in ("", "main", question.agent)
    return question.agent if same else f"{question.agent}, session {question.session}"


def _line(text: str, surface: Surface) -> str:
    return _quiet(show_command(text, keep=""), surface)


def _fence(text: str, surface: Surface) -> str:
    if surface == "terminal":
        return "\n".join(f"    {line}" for line in text.split("\n"))
    if surface == "plain":
        return _quiet(text, surface)
    ticks = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, ticks + 1)
    return f"{fence}\n{text}\n{fence}"


def fold(text: str, width: int, first: str = "", rest: str | None = None) -> Iterator[str]:
    """A line as rows of a terminal, the last column of which stays empty."""
    text = text.expandtabs(4)
    rest = first if rest is None else rest
    start, room = first, width - 1 - len(first)
    while len(text) > room or not text.isascii():
        end = _end_of_row(text, room)
        yield start + text[:end]
        text, start, room = text[end:], rest, width - 1 - len(rest)
        if not text:
            return
    yield start + text


def _end_of_row(text: str, room: int) -> int:
    """How much of a text fits; where possible it ends behind a blank."""
    end = len(text) if text.isascii() else _count_fitting(text, room)
    end = min(end, room)
    if end >= len(text):
        return len(text)
    blank = text.rfind(" ", end // 2, end)
    return blank + 1 if blank > 0 else end


def _count_fitting(text: str, room: int) -> int:
    # A megabyte of tables that only text of other alphabets needs.
    import unicodedata

    for count, char in enumerate(text):
        room -= 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if room < 0:
            return max(count, 1)
    return len(text)


def _quiet(text: str, surface: Surface) -> str:
    """Without what a chat would take for a mention, a link or markup."""
    if surface == "terminal":
        return text
    text = text.replace("@", "\\u{40}")
    return re.sub(r"([\\`*_{}\[\]<>#|~])", r"\\\1", text) if surface == "markdown" else text
