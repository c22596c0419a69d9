"""Every test has its own home, independent of the machine's configuration."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import itertools
import os
import re
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from tests.cli.asking import PROGRAM
from tests.forked import ready_clawkit
from tests.scale import FULL
from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]

# Durations depend more on the machine than on the code.
settings.register_profile(
    "untimed",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=400 if FULL else 25,
)
settings.load_profile("untimed")
if not FULL:
    # Each worker would parse all modules for constants to try, and its examples would depend on
    # what other tests have imported.
    providers._get_local_constants = lambda: providers._local_constants


def pytest_itemcollected(item: pytest.Item) -> None:
    """`make bench` tests properties with more examples."""
    if _is_property(item):
        item.add_marker(pytest.mark.long)


def _is_property(item: pytest.Item) -> bool:
    return getattr(getattr(item, "function", None), "is_hypothesis_test", False)


# Processes that a shell starts with `&` ignore Ctrl-C, and so do their descendants.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Collected tests live to the end, and garbage collections in tests would traverse all of them.
gc.disable()


# Compiling the tests takes as long as collecting them. The setup compiles `src` even if Python is
# told not to write bytecode; bytecode of tests is written here, but none of modules that a test
# writes.
_WRITES_NONE = sys.dont_write_bytecode
sys.dont_write_bytecode = False


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Workers start with different modules, and find those of other workers already compiled."""
    given = getattr(session.config, "workerinput", None)
    if given is None:
        return
    folders = [Path(session.config.rootpath, arg) for arg in session.config.args]
    modules = sorted(
        path
        for folder in folders
        for path in folder.rglob("test_*.py")
        if not pytest_ignore_collect(path, session.config)
    )
    for path in modules[int(given["workerid"].removeprefix("gw")) :: given["workercount"]]:
        name = ".".join(path.relative_to(session.config.rootpath).with_suffix("").parts)
        # Import errors are reported at collection.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(name)


def pytest_collection_finish() -> None:
    sys.dont_write_bytecode = _WRITES_NONE
    gc.freeze()
    gc.enable()


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """As pytest's own, with one report instead of three of a test that passed: a worker sends
    each, and the controller has as many of them to take as all workers together."""
    name, place = item.nodeid, item.location
    item.ihook.pytest_runtest_logstart(nodeid=name, location=place)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    if all(report.passed for report in reports):
        reports[1].duration = sum(report.duration for report in reports)
        reports = reports[1:2]
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=name, location=place)
    return True


_BETWEEN = itertools.count(1)


def pytest_runtest_logfinish() -> None:
    """Exclude reports of finished tests and imported modules from garbage collections: a worker
    ends up with half a million such objects."""
    if next(_BETWEEN) % 50 == 0:
        gc.collect()
        gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how long the tests of each directory took, over all workers."""
    seconds: dict[str, float] = defaultdict(float)
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            path = report.nodeid.partition("::")[0]
            seconds[path if path.count("/") == 1 else "/".join(path.split("/")[:2])] += (
                report.duration
            )
    if len(seconds) > 3:
        terminalreporter.section("seconds per directory")
        for path, spent in sorted(seconds.items(), key=lambda item: -item[1])[:25]:
            terminalreporter.write_line(f"{spent:8.1f}  {path}")


class Chunks(LoadGroupScheduling):  # type: ignore[misc]
    """Schedules neighbouring tests together, preferring the current module of a worker: what a
    module prepares once is not prepared by every worker, and the controller, which looks at all it
    has handed out after every test, has less of that."""

    SIZE = 10

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._scopes: dict[str, str] = {}
        self._counts: dict[str, int] = defaultdict(int)
        self._modules: dict[object, str] = {}

    def _assign_work_unit(self, node: object) -> None:
        own = self._modules.pop(node, None)
        taken = set(self._modules.values())
        modules = [(scope.rpartition("@")[0], scope) for scope in self.workqueue]
        module, scope = (
            next((each for each in modules if each[0] == own), None)
            or next((each for each in modules if each[0] not in taken), None)
            or modules[0]
        )
        self._modules[node] = module
        self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        if scope != nodeid:
            return scope
        if nodeid not in self._scopes:
            path = nodeid.partition("::")[0]
            self._scopes[nodeid] = f"{path}@{self._counts[path] // self.SIZE}"
            self._counts[path] += 1
        return self._scopes[nodeid]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Chunks:
    return Chunks(config, log)


# The tests that reach all code with required coverage; tracing others only slows them down.
COVERING = frozenset(
    (
        *("approvals", "core", "guard", "policy"),
        *("fs/test_containment.py", "tools/test_exec_asking.py"),
    )
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part",
        choices=("traced", "untraced"),
        help="only the tests that coverage is measured by, or only the others; each part runs in "
        "processes of its own, since caches and threads that an untraced test leaves behind would "
        "hide lines from a traced one",
    )


@functools.cache
def _is_covering(path: Path) -> bool:
    below = path.relative_to(Path(__file__).parent)
    return below.parts[0] in COVERING or str(below) in COVERING


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip modules without tests of the requested part."""
    part = config.getoption("part")
    if not part or collection_path.suffix != ".py":
        return None
    if not _is_covering(collection_path):
        return part == "traced" or None
    text = collection_path.read_text("utf-8")
    return (part == "untraced" and "untraced" not in text) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _put_longest_first(items)
    part = config.getoption("part")
    if not part:
        return
    parts = [_part_of(item) for item in items]
    config.hook.pytest_deselected(
        items=[item for item, its in zip(items, parts, strict=True) if its != part]
    )
    items[:] = [item for item, its in zip(items, parts, strict=True) if its == part]


