"""The docker or podman program: calling it, what its errors mean, and building an image with it."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from clawkit.core.tasks import in_thread
from clawkit.sandbox.container_settings import KEY, EngineName, check_image
from clawkit.sandbox.protocols import SandboxUnavailableError
from clawkit.text import printable

CALL_S = 120.0
STANDARD_IMAGE = "clawkit-sandbox:bookworm-slim"
SUITE = "bookworm"
PACKAGES = """bash ca-certificates coreutils curl file findutils git grep jq less make procps
    python3 ripgrep sed tar tree unzip xz-utils zip"""
"""Of the standard image; the same as in the Dockerfile beside this file."""
_MAX_OUT, _MAX_SAID = 16 << 20, 64 << 10
"""Of what it writes, and of its errors."""
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:/snap/bin:/run/current-system/sw/bin"
_OWN_NAMES = ("HOME", "USER", "LOGNAME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
_OWN_STARTS = ("DOCKER_", "CONTAINER_", "CONTAINERS_", "PODMAN_")
_LEAVE = "or set agents.defaults.sandbox.backend to 'auto'"
_CHANGES = ("ENV LANG=C.UTF-8", "WORKDIR /workspace", 'CMD ["sleep", "infinity"]')
_UNUSED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man")
_BUILD_S, _STEP = 1_800.0, "I: "
_MIRROR = "CLAWKIT_DEBIAN_MIRROR"


def why_not(name: str) -> str:
    """Why an engine cannot be used; empty when it is installed."""
    if shutil.which(name, path=_PATH):
        return ""
    package = "docker.io" if name == "docker" else "podman catatonit"
    return f"{name} is not installed; install it (Debian: apt-get install {package}), {_LEAVE}"


class Done(NamedTuple):
    """How a call of the program went."""

    code: int
    out: str
    said: str
    """The end of its errors."""


class Engine:
    """Starts the program, with nothing of clawkit's environment but what it needs."""

    def __init__(self, name: EngineName, program: str = "") -> None:
        """Left out, the program is looked for, though never where a command could have made it."""
        self.name: EngineName = name
        self._program = program

    @property
    def program(self) -> str:
        """Raises `SandboxUnavailableError` when there is none."""
        self._program = self._program or shutil.which(self.name, path=_PATH) or ""
        if not self._program:
            raise SandboxUnavailableError(why_not(self.name))
        return self._program

    async def start(self, *arguments: str) -> Process:
        """The program, with pipes. Raises `SandboxUnavailableError`."""
        env = {
            name: value
            for name, value in os.environ.items()
            if name in _OWN_NAMES or name.startswith(_OWN_STARTS)
        }
        if (host := env.get("DOCKER_HOST", "")).startswith(("ssh:", "tcp:", "http:", "https:")):
            raise SandboxUnavailableError(
                f"DOCKER_HOST is {host!r}, but the engine must be on this machine; unset it, "
                f"{_LEAVE}"
            )
        try:
            return await asyncio.create_subprocess_exec(
                *(self.program, *arguments),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env={**env, "PATH": _PATH, "LC_ALL": "C"},
                start_new_session=True,
                limit=1 << 20,
            )
        except OSError as error:
            raise SandboxUnavailableError(
                f"{self.program} cannot be started: {error.strerror}"
            ) from None

    async def call(self, *arguments: str, timeout_s: float = CALL_S) -> Done:
        """Run it to its end. Raises `SandboxUnavailableError` when that takes too long."""
        process = await self.start(*arguments)
        try:
            async with asyncio.timeout(timeout_s):
                return await finish(process)
        except TimeoutError:
            raise SandboxUnavailableError(
                f"`{self.name} {arguments[0]}` did not end within {timeout_s:g} s; see whether "
                f"`{self.name} info` answers, {_LEAVE}"
            ) from None
        finally:
            await end(process)

    async def demand(self, *arguments: str, image: str = "", timeout_s: float = CALL_S) -> str:
        """What it writes. Raises `SandboxUnavailableError` when it fails."""
        done = await self.call(*arguments, timeout_s=timeout_s)
        if done.code:
            raise self.explain(done.said or done.out, image)
        return done.out

    def explain(self, said: str, image: str = "") -> SandboxUnavailableError:
        """What its words mean, and what to do."""
        low = said.lower()
        last = printable(said.strip().removesuffix("Run 'docker run --help' for more information"))
        last = last.strip()[-400:]
        if "permission denied" in low and ("sock" in low or "connect" in low):
            text = (
                f"{self.name} may not be used by this user; add it to the group docker, or use "
                f"podman, {_LEAVE}"
            )
        elif "cannot connect to" in low or "daemon running" in low or "connection refused" in low:
            text = f"the {self.name} daemon cannot be reached; start it, {_LEAVE}"
        elif image and ("no such image" in low or "image not known" in low or "resolve" in low):
            make = f"build or pull it, or change {KEY}.image"
            if image == STANDARD_IMAGE:
                make = "build it with `clawkit sandbox build`"
            return SandboxUnavailableError(f"the image {image!r} does not exist; {make}")
        elif "container-init binary not found" in low:
            text = "podman needs catatonit; install it (Debian: apt-get install catatonit)"
        else:
            return SandboxUnavailableError(f"{self.name} failed: {last}")
        return SandboxUnavailableError(f"{text} ({last})")


