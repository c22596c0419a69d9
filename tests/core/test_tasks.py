"""Awaiting code that may hang, ignore its cancellation, or block."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Awaitable

import pytest

from clawkit.core import tasks
from clawkit.core.tasks import _Threads, bounded, in_thread, unbroken


@pytest.fixture(autouse=True)
def _own_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of an earlier test may not be traced, which would reduce the coverage."""
    monkeypatch.setattr(tasks, "_threads", _Threads())


class OwnError(BaseException):
    """Not an ordinary exception."""


async def value() -> str:
    await asyncio.sleep(0)
    return "done"


async def fail(error: BaseException) -> None:
    await asyncio.sleep(0)
    raise error


async def test_the_result_comes_back() -> None:
    assert await bounded(value(), None) == "done"
    assert await bounded(value(), 5) == "done"


async def test_an_exception_comes_back_as_it_is() -> None:
    with pytest.raises(KeyError, match="x"):
        await bounded(fail(KeyError("x")), None)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (SystemExit(3), r"tried to exit the program \(exit 3\)"),
        (SystemExit("bye"), r"tried to exit the program \(exit bye\)"),
        (GeneratorExit(), "it raised GeneratorExit"),
        (OwnError(), "it raised OwnError"),
        (BaseExceptionGroup("both", [OwnError(), ValueError()]), "it raised BaseExceptionGroup"),
        (asyncio.CancelledError(), "it cancelled itself"),
    ],
)
async def test_base_exceptions_become_ordinary_exceptions(error: BaseException, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        await bounded(fail(error), None)


async def test_an_object_that_cannot_be_awaited_is_an_ordinary_exception() -> None:
    not_awaitable: Awaitable[None] = "text"  # type: ignore[assignment]
    with pytest.raises(TypeError):
        await bounded(not_awaitable, None)


async def test_work_is_stopped_after_the_timeout() -> None:
    stopped = asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    with pytest.raises(TimeoutError):
        await bounded(hang(), 0.01)
    assert stopped.is_set()


async def test_cancelling_the_caller_cancels_the_work_and_waits_for_its_cleanup() -> None:
    started, cleaned = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            cleaned.set()

    task = asyncio.create_task(bounded(work(), None))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned.is_set()


@pytest.mark.parametrize("timeout_s", [0.01, None])
async def test_work_that_ignores_its_cancellation_is_left_behind(
    timeout_s: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    started, release, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        started.set()
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
        ended.set()

    task = asyncio.create_task(bounded(stubborn(), timeout_s, grace_s=0.01))
    await started.wait()
    if timeout_s is None:
        task.cancel()
    with pytest.raises((TimeoutError, asyncio.CancelledError)):
        await task
    assert not ended.is_set()
    assert "ignored its cancellation" in caplog.text
    release.set()
    await ended.wait()


async def test_a_failing_cleanup_is_noted_and_does_not_replace_the_cancellation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("cleanup failed")

    with pytest.raises(TimeoutError):
        await bounded(work(), 0.01)
    assert "cleanup failed" in caplog.text


async def test_a_second_cancellation_does_not_wait_for_the_grace() -> None:
    started, release, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow_to_stop() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await release.wait()
            ended.set()

    task = asyncio.create_task(bounded(slow_to_stop(), None, grace_s=3600))
    await started.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()
    await ended.wait()


async def test_unbroken_returns_the_result_or_raises_the_exception() -> None:
    assert await unbroken(value()) == "done"
    with pytest.raises(KeyError, match="x"):
        await unbroken(fail(KeyError("x")))


@pytest.mark.parametrize("error", [None, OSError("failed late")])
async def test_unbroken_work_is_finished_before_a_cancellation_is_raised(
    error: OSError | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    started, release, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        started.set()
        await release.wait()
        ended.set()
        if error:
            raise error

    task = asyncio.create_task(unbroken(work()))
    await started.wait()
    task.cancel()
    await asyncio.sleep(0.01)
    assert not task.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    assert ("failed late" in caplog.text) is (error is not None)


async def test_unbroken_work_that_cancels_itself_is_cancelled() -> None:
    with pytest.raises(asyncio.CancelledError):
        await unbroken(fail(asyncio.CancelledError()))


async def test_a_blocking_function_runs_in_a_daemon_thread() -> None:
    def look(a: int, *, b: int) -> tuple[int, bool, bool]:
        here = threading.current_thread()
        return a + b, here.daemon, here is threading.main_thread()

    assert await in_thread(look, 1, b=2) == (3, True, False)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (KeyError("x"), KeyError),
        (StopIteration(), RuntimeError),
        (KeyboardInterrupt(), RuntimeError),
        (OwnError(), OwnError),
    ],
)
async def test_an_exception_of_the_function_reaches_the_caller(
    error: BaseException, expected: type[BaseException]
) -> None:
    def work() -> None:
        raise error

    with pytest.raises(expected):
        await in_thread(work)


async def test_a_thread_may_end_after_its_caller_has_gone() -> None:
    release, ended = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        release.wait(60)
        loop.call_soon_threadsafe(ended.set)

    task = asyncio.create_task(in_thread(work))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()
    await ended.wait()
    await asyncio.sleep(0.01)


def test_a_thread_that_outlives_its_loop_is_only_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    release = threading.Event()

    def outlive() -> None:
        release.wait(60)

    async def leave_it() -> None:
        with pytest.raises(TimeoutError):
            await bounded(in_thread(outlive), 0.01)

    asyncio.run(leave_it())
    release.set()
    end = time.monotonic() + 60
    while "ended after its event loop" not in caplog.text and time.monotonic() < end:
        time.sleep(0.01)
    assert "ended after its event loop" in caplog.text
    assert "outlive" in caplog.text


def test_threads_are_used_again() -> None:
    threads, used = _Threads(), set()
    for _ in range(5):
        done = threading.Event()

        def note(done: threading.Event = done) -> None:
            used.add(threading.current_thread())
            done.set()

        threads.run(note)
        assert done.wait(60)
        while threads._idle == 0:
            time.sleep(0.001)
    assert len(used) == 1


async def test_blocking_functions_run_side_by_side() -> None:
    barrier = threading.Barrier(20, timeout=30)
    await asyncio.gather(*(in_thread(barrier.wait) for _ in range(20)))


async def test_idle_threads_are_few_and_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = _Threads()
    monkeypatch.setattr(threads, "MAX_IDLE", 2)
    monkeypatch.setattr(threads, "IDLE_S", 0.05)
    barrier = threading.Barrier(6, timeout=30)

    def meet() -> None:
        barrier.wait()

    for _ in range(6):
        threads.run(meet)
    done = threading.Event()
    await asyncio.sleep(0.02)
    threads.run(done.set)
    assert done.wait(60)
    end = time.monotonic() + 60
    while threads._idle and time.monotonic() < end:
        await asyncio.sleep(0.01)
    assert threads._idle == 0


def test_a_thread_that_is_about_to_end_still_takes_a_waiting_job() -> None:
    threads = _Threads()
    threads.IDLE_S = 0.0
    done = threading.Event()
    threads._idle = -1  # as if somebody had counted on the thread that is about to wait
    threads.run(lambda: None)
    time.sleep(0.05)
    threads._jobs.put(done.set)
    assert done.wait(60)
