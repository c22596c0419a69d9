"""Sandboxes of this machine's kernel: Landlock and bubblewrap, and the hosts of their commands."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from clawkit.core.tasks import in_thread
from clawkit.errors import ToolError
from clawkit.fs.protocols import FileSystem
from clawkit.net.host_rules import Rules, make_rules
from clawkit.process import landlock
from clawkit.process.landlock import Hold
from clawkit.process.local_host import LocalHost, LocalRunning
from clawkit.process.protocols import NO_GRANTS, ExecHost, Grants, Launch
from clawkit.process.spawn_client import SERVER, Server, SpawnClient, start_server
from clawkit.sandbox import bwrap
from clawkit.sandbox.paths import CREATED, REVERTED, SandboxPaths, sweep
from clawkit.sandbox.protected_files import ProtectedPaths
from clawkit.sandbox.protocols import Instance
from clawkit.text import printable

if TYPE_CHECKING:
    from clawkit.net.filter_proxy import FilterProxy

Backend = Literal["bwrap", "landlock"]
_START_S = 60.0  # seconds for a start on a busy machine
_ATTEMPTS = 3
_MAX_SERVERS = 4  # concurrent sandboxes; usually one, and one more for each kind of grant
WHILE_RUNNING = "protected files can be changed while a command runs; that is reverted at its end"
DENIED_READABLE = "files that tools.rules denies to the file tools can be read by commands"
Stamp = tuple[tuple[int, int] | None, ...]  # identities of the files that a hold hides or keeps


class LocalSandbox:
    """One sandbox of this machine's kernel. Paths inside are those of the machine."""

    def __init__(self, backend: Backend, paths: SandboxPaths, reason: str = "") -> None:
        self.backend: Backend = backend
        self.paths, self._reason = paths, reason
        self.name, self.workdir, self.mounts = paths.name, paths.workdir, paths.mounts
        self._host: LocalHost | None = None

    async def prepare(self) -> None:
        self.paths.get_ready()

    @functools.cached_property
    def _protected(self) -> ProtectedPaths:
        """The protected files at the start. Repositories that commands create later are not
        protected; the results report them."""
        return self.paths.guard.find(prevented=self.backend == "bwrap")

    def confine(self, grants: Grants = NO_GRANTS) -> Hold:
        protected = self._protected.files if self.backend == "bwrap" else None
        return self.paths.confine(grants, protected=protected)

    def host(self) -> ExecHost:
        if self._host is None:
            self.paths.get_ready()
            is_bwrap = self.backend == "bwrap"
            pins = self._protected.pins if is_bwrap else ()
            self._host = BwrapHost(self.paths, pins) if is_bwrap else SandboxHost(self.paths)
        return self._host

    def files(self) -> FileSystem:
        return self.paths.context.files(self.mounts)

    def describe(self) -> Mapping[str, Any]:
        hold = self.confine()
        return {
            **self.paths.describe(self, self._reason),
            "writable": list(hold.write),
            "hidden": list(hold.hide),
            "readOnly": list(hold.keep),
            "network": self.paths.settings.network,
            "limits": {"memory": hold.max_memory, "file": hold.max_file},
            "gaps": self._gaps(),
        }

    def _gaps(self) -> list[str]:
        gaps = []
        if self.backend == "landlock":
            gaps = [
                WHILE_RUNNING,
                "modes, owners and times of files outside the workspace can be changed",
                "programs outside can be seen in /proc by name",
                "a directory that holds a secret path cannot be listed or added to",
                DENIED_READABLE,
            ]
            if landlock.abi() < 6:
                gaps.append("this kernel lets commands send signals to programs outside")
            if landlock.abi() < 3:
                gaps.append("this kernel lets commands truncate files outside the workspace")
        if not self._protected.complete:
            gaps.append("the workspace is too large to look for every repository in it")
        return gaps

    async def list(self) -> Sequence[Instance]:
        found: Sequence[Instance] = await in_thread(list_local, self.paths.state)
        return found

    async def remove(self, name: str) -> None:
        await in_thread(remove_local, self.paths.state, name)

    async def close(self) -> None:
        if self._host is not None:
            await self._host.close()
        await in_thread(self.paths.remove)


