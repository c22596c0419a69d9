"""The paths of one sandbox: names, private directories, mounts, accessible paths, and hidden ones
(secrets, and files that rules deny to the file tools)."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from glob import glob
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from clawkit.config.section import SecretInput
from clawkit.config.sections.sandbox import SandboxSettings
from clawkit.core.paths import is_below
from clawkit.errors import ToolAuthorizationError, ToolError
from clawkit.fs.protected_files import Protection
from clawkit.fs.protocols import Change, Changed, FileSystem, Listing, OpenFile
from clawkit.net.host_rules import PACKAGES
from clawkit.process.landlock import Hold
from clawkit.process.process_table import look
from clawkit.process.protocols import Grants
from clawkit.sandbox.protected_files import ProtectedFiles
from clawkit.sandbox.protocols import Mount, Sandbox, SandboxUnavailableError
from clawkit.sandbox.tree_removal import remove_tree
from clawkit.store import private_dir
from clawkit.word_tables import read_words

if TYPE_CHECKING:
    from clawkit.fs.protocols import Start

AskHost = Callable[[str, int], Awaitable[bool]]
Scope = Literal["session", "agent", "shared"]
REVERTED = "reverted"  # next to the directories of sandboxes: files that were reverted or removed
CREATED = "created"
"""A file with the name of the backend. Its time is that of the creation of the sandbox: directories
only have the time of their last change."""
_MAX_SLUG = 32
_PROCESS = r"run-(\d+)-(\d+)-[0-9a-f]+"
_LOOK_S = 1.0  # seconds for which the list of existing secret paths is cached
_RESOLVER = """/run/systemd/resolve/stub-resolv.conf /run/systemd/resolve/resolv.conf
    /run/resolvconf/resolv.conf /run/NetworkManager/resolv.conf"""
_LOCAL_NAMES = (
    "HOME|PATH|TE?MP(DIR)?|USER|LOGNAME|SHELL|(OLD)?PWD|(WAYLAND_)?DISPLAY|XAUTHORITY|CARGO_HOME|"
    "RUSTUP_HOME|GO(MOD)?CACHE|GOPATH|(PIP|UV)_CACHE_DIR|npm_config_cache|VIRTUAL_ENV|NODE_PATH|"
    "PYTHONPATH|LD_.*|XDG_.*|SSH_.*|DBUS_.*"
)
_PARTS = (os.path.dirname(os.path.dirname(__file__)), sys.prefix, sys.base_prefix)
PROGRAM = tuple(dict.fromkeys(map(os.path.realpath, _PARTS)))
"""clawkit's own code: a command that could change it would run unconfined the next time."""
SECRETS = read_words(__file__, "secret_paths.txt")  # below the home directory, by group
_SYSTEM = SECRETS.pop("system")  # readable only by root; `*` matches any characters
_HOMES = "/home"
MAX_ENTRIES = 200_000  # maximum entries of a workspace
MAX_DEPTH = 128  # below the workspace; resolving a path costs as much as it is deep
_LONG_S = 0.1
_REST = 100
"""After a search longer than `_LONG_S`, only new names are checked, for this multiple of its
duration."""


def scope_key(scope: Scope, *, agent: str, session: str, workspace: str) -> str:
    """The key of the sessions that share a sandbox: all, an agent's in a workspace, or a single
    one."""
    if scope == "shared":
        return "shared"
    place = hashlib.sha256(os.path.realpath(workspace).encode("utf-8", "surrogateescape"))
    about = f"agent:{agent}" if scope == "agent" else session
    return f"{about}:workspace:{place.hexdigest()[:32]}"


def slug_of(key: str) -> str:
    """A stable name for files and containers, derived from a key."""
    plain = re.sub(r"[^a-z0-9]+", "-", key.lower()).strip("-")[:_MAX_SLUG].strip("-")
    digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{plain or 'sandbox'}-{digest}"


def process_dir(root: str) -> str:
    """A directory for this process only. From its name, `sweep` knows whether the process runs."""
    found = look(os.getpid())
    started = found.started if found is not None else 0
    return os.path.join(root, f"run-{os.getpid()}-{started}-{os.urandom(3).hex()}")


def sweep(root: str) -> list[str]:
    """The directories of processes that still run; removes the others."""
    running: list[str] = []
    for name in glob("run-*", root_dir=root):
        own = re.fullmatch(_PROCESS, name)
        found = look(int(own[1])) if own else None
        if own and found is not None and found.started == int(own[2]):
            running.append(name)
        elif own:
            remove_tree(os.path.join(root, name))
    return running


