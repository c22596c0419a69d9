"""The known settings: lookup by path in any spelling, keys of the reference implementation that
clawkit does not use, and the JSON Schema."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

import msgspec

from clawkit.config import section
from clawkit.config.json5 import format_path
from clawkit.config.model import Config
from clawkit.config.sources import INCLUDE, read_text
from clawkit.text import nearest

_KEYS_FILE = os.path.join(os.path.dirname(__file__), "reference-keys.txt")

Tree: TypeAlias = dict[str, "Tree"]


def is_known(path: Sequence[str | int]) -> bool:
    """Whether that key path is a setting of the reference implementation."""
    if tuple(path[:2]) == ("agents", "list"):
        # The older form: a list of agents instead of a map by id.
        path = ("agents", "entries", *("*" for _ in path[2:3]), *path[3:])
    return _reaches(_tree(), path)


def _reaches(tree: Tree, path: Sequence[str | int]) -> bool:
    if not path:
        return True
    step, rest = path[0], path[1:]
    names = ("[]",) if isinstance(step, int) else (step, "*")
    return any(name in tree and _reaches(tree[name], rest) for name in names)


@cache
def _tree() -> Tree:
    return parse_tree(read_text(_KEYS_FILE))


def parse_tree(text: str) -> Tree:
    """Parse the packaged list of keys; its first lines describe the format."""
    root: Tree = {}
    open_trees = [root]
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, _, leaves = line.strip().partition(":")
        depth = len(line) - len(line.lstrip(" "))
        del open_trees[depth + 1 :]
        tree = open_trees[depth].setdefault(name, {}) if name else root
        for leaf in leaves.split():
            tree.setdefault(leaf, {})
        open_trees.append(tree)
    return root


Path = tuple[str | int, ...]

ROOT = section.shape_of(Config)
ANYTHING = section.shape_of(Any)


class FoundSetting(msgspec.Struct, frozen=True):
    path: Path  # with documented names, and integers for list indexes
    shape: section.Shape | None  # None if there is no such setting
    hint: str = ""  # suggestion if there is no such setting


def find(path: Sequence[str | int]) -> FoundSetting:
    """The setting at `path`, given in any accepted spelling."""
    shape = ROOT
    above: Path = ()
    for step in path:
        name, below = _below(shape, step, above)
        if below is None:
            rest = path[len(above) + 1 :]
            return FoundSetting((*above, name), None, _hint(shape, str(step), above, rest))
        above, shape = (*above, name), below
    return FoundSetting(above, shape)


def below(shape: section.Shape, step: str | int) -> tuple[str | int, section.Shape]:
    """Documented name and shape one step further; unknown settings may be anything."""
    name, found = _below(shape, step, ())
    return name, found or ANYTHING


def _below(
    shape: section.Shape, step: str | int, above: Path
) -> tuple[str | int, section.Shape | None]:
    if shape.anything:
        return step, ANYTHING
    if shape.sections:
        cls, key = shape.sections[0], str(step)
        layout = section.layout_of(cls)
        name = layout.names.get(key)
        if name is not None:
            return name, layout.shapes[name]
        return key, ANYTHING if cls.is_open() or key == INCLUDE or is_known((*above, key)) else None
    if shape.values is not None:
        return str(step), shape.values
    if shape.items is not None and str(step).isdecimal():
        return int(step), shape.items
    return step, None


def _hint(shape: section.Shape, step: str, above: Path, rest: Sequence[str | int]) -> str:
    if not shape.sections:
        return f"{format_path(above)} takes {section.describe(shape)}"
    names = tuple(section.layout_of(shape.sections[0]).shapes)
    if rest and (close := nearest(step, names, 1)):
        meant = find((*above, close[0], *rest))
        return f"Did you mean {format_path(meant.path)!r}?" if meant.shape else meant.hint
    where = format_path(above)
    listing = f"Settings in {where!r}" if above else "Top-level settings"
    return section.suggest(step, names, listing, prefix=f"{where}." if above else "")


def is_secret(shape: section.Shape) -> bool:
    return shape.text and section.SecretRef in shape.sections


def value_at(value: Any, path: Sequence[str | int]) -> Any:
    """The part of `value` at `path`, spelled as in `value`; None if there is none."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(str(step))
        elif isinstance(value, list) and str(step).isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def in_force(value: Any, path: Sequence[str | int]) -> Any:
    """The typed value at a path of documented names, including defaults; None if there is none."""
    for step in path:
        if isinstance(value, section.Section):
            layout = section.layout_of(type(value))
            field = layout.fields.get(str(step))
            value = None if field is None else getattr(value, field)
            if value is None and isinstance(
                shape := layout.shapes.get(str(step)), section.DeferredShape
            ):
                value = shape.sections[0]()  # not built, because it is not in the file
        else:
            value = value_at(value, (step,))
    return value


