"""Requests to the Responses API."""

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
from clawkit.models.protocols import Endpoint, Facts, Request, ToolSpec
from clawkit.models.wire.responses import ResponsesWire

NATIVE = Endpoint(
    ModelRef("openai", "gpt-5"),
    "openai-responses",
    "https://api.openai.com/v1",
    facts=Facts(images=True, reasoning=True),
)
IMITATION = replace(
    NATIVE, ref=ModelRef("acme", "m"), base_url="https://llm.acme.test/v1", is_native=False
)
PNG = Image("AAAA", "image/png")
INPUT_IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"}
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOL = ToolSpec("read", "Reads.", SCHEMA)
ITEM = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "secret",
}
OPEN_ITEM = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "hm"}],
}
THOUGHT = Thinking("hm", json.dumps(ITEM))
CALL = ToolCall("call_1", "read", {"path": "a"})


def body(*messages: Message, endpoint: Endpoint = NATIVE, **fields: Any) -> dict[str, Any]:
    request = Request(fields.pop("system", ""), messages, **fields)
    written: dict[str, Any] = json.loads(ResponsesWire(endpoint).write(request))
    return written


def sent(*messages: Message, endpoint: Endpoint = NATIVE, **fields: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body(*messages, endpoint=endpoint, **fields)["input"]
    return found


def own(*content: Any, endpoint: Endpoint = NATIVE) -> Assistant:
    return Assistant(content, model=str(endpoint.ref), api=endpoint.api)


def imitation(**compat: Any) -> Endpoint:
    return replace(IMITATION, compat=Compat(**compat))


def forced(value: Any) -> Any:
    """Everything the SDK's types check lazily, checked."""
    if isinstance(value, dict):
        return {key: forced(item) for key, item in value.items()}
    return value if isinstance(value, str | int | float | None) else [forced(x) for x in value]


@SDKS
def test_a_conversation_is_written_as_the_sdk_types_it() -> None:
    from openai.types.responses import ResponseInputItemParam, ToolParam
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
    from pydantic import TypeAdapter

    adapters: dict[str, TypeAdapter[Any]] = {
        "input": TypeAdapter(list[ResponseInputItemParam]),
        "tools": TypeAdapter(list[ToolParam]),
    }
    written = body(
        Summary("They met."),
        User((Text("look"), PNG)),
        own(THOUGHT, Text("I look.", "commentary"), CALL),
        ToolResult("call_1", "read", (Text("x"), PNG)),
        own(Text("Done.", "final_answer")),
        User((Text("thanks"),)),
        system="Be kind.",
        tools=(TOOL,),
        thinking="high",
        max_tokens=99,
        session="s",
    )
    assert set(written) <= set(get_type_hints(ResponseCreateParamsStreaming))
    for name, adapter in adapters.items():
        assert forced(adapter.validate_python(written[name])) == written[name]
    assert written == {
        "model": "gpt-5",
        "input": [
            {"role": "developer", "content": "Be kind."},
            {
                "role": "user",
                "content": "The conversation before this was summarised:\n\nThey met.",
            },
            {"role": "user", "content": [{"type": "input_text", "text": "look"}, INPUT_IMAGE]},
            ITEM,
            {"role": "assistant", "content": "I look.", "phase": "commentary"},
            {
                "type": "function_call",
                "call_id": "call_1",
                "name": "read",
                "arguments": '{"path":"a"}',
            },
            {
                "type": "function_call_output",
                "call_id": "call_1",
                "output": [{"type": "input_text", "text": "x"}, INPUT_IMAGE],
            },
            {"role": "assistant", "content": "Done.", "phase": "final_answer"},
            {"role": "user", "content": "thanks"},
        ],
        "tools": written["tools"],
        "stream": True,
        "store": False,
        "max_output_tokens": 99,
        "prompt_cache_key": "s",
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "high", "summary": "auto"},
    }
    assert written["tools"][0] == {
        "type": "function",
        "name": "read",
        "description": "Reads.",
        "parameters": written["tools"][0]["parameters"],
        "strict": False,
    }
    assert ResponsesWire(NATIVE).path == "/responses"
    assert ResponsesWire(NATIVE).headers == {}


