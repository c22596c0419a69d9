"""Which processes there are, and who started whom."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple

TAG = "CLAWKIT_COMMAND"
"""The variable that names the command a process belongs to. It is easily lost."""
MARK = resource.RLIMIT_MSGQUEUE
"""The limit whose value marks a command. Every process inherits it, whatever it does to its
session, parent and environment; only root can raise it, and hardly any program wants to."""
SERVER_NAME = "clawkit-spawn"
"""What the spawn server is called in a list of processes."""
STUCK_S = 5.0
"""What is not gone so long after it was killed hangs in the kernel."""
_DEEPEST = 10_000
_USUAL = 819_200
_SMALL = 64 * 1024
_COUNT = 400_000
_PR_SET_DUMPABLE = 4


class Process(NamedTuple):
    """One process as the system tells it."""

    pid: int
    parent: int
    group: int
    session: int
    started: int
    """When, in a unit of the system; a number that was given to another process differs here."""
    name: str
    gone: bool
    """Whether it has ended and only waits for its parent to notice."""
    stopped: bool = False


Table = Mapping[int, Process]


def read_small(path: str) -> bytes:
    """A file of the system, with as few calls as can be: this is done for every command."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, _SMALL)
        while len(data) % _SMALL == 0 and (more := os.read(fd, _SMALL)):
            data += more
        return data
    finally:
        os.close(fd)


