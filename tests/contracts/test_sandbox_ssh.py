"""The ssh sandbox keeps the contract. Its processes are on this machine: so is the server."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contracts.sandbox import Ground, SandboxContract
from tests.sandbox.ssh_ground import open_ssh
from tests.sandbox.sshd import Server, sshd

from clawkit.config.sections.sandbox import Access
from clawkit.sandbox.protocols import Sandbox

__all__ = ["sshd"]


class SshGround(Ground):
    def __init__(self, place: Path, server: Server) -> None:
        super().__init__(place)
        self._place = place
        self._settings = server.settings(place / "root")

    def open(self, access: Access, scope: str = "agent:main") -> Sandbox:
        return open_ssh(self._settings, self._place, access=access, scope=scope)


class TestSsh(SandboxContract):
    @pytest.fixture
    def ground(self, tmp_path: Path, sshd: Server) -> Ground:
        return SshGround(tmp_path.resolve(), sshd)
