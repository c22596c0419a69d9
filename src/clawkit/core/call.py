"""The one call path: find, read parameters, hooks, rules, approval, execute, finalize.

The command line, the agent loop, servers and tests all enter here. Tools and services raise; this
module turns both into results. Cancelling the task that awaits a call aborts it.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from clawkit.core import approval
from clawkit.core.catalog import CARRIER, CATALOG, canonical
from clawkit.core.context import Context, Scope
from clawkit.core.finalize import finalize, for_event, params_for_event
from clawkit.core.hooks import Call, Hooks
from clawkit.core.params import read_params
from clawkit.core.result import Result, failure
from clawkit.core.tasks import GRACE_S, bounded
from clawkit.core.tool import ANYTHING, Effect, Tool, collide, resolve
from clawkit.errors import ToolAuthorizationError, ToolError, UnknownToolError
from clawkit.redact import Redactor
from clawkit.text import nearest, one_line

log = logging.getLogger(__name__)


MAX_NAME = 80
"""Characters of an unknown name that are shown."""
CALLED = "calledTool"
"""The detail with the target of a `tool_call`, for later readers of the conversation."""
ACTING = frozenset(("write", "exec", "send"))
"""Effects that change something."""


Event = Mapping[str, Any]
OnEvent = Callable[[Event], None]
OnResult = Callable[[int, Result], None]
"""Called with the index of a call in its message, and its result."""
Rules = Callable[[Tool, Mapping[str, Any], Context], approval.Deny | approval.Ask | None]


class GuardedCall(Struct, frozen=True):
    tool: str  # the canonical name
    params: object  # as sent
    known: bool = True  # whether the run has this tool


class Admission(Struct, frozen=True):
    """The guard's decision about the calls of one message."""

    tickets: Sequence[object]  # one per call, passed back to the guard with the result
    refusals: Sequence[Result] = ()  # one per call if none of them may run


class CallGuard(Protocol):
    """Sees all calls of a session before they run, and their results.

    If it fails before a call, the call is blocked: no call may pass unseen. If it fails after one,
    the result is kept unchanged.
    """

    def begin(self) -> None:
        """Start a new turn."""

    def compacted(self) -> None:
        """The conversation was compacted: the model may have lost earlier results."""

    def admit(self, calls: Sequence[GuardedCall]) -> Admission:
        """Admit the calls of one message, or refuse all of them."""

    def note(self, ticket: object, result: Result, *, acts: bool) -> Result:
        """Record a result, and return the one to send. `acts`: it may have changed something."""


class Run(Struct, frozen=True):
    """Everything that the calls of one run need. Made by assembly."""

    tools: Mapping[str, Tool]  # the tools that policy kept, by canonical name
    workspace: str
    scope: Scope = Scope()
    refused: Mapping[str, str] = MappingProxyType({})
    """Reasons why policy removed tools, by canonical name."""
    rules: Rules = lambda _tool, _params, _ctx: None
    hooks: Hooks = field(default_factory=Hooks)
    approver: approval.Approver | None = None
    approval_timeout_s: float = approval.DEFAULT_TIMEOUT_S
    services: Mapping[type, object] = MappingProxyType({})
    redactor: Redactor = field(default_factory=Redactor)
    grace_s: float = GRACE_S  # how long a cancelled tool may clean up before it is abandoned
    watch: CallGuard | None = None  # detects calls that make no progress
    deferred: frozenset[str] = frozenset()
    """Tools whose schemas are not sent to the model; it calls them through `tool_call`."""


class CallRequest(Struct, frozen=True):
    """A call to make: the name of a tool, its parameters, and an id for events and results."""

    tool: str
    params: object = None
    id: str = ""


def unwrap(run: Run, request: CallRequest) -> CallRequest:
    """The call inside a `tool_call`. Everything after this, such as policy, hooks, rules and
    listeners, sees only the target. Without a deferred target it stays an ordinary call, which
    fails."""
    carrier = run.tools.get(CARRIER)
    if carrier is None or canonical(str(request.tool)) != CARRIER:
        return request
    try:
        _, asked = read_params(carrier, request.params)
    except ToolError:
        return request
    name = canonical(asked.name)
    is_direct = name in run.tools and name not in run.deferred
    return request if is_direct else CallRequest(asked.name, asked.args, request.id)


def find_tool(tools: Mapping[str, Tool], refused: Mapping[str, str], name: str) -> Tool:
    """The tool of this canonical name. Raises `ToolError` if the run does not have it."""
    if (tool := tools.get(name)) is not None:
        return tool
    if name in refused:
        raise ToolAuthorizationError(refused[name])
    if name in CATALOG:
        raise UnknownToolError(f"the tool {name!r} is not available in this build")
    close = " or ".join(map(repr, nearest(name, tuple(tools), 3)))
    near = f"did you mean {close}?" if close else "see the list of tools"
    raise UnknownToolError(f"unknown tool {name[:MAX_NAME]!r}; {near}")


async def call(run: Run, request: CallRequest, on_event: OnEvent | None = None) -> Result:
    """Run one call. Failures are results; only cancellation is raised."""
    [result] = await call_all(run, [request], on_event)
    return result


