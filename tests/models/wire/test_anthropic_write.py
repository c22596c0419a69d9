"""Requests to the Anthropic Messages API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
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
from clawkit.models.protocols import Api, Endpoint, Facts, Request, ToolSpec
from clawkit.models.wire.anthropic import AnthropicWire, safe_id
from clawkit.models.wire.request import BEGINNING, NO_IMAGE

API: Api = "anthropic-messages"
FACTS = Facts(context_window=200_000, max_tokens=64_000, images=True, reasoning=True)
ENDPOINT = Endpoint(
    ModelRef("anthropic", "claude-sonnet-4-5"), API, "https://api.anthropic.com", facts=FACTS
)
MODEL = "anthropic/claude-sonnet-4-5"
TOOLS = (
    ToolSpec("ls", "List.", {"type": "object", "properties": {}}),
    ToolSpec("read", "Read.", {"type": "object", "properties": {"path": {"type": "string"}}}),
)
MARK = {"type": "ephemeral"}


def endpoint(model: str = "claude-sonnet-4-5", **fields: Any) -> Endpoint:
    return replace(ENDPOINT, ref=ModelRef("anthropic", model), **fields)


def said(text: str) -> User:
    return User((Text(text),))


def asked(*calls: ToolCall, text: str = "", model: str = MODEL, api: str = API) -> Assistant:
    words = (Text(text),) if text else ()
    return Assistant((*words, *calls), "tool_calls", model=model, api=api)


def result(call_id: str, text: str = "done", **fields: Any) -> ToolResult:
    return ToolResult(call_id, "ls", (Text(text),), **fields)


def request(*messages: Message, **fields: Any) -> Request:
    return Request("Be good.", messages or (said("hi"),), **{"tools": TOOLS} | fields)


def write(to: Endpoint, asking: Request) -> dict[str, Any]:
    body = AnthropicWire(to).write(asking)
    return json.loads(body)  # type: ignore[no-any-return]


def messages_of(to: Endpoint, asking: Request) -> list[tuple[str, list[dict[str, Any]]]]:
    """Roles and blocks, without cache marks."""
    found = write(to, asking)["messages"]
    for message in found:
        for block in message["content"]:
            block.pop("cache_control", None)
    return [(message["role"], message["content"]) for message in found]


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


EVERYTHING = (
    Summary("Earlier."),
    User((Text("Look at this"), Image("aGk=", "image/png"))),
    Assistant(
        (
            Thinking("Hm.", "c2ln"),
            Thinking(signature="ZW5j", hidden=True),
            Text("I look."),
            ToolCall("toolu_1", "read", {"path": "a"}),
            ToolCall("toolu_2", "ls", "nonsense"),
        ),
        "tool_calls",
        model=MODEL,
        api=API,
    ),
    ToolResult("toolu_1", "read", (Text("A"), Image("aGk=", "image/jpeg"))),
    ToolResult("toolu_2", "ls", (), is_error=True),
    said("And now?"),
)


def test_a_whole_request() -> None:
    assert write(ENDPOINT, request(*EVERYTHING)) == {
        "model": "claude-sonnet-4-5",
        "max_tokens": 64_000,
        "stream": True,
        "system": [text("Be good.") | {"cache_control": MARK}],
        "tools": [
            {"name": "ls", "description": "List.", "input_schema": TOOLS[0].schema},
            {
                "name": "read",
                "description": "Read.",
                "input_schema": TOOLS[1].schema,
                "cache_control": MARK,
            },
        ],
        "messages": [
            {
                "role": "user",
                "content": [
                    text("The conversation before this was summarised:\n\nEarlier."),
                    text("Look at this"),
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
                        "cache_control": MARK,
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                    {"type": "redacted_thinking", "data": "ZW5j"},
                    text("I look."),
                    {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}},
                    {
                        "type": "tool_use",
                        "id": "toolu_2",
                        "name": "ls",
                        "input": {"unreadable": "nonsense"},
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "content": [
                            text("A"),
                            {
                                "type": "image",
                                "source": {
                                    "type": "base64",
                                    "media_type": "image/jpeg",
                                    "data": "aGk=",
                                },
                            },
                        ],
                    },
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_2",
                        "content": [text("(no output)")],
                        "is_error": True,
                    },
                    text("And now?") | {"cache_control": MARK},
                ],
            },
        ],
    }


def look_at_all(value: Any) -> None:
    """Lists are checked only when somebody looks at what is in them."""
    if isinstance(value, dict):
        value = value.values()
    if not isinstance(value, str) and hasattr(value, "__iter__"):
        for item in value:
            look_at_all(item)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "asking",
    [
        request(*EVERYTHING, thinking="high"),
        request(tools=()),
        request(*EVERYTHING, tools=(), thinking="low"),
        request(params={"service_tier": "auto", "cacheRetention": "long"}),
    ],
)
@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-opus-4-6", "claude-sonnet-5-5"])
@SDKS
def test_the_official_types_take_what_is_written(model: str, asking: Request) -> None:
    from anthropic.types.message_create_params import MessageCreateParamsStreaming
    from pydantic import TypeAdapter, ValidationError

    adapter: TypeAdapter[Any] = TypeAdapter(MessageCreateParamsStreaming)
    body = write(endpoint(model), asking)
    body.get("thinking", {}).pop("block_binding", None)  # known to the beta types only
    look_at_all(adapter.validate_python(body, extra="forbid"))
    body["messages"][0]["content"][0]["unheard_of"] = 1
    with pytest.raises(ValidationError):
        look_at_all(adapter.validate_python(body, extra="forbid"))


def test_the_version_stands_once_in_the_address(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("https://api.anthropic.com", "/v1/messages"),
        ("https://api.minimax.io/anthropic", "/v1/messages"),
        ("https://opencode.ai/zen/v1", "/messages"),
        ("https://x.example/v1x", "/v1/messages"),
    ]
    for base_url, path in cases:
        with subtests.test(base_url=base_url, path=path):
            assert AnthropicWire(replace(ENDPOINT, base_url=base_url)).path == path


def test_headers_name_what_is_in_beta_only_where_it_is_used(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("claude-sonnet-4-5", True, "interleaved-thinking-2025-05-14"),
        ("claude-opus-4-20250514", True, "interleaved-thinking-2025-05-14"),
        ("claude-3-7-sonnet-20250219", True, None),
        ("claude-opus-4-6", True, None),
        ("claude-opus-5", True, None),
        ("claude-opus-5-5", True, "thinking-binding-controls-2026-08-01"),
        ("claude-opus-5-5", False, None),
        ("MiniMax-M2.7", False, None),
    ]
    for model, is_native, beta in cases:
        with subtests.test(model=model, is_native=is_native, beta=beta):
            headers = AnthropicWire(endpoint(model, is_native=is_native)).headers
            assert headers["anthropic-version"] == "2023-06-01"
            assert headers.get("anthropic-beta") == beta


# Messages


def test_what_the_api_refuses_is_not_sent(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ([], [("user", [text(BEGINNING)])]),
        ([said("a"), said("b")], [("user", [text("a"), text("b")])]),
        ([said(" \n")], [("user", [text(BEGINNING)])]),
        (
            [Assistant((Text("Hello "),))],
            [("user", [text(BEGINNING)]), ("assistant", [text("Hello")])],
        ),
        (
            [said("a"), Assistant((Text(" "), Text(""))), said("b")],
            [("user", [text("a"), text("b")])],
        ),
        (
            [said("a"), Assistant((Text("x "),)), said("b")],
            [("user", [text("a")]), ("assistant", [text("x ")]), ("user", [text("b")])],
        ),
        (
            [said("a"), Assistant((Text("x"), Text("y \n\n")))],
            [("user", [text("a")]), ("assistant", [text("x"), text("y")])],
        ),
        (
            [said("a"), Assistant((Text("x"), Thinking("end", "sig")), model=MODEL, api=API)],
            [("user", [text("a")]), ("assistant", [text("x")])],
        ),
    ]
    for messages, expected in cases:
        with subtests.test(messages=messages, expected=expected):
            assert messages_of(ENDPOINT, Request("", messages, TOOLS)) == expected
            assert "system" not in write(ENDPOINT, Request(" ", messages, TOOLS))


THOUGHTS = (Thinking("Hm.", "sig"), Thinking(signature="enc", hidden=True), Thinking("loose"))
SIGNED = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
HIDDEN = {"type": "redacted_thinking", "data": "enc"}
LOOSE = {"type": "thinking", "thinking": "loose", "signature": ""}


def test_thinking_goes_back_to_the_model_it_is_from(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (ENDPOINT, MODEL, API, [SIGNED, HIDDEN]),
        (ENDPOINT, "anthropic/claude-opus-4-5", API, []),
        (ENDPOINT, MODEL, "openai-completions", []),
        (replace(ENDPOINT, is_native=False), MODEL, API, [SIGNED, HIDDEN, LOOSE]),
        (
            replace(ENDPOINT, compat=Compat(requires_thinking_as_text=True)),
            "other/model",
            API,
            [text("Hm."), text("loose")],
        ),
    ]
    for to, model, api, expected in cases:
        with subtests.test(to=to, model=model, api=api, expected=expected):
            answer = Assistant((*THOUGHTS, Text("So.")), model=model, api=api)
            found = messages_of(to, request(said("a"), answer, said("b")))
            assert found[1] == ("assistant", [*expected, text("So.")])


def test_thinking_without_words_goes_back_with_its_signature() -> None:
    answer = Assistant((Thinking("", "sig"), Text("So.")), model=MODEL, api=API)
    found = messages_of(ENDPOINT, request(said("a"), answer, said("b")))
    assert found[1][1][0] == {"type": "thinking", "thinking": "", "signature": "sig"}


def test_ids_are_made_safe_and_stay_the_same(subtests: pytest.Subtests) -> None:
    cases: list[Any] = ["call|fc_1", "a" * 65, "", "ü", "call:1.2", "\ud800"]
    for given_id in cases:
        with subtests.test(given_id=given_id):
            call = ToolCall(given_id, "ls")
            found = messages_of(ENDPOINT, request(said("a"), asked(call), result(given_id)))
            sent = found[1][1][0]["id"]
            assert sent == found[2][1][0]["tool_use_id"] == safe_id(given_id)
            assert 1 <= len(sent) <= 64
            assert sent.replace("_", "").replace("-", "").isalnum()
            assert sent.isascii()
            assert sent != safe_id(given_id + "x")


def test_ids_that_come_again_later_are_told_apart() -> None:
    calls = ToolCall("call_0", "ls"), ToolCall("call_1", "ls")
    turn: list[Message] = [asked(*calls), result("call_0", "a"), result("call_1", "b")]
    again: list[Message] = [asked(*calls), result("call_1", "d"), result("call_0", "c")]
    wire = AnthropicWire(ENDPOINT)
    body = json.loads(wire.write(request(said("x"), *turn, *again)))
    blocks = [block for message in body["messages"] for block in message["content"]]
    ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert ids[:2] == ["call_0", "call_1"]
    assert len(set(ids)) == 4
    answers = {
        block["tool_use_id"]: block["content"][0]["text"]
        for block in blocks
        if block["type"] == "tool_result"
    }
    assert [answers[each] for each in ids] == ["a", "b", "c", "d"]
    assert wire.write(request(said("x"), *turn, *again)) == wire.write(
        request(said("x"), *turn, *again)
    )


def test_names_that_a_model_made_up_are_made_safe(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("read", "read"),
        ("a.b c", "a_b_c"),
        ("", "unnamed"),
        ("x" * 200, "x" * 128),
    ]
    for name, sent in cases:
        with subtests.test(name=name, sent=sent):
            found = messages_of(
                ENDPOINT, request(said("a"), asked(ToolCall("1", name)), result("1"))
            )
            assert found[1][1][0]["name"] == sent


def test_images_that_cannot_be_sent_are_mentioned(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (Image("aGk=", "image/jpg"), True, "image/jpeg"),
        (Image("aGk=", "IMAGE/WEBP"), True, "image/webp"),
        (Image("aGk=", "image/png"), False, None),
        (Image("", "image/png"), True, None),
        (Image("aGk=", "image/tiff"), True, None),
    ]
    for image, images, expected in cases:
        with subtests.test(image=image, images=images, expected=expected):
            to = replace(ENDPOINT, facts=replace(FACTS, images=images))
            ((_, (block,)),) = messages_of(to, request(User((image,))))
            if expected:
                assert block["source"]["media_type"] == expected
            else:
                assert "an image was left out" in block["text"]
            found = messages_of(
                to, request(said("a"), asked(ToolCall("1", "ls")), ToolResult("1", "ls", (image,)))
            )
            assert found[2][1][0]["content"] == [block]


@pytest.mark.parametrize(
    "asking",
    [
        request(*EVERYTHING, tools=()),
        request(*EVERYTHING),
    ],
)
def test_without_tools_calls_and_results_are_text(asking: Request) -> None:
    to = replace(ENDPOINT, compat=Compat(supports_tools=False))
    body = write(to, asking)
    assert "tools" not in body
    blocks = [block for message in body["messages"] for block in message["content"]]
    assert {block["type"] for block in blocks} == {"text", "image"}
    texts = [block.get("text") for block in blocks]
    assert any('[called read with {"path":"a"}]' in (text or "") for text in texts)
    assert f"[result of read]\nA\n{NO_IMAGE}" in texts
    assert "[error of ls]\n(no output)" in texts
    # The same where the service takes tools and is offered none.
    assert messages_of(ENDPOINT, replace(asking, tools=())) == messages_of(to, asking)


def test_keywords_that_a_service_does_not_know_are_left_out() -> None:
    schema = {
        "type": "object",
        "properties": {"format": {"type": "string", "format": "uri", "minLength": 1}},
        "additionalProperties": False,
    }
    to = replace(ENDPOINT, compat=Compat(unsupported_tool_schema_keywords=["format"]))
    (tool,) = write(to, request(tools=(ToolSpec("x", "X.", schema),)))["tools"]
    assert tool["input_schema"]["properties"] == {"format": {"type": "string", "minLength": 1}}


def test_lone_halves_of_characters_do_not_stop_a_request() -> None:
    bad = "a\ud83d"
    call = ToolCall("1", "ls", {bad: [bad]})
    asking = Request(bad, [said(bad), asked(call, text=bad), result("1", bad)], TOOLS)
    assert write(ENDPOINT, asking)["system"][0]["text"] == "a\ufffd"


# The cache


def marks(body: dict[str, Any]) -> list[tuple[int, int]]:
    """Where the marks are: the message, and the block in it."""
    found = []
    for at, message in enumerate(body["messages"]):
        for number, block in enumerate(message["content"]):
            if "cache_control" in block:
                found.append((at, number - len(message["content"])))
    return found


def test_the_last_two_turns_of_the_person_are_marked() -> None:
    wire = AnthropicWire(ENDPOINT)
    messages: list[Message] = []
    for turn in range(4):
        messages += [said(f"{turn}"), said("more")]
        body = json.loads(wire.write(request(*messages)))
        last = 2 * turn
        assert marks(body) == [(at, -1) for at in (last - 2, last) if at >= 0]
        assert "cache_control" in body["system"][-1]
        assert "cache_control" in body["tools"][-1]
        messages.append(Assistant((Text("ok"),), model=MODEL, api=API))


def test_how_long_the_service_remembers(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ({}, Compat(), True, MARK),
        ({"cacheRetention": "short"}, Compat(), True, MARK),
        ({"cacheRetention": "long"}, Compat(), True, MARK | {"ttl": "1h"}),
        ({"cache_retention": "long"}, Compat(), True, MARK | {"ttl": "1h"}),
        ({"cacheRetention": "long"}, Compat(), False, MARK),
        (
            {"cacheRetention": "long"},
            Compat(supports_long_cache_retention=True),
            False,
            MARK | {"ttl": "1h"},
        ),
        ({"cacheRetention": "long"}, Compat(supports_long_cache_retention=False), True, MARK),
        ({}, Compat(supports_long_cache_retention=True), True, MARK),
        ({"cacheRetention": "none"}, Compat(), True, None),
    ]
    for params, compat, is_native, expected in cases:
        with subtests.test(params=params, compat=compat, is_native=is_native, expected=expected):
            body = write(
                replace(ENDPOINT, compat=compat, is_native=is_native, params=params), request()
            )
            places = body["system"][-1], body["tools"][-1], body["messages"][0]["content"][-1]
            assert [place.get("cache_control") for place in places] == [expected] * 3
            assert not {"cacheRetention", "cache_retention"} & set(body)


class Counted(tuple[Any, ...]):
    """Content that knows how often it was read."""

    reads = 0

    def __iter__(self) -> Any:
        self.reads += 1
        return super().__iter__()


def test_a_message_is_written_once_however_often_it_is_sent() -> None:
    contents = [Counted((Text(f"{number}"),)) for number in range(40)]
    messages: list[Message] = [User(content) for content in contents]
    wire = AnthropicWire(ENDPOINT)
    first = wire.write(request(*messages))
    reads = [content.reads for content in contents]
    assert all(reads)
    assert wire.write(request(*messages)) == first
    assert wire.write(request(*messages, said("more"))) != first
    assert [content.reads for content in contents] == reads


def test_tools_are_declared_once_while_they_are_the_same() -> None:
    class Schema(dict[str, Any]):
        reads = 0

        def items(self) -> Any:
            Schema.reads += 1
            return super().items()

    tools = (ToolSpec("x", "X.", Schema(type="object", properties={})),)
    wire = AnthropicWire(ENDPOINT)
    first = wire.write(request(tools=tools))
    reads = Schema.reads
    assert wire.write(request(tools=tools)) == first
    assert Schema.reads == reads
    assert len(json.loads(wire.write(request(tools=(*tools, *TOOLS))))["tools"]) == 3


@given(st.lists(st.sampled_from("uaceit"), max_size=14), st.integers(0, 14))
def test_what_was_written_before_changes_nothing(kinds: list[str], upto: int) -> None:
    messages: list[Message] = []
    for number, kind in enumerate(kinds):
        if kind == "u":
            messages.append(said(f"u{number}"))
        elif kind == "i":
            messages.append(User((Image("aGk=", "image/png"),)))
        elif kind == "e":
            messages.append(User((Text(" "),)))
        elif kind == "t":
            thought = Assistant((Thinking("t", "s"), Text("x ")), model=MODEL, api=API)
            messages.append(thought)
        elif kind == "a":
            messages.append(Assistant((Text(f"a{number} "),)))
        else:
            messages += [asked(ToolCall("same", "ls")), result("same", f"{number}")]
    wire = AnthropicWire(ENDPOINT)
    wire.write(request(*messages[:upto]))
    body = wire.write(Request("s", messages, TOOLS))
    assert body == AnthropicWire(ENDPOINT).write(Request("s", messages, TOOLS))
    sent = json.loads(body)["messages"]
    roles = [message["role"] for message in sent]
    assert roles == [("user", "assistant")[at % 2] for at in range(len(roles))]
    blocks = [block for message in sent for block in message["content"]]
    ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert len(set(ids)) == len(ids)
    assert ids == [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]


# Thinking


ON = {"prefix_mismatch_behavior": "drop_block"}


def test_each_generation_is_told_in_its_own_words(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("claude-sonnet-4-5", "off", None, None),
        ("claude-sonnet-4-5", "minimal", 1_024, None),
        ("claude-sonnet-4-5", "low", 4_096, None),
        ("claude-sonnet-4-5", "medium", 8_192, None),
        ("claude-sonnet-4-5", "high", 16_384, None),
        ("claude-sonnet-4-5", "xhigh", 32_768, None),
        ("claude-sonnet-4-5", "max", 48_000, None),
        ("claude-3-7-sonnet-20250219", "low", 4_096, None),
        ("claude-opus-4-20250514", "low", 4_096, None),
        ("claude-opus-4-6", "off", None, None),
        ("claude-opus-4-6", "minimal", {"type": "adaptive"}, "low"),
        ("claude-opus-4-6", "medium", {"type": "adaptive"}, "medium"),
        ("claude-opus-4-6", "xhigh", {"type": "adaptive"}, "high"),
        ("claude-opus-4-6", "max", {"type": "adaptive"}, "max"),
        ("anthropic.claude-sonnet-4.6", "high", {"type": "adaptive"}, "high"),
        ("claude-opus-4-7", "off", None, None),
        ("claude-opus-4-7", "xhigh", {"type": "adaptive", "display": "summarized"}, "xhigh"),
        ("claude-mythos-preview", "off", {"type": "adaptive"}, "low"),
        ("claude-opus-5", "off", {"type": "disabled"}, None),
        ("claude-sonnet-5", "low", {"type": "adaptive", "display": "summarized"}, "low"),
        ("claude-haiku-5-5", "off", {"type": "disabled"}, None),
        ("claude-sonnet-5-5", "off", {"type": "between_tools"}, None),
        ("claude-opus-5-5", "off", {"type": "adaptive", "block_binding": ON}, "low"),
        ("claude-fable-5-1", "off", {"type": "adaptive", "block_binding": ON}, "low"),
        (
            "claude-opus-5-5",
            "max",
            {"type": "adaptive", "display": "summarized", "block_binding": ON},
            "max",
        ),
    ]
    for model, level, thinking, effort in cases:
        with subtests.test(model=model, level=level, thinking=thinking, effort=effort):
            body = write(endpoint(model), request(thinking=level))
            if isinstance(thinking, int):
                thinking = {"type": "enabled", "budget_tokens": thinking}
            assert body.get("thinking") == thinking
            assert body.get("output_config", {}).get("effort") == effort


def test_the_words_of_the_configuration_win(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ({"high": 20_000}, {"type": "enabled", "budget_tokens": 20_000}, None),
        ({"high": "medium"}, {"type": "adaptive"}, "medium"),
        ({"high": {"type": "enabled", "budget_tokens": 2_000}}, None, None),
        ({"high": None}, None, None),
        ({"high": "off"}, None, None),
        ({"low": None}, {"type": "enabled", "budget_tokens": 16_384}, None),
    ]
    for levels, thinking, effort in cases:
        with subtests.test(levels=levels, thinking=thinking, effort=effort):
            body = write(replace(ENDPOINT, thinking_levels=levels), request(thinking="high"))
            expected = levels["high"] if isinstance(levels.get("high"), dict) else thinking
            assert body.get("thinking") == expected
            assert body.get("output_config", {}).get("effort") == effort


def test_efforts_that_a_service_knows(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (Compat(reasoning_effort_map={"high": "ultra"}), "ultra"),
        (Compat(supported_reasoning_efforts=["low", "medium"]), "medium"),
        (Compat(supported_reasoning_efforts=["max"]), "max"),
        (Compat(supports_reasoning_effort=False), None),
    ]
    for compat, effort in cases:
        with subtests.test(compat=compat, effort=effort):
            body = write(endpoint("claude-opus-4-6", compat=compat), request(thinking="high"))
            assert body["thinking"]["type"] == "adaptive"
            assert body.get("output_config", {}).get("effort") == effort


def test_a_model_that_cannot_think_is_not_asked_to() -> None:
    to = endpoint("claude-3-5-haiku-20241022", facts=replace(FACTS, reasoning=False))
    assert "thinking" not in write(to, request(thinking="high"))


def test_a_model_that_is_bound_to_what_came_before_gets_no_thinking_while_it_is_off() -> None:
    own = "anthropic/claude-sonnet-5-5"
    answer = Assistant((Thinking("t", "s"), Text("x")), model=own, api=API)
    asking = request(said("a"), answer, said("b"))
    to = endpoint("claude-sonnet-5-5")
    assert messages_of(to, asking)[1][1] == [text("x")]
    assert len(messages_of(to, replace(asking, thinking="low"))[1][1]) == 2


SAMPLING = {"temperature", "top_p", "top_k"}


def test_sampling_goes_without_thinking_only(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("claude-sonnet-4-5", "off", Compat(), SAMPLING),
        ("claude-sonnet-4-5", "low", Compat(), {"top_p"}),
        ("claude-opus-4-6", "low", Compat(), {"top_p"}),
        ("claude-opus-4-7", "off", Compat(), set()),
        ("claude-opus-4-7", "off", Compat(supports_temperature=True), SAMPLING),
        ("claude-sonnet-4-5", "off", Compat(supports_temperature=False), set()),
    ]
    for model, level, compat, kept in cases:
        with subtests.test(model=model, level=level, compat=compat, kept=kept):
            given = {"temperature": 0.2, "top_p": 0.99, "top_k": 5}
            body = write(endpoint(model, compat=compat, params=given), request(thinking=level))
            assert set(given) & set(body) == kept


# Lengths


def test_how_long_an_answer_may_get(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (None, "off", FACTS, 64_000, None),
        (1_000, "off", FACTS, 1_000, None),
        (1_000, "low", FACTS, 5_096, 3_822),
        (1_000, "high", replace(FACTS, max_tokens=8_000), 8_000, 6_000),
        (500, "high", replace(FACTS, max_tokens=1_200), 1_200, None),
        (100_000, "off", FACTS, 100_000, None),
        (None, "off", replace(FACTS, context_window=200_000, max_tokens=200_000), 199_918, None),
        (None, "off", replace(FACTS, context_tokens=1_000), 1_000, None),
    ]
    for asked_for, level, facts, expected, budget in cases:
        with subtests.test(
            asked_for=asked_for, level=level, facts=facts, expected=expected, budget=budget
        ):
            body = write(
                replace(ENDPOINT, facts=facts), request(max_tokens=asked_for, thinking=level)
            )
            assert body["max_tokens"] == pytest.approx(expected, abs=40)
            assert body.get("thinking", {}).get("budget_tokens") == budget
            assert body["max_tokens"] > (budget or 0)


def test_a_full_window_leaves_less_for_the_answer_and_images_do_not_fill_it() -> None:
    to = replace(ENDPOINT, facts=replace(FACTS, context_window=100_000))
    assert write(to, request(said("x" * 150_000)))["max_tokens"] == pytest.approx(50_000, rel=0.01)
    assert write(to, request(said("x" * 900_000)))["max_tokens"] == 1_024
    counted = request(said("x" * 900_000), tokens=80_000)
    assert write(to, counted)["max_tokens"] == 100_000 - 84_000
    image = User((Image("A" * 900_000, "image/png"),))
    assert write(to, request(image))["max_tokens"] == 64_000


@table(
    ("own", "more", "expected"),
    [
        ({"max_tokens": 300}, {}, 300),
        ({"max_tokens": 300}, {"max_tokens": 400}, 400),
        ({"maxTokens": 500}, {}, 500),
    ],
)
def test_limits_of_the_configuration(own: Any, more: Any, expected: int) -> None:
    body = write(replace(ENDPOINT, params=own), request(params=more))
    assert body["max_tokens"] == expected
    assert "maxTokens" not in body
    assert write(replace(ENDPOINT, params=own), request(max_tokens=7))["max_tokens"] == 7


def test_other_parameters_are_sent_as_they_are() -> None:
    own = {"metadata": {"user_id": "u"}, "service_tier": "auto", "stream": False, "fastMode": True}
    body = write(replace(ENDPOINT, params=own), request(params={"service_tier": None}))
    assert body["metadata"] == {"user_id": "u"}
    assert body["stream"] is True
    assert not {"service_tier", "fastMode"} & set(body)


def test_a_choice_of_tools_needs_tools() -> None:
    asking = request(params={"tool_choice": {"type": "auto"}})
    assert write(ENDPOINT, asking)["tool_choice"] == {"type": "auto"}
    assert "tool_choice" not in write(ENDPOINT, replace(asking, tools=()))


# MiniMax

MINIMAX = Endpoint(
    ModelRef("minimax", "MiniMax-M2.7"),
    API,
    "https://api.minimax.io/anthropic",
    facts=FACTS,
    is_native=False,
)
DISABLED = {"type": "disabled"}
ENABLED = {"type": "enabled", "budget_tokens": 4_096}


def test_minimax_thinks_only_when_it_is_told_to(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (MINIMAX, request(), DISABLED),
        (replace(MINIMAX, ref=ModelRef("minimax-cn", "MiniMax-M2.7")), request(), DISABLED),
        (replace(MINIMAX, ref=ModelRef("mine", "MiniMax-M2.7")), request(), DISABLED),
        (
            replace(MINIMAX, ref=ModelRef("mine", "x"), base_url="https://api.minimaxi.com/a"),
            request(),
            DISABLED,
        ),
        (
            replace(MINIMAX, ref=ModelRef("synthetic", "x"), base_url="https://x.example"),
            request(),
            None,
        ),
        (MINIMAX, request(thinking="low"), ENABLED),
        (MINIMAX, request(params={"thinking": ENABLED}), ENABLED),
        (replace(MINIMAX, params={"thinking": ENABLED}), request(), ENABLED),
        (replace(MINIMAX, params={"thinking": ENABLED}), request(thinking="high"), ENABLED),
        (replace(MINIMAX, params={"thinking": ENABLED}), request(params={"thinking": None}), None),
    ]
    for to, asking, thinking in cases:
        with subtests.test(to=to, asking=asking, thinking=thinking):
            assert write(to, asking).get("thinking") == thinking


def test_the_fast_mode_of_minimax_is_another_model(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("MiniMax-M2.7", {}, {}, "MiniMax-M2.7"),
        ("MiniMax-M2.7", {"fastMode": True}, {}, "MiniMax-M2.7-highspeed"),
        ("MiniMax-M2.7", {}, {"fastMode": True}, "MiniMax-M2.7-highspeed"),
        ("MiniMax-M2.7", {"fastMode": True}, {"fastMode": False}, "MiniMax-M2.7"),
        ("MiniMax-M2.5", {"fastMode": True}, {}, "MiniMax-M2.5"),
    ]
    for model, own, more, sent in cases:
        with subtests.test(model=model, own=own, more=more, sent=sent):
            to = replace(MINIMAX, ref=ModelRef("minimax", model), params=own)
            body = write(to, request(params=more))
            assert body["model"] == sent
            assert "fastMode" not in body
