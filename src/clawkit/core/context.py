"""Who runs, where, and with what: the facts a call is judged by and the handles a tool is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec import Struct

from clawkit.config.modelref import ModelRef
from clawkit.core.approval import Ask
from clawkit.core.result import Result
from clawkit.errors import ToolAuthorizationError, ToolError

T = TypeVar("T")
Update = Callable[[Result], Awaitable[None]]
AskPerson = Callable[[Ask], Awaitable[None]]


class Sender(Struct, frozen=True):
    """The person or program whose message is being answered. Not the owner unless known to be."""

    owner: bool = False
    id: str = ""
    e164: str = ""
    username: str = ""
    name: str = ""
    roles: tuple[str, ...] = ()
    """Roles on the server that the message comes from."""


class Scope(Struct, frozen=True):
    """Everything policy looks at. Hashable, so that an assembly can be remembered by it."""

    agent: str = "main"
    session: str = "main"
    model: ModelRef | None = None
    channel: str = ""
    account: str = ""
    group: str = ""
    sender: Sender = Sender()
    sandboxed: bool = False
    depth: int = 0
    """0 for a main session, 1 for a sub-agent, 2 for its sub-agent."""
    allow: tuple[str, ...] | None = None
    """A list given for this run alone; an empty one leaves no tool."""
    context_window: int | None = None
    """Tokens the model can take in; None when not known."""
    delegates: bool = False
    """Whether the run is of an agent that can start others."""


class InForce(Struct, frozen=True):
    """The tools of the run, as a tool may want to tell them. Looked up like a service."""

    tools: tuple[str, ...]
    removed: int
    """How many policy took away."""
    off: int = 0
    """How many more are switched off by settings."""


async def _drop(_update: Result) -> None:
    return None


def _drop_notice(_notice: Result) -> None:
    return None


async def _nobody(wish: Ask) -> None:
    raise ToolAuthorizationError(
        f"{wish.title}: there is no one to ask", reason="approval-unavailable"
    )


def _any_path(_path: str) -> bool:
    return True


class Context(Struct, frozen=True):
    """What a tool is handed along with its parameters."""

    call_id: str
    scope: Scope
    workspace: str
    """Absolute path of the directory the run works in."""
    services: Mapping[type, object] = MappingProxyType({})
    send_update: Update = _drop
    notify: Callable[[Result], None] = _drop_notice
    """Tells listeners what came of a call after it returned."""
    ask: AskPerson = _nobody
    """Has a person decide in the middle of a call: returns after a yes, raises after a no."""
    permits: Callable[[str], bool] = _any_path
    """Whether rules let this very call name a path instead of the one it has: for tools that come
    upon files by themselves. What a person would have to be asked about is not permitted."""

    @property
    def agent(self) -> str:
        return self.scope.agent

    @property
    def session(self) -> str:
        return self.scope.session

    @property
    def sender(self) -> Sender:
        return self.scope.sender

    @property
    def model(self) -> ModelRef | None:
        return self.scope.model

    def use(self, protocol: type[T]) -> T:
        """The service that fills in a Protocol for this run."""
        service: Any = self.services.get(protocol)
        if service is None:
            raise ToolError(f"no {protocol.__name__} service is set up for this run")
        found: T = service
        return found

    async def update(self, progress: Result | str) -> None:
        """Report progress to listeners. Nothing of it reaches the model."""
        await self.send_update(Result.text(progress) if isinstance(progress, str) else progress)
