"""What may be told of the files that a search comes upon."""

from __future__ import annotations

import os
import time
from pathlib import Path

from clawkit.fs.protocols import Start, admit_all
from clawkit.fs.search.results import ResultFilter


def make_gate(place: Path, *, one_name: bool = True) -> ResultFilter:
    start = Start(os.open(place, os.O_PATH), str(place), "")
    return ResultFilter(start, str(place), accepts=None, admit=admit_all, one_name=one_name)


def test_files_that_may_have_had_several_names_are_left_out(tmp_path: Path) -> None:
    for name in ("still", "swapped", "clean", "twice", "gone"):
        (tmp_path / name).write_text("x")
    (tmp_path / "again").hardlink_to(tmp_path / "twice")
    time.sleep(0.02)
    gate = make_gate(tmp_path)
    time.sleep(0.02)
    (tmp_path / "clean").rename(tmp_path / "swapped")
    (tmp_path / "gone").unlink()
    (tmp_path / "folder").mkdir()
    assert not gate.leaves_out("still")
    for name in ("swapped", "twice", "again", "gone", "folder"):
        assert gate.leaves_out(name), name
    assert gate.admits("still")
    assert not gate.admits("swapped")


def test_where_several_names_are_allowed_nothing_is_left_out(tmp_path: Path) -> None:
    gate = make_gate(tmp_path, one_name=False)
    (tmp_path / "f").write_text("x")
    (tmp_path / "g").hardlink_to(tmp_path / "f")
    assert not gate.leaves_out("f")
