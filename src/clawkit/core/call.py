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
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from msgspec import Struct, structs

from clawkit.core.approval import (
    DEFAULT_TIMEOUT_S,
    FINAL,
    MAX_TIMEOUT_S,
    Answer,
    Approver,
    Ask,
    Deny,
    Question,
    nobody_to_ask,
)
from clawkit.core.catalog import CATALOG, canonical
from clawkit.core.context import Context, Scope
from clawkit.core.finalize import finalize, for_event, params_for_event
from clawkit.core.hooks import Call, Hooks
from clawkit.core.params import read_params
from clawkit.core.result import Result, failure
from clawkit.core.tasks import GRACE_S, bounded
from clawkit.core.tool import ANYTHING, Effect, Tool, collide
from clawkit.errors import ToolAuthorizationError, UnknownToolError
from clawkit.redact import Redactor
from clawkit.text import nearest, one_line

log = logging.getLogger(__name__)


MAX_NAME = 80
"""Characters of an unknown name that are repeated."""
ACTING = frozenset(("write", "exec", "send"))
"""Effects that change something."""


Event = Mapping[str, Any]
OnEvent = Callable[[Event], None]
OnResult = Callable[[int, Result], None]
"""Told the place of a call in its message, and its result."""
Rules = Callable[[Tool, Mapping[str, Any], Context], Deny | Ask | None]


class Asked(NamedTuple):
    """A call that is asked for."""

    tool: str
    """Its canonical name."""
    params: object
    """As they were sent."""
    known: bool = True
    """Whether the run has such a tool."""


class Admission(Struct, frozen=True):
    """What the guard says about the calls of one message."""

    tickets: Sequence[object]
    """One for each call; the guard gets it back together with the result."""
    refusals: Sequence[Result] = ()
    """One for each call when none of them is to run."""


class CallGuard(Protocol):
    """Looks at all calls of a session, before anything is done about them and at their results.

    One that fails on the way in blocks: no call may pass unseen. One that fails on the way out
    changes nothing: the call has happened, and its result is kept.
    """

    def begin(self) -> None:
        """A new turn begins."""
        ...

    def compacted(self) -> None:
        """The conversation was shortened: what the model had seen before, it may have forgotten."""
        ...

    def admit(self, calls: Sequence[Asked]) -> Admission:
        """Let the calls of one message pass, or none of them."""
        ...

    def note(self, ticket: object, result: Result, *, acts: bool) -> Result:
        """Take note of a result, and give back the one that goes out.

        `acts` says that the tool ran and is one that may change something.
        """
        ...


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
    watch: CallGuard | None = None
    """Looks for calls that make no progress."""


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A call as it came in."""

    tool: str
    params: object = None
    id: str = ""


class _Entry(Struct, frozen=True):
    """A call on its way, whatever becomes of it."""

    run: Run
    request: CallRequest
    name: str
    """The canonical name it asks for."""
    shown: str
    """The tool's own name; a short one if there is no such tool."""
    id: str
    on_event: OnEvent | None
    on_result: Callable[[Result], None] | None
    ticket: object = None
    """What the guard wants to have back."""


class _Prepared(Struct, frozen=True):
    """A call that is understood, and that no hook blocked."""

    entry: _Entry
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
    [entered] = _enter(run, [_entry(run, request, on_event)])
    prepared = await _prepare(entered)
    if isinstance(prepared, Result):
        return prepared
    return await _carry_out((), prepared)


async def call_all(
    run: Run,
    requests: Iterable[CallRequest],
    on_event: OnEvent | None = None,
    *,
    on_result: OnResult | None = None,
) -> list[Result]:
    """The calls of one message: admitted in order, then side by side where they cannot collide.

    `on_result` is told each result as soon as it is final, in whatever order that is.
    """
    entries = [
        _entry(run, request, on_event, on_result and partial(on_result, number))
        for number, request in enumerate(requests)
    ]
    prepared = [await _prepare(entered) for entered in _enter(run, entries)]
    if len(prepared) == 1 and isinstance(prepared[0], _Prepared):
        return [await _carry_out((), prepared[0])]
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
            started.append(group.create_task(_carry_out(earlier, each)))
    return [each if isinstance(each, Result) else each.result() for each in started]


def _entry(
    run: Run,
    request: CallRequest,
    on_event: OnEvent | None,
    on_result: Callable[[Result], None] | None = None,
) -> _Entry:
    name = canonical(str(request.tool))
    tool = run.tools.get(name)
    shown = one_line(name, MAX_NAME) if tool is None else tool.name
    call_id = request.id or os.urandom(8).hex()
    return _Entry(run, request, name, shown, call_id, on_event, on_result)


def _enter(run: Run, entries: Sequence[_Entry]) -> Sequence[_Entry | Result]:
    """The calls of a message as the guard lets them pass: all of them, or none."""
    if run.watch is None or not entries:
        return entries
    asked = [Asked(each.name, each.request.params, each.name in run.tools) for each in entries]
    refusals: Sequence[Result]
    try:
        admission = run.watch.admit(asked)
        refusals, tickets = admission.refusals, admission.tickets
        if len(refusals or tickets) != len(asked):
            raise ValueError("it answered for another number of calls")
    except Exception as error:  # noqa: BLE001  # whatever it does wrong, nothing passes unseen
        log.warning("the guard against loops failed: %r", error)
        refusals, tickets = [_unseen(each.tool) for each in asked], ()
    if refusals:
        return [_told(e, _final(e, r)) for e, r in zip(entries, refusals, strict=True)]
    return [structs.replace(e, ticket=t) for e, t in zip(entries, tickets, strict=True)]


