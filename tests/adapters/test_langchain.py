"""clawkit's tools in LangChain."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.parts import ADD, DATA, MANY, Waiting, make_kit
from tests.lacking import import_or_lack
from tests.sdks import SDKS

from clawkit import Tool, Toolkit

pytestmark = SDKS


@pytest.fixture(autouse=True, scope="module")
def _imported() -> None:
    """Not while tests are collected, which every worker does."""
    import_or_lack("langchain_core")


def tools_of(kit: Toolkit) -> dict[str, Any]:
    from clawkit.adapters.langchain import toolset

    return {tool.name: tool for tool in toolset(kit)}


async def ask(tools: dict[str, Any], name: str, params: dict[str, Any]) -> Any:
    """The message for a call of a model, as an agent of LangChain makes it."""
    return await tools[name].ainvoke({"type": "tool_call", "id": "1", "name": name, "args": params})


async def test_calls_are_made_and_their_results_returned(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha\n")
    tools = tools_of(make_kit(tmp_path))
    message = await ask(tools, "read", {"path": "a.txt"})
    assert message.content == [{"type": "text", "text": "alpha"}]
    assert (message.status, message.artifact["path"]) == ("success", "a.txt")
    assert (await ask(tools, "add", {"first": 2})).artifact == {"sum": 3}
    assert await tools["read"].ainvoke({"path": "a.txt"}) == message.content


async def test_pictures_are_given_to_the_model(tmp_path: Path) -> None:
    message = await ask(tools_of(make_kit(tmp_path)), "draw", {})
    picture = {"type": "image", "base64": DATA, "mime_type": "image/png"}
    assert message.content == [{"type": "text", "text": "a picture"}, picture]
    assert message.content_blocks[1]["base64"] == DATA


async def test_a_model_learns_what_was_wrong(tmp_path: Path) -> None:
    tools = tools_of(make_kit(tmp_path))
    wrong = await ask(tools, "add", {"frist": 2})
    failed = await ask(tools, "fail", {})
    await ask(tools, "add", {"first": 1})
    refused = await ask(tools, "add", {"first": 2})
    assert {wrong.status, failed.status, refused.status} == {"error"}
    assert "did you mean 'first'?" in wrong.content
    assert failed.content == "OSError: the disk is gone"
    assert "refused (not now)" in refused.content


async def test_parameters_may_have_any_name(tmp_path: Path) -> None:
    async def echo(params: dict[str, Any], _ctx: Any) -> Any:
        return params

    odd = {"self": 1, "config": 2, "run_manager": 3, "kwargs": 4, "args": 5}
    schema = {"properties": {name: {"type": "integer"} for name in odd}}
    tools = tools_of(make_kit(tmp_path, Tool("echo", "Echo.", schema, echo)))
    assert (await ask(tools, "echo", odd)).artifact == odd


async def test_the_model_is_offered_what_policy_kept(tmp_path: Path) -> None:
    from langchain_core.utils.function_calling import convert_to_openai_tool

    kit = make_kit(tmp_path, *MANY)
    tools = tools_of(kit)
    assert set(tools) == {tool.name for tool in kit.offered}
    assert not {"write", "far_1"} & set(tools)
    kit = make_kit(tmp_path)
    function = convert_to_openai_tool(tools_of(kit)["add"])["function"]
    assert (function["name"], function["description"]) == ("add", "Add two numbers.")
    assert function["parameters"]["properties"] == ADD["properties"]
    assert all(convert_to_openai_tool(tool) for tool in tools.values())


def test_there_is_no_synchronous_call(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match="use ainvoke"):
        tools_of(make_kit(tmp_path))["add"].invoke({"first": 1})


async def test_cancelling_the_call_stops_the_tool(tmp_path: Path) -> None:
    waiting = Waiting()
    tools = tools_of(make_kit(tmp_path, waiting=waiting))
    run = asyncio.create_task(ask(tools, "wait", {}))
    await waiting.started.wait()
    run.cancel()
    with suppress(asyncio.CancelledError):
        await run
    assert waiting.stopped.is_set()
