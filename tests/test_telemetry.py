"""Spans of a conversation, as a collector on this machine receives them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span

from clawkit import Hooks, Tool, tool
from clawkit.agent.events import Event, TurnEnded, TurnStarted
from clawkit.agent_session import Agent
from clawkit.config.load import loads
from clawkit.config.sections.environment import CaptureContent, Otel
from clawkit.content import Assistant, Image, Text, Usage
from clawkit.core.approval import Deny
from clawkit.core.result import Result
from clawkit.errors import ConfigError
from clawkit.installation import how_to_add
from clawkit.models.failover import ModelChain
from clawkit.models.protocols import ModelError
from clawkit.telemetry.settings import captured
from clawkit.telemetry.spans import address_of
from clawkit.testing.answers import ScriptedModel, call, calls, hang, think

KEY = "sk-ant-api03-" + "Q7x" * 24
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


class Seen(NamedTuple):
    """A span as it arrived."""

    name: str
    id: str
    parent: str
    trace: str
    kind: int
    start: int
    end: int
    failed: bool
    said: str
    has: dict[str, Any]
    events: list[str]


class Collector:
    """Receives spans over HTTP; can be configured to never answer, or to answer endlessly."""

    def __init__(self) -> None:
        self.spans: list[Seen] = []
        self.heads: list[str] = []
        self.resource: dict[str, Any] = {}
        self.body = b""
        self.silent = False
        self.endless = ""
        """Status and headers of an endless answer; empty for an ordinary one."""
        self.flooded = asyncio.Event()
        """Set when the client no longer reads an endless answer."""
        self.asked = asyncio.Event()
        self.url = ""
        self.tasks: set[asyncio.Task[Any] | None] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.current_task())
        with (
            contextlib.closing(writer),
            contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError),
        ):
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                length = next(
                    int(line.split(":")[1])
                    for line in head.splitlines()
                    if line.lower().startswith("content-length:")
                )
                body = await reader.readexactly(length)
                self.asked.set()
                if self.silent:
                    await reader.read()
                    break
                self.take(head, body)
                if self.endless:
                    await self.flood(writer)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()

    async def flood(self, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {self.endless}\r\n\r\n".encode())
        with contextlib.suppress(OSError):
            while True:
                writer.write(b"x" * 65_536)
                await writer.drain()
        self.flooded.set()

    def take(self, head: str, body: bytes) -> None:
        self.heads.append(head)
        self.body += body
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resource = {each.key: plain(each.value) for each in group.resource.attributes}
            for span in [span for scope in group.scope_spans for span in scope.spans]:
                self.spans.append(
                    Seen(
                        span.name,
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.trace_id.hex(),
                        span.kind,
                        span.start_time_unix_nano,
                        span.end_time_unix_nano,
                        span.status.code == span.status.STATUS_CODE_ERROR,
                        span.status.message,
                        {each.key: plain(each.value) for each in span.attributes},
                        [each.name for each in span.events],
                    )
                )

    def of(self, name: str) -> list[Seen]:
        found = [span for span in self.spans if span.name == name]
        return sorted(found, key=lambda span: span.start)

    def one(self, name: str) -> Seen:
        [span] = self.of(name)
        return span


def plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(each) for each in value.array_value.values]
    return getattr(value, kind) if kind else None


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("OTEL_", "TRACE")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    collector = Collector()
    server = await asyncio.start_server(collector.serve, "127.0.0.1", 0)
    collector.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield collector
    server.close()
    # Before the loop ends: what hangs on to it could not be closed afterwards.
    for task in collector.tasks:
        assert task is not None
        task.cancel()
        await asyncio.wait({task})


def on(collector: Collector, **more: Any) -> dict[str, Any]:
    return {"diagnostics": {"otel": {"enabled": True, "endpoint": collector.url, **more}}}


@tool
async def double(number: int) -> str:
    """Twice the number."""
    return str(2 * number)


@tool
async def fails() -> str:
    """It cannot be done."""
    raise ValueError("the violet vault is shut")


def meet(number: int) -> list[Tool]:
    """Tools that end only when all of them have begun."""
    barrier = asyncio.Barrier(number)

    def make(name: str) -> Tool:
        @tool(name=name, effects=())
        async def wait() -> str:
            """Wait for the others."""
            await barrier.wait()
            return "met"

        return wait

    return [make(f"meet_{each}") for each in range(number)]


async def turn(
    config: dict[str, Any], place: Path, model: Any, *tools: Tool, **options: Any
) -> TurnEnded:
    said = options.pop("said", "Open the crimson door")
    async with Agent.open(
        config, workspace=place, keep=False, model=model, tools=tools, **options
    ) as agent:
        return await agent.send(said)


async def test_a_turn_with_calls_side_by_side_is_a_tree_of_spans(
    collector: Collector, tmp_path: Path
) -> None:
    model = ScriptedModel(calls(("meet_0", {}), ("meet_1", {})), call("fails"), "Done.")
    heard: list[Event] = []
    ended = await turn(on(collector), tmp_path, model, *meet(2), fails, tell=heard.append)
    assert ended.how == "done"
    assert isinstance(heard[0], TurnStarted)
    assert heard[-1] is ended

    top = collector.one("invoke_agent main")
    below = [span for span in collector.spans if span is not top]
    assert top.parent == ""
    assert {span.parent for span in below} == {top.id}
    assert {span.trace for span in below} == {top.trace}
    assert all(top.start <= span.start <= span.end <= top.end for span in below)
    assert sorted(span.name for span in below) == [
        *["chat model"] * 3,
        "execute_tool fails",
        "execute_tool meet_0",
        "execute_tool meet_1",
    ]
    one, two = collector.one("execute_tool meet_0"), collector.one("execute_tool meet_1")
    assert max(one.start, two.start) <= min(one.end, two.end)
    assert not any(span.failed for span in (top, one, two, *collector.of("chat model")))
    assert collector.one("execute_tool fails").failed
    assert collector.resource["service.name"] == "clawkit"
    assert collector.heads[0].startswith("POST /v1/traces HTTP/1.1")


async def test_spans_have_the_attributes_of_the_conventions(
    collector: Collector, tmp_path: Path
) -> None:
    usage = Usage(input=10, output=5, cache_read=20, cache_write=3, cost=0.25)
    answer = Assistant((Text("Done."),), model="google/gemini-other", usage=usage)
    model = ScriptedModel(call("double", {"number": 4}, "c1"), answer, ref="google/gemini-x")
    ended = await turn(on(collector, serviceName="mine"), tmp_path, model, double, session=None)
    first, last = collector.of("chat gemini-x")
    common = {
        "gen_ai.agent.name": "main",
        "gen_ai.conversation.id": "main",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.request.model": "gemini-x",
    }
    assert last.has.pop("gen_ai.response.time_to_first_chunk") >= 0
    assert last.has == common | {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.stream": True,
        "gen_ai.response.model": "gemini-other",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 33,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 20,
        "gen_ai.usage.cache_creation.input_tokens": 3,
        "clawkit.usage.cost": 0.25,
    }
    assert first.has["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert first.kind == 3  # client
    assert collector.one("execute_tool double").has == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "double",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.type": "function",
        "gen_ai.agent.name": "main",
        "gen_ai.conversation.id": "main",
    }
    top = collector.one("invoke_agent main")
    assert top.kind == 1  # internal
    assert top.has.items() >= (common | {"gen_ai.operation.name": "invoke_agent"}).items()
    assert top.has["gen_ai.usage.output_tokens"] == ended.usage.output
    assert collector.resource["service.name"] == "mine"


async def test_a_failed_request_has_its_reason_in_the_span(
    collector: Collector, tmp_path: Path
) -> None:
    model = ScriptedModel(ModelError("billing", "no money for the violet vault"))
    ended = await turn(on(collector), tmp_path, model)
    assert ended.how == "error"
    for span in collector.one("chat model"), collector.one("invoke_agent main"):
        assert span.failed
        assert span.has["error.type"] == "billing"
        assert span.said == ""
    assert b"violet" not in collector.body


async def test_every_attempt_is_a_span_of_its_own(collector: Collector, tmp_path: Path) -> None:
    one = ScriptedModel(ModelError("rate_limit", "later"), ref="a/one")
    chain = ModelChain([one, ScriptedModel("Hello.", ref="xai/two")])
    assert (await turn(on(collector), tmp_path, chain)).how == "done"
    failed, answered = collector.one("chat one"), collector.one("chat two")
    assert (failed.failed, failed.has["error.type"]) == (True, "rate_limit")
    assert not answered.failed
    assert answered.has["gen_ai.provider.name"] == "x_ai"
    assert answered.start >= failed.start
    assert not collector.one("invoke_agent main").failed


async def test_a_cancelled_wait_between_requests_is_not_a_span(
    collector: Collector, tmp_path: Path
) -> None:
    chain = ModelChain([ScriptedModel(ModelError("overloaded", "later", retry_after_s=50.0))])
    waits = asyncio.Event()

    def tell(event: Event) -> None:
        if type(event).__name__ == "AnswerRestarted":
            waits.set()

    task = asyncio.ensure_future(turn(on(collector), tmp_path, chain, tell=tell))
    await waits.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert collector.one("chat model").has["error.type"] == "overloaded"
    assert collector.one("invoke_agent main").has["error.type"] == "aborted"


async def test_an_empty_answer_and_the_second_try_are_two_spans(
    collector: Collector, tmp_path: Path
) -> None:
    await turn(on(collector), tmp_path, ScriptedModel(Assistant(()), "There."))
    empty, full = collector.of("chat model")
    assert (empty.has["error.type"], full.failed) == ("empty", False)


async def test_aborted_turns_have_spans_that_end_as_aborted(
    collector: Collector, tmp_path: Path
) -> None:
    begun = asyncio.Event()

    @tool
    async def endless() -> str:
        """Never done."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    model = ScriptedModel(call("endless"), hang())
    async with Agent.open(
        on(collector), workspace=tmp_path, keep=False, model=model, tools=[endless]
    ) as agent:
        task = asyncio.ensure_future(agent.send("go"))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        task = asyncio.ensure_future(agent.send("again"))
        while len(model.requests) < 2:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert collector.one("execute_tool endless").has["error.type"] == "aborted"
    _, hung = collector.of("chat model")
    assert hung.has["error.type"] == "aborted"
    first, second = collector.of("invoke_agent main")
    assert (hung.parent, first.has["error.type"], second.has["error.type"]) == (
        second.id,
        "aborted",
        "aborted",
    )
    assert first.trace != second.trace


