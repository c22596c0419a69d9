"""A tool is data plus one async function."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any, Protocol, cast, get_type_hints, overload

import msgspec

from clawkit.core.context import Context
from clawkit.core.effects import ANYTHING, Effect
from clawkit.core.validator import make_validator
from clawkit.errors import SchemaError
from clawkit.text import one_line

Execute = Callable[[Any, Context], Awaitable[object]]
EffectsOf = Callable[[Any, Context], Iterable[Effect]]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_NO_ALIASES: Mapping[str, str] = MappingProxyType({})


def is_tool_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def _anything(_params: object, _ctx: Context) -> tuple[Effect, ...]:
    return ANYTHING


class Model(Protocol):
    """What clawkit needs of a pydantic model; it does not import pydantic for that."""

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]: ...
    @classmethod
    def model_validate(cls, obj: Any) -> Any: ...


@dataclass(frozen=True)
class Tool:
    """One tool. Wrapping is Tool -> Tool: `replace(tool, execute=...)`.

    `execute(params, ctx)` gets the struct or model when `parameters` is one, else a dict; it
    returns a `Result`, text, blocks or any JSON value, and raises for every failure.
    """

    name: str
    description: str
    parameters: type[msgspec.Struct] | type[Model] | Mapping[str, Any]
    execute: Execute
    label: str = ""
    owner_only: bool = False
    effects: EffectsOf = _anything
    """What one call may do and to what; decides which calls of a message may run side by side."""
    aliases: Mapping[str, str] = field(default_factory=lambda: _NO_ALIASES)
    """Other names models use for a parameter: accepted, never advertised."""
    off: Mapping[str, str] = field(default_factory=lambda: _NO_ALIASES)
    """Actions that are switched off, and why: a call of one is refused, not merely wrong."""
    paths: tuple[str, ...] = ()
    """Parameters that name files: rules compare them resolved, not as they were spelled."""
    touches: Callable[[Any], Iterable[str]] | None = None
    """Files that a call names in another way, inside a text: rules about `path` hold for each."""
    hidden: frozenset[str] = frozenset()
    """Parameters that are understood but not offered."""
    needs: Mapping[str, str] = field(default_factory=lambda: _NO_ALIASES)
    """Parameters that are only offered beside another tool, and its name."""

    def __post_init__(self) -> None:
        if not is_tool_name(self.name):
            raise SchemaError(
                f"{self.name!r} cannot be a tool name: a letter, then up to 63 letters, digits, "
                "underscores or hyphens"
            )

    @cached_property
    def struct(self) -> type[msgspec.Struct] | None:
        """The struct that checked parameters are turned into, when there is one."""
        kind = self.parameters
        return kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None

    @cached_property
    def model(self) -> type[Model] | None:
        """The pydantic model that checked parameters are turned into, when there is one."""
        kind = self.parameters
        is_model = isinstance(kind, type) and hasattr(kind, "model_validate")
        return cast("type[Model]", kind) if is_model else None

    def typed(self, params: Mapping[str, Any]) -> Any:
        """Parameters as `execute` takes them. Raises ValueError when they do not fit."""
        if self.struct is not None:
            return msgspec.convert(params, self.struct)
        return params if self.model is None else self.model.model_validate(params)

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the parameters: the one description that calls are checked against."""
        if self.struct is not None:
            try:
                return _struct_schema(self.struct)
            except TypeError as error:
                raise SchemaError(
                    f"{self.name}: the parameters cannot be described: {one_line(str(error), 200)}"
                ) from None
        if self.model is not None:
            schema = self.model.model_json_schema()
        elif isinstance(self.parameters, Mapping):
            schema = dict(self.parameters)
        else:
            raise SchemaError(f"{self.name}: the parameters are neither a struct nor a schema")
        if schema.get("type", "object") != "object":
            raise SchemaError(f"{self.name}: the parameters must be an object")
        return schema | {"type": "object"}

    @cached_property
    def offered(self) -> dict[str, Any]:
        """The schema as models and readers are shown it: without what is hidden."""
        properties = self.schema.get("properties")
        if not isinstance(properties, Mapping) or self.hidden.isdisjoint(properties):
            return self.schema
        shown = {name: part for name, part in properties.items() if name not in self.hidden}
        offered = self.schema | {"properties": shown}
        if isinstance(required := self.schema.get("required"), list):
            offered["required"] = [name for name in required if name not in self.hidden]
        return offered

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """What the schema says is meant by leaving a parameter out."""
        properties = self.schema.get("properties", {})
        parts = properties.items() if isinstance(properties, Mapping) else ()
        return {
            name: part["default"]
            for name, part in parts
            if isinstance(part, Mapping) and "default" in part
        }

    @cached_property
    def stray_paths(self) -> tuple[str, ...]:
        """Declared paths that are no parameters: no rule would guard them."""
        known = self.schema.get("properties", {})
        return tuple(name for name in self.paths if name.partition(".")[0] not in known)

    @cached_property
    def validator(self) -> Any:
        """Checks parameters against the schema; raises `SchemaError` if the schema is no good."""
        return make_validator(self.schema, self.name)


