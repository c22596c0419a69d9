"""Protocols and values for commands: what to run, running commands, and how they ended.

Imported on every start, so annotations are not postponed: a NamedTuple compiles each string.
"""

from collections.abc import Callable, Mapping, Sequence
from signal import Signals
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

from clawkit.errors import ToolError

if TYPE_CHECKING:
    from clawkit.process.command import Command
    from clawkit.process.landlock import Hold
    from clawkit.process.spool import Spool
    from clawkit.process.terminal import TerminalState

Reason = Literal[
    "exit",
    "signal",
    "overall-timeout",
    "no-output-timeout",
    "manual-cancel",
    "out-of-memory",
    "process-limit",
    "not-found",
    "not-executable",
    "spawn-error",
    "lost",
]
"""Why a command ended; `lost` if its end was not observed."""


GRACE_S: dict[Reason, float] = {"manual-cancel": 2.0, "process-limit": 0.0}


def grace_of(reason: Reason) -> float:
    """Seconds between SIGTERM and SIGKILL."""
    return GRACE_S.get(reason, 5.0)


class NoTerminalError(ToolError):
    """No pseudo-terminal is available."""


class Grants(NamedTuple):
    """Access beyond the sandbox that an allowlist entry or a person granted to a command."""

    network: bool = False
    """The whole network."""
    sockets: bool = False
    """Unix sockets, such as the ssh agent's."""
    hosts: tuple[str, ...] = ()
    """Host names that it may reach through the filtering proxy."""
    read: tuple[str, ...] = ()
    """Absolute paths of secrets that it may read."""
    write: tuple[str, ...] = ()
    """Absolute paths outside the workspace that it may change."""

    def __or__(self, other: "Grants") -> "Grants":
        return Grants(
            self.network or other.network,
            self.sockets or other.sockets,
            tuple(dict.fromkeys((*self.hosts, *other.hosts))),
            tuple(dict.fromkeys((*self.read, *other.read))),
            tuple(dict.fromkeys((*self.write, *other.write))),
        )

    def without(self, other: "Grants") -> "Grants":
        """The grants that `other` lacks."""
        return Grants(
            self.network and not other.network,
            self.sockets and not other.sockets,
            tuple(each for each in self.hosts if each not in other.hosts),
            tuple(each for each in self.read if not _is_below(each, other.read + other.write)),
            tuple(each for each in self.write if not _is_below(each, other.write)),
        )


NO_GRANTS = Grants()


def _is_below(path: str, folders: tuple[str, ...]) -> bool:
    return any(f"{path}/".startswith(f"{each.rstrip('/')}/") for each in folders)


class Launch(NamedTuple):
    """A command to start."""

    text: str
    """The text that the shell runs."""
    cwd: str
    """Absolute path of the working directory."""
    env: Mapping[str, str]
    """The whole environment."""
    size: tuple[int, int] | None = None
    """Columns and rows of its terminal; None for pipes."""
    open_input: bool = False
    """Whether its input is a pipe that stays open, not empty. A terminal's input is always open."""
    timeout_s: float | None = None
    quiet_s: float | None = None
    """Seconds without output after which it is killed."""
    detach: bool = False
    """Whether it keeps running when clawkit exits."""
    memory: int = 100_000
    """Bytes of output that are kept in memory; longer output is kept in a file."""
    programs: tuple[str, ...] | None = None
    """Absolute paths of the only programs, or directories of programs, that it may execute; None
    for any. The shell and the loader are added."""
    hold: "Hold | None" = None
    """What the kernel confines it to; None for resource limits only."""
    typed: str = ""
    """The command as it was sent, if the shell runs an equivalent text instead."""
    piped: bool = False
    """Whether the caller reads its output and writes its input, through `Running.pipes`."""

    @property
    def shown(self) -> str:
        """The command as people and the model see it."""
        return self.typed or self.text


