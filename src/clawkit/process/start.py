"""Starting a program that is held to what it needs."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO

from clawkit.process import seccomp
from clawkit.process.landlock import Hold, restrict_thread

Stream = int | IO[bytes]


def _restrict(hold: Hold) -> None:
    """Hold the calling thread. Whoever may change nothing is kept from cutting files by seccomp:
    Landlock would do it too, but at a cost for every file that is only read, and it does not know
    modes and owners."""
    filtered = seccomp.available() and not hold.network
    quick = filtered and not hold.write
    restrict_thread(hold, truncate=not quick)
    if filtered:
        seccomp.forbid_sockets(changes=quick)


def start(
    argv: Sequence[str],
    *,
    cwd: str | int,
    env: Mapping[str, str],
    hold: Hold | None,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = subprocess.PIPE,
    stderr: Stream = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Starts a program, by its absolute path, in a session of its own; blocks until it runs.

    `cwd` is a directory or an open handle for one. With a `hold`, the kernel keeps the program to
    it; where the kernel cannot, and when there is no such program, raises OSError.
    """
    started: list[subprocess.Popen[bytes]] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            if hold is not None:
                # A thread's restrictions end with it; those of the programs it started do not.
                _restrict(hold)
            started.append(
                subprocess.Popen(
                    argv,
                    cwd=f"/proc/self/fd/{cwd}" if isinstance(cwd, int) else cwd,
                    env=dict(env),
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=True,
                )
            )
        except BaseException as error:  # noqa: BLE001  # a thread's root: handed to the waiter
            failed.append(error)

    if hold is None:
        work()
    else:
        thread = threading.Thread(target=work, name="clawkit-start", daemon=True)
        thread.start()
        thread.join()
    if failed:
        raise failed[0]
    return started[0]
