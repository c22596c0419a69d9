from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest

from clawkit.config.modelref import ModelRef, normalize_provider, parse_ref
from clawkit.models.known import (
    PROVIDERS,
    api_of,
    base_url_of,
    cost_of,
    full_id,
    is_loopback,
    known_model,
    ollama_origin,
)
from clawkit.models.known_models import MODELS


class TestTable:
    @pytest.mark.parametrize("name", PROVIDERS)
    def test_every_row_can_be_used_as_it_stands(self, name: str) -> None:
        row = PROVIDERS[name]
        parts = urlsplit(row.base_url)
        assert normalize_provider(name) == name
        assert parts.hostname
        assert parts.scheme == ("http" if row.is_local else "https")
        assert row.is_local == is_loopback(parts.hostname)
        assert all(variable.isupper() for variable in row.env)

    @pytest.mark.parametrize(
        "text", [f"{provider}/{row.id}" for provider, rows in MODELS.items() for row in rows]
    )
    def test_every_model_has_a_reference_and_sizes_that_fit(self, text: str) -> None:
        ref = parse_ref(text)
        row = known_model(ref.provider, ref.id)
        assert ref.provider in PROVIDERS
        assert row is not None
        assert str(ModelRef(ref.provider, row.id)) == text
        assert 0 < row.max_tokens <= row.context_window
        assert set(row.marks) <= {"i", "r"}

    def test_no_model_is_there_twice(self) -> None:
        for rows in MODELS.values():
            assert len({row.id for row in rows}) == len(rows)

    @pytest.mark.parametrize("name", [name for name, row in PROVIDERS.items() if row.env])
    def test_every_provider_with_a_key_has_a_default_model(self, name: str) -> None:
        assert PROVIDERS[name].models


class TestRelay:
    @pytest.mark.parametrize(
        ("provider", "model", "api"),
        [
            ("opencode", "claude-opus-4-6", "anthropic-messages"),
            ("opencode", "Claude-Haiku-4-5", "anthropic-messages"),
            ("opencode", "gpt-5.4", "openai-responses"),
            ("opencode", "gpt-oss-120b", "openai-completions"),
            ("opencode", "gemini-3-flash", "google-generative-ai"),
            ("opencode", "kimi-k2.6", "openai-completions"),
            ("opencode", "minimax-m2.7", "openai-completions"),
            ("opencode-go", "minimax-m2.7", "anthropic-messages"),
            ("opencode-go", "glm-5.1", "openai-completions"),
            ("openai", "claude-something", "openai-responses"),
            ("minimax", "MiniMax-M2.7", "anthropic-messages"),
        ],
    )
    def test_the_api_depends_on_whose_model_it_is(
        self, provider: str, model: str, api: str
    ) -> None:
        assert api_of(PROVIDERS[provider], model) == api


class TestModels:
    @pytest.mark.parametrize(
        "name",
        ["claude-sonnet-4-5-20250929", "claude-sonnet-4-5-latest", "claude-sonnet-4-5-2025-09-29"],
    )
    def test_a_date_makes_no_other_model(self, name: str) -> None:
        row = known_model("anthropic", name)
        assert row is not None
        assert row.id == "claude-sonnet-4-5"

    def test_an_id_that_ends_like_a_date_is_found_as_it_is(self) -> None:
        row = known_model("mistral", "mistral-large-latest")
        assert row is not None
        assert row.id == "mistral-large-latest"

    def test_nothing_is_made_up(self) -> None:
        assert known_model("anthropic", "claude-sonnet-4-6-turbo") is None
        assert known_model("nobody", "gpt-5.4") is None

    def test_prices_are_there_or_left_out(self) -> None:
        row = known_model("minimax", "MiniMax-M2.7")
        assert row is not None
        cost = cost_of(row)
        assert cost is not None
        assert (cost.input, cost.output, cost.cache_read, cost.cache_write) == (
            0.3,
            1.2,
            0.06,
            0.375,
        )
        free = known_model("kimi", "kimi-code")
        assert free is not None
        assert cost_of(free) is None

    def test_only_openrouters_own_models_get_its_name(self) -> None:
        assert full_id("openrouter", "auto") == "openrouter/auto"
        assert full_id("openrouter", "openai/gpt-5.4") == "openai/gpt-5.4"
        assert full_id("openai", "gpt-5.4") == "gpt-5.4"


def test_this_machine_is_known_by_its_names(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("localhost", True),
        ("LOCALHOST", True),
        ("127.0.0.1", True),
        ("127.9.8.7", True),
        ("[::1]", True),
        ("::1", True),
        ("localhost.example.com", False),
        ("127.0.0.1.example.com", False),
        ("10.0.0.1", False),
        ("", False),
    ]
    for host, expected in cases:
        with subtests.test(host=host, expected=expected):
            assert is_loopback(host) is expected


class TestOllamaHost:
    @pytest.mark.parametrize(
        ("said", "origin"),
        [
            ("", ""),
            ("127.0.0.1:11500", "http://127.0.0.1:11500"),
            ("localhost", "http://localhost:11434"),
            ("0.0.0.0", "http://127.0.0.1:11434"),
            ("0.0.0.0:80", "http://127.0.0.1:80"),
            (":9000", "http://127.0.0.1:9000"),
            ("[::]:9000", "http://[::1]:9000"),
            ("https://localhost", "https://localhost:443"),
            ("http://localhost:1/", "http://localhost:1"),
            ("192.168.1.5:11434", ""),
            ("ollama.example.com", ""),
            ("http://user:pass@localhost", ""),
            ("ftp://localhost", ""),
            ("localhost:port", ""),
            ("http://[", ""),
        ],
    )
    def test_it_moves_the_server_but_not_to_another_machine(self, said: str, origin: str) -> None:
        assert ollama_origin({"OLLAMA_HOST": said}) == origin

    def test_only_ollama_is_moved(self) -> None:
        env = {"OLLAMA_HOST": "localhost:1"}
        assert base_url_of(PROVIDERS["ollama"], env) == "http://localhost:1/v1"
        assert base_url_of(PROVIDERS["ollama"], {}) == "http://127.0.0.1:11434/v1"
        assert base_url_of(PROVIDERS["vllm"], env) == "http://127.0.0.1:8000/v1"
