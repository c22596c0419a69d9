from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from msgspec.structs import replace

from clawkit.config.load import loads
from clawkit.config.modelref import ModelRef
from clawkit.content import Text, User
from clawkit.errors import ConfigError, SecretError
from clawkit.models.catalog import Catalog
from clawkit.models.client import make_wire
from clawkit.models.protocols import Endpoint, Request
from clawkit.net.route import join_headers

LOCAL: dict[str, Any] = {
    "baseUrl": "http://127.0.0.1:9/v1",
    "models": [{"id": "one"}, {"id": "two"}],
}


def catalog(
    config: Mapping[str, Any] | None = None, agent: str | None = None, **env: str
) -> Catalog:
    env = {"CLAWKIT_HOME": "/nowhere", **env}
    return Catalog.of(loads(json.dumps(config or {}), env=env), agent)


def with_provider(name: str, agents: dict[str, Any] | None = None, **settings: Any) -> Catalog:
    return catalog({"models": {"providers": {name: settings}}, "agents": agents or {}})


def reach(text: str, name: str = "", **settings: Any) -> Endpoint:
    found = with_provider(name, **settings) if name else catalog()
    return found.endpoint(found.find(text))


def refusal(config: Catalog, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config.endpoint(config.find(text))
    return str(caught.value)


class TestFind:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("anthropic/claude-opus-4-6", "anthropic/claude-opus-4-6"),
            (" Anthropic/claude-opus-4-6 ", "anthropic/claude-opus-4-6"),
            ("gemini/gemini-9", "google/gemini-9"),
            ("z.ai/glm-4.7", "zai/glm-4.7"),
            ("kimi-coding/kimi-code", "kimi/kimi-code"),
            ("synthetic/hf:MiniMaxAI/MiniMax-M2.5", "synthetic/hf:MiniMaxAI/MiniMax-M2.5"),
            ("openrouter/openai/gpt-5.4", "openrouter/openai/gpt-5.4"),
            ("ollama/whatever:7b", "ollama/whatever:7b"),
            ("gpt-5.4", "openai/gpt-5.4"),
            ("GPT-5.4", "openai/gpt-5.4"),
            ("hf:MiniMaxAI/MiniMax-M2.5", "synthetic/hf:MiniMaxAI/MiniMax-M2.5"),
            ("zai-glm-4.7", "cerebras/zai-glm-4.7"),
            ("clawkit/operator", "clawkit/operator"),
        ],
    )
    def test_a_model_is_found_by_what_it_is_called(self, text: str, expected: str) -> None:
        assert str(catalog().find(text)) == expected

    def test_a_model_that_is_configured_comes_before_one_that_is_known(self) -> None:
        own = with_provider("own", baseUrl="http://127.0.0.1:1", models=[{"id": "gpt-5.4"}])
        assert own.find("gpt-5.4") == ModelRef("own", "gpt-5.4")

    def test_of_known_ones_that_with_a_key_is_meant(self) -> None:
        assert catalog().find("claude-opus-4-6").provider == "anthropic"
        assert catalog(OPENCODE_API_KEY="k").find("claude-opus-4-6").provider == "opencode"

    def test_the_same_id_at_two_configured_providers_is_not_guessed(self) -> None:
        config = {"models": {"providers": {"a": LOCAL, "b": LOCAL}}}
        with pytest.raises(ConfigError, match="'one' is ambiguous: a/one or b/one"):
            catalog(config).find("one")
        assert catalog(config).find("b/one").provider == "b"

    def test_an_id_in_another_case_is_the_listed_one(self) -> None:
        own = with_provider("own", baseUrl="http://127.0.0.1:1", models=[{"id": "Model-X"}])
        assert own.find("own/model-x") == ModelRef("own", "Model-X")
        assert own.find("minimax/minimax-m2.7") == ModelRef("minimax", "MiniMax-M2.7")

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("antropic/claude-opus-4-6", "unknown provider 'antropic'.*Did you mean 'anthropic'"),
            ("clawkit/operatr", "unknown model 'clawkit/operatr'.*Did you mean 'clawkit/operator'"),
            ("claude-opus-4-7x", "unknown model or alias 'claude-opus-4-7x'.*'anthropic/claude-op"),
            (
                "Opus",
                "unknown model or alias 'Opus'. Did you mean 'anthropic/claude-opus-[^?]*'\\?$",
            ),
            ("nonsense", "unknown model or alias 'nonsense'.*provider/model.*models list --all"),
            ("two words", "unknown model or alias 'two words'"),
            ("", "empty"),
            ("openai/", "must look like"),
            ("openai/a b", "spaces"),
            ("x" * 5000, "unknown model or alias"),
            ("a\0b", "unknown model"),
        ],
    )
    def test_what_is_not_found_says_what_may_have_been_meant(self, text: str, said: str) -> None:
        with pytest.raises(ConfigError, match=said) as caught:
            catalog().find(text)
        assert len(str(caught.value)) < 400


