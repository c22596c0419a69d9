"""An agent without an event loop of the program."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Coroutine
from threading import Lock
from typing import Any, TypeVar

from clawkit.errors import ToolError

T = TypeVar("T")


class SyncRunner:
    """Runs coroutines in one loop, to which connections and commands are bound."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._at_exit: weakref.finalize[..., Any] | None = None
        self._is_used = Lock()
        self._is_closed = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Raises RuntimeError where a loop is running, or if another thread is using this one."""
        if (problem := self._begin()) is not None:
            work.close()
            raise problem
        try:
            if self._runner is None:
                self._runner = asyncio.Runner()
                self._at_exit = weakref.finalize(self, _close, self._runner)
            return self._runner.run(work)
        finally:
            self._is_used.release()

    def _begin(self) -> Exception | None:
        """Reserve the loop for this thread, or say why that is impossible."""
        if self._is_closed:
            return ToolError("this agent is closed; open another one with Agent.open")
        if _is_loop_running():
            return RuntimeError(
                "an event loop is running here (async code, a notebook): use `async with` and "
                "`await agent.run(…)` instead of `with` and `run_sync`"
            )
        if not self._is_used.acquire(blocking=False):
            return RuntimeError(
                "another thread is using this agent: open one for each thread, or use "
                "`await agent.run(…)` in one event loop"
            )
        return None

    def close(self) -> None:
        self._is_closed = True
        if self._at_exit is not None:
            self._at_exit()


def _close(runner: asyncio.Runner) -> None:
    """Runs at the exit of the program as well, if it does not close the agent."""
    if _is_loop_running():  # another loop, in which this one cannot run
        runner.get_loop().close()
    else:
        runner.close()


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
