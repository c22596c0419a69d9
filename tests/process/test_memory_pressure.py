"""How hard pressed the machine is, and a command that memory ran out under."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lacking import lack
from tests.process.started import BOMBS

from clawkit.process.process_table import count_oom, count_tasks

LIMIT = 200 << 20
SCRIPT = """
import asyncio, json, os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
from clawkit.testing import open_kit

async def main():
    async with open_kit(sys.argv[2], config={"tools": {"exec": {"mode": "full"}}}) as kit:
        for command in sys.argv[3:]:
            result = await kit.call("exec", {"command": command})
            print(json.dumps([result.as_text(), result.details]))

asyncio.run(main())
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with little memory; only where we may make one."""
    mine = [
        line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().split("\n") if line
    ]
    by_kind = {kinds: path for _, kinds, path in mine}
    if "memory" in by_kind:
        place = Path(f"/sys/fs/cgroup/memory{by_kind['memory']}/clawkit-test-{os.getpid()}")
        files = {"memory.limit_in_bytes": LIMIT}
    else:
        place = Path(f"/sys/fs/cgroup{by_kind.get('', '')}/clawkit-test-{os.getpid()}")
        files = {"memory.max": LIMIT, "memory.swap.max": 0}
    try:
        place.mkdir()
        for name, value in files.items():
            (place / name).write_text(str(value))
    except OSError as error:
        lack(f"this machine lets nobody make a control group: {error}")
    yield place
    place.rmdir()


def test_a_command_killed_for_lack_of_memory_is_reported(group: Path, tmp_path: Path) -> None:
    eat = f"{sys.executable} -c 'x = bytearray(900 << 20)'"
    argv = (sys.executable, "-c", SCRIPT, str(group), str(tmp_path), eat, f"{eat}; exit $?")
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=True)
    alone, below = (json.loads(line) for line in done.stdout.splitlines())
    for text, details in (alone, below):
        assert (details["status"], details["exitReason"]) == ("failed", "out-of-memory")
        assert details["failureKind"] == "out-of-memory"
        assert "ran out of memory" in text
    assert alone[1]["exitSignal"] == "SIGKILL"
    assert below[1]["exitCode"] == 137


def test_a_kill_without_want_of_memory_is_a_plain_signal(group: Path, tmp_path: Path) -> None:
    argv = (sys.executable, "-c", SCRIPT, str(group), str(tmp_path), "kill -9 $$")
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=True)
    assert json.loads(done.stdout)[1]["exitReason"] == "signal"


@BOMBS
def test_tasks_are_counted() -> None:
    def notices_more() -> bool:
        before = count_tasks()
        many = [subprocess.Popen(["sleep", "60"]) for _ in range(40)]
        try:
            return count_tasks() > before
        finally:
            for each in many:
                each.kill()
                each.wait()

    # Others may end many at the same moment.
    assert any(notices_more() for _ in range(10))
    assert count_oom() >= 0
