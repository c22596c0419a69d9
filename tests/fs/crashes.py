"""A program that has changes of several files killed, at every point and at any time, and looks at
what is left. It prints one JSON line per attempt.

    python -m tests.fs.crashes KIND FOLDER STRIDE

What a killed program leaves is what it had done to the files. So a kill comes before every line
that finds them in another state than the line before it did; before the others it would only be the
same again. A stride above 1 leaves out some of the states. The program forks instead of starting
anew, so it must not have threads.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fs.tricks import become_poor

from clawkit.fs.journal import recover
from clawkit.fs.protected_files import Protection
from clawkit.fs.protocols import Change
from clawkit.fs.roots import Roots
from clawkit.fs.transaction import Committer

State = dict[str, str]
IDLE = f"{__file__.removesuffix('.py')}_idle.sh"
TraceFunction = Callable[[FrameType, str, object], Any]
MODULES = ("stage.py", "step.py", "journal.py")
"""A kill comes just before a line of these."""


class Ground:
    """A workspace, and a change of it."""

    def __init__(self, base: Path, changes: list[Change]) -> None:
        self.ws = base / "ws"
        self.journals = base / "journals"
        self._saved = base / "saved"
        self._changes = changes

    def build(self) -> None:
        """Create the initial files."""
        shutil.rmtree(self.ws, ignore_errors=True)
        if self._saved.exists():
            shutil.copytree(self._saved, self.ws)
        else:
            for change in self._changes:
                if not change.path.startswith("new"):
                    file = self.ws / change.path
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text("old")
            shutil.copytree(self.ws, self._saved)

    def state(self) -> State:
        return {
            str(path.relative_to(self.ws)): "/" if path.is_dir() else path.read_text()
            for path in sorted(self.ws.rglob("*"))
        }

    def commit(self) -> None:
        Committer(
            Roots(str(self.ws)),
            protection=Protection(),
            ask=True,
            hard_links=False,
            journals=str(self.journals),
        ).commit(self._changes, frozenset())

    def watchers(self) -> list[int]:
        """The watcher processes of a change."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                line = Path("/proc", pid, "cmdline").read_bytes()
            except OSError:
                continue
            if b"-c" in line and os.fsencode(self.journals) in line:
                found.append(int(pid))
        return found

    def wait(self) -> None:
        """Until nobody is at it any more: whom a killed program leaves behind becomes a child."""
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)

    def seen(self) -> object:
        """All that a killed program leaves: files, directories, journals, and the watcher."""
        found: dict[str, object] = {"watchers": _children()}
        for top in (self.ws, self.journals):
            for folder, _, names in os.walk(top):
                found[folder] = _stamps(folder)
                for name in names:
                    file = os.path.join(folder, name)
                    # Times have a grain: what is written twice in a moment has only one.
                    found[file] = (_stamps(file), Path(file).read_bytes())
        return found

    def left(self) -> list[str]:
        """What should not be there."""
        names = [name for name in self.state() if ".clawkit-" in name]
        journals = [file for file in self.journals.iterdir() if len(file.read_text()) > 2]
        return names + [f"{file.name}: {file.read_text()}" for file in journals]


def _stamps(path: str) -> tuple[int, ...]:
    info = os.lstat(path)
    times = (info.st_mtime_ns, info.st_ctime_ns)
    return (info.st_ino, info.st_mode, info.st_nlink, info.st_size, *times)


def _children() -> list[int]:
    tasks = Path("/proc/self/task").iterdir()
    return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]


def run(work: Callable[[], None], crash_at: int = 0, *, with_watcher: bool = False) -> bool:
    """Whether the work came to its end in a process that is killed before its nth line."""
    pid = os.fork()
    if pid == 0:
        if with_watcher:
            # It is killed before it does anything, so what waits in its place may be smaller.
            sys.executable = IDLE
        if crash_at:

            def crash(number: int) -> None:
                if number >= crash_at:
                    _die(with_watcher)

            _before_each_line(crash)
        work()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise RuntimeError("the work failed")
    return os.WIFEXITED(status)


