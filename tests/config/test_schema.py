"""The printed schema and the check must say the same, so each is the other's test."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawkit.config.json5 import parse
from clawkit.config.load import check
from clawkit.config.lookup import all_sections, is_known, json_schema
from clawkit.config.model import Config
from clawkit.config.section import Section, Shape, layout_of, shape_of
from clawkit.errors import ConfigError

EXAMPLES = [
    parse(file.read_text()).value
    for file in sorted((Path(__file__).parent / "examples").glob("*.json5"))
]
PROBES: list[Any] = [
    *(None, True, False, 0, 1, -1, 7, 30.0, 1.5, 100_000, 10**20, 1e300),
    *("", "x", "off", "true", "5", "${X}"),
    *([], ["x"], [1], [None], [[]], [{}], {}, {"x": 1}, {"x": "y"}, {"x": None}, {"x": {}}),
]


@cache
def validator() -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(json_schema())


def check_accepts(raw: Any) -> bool:
    """Whether the check finds every key and value right, contradictions aside."""
    try:
        check(raw, lambda path: ("", 0))
    except ConfigError as error:
        structural = ("expected ", "unknown setting", "the setting ")
        return not any(issue.message.startswith(structural) for issue in error.issues)
    return True


def paths_to(cls: type[Section]) -> list[tuple[str, ...]]:
    """For every section below `cls`, one path of keys to it; `*` is a map key, `[]` an item."""
    found: dict[type[Section], tuple[str, ...]] = {cls: ()}
    queue = [cls]
    while queue:
        outer = queue.pop(0)
        for key, shape in layout_of(outer).shapes.items():
            for inner, steps in sections_in(shape):
                if inner not in found:
                    found[inner] = (*found[outer], key, *steps)
                    queue.append(inner)
    assert set(found) == set(all_sections())
    return list(found.values())


def sections_in(shape: Shape) -> Iterator[tuple[type[Section], tuple[str, ...]]]:
    for cls in shape.sections:
        yield cls, ()
    for inner, step in ((shape.items, "[]"), (shape.values, "*")):
        if inner is not None:
            for cls, steps in sections_in(inner):
                yield cls, (step, *steps)


def at(path: tuple[str, ...], leaf: dict[str, Any]) -> Any:
    """A configuration that has `leaf` at `path`, with whatever else is required on the way."""
    return place(shape_of(Config), path, leaf)


def place(shape: Shape, path: tuple[str, ...], leaf: dict[str, Any]) -> Any:
    if not path:
        return smallest(shape) | leaf
    step, rest = path[0], path[1:]
    if step == "[]" and shape.items:
        return [place(shape.items, rest, leaf)]
    if step == "*" and shape.values:
        return {"key": place(shape.values, rest, leaf)}
    inner = layout_of(shape.sections[0]).shapes[step]
    return smallest(shape) | {step: place(inner, rest, leaf)}


def smallest(shape: Shape) -> Any:
    """The least value of a shape that is accepted."""
    if shape.sections:
        layout = layout_of(shape.sections[0])
        return {name: smallest(layout.shapes[name]) for name in layout.required}
    if shape.values:
        return {}
    if shape.items:
        return []
    if shape.words:
        return shape.words[0]
    return "x" if shape.text else 100


def test_schema_and_check_agree_on_every_setting(subtests: pytest.Subtests) -> None:
    for path in paths_to(Config):
        with subtests.test(path=".".join(path)):
            shape = shape_of(Config)
            for step in path:
                inner = {"[]": shape.items, "*": shape.values}.get(step)
                shape = inner or layout_of(shape.sections[0]).shapes[step]
            (cls,) = shape.sections
            assert validator().is_valid(at(path, {})), f"{cls.__name__} has no smallest form"
            assert check_accepts(at(path, {}))
            for key in [*layout_of(cls).shapes, *cls.ALIASES, "nosuchkey"]:
                for probe in PROBES:
                    raw = at(path, {key: probe})
                    assert check_accepts(raw) == validator().is_valid(raw), raw


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) in a tree."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


KEYS = sorted({key for cls in all_sections() for key in layout_of(cls).shapes} - {"$schema"})
NAMES = st.sampled_from(KEYS) | st.text(max_size=3)
LEAVES = st.sampled_from(PROBES) | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.data())
def test_schema_and_check_agree_on_damaged_examples(data: st.DataObject) -> None:
    raw = copied(data.draw(st.sampled_from(EXAMPLES)))
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from([*places(raw), (raw, "tools")]))
        if isinstance(container, dict):
            match data.draw(st.sampled_from(["replace", "rename", "remove", "add"])):
                case "rename" | "remove" as action:
                    value = container.pop(key, None)
                    if action == "rename":
                        container[data.draw(NAMES)] = value
                    continue
                case "add":
                    key = data.draw(NAMES)
        container[key] = copied(data.draw(VALUES))
    if not any(is_unused(path) for path in all_paths(raw)):
        assert check_accepts(raw) == validator().is_valid(raw)


def all_paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from all_paths(item, (*path, key))


def is_unused(path: tuple[str | int, ...]) -> bool:
    """Whether the check passes over that key with a warning, which a schema cannot do."""
    if not is_known(path):
        return False
    shape: Shape | None = shape_of(Config)
    for step in path:
        if shape is None or shape.anything:
            return False
        if isinstance(step, int):
            shape = shape.items
        elif shape.sections:
            layout = layout_of(shape.sections[0])
            if step not in layout.names:
                return not shape.sections[0].is_open()
            shape = layout.shapes[layout.names[step]]
        else:
            shape = shape.values
    return False


def test_older_names_are_in_the_schema_and_marked() -> None:
    properties = json_schema()["$defs"]["Exec"]["properties"]
    assert properties["timeoutSeconds"]["deprecated"] is True
    assert properties["timeoutSeconds"]["minimum"] == properties["timeoutSec"]["minimum"] == 10


def test_every_setting_is_described() -> None:
    definitions = json_schema()["$defs"]
    bare = [
        f"{name}.{key}"
        for name, definition in definitions.items()
        for key, setting in definition["properties"].items()
        if not setting.get("description")
    ]
    assert bare == []


def test_includes_are_allowed_everywhere() -> None:
    assert validator().is_valid({"$include": "a.json5", "tools": {"$include": ["b.json5"]}})


def test_class_names_are_unique_because_definitions_carry_them() -> None:
    names = [cls.__name__ for cls in all_sections()]
    assert len(names) == len(set(names))
