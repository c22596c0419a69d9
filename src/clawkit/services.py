"""The services of one run, each created from the configuration on first use."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from clawkit.agent.nested_calls import NestedCalls
from clawkit.approvals.protocols import Approvals, Confines, ExecGate
from clawkit.bundled import open_plugins, provide
from clawkit.code.protocols import Interpreters
from clawkit.config import paths
from clawkit.config.load import Loaded
from clawkit.config.sections.sandbox import SandboxSettings
from clawkit.config.sections.tools import Exec, Fs
from clawkit.core.approval import Approver, Question
from clawkit.core.context import InForce, Scope
from clawkit.core.paths import ways_of
from clawkit.cron.protocols import FILE, CronControl
from clawkit.errors import ClawkitError, ToolError
from clawkit.fs.magic import ImageLimits
from clawkit.fs.protocols import FileSystem, Search, WorkspaceFiles
from clawkit.fs.read_versions import ReadVersions
from clawkit.lsp.protocols import Diagnostics, NoDiagnostics
from clawkit.media.protocols import Media, PageReader
from clawkit.memory.protocols import Memory
from clawkit.own_files import elsewhere, hidden_from_commands
from clawkit.process.protocols import BaseEnvironment, Commands, ExecHost, Grants
from clawkit.redact import Redactor, is_secret_name
from clawkit.run_skills import RunSkills
from clawkit.sessions.protocols import Plan, Sessions, locate_store
from clawkit.store import private_dir
from clawkit.web.factories import web_factories
from clawkit.web.protocols import WebPages
from clawkit.web.search.protocols import Searcher

if TYPE_CHECKING:
    from clawkit.agent.assemble import Assembly
    from clawkit.approvals.judge import Judge
    from clawkit.config.section import SecretInput
    from clawkit.config.sections.plugins import McpServer
    from clawkit.fs.protected_files import Protection
    from clawkit.plugins.api import PluginContext
    from clawkit.sandbox.paths import SandboxPaths
    from clawkit.sandbox.protocols import Mount, Sandbox
    from clawkit.skills.snapshot import SkillSnapshot

T = TypeVar("T")
Factory = Callable[[], object]
_Dirs = Sequence[str]
_PER_RUN = (ExecGate, Approvals, CronControl, InForce, NestedCalls, Redactor)
"""Services that every run of an agent creates anew: they make decisions, or belong to the run."""
_PER_SETTINGS = (Memory, Searcher, WebPages)
"""Services that are created anew when settings change."""
_FOR_COMMANDS = (
    *("sandbox.confinement", "process.supervisor", "approvals.gate", "approvals.judge"),
    *("approvals.path_rules", "fs.masks", "process.environ", "process.output_text"),
)
"""Modules that the first command needs, loaded while the spawn server starts."""


class Services(Mapping[type, object]):
    """Services by Protocol. Unused ones are neither created nor imported."""

    def __init__(
        self,
        loaded: Loaded,
        scope: Scope,
        workspace: str,
        *,
        approver: Approver | None = None,
        later: bool = False,
        redactor: Redactor | None = None,
        rules: Assembly | None = None,
    ) -> None:
        """`approver` asks a person; with `later`, even after the call has returned."""
        self._loaded = loaded
        self._scope = scope
        self._workspace = self._host_workspace = workspace
        self._approver = approver
        self._later = later
        self._redactor = redactor or Redactor()
        self._rules = rules
        self._in_sandbox = False
        config = loaded.config
        self._fs: Fs = config.tools.fs.merged(config.agents.get(scope.agent).tools.fs)
        self._exec: Exec = config.tools.exec.merged(config.agents.get(scope.agent).tools.exec)
        self._sandbox: SandboxSettings = config.agents.sandbox_of(scope.agent)
        self._is_closed = False
        self._previous: Services | None = None
        self._instances: dict[type, object] = {}
        self._factories: dict[type, Factory] = {
            FileSystem: self._all_files,
            WorkspaceFiles: lambda: self._files(confined=True, roots=False),
            ReadVersions: ReadVersions,
            Search: self._search,
            Diagnostics: lambda: self.provide_role("diagnostics") or NoDiagnostics(),
            Media: self._media,
            PageReader: self._documents,
            ImageLimits: lambda: ImageLimits(config.agents.defaults.image_max_dimension_px),
            Commands: self._commands,
            ExecHost: self._local_host,
            BaseEnvironment: self._environment,
            Interpreters: self._interpreters,
            Approvals: self._approvals,
            Confines: lambda: self._confinement(self._sandbox, scope.session),
            ExecGate: self._gate,
            Sessions: self._sessions,
            Memory: self._memory,
            Plan: Plan,
            CronControl: self._cron,
            Redactor: lambda: self._redactor,
            Loaded: lambda: loaded,
        }
        self._factories |= web_factories(loaded, scope.session, self._reveal)
        self._plugins = open_plugins(config)
        if self._plugins is not None:
            for kind, settings in self._plugins.settings.items():
                self._factories.setdefault(kind, partial(lambda given: given, settings))
        self.run_skills = RunSkills(
            loaded,
            scope.agent,
            workspace,
            brought=self._plugins.skills if self._plugins else (),
            write_roots=(*self._fs.write_roots, *self._sandbox.write_paths),
            is_confined=self._fs.workspace_only,
            path=self._exec.path_prepend,
            learn=self._redactor.learn,
        )
        if config.mcp is not None and config.mcp.servers:
            from clawkit.mcp.mounts import Mounts

            self._factories[Mounts] = self._mounts

    async def warm_up(self) -> None:
        """Load what the first command needs, and start the spawn server. Does not raise: errors are
        reported when a command starts."""
        if Commands in self._instances or self._is_closed:
            return
        import asyncio  # not needed by every command

        with suppress(ClawkitError, OSError, ImportError, RuntimeError):
            if not self._scope.sandboxed:
                self[ExecHost].prepare()
            # Not in a thread, which would hold the GIL for longer when the answer arrives.
            for module in _FOR_COMMANDS:
                await asyncio.sleep(0)
                importlib.import_module(f"clawkit.{module}")

    def is_created(self, kind: type) -> bool:
        return kind in self._instances

    def fill(self, kind: type, factory: Factory) -> None:
        self._factories[kind] = factory

    def take_over(self, previous: Services) -> None:
        """Reuse the services of an earlier run of the same agent, except those that make
        decisions."""
        is_same = self._loaded.config is previous._loaded.config
        again = _PER_RUN if is_same else (*_PER_RUN, *_PER_SETTINGS)
        for kind, service in previous._instances.items():
            if kind not in again:
                self._instances[kind] = service
                if configure := getattr(service, "configure", None):
                    configure(self._loaded.config)
        rest = previous._instances.items()
        previous._instances = {kind: each for kind, each in rest if kind not in self._instances}
        self._previous = previous

    def __getitem__(self, kind: type[T]) -> T:
        if kind not in self._instances:
            self._instances[kind] = self._factories[kind]()
        return cast("T", self._instances[kind])

    def __iter__(self) -> Iterator[type]:
        return iter(self._factories)

    def __len__(self) -> int:
        return len(self._factories)

    async def close(self) -> None:
        """Stop everything the services started. They can still be used, but not start commands."""
        self._is_closed = True
        made, self._instances = self._instances, {}
        # Stop commands before the sandbox they run in.
        for kind in sorted(made, key=lambda kind: kind is not Commands):
            close = getattr(made[kind], "close", None)
            if close is not None and (ending := close()) is not None:
                await ending
        if self._previous is not None:
            await self._previous.close()

    def provide_role(self, role: str) -> Any:
        """What the plugin in a role provides; None if there is none."""
        return provide(role, self._plugin_context())

    def _plugin_context(self) -> PluginContext:
        from clawkit.plugins.api import PluginContext

        return PluginContext("", self._scope, self._workspace, self, config=self._loaded.config)

    @property
    def requires_sandbox(self) -> bool:
        """Whether commands must run in a sandbox; does not create one."""
        return self._sandbox.is_required(self._scope.session)

    def enter_sandbox(self) -> str:
        """Enter the sandbox; returns its workspace. Raises `SandboxUnavailableError`."""
        confines: Any = self[Confines]
        self._workspace = confines.workspace()
        self._in_sandbox = True
        return self._workspace

    def _all_files(self) -> Any:
        if self._in_sandbox:
            confines: Any = self[Confines]
            return confines.sandbox.files()
        return self._files(self._fs.workspace_only, roots=True)

    def _mounted(self, mounts: Sequence[Mount]) -> Any:
        """The file system of a sandboxed session: its own files, and read-only mounts."""
        read = [mount.source for mount in mounts if not mount.writable]
        write = [mount.source for mount in mounts if mount.writable]
        return self._files(confined=True, roots=not read, read=read, write=write)

    def _files(self, confined: bool, roots: bool, *, read: _Dirs = (), write: _Dirs = ()) -> Any:
        from clawkit.fs.local import LocalFileSystem

        return LocalFileSystem(
            self._workspace,
            workspace_only=confined,
            read_roots=(
                *read,
                *self._session_dirs(),
                *self.run_skills.folders,
                *(self._fs.read_roots if roots else ()),
            ),
            write_roots=(*write, *(self._fs.write_roots if roots else ())),
            hidden=self._secrets(),
            hard_links=self._fs.hard_links == "allow",
            protection=self.protection(),
            ask=self._fs.protected == "ask",
            journals=os.path.join(os.path.realpath(paths.home(os.environ)), "changes"),
        )

    def _session_dirs(self) -> tuple[str, ...]:
        """The parts of clawkit's directory it may read: long pages, files of its task,
        worktrees."""
        env, key = os.environ, self._scope.session
        given = paths.attachments_dir(env, key), paths.worktrees_dir(env, key)
        return (*(given if self._scope.delegates else ()), paths.pages_dir(env, key))

    @property
    def skills(self) -> SkillSnapshot | None:
        """The skills of the run last found; None if there are none."""
        if self.run_skills.snapshot is None:
            self.refresh_skills()
        return self.run_skills.snapshot

    def refresh_skills(self) -> None:
        """Find the skills of the run, and read those that have changed."""
        is_hidden = self._in_sandbox and self._sandbox.access() == "none"
        if self.run_skills.refresh(self._workspace if is_hidden else self._host_workspace):
            # They were created with the old folders.
            for kind in (FileSystem, Search):
                self._instances.pop(kind, None)

    def _own_files(self) -> tuple[str, ...]:
        """Files of clawkit outside its home directory. For anyone but the owner, and in restricted
        sessions, also the file whose instructions run with all rights of the owner."""
        words = (os.path.join(self._workspace, FILE),) if self._is_restricted else ()
        plugins = self._loaded.config.plugins
        code = [paths.expand(path, os.environ) for path in plugins.load.paths] if plugins else ()
        return (*map(os.path.abspath, self._loaded.files), *elsewhere(self._loaded), *code, *words)

    @cached_property
    def _is_restricted(self) -> bool:
        """Whether heartbeats of the agent may do more than this session."""
        scope, rules = self._scope, self._rules
        if not scope.sender.owner or scope.find_limit(all_sandboxed=self._sandbox.mode == "all"):
            return True
        is_same = rules is None or (not scope.withheld and rules.decision.is_for_all)
        return not is_same and bool(self._cron().lacks_of_heartbeats())

    def protection(self) -> Protection:
        """The places that may only be changed with a person's approval."""
        from clawkit.fs.protected_files import Protection

        ways = (way for file in self._own_files() for way in ways_of(file))
        own = (os.path.realpath(paths.home(os.environ)), *ways)
        place = os.path.realpath(self._workspace)
        # A workspace inside the state directory is not protected.
        is_inside = any(place.startswith(f"{each}/") for each in own)
        user = os.path.realpath(paths.expand("~", os.environ))
        has_home = f"{user}/".startswith(f"{place.rstrip('/')}/")
        return Protection(own, open=(place,) if is_inside else (), home=user if has_home else "")

    def _secrets(self) -> tuple[str, ...]:
        from clawkit.models.providers import secret_places

        return secret_places(self._loaded)

    def _cron(self) -> Any:
        from clawkit.session_cron import SessionCron

        return SessionCron(self._loaded, self._scope, cast("Assembly", self._rules))

    def _search(self) -> Any:
        from clawkit.fs.search.local import LocalSearch

        files: Any = self[FileSystem]
        allowed = self._fs.hard_links == "allow"
        return LocalSearch(
            files,
            self._workspace,
            ripgrep=self._fs.ripgrep,
            hidden=self._secrets(),
            hard_links=allowed,
            absolute=bool(self._scope.cwd),
        )

    def _documents(self) -> Any:
        if (found := self.provide_role("documents")) is None:
            raise ToolError("no plugin reads PDFs: see plugins.entries.pdf and plugins.slots")
        return found

    def _media(self) -> Any:
        from clawkit.media.local import LocalMedia

        return LocalMedia()

    def _commands(self) -> Any:
        from clawkit.process.supervisor import Supervisor

        if self._is_closed:
            raise ToolError("clawkit is shutting down; no new commands can start")
        settings = self._exec
        confines: Any = self[Confines]

        def guarded() -> ExecHost:
            host: Any = self[ExecHost]
            host.guard = confines.paths.guard
            return cast("ExecHost", host)

        hosts: dict[str, Callable[[], ExecHost]] = {"gateway": guarded}
        if confines.has_sandbox:
            hosts["sandbox"] = lambda: confines.sandbox.host()
        return Supervisor(
            hosts,
            paths.commands_dir(os.environ),
            max_running=settings.max_running,
            keep_s=settings.cleanup_ms / 1000,
        )

    def _local_host(self) -> Any:
        from clawkit.process.local_host import LocalHost

        return LocalHost(paths.commands_dir(os.environ), max_processes=self._exec.max_processes)

    def _confinement(self, settings: SandboxSettings, session: str) -> Any:
        from clawkit.sandbox.confinement import Confinement
        from clawkit.sandbox.paths import DeniedFiles, SandboxContext

        files = DeniedFiles(lambda path: self._effect_on("read", path) == "deny")

        def denied() -> list[str]:
            """Files that no tool may read. Raises `ToolError` if there are too many to check."""
            rules = self._rules
            return files.find(self._workspace) if rules and rules.denies_files else []

        context = SandboxContext(
            workspace=self._workspace,
            state=paths.home(os.environ),
            agent=self._scope.agent,
            session=session,
            homes=tuple(dict.fromkeys((os.path.expanduser("~"), paths.login_home()))),
            secrets=hidden_from_commands(self._loaded, self._workspace),
            spool_dir=paths.commands_dir(os.environ),
            max_processes=self._exec.max_processes,
            files=self._mounted,
            denied=denied,
            own_files=self._own_files(),
            ask_host=self._ask_host,
            reveal=self._reveal,
            protection=self.protection(),
            session_dirs=self._session_dirs(),
            shared=self.run_skills.folders,
            provide=self._plugin_sandbox(),
        )
        return Confinement(settings, context)

    def _reveal(self, secret: SecretInput) -> str:
        from clawkit.config.secrets import resolve

        env = {**os.environ, **self._loaded.env}
        return resolve(secret, self._loaded.config, env)

    def _mounts(self) -> Any:
        from clawkit.mcp.mounts import MountContext, Mounts

        folder, set_up = paths.mcp_dir(os.environ), self._set_up_program
        secrets = self._reveal, self._redactor.learn, self._redactor.strict
        context = MountContext(folder, self._workspace, set_up, *secrets)
        return Mounts(self._loaded.config, context)

    async def _set_up_program(self, name: str, entry: McpServer) -> Any:
        """The confinement for the program of an MCP server: only what its entry grants."""
        from clawkit.mcp.mounts import ProgramSetup

        wants, env = entry.sandbox, await self[BaseEnvironment].variables()
        if cwd := entry.cwd or "":
            cwd = cwd if cwd[0] == "~" else os.path.join(self._workspace, cwd)
            cwd = paths.expand(cwd, os.environ)
        if not wants.enabled:
            private_dir(folder := os.path.join(paths.mcp_dir(os.environ), "run"))
            return ProgramSetup(self[ExecHost], None, env, cwd, folder)
        settings = SandboxSettings(
            mode="all",
            workspace_access=wants.workspace_access,
            network=wants.network,
            allow_hosts=wants.allow_hosts,
            hide_paths=self._sandbox.hide_paths,
        )
        run = self._confinement(settings, f"mcp:{name}")
        read = paths.resolve(wants.read_paths, os.environ)
        grants = Grants(read=read, write=paths.resolve(wants.write_paths, os.environ))
        if why := run.why_not_granted(grants) if run.has_sandbox else run.choice.reason:
            do = f"to run it unconfined, set mcp.servers.{name}.sandbox.enabled to false"
            raise ToolError(f"it cannot be confined: {why}; {do}")
        _, hold, variables = run.in_sandbox(grants)
        proxied = {"NODE_USE_ENV_PROXY": "1"} if wants.network == "allowlist" else {}
        env = {**env, **variables, **proxied}
        return ProgramSetup(run.sandbox.host(), hold, env, cwd, variables["TMPDIR"], run.close)

    def _plugin_sandbox(self) -> Callable[[SandboxPaths], Sandbox] | None:
        """The factory of a plugin's sandbox; None if no plugin is to provide it."""
        plugins = self._loaded.config.plugins
        slot = plugins.slots.get("sandbox", "") if plugins else ""
        if slot == "none" or not (slot or (self._plugins and self._plugins.fills("sandbox"))):
            return None

        def make(paths: SandboxPaths) -> Sandbox:
            from clawkit.sandbox.paths import SandboxPaths
            from clawkit.sandbox.protocols import SandboxUnavailableError

            self.fill(SandboxPaths, lambda: paths)
            if (made := self.provide_role("sandbox")) is None:
                raise SandboxUnavailableError("no plugin provides the sandbox: see plugins.slots")
            return cast("Sandbox", made)

        return make

    async def _ask_host(self, host: str, port: int) -> bool:
        """Ask a person whether a command may connect to a host."""
        approvals = self[Approvals]
        if approvals.route() == "none":
            return False
        question = Question(
            "exec",
            {"host": host, "port": port},
            title=f"let a command in the sandbox connect to {host}, port {port}",
            description="It is not in sandbox.allowHosts. An approval lasts for this session.",
            asked_by="sandbox.network",
            to_allow=f"clawkit config set agents.defaults.sandbox.allowHosts '[\"{host}\"]'",
            timeout_s=self._loaded.config.approvals.timeout_seconds,
            agent=self._scope.agent,
            session=self._scope.session,
        )
        return (await approvals.ask(question)).verdict == "allow"

    def _environment(self) -> Any:
        from clawkit.models.providers import known_secrets
        from clawkit.process.environ import LocalEnvironment

        own = LocalEnvironment(
            os.environ,
            prepend=self._exec.path_prepend,
            keep=self._exec.inherit_env,
            secrets=known_secrets(self._loaded),
            login=self._exec.login_path,
            cache=os.path.join(paths.home(os.environ), "cache", "login-path.json"),
        )
        if self._plugins is None:
            return own
        from clawkit.plugins.hooks import HookedEnvironment

        return HookedEnvironment(own, self._plugins, self._plugin_context(), self._learn_env)

    def _learn_env(self, given: Mapping[str, str]) -> Mapping[str, str]:
        """The variables of a plugin, checked like the variables of a call."""
        from clawkit.process.environ import check_overrides

        self._redactor.learn([given[name] for name in given if is_secret_name(name)])
        return check_overrides(given)

    def _interpreters(self) -> Any:
        from clawkit.code.interpreters import KeptInterpreters

        return KeptInterpreters(self[Commands])

    def _sessions(self) -> Any:
        from clawkit.sessions.store import SessionStore

        place = locate_store(self._loaded.config.session.store, os.environ)
        return SessionStore(place, self._redactor.text)

    def _memory(self) -> Any:
        from clawkit.run_memory import open_run_memory

        workspace, redactor = self._host_workspace, self._redactor
        return open_run_memory(self, self._loaded, self._scope, workspace, redactor)

    def judge(self, settings: Exec | None = None) -> Judge:
        """The judge for commands of this run; `settings` replace the current ones."""
        from clawkit.approvals.judge import Judge
        from clawkit.approvals.path_rules import PathRules
        from clawkit.fs.masks import is_env_file
        from clawkit.sandbox.confinement import can_confine

        config, agent = self._loaded.config, self._scope.agent
        state = paths.home(os.environ)
        # A configuration that was not read from a file has a name such as `<mapping>`.
        read = (os.path.abspath(file) for file in self._loaded.files if os.path.isfile(file))
        own = (state, paths.config_file(os.environ), *read, *elsewhere(self._loaded))
        places = PathRules(
            self._workspace,
            read_roots=(*self._session_dirs(), *self._fs.read_roots),
            write_roots=self._fs.write_roots,
            workspace_only=self._fs.workspace_only,
            why_protected=self.protection().explain,
            own=own,
            own_open=[paths.commands_dir(os.environ), *self._session_dirs()],
            shared=self.run_skills.folders,
            effect_on=self._effect_on,
            is_masked=is_env_file,
            hard_links=self._fs.hard_links == "allow" or not self._fs.workspace_only,
        )
        override = config.agents.get(agent).tools.exec
        is_own = any(getattr(override, name, None) for name in ("mode", "security", "ask"))
        return Judge(
            settings or self._exec,
            paths.approvals_file(os.environ),
            key=f"{config.agents.key_of(agent)}.tools.exec" if is_own else "tools.exec",
            agent=agent,
            confines=can_confine() or (settings or self._exec).unconfined == "allow",
            may_read=places.may_read,
            may_write=places.may_write,
            is_own=places.is_own,
            holds_own=places.holds_own,
            own_names=tuple({os.path.basename(file) for file in own}),
            skill_programs=lambda: skills.programs if (skills := self.skills) else (),
        )

    def _effect_on(self, tool: str, path: str) -> str:
        if self._rules is None:
            return "allow"
        return self._rules.effect_on(tool, path, self._workspace)

    def _approvals(self) -> Any:
        from clawkit.approvals.broker import Broker, PendingStore

        return Broker(
            PendingStore(paths.waiting_file(os.environ)),
            approver=self._approver,
            socket=_find_socket,
            later=self._later,
        )

    def _gate(self) -> Any:
        from clawkit.approvals.audit import Audit
        from clawkit.approvals.gate import LocalGate
        from clawkit.fs.masks import EnvSecrets

        return LocalGate(
            self.judge(),
            lambda: self[Approvals],
            Audit(paths.audit_file(os.environ), self._redactor),
            self._redactor,
            timeout_s=self._loaded.config.approvals.timeout_seconds,
            confines=self[Confines],
            before=EnvSecrets(self._workspace, self._redactor.learn).refresh,
            variables=lambda: self.run_skills.variables() if self.skills else {},
        )


def _find_socket() -> tuple[str, str] | None:
    """The socket where an approver may be listening, and its token."""
    from clawkit.approvals.file import BadDocumentError, read_document
    from clawkit.approvals.socket import socket_path

    try:
        document = read_document(paths.approvals_file(os.environ))
    except BadDocumentError:
        return None
    path = document.socket_path or socket_path(paths.home(os.environ))
    return (path, document.token) if document.token else None
