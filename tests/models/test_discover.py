from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clawkit.config.load import loads
from clawkit.config.modelref import ModelRef
from clawkit.models import discover as module
from clawkit.models.catalog import Catalog
from clawkit.models.discover import (
    OllamaFacts,
    default_model,
    fetch_json,
    find_local,
    found_model,
    infer_images,
    listeners,
    local_models,
    ollama_address,
    ollama_models,
    ollama_origin_of,
    providers_with_keys,
    show_model,
)
from clawkit.net.route import NetError
from clawkit.testing import ScriptedServer


def catalog(home: Path, config: Any = None, **env: str) -> Catalog:
    return Catalog.of(loads(json.dumps(config or {}), env={"CLAWKIT_HOME": str(home), **env}))


class Tags:
    """An Ollama server as `get` sees it; counts how often it was asked."""

    def __init__(self, body: Any, status: int = 200) -> None:
        self.answer = (status, body if isinstance(body, bytes) else json.dumps(body).encode())
        self.asked: list[str] = []

    async def __call__(self, url: str, timeout_s: float) -> tuple[int, bytes]:
        assert 0 < timeout_s <= 2
        self.asked.append(url)
        return self.answer


HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid"


def socket_table(owner: int, port: int = 11434, state: str = "0A") -> str:
    """Sockets as Linux lists them, sshd's and one more."""
    rest = "00000000:00000000 00:00000000 00000000"
    return "\n".join(
        (
            HEAD,
            f"   0: 00000000:0016 00000000:0000 0A {rest}     0        0 1050 1 0 100 0 0 10 0",
            f"   1: 0100007F:{port:04X} 00000000:0000 {state} {rest}  {owner}        0 1051 1 0",
        )
    )


@pytest.fixture
def ollama_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this user were listening at Ollama's port."""
    monkeypatch.setattr(module, "_socket_tables", lambda: [socket_table(os.geteuid())])


async def discover(catalog: Catalog, tags: Tags | None = None) -> ModelRef | None:
    """What an agent does that has no model configured."""
    if (found := found_model(catalog)) or tags is None:
        return found
    models = [ref.id for ref in await ollama_models(catalog.env, tags)]
    return find_local(catalog, lambda _env: models)


TWO = {"models": [{"name": "nomic-embed-text:latest"}, {"name": "qwen3:8b"}, {"name": "phi4"}]}


