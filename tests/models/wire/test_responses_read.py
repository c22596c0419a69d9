"""Answers through the Responses API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.models.wire.served import events_of, read, serving, sse
from tests.sdks import SDKS

from clawkit.config.modelref import ModelRef
from clawkit.config.sections.models import Cost
from clawkit.content import Assistant, Text, Thinking, ToolCall, Usage
from clawkit.models.protocols import (
    CallDelta,
    CallStarted,
    Delta,
    Endpoint,
    Facts,
    ModelError,
    Request,
    TextDelta,
    ThinkingDelta,
)
from clawkit.models.wire.responses import ResponsesDecoder, ResponsesWire
from clawkit.net.sse import ServerEvent

ENDPOINT = Endpoint(
    ModelRef("openai", "gpt-5"),
    "openai-responses",
    "https://api.openai.com/v1",
    facts=Facts(reasoning=True, cost=Cost(input=1, output=10, cache_read=0.1)),
)
COUNTED = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 0},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 120,
}


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **fields}


def response(status: str, output: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5",
        "status": status,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        **fields,
    }


def ended(*output: Any, status: str = "completed", **fields: Any) -> dict[str, Any]:
    return event(status, response=response(status, [*output], **fields))


def message(text: str, place: int = 0, **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "id": f"msg_{place}", "role": "assistant", "status": "completed"}
    return {**item, "content": [part] if text else [], **more}


def call(arguments: str, place: int = 0, name: str = "read") -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{place}",
        "call_id": f"call_{place}",
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }


def thought(*summary: str, place: int = 0, secret: str | None = "secret") -> dict[str, Any]:
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return {"type": "reasoning", "id": f"rs_{place}", "summary": parts, "encrypted_content": secret}


def streamed(item: dict[str, Any], place: int = 0, size: int = 3) -> list[dict[str, Any]]:
    """How an item comes: announced, in pieces, and once more as a whole."""
    where = {"item_id": item["id"], "output_index": place}
    start = {**item, "content": [], "summary": [], "arguments": "", "encrypted_content": None}
    start = {key: value for key, value in start.items() if key in item}
    out = [event("output_item.added", output_index=place, item=start)]

    def pieces(kind: str, text: str, **fields: Any) -> None:
        for at in range(0, len(text), size):
            out.append(event(f"{kind}.delta", delta=text[at : at + size], **where, **fields))

    if item["type"] == "function_call":
        pieces("function_call_arguments", item["arguments"])
        done = {"arguments": item["arguments"], "name": item["name"]}
        out.append(event("function_call_arguments.done", **done, **where))
    for index, part in enumerate(item.get("content", ())):
        at = {"content_index": index}
        is_refusal = part["type"] == "refusal"
        name = "refusal" if is_refusal else "output_text"
        empty = {**part, "refusal" if is_refusal else "text": ""}
        out.append(event("content_part.added", part=empty, **where, **at))
        more: dict[str, Any] = {} if is_refusal else {"logprobs": []}
        pieces(name, part["refusal" if is_refusal else "text"], **at, **more)
        out.append(event("content_part.done", part=part, **where, **at))
    for index, part in enumerate(item.get("summary", ())):
        pieces("reasoning_summary_text", part["text"], summary_index=index)
    return [*out, event("output_item.done", output_index=place, item=item)]


def whole(*items: dict[str, Any], status: str = "completed", **fields: Any) -> list[dict[str, Any]]:
    events = [event("created", response=response("in_progress", []))]
    for place, item in enumerate(items):
        events += streamed(item, place)
    events.append(ended(*items, status=status, usage=COUNTED, **fields))
    return [{**each, "sequence_number": number} for number, each in enumerate(events)]


def answer(*events: dict[str, Any], endpoint: Endpoint = ENDPOINT) -> Assistant:
    return told(*events, endpoint=endpoint)[0]


def told(*events: dict[str, Any], endpoint: Endpoint = ENDPOINT) -> tuple[Assistant, list[Delta]]:
    return read(ResponsesDecoder(endpoint), sse(events))


REFUSED = {**message("", 0), "content": [{"type": "refusal", "refusal": "I cannot."}]}
SCRIPTS: dict[str, list[dict[str, Any]]] = {
    "text": whole(message("Hello 😀")),
    "thought": whole(thought("First.", "Then."), message("So.", 1)),
    "two calls": whole(
        thought(), message("I look.", 1), call('{"path": "a"}', 2), call('{"path": "b"}', 3)
    ),
    "refusal": whole(REFUSED),
    "length": whole(
        message("Once"), status="incomplete", incomplete_details={"reason": "max_output_tokens"}
    ),
    "nothing": whole(),
}


@SDKS
@pytest.mark.parametrize("name", SCRIPTS)
async def test_an_answer_is_read_as_the_official_library_reads_it(name: str) -> None:
    import openai

    data = sse(SCRIPTS[name])
    found, deltas = read(ResponsesDecoder(ENDPOINT), data)
    texts, final = "", None
    pieces: dict[int, str] = {}
    async with (
        serving(data) as (url, _),
        openai.AsyncOpenAI(base_url=url, api_key="x", max_retries=0) as client,
    ):
        async for each in await client.responses.create(model="gpt-5", input=[], stream=True):
            if each.type in ("response.output_text.delta", "response.refusal.delta"):
                texts += each.delta
            elif each.type == "response.function_call_arguments.delta":
                pieces[each.output_index] = pieces.get(each.output_index, "") + each.delta
            elif each.type in ("response.completed", "response.incomplete"):
                final = each.response
    assert final is not None
    assert (
        found.text == "".join(each.text for each in deltas if isinstance(each, TextDelta)) == texts
    )
    theirs = [item for item in final.output if item.type == "function_call"]
    assert [(each.id, each.name, json.dumps(each.arguments)) for each in found.calls] == [
        (item.call_id, item.name, item.arguments) for item in theirs
    ]
    assert [each.text for each in deltas if isinstance(each, CallDelta)] == [
        text
        for whole in pieces.values()
        for text in (whole[at : at + 3] for at in range(0, len(whole), 3))
    ]
    kinds = {"message": Text, "function_call": ToolCall, "reasoning": Thinking}
    assert [type(part) for part in found.content] == [kinds[item.type] for item in final.output]
    assert final.usage is not None
    assert final.usage.input_tokens == found.usage.input + found.usage.cache_read == 100
    assert found.usage.output == final.usage.output_tokens
    assert found.usage.cost == pytest.approx((40 + 10 * 20 + 0.1 * 60) / 1e6)
    stops = {"refusal": "refusal", "length": "length", "two calls": "tool_calls"}
    assert found.stop == stops.get(name, "stop")
    assert (found.model, found.api) == ("openai/gpt-5", "openai-responses")


def test_what_comes_is_told_at_once_and_in_order() -> None:
    found, deltas = told(*SCRIPTS["thought"][:-1], *streamed(call('{"a":1}', 2), 2), ended())
    assert [each.text for each in deltas if isinstance(each, ThinkingDelta)] == [
        *("Fir", "st."),
        *("\n\nThe", "n."),
    ]
    assert deltas[-4:] == [
        CallStarted(0, "call_2", "read"),
        CallDelta(0, '{"a'),
        CallDelta(0, '":1'),
        CallDelta(0, "}"),
    ]
    assert found.content == (
        Thinking("First.\n\nThen.", json.dumps(thought("First.", "Then."), separators=(",", ":"))),
        Text("So."),
        ToolCall("call_2", "read", {"a": 1}),
    )


def test_a_thought_goes_back_the_way_it_came() -> None:
    found = answer(*SCRIPTS["two calls"])
    body = json.loads(ResponsesWire(ENDPOINT).write(Request("", [found])))
    assert body["input"][0] == thought()
    assert found.content[0] == Thinking(
        "", json.dumps(thought(), separators=(",", ":")), hidden=True
    )


def test_the_phase_of_a_text_goes_back_with_it(subtests: pytest.Subtests) -> None:
    cases: list[Any] = ["commentary", "final_answer", "odd", None]
    for phase in cases:
        with subtests.test(phase=phase):
            found = answer(*whole(message("a", phase=phase)))
            kept = phase if phase in ("commentary", "final_answer") else ""
            assert found.content == (Text("a", kept),)


def test_a_thought_in_the_open_is_kept_where_there_is_no_other() -> None:
    parts = [{"type": "reasoning_text", "text": "hm"}]
    item = {**thought(secret=None), "content": parts}
    where = {"item_id": "rs_0", "output_index": 0, "content_index": 0}
    found, deltas = told(
        event("output_item.added", output_index=0, item=thought(secret=None)),
        event("reasoning_text.delta", delta="hm", **where),
        event("output_item.done", output_index=0, item=item),
        ended(),
    )
    assert deltas == [ThinkingDelta("hm")]
    assert isinstance(found.content[0], Thinking)
    assert found.content[0].text == "hm"
    assert json.loads(found.content[0].signature) == {
        "type": "reasoning",
        "id": "rs_0",
        "summary": [],
        "content": parts,
    }
    assert answer(*streamed(thought("hm", secret=None)), ended()).content == (Thinking("hm"),)


A = message("Hi")
B = call('{"x":1}', 1)
TEXT = {"delta": "Hi"}


def test_imitations_are_understood(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        # Everything at the end only, or as whole items only.
        (
            [ended(A, B, call("{}", 2))],
            [Text("Hi"), ToolCall("call_1", "read", {"x": 1}), ToolCall("call_2", "read", {})],
        ),
        (
            [event("output_item.done", item=A), event("output_item.done", item=B), ended()],
            [Text("Hi"), ToolCall("call_1", "read", {"x": 1})],
        ),
        # No announcement, no ids, no places.
        (
            [event("output_text.delta", **TEXT), event("output_text.delta", **TEXT), ended()],
            [Text("HiHi")],
        ),
        ([event("output_text.delta", item_id="x", **TEXT), ended(A)], [Text("Hi")]),
        (
            [
                event("function_call_arguments.delta", item_id="x", delta='{"x"'),
                event("function_call_arguments.delta", item_id="x", delta=":1}"),
                event("output_item.done", item={**B, "id": "x"}),
                ended(),
            ],
            [ToolCall("call_1", "read", {"x": 1})],
        ),
        # The same place for all items: their ids tell them apart, or that one has ended.
        (
            [*streamed(A), *streamed(B), *streamed(call("{}", 2)), ended(A, B)],
            [Text("Hi"), ToolCall("call_1", "read", {"x": 1}), ToolCall("call_2", "read", {})],
        ),
        # What is said at the end counts.
        (
            [
                *streamed(A)[:-1],
                event("output_item.done", output_index=0, item=message("Ho")),
                ended(),
            ],
            [Text("Ho")],
        ),
        (
            [
                *streamed(B, 1)[:-1],
                event("output_item.done", output_index=1, item=call('{"y":2}', 1)),
                ended(),
            ],
            [ToolCall("call_1", "read", {"y": 2})],
        ),
        # Arguments as an object; none at all.
        ([ended({**B, "arguments": {"x": 1}})], [ToolCall("call_1", "read", {"x": 1})]),
        ([*streamed(call("", 1)), ended()], [ToolCall("call_1", "read", {})]),
        # Text instead of parts; what nobody knows; what is of no use.
        ([ended({**A, "content": "Hi"})], [Text("Hi")]),
        (
            [
                *streamed(A),
                event("output_item.done", item={"type": "web_search_call", "id": "ws"}),
                ended(),
            ],
            [Text("Hi")],
        ),
        (
            [
                event("output_item.added"),
                event("output_item.done", item=5),
                event("odd"),
                ended(None, 5),
            ],
            [],
        ),
        ([event("reasoning_summary_text.delta", delta={"text": "hm"}), ended()], [Thinking("hm")]),
        ([event("reasoning_summary_text.delta", delta=5), ended()], []),
    ]
    for events, expected in cases:
        with subtests.test(events=events, expected=expected):
            found, deltas = told(*events)
            assert list(found.content) == expected
            started = [delta for delta in deltas if isinstance(delta, CallStarted)]
            assert [(each.number, each.id) for each in started] == [
                (number, each.id) for number, each in enumerate(found.calls)
            ]


def test_calls_with_the_same_id_get_ids_of_their_own() -> None:
    items = [{**call("{}", place), "call_id": "same"} for place in range(2)]
    items.append({**call("{}", 2), "call_id": ""})
    ids = [each.id for each in answer(*whole(*items)).calls]
    assert ids[:2] == ["same", "same_2"]
    assert len(set(ids)) == 3
    assert all(ids)


def test_an_answer_ends_for_a_reason(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (ended(A), "stop"),
        (ended(B), "tool_calls"),
        (event("completed"), "stop"),
        (event("done", response=response("completed", [A])), "stop"),
        (ended(A, status="incomplete"), "length"),
        (
            ended(A, status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
            "length",
        ),
        (ended(A, status="incomplete", incomplete_details={"reason": "content_filter"}), "refusal"),
    ]
    for last, expected in cases:
        with subtests.test(last=last, expected=expected):
            assert answer(last).stop == expected


def test_a_call_that_the_limit_cut_is_not_made_complete() -> None:
    found = answer(*whole(call('{"x": 1'), status="incomplete"))
    assert found.calls[0].arguments == '{"x": 1'


def failed(**error: Any) -> dict[str, Any]:
    return ended(status="failed", instructions="x" * 100_000, error=error or None)


def test_an_error_inside_the_stream_is_of_its_kind(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (failed(code="server_error", message="oops"), "server"),
        (failed(code="rate_limit_exceeded", message="Rate limit reached"), "rate_limit"),
        (failed(code="context_length_exceeded", message="exceeds the context window"), "overflow"),
        (failed(code="invalid_prompt", message="no"), "invalid"),
        (failed(), "server"),
        (ended(status="cancelled"), "server"),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow"}, "rate_limit"),
        ({"type": "error", "error": {"code": "insufficient_quota", "message": "quota"}}, "billing"),
        ({"type": "odd", "error": {"message": "internal error"}}, "server"),
    ]
    for last, kind in cases:
        with subtests.test(last=last, kind=kind):
            with pytest.raises(ModelError) as caught:
                answer(*streamed(A), last)
            assert caught.value.kind == kind
            assert "openai" in str(caught.value)
            assert caught.value.partial == Assistant(
                (Text("Hi"),), "aborted", model="openai/gpt-5", api="openai-responses"
            )


def test_what_is_not_an_event_is_malformed(subtests: pytest.Subtests) -> None:
    cases: list[Any] = ["{", "nonsense", "[]", "5", "null"]
    for data in cases:
        with subtests.test(data=data):
            with pytest.raises(ModelError) as caught:
                ResponsesDecoder(ENDPOINT).feed(ServerEvent("", data))
            assert caught.value.kind == "malformed"


def test_the_name_of_an_event_says_what_it_is_where_its_data_does_not() -> None:
    decoder = ResponsesDecoder(ENDPOINT)
    assert [*decoder.feed(ServerEvent("response.output_text.delta", '{"delta": "a"}'))] == [
        TextDelta("a")
    ]
    with pytest.raises(ModelError) as caught:
        decoder.feed(ServerEvent("error", '{"message": "internal error"}'))
    assert caught.value.kind == "server"


def test_an_answer_without_any_end_was_cut() -> None:
    decoder = ResponsesDecoder(ENDPOINT)
    for each in events_of(sse([*streamed(A), *streamed(B, 1)[:-1]])):
        decoder.feed(each)
    with pytest.raises(ModelError, match="broke off") as caught:
        decoder.finish()
    assert caught.value.kind == "cut"
    assert caught.value.partial is not None
    assert caught.value.partial.content == (Text("Hi"),)
    decoder.feed(ServerEvent("", " "))
    decoder.feed(ServerEvent("", "[DONE]"))
    decoder.feed(ServerEvent("", "{"))
    assert decoder.finish().content == (Text("Hi"), ToolCall("call_1", "read", {"x": 1}))


def test_what_has_come_so_far_holds_complete_parts_and_open_text() -> None:
    decoder = ResponsesDecoder(ENDPOINT)
    seen: list[tuple[str, ...]] = []
    for each in [*streamed(thought("hm")), *streamed(A, 1), *streamed(call("{}", 2), 2)]:
        decoder.feed(ServerEvent("", json.dumps(each)))
        kinds = tuple(type(part).__name__ for part in decoder.partial().content)
        if not seen or seen[-1] != kinds:
            seen.append(kinds)
    assert seen == [
        (),
        ("Thinking",),
        ("Thinking", "Text"),
        ("Thinking", "Text", "ToolCall"),
    ]
    assert decoder.partial().stop == "aborted"


def test_tokens_are_counted(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (COUNTED, Usage(40, 20, 60)),
        ({"input_tokens": 5, "output_tokens": 2}, Usage(5, 2)),
        (
            {
                "input_tokens": 9,
                "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 3},
            },
            Usage(4, 0, 2, 3),
        ),
        ({"input_tokens": "5", "input_tokens_details": None}, Usage()),
        (None, Usage()),
    ]
    for usage, expected in cases:
        with subtests.test(usage=usage, expected=expected):
            free = replace(ENDPOINT, facts=Facts())
            assert answer(ended(usage=usage), endpoint=free).usage == expected


def test_an_answer_of_endless_items_is_refused() -> None:
    decoder = ResponsesDecoder(ENDPOINT)
    kinds = ("output_text", "reasoning_text")
    events = [event(f"{kinds[n % 2]}.delta", delta="x", item_id=f"i{n}") for n in range(10_001)]
    for each in events[:-1]:
        decoder.feed(ServerEvent("", json.dumps(each)))
    with pytest.raises(ModelError, match="more than 10,000 parts"):
        decoder.feed(ServerEvent("", json.dumps(events[-1])))


def test_an_answer_of_endless_ids_is_refused() -> None:
    decoder = ResponsesDecoder(ENDPOINT)
    events = [event("output_text.delta", delta="x", item_id=f"i{n}") for n in range(20_002)]
    for each in events[:-1]:
        decoder.feed(ServerEvent("", json.dumps(each)))
    with pytest.raises(ModelError, match="too many items"):
        decoder.feed(ServerEvent("", json.dumps(events[-1])))


SMALL = st.sampled_from(["", "a", "{", "}", '{"x":1}', "read", "message", "\ud800"]) | st.none()
JSON = st.recursive(
    SMALL | st.integers(-1, 3) | st.booleans(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(SMALL.map(str), inner, max_size=2),
    max_leaves=4,
)
FIELDS = (
    *("type", "item", "item_id", "output_index", "delta", "response", "output", "content"),
    *("call_id", "name", "arguments", "summary", "error", "usage", "status", "id"),
)


@st.composite
def mutated(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A valid stream with a few things changed, dropped, repeated and out of order."""

    def change(value: Any) -> Any:
        if draw(st.integers(0, 19)) == 0:
            return draw(JSON)
        if isinstance(value, dict):
            changed = {key: change(item) for key, item in value.items()}
            if draw(st.integers(0, 19)) == 0:
                changed[draw(st.sampled_from(FIELDS))] = draw(JSON)
            return changed
        return [change(item) for item in value] if isinstance(value, list) else value

    events: list[dict[str, Any]] = draw(st.sampled_from(list(SCRIPTS.values())))
    order = draw(st.lists(st.integers(0, len(events) - 1), max_size=8))
    for place in order:
        events = [*events[:place], change(events[place]), *events[place:]]
    return events


@given(mutated())
def test_whatever_comes_there_is_an_answer_or_a_model_error(events: list[Any]) -> None:
    decoder = ResponsesWire(ENDPOINT).decoder()
    try:
        for each in events:
            decoder.feed(ServerEvent("", json.dumps(each)))
            decoder.partial()
        found = decoder.finish()
    except ModelError as error:
        found = error.partial or pytest.fail("an error without what had come")
    body = ResponsesWire(ENDPOINT).write(Request("", [found]))
    assert json.loads(body)["stream"] is True


def test_arguments_that_are_nested_without_end_are_malformed() -> None:
    nested = '{"a": ' * 800 + '"\\ud800"' + "}" * 800
    done = json.dumps(event("output_item.done", output_index=0, item=call("#")))
    decoder = ResponsesDecoder(ENDPOINT)
    with pytest.raises(ModelError, match="deep"):
        decoder.feed(ServerEvent("", done.replace('"#"', nested)))
    assert decoder.partial().calls == ()
