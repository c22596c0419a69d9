"""Keeping other programs of the same user out of this one."""

from __future__ import annotations

import sys

_SET_DUMPABLE = 4


def hide_memory() -> None:
    """Let no program of the user, such as a command we start, read our memory and environment, or
    trace us. Root still can."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
