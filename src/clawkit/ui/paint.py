"""From text to what a terminal is sent. Nothing that is not ours acts on the terminal."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from clawkit.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.segment import Segment

Style = Literal["", "dim", "bold", "good", "warning", "error", "accent", "user"]
_CODES: Mapping[Style, str] = {
    "dim": "2",
    "bold": "1",
    "good": "32",
    "warning": "33",
    "error": "31",
    "accent": "36",
    "user": "1;36",
}
TOO_ODD = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError),
    *(TypeError, ValueError),
)
"""What the libraries that draw raise for what they do not expect."""
MAX_WIDTH = 120
"""Columns of running text; longer lines are hard to read."""
MAX_MARKDOWN = 100_000
"""Characters of one block that are laid out; what is longer is shown as it is."""
_THEME = {
    "markdown.h1": "bold underline",
    "markdown.h2": "bold underline",
    "markdown.h3": "bold",
    "markdown.code": "cyan",
    "markdown.code_block": "none",
    "markdown.link": "none",
    "markdown.link_url": "underline",
    "markdown.block_quote": "dim",
    "markdown.item.bullet": "bold",
    "markdown.item.number": "bold",
    "markdown.table.border": "dim",
    "markdown.table.header": "bold",
    "markdown.hr": "dim",
}


class Glyphs:
    """Marks, in plain letters where the terminal has no others."""

    def __init__(self, encoding: str | None) -> None:
        rich = (encoding or "").lower().replace("-", "") in ("utf8", "utf8sig")
        self.yes, self.no, self.note = ("✓", "✗", "·") if rich else ("ok", "failed:", "-")
        self.prompt, self.more = ("❯", "…") if rich else (">", "...")
        self.steps = {"completed": "☑", "in_progress": "▸", "pending": "☐"}
        if not rich:
            self.steps = {"completed": "[x]", "in_progress": "[>]", "pending": "[ ]"}
        self.wheel = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏" if rich else "|/-\\"


class Paint:
    """Text with colours, or without."""

    def __init__(self, *, colours: bool = True, encoding: str | None = "utf-8") -> None:
        self.colours = colours
        self.glyphs = Glyphs(encoding)

    def __call__(self, text: str, style: Style = "") -> str:
        """Lines made harmless, in one style each."""
        safe = printable(text.replace("\r\n", "\n")).expandtabs(4)
        if not style or not self.colours:
            return safe
        code = _CODES[style]
        return "\n".join(f"\x1b[{code}m{row}\x1b[0m" if row else row for row in safe.split("\n"))

    def markdown(self, text: str, width: int) -> str:
        """A block of Markdown, laid out. What cannot be laid out is shown as it is."""
        text = printable(text.replace("\r\n", "\n").strip("\n"))
        if len(text) > MAX_MARKDOWN:
            return self(text)
        from clawkit.ui.layout import lay_out

        lines = lay_out(text, self._console, max(20, min(width, MAX_WIDTH)))
        return self._lines(lines).strip("\n")

    @cached_property
    def _console(self) -> Console:
        from rich.console import Console
        from rich.theme import Theme

        return Console(
            file=io.StringIO(),
            force_terminal=True,
            color_system="standard" if self.colours else None,
            theme=Theme(_THEME),
            markup=False,
            emoji=False,
            highlight=False,
            legacy_windows=False,
            _environ={},
        )

    def _lines(self, lines: Iterable[list[Segment]]) -> str:
        return "\n".join("".join(map(self._segment, _stripped(line))) for line in lines)

    def _segment(self, segment: Segment) -> str:
        # Character references and escaped addresses may have become something else by now.
        text = printable(segment.text, "")
        style: Any = segment.style
        if not style or not self.colours or segment.control:
            return "" if segment.control else text
        plain = style.update_link(None) if style.link else style
        return str(plain.render(text, color_system=self._console._color_system))


def _stripped(line: list[Segment]) -> list[Segment]:
    """Without the blanks at the end, which would be in the way of copying."""
    kept = list(line)
    while kept and not kept[-1].text.strip(" "):
        kept.pop()
    if kept:
        last = kept[-1]
        kept[-1] = last._replace(text=last.text.rstrip(" "))
    return kept
