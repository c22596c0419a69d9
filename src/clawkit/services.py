"""The services of one run, made from the configuration when somebody first asks for one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from clawkit.config.env import substitute
from clawkit.config.load import Loaded
from clawkit.config.paths import commands_dir, home
from clawkit.config.sections.exec import Exec
from clawkit.config.sections.fs import Fs
from clawkit.config.shown import secrets_of
from clawkit.core.context import Scope
from clawkit.core.paths import ways_of
from clawkit.errors import ToolError
from clawkit.fs.base import FileSystem, WorkspaceFiles
from clawkit.fs.kinds import ImageLimits
from clawkit.fs.search.query import Search
from clawkit.fs.seen import Seen
from clawkit.lsp.base import Diagnostics
from clawkit.media.base import Media
from clawkit.process.base import Commands, Surroundings

Factory = Callable[[], object]


class Services(Mapping[type, object]):
    """By Protocol. What nobody asks for is neither made nor imported."""

    def __init__(self, loaded: Loaded, scope: Scope, workspace: str) -> None:
        self._loaded = loaded
        self._workspace = workspace
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
        from clawkit.fs.protect import Protection

        state = os.path.realpath(home(os.environ))
        files = (way for file in self._loaded.files for way in ways_of(os.path.abspath(file)))
        place = os.path.realpath(self._workspace)
        return LocalFileSystem(
            self._workspace,
            workspace_only=held,
            read_roots=self._fs.read_roots if roots else (),
            write_roots=self._fs.write_roots if roots else (),
            hard_links=self._fs.hard_links == "allow",
            protection=Protection(
                own=(state, *files),
                # A workspace that lies in the state directory is an ordinary place.
                open=(place,) if place != state and place.startswith(f"{state}/") else (),
            ),
            ask=self._fs.protected == "ask",
            journals=os.path.join(state, "changes"),
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
