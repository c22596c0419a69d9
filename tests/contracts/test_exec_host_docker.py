"""The commands of a container keep the contract."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio
from tests.contracts.exec_host import ExecHostContract, Ground, Hand
from tests.process.watching import alive
from tests.sandbox.dockerd import Box, Engine, dockerd, open_container

from clawkit.process.protocols import ExecHost
from clawkit.sandbox.container import ContainerSandbox

__all__ = ["dockerd"]
pytestmark = pytest.mark.xdist_group("docker")


class ContainerGround:
    """The workspace of a container. Its processes are seen from outside."""

    shares_pids = False

    def __init__(self, sandbox: ContainerSandbox, workspace: Path, env: Mapping[str, str]) -> None:
        self._sandbox, self.workspace = sandbox, workspace
        self.cwd = sandbox.workdir
        self.env = env

    def open(self) -> ExecHost:
        return self._sandbox.host()

    def alive(self, marker: str) -> Sequence[int]:
        return alive(marker)

    def kill(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(
    tmp_path_factory: pytest.TempPathFactory, dockerd: Engine
) -> AsyncIterator[ContainerGround]:
    place = tmp_path_factory.mktemp("container")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", f"unix://{dockerd.socket}")
        sandbox = open_container(place)
        # What the container sets by itself.
        _, said = await Box(sandbox).run("env -0", env={})
        found = dict(each.split("=", 1) for each in said.split("\0") if each)
        own = {name: found[name] for name in ("HOME", "PATH", "LANG", "HOSTNAME")}
        yield ContainerGround(sandbox, place / "ws", own)
        await sandbox.close()


@pytest.mark.asyncio(loop_scope="module")
class TestContainerHost(ExecHostContract):
    """All tests share a container and the program in it, and so an event loop: starting them takes
    longer than most."""

    names_programs = False

    @pytest.fixture
    def ground(self, shared: ContainerGround) -> Ground:
        for file in shared.workspace.iterdir():
            if not file.is_dir():
                file.unlink()
        return shared

    @pytest_asyncio.fixture(loop_scope="module")
    async def hand(self, ground: Ground) -> AsyncIterator[Hand]:
        yield Hand(ground.open(), ground)

    @pytest.mark.skip(reason="a container ends its commands when clawkit ends")
    async def test_a_detached_command_lives_on(self) -> None:  # type: ignore[override]
        pass

    @pytest.mark.skip(reason="a container ends its commands when clawkit ends")
    async def test_a_detached_command_is_like_others_while_its_host_is_there(  # type: ignore[override]
        self,
    ) -> None:
        pass
