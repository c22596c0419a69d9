"""A program that has changes of several files killed, at every point and at any time, and looks at
what is left. It prints one JSON line per attempt.

    python -m tests.fs.crashes KIND FOLDER STRIDE

A stride of 1 tries every line that a kill can come before. The program forks instead of starting
anew, so it must not have threads.
"""

from __future__ import annotations

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

from clawkit.fs.base import Change
from clawkit.fs.commit import Committer
from clawkit.fs.journal import recover
from clawkit.fs.protect import Protection
from clawkit.fs.reach import Reach

State = dict[str, str]
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

    def build(self) -> State:
        """As it was at first."""
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
        return self.state()

    def state(self) -> State:
        return {
            str(path.relative_to(self.ws)): "/" if path.is_dir() else path.read_text()
            for path in sorted(self.ws.rglob("*"))
        }

    def commit(self) -> None:
        Committer(
            Reach(str(self.ws)),
            protection=Protection(),
            ask=True,
            hard_links=False,
            journals=str(self.journals),
        ).commit(self._changes, frozenset())

    def watchers(self) -> list[int]:
        """The programs that watch over a change here."""
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
        """Until nobody is at it any more."""
        deadline = time.monotonic() + 20
        while self.watchers():
            if time.monotonic() > deadline:
                raise TimeoutError("the watcher does not end")
            time.sleep(0.003)

    def left(self) -> list[str]:
        """What should not be there."""
        names = [name for name in self.state() if ".clawkit-" in name]
        journals = [file for file in self.journals.iterdir() if len(file.read_text()) > 2]
        return names + [f"{file.name}: {file.read_text()}" for file in journals]


def run(work: Callable[[], None], crash_at: int = 0, *, with_watcher: bool = False) -> bool:
    """Whether the work came to its end in a process that is killed before its nth line."""
    pid = os.fork()
    if pid == 0:
        if crash_at:
            _arm(crash_at, with_watcher)
        work()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise RuntimeError("the work failed")
    return os.WIFEXITED(status)


def _arm(count: int, with_watcher: bool) -> None:
    left = count

    def trace(frame: FrameType, event: str, _argument: object) -> TraceFunction | None:
        nonlocal left
        if not frame.f_code.co_filename.endswith(MODULES):
            return None
        left -= event == "line"
        if left <= 0:
            _die(with_watcher)
        return trace

    sys.settrace(trace)


def _die(with_watcher: bool) -> None:
    if with_watcher:
        tasks = Path("/proc/self/task").iterdir()
        for pid in [pid for task in tasks for pid in (task / "children").read_text().split()]:
            os.kill(int(pid), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def tell(ground: Ground, old: State, new: State, **facts: object) -> None:
    state = ground.state()
    ended = "old" if state == old else "new" if state == new else "half"
    line = {"ended": ended, "left": ground.left(), **facts}
    print(json.dumps(line | ({"state": state} if ended == "half" else {})), flush=True)


def outcomes(ground: Ground) -> tuple[State, State]:
    old = ground.build()
    ground.commit()
    new = ground.state()
    recover(str(ground.journals))
    return old, new


def at_every_point(ground: Ground, stride: int) -> None:
    """The program is killed; its watcher settles it."""
    old, new = outcomes(ground)
    point, is_done = 0, False
    while not is_done:
        point += stride
        ground.build()
        is_done = run(ground.commit, point)
        ground.wait()
        tell(ground, old, new, point=point)
        # A journal without a watcher: it was killed before it could start one.
        recover(str(ground.journals))


def at_every_point_with_the_watcher(ground: Ground, stride: int) -> None:
    """Both are killed; the next one who comes along settles it."""
    old, new = outcomes(ground)
    point, is_done = 0, False
    while not is_done:
        point += stride
        ground.build()
        is_done = run(ground.commit, point, with_watcher=True)
        ground.wait()
        recover(str(ground.journals))
        tell(ground, old, new, point=point)


def at_every_point_of_the_recovery(ground: Ground, stride: int) -> None:
    """Both are killed, and so is the one who settles it, at every point; a third one does."""
    old, new = outcomes(ground)
    point, is_done = 0, False
    while not is_done:
        point += 20 * stride
        again, is_recovered = 0, False
        while not is_recovered:
            again += 2 * stride
            ground.build()
            is_done = run(ground.commit, point, with_watcher=True)
            ground.wait()
            is_recovered = run(lambda: recover(str(ground.journals)), again)
            recover(str(ground.journals))
            tell(ground, old, new, point=point, again=again)


def with_a_change_of_the_user(ground: Ground, stride: int) -> None:
    """Both are killed, and somebody changes a file before it is settled."""
    old, new = outcomes(ground)
    for name in ("a", "d/c", "new/e/w"):
        for how in ("in place", "replaced", "deleted"):
            point, is_done = 0, False
            while not is_done:
                point += 3 * stride
                ground.build()
                is_done = run(ground.commit, point, with_watcher=True)
                ground.wait()
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


def at_any_time(ground: Ground, with_watcher: bool) -> None:
    """Killed from outside."""
    old, new = outcomes(ground)
    started = time.monotonic()
    ground.build()
    started = time.monotonic()
    run(ground.commit)
    takes_s = time.monotonic() - started
    chance = random.Random(7)
    for _ in range(30):
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
    "time": lambda base, _: at_any_time(Ground(base, MANY), with_watcher=False),
    "time-both": lambda base, _: at_any_time(Ground(base, MANY), with_watcher=True),
}


if __name__ == "__main__":
    kind, folder, stride_ = sys.argv[1:]
    if kind.startswith("poor-"):
        become_poor()
    KINDS[kind.removeprefix("poor-")](Path(folder), int(stride_))
