"""Keeps one interpreter for clawkit: hands it code, collects its output, says what became of it.

A program of its own, started by path where commands run (`python3 -I -u`), with nothing but the
standard library of whatever Python 3.9 or newer is there. Requests come as JSON lines on standard
input, answers go as JSON lines to standard output. The code runs in a second process, whose output
are pipes that are read here: what it prints can never be taken for an answer, and cannot make this
process larger. Code that attacks this process can at worst forge its own answers.
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
"""Bytes of what is printed in one call that are kept: the first and the last."""
MAX_TEXT = 100_000
"""Characters of a value or a traceback."""
MAX_ANSWER = 12 * 1024 * 1024
"""Bytes that the interpreter may say about one call."""
MAX_DIRS, MAX_NAMES = 300, 5_000
"""Directories that are watched for new files, and names in all of them together."""
MAX_FILES, MAX_IMAGES = 50, 4
"""New files that are named, and images that are."""
NO_NODE = 120
"""Exit code when node is not installed."""
_IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_SKIPPED = frozenset(("node_modules", "__pycache__", "venv", "site-packages"))
_CHUNK = 256 * 1024
_PIPE = 1024 * 1024
_LOOK_MS = 200


class Kept:
    """The first and the last bytes of a stream that may have no end."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0

    def read(self) -> int:
        """Take in what is there now; 0 when there is nothing."""
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
        """All that came since the last time, and how many bytes in its middle are missing."""
        # What was written before the end of a call is in the pipe by now. Others may go on writing.
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


class Tree:
    """The directory that code runs in: which files are new, and which images were changed."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._skipped: set[str] = set()
        """Directories that had too many names."""
        self._files = self._look()

    def changes(self) -> tuple[list[str], list[str]]:
        """New files, and new or changed images, by their paths from here."""
        unseen, before = tuple(self._skipped), self._files
        self._skipped, self._files = set(), self._look()
        found = {
            path: stamp
            for path, stamp in self._files.items()
            if before.get(path, ()) != stamp and not path.startswith(unseen)
        }
        return [path for path in found if path not in before], [p for p in found if found[p]]

    def _look(self) -> dict[str, tuple[int, ...] | None]:
        """The files here and, for images, what changes with them."""
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
    """The process that runs the code. It reads requests from 3 and answers on 4."""

    def __init__(self, argv: list[str]) -> None:
        requests, self._requests = os.pipe()
        self.answers, answers = os.pipe()
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        for fd in (out_end, err_end):
            # Room for programs that print while they let nothing else happen.
            with contextlib.suppress(OSError):
                fcntl.fcntl(fd, getattr(fcntl, "F_SETPIPE_SZ", 1031), _PIPE)
        theirs = (nothing, out_end, err_end, requests, answers)
        # High first, so that none of them is overwritten by another.
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
        self.out, self.err = Kept(out), Kept(err)
        self.exit: int | None = None
        self._said = bytearray()

    def send(self, line: bytes) -> None:
        try:
            while line:
                line = line[os.write(self._requests, line) :]
        except BrokenPipeError:
            self.check(kill=True)

    def hear(self) -> bytes | None:
        """An answer, if a whole one has come."""
        try:
            data = os.read(self.answers, _CHUNK)
        except BlockingIOError:
            return None
        self._said += data
        if not data or len(self._said) > MAX_ANSWER:
            # It cannot answer any more: gone, or as good as that.
            self.check(kill=True)
            return None
        line, newline, rest = self._said.partition(b"\n")
        if not newline:
            return None
        self._said = rest
        return bytes(line)

    def check(self, *, kill: bool = False) -> None:
        """Note its end; a negative code is a signal."""
        if self.exit is None:
            if kill:
                # One that is about to end by itself has a reason worth telling.
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
    from shutil import which  # takes longer to import than all the rest

    node = which("node")
    if node is None:
        sys.exit(NO_NODE)
    return [os.path.abspath(node), os.path.join(here, "node_child.cjs")]


def answer(number: int, worker: Worker, tree: Tree, line: bytes) -> None:
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
    """Of limited length, and without halves of characters."""
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


def serve(worker: Worker, tree: Tree) -> None:
    """Until there are no more requests, or the interpreter is gone."""
    poll = select.poll()
    for fd in (0, worker.out.fd, worker.err.fd, worker.answers):
        poll.register(fd, select.POLLIN)
    # The first answer only says that it is there.
    asked, number = bytearray(), 0
    while True:
        ready = {fd for fd, _ in poll.poll(None if number < 0 else _LOOK_MS)}
        for stream in (worker.out, worker.err):
            if stream.fd in ready and not stream.read():
                poll.unregister(stream.fd)
        line = worker.hear() if worker.answers in ready else None
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
    # An interrupt is for the code.
    signal.signal(signal.SIGINT, lambda *_: None)
    serve(Worker(find_program(sys.argv[1])), Tree(os.getcwd()))


if __name__ == "__main__":
    main()
