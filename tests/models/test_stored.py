"""Credentials in files and behind names stay out of results, commands and transcripts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from clawkit import Toolkit
from clawkit.config.load import loads
from clawkit.models.providers import stored_secrets
from clawkit.store import write_atomic

KEY = "plain-otter-value-42"
OWN = {"baseUrl": "http://127.0.0.1:7/v1", "models": [{"id": "one"}]}


def found_in(home: Path, **files: Any) -> list[str]:
    folder = home / "agents" / "main" / "agent"
    folder.mkdir(parents=True)
    for name, value in files.items():
        text = value if isinstance(value, str) else json.dumps(value)
        (folder / f"{name.replace('_', '-')}.json").write_text(text)
    env = {"CLAWKIT_HOME": str(home), "PLACE": KEY, "OTHER": "no-secret-at-all"}
    found = stored_secrets(loads("{}", env=env).config, env)
    return [each for each in found if each]


@pytest.mark.parametrize(
    "profile",
    [
        {"type": "api_key", "provider": "openai", "key": KEY},
        {"type": "token", "token": KEY},
        {"type": "oauth", "access": KEY},
        {"type": "oauth", "refresh": KEY},
        {"type": "api_key", "keyRef": {"source": "env", "id": "PLACE"}},
    ],
)
def test_credentials_people_signed_in_with_are_known(tmp_path: Path, profile: Any) -> None:
    assert found_in(tmp_path, auth_profiles={"profiles": {"openai:default": profile}}) == [KEY]


@pytest.mark.parametrize(
    "more",
    [
        {"apiKey": KEY},
        {"apiKey": "${PLACE}"},
        {"apiKey": "PLACE"},
        {"apiKey": "$PLACE"},
        {"headers": {"X-Api-Key": KEY}},
        {"apiKey": {"source": "env", "id": "PLACE"}},
        {"request": {"auth": {"mode": "authorization-bearer", "token": KEY}}},
    ],
)
def test_keys_of_further_providers_are_known(tmp_path: Path, more: Any) -> None:
    assert KEY in found_in(tmp_path, models={"providers": {"own": OWN | more}})


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "{profiles: 1, providers: 2}", "{profiles: {a: 1}}"]
)
def test_empty_files_are_skipped(tmp_path: Path, text: str) -> None:
    assert found_in(tmp_path, auth_profiles=text, models=text) == []


@pytest.mark.parametrize("given", ["PLACE", "$PLACE", "${PLACE}", {"source": "env", "id": "PLACE"}])
async def test_a_key_behind_a_plain_name_stays_with_clawkit(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, given: Any
) -> None:
    monkeypatch.setenv("PLACE", KEY)
    monkeypatch.setenv("ELSEWHERE", f"see {KEY}")
    (workspace / "notes").write_text(f"it is {KEY}\n")
    providers = {"own": OWN | {"apiKey": given}}
    config = {"models": {"providers": providers}, "tools": {"exec": {"mode": "full"}}}
    async with Toolkit.open(config, workspace=workspace) as kit:
        listed = await kit.call("exec", {"command": "env | cut -d= -f1"})
        read = await kit.call("read", {"path": "notes"})
    assert not {"PLACE", "ELSEWHERE"} & set(listed.as_text().splitlines())
    assert "PATH" in listed.as_text().splitlines()
    assert read.as_text().startswith("it is ")
    assert KEY not in read.as_text()


@pytest.mark.parametrize("backend", ["bwrap", "landlock"])
async def test_state_outside_the_home_is_protected_as_well(tmp_path: Path, backend: str) -> None:
    here = tmp_path / "here"
    (here / "agent").mkdir(parents=True)
    config = {
        "agents": {
            "list": [{"id": "main"}, {"id": "other", "agentDir": str(here / "agent")}],
            "defaults": {"sandbox": {"backend": backend}},
        },
        "session": {"store": str(here / "talks.sqlite")},
        "tools": {"exec": {"mode": "full"}},
    }
    names = ("agent/models.json", "agent/auth-profiles.json", "talks.sqlite", "talks.sqlite-wal")
    async with Toolkit.open(config, workspace=here) as kit:
        for name in (*names, "sessions/abcd.lock"):
            for tool, params in (
                ("write", {"path": name, "content": "{}"}),
                ("exec", {"command": f"echo '{{}}' > {name}"}),
                ("exec", {"command": f"cp /etc/hostname {name}"}),
            ):
                result = await kit.call(tool, params)
                if tool == "write":
                    is_secret = name.startswith("agent/")
                    why = "own secrets" if is_secret else "no one can be asked here"
                    assert why in result.as_text()
                assert not (here / name).exists(), (params, result.as_text())
        assert not (await kit.call("write", {"path": "talks.md", "content": "x"})).is_error


async def test_a_workspace_in_the_directory_of_an_agent_is_an_ordinary_place(
    tmp_path: Path,
) -> None:
    here = tmp_path / "agent" / "work"
    here.mkdir(parents=True)
    config = {"agents": {"list": [{"id": "main", "agentDir": str(tmp_path / "agent")}]}}
    async with Toolkit.open(config, workspace=here) as kit:
        assert not (await kit.call("write", {"path": "a.txt", "content": "x"})).is_error


@pytest.mark.parametrize("backend", ["bwrap", "landlock"])
@pytest.mark.parametrize("access", ["rw", "ro"])
async def test_credentials_outside_the_home_are_hidden_from_commands(
    workspace: Path, backend: str, access: str
) -> None:
    folder = workspace / "keys"
    folder.mkdir()
    names = ("models.json", "auth-profiles.json")
    for name in names:
        (folder / name).write_text("{secret: 1}")
    sandbox = {"mode": "all", "backend": backend, "workspaceAccess": access}
    config = {
        "agents": {
            "list": [{"id": "main", "agentDir": str(folder)}],
            "defaults": {"sandbox": sandbox},
        },
        "tools": {"exec": {"mode": "full"}},
    }
    async with Toolkit.open(config, workspace=workspace, owner=True) as kit:
        there = (await kit.call("exec", {"command": "pwd"})).as_text().strip()
        for name in names:
            for path in (f"keys/{name}", str(folder / name), f"{there}/keys/{name}"):
                ran = await kit.call("exec", {"command": f"cat {path}; echo done"})
                assert "done" in ran.as_text()
                assert "secret" not in ran.as_text()
                assert (await kit.call("read", {"path": path})).is_error


@pytest.mark.parametrize("backend", ["bwrap", "landlock"])
async def test_files_of_clawkit_outside_its_home_are_hidden_even_if_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    workspace = tmp_path / "place" / "work"
    config_file = tmp_path / "settings" / "clawkit.json5"
    # The workspace in the directory of an agent stays usable.
    for folder in (workspace, tmp_path / "keys", config_file.parent, tmp_path / "talks"):
        folder.mkdir(parents=True)
    (tmp_path / "place" / "models.json").write_text("{a: 'secret'}")
    (tmp_path / "talks" / "talks.sqlite").write_text("secret")
    defaults = {"sandbox": {"mode": "all", "backend": backend, "workspaceAccess": "rw"}}
    agents = [
        {"id": "main", "agentDir": str(tmp_path / "keys")},
        {"id": "other", "agentDir": str(tmp_path / "place")},
    ]
    config = {
        "agents": {"list": agents, "defaults": defaults},
        "tools": {"exec": {"mode": "full"}},
        "session": {"store": str(tmp_path / "talks" / "talks.sqlite")},
        "env": {"vars": {"MY_API_KEY": "my-secret-key"}},
    }
    for name in ("clawkit.json5", "clawkit.json5.bak"):
        write_atomic(config_file.parent / name, json.dumps(config).encode())
    monkeypatch.setenv("CLAWKIT_CONFIG", str(config_file))
    command = f"""touch here; while [ ! -e go ]; do sleep 0.05; done; ls {workspace}
        for each in {tmp_path}/keys/* {tmp_path}/place/* {config_file}* {tmp_path}/talks/*
        do [ -f $each ] && tr a-z A-Z < $each; done; echo done"""
    async with Toolkit.open(workspace=workspace, owner=True) as kit:
        running = asyncio.create_task(kit.call("exec", {"command": command}))
        while not (workspace / "here").exists():
            assert not running.done(), running.result().as_text()
            await asyncio.sleep(0.01)
        for file in (tmp_path / "keys" / "auth-profiles.json", tmp_path / "place" / "models.json"):
            write_atomic(file, b"{a: 'secret'}")
        (workspace / "go").touch()
        shown = (await running).as_text()
    assert "done" in shown
    assert "here" in shown
    assert "SECRET" not in shown


@pytest.mark.parametrize("backend", ["bwrap", "landlock"])
async def test_the_target_of_a_link_in_the_home_is_hidden_from_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    workspace, home, dotfiles = (tmp_path / name for name in ("work", "home", "dotfiles"))
    for folder in (workspace, home, dotfiles):
        folder.mkdir()
    defaults = {"sandbox": {"mode": "all", "backend": backend, "workspaceAccess": "rw"}}
    config = {"agents": {"defaults": defaults}, "tools": {"exec": {"mode": "full"}}}
    config["env"] = {"vars": {"MY_API_KEY": "my-secret-key"}}
    for name in ("clawkit.json5", "clawkit.json5.bak", "other"):
        (dotfiles / name).write_text(json.dumps(config))
    (home / "clawkit.json5").symlink_to(dotfiles / "clawkit.json5")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLAWKIT_HOME", str(home))
    monkeypatch.delenv("CLAWKIT_CONFIG", raising=False)
    names = "clawkit.json5 clawkit.json5.bak other"
    command = f"for each in {names}; do tr a-z A-Z < {dotfiles}/$each; echo; done; echo done"
    async with Toolkit.open(workspace=workspace, owner=True) as kit:
        shown = (await kit.call("exec", {"command": command})).as_text()
    assert "done" in shown
    assert shown.count("SECRET") == 1
