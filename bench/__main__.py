"""`make bench`: each figure with its baseline and limit. Exits with 1 if one exceeds its limit."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from msgspec.structs import replace

from bench import (
    agent,
    commands,
    cron,
    extraction,
    files,
    gateway,
    gateway_server,
    gateway_soak,
    mcp,
    memory,
    plugins,
    races,
    sandbox,
    sessions,
    shellproof,
    soak,
    subagents,
    verdict,
    web,
)
from bench.figure import Figure, fastest
from clawkit.agent.assemble import Assembly, _assemble, _Inputs, assemble
from clawkit.config.load import loads
from clawkit.config.modelref import ModelRef
from clawkit.core.context import Context, Scope, Sender
from clawkit.core.hooks import Call, Hooks
from clawkit.core.result import Result
from clawkit.core.tool import Registered, Tool, tool
from clawkit.policy.pipeline import Subject, apply_policy
from clawkit.runtime import Toolkit
from clawkit.schema.tool_index import ToolIndex
from clawkit.testing import open_kit


def spawn(*args: str) -> Callable[[], object]:
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    env["CLAWKIT_HOME"] = tempfile.gettempdir() + "/clawkit-bench-no-home"
    return lambda: subprocess.run(args, env=env, stdout=subprocess.DEVNULL, check=True)


def start_up() -> list[Figure]:
    clawkit = os.path.join(os.path.dirname(sys.executable), "clawkit")
    base, help_, list_ = [], [], []
    # Interleaved, so that other load on the machine affects all of them equally.
    for _ in range(15):
        base.append(fastest(spawn(sys.executable, "-c", "pass"), 1))
        help_.append(fastest(spawn(clawkit, "--help"), 1))
        list_.append(fastest(spawn(clawkit, "tools", "list"), 1))
    pass_s = min(base)
    note = f"python -c pass: {pass_s * 1e3:.1f} ms"
    return [
        Figure("clawkit --help", min(help_) / pass_s, "x python -c pass", 6, note),
        Figure("clawkit tools list", min(list_) / pass_s, "x python -c pass", 15, note),
    ]


@tool(effects=())
async def nothing(text: str, count: int = 1) -> Result:
    """Do nothing.

    Args:
        text: Anything.
        count: Any number.
    """
    return Result.text("ok")


RULES = [
    {"tool": "nothing", "params": {"text": "*secret*"}, "effect": "deny"},
    {"tool": "nothing", "params": {"text": "/^(a+)+$/"}, "effect": "ask"},
    {"tool": "group:fs", "params": {"path": "*.env"}, "effect": "deny"},
    {"tool": "nothing", "params": {"count": "9*"}, "effect": "ask"},
    {"tool": "*", "params": {"command": "rm *"}, "effect": "deny"},
]


async def pass_by(_call: Call) -> None:
    return None


async def pass_by_after(_call: Call, _result: Result) -> None:
    return None


def call_path() -> list[Figure]:
    payload = {f"key{i}": {"text": "x" * 60, "list": list(range(8))} for i in range(95)}
    hooks = Hooks()
    hooks.before(pass_by)
    hooks.after(pass_by_after)
    with_rules = {"tools": {"rules": RULES}}
    plain = open_kit(tempfile.gettempdir(), nothing)
    full = open_kit(tempfile.gettempdir(), nothing, config=with_rules, hooks=hooks)

    async def calls(kit: Toolkit) -> tuple[float, float]:
        ours, base = [], []
        for _ in range(2000):
            start = time.perf_counter()
            await kit.call("nothing", {"text": "hello", "count": 2})
            ours.append(time.perf_counter() - start)
            start = time.perf_counter()
            json.loads(json.dumps(payload))
            base.append(time.perf_counter() - start)
        return statistics.median(ours), statistics.median(base)

    figures = []
    for name, kit in (("a do-nothing call", plain), ("the same, 2 hooks and 5 rules", full)):
        ours, base = asyncio.run(calls(kit))
        size = len(json.dumps(payload)) / 1000
        note = f"{ours * 1e6:.0f} us against {base * 1e6:.0f} us for {size:.1f} kB of JSON"
        figures.append(Figure(name, ours / base, "x json round trip", 1, note))
    return figures


FULL_POLICY = """{
  tools: {
    profile: "coding", alsoAllow: ["plugin_*", "extra-9*"], deny: ["*_99", "group:ui"],
    byProvider: {"openai/gpt-5.2": {profile: "full", allow: ["*"], deny: ["plugin_1*"]}},
    sandbox: {tools: {allow: ["*"], deny: ["plugin_2*"]}},
    subagents: {tools: {allow: ["*"]}},
    toolsBySender: {"id:42": {deny: ["plugin_3*"]}},
  },
  agents: {list: [{id: "a", tools: {
    allow: ["plugin_*", "read", "group:fs"],
    byProvider: {openai: {deny: ["plugin_4*"]}},
  }}]},
  channels: {telegram: {groups: {g: {tools: {deny: ["plugin_5*"]}}}}},
}"""
FULL_SCOPE = Scope(
    agent="a",
    model=ModelRef("openai", "gpt-5.2"),
    channel="telegram",
    group="g",
    sender=Sender(owner=True, id="42"),
    sandboxed=True,
    depth=1,
    allow=("*",),
)


def policy() -> list[Figure]:
    config = loads(FULL_POLICY).config
    subjects = [Subject(f"plugin_{i}", "plugin:big") for i in range(1000)]
    judged = fastest(lambda: apply_policy(config, FULL_SCOPE, subjects), 30)
    assemble(config, FULL_SCOPE)
    cached = fastest(lambda: assemble(config, FULL_SCOPE), 200)
    fresh = fastest(lambda: _assemble.__wrapped__(_Inputs(config, FULL_SCOPE, ())), 30)
    note = f"{fresh * 1e3:.2f} ms when not remembered"
    return [
        Figure("policy, 1,000 tools, all steps", judged * 1e3, "ms", 10),
        Figure("assembly, remembered", cached * 1e3, "ms", 1, note),
        *many_tools(),
    ]


def many_tools() -> Iterator[Figure]:
    """500 tools of servers, which are deferred, and a search for one of them."""

    async def nothing(_params: Any, _ctx: Context) -> None: ...

    verbs = ("create", "list", "update", "delete", "find")
    words = ("issue", "branch", "invoice", "calendar event", "message", "file", "user", "ticket")
    pairs = [f"{verb} {word}" for verb in verbs for word in words]
    properties = {
        name: {"type": "string", "description": f"The {name} of the thing, as the service has it."}
        for name in ("id", "title", "owner", "state", "labels", "created", "updated", "comment")
    }
    schema = {"properties": properties, "required": ["id"], "additionalProperties": False}
    names = [f"server{at}__{what.replace(' ', '_')}" for at in range(13) for what in pairs][:500]
    config, scope = loads("{}").config, Scope()

    def assemble_new() -> Assembly:
        made = (
            Tool(name, f"This tool can {name.partition('__')[2]} in its account.", schema, nothing)
            for name in names
        )
        extra = tuple(Registered(tool, "mcp:server") for tool in made)
        return _assemble.__wrapped__(_Inputs(config, scope, extra))

    made = assemble_new()
    index = ToolIndex(made.tools, made.deferral.names, made.sources)
    assert len(index.deferred) == 500
    built = fastest(lambda: replace(index).search("invoice", 10), 10)
    index.search("invoice", 10)
    query = "find the calendar event of last week and update its title"
    yield Figure("assembly, 500 more tools", fastest(assemble_new, 10) * 1e3, "ms", 50)
    found = fastest(lambda: index.search(query, 10), 200)
    note = f"{built * 1e3:.1f} ms the first time"
    yield Figure("search in 500 tools", found * 1e3, "ms", 1, note)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("parts", nargs="*", help="what to measure; all of it if nothing is named")
    parser.add_argument("--count", type=int, default=shellproof.COUNT, help="commands of the proof")
    parser.add_argument("--seed", type=int, default=1, help="what its first command is made from")
    given = parser.parse_args()
    parts: dict[str, Callable[[], Iterable[Figure]]] = {
        "start": start_up,
        "call": call_path,
        "policy": policy,
        "plugins": plugins.measure,
        "files": files.measure,
        "races": races.measure,
        "commands": commands.measure,
        "sandbox": sandbox.measure,
        "soak": soak.measure,
        "verdict": verdict.measure,
        "sessions": sessions.measure,
        "cron": cron.measure,
        "subagents": subagents.measure,
        "agent": agent.measure,
        "gateway": lambda: chain(gateway.measure(), gateway_server.measure()),
        "gateway-soak": gateway_soak.measure,
        "mcp": mcp.measure,
        "extraction": extraction.measure,
        "memory": memory.measure,
        "web": web.measure,
        "proof": lambda: shellproof.measure(given.count, given.seed),
    }
    over = False
    for name in given.parts or parts:
        for each in parts[name]():
            mark = "OVER" if each.over else "ok"
            print(
                f"{each.name:<36} {each.value:8.3g} {each.unit:<22} limit {each.limit:<5g} "
                f"{mark:<5} {each.note}",
                flush=True,
            )
            over = over or each.over
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
