"""How the commands of one run are confined: the choice of a backend, and the hold of a command."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Literal

from msgspec import Struct, structs

from clawkit.config.sections.sandbox import Backend, SandboxSettings
from clawkit.core.paths import is_below
from clawkit.core.tasks import in_thread
from clawkit.errors import ToolError
from clawkit.process import landlock, seccomp
from clawkit.process.landlock import Hold
from clawkit.process.protocols import NO_GRANTS, Grants
from clawkit.sandbox.local import LocalSandbox, find_bwrap, probe_bwrap
from clawkit.sandbox.paths import SandboxContext, SandboxPaths, own_code, scope_key, to_here
from clawkit.sandbox.protocols import Sandbox, SandboxUnavailableError, prune
from clawkit.store import private_dir, write_atomic

EVERY_S = 300.0  # seconds between two rounds of pruning on a machine
_PRUNING_S = 5.0  # seconds that the end of a run waits for pruning
_NAMED = "sandbox.backend names it"
_TEMPORARY = ("TMPDIR", "TMP", "TEMP")
_SSH_AGENT = "SSH_AUTH_SOCK"
_SYSTEM_DIRS = re.compile("/(bin|boot|dev|etc|home|lib|lib64|opt|proc|run|sbin|sys|usr|var)?")
_ELSEWHERE = ("openshell", "crabbox")  # backends of other programs; their settings are accepted
_NAMESPACE_SETTINGS = """user/max_user_namespaces kernel/unprivileged_userns_clone
    kernel/apparmor_restrict_unprivileged_userns"""
"""Kernel settings that disable user namespaces."""
Confined = tuple[Literal["sandbox", "gateway"], Hold | None, Mapping[str, str]]
"""The host of a command that no person approved, its hold, and extra variables."""
log = logging.getLogger(__name__)


class BackendChoice(Struct, frozen=True):
    """A backend, or the reason why there is none."""

    backend: Backend | Literal["plugin"] | None
    reason: str  # why it was chosen, or why there is none


class Confinement:
    """How and where the commands of a run are confined. Everything is determined on first use."""

    def __init__(self, settings: SandboxSettings, context: SandboxContext) -> None:
        self.settings = settings
        self._context = context
        self._is_on = settings.is_on(context.session)
        self.is_required = settings.is_required(context.session)  # no sandbox, no commands
        self._pruning: asyncio.Task[None] | None = None

    @functools.cached_property
    def choice(self) -> BackendChoice:
        """The backend, or why there is none. Blocks."""
        if not self._is_on:
            return BackendChoice(None, f"sandbox.mode is {self.settings.mode!r}")
        if self._context.provide is not None:
            return BackendChoice("plugin", "a plugin provides it")
        return choose(self.settings, workspace=self._context.workspace, state=self._context.state)

    @property
    def problem(self) -> str:
        """Why commands cannot run at all: the configured sandbox is not available."""
        return why_unusable(self.settings, self.choice) if self.is_required else ""

    @property
    def has_sandbox(self) -> bool:
        return self.choice.backend is not None

    @functools.cached_property
    def paths(self) -> SandboxPaths:
        context, settings = self._context, self.settings
        if not self._is_on:
            # Without a sandbox, the agent's own workspace is the only one.
            settings = structs.replace(settings, workspace_access="rw")
        scope = settings.scope if settings.mode != "auto" else "agent"
        key = scope_key(
            scope, agent=context.agent, session=context.session, workspace=context.workspace
        )
        return SandboxPaths(settings, context, key, self.choice.backend or "host")

    @functools.cached_property
    def sandbox(self) -> Sandbox:
        """The sandbox. Raises `SandboxUnavailableError` if there is none."""
        backend, reason = self.choice.backend, self.choice.reason
        if backend == "plugin" and self._context.provide is not None:
            return self._context.provide(self.paths)
        if backend == "bwrap" or backend == "landlock":
            return LocalSandbox(backend, self.paths, reason)
        if backend == "ssh":
            from clawkit.sandbox.ssh import SshSandbox

            return SshSandbox(self.paths, reason)
        if backend == "docker" or backend == "podman":
            from clawkit.sandbox.container import ContainerSandbox

            return ContainerSandbox(backend, self.paths, reason)
        raise SandboxUnavailableError(self.problem or f"there is no sandbox: {reason}")

    def workspace(self) -> str:
        """The directory on this machine that a sandboxed session works in."""
        self.paths.get_ready()
        mounts, workdir = self.sandbox.mounts, self.sandbox.workdir
        return next(mount.source for mount in mounts if mount.target == workdir)

    @property
    def project(self) -> str:
        """The path of the workspace inside if it is read-only; otherwise empty."""
        if self.choice.backend is None or self.paths.access != "ro":
            return ""
        return next(mount.target for mount in self.sandbox.mounts if not mount.writable)

    def locate(self, path: str) -> str:
        """Translate a path inside the sandbox to this machine; others are returned unchanged."""
        if self.choice.backend in (None, "bwrap", "landlock"):
            return path
        return to_here(path, self.sandbox.mounts) or path

    def why_not_granted(self, grants: Grants) -> str:
        """Why the sandbox cannot apply these grants; empty if it can."""
        backend, own = self.choice.backend, self.paths.state
        if any(is_below(path, own) for path in (*grants.read, *grants.write)):
            return "commands may not access clawkit's own files"
        if backend == "landlock" and grants.hosts:
            return "this sandbox (landlock) cannot filter by host"
        if backend not in ("bwrap", "landlock") and grants != NO_GRANTS:
            return f"this sandbox ({backend}) cannot grant access to a single command"
        return ""

    def in_sandbox(self, grants: Grants) -> Confined:
        sandbox = self.sandbox
        if self._pruning is None:
            self._pruning = asyncio.get_running_loop().create_task(self._prune())
        if isinstance(sandbox, LocalSandbox):
            return "sandbox", sandbox.confine(grants), self.paths.variables
        return "sandbox", None, {}

    def by_entry(self, grants: Grants) -> Confined:
        """For a command that an allowlist entry allows: the sandbox of this machine, widened by the
        grants. If the sandbox is on another machine or off, Landlock confines the command on the
        host."""
        sandbox = self.sandbox if self.choice.backend in ("bwrap", "landlock") else None
        if sandbox is None and not can_confine():
            return "gateway", None, {}
        variables = self.paths.variables
        if grants.write:
            # It uses its usual caches.
            variables = {name: variables[name] for name in _TEMPORARY}
        if grants.sockets and (agent := os.environ.get(_SSH_AGENT)):
            variables[_SSH_AGENT] = agent
            grants |= Grants(read=(agent,))
        if isinstance(sandbox, LocalSandbox):
            return "sandbox", sandbox.confine(grants), variables
        return "gateway", self.paths.confine(grants), variables

    async def _prune(self) -> None:
        settings = self.settings.prune
        idle_s, age_s = settings.idle_hours * 3600, settings.max_age_days * 86_400
        try:
            if (idle_s or age_s) and await in_thread(self._is_pruning_due):
                await prune(self.sandbox, idle_s=idle_s, age_s=age_s)
        except (ToolError, OSError) as error:
            # Commands must not fail because of it, and the next round tries again.
            log.debug("unused sandboxes were not removed: %s", error)

    def _is_pruning_due(self) -> bool:
        folder = os.path.join(self._context.state, "sandboxes")
        stamp = os.path.join(folder, f".pruned-{self.sandbox.backend}")
        with suppress(OSError):
            if abs(time.time() - os.stat(stamp).st_mtime) < EVERY_S:
                return False
        private_dir(folder)
        write_atomic(stamp, b"")
        return True

    async def close(self) -> None:
        pruning = self._pruning
        if pruning is not None and pruning.get_loop() is asyncio.get_running_loop():
            await asyncio.wait({pruning}, timeout=_PRUNING_S)
            pruning.cancel()
        if "sandbox" in self.__dict__:
            await self.sandbox.close()
        elif "paths" in self.__dict__:
            self.paths.remove()


def can_confine() -> bool:
    """Whether the kernel can confine commands on the host."""
    return landlock.available() and seccomp.available()


def why_unusable(settings: SandboxSettings, choice: BackendChoice) -> str:
    """Why commands cannot run at all, because the configured sandbox is not available; empty if it
    is, or none is required."""
    if choice.backend or (settings.mode == "auto" and settings.backend == "auto"):
        return ""
    key = "mode" if settings.backend == "auto" else "backend"
    how = f"Fix that, or set agents.defaults.sandbox.{key} to 'auto', or the mode to 'off'"
    return f"the configured sandbox cannot be used: {choice.reason}. {how}"


def choose(settings: SandboxSettings, *, workspace: str, state: str) -> BackendChoice:
    """Choose the backend. Blocks: the first time on a machine, bwrap is probed."""
    named = settings.backend
    if named in _ELSEWHERE:
        return BackendChoice(None, f"the backend {named!r} is not supported; use auto")
    if named in ("docker", "podman"):
        from clawkit.sandbox.engine import why_not

        if why := why_not(named):
            return BackendChoice(None, why)
    if settings.access() == "rw" and _SYSTEM_DIRS.fullmatch(os.path.realpath(workspace)):
        why = f"the workspace is {workspace!r}, where commands could change the system"
        return BackendChoice(None, why)
    problems: list[str] = []
    if named in ("auto", "bwrap"):
        if not (why := why_no_bwrap(state, workspace)):
            best = "it is the strongest one available here"
            return BackendChoice("bwrap", _NAMED if named == "bwrap" else best)
        problems.append(f"bwrap: {why}")
    if named in ("auto", "landlock"):
        if not (why := why_no_landlock(settings, workspace)):
            return BackendChoice("landlock", problems[0] if problems else _NAMED)
        problems.append(f"landlock: {why}")
    return BackendChoice(None if problems else named, "; ".join(problems) or _NAMED)


def why_no_landlock(settings: SandboxSettings, workspace: str) -> str:
    """Why Landlock cannot be used; empty if it can."""
    if not landlock.available():
        return "this kernel has no Landlock"
    if not seccomp.available():
        return "the system calls of this architecture are unknown"
    if settings.network == "allowlist":
        return "it cannot filter by host, and sandbox.network is 'allowlist'"
    if settings.access() == "rw" and own_code((workspace,)):
        why = "clawkit itself is installed in the workspace, where commands could change it"
        return f"{why}; install clawkit elsewhere, or bubblewrap"
    return ""


def why_no_bwrap(state: str, workspace: str = "") -> str:
    """Why bwrap cannot be used, for a workspace if one is given; empty if it can. Cached in
    `state`, unless that is empty, until bwrap or the kernel change."""
    if why := _recall_probe(state):
        return why
    with suppress(OSError):
        if workspace and os.geteuid() == 0 and os.stat(workspace).st_uid != 0:
            # Root in a user namespace cannot access files of other users.
            return "clawkit runs as root, and the workspace belongs to another user"
    return ""


def _recall_probe(state: str) -> str:
    program = find_bwrap()
    if not program or not state:
        return probe_bwrap()
    info = os.stat(program)
    key = [program, info.st_mtime_ns, info.st_size, os.uname().release, os.geteuid()]
    for name in _NAMESPACE_SETTINGS.split():
        with suppress(OSError), open(f"/proc/sys/{name}", encoding="ascii") as setting:
            key.append(setting.read(32).strip())
    file = os.path.join(state, "cache", "bwrap.json")
    with suppress(OSError, ValueError, TypeError, LookupError), open(file, "rb") as known:
        found = json.loads(known.read(1 << 16))
        if found["key"] == key:
            return str(found["why"])
    why = probe_bwrap()
    with suppress(OSError):
        private_dir(os.path.dirname(file))
        write_atomic(file, json.dumps({"key": key, "why": why}).encode())
    return why
