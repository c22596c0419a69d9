"""Keeping the wanted ones of any number of names."""

from __future__ import annotations

import os
import random
import tracemalloc
from pathlib import Path

import pytest
from tests.tables import table

from clawkit.fs.protocols import Find
from clawkit.fs.search.results import Collector
from clawkit.fs.search.ripgrep_globs import select


def collect(
    query: Find, names: list[str], *, place: Path | None = None, size: int = 0
) -> tuple[list[str], int]:
    selection = select([query.pattern], ("/ws",), typed=True)
    fd = os.open(place or "/", os.O_RDONLY)
    try:
        collector = Collector(query, selection.accepts, fd)
        data = b"".join(os.fsencode(f"./{name}") + b"\0" for name in names)
        for at in range(0, len(data), size or len(data)):
            if not collector.feed(data[at : at + (size or len(data))]):
                break
        return collector.first(lambda _name: True)
    finally:
        os.close(fd)


@table("size", [1, 2, 3, 7, 1_000])
def test_names_are_sorted_however_the_output_is_cut(size: int) -> None:
    names = ["b/x", "a", "./odd", "a\nb", "é", "z\udcff", "b-c"]
    assert collect(Find("*"), names, size=size) == (sorted(names), 7)


@pytest.mark.parametrize("limit", [1, 10, 5_000])
def test_the_first_names_in_order_are_kept_of_any_number(limit: int) -> None:
    names = [f"d{n % 97}/f{n}" for n in range(30_000)]
    random.Random(1).shuffle(names)
    assert collect(Find("*", limit=limit), names, size=50_000) == (sorted(names)[:limit], 30_000)


def test_very_many_names_take_little_memory() -> None:
    collector = Collector(Find("*", limit=2), spare=1_998)
    tracemalloc.start()
    try:
        for start in range(0, 200_000, 1_000):
            piece = range(200_000 - start, 200_000 - start - 1_000, -1)
            collector.feed(b"".join(b"./%08d\0" % n for n in piece))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000
    shown, total = collector.first(lambda _name: True)
    assert (shown, total) == (["00000001", "00000002"], 200_000)


def test_unsorted_names_end_the_search_early() -> None:
    collector = Collector(Find("*", sort="none", limit=1))
    fed = 0
    while collector.feed(b"./%d\0" % fed):
        fed += 1
    assert fed < 1_100
    assert collector.first(lambda _name: True)[0] == ["0"]


def test_the_newest_come_first(tmp_path: Path) -> None:
    for number, name in enumerate(("old", "new", "middle", "same")):
        (tmp_path / name).touch()
        seconds = (100, 300, 200, 200)[number]
        os.utime(tmp_path / name, (seconds, seconds))
    found, total = collect(
        Find("*", sort="time", limit=4), ["gone", "old", "new", "same", "middle"], place=tmp_path
    )
    assert (found, total) == (["new", "middle", "same", "old"], 5)


def test_only_the_newest_are_kept_of_many(tmp_path: Path) -> None:
    (tmp_path / "here").touch()
    names = [f"missing{n}" for n in range(20_000)]
    names.insert(10_000, "here")
    found, total = collect(Find("*", sort="time", limit=1), names, place=tmp_path)
    assert (found, total) == (["here"], 20_001)


def test_directories_are_those_on_the_way_to_files() -> None:
    names = ["a/b/c/f", "a/b/g", "a.txt", "d/f", "a/b/h"]
    found = collect(Find("*", kind="directory"), names, size=5)
    assert found == (["a", "a/b", "a/b/c", "d"], 4)
    assert collect(Find("b", kind="directory"), names) == (["a/b"], 1)
    assert collect(Find("a/*", kind="directory"), names) == (["a/b"], 1)


def test_what_is_not_admitted_makes_room_for_others() -> None:
    collector = Collector(Find("*", limit=2), spare=1)
    collector.feed(b"./a\0./b\0./c\0./d\0")
    assert collector.first(lambda name: name != "a") == (["b", "c"], 3)


def test_no_more_is_given_back_than_a_result_can_hold() -> None:
    collector = Collector(Find("*", max_chars=30))
    collector.feed(b"".join(b"./%03d\0" % n for n in range(500)))
    shown, total = collector.first(lambda _name: True)
    assert (len(shown), total) == (11, 500)
