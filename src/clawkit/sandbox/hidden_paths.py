"""Paths that are hidden from commands: secrets, and files that rules deny to the file tools."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from glob import glob
from itertools import islice

from clawkit.config.sections.sandbox import Sandbox as Settings
from clawkit.core.paths import is_below
from clawkit.errors import ToolError

_PARTS = (os.path.dirname(os.path.dirname(__file__)), sys.prefix, sys.base_prefix)
PROGRAM = tuple(dict.fromkeys(map(os.path.realpath, _PARTS)))
"""clawkit's own code: a command that could change it would run unconfined the next time."""
_TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "secret_paths.txt")


def _read_table() -> dict[str, str]:
    """The groups in `secret_paths.txt`, with the paths of each."""
    with open(_TABLE, encoding="utf-8") as file:
        lines = [line.strip() for line in file if not line.startswith("#")]
    groups = "\n".join(lines).strip().split("\n\n")
    return {name: paths for name, _, paths in (group.partition(":\n") for group in groups)}


SECRETS = _read_table()  # secret paths below the home directory, by group
_SYSTEM = SECRETS.pop("system")  # readable only by root; `*` matches any characters
_HOMES = "/home"
MAX_ENTRIES = 200_000  # maximum entries of a workspace
_LONG_S = 0.1
_REST = 100
"""After a search that takes longer than `_LONG_S`, only new names are checked, for this many times
its duration."""


def own_code(writable: Iterable[str]) -> tuple[str, ...]:
    """The parts of clawkit's own code that are below a writable directory."""
    folders = [os.path.realpath(path) for path in writable]
    return tuple(path for path in PROGRAM if any(is_below(path, each) for each in folders))


def secret_paths(own_homes: Iterable[str], state: str, settings: Settings) -> tuple[str, ...]:
    """The existing secret paths, with links resolved: of the user, by absolute paths of the home
    directories, of clawkit, of other users and of the system."""
    own = {os.path.realpath(each) for each in own_homes}
    names = [name for group in SECRETS.values() for name in group.split()]
    found = [f"{home}/{name}" for home in own for name in names]
    homes = ("/root", *glob(f"{_HOMES}/*", include_hidden=True))
    others = (home for home in homes if not any(is_below(each, home) for each in own))
    found += [state, *others]
    found += (path for pattern in _SYSTEM.split() for path in glob(pattern))
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
        cannot be listed counts as denied: a command could change its mode. Blocks. Raises
        `ToolError` if the workspace has too many entries."""
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

    def _look(self, root: str, seen: dict[str, bool]) -> list[str]:
        found: list[str] = []
        todo, left = deque([root]), MAX_ENTRIES
        while todo:
            folder = todo.popleft()
            try:
                with os.scandir(folder) as listing:
                    entries = list(islice(listing, left + 1))
            except PermissionError:
                found.append(folder)
                continue
            except OSError:  # it is gone
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
                seen[entry.path] = self._is_denied(entry.path) if verdict is None else verdict
                if seen[entry.path]:
                    found.append(entry.path)
                elif is_folder:
                    todo.append(entry.path)
        return found
