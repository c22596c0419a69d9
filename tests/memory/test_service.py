"""The memory of an agent, as tools and commands use it."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from clawkit.config.load import loads
from clawkit.errors import ToolInputError
from clawkit.memory.files import NoteFiles
from clawkit.memory.index import PastSessions
from clawkit.memory.protocols import Memory
from clawkit.memory.service import LocalMemory, open_memory
from clawkit.memory.settings import settings_of

NOTES = {
    "MEMORY.md": "# Facts\n\nThe dentist is Dr. Okafor in Elm Street.\nRent is due on the 3rd.\n",
    "USER.md": "Prefers short answers. Lives in Lisbon.\n",
    "memory/projects.md": "# Projects\n\n## Harbour\nThe deployment runs on the host kestrel.\n",
    "memory/2026-11-01-vendor.md": "Vendor call: the contract is renewed until March.\n",
}
TODAY = date(2026, 11, 18)


def write_notes(workspace: Path, notes: Mapping[str, str] = NOTES) -> None:
    for name, text in notes.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(text)


@asynccontextmanager
async def memory(
    tmp_path: Path, settings: str = "{}", transcripts: PastSessions | None = None, **more: Any
) -> AsyncIterator[LocalMemory]:
    config = loads(f"{{memory: {{search: {settings}}}}}").config
    made = settings_of(config, "main")
    files = NoteFiles(str(tmp_path / "work"), made.extra_paths)
    path = str(tmp_path / "home" / "index.sqlite")
    given = {"transcripts": transcripts, "today": lambda: TODAY, **more}
    opened = LocalMemory(made, files, path, **given)
    try:
        yield opened
    finally:
        await opened.close()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    write_notes(tmp_path / "work")
    return tmp_path / "work"


async def test_a_question_finds_the_note_that_answers_it(tmp_path: Path, work: Path) -> None:
    cases = {
        "Who is my dentist?": "MEMORY.md",
        "where does the user live": "USER.md",
        "which host do deployments run on?": "memory/projects.md",
        "renewing the contract": "memory/2026-11-01-vendor.md",
    }
    async with memory(tmp_path) as service:
        typed: Memory = service
        for query, path in cases.items():
            found = await typed.search(query)
            assert found.hits[0].path == path, query
            assert (found.mode, found.provider, found.warning) == ("keyword", "", "")
        hit = (await typed.search("harbour kestrel")).hits[0]
        assert (hit.start_line, hit.end_line, hit.source) == (1, 4, "memory")
        assert "kestrel" in hit.snippet
        assert 0 <= hit.score <= 1


async def test_a_change_is_found_by_the_next_search(tmp_path: Path, work: Path) -> None:
    async with memory(tmp_path) as service:
        assert not (await service.search("zeppelin")).hits
        for text in ("A zeppelin.", "A zeppelin!", "Again a zeppelin"):
            (work / "memory" / "new.md").write_text(text)
            (hit,) = (await service.search("zeppelin")).hits
            assert (hit.path, hit.snippet) == ("memory/new.md", text)
        os.unlink(work / "memory" / "new.md")
        assert not (await service.search("zeppelin")).hits
        status = await service.status()
        assert (status.files, status.pending) == (4, 0)


async def test_an_excerpt_of_a_note(tmp_path: Path, work: Path) -> None:
    (work / "memory" / "long.md").write_text("\n".join(f"line {n}" for n in range(1, 301)) + "\n")
    async with memory(tmp_path, excerpt_chars=1_000) as service:
        whole = await service.get("MEMORY.md")
        assert (whole.text, whole.lines, whole.next_line) == (NOTES["MEMORY.md"][:-1], 4, None)
        part = await service.get("memory/long.md", start_line=10, lines=2)
        assert (part.text, part.start_line, part.next_line) == ("line 10\nline 11", 10, 12)
        by_default = await service.get("memory/long.md")
        assert (by_default.lines, by_default.next_line) == (120, 121)
        missing = await service.get("memory/none.md")
        assert (missing.exists, missing.text, missing.lines) == (False, "", 0)
        after = await service.get("memory/long.md", start_line=1_000)
        assert (after.exists, after.text, after.next_line) == (True, "", None)
        (work / "memory" / "wide.md").write_text("x" * 5_000 + "\nnext")
        wide = await service.get("memory/wide.md")
        assert (len(wide.text), wide.lines, wide.next_line) == (1_000, 1, 2)
        for path in ("notes.md", "../MEMORY.md", "/etc/passwd", "memory", "memory/x.txt", "~/x.md"):
            with pytest.raises(ToolInputError, match="not an allowed Markdown memory file"):
                await service.get(path)
        with pytest.raises(ToolInputError, match="first line"):
            await service.get("MEMORY.md", start_line=0)
        with pytest.raises(ToolInputError, match="at least 1"):
            await service.get("MEMORY.md", lines=0)


async def test_the_number_of_results_and_their_lowest_score(tmp_path: Path, work: Path) -> None:
    for number in range(20):
        words = "falcon " * (number % 5 + 1) + "and other words " * 5
        (work / "memory" / f"{number}.md").write_text(words + str(number))
    async with memory(tmp_path, "{query: {maxResults: 4}}") as service:
        assert len((await service.search("falcon")).hits) == 4
        hits = (await service.search("falcon", max_results=10)).hits
        scores = [hit.score for hit in hits]
        assert len(hits) == 10
        assert scores == sorted(scores, reverse=True)
        strict = (await service.search("falcon", max_results=10, min_score=0.9)).hits
        assert 0 < len(strict) < 10
        assert all(hit.score >= 0.9 for hit in strict)
        for given in ({"max_results": 0}, {"max_results": 1_000}, {"min_score": 1.5}):
            with pytest.raises(ToolInputError, match="must be from"):
                await service.search("falcon", **given)
        for query in ("", " \n "):
            with pytest.raises(ToolInputError, match="empty"):
                await service.search(query)


async def test_memory_as_configured(tmp_path: Path, work: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("CLAWKIT_HOME", str(tmp_path / "home"))
    extra = tmp_path / "elsewhere"
    write_notes(extra, {"a.md": "the quokka is elsewhere", "b.txt": "a quokka in a text"})
    text = {"path": str(extra), "pattern": "*.txt"}
    other = {"extraPaths": [text], "query": {"maxResults": 2}}
    defaults = {
        "memorySearch": {"extraPaths": [str(extra)]},
        "contextLimits": {"memoryGetMaxChars": 5},
    }
    agents = {"defaults": defaults, "list": [{"id": "Other", "memory": {"search": other}}]}
    search = {"query": {"maxResults": 1}}
    loaded = loads(json.dumps({"memory": {"search": search}, "agents": agents}))
    for agent, count in (("main", 1), ("other", 2)):
        service = open_memory(loaded, agent, str(work))
        try:
            assert len((await service.search("quokka")).hits) == count
            assert (await service.get("MEMORY.md")).text == "# Fac"
            status = await service.status()
            assert Path(status.path).parent == tmp_path / "home" / "memory"
            assert Path(status.path).name.startswith(agent)
        finally:
            await service.close()
