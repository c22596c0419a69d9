"""Models behind real sockets: answers, faults on the way, limits, credentials."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.tables import table

from clawkit.config.load import loads
from clawkit.config.modelref import ModelRef, parse_ref
from clawkit.config.sections.models import Cost, Provider
from clawkit.config.sections.shared import RequestAuth
from clawkit.config.sections.shared import RequestSettings as RequestSettings
from clawkit.content import Assistant, Part, Text, Thinking, ToolCall, Usage, User
from clawkit.errors import ConfigError, Issue
from clawkit.models.catalog import Catalog
from clawkit.models.client import HttpModel, Reading, make_wire
from clawkit.models.credentials import Credential
from clawkit.models.errors import AbsentError
from clawkit.models.failover import Clock, ModelChain
from clawkit.models.protocols import (
    Again,
    Api,
    CallDelta,
    CallStarted,
    Delta,
    Endpoint,
    ErrorKind,
    Facts,
    Model,
    ModelError,
    Request,
    TextDelta,
    ThinkingDelta,
    ToolSpec,
)
from clawkit.net.client import Client
from clawkit.net.route import Route
from clawkit.testing.answers import call, say, think
from clawkit_testkit import fault
from clawkit_testkit.server import ScriptedServer

APIS: tuple[Api, ...] = (
    "openai-completions",
    "openai-responses",
    "anthropic-messages",
    "google-generative-ai",
)
TOOL = ToolSpec("read", "Reads a file.", {"type": "object", "properties": {}})
ASK = Request("Be brief.", (User((Text("Hello?"),)),), (TOOL,), session="s1")
KEY = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"


class Ring:
    """Credentials of a test: those that failed rest."""

    def __init__(self, *secrets: str) -> None:
        self.keys = [
            Credential(f"svc:{number}", "api-key", secret, "svc")
            for number, secret in enumerate(secrets, 1)
        ]
        self.failed: dict[str, ErrorKind] = {}
        self.used: list[str] = []
        self.unready = ""

    def for_provider(self, provider: str) -> Sequence[Credential]:
        assert provider == "svc"
        return sorted(self.keys, key=lambda key: key.id in self.failed)

    def missing(self, provider: str) -> ModelError:
        return ModelError("auth", f"no credential for {provider}")

    async def ready(self, credential: Credential) -> Credential:
        if credential.id == self.unready:
            raise ModelError("auth", "svc: it cannot be renewed")
        return credential

    def cooldown_s(self, credential: Credential) -> float:
        return 30.0 if credential.id in self.failed else 0.0

    def mark_failed(self, credential: Credential, kind: ErrorKind) -> None:
        self.failed[credential.id] = kind

    def mark_used(self, credential: Credential) -> None:
        self.used.append(credential.id)


@pytest.fixture
async def http() -> AsyncIterator[Client]:
    client = Client()
    yield client
    await client.close()


def make(server: ScriptedServer, api: Api, http: Client, **more: Any) -> HttpModel:
    facts = Facts(cost=Cost(input=3, output=15, cache_read=0.3, cache_write=3.75))
    endpoint = Endpoint(parse_ref("svc/scripted-model"), api, server.base_url(api), facts)
    return HttpModel(endpoint, http, **more)


async def run(model: Model) -> list[Delta | Assistant]:
    return [item async for item in model.stream(ASK)]


async def answer(model: Model) -> Assistant:
    last = (await run(model))[-1]
    assert isinstance(last, Assistant)
    return last


async def failure(model: Model) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await run(model)
    error = caught.value
    assert str(error).isprintable()
    return error


@asynccontextmanager
async def plain_server(reply: bytes, *, keep_open: bool = False) -> AsyncIterator[str]:
    """A server that says the same bytes to everybody."""
    waiting: list[asyncio.Task[Any]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        waiting.append(task)
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(reply)
            await writer.drain()
            if keep_open:
                await reader.read()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await asyncio.sleep(0)


def at(url: str, api: Api, http: Client, **more: Any) -> HttpModel:
    return HttpModel(Endpoint(parse_ref("svc/m"), api, url), http, **more)


@pytest.mark.parametrize("api", APIS)
async def test_an_answer_comes_in_pieces_and_whole(api: Api, http: Client) -> None:
    parts: list[Part] = [think("So."), say("Hello, you there."), call("read", {"path": "a.txt"})]
    async with ScriptedServer(parts) as server:
        items = await run(make(server, api, http, now=lambda: 1_234.5))
    *deltas, last = items
    assert isinstance(last, Assistant)
    thought, text, tool = last.content
    assert isinstance(thought, Thinking)
    assert isinstance(tool, ToolCall)
    assert (text, tool.name, tool.arguments) == (
        Text("Hello, you there.", getattr(text, "signature", "")),
        "read",
        {"path": "a.txt"},
    )
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == "Hello, you there."
    assert "".join(d.text for d in deltas if isinstance(d, ThinkingDelta)) == "So."
    assert [d.name for d in deltas if isinstance(d, CallStarted)] == ["read"]
    assert "".join(d.text for d in deltas if isinstance(d, CallDelta)).replace(" ", "") == (
        '{"path":"a.txt"}'
    )
    assert (last.stop, last.model, last.api, last.at_ms) == (
        *("tool_calls", "svc/scripted-model", api),
        1_234_500,
    )


@pytest.mark.parametrize("api", APIS)
async def test_tokens_are_counted_and_priced(api: Api, http: Client) -> None:
    said = Assistant((Text("Hi."),), usage=Usage(1_000, 200, 5_000))
    async with ScriptedServer(said) as server:
        usage = (await answer(make(server, api, http))).usage
    assert (usage.input, usage.output, usage.cache_read) == (1_000, 200, 5_000)
    assert usage.cost == pytest.approx((1_000 * 3 + 200 * 15 + 5_000 * 0.3) / 1e6)


@pytest.mark.parametrize("api", APIS)
async def test_the_request_carries_what_it_should(api: Api, http: Client) -> None:
    ring = Ring(KEY)
    async with ScriptedServer("Hi.") as server:
        model = make(server, api, http, keys=ring, headers={"X-Team": "blue"})
        await answer(model)
        (received,) = server.requests
    assert received.method == "POST"
    assert received.api == api
    assert KEY in "".join(received.headers.values())
    assert received.headers["x-team"] == "blue"
    assert received.headers["content-type"] == "application/json"
    assert "Hello?" in str(received.body)
    assert (ring.used, ring.failed) == (["svc:1"], {})


async def test_configured_headers_go_over_those_of_the_api(http: Client) -> None:
    headers = {"Accept": "*/*", "Anthropic-Version": "2030-01-01"}
    async with ScriptedServer("Hi.") as server:
        await answer(make(server, "anthropic-messages", http, headers=headers))
        (received,) = server.requests
    assert (received.headers["accept"], received.headers["anthropic-version"]) == (
        "*/*",
        "2030-01-01",
    )


@table("api", APIS)
async def test_connections_are_used_again(api: Api) -> None:
    opened = 0

    async def resolve(host: str, port: int) -> Sequence[str]:
        nonlocal opened
        opened += 1
        return ["127.0.0.1"]

    http = Client(resolve=resolve)
    async with ScriptedServer(then="Hi.") as server:
        url = server.base_url(api).replace("127.0.0.1", "svc.test")
        endpoint = Endpoint(parse_ref("svc/m"), api, url)
        model = HttpModel(endpoint, http)
        for _ in range(3):
            await answer(model)
        await http.close()
    assert opened == 1


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (fault.status(400), "invalid"),
        (fault.status(401), "auth"),
        (fault.bad_key(), "auth"),
        (fault.status(402), "billing"),
        (fault.quota(), "billing"),
        (fault.status(403), "auth"),
        (fault.status(404), "not_found"),
        (fault.status(413), "overflow"),
        (fault.overflow(), "overflow"),
        (fault.status(429, retry_after=7), "rate_limit"),
        (fault.status(500), "server"),
        (fault.status(529), "overloaded"),
        (fault.html(), "not_found"),
        (fault.html(502), "server"),
        (fault.empty(), "malformed"),
        (fault.raw(b"\x89PNG\r\n\x1a\n\0\0\0\0\0\0\0\xff\xff\xff"), "cut"),
        (fault.raw('{"error": {"message": "Overloaded", "type": "overloaded_error"}}'),
         "overloaded"),
        (fault.raw('{"hello": "world"}'), "malformed"),
        (fault.raw("[1, 2, 3]"), "malformed"),
        (fault.raw('{"choices": [], "content": 5, "output": 5, "candidates'), "malformed"),
        (fault.drop(), "network"),
        (fault.cut(2), "cut"),
        (fault.malformed(1), "malformed"),
        (fault.midstream("overloaded"), "overloaded"),
        (fault.midstream("rate_limit"), "rate_limit"),
        (fault.midstream("server"), "server"),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
async def test_every_fault_has_its_kind(
    api: Api, wrong: Any, kind: ErrorKind, http: Client
) -> None:
    async with ScriptedServer(wrong, "Fine.") as server:
        model = make(server, api, http)
        error = await failure(model)
        assert error.kind == kind
        assert len(str(error)) < 600
        # It is of no consequence for the next request.
        assert (await answer(model)).text == "Fine."


@pytest.mark.parametrize("api", APIS)
async def test_the_time_to_wait_is_handed_on(api: Api, http: Client) -> None:
    async with ScriptedServer(fault.status(429, retry_after=7)) as server:
        error = await failure(make(server, api, http))
    assert (error.retry_after_s, error.status) == (7, 429)


@pytest.mark.parametrize("api", APIS)
async def test_events_that_mean_nothing_do_not_make_an_answer(api: Api, http: Client) -> None:
    async with ScriptedServer(fault.wrong_json()) as server:
        error = await failure(make(server, api, http))
    assert error.kind in ("cut", "malformed")


@pytest.mark.parametrize("api", APIS)
async def test_a_broken_answer_leaves_what_had_come(api: Api, http: Client) -> None:
    async with ScriptedServer(fault.cut(2, "One, two, three, four.")) as server:
        error = await failure(make(server, api, http))
    assert error.kind == "cut"
    assert error.partial is not None
    assert "One, two, three, four.".startswith(error.partial.text)
    assert error.partial.text
    assert "broke off in the middle of the answer" in str(error)


@pytest.mark.parametrize("api", APIS)
async def test_an_answer_in_tiny_packets_is_the_same(api: Api, http: Client) -> None:
    async with ScriptedServer(fault.torn(3, "Grüße, 世界 🌍!")) as server:
        assert (await answer(make(server, api, http))).text == "Grüße, 世界 🌍!"


@pytest.mark.parametrize("api", APIS)
async def test_a_service_that_does_not_stream_is_understood(api: Api, http: Client) -> None:
    parts: list[Part] = [say("Hello."), call("read", {"path": "a.txt"})]
    async with ScriptedServer(parts) as server:
        whole = await _whole(server, api)
    async with ScriptedServer(fault.raw(whole, content_type="application/json")) as server:
        found = await answer(make(server, api, http))
    assert (found.text, found.stop) == ("Hello.", "tool_calls")
    assert [(each.name, each.arguments) for each in found.calls] == [("read", {"path": "a.txt"})]
    assert found.usage.output > 0


async def _whole(server: ScriptedServer, api: Api) -> bytes:
    """What the server answers when it is not asked to stream."""
    paths = {
        "openai-completions": "/chat/completions",
        "openai-responses": "/responses",
        "anthropic-messages": "/v1/messages",
        "google-generative-ai": "/models/m:streamGenerateContent",
    }
    client = Client()
    url = server.base_url(api) + paths[api]
    async with client.stream("POST", url, headers={}, body=b'{"model":"m"}') as response:
        body = await response.read(1_000_000)
    await client.close()
    return body


@pytest.mark.parametrize("wrong", [fault.hang(), fault.slow(0, first_s=60)], ids=["", "head"])
async def test_silence_before_the_answer_ends_it(wrong: Any, http: Client) -> None:
    async with ScriptedServer(then=wrong) as server:
        models = [make(server, api, http, timeout_s=0.5) for api in APIS]
        for error in await asyncio.gather(*map(failure, models)):
            assert error.kind == "timeout"
            assert "models.providers.svc.timeoutSeconds" in str(error)
        await asyncio.gather(*(each.gone.wait() for each in server.requests))


async def test_an_answer_that_takes_too_long_says_how_to_give_it_more_time(http: Client) -> None:
    async with ScriptedServer(then=fault.hang(2)) as server:
        for timeout_s in (1, 5, 25):  # a busy machine may not have begun by the first
            models = [make(server, api, http, timeout_s=timeout_s) for api in APIS]
            errors = await asyncio.gather(*map(failure, models))
            if all(error.partial for error in errors):
                break
        for error in errors:
            assert error.kind == "timeout"
            assert f"did not complete its answer within {timeout_s} s" in str(error)
            assert "raise models.providers.svc.timeoutSeconds" in str(error)
            assert error.partial
            assert error.partial.text
        await asyncio.gather(*(each.gone.wait() for each in server.requests))


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("after", [0, 1])
async def test_cancelling_closes_the_connection(api: Api, after: int, http: Client) -> None:
    async with ScriptedServer() as server:
        gate = server.gate("One, two, three, four.", after=after)
        task = asyncio.create_task(run(make(server, api, http)))
        await gate.reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.requests[-1].gone.wait()


@pytest.mark.parametrize("api", APIS)
async def test_closing_the_stream_closes_the_connection(api: Api, http: Client) -> None:
    ring = Ring(KEY)
    async with ScriptedServer() as server:
        server.gate("One, two, three, four.", after=1)
        stream: Any = make(server, api, http, keys=ring).stream(ASK)
        assert isinstance(await anext(stream), TextDelta)
        await stream.aclose()
        await server.requests[-1].gone.wait()
    assert (ring.used, ring.failed) == ([], {})


async def test_a_refused_connection_is_reported(http: Client) -> None:
    async with plain_server(b"") as url:
        pass
    error = await failure(at(url, "openai-completions", http))
    assert error.kind == "network"
    assert isinstance(error, AbsentError)
    assert str(error).startswith("svc: cannot connect to 127.0.0.1:")


async def test_an_address_that_is_not_allowed_is_told(http: Client) -> None:
    model = at("http://127.0.0.1:1", "openai-completions", http, route=Route(loopback=False))
    error = await failure(model)
    assert error.kind == "refused"
    assert "does not connect to 127.0.0.1" in str(error)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "malformed"),
        (b"", "network"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n", "network"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\ndata: {", "cut"),
        (b'HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{"choices": [', "cut"),
        (b"HTTP/1.1 429 Slow Down\r\ncontent-length: 500\r\n\r\n{", "rate_limit"),
        (b"HTTP/1.1 307 Moved\r\nlocation: https://x.test/\r\ncontent-length: 0\r\n\r\n",
         "not_found"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n \n\n ", "malformed"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "malformed"),
    ],
    ids=range(9),
)  # fmt: skip
async def test_what_is_hardly_http_has_a_kind_too(
    reply: bytes, kind: ErrorKind, http: Client
) -> None:
    async with plain_server(reply) as url:
        assert (await failure(at(url, "openai-completions", http))).kind == kind


@pytest.mark.parametrize("api", APIS[:3])
async def test_an_answer_is_over_when_it_says_so(api: Api, http: Client) -> None:
    """Also where the service then keeps the connection open and says no more."""
    async with ScriptedServer("Hi.") as server:
        events = await _events(server, api)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    async with plain_server(head + events, keep_open=True) as url:
        assert (await answer(at(url, api, http))).text == "Hi."


async def test_a_late_end_of_the_body_does_not_cost_the_connection(http: Client) -> None:
    streamed = asyncio.Event()
    opened = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        answer = b'data: {"choices": [{"delta": {"content": "Hi."}}]}\n\ndata: [DONE]\n\n'
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = head.lower().partition(b"content-length:")[2].partition(b"\r")[0]
            await reader.readexactly(int(length))
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            writer.write(b"%x\r\n%b\r\n" % (len(answer), answer))
            await streamed.wait()
            streamed.clear()
            writer.write(b"8\r\n: bye.\n\n\r\n0\r\n\r\n")

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        model = at(url, "openai-completions", http)
        for _ in range(2):
            async for item in model.stream(ASK):
                if isinstance(item, TextDelta):
                    streamed.set()
        await http.close()
    assert opened == 1


async def _events(server: ScriptedServer, api: Api) -> bytes:
    client = Client()
    paths = {
        "openai-completions": "/chat/completions",
        "openai-responses": "/responses",
        "anthropic-messages": "/v1/messages",
    }
    url = server.base_url(api) + paths[api]
    body = b'{"model":"m","stream":true}'
    async with client.stream("POST", url, headers={}, body=body) as response:
        events = await response.read(1_000_000)
    await client.close()
    return events


async def test_an_event_without_end_is_refused(http: Client) -> None:
    reply = b"HTTP/1.1 200 OK\r\n\r\ndata: " + b"x" * 34_000_000
    async with plain_server(reply) as url:
        error = await failure(at(url, "openai-completions", http))
    assert error.kind == "malformed"
    assert "sent an event of more than" in str(error)


async def test_an_answer_without_end_is_refused(
    http: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawkit.models.client.MAX_WHOLE", 100_000)
    async with plain_server(b"HTTP/1.1 200 OK\r\n\r\n[" + b" " * 300_000) as url:
        error = await failure(at(url, "openai-completions", http))
    assert error.kind == "malformed"
    assert "sent an answer of more than 100000 bytes" in str(error)


@pytest.mark.parametrize("line", [b"\n", b" \r\n", b": still there\n\n", b"data: {}\n\n"])
async def test_a_stream_without_end_is_refused(
    line: bytes, http: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawkit.models.client.MAX_BODY", 100_000)
    async with plain_server(b"HTTP/1.1 200 OK\r\n\r\n" + line * 110_000) as url:
        error = await failure(at(url, "openai-completions", http))
    assert error.kind == "malformed"
    assert "sent an answer of more than 100000 bytes" in str(error)


def test_blanks_before_an_answer_are_skipped() -> None:
    endpoint = Endpoint(parse_ref("svc/m"), "openai-completions", "http://127.0.0.1")
    reading = Reading("svc", make_wire(endpoint).decoder())
    for _ in range(2_000):
        assert not [*reading.feed(b" " * 60_000)]
    assert not reading.has_begun
    chunk = b'data: {"choices": [{"delta": {"content": "Hi."}, "finish_reason": "stop"}]}\n\n'
    assert [*reading.feed(chunk)] == [TextDelta("Hi.")]


@pytest.mark.parametrize("kind", ["auth", "billing", "rate_limit"])
async def test_a_credential_that_fails_is_marked_and_the_next_one_used(
    kind: ErrorKind, http: Client
) -> None:
    codes = {"auth": 401, "billing": 402, "rate_limit": 429}
    ring = Ring("first-key-1", "second-key-2")
    async with ScriptedServer(fault.status(codes[kind]), "Hi.") as server:
        model = make(server, "openai-completions", http, keys=ring)
        assert not model.rest_s()
        assert (await failure(model)).kind == kind
        assert (ring.failed, model.has_spare(), model.rest_s()) == ({"svc:1": kind}, True, 0)
        await answer(model)
        assert ring.used == ["svc:2"]
        assert [each.headers["authorization"] for each in server.requests] == [
            "Bearer first-key-1",
            "Bearer second-key-2",
        ]


async def test_how_a_credential_is_sent_is_a_setting(http: Client) -> None:
    auth = RequestAuth(mode="header", header_name="X-Key", prefix="Key ")
    settings = Provider(request=RequestSettings(auth=auth))
    async with ScriptedServer("Hi.") as server:
        await answer(make(server, "openai-completions", http, keys=Ring(KEY), settings=settings))
        assert server.requests[0].headers["x-key"] == f"Key {KEY}"
        assert "authorization" not in server.requests[0].headers


async def test_without_any_credential_nothing_is_sent(http: Client) -> None:
    async with ScriptedServer() as server:
        error = await failure(make(server, "openai-completions", http, keys=Ring()))
        assert (error.kind, str(error)) == ("auth", "no credential for svc")
        assert not server.count


async def test_an_unavailable_credential_is_skipped(http: Client) -> None:
    ring = Ring("first-key-1", "second-key-2")
    ring.unready = "svc:1"
    async with ScriptedServer("Hi.") as server:
        items = await run(ModelChain([make(server, "openai-completions", http, keys=ring)]))
        assert [type(items[0]), type(items[-1])] == [Again, Assistant]
    assert (ring.failed, ring.used) == ({"svc:1": "auth"}, ["svc:2"])


async def test_a_credential_that_cannot_be_sent_is_an_error(http: Client) -> None:
    async with ScriptedServer() as server:
        error = await failure(make(server, "openai-completions", http, keys=Ring("two\nlines")))
    assert error.kind == "auth"
    assert "cannot be sent" in str(error)


async def test_settings_that_are_wrong_are_a_reason_for_the_next_model(http: Client) -> None:
    class Wrong(Ring):
        def for_provider(self, provider: str) -> Sequence[Credential]:
            raise ConfigError([Issue("auth.order", "is odd"), Issue("auth", "too")])

    async with ScriptedServer("Hi.") as server:
        wrong = make(server, "openai-completions", http, keys=Wrong())
        assert str(await failure(wrong)) == "svc: auth.order: is odd auth: too"
        assert (wrong.has_spare(), wrong.rest_s()) == (False, 0)
        right = make(server, "openai-completions", http, keys=Ring(KEY))
        assert (await answer(ModelChain([wrong, right]))).text == "Hi."


@pytest.mark.parametrize("api", APIS)
async def test_a_configuration_is_all_it_takes(api: Api, http: Client, tmp_path: Path) -> None:
    async with ScriptedServer(fault.status(401), "Hi.") as server:
        config = {"models": {"providers": {"svc": server.provider_config(api)}}}
        env = {"HOME": str(tmp_path)}
        catalog = Catalog.of(loads(json.dumps(config), env=env))
        ref = catalog.find("svc/scripted-model")
        model = HttpModel(
            catalog.endpoint(ref),
            http,
            keys=catalog.credentials,
            settings=catalog.services["svc"].settings,
            headers=catalog.headers(ref),
            route=catalog.route(ref),
            timeout_s=catalog.timeout_s(ref),
        )
        error = await failure(model)
        assert "Check models.providers.svc.apiKey." in str(error)
        assert not model.has_spare()
        assert 20 < model.rest_s() <= 30
        assert (await answer(model)).text == "Hi."
        assert model.rest_s() == 0
        assert all("scripted-key" in str(each.headers) for each in server.requests)


@pytest.mark.parametrize("code", [400, 404, 500, 529])
async def test_what_is_not_the_credential_s_fault_is_not_marked(code: int, http: Client) -> None:
    ring = Ring("first-key-1")
    async with ScriptedServer(fault.status(code)) as server:
        await failure(make(server, "openai-completions", http, keys=ring))
    assert (ring.failed, ring.used) == ({}, [])


async def test_with_every_credential_resting_the_soonest_is_known(http: Client) -> None:
    ring = Ring("first-key-1")
    async with ScriptedServer(fault.status(401), "Hi.") as server:
        model = make(server, "openai-completions", http, keys=ring)
        await failure(model)
        assert (model.has_spare(), model.rest_s()) == (False, 30)
        # It is used all the same when somebody asks.
        assert (await answer(model)).text == "Hi."


async def test_without_credentials_nothing_rests(http: Client) -> None:
    async with ScriptedServer() as server:
        model = make(server, "openai-completions", http)
        assert (model.has_spare(), model.rest_s()) == (False, 0)
        assert (str(model.ref), model.api, model.facts.cost.input) == (
            *("svc/scripted-model", "openai-completions"),
            3,
        )


@pytest.mark.parametrize("code", [200, 401, 500])
@pytest.mark.parametrize("where", ["sign", "headers", "scheme", "prefix"])
async def test_no_credential_comes_back_in_an_error(code: int, where: str, http: Client) -> None:
    words = f'{{"error": {{"message": "bad key {KEY} and {KEY}"}}}}'
    if code == 200:
        words = f"data: {words}\n\n"
    more: dict[str, Any] = {"keys": Ring(KEY)}
    if where == "headers":
        more = {"headers": {"x-api-key": KEY}}
    elif where == "scheme":
        more = {"headers": {"Authorization": f"Token {KEY}"}}
    elif where == "prefix":
        auth = RequestAuth(mode="header", header_name="X-Key", prefix="Key=")
        more["settings"] = Provider(request=RequestSettings(auth=auth))
    async with ScriptedServer(fault.raw(words, code)) as server:
        error = await failure(make(server, "openai-completions", http, **more))
    assert "bad key" in str(error)
    assert KEY not in repr(error)
    assert KEY[8:24] not in str(error)
    assert error.__cause__ is None


@pytest.mark.parametrize("api", APIS)
async def test_a_chain_of_real_models_gets_over_every_fault(api: Api, http: Client) -> None:
    class NoWait(Clock):
        def now(self) -> float:
            return 0.0

        async def sleep(self, seconds: float) -> None:
            await asyncio.sleep(0)

        def chance(self) -> float:
            return 0.5

    ring = Ring("first-key-1", "second-key-2")
    faults: list[Any] = [
        *(fault.status(429), fault.cut(1), fault.malformed(1), fault.drop(), fault.html(502)),
        *(fault.midstream(), fault.status(529), "The end."),
    ]
    async with ScriptedServer(*faults) as server:
        model = make(server, api, http, keys=ring)
        items = await run(ModelChain([model], clock=NoWait()))
        last = items[-1]
        assert isinstance(last, Assistant)
        assert last.text == "The end."
        assert len([item for item in items if isinstance(item, Again)]) == 7
        # What is streamed after the last attempt began is the answer.
        start = max(n for n, item in enumerate(items) if isinstance(item, Again))
        kept = [item.text for item in items[start:] if isinstance(item, TextDelta)]
        assert "".join(kept) == "The end."
        # The same message is sent as the same bytes.
        assert len({each.data for each in server.requests}) == 1


def test_there_is_a_wire_for_every_api() -> None:
    for api in APIS:
        endpoint = Endpoint(ModelRef("svc", "m"), api, "https://svc.test")
        assert make_wire(endpoint).path.startswith("/")
