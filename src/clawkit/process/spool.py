"""The output of a command: short output in memory, long output in a file."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from clawkit.core.tasks import in_thread, unbroken
from clawkit.store import private_dir

MAX_FILE = 2 * 1024**3
MIN_FREE = 256 * 1024**2
"""Disk space that stays free; further output is only counted."""
_CHUNK = 1 << 20
_NEWS_S = 0.05
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
"""Errors after which nothing can be written. After other errors of splice, a plain write may
work."""


class Spool:
    """The output of one command. Grows by `add`, or by a thread that splices it from a pipe to the
    file."""

    def __init__(self, path: str, memory: int = 0) -> None:
        """`path` is for the file, created if there are more than `memory` bytes."""
        self._path = path
        self._room = memory
        self._fd = -1
        self._memory = bytearray()
        self._waiting: set[asyncio.Future[None]] = set()
        self._full = False
        self._has_no_file = False
        self._can_splice = hasattr(os, "splice")
        self._follows = False
        """Whether the command writes to the file itself."""
        self._size = 0
        self.dropped = 0
        self.path = ""
        self._last_at = float("-inf")

    @classmethod
    def of_file(cls, path: str) -> Spool:
        """For a command that writes to its file itself."""
        spool = cls(path)
        spool._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        spool.path = path
        spool._follows = True
        return spool

    @property
    def size(self) -> int:
        self._follow()
        return self._size

    @property
    def last_at(self) -> float:
        """When the last output arrived, on the monotonic clock; -inf if there is none."""
        self._follow()
        return self._last_at

    def _follow(self) -> None:
        if self._follows and self._fd >= 0:
            info = os.fstat(self._fd)
            if info.st_size != self._size:
                self._size = info.st_size
                self.note()
                self._last_at -= max(0.0, time.time() - info.st_mtime)

    def add(self, data: bytes) -> None:
        if self._fd < 0 and len(self._memory) + len(data) > self._room:
            self.to_file()
        if self._fd < 0:
            kept = data[: max(0, self._room - len(self._memory))]
            self._memory += kept
            self._size += len(kept)
            self.dropped += len(data) - len(kept)
        else:
            self._write(data, self._fd)
        self.note()

    def note(self) -> None:
        """Record that output has arrived, and wake all waiters."""
        self._last_at = time.monotonic()
        self.wake()

    def wake(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def changed(self, seconds: float | None) -> None:
        """Wait for new output, at most `seconds`."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await asyncio.wait({future}, timeout=seconds)
        finally:
            self._waiting.discard(future)

    def to_file(self) -> None:
        """Continue in the file. If it cannot be created, memory keeps the beginning."""
        if self._fd >= 0 or self._has_no_file:
            return
        fd = -1
        try:
            private_dir(os.path.dirname(self._path))
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(self._path, flags, 0o600)
            if os.pwrite(fd, self._memory, 0) < len(self._memory):
                raise OSError(errno.ENOSPC, "no room")
        except OSError:
            self._has_no_file = True
            if fd >= 0:
                os.close(fd)
                with suppress(OSError):
                    os.unlink(self._path)
            return
        self._fd, self.path = fd, self._path
        self._memory = bytearray()

    def settle(self) -> None:
        """After the end: move short output back to memory and remove the file."""
        if self._fd < 0 or self.size > self._room:
            return
        self._memory = bytearray(os.pread(self._fd, self.size, 0))
        self.remove()

    def remove(self) -> None:
        self.close()
        if self.path:
            with suppress(OSError):
                os.unlink(self.path)
            self.path = ""

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def tail(self, size: int) -> bytes:
        start = max(0, self.size - size)
        if self._fd < 0:
            return bytes(self._memory[start:])
        return os.pread(self._fd, self.size - start, start)

    async def read(self, start: int, size: int) -> bytes:
        size = max(0, min(size, self.size - start))
        if self._fd < 0:
            return bytes(self._memory[start : start + size])
        # The descriptor may be closed in the meantime and reused for another file.
        fd = os.dup(self._fd)
        try:
            data: bytes = await unbroken(in_thread(os.pread, fd, size, start))
        finally:
            os.close(fd)
        return data

    def _write(self, data: bytes, fd: int) -> None:
        room = 0 if self._full or fd < 0 else MAX_FILE - self._size
        rest = memoryview(data)
        try:
            while rest[:room]:
                written = os.pwrite(fd, rest[:room], self._size)
                self._size += written
                room -= written
                rest = rest[written:]
        except OSError:
            self._full = True
        self.dropped += len(rest)

    def mover(
        self, pipe: int, stop: threading.Event, notify: Callable[[], None]
    ) -> Callable[[], None]:
        """For a thread: a function that moves everything from a pipe to the file, until the end or
        `stop`, and calls `notify` at intervals."""
        self.to_file()
        # The file may be closed before the thread has ended.
        fd = os.dup(self._fd) if self._fd >= 0 else -1

        def move() -> None:
            waiting = select.poll()
            waiting.register(pipe, select.POLLIN)
            notified_at, is_notified = 0.0, True
            try:
                while not stop.is_set():
                    if waiting.poll(_NEWS_S * 1000):
                        if self._move_some(pipe, fd) == 0:
                            break
                        is_notified = False
                    now = time.monotonic()
                    if not is_notified and now - notified_at > _NEWS_S:
                        notified_at, is_notified = now, True
                        notify()
            finally:
                if fd >= 0:
                    os.close(fd)
            notify()

        return move

    def _move_some(self, pipe: int, fd: int) -> int:
        """The number of bytes moved; 0 at the end, -1 if none are available yet."""
        room = 0 if fd < 0 or self._full else min(_CHUNK, MAX_FILE - self._size)
        try:
            if room and self._can_splice:
                moved = os.splice(pipe, fd, room, offset_dst=self._size)
                self._size += moved
            else:
                data = os.read(pipe, room or _CHUNK)
                moved = len(data)
                self._write(data, fd)
        except BlockingIOError:
            return -1
        except OSError as error:
            self._full = self._full or error.errno in _FULL
            self._can_splice = self._can_splice and self._full
            return -1
        if room and self._size % (64 * _CHUNK) < moved:
            self._full = _free(self.path) < MIN_FREE
        return moved


def _free(path: str) -> int:
    try:
        disk = os.statvfs(os.path.dirname(path))
    except OSError:
        return 0
    return disk.f_bavail * disk.f_frsize
