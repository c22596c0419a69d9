"""Requests to Google's Generative Language API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace
from tests.sdks import SDKS
from tests.tables import table

from clawkit.config.modelref import ModelRef
from clawkit.config.sections.models import Compat
from clawkit.content import (
    Assistant,
    Image,
    Message,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)
from clawkit.models.protocols import Api, Endpoint, Facts, ModelError, Request, ToolSpec
from clawkit.models.wire.google import SKIP_SIGNATURE, GoogleWire
from clawkit.models.wire.request import BEGINNING, NO_IMAGE

API: Api = "google-generative-ai"
BASE = "https://generativelanguage.googleapis.com/v1beta"
FACTS = Facts(context_window=1_000_000, max_tokens=65_536, images=True, reasoning=True)
SECOND, THIRD = "google/gemini-2.5-flash", "google/gemini-3-flash-preview"
TOOLS = (
    ToolSpec("ls", "List.", {"type": "object", "properties": {}}),
    ToolSpec("read", "Read.", {"type": "object", "properties": {"path": {"type": "string"}}}),
)
READ_RESULT = {"name": "read", "response": {"output": "A"}, "id": "fc_1"}
IMAGE = Image("aGk=", "image/png")
PNG = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}


def endpoint(model: str = "gemini-2.5-flash", **fields: Any) -> Endpoint:
    return replace(Endpoint(ModelRef("google", model), API, BASE, facts=FACTS), **fields)


def said(text: str) -> User:
    return User((Text(text),))


def request(*messages: Message, **fields: Any) -> Request:
    return Request("Be good.", messages or (said("hi"),), **{"tools": TOOLS} | fields)


def write(to: Endpoint, asking: Request) -> dict[str, Any]:
    body = GoogleWire(to).write(asking)
    return json.loads(body)  # type: ignore[no-any-return]


def contents_of(to: Endpoint, *messages: Message) -> list[tuple[str, list[dict[str, Any]]]]:
    found = write(to, request(*messages))["contents"]
    return [(content["role"], content["parts"]) for content in found]


def history(model: str, api: str = API) -> list[Message]:
    return [
        Summary("Earlier."),
        User((Text("Look at this"), Image("aGk=", "image/png"))),
        Assistant(
            (
                Thinking("Hm.", "c2lnMQ=="),
                Thinking("only for people"),
                Text("I look.", "c2lnMg=="),
                ToolCall("fc_1", "read", {"path": "a"}, "c2lnMw=="),
                ToolCall("gc_2", "ls", "nonsense"),
            ),
            "tool_calls",
            model=model,
            api=api,
        ),
        ToolResult("fc_1", "read", (Text("A"), Image("aGk=", "image/png"))),
        ToolResult("gc_2", "ls", (), is_error=True),
        said("And now?"),
    ]


def test_a_whole_request() -> None:
    assert write(endpoint(), request(*history(SECOND))) == {
        "systemInstruction": {"parts": [{"text": "Be good."}]},
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "ls", "description": "List."},
                    {"name": "read", "description": "Read.", "parameters": TOOLS[1].schema},
                ]
            }
        ],
        "generationConfig": {"thinkingConfig": {"thinkingBudget": 0}, "maxOutputTokens": 65_536},
        "contents": [
            {
                "role": "user",
                "parts": [
                    {"text": "The conversation before this was summarised:\n\nEarlier."},
                    {"text": "Look at this"},
                    PNG,
                ],
            },
            {
                "role": "model",
                "parts": [
                    {"text": "Hm.", "thought": True, "thoughtSignature": "c2lnMQ=="},
                    {"text": "I look.", "thoughtSignature": "c2lnMg=="},
                    {
                        "functionCall": {"name": "read", "args": {"path": "a"}, "id": "fc_1"},
                        "thoughtSignature": "c2lnMw==",
                    },
                    {"functionCall": {"name": "ls", "args": {"unreadable": "nonsense"}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": READ_RESULT},
                    {"functionResponse": {"name": "ls", "response": {"error": "(no output)"}}},
                    PNG,
                    {"text": "And now?"},
                ],
            },
        ],
    }


def test_the_third_generation_gets_images_inside_results_and_every_id() -> None:
    found = contents_of(endpoint("gemini-3-flash-preview"), *history(THIRD))
    assert found[2][1] == [
        {"functionResponse": READ_RESULT | {"parts": [PNG]}},
        {"functionResponse": {"name": "ls", "response": {"error": "(no output)"}, "id": "gc_2"}},
        {"text": "And now?"},
    ]
    assert [part.get("functionCall", {}).get("id") for part in found[1][1]][-2:] == ["fc_1", "gc_2"]
    assert [part.get("thoughtSignature") for part in found[1][1]] == [
        "c2lnMQ==",
        "c2lnMg==",
        "c2lnMw==",
        None,
    ]


def test_signatures_go_to_no_other_model(subtests: pytest.Subtests) -> None:
    other_cases: list[Any] = [
        ("anthropic/claude", "anthropic-messages"),
        ("google/gemini-2.5-pro", API),
    ]
    cases: list[Any] = [
        ("gemini-2.5-flash", None),
        ("gemini-2.0-flash", None),
        ("gemini-3-flash-preview", SKIP_SIGNATURE),
        ("gemini-3.1-pro-preview", SKIP_SIGNATURE),
        ("gemini-4-pro", SKIP_SIGNATURE),
        ("gemini-flash-latest", SKIP_SIGNATURE),
        ("gemma-3-27b-it", None),
    ]
    for other, api in other_cases:
        for model, signature in cases:
            with subtests.test(model=model, signature=signature, other=other, api=api):
                found = contents_of(endpoint(model), *history(other, api))
                parts = found[1][1]
                assert [part.get("thoughtSignature") for part in parts] == [None, signature, None]
                assert parts[0] == {"text": "I look."}
                assert ("id" in parts[1]["functionCall"]) is bool(signature)
                assert ("id" in found[2][1][0]["functionResponse"]) is bool(signature)


def test_a_call_that_lost_its_signature_gets_the_one_that_skips_the_check() -> None:
    calls = ToolCall("a", "ls"), ToolCall("b", "ls")
    answer = Assistant(calls, "tool_calls", model=THIRD, api=API)
    results = ToolResult("a", "ls"), ToolResult("b", "ls")
    found = contents_of(endpoint("gemini-3-flash-preview"), said("x"), answer, *results)
    signatures = [part.get("thoughtSignature") for part in found[1][1]]
    assert signatures == [SKIP_SIGNATURE, None]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", [SECOND, THIRD, "google/gemini-2.0-flash"])
@pytest.mark.parametrize("level", ["off", "minimal", "high"])
@SDKS
def test_the_official_types_take_what_is_written(model: str, level: Any) -> None:
    from google.genai import types

    to = endpoint(model.partition("/")[2])
    params = {"temperature": 0.5, "top_p": 0.9, "stopSequences": ["x"]}
    body = write(to, request(*history(model), thinking=level, params=params))
    for content in body["contents"]:
        types.Content.model_validate(content, extra="forbid")
    types.Content.model_validate(body["systemInstruction"], extra="forbid")
    types.GenerationConfig.model_validate(body["generationConfig"], extra="forbid")
    for tool in body["tools"]:
        types.Tool.model_validate(tool, extra="forbid")
    known = {"contents", "systemInstruction", "generationConfig", "tools"}
    assert set(body) == known


@table(
    ("model", "path"),
    [
        ("gemini-2.5-flash", "/models/gemini-2.5-flash:streamGenerateContent?alt=sse"),
        ("models/gemini-2.5-flash", "/models/gemini-2.5-flash:streamGenerateContent?alt=sse"),
        ("a/b c?d#ü:e", "/models/a/b%20c%3Fd%23%C3%BC%3Ae:streamGenerateContent?alt=sse"),
    ],
)
def test_the_model_is_part_of_the_address(model: str, path: str) -> None:
    wire = GoogleWire(endpoint(model))
    assert wire.path == path
    assert wire.headers == {}


def test_roles_alternate_and_nothing_is_empty(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ([], [("user", [{"text": BEGINNING}])]),
        ([said(" ")], [("user", [{"text": BEGINNING}])]),
        ([said("a"), said("b")], [("user", [{"text": "a"}, {"text": "b"}])]),
        (
            [Assistant((Text("x"),)), Assistant((Text("y"),))],
            [("user", [{"text": BEGINNING}]), ("model", [{"text": "x"}, {"text": "y"}])],
        ),
        (
            [said("a"), Assistant((Thinking("t"), Text(" "))), said("b")],
            [("user", [{"text": "a"}, {"text": "b"}])],
        ),
    ]
    for messages, expected in cases:
        with subtests.test(messages=messages, expected=expected):
            body = write(endpoint(), Request(" ", messages))
            assert [(each["role"], each["parts"]) for each in body["contents"]] == expected
            assert not {"systemInstruction", "tools"} & set(body)


def test_images_of_results(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("gemini-2.5-flash", (IMAGE,), True, "(an image, which follows)", 0, 1),
        ("gemini-3-pro", (IMAGE,), True, "(an image)", 1, 0),
        ("gemini-3-pro", (Text("a"), Image("", "image/png")), True, f"a\n{NO_IMAGE}", 0, 0),
        ("gemini-2.5-flash", (Text("a"), IMAGE), False, f"a\n{NO_IMAGE}", 0, 0),
        ("gemini-3-pro", (Text("a"), Text("b")), True, "a\nb", 0, 0),
        ("gemini-3-pro", (Text("a"), IMAGE, Text("b")), True, "a\nb", 1, 0),
    ]
    for model, content, images, text, inside, after in cases:
        with subtests.test(
            model=model, content=content, images=images, text=text, inside=inside, after=after
        ):
            to = endpoint(model, facts=replace(FACTS, images=images))
            call = Assistant((ToolCall("1", "ls"),), "tool_calls")
            found = contents_of(to, said("x"), call, ToolResult("1", "ls", content))
            function, *rest = found[2][1]
            assert function["functionResponse"]["response"] == {"output": text}
            assert len(function["functionResponse"].get("parts", ())) == inside
            assert rest == [PNG] * after


def test_a_model_without_tools_gets_calls_and_results_as_text() -> None:
    to = endpoint(compat=Compat(supports_tools=False))
    params = {"toolConfig": {"functionCallingConfig": {"mode": "AUTO"}}}
    body = write(to, request(*history(SECOND), params=params))
    assert not {"tools", "toolConfig"} & set(body)
    parts = [part for content in body["contents"] for part in content["parts"]]
    assert not any("functionCall" in part or "functionResponse" in part for part in parts)
    texts = [part.get("text") for part in parts]
    assert any('[called read with {"path":"a"}]' in (text or "") for text in texts)
    assert f"[result of read]\nA\n{NO_IMAGE}" in texts
    assert write(endpoint(), request(params=params))["toolConfig"] == params["toolConfig"]


def test_thinking_as_text_where_a_service_wants_it() -> None:
    to = endpoint(compat=Compat(requires_thinking_as_text=True))
    parts = contents_of(to, *history("other/model"))[1][1]
    assert parts[:2] == [{"text": "Hm."}, {"text": "only for people"}]


def test_keywords_that_a_service_does_not_know_are_left_out() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "string", "enum": ["a", "b"]}}}
    to = endpoint(compat=Compat(unsupported_tool_schema_keywords=["enum"]))
    body = write(to, request(tools=(ToolSpec("x", "X.", schema),)))
    (tool,) = body["tools"][0]["functionDeclarations"]
    assert tool["parameters"]["properties"] == {"n": {"type": "string"}}


def test_a_tool_that_cannot_be_declared_is_an_error_that_names_it() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "https://x.example/schema"}}}
    with pytest.raises(ModelError, match="odd cannot be offered to google/gemini") as caught:
        write(endpoint(), request(tools=(ToolSpec("odd", "Odd.", schema),)))
    assert caught.value.kind == "invalid"


# Thinking


def test_each_generation_is_told_in_its_own_words(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("gemini-2.5-flash", "off", {"thinkingBudget": 0}),
        ("gemini-2.5-flash", "minimal", {"thinkingBudget": 1_024, "includeThoughts": True}),
        ("gemini-2.5-flash", "low", {"thinkingBudget": 4_096, "includeThoughts": True}),
        ("gemini-2.5-flash", "medium", {"thinkingBudget": 8_192, "includeThoughts": True}),
        ("gemini-2.5-flash", "high", {"thinkingBudget": 16_384, "includeThoughts": True}),
        ("gemini-2.5-flash", "xhigh", {"thinkingBudget": 24_576, "includeThoughts": True}),
        ("gemini-2.5-flash", "max", {"thinkingBudget": 24_576, "includeThoughts": True}),
        ("gemini-2.5-pro", "off", {"thinkingBudget": 128}),
        ("gemini-2.5-pro", "max", {"thinkingBudget": 32_768, "includeThoughts": True}),
        ("gemini-2.5-flash-image", "off", None),
        ("gemini-2.0-flash", "off", None),
        ("gemini-3-flash-preview", "off", {"thinkingLevel": "MINIMAL"}),
        ("gemini-3-flash-preview", "medium", {"thinkingLevel": "MEDIUM", "includeThoughts": True}),
        ("gemini-3-pro-preview", "off", {"thinkingLevel": "LOW"}),
        ("gemini-3-pro-preview", "medium", {"thinkingLevel": "HIGH", "includeThoughts": True}),
        ("gemini-3.1-pro-preview", "medium", {"thinkingLevel": "MEDIUM", "includeThoughts": True}),
        ("gemini-3.1-pro-preview", "max", {"thinkingLevel": "HIGH", "includeThoughts": True}),
        ("gemini-pro-latest", "low", {"thinkingLevel": "LOW", "includeThoughts": True}),
    ]
    for model, level, config in cases:
        with subtests.test(model=model, level=level, config=config):
            body = write(endpoint(model), request(thinking=level))
            assert body["generationConfig"].get("thinkingConfig") == config


def test_the_words_of_the_configuration_win(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ({"high": 999}, {"thinkingBudget": 999, "includeThoughts": True}),
        ({"high": -1}, {"thinkingBudget": -1, "includeThoughts": True}),
        ({"high": "low"}, {"thinkingLevel": "LOW", "includeThoughts": True}),
        ({"high": {"thinkingBudget": 7}}, {"thinkingBudget": 7}),
        ({"high": None}, {"thinkingBudget": 0}),
        ({"high": 0}, {"thinkingBudget": 0}),
        ({"low": None}, {"thinkingBudget": 16_384, "includeThoughts": True}),
    ]
    for levels, config in cases:
        with subtests.test(levels=levels, config=config):
            body = write(endpoint(thinking_levels=levels), request(thinking="high"))
            assert body["generationConfig"]["thinkingConfig"] == config


def test_the_words_of_a_service_for_levels() -> None:
    to = endpoint("gemini-3-pro", compat=Compat(reasoning_effort_map={"low": "minimal"}))
    config = write(to, request(thinking="low"))["generationConfig"]["thinkingConfig"]
    assert config["thinkingLevel"] == "MINIMAL"


def test_a_model_that_cannot_think_is_not_asked_to() -> None:
    to = endpoint("gemma-3-27b-it", facts=replace(FACTS, reasoning=False))
    assert "thinkingConfig" not in write(to, request(thinking="high"))["generationConfig"]


# Parameters


def test_parameters_stand_where_they_belong() -> None:
    own = {"temperature": 0.1, "top_p": 0.5, "safetySettings": [], "fastMode": True}
    more = {
        "temperature": 0.2,
        "topK": 3,
        "max_tokens": 77,
        "generationConfig": {"seed": 1},
        "labels": {"a": "b"},
        "contents": [],
        "cacheRetention": "long",
    }
    body = write(endpoint("gemini-2.0-flash", params=own), request(params=more))
    assert body["generationConfig"] == {
        "temperature": 0.2,
        "topP": 0.5,
        "topK": 3,
        "seed": 1,
        "maxOutputTokens": 77,
    }
    assert body["safetySettings"] == []
    assert body["labels"] == {"a": "b"}
    assert body["contents"]
    assert not {"fastMode", "cacheRetention", "temperature"} & set(body)


def test_thinking_in_the_words_of_the_api(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ({"thinkingConfig": {"thinkingBudget": 5}}, {"thinkingBudget": 5}),
        ({"generationConfig": {"thinkingConfig": {"thinkingBudget": 5}}}, {"thinkingBudget": 5}),
        ({"thinkingConfig": None}, None),
        ({"extra_body": {"generationConfig": None}}, None),
    ]
    for params, expected in cases:
        with subtests.test(params=params, expected=expected):
            body = write(endpoint(params=params), request(thinking="high"))
            assert body["generationConfig"].get("thinkingConfig") == expected
            assert body["generationConfig"]["maxOutputTokens"] == 65_536


def test_no_temperature_where_it_is_not_taken() -> None:
    to = endpoint(compat=Compat(supports_temperature=False), params={"temperature": 1})
    assert "temperature" not in write(to, request())["generationConfig"]


def test_how_long_an_answer_may_get(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (None, "off", {}, FACTS, 65_536),
        (None, "high", {}, FACTS, 65_536),
        (1_000, "off", {}, FACTS, 1_000),
        (1_000, "low", {}, FACTS, 5_096),
        (1_000, "high", {}, replace(FACTS, max_tokens=8_000), 8_000),
        (None, "off", {"maxTokens": 500}, FACTS, 500),
        (None, "off", {"maxOutputTokens": 600}, FACTS, 600),
        (700, "off", {"maxOutputTokens": 600}, FACTS, 700),
        (None, "off", {}, replace(FACTS, context_tokens=9_000), 9_000),
    ]
    for asked_for, level, params, facts, expected in cases:
        with subtests.test(
            asked_for=asked_for, level=level, params=params, facts=facts, expected=expected
        ):
            asking = request(max_tokens=asked_for, thinking=level)
            body = write(endpoint(facts=facts, params=params), asking)
            assert body["generationConfig"]["maxOutputTokens"] == expected


class Counted(tuple[Any, ...]):
    """Content that knows how often it was read."""

    reads = 0

    def __iter__(self) -> Any:
        self.reads += 1
        return super().__iter__()


def test_a_message_is_written_once_however_often_it_is_sent() -> None:
    contents = [Counted((Text(f"{number}"),)) for number in range(40)]
    messages: list[Message] = [User(content) for content in contents]
    wire = GoogleWire(endpoint())
    first = wire.write(request(*messages))
    reads = [content.reads for content in contents]
    assert all(reads)
    assert wire.write(request(*messages)) == first
    assert wire.write(request(*messages, said("more"))) != first
    assert [content.reads for content in contents] == reads


def test_a_conversation_that_goes_on_is_written_like_one_that_was_there() -> None:
    messages = [*history(SECOND), *history(THIRD)]
    wire = GoogleWire(endpoint())
    for upto in range(len(messages) + 1):
        part = Request("s", messages[:upto], TOOLS)
        assert wire.write(part) == GoogleWire(endpoint()).write(part)


def test_lone_halves_of_characters_do_not_stop_a_request() -> None:
    bad = "a\ud83d"
    call = Assistant((Text(bad), ToolCall(bad, bad, {bad: [bad]})), "tool_calls")
    asking = Request(bad, [said(bad), call, ToolResult(bad, bad, (Text(bad),))], TOOLS)
    body = write(endpoint("gemini-3-pro"), asking)
    assert body["systemInstruction"] == {"parts": [{"text": "a\ufffd"}]}
