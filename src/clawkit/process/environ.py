"""The environment of commands: variables inherited from clawkit, and variables that a call may
set."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import IO, cast

from clawkit.core.tasks import in_thread, unbroken
from clawkit.errors import ToolAuthorizationError, ToolInputError
from clawkit.process.env_blocklist import HARMLESS, PAGERS, PROXIES, why_refused
from clawkit.redact import Redactor
from clawkit.store import private_dir, write_atomic
from clawkit.text import human_size, one_line

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SYSTEM_PATH = f"{DEFAULT_PATH}:/snap/bin:/run/current-system/sw/bin"
MAX_VARIABLES = 256
MAX_BYTES = 128 * 1024
"""Maximum size of one variable with its name, a limit of the kernel."""
MAX_TOTAL_BYTES = 512 * 1024

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_MAX_SHOWN = 64
_PROTOCOLS = ("git", "http", "https", "ssh")

# Public values: a secret that is a substring of HOME must not cause HOME to be dropped.
_PUBLIC = ("HOME", "LOGNAME", "USER")


def find_program(name: str) -> str | None:
    """A program in a system directory, or the one at a path. PATH is not used: it may contain
    directories that an agent can write to."""
    return shutil.which(name, path=SYSTEM_PATH)


def inherited(
    environ: Mapping[str, str], *, keep: Iterable[str] = (), secrets: Iterable[str] = ()
) -> dict[str, str]:
    """The part of an environment for commands: known harmless variables without credentials.

    Variables in `keep` are always passed on; variables that contain a value of `secrets` are not.
    """
    kept = frozenset(keep)
    redactor = Redactor(secrets)
    return {
        name: _tame(name, value)
        for name, value in environ.items()
        if re.fullmatch(_NAME, name) and (name in kept or _is_harmless(name, value, redactor))
    }


def _is_harmless(name: str, value: str, redactor: Redactor) -> bool:
    # Proxies may contain a password; without it there would be no network.
    if name in _PUBLIC or name.upper() in PROXIES:
        return True
    return name in HARMLESS and redactor.text(value) == value


def _tame(name: str, value: str) -> str:
    """Restrict git to the usual protocols."""
    if name.upper() == "GIT_ALLOW_PROTOCOL":
        # May become empty, which allows no protocol.
        return ":".join(word for word in value.split(":") if word in _PROTOCOLS)
    return "0" if name.upper() == "GIT_PROTOCOL_FROM_USER" else value


def check_overrides(overrides: Mapping[str, str]) -> dict[str, str]:
    """The variables that a call sets.

    Raises `ToolAuthorizationError` for variables that control programs, `ToolInputError` for
    invalid names and values.
    """
    if len(overrides) > MAX_VARIABLES:
        why = f"env has {len(overrides)} variables; at most {MAX_VARIABLES} are allowed"
        raise ToolInputError(why)
    total = sum(_size(name, value) for name, value in overrides.items())
    _check_size("env", total, MAX_TOTAL_BYTES)
    accepted = {
        name: "" if name.upper() in PAGERS and value == "cat" else value
        for name, value in overrides.items()
    }
    refused = [
        f"{one_line(name, _MAX_SHOWN)} ({why})"
        for name in overrides
        if (why := why_refused(name)) and not (name.upper() in PAGERS and not accepted[name])
    ]
    if refused:
        hint = "leave them out of env" if len(refused) > 1 else "leave it out of env"
        if any(name.upper() == "PATH" for name in overrides):
            hint += "; to run a program from elsewhere use its absolute path, or have its "
            hint += "directory added to tools.exec.pathPrepend"
        raise ToolAuthorizationError(
            f"env must not set {', '.join(refused)}. Nothing was run; {hint}",
            reason="environment",
        )
    return accepted


def _size(name: str, value: str) -> int:
    """The size of a variable in bytes. Raises `ToolInputError` if it is invalid."""
    shown = one_line(name, _MAX_SHOWN)
    if not re.fullmatch(_NAME, name):
        raise ToolInputError(
            f"env: invalid variable name {json.dumps(name[:_MAX_SHOWN])}; use letters from A to Z, "
            "digits and _, and do not start with a digit"
        )
    if "\0" in value:
        raise ToolInputError(f"the value of {shown} in env has a NUL character; remove it")
    try:
        size = len(name) + len(value.encode("utf-8", "surrogateescape")) + 2
    except UnicodeEncodeError:
        raise ToolInputError(
            f"the value of {shown} in env has a lone surrogate; send valid Unicode"
        ) from None
    _check_size(f"{shown} in env", size, MAX_BYTES)
    return size


def _check_size(label: str, size: int, most: int) -> None:
    if size > most:
        raise ToolInputError(
            f"{label} is {human_size(size)}; the limit is {human_size(most)}. Use a file"
        )


def join_path(inherited: str, login: str, prepend: Sequence[str]) -> str:
    """The PATH of commands: `prepend`, directories of `inherited` that `login` lacks, then `login`.

    Only absolute directories: relative and empty ones depend on where a command runs.
    """
    from_login = list(absolute_dirs(login))
    known = {_bare(folder) for folder in from_login}
    from_own = [folder for folder in absolute_dirs(inherited) if _bare(folder) not in known]
    in_front = [folder for entry in prepend for folder in absolute_dirs(entry)]
    joined: dict[str, str] = {}
    for folder in (*in_front, *from_own, *from_login):
        joined.setdefault(_bare(folder), folder)
    return ":".join(joined.values()) or DEFAULT_PATH


def absolute_dirs(path: str) -> Iterator[str]:
    for folder in path.split(":"):
        if folder.startswith("/") and "\0" not in folder and "\n" not in folder:
            yield folder


def _bare(folder: str) -> str:
    return folder.rstrip("/") or "/"


def build(
    base: Mapping[str, str], overrides: Mapping[str, str], *, path: str, extra: Mapping[str, str]
) -> dict[str, str]:
    """The whole environment of one command; `extra` are clawkit's variables, which always win."""
    return {**base, **overrides, "PATH": path, **extra}