def look(pid: int) -> Process | None:
    """One process; None when there is none, or the system does not tell."""
    try:
        stat = read_small(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The name is in brackets and may hold brackets itself.
    before, _, after = stat.rpartition(b")")
    name = before.partition(b"(")[2].decode("utf-8", "replace")
    state, parent, group, session, *rest = after.split()
    threads, started = int(rest[13]), int(rest[15])
    # One whose first thread has ended goes on with the others.
    gone = state in b"ZX" and threads <= 1
    ids = int(parent), int(group), int(session)
    return Process(pid, *ids, started, name, gone, state in b"Tt")


def table() -> dict[int, Process]:
    """All processes."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return {pid: found for pid in pids if (found := look(pid)) is not None}


def children_of(pid: int) -> list[int]:
    """The direct children of a process with one thread, without looking at all others."""
    try:
        return [int(each) for each in read_small(f"/proc/{pid}/task/{pid}/children").split()]
    except OSError:
        return [each.pid for each in table().values() if each.parent == pid]


def family(roots: Iterable[int], processes: Table) -> set[int]:
    """The roots and everything they started, as far as it has not lost its parent."""
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
    """A mark for a command that cannot be guessed; 0 where there are none."""
    base = resource.getrlimit(MARK)[0]
    base = _USUAL if base == resource.RLIM_INFINITY else min(base, _USUAL)
    while base > _COUNT:
        mark = base - 1 - int.from_bytes(os.urandom(4), "big") % _COUNT
        if mark not in taken:
            return mark
    return 0


@contextmanager
def limiting(limits: Mapping[int, int]) -> Iterator[None]:
    """What is started here has these limits from its first moment; 0 for none."""
    before = {kind: resource.getrlimit(kind) for kind, most in limits.items() if most}
    for kind, (_, hard) in before.items():
        resource.setrlimit(kind, (limits[kind], hard))
    try:
        yield
    finally:
        for kind, both in before.items():
            resource.setrlimit(kind, both)


def fix_limits(pid: int, limits: Mapping[int, int]) -> None:
    """Let a process, and all that it will start, never get rid of limits by asking for more."""
    for kind, most in limits.items():
        if most:
            with suppress(OSError):  # it has ended
                resource.prlimit(pid, kind, (most, most))


def is_ours(pid: int, tag: str, mark: int) -> bool:
    """Whether a process bears the mark of a command, or its tag. What everybody has is no mark."""
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
    """The living processes of a command: its session, what is marked as its own among the
    `orphans`, and all that they started. `leader` is the pid that leads its session and group; with
    `started`, a leader that began at another time is another process."""
    leads = processes.get(leader)
    if started and leads is not None and leads.started != started:
        return set()
    roots = {each.pid for each in processes.values() if leader in (each.session, each.group)}
    if started and leads is not None:
        roots.add(leader)
    roots |= {pid for pid in orphans if pid not in roots and is_ours(pid, tag, mark)}
    return {pid for pid in family(roots, processes) if not processes[pid].gone}


def is_tagged(pid: int, tag: str) -> bool:
    """Whether a process was started by the command with this tag, as its environment says."""
    try:
        return f"{TAG}={tag}".encode() in read_small(f"/proc/{pid}/environ").split(b"\0")
    except OSError:
        return False


def send(number: int, pids: Iterable[int], processes: Table) -> None:
    """A signal to processes, unless their numbers have passed to others meanwhile."""
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
    """Ask processes to end, or kill them. A group is signalled at once, so that none of it can
    start another one in between; what was stopped is woken up, or it would not hear."""
    if force:
        # None of them goes on starting others while it waits for its turn.
        others = [pid for pid in pids if processes[pid].group != leader]
        send(signal.SIGSTOP, others, processes)
    send_all(signal.SIGKILL if force else signal.SIGTERM, leader, pids, processes)
    send_all(signal.SIGCONT, leader, pids, processes)


def send_all(number: int, leader: int, pids: Collection[int], processes: Table) -> None:
    """A signal to all processes of a command, to those in its group at the same moment."""
    if leader > 1 and any(processes[pid].group == leader for pid in pids):
        with suppress(OSError):
            os.killpg(leader, number)
    send(number, [pid for pid in pids if processes[pid].group != leader], processes)


class Escalation:
    """Something on its way to its end: asked by SIGTERM, killed after the grace, then given up."""

    def __init__(self) -> None:
        self.kill_at: float | None = None
        """When it is killed, on the monotonic clock; None while it is not to end."""
        self._was_asked = False

    def end(self, grace_s: float) -> None:
        """Have it ended; the shortest grace counts."""
        kill_at = time.monotonic() + grace_s
        self.kill_at = kill_at if self.kill_at is None else min(self.kill_at, kill_at)

    def escalate(self, leader: int, pids: Collection[int], processes: Table, now: float) -> bool:
        """One step for its living processes; False when they cannot be ended."""
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
    """Whether this process was started by a command of clawkit, however many lie between."""
    pid = os.getpid()
    for _ in range(_DEEPEST):
        found = look(pid)
        if found is None:
            return pid == os.getpid()  # without a look at itself, nothing is certain
        if found.name == SERVER_NAME:
            return True
        if pid <= 1:
            return False
        pid = found.parent
    return True


def count_tasks() -> int:
    """Processes and threads on the machine, in one go."""
    try:
        return int(read_small("/proc/loadavg").split()[3].partition(b"/")[2])
    except OSError:
        return len(table())


def open_score() -> int:
    """A handle of how soon this process goes when memory runs out, taken before it hides from its
    user; -1 for none."""
    try:
        return os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return -1


@contextmanager
def first_to_go(score: int) -> Iterator[None]:
    """What is started here, and all that it starts, goes first when memory runs out. Set for the
    child later, what it had started by then would be spared instead of it."""
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
    """How often the system ended a process for want of memory."""
    try:
        return int(read_small("/proc/vmstat").partition(b"oom_kill ")[2].split()[0])
    except (OSError, IndexError, ValueError):
        return 0


def hide_memory() -> None:
    """Let no program of the user, such as a command we start, read our memory and environment, or
    trace us. Root still can."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def count_unreachable() -> int:
    """How often this network namespace had no route for a packet, as the kernel counts."""
    try:
        names, values = read_small("/proc/net/snmp").split(b"\n")[:2]
        found = dict(zip(names.split(), values.split(), strict=False)).get(b"OutNoRoutes", b"0")
        six = read_small("/proc/net/snmp6").partition(b"Ip6OutNoRoutes")[2].split()[:1]
        return int(found) + int(six[0] if six else 0)
    except (OSError, ValueError):
        return 0
