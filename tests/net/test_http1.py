"""HTTP/1.1 on one connection."""

from __future__ import annotations

import asyncio
import gc
import socket

import pytest

from clawkit.net.http1 import ByteStream, HttpConnection
from clawkit.net.route import NetError


async def test_a_request_that_is_not_http_is_refused_without_showing_it() -> None:
    connection = HttpConnection(ByteStream(), "api.example:443")
    with pytest.raises(NetError, match=r"^the request to api.example:443 is not valid HTTP$"):
        connection.send("GET", "/", [(b"Host", b"a"), (b"bad name", b"secret")], b"")


@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")
def test_a_connection_of_a_closed_event_loop_can_be_closed() -> None:
    ours, theirs = socket.socketpair()

    async def connect() -> ByteStream:
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(ByteStream, sock=ours))[1]

    with theirs:
        stream = asyncio.run(connect())
        stream.close()
        assert stream.is_over
        del stream
        gc.collect()
