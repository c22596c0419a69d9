"""The files of a container keep the contract. What they are says where they are on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contracts.files import FileSystemContract, Ground
from tests.contracts.test_files import LocalGround
from tests.tables import table

from clawkit.errors import ToolAuthorizationError
from clawkit.fs.local import LocalFileSystem
from clawkit.fs.protocols import Change, FileSystem
from clawkit.sandbox.paths import MountedFiles, to_here, to_inside
from clawkit.sandbox.protocols import Mount


class InsideGround(LocalGround):
    """A directory that commands find elsewhere."""

    def open(self) -> FileSystem:
        files = LocalFileSystem(self.workspace, journals=self._journals)
        return MountedFiles(files, (Mount(self.workspace, "/workspace", True),))


class TestFilesInside(FileSystemContract):
    @pytest.fixture
    def ground(self, tmp_path: Path) -> Ground:
        return InsideGround(tmp_path)

    async def test_paths_inside_lead_to_the_same_places(
        self, files: FileSystem, ground: Ground
    ) -> None:
        async with files.open("/workspace/dir/f") as file:
            assert file.place == f"{ground.workspace}/dir/f"
        (done,) = await files.change([Change("/workspace/new/g", b"x", like="/workspace/a.txt")])
        assert done.place == f"{ground.workspace}/new/g"
        for path in ("/workspace/../outside/f", "/etc/passwd", "/workspaces/f", "/"):
            with pytest.raises(ToolAuthorizationError):
                async with files.open(path):
                    pass


MOUNTS = (
    Mount("/home/me/ws", "/workspace", True),
    Mount("/home/me/ws/data", "/data", False),
    Mount("/home/me/other", "/workspace/other", True),
)


@table(
    ("here", "inside"),
    [
        ("/home/me/ws", "/workspace"),
        ("/home/me/ws/a b", "/workspace/a b"),
        ("/home/me/ws/data/x", "/data/x"),
        ("/home/me/other/x", "/workspace/other/x"),
    ],
)
def test_the_deepest_mount_counts(here: str, inside: str) -> None:
    assert to_inside(here, MOUNTS) == inside
    assert to_here(inside, MOUNTS) == here


def test_paths_that_are_not_mounted() -> None:
    assert to_inside("/home/me/wsx", MOUNTS) == "/home/me/wsx"
    assert to_here("/workspaces", MOUNTS) is None
    assert to_here("/tmp/x", MOUNTS) is None
    assert to_here("relative/x", MOUNTS) == "relative/x"
    assert to_here("/home/me/ws/x", MOUNTS) == "/home/me/ws/x"
