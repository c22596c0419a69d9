"""The one way a tool runs: find, read parameters, hooks, rules, a person, execute, finalize.

The command line, the agent loop, servers and tests all enter here. Tools and services raise; this
module makes results of it. Cancelling the task that awaits a call is the abort signal.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from clawkit.core.approval import (
    DEFAULT_TIMEOUT_S,
    MAX_TIMEOUT_S,
    Answer,
    Approver,
    Ask,
    Deny,
    Question,
    nobody_to_ask,
)
from clawkit.core.bounded import GRACE_S, bounded
from clawkit.core.catalog import CATALOG, canonical
from clawkit.core.context import Context, Scope
from clawkit.core.effects import ANYTHING, Effect, collide
from clawkit.core.finalize import finalize, for_event, params_for_event
from clawkit.core.hooks import Call, Hooks
from clawkit.core.params import read_params
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.errors import (
    ClawkitError,
    ToolAuthorizationError,
    ToolError,
    UnknownToolError,
)
from clawkit.redact import Redactor
from clawkit.text import nearest, one_line

MAX_NAME = 80
"""Characters of a name nobody knows that are repeated."""

log = logging.getLogger(__name__)

Event = Mapping[str, Any]
OnEvent = Callable[[Event], None]
Rules = Callable[[Tool, Mapping[str, Any], Context], Deny | Ask | None]


def _no_rules(_tool: Tool, _params: Mapping[str, Any], _ctx: Context) -> None:
    return None


@dataclass(frozen=True)
class Run:
    """What one run may call, and everything a call needs. Made by assembly."""

    tools: Mapping[str, Tool]
    """By canonical name: what policy left."""
    workspace: str
    scope: Scope = Scope()
    refused: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By canonical name: why policy took a tool away."""
    rules: Rules = _no_rules
    hooks: Hooks = field(default_factory=Hooks)
    approver: Approver | None = None
    approval_timeout_s: float = DEFAULT_TIMEOUT_S
    services: Mapping[type, object] = field(default_factory=lambda: MappingProxyType({}))
    redactor: Redactor = field(default_factory=Redactor)
    grace_s: float = GRACE_S
    """How long a cancelled tool may clean up before it is left behind."""


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A call as it came in."""

    tool: str
    params: object = None
    id: str = ""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A call that is understood, and that no hook blocked."""

    tool: Tool
    call: Call
    arguments: Any
    effects: tuple[Effect, ...]
    ask: Ask | None
    """What a hook wants a person to decide."""
    agreed: set[str]
    """The rules whose questions a person answered with yes."""


async def call(run: Run, request: CallRequest, on_event: OnEvent | None = None) -> Result:
    """Carry out one call. Failures are results; only cancellation is raised."""
    prepared = await _prepare(run, request, on_event)
    if isinstance(prepared, Result):
        return prepared
    return await _carry_out((), run, prepared, on_event)


async def call_all(
    run: Run, requests: Iterable[CallRequest], on_event: OnEvent | None = None
) -> list[Result]:
    """The calls of one message: admitted in order, then side by side where they cannot collide."""
    prepared = [await _prepare(run, request, on_event) for request in requests]
    started: list[asyncio.Task[Result] | Result] = []
    async with asyncio.TaskGroup() as group:
        for each in prepared:
            if isinstance(each, Result):
                started.append(each)
                continue
            earlier = [
                task
                for other, task in zip(prepared, started, strict=False)
                if isinstance(other, _Prepared)
                and isinstance(task, asyncio.Task)
                and collide(each.effects, other.effects)
            ]
            started.append(group.create_task(_carry_out(earlier, run, each, on_event)))
    return [each if isinstance(each, Result) else each.result() for each in started]


async def _carry_out(
    earlier: Sequence[Awaitable[Result]], run: Run, prepared: _Prepared, on_event: OnEvent | None
) -> Result:
    """When the calls it could collide with are done: rules, a person, the tool itself."""
    for task in earlier:
        await task
    try:
        await _decide(run, prepared)
    except Exception as error:  # noqa: BLE001  # as in _prepare
        name, call_id = prepared.tool.name, prepared.call.ctx.call_id
        return _finish(run, _failure(name, error), name, call_id, on_event)
    return await _execute(run, prepared, on_event)


