"""`clawkit agent` as a separate process, with a scripted model server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

SLOW = (sys.executable, "-m", "clawkit")
PROGRAM = list(SLOW)
"""Clawkit as a separate process; conftest.py replaces this by one that starts faster."""


class Done(NamedTuple):
    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def events(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class Asking:
    """One run of the program."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    def send_signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def heard(self, text: str) -> None:
        """Wait for an event with details in which a text occurs."""
        stream = self.process.stdout
        while stream is not None and (line := await stream.readline()):
            event = json.loads(line).get("event", {})
            if text in str(event.get("details", "")):
                return
        raise AssertionError(f"it ended before {text!r}")

    async def done(self, given: bytes = b"") -> Done:
        out, err = await self.process.communicate(given)
        said = err.decode("utf-8", "replace")
        assert "Traceback" not in said
        assert "bug in clawkit" not in said
        assert self.process.returncode is not None
        return Done(self.process.returncode, out, said)


class Asker:
    """Runs `clawkit agent` in one place with one configuration."""

    def __init__(self, place: Path, config: Mapping[str, Any] | None = None) -> None:
        self.place = place
        self.file = place.parent / "clawkit.json5"
        self.file.write_text(json.dumps(config or {}), encoding="utf-8")

    async def start(
        self,
        *args: str | bytes,
        env: Mapping[str, str] | None = None,
        stdout: Any = None,
        program: Sequence[str] = PROGRAM,
    ) -> Asking:
        process = await asyncio.create_subprocess_exec(
            *program,
            "agent",
            "--config",
            str(self.file),
            *args,
            cwd=self.place,
            env={**os.environ, **(env or {})},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE if stdout is None else stdout,
            stderr=asyncio.subprocess.PIPE,
        )
        return Asking(process)

    async def ask(self, *args: str | bytes, given: bytes = b"", **options: Any) -> Done:
        return await (await self.start(*args, **options)).done(given)
