"""Requests and answers over real connections."""

from __future__ import annotations

import asyncio
import gc
import gzip
import logging

import pytest
from tests.net.parts import LOCAL, OK, answering, get, making_client, read_request, serving
from tests.tables import table

from clawkit.net.client import Client, Response
from clawkit.net.route import NetError, Route


async def test_a_request_arrives_as_it_was_given() -> None:
    async with answering(OK) as server, making_client() as client:
        headers = {"X-Api-Key": " key ", "content-type": "a/b"}
        async with client.stream(
            "POST", server.url("/v1?x=1"), headers=headers, body=b"body"
        ) as response:
            assert await response.read(100) == b"ok"
    assert server.asked[0].line == "POST /v1?x=1 HTTP/1.1"
    assert server.asked[0].body == b"body"
    assert server.asked[0].headers == {
        "host": f"{LOCAL}:{server.port}",
        "x-api-key": "key",
        "content-type": "a/b",
        "accept-encoding": "identity",
        "content-length": "4",
    }


async def test_a_post_without_a_body_says_so_and_a_get_says_nothing() -> None:
    async with answering(OK) as server, making_client() as client:
        await get(client, server.url())
        async with client.stream("POST", server.url(), headers={}):
            pass
    assert [asked.headers.get("content-length") for asked in server.asked] == [None, "0"]


def chunked(*pieces: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in (*pieces, b""))


