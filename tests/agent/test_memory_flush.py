"""Notes that a model saves before its conversation is compacted."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.agent.talking import Heard, open_agent, stored

from clawkit.agent.compact import CompactionSettings, FlushSettings, is_near
from clawkit.agent.events import AnswerStored, Compacted, Notice, ResultStored, TextPiece
from clawkit.agent_session import Agent
from clawkit.content import Assistant, Summary, Text, ToolCall, ToolResult, Usage, User
from clawkit.core.approval import Answer, Question
from clawkit.core.context import Sender
from clawkit.models.protocols import Facts, ModelError, Request
from clawkit.testing.answers import ScriptedModel, call, calls, hang

FACTS = Facts(context_window=100_000)
LONG = Assistant((Text("long"),), usage=Usage(81_000, 100))
"""An answer that brings a conversation near its limit, but not over it."""
TOO_LONG = Assistant((Text("too long"),), usage=Usage(90_000, 100))
ASKED = "This conversation is about to be shortened"
SECRET = "hunter2-and-then-some"


def today() -> str:
    return f"memory/{time.strftime('%Y-%m-%d')}.md"


def note(text: str = "- Ada prefers tea.", path: str = "") -> ToolCall:
    return call("write", {"path": path or today(), "content": text})


def priced(*parts: Any, dollars: float) -> Assistant:
    content = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    return Assistant(content, usage=Usage(10, 5, cost=dollars))


def begin(
    workspace: Path, *answers: Any, config: dict[str, Any] | None = None, **options: Any
) -> tuple[Agent, ScriptedModel, Heard]:
    (workspace / "memory").mkdir(exist_ok=True)
    model, heard = ScriptedModel(*answers, facts=FACTS), Heard()
    agent = open_agent(config or {}, workspace, model=model, tell=heard, **options)
    return agent, model, heard


def flushes(model: ScriptedModel) -> list[Request]:
    """The requests in which the model is asked to save notes."""
    found = []
    for request in model.requests:
        texts = [
            block.text
            for message in request.messages
            if isinstance(message, User)
            for block in message.content
            if isinstance(block, Text)
        ]
        found += [request] * any(ASKED in text for text in texts)
    return found


def is_flushed(agent: Agent) -> bool:
    return agent.conversation.is_flushed


def last_results(request: Request) -> list[str]:
    found = [each for each in request.messages if isinstance(each, ToolResult)]
    return ["".join(getattr(block, "text", "") for block in each.content) for each in found]


async def test_notes_are_saved_before_the_limit_and_no_one_sees_how(workspace: Path) -> None:
    agent, model, heard = begin(workspace, LONG, note(), "done", "tea, of course")
    async with agent:
        await agent.send("tell me all")
        told = len(agent.conversation.history)
        ended = await agent.send("what does Ada drink?")
        assert (ended.how, ended.text) == ("done", "tea, of course")
        assert (workspace / today()).read_text() == "- Ada prefers tea.\n"
        # Nothing of it is part of the conversation, here and in the store.
        assert len(agent.conversation.history) == told + 2
        assert not any(ASKED in str(each) for each in stored(agent))
    assert [each.text for each in heard.of(Notice)] == [f"saved notes to {today()}"]
    assert heard.of(ResultStored) == []
    assert len(heard.of(AnswerStored)) == 2
    assert "done" not in "".join(each.text for each in heard.of(TextPiece))
    first, second = flushes(model)
    # It begins like the request before it, so that a provider's cache is used.
    before = model.requests[0]
    assert (first.system, first.tools) == (before.system, before.tools)
    assert first.messages[: len(before.messages)] == before.messages
    # What the person said last is not answered there.
    assert "what does Ada drink?" not in str(first.messages)
    assert last_results(second) == [f"added 18 characters to {today()}"]
    assert "what does Ada drink?" in str(model.requests[-1].messages)


async def test_the_flush_happens_once_before_each_compaction(workspace: Path) -> None:
    answers = (LONG, note("one"), "done", LONG, TOO_LONG, "the summary", "d")
    agent, model, heard = begin(workspace, *answers, LONG, note("two"), "done", "e")
    async with agent:
        for said in ("1" * 100_000, "2", "3", "4"):
            assert (await agent.send(said)).how == "done"
        assert len(flushes(model)) == 2
        assert isinstance(agent.conversation.history[0], Summary)
        assert len(heard.of(Compacted)) == 1
        await agent.send("5")
        await agent.send("6")
    assert len(flushes(model)) == 4
    assert (workspace / today()).read_text() == "one\n\ntwo\n"


async def test_the_flush_is_not_repeated_after_a_restart(workspace: Path) -> None:
    agent, model, _ = begin(workspace, LONG, note(), "done", LONG, session="kept")
    async with agent:
        await agent.send("1" * 100_000)
        await agent.send("2")
    assert len(flushes(model)) == 2
    again, model, _ = begin(workspace, LONG, TOO_LONG, "the summary", "e", session="kept")
    async with again:
        assert is_flushed(again)
        await again.send("3")
        await again.send("4")
        assert flushes(model) == []
        await again.send("5")
        assert not is_flushed(again)
    last, _, _ = begin(workspace, session="kept")
    async with last:
        assert not is_flushed(last)


async def test_a_failure_is_reported_and_stops_nothing(workspace: Path) -> None:
    overloaded = ModelError("server", "overloaded", partial=priced(dollars=0.25))
    for failing, why, cost in ((overloaded, "overloaded", 0.25), ("", "", 0.0)):
        agent, _, heard = begin(workspace, LONG, failing, "b")
        async with agent:
            await agent.send("1")
            ended = await agent.send("2")
            assert (ended.how, ended.text) == ("done", "b")
            assert agent.conversation.usage.cost == cost
        said = [each.text for each in heard.of(Notice)]
        before = "no notes were saved before the conversation is shortened: "
        assert said == ([before + why] if why else [])
        assert not (workspace / today()).exists()


async def test_an_answer_that_does_not_come_is_not_waited_for(workspace: Path) -> None:
    agent, _, heard = begin(workspace, LONG, hang(), "b")
    flush = FlushSettings(timeout_s=0.05)
    async with agent:
        agent.conversation.compaction = CompactionSettings(flush=flush)
        await agent.send("1")
        assert (await agent.send("2")).text == "b"
    assert "no answer within 0.05 s" in heard.of(Notice)[0].text


async def test_only_the_notes_of_the_day_can_be_added_to(workspace: Path) -> None:
    (workspace / "plan.md").write_text("keep\n")
    (workspace / today()).parent.mkdir()
    (workspace / today()).write_text("earlier\n")
    refused = calls(
        note("x", "plan.md"),
        note("x", "MEMORY.md"),
        note("x", f"memory/../{today()}/../../plan.md"),
        note("x", "memory/other.md"),
        ("exec", {"command": "touch made"}),
        ("edit", {"path": "plan.md", "edits": [{"oldText": "keep", "newText": "x"}]}),
        ("apply_patch", {"input": "x"}),
        ("sessions_spawn", {"task": "x"}),
        ("tool_call", {"name": "exec", "args": {"command": "touch made"}}),
    )
    asked: list[Question] = []

    class Yes:
        async def ask(self, request: Question) -> Answer:
            asked.append(request)
            return Answer("allow")

    more = calls(note("  "), note("y" * 20_001), ("read", {"path": "plan.md"}))
    final = calls(note(f"late {SECRET}", str(workspace / today())))
    agent, model, _ = begin(
        workspace, LONG, refused, more, final, "done", "b", approver=Yes(),
        config={"tools": {"exec": {"security": "full", "ask": "off"}}},
    )  # fmt: skip
    agent.kit.run.redactor.learn([SECRET])
    async with agent:
        await agent.send("1")
        assert (await agent.send("2")).text == "b"
    assert (workspace / "plan.md").read_text() == "keep\n"
    text = (workspace / today()).read_text()
    assert text.startswith("earlier\n\nlate ")
    assert SECRET not in text
    assert not (workspace / "made").exists()
    assert not (workspace / "MEMORY.md").exists()
    assert len(list((workspace / "memory").iterdir())) == 1
    assert asked == []
    results = last_results(flushes(model)[-1])
    told = [each.is_error for each in flushes(model)[-1].messages if isinstance(each, ToolResult)]
    assert told == [True] * 11 + [False] * 2
    assert all("while notes are saved" in each for each in results[:6])
    assert ["content must have" in each for each in results[9:12]] == [True, True, False]
    assert "keep" in results[11]


async def test_notes_that_are_links_are_not_followed(workspace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (workspace / "memory").symlink_to(outside)
    model = ScriptedModel(LONG, note(), "done", "b", facts=FACTS)
    async with open_agent({}, workspace, model=model) as agent:
        await agent.send("1")
        assert (await agent.send("2")).text == "b"
    assert list(outside.iterdir()) == []


async def test_notes_that_link_to_another_file_leave_it_alone(workspace: Path) -> None:
    (workspace / "memory").mkdir()
    (workspace / "plan.md").write_text("keep\n")
    (workspace / today()).symlink_to("../plan.md")
    agent, _, heard = begin(workspace, LONG, note(), "done", "b")
    async with agent:
        await agent.send("1")
        assert (await agent.send("2")).text == "b"
    assert (workspace / "plan.md").read_text() == "keep\n"
    assert heard.of(Notice) == []


async def test_another_model_saves_the_notes_if_that_is_configured(workspace: Path) -> None:
    agent, model, heard = begin(workspace, LONG, "b")
    writer = ScriptedModel(priced(note(), dollars=0.5), "done", facts=FACTS)
    async with agent:
        flush = FlushSettings(model=writer)
        agent.conversation.compaction = CompactionSettings(flush=flush)
        await agent.send("1")
        assert (await agent.send("2")).text == "b"
        assert agent.conversation.usage.cost == 0.5
    assert (len(flushes(model)), len(flushes(writer))) == (0, 2)
    assert (workspace / today()).read_text() == "- Ada prefers tea.\n"
    assert [each.text for each in heard.of(Notice)] == [f"saved notes to {today()}"]


async def test_rules_apply_to_the_file(workspace: Path) -> None:
    rules = [{"tool": "write", "params": {"path": "memory/**"}, "effect": "deny"}]
    agent, model, _ = begin(
        workspace, LONG, note(), "done", "b", config={"tools": {"rules": rules}}
    )
    async with agent:
        await agent.send("1")
        await agent.send("2")
    assert "tools.rules[0]" in last_results(flushes(model)[-1])[0]
    assert not (workspace / today()).exists()


async def test_a_large_file_is_left_as_it_is(workspace: Path) -> None:
    (workspace / "memory").mkdir()
    (workspace / today()).write_text("x" * (1024 * 1024 - 5))
    agent, model, _ = begin(workspace, LONG, note(), "done", "b")
    async with agent:
        await agent.send("1")
        await agent.send("2")
    assert "would be larger than" in last_results(flushes(model)[-1])[0]


async def test_limits_of_cost_and_answers_count_it(workspace: Path) -> None:
    paid = priced(note(), dollars=2.0)
    agent, model, _ = begin(workspace, LONG, paid, "b", max_cost=1.0)
    async with agent:
        await agent.send("1")
        ended = await agent.send("2")
        # One answer was too much: neither the notes nor the turn go on.
        assert (ended.how, len(model.requests)) == ("done", 3)
        assert agent.conversation.usage.cost == 2.0
        assert (await agent.send("3")).how == "max-cost"
    assert (workspace / today()).exists()
    for most, asked in ((1, 0), (2, 1), (3, 2)):
        agent, model, _ = begin(workspace, LONG, *[note()] * asked, "b", max_turns=most)
        async with agent:
            await agent.send("1")
            assert (await agent.send("2")).text == "b"
        assert len(flushes(model)) == asked


async def test_a_model_that_writes_on_and_on_is_stopped(workspace: Path) -> None:
    agent, model, _ = begin(workspace, LONG, *[note()] * 4, "b")
    async with agent:
        await agent.send("1")
        assert (await agent.send("2")).text == "b"
    assert len(flushes(model)) == 4


async def test_its_settings(workspace: Path) -> None:
    def settings(**flush: Any) -> dict[str, Any]:
        return {"agents": {"defaults": {"compaction": {"memoryFlush": flush}}}}

    agent, model, _ = begin(workspace, LONG, "b", config=settings(enabled=False))
    async with agent:
        await agent.send("1")
        await agent.send("2")
        assert agent.conversation.compaction.flush is None
    told = settings(prompt="Write to {file}!", systemPrompt="You take notes.")
    agent, model, _ = begin(workspace, LONG, "done", "b", config=told)
    async with agent:
        await agent.send("1")
        await agent.send("2")
    [request] = [each for each in model.requests if f"Write to {today()}!" in str(each.messages)]
    assert request.system.endswith("\n\nYou take notes.\n")
    agent, _, _ = begin(workspace, config=settings(softThresholdTokens=9, model="clawkit/operator"))
    async with agent:
        flush = agent.conversation.compaction.flush
        assert flush is not None
        assert flush.soft_tokens == 9
        assert str(flush.model.ref if flush.model else "") == "clawkit/operator"


def test_when_it_is_time() -> None:
    facts = Facts(context_window=100_000)
    settings = CompactionSettings(flush=FlushSettings(soft_tokens=4_000))
    limit = 100_000 - 16_384
    near = (limit - 4_000, limit - 3_999, limit, 99_999, 100_000)
    assert [is_near(each, facts, settings) for each in near] == [False, True, True, True, False]
    assert not is_near(limit, facts, CompactionSettings())
    assert not is_near(limit, facts, CompactionSettings(enabled=False, flush=FlushSettings()))
    # A small window has room for some conversation before that.
    assert not is_near(4_000, Facts(context_window=8_000), settings)


async def test_strangers_and_restricted_runs_have_no_flush(workspace: Path) -> None:
    strangers: dict[str, dict[str, Any]] = {
        "others": {"owner": False, "sender": Sender(id="x")},
        "groups": {"group": "g1"},
        "sub-agents": {"depth": 1},
        "sandboxes": {"sandboxed": True},
        "heartbeats": {"in_heartbeat": True},
        "agents without memory": {"config": {"memory": {"search": {"enabled": False}}}},
    }
    for who, options in strangers.items():
        agent, _, _ = begin(workspace, **options)
        async with agent:
            assert agent.conversation.compaction.flush is None, who


async def test_without_a_notes_directory_or_the_write_tool_no_notes_are_saved(
    workspace: Path,
) -> None:
    model = ScriptedModel(LONG, "b", facts=FACTS)
    async with open_agent({}, workspace, model=model) as agent:
        await agent.send("1")
        await agent.send("2")
    assert flushes(model) == []
    assert not (workspace / "memory").exists()
    agent, model, _ = begin(workspace, LONG, "b", config={"tools": {"deny": ["write"]}})
    async with agent:
        await agent.send("1")
        await agent.send("2")
    assert flushes(model) == []
