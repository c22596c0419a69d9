"""Tools and results in the words of the protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from clawkit import Result, Tool, Toolkit, tool
from clawkit.content import Image, Text
from clawkit.core.context import Context, Scope
from clawkit.core.tool import Effect
from clawkit.mcp_server.describe import (
    DETAILS,
    KINDS,
    annotate,
    describe,
    show_progress,
    show_result,
)
from clawkit.tools.cron import TOOL as CRON

NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
# Parameters of calls that do the most that a tool can do.
CALLS: dict[str, dict[str, Any]] = {
    "read": {"path": "a"},
    "write": {"path": "a", "content": ""},
    "edit": {"path": "a", "oldText": "a", "newText": "b"},
    "grep": {"pattern": "a"},
    "find": {"pattern": "a"},
    "ls": {},
    "exec": {"command": "rm a"},
    "process": {"action": "kill", "sessionId": "a"},
    "code_execution": {"code": "1"},
    "sessions_list": {},
    "sessions_history": {"sessionKey": "a"},
    "sessions_search": {"query": "a"},
    "agents_list": {},
}


async def nothing(_params: Any, _ctx: Context) -> None:
    return None


def hints(made: Tool) -> dict[str, Any]:
    shown = annotate(made)
    return {
        "read": shown.read_only_hint,
        "destroy": shown.destructive_hint,
        "repeat": shown.idempotent_hint,
        "world": shown.open_world_hint,
    }


def test_no_tool_does_more_than_its_hints_say(tmp_path: Path) -> None:
    kit = Toolkit.open({}, workspace=tmp_path, owner=True)
    ctx = Context("1", Scope(), str(tmp_path))
    for name, params in CALLS.items():
        made = kit.run.tools[name]
        effects = made.effects(made.typed(params), ctx)
        assert {each.kind for each in effects} <= KINDS[name], name
    assert CRON.name in KINDS
    assert set(kit.run.tools) <= {*KINDS, "session_status"}


def test_hints_follow_from_effects(tmp_path: Path) -> None:
    kit = Toolkit.open({}, workspace=tmp_path, owner=True)
    reads = {"read": True, "destroy": False, "repeat": True, "world": False}
    assert hints(kit.run.tools["read"]) == reads
    runs = {"read": False, "destroy": True, "repeat": False, "world": True}
    assert hints(kit.run.tools["exec"]) == runs
    writes = {"read": False, "destroy": True, "repeat": True, "world": False}
    assert hints(kit.run.tools["write"]) == writes

    @tool(effects=[Effect("read"), Effect("network")])
    async def looks_up(word: str) -> str:
        """Look up."""
        return word

    assert hints(looks_up) == {**reads, "world": True}
    varies = Tool("varies", "V.", NOTHING, nothing, effects=lambda p, _ctx: (Effect("read", p.x),))
    assert set(hints(varies).values()) == {None}
    assert hints(Tool("unknown", "U.", NOTHING, nothing))["read"] is False


def test_a_tool_is_described_without_hidden_parameters(tmp_path: Path) -> None:
    made = Tool(
        "made",
        "Make.",
        {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
        nothing,
        label="Making",
        hidden=frozenset(("b",)),
    )
    entry = describe(made)
    assert (entry.name, entry.title, entry.description) == ("made", "Making", "Make.")
    assert list(entry.input_schema["properties"]) == ["a"]
    assert entry.input_schema["type"] == "object"
    assert entry.output_schema is None


def test_text_is_never_hidden_by_structured_content() -> None:
    alone = show_result(Result.json({"a": 1}))
    assert alone["structuredContent"] == {"a": 1}
    assert json.loads(alone["content"][0]["text"]) == {"a": 1}
    said = show_result(Result.text("words", a=1))
    assert "structuredContent" not in said
    assert said["_meta"] == {DETAILS: {"a": 1}}
    assert show_result(Result.text("words")) == {"content": [{"type": "text", "text": "words"}]}


def test_images_and_errors_are_marked() -> None:
    seen = show_result(Result((Text("look"), Image("QUJD", "image/png"))))
    assert seen["content"][1] == {"type": "image", "data": "QUJD", "mimeType": "image/png"}
    assert show_result(Result.error("x", "failed"))["isError"] is True
    assert show_result(Result.blocked("x", "no", "rule"))["isError"] is True


def test_progress_is_one_line() -> None:
    running = {"elapsedMs": 2_000, "bytes": 2_048, "tail": "one\ntwo\n"}
    assert show_progress({"type": "update", "details": running}) == "2 s, 2 KB: two"
    said = {"type": "update", "content": [{"type": "text", "text": "a\nb" * 500}]}
    assert len(show_progress(said)) <= 200
    assert "\n" not in show_progress(said)
