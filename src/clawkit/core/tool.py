"""A tool is data plus one async function: parameters, effects, wrappers, and the registry."""

from __future__ import annotations

import copy
import inspect
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, cast, get_type_hints, overload

import msgspec

from clawkit.core.catalog import ALIASES, CATALOG, canonical
from clawkit.core.context import Context
from clawkit.core.paths import real_path
from clawkit.core.struct_schema import struct_schema
from clawkit.errors import RegistryError, SchemaError, ToolAuthorizationError, ToolInputError
from clawkit.text import one_line

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator


Kind = Literal["read", "write", "exec", "network", "send"]


class Effect(msgspec.Struct, frozen=True):
    """What a call may do to a resource: `file:/absolute/path`, another `scheme:name`, or `*`."""

    kind: Kind
    resource: str = "*"


ANYTHING: tuple[Effect, ...] = (Effect("write"),)
"""For tools that do not declare effects: they run alone."""


def file_resource(workspace: str, path: str) -> str:
    return "file:" + os.path.join(workspace, os.path.expanduser(path))


def resolve(effects: Iterable[Effect]) -> tuple[Effect, ...]:
    """Effects made comparable: one name per file, normalized and with links resolved."""
    try:
        return tuple(
            Effect(each.kind, "file:" + real_path(each.resource.removeprefix("file:")))
            if each.resource.startswith("file:/")
            else each
            for each in effects
        )
    except ToolInputError:  # a path that keeps changing: it runs alone
        return ANYTHING


def collide(first: Iterable[Effect], second: Iterable[Effect]) -> bool:
    """Whether the order of two calls could matter; their effects are resolved. Reads never collide
    with each other."""
    others = tuple(second)
    return any(
        (mine.kind != "read" or other.kind != "read") and _overlap(mine.resource, other.resource)
        for mine in first
        for other in others
    )


def _overlap(first: str, second: str) -> bool:
    if first == second or "*" in (first, second):
        return True
    if not (first.startswith("file:") and second.startswith("file:")):
        return False
    shorter, longer = sorted((first.rstrip("/"), second.rstrip("/")), key=len)
    return longer.startswith(shorter + "/")


MAX_PATTERN_BYTES = 2 * 1024 * 1024
"""Memory limit for a compiled pattern: matching time is linear in the text and in this size."""


def _make_validator(schema: Mapping[str, Any]) -> Draft202012Validator:
    """A validator for untrusted schemas: fetches nothing, and patterns take linear time."""
    import jsonschema_rs

    def refuse_remote(uri: str) -> Any:
        raise ValueError(f"remote references are refused: {uri}")

    options = jsonschema_rs.RegexOptions(
        size_limit=MAX_PATTERN_BYTES, dfa_size_limit=MAX_PATTERN_BYTES
    )
    return jsonschema_rs.Draft202012Validator(
        dict(schema), retriever=refuse_remote, pattern_options=options
    )


def make_validator(schema: Mapping[str, Any], label: str) -> Draft202012Validator:
    """A validator for a schema. Raises `ToolInputError` if the schema is invalid."""
    try:
        return _make_validator(schema)
    except (ValueError, TypeError, RecursionError) as error:
        first = one_line(str(error).partition("\n")[0], 200)
        raise ToolInputError(f"{label} is not a usable JSON Schema: {first}") from None


def make_pattern(pattern: str) -> Callable[[str], bool]:
    """A regular-expression search in linear time: no look-around, no back-references."""
    try:
        return _make_validator({"type": "string", "pattern": pattern}).is_valid
    except ValueError:
        raise SchemaError(
            f"/{pattern}/ is not a valid pattern: check the brackets; look-around, "
            "back-references and very large repeats are not supported"
        ) from None


def why_no_schema(error: Exception) -> str:
    """Why a type has no schema. Of the text of msgspec, only the last line names the type;
    pydantic's ends with a link."""
    text = str(error).partition("\n\nFor further information")[0].strip()
    return one_line(text.rpartition("\n")[2], 200) or type(error).__name__


