from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.process.watching import alive, children, new_marker, until

from clawkit.process.local_host import LocalHost
from clawkit.process.protocols import Launch


@pytest.fixture
def marker() -> Iterator[str]:
    """Seconds to sleep that no other process has; whatever still has them afterwards is ended."""
    marker = new_marker()
    yield marker
    for pid in alive(marker):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def launch(tmp_path: Path) -> Any:
    """Makes what is to run, in a directory of the test."""

    def make(text: str, **options: Any) -> Launch:
        return Launch(text, str(tmp_path), {"PATH": os.environ["PATH"]})._replace(**options)

    return make


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[LocalHost]:
    host = LocalHost(str(tmp_path / "spool"))
    yield host
    await host.close()


@pytest.fixture
async def no_loose_ends() -> AsyncIterator[None]:
    """Nothing goes wrong where nobody looks, and no dead child is left lying about."""
    wrong: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context))
    before = set(children(os.getpid()))
    yield
    gc.collect()
    await asyncio.sleep(0)
    assert not wrong
    # A keeper whose last command was to live on, and then was ended, goes by itself.
    await until(lambda: not children(os.getpid()).keys() - before, "no child is left")
