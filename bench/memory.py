"""Memory: indexing and searching 10,000 passages, and how often a question finds its answer.

The second part needs the data of LoCoMo (snap-research/locomo, `data/locomo10.json`), whose licence
forbids to distribute it here: `CLAWKIT_BENCH_LOCOMO` names the file.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import statistics
import tempfile
import time
import zlib
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from bench.figure import Figure
from clawkit.config.sections.plugins import MemorySearch
from clawkit.memory.embed import Embedder, Embedders
from clawkit.memory.files import NoteFiles
from clawkit.memory.service import LocalMemory
from clawkit.redact import Redactor

FILES, SECTIONS = 500, 20
QUERIES = 300
_SYLLABLES = re.findall(
    r"\w+", "ba ce di fo gu ha je ki lo mu na pe qui ro su ta ve wi bra cle dri"
)
DIMENSIONS = 256


class WordVectors:
    """An embedder without a model: each word has its own dimension."""

    provider, model = "bench", "words"

    async def embed(self, texts: Sequence[str], _purpose: str) -> list[list[float]]:
        return [self._embed(text) for text in texts]

    def _embed(self, text: str) -> list[float]:
        found = [0.0] * DIMENSIONS
        for word in text.split():
            at = zlib.crc32(word.encode())
            found[at % DIMENSIONS] += 1.0 if at & 1 << 31 else -1.0
        return found


def measure() -> Iterable[Figure]:
    with tempfile.TemporaryDirectory(prefix="clawkit-bench-") as place:
        yield from asyncio.run(_speed(Path(place)))
    if file := os.environ.get("CLAWKIT_BENCH_LOCOMO"):
        with tempfile.TemporaryDirectory(prefix="clawkit-bench-") as place:
            yield from asyncio.run(_recall(Path(place), json.loads(Path(file).read_text())))


def _open(place: Path, *embedders: Embedder) -> LocalMemory:
    files = NoteFiles(str(place / "work"), redact=Redactor().text)
    return LocalMemory(
        MemorySearch(),
        files,
        str(place / "home" / "memory.sqlite"),
        Embedders(embedders),
        today=lambda: date(2026, 1, 1),
    )


async def _speed(place: Path) -> list[Figure]:
    chance = random.Random(7)
    words = _vocabulary(chance)
    folder = place / "work" / "memory"
    folder.mkdir(parents=True)
    for number in range(FILES):
        parts = (_section(chance, words) for _ in range(SECTIONS))
        (folder / f"note-{number}.md").write_text("\n".join(parts))
    found = []
    for mode, doing, embedders in (
        ("keyword", "indexing", ()),
        ("hybrid", "embedding", (WordVectors(),)),
    ):
        memory = _open(place, *embedders)
        try:
            start = time.process_time()
            status = await memory.index()
            indexed_s = time.process_time() - start
            times = [await _time(memory, _query(chance, words), mode) for _ in range(QUERIES)]
        finally:
            await memory.close()
        note = f"{status.chunks:,} passages in {FILES} files, {status.size_bytes / 1e6:.0f} MB"
        took_s = indexed_s * 10_000 / status.chunks
        hundredths = statistics.quantiles(times, n=100)
        found += [
            Figure(f"memory: {doing}", took_s, "CPU s for 10,000", 3, note),
            Figure(f"memory: {mode} search, median", statistics.median(times), "CPU ms", 15),
            Figure(f"memory: {mode} search, 99th of 100", hundredths[98], "CPU ms", 40),
        ]
    return found


def _query(chance: random.Random, words: tuple[list[str], list[float]]) -> str:
    """A question with words as frequent as in the notes, from two words to a paragraph."""
    asked = chance.choices(*words, k=chance.choice((2, 3, 4, 6, 8, 12, 30)))
    return f"what did we say about {' '.join(asked)}?"


async def _time(memory: LocalMemory, query: str, mode: str) -> float:
    """Milliseconds of CPU time, because the machine is shared."""
    start = time.process_time()
    found = await memory.search(query)
    took_ms = (time.process_time() - start) * 1e3
    assert found.hits, query
    assert found.mode == mode, found.warning
    return took_ms


def _vocabulary(chance: random.Random) -> tuple[list[str], list[float]]:
    """Words with frequencies as in natural language."""
    words = list(
        {"".join(chance.choices(_SYLLABLES, k=chance.randint(2, 5))) for _ in range(20_000)}
    )
    return sorted(words), [1 / (rank + 10) for rank in range(len(words))]


def _section(chance: random.Random, words: tuple[list[str], list[float]]) -> str:
    """About as long as one passage."""
    text = chance.choices(*words, k=150)
    lines = [" ".join(text[at : at + 14]) for at in range(0, len(text), 14)]
    return "\n".join((f"## {text[0]} {text[1]}", *lines, ""))


async def _recall(place: Path, samples: list[dict[str, Any]]) -> list[Figure]:
    found = []
    for kind in ("passages", "turns"):
        ranks: list[int] = []
        for number, sample in enumerate(samples):
            where = _write(place / kind / str(number), sample["conversation"], kind == "turns")
            memory = _open(place / kind / str(number))
            try:
                async for rank in _ask(memory, sample["qa"], where):
                    ranks.append(rank)
            finally:
                await memory.close()
        hit = sum(0 < rank <= 6 for rank in ranks) / len(ranks)
        mrr = sum(1 / rank for rank in ranks if rank) / len(ranks)
        note = f"hit@6 {hit:.3f}, MRR {mrr:.3f}, {len(ranks)} questions"
        limit = 0.10 if kind == "passages" else 1
        found.append(Figure(f"memory: LoCoMo, {kind}", 1 - hit, "missed in 6", limit, note))
    return found


def _write(place: Path, conversation: dict[str, Any], by_turn: bool) -> dict[str, tuple[str, int]]:
    """Write each session, or each turn, as a note; returns the location of each turn."""
    folder = place / "work" / "memory"
    folder.mkdir(parents=True)
    where = {}
    for key, turns in conversation.items():
        if not re.fullmatch(r"session_\d+", key):
            continue
        lines = [f"# {conversation[f'{key}_date_time']}", ""]
        for number, turn in enumerate(turns):
            seen = f" [{turn['blip_caption']}]" if turn.get("blip_caption") else ""
            line = f"{turn['speaker']}: {turn['text']}{seen}".replace("\n", " ")
            name = f"{key}_{number}.md" if by_turn else f"{key}.md"
            lines = [*lines, line] if not by_turn else [line]
            where[turn["dia_id"]] = (f"memory/{name}", len(lines))
            if by_turn:
                (folder / name).write_text(line)
        if not by_turn:
            (folder / f"{key}.md").write_text("\n".join(lines))
    return where


async def _ask(
    memory: LocalMemory, questions: list[dict[str, Any]], where: dict[str, tuple[str, int]]
) -> AsyncIterator[int]:
    """The rank of the first passage with the evidence for each question that has one; 0 for none
    in ten. The questions of category 5 have no answer."""
    for each in questions:
        answers = [where[turn] for turn in each.get("evidence", ()) if turn in where]
        if not answers or each["category"] == 5:
            continue
        hits = (await memory.search(each["question"], max_results=10)).hits
        ranks = (
            rank
            for rank, hit in enumerate(hits, 1)
            for path, line in answers
            if hit.path == path and hit.start_line <= line <= hit.end_line
        )
        yield next(ranks, 0)
