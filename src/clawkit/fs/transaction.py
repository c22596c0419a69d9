"""Commit changes of files: one file with an atomic rename, several with a journal."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass

from clawkit.errors import (
    ConflictError,
    NotFoundError,
    ProtectedError,
    ToolAuthorizationError,
    ToolError,
    ToolInputError,
)
from clawkit.fs import roots as fs_roots
from clawkit.fs.containment import O_PATH
from clawkit.fs.journal import Journal
from clawkit.fs.protected_files import Protection, fold_path
from clawkit.fs.protocols import ABSENT, Change, Changed, Info, Kind
from clawkit.fs.roots import ChangeTarget, Roots
from clawkit.fs.staged_file import StagedFile, conflict, temp_name

_MARK = O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}


def info_of(found: os.stat_result) -> Info:
    kind = _KINDS.get(stat.S_IFMT(found.st_mode), "other")
    return Info(kind, found.st_size, found.st_mtime_ns, found.st_mode, fs_roots.version_of(found))


@dataclass(frozen=True)
class Committer:
    """Commits changes for one run. All methods block."""

    roots: Roots
    _: KW_ONLY
    protection: Protection
    ask: bool
    """Whether a person decides about protected files; otherwise they are refused."""
    hard_links: bool
    journals: str

    def commit(self, changes: Sequence[Change], allowed: frozenset[str]) -> tuple[Changed, ...]:
        """Make all changes or none; see `FileSystem.change`."""
        targets = [self._check(change) for change in changes]
        above = _folders_above(targets)
        seen: set[str] = set()
        for target in targets:
            if target.place in seen:
                raise ToolInputError(f"{target.place!r} would be changed twice at once")
            if target.place in above:
                raise ToolInputError(f"{target.place!r} would be a file and a directory at once")
            seen.add(target.place)
        self._protect(changes, targets, above, allowed)
        if len(changes) == 1:
            return (self._one(changes[0], targets[0]),)
        return self._several(changes, targets)

    def _check(self, change: Change) -> ChangeTarget:
        """The target of a change; raises if the change is not possible. Deleting a link deletes the
        link itself; writing follows it."""
        target = self.roots.locate(change.path, follow=change.data is not None)
        info = target.info
        if info is None:
            if change.data is None:
                raise NotFoundError(f"{change.path!r} does not exist, so it cannot be deleted")
            if change.expect:
                raise conflict(change.path, "was deleted")
            return target
        if change.expect == ABSENT:
            raise ConflictError(f"{change.path!r} already exists; nothing was changed")
        if stat.S_ISLNK(info.st_mode):
            if change.expect is not None:
                _check_version(change, self.roots.locate(change.path).info)
            return target
        if stat.S_ISDIR(info.st_mode):
            raise ToolInputError(f"{change.path!r} is a directory, not a file")
        if not stat.S_ISREG(info.st_mode):
            raise ToolInputError(f"{change.path!r} is not a regular file; nothing was changed")
        _check_version(change, info)
        if not info.st_mode & 0o222:
            raise ToolInputError(
                f"{change.path!r} is read-only; nothing was changed. `chmod u+w` makes it writable"
            )
        is_shared = info.st_nlink > 1 and change.data is not None
        if is_shared and self.roots.held and not self.hard_links:
            raise ToolAuthorizationError(
                f"{change.path!r} has {info.st_nlink} names (hard links), so it may be a file from "
                "outside the workspace; put a copy in its place first, or ask the person to set "
                "tools.fs.hardLinks to 'allow'",
                reason="hard-link",
            )
        return target

    def _protect(
        self,
        changes: Sequence[Change],
        targets: Sequence[ChangeTarget],
        above: Set[str],
        allowed: frozenset[str],
    ) -> None:
        """Refuse protected files, whatever path leads to them."""
        # One change can make another one protected: several files can form a repository.
        made = {fold_path(place) for place in (*above, *(target.place for target in targets))}

        def exists(path: str) -> bool:
            return fold_path(path) in made or os.path.lexists(path)

        found: dict[str, str] = {}
        for change, target in zip(changes, targets, strict=True):
            if target.place in allowed:
                continue
            # Both the target and every path on the way to it count.
            names = (target.place, *self.roots.ways(change.path))
            reasons = (self.protection.explain(name, exists) for name in names)
            if why := next(filter(None, reasons), ""):
                found[target.place] = why
        if not found and not allowed <= {target.place for target in targets}:
            raise ConflictError("the call would not change what was approved; nothing was changed")
        if not found:
            return
        place, why = next(iter(found.items()))
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        message = f"{place!r}{more} is protected: {why}"
        if self.ask:
            raise ProtectedError(message, places=tuple(found))
        raise ToolAuthorizationError(
            f"{message}. tools.fs.protected refuses such changes", reason="protected"
        )

    def _one(self, change: Change, target: ChangeTarget) -> Changed:
        made: list[str] = []
        try:
            made = fs_roots.make_folders(target) if target.info is None else []
            with fs_roots.open_folder(target) as folder:
                fs_roots.check_folder(folder)
                if change.data is None:
                    _check_same(change.path, target, folder)
                    os.unlink(target.name, dir_fd=folder)
                    return Changed(target.place, None)
                staged = self._stage(change, target, folder)
                try:
                    if target.info is None:
                        try:
                            staged.create(target.name)
                        except FileExistsError:
                            raise conflict(change.path, "was created") from None
                    else:
                        _check_same(change.path, target, folder)
                        staged.replace(target.name)
                    return Changed(target.place, info_of(os.fstat(staged.fd)))
                finally:
                    staged.discard()
        except BaseException as error:
            fs_roots.remove_folders(target.root, made)
            if isinstance(error, OSError):
                raise _explain(error, change.path) from None
            raise

    def _stage(
        self, change: Change, target: ChangeTarget, folder: int, temp: str = ""
    ) -> StagedFile:
        """Stage the new content, under the name `temp` or without a name."""
        data, like, old = change.data or b"", target.info, -1
        try:
            if like is not None:
                old = os.open(target.name, _MARK, dir_fd=folder)
            elif change.like:
                lender = self.roots.locate(change.like).info
                like = lender if lender and stat.S_ISREG(lender.st_mode) else None
            named = bool(temp)
            return StagedFile(folder, temp or temp_name(), data, like=like, old=old, named=named)
        except FileNotFoundError:
            if target.info is None or old >= 0:
                raise
            raise conflict(change.path, "was deleted") from None
        finally:
            if old >= 0:
                os.close(old)

    def _several(
        self, changes: Sequence[Change], targets: Sequence[ChangeTarget]
    ) -> tuple[Changed, ...]:
        path = self.journals
        try:
            with Journal.begin(self.journals) as journal:
                for change, target in zip(changes, targets, strict=True):
                    path = change.path
                    self._prepare(journal, change, target)
                path = ""
                journal.carry_out()
        except OSError as error:
            raise _explain(error, path or str(error.filename)) from None
        return tuple(
            Changed(target.place, None if change.data is None else _look(target))
            for change, target in zip(changes, targets, strict=True)
        )

    def _prepare(self, journal: Journal, change: Change, target: ChangeTarget) -> None:
        """Write the new content next to its target, under a name that is in the journal."""
        if target.info is None:
            fs_roots.make_folders(target, lambda folder: journal.plan_folder(target.root, folder))
        step = journal.plan(target, delete=change.data is None)
        with fs_roots.open_folder(target) as folder:
            fs_roots.check_folder(folder)
            if change.data is None:
                return
            self._stage(change, target, folder, step.temp).close()
            # After closing: a network file system may set the mtime when a file is closed.
            step.mark = fs_roots.mark_of(os.stat(step.temp, dir_fd=folder, follow_symlinks=False))


def _look(target: ChangeTarget) -> Info | None:
    with suppress(OSError, ToolInputError), fs_roots.open_folder(target) as folder:
        return info_of(os.stat(target.name, dir_fd=folder, follow_symlinks=False))
    return None


def _folders_above(targets: Sequence[ChangeTarget]) -> set[str]:
    above: set[str] = set()
    for target in targets:
        folder = os.path.dirname(target.place)
        while folder not in above:
            above.add(folder)
            folder = os.path.dirname(folder)
    return above


def _check_version(change: Change, info: os.stat_result | None) -> None:
    if change.expect is not None and (info is None or fs_roots.version_of(info) != change.expect):
        raise conflict(change.path, "was changed")


def _check_same(path: str, target: ChangeTarget, folder: int) -> None:
    """The last check before a file is replaced: it must still be the one that was checked."""
    now = fs_roots.look(target.name, folder)
    if now is None:
        raise conflict(path, "was deleted")
    if target.info is None or fs_roots.version_of(now) != fs_roots.version_of(target.info):
        raise conflict(path, "was changed")


def _explain(error: OSError, path: str) -> ToolInputError | ToolError:
    code = error.errno or 0
    words = error.strerror or ""
    if words == os.strerror(code):
        words = f"cannot be changed: {words[:1].lower()}{words[1:]}"
    kind = ToolError if code in (errno.ENOSPC, errno.EDQUOT, errno.EIO) else ToolInputError
    return kind(f"{path!r} {words}; nothing was changed")
