"""Which commands of one message may run at the same time."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tests.tables import table

from clawkit.core.call import CallRequest, Event
from clawkit.testing import open_kit
from clawkit.tools.exec import only_reads

FREE = {"tools": {"exec": {"security": "full", "ask": "off"}}}


@table(
    ("command", "expected"),
    [
        ("sleep 0.3", True),
        ("  ls -la src && wc -l a.txt ", True),
        ("cat a.txt | grep -n x | head -3", True),
        ("true; false || echo no", True),
        ("touch a", False),
        ("ls > out.txt", False),
        ("echo $(rm a)", False),
        ("echo `rm a`", False),
        ("cat 'a b'", False),
        ("ls & rm a", False),
        ("ls\nrm a", False),
        ("find . -delete", False),
        ("sort -o a b", False),
        ("ls && rm a", False),
        ("x=1 ls", False),
        ("ls &&", False),
        ("", False),
    ],
)
def test_a_command_only_looks_when_every_step_plainly_does(command: str, expected: bool) -> None:
    assert only_reads(command) is expected


async def test_commands_that_only_look_run_at_the_same_time(tmp_path: Path) -> None:
    events: list[tuple[str, str]] = []
    started = asyncio.Event()
    gates = [tmp_path / f"gate{n}" for n in range(3)]
    for gate in gates:
        os.mkfifo(gate)

    def note(event: Event) -> None:
        events.append((event["type"], event["callId"]))
        if [kind for kind, _ in events].count("start") == 3:
            started.set()

    async with open_kit(tmp_path, config=FREE, on_event=note) as kit:
        calls = [CallRequest("exec", {"command": f"cat gate{n}"}, str(n)) for n in range(3)]
        running = asyncio.create_task(kit.call_all(calls))
        # None of them can end before all have begun.
        await started.wait()
        for gate in gates:
            await asyncio.to_thread(gate.write_text, "go\n")
        await running
    kinds = [kind for kind, _ in events if kind in ("start", "end")]
    assert kinds == ["start"] * 3 + ["end"] * 3


async def test_commands_that_change_something_run_one_after_the_other(tmp_path: Path) -> None:
    async with open_kit(tmp_path, config=FREE) as kit:
        calls = [
            CallRequest("exec", {"command": f"sleep 0.05; echo {number} >> order"})
            for number in range(4)
        ]
        await kit.call_all(calls)
    assert (tmp_path / "order").read_text().split() == ["0", "1", "2", "3"]
