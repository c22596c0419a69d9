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
from collections.abc import AsyncIterator, Iterable
from datetime import date
from pathlib import Path
from typing import Any

from bench.figure import Figure
from clawkit.config.sections.plugins import MemorySearch
from clawkit.memory.files import NoteFiles
from clawkit.memory.service import LocalMemory

FILES, SECTIONS = 500, 20
QUERIES = 300
_SYLLABLES = re.findall(
    r"\w+", "ba ce di fo gu ha je ki lo mu na pe qui ro su ta ve wi bra cle dri"
)
_STOP = 100
"""So many of the most frequent words are not asked for: they are stop words."""


def measure() -> Iterable[Figure]:
    with tempfile.TemporaryDirectory(prefix="clawkit-bench-") as place:
        yield from asyncio.run(_speed(Path(place)))
    if file := os.environ.get("CLAWKIT_BENCH_LOCOMO"):
        with tempfile.TemporaryDirectory(prefix="clawkit-bench-") as place:
            yield from asyncio.run(_recall(Path(place), json.loads(Path(file).read_text())))


def _open(place: Path) -> LocalMemory:
    today = lambda: date(2026, 1, 1)  # noqa: E731
    files = NoteFiles(str(place / "work"))
    return LocalMemory(MemorySearch(), files, str(place / "home" / "memory.sqlite"), today=today)


async def _speed(place: Path) -> list[Figure]:
    chance = random.Random(7)
    words = _vocabulary(chance)
    folder = place / "work" / "memory"
    folder.mkdir(parents=True)
    for number in range(FILES):
        parts = (_section(chance, words) for _ in range(SECTIONS))
        (folder / f"note-{number}.md").write_text("\n".join(parts))
    memory = _open(place)
    try:
        start = time.perf_counter()
        status = await memory.index()
        indexed_s = time.perf_counter() - start
        times = []
        for _ in range(QUERIES):
            asked = chance.choices(words[0][_STOP:], words[1][_STOP:], k=4)
            query = f"what did we say about {' '.join(asked)}?"
            start = time.perf_counter()
            found = await memory.search(query)
            times.append((time.perf_counter() - start) * 1e3)
            assert found.hits, query
    finally:
        await memory.close()
    note = f"{status.chunks:,} passages in {FILES} files, {status.size_bytes / 1e6:.0f} MB"
    hundredths = statistics.quantiles(times, n=100)
    return [
        Figure("memory: indexing", indexed_s * 10_000 / status.chunks, "s for 10,000", 3, note),
        Figure("memory: search, median", statistics.median(times), "ms", 15, note),
        Figure("memory: search, 99th of 100", hundredths[98], "ms", 40),
    ]


def _vocabulary(chance: random.Random) -> tuple[list[str], list[float]]:
    """Words as frequent as in a language."""
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
    """Write each session, or each turn, as a note; returns where each turn is."""
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
