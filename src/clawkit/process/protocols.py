"""Commands as tools see them: what is to run, how it goes, and how it ended.

Annotations are not postponed: a NamedTuple compiles each that is text, and every start imports it.
"""

from collections.abc import Callable, Mapping, Sequence
from signal import Signals
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

from clawkit.errors import ToolError

if TYPE_CHECKING:
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
"""How a command came to its end; `lost` when its end was not seen."""


GRACE_S: dict[Reason, float] = {"manual-cancel": 2.0, "process-limit": 0.0}


def grace_of(reason: Reason) -> float:
    """Seconds between asking a command to end (SIGTERM) and killing it."""
    return GRACE_S.get(reason, 5.0)


class NoTerminalError(ToolError):
    """The machine has no terminal to give."""


class Grants(NamedTuple):
    """What a command gets beyond the sandbox, because an allowlist entry or a person granted it."""

    network: bool = False
    """The whole network."""
    sockets: bool = False
    """Unix sockets, such as the ssh agent's."""
    hosts: tuple[str, ...] = ()
    """Host names it may reach through the filtering proxy."""
    read: tuple[str, ...] = ()
    """Absolute paths it may read although they are secret."""
    write: tuple[str, ...] = ()
    """Absolute paths it may change although they are outside the workspace."""

    def __or__(self, other: "Grants") -> "Grants":
        """Both together."""
        return Grants(
            self.network or other.network,
            self.sockets or other.sockets,
            tuple(dict.fromkeys((*self.hosts, *other.hosts))),
            tuple(dict.fromkeys((*self.read, *other.read))),
            tuple(dict.fromkeys((*self.write, *other.write))),
        )

    def without(self, other: "Grants") -> "Grants":
        """What the other does not grant."""
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
    """What is to run."""

    text: str
    """What the shell is given."""
    cwd: str
    """Absolute path of the directory it runs in."""
    env: Mapping[str, str]
    """All of its environment."""
    size: tuple[int, int] | None = None
    """Columns and rows of its terminal; None for pipes."""
    open_input: bool = False
    """Whether it can be written to; if not, it finds its input empty. A terminal always can."""
    timeout_s: float | None = None
    quiet_s: float | None = None
    """Seconds without output after which it is killed."""
    detach: bool = False
    """Whether it lives on when clawkit ends."""
    memory: int = 100_000
    """Bytes of its output that are kept in memory; when there are more, a file has them all."""
    programs: tuple[str, ...] | None = None
    """Absolute paths of the only files, or directories with all in them, that may be started as
    programs; None for any. The shell and the loader are added."""
    hold: "Hold | None" = None
    """What the kernel confines it to; None for nothing but resource limits."""
    typed: str = ""
    """The command as it was sent, when the shell is given something else that means the same."""

    @property
    def shown(self) -> str:
        """What people and the model know it by."""
        return self.typed or self.text


class Exit(NamedTuple):
    """How a command ended."""

    reason: Reason
    code: int | None = None
    signal: str = ""
    """Such as `SIGKILL`; empty unless a signal ended it."""
    seconds: float = 0.0
    """How long it ran."""
    cpu_s: float = 0.0
    memory: int = 0
    """The most bytes it, or one of its children, had in memory at once; 0 when it was little."""
    note: str = ""
    """What else there is to say, in words."""
    notes: tuple[str, ...] = ()
    """What was found and done about protected files, in lines."""
    wanted_network: bool = False
    """Whether the kernel refused it the network."""

    @classmethod
    def of(cls, code: int, seconds: float) -> "Exit":
        """What the code of a shell means; a negative one is a signal."""
        if code < 0:
            return cls("signal", None, name_signal(-code), seconds)
        reasons: dict[int, Reason] = {126: "not-executable", 127: "not-found"}
        return cls(reasons.get(code, "exit"), code, "", seconds)

    @property
    def status(self) -> Literal["completed", "failed"]:
        """A non-zero code is an answer; what kept the command from giving one is a failure."""
        return "completed" if self.reason in ("exit", "manual-cancel") else "failed"


LOST = Exit("lost", note="the end of the command was not seen")


def name_signal(number: int) -> str:
    """Such as `SIGKILL`."""
    try:
        return Signals(number).name
    except ValueError:
        return f"SIG{number}"


class Left(NamedTuple):
    """A process that a command left running when it ended."""

    pid: int
    name: str
    is_stuck: bool = False
    """Whether it was to be ended and could not: it runs as another user, or hangs."""


