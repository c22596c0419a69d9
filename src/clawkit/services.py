"""The services of one run, made from the configuration when somebody first asks for one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from clawkit.approvals.base import Approvals, Gate
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
from clawkit.config.shown import secrets_of
from clawkit.core.approval import Approver
from clawkit.core.context import Scope
from clawkit.core.paths import ways_of
from clawkit.errors import ToolError
from clawkit.fs.base import FileSystem, WorkspaceFiles
from clawkit.fs.kinds import ImageLimits
from clawkit.fs.protect import Protection
from clawkit.fs.search.query import Search
from clawkit.fs.seen import Seen
from clawkit.lsp.base import Diagnostics
from clawkit.media.base import Media
from clawkit.process.base import Commands, Surroundings
from clawkit.redact import Redactor

if TYPE_CHECKING:
    from clawkit.approvals.judge import Judge

Factory = Callable[[], object]


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
        }

    def is_made(self, kind: type) -> bool:
        """Whether somebody has asked for a service."""
        return kind in self._made

    def fill(self, kind: type, factory: Factory) -> None:
        """Add a service."""
        self._factories[kind] = factory

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
            if close is not None:
                await close()

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
        state = os.path.realpath(home(os.environ))
        files = (way for file in self._loaded.files for way in ways_of(os.path.abspath(file)))
        place = os.path.realpath(self._workspace)
        return Protection(
            own=(state, *files),
            # A workspace that lies in the state directory is an ordinary place.
            open=(place,) if place != state and place.startswith(f"{state}/") else (),
        )

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

        raw = self._loaded.raw or msgspec.to_builtins(self._loaded.config)
        env = {**os.environ, **self._loaded.env}
        return LocalSurroundings(
            os.environ,
            prepend=self._exec.path_prepend,
            keep=self._exec.inherit_env,
            secrets=[str(each) for each in secrets_of(substitute(raw, env))],
            login=self._exec.login_path,
            cache=os.path.join(home(os.environ), "cache", "login-path.json"),
        )

    def judge(self, settings: Exec | None = None) -> Judge:
        """What commands of this run are judged by, with other settings than those in force."""
        from clawkit.approvals.judge import Judge
        from clawkit.approvals.places import Places

        config, agent = self._loaded.config, self._scope.agent
        state = home(os.environ)
        # What was not read from a file has a name that is none.
        read = (os.path.abspath(file) for file in self._loaded.files if os.path.isfile(file))
        own = (state, config_file(os.environ), *read)
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
