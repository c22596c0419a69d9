"""Plugins for tests: written into the home of the test, and enabled as the owner would."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from clawkit.config.sections.plugins import Plugins
from clawkit.plugins.discover import read_plugin
from clawkit.plugins.trust import write_record
from clawkit.runtime import Toolkit

DICE = '''"""Dice for games."""
from clawkit.plugins import Plugin

plugin = Plugin("dice", version="1.0", tools=["roll"])


@plugin.tool
def roll(sides: int = 6) -> str:
    """Roll a die."""
    return f"{sides} of {sides}"
'''


def home() -> Path:
    return Path(os.environ["CLAWKIT_HOME"])


def write(name: str, source: str) -> Path:
    """Write a plugin into the home: `dice`, or `dice/plugin.py`."""
    path = home() / "plugins" / (name if name.endswith(".py") else f"{name}.py")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_text(source)
    return path


def trust(location: Path) -> str:
    """Enable what is there; returns its id."""
    found = read_plugin(str(location), "home")
    assert not found.problem, found.problem
    write_record(str(home()), found.id, found.record)
    return found.id


def add(source: str, name: str = "") -> str:
    """Write and enable a plugin of one file."""
    written = write(name or f"plugin{abs(hash(source))}", source)
    return trust(written)


def settings(*ids: str, **more: Any) -> dict[str, Any]:
    entries = {id_: {"enabled": True} for id_ in ids}
    for id_, entry in more.pop("entries", {}).items():
        entries[id_] = {"enabled": True, **entry}
    return {"plugins": {"entries": entries, **more}}


def open_kit(
    workspace: Path, *ids: str, config: dict[str, Any] | None = None, **more: Any
) -> Toolkit:
    given = {**settings(*ids, **more), **(config or {})}
    return Toolkit.open(given, workspace=workspace, owner=True)


def section(*ids: str, **more: Any) -> Plugins:
    import msgspec

    return msgspec.convert(settings(*ids, **more)["plugins"], Plugins)
