"""Several agents: each has a workspace, model, prompt, tools and sandbox of its own, whether a
person talks to it or another agent starts it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.test_delegation import runs_of, spawn

from clawkit import Agent
from clawkit.testing import ScriptedModel, ScriptedServer

OWN = {
    "model": "mine/two",
    "identity": {"name": "Ada", "theme": "Dry humour."},
    "tools": {"deny": ["grep"]},
    "sandbox": {"mode": "all", "workspaceAccess": "rw"},
}


def config_of(form: str, server: ScriptedServer, place: Path) -> dict[str, Any]:
    helper = {**OWN, "workspace": str(place)}
    agents: dict[str, Any] = {"list": [{"id": "main"}, {"id": "helper", **helper}]}
    if form == "entries":
        agents = {"entries": {"main": {}, "Helper": helper}}
    defaults: dict[str, Any] = {"model": "mine/one", "sandbox": {"mode": "off"}}
    defaults["subagents"] = {"allowAgents": ["helper"]}
    provider = server.provider_config("anthropic-messages", models=["one", "two"])
    return {
        "models": {"providers": {"mine": provider}},
        "agents": {"defaults": defaults, **agents},
    }


@pytest.mark.parametrize("form", ["list", "entries"])
@pytest.mark.parametrize("way", ["open", "spawn"])
async def test_an_agent_has_its_own_files_model_and_tools(
    workspace: Path, tmp_path: Path, form: str, way: str
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (workspace / "AGENTS.md").write_text("The rules of main.")
    (other / "AGENTS.md").write_text("The rules of the helper.")
    async with ScriptedServer(then="done") as server:
        config = config_of(form, server, other)
        if way == "open":
            async with Agent.open(config, agent="helper") as agent:
                await agent.send("go")
                assert agent.session is not None
                key = agent.session.key
        else:
            model = ScriptedModel(spawn(agentId="helper"), "waiting", then="ok")
            async with Agent.open(config, workspace=workspace, model=model) as agent:
                await agent.work("go")
                [run] = runs_of(agent)
                assert agent.store is not None
                assert (run.status, run.error) == ("completed", "")
                key = agent.store.get(run.session).key
        [request] = server.requests
    assert key.startswith("agent:helper:")
    system, tools = json.dumps(request.body["system"]), request.body["tools"]
    assert request.body["model"] == "two"
    assert "You are Ada, an agent" in system
    assert "Dry humour." in system
    assert f"Your working directory is {other}." in system
    assert "You work in a sandbox" in system
    assert "The rules of the helper." in system
    assert "The rules of main." not in system
    names = {each["name"] for each in tools}
    assert "read" in names
    assert "grep" not in names


async def test_settings_of_one_agent_do_not_change_the_other(
    workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    async with ScriptedServer(then="done") as server:
        config = config_of("list", server, tmp_path / "other")
        async with Agent.open(config, workspace=workspace) as agent:
            await agent.send("go")
        [request] = server.requests
    system = json.dumps(request.body["system"])
    assert request.body["model"] == "one"
    assert "Ada" not in system
    assert "You work in a sandbox" not in system
    assert "grep" in {each["name"] for each in request.body["tools"]}
