"""What a run has seen of files."""

from __future__ import annotations

import pytest

from clawkit.errors import ConflictError
from clawkit.fs.protocols import Info
from clawkit.fs.read_versions import MAX_FILES, MAX_HASHED, ReadVersions


def info(version: str) -> Info:
    return Info("file", 1, 1, 0o644, version)


def test_a_file_that_is_as_it_was_passes() -> None:
    seen = ReadVersions()
    seen.check("/a", info("1"))
    seen.note("/a", info("1"))
    seen.check("/a", info("1"))
    seen.check("/b", info("2"))


def test_a_file_that_someone_else_changed_is_a_conflict() -> None:
    seen = ReadVersions()
    seen.note("/a", info("1"), b"old")
    for data in (b"new", None):
        with pytest.raises(ConflictError, match="'/a' was changed since you read it"):
            seen.check("/a", info("2"), data)
    seen.note("/a", info("2"), b"new")
    seen.check("/a", info("2"), b"new")


def test_the_same_content_written_again_is_not_a_change() -> None:
    seen = ReadVersions()
    seen.note("/a", info("1"), b"same")
    seen.check("/a", info("2"), b"same")


def test_content_that_was_not_recorded_is_compared_by_version() -> None:
    seen = ReadVersions()
    seen.note("/a", info("1"))
    with pytest.raises(ConflictError):
        seen.check("/a", info("2"), b"any")
    large = b"x" * (MAX_HASHED + 1)
    seen.note("/a", info("1"), large)
    with pytest.raises(ConflictError):
        seen.check("/a", info("2"), large)


def test_a_deleted_file_is_forgotten() -> None:
    seen = ReadVersions()
    seen.note("/a", info("1"))
    seen.note("/a", None)
    seen.check("/a", info("2"))


def test_the_files_seen_longest_ago_are_forgotten() -> None:
    seen = ReadVersions()
    for number in range(MAX_FILES):
        seen.note(f"/{number}", info("1"))
    seen.note("/0", info("1"))
    seen.note("/new", info("1"))
    seen.check("/1", info("2"))
    for kept in ("/0", "/2", "/new"):
        with pytest.raises(ConflictError):
            seen.check(kept, info("2"))
