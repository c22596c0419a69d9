"""The skills of one run: reloaded when files change, with their folders and variables."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from clawkit.config import paths
from clawkit.config.load import Loaded
from clawkit.core.paths import is_below
from clawkit.errors import SecretError

if TYPE_CHECKING:
    from clawkit.skills.discovery import SkillRoot
    from clawkit.skills.snapshot import SkillSnapshot


class RunSkills(Struct, eq=False):
    """Nothing is imported while there are no skills."""

    loaded: Loaded
    agent: str
    workspace: str
    brought: Sequence[str]
    """Directories with skills of plugins."""
    write_roots: Sequence[str]
    """Directories the agent may change besides the workspace, if it `is_confined`."""
    is_confined: bool
    path: Sequence[str]
    """Directories that are searched for programs before the others."""
    learn: Callable[[Iterable[str]], object]
    """Called with each secret, to redact it."""
    snapshot: SkillSnapshot | None = None
    """The skills last found; None if there are none."""
    folders: list[str] = []
    """Shared with the sandbox and the path rules, which read it at every decision."""

    def refresh(self, workspace: str) -> bool:
        """Find the skills, including those of the workspace, and read changed ones;
        returns whether `folders` changed."""
        settings = self.loaded.config.skills
        extra = settings.load.extra_dirs if settings else ()
        dirs = paths.skill_dirs(os.environ, workspace, (*self.brought, *extra))
        is_known = self.snapshot is not None
        if not (is_known or dirs) or (is_known and settings and not settings.load.watch):
            return False
        from clawkit.skills.discovery import SkillRoot

        tops = {"workspace": workspace}
        roots = [SkillRoot(path, kind, tops.get(kind, "")) for path, kind in dirs]
        self.snapshot = self.read(roots, self.snapshot)
        # The agent can already read what it can change. Not shared, since it could become a link.
        own = [*map(os.path.realpath, self._writable(workspace))]
        folders = [
            each
            for each in self.snapshot.folders
            if not any(is_below(each, folder) for folder in own)
        ]
        has_changed = folders != self.folders
        self.folders[:] = folders
        return has_changed

    def read(self, roots: Sequence[SkillRoot], last: SkillSnapshot | None = None) -> SkillSnapshot:
        """The skills below some directories; `last` if no file has changed."""
        from shutil import which

        from clawkit.config.sections.skills import Skills
        from clawkit.skills.discovery import scan
        from clawkit.skills.eligibility import SkillFacts
        from clawkit.skills.snapshot import SkillSnapshot

        config, env = self.loaded.config, {**os.environ, **self.loaded.env}
        settings, own = config.skills or Skills(), config.agents.get(self.agent)
        limits, found = settings.limits, scan(roots, settings.limits)
        if last is not None and last.candidates == found:
            return last
        if own.skills_limits and own.skills_limits.max_skills_prompt_chars is not None:
            chars = own.skills_limits.max_skills_prompt_chars
            limits = msgspec.structs.replace(limits, max_skills_prompt_chars=chars)
        facts = SkillFacts(
            sys.platform,
            partial(which, path=":".join((*self.path, env.get("PATH", "")))),
            env,
            self.loaded.raw or msgspec.to_builtins(config),
            settings.entries,
            config.agents.defaults.skills if own.skills is None else own.skills,
        )
        writable = self._writable(self.workspace) if self.is_confined else ("/",)
        return SkillSnapshot(found, facts, limits, writable)

    def _writable(self, workspace: str) -> tuple[str, ...]:
        """The directories that the agent can change without asking, if it is confined to them."""
        given = (os.path.join(workspace, os.path.expanduser(each)) for each in self.write_roots)
        return (workspace, *given)

    def variables(self) -> dict[str, str]:
        """Variables of skills for commands that may leave the sandbox. Variables with an unreadable
        secret are omitted; `clawkit skills check` says why."""
        from clawkit.config.secrets import resolve

        env, found = {**os.environ, **self.loaded.env}, {}
        for name, given in self.snapshot.variables.items() if self.snapshot else ():
            with suppress(SecretError):
                found[name] = resolve(given, self.loaded.config, env)
        self.learn(found.values())
        return found