class TestAliases:
    AGENTS: ClassVar[dict[str, Any]] = {
        "defaults": {
            "models": {
                "cerebras/zai-glm-4.7": {"alias": "GLM 4.7 (Cerebras)"},
                "anthropic/claude-opus-4-6": {"alias": "Opus", "params": {"a": 1, "b": 1}},
                "zai/glm-4.7": {},
            },
            "params": {"a": 0, "c": 0},
        },
        "list": [
            {
                "id": "work",
                "models": {"opencode/claude-opus-4-6": {"alias": "opus"}},
                "params": {"c": 2},
            },
            {"id": "plain"},
        ],
    }

    def test_an_alias_may_have_spaces_and_any_case(self) -> None:
        found = catalog({"agents": self.AGENTS})
        assert found.find("glm 4.7 (cerebras)") == ModelRef("cerebras", "zai-glm-4.7")
        assert found.find("OPUS") == ModelRef("anthropic", "claude-opus-4-6")

    def test_an_agents_own_alias_comes_first(self) -> None:
        assert catalog({"agents": self.AGENTS}, "work").find("Opus").provider == "opencode"
        assert catalog({"agents": self.AGENTS}, "plain").find("Opus").provider == "anthropic"

    def test_an_alias_of_two_models_is_an_error(self) -> None:
        models = {"openai/gpt-5.4": {"alias": "Fast"}, "zai/glm-4.7": {"alias": "fast"}}
        found = catalog({"agents": {"defaults": {"models": models}}})
        with pytest.raises(
            ConfigError, match=r"agents\.defaults\.models: the alias 'fast' refers to"
        ):
            found.find("fast")

    def test_an_alias_of_a_model_no_one_knows_names_its_key(self) -> None:
        found = catalog({"agents": {"defaults": {"models": {"opnai/x": {"alias": "Fast"}}}}})
        with pytest.raises(ConfigError, match=r"agents\.defaults\.models\['opnai/x'\].*'openai'"):
            found.find("fast")

    def test_further_fields_of_requests_add_up_from_far_to_near(self) -> None:
        opus = ModelRef("anthropic", "claude-opus-4-6")
        assert catalog({"agents": self.AGENTS}).params(opus) == {"a": 1, "b": 1, "c": 0}
        assert catalog({"agents": self.AGENTS}, "work").params(opus) == {"a": 1, "b": 1, "c": 2}
        assert catalog().params(opus) == {}


class TestCandidates:
    @pytest.mark.parametrize(
        ("defaults", "own", "expected"),
        [
            (None, None, []),
            ("openai/a", None, ["openai/a"]),
            (
                {"primary": "openai/a", "fallbacks": ["zai/b", "openai/a"]},
                None,
                ["openai/a", "zai/b"],
            ),
            ({"primary": "openai/a", "fallbacks": ["zai/b"]}, "xai/c", ["xai/c", "zai/b"]),
            ({"primary": "openai/a", "fallbacks": ["zai/b"]}, {"primary": "xai/c"}, ["xai/c"]),
            (
                {"primary": "openai/a", "fallbacks": ["zai/b"]},
                {"fallbacks": ["xai/c"]},
                ["openai/a", "xai/c"],
            ),
            (None, {"primary": "xai/c", "fallbacks": ["zai/b"]}, ["xai/c", "zai/b"]),
        ],
    )
    def test_the_agents_model_comes_first_then_the_fallbacks(
        self, defaults: Any, own: Any, expected: list[str]
    ) -> None:
        agents: dict[str, Any] = {"defaults": {}, "list": [{"id": "work"}]}
        if defaults:
            agents["defaults"]["model"] = defaults
        if own:
            agents["list"][0]["model"] = own
        config = {"agents": agents}
        assert [str(ref) for ref in catalog(config, "work").candidates()] == expected

    def test_a_fallback_that_does_not_exist_names_its_key(self) -> None:
        model = {"primary": "openai/gpt-5.4", "fallbacks": ["zai/glm-4.7", "opnai/x"]}
        with pytest.raises(ConfigError, match=r"agents\.defaults\.model\.fallbacks\[1\]: .*opnai"):
            catalog({"agents": {"defaults": {"model": model}}}).candidates()


