"""Decides whether a plugin may load, and stores what the owner enabled."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TypeVar

import msgspec

from clawkit.config.paths import PLUGIN_RECORDS
from clawkit.config.sections.plugins import Plugins
from clawkit.core.catalog import CATALOG, canonical
from clawkit.errors import PluginError
from clawkit.store import locked, private_dir, write_atomic
from clawkit.text import one_line

T = TypeVar("T")
MAX_RECORD_BYTES = 4 * 1024 * 1024
AGAIN = "run `clawkit plugins enable {}`"


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a plugin when the owner enabled it."""

    location: str
    sha256: str
    module: str = ""  # of an installed plugin
    main: str = ""  # the file of that module in its package
    guards: bool = False
    """Whether it decides about calls: if it is missing, all calls are blocked."""


def why_off(id: str, settings: Plugins, *, by_default: bool = False) -> str:  # noqa: A002
    """Why the configuration disables a plugin; empty if it enables it."""
    entry = settings.entries.get(id)
    enabled = entry.enabled if entry else None
    if not settings.enabled:
        return "plugins.enabled is false"
    if id in settings.deny:
        return "plugins.deny names it"
    if settings.allow is not None and id not in settings.allow:
        return "plugins.allow does not name it"
    if enabled is False:
        return f"plugins.entries.{id}.enabled is false"
    return "" if enabled or by_default else f"it is not enabled: {AGAIN.format(id)}"


def why_blocked(id: str) -> str:  # noqa: A002
    """Why no plugin may use this id; empty if allowed."""
    return "its id is the name of a built-in tool" if canonical(id) in CATALOG else ""


def why_untrusted(id: str, record: Record | None, location: str, sha256: str) -> str:  # noqa: A002
    """Why an enabled plugin must not run; empty if it is unchanged since the owner enabled it."""
    again = f"; {AGAIN.format(id)} to see what it declares, and to trust it"
    if record is None:
        return f"it has not been enabled on this machine{again}"
    if record.location != location:
        return f"it was enabled at {record.location}, and is now at {location}{again}"
    if record.sha256 != sha256:
        return f"its files have changed since it was enabled{again}"
    return ""


def records_file(home: str) -> str:
    return os.path.join(home, PLUGIN_RECORDS)


def problems_file(home: str) -> str:
    return os.path.join(home, "plugins-problems.json")


def read_records(home: str) -> dict[str, Record]:
    """Raises `PluginError` if the file exists but is invalid."""
    try:
        return _read(records_file(home), Record)
    except msgspec.MsgspecError as error:
        why = f"{records_file(home)} is invalid: {error}"
        raise PluginError(f"{why}; remove it, and enable your plugins again") from None


def write_record(home: str, id: str, record: Record | None) -> None:  # noqa: A002
    """Record that the owner enabled a plugin; None removes the record. Raises OSError."""
    _change(records_file(home), Record, id, record, wait_s=10)
    if record is not None:
        note_problem(home, id, "")


def read_problems(home: str) -> dict[str, str]:
    """The last runtime problem of each plugin."""
    with suppress(msgspec.MsgspecError):
        return _read(problems_file(home), str)
    return {}


def note_problem(home: str, id: str, problem: str) -> None:  # noqa: A002
    """Keep a problem for `clawkit plugins list`; an empty one removes it. Never fails."""
    with suppress(OSError):
        if problem or os.path.exists(problems_file(home)):
            _change(problems_file(home), str, id, one_line(problem, 300), wait_s=1)


def _read(path: str, kind: type[T]) -> dict[str, T]:
    data = b""
    with suppress(OSError), open(path, "rb") as file:
        data = file.read(MAX_RECORD_BYTES)
    return msgspec.json.decode(data or b"{}", type=dict[str, kind])  # type: ignore[valid-type]


def _change(path: str, kind: type[T], id_: str, value: T | None, *, wait_s: float) -> None:
    """Set or remove a plugin's value in a file. An invalid file is replaced."""
    private_dir(os.path.dirname(path))
    with locked(f"{path}.lock", wait_s=wait_s):
        found: dict[str, T] = {}
        with suppress(msgspec.MsgspecError):
            found = _read(path, kind)
        found.pop(id_, None)
        if value:
            found[id_] = value
        write_atomic(path, msgspec.json.format(msgspec.json.encode(found)))
