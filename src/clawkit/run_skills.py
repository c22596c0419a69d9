"""The skills of one run: found again when files change, and what follows from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from clawkit.config import paths
from clawkit.config.load import Loaded
from clawkit.core.paths import is_below
from clawkit.errors import SecretError

if TYPE_CHECKING:
    from clawkit.skills.discovery import SkillRoot
    from clawkit.skills.snapshot import SkillSnapshot


class RunSkills:
    """Nothing is imported while there are no skills."""

    def __init__(
        self,
        loaded: Loaded,
        agent: str,
        workspace: str,
        *,
        brought: Sequence[str],
        write_roots: Sequence[str],
        is_confined: bool,
        path: Sequence[str],
        learn: Callable[[Iterable[str]], object],
    ) -> None:
        """`brought` are directories with skills of plugins, `write_roots` what the agent may change
        besides the workspace, if it `is_confined` to that; `path` is searched for programs before
        the others; `learn` is told secrets."""
        self.snapshot: SkillSnapshot | None = None
        """The skills as last found; None if there are none."""
        self.folders: list[str] = []
        """What the sandbox and the rules for paths share; they read it whenever they decide."""
        self._loaded = loaded
        self._agent = agent
        self._workspace = workspace
        self._brought = brought
        self._write_roots = write_roots
        self._is_confined = is_confined
        self._path = path
        self._learn = learn

    def refresh(self, place: str) -> bool:
        """Find the skills, with those of a workspace at `place`, and read those that have changed;
        whether `folders` did."""
        settings = self._loaded.config.skills
        extra = settings.load.extra_dirs if settings else ()
        dirs = paths.skill_dirs(os.environ, place, (*self._brought, *extra))
        is_known = self.snapshot is not None
        if not (is_known or dirs) or (is_known and settings and not settings.load.watch):
            return False
        from clawkit.skills.discovery import SkillRoot

        roots = [SkillRoot(path, kind, place if kind == "workspace" else "") for path, kind in dirs]
        self.snapshot = self.read(roots, self.snapshot)
        # What the agent can change, it can read. It is not shared: it could become a link.
        own = [*map(os.path.realpath, self._writable(place))]
        folders = [
            each
            for each in self.snapshot.folders
            if not any(is_below(each, folder) for folder in own)
        ]
        has_changed = folders != self.folders
        self.folders[:] = folders
        return has_changed

    def read(self, roots: Sequence[SkillRoot], known: SkillSnapshot | None = None) -> SkillSnapshot:
        """The skills below some directories; those `known` if no file has changed."""
        from clawkit.skills.snapshot import load_snapshot

        config = self._loaded.config
        return load_snapshot(
            roots,
            config,
            known=known,
            settings=self._loaded.raw or msgspec.to_builtins(config),
            agent=self._agent,
            env={**os.environ, **self._loaded.env},
            path=self._path,
            writable=self._writable(self._workspace) if self._is_confined else ("/",),
        )

    def _writable(self, place: str) -> tuple[str, ...]:
        """The directories that the agent can change without asking, if it is confined to them."""
        given = (os.path.join(place, os.path.expanduser(each)) for each in self._write_roots)
        return (place, *given)

    def variables(self) -> dict[str, str]:
        """Variables of skills for commands that may leave the sandbox. One whose secret cannot be
        read is left out, and `clawkit skills check` says why."""
        from clawkit.config.secrets import resolve

        env, found = {**os.environ, **self._loaded.env}, {}
        for name, given in self.snapshot.variables.items() if self.snapshot else ():
            with suppress(SecretError):
                found[name] = resolve(given, self._loaded.config, env)
        self._learn(found.values())
        return found