class TestPolicy:
    @pytest.mark.parametrize(
        ("allow", "allowed"),
        [
            (None, True),
            ([], False),
            (["*"], True),
            (["anthropic/*"], True),
            (["ANTHROPIC/Claude-*"], True),
            (["openai/*"], False),
            (["anthropic/claude-opus-4-6"], True),
            (["claude-opus-4-6"], True),
            (["claude-*"], True),
            (["opus"], True),
            (["claude"], False),
            (["", " "], False),
        ],
    )
    def test_a_policy_says_what_may_be_chosen(self, allow: Any, allowed: bool) -> None:
        models = {"anthropic/claude-opus-4-6": {"alias": "Opus"}}
        policy = {} if allow is None else {"modelPolicy": {"allow": allow}}
        found = catalog({"agents": {"defaults": {"models": models, **policy}}})
        assert found.is_allowed(ModelRef("anthropic", "claude-opus-4-6")) is allowed

    def test_provider_aliases_hold_in_patterns(self) -> None:
        found = catalog({"agents": {"defaults": {"modelPolicy": {"allow": ["z.ai/*"]}}}})
        assert found.is_allowed(ModelRef("zai", "glm-4.7"))

    def test_an_agents_own_policy_is_the_one_that_counts(self) -> None:
        agents = {
            "defaults": {"modelPolicy": {"allow": ["openai/*"]}},
            "list": [{"id": "work", "modelPolicy": {"allow": ["zai/*"]}}],
        }
        ref = ModelRef("openai", "gpt-5.4")
        assert not catalog({"agents": agents}, "work").is_allowed(ref)
        assert catalog({"agents": agents}).is_allowed(ref)

    def test_a_pattern_with_an_unset_variable_protects_nothing(self) -> None:
        found = catalog({"agents": {"defaults": {"modelPolicy": {"allow": ["${GONE}/*"]}}}})
        with pytest.raises(ConfigError, match=r"modelPolicy\.allow.*variable that is not set"):
            found.is_allowed(ModelRef("openai", "gpt-5.4"))


