"""The interface of sandbox backends. One contract suite runs on all of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from clawkit.errors import ToolError
from clawkit.fs.protocols import FileSystem
from clawkit.process.protocols import ExecHost, Launch


class SandboxUnavailableError(ToolError):
    """The configured sandbox cannot be used. The message says why and what to do."""


class Mount(NamedTuple):
    """A directory of this machine, and its path inside the sandbox; both absolute."""

    source: str
    target: str
    writable: bool


class Instance(NamedTuple):
    """An existing sandbox, for `clawkit sandbox list` and pruning."""

    name: str
    backend: str
    scope: str  # the scope key: `shared`, `agent:<id>:workspace:<hex>`, `<session>:workspace:<hex>`
    created: float  # seconds since 1970; 0 if unknown
    used: float
    running: bool  # whether a clawkit process uses it
    outdated: bool = False  # whether it was created with other settings than the current ones


@runtime_checkable
class Sandbox(Protocol):
    """One place where commands run confined, and its files as the file tools see them."""

    @property
    def backend(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def workdir(self) -> str:
        """The directory that commands start in, as a path inside."""

    @property
    def mounts(self) -> Sequence[Mount]:
        """Directories of this machine that are accessible inside, deepest target last."""

    async def prepare(self) -> None:
        """Make sure it can be used. Raises `SandboxUnavailableError`."""

    def host(self) -> ExecHost:
        """Where its commands run. `Launch.cwd` is a path inside. A backend that cannot apply
        `Launch.hold` to one command refuses it with `ToolError`."""

    def files(self) -> FileSystem:
        """The file system for the file tools; accepts paths of this machine and paths inside."""

    def describe(self) -> Mapping[str, Any]:
        """JSON for `clawkit sandbox explain`: how it confines commands, and its gaps."""

    async def list(self) -> Sequence[Instance]: ...

    async def remove(self, name: str) -> None:
        """Remove a sandbox with everything in it. Raises `ToolError` if it is unknown or in use."""

    async def close(self) -> None:
        """Stop its commands, and remove its temporary files."""


def check_elsewhere(launch: Launch, backend: str) -> None:
    """Raises `ToolError` if a launch needs a sandbox of this machine's kernel."""
    if launch.detach:
        raise ToolError(f"{backend} cannot keep commands running when clawkit exits")
    if launch.hold is not None or launch.programs is not None:
        raise ToolError(f"{backend} cannot change the permissions of a single command")


async def prune(sandbox: Sandbox, *, idle_s: float, age_s: float) -> list[str]:
    """Remove sandboxes that were not used for `idle_s` or are older than `age_s`, 0 for no limit;
    returns their names. Those in use are kept, and so is the given one: a command may be about to
    start in it."""
    now, removed = time.time(), []
    for each in await sandbox.list():
        is_idle = idle_s and now - each.used > idle_s
        is_old = age_s and each.created and now - each.created > age_s
        if (is_idle or is_old) and not each.running and each.name != sandbox.name:
            await sandbox.remove(each.name)
            removed.append(each.name)
    return removed