class Steered(Protocol):
    """What can be seen of a command, and done to it, wherever it runs."""

    pid: int
    """Its process on this machine; 0 when it runs elsewhere."""

    @property
    def output(self) -> "Spool": ...
    @property
    def terminal(self) -> "TerminalState | None": ...
    @property
    def can_write(self) -> bool: ...
    @property
    def left(self) -> Sequence[Left]:
        """What it left running; only once it has ended."""

    async def write(self, data: bytes, *, eof: bool = False) -> None:
        """Raises `ToolInputError` when it cannot be written to, or does not take it in time."""

    def resize(self, columns: int, rows: int) -> None: ...

    async def signal(self, number: int) -> None:
        """To the command and what it started."""


class Running(Steered, Protocol):
    """A command on its host, from its start until nothing of it is left."""

    since: int
    """When its process began, as the system counts."""

    async def wait(self) -> Exit:
        """Until it has ended and all it wrote has been read."""

    async def end(self, grace_s: float) -> None:
        """Ask it and all it started to end, and after the grace make them; until all are gone."""

    def close(self) -> None:
        """Let go of everything, when nothing more is to be read."""


class ExecHost(Protocol):
    """A place where commands run. Every implementation passes the same contract suite."""

    @property
    def name(self) -> str: ...

    def prepare(self) -> None:
        """Get ready to start commands, in the background; none is started by it."""

    async def start(self, launch: Launch, id_: str) -> Running:
        """Raises `ToolError` when the command cannot be started. The id is the only one of its
        kind on this machine, and fit for the name of a file."""

    async def close(self) -> None:
        """End everything that was not to live on."""


class Command(Steered, Protocol):
    """One command, for as long as it can be asked about."""

    id: str
    """Two words, such as `calm-otter`, under which it is asked for."""
    owner: str
    """Whose it is: others do not see it."""
    launch: Launch
    started: float
    """Seconds since 1970."""
    background: bool
    """Whether it goes on without the call that started it."""
    told: int
    """How much of the output a poll has already given."""
    counted: tuple[int, int] | None
    """How many bytes of the output were looked at for lines, and the newlines in them."""
    empty_polls: int
    """Polls in a row that gave nothing."""
    announce: bool
    """Whether its end is still to be reported: not when a poll has reported it."""

    @property
    def name(self) -> str:
        """A few words of the command, for a list."""

    @property
    def exit(self) -> Exit | None:
        """None while it runs."""

    @property
    def runtime_s(self) -> float: ...
    @property
    def idle_s(self) -> float:
        """Seconds since it last wrote something."""

    @property
    def waits_for_input(self) -> bool:
        """A guess: it can be written to and has been silent for long."""

    async def wait(self, seconds: float | None = None) -> Exit | None:
        """Until it has ended; None when the time was over first."""

    async def wait_for_news(self, seen: int, seconds: float) -> None:
        """Until it wrote more than `seen` bytes, or ended, or the time is over."""

    async def end(self, reason: Reason = "manual-cancel") -> None:
        """End it and all it started; until all are gone."""

    def to_background(self) -> None:
        """The call that started it goes on without it."""


@runtime_checkable
class Commands(Protocol):
    """All commands that were started, independent of the calls that started them."""

    @property
    def hosts(self) -> Sequence[str]:
        """Where commands can run."""

    def prepare(self, host: str) -> None:
        """Get ready to start commands there, while it is still found out whether one may run."""

    async def start(
        self,
        host: str,
        launch: Launch,
        owner: str,
        *,
        background: bool,
        on_end: Callable[[Command], None] | None = None,
    ) -> Command:
        """Raises `ToolError` when too many run already or it cannot be started. `on_end` is called
        a moment after a command in the background ended, unless that was reported or it was
        stopped."""

    def all(self, owner: str) -> Sequence[Command]:
        """Those in the background, running ones first, then the newest."""

    def get(self, owner: str, id_: str) -> Command:
        """Raises `NotFoundError`."""

    async def forget(self, command: Command) -> None:
        """Leave it out of the list and remove what is kept of it; if it runs, it is ended."""


@runtime_checkable
class BaseEnvironment(Protocol):
    """What commands find around them."""

    async def variables(self) -> Mapping[str, str]:
        """The environment that every command starts with: clawkit's own without what is not for
        commands, and the PATH of the user's login."""
