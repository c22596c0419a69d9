"""Limits on logins, calls and connections, with a clock of the test's own."""

from __future__ import annotations

import asyncio

from clawkit.config.sections.gateway import RateLimit
from clawkit.gateway.limits import CallLimiter, LoginLimiter, PendingLogins
from clawkit.gateway.origin import RequestOrigin

FAR, NEAR = RequestOrigin("203.0.113.5"), RequestOrigin("127.0.0.1", is_local=True)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_an_address_is_locked_out_and_let_in_again() -> None:
    clock = Clock()
    limiter = LoginLimiter(RateLimit(max_attempts=3), clock=clock)
    for _ in range(2):
        assert limiter.fail(FAR) == 0
    assert limiter.locked_s(FAR) == 0
    limiter.fail(FAR)
    assert limiter.locked_s(FAR) == 300
    assert limiter.locked_s(RequestOrigin("203.0.113.6")) == 0
    clock.now += 300
    assert limiter.locked_s(FAR) == 0


def test_old_failures_are_forgotten() -> None:
    clock = Clock()
    limiter = LoginLimiter(RateLimit(max_attempts=3), clock=clock)
    for _ in range(10):
        limiter.fail(FAR)
        clock.now += 31
    assert limiter.locked_s(FAR) == 0


def test_this_machine_waits_longer_each_time() -> None:
    limiter = LoginLimiter(RateLimit(max_attempts=10), clock=Clock())
    delays = [limiter.fail(NEAR) for _ in range(12)]
    assert delays[:5] == [0.25, 0.5, 1, 2, 4]
    assert set(delays[5:]) == {5}
    assert limiter.locked_s(NEAR) == 0
    strict = LoginLimiter(RateLimit(max_attempts=1, exempt_loopback=False), clock=Clock())
    strict.fail(NEAR)
    assert strict.locked_s(NEAR) > 0


def test_many_addresses_do_not_fill_the_memory() -> None:
    limiter = LoginLimiter(RateLimit(max_attempts=1), clock=Clock())
    for number in range(10_100):
        limiter.fail(RequestOrigin(f"2001:db8::{number:x}"))
    assert len(limiter._failures) <= 10_000
    assert len(limiter._locked) <= 10_000


def test_calls_are_counted_for_each_client_and_method() -> None:
    clock = Clock()
    limiter = CallLimiter(2, 60, clock)
    assert [limiter.take("a", "m") for _ in range(2)] == [0, 0]
    assert limiter.take("a", "m") == 60
    assert limiter.take("a", "n") == limiter.take("b", "m") == 0
    clock.now += 60
    assert limiter.take("a", "m") == 0


async def test_the_oldest_connections_without_login_make_room() -> None:
    waiting, late = PendingLogins(2), list[int]()

    async def connect(number: int, address: str) -> None:
        try:
            async with asyncio.timeout(60) as limit:
                waiting.enter(address, limit)
                await asyncio.Event().wait()
        except TimeoutError:
            late.append(number)
        finally:
            waiting.addresses.pop(limit)

    others = [asyncio.create_task(connect(0, "b"))]
    for number in range(1, 5):
        others.append(asyncio.create_task(connect(number, "a")))
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    assert late == [1, 2]
    for each in others:
        each.cancel()
    await asyncio.wait(others)
    assert waiting.addresses == {}
