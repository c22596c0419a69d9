from __future__ import annotations

import os
from pathlib import Path

from tests.tables import table

from clawkit.lsp.client import CHANGED, CREATED, DELETED, to_path, to_uri
from clawkit.lsp.pool import MAX_FILES, WatchedTree


def tree(root: Path) -> WatchedTree:
    return WatchedTree(str(root), lambda name: name.endswith(".py"))


def test_changes_since_the_last_look_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("stays.py", "sub/grows.py", "goes.py"):
        (tmp_path / name).write_text("x")
    watched = tree(tmp_path)
    assert watched.changes() == {}
    (tmp_path / "sub/grows.py").write_text("xx")
    (tmp_path / "goes.py").unlink()
    (tmp_path / "comes.py").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "link.py").symlink_to("stays.py")
    assert watched.changes() == {
        str(tmp_path / "sub/grows.py"): CHANGED,
        str(tmp_path / "goes.py"): DELETED,
        str(tmp_path / "comes.py"): CREATED,
        str(tmp_path / "link.py"): CREATED,
    }
    assert watched.changes() == {}


def test_what_others_own_is_not_looked_at(tmp_path: Path) -> None:
    watched = tree(tmp_path)
    watched.changes()
    for name in ("node_modules", ".venv", "__pycache__"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.py").touch()
    assert watched.changes() == {}


def test_a_file_beyond_the_limit_is_not_taken_for_deleted(tmp_path: Path) -> None:
    for number in range(MAX_FILES):
        (tmp_path / f"{number}.py").touch()
    watched = tree(tmp_path)
    watched.changes()
    for number in range(50):
        (tmp_path / f"new{number}.py").touch()
    assert DELETED not in watched.changes().values()


def test_a_missing_directory_has_no_files(tmp_path: Path) -> None:
    assert tree(tmp_path / "missing").changes() == {}


@table("path", ["/a", "/a b/ü#?%20+", "/a:b/[c]", "/x\udcff"])
def test_paths_survive_as_uris(path: str) -> None:
    uri = to_uri(path)
    assert uri.isascii()
    assert not set(uri) & set(" #?")
    assert to_path(uri) == path


@table(
    ("uri", "path"),
    [
        ("file://localhost/a%20b", "/a b"),
        ("file:///%2e%2e/a", "/../a"),
        ("file://other/a", ""),
        ("https://example.com/a", ""),
        ("untitled:1", ""),
        ("", ""),
    ],
)
def test_only_files_of_this_machine_have_a_path(uri: str, path: str) -> None:
    assert to_path(uri) == path


def test_names_that_are_not_text_are_watched(tmp_path: Path) -> None:
    watched = tree(tmp_path)
    watched.changes()
    place = os.path.join(str(tmp_path), "\udcff.py")
    with open(place, "w"):
        pass
    assert watched.changes() == {place: CREATED}
