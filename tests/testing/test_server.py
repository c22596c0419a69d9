"""The scripted server over plain sockets: what it keeps, what it breaks, what it holds back."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec
import pytest
from tests.tables import table

from clawkit.content import Assistant, Text, Thinking, ToolCall
from clawkit.models.protocols import Api
from clawkit.testing import Gate, ScriptedServer, call, hang, think
from clawkit_testkit import fault
from clawkit_testkit.forms.protocol import read_asked
from clawkit_testkit.http11 import Received
from clawkit_testkit.server import Answer

APIS: tuple[Api, ...] = get_args(Api)
EVERY_API = pytest.mark.parametrize("api", APIS)
PATHS: dict[Api, str] = {
    "openai-completions": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic-messages": "/v1/messages",
    "google-generative-ai": "/v1beta/models/big:streamGenerateContent?alt=sse",
}
STREAM = {"model": "big", "stream": True}


class Got(NamedTuple):
    """A response as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def events(self) -> list[Any]:
        """What of the stream is JSON."""
        lines = self.body.replace(b"\r\n", b"\n").split(b"\n")
        data = [line[6:] for line in lines if line.startswith(b"data: {")]
        return [msgspec.json.decode(one) for one in data]


class Client:
    """One connection that is kept."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, path: str, body: object = None, method: str = "POST") -> None:
        data = b"" if body is None else msgspec.json.encode(body)
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nX-Key: secret\r\n"
        self.writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)

    async def head(self) -> tuple[int, dict[str, str]]:
        first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = (line.partition(": ")[::2] for line in lines if line)
        return int(first.split(" ")[1]), dict(pairs)

    async def chunk(self) -> bytes:
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def read(self) -> Got:
        status, headers = await self.head()
        if "content-length" in headers:
            body = await self.reader.readexactly(int(headers["content-length"]))
            return Got(status, headers, body)
        body = b""
        while piece := await self.chunk():
            body += piece
        return Got(status, headers, body)

    async def ask(self, path: str, body: object = None, method: str = "POST") -> Got:
        self.send(path, body, method)
        return await self.read()


@asynccontextmanager
async def connected(server: ScriptedServer) -> AsyncIterator[Client]:
    port = int(server.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()


async def ask(api: Api, *answers: Answer, body: object = STREAM) -> Got:
    async with ScriptedServer(*answers) as server, connected(server) as client:
        return await client.ask(PATHS[api], body)


def texts(events: list[Any]) -> str:
    """The text in the events, whatever the API."""
    found = []
    for event in events:
        match event:
            case {"choices": [{"delta": {"content": str(text)}}]}:
                found.append(text)
            case {"type": "response.output_text.delta", "delta": str(text)}:
                found.append(text)
            case {"type": "content_block_delta", "delta": {"text": str(text)}}:
                found.append(text)
            case {"candidates": [{"content": {"parts": [{"text": str(text)}]}}]}:
                found.append(text)
    return "".join(found)


async def test_requests_are_kept_with_everything_that_was_sent() -> None:
    async with ScriptedServer("one", "two", "three") as server, connected(server) as client:
        for api in APIS[1:]:
            await client.ask(PATHS[api], STREAM | {"n": api})
        assert [one.api for one in server.requests] == list(APIS[1:])
        first, second, third = server.requests
        assert (first.method, first.path, first.model) == ("POST", "/v1/responses", "big")
        assert (first.headers["x-key"], first.body["n"]) == ("secret", APIS[1])
        assert first.size == len(first.data) == int(first.headers["content-length"])
        assert first.at_s <= second.at_s <= third.at_s
        assert third.path.endswith("?alt=sse")
        assert "secret" not in repr(server.requests)
        assert (server.count, server.left) == (3, 0)


async def test_only_the_last_requests_are_kept_where_that_is_wanted() -> None:
    async with ScriptedServer(then="x", keep=1) as server, connected(server) as client:
        for number in range(3):
            await client.ask(PATHS["openai-responses"], {"number": number})
        assert [one.body for one in server.requests] == [{"number": 2}]
        assert server.count == 3


@EVERY_API
async def test_an_address_and_an_entry_for_the_configuration(api: Api) -> None:
    async with ScriptedServer(models=("small",)) as server:
        path = PATHS[api].partition("?")[0]
        assert (server.url + path).startswith(server.base_url(api))
        assert server.provider_config(api) == {
            "baseUrl": server.base_url(api),
            "api": api,
            "apiKey": "scripted-key",
            "models": [{"id": "small"}],
        }
        models: list[str | dict[str, Any]] = ["a", {"id": "b", "contextWindow": 9}]
        entry = server.provider_config(api, models)
        assert entry["models"] == [{"id": "a"}, {"id": "b", "contextWindow": 9}]


def test_there_is_no_address_before_it_runs() -> None:
    with pytest.raises(RuntimeError, match="no address until"):
        _ = ScriptedServer().url


@EVERY_API
async def test_an_exhausted_script_is_an_error(api: Api) -> None:
    got = await ask(api)
    assert got.status == 400
    assert "the script has no more answers" in got.json["error"]["message"]


@EVERY_API
async def test_a_function_makes_the_answer_from_the_request(api: Api) -> None:
    async def answer(received: Received) -> str:
        await asyncio.sleep(0)
        return f"{received.model}, {received.body['stream']}"

    assert texts((await ask(api, answer)).events) == "big, True"


@table("wrong", [lambda _got: 1 / 0, lambda got: got.headers["no"], 7])
async def test_a_failing_script_is_an_error_for_client_and_test(wrong: Any) -> None:
    with pytest.raises((ZeroDivisionError, KeyError, TypeError)):  # noqa: PT012
        async with ScriptedServer(wrong) as server, connected(server) as client:
            got = await client.ask(PATHS["openai-responses"], STREAM)
            assert got.status == 500
            assert "the script failed" in got.json["error"]["message"]


async def test_the_failure_of_a_test_is_not_hidden_by_that_of_its_script() -> None:
    with pytest.raises(AssertionError, match="the test"):  # noqa: PT012
        async with ScriptedServer(lambda _received: 1 / 0) as server, connected(server) as client:
            await client.ask(PATHS["openai-responses"], STREAM)
            raise AssertionError("the test")


async def test_a_fault_unknown_to_the_api_is_an_error_in_the_test() -> None:
    unheard: Any = "unheard-of"
    with pytest.raises(KeyError, match="unheard-of"):  # noqa: PT012
        async with (
            ScriptedServer(fault.status(400, kind=unheard)) as server,
            connected(server) as client,
        ):
            client.send(PATHS["openai-responses"], STREAM)
            assert await client.reader.read() == b""


@table("body", [[1], "text", {"model": 7}, {"stream": []}])
async def test_a_body_that_is_not_a_request_uses_up_no_answer(body: object) -> None:
    async with ScriptedServer("kept") as server, connected(server) as client:
        got = await client.ask(PATHS["openai-completions"], body)
        assert (got.status, server.left, server.count) == (400, 1, 1)


@pytest.mark.parametrize(
    "body",
    [
        {"model": "m", "stream": True, "messages": [{"content": 'x [1] ] "stream": false'}]},
        {"messages": [], "model": "m", "stream": True},
        {"messages": [1], "model": "m]", "stream": True, "tools": []},
        {"a": {"stream": False, "b": [1]}, "messages": [], "stream": True, "model": "m"},
        {"messages": ['],"stream":false}'], "model": "m", "stream": True},
        {"model": "m", "messages": [], "stream": True, "tools": [{"stream": False}]},
        {"model": "[", "stream": True, "input": "x"},
    ],
)
@pytest.mark.parametrize("space", ["", " "])
def test_the_fields_of_a_request_are_found_in_any_order(body: dict[str, Any], space: str) -> None:
    data = msgspec.json.encode(body)
    if space:
        data = msgspec.json.format(data, indent=2)
    for with_options in (True, False):
        asked = read_asked(data, with_options=with_options)
        assert (asked.model, asked.stream) == (body["model"], True)
        assert not asked.tells_usage
    told = msgspec.json.encode(body | {"stream_options": {"include_usage": True}})
    assert read_asked(told, with_options=True).tells_usage


async def test_usage_is_streamed_only_if_requested() -> None:
    api: Api = "openai-completions"
    options = {"stream_options": {"include_usage": True}}
    assert (await ask(api, "x", body=STREAM)).events[-1]["usage"] is None
    assert (await ask(api, "x", body=STREAM | options)).events[-1]["usage"][
        "completion_tokens"
    ] == 1


@EVERY_API
async def test_text_comes_in_pieces_of_the_size_that_is_wanted(api: Api) -> None:
    async with ScriptedServer("abcdef", piece_chars=1) as server, connected(server) as client:
        got = await client.ask(PATHS[api], STREAM)
    assert len([event for event in got.events if texts([event])]) == 6


@EVERY_API
@pytest.mark.parametrize("after", [0, 1, 3])
async def test_a_connection_can_be_cut_after_some_pieces(api: Api, after: int) -> None:
    async with ScriptedServer(fault.cut(after, "abcdefgh")) as server, connected(server) as client:
        client.send(PATHS[api], STREAM)
        status, _ = await client.head()
        rest = await client.reader.read()
    assert status == 200
    events = Got(200, {}, rest).events
    assert texts(events) == "abcdefgh"[: 2 * after]
    assert not rest.endswith(b"0\r\n\r\n")


@EVERY_API
async def test_silence_after_the_headers_lasts_until_someone_hangs_up(api: Api) -> None:
    async with ScriptedServer(fault.hang(1, "abcdefgh"), "next") as server:
        async with connected(server) as client:
            client.send(PATHS[api], STREAM)
            await client.head()
            body = b""
            while b"ab" not in body:
                body += await client.chunk()
            received = await server.wait_for()
            assert not received.gone.is_set()
        await received.gone.wait()
        async with connected(server) as client:
            assert texts((await client.ask(PATHS[api], STREAM)).events) == "next"


@pytest.mark.parametrize("body", [STREAM, {"model": "big"}])
@pytest.mark.parametrize("answer", [hang(), fault.slow(60, first_s=60)])
async def test_hanging_up_on_an_answer_that_does_not_come_is_noticed(
    answer: Answer, body: object
) -> None:
    async with ScriptedServer(answer) as server:
        async with connected(server) as client:
            client.send(PATHS["openai-responses"], body)
            received = await server.wait_for()
        await received.gone.wait()


@EVERY_API
async def test_a_gate_holds_back_even_the_headers(api: Api) -> None:
    async with ScriptedServer() as server, connected(server) as client:
        gate = server.gate("Now.")
        client.send(PATHS[api], STREAM)
        await gate.reached.wait()
        reading = asyncio.ensure_future(client.read())
        await asyncio.sleep(0)
        assert not reading.done()
        gate.release()
        assert texts((await reading).events) == "Now."


@EVERY_API
async def test_a_gate_holds_back_the_rest_of_an_answer(api: Api) -> None:
    gate = Gate("abcdefgh", after=2)
    async with ScriptedServer(gate) as server, connected(server) as client:
        client.send(PATHS[api], STREAM)
        await client.head()
        await gate.reached.wait()
        body = b""
        while texts(Got(200, {}, body).events) != "abcd":
            body += await client.chunk()
        gate.release()
        while piece := await client.chunk():
            body += piece
        assert texts(Got(200, {}, body).events) == "abcdefgh"


@pytest.mark.parametrize("answer", [Gate("abcdefgh", after=1), fault.slow(60, "abcdefgh")])
async def test_hanging_up_in_the_middle_of_an_answer_is_noticed(answer: Answer) -> None:
    async with ScriptedServer(answer) as server:
        async with connected(server) as client:
            client.send(PATHS["openai-responses"], STREAM)
            await client.head()
        await server.requests[0].gone.wait()


async def test_a_connection_that_breaks_while_it_is_written_to_is_noticed() -> None:
    async with ScriptedServer("x" * 20_000_000) as server:
        async with connected(server) as client:
            client.send(PATHS["openai-completions"], STREAM)
            await client.head()
            client.writer.transport.abort()
        await server.requests[0].gone.wait()


async def test_answers_that_wait_do_not_hold_up_other_connections() -> None:
    async with ScriptedServer(gate := Gate("first"), "second") as server:
        async with connected(server) as one, connected(server) as other:
            one.send(PATHS["openai-responses"], STREAM)
            await gate.reached.wait()
            assert texts((await other.ask(PATHS["openai-responses"], STREAM)).events) == "second"
            gate.release()
            assert texts((await one.read()).events) == "first"
        assert server.count == 2


async def test_ending_does_not_wait_for_those_who_neither_read_nor_hang_up() -> None:
    huge = fault.raw(b"x" * 20_000_000)
    server = ScriptedServer(huge, hang())
    async with server, connected(server) as one, connected(server) as other:
        one.send(PATHS["openai-responses"], STREAM)
        await server.wait_for(1)
        other.send(PATHS["openai-responses"], STREAM)
        await server.wait_for(2)
        await server.__aexit__(None, None, None)
        assert await other.reader.read() == b""


@EVERY_API
async def test_events_that_are_not_json_come_after_good_ones(api: Api) -> None:
    got = (await ask(api, fault.malformed(1, "abcdefgh"))).body
    good, bad, _ = got.partition(b'data: {"type": "message_st\n')
    assert bad
    assert texts(Got(200, {}, good).events) == "ab"


@EVERY_API
async def test_events_of_wrong_types_are_json(api: Api) -> None:
    events = (await ask(api, fault.wrong_json())).events
    assert events
    assert {event["choices"] for event in events} == {7}


async def test_answers_of_other_kinds() -> None:
    answers = (fault.html(), fault.html(502), fault.empty(), fault.raw("data: x\n\n", 201), "good")
    async with ScriptedServer(*answers) as server, connected(server) as client:
        got = [await client.ask(PATHS["openai-completions"], STREAM) for _ in answers]
    assert [one.status for one in got] == [200, 502, 200, 201, 200]
    assert got[0].headers["content-type"].startswith("text/html")
    assert got[0].body == got[1].body
    assert got[0].body.startswith(b"<!DOCTYPE html>")
    assert (got[2].body, got[3].body) == (b"", b"data: x\n\n")


@table(
    ("api", "found"),
    [
        ("openai-completions", b'"function":{"name":"read","arguments":{"path":"a.txt"}}'),
        ("openai-responses", b'"arguments":{"path":"a.txt"}'),
        ("anthropic-messages", b'"content_block":{"type":"tool_use"'),
        ("google-generative-ai", b'"args":{"path":"a.txt"}'),
    ],
)
async def test_arguments_can_be_objects(api: Api, found: bytes) -> None:
    got = await ask(api, fault.object_arguments(call("read", {"path": "a.txt"})))
    assert found in got.body
    assert b"partial_json" not in got.body
    assert b"arguments.delta" not in got.body


@table(
    ("api", "double", "broken", "finish"),
    [
        ("openai-completions", rb'"arguments":"\"{\\\"', b'"name":"write"', b'"length"'),
        ("openai-responses", rb'"arguments":"\"{\\\"path', b'"name":"write"', b"max_output_tokens"),
        ("anthropic-messages", rb'"partial_json":"\"{\\\"', b'"name":"write"', b'"max_tokens"'),
        ("google-generative-ai", rb'"args":"{\"path', b"candidates", b'"MAX_TOKENS"'),
    ],
)
async def test_arguments_can_be_encoded_twice_or_break_off(
    api: Api, double: bytes, broken: bytes, finish: bytes
) -> None:
    assert double in (await ask(api, fault.double_encoded())).body
    got = await ask(api, fault.truncated())
    assert broken in got.body
    assert finish in got.body


async def test_google_cannot_send_a_call_that_is_not_json() -> None:
    got = await ask("google-generative-ai", call("read", '{"path":'))
    assert got.events[-1]["candidates"][0]["finishReason"] == "MALFORMED_FUNCTION_CALL"
    assert b"functionCall" not in got.body


@table(
    ("api", "reason"),
    [
        ("openai-completions", b'"finish_reason":"content_filter"'),
        ("openai-responses", b'"incomplete_details":{"reason":"content_filter"}'),
        ("anthropic-messages", b'"stop_reason":"refusal"'),
        ("google-generative-ai", b'"blockReason":"PROHIBITED_CONTENT"'),
    ],
)
async def test_a_filter_refuses_without_a_word(api: Api, reason: bytes) -> None:
    assert reason in (await ask(api, fault.refusal(""))).body


@table(
    ("api", "places"),
    [
        ("openai-completions", [b'"signature":"p1"', b'"data":"p2"', b'"thought_signature":"p3"']),
        ("openai-responses", [b'"encrypted_content":"p1"', b'"encrypted_content":"p2"']),
        ("anthropic-messages", [b'"signature":"p1"', b'"redacted_thinking","data":"p2"']),
        ("google-generative-ai", [b'"thoughtSignature":"p%d"' % n for n in (1, 2, 3, 4)]),
    ],
)
async def test_signatures_stand_where_the_api_has_them(api: Api, places: list[bytes]) -> None:
    said = Assistant(
        (
            Thinking("Hm.", "p1"),
            Thinking("", "p2", hidden=True),
            ToolCall("x", "ls", {}, "p3"),
            Text("Yes.", "p4"),
        )
    )
    body = (await ask(api, said)).body
    assert [place for place in places if place not in body] == []


@EVERY_API
async def test_thinking_has_a_proof_where_none_is_given(api: Api) -> None:
    body = (await ask(api, [think("Hm."), call("ls")])).body
    proof = b"c2NyaXB0ZWQg"  # how all that are made up begin
    assert (proof in body) == (api != "openai-completions")


NOT_STREAMED = [
    (fault.midstream("rate_limit"), 429, b"Rate limit"),
    (fault.malformed(), 200, b"message_st"),
    (fault.wrong_json(), 200, b'"choices": 7'),
    (fault.slow(0.001, "Hello."), 200, b"Hello."),
    (fault.refusal("No."), 200, b'"No."'),
    (think("I wonder."), 200, b'"I wonder."'),
    (fault.unknown_tool(), 200, b'"name":"no_such_tool"'),
]


@pytest.mark.parametrize(("answer", "status", "words"), NOT_STREAMED)
@pytest.mark.parametrize("api", ["openai-completions", "openai-responses"])
async def test_failures_without_streaming_have_a_status(
    api: Api, answer: Answer, status: int, words: bytes
) -> None:
    got = await ask(api, answer, body={"model": "big"})
    assert got.status == status
    assert words in got.body


async def test_an_answer_that_is_not_a_stream_can_be_cut_or_held() -> None:
    body = {"model": "big"}
    async with ScriptedServer(fault.cut(), fault.hang(), gate := Gate("x", after=9)) as server:
        async with connected(server) as client:
            client.send(PATHS["openai-completions"], body)
            _, headers = await client.head()
            assert 0 < len(await client.reader.read()) < int(headers["content-length"])
        async with connected(server) as client:
            client.send(PATHS["openai-completions"], body)
            assert int((await client.head())[1]["content-length"])
        await server.requests[1].gone.wait()
        async with connected(server) as client:
            client.send(PATHS["openai-completions"], body)
            await gate.reached.wait()
            gate.release()
            assert (await client.read()).status == 200


async def test_google_sends_a_list_to_those_who_do_not_ask_for_events() -> None:
    path = PATHS["google-generative-ai"].partition("?")[0]
    async with ScriptedServer("abcd") as server, connected(server) as client:
        got = await client.ask(path, {})
        assert server.requests[0].model == "big"
    assert texts(got.json) == "abcd"


async def test_lists_of_models() -> None:
    async with ScriptedServer(models=("a",), ollama=True) as server, connected(server) as client:
        listed = await client.ask("/v1/models", method="GET")
        assert [model["id"] for model in listed.json["data"]] == ["a"]
        tags = await client.ask("/api/tags", method="GET")
        assert [model["name"] for model in tags.json["models"]] == ["a"]
        shown = await client.ask("/api/show", {"model": "a"})
        assert shown.json["model_info"]["scripted.context_length"] == 32_768
        assert "tools" in shown.json["capabilities"]
        assert (await client.ask("/api/show", {"model": "b"})).status == 404
        assert (await client.ask("/api/show", method="GET")).status == 200
        client.writer.write(b"POST /api/show HTTP/1.1\r\nContent-Length: 1\r\n\r\n{")
        assert (await client.read()).status == 400
        assert (server.requests, len(server.others)) == ([], 6)


@table(
    ("method", "path"),
    [
        ("GET", "/v1/chat/completions"),
        ("POST", "/v1/embeddings"),
        ("POST", "/v1beta/models/big:countTokens"),
        ("GET", "/api/tags"),
        ("POST", "/api/show"),
    ],
)
async def test_unknown_paths_are_not_found(method: str, path: str) -> None:
    async with ScriptedServer("kept") as server, connected(server) as client:
        assert (await client.ask(path, {}, method)).status == 404
        assert (server.left, server.count) == (1, 0)


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + b"x" * 5_000_000,
    ],
    ids=["line", "chunked", "length", "long"],
)
async def test_requests_that_are_not_http_are_refused(sent: bytes) -> None:
    async with ScriptedServer() as server, connected(server) as client:
        client.writer.write(sent)
        status, headers = await client.head()
        assert (status, headers["connection"]) == (400, "close")


async def test_an_incomplete_request_does_not_count() -> None:
    async with ScriptedServer() as server:
        async with connected(server) as client:
            client.writer.write(b"POST /v1/responses HTTP/1.1\r\nContent-Length: 9\r\n\r\n{")
        async with connected(server) as client:
            await client.ask("/v1/models", method="GET")
        assert server.count == 0


async def test_a_connection_closes_when_the_client_wants_it() -> None:
    async with ScriptedServer("x") as server, connected(server) as client:
        client.writer.write(
            b"POST /v1/responses HTTP/1.1\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
        )
        assert (await client.read()).status == 200
        assert await client.reader.read() == b""


@asynccontextmanager
async def program(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "clawkit_testkit.server",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_as_a_program_it_tells_its_address_and_ends_quietly(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('[{"text": "Hello."}]')
    async with program(str(script), "--api", "openai-responses") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        url = (await process.stdout.readline()).decode().strip()
        assert url.startswith("http://127.0.0.1:")
        assert url.endswith("/v1")
        port = int(url.split(":")[2].removesuffix("/v1"))
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        said = [texts((await client.ask("/v1/responses", STREAM)).events) for _ in range(3)]
        assert said == ["Hello.", "done", "done"]
        client.writer.close()
        await client.writer.wait_closed()
        process.send_signal(signal.SIGINT)
        assert await process.stderr.read() == b""
        assert await process.wait() == 0


async def test_the_command_reports_problems_of_a_script(tmp_path: Path) -> None:
    async with program(str(tmp_path / "missing.json")) as process:
        _, errors = await process.communicate()
    assert process.returncode == 2
    assert b"missing.json" in errors
    assert b"Traceback" not in errors
