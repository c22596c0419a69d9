"""Sandboxes of this machine's kernel: bwrap and landlock."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from clawkit.core.tasks import in_thread
from clawkit.errors import ToolError
from clawkit.fs.protocols import FileSystem
from clawkit.process import landlock
from clawkit.process.landlock import Hold
from clawkit.process.local_host import LocalHost
from clawkit.process.protocols import NO_GRANTS, ExecHost, Grants, Launch
from clawkit.process.spawn_client import SpawnClient
from clawkit.sandbox.bwrap import BwrapHost
from clawkit.sandbox.paths import CREATED, REVERTED, SandboxPaths, sweep
from clawkit.sandbox.protected_files import ProtectedPaths
from clawkit.sandbox.protocols import Instance, Mount
from clawkit.text import printable

Backend = Literal["bwrap", "landlock"]


class LocalSandbox:
    """One sandbox of this machine's kernel. Its commands find the machine's own paths."""

    def __init__(self, backend: Backend, paths: SandboxPaths, reason: str = "") -> None:
        """`reason` says why this backend was chosen."""
        self.backend: Backend = backend
        self.paths = paths
        self.name = paths.name
        self._reason = reason
        self._host: LocalHost | None = None

    @property
    def workdir(self) -> str:
        return self.paths.workdir

    @property
    def mounts(self) -> Sequence[Mount]:
        return self.paths.mounts

    async def prepare(self) -> None:
        self.paths.get_ready()

    @functools.cached_property
    def _protected(self) -> ProtectedPaths:
        """The protected files that there are at the beginning. Repositories that commands make
        are theirs; their results name them."""
        return self.paths.guard.find(prevented=self.backend == "bwrap")

    def confine(self, grants: Grants = NO_GRANTS) -> Hold:
        """What a command of this sandbox is confined to."""
        protected = self._protected.files if self.backend == "bwrap" else None
        return self.paths.confine(grants, protected=protected)

    def host(self) -> ExecHost:
        if self._host is None:
            paths, context = self.paths, self.paths.context
            paths.get_ready()
            guard = paths.guard if paths.access == "rw" else None
            if self.backend == "bwrap":
                self._host = BwrapHost(
                    context.spool_dir,
                    tmp=paths.tmp,
                    empty=paths.empty,
                    pins=self._protected.pins,
                    max_processes=context.max_processes,
                    guard=guard,
                    ask_host=context.ask_host,
                )
            else:
                self._host = LandlockHost(
                    context.spool_dir, max_processes=context.max_processes, guard=guard
                )
        return self._host

    def files(self) -> FileSystem:
        return self.paths.context.files(self.mounts)

    def describe(self) -> Mapping[str, Any]:
        hold = self.confine()
        return {
            "backend": self.backend,
            "reason": self._reason,
            **self.paths.describe(self.workdir, self.mounts),
            "writable": list(hold.write),
            "hidden": list(hold.hide),
            "readOnly": list(hold.keep),
            "network": self.paths.settings.network,
            "limits": {"memory": hold.max_memory, "file": hold.max_file},
            "gaps": self._gaps(),
        }

    def _gaps(self) -> list[str]:
        """What this backend cannot do, for people."""
        gaps = []
        if self.backend == "landlock":
            gaps = [
                "protected files can be changed while a command runs; that is reverted at its end",
                "modes, owners and times of files outside the workspace can be changed",
                "programs outside can be seen in /proc by name",
                "a directory that holds a secret path cannot be listed or added to",
                "files that tools.rules denies to the file tools can be read by commands",
            ]
            if landlock.abi() < 6:
                gaps.append("this kernel lets commands send signals to programs outside")
            if landlock.abi() < 3:
                gaps.append("this kernel lets commands truncate files outside the workspace")
        if not self._protected.complete:
            gaps.append("the workspace is too large to look for every repository in it")
        return gaps

    async def list(self) -> Sequence[Instance]:
        found: Sequence[Instance] = await in_thread(list_local, self.paths.state)
        return found

    async def remove(self, name: str) -> None:
        await in_thread(remove_local, self.paths.state, name)

    async def close(self) -> None:
        if self._host is not None:
            await self._host.close()
        await in_thread(self.paths.remove)


def list_local(state: str) -> Sequence[Instance]:
    """The sandboxes that local backends keep caches and private workspaces for. Blocks."""
    found = []
    with suppress(OSError), os.scandir(os.path.join(state, "sandboxes")) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and entry.name != REVERTED:
                used = entry.stat(follow_symlinks=False).st_mtime
                running = bool(sweep(entry.path))
                created, backend = 0.0, ""
                with suppress(OSError), open(os.path.join(entry.path, CREATED), "rb") as file:
                    created = os.fstat(file.fileno()).st_mtime
                    backend = printable(file.read(32).decode("ascii", "replace"), "")
                name = entry.name
                found.append(Instance(name, backend or "local", name, created, used, running))
    return found


def remove_local(state: str, name: str) -> None:
    """Remove one of them. Blocks. Raises `ToolError` when it is unknown or in use."""
    root = os.path.join(state, "sandboxes", os.path.basename(name))
    if os.path.basename(name) in ("", ".", "..", REVERTED) or not os.path.isdir(root):
        raise ToolError(f"unknown sandbox {name!r}; see `clawkit sandbox list`")
    if sweep(root):
        raise ToolError(f"the sandbox {name!r} is in use; end its sessions first")
    shutil.rmtree(root, ignore_errors=True)


class LandlockHost(LocalHost):
    """Runs commands under Landlock, each started by the spawn server outside."""

    name = "sandbox"

    async def _client_for(self, launch: Launch) -> SpawnClient:
        if launch.hold is None:
            raise ToolError("a command without confinement cannot run in the sandbox")
        if launch.hold.hosts is not None:
            raise ToolError(
                "this sandbox (landlock) cannot tell hosts apart; use elevated: true to ask for "
                "the whole network, or install bubblewrap"
            )
        return self._own_client()
