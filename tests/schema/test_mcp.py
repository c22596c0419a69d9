"""The parameter schemas of public MCP servers, as the servers sent them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clawkit.schema.choose import adapt

from .rules import anthropic_problems, google_problems, openai_problems, strict_problems

FILES = sorted((Path(__file__).parent / "mcp").glob("*.json"))
TOOLS = [
    pytest.param(tool["inputSchema"], id=f"{file.stem}.{tool['name']}")
    for file in FILES
    for tool in json.loads(file.read_text(encoding="utf-8"))
]


def test_there_are_tools_of_several_servers() -> None:
    assert len(FILES) >= 5
    assert len(TOOLS) >= 100


@pytest.mark.parametrize("schema", TOOLS)
def test_every_provider_takes_the_schema(schema: dict[str, Any]) -> None:
    assert anthropic_problems(adapt(schema, "anthropic")) == []
    assert openai_problems(adapt(schema, "openai")) == []
    assert google_problems(adapt(schema, "google")) == []
    assert strict_problems(adapt(schema, "openai", strict=True)) == []


@pytest.mark.parametrize("schema", TOOLS)
def test_no_property_and_no_description_is_lost(schema: dict[str, Any]) -> None:
    for target in ("anthropic", "openai", "google"):
        form = adapt(schema, target)
        assert list(form["properties"]) == list(schema.get("properties", {}))
        assert form.get("required", []) == schema.get("required", [])
        for name, child in schema.get("properties", {}).items():
            said = form["properties"][name].get("description", "")
            assert said.startswith(child.get("description", "").strip())
