"""Tables of pure cases as one test each: thousands of small tests cost minutes of overhead."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def table(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[..., Callable[[], None]]:
    """Like `pytest.mark.parametrize`, for a test without fixtures; all failures are listed."""
    several = not isinstance(names, str)

    def decorate(test: Callable[..., None]) -> Callable[[], None]:
        def run() -> None:
            failed = []
            for case in cases:
                try:
                    test(*case) if several else test(case)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001
                    failed.append(f"{case!r}: {type(error).__name__}: {error}")
            assert not failed, "\n".join(failed)

        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        run.__qualname__ = test.__qualname__
        return run

    return decorate
