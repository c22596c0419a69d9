"""Where the sessions are kept."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from clawkit.config.paths import home, sessions_file
from clawkit.errors import ConfigError, Issue

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def locate_store(setting: str | None, env: Mapping[str, str]) -> str:
    """The file that `session.store` means. Raises `ConfigError` for what is not built in."""
    if not setting:
        return sessions_file(env)
    wrong = ""
    if _URL.match(setting):
        # The address is not repeated: there may be a password in it.
        what = "PostgreSQL" if setting.lower().startswith("postgres") else "an address"
        wrong = f"{what} as the store of sessions is not built in yet"
    elif setting.endswith((".json", ".json5", ".jsonl")):
        wrong = f"sessions are stored in a database, and {setting!r} does not name one"
    if wrong:
        raise ConfigError([Issue("session.store", wrong, hint="Name a file, or leave it out")])
    if setting.startswith("~/"):
        setting = (env.get("HOME") or os.path.expanduser("~")) + setting[1:]
    return os.path.abspath(os.path.join(home(env), setting))


def files_of_store(path: str) -> list[str]:
    """Everything that the store at `path` is made of."""
    beside = (f"{path}{end}" for end in ("", "-wal", "-shm", "-journal", ".lock", ".new"))
    return [*beside, os.path.join(os.path.dirname(path), "sessions")]