async def _prepare(run: Run, request: CallRequest, on_event: OnEvent | None) -> _Prepared | Result:
    """Everything that comes before the tool itself; a refusal is a finished result."""
    call_id, name = request.id or os.urandom(8).hex(), canonical(str(request.tool))
    try:
        tool = _find(run, name)
        ctx = _context(run, tool, call_id, on_event)
        return await _admit(run, tool, request.params, ctx)
    except Exception as error:  # noqa: BLE001  # whatever goes wrong on the way, nothing runs
        shown = one_line(name, MAX_NAME)
        return _finish(run, _failure(shown, error), shown, call_id, on_event)


def _find(run: Run, key: str) -> Tool:
    if (tool := run.tools.get(key)) is not None:
        return tool
    if key in run.refused:
        raise ToolAuthorizationError(run.refused[key])
    if key in CATALOG:
        raise UnknownToolError(f"the tool {key!r} is not available in this build")
    close = nearest(key, tuple(run.tools), 3)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else "see the list of tools"
    raise UnknownToolError(f"there is no tool called {key[:MAX_NAME]!r}; {hint}")


def _context(run: Run, tool: Tool, call_id: str, on_event: OnEvent | None) -> Context:
    async def send_update(update: Result) -> None:
        if on_event is not None:
            _emit(on_event, "update", tool.name, call_id, for_event(update, run.redactor))

    def notify(notice: Result) -> None:
        if on_event is not None:
            _emit(on_event, "notice", tool.name, call_id, for_event(notice, run.redactor))

    return Context(call_id, run.scope, run.workspace, run.services, send_update, notify)


async def _admit(run: Run, tool: Tool, raw: object, ctx: Context) -> _Prepared:
    params, arguments = read_params(tool, raw, run.workspace)
    call = Call(tool.name, params, ctx)
    outcome = await run.hooks.run_before(call)
    if outcome.blocked is not None:
        reason = "hook-failed" if outcome.failed else "hook"
        raise ToolAuthorizationError(outcome.blocked, reason=reason)
    if outcome.rewritten:
        params, arguments = read_params(tool, outcome.params, run.workspace)
        call = replace(call, params=params)
    agreed: set[str] = set()
    ctx = _with_questions(run, tool, call, agreed)
    call = replace(call, ctx=ctx)
    return _Prepared(tool, call, arguments, _effects(tool, arguments, ctx), outcome.ask, agreed)


def _with_questions(run: Run, tool: Tool, call: Call, agreed: set[str]) -> Context:
    """The context, able to ask a person and the rules about this call."""

    async def ask(wish: Ask) -> None:
        await _ask(run, call, wish)

    def permits(path: str) -> bool:
        named = dict.fromkeys(tool.paths or ("path",), path)
        verdict = run.rules(tool, {**_with_defaults(tool, call), **named}, call.ctx)
        return verdict is None or (isinstance(verdict, Ask) and verdict.asked_by in agreed)

    return replace(call.ctx, ask=ask, permits=permits)


async def _decide(run: Run, prepared: _Prepared) -> None:
    """Return when the call may run. Rules come last: no hook can rewrite a call past them, and no
    earlier call can change where a path leads after they looked."""
    tool, call = prepared.tool, prepared.call
    asked = _check_rules(run, tool, call)
    wishes = [wish for wish in (prepared.ask, asked) if wish is not None]
    for wish in wishes:
        await _ask(run, call, wish)
    if wishes and _check_rules(run, tool, call) != asked:
        raise ToolAuthorizationError(
            "what the call would reach changed while a person was deciding; send it again",
            reason="rule",
        )
    if asked is not None:
        prepared.agreed.add(asked.asked_by)


def _with_defaults(tool: Tool, call: Call) -> Mapping[str, Any]:
    """The parameters as rules see them: one about a value must not be passed by leaving it out."""
    left_out = {key: tool.defaults[key] for key in tool.defaults if key not in call.params}
    return {**call.params, **left_out}


def _check_rules(run: Run, tool: Tool, call: Call) -> Ask | None:
    """What a rule wants to have asked; raises when one says no."""
    verdict = run.rules(tool, _with_defaults(tool, call), call.ctx)
    if isinstance(verdict, Deny):
        raise ToolAuthorizationError(verdict.reason, reason="rule")
    return verdict