Execute = Callable[[Any, Context], Awaitable[object]]
EffectsOf = Callable[[Any, Context], Iterable[Effect]]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_NO_ALIASES: Mapping[str, str] = MappingProxyType({})


def is_tool_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


class PydanticModel(Protocol):
    """The part of a pydantic model that clawkit uses, without importing pydantic."""

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]: ...
    @classmethod
    def model_validate(cls, obj: Any) -> Any: ...


# Without unneeded methods: generating each takes a tenth of a millisecond at import.
@dataclass(frozen=True, eq=False, repr=False)
class Tool:
    """One tool. Wrapping is Tool -> Tool: `replace(tool, execute=...)`.

    `execute(params, ctx)` gets the struct or model if `parameters` is one, else a dict; it returns
    a `Result`, text, blocks or any JSON value, and raises for every failure.
    """

    name: str
    description: str
    parameters: type[msgspec.Struct] | type[PydanticModel] | Mapping[str, Any]
    execute: Execute
    label: str = ""
    owner_only: bool = False
    effects: EffectsOf = lambda _params, _ctx: ANYTHING
    """What a call may do to which resources; decides which calls of a message may run in
    parallel."""
    aliases: Mapping[str, str] = field(default_factory=lambda: _NO_ALIASES)
    """Other names that models use for a parameter: accepted, but not advertised."""
    off: Mapping[str, str] = field(default_factory=lambda: _NO_ALIASES)
    """Disabled actions, and why: a call of one is refused, not just invalid."""
    paths: tuple[str, ...] = ()
    """Parameters that name files: rules compare them resolved, not as spelled."""
    urls: tuple[str, ...] = ()
    """Parameters that are URLs: rules compare their hosts."""
    touches: Callable[[Any], Iterable[str]] | None = None
    """Files that a call names inside a text parameter; rules about `path` apply to each."""
    hidden: frozenset[str] = frozenset()
    """Parameters that are accepted but not advertised."""
    needs: Mapping[str, str] = field(default_factory=lambda: _NO_ALIASES)
    """Parameters that are advertised only if another tool is available, and its name."""
    unsupported: Mapping[str, str] = field(default_factory=lambda: _NO_ALIASES)
    """Unsupported parameters of other implementations, by snake_case name: why, or what to use
    instead."""

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"

    def __post_init__(self) -> None:
        if not is_tool_name(self.name):
            raise SchemaError(
                f"invalid tool name {self.name!r}: use a letter, then up to 63 letters, digits, "
                "underscores or hyphens"
            )

    @cached_property
    def struct(self) -> type[msgspec.Struct] | None:
        kind = self.parameters
        return kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None

    @cached_property
    def model(self) -> type[PydanticModel] | None:
        kind = self.parameters
        is_model = isinstance(kind, type) and hasattr(kind, "model_validate")
        return cast("type[PydanticModel]", kind) if is_model else None

    def typed(self, params: Mapping[str, Any]) -> Any:
        """Parameters for `execute`. Raises ValueError if they are invalid."""
        if self.struct is not None:
            return msgspec.convert(params, self.struct)
        return params if self.model is None else self.model.model_validate(params)

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the parameters, against which calls are validated."""
        if self.struct is not None:
            try:
                if (plain := struct_schema(self.struct)) is not None:
                    return plain
                (root,), parts = msgspec.json.schema_components(
                    (self.struct,), ref_template="#/$defs/{name}"
                )
            except TypeError as error:
                reason = f"the parameters have no schema: {why_no_schema(error)}"
                raise SchemaError(f"{self.name}: {reason}") from None
            for part in parts.values():
                part.pop("title", None)
                part.pop("description", None)
            own: dict[str, Any] = parts.pop(root["$ref"].rsplit("/", 1)[-1])
            return own | ({"$defs": parts} if parts else {})
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
    def properties(self) -> Mapping[str, Any]:
        """The schema of each parameter; empty if the schema does not name any."""
        found = self.schema.get("properties")
        return found if isinstance(found, Mapping) else {}

    @cached_property
    def offered(self) -> dict[str, Any]:
        """The schema shown to models and people, without hidden parameters."""
        if self.hidden.isdisjoint(self.properties):
            return self.schema
        shown = {name: part for name, part in self.properties.items() if name not in self.hidden}
        offered = type(self.schema)(self.schema | {"properties": shown})
        if isinstance(required := self.schema.get("required"), list):
            offered["required"] = [name for name in required if name not in self.hidden]
        return offered

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The values of omitted parameters, according to the schema."""
        return {
            name: part["default"]
            for name, part in self.properties.items()
            if isinstance(part, Mapping) and "default" in part
        }

    @cached_property
    def stray_paths(self) -> tuple[str, ...]:
        """Declared paths that are not parameters: no rule would apply to them."""
        return tuple(name for name in self.paths if name.partition(".")[0] not in self.properties)

    @cached_property
    def validator(self) -> Any:
        """Validates parameters. Raises `SchemaError` for an invalid schema."""
        try:
            return _make_validator(self.schema)
        except (ValueError, TypeError, RecursionError) as error:
            first = str(error).partition("\n")[0]
            raise SchemaError(f"{self.name}: the parameter schema is invalid: {first}") from None


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
    """Make a tool from a typed function: name, docstring and signature become its description.

    A parameter annotated `Context` (or called `ctx`) gets the context and is not advertised.
    Parameter descriptions come from the docstring's `Args:` section. A plain `def` runs in a
    thread, which cannot be interrupted: use `async def` for anything that may take long.
    """

    declared = ANYTHING if effects is None or callable(effects) else tuple(effects)

    def build(func: Callable[..., object]) -> Tool:
        _check_function(func)
        for each in declared:
            if not isinstance(each, Effect):
                raise SchemaError(f"{func.__name__}: effects: {each!r} is not an Effect")
        description, docs = _read_docstring(func)
        struct, context_name = _params_struct(func, docs)
        made = Tool(
            name=name or func.__name__,
            description=description,
            parameters=struct,
            execute=_make_execute(func, struct, context_name),
            label=label,
            owner_only=owner_only,
            effects=effects if callable(effects) else lambda _params, _ctx: declared,
            aliases=aliases or _NO_ALIASES,
            paths=tuple(paths),
        )
        _ = made.schema  # report a type without a schema here, not at the first request
        return made

    return build if function is None else build(function)


