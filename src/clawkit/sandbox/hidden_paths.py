"""What is hidden from commands: secret paths, and files that rules deny to the file tools."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from glob import glob
from itertools import islice

from clawkit.config.sections.sandbox import Sandbox as Settings
from clawkit.errors import ToolError
from clawkit.fs.roots import is_below

_PARTS = (os.path.dirname(os.path.dirname(__file__)), sys.prefix, sys.base_prefix)
PROGRAM = tuple(dict.fromkeys(map(os.path.realpath, _PARTS)))
"""What clawkit itself is made of: a command that could change it would run unconfined next time."""
_TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "secret_paths.txt")


def _read_table() -> dict[str, str]:
    """The groups of the table beside this file, and the paths in each."""
    with open(_TABLE, encoding="utf-8") as file:
        lines = [line.strip() for line in file if not line.startswith("#")]
    groups = "\n".join(lines).strip().split("\n\n")
    return {name: paths for name, _, paths in (group.partition(":\n") for group in groups)}


SECRETS = _read_table()  # secret paths below the home directory, by group
_SYSTEM = SECRETS.pop("system")  # what only root could read; `*` stands for any characters
_HOMES = "/home"
MAX_ENTRIES = 200_000  # names that one look takes
_LONG_S = 0.1
_REST = 100
"""A look that takes longer than that judges all names; for this many times its duration, later ones
judge only new names."""


def own_code(writable: Iterable[str]) -> tuple[str, ...]:
    """What clawkit is made of, as far as it lies below a writable directory."""
    folders = [os.path.realpath(path) for path in writable]
    return tuple(path for path in PROGRAM if any(is_below(path, each) for each in folders))


def secret_paths(own_homes: Iterable[str], state: str, settings: Settings) -> tuple[str, ...]:
    """The secret paths that exist: of the user, by absolute paths of the home directories, of
    clawkit, of other users and of the system. Of links, where they lead is meant."""
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
    """Looks for them before every command."""

    def __init__(
        self, is_denied: Callable[[str], bool], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`is_denied` judges an absolute path without links."""
        self._is_denied, self._clock = is_denied, clock
        self._known: dict[str, bool] = {}
        self._until = 0.0

    def find(self, workspace: str) -> list[str]:
        """The files and directories that are denied, nearest first; links are not followed. A
        directory that cannot be listed is one of them: a command could open it up. Blocks. Raises
        `ToolError` when the workspace has more entries than can be looked at."""
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
