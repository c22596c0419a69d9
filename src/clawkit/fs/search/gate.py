"""Which of the files that a search program comes upon may be told of, and by what name."""

from __future__ import annotations

import os
import stat
import time

from clawkit.fs.reach import is_below
from clawkit.fs.search.query import Admit, Start
from clawkit.fs.search.select import Accepts


class Gate:
    """Judges paths from the start of a search."""

    def __init__(
        self,
        start: Start,
        workspace: str,
        *,
        accepts: Accepts | None,
        admit: Admit,
        one_name: bool,
    ) -> None:
        """`workspace` has its links resolved. With `one_name`, files with several are left out, and
        those that were renamed or changed since: they may have had several when they were read."""
        self._since = time.time_ns()
        self._fd = start.fd
        self._accepts = None if start.name else accepts
        self._admit = admit
        self._one_name = one_name
        if start.place == workspace:
            self._prefix = ""
        elif is_below(start.place, workspace):
            self._prefix = os.path.relpath(start.place, workspace) + "/"
        else:
            self._prefix = start.place.rstrip("/") + "/"

    def admits(self, path: str) -> bool:
        """Whether hits in a file may be told."""
        return self.accepts(path) and not self.leaves_out(path) and self._admit(self.shown(path))

    def accepts(self, path: str) -> bool:
        """Whether a file is one of those that were asked for."""
        return self._accepts is None or bool(self._accepts(path))

    def leaves_out(self, path: str) -> bool:
        """Whether a file has, or may have had, several names where that is not allowed."""
        if not self._one_name:
            return False
        try:
            info = os.stat(path, dir_fd=self._fd, follow_symlinks=False)
        except OSError:
            return True
        is_one = info.st_nlink == 1 and stat.S_ISREG(info.st_mode)
        return not is_one or info.st_ctime_ns > self._since

    def is_there(self, path: str) -> bool:
        try:
            os.stat(path, dir_fd=self._fd, follow_symlinks=False)
        except OSError:
            return False
        return True

    def shown(self, path: str) -> str:
        """The path as the file tools take it."""
        shown = self._prefix + path
        # What would be read as the home directory, or as a URL.
        return f"./{shown}" if shown.startswith("~") or shown[:5].lower() == "file:" else shown