def _check_function(func: Any) -> None:
    if not callable(func) or isinstance(func, type) or not hasattr(func, "__name__"):
        raise TypeError(f"@tool: {func!r} is not a function; options have names: @tool(name=…)")
    if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        raise SchemaError(
            f"{func.__name__}: a tool returns its result, it cannot yield; return a list, and "
            "report progress with `await ctx.update(…)`"
        )


def _params_struct(
    func: Callable[..., object], docs: Mapping[str, str]
) -> tuple[type[msgspec.Struct], str | None]:
    try:
        hints = get_type_hints(func, include_extras=True)
    except (NameError, TypeError) as error:
        raise SchemaError(
            f"{func.__name__}: cannot read its annotations ({error}); types must be importable "
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
        if hint is None and param.name == "self":
            raise SchemaError(
                f"{func.__name__}: a method has no `self` before there is an object; leave out "
                f"the decorator, and pass `tool(obj.{func.__name__})`"
            )
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
        raise SchemaError(f"{func.__name__}: invalid parameters: {error}") from None
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
        from clawkit.core.tasks import in_thread  # asyncio is not needed to define a tool

        returned = await in_thread(func, **arguments)
        return await returned if inspect.isawaitable(returned) else returned

    return execute


_SECTION = r"(?i)^(args|arguments|parameters|returns?|raises|yields|examples?|notes?):\s*$"
_ARG = r"^(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$"


def _read_docstring(func: Callable[..., object]) -> tuple[str, dict[str, str]]:
    """The description (all text before the first section), and the text for each argument."""
    doc = inspect.getdoc(func)
    if not doc or re.match(_SECTION, doc.partition("\n")[0]):
        raise SchemaError(f"{func.__name__}: a tool needs a docstring, which the model reads")
    intro: list[str] = []
    args: dict[str, str] = {}
    section, current = "", ""
    for line in doc.splitlines():
        is_flush = not line.startswith((" ", "\t"))
        heading = re.match(_SECTION, line.strip()) if is_flush else None
        if heading:
            section, current = heading[1].lower(), ""
        elif not section:
            intro.append(line)
        elif section in ("args", "arguments", "parameters") and line.strip():
            indent = len(line) - len(line.lstrip())
            found = re.match(_ARG, line.strip())
            if found and (indent <= 4 or not current):
                current = found[1]
                args[current] = found[2]
            elif current:
                args[current] = f"{args[current]} {line.strip()}".strip()
    return "\n".join(intro).strip(), args


def action_values(tool: Tool) -> tuple[str, ...]:
    action = tool.properties.get("action")
    values = action.get("enum") if isinstance(action, Mapping) else None
    return tuple(each for each in values or () if isinstance(each, str))


def without_actions(tool: Tool, actions: Set[str], reason: str) -> Tool:
    """The tool with some actions disabled: not advertised, and refused if called."""
    if actions.isdisjoint(action_values(tool)):
        return tool
    schema = copy.deepcopy(tool.schema)
    action = schema["properties"]["action"]
    action["enum"] = [value for value in action["enum"] if value not in actions]
    default = action.get("default")
    if default in actions:
        del action["default"]

    why = {each: f"the action {each!r} of {tool.name!r} is disabled: {reason}" for each in actions}

    async def execute(params: Any, ctx: Context) -> object:
        asked = params.get("action", default)
        if asked in actions:
            raise ToolAuthorizationError(why[asked], reason="rule")
        return await tool.execute(tool.typed(params), ctx)

    def effects(params: Any, ctx: Context) -> Any:
        return tool.effects(tool.typed(params), ctx)

    off = {**tool.off, **why}
    return replace(tool, parameters=schema, execute=execute, effects=effects, off=off)


CORE = "core"
CALLER = "caller"


class Registered(msgspec.Struct, frozen=True):
    """A tool and its origin: `core`, `caller`, `plugin:<id>` or `mcp:<server>`."""

    tool: Tool
    source: str
    optional: bool = False
    """Offered only if an allow list names it, its plugin, `group:plugins` or `*`."""


class Registry(dict[str, Registered]):
    """Tools by canonical name. The first owner keeps a name; names and aliases of built-in tools
    belong to the core."""

    def add(self, registered: Registered) -> None:
        """Register a tool. Raises `RegistryError` if the name is taken or reserved."""
        tool, source = registered.tool, registered.source
        key, owner = canonical(tool.name), canonical(source.partition(":")[2])
        what = f"tool {tool.name!r} from {source}"
        if owner in CATALOG:
            raise RegistryError(
                f"{source} has the id of a built-in tool, so none of its tools are offered"
            )
        if source != CORE and key == "bundle-mcp":
            raise RegistryError(f"{what} has a reserved name; give it another one")
        if source != CORE and key in CATALOG:
            is_alias = tool.name.strip().lower() in ALIASES
            shadowed = f"an old name of {key!r}" if is_alias else "a built-in tool"
            raise RegistryError(f"{what} would shadow {shadowed}; give it another name")
        if holder := self.get(key):
            raise RegistryError(
                f"{what} is already provided by {holder.source}; give it another name"
            )
        self[key] = registered