def _unseen(tool: str) -> Result:
    reason = "not executed: the guard against loops failed, and without it no call is made"
    denied = {"deniedReason": "loop_admission_failure", "reason": reason, "code": 403}
    return Result.text(reason, status="blocked", tool=tool[:MAX_NAME], **denied)


async def _carry_out(earlier: Sequence[Awaitable[Result]], prepared: _Prepared) -> Result:
    """When the calls it could collide with are done: rules, a person, the tool itself."""
    for task in earlier:
        await task
    try:
        await _decide(prepared.entry.run, prepared)
    except Exception as error:  # noqa: BLE001  # as in _prepare
        return _finish(prepared.entry, failure(prepared.tool.name, error))
    return await _execute(prepared)


async def _prepare(entry: _Entry | Result) -> _Prepared | Result:
    """Everything that comes before the tool itself; a refusal is a finished result."""
    if isinstance(entry, Result):
        return entry
    try:
        return await _admit(entry, _find(entry.run, entry.name))
    except Exception as error:  # noqa: BLE001  # whatever goes wrong on the way, nothing runs
        return _finish(entry, failure(entry.shown, error))


def _find(run: Run, key: str) -> Tool:
    if (tool := run.tools.get(key)) is not None:
        return tool
    if key in run.refused:
        raise ToolAuthorizationError(run.refused[key])
    if key in CATALOG:
        raise UnknownToolError(f"the tool {key!r} is not available in this build")
    close = nearest(key, tuple(run.tools), 3)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else "see the list of tools"
    raise UnknownToolError(f"unknown tool {key[:MAX_NAME]!r}; {hint}")


def _context(entry: _Entry) -> Context:
    run = entry.run

    async def send_update(update: Result) -> None:
        _tell(entry, "update", update)

    def notify(notice: Result) -> None:
        _tell(entry, "notice", notice)

    return Context(entry.id, run.scope, run.workspace, run.services, send_update, notify)


async def _admit(entry: _Entry, tool: Tool) -> _Prepared:
    run = entry.run
    params, arguments = read_params(tool, entry.request.params, run.workspace)
    call = Call(tool.name, params, _context(entry))
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
    effects = _effects(tool, arguments, ctx)
    return _Prepared(entry, tool, call, arguments, effects, outcome.ask, agreed)


def _with_questions(run: Run, tool: Tool, call: Call, agreed: set[str]) -> Context:
    """The context, able to ask a person and the rules about this call."""

    async def ask(wish: Ask) -> None:
        named = wish if wish.asked_by else replace(wish, asked_by=f"the tool {call.tool}")
        await _ask(run, call, named)

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
        answer = Answer("deny", f"no answer within {timeout_s:g} s")
    except ToolAuthorizationError:
        raise  # there was nobody to ask after all
    except Exception as error:  # noqa: BLE001  # whatever goes wrong while asking, the answer is no
        log.warning("asking for approval failed: %r", error)
        answer = Answer("deny", "asking for approval failed")
    if not isinstance(answer, Answer) or answer.verdict != "allow":
        reason = getattr(answer, "reason", "")
        raise ToolAuthorizationError(
            f"{wish.title}: refused{f' ({reason})' if reason else ''}. {FINAL}",
            reason="approval",
        )


async def _execute(prepared: _Prepared) -> Result:
    entry, tool, call = prepared.entry, prepared.tool, prepared.call
    run = entry.run
    if entry.on_event is not None:
        shown = params_for_event(call.params, run.redactor)
        _emit(entry, entry.on_event, "start", {"params": shown})
    try:
        value = await bounded(tool.execute(prepared.arguments, call.ctx), None, run.grace_s)
        result = Result.of(value, tool.name)
    except Exception as error:  # noqa: BLE001  # the boundary where failures become results
        result = failure(tool.name, error)
    result = await run.hooks.run_after(call, result)
    return _finish(entry, result, acts=any(each.kind in ACTING for each in prepared.effects))


def _finish(entry: _Entry, result: Result, *, acts: bool = False) -> Result:
    """The result as it goes out, noted by the guard and sent to the listeners."""
    result = _final(entry, result)
    if entry.run.watch is not None:
        try:
            result = entry.run.watch.note(entry.ticket, result, acts=acts)
        except Exception as error:  # noqa: BLE001  # the call has happened: its result is kept
            log.warning("the guard against loops failed to take note: %r", error)
    return _told(entry, result)


def _final(entry: _Entry, result: Result) -> Result:
    window = entry.run.scope.context_window
    try:
        return finalize(result, redactor=entry.run.redactor, context_window=window)
    except Exception as error:  # noqa: BLE001  # what a tool put into its details may not be JSON
        words = str(failure(entry.shown, error).details["error"])
        return Result.error(entry.shown, entry.run.redactor.strict(words), code=500)


def _told(entry: _Entry, result: Result) -> Result:
    _tell(entry, "end", result)
    if entry.on_result is not None:
        try:
            entry.on_result(result)
        except Exception as error:  # noqa: BLE001  # a listener's own code
            log.warning("a listener for results failed: %r", error)
    return result


def _tell(entry: _Entry, kind: str, result: Result) -> None:
    if entry.on_event is not None:
        _emit(entry, entry.on_event, kind, for_event(result, entry.run.redactor))


def _emit(entry: _Entry, on_event: OnEvent, kind: str, body: Mapping[str, Any]) -> None:
    try:
        on_event({"type": kind, "tool": entry.shown, "callId": entry.id, **body})
    except Exception as error:  # noqa: BLE001  # a listener that fails must not harm the call
        log.warning("an event listener failed: %r", error)