def explain(path: Path) -> tuple[Any, str]:
    """The default (or None) and the description of the setting at a path of documented names; both
    are empty for keys that users choose."""
    found, above = find(path).shape, find(path[:-1]).shape
    cls = above.sections[0] if above and above.sections else section.Section
    field = section.layout_of(cls).fields.get(str(path[-1]), "")
    default = section.defaults_of(cls).get(field)
    make = getattr(default, "factory", None)
    if (
        isinstance(found, section.DeferredShape)
        and found.sections
        and not issubclass(found.sections[0], section.Partial)
    ):
        make = found.sections[0]
    return make() if make else default, cls.descriptions().get(field, "")


def spelled(path: Sequence[str | int], value: Any) -> Path:
    """`path` with the spellings that `value` uses."""
    shape = ROOT
    result: list[str | int] = []
    for step in path:
        name, inner = below(shape, step)
        if isinstance(value, dict):
            step = _as_written(str(step), name, value, shape)
        elif isinstance(name, int):
            step = name
        value = value_at(value, (step,))
        result.append(step)
        shape = inner
    return tuple(result)


def aligned(new: Any, old: Any, shape: section.Shape) -> Any:
    """`new` with the spellings that `old` uses, so that no setting is in the file twice."""
    if not isinstance(new, dict) or not isinstance(old, dict):
        return new
    result: dict[str, Any] = {}
    for key, value in new.items():
        name, inner = below(shape, key)
        written = _as_written(key, name, old, shape)
        if written != key and written in new:
            written = key
        result[written] = aligned(value, old.get(written), inner)
    return result


def _as_written(key: str, name: str | int, value: dict[str, Any], shape: section.Shape) -> str:
    if key in value or not shape.sections:
        return key
    names = section.layout_of(shape.sections[0]).names
    return next((other for other in value if names.get(other) == name), key)


_INCLUDE_SCHEMA = {
    "description": "Files to merge in here, in order; keys next to it take precedence.",
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
}


@cache
def json_schema() -> dict[str, Any]:
    """A schema that accepts what `check` does, and conflicts, but no snake_case spellings. Cached,
    because generating it takes long: callers must not modify it."""
    sections = all_sections()  # also loads them
    schema: dict[str, Any] = _without_null(msgspec.json.schema(Config))
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    for cls in sections:
        properties = schema["$defs"][cls.__name__]["properties"]
        keys = {name: key for key, name in section.layout_of(cls).fields.items()}
        for name, text in cls.descriptions().items():
            properties[keys[name]] = {"description": text, **properties[keys[name]]}
        for other, documented in cls.ALIASES.items():
            properties[other] = {**properties[documented], "deprecated": True}
        properties[INCLUDE] = _INCLUDE_SCHEMA
    return schema


def all_sections() -> list[type[section.Section]]:
    found: list[type[section.Section]] = [Config]
    for cls in found:
        inner = (_sections_in(shape) for shape in section.layout_of(cls).shapes.values())
        new = dict.fromkeys(each for sections in inner for each in sections)
        found += [each for each in new if each not in found]
    return found


def _sections_in(shape: section.Shape | None) -> tuple[type[section.Section], ...]:
    if shape is None:
        return ()
    return (*shape.sections, *_sections_in(shape.items), *_sections_in(shape.values))


def _without_null(schema: Any) -> Any:
    """The schema without null: in a file, an unset setting is left out."""
    if isinstance(schema, list):
        return [_without_null(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {
        key: _without_null(value)
        for key, value in schema.items()
        if (key, value) != ("default", None)
    }
    if "anyOf" in schema:
        options = [option for option in schema.pop("anyOf") if option != {"type": "null"}]
        schema = {**(options[0] if len(options) == 1 else {"anyOf": options}), **schema}
    return schema
