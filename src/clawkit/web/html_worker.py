"""Extracts the content of pages with a deadline.

A page may be made to take long. Large ones are read by a process of their own (`html_child.py`),
without files or network, which can be killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from subprocess import PIPE, Popen
from typing import IO, cast

import msgspec
import selectolax

import clawkit
from clawkit.core.tasks import in_thread
from clawkit.errors import ToolError
from clawkit.process.confine import start_helper
from clawkit.process.landlock import SYSTEM, Hold, available
from clawkit.web import html_child
from clawkit.web.extract import Mode, Page, extract_page

MAX_IN_PROCESS = 256 * 1024
MAX_ANSWER = 64 * 1024 * 1024

# Made here, in one thread: msgspec crashes when several threads use a type for the first time.
_PAGES = msgspec.json.Decoder(Page)


async def extract(
    html: str, *, base_url: str, mode: Mode, main_only: bool, timeout_s: float
) -> Page:
    """The content of a page, as `extract_page` finds it. Raises `ToolError` if that takes longer
    than `timeout_s`, or too much memory."""
    if len(html) <= MAX_IN_PROCESS:
        return extract_page(html, base_url=base_url, mode=mode, main_only=main_only)
    # Lone surrogates, which a page can contain, are not valid UTF-8.
    html = html.encode("utf-8", "replace").decode()
    request = {"html": html, "base_url": base_url, "mode": mode, "main_only": main_only}
    worker = _Worker()
    try:
        async with asyncio.timeout(timeout_s):
            answer: bytes = await in_thread(worker.run, msgspec.json.encode(request))
    except TimeoutError:
        raise ToolError(f"reading the page took longer than {timeout_s:g} s") from None
    finally:
        worker.stop()
    try:
        return _PAGES.decode(answer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ToolError("the page worker sent an invalid answer") from error


class _Worker:
    """One process. `run` blocks; any other thread may `stop` it."""

    def __init__(self) -> None:
        self._process: Popen[bytes] | None = None
        self._stopped = False
        # A process may be signalled only before it is reaped, when its pid may be reused.
        self._lock = threading.Lock()

    def run(self, request: bytes) -> bytes:
        try:
            hold = make_hold() if available() else None
            process = start_helper(make_argv(), cwd="/", env={}, hold=hold, stdin=PIPE)
        except OSError as error:
            raise ToolError(f"the page worker cannot be started: {error}") from error
        with self._lock:
            self._process = process
        if self._stopped:
            self.stop()
        # Both are pipes, which the type of Popen does not express.
        requests, answers = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        with answers:
            try:
                # It reads everything before it answers; if it dies, there is no answer.
                with contextlib.suppress(BrokenPipeError), requests:
                    requests.write(request)
                answer = answers.read(MAX_ANSWER)
            finally:
                self.stop()
                # Wait without the lock: the event loop may call `stop` in the meantime.
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
                with self._lock:
                    process.wait()
        if not answer.endswith(b"\n"):
            raise explain_end(process.returncode)
        return answer

    def stop(self) -> None:
        """Kill the process if it runs, or as soon as it is started."""
        with self._lock:
            self._stopped = True
            if self._process is not None and self._process.returncode is None:
                os.killpg(self._process.pid, signal.SIGKILL)


def explain_end(code: int) -> ToolError:
    """Why a worker with this exit code gave no answer."""
    if code == -signal.SIGXCPU:
        return ToolError(f"reading the page took more than {html_child.MAX_CPU_S} s")
    if code == html_child.NO_MEMORY:
        return ToolError("reading the page took too much memory")
    what = f"exit code {code}" if code >= 0 else f"signal {-code}"
    return ToolError(f"the page cannot be read: the worker failed ({what})")


def make_argv() -> list[str]:
    """The command line of the worker: without `site`, with clawkit and its libraries."""
    return [sys.executable, "-I", "-S", html_child.__file__, *_places()]


def make_hold() -> Hold:
    """What the worker may access: Python and its libraries, no files of the user."""
    base = sys.base_prefix
    python = (f"{base}/lib", f"{base}/lib64", f"{sys.prefix}/pyvenv.cfg")
    return Hold(read=(*python, *_places()), run=(sys.executable, *SYSTEM))


def _places() -> list[str]:
    """The directories of clawkit and of its libraries."""
    files = (clawkit.__file__, msgspec.__file__, selectolax.__file__)
    return list(dict.fromkeys(os.path.dirname(os.path.dirname(each)) for each in files))