class Exit(NamedTuple):
    """How a command ended."""

    reason: Reason
    code: int | None = None
    signal: str = ""
    """Such as `SIGKILL`; empty unless a signal killed it."""
    seconds: float = 0.0
    """How long it ran."""
    cpu_s: float = 0.0
    memory: int = 0
    """Peak memory of the largest process, in bytes; 0 if it was small."""
    note: str = ""
    """A remark for the model."""
    notes: tuple[str, ...] = ()
    """Lines about protected files: what was found and done."""
    wanted_network: bool = False
    """Whether the kernel denied it network access."""

    @classmethod
    def of(cls, code: int, seconds: float) -> "Exit":
        """From the exit code of the shell; a negative one is a signal."""
        if code < 0:
            return cls("signal", None, name_signal(-code), seconds)
        reasons: dict[int, Reason] = {126: "not-executable", 127: "not-found"}
        return cls(reasons.get(code, "exit"), code, "", seconds)

    @property
    def status(self) -> Literal["completed", "failed"]:
        """`completed` for any exit code: only a command without one has failed."""
        return "completed" if self.reason in ("exit", "manual-cancel") else "failed"


LOST = Exit("lost", note="the end of the command was not observed")


def name_signal(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"SIG{number}"


class LeftoverProcess(NamedTuple):
    """A process that a command left running when it ended."""

    pid: int
    name: str
    is_stuck: bool = False
    """Whether it could not be killed: it runs as another user, or hangs."""


class Running(Protocol):
    """A command on its host, until none of its processes is left."""

    pid: int
    """Its process on this machine; 0 if it cannot be seen from here."""
    since: int
    """Start time of its process, in the kernel's unit."""
    mark: int
    """See `process_table.MARK`; 0 for none."""

    @property
    def server(self) -> tuple[int, int]:
        """Pid and start time of its spawn server; zeros if that cannot be seen from here."""

    @property
    def output(self) -> "Spool": ...
    @property
    def terminal(self) -> "TerminalState | None": ...
    @property
    def can_write(self) -> bool: ...
    @property
    def left(self) -> Sequence[LeftoverProcess]:
        """Processes that it left running; empty before it has ended."""

    async def wait(self) -> Exit:
        """Wait until it has ended and all its output has been read."""

    async def write(self, data: bytes, *, eof: bool = False) -> None:
        """Raises `ToolInputError` if its input is closed, or it does not read in time."""

    def resize(self, columns: int, rows: int) -> None: ...

    async def signal(self, number: int) -> None:
        """Signal the command and everything it started."""

    async def end(self, grace_s: float) -> None:
        """Terminate it and everything it started, kill what remains after `grace_s`, and wait
        until all are gone."""

    def close(self) -> None:
        """Release all resources; nothing can be read afterwards."""


class ExecHost(Protocol):
    """A place where commands run. Every implementation passes the same contract suite."""

    @property
    def name(self) -> str: ...

    def prepare(self) -> None:
        """Get ready to start commands, without blocking."""

    async def start(self, launch: Launch, id_: str) -> Running:
        """Raises `ToolError` if the command cannot be started. `id_` is unique on this machine and
        can be used as a file name."""

    async def close(self) -> None:
        """Stop all commands that are not detached."""


@runtime_checkable
class Commands(Protocol):
    """All commands that were started, independent of the calls that started them."""

    @property
    def hosts(self) -> Sequence[str]:
        """Names of the hosts where commands can run."""

    def prepare(self, host: str) -> None:
        """Get ready to start commands there, while it is being decided whether one may run."""

    async def start(
        self,
        host: str,
        launch: Launch,
        owner: str,
        *,
        background: bool,
        on_end: "Callable[[Command], None] | None" = None,
    ) -> "Command":
        """Raises `ToolError` if too many are running or it cannot be started. `on_end` is called
        shortly after a command in the background has ended, unless a poll has reported the end or
        the command was stopped."""

    def all(self, owner: str) -> "Sequence[Command]":
        """Commands in the background: running ones first, then the newest."""

    def get(self, owner: str, id_: str) -> "Command":
        """Raises `NotFoundError`."""

    async def forget(self, command: "Command") -> None:
        """Stop it if it runs, and remove it with its output and records."""


@runtime_checkable
class BaseEnvironment(Protocol):
    """The environment that every command starts with."""

    async def variables(self) -> Mapping[str, str]:
        """The harmless part of clawkit's own environment, with the PATH of the login shell."""
