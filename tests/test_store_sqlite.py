"""A database file that any number of processes and threads share; more of it in the tests of what
is kept in one."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest

from clawkit.errors import ToolError, ToolInputError
from clawkit.store import Database

FIRST = "CREATE TABLE note (text TEXT NOT NULL) STRICT;"
SECOND = "ALTER TABLE note ADD COLUMN at INTEGER NOT NULL DEFAULT 7;"
THIRD = "CREATE INDEX note_by_time ON note (at); UPDATE note SET at = at + 1;"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "home" / "notes.sqlite")


def open_(path: str, migrations: Sequence[str] = (FIRST,), application: int = 5) -> Database:
    return Database(path, "the store of notes", application, migrations)


def add(database: Database, text: str) -> None:
    with database.writing() as db:
        db.execute("INSERT INTO note (text) VALUES (?)", (text,))


def rows(database: Database) -> list[tuple[object, ...]]:
    with database.using() as db:
        return db.execute("SELECT * FROM note").fetchall()


def test_a_file_of_an_older_version_is_brought_up_to_date(path: str) -> None:
    old = open_(path)
    add(old, "kept")
    old.close()
    new = open_(path, (FIRST, SECOND, THIRD))
    assert rows(new) == [("kept", 8)]
    new.close()
    # Once, not every time.
    assert rows(open_(path, (FIRST, SECOND, THIRD))) == [("kept", 8)]
    fresh = open_(f"{path}2", (FIRST, SECOND, THIRD))
    add(fresh, "new")
    assert rows(fresh) == [("new", 7)]


def test_concurrent_upgrades_are_done_once(path: str) -> None:
    old = open_(path)
    add(old, "kept")
    old.close()
    barrier, found = threading.Barrier(5), []

    def work() -> None:
        mine = open_(path, (FIRST, SECOND, THIRD))
        barrier.wait()
        found.append(rows(mine))
        mine.close()

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[("kept", 8)]] * 5


def test_a_step_that_fails_leaves_the_file_as_it_was(path: str) -> None:
    old = open_(path)
    add(old, "kept")
    old.close()
    new = open_(path, (FIRST, SECOND, "CREATE TABLE note (x)"))
    for _ in range(2):
        with pytest.raises(ToolError, match="note already exists"):
            rows(new)
    assert rows(open_(path)) == [("kept",)]


@pytest.mark.parametrize("application", [0, 4, 2**31 - 1])
def test_a_database_of_another_program_is_not_changed(path: str, application: int) -> None:
    ours = open_(path)
    add(ours, "kept")
    ours.close()
    with pytest.raises(ToolError, match="of this version of clawkit; move it away") as caught:
        rows(open_(path, application=application))
    assert not isinstance(caught.value, ToolInputError)
    assert rows(open_(path)) == [("kept",)]


def test_a_failed_change_is_rolled_back(path: str) -> None:
    database = open_(path)
    add(database, "kept")

    def change(*steps: str) -> None:
        with database.writing() as db:
            for step in steps:
                db.execute(step)
            raise KeyError("never mind")

    with pytest.raises(KeyError):
        change("DELETE FROM note")
    assert rows(database) == [("kept",)]
    with pytest.raises(ToolError, match="NOT NULL"):
        change("DELETE FROM note", "INSERT INTO note VALUES (NULL)")
    assert rows(database) == [("kept",)]


@pytest.mark.parametrize(("outlives_power", "level"), [(False, 1), (True, 2)])
def test_the_synchronous_level_depends_on_outlives_power(
    path: str, outlives_power: bool, level: int
) -> None:
    database = Database(path, "it", 5, (FIRST,), outlives_power=outlives_power)
    with database.using() as db:
        assert db.pragma("synchronous") == level
        assert db.pragma("journal_mode") == "wal"


def test_a_file_that_was_replaced_is_opened_anew(path: str) -> None:
    database, other = open_(path), open_(f"{path}.other")
    add(database, "old")
    add(other, "new")
    other.close()
    os.replace(other.path, path)
    for end in ("-wal", "-shm"):
        Path(path + end).unlink()
    assert rows(database) == [("new",)]


def test_a_read_only_file_is_an_error(path: str) -> None:
    database = open_(path)
    add(database, "kept")
    with database.using() as db:
        db.pragma("query_only", True)
    with pytest.raises(ToolError, match="it cannot be written; check its permissions"):
        add(database, "more")
    # A new connection has forgotten about it.
    add(database, "more")
    assert len(rows(database)) == 2


@pytest.mark.parametrize(
    ("code", "do"),
    [
        (errno.EROFS, "; set CLAWKIT_HOME to a writable directory"),
        (errno.EACCES, "; set CLAWKIT_HOME to a writable directory"),
        (errno.ENOSPC, "; free some space"),
        (errno.EDQUOT, "; free some space"),
        (errno.ELOOP, ""),
    ],
)
def test_a_directory_that_cannot_be_created_is_an_error_with_advice(
    path: str, monkeypatch: pytest.MonkeyPatch, code: int, do: str
) -> None:
    def refuse(folder: str, mode: int) -> None:
        raise OSError(code, os.strerror(code), folder)

    monkeypatch.setattr("os.mkdir", refuse)
    with pytest.raises(ToolError) as caught:
        rows(open_(path))
    folder = os.path.dirname(path)
    why = f"{folder}: {os.strerror(code)}{do}"
    assert str(caught.value) == f"{path}: the store of notes cannot be used: {why}"


def test_an_error_without_a_file_name_is_reported_without_one(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(lock: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(ToolError, match=r"cannot be used: No locks available$"):
        rows(open_(path))


def test_the_library_is_not_loaded_to_name_a_file(path: str) -> None:
    assert open_(path).path == path
    assert not os.path.exists(path)
    assert apsw.sqlite_lib_version()
