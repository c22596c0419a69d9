"""Calls that a tool makes, under the policy, rules and approvals of its run."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection
from contextvars import ContextVar
from typing import Any, cast

from msgspec.structs import replace

from clawkit.core.call import CallRequest, Run, call, unwrap
from clawkit.core.catalog import canonical
from clawkit.core.result import Result

MAX_DEPTH = 3
_chain: ContextVar[tuple[str, ...]] = ContextVar("clawkit_calling_tools", default=())
"""The chain of tools that called each other."""


class NestedCalls:
    """Lets a tool call other tools, with no more rights than its caller: the same run decides. A
    pipeline may repeat a call many times, so the loop guard sees only the call of the tool.
    """

    def __init__(self, run: Run) -> None:
        self._run = replace(run, watch=None)

    async def call(self, tool: str, params: Any, *, by: str) -> Result:
        """Call a tool for the tool `by`. Failures are results; only cancellation is raised."""
        chain, request = (*_chain.get(), by), unwrap(self._run, CallRequest(tool, params))
        if canonical(request.tool) in chain or len(chain) > MAX_DEPTH:
            why = f"{request.tool[:80]} cannot be called from {' from '.join(reversed(chain))}"
            return Result.blocked(by, why, "nested-call")
        token = _chain.set(chain)
        try:
            return await call(self._run, request)
        finally:
            _chain.reset(token)


def withhold(run: Run, names: Collection[str], why: str) -> Run:
    """The run without some tools, which then cannot be called by the model or by other tools."""
    less = replace(
        run,
        tools={name: run.tools[name] for name in run.tools if name not in names},
        refused={**run.refused, **dict.fromkeys(names, why)},
    )
    services = ChainMap({NestedCalls: NestedCalls(less)}, cast("Any", run.services))
    return replace(less, services=services)
