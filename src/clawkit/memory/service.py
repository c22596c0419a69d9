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
from functools import partial
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
from clawkit.memory.protocols import Corpus, Excerpt, Hit, IndexStatus, MemoryHits, OnProgress
from clawkit.memory.search import CANDIDATES, Leg, choose, cut_snippet, mix, recency
from clawkit.memory.settings import excerpt_chars, settings_of, sources_of
from clawkit.memory.vectors import CACHE_ENTRIES, VectorIndex, find_extension
from clawkit.memory.words import MAX_QUERY_CHARS, read_terms
from clawkit.store import DamagedError

SEARCH_S = 30.0
SYNC_S = 20.0
"""How long a search waits for the index; the rest is indexed while it answers."""
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

    `plugged` is the embedder of a plugin; `learn` is given secrets before they are used; `redact`
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
    """Where the index of an agent in a workspace is: the same agent may work in several."""
    whose = os.fsencode(f"{os.path.realpath(workspace)}\0{agent}")
    place = hashlib.sha256(whose).hexdigest()[:12]
    name = re.sub(r"[^a-z0-9_-]", "_", agent.lower())[:64]
    return os.path.join(paths.memory_dir(env), f"{name}-{place}.sqlite")


class LocalMemory:
    """See the Protocol `Memory`. For one event loop."""

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
            raise ToolInputError("the query is empty; say what to look for")
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
        """The hits, and whether vectors took part."""
        index = self._index
        terms = read_terms(query, index.split)
        by_words: Leg = index.match(terms, corpus, CANDIDATES)
        by_vector: Leg = self._vectors.nearest(*vector, corpus, CANDIDATES) if vector else ()
        today = self._today()
        seen = {
            id_: each
            for id_, each in index.passages(mix(by_words, by_vector)).items()
            if each.source == "memory" or self._may_see(each.path.removeprefix(SESSION_ROOT))
        }
        scores = {id_: each.score * recency(each.path, today) for id_, each in seen.items()}
        # The words of the query, or a similar meaning, are better than nothing.
        also = {id_ for id_, _ in by_words} | {id_ for id_, near in by_vector if near >= lowest}
        chosen = choose(scores, also, count, lowest, strict=strict)
        # Another process may have given the number to another passage since.
        shown = index.passages({id_: round(scores[id_], 4) for id_ in chosen}, text=True)
        kept = [id_ for id_ in chosen if id_ in shown and shown[id_].path == seen[id_].path]
        # Secrets that became known after the note was indexed are masked before it is cut.
        texts = {id_: self._files.redact(shown[id_].snippet) for id_ in kept}
        hits = [structs.replace(shown[id_], snippet=cut_snippet(texts[id_], terms)) for id_ in kept]
        return hits, bool(by_vector)

    def _may_see(self, session: str) -> bool:
        return self._transcripts is not None and self._transcripts.may_see(session)

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

    async def index(
        self, *, rebuild: bool = False, on_progress: OnProgress | None = None
    ) -> IndexStatus:
        if rebuild:
            await in_thread(self._index.recovering, self._index.clear)
            await self._embedding.finish()  # no passages: only what is not cached is removed
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
        """Wait for the index; returns why it is incomplete, if it is."""
        loop = asyncio.get_running_loop()
        until = loop.time() + SYNC_S
        running = self._syncing
        if running is not None and not running.done():
            # It may have begun before the latest change.
            await asyncio.wait({running}, timeout=SYNC_S)
        if running is None or (running is self._syncing and running.done()):
            running = self._syncing = loop.create_task(self._sync())
        running = self._syncing or running
        # It goes on if the search is cancelled, or if it takes longer than that.
        done, _ = await asyncio.wait({running}, timeout=until - loop.time())
        if not done:
            return f"{self._index.pending:,} files are not indexed yet; search again later"
        return running.result()

    async def _sync(self, on_progress: OnProgress | None = None) -> str:
        """Index what has changed; returns why that failed, if it did."""

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
