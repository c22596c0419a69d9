"""Which settings there are: paths through the typed sections, in whatever spelling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from clawkit.config.include import INCLUDE
from clawkit.config.json5 import format_path
from clawkit.config.model import Config
from clawkit.config.reference import is_known
from clawkit.config.section import SecretRef, Section
from clawkit.config.shape import Shape, describe, layout_of, shape_of
from clawkit.text import nearest

Path = tuple[str | int, ...]

ROOT = shape_of(Config)
ANYTHING = shape_of(Any)


class Found(NamedTuple):
    """What a path leads to."""

    path: Path
    """With documented names, and numbers where the path goes through a list."""
    shape: Shape | None
    """What belongs there; None when there is no such setting."""
    hint: str = ""
    """What may have been meant, when there is none."""


def find(path: Sequence[str | int]) -> Found:
    """The setting at `path`, given in any accepted spelling."""
    shape = ROOT
    above: Path = ()
    for step in path:
        name, below = _below(shape, step, above)
        if below is None:
            return Found((*above, name), None, _hint(shape, str(step), above))
        above, shape = (*above, name), below
    return Found(above, shape)


def below(shape: Shape, step: str | int) -> tuple[str | int, Shape]:
    """Documented name and shape one step further; what is not known may be anything."""
    name, found = _below(shape, step, ())
    return name, found or ANYTHING


def _below(shape: Shape, step: str | int, above: Path) -> tuple[str | int, Shape | None]:
    if shape.anything:
        return step, ANYTHING
    if shape.sections:
        cls, key = shape.sections[0], str(step)
        layout = layout_of(cls)
        name = layout.names.get(key)
        if name is not None:
            return name, layout.shapes[name]
        return key, ANYTHING if cls.OPEN or key == INCLUDE or is_known((*above, key)) else None
    if shape.values is not None:
        return str(step), shape.values
    if shape.items is not None and str(step).isdecimal():
        return int(step), shape.items
    return step, None


def _hint(shape: Shape, step: str, above: Path) -> str:
    if not shape.sections:
        return f"{format_path(above)} takes {describe(shape)}"
    names = tuple(layout_of(shape.sections[0]).shapes)
    close = nearest(step, names, 1)
    if close:
        return f"Did you mean {format_path((*above, close[0]))!r}?"
    more = ", ..." if len(names) > _MAX_LISTED else ""
    where = f"in {format_path(above)!r}" if above else "at the top"
    return f"Settings {where}: {', '.join(names[:_MAX_LISTED])}{more}"


_MAX_LISTED = 24


def is_secret(shape: Shape) -> bool:
    """Whether the setting is a secret or a reference to one."""
    return shape.text and SecretRef in shape.sections


def value_at(value: Any, path: Sequence[str | int]) -> Any:
    """What `value` holds at `path`, spelled as in `value`; None for nothing."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(str(step))
        elif isinstance(value, list) and str(step).isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def in_force(config: Config, path: Sequence[str | int]) -> Any:
    """The typed value at a path of documented names, defaults included; None for nothing."""
    value: Any = config
    for step in path:
        if isinstance(value, Section):
            field = layout_of(type(value)).fields.get(str(step))
            value = None if field is None else getattr(value, field)
        else:
            value = value_at(value, (step,))
    return value


def spelled(path: Sequence[str | int], value: Any) -> Path:
    """`path` with the names that `value` uses for the same settings."""
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


def aligned(new: Any, old: Any, shape: Shape) -> Any:
    """`new` with the names that `old` uses, so that no setting ends up under two of them."""
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


def _as_written(key: str, name: str | int, value: dict[str, Any], shape: Shape) -> str:
    if key in value or not shape.sections:
        return key
    names = layout_of(shape.sections[0]).names
    return next((other for other in value if names.get(other) == name), key)