async def call_all(
    run: Run,
    requests: Iterable[CallRequest],
    on_event: OnEvent | None = None,
    *,
    on_result: OnResult | None = None,
    is_brief: Callable[[], bool] = bool,
) -> list[Result]:
    """Run the calls of one message: admit them in order, then run them in parallel unless they
    collide.

    `on_result` gets each result as soon as it is final, in any order. While `is_brief`, events have
    no results, only whether and why a call failed.
    """
    calls = [
        _Pending(run, request, on_event, on_result and partial(on_result, number), is_brief)
        for number, request in enumerate(requests)
    ]
    _admit(run, calls)
    for each in calls:
        await each.prepare()
    admitted = [each for each in calls if not each.is_done]
    if len(admitted) == 1:
        await admitted[0].carry_out(())
        return [each.result for each in calls]
    for each in admitted:
        each.effects = resolve(each.effects)
    started: list[tuple[_Pending, asyncio.Task[None]]] = []
    async with asyncio.TaskGroup() as group:
        for each in admitted:
            earlier = [task for other, task in started if collide(each.effects, other.effects)]
            started.append((each, group.create_task(each.carry_out(earlier))))
    for _, task in started:
        task.result()  # a TaskGroup ignores a task that was cancelled from within
    return [each.result for each in calls]


def _admit(run: Run, calls: Sequence[_Pending]) -> None:
    if run.watch is None or not calls:
        return
    asked = [GuardedCall(each.name, each.request.params, each.name in run.tools) for each in calls]
    try:
        admission = run.watch.admit(asked)
        refusals, tickets = admission.refusals, admission.tickets
        if len(refusals or tickets) != len(asked):
            raise ValueError("it returned a different number of calls")
    except Exception as error:  # noqa: BLE001  # fail closed: nothing passes unseen
        log.warning("the loop guard failed: %r", error)
        reason = "not executed: the loop guard failed, and no call runs without it"
        refusals = [
            Result.blocked(each.tool[:MAX_NAME], reason, "loop_admission_failure") for each in asked
        ]
    for number, each in enumerate(calls):
        if refusals:
            each.finish(refusals[number], is_noted=False)
        else:
            each.ticket = tickets[number]


