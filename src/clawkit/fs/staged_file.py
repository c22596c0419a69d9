"""New content of a file: written completely, then moved into place atomically."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from contextlib import suppress
from dataclasses import dataclass

from clawkit.errors import ConflictError
from clawkit.fs.roots import ChangeTarget, look, mark_of, version_of
from clawkit.process.libc import libc

_TMPFILE: int = getattr(os, "O_TMPFILE", 0)
_NO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_MODE = 0o666
"""For new files; the kernel applies the umask."""
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""Errors of file systems without hard links; there, a name is checked before it is used."""
_NOREPLACE, _EXCHANGE = 1, 2
_NO_FLAGS = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
_NO_OWNER = (errno.EPERM, errno.EINVAL)
"""Not permitted, or the owner is unknown in this container."""
_XATTR_LIMIT = 64
_OF_CONTENT = frozenset(("security.capability", "security.ima", "security.evm"))
"""Privileges and signatures of the old content: not copied."""
_ACCESS = frozenset(("system.posix_acl_access", "system.nfs4_acl"))
"""Must be copied: without its access list, a file may be open to more users than before."""


class StagedFile:
    """New content in the directory of its target. All methods raise OSError."""

    def __init__(
        self,
        folder_fd: int,
        temp: str,
        data: bytes,
        *,
        like: os.stat_result | None = None,
        old: int = -1,
        named: bool = False,
    ) -> None:
        """`temp` is its name until it is in place: from the start if `named`, otherwise only if it
        needs one, so that a killed process leaves nothing behind. `like` is the file whose mode and
        owner it gets; `old` is a descriptor of that file."""
        self._folder = folder_fd
        self._temp = temp
        self._data = data
        self._is_named = False
        self.fd = -1
        mode = _OPEN_MODE if like is None else 0o600
        try:
            if named or not self._create_nameless(mode):
                self._create_named(mode)
            self._fill(like, old)
        except BaseException:
            self.discard()
            raise

    def _create_nameless(self, mode: int) -> bool:
        """Returns False if the file system does not support O_TMPFILE."""
        if not _TMPFILE:
            return False
        try:
            flags = os.O_RDWR | _TMPFILE | os.O_CLOEXEC
            self.fd = os.open(".", flags, mode, dir_fd=self._folder)
        except OSError as error:
            if error.errno not in _NO_TMPFILE:
                raise
        return self.fd >= 0

    def _create_named(self, mode: int) -> None:
        self.fd = os.open(self._temp, _CREATE, mode, dir_fd=self._folder)
        self._is_named = True

    def _fill(self, like: os.stat_result | None, old: int) -> None:
        write_all(self.fd, self._data)
        if like is not None:
            mine = os.fstat(self.fd)
            if (mine.st_uid, mine.st_gid) != (like.st_uid, like.st_gid):
                try:
                    os.fchown(self.fd, like.st_uid, like.st_gid)
                except OSError as error:
                    if error.errno not in _NO_OWNER:
                        raise
                    raise PermissionError(
                        errno.EPERM,
                        "is owned by another user, and the owner could not be preserved",
                    ) from None
            if old >= 0:
                _copy_attributes(old, self.fd)
            os.fchmod(self.fd, stat.S_IMODE(like.st_mode) & 0o777)

    def _name_it(self) -> None:
        """Give the content the name `temp`, unless it has it."""
        if not self._is_named and not self._link(self._temp):
            nameless, self.fd = self.fd, -1
            try:
                self._create_named(0o600)
                self._fill(os.fstat(nameless), nameless)
            finally:
                os.close(nameless)
        self._is_named = True

    def _link(self, name: str) -> bool:
        """Link the unnamed content to a name; returns False if that is not supported."""
        try:
            source = f"/proc/self/fd/{self.fd}"
            os.link(source, name, dst_dir_fd=self._folder, follow_symlinks=True)
        except OSError as error:
            if error.errno not in (*_NO_LINKS, errno.ENOENT):
                raise
            return False
        return True

    def create(self, name: str) -> None:
        """Move the content into place; raises FileExistsError if the name exists."""
        if self._is_named or not self._link(name):
            self._name_it()
            put_new(self._temp, name, self._folder)
            self._is_named = False

    def replace(self, name: str) -> None:
        """Move the content into place, replacing a file."""
        self._name_it()
        os.replace(self._temp, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._is_named = False

    def discard(self) -> None:
        """Close it, and remove the content unless it is in place."""
        if self._is_named:
            with suppress(OSError):
                os.unlink(self._temp, dir_fd=self._folder)
        self.close()

    def close(self) -> None:
        """Close it, and keep it under its temporary name."""
        self._is_named = False
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def temp_name() -> str:
    return f".clawkit-{os.urandom(8).hex()}.tmp"


def put_new(temp: str, name: str, folder: int) -> None:
    """Rename within a directory without replacing a file. Raises FileExistsError and OSError."""
    if _rename(temp, name, folder, _NOREPLACE):
        return
    try:
        os.link(temp, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if look(name, folder):
            raise FileExistsError(errno.EEXIST, "exists already", name) from None
        os.rename(temp, name, src_dir_fd=folder, dst_dir_fd=folder)
    else:
        os.unlink(temp, dir_fd=folder)


def _rename(name: str, other: str, folder: int, flag: int) -> bool:
    """Rename with a flag of renameat2; returns False if that is not supported."""
    try:
        rename = libc().renameat2
    except AttributeError:
        return False
    if rename(folder, os.fsencode(name), folder, os.fsencode(other), flag) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NO_FLAGS:
        return False
    raise OSError(code, os.strerror(code), name)


def write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _copy_attributes(old: int, new: int) -> None:
    """Copy access lists, and other attributes if the system permits."""
    source = f"/proc/self/fd/{old}"
    try:
        names = os.listxattr(source)
    except (OSError, AttributeError):
        return
    for name in sorted(names, key=lambda name: name not in _ACCESS)[:_XATTR_LIMIT]:
        if name in _OF_CONTENT:
            continue
        try:
            os.setxattr(new, name, os.getxattr(source, name))
        except OSError:
            if name in _ACCESS:
                raise


@dataclass
class JournalStep:
    """The change of one file in a journal. The new content is staged at `temp` and exchanged with
    the old one; if that is not supported, and for a deletion, the old one is moved to `backup`."""

    journal: str
    number: int
    target: ChangeTarget
    version: str
    """Version of the old file; empty if there is none."""
    delete: bool
    mark: str = ""
    """`mark_of` the new file."""

    @property
    def temp(self) -> str:
        return f".clawkit-{self.journal}-{self.number}.tmp"

    @property
    def backup(self) -> str:
        return f".clawkit-{self.journal}-{self.number}.old"

    def do(self, folder: int) -> None:
        """Move the content into place. Idempotent."""
        now, moved = look(self.target.name, folder), look(self.backup, folder)
        if self._is_new(now) or (self.delete and moved and now is None):
            return
        is_as_expected = now is None if moved else (version_of(now) if now else "") == self.version
        # If it was in place, and another process has changed the file since, none is waiting.
        is_waiting = self.delete or self._is_new(look(self.temp, folder))
        if not is_as_expected or not is_waiting:
            raise conflict(self.target.place, "was changed")
        if self.delete:
            _move(self.target.name, self.backup, folder)
        elif now is None:
            put_new(self.temp, self.target.name, folder)
        elif not _rename(self.temp, self.target.name, folder, _EXCHANGE):
            _move(self.target.name, self.backup, folder)
            _move(self.temp, self.target.name, folder)

    def undo(self, folder: int) -> None:
        """Roll back, unless another process has changed the file since. Idempotent."""
        now, moved = look(self.target.name, folder), look(self.backup, folder)
        waiting = look(self.temp, folder)
        is_missing = now is None and (self.delete or self._is_new(waiting))
        if moved and (self._is_new(now) or is_missing):
            _move(self.backup, self.target.name, folder)
        elif waiting and not self._is_new(waiting) and self._is_new(now):
            _move(self.temp, self.target.name, folder)
        elif self._is_new(now) and not self.version:
            _remove(self.target.name, folder)
        self.clean_up(folder)

    def clean_up(self, folder: int) -> None:
        _remove(self.backup, folder)
        _remove(self.temp, folder)

    def is_begun(self, folder: int) -> bool:
        waiting = look(self.temp, folder)
        is_swapped = waiting is not None and not self._is_new(waiting)
        is_placed = self._is_new(look(self.target.name, folder))
        return is_swapped or is_placed or look(self.backup, folder) is not None

    def _is_new(self, now: os.stat_result | None) -> bool:
        return now is not None and mark_of(now) == self.mark


def conflict(path: str, what: str) -> ConflictError:
    return ConflictError(
        f"{path!r} {what} by another process in the meantime; nothing was written. Read it again"
    )


def _move(name: str, other: str, folder: int) -> None:
    os.replace(name, other, src_dir_fd=folder, dst_dir_fd=folder)


def _remove(name: str, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def dump_step(step: JournalStep) -> list[object]:
    where = (step.target.root, step.target.folder, step.target.name, step.target.place)
    return [step.number, *where, step.version, step.delete, step.mark]


def parse_step(journal: str, entry: list[object]) -> JournalStep:
    """The inverse of `dump_step`. Raises ValueError for an invalid entry."""
    number, root, folder, name, place, version, delete, mark = entry
    if not isinstance(number, int) or not isinstance(delete, bool) or "/" in to_text(name):
        raise ValueError("not a step")
    target = ChangeTarget(to_root(root), to_text(folder), to_text(name), to_text(place), None)
    return JournalStep(journal, number, target, to_text(version), delete, to_text(mark))


def to_text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("not a text")
    return value


def to_root(value: object) -> str:
    if not to_text(value).startswith("/"):
        raise ValueError("not an absolute path")
    return to_text(value)
