"""Answers through the Anthropic Messages API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.wire.served import damaged, events_of, read, serving, sse
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
    TextDelta,
    ThinkingDelta,
)
from clawkit.models.wire.anthropic import AnthropicDecoder, AnthropicWire
from clawkit.net.sse import ServerEvent

ENDPOINT = Endpoint(
    ModelRef("anthropic", "claude-sonnet-4-5"),
    "anthropic-messages",
    "https://api.anthropic.com",
    facts=Facts(cost=Cost(input=3, output=15, cache_read=0.3, cache_write=3.75)),
)
START: dict[str, Any] = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 12,
            "output_tokens": 1,
            "cache_read_input_tokens": 100,
            "cache_creation_input_tokens": 20,
        },
    },
}
STOP = {"type": "message_stop"}


def end(reason: str | None = "end_turn", output: int = 9, **fields: Any) -> dict[str, Any]:
    delta = {"stop_reason": reason, "stop_sequence": None, **fields}
    return {"type": "message_delta", "delta": delta, "usage": {"output_tokens": output}}


def begun(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def more(index: int, kind: str, text: Any) -> dict[str, Any]:
    field = {"input_json": "partial_json"}.get(kind, kind)
    return {
        "type": "content_block_delta",
        "index": index,
        "delta": {"type": f"{kind}_delta", field: text},
    }


def ended(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def text_block(text: str, index: int = 0) -> list[dict[str, Any]]:
    return [begun(index, type="text", text=""), more(index, "text", text), ended(index)]


def call_block(
    index: int, call_id: str | None, name: str, *arguments: Any, **block: Any
) -> list[dict[str, Any]]:
    start = begun(index, **{"type": "tool_use", "id": call_id, "name": name, "input": {}} | block)
    return [start, *(more(index, "input_json", each) for each in arguments), ended(index)]


FULL: list[dict[str, Any]] = [
    START,
    {"type": "ping"},
    begun(0, type="thinking", thinking="", signature=""),
    more(0, "thinking", "Let me "),
    more(0, "thinking", "see."),
    more(0, "signature", "c2ln"),
    ended(0),
    begun(1, type="redacted_thinking", data="ZW5j"),
    ended(1),
    begun(2, type="text", text=""),
    more(2, "text", "I look "),
    more(2, "text", "at 😀 it."),
    ended(2),
    *call_block(3, "toolu_1", "read", '{"path": "a', '.txt"}'),
    *call_block(4, "toolu_2", "ls"),
    end("tool_use", 55),
    STOP,
]
NESTED = '{"a": [1, {"b": null}], "c": "\\u00e4"}'
SIGNED_ONLY = [
    begun(0, type="thinking", thinking="", signature=""),
    more(0, "signature", "only"),
    ended(0),
]


def decode(events: list[dict[str, Any]]) -> Assistant:
    return read(AnthropicDecoder(ENDPOINT), sse(events))[0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "events",
    [
        FULL,
        [START, *text_block("Hello"), end(), STOP],
        [START, *text_block("Cut off"), end("max_tokens"), STOP],
        [START, *text_block("a"), *text_block("b", 1), end("stop_sequence"), STOP],
        [START, *call_block(0, "toolu_9", "x", NESTED), end("tool_use"), STOP],
        [START, *SIGNED_ONLY, *text_block("x", 1), end(), STOP],
        [START, end("refusal", 3), STOP],
    ],
    ids=["everything", "text", "length", "two texts", "call", "signed only", "refusal"],
)
@SDKS
async def test_the_official_client_reads_the_same(events: list[dict[str, Any]]) -> None:
    import anthropic

    stream = sse(events)
    async with (
        serving(stream) as (address, _),
        anthropic.AsyncAnthropic(base_url=address, api_key="k", max_retries=0) as client,
        client.messages.stream(
            model="claude-sonnet-4-5",
            max_tokens=100,
            messages=[{"role": "user", "content": "hi"}],
        ) as official,
    ):
        expected = await official.get_final_message()
    answer, deltas = read(AnthropicWire(ENDPOINT).decoder(), stream)
    parts: list[Any] = []
    for block in expected.content:
        if block.type == "text":
            parts.append(Text(block.text))
        elif block.type == "thinking":
            parts.append(Thinking(block.thinking, block.signature))
        elif block.type == "redacted_thinking":
            parts.append(Thinking(signature=block.data, hidden=True))
        elif block.type == "tool_use":
            parts.append(ToolCall(block.id, block.name, dict(block.input)))
    assert list(answer.content) == parts
    used = expected.usage
    assert (answer.usage.input, answer.usage.output) == (used.input_tokens, used.output_tokens)
    assert answer.usage.cache_read == used.cache_read_input_tokens
    assert answer.usage.cache_write == used.cache_creation_input_tokens
    stops = {"max_tokens": "length", "tool_use": "tool_calls", "refusal": "refusal"}
    assert answer.stop == stops.get(str(expected.stop_reason), "stop")
    told = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    assert told == answer.text


def test_everything_is_told_while_it_comes() -> None:
    answer, deltas = read(AnthropicDecoder(ENDPOINT), sse(FULL))
    assert deltas == [
        ThinkingDelta("Let me "),
        ThinkingDelta("see."),
        TextDelta("I look "),
        TextDelta("at 😀 it."),
        CallStarted(0, "toolu_1", "read"),
        CallDelta(0, '{"path": "a'),
        CallDelta(0, '.txt"}'),
        CallStarted(1, "toolu_2", "ls"),
    ]
    assert answer.model == "anthropic/claude-sonnet-4-5"
    assert answer.api == "anthropic-messages"
    cost = (12 * 3 + 55 * 15 + 100 * 0.3 + 20 * 3.75) / 1_000_000
    assert answer.usage == Usage(12, 55, 100, 20, answer.usage.cost)
    assert answer.usage.cost == pytest.approx(cost)


def test_why_an_answer_ended(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("end_turn", text_block("x"), "stop"),
        ("stop_sequence", text_block("x"), "stop"),
        ("pause_turn", text_block("x"), "stop"),
        ("something_new", text_block("x"), "stop"),
        ("max_tokens", text_block("x"), "length"),
        ("model_context_window_exceeded", text_block("x"), "length"),
        ("refusal", text_block("x"), "refusal"),
        ("tool_use", call_block(0, "a", "ls"), "tool_calls"),
        ("end_turn", call_block(0, "a", "ls"), "tool_calls"),
        ("tool_use", text_block("x"), "stop"),
        ("max_tokens", call_block(0, "a", "ls"), "length"),
    ]
    for reason, events, stop in cases:
        with subtests.test(reason=reason, events=events, stop=stop):
            assert decode([START, *events, end(reason), STOP]).stop == stop


def test_an_answer_that_was_taken_back_calls_nothing() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "Not this one."}
    events = [START, *text_block("So"), *call_block(1, "a", "exec", "{}")]
    answer = decode([*events, end("refusal", stop_details=details), STOP])
    assert answer.content == (Text("So"),)
    assert answer.error == "Not this one."


def test_an_error_inside_the_stream_says_what_it_is(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ({"type": "overloaded_error", "message": "Overloaded"}, "overloaded"),
        ({"type": "rate_limit_error", "message": "Number of requests exceeded"}, "rate_limit"),
        ({"type": "authentication_error", "message": "invalid x-api-key"}, "auth"),
        ({"type": "permission_error", "message": "Your key may not"}, "auth"),
        ({"type": "billing_error", "message": "No"}, "billing"),
        ({"type": "api_error", "message": "Internal server error"}, "server"),
        ({"type": "timeout_error", "message": "Slow"}, "timeout"),
        ({"type": "not_found_error", "message": "model: claude-x"}, "not_found"),
        ({"type": "invalid_request_error", "message": "tools.0: Input should be"}, "invalid"),
        (
            {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8"},
            "overflow",
        ),
        (
            {"type": "invalid_request_error", "message": "Your credit balance is too low"},
            "billing",
        ),
        ({"type": "something_else", "message": "?"}, "server"),
        ("just words", "server"),
    ]
    for error, kind in cases:
        with subtests.test(error=error, kind=kind):
            decoder = AnthropicDecoder(ENDPOINT)
            for event in events_of(sse([START, *text_block("So far")])):
                decoder.feed(event)
            with pytest.raises(ModelError) as caught:
                decoder.feed(ServerEvent("error", json.dumps({"type": "error", "error": error})))
            assert caught.value.kind == kind
            assert caught.value.partial is not None
            assert caught.value.partial.content == (Text("So far"),)


def test_an_error_without_a_type_is_one_too() -> None:
    with pytest.raises(ModelError, match="busy") as caught:
        AnthropicDecoder(ENDPOINT).feed(ServerEvent("", '{"error": {"message": "server busy"}}'))
    assert caught.value.kind == "overloaded"


def test_a_stream_that_ends_early_is_cut() -> None:
    decoder = AnthropicDecoder(ENDPOINT)
    for event in events_of(sse(FULL))[:-3]:
        decoder.feed(event)
    with pytest.raises(ModelError) as caught:
        decoder.finish()
    assert caught.value.kind == "cut"
    assert caught.value.partial == decoder.partial()


def feed(*events: dict[str, Any]) -> AnthropicDecoder:
    decoder = AnthropicDecoder(ENDPOINT)
    for event in events:
        decoder.feed(ServerEvent("", json.dumps(event)))
    return decoder


@pytest.mark.parametrize(
    "blocks",
    [
        [begun(0, type="text", text="")],
        [begun(0, type="thinking", thinking="")],
        [more(0, "text", "a"), more(0, "thinking", "b")],
    ],
)
def test_an_answer_of_endless_parts_is_refused(blocks: list[dict[str, Any]]) -> None:
    with pytest.raises(ModelError, match="more than 10,000 parts"):
        feed(*blocks * 10_001)


@pytest.mark.parametrize("kind", ["text", "server_tool_use"])
def test_an_answer_of_endless_open_parts_is_refused(kind: str) -> None:
    with pytest.raises(ModelError, match="more than 1,000 open parts"):
        feed(*(begun(number, type=kind) for number in range(1_001)))


def test_a_signature_in_very_many_pieces_is_put_together_once() -> None:
    pieces = [more(0, "signature", "x" * 80)] * 100_000
    assert feed(*pieces, end()).finish().content == (Thinking("", "x" * 8_000_000),)


def test_what_came_holds_complete_parts_and_open_text_only() -> None:
    decoder = AnthropicDecoder(ENDPOINT)
    seen = []
    for event in events_of(sse(FULL)):
        decoder.feed(event)
        seen.append(decoder.partial().content)
    thought = Thinking("Let me see.", "c2ln")
    hidden = Thinking(signature="ZW5j", hidden=True)
    text = Text("I look at 😀 it.")
    call = ToolCall("toolu_1", "read", {"path": "a.txt"})
    assert seen[5] == ()  # the thinking is not yet complete
    assert seen[6] == (thought,)
    assert seen[10] == (thought, hidden, Text("I look "))
    assert seen[15] == (thought, hidden, text)  # the call is not yet complete
    assert seen[16] == (thought, hidden, text, call)


def test_imitations_are_understood(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        [START, *text_block("x"), end()],
        [START, *text_block("x"), STOP],
        [*text_block("x"), STOP],
        [START, begun(0, type="text", text=""), more(0, "text", "x"), end(), STOP],
        [START, more(0, "text", "x"), end(), STOP],
        [START, begun(0, type="text", text="x"), end(), STOP],
        [START, *text_block("x"), {"type": "later_invention"}, end(), STOP, {"type": "error"}],
        [START, *text_block("x"), {"type": "message_delta"}, STOP],
        [START, *text_block("x"), {"type": "message_delta", "delta": 1, "usage": []}, STOP],
        [START, begun(0, type="text", text=None), more(0, "text", None), *text_block("x"), STOP],
        [
            START,
            begun(0, type="server_tool_use", id="s", name="web_search", input={}),
            more(0, "input_json", '{"q": 1}'),
            more(0, "text", "not mine"),
            more(0, "signature", "not mine"),
            ended(0),
            begun(1, type="web_search_tool_result", content=[]),
            ended(1),
            *text_block("x", 2),
            STOP,
        ],
    ]
    for events in cases:
        with subtests.test(events=events):
            assert decode(events).content == (Text("x"),)


def test_a_missing_or_reused_index_is_understood_from_the_order() -> None:
    events = [*text_block("a"), *call_block(0, "c", "ls", "{}"), *text_block("b")]
    for event in events:
        if event["type"] != "content_block_start":
            event.pop("index")
    expected = (Text("a"), ToolCall("c", "ls", {}), Text("b"))
    assert decode([START, *events, STOP]).content == expected
    for event in events:
        event.pop("index", None)
    assert decode([START, *events, STOP]).content == expected


def test_a_block_ends_where_another_one_takes_its_place() -> None:
    decoder = AnthropicDecoder(ENDPOINT)
    first = call_block(0, "a", "ls", '{"x": 1}')[:-1]
    for event in events_of(sse([START, *first, *call_block(0, "b", "ls")[:-1]])):
        decoder.feed(event)
    assert decoder.partial().content == (ToolCall("a", "ls", {"x": 1}),)


def test_arguments_in_every_form(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (call_block(0, "c", "x"), {}),
        (call_block(0, "c", "x", input={"a": 1}), {"a": 1}),
        (call_block(0, "c", "x", input='{"a": 1}'), {"a": 1}),
        (call_block(0, "c", "x", '{"a":', " 2}", input={"a": 1}), {"a": 2}),
        (call_block(0, "c", "x", {"a": 1}), {"a": 1}),
        (call_block(0, "c", "x", "", None, '{"a": 1}'), {"a": 1}),
        (call_block(0, "c", "x", '{"a": 1'), {"a": 1}),
        (call_block(0, "c", "x", "[1]"), "[1]"),
        (call_block(0, "c", "x", "nonsense"), "nonsense"),
        (call_block(0, "c", "x", '{"a": ' + "[" * 200 + "]" * 200 + "}"), None),
    ]
    for events, arguments in cases:
        with subtests.test(events=events, arguments=arguments):
            (call,) = decode([START, *events, end("tool_use"), STOP]).calls
            assert (
                call.arguments == arguments
                if arguments is not None
                else isinstance(call.arguments, str)
            )


def test_arguments_that_are_nested_without_end_are_malformed() -> None:
    nested = '{"a": ' * 800 + '"\\ud800"' + "}" * 800
    event = json.dumps(begun(0, type="tool_use", id="c", name="x", input="#"))
    decoder = AnthropicDecoder(ENDPOINT)
    with pytest.raises(ModelError, match="deep"):
        decoder.feed(ServerEvent("", event.replace('"#"', nested)))


def test_arguments_that_a_limit_cut_are_not_completed() -> None:
    events = [START, *call_block(0, "c", "exec", '{"command": "rm -r /tmp/a"'), end("max_tokens")]
    (call,) = decode(events).calls
    assert call.arguments == '{"command": "rm -r /tmp/a"'


def test_every_call_has_an_id_of_its_own() -> None:
    given: list[str | None] = ["a", "a", None, "", "a"]
    blocks = [event for at, each in enumerate(given) for event in call_block(at, each, "ls")]
    calls = decode([START, *blocks, STOP]).calls
    ids = [call.id for call in calls]
    assert ids[0] == "a"
    assert len(set(ids)) == len(ids) == 5
    assert all(ids)


def test_the_last_numbers_of_usage_count() -> None:
    late = end()
    late["usage"] = {"input_tokens": 30, "output_tokens": 7, "cache_read_input_tokens": 0}
    assert decode([START, *text_block("x"), late, STOP]).usage.input == 30
    assert decode([START, *text_block("x"), late, STOP]).usage.cache_read == 100
    strange = {"input_tokens": -4, "output_tokens": "many", "cache_read_input_tokens": True}
    late["usage"] = strange
    assert decode([START, *text_block("x"), late, STOP]).usage.output == 1


def test_half_a_character_in_one_event_and_half_in_the_next() -> None:
    stream = sse([START, begun(0, type="text", text="")])
    stream += b'data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a\\ud83d"}}\n\n'  # noqa: E501
    stream += b'data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "\\ude00b\\ud800"}}\n\n'  # noqa: E501
    answer, deltas = read(AnthropicDecoder(ENDPOINT), stream + sse([end(), STOP]))
    assert answer.text == "a😀b\ufffd"
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "a😀b"


def test_what_is_not_an_event_is_malformed(subtests: pytest.Subtests) -> None:
    cases: list[Any] = ["{", "[1]", "null", '"x"', "nonsense", "[" * 100_000]
    for data in cases:
        with subtests.test(data=data):
            with pytest.raises(ModelError) as caught:
                AnthropicDecoder(ENDPOINT).feed(ServerEvent("message", data))
            assert caught.value.kind == "malformed"
            assert len(str(caught.value)) < 500


@table("kind", ["text", "thinking", "signature"])
def test_an_answer_without_end_is_refused(kind: str) -> None:
    decoder = AnthropicDecoder(ENDPOINT)
    event = ServerEvent("", json.dumps(more(0, kind, "x" * (2 * 1024 * 1024))))
    for _ in range(4):
        decoder.feed(event)
    with pytest.raises(ModelError, match="longer"):
        decoder.feed(event)


@given(data=st.data())
def test_no_stream_raises_anything_but_a_model_error(data: st.DataObject) -> None:
    events = data.draw(damaged(FULL))
    decoder = AnthropicDecoder(ENDPOINT)
    try:
        for event in events:
            for delta in decoder.feed(ServerEvent("", json.dumps(event))):
                assert isinstance(delta, TextDelta | ThinkingDelta | CallStarted | CallDelta)
            decoder.partial()
        answer = decoder.finish()
    except ModelError:
        answer = decoder.partial()
    ids = [call.id for call in answer.calls]
    assert len(set(ids)) == len(ids)
