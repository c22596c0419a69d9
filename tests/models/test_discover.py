from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from clawkit.config.load import loads
from clawkit.config.modelref import ModelRef
from clawkit.models.discover import (
    default_model,
    discover,
    infer_images,
    is_strangers,
    ollama_models,
    providers_with_keys,
)
from clawkit.models.resolve import Catalog
from clawkit.net.base import NetError


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


TWO = {"models": [{"name": "nomic-embed-text:latest"}, {"name": "qwen3:8b"}, {"name": "phi4"}]}


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
        tags = Tags(TWO)
        assert await discover(catalog(tmp_path, {"models": {"mode": "replace"}}), tags) is None
        assert tags.asked == []


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

    async def test_an_error_is_no_server(self) -> None:
        assert await ollama_models({}, Tags(TWO, status=500)) == []

    @pytest.mark.parametrize(
        "error", [ConnectionRefusedError(), TimeoutError(), NetError("connect", "nobody there")]
    )
    async def test_nobody_there_is_no_server(self, error: Exception) -> None:
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
    ("state", "port", "owner", "expected"),
    [
        ("0A", 11434, 1001, True),
        ("0A", 11434, 1000, False),
        ("0A", 11434, 0, False),
        ("0A", 11434, 997, False),
        ("0A", 11435, 1001, False),
        ("01", 11434, 1001, False),
    ],
)
def test_no_other_person_of_the_machine_is_taken_for_ollama(
    state: str, port: int, owner: int, expected: bool
) -> None:
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid"
    rest = "00000000:00000000 00:00000000 00000000"
    rows = [
        f"   0: 00000000:0016 00000000:0000 0A {rest}     0        0 1050 1 0 100 0 0 10 0",
        f"   1: 0100007F:{port:04X} 00000000:0000 {state} {rest}  {owner}        0 1051 1 0",
    ]
    table = "\n".join((head, *rows))
    assert is_strangers(table, me=1000) is expected
    assert not is_strangers(head, me=1000)


async def test_what_another_person_serves_is_not_asked() -> None:
    tags = Tags({"models": [{"name": "a:1b"}]})
    row = f"0: 0100007F:2CAA 0:0 0A 0:0 0:0 0 {os.geteuid() + 5_000} 0"
    assert await ollama_models({}, tags, lambda: (f"head\n{row}",)) == []
    named = await ollama_models({"OLLAMA_HOST": "127.0.0.1"}, tags, lambda: (f"head\n{row}",))
    assert [each.id for each in named] == ["a:1b"]


async def test_a_server_of_our_own_is_not_a_strangers() -> None:
    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with open("/proc/net/tcp", encoding="ascii") as file:
        table = file.read()
    me = os.geteuid()
    assert not is_strangers(table, port)
    assert is_strangers(table, port, me + 1) is (me >= 1_000)
    server.close()
