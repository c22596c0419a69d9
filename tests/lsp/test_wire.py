from __future__ import annotations

import pytest

from clawkit.process.jsonrpc import MAX_BODY, MAX_HEADER, HeaderFrames, ServerError


def frame(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def test_messages_are_cut_out_wherever_the_stream_is_cut() -> None:
    stream = frame(b"{}") + frame(b"") + frame(b'{"a": "\xc3\xbc"}')
    for size in range(1, len(stream) + 1):
        frames = HeaderFrames()
        parts = [stream[at : at + size] for at in range(0, len(stream), size)]
        bodies = [body for part in parts for body in frames.feed(part)]
        assert bodies == [b"{}", b"", b'{"a": "\xc3\xbc"}']


def test_other_headers_are_skipped() -> None:
    header = b"Content-Type: application/json\r\ncontent-length:  2 \r\n\r\n"
    assert list(HeaderFrames().feed(header + b"{}")) == [b"{}"]


def test_what_cannot_be_a_message_is_refused(subtests: pytest.Subtests) -> None:
    for stream in [
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: 1_0\r\n\r\n",
        b"Content-Length: \xc2\xb2\r\n\r\n",
        b"Content-Length: 99999999999999999999\r\n\r\n",
        b"Content-Length: %d\r\n\r\n" % (MAX_BODY + 1),
        b"Hello\r\n\r\n",
        b"\r\n\r\n",
        b"x" * MAX_HEADER,
    ]:
        with subtests.test(stream=stream), pytest.raises(ServerError):
            list(HeaderFrames().feed(stream))
