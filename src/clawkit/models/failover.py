"""Retries with another credential or another model until one answers.

    invalid, overflow       raised at once: no other model would do better, or the caller must act
    auth, billing           the next credential, then the next model
    not_found, refused      the next model
    rate_limit              the next credential, then the next model; if there is none, wait
    anything else           wait and retry; after three attempts the next model, if there is one
    malformed, or no local server: the same, but give up after three attempts

Once every model has been tried, those that may recover are retried until their limits are reached.
A model that was given up rests for a while; meanwhile, the model that replaced it is used.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

import msgspec
from msgspec.structs import replace

from clawkit.config.modelref import ModelRef
from clawkit.content import Assistant
from clawkit.models.errors import PER_CREDENTIAL, AbsentError, brief
from clawkit.models.protocols import Again, Delta, ErrorKind, Facts, Model, ModelError, Request

LIMIT_ATTEMPTS = 10
LIMIT_WAIT_S = 30.0
"""Longest wait after a rate limit, if the provider does not say how long."""
MAX_RETRY_AFTER_S = 60.0
"""A model whose provider asks for a longer wait is given up."""
RETRIES = 8
RETRY_WAIT_S = 90.0
"""Maximum of all waits for one model together, except for rate limits."""
FAILING_S = 600.0
"""Maximum time of all failed attempts at one model together."""
PATIENCE = 3
"""Attempts at one model before the next one that has not been tried yet."""
FUTILE_ATTEMPTS = 3
"""Attempts at a local server that is not running, or whose answers cannot be used but are charged.
"""

_FIRST_LIMIT_WAIT_S = 2.0
_FIRST_WAIT_S = 0.5
_MAX_SWITCHES = 16
_REST_S = (30.0, 60.0, 300.0)
_BILLING_REST_S = (600.0, 1_800.0, 3_600.0)

_AT_ONCE: frozenset[ErrorKind] = frozenset({"invalid", "overflow"})
_NEXT_MODEL: frozenset[ErrorKind] = frozenset({"auth", "billing", "not_found", "refused"})
# Most informative first: errors that a person can fix.
_TELLING: tuple[ErrorKind, ...] = (
    *("billing", "auth", "not_found", "refused", "rate_limit"),
    *("overloaded", "server", "timeout", "network", "cut", "malformed"),
)


class Clock:
    """Time and randomness, replaceable by tests."""

    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def chance(self) -> float:
        """A random number between 0 and 1."""
        import random  # not needed at start-up

        return random.random()  # noqa: S311  # only for jitter


class ChainLink:
    """One model of a chain, and the end of its rest."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._until = float("-inf")
        self._failures = 0

    def rest_s(self, now: float) -> float:
        """Seconds until the model and one of its credentials are ready; 0 for now."""
        rest_s = getattr(self.model, "rest_s", None)
        return max(0.0, self._until - now, rest_s() if rest_s else 0.0)

    def has_spare(self) -> bool:
        """Whether there is a ready credential other than the last one used."""
        has_spare = getattr(self.model, "has_spare", None)
        return bool(has_spare and has_spare())

    def give_up(self, error: ModelError, now: float) -> None:
        """Let it rest: longer each time, and at least as long as the provider requests."""
        rests = _BILLING_REST_S if error.kind == "billing" else _REST_S
        rest = max(rests[min(self._failures, len(rests) - 1)], error.retry_after_s or 0.0)
        self._failures += 1
        self._until = now + rest

    def succeed(self) -> None:
        self._until = float("-inf")
        self._failures = 0


class _Attempts(msgspec.Struct):
    """The failed attempts at one model in one request."""

    error: ModelError
    count: int = 0
    limits: int = 0
    retries: int = 0
    switches: int = 0
    futile: int = 0
    waited_s: float = 0.0
    failing_s: float = 0.0
    ready_at: float = 0.0
    is_over: bool = False

    def wait_after(self, error: ModelError, took_s: float, chance: float) -> float | None:
        """Seconds to wait before retrying the model; None to give it up."""
        self.error = error
        self.failing_s += took_s
        asked = error.retry_after_s
        if error.kind in _NEXT_MODEL or (asked is not None and asked > MAX_RETRY_AFTER_S):
            return None
        if isinstance(error, AbsentError) or error.kind == "malformed":
            self.futile += 1
            if self.futile >= FUTILE_ATTEMPTS:
                return None
        # Half of a wait is random, so that clients that failed together do not retry together.
        factor = 0.5 + chance / 2
        if error.kind == "rate_limit":
            self.limits += 1
            if self.limits >= LIMIT_ATTEMPTS:
                return None
            guess = min(LIMIT_WAIT_S, _FIRST_LIMIT_WAIT_S * 2 ** (self.limits - 1)) * factor
            return guess if asked is None else max(asked, _FIRST_WAIT_S)
        self.retries += 1
        guess = min(LIMIT_WAIT_S, _FIRST_WAIT_S * 2 ** (self.retries - 1)) * factor
        wait = guess if asked is None else max(asked, guess)
        self.waited_s += wait
        spent = self.waited_s > RETRY_WAIT_S or self.failing_s > FAILING_S
        return None if self.retries > RETRIES or spent else wait


