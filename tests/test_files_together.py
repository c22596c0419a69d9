"""The file tools as a run has them: one after the other, side by side, with language servers."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.lsp.parts import TSC, need, need_python_servers

from clawkit import Toolkit
from clawkit.core.approval import Answer, Question
from clawkit.core.call import CallRequest
from clawkit.core.result import Result
from clawkit.testing import Events, ScriptedApprover, open_kit


def call(tool: str, **params: Any) -> CallRequest:
    return CallRequest(tool, params)


def patch_of(sections: str) -> str:
    return f"*** Begin Patch\n{sections}\n*** End Patch"


async def test_calls_of_one_message_on_one_file_run_in_order(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        for _ in range(20):
            results = await kit.call_all(
                [
                    call("write", path="a.txt", content="one\n"),
                    call("edit", path="./a.txt", oldText="one", newText="two"),
                    call("read", path=f"{tmp_path}/a.txt"),
                    call("edit", path="a.txt", oldText="two", newText="three"),
                    call("grep", pattern="three"),
                    call("write", path="a.txt", content="done\n"),
                ]
            )
            assert [result.is_error for result in results] == [False] * 6
            assert results[2].as_text() == "two"
            assert results[4].as_text() == "a.txt:1: three"
    assert (tmp_path / "a.txt").read_text() == "done\n"


async def test_calls_on_other_files_run_side_by_side(tmp_path: Path) -> None:
    events = Events()
    async with open_kit(tmp_path, on_event=events) as kit:
        await kit.call_all([call("write", path=f"{n}.txt", content="x") for n in range(5)])
    kinds = [event["type"] for event in events]
    assert kinds[:5] == ["start"] * 5


async def test_a_patch_waits_for_each_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("b\n")
    patch = patch_of("*** Update File: b.txt\n@@\n-b\n+c\n*** Add File: c.txt\n+c")
    async with open_kit(tmp_path) as kit:
        results = await kit.call_all(
            [
                call("apply_patch", input=patch),
                call("read", path="b.txt"),
                call("edit", path="c.txt", oldText="c", newText="d"),
            ]
        )
    assert [result.is_error for result in results] == [False] * 3
    assert results[1].as_text() == "c"
    assert (tmp_path / "c.txt").read_text() == "d\n"


def problems(result: Result) -> set[str]:
    assert not result.is_error, result.as_text()
    return {each["code"] for each in result.details["diagnostics"]["problems"]}


PATIENT = {"tools": {"fs": {"lsp": {"timeoutMs": 30_000}}}}


async def test_new_problems_in_a_python_file_are_reported_after_an_edit(tmp_path: Path) -> None:
    need_python_servers()
    (tmp_path / "a.py").write_text("import os\n\nprint(os.name)\nprint(old_problem)\n")
    async with open_kit(tmp_path, config=PATIENT) as kit:
        broken = await kit.call(
            "edit", {"path": "a.py", "oldText": "os.name", "newText": "new_problem"}
        )
        assert {"F821", "unresolved-reference"} <= problems(broken)
        assert "new_problem" in broken.as_text()
        assert "old_problem" not in broken.as_text()
        mended = await kit.call(
            "edit", {"path": "a.py", "oldText": "new_problem", "newText": "os.name"}
        )
        assert problems(mended) == set()


async def test_new_problems_in_a_typescript_file_are_reported_after_a_patch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(TSC)
    monkeypatch.setenv("PATH", f"{os.path.dirname(TSC)}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "tsconfig.json").write_text('{"compilerOptions": {"strict": true}}')
    (tmp_path / "a.ts").write_text("export const n: number = 1;\n")
    patch = (
        "*** Begin Patch\n*** Update File: a.ts\n@@\n-export const n: number = 1;\n"
        "+export const n: number = 'one';\n*** End Patch"
    )
    async with open_kit(tmp_path, config=PATIENT) as kit:
        result = await kit.call("apply_patch", {"input": patch})
        assert problems(result) == {"2322"}
        assert "a.ts:1:14: error: Type 'string' is not assignable" in result.as_text()
        written = await kit.call("write", {"path": "b.ts", "content": "let x: Missing;\n"})
        assert "2304" in problems(written)


async def test_language_servers_can_be_switched_off(tmp_path: Path) -> None:
    config = {"tools": {"fs": {"lsp": {"enabled": False}}}}
    async with open_kit(tmp_path, config=config) as kit:
        result = await kit.call("write", {"path": "a.py", "content": "print(nothing)\n"})
    assert "diagnostics" not in result.details


async def test_language_servers_end_when_the_kit_is_closed(tmp_path: Path) -> None:
    need_python_servers()
    before = children()
    async with open_kit(tmp_path, config=PATIENT) as kit:
        await kit.call("write", {"path": "a.py", "content": "print(nothing)\n"})
        assert children() > before
    async with asyncio.timeout(60):
        while not children() <= before:
            await asyncio.sleep(0.02)


def children() -> set[int]:
    me = os.getpid()
    path = f"/proc/{me}/task"
    return {
        int(pid)
        for task in os.listdir(path)
        for pid in Path(f"{path}/{task}/children").read_text().split()
    }


async def test_protected_files_are_changed_after_an_approval_only(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    approver = ScriptedApprover("allow", "no, thanks")
    hook = {"path": ".git/hooks/pre-commit", "content": "#!/bin/sh\n"}
    async with open_kit(tmp_path, approver=approver) as kit:
        assert not (await kit.call("write", hook)).is_error
        patch = (
            "*** Begin Patch\n*** Add File: a.txt\n+a\n*** Add File: .git/config\n+x\n*** End Patch"
        )
        refused = await kit.call("apply_patch", {"input": patch})
    assert refused.details["deniedReason"] == "approval"
    assert not (tmp_path / "a.txt").exists()
    assert ".git/hooks/pre-commit" in approver.requests[0].title
    assert approver.requests[1].asked_by == "tools.fs.protected"


async def test_protected_files_can_be_refused_outright(tmp_path: Path) -> None:
    approver = ScriptedApprover("allow")
    config = {"tools": {"fs": {"protected": "deny"}}}
    async with open_kit(tmp_path, config=config, approver=approver) as kit:
        result = await kit.call("write", {"path": ".git/config", "content": "x"})
    assert result.details["deniedReason"] == "protected"
    assert approver.requests == []


@pytest.mark.parametrize(("inner", "is_protected"), [(".", True), ("u", True), ("..", False)])
async def test_startup_files_are_protected_where_the_workspace_has_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inner: str, is_protected: bool
) -> None:
    (tmp_path / "ws" / "u").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "ws" / inner))
    approver = ScriptedApprover(*["no"] * 2)
    async with open_kit(tmp_path / "ws", approver=approver) as kit:
        for name in (".bashrc", ".vscode/tasks.json"):
            await kit.call("write", {"path": os.path.join(inner, name), "content": "x"})
            await kit.call("write", {"path": f"other/{name}", "content": "x"})
    titles = "".join(request.title for request in approver.requests)
    assert (".bashrc" in titles) is is_protected
    assert "other/.vscode/tasks.json" in titles
    assert (tmp_path / "ws/other/.bashrc").exists()


async def test_the_configuration_in_use_and_the_state_are_protected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "state"
    monkeypatch.setenv("CLAWKIT_HOME", str(home))
    file = tmp_path / "mine.json5"
    file.write_text('{$include: "./more.json5"}')
    (tmp_path / "more.json5").write_text("{}")
    async with Toolkit.open(file, workspace=tmp_path, owner=True) as kit:
        for path in ("mine.json5", "more.json5", "state/cron.sqlite", "state/new/x"):
            result = await kit.call("write", {"path": path, "content": "{ }"})
            assert result.details["deniedReason"] == "approval-unavailable", path
        assert not (await kit.call("write", {"path": "other.json5", "content": "{}"})).is_error
    inside = home / "workspace"
    inside.mkdir(parents=True)
    async with Toolkit.open(file, workspace=inside, owner=True) as kit:
        assert not (await kit.call("write", {"path": "a.txt", "content": "x"})).is_error


async def test_roots_can_be_opened_for_reading_and_for_writing(tmp_path: Path) -> None:
    ws, book, draft = (tmp_path / name for name in ("ws", "book", "draft"))
    for place in (ws, book, draft):
        place.mkdir()
        (place / "f.txt").write_text(f"{place.name}\n")
    config = {"tools": {"fs": {"readRoots": [str(book)], "writeRoots": ["../draft"]}}}
    async with open_kit(ws, config=config) as kit:
        for place in (book, draft):
            assert (await kit.call("read", {"path": f"{place}/f.txt"})).as_text() == place.name
            found = await kit.call("grep", {"pattern": ".", "path": str(place)})
            assert place.name in found.as_text()
        refused = await kit.call("write", {"path": f"{book}/f.txt", "content": "x"})
        assert refused.details["deniedReason"] == "read-only"
        written = await kit.call("write", {"path": f"{draft}/f.txt", "content": "x"})
        assert not written.is_error
        patch = f"*** Begin Patch\n*** Add File: {draft}/g.txt\n+x\n*** End Patch"
        held = await kit.call("apply_patch", {"input": patch})
        assert held.details["deniedReason"] == "outside-workspace"
    config["tools"]["exec"] = {"applyPatch": {"workspaceOnly": False}}  # type: ignore[dict-item]
    async with open_kit(ws, config=config) as kit:
        assert not (await kit.call("apply_patch", {"input": patch})).is_error
    assert (draft / "g.txt").read_text() == "x\n"


async def test_without_the_workspace_limit_files_outside_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "f.txt").write_text("out\n")
    config = {"tools": {"fs": {"workspaceOnly": False}}}
    async with open_kit(tmp_path / "ws", config=config) as kit:
        assert (await kit.call("read", {"path": "../f.txt"})).as_text() == "out"
        assert not (await kit.call("write", {"path": "../g.txt", "content": "x"})).is_error
        assert (await kit.call("find", {"pattern": "*.txt", "path": ".."})).details["shown"] == 2


async def test_rules_about_paths_hold_for_patches_and_for_what_grep_finds(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "a.txt").write_text("needle\n")
    (tmp_path / "b.txt").write_text("needle\n")
    rules = [{"tool": "group:fs", "params": {"path": "secret/*"}, "effect": "deny"}]
    async with open_kit(tmp_path, config={"tools": {"rules": rules}}) as kit:
        found = await kit.call("grep", {"pattern": "needle"})
        assert "b.txt:1: needle" in found.as_text()
        assert "secret" not in found.as_text().splitlines()[0]
        assert "secret/a.txt" not in json.dumps(found.to_json())
        patch = "*** Begin Patch\n*** Delete File: secret/a.txt\n*** End Patch"
        refused = await kit.call("apply_patch", {"input": patch})
    assert refused.details["deniedReason"] == "rule"
    assert (tmp_path / "secret" / "a.txt").exists()


async def test_a_read_only_sandbox_has_no_tools_that_change_files(tmp_path: Path) -> None:
    config = {"agents": {"defaults": {"sandbox": {"workspaceAccess": "ro"}}}}
    kit = open_kit(tmp_path, config=config, sandboxed=True)
    assert {tool.name for tool in kit.tools}.isdisjoint(("write", "edit", "apply_patch"))
    result = await kit.call("write", {"path": "a", "content": "x"})
    assert "read-only" in result.as_text()
    assert result.details["status"] == "blocked"
    assert "write" in {tool.name for tool in open_kit(tmp_path, config=config).tools}


@pytest.mark.parametrize(
    ("model", "settings", "offered"),
    [
        (None, {}, True),
        ("openai/gpt-5.2", {}, True),
        ("anthropic/claude-opus-4-6", {}, False),
        ("anthropic/claude-opus-4-6", {"enabled": True}, True),
        ("anthropic/claude-opus-4-6", {"allowModels": ["Claude-Opus-4-6"]}, True),
        ("openai/gpt-5.2", {"enabled": False}, False),
    ],
)
def test_apply_patch_is_offered_according_to_model_and_settings(
    tmp_path: Path, model: str | None, settings: dict[str, Any], offered: bool
) -> None:
    config = {"tools": {"exec": {"applyPatch": settings}}}
    kit = open_kit(tmp_path, config=config, model=model)
    assert ("apply_patch" in {tool.name for tool in kit.tools}) is offered
    if not offered:
        assert "tools.exec.applyPatch" in kit.assembly.refused["apply_patch"]


async def test_a_person_sees_every_protected_file_they_release(tmp_path: Path) -> None:
    def sections(count: int, name: str) -> str:
        return "\n".join(f"*** Add File: .git/hooks/{name}{n}\n+x" for n in range(count))

    approver = ScriptedApprover("allow", "allow")
    async with open_kit(tmp_path, approver=approver) as kit:
        assert not (await kit.call("apply_patch", {"input": patch_of(sections(10, "h"))})).is_error
        assert all(f"hooks/h{n}'" in approver.requests[0].title for n in range(10))
        more = patch_of(sections(11, "i"))
        refused = await kit.call("apply_patch", {"input": more})
    assert refused.details["deniedReason"] == "protected"
    assert len(approver.requests) == 1


@pytest.mark.parametrize("name", ["config", "hooks/pre-commit"])
async def test_links_do_not_bypass_the_protection(tmp_path: Path, name: str) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "shared" / "config").write_text("x")
    (tmp_path / ".git" / "config").symlink_to("../shared/config")
    (tmp_path / ".git" / "hooks").symlink_to("../shared")
    (tmp_path / "to-git").symlink_to(".git")
    (tmp_path / "to-hooks").symlink_to("to-git/hooks")
    (tmp_path / "deep").symlink_to(".git/deep")
    (tmp_path / ".git" / "deep").mkdir()
    paths = [
        f".git/{name}",
        f"deep/../{name}",
        f"to-git/{name}",
        f"to-{name}".replace("to-config", "to-git/config"),
    ]
    async with open_kit(tmp_path) as kit:
        for path in paths:
            result = await kit.call("write", {"path": path, "content": "y"})
            assert result.details.get("deniedReason") == "approval-unavailable", path
        assert not (await kit.call("write", {"path": "shared/other", "content": "y"})).is_error


async def test_a_configuration_behind_a_link_is_protected_under_both_names(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "c.json5").write_text("{}")
    (tmp_path / "mine.json5").symlink_to("real/c.json5")
    async with Toolkit.open(tmp_path / "mine.json5", workspace=tmp_path, owner=True) as kit:
        for path in ("mine.json5", "real/c.json5"):
            result = await kit.call("write", {"path": path, "content": "{ }"})
            assert result.details["deniedReason"] == "approval-unavailable"
            gone = patch_of(f"*** Delete File: {path}")
            result = await kit.call("apply_patch", {"input": gone})
            assert result.details["deniedReason"] == "approval-unavailable"
    assert (tmp_path / "mine.json5").is_symlink()


class Swapping:
    """An approver that allows the call after it has pointed a link elsewhere."""

    def __init__(self, link: Path, target: str) -> None:
        self._link, self._target = link, target

    async def ask(self, request: Question) -> Answer:
        self._link.unlink()
        self._link.symlink_to(self._target)
        return Answer("allow")


@pytest.mark.parametrize("target", ["closed", "open", ".git/info"])
async def test_an_approval_is_for_the_file_that_was_shown(tmp_path: Path, target: str) -> None:
    for folder in (".git/hooks", ".git/info", "closed", "open"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "d").symlink_to(".git/hooks")
    rules = [{"tool": "write", "params": {"path": "closed/*"}, "effect": "deny"}]
    approver = Swapping(tmp_path / "d", target)
    async with open_kit(tmp_path, config={"tools": {"rules": rules}}, approver=approver) as kit:
        result = await kit.call("write", {"path": "d/pre-commit", "content": "x"})
    assert result.is_error
    assert list(tmp_path.rglob("pre-commit")) == []