class TestEndpoint:
    @pytest.mark.parametrize(
        ("text", "api", "url", "native"),
        [
            ("openai/gpt-5.4", "openai-responses", "https://api.openai.com/v1", True),
            (
                "anthropic/claude-opus-4-6",
                "anthropic-messages",
                "https://api.anthropic.com",
                True,
            ),
            (
                "google/gemini-3-flash-preview",
                "google-generative-ai",
                "https://generativelanguage.googleapis.com/v1beta",
                True,
            ),
            ("kimi/kimi-code", "anthropic-messages", "https://api.kimi.com/coding", False),
            (
                "opencode/claude-opus-4-6",
                "anthropic-messages",
                "https://opencode.ai/zen",
                False,
            ),
            ("opencode/gpt-5.4", "openai-responses", "https://opencode.ai/zen/v1", False),
            (
                "opencode/gemini-3-flash",
                "google-generative-ai",
                "https://opencode.ai/zen/v1",
                False,
            ),
            (
                "opencode-go/minimax-m2.7",
                "anthropic-messages",
                "https://opencode.ai/zen/go",
                False,
            ),
            ("xai/grok-4.5", "openai-responses", "https://api.x.ai/v1", False),
            ("lmstudio/x", "openai-responses", "http://127.0.0.1:1234/v1", False),
        ],
    )
    def test_known_services_need_no_word(self, text: str, api: str, url: str, native: bool) -> None:
        found = reach(text)
        assert (found.api, found.base_url, found.is_native) == (api, url, native)

    @pytest.mark.parametrize(
        ("provider", "settings", "api", "url"),
        [
            (
                "own",
                {"baseUrl": "http://localhost:4000/v1/"},
                "openai-completions",
                "http://localhost:4000/v1",
            ),
            (
                "own",
                {"baseUrl": "HTTPS://Example.COM/v1"},
                "openai-completions",
                "https://example.com/v1",
            ),
            ("own", {"baseUrl": "http://[::1]:80/v1"}, "openai-completions", "http://[::1]:80/v1"),
            (
                "own",
                {"baseUrl": "https://x.test/anthropic/v1/", "api": "anthropic-messages"},
                "anthropic-messages",
                "https://x.test/anthropic",
            ),
            (
                "own",
                {"baseUrl": "https://api.openai.com"},
                "openai-completions",
                "https://api.openai.com/v1",
            ),
            (
                "own",
                {
                    "baseUrl": "https://generativelanguage.googleapis.com",
                    "api": "google-generative-ai",
                },
                "google-generative-ai",
                "https://generativelanguage.googleapis.com/v1beta",
            ),
            (
                "own",
                {"baseUrl": "http://10.0.0.5:11434", "api": "ollama"},
                "openai-completions",
                "http://10.0.0.5:11434/v1",
            ),
            (
                "own",
                {"baseUrl": "http://10.0.0.5:9/api/", "api": "ollama"},
                "openai-completions",
                "http://10.0.0.5:9/v1",
            ),
            (
                "ollama",
                {"baseUrl": "http://10.0.0.5:1"},
                "openai-completions",
                "http://10.0.0.5:1/v1",
            ),
            (
                "anthropic",
                {"baseUrl": "https://relay.test"},
                "anthropic-messages",
                "https://relay.test",
            ),
            (
                "openai",
                {"api": "openai-completions"},
                "openai-completions",
                "https://api.openai.com/v1",
            ),
            (
                "opencode",
                {"api": "openai-completions"},
                "openai-completions",
                "https://opencode.ai/zen/v1",
            ),
            (
                "z.ai",
                {"baseUrl": "https://api.z.ai/api/paas/v4"},
                "openai-completions",
                "https://api.z.ai/api/paas/v4",
            ),
        ],
    )
    def test_settings_go_over_what_is_known_key_by_key(
        self, provider: str, settings: dict[str, Any], api: str, url: str
    ) -> None:
        found = reach(f"{provider}/m", provider, models=[{"id": "m"}], **settings)
        assert (found.api, found.base_url) == (api, url)

    def test_a_model_may_be_elsewhere_than_its_provider(self) -> None:
        models = [
            {"id": "a"},
            {"id": "b", "api": "anthropic-messages", "baseUrl": "https://b.test/v1"},
        ]
        own = with_provider("own", baseUrl="https://a.test/v1", models=models)
        assert own.endpoint(ModelRef("own", "a")).base_url == "https://a.test/v1"
        other = own.endpoint(ModelRef("own", "b"))
        assert (other.api, other.base_url) == ("anthropic-messages", "https://b.test")

    def test_fields_of_requests_and_thinking_words_are_kept(self) -> None:
        models = [{"id": "m", "params": {"top_k": 2}, "thinkingLevelMap": {"off": None}}]
        found = reach(
            "own/m",
            "own",
            baseUrl="http://127.0.0.1",
            params={"top_k": 1, "seed": 3},
            models=models,
        )
        assert found.params == {"top_k": 2, "seed": 3}
        assert found.thinking_levels == {"off": None}

    def test_openrouters_own_models_are_asked_for_by_their_full_names(self) -> None:
        assert reach("openrouter/auto").ref == ModelRef("openrouter", "openrouter/auto")


