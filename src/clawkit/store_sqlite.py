"""An SQLite file that is the user's own and that any number of processes and threads share."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import TYPE_CHECKING

from clawkit.errors import ToolError
from clawkit.store import private_dir

if TYPE_CHECKING:
    from apsw import Connection

_ELSEWHERE = "CLAWKIT_HOME to a directory that can be written"
_ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "; free some space"),
    **dict.fromkeys((errno.EROFS, errno.EACCES), f"; set {_ELSEWHERE}"),
}
_TROUBLE = {
    **dict.fromkeys(("BusyError", "LockedError"), "another process keeps it locked; try again"),
    **dict.fromkeys(
        ("FullError", "IOError"), "it cannot be read or written; is the disk full? Free some space"
    ),
    **dict.fromkeys(("CorruptError", "NotADBError"), "it is damaged; move it away"),
    **dict.fromkeys(
        ("ReadOnlyError", "CantOpenError"),
        f"it cannot be written; is the disk read-only? Set {_ELSEWHERE}",
    ),
}
_inherited: list[Connection] = []
"""Of the process that this one was forked from: to close them would be to drop its locks."""


class Database:
    """One file. It is made when it is first used, and only ever seen whole.

    Whatever goes wrong with it is a `ToolError` that says which file it is and what to do.
    """

    def __init__(
        self,
        path: str,
        what: str,
        application: int,
        migrations: Sequence[str],
        *,
        lock_wait_s: float = 2.0,
        outlives_power: bool = False,
    ) -> None:
        """`what` is what people call it; `application` tells its files from those of others.

        The first of the `migrations` makes the tables, and each further one brings a file of the
        version before it up to date. With `outlives_power` nothing that was written is lost when
        the power goes, else only what was written just before; a process that is killed loses
        nothing either way.
        """
        self.path = os.path.abspath(path)
        self._what = what
        self._application = application
        self._migrations = tuple(migrations)
        self._lock_wait_ms = round(lock_wait_s * 1000)
        self._sync = "FULL" if outlives_power else "NORMAL"
        self._lock = threading.Lock()
        self._db: Connection | None = None
        self._identity = (0, 0, 0)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A change that happens whole or not at all."""
        with self.using() as db:
            # `with db` would wait for a lock without letting the thread go on that holds it.
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")

    @contextmanager
    def using(self) -> Iterator[Connection]:
        """The connection, for this thread alone."""
        import apsw

        with self._lock:
            try:
                yield self._connect()
            except apsw.Error as error:
                self._leave()
                raise self.broken(_TROUBLE.get(type(error).__name__, str(error))) from error
            except OSError as error:
                raise self.broken(_describe(error)) from error

    def broken(self, why: str) -> ToolError:
        return ToolError(f"{self.path}: {self._what} cannot be used: {why}")

    def close(self) -> None:
        with self._lock:
            self._leave()

    def _connect(self) -> Connection:
        """The connection; a new one when the file or the process is not the same any more."""
        info = self._look()
        identity = os.getpid(), info.st_dev, info.st_ino
        if self._db is None or identity != self._identity:
            self._leave()
            self._db, self._identity = self._open(), identity
        return self._db

    def _look(self) -> os.stat_result:
        """The file, made when there is none. It is never opened here: closing it again would drop
        the locks that another connection of this process holds."""
        try:
            info = os.lstat(self.path)
        except FileNotFoundError:
            private_dir(os.path.dirname(self.path))
            self._create()
            info = os.lstat(self.path)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid():
            raise self.broken("it is not a file of your own; move it away")
        if info.st_mode & 0o077:
            raise self.broken("it is open to other users; run `chmod 600` on it")
        return info

    def _create(self) -> None:
        """A new database that appears whole; one that somebody else just made is left alone."""
        import apsw

        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(f"{self.path}.lock", flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.lexists(self.path):
                return
            # What is left of an earlier file would be taken for changes to this one.
            for rest in ("-wal", "-shm", ".new", ".new-wal", ".new-shm"):
                with suppress(FileNotFoundError):
                    os.unlink(self.path + rest)
            temp = f"{self.path}.new"
            os.close(os.open(temp, flags | os.O_EXCL, 0o600))
            with closing(apsw.Connection(temp, apsw.SQLITE_OPEN_READWRITE)) as db:
                db.execute("PRAGMA journal_mode = WAL")
                self._migrate(db, 0)
                db.pragma("application_id", self._application)
            os.rename(temp, self.path)
        finally:
            os.close(lock)

    def _open(self) -> Connection:
        import apsw

        folder, name = os.path.split(self.path)
        private_dir(folder)
        # The file itself must not be a link; the home may be behind one.
        place = os.path.join(os.path.realpath(folder), name)
        with ExitStack() as undo:
            db = apsw.Connection(place, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW)
            undo.callback(db.close, True)
            db.set_busy_timeout(self._lock_wait_ms)
            db.execute(f"PRAGMA synchronous = {self._sync}; PRAGMA trusted_schema = OFF")
            self._bring_up_to_date(db)
            undo.pop_all()
        return db

    def _bring_up_to_date(self, db: Connection) -> None:
        version = db.pragma("user_version")
        is_ours = db.pragma("application_id") == self._application
        if not is_ours or not 0 < version <= len(self._migrations):
            raise self.broken("it is not of this version of clawkit; move it away")
        if version < len(self._migrations):
            db.execute("BEGIN IMMEDIATE")
            # Somebody else may have done it meanwhile.
            self._migrate(db, db.pragma("user_version"))
            db.execute("COMMIT")

    def _migrate(self, db: Connection, version: int) -> None:
        for step in self._migrations[version:]:
            db.execute(step)
        db.pragma("user_version", len(self._migrations))

    def _leave(self) -> None:
        if self._db is not None and self._identity[0] != os.getpid():
            _inherited.append(self._db)
        elif self._db is not None:
            self._db.close(True)
        self._db = None


def _describe(error: OSError) -> str:
    """What the system said about which file, and what to do."""
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}{_ADVICE.get(error.errno or 0, '')}"
