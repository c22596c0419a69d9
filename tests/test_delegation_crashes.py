"""Each result of a sub-agent is reported once, wherever clawkit is killed meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.scale import FULL

# One program imports everything and forks: a step takes milliseconds that way. SQLite itself says
# when a statement is about to run; in one process of each step the n-th is the last.
WALK = """
import asyncio, json, os, signal, subprocess, sys
from contextlib import suppress
from glob import glob
import apsw
from clawkit import Agent
from clawkit.content import User
from clawkit.errors import ConflictError
from clawkit.testing import ScriptedModel, call, calls

place, stride = sys.argv[1], int(sys.argv[2])
work = f"{place}/work"
os.mkdir(work)
who = ("-c", "user.name=t", "-c", "user.email=t")
for words in (("init", "-q"), (*who, "commit", "-q", "--allow-empty", "-m", "first")):
    subprocess.run(["git", "-C", work, *words], check=True)


def run(home, work):
    pid = os.fork()
    if pid == 0:
        os.environ["CLAWKIT_HOME"] = home
        try:
            work(home)
        except BaseException as error:
            print("failed:", home, repr(error), file=sys.stderr, flush=True)
            os._exit(9)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def script():
    tasks = [{"task": name, "label": name} for name in ("good", "bad", "nested")]
    tasks[0] |= {"attachments": [{"name": "f", "content": "x"}], "worktree": True}
    tasks[1]["worktree"] = True
    parent = [calls(*(("sessions_spawn", each) for each in tasks)), "waiting"]

    def answer(request):
        text = request.messages[-1].content[0].text
        if "You are a sub-agent" not in request.system:
            return parent.pop(0) if parent else "read"
        if text.endswith("nested"):
            return calls(("sessions_spawn", {"task": "leaf", "label": "leaf"}))
        if text.endswith("bad"):
            return call("write", {"path": "new", "content": "x"})
        is_bad = any("bad" in part.text for part in request.messages[0].content)
        return "" if is_bad else "done"

    return ScriptedModel(then=answer)


CONFIG = {
    "agents": {"defaults": {"subagents": {"maxSpawnDepth": 2}}},
    "tools": {
        "sessions_spawn": {"attachments": {"enabled": True}},
        "subagents": {"tools": {"alsoAllow": ["write"]}},
    },
}


async def first():
    async with Agent.open(CONFIG, workspace=work, model=script(), session="s") as agent:
        await agent.work("go")


async def again():
    model = ScriptedModel(then="read")
    async with Agent.open(CONFIG, workspace=work, model=model, session="s") as agent:
        await agent.settle()
        assert not agent.has_results
        runs = agent.store.runs
        sessions = [each.id for each in agent.store.recent(limit=99)]
        every = [run for each in sessions for run in runs.of_requester(each)]
        told = [
            id_
            for each in sessions
            for entry in agent.store.history(each)
            if isinstance(entry.message, User) and entry.message.source
            for id_ in entry.message.source.runs
        ]
        assert all(run.is_over and run.told_ms for run in every), every
        assert sorted(told) == sorted(run.id for run in every), (told, every)
        home = os.environ["CLAWKIT_HOME"]
        assert not glob(f"{home}/attachments/*")
        # What was changed is kept, and who has to know of it does.
        kept = [run.changes for run in every if "which is kept" in run.changes]
        found = glob(f"{home}/worktrees/*/*")
        assert len(kept) == len(found), (kept, found)
        assert all(any(each in said for said in kept) for each in found)
        assert all("+x" in said for said in kept), kept
        return {run.label: run.status for run in every}


def die_at(step):
    def work(home):
        left = step

        def trace(*_):
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return True

        apsw.connection_hooks.append(lambda db: db.set_exec_trace(trace))
        asyncio.run(first())

    return work


async def free():
    # A child that was just being started may hold the lock of who was killed for a moment.
    for _ in range(600):
        with suppress(ConflictError):
            return await again()
        await asyncio.sleep(0.1)
    return await again()


def look(home):
    for _ in range(2):
        found = asyncio.run(free())
    print(json.dumps(found), flush=True)


step = 1 + int(sys.argv[3])
while True:
    home = f"{place}/home{step}"
    os.mkdir(home, 0o700)
    code = run(home, die_at(step))
    if run(home, look):
        sys.exit(f"step {step}: a result was lost or told twice")
    if code == 0:
        break
    step += stride
print("steps", step, flush=True)
"""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_no_result_is_lost_or_reported_twice(tmp_path: Path) -> None:
    stride = 1 if FULL else 25
    done = subprocess.run(
        [sys.executable, "-c", WALK, str(tmp_path), str(stride), "0"],
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stderr
    *outcomes, last = done.stdout.splitlines()
    assert int(last.split()[1]) > 100
    seen = {status for line in outcomes for status in json.loads(line).values()}
    assert {"completed", "failed", "interrupted"} <= seen
    assert json.loads(outcomes[-1]) == {
        "good": "completed",
        "bad": "failed",
        "nested": "completed",
        "leaf": "completed",
    }