class TestFaults:
    def test_a_custom_provider_needs_an_address(self) -> None:
        said = refusal(with_provider("own", models=[{"id": "m"}]), "own/m")
        assert said.startswith("models.providers.own.baseUrl: is missing")

    def test_a_custom_provider_needs_models(self) -> None:
        said = refusal(with_provider("own", baseUrl="http://127.0.0.1:1"), "own/m")
        assert said.startswith("models.providers.own.models: is empty")

    def test_a_model_that_is_not_listed_there_is_told_with_the_nearest(self) -> None:
        own = with_provider("own", baseUrl="http://x.test", models=[{"id": "llama-8b"}])
        assert "has no model 'lama-8b'" in refusal(own, "own/lama-8b")
        assert "or use 'llama-8b'" in refusal(own, "own/lama-8b")

    @pytest.mark.parametrize(
        "api",
        [
            "bedrock-converse-stream",
            "github-copilot",
            "google-vertex",
            "azure-openai-responses",
            "openai-chatgpt-responses",
            "openai-codex-responses",
            "pi-messages",
        ],
    )
    def test_an_api_that_is_not_there_yet_stops_its_own_models_only(self, api: str) -> None:
        models = [{"id": "a", "api": api}, {"id": "b"}]
        own = with_provider("own", baseUrl="http://x.test/v1", models=models)
        assert f"the API '{api}' is not supported yet" in refusal(own, "own/a")
        assert refusal(own, "own/a").startswith("models.providers.own.models[0].api: ")
        assert own.endpoint(own.find("own/b")).api == "openai-completions"
        problems = {entry.ref.id: entry.problem for entry in own.list()}
        assert "not supported yet" in problems["a"]
        assert problems["b"] == ""

    @pytest.mark.parametrize(
        ("url", "said"),
        [
            ("ftp://x", "http:// or https://"),
            ("x.test/v1", "http:// or https://"),
            ("http://", "http:// or https://"),
            ("http://[", "is not a URL"),
            ("http://x:port", "is not a URL"),
            ("http://x.test:99999", "is not a URL"),
            ("http://a b", "http:// or https://"),
            ("http://x.test/\0", "http:// or https://"),
            ("https://key:secret@x.test", "user name or password"),
            ("https://x.test/v1?key=secret", "has a query or fragment"),
            ("https://x.test/v1#a", "has a query or fragment"),
            ("https://${GONE}/v1", "variable GONE is not set"),
        ],
    )
    def test_an_invalid_address_names_its_setting(self, url: str, said: str) -> None:
        message = refusal(with_provider("own", baseUrl=url, models=[{"id": "m"}]), "own/m")
        assert message.startswith("models.providers.own.baseUrl: ")
        assert said in message
        assert "secret" not in message

    def test_one_provider_under_two_names_is_an_error(self) -> None:
        with pytest.raises(
            ConfigError, match=r'models\.providers\["z\.ai"\].*models\.providers\.zai'
        ):
            catalog({"models": {"providers": {"zai": {}, "z.ai": {}}}})


class TestFacts:
    def test_of_window_and_answer_the_higher_value_counts(self) -> None:
        small = {"id": "MiniMax-M2.7", "contextWindow": 1000, "maxTokens": 500}
        large = {"id": "MiniMax-M2.7", "contextWindow": 900_000, "maxTokens": 200_000}
        for given, window, most in ((small, 204_800, 131_072), (large, 900_000, 200_000)):
            facts = reach("minimax/MiniMax-M2.7", "minimax", models=[given]).facts
            assert (facts.context_window, facts.max_tokens) == (window, most)

    def test_a_cap_is_kept_however_low(self) -> None:
        models = [{"id": "m", "contextWindow": 128_000, "contextTokens": 96_000}]
        facts = reach("own/m", "own", baseUrl="http://127.0.0.1", models=models).facts
        assert (facts.context_window, facts.context_tokens, facts.window) == (
            128_000,
            96_000,
            96_000,
        )

    def test_a_model_goes_over_its_provider(self) -> None:
        own = with_provider(
            "own",
            baseUrl="http://127.0.0.1",
            contextWindow=64_000,
            contextTokens=32_000,
            maxTokens=4_000,
            models=[
                {"id": "a"},
                {"id": "b", "contextWindow": 8_000, "contextTokens": 7_000, "maxTokens": 1_000},
            ],
        )
        a, b = (own.facts(ModelRef("own", name)) for name in "ab")
        assert (a.context_window, a.context_tokens, a.max_tokens) == (64_000, 32_000, 4_000)
        assert (b.context_window, b.context_tokens, b.max_tokens) == (8_000, 7_000, 1_000)

    def test_an_answer_is_never_longer_than_the_window(self) -> None:
        models = [{"id": "m", "contextWindow": 4_000}]
        assert (
            reach("own/m", "own", baseUrl="http://127.0.0.1", models=models).facts.max_tokens
            == 4_000
        )

    def test_what_is_known_fills_what_is_not_said(self) -> None:
        facts = reach(
            "cerebras/zai-glm-4.7", "cerebras", models=[{"id": "zai-glm-4.7", "name": "Mine"}]
        ).facts
        assert (facts.name, facts.reasoning, facts.images) == ("Mine", True, False)
        assert facts.cost.input == 2.25

    def test_what_is_said_goes_over_what_is_known(self) -> None:
        given = {
            "id": "claude-opus-4-6",
            "input": ["text"],
            "reasoning": False,
            "cost": {"input": 1},
        }
        facts = reach("anthropic/claude-opus-4-6", "anthropic", models=[given]).facts
        assert (facts.images, facts.reasoning, facts.cost.input, facts.cost.output) == (
            False,
            False,
            1,
            0,
        )

    def test_images_are_sent_only_where_an_entry_or_a_name_says_so(self) -> None:
        models = [{"id": "gpt-4o"}, {"id": "x", "input": ["text", "image"]}]
        own = with_provider("own", baseUrl="http://127.0.0.1", models=models)
        assert not own.facts(ModelRef("own", "gpt-4o")).images
        assert own.facts(ModelRef("own", "x")).images
        assert reach("openrouter/qwen/qwen2.5-vl-72b").facts.images
        assert not reach("ollama/house-model").facts.images

    def test_a_server_at_home_is_not_taken_to_be_large(self) -> None:
        assert reach("ollama/x").facts.context_window == 32_768
        assert reach("openai/gpt-99").facts.context_window == 128_000


