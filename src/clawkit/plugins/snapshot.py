"""The files of a plugin, read once, so that the hashed bytes are the ones that run.

A directory is read without following links, and modules are compiled from these bytes. So files
cannot change between check and use, and no cached bytecode is used.
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
from clawkit.plugins.manifest import is_hashed
from clawkit.store import why_foreign
from clawkit.text import human_size

MAX_FILES = 2_000
MAX_BYTES = 32 * 1024 * 1024
MAIN = "plugin.py"
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


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
        files = dict(_read_files(os.path.realpath(above), name))
    except OSError as error:
        raise PluginError(f"{location} cannot be read: {error.strerror or error}") from None
    if main not in files:
        raise PluginError(f"the directory has no {main}")
    whole = hashlib.sha256()
    for name in sorted(files):
        whole.update(f"{name}\0{len(files[name])}\0".encode("utf-8", "surrogateescape"))
        whole.update(files[name])
    return Snapshot(location, main, files, whole.hexdigest())


def _read_files(folder: str, only: str) -> Iterator[tuple[str, bytes]]:
    """The files below a directory, or one of them, without following links."""
    count, left = 0, MAX_BYTES
    for here, folders, names, fd in os.fwalk(folder, onerror=_fail):
        kept = [only] if only else [*filter(is_hashed, (*folders, *names))]
        folders[:] = [] if only else [*filter(is_hashed, folders)]
        for name in kept:
            shown = os.path.relpath(os.path.join(here, name), folder)
            mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                continue
            if stat.S_ISLNK(mode):
                raise PluginError(
                    f"{shown} is a symbolic link; a plugin must contain the files themselves"
                )
            with os.fdopen(os.open(name, _FLAGS, dir_fd=fd), "rb") as file:
                info = os.fstat(file.fileno())
                if not stat.S_ISREG(info.st_mode):
                    raise PluginError(f"{shown} is not a regular file")
                if why := why_foreign(info):
                    raise PluginError(f"{shown} {why}")
                count, left = count + 1, left - info.st_size
                if count > MAX_FILES or left < 0:
                    limit = f"{MAX_FILES} files and {human_size(MAX_BYTES)}"
                    raise PluginError(f"is too large: a plugin may have {limit}")
                data = file.read(info.st_size + 1)
            if len(data) > info.st_size:
                raise PluginError(f"{shown} changed while it was read")
            yield shown, data


def _fail(error: OSError) -> None:
    raise error


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
        sys.meta_path.insert(0, self)  # before files in the current directory
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
        """Returns sources only: bytecode is neither read nor written."""
        return self._sources[str(path)]
