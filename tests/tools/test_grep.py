"""grep: lines of files that match a pattern."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.lacking import needs

from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Effect, resolve
from clawkit.fs.protocols import FileHits, Grep, SearchResult
from clawkit.process import landlock
from clawkit.testing import check_tool, open_kit
from clawkit.tools.grep import TOOL, Params, _notes


async def grep(place: Path, *, config: dict[str, Any] | None = None, **params: Any) -> Result:
    async with open_kit(place, config=config) as kit:
        return await kit.call("grep", params)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "ws"
    (place / "src").mkdir(parents=True)
    (place / "a.txt").write_text("one\ntwo\nthree\nfour\nfive\ntwo again\n")
    (place / "src" / "b.py").write_text("two = 2\n")
    return place


async def test_each_match_is_a_line_with_its_path_and_number(place: Path) -> None:
    result = await grep(place, pattern="two")
    assert result.as_text() == "a.txt:2: two\na.txt:6: two again\nsrc/b.py:1: two = 2"
    expected = {"path": ".", "output": "content", "shown": 3, "total": 3, "limitReached": False}
    if not landlock.available():
        expected["note"] = "searched without ripgrep"
    assert result.details == expected


async def test_lines_around_a_match_are_marked_and_gaps_shown(place: Path) -> None:
    result = await grep(place, pattern="two", context=1)
    assert result.as_text().split("\n") == [
        "a.txt-1- one",
        "a.txt:2: two",
        "a.txt-3- three",
        "--",
        "a.txt-5- five",
        "a.txt:6: two again",
        "--",
        "src/b.py:1: two = 2",
    ]
    assert result.details["shown"] == 3


async def test_only_files_or_counts_may_be_asked_for(place: Path) -> None:
    assert (await grep(place, pattern="two", output="files")).as_text() == "a.txt\nsrc/b.py"
    counted = await grep(place, pattern="two", output="count")
    assert counted.as_text() == "a.txt:2\nsrc/b.py:1"
    assert counted.details["matches"] == 3
    assert counted.details["total"] == 2


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"path": "src"}, "src/b.py:1: two = 2"),
        ({"path": "src/b.py"}, "src/b.py:1: two = 2"),
        ({"glob": "*.py"}, "src/b.py:1: two = 2"),
        ({"glob": ["*.md", "src/*.py"]}, "src/b.py:1: two = 2"),
        ({"glob": "!*.txt"}, "src/b.py:1: two = 2"),
        ({"type": "py"}, "src/b.py:1: two = 2"),
        ({"pattern": "TWO =", "ignoreCase": True}, "src/b.py:1: two = 2"),
        ({"pattern": "t.o a", "literal": False}, "a.txt:6: two again"),
        ({"pattern": "t.o", "literal": True}, "[no matches]"),
        ({"pattern": "three.*four", "multiline": True}, "a.txt:3: three\na.txt:4: four"),
        ({"pattern": "three.*four"}, "[no matches]"),
    ],
)
async def test_every_parameter_has_its_effect(
    place: Path, params: dict[str, Any], expected: str
) -> None:
    assert (await grep(place, **{"pattern": "two", **params})).as_text() == expected


async def test_ignored_files_are_searched_when_asked_for(place: Path) -> None:
    (place / ".ignore").write_text("src\n")
    assert "src/b.py" not in (await grep(place, pattern="two")).as_text()
    assert "src/b.py" in (await grep(place, pattern="two", ignored=True)).as_text()


@pytest.mark.parametrize(
    "params",
    [
        {"query": "two =", "include": "*.py"},
        {"regex": "two =", "directory": "src"},
        {"pattern": "TWO =", "-i": True},
        {"pattern": "two =", "output_mode": "content", "head_limit": 5, "-C": 0},
    ],
)
async def test_parameters_have_the_names_models_use(place: Path, params: dict[str, Any]) -> None:
    assert (await grep(place, **params)).as_text() == "src/b.py:1: two = 2"


async def test_a_reached_limit_is_reported_with_what_is_left(place: Path) -> None:
    result = await grep(place, pattern="o", limit=2)
    assert result.as_text() == (
        "a.txt:1: one\na.txt:2: two\n\n"
        "[2 of 5 matching lines; raise limit, or narrow the search with path, glob or type]"
    )
    assert (result.details["shown"], result.details["total"]) == (2, 5)
    assert result.details["limitReached"] is True
    files = await grep(place, pattern="o", limit=1, output="files")
    assert "[1 of 2 files; raise limit" in files.as_text()


async def test_a_stopped_search_is_reported(place: Path) -> None:
    (place / "many").write_text("same\n" * 3_000)
    result = await grep(place, pattern="same", limit=1)
    assert result.as_text() == (
        "many:1: same\n\n[1 of the first 1,000 matching lines; the search "
        "stopped there: narrow it with path, glob or type]"
    )
    assert result.details["stopped"] == "enough"
    assert "total" not in result.details


async def test_a_result_holds_whole_lines_only(place: Path) -> None:
    (place / "long").write_text(f"{'x' * 400}\n" * 500)
    result = await grep(place, pattern="xxx", limit=10_000)
    body, _, notice = result.as_text().rpartition("\n\n")
    lines = body.split("\n")
    assert len(body.encode()) <= 50 * 1024
    assert {len(line.rpartition(" ")[2]) for line in lines} == {400}
    assert notice == (
        f"[{len(lines)} of 500 matching lines, as many as fit; narrow the search, or ask "
        "for output=files]"
    )


async def test_no_gap_is_left_at_the_end_of_a_full_result(place: Path) -> None:
    (place / "long").write_text(f"{'x' * 450}\ny\ny\n" * 500)
    for width in range(3):
        (place / "long").write_text(f"{'x' * (450 + width)}\ny\ny\ny\n" * 500)
        result = await grep(place, pattern="xxx", context=1, limit=10_000)
        assert not result.as_text().rpartition("\n\n")[0].endswith("--")


async def test_a_small_model_is_given_less(place: Path) -> None:
    (place / "long").write_text(f"{'x' * 100}\n" * 500)
    models = {"p": {"baseUrl": "http://x", "models": [{"id": "m", "contextWindow": 16_000}]}}
    async with open_kit(place, config={"models": {"providers": models}}, model="p/m") as kit:
        result = await kit.call("grep", {"pattern": "xxx", "limit": 500})
    assert 0 < result.details["shown"] < 160


async def test_a_long_line_is_cut_and_no_secret_in_two(place: Path) -> None:
    token = "ghp_" + "a1B2" * 9
    (place / "long").write_text(f"{'x' * 480} {token} {'y' * 90_000}\n")
    result = await grep(place, pattern="xxx")
    line = result.as_text()
    assert line.endswith("… [cut]")
    assert len(line) < 530
    assert "ghp_a1B2a1B2" not in line
    assert result.details["linesCut"] == 1


async def test_values_in_env_files_are_masked(place: Path) -> None:
    (place / ".env").write_text("DB_PASSWORD=correct-horse-battery\nNAME=app\n")
    (place / "code.py").write_text("DB_PASSWORD = 'correct-horse-battery'\n")
    text = (await grep(place, pattern="PASSWORD|NAME")).as_text()
    env, name, code = text.split("\n")
    assert env.startswith(".env:1: DB_PASSWORD=")
    assert "horse" not in env
    assert name == ".env:2: NAME=app"
    assert code.startswith("code.py:1: DB_PASSWORD")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("two\nlines", r'"two\nlines"'),
        ("a.py:3: evil", '"a.py:3: evil"'),
        ("a-3- evil", '"a-3- evil"'),
        ("[no matches]", '"[no matches]"'),
        ('"quoted"', r'"\"quoted\""'),
        (" lead", '" lead"'),
        ("\x1b[31mred", r'"\u001b[31mred"'),
        ("a\u202eb", r'"a\u202eb"'),
        ("test-1-of-2.py", "test-1-of-2.py"),
        ("mit Leerzeichen.txt", "mit Leerzeichen.txt"),
        ("日本.txt", "日本.txt"),
    ],
)
async def test_no_name_can_pose_as_a_line(tmp_path: Path, name: str, shown: str) -> None:
    (tmp_path / name).write_text("word\n")
    assert (await grep(tmp_path, pattern="word")).as_text() == f"{shown}:1: word"
    assert (await grep(tmp_path, pattern="word", output="files")).as_text() == shown


async def test_no_text_can_pose_as_another_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"word\rb:1: fake\x1b[2K\x0b\xc2\x85\xe2\x80\xa8\tend\xff\r\n")
    text = (await grep(tmp_path, pattern="word")).as_text()
    assert text == "a:1: word\\u{d}b:1: fake\\u{1b}[2K\\u{b}\\u{85}\\u{2028}\tend�"
    assert len(text.splitlines()) == 1


async def test_no_match_is_reported_with_possible_reasons(place: Path, tmp_path: Path) -> None:
    assert (await grep(place, pattern="nowhere")).as_text() == "[no matches]"
    narrow = await grep(place, pattern="two", glob="*.rs")
    assert narrow.as_text() == (
        "[no matches: no file matches that type or glob (ignored=true includes ignored ones)]"
    )
    (tmp_path / "other").write_text("two\n")
    (place / "linked").hardlink_to(tmp_path / "other")
    expected = "[no matches; 1 file with several names (hard links) not searched]"
    assert (await grep(place, pattern="nowhere")).as_text() == expected
    allowed = {"tools": {"fs": {"hardLinks": "allow"}}}
    assert "linked" in (await grep(place, config=allowed, pattern="two")).as_text()


async def test_rules_about_paths_hold_for_the_files_that_are_found(place: Path) -> None:
    rules = [{"tool": "grep", "params": {"path": "src/*"}, "effect": "deny"}]
    config = {"tools": {"rules": rules}}
    found = await grep(place, config=config, pattern="two")
    assert found.as_text() == "a.txt:2: two\na.txt:6: two again"
    hidden = await grep(place, config=config, pattern="two =")
    assert hidden.as_text() == "[no matches; 1 file that rules deny not searched]"
    assert hidden.as_text() == (await grep(place, config=config, pattern="nowhere")).as_text()
    refused = await grep(place, config=config, pattern="two", path="src/b.py")
    assert refused.details["status"] == "blocked"


@needs(landlock.available(), "Landlock")
async def test_a_binary_file_is_not_shown(place: Path) -> None:
    (place / "blob").write_bytes(b"\0two\n")
    result = await grep(place, pattern="two", path="blob")
    assert result.as_text() == "[the file is binary, so its match is not shown]"


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"pattern": "two("}, "cannot be used: unclosed group; literal=true"),
        ({"pattern": "a(?=b)"}, "look-around"),
        ({"pattern": "a\\nb"}, "multiline=true"),
        ({"type": "pyhton"}, "unknown file type 'pyhton'; did you mean 'python'"),
        ({"glob": "[a"}, "never closed"),
        ({"path": "scr"}, "similar names: 'src'"),
        ({"path": ".."}, "outside the workspace"),
        ({"context": 51}, "context"),
        ({"output": "everything"}, "output"),
        ({"limit": 0}, "limit"),
        ({"pattern": ""}, "pattern"),
    ],
)
@needs(landlock.available(), "Landlock")
async def test_mistakes_are_explained(place: Path, params: dict[str, Any], words: str) -> None:
    result = await grep(place, **{"pattern": "two", **params})
    assert result.is_error
    assert result.details["code"] in (400, 403, 404)
    assert words in result.as_text()


def test_the_tool_can_be_offered_to_every_provider() -> None:
    assert check_tool(TOOL) == []


def test_effects_name_what_is_read(tmp_path: Path) -> None:
    ctx = Context("1", Scope(), str(tmp_path))
    effects = list(resolve(TOOL.effects(Params("x"), ctx)))
    assert effects == [Effect("read", f"file:{tmp_path.resolve()}")]


async def test_lines_of_private_keys_are_not_shown(place: Path) -> None:
    body = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ"
    key = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{body}\n-----END OPENSSH PRIVATE KEY-----\n"
    (place / "id_key").write_text(key)
    (place / "hashes").write_text(f"{body}\n")
    shown = (await grep(place, pattern="^b3B")).as_text().splitlines()
    assert shown == [f"hashes:1: {body}", "id_key:2: ***"]


@pytest.mark.parametrize(
    "params",
    [
        {"pattern": "a\0b"},
        {"pattern": "x", "glob": "\ud800"},
        {"pattern": "x", "glob": ["*.py", "a\0"]},
        {"pattern": "x", "type": "a\0b"},
        {"pattern": "x", "type": "\ud800"},
    ],
)
async def test_patterns_that_cannot_be_passed_to_a_program_are_refused(
    place: Path, params: dict[str, Any]
) -> None:
    result = await grep(place, **params)
    assert result.details["code"] == 400


def test_without_ripgrep_the_notice_names_the_syntax() -> None:
    found = SearchResult((FileHits("a.txt"),), 1, "", "python")
    assert [*_notes(Grep("two"), found, 1)] == [
        "ripgrep is not available: the pattern was used as a Python regular expression"
    ]
    assert [*_notes(Grep("two", literal=True), found, 1)] == []