def _struct_schema(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The struct's own schema at the root, nested structs under `$defs`."""
    (root,), components = msgspec.json.schema_components((struct,), ref_template="#/$defs/{name}")
    name = root["$ref"].rsplit("/", 1)[-1]
    schema: dict[str, Any] = components.pop(name)
    for part in (schema, *components.values()):
        part.pop("title", None)
        part.pop("description", None)
    return schema | ({"$defs": components} if components else {})


@overload
def tool(function: Callable[..., object], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    label: str = "",
    owner_only: bool = False,
    effects: EffectsOf | Iterable[Effect] | None = None,
    aliases: Mapping[str, str] | None = None,
    paths: Iterable[str] = (),
) -> Callable[[Callable[..., object]], Tool]: ...
def tool(
    function: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    label: str = "",
    owner_only: bool = False,
    effects: EffectsOf | Iterable[Effect] | None = None,
    aliases: Mapping[str, str] | None = None,
    paths: Iterable[str] = (),
) -> Tool | Callable[[Callable[..., object]], Tool]:
    """Make a tool of a typed function: its name, docstring and signature become the description.

    A parameter annotated `Context` (or called `ctx`) is given the context and is not advertised.
    Parameter descriptions come from the docstring's `Args:` section. A plain `def` runs in a
    thread, which nothing can interrupt: write `async def` for anything that may take long.
    """

    def build(func: Callable[..., object]) -> Tool:
        description, docs = _read_docstring(func)
        struct, context_name = _params_struct(func, docs)
        made = Tool(
            name=name or func.__name__,
            description=description,
            parameters=struct,
            execute=_make_execute(func, struct, context_name),
            label=label,
            owner_only=owner_only,
            effects=_effects_of(effects),
            aliases=aliases or _NO_ALIASES,
            paths=tuple(paths),
        )
        _ = made.schema  # a type that has no schema is told here, not when a model first asks
        return made

    return build if function is None else build(function)


def _effects_of(effects: EffectsOf | Iterable[Effect] | None) -> EffectsOf:
    if effects is None:
        return _anything
    if callable(effects):
        return effects
    fixed = tuple(effects)
    return lambda _params, _ctx: fixed


def _params_struct(
    func: Callable[..., object], docs: Mapping[str, str]
) -> tuple[type[msgspec.Struct], str | None]:
    try:
        hints = get_type_hints(func, include_extras=True)
    except (NameError, TypeError) as error:
        raise SchemaError(
            f"{func.__name__}: its annotations cannot be read ({error}); types must be importable "
            "where the function is defined"
        ) from None
    context_name: str | None = None
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for param in inspect.signature(func).parameters.values():
        if param.kind in (param.VAR_POSITIONAL, param.VAR_KEYWORD, param.POSITIONAL_ONLY):
            raise SchemaError(
                f"{func.__name__}: parameter {param.name!r} must be an ordinary named parameter"
            )
        hint = hints.get(param.name)
        if hint is Context or (hint is None and param.name == "ctx"):
            context_name = param.name
            continue
        if hint is None:
            raise SchemaError(f"{func.__name__}: parameter {param.name!r} needs a type annotation")
        if description := docs.get(param.name):
            hint = Annotated[hint, msgspec.Meta(description=description)]
        required = param.default is param.empty
        fields.append((param.name, hint) if required else (param.name, hint, param.default))
    try:
        struct = msgspec.defstruct(
            f"{func.__name__}_params", fields, kw_only=True, frozen=True, forbid_unknown_fields=True
        )
    except TypeError as error:
        raise SchemaError(f"{func.__name__}: its parameters cannot be used: {error}") from None
    return struct, context_name


def _make_execute(
    func: Callable[..., object], struct: type[msgspec.Struct], context_name: str | None
) -> Execute:
    names = struct.__struct_fields__
    is_async = inspect.iscoroutinefunction(func)

    async def execute(params: Any, ctx: Context) -> object:
        arguments = {name: getattr(params, name) for name in names}
        if context_name is not None:
            arguments[context_name] = ctx
        if is_async:
            return await func(**arguments)  # type: ignore[misc]  # a coroutine function
        from clawkit.core.bounded import in_thread  # asyncio is not needed to describe a tool

        returned = await in_thread(func, **arguments)
        return await returned if inspect.isawaitable(returned) else returned

    return execute


_SECTION = re.compile(
    r"^(args|arguments|parameters|returns?|raises|yields|examples?|notes?):\s*$", re.I
)
_ARG = re.compile(r"^(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")


def _read_docstring(func: Callable[..., object]) -> tuple[str, dict[str, str]]:
    """The description (all text before the first section) and the text of each argument."""
    doc = inspect.getdoc(func)
    if not doc or _SECTION.match(doc.partition("\n")[0]):
        raise SchemaError(f"{func.__name__}: a tool needs a docstring; the model reads it")
    intro: list[str] = []
    args: dict[str, str] = {}
    section, current = "", ""
    for line in doc.splitlines():
        heading = _SECTION.match(line.strip()) if not line.startswith((" ", "\t")) else None
        if heading:
            section, current = heading[1].lower(), ""
        elif not section:
            intro.append(line)
        elif section in ("args", "arguments", "parameters") and line.strip():
            indent = len(line) - len(line.lstrip())
            found = _ARG.match(line.strip())
            if found and (indent <= 4 or not current):
                current = found[1]
                args[current] = found[2]
            elif current:
                args[current] = f"{args[current]} {line.strip()}".strip()
    return "\n".join(intro).strip(), args
