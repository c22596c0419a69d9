"""bubblewrap: separate namespaces, with the files of the machine mounted according to a hold."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from clawkit.core.paths import is_below
from clawkit.process import seccomp
from clawkit.process.landlock import Hold

_PROBE_S = 10.0
_NAMESPACES = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts")
_ESCAPE = re.compile(r"\\([0-7]{3})")
_KERNEL_SETTINGS = ("/proc/sys", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/sysrq-trigger")
"""Kernel settings that root could change for the whole machine."""
_SHARED_TMP = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  # replaced by private ones


def find_bwrap() -> str:
    """The absolute path of bwrap; empty if there is none. Never one that a command could have
    installed."""
    folders = "/usr/bin:/bin:/usr/local/bin:/run/current-system/sw/bin"
    return shutil.which("bwrap", path=folders) or ""


def why_not() -> str:
    """Why bubblewrap cannot be used here; empty if it can. Blocks: runs it once."""
    if not seccomp.available():
        return "the system calls of this architecture are unknown"
    program = find_bwrap()
    if not program:
        return "bwrap is not installed (Debian: apt-get install bubblewrap)"
    argv = [program, *_NAMESPACES, "--unshare-net", "--cap-drop", "ALL", "--ro-bind", "/", "/"]
    argv += ["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run", "--", "/bin/true"]
    try:
        done = subprocess.run(
            argv, capture_output=True, timeout=_PROBE_S, env={}, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap does not start: {error}"
    said = done.stderr.decode("utf-8", "replace").strip()
    return f"bwrap cannot create namespaces here: {said[:200]}" if done.returncode else ""


class Mounted(NamedTuple):
    """A mount. When sorted, parents come before children; for one target, the last one wins."""

    target: str
    order: int
    options: tuple[str, ...]


def plan_mounts(hold: Hold, *, tmp: str, empty: str, pins: Sequence[str] = ()) -> list[Mounted]:
    """The mounts that confine a program to a hold. `tmp` is mounted as the temporary directory,
    `empty` in place of hidden files, and `pins` are directories that it cannot rename. Missing
    paths are skipped."""
    mounts = [
        Mounted("/proc", 0, ("--proc", "/proc")),
        Mounted("/dev", 0, ("--dev", "/dev")),
        Mounted("/run", 0, ("--tmpfs", "/run")),
    ]
    for path in filter(os.path.exists, _KERNEL_SETTINGS if os.geteuid() == 0 else ()):
        mounts.append(Mounted(path, 0, ("--ro-bind", path, path)))
    for target in ("/tmp", "/var/tmp"):  # noqa: S108  # replaced by a private one
        if os.path.isdir(target) and not os.path.islink(target):
            mounts.append(Mounted(target, 0, ("--bind", tmp, target)))
    for real in filter(os.path.exists, _covered(hold)):
        hiding = ("--tmpfs", real) if os.path.isdir(real) else ("--ro-bind", empty, real)
        mounts.append(Mounted(real, 1, hiding))
    covered = (*hold.hide, *_SHARED_TMP)
    for real in filter(os.path.exists, map(os.path.realpath, (*hold.read, *hold.run))):
        if any(is_below(real, each) for each in covered):
            mounts.append(Mounted(real, 2, ("--ro-bind", real, real)))
    for real in filter(os.path.exists, map(os.path.realpath, hold.write)):
        mounts.append(Mounted(real, 3, ("--bind", real, real)))
    return sorted((*mounts, *_pin(hold, pins)))


def _covered(hold: Hold) -> list[str]:
    """Hidden paths that are not granted themselves, with links resolved."""
    granted = {os.path.realpath(path) for path in (*hold.read, *hold.run, *hold.write)}
    hidden = dict.fromkeys(map(os.path.realpath, hold.hide))
    return [path for path in hidden if path not in granted and path not in ("/dev", "/run")]


def _pin(hold: Hold, pins: Sequence[str]) -> Iterator[Mounted]:
    """Mounts of pinned and kept paths that are writable and not hidden. Renaming a directory above
    a hidden or kept path would move that away, so such directories are pinned too. A path that
    contains a link was replaced since it was found, and is skipped."""
    open_ = [os.path.realpath(path) for path in hold.write]
    hidden = _covered(hold)
    kept = [path for path in hold.keep if os.path.realpath(path) == path]
    above = {up for path in (*hidden, *kept, *pins) for up in _between(path, open_)}
    for path in {*pins, *above, *kept}:
        is_there = os.path.exists(path) and os.path.realpath(path) == path
        if is_there and _depth(path, open_) > _depth(path, hidden):
            order, how = (5, "--ro-bind") if path in kept else (4, "--bind")
            yield Mounted(path, order, (how, path, path))


def _between(path: str, folders: Sequence[str]) -> Iterator[str]:
    """The directories between a path and the folder that contains it."""
    up = os.path.dirname(path)
    while _depth(up, folders) >= 0 and up not in folders:
        yield up
        up = os.path.dirname(up)


def make_options(hold: Hold, mounts: Iterable[Mounted]) -> list[str]:
    """The options of bwrap, without the program to run."""
    options = [*_NAMESPACES, *(() if hold.network else ("--unshare-net",))]
    options += ["--cap-drop", "ALL", "--hostname", "sandbox", "--ro-bind", "/", "/"]
    for mount in mounts:
        options += mount.options
    for path in filter(os.path.isdir, _covered(hold)):
        options += ["--remount-ro", path]
    return [*options, "--die-with-parent", "--as-pid-1", "--chdir", "/"]


def find_misplaced(mounts: Iterable[Mounted], inside: str, here: str) -> str:
    """A mount with the wrong target or source; empty if all are correct. While bwrap mounts, a
    command in another sandbox can replace directories of the workspace by links, and mounting
    follows links. `inside` and `here` are the kernel's mountinfo of the sandbox and of this
    machine."""
    found = {(point, root) for point, root, _ in _read_mounts(inside)}
    empty = {point for point, _, kind in _read_mounts(inside) if kind == "tmpfs"}
    places = sorted((point, root) for point, root, _ in _read_mounts(here))
    for target, _, (how, source, *_rest) in mounts:
        if how == "--tmpfs" and target not in empty:
            return target
        if how in ("--bind", "--ro-bind"):
            real = os.path.realpath(source)
            around = [each for each in places if is_below(real, each[0])]
            point, root = max(around, key=lambda each: len(each[0]))
            below = real[len(point.rstrip("/")) :]
            if (target, f"{root.rstrip('/')}{below}" or "/") not in found:
                return target
    return ""


def read_mountinfo() -> str:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _read_mounts(text: str) -> Iterator[tuple[str, str, str]]:
    """Mount point, root in the file system, and file system type of each mount."""
    for line in text.splitlines():
        fields = line.split(" ")
        root, point = (_ESCAPE.sub(lambda code: chr(int(code[1], 8)), each) for each in fields[3:5])
        yield point, root, fields[fields.index("-") + 1]


def _depth(path: str, folders: Sequence[str]) -> int:
    """The length of the deepest folder that contains a path; -1 for none."""
    return max((len(each) for each in folders if is_below(path, each)), default=-1)
