"""A look at the scripts a command is about to run: shell syntax in them is told beforehand.

It is a help, not a barrier: what cannot be read for certain is let through.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Awaitable, Callable, Iterable

from clawkit.core.tasks import in_thread
from clawkit.process.preflight.finding import Finding
from clawkit.process.preflight.javascript import check_javascript
from clawkit.process.preflight.python import check_python

MAX_BYTES = 524_288

_CHECKS = {"python": ("Python", check_python), "javascript": ("JavaScript", check_javascript)}
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


async def check(
    scripts: Iterable[tuple[str, str]], read: Callable[[str], Awaitable[bytes | None]]
) -> str:
    """What is wrong with scripts, and what to do about it; empty when nothing is.

    Each is a language, `python` or `javascript`, and an absolute path. `read` gives a file where
    the command is to run; None when it is missing, too large, binary, or no regular file.
    """
    for name, path in scripts:
        data = await read(path)
        if data is None or len(data) > MAX_BYTES:
            continue
        language, find = _CHECKS[name]
        finding: Finding | None = await in_thread(find, data.decode("utf-8-sig", "replace"))
        if finding:
            return _explain(path, language, finding)
    return ""


def _explain(path: str, language: str, finding: Finding) -> str:
    head = f"{path!r}, line {finding.line}: `{finding.text}` is {finding.what}, not {language}."
    text = f"{head} The command was not run. {finding.fix}"
    if "shell" in finding.what:
        text += " If the file is meant to be a shell script, name it .sh and run it with bash."
    return text


async def read_script(
    path: str, *, workspace: str, may_read: Callable[[str], bool]
) -> bytes | None:
    """A script of this machine that lies in the workspace and may be read, by the path where it
    really is; None for any other, and when it is missing, too large, binary, or no regular file."""
    data: bytes | None = await in_thread(_read, path, workspace, may_read)
    return data


def _read(path: str, workspace: str, may_read: Callable[[str], bool]) -> bytes | None:
    try:
        fd = os.open(path, _FLAGS)
    except (OSError, ValueError):
        return None
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_BYTES:
            return None
        # What is quoted from it reaches the model: it must be nothing that commands cannot read.
        place = _locate(fd, info)
        start = f"{os.path.realpath(workspace).rstrip('/')}/"
        if not place.startswith(start) or not may_read(place):
            return None
        if _locate(fd, info) != place:
            return None
        with open(fd, "rb", closefd=False) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError:
        return None
    finally:
        os.close(fd)
    return None if len(data) > MAX_BYTES or b"\0" in data else data


def _locate(fd: int, info: os.stat_result) -> str:
    """Where an open file is, whatever led to it. Raises OSError when it is there no longer."""
    place = os.readlink(f"/proc/self/fd/{fd}")
    found = os.lstat(place)
    is_there = (found.st_dev, found.st_ino) == (info.st_dev, info.st_ino)
    return place if is_there else ""
