"""Requests to the Chat Completions API."""

from __future__ import annotations

import json
from typing import Any, get_type_hints

import pytest
from msgspec.structs import replace
from tests.sdks import SDKS

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
from clawkit.models.protocols import Endpoint, Facts, ModelError, Request, ToolSpec
from clawkit.models.wire.completions import CompletionsWire

THINKS = Facts(images=True, reasoning=True)
NATIVE = Endpoint(
    ModelRef("openai", "gpt-5"), "openai-completions", "https://api.openai.com/v1", facts=THINKS
)
IMITATION = replace(
    NATIVE, ref=ModelRef("acme", "m"), base_url="https://llm.acme.test/v1", is_native=False
)
PNG = Image("AAAA", "image/png")
URL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
TOOL = ToolSpec(
    "read",
    "Reads.",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1, "description": "Where."},
            "pattern": {"type": "string", "pattern": "a+"},
        },
        "required": ["path"],
    },
)
HISTORY: tuple[Message, ...] = (
    Summary("They met."),
    User((Text("look"), PNG)),
    Assistant((Thinking("hm"), Text("I look."), ToolCall("call_1", "read", {"path": "a"}))),
    ToolResult("call_1", "read", (Text("x"), PNG)),
    Assistant((Text("Done."),)),
    User((Text("thanks"),)),
)


def body(
    *messages: Message,
    endpoint: Endpoint = NATIVE,
    wire: CompletionsWire | None = None,
    **fields: Any,
) -> dict[str, Any]:
    request = Request(fields.pop("system", ""), messages, **fields)
    written: dict[str, Any] = json.loads((wire or CompletionsWire(endpoint)).write(request))
    return written


def sent(*messages: Message, endpoint: Endpoint = NATIVE, **fields: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body(*messages, endpoint=endpoint, **fields)["messages"]
    return found


def imitation(provider: str = "acme", model: str = "m", **compat: Any) -> Endpoint:
    return replace(IMITATION, ref=ModelRef(provider, model), compat=Compat(**compat))


def own(*content: Any, endpoint: Endpoint = IMITATION) -> Assistant:
    """An answer of the model that is asked again."""
    return Assistant(content, model=str(endpoint.ref), api=endpoint.api)


def forced(value: Any) -> Any:
    """Everything the SDK's types check lazily, checked."""
    if isinstance(value, dict):
        return {key: forced(item) for key, item in value.items()}
    return value if isinstance(value, str | int | float | None) else [forced(x) for x in value]


@SDKS
def test_a_conversation_is_written_as_the_sdk_types_it() -> None:
    from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolUnionParam
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
    from pydantic import TypeAdapter

    adapters: dict[str, TypeAdapter[Any]] = {
        "messages": TypeAdapter(list[ChatCompletionMessageParam]),
        "tools": TypeAdapter(list[ChatCompletionToolUnionParam]),
    }
    written = body(
        *HISTORY, system="Be kind.", tools=(TOOL,), thinking="high", max_tokens=99, session="s"
    )
    assert set(written) <= set(get_type_hints(CompletionCreateParamsStreaming))
    for name, adapter in adapters.items():
        assert forced(adapter.validate_python(written[name])) == written[name]
    assert written == {
        "model": "gpt-5",
        "messages": [
            {"role": "developer", "content": "Be kind."},
            {
                "role": "user",
                "content": "The conversation before this was summarised:\n\nThey met.",
            },
            {"role": "user", "content": [{"type": "text", "text": "look"}, URL]},
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "read", "arguments": '{"path":"a"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "x\n[an image, which follows]"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "[images of the results above]"}, URL],
            },
            {"role": "assistant", "content": "Done."},
            {"role": "user", "content": "thanks"},
        ],
        "tools": written["tools"],
        "stream": True,
        "stream_options": {"include_usage": True},
        "store": False,
        "max_completion_tokens": 99,
        "prompt_cache_key": "s",
        "reasoning_effort": "high",
    }
    assert written["tools"][0]["function"]["name"] == "read"
    assert CompletionsWire(NATIVE).path == "/chat/completions"
    assert CompletionsWire(NATIVE).headers == {}


