"""Large requests: decoded aside, and in the order in which they were sent."""

from __future__ import annotations

import threading

from tests.gateway.conftest import Ground
from tests.gateway.test_turns import message

from clawkit.gateway.protocol import BIG, aside


async def test_large_work_is_done_in_a_thread_and_small_work_is_not() -> None:
    here = threading.get_ident()
    assert await aside(BIG, threading.get_ident) == here
    assert await aside(BIG + 1, threading.get_ident) != here


async def test_a_small_message_does_not_overtake_a_large_one(ground: Ground) -> None:
    peer, other = await ground.join(), await ground.join()
    large = await peer.send("chat.send", message("x" * 2_000_000, "large"))
    small = await peer.send("chat.send", message("y", "small", queueMode="followup"))
    bad = await peer.send("chat.send", {"sessionKey": "z" * 2_000_000})
    await other.call("health")
    first, second, third = [
        await peer.until(lambda each, id_=id_: each.get("id") == id_)  # type: ignore[misc]
        for id_ in (large, small, bad)
    ]
    assert first["ok"]
    assert second["ok"]
    assert third["error"]["message"].startswith("invalid chat.send params")
    await peer.until_chat("final", "small")
    history = await peer.call("chat.history", {"sessionKey": "main"})
    words = [each["content"][:1] for each in history["messages"] if each["role"] == "user"]
    assert words == ["x", "y"]