LIMIT_S = 5.0
_END_S = 0.5
MAX_PROFILE_BYTES = 64 * 1024
"""Maximum output of profiles before the answer."""

_NO_SHELLS = ("false", "nologin", "sync", "true")
_ENV_PROGRAMS = ("/usr/bin/env", "/bin/env")


async def login_path(environ: Mapping[str, str], *, limit_s: float = LIMIT_S) -> str:
    """PATH after a login, absolute directories only; empty if unknown."""
    user = _user()
    shell = usable_shell(user.pw_shell if user else "", environ.get("SHELL", ""))
    return await path_from(shell, environ, limit_s=limit_s) if shell else ""


def usable_shell(*candidates: str) -> str:
    """The first candidate that is a login shell; empty if there is none."""
    for shell in candidates:
        is_program = os.path.isfile(shell) and os.access(shell, os.X_OK)
        if is_program and os.path.isabs(shell) and os.path.basename(shell) not in _NO_SHELLS:
            return shell
    return ""


async def path_from(shell: str, environ: Mapping[str, str], *, limit_s: float = LIMIT_S) -> str:
    """PATH as a shell sets it at a login; empty if it does not answer in time.

    What the profile starts in the background keeps running, as after any login. A shell that takes
    too long is terminated before it is killed: profiles may hold locks, which must be released.
    """
    mark = f"CLAWKIT_{os.urandom(16).hex()}"
    end = f"\n{mark}_END="
    program = next((path for path in _ENV_PROGRAMS if os.access(path, os.X_OK)), "env")
    # Syntax that all shells share; `exec` prevents logout scripts from running.
    question = f'exec {program} -i "{mark}=$PATH" "{mark}_END="'
    try:
        process = _start(shell, question, environ)
    except OSError:
        return ""
    try:
        async with asyncio.timeout(limit_s):
            said = await _read(cast("IO[bytes]", process.stdout), end.encode())
    except TimeoutError:
        said = b""
    finally:
        await unbroken(in_thread(_end, process))
    answer = os.fsdecode(said).removesuffix(end).rpartition(f"{mark}=")[2]
    return ":".join(absolute_dirs(answer))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for the shell, which has replaced itself by `env`; if it has not, stop it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
            return
        # Not reaped yet, so its pid is still that of its process group.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
    process.wait()


def _start(shell: str, question: str, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    name = os.path.basename(shell)
    # The C shell does not accept `-l` with other options; a leading `-` in its name has the effect.
    argv = [f"-{name}", "-c"] if name in ("csh", "tcsh") else [shell, "-l", "-c"]
    user = _user()
    home = environ.get("HOME") or (user.pw_dir if user else "/")
    login = environ.get("USER") or (user.pw_name if user else "")
    env = {"HOME": home, "USER": login, "LOGNAME": login, "SHELL": shell}
    env |= {"LANG": environ.get("LANG", "C.UTF-8"), "TERM": "dumb", "PATH": DEFAULT_PATH}
    return subprocess.Popen(
        [*argv, question],
        executable=shell,
        cwd=home if os.path.isdir(home) else "/",
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


async def _read(pipe: IO[bytes], until: bytes) -> bytes:
    """Read up to and including `until`; empty if there is too much before it."""
    reader = asyncio.StreamReader(limit=MAX_PROFILE_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        return await reader.readuntil(until)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return b""
    finally:
        transport.close()


def _user() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(os.getuid())
    except KeyError:
        return None


KEEP_S = 600.0
"""How long the PATH of the login shell is cached, for all runs: some shells take seconds."""


class LocalEnvironment:
    """The environment of commands on this machine, see `inherited`, with the login shell's PATH."""

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        prepend: Sequence[str] = (),
        keep: Iterable[str] = (),
        secrets: Iterable[str] = (),
        login: bool = True,
        cache: str = "",
    ) -> None:
        """`cache` is the file that caches the login shell's PATH."""
        self._environ = environ
        self._prepend = [os.path.expanduser(each) for each in prepend]
        self._keep = tuple(keep)
        self._secrets = tuple(secrets)
        self._login = login
        self._cache = cache
        self._variables: dict[str, str] | None = None
        self._lock = asyncio.Lock()

    async def variables(self) -> Mapping[str, str]:
        async with self._lock:
            if self._variables is None:
                login = await self._login_path() if self._login else ""
                found = inherited(self._environ, keep=self._keep, secrets=self._secrets)
                found["PATH"] = join_path(self._environ.get("PATH", ""), login, self._prepend)
                self._variables = found
        return self._variables

    async def _login_path(self) -> str:
        if (known := self._recall()) is not None:
            return known
        path = await login_path(self._environ)
        if self._cache:
            note = {"home": self._environ.get("HOME"), "at": time.time(), "path": path}
            with suppress(OSError):
                private_dir(os.path.dirname(self._cache))
                write_atomic(self._cache, json.dumps(note).encode())
        return path

    def _recall(self) -> str | None:
        try:
            with open(self._cache, "rb") as file:
                note = json.loads(file.read(1 << 16))
            is_fresh = 0 <= time.time() - note["at"] < KEEP_S
            is_same = note["home"] == self._environ.get("HOME")
            return ":".join(absolute_dirs(note["path"])) if is_fresh and is_same else None
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
