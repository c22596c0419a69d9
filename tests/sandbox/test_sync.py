"""Synchronizes two copies of a workspace; nothing is lost or written elsewhere."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.tables import table

from clawkit.errors import ToolError
from clawkit.sandbox.file_sync import (
    DIRECTORY,
    MAX_ENTRIES,
    MAX_FILE,
    FileState,
    Mirror,
    SyncPlan,
    check_manifest,
    explain_link,
)
from clawkit.sandbox.ssh_connection import convert


def file(text: str, mode: int = 0o644) -> FileState:
    return FileState("file", mode, len(text), hashlib.sha256(text.encode()).hexdigest())


def link(target: str) -> FileState:
    return FileState("link", target=target)


A, B, C = file("a"), file("b"), file("c")
ASIDE = f"f.remote-conflict-{C.sha256[:8]}"


@table(
    ("base", "local", "remote", "to_local", "to_remote", "conflicts"),
    [
        ({}, {}, {}, {}, {}, 0),
        ({"f": A}, {"f": A}, {"f": A}, {}, {}, 0),
        ({}, {"f": A}, {}, {}, {"f": A}, 0),
        ({}, {}, {"f": A}, {"f": A}, {}, 0),
        ({"f": A}, {"f": B}, {"f": A}, {}, {"f": B}, 0),
        ({"f": A}, {"f": A}, {"f": B}, {"f": B}, {}, 0),
        ({"f": A}, {}, {"f": A}, {}, {"f": None}, 0),
        ({"f": A}, {"f": A}, {}, {"f": None}, {}, 0),
        ({"f": A}, {}, {}, {}, {}, 0),
        ({"f": A}, {"f": B}, {"f": B}, {}, {}, 0),
        ({"f": A}, {"f": B}, {"f": C}, {ASIDE: C}, {"f": B, ASIDE: C}, 1),
        ({}, {"f": B}, {"f": C}, {ASIDE: C}, {"f": B, ASIDE: C}, 1),
        ({"f": A}, {}, {"f": C}, {ASIDE: C}, {"f": None, ASIDE: C}, 1),
        ({"f": A}, {"f": B}, {}, {}, {"f": B}, 1),
        ({"f": A}, {"f": A}, {"f": file("a", 0o755)}, {"f": file("a", 0o755)}, {}, 0),
        ({"f": A}, {"f": file("b", 0o755)}, {"f": B}, {}, {"f": file("b", 0o755)}, 0),
        ({"f": A}, {"f": link("x")}, {"f": A}, {}, {"f": link("x")}, 0),
        ({}, {"d": DIRECTORY, "d/f": A}, {}, {}, {"d": DIRECTORY, "d/f": A}, 0),
        ({"f": A}, {"f": A}, {"f": DIRECTORY, "f/g": B}, {"f": DIRECTORY, "f/g": B}, {}, 0),
        # A directory that is deleted on one side and gets a file on the other stays.
        (
            {"d": DIRECTORY, "d/f": A},
            {},
            {"d": DIRECTORY, "d/f": A, "d/new": B},
            {"d": DIRECTORY, "d/new": B},
            {"d/f": None},
            0,
        ),
        # A directory here and a file there: both stay.
        ({}, {"x": DIRECTORY, "x/f": A}, {"x": B}, {}, {}, 1),
        ({"x": A}, {"x": DIRECTORY, "x/f": A}, {"x": B}, {}, {}, 1),
        ({"x": DIRECTORY}, {"x": DIRECTORY, "x/f": A}, {"x": B}, {}, {}, 1),
    ],
)
def test_changes_on_one_side_are_copied_and_on_both_are_a_conflict(
    base: dict[str, FileState],
    local: dict[str, FileState],
    remote: dict[str, FileState],
    to_local: dict[str, FileState | None],
    to_remote: dict[str, FileState | None],
    conflicts: int,
) -> None:
    done = SyncPlan(base, local, remote)
    assert dict(done.to_local) == to_local
    assert dict(done.to_remote) == to_remote
    assert len(done.conflicts) == conflicts


def test_deletions_come_first_and_directories_before_their_files() -> None:
    base = {"a": DIRECTORY, "a/b": DIRECTORY, "a/b/f": A, "x": A}
    local = {"a": B, "x": DIRECTORY, "x/y": DIRECTORY, "x/y/f": C}
    steps = SyncPlan(base, local, base).to_remote
    assert [(path, entry and entry.kind) for path, entry in steps] == [
        ("x", None),
        ("a/b/f", None),
        ("a/b", None),
        ("a", None),
        ("a", "file"),
        ("x", "directory"),
        ("x/y", "directory"),
        ("x/y/f", "file"),
    ]


def test_with_the_remote_side_as_base_it_becomes_what_the_local_one_is() -> None:
    local = {"f": B, "d": DIRECTORY, "d/g": A, "x": A}
    remote = {"f": C, "theirs": A, "x": DIRECTORY, "x/y": A}
    done = SyncPlan(remote, local, remote)
    assert done.to_local == []
    assert not done.conflicts
    now = {**remote, **dict(done.to_remote)}
    assert {path: entry for path, entry in now.items() if entry} == local
    assert done.next_base() == local


def test_what_is_refused_stays_open_with_all_that_is_in_it() -> None:
    remote = {".git": DIRECTORY, ".git/config": A, ".git/HEAD": B, "f": C}
    done = SyncPlan({}, {}, remote)
    done.refuse(lambda path, _: "no" if path == ".git" else "")
    assert dict(done.to_local) == {"f": C}
    assert set(done.conflicts) == {".git", ".git/config", ".git/HEAD"}
    assert done.next_base() == {"f": C}


def test_the_remote_version_is_not_overwritten_when_it_could_not_be_kept() -> None:
    done = SyncPlan({"f": A}, {"f": B}, {"f": C})
    done.refuse(lambda path, _: "no" if path == ASIDE else "")
    assert (done.to_local, done.to_remote) == ([], [])
    assert done.next_base() == {"f": A}


def test_what_both_hold_is_the_next_base_and_what_differs_is_as_it_was() -> None:
    base = {"same": A, "gone": A, "open": A}
    local, remote = {"same": B, "open": B, "new": C}, {"same": B, "open": C, "new": C}
    done = SyncPlan(base, local, remote)
    done.leave({"open", *(path for path, _ in done.to_local)})
    assert done.next_base() == {"same": B, "open": A, "new": C}


def test_what_one_side_could_not_read_is_left_as_it_was_with_all_that_is_in_it() -> None:
    base = {"d": DIRECTORY, "d/f": A, "dx": A, "f": A}
    done = SyncPlan(base, {"d": DIRECTORY, "dx": B}, {"d": DIRECTORY, "d/f": C}, {"d", "f"})
    assert (done.to_local, done.to_remote) == ([], [("dx", B)])
    assert done.next_base() == {**base, "dx": B}


@table(
    ("path", "target", "is_refused"),
    [
        ("l", "f", False),
        ("d/l", "../f", False),
        ("l", "d/../f", False),
        ("l", "/etc/passwd", True),
        ("l", "..", True),
        ("l", "../x", True),
        ("d/l", "../../x", True),
        ("l", "d/../../x", True),
    ],
)
def test_links_out_of_the_workspace_are_refused(path: str, target: str, is_refused: bool) -> None:
    assert bool(explain_link(path, link(target))) == is_refused


def check(raw: Any) -> dict[str, FileState]:
    """As what comes over a connection."""
    found = convert(raw, dict[str, FileState])
    check_manifest(found)
    return found


def test_a_manifest_survives_being_sent() -> None:
    manifest = {"d": DIRECTORY, "d/ü\udcff": A, "l": link(".."), "run": file("x", 0o755)}
    assert check(json.loads(json.dumps(manifest))) == manifest


@table(
    "path",
    ["", "/etc/x", "..", "../x", "a/../b", "./a", "a//b", "a/", "a\0b", "x" * 256, "\ud800", "a/b"],
)
def test_paths_that_lead_elsewhere_are_refused(path: str) -> None:
    with pytest.raises(ToolError, match="remote side sent"):
        check({path: A})


@table(
    "raw",
    [
        None,
        [],
        {"f": []},
        {"f": "f"},
        {"f": ["device", 0, 0, "", ""]},
        {"f": ["file", 0o4755, 1, A.sha256, ""]},
        {"f": ["file", 0o644, -1, A.sha256, ""]},
        {"f": ["file", 0o644, 2**40, A.sha256, ""]},
        {"f": ["file", 0o644, 1, "../../x", ""]},
        {"f": ["file", True, 1, A.sha256, ""]},
        {"l": ["link", 0, 0, "", ""]},
        {"l": ["link", 0, 0, "", "a\0b"]},
        {"d": ["directory", 0, 5, "", ""]},
        {"f": A, "f/g": B},
        {"l": link("/etc"), "l/passwd": B},
    ],
)
def test_a_manifest_out_of_order_is_refused(raw: Any) -> None:
    with pytest.raises(ToolError, match="side sent"):
        check(raw)


def test_the_amount_of_copied_data_is_limited() -> None:
    many = {f"f{number}": A for number in range(MAX_ENTRIES + 1)}
    large = {f"f{number}": A._replace(size=MAX_FILE) for number in range(5)}
    for raw in (many, large):
        with pytest.raises(ToolError, match="remote side sent more"):
            check(raw)


# Real files


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "root"
    place.mkdir()
    return place


def test_a_scan_finds_files_directories_and_links_but_follows_none(root: Path) -> None:
    (root / "d").mkdir()
    (root / "d/f").write_text("a")
    (root / "run").write_text("b")
    (root / "run").chmod(0o700)
    (root / "l").symlink_to("/")
    os.mkfifo(root / "pipe")
    (root / ".clawkit-12.tmp").write_text("")
    found = Mirror(str(root)).scan()
    assert found == {"d": DIRECTORY, "d/f": A, "run": file("b", 0o755), "l": link("/")}


def test_hidden_files_are_not_scanned(root: Path) -> None:
    (root / "own").mkdir()
    (root / "own/secret").write_text("a")
    (root / "f").write_text("a")
    assert Mirror(str(root), {str(root / "own")}).scan() == {"f": A}


def test_a_change_is_seen_by_the_next_scan(root: Path) -> None:
    mirror = Mirror(str(root))
    (root / "f").write_text("a")
    assert mirror.scan() == {"f": A}
    (root / "f").write_text("b")
    assert mirror.scan() == {"f": B}


def test_applying_the_steps_produces_the_planned_tree(root: Path) -> None:
    mirror = Mirror(str(root))
    (root / "old").mkdir()
    (root / "old/f").write_text("a")
    (root / "kept").write_text("a")
    (root / "kept").chmod(0o600)
    mirror.scan()
    wanted = {"new": DIRECTORY, "new/f": B, "kept": file("c", 0o755), "l": link("new")}
    have = mirror.scan()
    steps = SyncPlan(have, have, wanted).to_local
    assert mirror.apply(steps, {"new/f": b"b", "kept": b"c"}) == {}
    assert mirror.scan() == wanted
    assert (root / "kept").stat().st_mode & 0o777 == 0o700


def test_a_file_that_changed_meanwhile_is_left_alone(root: Path) -> None:
    mirror = Mirror(str(root))
    (root / "f").write_text("a")
    (root / "g").write_text("a")
    mirror.scan()
    (root / "f").write_text("mine")
    (root / "new").write_text("mine")
    steps = [("f", B), ("g", None), ("new", B)]
    failed = mirror.apply(steps, {"f": b"b", "new": b"b"})
    assert set(failed) == {"f", "new"}
    assert (root / "f").read_text() == (root / "new").read_text() == "mine"
    assert not (root / "g").exists()


def test_content_that_differs_from_the_manifest_is_not_written(root: Path) -> None:
    mirror = Mirror(str(root))
    mirror.scan()
    assert set(mirror.apply([("f", A), ("g", A)], {"f": b"other"})) == {"f", "g"}
    assert os.listdir(root) == []


@pytest.mark.parametrize("path", ["out/f", "out/d/f", "../f"])
def test_steps_outside_the_directory_are_refused(root: Path, tmp_path: Path, path: str) -> None:
    outside = tmp_path / "outside"
    (outside / "d").mkdir(parents=True)
    (root / "out").symlink_to(outside)
    mirror = Mirror(str(root))
    mirror.scan()
    for steps in ([(path, A)], [(path, None)], [(path, DIRECTORY)], [(path, link("x"))]):
        assert set(mirror.apply(steps, {path: b"a"})) == {path}
    assert sorted(os.listdir(outside)) == ["d"]
    assert sorted(os.listdir(tmp_path)) == ["outside", "root"]
    assert mirror.read([path]) == {}


def test_a_directory_with_something_new_in_it_is_not_deleted(root: Path) -> None:
    mirror = Mirror(str(root))
    (root / "d").mkdir()
    mirror.scan()
    (root / "d/new").write_text("a")
    assert set(mirror.apply([("d", None)], {})) == {"d"}
    assert (root / "d/new").exists()


def test_a_missing_directory_is_not_treated_as_empty(root: Path) -> None:
    mirror = Mirror(str(root))
    root.rmdir()
    with pytest.raises(ToolError, match="cannot be read"):
        mirror.scan()
