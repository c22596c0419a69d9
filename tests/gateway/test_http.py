"""The HTTP side: probes, tools, chat completions, and who is kept out."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.conftest import TOKEN, Ground, serve
from tests.gateway.raw_http import BEARER, Answer, exchange, send
from tests.tables import table

from clawkit.core.tool import Registered, Tool
from clawkit.gateway.http import DENIED_TOOLS, MAX_INVOKE_BYTES
from clawkit.mcp import protocol as mcp
from clawkit.testing import Gate, ScriptedModel

CHAT = "/v1/chat/completions"
ON: dict[str, Any] = {
    "gateway": {"http": {"endpoints": {"chatCompletions": {"enabled": True}}}},
}


def ask(text: str = "hi", **more: Any) -> dict[str, Any]:
    return {"model": "openclaw", "messages": [{"role": "user", "content": text}], **more}


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        ("/health", "status", "live"),
        ("/healthz", "ok", True),
        ("/ready", "ready", True),
        ("/readyz", "failing", []),
        ("/startup", "status", "started"),
        ("/startupz", "ok", True),
    ],
)
async def test_probes_need_no_login(ground: Ground, path: str, key: str, value: object) -> None:
    found = await send(ground, "GET", path, login=False)
    assert found.status == 200
    assert found.json[key] == value
    head = await send(ground, "HEAD", path, login=False)
    assert (head.status, head.body) == (200, b"")
    wrong = await send(ground, "POST", path, {}, login=False)
    assert (wrong.status, wrong.headers["allow"]) == (405, "GET, HEAD")


async def test_a_gateway_that_stops_is_not_ready(ground: Ground) -> None:
    ground.gateway.is_ready = False
    found = await send(ground, "GET", "/readyz", login=False)
    assert (found.status, found.json["ready"]) == (503, False)
    ground.gateway.is_ready = True


@pytest.mark.parametrize("path", ["/tools/invoke", CHAT, "/v1/models"])
@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x"]
)
async def test_everything_else_needs_the_secret(path: str, authorization: str) -> None:
    async with serve(ON) as ground:
        method = "GET" if path == "/v1/models" else "POST"
        headers = {"Authorization": authorization} if authorization else {}
        found = await send(ground, method, path, {}, headers, login=False)
        assert found.status == 401
        assert found.json == {"error": {"message": "Unauthorized", "type": "unauthorized"}}


async def test_wrong_secrets_lock_out_over_http_too() -> None:
    limit = {"maxAttempts": 2, "exemptLoopback": False}
    config = {"gateway": {"auth": {"token": TOKEN, "rateLimit": limit}}}
    async with serve(config) as ground:
        wrong = {"Authorization": "Bearer guess"}
        for _ in range(2):
            found = await send(ground, "POST", "/tools/invoke", {}, wrong, login=False)
            assert found.status == 401
        found = await send(ground, "POST", "/tools/invoke", {"tool": "ls"})
        assert found.status == 429
        assert int(found.headers["retry-after"]) > 200


async def test_a_tool_is_called_in_the_session_that_is_named(workspace: Path) -> None:
    async with serve({"agents": {"defaults": {"workspace": str(workspace)}}}) as ground:
        found = await send(
            ground, "POST", "/tools/invoke", {"tool": "read", "args": {"path": "a.txt"}}
        )
        assert found.status == 200
        assert "alpha" in found.json["result"]["content"][0]["text"]
        named = {"name": "ls", "args": {}, "sessionKey": "other"}
        assert (await send(ground, "POST", "/tools/invoke", named)).json["ok"] is True
        dry = await send(ground, "POST", "/tools/invoke", {"tool": "ls", "dryRun": True})
        assert dry.json == {"ok": True, "dryRun": True, "tool": "ls", "args": {}}
        missing = {"tool": "read", "args": {"path": "none.txt"}}
        assert (await send(ground, "POST", "/tools/invoke", missing)).status == 400
        outside = {"tool": "read", "args": {"path": "/etc/passwd"}}
        refused = await send(ground, "POST", "/tools/invoke", outside)
        assert refused.status in (400, 403)
        assert b"root:" not in refused.body


@pytest.mark.parametrize("tool", [*sorted(DENIED_TOOLS), "bash", "EXEC", " exec ", "nothing"])
async def test_tools_that_change_things_are_not_found(ground: Ground, tool: str) -> None:
    found = await send(ground, "POST", "/tools/invoke", {"tool": tool, "args": {"command": "true"}})
    assert found.status == 404
    assert found.json["ok"] is False
    assert found.json["error"]["type"] == "not_found"


async def test_settings_decide_which_tools_are_there(workspace: Path) -> None:
    config = {
        "agents": {"defaults": {"workspace": str(workspace)}},
        "gateway": {"tools": {"allow": ["write", "edit"], "deny": ["ls", "edit"]}},
    }
    async with serve(config) as ground:
        written = {"tool": "write", "args": {"path": "new.txt", "content": "x"}}
        assert (await send(ground, "POST", "/tools/invoke", written)).status == 200
        assert (workspace / "new.txt").read_text() == "x"
        for tool in ("ls", "edit"):
            assert (await send(ground, "POST", "/tools/invoke", {"tool": tool})).status == 404


async def test_a_denied_tool_cannot_be_called_through_another(workspace: Path) -> None:
    config = {
        "agents": {"defaults": {"workspace": str(workspace)}},
        "gateway": {"tools": {"allow": ["tool_call"], "deny": ["far"]}},
        "tools": {"toolSearch": True},
    }

    async def reach(_params: Any, _ctx: Any) -> str:
        return "reached"

    async with serve(config) as ground:
        gateway = ground.gateway
        there = await gateway.live.open(gateway.live.resolve_key("main", None), owner=True)
        kit = there.agent.kit
        kit._extra = (Registered(Tool("far", "Far away.", {}, reach), "mcp:x"),)
        kit.alter()
        assert (await kit.call("tool_call", {"name": "far"})).as_text() == "reached"
        for body in ({"tool": "far"}, {"tool": " Tool_Call", "args": {"name": "far"}}):
            found = await send(ground, "POST", "/tools/invoke", {**body, "sessionKey": "main"})
            assert found.status == 404


async def test_a_tool_that_calls_others_does_not_call_denied_ones(workspace: Path) -> None:
    config: dict[str, Any] = {
        "agents": {"defaults": {"workspace": str(workspace)}},
        "plugins": {"entries": {"lobster": {"enabled": True}}},
        "tools": {"alsoAllow": ["lobster"], "exec": {"security": "full", "ask": "off"}},
    }
    given = {"action": "run", "pipeline": "exec 'echo reached'"}
    meta = {mcp.META_VERSION: mcp.MODERN, mcp.META_CAPABILITIES: {}}
    params = {"name": "lobster", "arguments": given, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {mcp.VERSION_HEADER: mcp.MODERN, mcp.METHOD_HEADER: "tools/call"}
    headers[mcp.NAME_HEADER] = "lobster"
    for allowed in ([], ["exec"]):
        async with serve({**config, "gateway": {"tools": {"allow": allowed}}}) as ground:
            invoked = await send(
                ground, "POST", "/tools/invoke", {"tool": "lobster", "args": given}
            )
            served = await send(ground, "POST", "/mcp", message, headers)
        for found in (invoked, served):
            assert (b'["reached"]' in found.body) == bool(allowed), found.body
            assert (b"it cannot be called over HTTP" in found.body) != bool(allowed)


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{bad", {}, 400),
        (b"[]", {}, 400),
        (b'{"tool": 7}', {}, 400),
        (b"{}", {}, 400),
        (b'{"tool":"ls","bogus":1}', {}, 400),
        (b"[" * 100_000, {}, 400),
        (b'{"tool":"ls"}', {"Content-Type": "text/plain"}, 400),
        (b'{"tool":"ls","sessionKey":"agent:ghost:x"}', {}, 400),
        (b"x" * (MAX_INVOKE_BYTES + 1), {}, 413),
        (b"", {"Content-Length": str(10**12), "Content-Type": "application/json"}, 413),
    ],
    ids=range(10),
)
async def test_bad_bodies_are_refused(
    ground: Ground, body: bytes, headers: dict[str, str], status: int
) -> None:
    found = await send(ground, "POST", "/tools/invoke", body, headers)
    assert found.status == status
    assert found.json["error"]["message"]


async def test_a_body_in_endless_pieces_is_cut_off(ground: Ground) -> None:
    head = (
        f"POST /tools/invoke HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    assert (await exchange(ground, head.encode() + piece * 33 + b"0\r\n\r\n")).status == 413


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.test"},
        {"Host": ""},
        {"X-Forwarded-For": "127.0.0.1"},
        {"Origin": "http://evil.test"},
        {"Origin": "null"},
    ],
)
async def test_pages_and_forged_proxies_are_kept_out(
    ground: Ground, headers: dict[str, str]
) -> None:
    found = await send(ground, "POST", "/tools/invoke", {"tool": "ls"}, headers)
    assert found.status in (400, 403)


async def test_mode_none_serves_only_programs_on_this_machine() -> None:
    async with serve({"gateway": {"auth": {"mode": "none"}}}) as ground:
        body = {"tool": "ls"}
        assert (await send(ground, "POST", "/tools/invoke", body, login=False)).status == 200
        far = {"X-Forwarded-For": "203.0.113.5"}
        assert (await send(ground, "POST", "/tools/invoke", body, far, login=False)).status == 403
        page = {"Origin": "http://evil.test"}
        assert (await send(ground, "POST", "/tools/invoke", body, page, login=False)).status == 403


@pytest.mark.parametrize(
    "path", ["/index.html", "/nothing", "/v1/files", "/tools", "//tools/invoke"]
)
async def test_other_paths_are_not_found(ground: Ground, path: str) -> None:
    assert (await send(ground, "GET", path)).status == 404


async def test_two_lengths_are_refused(ground: Ground) -> None:
    body = b'{"tool":"ls"}'
    head = (
        f"POST /tools/invoke HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    )
    assert (await exchange(ground, head.encode() + body)).status == 400


async def test_chat_completions_are_off_unless_turned_on(ground: Ground) -> None:
    for method, path, body in (("POST", CHAT, ask()), ("GET", "/v1/models", None)):
        assert (await send(ground, method, path, body)).status == 404


async def test_agents_are_models() -> None:
    config = {**ON, "agents": {"list": [{"id": "main"}, {"id": "work"}]}}
    async with serve(config) as ground:
        found = (await send(ground, "GET", "/v1/models")).json
        ids = [each["id"] for each in found["data"]]
        assert ids == ["openclaw", "openclaw/default", "openclaw/main", "openclaw/work"]
        one = await send(ground, "GET", "/v1/models/openclaw/work")
        assert one.json["object"] == "model"
        assert (await send(ground, "GET", "/v1/models/openclaw/none")).status == 404
        for model in ("gpt-5", "openclaw/none", ""):
            refused = await send(ground, "POST", CHAT, {**ask(), "model": model})
            assert refused.status == 400
            assert refused.json["error"]["type"] == "invalid_request_error"
        named = await send(ground, "POST", CHAT, {**ask(), "model": "clawkit/work"})
        assert named.status == 200
        assert ground.gateway.store.agents() == ["work"]


async def test_a_completion_is_one_answer() -> None:
    model = ScriptedModel("The answer.")
    async with serve(ON, model) as ground:
        messages = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "first"}]},
            {"role": "assistant", "content": "yes"},
            {"role": "user", "content": "second"},
        ]
        found = await send(ground, "POST", CHAT, {"model": "openclaw", "messages": messages})
        assert found.status == 200
        assert found.json["object"] == "chat.completion"
        [choice] = found.json["choices"]
        assert choice["message"] == {"role": "assistant", "content": "The answer."}
        assert choice["finish_reason"] == "stop"
        assert found.json["usage"]["total_tokens"] > 0
        asked = str(model.requests[0].messages[-1])
        assert all(text in asked for text in ("Be brief.", "User: first", "Assistant: yes"))


@pytest.mark.parametrize("by", ["header", "user"])
async def test_a_session_is_kept_if_it_is_named(by: str) -> None:
    model = ScriptedModel(then="ok")
    async with serve(ON, model) as ground:
        headers = {"x-openclaw-session-key": "talk"} if by == "header" else {}
        more = {"user": "me"} if by == "user" else {}
        for text in ("one", "two"):
            found = await send(ground, "POST", CHAT, ask(text, **more), headers)
            assert found.status == 200
        assert len(model.requests[1].messages) == 3
        await send(ground, "POST", CHAT, ask("three"))
        assert len(model.requests[2].messages) == 1


def chunks(answer: Answer) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in answer.body.decode().split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


async def test_a_completion_can_be_streamed() -> None:
    async with serve(ON, ScriptedModel("The whole answer.")) as ground:
        body = ask(stream=True, stream_options={"include_usage": True})
        found = await send(ground, "POST", CHAT, body)
        assert found.headers["content-type"].startswith("text/event-stream")
        first, *middle, last, usage = chunks(found)
        assert first["choices"][0]["delta"] == {"role": "assistant"}
        text = "".join(each["choices"][0]["delta"]["content"] for each in middle)
        assert text == "The whole answer."
        assert len(middle) > 1
        assert last["choices"][0] == {"index": 0, "delta": {}, "finish_reason": "stop"}
        assert usage["choices"] == []
        assert usage["usage"]["completion_tokens"] > 0


async def test_a_reader_that_leaves_stops_the_answer() -> None:
    gate = Gate("never", after=0)
    async with serve(ON, ScriptedModel(gate)) as ground:
        reader, writer = await asyncio.open_connection("127.0.0.1", ground.port)
        body = json.dumps(ask(stream=True)).encode()
        head = (
            f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {BEARER['Authorization']}"
            f"\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await reader.readuntil(b"assistant")
        await gate.reached.wait()
        [key] = list(ground.gateway.live._open)
        assert ground.gateway.live.active(key)
        writer.transport.abort()
        async with asyncio.timeout(10):
            while ground.gateway.live.active(key):
                await asyncio.sleep(0.02)


@table(
    "body",
    [
        {"model": "openclaw"},
        {"model": "openclaw", "messages": []},
        {"model": "openclaw", "messages": [{"role": "user"}]},
        {"model": "openclaw", "messages": [{"role": "user", "content": 7}]},
        {"model": "openclaw", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        {"model": "openclaw", "messages": "hi"},
    ],
)
async def test_a_completion_without_words_is_refused(body: dict[str, Any]) -> None:
    async with serve(ON) as ground:
        assert (await send(ground, "POST", CHAT, body)).status == 400


async def test_a_failed_completion_is_an_error() -> None:
    async with serve(ON, ScriptedModel()) as ground:
        found = await send(ground, "POST", CHAT, ask())
        assert (found.status, found.json["error"]["type"]) == (500, "api_error")
        streamed = await send(ground, "POST", CHAT, ask(stream=True))
        assert any("error" in each for each in chunks(streamed))


async def test_endless_headers_are_cut_off(ground: Ground) -> None:
    lines = "".join(f"X-{number}: {'x' * 100}\r\n" for number in range(2_000))
    head = f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}\r\n".encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", ground.port)
    writer.write(head)
    # The connection is reset, and the answer may be lost with it.
    with suppress(ConnectionError):
        assert b" 200 " not in await asyncio.wait_for(reader.read(), 10)
    writer.close()
