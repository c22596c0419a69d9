"""A look at the scripts a command is about to run: shell syntax in them is told beforehand.

It is a help, not a barrier: what cannot be read for certain is let through.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Awaitable, Callable

from clawkit.core.bounded import in_thread
from clawkit.process.preflight.command import Finding, find_scripts
from clawkit.process.preflight.javascript import check_javascript
from clawkit.process.preflight.python import check_python

MAX_BYTES = 524_288

_CHECKS = {"python": ("Python", check_python), "javascript": ("JavaScript", check_javascript)}
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


async def check(command: str, cwd: str, read: Callable[[str], Awaitable[bytes | None]]) -> str:
    """What is wrong with the scripts of a command, and what to do about it; empty when nothing is.

    `read` gives a file by its absolute path, where the command is to run; None when it is missing,
    too large, binary, or no regular file.
    """
    for script in find_scripts(command, cwd):
        data = await read(script.path)
        if data is None or len(data) > MAX_BYTES:
            continue
        language, find = _CHECKS[script.language]
        finding: Finding | None = await in_thread(find, data.decode("utf-8-sig", "replace"))
        if finding:
            return _explain(script.path, language, finding)
    return ""


def _explain(path: str, language: str, finding: Finding) -> str:
    head = f"{path!r}, line {finding.line}: `{finding.text}` is {finding.what}, not {language}."
    text = f"{head} The command was not run. {finding.fix}"
    if "shell" in finding.what:
        text += " If the file is meant to be a shell script, name it .sh and run it with bash."
    return text


async def read_script(path: str) -> bytes | None:
    """A script of this machine; None when it is missing, too large, binary, or no regular file."""
    data: bytes | None = await in_thread(_read, path)
    return data


def _read(path: str) -> bytes | None:
    try:
        fd = os.open(path, _FLAGS)
    except (OSError, ValueError):
        return None
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_BYTES:
            return None
        with open(fd, "rb", closefd=False) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError:
        return None
    finally:
        os.close(fd)
    return None if len(data) > MAX_BYTES or b"\0" in data else data