class SandboxContext(Struct, frozen=True):
    """The dependencies of a sandbox besides its settings."""

    workspace: str
    state: str  # clawkit's home
    homes: Sequence[str]
    secrets: Sequence[str]  # clawkit's credentials and tokens
    spool_dir: str
    files: Callable[[Sequence[Mount]], SearchableFiles]  # makes the file system of the file tools
    agent: str = ""
    session: str = ""
    max_processes: int = 1_000
    denied: Callable[[], Sequence[str]] = tuple  # finds files that rules deny to the file tools
    own_files: Sequence[str] = ()  # clawkit's files and directories outside its home
    ask_host: AskHost | None = None  # asks a person about a host that is not allowed
    reveal: Callable[[SecretInput], str] = str  # the value of a secret in the settings
    protection: Protection = Protection()
    provide: Callable[[SandboxPaths], Sandbox] | None = None  # makes the sandbox of a plugin
    session_dirs: Sequence[str] = ()
    """Directories that are readable if they exist, regardless of location; the first exists from
    the start or never."""
    shared: Sequence[str] = ()
    """Further readable directories, made by people; the list may change."""


class SandboxPaths:
    """The paths that the commands of one scope can see and change on this machine."""

    def __init__(
        self, settings: SandboxSettings, context: SandboxContext, scope: str, backend: str = "host"
    ) -> None:
        """`scope` is a `scope_key`; commands with the same one share private directories."""
        self.settings, self.context, self.backend = settings, context, backend
        self.scope, self.name = scope, slug_of(scope)
        self.workspace = os.path.realpath(context.workspace)
        self.state = os.path.realpath(context.state)
        self.access = settings.access()
        start = f"{self.workspace.rstrip('/')}/"
        own = map(os.path.realpath, context.own_files)
        self._own_files = tuple(path for path in own if path.startswith(start))
        root = os.path.expanduser(settings.workspace_root or f"{self.state}/sandboxes")
        private = os.path.join(root, self.name, "workspace")
        self.workdir = self.workspace if self.access == "rw" else private  # where commands start
        self.mounts: Sequence[Mount] = (Mount(self.workdir, self.workdir, True),)
        if self.access == "ro":
            self.mounts = (Mount(self.workspace, self.workspace, False), *self.mounts)
        self._root = os.path.join(self.state, "sandboxes", self.name)
        self._private = process_dir(self._root)
        self.cache = os.path.join(self._root, "cache")
        self.tmp = os.path.join(self._private, "tmp")
        self.empty = os.path.join(self._private, "empty")  # mounted in place of hidden files
        self._secrets: tuple[str, ...] = ()
        self._looked = -_LOOK_S
        self._is_ready = False

    @functools.cached_property
    def guard(self) -> ProtectedFiles:
        """Restores protected files of the workspace that commands change, in any backend."""
        home = self.context.homes[0] if self.context.homes else ""
        aside = os.path.join(self.state, "sandboxes", REVERTED)
        return ProtectedFiles(self.workspace, home=home, aside=aside, own=self._own_files)

    @property
    def mountable(self) -> list[str]:
        """The part of `session_dirs` that a container mounts: mounts cannot be added after its
        creation."""
        return [*filter(os.path.isdir, self.context.session_dirs[:1])]

    @property
    def provided_dirs(self) -> list[str]:
        """Existing directories that clawkit provides for the session to read."""
        return [*filter(os.path.isdir, self.context.session_dirs), *self.shared]

    @property
    def shared(self) -> list[str]:
        """Existing directories that people made for the session to read and run."""
        return [*filter(os.path.isdir, self.context.shared)]

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables for the directories of temporary files and caches."""
        cache = self.cache
        return {
            **dict.fromkeys(("TMPDIR", "TMP", "TEMP"), self.tmp),
            "XDG_CACHE_HOME": cache,
            "PIP_CACHE_DIR": f"{cache}/pip",
            "UV_CACHE_DIR": f"{cache}/uv",
            "npm_config_cache": f"{cache}/npm",
            "YARN_CACHE_FOLDER": f"{cache}/yarn",
            "CARGO_HOME": f"{cache}/cargo",
            "GOCACHE": f"{cache}/go-build",
            "GOMODCACHE": f"{cache}/go-mod",
            "GOFLAGS": "-modcacherw",
        }

    def get_ready(self) -> None:
        """Create the private directories. Raises `SandboxUnavailableError`."""
        if self._is_ready:
            return
        own = [mount.source for mount in self.mounts if mount.source != self.workspace]
        try:
            sweep(self._root)
            for path in (self.tmp, self.cache, *own):
                private_dir(path)
            for file, text in ((self.empty, ""), (os.path.join(self._root, CREATED), self.backend)):
                if not os.path.exists(file):
                    with open(file, "w", encoding="ascii") as made:
                        made.write(text)
        except OSError as error:
            why = f"the sandbox needs private directories in {self._root!r}: {error.strerror}"
            raise SandboxUnavailableError(why) from None
        self._is_ready = True

    def confine(self, grants: Grants, *, protected: tuple[str, ...] | None = None) -> Hold:
        """The hold for a command. `protected` are files to be mounted read-only; None if the
        backend cannot do that. Raises `ToolError` if there are too many files to find all hidden
        ones."""
        self.get_ready()
        settings, now = self.settings, time.monotonic()
        if now - self._looked > _LOOK_S:
            self._secrets = secret_paths(self.context, settings)
            self._looked = now
        readable = [mount.source for mount in self.mounts if not mount.writable]
        readable += (*self.context.homes, *_RESOLVER.split(), *grants.read, *self.provided_dirs)
        writable = [mount.source for mount in self.mounts if mount.writable]
        hidden = (*self._secrets, *((self.workspace,) if self.access == "none" else ()))
        keep: tuple[str, ...] = ()
        if protected is not None:
            # Not for Landlock: it would have to split the directories around them, and then
            # nothing could be created there any more.
            hidden += (*self.context.denied(), *self._own_files)
            keep = (*protected, *own_code(writable))
        extra = (os.path.realpath(os.path.expanduser(path)) for path in settings.write_paths)
        return Hold(
            # A path that is named explicitly is accessible even below a secret path.
            read=tuple(dict.fromkeys(readable)),
            run=("/", *PROGRAM, *self.shared),
            write=tuple(dict.fromkeys((*writable, self.tmp, self.cache, *extra, *grants.write))),
            network=grants.network or settings.network == "full",
            sockets=grants.sockets,
            # Devices, sockets and run-time secrets; backends add those that programs need.
            hide=(*hidden, "/dev", "/run"),
            keep=keep,
            hosts=self._hosts(grants),
            private=tuple(settings.allow_private),
            max_memory=settings.limits.memory_mb << 20,
            max_file=settings.limits.file_mb << 20,
        )

    def _hosts(self, grants: Grants) -> tuple[str, ...] | None:
        """The hosts that the proxy allows; None without a proxy."""
        is_filtered = self.settings.network == "allowlist"
        if grants.network or not (is_filtered or grants.hosts):
            return None
        allowed = self.settings.allow_hosts if is_filtered else ()
        named = dict.fromkeys((*allowed, *grants.hosts))
        preset = PACKAGES if named.pop("packages", True) is None else ()
        return (*named, *preset)

    def describe(self, sandbox: Sandbox, reason: str) -> Mapping[str, Any]:
        """JSON for `clawkit sandbox explain`: the fields common to all backends."""
        return {
            "backend": self.backend,
            "reason": reason,
            "scope": self.scope,
            "workspace": self.workspace,
            "workspaceAccess": self.access,
            "workdir": sandbox.workdir,
            "mounts": [mount._asdict() for mount in sandbox.mounts],
        }

    def remove(self) -> None:
        self._is_ready = False
        remove_tree(self._private)


def to_inside(path: str, mounts: Iterable[Mount]) -> str:
    """Translate a path of this machine into a path inside; others are assumed to be inside."""
    return _translate(path, ((mount.source, mount.target) for mount in mounts)) or path


def to_here(path: str, mounts: Iterable[Mount]) -> str | None:
    """Translate a path inside into a path of this machine, by the deepest mount; None if no mount
    contains it. Relative paths, and mounted paths of this machine, are returned unchanged."""
    every = tuple(mounts)
    if not path.startswith("/") or any(is_below(path, mount.source) for mount in every):
        return path
    return _translate(path, ((mount.target, mount.source) for mount in every))


def _translate(path: str, pairs: Iterable[tuple[str, str]]) -> str | None:
    found = [(len(old), new + path[len(old) :]) for old, new in pairs if is_below(path, old)]
    return max(found)[1] if found else None


def portable(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that are valid in a container and on another machine."""
    return {name: value for name, value in env.items() if not re.fullmatch(_LOCAL_NAMES, name)}


