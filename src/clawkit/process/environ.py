"""The environment of commands: what they get of clawkit's own, and what a call may add."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import re
import secrets
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

MAX_VARIABLES = 256
MAX_BYTES = 128 * 1024
"""Of one variable, with its name: the kernel starts no program with a longer one."""
MAX_TOTAL_BYTES = 512 * 1024

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_MAX_SHOWN = 64
_PROTOCOLS = ("git", "http", "https", "ssh")

# What everyone on the machine can know; a secret that happens to be part of it is not worth losing
# the home directory for.
_PUBLIC = ("HOME", "LOGNAME", "USER")


def inherited(
    environ: Mapping[str, str], *, keep: Iterable[str] = (), secrets: Iterable[str] = ()
) -> dict[str, str]:
    """What commands get of an environment: known harmless variables without a credential in them.

    `keep` are names that are passed on whatever they are and hold; `secrets` are values that are
    not passed on in any other.
    """
    kept = frozenset(keep)
    redactor = Redactor(secrets)
    return {
        name: _tame(name, value)
        for name, value in environ.items()
        if re.fullmatch(_NAME, name) and (name in kept or _is_harmless(name, value, redactor))
    }


def _is_harmless(name: str, value: str, redactor: Redactor) -> bool:
    # Without a proxy's password there would be no network.
    if name in _PUBLIC or name.upper() in PROXIES:
        return True
    return name in HARMLESS and redactor.text(value) == value


def _tame(name: str, value: str) -> str:
    """The value as it is passed on: git fetches over the usual protocols only."""
    if name.upper() == "GIT_ALLOW_PROTOCOL":
        # May become empty, which allows none: only other protocols were allowed.
        return ":".join(word for word in value.split(":") if word in _PROTOCOLS)
    return "0" if name.upper() == "GIT_PROTOCOL_FROM_USER" else value


def check_overrides(given: Mapping[str, str]) -> dict[str, str]:
    """The variables of a call as they may be set.

    Raises `ToolAuthorizationError` for those that steer programs, `ToolInputError` for what cannot
    be a variable.
    """
    if len(given) > MAX_VARIABLES:
        raise ToolInputError(f"env has {len(given)} variables; at most {MAX_VARIABLES} are allowed")
    total = sum(_size(name, value) for name, value in given.items())
    _check_size("env", total, MAX_TOTAL_BYTES)
    accepted = {
        name: "" if name.upper() in PAGERS and value == "cat" else value
        for name, value in given.items()
    }
    refused = [
        f"{one_line(name, _MAX_SHOWN)} ({why})"
        for name in given
        if (why := why_refused(name)) and not (name.upper() in PAGERS and not accepted[name])
    ]
    if refused:
        hint = "leave them out of env" if len(refused) > 1 else "leave it out of env"
        if any(name.upper() == "PATH" for name in given):
            hint += "; to run a program from elsewhere use its absolute path, or have its "
            hint += "directory added to tools.exec.pathPrepend"
        raise ToolAuthorizationError(
            f"env must not set {', '.join(refused)}. Nothing was run; {hint}",
            reason="environment",
        )
    return accepted


def _size(name: str, value: str) -> int:
    """The bytes a variable takes."""
    shown = one_line(name, _MAX_SHOWN)
    if not re.fullmatch(_NAME, name):
        raise ToolInputError(
            f"env: invalid variable name {json.dumps(name[:_MAX_SHOWN])}; use letters from A to Z, "
            "digits and _, and do not begin with a digit"
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


def _check_size(what: str, size: int, most: int) -> None:
    if size > most:
        raise ToolInputError(
            f"{what} is {human_size(size)}; the limit is {human_size(most)}. Use a file"
        )


def join_path(own: str, login: str, prepend: Sequence[str]) -> str:
    """One PATH: the directories put in front, what only clawkit's own has, the login shell's.

    Only absolute ones: others, and empty ones, would find programs wherever a command runs.
    """
    from_login = list(absolute_dirs(login))
    known = {_bare(folder) for folder in from_login}
    from_own = [folder for folder in absolute_dirs(own) if _bare(folder) not in known]
    in_front = [folder for entry in prepend for folder in absolute_dirs(entry)]
    joined: dict[str, str] = {}
    for folder in (*in_front, *from_own, *from_login):
        joined.setdefault(_bare(folder), folder)
    return ":".join(joined.values()) or DEFAULT_PATH


def absolute_dirs(path: str) -> Iterator[str]:
    """The directories of a PATH that are absolute."""
    for folder in path.split(":"):
        if folder.startswith("/") and "\0" not in folder and "\n" not in folder:
            yield folder


def _bare(folder: str) -> str:
    return folder.rstrip("/") or "/"


def build(
    base: Mapping[str, str], given: Mapping[str, str], *, path: str, extra: Mapping[str, str]
) -> dict[str, str]:
    """All variables of one command; `extra` are clawkit's own, which nothing replaces."""
    return {**base, **given, "PATH": path, **extra}


