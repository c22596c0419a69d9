"""Tables in text files, and that each of them is read as a whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clawkit.word_tables import read_groups, read_words

SRC = Path(__file__).parent.parent / "src" / "clawkit"
TABLES = sorted(path for path in SRC.rglob("*.txt") if path.name != "reference-keys.txt")


def test_lines_belong_to_the_group_above_them(tmp_path: Path) -> None:
    text = "# Said first:\n\nfirst group:\n  a b\n  c\n\nempty:\n\nx: y:\n  # d\n"
    (tmp_path / "table.txt").write_text(text, encoding="utf-8")
    module = str(tmp_path / "module.py")
    assert read_groups(module, "table.txt") == {
        "first group": ["a b", "c"],
        "empty": [],
        "x: y": ["# d"],
    }
    assert read_words(module, "table.txt")["first group"] == ["a", "b", "c"]


@pytest.mark.parametrize("text", ["  a\nname:\n", "name:\n  a\nname:\n  b\n", "name\n  a\n"])
def test_an_invalid_table_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "table.txt").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"table\.txt"):
        read_groups(str(tmp_path / "module.py"), "table.txt")


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.name)
def test_every_word_of_a_table_is_read(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    entries = [line for line in lines if line.startswith("  ")]
    found = read_groups(str(path), path.name)
    assert [line.strip() for line in entries] == [
        each for group in found.values() for each in group
    ]
    assert all(re.match(r"#|  \S|$|\S.*:$", line) for line in lines)
    assert len(TABLES) >= 7
