"""The composition root: builds a `Toolkit`, a set of callable tools, from a configuration."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from clawkit.agent.assemble import Assembly, assemble
from clawkit.agent.model import context_window_of, default_model, target_of
from clawkit.agent.nested_calls import NestedCalls
from clawkit.approvals.protocols import Approvals, Confines
from clawkit.bundled import open_plugins, plugin_tools, search_services
from clawkit.config.load import Loaded, load, loads
from clawkit.config.model import Config
from clawkit.config.modelref import ModelRef, parse_ref
from clawkit.config.paths import mcp_dir, own_secrets
from clawkit.config.sources import MAPPING, environment
from clawkit.core.approval import Answer, Approver, Question, no_approver
from clawkit.core.argument_checks import (
    check_folder,
    check_functions,
    check_list,
    check_run,
    check_texts,
    check_type,
    show,
)
from clawkit.core.call import CallGuard, CallRequest, OnEvent, Run, call, call_all
from clawkit.core.context import InForce, Scope, Sender
from clawkit.core.hooks import Hooks
from clawkit.core.paths import is_below
from clawkit.core.result import Result
from clawkit.core.tool import CALLER, Registered, Tool
from clawkit.errors import ConfigError, Issue, SchemaError, ToolInputError
from clawkit.policy.selectors import Origin, choose_agent
from clawkit.redact import Redactor, is_secret_name
from clawkit.schema.choose import PROVIDERS, Provider, declare
from clawkit.services import Services
from clawkit.web.search.protocols import Searcher

if TYPE_CHECKING:
    from clawkit.mcp.tools import MountedTools
    from clawkit.plugins.hooks import SessionHooks


class Toolkit:
    """The tools of one run, for Python programs.

    async with Toolkit.open(workspace=".") as kit:
        result = await kit.call("read", {"path": "README.md"})
    """

    def __init__(
        self,
        loaded: Loaded,
        assembly: Assembly,
        run: Run,
        host_workspace: str,
        on_event: OnEvent | None = None,
        *,
        extra: Sequence[Registered] = (),
        approver: Approver | None = None,
        later: bool = False,
    ) -> None:
        self.config = loaded.config
        self.assembly = assembly
        self.plugins = open_plugins(loaded.config)
        """The plugins that the configuration enables; None if there are none."""
        self.loaded = loaded
        """The configuration and its sources."""
        self.run = run
        """The `Run` that calls are made with, for code that uses `core.call` directly."""
        self.host_workspace = host_workspace
        """The workspace on this machine, even if the run has another one in a sandbox."""
        self.approver = approver
        self._on_event = on_event
        self._extra = tuple(extra)
        self._later = later

    def __repr__(self) -> str:
        scope = self.run.scope
        return (
            f"<Toolkit agent={scope.agent!r} session={scope.session!r} model={str(scope.model)!r} "
            f"workspace={self.workspace!r}>"
        )

    @classmethod
    def open(
        cls,
        config: Config | Loaded | Mapping[str, Any] | str | os.PathLike[str] | None = None,
        *,
        workspace: str | os.PathLike[str] | None = None,
        agent: str | None = None,
        session: str = "main",
        model: str | ModelRef | None = None,
        context_window: int | None = None,
        channel: str = "",
        account: str = "",
        group: str = "",
        space: str = "",
        sender: Sender | None = None,
        owner: bool = False,
        sandboxed: bool | None = None,
        depth: int = 0,
        allow: Iterable[str] | None = None,
        withheld: Mapping[str, str] | None = None,
        tools: Iterable[Tool] = (),
        hooks: Hooks | None = None,
        approver: Approver | None = None,
        later: bool = False,
        delegates: bool = False,
        in_gateway: bool = False,
        in_heartbeat: bool = False,
        cwd: str | os.PathLike[str] = "",
        redactor: Redactor | None = None,
        on_event: OnEvent | None = None,
    ) -> Toolkit:
        """Set up the tools for one run.

        `config` is a file, a mapping or a loaded configuration; by default, the user's
        configuration file. Without an `agent`, it is the one that `bindings` choose for the
        channel, account, group, space (its server or team) and sender, else the default agent, else
        `main`. `sandboxed` defaults to what the configuration says for the session. Without `owner`
        (or a sender who is the owner), the run has no owner rights. With `later`, a command that
        needs approval is not refused if no one can be asked: the call returns, and the command runs
        if a person approves it while the kit is open. `delegates` is for agents, which the tools
        for sub-agents need, `in_gateway` for sessions of a gateway, and `in_heartbeat` for sessions
        of its heartbeats. `withheld` maps tools that neither the caller nor another tool can call,
        whatever policy says, to the reason. `cwd` is the directory that relative paths start from:
        below the workspace, or where settings let tools work outside it. `redactor` comes from
        another run, with all secrets it has learned. Raises `ConfigError` for an invalid
        configuration, `ToolInputError` for a `cwd` elsewhere, `RegistryError` for a tool whose name
        is taken.
        """
        check_type("sender", sender, (Sender, type(None)), "a clawkit.Sender")
        check_type("hooks", hooks, (Hooks, type(None)), "clawkit.Hooks")
        check_run(agent, workspace, depth, owner=owner, sandboxed=sandboxed)
        check_texts(session=session, channel=channel, account=account, group=group, space=space)
        check_type("model", model, (str, ModelRef, type(None)), "'provider/model'")
        check_folder("cwd", cwd)
        check_list("tools", tools)
        check_list("allow", () if allow is None else allow)
        check_functions(on_event=on_event)
        if approver is not None and not hasattr(approver, "ask"):
            raise TypeError(f"approver: expected an object with `ask`, not {show(approver)}")
        loaded = load_config(config)
        origin = Origin(channel, account, group, sender or Sender(), space)
        agent = choose_agent(loaded.config, agent, origin).agent
        try:
            ref = parse_ref(model) if isinstance(model, str) else model
        except ValueError as error:
            raise ConfigError([Issue("model", str(error))]) from None
        ref = ref or default_model(loaded.config, agent)
        if sandboxed is None:
            sandboxed = loaded.config.agents.sandbox_of(agent).covers(session)
        scope = Scope(
            agent=agent,
            session=session,
            model=ref,
            context_window=context_window or context_window_of(loaded.config, ref),
            channel=channel,
            account=account,
            group=group,
            sender=replace(sender or Sender(), owner=owner or bool(sender and sender.owner)),
            sandboxed=sandboxed,
            depth=depth,
            allow=None if allow is None else tuple(allow),
            withheld=tuple((withheld or {}).items()),
            delegates=delegates,
            in_gateway=in_gateway,
            in_heartbeat=in_heartbeat,
            search=search_services(loaded),
        )
        place = resolve_workspace(loaded.config, agent, workspace)
        if cwd:
            scope = replace(scope, cwd=_resolve_cwd(loaded.config, agent, place, os.fspath(cwd)))
        given = [Registered(tool, CALLER) for tool in tools]
        for other in (each.tool for each in given if not isinstance(each.tool, Tool)):
            raise TypeError(f"tools: {other!r} is not a Tool; make one of a function with @tool")
        given += plugin_tools(loaded.config, scope, place)
        assembly = assemble(loaded.config, scope, (*given, *server_tools(loaded.config)))
        run = make_run(
            loaded, assembly, scope, place, hooks, approver, later=later, redactor=redactor
        )
        return cls(
            loaded, assembly, run, place, on_event, extra=given, approver=approver, later=later
        )

    def alter(
        self,
        *,
        config: Config | None = None,
        model: ModelRef | None = None,
        context_window: int | None = None,
    ) -> None:
        """Switch to other settings or another model. Running commands continue."""
        old, scope = self.run, self.run.scope
        keeps = config is None or config.logging == self.config.logging
        if model is not None:
            window = context_window or context_window_of(self.config, model)
            scope = replace(scope, model=model, context_window=window)
        if config is not None:
            self.loaded, self.config = replace(self.loaded, config=config), config
            scope = replace(scope, search=search_services(self.loaded))
        self.assembly = assemble(self.config, scope, (*self._extra, *server_tools(self.config)))
        run = make_run(
            self.loaded,
            self.assembly,
            scope,
            self.host_workspace,
            old.hooks,
            self.approver,
            later=self._later,
            redactor=old.redactor if keeps else None,
        )
        if isinstance(old.services, Services) and isinstance(run.services, Services):
            run.services.take_over(old.services)
        self.run = replace(run, watch=old.watch)

    def session_hooks(self) -> SessionHooks | None:
        """The hooks of plugins about a conversation; None if no plugin is enabled."""
        if self.plugins is None:
            return None
        from clawkit.plugins.api import PluginContext
        from clawkit.plugins.hooks import SessionHooks

        run = self.run
        around = PluginContext("", run.scope, run.workspace, run.services, config=self.config)
        return SessionHooks(self.plugins, around)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the configuration."""
        return (
            *map(str, self.loaded.warnings),
            *self.assembly.warnings,
            *external_remarks(self.config),
        )

    async def update(self) -> bool:
        """List new MCP servers, and offer the tools that servers list now; returns whether the
        tools changed. Call it between turns: it waits a while for new servers."""
        if not self.config.mcp or not self.config.mcp.servers:
            return False
        await list_servers(self.run, self.config)
        extra = (*self._extra, *server_tools(self.config))
        if assemble(self.config, self.run.scope, extra) is self.assembly:
            return False
        self.alter()
        return True

    async def __aenter__(self) -> Toolkit:
        await self.update()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop everything that calls left running, such as commands and language servers."""
        await close_run(self.run)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools in force, in catalog order."""
        return tuple(self.run.tools.values())

    @property
    def offered(self) -> tuple[Tool, ...]:
        """The tools to give to a model: all in force, except deferred ones."""
        return tuple(self.assembly.direct.values())

    @property
    def directory(self) -> str:
        """The text for a model about deferred tools; empty if there are none."""
        return self.assembly.deferral.directory

    @property
    def workspace(self) -> str:
        """The absolute path of the directory that the tools work in."""
        return self.run.workspace

    @property
    def extra_tools(self) -> tuple[Tool, ...]:
        """The tools passed to `open`."""
        return tuple(each.tool for each in self._extra if each.source == CALLER)

    @property
    def guard(self) -> CallGuard | None:
        """Detects calls that repeat without progress. Call its `begin` at every new turn."""
        return self.run.watch

    def schemas(
        self, provider: Provider | None = None, *, strict: bool = False
    ) -> list[dict[str, Any]]:
        """Tool declarations in the format of a model API, by default that of the run's model."""
        provider = provider or target_of(self.run.scope.model)
        if provider not in PROVIDERS:
            raise SchemaError(f"unknown model API {provider!r}; known: {', '.join(PROVIDERS)}")
        return [
            declare(tool.name, tool.description, tool.offered, provider, strict=strict)
            for tool in self.offered
        ]

    async def call(self, tool: str, params: object = None, *, id: str = "") -> Result:  # noqa: A002
        """Call a tool. A failure is a result with `is_error`; raises only on cancellation."""
        check_type("tool", tool, str, "the name of a tool")
        return await call(self.run, CallRequest(tool, params, id), self._on_event)

    async def call_all(self, calls: Iterable[CallRequest]) -> list[Result]:
        """Make the calls of one message; those that cannot conflict run in parallel."""
        check_list("calls", calls)
        for each in (calls := tuple(calls)):
            check_type("calls", each, CallRequest, "clawkit.CallRequest(tool, params)")
        return await call_all(self.run, calls, self._on_event)


