"""The commands of this machine keep the contract."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress

import pytest
from tests.contracts.exec_host import ExecHostContract, Ground
from tests.process.watching import alive

from clawkit.process.local_host import LocalHost
from clawkit.process.protocols import ExecHost


class LocalGround:
    """A directory of this machine."""

    shares_pids = True

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._place = factory.mktemp("ground").resolve()
        (self._place / "ws").mkdir()
        self.cwd = str(self._place / "ws")
        self.env = {"PATH": os.environ["PATH"]}

    def open(self) -> ExecHost:
        return LocalHost(str(self._place / "spool"))

    def alive(self, marker: str) -> Sequence[int]:
        return alive(marker)

    def kill(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.asyncio(loop_scope="module")
class TestLocalHost(ExecHostContract):
    rounds = 30

    @pytest.fixture(scope="class")
    @classmethod
    def ground(cls, tmp_path_factory: pytest.TempPathFactory) -> Ground:
        return LocalGround(tmp_path_factory)
