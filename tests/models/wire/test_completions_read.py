"""Answers through the Chat Completions API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.models.wire.served import read, serving
from tests.sdks import SDKS
from tests.tables import table

from clawkit.config.modelref import ModelRef
from clawkit.config.sections.models import Cost
from clawkit.content import Assistant, Text, Thinking, ToolCall, Usage
from clawkit.models.protocols import (
    CallDelta,
    CallStarted,
    Endpoint,
    Facts,
    ModelError,
    Request,
    TextDelta,
    ThinkingDelta,
)
from clawkit.models.wire.answer import AnswerPart, arguments_text
from clawkit.models.wire.completions import CompletionsDecoder, CompletionsWire
from clawkit.net.sse import EventStream, ServerEvent

ENDPOINT = Endpoint(
    ModelRef("openai", "gpt-5"),
    "openai-completions",
    "https://api.openai.com/v1",
    facts=Facts(cost=Cost(input=1, output=10, cache_read=0.1)),
)
COUNTED = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 60},
    "completion_tokens_details": {"reasoning_tokens": 5},
}


def chunk(delta: dict[str, Any] | None = None, finish: Any = None, **more: Any) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "gpt-5",
        "choices": choices,
        **more,
    }


def call(
    index: int | None = 0,
    call_id: str | None = None,
    name: str | None = None,
    arguments: Any = None,
) -> dict[str, Any]:
    """A piece of a call; what is None is not there."""
    function = {"name": name, "arguments": arguments}
    item: dict[str, Any] = {"index": index, "id": call_id, "type": "function"}
    item["function"] = {key: value for key, value in function.items() if value is not None}
    return {"tool_calls": [{key: value for key, value in item.items() if value is not None}]}


def stream(*chunks: dict[str, Any], done: bool = True) -> bytes:
    lines = [f"data: {json.dumps(each)}\n\n" for each in chunks]
    return "".join([*lines, "data: [DONE]\n\n" if done else ""]).encode()


def answer(*chunks: dict[str, Any], endpoint: Endpoint = ENDPOINT, done: bool = True) -> Assistant:
    return read(CompletionsDecoder(endpoint), stream(*chunks, done=done))[0]


def calls_of(*deltas: dict[str, Any]) -> list[tuple[str, Any]]:
    found = answer(*map(chunk, deltas), chunk({}, "tool_calls"))
    assert found.stop == ("tool_calls" if found.calls else "stop")
    assert len({each.id for each in found.calls}) == len(found.calls)
    return [(each.name, each.arguments) for each in found.calls]


SCRIPTS = {
    "text": [
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo 😀"}),
        chunk({}, "stop"),
        chunk(usage=COUNTED),
    ],
    "length": [chunk({"content": "Once"}), chunk({}, "length"), chunk(usage=COUNTED)],
    "two calls": [
        chunk({"role": "assistant", "content": "I look."}),
        chunk(call(0, "call_a", "read", "")),
        chunk(call(0, arguments='{"path"')),
        chunk(call(0, arguments=': "a"}')),
        chunk(call(1, "call_b", "read", '{"path": "b"}')),
        chunk({}, "tool_calls"),
        chunk(usage=COUNTED),
    ],
    "refusal": [chunk({"refusal": "I can"}), chunk({"refusal": "not."}), chunk({}, "stop")],
    "nothing": [chunk({"role": "assistant"}), chunk({}, "stop")],
}


@SDKS
@pytest.mark.parametrize("name", SCRIPTS)
async def test_an_answer_is_read_as_the_official_library_reads_it(name: str) -> None:
    import openai
    from openai.lib.streaming.chat import ChatCompletionStreamState

    data = stream(*SCRIPTS[name])
    found, deltas = read(CompletionsDecoder(ENDPOINT), data)
    async with (
        serving(data) as (url, _),
        openai.AsyncOpenAI(base_url=url, api_key="x", max_retries=0) as client,
    ):
        collected = ChatCompletionStreamState()
        chunks = await client.chat.completions.create(model="gpt-5", messages=[], stream=True)
        async for each in chunks:
            collected.handle_chunk(each)
    final = collected.current_completion_snapshot
    message = final.choices[0].message
    assert found.text == (message.content or "") + (message.refusal or "")
    assert "".join(each.text for each in deltas if isinstance(each, TextDelta)) == found.text
    theirs = [
        (each.id, each.function.name, each.function.arguments) for each in message.tool_calls or ()
    ]
    assert [(each.id, each.name, json.dumps(each.arguments)) for each in found.calls] == theirs
    pieces: dict[int, str] = {}
    for delta in deltas:
        if isinstance(delta, CallDelta):
            pieces[delta.number] = pieces.get(delta.number, "") + delta.text
    assert list(pieces.values()) == [arguments for _, _, arguments in theirs]
    expected = "refusal" if message.refusal else final.choices[0].finish_reason
    assert found.stop == expected
    if final.usage:
        assert final.usage.prompt_tokens_details is not None
        cached = final.usage.prompt_tokens_details.cached_tokens
        assert found.usage.cache_read == cached == 60
        assert found.usage.input + cached == final.usage.prompt_tokens
        assert found.usage.output == final.usage.completion_tokens
        assert found.usage.cost == pytest.approx((40 + 10 * 20 + 0.1 * 60) / 1e6)
    assert (found.model, found.api) == ("openai/gpt-5", "openai-completions")


@table("name", SCRIPTS)
async def test_what_is_written_arrives_and_is_answered(name: str) -> None:
    """The same bytes again in single bytes, through the reader of event streams."""
    events, decoder = EventStream(), CompletionsWire(ENDPOINT).decoder()
    for byte in stream(*SCRIPTS[name]):
        for event in events.feed(bytes([byte])):
            decoder.feed(event)
    assert decoder.finish() == read(CompletionsDecoder(ENDPOINT), stream(*SCRIPTS[name]))[0]


def test_what_comes_is_told_at_once_and_in_order() -> None:
    _, deltas = read(
        CompletionsDecoder(ENDPOINT),
        stream(
            chunk({"reasoning_content": "hm"}),
            chunk({"content": "I look."}),
            chunk(call(0, "a", "read", '{"p')),
            chunk(call(0, arguments='":1}')),
            chunk(call(1, "b", "ls")),
            chunk({}, "tool_calls"),
        ),
    )
    assert deltas == [
        ThinkingDelta("hm"),
        TextDelta("I look."),
        CallStarted(0, "a", "read"),
        CallDelta(0, '{"p'),
        CallDelta(0, '":1}'),
        CallStarted(1, "b", "ls"),
    ]


def test_calls_are_told_apart_however_a_service_writes_them(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        # By index, pieces of several calls mixed.
        (
            [
                call(0, "a", "f", '{"x"'),
                call(1, "b", "g", "{"),
                call(0, arguments=":1}"),
                call(1, arguments="}"),
            ],
            [("f", {"x": 1}), ("g", {})],
        ),
        # No index: by id, and by the order where there is no id either.
        (
            [
                call(None, "a", "f", '{"x"'),
                call(None, "b", "g", '{"y"'),
                call(None, "a", None, ":1}"),
                call(None, "b", None, ":2}"),
            ],
            [("f", {"x": 1}), ("g", {"y": 2})],
        ),
        ([call(None, "a", "f", '{"x"'), call(None, None, None, ":1}")], [("f", {"x": 1})]),
        (
            [
                call(None, None, "f", '{"x"'),
                call(None, None, "f", ":1}"),
                call(None, None, "g", "{}"),
            ],
            [("f", {"x": 1}), ("g", {})],
        ),
        ([call(None, None, "f"), call(None, None, "g")], [("f", {}), ("g", {})]),
        # The same id or index for calls that are complete.
        (
            [call(0, "a", "f", '{"x":1}'), call(1, "a", "f", '{"x":2}')],
            [("f", {"x": 1}), ("f", {"x": 2})],
        ),
        (
            [call(0, "a", "f", '{"x":1}'), call(0, "b", "f", '{"x":2}')],
            [("f", {"x": 1}), ("f", {"x": 2})],
        ),
        (
            [call(0, "", "f", '{"x":1}'), call(0, "", "g", '{"x":2}')],
            [("f", {"x": 1}), ("g", {"x": 2})],
        ),
        ([call(None, "a", "f", "{}"), call(None, "a", "f", "{}")], [("f", {}), ("f", {})]),
        # Id and name again with every piece.
        (
            [call(0, "a", "f", "{"), call(0, "a", "f", '"x":{'), call(0, "a", "f", "}}")],
            [("f", {"x": {}})],
        ),
        ([call(None, "a", "f", "{"), call(None, "a", "f", "}")], [("f", {})]),
        # An id that changes with every piece, without a name.
        ([call(0, "a", "f", "{"), call(0, "b", None, "}")], [("f", {})]),
        # The name late, in pieces, or more of it each time.
        ([call(0, "a", None, '{"x":'), call(0, None, "f", "1}")], [("f", {"x": 1})]),
        (
            [call(0, "a", "read_"), call(0, None, "file"), call(0, arguments="{}")],
            [("read_file", {})],
        ),
        (
            [call(0, "a", "read_"), call(0, None, "read_file"), call(0, arguments="{}")],
            [("read_file", {})],
        ),
        # Arguments as an object, twice encoded, missing, or nothing one can read.
        ([call(0, "a", "f", {"x": 1})], [("f", {"x": 1})]),
        ([call(0, "a", "f", json.dumps('{"x": 1}'))], [("f", {"x": 1})]),
        ([call(0, "a", "f")], [("f", {})]),
        ([call(0, "a", "f", "{x")], [("f", "{x")]),
        ([call(0, "a", "f", [1])], [("f", "[1]")]),
        # Text between the pieces of a call.
        ([call(None, "a", "f", "{"), {"content": "and"}, call(None, None, None, "}")], [("f", {})]),
        # The older form, one call instead of a list, and pieces that say nothing.
        (
            [
                {"function_call": {"name": "f", "arguments": "{"}},
                {"function_call": {"arguments": "}"}},
            ],
            [("f", {})],
        ),
        ([{"tool_calls": call(0, "a", "f", "{}")["tool_calls"][0]}], [("f", {})]),
        ([{"tool_calls": [{"id": "a", "name": "f", "arguments": "{}"}]}], [("f", {})]),
        ([call(0, arguments="")], []),
        ([{"tool_calls": [None, 1, "x", []]}, {"tool_calls": None}], []),
        ([{"tool_calls": [{"index": "0", "id": 5, "function": {"name": 7}}]}], []),
    ]
    for deltas, expected in cases:
        with subtests.test(deltas=deltas, expected=expected):
            assert calls_of(*deltas) == expected


def test_every_call_has_an_id_that_can_be_answered() -> None:
    found = answer(
        chunk(call(0, "a", "f", "{}")),
        chunk(call(1, "a", "f", "{}")),
        chunk(call(2, None, "f", "{}")),
        chunk(call(3, "x\ud800\n", "f", "{}")),
        chunk(call(4, None, "f", "{")),
        chunk(call(4, "late", None, "}")),
        chunk({}, "tool_calls"),
    )
    first, second, third, fourth, fifth = (each.id for each in found.calls)
    assert (first, second, fifth) == ("a", "a_2", "late")
    assert third.startswith("call_")
    assert fourth.startswith("call_")
    assert third != fourth


def test_thinking_is_found_wherever_a_service_puts_it(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ({"reasoning_content": "hm"}, Thinking("hm", "reasoning_content")),
        ({"reasoning": "hm"}, Thinking("hm", "reasoning")),
        ({"reasoning_text": "hm"}, Thinking("hm", "reasoning_text")),
        ({"reasoning_content": "hm", "reasoning": "hm"}, Thinking("hm", "reasoning_content")),
        ({"content": [{"type": "thinking", "thinking": "hm"}]}, Thinking("hm", "thinking")),
        (
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
            Thinking("hm", "thinking"),
        ),
        ({"content": [{"type": "text", "text": "So."}, 5, {"type": "odd"}]}, Text("So.")),
        (
            {"reasoning_details": [{"type": "reasoning.encrypted", "data": "abc", "index": 0}]},
            Thinking("", '[{"type":"reasoning.encrypted","index":0,"data":"abc"}]', hidden=True),
        ),
        ({"reasoning_details": [{"type": 5}, None], "reasoning": 7, "content": 9}, None),
    ]
    for delta, expected in cases:
        with subtests.test(delta=delta, expected=expected):
            content = answer(chunk(delta), chunk({}, "stop")).content
            assert content == ((expected,) if expected else ())


def test_details_of_thinking_are_put_together_for_sending_them_back() -> None:
    text = {"type": "reasoning.text", "index": 0, "format": "f"}
    found = answer(
        chunk({"reasoning": "a", "reasoning_details": [{**text, "text": "a"}]}),
        chunk({"reasoning": "b", "reasoning_details": [{**text, "text": "b", "signature": "s"}]}),
        chunk({"reasoning_details": [{"type": "reasoning.summary", "index": 1, "summary": "c"}]}),
        chunk(call(0, "a", "f", "{}")),
        chunk({}, "tool_calls"),
    )
    thought = found.content[0]
    assert isinstance(thought, Thinking)
    assert thought.text == "abc"
    assert json.loads(thought.signature) == [
        {**text, "text": "ab", "signature": "s"},
        {"type": "reasoning.summary", "index": 1, "summary": "c"},
    ]


def test_an_emoji_that_was_cut_in_two_is_told_when_it_is_whole() -> None:
    data = b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n'
    data += (
        b'data: {"choices":[{"delta":{"content":"\\ude00b\\ud83d"},"finish_reason":"stop"}]}\n\n'
    )
    found, deltas = read(CompletionsDecoder(ENDPOINT), data)
    assert deltas == [TextDelta("a"), TextDelta("😀b")]
    assert found.text == "a😀b\ufffd"


def test_half_an_emoji_alone_is_told_later() -> None:
    deltas = [r'"\ud83d"', r'"\ude00"']
    data = "".join(f'data: {{"choices":[{{"delta":{{"content":{text}}}}}]}}\n\n' for text in deltas)
    _, told = read(CompletionsDecoder(ENDPOINT), f"{data}data: [DONE]\n\n".encode())
    assert told == [TextDelta("😀")]


def test_an_answer_ends_for_a_reason(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("stop", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("content_filter", "refusal"),
        ("SAFETY", "refusal"),
        ("tool_calls", "stop"),
        ("eos", "stop"),
    ]
    for reason, expected in cases:
        with subtests.test(reason=reason, expected=expected):
            assert answer(chunk({"content": "a"}, reason)).stop == expected


def test_an_answer_with_calls_ends_for_them(subtests: pytest.Subtests) -> None:
    cases: list[Any] = ["stop", "tool_calls", "function_call", "end_turn"]
    for reason in cases:
        with subtests.test(reason=reason):
            assert answer(chunk(call(0, "a", "f", "{}"), reason)).stop == "tool_calls"


def test_a_call_that_the_limit_cut_is_not_made_complete() -> None:
    found = answer(
        chunk(call(0, "a", "f", '{"x": 1')),
        chunk(call(1, "b", "g", '{"y": 2')),
        chunk({}, "length"),
    )
    assert found.stop == "length"
    assert [each.arguments for each in found.calls] == [{"x": 1}, '{"y": 2']


def test_tokens_are_counted_wherever_they_are_told(subtests: pytest.Subtests) -> None:
    place_cases: list[Any] = ["chunk", "choice", "groq"]
    cases: list[Any] = [
        (COUNTED, Usage(40, 20, 60)),
        (
            {"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 4},
            Usage(5, 2, 4),
        ),
        ({"prompt_tokens": 9, "completion_tokens": 2, "cached_tokens": 4}, Usage(5, 2, 4)),
        (
            {
                "prompt_tokens": 9,
                "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 4},
            },
            Usage(2, 0, 3, 4),
        ),
        ({"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 9}}, Usage(0, 0, 9)),
        # Thinking that is counted beside the output.
        (
            {**COUNTED, "total_tokens": 125},
            Usage(40, 25, 60),
        ),
        ({"prompt_tokens": "9", "completion_tokens": -2, "prompt_tokens_details": []}, Usage()),
    ]
    for place in place_cases:
        for usage, expected in cases:
            with subtests.test(usage=usage, expected=expected, place=place):
                last = chunk({}, "stop")
                if place == "choice":
                    last["choices"][0]["usage"] = usage
                else:
                    last |= {"usage": usage} if place == "chunk" else {"x_groq": {"usage": usage}}
                found = answer(last, endpoint=replace(ENDPOINT, facts=Facts()))
                assert found.usage == expected


def test_a_service_that_tells_dollars_is_trusted(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("openrouter", 0.25, 0.25),
        ("openrouter", "1", 0),
        ("openrouter", 1e9, 0),
        ("acme", 0.25, 0),
    ]
    for provider, cost, expected in cases:
        with subtests.test(provider=provider, cost=cost, expected=expected):
            endpoint = replace(ENDPOINT, ref=ModelRef(provider, "m"), facts=Facts())
            found = answer(
                chunk({}, "stop", usage={"prompt_tokens": 5, "cost": cost}), endpoint=endpoint
            )
            assert found.usage == Usage(5, cost=expected)


def test_an_error_inside_the_stream_is_of_its_kind(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ({"error": {"code": "context_length_exceeded", "message": "too long"}}, "overflow"),
        ({"error": {"message": "Rate limit reached", "type": "rate_limit_exceeded"}}, "rate_limit"),
        ({"error": {"message": "upstream", "code": 502}}, "server"),
        ({"error": {"code": 429, "message": "slow down"}, "choices": []}, "rate_limit"),
        ({"error": "internal error"}, "server"),
        ({"object": "error", "message": "internal server error", "code": 500}, "server"),
        (
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            "overloaded",
        ),
        (
            {"error": {"code": "insufficient_quota", "message": "exceeded your current quota"}},
            "billing",
        ),
        ({"error": {"code": "invalid_api_key", "message": "Incorrect API key"}}, "auth"),
        ({"detail": "internal server error"}, "server"),
        ({"base_resp": {"status_code": 1002, "status_msg": "rate limit"}}, "rate_limit"),
        (chunk({}, "error"), "server"),
        (chunk({}, "insufficient_system_resource"), "overloaded"),
    ]
    for event, kind in cases:
        with subtests.test(event=event, kind=kind):
            with pytest.raises(ModelError) as caught:
                answer(chunk({"content": "So "}), event)
            assert caught.value.kind == kind
            assert "openai" in str(caught.value)
            partial = caught.value.partial
            assert partial is not None
            assert (partial.text, partial.stop) == ("So ", "aborted")


def test_an_event_by_the_name_of_error_is_one() -> None:
    with pytest.raises(ModelError) as caught:
        CompletionsDecoder(ENDPOINT).feed(ServerEvent("error", '{"message": "internal error"}'))
    assert caught.value.kind == "server"


def test_what_is_not_an_event_is_malformed(subtests: pytest.Subtests) -> None:
    cases: list[Any] = ["{", "nonsense", "[]", "5", "null", '{"a":' * 100_000]
    for data in cases:
        with subtests.test(data=data):
            with pytest.raises(ModelError) as caught:
                CompletionsDecoder(ENDPOINT).feed(ServerEvent("", data))
            assert caught.value.kind == "malformed"


def test_malformed_chunks_are_skipped(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        {},
        {"choices": None},
        {"choices": {}},
        {"choices": [None, 5, []]},
        {"choices": [{"delta": None, "finish_reason": []}]},
        {"choices": [{"delta": {"content": {"a": 1}, "refusal": 5, "function_call": []}}]},
        {"choices": [], "usage": None},
        {"choices": [], "usage": [], "x_groq": 5},
        {"choices": [{"index": 0, "delta": {"role": "assistant"}}], "error": None},
    ]
    for event in cases:
        with subtests.test(event=event):
            assert answer(chunk({"content": "a"}), event, chunk({}, "stop")).content == (Text("a"),)


def test_a_whole_message_instead_of_deltas_is_read_once() -> None:
    message = {
        "role": "assistant",
        "content": "Hi",
        "tool_calls": call(0, "a", "f", "{}")["tool_calls"],
    }
    whole = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    expected = (Text("Hi"), ToolCall("a", "f", {}))
    assert answer(whole).content == expected
    assert answer(chunk({"content": "Hi"}), whole).content == (Text("Hi"),)


def test_only_one_choice_is_read() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": "length"}]}
    found = answer(chunk({"content": "a"}), other, chunk({}, "stop"))
    assert (found.text, found.stop) == ("a", "stop")


@pytest.mark.parametrize("finish", [None, "stop"])
@pytest.mark.parametrize("done", [False, True])
def test_an_answer_without_any_end_was_cut(finish: str | None, done: bool) -> None:
    chunks = (chunk({"content": "So "}), chunk({}, finish))
    if finish or done:
        assert answer(*chunks, done=done).content == (Text("So "),)
        return
    with pytest.raises(ModelError, match="broke off") as caught:
        answer(*chunks, done=done)
    assert caught.value.kind == "cut"
    assert caught.value.partial == Assistant(
        (Text("So "),), "aborted", model="openai/gpt-5", api="openai-completions"
    )


def test_nothing_after_the_end_counts() -> None:
    decoder = CompletionsDecoder(ENDPOINT)
    for data in (
        json.dumps(chunk({"content": "a"})),
        "[DONE]",
        json.dumps(chunk({"content": "b"})),
        "{",
    ):
        decoder.feed(ServerEvent("", data))
    assert decoder.finish().text == "a"


def test_what_has_come_so_far_holds_complete_calls_only() -> None:
    decoder = CompletionsDecoder(ENDPOINT)

    def so_far(*deltas: dict[str, Any], finish: str | None = None) -> tuple[Any, ...]:
        for delta in deltas:
            decoder.feed(ServerEvent("", json.dumps(chunk(delta, finish))))
        return decoder.partial().content

    thought, text = Thinking("hm", "reasoning"), Text("I")
    assert so_far() == ()
    assert so_far({"reasoning": "hm"}) == ()
    assert so_far({"content": "I"}) == (thought, text)
    assert so_far(call(0, "a", "f", '{"x": 1}')) == (thought, text)
    first = ToolCall("a", "f", {"x": 1})
    assert so_far(call(1, "b", "f", '{"x"')) == (thought, text, first)
    # The second is followed by another one, but what it has cannot be read.
    assert so_far(call(2, "c", "f", "{}")) == (thought, text, first)
    assert decoder.partial().stop == "aborted"
    assert so_far({}, finish="tool_calls") == (thought, text, first, ToolCall("c", "f", {}))


def test_an_answer_of_endless_parts_is_refused() -> None:
    decoder = CompletionsDecoder(ENDPOINT)
    event = ServerEvent("", json.dumps(chunk({"reasoning": "a", "content": "b"})))
    for _ in range(5_000):
        decoder.feed(event)
    with pytest.raises(ModelError, match="more than 10,000 parts"):
        decoder.feed(event)
    assert len(decoder.partial().text) == 5_000


def test_an_answer_of_endless_details_is_refused() -> None:
    details = [{"type": "reasoning.encrypted", "index": n, "data": "x"} for n in range(5_000)]
    with pytest.raises(ModelError, match="too many pieces"):
        answer(chunk({"reasoning_details": details}))


def test_arguments_that_are_too_deep_stay_text() -> None:
    arguments: Any = {}
    for _ in range(150):
        arguments = {"a": arguments}
    assert calls_of(call(0, "a", "f", arguments)) == [("f", '{"a":' * 150 + "{}" + "}" * 150)]
    for _ in range(5_000):
        arguments = [arguments]
    with pytest.raises(ModelError, match="nested too deeply"):
        arguments_text(arguments)


def test_arguments_that_are_nested_without_end_are_malformed() -> None:
    """They were `{}` once, and the call was carried out."""
    nested = '{"a": ' * 800 + '"\\ud800"' + "}" * 800
    event = json.dumps(chunk(call(0, "a", "f", "#"))).replace('"#"', nested)
    decoder = CompletionsDecoder(ENDPOINT)
    with pytest.raises(ModelError, match="deep"):
        decoder.feed(ServerEvent("", event))
    assert decoder.partial().calls == ()


def test_large_arguments_are_not_looked_at_again_and_again() -> None:
    def argued(*pieces: str) -> AnswerPart:
        answer = CompletionsDecoder(ENDPOINT)
        made = answer.call("a", "f")
        for piece in pieces:
            answer.add(made, piece)
        return made

    assert not argued('{"a":"', "x" * 70_000, '"}').looks_whole()
    assert not argued('{"a":"', "x").looks_whole()
    whole = argued('{"a":"', "x", '"}')
    assert [whole.looks_whole() for _ in range(101)] == [*[True] * 100, False]


def test_a_call_whose_pieces_all_look_like_a_new_one_is_one_call() -> None:
    pieces = [call(0, "", "f", "{"), *(call(0, "", "f", "{}") for _ in range(1_000))]
    assert calls_of(*pieces) == [("f", "{" + "{}" * 1_000)]


SMALL = st.sampled_from(["", "a", "{", "}", '{"x":1}', "read", "\ud800", "\0"]) | st.none()
JSON = st.recursive(
    SMALL | st.integers(-1, 3) | st.booleans(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(SMALL.map(str), inner, max_size=2),
    max_leaves=4,
)
FIELDS = (
    *("choices", "delta", "index", "finish_reason", "content", "tool_calls", "id", "function"),
    *("name", "arguments", "usage", "reasoning_details", "type", "text", "error", "message"),
)


@st.composite
def mutated(draw: st.DrawFn) -> list[bytes]:
    """A valid stream with a few things changed, dropped and repeated, cut anywhere."""

    def change(value: Any) -> Any:
        if draw(st.integers(0, 9)) == 0:
            return draw(JSON)
        if isinstance(value, dict):
            changed = {key: change(item) for key, item in value.items()}
            if draw(st.integers(0, 9)) == 0:
                changed[draw(st.sampled_from(FIELDS))] = draw(JSON)
            return changed
        return [change(item) for item in value] if isinstance(value, list) else value

    chunks = [change(each) for each in draw(st.sampled_from(list(SCRIPTS.values())))]
    data = stream(*chunks, done=draw(st.booleans()))
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=4)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@given(mutated())
def test_whatever_comes_there_is_an_answer_or_a_model_error(pieces: list[bytes]) -> None:
    events, decoder = EventStream(), CompletionsDecoder(ENDPOINT)
    try:
        for piece in pieces:
            for event in events.feed(piece):
                decoder.feed(event)
                decoder.partial()
        found = decoder.finish()
    except ModelError as error:
        found = error.partial or pytest.fail("an error without what had come")
    body = CompletionsWire(ENDPOINT).write(Request("", [found]))
    assert json.loads(body)["stream"] is True


OTHER = replace(ENDPOINT, ref=ModelRef("mine", "small"), is_native=False)


def test_thinking_between_tags_is_told_from_text(subtests: pytest.Subtests) -> None:
    step_cases: list[Any] = [1, 3, 1_000]
    cases: list[Any] = [
        ("<think>\nhm\n</think>\n\nyes", "hm", "yes"),
        ("\n <think>a < b</think>c", "a < b", "c"),
        ("<think>all of it", "all of it", ""),
        ("<think>half </thin", "half </thin", ""),
        ("<think></think>plain", "", "plain"),
        ("<thing> is a tag", "", "<thing> is a tag"),
        ("see <think>x</think>", "", "see <think>x</think>"),
        ("<think>a</think>b<think>c</think>", "a", "b<think>c</think>"),
        ("<thi", "", "<thi"),
        ("  ", "", "  "),
    ]
    for step in step_cases:
        for text, thought, words in cases:
            with subtests.test(text=text, thought=thought, words=words, step=step):
                pieces = [text[at : at + step] for at in range(0, len(text), step)]
                got = answer(
                    *(chunk({"content": each}) for each in pieces),
                    chunk({}, "stop"),
                    endpoint=OTHER,
                )
                thoughts = [part for part in got.content if isinstance(part, Thinking)]
                assert "".join(part.text for part in thoughts).strip("\n") == thought
                assert got.text == words
                # It goes back to nobody.
                assert not any(part.signature for part in thoughts)


def test_what_the_real_service_says_is_not_looked_into() -> None:
    assert answer(chunk({"content": "<think>x</think>y"}), chunk({}, "stop")).text == (
        "<think>x</think>y"
    )
