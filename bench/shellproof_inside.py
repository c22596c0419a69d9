"""Runs in the sandbox: commands one after another, each in a fresh copy of the same files.

It is passed to Python as text, because the sandbox contains nothing of the project.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import signal
import stat
import sys
from types import FrameType
from typing import Any

MOST = 256 * 1024
"""Maximum reported bytes of output and of changed files."""
LIMITS = (
    (resource.RLIMIT_NPROC, 100),
    (resource.RLIMIT_FSIZE, 1 << 20),
    (resource.RLIMIT_CPU, 60),
    (resource.RLIMIT_NOFILE, 64),
    (resource.RLIMIT_CORE, 0),
    (resource.RLIMIT_AS, 1 << 30),
)
_SUBREAPER = 36

Tree = dict[str, dict[str, str]]


def main() -> None:
    lines = iter(sys.stdin.buffer.readline, b"")
    setup = json.loads(next(lines))
    if os.geteuid() == 0:
        # A unique user id, so that the process limit applies to this sandbox alone.
        nobody = setup["nobody"]
        os.setgroups([])
        os.setresgid(nobody, nobody, nobody)
        os.setresuid(nobody, nobody, nobody)
    # Wait for processes that a command leaves behind.
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    for limit, value in LIMITS:
        resource.setrlimit(limit, (value, value))
    desk = Desk(setup["root"], setup["tree"], setup["kept"], setup["patience_s"])
    for number, line in enumerate(lines):
        job = json.loads(line)
        # Markers for the tracer; everything between them belongs to this command.
        mark(f"/mark/{number}")
        result = desk.run(job["text"], job["cwd"], job["env"])
        mark("/mark/end")
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


def mark(text: str) -> None:
    try:
        os.readlink(text)
    except OSError:
        return


class Desk:
    """The files of one sandbox."""

    def __init__(self, root: str, tree: Tree, kept: list[str], patience_s: float) -> None:
        self._root = root
        self._fixed = {root, *(f"{root}/{name}" for name in kept)}
        self._tree = tree
        self._patience_s = patience_s
        self._tops = sorted({name.split("/", 1)[0] for kind in tree.values() for name in kind})
        self._late = False
        self._output = os.open("/tmp", os.O_TMPFILE | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)
        signal.signal(signal.SIGALRM, self._stop)
        self._build()

    def run(self, text: str, cwd: str, env: dict[str, str]) -> dict[str, Any]:
        """Run a command to its end, and restore changed files."""
        os.ftruncate(self._output, 0)
        os.chdir(cwd)
        self._late = False
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, self._output, 1),
            (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0),
        ]
        argv = ["bash", "--noprofile", "--norc", "-c", text]
        signal.setitimer(signal.ITIMER_REAL, self._patience_s, 0.5)
        pid = os.posix_spawn("/bin/bash", argv, env, file_actions=actions)
        status = self._wait(pid)
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.chdir(self._root)
        size = os.fstat(self._output).st_size
        out = os.pread(self._output, min(size, MOST), 0).decode("utf-8", "surrogateescape")
        return {"status": status, "late": self._late, "out": out, "changed": self._tidy()}

    def _wait(self, first: int) -> int:
        status = -1
        while True:
            try:
                pid, code = os.waitpid(-1, 0)
            except ChildProcessError:
                return status
            if pid == first:
                status = os.waitstatus_to_exitcode(code)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._late = True
        os.kill(-1, signal.SIGKILL)

    def _build(self) -> None:
        build_tree(self._root, self._tree)
        self._before = self._look()

    def _look(self) -> dict[str, tuple[int, ...]]:
        """Everything that a command could change, with the facts that reveal a change."""
        found: dict[str, tuple[int, ...]] = {}
        waiting = [self._root, "/tmp"]
        while waiting:
            folder = waiting.pop()
            with os.scandir(folder) as entries:
                for entry in entries:
                    info = entry.stat(follow_symlinks=False)
                    is_folder = stat.S_ISDIR(info.st_mode)
                    when = 0 if is_folder else info.st_mtime_ns
                    found[entry.path] = (info.st_mode, is_folder or info.st_size, when)
                    if is_folder and entry.path not in self._fixed:
                        waiting.append(entry.path)
        return found

    def _tidy(self) -> dict[str, str]:
        """Restore the files. Returns what had changed: the content of each path before that."""
        now = self._look()
        if now == self._before:
            return {}
        paths = {path for path, _ in now.items() ^ self._before.items()}
        changed = {path: self._read(path) for path in sorted(paths)}
        for top in self._tops:
            shutil.rmtree(f"{self._root}/{top}", ignore_errors=True)
        for path in changed:
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            elif os.path.lexists(path):
                os.unlink(path)
        self._build()
        return changed

    @staticmethod
    def _read(path: str) -> str:
        if not os.path.isfile(path):
            return "<no file>"
        with open(path, "rb") as file:
            return file.read(MOST).decode("utf-8", "surrogateescape")


def build_tree(root: str, tree: dict[str, dict[str, str]]) -> None:
    """Create files, programs and links below a directory, with an old modification time."""
    for kind, entries in tree.items():
        for name, value in entries.items():
            path = os.path.join(root, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if kind == "files":
                with open(path, "w", encoding="utf-8") as file:
                    file.write(value)
            elif kind == "tools":
                shutil.copy(value, path)
            else:
                os.symlink(value, path)
            os.utime(path, (1e9, 1e9), follow_symlinks=False)


if __name__ == "__main__":
    main()
