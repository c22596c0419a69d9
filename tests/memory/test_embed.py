"""Embeddings: requests to services, failures, and the mix with keywords."""

from __future__ import annotations

import array
import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.memory.embedding_server import SIZE, embedding, texts_of, vector_of
from tests.memory.test_service import write_notes

from clawkit.config.load import loads
from clawkit.memory.background import STOP_S
from clawkit.memory.embed import EmbedTimes, Purpose
from clawkit.memory.service import LocalMemory, open_memory
from clawkit.models.protocols import ModelError
from clawkit.redact import Redactor

NOTES = {
    "MEMORY.md": "The doctor for teeth has a practice in Elm Street.",
    "memory/car.md": "The car was repaired in spring, and needs new tyres.",
    "memory/trip.md": "A journey to Porto with the whole family.",
}


HASTY = EmbedTimes(pauses_s=(0.0, 0.0))


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLAWKIT_HOME", str(tmp_path / "home"))
    write_notes(tmp_path / "work", NOTES)
    return tmp_path / "work"


def opened(work: Path, search: dict[str, Any], **more: Any) -> LocalMemory:
    loaded = loads(json.dumps({"memory": {"search": search}}))
    return open_memory(loaded, "main", str(work), **{"times": HASTY, **more})


async def test_five_services_are_asked_each_in_its_way(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {
        "openai": ("/v1/embeddings", "authorization", {"model": "text-embedding-3-small"}),
        "gemini": ("/v1/models/gemini-embedding-001:batchEmbedContents", "x-goog-api-key", {}),
        "voyage": ("/v1/embeddings", "authorization", {"input_type": "document"}),
        "mistral": ("/v1/embeddings", "authorization", {"model": "mistral-embed"}),
        "ollama": ("/api/embed", "authorization", {"model": "nomic-embed-text"}),
        "openai-compatible": ("/v1/embeddings", "authorization", {"model": "mine"}),
    }
    async with embedding() as server:
        for provider, (path, header, body) in expected.items():
            server.asked.clear()
            learned: list[str] = []
            remote = {
                "baseUrl": server.server.url("/v1"),
                "apiKey": "sk-secret-0123456789",
                "headers": {"X-Team": "seven"},
            }
            model = {"model": "mine"} if provider == "openai-compatible" else {}
            search = {"provider": provider, "remote": remote, **model}
            memory = opened(work, search, learn=learned.extend)
            try:
                status = await memory.index(rebuild=True)
                assert (status.embedded, status.chunks, status.problems) == (3, 3, []), provider
                found = await memory.search("physician")
                # Only the vectors know that these are the same.
                assert found.hits[0].path == "MEMORY.md", provider
                assert (found.mode, found.provider, found.warning) == ("hybrid", provider, "")
                assert found.model == (body.get("model") or found.model)
            finally:
                await memory.close()
            sent = server.asked[0]
            assert sent.line == f"POST {path} HTTP/1.1"
            assert sent.headers[header].endswith("sk-secret-0123456789")
            assert sent.headers["x-team"] == "seven"
            assert json.loads(sent.body).items() >= body.items()
            assert "sk-secret-0123456789" in learned
            kind = json.loads(server.asked[-1].body)
            if provider == "voyage":
                assert kind["input_type"] == "query"
            if provider == "gemini":
                assert kind["requests"][0]["taskType"] == "RETRIEVAL_QUERY"


async def test_the_key_of_memory_is_sent_as_the_provider_wants_keys(work: Path) -> None:
    ways = {
        "authorization": {"mode": "authorization-bearer", "token": "sk-of-models-0123"},
        "x-lab": {"mode": "header", "headerName": "X-Lab", "value": "sk-of-models-0123"},
    }
    for header, auth in ways.items():
        async with embedding() as server:
            lab = {"baseUrl": server.server.url("/v1"), "request": {"auth": auth}}
            search = {"provider": "lab", "model": "m", "remote": {"apiKey": "sk-of-memory-0123"}}
            config = {"models": {"providers": {"lab": lab}}, "memory": {"search": search}}
            memory = open_memory(loads(json.dumps(config)), "main", str(work), times=HASTY)
            try:
                status = await memory.index(rebuild=True)
                assert (status.embedded, status.problems) == (3, [])
            finally:
                await memory.close()
            assert server.asked[0].headers[header].endswith("sk-of-memory-0123")
            assert "sk-of-models" not in str(server.asked[0].headers)


async def test_only_headers_that_may_be_credentials_are_learned(work: Path) -> None:
    headers = {
        "Accept": "application/json",
        "X-Client": "tea-timer",
        "X-Team-Key": "short-key",
        "X-Lab": "q8Zr.41/unknown-form",
    }
    async with embedding() as server:
        remote = {"baseUrl": server.server.url("/v1"), "headers": headers}
        learned: list[str] = []
        memory = opened(work, {"provider": "openai", "remote": remote}, learn=learned.extend)
        try:
            assert (await memory.index()).embedded == 3
        finally:
            await memory.close()
        assert server.asked[0].headers["x-client"] == "tea-timer"
    assert {*filter(None, learned)} == {"short-key", "q8Zr.41/unknown-form"}


async def test_input_types_and_length_as_configured(work: Path) -> None:
    async with embedding() as server:
        remote = {"baseUrl": server.server.url("/v1")}
        search = {
            "provider": "voyage",
            "remote": remote,
            "outputDimensionality": 32,
            "inputType": "any",
            "queryInputType": "asks",
        }
        memory = opened(work, search)
        try:
            await memory.index()
            await memory.search("car")
        finally:
            await memory.close()
        documents, query = (json.loads(asked.body) for asked in server.asked)
        assert (documents["input_type"], query["input_type"]) == ("any", "asks")
        assert documents["output_dimension"] == 32
        # The key of a provider is not sent to another address than its own.
        assert "authorization" not in server.asked[0].headers


async def test_notes_are_sent_nowhere_unless_configured(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with embedding() as server:
        provider = {"openai": {"baseUrl": server.server.url("/v1"), "models": []}}
        for given, is_sent, key in (
            ({}, False, "sk-0123456789abcdef"),
            ({"provider": "none"}, False, "sk-0123456789abcdef"),
            ({"provider": "auto"}, False, ""),
            ({"provider": "auto"}, True, "sk-0123456789abcdef"),
            ({"provider": "openai"}, True, "sk-0123456789abcdef"),
        ):
            server.asked.clear()
            monkeypatch.setenv("OPENAI_API_KEY", key)
            # A server on this machine needs no key.
            models = {"providers": provider if key else {}}
            config = {"memory": {"search": given}, "models": models}
            loaded = loads(json.dumps(config), env={"OPENAI_API_KEY": key})
            memory = open_memory(loaded, "main", str(work))
            try:
                await memory.index(rebuild=True)
                found = await memory.search("car")
                assert found.hits[0].path == "memory/car.md"
                assert bool(server.asked) is (found.mode == "hybrid") is is_sent, given
                if is_sent:
                    assert server.asked[0].headers["authorization"] == f"Bearer {key}"
            finally:
                await memory.close()


async def test_only_new_texts_are_embedded(work: Path) -> None:
    async with embedding() as server:
        remote = {"baseUrl": server.server.url()}
        for cache in (True, False):
            search = {"provider": "openai", "remote": remote, "cache": {"enabled": cache}}
            memory = opened(work, search)
            try:
                await memory.index(rebuild=True)
                server.asked.clear()
                (work / "memory" / "trip.md").write_text("A journey to Faro." + " " * cache)
                assert (await memory.index()).embedded == 3
                assert server.documents() == ["trip\nA journey to Faro." + " " * cache]
                server.asked.clear()
                assert (await memory.index(rebuild=True)).embedded == 3
                assert bool(server.asked) is not cache
            finally:
                await memory.close()


async def test_another_model_embeds_again_while_keywords_serve(work: Path) -> None:
    async with embedding() as server:
        remote = {"baseUrl": server.server.url()}
        first = opened(work, {"provider": "openai", "remote": remote})
        await first.index()
        await first.close()
        search = {"provider": "openai", "model": "other", "remote": remote}
        second = opened(work, search)
        try:
            server.gate.clear()
            found = await second.search("repaired car")
            assert (found.mode, found.hits[0].path) == ("keyword", "memory/car.md")
            server.gate.set()
            async with asyncio.timeout(10):
                while (await second.search("physician")).mode == "keyword":
                    await asyncio.sleep(0.01)
            assert (await second.status()).embedded == 3
        finally:
            await second.close()


async def test_what_a_service_can_do_wrong(work: Path) -> None:
    quota = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    rows = [{"embedding": [1.0] * SIZE}] * 2
    cases: list[tuple[int, Any, int, str]] = [
        (429, quota, 1, "no credit or quota left"),
        (401, {"error": {"message": "bad key sk-secret-0123456789"}}, 1, "rejected the credential"),
        (500, {"error": {"message": "oops"}}, 3, "failed"),
        (200, b"<html>", 1, "no embeddings"),
        (200, {"data": rows}, 1, "2 vectors for 3 texts"),
        (200, {"data": [*rows, {"embedding": [1.0]}]}, 1, "unusable length"),
        (200, {"data": [{"embedding": []}] * 3}, 1, "unusable length"),
        (200, {"data": [{"embedding": ["x"]}] * 3}, 1, "no embeddings"),
        (200, b'{"data": [{"embedding": [1e999]}, {"embedding": [1]}, {"embedding": [1]}]}', 1, ""),
        (200, b'{"embeddings": [[NaN]]}', 1, "no embeddings"),
        (200, {"data": [{"embedding": [1.0] * 8_193}] * 3}, 1, "unusable length"),
        (200, b"[" + b"1," * 1_000_000, 1, "no embeddings"),
        (307, b"", 1, "HTTP 307"),
    ]
    async with embedding() as server:
        remote = {"baseUrl": server.server.url(), "apiKey": "sk-secret-0123456789"}
        for status, answer, tries, words in cases:
            server.asked.clear()
            server.refuse = lambda _asked, given=(status, answer): given  # type: ignore[misc]
            memory = opened(work, {"provider": "openai", "remote": remote})
            try:
                await memory.index()
                assert len(server.asked) == tries, words
                found = await memory.search("car")
                # Not asked again at once, and keywords go on.
                assert len(server.asked) == tries
                assert (found.mode, found.hits[0].path) == ("keyword", "memory/car.md")
                assert words in found.warning
                assert "0123456789" not in found.warning
                # It is configured elsewhere.
                assert status == 200 or "models.providers" not in found.warning
                assert any(words in each for each in (await memory.status()).problems)
            finally:
                await memory.close()


async def test_a_request_that_is_too_long_is_split(work: Path) -> None:
    async with embedding() as server:
        too_long = {"error": {"message": "maximum context length exceeded"}}
        server.refuse = lambda asked: (
            (400, too_long) if len(json.loads(asked.body)["input"]) > 1 else None
        )
        memory = opened(work, {"provider": "openai", "remote": {"baseUrl": server.server.url()}})
        try:
            assert (await memory.index()).embedded == 3
        finally:
            await memory.close()


async def test_a_passage_that_is_too_long_is_shortened_and_blocks_no_other(work: Path) -> None:
    (work / "memory" / "long.md").write_text("the long journey " * 80)
    async with embedding() as server:
        too_long = {"error": {"message": "maximum context length exceeded"}}
        server.refuse = lambda asked: (
            (400, too_long) if max(map(len, json.loads(asked.body)["input"])) > 500 else None
        )
        memory = opened(work, {"provider": "openai", "remote": {"baseUrl": server.server.url()}})
        try:
            status = await memory.index()
            assert (status.embedded, status.problems) == (4, [])
            # One that is always too long is an error, not a loop.
            server.refuse = lambda _asked: (400, too_long)
            (work / "memory" / "trip.md").write_text("Another journey")
            assert (await memory.index()).embedded == 3
        finally:
            await memory.close()


async def test_a_service_that_changes_the_length_of_its_vectors(work: Path) -> None:
    async with embedding() as server:
        search = {"provider": "openai", "remote": {"baseUrl": server.server.url()}}
        memory = opened(work, search)
        try:
            assert (await memory.index()).embedded == 3
            rows = [{"embedding": [1e308, -1e308, 5e-324, 0.0, 1.0, 2.0, 3.0, 4.0]}]
            server.refuse = lambda asked: (
                200,
                {"data": rows * len(json.loads(asked.body)["input"])},
            )
            (work / "memory" / "trip.md").write_text("A journey to Faro")
            for embedded in (1, 3):
                assert (await memory.index()).embedded == embedded
            assert (await memory.search("car")).mode == "hybrid"
        finally:
            await memory.close()


async def test_vectors_of_another_length_each_time_are_not_made_at_each_search(work: Path) -> None:
    async with embedding() as server:
        server.refuse = lambda asked: (
            200,
            {"data": [{"embedding": [1.0] * (len(server.asked) + 1)}] * len(texts_of(asked))},
        )
        memory = opened(work, {"provider": "openai", "remote": {"baseUrl": server.server.url()}})
        try:
            warned = 0
            for number in range(200):
                (work / "memory" / "trip.md").write_text(f"Journey number {number}")
                warned += "changed the length" in (await memory.search("car")).warning
                if warned == 3:
                    break
                await asyncio.sleep(0.05)
            notes = [asked for asked in server.asked if texts_of(asked) != ["car"]]
            assert 1 <= len(notes) <= 2
            assert warned == 3
        finally:
            await memory.close()


class _Half:
    """An embedder that fails for passages while a query is under way."""

    provider, model = "half", "one"

    def __init__(self) -> None:
        self.asked, self.answer = asyncio.Event(), asyncio.Event()

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:
        if purpose == "query":
            self.asked.set()
            await self.answer.wait()
            return [[1.0] for _ in texts]
        await self.asked.wait()
        raise ModelError("server", "out of order")


async def test_an_answer_does_not_hide_that_another_request_has_failed_meanwhile(
    work: Path,
) -> None:
    half = _Half()
    memory = opened(work, {}, plugged=half)
    try:
        first = asyncio.create_task(memory.search("car"))
        await half.asked.wait()
        while not memory._embedding.problem:
            await asyncio.sleep(0.001)
        half.answer.set()
        await first
        assert (await memory.search("car")).warning.startswith("out of order")
    finally:
        await memory.close()


async def test_the_batch_in_flight_is_stored_when_memory_is_closed(work: Path) -> None:
    async with embedding() as server:
        server.gate.clear()
        search = {"provider": "openai", "remote": {"baseUrl": server.server.url()}}
        memory = opened(work, search)
        await memory.search("car")
        asyncio.get_running_loop().call_later(0.3, server.gate.set)
        await memory.close()
        asked = len(server.asked)
        memory = opened(work, search)
        try:
            assert (await memory.index()).embedded == 3
            assert len(server.asked) == asked
        finally:
            await memory.close()
        # One that does not answer is not waited for much longer.
        server.gate.clear()
        for name in NOTES:
            (work / name).write_text(f"another text of {name}")
        memory = opened(work, search)
        await memory.search("car")
        async with asyncio.timeout(STOP_S + 2):
            await memory.close()
        # Nor does a search that was under way begin another.
        memory._embedding.start()
        assert memory._embedding._task is None


async def test_a_secret_that_was_indexed_before_it_was_known_is_not_sent(work: Path) -> None:
    (work / "memory" / "door.md").write_text("The door opens with violet-harbor-lamp.")
    before = opened(work, {}, redact=Redactor().text)
    assert (await before.search("violet")).hits[0].path == "memory/door.md"
    await before.close()
    async with embedding() as server:
        search = {"provider": "openai", "remote": {"baseUrl": server.server.url()}}
        memory = opened(work, search, redact=Redactor(["violet-harbor-lamp"]).text)
        try:
            assert (await memory.index()).embedded == 4
            await memory.search("what is violet-harbor-lamp")
            assert len(server.documents()) == 5
            assert "harbor" not in str(server.documents())
        finally:
            await memory.close()


async def test_a_missing_key_is_known_before_anything_is_indexed(work: Path) -> None:
    cases = {"openai": "no credential for openai", "voyage": "VOYAGE_API_KEY", "local": "modelPath"}
    for provider, words in cases.items():
        memory = opened(work, {"provider": provider})
        try:
            status = await memory.status()
            assert (status.files, status.pending, status.provider) == (0, 3, provider)
            assert words in status.problems[0]
        finally:
            await memory.close()


async def test_a_service_that_hangs_does_not_hang_a_search(work: Path) -> None:
    async with embedding() as server:
        server.pause_s = 60
        search = {"provider": "openai", "remote": {"baseUrl": server.server.url()}}
        memory = opened(work, search, times=EmbedTimes(query_s=0.2))
        try:
            async with asyncio.timeout(20):
                found = await memory.search("car")
            assert (found.mode, found.hits[0].path) == ("keyword", "memory/car.md")
            assert "in time" in found.warning
        finally:
            async with asyncio.timeout(20):
                await memory.close()


async def test_the_fallback_embeds_if_the_first_fails(work: Path, tmp_path: Path) -> None:
    write_table(tmp_path / "table", ["doctor", "phys", "##ician", "car"])
    async with embedding() as server:
        server.refuse = lambda _asked: (401, {"error": {"message": "no"}})
        search = {
            "provider": "openai",
            "remote": {"baseUrl": server.server.url()},
            "fallback": "local",
            "local": {"modelPath": str(tmp_path / "table")},
        }
        memory = opened(work, search)
        try:
            status = await memory.index()
            assert (status.embedded, status.provider) == (3, "local")
            found = await memory.search("car")
            assert (found.mode, found.provider, found.model) == ("hybrid", "local", "table")
            assert "rejected the credential" in found.warning
        finally:
            await memory.close()


async def test_a_short_failure_does_not_cost_the_vectors_of_the_first(
    work: Path, tmp_path: Path
) -> None:
    write_table(tmp_path / "table", ["doctor", "phys", "##ician", "car"])
    async with embedding() as server:
        search = {
            "provider": "openai",
            "remote": {"baseUrl": server.server.url()},
            "fallback": "local",
            "local": {"modelPath": str(tmp_path / "table")},
            "cache": {"enabled": False},
        }
        memory = opened(work, search)
        try:
            assert (await memory.index()).provider == "openai"
            server.refuse = lambda _asked: (500, {})
            async with asyncio.timeout(10):
                while (await memory.search("car")).mode != "hybrid":
                    await asyncio.sleep(0.05)
            for _ in range(3):  # all have a vector: what is not in use is removed
                assert (await memory.search("car")).provider == "local"
                await asyncio.sleep(0.05)
            server.refuse = lambda _asked: None
            server.asked.clear()
            status = await memory.index()
            assert (status.provider, status.embedded, server.asked) == ("openai", 3, [])
        finally:
            await memory.close()


def write_table(path: Path, tokens: Sequence[str], size: int = 8) -> None:
    rows = []
    for at, token in enumerate(tokens):
        # The pieces of `physician` have the meaning of `doctor`.
        same = 0 if token in ("doctor", "phys", "##ician") else at
        rows += [100 if place == same else 0 for place in range(size)]
    header = {
        "format": "clawkit-static-embeddings",
        "version": 1,
        "model": "m",
        "dimensions": size,
        "tokens": len(tokens),
    }
    data = json.dumps(header).encode() + b"\n" + "".join(f"{t}\n" for t in tokens).encode()
    weights = array.array("f", [1.0] * len(tokens))
    path.write_bytes(data + weights.tobytes() + array.array("b", rows).tobytes())


async def test_a_local_table_of_tokens(work: Path, tmp_path: Path) -> None:
    table = tmp_path / "table"
    write_table(table, ["doctor", "phys", "##ician", "car", "journey"])
    search = {"provider": "local", "local": {"modelPath": str(table)}}
    memory = opened(work, search)
    try:
        assert (await memory.index()).embedded == 3
        assert (await memory.search("physician")).hits[0].path == "MEMORY.md"
    finally:
        await memory.close()
    good = table.read_bytes()
    for data in (
        b"",
        b"{}\n",
        good[:-1],
        good + b"x",
        good.replace(b'"version": 1', b'"version": 2'),
    ):
        table.write_bytes(data)
        memory = opened(work, search)
        try:
            found = await memory.search("car")
            assert found.hits[0].path == "memory/car.md"
            assert found.mode == "keyword"
            assert "not a usable model" in found.warning
        finally:
            await memory.close()


async def test_a_local_table_that_is_replaced_is_another_model_from_the_next_start_on(
    work: Path, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    write_table(table, ["doctor", "phys", "##ician", "car", "journey"])
    search = {"provider": "local", "local": {"modelPath": str(table)}}
    memory = opened(work, search)
    try:
        await memory.index()
        table.rename(tmp_path / "older")
        write_table(table, ["journey", "car", "doctor", "phys", "##ician"])
        # What the old table makes is not kept as if the new one had made it.
        (work / "memory" / "new.md").write_text("The physician has a car.")
        assert (await memory.index()).embedded == 4
    finally:
        await memory.close()
    memory = opened(work, search)
    try:
        assert (await memory.status()).embedded == 0
    finally:
        await memory.close()


async def test_secrets_of_the_way_to_a_service_are_learned(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_PASSPHRASE", "passphrase-98765")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-key-0123456789")
    tls = {"passphrase": {"source": "env", "id": "MY_PASSPHRASE"}}
    provider = {"baseUrl": "http://127.0.0.1:9/v1", "request": {"tls": tls}}
    config = {
        "models": {"providers": {"openai": provider}},
        "memory": {"search": {"provider": "openai"}},
    }
    learned: list[str] = []
    memory = open_memory(
        loads(json.dumps(config)), "main", str(work), times=HASTY, learn=learned.extend
    )
    try:
        assert (await memory.search("car")).mode == "keyword"
        assert {"passphrase-98765", "sk-key-0123456789"} <= {*learned}
    finally:
        await memory.close()


async def test_settings_that_cannot_be_used_leave_keywords(work: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"provider": "nonesuch"}, "unknown embedding provider"),
        ({"provider": "openai-compatible", "model": "m"}, "is not set"),
        (
            {"provider": "openai-compatible", "remote": {"baseUrl": "http://x"}},
            "memory.search.model",
        ),
        ({"provider": "openai", "remote": {"baseUrl": "ftp://x"}}, "is not a URL"),
        ({"provider": "local", "fallback": "openai-compatible"}, "has no default model"),
        ({"provider": "plugin"}, "no plugin provides embeddings"),
        ({"provider": "voyage"}, "VOYAGE_API_KEY"),
        ({"provider": "openai"}, "no credential for openai"),
        ({"provider": "local"}, "modelPath"),
        ({"provider": "openai", "remote": {"baseUrl": "http://10.0.0.1.nip.invalid"}}, "openai"),
    ]
    for search, words in cases:
        memory = opened(work, search)
        try:
            found = await memory.search("car")
            assert (found.mode, found.hits[0].path) == ("keyword", "memory/car.md")
            assert words in found.warning, search
        finally:
            await memory.close()


class Plugged:
    """The embedder of a plugin."""

    provider, model = "mine", "one"

    def __init__(self, fault: str = "") -> None:
        self.fault = fault

    async def embed(self, texts: Sequence[str], _purpose: str) -> list[list[float]]:
        if self.fault == "raises":
            raise KeyError("what")
        if self.fault == "exits":
            raise SystemExit(3)
        if self.fault == "hangs":
            await asyncio.sleep(600)
        return [vector_of(text) for text in texts]


async def test_a_plugin_can_embed(work: Path) -> None:
    for fault, given in (
        ("", {}),
        ("", {"provider": "plugin"}),
        ("raises", {}),
        ("exits", {}),
        ("hangs", {}),
    ):
        times = EmbedTimes(batch_s=0.5, query_s=0.5)
        memory = opened(work, given, plugged=Plugged(fault), times=times)
        try:
            await memory.index(rebuild=True)
            found = await memory.search("physician car")
            assert found.mode == ("keyword" if fault else "hybrid"), fault
            assert bool(found.warning) is bool(fault)
        finally:
            await memory.close()
    # A provider that is named wins.
    memory = opened(work, {"provider": "none"}, plugged=Plugged())
    try:
        assert (await memory.search("car")).mode == "keyword"
    finally:
        await memory.close()
