"""Events are the same in whatever pieces they come."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawkit.net.sse import EventStream, ServerEvent


def events_of(*pieces: bytes) -> list[tuple[str, str]]:
    stream = EventStream()
    found = [event for piece in pieces for event in stream.feed(piece)]
    return [(event.name, event.data) for event in found + stream.end()]


def test_a_stream_holds_these_events(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (b"", []),
        (b"data: a\n\n", [("", "a")]),
        (b"data:a\n\n", [("", "a")]),
        (b"data:  a \n\n", [("", " a ")]),
        (b"data\n\n", [("", "")]),
        (b"data:\n\n", [("", "")]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [("", "a"), ("", "b")]),
        (b"data: a\r\rdata: b\r\r", [("", "a"), ("", "b")]),
        (b"data: a\n\r\ndata: b\r\n\ndata: c\r\n\r", [("", "a"), ("", "b"), ("", "c")]),
        (b"data: a\r\ndata: b\n\n", [("", "a\nb")]),
        (b"data: a\ndata\ndata: b\n\n", [("", "a\n\nb")]),
        (b"event: x\ndata: a\n\n", [("x", "a")]),
        (b"data: a\nevent:x\n\n", [("x", "a")]),
        (b"event: x\nevent: y\ndata: a\n\n", [("y", "a")]),
        (b"event: x\nevent\ndata: a\n\n", [("", "a")]),
        (b"event: x\n\ndata: a\n\n", [("", "a")]),
        (b"event: x\ndata: a\n\ndata: b\n\n", [("x", "a"), ("", "b")]),
        (b"id: 1\nretry: 5\n\n", []),
        (b"id: 1\nretry: 5\ndata: a\nother: b\nnothing\n\n", [("", "a")]),
        (b": comment\n\n:\n\ndata: a\n: more\n\n", [("", "a")]),
        (b"data : a\nDATA: b\n data: c\n\n", []),
        (b"\n\n\n\ndata: a\n\n\n\n\ndata: b\n\n\n", [("", "a"), ("", "b")]),
        (b"\xef\xbb\xbfdata: a\n\n", [("", "a")]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
        (b"data: \xef\xbb\xbf\n\n", [("", "\ufeff")]),
        ("data: grüße 🎉\n\n".encode(), [("", "grüße 🎉")]),
        (b"data: \xff\xc3\n\ndata: \x80\n\n", [("", "\ufffd\ufffd"), ("", "\ufffd")]),
        (b"data: a\x00b\x0b\x0c\x85\n\n", [("", "a\x00b\x0b\x0c\ufffd")]),
        ("data: a\u2028b\x85c\n\n".encode(), [("", "a\u2028b\x85c")]),
        # The last event has no end.
        (b"data: a\n\ndata: b", [("", "a"), ("", "b")]),
        (b"data: a\n\ndata: b\n", [("", "a"), ("", "b")]),
        (b"data: a\n\nevent: b\n", [("", "a")]),
        (b"data: \xf0\x9f", [("", "\ufffd")]),
    ]
    for stream, events in cases:
        with subtests.test(stream=stream, events=events):
            assert events_of(stream) == events
            assert events_of(*(stream[at : at + 1] for at in range(len(stream)))) == events


def test_an_event_of_very_many_lines_is_put_together_once() -> None:
    assert events_of(b"data: x\n" * 1_000_000 + b"\n") == [("", "\n".join("x" * 1_000_000))]


def test_an_event_is_given_out_as_soon_as_it_is_complete() -> None:
    stream = EventStream()
    assert stream.feed(b"data: a\r") == []
    assert stream.feed(b"\n\r") == [ServerEvent("", "a")]
    assert stream.feed(b"\ndata: b\n") == []
    assert stream.feed(b"") == []
    assert stream.feed(b"\n") == [ServerEvent("", "b")]
    assert stream.end() == []


_LINE_ENDS = [b"\n", b"\r", b"\r\n", b"\n\n"]
_FIELDS = [b"data: ", b"data:", b"data", b"event: x", b":", b"id"]
_TEXT = [b" ", b"a", "ü🎉".encode(), b"\xff", b"\xc3", b"\xef\xbb\xbf", b"\x00"]
_PARTS = st.sampled_from([*_LINE_ENDS, *_FIELDS, *_TEXT])


@given(st.lists(_PARTS, max_size=40).map(b"".join), st.data())
def test_any_split_gives_the_same_events(stream: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert events_of(*pieces) == events_of(stream)


def test_an_event_that_is_too_large_is_an_error_also_while_it_comes() -> None:
    stream = EventStream(max_bytes=100)
    assert stream.feed(b"data: a\n\n" * 50) == [ServerEvent("", "a")] * 50
    assert stream.feed(b"data: " + b"a" * 94) == []
    with pytest.raises(ValueError, match="more than 100 bytes"):
        stream.feed(b"a")


def test_an_event_that_is_too_large_is_an_error_when_it_comes_whole() -> None:
    with pytest.raises(ValueError, match="more than 100 bytes"):
        EventStream(max_bytes=100).feed(b"data: a\n\ndata: " + b"a" * 95 + b"\n\n")
    with pytest.raises(ValueError, match="more than 100 bytes"):
        EventStream(max_bytes=100).feed(b"data: a\n\ndata: " + b"a" * 95)
