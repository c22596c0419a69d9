"""Formats Markdown for a terminal without losing any of the text."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown
from rich.segment import Segment
from rich.syntax import Syntax
from rich.text import Text

from clawkit.ui.paint import RENDER_ERRORS

MAX_COLOURED = 20_000
MAX_CELLS = 2_000
"""Tables with possibly more cells are shown as plain text."""


def lay_out(text: str, console: Console, width: int) -> list[list[Segment]]:
    options = console.options.update(width=width)
    try:
        return console.render_lines(_LayoutPage(_parse(text)), options, pad=False)
    except RENDER_ERRORS:
        return console.render_lines(Text(text), options, pad=False)


@cache
def _parser(with_tables: bool) -> MarkdownIt:
    # Shown as text: HTML, images and reference definitions, which would otherwise disappear, and
    # bare URLs, which would be shown twice.
    parser = MarkdownIt("commonmark", {"html": False})
    parser.enable(["strikethrough", "table"] if with_tables else ["strikethrough"])
    return parser.disable(["image", "reference", "autolink"])


def _parse(text: str) -> list[Token]:
    # Table rows are padded to the width of the header, so few characters can make many cells.
    pipes = [line.count("|") for line in text.split("\n")]
    tokens = _parser((max(pipes) + 1) * len(pipes) <= MAX_CELLS).parse(text)
    for token in tokens:
        for child in token.children or ():
            if child.type == "softbreak":
                # Keep line breaks as written.
                child.type = "hardbreak"
    return tokens


class _Heading(Heading):
    LEVEL_ALIGN = {}  # noqa: RUF012  # align all levels left


class _Code(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip("\n")
        name = self.lexer_name if len(code) <= MAX_COLOURED else "text"
        yield Syntax(
            code,
            name,
            theme="ansi_dark",
            background_color="default",
            word_wrap=True,
            padding=(0, 0, 0, 2),
        )


class _LayoutPage(Markdown):
    elements = {  # noqa: RUF012
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
    }

    def __init__(self, tokens: Iterable[Token]) -> None:
        super().__init__("", hyperlinks=False)
        self.parsed = list(tokens)
