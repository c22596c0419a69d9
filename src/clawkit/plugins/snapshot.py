"""The files of a plugin, read once: what is hashed is what runs.

A directory is read without following links, and modules are compiled from what was read. So no one
can change a file between check and use, and no cached bytecode is used.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType

from msgspec import Struct

from clawkit.errors import PluginError
from clawkit.store import why_foreign
from clawkit.text import human_size

MAX_FILES = 2_000
MAX_BYTES = 32 * 1024 * 1024
MAIN = "plugin.py"
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NOT_HASHED = ("__pycache__", "node_modules")


class Snapshot(Struct, frozen=True):
    """The files of a plugin by name relative to its directory, and their common hash."""

    location: str  # a file, or a directory with `plugin.py`
    main: str
    files: Mapping[str, bytes]
    sha256: str

    @property
    def source(self) -> bytes:
        return self.files[self.main]


def take_snapshot(location: str, main: str = "") -> Snapshot:
    """Read a plugin: one file, or everything in a directory. Raises `PluginError`."""
    is_folder = os.path.isdir(location) and not os.path.islink(location)
    above, name = (location, "") if is_folder else os.path.split(location)
    main = name or main or MAIN
    try:
        folder = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            names = _read_folder(folder, "", _Budget()) if is_folder else None
            files = dict(names or [(main, _read_file(main, folder, main, _Budget()))])
        finally:
            os.close(folder)
    except OSError as error:
        raise PluginError(f"{location} cannot be read: {error.strerror or error}") from None
    if main not in files:
        raise PluginError(f"the directory has no {main}")
    whole = hashlib.sha256()
    for name in sorted(files):
        whole.update(f"{name}\0{len(files[name])}\0".encode("utf-8", "surrogateescape"))
        whole.update(files[name])
    return Snapshot(location, main, files, whole.hexdigest())


class _Budget:
    files = bytes = 0

    def spend(self, size: int) -> None:
        self.files, self.bytes = self.files + 1, self.bytes + size
        if self.files > MAX_FILES or self.bytes > MAX_BYTES:
            limit = f"{MAX_FILES} files and {human_size(MAX_BYTES)}"
            raise PluginError(f"is too large: a plugin may have {limit}")


def _read_folder(folder: int, above: str, budget: _Budget) -> Iterator[tuple[str, bytes]]:
    for name in sorted(os.listdir(folder)):
        if name in _NOT_HASHED or name.startswith(".") or name.endswith(".pyc"):
            continue
        shown = f"{above}{name}"
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            inner = os.open(name, _FLAGS | os.O_DIRECTORY, dir_fd=folder)
            try:
                yield from _read_folder(inner, f"{shown}/", budget)
            finally:
                os.close(inner)
        else:
            yield shown, _read_file(name, folder, shown, budget)


def _read_file(name: str, folder: int, shown: str, budget: _Budget) -> bytes:
    if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        raise PluginError(f"{shown} is a symbolic link; a plugin must be the files themselves")
    with os.fdopen(os.open(name, _FLAGS, dir_fd=folder), "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise PluginError(f"{shown} is not a regular file")
        if why := why_foreign(info):
            raise PluginError(f"{shown} {why}")
        budget.spend(info.st_size)
        data = file.read(info.st_size + 1)
        if len(data) > info.st_size:
            raise PluginError(f"{shown} changed while it was read")
        return data


class SnapshotModules(SourceLoader, MetaPathFinder):  # type: ignore[misc]  # typeshed
    """Imports the modules of a snapshot as one package: they import each other relatively."""

    def __init__(self, snapshot: Snapshot, package: str) -> None:
        is_file = snapshot.main == os.path.basename(snapshot.location)
        folder = os.path.dirname(snapshot.location) if is_file else snapshot.location
        self._sources: dict[str, bytes] = {}
        self._places: dict[str, str] = {}
        for file, data in {"__init__.py": b"", **snapshot.files}.items():
            if file.endswith(".py"):
                place, steps = os.path.join(folder, file), file.removesuffix(".py").split("/")
                name = ".".join([package, *steps]).removesuffix(".__init__")
                self._places[name], self._sources[place] = place, data
        self.main = ".".join([package, *snapshot.main.removesuffix(".py").split("/")])

    def run(self) -> ModuleType:
        """Import the main module."""
        sys.meta_path.append(self)
        try:
            return importlib.import_module(self.main)
        except BaseException:
            sys.meta_path.remove(self)
            for name in self._places:
                sys.modules.pop(name, None)
            raise

    def find_spec(
        self, name: str, _path: object = None, _target: object = None
    ) -> ModuleSpec | None:
        return spec_from_loader(name, self) if name in self._places else None

    def get_filename(self, fullname: str) -> str:
        return self._places[fullname]

    def get_data(self, path: str | bytes) -> bytes:
        """Only sources: there is no bytecode, and none is written."""
        return self._sources[str(path)]