async def test_a_refused_call_names_who_refused_it(collector: Collector, tmp_path: Path) -> None:
    hooks = Hooks()
    hooks.before(lambda _call: Deny("not today"), tools="double")
    model = ScriptedModel(calls(("double", {"number": 1}), ("no_such", {}), ("fails", {})), "So.")
    await turn(on(collector), tmp_path, model, double, fails, hooks=hooks)
    kinds = {
        name: collector.one(f"execute_tool {name}").has["error.type"]
        for name in ("double", "no_such", "fails")
    }
    assert kinds == {"double": "hook", "no_such": "404", "fails": "500"}


async def test_content_is_not_sent_by_default(collector: Collector, tmp_path: Path) -> None:
    model = ScriptedModel([think("The amber key."), call("fails")], "The indigo sea.")
    await turn(on(collector), tmp_path, model, fails)
    assert len(collector.spans) == 4
    for word in ("crimson", "amber", "violet", "indigo"):
        assert word.encode() not in collector.body


async def test_names_that_a_model_or_tool_made_up_are_not_sent(
    collector: Collector, tmp_path: Path
) -> None:
    @tool
    async def odd() -> Result:
        """It fails in its own words."""
        return Result((Text("no"),), {"status": "error", "code": "the violet vault"})

    names = ("read\nthe crimson door", f"x {KEY}", KEY[:60])
    await turn(on(collector), tmp_path, ScriptedModel(calls(*((each, {}) for each in names)), "."))
    await turn(on(collector), tmp_path, ScriptedModel(call("odd"), "."), odd)
    assert len(collector.of("execute_tool _OTHER")) == 3
    assert collector.one("execute_tool odd").has["error.type"] == "_OTHER"
    for word in ("crimson", "violet", KEY[10:40]):
        assert word.encode() not in collector.body