class _Pending:
    def __init__(
        self,
        run: Run,
        request: CallRequest,
        on_event: OnEvent | None,
        on_result: Callable[[Result], None] | None,
        is_brief: Callable[[], bool],
    ) -> None:
        self.run = run
        self.request = unwrap(run, request)
        self.name = canonical(str(self.request.tool))
        found = run.tools.get(self.name)
        self.shown = one_line(self.name, MAX_NAME) if found is None else found.name
        """The tool's own name; shortened if there is no such tool."""
        self.ticket: object = None  # passed back to the guard with the result
        self.effects: tuple[Effect, ...] = ()
        self.result = Result()
        self.is_done = False
        self._id = request.id or os.urandom(8).hex()
        self._is_carried = self.request is not request
        self._on_event = on_event
        self._on_result = on_result
        self._is_brief = is_brief
        self._agreed: set[str] = set()  # rules that a person has approved for this call

    async def prepare(self) -> None:
        """Find the tool, read the parameters, and run the before-hooks."""
        if self.is_done:
            return
        try:
            self._tool = find_tool(self.run.tools, self.run.refused, self.name)
            run, tool = self.run, self._tool
            places = run.workspace, run.scope.cwd
            params, self._arguments = read_params(tool, self.request.params, *places)

            async def send_update(update: Result) -> None:
                self._tell("update", update)

            notify = partial(self._tell, "notice")
            ctx = Context(self._id, run.scope, run.workspace, run.services, send_update, notify)
            wanted, self._wish = await run.hooks.run_before(Call(tool.name, params, ctx))
            if wanted is not params:
                params, self._arguments = read_params(tool, wanted, *places)
            ctx = replace(ctx, ask=self._ask_for_tool, permits=self._permits)
            self._call = Call(tool.name, params, ctx)
            self.effects = self._declared_effects()
        except Exception as error:  # noqa: BLE001  # whatever goes wrong, nothing runs
            self.finish(failure(self.shown, error))

    def _declared_effects(self) -> tuple[Effect, ...]:
        name = self._tool.name
        try:
            effects = tuple(self._tool.effects(self._arguments, self._call.ctx))
            if all(isinstance(each, Effect) and isinstance(each.resource, str) for each in effects):
                return effects
            log.warning("effects of %s are invalid: %r", name, effects)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # the tool's own code
            log.warning("effects of %s failed: %r", name, error)
        return ANYTHING  # when in doubt, it runs alone

    async def carry_out(self, earlier: Sequence[Awaitable[None]]) -> None:
        """Wait for the calls it may collide with; then rules, approval, the tool itself."""
        for task in earlier:
            await task
        run, call = self.run, self._call
        try:
            asked = self._check_rules()
            wishes = [wish for wish in (self._wish, asked) if wish is not None]
            for wish in wishes:
                await self._ask(wish)
            if wishes and self._check_rules() != asked:
                raise ToolAuthorizationError(
                    "the target of the call changed while a person was deciding; send it again",
                    reason="rule",
                )
            if asked is not None:
                self._agreed.add(asked.asked_by)
        except Exception as error:  # noqa: BLE001  # as in prepare
            return self.finish(failure(self.shown, error))
        self._tell("start")
        try:
            work = self._tool.execute(self._arguments, call.ctx)
            result = Result.of(await bounded(work, None, run.grace_s), self.shown)
        except Exception as error:  # noqa: BLE001  # the boundary where failures become results
            result = failure(self.shown, error)
        result = await run.hooks.run_after(call, result)
        return self.finish(result, acts=any(each.kind in ACTING for each in self.effects))

    def _check_rules(self) -> approval.Ask | None:
        """The question of a rule, if any; raises if a rule denies the call."""
        verdict = self._judge({})
        if isinstance(verdict, approval.Deny):
            raise ToolAuthorizationError(verdict.reason, reason="rule")
        return verdict

    def _permits(self, path: str) -> bool:
        names = self._tool.paths or self._tool.urls or ("path",)
        verdict = self._judge(dict.fromkeys(names, path))
        return verdict is None or (
            isinstance(verdict, approval.Ask) and verdict.asked_by in self._agreed
        )

    def _judge(self, other: Mapping[str, Any]) -> approval.Deny | approval.Ask | None:
        """The decision of the rules, with `other` parameters in place of the call's own. Defaults
        are filled in, so that a rule about a value cannot be bypassed by omitting it."""
        tool, call = self._tool, self._call
        return self.run.rules(tool, {**tool.defaults, **call.params, **other}, call.ctx)

    async def _ask_for_tool(self, wish: approval.Ask) -> None:
        await self._ask(replace(wish, asked_by=wish.asked_by or f"the tool {self.shown}"))

    async def _ask(self, wish: approval.Ask) -> None:
        """Return if a person allows the call; raise otherwise."""
        run = self.run
        if run.approver is None:
            raise approval.no_approver(wish.title, wish.to_allow)
        timeout_s = run.approval_timeout_s
        if wish.timeout_s is not None:
            timeout_s = min(max(wish.timeout_s, 0.0), approval.MAX_TIMEOUT_S)
        request = approval.Question(
            tool=self.shown,
            params=copy.deepcopy(run.redactor.data(dict(self._call.params))),
            title=wish.title,
            description=wish.description,
            asked_by=wish.asked_by,
            to_allow=wish.to_allow,
            timeout_s=timeout_s,
            agent=run.scope.agent,
            session=run.scope.session,
            call_id=self._id,
        )
        try:
            answer = await bounded(run.approver.ask(request), timeout_s)
        except TimeoutError:
            answer = approval.Answer("deny", f"no answer within {timeout_s:g} s")
        except ToolAuthorizationError:
            raise  # it turned out that no one could be asked
        except Exception as error:  # noqa: BLE001  # whatever goes wrong, the answer is no
            log.warning("asking for approval failed: %r", error)
            answer = approval.Answer("deny", "asking for approval failed")
        if not isinstance(answer, approval.Answer) or answer.verdict != "allow":
            reason = getattr(answer, "reason", "")
            raise ToolAuthorizationError(
                f"{wish.title}: refused{f' ({reason})' if reason else ''}. {approval.FINAL}",
                reason="approval",
            )

    def finish(self, result: Result, *, is_noted: bool = True, acts: bool = False) -> None:
        run = self.run
        try:
            if self._is_carried:
                result = Result(result.content, {**result.details, CALLED: self.shown})
            window = run.scope.context_window
            result = finalize(result, redactor=run.redactor, context_window=window)
        except Exception as error:  # noqa: BLE001  # a tool's details may not be JSON
            words = str(failure(self.shown, error).details["error"])
            result = Result.error(self.shown, run.redactor.strict(words), code=500)
        if is_noted and run.watch is not None:
            try:
                result = run.watch.note(self.ticket, result, acts=acts)
            except Exception as error:  # noqa: BLE001  # the call has happened: keep its result
                log.warning("the loop guard failed to note a result: %r", error)
        self.result, self.is_done = result, True
        self._tell("end", result)
        if self._on_result is not None:
            try:
                self._on_result(result)
            except Exception as error:  # noqa: BLE001  # a listener's own code
                log.warning("a listener for results failed: %r", error)

    def _tell(self, kind: str, result: Result | None = None) -> None:
        if self._on_event is None:
            return
        redactor = self.run.redactor
        if result is None:
            body = {"params": params_for_event(self._call.params, redactor)}
        else:
            # A notice after a call is sent only once, and programs act on it: send it in full.
            is_brief = kind != "notice" and self._is_brief()
            body = for_event(result, redactor, brief=is_brief)
        try:
            self._on_event({"type": kind, "tool": self.shown, "callId": self._id, **body})
        except Exception as error:  # noqa: BLE001  # a failing listener must not harm the call
            log.warning("an event listener failed: %r", error)
