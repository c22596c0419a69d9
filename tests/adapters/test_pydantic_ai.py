"""clawkit's tools in pydantic-ai."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.parts import MANY, PNG, Waiting, make_kit
from tests.lacking import import_or_lack
from tests.sdks import SDKS

from clawkit import Toolkit

pytestmark = SDKS
ai: Any
toolset: Any


@pytest.fixture(autouse=True, scope="module")
def _imported() -> None:
    """Not while tests are collected, which every worker does."""
    global ai, toolset
    ai = import_or_lack("pydantic_ai")
    from clawkit.adapters.pydantic_ai import toolset as made

    toolset = made


def scripted(*answers: Any, seen: list[Any] | None = None) -> Any:
    """A model that makes these calls, each a message, and then says that it is done."""
    from pydantic_ai.models.function import FunctionModel

    left: Iterator[Any] = iter(answers)

    def answer(messages: Any, info: Any) -> Any:
        if seen is not None:
            seen.append(info)
        found = next(left, None)
        if found is None:
            return ai.ModelResponse(parts=[ai.TextPart("done")])
        calls = found if isinstance(found, list) else [found]
        return ai.ModelResponse(parts=[ai.ToolCallPart(*each) for each in calls])

    return FunctionModel(answer)


async def results(kit: Toolkit, *answers: Any, **options: Any) -> list[Any]:
    agent = ai.Agent(scripted(*answers), toolsets=[toolset(kit, **options)])
    messages = (await agent.run("Go.")).all_messages()
    parts = [part for message in messages for part in message.parts]
    return [part for part in parts if isinstance(part, ai.ToolReturnPart)]


async def test_calls_are_made_and_their_results_returned(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha\n")
    kit = make_kit(tmp_path)
    read, added = await results(kit, [("read", {"path": "a.txt"}), ("add", '{"first": 2}')])
    assert (read.content, read.metadata["path"], read.outcome) == ("alpha", "a.txt", "success")
    assert added.metadata == {"sum": 3}


async def test_pictures_are_given_to_the_model(tmp_path: Path) -> None:
    [drawn] = await results(make_kit(tmp_path), ("draw", {}))
    text, picture = drawn.content
    assert (text, picture.data, picture.media_type) == ("a picture", PNG, "image/png")


async def test_a_model_can_fix_its_call_and_learns_of_other_failures(tmp_path: Path) -> None:
    wrong, gone, failed, _, refused = await results(
        make_kit(tmp_path),
        ("add", {"frist": 2}),
        ("read", {"path": "gone.txt"}),
        ("fail", {}),
        [("add", {"first": 1}), ("add", {"first": 2})],
    )
    assert wrong.outcome == "retried"
    assert "did you mean 'first'?" in wrong.content
    assert (gone.outcome, gone.content) == ("failed", "'gone.txt' does not exist")
    assert (failed.outcome, failed.content) == ("failed", "OSError: the disk is gone")
    assert refused.outcome == "failed"
    assert "refused (not now)" in refused.content


async def test_only_so_many_invalid_calls_are_accepted(tmp_path: Path) -> None:
    wrong = [("add", {"frist": 2})] * 4
    assert len(await results(make_kit(tmp_path), *wrong[:3])) == 3
    with pytest.raises(ai.UnexpectedModelBehavior):
        await results(make_kit(tmp_path), *wrong[:2], max_retries=1)


async def test_the_model_is_offered_what_policy_kept_and_told_of_deferred_tools(
    tmp_path: Path,
) -> None:
    seen: list[Any] = []
    kit = make_kit(tmp_path, *MANY)
    agent = ai.Agent(scripted(seen=seen), toolsets=[toolset(kit)])
    await agent.run("Go.")
    offered = {tool.name: tool for tool in seen[0].function_tools}
    assert set(offered) == {tool.name for tool in kit.offered}
    assert "write" not in offered
    assert "far_1" not in offered
    assert offered["tool_search"].parameters_json_schema["required"] == ["query"]
    assert kit.directory in seen[0].instructions


async def test_cancelling_the_run_stops_the_tool(tmp_path: Path) -> None:
    waiting = Waiting()
    run = asyncio.create_task(results(make_kit(tmp_path, waiting=waiting), ("wait", {})))
    await waiting.started.wait()
    run.cancel()
    with suppress(asyncio.CancelledError):
        await run
    assert waiting.stopped.is_set()
