"""Loop detection with the tools there are: on the command line and from Python."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clawkit import CallRequest, Result, Toolkit

SOON = {
    "enabled": True,
    "warningThreshold": 3,
    "criticalThreshold": 5,
    "globalCircuitBreakerThreshold": 8,
}
FREE = {"security": "full", "ask": "off"}


def open_kit(workspace: Path, **loops: Any) -> Toolkit:
    tools = {"loopDetection": {**SOON, **loops}, "exec": FREE}
    return Toolkit.open({"tools": tools}, workspace=workspace, owner=True)


def detector_of(result: Result) -> str:
    return str(result.details.get("intervention", {}).get("detector", ""))


def is_warned(result: Result) -> bool:
    return "[Loop guard: " in result.as_text()


def test_repeated_calls_from_a_file_get_a_warning_then_are_refused(
    workspace: Path, tmp_path: Path
) -> None:
    config = tmp_path / "loops.json5"
    config.write_text("{tools: {loopDetection: {enabled: true}}}", encoding="utf-8")
    line = json.dumps({"tool": "read", "params": {"path": "a.txt"}})
    calls = tmp_path / "calls.jsonl"
    calls.write_text(f"{line}\n" * 31 + '{"tool": "ls"}\n', encoding="utf-8")
    argv = [sys.executable, "-m", "clawkit", "tools", "run", str(calls), "--config", str(config)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=workspace)
    assert done.returncode == 3, done.stderr
    results = [json.loads(each) for each in done.stdout.splitlines()]
    told = [number for number, each in enumerate(results, 1) if len(each["content"]) > 1]
    assert told == [11]
    statuses = [each["details"].get("status") for each in results]
    assert statuses[:20].count("blocked") == 0
    assert statuses[20:] == ["blocked"] * 12
    found = [each["details"]["intervention"]["detector"] for each in results[20:]]
    assert found == ["generic_repeat"] * 10 + ["global_circuit_breaker"] * 2
    assert [each["details"].get("terminate") for each in results[20:22]] == [None, True]


async def test_polling_a_silent_command_gets_a_warning(workspace: Path) -> None:
    async with open_kit(workspace) as kit:
        started = await kit.call("exec", {"command": "sleep 60", "background": True})
        poll = {"action": "poll", "sessionId": started.details["sessionId"]}
        results = [await kit.call("process", poll) for _ in range(6)]
        assert [is_warned(each) for each in results] == [False, False, False, True, False, False]
        assert detector_of(results[5]) == "known_poll_no_progress"


async def test_the_same_command_between_edits_is_never_refused(workspace: Path) -> None:
    async with open_kit(workspace) as kit:
        for number in range(12):
            text = "alpha\n" * (number + 1)
            assert not (await kit.call("write", {"path": "b.txt", "content": text})).is_error
            tested = await kit.call("exec", {"command": "echo 1 failed >&2; exit 1"})
            assert tested.details["exitCode"] == 1


async def test_read_only_commands_in_between_do_not_hide_a_loop(workspace: Path) -> None:
    async with open_kit(workspace) as kit:
        results = []
        for number in range(6):
            await kit.call("exec", {"command": f"echo {number}"})
            results.append(await kit.call("read", {"path": "a.txt"}))
        assert [detector_of(each) for each in results] == [""] * 5 + ["generic_repeat"]


async def test_an_edit_back_and_forth_is_a_loop(workspace: Path) -> None:
    words = ("alpha", "omega")
    found = []
    async with open_kit(workspace) as kit:
        for number in range(5):
            old, new = words if number % 2 == 0 else words[::-1]
            params = {"path": "a.txt", "oldText": old, "newText": new}
            found.append(detector_of(await kit.call("edit", params)))
    assert found == ["", "", "", "", "ping_pong"]
    assert (workspace / "a.txt").read_text().startswith("alpha")


async def test_a_tool_that_policy_took_away_is_refused_permanently(workspace: Path) -> None:
    config = {"tools": {"deny": ["exec"], "loopDetection": SOON}}
    async with Toolkit.open(config, workspace=workspace) as kit:
        results = [await kit.call("exec", {"command": f"echo {n}"}) for n in range(6)]
    assert results[0].details["deniedReason"] == "policy"
    assert detector_of(results[5]) == "unknown_tool_repeat"


async def test_all_calls_of_a_message_are_refused_together(workspace: Path) -> None:
    async with open_kit(workspace) as kit:
        for _ in range(5):
            await kit.call("read", {"path": "a.txt"})
        write = CallRequest("write", {"path": "new.txt", "content": "x"})
        results = await kit.call_all([write, CallRequest("read", {"path": "a.txt"})])
        assert all(result.is_error for result in results)
        assert not (workspace / "new.txt").exists()
        assert kit.guard is not None
        kit.guard.begin()
        results = await kit.call_all([write, CallRequest("read", {"path": "a.txt"})])
        assert not any(result.is_error for result in results)


@pytest.mark.parametrize("general", [True, False, None])
@pytest.mark.parametrize("own", [True, False, None])
async def test_the_setting_of_an_agent_overrides_the_general_one(
    workspace: Path, general: bool | None, own: bool | None
) -> None:
    def said(enabled: bool | None) -> dict[str, Any]:
        return {} if enabled is None else {"enabled": enabled}

    limits = {name: value for name, value in SOON.items() if name != "enabled"}
    config = {
        "tools": {"loopDetection": limits | said(general)},
        "agents": {"list": [{"id": "main", "tools": {"loopDetection": said(own)}}]},
    }
    expected = general if own is None else own
    async with Toolkit.open(config, workspace=workspace) as kit:
        assert (kit.guard is None) is (expected is False)
        results = [await kit.call("read", {"path": "a.txt"}) for _ in range(6)]
        assert (detector_of(results[5]) != "") is (expected is True)
