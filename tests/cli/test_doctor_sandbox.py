"""What `clawkit doctor` says about the sandbox."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.test_sandbox import BACKENDS
from tests.lacking import needs

from clawkit.cli.doctor_services import check_sandbox
from clawkit.cli.sandbox_explain import advise, look_at_engine
from clawkit.config.load import loads
from clawkit.process import landlock
from clawkit.sandbox.local import probe_bwrap

Found = list[tuple[str, str]]


@pytest.fixture(autouse=True)
def _in_workspace(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace)


def say(settings: dict[str, Any], **more: Any) -> Found:
    config = {"agents": {"defaults": {"sandbox": settings}}, **more}
    found = check_sandbox(loads(msgspec.json.encode(config).decode()))
    return [(each.level, f"{each.what} → {each.do}") for each in found]


def test_the_backend_is_named() -> None:
    found = say({})
    assert found[0][0] == "ok"
    assert "commands run in the sandbox" in found[0][1]
    assert not [each for each in found if each[0] == "error"]


def test_security_full_means_no_sandbox() -> None:
    for settings in ({"security": "full"}, {"mode": "full"}):
        [found] = say({}, tools={"exec": settings})
        assert found[0] == "warn"
        assert "unconfined" in found[1]
    assert say({"mode": "all"}, tools={"exec": {"security": "full"}})[0][0] == "ok"


@pytest.mark.parametrize("backend", ["openshell", "crabbox"])
def test_a_backend_of_another_program_is_not_supported(backend: str) -> None:
    assert say({"backend": backend})[0][0] == "error"
    assert f"{backend!r} is not supported" in say({"backend": backend})[0][1]


def test_a_sandbox_that_is_configured_and_cannot_be_had_is_an_error() -> None:
    found = say({"backend": "landlock", "network": "allowlist"})
    assert found[0][0] == "error"
    assert "cannot filter by host" in found[0][1]


@needs(not probe_bwrap(), "bwrap")
def test_where_there_is_no_sandbox_another_directory_is_advised(
    monkeypatch: pytest.MonkeyPatch, workspace: Path
) -> None:
    monkeypatch.chdir("/")
    [(level, words)] = say({})
    assert level == "warn"
    assert "the workspace is '/', where commands could change the system → start clawkit" in words
    [finding] = check_sandbox(loads("{}"), str(workspace))
    assert finding.level == "ok"


def test_no_sandbox_by_choice_is_a_warning() -> None:
    assert say({"mode": "off"}) == [
        (
            "warn",
            "agents.defaults.sandbox.mode is 'off': commands run on the host, and need approval → "
            "clawkit config set agents.defaults.sandbox.mode auto",
        )
    ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_backends_that_cannot_hide_denied_files_are_reported(backend: str) -> None:
    rule = {"tool": "group:fs", "params": {"path": "*.key"}, "effect": "deny"}
    found = say({"backend": backend}, tools={"rules": [rule]})
    told = [words for level, words in found if "cannot hide single files" in words]
    assert bool(told) == (backend == "landlock")
    assert not [words for _, words in say({"backend": backend}) if "cannot hide" in words]


@needs(not probe_bwrap(), "bwrap")
def test_a_workspace_that_is_too_large_for_rules_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rule = {"tool": "group:fs", "params": {"path": "*.key"}, "effect": "deny"}
    monkeypatch.setattr("clawkit.sandbox.paths.MAX_ENTRIES", -1)
    found = say({"backend": "bwrap"}, tools={"rules": [rule]})
    assert [level for level, words in found if "too large to hide files" in words] == ["error"]
    assert not [words for _, words in say({"backend": "bwrap"}) if "too large" in words]


@pytest.mark.parametrize(
    ("settings", "level", "said"),
    [
        ({"docker": {"image": "x"}}, "warn", "sandbox.docker has no effect"),
        ({"ssh": {"target": "a@b"}}, "warn", "sandbox.ssh has no effect"),
        ({"allowHosts": ["a.b"]}, "warn", "allowHosts has no effect: network is 'none'"),
        ({"scope": "shared"}, "warn", "scope has no effect: in mode 'auto'"),
        ({"browser": {"enabled": True}}, "error", "this build has no browser in the sandbox"),
        (
            {"mode": "all", "backend": "ssh", "ssh": {"target": "a@b"}, "hidePaths": ["/x"]},
            "warn",
            "hidePaths has no effect: the backend ssh does not use it",
        ),
        ({"mode": "all", "backend": "ssh"}, "error", "ssh.target is not set"),
        (
            {"mode": "all", "backend": "ssh", "ssh": {"target": "a@b", "command": "no-ssh"}},
            "error",
            "no-ssh is not installed",
        ),
    ],
)
def test_settings_without_effect_are_reported(
    settings: dict[str, Any], level: str, said: str
) -> None:
    assert [each for each in say(settings) if each[0] == level and said in each[1]]


def test_settings_with_effect_are_not_reported() -> None:
    assert not [words for _, words in say({"writePaths": ["/x"]}) if "no effect" in words]


def test_an_engine_that_is_missing_silent_or_without_the_image_is_an_error(tmp_path: Path) -> None:
    def look(text: str) -> str:
        program = tmp_path / "docker"
        program.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        program.chmod(0o755)
        return "; ".join(look_at_engine("docker", "box", str(program)) or ())

    assert look("echo 'no daemon here' >&2; exit 1").startswith(
        "docker does not respond (no daemon"
    )
    without = look('test "$1" = info')
    assert "does not have the image 'box'" in without
    assert "clawkit sandbox build --engine docker" in without
    assert look("true") == ""
    assert look_at_engine("no-engine", "box") == (
        "no-engine is not installed",
        "apt-get install podman",
    )


def test_an_engine_in_the_path_of_an_agent_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "docker"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nowhere.sock")
    [_, (level, said)] = say({"mode": "all", "backend": "docker"})
    assert level == "error"
    assert "docker" in said
    assert not (tmp_path / "ran").exists()


def test_findings_that_all_agents_share_are_reported_once() -> None:
    agents = {"list": [{"id": "a"}, {"id": "b", "sandbox": {"mode": "off"}}]}
    found = list(check_sandbox(loads(msgspec.json.encode({"agents": agents}).decode())))
    assert len([each for each in found if "commands run in the sandbox" in each.what]) == 1
    off = [each for each in found if "is 'off'" in each.what]
    assert [each.do for each in off] == ["clawkit config set agents.list[1].sandbox.mode auto"]


def test_stronger_sandboxes_are_recommended() -> None:
    assert list(advise("")) == []
    found = list(advise("bwrap does not start: no"))
    missing, do = found[0]
    assert missing == "bwrap cannot be used: bwrap does not start: no"
    assert do
    assert os.path.exists("/proc/sys/user/max_user_namespaces")
    assert len(found) == 1 + (not landlock.available())
