"""What OpenClaw's own clients showed: requests that they send and that were refused or slow."""

from __future__ import annotations

import asyncio
import json
import socket

import msgspec
from tests.gateway.conftest import Ground, serve

from clawkit.gateway.protocol import encode
from clawkit.gateway.serve import listen
from clawkit.testing import Gate, ScriptedModel


async def test_small_frames_are_sent_at_once() -> None:
    """A delay of small packets would hold back every second event by 40 ms."""
    found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        used = writer.get_extra_info("socket")
        found.set_result(used.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    sock = listen("127.0.0.1", 0)
    async with await asyncio.start_server(accept, sock=sock):
        _, writer = await asyncio.open_connection(*sock.getsockname())
        assert await found
        writer.close()


async def test_a_list_may_be_long(ground: Ground) -> None:
    peer = await ground.join()
    found = await peer.call("sessions.list", {"limit": 10_000})
    assert found["limitApplied"] == 10_000


async def test_a_client_is_told_which_of_its_messages_were_accepted() -> None:
    gate = Gate("first")
    async with serve({}, ScriptedModel(gate, "second")) as ground:
        peer = await ground.join()
        for run in ("a", "b"):
            params = {"sessionKey": "main", "message": run, "idempotencyKey": run}
            await peer.call("chat.send", params | {"queueMode": "followup"})
        await gate.reached.wait()
        wanted = {"sessionKey": "main", "inputRunIds": ["a", "b", "c"]}
        found = await peer.call("chat.history", wanted)
        pending = [{"runId": id_, "state": "pending"} for id_ in ("a", "b")]
        assert found["inputReceipts"] == pending
        gate.release()
        await peer.until_chat("final", "b")
        found = await peer.call("chat.history", wanted)
        assert found["inputReceipts"] == []
        assert "inputReceipts" not in await peer.call("chat.history", {"sessionKey": "main"})


async def test_clients_are_listed_beside_text_that_is_not_unicode(ground: Ground) -> None:
    """The list is JSON already when it is put into an answer."""
    peer = await ground.join()
    [_, me] = peer.hello["snapshot"]["presence"]
    assert (me["clientId"], me["roles"]) == ("cli", ["operator"])
    raw = msgspec.Raw(b'{"clientId": "cli"}')
    assert json.loads(encode(["\ud800", raw])) == ["\ufffd", {"clientId": "cli"}]
