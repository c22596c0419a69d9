"""One reading per path: what a rule compares is what the file system opens."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from urllib.parse import unquote

from clawkit.errors import ToolInputError

MAX_PATH = 4096
_MAX_LINKS = 64


def plain_path(path: str) -> str:
    """A path as people and models write it, as the plain path it stands for.

    A `file:` URL is taken apart, once. In what comes back only a leading `~` or `~/` still has a
    meaning of its own. Raises `ToolInputError` for what cannot be a path.
    """
    if "\0" in path or len(path) > MAX_PATH or not _encodable(path):
        raise ToolInputError(
            f"{path[:80]!r} is not a usable path: it is too long, contains NUL or cannot be encoded"
        )
    if _is_url(path):
        path = _from_url(path)
    # A name that would be read as something else a second time.
    is_name = path.startswith("~") and path != "~" and not path.startswith("~/")
    return f"./{path}" if is_name or _is_url(path) else path


def unmark(path: str, workspace: str) -> str:
    """A path without the `@` that people put before a file they mention.

    The `@` stays where the workspace has such a name, and one of two stays: `@@a` is `@a`.
    """
    if not path.startswith("@"):
        return path
    first = path.partition("/")[0]
    if "\0" not in first and os.path.lexists(os.path.join(workspace, first)):
        return f"./{path}"
    return f"./{path[1:]}" if path.startswith("@@") else path[1:]


def real_path(path: str) -> str:
    """Where a path leads, links followed. Raises `ToolInputError` when it changes all the time.

    Like `os.path.realpath`, which as of Python 3.13 takes a link that cannot be read for a file.
    """
    for _ in range(16):
        with suppress(OSError):
            return _resolve(path)
    raise ToolInputError(f"{path!r} changed while it was being resolved; try again")


def _resolve(path: str) -> str:
    """Raises OSError for a link that is replaced while it is looked at."""
    done = "/" if path.startswith("/") else os.getcwd()
    rest = path.split("/")[::-1]
    links = 0
    while rest:
        name = rest.pop()
        if name in ("", "."):
            continue
        if name == "..":
            done = os.path.dirname(done)
            continue
        step = f"{done}/{name}" if done != "/" else f"/{name}"
        if os.path.islink(step):
            links += 1
            if links > _MAX_LINKS:
                return os.path.realpath(path)  # in circles, which has a name all the same
            target = os.readlink(step)
            done = "/" if target.startswith("/") else done
            rest += target.split("/")[::-1]
        else:
            done = step
    return done


def ways_of(path: str) -> tuple[str, ...]:
    """Every name that an absolute path goes by on its way: as it is written, and after each link.
    Raises `ToolInputError` when that has no end."""
    ways: list[str] = []
    for _ in range(_MAX_LINKS):
        ways.append(os.path.normpath(path))
        step = _follow_one(path)
        if step is None:
            return tuple(dict.fromkeys(ways))
        path = step
    raise ToolInputError(f"{path[:80]!r} has too many levels of symbolic links")


def _follow_one(path: str) -> str | None:
    """The path after its first link; None when it has none."""
    parts = path.split("/")
    for end in range(2, len(parts) + 1):
        link = "/".join(parts[:end])
        with suppress(OSError):
            return os.path.join(os.path.dirname(link), os.readlink(link), *parts[end:])
    return None


def _is_url(path: str) -> bool:
    return path[:5].lower() == "file:"


def _encodable(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def _from_url(path: str) -> str:
    rest, host = re.split("[?#]", path[5:], maxsplit=1)[0], ""
    if rest.startswith("//"):
        host, slash, tail = rest[2:].partition("/")
        rest = slash + tail
    lowered = rest.lower()
    if host.lower() not in ("", "localhost") or "%2f" in lowered or "%00" in lowered:
        raise ToolInputError(f"{path[:80]!r} is not a path to a local file")
    return unquote(rest)
