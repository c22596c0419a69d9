"""The environment that commands start with, looked at once."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from clawkit.process.environ import absolute_dirs, inherited, join_path
from clawkit.process.login import login_path
from clawkit.store import private_dir, write_atomic

KEEP_S = 600.0
"""For so long a login shell is not asked again, by any clawkit: some take seconds."""


class LocalSurroundings:
    """Clawkit's own environment, without what is not for commands, and the login's PATH."""

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        prepend: Sequence[str] = (),
        keep: Iterable[str] = (),
        secrets: Iterable[str] = (),
        login: bool = True,
        cache: str = "",
    ) -> None:
        """`cache` is the file that remembers the login's PATH."""
        self._environ = environ
        self._prepend = [os.path.expanduser(each) for each in prepend]
        self._keep = tuple(keep)
        self._secrets = tuple(secrets)
        self._login = login
        self._cache = cache
        self._found: dict[str, str] | None = None
        self._lock = asyncio.Lock()

    async def variables(self) -> Mapping[str, str]:
        async with self._lock:
            if self._found is None:
                login = await self._login_path() if self._login else ""
                found = inherited(self._environ, keep=self._keep, secrets=self._secrets)
                found["PATH"] = join_path(self._environ.get("PATH", ""), login, self._prepend)
                self._found = found
        return self._found

    async def _login_path(self) -> str:
        if (known := self._recall()) is not None:
            return known
        path = await login_path(self._environ)
        if self._cache:
            note = {"home": self._environ.get("HOME"), "at": time.time(), "path": path}
            with suppress(OSError):
                private_dir(os.path.dirname(self._cache))
                write_atomic(self._cache, json.dumps(note).encode())
        return path

    def _recall(self) -> str | None:
        try:
            with open(self._cache, "rb") as file:
                note = json.loads(file.read(1 << 16))
            is_fresh = 0 <= time.time() - note["at"] < KEEP_S
            is_same = note["home"] == self._environ.get("HOME")
            return ":".join(absolute_dirs(note["path"])) if is_fresh and is_same else None
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
