"""The spawn server: a small program that starts all commands and stops them when clawkit is gone.

It is the parent of every command and, as a subreaper, of every orphan below one: nothing that a
command starts can escape it. It communicates over the socket on its standard input, or one that it
connects to; when that closes, or clawkit is gone, it stops everything that is not detached. The
first command waits for its imports. So it has few, none that needs `re`, `enum` or `typing`, and of
`signal` and `socket` only what is written in C.
"""

from __future__ import annotations

import _socket as socket
import functools
import gc
import marshal
import os
import resource
import select
import sys
import time
from contextlib import suppress

from clawkit.process import process_table
from clawkit.process.libc import hide_memory, libc
from clawkit.process.process_table import STUCK_S, Escalation

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterator
    from typing import Any

    from clawkit.process.confine import Confiner, Started
else:
    import _signal as signal


ENDING_MS, WATCH_MS, HUNT_S, COUNT_S = 20, 100, 0.05, 1.0
GRACE_S = 1.0
"""Between SIGTERM and SIGKILL when clawkit exits."""
LITTLE = 32 * 1024**2
MORE_TASKS = 10_000
"""A command cannot start a task if its user has this many more than the machine had at its start: a
fork bomb can be too fast to be counted here. The kernel exempts root, also in user namespaces."""
_TASKS = resource.RLIMIT_NPROC
_SET_NAME, _SET_SUBREAPER = 15, 36
_SIGNALS = signal.valid_signals().intersection(range(1, 32)) - {signal.SIGKILL, signal.SIGSTOP}
"""Signals that may be ignored here and are reset to their default for commands."""
_LENGTH = 4
_FD_ROOM = socket.CMSG_SPACE(64 * 4)


def frame(body: bytes) -> bytes:
    """A message between clawkit and the server: its length, then its body."""
    return len(body).to_bytes(_LENGTH, "little") + body


def pack(*fields: object) -> bytes:
    """Encode a message of the server. It may not be trustworthy, so its messages are as simple as
    possible: fields of text. Requests to the server are marshalled."""
    return frame("\0".join(map(str, fields)).encode("utf-8", "surrogatepass"))


class Unframer:
    """Finds the bodies of messages in a stream of bytes."""

    def __init__(self, most: int = 0) -> None:
        """`most` is the maximum size of a message in bytes; 0 for no limit."""
        self._most = most
        self._buffer = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Raises ValueError for a message that is too large."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH:
            end = _LENGTH + int.from_bytes(self._buffer[:_LENGTH], "little")
            if self._most and end > self._most:
                raise ValueError("the message is too large")
            if len(self._buffer) < end:
                return
            body, self._buffer = self._buffer[_LENGTH:end], self._buffer[end:]
            yield body


class SpawnedCommand(Escalation):
    """A command that the server started."""

    def __init__(
        self, id_: str, pid: int, options: dict[str, Any], oom: int, unreachable: int
    ) -> None:
        super().__init__()
        self.id = id_
        self.pid = pid
        self.oom = oom
        """The kernel's count of OOM kills at its start."""
        self.mark: int = options["mark"]
        self.limit: int = options["limit"]
        self.detached: str = options["detached"]
        """The file for its exit code; empty unless it is detached."""
        self.wanted_network = False
        self.unreachable = unreachable
        """The kernel's count of packets without a route at its start."""
        self.runs = True
        self.timed_out = False
        timeout_s = options["timeout_s"]
        self.deadline = time.monotonic() + timeout_s if timeout_s else None

    def owns(self, pid: int) -> bool:
        """Whether a child of the server, other than a main process, belongs to this command."""
        with suppress(OSError):
            if os.getsid(pid) == self.pid:
                return True
        return process_table.is_ours(pid, self.id, self.mark)

    def freeze(self) -> bool:
        """Stop its process group, unless it was stopped already."""
        found = process_table.look(self.pid) if self.runs and self.kill_at is None else None
        if found is None or found.stopped:
            return False
        with suppress(OSError):
            os.killpg(self.pid, signal.SIGSTOP)
            return True
        return False

    def write_end(self, code: int) -> None:
        """Write the exit file of a detached command. Nothing at that path, such as a pipe without
        a reader, can block the server."""
        if not self.detached:
            return
        word = " timeout" if self.timed_out else ""
        new = f"{self.detached}.new"
        with suppress(OSError):
            os.unlink(new)
        with suppress(OSError):
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            os.write(fd, f"{code} {time.time():.3f}{word}\n".encode())
            os.close(fd)
            os.rename(new, self.detached)


