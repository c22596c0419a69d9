"""Messages between clawkit and its spawn server."""

from __future__ import annotations

import subprocess
import sys

from tests.tables import table

from clawkit.process.spawn_client import server_args
from clawkit.process.spawn_server import Unframer, frame, pack

BODIES = [b"x" * 70_000, b"calm-otter\0end", b"", bytes(range(256))]


@table("size", [1, 2, 3, 5, 4096, 1 << 20])
def test_messages_arrive_however_they_are_cut(size: int) -> None:
    data = b"".join(map(frame, BODIES))
    unframer = Unframer()
    found: list[bytes] = []
    for start in range(0, len(data), size):
        found += unframer.feed(data[start : start + size])
    assert found == BODIES


def test_nothing_comes_out_of_half_a_message() -> None:
    data = frame(b"close")
    unframer = Unframer()
    assert list(unframer.feed(b"")) == list(unframer.feed(data[:-1])) == []
    assert list(unframer.feed(data[-1:])) == [b"close"]


def test_a_message_of_the_server_is_text_whatever_is_in_it() -> None:
    [body] = Unframer().feed(pack("calm-otter", "mounts", -9, 0.25, "ü\udcff\ud800\n"))
    fields = body.decode("utf-8", "surrogatepass").split("\0")
    assert fields == ["calm-otter", "mounts", "-9", "0.25", "ü\udcff\ud800\n"]


def test_the_server_imports_nothing_slow() -> None:
    _, _, option, code = server_args()
    code = f"{code.partition('; main(')[0]}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", option, code], capture_output=True, text=True, check=True
    )
    slow = {"asyncio", "dataclasses", "enum", "json", "re", "socket", "subprocess", "typing"}
    assert slow & set(done.stdout.split()) == set()