def external_tools(
    config: Config, scope: Scope, workspace: str | os.PathLike[str] | None = None
) -> list[Registered]:
    """The tools that plugins and MCP servers add to a run."""
    found = [*server_tools(config)]
    if open_plugins(config) is not None:
        found += plugin_tools(config, scope, resolve_workspace(config, scope.agent, workspace))
    return found


def server_tools(config: Config) -> tuple[Registered, ...]:
    """The tools of MCP servers, as last listed. Starts no server."""
    return _mounted(config).tools if config.mcp and config.mcp.servers else ()


def external_remarks(config: Config) -> tuple[str, ...]:
    """Why tools of plugins and MCP servers are left out."""
    plugins = open_plugins(config)
    left_out = plugins.warnings if plugins else ()
    return (*left_out, *(_mounted(config).warnings if config.mcp and config.mcp.servers else ()))


def _mounted(config: Config) -> MountedTools:
    from clawkit.mcp.tools import mounted_tools

    return mounted_tools(config, mcp_dir(os.environ))


async def list_servers(run: Run, config: Config) -> None:
    """List the MCP servers that policy allows and that were never listed."""
    if not config.mcp or not config.mcp.servers:
        return
    from clawkit.mcp.mounts import Mounts
    from clawkit.mcp.tools import allowed_servers

    mounts: Any = run.services[Mounts]
    await mounts.ready(allowed_servers(config, run.scope))


