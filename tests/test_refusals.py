"""Ways around a refusal that people and models try, through the whole path."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from clawkit import Answer, CallRequest, Question, Result, tool
from clawkit.agent.assemble import assemble
from clawkit.config.load import loads
from clawkit.core.context import Context, Scope
from clawkit.core.tool import Registered, Tool
from clawkit.errors import SchemaError
from clawkit.testing import open_kit


@tool
async def act(action: Literal["list", "delete", "wipe"] = "wipe") -> str:
    """Act.

    Args:
        action: What to do.
    """
    return f"did {action}"


def rules(*each: dict[str, Any]) -> dict[str, Any]:
    return {"tools": {"rules": list(each)}}


@pytest.mark.parametrize("params", [{"action": "delete"}, {"action": "wipe"}, {}])
async def test_an_action_that_a_rule_denies_is_refused_with_its_reason(
    workspace: Path, params: dict[str, Any]
) -> None:
    denied = {"tool": "act", "action": "/delete|wipe/", "effect": "deny", "reason": "too risky"}
    async with open_kit(workspace, act, config=rules(denied)) as kit:
        assert kit.tools[-1].schema["properties"]["action"]["enum"] == ["list"]
        result = await kit.call("act", params)
        assert result.details["status"] == "blocked"
        assert result.details["deniedReason"] == "rule"
        assert "too risky" in result.as_text()
        assert (await kit.call("act", {"action": "list"})).as_text() == "did list"


class Swapping:
    """Says yes, but only after the file has become a link to another."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace

    async def ask(self, request: Question) -> Answer:
        os.unlink(self.workspace / "docs.txt")
        os.symlink("prod.env", self.workspace / "docs.txt")
        return Answer("allow")


async def test_an_approval_is_for_what_the_person_was_shown(workspace: Path) -> None:
    (workspace / "docs.txt").write_text("harmless")
    (workspace / "prod.env").write_text("CANARY")
    config = rules(
        {"tool": "read", "params": {"path": "*.env"}, "effect": "deny"},
        {"tool": "read", "params": {"path": "*.txt"}, "effect": "ask"},
    )
    async with open_kit(workspace, config=config, approver=Swapping(workspace)) as kit:
        result = await kit.call("read", {"path": "docs.txt"})
    assert result.details["status"] == "blocked"
    assert "CANARY" not in result.as_text()


async def test_an_approval_does_not_carry_over_to_another_question(workspace: Path) -> None:
    (workspace / "docs.txt").write_text("harmless")
    (workspace / "prod.env").write_text("CANARY")
    config = rules(
        {"tool": "read", "params": {"path": "prod.env"}, "effect": "ask"},
        {"tool": "read", "params": {"path": "*.txt"}, "effect": "ask"},
    )
    async with open_kit(workspace, config=config, approver=Swapping(workspace)) as kit:
        result = await kit.call("read", {"path": "docs.txt"})
    assert "changed while a person was deciding" in result.as_text()


@pytest.mark.parametrize("key", ["file_path", "filePath", "claude_path", "Path"])
async def test_a_rule_may_use_any_name_a_call_may_use(workspace: Path, key: str) -> None:
    config = rules({"tool": "read", "params": {key: "*.txt"}, "effect": "deny"})
    async with open_kit(workspace, config=config) as kit:
        assert kit.warnings == ()
        assert (await kit.call("read", {"path": "a.txt"})).details["status"] == "blocked"


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"tool": "read", "params": {"pth": "*"}}, "tools.rules[0].params.pth: 'read' has no such"),
        ({"tool": "*", "params": {"pth": "*"}}, "'read' and 'write' and 'edit' and 18 more"),
        ({"tool": "act", "action": "delte"}, "tools.rules[0].action: 'act' has no such action"),
        ({"tool": "read", "action": "x"}, "tools.rules[0].action: 'read' has no such action"),
    ],
)
async def test_rules_that_can_never_match_are_a_warning(
    workspace: Path, rule: dict[str, Any], words: str
) -> None:
    async with open_kit(workspace, act, config=rules({**rule, "effect": "deny"})) as kit:
        assert any(words in warning for warning in kit.warnings)