@pytest.mark.usefixtures("ollama_runs")
class TestDiscover:
    async def test_nothing_is_found_where_nothing_is(self, tmp_path: Path) -> None:
        assert await discover(catalog(tmp_path)) is None

    @pytest.mark.parametrize(
        ("env", "expected"),
        [
            ({"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}, "anthropic/claude-sonnet-4-6"),
            ({"OPENAI_API_KEY": "k", "GEMINI_API_KEY": "k"}, "openai/gpt-5.4"),
            ({"GOOGLE_API_KEY": "k"}, "google/gemini-3-flash-preview"),
            ({"MINIMAX_API_KEY": "k"}, "minimax/MiniMax-M2.7"),
            ({"OPENCODE_ZEN_API_KEY": "k"}, "opencode/claude-opus-4-6"),
        ],
    )
    async def test_a_key_decides_in_a_fixed_order(
        self, tmp_path: Path, env: dict[str, str], expected: str
    ) -> None:
        tags = Tags(TWO)
        assert str(await discover(catalog(tmp_path, **env), tags)) == expected
        assert tags.asked == []

    async def test_what_is_configured_comes_before_what_is_known(self, tmp_path: Path) -> None:
        own = {"baseUrl": "http://127.0.0.1:1/v1", "models": [{"id": "m"}]}
        found = catalog(tmp_path, {"models": {"providers": {"own": own}}}, OPENAI_API_KEY="k")
        assert await discover(found) == ModelRef("own", "m")

    async def test_what_may_not_be_chosen_is_not_found(self, tmp_path: Path) -> None:
        policy = {"agents": {"defaults": {"modelPolicy": {"allow": ["google/*", "ollama/phi4"]}}}}
        env = {"ANTHROPIC_API_KEY": "k", "GEMINI_API_KEY": "k"}
        assert await discover(catalog(tmp_path, policy, **env)) == ModelRef(
            "google", "gemini-3-flash-preview"
        )
        assert await discover(catalog(tmp_path, policy), Tags(TWO)) == ModelRef("ollama", "phi4")

    async def test_ollama_is_asked_when_nothing_else_is_there(self, tmp_path: Path) -> None:
        tags = Tags(TWO)
        assert await discover(catalog(tmp_path), tags) == ModelRef("ollama", "qwen3:8b")
        assert tags.asked == ["http://127.0.0.1:11434/api/tags"]

    async def test_replacing_what_is_known_leaves_ollama_alone(self, tmp_path: Path) -> None:
        def look(_env: object) -> list[str]:
            raise AssertionError("it was asked")

        assert find_local(catalog(tmp_path, {"models": {"mode": "replace"}}), look) is None


@pytest.mark.usefixtures("ollama_runs")
class TestOllama:
    async def test_its_variable_says_where_it_is(self) -> None:
        tags = Tags(TWO)
        await ollama_models({"OLLAMA_HOST": "localhost:7"}, tags)
        await ollama_models({"OLLAMA_HOST": "elsewhere.example.com:7"}, tags)
        assert tags.asked == ["http://localhost:7/api/tags", "http://127.0.0.1:11434/api/tags"]

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"no json",
            b"[" * 100_000,
            b"\xff\xfe",
            [],
            {"models": None},
            {"models": {"name": "x"}},
            {"models": [None, 1, {}, {"name": 3}, {"name": ""}, {"name": "a b"}, {"name": "x\0"}]},
        ],
    )
    async def test_whatever_it_says_does_no_harm(self, body: Any) -> None:
        assert await ollama_models({}, Tags(body)) == []

    async def test_an_error_is_not_a_server(self) -> None:
        assert await ollama_models({}, Tags(TWO, status=500)) == []

    @pytest.mark.parametrize(
        "error", [ConnectionRefusedError(), TimeoutError(), NetError("connect", "nobody there")]
    )
    async def test_a_refused_connection_means_no_server(self, error: Exception) -> None:
        async def get(url: str, timeout_s: float) -> tuple[int, bytes]:
            raise error

        assert await ollama_models({}, get) == []


def test_services_that_share_a_variable_are_found_once() -> None:
    env = {"MOONSHOT_API_KEY": "k", "OPENCODE_API_KEY": "k", "HF_TOKEN": " "}
    assert providers_with_keys(env) == ["moonshot", "opencode"]
    assert providers_with_keys({"MINIMAX_CN_API_KEY": "k"}) == ["minimax-cn"]
    assert providers_with_keys({}) == []


def test_a_server_at_home_has_no_usual_model() -> None:
    assert default_model("ollama") is None
    assert default_model("nobody") is None
    assert default_model("zai") == ModelRef("zai", "glm-4.7")


class TestImages:
    @pytest.mark.parametrize(
        "name",
        [
            "gpt-4o",
            "openai/gpt-4o-mini",
            "gpt-5.4",
            "o3",
            "o4-mini",
            "claude-opus-4-6",
            "anthropic/claude-3.5-sonnet",
            "gemini-3-flash-preview",
            "Qwen2.5-VL-72B-Instruct",
            "qwen2.5vl:7b",
            "qwen-vl-max",
            "llava:13b",
            "pixtral-large-latest",
            "OpenGVLab/InternVL3-78B",
            "mllama-11b",
            "llama-3.2-90b-vision-preview",
            "minicpm-v:8b",
            "MiniCPM-V-4_5",
            "glm-4v",
            "glm-4.5v",
            "gemma3:4b",
            "kimi-k2.6",
            "llama-4-maverick",
        ],
    )
    def test_models_that_see_are_known_by_their_names(self, name: str) -> None:
        assert infer_images(name) is True

    @pytest.mark.parametrize(
        "name",
        [
            "gpt-oss-120b",
            "gpt-3.5-turbo",
            "o3-mini",
            "claude-2.1",
            "deepseek-v3.2",
            "llama-3.1-8b",
            "llama3.3:70b",
            "mistral-7b-instruct",
            "mistral:7b",
            "codestral-latest",
            "qwen3-coder-480b",
            "qwen2.5:14b",
            "glm-4.7",
            "zai-glm-4.7",
            "kimi-k2-0905-preview",
            "MiniMax-M2.7",
            "phi4",
            "gemma-7b",
            "nomic-embed-text",
        ],
    )
    def test_models_that_only_read_are_too(self, name: str) -> None:
        assert infer_images(name) is False

    @pytest.mark.parametrize("name", ["", "my-finetune", "house-model-v2", "qwen3.6-27b"])
    def test_others_are_not_guessed(self, name: str) -> None:
        assert infer_images(name) is None

    def test_a_very_long_name_is_looked_at_quickly(self) -> None:
        assert infer_images("a-" * 100_000) is None


