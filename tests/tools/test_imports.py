"""What describing the tools costs."""

from __future__ import annotations

import subprocess
import sys

from clawkit.core.catalog import CATALOG

ENGINES = ("approvals", "code", "fs", "lsp", "media", "memory", "process", "sandbox", "sessions")
SMALL = {
    "clawkit.fs.read_versions",
    *("clawkit.sessions.keys", "clawkit.sessions.visibility"),
}
"""Beside the protocols: what a service is looked up by, and decisions over plain facts."""


def test_describing_the_tools_loads_none_of_their_engines() -> None:
    modules = [entry.module for entry in CATALOG.values() if entry.module]
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if name.startswith("clawkit.")}
    parts = {name for name in loaded if name.split(".")[1] in ENGINES and name.count(".") > 1}
    assert {name for name in parts if not name.endswith("protocols")} == SMALL
