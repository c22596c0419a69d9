"""What the tests of language servers share."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.lacking import lack
from tests.node import PACKAGES

from clawkit.config.sections.tools import Lsp, LspServer
from clawkit.lsp.protocols import Edited, Problems
from clawkit.lsp.service import LanguageServers

ROOT = Path(__file__).parent.parent.parent
FAKE = str(Path(__file__).with_name("fake_server.py"))
TSC = os.environ.get("CLAWKIT_TEST_TSC", str(PACKAGES / ".bin/tsc"))
ENOUGH_MS = 30_000
"""For servers that are expected to answer, however busy the machine is."""


def need(program: str | os.PathLike[str]) -> None:
    """Skip a test whose server is not installed, unless all tests are asked for."""
    if not os.path.exists(program):
        lack(f"{program} is not installed")


def need_python_servers() -> None:
    for name in ("ruff", "ty"):
        need(os.path.join(os.path.dirname(sys.executable), name))


def fake(*arguments: object, files: Sequence[str] = ("*.fake",)) -> LspServer:
    command = [sys.executable, FAKE, *map(str, arguments)]
    return LspServer(command=command, files=list(files))


class Desk:
    """A workspace with language servers: files are changed in it and problems told."""

    def __init__(
        self,
        place: Path,
        *,
        timeout_ms: int = ENOUGH_MS,
        enabled: bool = True,
        roots: Sequence[Path] = (),
        idle_s: float = 600.0,
        patience_s: float = 30.0,
        **servers: LspServer,
    ) -> None:
        self.ws = place / "ws"
        self.ws.mkdir(exist_ok=True)
        self.cache = place / "cache"
        self.service = LanguageServers(
            str(self.ws),
            [str(root) for root in roots],
            Lsp(enabled=enabled, timeout_ms=timeout_ms, servers=servers),
            cache_dir=str(self.cache),
            idle_s=idle_s,
            patience_s=patience_s,
        )

    def edit(self, name: str, after: str | None) -> Edited:
        """Change a file on the disk."""
        path = self.ws / name
        before = path.read_text() if path.exists() else None
        if after is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(after)
        return Edited(str(path), before, after)

    async def write(self, name: str, after: str | None) -> Problems:
        """Change a file, and what language servers say about it."""
        return await self.service.check([self.edit(name, after)])


def messages(problems: Problems) -> list[str]:
    return [each.message for each in problems.found]


def codes(problems: Problems) -> list[tuple[str, str]]:
    return [(each.server, each.code) for each in problems.found]
