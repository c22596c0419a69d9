"""Hooks: code that runs before a call, and on its result afterwards.

A before-hook may let the call pass (None), block it, rewrite its parameters, or have a person
decide. Higher priorities run first; the first block wins; parameters are frozen once a person has
to decide. A before-hook that raises or times out blocks. An after-hook may replace the result; if
it fails, the result is kept.
"""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from clawkit.core.approval import MAX_TIMEOUT_S, Ask, Deny
from clawkit.core.catalog import canonical
from clawkit.core.context import Context
from clawkit.core.result import Result
from clawkit.core.tasks import bounded, in_thread
from clawkit.core.tool import is_tool_name
from clawkit.errors import RegistryError, ToolAuthorizationError

TIMEOUT_S = 15.0
GRACE_S = 1.0

log = logging.getLogger(__name__)


class Call(Struct, frozen=True):
    """A validated call on its way to the tool. Hooks get a copy of the parameters."""

    tool: str
    params: Mapping[str, Any]
    ctx: Context


class Rewrite(Struct, frozen=True):
    """Run the call with these parameters instead; they are validated again."""

    params: Mapping[str, Any]


Verdict = Deny | Rewrite | Ask | None
Before = Callable[[Call], Awaitable[Verdict] | Verdict]
After = Callable[[Call, Result], Awaitable[Result | None] | Result | None]


class Hook(Struct, frozen=True):
    """One hook, and how it is called."""

    run: Callable[..., Any]
    priority: int
    tools: frozenset[str] | None
    timeout_s: float

    @property
    def name(self) -> str:
        return getattr(self.run, "__qualname__", type(self.run).__qualname__)

    def wants(self, tool: str) -> bool:
        return self.tools is None or canonical(tool) in self.tools

    async def call(self, *arguments: object) -> Any:
        """Call the hook. Raises its exceptions, and TimeoutError."""
        # A plain function runs in a thread, so that it cannot block the event loop.
        is_async = inspect.iscoroutinefunction(self.run)
        work = self.run(*arguments) if is_async else in_thread(self.run, *arguments)
        verdict = await bounded(work, self.timeout_s, GRACE_S)
        if inspect.isawaitable(verdict):
            verdict = await bounded(verdict, self.timeout_s, GRACE_S)
        return verdict


class Hooks(Struct):
    """The hooks of one run."""

    _before: list[Hook] = []
    _after: list[Hook] = []

    def before(
        self,
        hook: Before,
        *,
        priority: int = 0,
        tools: str | Iterable[str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Before:
        """Add a before-hook for all tools, or for those named. Equal priorities keep their order.

        Raises `RegistryError` for names that are not tool names: there are no patterns or groups.
        """
        _add(self._before, hook, priority, tools, timeout_s)
        return hook

    def after(
        self,
        hook: After,
        *,
        priority: int = 0,
        tools: str | Iterable[str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> After:
        """Add an after-hook for all tools, or for those named."""
        _add(self._after, hook, priority, tools, timeout_s)
        return hook

    async def run_before(self, call: Call) -> tuple[Mapping[str, Any], Ask | None]:
        """The parameters, the same object unless rewritten, and what to ask a person.

        Raises `ToolAuthorizationError` if a hook blocks the call.
        """
        params, ask = call.params, None
        for hook in self._before:
            if not hook.wants(call.tool):
                continue
            try:
                verdict = await hook.call(_copy(call, params))
                if isinstance(verdict, Rewrite):
                    verdict = Rewrite(copy.deepcopy(dict(verdict.params)))
                elif not isinstance(verdict, Deny | Ask | None):
                    kind = type(verdict).__name__
                    raise TypeError(f"it returned {kind}, not None, Deny, Rewrite or Ask")
            except Exception as error:  # any failure of a hook blocks
                log.warning("before-hook %s failed: %r", hook.name, error)
                problem = "took too long" if isinstance(error, TimeoutError) else "failed"
                why = f"blocked because the hook {hook.name} {problem}"
                raise ToolAuthorizationError(why, reason="hook-failed") from error
            if isinstance(verdict, Deny):
                why = verdict.reason or f"blocked by the hook {hook.name}"
                raise ToolAuthorizationError(why, reason="hook")
            if isinstance(verdict, Rewrite) and ask is None:
                params = verdict.params
            elif isinstance(verdict, Ask) and ask is None:
                ask = replace(verdict, asked_by=verdict.asked_by or f"hook {hook.name}")
        return params, ask

    async def run_after(self, call: Call, result: Result) -> Result:
        for hook in self._after:
            if not hook.wants(call.tool):
                continue
            try:
                replaced = await hook.call(_copy(call, call.params), result)
                result = result if replaced is None else Result.of(replaced, call.tool)
            except Exception as error:  # noqa: BLE001  # the call has happened: keep its result
                log.warning("after-hook %s failed: %r", hook.name, error)
        return result


def _add(
    hooks: list[Hook],
    run: Callable[..., Any],
    priority: int,
    tools: str | Iterable[str] | None,
    timeout_s: float,
) -> None:
    if not callable(run):
        raise TypeError(f"a hook is a function, not {run!r}")
    names = None
    if tools is not None:
        names = frozenset(map(canonical, [tools] if isinstance(tools, str) else tools))
    for name in names or ():
        # A hook that silently never runs is worse than none.
        if not is_tool_name(name):
            raise RegistryError(f"hooks take tool names: {name!r} is not a valid one")
    hooks.append(Hook(run, priority, names, min(timeout_s, MAX_TIMEOUT_S)))
    hooks.sort(key=lambda each: -each.priority)


def _copy(call: Call, params: Mapping[str, Any]) -> Call:
    """The call for a hook, which may modify its copy of the parameters."""
    return replace(call, params=copy.deepcopy(dict(params)))
