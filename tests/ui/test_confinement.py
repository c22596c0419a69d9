"""Where commands run, in the status line; and what the greeting says about the workspace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_sandbox import BACKENDS
from tests.ui.test_commands import Chat, Nobody

from clawkit.agent_session import Agent
from clawkit.testing import ScriptedModel
from clawkit.ui import commands


def open_talk(workspace: Path, config: dict[str, Any]) -> Chat:
    agent = Agent.open(
        config, workspace=workspace, owner=True, approver=Nobody(), model=ScriptedModel()
    )
    return Chat(lambda _: agent)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_the_sandbox_is_named_once_it_is_known(workspace: Path, backend: str) -> None:
    config = {"agents": {"defaults": {"sandbox": {"backend": backend}}}}
    talk = open_talk(workspace, config)
    assert talk.describe_commands() == "asks on-miss"
    await talk.look()
    assert talk.describe_commands() == f"sandbox: {backend}, no network"
    await talk.agent.close()


@pytest.mark.parametrize(
    ("sandbox", "execution", "words", "reason"),
    [
        ({"mode": "off"}, {}, "no sandbox: commands need approval", "sandbox.mode is 'off'"),
        ({"mode": "off"}, {"ask": "off"}, "no sandbox: allowlist only", "sandbox.mode is 'off'"),
        ({}, {"host": "gateway"}, "no sandbox: commands need approval", ""),
        ({}, {"mode": "full"}, "no sandbox: all commands run", ""),
        ({}, {"security": "full", "ask": "always"}, "asks always", ""),
        ({}, {"mode": "deny"}, "no commands", ""),
    ],
)
async def test_a_missing_sandbox_is_stated_plainly(
    workspace: Path, sandbox: dict[str, str], execution: dict[str, str], words: str, reason: str
) -> None:
    config = {"agents": {"defaults": {"sandbox": sandbox}}, "tools": {"exec": execution}}
    talk = open_talk(workspace, config)
    await talk.look()
    assert talk.describe_commands() == words
    assert talk.describe_commands(why=True).startswith(f"{words} ({reason}" if reason else words)
    await talk.agent.close()


async def test_the_network_and_questions_are_named(workspace: Path) -> None:
    config = {
        "agents": {"defaults": {"sandbox": {"network": "full"}}},
        "tools": {"exec": {"ask": "always"}},
    }
    talk = open_talk(workspace, config)
    await talk.look()
    assert talk.describe_commands().endswith(", with network, asks always")
    await commands.run(talk, "/status")
    assert f"isolation  {talk.describe_commands()}" in talk.text
    await talk.agent.close()
