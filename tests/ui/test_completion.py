"""What a line may go on with."""

from __future__ import annotations

from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from clawkit.ui.line_input import LineCompleter, Words


class Known:
    def __init__(self, workspace: str) -> None:
        self.workspace = workspace

    def words_after(self, name: str) -> Words:
        if not name:
            return [("model", "use another"), ("help", ""), ("remodel", "")]
        return [("fake/one", ""), ("fake/two", ""), ("bad\x1bname", "")] if name == "model" else ()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/mo", ["model", "remodel"]),
        ("/", ["model", "help", "remodel"]),
        ("/model two", ["fake/two"]),
        ("  /model two", ["fake/two"]),
        ("/model ", ["fake/one", "fake/two"]),
        ("/other ", []),
        ("hello", []),
        ("a\n/mo", []),
        ("see @s", ["src/"]),
        ("see @src/", ["main.py"]),
        ("@", ["a.txt", "src/"]),
        ("@.h", [".hidden"]),
        ("mail@s", []),
        ("@gone/x", []),
        ("/image a", ["a.txt"]),
    ],
)
def test_a_line_is_completed(workspace: Path, line: str, words: list[str]) -> None:
    (workspace / ".hidden").touch()
    (workspace / "bad\x1bname").touch()
    completer = LineCompleter()
    assert list(completer.get_completions(Document(line), CompleteEvent())) == []
    completer.source = Known(str(workspace))
    found = completer.get_completions(Document(line), CompleteEvent())
    assert [each.text for each in found] == words
