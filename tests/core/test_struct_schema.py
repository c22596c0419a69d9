"""The fast schema of a struct is the one that msgspec generates, or none."""

from __future__ import annotations

import importlib
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal, get_args

import msgspec
import pytest
from msgspec import UNSET, Meta, Struct, UnsetType, defstruct
from tests.tables import table

from clawkit.core.catalog import CATALOG
from clawkit.core.struct_schema import struct_schema
from clawkit.core.tool import Tool
from clawkit.schema.choose import Target, adapt
from clawkit.schema.clean import inline


def by_msgspec(struct: type[Struct]) -> dict[str, Any]:
    (root,), parts = msgspec.json.schema_components((struct,), ref_template="#/$defs/{name}")
    for part in parts.values():
        part.pop("title", None)
        part.pop("description", None)
    own: dict[str, Any] = parts.pop(root["$ref"].rsplit("/", 1)[-1])
    return inline(own | {"$defs": parts})


@table("entry", [each for each in CATALOG.values() if each.available])
def test_the_parameters_of_every_tool_have_the_schema_of_msgspec(entry: Any) -> None:
    params = importlib.import_module(entry.module).Params
    assert_alike(params)


def assert_alike(params: type[Struct]) -> None:
    """It is the schema of msgspec, and adapted to every provider as if it came from elsewhere."""
    schema = struct_schema(params)
    assert schema is not None
    assert inline(schema) == by_msgspec(params)
    for target in get_args(Target):
        for strict in (False, True):
            assert adapt(schema, target, strict=strict) == adapt(
                dict(schema), target, strict=strict
            )


class Part(Struct, rename="camel", frozen=True):
    some_name: Annotated[str, Meta(description="Its name")] = ""
    sizes: tuple[int, ...] = ()


class Tree(Struct):
    parts: "list[Tree]" = []  # noqa: UP037


class Tagged(Struct, tag=True):
    name: str


class Colour(Enum):
    RED = "red"


ALIKE: list[tuple[Any, ...]] = [
    (str,),
    (Annotated[str, Meta(min_length=1, max_length=3, pattern="^a", description="Text")], "ab"),
    (Annotated[int, Meta(ge=1, lt=9)], 3),
    (Annotated[float, Meta(gt=0, le=1.5), Meta(description="Part")], 0.5),
    (bool | None, None),
    (None | int | str, 0),
    (int | UnsetType, UNSET),
    (Literal["b", "a"], "a"),
    (list[str], msgspec.field(default_factory=list)),
    (Annotated[tuple[int, ...], Meta(max_length=4)], (1, 2)),
    (dict[str, int], msgspec.field(default_factory=dict)),
    (dict[str, Any],),
    (Any, 1),
    (Annotated[Part, Meta(description="Nested")], Part("x")),
    (list[Part] | None, None),
    (Annotated[str, Meta(description="d", extra_json_schema={"enum": ["x"]})],),
]
UNUSUAL: list[tuple[Any, ...]] = [
    (list[Any],),
    (Tree,),
    (Annotated[str, Meta(extra_json_schema={"x-mine": 1})],),
    (datetime,),
    (Colour,),
    (Tagged,),
    (set[int],),
    (tuple[int, str],),
    (dict[int, str],),
    (Literal[1, 2],),
    (Annotated[int | None, Meta(ge=1)], None),
    (Annotated[int, Meta(multiple_of=2)],),
    (Annotated[str, Meta(title="T")],),
    (Annotated[str, Meta(examples=["a"])],),
    (Annotated[str, "a remark"],),
    (str, msgspec.field(default_factory=str)),
]


def of_field(field: tuple[Any, ...]) -> type[Struct]:
    return defstruct("Params", [("required", int), ("value", *field)], kw_only=True)


def test_ordinary_fields_have_the_schema_of_msgspec(subtests: pytest.Subtests) -> None:
    for field in ALIKE:
        with subtests.test(field=str(field)):
            assert_alike(of_field(field))


def test_unusual_fields_are_left_to_msgspec(subtests: pytest.Subtests) -> None:
    for field in UNUSUAL:
        with subtests.test(field=str(field)):
            assert struct_schema(of_field(field)) is None


def test_two_structs_of_one_name_are_not_confused() -> None:
    other = defstruct("Part", [("x", int)])
    schema = struct_schema(defstruct("Params", [("one", Part), ("two", other)]))
    assert schema is not None
    assert set(schema["properties"]["one"]["properties"]) == {"someName", "sizes"}
    assert set(schema["properties"]["two"]["properties"]) == {"x"}
    assert struct_schema(defstruct("Params", [("x", int)], array_like=True)) is None


def test_a_tool_with_an_unusual_parameter_has_a_schema() -> None:
    tool = Tool("one", "Does one thing", of_field((set[int],)), execute=lambda *_: None)  # type: ignore[arg-type]
    assert tool.schema["properties"]["value"] == {
        "type": "array",
        "items": {"type": "integer"},
        "uniqueItems": True,
    }
    closed = defstruct("Params", [("x", int)], forbid_unknown_fields=True)
    assert struct_schema(closed) == by_msgspec(closed)
