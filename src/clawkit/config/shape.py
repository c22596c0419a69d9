"""What a setting may look like: the types of the sections, in a form the check can walk."""

from __future__ import annotations

import types
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec

from clawkit.config.section import Section, SectionT


class Limits(NamedTuple):
    """Bounds that hold for a number, or for the length of a string or list."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    min_length: int | None = None
    max_length: int | None = None

    def allow_number(self, value: float) -> bool:
        return not (
            (self.ge is not None and value < self.ge)
            or (self.gt is not None and value <= self.gt)
            or (self.le is not None and value > self.le)
            or (self.lt is not None and value >= self.lt)
        )

    def allow_length(self, length: int) -> bool:
        return length >= (self.min_length or 0) and (
            self.max_length is None or length <= self.max_length
        )


class Shape:
    """The alternatives a value may be, at most one for each kind of JSON value."""

    __slots__ = (
        "anything",
        "boolean",
        "item_limits",
        "items",
        "number",
        "number_limits",
        "sections",
        "text",
        "text_limits",
        "values",
        "whole",
        "words",
    )

    def __init__(self) -> None:
        self.anything = False
        self.boolean = False
        self.whole = False
        self.number = False
        self.number_limits = Limits()
        self.text = False
        self.text_limits = Limits()
        self.words: tuple[str, ...] = ()
        self.items: Shape | None = None
        self.item_limits = Limits()
        self.values: Shape | None = None
        self.sections: tuple[type[Section], ...] = ()

    @property
    def is_object(self) -> bool:
        return self.values is not None or bool(self.sections)

    def is_kind_of(self, value: Any) -> bool:
        """Whether a JSON value of this kind, right or wrong in itself, may stand here."""
        if isinstance(value, str):
            return self.text or bool(self.words)
        if isinstance(value, bool):
            return self.boolean
        if isinstance(value, int | float):
            return self.number or self.whole
        if isinstance(value, list):
            return self.items is not None
        return isinstance(value, dict) and self.is_object


class Layout(NamedTuple):
    """One section class: every accepted spelling of every key, and what belongs there."""

    names: dict[str, str]
    """Accepted key -> documented key."""
    shapes: dict[str, Shape]
    """Documented key -> shape, in the order of the class."""
    fields: dict[str, str]
    """Documented key -> name of the attribute."""
    required: tuple[str, ...]


@cache
def layout_of(cls: type[Section]) -> Layout:
    """The layout of a section class, worked out the first time a file has that section."""
    names: dict[str, str] = {}
    shapes: dict[str, Shape] = {}
    fields: dict[str, str] = {}
    required: list[str] = []
    for field in msgspec.structs.fields(cls):
        shapes[field.encode_name] = shape_of(field.type)
        fields[field.encode_name] = field.name
        names[field.encode_name] = names[snake_case(field.encode_name)] = field.encode_name
        if field.required:
            required.append(field.encode_name)
    for other, documented in cls.ALIASES.items():
        names.setdefault(other, documented)
        names.setdefault(snake_case(other), documented)
    return Layout(names, shapes, fields, tuple(required))


def build(cls: type[SectionT], checked: dict[str, Any]) -> SectionT:
    """The section that `checked` describes: documented keys, every value of the right shape.

    Equal to what msgspec would convert, which first prepares for every section there is and
    would take most of the time of starting up.
    """
    layout = layout_of(cls)
    return cls(
        **{
            layout.fields[key]: _typed(layout.shapes[key], value)
            for key, value in checked.items()
            if key in layout.fields
        }
    )


def _typed(shape: Shape, value: Any) -> Any:
    if isinstance(value, dict) and shape.sections:
        return build(shape.sections[0], value)
    if isinstance(value, dict) and shape.values is not None:
        return {key: _typed(shape.values, item) for key, item in value.items()}
    if isinstance(value, list) and shape.items is not None:
        return [_typed(shape.items, item) for item in value]
    return value


def shape_of(annotation: Any) -> Shape:
    """The shape of a type annotation made of what sections may use."""
    shape = Shape()
    _add(shape, annotation, Limits())
    return shape


def _add(shape: Shape, annotation: Any, limits: Limits) -> None:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        _add(shape, args[0], _tightened(limits, args[1:]))
    elif origin in (Union, types.UnionType):
        for alternative in args:
            _add(shape, alternative, limits)
    elif origin is Literal:
        shape.words += args
    elif origin is list:
        shape.items, shape.item_limits = shape_of(args[0]), limits
    elif origin is dict:
        shape.values = shape_of(args[1])
    elif annotation is str:
        shape.text, shape.text_limits = True, limits
    elif annotation in (int, float):
        shape.whole |= annotation is int
        shape.number |= annotation is float
        shape.number_limits = limits
    elif annotation is bool:
        shape.boolean = True
    elif annotation is Any:
        shape.anything = True
    elif annotation is not types.NoneType:
        shape.sections += (annotation,)


def _tightened(limits: Limits, metadata: tuple[Any, ...]) -> Limits:
    for meta in metadata:
        given = {name: getattr(meta, name, None) for name in Limits._fields}
        limits = limits._replace(
            **{name: bound for name, bound in given.items() if bound is not None}
        )
    return limits


def snake_case(name: str) -> str:
    """`timeoutSec` as `timeout_sec`."""
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


def describe(shape: Shape) -> str:
    """What is expected, in plain words: `a whole number from 1 to 10`."""
    parts = []
    if shape.boolean:
        parts.append("true or false")
    if shape.words:
        parts.append(_one_of(shape.words))
    if shape.text:
        parts.append("a string" + _length(shape.text_limits, "character"))
    if shape.number or shape.whole:
        parts.append(f"a {_number(shape)}{_range(shape.number_limits)}")
    if shape.items is not None:
        parts.append(f"a list{_of(shape.items)}" + _length(shape.item_limits, "item"))
    if shape.is_object:
        parts.append("an object")
    return ", or ".join(parts)


def _one_of(words: tuple[str, ...]) -> str:
    return repr(words[0]) if len(words) == 1 else f"one of {', '.join(words)}"


def _number(shape: Shape) -> str:
    return "number" if shape.number else "whole number"


def _of(item: Shape) -> str:
    kinds = []
    if item.text:
        kinds.append("strings")
    elif item.words:
        kinds.append(f"words ({', '.join(item.words)})")
    if item.number or item.whole:
        kinds.append(f"{_number(item)}s")
    if item.items is not None:
        kinds.append("lists")
    if item.is_object:
        kinds.append("objects")
    return f" of {' or '.join(kinds)}" if kinds else ""


def _range(limits: Limits) -> str:
    if limits.ge is not None and limits.le is not None:
        return f" from {limits.ge} to {limits.le}"
    bounds = (
        ("at least", limits.ge),
        ("more than", limits.gt),
        ("at most", limits.le),
        ("less than", limits.lt),
    )
    given = " and ".join(f"{words} {bound}" for words, bound in bounds if bound is not None)
    return f" of {given}" if given else ""


def _length(limits: Limits, unit: str) -> str:
    low, high = limits.min_length, limits.max_length
    if high is None:
        return f" of at least {_count(low, unit)}" if low else ""
    return f" of {low or 0} to {_count(high, unit)}"


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"