@table(
    ("answer", "status", "body"),
    [
        (OK, 200, b"ok"),
        (chunked(b"one", b"two"), 200, b"onetwo"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, b""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n" + OK, 200, b"ok"),
        (b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 1\r\n\r\nx", 302, b"x"),
        (b"HTTP/1.1 599 \r\nContent-Length: 0\r\n\r\n", 599, b""),
        (chunked(b"one").replace(b"3\r\n", b"3;note=x\r\n"), 200, b"one"),
        (chunked(b"one")[:-2] + b"Checked: yes\r\n\r\n", 200, b"one"),
        (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", 200, b""),
    ],
)
async def test_an_answer_has_a_status_and_a_body(answer: bytes, status: int, body: bytes) -> None:
    async with answering(answer) as server, making_client() as client:
        assert await get(client, server.url()) == (status, body)
        assert await get(client, server.url()) == (status, body)
    assert server.connections == 1


@table(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n\r\nall of it",
        b"HTTP/1.0 200 OK\r\n\r\nall of it",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 9\r\n\r\nall of it",
    ],
)
async def test_a_connection_that_the_server_ends_is_not_used_again(answer: bytes) -> None:
    async with answering(answer, then_close=True) as server, making_client() as client:
        assert await get(client, server.url()) == (200, b"all of it")
        assert await get(client, server.url()) == (200, b"all of it")
    assert server.connections == 2


async def test_the_answer_to_head_has_no_body() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 500\r\n\r\n"
    async with answering(head) as server, making_client() as client:
        for _ in range(2):
            async with client.stream("HEAD", server.url(), headers={}) as response:
                assert response.headers["content-length"] == "500"
                assert await response.read(10) == b""
    assert server.connections == 1


async def test_headers_have_lower_case_names_and_are_joined() -> None:
    answer = b"HTTP/1.1 200 OK\r\nA-B: 1\r\na-b: 2\r\nC: \xfc\r\nContent-Length: 0\r\n\r\n"
    async with (
        answering(answer) as server,
        making_client() as client,
        client.stream("GET", server.url(), headers={}) as response,
    ):
        assert response.headers == {"a-b": "1, 2", "c": "ü", "content-length": "0"}


async def test_pieces_are_given_out_as_they_come() -> None:
    go_on = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        head, rest = chunked(b"one", b"two").split(b"3\r\ntwo")
        writer.write(head)
        await go_on.wait()
        writer.write(b"3\r\ntwo" + rest)
        await reader.read()

    async with (
        serving(serve) as server,
        making_client() as client,
        client.stream("GET", server.url(), headers={}, idle_s=60) as response,
    ):
        pieces = []
        async for piece in response:
            pieces.append(piece)
            go_on.set()
        assert pieces == [b"one", b"two"]


async def test_reading_stops_at_the_size_that_was_asked_for() -> None:
    body = bytes(3_000_000)
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n" + body
    async with answering(answer) as server, making_client() as client:
        async with client.stream("GET", server.url(), headers={}) as response:
            assert len(await response.read(1_000_000)) == 1_000_000
        async with client.stream("GET", server.url(), headers={}) as response:
            assert await response.read(5_000_000) == body
            assert await response.read(5_000_000) == b""


async def test_a_packed_answer_is_unpacked_although_no_one_asked_for_it() -> None:
    packed = gzip.compress(b"a" * 500_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: GZIP\r\nContent-Length: %d\r\n\r\n" % len(packed)
    async with answering(head + packed) as server, making_client() as client:
        async with client.stream("GET", server.url(), headers={}) as response:
            sizes = [len(piece) async for piece in response]
        assert sum(sizes) == 500_000
        assert max(sizes) <= 65_536
        assert await get(client, server.url()) == (200, b"a" * 500_000)
    assert server.connections == 1


@table(
    ("coding", "body", "kind"),
    [
        (b"br", b"anything", "protocol"),
        (b"gzip", b"anything", "protocol"),
        (b"gzip", gzip.compress(b"anything", mtime=0)[:-3], "closed"),
    ],
)
async def test_what_cannot_be_unpacked_is_an_error(coding: bytes, body: bytes, kind: str) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n"
    async with answering(head % (coding, len(body)) + body) as server, making_client() as client:
        with pytest.raises(NetError) as caught:
            await get(client, server.url())
        await server.ended.wait()
    assert caught.value.kind == kind


@table(
    ("answer", "kind", "words"),
    [
        (b"", "closed", "before it answered"),
        (b"garbage\r\n\r\n", "protocol", "not HTTP/1.1"),
        (b"\x00\xff\x16\x03\x01" * 50 + b"\r\n\r\n", "protocol", "not HTTP/1.1"),
        (b"HTTP/1.1 abc OK\r\n\r\n", "protocol", "not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "protocol", "not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "protocol", "not"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "protocol", "not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: magic\r\n\r\n", "protocol", "not HTTP/1.1"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", "protocol", "not HTTP/1.1"),
        (b"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "protocol", "not HTTP"),
        (b"HTTP/1.1 000 X\r\nContent-Length: 2\r\n\r\nhi" + OK, "protocol", "not HTTP/1.1"),
        (b"RTSP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", "protocol", "not HTTP/1.1"),
        (b"ICE/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", "protocol", "not HTTP/1.1"),
        (b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", "protocol", "not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\nContent-Length: 0\n\n", "protocol", "not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n", "protocol", "not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n", "protocol", "not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", "protocol", "not"),
        (chunked().replace(b"Tr", b"Content-Length: 3\r\nTr"), "protocol", "not HTTP/1.1"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 30, "protocol", "interim responses only"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 40_000, "protocol", "64 KiB of headers"),
        (b"HTTP/1.1 200 OK\r\na: " + b"b" * 70_000 + b"\r\n\r\n", "protocol", "64 KiB of headers"),
        (b"HTTP/1.1 200 OK\r\na: " + b"b" * 900_000, "protocol", "64 KiB of headers"),
        (b"HTTP/1.1 200 O", "closed", "completely"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "closed", "completely"),
        (chunked(b"one")[:-8], "closed", "completely"),
        (chunked(b"one")[:-5], "closed", "completely"),
        (chunked(b"one").replace(b"3\r\n", b"xyz\r\n"), "protocol", "not HTTP/1.1"),
        (chunked(b"one").replace(b"3\r\n", b"4\r\n"), "protocol", "not HTTP/1.1"),
        (chunked()[:-5] + b"3;" + b"x" * 200_000, "protocol", "64 KiB of headers"),
        (chunked() [:-5] + b"f" * 300 + b"\r\n", "protocol", "not HTTP/1.1"),
        (chunked()[:-2] + b"a: b\r\n" * 40_000, "protocol", "64 KiB of headers"),
    ],
)  # fmt: skip
async def test_an_answer_that_breaks_the_rules_is_an_error(
    answer: bytes, kind: str, words: str
) -> None:
    async with answering(answer, then_close=True) as server, making_client() as client:
        with pytest.raises(NetError, match=words) as caught:
            await get(client, server.url(), timeout_s=20)
        await server.ended.wait()
    assert caught.value.kind == kind
    assert f"{LOCAL}:{server.port}" in str(caught.value)
    assert server.connections == 1


@table(
    ("method", "headers", "words"),
    [
        (
            "GET",
            {"x-api-key": "secret\r\nEvil: 1"},
            "x-api-key .* a line break",
        ),
        ("GET", {"x-api-key": "secret\n"}, "x-api-key .* a line break"),
        (
            "GET",
            {"x-api-key": "secret\x00"},
            "x-api-key .* a character that is invalid",
        ),
        (
            "GET",
            {"x-api-key": "secret€"},
            "x-api-key .* a character that is invalid",
        ),
        (
            "GET",
            {"x-api-key": "secret\ud800"},
            "x-api-key .* a character that is invalid",
        ),
        ("GET", {"bad name": "secret"}, "invalid header name"),
        ("GET", {"bad\r\nname": "secret"}, "invalid header name"),
        ("GET", {"": "secret"}, "invalid header name"),
        ("GET", {"ſ": "secret"}, "invalid header name"),
        ("GET", {"x-key": "secret", "X-Key": "secret"}, "X-Key cannot be sent: it is given twice"),
        ("GET", {"Host": "secret"}, "Host is set by clawkit"),
        ("GET", {"Transfer-Encoding": "chunked"}, "Transfer-Encoding is set by clawkit"),
        ("GET", {"content-length": "5"}, "content-length is set by clawkit"),
        ("GET", {"Proxy-Authorization": "secret"}, "is set by clawkit"),
        ("CONNECT", {}, "this method"),
        ("GET / HTTP/1.1\r\nX:", {}, "this method"),
        ("get", {}, "this method"),
    ],
)
async def test_a_request_that_could_be_read_as_two_is_not_sent(
    method: str, headers: dict[str, str], words: str
) -> None:
    async with answering(OK) as server, making_client() as client:
        with pytest.raises(NetError, match=words) as caught:
            async with client.stream(method, server.url(), headers=headers):
                pass
    assert caught.value.kind == "refused"
    assert "secret" not in str(caught.value)
    assert server.connections == 0


async def test_what_latin_1_has_can_be_sent() -> None:
    async with (
        answering(OK) as server,
        making_client() as client,
        client.stream("GET", server.url(), headers={"a": "ü\tx"}),
    ):
        pass
    assert server.asked[0].headers["a"] == "ü\tx"


async def test_a_connection_is_used_again_only_for_the_same_place_and_route() -> None:
    async with answering(OK) as server, making_client({"api.example": [LOCAL]}) as client:
        for _ in range(3):
            await get(client, server.url())
        assert server.connections == 1
        await get(client, server.url(), route=Route(private=True))
        assert server.connections == 2
        await get(client, server.url(host="api.example"))
        assert server.connections == 3
        await get(client, server.url(), route=Route(private=True))
        assert server.connections == 3


async def test_requests_at_the_same_time_have_connections_of_their_own() -> None:
    async with answering(OK) as server, making_client(max_idle=2) as client:
        await asyncio.gather(*(get(client, server.url()) for _ in range(5)))
        assert server.connections == 5
        await asyncio.gather(*(get(client, server.url()) for _ in range(3)))
        assert server.connections == 6


async def test_without_room_for_idle_connections_none_is_kept() -> None:
    async with answering(OK) as server, making_client(max_idle=0) as client:
        await get(client, server.url())
        await get(client, server.url())
    assert server.connections == 2


async def test_an_idle_connection_is_closed_after_its_time() -> None:
    async with answering(OK) as server, making_client(idle_s=0.01) as client:
        await get(client, server.url())
        await server.ended.wait()
        await get(client, server.url())
    assert server.connections == 2


async def test_each_idle_connection_is_closed_after_its_own_time() -> None:
    async with (
        answering(OK) as first,
        answering(OK) as second,
        making_client(idle_s=0.05) as client,
    ):
        await get(client, first.url())
        await asyncio.sleep(0.03)
        await get(client, second.url())
        await first.ended.wait()
        await second.ended.wait()


async def test_a_kept_connection_that_turns_out_dead_is_replaced_once() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await read_request(reader)  # and no answer to that

    async with serving(serve) as server, making_client() as client:
        assert await get(client, server.url()) == (200, b"ok")
        assert await get(client, server.url()) == (200, b"ok")
        assert server.connections == 2


async def test_a_kept_connection_on_which_nothing_comes_is_not_replaced() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await reader.read()

    async with serving(serve) as server, making_client() as client:
        assert await get(client, server.url()) == (200, b"ok")
        with pytest.raises(NetError, match=r"did not answer within 0.02 s"):
            await get(client, server.url(), timeout_s=0.02)
        assert server.connections == 1


async def test_connections_that_died_do_not_take_the_place_of_others() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await writer.drain()
        await hang_up.wait()

    hang_up = asyncio.Event()
    async with (
        answering(OK) as lasting,
        serving(serve) as dying,
        making_client(max_idle=2) as client,
    ):
        await get(client, lasting.url())
        await get(client, dying.url())
        hang_up.set()
        await dying.ended.wait()
        await get(client, lasting.url("/", host="localhost"))
        await get(client, lasting.url())
        assert lasting.connections == 2


async def test_a_new_connection_that_dies_is_not_replaced() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)

    async with serving(serve) as server, making_client() as client:
        with pytest.raises(NetError) as caught:
            await get(client, server.url())
        assert caught.value.kind == "closed"
        assert server.connections == 1


async def test_a_kept_connection_that_dies_in_the_middle_of_an_answer_is_not_replaced() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await read_request(reader)
        writer.write(b"HTTP/1.1 200")
        await writer.drain()
        writer.write_eof()
        await reader.read()

    async with serving(serve) as server, making_client() as client:
        await get(client, server.url())
        with pytest.raises(NetError) as caught:
            await get(client, server.url())
        assert caught.value.kind == "closed"
        assert server.connections == 1


async def test_a_connection_on_which_more_came_than_the_answer_is_not_used_again() -> None:
    async with answering(OK + OK, OK) as server, making_client() as client:
        assert await get(client, server.url()) == (200, b"ok")
        assert await get(client, server.url()) == (200, b"ok")
        assert server.connections == 2


async def test_a_body_where_none_may_be_ends_the_use_of_a_connection() -> None:
    bold = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    async with answering(bold) as server, making_client() as client:
        for _ in range(2):
            async with client.stream("HEAD", server.url(), headers={}) as response:
                assert await response.read(10) == b""
        assert server.connections == 2


async def test_leaving_early_closes_the_connection() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf"
    async with answering(head, OK) as server, making_client() as client:
        async with client.stream("GET", server.url(), headers={}) as response:
            async for piece in response:
                assert piece == b"half"
                break
        await server.ended.wait()
        assert await response.read(10) == b""
        await get(client, server.url())
        assert server.connections == 2


async def test_leaving_with_an_error_closes_the_connection() -> None:
    async with answering(OK) as server, making_client() as client:
        with pytest.raises(ZeroDivisionError):
            async with client.stream("GET", server.url(), headers={}):
                raise ZeroDivisionError
        await server.ended.wait()


async def test_what_came_before_a_mistake_is_given_out() -> None:
    answer = chunked(b"one", b"two").replace(b"3\r\ntwo", b"xyz\r\n")
    async with answering(answer) as server, making_client() as client:
        async with client.stream("GET", server.url(), headers={}) as response:
            assert await anext(response) == b"one"
            with pytest.raises(NetError, match=r"not HTTP/1\.1"):
                await anext(response)
        async with client.stream("GET", server.url(), headers={}) as response:
            assert await anext(response) == b"one"
        assert await server.ended.wait()
        assert server.connections == 2


async def test_a_server_that_sends_faster_than_its_answer_is_read_has_to_wait() -> None:
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 60000000\r\n\r\n")
        for _ in range(600):
            writer.write(bytes(100_000))
            await writer.drain()
            sent += 100_000
        await reader.read()

    async with (
        serving(serve) as server,
        making_client() as client,
        client.stream("GET", server.url(), headers={}) as response,
    ):
        before = -1
        while sent > before:
            before = sent
            for _ in range(50):
                await asyncio.sleep(0)
        assert sent < 50_000_000
        size = 0
        async for piece in response:
            size += len(piece)
        assert size == 60_000_000


async def test_a_connection_is_kept_when_only_the_end_of_the_body_was_not_read() -> None:
    async with answering(chunked(b"data: [DONE]\n\n")) as server, making_client() as client:
        for _ in range(2):
            async with client.stream("GET", server.url(), headers={}) as response:
                async for piece in response:
                    assert piece == b"data: [DONE]\n\n"
                    break
    assert server.connections == 1


async def test_an_early_answer_is_read_while_a_large_body_is_still_being_sent() -> None:
    answer = b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await reader.read()

    async def serve_without_reading(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()

    body = bytes(30_000_000)
    for way in (serve, serve_without_reading):
        async with (
            serving(way) as server,
            making_client() as client,
            client.stream("POST", server.url(), headers={}, body=body) as response,
        ):
            assert response.status == 413
            assert await response.read(10) == b"no"


async def test_a_large_body_arrives_whole() -> None:
    body = bytes(range(256)) * 20_000
    async with answering(OK) as server, making_client() as client:
        for _ in range(2):
            async with client.stream("POST", server.url(), headers={}, body=body) as response:
                assert response.status == 200
    assert [asked.body == body for asked in server.asked] == [True, True]
    assert server.connections == 1


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
    await reader.read()


@table(
    ("serve", "limits", "words"),
    [
        (silent, {"timeout_s": None}, "did not answer within {} s"),
        (silent, {"timeout_s": None, "idle_s": 60}, "did not answer within {} s"),
        (half, {"timeout_s": None}, "did not complete its answer within {} s"),
        (half, {"timeout_s": None, "idle_s": 60}, "did not complete its answer within {} s"),
        (half, {"timeout_s": 60, "idle_s": None}, "sent nothing for {} s"),
    ],
)
async def test_what_takes_too_long_is_given_up(serve: object, limits: object, words: str) -> None:
    assert callable(serve)
    assert isinstance(limits, dict)
    for seconds in (0.05, 1, 20):  # a busy machine may not have begun by the first
        given = {name: seconds if value is None else value for name, value in limits.items()}
        async with serving(serve) as server, making_client() as client:
            with pytest.raises(NetError) as caught:
                await get(client, server.url(), **given)
            assert caught.value.kind == "timeout"
            await server.ended.wait()
        if words.format(seconds) in str(caught.value):
            break
    assert words.format(seconds) in str(caught.value)


@pytest.mark.parametrize("serve", [silent, half])
async def test_cancelling_closes_the_connection_and_leaves_nothing_behind(
    serve: object, caplog: pytest.LogCaptureFixture
) -> None:
    assert callable(serve)
    caplog.set_level(logging.DEBUG)
    arrived = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        arrived.set()
        await serve(reader, writer)

    async with serving(accept) as server, making_client() as client:
        task = asyncio.create_task(get(client, server.url()))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.ended.wait()
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


async def test_closing_the_client_ends_what_is_running() -> None:
    async with serving(half) as server, making_client() as client:
        async with client.stream("GET", server.url(), headers={}) as response:
            assert await anext(response) == b"half"
            reading = asyncio.create_task(response.read(10))
            await asyncio.sleep(0)
            await client.close()
            with pytest.raises(NetError) as caught:
                await reading
            assert caught.value.kind == "closed"
        with pytest.raises(NetError, match="the client is closed"):
            await get(client, server.url())
        assert server.connections == 1


def test_nothing_is_left_open_when_the_loop_ends_in_the_middle() -> None:
    async def main() -> None:
        async with serving(half) as server:
            client = Client()
            exchange = client.stream("GET", server.url(), headers={})
            response = await exchange.__aenter__()
            assert isinstance(response, Response)
            await client.close()

    asyncio.run(main())
    gc.collect()


@table("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_answer_like_others(status: int) -> None:
    head = f"HTTP/1.1 {status} Moved\r\nLocation: /c\r\nContent-Length: 0\r\n\r\n"
    async with answering(head.encode()) as server, making_client() as client:
        url = server.url("/a/b")
        async with client.stream("POST", url, headers={}, body=b"x") as response:
            assert (response.status, response.headers["location"]) == (status, "/c")
    assert len(server.asked) == 1
