"""Packed answers are unpacked in bounded steps."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawkit.net.client import STEP, Inflater
from clawkit.net.route import NetError


def packed(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def unpack(coding: str, *pieces: bytes) -> bytes:
    inflater = Inflater(coding, "api.example:443")
    found = []
    for piece in pieces:
        inflater.feed(piece)
        while step := inflater.take():
            assert len(step) <= STEP
            found.append(step)
    inflater.finish()
    return b"".join(found)


TEXT = bytes(range(256)) * 40
PACKED = {
    "gzip": ("gzip", packed(TEXT)),
    "x-gzip": ("x-gzip", packed(TEXT)),
    "padded": ("gzip", packed(TEXT) + bytes(600)),
    "zlib": ("deflate", zlib.compress(TEXT)),
    "zlib with more": ("deflate", zlib.compress(TEXT) + b"\x1fmore"),
}


@given(st.sampled_from(sorted(PACKED)), st.data())
def test_any_split_gives_the_same_data(name: str, data: st.DataObject) -> None:
    coding, whole = PACKED[name]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert unpack(coding, *pieces) == TEXT


@pytest.mark.parametrize("pack", [packed, zlib.compress])
def test_a_bomb_goes_off_in_small_steps(pack: object) -> None:
    assert callable(pack)
    coding = "gzip" if pack is packed else "deflate"
    assert unpack(coding, pack(bytes(5_000_000))) == bytes(5_000_000)


def test_what_was_flushed_can_be_read_before_the_end() -> None:
    packer = zlib.compressobj(wbits=31)
    inflater = Inflater("gzip", "api.example:443")
    inflater.feed(packer.compress(b"data: a\n\n") + packer.flush(zlib.Z_SYNC_FLUSH))
    assert inflater.take() == b"data: a\n\n"
    assert inflater.take() == b""


def test_what_comes_after_the_end_is_not_kept() -> None:
    inflater = Inflater("gzip", "api.example:443")
    inflater.feed(packed(b"all"))
    assert inflater.take() == b"all"
    tracemalloc.start()
    try:
        for _ in range(64):
            inflater.feed(bytes(STEP))
            assert inflater.take() == b""
        assert tracemalloc.get_traced_memory()[0] < STEP
    finally:
        tracemalloc.stop()
    inflater.finish()


def test_an_empty_body_is_whole() -> None:
    assert unpack("gzip") == b""
    assert unpack("deflate") == b""


def test_damaged_and_cut_data_is_an_error(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("gzip", b"this is not packed", "protocol"),
        ("gzip", packed(TEXT)[:-8] + b"12345678", "protocol"),
        ("deflate", b"\xff\xff\xff\xff", "protocol"),
        ("gzip", packed(TEXT)[:-1], "closed"),
        ("deflate", zlib.compress(TEXT)[:-1], "closed"),
        ("deflate", b"\x78", "closed"),
    ]
    for coding, data, kind in cases:
        with subtests.test(coding=coding, data=data, kind=kind):
            with pytest.raises(
                NetError, match=r"^api.example:443 sent compressed data that"
            ) as caught:
                unpack(coding, data)
            assert caught.value.kind == kind


def test_other_ways_of_packing_are_an_error(subtests: pytest.Subtests) -> None:
    cases: list[Any] = ["br", "zstd", "gzip, gzip", "\x1b[31m", "a" * 1000]
    for coding in cases:
        with subtests.test(coding=coding):
            with pytest.raises(
                NetError, match="a content encoding that was not requested"
            ) as caught:
                Inflater(coding, "api.example:443")
            assert caught.value.kind == "protocol"
            assert len(str(caught.value)) < 100
            assert str(caught.value).isprintable()
