"""Files of the user: atomic writes, private directories, locks, and SQLite databases.

Functions for plain files raise OSError, including for their own checks, so that callers have one
exception to catch. Locks and databases raise `ToolError`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from itertools import pairwise
from typing import TYPE_CHECKING

from clawkit.errors import ConflictError, ToolError

if TYPE_CHECKING:
    from apsw import Connection


_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ELSEWHERE = "CLAWKIT_HOME to a writable directory"
_ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "; free some space"),
    **dict.fromkeys((errno.EROFS, errno.EACCES), f"; set {_ELSEWHERE}"),
}
_TROUBLE = {
    # ProtocolError: it stayed busy for seconds while SQLite began to read, which bypasses the busy
    # handler.
    **dict.fromkeys(
        ("BusyError", "LockedError", "ProtocolError"), "it is locked by another process; try again"
    ),
    **dict.fromkeys(
        ("FullError", "IOError"), "it cannot be read or written; is the disk full? Free some space"
    ),
    **dict.fromkeys(("CorruptError", "NotADBError"), "it is damaged; move it away"),
    **dict.fromkeys(
        ("ReadOnlyError", "CantOpenError"),
        f"it cannot be written; check its permissions and the disk, or set {_ELSEWHERE}",
    ),
}
_POLL_S = 0.01
_inherited: list[Connection] = []
"""Connections inherited by fork. Closing them would drop the locks of the parent process."""


def write_atomic(path: str | os.PathLike[str], data: bytes, *, mode: int = 0o600) -> None:
    """Create or replace the file at `path`; on any failure it is unchanged. The new file gets
    `mode`, minus the bits that an existing file lacks, and keeps the owner of an existing file if
    root writes. Symbolic links and anything but a regular file are refused. Returns once the data
    and the directory entry are on disk."""
    folder, name = os.path.split(os.fspath(path))
    folder_fd = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        old = _stat_regular(name, folder_fd, path)
        temp = f".clawkit-{os.urandom(8).hex()}.tmp"
        placed = False
        try:
            fd = os.open(temp, _CREATE, 0o600, dir_fd=folder_fd)
            with os.fdopen(fd, "wb", buffering=0):
                if old:
                    mode &= old.st_mode
                    if os.geteuid() == 0 != old.st_uid:
                        os.fchown(fd, old.st_uid, old.st_gid)
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(fd, rest) :]
                os.fchmod(fd, mode & 0o777)
                os.fsync(fd)
            os.replace(temp, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
            placed = True
        finally:
            if not placed:
                with suppress(OSError):
                    os.unlink(temp, dir_fd=folder_fd)
        os.fsync(folder_fd)
    finally:
        os.close(folder_fd)


def _stat_regular(
    name: str, folder_fd: int | None, path: str | os.PathLike[str]
) -> os.stat_result | None:
    """Stat the regular file at `name`; None if there is none. Anything else is refused."""
    try:
        info = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    except FileNotFoundError:
        if name:
            return None
        raise
    if stat.S_ISLNK(info.st_mode):
        raise OSError(errno.ELOOP, "is a symbolic link; give the path of the file itself", path)
    if stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is a directory, not a file", path)
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.EINVAL, "is not a regular file", path)
    return info


def private_dir(path: str | os.PathLike[str]) -> None:
    """Create a directory, and missing parents, with mode 0700. An existing directory is left
    unchanged, and refused if other users can write to it."""
    missing = os.path.abspath(path)
    to_make: list[str] = []
    while not os.path.lexists(missing):
        to_make.append(missing)
        missing = os.path.dirname(missing)
    for folder in reversed(to_make):
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
    info = os.stat(path)
    if not stat.S_ISDIR(info.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "is not a directory", path)
    if os.geteuid() not in (0, info.st_uid):
        raise PermissionError(errno.EPERM, "belongs to another user", path)
    if info.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "can be written by others; run `chmod go-w` on it", path)


def open_private(
    path: str, flags: int = os.O_RDONLY, *, dir_fd: int | None = None, shared_ok: bool = False
) -> int:
    """Open a regular file that belongs to this user or root; with O_CREAT, a new one has mode 0600.
    Symbolic links are refused, and files that other users can write to unless `shared_ok`. Never
    blocks. Raises OSError with a remedy."""
    try:
        fd = os.open(path, flags | _SAFE, 0o600, dir_fd=dir_fd)
    except OSError as error:
        if error.errno == errno.ELOOP:
            error.strerror = "is a symbolic link; replace it with the file itself"
        raise
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.EINVAL, "is not a regular file; move it away", path)
        require_private(path, info, shared_ok=shared_ok)
    except OSError:
        os.close(fd)
        raise
    return fd


def require_private(path: str, info: os.stat_result, *, shared_ok: bool = False) -> None:
    """Raises PermissionError if another user, except root, owns `path` or can write to it."""
    if info.st_uid not in (0, os.geteuid()):
        raise PermissionError(errno.EPERM, "belongs to another user; change that with chown", path)
    if info.st_mode & 0o022 and not shared_ok:
        raise PermissionError(errno.EPERM, "can be written by others; run `chmod go-w` on it", path)


def why_foreign(info: os.stat_result) -> str:
    """Why other users may have written a file; empty if only its owner and root could."""
    if os.geteuid() != 0 and info.st_uid not in (0, os.geteuid()):
        return "belongs to another user"
    return "can be written by others" if info.st_mode & 0o022 else ""


def backups_of(path: str, keep: int = 5) -> list[str]:
    """The paths of the backups that `rotate_backups` makes of a file, newest first."""
    return [f"{path}.bak", *(f"{path}.bak.{number}" for number in range(1, keep))]


def rotate_backups(path: str | os.PathLike[str], keep: int = 5) -> None:
    """Copy the file to `.bak`, after moving that to `.bak.1` and so on; keeps `keep` copies. Does
    nothing if the file does not exist. Copies have the mode of the file, at most 0600."""
    info = _stat_regular(os.fspath(path), None, path)
    if not info:
        return
    with os.fdopen(os.open(path, os.O_RDONLY | _SAFE), "rb") as file:
        data = file.read()
    names = backups_of(os.fspath(path), keep)
    for newer, older in reversed(list(pairwise(names))):
        if os.path.lexists(newer):
            os.replace(newer, older)
    write_atomic(names[0], data, mode=info.st_mode & 0o600)


@contextmanager
def locked(path: str, *, wait_s: float | None = None, dir_fd: int | None = None) -> Iterator[None]:
    """Hold the lock file at `path`, created if missing, for the duration of one change. The kernel
    releases it however the process ends. Raises TimeoutError if another process still holds it
    after `wait_s`; None waits without a limit. Raises OSError for a file of another user."""
    fd = open_private(path, os.O_RDWR | os.O_CREAT, dir_fd=dir_fd, shared_ok=True)
    try:
        if wait_s is None:
            fcntl.flock(fd, fcntl.LOCK_EX)
        else:
            lock_within(fd, path, wait_s)
        yield
    finally:
        os.close(fd)


@asynccontextmanager
async def locked_async(path: str, *, wait_s: float | None = None) -> AsyncIterator[None]:
    """`locked`, but other tasks run meanwhile."""
    import asyncio

    deadline = time.monotonic() + wait_s if wait_s is not None else None
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(locked(path, wait_s=0))
                break
            except TimeoutError:
                if deadline is not None and time.monotonic() > deadline:
                    raise
            await asyncio.sleep(_POLL_S)
        yield


def lock_within(fd: int, path: str, wait_s: float) -> None:
    """Lock an open file. Raises TimeoutError if another process still holds it after `wait_s`."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, "is locked by another process", path) from None
        time.sleep(_POLL_S)


