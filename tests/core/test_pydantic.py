"""A tool may bring a pydantic model as its parameters."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, Field, field_validator

from clawkit.core.context import Context
from clawkit.core.tool import Tool
from clawkit.errors import SchemaError
from clawkit.testing import check_tool, open_kit


class Point(BaseModel):
    x: int = Field(description="Across")
    y: int = Field(description="Down", ge=0)


class Trip(BaseModel):
    start: Point = Field(description="Where to begin")
    note: str = Field("", description="Anything")

    @field_validator("note")
    @classmethod
    def _polite(cls, note: str) -> str:
        if "damn" in note:
            raise ValueError("mind your words")
        return note


async def go(trip: Trip, _ctx: Context) -> str:
    return f"{trip.start.x}/{trip.start.y} {trip.note}"


TOOL = Tool("go", "Go somewhere.", Trip, go)


async def test_the_tool_is_given_the_model(workspace: Path) -> None:
    assert check_tool(TOOL) == []
    async with open_kit(workspace, TOOL) as kit:
        good = await kit.call("go", {"start": {"x": "3", "y": 4}, "note": "fast"})
        assert good.as_text() == "3/4 fast"
        low = await kit.call("go", {"start": {"x": 3, "y": -1}})
        assert "start.y" in low.details["error"]
        rude = await kit.call("go", {"start": {"x": 3, "y": 1}, "note": "damn"})
        assert "mind your words" in rude.details["error"]


def test_other_types_of_parameters_are_a_schema_error() -> None:
    with pytest.raises(SchemaError, match="neither a struct nor a schema"):
        _ = Tool("odd", "Odd.", int, go).schema  # type: ignore[arg-type]