def _effects(tool: Tool, arguments: Any, ctx: Context) -> tuple[Effect, ...]:
    try:
        effects = tuple(tool.effects(arguments, ctx))
        if all(isinstance(each, Effect) and isinstance(each.resource, str) for each in effects):
            return effects
        log.warning("effects of %s are not effects: %r", tool.name, effects)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # the tool's own code
        log.warning("effects of %s failed: %r", tool.name, error)
    return ANYTHING  # if in doubt, it runs alone


async def _ask(run: Run, call: Call, wish: Ask) -> None:
    """Return when a person allowed the call; raise in every other case."""
    scope = run.scope
    if run.approver is None:
        raise nobody_to_ask(wish.title, wish.to_allow)
    timeout_s = run.approval_timeout_s
    if wish.timeout_s is not None:
        timeout_s = min(max(wish.timeout_s, 0.0), MAX_TIMEOUT_S)
    request = Question(
        tool=call.tool,
        params=copy.deepcopy(run.redactor.data(dict(call.params))),
        title=wish.title,
        description=wish.description,
        asked_by=wish.asked_by,
        to_allow=wish.to_allow,
        timeout_s=timeout_s,
        agent=scope.agent,
        session=scope.session,
    )
    try:
        answer = await bounded(run.approver.ask(request), timeout_s)
    except TimeoutError:
        answer = Answer("deny", f"nobody answered within {timeout_s:g} s")
    except ToolAuthorizationError:
        raise  # there was nobody to ask after all
    except Exception as error:  # noqa: BLE001  # whatever goes wrong while asking, the answer is no
        log.warning("asking for approval failed: %r", error)
        answer = Answer("deny", "asking for approval failed")
    if not isinstance(answer, Answer) or answer.verdict != "allow":
        reason = getattr(answer, "reason", "")
        raise ToolAuthorizationError(
            f"{wish.title}: refused{f' ({reason})' if reason else ''}. "
            "This is final: do not try it again in another way",
            reason="approval",
        )


async def _execute(run: Run, prepared: _Prepared, on_event: OnEvent | None) -> Result:
    tool, call, call_id = prepared.tool, prepared.call, prepared.call.ctx.call_id
    if on_event is not None:
        shown = params_for_event(call.params, run.redactor)
        _emit(on_event, "start", tool.name, call_id, {"params": shown})
    try:
        value = await bounded(tool.execute(prepared.arguments, call.ctx), None, run.grace_s)
        result = Result.of(value, tool.name)
    except Exception as error:  # noqa: BLE001  # the boundary where failures become results
        result = _failure(tool.name, error)
    result = await run.hooks.run_after(call, result)
    return _finish(run, result, tool.name, call_id, on_event)


def _finish(run: Run, result: Result, tool: str, call_id: str, on_event: OnEvent | None) -> Result:
    """The result as it goes out, told to whoever watches."""
    try:
        result = finalize(result, redactor=run.redactor, context_window=run.scope.context_window)
    except Exception as error:  # noqa: BLE001  # what a tool put into its details may not be JSON
        result = _failure(tool, error)
    if on_event is not None:
        _emit(on_event, "end", tool, call_id, for_event(result, run.redactor))
    return result


def _failure(tool: str, error: Exception) -> Result:
    """The result that stands for an exception."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, ToolAuthorizationError):
        reason, code = str(error), error.status
        denied = {"deniedReason": error.reason, "reason": reason, "code": code}
        return Result.text(reason, status="blocked", tool=tool, **denied)
    if isinstance(error, ClawkitError):
        code = error.status if isinstance(error, ToolError) else 500
        return Result.error(tool, str(error), code=code)
    log.debug("%s failed", tool, exc_info=error)
    try:
        words = str(error)
    except Exception:  # noqa: BLE001  # somebody else's class
        words = "it does not say why"
    return Result.error(tool, f"{type(error).__name__}: {words}", code=500)


def _emit(on_event: OnEvent, kind: str, tool: str, call_id: str, body: Mapping[str, Any]) -> None:
    """Tell whoever watches. A watcher that fails must not harm the call."""
    try:
        on_event({"type": kind, "tool": tool, "callId": call_id, **body})
    except Exception as error:  # noqa: BLE001  # somebody else's code
        log.warning("an event listener failed: %r", error)
