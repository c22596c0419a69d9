"""The keeper: a small program that starts all commands and ends them when clawkit is gone.

It is the parent of every command, and of whatever loses its parent below one: nothing that a
command starts can get away from it. Started by path, it talks over the socket on its standard
input; when that closes, or clawkit is gone, it ends everything but what was to live on.
"""

from __future__ import annotations

import array
import ctypes
import functools
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from clawkit.process import pressure, tree  # found through the line above
from clawkit.process.hidden import hide_memory
from clawkit.process.kept import Kept
from clawkit.process.spawn import prepare
from clawkit.process.wire import Unpacker, pack

ENDING_MS, WATCH_MS, HUNT_S = 20, 100, 0.05
GRACE_S = 1.0
"""Between asking and killing, when clawkit ends."""
STUCK_S = 5.0
"""What is not gone so long after it was killed hangs in the kernel, and nobody can end it."""
LITTLE = 32 * 1024**2
_SET_NAME, _SET_SUBREAPER = 15, 36
_UNIT = 1 if sys.platform == "darwin" else 1024


class Keeper:
    """Starts, watches, ends, and tells."""

    def __init__(self, control: socket.socket, score: int) -> None:
        self._control: socket.socket | None = control
        self._score = score
        self._unpacker = Unpacker()
        self._fds: list[int] = []
        self._env: dict[str, str] = {}
        self._kept: dict[str, Kept] = {}
        self._close_until: float | None = None
        """Set while everything is being ended; afterwards nothing is left to do."""
        self._tasks = 0
        self._watched = 0.0
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        # A copy of the socket may live on in some other child of clawkit: look at clawkit as well.
        self._parent = os.pidfd_open(os.getppid()) if hasattr(os, "pidfd_open") else -1
        if self._parent >= 0:
            self._poll.register(self._parent, select.POLLIN)
        self._wake, wake = os.pipe()
        for end in (self._wake, wake):
            os.set_blocking(end, False)
        self._poll.register(self._wake, select.POLLIN)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._is_told_to_end = False
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_is_told_to_end", True))
        for each in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(each, signal.SIG_IGN)

    def run(self) -> None:
        """Until clawkit is gone and everything has ended."""
        while self._control is not None or self._close_until is not None or self._kept:
            for fd, _ in self._poll.poll(self._patience()):
                if fd == self._wake:
                    with suppress(BlockingIOError):
                        os.read(self._wake, 4096)
                elif self._control is not None and fd == self._control.fileno():
                    self._listen(self._control)
                else:
                    self._part()
            if self._is_told_to_end:
                self._is_told_to_end = False
                self._on_close()
            self._reap()
            self._end_some()
            self._watch()

    def abandon(self) -> None:
        """Kill what is left of everything that was not to live on, as far as it is known."""
        for each in self._kept.values():
            if not each.detached:
                with suppress(OSError):
                    os.killpg(each.pid, signal.SIGKILL)

    def _patience(self) -> int | None:
        """Milliseconds after which things are looked at, whatever happens."""
        if self._close_until or any(each.kill_at for each in self._kept.values()):
            return ENDING_MS
        return WATCH_MS if self._kept else None

    def _tell(self, *message: Any) -> None:
        if self._control is not None:
            try:
                self._control.sendall(pack(*message))
            except OSError:
                self._part()

    def _listen(self, control: socket.socket) -> None:
        room = socket.CMSG_SPACE(64 * array.array("i").itemsize)
        try:
            data, beside, _, _ = control.recvmsg(1 << 16, room, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            data, beside = b"", []
        for _, _, raw in beside:
            fds = array.array("i")
            fds.frombytes(raw[: len(raw) - len(raw) % fds.itemsize])
            self._fds += fds
        for kind, *rest in self._unpacker.feed(data):
            getattr(self, f"_on_{kind}")(*rest)
        if not data:
            self._part()

    def _part(self) -> None:
        """Nobody is there any more."""
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
        """Everything ends but what was to live on."""
        for each in self._kept.values():
            if not each.detached:
                each.end(GRACE_S)
        self._close_until = time.monotonic() + GRACE_S + STUCK_S

    def _on_run(self, id_: str, argv: list[str], env: dict[str, str] | None, options: Any) -> None:
        """Without `env` it has the variables of the command before."""
        if env is not None:
            self._env = env
        # With a terminal comes a handle of it, so that its name cannot pass to another one.
        count = 2 if options["tty"] else 3
        fds, self._fds = self._fds[:count], self._fds[count:]
        if self._close_until is not None:
            for fd in fds:
                os.close(fd)
            self._tell(id_, "refused")
            return
        spawn = prepare(argv, {**self._env, tree.TAG: id_}, fds, options["tty"])
        try:
            if options["programs"] is not None:
                from clawkit.process import only  # most commands do without it

                spawn = functools.partial(only.start, argv[0], options["programs"], spawn)
            os.fchdir(fds[0])
            with tree.marking(options["mark"]), pressure.first_to_go(self._score):
                pid = spawn()
        except (RuntimeError, ImportError) as error:
            self._tell(id_, "error", None, str(error))
            return
        except (OSError, ValueError) as error:
            number = getattr(error, "errno", None) or 0
            self._tell(id_, "error", number, os.strerror(number) if number else str(error))
            return
        finally:
            os.chdir("/")
            for fd in fds:
                os.close(fd)
        tree.set_mark(pid, options["mark"])
        found = tree.look(pid)
        is_first = not self._kept
        self._kept[id_] = Kept(id_, pid, options, pressure.count_oom())
        self._tell(id_, "pid", pid, found.started if found is not None else 0)
        if is_first:
            self._tasks = pressure.count_tasks()

    def _on_signal(self, id_: str, number: int) -> None:
        if (kept := self._kept.get(id_)) is not None:
            processes = tree.table()
            tree.send_all(number, kept.pid, self._members(kept, processes), processes)

    def _on_drop(self, id_: str) -> None:
        """Nobody wants to know of it."""
        if (kept := self._kept.get(id_)) is not None:
            kept.detached = ""
            kept.end(0)

    def _on_end(self, id_: str, grace_s: float) -> None:
        if (kept := self._kept.get(id_)) is not None:
            kept.end(grace_s)
        else:
            self._tell(id_, "gone", [])

    def _reap(self) -> None:
        """Take note of everything that has ended."""
        by_pid = {each.pid: each for each in self._kept.values() if each.runs}
        others = False
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            if (kept := by_pid.get(pid)) is not None:
                self._note_end(kept, status, usage)
            else:
                others = True
        if others:
            for kept in [each for each in self._kept.values() if not each.runs]:
                if not kept.kill_at and not self._left(kept):
                    self._forget(kept)

    def _note_end(self, kept: Kept, status: int, usage: resource.struct_rusage) -> None:
        kept.runs = False
        code = os.waitstatus_to_exitcode(status)
        left = self._left(kept)
        was_killed = code in (-signal.SIGKILL, 128 + signal.SIGKILL) and not kept.kill_at
        # Every child begins in the memory of the keeper, which is counted as its own.
        memory = usage.ru_maxrss * _UNIT
        facts = {
            "code": code,
            "cpu_s": round(usage.ru_utime + usage.ru_stime, 6),
            "memory": memory if memory > LITTLE else 0,
            "oom": was_killed and pressure.count_oom() > kept.oom,
            "left": left,
        }
        kept.write_end(code)
        self._tell(kept.id, "exit", facts)
        if not left and not kept.kill_at:
            del self._kept[kept.id]

    def _left(self, kept: Kept) -> list[tuple[int, str]]:
        """What a command that has ended left running."""
        mains = {each.pid for each in self._kept.values() if each.runs}
        orphans = [pid for pid in tree.children_of(os.getpid()) if pid not in mains]
        found = {pid: each for pid in orphans if (each := tree.look(pid)) is not None}
        if not found:
            return []
        ours = tree.members(kept.pid, kept.id, kept.mark, found, found)
        return [(pid, found[pid].name) for pid in sorted(ours)]

    def _members(self, kept: Kept, processes: tree.Table) -> set[int]:
        """The living processes of a command. Nothing that is not below the keeper is one, even if
        it has got the number of one that ended."""
        leaders = {each.pid for each in self._kept.values()}
        below = tree.family([os.getpid()], processes)
        orphans = {
            pid
            for pid in below
            if processes[pid].parent == os.getpid() and processes[pid].session not in leaders
        }
        return tree.members(kept.pid, kept.id, kept.mark, processes, orphans) & below

    def _forget(self, kept: Kept, stuck: tuple[int, ...] = ()) -> None:
        del self._kept[kept.id]
        self._tell(kept.id, "gone", stuck)

    def _end_some(self) -> None:
        """One step for all that is to end."""
        now = time.monotonic()
        for kept in self._kept.values():
            if kept.deadline is not None and now > kept.deadline:
                kept.deadline = None
                kept.timed_out = kept.runs
                kept.end(STUCK_S)
        ending = [each for each in self._kept.values() if each.kill_at is not None]
        if not ending and self._close_until is None:
            return
        processes = tree.table()
        for kept in ending:
            self._end_one(kept, processes, now)
        if self._close_until is not None:
            self._end_strays(processes, now)

    def _end_one(self, kept: Kept, processes: tree.Table, now: float) -> None:
        kill_at = kept.kill_at or 0.0
        members = self._members(kept, processes)
        if not members and not kept.runs:
            if self._hunt(kept.owns):
                kept.kill_at = now
            else:
                self._forget(kept)
        elif now > kill_at + STUCK_S:
            self._forget(kept, tuple(sorted(members)))
        elif now >= kill_at:
            tree.stop(kept.pid, members, processes, force=True)
            self._hunt(kept.owns)
        elif not kept.was_asked:
            kept.was_asked = True
            tree.stop(kept.pid, members, processes, force=False)

    def _hunt(self, is_prey: Callable[[int], bool]) -> bool:
        """Kill what is no longer where a look at all processes saw it, because it goes on in a new
        process all the time. Whatever loses its parent is a child of the keeper, and the number of
        a child is its own until it has been reaped. Whether there was any."""
        until, empty, found = time.monotonic() + HUNT_S, 0, False
        while empty < 3 and time.monotonic() < until:
            mains = {each.pid for each in self._kept.values()}
            prey = [pid for pid in tree.children_of(os.getpid()) if pid not in mains]
            prey = [pid for pid in prey if is_prey(pid)]
            for pid in prey:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self._reap()
            empty = 0 if prey else empty + 1
            found = found or bool(prey)
        return found

    def _end_strays(self, processes: tree.Table, now: float) -> None:
        """End what belongs to no command any more, and say goodbye when nothing is left."""
        strays = self._strays(processes)
        tree.stop(-1, strays, processes, force=True)
        hunted = self._hunt(lambda pid: not any(each.owns(pid) for each in self._kept.values()))
        is_open = any(not each.detached or each.kill_at for each in self._kept.values())
        gone = not hunted and all(processes[pid].gone for pid in strays)
        if (gone and not is_open) or now > (self._close_until or 0):
            self._close_until = None
            self._hang_up()

    def _strays(self, processes: tree.Table) -> set[int]:
        """What was started by a command and hides whose it is."""
        known = [self._members(kept, processes) for kept in self._kept.values()]
        return tree.family([os.getpid()], processes).difference({os.getpid()}, *known)

    def _watch(self) -> None:
        """A command that starts processes without end is ended. All tasks of the machine are
        counted in one go; only when there are many more than before, those of each command."""
        now = time.monotonic()
        if not self._kept or now - self._watched < WATCH_MS / 2000:
            return
        self._watched = now
        tasks = pressure.count_tasks()
        self._tasks = min(self._tasks, tasks)
        if tasks - self._tasks < min(100, min(each.limit for each in self._kept.values()) // 2):
            return
        self._tasks = tasks
        # Whoever multiplies faster than he can be counted has to hold still for that.
        frozen = [each for each in self._kept.values() if each.freeze()]
        processes = tree.table()
        for kept in self._kept.values():
            count = len(self._members(kept, processes))
            if count > kept.limit and kept.kill_at is None:
                self._tell(kept.id, "crowd", count)
                kept.end(0)
        for kept in frozen:
            kept.thaw()
        strays = self._strays(processes)
        if len(strays) > max(each.limit for each in self._kept.values()):
            tree.stop(-1, strays, processes, force=True)


def main() -> None:
    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    os.chdir("/")
    score = pressure.open_score()
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(_SET_SUBREAPER, 1, 0, 0, 0)
        libc.prctl(_SET_NAME, b"clawkit-keeper", 0, 0, 0)
        # Nobody may look into it or steer it, not even its own commands.
        hide_memory()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    keeper = Keeper(control, score)
    try:
        keeper.run()
    finally:
        # Whatever has gone wrong, such as no handles being left: nothing lives on by accident.
        keeper.abandon()


if __name__ == "__main__":
    main()
