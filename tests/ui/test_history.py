"""What was typed before."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from clawkit.ui.line_input import MAX_KEPT, InputHistory


def keep(file: Path) -> InputHistory:
    history = InputHistory(str(file))
    history.begin(str)
    return history


def test_lines_are_kept_whole_and_the_newest_comes_first(tmp_path: Path) -> None:
    file = tmp_path / "home" / "history"
    history = keep(file)
    for line in ("one", "two\nlines \udcff", " secret", "", "x" * 100_000):
        history.store_string(line)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(InputHistory(str(file)).load_history_strings()) == ["two\nlines \udcff", "one"]


def test_secrets_are_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "history"
    history = InputHistory(str(file))
    # Typed while it is still being found out which secrets there are.
    history.store_string("early hunter2")
    assert not file.exists()
    history.begin(lambda text: text.replace("hunter2", "***"))
    history.store_string("late hunter2")
    assert file.read_text(encoding="utf-8") == '"early ***"\n"late ***"\n'


def test_a_file_that_is_not_a_history_is_ignored(tmp_path: Path) -> None:
    file = tmp_path / "history"
    file.write_bytes(b'\xff\xfe\n{"a": 1}\nnot json\n"good"\n3\n')
    assert list(InputHistory(str(file)).load_history_strings()) == ["good"]
    os.mkdir(tmp_path / "folder")
    other = keep(tmp_path / "folder")
    other.store_string("x")
    assert list(other.load_history_strings()) == []
    (tmp_path / "link").symlink_to(file)
    keep(tmp_path / "link").store_string("elsewhere")
    assert "elsewhere" not in file.read_text(encoding="utf-8", errors="replace")


def test_lines_are_not_added_to_a_file_that_others_can_write(tmp_path: Path) -> None:
    file = tmp_path / "history"
    file.write_text('"planted"\n', encoding="utf-8")
    file.chmod(0o622)
    keep(file).store_string("x")
    assert file.read_text(encoding="utf-8") == '"planted"\n'
    assert list(InputHistory(str(file)).load_history_strings()) == []


def test_the_size_of_the_history_is_limited(tmp_path: Path) -> None:
    file = tmp_path / "history"
    file.write_text("".join(f'"{n}"\n' for n in range(MAX_KEPT + 50)), encoding="utf-8")
    assert next(iter(InputHistory(str(file)).load_history_strings())) == str(MAX_KEPT + 49)
    assert len(file.read_text(encoding="utf-8").splitlines()) == MAX_KEPT // 2