class SearchableFiles(FileSystem, Protocol):
    """Files of this machine that can be searched."""

    @property
    def readable(self) -> tuple[str, ...] | None: ...

    def start(self, path: str) -> Start: ...


class MountedFiles:
    """The files of a sandbox, by their paths here or inside. Only mounted files are accessible."""

    def __init__(self, files: SearchableFiles, mounts: Sequence[Mount]) -> None:
        """`files` must confine every path to the mounts, after resolving links."""
        self._files, self._mounts = files, tuple(mounts)

    def open(self, path: str) -> AbstractAsyncContextManager[OpenFile]:
        return self._files.open(self._to_host(path))

    async def list(self, path: str, **options: Any) -> Listing:
        return await self._files.list(self._to_host(path), **options)

    async def change(
        self, changes: Sequence[Change], *, allowed: frozenset[str] = frozenset()
    ) -> tuple[Changed, ...]:
        moved = [
            replace(
                each, path=self._to_host(each.path), like=each.like and self._to_host(each.like)
            )
            for each in changes
        ]
        return await self._files.change(moved, allowed=allowed)

    @property
    def readable(self) -> tuple[str, ...] | None:
        return self._files.readable

    def start(self, path: str) -> Start:
        return self._files.start(self._to_host(path))

    def _to_host(self, path: str) -> str:
        here = to_here(path, self._mounts)
        if here is None:
            places = ", ".join(mount.target for mount in self._mounts)
            why = f"{path!r} is not in a mounted directory ({places}), so only commands in the"
            raise ToolAuthorizationError(f"{why} sandbox can reach it; use exec", reason="sandbox")
        return here