def asked(text: str, provider: str = "", **settings: Any) -> dict[str, Any]:
    """What a model that can think is sent."""
    endpoint = reach(text, provider, **settings) if provider else reach(text)
    endpoint = replace(endpoint, facts=replace(endpoint.facts, reasoning=True))
    request = Request("Be kind.", (User((Text("Hi"),)),), thinking="high")
    return dict(msgspec.json.decode(make_wire(endpoint).write(request)))


class TestCompat:
    def test_imitations_never_know_the_developer_role(self) -> None:
        models = [{"id": "m", "compat": {"supportsDeveloperRole": True, "supportsStore": True}}]
        sent = asked("own/m", "own", baseUrl="http://127.0.0.1", models=models)
        assert (sent["messages"][0]["role"], sent["store"]) == ("system", False)

    def test_the_service_itself_is_left_to_its_own_rules(self) -> None:
        sent = asked("openai/m", "openai", api="openai-completions")
        assert sent["messages"][0]["role"] == "developer"

    @pytest.mark.parametrize(
        ("text", "thinking"),
        [
            ("zai/glm-4.7", {"thinking": {"type": "enabled"}}),
            ("deepseek/deepseek-chat", {"thinking": {"type": "enabled"}}),
            ("together/x", {"reasoning": {"enabled": True}}),
            ("openrouter/a/b", {"reasoning": {"effort": "high"}}),
            ("groq/x", {"reasoning_effort": "high"}),
            ("mistral/x", {}),
            ("moonshot/x", {}),
        ],
    )
    def test_thinking_is_asked_for_in_the_services_own_way(
        self, text: str, thinking: dict[str, Any]
    ) -> None:
        sent = asked(text)
        found = {
            key: sent[key] for key in ("thinking", "reasoning", "reasoning_effort") if key in sent
        }
        assert found == thinking

    def test_a_service_is_known_by_its_address_under_any_name(self) -> None:
        sent = asked("own/m", "own", baseUrl="https://api.z.ai/v4", models=[{"id": "m"}])
        assert sent["thinking"] == {"type": "enabled"}

    def test_what_an_entry_says_goes_before_the_address(self) -> None:
        given = {"id": "glm-4.7", "compat": {"thinkingFormat": "openai"}}
        assert "thinking" not in asked("zai/glm-4.7", "zai", models=[given])


class TestOllama:
    def test_it_is_told_the_window(self) -> None:
        models = [{"id": "m", "contextWindow": 65_536, "contextTokens": 16_384}]
        assert reach("ollama/m", "ollama", models=models).num_ctx == 16_384
        assert reach("ollama/unlisted").num_ctx == 32_768

    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({"baseUrl": "http://127.0.0.1:11434/v1"}, 8_000),
            ({"baseUrl": "http://127.0.0.1:1/v1", "api": "ollama"}, 8_000),
            ({"baseUrl": "http://127.0.0.1:1/v1"}, None),
            ({"baseUrl": "http://127.0.0.1:11434/v1", "injectNumCtxForOpenAICompat": False}, None),
            ({"baseUrl": "http://127.0.0.1:11434/v1", "api": "openai-responses"}, None),
        ],
    )
    def test_others_are_told_when_they_are_one(
        self, settings: dict[str, Any], expected: int | None
    ) -> None:
        models = [{"id": "m", "contextWindow": 8_000}]
        assert reach("own/m", "own", models=models, **settings).num_ctx == expected


