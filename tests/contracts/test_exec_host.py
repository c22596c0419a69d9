"""The commands of this machine keep the contract."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from tests.contracts.exec_host import ExecHostContract, Ground
from tests.process.watching import alive

from clawkit.process.local_host import LocalHost
from clawkit.process.protocols import ExecHost


class LocalGround:
    """A directory of this machine."""

    shares_pids = True

    def __init__(self, tmp_path: Path) -> None:
        place = tmp_path.resolve() / "ground"
        place.mkdir()
        self.cwd = str(place)
        self.env = {"PATH": os.environ["PATH"]}
        self._spool_dir = str(tmp_path / "spool")

    def open(self) -> ExecHost:
        return LocalHost(self._spool_dir)

    def alive(self, marker: str) -> Sequence[int]:
        return alive(marker)

    def kill(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class TestLocalHost(ExecHostContract):
    rounds = 30

    @pytest.fixture
    def ground(self, tmp_path: Path) -> Ground:
        return LocalGround(tmp_path)
