"""The server over HTTP: logins, sessions, headers, streams, and clients kept apart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn
from tests.gateway.conftest import TOKEN, serve
from tests.gateway.raw_http import Answer, Listening, send
from tests.mcp_server.test_stdio import Patient
from tests.mcp_server.wire import FORMS, modern, opener

from clawkit import Tool
from clawkit.gateway.mcp import MAX_BODY
from clawkit.gateway.mcp_standalone import make_app
from clawkit.gateway.serve import listen
from clawkit.mcp import protocol as mcp
from clawkit.runtime import load_config

SECRET: dict[str, Any] = {"gateway": {"auth": {"token": TOKEN}}}


class Server(NamedTuple):
    port: int


@asynccontextmanager
async def serving(
    workspace: Path, *tools: Tool, config: Mapping[str, Any] | None = None
) -> AsyncIterator[Server]:
    app = make_app(load_config(SECRET), opener(config, workspace, tools))
    sock = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None))
    task = asyncio.ensure_future(server.serve([sock]))
    try:
        yield Server(sock.getsockname()[1])
    finally:
        server.should_exit = True
        await task
        sock.close()


def body_of(method: str, params: object = None, id_: object = 1) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": id_, "method": method}
    return body if params is None else {**body, "params": params}


def headers_of(method: str, name: str = "") -> dict[str, str]:
    named = {"Mcp-Name": name} if name else {}
    return {"MCP-Protocol-Version": mcp.MODERN, "Mcp-Method": method, **named}


async def call_modern(
    server: Listening, name: str, capabilities: Mapping[str, Any] | None = None, **more: Any
) -> Answer:
    params = modern(capabilities, name=name, **more)
    headers = headers_of("tools/call", name)
    return await send(server, "POST", "/mcp", body_of("tools/call", params), headers)


async def open_session(server: Listening, **capabilities: Any) -> dict[str, str]:
    """The headers of a new session."""
    given = {"protocolVersion": "2025-11-25", "capabilities": capabilities}
    answer = await send(server, "POST", "/mcp", body_of("initialize", given))
    assert answer.json["result"]["protocolVersion"] == "2025-11-25"
    return {"Mcp-Session-Id": answer.headers["mcp-session-id"]}


def events_of(answer: Answer) -> list[Any]:
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = answer.body.decode().splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


async def test_only_clients_with_the_secret_that_are_not_foreign_page_are_served(
    tmp_path: Path,
) -> None:
    body, headers = body_of("server/discover", modern()), headers_of("server/discover")
    async with serving(tmp_path) as server:
        for more, login, status in [
            ({}, True, 200),
            ({}, False, 401),
            ({"Authorization": "Bearer wrong"}, False, 401),
            ({"Host": "evil.example"}, True, 403),
            ({"Origin": "http://evil.example"}, True, 403),
            ({"Origin": f"http://127.0.0.1:{server.port}"}, True, 200),
            ({"X-Forwarded-For": "10.0.0.1"}, True, 403),
        ]:
            found = await send(server, "POST", "/mcp", body, {**headers, **more}, login=login)
            assert found.status == status, more


async def test_a_session_is_opened_used_and_ended(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        session = await open_session(server)
        told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await send(server, "POST", "/mcp", told, session)).status == 202
        listed = await send(server, "POST", "/mcp", body_of("tools/list"), session)
        assert {"read", "exec"} <= {each["name"] for each in listed.json["result"]["tools"]}
        assert (await send(server, "GET", "/mcp", headers=session)).status == 405
        for headers, status in [
            ({}, 400),
            ({"Mcp-Session-Id": "unknown"}, 404),
            ({**session, "MCP-Protocol-Version": "1999-01-01"}, 400),
            ({**session, "MCP-Protocol-Version": "2025-06-18"}, 200),
        ]:
            answer = await send(server, "POST", "/mcp", body_of("ping"), headers)
            assert answer.status == status, headers
        unknown = await send(server, "POST", "/mcp", body_of("no/such"), session)
        assert (unknown.status, unknown.json["error"]["code"]) == (404, mcp.METHOD_NOT_FOUND)
        assert (await send(server, "DELETE", "/mcp", headers=session)).status == 204
        assert (await send(server, "DELETE", "/mcp", headers=session)).status == 404
        assert (await send(server, "POST", "/mcp", body_of("ping"), session)).status == 404


async def test_headers_must_say_what_the_body_says(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    params = modern(name="read", arguments={"path": "a.txt"})
    good = headers_of("tools/call", "read")
    async with serving(tmp_path) as server:
        for headers, status in [
            (good, 200),
            ({**good, "Mcp-Name": mcp.header_value(" read").replace("IHJlYWQ=", "cmVhZA==")}, 200),
            ({**good, "Mcp-Name": "write"}, 400),
            ({**good, "Mcp-Name": "READ"}, 400),
            ({**good, "Mcp-Name": "=?base64?!!?="}, 400),
            ({**good, "Mcp-Name": "read\r\nMcp-Name: write"}, 400),
            ({**good, "Mcp-Method": "tools/list"}, 400),
            ({**good, "MCP-Protocol-Version": "2025-11-25"}, 400),
            ({key: good[key] for key in good if key != "Mcp-Name"}, 400),
            ({key: good[key] for key in good if key != "Mcp-Method"}, 400),
            ({key: good[key] for key in good if key != "MCP-Protocol-Version"}, 400),
        ]:
            answer = await send(server, "POST", "/mcp", body_of("tools/call", params), headers)
            assert answer.status == status, headers
            if status == 400:
                assert answer.json["error"]["code"] == mcp.HEADER_MISMATCH, headers


async def test_bodies_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        for body, status, code in [
            (b"{", 400, mcp.PARSE_ERROR),
            (b"[]", 400, mcp.INVALID_REQUEST),
            (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', 400, mcp.INVALID_REQUEST),
        ]:
            answer = await send(server, "POST", "/mcp", body)
            assert (answer.status, answer.json["error"]["code"]) == (status, code)
        plain = {"Content-Type": "text/plain"}
        assert (await send(server, "POST", "/mcp", b"{}", plain)).status == 400
        large = {"Content-Length": str(5 * MAX_BODY)}
        assert (await send(server, "POST", "/mcp", b"{}", large)).status == 413


async def test_what_precedes_an_answer_is_streamed(tmp_path: Path) -> None:
    patient = Patient()
    patient.go_on.set()
    meta = {"_meta": {"progressToken": 7}}
    async with serving(tmp_path, patient.tool) as server:
        alone = await call_modern(server, "patient", **meta)
        session = await open_session(server)
        params = {"name": "patient", **meta}
        old = await send(server, "POST", "/mcp", body_of("tools/call", params), session)
        quiet = await call_modern(server, "patient")
    for answer in (alone, old):
        told, result = events_of(answer)
        assert told["params"]["progressToken"] == 7
        assert result["result"]["content"][0]["text"] == "done"
    assert quiet.headers["content-type"] == "application/json"


async def test_a_question_is_streamed_and_its_answer_is_posted(tmp_path: Path) -> None:
    config = {"tools": {"rules": [{"tool": "write", "effect": "ask"}]}}
    arguments = {"path": "a.txt", "content": "new"}
    async with serving(tmp_path, config=config) as server:
        session = await open_session(server, **FORMS)
        body = json.dumps(body_of("tools/call", {"name": "write", "arguments": arguments})).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
            f"Mcp-Session-Id: {session['Mcp-Session-Id']}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await reader.readuntil(b"data: ")
        asked = json.loads(await reader.readuntil(b"\n"))
        yes = {"action": "accept", "content": {"decision": "allow-once"}}
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": yes}
        assert (await send(server, "POST", "/mcp", answer, session)).status == 202
        await reader.readuntil(b"data: ")
        done = json.loads(await reader.readuntil(b"\n"))
        writer.close()
    assert (done["id"], (tmp_path / "a.txt").read_text()) == (1, "new")


async def leave_during_a_call(server: Server, headers: dict[str, str], body: bytes) -> None:
    given = {"Host": "127.0.0.1", "Authorization": f"Bearer {TOKEN}", **headers}
    lines = [f"{name}: {value}" for name, value in given.items()]
    head = ["POST /mcp HTTP/1.1", *lines, "Content-Type: application/json"]
    _reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write("\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body)
    await writer.drain()
    await asyncio.sleep(0)
    writer.close()


async def test_two_programs_without_sessions_may_use_the_same_ids(tmp_path: Path) -> None:
    patient = Patient()
    async with serving(tmp_path, patient.tool) as server:
        first = asyncio.ensure_future(call_modern(server, "patient"))
        await patient.begun.wait()
        headers, body = headers_of("tools/list"), body_of("tools/list", modern())
        assert (await send(server, "POST", "/mcp", body, headers)).status == 200
        patient.go_on.set()
        assert (await first).json["id"] == body["id"]


async def test_who_leaves_has_cancelled_the_call_unless_there_is_a_session(tmp_path: Path) -> None:
    one, other = Patient(), Patient()
    slow = Tool("slow", "Wait.", {"type": "object", "properties": {}}, other.execute)
    async with serving(tmp_path, one.tool, slow) as server:
        body = json.dumps(body_of("tools/call", modern(name="patient"))).encode()
        await leave_during_a_call(server, headers_of("tools/call", "patient"), body)
        await asyncio.wait_for(one.ended.wait(), 20)
        session = await open_session(server)
        body = json.dumps(body_of("tools/call", {"name": "slow"})).encode()
        await leave_during_a_call(server, session, body)
        await asyncio.wait_for(other.begun.wait(), 20)
        assert (await send(server, "POST", "/mcp", body_of("ping", id_=2), session)).status == 200
        assert not other.ended.is_set()
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        assert (await send(server, "POST", "/mcp", cancel, session)).status == 202
        await asyncio.wait_for(other.ended.wait(), 20)


async def test_clients_do_not_see_the_commands_of_each_other(tmp_path: Path) -> None:
    config = {"tools": {"exec": {"security": "full", "ask": "off", "host": "gateway"}}}
    run = {"name": "exec", "arguments": {"command": "sleep 600", "background": True}}
    poll: dict[str, Any] = {"name": "process", "arguments": {"action": "list"}}
    async with serving(tmp_path, config=config) as server:
        first, second = await open_session(server), await open_session(server)
        named: dict[str, Any] = {"_meta": {mcp.META_CLIENT: {"name": "third", "version": "1"}}}
        started = await send(server, "POST", "/mcp", body_of("tools/call", run), first)
        assert "isError" not in started.json["result"], started.json
        seen = [
            (await send(server, "POST", "/mcp", body_of("tools/call", poll), session)).json
            for session in (first, second)
        ]
        seen.append((await call_modern(server, **poll)).json)
        seen.append((await call_modern(server, **poll, **named)).json)
    texts = [each["result"]["content"][0]["text"] for each in seen]
    assert ["sleep 600" in text for text in texts] == [True, False, False, False]


async def test_the_gateway_serves_what_programs_may_call_over_http(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    place = {"agents": {"defaults": {"workspace": str(tmp_path)}}}
    params, headers = modern(), headers_of("tools/list")
    async with serve(place) as ground:
        refused = await send(ground, "POST", "/mcp", body_of("tools/list", params), login=False)
        listed = await send(ground, "POST", "/mcp", body_of("tools/list", params), headers)
        read = await call_modern(ground, "read", arguments={"path": "a.txt"})
        denied = await call_modern(ground, "write", arguments={"path": "b", "content": "x"})
    assert refused.status == 401
    names = {each["name"] for each in listed.json["result"]["tools"]}
    assert "read" in names
    assert names.isdisjoint(("exec", "write", "process", "cron"))
    assert read.json["result"]["content"][0]["text"] == "hello"
    assert denied.json["error"]["code"] == mcp.INVALID_PARAMS
    assert not (tmp_path / "b").exists()
    async with serve({**place, "gateway": {"tools": {"allow": ["write"]}}}) as ground:
        written = await call_modern(ground, "write", arguments={"path": "b", "content": "x"})
        assert "isError" not in written.json["result"]
    assert (tmp_path / "b").read_text() == "x"


async def test_a_pipeline_calls_no_tool_that_programs_may_not_call(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    config = {
        "agents": {"defaults": {"workspace": str(tmp_path)}},
        "tools": {"alsoAllow": ["lobster"], "exec": {"security": "full", "ask": "off"}},
        "plugins": {"entries": {"lobster": {"enabled": True}}},
    }
    write = """openclaw.invoke --tool write --args-json '{"path": "b", "content": "x"}'"""
    read = """openclaw.invoke --tool read --args-json '{"path": "a.txt"}'"""
    async with serve(config) as ground:
        said = []
        for pipeline in ("exec touch b", write, read):
            given = {"action": "run", "pipeline": pipeline}
            body = {"tool": "lobster", "args": given}
            invoked = await send(ground, "POST", "/tools/invoke", body)
            called = await call_modern(ground, "lobster", arguments=given)
            said.append((invoked.body.decode(), called.body.decode()))
    for refused in said[:2]:
        assert all("it cannot be called over HTTP" in each for each in refused)
    assert all("hello" in each for each in said[2])
    assert not (tmp_path / "b").exists()


async def test_a_changed_configuration_applies_to_clients_of_the_gateway_at_once(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.txt").write_text("hello")
    place: dict[str, Any] = {"agents": {"defaults": {"workspace": str(tmp_path)}}}
    read: dict[str, Any] = {"name": "read", "arguments": {"path": "a.txt"}}
    async with serve(place) as ground:
        session = await open_session(ground)

        async def call_both() -> list[bool]:
            legacy = await send(ground, "POST", "/mcp", body_of("tools/call", read), session)
            alone = await call_modern(ground, **read)
            return ["hello" in answer.body.decode() for answer in (alone, legacy)]

        assert await call_both() == [True, True]
        ground.gateway.take(load_config({**place, **SECRET, "tools": {"deny": ["read"]}}))
        assert await call_both() == [False, False]
        listed = await send(ground, "POST", "/mcp", body_of("tools/list"), session)
        names = {each["name"] for each in listed.json["result"]["tools"]}
        assert "grep" in names
        assert names.isdisjoint(("read", "exec", "write"))


async def test_a_call_that_is_under_way_keeps_its_configuration(tmp_path: Path) -> None:
    config: dict[str, Any] = {"agents": {"defaults": {"workspace": str(tmp_path)}}, **SECRET}
    allowed = {"gateway": {**SECRET["gateway"], "tools": {"allow": ["exec"]}}}
    async with serve({**config, **allowed}) as ground:
        command = f"touch {tmp_path}/started; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
        call = call_modern(ground, "exec", arguments={"command": f"{command}; echo done"})
        task = asyncio.ensure_future(call)
        async with asyncio.timeout(20):
            while not (tmp_path / "started").exists():
                await asyncio.sleep(0.02)
        ground.gateway.take(load_config({**config, **allowed, "tools": {"deny": ["exec"]}}))
        again = await call_modern(ground, "exec", arguments={"command": "echo again"})
        (tmp_path / "go").touch()
        assert "done" in (await task).body.decode()
        assert again.json["error"]["code"] == mcp.INVALID_PARAMS
