"""What a sub-agent is handed along with its task: files, a worktree, a directory."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.test_delegation import Answer, is_child, last_text, model_of, refusal, runs_of, spawn
from tests.test_worktrees import make_repository

from clawkit import Agent, spawn_setup
from clawkit.content import Assistant, Text, ToolResult
from clawkit.errors import ToolError, ToolInputError
from clawkit.models.protocols import Request
from clawkit.sessions.subagent_protocols import Attachment, SpawnRequest
from clawkit.testing import Gate, ScriptedModel, call, calls

FILES = [
    {"name": "notes.txt", "content": "the word is heron", "mimeType": "text/plain"},
    {"name": "raw.bin", "content": "AAEC", "encoding": "base64"},
]


def config(sandbox: dict[str, Any] | None = None, **attachments: Any) -> dict[str, Any]:
    return {
        "tools": {
            "sessions_spawn": {"attachments": {"enabled": True, **attachments}},
            "subagents": {"tools": {"alsoAllow": ["exec", "write"]}},
        },
        "agents": {"defaults": {"sandbox": sandbox or {}}},
    }


def attached(home: Path) -> list[str]:
    return sorted(each.name for each in (home / "attachments").glob("*/*"))


def path_in(request: Request, name: str) -> str:
    [line] = [each for each in request.system.splitlines() if each.endswith(f"/{name}")]
    return line.removeprefix("- ")


def reading(home: Path, seen: list[Any]) -> Any:
    """A sub-agent that reads its first file, by a tool and by a command."""

    def child(request: Request) -> Answer:
        place = path_in(request, "notes.txt")
        done = [each for each in request.messages if isinstance(each, ToolResult)]
        if not done:
            seen.append(attached(home))
            return call("read", {"path": place})
        seen.append(last_text(request))
        if len(done) == 1:
            return call("exec", {"command": f"cat '{place}'; echo x > '{place}'; echo code=$?"})
        if len(done) == 2:
            return call("write", {"path": place, "content": "other"})
        return "read it"

    return child


@pytest.fixture
def home() -> Path:
    return Path(os.environ["CLAWKIT_HOME"])


@pytest.mark.parametrize(
    "sandbox",
    [
        {"mode": "auto", "backend": "landlock"},
        {"mode": "auto", "backend": "bwrap"},
        {"mode": "all", "backend": "landlock", "workspaceAccess": "none"},
        {"mode": "all", "backend": "bwrap", "workspaceAccess": "ro"},
        {"mode": "all", "backend": "bwrap", "workspaceAccess": "rw"},
    ],
)
async def test_a_sub_agent_can_read_its_files_and_not_change_them(
    workspace: Path, home: Path, sandbox: dict[str, Any]
) -> None:
    seen: list[Any] = []
    before = sorted(workspace.rglob("*"))
    mount = {"mountPath": "/in"}
    asked = spawn(attachments=FILES, attachAs=mount)
    model = model_of([asked, "waiting", "ok"], reading(home, seen))
    async with Agent.open(config(sandbox), workspace=workspace, model=model, owner=True) as agent:
        await agent.work("go")
        [run] = runs_of(agent)
        assert (run.status, run.text) == ("completed", "read it"), run
        [result] = [
            each.details
            for each in agent.conversation.history
            if isinstance(each, ToolResult) and each.tool == "sessions_spawn"
        ]
    listing, by_tool, by_command, written = seen
    assert listing == [".manifest.json", "notes.txt", "raw.bin"]
    assert "the word is heron" in by_tool
    assert "the word is heron" in by_command
    assert "code=1" in by_command
    assert "other" not in written
    about = result["attachments"]
    assert (about["count"], about["totalBytes"]) == (2, 20)
    assert [(each["name"], each["bytes"]) for each in about["files"]] == [
        ("notes.txt", 17),
        ("raw.bin", 3),
    ]
    assert about["relDir"].startswith("attachments/")
    # What was there for the task is gone with it, and nothing was ever in the workspace.
    assert attached(home) == []
    assert sorted(workspace.rglob("*")) == before
    assert any("call it /in)" in each.system for each in model.requests if is_child(each))


async def test_another_session_cannot_read_the_files(workspace: Path, home: Path) -> None:
    seen: list[str] = []
    gate = Gate("done")

    def parent(request: Request) -> Answer:
        [place] = (home / "attachments").glob("*/notes.txt")
        return call("read", {"path": str(place)})

    def after(request: Request) -> Answer:
        seen.append(last_text(request))
        return "ok"

    model = model_of([spawn(attachments=FILES), parent, after, "ok"], lambda _: gate)
    async with Agent.open(config(), workspace=workspace, model=model) as agent:
        await agent.send("go")
        gate.release()
        await agent.settle()
    assert "outside the workspace" in seen[0]


@pytest.mark.parametrize(
    ("cleanup", "retain", "answer", "left"),
    [
        ("keep", False, "done", 0),
        ("keep", True, "done", 3),
        ("delete", True, "done", 0),
        ("delete", True, "", 0),
        ("keep", False, "", 0),
    ],
)
async def test_attached_files_are_kept_only_if_configured(
    workspace: Path, home: Path, cleanup: str, retain: bool, answer: str, left: int
) -> None:
    asked = spawn(attachments=FILES, cleanup=cleanup)
    model = model_of([asked, "waiting", "ok"], lambda _: answer)
    settings = config(retainOnSessionKeep=retain)
    async with Agent.open(settings, workspace=workspace, model=model) as agent:
        await agent.work("go")
        assert len(attached(home)) == left
        [run] = runs_of(agent)
        assert agent.store is not None
        if agent.store.find(run.session):
            agent.store.delete(run.session)
        assert attached(home) == []


async def test_files_of_a_task_that_never_began_are_removed(workspace: Path, home: Path) -> None:
    settings = config()
    settings["agents"]["defaults"]["subagents"] = {"maxConcurrent": 1}
    gate = Gate("late")
    model = model_of([spawn(), spawn(label="b", attachments=FILES), "ok"], lambda _: gate)
    async with Agent.open(settings, workspace=workspace, model=model) as agent:
        await agent.send("go")
        assert len(attached(home)) == 3
        assert agent.delegation is not None
        await agent.delegation.cancel(agent.delegation.find("b"), "the test")
        assert attached(home) == []


async def test_contents_are_not_in_the_transcript(workspace: Path) -> None:
    model = model_of([spawn(attachments=FILES), "waiting", "ok"], lambda _: "done")
    async with Agent.open(config(), workspace=workspace, model=model, session="s") as agent:
        await agent.work("go")
    model = ScriptedModel("again")
    async with Agent.open(config(), workspace=workspace, model=model, session="s") as agent:
        await agent.send("and?")
        [asked] = [
            each.calls[0].arguments
            for each in agent.conversation.history
            if isinstance(each, Assistant) and each.calls
        ]
    assert isinstance(asked, dict)
    assert asked["attachments"] == "[left out: contents of attachments are not stored]"
    assert "heron" not in json.dumps(asked)


@pytest.mark.parametrize(
    ("settings", "params", "words"),
    [
        (
            {"tools": {}},
            {"attachments": FILES},
            "not enabled (tools.sessions_spawn.attachments.enabled)",
        ),
        (config(maxFiles=1), {"attachments": FILES}, "attachments_file_count_exceeded: maxFiles=1"),
        (config(maxFileBytes=5), {"attachments": FILES}, "attachments_file_bytes_exceeded"),
        (config(maxTotalBytes=18), {"attachments": FILES}, "attachments_total_bytes_exceeded"),
        (config(), {"attachments": [{"name": "../x", "content": ""}]}, "attachments_invalid_name"),
        (config(), {"attachments": [{"name": "x"}]}, "content: missing"),
        (
            config({"mode": "auto", "backend": "docker"}),
            {"attachments": FILES},
            "cannot be mounted into the sandbox of 'main': its backend is 'docker'",
        ),
        (config({"backend": "ssh"}), {"attachments": FILES}, "its backend is 'ssh'"),
    ],
)
async def test_invalid_attachments_are_refused(
    workspace: Path, home: Path, settings: dict[str, Any], params: dict[str, Any], words: str
) -> None:
    model = model_of([spawn(**params), "ok"], lambda _: "x")
    async with Agent.open(settings, workspace=workspace, model=model, sandboxed=False) as agent:
        await agent.send("go")
        assert words in refusal(agent)
        assert runs_of(agent) == []
    assert not (home / "attachments").exists()


async def test_files_that_cannot_be_stored_leave_no_run(workspace: Path, home: Path) -> None:
    (home / "attachments").write_text("in the way")
    model = model_of([spawn(attachments=FILES), "ok"], lambda _: "x")
    async with Agent.open(config(), workspace=workspace, model=model) as agent:
        await agent.send("go")
        assert "attachments_materialization_failed" in refusal(agent)
        assert runs_of(agent) == []
        assert agent.store is not None
        assert [each.id for each in agent.store.recent(limit=9)] == [agent.session_id]


async def test_a_program_can_attach_files(workspace: Path) -> None:
    model = ScriptedModel(then=lambda request: str("/a.txt" in request.system))
    async with Agent.open(config(), workspace=workspace, model=model) as agent:
        assert await agent.spawn("t", attachments=(Attachment("a.txt", "x"),)) == "True"
    async with Agent.open({}, workspace=workspace, model=model) as agent:
        assert agent.delegation is not None
        with pytest.raises(ToolError, match="not enabled"):
            agent.delegation.spawn(SpawnRequest("t", attachments=(Attachment("a.txt", "x"),)))


# Worktrees


def with_commands(backend: str = "bwrap", **more: Any) -> dict[str, Any]:
    return {
        "tools": {"subagents": {"tools": {"alsoAllow": ["exec", "write"]}}, **more},
        "agents": {"defaults": {"sandbox": {"backend": backend}}},
    }


def in_order(*answers: Answer) -> Any:
    """A sub-agent that does one thing after another."""
    left = list(answers)
    return lambda _request: left.pop(0)


def worktrees(home: Path) -> list[Path]:
    return sorted((home / "worktrees").glob("*/*"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


@pytest.mark.parametrize(
    "sandbox",
    [
        {"backend": "landlock"},
        {"backend": "bwrap"},
        {"mode": "all", "backend": "bwrap", "workspaceAccess": "rw"},
    ],
)
async def test_a_sub_agent_works_in_a_worktree_and_its_changes_come_back(
    project: Path, home: Path, sandbox: dict[str, Any]
) -> None:
    seen: list[str] = []
    config_before = (project / ".git" / "config").read_text()
    attack = f"echo x > {project}/.git/hooks/pre-commit; echo x >> {project}/.git/config; "
    attack += "echo x > ../git/config; touch ../mine; "
    child = in_order(
        call("write", {"path": "src/new.py", "content": "print(2)\n"}),
        call("exec", {"command": f"{attack}echo two >> a.txt; pwd"}),
        "done",
    )

    def apply(request: Request) -> Answer:
        text = last_text(request)
        patch = text.rpartition(" apply ")[2].splitlines()[0]
        assert "> +two" in text
        seen.append(text)
        return calls(
            ("read", {"path": patch}), ("exec", {"command": f"git apply {patch} && cat a.txt"})
        )

    def look(request: Request) -> Answer:
        seen.extend(
            each.content[0].text
            for each in request.messages[-2:]
            if isinstance(each, ToolResult) and isinstance(each.content[0], Text)
        )
        return "applied"

    model = model_of([spawn(worktree=True), "waiting", apply, look], child)
    settings = with_commands()
    settings["agents"]["defaults"]["sandbox"] = sandbox
    async with Agent.open(settings, workspace=project, model=model, owner=True) as agent:
        await agent.work("go")
        [run] = runs_of(agent)
    message, patch, applied = seen
    assert (run.status, run.text) == ("completed", "done")
    [place] = worktrees(home)
    assert f"which is kept: {place}/tree" in message
    assert "+print(2)" in patch
    assert "one\ntwo" in applied
    assert (project / "src" / "new.py").read_text() == "print(2)\n"
    assert (project / ".git" / "config").read_text() == config_before
    assert not (project / ".git" / "hooks" / "pre-commit").exists()
    assert sorted(os.listdir(place)) == ["changes.patch", "git", "tree"]
    assert "x" not in (place / "git" / "config").read_text().split()


async def test_a_worktree_without_changes_goes_with_the_run(project: Path, home: Path) -> None:
    (project / "a.txt").write_text("not committed\n")
    model = model_of(
        [spawn(worktree=True, cleanup="delete"), "waiting", "ok"],
        in_order(call("read", {"path": "a.txt"}), lambda request: last_text(request)),
    )
    async with Agent.open({}, workspace=project, model=model) as agent:
        await agent.work("go")
        [run] = runs_of(agent)
        [result] = [each for each in agent.conversation.history if isinstance(each, ToolResult)]
    assert "one" in run.text
    assert run.changes.startswith("It changed nothing in its worktree")
    assert result.details["worktree"]["uncommitted"] is False
    assert isinstance(result.content[0], Text)
    assert "does not have uncommitted changes" in result.content[0].text
    assert worktrees(home) == []


async def test_a_worktree_that_is_kept_is_reported_in_any_case(project: Path) -> None:
    child = in_order(call("write", {"path": "new.txt", "content": "x\n"}), "ANNOUNCE_SKIP")
    model = model_of([spawn(worktree=True), "waiting", "ok"], child)
    async with Agent.open(with_commands(), workspace=project, model=model) as agent:
        await agent.work("go")
        assert any("which is kept" in last_text(each) for each in model.requests)


async def test_changes_of_a_run_that_is_stopped_are_kept(project: Path, home: Path) -> None:
    gate = Gate("late")
    child = in_order(call("write", {"path": "new.txt", "content": "half\n"}), gate)
    model = model_of([spawn(worktree=True), "waiting", "ok"], child)
    async with Agent.open(with_commands(), workspace=project, model=model) as agent:
        await agent.send("go")
        await gate.reached.wait()
        assert agent.delegation is not None
        await agent.delegation.cancel(None, "the test")
        [run] = runs_of(agent)
    assert run.status == "cancelled"
    assert "> +half" in run.changes
    assert len(worktrees(home)) == 1


@pytest.mark.parametrize("effect", ["ask", "deny"])
@pytest.mark.parametrize(
    ("rule", "status"),
    [("{project}/src/**", "failed"), ("src/**", "completed"), ("/elsewhere/**", "completed")],
)
async def test_a_rule_about_a_file_is_not_passed_by_its_copy(
    project: Path, home: Path, rule: str, status: str, effect: str
) -> None:
    rules = [{"tool": "read", "params": {"path": rule.format(project=project)}, "effect": effect}]
    child = in_order(call("read", {"path": "src/b.py"}), lambda request: last_text(request))
    model = model_of([spawn(worktree=True), "waiting", "ok"], child)
    settings = with_commands(rules=rules)
    async with Agent.open(settings, workspace=project, model=model) as agent:
        await agent.work("go")
        [run] = runs_of(agent)
    assert run.status == status, run
    assert ("print()" in run.text) == (rule == "/elsewhere/**")
    assert worktrees(home) == []


@pytest.mark.parametrize(
    ("sandbox", "words"),
    [
        ({}, "is not in a git repository"),
        ({"mode": "all", "backend": "bwrap"}, "sandbox.workspaceAccess is 'none'"),
        ({"workspaceAccess": "ro"}, "sandbox.workspaceAccess is 'ro'"),
    ],
)
async def test_a_worktree_that_is_not_possible_is_refused(
    workspace: Path, sandbox: dict[str, Any], words: str
) -> None:
    model = model_of([spawn(worktree=True), "ok"], lambda _: "x")
    async with Agent.open(config(sandbox), workspace=workspace, model=model) as agent:
        await agent.send("go")
        assert words in refusal(agent)
        assert runs_of(agent) == []


# A directory to begin in


@pytest.fixture
def rooms(workspace: Path) -> Path:
    for name in ("app/lib", "app/secret", "secret"):
        (workspace / name).mkdir(parents=True)
        (workspace / name / "f.txt").write_text(f"{name} heron\n")
    (workspace / ".git").mkdir()
    (workspace / "AGENTS.md").write_text("Rules of the house.\n")
    (workspace / "out").symlink_to("/etc")
    return workspace


async def run_in(
    rooms: Path, tools: list[tuple[str, dict[str, Any]]], cwd: str, **settings: Any
) -> tuple[list[str], str]:
    """What calls of a sub-agent come to, and its prompt."""
    seen: list[str] = []

    def child(request: Request) -> Answer:
        if len(seen) < len(tools) and not isinstance(request.messages[-1], ToolResult):
            return calls(*tools)
        seen.extend(
            "".join(part.text for part in each.content if isinstance(part, Text))
            for each in request.messages
            if isinstance(each, ToolResult)
        )
        return "done"

    asked = spawn(cwd=cwd) if cwd else spawn()
    model = model_of([asked, "waiting", "ok"], child)
    async with Agent.open(
        with_commands(**settings), workspace=rooms, model=model, owner=True
    ) as agent:
        await agent.work("go")
        [run] = runs_of(agent)
        assert run.status == "completed", run
    return seen, next(each.system for each in model.requests if is_child(each))


async def test_relative_paths_start_in_the_requested_directory(rooms: Path) -> None:
    tools: list[tuple[str, dict[str, Any]]] = [
        ("read", {"path": "lib/f.txt"}),
        ("ls", {}),
        ("exec", {"command": "pwd; cat lib/f.txt"}),
        ("exec", {"command": "pwd", "workdir": "lib"}),
        ("read", {"path": str(rooms / "secret" / "f.txt")}),
        ("read", {"path": "../secret/f.txt"}),
        ("find", {"pattern": "**/f.txt"}),
        ("grep", {"pattern": "lib heron"}),
        ("write", {"path": "new.txt", "content": "x"}),
    ]
    seen, prompt = await run_in(rooms, tools, "app")
    assert [each.splitlines()[0] for each in seen[2:4]] == [f"{rooms}/app", f"{rooms}/app/lib"]
    assert "app/lib heron" in seen[0]
    assert '"lib/"' in seen[1]
    assert "app/lib heron" in seen[2]
    assert all("secret heron" in each for each in seen[4:6])
    # What is found can be used as it is.
    assert f"{rooms}/app/lib/f.txt" in seen[6]
    assert f"{rooms}/secret" not in seen[6]
    assert f"{rooms}/app/lib/f.txt:1:" in seen[7]
    assert (rooms / "app" / "new.txt").read_text() == "x"
    assert f"Your working directory is {rooms}/app. " in prompt
    assert f"of the workspace '{rooms}'" in prompt
    assert "Rules of the house." in prompt


RULES = [
    {"tool": "*", "params": {"path": "secret/**"}, "effect": "deny"},
    {"tool": "exec", "params": {"workdir": "secret"}, "effect": "deny"},
]


@pytest.mark.parametrize(
    ("cwd", "tool", "params", "plain"),
    [
        ("secret", "read", {"path": "f.txt"}, {"path": "secret/f.txt"}),
        ("secret", "ls", {}, {"path": "secret"}),
        ("secret", "exec", {"command": "cat f.txt"}, {"command": "cat f.txt", "workdir": "secret"}),
        ("app", "read", {"path": "secret/f.txt"}, {"path": "app/secret/f.txt"}),
        ("app", "read", {"path": "../secret/f.txt"}, {"path": "secret/f.txt"}),
        (
            "app",
            "write",
            {"path": "../.git/config", "content": "x"},
            {"path": ".git/config", "content": "x"},
        ),
        (
            "app",
            "write",
            {"path": ".git/config", "content": "x"},
            {"path": "app/.git/config", "content": "x"},
        ),
        ("app", "read", {"path": "../../x"}, {"path": "../x"}),
        ("app", "read", {"path": "../out/passwd"}, {"path": "out/passwd"}),
        ("app", "read", {"path": "~/x"}, {"path": "~/x"}),
        ("app", "read", {"path": ""}, {"path": ""}),
        ("app", "exec", {"command": "echo x > ../../x"}, {"command": "echo x > ../x"}),
    ],
)
async def test_rules_roots_and_protection_mean_the_same_in_another_directory(
    rooms: Path, cwd: str, tool: str, params: dict[str, Any], plain: dict[str, Any]
) -> None:
    [there], _ = await run_in(rooms, [(tool, params)], cwd, rules=RULES)
    [here], _ = await run_in(rooms, [(tool, plain)], "", rules=RULES)

    def kind(text: str) -> list[str]:
        words = ("heron", "denies", "outside", "protected", "this needs a person", "no output")
        return [each for each in (*words, "empty", "Read-only", "Permission") if each in text]

    assert kind(there) == kind(here) != [], (there, here)
    assert not (rooms.parent / "x").exists()
    assert not list(rooms.glob("**/.git/config"))


@pytest.mark.parametrize(
    ("params", "settings", "words"),
    [
        ({"cwd": ".."}, {}, "is not a directory in the workspace"),
        ({"cwd": "/etc"}, {}, "is not a directory in the workspace"),
        ({"cwd": "out"}, {}, "is not a directory in the workspace"),
        ({"cwd": "~"}, {}, "is not a directory in the workspace"),
        ({"cwd": "missing"}, {}, "is not a directory"),
        ({"cwd": "app/lib/f.txt"}, {}, "is not a directory"),
        ({"cwd": "a\0b"}, {}, "is not a usable path"),
        ({"cwd": "app"}, {"workspaceAccess": "ro"}, "sandbox has another workspace"),
        ({"cwd": "app", "agentId": "b"}, {}, "'b' has its own workspace"),
    ],
)
async def test_directories_outside_the_workspace_are_refused(
    rooms: Path, tmp_path: Path, params: dict[str, Any], settings: dict[str, Any], words: str
) -> None:
    agents = {
        "defaults": {"sandbox": settings, "subagents": {"allowAgents": ["*"]}},
        "list": [{"id": "main"}, {"id": "b", "workspace": str(tmp_path)}],
    }
    model = model_of([spawn(**params), "ok"], lambda _: "x")
    async with Agent.open({"agents": agents}, workspace=rooms, model=model) as agent:
        await agent.send("go")
        assert words in refusal(agent)
        assert runs_of(agent) == []


@pytest.mark.parametrize(
    ("cwd", "words"),
    [("src", "src/b.py"), ("{project}/src", "in the workspace"), ("gone", "is not a directory")],
)
async def test_the_directory_of_a_task_is_inside_its_worktree(
    project: Path, home: Path, cwd: str, words: str
) -> None:
    (project / "gone").mkdir()
    child = in_order(call("find", {"pattern": "*.py"}), lambda request: last_text(request))
    asked = spawn(worktree=True, cwd=cwd.format(project=project))
    model = model_of([asked, "waiting", "ok"], child)
    async with Agent.open({}, workspace=project, model=model) as agent:
        await agent.work("go")
        runs = runs_of(agent)
        said = runs[0].text + runs[0].error if runs else refusal(agent)
    assert words in said
    assert worktrees(home) == []


def test_a_directory_outside_the_workspace_is_inherited_but_not_named(tmp_path: Path) -> None:
    """Settings may let the tools of the requester work there."""
    assert spawn_setup.resolve_cwd(str(tmp_path), "/usr", "") == "/usr"
    with pytest.raises(ToolInputError, match="is not a directory in the workspace"):
        spawn_setup.resolve_cwd(str(tmp_path), "/usr", "lib")