class TestHeaders:
    def test_the_nearest_value_wins_whatever_its_case(self) -> None:
        own = catalog(
            {
                "models": {
                    "providers": {
                        "own": {
                            "baseUrl": "http://x.test",
                            "headers": {"X-A": "1", "X-B": "1", "X-C": "1"},
                            "models": [{"id": "m", "headers": {"x-b": "${TWO}", "x-c": "2"}}],
                            "request": {"headers": {"X-c": {"source": "env", "id": "THREE"}}},
                        }
                    }
                }
            },
            TWO="2",
            THREE=" 3\n",
        )
        assert own.headers(ModelRef("own", "m")) == {"X-A": "1", "x-b": "2", "X-c": "3"}

    @pytest.mark.parametrize(
        ("headers", "said"),
        [
            ({"bad name": "x"}, "invalid header name"),
            ({"": "x"}, "invalid header name"),
            ({"Content-Length": "1"}, "Content-Length is set by clawkit itself"),
            ({"Expect": "1"}, "Expect is set by clawkit itself"),
            ({"X-A": "hunter2\r\nX-B: 1"}, "a line break at position 8"),
            ({"X-A": "hunter2\u20ac"}, "invalid in headers at position 8"),
            ({"X-A": "hunter2\0"}, "invalid in headers at position 8"),
        ],
    )
    def test_what_cannot_be_sent_is_refused_and_not_shown(
        self, headers: dict[str, str], said: str
    ) -> None:
        own = with_provider("own", baseUrl="http://x.test", headers=headers, models=[{"id": "m"}])
        with pytest.raises(ConfigError, match=r"^models\.providers\.own\.headers") as caught:
            own.headers(ModelRef("own", "m"))
        assert said in str(caught.value)
        assert "hunter2" not in str(caught.value)

    def test_a_secret_that_is_not_there_names_the_header(self) -> None:
        headers = {"X-Key": {"source": "env", "id": "GONE"}}
        own = with_provider("own", baseUrl="http://x.test", headers=headers, models=[{"id": "m"}])
        with pytest.raises(SecretError, match=r"models\.providers\.own\.headers\.X-Key: .*GONE"):
            own.headers(ModelRef("own", "m"))

    def test_lists_of_features_add_up(self) -> None:
        joined = join_headers({"anthropic-beta": "a,b"}, {"Anthropic-Beta": "b, c"}, {"X": "1"})
        assert joined == {"Anthropic-Beta": "a,b,c", "X": "1"}


