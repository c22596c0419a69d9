"""The memory of an agent over the gateway."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.conftest import serve
from tests.memory.embedding_server import embedding

SECRET = "sk-very-secret-value-123456"


def config(work: Path, **search: Any) -> dict[str, Any]:
    helper = {"id": "helper", "memory": {"search": {"enabled": False}}}
    agents = {"defaults": {"workspace": str(work)}, "list": [{"id": "main"}, helper]}
    return {"agents": agents, "memory": {"search": search}}


@pytest.fixture
def work(workspace: Path) -> Path:
    (workspace / "memory").mkdir()
    (workspace / "MEMORY.md").write_text(f"Ada prefers green tea.\n\ntoken: {SECRET}\n")
    for day in range(10, 40):
        (workspace / "memory" / f"{day}.md").write_text(f"Tea for the guests, number {day}.\n")
    return workspace


async def test_notes_are_found(work: Path) -> None:
    async with serve(config(work)) as ground:
        peer = await ground.join(["operator.read"])
        found = await peer.call("memory.search", {"query": "What does Ada prefer?"})
        first = found["results"][0]
        assert {key: first[key] for key in ("path", "startLine", "endLine", "source")} == {
            "path": "MEMORY.md",
            "startLine": 1,
            "endLine": 3,
            "source": "memory",
        }
        assert "green tea" in first["snippet"]
        assert SECRET not in str(found)
        assert isinstance(first["score"], float)
        del found["results"]
        assert found == {"agentId": "main", "provider": "none", "searchMode": "fts-only"}
        for given, count in (({}, 20), ({"maxResults": 3}, 3), ({"maxResults": 99}, 31)):
            asked = {"query": "tea", "agentId": "main", "minScore": 0, **given}
            assert len((await peer.call("memory.search", asked))["results"]) == count
        some = await peer.call("memory.search", {"query": "Ada tea", "minScore": 0.9})
        assert len(some["results"]) == 1


async def test_invalid_searches_are_refused(work: Path) -> None:
    async with serve(config(work)) as ground:
        peer = await ground.join(["operator.read"])
        blank = await peer.refused("memory.search", {"query": "  "})
        assert (blank["code"], "query is empty" in blank["message"]) == ("INVALID_REQUEST", True)
        long = await peer.refused("memory.search", {"query": "x" * 2_001})
        assert long["code"] == "INVALID_REQUEST"
        for method, params in (("memory.search", {"query": "x"}), ("doctor.memory.status", {})):
            error = await peer.refused(method, {**params, "agentId": "nope"})
            assert error["message"] == "unknown agent id 'nope'"
            error = await peer.refused(method, {**params, "agentId": "helper"})
            assert error["code"] == "UNAVAILABLE"
            assert "memory.search.enabled is false" in error["message"]
        assert not Path(os.environ["CLAWKIT_HOME"], "memory").exists()


async def test_the_status_tells_what_is_indexed_and_whether_vectors_can_be_made(work: Path) -> None:
    async with serve(config(work)) as ground:
        peer = await ground.join(["operator.read"])
        found = await peer.call("doctor.memory.status", {"probe": True})
        assert (found["agentId"], found["provider"]) == ("main", "none")
        assert (found["files"], found["pending"], found["problems"]) == (31, 0, [])
        why = "no embedding provider is configured"
        assert found["embedding"] == {"ok": False, "checked": False, "error": why}
    async with embedding() as server:
        remote = {"baseUrl": server.server.url("/v1"), "apiKey": SECRET}
        search = {"provider": "openai", "remote": remote}
        async with serve(config(work, **search)) as ground:
            peer = await ground.join(["operator.read"])
            found = await peer.call("doctor.memory.status")
            assert (found["provider"], server.asked) == ("openai", [])
            why = "not checked; use probe"
            assert found["embedding"] == {"ok": False, "checked": False, "error": why}
            found = await peer.call("doctor.memory.status", {"deep": True})
            assert found["embedding"] == {"ok": True, "checked": True, "error": ""}
            assert server.asked
            while (await peer.call("doctor.memory.status"))["embedded"] < 31:
                await asyncio.sleep(0.01)
            found = await peer.call("memory.search", {"query": "tea"})
            assert found["searchMode"] == "hybrid"
            # Every passage is sent once.
            sent = [each for each in server.documents() if each.startswith("10")]
            assert len(sent) == 1
    async with serve(config(work, provider="openai")) as ground:
        found = await (await ground.join()).call("doctor.memory.status")
        assert (found["embedding"]["ok"], found["embedding"]["checked"]) == (False, True)
        assert "OPENAI_API_KEY" in found["embedding"]["error"]
        assert found["problems"] == [found["embedding"]["error"]]
