"""apply_patch: changes to any number of files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.tables import table

from clawkit.config.load import loads
from clawkit.config.modelref import parse_ref
from clawkit.core.call import CallRequest
from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Tool
from clawkit.errors import ToolInputError
from clawkit.fs.edit.patch_draft import MAX_FILE_BYTES
from clawkit.runtime import Toolkit
from clawkit.testing import ScriptedApprover, check_tool, open_kit
from clawkit.tools.apply_patch import TOOL, Params, effects, make_tool, touches

FS: dict[str, Any] = {"lsp": {"enabled": False}}


def wrap(*lines: str) -> str:
    return "\n".join(("*** Begin Patch", *lines, "*** End Patch"))


def kit_in(place: Path, **options: Any) -> Toolkit:
    config = {"tools": {"fs": FS, **options.pop("tools", {})}}
    return open_kit(place, config=config, **options)


async def patch(place: Path, *lines: str, **options: Any) -> Result:
    async with kit_in(place, **options) as kit:
        return await kit.call("apply_patch", {"input": wrap(*lines)})


async def refusal(place: Path, *lines: str, **options: Any) -> str:
    before = snapshot(place)
    result = await patch(place, *lines, **options)
    assert result.is_error, result.as_text()
    assert snapshot(place) == before
    return str(result.details.get("error") or result.details["reason"])


def snapshot(place: Path) -> dict[str, bytes | None]:
    return {
        str(each.relative_to(place)): each.read_bytes() if each.is_file() else None
        for each in sorted(place.rglob("*"))
    }


def test_every_provider_accepts_the_tool() -> None:
    assert check_tool(TOOL) == []


# What it does


async def test_files_are_added_updated_moved_and_deleted(workspace: Path) -> None:
    (workspace / "run.sh").write_text("#!/bin/sh\nexit 1\n")
    (workspace / "run.sh").chmod(0o750)
    result = await patch(
        workspace,
        "*** Add File: docs/new.md",
        "+# New",
        "+",
        "*** Delete File: a.txt",
        "*** Update File: src/main.py",
        "@@",
        '-print("ok")',
        "+import sys",
        "+",
        "+sys.exit()",
        "*** Update File: run.sh",
        "*** Move to: bin/go.sh",
        "@@",
        "-exit 1",
        "+exit 0",
    )
    assert result.as_text() == (
        "Applied the patch:\n"
        "A docs/new.md (+2)\n"
        "D a.txt\n"
        "M src/main.py (+3 -1)\n"
        "M bin/go.sh (+1 -1, moved from run.sh)"
    )
    assert result.details == {
        "summary": {
            "added": ["docs/new.md"],
            "modified": ["src/main.py", "bin/go.sh"],
            "deleted": ["a.txt"],
        },
        "changed": True,
    }
    assert snapshot(workspace) == {
        "bin": None,
        "bin/go.sh": b"#!/bin/sh\nexit 0\n",
        "docs": None,
        "docs/new.md": b"# New\n\n",
        "src": None,
        "src/main.py": b"import sys\n\nsys.exit()\n",
    }
    assert (workspace / "bin/go.sh").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("name", ["input", "patch", "diff"])
async def test_the_patch_has_the_names_models_use(workspace: Path, name: str) -> None:
    async with kit_in(workspace) as kit:
        result = await kit.call("apply_patch", {name: wrap("*** Delete File: a.txt")})
    assert result.details["summary"]["deleted"] == ["a.txt"]


async def test_a_patch_that_changes_nothing_is_reported(workspace: Path) -> None:
    before = (workspace / "a.txt").stat()
    result = await patch(
        workspace, "*** Update File: a.txt", "-alpha", "+alpha", "*** Update File: a.txt", " beta"
    )
    assert result.as_text().startswith("Nothing to change")
    assert result.details["changed"] is False
    assert result.details["summary"] == {"added": [], "modified": [], "deleted": []}
    assert (workspace / "a.txt").stat().st_ino == before.st_ino


async def test_encoding_mark_and_line_endings_stay(workspace: Path) -> None:
    (workspace / "w.txt").write_bytes("\ufeffä\r\nb\r\n".encode("utf-16-le"))
    (workspace / "l.txt").write_bytes("caf\xe9\nx".encode("cp1252"))
    (workspace / "u.txt").write_bytes(b"\xef\xbb\xbfa\r\nb")
    await patch(
        workspace,
        *("*** Update File: w.txt", "-b", "+ö"),
        *("*** Update File: l.txt", "-x", "+é"),
        *("*** Update File: u.txt", "-a", "+ß"),
    )
    assert (workspace / "w.txt").read_bytes() == "\ufeffä\r\nö\r\n".encode("utf-16-le")
    assert (workspace / "l.txt").read_bytes() == b"caf\xe9\n\xe9"
    assert (workspace / "u.txt").read_bytes() == b"\xef\xbb\xbf\xc3\x9f\r\nb"


async def test_long_lists_are_cut(workspace: Path) -> None:
    result = await patch(workspace, *(f"*** Add File: n/{n}" for n in range(103)))
    assert result.as_text().endswith("A n/99\nand 3 more")
    assert len(result.details["summary"]["added"]) == 103
    assert len(os.listdir(workspace / "n")) == 103


async def test_lines_matched_in_spite_of_differences_are_reported(workspace: Path) -> None:
    (workspace / "b.txt").write_text("if x:\n    go()\n")
    result = await patch(workspace, "*** Update File: b.txt", "-go()", "+stop()")
    assert (workspace / "b.txt").read_text() == "if x:\n    stop()\n"
    assert "[b.txt: chunk 1 differs from the file in indentation" in result.as_text()


# All or nothing


async def test_a_patch_whose_third_file_fails_changes_none(workspace: Path) -> None:
    words = await refusal(
        workspace,
        *("*** Add File: new.txt", "+x"),
        *("*** Update File: a.txt", "-alpha", "+ALPHA"),
        *("*** Update File: src/main.py", "@@", " no such line", "+x"),
        *("*** Delete File: a.txt",),
    )
    assert "'src/main.py': chunk 1 (line 8 of the patch) does not match" in words
    assert "  'no such line'" in words
    assert words.endswith("Nothing was changed.")


async def test_updates_that_do_not_match_are_reported_together(workspace: Path) -> None:
    words = await refusal(
        workspace,
        *("*** Update File: a.txt", "-alfa"),
        *("*** Update File: src/main.py", "-print('no')", "+x"),
    )
    assert "'a.txt': chunk 1 (line 3 of the patch)" in words
    assert "'src/main.py': chunk 1 (line 5 of the patch)" in words


async def test_only_some_of_many_updates_that_do_not_match_are_reported(workspace: Path) -> None:
    lines: list[str] = []
    for number in range(9):
        (workspace / f"f{number}").write_text("x\n")
        lines += [f"*** Update File: f{number}", "-y"]
    words = await refusal(workspace, *lines)
    assert words.count("does not match") == 5


async def test_a_missing_file_is_an_error_with_similar_names(workspace: Path) -> None:
    assert "similar names: 'a.txt'" in await refusal(workspace, "*** Update File: a.text", "-x")
    assert "'b.txt' does not exist" in await refusal(workspace, "*** Delete File: b.txt")


async def test_an_existing_file_is_not_overwritten(workspace: Path) -> None:
    words = await refusal(workspace, "*** Add File: ./src/../a.txt", "+x")
    assert "'./src/../a.txt' (line 2 of the patch) already exists" in words
    move = ("*** Update File: src/main.py", "*** Move to: a.txt")
    assert "'a.txt' (line 2 of the patch) already exists" in await refusal(workspace, *move)
    assert "directory" in await refusal(workspace, "*** Add File: src", "+x")


async def test_a_file_where_a_directory_is_needed_is_refused(workspace: Path) -> None:
    await refusal(workspace, "*** Add File: a.txt/b", "+x")
    await refusal(workspace, "*** Add File: d", "+x", "*** Add File: d/e", "+x")


async def test_a_binary_file_is_not_patched_but_may_go_and_move(workspace: Path) -> None:
    (workspace / "b.bin").write_bytes(b"\0\1\2\xff" * 100)
    (workspace / "c.bin").write_bytes(b"\0")
    assert "binary" in await refusal(workspace, "*** Update File: b.bin", "-x", "+y")
    result = await patch(
        workspace,
        *("*** Update File: b.bin", "*** Move to: d.bin"),
        *("*** Delete File: c.bin",),
    )
    assert result.details["summary"] == {
        "added": [],
        "modified": ["d.bin"],
        "deleted": ["c.bin"],
    }
    assert (workspace / "d.bin").read_bytes() == b"\0\1\2\xff" * 100
    assert not (workspace / "b.bin").exists()


async def test_a_file_that_is_too_large_is_not_patched_but_may_go(workspace: Path) -> None:
    with open(workspace / "large", "wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    result = await patch(workspace, "*** Update File: large", "-x", "+y")
    assert "larger than 32 MB" in result.details["error"]
    assert not (await patch(workspace, "*** Delete File: large")).is_error
    assert not (workspace / "large").exists()


async def test_files_that_are_too_large_together_are_refused(workspace: Path) -> None:
    lines: list[str] = []
    for number in range(5):
        with open(workspace / f"f{number}", "wb") as file:
            file.truncate(30 * 1024 * 1024)
        lines += [f"*** Update File: f{number}", f"*** Move to: g{number}"]
    result = await patch(workspace, *lines)
    assert "more than 128 MB" in result.details["error"]
    assert (workspace / "f0").exists()


async def test_a_long_file_is_patched(workspace: Path) -> None:
    lines = [f"line {number}" for number in range(60_000)]
    (workspace / "long").write_text("\n".join(lines))
    await patch(workspace, "*** Update File: long", "-line 777", "+x", "@@", "-line 50000", "+y")
    lines[777], lines[50_000] = "x", "y"
    assert (workspace / "long").read_text() == "\n".join(lines)


async def test_half_a_character_is_refused(workspace: Path) -> None:
    assert "a lone surrogate" in await refusal(workspace, "*** Add File: x", "+\ud800")


# The same file more than once


async def test_sections_build_on_the_ones_before(workspace: Path) -> None:
    result = await patch(
        workspace,
        *("*** Update File: a.txt", "-alpha", "+gamma"),
        *("*** Update File: ./a.txt", "-gamma", "+delta"),
        *("*** Add File: new", "+one"),
        *("*** Update File: src/../new", "-one", "+two"),
        *("*** Add File: passing", "+x", "*** Delete File: passing"),
        *("*** Update File: src/main.py", "*** Move to: b.py"),
        *("*** Update File: b.py", "*** Move to: c.py", "@@", '+print("more")'),
    )
    assert result.details["summary"] == {
        "added": ["new"],
        "modified": ["a.txt", "c.py"],
        "deleted": [],
    }
    assert snapshot(workspace) == {
        "a.txt": b"delta\nbeta\n",
        "new": b"two\n",
        "c.py": b'print("ok")\nprint("more")\n',
        "src": None,
    }


async def test_a_deleted_file_may_be_added_again(workspace: Path) -> None:
    (workspace / "a.txt").chmod(0o600)
    result = await patch(workspace, "*** Delete File: a.txt", "*** Add File: a.txt", "+new")
    assert result.as_text() == "Applied the patch:\nD a.txt\nA a.txt (+1)"
    assert (workspace / "a.txt").read_text() == "new\n"
    assert (workspace / "a.txt").stat().st_mode & 0o777 == 0o600


async def test_a_file_may_move_to_where_another_was_deleted(workspace: Path) -> None:
    result = await patch(
        workspace, "*** Delete File: a.txt", "*** Update File: src/main.py", "*** Move to: a.txt"
    )
    assert result.details["summary"]["modified"] == ["a.txt"]
    assert result.details["summary"]["deleted"] == ["a.txt"]
    assert (workspace / "a.txt").read_text() == 'print("ok")\n'
    assert not (workspace / "src/main.py").exists()


async def test_two_files_may_change_places(workspace: Path) -> None:
    await patch(
        workspace,
        *("*** Update File: a.txt", "*** Move to: t"),
        *("*** Update File: src/main.py", "*** Move to: a.txt"),
        *("*** Update File: t", "*** Move to: src/main.py"),
    )
    assert snapshot(workspace) == {
        "a.txt": b'print("ok")\n',
        "src": None,
        "src/main.py": b"alpha\nbeta\n",
    }


async def test_a_move_onto_itself_is_an_update(workspace: Path) -> None:
    result = await patch(
        workspace, "*** Update File: a.txt", "*** Move to: ./a.txt", "@@", "-alpha", "+x"
    )
    assert result.as_text() == "Applied the patch:\nM a.txt (+1 -1)"
    assert (workspace / "a.txt").read_text() == "x\nbeta\n"


async def test_a_link_and_its_file_are_one(workspace: Path) -> None:
    (workspace / "link").symlink_to("a.txt")
    await patch(
        workspace,
        *("*** Update File: a.txt", "-alpha", "+x"),
        *("*** Update File: link", "-x", "+y"),
    )
    assert (workspace / "a.txt").read_text() == "y\nbeta\n"
    assert (workspace / "link").is_symlink()


@pytest.mark.parametrize(
    "lines",
    [
        ("*** Update File: link", "-alpha", "+x", "*** Delete File: a.txt"),
        ("*** Update File: a.txt", "-alpha", "+x", "*** Delete File: link"),
        ("*** Update File: link", "-alpha", "+x", "*** Update File: a.txt", "*** Move to: new"),
    ],
)
async def test_one_file_under_two_names_is_refused(workspace: Path, lines: tuple[str, ...]) -> None:
    (workspace / "link").symlink_to("a.txt")
    assert "are the same file" in await refusal(workspace, *lines)
    assert (workspace / "link").is_symlink()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("*** Delete File: a.txt", "*** Update File: a.txt", "-x"), "deleted or moved by an"),
        (("*** Delete File: a.txt", "*** Delete File: ./a.txt"), "deleted or moved by an"),
        (
            ("*** Update File: a.txt", "*** Move to: b", "*** Delete File: a.txt"),
            "'a.txt' (line 4 of the patch) is deleted or moved",
        ),
        (("*** Add File: n", "+x", "*** Add File: ./n", "+y"), "already exists"),
        (("*** Update File: new", "-x", "*** Add File: new", "+x"), "does not exist"),
        (("*** Add File: a.txt", "+x", "*** Delete File: a.txt"), "already exists"),
    ],
)
async def test_sections_that_contradict_each_other_are_refused(
    workspace: Path, lines: tuple[str, ...], words: str
) -> None:
    assert words in await refusal(workspace, *lines)


# What others did, and what is secret


async def test_a_file_that_someone_else_changed_is_left_alone(workspace: Path) -> None:
    async with kit_in(workspace) as kit:
        await kit.call("read", {"path": "a.txt"})
        (workspace / "a.txt").write_text("alpha\nbeta\nmine\n")
        for section in ("*** Update File: a.txt\n-alpha\n+x", "*** Delete File: a.txt"):
            result = await kit.call("apply_patch", {"input": wrap(section)})
            assert result.details["code"] == 409
        assert (workspace / "a.txt").read_text() == "alpha\nbeta\nmine\n"
        await kit.call("read", {"path": "a.txt"})
        for old, new in (("alpha", "one"), ("one", "two")):
            section = f"*** Update File: a.txt\n-{old}\n+{new}"
            assert not (await kit.call("apply_patch", {"input": wrap(section)})).is_error
    assert (workspace / "a.txt").read_text() == "two\nbeta\nmine\n"


async def test_a_mask_is_not_written_in_place_of_a_secret(workspace: Path) -> None:
    (workspace / ".env").write_text("A=1\nAPI_KEY=0123456789abcdefghijklmnop\n")
    lines = ("*** Update File: .env", "@@ A=1", "+SECRET_TOKEN=012345…mnop")
    assert "masks in place of secrets" in await refusal(workspace, *lines)
    again = ("*** Delete File: .env", "*** Add File: .env", "+API_KEY=012345…mnop")
    assert "masks in place of secrets" in await refusal(workspace, *again)
    moved = ("*** Update File: .env", "*** Move to: .env.old", "@@", "-A=1", "+API_KEY=***")
    assert "masks in place of secrets" in await refusal(workspace, *moved)
    result = await patch(workspace, "*** Update File: .env", "@@", "-A=1", "+A=***")
    assert not result.is_error


async def test_a_file_with_masked_secrets_keeps_a_name_that_has_them_masked(
    workspace: Path,
) -> None:
    (workspace / ".env").write_text("API_KEY=0123456789abcdefghijklmnop\n")
    words = await refusal(workspace, "*** Update File: .env", "*** Move to: notes.txt")
    assert "Keep a name like .env" in words
    moved = await patch(workspace, "*** Update File: .env", "*** Move to: .env.local")
    assert not moved.is_error


async def test_results_about_an_env_file_show_no_secret(workspace: Path) -> None:
    (workspace / ".env").write_text("PASSWORD=opensesame12345\n")
    words = await refusal(workspace, "*** Update File: .env", "-PASSWORD=opensesame", "+x")
    assert "The closest match is line 1" in words
    assert "12345" not in words


# Where it may go


@pytest.mark.parametrize(
    "lines",
    [
        ("*** Add File: ../out.txt", "+x"),
        ("*** Update File: a.txt", "*** Move to: ../out.txt"),
        ("*** Delete File: ../secret.txt",),
        ("*** Update File: leak.txt", "-secret", "+x"),
        ("*** Add File: dangling.txt", "+x"),
        ("*** Add File: out/new.txt", "+x"),
    ],
)
async def test_nothing_outside_the_workspace_is_reached(
    workspace: Path, lines: tuple[str, ...]
) -> None:
    outside = workspace.parent
    (outside / "secret.txt").write_text("secret\n")
    (workspace / "leak.txt").symlink_to("../secret.txt")
    (workspace / "dangling.txt").symlink_to("../created.txt")
    (workspace / "out").symlink_to("..")
    result = await patch(workspace, *lines)
    assert result.details["code"] == 403, result.as_text()
    assert sorted(os.listdir(outside)) == ["secret.txt", "ws"]
    assert (outside / "secret.txt").read_text() == "secret\n"


async def test_only_an_operator_lets_patches_leave_the_workspace(workspace: Path) -> None:
    lines = ("*** Add File: ../out.txt", "+x")
    wide = {"fs": FS | {"workspaceOnly": False}}
    await refusal(workspace, *lines, tools=wide)
    both = wide | {"exec": {"applyPatch": {"workspaceOnly": False}}}
    assert not (await patch(workspace, *lines, tools=both)).is_error
    assert (workspace.parent / "out.txt").read_text() == "x\n"


async def test_a_person_is_asked_about_protected_files(workspace: Path) -> None:
    (workspace / ".git" / "hooks").mkdir(parents=True)
    (workspace / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    lines = ("*** Add File: .git/hooks/pre-commit", "+x", "*** Add File: other", "+x")
    await refusal(workspace, *lines, approver=ScriptedApprover("no"))
    yes = ScriptedApprover("allow")
    assert not (await patch(workspace, *lines, approver=yes)).is_error
    assert len(yes.requests) == 1
    assert (workspace / ".git/hooks/pre-commit").read_text() == "x\n"


def test_rules_and_the_order_of_calls_see_every_path_of_a_patch(workspace: Path) -> None:
    text = wrap(
        "*** Add File: n", "+x", "*** Delete File: d", "*** Update File: u", "*** Move to: m"
    )
    assert touches({"input": text}) == ("n", "d", "u", "m")
    for params in ({"input": "no patch"}, {}, {"input": 7}):
        with pytest.raises(ToolInputError):
            touches(params)
    ctx = Context("1", Scope(), str(workspace))
    root = os.path.realpath(workspace)
    found = effects(Params(text), ctx)
    assert found == tuple(Effect("write", f"file:{root}/{name}") for name in "ndum")
    assert effects(Params("no patch"), ctx) == ()


async def test_a_rule_about_a_path_holds_for_each_file_of_a_patch(workspace: Path) -> None:
    rules = [{"tool": "apply_patch", "params": {"path": "src/**"}, "effect": "deny"}]
    move = ("*** Update File: a.txt", "*** Move to: ./src//b")
    assert "tools.rules[0] denies" in await refusal(workspace, *move, tools={"rules": rules})
    assert not (await patch(workspace, "*** Delete File: a.txt", tools={"rules": rules})).is_error


async def test_calls_of_one_message_on_one_file_run_in_order(workspace: Path) -> None:
    requests = [
        CallRequest(
            "apply_patch", {"input": wrap("*** Update File: a.txt", f"-{old}", f"+{new}")}, old
        )
        for old, new in (("alpha", "one"), ("one", "two"), ("two", "three"))
    ]
    async with kit_in(workspace) as kit:
        results = await kit.call_all(requests)
    assert not any(result.is_error for result in results)
    assert (workspace / "a.txt").read_text() == "three\nbeta\n"


# Who is offered it


@table(
    ("settings", "model", "reason"),
    [
        ({}, None, ""),
        ({}, "openai/gpt-5.2", ""),
        ({}, "openai-codex/anything", ""),
        ({}, "azure-openai-responses/mine", ""),
        ({}, "openrouter/openai/gpt-5.2", ""),
        ({}, "o4-mini", ""),
        ({}, "anthropic/claude-opus-4-7", "applyPatch.enabled is true"),
        ({}, "mistral/pro1", "applyPatch.allowModels names 'mistral/pro1'"),
        ({"allowModels": ["Claude-Opus-4-7"]}, "anthropic/claude-opus-4-7", ""),
        ({"allowModels": ["anthropic/claude-opus-4-7"]}, "anthropic/claude-opus-4-7", ""),
        ({"allowModels": ["x/claude-opus-4-7"]}, "anthropic/claude-opus-4-7", "applyPatch"),
        ({"enabled": True}, "anthropic/claude-opus-4-7", ""),
        ({"enabled": True, "allowModels": ["gpt-5.2"]}, "openai/gpt-5.2", ""),
        ({"enabled": True, "allowModels": ["gpt-5.2"]}, "openai/gpt-5", "does not include"),
        ({"enabled": True, "allowModels": ["gpt-5.2"]}, None, "does not include"),
        ({"enabled": False}, "openai/gpt-5.2", "tools.exec.applyPatch.enabled is false"),
        ({"enabled": False}, None, "tools.exec.applyPatch.enabled is false"),
    ],
)
def test_settings_and_model_decide_who_is_offered_the_tool(
    settings: Mapping[str, Any], model: str | None, reason: str
) -> None:
    config = loads(json.dumps({"tools": {"exec": {"applyPatch": settings}}})).config
    made = make_tool(config, Scope(model=parse_ref(model) if model else None))
    assert isinstance(made, Tool) if not reason else reason in str(made)


def test_an_agent_has_its_own_setting() -> None:
    off = {"tools": {"exec": {"applyPatch": {"enabled": False}}}}
    config = loads(json.dumps({"agents": {"list": [{"id": "one", **off}]}})).config
    assert "enabled is false" in str(make_tool(config, Scope(agent="one")))
    assert isinstance(make_tool(config, Scope(agent="two")), Tool)


async def test_a_run_without_the_tool_refuses_it_with_the_reason(workspace: Path) -> None:
    exec_ = {"applyPatch": {"enabled": False}}
    words = await refusal(workspace, "*** Delete File: a.txt", tools={"exec": exec_})
    assert "tools.exec.applyPatch.enabled is false" in words
