"""`clawkit tools run --later`: commands that somebody allows from another terminal."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.cli.asking import PROGRAM

pytestmark = pytest.mark.usefixtures("on_host")


def start(workspace: Path) -> subprocess.Popen[str]:
    argv = [*PROGRAM, "tools", "run", "-", "--later", "--workspace"]
    return subprocess.Popen(
        [*argv, str(workspace)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def clawkit(*args: str) -> Any:
    done = subprocess.run([*PROGRAM, *args], capture_output=True, text=True, check=True)
    return json.loads(done.stdout) if done.stdout else None


def test_a_command_approved_elsewhere_runs_and_is_reported(workspace: Path) -> None:
    with start(workspace) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        calls = [{"tool": "exec", "params": {"command": f"touch {name}"}} for name in "ab"]
        process.stdin.write("".join(json.dumps(each) + "\n" for each in calls))
        process.stdin.close()
        first, second = (json.loads(process.stdout.readline()) for _ in calls)
        assert first["details"]["status"] == second["details"]["status"] == "approval-pending"
        waiting = clawkit("approvals", "pending", "--json")
        assert [each["command"] for each in waiting] == ["touch a", "touch b"]
        clawkit("approvals", "resolve", first["details"]["approvalSlug"], "allow-once")
        clawkit("approvals", "resolve", second["details"]["approvalId"], "deny", "--reason", "no!")
        notices = [json.loads(line) for line in process.stdout]
        by_id = {each["details"]["approvalId"]: each for each in notices}
        assert by_id[first["details"]["approvalId"]]["details"]["exitCode"] == 0
        assert "no!" in by_id[second["details"]["approvalId"]]["content"][0]["text"]
        assert process.wait() == 0
    assert sorted(os.listdir(workspace)) == ["a", "a.txt", "src"]