FLAGS: list[tuple[Endpoint, Endpoint, str, Any, Any]] = [
    (NATIVE, IMITATION, "input.0.role", "developer", "system"),
    (NATIVE, replace(NATIVE, facts=Facts()), "input.0.role", "developer", "system"),
    (
        NATIVE,
        replace(NATIVE, compat=Compat(supports_developer_role=False)),
        "input.0.role",
        "developer",
        "system",
    ),
    (IMITATION, imitation(supports_instructions=True), "instructions", None, "Be kind."),
    (IMITATION, imitation(supports_instructions=True), "input.0.role", "system", "user"),
    (NATIVE, IMITATION, "store", False, None),
    (imitation(supports_store=True), IMITATION, "store", False, None),
    (NATIVE, IMITATION, "prompt_cache_key", "s", None),
    (imitation(supports_prompt_cache_key=True), IMITATION, "prompt_cache_key", "s", None),
    (IMITATION, imitation(supports_temperature=False), "temperature", 0.5, None),
    (IMITATION, imitation(supports_tools=False), "tools.0.name", "read", None),
    (IMITATION, imitation(supports_strict_mode=True), "tools.0.strict", False, True),
    (IMITATION, imitation(supports_strict_mode=False), "tools.0.strict", False, None),
    (
        IMITATION,
        imitation(unsupported_tool_schema_keywords=["additionalProperties", "type"]),
        "tools.0.parameters.properties.path",
        {"type": "string"},
        {},
    ),
    (
        IMITATION,
        imitation(requires_string_content=True),
        "input.1.content",
        [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}],
        "a\nb",
    ),
    (
        IMITATION,
        imitation(requires_assistant_after_tool_result=True),
        "input.4.role",
        "user",
        "assistant",
    ),
    (
        IMITATION,
        imitation(supports_tools=False),
        "input.2",
        {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": '{"path":"a"}'},
        {"role": "assistant", "content": '[called read with {"path":"a"}]'},
    ),
    (
        IMITATION,
        imitation(supports_tools=False),
        "input.3",
        {"type": "function_call_output", "call_id": "call_1", "output": "(no output)"},
        {"role": "user", "content": "[result of read]\n(no output)"},
    ),
    (IMITATION, replace(IMITATION, num_ctx=4_096), "options", None, {"num_ctx": 4_096}),
    (NATIVE, IMITATION, "reasoning.summary", "auto", None),
    (NATIVE, replace(NATIVE, facts=Facts()), "reasoning.effort", "low", None),
    (NATIVE, replace(NATIVE, facts=Facts()), "include", ["reasoning.encrypted_content"], None),
    (IMITATION, imitation(supports_reasoning_effort=False), "reasoning.effort", "low", None),
    (IMITATION, imitation(reasoning_effort_map={"low": "x"}), "reasoning.effort", "low", "x"),
    (
        IMITATION,
        imitation(supported_reasoning_efforts=["high"]),
        "reasoning.effort",
        "low",
        "high",
    ),
    (
        NATIVE,
        replace(NATIVE, thinking_levels={"low": None}),
        "reasoning",
        {"effort": "low", "summary": "auto"},
        None,
    ),
    (
        NATIVE,
        replace(NATIVE, params={"reasoning": {"summary": "concise"}, "input": 1, "tools": []}),
        "reasoning",
        {"effort": "low", "summary": "auto"},
        {"effort": "low", "summary": "concise"},
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
                    User((Text("a"), Text("b"))),
                    Assistant((CALL,)),
                    ToolResult("call_1", "read"),
                    User((Text("next"),)),
                    endpoint=endpoint,
                    system="Be kind.",
                    tools=(TOOL,),
                    thinking="low",
                    session="s",
                    params={"temperature": 0.5},
                )
                for key in field.split("."):
                    if isinstance(value, list):
                        value = value[int(key)]
                    else:
                        value = value.get(key) if isinstance(value, dict) else None
                assert value == expected


def test_thinking_goes_back_as_the_item_it_was(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (NATIVE, json.dumps(ITEM), [ITEM]),
        (IMITATION, json.dumps(ITEM), [ITEM]),
        (IMITATION, json.dumps(OPEN_ITEM), [OPEN_ITEM]),
        (NATIVE, json.dumps(OPEN_ITEM), []),
        (NATIVE, "", []),
        (NATIVE, "reasoning_content", []),
        (NATIVE, "{broken", []),
        (NATIVE, '{"type": "message", "encrypted_content": "x"}', []),
        (imitation(strict_message_keys=True), json.dumps(ITEM), []),
        (
            imitation(requires_thinking_as_text=True),
            json.dumps(ITEM),
            [{"role": "assistant", "content": "hm"}],
        ),
    ]
    for endpoint, signature, expected in cases:
        with subtests.test(endpoint=endpoint, signature=signature, expected=expected):
            items = sent(
                own(Thinking("hm", signature), Text("So."), endpoint=endpoint), endpoint=endpoint
            )
            assert items == [*expected, {"role": "assistant", "content": "So."}]


@pytest.mark.parametrize("field", ["model", "api"])
def test_what_another_model_thought_stays_where_it_is(field: str) -> None:
    said: dict[str, Any] = {"model": str(NATIVE.ref), "api": NATIVE.api, field: "other"}
    message = Assistant((THOUGHT, Text("So.", "final_answer")), **said)
    assert sent(message) == [{"role": "assistant", "content": "So."}]


def test_a_thought_that_nothing_came_of_is_left_out() -> None:
    assert sent(own(Text("So."), THOUGHT)) == [{"role": "assistant", "content": "So."}]
    assert sent(own(THOUGHT), own(THOUGHT, Text(" ")), Assistant((), stop="error"), User(())) == []
    first = Thinking("", json.dumps(ITEM | {"id": "rs_0"}), hidden=True)
    ids = [item.get("id") for item in sent(own(first, THOUGHT, CALL))]
    assert ids == ["rs_0", "rs_1", None]


def test_images_of_results_follow_where_a_service_takes_only_text_there() -> None:
    calls = Assistant((ToolCall("a", "read"), ToolCall("b", "read")))
    result = ToolResult("a", "read", (Text("x"), PNG))
    items = sent(calls, result, ToolResult("b", "read", (Text("y"),)), endpoint=IMITATION)
    assert items[2]["output"] == "x\n[an image, which follows]"
    assert items[3]["output"] == "y"
    assert items[4]["content"] == [
        {"type": "input_text", "text": "[images of the results above]"},
        INPUT_IMAGE,
    ]


def test_a_model_without_images_is_told_that_there_was_one() -> None:
    blind = replace(NATIVE, facts=Facts())
    note = "[an image was left out: the model does not accept images]"
    user, result = sent(User((PNG,)), ToolResult("a", "read", (PNG,)), endpoint=blind)
    assert user["content"] == note
    assert result["output"] == note


def test_ids_that_the_api_cannot_take_are_replaced(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("call_1", True),
        ("x" * 64, True),
        ("x" * 65, False),
        ("a|b", False),
        ("\ud800", False),
    ]
    for given, kept in cases:
        with subtests.test(given=given, kept=kept):
            call, result = sent(Assistant((ToolCall(given, "read"),)), ToolResult(given, "read"))
            assert call["call_id"] == result["call_id"]
            assert (call["call_id"] == given) is kept
            assert len(call["call_id"]) <= 64


def test_a_limit_below_what_the_api_takes_is_raised_to_it() -> None:
    assert body(max_tokens=1)["max_output_tokens"] == 16
    assert "max_output_tokens" not in body()


def test_the_limit_that_is_set_for_a_model_is_sent() -> None:
    facts = replace(NATIVE.facts, max_tokens=4_000, is_capped=True)
    assert body(endpoint=replace(NATIVE, facts=facts))["max_output_tokens"] == 4_000


def test_a_message_is_written_once() -> None:
    wire = ResponsesWire(NATIVE)
    content = [Text("a")]
    message = User(content)  # type: ignore[arg-type]  # a list, to see when it is read
    before = wire.write(Request("s", [message]))
    content.append(Text("b"))
    assert wire.write(Request("s", [message])) == before
    assert b'"t"' in wire.write(Request("t", [message]))