def points(ground: Ground, work: Callable[[], None]) -> list[int]:
    """The lines of the work that find something done since the line before; and one after all."""
    reader, writer = os.pipe()
    if not os.fork():
        sys.executable = IDLE
        found, last = [0], ground.seen()

        def look(number: int) -> None:
            nonlocal last
            found[0] = number + 1
            if (state := ground.seen()) != last:
                found.append(number)
                last = state

        _before_each_line(look)
        work()
        sys.settrace(None)
        os.write(writer, json.dumps(found[1:] + found[:1]).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as told:
        found = json.loads(told.read())
    ground.wait()
    assert isinstance(found, list)
    return found


def _before_each_line(act: Callable[[int], None]) -> None:
    number = 0

    def trace(frame: FrameType, event: str, _argument: object) -> TraceFunction | None:
        nonlocal number
        if not frame.f_code.co_filename.endswith(MODULES):
            return None
        if event == "line":
            number += 1
            act(number)
        return trace

    sys.settrace(trace)


def _die(with_watcher: bool) -> None:
    if with_watcher:
        for pid in _children():
            os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def tell(ground: Ground, old: State, new: State, **facts: object) -> None:
    state = ground.state()
    ended = "old" if state == old else "new" if state == new else "half"
    line = {"ended": ended, "left": ground.left(), **facts}
    print(json.dumps(line | ({"state": state} if ended == "half" else {})), flush=True)


def outcomes(ground: Ground) -> tuple[State, State]:
    ground.build()
    old = ground.state()
    ground.commit()
    new = ground.state()
    recover(str(ground.journals))
    return old, new


def at_every_point(ground: Ground, stride: int) -> None:
    """The program is killed; its watcher settles it."""
    old, new = outcomes(ground)
    for point in points_of_commit(ground)[::-stride]:
        ground.build()
        run(ground.commit, point)
        ground.wait()
        tell(ground, old, new, point=point)
        # A journal without a watcher: it was killed before it could start one.
        recover(str(ground.journals))


def points_of_commit(ground: Ground) -> list[int]:
    ground.build()
    return points(ground, ground.commit)


def at_every_point_with_the_watcher(ground: Ground, stride: int) -> None:
    """Both processes are killed; the next one that opens the workspace recovers."""
    old, new = outcomes(ground)
    for point in points_of_commit(ground)[::-stride]:
        killed_with_the_watcher(ground, point)
        recover(str(ground.journals))
        tell(ground, old, new, point=point)


def killed_with_the_watcher(ground: Ground, point: int) -> None:
    ground.build()
    run(ground.commit, point, with_watcher=True)
    ground.wait()


def at_every_point_of_the_recovery(ground: Ground, stride: int) -> None:
    """Both processes and the recovering one are killed at every point; a third one recovers."""
    old, new = outcomes(ground)
    for point in points_of_commit(ground)[::-stride]:
        killed_with_the_watcher(ground, point)
        for again in points(ground, lambda: recover(str(ground.journals)))[::-stride]:
            killed_with_the_watcher(ground, point)
            run(lambda: recover(str(ground.journals)), again)
            recover(str(ground.journals))
            tell(ground, old, new, point=point, again=again)


def with_a_change_of_the_user(ground: Ground, stride: int) -> None:
    """Both are killed, and somebody changes a file before it is settled."""
    old, new = outcomes(ground)
    for point in points_of_commit(ground)[::-stride]:
        for name in ("a", "d/c", "new/e/w"):
            for how in ("in place", "replaced", "deleted"):
                killed_with_the_watcher(ground, point)
                file = ground.ws / name
                if not file.exists():
                    continue
                if how != "in place":
                    file.unlink()
                if how != "deleted":
                    file.write_text("user's")
                recover(str(ground.journals))
                state = ground.state()
                mine = state.pop(name, "deleted")
                # What is made of the others, the directories of that file included.
                others = [
                    {key: value for key, value in each.items() if not name.startswith(key)}
                    for each in (state, old, new)
                ]
                print(
                    json.dumps(
                        {
                            "ended": "kept" if mine in ("user's", "deleted") else mine,
                            "others": others[0] in others[1:],
                            "left": ground.left(),
                            "facts": [name, how, point],
                        }
                    ),
                    flush=True,
                )


def at_any_time(ground: Ground, stride: int, with_watcher: bool) -> None:
    """Killed from outside, thirty times."""
    old, new = outcomes(ground)
    started = time.monotonic()
    ground.build()
    started = time.monotonic()
    run(ground.commit)
    takes_s = time.monotonic() - started
    chance = random.Random(7)
    for _ in range(0, 30, stride):
        ground.build()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            ground.commit()
            os._exit(0)
        delay_s = chance.uniform(0, takes_s * 1.1)
        time.sleep(delay_s)
        os.kill(pid, signal.SIGSTOP)
        if with_watcher:
            for watcher in ground.watchers():
                os.kill(watcher, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        ground.wait()
        recover(str(ground.journals))
        tell(ground, old, new, delay_ms=round(delay_s * 1000))


FEW = [
    Change("a", b"changed"),
    Change("d/c", b"changed"),
    Change("gone", None),
    Change("new/e/w", b"made"),
    Change("d/gone", None),
    Change("new-one", b"made", like="a"),
]
MANY = [
    *(Change(f"d{number % 10}/f{number}", b"changed") for number in range(150)),
    *(Change(f"new{number % 10}/f{number}", b"made") for number in range(100)),
    *(Change(f"d{number % 10}/gone{number}", None) for number in range(50)),
]
Kind = Callable[[Path, int], None]
KINDS: dict[str, Kind] = {
    "point": lambda base, stride: at_every_point(Ground(base, FEW), stride),
    "both": lambda base, stride: at_every_point_with_the_watcher(Ground(base, FEW), stride),
    "recovery": lambda base, stride: at_every_point_of_the_recovery(Ground(base, FEW), stride),
    "user": lambda base, stride: with_a_change_of_the_user(Ground(base, FEW), stride),
    "time": lambda base, stride: at_any_time(Ground(base, MANY), stride, with_watcher=False),
    "time-both": lambda base, stride: at_any_time(Ground(base, MANY), stride, with_watcher=True),
}


def adopt_orphans() -> None:
    """What children leave behind when they are killed is this program's from now on."""
    set_child_subreaper = 36
    if ctypes.CDLL(None, use_errno=True).prctl(set_child_subreaper, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "orphans cannot be adopted")


if __name__ == "__main__":
    kind, folder, stride_ = sys.argv[1:]
    adopt_orphans()
    if kind.startswith("poor-"):
        become_poor()
    KINDS[kind.removeprefix("poor-")](Path(folder), int(stride_))
