"""The parameter schemas of public MCP servers, as the servers sent them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawkit.schema.choose import adapt

from .rules import anthropic_problems, google_problems, openai_problems, strict_problems

FILES = sorted((Path(__file__).parent / "mcp").glob("*.json"))
TOOLS = {
    f"{file.stem}.{tool['name']}": tool["inputSchema"]
    for file in FILES
    for tool in json.loads(file.read_text(encoding="utf-8"))
}


def test_there_are_tools_of_several_servers() -> None:
    assert len(FILES) >= 5
    assert len(TOOLS) >= 100


def test_every_provider_takes_the_schema(subtests: pytest.Subtests) -> None:
    for name, schema in TOOLS.items():
        with subtests.test(name=name):
            assert anthropic_problems(adapt(schema, "anthropic")) == []
            assert openai_problems(adapt(schema, "openai")) == []
            assert google_problems(adapt(schema, "google")) == []
            assert strict_problems(adapt(schema, "openai", strict=True)) == []


def test_no_property_and_no_description_is_lost(subtests: pytest.Subtests) -> None:
    for name, schema in TOOLS.items():
        with subtests.test(name=name):
            for target in ("anthropic", "openai", "google"):
                form = adapt(schema, target)
                assert list(form["properties"]) == list(schema.get("properties", {}))
                assert form.get("required", []) == schema.get("required", [])
                for key, child in schema.get("properties", {}).items():
                    said = form["properties"][key].get("description", "")
                    assert said.startswith(child.get("description", "").strip())
