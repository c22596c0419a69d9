"""What servers send takes no more time than its size."""

from __future__ import annotations

import re
import time
import tracemalloc

import pytest

from clawkit.web.charset import decode
from clawkit.web.fetch import _depth, _in_mode


def measure(text: str) -> float:
    start = time.process_time()
    _in_mode(text, "text")
    return time.process_time() - start


@pytest.mark.parametrize("part", ["[", "[x](", " **a", " __a", " `a"])
def test_marks_are_removed_in_linear_time(part: str) -> None:
    usual = measure("a [link](x) **b** " * 8_000)
    assert measure((part * 150_000)[:150_000]) < 5 * usual + 0.05


def test_marks_are_removed() -> None:
    text = "# H\n> a **b c** __d__ `e_f` [g](h) ![i](j) [![k](l)](m) 2 ** 3 ** 4\n```py\nx"
    assert _in_mode(text, "text") == "H\na b c d e_f g i [k](m) 2 ** 3 ** 4\n\nx"
    assert _in_mode(text, "markdown") == text


def test_a_header_of_spaces_takes_no_time() -> None:
    start = time.process_time()
    assert decode(b"\xfc", f"text/html; charset={' ' * 16_000};") == "\u00fc"
    assert time.process_time() - start < 0.5
    assert decode(b"\xd0", "text/html ; Charset = ' koi8-r'") == "\u043f"


def test_long_texts_in_json_take_little_memory() -> None:
    re.purge()
    _depth('[""]')
    text = '"' + "a" * 1_000_000
    tracemalloc.start()
    assert _depth(f"[[{text}") == 2
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()