class TestRoute:
    @pytest.mark.parametrize(
        ("allow", "loopback", "private"),
        [(None, True, False), (True, True, True), (False, False, False)],
    )
    def test_private_networks_are_opened_by_a_word(
        self, allow: bool | None, loopback: bool, private: bool
    ) -> None:
        request = {} if allow is None else {"allowPrivateNetwork": allow}
        own = with_provider("own", baseUrl="http://x.test", request=request, models=[{"id": "m"}])
        route = own.route(ModelRef("own", "m"))
        assert (route.loopback, route.private, route.proxy) == (loopback, private, None)

    def test_certificates_may_be_secrets(self, tmp_path: Path) -> None:
        (tmp_path / "ca.pem").write_text("CA", encoding="utf-8")
        (tmp_path / "ca.pem").chmod(0o600)
        tls = {
            "ca": {"source": "file", "id": "value", "provider": "pem"},
            "key": "$KEY",
            "serverName": "inner.test",
        }
        config = {
            "secrets": {
                "providers": {
                    "pem": {
                        "source": "file",
                        "path": str(tmp_path / "ca.pem"),
                        "mode": "singleValue",
                    }
                }
            },
            "models": {"providers": {"own": {**LOCAL, "request": {"tls": tls}}}},
        }
        made = catalog(config, KEY="PRIVATE").route(ModelRef("own", "one")).tls
        assert (made.ca, made.cert, made.key, made.server_name) == (
            "CA",
            "",
            "PRIVATE",
            "inner.test",
        )
        assert not made.insecure

    def test_a_proxy_is_the_named_one_or_the_environments(self) -> None:
        env = {"HTTPS_PROXY": "http://env.test:1", "HTTP_PROXY": "http://env.test:2"}

        def proxy_of(url: str, proxy: dict[str, Any] | None) -> str:
            request = {"proxy": proxy} if proxy else {}
            own = {"baseUrl": url, "models": [{"id": "m"}], "request": request}
            route = catalog({"models": {"providers": {"own": own}}}, **env).route(
                ModelRef("own", "m")
            )
            return route.proxy.url if route.proxy else ""

        named = {"mode": "explicit-proxy", "url": "http://named.test:3"}
        assert proxy_of("https://x.test", named) == "http://named.test:3"
        assert proxy_of("https://x.test", {"mode": "env-proxy"}) == "http://env.test:1"
        assert proxy_of("https://x.test", None) == "http://env.test:1"
        assert proxy_of("http://127.0.0.1:1", None) == ""

    def test_towards_the_proxy_there_may_be_other_certificates(self) -> None:
        proxy = {"mode": "env-proxy", "tls": {"ca": "PEM"}}
        own = {**LOCAL, "baseUrl": "https://x.test", "request": {"proxy": proxy}}
        config = {"models": {"providers": {"own": own}}}
        with_one = catalog(config, HTTPS_PROXY="http://env.test:1").route(ModelRef("own", "one"))
        assert with_one.proxy is not None
        assert (with_one.proxy.url, with_one.proxy.tls.ca) == ("http://env.test:1", "PEM")
        assert catalog(config).route(ModelRef("own", "one")).proxy is None

    def test_a_time_limit_is_the_providers(self) -> None:
        own = with_provider("own", timeoutSeconds=7, **LOCAL)
        assert own.timeout_s(ModelRef("own", "one")) == 7.0
        assert own.timeout_s(ModelRef("openai", "gpt-5.4")) is None

    def test_the_time_limit_of_an_agents_model_goes_before_it(self) -> None:
        own = {"models": {"providers": {"own": {"timeoutSeconds": 7, **LOCAL}}}}
        model = {"primary": "own/one", "timeoutMs": 2_500}
        for agents in ({"defaults": {"model": model}}, {"entries": {"main": {"model": model}}}):
            assert catalog({**own, "agents": agents}).timeout_s(ModelRef("own", "one")) == 2.5


class TestList:
    def test_configured_models_come_first_and_every_one_says_where_it_is_from(self) -> None:
        config = {
            "models": {"providers": {"own": {**LOCAL, "contextTokens": 5_000}}},
            "agents": {"defaults": {"models": {"own/one": {"alias": "Uno"}}}},
        }
        entries = catalog(config, ANTHROPIC_API_KEY="k").list()
        first = entries[0]
        assert (str(first.ref), first.source, first.aliases) == ("own/one", "config", ("Uno",))
        assert (first.facts.context_window, first.facts.window) == (128_000, 5_000)
        by_ref = {str(entry.ref): entry for entry in entries}
        assert len(by_ref) == len(entries)
        assert by_ref["anthropic/claude-opus-4-6"].has_credential
        assert by_ref["anthropic/claude-opus-4-6"].source == "known"
        assert not by_ref["openai/gpt-5.4"].has_credential
        assert not any(entry.problem for entry in entries)

    def test_replacing_leaves_only_what_is_configured(self) -> None:
        config = {
            "models": {
                "mode": "replace",
                "providers": {"own": LOCAL, "openai": {"models": [{"id": "gpt-5.4"}]}},
            }
        }
        found = catalog(config)
        assert [str(entry.ref) for entry in found.list()] == [
            "own/one",
            "own/two",
            "openai/gpt-5.4",
        ]
        assert found.endpoint(found.find("gpt-5.4")).base_url == "https://api.openai.com/v1"
        for text in ("anthropic/claude-opus-4-6", "openai/gpt-5.5", "claude-opus-4-6"):
            with pytest.raises(ConfigError):
                found.find(text)

    def test_a_provider_shows_no_key(self) -> None:
        own = with_provider("own", apiKey="hunter2", **LOCAL)
        assert "hunter2" not in repr(own.services)
