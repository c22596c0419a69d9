"""Ranking, and past sessions."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from pathlib import Path

import pytest
from tests.memory.test_service import memory, write_notes

from clawkit.errors import ToolAuthorizationError
from clawkit.memory.embed import Embedder, Embedders
from clawkit.memory.index import MemoryIndex
from clawkit.memory.protocols import Corpus
from clawkit.memory.search import CANDIDATES, SNIPPET_CHARS, choose, cut_snippet, mix, recency


def test_scores_are_mixed_from_words_and_vectors() -> None:
    words, near = [(1, 8.0), (2, 4.0), (3, 0.0)], [(2, 0.9), (4, 0.7), (1, 0.5)]
    assert mix(words, []) == {1: 1.0, 2: 0.5, 3: 0.0}
    assert mix([], near) == {2: 0.9, 4: 0.7, 1: 0.5}
    assert mix([], [(1, 1.5), (2, -0.5)]) == {1: 1.0, 2: 0.0}
    mixed = mix(words, near)
    expected = {1: 0.7, 2: 0.65, 3: 0.0, 4: 0.15}
    assert {id_: round(score, 6) for id_, score in mixed.items()} == expected
    assert mix([(1, 2.0), (2, 2.0)], []) == {1: 1.0, 2: 1.0}
    assert mix([], []) == {}


def test_age_lowers_dated_notes_only() -> None:
    today = date(2026, 11, 18)
    cases = {
        "memory/2026-11-18.md": 1.0,
        "memory/2026-10-19.md": 0.875,
        "memory/2026-10-19-call.md": 0.875,
        "memory/1990-01-01.md": 0.75,
        "memory/2030-01-01.md": 1.0,
        "memory/2026-13-99.md": 1.0,
        "MEMORY.md": 1.0,
        "memory/2026-10-19/x.md": 1.0,
    }
    assert {path: round(recency(path, today), 3) for path in cases} == cases


def test_the_lowest_score_does_not_hide_words_that_match() -> None:
    scores = {1: 0.9, 2: 0.4, 3: 0.2, 4: 0.1}
    cases = [
        ((0.35, False), [1, 2, 3]),
        ((0.35, True), [1, 2]),
        ((0.95, True), [2, 3]),
        ((0.0, True), [1, 2, 3]),
    ]
    for (lowest, strict), expected in cases:
        assert choose(scores, {2, 3}, 3, lowest, strict=strict) == expected


def test_a_snippet_is_the_part_with_the_words() -> None:
    text = "\n".join(f"line {n} is about nothing" for n in range(60))
    text += "\nthe heron is here\n" + "\n".join("filling" for _ in range(60))
    found = cut_snippet(text, ["heron", "here"])
    assert "the heron is here" in found
    assert len(found) <= SNIPPET_CHARS + 2
    assert found.startswith("…")
    assert cut_snippet("short", ["x"]) == "short"
    assert cut_snippet("İ" * 2_000, ["heron"]).startswith("İ")
    assert cut_snippet("x" * 2_000, [])[:-1] == "x" * SNIPPET_CHARS


class Sessions:
    """The past sessions of an agent, of which one may not be seen."""

    said: Mapping[str, str] = {
        "s1": "User: where is the heron?\nAssistant: At the lake.",
        "s2": "User: a secret heron",
    }

    def __init__(self) -> None:
        self.reads: list[str] = []

    def stamps(self) -> Mapping[str, str]:
        return dict.fromkeys(self.said, "1")

    def read(self, id_: str) -> str:
        self.reads.append(id_)
        return self.said.get(id_, "")

    def may_see(self, id_: str) -> bool:
        return id_ != "s2"

    def visible(self) -> Collection[str] | None:
        return self.said.keys() - {"s2"}


async def test_past_sessions_are_found_if_that_is_configured(tmp_path: Path) -> None:
    write_notes(tmp_path / "work", {"MEMORY.md": "A heron lives here."})
    sessions = Sessions()
    for settings in ("{sources: ['memory', 'sessions']}", "{experimental: {sessionMemory: true}}"):
        async with memory(tmp_path, settings, sessions) as service:
            for corpus, paths in (
                ("memory", {"MEMORY.md"}),
                ("sessions", {"sessions/s1"}),
                ("all", {"MEMORY.md", "sessions/s1"}),
            ):
                hits = (await service.search("heron", corpus=corpus)).hits  # type: ignore[arg-type]
                assert {hit.path for hit in hits} == paths
                assert {hit.source for hit in hits} <= {"memory", "sessions"}
            assert (await service.get("sessions/s1", start_line=2)).text.endswith("lake.")
            assert not (await service.get("sessions/none")).exists
            with pytest.raises(ToolAuthorizationError, match="cannot be seen"):
                await service.get("sessions/s2")
    assert sorted(sessions.reads[:2]) == ["s1", "s2"]
    async with memory(tmp_path, "{}", sessions) as service:
        hits = (await service.search("heron", corpus="all")).hits
        assert [hit.path for hit in hits] == ["MEMORY.md"]
    async with memory(tmp_path, "{sources: ['sessions']}", sessions) as service:
        hits = (await service.search("heron", corpus="all")).hits
        assert [hit.path for hit in hits] == ["sessions/s1"]


async def test_hidden_sessions_take_no_places_of_what_can_be_seen(tmp_path: Path) -> None:
    write_notes(tmp_path / "work", {"MEMORY.md": f"A heron lives here. {'Long grass. ' * 50}"})

    class Many(Sessions):
        said: Mapping[str, str] = {
            **{f"s2-{number}": "heron heron heron" for number in range(5 * CANDIDATES)},
            "s1": f"User: where is the heron? {'Long grass. ' * 50}",
        }

        def may_see(self, id_: str) -> bool:
            return id_ == "s1"

        def visible(self) -> Collection[str] | None:
            return ["s1"]

    async with memory(tmp_path, "{sources: ['memory', 'sessions']}", Many()) as service:
        for corpus, paths in (
            ("sessions", {"sessions/s1"}),
            ("all", {"MEMORY.md", "sessions/s1"}),
        ):
            hits = (await service.search("heron", corpus=corpus)).hits  # type: ignore[arg-type]
            assert {hit.path for hit in hits} == paths


SOURCES: Mapping[Corpus, str] = {
    "memory": "{sources: ['memory']}",
    "sessions": "{sources: ['sessions']}",
    "all": "{sources: ['memory', 'sessions']}",
}


class Hidden(Sessions):
    """Some sessions that may be seen, and others that may not."""

    def __init__(self, seen: Sequence[str], hidden: Sequence[str]) -> None:
        super().__init__()
        self.seen = {f"seen{number}": text for number, text in enumerate(seen)}
        self.said = {**{f"h{number}": text for number, text in enumerate(hidden)}, **self.seen}

    def may_see(self, id_: str) -> bool:
        return id_ in self.seen

    def visible(self) -> Collection[str] | None:
        return self.seen


class Seen(Hidden):
    """All sessions may be seen."""

    def visible(self) -> Collection[str] | None:
        return None


def _write_texts(chance: random.Random, count: int, longest: int) -> list[str]:
    """Texts that differ in length, and in how often they have each word."""
    words = ["zebra", "quokka", "東京", "東", "lakes", "lake", *(f"filler{at}" for at in range(12))]
    weights = [chance.random() ** 4 for _ in words]
    return [
        " ".join(chance.choices(words, weights, k=chance.randint(1, longest))) for _ in range(count)
    ]


class Noise:
    """An embedder: the same random vector for the same text."""

    provider, model = "test", "noise"

    async def embed(self, texts: Sequence[str], _purpose: str) -> list[list[float]]:
        chances = map(random.Random, texts)
        return [[chance.gauss(0, 1) for _ in range(64)] for chance in chances]


@pytest.mark.parametrize("embedders", [(), (Noise(),)], ids=["keyword", "hybrid"])
@pytest.mark.parametrize("corpus", ["memory", "sessions", "all"])
async def test_scores_are_those_of_an_index_without_hidden_sessions(
    tmp_path: Path, corpus: Corpus, embedders: Sequence[Embedder]
) -> None:
    chance = random.Random(1)
    notes, seen = _write_texts(chance, 300, 80), _write_texts(chance, 300, 80)
    write_notes(tmp_path / "work", {f"memory/{at}.md": text for at, text in enumerate(notes)})

    async def search(settings: str, sessions: Sessions) -> list[list[tuple[str, float]]]:
        found = []
        async with memory(tmp_path, settings, sessions, embedders=Embedders(embedders)) as service:
            await service.index(rebuild=True)
            for query in ("zebra quokka", "東京 zebra", "lakes lake filler1 zebra"):
                hits = (
                    await service.search(query, max_results=100, min_score=0, corpus=corpus)
                ).hits
                assert len({hit.score for hit in hits}) > 5
                found.append([(hit.path, hit.score) for hit in hits])
        return found

    expected = await search(SOURCES[corpus], Seen(seen, ()))
    for count, longest in ((1, 1), (8, 3), (8, 300), (900, 80)):
        hidden = Hidden(seen, _write_texts(chance, count, longest))
        assert await search(SOURCES["all"], hidden) == expected


def _write_sections(text: str, count: int) -> str:
    """A passage for each section."""
    return "\n".join(f"# part {at}\n\n{text} {'pad ' * 350}\n" for at in range(count))


async def test_a_hidden_match_of_a_rare_word_does_not_replace_visible_ones(tmp_path: Path) -> None:
    sections = _write_sections("common", 550)
    write_notes(tmp_path / "work", {f"memory/{number}.md": sections for number in range(20)})
    async with memory(tmp_path, SOURCES["all"], Hidden((), ["User: rarity"])) as service:
        await service.index()
        assert (await service.status()).chunks > 10_000
        assert (await service.search("rarity common", corpus="all")).hits
        assert not (await service.search("rarity", corpus="sessions")).hits


async def test_a_word_that_is_frequent_only_in_hidden_sessions_counts(tmp_path: Path) -> None:
    filler = {f"memory/{number}.md": "filler" for number in range(9)}
    notes = {"memory/a.md": "zebra pond", "memory/b.md": "zebra lake", **filler}
    write_notes(tmp_path / "work", notes)
    hidden = Hidden((), [_write_sections("lake", 550)] * 20)
    async with memory(tmp_path, SOURCES["all"], hidden) as service:
        await service.index()
        assert (await service.status()).chunks > 10_000
        hits = (await service.search("zebra lake")).hits
        assert [(hit.path, hit.score) for hit in hits] == [("memory/b.md", 1), ("memory/a.md", 0)]


async def test_another_process_gives_the_number_of_a_passage_to_a_hidden_session(
    tmp_path: Path,
) -> None:
    write_notes(tmp_path / "work", {"MEMORY.md": "A heron lives here."})
    other = MemoryIndex(str(tmp_path / "home" / "index.sqlite"))
    swap = (
        "UPDATE chunk SET text = 'private', file = (SELECT id FROM file WHERE path = 'sessions/s2')"
        " WHERE file = (SELECT id FROM file WHERE path = 'sessions/s1')"
    )

    class Swapped(Sessions):
        def may_see(self, id_: str) -> bool:
            if id_ == "s1":
                other.run(lambda db: db.execute(swap), write=True)
            return super().may_see(id_)

    async with memory(tmp_path, "{sources: ['memory', 'sessions']}", Swapped()) as service:
        found = await service.search("heron", corpus="sessions")
        assert "private" not in str(found.hits)
    other.close()
