"""Where commands run, in the status line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_sandbox import BACKENDS
from tests.ui.test_commands import Face, Nobody

from clawkit.agent_session import Agent
from clawkit.testing import ScriptedModel
from clawkit.ui import commands
from clawkit.ui.session import ChatSession, describe_commands, look


def open_talk(workspace: Path, config: dict[str, Any]) -> ChatSession:
    agent = Agent.open(
        config, workspace=workspace, owner=True, approver=Nobody(), model=ScriptedModel()
    )
    return ChatSession(agent, lambda _session: agent, lambda _agent: None)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_the_sandbox_is_named_once_it_is_known(workspace: Path, backend: str) -> None:
    config = {"agents": {"defaults": {"sandbox": {"backend": backend}}}}
    talk = open_talk(workspace, config)
    assert describe_commands(talk) == "asks on-miss"
    await look(talk)
    assert describe_commands(talk) == f"sandbox: {backend}, no network"
    await talk.agent.close()


@pytest.mark.parametrize(
    ("sandbox", "execution", "words"),
    [
        ({"mode": "off"}, {}, "no sandbox: commands ask"),
        ({"mode": "off"}, {"ask": "off"}, "no sandbox: allowlist only"),
        ({}, {"host": "gateway"}, "no sandbox: commands ask"),
        ({}, {"mode": "full"}, "no sandbox: all commands run"),
        ({}, {"security": "full", "ask": "always"}, "asks always"),
        ({}, {"mode": "deny"}, "no commands"),
    ],
)
async def test_no_sandbox_is_said_as_plainly(
    workspace: Path, sandbox: dict[str, str], execution: dict[str, str], words: str
) -> None:
    config = {"agents": {"defaults": {"sandbox": sandbox}}, "tools": {"exec": execution}}
    talk = open_talk(workspace, config)
    await look(talk)
    assert describe_commands(talk) == words
    await talk.agent.close()


async def test_the_network_and_questions_are_named(workspace: Path) -> None:
    config = {
        "agents": {"defaults": {"sandbox": {"network": "full"}}},
        "tools": {"exec": {"ask": "always"}},
    }
    talk = open_talk(workspace, config)
    await look(talk)
    assert describe_commands(talk).endswith(", with network, asks always")
    face = Face()
    await commands.run(talk, face, "/status")
    assert f"place      {describe_commands(talk)}" in face.text
    await talk.agent.close()
