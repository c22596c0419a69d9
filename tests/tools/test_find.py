"""find: files by the pattern of their names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Effect, resolve
from clawkit.process import landlock
from clawkit.testing import check_tool, open_kit
from clawkit.tools.find import TOOL, Params


async def find(place: Path, *, config: dict[str, Any] | None = None, **params: Any) -> Result:
    async with open_kit(place, config=config) as kit:
        return await kit.call("find", params)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "ws"
    for path in ("a.py", "src/b.py", "src/x/c.py", "src/x/[id].tsx", ".env", "old/d.py"):
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).touch()
    (place / ".ignore").write_text("old\n")
    return place


async def test_paths_are_in_order_one_per_line(place: Path) -> None:
    result = await find(place, pattern="*.py")
    assert result.as_text() == "a.py\nsrc/b.py\nsrc/x/c.py"
    expected = {"path": ".", "shown": 3, "total": 3, "limitReached": False}
    if not landlock.available():
        expected["note"] = "searched without ripgrep"
    assert result.details == expected


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"pattern": "src/**/*.py"}, "src/b.py\nsrc/x/c.py"),
        ({"pattern": "*.py", "path": "src/x"}, "src/x/c.py"),
        ({"pattern": "*.py", "ignored": True}, "a.py\nold/d.py\nsrc/b.py\nsrc/x/c.py"),
        ({"pattern": "x", "type": "directory"}, "src/x/"),
        ({"pattern": ".env"}, ".env"),
        ({"pattern": r"\[id\].tsx"}, "src/x/[id].tsx"),
        ({"pattern": "[[]id].tsx"}, "src/x/[id].tsx"),
    ],
)
async def test_every_parameter_has_its_effect(
    place: Path, params: dict[str, Any], expected: str
) -> None:
    assert (await find(place, **params)).as_text() == expected


async def test_the_newest_can_come_first(place: Path) -> None:
    for number, name in enumerate(("src/b.py", "a.py", "src/x/c.py")):
        os.utime(place / name, (1_000 + number, 1_000 + number))
    result = await find(place, pattern="*.py", sort="time", limit=2)
    assert result.as_text() == (
        "src/x/c.py\na.py\n\n[2 of 3 files; raise limit, or narrow the pattern]"
    )


@pytest.mark.parametrize(
    "params",
    [
        {"glob": "b.py"},
        {"query": "b.py", "directory": "src"},
        {"name": "b.py", "sort_by": "none", "max_results": 5},
    ],
)
async def test_parameters_have_the_names_models_use(place: Path, params: dict[str, Any]) -> None:
    assert (await find(place, **params)).as_text() == "src/b.py"


async def test_the_tool_answers_to_glob_too(place: Path) -> None:
    async with open_kit(place) as kit:
        assert (await kit.call("glob", {"pattern": "a.*"})).as_text() == "a.py"


async def test_a_cut_unsorted_list_states_that_there_are_more(tmp_path: Path) -> None:
    for number in range(1_200):
        (tmp_path / f"f{number}").touch()
    result = await find(tmp_path, pattern="f*", sort="none", limit=5)
    lines = result.as_text().split("\n")
    assert len(lines) == 7
    assert lines[-1] == ("[the first 5 files; raise limit, or narrow the pattern]")
    assert result.details["stopped"] == "enough"
    assert "total" not in result.details


async def test_a_result_holds_whole_paths_only(tmp_path: Path) -> None:
    for number in range(600):
        (tmp_path / f"{number:03}{'x' * 200}").touch()
    result = await find(tmp_path, pattern="*")
    body, _, notice = result.as_text().rpartition("\n\n")
    shown = body.count("\n") + 1
    assert {len(line) for line in body.split("\n")} == {203}
    assert notice == f"[{shown} of 600 files, as many as fit; narrow the pattern]"


async def test_no_match_is_reported_with_possible_reasons(place: Path) -> None:
    assert (await find(place, pattern="*.rs")).as_text() == (
        "[no files found; ignored=true includes ignored ones]"
    )
    assert (await find(place, pattern="*.rs", ignored=True)).as_text() == "[no files found]"
    assert (await find(place, pattern="[id].tsx")).as_text() == (
        "[no files found; [ starts a character set, \\[ matches a literal []"
    )
    nothing = await find(place, pattern="y", type="directory", ignored=True)
    assert nothing.as_text() == "[no directories found]"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("two\nlines", r'"two\nlines"'),
        ("[5 more]", '"[5 more]"'),
        (" x", '" x"'),
        ("x ", '"x "'),
        ("--", '"--"'),
        ("plain name (1).txt", "plain name (1).txt"),
    ],
)
async def test_no_name_can_imitate_another_line(tmp_path: Path, name: str, shown: str) -> None:
    (tmp_path / name).touch()
    assert (await find(tmp_path, pattern="*")).as_text() == shown


async def test_rules_about_paths_hold_for_the_files_that_are_found(place: Path) -> None:
    rules = [{"tool": "find", "params": {"path": "src/x/*"}, "effect": "deny"}]
    result = await find(place, config={"tools": {"rules": rules}}, pattern="*.py")
    assert result.as_text() == "a.py\nsrc/b.py"
    assert result.details["total"] == 2


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"pattern": "../*"}, "contains '..'"),
        ({"pattern": "/etc/*"}, "is not below"),
        ({"pattern": "{a"}, "never closed"),
        ({"path": "a.py"}, "'a.py' is a file; find searches directories"),
        ({"path": "scr"}, "similar names: 'src'"),
        ({"path": "/etc"}, "outside the workspace"),
        ({"type": "link"}, "type"),
        ({"sort": "size"}, "sort"),
        ({"limit": 0}, "limit"),
        ({"pattern": ""}, "pattern"),
    ],
)
async def test_mistakes_are_explained(place: Path, params: dict[str, Any], words: str) -> None:
    result = await find(place, **{"pattern": "*", **params})
    assert result.is_error
    assert words in result.as_text()


def test_the_tool_can_be_offered_to_every_provider() -> None:
    assert check_tool(TOOL) == []


def test_effects_name_the_directory_that_is_read(tmp_path: Path) -> None:
    ctx = Context("1", Scope(), str(tmp_path))
    effects = list(resolve(TOOL.effects(Params("x"), ctx)))
    assert effects == [Effect("read", f"file:{tmp_path.resolve()}")]