def test_images_come_after_all_results_that_stand_together() -> None:
    calls = Assistant((ToolCall("a", "read"), ToolCall("b", "read")))
    messages = sent(calls, ToolResult("a", "read", (PNG,)), ToolResult("b", "read", (PNG, PNG)))
    assert [message["role"] for message in messages] == [
        "assistant",
        "tool",
        "tool",
        "user",
        "user",
    ]
    assert [len(message["content"]) for message in messages[3:]] == [2, 3]
    assert messages[0]["content"] is None


def test_a_model_without_images_is_told_that_there_was_one() -> None:
    blind = replace(NATIVE, facts=Facts())
    note = "[an image was left out: the model does not accept images]"
    messages = sent(User((Text("see"), PNG)), ToolResult("a", "read", (PNG,)), endpoint=blind)
    assert messages[0]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "text", "text": note},
    ]
    assert messages[1:] == [{"role": "tool", "tool_call_id": "a", "content": note}]


def test_messages_that_say_nothing_are_left_out() -> None:
    assert sent(
        User(()),
        User((Text(" "),)),
        Assistant((), stop="error", error="boom"),
        Assistant((Text(""), Thinking("hm")), stop="aborted"),
        User((Text("go"),)),
    ) == [{"role": "user", "content": "go"}]
    assert sent(ToolResult("a", "read"))[0]["content"] == "(no output)"


def test_no_text_is_too_broken_to_be_sent() -> None:
    messages = sent(
        User((Text("a\ud83d\ude00\ud800\0"),)),
        Assistant((ToolCall("\ud800", "no such tool\n", "{broken"),)),
        ToolResult("\ud800", "x", (Text("\udfff"),)),
        system="s\udc00",
    )
    assert messages[0]["content"] == "s\ufffd"
    assert messages[1]["content"] == "a😀\ufffd\0"
    call = messages[2]["tool_calls"][0]
    assert call["function"] == {"name": "no_such_tool_", "arguments": '{"unreadable":"{broken"}'}
    assert call["id"] == messages[3]["tool_call_id"]


def test_ids_a_service_cannot_take_are_replaced_by_ones_it_can(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (NATIVE, "call_abc", True),
        (NATIVE, "x" * 40, True),
        (NATIVE, "x" * 41, False),
        (NATIVE, "functions.read:0", False),
        (NATIVE, "", False),
        (IMITATION, "functions.read:0", True),
        (IMITATION, "x" * 64, True),
        (IMITATION, "x" * 65, False),
        (IMITATION, "a b", False),
        (imitation("openrouter", "anthropic/claude-x"), "functions.read:0", False),
        (replace(IMITATION, base_url="https://api.mistral.ai/v1"), "abcDEF123", True),
        (replace(IMITATION, base_url="https://api.mistral.ai/v1"), "call_abc", False),
    ]
    for endpoint, given, kept in cases:
        with subtests.test(endpoint=endpoint, given=given, kept=kept):
            call, result = sent(
                Assistant((ToolCall(given, "read"),)), ToolResult(given, "read"), endpoint=endpoint
            )
            used = call["tool_calls"][0]["id"]
            assert used == result["tool_call_id"]
            assert (used == given) is kept
            assert 0 < len(used) <= (40 if endpoint.is_native else 64)
            if "mistral" in endpoint.base_url:
                assert len(used) == 9
                assert used.isalnum()


