"""A toolkit with tools that return, refuse and fail in every way."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from pathlib import Path
from typing import Any

from clawkit import Context, Image, Text, Tool, Toolkit
from clawkit.core.approval import Approver
from clawkit.testing import ScriptedApprover, open_kit

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
DATA = b64encode(PNG).decode()
CONFIG = {"tools": {"deny": ["write"], "rules": [{"tool": "add", "effect": "ask"}]}}
ADD = {
    "properties": {"first": {"type": "integer"}, "second": {"type": "integer", "default": 1}},
    "required": ["first"],
    "additionalProperties": False,
}


class Waiting:
    """A tool that never ends, and notes when it starts and is stopped."""

    def __init__(self) -> None:
        self.started, self.stopped = asyncio.Event(), asyncio.Event()

    async def __call__(self, _params: Any, _ctx: Context) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()


async def add(params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
    return {"sum": params["first"] + params.get("second", 1)}


async def draw(_params: Any, _ctx: Context) -> list[Any]:
    return [Text("a picture"), Image(DATA, "image/png")]


async def fail(_params: Any, _ctx: Context) -> None:
    raise OSError("the disk is gone")


def make_kit(
    workspace: Path, *more: Tool, waiting: Any = fail, approver: Approver | None = None
) -> Toolkit:
    tools = [
        Tool("add", "Add two numbers.", ADD, add),
        Tool("draw", "Draw something.", {}, draw),
        Tool("fail", "Fail.", {}, fail),
        Tool("wait", "Wait.", {}, waiting),
    ]
    approver = approver or ScriptedApprover("allow", "not now")
    return open_kit(workspace, *tools, *more, config=CONFIG, approver=approver)


MANY = [Tool(f"far_{number}", "Do it. " * 40, {}, add) for number in range(300)]
