"""Watches plugin code: finds the plugin that blocks the event loop or whose hook failed."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from traceback import walk_stack
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
    """Report if the plugin blocks this thread's event loop inside the block."""
    import asyncio  # not needed to load a plugin

    loop, thread = asyncio.get_running_loop(), threading.get_ident()
    watch = _watches.get(thread)
    if watch is None or watch.loop is not loop or not watch.is_alive():
        watch = _watches[thread] = _LoopWatch(loop, thread, active)
        watch.start()
    else:
        watch.running.append(active)
    try:
        yield
    finally:
        watch.running.remove(active)


class _LoopWatch(threading.Thread):
    """A thread that exists only while plugin code runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: int, active: ActivePlugin) -> None:
        super().__init__(name="clawkit-watch", daemon=True)
        self.loop, self._watched, self.running = loop, thread, [active]

    def run(self) -> None:
        while self.running and not self.loop.is_closed():
            ticked = threading.Event()
            with suppress(RuntimeError):  # it was just closed
                self.loop.call_soon_threadsafe(ticked.set)
            if not ticked.wait(BLOCKED_S):
                self._report()
                ticked.wait(_AGAIN_S)
            time.sleep(_POLL_S)

    def _report(self) -> None:
        """Find the plugin by the code that the loop's thread is running."""
        for frame, line in walk_stack(sys._current_frames().get(self._watched)):
            file = frame.f_code.co_filename
            for active in tuple(self.running):
                if file == active.location or file.startswith(f"{active.location}/"):
                    what = f"{frame.f_code.co_name} (line {line})"
                    why = f"{what} blocks the event loop for more than {BLOCKED_S:g} s; "
                    active.note(f"{why}use `await`, or a plain `def`, which runs in a thread")
                    return


_watches: dict[int, _LoopWatch] = {}
