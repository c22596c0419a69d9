"""The one interpretation of paths, so that rules compare what the file system opens."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import unquote

from clawkit.errors import ToolInputError

MAX_PATH = 4096
_MAX_LINKS = 64


class CycleError(OSError):
    """A path goes through too many links."""


def is_below(path: str, base: str) -> bool:
    """Whether a resolved path is `base` or below it."""
    return path == base or path.startswith(base.rstrip("/") + "/")


def plain_path(path: str) -> str:
    """The plain path for a path as people and models write it.

    A `file:` URL is decoded, once. In the result, only a leading `~` or `~/` has a special meaning.
    Raises `ToolInputError` for something that cannot be a path.
    """
    if "\0" in path or len(path) > MAX_PATH or not _encodable(path):
        raise ToolInputError(
            f"{path[:80]!r} is not a usable path: it is too long, contains NUL or cannot be encoded"
        )
    if _is_url(path):
        rest, host = re.split("[?#]", path[5:], maxsplit=1)[0], ""
        if rest.startswith("//"):
            host, slash, tail = rest[2:].partition("/")
            rest = slash + tail
        lowered = rest.lower()
        if host.lower() not in ("", "localhost") or "%2f" in lowered or "%00" in lowered:
            raise ToolInputError(f"{path[:80]!r} is not a path to a local file")
        path = unquote(rest)
    # Keep a relative name from being interpreted a second time.
    is_name = path.startswith("~") and path != "~" and not path.startswith("~/")
    return f"./{path}" if is_name or _is_url(path) else path


def strip_mention(path: str, workspace: str) -> str:
    """A path without the `@` that people put before a file they mention.

    The `@` stays if the workspace has a file with that name; of two, one stays: `@@a` is `@a`.
    """
    if not path.startswith("@"):
        return path
    first = path.partition("/")[0]
    if "\0" not in first and os.path.lexists(os.path.join(workspace, first)):
        return f"./{path}"
    return f"./{path[1:]}" if path.startswith("@@") else path[1:]


def real_path(path: str) -> str:
    """Resolve all links. Raises `ToolInputError` if the path keeps changing.

    Like `os.path.realpath`, which since Python 3.13 treats an unreadable link as a file.
    """
    for _ in range(16):
        try:
            *_, target = steps_of(path)
        except CycleError:
            return os.path.realpath(path)  # which returns a name even for a cycle
        except OSError:
            continue
        return target
    raise ToolInputError(f"{path!r} changed while it was being resolved; try again")


def steps_of(path: str) -> Iterator[str]:
    """Every path visited while a path is resolved, links included; the last one is its target.
    Raises `CycleError`, and OSError for a link that is replaced in the meantime."""
    done = "/" if path.startswith("/") else os.getcwd()
    yield done
    rest = path.split("/")[::-1]
    links = 0
    while rest:
        name = rest.pop()
        if name in ("", "."):
            continue
        step = os.path.dirname(done) if name == ".." else f"{done.rstrip('/')}/{name}"
        yield step
        if name == ".." or not os.path.islink(step):
            done = step
            continue
        links += 1
        if links > _MAX_LINKS:
            raise CycleError(f"too many links on the way to {path!r}")
        target = os.readlink(step)
        done = "/" if target.startswith("/") else done
        rest += target.split("/")[::-1]
        yield done


def ways_of(path: str) -> tuple[str, ...]:
    """All names of an absolute path on the way to its target: as written, and after each link.
    Raises `ToolInputError` if there are too many."""
    ways: list[str] = []
    for _ in range(_MAX_LINKS):
        ways.append(os.path.normpath(path).replace("//", "/"))  # it keeps two at the start
        step = _follow_one(path)
        if step is None:
            return tuple(dict.fromkeys(ways))
        path = step
    raise ToolInputError(f"{path[:80]!r} has too many levels of symbolic links")


def _follow_one(path: str) -> str | None:
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
