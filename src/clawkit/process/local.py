"""Commands on this machine: the `gateway` host."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress

from clawkit.errors import ToolError, ToolInputError
from clawkit.process.base import Launch, NoTerminalError
from clawkit.process.keeping import Child, KeeperLostError, Keeping
from clawkit.process.running import LocalRunning, set_size
from clawkit.process.spool import Spool
from clawkit.process.terminal import TerminalState
from clawkit.store import private_dir

MAX_PROCESSES = 1_000


class LocalHost:
    """Runs commands with bash, without profile and rc files, in sessions of their own."""

    name = "gateway"

    def __init__(self, spool_dir: str, *, max_processes: int = MAX_PROCESSES) -> None:
        self._spool_dir = spool_dir
        self._max_processes = max_processes
        self._keeping: Keeping | None = None
        self._shell = _find_shell()

    @property
    def confines(self) -> bool:
        """Whether the kernel can keep a command to the programs that were named. Where it cannot,
        the command runs all the same."""
        from clawkit.process.landlock import available

        return available()

    def prepare(self) -> None:
        """Start the keeper, if there is none. What is wrong is told when a command is started."""
        with suppress(OSError):
            self._keeper()

    async def start(self, launch: Launch, id_: str) -> LocalRunning:
        for path in launch.programs or ():
            if not os.path.isabs(path):
                raise ToolInputError(f"the program {path!r} must be named by its absolute path")
        try:
            return await self._start(launch, id_)
        except KeeperLostError:
            return await self._start(launch, id_)
        except OSError as error:
            raise ToolError(f"the command could not be started: {error.strerror}") from None

    async def _start(self, launch: Launch, id_: str) -> LocalRunning:
        keeping = self._keeper()
        spool = os.path.join(self._spool_dir, f"{id_}.log")
        fds: list[int] = []
        try:
            fds.append(_open_directory(launch.cwd))
            if launch.detach:
                return await self._start_detached(keeping, launch, id_, spool, fds)
            if launch.size is not None:
                return await self._start_in_terminal(keeping, launch, id_, spool, fds)
            return await self._start_with_pipes(keeping, launch, id_, spool, fds)
        finally:
            for fd in fds:
                os.close(fd)

    async def _start_with_pipes(
        self, keeping: Keeping, launch: Launch, id_: str, spool: str, fds: list[int]
    ) -> LocalRunning:
        """`fds` has its directory, and takes up what is to be closed afterwards."""
        ours, theirs = os.pipe()
        fds += [theirs, ours]
        stdin = -1
        if launch.open_input:
            given, stdin = os.pipe()
            fds += [given, stdin]
        else:
            given = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            fds.append(given)
        child = await self._run(keeping, launch, id_, (fds[0], given, theirs))
        fds[:] = [fd for fd in fds if fd not in (ours, stdin)]
        return LocalRunning(keeping, child, Spool(spool, launch.memory), ours, stdin, None)

    async def close(self) -> None:
        keeping, self._keeping = self._keeping, None
        if keeping is None:
            return
        if keeping.loop is asyncio.get_running_loop():
            await keeping.close()
        else:
            keeping.drop()

    def _keeper(self) -> Keeping:
        keeping, here = self._keeping, asyncio.get_running_loop()
        if keeping is not None and keeping.loop is not here:
            if keeping.loop.is_running():
                raise ToolError("commands run in another event loop already; use that one")
            keeping.drop()
            keeping = None
        if keeping is None or not keeping.is_open:
            keeping = self._keeping = Keeping()
        return keeping

    async def _run(
        self,
        keeping: Keeping,
        launch: Launch,
        id_: str,
        fds: Sequence[int],
        *,
        tty: str = "",
        detached: str = "",
    ) -> Child:
        return await keeping.run(
            id_,
            (*self._shell, "-c", launch.text),
            launch.env,
            fds,
            limit=self._max_processes,
            tty=tty,
            detached=detached,
            timeout_s=launch.timeout_s or 0 if detached else 0,
            programs=launch.programs,
        )

    async def _start_in_terminal(
        self, keeping: Keeping, launch: Launch, id_: str, spool: str, fds: list[int]
    ) -> LocalRunning:
        columns, rows = launch.size or (0, 0)
        try:
            ours, theirs = os.openpty()
        except OSError as error:
            raise NoTerminalError(f"no terminal can be had: {error.strerror}") from None
        fds.append(theirs)
        try:
            set_size(ours, columns, rows)
            child = await self._run(keeping, launch, id_, fds, tty=os.ttyname(theirs))
        except BaseException:
            os.close(ours)
            raise
        terminal = TerminalState(columns, rows)
        return LocalRunning(keeping, child, Spool(spool, launch.memory), ours, ours, terminal)

    async def _start_detached(
        self, keeping: Keeping, launch: Launch, id_: str, spool: str, fds: list[int]
    ) -> LocalRunning:
        private_dir(self._spool_dir)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        fds.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        fds.append(os.open(spool, flags, 0o600))
        end = f"{spool.removesuffix('.log')}.exit"
        try:
            child = await self._run(keeping, launch, id_, fds, detached=end)
        except BaseException:
            for file in (spool, end):
                with suppress(OSError):
                    os.unlink(file)
            raise
        return LocalRunning(keeping, child, Spool.of_file(spool), -1, -1, None)


def _open_directory(path: str) -> int:
    flags = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
    try:
        return os.open(path, flags)
    except (OSError, ValueError) as error:
        words = getattr(error, "strerror", "") or str(error)
        raise ToolInputError(f"the directory {path!r} cannot be used: {words.lower()}") from None


def _find_shell() -> tuple[str, ...]:
    """bash by its own path, never one from a directory that a command could write to."""
    for place in ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"):
        if os.access(place, os.X_OK):
            return (place, "--noprofile", "--norc")
    return ("/bin/sh",)
