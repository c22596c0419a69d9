"""Running foreign code: a tool or hook may hang, ignore cancellation, or block."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Awaitable, Callable
from typing import Any

GRACE_S = 5.0

log = logging.getLogger(__name__)


async def bounded(work: Awaitable[Any], timeout_s: float | None, grace_s: float = GRACE_S) -> Any:
    """Await the work. Raises `TimeoutError` after its time limit; cancelled with the caller.

    In both cases the work is cancelled and gets a short grace period to clean up. Work that ignores
    even that is abandoned, so that the caller can continue.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    task = loop.create_task(_contain(work, ended))
    task.add_done_callback(lambda _: _settle(ended))  # in case it never started
    timer = loop.call_later(timeout_s, _settle, ended) if timeout_s is not None else None
    try:
        await ended
    except asyncio.CancelledError:
        await _stop(task, grace_s)
        raise
    finally:
        if timer is not None:
            timer.cancel()
    if not task.done():
        await _stop(task, grace_s)
        raise TimeoutError
    if task.cancelled():
        raise RuntimeError("it cancelled itself")
    return task.result()


def _settle(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


async def _contain(work: Awaitable[Any], ended: asyncio.Future[None]) -> Any:
    """The work, with every failure turned into an ordinary exception. `ended` is set in its last
    step, so that its waiter resumes one iteration of the event loop earlier."""
    try:
        return await work
    except (Exception, asyncio.CancelledError, KeyboardInterrupt):
        raise
    except SystemExit as exit_:
        raise RuntimeError(f"it tried to exit the program (exit {exit_.code})") from None
    except BaseException as error:  # a task's root: it must not take others down
        raise RuntimeError(f"it raised {type(error).__name__}") from error
    finally:
        _settle(ended)


async def _stop(task: asyncio.Future[Any], grace_s: float) -> None:
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=grace_s)
    if done:
        _note_failure(task)
    else:
        log.warning("abandoned: it ignored its cancellation for %s s: %r", grace_s, task)


def _note_failure(task: asyncio.Future[Any]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.debug("failed while being cancelled: %r", task.exception())


async def unbroken(work: Awaitable[Any]) -> Any:
    """Await the work to its end. A cancellation is raised only after it has finished."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        _note_failure(task)
        raise


async def in_thread(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a blocking function in a daemon thread, which cannot keep the program from exiting."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(set_outcome: Callable[[Any], None], outcome: Any) -> None:
        if not future.done():
            set_outcome(outcome)

    def work() -> None:
        outcome: tuple[Callable[[Any], None], Any]
        try:
            outcome = future.set_result, function(*args, **kwargs)
        except (StopIteration, KeyboardInterrupt) as error:
            # A future cannot carry StopIteration; and a KeyboardInterrupt here is not a Ctrl-C,
            # which arrives in the main thread.
            outcome = future.set_exception, RuntimeError(f"it raised {type(error).__name__}")
        except BaseException as error:  # noqa: BLE001  # a thread's root: passed to the waiter
            outcome = future.set_exception, error
        try:
            loop.call_soon_threadsafe(settle, *outcome)
        except RuntimeError:
            log.debug("a thread ended after its event loop: %r", function)

    _threads.run(work)
    return await future


class _Threads:
    """Threads that wait a while for more jobs, because starting a thread costs more than most
    jobs."""

    MAX_IDLE = 8
    IDLE_S = 10.0

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0  # waiting threads without an assigned job

    def run(self, job: Callable[[], None]) -> None:
        """Run a job immediately; it must not raise."""
        with self._lock:
            waiting = self._idle > 0
            self._idle -= waiting
        if waiting:
            self._jobs.put(job)
        else:
            threading.Thread(target=self._work, args=(job,), name="clawkit", daemon=True).start()

    def _work(self, job: Callable[[], None] | None) -> None:
        while job is not None:
            job()
            job = None  # release what it refers to while the thread waits
            job = self._wait()

    def _wait(self) -> Callable[[], None] | None:
        with self._lock:
            if self._idle >= self.MAX_IDLE:
                return None
            self._idle += 1
        try:
            return self._jobs.get(timeout=self.IDLE_S)
        except queue.Empty:
            with self._lock:
                if self._idle > 0:
                    self._idle -= 1
                    return None
            # A job has just been assigned to this thread and is about to arrive.
            return self._jobs.get()


_threads = _Threads()