TEXTS = User((Text("a"), Text("b")))
CALLED = Assistant((ToolCall("a", "read", {}),))
RESULT = ToolResult("a", "read", (Text("x"),))
FLAGS: list[tuple[Endpoint, Endpoint, str, Any, Any]] = [
    # Two endpoints, the field to compare, and what it is with each.
    (NATIVE, IMITATION, "messages.0.role", "developer", "system"),
    (
        NATIVE,
        replace(NATIVE, facts=Facts()),
        "messages.0.role",
        "developer",
        "system",
    ),
    (
        NATIVE,
        replace(NATIVE, compat=Compat(supports_developer_role=False)),
        "messages.0.role",
        "developer",
        "system",
    ),
    (
        imitation(supports_developer_role=True),
        NATIVE,
        "messages.0.role",
        "system",
        "developer",
    ),
    (NATIVE, IMITATION, "store", False, None),
    (imitation(supports_store=True), IMITATION, "store", False, None),
    (NATIVE, IMITATION, "prompt_cache_key", "s", None),
    (imitation(supports_prompt_cache_key=True), IMITATION, "prompt_cache_key", "s", None),
    (
        IMITATION,
        imitation(supports_usage_in_streaming=False),
        "stream_options",
        {"include_usage": True},
        None,
    ),
    (NATIVE, IMITATION, "max_completion_tokens", 50, None),
    (NATIVE, IMITATION, "max_tokens", None, 50),
    (IMITATION, imitation(max_tokens_field="max_completion_tokens"), "max_tokens", 50, None),
    (IMITATION, imitation(supports_temperature=False), "temperature", 0.5, None),
    (
        IMITATION,
        imitation(requires_string_content=True),
        "messages.1.content",
        [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        "a\nb",
    ),
    (IMITATION, imitation(requires_string_content=True), "messages.2.content", None, ""),
    (IMITATION, imitation(requires_tool_result_name=True), "messages.3.name", None, "read"),
    (
        IMITATION,
        imitation(requires_assistant_after_tool_result=True),
        "messages.4",
        {"role": "user", "content": "next"},
        {"role": "assistant", "content": "[results received]"},
    ),
    (IMITATION, imitation(supports_tools=False), "tools.0.type", "function", None),
    (IMITATION, imitation(supports_tools=False), "tool_choice", "auto", None),
    (
        IMITATION,
        imitation(supports_tools=False),
        "messages.2",
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}
            ],
        },
        {"role": "assistant", "content": "[called read with {}]"},
    ),
    (
        IMITATION,
        imitation(supports_tools=False),
        "messages.3",
        {"role": "tool", "tool_call_id": "a", "content": "x"},
        {"role": "user", "content": "[result of read]\nx"},
    ),
    (IMITATION, imitation(supports_strict_mode=True), "tools.0.function.strict", None, True),
    (
        IMITATION,
        imitation(unsupported_tool_schema_keywords=["pattern", "minLength"]),
        "tools.0.function.parameters.properties",
        {
            "path": {"type": "string", "minLength": 1, "description": "Where."},
            "pattern": {"type": "string", "pattern": "a+"},
        },
        {"path": {"type": "string", "description": "Where."}, "pattern": {"type": "string"}},
    ),
    (
        IMITATION,
        imitation("openrouter", "google/gemini-x"),
        "tools.0.function.parameters.properties.path.minLength",
        1,
        None,
    ),
    (IMITATION, replace(IMITATION, num_ctx=4_096), "options", None, {"num_ctx": 4_096}),
    (
        IMITATION,
        imitation(cache_control_format="anthropic"),
        "messages.0.content",
        "Be kind.",
        [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
    ),
    (
        imitation(cache_control_format="anthropic"),
        imitation(cache_control_format="anthropic", requires_string_content=True),
        "messages.4.content",
        [{"type": "text", "text": "next", "cache_control": {"type": "ephemeral"}}],
        "next",
    ),
    (
        imitation(cache_control_format="anthropic"),
        imitation(cache_control_format="anthropic", strict_message_keys=True),
        "messages.4.content.0.cache_control",
        {"type": "ephemeral"},
        None,
    ),
    (
        replace(IMITATION, params={"cacheRetention": "long"}),
        replace(imitation(supports_long_cache_retention=True), params={"cacheRetention": "long"}),
        "prompt_cache_retention",
        None,
        "24h",
    ),
    (NATIVE, replace(NATIVE, params={"cacheRetention": "none"}), "prompt_cache_key", "s", None),
    (
        replace(IMITATION, params={"response_format": {"type": "json_schema"}}),
        replace(
            imitation(supports_json_schema_response_format=False),
            params={"response_format": {"type": "json_schema"}},
        ),
        "response_format",
        {"type": "json_schema"},
        None,
    ),
]


def test_what_a_service_can_do_decides_what_is_sent(subtests: pytest.Subtests) -> None:
    cases: list[Any] = list(FLAGS)
    for one, other, field, with_one, with_other in cases:
        with subtests.test(
            one=one, other=other, field=field, with_one=with_one, with_other=with_other
        ):
            for endpoint, expected in ((one, with_one), (other, with_other)):
                value: Any = body(
                    TEXTS,
                    CALLED,
                    RESULT,
                    User((Text("next"),)),
                    endpoint=endpoint,
                    system="Be kind.",
                    tools=(TOOL,),
                    max_tokens=50,
                    session="s",
                    params={"temperature": 0.5, "tool_choice": "auto"},
                )
                for key in field.split("."):
                    if isinstance(value, list):
                        value = value[int(key)]
                    else:
                        value = value.get(key) if isinstance(value, dict) else None
                assert value == expected


