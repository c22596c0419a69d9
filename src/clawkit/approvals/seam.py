"""What tools see of approvals: a command goes in, and comes out admitted or not at all.

Every start of clawkit imports this; it must cost nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from clawkit.approvals.base import Pending
    from clawkit.config.sections.exec import Ask, Security
    from clawkit.core.approval import Answer, Question


class Request(NamedTuple):
    """A command somebody wants to run."""

    command: str
    cwd: str
    env: Mapping[str, str]
    """All of its environment."""
    assigned: tuple[str, ...] = ()
    """Names of the variables in it that the call sets."""
    host: str = "gateway"
    agent: str = "main"
    session: str = "main"
    call_id: str = ""
    security: Security | None = None
    ask: Ask | None = None


class Admitted(NamedTuple):
    """A command that may run, and how."""

    run: str
    """What to give to the shell."""
    programs: tuple[str, ...] | None
    """The only paths that may be started; None for any."""
    asked: bool = False
    """Whether a person allowed it."""
    env: Mapping[str, str] = MappingProxyType({})
    """Variables that keep programs from starting others at the keyboard's command."""
    warning: str = ""
    """What the person and the model should know, once."""


class Waiting(NamedTuple):
    """A command that somebody may allow later."""

    pending: Pending
    reason: str
    to_allow: str


@runtime_checkable
class Gate(Protocol):
    """What every command passes before it starts."""

    async def admit(
        self, request: Request, ready: Callable[[], Awaitable[None]]
    ) -> Admitted | Waiting:
        """Raises `ToolAuthorizationError` for what may not run. `ready` raises when the command
        could not work; it is called before a person is asked."""
        ...

    async def settle(self, waiting: Waiting, request: Request) -> Admitted:
        """Until somebody has answered. Raises `ToolAuthorizationError` for a no."""
        ...

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Carry on with something after the call has ended, until the run ends."""
        ...

    async def finish(self) -> None:
        """Until all that was left for later is done."""
        ...


@runtime_checkable
class Approvals(Protocol):
    """Everything about asking people, for the tools that do."""

    def route(self) -> Literal["wait", "later", "none"]:
        """Whether somebody can answer now, somebody may later, or nobody ever."""
        ...

    async def ask(self, request: Question, binding: Mapping[str, Any] | None = None) -> Answer:
        """Wait for the answer of a person. Silence and nobody being there mean no. `binding` is
        what the answer is about, for the record."""
        ...

    def submit(self, request: Question, binding: Mapping[str, Any] | None = None) -> Pending:
        """Put a question to whoever comes by; `outcome` waits for what becomes of it."""
        ...

    async def outcome(self, pending: Pending) -> Answer: ...
