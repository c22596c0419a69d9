"""`LocalMemory`: the memory of one agent, in files of its workspace and an index of them."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from functools import cache, partial
from typing import TypeVar

from msgspec import structs

from clawkit.config import paths
from clawkit.config.load import Loaded
from clawkit.config.sections.plugins import MemorySearch
from clawkit.config.sections.tools import Fs
from clawkit.core.tasks import in_thread
from clawkit.errors import ToolAuthorizationError, ToolError, ToolInputError
from clawkit.memory.background import Embedding
from clawkit.memory.embed import (
    DEFAULT_TIMES,
    Embedder,
    Embedders,
    EmbedTimes,
    Learn,
    make_embedders,
)
from clawkit.memory.files import EXCERPT_CHARS, NoteFiles, Redact, check_lines, cut_excerpt
from clawkit.memory.index import SESSION_ROOT, MemoryIndex, PastSessions
from clawkit.memory.protocols import (
    Corpus,
    Excerpt,
    Hit,
    IndexStatus,
    MemoryHits,
    OnProgress,
    Source,
)
from clawkit.memory.search import CANDIDATES, Leg, choose, cut_snippet, mix, recency
from clawkit.memory.settings import excerpt_chars, settings_of, sources_of
from clawkit.memory.vectors import CACHE_ENTRIES, VectorIndex, find_extension
from clawkit.memory.words import MAX_QUERY_CHARS, read_terms
from clawkit.store import DamagedError

SEARCH_S = 30.0
SYNC_S = 20.0
"""Seconds that a search waits for the index; the rest is indexed in the background."""
MAX_RESULTS = 100

T = TypeVar("T")


def open_memory(
    loaded: Loaded,
    agent: str,
    workspace: str,
    *,
    transcripts: PastSessions | None = None,
    plugged: Embedder | None = None,
    learn: Learn = lambda _secrets: None,
    redact: Redact = str,
    times: EmbedTimes = DEFAULT_TIMES,
) -> LocalMemory:
    """The memory of an agent in a workspace, as configured. Opens nothing yet.

    `plugged` is the embedder of a plugin; `learn` is called with secrets before their use; `redact`
    masks secrets in notes.
    """
    config = loaded.config
    fs: Fs = config.tools.fs.merged(config.agents.get(agent).tools.fs)
    settings = settings_of(config, agent)
    env = {**os.environ, **loaded.env}
    files = NoteFiles(
        workspace,
        settings.extra_paths,
        env,
        hard_links=fs.hard_links == "allow",
        redact=redact,
    )
    return LocalMemory(
        settings,
        files,
        index_file(agent, workspace, env),
        make_embedders(settings, loaded, agent, learn=learn, plugged=plugged, times=times),
        transcripts=transcripts,
        excerpt_chars=excerpt_chars(config, agent),
    )


def index_file(agent: str, workspace: str, env: dict[str, str]) -> str:
    """The index file of an agent in a workspace; an agent may work in several workspaces."""
    whose = os.fsencode(f"{os.path.realpath(workspace)}\0{agent}")
    place = hashlib.sha256(whose).hexdigest()[:12]
    name = re.sub(r"[^a-z0-9_-]", "_", agent.lower())[:64]
    return os.path.join(paths.memory_dir(env), f"{name}-{place}.sqlite")


class LocalMemory:
    """Implements `Memory`. Bound to one event loop."""

    def __init__(
        self,
        settings: MemorySearch,
        files: NoteFiles,
        index_path: str,
        embedders: Embedders = Embedders(),  # noqa: B008  # immutable
        *,
        transcripts: PastSessions | None = None,
        excerpt_chars: int = EXCERPT_CHARS,
        today: Callable[[], date] = date.today,
    ) -> None:
        sources = sources_of(settings)
        self._settings = settings
        self._files = files
        self._noted = files if "memory" in sources else None
        self._transcripts = transcripts if "sessions" in sources else None
        self._index = MemoryIndex(index_path, files.roots[0].folder)
        self._vectors = VectorIndex(
            self._index,
            find_extension(settings.store.vector),
            cache_entries=CACHE_ENTRIES if settings.cache.enabled else 0,
        )
        self._embedding = Embedding(embedders, self._vectors, files.redact)
        self._excerpt_chars = excerpt_chars
        self._today = today
        self._stop = threading.Event()
        self._syncing: asyncio.Task[str] | None = None

    async def search(
        self,
        query: str,
        *,
        max_results: int | None = None,
        min_score: float | None = None,
        corpus: Corpus = "memory",
    ) -> MemoryHits:
        wanted = self._settings.query
        count = wanted.max_results if max_results is None else max_results
        lowest = wanted.min_score if min_score is None else min_score
        if not query.strip():
            raise ToolInputError("the query is empty; use some words or a question")
        if not 1 <= count <= MAX_RESULTS:
            raise ToolInputError(f"the number of results must be from 1 to {MAX_RESULTS}")
        if not 0 <= lowest <= 1:
            raise ToolInputError("the lowest score must be from 0 to 1")
        try:
            async with asyncio.timeout(SEARCH_S):
                warning = await self._bring_up_to_date()
                self._embedding.start()
                vector = await self._embedding.query(query[:MAX_QUERY_CHARS])
                given = (query, vector, corpus, count, lowest, min_score is not None)
                find = partial(self._find, *given)
                hits, is_mixed = await in_thread(self._index.recovering, find)
        except TimeoutError:
            problem = f"the search took longer than {SEARCH_S:.0f} seconds; try a shorter query"
            raise ToolError(problem) from None
        active, error = self._embedding.active, self._embedding.problem
        by = (active.provider, active.model) if active else ("", "")
        missing = ""
        if corpus == "sessions" and self._transcripts is None:
            missing = "past sessions are not indexed: memory.search.sources has no 'sessions'"
        said = "; ".join(filter(None, (missing, warning, error)))
        return MemoryHits(hits, "hybrid" if is_mixed else "keyword", *by, said, error)

    def _find(
        self,
        query: str,
        vector: tuple[str, bytes] | None,
        corpus: Corpus,
        count: int,
        lowest: float,
        strict: bool,
    ) -> tuple[list[Hit], bool]:
        """The hits, and whether vectors were used."""
        index = self._index
        terms = read_terms(query, index.split)
        may_see = cache(self._may_see)

        sessions = self._transcripts.visible() if self._transcripts else None
        # What is hidden affects neither what is found nor its scores.
        among = None if sessions is None else index.numbers(corpus, sessions)
        by_words: Leg = ()
        if among is not None:
            by_words = index.match_among(among, terms, CANDIDATES)
        else:
            for group in index.groups(terms):
                if by_words := index.match(group, corpus, CANDIDATES):
                    break
        by_vector: Leg = ()
        if vector:
            by_vector = self._vectors.nearest(*vector, corpus, CANDIDATES, among)
        today = self._today()
        found = index.passages(mix(by_words, by_vector))
        seen = {id_: each for id_, each in found.items() if may_see(each.source, each.path)}
        scores = {id_: each.score * recency(each.path, today) for id_, each in seen.items()}
        # Matches of words, or of a similar meaning, are better than nothing.
        also = {id_ for id_, _ in by_words} | {id_ for id_, near in by_vector if near >= lowest}
        chosen = choose(scores, also, count, lowest, strict=strict)
        # Another process may have reused the number for another passage.
        shown = index.passages({id_: round(scores[id_], 4) for id_ in chosen}, text=True)
        kept = [id_ for id_ in chosen if id_ in shown and shown[id_].path == seen[id_].path]
        # Mask secrets that became known after indexing, before the passage is cut.
        texts = {id_: self._files.redact(shown[id_].snippet) for id_ in kept}
        hits = [structs.replace(shown[id_], snippet=cut_snippet(texts[id_], terms)) for id_ in kept]
        return hits, bool(by_vector)

    def _may_see(self, source: Source, path: str) -> bool:
        sessions = self._transcripts
        if source == "memory":
            return True
        return sessions is not None and sessions.may_see(path.removeprefix(SESSION_ROOT))

    async def get(self, path: str, *, start_line: int = 1, lines: int | None = None) -> Excerpt:
        transcripts, id_ = self._transcripts, path.removeprefix(SESSION_ROOT)
        if transcripts is None or id_ == path:
            given = (path, start_line, lines, self._excerpt_chars)
            found: Excerpt = await in_thread(self._files.excerpt, *given)
            return found
        check_lines(start_line, lines)
        if not await in_thread(transcripts.may_see, id_):
            raise ToolAuthorizationError(f"the session {id_!r} cannot be seen from here")
        text = await in_thread(transcripts.read, id_)
        if not text:
            return Excerpt(path, "", start_line, 0, exists=False)
        return cut_excerpt(path, text, start_line, lines, self._excerpt_chars)

    async def paths(self) -> list[str]:
        return [*(await in_thread(self._files.scan)).stamps]

    async def index(
        self, *, rebuild: bool = False, on_progress: OnProgress | None = None
    ) -> IndexStatus:
        if rebuild:
            await in_thread(self._index.recovering, self._index.clear)
            await self._embedding.finish()  # without passages, this only prunes the cache
        if warning := await self._sync(on_progress):
            raise ToolError(warning)
        await self._embedding.finish()
        return await self.status()

    async def status(self) -> IndexStatus:
        look = partial(self._index.status, self._noted, self._transcripts)
        found: IndexStatus = await in_thread(self._index.recovering, look)
        await self._embedding.check()
        active, problem = self._embedding.active, self._embedding.problem
        return structs.replace(
            found,
            embedded=await self._embedding.count() if found.chunks else 0,
            roots=[root.place for root in self._files.roots],
            provider=active.provider if active else "",
            model=active.model if active else "",
            problems=[*found.problems, *filter(None, [problem])],
            error=problem,
        )

    async def close(self) -> None:
        self._stop.set()
        await self._embedding.close()
        if self._syncing is not None:
            with suppress(asyncio.CancelledError):
                await self._syncing
        await in_thread(self._index.close)

    async def _bring_up_to_date(self) -> str:
        """Wait for the index; returns why it is incomplete, or an empty text."""
        loop = asyncio.get_running_loop()
        until = loop.time() + SYNC_S
        running = self._syncing
        if running is not None and not running.done():
            # It may have started before the latest change.
            await asyncio.wait({running}, timeout=SYNC_S)
        if running is None or (running is self._syncing and running.done()):
            running = self._syncing = loop.create_task(self._sync())
        running = self._syncing or running
        # Shielded: continues if the search is cancelled or stops waiting.
        done, _ = await asyncio.wait({running}, timeout=until - loop.time())
        if not done:
            return f"{self._index.pending:,} files are not indexed yet; search again later"
        return running.result()

    async def _sync(self, on_progress: OnProgress | None = None) -> str:
        """Index changes; returns the reason for a failure, or an empty text."""

        def report(done: int, total: int) -> None:
            if on_progress:
                loop.call_soon_threadsafe(on_progress, done, total)

        def sync() -> None:
            self._index.sync(self._noted, self._transcripts, stop=self._stop, on_progress=report)

        loop = asyncio.get_running_loop()
        try:
            await in_thread(self._index.recovering, sync)
        except DamagedError:
            raise
        except ToolError as error:
            return f"the index could not be updated: {error}"
        return ""
