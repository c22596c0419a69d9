"""From text and images to what a terminal is sent. Nothing that is not ours acts on it."""

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
MIN_WIDTH = 20
_DEEPEST = 20
"""Blanks that the rows in which a line goes on begin with, unless it says where."""
ImageProtocol = Literal["kitty", "iterm"]
MAX_SHOWN = 2 * 1024 * 1024
"""Bytes of a picture that are sent to a terminal."""
_ROWS = 16
_ROW_PX = 20
_CHUNK = 4096
_PNG = b"\x89PNG\r\n\x1a\n"


class Row(NamedTuple):
    text: str
    style: Style = ""
    column: int = 0
    """Where it goes on when it is folded; 0 for a little to the right of where it begins."""


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
        """Without the blanks at the end, which would be in the way of copying."""
        while line and not line[-1].text.strip(" "):
            line = line[:-1]
        end = [line[-1]._replace(text=line[-1].text.rstrip(" "))] if line else []
        return "".join(map(self._segment, (*line[:-1], *end)))

    def _segment(self, segment: Segment) -> str:
        if segment.control:
            return ""
        # Character references and escaped addresses may have become something else by now.
        text = printable(segment.text, "")
        style: Any = segment.style
        if not style or not self.colours:
            return text
        plain = style.update_link(None) if style.link else style
        return str(plain.render(text, color_system=self._console._color_system))


def fold_rows(rows: Iterable[Row], paint: Paint, columns: int) -> Iterator[str]:
    for row in rows:
        for line in printable(row.text.replace("\r\n", "\n")).split("\n"):
            for part in fold_line(line, columns, row.column):
                yield paint(part, row.style)


def fold_line(line: str, columns: int, column: int = 0) -> Iterator[str]:
    """One line; it goes on in that column, else a little to the right of where it begins."""
    width = max(columns, MIN_WIDTH)
    start = len(line) - len(line.lstrip(" "))
    rest = column if 0 < column <= width // 2 else min(start + 2, _DEEPEST, width // 2)
    return (part.rstrip(" ") for part in wrap(line, width, "", " " * rest))


def fold_parts(parts: Iterable[Row], paint: Paint, columns: int) -> Iterator[str]:
    shown = [Row(printable(part.text, ""), part.style) for part in parts if part.text]
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
    """What the terminal understands, as far as its names tell; nothing inside another one."""
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
    """What makes the terminal show a picture; empty when it cannot be shown."""
    if protocol is None or len(image.data) > MAX_SHOWN * 4 // 3:
        return ""
    try:
        data = binascii.a2b_base64(image.data, strict_mode=True)
    except ValueError:
        return ""
    # Written anew: what is sent to the terminal has no other letters than those of base64.
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
    """Rows for a picture: those of its own height where that is known and not too many."""
    if not data.startswith(_PNG) or len(data) < 24:
        return _ROWS
    height = int.from_bytes(data[20:24])
    return max(1, min(_ROWS, -(-height // _ROW_PX)))
