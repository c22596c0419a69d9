"""Notebooks as text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clawkit.fs.notebook import MAX_OUTPUT, notebook_text


def cell(kind: str, source: str | list[str], *outputs: Any, run: int | None = None) -> Any:
    return {
        "cell_type": kind,
        "metadata": {"tags": []},
        "source": source,
        "execution_count": run,
        "outputs": list(outputs),
    }


def text_of(*cells: Any) -> str | None:
    whole = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return notebook_text(json.dumps(whole).encode())


def test_cells_come_with_their_number_kind_and_run() -> None:
    text = text_of(
        cell("markdown", ["# Title\n", "words"]),
        cell("code", "print(1)\n", {"output_type": "stream", "text": ["1\n", "2\n"]}, run=5),
        cell("code", ""),
    )
    assert text == (
        "[cell 1, markdown]\n# Title\nwords\n\n"
        "[cell 2, code, run 5]\nprint(1)\n\n"
        "[output of cell 2]\n1\n2\n\n"
        "[cell 3, code]\n"
    )


def test_results_are_shown_as_text_and_pictures_are_named() -> None:
    shown = {"image/png": "A" * 4_096, "text/plain": ["<Figure>"], "text/html": "<b>no</b>"}
    text = text_of(cell("code", "plot()", {"output_type": "display_data", "data": shown}))
    assert text is not None
    assert text.endswith(
        "[output of cell 1]\n<Figure>\n\n[output of cell 1: image/png, about 3 KB, not shown]\n"
    )
    assert "AAAA" not in text
    assert "<b>" not in text


def test_errors_are_shown_without_colours() -> None:
    error = {
        "output_type": "error",
        "ename": "E",
        "evalue": "v",
        "traceback": ["\x1b[31mno\x1b[0m"],
    }
    assert "[output of cell 1]\nno\n" in str(text_of(cell("code", "x", error)))
    assert "E: v" in str(text_of(cell("code", "x", error | {"traceback": []})))


def test_a_long_output_is_cut_with_a_notice() -> None:
    text = str(text_of(cell("code", "x", {"output_type": "stream", "text": "y" * 3_000})))
    assert "y" * MAX_OUTPUT + f"\n[{3_000 - MAX_OUTPUT} more characters not shown]" in text
    assert "y" * (MAX_OUTPUT + 1) not in text


def test_a_source_is_never_cut() -> None:
    assert "z" * 50_000 in str(text_of(cell("code", "z" * 50_000)))


def test_a_notebook_may_begin_with_a_mark_and_have_no_cells() -> None:
    assert notebook_text(b'\xef\xbb\xbf{"cells": []}') == "[a notebook without cells]\n"


def test_files_that_are_not_notebooks_are_left_alone(subtests: pytest.Subtests) -> None:
    for data in [
        b"",
        b"text",
        b"[]",
        b"{}",
        b'{"cells": 3}',
        b'{"cells": [{"source": "x"}]}',
        b'{"cells": [{"cell_type": "code", "source": 3}]}',
        b'{"cells": [{"cell_type": "code", "source": "\xff"}]}',
        b'{"cells": ' + b"[" * 100_000,
        b'{"cells": [], "more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"cells": [',
    ]:
        with subtests.test(data=data):
            assert notebook_text(data) is None


def test_odd_parts_of_an_output_are_left_out() -> None:
    data = {"text/plain": {"no": "text"}, "application/json": [1]}
    assert text_of(cell("code", "x", {"output_type": "execute_result", "data": data})) == (
        "[cell 1, code]\nx\n"
    )