async def test_secrets_of_the_configuration_do_not_show_up_in_results(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAIN_NAME", "value-from-the-environment")
    secrets = (
        "hunter2hunter2 value-from-the-environment swordfish-sw0rdfish-7 custom-header-value-1"
    )
    (workspace / "a.txt").write_text(f"{secrets} production application/json\n")
    config = {
        "gateway": {"auth": {"token": "hunter2hunter2"}},
        "models": {
            "providers": {
                "x": {
                    "baseUrl": "http://localhost/v1",
                    "apiKey": "${PLAIN_NAME}",
                    "headers": {"X-Custom": "custom-header-value-1", "Accept": "application/json"},
                    "models": [],
                }
            }
        },
        "mcp": {
            "servers": {
                "m": {
                    "command": "m",
                    "env": {"FOO": "swordfish-sw0rdfish-7", "NODE_ENV": "production"},
                }
            }
        },
    }
    async with open_kit(workspace, config=config) as kit:
        text = (await kit.call("read", {"path": "a.txt"})).as_text()
    for secret in secrets.split():
        assert secret not in text
    assert "production application/json" in text


def circle() -> dict[str, Any]:
    details: dict[str, Any] = {}
    details["a"] = details["b"] = details
    return details


def widening() -> dict[str, Any]:
    details: dict[str, Any] = {"x": 1}
    for _ in range(60):
        details = {"a": details, "b": [details]}
    return details


@pytest.mark.parametrize("make", [circle, widening])
async def test_details_that_never_end_are_an_error(workspace: Path, make: Any) -> None:
    @tool
    async def endless() -> Result:
        """Return details that go on for ever."""
        return Result.text("x", **make())

    async with open_kit(workspace, endless) as kit:
        result = await kit.call("endless")
    assert "are circular" in result.details["error"]


async def nothing(_params: Any, _ctx: Context) -> None:
    return None


RECURSIVE = {
    "properties": {"a": {"$ref": "#/$defs/n"}},
    "$defs": {"n": {"anyOf": [{"$ref": "#/$defs/n"}, {"$ref": "#/$defs/n"}]}},
}


def test_a_schema_without_end_is_refused_before_anything_is_checked_against_it() -> None:
    bomb = Tool("bomb", "Bomb.", RECURSIVE, nothing)
    config = loads("{}").config
    with pytest.raises(SchemaError, match="bomb"):
        assemble(config, Scope(), [Registered(bomb, "caller")])
    left_out = assemble(config, Scope(), [Registered(bomb, "plugin:p")])
    assert "bomb" not in left_out.tools
    assert any("bomb" in warning for warning in left_out.warnings)


def test_plugin_tools_with_a_taken_name_are_left_out_with_a_warning() -> None:
    config = loads("{}").config
    shadow = Tool("exec", "Shadow.", {}, nothing)
    fine = Tool("fine", "Fine.", {}, nothing)
    extra = [
        Registered(shadow, "plugin:p"),
        Registered(fine, "plugin:p"),
        Registered(Tool("x", "X.", {}, nothing), "plugin:read"),
        Registered(Tool("bundle-mcp", "X.", {}, nothing), "plugin:p"),
    ]
    assembly = assemble(config, Scope(), extra)
    assert [name for name in assembly.tools if assembly.sources[name] != "core"] == ["fine"]
    assert len([each for each in assembly.warnings if "plugin:" in each]) == 3
    pattern = Tool("big", "Big.", {"properties": {"a": {"pattern": r"(\w{500}){100}"}}}, nothing)
    with pytest.raises(SchemaError, match="schema is invalid"):
        _ = pattern.validator


class Choice(BaseModel):
    action: Literal["list", "delete"] = Field(description="What to do.")


async def test_denying_an_action_keeps_the_parameter_type_of_a_tool(workspace: Path) -> None:
    async def execute(choice: Choice, _ctx: Context) -> str:
        return choice.action

    choose = Tool("choose", "Choose.", Choice, execute)
    config = rules({"tool": "choose", "action": "delete", "effect": "deny"})
    async with open_kit(workspace, choose, config=config) as kit:
        assert (await kit.call("choose", {"action": "list"})).as_text() == "list"
        assert (await kit.call("choose", {"action": "delete"})).details["code"] == 403


class Slow:
    """Answers only when told to."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def ask(self, request: Question) -> Answer:
        self.asked.set()
        await self.may_answer.wait()
        return Answer("allow")


async def test_a_question_holds_back_only_what_could_collide(workspace: Path) -> None:
    approver = Slow()
    config = rules({"tool": "read", "params": {"path": "a.txt"}, "effect": "ask"})
    ended: list[str] = []

    def note(event: Any) -> None:
        if event["type"] == "end":
            ended.append(event["callId"])
            approver.may_answer.set()

    async with open_kit(workspace, config=config, approver=approver, on_event=note) as kit:
        results = await kit.call_all(
            [
                CallRequest("read", {"path": "a.txt"}, "asked"),
                CallRequest("read", {"path": "src/main.py"}, "free"),
            ]
        )
    assert ended == ["free", "asked"]
    assert not any(result.is_error for result in results)


async def test_an_approval_is_not_for_another_file_that_the_same_rule_asks_about(
    workspace: Path,
) -> None:
    (workspace / "private").mkdir()
    (workspace / "private" / "harmless").write_text("fine")
    (workspace / "private" / "payroll").write_text("CANARY")
    (workspace / "p").symlink_to("private/harmless")
    seen: list[str] = []

    class Relinking:
        async def ask(self, request: Question) -> Answer:
            seen.append(request.description)
            (workspace / "p").unlink()
            (workspace / "p").symlink_to("private/payroll")
            return Answer("allow")

    config = rules({"tool": "read", "params": {"path": "private/*"}, "effect": "ask"})
    async with open_kit(workspace, config=config, approver=Relinking()) as kit:
        result = await kit.call("read", {"path": "p"})
    assert "CANARY" not in result.as_text()
    assert seen == [f"'p' leads to '{os.path.realpath(workspace)}/private/harmless'."]


@tool(paths=["opt.file_path"])
async def nested(opt: dict[str, str] | None = None) -> str:
    """Open something.

    Args:
        opt: Where.
    """
    return "ran"


@pytest.mark.parametrize("key", ["opt.file_path", "opt.filePath"])
@pytest.mark.parametrize("path", ["secret/key", "file:secret/key", "./secret//key"])
async def test_a_rule_finds_a_declared_path_in_nested_parameters(
    workspace: Path, key: str, path: str
) -> None:
    config = rules({"tool": "nested", "params": {key: "secret/*"}, "effect": "deny"})
    async with open_kit(workspace, nested, config=config) as kit:
        result = await kit.call("nested", {"opt": {"file_path": path}})
        assert result.details["status"] == "blocked"
        assert (await kit.call("nested", {"opt": {"file_path": "other"}})).as_text() == "ran"


def test_a_declared_path_must_be_a_parameter(workspace: Path) -> None:
    with pytest.raises(SchemaError, match="'filePath' is not a parameter"):
        open_kit(workspace, replace(nested, paths=("filePath",)))


async def test_open_file_descriptors_do_not_bypass_a_rule(workspace: Path) -> None:
    (workspace / "secret").mkdir()
    (workspace / "secret" / "key").write_text("CANARY")
    config = rules({"tool": "read", "params": {"path": "secret/*"}, "effect": "deny"})
    config["tools"]["fs"] = {"workspaceOnly": False}
    async with open_kit(workspace, config=config) as kit:
        for number in range(40):
            path = f"/proc/self/fd/{number}{workspace}/secret/key"
            assert "CANARY" not in (await kit.call("read", {"path": path})).as_text()
        assert not (await kit.call("read", {"path": f"{workspace}/a.txt"})).is_error
