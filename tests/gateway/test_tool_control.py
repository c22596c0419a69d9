"""The tool `gateway` in a session of a real gateway, and what it must not change."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.conftest import TOKEN, Device, Ground, serve
from tests.gateway.test_safety_cases import FILE
from tests.gateway.test_turns import READ_WRITE, message
from tests.tables import table

from clawkit.config.json5 import parse_path
from clawkit.config.lookup import find
from clawkit.config.text_edit import merged
from clawkit.gateway.config_text import MARKER
from clawkit.gateway.tool_control import MODELS_MAY_CHANGE, protected_changes
from clawkit.testing import ScriptedModel, call

CASES = {
    case["id"]: case["input"]["params"]
    for line in FILE.read_text(encoding="ascii").splitlines()
    for case in [json.loads(line)]
    if case["area"] == "gateway" and case["input"].get("tool") == "gateway"
}
SECRET = "sk-very-secret-value-123456"
TEXT = f"""{{
  gateway: {{ auth: {{ token: "{TOKEN}" }} }}, // keep
  models: {{ providers: {{ lab: {{ baseUrl: "http://127.0.0.1:9/v1", apiKey: "{SECRET}" }} }} }},
  tools: {{ deny: ["write"], exec: {{ strictInlineEval: true }} }},
}}
"""


class Stage:
    """A session whose model does what the test says."""

    def __init__(self, ground: Ground, model: ScriptedModel, file: Path) -> None:
        self.ground = ground
        self.model = model
        self.file = file
        self.count = 0

    async def use(self, params: dict[str, Any], scopes: list[str] | None = None) -> dict[str, Any]:
        """The result of a call by the model, as the model sees it."""
        self.count += 1
        self.model.add(call("gateway", params), "done")
        peer = await self.ground.join(scopes, Device(), caps=["tool-events"])
        await peer.call("chat.send", message("go", f"run-{self.count}"))
        await peer.until_chat("final")
        [found] = [
            each["data"]
            for each in peer.of("agent")
            if each["stream"] == "tool" and each["data"]["phase"] == "result"
        ]
        text = "".join(part["text"] for part in found["result"]["content"])
        assert SECRET not in text
        details = {} if found["isError"] else json.loads(text)
        return {"isError": found["isError"], "text": text, "details": details}


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    path = Path(os.environ["CLAWKIT_HOME"]) / "clawkit.json5"
    path.write_text(TEXT, encoding="utf-8")
    path.chmod(0o600)
    model = ScriptedModel()
    async with serve(str(path), model) as ground:
        yield Stage(ground, model, path)


def test_every_case_of_the_tool_is_run() -> None:
    assert len(CASES) == 9


@pytest.mark.parametrize("case", [id_ for id_ in CASES if id_ != "gateway/cfg-rate"])
async def test_a_change_that_must_be_blocked(stage: Stage, case: str) -> None:
    params = CASES[case]
    raw = json.dumps(params["raw"])
    for action in ("config.patch", "config.apply"):
        result = await stage.use({**params, "action": action, "raw": raw})
        assert result["isError"], result
        assert stage.file.read_text(encoding="utf-8") == TEXT
    if case not in ("gateway/cfg-proto", "gateway/cfg-include"):
        assert "a model may not change" in result["text"]


async def test_a_model_changes_only_so_much_in_a_minute(stage: Stage) -> None:
    results = []
    for number in range(CASES["gateway/cfg-rate"]["raw"]["repeat"]):
        raw = f"{{messages: {{queue: {{cap: {number + 5}}}}}}}"
        results.append(await stage.use({"action": "config.patch", "raw": raw}))
    assert [each["isError"] for each in results] == [False, False, False, True]
    assert "too many changes" in results[-1]["text"]
    assert "cap: 7" in stage.file.read_text(encoding="utf-8")


def nest(path: str, value: Any) -> Any:
    for part in reversed(path.split(".")):
        value = {part: value}
    return value


@table("pattern", MODELS_MAY_CHANGE)
def test_what_a_model_may_change_exists_and_is_open(pattern: str) -> None:
    path = pattern.replace("*", "helper")
    assert find(parse_path(path)).shape is not None
    there = {"agents": {"entries": {"helper": {"tools": {"deny": ["exec"]}}}}}
    assert protected_changes(there, merged(there, nest(path, "x"))) == []
    assert protected_changes(merged(there, nest(path, "x")), there) == []
    assert protected_changes(nest(path, "x"), nest(path, ["y"])) == []


@table("name", ["new", "x:y", "*", "\u200bmain", "main ", "a/../b", "Main", ""])
def test_a_model_makes_and_removes_no_agents(name: str) -> None:
    main = {"main": {"model": "lab/x"}}
    before = {"agents": {"entries": main}}
    after = {"agents": {"entries": {**main, name: {"model": "lab/x"}}}}
    [refused] = protected_changes(before, after)
    assert refused.startswith("agents.entries")
    assert protected_changes(after, before) == [refused]
    assert protected_changes({}, after)


@table("name", ["x:y", "*", "\u200bmain", "main ", "a/../b"])
def test_an_agent_with_an_odd_name_is_not_a_models_to_change(name: str) -> None:
    before, after = ({"agents": {"entries": {name: {"model": each}}}} for each in ("a/b", "c/d"))
    assert len(protected_changes(before, after)) == 1


async def test_a_model_makes_no_agent_without_its_limits(stage: Stage) -> None:
    raw = "{agents: {entries: {evil: {model: 'lab/x'}}}}"
    result = await stage.use({"action": "config.patch", "raw": raw})
    assert "a model may not change agents.entries.evil.model" in result["text"]
    assert stage.file.read_text(encoding="utf-8") == TEXT


@table(
    ("before", "after", "refused"),
    [
        ({}, nest("tools.exec.ask", "off"), ["tools.exec.ask"]),
        (nest("tools.deny", ["x"]), nest("tools.deny", []), ["tools.deny"]),
        (nest("tools.deny", ["x"]), {"tools": {}}, ["tools.deny"]),
        ({}, nest("agents.defaults.model", "$SECRET"), ["agents.defaults.model"]),
        (
            {},
            nest("agents.defaults.model.primary", "a${SECRET}"),
            ["agents.defaults.model.primary"],
        ),
        ({}, nest("agents.defaults.model.$include", "x"), None),
        ({}, nest("agents.defaults.model.fallbacks", [{"$include": "x"}]), None),
        ({}, nest("agents.defaults.model.apiKey", "x"), ["agents.defaults.model.apiKey"]),
        ({}, {"agents.defaults.model": "x"}, None),
        ({}, {"agents": {"defaults": {"model": {"primary": {"$include": "x"}}}}}, None),
        ({}, nest("agents.entries.new", {}), ["agents.entries.new"]),
        ({}, nest("agents.entries.new.workspace", "/"), ["agents.entries.new.workspace"]),
        ({}, nest("agents.list", [{"id": "x"}]), ["agents.list"]),
        ({}, nest("commands.restart", True), ["commands.restart"]),
        ({}, nest("gateway.auth.mode", "none"), ["gateway.auth.mode"]),
        ({}, nest("env.LD_PRELOAD", "x"), ["env.LD_PRELOAD"]),
        ({}, nest("models.providers.x.baseUrl", "http://evil.test"), None),
        ({}, nest("agents.defaults.sandbox.mode", "off"), ["agents.defaults.sandbox.mode"]),
        ({"messages": {}}, nest("messages.queue.cap", 5), []),
        (nest("tools.allow", ["a"]), nest("tools.allow", ["a"]), []),
        ({"a": 1}, "text", None),
        ({}, [], None),
    ],
)
def test_what_a_model_may_not_change(before: Any, after: Any, refused: list[str] | None) -> None:
    found = protected_changes(before, after)
    assert found if refused is None else sorted(found) == sorted(refused)


async def test_settings_are_read_without_secrets_and_in_parts(stage: Stage) -> None:
    found = (await stage.use({"action": "config.get"}))["details"]
    assert found["config"]["models"]["providers"]["lab"]["apiKey"] in (MARKER, "***")
    assert found["hash"].startswith("hmac-sha256:")
    part = (await stage.use({"action": "config.get", "path": "tools.deny"}))["details"]
    assert part["value"] == ["write"]
    for path, why in (("tools.allow", "is not set"), ("a[", "invalid path")):
        assert why in (await stage.use({"action": "config.get", "path": path}))["text"]
    overview = (await stage.use({"action": "config.schema"}))["details"]
    assert {"tools", "gateway"} <= overview["sections"].keys()
    lookup = {"action": "config.schema.lookup", "path": "gateway.auth"}
    assert (await stage.use(lookup))["details"]["reloadKind"] == "restart"
    wrong = await stage.use({"action": "config.schema.lookup", "path": "nope"})
    assert "config schema path not found: 'nope'" in wrong["text"]


async def test_a_large_configuration_is_read_by_path(stage: Stage) -> None:
    deny = json.dumps([f"tool-{number:04}" for number in range(2_000)])
    stage.file.write_text(TEXT.replace('["write"]', deny), encoding="utf-8")
    result = await stage.use({"action": "config.get"})
    assert "request a part with 'path'" in result["text"]
    assert (await stage.use({"action": "config.get", "path": "gateway"}))["isError"] is False


async def test_a_patch_keeps_the_rest_and_needs_a_hash_that_is_not_stale(stage: Stage) -> None:
    raw = "{agents: {defaults: {thinkingDefault: 'high'}}}"
    stale = await stage.use({"action": "config.patch", "raw": raw, "baseHash": "stale"})
    assert "config changed since last load" in stale["text"]
    done = await stage.use({"action": "config.patch", "raw": raw})
    assert done["details"]["changedPaths"] == ["agents"]
    after = stage.file.read_text(encoding="utf-8")
    assert "// keep" in after
    assert SECRET in after
    empty = await stage.use({"action": "config.apply"})
    assert "'raw' is required for config.apply" in empty["text"]


async def test_only_owners_have_the_tool(stage: Stage) -> None:
    result = await stage.use({"action": "config.get"}, READ_WRITE)
    assert result["isError"]
    assert "owner" in result["text"]


async def test_restarting_needs_a_setting(stage: Stage) -> None:
    restarts: list[int] = []
    stage.ground.gateway.on_restart = lambda: restarts.append(1)
    refused = await stage.use({"action": "restart"})
    assert "clawkit config set commands.restart true" in refused["text"]
    update = await stage.use({"action": "update.run"})
    assert update["isError"]
    assert "clawkit does not update itself; on its machine, run: " in update["text"]
    stage.file.write_text(TEXT.replace("tools:", "commands: { restart: true }, tools:"))
    await stage.ground.gateway.watch.reload()
    done = await stage.use({"action": "restart", "delayMs": 0, "note": "Look again."})
    assert done["details"]["ok"] is True
    assert restarts == [1]
    [note] = [each for each in stage.ground.gateway.run_store.unfinished() if each.message]
    assert note.message is not None
    assert note.session == "agent:main:main"
    assert "Look again." in str(note.message.content)


@pytest.mark.parametrize("mode", ["hybrid", "restart"])
@pytest.mark.parametrize("may_restart", [False, True])
async def test_a_change_by_a_model_restarts_only_if_it_needs_to_and_may(
    stage: Stage, mode: str, may_restart: bool
) -> None:
    gateway, restarts = stage.ground.gateway, list[int]()
    gateway.on_restart = lambda: restarts.append(1)
    # The person has changed something that needs a restart, and does not want it yet.
    commands = f"commands: {{ restart: {json.dumps(may_restart)} }}"
    stage.file.write_text(TEXT.replace("gateway: {", f"{commands}, gateway: {{ port: 18899,"))
    await gateway.watch.reload()
    gateway.watch.mode = mode  # type: ignore[assignment]
    raw = "{messages: {queue: {cap: 9}}}"
    done = await stage.use({"action": "config.patch", "raw": raw, "delayMs": 0})
    assert done["details"]["changedPaths"] == ["messages"]
    is_restarted = mode == "restart" and may_restart
    assert ("restart" in done["details"]) is is_restarted
    assert gateway.is_restarting is bool(restarts) is is_restarted


async def test_a_model_cannot_delay_a_restart_for_long(stage: Stage) -> None:
    result = await stage.use({"action": "restart", "delayMs": 60_001})
    assert "60000" in result["text"]


async def test_a_model_cannot_send_a_file_of_any_size(stage: Stage) -> None:
    result = await stage.use({"action": "config.apply", "raw": "// a\n" * 30_000})
    assert result["isError"]
    assert stage.file.read_text(encoding="utf-8") == TEXT


async def test_the_program_around_the_gateway_restarts_it(stage: Stage) -> None:
    stage.file.write_text(TEXT.replace("tools:", "commands: { restart: true }, tools:"))
    await stage.ground.gateway.watch.reload()
    result = await stage.use({"action": "restart"})
    assert "the gateway cannot restart itself" in result["text"]
