"""What every sandbox backend offers. One contract suite runs on all of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from clawkit.errors import ToolError
from clawkit.fs.protocols import FileSystem
from clawkit.process.protocols import ExecHost, Launch


class SandboxUnavailableError(ToolError):
    """The sandbox that is configured cannot be used. The message says why and what to do."""


class Mount(NamedTuple):
    """A directory of this machine, and where commands find it; absolute paths."""

    source: str
    target: str
    writable: bool


class Instance(NamedTuple):
    """A sandbox that exists, for `clawkit sandbox list` and pruning."""

    name: str
    backend: str
    scope: str  # the scope key: `shared`, `agent:<id>:workspace:<hex>`, `<session>:workspace:<hex>`
    created: float  # seconds since 1970; 0 when unknown
    used: float
    running: bool  # whether a process of clawkit uses it
    outdated: bool = False  # whether it was made with settings other than those in force


@runtime_checkable
class Sandbox(Protocol):
    """One place where commands run confined, and how the file tools see it."""

    @property
    def backend(self) -> str: ...

    @property
    def name(self) -> str:
        """Its own name among those that `list` finds."""

    @property
    def workdir(self) -> str:
        """The directory that commands start in, as they see it."""

    @property
    def mounts(self) -> Sequence[Mount]:
        """What of this machine can be reached inside, deepest target last."""

    async def prepare(self) -> None:
        """Make sure it can be used. Raises `SandboxUnavailableError`."""

    def host(self) -> ExecHost:
        """Where its commands run. `Launch.cwd` is a path inside; `Launch.hold` widens it where the
        backend can, and is refused with `ToolError` where it cannot."""

    def files(self) -> FileSystem:
        """What the file tools work on; takes paths of this machine and paths inside."""

    def describe(self) -> Mapping[str, Any]:
        """JSON for `clawkit sandbox explain`: how it confines, and what it cannot do."""

    async def list(self) -> Sequence[Instance]:
        """What of this kind exists on the machine."""

    async def remove(self, name: str) -> None:
        """Remove one, with everything in it."""

    async def close(self) -> None:
        """End its commands, and remove what is not to be kept."""


def check_elsewhere(launch: Launch, what: str) -> None:
    """Raises `ToolError` for what only a sandbox of this machine's kernel can do."""
    if launch.detach:
        raise ToolError(f"{what} cannot keep commands running when clawkit exits")
    if launch.hold is not None or launch.programs is not None:
        raise ToolError(f"{what} cannot widen or narrow what one command may do")


async def prune(sandbox: Sandbox, *, idle_s: float, age_s: float) -> list[str]:
    """Remove sandboxes that are unused for so long, or older; 0 means never. Their names. Those in
    use stay, and so does the given one: a command may be about to start in it."""
    now, removed = time.time(), []
    for each in await sandbox.list():
        is_idle = idle_s and now - each.used > idle_s
        is_old = age_s and each.created and now - each.created > age_s
        if (is_idle or is_old) and not each.running and each.name != sandbox.name:
            await sandbox.remove(each.name)
            removed.append(each.name)
    return removed
