"""`/sessions/<key>/history` and `/control-ui-config.json`."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from tests.gateway.conftest import TOKEN, Device, Ground, serve
from tests.gateway.raw_http import send

from clawkit.gateway.formats import MAX_BYTES
from clawkit.models.protocols import Facts
from clawkit.testing import ScriptedModel, call
from clawkit.version import __version__

CONFIG = "/control-ui-config.json"


async def say(ground: Ground, *texts: str, session: str = "main") -> None:
    peer = await ground.join()
    for number, text in enumerate(texts):
        params = {"message": text, "idempotencyKey": f"{session}-{number}", "sessionKey": session}
        await peer.call("agent", params)
        await peer.call("agent.wait", {"runId": f"{session}-{number}"})


def path(key: str, query: str = "") -> str:
    return f"/sessions/{quote(key, safe='')}/history{query}"


async def walk(ground: Ground, key: str, limit: int) -> list[list[Any]]:
    """All pages, the newest first."""
    pages, cursor = list[list[Any]](), ""
    while True:
        found = await send(ground, "GET", path(key, f"?limit={limit}{cursor}"))
        assert found.status == 200
        shown = found.json
        assert shown["items"] == shown["messages"]
        pages.append(shown["messages"])
        assert shown["hasMore"] is (shown["nextCursor"] is not None)
        if not shown["hasMore"]:
            return pages
        cursor = f"&cursor={shown['nextCursor']}"


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7, 1000])
async def test_pages_have_every_message_once(limit: int) -> None:
    async with serve({}, ScriptedModel(call("ls", {}), then="ok")) as ground:
        await say(ground, "one", "two")
        pages = await walk(ground, "main", limit)
        assert all(len(page) <= limit for page in pages)
        assert all(pages)
        messages = [each for page in reversed(pages) for each in page]
        roles = ["user", "assistant", "toolResult", "assistant", "user", "assistant"]
        assert [each["role"] for each in messages] == roles
        numbers = [each["__openclaw"]["seq"] for each in messages]
        assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("limit", [19, 20, 21, 40, 50])
async def test_long_pages_have_every_message_once_too(limit: int) -> None:
    async with serve({}) as ground:
        await say(ground, *map(str, range(21)))
        pages = await walk(ground, "main", limit)
        assert [len(page) for page in pages[:-1]] == [limit] * (len(pages) - 1)
        numbers = [each["__openclaw"]["seq"] for page in reversed(pages) for each in page]
        assert numbers == list(range(1, 43))


async def test_a_cursor_stays_where_it_is_when_more_is_said() -> None:
    async with serve({}) as ground:
        await say(ground, "one", "two", session="talk")
        first = (await send(ground, "GET", path("talk", "?limit=2"))).json
        assert first["messages"][0]["content"] == "two"
        assert first["sessionKey"] == "agent:main:talk"
        peer = await ground.join()
        more = {"message": "three", "idempotencyKey": "more", "sessionKey": "talk"}
        await peer.call("agent", more)
        await peer.call("agent.wait", {"runId": "more"})
        query = f"?limit=2&cursor={first['nextCursor']}"
        second = (await send(ground, "GET", path("agent:main:talk", query))).json
        assert second["messages"][0]["content"] == "one"
        assert second["hasMore"] is False


async def test_a_page_is_not_larger_than_an_answer_may_be() -> None:
    model = ScriptedModel(then="x" * 1_000_000, facts=Facts(context_window=10**8))
    async with serve({}, model) as ground:
        await say(ground, *"1234567")
        older, newer = (await walk(ground, "main", 1000))[::-1]
        assert len(older) + len(newer) == 14
        assert 900_000 * len(newer) // 2 < MAX_BYTES


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (path("none"), 404),
        (path("agent:ghost:x"), 400),
        (path("main", "?limit=0"), 400),
        (path("main", "?limit=1001"), 400),
        (path("main", "?limit=many"), 400),
        (path("main", "?limit="), 400),
        (path("main", "?cursor=0"), 400),
        (path("main", "?cursor=-1"), 400),
        (path("main", "?cursor=99999999999999999999"), 400),
        (path("main", "?cursor=abc"), 400),
        (path("../../etc/passwd"), 404),
        ("/sessions/history", 404),
        ("/sessions/main", 404),
    ],
)
async def test_bad_questions_are_refused(ground: Ground, target: str, status: int) -> None:
    await say(ground, "one")
    found = await send(ground, "GET", target)
    assert found.status == status
    assert found.json["error"]["message"]


@pytest.mark.parametrize("target", [path("main"), CONFIG])
async def test_others_are_kept_out(ground: Ground, target: str) -> None:
    assert (await send(ground, "GET", target, login=False)).status == 401
    wrong = {"Authorization": "Bearer wrong"}
    assert (await send(ground, "GET", target, headers=wrong, login=False)).status == 401
    assert (await send(ground, "GET", f"{target}?token={TOKEN}", login=False)).status == 401
    for headers in ({"Host": "evil.test"}, {"Origin": "http://evil.test"}):
        assert (await send(ground, "GET", target, headers=headers)).status == 403
    posted = await send(ground, "POST", target, {})
    assert (posted.status, posted.headers["allow"]) == (405, "GET, HEAD")


async def test_a_page_learns_who_answers() -> None:
    who = {"id": "main", "identity": {"name": "Claw", "emoji": "🦞"}}
    async with serve({"agents": {"list": [who]}}) as ground:
        found = await send(ground, "GET", CONFIG)
        assert found.status == 200
        assert found.json == {
            "basePath": "",
            "assistantName": "Claw",
            "assistantAvatar": "🦞",
            "assistantAgentId": "main",
            "serverVersion": __version__,
            "serverBuildId": __version__,
            "terminalEnabled": False,
        }
        assert found.headers["cache-control"] == "no-store"


async def test_a_device_reads_it_with_its_token(ground: Ground, device: Device) -> None:
    peer = await ground.join(device=device)
    bearer = {"Authorization": f"Bearer {peer.hello['auth']['deviceToken']}"}
    assert (await send(ground, "GET", CONFIG, headers=bearer, login=False)).status == 200
    assert (await send(ground, "GET", path("main"), headers=bearer, login=False)).status == 401
    ground.gateway.devices.revoke(device.id, "operator", 1)
    assert (await send(ground, "GET", CONFIG, headers=bearer, login=False)).status == 401


async def test_a_node_does_not_read_it(ground: Ground, device: Device) -> None:
    peer = await ground.join([], device, client=("node-host", "node"), role="node")
    bearer = {"Authorization": f"Bearer {peer.hello['auth']['deviceToken']}"}
    assert (await send(ground, "GET", CONFIG, headers=bearer, login=False)).status == 401


async def test_without_the_control_page_the_path_is_not_found() -> None:
    async with serve({"gateway": {"controlUi": {"enabled": False}}}) as ground:
        assert (await send(ground, "GET", CONFIG)).status == 404
