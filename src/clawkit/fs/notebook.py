"""Jupyter notebooks as text."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator

import msgspec

from clawkit.text import human_size, one_line

MAX_OUTPUT = 2_000
"""Characters of one output that are shown."""
MAX_BYTES = 16 * 1024 * 1024

Lines = str | list[str]


class _CellOutput(msgspec.Struct, frozen=True):
    output_type: str = ""
    text: Lines = ""
    data: dict[str, msgspec.Raw] = {}
    traceback: list[str] = []
    ename: str = ""
    evalue: str = ""


class _Cell(msgspec.Struct, frozen=True):
    cell_type: str
    source: Lines = ""
    execution_count: int | None = None
    outputs: list[_CellOutput] = []


class _Notebook(msgspec.Struct, frozen=True):
    cells: list[_Cell]


def notebook_text(data: bytes) -> str | None:
    """The cells of a notebook with their outputs, as text; None if it is not a notebook. Outputs
    are truncated; images in them are named, not shown."""
    try:
        notebook = msgspec.json.decode(data.removeprefix(BOM_UTF8), type=_Notebook)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not notebook.cells:
        return "[a notebook without cells]\n"
    parts = [part for number, cell in enumerate(notebook.cells, 1) for part in _show(number, cell)]
    return "\n\n".join(parts) + "\n"


def _show(number: int, cell: _Cell) -> Iterator[str]:
    run = "" if cell.execution_count is None else f", run {cell.execution_count}"
    source = _join(cell.source).rstrip("\n")
    yield f"[cell {number}, {one_line(cell.cell_type, 40)}{run}]" + (source and f"\n{source}")
    for output in cell.outputs:
        text = _join(output.text)
        if output.output_type == "error":
            text = "\n".join(output.traceback) or f"{output.ename}: {output.evalue}"
        elif "text/plain" in output.data:
            text += _decode(output.data["text/plain"])
        text = re.sub(r"\x1b\[[0-9;]*m", "", text).rstrip("\n")
        if (left := len(text) - MAX_OUTPUT) > 0:
            text = f"{text[:MAX_OUTPUT]}\n[{left} more characters not shown]"
        if text:
            yield f"[output of cell {number}]\n{text}"
        for kind, raw in output.data.items():
            if kind.startswith("image/"):
                size = human_size(len(bytes(raw)) * 3 // 4)
                yield f"[output of cell {number}: {one_line(kind, 40)}, about {size}, not shown]"


def _join(lines: Lines) -> str:
    return lines if isinstance(lines, str) else "".join(lines)


def _decode(raw: msgspec.Raw) -> str:
    try:
        return _join(msgspec.json.decode(raw, type=Lines))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
