"""The ssh sandbox for tests, with the directories that it needs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clawkit.config.sections.sandbox import Access, Ssh
from clawkit.config.sections.sandbox import SandboxSettings as Settings
from clawkit.fs.local import LocalFileSystem
from clawkit.fs.protected_files import Protection
from clawkit.sandbox.paths import SandboxContext, SandboxPaths
from clawkit.sandbox.protocols import Mount
from clawkit.sandbox.ssh import SshSandbox


def open_ssh(
    ssh: Ssh, place: Path, *, access: Access = "rw", scope: str = "agent:main", **others: Any
) -> SshSandbox:
    """A sandbox of the workspace `ws` in a directory, whose state is beside it."""
    state = place / "state"
    protection = others.pop("protection", Protection((os.path.realpath(state),)))

    def files(mounts: Sequence[Mount]) -> LocalFileSystem:
        own = Protection(protection.own, open=(paths.workdir,), home=protection.home)
        read = [mount.source for mount in mounts if not mount.writable]
        return LocalFileSystem(
            paths.workdir, read_roots=read, protection=own, journals=str(state / "journals")
        )

    context = SandboxContext(
        workspace=str(place / "ws"),
        state=str(state),
        homes=(os.environ["HOME"],),
        spool_dir=str(state / "out"),
        files=files,
        protection=protection,
        **{"secrets": (), **others},
    )
    paths = SandboxPaths(Settings(workspace_access=access, ssh=ssh), context, scope, "ssh")
    return SshSandbox(paths)
