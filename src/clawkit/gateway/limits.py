"""Limits on failed logins, on writes, and on connections that have not logged in."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from clawkit.config.sections.gateway import RateLimit
from clawkit.gateway.origin import RequestOrigin

MAX_UNAUTHENTICATED = 32
"""Maximum connections per address."""
WRITES, WRITES_S = 30, 60.0
_FIRST_DELAY_S, _MAX_DELAY_S = 0.25, 5.0
_MAX_ADDRESSES = 10_000
_MAX_TURNS = 8
"""Maximum logins of one address that wait for each other."""
Clock = Callable[[], float]


class _Turns:
    """The logins of one address."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.count = 0


class LoginLimiter:
    """Locks out an address after too many wrong secrets; this machine is only slowed down."""

    def __init__(
        self,
        limit: RateLimit,
        on_lockout: Callable[[], None] = lambda: None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._limit, self._on_lockout, self._clock = limit, on_lockout, clock
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()
        self._locked: OrderedDict[str, float] = OrderedDict()
        self._turns: dict[str, _Turns] = {}

    @asynccontextmanager
    async def turn(self, origin: RequestOrigin, *, is_sure: bool = False) -> AsyncIterator[float]:
        """Check a secret inside this block: logins of an address run one after another, with
        delays, unless `is_sure` that it is not a guess. Yields the seconds until the next attempt
        is allowed; 0 for now."""
        if is_sure:
            yield 0.0
            return
        turns = self._turns.setdefault(origin.who, _Turns())
        if turns.count >= _MAX_TURNS:
            yield _MAX_DELAY_S
            return
        turns.count += 1
        try:
            async with turns.lock:
                yield self.locked_s(origin)
        finally:
            turns.count -= 1
            if not turns.count:
                del self._turns[origin.who]

    def locked_s(self, origin: RequestOrigin) -> float:
        """Seconds until the address may try again; 0 for now."""
        left = self._locked.get(origin.who, 0.0) - self._clock()
        if left <= 0:
            self._locked.pop(origin.who, None)
        return max(0.0, left)

    def fail(self, origin: RequestOrigin) -> float:
        """Count a wrong secret; returns the seconds to wait before answering."""
        now, who = self._clock(), origin.who
        failures = self._failures.setdefault(who, deque(maxlen=self._limit.max_attempts))
        self._failures.move_to_end(who)
        while failures and failures[0] <= now - self._limit.window_ms / 1000:
            failures.popleft()
        failures.append(now)
        if len(self._failures) > _MAX_ADDRESSES:
            self._failures.popitem(last=False)
        if self._limit.exempt_loopback and origin.is_local:
            doubled: float = _FIRST_DELAY_S * 2 ** (len(failures) - 1)
            return min(doubled, _MAX_DELAY_S)
        if len(failures) >= self._limit.max_attempts:
            self._locked[who] = now + self._limit.lockout_ms / 1000
            self._on_lockout()
            if len(self._locked) > _MAX_ADDRESSES:
                self._locked.popitem(last=False)
        return 0.0


class CallLimiter:
    """Limits the calls of a method by a client within a period."""

    def __init__(
        self, most: int = WRITES, within_s: float = WRITES_S, clock: Clock = time.monotonic
    ) -> None:
        self._most, self._within_s, self._clock = most, within_s, clock
        self._calls: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()

    def take(self, client: str, method: str) -> float:
        """Count a call; returns 0 if it may run, else the seconds until it may."""
        now, key = self._clock(), (client, method)
        calls = self._calls.setdefault(key, deque())
        self._calls.move_to_end(key)
        while calls and calls[0] <= now - self._within_s:
            calls.popleft()
        if len(calls) >= self._most:
            return calls[0] + self._within_s - now
        calls.append(now)
        if len(self._calls) > _MAX_ADDRESSES:
            self._calls.popitem(last=False)
        return 0.0


class PendingLogins:
    """The connections of each address that have not logged in yet."""

    def __init__(self, most: int = MAX_UNAUTHENTICATED) -> None:
        self._most = most
        self.addresses: dict[asyncio.Timeout, str] = {}
        """Addresses by timeout, the oldest first."""

    def enter(self, address: str, limit: asyncio.Timeout) -> None:
        """If there are too many, the oldest time out immediately: idle connections must not block
        clients that log in."""
        self.addresses[limit] = address
        there = [each for each, where in self.addresses.items() if where == address]
        for each in there[: -self._most]:
            if not each.expired():
                each.reschedule(0.0)
