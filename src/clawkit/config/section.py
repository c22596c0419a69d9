"""`Section`, the base of all typed parts of the configuration, and the layout of their types.

This module and the sections do not use `from __future__ import annotations`: evaluating hundreds of
annotations from text would dominate start-up. An annotation in quotes is evaluated only if a file
has the setting, so that unused sections are not loaded. Such a section is None if it is not set;
code that needs it uses `config.cron or Cron()`.
"""

import re
import sys
import types
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
)

import msgspec
from msgspec import Meta

from clawkit.text import nearest

Conflict = tuple[str | tuple[str | int, ...], str, str]
"""The key in the section, or the path below it; the error; the fix."""

_NOTHING: tuple[Any, ...] = (None, "", [], {})

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Name = Annotated[str, Meta(min_length=1)]


# Repeated for type checkers, which do not see that subclasses inherit the options of a struct.
@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Section(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename="camel",
):
    """One object of the configuration file.

    Fields are snake_case here and camelCase in the file. None means not set. The `#:` comment after
    a field, or the docstring below it, is its description in the documentation and in the JSON
    Schema, which add the default.
    """

    ALIASES: ClassVar[dict[str, str]] = {}
    """Alternative key in the file -> documented key."""
    NEEDED: ClassVar[dict[str, tuple[str, str | bool]]] = {}
    """Key -> another key, and the value of that key that makes this one required."""
    EXCLUSIVE: ClassVar[dict[str, str]] = {}
    """Key -> another key that it cannot be combined with."""

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        """Settings that are valid by themselves but contradict each other.

        `raw` is this object with documented keys and values of the right types.
        """
        for key, (other, value) in cls.NEEDED.items():
            if raw.get(other) == value and raw.get(key) in _NOTHING:
                shown = "true" if value is True else repr(value)
                yield key, f"missing although {other} is {shown}", f"Set {key} or change {other}"
        for key, other in cls.EXCLUSIVE.items():
            if raw.get(key) not in _NOTHING and raw.get(other) not in _NOTHING:
                yield key, f"cannot be combined with {other!r}", "Keep one of the two"

    @classmethod
    def is_open(cls) -> bool:
        """Whether unknown keys are allowed (and dropped) instead of being an error."""
        return not cls.__struct_config__.forbid_unknown_fields

    @classmethod
    def partial_conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        """Like `conflicts`, for an override, whose missing values come from elsewhere."""
        return cls.conflicts(raw)

    @classmethod
    def descriptions(cls) -> dict[str, str]:
        """Attribute name -> description, by default that of its section. Slow: reads the source."""
        layout, defaults = layout_of(cls), defaults_of(cls)
        written: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            if issubclass(base, Section):
                written |= _field_docs(base.__module__)[base.__name__]
        found: dict[str, str] = {}
        for key, name in layout.fields.items():
            text = written.get(name) or layout.shapes[key].sections[0].__doc__ or ""
            default = defaults.get(name)
            if isinstance(default, bool):
                default = str(default).lower()
            if default and isinstance(default, str | int | float) and "default" not in text:
                text = f"{text.removesuffix('.')}; default {default}."
            found[name] = text
        return found

    def merged(self, override: "Override[Self] | None") -> Self:
        """This section with the values of `override`: maps merge by key, the rest is replaced."""
        changes: dict[str, Any] = {}
        for name in self.__struct_fields__:
            value = getattr(override, name, None)
            if value is None:
                continue
            current = getattr(self, name)
            if isinstance(value, Partial):
                value = current.merged(value)
            elif isinstance(value, dict):
                value = {**current, **value} if current else value
            changes[name] = value
        return msgspec.structs.replace(self, **changes) if changes else self


@cache
def _field_docs(module: str) -> dict[str, dict[str, str]]:
    """Class -> field -> description, for the classes of one module."""
    import ast
    import inspect

    found: dict[str, dict[str, str]] = {}
    source = inspect.getsource(sys.modules[module])
    lines = source.splitlines()
    for cls in ast.parse(source).body:
        if not isinstance(cls, ast.ClassDef):
            continue
        docs = found[cls.name] = {}
        for field, following in pairwise([*cls.body, ast.Pass()]):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                _, mark, text = lines[(field.end_lineno or 1) - 1].partition("  #: ")
                match following:
                    case ast.Expr(value=ast.Constant(value=str(below))) if not mark:
                        text = below
                docs[field.target.id] = " ".join(text.split())
    return found


def defaults_of(cls: type[Section]) -> dict[str, Any]:
    """Field -> default or factory, for the fields that have one."""
    names, values = reversed(cls.__struct_fields__), reversed(cls.__struct_defaults__)
    pairs = zip(names, values, strict=False)
    return {name: value for name, value in pairs if value is not msgspec.NODEFAULT}


SectionT = TypeVar("SectionT", bound=Section)


class Partial(Section):
    """Base of the classes that `Override` creates."""