async def finish(process: Process) -> Done:
    """Until it has ended; the end of what it wrote, however much that was."""
    if process.stdin is not None:
        process.stdin.close()
    out, said = await asyncio.gather(
        read_tail(process.stdout, _MAX_OUT), read_tail(process.stderr, _MAX_SAID)
    )
    return Done(await process.wait(), out, said)


async def read_tail(stream: asyncio.StreamReader | None, limit: int) -> str:
    """The last bytes of all that is written, as text."""
    kept = b""
    while stream is not None and (data := await stream.read(1 << 16)):
        kept = (kept + data)[-limit:]
    return kept.decode("utf-8", "replace")


async def end(process: Process) -> None:
    """Kill it unless it has ended, and wait for that."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def build_image(engine: EngineName, image: str, say: Callable[[str], None]) -> None:
    """Make a Debian system with debootstrap, and an image of it; `say` hears how it goes. Raises
    `SandboxUnavailableError`."""
    runs = Engine(engine)
    program = shutil.which("debootstrap", path="/usr/sbin:/usr/bin:/sbin:/bin")
    if os.geteuid() != 0 or program is None:
        raise SandboxUnavailableError(
            "the image is made with debootstrap, as root: install it (Debian: apt-get install "
            "debootstrap) and run this command with sudo; or, where images can be pulled, run "
            f"`{engine} build -t {image} {os.path.join(os.path.dirname(__file__), 'image')}`"
        )
    check_image(image)
    await runs.demand("version")
    folder = await in_thread(tempfile.mkdtemp, prefix="clawkit-image-")
    try:
        root, archive = os.path.join(folder, "root"), os.path.join(folder, "root.tar")
        say(f"installing {len(PACKAGES.split())} packages of Debian {SUITE}")
        packages = f"--include={','.join(PACKAGES.split())}"
        mirror = [os.environ[_MIRROR]] if os.environ.get(_MIRROR) else []
        await _run((program, "--variant=minbase", packages, SUITE, root, *mirror), say)
        say("packing it")
        without = [f"--exclude=./{each}/*" for each in _UNUSED]
        pack = ("tar", "--create", f"--file={archive}", f"--directory={root}", *without, ".")
        await _run(pack, say)
        changes = [f"--change={each}" for each in _CHANGES]
        await runs.demand("import", *changes, archive, image, timeout_s=_BUILD_S)
        say(f"made {image}")
    finally:
        await in_thread(shutil.rmtree, folder, ignore_errors=True)


async def _run(argv: Sequence[str], say: Callable[[str], None]) -> None:
    said: list[str] = []
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, limit=1 << 20
    )
    try:
        async with asyncio.timeout(_BUILD_S):
            while process.stdout and (line := await process.stdout.readline()):
                said = [*said[-10:], printable(line.decode("utf-8", "replace").strip(), "")]
                if said[-1].startswith(_STEP):
                    say(said[-1].removeprefix(_STEP))
            code = await process.wait()
    finally:
        await end(process)
    if code:
        raise SandboxUnavailableError(f"{argv[0]} failed: {' / '.join(said)}")
