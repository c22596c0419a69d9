"""Diagnostics of language servers for changed files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from clawkit.config.sections.tools import Lsp
from clawkit.lsp.protocols import Edited, Problems

if TYPE_CHECKING:
    from clawkit.lsp.pool import Pool

IDLE_S = 600.0
PATIENCE_S = 30.0


class LanguageServers:
    """Implements `Diagnostics` with servers on this machine, which are kept warm.

    `workspace` and `roots` are the directories that an agent works in: servers check files in them,
    may read all of them, and are never started from them. `cache_dir` is for files of servers.
    Servers that are idle for `idle_s`, or do not answer for `patience_s`, are stopped.
    """

    def __init__(
        self,
        workspace: str,
        roots: Sequence[str],
        settings: Lsp,
        *,
        cache_dir: str,
        idle_s: float = IDLE_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._folders = tuple(dict.fromkeys(map(os.path.realpath, (workspace, *roots))))
        self._settings = settings
        self._cache_dir = cache_dir
        self._idle_s = idle_s
        self._patience_s = patience_s
        self._pool: Pool | None = None
        self._closed = False

    async def check(self, edits: Sequence[Edited]) -> Problems:
        if not self._settings.enabled or not edits or self._closed:
            return Problems()
        import asyncio

        pool = self._pool
        if pool is not None and pool.loop is not asyncio.get_running_loop():
            if pool.loop.is_running():
                return Problems()  # the servers belong to that loop
            pool.abandon()
            pool = None
        if pool is None:
            # Imported here, because most runs change no file.
            from clawkit.lsp.pool import Pool
            from clawkit.lsp.servers import Programs, ServerCatalog
            from clawkit.process.landlock import available

            programs = Programs(self._folders, dict(os.environ))
            known = ServerCatalog(self._settings, programs, self._cache_dir, can_hold=available())
            pool = self._pool = Pool(
                self._folders,
                known,
                check_s=self._settings.timeout_ms / 1000,
                patience_s=self._patience_s,
                idle_s=self._idle_s,
            )
        return await pool.check(edits)

    async def close(self) -> None:
        """Stop all servers; later checks return nothing."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()
