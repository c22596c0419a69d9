"""Every test has a home of its own: nothing on the machine shows through."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests.scale import scaled

# How long something takes says more about the machine than about the code.
settings.register_profile(
    "untimed",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=scaled(400),
)
settings.load_profile("untimed")


def pytest_itemcollected(item: pytest.Item) -> None:
    """A property is tried on more examples in `make bench`."""
    if getattr(getattr(item, "function", None), "is_hypothesis_test", False):
        item.add_marker(pytest.mark.long)


# What is collected stays to the end: a search for garbage, which some tests ask for, would go
# through all of it every time.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


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


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[Any]:
    """No lines are noted in a test marked `no_cover`: it goes where others went before, but more
    often. The mark alone does not do that in a worker, where two measure, one within the other."""
    if pyfuncitem.get_closest_marker("no_cover") is None:
        return (yield)
    tracing = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(tracing[0])
        threading.settrace(tracing[1])


@pytest.fixture(scope="session")
def _homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    base = tmp_path_factory.mktemp("homes")
    return (f"{base}/{number}" for number in itertools.count())


@pytest.fixture(autouse=True)
def _own_home(_homes: Iterator[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("CLAWKIT_")]:
        monkeypatch.delenv(name)
    home = next(_homes)
    os.mkdir(home, 0o700)
    monkeypatch.setenv("CLAWKIT_HOME", home)
    # No profile of the person who runs the tests is read, or left half done.
    monkeypatch.setenv("HOME", home)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A small directory to work in."""
    place = tmp_path / "ws"
    place.mkdir()
    (place / "a.txt").write_text("alpha\nbeta\n", encoding="utf-8")
    (place / "src").mkdir()
    (place / "src" / "main.py").write_text('print("ok")\n', encoding="utf-8")
    return place
