"""A real docker engine, with its data, socket and images in a directory of its own."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.lacking import lack
from tests.sandbox.daemons import Daemon

from clawkit.config.sections.sandbox import Docker
from clawkit.config.sections.sandbox import SandboxSettings as Settings
from clawkit.fs.local import LocalFileSystem
from clawkit.process.protocols import Exit, Launch, Running
from clawkit.sandbox.container import ContainerSandbox
from clawkit.sandbox.engine import EngineName
from clawkit.sandbox.paths import SandboxContext, SandboxPaths

PATIENCE_S = 110.0
IMAGE = "clawkit-test:1"
BARE = "clawkit-bare:1"
"""An image without python3."""
_PROGRAMS = """bash cat chmod cp cut date dd df env false find grep head id kill ln ls mkdir mkfifo
    mknod mount mv nproc printf ps readlink rm sed seq setsid sh sleep sort stat stty tail tee test
    timeout touch tr true tty uname unshare wc yes"""
_UNUSED = "test|tests|idlelib|config-.*|lib2to3|tkinter|ensurepip|turtledemo|.*\\.a"
_PYTHON = "/usr/bin/python3"


class Engine(NamedTuple):
    """An engine that runs."""

    socket: Path
    pid: int

    def call(self, *arguments: str, data: bytes | None = None) -> str:
        env = {**os.environ, "DOCKER_HOST": f"unix://{self.socket}"}
        done = subprocess.run(
            ["docker", *arguments], input=data, capture_output=True, env=env, timeout=PATIENCE_S
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()


_engines: list[Engine] = []


def find_dockerd() -> str:
    path = shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    why = "" if path and os.geteuid() == 0 else "dockerd is not installed, or tests are not root"
    if path is None or why:
        lack(why)
    return path


@pytest.fixture(scope="session")
def dockerd() -> Iterator[Engine]:
    """One for all modules that import it. Stopped after the tests, by its process."""
    if _engines:
        yield _engines[0]
        return
    program = find_dockerd()
    folder = Path(tempfile.mkdtemp(prefix="clawkit-docker-"))
    socket = folder / "socket"
    arguments = f"""--iptables=false --ip6tables=false --bridge=none --data-root={folder}/data
        --exec-root={folder}/exec --pidfile={folder}/pid --host=unix://{socket}"""
    process = Daemon([program, *arguments.split()], folder / "log")
    try:
        end = time.monotonic() + PATIENCE_S
        env = {**os.environ, "DOCKER_HOST": f"unix://{socket}"}
        while subprocess.run(["docker", "version"], capture_output=True, env=env).returncode:
            assert process.is_running, (folder / "log").read_text()
            assert time.monotonic() < end, (folder / "log").read_text()
            time.sleep(0.05)
        engine = Engine(socket, process.pid)
        engine.call("import", "-", IMAGE, data=make_root(python=True))
        engine.call("import", "-", BARE, data=make_root(python=False))
        _engines.append(engine)
        yield engine
        if ids := engine.call("ps", "-aq").split():
            engine.call("rm", "-f", *ids)
    finally:
        process.stop(PATIENCE_S)
        shutil.rmtree(folder, ignore_errors=True)


def make_root(*, python: bool) -> bytes:
    """An archive of a small system, made of programs of this machine."""
    files = {path for name in _PROGRAMS.split() if (path := shutil.which(name, path="/usr/bin"))}
    places = {f"/bin/{os.path.basename(file)}": file for file in files}
    folders = ["tmp", "var", "var/tmp", "run", "etc", "proc", "dev", "sys", "bin", "usr/bin"]
    if python:
        files.add(os.path.realpath(_PYTHON))
        places["/usr/bin/python3"] = os.path.realpath(_PYTHON)
        script = "import sysconfig; print(sysconfig.get_path('stdlib'))"
        lib = subprocess.check_output([_PYTHON, "-c", script], text=True).strip()
        for top, names, found in os.walk(lib):
            names[:] = [name for name in names if not re.fullmatch(_UNUSED, name)]
            places |= {f"{top}/{name}": f"{top}/{name}" for name in found}
        files |= {place for place in places if place.endswith(".so")}
    said = subprocess.run(["ldd", *sorted(files)], capture_output=True, text=True).stdout
    places |= {lib: lib for lib in re.findall(r"(/\S+) \(0x", said)}
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for folder in folders:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder.endswith("tmp") else 0o755
            archive.addfile(entry)
        passwd = tarfile.TarInfo("etc/passwd")
        passwd.size, passwd.mode = 0, 0o644
        archive.addfile(passwd)
        for place, file in sorted(places.items()):
            with open(file, "rb") as source:
                entry = archive.gettarinfo(arcname=place.lstrip("/"), fileobj=source)
                entry.type, entry.linkname, entry.uid, entry.gid = tarfile.REGTYPE, "", 0, 0
                entry.size = os.fstat(source.fileno()).st_size
                archive.addfile(entry, source)
    return data.getvalue()


def open_container(
    place: Path,
    *,
    engine: EngineName = "docker",
    scope: str = "agent:main",
    access: str = "rw",
    program: str = "",
    network: str = "none",
    **docker: Any,
) -> ContainerSandbox:
    """A sandbox whose workspace is `ws` in a directory, and its home beside it."""
    workspace, home = place / "ws", place / "home"
    for each in (workspace, home):
        each.mkdir(exist_ok=True)
    settings = Settings(
        mode="all",
        backend=engine,
        network=network,  # type: ignore[arg-type]
        workspace_access=access,  # type: ignore[arg-type]
        docker=Docker(**{"image": IMAGE, **docker}),
    )
    context = SandboxContext(
        workspace=str(workspace),
        state=str(place / "state"),
        homes=(str(home),),
        secrets=(),
        spool_dir=str(place / "commands"),
        max_processes=200,
        files=lambda mounts: LocalFileSystem(
            next(each.source for each in mounts if each.target == "/workspace"),
            read_roots=[each.source for each in mounts],
            journals=str(place / "journals"),
        ),
    )
    paths = SandboxPaths(settings, context, scope, engine)
    return ContainerSandbox(engine, paths, program=program)


class Box:
    """Runs commands in a sandbox, and says what they wrote."""

    def __init__(self, sandbox: ContainerSandbox) -> None:
        self.sandbox = sandbox
        self._count = 0

    async def start(self, text: str, **options: Any) -> Running:
        self._count += 1
        launch = Launch(text, self.sandbox.workdir, {"PATH": os.environ["PATH"]})
        id_ = f"box-{os.getpid():x}-{id(self):x}-{self._count}"
        return await self.sandbox.host().start(launch._replace(**options), id_)

    async def run(self, text: str, **options: Any) -> tuple[Exit, str]:
        running = await self.start(text, **options)
        exit_ = await running.wait()
        return exit_, (await running.output.read(0, 1 << 20)).decode("utf-8", "replace")
