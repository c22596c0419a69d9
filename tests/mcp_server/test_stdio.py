"""The server over pipes: both eras, and clients that do not keep to the protocol."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.mcp_server.wire import connect, modern, opener

from clawkit import Result, Tool
from clawkit.content import Image
from clawkit.core.context import Context
from clawkit.mcp import protocol as mcp
from clawkit.mcp_server.client import MAX_RUNNING
from clawkit.mcp_server.stdio import MAX_LINE

NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


class Patient:
    """A tool that waits until it is told to go on, and knows what became of it."""

    def __init__(self) -> None:
        self.begun, self.go_on, self.ended = (asyncio.Event() for _ in range(3))
        self.tool = Tool("patient", "Wait.", NOTHING, self.execute)

    async def execute(self, _params: Any, ctx: Context) -> str:
        await ctx.update("waiting")
        self.begun.set()
        try:
            await self.go_on.wait()
        finally:
            self.ended.set()
        return "done"


async def test_a_client_of_each_era_lists_and_calls_tools(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\n")
    async with connect(opener(None, tmp_path)) as wire:
        alone = await wire.ask("tools/list", modern())
        about = await wire.ask("server/discover", modern())
        params = modern(name="read", arguments={"path": "a.txt"})
        read = (await wire.ask("tools/call", params))["result"]
        hello = await wire.initialize()
        assert (await wire.ask("ping"))["result"] == {}
        listed = await wire.ask("tools/list")
        old = (await wire.call("read", path="a.txt"))["result"]
    assert about["result"]["supportedVersions"] == list(mcp.VERSIONS)
    assert about["result"]["_meta"][mcp.META_SERVER]["name"] == "clawkit"
    assert hello["protocolVersion"] == "2025-11-25"
    assert hello["capabilities"] == {"tools": {}}
    assert alone["result"]["tools"] == listed["result"]["tools"]
    assert (alone["result"]["resultType"], alone["result"]["cacheScope"]) == ("complete", "private")
    assert "resultType" not in listed["result"]
    assert read["content"] == old["content"] == [{"type": "text", "text": "hello"}]
    assert old["_meta"]["clawkit/details"]["path"] == "a.txt"


async def test_the_version_is_what_the_client_asks_for_or_the_newest_with_sessions(
    tmp_path: Path,
) -> None:
    for asked, spoken in {
        "2025-06-18": "2025-06-18",
        "2025-11-25": "2025-11-25",
        "2024-11-05": "2025-11-25",
        "2026-07-28": "2025-11-25",
    }.items():
        async with connect(opener(None, tmp_path)) as wire:
            given = {"protocolVersion": asked, "capabilities": {}}
            answer = await wire.ask("initialize", given)
            assert answer["result"]["protocolVersion"] == spoken
            again = await wire.ask("initialize", given)
            assert again["error"]["code"] == mcp.INVALID_REQUEST


BAD = [
    (b"{", mcp.PARSE_ERROR, None),
    (b"\xff\xfe", mcp.PARSE_ERROR, None),
    (b'"text"', mcp.INVALID_REQUEST, None),
    (b"[]", mcp.INVALID_REQUEST, None),
    (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', mcp.INVALID_REQUEST, None),
    (b"[" * 100_000, mcp.INVALID_REQUEST, None),
    (b'{"id":1,"method":"ping"}', mcp.INVALID_REQUEST, None),
    (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', mcp.INVALID_REQUEST, None),
    (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', mcp.INVALID_REQUEST, None),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', mcp.INVALID_REQUEST, None),
    (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', mcp.INVALID_REQUEST, None),
    (b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', mcp.INVALID_REQUEST, None),
    (b'{"jsonrpc":"2.0","id":1,"method":7}', mcp.INVALID_REQUEST, None),
    (b'{"jsonrpc":"2.0","id":7,"method":"no/such"}', mcp.METHOD_NOT_FOUND, 7),
    (b'{"jsonrpc":"2.0","id":7,"method":"logging/setLevel"}', mcp.METHOD_NOT_FOUND, 7),
    (b'{"jsonrpc":"2.0","id":7,"method":"tools/call"}', mcp.INVALID_PARAMS, 7),
    (b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":[]}', mcp.INVALID_PARAMS, 7),
    (
        b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"ls","arguments":[]}}',
        *(mcp.INVALID_PARAMS, 7),
    ),
    (
        b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"no_such"}}',
        *(mcp.INVALID_PARAMS, 7),
    ),
    (
        b'{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"cursor":"x"}}',
        *(mcp.INVALID_PARAMS, 7),
    ),
]


async def test_invalid_messages_are_answered_with_errors_and_the_next_one_works(
    tmp_path: Path,
) -> None:
    async with connect(opener(None, tmp_path)) as wire:
        await wire.initialize()
        for line, code, id_ in BAD:
            await wire.write(line + b"\n")
            answer = await wire.receive()
            assert (answer["error"]["code"], answer["id"]) == (code, id_), line[:80]
        assert (await wire.ask("ping"))["result"] == {}


async def test_requests_that_stand_alone_must_say_what_they_are(tmp_path: Path) -> None:
    async with connect(opener(None, tmp_path)) as wire:
        for params, code in [
            ({}, mcp.INVALID_PARAMS),
            ({"_meta": {mcp.META_VERSION: mcp.MODERN}}, mcp.INVALID_PARAMS),
            ({"_meta": {mcp.META_CAPABILITIES: {}}}, mcp.INVALID_PARAMS),
            ({"_meta": {mcp.META_VERSION: 7}}, mcp.INVALID_PARAMS),
            ({"_meta": {**modern()["_meta"], mcp.META_VERSION: "x"}}, mcp.UNSUPPORTED_VERSION),
        ]:
            assert (await wire.ask("server/discover", params))["error"]["code"] == code
        too_early = await wire.ask("tools/list")
        assert too_early["error"]["code"] == mcp.INVALID_REQUEST
        for method in ("ping", "resources/list", "subscriptions/listen"):
            answer = await wire.ask(method, modern())
            assert answer["error"]["code"] == mcp.METHOD_NOT_FOUND


async def test_a_line_that_is_too_long_is_skipped(tmp_path: Path) -> None:
    async with connect(opener(None, tmp_path)) as wire:
        await wire.initialize()
        await wire.write(b"x" * (MAX_LINE + 100_000) + b"\n")
        answer = await wire.receive()
        assert answer["error"]["code"] == mcp.INVALID_REQUEST
        assert (await wire.ask("ping"))["result"] == {}


async def test_a_storm_of_notifications_and_answers_to_nothing_is_ignored(tmp_path: Path) -> None:
    async with connect(opener(None, tmp_path)) as wire:
        await wire.initialize()
        lines = [
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}',
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}',
            b'{"jsonrpc":"2.0","method":"notifications/unknown"}',
            b'{"jsonrpc":"2.0","id":99,"result":{}}',
            b'{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"?"}}',
        ]
        await wire.write(b"\n".join(lines * 1_000) + b"\n")
        assert (await wire.ask("ping"))["result"] == {}


async def test_an_id_cannot_be_used_twice_at_once_and_not_too_many_requests_run(
    tmp_path: Path,
) -> None:
    patient = Patient()
    async with connect(opener(None, tmp_path, [patient.tool])) as wire:
        await wire.initialize()
        number = await wire.start("tools/call", {"name": "patient"})
        await patient.begun.wait()
        await wire.send({"jsonrpc": "2.0", "id": number, "method": "ping"})
        answer = await wire.receive()
        assert (answer["id"], answer["error"]["code"]) == (number, mcp.INVALID_REQUEST)
        for _ in range(MAX_RUNNING):
            number = await wire.start("tools/call", {"name": "patient"})
        answer = await wire.receive()
        assert (answer["id"], answer["error"]["code"]) == (number, mcp.INTERNAL_ERROR)
        patient.go_on.set()
        ids = {(await wire.receive())["id"] for _ in range(MAX_RUNNING)}
        assert len(ids) == MAX_RUNNING


async def test_progress_is_told_to_those_who_ask_for_it(tmp_path: Path) -> None:
    patient = Patient()
    patient.go_on.set()
    async with connect(opener(None, tmp_path, [patient.tool])) as wire:
        await wire.initialize()
        assert "result" in await wire.call("patient")
        params = {"name": "patient", "_meta": {"progressToken": "mine"}}
        number = await wire.start("tools/call", params)
        told = await wire.receive()
        assert told["method"] == "notifications/progress"
        assert told["params"] == {"progressToken": "mine", "progress": 1, "message": "waiting"}
        assert (await wire.receive())["id"] == number


@pytest.mark.parametrize("is_modern", [False, True])
async def test_cancelling_a_request_stops_the_tool_and_no_answer_comes(
    tmp_path: Path, is_modern: bool
) -> None:
    patient = Patient()
    async with connect(opener(None, tmp_path, [patient.tool])) as wire:
        if not is_modern:
            await wire.initialize()
        params = modern(name="patient") if is_modern else {"name": "patient"}
        number = await wire.start("tools/call", params)
        await patient.begun.wait()
        await wire.notify("notifications/cancelled", {"requestId": number, "reason": "tired"})
        await asyncio.wait_for(patient.ended.wait(), 20)
        next_one = await wire.ask("tools/list", modern())
        assert "result" in next_one


async def test_the_end_of_the_input_ends_the_server_and_what_it_runs(tmp_path: Path) -> None:
    patient = Patient()
    async with connect(opener(None, tmp_path, [patient.tool])) as wire:
        await wire.initialize()
        await wire.start("tools/call", {"name": "patient"})
        await patient.begun.wait()
        wire.hang_up()
        await asyncio.wait_for(wire.serving, 20)
        assert patient.ended.is_set()


async def test_answers_that_are_under_way_are_given_after_the_end_of_the_input(
    tmp_path: Path,
) -> None:
    async with connect(opener(None, tmp_path)) as wire:
        await wire.initialize()
        number = await wire.start("tools/call", {"name": "ls"})
        wire.hang_up()
        assert (await wire.receive())["id"] == number


async def test_a_large_answer_is_given_as_a_whole_after_the_end_of_the_input(
    tmp_path: Path,
) -> None:
    async def draw(_params: Any, _ctx: Context) -> Image:
        return Image("QUJD" * 250_000, "image/png")

    tool = Tool("draw", "Draw.", NOTHING, draw)
    async with connect(opener(None, tmp_path, [tool])) as wire:
        await wire.initialize()
        await wire.start("tools/call", {"name": "draw"})
        wire.hang_up()
        result = (await wire.receive())["result"]
    assert len(result["content"][0]["data"]) == 1_000_000


async def test_a_client_that_reads_no_more_ends_the_server(tmp_path: Path) -> None:
    patient = Patient()
    async with connect(opener(None, tmp_path, [patient.tool])) as wire:
        await wire.initialize()
        await wire.start("tools/call", {"name": "patient"})
        await patient.begun.wait()
        wire.deafen()
        with suppress(asyncio.CancelledError):
            await asyncio.wait_for(wire.serving, 20)
        assert patient.ended.is_set()


async def test_a_configuration_that_cannot_be_used_is_an_error_of_the_request(
    tmp_path: Path,
) -> None:
    async with connect(opener(None, tmp_path / "missing")) as wire:
        await wire.initialize()
        answer = await wire.ask("tools/list")
        assert answer["error"]["code"] == mcp.INTERNAL_ERROR
        assert "is not a directory" in answer["error"]["message"]


async def test_calls_that_repeat_are_stopped_as_in_a_turn(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    config = {"tools": {"loopDetection": {"enabled": True}}}
    async with connect(opener(config, tmp_path)) as wire:
        await wire.initialize()
        for _ in range(60):
            result = (await wire.call("read", path="a.txt"))["result"]
            if result.get("isError"):
                break
        assert result["isError"] is True


async def test_a_tool_that_policy_removed_is_neither_listed_nor_called(tmp_path: Path) -> None:
    config = {"tools": {"deny": ["write"]}}
    async with connect(opener(config, tmp_path)) as wire:
        await wire.initialize()
        listed = (await wire.ask("tools/list"))["result"]["tools"]
        answer = await wire.call("write", path="a.txt", content="x")
    assert "write" not in {each["name"] for each in listed}
    assert answer["error"]["code"] == mcp.INVALID_PARAMS
    assert "tools.deny" in answer["error"]["message"]
    assert not (tmp_path / "a.txt").exists()


NOISY = """
import os, subprocess
from clawkit import Tool, Toolkit
from clawkit.mcp_server.stdio import serve_stdio