@pytest.mark.parametrize("head", ["200 OK", "307 Elsewhere\r\nLocation: /elsewhere"])
async def test_an_endless_answer_of_the_collector_is_not_read(
    collector: Collector, tmp_path: Path, head: str
) -> None:
    collector.endless = head
    config = on(collector, flushIntervalMs=1_000)
    model = ScriptedModel(call("double", {"number": 1}), "So.")
    async with Agent.open(
        config, workspace=tmp_path, keep=False, model=model, tools=(double,)
    ) as agent:
        assert (await agent.send("Go on")).how == "done"
        async with asyncio.timeout(20):
            await collector.flooded.wait()
    assert not [each for each in collector.heads if "/elsewhere" in each]


async def test_content_is_masked_and_bounded(collector: Collector, tmp_path: Path) -> None:
    @tool
    async def show(text: str) -> str:
        """Show it."""
        return f"{text} {KEY} {'x' * 50_000}"

    model = ScriptedModel([think("Amber."), call("show", {"text": KEY}, "c1")], f"Indigo {KEY}")
    config = on(collector, captureContent=True)
    picture = Image("aGFsbG8=", "image/png")
    await turn(config, tmp_path, model, show, said=[Text(f"Crimson {KEY}"), picture])
    assert KEY.encode() not in collector.body
    assert KEY[-12:].encode() not in collector.body
    first, last = collector.of("chat model")
    [said] = json.loads(first.has["gen_ai.input.messages"])
    assert said["role"] == "user"
    assert said["parts"][0]["content"].startswith("Crimson ")
    assert said["parts"][1] == {"type": "blob", "modality": "image", "mime_type": "image/png"}
    [answer] = json.loads(first.has["gen_ai.output.messages"])
    assert [part["type"] for part in answer["parts"]] == ["reasoning", "tool_call"]
    assert answer["finish_reason"] == "tool_calls"
    [result] = json.loads(last.has["gen_ai.input.messages"])
    assert result["parts"][0]["id"] == "c1"
    assert 1_000 < len(result["parts"][0]["response"]) < 5_000
    done = collector.one("execute_tool show")
    assert "text" in json.loads(done.has["gen_ai.tool.call.arguments"])
    assert 1_000 < len(done.has["gen_ai.tool.call.result"]) < 5_000
    top = collector.one("invoke_agent main")
    assert "Crimson" in top.has["gen_ai.input.messages"]
    assert "Indigo" in top.has["gen_ai.output.messages"]


