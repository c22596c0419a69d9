"""Several files changed as if by one act, also when the program is killed meanwhile.

All new content is first written beside the files it is for, then everything is put in place. What
is being done is recorded in a journal. A small program watches over it: when this one dies before
it is done, that one completes it or rolls it back; the next run does so when even the watcher was
killed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from clawkit.errors import ToolError
from clawkit.fs.roots import Target, open_folder, remove_folders, version_of
from clawkit.fs.staged_file import Step, dump_step, parse_step, to_root, to_text
from clawkit.store import private_dir

_SUFFIX = ".patch"
_MAX_BYTES = 256 * 1024 * 1024
_MAX_AGE_S = 7 * 24 * 3600
"""After this time, directories that could not be reached are given up."""
_PATIENCE_S = 5.0
"""For a process that is still at work; a busy machine takes its time to start a watcher."""
_GONE = (errno.ENOENT, errno.ENOTDIR)
# What is to become of the steps, as the first byte of a journal: to change it takes no space.
_PREPARE, _READY, _UNDO, _DONE = b"p", b"r", b"u", b"d"
_LOCALE = ("LANG", "LC_ALL", "LC_CTYPE")
"""Decide how names are spelled in the journal."""


@dataclass
class Journal:
    """What is being done, in a file that is locked as long as it is being done."""

    id: str
    file: str
    fd: int
    steps: list[Step] = field(default_factory=list)
    made: list[tuple[str, str]] = field(default_factory=list)
    """Directories that were to be made, with their roots."""
    state: bytes = _PREPARE

    @classmethod
    @contextmanager
    def begin(cls, folder: str) -> Iterator[Journal]:
        """A new journal; when the body fails, everything is taken back. Raises OSError."""
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
                fcntl.flock(fd, fcntl.LOCK_EX)
                os.write(fd, _PREPARE + b"\n")
                # Another process that cleans up may have come before the lock.
                if os.fstat(fd).st_nlink:
                    journal, fd = cls(name, file, fd), -1
                    return journal
            finally:
                if fd >= 0:
                    with suppress(OSError):
                        os.unlink(file)
                    os.close(fd)

    def plan(self, target: Target, *, delete: bool) -> Step:
        """Note a step before its content is written, so that the content can be found again."""
        version = version_of(target.info) if target.info else ""
        step = Step(self.id, len(self.steps), target, version, delete)
        self.steps.append(step)
        self._write(dump_step(step))
        return step

    def plan_folder(self, root: str, folder: str) -> None:
        """Note a directory before it is made."""
        self.made.append((root, folder))
        self._write([root, folder])

    def carry_out(self) -> None:
        """Put everything in place. Once that has begun, it is finished also without this
        program."""
        self._write(*map(dump_step, self.steps), len(self.steps))
        self._enter(_READY)
        self._apply()

    def settle(self) -> None:
        """Finish, or roll back, what no process is doing any more."""
        with suppress(OSError, ToolError):
            if self.state == _DONE:
                self._remove(self._for_each(Step.clean_up))
            elif self.state == _READY and self._is_begun():
                self._apply()
            else:
                self.undo()

    def undo(self) -> bool:
        """Take everything back: contents that wait, directories that were made, the journal. What
        cannot be reached now keeps the journal, for later; False then."""
        with suppress(OSError):
            self._enter(_UNDO)
        is_done = self._for_each(Step.undo)
        for root, made in reversed(self.made):
            remove_folders(root, [made])
        self._remove(is_done)
        return is_done

    def _apply(self) -> None:
        """Put everything in place; take it all back when one cannot be. Can be repeated."""
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
                f"the files could not be changed ({error}), and not all of them could be put back "
                "yet; that is tried again before the next change"
            ) from error
        self._remove(self._for_each(Step.clean_up))

    def _for_each(self, act: Callable[[Step, int], None]) -> bool:
        """Whether it could be done for every step whose directory is still there."""
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
        """Whether something is in place already."""
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
        rest = memoryview("".join(f"{json.dumps(entry)}\n" for entry in entries).encode())
        while rest:
            rest = rest[os.write(self.fd, rest) :]


def recover(folder: str) -> None:
    """Settle what programs that were killed left behind. Who is still at it is waited for a while.

    A directory in which others could have put something is not looked at, nor are their files.
    """
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
    """Settle a journal. Raises OSError, also when another process is still at it then."""
    fd = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise
            time.sleep(0.005)
        info = os.fstat(fd)
        is_own = info.st_uid == os.geteuid() and not info.st_mode & 0o022
        # One name: it was not settled meanwhile, and is not a file from elsewhere.
        if is_own and stat.S_ISREG(info.st_mode) and info.st_nlink == 1:
            load(file, fd).settle()
    finally:
        os.close(fd)


def load(file: str, fd: int) -> Journal:
    """A journal as far as it was written. Damaged lines do not count, and a journal that does not
    have all of its steps can only be taken back. Raises OSError."""
    if os.fstat(fd).st_size > _MAX_BYTES:
        raise OSError(errno.EFBIG, "is too large to be a journal", file)
    journal = Journal(os.path.basename(file).removesuffix(_SUFFIX), file, fd)
    steps: dict[int, Step] = {}
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
    """The program that settles a journal when this one is gone: its input ends then. None when it
    cannot be started; the next run settles it then."""
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
    """The watcher. Its arguments are the journal and a handle for it, which holds the lock."""
    import signal

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    sys.stdin.buffer.read()
    file, fd = sys.argv[1], int(sys.argv[2])
    if os.fstat(fd).st_nlink:
        load(file, fd).settle()
