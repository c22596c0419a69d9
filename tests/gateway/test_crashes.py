"""Killed at any step of a run, an approval or a change of settings: nothing is lost or repeated."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.scale import FULL

# One program imports everything and forks: a step takes milliseconds that way. SQLite and Python
# say when a statement is about to run or a file is changed; in one process of each step the n-th
# of these is the last.
WALK = """
import asyncio, json, os, signal, sys
import apsw
from clawkit.config.load import load
from clawkit.content import User
from clawkit.core.approval import Answer
from clawkit.gateway.methods.config import ConfigPatch, read_config, write_config
from clawkit.gateway.protocol import now_ms
from clawkit.gateway.server import Gateway
from clawkit.testing import ScriptedModel, call

place, stride, what = sys.argv[1], int(sys.argv[2]), sys.argv[3]
KEY = "agent:main:main"
RULES = 'rules: [{ tool: "ls", effect: "ask" }]'
TEXT = '{ gateway: { auth: { token: "0123456789" } }, tools: { ' + RULES + ' } }'


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


async def opened(model):
    gateway = Gateway(load(), model=model)
    await gateway.start()
    return gateway


async def approve(gateway):
    while True:
        for each in gateway.desk.pending():
            gateway.desk.store.decide(each.id, Answer("allow", by="ada"), now_ms())
        await asyncio.sleep(0.01)


async def turn(gateway):
    approving = asyncio.ensure_future(approve(gateway))
    if gateway.live.run("run-1") is None:
        await gateway.live.start(KEY, "run-1", "work", owner=True, client="c")
        open(os.environ["CLAWKIT_HOME"] + "/accepted", "w").close()
    await asyncio.wait_for(gateway.live.run("run-1").over.wait(), 60)
    approving.cancel()


async def change(gateway):
    base = read_config(gateway)["hash"]
    params = ConfigPatch("{tools: {deny: ['write']}}", base)
    await write_config(gateway, params, "config-patch")
    open(os.environ["CLAWKIT_HOME"] + "/accepted", "w").close()


async def first():
    gateway = await opened(ScriptedModel(call("ls", {}), "done"))
    arm()
    await (turn if what == "turn" else change)(gateway)
    # The rest of the process ends without goodbye, as if the power failed.


async def again(home):
    accepted = os.path.exists(home + "/accepted")
    gateway = await opened(ScriptedModel(then="done"))
    if what == "change":
        with open(home + "/clawkit.json5") as file:
            is_new = "write" in file.read()
        assert gateway.loaded.config.tools.deny == (["write"] if is_new else None) or not is_new
        assert is_new or not accepted
        await change(gateway) if not is_new else None
        assert gateway.loaded.config.tools.deny == ["write"]
        return {"new": is_new}
    known = gateway.live.run("run-1") is not None
    assert known or not accepted, "an accepted run is unknown"
    await turn(gateway)
    found = gateway.live.run("run-1")
    assert (found.status, found.text) == ("ok", "done"), (found.status, found.error)
    stored = gateway.store.find(KEY)
    words = [
        each.message.content[0].text
        for each in gateway.store.history(stored.id)
        if isinstance(each.message, User) and each.message.source is None
    ]
    assert words == ["work"], words
    assert gateway.run_store.unfinished() == []
    return {"known": known, "resumed": len(gateway.store.history(stored.id))}


left = 0


def tick(*_):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return True


def arm():
    global left
    left = step
    if what == "change":
        files = ("open", "os.rename", "os.remove", "os.link", "os.mkdir", "os.chmod")
        sys.addaudithook(lambda event, _: tick() if event in files else None)


step = 1
apsw.connection_hooks.append(lambda db: db.set_exec_trace(tick))
while True:
    home = f"{place}/home{step}"
    os.mkdir(home, 0o700)
    with open(home + "/clawkit.json5", "w") as file:
        file.write(TEXT)
    os.chmod(home + "/clawkit.json5", 0o600)
    code = run(home, lambda _home: asyncio.run(first()))
    if run(home, lambda home: print(json.dumps(asyncio.run(again(home))), flush=True)):
        sys.exit(f"step {step}: something was lost or done twice")
    if code == 0:
        break
    step += stride
print("steps", step, flush=True)
"""


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("what", "least"), [("turn", 30), ("change", 10)])
def test_nothing_accepted_is_lost_or_repeated(tmp_path: Path, what: str, least: int) -> None:
    stride = 1 if FULL else 20
    done = subprocess.run(
        [sys.executable, "-c", WALK, str(tmp_path), str(stride), what],
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stderr
    *outcomes, last = map(str.strip, done.stdout.splitlines())
    assert int(last.split()[1]) > least
    seen = {json.loads(line).get("known", json.loads(line).get("new")) for line in outcomes}
    assert seen == {False, True}