async def test_only_the_content_that_was_asked_for_is_sent(
    collector: Collector, tmp_path: Path
) -> None:
    config = on(collector, captureContent={"enabled": True, "toolOutputs": True})
    await turn(config, tmp_path, ScriptedModel(call("fails"), "The indigo sea."), fails)
    failed = collector.one("execute_tool fails")
    assert "violet vault" in failed.said
    assert "violet vault" in failed.has["gen_ai.tool.call.result"]
    assert "gen_ai.tool.call.arguments" not in failed.has
    assert not {"gen_ai.input.messages", "gen_ai.output.messages"} & {
        key for span in collector.spans for key in span.has
    }


async def test_hostile_names_and_numbers_do_not_cost_other_spans(
    collector: Collector, tmp_path: Path
) -> None:
    odd = Assistant(
        (
            call("double", {"number": 1}, "same\ud800"),
            call("double", {"number": 2}, "same\ud800"),
            call("\udfff" * 500 + "\0", '{"a": [', "x" * 9_000),
        )
    )
    last = Assistant((Text("\ud83d done \0"),), usage=Usage(input=1 << 80, output=-5))
    config = on(collector, captureContent=True)
    model = ScriptedModel(odd, last)
    ended = await turn(config, tmp_path, model, double, said="half \udc00")
    assert ended.how == "done"
    assert len(collector.of("execute_tool double")) == 2
    assert len(collector.spans) == 6
    _, answered = collector.of("chat model")
    assert answered.has["gen_ai.usage.input_tokens"] == (1 << 63) - 1
    assert answered.has["gen_ai.usage.output_tokens"] == 0
    assert all(len(span.name) < 300 for span in collector.spans)


async def test_compaction_is_an_event_of_the_turn_span(
    collector: Collector, tmp_path: Path
) -> None:
    model = ScriptedModel("One.", ModelError("overflow", "too long"), "A summary.", "Two.")
    config = on(collector) | {"agents": {"defaults": {"compaction": {"keepRecentTokens": 1}}}}
    async with Agent.open(config, workspace=tmp_path, keep=False, model=model) as agent:
        await agent.send("first " * 200)
        assert (await agent.send("second")).how == "done"
    _, failed, _ = collector.of("chat model")
    assert failed.has["error.type"] == "overflow"
    _, top = collector.of("invoke_agent main")
    assert (top.events, top.failed) == (["clawkit.compaction"], False)


