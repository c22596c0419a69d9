"""Data types of sub-agent runs, and the interface for tools that start and manage them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from clawkit.config.sections.shared import Thinking
from clawkit.content import Usage

RunStatus = Literal[
    "queued", "running", "completed", "failed", "timed_out", "cancelled", "interrupted"
]


class Worktree(Struct, frozen=True):
    """A commit checked out for one task."""

    place: str
    """Directory of everything that belongs to it."""
    repository: str
    """The work tree of the original repository."""
    prefix: str
    """Path of the workspace in the repository; empty for the top level."""
    commit: str

    @property
    def objects(self) -> str:
        return os.path.join(self.repository, ".git", "objects")

    @property
    def tree(self) -> str:
        return os.path.join(self.place, "tree")

    @property
    def workspace(self) -> str:
        return os.path.join(self.tree, self.prefix).rstrip("/")

    @property
    def git_dir(self) -> str:
        """Git directory that the result is compared with, out of the sub-agent's reach. It exists
        once the sub-agent may have started to work."""
        return os.path.join(self.place, "git")

    @property
    def patch(self) -> str:
        return os.path.join(self.place, "changes.patch")


class SubagentRun(Struct, frozen=True):
    """One task of a sub-agent."""

    id: str
    session: str
    """Id of the sub-agent's session."""
    requester: str
    """Id of the session that started it."""
    root: str
    """Id of the root session, whose process runs it."""
    name: str
    label: str
    task: str
    status: RunStatus = "queued"
    created_ms: int = 0
    started_ms: int = 0
    ended_ms: int = 0
    timeout_s: float = 0.0
    """0 for no limit."""
    cleanup: Literal["keep", "delete"] = "keep"
    text: str = ""
    """The last answer; partial if the run did not complete."""
    error: str = ""
    output: Any = None
    """The result as data, if a schema was given."""
    usage: Usage = Usage()  # frozen
    told_ms: int = 0
    attachments: str = ""
    """Directory of attachments to remove when the run ends; empty for none."""
    worktree: Worktree | None = None
    changes: str = ""
    """Description of the changes in its worktree, for the requester."""

    @property
    def is_over(self) -> bool:
        return self.ended_ms > 0


class RunOutcome(Struct, frozen=True):
    """How a run ended; decided by the runtime, never by the model."""

    status: RunStatus
    text: str = ""
    error: str = ""
    output: Any = None
    usage: Usage = Usage()  # frozen
    changes: str = ""


WindUp = Callable[[SubagentRun, RunOutcome], RunOutcome]
"""Removes the resources of a run after all its processes have ended, and returns the outcome with a
note about them. Blocks; must not raise."""


class Attachment(Struct, frozen=True):
    name: str
    content: str
    encoding: str = "utf8"
    """`base64`; anything else is text."""
    mime_type: str = ""


class SpawnRequest(Struct, frozen=True):
    """A task as requested by the caller."""

    task: str
    label: str = ""
    name: str = ""
    agent: str = ""
    """Empty for the requester's own agent."""
    model: str = ""
    thinking: Thinking | None = None
    timeout_s: float | None = None
    """Seconds; 0 for no limit, None for the configured value."""
    sandbox: Literal["inherit", "require"] = "inherit"
    cleanup: Literal["keep", "delete"] = "keep"
    fork: bool = False
    output_schema: dict[str, Any] | None = None
    is_told: bool = True
    attachments: tuple[Attachment, ...] = ()
    mount_path: str = ""
    """Name that the task uses for the directory of the attachments."""
    worktree: bool = False
    """Work in a checkout of the last commit instead of the workspace."""
    cwd: str = ""
    """Working directory, inside the workspace."""


class SpawnedRun(Struct, frozen=True):
    run: SubagentRun
    key: str
    """Key of its session."""
    model: str
    warning: str = ""
    attachments: dict[str, Any] = {}
    """Count, sizes and digests."""


class RunState(Struct, frozen=True):
    run: SubagentRun
    status: RunStatus
    usage: Usage
    step: str = ""
    """What it is doing, in a few words; empty unless it is running."""


class Delegates(Protocol):
    """The sub-agents of the calling session."""

    def spawn(self, request: SpawnRequest) -> SpawnedRun:
        """Start a sub-agent. Raises `ToolInputError`, `ToolAuthorizationError`."""

    def list(self, ended_after_ms: int = 0) -> Sequence[RunState]:
        """All active runs, and those that ended after the given time."""

    def active(self) -> Sequence[SubagentRun]:
        """All queued and running runs."""

    def find(self, which: str) -> SubagentRun:
        """Find a run by id, name, label or session; `last` is the newest. Raises `NotFoundError`,
        or `ToolInputError` for an ambiguous reference."""

    async def wait(
        self, runs: Sequence[SubagentRun], timeout_s: float | None
    ) -> Sequence[RunState]:
        """Wait until one of the runs (default: all active ones) has ended; returns those ended."""

    def await_reports(self, timeout_s: float | None) -> bool:
        """After this turn, wait for a report or the timeout. False if results are already
        available: the model reads them next. Raises `ToolInputError` outside a turn."""

    def steer(self, run: SubagentRun, text: str) -> None:
        """Send a message to a running sub-agent. Raises `ToolInputError` if it is not running."""

    async def cancel(self, run: SubagentRun | None, by: str) -> int:
        """Stop one run, or all, with everything they started; returns how many were stopped."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000
