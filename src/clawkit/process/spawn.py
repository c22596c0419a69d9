"""Starting a program in a session of its own, with nothing of the keeper's but its directory."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from typing import Any

_FIXED = (signal.SIGKILL, signal.SIGSTOP)
_SIGNALS = [each for each in signal.Signals if each < 32 and each not in _FIXED]
"""What somebody may have set to be ignored; those of real-time are nobody's."""


def prepare(argv: list[str], env: dict[str, str], fds: list[int], tty: str) -> Callable[[], int]:
    """What starts a program by its path, and returns its pid. `fds` are its directory and either
    its standard input and output or a handle of its terminal."""
    actions: list[tuple[Any, ...]]
    if tty:
        # The first terminal that the leader of a session opens becomes its own.
        actions = [(os.POSIX_SPAWN_OPEN, 0, tty, os.O_RDWR, 0)]
        actions += [(os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]
    else:
        actions = [(os.POSIX_SPAWN_DUP2, fds[1], 0)]
        actions += [(os.POSIX_SPAWN_DUP2, fds[2], each) for each in (1, 2)]
    options: dict[str, Any] = {"setsid": True, "setsigdef": _SIGNALS, "setsigmask": ()}
    return functools.partial(os.posix_spawn, argv[0], argv, env, file_actions=actions, **options)
