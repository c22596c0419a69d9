"""How much a model can take in, by configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tables import table

from clawkit.agent.model import context_window_of, default_model
from clawkit.config.load import loads
from clawkit.config.modelref import parse_ref
from clawkit.errors import ConfigError
from clawkit.testing import open_kit

CONFIG = loads(
    """{models: {providers: {
      "z.ai": {baseUrl: "http://localhost/v1", contextWindow: 1000, models: [
        {id: "a", name: "A", contextWindow: 5000, contextTokens: 4000},
        {id: "b", name: "B", contextWindow: 3000},
        {id: "c", name: "C"},
      ]},
      plain: {baseUrl: "http://localhost/v1", models: [{id: "x", name: "X"}]},
    }}}"""
).config


@table(
    ("model", "tokens"),
    [
        ("zai/a", 4000),
        ("zai/b", 3000),
        ("zai/c", 1000),
        ("z-ai/unknown", 1000),
        ("plain/x", None),
        ("other/x", None),
        ("minimax/MiniMax-M2.7", 204_800),
        (None, None),
    ],
)
def test_a_cap_comes_before_the_window_and_the_model_before_the_provider(
    model: str | None, tokens: int | None
) -> None:
    assert context_window_of(CONFIG, parse_ref(model) if model else None) == tokens


@table(
    ("config", "agent", "model"),
    [
        ("{}", "main", None),
        ('{agents: {defaults: {model: "z.ai/glm"}}}', "main", "zai/glm"),
        ('{agents: {defaults: {model: {primary: "a/b", fallbacks: ["c/d"]}}}}', "main", "a/b"),
        ('{agents: {defaults: {model: "a/b"}, list: [{id: "x", model: "c/d"}]}}', "x", "c/d"),
        ('{agents: {defaults: {model: "a/b"}, list: [{id: "x"}]}}', "x", "a/b"),
        ('{agents: {defaults: {model: {fallbacks: ["c/d"]}}}}', "main", None),
        (
            '{agents: {defaults: {model: " Quick", models: {"anthropic/x": {alias: "quick"}}}}}',
            *("main", "anthropic/x"),
        ),
        ('{agents: {defaults: {model: "glm"}}}', "main", "glm"),
    ],
)
def test_a_run_without_a_model_has_the_configured_one(
    config: str, agent: str, model: str | None
) -> None:
    found = default_model(loads(config).config, agent)
    assert (str(found) if found else None) == model


def test_a_default_that_cannot_be_a_model_is_an_error_where_it_is_used() -> None:
    with pytest.raises(ConfigError, match=r"agents\.defaults\.model: .* must look like"):
        default_model(loads('{agents: {defaults: {model: "/x"}}}').config, "main")
    with pytest.raises(ConfigError, match=r"agents\.a\.model: .* must look like"):
        default_model(loads('{agents: {list: [{id: "a", model: "/x"}]}}').config, "a")


async def test_settings_for_a_provider_hold_for_the_default_model_too(workspace: Path) -> None:
    config = {
        "agents": {"defaults": {"model": "openai/gpt-5"}},
        "tools": {"byProvider": {"openai": {"deny": ["ls"]}}},
    }
    async with open_kit(workspace, config=config) as kit:
        assert (await kit.call("ls")).details["status"] == "blocked"
        assert kit.schemas()[0]["type"] == "function"
    async with open_kit(workspace, config=config, model="anthropic/x") as kit:
        assert not (await kit.call("ls")).is_error
        assert "input_schema" in kit.schemas()[0]


def test_an_alias_of_two_models_is_an_error() -> None:
    both = '"b/y": {alias: "quick"}, "a/x": {alias: "Quick"}'
    config = loads(f'{{agents: {{defaults: {{model: "quick", models: {{{both}}}}}}}}}').config
    with pytest.raises(ConfigError, match="'quick' refers to both a/x and b/y"):
        default_model(config, "main")