def load_config(
    config: Config | Loaded | Mapping[str, Any] | str | os.PathLike[str] | None,
) -> Loaded:
    """Load a configuration given in any form. Raises `ConfigError`."""
    if isinstance(config, Loaded):
        return config
    if isinstance(config, Config):
        return Loaded(config, None, "", {}, [], (), environment(os.environ, {}, {}))
    if config is None or isinstance(config, str | os.PathLike):
        return load(None if config is None else os.fspath(config))
    check_type("config", config, Mapping, "a file name, a mapping or a loaded configuration")
    try:
        text = json.dumps(dict(config))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError([Issue("", f"is not plain JSON: {error}", MAPPING)]) from None
    return loads(text, file=MAPPING)


def resolve_workspace(
    config: Config, agent: str, requested: str | os.PathLike[str] | None = None
) -> str:
    """The given directory, else the agent's configured one, else the current directory."""
    for place in (requested, config.agents.get(agent).workspace, config.agents.defaults.workspace):
        if place:
            path = os.path.abspath(os.path.expanduser(os.fspath(place)))
            if not os.path.isdir(path):
                raise ConfigError([Issue("workspace", f"{path!r} is not a directory")])
            return _check_workspace(path)
    try:
        return _check_workspace(os.getcwd())
    except OSError:
        raise ConfigError([Issue("workspace", "the current directory was deleted")]) from None


