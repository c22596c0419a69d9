"""Text and images as terminal output. Escape sequences in them never reach the terminal."""

from __future__ import annotations

import binascii
import io
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from clawkit.content import Image
from clawkit.terminal_text import wrap
from clawkit.text import human_size, one_line, printable

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
RENDER_ERRORS = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError),
    *(TypeError, ValueError),
)
"""What the rendering libraries raise for unexpected input."""
MAX_WIDTH = 120
"""Maximum columns of running text; longer lines are hard to read."""
MAX_MARKDOWN = 100_000
"""Longer blocks are shown unformatted."""
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
MIN_WIDTH = 20
_MAX_INDENT = 20
"""Maximum indent of continuation rows, unless the row sets its own."""
ImageProtocol = Literal["kitty", "iterm"]
MAX_SHOWN = 2 * 1024 * 1024
"""Larger images (in bytes) are not sent to the terminal."""
_ROWS = 16
_ROW_PX = 20
_CHUNK = 4096
_PNG = b"\x89PNG\r\n\x1a\n"


class PaintedRow(NamedTuple):
    text: str
    style: Style = ""
    column: int = 0
    """Indent of continuation rows; 0 for slightly more than the indent of the first row."""


class Glyphs:
    """Symbols, in ASCII if the terminal's encoding has no others."""

    def __init__(self, encoding: str | None) -> None:
        rich = (encoding or "").lower().replace("-", "") in ("utf8", "utf8sig")
        self.yes, self.no, self.note = ("✓", "✗", "·") if rich else ("ok", "failed:", "-")
        self.prompt, self.more = ("❯", "…") if rich else (">", "...")
        self.steps = {"completed": "☑", "in_progress": "▸", "pending": "☐"}
        if not rich:
            self.steps = {"completed": "[x]", "in_progress": "[>]", "pending": "[ ]"}
        self.wheel = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏" if rich else "|/-\\"


class Paint:
    def __init__(self, *, colours: bool = True, encoding: str | None = "utf-8") -> None:
        self.colours = colours
        self.glyphs = Glyphs(encoding)

    def __call__(self, text: str, style: Style = "") -> str:
        """Style text line by line; unprintable characters are escaped."""
        safe = printable(text.replace("\r\n", "\n")).expandtabs(4)
        if not style or not self.colours:
            return safe
        code = _CODES[style]
        return "\n".join(f"\x1b[{code}m{row}\x1b[0m" if row else row for row in safe.split("\n"))

    def markdown(self, text: str, width: int) -> str:
        """Format a block of Markdown; text that cannot be formatted is returned as plain text."""
        text = printable(text.replace("\r\n", "\n").strip("\n"))
        if len(text) > MAX_MARKDOWN:
            return self(text)
        from clawkit.ui.markdown_layout import lay_out

        lines = lay_out(text, self._console, max(20, min(width, MAX_WIDTH)))
        return "\n".join(map(self._line, lines)).strip("\n")

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

    def _line(self, line: list[Segment]) -> str:
        """Strip trailing spaces, which would be copied along with the text."""
        while line and not line[-1].text.strip(" "):
            line = line[:-1]
        end = [line[-1]._replace(text=line[-1].text.rstrip(" "))] if line else []
        return "".join(map(self._segment, (*line[:-1], *end)))

    def _segment(self, segment: Segment) -> str:
        if segment.control:
            return ""
        # Escape again: character references and encoded URLs have been decoded by now.
        text = printable(segment.text, "")
        style: Any = segment.style
        if not style or not self.colours:
            return text
        plain = style.update_link(None) if style.link else style
        return str(plain.render(text, color_system=self._console._color_system))


def fold_rows(rows: Iterable[PaintedRow], paint: Paint, columns: int) -> Iterator[str]:
    for row in rows:
        for line in printable(row.text.replace("\r\n", "\n")).split("\n"):
            for part in fold_line(line, columns, row.column):
                yield paint(part, row.style)


def fold_line(line: str, columns: int, column: int = 0) -> Iterator[str]:
    """Wrap one line; see `Row.column` for the indent of the continuation rows."""
    width = max(columns, MIN_WIDTH)
    start = len(line) - len(line.lstrip(" "))
    rest = column if 0 < column <= width // 2 else min(start + 2, _MAX_INDENT, width // 2)
    return (part.rstrip(" ") for part in wrap(line, width, "", " " * rest))


def fold_parts(parts: Iterable[PaintedRow], paint: Paint, columns: int) -> Iterator[str]:
    shown = [PaintedRow(printable(part.text, ""), part.style) for part in parts if part.text]
    styles: list[Style] = [part.style for part in shown for _ in f"{part.text} "]
    rest, at = "", 0
    for row in wrap(" ".join(part.text for part in shown), max(columns, MIN_WIDTH), "", "  "):
        text = row[len(rest) :]
        pairs = zip(text.rstrip(" "), styles[at:], strict=False)
        pieces = (
            paint("".join(char for char, _ in each), style)
            for style, each in groupby(pairs, lambda pair: pair[1])
        )
        yield rest + "".join(pieces)
        rest, at = "  ", at + len(text)


def find_protocol(env: Mapping[str, str]) -> ImageProtocol | None:
    """The image protocol of the terminal, by its environment; None inside tmux or screen."""
    if env.get("TMUX") or env.get("STY") or env.get("TERM", "").startswith(("screen", "tmux")):
        return None
    program = env.get("TERM_PROGRAM", "")
    if env.get("KITTY_WINDOW_ID") or env.get("TERM") in ("xterm-kitty", "xterm-ghostty"):
        return "kitty"
    return "iterm" if program in ("iTerm.app", "WezTerm") else None


def describe_image(image: Image) -> str:
    size = len(image.data) * 3 // 4 - image.data[-2:].count("=")
    return f"[{printable(one_line(image.mime_type, 60), '')}, {human_size(size)}]"


def draw_image(image: Image, protocol: ImageProtocol | None) -> str:
    """The escape sequence that shows an image; empty if it cannot be shown."""
    if protocol is None or len(image.data) > MAX_SHOWN * 4 // 3:
        return ""
    try:
        data = binascii.a2b_base64(image.data, strict_mode=True)
    except ValueError:
        return ""
    # Encode again, so that only base64 characters reach the terminal.
    text = b64encode(data).decode()
    if protocol == "iterm":
        return f"\x1b]1337;File=inline=1;size={len(data)};height={_rows(data)}:{text}\a\n"
    if not data.startswith(_PNG):
        return ""
    chunks = [text[at : at + _CHUNK] for at in range(0, len(text), _CHUNK)]
    parts = []
    for number, chunk in enumerate(chunks):
        how = f"a=T,f=100,q=2,r={_rows(data)}," if number == 0 else ""
        more = int(number < len(chunks) - 1)
        parts.append(f"\x1b_G{how}m={more};{chunk}\x1b\\")
    return "".join((*parts, "\n"))


def _rows(data: bytes) -> int:
    """Rows for an image: by its height if known, up to `_ROWS`."""
    if not data.startswith(_PNG) or len(data) < 24:
        return _ROWS
    height = int.from_bytes(data[20:24])
    return max(1, min(_ROWS, -(-height // _ROW_PX)))
