"""clawkit's tools in the OpenAI Agents SDK, which asks the scripted server."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.parts import DATA, MANY, Waiting, make_kit
from tests.lacking import import_or_lack
from tests.sdks import SDKS

from clawkit import Toolkit
from clawkit.testing import ScriptedServer, call, calls

pytestmark = SDKS
agents: Any
openai: Any


@pytest.fixture(autouse=True, scope="module")
def _imported() -> None:
    """Not while tests are collected, which every worker does."""
    global agents, openai
    agents = import_or_lack("agents")
    openai = import_or_lack("openai")
    agents.set_tracing_disabled(True)


async def talk(kit: Toolkit, *answers: Any, **options: Any) -> tuple[list[Any], list[Any]]:
    """The outputs of the calls, as the service got them, and the tools it was offered."""
    from clawkit.adapters.openai_agents import toolset

    async with ScriptedServer(*answers, "done") as server:
        url = server.base_url("openai-responses")
        http = openai.DefaultAsyncHttpxClient(verify=False)
        async with openai.AsyncOpenAI(api_key="key", base_url=url, http_client=http) as client:
            model = agents.OpenAIResponsesModel("scripted-model", client)
            agent = agents.Agent("test", tools=toolset(kit), model=model, **options)
            assert (await agents.Runner.run(agent, "Go.")).final_output == "done"
        body = server.requests[-1].body
    outputs = [each for each in body["input"] if each.get("type") == "function_call_output"]
    return [each["output"] for each in outputs], body["tools"]


async def test_calls_are_made_and_their_results_returned(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha\n")
    several = calls(("read", {"path": "a.txt"}), ("add", {"first": 2}))
    (read, added), _ = await talk(make_kit(tmp_path), several)
    assert read == [{"type": "input_text", "text": "alpha"}]
    assert json.loads(added[0]["text"]) == {"sum": 3}


async def test_pictures_are_given_to_the_model(tmp_path: Path) -> None:
    [[text, picture]], _ = await talk(make_kit(tmp_path), call("draw"))
    assert text["text"] == "a picture"
    assert picture["image_url"] == f"data:image/png;base64,{DATA}"


async def test_a_model_learns_what_was_wrong(tmp_path: Path) -> None:
    outputs, _ = await talk(
        make_kit(tmp_path),
        call("add", {"frist": 2}),
        call("add", '{"first": '),
        call("fail"),
        call("add", {"first": 1}),
        call("add", {"first": 2}),
    )
    wrong, broken, failed, _, refused = outputs
    assert "did you mean 'first'?" in wrong
    assert "not valid JSON" in broken
    assert failed == "OSError: the disk is gone"
    assert "refused (not now)" in refused


async def test_the_model_is_offered_what_policy_kept(tmp_path: Path) -> None:
    kit = make_kit(tmp_path, *MANY)
    _, tools = await talk(kit, instructions=kit.directory)
    offered = {tool["name"]: tool for tool in tools}
    assert set(offered) == {tool.name for tool in kit.offered}
    assert "far_1" not in offered
    assert offered["read"]["strict"] is False
    assert offered["read"]["parameters"]["required"] == ["path"]


async def test_cancelling_the_run_stops_the_tool(tmp_path: Path) -> None:
    waiting = Waiting()
    run = asyncio.create_task(talk(make_kit(tmp_path, waiting=waiting), call("wait")))
    await waiting.started.wait()
    run.cancel()
    with suppress(asyncio.CancelledError):
        await run
    async with asyncio.timeout(10):
        await waiting.stopped.wait()
