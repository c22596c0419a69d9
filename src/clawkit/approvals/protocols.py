"""What tools see of approvals: a command goes in, and comes out admitted or not at all.

Every start of clawkit imports this; it must cost nothing. So annotations are not postponed: a
NamedTuple compiles each that is text.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

from clawkit.process.protocols import NO_GRANTS, Grants

if TYPE_CHECKING:
    from clawkit.approvals.types import Pending
    from clawkit.config.sections.tools import Ask, Security
    from clawkit.core.approval import Answer, Question
    from clawkit.process.landlock import Hold


class Request(NamedTuple):
    """A command somebody wants to run."""

    command: str
    cwd: str
    env: Mapping[str, str]
    assigned: tuple[str, ...] = ()
    """Names of the variables in it that the call sets."""
    host: str = "gateway"
    agent: str = "main"
    session: str = "main"
    call_id: str = ""
    security: "Security | None" = None
    ask: "Ask | None" = None
    wanted: Literal["auto", "sandbox", "host"] = "host"
    """In the sandbox unless an allowlist entry grants more, only there, or on the host."""
    leaves: bool = False
    access: Grants = NO_GRANTS
    granted: Grants = NO_GRANTS
    """What a person has granted to every command of the session that asks for it."""
    modes: tuple[str, ...] = ()
    """How it runs, if not simply to its end: `background`, `detach`, `pty`, `stdin` (open)."""


class Script(NamedTuple):
    """A file that a command gives to an interpreter."""

    language: Literal["python", "javascript"]
    path: str


Ready = Callable[[Sequence[Script]], Awaitable[None]]
"""Given the scripts of a command, raises when it could not work."""


class Admitted(NamedTuple):
    """A command that may run, and how."""

    run: str
    programs: tuple[str, ...] | None
    """The only paths that may be started; None for any."""
    asked: bool = False
    host: Literal["sandbox", "gateway"] = "gateway"
    hold: "Hold | None" = None
    env: Mapping[str, str] = MappingProxyType({})
    """Variables that keep programs from starting others at the keyboard's command."""
    warning: str = ""
    """What the person and the model should know, once."""


class Waiting(NamedTuple):
    """A command that somebody may allow later."""

    pending: "Pending"
    reason: str
    to_allow: str


@runtime_checkable
class Confines(Protocol):
    """How commands can be confined here."""

    @property
    def has_sandbox(self) -> bool: ...

    @property
    def problem(self) -> str:
        """Why no command can run: a sandbox is configured that cannot be had."""
        ...

    def locate(self, path: str) -> str:
        """Where a path of the sandbox is on this machine; any other stays as it is."""
        ...

    def why_not_granted(self, grants: Grants) -> str:
        """Why the sandbox cannot give that, so that a person need not be asked; empty when it
        can."""
        ...

    def in_sandbox(
        self, grants: Grants
    ) -> "tuple[Literal['sandbox', 'gateway'], Hold | None, Mapping[str, str]]":
        """The host of a command in the sandbox, what confines it, and the variables it gets."""
        ...

    def by_entry(
        self, grants: Grants
    ) -> "tuple[Literal['sandbox', 'gateway'], Hold | None, Mapping[str, str]]":
        """The same for a command that an entry allows; without a hold where the kernel cannot
        confine it."""
        ...


@runtime_checkable
class Gate(Protocol):
    """What every command passes before it starts."""

    async def admit(self, request: Request, ready: Ready) -> Admitted | Waiting:
        """Raises `ToolAuthorizationError` for what may not run. `ready` is called before a person
        is asked."""
        ...

    def may_read(self, path: str) -> bool:
        """Whether the file tools could read all of a file, by its absolute path, unasked."""
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

    async def ask(self, request: "Question", binding: Mapping[str, Any] | None = None) -> "Answer":
        """Wait for the answer of a person. Silence and nobody being there mean no. `binding` is
        what the answer is about, for the record."""
        ...

    def submit(self, request: "Question", binding: Mapping[str, Any] | None = None) -> "Pending":
        """Put a question to whoever comes by; `outcome` waits for what becomes of it."""
        ...

    async def outcome(self, pending: "Pending") -> "Answer": ...
