"""Answers through Google's Generative Language API."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.wire.served import damaged, events_of, read, serving, sse
from tests.sdks import SDKS

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
from clawkit.models.wire.google import MADE, GoogleDecoder, GoogleWire
from clawkit.net.sse import ServerEvent

ENDPOINT = Endpoint(
    ModelRef("google", "gemini-2.5-pro"),
    "google-generative-ai",
    "https://generativelanguage.googleapis.com/v1beta",
    facts=Facts(cost=Cost(input=1, output=10, cache_read=0.1)),
)
USAGE = {
    "promptTokenCount": 120,
    "cachedContentTokenCount": 100,
    "candidatesTokenCount": 30,
    "thoughtsTokenCount": 12,
    "totalTokenCount": 162,
}
SIGNATURE = base64.b64encode(b"signed").decode()


def chunk(*parts: dict[str, Any], reason: str = "", **fields: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if reason:
        candidate["finishReason"] = reason
    return {"candidates": [candidate], "modelVersion": "gemini-2.5-pro", **fields}


def called(name: str, args: Any = None, *, signature: str = "", **fields: Any) -> dict[str, Any]:
    part: dict[str, Any] = {"functionCall": {"name": name, **fields}}
    if args is not None:
        part["functionCall"]["args"] = args
    return part | ({"thoughtSignature": signature} if signature else {})


FULL = [
    chunk({"text": "Let me ", "thought": True}),
    chunk({"text": "see.", "thought": True}),
    chunk({"text": "I look "}),
    chunk({"text": "at 😀 it."}, usageMetadata={"promptTokenCount": 120}),
    chunk(
        called("read", {"path": "a.txt", "deep": [{"x": None}]}, signature=SIGNATURE, id="fc_1"),
        called("ls", {}, id="fc_2"),
    ),
    chunk(reason="STOP", usageMetadata=USAGE),
]


def decode(*events: dict[str, Any]) -> Assistant:
    return read(GoogleDecoder(ENDPOINT), sse(events, named=False))[0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "events",
    [
        FULL,
        [chunk({"text": "Hello"}), chunk({"text": "!"}, reason="STOP", usageMetadata=USAGE)],
        [chunk({"text": "Cut"}, reason="MAX_TOKENS", usageMetadata=USAGE)],
        [chunk(called("now", id="a"), called("ls", {"a": 1.5}, id="b"), reason="STOP")],
        [chunk({"text": "So"}), chunk(reason="SAFETY", usageMetadata=USAGE)],
        [{"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": USAGE}],
    ],
    ids=["everything", "text", "length", "calls", "safety", "blocked"],
)
@SDKS
async def test_the_official_client_reads_the_same(events: list[dict[str, Any]]) -> None:
    from google import genai
    from google.genai import types

    stream = sse(events, named=False)
    parts: list[types.Part] = []
    reason, blocked, used = "", False, types.GenerateContentResponseUsageMetadata()
    async with serving(stream) as (address, bodies):
        client = genai.Client(
            api_key="k", http_options=types.HttpOptions(base_url=address, timeout=10_000)
        )
        async with client.aio as official:
            answers = await official.models.generate_content_stream(
                model="gemini-2.5-pro", contents="hi"
            )
            async for answer in answers:
                used = answer.usage_metadata or used
                blocked = blocked or answer.prompt_feedback is not None
                for candidate in answer.candidates or ():
                    reason = candidate.finish_reason.value if candidate.finish_reason else reason
                    parts += (candidate.content and candidate.content.parts) or ()
        client.close()
        assert bodies
    found, deltas = read(GoogleWire(ENDPOINT).decoder(), stream)
    thought = "".join(part.text or "" for part in parts if part.thought)
    text = "".join(part.text or "" for part in parts if not part.thought)
    assert found.text == text
    assert "".join(part.text for part in found.content if isinstance(part, Thinking)) == thought
    assert [(call.id, call.name, call.arguments) for call in found.calls] == [
        (part.function_call.id, part.function_call.name, part.function_call.args or {})
        for part in parts
        if part.function_call
    ]
    signatures = [
        base64.b64encode(part.thought_signature or b"").decode()
        for part in parts
        if part.function_call
    ]
    assert [call.signature for call in found.calls] == signatures
    cached = used.cached_content_token_count or 0
    assert found.usage.input == (used.prompt_token_count or 0) - cached
    assert found.usage.cache_read == cached
    output = (used.candidates_token_count or 0) + (used.thoughts_token_count or 0)
    assert found.usage.output == output
    stops = {"MAX_TOKENS": "length", "SAFETY": "refusal"}
    expected = "tool_calls" if found.calls else stops.get(reason, "stop")
    assert found.stop == ("refusal" if blocked else expected)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == text


def test_everything_is_told_while_it_comes() -> None:
    stream = sse(FULL, named=False) + b"data: [DONE]\n\n"
    answer, deltas = read(GoogleDecoder(ENDPOINT), stream)
    assert deltas == [
        ThinkingDelta("Let me "),
        ThinkingDelta("see."),
        TextDelta("I look "),
        TextDelta("at 😀 it."),
        CallStarted(0, "fc_1", "read"),
        CallDelta(0, '{"path":"a.txt","deep":[{"x":null}]}'),
        CallStarted(1, "fc_2", "ls"),
        CallDelta(1, "{}"),
    ]
    assert answer.content == (
        Thinking("Let me see."),
        Text("I look at 😀 it."),
        ToolCall("fc_1", "read", {"path": "a.txt", "deep": [{"x": None}]}, SIGNATURE),
        ToolCall("fc_2", "ls", {}),
    )
    assert answer.model == "google/gemini-2.5-pro"
    assert answer.api == "google-generative-ai"
    assert answer.usage == Usage(20, 42, 100, 0, answer.usage.cost)
    assert answer.usage.cost == pytest.approx(450e-6)


def test_why_an_answer_ended(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("STOP", [{"text": "x"}], "stop"),
        ("STOP", [], "stop"),
        ("STOP", [called("ls")], "tool_calls"),
        ("MAX_TOKENS", [{"text": "x"}], "length"),
        ("MAX_TOKENS", [], "length"),
        ("MAX_TOKENS", [called("ls")], "length"),
        ("OTHER", [{"text": "x"}], "stop"),
        ("LATER_INVENTION", [{"text": "x"}], "stop"),
        ("SAFETY", [{"text": "x"}], "refusal"),
        ("RECITATION", [], "refusal"),
        ("BLOCKLIST", [], "refusal"),
        ("PROHIBITED_CONTENT", [called("ls")], "refusal"),
        ("SPII", [], "refusal"),
        ("UNEXPECTED_TOOL_CALL", [called("ls")], "tool_calls"),
    ]
    for reason, parts, stop in cases:
        with subtests.test(reason=reason, parts=parts, stop=stop):
            answer = decode(chunk(*parts), chunk(reason=reason))
            assert answer.stop == stop
            if stop == "refusal":
                assert reason in answer.error
                assert not answer.calls


def test_an_answer_that_failed_is_malformed_so_that_it_is_tried_again(
    subtests: pytest.Subtests,
) -> None:
    cases: list[Any] = [
        ("MALFORMED_FUNCTION_CALL", []),
        ("MALFORMED_FUNCTION_CALL", [{"text": "I call"}]),
        ("MALFORMED_RESPONSE", []),
        ("UNEXPECTED_TOOL_CALL", []),
        ("TOO_MANY_TOOL_CALLS", []),
        ("MISSING_THOUGHT_SIGNATURE", []),
        ("OTHER", []),
        ("LATER_INVENTION", []),
    ]
    for reason, parts in cases:
        with subtests.test(reason=reason, parts=parts):
            last = chunk(reason=reason)
            last["candidates"][0]["finishMessage"] = "print(default_api.x"
            with pytest.raises(ModelError, match=r"default_api\.x") as caught:
                decode(chunk(*parts), last)
            assert caught.value.kind == "malformed"
            assert caught.value.partial is not None
            assert len(caught.value.partial.content) == len(parts)


def test_a_request_that_was_blocked_is_refused() -> None:
    answer = decode({"promptFeedback": {"blockReason": "SAFETY"}})
    assert (answer.stop, answer.content) == ("refusal", ())
    assert "SAFETY" in answer.error


def test_an_error_inside_the_stream_says_what_it_is(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (429, "RESOURCE_EXHAUSTED", "Slow down", "rate_limit"),
        (503, "UNAVAILABLE", "The model is overloaded.", "overloaded"),
        (500, "INTERNAL", "An internal error has occurred", "server"),
        (400, "INVALID_ARGUMENT", "API key not valid.", "auth"),
        (403, "PERMISSION_DENIED", "No", "auth"),
        (404, "NOT_FOUND", "models/x is not found", "not_found"),
        (400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum", "overflow"),
        (400, "INVALID_ARGUMENT", "Request contains an invalid argument.", "invalid"),
        (504, "DEADLINE_EXCEEDED", "Too late", "timeout"),
    ]
    for code, status, message, kind in cases:
        with subtests.test(code=code, status=status, message=message, kind=kind):
            decoder = GoogleDecoder(ENDPOINT)
            decoder.feed(ServerEvent("", json.dumps(chunk({"text": "So far"}))))
            error = {"error": {"code": code, "status": status, "message": message}}
            with pytest.raises(ModelError) as caught:
                decoder.feed(ServerEvent("", json.dumps(error)))
            assert caught.value.kind == kind
            assert caught.value.partial is not None
            assert caught.value.partial.content == (Text("So far"),)


def test_a_stream_that_ends_early_is_cut(subtests: pytest.Subtests) -> None:
    for upto in range(len(FULL)):
        with subtests.test(upto=upto):
            decoder = GoogleDecoder(ENDPOINT)
            for event in events_of(sse(FULL[:upto], named=False)):
                decoder.feed(event)
            with pytest.raises(ModelError) as caught:
                decoder.finish()
            assert caught.value.kind == "cut"
            partial = caught.value.partial
            assert partial == decoder.partial()
            assert partial is not None
            texts = ["", "", "", "I look ", "I look at 😀 it.", "I look at 😀 it."]
            assert partial.text == texts[upto]
            assert len(partial.calls) == (2 if upto == 5 else 0)
            assert any(isinstance(part, Thinking) for part in partial.content) is (upto >= 3)


def test_signatures_stay_with_their_part(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (
            [
                {"text": "a", "thought": True, "thoughtSignature": "s"},
                {"text": "b", "thought": True},
            ],
            (Thinking("a", "s"), Thinking("b")),
        ),
        ([{"text": "a"}, {"text": "b", "thoughtSignature": "s"}], (Text("ab", "s"),)),
        ([{"text": "a"}, {"text": "", "thoughtSignature": "s"}], (Text("a", "s"),)),
        ([{"text": "", "thoughtSignature": "s"}], (Text("", "s"),)),
        (
            [{"text": "a", "thoughtSignature": "s"}, {"text": "b"}],
            (Text("a", "s"), Text("b")),
        ),
        ([{"text": "", "thought": True, "thoughtSignature": "s"}], (Thinking("", "s", True),)),
        ([{"text": ""}, {"text": "a"}], (Text("a"),)),
        (
            [{"text": "a"}, called("ls", id="c"), {"text": "b"}],
            (Text("a"), ToolCall("c", "ls"), Text("b")),
        ),
        ([{"executableCode": {"code": "1"}}, {"inlineData": {}}, {"text": "a"}], (Text("a"),)),
        ([None, 3, "x", {}, {"text": 5}, {"functionCall": "ls"}, {"text": "a"}], (Text("a"),)),
    ]
    for parts, content in cases:
        with subtests.test(parts=parts, content=content):
            assert decode(chunk(*parts), chunk(reason="STOP")).content == content


def test_arguments_in_every_form(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (None, {}),
        ({}, {}),
        ({"a": [1, {"b": "ü"}]}, {"a": [1, {"b": "ü"}]}),
        ('{"a": 1}', {"a": 1}),
        ("nonsense", "nonsense"),
        ([1], "[1]"),
        ({"a\ud800": "\ud800"}, {"a\ufffd": "\ufffd"}),
    ]
    for sent, arguments in cases:
        with subtests.test(sent=sent, arguments=arguments):
            (call,) = decode(chunk(called("x", sent), reason="STOP")).calls
            assert call.arguments == arguments


def test_arguments_that_are_nested_without_end_are_malformed() -> None:
    nested = '{"a": ' * 800 + '"\\ud800"' + "}" * 800
    event = json.dumps(chunk(called("x", "#"))).replace('"#"', nested)
    decoder = GoogleDecoder(ENDPOINT)
    with pytest.raises(ModelError, match="deep"):
        decoder.feed(ServerEvent("", event))


def test_every_call_has_an_id_of_its_own() -> None:
    parts = [called("ls", id="a"), called("ls", id="a"), called("ls"), called("ls", id=7)]
    calls = decode(chunk(*parts, reason="STOP")).calls
    assert len({call.id for call in calls}) == 4
    assert [call.id.startswith(MADE) for call in calls] == [False, False, True, True]


def test_the_last_numbers_of_usage_count_and_strange_ones_are_none() -> None:
    events = [chunk({"text": "x"}, usageMetadata=USAGE), chunk(reason="STOP", usageMetadata=[])]
    assert decode(*events).usage.output == 42
    strange = {"promptTokenCount": 3, "cachedContentTokenCount": 5, "candidatesTokenCount": "1"}
    used = decode(chunk({"text": "x"}, reason="STOP", usageMetadata=strange)).usage
    assert (used.input, used.cache_read, used.output) == (0, 5, 0)


def test_what_is_not_an_event_is_malformed(subtests: pytest.Subtests) -> None:
    cases: list[Any] = ["{", "[1]", "null", "nonsense", "[" * 100_000]
    for data in cases:
        with subtests.test(data=data):
            with pytest.raises(ModelError) as caught:
                GoogleDecoder(ENDPOINT).feed(ServerEvent("", data))
            assert caught.value.kind == "malformed"


@pytest.mark.parametrize(
    "part",
    [{"text": "x" * (2 * 1024 * 1024)}, {"text": "", "thoughtSignature": "x" * (2 * 1024 * 1024)}],
)
def test_an_answer_without_end_is_refused(part: dict[str, Any]) -> None:
    decoder = GoogleDecoder(ENDPOINT)
    event = ServerEvent("", json.dumps(chunk(part)))
    for _ in range(4):
        decoder.feed(event)
    with pytest.raises(ModelError, match="longer"):
        decoder.feed(event)


@given(data=st.data())
def test_no_stream_raises_anything_but_a_model_error(data: st.DataObject) -> None:
    events = data.draw(damaged(FULL))
    decoder = GoogleDecoder(ENDPOINT)
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
