"""Lines of a pipe or a file."""

from __future__ import annotations

import os
from pathlib import Path

from clawkit.line_reader import LineReader


async def read_all(reader: LineReader) -> list[bytes]:
    lines = []
    while line := await reader.next():
        lines.append(line)
    return lines


async def test_lines_of_a_pipe_keep_their_ends() -> None:
    source, target = os.pipe()
    try:
        os.write(target, "a\r\nb\u2028c\n\nlast".encode())
        os.close(target)
        found = await read_all(LineReader(source, 100))
    finally:
        os.close(source)
    assert found == [b"a\r\n", "b\u2028c\n".encode(), b"\n", b"last"]


async def test_lines_are_cut_one_byte_above_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"x" * 10 + b"\nend\n")
    fd = os.open(file, os.O_RDONLY)
    try:
        reader = LineReader(fd, 4)
        assert await reader.next() == b"x" * 5
        assert await reader.next() == b"x" * 5
    finally:
        os.close(fd)
