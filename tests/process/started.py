"""Real commands for tests, written down the way a clawkit does."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clawkit.process import process_table, records
from clawkit.process.records import CommandRecord

PATIENCE_S = 60.0
KEY = f"calm-otter-ab1{os.getpid():x}"
TOGETHER = pytest.mark.xdist_group("records")
"""For tests that would find each other's commands if they ran side by side."""
BOMBS = pytest.mark.xdist_group("bombs")
"""For tests that start so many processes that whoever counts those of the machine would notice."""
Start = Callable[..., CommandRecord]


def until(is_so: Callable[[], Any]) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def make(**fields: Any) -> CommandRecord:
    """A record of nothing in particular."""
    known = {
        "key": KEY,
        "id": "calm-otter",
        "owner": "main",
        "text": "sleep 60",
        "cwd": "/tmp",
        "pid": 2,
        "since": 1,
        "started": 1_000.0,
        "detached": False,
        "terminal": None,
        "keeper": os.getpid(),
    }
    return CommandRecord(**{**known, **fields})


def log_of(folder: Path, key: str = KEY) -> Path:
    return folder / f"{key}.log"


def members(record: CommandRecord) -> list[str]:
    """The names of the processes of a command."""
    return sorted(each.name for each in records.living(record, process_table.table()).values())


@contextmanager
def starting(folder: Path) -> Iterator[Start]:
    """Start commands in sessions of their own, and end all of them afterwards."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    begun: list[tuple[CommandRecord, subprocess.Popen[bytes]]] = []

    def start(text: str, /, *, key: str = KEY, **fields: Any) -> CommandRecord:
        """Returns when the command has said `ready`, if it ever does."""
        with log_of(folder, key).open("ab") as log:
            process = subprocess.Popen(
                ["/bin/bash", "--noprofile", "--norc", "-c", text],
                env={"PATH": os.environ["PATH"], process_table.TAG: key},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        seen = process_table.look(process.pid)
        assert seen is not None
        known = {
            "key": key,
            "id": key.rpartition("-")[0],
            "text": text,
            "cwd": str(folder),
            "pid": process.pid,
            "since": seen.started,
            "started": time.time(),
        }
        record = make(**{**known, **fields})
        records.write(str(folder), record)
        begun.append((record, process))
        if "ready" in text:
            until(lambda: b"ready" in log_of(folder, key).read_bytes())
        return record

    try:
        yield start
    finally:
        records.end([record for record, _ in begun], grace_s=0)
        for _, process in begun:
            process.kill()
            process.wait()
