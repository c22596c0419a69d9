"""What a run of a sub-agent is, and what tools may ask about those of their session."""

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
    """A commit that is checked out for one task."""

    place: str
    """Directory of all that belongs to it."""
    repository: str
    """The work tree of the repository that it is from."""
    prefix: str
    """Where in the repository the workspace is; empty for the top."""
    commit: str

    @property
    def objects(self) -> str:
        """Directory of the objects of the repository."""
        return os.path.join(self.repository, ".git", "objects")

    @property
    def tree(self) -> str:
        return os.path.join(self.place, "tree")

    @property
    def workspace(self) -> str:
        return os.path.join(self.tree, self.prefix).rstrip("/")

    @property
    def git_dir(self) -> str:
        """What it is compared by, out of reach for the sub-agent; there once that may work."""
        return os.path.join(self.place, "git")

    @property
    def patch(self) -> str:
        return os.path.join(self.place, "changes.patch")


class Run(Struct, frozen=True):
    """One task of a sub-agent."""

    id: str
    session: str
    """Id of the session it works in."""
    requester: str
    """Id of the session that started it."""
    root: str
    """Id of the session whose process runs it."""
    name: str
    label: str
    task: str
    status: RunStatus = "queued"
    created_ms: int = 0
    started_ms: int = 0
    ended_ms: int = 0
    timeout_s: float = 0.0
    """0 for none."""
    cleanup: Literal["keep", "delete"] = "keep"
    text: str = ""
    """The last answer; what there was of one where it did not get to its end."""
    error: str = ""
    output: Any = None
    """The result as data, where a schema was given."""
    usage: Usage = Usage()  # frozen
    told_ms: int = 0
    attachments: str = ""
    """Directory of the files that came with the task, which goes when it ends; empty when there is
    none, or it stays."""
    worktree: Worktree | None = None
    changes: str = ""
    """What it changed in its worktree, for the requester."""

    @property
    def is_over(self) -> bool:
        return self.ended_ms > 0


class Outcome(Struct, frozen=True):
    """How a run ended. It is the runtime that says so, never the model."""

    status: RunStatus
    text: str = ""
    error: str = ""
    output: Any = None
    usage: Usage = Usage()  # frozen
    changes: str = ""


WindUp = Callable[[Run, Outcome], Outcome]
"""Removes what was there for a run alone, when nothing of it works any more; how it ended, with
what is to be said about that. Blocks; must not raise."""


class Attachment(Struct, frozen=True):
    """A file to go with a task."""

    name: str
    content: str
    encoding: str = "utf8"
    """`base64`; anything else is text."""
    mime_type: str = ""


class SpawnRequest(Struct, frozen=True):
    """A task as it is asked for."""

    task: str
    label: str = ""
    name: str = ""
    agent: str = ""
    """Empty for the agent of the requester."""
    model: str = ""
    thinking: Thinking | None = None
    timeout_s: float | None = None
    """Seconds; 0 for none, None for what is configured."""
    sandbox: Literal["inherit", "require"] = "inherit"
    cleanup: Literal["keep", "delete"] = "keep"
    fork: bool = False
    output_schema: dict[str, Any] | None = None
    is_told: bool = True
    attachments: tuple[Attachment, ...] = ()
    mount_path: str = ""
    """What the task calls the directory of the attachments."""
    worktree: bool = False
    """Work in a checkout of the last commit instead of the workspace."""
    cwd: str = ""
    """Directory in the workspace that relative paths begin in."""


class Spawned(Struct, frozen=True):
    """A sub-agent that was started."""

    run: Run
    key: str
    """Of its session."""
    model: str
    warning: str = ""
    attachments: dict[str, Any] = {}
    """What is said about them: count, sizes, digests."""


class RunState(Struct, frozen=True):
    """A run as it is at this moment."""

    run: Run
    status: RunStatus
    usage: Usage
    step: str = ""
    """What it does just now, in a few words; empty unless it works."""


class Delegates(Protocol):
    """The sub-agents of the session that a tool works for."""

    def spawn(self, request: SpawnRequest) -> Spawned:
        """Start one. Raises `ToolInputError`, `ToolAuthorizationError`."""

    def list(self, ended_after_ms: int = 0) -> Sequence[RunState]:
        """Those that are not over, and those that ended after a time."""

    def active(self) -> Sequence[Run]:
        """Those that are queued or running."""

    def find(self, which: str) -> Run:
        """By id, name, label or session; `last` is the newest. Raises `NotFoundError`, or
        `ToolInputError` when more than one could be meant."""

    async def wait(self, runs: Sequence[Run], timeout_s: float | None) -> Sequence[RunState]:
        """Wait for one of them, or of all that are active, to end; those that have."""

    def rest(self, timeout_s: float | None) -> bool:
        """Once this turn is over, wait until one has reported, or the time is over. False when
        results are there already: the model reads them next. Raises `ToolInputError` where no turn
        goes on."""

    def steer(self, run: Run, text: str) -> None:
        """Say something to one that works. Raises `ToolInputError` when it does not."""

    async def cancel(self, run: Run | None, by: str) -> int:
        """Stop one, or all, with everything they started; how many there were."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000
