"""The scripted server against the official clients: they know the real services."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, get_args

import msgspec
import pytest
from tests.lacking import import_or_lack
from tests.sdks import SDKS

from clawkit.content import Assistant, Text, Thinking, ToolCall, Usage
from clawkit.models.protocols import Api
from clawkit.testing import ScriptedServer, call, calls
from clawkit_testkit import fault
from clawkit_testkit.server import Answer

pytestmark = SDKS
openai: Any
anthropic: Any
genai: Any
APIS: tuple[Api, ...] = get_args(Api)
NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # reading some takes long
EVERY_API = pytest.mark.parametrize("api", APIS)


@pytest.fixture(autouse=True, scope="module")
def _imported() -> None:
    """Not while tests are collected, which every worker does."""
    global openai, anthropic, genai
    openai = import_or_lack("openai")
    anthropic = import_or_lack("anthropic")
    genai = import_or_lack("google.genai")


@dataclass
class Heard:
    """What a client understood."""

    text: str = ""
    thinking: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    signature: str = ""
    tokens: tuple[int, int, int] = (0, 0, 0)
    """In, with what came from a cache; out; from a cache."""
    stop: str = ""


@asynccontextmanager
async def openai_client(server: ScriptedServer) -> AsyncIterator[Any]:
    url = server.base_url("openai-completions")
    http = openai.DefaultAsyncHttpxClient(verify=False)
    async with openai.AsyncOpenAI(
        api_key="key", base_url=url, max_retries=0, http_client=http
    ) as client:
        yield client


@asynccontextmanager
async def anthropic_client(server: ScriptedServer) -> AsyncIterator[Any]:
    url = server.base_url("anthropic-messages")
    http = anthropic.DefaultAsyncHttpxClient(verify=False)
    async with anthropic.AsyncAnthropic(
        api_key="key", base_url=url, max_retries=0, http_client=http
    ) as client:
        yield client


async def ask_completions(server: ScriptedServer) -> Heard:
    heard = Heard()
    written: dict[int, list[str]] = {}
    async with openai_client(server) as client:
        stream = await client.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": "Hello?"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        async for chunk in stream:
            if chunk.usage:
                cached = chunk.usage.prompt_tokens_details.cached_tokens
                heard.tokens = (chunk.usage.prompt_tokens, chunk.usage.completion_tokens, cached)
            for choice in chunk.choices:
                heard.stop = choice.finish_reason or heard.stop
                heard.text += choice.delta.content or choice.delta.refusal or ""
                heard.thinking += getattr(choice.delta, "reasoning_content", None) or ""
                for one in getattr(choice.delta, "reasoning_details", None) or ():
                    heard.signature = one["signature"]
                for one in choice.delta.tool_calls or ():
                    if one.id:
                        heard.ids.append(one.id)
                        written[one.index] = [one.function.name, ""]
                    written[one.index][1] += one.function.arguments
    heard.calls = [(name, msgspec.json.decode(text)) for name, text in written.values()]
    return heard


async def ask_responses(server: ScriptedServer) -> Heard:
    heard = Heard()
    async with openai_client(server) as client:
        async for event in await client.responses.create(model="m", input="Hello?", stream=True):
            if event.type in ("response.output_text.delta", "response.refusal.delta"):
                heard.text += event.delta
            elif event.type == "response.reasoning_summary_text.delta":
                heard.thinking += event.delta
            elif event.type in ("response.completed", "response.incomplete"):
                final = event.response
    for item in final.output:
        if item.type == "reasoning":
            heard.signature = item.encrypted_content
        elif item.type == "function_call":
            heard.calls.append((item.name, msgspec.json.decode(item.arguments)))
            heard.ids.append(item.call_id)
    used = final.usage
    heard.tokens = (used.input_tokens, used.output_tokens, used.input_tokens_details.cached_tokens)
    heard.stop = final.incomplete_details.reason if final.incomplete_details else final.status
    return heard


async def ask_messages(server: ScriptedServer) -> Heard:
    heard = Heard()
    async with anthropic_client(server) as client:
        messages = [{"role": "user", "content": "Hello?"}]
        async with client.messages.stream(model="m", max_tokens=9, messages=messages) as stream:
            async for event in stream:
                if event.type == "text":
                    heard.text += event.text
                elif event.type == "thinking":
                    heard.thinking += event.thinking
            final = await stream.get_final_message()
    for block in final.content:
        if block.type == "tool_use":
            heard.calls.append((block.name, block.input))
            heard.ids.append(block.id)
        elif block.type == "thinking":
            heard.signature = block.signature
    used = final.usage
    cached = used.cache_read_input_tokens
    whole = used.input_tokens + cached + used.cache_creation_input_tokens
    heard.tokens = (whole, used.output_tokens, cached)
    heard.stop = final.stop_reason
    return heard


async def ask_google(server: ScriptedServer) -> Heard:
    heard = Heard()
    options = {
        "base_url": server.url,
        "client_args": {"verify": False},
        "async_client_args": {"verify": False, "ssl": NO_CERTIFICATES},
    }
    client = genai.Client(api_key="key", http_options=options)
    try:
        chunks = await client.aio.models.generate_content_stream(model="m", contents="Hello?")
        async for chunk in chunks:
            used = chunk.usage_metadata
            out = (used.candidates_token_count or 0) + (used.thoughts_token_count or 0)
            cached = used.cached_content_token_count or 0
            heard.tokens = (used.prompt_token_count, out, cached)
            for candidate in chunk.candidates or ():
                heard.stop = candidate.finish_reason.name if candidate.finish_reason else ""
                for part in candidate.content.parts:
                    if part.function_call:
                        heard.calls.append((part.function_call.name, part.function_call.args))
                        heard.ids.append(part.function_call.id or "")
                    elif part.thought:
                        heard.thinking += part.text
                        heard.signature = (part.thought_signature or b"").decode()
                    else:
                        heard.text += part.text
    finally:
        await client.aio.aclose()
    return heard


ASK = {
    "openai-completions": ask_completions,
    "openai-responses": ask_responses,
    "anthropic-messages": ask_messages,
    "google-generative-ai": ask_google,
}
STOPS = {
    "stop": ("stop", "completed", "end_turn", "STOP"),
    "tool_calls": ("tool_calls", "completed", "tool_use", "STOP"),
    "length": ("length", "max_output_tokens", "max_tokens", "MAX_TOKENS"),
    "refusal": ("stop", "completed", "refusal", "SAFETY"),
}


async def hear(api: Api, *answers: Answer) -> Heard:
    async with ScriptedServer(*answers) as server:
        return await ASK[api](server)


def stop_of(stop: str, api: Api) -> str:
    return STOPS[stop][APIS.index(api)]


@EVERY_API
async def test_a_whole_answer_is_understood(api: Api) -> None:
    said = Assistant(
        (
            # The bytes that one client takes a signature for, in the Base64 that it wants.
            Thinking("I look first.", "cHJvb2Y="),
            Text("Let me see: “ä” and 🦞."),
            ToolCall("", "read", {"path": "a.txt", "lines": [1, 2]}),
            ToolCall("", "ls"),
        ),
        usage=Usage(1_000, 50, 200, 30),
    )
    heard = await hear(api, said)
    assert heard.text == "Let me see: “ä” and 🦞."
    assert heard.thinking == "I look first."
    assert heard.calls == [("read", {"path": "a.txt", "lines": [1, 2]}), ("ls", {})]
    assert heard.tokens == (1_230, 50, 200)
    assert heard.stop == stop_of("tool_calls", api)
    assert heard.signature in ("cHJvb2Y=", "proof")
    assert len(heard.ids) == 2
    if api == "google-generative-ai":
        assert heard.ids == ["", ""]  # that service makes none up
    else:
        assert len(set(heard.ids)) == 2


@EVERY_API
@pytest.mark.parametrize(
    ("said", "text", "asked", "stop"),
    [
        ("Hello.", "Hello.", [], "stop"),
        ("\x00\t\x7f \ud83e", "\x00\t\x7f \ufffd", [], "stop"),
        (fault.empty_reply(), "", [], "stop"),
        (fault.too_long("One, two"), "One, two", [], "length"),
        (fault.refusal("No."), "No.", [], "refusal"),
        (
            calls(("ls", {}), ("ls", {"a": None})),
            "",
            [("ls", {}), ("ls", {"a": None})],
            "tool_calls",
        ),
        (fault.many_calls(40), "", [("read", {"number": n}) for n in range(40)], "tool_calls"),
        (
            fault.enormous(300_000),
            "",
            [("write", {"path": "a.txt", "content": "x" * 300_000})],
            "tool_calls",
        ),
        (fault.torn(3, "“Two” bytes ä"), "“Two” bytes ä", [], "stop"),
        (fault.slow(0.001, "Slowly."), "Slowly.", [], "stop"),
    ],
    ids=["text", "odd", "empty", "long", "refusal", "calls", "many", "enormous", "torn", "slow"],
)
async def test_each_answer_is_understood_by_each_client(
    api: Api, said: Answer, text: str, asked: list[Any], stop: str
) -> None:
    heard = await hear(api, said)
    # Half a character is what a client makes of it.
    assert heard.text.replace("\ud83e", "\ufffd") == text
    assert (heard.calls, heard.stop) == (asked, stop_of(stop, api))


@EVERY_API
async def test_calls_with_the_same_id_keep_it(api: Api) -> None:
    assert (await hear(api, fault.duplicate_ids())).ids == ["call_same", "call_same"]


REFUSALS: list[tuple[fault.Complaint, str, str, int]] = [
    (fault.status(400), "BadRequestError", "BadRequestError", 400),
    (fault.status(401), "AuthenticationError", "AuthenticationError", 401),
    (fault.status(402), "APIStatusError", "APIStatusError", 402),
    (fault.status(403), "PermissionDeniedError", "PermissionDeniedError", 403),
    (fault.status(404), "NotFoundError", "NotFoundError", 404),
    (fault.status(413), "APIStatusError", "APIStatusError", 413),
    (fault.status(429), "RateLimitError", "RateLimitError", 429),
    (fault.status(500), "InternalServerError", "InternalServerError", 500),
    (fault.status(503), "InternalServerError", "InternalServerError", 503),
    (fault.status(529), "InternalServerError", "InternalServerError", 529),
    (fault.overflow(), "BadRequestError", "BadRequestError", 400),
    (fault.quota(), "RateLimitError", "BadRequestError", 429),
    (fault.bad_key(), "AuthenticationError", "AuthenticationError", 400),
]


@pytest.mark.parametrize(("wrong", "of_openai", "of_anthropic", "of_google"), REFUSALS)
async def test_errors_are_those_of_the_services(
    wrong: fault.Complaint, of_openai: str, of_anthropic: str, of_google: int
) -> None:
    async with ScriptedServer(then=wrong) as server:
        for ask in (ask_completions, ask_responses):
            with pytest.raises(getattr(openai, of_openai)) as first:
                await ask(server)
            assert first.value.body["message"] in str(first.value)
        with pytest.raises(getattr(anthropic, of_anthropic)) as second:
            await ask_messages(server)
        assert second.value.body["type"] == "error"
        assert second.value.request_id == second.value.body["request_id"]
        with pytest.raises(genai.errors.APIError) as third:
            await ask_google(server)
        assert third.value.code == third.value.details["error"]["code"] == of_google
        assert third.value.status.isupper()


async def test_the_time_to_wait_is_told() -> None:
    async with ScriptedServer(then=fault.status(429, "Later.", retry_after=1.5)) as server:
        with pytest.raises(openai.RateLimitError, match=r"Later\.") as first:
            await ask_completions(server)
        assert first.value.response.headers["retry-after"] == "1.5"
        with pytest.raises(genai.errors.ClientError) as second:
            await ask_google(server)
        assert second.value.details["error"]["details"][-1]["retryDelay"] == "1.5s"


@pytest.mark.parametrize(
    ("api", "form", "error", "words"),
    [
        ("openai-completions", "error", lambda: openai.APIError, "is overloaded"),
        ("openai-responses", "nested", lambda: openai.APIError, "currently overloaded"),
        ("anthropic-messages", "error", lambda: anthropic.APIStatusError, "overloaded_error"),
        ("google-generative-ai", "error", lambda: genai.errors.ServerError, "UNAVAILABLE"),
    ],
)
async def test_an_error_in_the_middle_of_an_answer(
    api: Api, form: Any, error: Callable[[], type[Exception]], words: str
) -> None:
    with pytest.raises(error(), match=words):
        await hear(api, fault.midstream("overloaded", form=form))


@pytest.mark.parametrize(("form", "name"), [("error", "error"), ("failed", "response.failed")])
async def test_the_other_forms_of_an_error_in_a_response(form: Any, name: str) -> None:
    async with (
        ScriptedServer(fault.midstream("overflow", form=form)) as server,
        openai_client(server) as client,
    ):
        events = [e async for e in await client.responses.create(model="m", input="", stream=True)]
    assert events[0].type == "response.created"
    assert [event.delta for event in events if event.type == "response.output_text.delta"]
    last = events[-1]
    assert last.type == name
    told = last if form == "error" else last.response.error
    assert (told.code, told.message[:18]) == ("context_length_exceeded", "Your input exceeds")


@EVERY_API
@pytest.mark.parametrize("broken", [fault.cut(1), fault.cut(100), fault.drop()])
async def test_a_connection_that_closes_too_early_is_noticed(
    api: Api, broken: fault.Broken
) -> None:
    with pytest.raises(Exception, match=r"Connection error|incomplete|disconnected"):
        await hear(api, broken)


async def test_answers_without_a_stream() -> None:
    said: list[Text | ToolCall] = [Text("Yes."), call("read", {"path": "a.txt"})]
    messages = [{"role": "user", "content": "Hello?"}]
    async with ScriptedServer(then=said) as server, openai_client(server) as client:
        completion = await client.chat.completions.create(model="m", messages=messages)
        choice = completion.choices[0]
        assert (choice.message.content, choice.finish_reason) == ("Yes.", "tool_calls")
        assert choice.message.tool_calls[0].function.arguments == '{"path":"a.txt"}'
        assert completion.usage.total_tokens > completion.usage.prompt_tokens > 0
        response = await client.responses.create(model="m", input="Hello?")
        assert response.output_text == "Yes."
        assert response.output[1].arguments == '{"path":"a.txt"}'
        async with anthropic_client(server) as other:
            message = await other.messages.create(model="m", max_tokens=9, messages=messages)
        assert [block.type for block in message.content] == ["text", "tool_use"]
        assert message.content[1].input == {"path": "a.txt"}


async def test_the_models_are_listed() -> None:
    async with ScriptedServer(models=("a", "b")) as server, openai_client(server) as client:
        assert [model.id async for model in client.models.list()] == ["a", "b"]
