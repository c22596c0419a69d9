"""exec: a shell command, to its end or into the background."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyte
import pytest
from tests.cli.test_sandbox import BACKENDS
from tests.process.started import BOMBS

from clawkit.core.result import Result
from clawkit.process.command import NOTICE_S
from clawkit.process.local_host import LocalHost
from clawkit.process.protocols import Commands, Launch, NoTerminalError
from clawkit.runtime import Toolkit
from clawkit.testing import Events, ScriptedApprover, open_kit

SECONDS = (0.5, 4, 16)
"""Of what must begin within some time, where the machine is too busy for the first of them."""
FULL: dict[str, Any] = {"tools": {"exec": {"mode": "full"}}}
ON_HOST: dict[str, Any] = {"agents": {"defaults": {"sandbox": {"mode": "off"}}}}


def config(**settings: Any) -> dict[str, Any]:
    return {"tools": {"exec": {"mode": "full", **settings}}}


@pytest.fixture
async def kit(workspace: Path) -> AsyncIterator[Toolkit]:
    async with open_kit(workspace, config=FULL) as opened:
        yield opened


async def run(kit: Toolkit, command: str, **params: Any) -> Result:
    return await kit.call("exec", {"command": command, **params})


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


async def until_gone(pid: int) -> None:
    async with asyncio.timeout(60):
        while is_alive(pid):
            await asyncio.sleep(0.02)


async def test_output_is_returned_with_the_exit_status(kit: Toolkit, workspace: Path) -> None:
    result = await run(kit, "echo out; echo err >&2")
    assert result.as_text() == "out\nerr"
    details = dict(result.details)
    assert details.pop("durationMs") >= 0
    assert details.pop("cpuMs") >= 0
    assert details == {
        "status": "completed",
        "exitCode": 0,
        "exitSignal": None,
        "exitReason": "exit",
        "cwd": str(workspace),
        "aggregated": "out\nerr",
        "outputBytes": 8,
        "truncated": False,
    }
    assert not result.is_error


async def test_a_code_that_is_not_zero_is_an_answer_not_a_failure(kit: Toolkit) -> None:
    result = await run(kit, "exit 3")
    assert result.as_text() == "(no output)\n\nCommand exited with code 3"
    assert (result.details["status"], result.details["exitCode"]) == ("completed", 3)
    assert not result.is_error


@pytest.mark.parametrize(
    ("command", "code", "reason", "kind", "words"),
    [
        ("no-such-program", 127, "not-found", "shell-command-not-found", "PATH"),
        ("/etc/passwd", 126, "not-executable", "shell-not-executable", "chmod"),
        ("kill -9 $$", None, "signal", "signal", "SIGKILL"),
        ("kill -SEGV $$", None, "signal", "signal", "SIGSEGV"),
    ],
)
async def test_commands_that_did_not_run_to_their_end_are_failures(
    kit: Toolkit, command: str, code: int | None, reason: str, kind: str, words: str
) -> None:
    result = await run(kit, command)
    assert result.is_error
    details = result.details
    assert (details["status"], details["exitCode"]) == ("failed", code)
    assert (details["exitReason"], details["failureKind"]) == (reason, kind)
    assert words in result.as_text()


async def test_the_timeout_ends_the_whole_process_tree_and_is_reported(kit: Toolkit) -> None:
    for seconds in SECONDS:
        result = await run(kit, "echo begun; sleep 300 & echo $!; wait", timeout=seconds)
        assert result.is_error
        assert result.details["timedOut"] is True
        assert result.details["failureKind"] == "overall-timeout"
        assert f"timed out after {seconds} s" in result.as_text()
        if result.details["outputBytes"] > len("begun\n"):
            break
    assert "begun" in result.as_text()
    assert not is_alive(int(result.as_text().split()[1]))


@pytest.mark.parametrize("name", ["timeout", "timeoutSeconds", "timeout_seconds"])
async def test_the_timeout_has_the_names_models_use(kit: Toolkit, name: str) -> None:
    params: dict[str, Any] = {name: 0.2}
    assert (await run(kit, "sleep 300", **params)).details["timedOut"] is True


async def test_the_timeout_given_by_two_names_is_an_error(kit: Toolkit) -> None:
    result = await run(kit, "true", timeout=1, timeoutSeconds=2)
    assert result.details["code"] == 400


async def test_a_command_without_a_timeout_takes_the_configured_one(workspace: Path) -> None:
    with pytest.raises(Exception, match="timeoutSec"):
        open_kit(workspace, config=config(timeoutSec=9))
    async with open_kit(workspace, config=config(timeoutSec=10)) as kit:
        result = await run(kit, "sleep 60", background=True)
        found: Any = kit.run.services[Commands]  # the launch is shown to nobody
        assert found.get("main", result.details["sessionId"]).launch.timeout_s == 10
        never = await run(kit, "sleep 60", background=True, timeout=0)
        assert found.get("main", never.details["sessionId"]).launch.timeout_s is None


async def test_a_command_without_output_is_stopped_after_the_limit(
    kit: Toolkit, workspace: Path
) -> None:
    for seconds in (1, 5, 15):
        command = f"for i in 1 2 3; do echo $i; sleep {seconds / 5}; done; sleep 300"
        result = await run(kit, command, noOutputTimeout=seconds, yieldMs=120_000)
        assert result.details["noOutputTimedOut"] is True
        assert result.details["failureKind"] == "no-output-timeout"
        if result.details["outputBytes"] == 6:
            break
    assert result.as_text().startswith("1\n2\n3\n")
    async with open_kit(workspace, config=config(noOutputTimeoutSec=1)) as other:
        assert (await run(other, "sleep 300")).details["noOutputTimedOut"] is True


async def test_a_command_runs_in_the_workspace_or_the_directory_that_is_named(
    kit: Toolkit, workspace: Path
) -> None:
    assert (await run(kit, "pwd")).as_text() == str(workspace)
    assert (await run(kit, "pwd", workdir="src")).as_text() == str(workspace / "src")
    assert (await run(kit, "pwd", workdir="/")).as_text() == "/"
    assert (await run(kit, "pwd", cwd="src")).as_text() == str(workspace / "src")


@pytest.mark.parametrize(
    ("workdir", "problem"), [("missing", "does not exist"), ("a.txt", "is not a directory")]
)
async def test_a_command_in_an_unusable_directory_does_not_run(
    kit: Toolkit, workspace: Path, workdir: str, problem: str
) -> None:
    result = await run(kit, f"touch {workspace}/ran", workdir=workdir)
    assert result.details["status"] == "failed"
    assert result.details["failureKind"] == "runtime-error"
    assert problem in result.as_text()
    assert "was not run" in result.as_text()
    assert not (workspace / "ran").exists()


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"command": ""}, "command"),
        ({"command": " \n\t"}, "empty"),
        ({"command": "echo \0"}, "NUL"),
        ({"command": "x" * 131_072}, "write it to a file"),
        ({"command": "echo \ud800"}, "surrogate"),
        ({"command": "true", "workdir": "  "}, "blank"),
        ({"command": "true", "env": {"A-B": "1"}}, "A-B"),
        ({"command": "true", "env": {"": "1"}}, "env"),
        ({"command": "true", "env": {"A": "\0"}}, "NUL"),
        ({"command": "true", "timeout": -1}, "timeout"),
        ({"command": "true", "host": "moon"}, "moon"),
        ({"command": "true", "node": "phone"}, "node"),
        ({"command": "true", "detach": True}, "background"),
        ({"command": "true", "detach": True, "background": True, "pty": True}, "pty"),
        ({"command": "true", "colour": "red"}, "colour"),
        ({"workdir": "."}, "command"),
    ],
)
async def test_contradictory_parameters_are_an_input_error(
    kit: Toolkit, params: dict[str, Any], words: str
) -> None:
    result = await kit.call("exec", params)
    assert result.details["status"] == "error"
    assert result.details["code"] == 400
    assert words in result.as_text()


async def test_a_command_of_the_largest_size_runs(kit: Toolkit) -> None:
    command = "echo " + "x" * (131_071 - 5)
    assert (await run(kit, command)).details["outputBytes"] == 131_071 - 5 + 1


async def test_variables_are_set_for_the_command(kit: Toolkit) -> None:
    assert (await run(kit, "echo $FOO-$LANG", env={"FOO": "1", "LANG": "C"})).as_text() == "1-C"


async def test_a_variable_that_steers_programs_is_refused_by_name(kit: Toolkit) -> None:
    result = await run(kit, "true", env={"LD_PRELOAD": "x.so", "PATH": "."})
    assert result.details["status"] == "blocked"
    assert result.details["deniedReason"] == "environment"
    assert "LD_PRELOAD" in result.as_text()
    assert "PATH" in result.as_text()


async def test_credentials_around_clawkit_do_not_reach_commands(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-the-provider-0001")
    monkeypatch.setenv("SOMETHING", "hunter2-hunter2-hunter2")
    monkeypatch.setenv("MY_TOKEN", "wanted-by-the-operator")
    settings = {
        **config(inheritEnv=["MY_TOKEN"]),
        "models": {
            "providers": {"x": {"baseUrl": "https://x.test", "apiKey": "hunter2-hunter2-hunter2"}}
        },
    }
    async with open_kit(workspace, config=settings) as kit:
        command = "env | cut -d= -f1; test ${#MY_TOKEN} = 22 && echo there"
        names = (await run(kit, command)).as_text().split()
    assert {"PATH", "HOME", "CLAWKIT_SHELL", "MY_TOKEN", "there"} <= set(names)
    assert not {"ANTHROPIC_API_KEY", "SOMETHING", "CLAWKIT_HOME"} & set(names)


async def test_path_begins_with_the_configured_directories(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "greet"
    program.write_text("#!/bin/sh\necho hello\n", encoding="utf-8")
    program.chmod(0o755)
    async with open_kit(workspace, config=config(pathPrepend=[str(tmp_path / "bin")])) as kit:
        assert (await run(kit, "greet")).as_text() == "hello"
        first = (await run(kit, "echo $PATH")).as_text().split(":")[0]
    assert first == str(tmp_path / "bin")


async def test_the_path_is_that_of_the_login_shell(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "person"
    (home / "tools").mkdir(parents=True)
    profile = f'PATH="{home}/tools:$PATH"\n'
    for name in (".profile", ".bash_profile", ".zprofile"):
        (home / name).write_text(profile, encoding="utf-8")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{tmp_path}/venv:/usr/bin:/bin")
    async with open_kit(workspace, config=FULL) as kit:
        found = (await run(kit, "echo $PATH")).as_text().split(":")
    assert found[:2] == [f"{tmp_path}/venv", f"{home}/tools"]
    async with open_kit(workspace, config=config(loginPath=False)) as kit:
        assert (await run(kit, "echo $PATH")).as_text() == f"{tmp_path}/venv:/usr/bin:/bin"


async def test_no_profile_of_the_shell_is_read(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (".bashrc", ".bash_profile", ".profile"):
        (tmp_path / name).write_text("echo from a profile\n", encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BASH_ENV", str(tmp_path / ".bashrc"))
    async with open_kit(workspace, config=FULL) as kit:
        assert (await run(kit, "echo only this")).as_text() == "only this"


async def test_a_script_with_shell_syntax_is_not_run(kit: Toolkit, workspace: Path) -> None:
    (workspace / "bad.py").write_text("import os\nprint($HOME)\n", encoding="utf-8")
    result = await run(kit, "python3 bad.py")
    assert result.details["code"] == 400
    assert "bad.py" in result.as_text()
    assert "os.environ" in result.as_text()
    (workspace / "bad.js").write_text('if [ -f x ]; then\necho "x"\nfi\n', encoding="utf-8")
    assert "bad.js" in (await run(kit, "node bad.js")).as_text()
    (workspace / "good.py").write_text('print("$HOME")\n', encoding="utf-8")
    assert (await run(kit, "python3 good.py")).as_text() == "$HOME"


async def test_nothing_can_be_read_from_the_input_in_the_foreground(kit: Toolkit) -> None:
    assert (await run(kit, "cat; echo done")).as_text() == "done"


async def test_a_slow_command_goes_to_the_background(kit: Toolkit, workspace: Path) -> None:
    os.mkfifo(workspace / "gate")
    for seconds in SECONDS:
        command = "echo early; read line < gate; echo late"
        result = await run(kit, command, yieldMs=seconds * 600)
        details = result.details
        if details["tail"]:
            break
        await kit.call("process", {"action": "kill", "sessionId": details["sessionId"]})
    assert (details["status"], details["tail"]) == ("running", "early")
    assert details["followUp"] == {
        "tool": "process",
        "action": "poll",
        "sessionId": details["sessionId"],
    }
    assert details["sessionId"] in result.as_text()
    assert is_alive(details["pid"])
    await asyncio.to_thread((workspace / "gate").write_text, "go\n", encoding="utf-8")
    polled = await kit.call(
        "process", {"action": "poll", "sessionId": details["sessionId"], "timeout": 20_000}
    )
    while polled.details["status"] == "running":
        polled = await kit.call(
            "process", {"action": "poll", "sessionId": details["sessionId"], "timeout": 20_000}
        )
    assert "late" in polled.as_text()
    assert polled.details["exitCode"] == 0


async def test_the_time_until_then_is_configured_and_bounded(workspace: Path) -> None:
    async with open_kit(workspace, config=config(backgroundMs=50)) as kit:
        assert (await run(kit, "sleep 300")).details["status"] == "running"
        assert (await run(kit, "echo x; sleep 0.3", yieldMs=60_000)).as_text() == "x"
        # No time at all is not enough for anything: at least 10 ms are given.
        assert (await run(kit, "sleep 300", yieldMs=0)).details["status"] == "running"


async def test_background_returns_at_once_and_leaves_the_input_open(kit: Toolkit) -> None:
    result = await run(kit, "read line; echo got $line", background=True)
    session = result.details["sessionId"]
    assert result.details["status"] == "running"
    await kit.call("process", {"action": "write", "sessionId": session, "data": "hello\n"})
    polled = await kit.call("process", {"action": "poll", "sessionId": session, "timeout": 20_000})
    assert "got hello" in polled.as_text()


async def test_without_the_process_tool_a_command_runs_to_its_end(workspace: Path) -> None:
    settings = {"tools": {"exec": {"mode": "full"}, "deny": ["process"]}}
    async with open_kit(workspace, config=settings) as kit:
        [schema] = [each for each in kit.schemas("anthropic") if each["name"] == "exec"]
        offered = schema["input_schema"]["properties"]
        assert not {"background", "yieldMs", "detach"} & set(offered)
        assert "command" in offered
        result = await run(kit, "sleep 0.3; echo done", yieldMs=10, background=True)
        assert result.details["status"] == "completed"
        assert result.as_text().endswith("done")
        assert "background and yieldMs ignored" in result.as_text()


def offered(kit: Toolkit) -> set[str]:
    [schema] = [each for each in kit.schemas("anthropic") if each["name"] == "exec"]
    return set(schema["input_schema"]["properties"])


async def test_parameters_for_other_hosts_are_accepted_but_not_offered(workspace: Path) -> None:
    async with open_kit(workspace, config={**FULL, **ON_HOST}) as kit:
        assert not {"host", "node", "elevated", "access"} & offered(kit)
        assert (await run(kit, "echo x", host="gateway")).as_text() == "x"
        assert (await run(kit, "echo x", host="auto")).as_text() == "x"
        for host, words in (("sandbox", "no sandbox"), ("node", "on nodes")):
            result = await run(kit, "echo x", host=host)
            assert (result.details["status"], result.details["deniedReason"]) == ("blocked", "host")
            assert words in result.as_text()
        result = await run(kit, "echo x", host="node", node="phone")
        assert result.details["deniedReason"] == "host"


async def test_a_denial_by_the_sandbox_tells_how_to_ask_for_access(workspace: Path) -> None:
    async with open_kit(workspace) as kit:
        assert {"elevated", "access"} <= offered(kit)
        [schema] = [each for each in kit.schemas("anthropic") if each["name"] == "exec"]
        assert "have no network" in schema["description"]
        assert "access (hosts, files, directories) or elevated" in schema["description"]
    gateway = {"tools": {"exec": {"host": "gateway"}}}
    async with open_kit(workspace, config=gateway) as kit:
        assert not {"elevated", "access"} & offered(kit)
        [schema] = [each for each in kit.schemas("anthropic") if each["name"] == "exec"]
        assert "sandbox" not in schema["description"]


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_failure_without_network_tells_how_to_ask_for_it(
    workspace: Path, backend: str
) -> None:
    connect = "import socket; socket.create_connection(('192.0.2.1', 9), 5)"
    config = {"agents": {"defaults": {"sandbox": {"backend": backend}}}}
    async with open_kit(workspace, config=config) as kit:
        result = await run(kit, f'{sys.executable} -c "{connect}"')
    assert result.details["networkDenied"] is True
    assert "Network access is disabled in the sandbox" in result.as_text()
    assert ('access: {"hosts"' in result.as_text()) == (backend == "bwrap")
    assert "elevated: true" in result.as_text()


async def test_access_that_the_backend_cannot_give_is_refused_before_anybody_is_asked(
    workspace: Path,
) -> None:
    approver = ScriptedApprover("allow")
    config = {"agents": {"defaults": {"sandbox": {"backend": "landlock"}}}}
    async with open_kit(workspace, config=config, approver=approver) as kit:
        result = await run(kit, "true", access={"hosts": ["example.org"]})
    assert result.details["code"] == 400
    assert "cannot filter by host; send elevated: true" in result.as_text()
    assert approver.requests == []


async def test_a_sandboxed_run_never_falls_through_to_the_host(workspace: Path) -> None:
    async with open_kit(workspace, config={**FULL, **ON_HOST}, sandboxed=True) as kit:
        result = await run(kit, f"touch {workspace}/ran")
        assert result.details["deniedReason"] == "host"
        result = await run(kit, f"touch {workspace}/ran", host="gateway")
        assert result.details["deniedReason"] == "host"
    assert not (workspace / "ran").exists()


async def test_elevated_leaves_the_sandbox_when_a_person_agrees(workspace: Path) -> None:
    approver = ScriptedApprover("allow", "deny")
    async with open_kit(workspace, sandboxed=True, owner=True, approver=approver) as kit:
        assert (await run(kit, "echo out", elevated=True)).as_text() == "out"
        refused = await run(kit, "echo again", elevated=True)
        assert refused.details["status"] == "blocked"


async def test_elevated_is_refused_to_others(workspace: Path) -> None:
    async with open_kit(workspace, config=FULL, sandboxed=True, owner=False) as kit:
        result = await run(kit, "echo out", elevated=True)
        assert result.details["deniedReason"] == "elevated"
        assert "tools.elevated.allowFrom" in result.as_text()
    async with open_kit(workspace, config=FULL, owner=True) as kit:
        # Outside the sandbox there is nothing to leave.
        assert (await run(kit, "echo out", elevated=True)).as_text() == "out"


@pytest.mark.parametrize(
    ("settings", "reason", "to_type"),
    [
        ({}, "approval-unavailable", "clawkit approvals allowlist add /usr/bin/touch"),
        ({"mode": "deny"}, "security", "clawkit config set tools.exec.mode ask"),
        ({"mode": "allowlist"}, "security", "clawkit approvals allowlist add /usr/bin/touch"),
        ({"mode": "ask"}, "approval-unavailable", "clawkit approvals allowlist add"),
        ({"mode": "auto"}, "approval-unavailable", "clawkit approvals allowlist add"),
        ({"ask": "off"}, "security", "clawkit approvals allowlist add"),
        ({"security": "full", "ask": "always"}, "approval-unavailable", ""),
        ({"security": "deny"}, "security", "clawkit config set tools.exec.security allowlist"),
    ],
)
async def test_without_an_approver_unlisted_commands_do_not_run(
    workspace: Path, settings: dict[str, Any], reason: str, to_type: str
) -> None:
    config = {"tools": {"exec": settings}, **ON_HOST}
    async with open_kit(workspace, config=config) as kit:
        result = await run(kit, "touch ran")
    assert (result.details["status"], result.details["deniedReason"]) == ("blocked", reason)
    assert to_type in result.as_text()
    assert not (workspace / "ran").exists()


@pytest.mark.parametrize("settings", [{"security": "full"}, {"mode": "full"}])
async def test_with_full_security_commands_run_as_typed(
    workspace: Path, settings: dict[str, Any]
) -> None:
    async with open_kit(workspace, config={"tools": {"exec": settings}}) as kit:
        result = await run(kit, "touch ran; echo $(pwd)")
    assert result.as_text() == str(workspace)
    assert (workspace / "ran").exists()


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"security": "deny"}, "security"),
        ({"security": "allowlist"}, "security"),
        ({"ask": "always"}, "approval-unavailable"),
        ({"security": "allowlist", "ask": "on-miss"}, "approval-unavailable"),
        ({"security": "deny", "ask": "off"}, "security"),
    ],
)
async def test_a_call_can_tighten_what_is_configured(
    workspace: Path, params: dict[str, Any], reason: str
) -> None:
    async with open_kit(workspace, config={**FULL, **ON_HOST}) as kit:
        result = await run(kit, "touch ran", **params)
    assert result.details["deniedReason"] == reason
    assert not (workspace / "ran").exists()


async def test_invalid_parameters_are_reported_before_the_refusal(workspace: Path) -> None:
    async with open_kit(workspace, config=ON_HOST) as kit:
        assert (await run(kit, "touch x", detach=True)).details["code"] == 400
        assert (await run(kit, "touch x")).details["code"] == 403


async def test_a_call_cannot_loosen_what_is_configured(workspace: Path) -> None:
    async with open_kit(workspace, config={"tools": {"exec": {"mode": "deny"}}}) as kit:
        result = await run(kit, "touch ran", security="full", ask="off")
    assert result.details["deniedReason"] == "security"
    assert not (workspace / "ran").exists()


async def test_the_agents_own_setting_is_named_when_it_refuses(workspace: Path) -> None:
    settings = {
        "tools": {"exec": {"mode": "full"}},
        "agents": {"list": [{"id": "shy", "tools": {"exec": {"mode": "deny"}}}]},
    }
    async with open_kit(workspace, config=settings, agent="shy") as kit:
        result = await run(kit, "true")
    assert "agents.list[0].tools.exec.mode" in result.as_text()


async def test_pty_gives_a_terminal_of_the_requested_size(kit: Toolkit) -> None:
    result = await run(kit, "test -t 0 && test -t 1 && stty size && echo $TERM", pty=True)
    assert result.as_text() == "30 120\nxterm-256color"
    result = await run(kit, "stty size", pty=True, columns=40, rows=10)
    assert result.as_text() == "10 40"
    assert (await run(kit, "test -t 1 || echo $TERM")).as_text() == "dumb"


async def test_without_a_terminal_to_be_had_pipes_do(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = LocalHost.start

    async def no_terminal(self: LocalHost, launch: Launch, id_: str) -> Any:
        if launch.size is not None:
            raise NoTerminalError("no terminal can be had: none left")
        return await start(self, launch, id_)

    monkeypatch.setattr(LocalHost, "start", no_terminal)
    async with open_kit(workspace, config=FULL) as kit:
        result = await run(kit, "test -t 1 || echo $TERM", pty=True)
    assert result.as_text() == (
        "Warning: running without a terminal: no terminal can be had: none left\n\ndumb"
    )


async def test_much_output_is_cut_in_the_middle_and_kept_whole_in_a_file(kit: Toolkit) -> None:
    result = await run(kit, "seq 1 100000")
    text, details = result.as_text(), result.details
    assert text.startswith("1\n2\n3\n")
    assert "\n99999\n100000\n" in text
    assert len(text) <= 100_000
    assert 90_000 < len(details["aggregated"]) <= 100_000
    assert details["aggregated"].endswith("\n100000")
    assert details["truncated"] is True
    whole = "".join(f"{number}\n" for number in range(1, 100_001))
    assert details["spillBytes"] == details["outputBytes"] == len(whole)
    assert Path(details["spillPath"]).read_text(encoding="ascii") == whole
    assert Path(details["spillPath"]).stat().st_mode & 0o777 == 0o600
    assert details["spillPath"] in text
    page = await kit.call(
        "process",
        {"action": "log", "sessionId": details["sessionId"], "offset": 49_999, "limit": 2},
    )
    assert page.details["output"].split() == ["50000", "50001"]


async def test_the_file_is_still_there_when_clawkit_has_ended(workspace: Path) -> None:
    async with open_kit(workspace, config=FULL) as kit:
        result = await run(kit, "head -c 300000 /dev/zero | tr '\\0' x")
    assert Path(result.details["spillPath"]).stat().st_size == 300_000


async def test_output_too_long_for_a_small_model_is_kept_in_a_file(workspace: Path) -> None:
    settings = {
        **FULL,
        "models": {
            "providers": {
                "x": {
                    "baseUrl": "https://x.test",
                    "models": [{"id": "small", "name": "small", "contextWindow": 16_000}],
                }
            }
        },
    }
    async with open_kit(workspace, config=settings, model="x/small") as kit:
        result = await run(kit, "seq 1 8000")
        assert len(result.as_text()) < 20_000
        assert result.as_text().count("are in ") == 1
        assert result.details["spillBytes"] == 38_893
        assert not result.details["truncated"]


async def test_output_is_made_harmless_to_read(kit: Toolkit) -> None:
    command = r"printf '\033[31mred\033[0m \xff\xfe ok \u202eabc \a\n'"
    assert (await run(kit, command)).as_text() == "red \ufffd\ufffd ok abc \\x07"


async def test_one_endless_line_and_an_endless_flood_are_bounded(kit: Toolkit) -> None:
    line = await run(kit, "head -c 50000000 /dev/zero | tr '\\0' a")
    assert line.details["outputBytes"] == 50_000_000
    assert len(line.as_text()) <= 100_000
    for seconds in SECONDS:
        flood = await run(kit, "yes", timeout=seconds)
        assert flood.details["timedOut"] is True
        if flood.details["outputBytes"]:
            break
    assert flood.as_text().startswith("y\ny\n")


async def test_progress_is_reported_during_the_command(workspace: Path) -> None:
    events = Events()

    def note(event: Any) -> None:
        events(event)
        if len(events.of("update")) == 2:
            (workspace / "enough").touch()

    async with open_kit(workspace, config=FULL, on_event=note) as kit:
        talk = "printf '1\\n2\\n'; until [ -e enough ]; do echo more; sleep 0.05; done"
        result = await run(kit, talk, yieldMs=120_000)
    updates = events.of("update")
    # Two in a second are enough for anybody.
    assert len(updates) >= 2
    assert (len(updates) - 1) * 500 < result.details["durationMs"]
    assert updates[0]["details"]["status"] == "running"
    assert updates[0]["details"]["tail"].startswith("1\n2")
    assert updates[-1]["details"]["bytes"] > updates[0]["details"]["bytes"]
    assert updates[0]["details"]["elapsedMs"] > 0


async def shown_on_a_terminal(workspace: Path, command: str, awaited: str) -> Any:
    """The last update of a command, which runs until one of them shows the expected text."""
    events = Events()

    def note(event: Any) -> None:
        events(event)
        if any(awaited in each["details"]["tail"] for each in events.of("update")):
            (workspace / "enough").touch()

    async with open_kit(workspace, config=FULL, on_event=note) as kit:
        talk = f"{command}; until [ -e enough ]; do sleep 0.05; done"
        await run(kit, talk, pty=True, columns=40, rows=8, yieldMs=120_000)
    return events.of("update")[-1]


async def test_a_command_that_ends_during_an_update_is_not_reported_as_running(
    kit: Toolkit, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = pyte.Screen.draw

    def draw_late(screen: pyte.Screen, text: str) -> None:
        pid = (workspace / "pid").read_text().strip()
        (workspace / "enough").touch()
        while os.path.exists(f"/proc/{pid}"):
            time.sleep(0.01)
        time.sleep(0.2)  # until its end is known here
        draw(screen, text)

    monkeypatch.setattr(pyte.Screen, "draw", draw_late)
    talk = "echo $$ > pid; echo said; until [ -e enough ]; do sleep 0.02; done"
    for seconds in SECONDS:
        result = await run(kit, talk, pty=True, yieldMs=seconds * 400)
        if (workspace / "enough").exists():
            break
    assert (result.details["status"], result.details["aggregated"]) == ("completed", "said")


async def test_progress_on_a_terminal_is_its_screen(workspace: Path) -> None:
    """Bars are drawn over, colours are not text, and programs that fill the screen are readable."""
    draw = r"printf '\033[2J\033[3;5Hmenu\033[1;1H\033[31m1%%\r100%%\033[0m'"
    shown = await shown_on_a_terminal(workspace, draw, "100")
    assert shown["details"]["tail"] == "100%\n\n    menu"
    assert shown["content"][0]["text"] == "100%\n\n    menu"


async def test_a_secret_that_a_terminal_breaks_is_masked(workspace: Path) -> None:
    secret = "npm_" + "CANARY7f3aCANARY7f3aCANARY7f3aCANARY"
    half = len(secret) // 2
    say = f"printf 'the token that I use is %s%s ok\\n' {secret[:half]} {secret[half:]}"
    shown = await shown_on_a_terminal(workspace, say, "ok")
    assert "the token that I use is" in str(shown)
    assert "CANARY" not in str(shown)


async def until(events: Events, kind: str, count: int = 1) -> list[Any]:
    async with asyncio.timeout(60):
        while len(events.of(kind)) < count:
            await asyncio.sleep(0.02)
    return events.of(kind)


async def test_the_end_of_a_background_command_is_reported(workspace: Path) -> None:
    events = Events()
    async with open_kit(workspace, config=FULL, on_event=events) as kit:
        result = await run(kit, "sleep 0.2; echo built; exit 4", background=True)
        [notice] = await until(events, "notice")
    assert notice["details"]["sessionId"] == result.details["sessionId"]
    assert (notice["details"]["exitCode"], notice["details"]["tail"]) == (4, "built")
    assert "failed: Command exited with code 4" in notice["content"][0]["text"]
    assert "built" in notice["content"][0]["text"]


async def test_silent_success_is_reported_only_on_request(workspace: Path) -> None:
    for settings, wanted in (({}, 1), ({"notifyOnExitEmptySuccess": True}, 2)):
        events = Events()
        async with open_kit(workspace, config=config(**settings), on_event=events) as kit:
            silent = await run(kit, "true", background=True)
            await run(kit, "sleep 0.5; echo said", background=True)
            notices = await until(events, "notice", wanted)
        told = [each["details"]["sessionId"] for each in notices]
        assert (silent.details["sessionId"] in told) == (wanted == 2)


async def test_silent_success_is_reported_in_a_chat(workspace: Path) -> None:
    events = Events()
    async with open_kit(workspace, config=FULL, on_event=events, channel="telegram") as kit:
        silent = await run(kit, "true", background=True)
        [notice] = await until(events, "notice")
    assert notice["details"]["sessionId"] == silent.details["sessionId"]


async def test_a_sub_agent_is_not_woken(workspace: Path) -> None:
    events = Events()
    settings = {"tools": {"exec": {"mode": "full"}, "subagents": {"tools": {"allow": ["*"]}}}}
    async with open_kit(workspace, config=settings, on_event=events, depth=1) as kit:
        result = await run(kit, "echo said", background=True)
        poll = {"action": "status", "sessionId": result.details["sessionId"]}
        while (await kit.call("process", poll)).details["status"] == "running":
            await asyncio.sleep(0.02)
        await asyncio.sleep(2 * NOTICE_S)
    assert events.of("notice") == []


async def test_no_notice_is_sent_if_disabled_or_already_reported(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The poll that tells the output tells the end, too.
    monkeypatch.setattr("clawkit.tools.process.GATHER_S", 15.0)
    events = Events()
    async with open_kit(workspace, config=config(notifyOnExit=False), on_event=events) as kit:
        result = await run(kit, "echo x", background=True)
        poll = {"action": "poll", "sessionId": result.details["sessionId"], "timeout": 20_000}
        while (await kit.call("process", poll)).details["status"] == "running":
            pass
    async with open_kit(workspace, config=FULL, on_event=events) as kit:
        polled = await run(kit, "sleep 0.3; echo x", background=True)
        killed = await run(kit, "sleep 300", background=True)
        poll = {"action": "poll", "sessionId": polled.details["sessionId"], "timeout": 20_000}
        while (await kit.call("process", poll)).details["status"] == "running":
            pass
        await kit.call("process", {"action": "kill", "sessionId": killed.details["sessionId"]})
        # Whatever would be told of those two has been told before this one.
        last = await run(kit, "echo last", background=True)
        notices = await until(events, "notice")
    assert [each["details"]["sessionId"] for each in notices] == [last.details["sessionId"]]


async def test_cancelling_the_call_ends_what_is_in_the_foreground_only(
    workspace: Path, kit: Toolkit
) -> None:
    behind = await run(kit, "sleep 300", background=True)
    task = asyncio.ensure_future(run(kit, "echo $$ > pid; sleep 300 & wait"))
    async with asyncio.timeout(60):
        while not (workspace / "pid").exists() or not (workspace / "pid").read_text():
            await asyncio.sleep(0.02)
    pid = int((workspace / "pid").read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_alive(pid)
    assert is_alive(behind.details["pid"])


async def test_closing_ends_what_is_in_the_background(workspace: Path) -> None:
    async with open_kit(workspace, config=FULL) as kit:
        result = await run(kit, "(setsid sleep 300 & echo $!); sleep 300", background=True)
        session = result.details["sessionId"]
        polled = await kit.call(
            "process", {"action": "poll", "sessionId": session, "timeout": 20_000}
        )
        away = int(polled.as_text().split()[0])
        assert is_alive(away)
    assert not is_alive(away)
    assert not is_alive(result.details["pid"])


async def test_detached_commands_keep_running(workspace: Path) -> None:
    async with open_kit(workspace, config=FULL) as kit:
        result = await run(
            kit,
            "trap 'echo ended; exit 5' TERM; echo begun; while :; do sleep 0.1; done",
            background=True,
            detach=True,
        )
        pid = result.details["pid"]
        assert "It keeps running when clawkit exits." in result.as_text()
        poll = {"action": "poll", "sessionId": result.details["sessionId"], "timeout": 20_000}
        while "begun" not in (await kit.call("process", poll)).as_text():
            pass
    assert is_alive(pid)
    os.kill(pid, signal.SIGTERM)
    await until_gone(pid)
    async with open_kit(workspace, config=FULL) as kit:
        log = await kit.call("process", {"action": "log", "sessionId": result.details["sessionId"]})
        assert log.details["output"].split() == ["begun", "ended"]


async def test_leftover_processes_are_reported_and_can_be_stopped(kit: Toolkit) -> None:
    # A shell that is about to become another program still has its own name.
    becomes = "until [[ $(< /proc/$!/comm) == sleep ]]; do :; done"
    result = await run(kit, f"sleep 300 & {becomes}; echo begun")
    assert result.details["status"] == "completed"
    [left] = result.details["leftRunning"]
    assert left == {"pid": left["pid"], "name": "sleep"}
    assert "Left running" in result.as_text()
    assert is_alive(left["pid"])
    await kit.call("process", {"action": "kill", "sessionId": result.details["sessionId"]})
    assert not is_alive(left["pid"])


@BOMBS
async def test_a_bomb_is_ended(workspace: Path) -> None:
    async with open_kit(workspace, config=config(maxProcesses=60)) as kit:
        result = await run(kit, "for n in {1..300}; do sleep 100 & done; wait", timeout=60)
    assert result.details["failureKind"] == "process-limit"
    assert "too many processes" in result.as_text()


async def test_a_bomb_that_shows_is_not_started_unasked(workspace: Path) -> None:
    async with open_kit(workspace, config={**config(maxProcesses=60), **ON_HOST}) as kit:
        result = await run(kit, "f() { sleep 100 & f | f; }; f", timeout=60)
    assert result.details["deniedReason"] == "approval-unavailable"
    assert "fork bomb" in result.as_text()


async def test_too_many_at_once_are_refused(workspace: Path) -> None:
    async with open_kit(workspace, config=config(maxRunning=2)) as kit:
        for _ in range(2):
            await run(kit, "sleep 300", background=True)
        result = await run(kit, "echo x")
        assert result.is_error
        assert "tools.exec.maxRunning" in result.as_text()
    async with open_kit(workspace, config=config(maxRunning=2)) as kit:
        said = await asyncio.gather(*(run(kit, f"sleep 0.1; echo {n}") for n in range(8)))
        assert [each.as_text() for each in said] == [str(n) for n in range(8)]


async def test_each_agent_sees_its_own_commands_only(workspace: Path) -> None:
    async with (
        open_kit(workspace, config=FULL) as main,
        open_kit(workspace, config=FULL, agent="other") as other,
    ):
        result = await run(main, "sleep 300", background=True)
        answer = await other.call(
            "process", {"action": "poll", "sessionId": result.details["sessionId"]}
        )
        assert answer.details["code"] == 404
        listed = await other.call("process", {"action": "list"})
        assert listed.details["sessions"] == []


async def test_rules_see_the_command_and_the_directory(workspace: Path) -> None:
    settings = {
        "tools": {
            "exec": {"mode": "full"},
            "rules": [
                {"tool": "exec", "params": {"command": "*secret*"}, "effect": "deny"},
                {"tool": "bash", "params": {"workdir": "src"}, "effect": "deny"},
            ],
        }
    }
    async with open_kit(workspace, config=settings) as kit:
        assert (await run(kit, "cat secret")).details["deniedReason"] == "rule"
        assert (await run(kit, "ls", workdir="./src/")).details["deniedReason"] == "rule"
        assert (await kit.call("bash", {"command": "echo x"})).as_text() == "x"


async def test_a_result_is_plain_json(kit: Toolkit) -> None:
    for command in ("echo x", "exit 3", "kill -9 $$", "seq 1 50000"):
        json.dumps((await run(kit, command)).to_json())


async def test_scripts_are_checked_before_they_run(kit: Toolkit, workspace: Path) -> None:
    (workspace / "x.py").write_text("print($HOME)")
    assert "`$HOME` is a shell variable" in (await run(kit, "python3 x.py")).as_text()


async def test_the_preflight_look_quotes_no_secrets(workspace: Path) -> None:
    home = Path(os.environ["HOME"])
    (home / ".ssh").mkdir()
    secret = "password = hun$ter2secret"
    for file in (home / ".netrc", home / ".ssh/k.py", workspace / ".env", workspace / "closed.py"):
        file.write_text(secret)
    (workspace / "x.py").symlink_to(home / ".ssh/k.py")
    (workspace / "y.py").symlink_to(".env")
    (workspace / "z.py").symlink_to("closed.py")
    rule = {"tool": "read", "params": {"path": "closed.py"}, "effect": "deny"}
    settings = {"tools": {**FULL["tools"], "rules": [rule]}}
    scripts = (home / ".netrc", "x.py", ".env", "y.py", "closed.py", "z.py")
    async with open_kit(workspace, config=settings) as kit:
        for script in scripts:
            said = (await run(kit, f"true || python3 {script}")).as_text()
            assert said == "(no output)"
