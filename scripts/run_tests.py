"""Run all tests in parallel; the few that fail are named and run once more, one after another.

Many tests drive real processes, terminals and containers, and on a busy machine one of them may
miss its time. A test that is broken fails again, and so does the run. More failures than a few
are never run again.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

MOST_AGAIN = 5
FAILED = Path(".pytest_cache/v/cache/lastfailed")
PYTEST = [sys.executable, "-m", "pytest"]


def main(arguments: list[str]) -> int:
    FAILED.unlink(missing_ok=True)
    # Many tests wait for processes: more workers than processors keep these busy. Those that
    # coverage is measured by wait less.
    workers = str((os.cpu_count() or 1) + (1 if "--part=traced" in arguments else 3))
    parallel = [*PYTEST, "-n", workers, "--dist", "loadgroup", *arguments]
    status = subprocess.run(parallel).returncode
    if status != 1 or not FAILED.exists():
        return status
    # Workers add the group of a test to its name.
    failed = [re.sub(r"@[\w-]+$", "", name) for name in json.loads(FAILED.read_text("utf-8"))]
    if not 0 < len(failed) <= MOST_AGAIN:
        return status
    print(f"\nfailed, and run once more alone (a test to fix): {', '.join(failed)}\n", flush=True)
    options = [each for each in arguments if not Path(each.partition("::")[0]).exists()]
    again = [*PYTEST, *options, "-n", "0"]
    if "--cov" in arguments:
        again.append("--cov-append")
    return subprocess.run([*again, *failed]).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
