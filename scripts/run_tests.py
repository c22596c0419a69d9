"""Run tests in several processes; the few that fail are named and run once more, alone.

Tests are collected once, and every worker is a copy of the process that did so: nothing is imported
or collected again, and there can be many more workers than processors, since most tests wait for
processes. A worker takes neighbouring tests of one module, so that few make the same fixtures, and
all tests with the same `xdist_group`.

On a busy machine a test that drives real processes, terminals or containers may miss its time. A
test that is broken fails again, and so does the run. More failures than a few are never run again.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import deque
from collections.abc import Iterable
from itertools import groupby
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest

MOST_AGAIN = 5
FAILED = Path(".pytest_cache/v/cache/lastfailed")
PIECE = 8
"""So many tests are handed out at once, at most."""


def main(arguments: list[str]) -> int:
    FAILED.unlink(missing_ok=True)
    processors = os.cpu_count() or 1
    # The tests that coverage is measured by wait less than others.
    count = processors + 1 if "--part=traced" in arguments else 3 * processors
    sys.path[0] = os.getcwd()  # as with `python -m pytest`
    status = int(pytest.main([*arguments], plugins=[Workers(count)]))
    if status != pytest.ExitCode.TESTS_FAILED or not FAILED.exists():
        return status
    failed = list(json.loads(FAILED.read_text("utf-8")))
    if not 0 < len(failed) <= MOST_AGAIN:
        return status
    print(f"\nfailed, and run once more alone (a test to fix): {', '.join(failed)}\n", flush=True)
    options = [each for each in arguments if not Path(each).exists()]
    again = [sys.executable, "-m", "pytest", *options]
    if "--cov" in arguments:
        again.append("--cov-append")
    return subprocess.run([*again, *failed]).returncode


def pieces(items: list[pytest.Item]) -> Iterable[list[int]]:
    """Numbers of tests that one worker runs in a row; groups, which take longest, first."""
    groups: dict[str, list[int]] = {}
    alone: list[int] = []
    for number, item in enumerate(items):
        mark = item.get_closest_marker("xdist_group")
        (groups.setdefault(mark.args[0], []) if mark else alone).append(number)
    yield from groups.values()
    for _, found in groupby(alone, lambda number: items[number].path):
        numbers = list(found)
        for start in range(0, len(numbers), PIECE):
            yield numbers[start : start + PIECE]


class Worker:
    """A copy of this process that runs tests, as the first process sees it."""

    def __init__(self, number: int, pid: int, pipe: Connection) -> None:
        self.number, self.pid, self.pipe = number, pid, pipe
        self.todo: deque[int] = deque()
        """What it was given and has not finished; the first is the one that runs."""
        self.is_last = False

    def give(self, piece: list[int]) -> None:
        """After an empty piece it ends."""
        self.todo.extend(piece)
        self.is_last = not piece
        self.pipe.send(piece)

    def join(self) -> str:
        """Wait for its end, and say how it ended if that is not as it should."""
        self.pipe.close()
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if self.is_last and not self.todo and not code:
            return ""
        return f"the worker was ended by {f'signal {-code}' if code < 0 else f'exit code {code}'}"


class Workers:
    """The plugin for pytest, in the first process and in its copies."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._workers: dict[Any, Worker] = {}
        self._up: Connection | None = None
        """In a copy: to the first process."""

    def pytest_configure(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed or session.config.option.collectonly:
            return None  # pytest says what is to be said
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        left = deque(pieces(session.items))
        for number in range(min(self._count, len(left))):
            self._start(session, number)
        try:
            while self._workers:
                for pipe in wait(list(self._workers)):
                    self._hear(session, self._workers[pipe], left)
        finally:
            for worker in self._workers.values():
                worker.join()  # of no use any more: it ends after its test, or by Ctrl-C
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        return True

    def _start(self, session: pytest.Session, number: int) -> None:
        sys.stdout.flush()
        pipe, up = Pipe()
        pid = os.fork()
        if not pid:
            for other in (pipe, *self._workers):
                other.close()
            self._work(session, number, up)
        up.close()
        self._workers[pipe] = Worker(number, pid, pipe)

    def _hear(self, session: pytest.Session, worker: Worker, left: deque[list[int]]) -> None:
        hook = session.config.hook
        try:
            said = worker.pipe.recv()
        except (EOFError, ConnectionError):
            said = ""
        match said:
            case "":
                del self._workers[worker.pipe]
                if how := worker.join():
                    _report_crash(session, worker.todo, how)
                    left.extendleft([list(worker.todo)] if worker.todo else [])
                    self._start(session, worker.number)
            case None:
                is_over = session.shouldfail or session.shouldstop or not left
                worker.give([] if is_over else left.popleft())
            case int():
                item = session.items[worker.todo.popleft()]
                hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
            case _:
                report = hook.pytest_report_from_serializable(config=session.config, data=said)
                hook.pytest_runtest_logreport(report=report)

    def _work(self, session: pytest.Session, number: int, up: Connection) -> None:
        """Run what is handed out, and end."""
        code = 1
        try:
            _keep_apart(session.config, number)
            self._up = up
            todo = self._next(up)
            while todo:
                now = todo.popleft()
                # Fixtures that the next test needs are kept.
                todo = todo or self._next(up)
                item, following = session.items[now], session.items[todo[0]] if todo else None
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                up.send(now)
            _save_coverage()
            code = 0
        except (EOFError, ConnectionError, KeyboardInterrupt):
            pass  # the first process has ended, or is about to
        finally:
            try:
                session._setupstate.teardown_exact(None)
            finally:
                os._exit(code)

    def _next(self, up: Connection) -> deque[int]:
        up.send(None)
        return deque(up.recv())

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._up is not None:
            config = self._config
            self._up.send(config.hook.pytest_report_to_serializable(config=config, report=report))


def _keep_apart(config: pytest.Config, number: int) -> None:
    """A copy has chance, a file for caught output and a directory for temporary files of its own,
    and no terminal."""
    random.seed()
    caught: Any = config.pluginmanager.getplugin("capturemanager")
    caught.stop_global_capturing()
    caught.start_global_capturing()
    places = config._tmp_path_factory  # type: ignore[attr-defined]
    places._basetemp = places.getbasetemp() / f"w{number}"
    places._basetemp.mkdir(0o700, exist_ok=True)
    terminal: Any = config.pluginmanager.getplugin("terminalreporter")
    terminal._tw._file = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def _save_coverage() -> None:
    """Into a file of its own; pytest-cov puts all of them together."""
    coverage = sys.modules.get("coverage")
    if coverage is not None and (current := coverage.Coverage.current()):
        current.stop()
        current.save()


def _report_crash(session: pytest.Session, todo: deque[int], how: str) -> None:
    """The test that was running has failed."""
    if not todo:
        session.shouldfail = how
        return
    item = session.items[todo.popleft()]
    report = pytest.TestReport(item.nodeid, item.location, {}, "failed", how, "call")
    session.config.hook.pytest_runtest_logreport(report=report)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