def _resolve_cwd(config: Config, agent: str, workspace: str, cwd: str) -> str:
    """Relative to the workspace if it is below it, so that it is also valid in a sandbox. Raises
    `ToolInputError` outside, except where tools for files may work."""
    fs = config.tools.fs.merged(config.agents.get(agent).tools.fs)
    root = os.path.realpath(workspace)
    place = os.path.realpath(os.path.join(root, os.path.expanduser(cwd)))
    if is_below(place, root):
        return "" if place == root else os.path.relpath(place, root)
    roots = (
        os.path.realpath(os.path.expanduser(each)) for each in (*fs.read_roots, *fs.write_roots)
    )
    if fs.workspace_only and not any(is_below(place, each) for each in roots):
        raise ToolInputError(
            f"cwd: {cwd!r} is outside the workspace {workspace!r}; name a directory below it, or "
            "add it to tools.fs.writeRoots"
        )
    return place


def _check_workspace(path: str) -> str:
    """Raises `ConfigError` for a directory whose files are hidden from tools."""
    place = os.path.realpath(path)
    if any(is_below(place, os.path.realpath(each)) for each in own_secrets(os.environ)):
        raise ConfigError([Issue("workspace", f"{path!r} contains secrets of clawkit")])
    return path


def make_run(
    loaded: Loaded,
    assembly: Assembly,
    scope: Scope,
    workspace: str,
    hooks: Hooks | None = None,
    approver: Approver | None = None,
    *,
    later: bool = False,
    redactor: Redactor | None = None,
) -> Run:
    """Everything `core.call` needs, with the local services. The `redactor` of an earlier run keeps
    the secrets learned in it. Raises `ConfigError` if the configured sandbox cannot be used."""
    if redactor is None:
        redactor = make_redactor(loaded)
    else:
        from clawkit.models.providers import known_secrets

        redactor.learn(known_secrets(loaded))
    services = Services(
        loaded, scope, workspace, approver=approver, later=later, redactor=redactor, rules=assembly
    )
    services.fill(InForce, lambda: assembly.in_force)
    if (plugins := open_plugins(loaded.config)) is not None:
        from clawkit.plugins.hooks import with_hooks

        hooks = with_hooks(hooks, plugins)
    run = Run(
        tools=assembly.tools,
        workspace=_run_workspace(services, scope, workspace),
        scope=scope,
        refused=assembly.refused,
        rules=assembly.judge,
        hooks=hooks or Hooks(),
        approver=_ServiceApprover(services),
        approval_timeout_s=loaded.config.approvals.timeout_seconds,
        services=services,
        redactor=redactor,
        watch=_make_guard(loaded.config, scope.agent),
        deferred=frozenset(assembly.deferral.names),
    )
    services.fill(NestedCalls, lambda: NestedCalls(run))
    is_plugged = plugins is not None and plugins.fills("search") is not None

    def searcher() -> Searcher:
        from clawkit.web.search.service import WebSearcher

        plugin = services.provide_role("search") if is_plugged else None
        return WebSearcher(loaded, redactor, plugin)

    services.fill(Searcher, searcher)
    if loaded.config.plugins is not None:
        from clawkit.agent.completion import Completions
        from clawkit.agent.model_selection import ModelSelection

        def completions() -> Completions:
            models = ModelSelection(loaded, scope.agent)
            models.learn = redactor.learn
            return Completions(models)

        services.fill(Completions, completions)
    return run


