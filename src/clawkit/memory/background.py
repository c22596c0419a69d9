"""Embeds passages in the background, and queries; meanwhile, keywords are used."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

from clawkit.core.tasks import bounded, in_thread
from clawkit.errors import ClawkitError
from clawkit.memory.embed import MAX_BATCH, Embedder, Embedders, Purpose, check_vectors, space_of
from clawkit.memory.files import Redact
from clawkit.memory.vectors import VectorIndex, pack
from clawkit.models.protocols import ErrorKind, ModelError

_FINAL: frozenset[ErrorKind] = frozenset({"auth", "billing", "not_found", "invalid", "refused"})
"""Errors that only a person can fix."""
COOLDOWN_S, FINAL_COOLDOWN_S = 60.0, 600.0
"""Seconds that a service is not used after a failure; longer if a retry cannot help."""
STOP_S = 3.0
"""Seconds to wait for the batch in flight, because it is paid for."""

log = logging.getLogger(__name__)


class Embedding:
    """The embedders of one index; uses the first that works. Bound to one event loop."""

    def __init__(self, embedders: Embedders, vectors: VectorIndex, redact: Redact = str) -> None:
        """`redact` masks secrets that became known after the passages were indexed."""
        self._embedders, self._times, self._client, self._settings_problem = embedders
        self._vectors, self._redact = vectors, redact
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False
        """Whether to start no further batches."""
        self._until: dict[int, float] = {}
        """When each embedder may be used again."""
        self._rest_until = 0.0
        """When to embed again after vectors could not be stored, because each one costs."""
        self._problems: dict[int, str] = {}

    @property
    def active(self) -> Embedder | None:
        """The embedder in use; the first one if none is available."""
        at = self._ready()
        return self._embedders[at or 0] if self._embedders else None

    @property
    def problem(self) -> str:
        """Why vectors are missing or come from the fallback; empty if nothing failed."""
        found = (self._settings_problem, *self._problems.values(), self._vectors.problem)
        return "; ".join(filter(None, found))

    def _ready(self) -> int | None:
        now = time.monotonic()
        waits = (self._until.get(at, 0.0) for at in range(len(self._embedders)))
        return next((at for at, until in enumerate(waits) if until <= now), None)

    async def query(self, text: str) -> tuple[str, bytes] | None:
        """The space in use and the vector of a query; None if there is none."""
        if (at := self._ready()) is None:
            return None
        try:
            (vector,) = await self._ask(at, [text], "query")
        except ModelError as error:
            self._note(at, error)
            return None
        return space_of(self._embedders[at]), vector

    async def check(self) -> None:
        """Find configuration problems of embedders, such as a missing key. Sends nothing."""
        for at, each in enumerate(self._embedders):
            check = getattr(each, "check", None)  # embedders of plugins have none
            try:
                if check and at not in self._problems:
                    await check()
            except ModelError as error:
                self._problems[at] = str(error)

    async def count(self) -> int:
        """The number of passages with a vector."""
        if not self.active:
            return 0
        found: int = await in_thread(self._vectors.count, space_of(self.active))
        return found

    def start(self) -> None:
        """Start embedding new passages, unless already running."""
        is_idle = not self._is_stopping and (self._task is None or self._task.done())
        if is_idle and self._ready() is not None and time.monotonic() >= self._rest_until:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def finish(self) -> None:
        """Embed all passages now, even with a service that failed shortly before."""
        await self._stop()
        self._until.clear()
        self._rest_until, self._is_stopping = 0.0, False
        self.start()
        if self._task is not None:
            await self._task

    async def close(self) -> None:
        await self._stop()
        if self._client is not None:
            await self._client.close()

    async def _stop(self) -> None:
        self._is_stopping = True
        task, self._task = self._task, None
        if task is not None:
            with suppress(TimeoutError):
                await bounded(task, STOP_S)

    async def _run(self) -> None:
        """Task root: must not fail, because nothing awaits it."""
        try:
            while (at := self._ready()) is not None:
                try:
                    await self._embed_all(at)
                except ModelError as error:
                    self._note(at, error)
                    continue
                return
        except (ClawkitError, OSError) as error:
            self._rest_until = time.monotonic() + COOLDOWN_S
            log.warning("memory: embedding failed: %s", error)

    async def _embed_all(self, at: int) -> None:
        name, after = self._embedders[at].provider, 0
        spaces = [space_of(each) for each in self._embedders]
        while not self._is_stopping:
            waiting = await in_thread(self._vectors.waiting, spaces[at], after, MAX_BATCH, *spaces)
            if not waiting:
                return
            texts = {key: text for _, key, text in waiting}
            made = await self._ask(at, list(texts.values()), "document")
            given = dict(zip(texts, made, strict=True))
            if await in_thread(self._vectors.put, spaces[at], given):
                # All others must be made again, but not immediately, because this may happen each
                # time.
                raise ModelError("malformed", f"{name} changed the length of its vectors")
            after = waiting[-1][0]

    async def _ask(self, at: int, texts: list[str], purpose: Purpose) -> list[bytes]:
        """Vectors in their stored form. Raises only `ModelError`, whatever a plugin does."""
        embedder = self._embedders[at]
        name = embedder.provider
        try:
            # Services have their own, shorter limit.
            limit_s = self._times.limit_s(purpose) * 1.1
            made = await bounded(embedder.embed([*map(self._redact, texts)], purpose), limit_s)
            check_vectors(name, made, len(texts))
            if self._until.get(at, 0.0) <= time.monotonic():
                self._problems.pop(at, None)  # else another request has failed meanwhile
            return [pack(each) for each in made]
        except (ModelError, asyncio.CancelledError):
            raise
        except TimeoutError:
            raise ModelError("timeout", f"{name} did not embed in time") from None
        except Exception as error:  # third-party code
            raise ModelError("server", f"{name} failed: {type(error).__name__}: {error}") from error

    def _note(self, at: int, error: ModelError) -> None:
        rest_s = FINAL_COOLDOWN_S if error.kind in _FINAL else COOLDOWN_S
        self._until[at] = time.monotonic() + rest_s
        self._problems[at] = str(error)
