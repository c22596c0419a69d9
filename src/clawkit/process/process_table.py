"""Processes according to /proc: parents, sessions, marks; signals and resource limits.

The spawn server imports it, so its imports are cheap: neither `typing` nor the enums of `signal`.
"""

from __future__ import annotations

import os
import resource
import time
from contextlib import contextmanager, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Collection, Container, Iterable, Iterator, Mapping
else:
    import _signal as signal

TAG = "CLAWKIT_COMMAND"
"""The environment variable with the id of the command. A process can easily remove it."""
MARK = resource.RLIMIT_MSGQUEUE
"""The resource limit whose value marks a command. Every process inherits it, whatever it does to
its session, parent and environment; only root can raise it, and hardly any program does."""
SERVER_NAME = "clawkit-spawn"
"""Process name of the spawn server."""
STUCK_S = 5.0
"""A process that still exists this long after SIGKILL hangs in the kernel."""
_DEEPEST = 10_000
_USUAL = 819_200
_SMALL = 64 * 1024
_COUNT = 400_000


class Process:
    """One process, from /proc/…/stat."""

    __slots__ = ("exited", "group", "name", "parent", "pid", "session", "started", "stopped")

    def __init__(
        self,
        pid: int,
        parent: int,
        group: int,
        session: int,
        started: int,
        name: str,
        exited: bool,
        stopped: bool = False,
    ) -> None:
        """`started` is in the kernel's unit, and distinguishes processes that had the same pid;
        `exited` says that it is a zombie."""
        self.pid, self.parent, self.group, self.session = pid, parent, group, session
        self.started, self.name, self.exited, self.stopped = started, name, exited, stopped


if TYPE_CHECKING:
    Table = Mapping[int, Process]


