"""Finds programs that nobody who works in the workspace could have put there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence

_MAX_LINKS = 40
_PREFIX_PARTS = ("bin", "lib", "lib64", "libexec", "pyvenv.cfg")


class Programs:
    """The programs of this machine, without those in directories that an agent may write to."""

    def __init__(self, writable: Sequence[str], env: Mapping[str, str]) -> None:
        self.env = env
        self.home = env.get("HOME") or os.path.expanduser("~")
        self._writable = tuple({*map(os.path.abspath, writable), *map(os.path.realpath, writable)})
        self._found: dict[str, str | None] = {}
        given = env.get("PATH", os.defpath).split(os.pathsep)
        folders = (*given, os.path.dirname(sys.executable))
        self.path = tuple(dict.fromkeys(each for each in folders if self._is_sound(each)))

    def _is_sound(self, folder: str) -> bool:
        # A relative entry is looked up wherever a program happens to run, and what is in a
        # directory of shims starts whichever program a file in the project asks for.
        return (
            os.path.isabs(folder)
            and os.path.basename(folder.rstrip(os.sep)) != "shims"
            and self.is_safe(folder)
        )

    def is_safe(self, path: str) -> bool:
        """Whether neither a path nor a link that it leads through is in a writable directory."""
        try:
            return not any(
                is_within(step, each) for step in _steps(path) for each in self._writable
            )
        except OSError:
            return False

    def find(self, name: str) -> str | None:
        """The absolute path of a program; None when there is none that may be run."""
        if name not in self._found:
            places = [name] if os.path.isabs(name) else []
            if name and os.sep not in name:
                places = [os.path.join(folder, name) for folder in self.path]
            self._found[name] = next((each for each in places if self._is_program(each)), None)
        return self._found[name]

    def _is_program(self, path: str) -> bool:
        return os.path.isfile(path) and os.access(path, os.X_OK) and self.is_safe(path)

    def installation(self, program: str) -> tuple[str, ...]:
        """Files and directories that a program, or a script, needs of its own to run."""
        found: dict[str, None] = {}
        todo = [program]
        for each in todo:
            folder, name = os.path.split(each)
            real = os.path.realpath(each)
            # A link in a virtual environment makes the program one of that environment.
            for place in (os.path.join(os.path.realpath(folder), name), real):
                found |= dict.fromkeys(self._surroundings(place))
            interpreter = self._interpreter(real)
            if interpreter and interpreter not in todo:
                todo.append(interpreter)
        return tuple(found)

    def _surroundings(self, place: str) -> Iterator[str]:
        folder = os.path.dirname(place)
        parts = folder.split(os.sep)
        if "node_modules" in parts:
            yield os.sep.join(parts[: parts.index("node_modules") + 1])
            return
        prefix, last = os.path.split(folder)
        if last not in ("bin", "sbin", "libexec"):
            yield place if self._is_broad(folder) else folder
        elif self._is_broad(prefix):
            yield from (os.path.join(prefix, part) for part in _PREFIX_PARTS)
        else:
            yield prefix
        if place.startswith("/nix/store/"):
            yield "/nix/store"

    def _is_broad(self, folder: str) -> bool:
        """Whether a directory holds more than programs: a home, or what is hidden in one."""
        home = os.path.realpath(self.home)
        parent, name = os.path.split(folder)
        if folder.count(os.sep) < 2 or os.path.dirname(folder) == "/home":
            return True
        is_home = parent == home or os.path.dirname(parent) == "/home"
        return is_within(home, folder) or (is_home and name.startswith("."))

    def _interpreter(self, script: str) -> str | None:
        try:
            with open(script, "rb") as file:
                head = file.read(256)
        except OSError:
            return None
        if not head.startswith(b"#!"):
            return None
        words = os.fsdecode(head[2:].partition(b"\n")[0]).split()
        if words and os.path.basename(words[0]) == "env":
            words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        return self.find(words[0]) if words else None


def is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _steps(path: str) -> Iterator[str]:
    """Every place that following a path touches. Raises OSError when links go in circles."""
    done, todo, links = os.sep, path.split(os.sep)[::-1], 0
    while todo:
        part = todo.pop()
        if part in ("", os.curdir):
            continue
        if part == os.pardir:
            done = os.path.dirname(done)
            continue
        place = os.path.join(done, part)
        yield place
        if not os.path.islink(place):
            done = place
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(f"too many links on the way to {path!r}")
        target = os.readlink(place)
        if os.path.isabs(target):
            done = os.sep
        todo += target.split(os.sep)[::-1]