@contextmanager
def hold_lock(path: str, label: str) -> Iterator[None]:
    """Hold the lock at `path`. If it is taken, raises `ConflictError` with the holder's pid."""
    try:
        fd = _take(path, label)
    except OSError as error:
        reason = f"{error.filename or path} {error.strerror}"
        raise ToolError(f"{label} cannot be locked: {reason}") from error
    try:
        yield
    finally:
        os.close(fd)


def is_held(path: str) -> bool:
    """Whether a process holds the lock at `path`. The lock is tried only if its process is alive:
    trying takes it for a moment, during which others would find it taken."""
    try:
        fd = os.open(path, os.O_RDONLY | _SAFE)
    except OSError:
        return False
    try:
        pid = os.pread(fd, 20, 0).strip()
        if not pid.isdigit() or not os.path.lexists(f"/proc/{int(pid)}"):
            return False
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def remove_lock(path: str) -> None:
    """Remove a lock file that this process holds; from then on, others can take it."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def _take(path: str, label: str) -> int:
    private_dir(os.path.dirname(path))
    while True:
        # Of any owner: root may work in the home of a user, and only processes matter here.
        fd = os.open(path, os.O_RDWR | os.O_CREAT | _SAFE, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "is not a regular file; move it away", path)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, fd):
                os.ftruncate(fd, 0)
                os.pwrite(fd, b"%d\n" % os.getpid(), 0)
                return fd
        except BlockingIOError:
            who = _holder(fd)
            os.close(fd)
            raise ConflictError(f"{label} is in use by {who}; wait until it has finished") from None
        except OSError:
            os.close(fd)
            raise
        os.close(fd)  # the file was removed between opening and locking it


def _is_at(path: str, fd: int) -> bool:
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(there, os.fstat(fd))


def _holder(fd: int) -> str:
    pid = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
    if not pid.isdigit():
        return "another process"
    return "this process" if int(pid) == os.getpid() else f"process {pid}"


class DamagedError(ToolError):
    """A database that is corrupt, or has another content than expected."""


class _Access:
    """Exclusive use of a database's connection by one thread; for a change, in a transaction. Not a
    generator, for speed: every message and event of an agent is stored through it."""

    __slots__ = ("_database", "_db", "_is_change")

    def __init__(self, database: Database, *, is_change: bool) -> None:
        self._database = database
        self._is_change = is_change
        self._db: Connection | None = None

    def __enter__(self) -> Connection:
        self._database.lock.acquire()
        try:
            db = self._db = self._database.connect()
            if self._is_change:
                # `with db` would wait for a lock while blocking the thread that holds it.
                db.execute("BEGIN IMMEDIATE")
        except BaseException as error:
            self._end(error)
            raise
        return db

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None and self._is_change and self._db is not None:
            try:
                self._db.execute("COMMIT")
            except BaseException as failed:
                self._end(failed)
                raise
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        """Roll back an open transaction and release the lock; raises `ToolError` for errors of the
        file."""
        database, db = self._database, self._db
        try:
            if db is not None and db.in_transaction:
                db.execute("ROLLBACK")
            if error is not None:
                database.explain(error)
        finally:
            database.lock.release()


class Database:
    """An SQLite file, created atomically on first use. Every failure raises a `ToolError` that
    names the file and a remedy."""

    def __init__(
        self,
        path: str,
        label: str,
        application: int,
        migrations: Sequence[str],
        *,
        lock_wait_s: float = 2.0,
        outlives_power: bool = False,
        erases: bool = False,
    ) -> None:
        """`label` is its name in messages; `application` is its SQLite application id.

        The first of the `migrations` creates the tables; each further one upgrades a file of the
        previous version. With `outlives_power` a power failure loses nothing that was written,
        otherwise at most the last writes. A killed process loses nothing either way. With `erases`,
        deleted data is overwritten in the file.
        """
        self.path = os.path.abspath(path)
        self._label = label
        self._application = application
        self._migrations = tuple(migrations)
        self._lock_wait_ms = round(lock_wait_s * 1000)
        self._sync = "FULL" if outlives_power else "NORMAL"
        self._erases = erases
        self.lock = threading.Lock()
        self._db: Connection | None = None
        self._identity = (0, 0, 0)

    def writing(self) -> _Access:
        """The connection, inside a transaction that is rolled back on any exception."""
        return _Access(self, is_change=True)

    def using(self) -> _Access:
        """The connection, without a transaction."""
        return _Access(self, is_change=False)

    def explain(self, error: BaseException) -> None:
        """Raise `ToolError` if `error` is about the file; return for all other errors."""
        import apsw

        if isinstance(error, apsw.Error):
            self.leave()
            why = _TROUBLE.get(type(error).__name__, str(error))
            if isinstance(error, apsw.CorruptError | apsw.NotADBError):
                raise DamagedError(str(self.broken(why))) from error
            raise self.broken(why) from error
        if isinstance(error, OSError):
            raise self.broken(_describe(error)) from error

    def broken(self, why: str) -> ToolError:
        return ToolError(f"{self.path}: {self._label} cannot be used: {why}")

    def close(self) -> None:
        with self.lock:
            self.leave()

    def discard(self, aside: str) -> None:
        """Move a damaged file aside, unless another process has already replaced it. Only for data
        that can be rebuilt."""
        with self.lock, locked(f"{self.path}.lock"):
            self.leave()
            with suppress(FileNotFoundError):
                info = os.lstat(self.path)
                if self._identity == (os.getpid(), info.st_dev, info.st_ino):
                    os.rename(self.path, aside)

    def connect(self) -> Connection:
        """The connection; a new one if the file was replaced or the process has forked."""
        # Stat the file, created if missing. It is never opened here: closing it again would drop
        # the locks that another connection of this process holds.
        try:
            info = os.lstat(self.path)
        except FileNotFoundError:
            private_dir(os.path.dirname(self.path))
            self._create()
            info = os.lstat(self.path)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid():
            raise self.broken("it is not a file that belongs to you; move it away")
        if info.st_mode & 0o077:
            raise self.broken("it is open to other users; run `chmod 600` on it")
        identity = os.getpid(), info.st_dev, info.st_ino
        if self._db is None or identity != self._identity:
            self.leave()
            self._identity = identity
            self._db = self._open()
        return self._db

    def _create(self) -> None:
        """Create the database atomically, unless another process was faster."""
        import apsw

        with locked(f"{self.path}.lock"):
            if os.path.lexists(self.path):
                return
            # SQLite would apply the leftover journal of an earlier file to this one.
            for rest in ("-wal", "-shm", ".new", ".new-wal", ".new-shm"):
                with suppress(FileNotFoundError):
                    os.unlink(self.path + rest)
            temp = f"{self.path}.new"
            os.close(os.open(temp, _CREATE, 0o600))
            with closing(apsw.Connection(temp, apsw.SQLITE_OPEN_READWRITE)) as db:
                db.execute("PRAGMA journal_mode = WAL")
                # One transaction, because each one is flushed to disk.
                db.execute("BEGIN")
                self._migrate(db, 0)
                db.pragma("application_id", self._application)
                db.execute("COMMIT")
            os.rename(temp, self.path)

    def _open(self) -> Connection:
        import apsw

        folder, name = os.path.split(self.path)
        private_dir(folder)
        # The file itself must not be a symbolic link; its directory may be reached through one.
        place = os.path.join(os.path.realpath(folder), name)
        with ExitStack() as undo:
            db = apsw.Connection(place, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW)
            undo.callback(db.close, True)
            db.set_busy_timeout(self._lock_wait_ms)
            db.execute(f"PRAGMA synchronous = {self._sync}; PRAGMA trusted_schema = OFF")
            db.pragma("secure_delete", self._erases)
            version = db.pragma("user_version")
            is_ours = db.pragma("application_id") == self._application
            if not is_ours or not 0 < version <= len(self._migrations):
                why = "it is not a database of this version of clawkit; move it away"
                raise DamagedError(str(self.broken(why)))
            if version < len(self._migrations):
                db.execute("BEGIN IMMEDIATE")
                # Another process may have migrated it in the meantime.
                self._migrate(db, db.pragma("user_version"))
                db.execute("COMMIT")
            undo.pop_all()
        return db

    def _migrate(self, db: Connection, version: int) -> None:
        for step in self._migrations[version:]:
            db.execute(step)
        db.pragma("user_version", len(self._migrations))

    def leave(self) -> None:
        if self._db is not None and self._identity[0] != os.getpid():
            _inherited.append(self._db)
        elif self._db is not None:
            self._db.close(True)
        self._db = None


def _describe(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}{_ADVICE.get(error.errno or 0, '')}"
