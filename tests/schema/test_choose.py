from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clawkit.errors import SchemaError
from clawkit.schema.choose import Target, adapt, target_for

ALL: list[Target] = ["anthropic", "openai", "google"]


def test_a_schema_without_parameters_is_an_empty_object(subtests: pytest.Subtests) -> None:
    empty: list[dict[str, Any]] = [{}, {"type": "object"}, {"properties": {}}, {"required": []}]
    for target in ALL:
        for schema in empty:
            with subtests.test(target=target, schema=schema):
                form = adapt(schema, target)
                assert (form["type"], form["properties"]) == ("object", {})


def test_a_result_belongs_to_its_caller() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"enum": ["x"]}}}}
    first = adapt(schema, "anthropic")
    first["properties"]["a"]["items"]["enum"].append("y")
    assert adapt(schema, "anthropic") == schema
    assert schema["properties"]["a"]["items"]["enum"] == ["x"]  # type: ignore[index]


def test_a_value_that_is_null_is_not_taken_for_one_that_is_not_a_number() -> None:
    """A remembered result must not hide the error."""
    schema = {"type": "object", "properties": {"a": {"default": None}}}
    adapt(schema, "openai")
    with pytest.raises(SchemaError):
        adapt({"type": "object", "properties": {"a": {"default": float("nan")}}}, "openai")


def test_strict_is_openais() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert adapt(schema, "openai", strict=True) != schema
    assert adapt(schema, "anthropic", strict=True) == schema


def test_the_same_schema_gives_the_same_bytes_in_every_process() -> None:
    tools = Path(__file__).parent / "mcp" / "notion.json"
    program = (
        "import json, sys\n"
        "from clawkit.schema.choose import adapt\n"
        "for tool in json.load(open(sys.argv[1], encoding='utf-8')):\n"
        "    schema = tool['inputSchema']\n"
        "    forms = [adapt(schema, t) for t in ('anthropic', 'openai', 'google')]\n"
        "    print(json.dumps([*forms, adapt(schema, 'openai', strict=True)]))\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program, str(tools)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1
    assert len(json.loads(outputs.pop().splitlines()[0])) == 4


def test_the_protocol_then_the_provider_then_the_model_decide(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("anthropic", "claude-opus-4-6", None, "anthropic"),
        ("openai", "gpt-5.4", "openai-responses", "openai"),
        ("google", "gemini-3-pro", None, "google"),
        ("google-antigravity", "claude-opus-4-6", None, "google"),
        ("Google-Vertex", None, None, "google"),
        ("openrouter", "google/gemini-3-flash", "openai-completions", "google"),
        ("openrouter", "anthropic/claude-sonnet-4-6", "openai-completions", "openai"),
        ("openrouter", "anthropic/claude-sonnet-4-6", None, "anthropic"),
        ("kimi", "k2", "anthropic-messages", "anthropic"),
        ("relay", "gemini-3-pro", "anthropic-messages", "anthropic"),
        ("anthropic-vertex", "claude-opus-4-6", None, "anthropic"),
        ("amazon-bedrock", "anthropic.claude-opus", "bedrock-converse-stream", "anthropic"),
        ("proxy", "g", "google-generative-ai", "google"),
        ("ollama", "llama3", None, "openai"),
        (None, None, None, "openai"),
    ]
    for provider, model, api, target in cases:
        with subtests.test(provider=provider, model=model, api=api, target=target):
            assert target_for(provider, model, api) == target
