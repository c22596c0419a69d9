"""Ranking, and past sessions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date
from pathlib import Path

import pytest
from tests.memory.test_service import memory, write_notes

from clawkit.errors import ToolAuthorizationError
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


BOTH = "{sources: ['memory', 'sessions']}"


class Hidden(Sessions):
    def __init__(self, *said: str) -> None:
        super().__init__()
        texts = enumerate(("User: zebra here", "User: quokka here", *said))
        self.said = {f"s{number}": text for number, text in texts}

    def may_see(self, id_: str) -> bool:
        return id_ in ("s0", "s1")

    def visible(self) -> Collection[str] | None:
        return ["s0", "s1"]


@pytest.mark.parametrize("corpus", ["memory", "sessions", "all"])
async def test_scores_do_not_tell_which_words_hidden_sessions_have(
    tmp_path: Path, corpus: Corpus
) -> None:
    filler = {f"memory/{number}.md": f"filler{number} words" for number in range(40)}
    write_notes(
        tmp_path / "work",
        {"memory/a.md": "zebra alpha", "memory/b.md": "quokka alpha", **filler},
    )
    found = []
    for said in ("nothing of", "merger zebra", "zebra zebra"):
        # All have the same length.
        async with memory(tmp_path, BOTH, Hidden(*[f"User: {said} interest"] * 8)) as service:
            await service.index(rebuild=True)
            hits = (await service.search("zebra quokka", corpus=corpus, min_score=0)).hits
            found.append([(hit.path, hit.score) for hit in hits])
    assert found[0] == found[1] == found[2]
    assert found[0]


async def test_a_hidden_match_of_a_rare_word_does_not_replace_visible_ones(tmp_path: Path) -> None:
    sections = "\n".join(f"# part {number}\n\ncommon {'pad ' * 350}\n" for number in range(550))
    write_notes(tmp_path / "work", {f"memory/{number}.md": sections for number in range(20)})
    async with memory(tmp_path, BOTH, Hidden("User: rarity")) as service:
        await service.index()
        assert (await service.status()).chunks > 10_000
        assert (await service.search("rarity common", corpus="all")).hits


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
