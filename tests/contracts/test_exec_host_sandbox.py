"""Commands in the sandboxes of this machine's kernel keep the contract, too."""

from __future__ import annotations

import pytest
from tests.contracts.exec_host import ExecHostContract, Ground
from tests.sandbox.local_ground import SandboxGround


@pytest.mark.asyncio(loop_scope="module")
class TestLandlockHost(ExecHostContract):
    @pytest.fixture(scope="class")
    @classmethod
    def ground(cls, tmp_path_factory: pytest.TempPathFactory) -> Ground:
        return SandboxGround(tmp_path_factory, "landlock")


@pytest.mark.asyncio(loop_scope="module")
class TestBwrapHost(ExecHostContract):
    @pytest.fixture(scope="class")
    @classmethod
    def ground(cls, tmp_path_factory: pytest.TempPathFactory) -> Ground:
        return SandboxGround(tmp_path_factory, "bwrap")
