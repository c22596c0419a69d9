"""Plugin code among our own: which plugin blocks the event loop, and whose hook failed."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any

from clawkit.core.context import Context
from clawkit.core.tool import Tool

if TYPE_CHECKING:
    import asyncio

    from clawkit.plugins.load import ActivePlugin

BLOCKED_S = 1.0
_POLL_S = 0.1
_AGAIN_S = 60.0


def contained(tool: Tool, active: ActivePlugin) -> Tool:
    """The tool, watched while it runs."""

    async def execute(params: Any, ctx: Context) -> object:
        with watching(active):
            return await tool.execute(params, ctx)

    return replace(tool, execute=execute)


@contextmanager
def watching(active: ActivePlugin) -> Iterator[None]:
    """Report if the plugin blocks the event loop of this thread meanwhile."""
    import asyncio  # is running, but not needed to load a plugin

    loop = asyncio.get_running_loop()
    watch = _watches.get(threading.get_ident())
    if watch is None or watch.loop is not loop:
        watch = _watches[threading.get_ident()] = _LoopWatch(loop)
    watch.running.append(active)
    watch.start()
    try:
        yield
    finally:
        watch.running.remove(active)


class _LoopWatch:
    """A thread that exists only while plugin code runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ident = threading.get_ident()
        self.running: list[ActivePlugin] = []
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._watch, name="clawkit-watch", daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        while self.running and not self.loop.is_closed():
            ticked = threading.Event()
            with suppress(RuntimeError):  # closed just now
                self.loop.call_soon_threadsafe(ticked.set)
            if not ticked.wait(BLOCKED_S):
                self._report(sys._current_frames().get(self._ident))
                ticked.wait(_AGAIN_S)
            time.sleep(_POLL_S)

    def _report(self, frame: FrameType | None) -> None:
        """Find the plugin by the code that the loop's thread is running."""
        while frame is not None:
            file = frame.f_code.co_filename
            for active in tuple(self.running):
                if file == active.location or file.startswith(f"{active.location}/"):
                    what = f"{frame.f_code.co_name} (line {frame.f_lineno})"
                    why = f"{what} blocks the event loop for more than {BLOCKED_S:g} s; "
                    active.note(f"{why}use `await`, or a plain `def`, which runs in a thread")
                    return
            frame = frame.f_back


_watches: dict[int, _LoopWatch] = {}
