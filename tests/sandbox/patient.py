"""A toolkit whose commands have time on a machine that is busy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clawkit.runtime import Toolkit
from clawkit.testing import open_kit

_YIELD_MS = 120_000
"""By default, `exec` answers after ten seconds that a command is still running."""


def open_patient_kit(workspace: Path, config: Mapping[str, Any] | None = None) -> Toolkit:
    given: dict[str, Any] = dict(config or {})
    tools = given.get("tools", {})
    own = {"backgroundMs": _YIELD_MS, **tools.get("exec", {})}
    return open_kit(workspace, config={**given, "tools": {**tools, "exec": own}})
