"""A lock that is free again as soon as its holder is gone; more of it in the tests of the store."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from clawkit.errors import ConflictError, ToolError
from clawkit.store import hold_lock, remove_lock


def test_a_lock_that_is_removed_while_others_come_is_still_held_by_one(tmp_path: Path) -> None:
    path = str(tmp_path / "locks" / "a.lock")
    inside, most, entered, lock = [0], [0], [0], threading.Lock()
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        for _ in range(300):
            try:
                with hold_lock(path, "it"):
                    with lock:
                        inside[0] += 1
                        entered[0] += 1
                        most[0] = max(most[0], inside[0])
                    with lock:
                        inside[0] -= 1
                    remove_lock(path)
            except ConflictError:
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert entered[0] > 0
    assert not os.path.exists(path)


def test_an_invalid_pid_names_no_process(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with hold_lock(str(path), "it"):
        path.write_text("x\ufffd", encoding="utf-8")
        with pytest.raises(ConflictError, match="it is in use by another process; wait"):
            hold_lock(str(path), "it").__enter__()


FULL = """
import resource, sys
from clawkit.errors import ToolError
from clawkit.store import hold_lock
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
try:
    hold_lock(sys.argv[1], "it").__enter__()
except ToolError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
with hold_lock(sys.argv[1], "it"):
    print("held")
"""


def test_a_full_disk_is_an_error_and_leaves_nothing_locked(tmp_path: Path) -> None:
    path = str(tmp_path / "a.lock")
    command = [sys.executable, "-c", FULL, path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    error, held = done.stdout.splitlines()
    assert error == f"it cannot be locked: {path} File too large"
    assert held == "held"


def test_a_directory_that_others_can_change_is_not_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(ToolError, match="can be written by others"):
        hold_lock(str(tmp_path / "a.lock"), "it").__enter__()
