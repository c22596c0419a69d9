"""bubblewrap: namespaces of its own, with the machine's files mounted as a hold says."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from clawkit.errors import ToolError
from clawkit.fs.roots import is_below
from clawkit.process import seccomp
from clawkit.process.landlock import Hold, available
from clawkit.process.local_host import MAX_PROCESSES, LocalHost, LocalRunning, ProtectionGuard
from clawkit.process.protocols import Launch
from clawkit.process.spawn_client import SERVER, Server, SpawnClient, start_server

if TYPE_CHECKING:
    from clawkit.net.filter_proxy import FilterProxy

AskHost = Callable[[str, int], Awaitable[bool]]
Stamp = tuple[tuple[int, int] | None, ...]
_PROBE_S, _START_S = 10.0, 60.0
"""Seconds for the trial, and for a start on a machine that is busy."""
_ATTEMPTS = 3
_MAX_SERVERS = 4
"""Sandboxes at once; mostly there is one, and one more for each kind of grant."""
_NAMESPACES = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts")
_ESCAPE = re.compile(r"\\([0-7]{3})")
_KERNEL_SETTINGS = ("/proc/sys", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/sysrq-trigger")
"""What root could change there, for the whole machine."""
_SHARED_TMP = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  # replaced by private ones


def find_bwrap() -> str:
    """Its absolute path; empty when there is none. Never one that a command could have made."""
    return (
        shutil.which("bwrap", path="/usr/bin:/bin:/usr/local/bin:/run/current-system/sw/bin") or ""
    )


def why_not() -> str:
    """Why bubblewrap cannot be used here; empty when it can. Starts it once; blocks."""
    if not seccomp.available():
        return "the system calls of this machine are not known"
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
    return f"bwrap cannot make namespaces here: {said[:200]}" if done.returncode else ""


class Mounted(NamedTuple):
    """Sorted, parents come before what is in them; at one place the later one wins."""

    target: str
    order: int
    options: tuple[str, ...]


def plan_mounts(hold: Hold, *, tmp: str, empty: str, pins: Sequence[str] = ()) -> list[Mounted]:
    """What is mounted to confine a program to a hold. `tmp` is the directory that becomes its
    temporary one, `empty` a file that stands for hidden ones, and `pins` are directories that it
    cannot rename. What does not exist is left out."""
    return sorted((*_cover(hold, tmp, empty), *_uncover(hold), *_pin(hold, pins)))


def _covered(hold: Hold) -> list[str]:
    """What is hidden and not granted itself, links resolved."""
    granted = {os.path.realpath(path) for path in (*hold.read, *hold.run, *hold.write)}
    hidden = dict.fromkeys(map(os.path.realpath, hold.hide))
    return [path for path in hidden if path not in granted and path not in ("/dev", "/run")]


def _cover(hold: Hold, tmp: str, empty: str) -> Iterator[Mounted]:
    yield Mounted("/proc", 0, ("--proc", "/proc"))
    for path in _KERNEL_SETTINGS if os.geteuid() == 0 else ():
        if os.path.exists(path):
            yield Mounted(path, 0, ("--ro-bind", path, path))
    yield Mounted("/dev", 0, ("--dev", "/dev"))
    yield Mounted("/run", 0, ("--tmpfs", "/run"))
    for target in ("/tmp", "/var/tmp"):  # noqa: S108  # replaced by a private one
        if os.path.isdir(target) and not os.path.islink(target):
            yield Mounted(target, 0, ("--bind", tmp, target))
    for real in _covered(hold):
        if os.path.isdir(real):
            yield Mounted(real, 1, ("--tmpfs", real))
        elif os.path.exists(real):
            yield Mounted(real, 1, ("--ro-bind", empty, real))


def _uncover(hold: Hold) -> Iterator[Mounted]:
    covered = (*hold.hide, *_SHARED_TMP)
    for path in (*hold.read, *hold.run):
        real = os.path.realpath(path)
        if any(is_below(real, each) for each in covered) and os.path.exists(real):
            yield Mounted(real, 2, ("--ro-bind", real, real))
    for path in hold.write:
        real = os.path.realpath(path)
        if os.path.exists(real):
            yield Mounted(real, 3, ("--bind", real, real))


def _pin(hold: Hold, pins: Sequence[str]) -> Iterator[Mounted]:
    """What is hidden stays hidden, and what cannot be changed anyway needs nothing. A directory
    above something hidden or kept could be renamed, and that with it: so it is pinned as well. What
    is reached by a link was replaced, and is no longer what it was."""
    open_ = [os.path.realpath(path) for path in hold.write]
    hidden = _covered(hold)
    kept = [path for path in hold.keep if os.path.realpath(path) == path]
    above = {up for path in (*hidden, *kept, *pins) for up in _between(path, open_)}
    for path in {*pins, *above, *kept}:
        is_kept = path in kept
        if not os.path.exists(path) or os.path.realpath(path) != path:
            continue
        if _depth(path, open_) > _depth(path, hidden):
            how = "--ro-bind" if is_kept else "--bind"
            yield Mounted(path, 5 if is_kept else 4, (how, path, path))


def _between(path: str, folders: Sequence[str]) -> Iterator[str]:
    """The directories above a path that are in one of the folders, without that one."""
    up = os.path.dirname(path)
    while _depth(up, folders) >= 0 and up not in folders:
        yield up
        up = os.path.dirname(up)


def find_misplaced(mounts: Iterable[Mounted], inside: str, here: str) -> str:
    """A mount that is not where it was to be, or not of what it was to be; empty when there is
    none. While mounts are made, a command that runs elsewhere can make links of directories of the
    workspace, and mounting follows them. `inside` and `here` are what is mounted in the sandbox and
    on this machine, as the kernel says it in mountinfo."""
    found = {(point, root) for point, root, _ in _read_mounts(inside)}
    empty = {point for point, _, kind in _read_mounts(inside) if kind == "tmpfs"}
    places = sorted((point, root) for point, root, _ in _read_mounts(here))
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


def _read_mountinfo() -> str:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _read_mounts(text: str) -> Iterator[tuple[str, str, str]]:
    """Mount point, root in its file system, and kind of each mount."""
    for line in text.splitlines():
        fields = line.split(" ")
        root, point = (_ESCAPE.sub(lambda code: chr(int(code[1], 8)), each) for each in fields[3:5])
        yield point, root, fields[fields.index("-") + 1]


def _depth(path: str, folders: Sequence[str]) -> int:
    """How long the longest of the folders is that a path lies in; -1 for none."""
    return max((len(each) for each in folders if is_below(path, each)), default=-1)


def _stamp(hold: Hold) -> Stamp:
    """Which files are hidden or kept: one that was replaced since is no longer covered."""
    found: list[tuple[int, int] | None] = []
    for path in (*hold.hide, *hold.keep):
        info = None
        with suppress(OSError):
            info = os.stat(path)
        found.append(info and (info.st_dev, info.st_ino))
    return tuple(found)


class BwrapHost(LocalHost):
    """Runs commands in sandboxes, one for each hold; each has a spawn server of its own."""

    name = "sandbox"

    def __init__(
        self,
        spool_dir: str,
        *,
        tmp: str,
        empty: str,
        pins: Sequence[str] = (),
        max_processes: int = MAX_PROCESSES,
        guard: ProtectionGuard | None = None,
        ask_host: AskHost | None = None,
    ) -> None:
        """`ask_host` asks a person about a host that is not allowed."""
        super().__init__(spool_dir, max_processes=max_processes, guard=guard)
        self._ask_host = ask_host
        self._proxies: dict[SpawnClient, tuple[FilterProxy, int]] = {}
        self._denied: list[str] = []
        """What the proxies refused, in words."""
        self._tmp = tmp
        self._empty = empty
        self.pins = tuple(pins)
        self._servers: dict[tuple[Hold, Stamp], SpawnClient] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = asyncio.Lock()

    def prepare(self) -> None:
        """Nothing: the server of a hold is started with its first command, and the one on the host
        only for commands that live on."""

    async def start_server(self, hold: Hold) -> SpawnClient:
        """The spawn server of a hold, which is started when there is none."""
        here, key = asyncio.get_running_loop(), (hold, _stamp(hold))
        if self._loop is not here:
            servers, self._servers = self._servers, {}
            self._loop, self._starting = here, asyncio.Lock()
            for other in servers.values():
                await self._end(other)
        client = self._servers.get(key)
        if client is None or not client.is_open:
            async with self._starting:  # others may want the same one
                client = self._servers.get(key)
                if client is None or not client.is_open:
                    if client is not None:
                        await self._end(self._servers.pop(key))
                    client = self._servers[key] = await self._start_confined(hold)
        # The one that was not used for longest comes first.
        self._servers[key] = self._servers.pop(key, client)
        for unused in list(self._servers)[:-_MAX_SERVERS]:
            if not self._servers[unused].is_busy:
                await self._end(self._servers.pop(unused))
        return client

    async def _start_confined(self, hold: Hold) -> SpawnClient:
        """A new server. No command runs before everything is mounted where it was to be."""
        for _ in range(_ATTEMPTS):
            mounts = plan_mounts(hold, tmp=self._tmp, empty=self._empty, pins=self.pins)
            client = SpawnClient(self._launch(hold, mounts))
            try:
                answers: set[asyncio.Future[Any]] = {client.mounts, client.closed}
                await asyncio.wait(answers, timeout=_START_S, return_when=asyncio.FIRST_COMPLETED)
                if client.mounts.done():
                    inside = client.mounts.result()
                    if place := find_misplaced(mounts, inside, _read_mountinfo()):
                        raise ToolError(
                            f"the sandbox was not used: {place!r} was replaced while it was "
                            "mounted, by a command that is still running"
                        )
                    if hold.hosts is not None:
                        await self._serve(client, hold.hosts, hold.private)
                    return client
                if not client.closed.done():
                    raise ToolError("the sandbox could not be started: bwrap does not answer")
            except BaseException:
                await client.close()
                raise
            # Something that was to be mounted may have been removed meanwhile.
        raise ToolError("the sandbox could not be started: bwrap failed; try again")

    async def _serve(
        self, client: SpawnClient, hosts: Sequence[str], private: Sequence[str]
    ) -> None:
        """Be the only way out of a sandbox."""
        from clawkit.net.filter_proxy import FilterProxy
        from clawkit.net.host_rules import make_rules

        proxy = FilterProxy(
            make_rules(hosts, private), ask=self._ask_host, on_denied=self._note_denied
        )
        try:
            listener, port = await asyncio.wait_for(asyncio.shield(client.proxy), _START_S)
        except TimeoutError:
            raise ToolError("the sandbox's network cannot be filtered; try again") from None
        proxy.serve(listener)
        self._proxies[client] = proxy, port

    def _note_denied(self, host: str, port: int, reason: str) -> None:
        self._denied.append(
            f"The sandbox refused the host {host} (port {port}): {reason}. To ask the person for "
            f'it, send the command again with access: {{"hosts": ["{host}"]}}.'
        )

    async def start(self, launch: Launch, id_: str) -> LocalRunning:
        running = await super().start(launch, id_)
        if launch.hold is not None and launch.hold.hosts is not None:
            first, guard = len(self._denied), running.after
            running.after = lambda: (
                *(guard() if guard is not None else ()),
                *dict.fromkeys(self._denied[first:]),
            )
        return running

    async def _run(
        self, client: SpawnClient, launch: Launch, id_: str, streams: Sequence[int], **how: str
    ) -> LocalRunning:
        if (served := self._proxies.get(client)) is not None:
            from clawkit.net.filter_proxy import proxy_env

            launch = launch._replace(env={**launch.env, **proxy_env(served[1])})
        return await super()._run(client, launch, id_, streams, **how)

    async def _end(self, client: SpawnClient) -> None:
        if (served := self._proxies.pop(client, None)) is not None:
            await served[0].close()
        if client.loop is asyncio.get_running_loop():
            await client.close()
        else:
            client.drop()

    async def _client_for(self, launch: Launch) -> SpawnClient:
        if launch.hold is None:
            raise ToolError("a command without confinement cannot run in the sandbox")
        if not launch.detach:
            return await self.start_server(launch.hold)
        # What lives on needs a parent that does: the server on the host, and Landlock.
        if not available():
            raise ToolError("detach needs Landlock, which this kernel does not have")
        return self._own_client()

    def _launch(self, hold: Hold, mounts: Iterable[Mounted]) -> Server:
        options = {
            "internet": hold.network,
            "unix": hold.sockets,
            "max_memory": hold.max_memory,
            "max_file": hold.max_file,
            "proxy": hold.hosts is not None,
            "mounts": True,
        }
        arguments = [*_NAMESPACES, *(() if hold.network else ("--unshare-net",))]
        arguments += ["--cap-drop", "ALL", "--hostname", "sandbox", "--ro-bind", "/", "/"]
        for mount in mounts:
            arguments += mount.options
        for path in filter(os.path.isdir, _covered(hold)):
            arguments += ["--remount-ro", path]
        arguments += ["--die-with-parent", "--as-pid-1", "--chdir", "/"]
        # There may be many, and their length is limited on a command line.
        handle = os.memfd_create("bwrap", os.MFD_CLOEXEC)
        try:
            os.write(handle, b"\0".join(map(os.fsencode, arguments)) + b"\0")
            os.lseek(handle, 0, os.SEEK_SET)
            python = os.path.realpath(sys.executable)
            server = (python, *SERVER, json.dumps(options))
            argv = (find_bwrap(), "--args", str(handle), "--", *server)
            return start_server(argv, pass_fds=(handle,))
        finally:
            os.close(handle)

    async def _close_clients(self) -> None:
        if self._loop is asyncio.get_running_loop():
            async with self._starting:  # one that is being started would be left behind
                pass
        servers, self._servers = self._servers, {}
        for client in servers.values():
            await self._end(client)
        with suppress(OSError):
            await super()._close_clients()
