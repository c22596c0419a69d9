"""The scope that policy decides by, and the context passed to a tool."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec import Struct

from clawkit.config.modelref import ModelRef
from clawkit.core.approval import Ask, no_approver
from clawkit.core.result import Result
from clawkit.errors import ToolError

T = TypeVar("T")
Update = Callable[[Result], Awaitable[None]]
AskPerson = Callable[[Ask], Awaitable[None]]


class Sender(Struct, frozen=True):
    """The author of the message being answered. Not the owner unless known to be."""

    owner: bool = False
    id: str = ""
    e164: str = ""
    username: str = ""
    name: str = ""
    roles: tuple[str, ...] = ()  # roles on the server that the message comes from


class Scope(Struct, frozen=True):
    """Everything policy depends on. Hashable, so that an assembly can be cached by it."""

    agent: str = "main"
    session: str = "main"
    model: ModelRef | None = None
    channel: str = ""
    account: str = ""
    group: str = ""
    sender: Sender = Sender()
    sandboxed: bool = False
    depth: int = 0  # 0 for a main session, 1 for a sub-agent, 2 for its sub-agent
    allow: tuple[str, ...] | None = None  # a list for this run only; an empty one allows no tool
    withheld: tuple[tuple[str, str], ...] = ()  # tools that this run must not have, and why
    context_window: int | None = None
    """Size of the model's context window in tokens; None if unknown."""
    delegates: bool = False  # whether the agent can start others
    in_gateway: bool = False  # whether a gateway runs the session
    in_heartbeat: bool = False  # whether it was opened for a heartbeat
    search: tuple[str, ...] = ()  # search services that can be used, the best first
    cwd: str = ""
    """Directory that relative paths start from: below the workspace, or absolute where settings let
    tools work outside it; empty for the workspace. It has no effect on what may be accessed."""

    def base(self, workspace: str) -> str:
        return os.path.join(workspace, self.cwd) if self.cwd else workspace

    def find_limit(self, *, all_sandboxed: bool) -> str:
        """A restriction of this session that jobs and heartbeats of its agent do not have; empty if
        there is none. `all_sandboxed`: these run in a sandbox as well."""
        limits = {
            "with a list of tools": self.allow is not None,
            "of a sub-agent": self.depth > 0,
            "of a group or channel": bool(self.group or self.channel),
            "in a sandbox": self.sandboxed and not all_sandboxed,
        }
        return next((name for name, holds in limits.items() if holds), "")


class InForce(Struct, frozen=True):
    """The tools of the run, for tools that report them. Looked up like a service."""

    tools: tuple[str, ...]
    removed: int  # how many tools policy removed
    off: int = 0  # how many more are disabled by settings
    deferred: int = 0  # how many more are called through tool_call
    is_one_shot: bool = False  # the run ends with its calls: no one can come back to a command


async def _drop(_update: Result) -> None:
    return None


async def _refuse(wish: Ask) -> None:
    raise no_approver(wish.title, wish.to_allow)


class Context(Struct, frozen=True):
    """What a tool gets in addition to its parameters."""

    call_id: str
    scope: Scope
    workspace: str  # absolute path of the working directory of the run
    services: Mapping[type, object] = MappingProxyType({})
    send_update: Update = _drop
    notify: Callable[[Result], None] = lambda _notice: None
    """Reports the outcome of work that continued after its call returned."""
    ask: AskPerson = _refuse  # asks a person during a call: returns if allowed, raises if not
    permits: Callable[[str], bool] = lambda _path: True
    """Whether the rules would allow this call with another path or URL, for tools that find files
    or follow links themselves. False if that would need approval."""

    @property
    def agent(self) -> str:
        """The agent whose settings apply."""
        return self.scope.agent

    @property
    def session(self) -> str:
        """The key of the session."""
        return self.scope.session

    @property
    def sender(self) -> Sender:
        """The author of the message being answered."""
        return self.scope.sender

    @property
    def model(self) -> ModelRef | None:
        """The model that makes the call; None if it is unknown."""
        return self.scope.model

    @property
    def base(self) -> str:
        """Absolute path of the directory that relative paths start from."""
        return self.scope.base(self.workspace)

    def use(self, protocol: Callable[..., T]) -> T:
        """The service that implements a Protocol in this run. Raises `ToolError` if missing."""
        # Type checkers would refuse a Protocol as `type[T]`.
        kind: Any = protocol
        try:  # faster than `Mapping.get`
            service: Any = self.services[kind]
        except KeyError:
            service = None
        if service is None:
            raise ToolError(f"no {kind.__name__} service is set up for this run")
        found: T = service
        return found

    async def update(self, progress: Result | str) -> None:
        """Report progress to listeners; the model does not see it."""
        await self.send_update(Result.text(progress) if isinstance(progress, str) else progress)