async def shout(_params, _ctx):
    print("noise from Python", flush=True)
    os.write(1, b"noise from below\\n")
    said = subprocess.run(["sh", "-c", "echo noise; cat"], timeout=20).returncode
    return f"shouted {said}"

tool = Tool("shout", "Shout.", {"type": "object", "properties": {}}, shout)
serve_stdio(lambda session, workspace, approver: Toolkit.open({}, tools=[tool], allow=["shout"]))
"""


def test_nothing_but_the_protocol_reaches_standard_output(tmp_path: Path) -> None:
    params = modern(name="shout")
    line = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    done = subprocess.run(
        [sys.executable, "-c", NOISY],
        input=json.dumps(line).encode() + b"\n",
        capture_output=True,
        cwd=tmp_path,
        timeout=60,
        check=True,
    )
    [answer] = done.stdout.splitlines()
    assert json.loads(answer)["result"]["content"][0]["text"] == "shouted 0"
    assert done.stderr.decode().splitlines() == [
        *("noise from Python", "noise from below", "noise")
    ]


@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130), (None, 0)])
def test_the_command_ends_with_its_client_and_leaves_no_command_behind(
    tmp_path: Path, how: signal.Signals | None, code: int
) -> None:
    argv = [sys.executable, "-m", "clawkit", "mcp", "serve", "--workspace", str(tmp_path)]
    command = f"echo $$ > {tmp_path}/pid; exec sleep 600"
    config = tmp_path / "clawkit.json5"
    config.write_text('{tools: {exec: {security: "full", ask: "off", host: "gateway"}}}')
    with subprocess.Popen(
        [*argv, "--config", str(config)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        arguments = {"command": command, "background": True, "host": "gateway"}
        params = modern(name="exec", arguments=arguments)
        line = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        server.stdin.write(json.dumps(line).encode() + b"\n")
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())
        assert not answer["result"].get("isError"), answer
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            os.sched_yield()
        if how is None:
            server.stdin.close()
        else:
            server.send_signal(how)
        assert server.wait(60) == code
        assert server.stdout.read() == b""
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_result_that_is_json_is_structured(tmp_path: Path) -> None:
    async def data(_params: Any, _ctx: Context) -> Result:
        return Result.json({"a": 1})

    tool = Tool("data", "Data.", NOTHING, data)
    async with connect(opener(None, tmp_path, [tool])) as wire:
        await wire.initialize()
        result = (await wire.call("data"))["result"]
    assert result["structuredContent"] == {"a": 1}
    assert json.loads(result["content"][0]["text"]) == {"a": 1}
