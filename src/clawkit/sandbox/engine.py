"""docker and podman: settings, arguments of a container, calls of the CLI, building the image."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import json
import os
import re
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from clawkit.config.sections.sandbox import Docker, Ulimit
from clawkit.core.paths import is_below
from clawkit.process.environ import SYSTEM_PATH, find_program
from clawkit.sandbox.paths import PROGRAM, SandboxPaths, own_code, secret_paths
from clawkit.sandbox.protocols import Mount, SandboxUnavailableError
from clawkit.text import last_words, printable

EngineName = Literal["docker", "podman"]
PACKAGE = PROGRAM[0]
AGENT = "/agent"  # mount point of a read-only workspace
OWN = "/.clawkit"  # directory of clawkit's own files in a container
CODE, LINK = f"{OWN}/code/clawkit", f"{OWN}/link"
KEY = "agents.defaults.sandbox.docker"
PIDS = 1_024  # default limit of processes, against fork bombs
_BLOCKED = """/etc /private/etc /proc /sys /dev /root /boot /run /var/run /var/lib/docker
    /var/lib/containers /var/lib/containerd /var/lib/kubelet"""
_BLOCKED_AT_HOME = ".aws .cargo .config .docker .gnupg .netrc .npm .ssh"
_KERNEL = ("/proc", "/sys", "/dev")
_SYSTEM_DIRS = "/bin /boot /etc /lib /lib32 /lib64 /sbin /usr"
_MAX_NAME, _LONG = 63, 80
_WORD = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
_OPTION = r"[a-z]+(=\w+%?)?"
CALL_S = 120.0
STANDARD_IMAGE = "clawkit-sandbox:bookworm-slim"
SUITE = "bookworm"
PACKAGES = """bash ca-certificates coreutils curl file findutils git grep jq less make procps
    python3 ripgrep sed tar tree unzip xz-utils zip"""
"""Packages of the standard image; the same as in `image/Dockerfile`."""
_MAX_OUT, _MAX_SAID = 16 << 20, 64 << 10  # bytes of stdout and stderr that are kept
_OWN_NAMES = ("HOME", "USER", "LOGNAME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
_OWN_STARTS = ("DOCKER_", "CONTAINER_", "CONTAINERS_", "PODMAN_")
_LEAVE = "or set agents.defaults.sandbox.backend to 'auto'"
_FAULTS = {
    "permission denied.*(sock|connect)|(sock|connect).*permission denied": "this user may not use "
    "{}; add the user to the group docker, or use podman",
    "cannot connect to|daemon running|connection refused": "the {} daemon cannot be reached; start "
    "it",
    "container-init binary not found": "podman needs catatonit; install it (Debian: apt-get "
    "install catatonit)",
}
"""Error messages of engines, and the advice for each."""
_CHANGES = ("ENV LANG=C.UTF-8", "WORKDIR /workspace", 'CMD ["sleep", "infinity"]')
_UNUSED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man")
_BUILD_S, _STEP = 1_800.0, "I: "


class ContainerPlan(NamedTuple):
    """The configuration of a container."""

    workdir: str
    user: str
    network: str
    mounts: tuple[Mount, ...]  # for commands, deepest target last
    arguments: tuple[str, ...]  # of `run`, without name, labels, variables, image and command
    warnings: tuple[str, ...]
    config_hash: str
    mount_hash: str


def make_plan(engine: EngineName, paths: SandboxPaths, *, link: str, user: str) -> ContainerPlan:
    """`link` is the directory of the sockets that servers in the container connect to; `user` is
    the default user of commands. Raises `SandboxUnavailableError` for settings that would open the
    sandbox."""
    settings, folder = paths.settings.docker, os.path.realpath(paths.workdir)
    secrets = secret_paths(paths.context, paths.settings)
    for each in (*_KERNEL, *secrets):
        # Only paths below the workspace matter: the choice of the workspace implies those above.
        if paths.access != "none" and is_below(each, paths.workspace):
            raise SandboxUnavailableError(
                f"the workspace {paths.workspace!r} contains {each!r}, which commands must not "
                "reach; use another one, or set agents.defaults.sandbox.workspaceAccess to 'none'"
            )
    if own_code((folder,)):
        why = "clawkit itself is installed in the workspace, where commands could change it"
        raise SandboxUnavailableError(f"{why}; install it elsewhere")
    taken = (*_SYSTEM_DIRS.split(), AGENT)
    workdir = _check_target("workdir", settings.workdir, "/workspace", *taken)
    mounts = {workdir: Mount(folder, workdir, True)}
    if paths.access == "ro":
        mounts[AGENT] = Mount(paths.workspace, AGENT, False)
    for bind in settings.binds:
        mount = _check_bind(bind, paths, folder, workdir, secrets)
        mounts[mount.target] = mount
    shared = [each for each in paths.shared if ":" not in each]  # the separator in a mount
    mounts.update({each: Mount(each, each, False) for each in (*paths.mountable, *shared)})
    found = tuple(sorted(mounts.values(), key=lambda mount: mount.target.count("/")))
    every = (*found, Mount(PACKAGE, CODE, False), Mount(link, LINK, False))
    mount_hash = _hash([(each, _identify(each.source)) for each in every])
    user = _fit("user", settings.user or user, r"\d+(:\d+)?")
    if engine == "podman" and int(user.partition(":")[0]) == 0:
        raise _refuse("user", "podman containers do not run as root here; set it to uid:gid")
    network = _check_network(settings) or ("bridge" if paths.settings.network == "full" else "none")
    warnings = tuple(_check_env(settings.env))
    arguments = _spell_all(engine, settings, found)
    arguments += (f"--network={network}", f"--user={user}", f"--workdir={workdir}")
    arguments += tuple(f"--volume={_spell_mount(each)}" for each in every)
    env = sorted(settings.env.items())
    config = (engine, settings.image, arguments, env, mount_hash, settings.setup_command)
    return ContainerPlan(
        workdir, user, network, found, arguments, warnings, _hash(config), mount_hash
    )


def make_name(prefix: str, slug: str) -> str:
    """Raises `SandboxUnavailableError` if the result is not a valid container name."""
    return _fit("containerPrefix", f"{prefix}{slug}", rf"(?=.{{1,{_MAX_NAME}}}$){_WORD}")


def check_image(image: str) -> str:
    """Raises `SandboxUnavailableError` if it is not a valid image name."""
    return _fit("image", image, r"[A-Za-z0-9][A-Za-z0-9_./:@-]*")


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]


def _identify(path: str) -> tuple[int, int]:
    # By identity (inode): an existing container does not see a directory that replaced its mount.
    try:
        info = os.stat(path)
    except OSError as error:
        raise SandboxUnavailableError(f"the container needs {path!r}: {error.strerror}") from None
    return info.st_dev, info.st_ino


def _spell_mount(mount: Mount) -> str:
    if ":" in mount.source or "\n" in mount.source:
        why = "cannot be mounted into a container: its path has a colon or a line break"
        raise SandboxUnavailableError(f"{mount.source!r} {why}; use another directory")
    return f"{mount.source}:{mount.target}:{'z' if mount.writable else 'ro,z'}"


def _spell_all(engine: EngineName, settings: Docker, mounts: Sequence[Mount]) -> tuple[str, ...]:
    if settings.cpus is not None and settings.cpus <= 0:
        raise _refuse("cpus", "must be more than 0")
    table: dict[str, Iterable[object]] = {
        "tmpfs": [_check_tmpfs(each, mounts) for each in settings.tmpfs],
        "userns": ["keep-id"] if engine == "podman" and os.geteuid() else [],
        "cap-drop": [_fit("capDrop", each, _WORD) for each in settings.cap_drop],
        "security-opt": ["no-new-privileges", *_check_profiles(settings, mounts)],
        "dns": [_check_address("dns", each) for each in settings.dns],
        "add-host": [_check_host(each) for each in settings.extra_hosts],
        "pids-limit": [settings.pids_limit or PIDS],
        "memory": _check_size("memory", settings.memory),
        "memory-swap": _check_size("memorySwap", settings.memory_swap),
        "cpus": [] if settings.cpus is None else [f"{settings.cpus:g}"],
        "gpus": [settings.gpus] if settings.gpus else [],
        "ulimit": [_check_limit(*each) for each in settings.ulimits.items()],
    }
    start = ("--init", "--read-only") if settings.read_only_root else ("--init",)
    return (*start, *(f"--{flag}={value}" for flag in table for value in table[flag]))


def _check_profiles(settings: Docker, mounts: Sequence[Mount]) -> Iterator[str]:
    seccomp, apparmor = settings.seccomp_profile, settings.apparmor_profile
    for key, value in (("seccompProfile", seccomp), ("apparmorProfile", apparmor)):
        if value is not None and value.strip().lower() in ("unconfined", ""):
            raise _refuse(key, f"{value!r} would leave the sandbox; remove it")
    if seccomp:
        path = os.path.realpath(os.path.expanduser(seccomp))
        if not os.path.isfile(path):
            raise _refuse("seccompProfile", f"{seccomp!r} is not a file")
        if any(mount.writable and is_below(path, mount.source) for mount in mounts):
            raise _refuse("seccompProfile", "commands could change it; keep it elsewhere")
        yield f"seccomp={path}"
    if apparmor:
        yield f"apparmor={_fit('apparmorProfile', apparmor, _WORD)}"


def _check_size(key: str, value: str | int | None) -> Sequence[str]:
    return () if value is None else (_fit(key, str(value), r"\d+[bkmgBKMG]?|-1"),)


def _check_limit(name: str, limit: str | int | Ulimit) -> str:
    if isinstance(limit, Ulimit):
        limit = ":".join(str(each) for each in (limit.soft, limit.hard) if each is not None)
    return _fit("ulimits", f"{name}={limit}", rf"{_WORD}=(-1|\d+)(:(-1|\d+))?")


def _check_host(text: str) -> str:
    host, _, address = text.partition(":")
    if address != "host-gateway":
        _check_address("extraHosts", address)
    return f"{_fit('extraHosts', host, _WORD)}:{address}"


def _check_address(key: str, text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise _refuse(key, f"{text!r} is not an address") from None


def _check_target(key: str, path: str, example: str, *taken: str) -> str:
    plain = _plain(path)
    if plain in ("", "/") or any(is_below(plain, each) for each in (*_KERNEL, OWN, *taken)):
        raise _refuse(key, f"{path!r} cannot be used; use an absolute path like {example}")
    return plain


def _check_tmpfs(option: str, mounts: Sequence[Mount]) -> str:
    path, _, options = option.partition(":")
    plain = _check_target("tmpfs", path, "/tmp", *(mount.target for mount in mounts))  # noqa: S108
    return f"{plain}:{_fit('tmpfs', options, f'{_OPTION}(,{_OPTION})*')}" if options else plain


def _check_network(settings: Docker) -> str:
    """The name of the network; empty for none."""
    named = settings.network.strip()
    if named == "none":
        return ""
    joins = named.startswith("container:") and settings.dangerously_allow_container_namespace_join
    plain = named.removeprefix("container:") if joins else named
    if named == "host" or re.fullmatch(_WORD, plain) is None:
        raise _refuse("network", f"{named!r} would leave the sandbox; use none or a bridge network")
    return named


def _check_env(env: Mapping[str, str]) -> Iterator[str]:
    """Warnings about variables; raises for invalid ones."""
    for name, value in env.items():
        _fit("env", name, r"[A-Za-z_][A-Za-z0-9_]*")
        if re.search(r"[\0\r\n]", value):
            raise _refuse(f"env.{name}", "cannot have a NUL character or a line break")
        if re.fullmatch(rf"[A-Za-z0-9+/_-]{{{_LONG},}}={{0,2}}", value):
            yield f"the variable {name} looks like a key; every command can read it"


def _check_bind(
    bind: str, paths: SandboxPaths, folder: str, workdir: str, secrets: Sequence[str]
) -> Mount:
    settings, roots = paths.settings.docker, (paths.workspace, folder)
    source, _, rest = bind.partition(":")
    target, _, options = rest.partition(":")
    plain, inside, words = _plain(os.path.expanduser(source)), _plain(target), options.split(",")
    if not (plain and inside and {"", "ro", "rw", "z", "Z"}.issuperset(words)):
        raise _refuse("binds", f"{bind!r} must be /source:/target or /source:/target:ro")
    real = os.path.realpath(plain)
    for path in (plain, real):
        if near := _find_blocked(path, roots, paths.context.homes, secrets):
            raise _refuse("binds", f"{source!r} would show {near!r} to commands; remove it")
    is_near = any(is_below(real, root) for root in roots)
    if not (is_near or settings.dangerously_allow_external_bind_sources):
        flag = f"{KEY}.dangerouslyAllowExternalBindSources"
        raise _refuse("binds", f"{source!r} is outside the workspace; remove it, or set {flag}")
    _check_target("binds", inside, "/data", "/run/podman-init")
    is_reserved = any(is_below(inside, each) for each in (workdir, "/workspace", AGENT))
    if is_reserved and not settings.dangerously_allow_reserved_container_targets:
        flag = f"{KEY}.dangerouslyAllowReservedContainerTargets"
        raise _refuse(
            "binds", f"{inside!r} is reserved for the workspace; change it, or set {flag}"
        )
    if not os.path.exists(real):
        raise _refuse("binds", f"{source!r} does not exist")
    if "ro" not in words and own_code((real,)):
        raise _refuse("binds", f"{source!r} contains clawkit itself; add :ro")
    return Mount(real, inside, "ro" not in words)


def _find_blocked(
    path: str, roots: Sequence[str], homes: Sequence[str], secrets: Sequence[str]
) -> str:
    """A blocked path that is above, at or below `path`; empty if there is none."""
    at_home = [f"{home}/{name}" for home in homes for name in _BLOCKED_AT_HOME.split()]
    every = (*_BLOCKED.split(), *at_home, *secrets)
    for each in sorted({*every, *map(os.path.realpath, every)}):
        # The workspace itself may be below a blocked path.
        is_given = any(is_below(path, root) and is_below(root, each) for root in roots)
        if is_below(each, path) or (is_below(path, each) and not is_given):
            return each
    return ""


def _plain(path: str) -> str:
    """A normalized absolute path; empty if it is not absolute or contains `..`."""
    if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
        return ""
    return "/" + os.path.normpath(path).lstrip("/")


def _fit(key: str, text: str, form: str) -> str:
    if re.fullmatch(form, text, re.ASCII) is None:
        raise _refuse(key, f"{text!r} is invalid")
    return text


def _refuse(key: str, words: str) -> SandboxUnavailableError:
    return SandboxUnavailableError(f"{KEY}.{key}: {words}")


def why_not(name: str) -> str:
    """Why an engine cannot be used; empty if it is installed."""
    if find_program(name):
        return ""
    package = "docker.io" if name == "docker" else "podman catatonit"
    return f"{name} is not installed; install it (Debian: apt-get install {package}), {_LEAVE}"


class EngineResult(NamedTuple):
    """The result of a call of the CLI."""

    code: int
    out: str
    stderr: str  # the end of stderr


class Engine:
    """Runs the CLI of docker or podman, with a minimal environment."""

    def __init__(self, name: EngineName, program: str = "") -> None:
        """Without `program`, uses one from a system directory, never one that a command
        installed."""
        self.name: EngineName = name
        self._program = program

    async def start(self, *arguments: str) -> Process:
        """Start the CLI, with pipes. Raises `SandboxUnavailableError`."""
        program = self._program or find_program(self.name)
        if program is None:
            raise SandboxUnavailableError(why_not(self.name))
        names = [each for each in os.environ if each in _OWN_NAMES or each.startswith(_OWN_STARTS)]
        env = {name: os.environ[name] for name in names}
        if (host := env.get("DOCKER_HOST", "")).startswith(("ssh:", "tcp:", "http:", "https:")):
            why = f"DOCKER_HOST is {host!r}, but the engine must be on this machine"
            raise SandboxUnavailableError(f"{why}; unset it, {_LEAVE}")
        try:
            return await start_program((program, *arguments), {**env, "PATH": SYSTEM_PATH})
        except OSError as error:
            why = f"{program} cannot be started: {error.strerror}"
            raise SandboxUnavailableError(why) from None

    async def call(self, *arguments: str, timeout_s: float = CALL_S) -> EngineResult:
        """Run the CLI to its end. Raises `SandboxUnavailableError` on a timeout."""
        process = await self.start(*arguments)
        try:
            async with asyncio.timeout(timeout_s):
                return await finish(process)
        except TimeoutError:
            why = f"`{self.name} {arguments[0]}` did not finish within {timeout_s:g} s"
            hint = f"check whether `{self.name} info` answers, {_LEAVE}"
            raise SandboxUnavailableError(f"{why}; {hint}") from None
        finally:
            await end(process)

    async def demand(self, *arguments: str, image: str = "", timeout_s: float = CALL_S) -> str:
        """Run the CLI; returns its output. Raises `SandboxUnavailableError` if it fails."""
        done = await self.call(*arguments, timeout_s=timeout_s)
        if done.code:
            raise self.explain(done.stderr or done.out, image)
        return done.out

    async def try_on(self, container: str, *arguments: str) -> str:
        """Run the CLI for a container; returns its output, empty if there is no such container."""
        done = await self.call(*arguments, container)
        if done.code and "no such" not in done.stderr.lower():
            raise self.explain(done.stderr)
        return "" if done.code else done.out

    def explain(self, stderr: str, image: str = "") -> SandboxUnavailableError:
        hint = "Run 'docker run --help' for more information"
        last = printable(stderr.strip().removesuffix(hint))
        last = last_words(last.strip(), 400)
        for words, meaning in _FAULTS.items():
            if re.search(words, stderr, re.IGNORECASE | re.DOTALL):
                return SandboxUnavailableError(f"{meaning.format(self.name)}, {_LEAVE} ({last})")
        if image and re.search("no such image|image not known|resolve", stderr, re.IGNORECASE):
            make = f"build or pull it, or change {KEY}.image"
            if image == STANDARD_IMAGE:
                make = "build it with `clawkit sandbox build`"
            return SandboxUnavailableError(f"the image {image!r} does not exist; {make}")
        return SandboxUnavailableError(f"{self.name} failed: {last}")


async def start_program(argv: Sequence[str], env: Mapping[str, str]) -> Process:
    """Start a program with pipes, and in the C locale: its error messages are parsed."""
    how: Any = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE, "limit": 1 << 20}
    env = {**env, "LC_ALL": "C"}
    return await asyncio.create_subprocess_exec(*argv, **how, env=env, start_new_session=True)


async def finish(process: Process) -> EngineResult:
    """Wait for the end; returns the exit code and the end of its output."""
    if process.stdin is not None:
        process.stdin.close()
    tails = read_tail(process.stdout, _MAX_OUT), read_tail(process.stderr, _MAX_SAID)
    out, said = await asyncio.gather(*tails)
    return EngineResult(await process.wait(), out, said)


async def read_tail(stream: asyncio.StreamReader | None, limit: int) -> str:
    """Read to the end; returns the last `limit` bytes as text."""
    kept = b""
    while stream is not None and (data := await stream.read(1 << 16)):
        kept = (kept + data)[-limit:]
    return kept.decode("utf-8", "replace")


async def end(process: Process) -> None:
    """Kill it unless it has ended, and wait for the end."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def build_image(engine: EngineName, image: str, say: Callable[[str], None]) -> None:
    """Build an image with debootstrap; `say` gets progress. Raises `SandboxUnavailableError`."""
    runs = Engine(engine)
    program = find_program("debootstrap")
    if os.geteuid() != 0 or program is None:
        raise SandboxUnavailableError(
            "building the image needs debootstrap and root: install it (Debian: apt-get install "
            "debootstrap) and run this command with sudo; or, if images can be pulled, run "
            f"`{engine} build -t {image} {os.path.join(os.path.dirname(__file__), 'image')}`"
        )
    check_image(image)
    await runs.demand("version")
    with tempfile.TemporaryDirectory(prefix="clawkit-image-", ignore_cleanup_errors=True) as folder:
        root, archive = os.path.join(folder, "root"), os.path.join(folder, "root.tar")
        say(f"installing {len(PACKAGES.split())} packages of Debian {SUITE}")
        packages = f"--include={','.join(PACKAGES.split())}"
        await _run((program, "--variant=minbase", packages, SUITE, root), say)
        say("packing the image")
        without = [f"--exclude=./{each}/*" for each in _UNUSED]
        pack = ("tar", "--create", f"--file={archive}", f"--directory={root}", *without, ".")
        await _run(pack, say)
        changes = [f"--change={each}" for each in _CHANGES]
        await runs.demand("import", *changes, archive, image, timeout_s=_BUILD_S)
        say(f"built {image}")


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
