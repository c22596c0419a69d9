"""Keeps one interpreter for clawkit: sends it code, collects its output, and reports the result.

A standalone program, started by its path where commands run (`python3 -I -u`), with only the
standard library of any Python 3.9 or newer. Requests are JSON lines on standard input, answers are
JSON lines on standard output. The code runs in a second process, whose output is read here through
pipes: what it prints cannot be taken for an answer, and the memory of this process stays bounded.
Code that attacks this process can at worst forge its own answers.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import select
import signal
import sys
import time

HEAD, TAIL = 30_000, 70_000
"""Bytes kept from the start and the end of one call's output."""
MAX_TEXT = 100_000
"""Characters of a value or a traceback."""
MAX_ANSWER = 12 * 1024 * 1024
"""Bytes of one answer of the interpreter."""
MAX_DIRS, MAX_NAMES = 300, 5_000
"""Maximum directories searched for new files, and maximum names in all of them."""
MAX_FILES, MAX_IMAGES = 50, 4
"""New files and images that are reported."""
NO_NODE = 120
"""Exit code if node is not installed."""
_IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_SKIPPED = frozenset(("node_modules", "__pycache__", "venv", "site-packages"))
_CHUNK = 256 * 1024
_PIPE = 1024 * 1024
_LOOK_MS = 200


class HeadTailBuffer:
    """The first and the last bytes of a stream, which may be endless."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0

    def read(self) -> int:
        """Read what is available; returns 0 if there is nothing."""
        try:
            data = os.read(self.fd, _CHUNK)
        except (BlockingIOError, InterruptedError):
            return 0
        self._size += len(data)
        room = HEAD - len(self._head)
        self._head += data[:room] if room > 0 else b""
        self._tail += data[max(room, 0) :]
        if len(self._tail) > TAIL + _CHUNK:
            del self._tail[:-TAIL]
        return len(data)

    def take(self) -> tuple[str, int]:
        """The text since the last call, and how many bytes are missing in its middle."""
        # Output of the call is in the pipe by now; background processes may keep writing.
        left = 2 * _PIPE
        while left > 0 and (count := self.read()):
            left -= count
        head, tail = bytes(self._head), bytes(self._tail[-TAIL:])
        missing = self._size - len(head) - len(tail)
        if missing:
            start, end = (part.decode("utf-8", "ignore") for part in (head, tail))
            text = f"{start}\n[… {missing:,} bytes left out here …]\n{end}"
        else:
            text = (head + tail).decode("utf-8", "replace")
        self._head, self._tail, self._size = bytearray(), bytearray(), 0
        return text, missing


class ChangedFiles:
    """Finds new files and changed images below the working directory."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._skipped: set[str] = set()
        """Directories with too many names."""
        self._files = self._look()

    def changes(self) -> tuple[list[str], list[str]]:
        """Relative paths of new files, and of new or changed images, since the last call."""
        unseen, before = tuple(self._skipped), self._files
        self._skipped, self._files = set(), self._look()
        found = {
            path: stamp
            for path, stamp in self._files.items()
            if before.get(path, ()) != stamp and not path.startswith(unseen)
        }
        return [path for path in found if path not in before], [p for p in found if found[p]]

    def _look(self) -> dict[str, tuple[int, ...] | None]:
        """The files and, for images, a stamp that differs after a change."""
        files: dict[str, tuple[int, ...] | None] = {}
        room, dirs, todo = MAX_NAMES, 0, [""]
        while todo:
            folder = todo.pop()
            names: list[os.DirEntry[str]] = []
            with contextlib.suppress(OSError), os.scandir(self._root + "/" + folder) as entries:
                names = list(itertools.islice(entries, room + 1))
            if dirs >= MAX_DIRS or len(names) > room:
                self._skipped.add(folder)
                continue
            room, dirs = room - len(names), dirs + 1
            for entry in names:
                path, name = folder + entry.name, entry.name
                if entry.is_file(follow_symlinks=False):
                    files[path] = _stamp(entry) if name.lower().endswith(_IMAGES) else None
                elif entry.is_dir(follow_symlinks=False) and name not in _SKIPPED:
                    todo += [] if name.startswith(".") else [f"{path}/"]
        return files


def _stamp(entry: os.DirEntry[str]) -> tuple[int, ...]:
    with contextlib.suppress(OSError):
        now = entry.stat(follow_symlinks=False)
        return now.st_mtime_ns, now.st_size, now.st_ino
    return (0,)


