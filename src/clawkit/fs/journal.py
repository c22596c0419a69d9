"""Change several files atomically, even if the program is killed in the middle.

All new content is staged first, then everything is moved into place. A journal records the steps. A
small watcher process completes or rolls back the journal if this process dies; if the watcher is
killed too, the next run does so.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from clawkit.errors import ToolError
from clawkit.fs.roots import ChangeTarget, open_folder, remove_folders, version_of
from clawkit.fs.staged_file import JournalStep, dump_step, parse_step, to_root, to_text, write_all
from clawkit.store import lock_within, open_private, private_dir

_SUFFIX = ".patch"
_MAX_BYTES = 256 * 1024 * 1024
_MAX_AGE_S = 7 * 24 * 3600
"""After this time, directories that cannot be accessed are given up."""
_PATIENCE_S = 5.0
"""How long to wait for another process; starting a watcher takes time on a busy machine."""
_GONE = (errno.ENOENT, errno.ENOTDIR)
# The state is the first byte of a journal: changing it needs no disk space.
_PREPARE, _READY, _UNDO, _DONE = b"p", b"r", b"u", b"d"
_LOCALE = ("LANG", "LC_ALL", "LC_CTYPE")
"""Variables that determine how file names are encoded in the journal."""


@dataclass
class Journal:
    """A record of the changes in progress, in a file that is locked until they are done."""

    id: str
    file: str
    fd: int
    steps: list[JournalStep] = field(default_factory=list)
    made: list[tuple[str, str]] = field(default_factory=list)
    """Roots, and directories in them to be created."""
    state: bytes = _PREPARE

    @classmethod
    @contextmanager
    def begin(cls, folder: str) -> Iterator[Journal]:
        """A new journal; if the body fails, everything is rolled back. Raises OSError."""
        private_dir(folder)
        journal = cls._create(folder)
        watcher = _start_watcher(journal.file, journal.fd)
        try:
            yield journal
        except BaseException:
            if journal.state != _DONE:
                journal.undo()
            raise
        finally:
            if watcher is not None:
                watcher.kill()
                watcher.communicate()
            os.close(journal.fd)

    @classmethod
    def _create(cls, folder: str) -> Journal:
        while True:
            name = os.urandom(8).hex()
            file = os.path.join(folder, name + _SUFFIX)
            fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                lock_within(fd, file, _PATIENCE_S)
                os.write(fd, _PREPARE + b"\n")
                # Another process may have removed it, in `recover`, before it was locked.
                if os.fstat(fd).st_nlink:
                    journal, fd = cls(name, file, fd), -1
                    return journal
            finally:
                if fd >= 0:
                    with suppress(OSError):
                        os.unlink(file)
                    os.close(fd)

    def plan(self, target: ChangeTarget, *, delete: bool) -> JournalStep:
        """Record a step before its content is written, so that recovery finds the content."""
        version = version_of(target.info) if target.info else ""
        step = JournalStep(self.id, len(self.steps), target, version, delete)
        self.steps.append(step)
        self._write(dump_step(step))
        return step

    def plan_folder(self, root: str, folder: str) -> None:
        """Record a directory before it is created."""
        self.made.append((root, folder))
        self._write([root, folder])

    def carry_out(self) -> None:
        """Move everything into place. Once started, it is completed even if this process dies."""
        self._write(*map(dump_step, self.steps), len(self.steps))
        self._enter(_READY)
        self._apply()

    def settle(self) -> None:
        """Complete or roll back the changes of a process that has died."""
        with suppress(OSError, ToolError):
            if self.state == _DONE:
                self._remove(self._for_each(JournalStep.clean_up))
            elif self.state == _READY and self._is_begun():
                self._apply()
            else:
                self.undo()

    def undo(self) -> bool:
        """Roll everything back: files, staged content, created directories, the journal. If
        something cannot be accessed now, the journal is kept for later; returns False then."""
        with suppress(OSError):
            self._enter(_UNDO)
        is_done = self._for_each(JournalStep.undo)
        for root, made in reversed(self.made):
            remove_folders(root, [made])
        self._remove(is_done)
        return is_done

    def _apply(self) -> None:
        """Move everything into place; roll back if a step fails. Idempotent."""
        place = self.file
        try:
            for step in self.steps:
                place = step.target.place
                with open_folder(step.target) as folder:
                    step.do(folder)
            self._enter(_DONE)
        except (OSError, ToolError) as error:
            if isinstance(error, OSError):
                error.filename, error.filename2 = place, None
            if self.undo():
                raise
            raise ToolError(
                f"the files could not be changed ({error}), and not all of them could be restored "
                "yet; this will be retried before the next change"
            ) from error
        self._remove(self._for_each(JournalStep.clean_up))

    def _for_each(self, act: Callable[[JournalStep, int], None]) -> bool:
        """Returns whether `act` succeeded for every step whose directory still exists."""
        is_done = True
        for step in self.steps:
            try:
                with open_folder(step.target) as folder:
                    act(step, folder)
            except OSError as error:
                is_done &= error.errno in _GONE
            except ToolError:
                is_done = False
        return is_done

    def _remove(self, is_done: bool) -> None:
        with suppress(OSError):
            if is_done or time.time() - os.fstat(self.fd).st_mtime > _MAX_AGE_S:
                os.unlink(self.file)

    def _is_begun(self) -> bool:
        for step in self.steps:
            with suppress(OSError, ToolError), open_folder(step.target) as folder:
                if step.is_begun(folder):
                    return True
        return False

    def _enter(self, state: bytes) -> None:
        if state != self.state:
            os.pwrite(self.fd, state, 0)
            self.state = state

    def _write(self, *entries: object) -> None:
        os.lseek(self.fd, 0, os.SEEK_END)
        write_all(self.fd, "".join(f"{json.dumps(entry)}\n" for entry in entries).encode())


def recover(folder: str) -> None:
    """Settle the journals of killed processes. Waits for a while for those still in progress. A
    directory that other users can write to is ignored, and so are their files."""
    try:
        names = os.listdir(folder)
        private_dir(folder)
    except OSError:
        return
    until = time.monotonic() + _PATIENCE_S
    for name in names:
        if name.endswith(_SUFFIX):
            with suppress(OSError):
                _settle(os.path.join(folder, name), until)


def _settle(file: str, until: float) -> None:
    """Settle a journal. Raises OSError, also if another process still holds it after `until`."""
    fd = open_private(file, os.O_RDWR)
    try:
        lock_within(fd, file, until - time.monotonic())
        # One link: it was not settled in the meantime, and is not a file from elsewhere.
        if os.fstat(fd).st_nlink == 1:
            load(file, fd).settle()
    finally:
        os.close(fd)


def load(file: str, fd: int) -> Journal:
    """Read a journal. Damaged lines are skipped, and an incomplete journal can only be rolled back.
    Raises OSError."""
    if os.fstat(fd).st_size > _MAX_BYTES:
        raise OSError(errno.EFBIG, "is too large to be a journal", file)
    journal = Journal(os.path.basename(file).removesuffix(_SUFFIX), file, fd)
    steps: dict[int, JournalStep] = {}
    count = -1
    with open(fd, "rb", closefd=False) as lines:
        lines.seek(0)
        journal.state = lines.readline(2).rstrip()
        for line in lines:
            with suppress(ValueError, RecursionError):
                entry = json.loads(line)
                if isinstance(entry, int):
                    count = entry
                elif isinstance(entry, list) and len(entry) == 2:
                    journal.made.append((to_root(entry[0]), to_text(entry[1])))
                elif isinstance(entry, list):
                    step = parse_step(journal.id, entry)
                    steps[step.number] = step
    journal.steps = list(steps.values())
    if journal.state == _READY and count != len(steps):
        journal.state = _UNDO
    return journal


def _start_watcher(file: str, lock: int) -> subprocess.Popen[bytes] | None:
    """Start the process that settles a journal when this one dies, which closes its input. None if
    it cannot be started; then the next run settles the journal."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    code = f"import sys; sys.path.insert(0, {root!r}); from clawkit.fs.journal import main; main()"
    options = ("-I", "-S", "-X", f"utf8={sys.flags.utf8_mode}")
    try:
        return subprocess.Popen(
            [sys.executable or "", *options, "-c", code, file, str(lock)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(lock,),
            start_new_session=True,
            cwd="/",
            env={name: os.environ[name] for name in _LOCALE if name in os.environ},
        )
    except OSError:
        return None


def main() -> None:
    """The watcher. Its arguments are the journal and a descriptor of it, which holds the lock."""
    import signal

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    sys.stdin.buffer.read()
    file, fd = sys.argv[1], int(sys.argv[2])
    if os.fstat(fd).st_nlink:
        load(file, fd).settle()
