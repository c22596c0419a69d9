"""Killed at any step between sending a message and reading it: every message is read once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.scale import FULL

# As in test_delegation_crashes.py: SQLite says when a statement is about to run, and in one process
# of each step the n-th is the last.
WALK = """
import asyncio, json, os, signal, sys
import apsw
from clawkit import Agent
from clawkit.content import ToolResult, User
from clawkit.testing import ScriptedModel, calls

place, stride = sys.argv[1], int(sys.argv[2])
CONFIG = {"session": {"agentToAgent": {"maxPingPongTurns": 1}}}
SENDS = [
    {"sessionKey": "b", "message": "note", "mode": "notify"},
    {"sessionKey": "b", "message": "waited"},
    {"sessionKey": "c", "message": "fired", "timeoutSeconds": 0},
]


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


def opened(session, model):
    options = {"workspace": place, "model": model, "session": session, "owner": True}
    return Agent.open(CONFIG, **options)


async def prepare():
    for name in ("b", "c"):
        async with opened(name, ScriptedModel("hi")) as agent:
            await agent.send("hello")


async def first():
    asked = [calls(*(("sessions_send", each) for each in SENDS))]

    def answer(request):
        return asked.pop() if asked and request.session.endswith(":main") else "fine"

    async with opened("main", ScriptedModel(then=answer)) as agent:
        await agent.work("go")


async def again():
    read = {}
    for name in ("b", "c", "main"):
        async with opened(name, ScriptedModel(then="read")) as agent:
            await agent.send("anything new?")
            await agent.settle()
            assert not agent.store.mailbox.unread(agent.session_id, sandboxed=False)
            entries = [each.message for each in agent.store.history(agent.session_id)]
        texts = [
            part.text
            for each in entries
            if isinstance(each, User) and each.source
            for part in each.content
        ]
        ids = [id_ for each in entries if isinstance(each, User) and each.source
               for id_ in each.source.mail]
        assert len(ids) == len(set(ids)), ids
        for given in SENDS:
            if given["sessionKey"] == name:
                read[given["message"]] = sum("> " + given["message"] in each for each in texts)
        if name == "main":
            sent = [each for each in entries if isinstance(each, ToolResult)]
            said = {each.details["runId"] for each in sent if "runId" in each.details}
    assert all(count <= 1 for count in read.values()), read
    assert sum(read.values()) >= len(said), (read, said)
    return read


def die_at(step):
    def work(home):
        asyncio.run(prepare())
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


def look(home):
    assert asyncio.run(again()) == (found := asyncio.run(again()))
    print(json.dumps(found), flush=True)


step = 1 + int(sys.argv[3])
while True:
    home = f"{place}/home{step}"
    os.mkdir(home, 0o700)
    code = run(home, die_at(step))
    if run(home, look):
        sys.exit(f"step {step}: a message was lost or read twice")
    if code == 0:
        break
    step += stride
print("steps", step, flush=True)
"""


@pytest.mark.long
@pytest.mark.untraced
@pytest.mark.timeout(600)
def test_no_message_is_lost_or_read_twice(tmp_path: Path) -> None:
    stride = 1 if FULL else 15
    done = subprocess.run(
        [sys.executable, "-c", WALK, str(tmp_path), str(stride), "0"],
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stderr
    *outcomes, last = done.stdout.splitlines()
    assert int(last.split()[1]) > 50
    seen = {tuple(json.loads(line).values()) for line in outcomes}
    assert json.loads(outcomes[-1]) == {"note": 1, "waited": 1, "fired": 1}
    assert (0, 0, 0) in seen
    assert len(seen) > 2