def test_thinking_is_turned_on_in_the_words_of_the_service(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("high", {}, {"reasoning_effort": "high"}),
        ("off", {}, {}),
        ("minimal", {}, {"reasoning_effort": "low"}),
        ("max", {}, {"reasoning_effort": "high"}),
        ("xhigh", {"supported_reasoning_efforts": ["low", "max"]}, {"reasoning_effort": "low"}),
        ("low", {"supported_reasoning_efforts": ["high"]}, {"reasoning_effort": "high"}),
        ("low", {"supported_reasoning_efforts": []}, {}),
        ("low", {"supported_reasoning_efforts": ["none"]}, {}),
        ("off", {"supported_reasoning_efforts": ["none", "low"]}, {"reasoning_effort": "none"}),
        ("low", {"reasoning_effort_map": {"low": "tiny"}}, {"reasoning_effort": "tiny"}),
        ("high", {"supports_reasoning_effort": False}, {}),
        ("high", {"thinking_format": "openai"}, {"reasoning_effort": "high"}),
        ("high", {"thinking_format": "openrouter"}, {"reasoning": {"effort": "high"}}),
        ("off", {"thinking_format": "openrouter"}, {"reasoning": {"effort": "none"}}),
        (
            "high",
            {"thinking_format": "openrouter", "supports_reasoning_effort": False},
            {"reasoning": {"enabled": True}},
        ),
        ("high", {"thinking_format": "deepseek"}, {"thinking": {"type": "enabled"}}),
        ("off", {"thinking_format": "deepseek"}, {"thinking": {"type": "disabled"}}),
        (
            "high",
            {"thinking_format": "deepseek", "supports_reasoning_effort": True},
            {"thinking": {"type": "enabled"}, "reasoning_effort": "high"},
        ),
        ("low", {"thinking_format": "zai"}, {"thinking": {"type": "enabled"}}),
        ("off", {"thinking_format": "zai"}, {"thinking": {"type": "disabled"}}),
        ("low", {"thinking_format": "qwen"}, {"enable_thinking": True}),
        ("off", {"thinking_format": "qwen"}, {"enable_thinking": False}),
        (
            "low",
            {"thinking_format": "qwen-chat-template"},
            {"chat_template_kwargs": {"enable_thinking": True}},
        ),
        ("low", {"thinking_format": "together"}, {"reasoning": {"enabled": True}}),
        ("off", {"thinking_format": "together"}, {"reasoning": {"enabled": False}}),
    ]
    for level, compat, expected in cases:
        with subtests.test(level=level, compat=compat, expected=expected):
            endpoint = imitation(**compat)
            written = body(User((Text("a"),)), endpoint=endpoint, thinking=level)
            silent = body(
                User((Text("a"),)), endpoint=replace(endpoint, facts=Facts()), thinking=level
            )
            assert {key: written[key] for key in written.keys() - silent.keys()} == expected


def test_known_services_are_known_by_their_address(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("https://openrouter.ai/api/v1", {"reasoning": {"effort": "low"}}),
        ("https://api.deepseek.com", {"thinking": {"type": "enabled"}}),
        ("https://api.z.ai/api/paas/v4", {"thinking": {"type": "enabled"}}),
        ("https://api.together.xyz/v1", {"reasoning": {"enabled": True}}),
        ("https://dashscope.aliyuncs.com/v1", {"enable_thinking": True}),
        ("https://api.moonshot.cn/v1", {}),
        ("https://api.mistral.ai/v1", {}),
        ("https://notopenrouter.ai/v1", {"reasoning_effort": "low"}),
        ("http://[::1", {"reasoning_effort": "low"}),
    ]
    for base_url, expected in cases:
        with subtests.test(base_url=base_url, expected=expected):
            endpoint = replace(IMITATION, base_url=base_url)
            written = body(User((Text("a"),)), endpoint=endpoint, thinking="low")
            silent = body(
                User((Text("a"),)), endpoint=replace(endpoint, facts=Facts()), thinking="low"
            )
            assert {key: written[key] for key in written.keys() - silent.keys()} == expected


