"""What the keeper knows about a command."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Any

from clawkit.process import tree


class Kept:
    """One command that the keeper started."""

    def __init__(self, id_: str, pid: int, options: dict[str, Any], oom: int) -> None:
        self.id = id_
        self.pid = pid
        self.oom = oom
        """How often the system had run out of memory before."""
        self.mark: int = options["mark"]
        self.limit: int = options["limit"]
        self.detached: str = options["detached"]
        """The file to write its end to, when it is to live on."""
        self.runs = True
        self.kill_at: float | None = None
        self.was_asked = False
        self.timed_out = False
        timeout_s = options["timeout_s"]
        self.deadline = time.monotonic() + timeout_s if timeout_s else None

    def end(self, grace_s: float) -> None:
        """Have it ended; the shortest grace counts."""
        kill_at = time.monotonic() + grace_s
        self.kill_at = kill_at if self.kill_at is None else min(self.kill_at, kill_at)

    def owns(self, pid: int) -> bool:
        """Whether a child of the keeper that leads no command belongs to this one."""
        with suppress(OSError):
            if os.getsid(pid) == self.pid:
                return True
        return tree.is_ours(pid, self.id, self.mark)

    def freeze(self) -> bool:
        """Have all of its group hold still; not one that somebody has stopped already."""
        found = tree.look(self.pid) if self.runs and self.kill_at is None else None
        if found is None or found.stopped:
            return False
        with suppress(OSError):
            os.killpg(self.pid, signal.SIGSTOP)
            return True
        return False

    def thaw(self) -> None:
        """Have it go on, unless it is to be killed, which needs no waking up."""
        if self.kill_at is None:
            with suppress(OSError):
                os.killpg(self.pid, signal.SIGCONT)

    def write_end(self, code: int) -> None:
        """Write down how it ended, for those that come later. Nothing that lies in the way, such as
        a pipe that nobody reads, can hold the keeper up."""
        if not self.detached:
            return
        word = " timeout" if self.timed_out else ""
        new = f"{self.detached}.new"
        with suppress(OSError):
            os.unlink(new)
        with suppress(OSError):
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            os.write(fd, f"{code} {time.time():.3f}{word}\n".encode())
            os.close(fd)
            os.rename(new, self.detached)
