"""Runs jobs in this process, like the gateway but without sockets."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from clawkit.cli.console import cancelled_by_signals, echo
from clawkit.config.load import Loaded
from clawkit.gateway.daemon import check_home
from clawkit.gateway.serve import only_one
from clawkit.gateway.server import Gateway

SWEEP_S = 1.0
"""Seconds after which idle sessions of jobs are released for chats."""


def serve_jobs(loaded: Loaded, tell: Callable[[dict[str, Any]], None]) -> None:
    """Run jobs until Ctrl-C or SIGTERM; `tell` is called with every change of a job. Raises
    `ConflictError` if another process runs jobs."""
    check_home()
    with only_one():
        asyncio.run(_serve(loaded, tell))


async def _serve(loaded: Loaded, tell: Callable[[dict[str, Any]], None]) -> None:
    gateway, stopped = Gateway(loaded), asyncio.Event()

    def stop() -> None:
        if stopped.is_set():  # the second time
            gateway.live.hurry.set()
        stopped.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    gateway.job_runner.on_told = tell
    await gateway.start()
    echo("clawkit cron: running jobs; Ctrl-C stops", err=True)
    try:
        while not stopped.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), SWEEP_S)
            await gateway.live.sweep(SWEEP_S)
    finally:
        await gateway.stop()


def run_here(loaded: Loaded, run_id: str) -> None:
    """Execute one queued run. Ctrl-C stops it, which counts as a failure."""
    check_home()
    with only_one():
        asyncio.run(_run(loaded, run_id))


async def _run(loaded: Loaded, run_id: str) -> None:
    gateway = Gateway(loaded)
    work = asyncio.ensure_future(gateway.job_runner.scheduler.run_one(run_id))
    watching = asyncio.ensure_future(gateway.desk.watch())
    try:
        with cancelled_by_signals(work):
            await work
    finally:
        watching.cancel()
        await gateway.stop()
