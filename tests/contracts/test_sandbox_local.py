"""The sandboxes of this machine's kernel keep the contract."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import pytest
from tests.contracts.sandbox import Ground, SandboxContract
from tests.sandbox.local_ground import open_sandbox

from clawkit.config.sections.sandbox import Access
from clawkit.config.sections.sandbox import SandboxSettings as Settings
from clawkit.process.protocols import Launch
from clawkit.sandbox.local import Backend, LocalSandbox
from clawkit.sandbox.protocols import Sandbox


class LocalGround(Ground):
    def __init__(self, place: Path, backend: Backend) -> None:
        super().__init__(place)
        self._place = place
        self._backend: Backend = backend

    def open(self, access: Access, scope: str = "agent:main") -> Sandbox:
        return open_sandbox(
            self._backend,
            self.workspace,
            self._place / "state",
            Path(os.environ["HOME"]),
            Settings(workspace_access=access),
            scope=scope,
        )

    def confine(self, sandbox: Sandbox, launch: Launch) -> Launch:
        local = cast("LocalSandbox", sandbox)
        return launch._replace(env={**launch.env, **local.paths.variables}, hold=local.confine())


class TestLandlock(SandboxContract):
    @pytest.fixture
    def ground(self, tmp_path: Path) -> Ground:
        return LocalGround(tmp_path.resolve(), "landlock")


class TestBwrap(SandboxContract):
    @pytest.fixture
    def ground(self, tmp_path: Path) -> Ground:
        return LocalGround(tmp_path.resolve(), "bwrap")
