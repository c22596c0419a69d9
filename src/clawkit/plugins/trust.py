"""Whether a plugin may load, decided from data; and the record of what the owner enabled."""

from __future__ import annotations

import json
import os
from contextlib import suppress

import msgspec

from clawkit.config.sections.plugins import Plugins
from clawkit.core.catalog import CATALOG, canonical
from clawkit.errors import PluginError
from clawkit.store import locked, private_dir, write_atomic
from clawkit.text import one_line

MAX_RECORD_BYTES = 4 * 1024 * 1024
AGAIN = "run `clawkit plugins enable {}`"


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the owner saw when they enabled a plugin."""

    location: str
    sha256: str
    module: str = ""  # of an installed plugin
    main: str = ""  # the file of that module in its package


def why_off(id: str, settings: Plugins, *, by_default: bool = False) -> str:  # noqa: A002
    """Why the configuration does not want a plugin; empty if it does."""
    entry = settings.entries.get(id)
    enabled = by_default if entry is None or entry.enabled is None else entry.enabled
    if not settings.enabled:
        return "plugins.enabled is false"
    if id in settings.deny:
        return "plugins.deny names it"
    if settings.allow is not None and id not in settings.allow:
        return "plugins.allow does not name it"
    if not enabled and entry is not None and entry.enabled is False:
        return f"plugins.entries.{id}.enabled is false"
    return "" if enabled else f"it is not enabled: {AGAIN.format(id)}"


def why_blocked(id: str) -> str:  # noqa: A002
    """Why no plugin may have this id; empty if one may."""
    return "its id is the name of a built-in tool" if canonical(id) in CATALOG else ""


def why_untrusted(id: str, record: Record | None, location: str, sha256: str) -> str:  # noqa: A002
    """Why an enabled plugin must not run; empty if the owner enabled what is there."""
    again = f"; {AGAIN.format(id)} to see what it declares, and to trust it"
    if record is None:
        return f"it has not been enabled on this machine{again}"
    if record.location != location:
        return f"it was enabled at {record.location}, and is now at {location}{again}"
    if record.sha256 != sha256:
        return f"its files have changed since it was enabled{again}"
    return ""


def records_file(home: str) -> str:
    return os.path.join(home, "plugins-enabled.json")


def problems_file(home: str) -> str:
    return os.path.join(home, "plugins-problems.json")


def read_records(home: str) -> dict[str, Record]:
    """Raises `PluginError` if there is a file, but no valid one."""
    data = _read(records_file(home))
    try:
        return msgspec.json.decode(data, type=dict[str, Record]) if data else {}
    except msgspec.MsgspecError as error:
        why = f"{records_file(home)} is invalid: {error}"
        raise PluginError(f"{why}; remove it, and enable your plugins again") from None


def write_record(home: str, id: str, record: Record | None) -> None:  # noqa: A002
    """Record that the owner enabled a plugin; None removes the record. Raises OSError."""
    private_dir(home)
    with locked(f"{records_file(home)}.lock", wait_s=10):
        try:
            records = read_records(home)
        except PluginError:
            records = {}
        records.pop(id, None)
        if record is not None:
            records[id] = record
        write_atomic(records_file(home), msgspec.json.format(msgspec.json.encode(records)))
    if record is not None:
        note_problem(home, id, "")


def read_problems(home: str) -> dict[str, str]:
    """The last problem of each plugin while it ran."""
    try:
        return msgspec.json.decode(_read(problems_file(home)) or b"{}", type=dict[str, str])
    except msgspec.MsgspecError:
        return {}


def note_problem(home: str, id: str, problem: str) -> None:  # noqa: A002
    """Keep a problem for `clawkit plugins list`; an empty one removes it. Never fails."""
    with suppress(OSError):
        if not problem and not os.path.exists(problems_file(home)):
            return
        private_dir(home)
        with locked(f"{problems_file(home)}.lock", wait_s=1):
            found: dict[str, str] = dict(read_problems(home))
            found.pop(id, None)
            if problem:
                found[id] = one_line(problem, 300)
            write_atomic(problems_file(home), json.dumps(found, indent=2).encode())


def _read(path: str) -> bytes:
    with suppress(OSError), open(path, "rb") as file:
        return file.read(MAX_RECORD_BYTES)
    return b""
