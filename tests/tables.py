"""Tables of pure cases as one test each: thousands of small tests cost minutes of overhead."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest


def table(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[..., Callable[[], Any]]:
    """Like `pytest.mark.parametrize`, for a test without fixtures; all failures are listed."""
    several = not isinstance(names, str)

    def decorate(test: Callable[..., Any]) -> Callable[[], Any]:
        calls = [(case, partial(test, *case) if several else partial(test, case)) for case in cases]

        def run() -> None:
            with _collecting() as failed:
                for case, call in calls:
                    with _noting(failed, case):
                        call()

        async def run_async() -> None:
            with _collecting() as failed:
                for case, call in calls:
                    with _noting(failed, case):
                        await call()

        made = run_async if inspect.iscoroutinefunction(test) else run
        made.__dict__.update(test.__dict__)
        made.__name__, made.__doc__, made.__module__ = test.__name__, test.__doc__, test.__module__
        made.__qualname__ = test.__qualname__
        return made

    return decorate


@contextmanager
def _collecting() -> Iterator[list[str]]:
    failed: list[str] = []
    yield failed
    assert not failed, "\n".join(failed)


@contextmanager
def _noting(failed: list[str], case: object) -> Iterator[None]:
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001
        failed.append(f"{case!r:.200}: {type(error).__name__}: {error}")
