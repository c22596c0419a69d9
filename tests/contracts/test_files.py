"""The files of this machine keep the contract."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contracts.files import FileSystemContract, Ground
from tests.fs.tricks import resolving_by_hand

from clawkit.fs.local import LocalFileSystem
from clawkit.fs.protocols import FileSystem


class LocalGround:
    """A directory for tests."""

    def __init__(self, tmp_path: Path) -> None:
        self._place = tmp_path.resolve() / "ground" / "ws"
        self._place.mkdir(parents=True)
        self.workspace = str(self._place)
        self._journals = str(tmp_path / "journals")

    def open(self) -> FileSystem:
        return LocalFileSystem(self.workspace, journals=self._journals)

    def put(self, path: str, data: bytes, mode: int = 0o644) -> None:
        file = self._place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        file.chmod(mode)

    def get(self, path: str) -> bytes | None:
        try:
            return (self._place / path).read_bytes()
        except (FileNotFoundError, IsADirectoryError):
            return None

    def mode(self, path: str) -> int:
        return (self._place / path).stat().st_mode & 0o777

    def link(self, path: str, target: str) -> None:
        (self._place / path).symlink_to(target)

    def names(self, path: str) -> list[str]:
        top = self._place / path
        return sorted(os.path.relpath(each, top) for each in top.rglob("*"))


class TestLocalFileSystem(FileSystemContract):
    @pytest.fixture
    def ground(self, tmp_path: Path) -> Ground:
        return LocalGround(tmp_path)


class TestLocalFileSystemByHand(FileSystemContract):
    """Where the kernel does not help."""

    @pytest.fixture
    def ground(self, tmp_path: Path) -> Iterator[Ground]:
        with resolving_by_hand():
            yield LocalGround(tmp_path)
