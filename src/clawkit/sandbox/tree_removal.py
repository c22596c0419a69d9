"""Removing directories whose contents commands have made, here and on a remote machine."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress


def remove_tree(folder: str, most: int = 500_000) -> None:
    """Remove a directory and all in it, as far as that is possible. Links are not followed.

    Commands may have nested directories too deep for recursion, and taken away their permissions.
    So each is made accessible and moved to the top before it is emptied. Beyond `most` directories,
    further ones are left for the next call, because something may be adding them.
    """
    start = os.urandom(6).hex()
    names = (f"{start}-{number}" for number in range(most))
    with suppress(OSError):
        top = _open_up(folder)
        try:
            left = deque(_empty(top, top, names))
            while left:
                name = left.popleft()
                with suppress(OSError):
                    inner = _open_up(name, top)
                    try:
                        left += _empty(inner, top, names)
                    finally:
                        os.close(inner)
                    os.rmdir(name, dir_fd=top)
        finally:
            os.close(top)
        os.rmdir(folder)


def _empty(folder: int, top: int, names: Iterator[str], depth: int = 64) -> list[str]:
    """Remove files and empty directories of a directory, and move the others to the top while there
    are `names`; returns their names there. Those of a lower layer of overlayfs, which cannot be
    moved, are emptied in place, down to `depth`."""
    moved = []
    for each in os.listdir(folder):
        with suppress(OSError, StopIteration):
            try:
                os.unlink(each, dir_fd=folder)
            except IsADirectoryError:
                try:
                    os.rmdir(each, dir_fd=folder)
                except OSError:
                    try:
                        _move(each, folder, top, name := next(names))
                        moved.append(name)
                    except OSError as error:
                        if error.errno != errno.EXDEV or not depth:
                            raise
                        inner = _open_up(each, folder)
                        try:
                            moved += _empty(inner, top, names, depth - 1)
                        finally:
                            os.close(inner)
                        os.rmdir(each, dir_fd=folder)
    return moved


def _move(each: str, folder: int, top: int, name: str) -> None:
    """Move a directory to the top. Raises OSError, also for a mount point."""
    try:
        os.rename(each, name, src_dir_fd=folder, dst_dir_fd=top)
    except PermissionError:
        # Renaming fails for a mount point, before the permissions of what is mounted are changed.
        os.rename(each, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.close(_open_up(name, folder))
        os.rename(name, name, src_dir_fd=folder, dst_dir_fd=top)


def _open_up(path: str, folder: int | None = None) -> int:
    """A descriptor of a directory, with all permissions for its owner. Raises OSError."""
    mark = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    try:
        with suppress(OSError):  # it belongs to someone else
            os.chmod(f"/proc/self/fd/{mark}", 0o700)
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=mark)
    finally:
        os.close(mark)
