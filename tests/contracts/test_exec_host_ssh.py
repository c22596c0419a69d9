"""The commands of the ssh sandbox keep the contract."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from tests.contracts.exec_host import ExecHostContract, Ground
from tests.process.watching import alive
from tests.sandbox.ssh_ground import open_ssh
from tests.sandbox.sshd import Server, sshd

from clawkit.process.protocols import ExecHost, Launch
from clawkit.sandbox.ssh import SshSandbox

__all__ = ["sshd"]
_OWN = ("HOME", "PATH", "TMPDIR", "USER", "LOGNAME", "SHELL")


class SshGround:
    """The directory of a sandbox. Its processes are on this machine: the server is on loopback."""

    shares_pids = True

    def __init__(self, sandbox: SshSandbox, env: Mapping[str, str]) -> None:
        self._sandbox = sandbox
        self.cwd = sandbox.workdir
        self.env = env

    def open(self) -> ExecHost:
        return self._sandbox.host()

    def alive(self, marker: str) -> Sequence[int]:
        return alive(marker)

    def kill(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class TestSshHost(ExecHostContract):
    # The other machine answers, and has no pyte.
    cursor = b"<1\\;1>"

    @pytest.fixture
    async def ground(self, tmp_path: Path, sshd: Server) -> AsyncIterator[Ground]:
        sandbox = open_ssh(sshd.settings(tmp_path.resolve() / "root"), tmp_path, access="none")
        await sandbox.prepare()
        # What the other machine sets by itself.
        running = await sandbox.host().start(Launch("env -0", sandbox.workdir, {}), "test-env")
        await running.wait()
        said = running.output.tail(100_000).decode().split("\0")
        found = dict(each.split("=", 1) for each in said if each)
        own = {name: found[name] for name in found if name in _OWN or name.startswith("XDG_")}
        yield SshGround(sandbox, own)
        await sandbox.close()

    @pytest.mark.skip(reason="the ssh sandbox ends its commands when clawkit ends")
    async def test_a_detached_command_lives_on(self) -> None:  # type: ignore[override]
        pass

    @pytest.mark.skip(reason="the ssh sandbox ends its commands when clawkit ends")
    async def test_a_detached_command_is_like_others_while_its_host_is_there(  # type: ignore[override]
        self,
    ) -> None:
        pass
