"""Calls that a tool makes: with the policy, the rules and the approvals of its run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from clawkit.core.call import CallRequest, Run, call, unwrap
from clawkit.core.catalog import canonical
from clawkit.core.result import Result

MAX_DEPTH = 3
_chain: ContextVar[tuple[str, ...]] = ContextVar("clawkit_calling_tools", default=())
"""The tools that called each other up to here."""
_withheld: ContextVar[frozenset[str]] = ContextVar("clawkit_withheld_tools", default=frozenset())


@contextmanager
def withhold(tools: frozenset[str]) -> Iterator[None]:
    """What is called in the meantime cannot call these tools: for a caller who may use less than
    the run has."""
    token = _withheld.set(_withheld.get() | tools)
    try:
        yield
    finally:
        _withheld.reset(token)


class NestedCalls:
    """The way for a tool to other tools. It gets no more than its caller: the same run decides.

    A pipeline may repeat a call many times, so the loop guard sees only the call of the tool.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    async def call(self, tool: str, params: Any, *, by: str) -> Result:
        """Call a tool for the tool `by`. Failures are results; only cancellation is raised."""
        chain, request = (*_chain.get(), by), unwrap(self._run, CallRequest(tool, params))
        name = canonical(request.tool)
        if name in chain or name in _withheld.get() or len(chain) > MAX_DEPTH:
            why = f"{request.tool[:80]} cannot be called from {' from '.join(reversed(chain))}"
            return Result.blocked(by, why, "nested-call")
        token = _chain.set(chain)
        try:
            return await call(self._run, request)
        finally:
            _chain.reset(token)
