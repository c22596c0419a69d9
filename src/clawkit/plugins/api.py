"""The plugin API: `Plugin`, for declarations and registration, and `PluginContext`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from clawkit.config.model import Config
from clawkit.config.sections.plugins import PluginEntry
from clawkit.core.catalog import canonical
from clawkit.core.context import Context, Scope
from clawkit.core.tool import Tool, is_tool_name, tool
from clawkit.errors import PluginError
from clawkit.plugins.manifest import Manifest, make_manifest
from clawkit.plugins.roles import HookName

F = TypeVar("F", bound=Callable[..., Any])
_DECLARED = frozenset(Manifest.__struct_fields__)


class PluginContext(Context, frozen=True):
    """The run that a tool, a service, a prompt or a hook of a plugin is made for."""

    call_id: str = ""
    scope: Scope = Scope()
    workspace: str = ""
    config: Config = Config()
    settings: Any = None
    """The plugin's own settings, an object of the class it gave as `config`; else a dict."""
    entry: PluginEntry = PluginEntry()
    """The plugin's entry in the configuration."""

    @property
    def channel(self) -> str:
        return self.scope.channel

    @property
    def sandboxed(self) -> bool:
        return self.scope.sandboxed


class ChatMessage(Struct, frozen=True):
    """A message to the model, or to a person."""

    text: str


class HookEntry(Struct, frozen=True):
    event: HookName
    run: Callable[..., Any]
    priority: int
    tools: frozenset[str] | None


Factory = Callable[[PluginContext], Tool | Sequence[Tool] | None]


class Plugin:
    """One plugin: its declarations and registrations.

    All arguments except `config` must be literals, because they are read without running the code;
    undeclared registrations are refused.
    """

    def __init__(
        self,
        id: str,  # noqa: A002
        *,
        version: str = "",
        name: str = "",
        description: str = "",
        tools: Sequence[str] = (),
        optional_tools: Sequence[str] = (),
        hooks: Sequence[HookName] = (),
        commands: Sequence[str] = (),
        services: Sequence[str] = (),
        skills: Sequence[str] = (),
        prompt: str | bool = False,
        enabled_by_default: bool = False,
        config: type[Any] | None = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name in _DECLARED}
        doc = sys._getframe(1).f_globals.get("__doc__") or ""
        self.manifest = make_manifest({**given, "has_settings": config is not None}, doc)
        self.config = config
        if config is not None and not (
            isinstance(config, type)
            and (issubclass(config, Struct) or hasattr(config, "model_validate"))
        ):
            raise PluginError("config must be a msgspec.Struct or a pydantic model, as a class")
        self.registered_tools: list[Tool] = []
        self.factories: list[Factory] = []
        self.hooks: list[HookEntry] = []
        self.commands: dict[str, Any] = {}
        self.providers: dict[str, Callable[[PluginContext], Any]] = {}
        self.write_prompt: Callable[[PluginContext], str] | None = None

    @property
    def id(self) -> str:
        return self.manifest.id

    def tool(self, function: Callable[..., object] | Tool | None = None, /, **options: Any) -> Any:
        """Add a tool: a `Tool`, or a typed function, with the options of `clawkit.tool`."""

        def register(target: Callable[..., object] | Tool) -> Tool:
            made = target if isinstance(target, Tool) else tool(**options)(target)
            self._check("tools", made.name, self.manifest.all_tools)
            self.registered_tools.append(made)
            return made

        return register if function is None else register(function)

    def tool_factory(self, make: F) -> F:
        """Add a function of a `PluginContext` that returns a tool, several, or None. It is called
        for every run; what it makes must be declared."""
        self.factories.append(make)
        return make

    def hook(
        self, event: HookName, *, priority: int = 0, tools: str | Iterable[str] | None = None
    ) -> Callable[[F], F]:
        """Add a hook. Higher priorities run first. `tools` limits hooks on calls to those tools."""
        self._check("hooks", event, self.manifest.hooks)
        given = [tools] if isinstance(tools, str) else tools
        names = None if given is None else frozenset(map(canonical, given))
        if names is not None and event not in ("before_tool_call", "after_tool_call"):
            raise PluginError(f"the hook {event} is not about calls, so `tools` cannot be set")
        if not isinstance(priority, int) or not all(map(is_tool_name, names or ())):
            raise PluginError(f"the hook {event} takes tool names, and a number as priority")

        def register(run: F) -> F:
            self.hooks.append(HookEntry(event, run, priority, names))
            return run

        return register

    def command(self, name: str) -> Callable[[F], F]:
        """Add `clawkit NAME`: a click command, or a function of the arguments, a list of strings,
        that may return an exit code. clawkit's own commands take precedence."""
        return self._adder("commands", name, self.commands)

    def service(self, role: str) -> Callable[[F], F]:
        """Add a function of a `PluginContext` that returns the provider of a role."""
        return self._adder("services", role, self.providers)

    def prompt(self, write: F) -> F:
        """Add a function of a `PluginContext` that returns text for the prompt; declare it with
        `prompt=True`."""
        if self.manifest.prompt is not True:
            raise PluginError("a function for the prompt must be declared: prompt=True")
        self.write_prompt = write
        return write

    def _adder(self, kind: str, name: str, to: dict[str, Any]) -> Callable[[F], F]:
        self._check(kind, name, getattr(self.manifest, kind))

        def register(function: F) -> F:
            to[name] = function
            return function

        return register

    def _check(self, kind: str, name: str, declared: Sequence[str]) -> None:
        if name not in declared:
            raise PluginError(f"{name!r} is not declared: add it to {kind} of Plugin(…)")

    def missing(self) -> list[str]:
        """Names that are declared but not registered."""
        declared, made = self.manifest, {each.name for each in self.registered_tools}
        rows: list[tuple[str, Sequence[str], Container[str]]] = [
            ("tool", declared.all_tools, declared.all_tools if self.factories else made),
            ("hook", declared.hooks, {each.event for each in self.hooks}),
            ("command", declared.commands, self.commands),
            ("service", declared.services, self.providers),
            ("prompt", ["True"] * (declared.prompt is True), ["True"] * bool(self.write_prompt)),
        ]
        return [f"{what} {n!r}" for what, names, there in rows for n in names if n not in there]