def prepare(argv: list[str], env: dict[str, str], fds: list[int], tty: str) -> Callable[[], int]:
    """A function that starts a program by its path and returns its pid. `fds` are standard input
    and output, or the terminal."""
    actions: list[tuple[Any, ...]]
    if tty:
        # The first terminal that a session leader opens becomes its controlling terminal. It is not
        # opened by its name, which in a sandbox may be another terminal or none.
        name = f"/proc/self/fd/{fds[0]}"
        actions = [(os.POSIX_SPAWN_OPEN, 0, name, os.O_RDWR, 0)]
        actions += [(os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]
    else:
        actions = [(os.POSIX_SPAWN_DUP2, fds[0], 0)]
        actions += [(os.POSIX_SPAWN_DUP2, fds[1], each) for each in (1, 2)]
    options: dict[str, Any] = {"setsid": True, "setsigdef": _SIGNALS, "setsigmask": ()}
    return functools.partial(os.posix_spawn, argv[0], argv, env, file_actions=actions, **options)


class SpawnServer:
    """Starts, watches and stops commands, and reports their ends."""

    def __init__(self, control: socket.socket, score: int, *, has_network: bool) -> None:
        self._has_network = has_network
        self._control: socket.socket | None = control
        self._score = score
        self._unframer = Unframer()
        self._fds: list[int] = []
        self._env: dict[str, str] = {}
        self._commands: dict[str, SpawnedCommand] = {}
        self._confinement: Confiner | None = None
        self._listeners: dict[int, SpawnedCommand] = {}
        """Seccomp listeners that report a command's attempts to use the network."""
        self._close_until: float | None = None
        """Set while everything is being stopped: when to give up."""
        self._tasks, self._watched, self._counted = 0, 0.0, 0.0
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        # Another child of clawkit may hold a copy of the socket, so watch clawkit itself as well.
        # Inside a sandbox clawkit cannot be seen, and the kernel kills everything when it is gone.
        self._parent = os.pidfd_open(os.getppid()) if os.getppid() > 0 else -1
        if self._parent >= 0:
            self._poll.register(self._parent, select.POLLIN)
        self._wake, wake = os.pipe()
        for end in (self._wake, wake):
            os.set_blocking(end, False)
        self._poll.register(self._wake, select.POLLIN)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._got_sigterm = False
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_got_sigterm", True))
        for each in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(each, signal.SIG_IGN)

    def run(self) -> None:
        """Serve until clawkit is gone and everything has ended."""
        while self._control is not None or self._close_until is not None or self._commands:
            is_ending = self._close_until or any(each.kill_at for each in self._commands.values())
            timeout_ms = ENDING_MS if is_ending else WATCH_MS if self._commands else None
            for fd, _ in self._poll.poll(timeout_ms):
                if fd == self._wake:
                    with suppress(BlockingIOError):
                        os.read(self._wake, 4096)
                elif fd in self._listeners:
                    self._refuse_network(fd)
                elif self._control is not None and fd == self._control.fileno():
                    self._receive(self._control)
                else:
                    self._disconnect()
            if self._got_sigterm:
                self._got_sigterm = False
                self._on_close()
            self._reap()
            self._end_some()
            self._enforce_limits()

    def abandon(self) -> None:
        """Kill all known commands that are not detached."""
        for each in self._commands.values():
            if not each.detached:
                with suppress(OSError):
                    os.killpg(each.pid, signal.SIGKILL)

    def _send(self, *message: Any) -> None:
        if self._control is not None:
            try:
                self._control.sendall(pack(*message))
            except OSError:
                self._disconnect()

    def _receive(self, control: socket.socket) -> None:
        try:
            data, beside, _, _ = control.recvmsg(1 << 16, _FD_ROOM, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            data, beside = b"", []
        for _, _, raw in beside:
            self._fds += memoryview(raw).cast("i")
        for body in self._unframer.feed(data):
            kind, *rest = marshal.loads(body)  # noqa: S302  # from clawkit
            getattr(self, f"_on_{kind}")(*rest)
        if not data:
            self._disconnect()

    def _disconnect(self) -> None:
        """clawkit is gone: stop everything."""
        if self._control is not None:
            self._hang_up()
            self._on_close()

    def _hang_up(self) -> None:
        if self._control is not None:
            self._poll.unregister(self._control)
            self._control.close()
            self._control = None
        if self._parent >= 0:
            self._poll.unregister(self._parent)
            os.close(self._parent)
            self._parent = -1

    def _on_close(self) -> None:
        """Stop everything that is not detached."""
        for each in self._commands.values():
            if not each.detached:
                each.end(GRACE_S)
        self._close_until = time.monotonic() + GRACE_S + STUCK_S

    def _on_run(self, id_: str, argv: list[str], env: dict[str, str] | None, options: Any) -> None:
        """Without `env` it gets the environment of the previous command."""
        if env is not None:
            self._env = env
        # A terminal comes as a descriptor, because its name could be reused. So does the directory,
        # but in a sandbox it comes as a path: a descriptor would lead outside.
        count = (0 if options["cwd"] else 1) + (1 if options["tty"] else 2)
        fds, self._fds = self._fds[:count], self._fds[count:]
        if self._close_until is not None:
            for fd in fds:
                os.close(fd)
            self._send(id_, "refused")
            return
        streams = fds if options["cwd"] else fds[1:]
        spawn = prepare(argv, {**self._env, process_table.TAG: id_}, streams, options["tty"])
        listener = -1
        # Read before the start: the command may hit a missing route immediately.
        oom, unreachable = process_table.count_oom(), self._count_unreachable()
        tasks = process_table.count_tasks()
        try:
            try:
                os.chdir(options["cwd"] or fds[0])
            except (OSError, ValueError) as error:
                self._send(id_, "nowhere", getattr(error, "strerror", "") or str(error))
                return
            most = (tasks + MORE_TASKS, *resource.getrlimit(_TASKS))
            mark = {process_table.MARK: options["mark"], _TASKS: min(n for n in most if n >= 0)}
            with process_table.limiting(mark), process_table.oom_first(self._score):
                if options["programs"] is None and options["hold"] is None:
                    pid = spawn()
                else:
                    pid, listener = self._confined(argv[0], spawn, options)
        except (RuntimeError, ImportError) as error:
            self._send(id_, "unconfined", error)
            return
        except (OSError, ValueError) as error:
            number = getattr(error, "errno", None) or 0
            self._send(id_, "error", number, os.strerror(number) if number else str(error))
            return
        finally:
            os.chdir("/")
            for fd in fds:
                os.close(fd)
        process_table.fix_limits(pid, mark)
        found = process_table.look(pid)
        is_first = not self._commands
        command = self._commands[id_] = SpawnedCommand(id_, pid, options, oom, unreachable)
        if listener >= 0:
            self._listeners[listener] = command
            self._poll.register(listener, select.POLLIN)
        self._send(id_, "pid", pid, found.started if found is not None else 0)
        if is_first:
            self._tasks, self._watched = tasks, time.monotonic()

    def _confined(self, shell: str, spawn: Callable[[], int], options: Any) -> Started:
        from clawkit.process.confine import Confiner  # slow to import, and not always needed
        from clawkit.process.landlock import Hold

        if self._confinement is None:
            self._confinement = Confiner()
        given = options["hold"]
        hold = Hold(*given or ())
        limits = {resource.RLIMIT_DATA: hold.max_memory, resource.RLIMIT_FSIZE: hold.max_file}
        with process_table.limiting(limits):
            started = self._confinement.start(
                spawn,
                hold=hold if given is not None else None,
                programs=options["programs"],
                shell=shell,
                tty=options["tty"],
            )
        process_table.fix_limits(started.pid, limits)
        return started

    def _count_unreachable(self) -> int:
        return 0 if self._has_network else process_table.count_unreachable()

    def _refuse_network(self, listener: int) -> None:
        from clawkit.process.seccomp import answer

        try:
            self._listeners[listener].wanted_network |= answer(listener)
        except OSError:  # no process is left that could use it
            self._poll.unregister(listener)
            os.close(listener)
            del self._listeners[listener]

    def _on_signal(self, id_: str, number: int) -> None:
        if (command := self._commands.get(id_)) is not None:
            processes = process_table.table()
            members = self._members(command, processes)
            process_table.send_all(number, command.pid, members, processes)

    def _on_drop(self, id_: str) -> None:
        """The start of the command was cancelled."""
        if (command := self._commands.get(id_)) is not None:
            command.detached = ""
            command.end(0)

    def _on_end(self, id_: str, grace_s: float) -> None:
        if (command := self._commands.get(id_)) is not None:
            command.end(grace_s)
        else:
            self._send(id_, "gone")

    def _reap(self) -> None:
        """Reap all children that have ended, and report commands."""
        by_pid = {each.pid: each for each in self._commands.values() if each.runs}
        others = False
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            if (command := by_pid.get(pid)) is not None:
                self._note_end(command, status, usage)
            else:
                others = True
        if others:
            for command in [each for each in self._commands.values() if not each.runs]:
                if not command.kill_at and not self._left(command):
                    self._forget(command)

    def _note_end(
        self, command: SpawnedCommand, status: int, usage: resource.struct_rusage
    ) -> None:
        command.runs = False
        code = os.waitstatus_to_exitcode(status)
        left = self._left(command)
        was_killed = code in (-signal.SIGKILL, 128 + signal.SIGKILL) and not command.kill_at
        # Every child starts as a copy of the server, whose memory counts as its own.
        memory = usage.ru_maxrss * 1024
        had_no_route = self._count_unreachable() > command.unreachable
        is_oom = was_killed and process_table.count_oom() > command.oom
        facts = (
            code,
            round(usage.ru_utime + usage.ru_stime, 6),
            memory if memory > LITTLE else 0,
            int(is_oom),
            int(command.wanted_network or had_no_route),
        )
        command.write_end(code)
        self._send(command.id, "exit", *facts, *(field for each in left for field in each))
        if not left and not command.kill_at:
            del self._commands[command.id]

    def _left(self, command: SpawnedCommand) -> list[tuple[int, str]]:
        """Processes that a command left running when it ended."""
        mains = {each.pid for each in self._commands.values() if each.runs}
        orphans = [pid for pid in process_table.children_of(os.getpid()) if pid not in mains]
        found = {pid: each for pid in orphans if (each := process_table.look(pid)) is not None}
        if not found:
            return []
        ours = process_table.members(command.pid, command.id, command.mark, found, found)
        return [(pid, found[pid].name) for pid in sorted(ours)]

    def _members(self, command: SpawnedCommand, processes: process_table.Table) -> set[int]:
        """The living processes of a command. Only descendants of the server count: other processes
        may have reused the pid of one that ended."""
        leaders = {each.pid for each in self._commands.values()}
        below = process_table.family([os.getpid()], processes)
        orphans = {
            pid
            for pid in below
            if processes[pid].parent == os.getpid() and processes[pid].session not in leaders
        }
        return (
            process_table.members(command.pid, command.id, command.mark, processes, orphans) & below
        )

    def _forget(self, command: SpawnedCommand, stuck: tuple[int, ...] = ()) -> None:
        del self._commands[command.id]
        self._send(command.id, "gone", *stuck)

    def _end_some(self) -> None:
        """One step of stopping commands: timeouts, escalation, strays."""
        now = time.monotonic()
        for command in self._commands.values():
            if command.deadline is not None and now > command.deadline:
                command.deadline = None
                command.timed_out = command.runs
                command.end(STUCK_S)
        ending = [each for each in self._commands.values() if each.kill_at is not None]
        if not ending and self._close_until is None:
            return
        processes = process_table.table()
        for command in ending:
            members = self._members(command, processes)
            if not members and not command.runs:
                if self._kill_orphans(command.owns):
                    command.kill_at = now
                else:
                    self._forget(command)
            elif not command.escalate(command.pid, members, processes, now):
                self._forget(command, tuple(sorted(members)))
            elif now >= (command.kill_at or 0.0):
                self._kill_orphans(command.owns)
        if self._close_until is not None:
            # Kill processes that belong to no command, and hang up when nothing is left.
            strays = self._strays(processes)
            process_table.stop(-1, strays, processes, force=True)
            killed = self._kill_orphans(
                lambda pid: not any(each.owns(pid) for each in self._commands.values())
            )
            is_open = any(not each.detached or each.kill_at for each in self._commands.values())
            gone = not killed and all(processes[pid].exited for pid in strays)
            if (gone and not is_open) or now > (self._close_until or 0):
                self._close_until = None
                self._hang_up()

    def _kill_orphans(self, is_target: Callable[[int], bool]) -> bool:
        """Kill processes that evade the process table by forking all the time; returns whether
        there were any. Every orphan becomes a child of the server, and the pid of a child is not
        reused before it is reaped."""
        until, empty, found = time.monotonic() + HUNT_S, 0, False
        while empty < 3 and time.monotonic() < until:
            mains = {each.pid for each in self._commands.values()}
            orphans = [pid for pid in process_table.children_of(os.getpid()) if pid not in mains]
            targets = [pid for pid in orphans if is_target(pid)]
            for pid in targets:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self._reap()
            empty = 0 if targets else empty + 1
            found = found or bool(targets)
        return found

    def _strays(self, processes: process_table.Table) -> set[int]:
        """Descendants that cannot be attributed to a command."""
        known = [self._members(command, processes) for command in self._commands.values()]
        return process_table.family([os.getpid()], processes).difference({os.getpid()}, *known)

    def _enforce_limits(self) -> None:
        """Stop commands that have too many processes. Counting the tasks of the whole machine is
        cheap; those of each command are counted if there are many more than before, and now and
        then if there are enough, because others that end hide what a command starts."""
        now = time.monotonic()
        if not self._commands or now - self._watched < WATCH_MS / 2000:
            return
        self._watched = now
        tasks = process_table.count_tasks()
        self._tasks = min(self._tasks, tasks)
        lowest = min(each.limit for each in self._commands.values())
        is_growing = tasks - self._tasks >= min(100, lowest // 2)
        if not is_growing and (tasks <= lowest or now - self._counted < COUNT_S):
            return
        self._tasks, self._counted = tasks, now
        # A fork bomb multiplies faster than it can be counted, so freeze it first.
        frozen = [each for each in self._commands.values() if is_growing and each.freeze()]
        processes = process_table.table()
        for command in self._commands.values():
            count = len(self._members(command, processes))
            if count > command.limit and command.kill_at is None:
                self._send(command.id, "crowd", count)
                command.end(0)
        for command in frozen:
            if command.kill_at is None:  # being killed needs no SIGCONT
                with suppress(OSError):
                    os.killpg(command.pid, signal.SIGCONT)
        strays = self._strays(processes)
        if len(strays) > max(each.limit for each in self._commands.values()):
            process_table.stop(-1, strays, processes, force=True)


def _connect() -> socket.socket:
    """Report the environment of commands, and connect to clawkit's socket. Its path comes on
    standard input, so that no other program here learns it."""
    import json

    path = sys.stdin.readline().rstrip("\n")
    found = {"env": dict(os.environ), "bash": os.access("/bin/bash", os.X_OK)}
    print(json.dumps(found), flush=True)
    control = socket.socket(socket.AF_UNIX)
    control.connect(path)
    return control


def _confine(control: socket.socket, options: dict[str, Any]) -> None:
    """Confine the server inside a sandbox, and so every command: `unix` sockets, `max_memory`,
    `max_file`. With `proxy`, send clawkit a listening socket for its proxy; with `mounts`, the list
    of mounts. Raises OSError if the kernel cannot."""
    from clawkit.process import seccomp

    # Its commands run as the same user and could terminate it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.get("mounts"):
        control.sendall(pack("", "mounts", process_table.read_mountinfo()))
    if options.get("proxy"):
        listener = socket.socket(socket.AF_INET)
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        message = pack("", "proxy", listener.getsockname()[1])
        handle = listener.fileno().to_bytes(4, sys.byteorder)
        control.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handle)])
        listener.close()
    limits = {resource.RLIMIT_DATA: "max_memory", resource.RLIMIT_FSIZE: "max_file"}
    for kind, name in limits.items():
        if most := options.get(name):
            resource.setrlimit(kind, (most, most))
    if options.get("unix"):
        from clawkit.process import landlock

        # No mount hides abstract sockets, and with the whole network they are shared.
        landlock.leave_programs_outside_alone()
    if seccomp.available():
        # The sandbox has its own network namespace, which leads only to its own programs.
        unix = bool(options.get("unix"))
        seccomp.enter(seccomp.make_filter(internet=True, unix=unix, separate=True))


def main(**options: Any) -> None:
    """Serve; `options` are those of a server inside a sandbox."""
    control = _connect() if options.get("connect") else socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    os.chdir("/")
    score = process_table.open_oom_score()
    libc().prctl(_SET_SUBREAPER, 1, 0, 0, 0)
    libc().prctl(_SET_NAME, process_table.SERVER_NAME.encode(), 0, 0, 0)
    # No other process may inspect or trace it, not even its own commands.
    hide_memory()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    server = SpawnServer(control, score, has_network=options.get("internet", True))
    if options:
        _confine(control, options)
    gc.enable()
    try:
        server.run()
    finally:
        # On any error, such as no free file descriptors, no command must keep running by accident.
        server.abandon()
    os._exit(0)  # interpreter shutdown would take a sixth of a start
