"""Changes to a file that is wrong already: it may get better, never worse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clawkit.config.file_edit import change, patch_settings, set_setting, unset_setting
from clawkit.config.json5 import parse_path
from clawkit.errors import EditError

Edit = Callable[[str], str]


def setting(path: str, value: Any) -> Edit:
    return lambda text: set_setting(text, parse_path(path), value)


def unsetting(path: str) -> Edit:
    return lambda text: unset_setting(text, parse_path(path))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "clawkit.json5"


def test_a_file_with_errors_can_be_repaired_step_by_step(file: Path) -> None:
    file.write_text('{ tools: { exce: {}, exec: { ask: "x" } } }', encoding="utf-8")
    first = change(str(file), unsetting("tools.exce"))
    assert [issue.path for issue in first.issues] == ["tools.exec.ask"]
    assert change(str(file), setting("tools.exec.ask", "off")).issues == ()


def test_a_file_with_errors_gets_no_further_ones(file: Path) -> None:
    file.write_text("{ tools: { exce: {} } }", encoding="utf-8")
    with pytest.raises(EditError, match=r"gateway\.port"):
        change(str(file), setting("gateway.port", "x"))
    assert change(str(file), setting("gateway.port", 80)).written


class TestManyErrors:
    """More than are told at once, and more than have their lines looked up."""

    @pytest.fixture(params=[80, 400])
    def count(self, file: Path, request: pytest.FixtureRequest) -> int:
        wrong = {f"wrong{number}": 1 for number in range(request.param)}
        file.write_text(json.dumps({**wrong, "gateway": {"port": 1}}, indent=1), encoding="utf-8")
        return int(request.param)

    def test_they_can_be_repaired(self, file: Path, count: int) -> None:
        done = change(str(file), unsetting("wrong3"))
        assert done.written
        assert len(done.issues) == 51
        assert done.issues[-1].message == f"there are {count - 51} more errors after these"
        assert change(str(file), setting("gateway.port", 2)).written

    @pytest.mark.parametrize("gone", [(), ("wrong1",), ("wrong1", "wrong2", "wrong3")])
    def test_no_error_is_added_even_when_others_go(
        self, file: Path, count: int, gone: tuple[str, ...]
    ) -> None:
        before = file.read_text(encoding="utf-8")
        patch = {**dict.fromkeys(gone), "gateway": {"port": "x"}}
        with pytest.raises(EditError, match=r"gateway\.port: expected a whole number"):
            change(str(file), lambda text: patch_settings(text, patch))
        assert file.read_text(encoding="utf-8") == before


def test_many_new_errors_are_reported_in_few_lines(file: Path) -> None:
    file.write_text("{}", encoding="utf-8")
    with pytest.raises(EditError, match=r"tools\.deny\[5\].*\n  and 94 more\Z") as refusal:
        change(str(file), setting("tools.deny", [5] * 100))
    assert len(str(refusal.value).splitlines()) == 8