class Override(Generic[SectionT]):
    """`Override[Exec]` is an object with the keys of `Exec`, in which None means "not set".

    A section with real defaults cannot tell a value that was set from its default, but an agent
    that sets the default explicitly must still override the general setting. At run time this is a
    separate section class, whose only use is `Section.merged`.
    """

    def __class_getitem__(cls, section: Any) -> Any:
        return _partial(section)


def _hints(section: type[Section]) -> dict[str, tuple[Any, str]]:
    """Field -> annotation, and the module it is in."""
    return {
        name: (hint, base.__module__)
        for base in reversed(section.__mro__)
        for name, hint in vars(base).get("__annotations__", {}).items()
    }


@cache
def _partial(section: type[Section]) -> type[msgspec.Struct]:
    fields = []
    names = zip(section.__struct_fields__, section.__struct_encode_fields__, strict=True)
    hints = _hints(section)
    for name, key in names:
        hint = hints[name][0]
        if isinstance(hint, type) and issubclass(hint, Section):
            hint = _partial(hint)
        fields.append((name, hint | None, msgspec.field(default=None, name=key)))
    namespace = {
        "__doc__": section.__doc__,
        "ALIASES": section.ALIASES,
        "conflicts": classmethod(lambda _, raw: section.partial_conflicts(raw)),
        "descriptions": section.descriptions,
    }
    return msgspec.defstruct(
        f"{section.__name__}Override",
        fields,
        bases=(Partial,),
        namespace=namespace,
        module=section.__module__,
        frozen=True,
        forbid_unknown_fields=not section.is_open(),
    )


_PROVIDER = r"[a-z][a-z0-9_-]{0,63}"
_VARIABLE = (r"[A-Z][A-Z0-9_]{0,127}", "a variable name in capitals")
_SECRET_IDS = {
    "env": _VARIABLE,
    "store": _VARIABLE,
    "file": (r"(?s)value|/.*", "`value` or a JSON pointer such as /a/b"),
    "exec": (
        r"(?!.*(?:^|/)\.{1,2}(?:/|$))[A-Za-z0-9][A-Za-z0-9._:/#-]{0,255}",
        "up to 256 letters, digits and ._:/#- without . or .. segments",
    ),
}


class SecretRef(Section):
    """Where to find a secret, instead of the secret itself."""

    source: Literal["env", "file", "exec", "store"]
    """Where it is: an environment variable, a file, or a command. `store` fails when used."""
    id: Name  #: Which one: a variable, a JSON pointer into the file, or an id for the command.
    provider: str = "default"  #: Entry of `secrets.providers` that defines how to read it.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        if not re.fullmatch(_PROVIDER, raw.get("provider", "default")):
            yield (
                "provider",
                "invalid name of a secret provider",
                "Use up to 64 lower-case letters, digits, - and _, starting with a letter",
            )
        pattern, expected = _SECRET_IDS[raw["source"]]
        if not re.fullmatch(pattern, raw["id"]):
            yield "id", f"invalid id for source {raw['source']!r}", f"Expected {expected}"


SecretInput = str | SecretRef
"""A secret, `${NAME}`, or a reference to a secret."""


class Shape:
    """The types a value may have, at most one for each kind of JSON value."""

    def __init__(self) -> None:
        self.anything = False
        self.boolean = False
        self.whole = False
        self.number = False
        self.number_limits = _NO_LIMITS
        self.text = False
        self.text_limits = _NO_LIMITS
        self.words: tuple[str, ...] = ()
        self.items: Shape | None = None
        self.item_limits = _NO_LIMITS
        self.values: Shape | None = None
        self.sections: tuple[type[Section], ...] = ()

    @property
    def is_object(self) -> bool:
        return self.values is not None or bool(self.sections)

    def is_kind_of(self, value: Any) -> bool:
        """Whether a JSON value of this kind is possible here, valid or not."""
        if isinstance(value, str):
            return self.text or bool(self.words)
        if isinstance(value, bool):
            return self.boolean
        if isinstance(value, int | float):
            return self.number or self.whole
        if isinstance(value, list):
            return self.items is not None
        return isinstance(value, dict) and self.is_object


_NO_LIMITS = Meta()

_DEFERRED = {
    name: module
    for module, names in {
        "gateway": ("CommandSettings", "Cron", "GatewaySettings", "Heartbeat", "WebhookSettings"),
        "messaging": ("Binding", "Channel", "Forwarding", "GroupChat", "Messages", "MessageTool"),
        "plugins": ("AgentMemory", "Mcp", "MemoryConfig", "MemorySearch", "Plugins"),
        "skills": ("AgentSkillLimits", "Skills"),
        "web": ("Browser", "MediaSettings", "Tts", "Web"),
    }.items()
    for name in names
}
"""Section class -> its module, for annotations in quotes."""


