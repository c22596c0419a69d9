"""The interface of approvals for tools: `ExecGate`, `Approvals` and the data they exchange.

Imported on every start, so it must stay cheap to import: annotations are not postponed, because a
NamedTuple compiles each one that is a string.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from clawkit.process.protocols import NO_GRANTS, Grants

if TYPE_CHECKING:
    from clawkit.approvals.types import Pending
    from clawkit.config.sections.tools import Ask, Security
    from clawkit.core.approval import Answer, Question
    from clawkit.process.landlock import Hold

    Confinement = tuple[Literal["sandbox", "gateway"], Hold | None, Mapping[str, str]]
    """The host of a command, its confinement, and extra variables."""


RESUMABLE = "resumable"
"""In the binding of a question: the asker reads the answer later, possibly in another process."""


class ExecRequest(Struct, frozen=True):
    """A command to be run."""

    command: str
    cwd: str
    env: Mapping[str, str]
    assigned: tuple[str, ...] = ()
    """Names of the variables in `env` that the call sets."""
    host: str = "gateway"
    agent: str = "main"
    session: str = "main"
    call_id: str = ""
    security: "Security | None" = None
    ask: "Ask | None" = None
    wanted: Literal["auto", "sandbox", "host"] = "host"
    """`auto`: in the sandbox unless an allowlist entry grants more."""
    leaves: bool = False
    access: Grants = NO_GRANTS
    granted: Grants = NO_GRANTS
    """Access approved for all commands of the session that request it."""
    modes: tuple[str, ...] = ()
    """How it runs, other than to completion: `background`, `detach`, `pty`, `stdin` (open)."""


class ScriptFile(NamedTuple):
    """A script file that a command passes to an interpreter."""

    language: Literal["python", "javascript"]
    path: str


Ready = Callable[[Sequence[ScriptFile]], Awaitable[None]]
"""Checks the scripts of a command, and raises if it cannot work."""


class Admitted(Struct, frozen=True):
    """A command that may run, and how to run it."""

    run: str
    programs: tuple[str, ...] | None
    """The only paths that may be executed; None for any."""
    asked: bool = False
    host: Literal["sandbox", "gateway"] = "gateway"
    hold: "Hold | None" = None
    env: Mapping[str, str] = MappingProxyType({})
    """Variables that disable interactive pagers and editors, which could start other programs."""
    warning: str = ""
    """For the person and the model, shown once."""
    defaults: Mapping[str, str] = MappingProxyType({})
    """Variables that the command has unless it sets them."""


class Waiting(Struct, frozen=True):
    """A command that may be approved later."""

    pending: "Pending"
    reason: str
    to_allow: str


@runtime_checkable
class Confines(Protocol):
    """How commands can be confined on this machine."""

    @property
    def has_sandbox(self) -> bool: ...

    @property
    def problem(self) -> str:
        """Why no command can run (the configured sandbox is unavailable); empty if they can."""

    def locate(self, path: str) -> str:
        """The host path of a path inside the sandbox; other paths are returned unchanged."""

    def why_not_granted(self, grants: Grants) -> str:
        """Why the sandbox cannot provide these grants (then no one is asked); empty if it can."""

    def in_sandbox(self, grants: Grants) -> "Confinement":
        """For a command in the sandbox."""

    def by_entry(self, grants: Grants) -> "Confinement":
        """For an allowlisted command; without a hold if the kernel cannot confine it."""


@runtime_checkable
class ExecGate(Protocol):
    """Decides about every command before it starts."""

    async def admit(self, request: ExecRequest, ready: Ready) -> Admitted | Waiting:
        """Raises `ToolAuthorizationError` for a refused command. `ready` is called before anyone is
        asked."""

    def may_read(self, path: str) -> bool:
        """Whether the file tools may read the whole file at an absolute path without approval."""

    async def settle(self, waiting: Waiting, request: ExecRequest) -> Admitted:
        """Wait for the answer. Raises `ToolAuthorizationError` if it is a refusal."""

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in the background after the call has returned, until the run ends."""

    async def finish(self) -> None:
        """Wait until all work passed to `later` is done."""


@runtime_checkable
class Approvals(Protocol):
    """Asking for approval."""

    def route(self) -> Literal["wait", "later", "none"]:
        """Whether an answer can be expected now (`wait`), later, or never (`none`)."""

    async def ask(
        self,
        request: "Question",
        binding: Mapping[str, Any] | None = None,
        changed: Callable[[Mapping[str, Any]], str] | None = None,
    ) -> "Answer":
        """Wait for a person's answer. No answer and no reachable approver count as a refusal.
        `binding` records what the answer applies to; `changed` says what has changed since an
        earlier binding."""

    def submit(
        self,
        request: "Question",
        binding: Mapping[str, Any] | None = None,
        changed: Callable[[Mapping[str, Any]], str] | None = None,
    ) -> "Pending":
        """Queue a question without waiting; `outcome` waits for the answer."""

    async def outcome(self, pending: "Pending") -> "Answer": ...

    def collect(self, id_: str) -> "Answer | None":
        """Use the answer to a question that was queued, without waiting; None while it is open. A
        silent answer means that none will come, or that it was already used."""

    def withdraw(self, id_: str) -> None:
        """Withdraw a question that was queued."""
