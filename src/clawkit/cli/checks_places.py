"""Whether anything can be written at a place, and what to do when nothing can."""

from __future__ import annotations

import errno
import os
import shlex
from typing import NamedTuple

NEEDED = 64 * 1024
"""Bytes that are free where there is still room for the smallest store."""


class Obstacle(NamedTuple):
    """Why nothing can be written somewhere."""

    why: str
    place: str
    """The directory that it is about, which is there."""
    is_full: bool = False

    def remedy(self, setting: str) -> str:
        """What to do; `setting` is what puts the files elsewhere."""
        if self.is_full:
            return f"free some space there: df -h {shlex.quote(self.place)}"
        return f"set {setting} to a place that can be written"


def obstacle_at(folder: str) -> Obstacle | None:
    """What keeps files out of a directory, which need not be there yet; nothing is written."""
    place = os.path.abspath(folder)
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    try:
        disk = os.statvfs(place)
        may_write = os.access(place, os.W_OK | os.X_OK, effective_ids=True)
    except OSError as error:
        return Obstacle(error.strerror or str(error), place)
    if disk.f_flag & os.ST_RDONLY:
        return Obstacle(os.strerror(errno.EROFS), place)
    if not may_write:
        return Obstacle(os.strerror(errno.EACCES), place)
    # Some file systems do not count their blocks or files: they say that there are none at all.
    no_room = disk.f_blocks and disk.f_bavail * disk.f_frsize < NEEDED
    if no_room or (disk.f_files and not disk.f_favail):
        return Obstacle("the disk is full", place, is_full=True)
    return None
