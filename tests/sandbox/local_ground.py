"""Sandboxes of this machine's kernel, for tests."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.exec_host import Ground
from tests.contracts.test_exec_host import LocalGround

from clawkit.config.sections.sandbox import SandboxSettings as Settings
from clawkit.fs.local import LocalFileSystem
from clawkit.process.protocols import NO_GRANTS, ExecHost, Exit, Grants, Launch, Running
from clawkit.sandbox.local import Backend, LocalSandbox
from clawkit.sandbox.paths import SandboxContext, SandboxPaths


def open_sandbox(
    backend: Backend,
    workspace: Path,
    state: Path,
    home: Path,
    settings: Settings | None = None,
    scope: str = "agent:main",
) -> LocalSandbox:
    context = SandboxContext(
        workspace=str(workspace),
        state=str(state),
        homes=(str(home),),
        secrets=(),
        spool_dir=str(state / "commands"),
        max_processes=200,
        files=lambda mounts: LocalFileSystem(
            mounts[-1].source,
            read_roots=[mount.source for mount in mounts if not mount.writable],
            journals=str(state / "journals"),
        ),
    )
    return LocalSandbox(backend, SandboxPaths(settings or Settings(), context, scope, backend))


class Box:
    """Runs commands in a sandbox, and says what they wrote."""

    def __init__(self, sandbox: LocalSandbox, workspace: Path) -> None:
        self.sandbox = sandbox
        self.workspace = workspace
        self._count = 0

    async def start(self, text: str, grants: Grants = NO_GRANTS, **options: Any) -> Running:
        self._count += 1
        env = {
            "PATH": os.environ["PATH"],
            "HOME": os.environ["HOME"],
            **self.sandbox.paths.variables,
        }
        launch = Launch(text, str(self.workspace), env, hold=self.sandbox.confine(grants))
        id_ = f"box-{os.getpid():x}-{id(self):x}-{self._count}"
        return await self.sandbox.host().start(launch._replace(**options), id_)

    async def run(self, text: str, grants: Grants = NO_GRANTS, **options: Any) -> tuple[Exit, str]:
        running = await self.start(text, grants, **options)
        exit_ = await running.wait()
        return exit_, (await running.output.read(0, 1 << 20)).decode("utf-8", "replace")


class _Confined:
    """A host whose commands are confined unless they say how."""

    def __init__(self, sandbox: LocalSandbox) -> None:
        self._sandbox = sandbox
        self._host = sandbox.host()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)

    async def start(self, launch: Launch, id_: str) -> Running:
        return await self._host.start(launch._replace(hold=self._sandbox.confine()), id_)


class SandboxGround(LocalGround):
    """A directory of this machine, seen from a sandbox."""

    def __init__(self, factory: pytest.TempPathFactory, backend: Backend) -> None:
        super().__init__(factory)
        self._backend: Backend = backend
        self.shares_pids = backend == "landlock"
        (self._place / "home").mkdir()

    def open(self) -> ExecHost:
        state, home = self._place / "state", self._place / "home"
        host: Any = _Confined(open_sandbox(self._backend, Path(self.cwd), state, home))
        return host  # type: ignore[no-any-return]


__all__: Sequence[str] = ("Box", "Ground", "SandboxGround", "open_sandbox")
