"""Containers of docker and podman, and commands in them.

A spawn server in the container starts the commands. It is not trusted: the commands run as the same
user and could control it.
"""

from __future__ import annotations

import asyncio
import functools
import os
import secrets
import socket
import struct
import subprocess
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import msgspec
from msgspec import structs

from clawkit.core.tasks import in_thread
from clawkit.errors import ToolError
from clawkit.process.environ import DEFAULT_PATH
from clawkit.process.local_host import LocalRunning
from clawkit.process.process_table import look
from clawkit.process.protocols import Launch
from clawkit.process.spawn_client import ServerProcess, SpawnClient, server_args
from clawkit.sandbox import engine
from clawkit.sandbox import engine as engines
from clawkit.sandbox.local import DENIED_READABLE, WHILE_RUNNING, SandboxHost
from clawkit.sandbox.paths import (
    MountedFiles,
    SandboxPaths,
    portable,
    process_dir,
    slug_of,
    sweep,
    to_inside,
)
from clawkit.sandbox.protocols import Instance, Mount, SandboxUnavailableError, check_elsewhere
from clawkit.sandbox.tree_removal import remove_tree
from clawkit.store import locked_async, private_dir, write_atomic
from clawkit.text import last_words

_RECENT_S = 300.0
_SETUP_S, _START_S = 900.0, 120.0
_END_POLL_S = 0.005
_OWN_PROCESSES = 2  # in an idle container: init, and the `sleep` that keeps it running
_NEEDS = "it needs python3 3.10 or newer; `clawkit sandbox build` builds the standard image"
_RECREATE = "run `clawkit sandbox recreate`"


# podman accepts the field Id only in exactly this form.
_FIELDS = '["{{.Id}}", {{json .Name}}, {{json .State.Running}}, {{json .Config.Labels}}]'
_INSPECT = ("inspect", "--type=container", f"--format={_FIELDS}")


class ContainerInfo(msgspec.Struct, array_like=True):
    """An existing container, from the engine's `inspect`."""

    id: str
    name: str
    running: bool
    labels: dict[str, str] | None

    def label(self, name: str, default: str = "") -> str:
        return (self.labels or {}).get(f"clawkit.{name}", default)