def list_local(state: str) -> Sequence[Instance]:
    """The sandboxes of local backends, by their caches and private workspaces. Blocks."""
    found = []
    with suppress(OSError), os.scandir(os.path.join(state, "sandboxes")) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and entry.name != REVERTED:
                used = entry.stat(follow_symlinks=False).st_mtime
                running = bool(sweep(entry.path))
                created, backend = 0.0, ""
                with suppress(OSError), open(os.path.join(entry.path, CREATED), "rb") as file:
                    created = os.fstat(file.fileno()).st_mtime
                    backend = printable(file.read(32).decode("ascii", "replace"), "")
                name = entry.name
                found.append(Instance(name, backend or "local", name, created, used, running))
    return found


def remove_local(state: str, name: str) -> None:
    """Remove a sandbox of a local backend. Blocks. Raises `ToolError` if it is unknown or in
    use."""
    root = os.path.join(state, "sandboxes", os.path.basename(name))
    if os.path.basename(name) in ("", ".", "..", REVERTED) or not os.path.isdir(root):
        raise ToolError(f"unknown sandbox {name!r}; see `clawkit sandbox list`")
    if sweep(root):
        raise ToolError(f"the sandbox {name!r} is in use; stop its sessions first")
    shutil.rmtree(root, ignore_errors=True)


class SandboxHost(LocalHost):
    """Runs the commands of one sandbox: with Landlock, started by the spawn server on the host.
    Other backends override that."""

    name = "sandbox"

    def __init__(self, paths: SandboxPaths) -> None:
        self._paths = paths
        context, guard = paths.context, paths.guard if paths.access == "rw" else None
        super().__init__(context.spool_dir, max_processes=context.max_processes, guard=guard)

    async def _client_for(self, launch: Launch) -> SpawnClient:
        if launch.hold is None:
            raise ToolError("a command without confinement cannot run in the sandbox")
        if launch.hold.hosts is not None:
            why = "this sandbox (landlock) cannot filter by host; use elevated: true to ask for"
            raise ToolError(f"{why} the whole network, or install bubblewrap")
        return self._own_client()