def test_a_model_has_its_own_words_for_levels(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ({"high": "ultra"}, "high", "ultra"),
        ({"high": None}, "high", None),
        ({"off": "none"}, "off", "none"),
        ({"max": True}, "max", "max"),
        ({"high": "ultra"}, "low", "low"),
    ]
    for levels, level, expected in cases:
        with subtests.test(levels=levels, level=level, expected=expected):
            endpoint = replace(NATIVE, thinking_levels=levels)
            assert body(endpoint=endpoint, thinking=level).get("reasoning_effort") == expected


def test_a_level_that_a_model_does_not_have_turns_its_thinking_off() -> None:
    endpoint = replace(imitation(thinking_format="zai"), thinking_levels={"low": None})
    assert body(endpoint=endpoint, thinking="low")["thinking"] == {"type": "disabled"}


THOUGHT = Thinking("hm", "reasoning_content")
DETAILS = [{"type": "reasoning.encrypted", "data": "xyz", "index": 0}]
DEEPSEEK = replace(IMITATION, base_url="https://api.deepseek.com")


def test_thinking_goes_back_the_way_the_service_wants_it(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (imitation(thinking_format="deepseek"), THOUGHT, {"reasoning_content": "hm"}),
        (imitation(thinking_format="qwen"), THOUGHT, {"reasoning_content": "hm"}),
        (imitation(thinking_format="zai"), Thinking("hm", "reasoning"), {"reasoning": "hm"}),
        (imitation(thinking_format="zai"), Thinking("hm", "role"), {"reasoning_content": "hm"}),
        (
            imitation(thinking_format="openrouter"),
            Thinking("hm", json.dumps(DETAILS)),
            {"reasoning_details": DETAILS},
        ),
        (
            imitation(thinking_format="openrouter"),
            Thinking("hm", "[broken"),
            {"reasoning_content": "hm"},
        ),
        (
            replace(IMITATION, base_url="https://api.moonshot.ai/v1"),
            THOUGHT,
            {"reasoning_content": "hm"},
        ),
        (DEEPSEEK, Thinking(""), {"reasoning_content": ""}),
        (IMITATION, THOUGHT, {}),
        (NATIVE, THOUGHT, {}),
        (imitation(thinking_format="deepseek", strict_message_keys=True), THOUGHT, {}),
        (
            imitation(thinking_format="deepseek", requires_thinking_as_text=True),
            THOUGHT,
            {"content": "hm\n\nSo."},
        ),
    ]
    for endpoint, thought, expected in cases:
        with subtests.test(endpoint=endpoint, thought=thought, expected=expected):
            said = own(thought, Text("So."), ToolCall("a", "read"), endpoint=endpoint)
            plain = Assistant((Text("So."), ToolCall("a", "read")))
            silent = replace(endpoint, facts=Facts())
            assert sent(said, endpoint=endpoint)[0] == sent(plain, endpoint=silent)[0] | expected


@pytest.mark.parametrize("field", ["model", "api"])
def test_thinking_of_another_model_stays_where_it_is(field: str) -> None:
    endpoint = imitation(thinking_format="zai")
    said: dict[str, Any] = {"model": str(endpoint.ref), "api": endpoint.api, field: "other"}
    message = Assistant((THOUGHT, Text("So.")), **said)
    assert sent(message, endpoint=endpoint) == [{"role": "assistant", "content": "So."}]
    assert (
        sent(Assistant((THOUGHT, CALLED.calls[0])), endpoint=DEEPSEEK)[0]["reasoning_content"] == ""
    )  # this service refuses calls without any


def test_the_cache_mark_moves_on_with_the_conversation() -> None:
    wire = CompletionsWire(imitation(cache_control_format="anthropic"))
    first, second = User((Text("a"), PNG)), User((Text("b"),))

    def marks(*messages: Message) -> list[bool]:
        found = body(*messages, wire=wire)["messages"]
        return ["cache_control" in json.dumps(message) for message in found]

    assert marks(first, CALLED, RESULT) == [True, False, False]
    assert marks(first, CALLED, RESULT, second) == [False, False, False, True]
    assert marks(CALLED, RESULT) == [False, False]


