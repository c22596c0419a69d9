"""The files of a plugin, read once: what is hashed is what runs.

A directory is read without following links, and modules are compiled from what was read. So no one
can change a file between check and use, and no cached bytecode is used.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, ModuleType
from typing import Any

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
    try:
        info = os.lstat(location)
        if stat.S_ISDIR(info.st_mode):
            folder = os.open(location, _FLAGS | os.O_DIRECTORY)
            main = main or MAIN
        else:
            folder = os.open(os.path.dirname(location) or "/", os.O_RDONLY | os.O_DIRECTORY)
            main = os.path.basename(location)
        try:
            if stat.S_ISDIR(info.st_mode):
                files = dict(_read_folder(folder, "", _Budget()))
            else:
                files = {main: _read_file(main, folder, main, _Budget())}
        finally:
            os.close(folder)
    except OSError as error:
        raise PluginError(f"cannot be read: {error.strerror or error}") from None
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


class SnapshotModules:
    """Imports the modules of a snapshot as one package: they import each other relatively."""

    def __init__(self, snapshot: Snapshot, package: str) -> None:
        self._package = package
        self._folder = snapshot.location
        if len(snapshot.files) == 1 and not os.path.isdir(snapshot.location):
            self._folder = os.path.dirname(snapshot.location)
        self._files = {
            self._name(file): (file, data)
            for file, data in snapshot.files.items()
            if file.endswith(".py")
        }

    def _name(self, file: str) -> str:
        parts = file.removesuffix(".py").split("/")
        return ".".join([self._package, *(parts[:-1] if parts[-1] == "__init__" else parts)])

    def run(self, main: str) -> ModuleType:
        """Import the module in the file `main`."""
        sys.meta_path.append(self)
        try:
            return importlib.import_module(self._name(main))
        except BaseException:
            for name in [name for name in sys.modules if self._is_ours(name)]:
                del sys.modules[name]
            sys.meta_path.remove(self)
            raise

    def _is_ours(self, name: str) -> bool:
        return name == self._package or name.startswith(f"{self._package}.")

    def find_spec(
        self, name: str, _path: object = None, _target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not self._is_ours(name):
            return None
        file, _ = self._files.get(name, ("", b""))
        is_package = file.endswith("__init__.py") or (
            not file and any(each.startswith(f"{name}.") for each in self._files)
        )
        if not file and not is_package:
            return None
        spec = importlib.machinery.ModuleSpec(name, self, is_package=is_package)  # type: ignore[arg-type]
        if file:
            spec.origin, spec.has_location = os.path.join(self._folder, file), True
        return spec

    def create_module(self, _spec: object) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        if (code := self.get_code(module.__name__)) is not None:
            exec(code, module.__dict__)  # noqa: S102  # what the owner enabled

    def get_code(self, name: str) -> CodeType | None:
        if name not in self._files:
            return None
        file, data = self._files[name]
        made: Any = compile(data, os.path.join(self._folder, file), "exec", dont_inherit=True)
        return made  # type: ignore[no-any-return]

    def get_source(self, name: str) -> str | None:
        """For tracebacks."""
        _, data = self._files.get(name, ("", None))
        return None if data is None else importlib.util.decode_source(data)