class _Run:
    def __init__(self, links: Sequence[ChainLink], clock: Clock) -> None:
        self._links = links
        self._clock = clock
        self._attempts: dict[ChainLink, _Attempts] = {}

    def first(self) -> ChainLink:
        """The first model that is ready, else the one that is ready soonest."""
        if len(self._links) == 1:
            return self._links[0]
        now = self._clock.now()
        return min(self._links, key=lambda link: link.rest_s(now))

    def after(self, link: ChainLink, error: ModelError, took_s: float) -> tuple[ChainLink, float]:
        """The next model after a failure, and the seconds to wait. Raises if nothing is left."""
        if error.kind in _AT_ONCE:
            raise error
        now = self._clock.now()
        attempts = self._attempts.setdefault(link, _Attempts(error))
        attempts.count += 1
        if error.kind in PER_CREDENTIAL and link.has_spare():
            attempts.switches += 1
            if attempts.switches <= _MAX_SWITCHES:
                attempts.error = error
                return link, 0.0
        wait = attempts.wait_after(error, took_s, self._clock.chance())
        attempts.is_over = wait is None
        attempts.ready_at = now + (wait or 0.0)
        if wait is not None and error.kind != "rate_limit" and attempts.count < PATIENCE:
            return link, wait
        for fresh in self._links:
            if fresh not in self._attempts and not fresh.rest_s(now):
                link.give_up(error, now)
                return fresh, 0.0
        open_links = [each for each, tried in self._attempts.items() if not tried.is_over]
        if open_links:
            best = min(open_links, key=lambda each: self._attempts[each].ready_at)
            return best, max(0.0, self._attempts[best].ready_at - now)
        for link in self._links:
            if link not in self._attempts:
                return link, 0.0
        for link, tried in self._attempts.items():
            if not link.rest_s(now):
                link.give_up(tried.error, now)
        raise self._verdict(error)

    def _verdict(self, last: ModelError) -> ModelError:
        """One error for all attempts, with the partial answer of the last one."""
        tried = list(self._attempts.items())
        errors = [attempts.error for _, attempts in tried]
        chosen = min(errors, key=lambda error: _TELLING.index(error.kind))
        if len(tried) == 1:
            count = tried[0][1].count
            message = f"{chosen} Tried {count} times." if count > 1 else str(chosen)
        else:
            lines = (f"  {link.model.ref}: {attempts.error}" for link, attempts in tried)
            message = "\n".join(("No model answered.", *lines))
        waits = [error.retry_after_s for error in errors if error.retry_after_s is not None]
        return ModelError(
            chosen.kind,
            message,
            status=chosen.status,
            retry_after_s=min(waits, default=None),
            partial=last.partial,
        )


class ModelChain:
    """A model and its fallbacks. One per conversation."""

    def __init__(
        self, models: Sequence[Model], *, strict: bool = False, clock: Clock | None = None
    ) -> None:
        """`models` are the primary model and its fallbacks; `strict` ignores the fallbacks."""
        if not models:
            raise ValueError("a chain needs at least one model")
        self._links = [ChainLink(model) for model in (models[:1] if strict else models)]
        self._clock = clock or Clock()
        self._current = self._links[0]

    @property
    def ref(self) -> ModelRef:
        """The model in use; `api` and `facts` belong to it as well."""
        return self._current.model.ref

    @property
    def api(self) -> str:
        return self._current.model.api

    @property
    def facts(self) -> Facts:
        return self._current.model.facts

    async def stream(self, request: Request) -> AsyncIterator[Delta | Assistant]:
        run = _Run(self._links, self._clock)
        link, spent = run.first(), 0.0
        try:
            while True:
                self._current = link
                started = self._clock.now()
                stream = link.model.stream(request)
                try:
                    async for item in stream:
                        if isinstance(item, Assistant):
                            link.succeed()
                            yield _with_cost(item, spent)
                            return
                        yield item
                    raise ModelError("malformed", f"{link.model.ref} ended without an answer.")
                except ModelError as error:
                    following, wait_s = run.after(link, error, self._clock.now() - started)
                    spent += error.partial.usage.cost if error.partial else 0.0
                    said = brief(link.model.ref, error)
                    again = Again(said, wait_s, following.model.ref, error.kind)
                    # The error is kept until the end, but not what was read of the answer.
                    error.with_traceback(None).partial = None
                finally:
                    # End the request now, not when the generator is garbage-collected.
                    if close := getattr(stream, "aclose", None):
                        await close()
                yield again
                if wait_s:
                    await self._clock.sleep(wait_s)
                link = following
        except (ModelError, asyncio.CancelledError) as error:
            if spent:
                partial = getattr(error, "partial", None) or Assistant(stop="aborted")
                error.partial = _with_cost(partial, spent)  # type: ignore[union-attr]
            raise


def _with_cost(answer: Assistant, cost: float) -> Assistant:
    """Add the cost of failed attempts to an answer, but not their tokens, which are not part of the
    context."""
    if not cost:
        return answer
    return replace(answer, usage=replace(answer.usage, cost=answer.usage.cost + cost))
