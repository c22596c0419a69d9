"""The services of one run, made from the configuration when somebody first asks for one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from clawkit.approvals.seam import Approvals, Gate
from clawkit.config.env import substitute
from clawkit.config.load import Loaded
from clawkit.config.paths import (
    approvals_file,
    audit_file,
    commands_dir,
    config_file,
    home,
    waiting_file,
)
from clawkit.config.sections.exec import Exec
from clawkit.config.sections.fs import Fs
from clawkit.config.shown import secrets_of, variables_of
from clawkit.core.approval import Approver
from clawkit.core.context import InForce, Scope
from clawkit.core.paths import ways_of
from clawkit.errors import ConfigError, ToolError
from clawkit.fs.base import FileSystem, WorkspaceFiles
from clawkit.fs.kinds import ImageLimits
from clawkit.fs.protect import Protection
from clawkit.fs.search.query import Search
from clawkit.fs.seen import Seen
from clawkit.lsp.base import Diagnostics
from clawkit.media.base import Media
from clawkit.process.base import Commands, Surroundings
from clawkit.redact import Redactor
from clawkit.sessions.base import Plan, Sessions

if TYPE_CHECKING:
    from clawkit.approvals.judge import Judge

Factory = Callable[[], object]
_ABOUT_THE_RUN = (InForce, Redactor)


class Services(Mapping[type, object]):
    """By Protocol. What nobody asks for is neither made nor imported."""

    def __init__(
        self,
        loaded: Loaded,
        scope: Scope,
        workspace: str,
        *,
        approver: Approver | None = None,
        later: bool = False,
        redactor: Redactor | None = None,
    ) -> None:
        """`approver` is somebody here who can be asked; with `later`, what needs a person may also
        be answered after the call."""
        self._loaded = loaded
        self._scope = scope
        self._workspace = workspace
        self._approver = approver
        self._later = later
        self._redactor = redactor or Redactor()
        config = loaded.config
        self._fs: Fs = config.tools.fs.merged(config.agents.get(scope.agent).tools.fs)
        self._exec: Exec = config.tools.exec.merged(config.agents.get(scope.agent).tools.exec)
        self._is_closed = False
        self._older: Services | None = None
        self._made: dict[type, object] = {}
        self._factories: dict[type, Factory] = {
            FileSystem: lambda: self._files(self._fs.workspace_only),
            WorkspaceFiles: lambda: self._files(held=True, roots=False),
            Seen: Seen,
            Search: self._search,
            Diagnostics: self._diagnostics,
            Media: self._media,
            ImageLimits: lambda: ImageLimits(config.agents.defaults.image_max_dimension_px),
            Commands: self._commands,
            Surroundings: self._surroundings,
            Approvals: self._approvals,
            Gate: self._gate,
            Sessions: self._sessions,
            Plan: self._plan,
        }

    def is_made(self, kind: type) -> bool:
        """Whether somebody has asked for a service."""
        return kind in self._made

    def fill(self, kind: type, factory: Factory) -> None:
        """Add a service."""
        self._factories[kind] = factory

    def take_over(self, older: Services) -> None:
        """Go on with what another run of the same agent has made, but for what decides."""
        for kind, service in older._made.items():
            if kind not in (Gate, Approvals) and kind not in _ABOUT_THE_RUN:
                self._made[kind] = service
        older._made = {kind: older._made[kind] for kind in older._made if kind not in self._made}
        self._older = older

    def __getitem__(self, kind: type) -> object:
        if kind not in self._made:
            self._made[kind] = self._factories[kind]()
        return self._made[kind]

    def __iter__(self) -> Iterator[type]:
        return iter(self._factories)

    def __len__(self) -> int:
        return len(self._factories)

    async def close(self) -> None:
        """End what the services started. They can be asked for again, but nothing more runs."""
        self._is_closed = True
        made, self._made = self._made, {}
        for service in made.values():
            close = getattr(service, "close", None)
            if close is not None and (ending := close()) is not None:
                await ending
        if self._older is not None:
            await self._older.close()

    def _files(self, held: bool, roots: bool = True) -> Any:
        from clawkit.fs.local import LocalFileSystem

        return LocalFileSystem(
            self._workspace,
            workspace_only=held,
            read_roots=self._fs.read_roots if roots else (),
            write_roots=self._fs.write_roots if roots else (),
            hard_links=self._fs.hard_links == "allow",
            protection=self._protection(),
            ask=self._fs.protected == "ask",
            journals=os.path.join(os.path.realpath(home(os.environ)), "changes"),
        )

    def _protection(self) -> Protection:
        files = (os.path.abspath(file) for file in self._loaded.files)
        ways = (way for file in (*files, *self._elsewhere()) for way in ways_of(file))
        own = (os.path.realpath(home(os.environ)), *ways)
        place = os.path.realpath(self._workspace)
        # A workspace that lies in the state directory is an ordinary place.
        is_inside = any(place.startswith(f"{each}/") for each in own)
        return Protection(own, open=(place,) if is_inside else ())

    def _elsewhere(self) -> list[str]:
        """What of our state the settings put outside of the state directory."""
        from clawkit.models.modelsjson import agent_dirs
        from clawkit.sessions.place import files_of_store, locate_store

        env = {**os.environ, **self._loaded.env}
        found = agent_dirs(self._loaded.config, env)
        with suppress(ConfigError):
            found += files_of_store(locate_store(self._loaded.config.session.store, os.environ))
        state = f"{home(os.environ)}/"
        return [each for each in found if not each.startswith(state)]

    def _search(self) -> Any:
        from clawkit.fs.search.local import LocalSearch

        files: Any = self[FileSystem]
        allowed = self._fs.hard_links == "allow"
        return LocalSearch(files, self._workspace, ripgrep=self._fs.ripgrep, hard_links=allowed)

    def _diagnostics(self) -> Any:
        from clawkit.lsp.service import LanguageServers

        cache = os.path.join(home(os.environ), "cache", "lsp")
        here = self._workspace
        given = (*self._fs.write_roots, *self._fs.read_roots)
        roots = [os.path.join(here, os.path.expanduser(root)) for root in given]
        return LanguageServers(self._workspace, roots, self._fs.lsp, cache_dir=cache)

    def _media(self) -> Any:
        from clawkit.media.convert import LocalMedia

        return LocalMedia()

    def _commands(self) -> Any:
        from clawkit.process.local import LocalHost
        from clawkit.process.supervisor import Supervisor

        if self._is_closed:
            raise ToolError("clawkit has been closed here; nothing is started any more")
        folder = commands_dir(os.environ)
        settings = self._exec
        return Supervisor(
            {"gateway": lambda: LocalHost(folder, max_processes=settings.max_processes)},
            folder,
            max_running=settings.max_running,
            keep_s=settings.cleanup_ms / 1000,
        )

    def _surroundings(self) -> Any:
        from clawkit.process.surroundings import LocalSurroundings

        return LocalSurroundings(
            os.environ,
            prepend=self._exec.path_prepend,
            keep=self._exec.inherit_env,
            secrets=known_secrets(self._loaded),
            login=self._exec.login_path,
            cache=os.path.join(home(os.environ), "cache", "login-path.json"),
        )

    def _sessions(self) -> Any:
        from clawkit.sessions.place import locate_store
        from clawkit.sessions.store import SessionStore

        place = locate_store(self._loaded.config.session.store, os.environ)
        return SessionStore(place, self._redactor.text)

    def _plan(self) -> Any:
        from clawkit.sessions.plan import CurrentPlan

        return CurrentPlan()

    def judge(self, settings: Exec | None = None) -> Judge:
        """What commands of this run are judged by, with other settings than those in force."""
        from clawkit.approvals.judge import Judge
        from clawkit.approvals.places import Places

        config, agent = self._loaded.config, self._scope.agent
        state = home(os.environ)
        # What was not read from a file has a name that is none.
        read = (os.path.abspath(file) for file in self._loaded.files if os.path.isfile(file))
        own = (state, config_file(os.environ), *read, *self._elsewhere())
        places = Places(
            self._workspace,
            read_roots=self._fs.read_roots,
            write_roots=self._fs.write_roots,
            workspace_only=self._fs.workspace_only,
            why_protected=self._protection().explain,
            own=own,
            own_open=[commands_dir(os.environ)],
        )
        override = config.agents.get(agent).tools.exec
        is_own = any(getattr(override, name, None) for name in ("mode", "security", "ask"))
        return Judge(
            settings or self._exec,
            approvals_file(os.environ),
            key=f"{config.agents.key_of(agent)}.tools.exec" if is_own else "tools.exec",
            agent=agent,
            may_read=places.may_read,
            may_write=places.may_write,
            is_own=places.is_own,
            holds_own=places.holds_own,
            own_names=tuple({os.path.basename(file) for file in own}),
        )

    def _approvals(self) -> Any:
        from clawkit.approvals.broker import Broker
        from clawkit.approvals.waiting import Waiting

        return Broker(
            Waiting(waiting_file(os.environ)),
            approver=self._approver,
            line=_find_line,
            later=self._later,
        )

    def _gate(self) -> Any:
        from clawkit.approvals.audit import Audit
        from clawkit.approvals.gate import LocalGate

        def approvals() -> Any:
            return self[Approvals]

        return LocalGate(
            self.judge(),
            approvals,
            Audit(audit_file(os.environ), self._redactor),
            self._redactor,
            timeout_s=self._loaded.config.approvals.timeout_seconds,
        )


def known_secrets(loaded: Loaded) -> list[str]:
    """Secrets of the configuration and of the files of agents, those behind a name too."""
    from clawkit.models.stored import stored_secrets

    raw = loaded.raw or msgspec.to_builtins(loaded.config)
    env = {**os.environ, **loaded.env}
    found = [str(each) for each in secrets_of(substitute(raw, env))]
    found += [env[name] for name in variables_of(raw) if env.get(name)]
    return [*found, *filter(None, stored_secrets(loaded.config, env))]


def _find_line() -> tuple[str, str] | None:
    """Where somebody may wait for questions, and the token that is known there."""
    from clawkit.approvals.document import BadDocumentError, read_document
    from clawkit.approvals.line import socket_path

    try:
        document = read_document(approvals_file(os.environ))
    except BadDocumentError:
        return None
    path = document.socket_path or socket_path(home(os.environ))
    return (path, document.token) if document.token else None
