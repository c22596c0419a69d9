"""The cache of web pages and search results."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import apsw
import pytest

from clawkit.web.cache import Cache


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "web.sqlite"


def test_a_value_is_kept_until_it_expires_and_in_a_private_file(path: Path) -> None:
    cache = Cache(path)
    assert cache.get("a") is None
    cache.put("a", b"1", 60)
    cache.put("a", b"2", 60)
    cache.put("\ud800", b"3", 60)
    assert (cache.get("a"), cache.get("\ud800"), cache.get("b")) == (b"2", b"3", None)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    # Another process would see it, and so does this one after closing.
    cache.close()
    assert (cache.get("a"), Cache(path).get("a")) == (b"2", b"2")
    cache.put("a", b"4", 1e-9)
    assert cache.get("a") is None


def test_nothing_is_kept_without_time_to_live(path: Path) -> None:
    cache = Cache(path)
    cache.put("a", b"1", 0)
    assert not path.exists()
    assert cache.get("a") is None


def test_the_oldest_are_removed_when_there_are_too_many_or_they_are_too_large(path: Path) -> None:
    few = Cache(path, max_entries=3)
    for name in "abcd":
        few.put(name, name.encode(), 60)
    assert [few.get(name) for name in "abcd"] == [None, b"b", b"c", b"d"]
    small = Cache(path, max_bytes=10)
    small.put("e", b"12345678", 60)
    assert [small.get(name) for name in "bcde"] == [None, b"c", b"d", b"12345678"]
    small.put("f", b"123456789", 60)
    assert [small.get(name) for name in "cdef"] == [None, None, None, b"123456789"]
    small.put("g", b"12345678901", 60)
    assert (small.get("f"), small.get("g")) == (b"123456789", None)


def test_entries_from_the_future_are_not_used(path: Path) -> None:
    cache = Cache(path)
    cache.put("a", b"1", 60)
    with apsw.Connection(str(path)) as db:
        db.execute("UPDATE answer SET made = made + 1000, until = until + 1000")
    assert cache.get("a") is None


def test_a_damaged_file_is_replaced(path: Path) -> None:
    cache = Cache(path)
    cache.put("a", b"1", 60)

    def overwrite() -> None:
        cache.close()
        path.write_bytes(os.urandom(8_192))

    def drop() -> None:
        with apsw.Connection(str(path)) as db:
            db.execute("DROP TABLE answer")

    def expose() -> None:
        path.chmod(0o644)

    def link() -> None:
        path.unlink()
        path.symlink_to("/etc/passwd")

    for damage in (overwrite, drop, expose, link):
        damage()
        assert cache.get("a") is None, damage.__name__
        cache.put("a", b"2", 60)
        assert cache.get("a") == b"2", damage.__name__
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600


def test_a_cache_that_cannot_be_used_is_empty(path: Path, tmp_path: Path) -> None:
    cache = Cache(path)
    cache.put("a", b"1", 60)
    cache.close()
    db = apsw.Connection(str(path))
    db.execute("BEGIN EXCLUSIVE")
    cache.put("a", b"2", 60)
    db.close(True)
    assert cache.get("a") == b"1"
    (tmp_path / "file").write_text("")
    nowhere = Cache(tmp_path / "file" / "web.sqlite")
    nowhere.put("a", b"1", 60)
    assert nowhere.get("a") is None
