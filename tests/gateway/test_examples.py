"""Answers and events have what clients of the protocol read, with the same types.

`answers.txt` has a line for each method and event: the keys that OpenClaw's gateway sends as well.
A name alone is a text; `#` is a number, `?` a boolean, `{…}` an object, `[…]` a list of objects
with these keys, which must not be empty, `[]` any list. `@name` stands for the keys of that line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.gateway.conftest import PROXY, TOKEN, Device, Ground, Peer, hello_params, serve
from tests.gateway.test_nodes import STATS, answer, join

from clawkit.gateway.hub import EVENTS
from clawkit.gateway.methods import METHODS
from clawkit.testing import ScriptedModel, call

TEXT = Path(__file__).with_name("answers.txt").read_text(encoding="utf-8")
SHAPES = dict(line.split(": ", 1) for line in TEXT.splitlines() if line)
MAIN = "agent:main:main"
FAR = {"X-Forwarded-For": "203.0.113.5"}
LAB = {"baseUrl": "http://127.0.0.1:9/v1", "apiKey": "k" * 20, "models": [{"id": "one"}]}
CONFIG = {
    "tools": {
        "exec": {"security": "full", "ask": "off", "host": "gateway"},
        "rules": [{"tool": "ls", "effect": "ask"}],
    },
    "models": {"providers": {"lab": LAB}},
    "gateway": {"trustedProxies": [PROXY], "auth": {"token": TOKEN}},
}
LACKING = {
    "diagnostics.stability": "events inside the gateway are in its log, and counted at /metrics",
    "exec.approval.grants.list": "the grants of a job are part of it: cron.get, cron.update",
    "device.pair.setupCode": "its code would make the owner of whoever photographs it",
    "chat.inject": "what an assistant has said is what a model said",
    "agents.create": "agents are made in the configuration: config.patch, clawkit agents add",
    "agents.files.list": "the files of a workspace are for the tools of its agents",
}
"""Methods that clients call and that are left out, and why."""
ELSEWHERE = {
    *("gateway.restart.request", "doctor.run", "exec.approvals.check", "device.pair.loginCode"),
    *("exec.approvals.node.set", "node.pair.reject", "node.pair.remove", "node.invoke.result"),
    *("cron.describe", "sessions.abort", "config.apply", "update.status", "update.run"),
}
"""Methods without a recorded answer that has keys; other tests call them."""


def wrong(value: Any, shape: str) -> Iterator[str]:
    """What a value lacks of a shape, or has with another type."""
    if shape.startswith("["):
        yield from _wrong_list(value, shape[1:-1], "")
        return
    shape = re.sub(r"@\w+", lambda name: SHAPES[name[0]], shape)
    for name, rest in _fields(shape):
        if not isinstance(value, dict) or name not in value:
            yield f"{name} is missing"
            continue
        found = value[name]
        match rest[:1]:
            case "{":
                inner = wrong(found, rest[1:-1]) if rest != "{}" else iter(())
                yield from (f"{name}.{each}" for each in inner)
                kinds: Any = dict
            case "[":
                yield from _wrong_list(found, rest[1:-1], name)
                kinds = list
            case mark:
                kinds = {"": str, "#": (int, float), "?": bool}[mark]
        if not isinstance(found, kinds) or (rest == "#" and isinstance(found, bool)):
            yield f"{name} is {type(found).__name__}"


def _wrong_list(value: Any, inner: str, name: str) -> Iterator[str]:
    if not isinstance(value, list) or (inner and not value):
        yield f"{name}[] has nothing"
    elif inner:
        yield from (f"{name}[].{each}" for item in value for each in wrong(item, inner))


def _fields(shape: str) -> Iterator[tuple[str, str]]:
    """The names at the top of a shape, each with what follows it."""
    depth, word = 0, ""
    for char in f"{shape} ":
        depth += (char in "{[") - (char in "}]")
        if char == " " and depth == 0:
            if found := re.fullmatch(r"(\w[\w-]*)(.*)", word):
                yield found[1], found[2]
            word = ""
        else:
            word += char


def name_of(event: dict[str, Any]) -> str:
    payload = event["payload"]
    if event["event"] == "agent":
        return f"agent {payload['stream']} {payload['data'].get('phase', '')}".strip()
    return f"chat {payload['state']}" if event["event"] == "chat" else str(event["event"])


class Walk:
    """A client that calls every method in the form that other clients do, and keeps the answers."""

    def __init__(self, ground: Ground, owner: Peer) -> None:
        self.ground, self.owner = ground, owner
        self.answers: dict[str, Any] = {"connect": owner.hello}

    async def ask(self, name: str, params: Any = None, by: Peer | None = None) -> Any:
        self.answers[name] = await (by or self.owner).call(name, {} if params is None else params)
        return self.answers[name]

    async def event(self, name: str) -> Any:
        return (await self.owner.until(lambda each: each.get("event") == name))["payload"]

    async def talk(self) -> None:
        await self.ask("sessions.subscribe")
        await self.ask("sessions.messages.subscribe", {"key": MAIN, "includeApprovals": True})
        said = {"sessionKey": MAIN, "message": "go", "deliver": False, "idempotencyKey": "r1"}
        await self.ask("chat.send", said)
        await self.owner.until_chat("final", "r1")
        await self.ask("agent.wait", {"runId": "r1", "timeoutMs": 60_000})
        about = {"agentId": "main", "sessionKey": MAIN, "deliver": False, "timeout": 600}
        await self.ask("agent", {"message": "go on", "idempotencyKey": "r2", **about})

    async def approve(self) -> None:
        asked = {"id": (await self.event("exec.approval.requested"))["id"]}
        await self.ask("exec.approval.list")
        for name in ("exec.approval.get", "approval.get"):
            await self.ask(name, asked)
        await self.ask("approval.resolve", {**asked, "kind": "exec", "decision": "allow-once"})
        await self.owner.until_chat("final", "r2")
        own: dict[str, Any] = {"id": "lab-1", "command": "uname -a", "cwd": "/tmp"}
        policy = {"host": "gateway", "security": "allowlist", "ask": "always"}
        place = {"agentId": "main", "sessionKey": MAIN, "timeoutMs": 60_000, "twoPhase": True}
        await self.ask("exec.approval.request", own | policy | place)
        again = await self.owner.refused("exec.approval.request", own | policy | place)
        assert "id" in again["message"]
        await self.ask("exec.approval.resolve", {"id": "lab-1", "decision": "allow-once"})
        await self.ask("exec.approval.waitDecision", {"id": "lab-1"})
        assert self.answers["exec.approval.waitDecision"]["decision"] == "allow-once"
        await self.ask("approval.history")
        hash_ = (await self.ask("exec.approvals.get"))["hash"]
        file = {"version": 1, "agents": {"main": {"allowlist": [{"pattern": "/usr/bin/uname"}]}}}
        await self.ask("exec.approvals.set", {"file": file, "baseHash": hash_})

    async def read(self) -> None:
        for name in (
            *("plugin.approval.list", "openclaw.approval.list", "health", "system-presence"),
            *("system.info", "agents.list", "usage.status", "secrets.reload", "config.get"),
            *("config.schema", "gateway.identity.get", "skills.status", "tools.catalog"),
        ):
            await self.ask(name)
        main = {"agentId": "main", "sessionKey": MAIN}
        listed = ("includeGlobal", "includeUnknown", "configuredAgentsOnly", "ownerFirst")
        for name, params in {
            "status": {"includeChannelSummary": False},
            "logs.tail": {"limit": 3},
            "channels.status": {"probe": False, "timeoutMs": 5_000},
            "usage.cost": {"days": 2},
            "sessions.usage": {"limit": 2},
            "agent.identity.get": {"agentId": "main"},
            "memory.search": {"query": "x"},
            "doctor.memory.status": {"probe": False},
            "models.list": {"view": "configured", **main},
            "models.authStatus": {"agentId": "main"},
            "commands.list": {"includeArgs": True, "scope": "text"},
            "tools.effective": {"sessionKey": MAIN},
            "tools.invoke": {"name": "nope"},
            "chat.history": {"sessionKey": MAIN, "limit": 20, "maxBytes": 65_536},
            "chat.metadata": main,
            "chat.abort": {"sessionKey": MAIN, "runId": "r1"},
            "sessions.list": {**dict.fromkeys(listed, True), "limit": 200, "agentId": "main"},
            "sessions.describe": {"key": MAIN, "agentId": "main"},
            "sessions.resolve": {"key": "main"},
            "sessions.preview": {"keys": [MAIN], "limit": 3, "maxChars": 60},
            "sessions.get": {"key": MAIN, "limit": 2},
            "config.schema.lookup": {"path": "gateway"},
        }.items():
            await self.ask(name, params)
        since = self.answers["chat.history"]["deltaCursor"]
        await self.ask("chat.startup", {"sessionKey": MAIN, "cursor": since, "limit": 80})

    async def change(self) -> None:
        key = (await self.ask("sessions.create", {"agentId": "main", "label": "lab"}))["key"]
        changed = {"key": key, "thinkingLevel": "off", "verboseLevel": "on"}
        assert (await self.ask("sessions.patch", changed))["ignored"] == ["verboseLevel"]
        await self.ask("sessions.send", {"key": key, "message": "hi", "idempotencyKey": "r3"})
        await self.owner.until_chat("final", "r3")
        for name in ("sessions.compact", "sessions.reset"):
            await self.ask(name, {"key": key})
        await self.ask("sessions.delete", {"key": key, "deleteTranscript": True})
        await self.ask("sessions.messages.unsubscribe", {"key": MAIN})
        raw = '{"agents": {"defaults": {"thinkingDefault": "off"}}}'
        hash_ = (await self.owner.call("config.get"))["hash"]
        await self.ask("config.patch", {"raw": raw, "baseHash": hash_})
        await self.event("config.changed")
        found = await self.owner.call("config.get")
        await self.ask("config.set", {"raw": found["raw"], "baseHash": found["hash"]})

    async def schedule(self) -> None:
        every = {"kind": "every", "everyMs": 600_000}
        job = {"name": "job1", "enabled": True, "schedule": every, "sessionTarget": "isolated"}
        job |= {"wakeMode": "now", "delivery": {"mode": "none", "channel": "last"}}
        turn = {"kind": "agentTurn", "message": "go"}
        id_ = {"id": (await self.ask("cron.add", job | {"payload": turn}))["id"]}
        await self.ask("cron.update", {**id_, "patch": {"name": "job1b"}})
        await self.owner.call("cron.add", job | {"payload": turn})
        await self.ask("cron.list", {"limit": 1})
        await self.ask("cron.status")
        await self.ask("cron.run", {**id_, "mode": "force"})
        await self.owner.until(
            lambda each: each.get("event") == "cron" and each["payload"]["action"] == "finished"
        )
        for name in ("cron.get", "cron.runs", "cron.remove"):
            await self.ask(name, id_)
        await self.ask("wake", {"mode": "next-heartbeat", "text": "hello event"})

    async def turn_on_heartbeats(self) -> None:
        place = Path(self.ground.gateway.live.workspace("main"))
        (place / "HEARTBEAT.md").write_text("Check the door.", encoding="utf-8")
        await self.ask("set-heartbeats", {"enabled": True})

    async def beat(self) -> None:
        await self.ask("system-event", {"text": "It rings."})
        self.ground.gateway.job_runner.jobs().run("heartbeat-main", "force")
        await self.event("heartbeat")
        await self.ask("last-heartbeat")

    async def use_nodes(self) -> None:
        device = Device()
        node, node_id = await join(self.ground, device), {"nodeId": device.id}
        pending = await self.event("node.pair.requested")
        await self.ask("node.pair.approve", {"requestId": pending["requestId"]})
        stats = {"event": "node.host.stats", "payloadJSON": json.dumps(STATS)}
        await self.ask("node.event", stats, node)
        await self.event("node.hostStats")
        await self.ask("node.rename", {**node_id, "displayName": "lab-node"})
        for name in ("node.list", "node.pair.list", "device.pair.list"):
            await self.ask(name)
        await self.ask("node.describe", node_id)
        command = {"command": "system.which", "params": {"bins": ["ls"]}, "idempotencyKey": "i1"}
        for name, params in (
            ("node.invoke", {**node_id, **command, "timeoutMs": 15_000}),
            ("exec.approvals.node.get", node_id),
        ):
            sent = await self.owner.send(name, params)
            await answer(node, payload={"path": "x", "exists": False, "hash": "", "file": {}})
            self.answers[name] = (await self.owner.answer(sent))["payload"]

    async def use_devices(self) -> None:
        phone = Device()
        for name in ("device.pair.approve", "device.pair.reject"):
            wish = hello_params(["operator.read", "operator.write"])
            _, frame = await self.ground.shake(wish, phone, headers=FAR)
            error = frame["error"]
            assert (error["code"], error["details"]["code"]) == ("NOT_PAIRED", "PAIRING_REQUIRED")
            await self.ask(name, {"requestId": error["details"]["requestId"]})
            if name == "device.pair.approve":
                one = {"deviceId": phone.id}
                await self.ask("device.pair.rename", {**one, "label": "lab dev"})
                await self.ask("device.token.rotate", {**one, "role": "operator"})
                await self.ask("device.token.revoke", {**one, "role": "operator"})
                await self.ask("device.pair.remove", one)
        await self.event("device.pair.resolved")


async def test_answers_and_events_have_what_clients_read(tmp_path: Path) -> None:
    file = tmp_path / "clawkit.json"
    file.write_text(json.dumps(CONFIG))
    steps = (call("exec", {"command": "true"}), "done", call("ls", {}), "done")
    async with serve(str(file), ScriptedModel(*steps, then="hello")) as ground:
        client: Any = {"caps": ["tool-events"], "client": ("openclaw-tui", "ui")}
        walk = Walk(ground, await ground.join(device=Device(), **client))
        await walk.talk()
        turn = [name_of(each) for each in walk.owner.events]
        await walk.approve()
        await walk.turn_on_heartbeats()
        await walk.read()
        await walk.change()
        await walk.schedule()
        await walk.beat()
        await walk.use_nodes()
        await walk.use_devices()
        for name in LACKING:
            assert (await walk.owner.refused(name))["message"] == f"unknown method: {name}"
    found = {**walk.answers}
    for event in [each for each in walk.owner.events if each["type"] == "event"]:
        found.setdefault(f"event {name_of(event)}", event["payload"])
    shapes = {name: shape for name, shape in SHAPES.items() if not name.startswith("@")}
    problems = {name: sorted(set(wrong(found.get(name), shapes[name]))) for name in shapes}
    assert {name: each for name, each in problems.items() if each} == {}
    own = {name for name in METHODS if name.startswith("clawkit.")}
    assert METHODS.keys() - own - ELSEWHERE == walk.answers.keys() - {"connect"}
    _check_order(turn)


def _check_order(turn: list[str]) -> None:
    """The events of a turn with a call come in the order that clients know."""
    expected = [
        *("sessions.changed", "agent lifecycle start", "session.message", "chat status"),
        *("agent lifecycle model", "session.message", "agent item start", "agent tool start"),
        *("agent tool result", "agent item end", "agent command_output end", "session.message"),
        *("agent lifecycle model", "agent assistant", "chat delta", "session.message"),
        *("agent lifecycle finishing", "agent lifecycle end", "chat final", "sessions.changed"),
    ]
    left = iter(turn)
    assert [name for name in expected if name not in left] == []
    assert {each.split()[0] for each in turn} <= {*EVENTS, "connect.challenge"}