@pytest.mark.parametrize(
    ("state", "port", "owner", "is_asked"),
    [
        ("0A", 11434, 1001, False),
        ("0A", 11434, 1000, True),
        ("0A", 11434, 0, True),
        ("0A", 11434, 997, True),
        ("0A", 11435, 1001, False),
        ("0A", 11435, 1000, False),
        ("01", 11434, 1001, False),
        ("01", 11434, 1000, False),
    ],
)
def test_only_a_listener_of_this_user_or_the_system_is_asked(
    state: str, port: int, owner: int, is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    table = socket_table(owner, port, state)
    here = "http://127.0.0.1:11434" if is_asked else ""
    assert ollama_address({}, lambda: [table, HEAD]) == here
    assert ollama_address({}, lambda: [HEAD, table]) == here
    # One of two that listen is somebody else.
    assert ollama_address({}, lambda: [socket_table(1001), table]) == ""
    assert ollama_address({}, lambda: [HEAD]) == ""
    # Where no sockets are listed, and where the address is given, there is no telling.
    assert ollama_address({}, list) == "http://127.0.0.1:11434"
    assert ollama_address({"OLLAMA_HOST": "localhost"}, lambda: [table]) == "http://localhost:11434"


async def test_what_another_person_serves_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = Tags({"models": [{"name": "a:1b"}]})
    tables = [socket_table(os.geteuid() + 5_000)]
    monkeypatch.setattr(module, "_socket_tables", lambda: tables)
    assert await ollama_models({}, tags) == []
    assert tags.asked == []
    named = await ollama_models({"OLLAMA_HOST": "127.0.0.1"}, tags)
    assert [each.id for each in named] == ["a:1b"]


async def test_the_owner_of_a_listening_socket_is_found() -> None:
    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    found = [each for table in module._socket_tables() for each in listeners(table, port)]
    assert found == [os.geteuid()]
    server.close()
    await server.wait_closed()


async def test_a_running_server_is_asked_for_its_models_and_about_them() -> None:
    async with ScriptedServer(models=("nomic-embed", "qwen3:8b"), ollama=True) as server:
        env = {"OLLAMA_HOST": server.url}
        assert await asyncio.to_thread(local_models, env) == ["qwen3:8b"]
        assert await asyncio.to_thread(show_model, server.url, "qwen3:8b") == OllamaFacts(
            32_768, False
        )
        assert await asyncio.to_thread(show_model, server.url, "other") == OllamaFacts(0, None)
        assert await asyncio.to_thread(fetch_json, "GET", f"{server.url}/nothing") is None
        listed = await asyncio.to_thread(fetch_json, "GET", f"{server.url}/v1/models")
        assert [row["id"] for row in listed["data"]] == ["nomic-embed", "qwen3:8b"]
        gone = server.url
    assert await asyncio.to_thread(local_models, {"OLLAMA_HOST": gone}) == []
    assert await asyncio.to_thread(fetch_json, "GET", f"{gone}/v1/models") is None


def test_an_address_is_ollamas_by_its_port() -> None:
    assert ollama_origin_of("http://10.0.0.7:11434/v1") == "http://10.0.0.7:11434"
    assert ollama_origin_of("http://10.0.0.7:8000/v1") == ""


def test_nothing_of_the_http_client_is_loaded_where_nothing_listens(tmp_path: Path) -> None:
    """In a process of its own: others have loaded it long since."""
    code = """
import asyncio, sys
from clawkit.config.load import loads
from clawkit.models import discover
from clawkit.agent.model_selection import ModelSelection
discover._socket_tables = lambda: ["head"]
selection = ModelSelection(loads("{}", env={"CLAWKIT_HOME": sys.argv[1]}), "main")
assert asyncio.run(selection.find_local()) is None
assert discover.local_models({}) == []
names = [each for each in sys.modules if each == "h11" or each.startswith("clawkit.net")]
print(*names)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
