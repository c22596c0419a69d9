"""The server name that a TLS client sends, read from its first bytes."""

from __future__ import annotations

import ssl
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawkit.net.host_rules import MAX_HELLO, Hello, read_hello


@pytest.fixture(autouse=True)
def _own_home() -> None:
    """Nothing here looks at a home."""


def real_hello(name: str | None) -> bytes:
    """What Python's TLS sends first."""
    context = ssl.create_default_context()
    context.check_hostname = False
    out = ssl.MemoryBIO()
    connection = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return out.read()


def vector(data: bytes, width: int) -> bytes:
    return len(data).to_bytes(width, "big") + data


def extension(kind: int, data: bytes) -> bytes:
    return struct.pack(">H", kind) + vector(data, 2)


def server_name(*names: bytes, kind: int = 0) -> bytes:
    return extension(0, vector(b"".join(bytes([kind]) + vector(name, 2) for name in names), 2))


def hello(*extensions: bytes, after: bytes = b"") -> bytes:
    body = b"\x03\x03" + bytes(32) + vector(b"", 1) + vector(b"\x13\x01", 2) + vector(b"\0", 1)
    return b"\x01" + vector(body + vector(b"".join(extensions), 2) + after, 3)


def records(message: bytes, size: int = 16_000) -> bytes:
    pieces = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(b"\x16\x03\x01" + vector(piece, 2) for piece in pieces)


@pytest.mark.parametrize("name", ["example.org", "a.very-long.sub.domain.example.org", None])
def test_the_name_in_a_real_hello_is_found(name: str | None) -> None:
    assert read_hello(real_hello(name)) == Hello("tls", name or "")


def test_a_hello_may_be_spread_over_records(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [16, 17, 100, 16_000]
    for size in cases:
        with subtests.test(size=size):
            message = real_hello("example.org")[5:]
            assert read_hello(records(message, size)) == Hello("tls", "example.org")


def test_a_hello_is_incomplete_until_its_last_byte() -> None:
    data = records(real_hello("example.org")[5:], 100)
    assert {read_hello(data[:end]) for end in range(len(data))} == {Hello("incomplete")}
    assert read_hello(data + b"more") == Hello("tls", "example.org")


def test_what_is_not_tls_is_seen_at_once(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        b"G",
        b"GET / HTTP/1.1\r\n\r\n",
        b"SSH-2.0-x\r\n",
        b"\x15\x03\x01",
        b"\x16\x02",
        b"\0",
    ]
    for data in cases:
        with subtests.test(data=data):
            assert read_hello(data) == Hello("other")


def test_an_improper_hello_is_an_error(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        records(hello(server_name(b"a.example"), server_name(b"b.example"))),
        records(hello(server_name(b"a.example", b"b.example"))),
        records(hello(server_name(b""))),
        records(hello(server_name())),
        records(hello(server_name(b"a.example", kind=1))),
        records(hello(extension(0, b""))),
        records(hello(extension(0, vector(b"\0" + vector(b"a.example", 2), 2) + b"x"))),
        records(hello(extension(0, b"\0\x0c\0\0\x20a.example"))),
        records(hello(b"\0\0\xff\xff")),
        records(hello(b"\0")),
        records(hello(after=b"x")),
        records(b"\x01" + vector(b"\x03\x03", 3)),
        records(b"\x02" + vector(b"", 3)),
        records(b"\x01" + vector(bytes(100), 3)[:50]) + b"\x15\x03\x01\0\x02\x02\x28",
        records(b"\x01" + vector(bytes(100), 3)[:50]) + b"GET / HTTP/1.1",
        b"\x16\x03\x01\0\0",
        records(hello(server_name(b"a.example")), 1),
        records(hello(extension(21, bytes(20_000)))),
        b"\x16\x03\x01\xff\xff\x01" + bytes(MAX_HELLO),
    ]
    for data in cases:
        with subtests.test(data=data), pytest.raises(ValueError, match="TLS"):
            read_hello(data)


def test_extensions_around_the_name_do_not_matter() -> None:
    grease, outer = extension(0x0A0A, b""), extension(0xFE0D, b"\0" + bytes(60))
    data = records(hello(grease, outer, server_name(b"front.example"), grease))
    assert read_hello(data) == Hello("tls", "front.example")


@given(st.binary(max_size=200), st.binary(max_size=50), st.integers(0, 300))
def test_no_bytes_cause_another_error(tail: bytes, middle: bytes, cut: int) -> None:
    whole = records(hello(server_name(b"a.example")))
    for data in (tail, whole[:cut] + middle + whole[cut:], b"\x16\x03\x01" + tail):
        try:
            found = read_hello(data)
        except ValueError:
            continue
        assert found.state in ("incomplete", "other", "tls")
