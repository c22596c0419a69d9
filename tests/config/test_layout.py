from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import pytest
from msgspec import Meta
from tests.tables import table

from clawkit.config.json5 import parse
from clawkit.config.model import Config
from clawkit.config.section import Section, build, describe, layout_of, shape_of, snake_case

EXAMPLES = sorted((Path(__file__).parent / "examples").glob("*.json5"))


class Inner(Section):
    """A section with one required key."""

    size: Annotated[int, Meta(ge=1)]


class Outer(Section):
    """A section of every kind of key."""

    ALIASES: ClassVar[dict[str, str]] = {"oldName": "newName"}

    new_name: str = ""
    inner: Inner | None = None
    by_name: dict[str, Inner] = msgspec.field(default_factory=dict)
    in_order: list[Inner] = msgspec.field(default_factory=list)
    either: str | Inner | list[str] = ""
    free: dict[str, Any] = msgspec.field(default_factory=dict)
    _hidden: int = msgspec.field(default=0, name="plain_snake")


def test_a_layout_knows_every_spelling() -> None:
    layout = layout_of(Outer)
    assert layout.names == {
        "newName": "newName",
        "new_name": "newName",
        "oldName": "newName",
        "old_name": "newName",
        "inner": "inner",
        "byName": "byName",
        "by_name": "byName",
        "inOrder": "inOrder",
        "in_order": "inOrder",
        "either": "either",
        "free": "free",
        "plain_snake": "plain_snake",
    }
    assert layout.required == ()
    assert layout_of(Inner).required == ("size",)


def test_expected_types_are_described_in_plain_words(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (str, "a string"),
        (bool | None, "true or false"),
        (int, "a whole number"),
        (float, "a number"),
        (int | float, "a number"),
        (Annotated[int, Meta(ge=1, le=10)], "a whole number from 1 to 10"),
        (Annotated[int, Meta(ge=1)], "a whole number of at least 1"),
        (Annotated[float, Meta(gt=0)], "a number of more than 0"),
        (Annotated[int, Meta(le=20_971_520)], "a whole number of at most 20971520"),
        (Annotated[str, Meta(min_length=1)], "a string of at least 1 character"),
        (Annotated[str, Meta(max_length=5)], "a string of at most 5 characters"),
        (Literal["a", "b"], "one of a, b"),
        (Literal["a"], "'a'"),
        (bool | Literal["auto"], "true or false, or 'auto'"),
        (list[str], "a list of strings"),
        (list[str | int], "a list of strings or whole numbers"),
        (list[float], "a list of numbers"),
        (list[Literal["text", "image"]], "a list of words (text, image)"),
        (list[Inner], "a list of objects"),
        (list[list[str]], "a list of lists"),
        (list[Any], "a list"),
        (Annotated[list[str], Meta(max_length=2)], "a list of strings of at most 2 items"),
        (Annotated[list[str] | None, Meta(min_length=1)], "a list of strings of at least 1 item"),
        (Inner, "an object"),
        (dict[str, str], "an object"),
        (str | Inner, "a string, or an object"),
    ]
    for annotation, words in cases:
        with subtests.test(annotation=annotation, words=words):
            assert describe(shape_of(annotation)) == words


def test_limits_hold_for_the_alternative_they_were_written_for() -> None:
    shape = shape_of(Annotated[str, Meta(min_length=1)] | list[Annotated[int, Meta(ge=3)]])
    assert shape.text_limits.min_length == 1
    assert shape.item_limits.min_length is None
    assert shape.items is not None
    assert shape.items.number_limits.ge == 3


@table(
    "checked",
    [
        {},
        {"newName": "x", "inner": {"size": 1}, "byName": {"a": {"size": 2}}},
        {"inOrder": [{"size": 1}, {"size": 2}], "either": "x"},
        {"either": {"size": 3}, "free": {"size": {"size": []}}},
        {"either": ["x"], "plain_snake": 5},
    ],
)
def test_building_gives_what_msgspec_converts(checked: dict[str, Any]) -> None:
    assert build(Outer, checked) == msgspec.convert(checked, Outer)


def test_building_an_example_gives_what_msgspec_converts(subtests: pytest.Subtests) -> None:
    for file in EXAMPLES:
        with subtests.test(file=file):
            checked = parse(file.read_text()).value
            assert build(Config, checked) == msgspec.convert(checked, Config)


def test_snake_case() -> None:
    assert snake_case("timeoutSec") == "timeout_sec"
    assert snake_case("sessions_spawn") == "sessions_spawn"
