"""Applies the file tools' rules to the files of commands, and protects clawkit's own files."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence


class PathRules:
    """Rules for absolute paths, applied to their resolved form."""

    def __init__(
        self,
        workspace: str,
        *,
        read_roots: Iterable[str] = (),
        write_roots: Iterable[str] = (),
        workspace_only: bool = True,
        why_protected: Callable[[str], str] = lambda _path: "",
        own: Iterable[str] = (),
        own_open: Iterable[str] = (),
        shared: Sequence[str] = (),
        effect_on: Callable[[str, str], str] = lambda _tool, _path: "allow",
        is_masked: Callable[[str], bool] = lambda _path: False,
        hard_links: bool = True,
    ) -> None:
        """`effect_on` is the effect of rules on a file tool's access to a path, `is_masked` whether
        the file tools redact the file, `hard_links` whether files with several links may be read.
        `why_protected` says why only a person may have a resolved path changed; `own` are the files
        and directories, except `own_open`, that decide what clawkit allows. `shared` are
        directories that are readable regardless of location; the list may change."""
        here = os.path.realpath(workspace)
        writable = [here, *(_resolve(root, here) for root in write_roots)]
        self._writable = _starts(writable)
        self._readable = _starts((*writable, *(_resolve(root, here) for root in read_roots)))
        self._anywhere = not workspace_only
        self._shared = shared
        self._why_protected = why_protected
        self._effect_on = effect_on
        self._is_masked = is_masked
        self._hard_links = hard_links
        self._own = _starts({way for file in own for way in (file, os.path.realpath(file))})
        self._own_open = _starts((here, *map(os.path.realpath, own_open)))

    def may_read(self, path: str) -> bool:
        """Whether the file tools could read it without approval."""
        place = _real(path)
        readable = self._anywhere or _is_in(place, (*self._readable, *_starts(self._shared)))
        if not place or not readable:
            return False
        if self._is_own(place) or self._effect_on("read", place) != "allow":
            return False
        return not self._is_masked(place) and (self._hard_links or not _has_names(place))

    def may_write(self, path: str) -> bool:
        """Whether the file tools could change it without approval."""
        place = _real(path)
        if not place or not (self._anywhere or _is_in(place, self._writable)):
            return False
        return not self._why_protected(place) and self._effect_on("write", place) == "allow"

    def is_own(self, path: str) -> bool:
        """Whether it is one of the files that decide what clawkit allows."""
        if not path.startswith("/"):
            return False
        real = _real(path)
        return self._is_own(real) or (path != real and self._is_own(os.path.normpath(path)))

    def _is_own(self, path: str) -> bool:
        if not _is_in(path, self._own):
            return False
        own = [each for each in self._own if _is_in(path, (each,))]
        # The longest match wins: a workspace may be inside the state directory, and the reverse.
        opened = (*self._own_open, *_starts(self._shared))
        open_ = [each for each in opened if _is_in(path, (each,))]
        return max(map(len, own)) > max(map(len, open_), default=-1)

    def holds_own(self, path: str) -> bool:
        """Whether a directory contains such a file at any depth."""
        place = _real(path)
        start = f"{place.rstrip('/')}/"
        return bool(place) and any(own.startswith(start) for own in self._own)


def _has_names(path: str) -> bool:
    """Whether a file has several hard links, so it may be a file from elsewhere."""
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(info.st_mode) and info.st_nlink > 1


def _resolve(root: str, workspace: str) -> str:
    return os.path.realpath(os.path.join(workspace, os.path.expanduser(root)))


def _real(path: str) -> str:
    from clawkit.approvals.expansion import resolve_links  # slow to import, often not needed

    try:
        return resolve_links(path) if path.startswith("/") else ""
    except (OSError, ValueError):
        return ""


def _starts(folders: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{each.rstrip('/')}/" for each in folders)


def _is_in(path: str, starts: tuple[str, ...]) -> bool:
    return f"{path}/".startswith(starts)
