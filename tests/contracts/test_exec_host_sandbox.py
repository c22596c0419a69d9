"""Commands in the sandboxes of this machine's kernel keep the contract, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contracts.exec_host import ExecHostContract, Ground
from tests.sandbox.local_ground import SandboxGround


class TestLandlockHost(ExecHostContract):
    @pytest.fixture
    def ground(self, tmp_path: Path) -> Ground:
        return SandboxGround(tmp_path, "landlock")


class TestBwrapHost(ExecHostContract):
    @pytest.fixture
    def ground(self, tmp_path: Path) -> Ground:
        return SandboxGround(tmp_path, "bwrap")
