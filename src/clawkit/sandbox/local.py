"""Sandboxes of this machine's kernel (Landlock and bubblewrap), and the hosts of their commands."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from clawkit.core.paths import is_below
from clawkit.core.tasks import in_thread
from clawkit.errors import ToolError
from clawkit.fs.protocols import FileSystem
from clawkit.process import landlock, seccomp
from clawkit.process.landlock import Hold
from clawkit.process.local_host import LocalHost, LocalRunning
from clawkit.process.process_table import read_mountinfo
from clawkit.process.protocols import NO_GRANTS, ExecHost, Grants, Launch
from clawkit.process.spawn_client import ServerProcess, SpawnClient, server_args, start_server
from clawkit.sandbox.paths import CREATED, REVERTED, SandboxPaths, sweep
from clawkit.sandbox.protected_files import ProtectedPaths
from clawkit.sandbox.protocols import Instance
from clawkit.sandbox.tree_removal import remove_tree
from clawkit.text import printable

if TYPE_CHECKING:
    from clawkit.net.filter_proxy import FilterProxy

Backend = Literal["bwrap", "landlock"]
_START_S = 60.0  # seconds for a start on a busy machine
_ATTEMPTS = 3
_MAX_SERVERS = 4  # concurrent sandboxes; usually one, and one more for each kind of grant
WHILE_RUNNING = "protected files can be changed while a command runs; that is reverted when it ends"
DENIED_READABLE = "files that tools.rules denies to the file tools can be read by commands"
_PROBE_S = 10.0
_NAMESPACES = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts")
_ESCAPE = re.compile(r"\\([0-7]{3})")
_KERNEL_SETTINGS = ("/proc/sys", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/sysrq-trigger")
"""Kernel settings that root could change for the whole machine."""
_SHARED_TMP = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  # replaced by private ones
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
                "a directory that contains a secret path cannot be listed or added to",
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
    """Remove a local sandbox. Blocks. Raises `ToolError` if it is unknown or in use."""
    root = os.path.join(state, "sandboxes", os.path.basename(name))
    if os.path.basename(name) in ("", ".", "..", REVERTED) or not os.path.isdir(root):
        raise ToolError(f"unknown sandbox {name!r}; see `clawkit sandbox list`")
    if sweep(root):
        raise ToolError(f"the sandbox {name!r} is in use; stop its sessions first")
    remove_tree(root)


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
        """No-op: the server of a hold is started with its first command, and the one on the host
        only for detached commands."""

    async def start(self, launch: Launch, id_: str) -> LocalRunning:
        first = len(self._denied)  # a command can be refused a host before it counts as started
        running = await super().start(launch, id_)
        if launch.hold is not None and launch.hold.hosts is not None:
            guard = running.after
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
        # The mounts of an existing server do not cover a file that was replaced in the meantime.
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
            mounts = plan_mounts(hold, tmp=paths.tmp, empty=paths.empty, pins=self._pins)
            client = SpawnClient(_launch(hold, mounts))
            try:
                answers: set[asyncio.Future[Any]] = {client.mounts, client.closed}
                await asyncio.wait(answers, timeout=_START_S, return_when=asyncio.FIRST_COMPLETED)
                if client.mounts.done():
                    inside = client.mounts.result()
                    if place := find_misplaced(mounts, inside, read_mountinfo()):
                        why = f"{place!r} was replaced while it was mounted, by a running command"
                        raise ToolError(f"the sandbox was not used: {why}")
                    if hold.hosts is not None:
                        await self._serve(client, hold)
                    return client
                if not client.closed.done():
                    raise ToolError("the sandbox could not be started: bwrap does not answer")
            except BaseException:
                await client.close()
                raise
            # bwrap failed: a source of a mount may have been removed in the meantime.
        raise ToolError("the sandbox could not be started: bwrap failed; try again")

    async def _serve(self, client: SpawnClient, hold: Hold) -> None:
        """Serve the filtering proxy, the only way out of the sandbox."""
        from clawkit.net.filter_proxy import FilterProxy
        from clawkit.net.host_rules import make_rules

        def note_denied(host: str, port: int, reason: str) -> None:
            self._denied.append(
                f"The sandbox refused the host {host} (port {port}): {reason}. To ask the person "
                f'for it, send the command again with access: {{"hosts": ["{host}"]}}.'
            )

        rules = make_rules(hold.hosts or (), hold.private)
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
        await client.close()

    async def _close_clients(self) -> None:
        if self._loop is asyncio.get_running_loop():
            async with self._starting:  # do not leave a starting server behind
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


def _launch(hold: Hold, mounts: Sequence[Mounted]) -> ServerProcess:
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
        arguments = map(os.fsencode, make_options(hold, mounts))
        os.write(handle, b"\0".join(arguments) + b"\0")
        os.lseek(handle, 0, os.SEEK_SET)
        server = (os.path.realpath(sys.executable), *server_args(**options))
        argv = (find_bwrap(), "--args", str(handle), "--", *server)
        return start_server(argv, pass_fds=(handle,))
    finally:
        os.close(handle)


def find_bwrap() -> str:
    """The path of bwrap; empty if there is none. Never one that a command installed."""
    folders = ("/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin")
    found = (path for each in folders if os.path.isfile(path := f"{each}/bwrap"))
    return next((path for path in found if os.access(path, os.X_OK)), "")


def probe_bwrap() -> str:
    """Why bubblewrap cannot be used here; empty if it can. Blocks: runs it once."""
    if not seccomp.available():
        return "the system calls of this architecture are unknown"
    program = find_bwrap()
    if not program:
        return "bwrap is not installed (Debian: apt-get install bubblewrap)"
    argv = [program, *_NAMESPACES, "--unshare-net", "--cap-drop", "ALL", "--ro-bind", "/", "/"]
    argv += ["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run", "--", "/bin/true"]
    try:
        done = subprocess.run(
            argv, capture_output=True, timeout=_PROBE_S, env={}, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap does not start: {error}"
    said = done.stderr.decode("utf-8", "replace").strip()
    return f"bwrap cannot create namespaces here: {said[:200]}" if done.returncode else ""


class Mounted(NamedTuple):
    """A mount. When sorted, parents come before children; for one target, the last one wins."""

    target: str
    order: int
    options: tuple[str, ...]


def plan_mounts(hold: Hold, *, tmp: str, empty: str, pins: Sequence[str] = ()) -> list[Mounted]:
    """The mounts that confine a program to a hold. `tmp` is mounted as the temporary directory,
    `empty` in place of hidden files, and `pins` are directories that it cannot rename. Missing
    paths are skipped."""
    mounts = [
        Mounted("/proc", 0, ("--proc", "/proc")),
        Mounted("/dev", 0, ("--dev", "/dev")),
        Mounted("/run", 0, ("--tmpfs", "/run")),
    ]
    for path in filter(os.path.exists, _KERNEL_SETTINGS if os.geteuid() == 0 else ()):
        mounts.append(Mounted(path, 0, ("--ro-bind", path, path)))
    for target in ("/tmp", "/var/tmp"):  # noqa: S108  # replaced by a private one
        if os.path.isdir(target) and not os.path.islink(target):
            mounts.append(Mounted(target, 0, ("--bind", tmp, target)))
    for real in filter(os.path.exists, _covered(hold)):
        hiding = ("--tmpfs", real) if os.path.isdir(real) else ("--ro-bind", empty, real)
        mounts.append(Mounted(real, 1, hiding))
    covered = (*hold.hide, *_SHARED_TMP)
    for real in filter(os.path.exists, map(os.path.realpath, (*hold.read, *hold.run))):
        if any(is_below(real, each) for each in covered):
            mounts.append(Mounted(real, 2, ("--ro-bind", real, real)))
    for real in filter(os.path.exists, map(os.path.realpath, hold.write)):
        mounts.append(Mounted(real, 3, ("--bind", real, real)))
    return sorted((*mounts, *_pin(hold, pins)))


def _covered(hold: Hold) -> list[str]:
    """Hidden paths that are not granted themselves, with links resolved."""
    granted = {os.path.realpath(path) for path in (*hold.read, *hold.run, *hold.write)}
    hidden = dict.fromkeys(map(os.path.realpath, hold.hide))
    return [path for path in hidden if path not in granted and path not in ("/dev", "/run")]


def _pin(hold: Hold, pins: Sequence[str]) -> Iterator[Mounted]:
    """Mounts of pinned and kept paths that are writable and not hidden. Renaming a directory above
    a hidden or kept path would move that away, so such directories are pinned too. A path that
    contains a link was replaced since it was found, and is skipped."""
    open_ = [os.path.realpath(path) for path in hold.write]
    hidden = _covered(hold)
    kept = [path for path in hold.keep if os.path.realpath(path) == path]
    above = {up for path in (*hidden, *kept, *pins) for up in _between(path, open_)}
    for path in {*pins, *above, *kept}:
        is_there = os.path.exists(path) and os.path.realpath(path) == path
        if is_there and _depth(path, open_) > _depth(path, hidden):
            order, how = (5, "--ro-bind") if path in kept else (4, "--bind")
            yield Mounted(path, order, (how, path, path))


def _between(path: str, folders: Sequence[str]) -> Iterator[str]:
    """The directories between a path and the folder that contains it."""
    up = os.path.dirname(path)
    while _depth(up, folders) >= 0 and up not in folders:
        yield up
        up = os.path.dirname(up)


def make_options(hold: Hold, mounts: Iterable[Mounted]) -> list[str]:
    """The options of bwrap, without the program to run."""
    options = [*_NAMESPACES, *(() if hold.network else ("--unshare-net",))]
    options += ["--cap-drop", "ALL", "--hostname", "sandbox", "--ro-bind", "/", "/"]
    for mount in mounts:
        options += mount.options
    for path in filter(os.path.isdir, _covered(hold)):
        options += ["--remount-ro", path]
    return [*options, "--die-with-parent", "--as-pid-1", "--chdir", "/"]


def find_misplaced(mounts: Iterable[Mounted], inside: str, host_mountinfo: str) -> str:
    """A mount with the wrong target or source; empty if all are correct. While bwrap mounts, a
    command in another sandbox can replace directories of the workspace by links, and mounting
    follows links. `inside` and `host_mountinfo` are the kernel's mountinfo of the sandbox and of
    this machine."""
    found = {(point, root) for point, root, _ in _read_mounts(inside)}
    empty = {point for point, _, kind in _read_mounts(inside) if kind == "tmpfs"}
    places = sorted((point, root) for point, root, _ in _read_mounts(host_mountinfo))
    for target, _, (how, source, *_rest) in mounts:
        if how == "--tmpfs" and target not in empty:
            return target
        if how in ("--bind", "--ro-bind"):
            real = os.path.realpath(source)
            around = [each for each in places if is_below(real, each[0])]
            point, root = max(around, key=lambda each: len(each[0]))
            below = real[len(point.rstrip("/")) :]
            if (target, f"{root.rstrip('/')}{below}" or "/") not in found:
                return target
    return ""


def _read_mounts(text: str) -> Iterator[tuple[str, str, str]]:
    """Mount point, root in the file system, and file system type of each mount."""
    # The kernel escapes blanks, tabs and newlines in paths, but no other line ends.
    for line in filter(None, text.split("\n")):
        fields = line.split(" ")
        root, point = (_ESCAPE.sub(lambda code: chr(int(code[1], 8)), each) for each in fields[3:5])
        yield point, root, fields[fields.index("-") + 1]


def _depth(path: str, folders: Sequence[str]) -> int:
    """The length of the deepest folder that contains a path; -1 for none."""
    return max((len(each) for each in folders if is_below(path, each)), default=-1)
