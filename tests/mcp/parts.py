"""A toolkit with mounted servers, and what the scripted server noted."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clawkit import Toolkit
from clawkit.core.approval import Answer, Question
from clawkit.core.result import Result
from clawkit.mcp.mounts import Mounts

SERVER = Path(__file__).parent / "server.py"
WAIT_S = 20.0


class Approver:
    """Answers every question alike, and keeps them."""

    def __init__(self, verdict: Any = "allow") -> None:
        self.verdict = verdict
        self.asked: list[Question] = []

    async def ask(self, request: Question) -> Answer:
        self.asked.append(request)
        return Answer(self.verdict)


def entry(place: Path, mode: str = "plain", **more: Any) -> dict[str, Any]:
    """The scripted server, which may write its notes into `place`."""
    # The checkout may be in a directory that a sandbox has one of its own for, such as /tmp.
    reach = {"readPaths": [str(SERVER)], "writePaths": [str(place)]}
    sandbox = {**reach, **more.pop("sandbox", {})}
    args = [str(SERVER), mode, str(place / "notes")]
    return {"command": sys.executable, "args": args, "sandbox": sandbox, **more}


def open_kit(
    workspace: Path, servers: dict[str, Any], tools: dict[str, Any] | None = None, **more: Any
) -> Toolkit:
    mcp = {"servers": servers, **more.pop("mcp", {})}
    config = {"mcp": mcp, "tools": tools or {}}
    return Toolkit.open(config, workspace=workspace, owner=True, **more)


def names(kit: Toolkit) -> list[str]:
    return [tool.name for tool in kit.tools if "__" in tool.name]


def mounts(kit: Toolkit) -> Mounts:
    found: Any = kit.run.services[Mounts]
    assert isinstance(found, Mounts)
    return found


def notes(place: Path) -> list[str]:
    file = place / "notes"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


async def until(happens: Callable[[], Any]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not happens():  # another process writes
            await asyncio.sleep(0.01)


def error(result: Result) -> str:
    assert result.is_error, result
    return str(result.details["error"])
