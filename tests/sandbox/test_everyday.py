"""Everyday commands run unasked, confined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.patient import open_patient_kit
from tests.tables import table

from clawkit.agent_session import Agent
from clawkit.approvals.protocols import Admitted, ExecGate, ExecRequest, Waiting
from clawkit.runtime import Toolkit
from clawkit.sandbox.confinement import choose
from clawkit.testing.answers import ScriptedModel

COMMANDS = [
    line
    for line in (Path(__file__).parent / "everyday.txt").read_text(encoding="utf-8").split("\n")
    if line and not line.startswith("#")
]


async def ready(_scripts: object) -> None:
    return None


async def admit(kit: Toolkit, command: str) -> str:
    """Where a command would run."""
    gate: Any = kit.run.services[ExecGate]
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(Path.home())}
    request = ExecRequest(command, kit.workspace, env, wanted="auto")
    admitted: Admitted | Waiting = await gate.admit(request, ready)
    assert isinstance(admitted, Admitted)
    assert admitted.hold is not None
    return str(admitted.host)


async def test_everyday_commands_need_no_approval(workspace: Path, tmp_path: Path) -> None:
    assert len(COMMANDS) == 100
    async with open_patient_kit(workspace) as kit:
        places = [await admit(kit, command) for command in COMMANDS]
    assert places == ["sandbox"] * 100


@pytest.mark.parametrize("backend", ["bwrap", "landlock"])
async def test_an_agent_works_in_a_project_without_approval(workspace: Path, backend: str) -> None:
    (workspace / "test_total.py").write_text("def test_total():\n    assert 1 + 1 == 2\n")
    (workspace / "Makefile").write_text("all:\n\techo built > out\n")
    config = {"agents": {"defaults": {"sandbox": {"backend": backend}}}}
    commands = {
        "git init -q . && git status --short": "?? a.txt",
        "ls": "Makefile",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 python3 -m pytest -q test_total.py": "1 passed",
        "make": "echo built",
        "sed -i s/alpha/omega/ a.txt && cat a.txt out": "omega\nbeta\nbuilt",
        "cp -r src copy && ls copy": "main.py",
    }
    async with open_patient_kit(workspace, config=config) as kit:
        for command, said in commands.items():
            result = await kit.call("exec", {"command": command})
            assert said in result.as_text(), result.as_text()
            assert result.details["exitCode"] == 0
            assert result.details["confined"] is True


async def test_a_configured_sandbox_that_cannot_be_used_is_an_error(workspace: Path) -> None:
    from clawkit.errors import ConfigError

    for settings in (
        {"mode": "all", "backend": "openshell"},
        {"backend": "crabbox"},
        {"mode": "all", "backend": "landlock", "network": "allowlist"},
    ):
        with pytest.raises(ConfigError, match="cannot be used"):
            open_patient_kit(workspace, config={"agents": {"defaults": {"sandbox": settings}}})


def test_the_strongest_backend_is_taken_and_others_are_explained(
    workspace: Path, tmp_path: Path
) -> None:
    from clawkit.config.load import loads

    def settings(text: str):  # type: ignore[no-untyped-def]
        return loads(text).config.agents.defaults.sandbox

    found = choose(settings("{}"), workspace=str(workspace), state=str(tmp_path / "s"))
    assert found.backend == "bwrap"
    named = '{agents: {defaults: {sandbox: {backend: "landlock"}}}}'
    found = choose(settings(named), workspace=str(workspace), state=str(tmp_path / "s"))
    assert found.backend == "landlock"


@pytest.mark.parametrize("backend", ["bwrap", "landlock"])
async def test_a_configuration_in_the_workspace_stays_as_it_is(
    workspace: Path, backend: str
) -> None:
    config = workspace / "clawkit.json5"
    text = f'{{agents: {{defaults: {{sandbox: {{backend: "{backend}"}}}}}}}}'
    config.write_text(text, encoding="utf-8")
    async with Toolkit.open(config, workspace=workspace, owner=True) as kit:
        for command in (
            "echo '{tools: {exec: {mode: \"full\"}}}' > clawkit.json5",
            "rm clawkit.json5",
            "mv clawkit.json5 other && touch clawkit.json5",
            "cp a.txt new && mv new clawkit.json5",
        ):
            result = await kit.call("exec", {"command": command, "yieldMs": 120_000})
            assert config.read_text(encoding="utf-8") == text, result.as_text()


@pytest.mark.parametrize("workspace", ["/", "/usr", "/home"])
def test_a_directory_of_the_system_is_not_a_sandbox(workspace: str, tmp_path: Path) -> None:
    from clawkit.config.sections.sandbox import SandboxSettings

    found = choose(SandboxSettings(), workspace=workspace, state=str(tmp_path))
    assert found.backend is None
    assert "change the system" in found.reason


@table(
    "hosts",
    [
        {"allowHosts": ["https://example.org/x"]},
        {"allowHosts": ["10.0.0.1"]},
        {"allowPrivate": ["10.1.2.3:99999"]},
        {"allowPrivate": ["localhost:80"]},
    ],
)
def test_hosts_that_could_have_no_effect_are_configuration_errors(hosts: dict[str, Any]) -> None:
    from clawkit.config.load import loads
    from clawkit.errors import ConfigError

    with pytest.raises(ConfigError, match="invalid host"):
        loads(json.dumps({"agents": {"defaults": {"sandbox": hosts}}}))
    good = {"allowHosts": ["packages", "*.a.example:22"], "allowPrivate": ["10.1.2.3:80"]}
    assert loads(json.dumps({"agents": {"defaults": {"sandbox": good}}})).warnings == []


@pytest.mark.parametrize("backend", ["bwrap", "landlock"])
@pytest.mark.parametrize("access", ["ro", "rw"])
async def test_the_prompt_names_the_path_of_a_read_only_project(
    workspace: Path, backend: str, access: str
) -> None:
    settings = {"mode": "all", "backend": backend, "workspaceAccess": access}
    config = {"agents": {"defaults": {"sandbox": settings}}}
    async with Agent.open(config, workspace=workspace, keep=False, model=ScriptedModel()) as agent:
        told = f"The project is in {workspace.resolve()}; you can read it there" in agent.prompt()
    assert told is (access == "ro")


async def test_an_unknown_key_of_access_is_an_error_that_lists_the_known_ones(
    workspace: Path,
) -> None:
    async with open_patient_kit(workspace) as kit:
        given = {"command": "true", "access": {"host": ["example.org"]}}
        said = (await kit.call("exec", given)).as_text()
        assert "access.host: unknown parameter; known: hosts, read, write" in said
        assert (await kit.call("exec", {"command": "true", "access": None})).details[
            "exitCode"
        ] == 0