class BwrapHost(SandboxHost):
    """Runs commands in bubblewrap: one sandbox per hold, each with its own spawn server."""

    def __init__(self, paths: SandboxPaths, pins: Sequence[str]) -> None:
        """`pins` are directories that commands cannot rename."""
        super().__init__(paths)
        self._pins = pins
        self._servers: dict[tuple[Hold, Stamp], SpawnClient] = {}
        self._proxies: dict[SpawnClient, tuple[FilterProxy, int]] = {}
        self._denied: list[str] = []  # messages about hosts that the proxies refused
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = asyncio.Lock()

    def prepare(self) -> None:
        """Nothing: the server of a hold is started with its first command, and the one on the host
        only for detached commands."""

    async def start(self, launch: Launch, id_: str) -> LocalRunning:
        running = await super().start(launch, id_)
        if launch.hold is not None and launch.hold.hosts is not None:
            first, guard = len(self._denied), running.after
            running.after = lambda: (
                *(guard() if guard is not None else ()),
                *dict.fromkeys(self._denied[first:]),
            )
        return running

    async def _client_for(self, launch: Launch) -> SpawnClient:
        if launch.hold is None:
            return await super()._client_for(launch)
        if not launch.detach:
            return await self.start_server(launch.hold)
        # A detached command needs a parent that survives: the server on the host, with Landlock.
        if not landlock.available():
            raise ToolError("detach needs Landlock, which this kernel does not have")
        return self._own_client()

    async def _run(
        self, client: SpawnClient, launch: Launch, id_: str, streams: Sequence[int], **how: str
    ) -> LocalRunning:
        if (served := self._proxies.get(client)) is not None:
            from clawkit.net.filter_proxy import proxy_env

            launch = launch._replace(env={**launch.env, **proxy_env(served[1])})
        return await super()._run(client, launch, id_, streams, **how)

    async def start_server(self, hold: Hold) -> SpawnClient:
        """The spawn server of a hold, started if needed."""
        # The mounts of an existing server do not cover a file that was replaced since.
        stamp = tuple(map(_identify, (*hold.hide, *hold.keep)))
        here, key = asyncio.get_running_loop(), (hold, stamp)
        if self._loop is not here:
            servers, self._servers = self._servers, {}
            self._loop, self._starting = here, asyncio.Lock()
            for other in servers.values():
                await self._end(other)
        client = self._servers.get(key)
        if client is None or not client.is_open:
            async with self._starting:  # other calls may want the same one
                client = self._servers.get(key)
                if client is not None and not client.is_open:
                    await self._end(self._servers.pop(key))
                    client = None
                client = client or await self._start_confined(hold)
                self._servers[key] = client
        # Least recently used first.
        self._servers[key] = self._servers.pop(key, client)
        for unused in list(self._servers)[:-_MAX_SERVERS]:
            if not self._servers[unused].is_busy:
                await self._end(self._servers.pop(unused))
        return client

    async def _start_confined(self, hold: Hold) -> SpawnClient:
        """Start a server. No command runs before all mounts are verified."""
        paths = self._paths
        for _ in range(_ATTEMPTS):
            mounts = bwrap.plan_mounts(hold, tmp=paths.tmp, empty=paths.empty, pins=self._pins)
            client = SpawnClient(_launch(hold, mounts))
            try:
                answers: set[asyncio.Future[Any]] = {client.mounts, client.closed}
                await asyncio.wait(answers, timeout=_START_S, return_when=asyncio.FIRST_COMPLETED)
                if client.mounts.done():
                    inside = client.mounts.result()
                    if place := bwrap.find_misplaced(mounts, inside, bwrap.read_mountinfo()):
                        why = f"{place!r} was replaced while it was mounted, by a running command"
                        raise ToolError(f"the sandbox was not used: {why}")
                    if hold.hosts is not None:
                        await self._serve(client, make_rules(hold.hosts, hold.private))
                    return client
                if not client.closed.done():
                    raise ToolError("the sandbox could not be started: bwrap does not answer")
            except BaseException:
                await client.close()
                raise
            # bwrap failed: a source of a mount may have been removed in the meantime.
        raise ToolError("the sandbox could not be started: bwrap failed; try again")

    async def _serve(self, client: SpawnClient, rules: Rules) -> None:
        """Serve the filtering proxy, the only way out of the sandbox."""
        from clawkit.net.filter_proxy import FilterProxy

        def note_denied(host: str, port: int, reason: str) -> None:
            self._denied.append(
                f"The sandbox refused the host {host} (port {port}): {reason}. To ask the person "
                f'for it, send the command again with access: {{"hosts": ["{host}"]}}.'
            )

        proxy = FilterProxy(rules, ask=self._paths.context.ask_host, on_denied=note_denied)
        try:
            listener, port = await asyncio.wait_for(asyncio.shield(client.proxy), _START_S)
        except TimeoutError:
            raise ToolError("the sandbox's network cannot be filtered; try again") from None
        proxy.serve(listener)
        self._proxies[client] = proxy, port

    async def _end(self, client: SpawnClient) -> None:
        if (served := self._proxies.pop(client, None)) is not None:
            await served[0].close()
        if client.loop is asyncio.get_running_loop():
            await client.close()
        else:
            client.drop()

    async def _close_clients(self) -> None:
        if self._loop is asyncio.get_running_loop():
            async with self._starting:  # a server that is being started would be left behind
                pass
        servers, self._servers = self._servers, {}
        for client in servers.values():
            await self._end(client)
        with suppress(OSError):
            await super()._close_clients()


def _identify(path: str) -> tuple[int, int] | None:
    with suppress(OSError):
        info = os.stat(path)
        return info.st_dev, info.st_ino
    return None


def _launch(hold: Hold, mounts: Sequence[bwrap.Mounted]) -> Server:
    options = {
        "internet": hold.network,
        "unix": hold.sockets,
        "max_memory": hold.max_memory,
        "max_file": hold.max_file,
        "proxy": hold.hosts is not None,
        "mounts": True,
    }
    # There may be many mounts, and the length of a command line is limited.
    handle = os.memfd_create("bwrap", os.MFD_CLOEXEC)
    try:
        arguments = map(os.fsencode, bwrap.make_options(hold, mounts))
        os.write(handle, b"\0".join(arguments) + b"\0")
        os.lseek(handle, 0, os.SEEK_SET)
        server = (os.path.realpath(sys.executable), *SERVER, json.dumps(options))
        argv = (bwrap.find_bwrap(), "--args", str(handle), "--", *server)
        return start_server(argv, pass_fds=(handle,))
    finally:
        os.close(handle)
