"""How much a model can take in, by configuration."""

from __future__ import annotations

import pytest

from clawkit.agent.window import context_window_of
from clawkit.config.load import loads
from clawkit.config.modelref import parse_ref

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


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("zai/a", 4000),
        ("zai/b", 3000),
        ("zai/c", 1000),
        ("z-ai/unknown", 1000),
        ("plain/x", None),
        ("other/x", None),
        (None, None),
    ],
)
def test_a_cap_comes_before_the_window_and_the_model_before_the_provider(
    model: str | None, tokens: int | None
) -> None:
    assert context_window_of(CONFIG, parse_ref(model) if model else None) == tokens