async def test_headers_may_be_secrets_of_the_environment(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLLECTOR_TOKEN", "token-of-the-collector")
    ref = {"source": "env", "id": "COLLECTOR_TOKEN"}
    await turn(on(collector, headers={"X-Token": ref}), tmp_path, ScriptedModel("Hi."))
    assert "x-token: token-of-the-collector" in collector.heads[0].lower()


async def test_a_sample_rate_of_zero_sends_nothing(collector: Collector, tmp_path: Path) -> None:
    await turn(on(collector, sampleRate=0), tmp_path, ScriptedModel("Hi."))
    assert collector.spans == []


async def test_spans_are_sent_during_the_conversation(collector: Collector, tmp_path: Path) -> None:
    config = on(collector, flushIntervalMs=1)
    model = ScriptedModel("Hi.")
    async with Agent.open(config, workspace=tmp_path, keep=False, model=model) as agent:
        await agent.send("Hello")
        await collector.asked.wait()


async def test_the_command_continues_the_trace_of_its_environment(
    collector: Collector, tmp_path: Path
) -> None:
    variables = {
        "CLAWKIT_OTEL": "1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_SERVICE_NAME": "nightly",
        "TRACEPARENT": TRACEPARENT,
    }
    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "clawkit", "agent", "--no-session"),
        *("--model", "clawkit/operator", "-m", "list"),
        cwd=tmp_path,
        env={**os.environ, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await command.communicate()
    assert command.returncode == 0, errors.decode()
    top = collector.one("invoke_agent main")
    assert (top.trace, top.parent) == (TRACE, PARENT)
    assert collector.resource["service.name"] == "nightly"


async def test_a_span_of_the_program_is_the_parent_before_the_environment(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", TRACEPARENT)
    own = SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    with use_span(NonRecordingSpan(own)):
        await turn(on(collector), tmp_path, ScriptedModel("Hi."))
    top = collector.one("invoke_agent main")
    assert (int(top.trace, 16), int(top.parent, 16)) == (0xABC, 0xDEF)


@pytest.mark.parametrize("given", ["", "nonsense", "00-0-0-00"])
async def test_an_invalid_parent_begins_a_trace(
    given: str, collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", given)
    await turn(on(collector), tmp_path, ScriptedModel("Hi."))
    assert collector.one("invoke_agent main").parent == ""


async def test_disabled_telemetry_is_not_imported(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from clawkit.agent_session import Agent
from clawkit.testing.answers import ScriptedModel

async def main():
    async with Agent.open(keep=False, model=ScriptedModel("Hi.")) as agent:
        assert (await agent.send("Hello")).how == "done"
        assert agent.warnings == ()

asyncio.run(main())
print([name for name in sys.modules if name.startswith(("opentelemetry", "google.protobuf"))])
print("clawkit.telemetry.spans" in sys.modules)
"""
    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program), cwd=tmp_path, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await command.communicate()
    assert output.decode().split("\n")[:2] == ["[]", "False"]


async def test_without_the_extra_there_is_one_warning_and_turns_go_on(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("clawkit.telemetry.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    model = ScriptedModel("Hi.")
    async with Agent.open(on(collector), workspace=tmp_path, keep=False, model=model) as agent:
        [warning] = agent.warnings
        assert how_to_add("otel") in warning
        assert (await agent.send("Hello")).how == "done"
    assert collector.spans == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"protocol": "grpc"}, "gRPC is not supported"),
        ({"headers": {"X-Token": "${NO_SUCH_VARIABLE}"}}, "NO_SUCH_VARIABLE is not set"),
    ],
)
async def test_invalid_settings_are_warnings(
    settings: dict[str, Any], words: str, collector: Collector, tmp_path: Path
) -> None:
    model = ScriptedModel("Hi.")
    config = on(collector, **settings)
    async with Agent.open(config, workspace=tmp_path, keep=False, model=model) as agent:
        assert any(words in warning for warning in agent.warnings)
        assert (await agent.send("Hello")).how == "done"
    assert collector.spans == []


async def test_a_variable_that_opentelemetry_cannot_use_is_a_warning(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "-1")
    model = ScriptedModel("Hi.")
    async with Agent.open(on(collector), workspace=tmp_path, keep=False, model=model) as agent:
        assert "no spans are sent: max_queue_size" in agent.warnings[0]
        assert (await agent.send("Hello")).how == "done"


async def test_an_unreachable_collector_does_not_fail_the_turn(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    unused_tcp_port: int,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.3")
    there = f"http://me:geheim-wort@127.0.0.1:{unused_tcp_port}"
    config = {"diagnostics": {"otel": {"enabled": True, "endpoint": there}}}
    with caplog.at_level(logging.WARNING, "clawkit"):
        assert (await turn(config, tmp_path, ScriptedModel("Hi."))).how == "done"
    [told] = [each.getMessage() for each in caplog.records if each.name.startswith("clawkit.tele")]
    assert told.startswith("2 spans could not be sent to http://")
    assert "geheim" not in told


async def test_a_collector_that_never_answers_is_not_waited_for(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")
    collector.silent = True
    async with asyncio.timeout(60):
        assert (await turn(on(collector), tmp_path, ScriptedModel("Hi."))).how == "done"
    assert collector.asked.is_set()


THERE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:1"}


@pytest.mark.parametrize(
    ("settings", "env", "expected"),
    [
        (Otel(), {}, False),
        (Otel(), THERE, False),
        (Otel(), {"CLAWKIT_OTEL": "1"}, False),
        (Otel(), {"CLAWKIT_OTEL": "0", **THERE}, False),
        (Otel(), {"CLAWKIT_OTEL": "1", **THERE}, True),
        (Otel(), {"CLAWKIT_OTEL": "1", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://a"}, True),
        (Otel(enabled=False), {"CLAWKIT_OTEL": "1", **THERE}, False),
        (Otel(enabled=True), {}, True),
        (Otel(enabled=True, traces=False), {}, False),
        (Otel(enabled=True), {"OTEL_SDK_DISABLED": "True"}, False),
    ],
)
def test_telemetry_is_enabled_by_settings_or_environment(
    settings: Otel, env: dict[str, str], expected: bool
) -> None:
    assert settings.is_on(env) is expected


async def test_diagnostics_can_be_turned_off_as_a_whole(
    collector: Collector, tmp_path: Path
) -> None:
    config = on(collector)
    config["diagnostics"]["enabled"] = False
    await turn(config, tmp_path, ScriptedModel("Hi."))
    assert collector.spans == []


CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


@pytest.mark.parametrize(
    ("wanted", "env", "expected"),
    [
        (None, {}, False),
        (None, {CAPTURE: "true"}, True),
        (None, {CAPTURE: "SPAN_ONLY"}, True),
        (None, {CAPTURE: "event_only"}, False),
        (False, {CAPTURE: "true"}, False),
        (True, {}, True),
        (CaptureContent(output_messages=True), {}, False),
        (CaptureContent(enabled=True, output_messages=True), {}, True),
    ],
)
def test_content_is_captured_if_configured(
    wanted: bool | CaptureContent | None, env: dict[str, str], expected: bool
) -> None:
    found = captured(Otel(capture_content=wanted), env)
    assert (found.enabled, found.output_messages) == (expected, expected)


@pytest.mark.parametrize(
    ("settings", "env", "expected"),
    [
        (Otel(), {}, "http://localhost:4318/v1/traces"),
        (Otel(endpoint="http://c:1/"), THERE, "http://c:1/v1/traces"),
        (Otel(endpoint="http://c/v1/traces"), {}, "http://c/v1/traces"),
        (Otel(endpoint="http://c", traces_endpoint="http://t/in"), {}, "http://t/in"),
        (Otel(), THERE, "http://a:1/v1/traces"),
        (Otel(), {**THERE, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t/x"}, "http://t/x"),
    ],
)
def test_where_spans_go(settings: Otel, env: dict[str, str], expected: str) -> None:
    assert address_of(settings, env) == expected


def test_an_endpoint_must_be_a_url() -> None:
    with pytest.raises(ConfigError, match=r"diagnostics\.otel\.endpoint.*not a URL"):
        loads('{diagnostics: {otel: {endpoint: "localhost:4318"}}}', env={})