def _run_workspace(services: Services, scope: Scope, workspace: str) -> str:
    """The workspace of the run: that of the sandbox, if the session is sandboxed."""
    if not services.requires_sandbox:
        return workspace
    from clawkit.sandbox.protocols import SandboxUnavailableError

    problem = services[Confines].problem
    try:
        if not problem:
            return services.enter_sandbox() if scope.sandboxed else workspace
    except SandboxUnavailableError as error:
        problem = str(error)
    raise ConfigError([Issue("agents.defaults.sandbox", problem)])


def _make_guard(config: Config, agent: str) -> CallGuard | None:
    override = config.agents.get(agent).tools.loop_detection
    settings = config.tools.loop_detection.merged(override)
    if settings.enabled is False:
        return None
    from clawkit.guard.loops import LoopGuard

    return LoopGuard(settings)


class _ServiceApprover(Struct, frozen=True):
    """Asks through the `Approvals` service, which is created with the first question."""

    services: Services

    async def ask(self, request: Question) -> Answer:
        approvals = self.services[Approvals]
        if approvals.route() == "none":
            raise no_approver(request.title, request.to_allow)
        return await approvals.ask(request)


async def close_run(run: Run) -> None:
    if isinstance(run.services, Services):
        await run.services.close()


def make_redactor(loaded: Loaded) -> Redactor:
    """A redactor that knows the secrets of the configuration and of the environment."""
    from clawkit.models.providers import known_secrets

    env = {**os.environ, **loaded.env}
    from_environment = [value for name, value in env.items() if is_secret_name(name)]
    try:
        return Redactor(
            [*from_environment, *known_secrets(loaded)], loaded.config.logging.redact_patterns or ()
        )
    except ValueError as error:
        raise ConfigError([Issue("logging.redactPatterns", str(error))]) from None
