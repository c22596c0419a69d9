"""PATH as the user's login shell sets it, which a service started at boot has never seen."""

from __future__ import annotations

import asyncio
import os
import pwd
import secrets
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, cast

from clawkit.core.bounded import in_thread, unbroken
from clawkit.process.environ import DEFAULT_PATH, absolute_dirs

LIMIT_S = 5.0
_END_S = 0.5
MAX_BYTES = 64 * 1024
"""Of what profiles print before the answer."""

_NO_SHELLS = ("false", "nologin", "sync", "true")
_ENV_PROGRAMS = ("/usr/bin/env", "/bin/env")


async def login_path(environ: Mapping[str, str], *, limit_s: float = LIMIT_S) -> str:
    """PATH after a login, absolute directories only; empty when it cannot be told."""
    user = _user()
    shell = usable_shell(user.pw_shell if user else "", environ.get("SHELL", ""))
    return await path_from(shell, environ, limit_s=limit_s) if shell else ""


def usable_shell(*candidates: str) -> str:
    """The first that is a shell to log in with; empty if there is none."""
    for shell in candidates:
        if (
            os.path.isabs(shell)
            and os.path.basename(shell) not in _NO_SHELLS
            and os.path.isfile(shell)
            and os.access(shell, os.X_OK)
        ):
            return shell
    return ""


async def path_from(shell: str, environ: Mapping[str, str], *, limit_s: float = LIMIT_S) -> str:
    """PATH as one shell sets it at a login; empty when it does not say in time.

    What the profile starts in the background goes on, as after any login. A shell that takes too
    long is asked to end before it is made to: profiles hold locks, which must not stay behind.
    """
    mark = f"CLAWKIT_{secrets.token_hex(16)}"
    end = f"\n{mark}_END="
    try:
        process = _start(shell, _question(mark), environ)
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
    """Wait for the shell, which is now the program that has answered; if it has not, end it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
            return
        # Not waited for yet, so its number is still that of its group and nobody else's.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
    process.wait()


def _question(mark: str) -> str:
    """What every shell understands alike; `exec` keeps it from running what a logout runs."""
    program = next((path for path in _ENV_PROGRAMS if os.access(path, os.X_OK)), "env")
    return f'exec {program} -i "{mark}=$PATH" "{mark}_END="'


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
    """All up to a mark and with it; nothing if it does not come, or too much comes before it."""
    reader = asyncio.StreamReader(limit=MAX_BYTES)
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