def own_code(writable: Iterable[str]) -> tuple[str, ...]:
    """The parts of clawkit's own code that are below a writable directory."""
    folders = [os.path.realpath(path) for path in writable]
    return tuple(path for path in PROGRAM if any(is_below(path, each) for each in folders))


def secret_paths(context: SandboxContext, settings: SandboxSettings) -> tuple[str, ...]:
    """The existing secret paths, with links resolved: of the user, by absolute paths of the home
    directories, of clawkit, of other users and of the system."""
    own = {os.path.realpath(each) for each in context.homes}
    names = [name for group in SECRETS.values() for name in group]
    found = [f"{home}/{name}" for home in own for name in names]
    homes = ("/root", *glob(f"{_HOMES}/*", include_hidden=True))
    others = (home for home in homes if not any(is_below(each, home) for each in own))
    # Even if the workspace is or contains the state directory, the secrets in it stay hidden.
    found += [context.state, *context.secrets, *others]
    found += (path for pattern in _SYSTEM for path in glob(pattern))
    found += (os.path.expanduser(path) for path in settings.hide_paths)
    shown = {os.path.realpath(os.path.expanduser(path)) for path in settings.show_paths}
    real = {os.path.realpath(path) for path in found if os.path.lexists(path)}
    return tuple(sorted(path for path in real - shown if path != "/" and os.path.exists(path)))


class DeniedFiles:
    """Finds files that rules deny, before every command."""

    def __init__(
        self, is_denied: Callable[[str], bool], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`is_denied` gets an absolute path without links."""
        self._is_denied, self._clock = is_denied, clock
        self._known: dict[str, bool] = {}
        self._until = 0.0

    def find(self, workspace: str) -> list[str]:
        """The denied files and directories, nearest first; links are not followed. A directory that
        cannot be listed counts as denied, because a command could change its mode, and so does one
        that is too deep. Blocks. Raises `ToolError` if the workspace has too many entries."""
        start = self._clock()
        is_full = start >= self._until
        if is_full:
            self._known = {}
        seen: dict[str, bool] = {}
        try:
            return self._look(os.path.realpath(workspace), seen)
        finally:
            self._known = seen
            end = self._clock()
            if is_full:
                self._until = end + _REST * (end - start) if end - start > _LONG_S else end

    def _look(self, root: str, denied: dict[str, bool]) -> list[str]:
        found: list[str] = []
        todo, left, deepest = deque([root]), MAX_ENTRIES, root.count("/") + MAX_DEPTH
        while todo:
            folder = todo.popleft()
            if folder.count("/") >= deepest:
                found.append(folder)
                continue
            try:
                with os.scandir(folder) as listing:
                    entries = list(islice(listing, left + 1))
            except (FileNotFoundError, NotADirectoryError):  # it is gone
                continue
            except OSError:
                found.append(folder)
                continue
            left -= len(entries)
            if left < 0:
                raise ToolError(
                    "the workspace is too large to hide files that tools.rules denies; keep fewer "
                    f"than {MAX_ENTRIES:,} files in it, or ask for the host with elevated: true"
                )
            for entry in sorted(entries, key=lambda each: each.name):
                is_folder = entry.is_dir(follow_symlinks=False)
                if not is_folder and not entry.is_file(follow_symlinks=False):
                    continue
                verdict = self._known.get(entry.path)
                denied[entry.path] = self._is_denied(entry.path) if verdict is None else verdict
                if denied[entry.path]:
                    found.append(entry.path)
                elif is_folder:
                    todo.append(entry.path)
        return found
