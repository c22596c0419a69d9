"""Access of pipelines to commands, tools and files, with the rights of their caller."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from clawkit.agent.nested_calls import NestedCalls
from clawkit.bundled.lobster.state import Store
from clawkit.bundled.lobster.values import Ledger, PipelineError, Value
from clawkit.config.paths import commands_dir
from clawkit.core.context import Context, InForce
from clawkit.core.paths import is_below
from clawkit.errors import ToolAuthorizationError, ToolError
from clawkit.fs.protocols import FileSystem, read_all
from clawkit.redact import Redactor
from clawkit.tools._commands import with_input

NAME = "lobster"
MAX_FILE = 128 * 1024
MAX_STDIN = 100_000
MAX_COMMAND_S = 119.0
"""Commands must not continue in the background, where no pipeline follows them."""
MAX_YIELD_MS = 120_000


class PipelineHost(Struct, frozen=True):
    ctx: Context
    store: Store
    max_bytes: int
    until_s: float  # in the event loop's time
    approval_s: float  # how long to wait for a person
    ledger: Ledger
    cwd: str = ""  # below the workspace
    env: Mapping[str, str] = MappingProxyType({})
    workflows: tuple[str, ...] = ()  # files of running workflows, outermost first
    files: Mapping[str, str] | None = None  # the only ones that may run, and their digests

    @property
    def folder(self) -> str:
        """Raises `PipelineError` for a directory outside the workspace."""
        folder = os.path.realpath(os.path.join(self.ctx.base, self.cwd))
        if not is_below(folder, os.path.realpath(self.ctx.workspace)):
            raise PipelineError(f"cwd {self.cwd!r} must stay within the workspace")
        return folder

    async def run(self, command: str, stdin: str | None) -> str:
        """The output of a command. Raises `PipelineError` unless it succeeds."""
        if stdin is not None:
            if len(stdin) > MAX_STDIN:
                raise PipelineError(f"stdin has {len(stdin):,} characters, over {MAX_STDIN:,}")
            command = with_input(f"{{ {command}\n}}", stdin)
        left_s = self.until_s - asyncio.get_running_loop().time()
        params: dict[str, Value] = {"command": command, "workdir": self.folder}
        params |= {"env": dict(self.env), "timeout": min(max(left_s, 0.1), MAX_COMMAND_S)}
        if "process" in self.ctx.use(InForce).tools:
            params["yieldMs"] = MAX_YIELD_MS
        result = await self.ctx.use(NestedCalls).call("exec", params, by=NAME)
        code, output = result.details.get("exitCode"), str(result.details.get("aggregated", ""))
        if result.is_error or code is None:
            raise PipelineError(result.as_text())
        if code:
            raise PipelineError(f"exec failed ({code}): {output or command}")
        output = output if not result.details.get("truncated") else self._spilled(result.details)
        self.ledger.spend(len(output))
        return output

    def _spilled(self, details: Mapping[str, Value]) -> str:
        path, size = str(details.get("spillPath", "")), details.get("outputBytes", 0)
        own = os.path.realpath(commands_dir(os.environ))
        if size > self.max_bytes or not is_below(os.path.realpath(path), own):
            raise PipelineError(f"the command printed {size:,} bytes, over {self.max_bytes:,}")
        with open(path, "rb") as file:
            text = file.read(self.max_bytes).decode("utf-8", "replace")
        return self.ctx.use(Redactor).text(text).rstrip()

    async def invoke(self, tool: str, params: Mapping[str, Value]) -> dict[str, Value]:
        """The result of a tool, as JSON. Raises `PipelineError` if the call fails."""
        result = await self.ctx.use(NestedCalls).call(tool, params, by=NAME)
        if result.is_error:
            raise PipelineError(f"tool error: {result.as_text()}")
        usage = result.details.get("usage")
        self.ledger.cost += usage.get("cost", 0.0) if isinstance(usage, Mapping) else 0.0
        return result.to_json()

    async def read(self, path: str) -> tuple[str, str]:
        """A file in the workspace: its canonical path, and its text. Raises `PipelineError`."""
        full = os.path.join(self.folder, path)
        try:
            if not self.ctx.permits(full):
                raise ToolAuthorizationError(f"a rule denies {path!r}")
            async with self.ctx.use(FileSystem).open(full) as file:
                return file.place, (await read_all(file, MAX_FILE)).decode("utf-8", "replace")
        except ToolError as error:
            raise PipelineError(f"the workflow cannot be read: {error}") from None

    async def list_names(self) -> list[str]:
        listing = await self.ctx.use(FileSystem).list(self.folder)
        names = [entry.name for entry in listing.entries]
        return [name for name in names if self.ctx.permits(os.path.join(self.folder, name))]
