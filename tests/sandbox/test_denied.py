"""Files that rules close to the file tools, and so to commands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.lacking import needs
from tests.sandbox.patient import open_patient_kit
from tests.scale import nest

from clawkit.errors import ToolError
from clawkit.sandbox.local import probe_bwrap
from clawkit.sandbox.paths import MAX_DEPTH, DeniedFiles
from clawkit.sandbox.tree_removal import remove_tree

CONFIG: dict[str, Any] = {
    "tools": {"rules": [{"tool": "read", "params": {"path": "*.pem"}, "effect": "deny"}]},
    "agents": {"defaults": {"sandbox": {"backend": "bwrap"}}},
}


def is_pem(path: str) -> bool:
    return path.endswith(".pem")


def fill(folder: Path, count: int) -> None:
    for number in range(count):
        os.close(os.open(folder / str(number), os.O_CREAT | os.O_WRONLY))


def test_denied_files_are_found_nearest_first_without_following_links(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "d.pem").mkdir()
    for name in ("a/x.pem", "z.pem", "d.pem/y.pem", "other"):
        (tmp_path / name).touch()
    (tmp_path / "link.pem").symlink_to("other")
    found = DeniedFiles(is_pem).find(str(tmp_path))
    assert found == [f"{os.path.realpath(tmp_path)}/{n}" for n in ("d.pem", "z.pem", "a/x.pem")]


def test_many_files_do_not_hide_a_denied_one(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/x.pem").touch()
    fill(tmp_path, 2_000)
    assert DeniedFiles(is_pem).find(str(tmp_path)) == [str(tmp_path / "sub/x.pem")]


def test_too_many_files_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clawkit.sandbox.paths.MAX_ENTRIES", 10)
    fill(tmp_path, 10)
    files = DeniedFiles(is_pem)
    assert files.find(str(tmp_path)) == []
    (tmp_path / "x.pem").touch()
    with pytest.raises(ToolError, match=r"too large to hide files that tools\.rules denies"):
        files.find(str(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root can list every directory")
def test_a_directory_that_cannot_be_listed_is_hidden(tmp_path: Path) -> None:
    (tmp_path / "shut").mkdir(mode=0)
    assert DeniedFiles(is_pem).find(str(tmp_path)) == [str(tmp_path / "shut")]
    (tmp_path / "shut").chmod(0o700)


def test_new_files_are_found_at_once_and_known_ones_judged_again_in_time(tmp_path: Path) -> None:
    now, judged = [0.0], list[str]()

    def is_denied(path: str) -> bool:
        now[0] += 1
        judged.append(os.path.basename(path))
        return is_pem(path)

    files = DeniedFiles(is_denied, clock=lambda: now[0])
    (tmp_path / "a.pem").touch()
    assert len(files.find(str(tmp_path))) == 1
    (tmp_path / "b.pem").touch()
    assert len(files.find(str(tmp_path))) == 2
    assert judged == ["a.pem", "b.pem"]
    now[0] += 1000
    assert len(files.find(str(tmp_path))) == 2
    assert judged == ["a.pem", "b.pem", "a.pem", "b.pem"]


@needs(not probe_bwrap(), "bwrap")
async def test_commands_cannot_read_denied_files_however_new(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_patient_kit(workspace, config=CONFIG) as kit:

        async def look() -> str:
            return (await kit.call("exec", {"command": "cat *.pem; true"})).as_text()

        (workspace / "a.pem").write_text("CANARY")
        assert "CANARY" not in await look()
        (workspace / "b.pem").write_text("CANARY")
        assert "CANARY" not in await look()
        monkeypatch.setattr("clawkit.sandbox.paths.MAX_ENTRIES", 1)
        assert "too large to hide files that tools.rules denies" in await look()


def test_a_directory_that_is_too_deep_is_denied_at_once(tmp_path: Path) -> None:
    """Every path is resolved, so a deep tree of a command could take hours before the next one."""
    (tmp_path / "a").mkdir()
    nest(tmp_path / "a", 1_000)
    judged: list[str] = []

    def judge(path: str) -> bool:
        judged.append(path)
        return False

    found = DeniedFiles(judge).find(str(tmp_path))
    assert found == [str(tmp_path / "a" / "/".join("d" * (MAX_DEPTH - 1)))]
    assert len(judged) == MAX_DEPTH
    remove_tree(str(tmp_path / "a"))
