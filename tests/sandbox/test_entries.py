"""What an allowlist entry lets run on the host is confined to what the entry grants."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.patient import open_patient_kit

from clawkit.approvals.entries import read_entry
from clawkit.approvals.file import add_entry
from clawkit.config.paths import approvals_file

OFF = {"agents": {"defaults": {"sandbox": {"mode": "off"}}}}
NON_MAIN = {"agents": {"defaults": {"sandbox": {"mode": "non-main"}}}}


async def say(
    workspace: Path, command: str, *entries: Any, config: dict[str, Any] | None = None
) -> str:
    """What a command says, with these entries."""
    for entry in entries:
        add_entry(approvals_file(os.environ), "*", read_entry(entry))
    async with open_patient_kit(workspace, config=OFF if config is None else config) as kit:
        return (await kit.call("exec", {"command": command})).as_text()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory that clawkit's own does not lie in."""
    place = tmp_path / "ann"
    place.mkdir()
    monkeypatch.setenv("HOME", str(place))
    return place


@pytest.fixture
def secret(home: Path) -> Path:
    path = home / ".aws/credentials"
    path.parent.mkdir()
    path.write_text("hunter2\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("config", [OFF, NON_MAIN, {}])
async def test_a_listed_command_works_in_the_workspace(
    workspace: Path, config: dict[str, Any]
) -> None:
    assert "alpha" in await say(workspace, "cat a.txt", "cat", config=config)
    await say(workspace, "cp a.txt b.txt", "cp", config=config)
    assert (workspace / "b.txt").exists()


async def test_a_secret_path_needs_a_grant(workspace: Path, secret: Path) -> None:
    assert "hunter2" not in await say(workspace, f"cat {secret}", "cat")
    granted = {"pattern": "/usr/bin/tac", "grants": {"read": ["~/.aws"]}}
    assert "hunter2" in await say(workspace, f"tac {secret}", granted)


async def test_a_path_outside_the_workspace_needs_a_grant(workspace: Path, home: Path) -> None:
    out = home / "out"
    out.mkdir()
    await say(workspace, f"cp a.txt {out}/one", "cp")
    assert not (out / "one").exists()
    granted = {"pattern": "/usr/bin/install", "grants": {"write": ["~/out"]}}
    await say(workspace, f"install a.txt {out}/two", granted)
    assert (out / "two").exists()


async def test_parts_with_different_grants_do_not_share_them(workspace: Path, secret: Path) -> None:
    granted = {"pattern": "/usr/bin/tac", "grants": {"read": ["~/.aws"]}}
    said = await say(workspace, f"tac a.txt; cat {secret}", granted, "cat")
    assert "different grants" in said
    assert "hunter2" not in said


@pytest.fixture
def ssh_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    path = tmp_path / "agent.sock"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.PIPE)
    assert agent.stdout is not None
    agent.stdout.readline()  # it says where it listens
    monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
    yield
    agent.terminate()
    agent.communicate()


@pytest.mark.usefixtures("ssh_agent")
async def test_the_ssh_agent_needs_a_grant(workspace: Path) -> None:
    assert "no identities" not in await say(workspace, "ssh-add -l", "ssh-add")
    granted = {"pattern": "/usr/bin/ssh-add", "args": {}, "grants": {"sockets": True}}
    assert "no identities" in await say(workspace, "/usr/bin/ssh-add -l", granted)


async def test_hooks_of_a_repository_that_is_pushed_to_do_not_run(
    workspace: Path,
) -> None:
    """git clears the settings of its caller for the git at the other end, here the same machine."""
    git = ("git", "-c", "user.name=n", "-c", "user.email=e", "-C", str(workspace))
    for words in (
        ("init", "-q", "-b", "main"),
        ("commit", "-q", "--allow-empty", "-m", "m"),
        ("init", "-q", "--bare", "other"),
        ("remote", "add", "origin", "other"),
    ):
        subprocess.run([*git, *words], check=True)
    hook = workspace / "other/hooks/post-receive"
    hook.write_text(f"#!/bin/sh\ntouch {workspace}/pwned\n", encoding="utf-8")
    hook.chmod(0o755)
    for remote in ("other", "origin"):
        command = f"git push {remote} main"
        said = await say(workspace, command, {"pattern": "/usr/bin/git", "args": "git"})
        assert "transport 'file' not allowed" in said
    assert not (workspace / "pwned").exists()