class Worker:
    """The process that runs the code. It reads requests from descriptor 3 and answers on 4."""

    def __init__(self, argv: list[str]) -> None:
        requests, self._requests = os.pipe()
        self.answers, answers = os.pipe()
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        for fd in (out_end, err_end):
            # A large buffer, for code that prints while this process cannot read.
            with contextlib.suppress(OSError):
                fcntl.fcntl(fd, getattr(fcntl, "F_SETPIPE_SZ", 1031), _PIPE)
        theirs = (nothing, out_end, err_end, requests, answers)
        # Move them to high numbers first, so that dup2 does not overwrite one of them.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for fd in theirs]
        self.pid = os.posix_spawn(
            argv[0],
            argv,
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(high)],
            setsigdef=[signal.SIGINT],
        )
        for fd in (*theirs, *high):
            os.close(fd)
        os.set_blocking(self.answers, False)
        self.out, self.err = HeadTailBuffer(out), HeadTailBuffer(err)
        self.exit: int | None = None
        self._output = bytearray()

    def send(self, line: bytes) -> None:
        try:
            while line:
                line = line[os.write(self._requests, line) :]
        except BrokenPipeError:
            self.check(kill=True)

    def receive(self) -> bytes | None:
        """The next answer, if it is complete."""
        try:
            data = os.read(self.answers, _CHUNK)
        except BlockingIOError:
            return None
        self._output += data
        if not data or len(self._output) > MAX_ANSWER:
            # It can no longer answer.
            self.check(kill=True)
            return None
        line, newline, rest = self._output.partition(b"\n")
        if not newline:
            return None
        self._output = rest
        return bytes(line)

    def check(self, *, kill: bool = False) -> None:
        """Set `exit` if it has ended; a negative code is a signal. With `kill`, end it."""
        if self.exit is None:
            if kill:
                # If it is about to exit by itself, its own exit code is more informative.
                time.sleep(0.1)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if not pid and kill:
                os.kill(self.pid, signal.SIGKILL)
                pid, status = os.waitpid(self.pid, 0)
            if pid:
                self.exit = os.waitstatus_to_exitcode(status)


def find_program(language: str) -> list[str]:
    here = os.path.dirname(os.path.abspath(__file__))
    if language == "python":
        program = sys.executable or "/proc/self/exe"
        return [program, "-I", "-u", os.path.join(here, "python_child.py")]
    from shutil import which  # slower to import than everything else

    node = which("node")
    if node is None:
        sys.exit(NO_NODE)
    return [os.path.abspath(node), os.path.join(here, "node_child.cjs")]


def answer(number: int, worker: Worker, tree: ChangedFiles, line: bytes) -> None:
    said: dict[str, object] = {}
    with contextlib.suppress(ValueError, RecursionError):
        said = json.loads(line)
    (stdout, cut_out), (stderr, cut_err) = worker.out.take(), worker.err.take()
    files, images = tree.changes()
    say(
        {
            "id": number,
            "stdout": stdout,
            "stderr": stderr,
            "cut": cut_out + cut_err,
            "value": _text(said.get("value")),
            "traceback": _text(said.get("traceback")),
            "figures": said.get("figures") or [],
            "files": [_text(file) for file in files[:MAX_FILES]],
            "more_files": max(0, len(files) - MAX_FILES),
            "images": [_text(image) for image in images[:MAX_IMAGES]],
            "more_images": max(0, len(images) - MAX_IMAGES),
            "exit": worker.exit,
        }
    )


def _text(value: object) -> str | None:
    """Truncate a text and escape lone surrogates."""
    if value is None:
        return None
    text = str(value).encode("utf-8", "backslashreplace").decode()
    if len(text) > MAX_TEXT:
        missing = len(text) - MAX_TEXT
        middle = f"\n[… {missing:,} characters left out here …]\n"
        text = text[: MAX_TEXT * 7 // 10] + middle + text[-MAX_TEXT * 3 // 10 :]
    return text


def say(message: dict[str, object]) -> None:
    data = memoryview(json.dumps(message).encode() + b"\n")
    while data:
        data = data[os.write(1, data) :]


def serve(worker: Worker, tree: ChangedFiles) -> None:
    """Serve until there are no more requests, or the interpreter is gone."""
    poll = select.poll()
    for fd in (0, worker.out.fd, worker.err.fd, worker.answers):
        poll.register(fd, select.POLLIN)
    # The first answer only says that the worker is ready.
    asked, number = bytearray(), 0
    while True:
        ready = {fd for fd, _ in poll.poll(None if number < 0 else _LOOK_MS)}
        for stream in (worker.out, worker.err):
            if stream.fd in ready and not stream.read():
                poll.unregister(stream.fd)
        line = worker.receive() if worker.answers in ready else None
        if number >= 0 and not ready:
            worker.check()
        if worker.exit is not None:
            if number >= 0:
                answer(number, worker, tree, b"{}")
            return
        if line is not None and number >= 0:
            answer(number, worker, tree, line)
            number = -1
        if 0 in ready:
            data = os.read(0, _CHUNK)
            asked += data
            if not data:
                os.kill(worker.pid, signal.SIGKILL)
                return
        if number < 0 and b"\n" in asked:
            request, _, asked = asked.partition(b"\n")
            number = json.loads(request)["id"]
            worker.send(bytes(request) + b"\n")


def main() -> None:
    # Interrupts are for the worker.
    signal.signal(signal.SIGINT, lambda *_: None)
    serve(Worker(find_program(sys.argv[1])), ChangedFiles(os.getcwd()))


if __name__ == "__main__":
    main()
