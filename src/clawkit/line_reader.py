"""Asynchronous reading of lines from a pipe, a file or a terminal."""

from __future__ import annotations

import asyncio
import os

_CHUNK = 1 << 16


class LineReader:
    """Reads only while `next` is awaited, so that others can read from `fd` in between."""

    def __init__(self, fd: int, max_bytes: int) -> None:
        self._fd = fd
        self._max = max_bytes
        self._buffer = b""

    async def next(self) -> bytes:
        """The next line with its newline; empty at end of file. A line longer than `max_bytes` is
        split after `max_bytes + 1`."""
        # Split at newlines only: other line separators may occur inside JSON strings.
        parts, size = [self._buffer], len(self._buffer)
        while b"\n" not in parts[-1] and size <= self._max:
            more = await read_ready(self._fd, _CHUNK)
            if not more:
                break
            parts.append(more)
            size += len(more)
        data = b"".join(parts)
        end = min(data.find(b"\n") + 1 or len(data), self._max + 1)
        line, self._buffer = data[:end], data[end:]
        return line


async def read_ready(fd: int, max_bytes: int) -> bytes:
    """Wait until `fd` is readable and read from it, without a thread; empty at end of file."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(fd, ready.set)
    except PermissionError:
        pass  # a regular file is always readable
    else:
        try:
            await ready.wait()
        finally:
            loop.remove_reader(fd)
    try:
        return os.read(fd, max_bytes)
    except OSError:
        return b""  # the terminal is gone