class ContainerSandbox:
    """One container, created on first use and kept until it is pruned."""

    def __init__(
        self, backend: engine.EngineName, paths: SandboxPaths, reason: str = "", program: str = ""
    ) -> None:
        """`reason` is why this backend was chosen; `program` overrides the path of the engine.
        Raises `SandboxUnavailableError`."""
        self.backend: engine.EngineName = backend
        self._paths, self._reason = paths, reason
        self.settings = paths.settings.docker
        self.engine = engine.Engine(backend, program)
        slug = slug_of(f"{paths.scope}@{paths.state}")
        self.name = engines.make_name(self.settings.container_prefix, slug)
        self.image = engines.check_image(self.settings.image)
        self._state = os.path.join(paths.state, "containers")
        self._root = os.path.join(self._state, self.name)
        self._mark = process_dir(self._root)
        self.link_dir = os.path.join(self._root, "link")  # for the sockets that servers connect to
        self._hint = ""
        self._host = ContainerHost(self, paths)

    @functools.cached_property
    def plan(self) -> engine.ContainerPlan:
        """How the container must be configured. Creates private directories; blocks."""
        paths = self._paths
        if paths.settings.network == "allowlist":
            why = f"{self.backend} cannot filter by host; set agents.defaults.sandbox.network to"
            raise SandboxUnavailableError(f"{why} 'none' or 'full', or use the backend bwrap")
        try:
            paths.get_ready()
            folder, owner = os.path.realpath(paths.workdir), os.stat(paths.workspace)
            if folder != paths.workspace and os.geteuid() == 0:
                os.chown(folder, owner.st_uid, owner.st_gid)
            for path in paths.mountable if os.geteuid() == 0 else ():
                for each in (path, *(entry.path for entry in os.scandir(path))):
                    os.chown(each, owner.st_uid, owner.st_gid, follow_symlinks=False)
            private_dir(self._root)
            os.makedirs(self.link_dir, exist_ok=True)
            # Programs inside can connect to a socket if they know its name, but cannot list names.
            os.chmod(self.link_dir, 0o311)  # noqa: S103
            owner = os.stat(folder)
        except OSError as error:
            why = f"{error.filename!r}: {error.strerror}"
            raise SandboxUnavailableError(f"the sandbox cannot use {why}") from None
        user = f"{owner.st_uid}:{owner.st_gid}"
        return engines.make_plan(self.backend, paths, link=self.link_dir, user=user)

    @property
    def workdir(self) -> str:
        return self.plan.workdir

    @property
    def mounts(self) -> Sequence[Mount]:
        return self.plan.mounts

    async def prepare(self) -> None:
        await self._host.connect()

    def host(self) -> ContainerHost:
        return self._host

    def files(self) -> MountedFiles:
        return MountedFiles(self._paths.context.files(self.mounts), self.mounts)

    def describe(self) -> Mapping[str, Any]:
        access, network = self._paths.access, self.plan.network
        gaps = {
            "commands can fill the disk that the workspace is on": True,
            "commands can fill the memory, unless docker.memory is set": not self.settings.memory,
            WHILE_RUNNING: access == "rw",
            DENIED_READABLE: access != "none",
            "commands can reach every host on their network": network != "none",
        }
        return {
            **self._paths.describe(self, self._reason),
            "container": self.name,
            "image": self.image,
            "user": self.plan.user,
            "network": network,
            "limits": {"memory": self.settings.memory, "cpus": self.settings.cpus},
            "hints": [*self.plan.warnings, *filter(None, [self._hint])],
            "gaps": [gap for gap, is_open in gaps.items() if is_open],
        }

    async def ensure(self) -> None:
        """Create or start the container. Raises `SandboxUnavailableError`."""
        await in_thread(lambda: self.plan)
        async with self._locked():
            was_made = _read(self._path("made"))
            said = await self.engine.try_on(self.name, *_INSPECT) if was_made else ""
            found = _read_found(said)[0] if said else None
            if found is not None and not self._is_kept(found):
                await self._discard(self.name)
                found = None
            if found is None:
                await self._make()
            elif not found.running:
                await self.engine.demand("start", self.name)
            os.makedirs(self._mark, exist_ok=True)
            self.note_use()

    def note_use(self) -> None:
        with suppress(FileNotFoundError):
            os.utime(self._path("used"))

    def _path(self, file: str, name: str = "") -> str:
        return os.path.join(self._state, name or self.name, file)

    def _locked(self) -> AbstractAsyncContextManager[None]:
        """Only one process at a time may create or remove the container. The lock file outlives it,
        so that all processes wait for the same one."""
        return locked_async(f"{self._root}.lock")

    def _is_kept(self, info: ContainerInfo) -> bool:
        """Whether to use it. Raises `SandboxUnavailableError` if it must not be replaced now."""
        self._hint = ""
        if info.id != _read(self._path("made")):
            return False  # its setup was not completed
        if info.label("configHash") == self.plan.config_hash:
            return True
        if time.time() - _time_of(self._path("used")) > _RECENT_S and not self._siblings(self.name):
            return False
        if info.label("mountHash") != self.plan.mount_hash:
            what = f"the mounts of the container {self.name!r} have changed in the settings"
            raise SandboxUnavailableError(f"{what}, and it was used recently; {_RECREATE}")
        self._hint = f"the container was created with other settings; to update it, {_RECREATE}"
        return True

    async def _make(self) -> None:
        labels = {
            "sandbox": 1,
            "scope": self._paths.scope,
            "home": self._paths.state,
            "createdAtMs": int(time.time() * 1000),
            "configHash": self.plan.config_hash,
            "mountHash": self.plan.mount_hash,
        }
        with tempfile.NamedTemporaryFile(dir=self._root, prefix="env-") as file:  # mode 0600
            for name, value in self.settings.env.items():
                file.write(os.fsencode(f"{name}={value}\n"))
            file.flush()
            command = [
                *("run", "--detach", "--pull=never", f"--name={self.name}", "--no-healthcheck"),
                *(f"--label=clawkit.{name}={value}" for name, value in labels.items()),
                *self.plan.arguments,
                *(f"--env-file={file.name}", "--entrypoint=sleep", self.image, "infinity"),
            ]
            done = await self.engine.call(*command)
            if done.code and "already in use" in done.stderr:
                # A killed process left it behind.
                await self._discard(self.name)
                done = await self.engine.call(*command)
        try:
            if done.code:
                raise self.engine.explain(done.stderr, self.image)
            given = self.settings.setup_command or ""
            text = given if isinstance(given, str) else "\n".join(given)
            shell = ("exec", self.name, "/bin/sh", "-lc", text)
            if text and (ran := await self.engine.call(*shell, timeout_s=_SETUP_S)).code:
                said = last_words((ran.stderr or ran.out).strip(), 1_000)
                raise SandboxUnavailableError(
                    f"{engines.KEY}.setupCommand failed with exit code {ran.code}: {said}"
                )
        except BaseException:
            await self._discard(self.name)
            raise
        write_atomic(self._path("used"), b"")
        write_atomic(self._path("made"), done.out.split()[-1].encode())

    def _siblings(self, name: str) -> list[str]:
        running = sweep(os.path.join(self._state, name))
        return [each for each in running if each != os.path.basename(self._mark)]

    async def stop(self) -> None:
        """Kill everything in it. The next command starts it again."""
        with suppress(SandboxUnavailableError):
            await self.engine.call("kill", self.name)

    async def _discard(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(self._path("made", name))
        await self.engine.try_on(name, "rm", "--force", "--volumes")

    async def list(self) -> Sequence[Instance]:
        ours = f"--filter=label=clawkit.home={self._paths.state}"
        ids = await self.engine.demand("ps", "-aq", ours)
        if not ids.split():
            return []
        # Ignore a failure: one container may have been removed in the meantime.
        done = await self.engine.call(*_INSPECT, *ids.split())
        found = []
        for each in _read_found(done.out):
            created, is_own = int(each.label("createdAtMs", "0")) / 1000, each.name == self.name
            used = _time_of(self._path("used", each.name))
            is_used = bool(self._siblings(each.name)) or (is_own and self._host.is_open)
            is_outdated = is_own and each.label("configHash") != self.plan.config_hash
            about = each.name, self.backend, each.label("scope")
            found.append(Instance(*about, created, used, is_used, is_outdated))
        return found

    async def remove(self, name: str) -> None:
        if name not in {each.name for each in await self.list()}:
            raise ToolError(f"unknown sandbox {name!r}; see `clawkit sandbox list`")
        if self._siblings(name):
            raise ToolError(f"the sandbox {name!r} is in use; stop its sessions first")
        if name == self.name:
            await self._host.close()
            self.__dict__.pop("plan", None)
        await self._discard(name)
        with suppress(OSError):
            os.chmod(self._path("link", name), 0o700)
        await in_thread(remove_tree, os.path.join(self._state, name))

    async def close(self) -> None:
        await self._host.close()
        await in_thread(self._paths.remove)
        try:
            os.rmdir(self._mark)
        except FileNotFoundError:  # the container was not used
            return
        with suppress(ToolError):
            async with self._locked():
                done = await self.engine.call("top", self.name)
                left = len(done.out.splitlines()) - 1 - _OWN_PROCESSES
                if left > 0 and not done.code and not self._siblings(self.name):
                    await self.stop()


def _read_found(text: str) -> list[ContainerInfo]:
    try:
        found = [msgspec.json.decode(line, type=ContainerInfo) for line in text.splitlines()]
    except msgspec.MsgspecError:
        raise SandboxUnavailableError("the engine's description of containers is invalid") from None
    return [structs.replace(each, name=each.name.lstrip("/")) for each in found]


def _read(path: str) -> str:
    with suppress(OSError), open(path, encoding="utf-8") as file:
        return file.read(256)
    return ""


def _time_of(path: str) -> float:
    with suppress(OSError):
        return os.stat(path).st_mtime
    return 0.0


class _Hello(msgspec.Struct):
    env: dict[str, str]
    bash: bool


class ContainerHost(SandboxHost):
    """Runs commands in a container, through a spawn server in it that this process started."""

    def __init__(self, sandbox: ContainerSandbox, paths: SandboxPaths) -> None:
        super().__init__(paths)
        self._sandbox = sandbox
        self._env: Mapping[str, str] = {}
        self._starting = asyncio.Lock()
        self._ending: asyncio.Task[None] | None = None
        self._is_closing = False

    @property
    def is_open(self) -> bool:
        return self._client is not None and self._client.is_open

    def _is_guarded(self, launch: Launch) -> bool:
        return True

    def prepare(self) -> None:
        """No-op: a command that may still be refused must not start a container."""

    async def start(self, launch: Launch, id_: str) -> LocalRunning:
        check_elsewhere(launch, "a container")
        sandbox = self._sandbox
        if launch.typed:  # clawkit's version of it may use a program of clawkit
            text = launch.text.replace(f"{engine.PACKAGE}/", f"{engine.CODE}/")
            launch = launch._replace(text=text)
        cwd = to_inside(launch.cwd, sandbox.mounts)
        running = await super().start(launch._replace(cwd=cwd), id_)
        guard = running.after

        def after() -> tuple[str, ...]:
            sandbox.note_use()
            is_lost = running.ended.result().reason == "lost"
            lost = ("The container was stopped while the command ran.",) if is_lost else ()
            return (*lost, *(guard() if guard is not None else ()))

        running.after = after
        return running

    async def _client_for(self, launch: Launch) -> SpawnClient:
        return await self.connect()

    async def _run(
        self, client: SpawnClient, launch: Launch, id_: str, streams: Sequence[int], **how: str
    ) -> LocalRunning:
        env = {**self._env, **portable(launch.env)}
        return await super()._run(client, launch._replace(env=env), id_, streams, **how)

    async def connect(self) -> SpawnClient:
        """The server, started if needed. Raises `SandboxUnavailableError`."""
        client = self._client
        if client is not None and client.loop is not asyncio.get_running_loop():
            client.drop()
            self._client, self._ending, self._starting = None, None, asyncio.Lock()
        elif client is not None and client.is_open:
            return client
        async with self._starting:
            if self._client is None or not self._client.is_open:
                if self._ending is not None:
                    await self._ending
                self._ending, self._is_closing = None, False
                await self._sandbox.ensure()
                self._client = SpawnClient(await self._start_server())
            return self._client

    async def _start_server(self) -> ServerProcess:
        sandbox, name = self._sandbox, secrets.token_hex(16)
        has_network = sandbox.plan.network != "none"
        code = os.path.dirname(engine.CODE)
        program = ("python3", *server_args(code, connect=True, internet=has_network, unix=True))
        folder = os.open(sandbox.link_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        place = f"/proc/self/fd/{folder}/{name}"  # the whole path may be too long
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(place)
                os.chmod(place, 0o666)  # noqa: S103  # its directory is closed to others
                listener.listen(1)
                listener.setblocking(False)
                process = await sandbox.engine.start("exec", "-i", sandbox.name, *program)
                problem = ""
                try:
                    async with asyncio.timeout(_START_S):
                        hello, connection = await _meet(process, listener, f"{engine.LINK}/{name}")
                except TimeoutError:
                    problem = f"the container did not answer within {_START_S:g} s"
                except (ValueError, OSError):
                    problem = f"commands cannot run in the image {sandbox.image!r}: {_NEEDS}"
                finally:
                    await engine.end(process)  # the server inside keeps running
                    said = (await engine.finish(process)).stderr
        finally:
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)
            os.close(folder)
        if problem:
            raise SandboxUnavailableError(
                f"{problem} ({last_words(said.strip(), 300) or 'no output'})"
            )
        own = {"HOME": "/tmp", **sandbox.settings.env}  # noqa: S108  # it belongs to the container
        self._env = {"PATH": DEFAULT_PATH, **hello.env, **own}
        self._shell = ("/bin/bash", "--noprofile", "--norc") if hello.bash else ("/bin/sh",)
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid: int = struct.unpack("3i", raw)[0]  # 0 if it cannot be seen from here
        return ServerProcess(connection, self._on_lost, _make_wait(pid), find=lambda: pid)

    def _on_lost(self) -> None:
        if not self._is_closing and self._ending is None:
            # Its commands may still run; only stopping the container stops all of them.
            self._ending = asyncio.get_running_loop().create_task(self._sandbox.stop())

    async def _settle(self) -> None:
        if self._ending is not None:
            await asyncio.wait({self._ending})

    async def _close_clients(self) -> None:
        self._is_closing = True
        await super()._close_clients()
        if self._ending is not None:
            await self._ending
            self._ending = None


async def _meet(
    process: Process, listener: socket.socket, path: str
) -> tuple[_Hello, socket.socket]:
    """Send a server the path of its socket. Raises ValueError or OSError."""
    if process.stdin is None or process.stdout is None:
        raise ValueError
    process.stdin.write(f"{path}\n".encode())
    hello = msgspec.json.decode(await process.stdout.readline(), type=_Hello)
    connection, _ = await asyncio.get_running_loop().sock_accept(listener)
    return hello, connection


def _make_wait(pid: int) -> Callable[[float], None]:
    """A function that waits for the end of a process, if it can be seen from here."""
    first = look(pid)

    def wait(seconds: float) -> None:
        until = time.monotonic() + seconds
        while first and (now := look(pid)) and now.started == first.started and not now.exited:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("spawn server", seconds)
            time.sleep(_END_POLL_S)

    return wait
