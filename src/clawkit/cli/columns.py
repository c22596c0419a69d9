"""Text in columns: how wide it is on a terminal, and tables that fit."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Sequence

import click

from clawkit.cli.options import is_terminal


def width_of(text: str) -> int:
    """Columns of a terminal that text takes."""
    if text.isascii():
        return len(text)
    return len(text) + sum(unicodedata.east_asian_width(char) in "WF" for char in text)


def cut_to(text: str, columns: int) -> str:
    """The beginning of a text that fits, ended by `…` if that is not all."""
    if width_of(text) <= columns:
        return text
    while text and width_of(text) > columns - 1:
        text = text[: min(len(text) - 1, max(0, columns - 1))]
    return f"{text}…"


def columns() -> int | None:
    """Columns of the terminal that standard output is; None when nobody looks."""
    return shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None


def widths_of(lines: Sequence[Sequence[str]]) -> list[int]:
    """Columns that each column of a table takes."""
    return [max(map(width_of, cells)) for cells in zip(*lines, strict=True)]


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table with its head; columns that are empty in every row are left out."""
    kept = [at for at in range(len(head)) if any(row[at] for row in rows)]
    lines = [[line[at] for at in kept] for line in (head, *rows)]
    widths = widths_of(lines)
    for number, line in enumerate(lines):
        cells = (
            cell + " " * (width - width_of(cell)) for cell, width in zip(line, widths, strict=True)
        )
        text = "  ".join(cells).rstrip()
        click.echo(text if number else click.style(text, bold=True))
