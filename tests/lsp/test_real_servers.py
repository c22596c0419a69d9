"""Edits judged by the real ruff, ty and TypeScript compiler."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.lsp.parts import TSC, Desk, codes, messages, need, need_python_servers

Make = Callable[..., Desk]

GOOD = "import os\n\nprint(os.name)\n"
UNDEFINED = {("ruff", "F821"), ("ty", "unresolved-reference")}


@pytest.fixture
def python(desk: Make) -> Desk:
    need_python_servers()
    made = desk()
    made.edit("pyproject.toml", '[project]\nname = "x"\nversion = "0"\n')
    return made


@pytest.fixture
def typescript(desk: Make, monkeypatch: pytest.MonkeyPatch) -> Desk:
    need(TSC)
    monkeypatch.setenv("PATH", f"{os.path.dirname(TSC)}:{os.environ['PATH']}")
    made = desk()
    made.edit("tsconfig.json", '{"compilerOptions": {"strict": true}}')
    return made


async def test_breaking_a_python_file_is_told_by_ruff_and_ty(python: Desk) -> None:
    python.edit("a.py", GOOD)
    problems = await python.write("a.py", GOOD + "print(nowhere)\n")
    assert problems.servers == ("ruff", "ty")
    assert problems.late == ()
    assert set(codes(problems)) == UNDEFINED
    for each in problems.found:
        assert (each.place, each.line, each.column) == (str(python.ws / "a.py"), 4, 7)
        assert each.severity == "error"
        assert "nowhere" in each.message


async def test_an_old_problem_is_not_told_again_wherever_its_line_went(python: Desk) -> None:
    python.edit("a.py", "print(nowhere)\n")
    moved = await python.write("a.py", "# moved down\n\nprint(nowhere)\n")
    assert moved.servers == ("ruff", "ty")
    assert moved.found == ()
    second = await python.write("a.py", "# moved down\n\nprint(nowhere)\nprint(elsewhere)\n")
    assert {each.line for each in second.found} == {4}
    assert set(codes(second)) == UNDEFINED


async def test_fixing_a_file_brings_nothing(python: Desk) -> None:
    python.edit("a.py", GOOD)
    assert (await python.write("a.py", GOOD + "print(nowhere)\n")).found
    fixed = await python.write("a.py", GOOD)
    assert fixed.servers == ("ruff", "ty")
    assert fixed.found == ()


async def test_everything_in_a_new_file_is_new(python: Desk) -> None:
    assert set(codes(await python.write("new.py", "print(nowhere)\n"))) == UNDEFINED


async def test_a_syntax_error_that_both_see_is_told_once(python: Desk) -> None:
    python.edit("a.py", "x = 1\n")
    problems = await python.write("a.py", "x = (\n")
    assert len(messages(problems)) == len(set(messages(problems)))
    assert problems.servers == ("ruff", "ty")
    assert problems.found


async def test_a_change_over_several_files_is_judged_as_one(python: Desk) -> None:
    python.edit("lib.py", "def old() -> int:\n    return 1\n")
    python.edit("use.py", "import lib\n\nprint(lib.old())\n")
    together = await python.service.check(
        [
            python.edit("use.py", "import lib\n\nprint(lib.new())\n"),
            python.edit("lib.py", "def new() -> int:\n    return 1\n"),
        ]
    )
    assert "ty" in together.servers
    assert together.found == ()
    broken = await python.service.check(
        [
            python.edit("use.py", "import lib\n\nprint(lib.new(), lib.old())\n"),
            python.edit("lib.py", "def newer() -> int:\n    return 1\n"),
        ]
    )
    assert [each.line for each in broken.found] == [3, 3]


async def test_files_that_others_changed_are_not_remembered_as_they_were(python: Desk) -> None:
    python.edit("use.py", "print(1)\n")
    broken = await python.write("use.py", "import lib\n\nprint(lib.one)\n")
    assert ("ty", "unresolved-import") in codes(broken) or ("ty", "import-not-found") in codes(
        broken
    )
    (python.ws / "lib.py").write_text("one = 1\n")
    assert (await python.write("use.py", "import lib\n\nprint(lib.one, 2)\n")).found == ()
    (python.ws / "lib.py").write_text("# nothing left here\n")
    gone = await python.write("use.py", "import lib\n\nprint(lib.one, 3)\n")
    assert [each.line for each in gone.found] == [3]


async def test_a_deleted_file_is_no_longer_there_for_others(python: Desk) -> None:
    python.edit("lib.py", "one = 1\n")
    python.edit("use.py", "print(1)\n")
    assert (await python.write("use.py", "import lib\n\nprint(lib.one)\n")).found == ()
    assert (await python.write("lib.py", None)).found == ()
    after = await python.write("use.py", "import lib\n\nprint(lib.one, 2)\n")
    assert [each.line for each in after.found] == [1]


async def test_installed_packages_are_seen_at_once(python: Desk) -> None:
    site = python.ws / ".venv/lib/python3.11/site-packages"
    site.mkdir(parents=True)
    (python.ws / ".venv/pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.0\n")
    python.edit("a.py", "print(1)\n")
    assert (await python.write("a.py", "import brandnew\n\nprint(brandnew.x)\n")).found
    (site / "brandnew").mkdir()
    (site / "brandnew/__init__.py").write_text("x = 1\n")
    problems = await python.write("a.py", "import brandnew\n\nprint(brandnew.y)\n")
    assert [(each.server, each.line) for each in problems.found] == [("ty", 3)]


async def test_columns_count_characters(python: Desk) -> None:
    python.edit("a.py", "x = 1\n")
    problems = await python.write("a.py", 'x = "🙂🙂", nowhere\n')
    assert {each.column for each in problems.found} == {11}


async def test_a_type_error_in_typescript_is_told(typescript: Desk) -> None:
    typescript.edit("a.ts", "export const a: number = 1;\n")
    problems = await typescript.write(
        "a.ts", 'export const a: number = 1;\nexport const b: number = "x";\n'
    )
    assert problems.servers == ("typescript",)
    assert codes(problems) == [("typescript", "2322")]
    assert (problems.found[0].line, problems.found[0].column) == (2, 14)
    fixed = await typescript.write("a.ts", "export const a: number = 2;\n")
    assert fixed.servers == ("typescript",)
    assert fixed.found == ()


async def test_columns_of_a_server_that_counts_in_utf16_count_characters(typescript: Desk) -> None:
    problems = await typescript.write("a.ts", 'export const s = "🙂🙂", b: number = "x";\n')
    assert [each.column for each in problems.found] == [24]


async def test_typescript_sees_files_that_others_made(typescript: Desk) -> None:
    typescript.edit("a.ts", "export {};\n")
    use = 'import { f } from "./made";\nf();\n'
    assert codes(await typescript.write("a.ts", use)) == [("typescript", "2307")]
    (typescript.ws / "made.ts").write_text("export function f() {}\n")
    assert (await typescript.write("a.ts", use + "f();\n")).found == ()


async def test_typescript_downloads_nothing(
    typescript: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project that names packages must not make the server run npm."""
    ran, tools = typescript.ws / "RAN", tmp_path / "tools"
    tools.mkdir()
    script = f"#!/bin/sh\necho \"$@\" >> '{ran}'\n"
    for path in (tools / "npm", typescript.ws / "npm"):
        path.write_text(script)
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    typescript.edit("package.json", '{"dependencies": {"lodash": "1"}}')
    typescript.edit("jsconfig.json", "{}")
    problems = await typescript.write("a.js", 'const _ = require("lodash");\nlet x = ;\n')
    assert problems.servers == ("typescript",)
    await typescript.service.close()
    assert not ran.exists()