def test_an_assistant_stands_between_results_with_images_and_these() -> None:
    endpoint = imitation(requires_assistant_after_tool_result=True)
    result = ToolResult("a", "read", (PNG,))
    for rest in ((), (User((Text("next"),)),)):
        roles = [message["role"] for message in sent(CALLED, result, *rest, endpoint=endpoint)]
        assert roles == ["assistant", "tool", "assistant", "user", *("user" for _ in rest)]
    messages = sent(CALLED, RESULT, Assistant(()), CALLED, endpoint=endpoint)
    roles = [message["role"] for message in messages]
    assert roles == ["assistant", "tool", "assistant"]


def test_parameters_come_last_and_those_of_the_request_win() -> None:
    endpoint = replace(
        NATIVE,
        params={
            "seed": 1,
            "reasoning_effort": "low",
            "store": None,
            "maxTokens": 70,
            "fastMode": 1,
        },
    )
    written = body(
        User((Text("a"),)),
        endpoint=endpoint,
        thinking="high",
        params={"seed": 2, "messages": [], "stream": False, "tools": [1]},
    )
    assert written["seed"] == 2
    assert written["reasoning_effort"] == "low"
    assert written["max_completion_tokens"] == 70
    assert written["stream"] is True
    assert written["messages"]
    assert not {"store", "fastMode", "tools", "maxTokens"} & set(written)
    assert body(endpoint=endpoint, max_tokens=5)["max_completion_tokens"] == 5
    assert "max_completion_tokens" not in body()


def test_the_limit_that_is_set_for_a_model_is_sent_as_far_as_there_is_room() -> None:
    facts = Facts(context_window=10_000, max_tokens=4_000, is_capped=True)
    endpoint = replace(NATIVE, facts=facts)
    field = "max_completion_tokens"
    assert body(User((Text("a"),)), endpoint=endpoint)[field] == 4_000
    assert body(User((Text("a"),)), endpoint=endpoint, max_tokens=7)[field] == 7
    long = User((Text("a" * 24_000),))
    left = body(long, endpoint=endpoint)[field]
    assert 1_900 < left < 2_000
    assert body(long, long, endpoint=endpoint)[field] == 1_024
    # What the service itself counted is closer to the truth.
    assert body(long, long, endpoint=endpoint, tokens=7_000)[field] == 10_000 - 7_350
    picture = User((Image("A" * 90_000, "image/png"),))
    assert (
        body(picture, endpoint=replace(endpoint, facts=replace(facts, images=True)))[field] == 4_000
    )
    own = replace(endpoint, params={"max_tokens": 99})
    assert field not in body(endpoint=own)
    assert body(endpoint=own)["max_tokens"] == 99


def test_a_long_session_name_becomes_a_short_key() -> None:
    key = body(session="s" * 65)["prompt_cache_key"]
    assert len(key) <= 64
    assert key != "s" * 65


def test_a_message_is_written_once_and_tools_too() -> None:
    wire = CompletionsWire(NATIVE)
    content = [Text("a")]
    message = User(content)  # type: ignore[arg-type]  # a list, to see when it is read
    tools = (ToolSpec("t", "first", {"type": "object", "properties": {}}),)
    before = body(message, wire=wire, tools=tools)
    content.append(Text("b"))
    assert body(message, wire=wire, tools=tools) == before
    again = (ToolSpec("t", "second", {"type": "object", "properties": {}}),)
    after = body(message, wire=wire, tools=again)
    assert after["tools"][0]["function"]["description"] == "second"
    assert "tools" not in body(message, wire=wire)
    assert body(User((Text("c"),)), wire=wire)["messages"] == [{"role": "user", "content": "c"}]


def test_a_new_system_prompt_replaces_the_old_one() -> None:
    wire = CompletionsWire(NATIVE)
    for system in ("a", "b", "a"):
        assert body(wire=wire, system=system)["messages"][0]["content"] == system
    assert body(wire=wire)["messages"] == []


def test_a_tool_that_cannot_be_declared_is_an_error_of_the_request() -> None:
    endless: dict[str, Any] = {"type": "object", "properties": {"a": {"$ref": "#"}}}
    with pytest.raises(ModelError, match="endless cannot be offered to openai/gpt-5") as caught:
        body(tools=(ToolSpec("endless", "", endless),))
    assert caught.value.kind == "invalid"