class DeferredShape(Shape):
    """The shape of an annotation in quotes, evaluated on first use."""

    def __init__(self, annotation: str, module: str) -> None:
        # No super().__init__(): `__getattr__` calls it when an attribute is first used.
        self._annotation = annotation
        self._module = module

    def __getattr__(self, name: str) -> Any:
        namespace = vars(sys.modules[self._module])
        for word in re.findall(r"\w+", self._annotation):
            if word in _DEFERRED:
                module = import_module(f"clawkit.config.sections.{_DEFERRED[word]}")
                namespace[word] = getattr(module, word)
        super().__init__()
        _add(self, eval(self._annotation, namespace))  # noqa: S307  # ours
        return getattr(self, name)


class Layout(msgspec.Struct, frozen=True):
    """The keys of a section class in all accepted spellings, and their shapes."""

    names: dict[str, str]  # accepted key -> documented key
    shapes: dict[str, Shape]  # documented key -> shape, in field order
    fields: dict[str, str]  # documented key -> attribute name
    required: tuple[str, ...]


@cache
def layout_of(cls: type[Section]) -> Layout:
    """The layout of a section class, computed the first time a file has that section."""
    names: dict[str, str] = {}
    shapes: dict[str, Shape] = {}
    fields: dict[str, str] = {}
    hints, defaults = _hints(cls), defaults_of(cls)
    for name, key in zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True):
        shapes[key] = shape_of(*hints[name])
        fields[key] = name
        names[key] = names[snake_case(key)] = key
    for other, documented in cls.ALIASES.items():
        names.setdefault(other, documented)
        names.setdefault(snake_case(other), documented)
    required = tuple(key for key, name in fields.items() if name not in defaults)
    return Layout(names, shapes, fields, required)


def build(cls: type[SectionT], checked: dict[str, Any]) -> SectionT:
    """Build a section from checked data: documented keys, values of the right shape.

    The result equals that of msgspec.convert, which would first have to load every section.
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


def shape_of(annotation: Any, module: str = "") -> Shape:
    """The shape of a type annotation; `module` is needed for annotations in quotes."""
    if isinstance(annotation, str):
        return DeferredShape(annotation, module)
    shape = Shape()
    _add(shape, annotation)
    return shape


def _add(shape: Shape, annotation: Any, limits: Meta = _NO_LIMITS) -> None:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        _add(shape, args[0], args[1])
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


def allows(limits: Meta, size: float) -> bool:
    low, high = _ends(limits)
    return (
        (low is None or size >= low)
        and (high is None or size <= high)
        and (limits.gt is None or size > limits.gt)
    )


def _ends(limits: Meta) -> tuple[float | None, float | None]:
    low = limits.min_length if limits.ge is None else limits.ge
    return low, limits.max_length if limits.le is None else limits.le


def snake_case(name: str) -> str:
    """`timeoutSec` as `timeout_sec`."""
    if name.islower():
        return name
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


def describe(shape: Shape) -> str:
    """The expected value, in words: `a whole number from 1 to 10`."""
    parts = []
    if shape.boolean:
        parts.append("true or false")
    if len(shape.words) == 1:
        parts.append(repr(shape.words[0]))
    elif shape.words:
        parts.append(f"one of {', '.join(shape.words)}")
    if shape.text:
        parts.append("a string" + _range(shape.text_limits, " character"))
    if shape.number or shape.whole:
        kind = "number" if shape.number else "whole number"
        parts.append(f"a {kind}{_range(shape.number_limits)}")
    if shape.items is not None:
        kinds = _plurals(shape.items)
        of = f" of {' or '.join(kinds)}" if kinds else ""
        parts.append(f"a list{of}" + _range(shape.item_limits, " item"))
    if shape.is_object:
        parts.append("an object")
    return ", or ".join(parts)


def _plurals(item: Shape) -> list[str]:
    words = f"words ({', '.join(item.words)})" if item.words and not item.text else ""
    kinds = {
        "strings": item.text,
        words: words,
        "numbers" if item.number else "whole numbers": item.number or item.whole,
        "lists": item.items is not None,
        "objects": item.is_object,
    }
    return [name for name, is_one in kinds.items() if is_one]


def _range(limits: Meta, unit: str = "") -> str:
    low, high = _ends(limits)
    if unit and (low if high is None else high) != 1:
        unit += "s"
    if low is not None and high is not None:
        return f" from {low} to {high}{unit}"
    for words, bound in (("at least", low), ("at most", high), ("more than", limits.gt)):
        if bound is not None:
            return f" of {words} {bound}{unit}"
    return ""


_MAX_SUGGESTED = 24


def suggest(word: str, known: Sequence[str], listing: str = "", *, prefix: str = "") -> str:
    """`Did you mean ...?` for the most similar word; else, if `listing` is given, all words."""
    if close := nearest(word, known, 1):
        return f"Did you mean {prefix + close[0]!r}?"
    if not listing or not known:
        return ""
    more = ", ..." if len(known) > _MAX_SUGGESTED else ""
    return f"{listing}: {', '.join(known[:_MAX_SUGGESTED])}{more}"
