"""Vectors in the index, with sqlite-vec and without."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

from clawkit.config.sections.plugins import MemoryVector
from clawkit.memory.index import MemoryIndex
from clawkit.memory.vectors import VectorIndex, find_extension, pack

SIZE, COUNT = 64, 600


def cosine(one: list[float], other: list[float]) -> float:
    product = sum(a * b for a, b in zip(one, other, strict=True))
    return product / (math.hypot(*one) * math.hypot(*other))


@pytest.fixture
def filled(tmp_path: Path) -> tuple[MemoryIndex, list[list[float]]]:
    chance = random.Random(3)
    made = [[chance.gauss(0, 1) for _ in range(SIZE)] for _ in range(COUNT)]
    index = MemoryIndex(str(tmp_path / "home" / "index.sqlite"))
    fill(index, made)
    return index, made


def fill(index: MemoryIndex, made: list[list[float]]) -> None:
    rows = [
        (at + 1, 1, 1, 1, bytes([at >> 8, at & 255]), "", f"text {at}") for at in range(len(made))
    ]
    sql = "INSERT INTO chunk VALUES (?, ?, ?, ?, ?, ?, ?)"
    index.run(lambda db: list(db.executemany(sql, rows)), write=True)
    store = VectorIndex(index)
    waiting = store.waiting("one", 0, 10_000)
    assert [text for _, _, text in waiting[:2]] == ["text 0", "text 1"]
    by_hash = {key: pack(each) for (_, key, _), each in zip(waiting, made, strict=True)}
    store.put("one", by_hash)


def test_the_nearest_are_found_with_and_without_the_extension(
    filled: tuple[MemoryIndex, list[list[float]]], tmp_path: Path
) -> None:
    index, made = filled
    extension = find_extension(MemoryVector())
    assert extension
    stores = [VectorIndex(index, each) for each in (extension, "", str(tmp_path / "none.so"))]
    for number in range(10):
        asked = [value + 0.1 for value in made[number]]
        right = sorted(range(COUNT), key=lambda at: -cosine(asked, made[at]))[:5]
        for store in stores:
            found = store.nearest("one", pack(asked), "memory", 200)
            assert found[0][0] == number + 1
            assert abs(found[0][1] - cosine(asked, made[number])) < 0.02
            assert {at + 1 for at in right} <= {id_ for id_, _ in found}
            assert [near for _, near in found] == sorted((near for _, near in found), reverse=True)
    assert [bool(store.problem) for store in stores] == [False, False, True]
    assert "cannot be loaded" in stores[2].problem
    assert not stores[0].nearest("one", pack(made[0]), "sessions", 50)
    index.close()


def test_how_many_of_the_nearest_are_found(tmp_path: Path) -> None:
    """The candidates are chosen by signs: an approximation, here against all cosines."""
    chance = random.Random(5)
    size, count, top = 64, 1_500, 10
    centres = [[chance.gauss(0, 1) for _ in range(size)] for _ in range(30)]
    kinds = {
        "random": [[chance.gauss(0, 1) for _ in range(size)] for _ in range(count + 10)],
        "clusters": [
            [value + chance.gauss(0, 0.4) for value in chance.choice(centres)]
            for _ in range(count + 10)
        ],
    }
    for kind, made in kinds.items():
        index = MemoryIndex(str(tmp_path / kind / "index.sqlite"))
        fill(index, made[:count])
        for extension, least in ((find_extension(MemoryVector()), 0.9), ("", 0.85)):
            store, hits = VectorIndex(index, extension), 0
            for asked in made[count:]:
                right = sorted(range(count), key=lambda at: -cosine(asked, made[at]))[:top]
                found = store.nearest("one", pack(asked), "memory", 200)[:top]
                hits += len({at + 1 for at in right} & {id_ for id_, _ in found})
            assert hits / (10 * top) >= least, (kind, extension)
        index.close()


def test_vectors_of_another_space_or_length_are_never_compared(
    filled: tuple[MemoryIndex, list[list[float]]],
) -> None:
    index, made = filled
    store = VectorIndex(index)
    assert not store.nearest("two", pack(made[0]), "memory", 10)
    assert not store.nearest("one", pack(made[0][:-1]), "memory", 10)
    assert (store.count("one"), store.count("two")) == (COUNT, 0)
    assert not store.waiting("one", 0, 10_000)
    assert len(store.waiting("two", 0, 10_000)) == COUNT
    # The vectors of one space stay while those of another are made.
    store.put("two", {b"\0\0": pack(made[1])})
    assert len(store.waiting("two", 0, 10_000)) == COUNT - 1
    ((id_, near),) = store.nearest("two", pack(made[1]), "memory", 10)
    assert (id_, round(near, 6)) == (1, 1)
    id_, near = store.nearest("one", pack(made[0]), "memory", 10)[0]
    assert (id_, round(near, 6)) == (1, 1)
    # The same model, which now makes vectors of another length.
    store.put("one", {b"\0\1": pack(made[0][:-1])})
    assert (store.count("one"), store.count("two")) == (1, 1)
    assert not store.nearest("one", pack(made[0]), "memory", 10)
    index.close()


def test_passages_with_the_same_text_share_a_vector(
    filled: tuple[MemoryIndex, list[list[float]]],
) -> None:
    index, made = filled
    sql = "INSERT INTO chunk VALUES (?, 2, 1, 1, ?, '', 'text 0')"
    index.run(lambda db: db.execute(sql, (5_000, b"\0\0")), write=True)
    store = VectorIndex(index, find_extension(MemoryVector()))
    assert not store.waiting("one", 0, 10_000)
    found = store.nearest("one", pack(made[0]), "memory", 2)
    assert [id_ for id_, _ in found] == [1, 5_000]
    index.close()


def test_vectors_that_are_not_in_use_are_a_bounded_cache(
    filled: tuple[MemoryIndex, list[list[float]]],
) -> None:
    index, made = filled

    def stored() -> object:
        return index.run(lambda db: db.execute("SELECT count(*) FROM vector").get)

    index.run(lambda db: db.execute("DELETE FROM chunk WHERE id > 10"), write=True)
    for entries, left in ((COUNT, COUNT), (100, 110), (0, 10)):
        assert not VectorIndex(index, cache_entries=entries).waiting("one", 0, 10)
        assert stored() == left
    # Those in use stay, also if there are more of them than the cache holds.
    assert VectorIndex(index).count("one") == 10
    # Of a space that is not in use, all is cache.
    VectorIndex(index).put("two", {bytes([0, at]): pack(made[at]) for at in range(10)})
    assert not VectorIndex(index, cache_entries=5).waiting("two", 0, 10)
    assert stored() == 10
    index.close()


def test_another_process_removes_vectors_while_they_are_compared(
    filled: tuple[MemoryIndex, list[list[float]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    index, made = filled
    other, look = MemoryIndex(index.path), VectorIndex._alike

    def look_and_lose(*args: Any) -> dict[int, int]:
        found = look(*args)
        other.run(lambda db: db.execute("DELETE FROM vector"), write=True)
        sql = "INSERT INTO vector (id, space, hash, data) VALUES (1, x'00', x'00', x'01')"
        other.run(lambda db: db.execute(sql), write=True)
        return found

    monkeypatch.setattr(VectorIndex, "_alike", look_and_lose)
    store = VectorIndex(index, find_extension(MemoryVector()))
    assert [id_ for id_, _ in store.nearest("one", pack(made[0]), "memory", 1)] == [1]
    # The next search sees the change.
    assert store.nearest("one", pack(made[0]), "memory", 1) == []
    other.close()
    index.close()


def test_where_the_extension_is(tmp_path: Path) -> None:
    assert find_extension(MemoryVector(enabled=False)) == ""
    given = str(tmp_path / "vec0.so")
    assert find_extension(MemoryVector(extension_path=given)) == given
    assert pack([0.0, 0.0]) == b"\0\0"