def _put_longest_first(items: list[pytest.Item]) -> None:
    """Start soak tests and exclusive groups first, so that no worker waits for them at the end."""
    longest = {item.path for item in items if _runs_long(item)}
    items.sort(
        key=lambda item: (item.get_closest_marker("xdist_group") is None, item.path not in longest)
    )


def _runs_long(item: pytest.Item) -> bool:
    return item.get_closest_marker("long") is not None and not _is_property(item)


def _part_of(item: pytest.Item) -> str:
    is_traced = _is_covering(item.path) and item.get_closest_marker("untraced") is None
    return "traced" if is_traced else "untraced"


@pytest.fixture(scope="session")
def _homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    base = tmp_path_factory.mktemp("homes")
    return (f"{base}/{number}" for number in itertools.count())


@pytest.fixture
def tmp_path(_homes: Iterator[str], request: pytest.FixtureRequest) -> Path:
    """As pytest's own, which looks at the directories of all earlier tests each time."""
    # Short, since sockets may be in it.
    path = Path(f"{next(_homes)}-{re.sub(r'[^a-z]+', '_', request.node.name[5:].lower())[:15]}")
    path.mkdir(0o700)
    return path


@pytest.fixture(autouse=True)
def _own_home(_homes: Iterator[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("CLAWKIT_")]:
        monkeypatch.delenv(name)
    home = next(_homes)
    os.mkdir(home, 0o700)
    monkeypatch.setenv("CLAWKIT_HOME", home)
    # The shell profile of the person who runs the tests is not read.
    monkeypatch.setenv("HOME", home)


class QuietSubtests:
    """As pytest's own, but what passes is not reported: each report takes longer than most cases,
    in the worker and in the controller."""

    def __init__(self, subtests: pytest.Subtests) -> None:
        self._subtests = subtests

    @contextlib.contextmanager
    def test(self, msg: str | None = None, **kwargs: Any) -> Iterator[None]:
        try:
            yield
        except (Exception, pytest.fail.Exception, pytest.skip.Exception):
            with self._subtests.test(msg, **kwargs):
                raise


@pytest.fixture
def subtests(subtests: pytest.Subtests) -> QuietSubtests:
    return QuietSubtests(subtests)


@pytest.fixture(scope="session")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """`PROGRAM` is a fork of a clawkit process that has imported everything."""
    env = {**os.environ, "PYTHONUTF8": "1"}
    with ready_clawkit(tmp_path_factory.mktemp("ready"), env) as program:
        PROGRAM[:] = [str(program)]
        yield


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A small working directory."""
    place = tmp_path / "ws"
    place.mkdir()
    (place / "a.txt").write_text("alpha\nbeta\n", encoding="utf-8")
    (place / "src").mkdir()
    (place / "src" / "main.py").write_text('print("ok")\n', encoding="utf-8")
    return place
