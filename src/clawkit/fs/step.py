"""One file of a change of several: what is done to it, how it is taken back, how that is noted."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass

from clawkit.errors import ConflictError
from clawkit.fs.reach import Target, look, mark_of, version_of
from clawkit.fs.stage import exchange, put_new


@dataclass
class Step:
    """One file. Its new content waits at `temp`, and trades places with the old one; where that
    cannot be done, and for a deletion, the old one is moved to `backup`."""

    journal: str
    number: int
    target: Target
    version: str
    """Of the old file; empty when there is none."""
    delete: bool
    mark: str = ""
    """Of the new file."""

    @property
    def temp(self) -> str:
        return f".clawkit-{self.journal}-{self.number}.tmp"

    @property
    def backup(self) -> str:
        return f".clawkit-{self.journal}-{self.number}.old"

    def do(self, folder: int) -> None:
        """Put the content in its place. Can be repeated."""
        now, moved = look(self.target.name, folder), look(self.backup, folder)
        if self._is_new(now) or (self.delete and moved and now is None):
            return
        if moved is None:
            self._check(now)
        elif now:
            raise self._conflict("was changed")
        if self.delete:
            _rename(self.target.name, self.backup, folder)
        else:
            self._put(now, folder)

    def _put(self, now: os.stat_result | None, folder: int) -> None:
        if not self._is_new(look(self.temp, folder)):
            # It was in place already, and somebody else has been there since.
            raise self._conflict("was changed")
        if now is None:
            put_new(self.temp, self.target.name, folder)
        elif not exchange(self.temp, self.target.name, folder):
            _rename(self.target.name, self.backup, folder)
            _rename(self.temp, self.target.name, folder)

    def undo(self, folder: int) -> None:
        """Take it back, unless somebody else has changed the file since. Can be repeated."""
        now, moved = look(self.target.name, folder), look(self.backup, folder)
        waiting = look(self.temp, folder)
        is_missing = now is None and (self.delete or self._is_new(waiting))
        if moved and (self._is_new(now) or is_missing):
            _rename(self.backup, self.target.name, folder)
        elif waiting and not self._is_new(waiting) and self._is_new(now):
            _rename(self.temp, self.target.name, folder)
        elif self._is_new(now) and not self.version:
            _remove(self.target.name, folder)
        self.clean_up(folder)

    def clean_up(self, folder: int) -> None:
        """Remove what is not in place."""
        _remove(self.backup, folder)
        _remove(self.temp, folder)

    def is_begun(self, folder: int) -> bool:
        waiting = look(self.temp, folder)
        is_swapped = waiting is not None and not self._is_new(waiting)
        is_placed = self._is_new(look(self.target.name, folder))
        return is_swapped or is_placed or look(self.backup, folder) is not None

    def _is_new(self, now: os.stat_result | None) -> bool:
        """Whether a file is the one that this step puts in place."""
        return now is not None and mark_of(now) == self.mark

    def _check(self, now: os.stat_result | None) -> None:
        if (version_of(now) if now else "") != self.version:
            raise self._conflict("was changed")

    def _conflict(self, what: str) -> ConflictError:
        return ConflictError(
            f"{self.target.place!r} {what} by somebody else meanwhile; nothing was written. Read "
            "it again"
        )


def _rename(name: str, other: str, folder: int) -> None:
    os.replace(name, other, src_dir_fd=folder, dst_dir_fd=folder)


def _remove(name: str, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def dump(step: Step) -> list[object]:
    """A step as JSON takes it."""
    target = step.target
    where = (target.root, target.folder, target.name, target.place)
    return [step.number, *where, step.version, step.delete, step.mark]


def parse(journal: str, entry: list[object]) -> Step:
    """The step of a journal that was written so. Raises ValueError for what is none."""
    number, root, folder, name, place, version, delete, mark = entry
    if not isinstance(number, int) or not isinstance(delete, bool) or "/" in to_text(name):
        raise ValueError("not a step")
    target = Target(to_root(root), to_text(folder), to_text(name), to_text(place), None)
    return Step(journal, number, target, to_text(version), delete, to_text(mark))


def to_text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("not a text")
    return value


def to_root(value: object) -> str:
    if not to_text(value).startswith("/"):
        raise ValueError("not an absolute path")
    return to_text(value)
