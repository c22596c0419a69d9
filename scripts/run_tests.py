"""Run all tests in parallel; the few that fail are named and run once more, one after another.

Many tests drive real processes, terminals and containers, and on a busy machine one of them may
miss its time. A test that is broken fails again, and so does the run. More failures than a few
are never run again. A run that says nothing for long, as when a worker was killed, fails with what
every process of it was doing.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

MOST_AGAIN = 5
# No test has more than ten minutes.
SILENCE_S = float(os.environ.get("CLAWKIT_TEST_SILENCE_S", "720"))
FAILED = Path(".pytest_cache/v/cache/lastfailed")
PYTEST = [sys.executable, "-m", "pytest"]
# Tests make tens of thousands of small files and databases: on a disk, with its journal and its
# flushes, that takes a fifth of the time.
IN_MEMORY = ["unshare", "--mount", "sh", "-c"]
IN_MEMORY += ['mount -t tmpfs -o mode=1777 tmpfs "$0" && exec "$@"', tempfile.gettempdir()]
ENOUGH_KIB = 6 * 1024**2


def main(arguments: list[str]) -> int:
    FAILED.unlink(missing_ok=True)
    # Many tests wait for processes, so use more workers than CPUs. Tests for coverage wait less.
    workers = str((os.cpu_count() or 1) + (1 if "--part=traced" in arguments else 3))
    pytest = [*in_memory(), *PYTEST]
    parallel = [*pytest, "-n", workers, "--dist", "loadgroup", *arguments]
    status = run(parallel)
    if status != 1 or not FAILED.exists():
        return status
    # Workers add the group of a test to its name.
    failed = [re.sub(r"@[\w-]+$", "", name) for name in json.loads(FAILED.read_text("utf-8"))]
    if not 0 < len(failed) <= MOST_AGAIN:
        return status
    print(f"\nfailed, and run once more alone (a test to fix): {', '.join(failed)}\n", flush=True)
    options = [each for each in arguments if not Path(each.partition("::")[0]).exists()]
    again = [*pytest, *options, "-n", "0"]
    if "--cov" in arguments:
        again.append("--cov-append")
    return run([*again, *failed])


def in_memory() -> list[str]:
    """A command prefix that mounts a private temporary directory in memory; empty without the
    rights to do so, or with little memory."""
    found = re.search(r"MemAvailable: *(\d+)", Path("/proc/meminfo").read_text())
    needed = (Path.cwd(), Path(sys.prefix), Path(sys.base_prefix))
    if (
        found is None
        or int(found[1]) < ENOUGH_KIB
        or any(each.is_relative_to(tempfile.gettempdir()) for each in needed)
        or os.geteuid() != 0
        or shutil.which(IN_MEMORY[0]) is None
        or subprocess.run([*IN_MEMORY, "true"], capture_output=True).returncode != 0
    ):
        return []
    return IN_MEMORY


def run(command: list[str]) -> int:
    """Run pytest and pass on what it prints; returns its exit code, or 1 if it hangs."""
    if sys.stdout.isatty():
        command = [*command, "--color=yes"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        output = process.stdout.fileno()  # type: ignore[union-attr]
        while select.select([output], [], [], SILENCE_S)[0]:
            if not (data := os.read(output, 65_536)):
                return process.wait()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        print(f"\n\nnothing for {SILENCE_S:g} s: the run hangs. Its processes:\n", flush=True)
        found = [*descendants(process.pid), process.pid]
        for pid in found:
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                print(pid, b" ".join(words).decode(errors="replace")[:200], flush=True)
        # One process at a time, because Python prints the stack of each thread and output would
        # mix. Other programs just end.
        for number, wait_s in ((signal.SIGABRT, 0.5), (signal.SIGKILL, 0)):
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
                    time.sleep(wait_s)
        return 1


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [*descendants(child), child]
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
