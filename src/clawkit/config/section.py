"""What every typed part of the configuration is built from.

Here and in the sections annotations are not postponed: evaluating hundreds of them from text
would cost more than everything else a program does at its start.
"""

import re
import sys
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    Self,
    TypeVar,
    dataclass_transform,
)

import msgspec
from msgspec import Meta

Conflict = tuple[str, str, str]
"""Key in the section, what is wrong, what to do about it."""

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Name = Annotated[str, Meta(min_length=1)]


# Said again for type checkers: they do not see that subclasses of a struct inherit its options.
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

    Fields are snake_case here and camelCase in the file. A field that is None was not set. The
    docstring under a field is its description in the documentation and in the JSON Schema.
    """

    ALIASES: ClassVar[dict[str, str]] = {}
    """Other accepted key in the file -> the key this section documents."""
    OPEN: ClassVar[bool] = False
    """Unknown keys are allowed (and not kept) instead of being an error."""

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        """Settings that are each valid and contradict each other.

        `raw` is this object with documented keys, every value of the right type.
        """
        return ()

    @classmethod
    def partial_conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        """The same for an override, whose missing values come from elsewhere."""
        return cls.conflicts(raw)

    @classmethod
    def descriptions(cls) -> dict[str, str]:
        """What each field is for, by its name here; read from the source, so not for hot paths."""
        found: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            if issubclass(base, Section):
                found |= _field_docs(base.__module__)[base.__name__]
        return {name: found[name] for name in cls.__struct_fields__ if name in found}

    def merged(self, override: "Override[Self] | None") -> Self:
        """This section with what `override` sets: maps by key, lists and values as a whole."""
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
    """Class to field to the docstring under it, for the classes of one module."""
    import ast
    import inspect

    found: dict[str, dict[str, str]] = {}
    for cls in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(cls, ast.ClassDef):
            docs = found[cls.name] = {}
            for pair in pairwise(cls.body):
                match pair:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ):
                        docs[name] = " ".join(text.split())
    return found


SectionT = TypeVar("SectionT", bound=Section)


class Partial(Section):
    """Base of the classes that stand behind `Override`."""


class Override(Generic[SectionT]):
    """`Override[Exec]` types an object with the keys of `Exec` in which None means "not set".

    A section with real defaults cannot tell a value that was set from its own default, and an
    agent that repeats a default must still win over the general setting. At run time this is
    a section class of its own; the one thing to do with a value is `Section.merged`.
    """

    def __class_getitem__(cls, section: Any) -> Any:
        return _partial(section)


@cache
def _partial(section: type[Section]) -> type[msgspec.Struct]:
    hints: dict[str, Any] = {}
    for base in reversed(section.__mro__):
        hints |= vars(base).get("__annotations__", {})
    fields = [
        (name, _optional(hints[name]), msgspec.field(default=None, name=key))
        for name, key in zip(
            section.__struct_fields__, section.__struct_encode_fields__, strict=True
        )
    ]
    namespace = {
        "__doc__": section.__doc__,
        "ALIASES": section.ALIASES,
        "OPEN": section.OPEN,
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
        forbid_unknown_fields=not section.OPEN,
    )


def _optional(hint: Any) -> Any:
    is_section = isinstance(hint, type) and issubclass(hint, Section)
    return (_partial(hint) if is_section else hint) | None


_PROVIDER = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_VARIABLE = (re.compile(r"[A-Z][A-Z0-9_]{0,127}"), "a variable name in capitals")
_SECRET_IDS = {
    "env": _VARIABLE,
    "store": _VARIABLE,
    "file": (re.compile(r"value|/.*", re.DOTALL), "`value` or a JSON pointer such as /a/b"),
    "exec": (
        re.compile(r"(?!.*(?:^|/)\.{1,2}(?:/|$))[A-Za-z0-9][A-Za-z0-9._:/#-]{0,255}"),
        "up to 256 letters, digits and ._:/#- without . or .. segments",
    ),
}


class SecretRef(Section):
    """Where to find a secret, instead of the secret itself."""

    source: Literal["env", "file", "exec", "store"]
    """Kind of place: an environment variable, a file, or a command. `store` fails when used."""
    id: Name
    """What to ask for: a variable name, a JSON pointer into the file, or the command's id."""
    provider: str = "default"
    """Entry of `secrets.providers` that says how to reach the place."""

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        if not _PROVIDER.fullmatch(raw.get("provider", "default")):
            yield (
                "provider",
                "not the name of a secret provider",
                "Use up to 64 lower-case letters, digits, - and _, starting with a letter",
            )
        pattern, expected = _SECRET_IDS[raw["source"]]
        if not pattern.fullmatch(raw["id"]):
            yield "id", f"not an id for source {raw['source']!r}", f"Expected {expected}"


SecretInput = str | SecretRef
"""A secret as it is, `${NAME}`, or where to find it."""
