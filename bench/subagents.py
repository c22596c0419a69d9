"""Sub-agents against a scripted model: how soon one asks its model, and how well many share."""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from bench.figure import Figure
from clawkit import Agent
from clawkit.models.protocols import Request
from clawkit.testing import ScriptedModel

CHILDREN = 100
AT_ONCE = 20
ANSWER_S = 0.1
STARTS = 15


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="clawkit-bench-") as place:
        os.makedirs(f"{place}/ws")
        before = os.environ.get("CLAWKIT_HOME")
        os.environ["CLAWKIT_HOME"] = f"{place}/home"
        try:
            yield from asyncio.run(_measure(f"{place}/ws"))
        finally:
            if before is None:
                del os.environ["CLAWKIT_HOME"]
            else:
                os.environ["CLAWKIT_HOME"] = before


async def _measure(workspace: str) -> list[Figure]:
    asked: list[float] = []
    answer_s = 0.0

    async def answer(_request: Request) -> str:
        asked.append(time.perf_counter())
        await asyncio.sleep(answer_s)
        return "done"

    async def to_request(work: Any) -> float:
        asked.clear()
        began = time.perf_counter()
        await work
        return (asked[0] - began) * 1e3

    limits = {"maxConcurrent": AT_ONCE, "maxChildrenPerAgent": AT_ONCE}
    config = {"agents": {"defaults": {"subagents": limits}}}
    model = ScriptedModel(then=answer)
    async with Agent.open(config, workspace=workspace, model=model) as agent:
        await agent.spawn("warm up")
        turns = [await to_request(agent.send("go")) for _ in range(STARTS)]
        spawns = [await to_request(agent.spawn("go")) for _ in range(STARTS)]
        turn, spawned = statistics.median(turns), statistics.median(spawns)
        answer_s = ANSWER_S
        began, before = time.perf_counter(), _memory_mb()
        many = asyncio.gather(*(agent.spawn(f"task {number}") for number in range(CHILDREN)))
        await asyncio.sleep(ANSWER_S / 2)
        grown = _memory_mb() - before
        await many
        took = time.perf_counter() - began
    ideal = CHILDREN / AT_ONCE * ANSWER_S
    note = f"{spawned:.1f} ms against {turn:.1f} ms for a turn"
    shared = f"{CHILDREN} of {ANSWER_S:g} s each, {AT_ONCE} at once: {took:.2f} s"
    each = f"{AT_ONCE} at work: {grown:.1f} MB more"
    return [
        Figure("spawn to first request", spawned - turn, "ms more than a turn", 15, note),
        Figure("many sub-agents", took / ideal, "x the ideal schedule", 1.5, shared),
        Figure("memory of 100 sub-agents", grown / AT_ONCE * CHILDREN, "MB", 150, each),
    ]


def _memory_mb() -> float:
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        pss = next(line for line in file if line.startswith("Pss:"))
    return int(pss.split()[1]) / 1024
