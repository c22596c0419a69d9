"""Messages between clawkit and its keeper."""

from __future__ import annotations

from tests.tables import table

from clawkit.process.spawn_server import Unpacker, pack

MESSAGES: list[list[object]] = [
    [
        "run",
        "calm-otter",
        ["/bin/bash", "-c", "x" * 70_000],
        {"A": "ü\udcff\ud800\0\n"},
        {"tty": ""},
    ],
    ["end", "calm-otter", 0.25],
    [],
    ["exit", {"code": -9, "left": [[1, "a"]], "oom": False}],
]


@table("size", [1, 2, 3, 5, 4096, 1 << 20])
def test_messages_arrive_however_they_are_cut(size: int) -> None:
    data = b"".join(pack(*message) for message in MESSAGES)
    unpacker = Unpacker()
    found: list[list[object]] = []
    for start in range(0, len(data), size):
        found += unpacker.feed(data[start : start + size])
    assert found == MESSAGES


def test_nothing_comes_out_of_half_a_message() -> None:
    data = pack("close")
    unpacker = Unpacker()
    assert list(unpacker.feed(b"")) == list(unpacker.feed(data[:-1])) == []
    assert list(unpacker.feed(data[-1:])) == [["close"]]