def read_small(path: str) -> bytes:
    """Read a file of /proc with as few system calls as possible: done for every command."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, _SMALL)
        while len(data) % _SMALL == 0 and (more := os.read(fd, _SMALL)):
            data += more
        return data
    finally:
        os.close(fd)


def look(pid: int) -> Process | None:
    """One process; None if it does not exist or cannot be read."""
    try:
        stat = read_small(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The name is in parentheses and may contain parentheses itself.
    before, _, after = stat.rpartition(b")")
    name = before.partition(b"(")[2].decode("utf-8", "replace")
    state, parent, group, session, *rest = after.split()
    threads, started = int(rest[13]), int(rest[15])
    # If only the first thread has ended, the process continues with the others.
    gone = state in b"ZX" and threads <= 1
    ids = int(parent), int(group), int(session)
    return Process(pid, *ids, started, name, gone, state in b"Tt")


def table() -> dict[int, Process]:
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return {pid: found for pid in pids if (found := look(pid)) is not None}


def children_of(pid: int) -> list[int]:
    """The direct children of a single-threaded process, without reading the whole table."""
    try:
        return [int(each) for each in read_small(f"/proc/{pid}/task/{pid}/children").split()]
    except OSError:
        return [each.pid for each in table().values() if each.parent == pid]


def children_inside(pid: int) -> Iterator[tuple[int, Process]]:
    """The direct children of a process, the newest first, each with the pid that it has in its own
    pid namespace."""
    for child in reversed(children_of(pid)):
        found = look(child)
        with suppress(OSError, LookupError):
            ids = read_small(f"/proc/{child}/status").split(b"\nNSpid:", 1)[1].split(b"\n", 1)[0]
            if found is not None:
                yield int(ids.split()[-1]), found


def family(roots: Iterable[int], processes: Table) -> set[int]:
    """The roots and their descendants, except orphans."""
    below: dict[int, list[int]] = {}
    for each in processes.values():
        below.setdefault(each.parent, []).append(each.pid)
    found: set[int] = set()
    waiting = [pid for pid in roots if pid in processes]
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += below.get(pid, ())
    return found


def new_mark(taken: Container[int]) -> int:
    """An unpredictable mark for a command; 0 if none is available."""
    base = resource.getrlimit(MARK)[0]
    base = _USUAL if base == resource.RLIM_INFINITY else min(base, _USUAL)
    while base > _COUNT:
        mark = base - 1 - int.from_bytes(os.urandom(4), "big") % _COUNT
        if mark not in taken:
            return mark
    return 0


@contextmanager
def limiting(limits: Mapping[int, int]) -> Iterator[None]:
    """Processes that are started in this block have these limits from the start; 0 for none."""
    before = {kind: resource.getrlimit(kind) for kind, most in limits.items() if most}
    for kind, (_, hard) in before.items():
        resource.setrlimit(kind, (limits[kind], hard))
    try:
        yield
    finally:
        for kind, both in before.items():
            resource.setrlimit(kind, both)


def fix_limits(pid: int, limits: Mapping[int, int]) -> None:
    """Set hard limits, so that a process and its future children cannot raise them."""
    for kind, most in limits.items():
        if most:
            with suppress(OSError):  # it has ended
                resource.prlimit(pid, kind, (most, most))


def is_ours(pid: int, tag: str, mark: int) -> bool:
    """Whether a process has the mark or the tag of a command. The default limit is not a mark."""
    if mark and mark != resource.getrlimit(MARK)[0]:
        with suppress(OSError):
            if resource.prlimit(pid, MARK)[0] == mark:
                return True
    return is_tagged(pid, tag)


def members(
    leader: int,
    tag: str,
    mark: int,
    processes: Table,
    orphans: Collection[int],
    *,
    started: int = 0,
) -> set[int]:
    """The living processes of a command: its session and group, those of the `orphans` that have
    its mark or tag, and all their descendants. `leader` is its session leader; with `started`, a
    leader with another start time is another process."""
    leads = processes.get(leader)
    if started and leads is not None and leads.started != started:
        return set()
    roots = {each.pid for each in processes.values() if leader in (each.session, each.group)}
    if started and leads is not None:
        roots.add(leader)
    roots |= {pid for pid in orphans if pid not in roots and is_ours(pid, tag, mark)}
    return {pid for pid in family(roots, processes) if not processes[pid].exited}


def is_tagged(pid: int, tag: str) -> bool:
    """Whether the environment of a process has the tag of a command."""
    try:
        return f"{TAG}={tag}".encode() in read_small(f"/proc/{pid}/environ").split(b"\0")
    except OSError:
        return False


def send(number: int, pids: Iterable[int], processes: Table) -> None:
    """Signal processes, unless their pids have been reused in the meantime."""
    for pid in pids:
        with suppress(OSError):
            handle = os.pidfd_open(pid)
            try:
                now = look(pid)
                if now is None or now.started == processes[pid].started:
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)


def stop(leader: int, pids: Collection[int], processes: Table, *, force: bool) -> None:
    """Terminate processes, or kill them with `force`. A group is signalled atomically, so that no
    member can fork in between; stopped processes are continued, or they would not react."""
    if force:
        # Freeze them all first, so that none can fork while it waits for its turn.
        others = [pid for pid in pids if processes[pid].group != leader]
        send(signal.SIGSTOP, others, processes)
    send_all(signal.SIGKILL if force else signal.SIGTERM, leader, pids, processes)
    send_all(signal.SIGCONT, leader, pids, processes)


def send_all(number: int, leader: int, pids: Collection[int], processes: Table) -> None:
    """Signal all processes of a command, those in its group atomically."""
    if leader > 1 and any(processes[pid].group == leader for pid in pids):
        with suppress(OSError):
            os.killpg(leader, number)
    send(number, [pid for pid in pids if processes[pid].group != leader], processes)


class Escalation:
    """Stops processes in steps: SIGTERM, SIGKILL after the grace period, then giving up."""

    def __init__(self) -> None:
        self.kill_at: float | None = None
        """Time of SIGKILL on the monotonic clock; None while it is not being stopped."""
        self._was_asked = False

    def end(self, grace_s: float) -> None:
        """Start stopping; of several calls, the shortest grace period counts."""
        kill_at = time.monotonic() + grace_s
        self.kill_at = kill_at if self.kill_at is None else min(self.kill_at, kill_at)

    def escalate(self, leader: int, pids: Collection[int], processes: Table, now: float) -> bool:
        """Take the next step for its living processes; False if they cannot be killed."""
        kill_at = self.kill_at or 0.0
        if now > kill_at + STUCK_S:
            return False
        if now >= kill_at:
            stop(leader, pids, processes, force=True)
        elif not self._was_asked:
            self._was_asked = True
            stop(leader, pids, processes, force=False)
        return True


def is_inside_command() -> bool:
    """Whether this process is a descendant of a command of clawkit."""
    pid = os.getpid()
    for _ in range(_DEEPEST):
        found = look(pid)
        if found is None:
            return pid == os.getpid()  # /proc cannot be read: assume the worst
        if found.name == SERVER_NAME:
            return True
        if pid <= 1:
            return False
        pid = found.parent
    return True


def count_tasks() -> int:
    """The number of processes and threads on the machine."""
    try:
        return int(read_small("/proc/loadavg").split()[3].partition(b"/")[2])
    except OSError:
        return len(table())


def open_oom_score() -> int:
    """A descriptor of this process's OOM score, to be opened before `hide_memory`; -1 for none."""
    try:
        return os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return -1


@contextmanager
def oom_first(score: int) -> Iterator[None]:
    """Processes that are started in this block, and their descendants, are the first to be killed
    when memory runs out. Set before the start: children that exist already would be spared."""
    if score < 0:
        yield
        return
    before = os.pread(score, 16, 0)
    with suppress(OSError):
        os.pwrite(score, b"1000", 0)
    try:
        yield
    finally:
        with suppress(OSError):
            os.pwrite(score, before, 0)


def count_oom() -> int:
    """The kernel's count of OOM kills."""
    try:
        return int(read_small("/proc/vmstat").partition(b"oom_kill ")[2].split()[0])
    except (OSError, IndexError, ValueError):
        return 0


def read_mountinfo() -> str:
    # Paths may contain carriage returns, which must not become newlines.
    with open("/proc/self/mountinfo", "rb") as file:
        return file.read().decode("utf-8", "surrogateescape")


def count_unreachable() -> int:
    """The kernel's count of packets without a route in this network namespace."""
    try:
        names, values = read_small("/proc/net/snmp").split(b"\n")[:2]
        found = dict(zip(names.split(), values.split(), strict=False)).get(b"OutNoRoutes", b"0")
        six = read_small("/proc/net/snmp6").partition(b"Ip6OutNoRoutes")[2].split()[:1]
        return int(found) + int(six[0] if six else 0)
    except (OSError, ValueError):
        return 0