LIMIT_S = 5.0
_END_S = 0.5
MAX_PROFILE_BYTES = 64 * 1024
"""Of what profiles print before the answer."""

_NO_SHELLS = ("false", "nologin", "sync", "true")
_ENV_PROGRAMS = ("/usr/bin/env", "/bin/env")


async def login_path(environ: Mapping[str, str], *, limit_s: float = LIMIT_S) -> str:
    """PATH after a login, absolute directories only; empty when it is unknown."""
    user = _user()
    shell = usable_shell(user.pw_shell if user else "", environ.get("SHELL", ""))
    return await path_from(shell, environ, limit_s=limit_s) if shell else ""


def usable_shell(*candidates: str) -> str:
    """The first that is a shell to log in with; empty if there is none."""
    for shell in candidates:
        is_program = os.path.isfile(shell) and os.access(shell, os.X_OK)
        if is_program and os.path.isabs(shell) and os.path.basename(shell) not in _NO_SHELLS:
            return shell
    return ""


async def path_from(shell: str, environ: Mapping[str, str], *, limit_s: float = LIMIT_S) -> str:
    """PATH as one shell sets it at a login; empty when it does not say in time.

    What the profile starts in the background goes on, as after any login. A shell that takes too
    long is asked to end before it is made to: profiles hold locks, which must not stay behind.
    """
    mark = f"CLAWKIT_{secrets.token_hex(16)}"
    end = f"\n{mark}_END="
    program = next((path for path in _ENV_PROGRAMS if os.access(path, os.X_OK)), "env")
    # What every shell understands alike; `exec` keeps it from running what a logout runs.
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
    """Wait for the shell, which is now the program that has answered; if it has not, stop it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
            return
        # Not waited for yet, so its number is still that of its group.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
    process.wait()


def _start(shell: str, question: str, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    name = os.path.basename(shell)
    # The C shell takes no `-l` beside other options; it goes by the name it is called with.
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
    """All up to a mark and with it; nothing if too much comes before it."""
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
    """Who the system says this is; None for a number without a name."""
    try:
        return pwd.getpwuid(os.getuid())
    except KeyError:
        return None


KEEP_S = 600.0
"""For so long a login shell is not asked again, by any clawkit: some take seconds."""


class LocalEnvironment:
    """Clawkit's own environment, without what is not for commands, and the login's PATH."""

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
        """`cache` is the file that remembers the login's PATH."""
        self._environ = environ
        self._prepend = [os.path.expanduser(each) for each in prepend]
        self._keep = tuple(keep)
        self._secrets = tuple(secrets)
        self._login = login
        self._cache = cache
        self._found: dict[str, str] | None = None
        self._lock = asyncio.Lock()

    async def variables(self) -> Mapping[str, str]:
        async with self._lock:
            if self._found is None:
                login = await self._login_path() if self._login else ""
                found = inherited(self._environ, keep=self._keep, secrets=self._secrets)
                found["PATH"] = join_path(self._environ.get("PATH", ""), login, self._prepend)
                self._found = found
        return self._found

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
