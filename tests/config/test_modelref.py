from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawkit.config.modelref import ModelRef, normalize_provider, parse_ref


def test_a_reference_is_split_at_the_first_slash(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("openai/gpt-5.2", "openai", "gpt-5.2"),
        ("OpenAI/GPT-5.2", "openai", "GPT-5.2"),
        (" openai/gpt-5.2\n", "openai", "gpt-5.2"),
        ("openrouter/anthropic/claude-opus", "openrouter", "anthropic/claude-opus"),
        ("synthetic/hf:MiniMaxAI/MiniMax-M2.5", "synthetic", "hf:MiniMaxAI/MiniMax-M2.5"),
        ("z.ai/glm-4.7", "zai", "glm-4.7"),
        ("Z-AI/glm-4.7", "zai", "glm-4.7"),
        ("gemini/gemini-3-flash", "google", "gemini-3-flash"),
        ("kimi-coding/kimi-code", "kimi", "kimi-code"),
        ("opencode-zen/claude", "opencode", "claude"),
        ("gpt-5.2", "", "gpt-5.2"),
        ("gemma4:26b", "", "gemma4:26b"),
    ]
    for text, provider, model in cases:
        with subtests.test(text=text, provider=provider, model=model):
            assert parse_ref(text) == ModelRef(provider, model)


def test_a_bad_reference_is_an_error_with_the_reason(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("", "must look like"),
        ("/", "must look like"),
        ("/gpt-5.2", "must look like"),
        ("openai/", "must look like"),
        ("openai//gpt", "must look like"),
        ("openai/gpt/", "must look like"),
        ("openai/gpt 5", "must not contain spaces"),
        ("openai/gpt\x00", "must not contain spaces or control characters"),
        ("open\x1b[31mai/gpt", "must not contain spaces or control characters"),
        ("hf:Owner/model", "not a provider name"),
        ("../model", "not a provider name"),
        ("google/../../v1/files", "must not contain '.' or '..'"),
        ("google/models/.", "must not contain '.' or '..'"),
        ("a" * 600, "longer than 512"),
    ]
    for text, reason in cases:
        with subtests.test(text=text, reason=reason):
            with pytest.raises(ValueError, match=reason) as caught:
                parse_ref(text)
            assert str(caught.value).isprintable()
            assert len(str(caught.value)) < 300


@settings(deadline=None)
@given(st.text())
def test_parsing_what_a_reference_prints_gives_the_same_reference(text: str) -> None:
    try:
        ref = parse_ref(text)
    except ValueError:
        return
    assert parse_ref(str(ref)) == ref


def test_a_provider_has_one_spelling() -> None:
    assert normalize_provider(" Z.AI ") == "zai"
    assert normalize_provider("zai") == "zai"
    assert normalize_provider("google-antigravity") == "google-antigravity"
