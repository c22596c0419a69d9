"""The gate that every command passes: decision, log, question, binding to the answer.

Approvals for a session are kept in memory only, and cover exactly what was shown.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from msgspec import structs

from clawkit.approvals.audit import FALLBACK, POLICY, Audit
from clawkit.approvals.binding import Binding, bind, check
from clawkit.approvals.file import add_entry, note_use
from clawkit.approvals.judge import Judge
from clawkit.approvals.protocols import (
    Admitted,
    Approvals,
    Confines,
    ExecRequest,
    Ready,
    ScriptFile,
    Waiting,
)
from clawkit.approvals.types import Decision, Match
from clawkit.core.approval import FINAL, NO_ONE, TO_BE_ASKED, Answer
from clawkit.core.tasks import in_thread
from clawkit.errors import ToolAuthorizationError
from clawkit.process.protocols import NO_GRANTS, Grants
from clawkit.redact import Redactor

BREAKER = 3
BREAKER_S = 600.0
TAME = MappingProxyType(
    {
        **dict.fromkeys(("GIT_PAGER", "MANPAGER", "PAGER"), "cat"),
        **dict.fromkeys(("EDITOR", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "VISUAL"), "false"),
        "LESSSECURE": "1",
        # An earlier part of the command could have prepared a directory for a later git.
        "GIT_CONFIG_COUNT": "4",
        "GIT_CONFIG_KEY_0": "safe.bareRepository",
        "GIT_CONFIG_VALUE_0": "explicit",
        "GIT_CONFIG_KEY_1": "core.fsmonitor",
        "GIT_CONFIG_VALUE_1": "false",
        # A command can create a repository whose hooks would run with its grants.
        "GIT_CONFIG_KEY_2": "core.hooksPath",
        "GIT_CONFIG_VALUE_2": "/dev/null",
        # The git at the other end of a push to a directory gets none of these settings.
        "GIT_CONFIG_KEY_3": "protocol.file.allow",
        "GIT_CONFIG_VALUE_3": "never",
    }
)
"""Environment of commands that run without approval. With a terminal, input could make a pager or
an editor start other programs; and git could be led to unchecked configuration."""
_GOALS = _MOST = 256
SESSION = "a person, for this session"  # the actor, in the log
_SCRIPTED = re.compile(r"py|node|deno|bun")
"""Matches every command that may run a script known to `find_scripts`."""
_LONG = 4_096
"""Commands of this many characters are analyzed in a thread, to keep the event loop responsive."""
_STOP = (
    " Several commands in a row have been refused. Do not try other ways to get it done: tell the "
    "person what you need and why, and wait."
)


class LocalGate:
    """The gate of one run on this machine."""

    def __init__(
        self,
        judge: Judge,
        approvals: Callable[[], Approvals],
        audit: Audit,
        redactor: Redactor,
        *,
        timeout_s: float = 120.0,
        confines: Confines | None = None,
        before: Callable[[], Awaitable[None]] | None = None,
        variables: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """Without `confines`, all commands run unconfined, even allowlisted ones. `before` is
        called before every command that is not refused. `variables` are for commands that may leave
        the sandbox."""
        self._judge = judge
        self._approvals = approvals
        self._audit = audit
        self._redactor = redactor
        self._timeout_s = timeout_s
        self._confines = confines
        self._before = before
        self._variables = variables
        self._waiting: dict[str, tuple[Decision, Mapping[str, Any]]] = {}
        self._refusals: OrderedDict[str, tuple[int, float]] = OrderedDict()
        # Approvals for the session are not stored, so none outlives the run.
        self._bindings: OrderedDict[tuple[str, ...], Binding] = OrderedDict()
        self._granted: dict[tuple[str, str], Grants] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def admit(self, request: ExecRequest, ready: Ready) -> Admitted | Waiting:
        granted = self._granted.get((request.agent, request.session), NO_GRANTS)
        request = structs.replace(request, granted=granted)
        decision = await self._judged(request)
        if decision.verdict == "deny":
            raise self._refuse(request, decision, decision.reason, "security")
        await ready(_find_scripts(request, decision))
        if self._before is not None:
            await self._before()
        if decision.verdict == "allow":
            self._write(request, decision, "allow")
            used = {
                result.entry.id: (
                    "" if result.entry.arg_pattern else self._redactor.text(judged.segment.text),
                    program.resolved,
                )
                for judged in decision.segments
                for program, result in zip(judged.segment.programs, judged.results, strict=False)
                if isinstance(result, Match) and result.entry is not None and result.entry.id
            }
            if used:
                await in_thread(note_use, self._judge.document, used, round(time.time() * 1000))
            self._reset_refusals(request)
            return self._admit(request, decision)
        if self._was_allowed(request, decision):
            self._write(request, decision, "allow", by=SESSION)
            self._reset_refusals(request)
            return structs.replace(self._admit(request, decision), asked=True)
        route = self._approvals().route()
        if route == "none":
            return self._unanswered(request, decision, NO_ONE, f". {TO_BE_ASKED}")
        from clawkit.approvals.prompt import make_question  # most commands need no approval

        question = make_question(request, decision, self._redactor, timeout_s=self._timeout_s)
        facts = _facts(request, decision)
        binding, changed = bind(**facts), partial(check, **facts)
        self._write(request, decision, "ask")
        if route == "later":
            pending = self._approvals().submit(question, binding, changed)
            self._waiting[pending.id] = decision, binding
            return Waiting(pending, decision.reason, decision.to_allow)
        answer = await self._approvals().ask(question, binding, changed)
        return await self._settle(request, decision, binding, answer)

    def may_read(self, path: str) -> bool:
        return self._judge.may_read(path)

    async def settle(self, waiting: Waiting, request: ExecRequest) -> Admitted:
        try:
            answer = await self._approvals().outcome(waiting.pending)
        finally:
            decision, binding = self._waiting.pop(waiting.pending.id)
        return await self._settle(request, decision, binding, answer)

    async def _judged(self, request: ExecRequest) -> Decision:
        if len(request.command) < _LONG:
            return self._judge.judge(request)
        decision: Decision = await in_thread(self._judge.judge, request)
        return decision

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def close(self) -> None:
        """Cancel everything that is still waiting."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._audit.close()

    async def _settle(
        self, request: ExecRequest, decision: Decision, binding: Mapping[str, Any], answer: Answer
    ) -> Admitted:
        if answer.verdict != "allow":
            if answer.silent:
                return self._unanswered(request, decision, answer.reason)
            why = f" ({answer.reason})" if answer.reason else ""
            said = f"denied by a person{why}. {FINAL}"
            raise self._refuse(request, decision, said, "approval", by=answer.by)
        # Things may have changed while the person was deciding.
        now = await self._judged(request)
        changed = check(binding, **_facts(request, now))
        if now.verdict == "deny":
            changed = now.reason
        if changed:
            said = f"approved, but not run: {changed}. Send it again"
            raise self._refuse(request, decision, said, "approval", by=answer.by)
        self._write(request, decision, "allow", by=answer.by or "a person", extent=answer.extent)
        if answer.extent == "session" and decision.code == "access":
            key = request.agent, request.session
            self._granted[key] = self._granted.get(key, NO_GRANTS) | decision.grants
        elif answer.extent == "session":
            self._bindings[_key(request)] = binding
            self._bindings.move_to_end(_key(request))
            if len(self._bindings) > _MOST:
                self._bindings.popitem(last=False)
        elif answer.extent is not None:
            offer = next((each for each in decision.offers if each.extent == answer.extent), None)
            for entry in offer.entries if offer is not None else ():
                await in_thread(add_entry, self._judge.document, request.agent, entry)
        self._reset_refusals(request)
        return structs.replace(self._admit(request, decision), asked=True)

    def _was_allowed(self, request: ExecRequest, decision: Decision) -> bool:
        """Whether exactly this was approved for the session: same command, directory, variables,
        programs, scripts and mode. An approval that no longer applies is dropped."""
        binding = self._bindings.get(_key(request))
        if binding is None:
            return False
        from clawkit.approvals.prompt import lasts_for_session

        if lasts_for_session(decision) and not check(binding, **_facts(request, decision)):
            return True
        del self._bindings[_key(request)]
        return False

    def _unanswered(
        self, request: ExecRequest, decision: Decision, why: str, hint: str = ""
    ) -> Admitted:
        from clawkit.approvals.decide import as_listed, fallback_verdict

        if fallback_verdict(decision) == "allow":
            self._write(request, decision, "allow", by=f"{FALLBACK}, because {why}")
            return self._admit(request, as_listed(decision))
        said = f"{decision.reason}. This needs a person's approval, and {why}{hint}"
        raise self._refuse(request, decision, said, "approval-unavailable")

    def _admit(self, request: ExecRequest, decision: Decision) -> Admitted:
        if decision.place == "sandbox" and self._confines is not None:
            host, hold, env = self._confines.in_sandbox(decision.grants)
            return Admitted(decision.run, None, host=host, hold=hold, env=env)
        own = self._variables()
        if decision.place == "host" or self._confines is None:
            tame = {} if decision.place == "host" else TAME
            return Admitted(decision.run, decision.programs, env=tame, defaults=own)
        host, hold, env = self._confines.by_entry(decision.grants)
        env = {**TAME, **env}
        return Admitted(
            decision.run, decision.programs, host=host, hold=hold, env=env, defaults=own
        )

    def _refuse(
        self, request: ExecRequest, decision: Decision, message: str, reason: str, *, by: str = ""
    ) -> ToolAuthorizationError:
        self._write(request, decision, "deny", by=by, why=message)
        text = message if message.endswith((".", "?")) else f"{message}."
        if self._count(request, decision) >= BREAKER:
            text += _STOP
        if decision.to_allow and reason != "approval":
            # Last, so that no text follows the command to type.
            text += f" To allow it, a person can type: {decision.to_allow}"
        return ToolAuthorizationError(text, reason=reason)

    def _count(self, request: ExecRequest, decision: Decision) -> int:
        """Consecutive refusals of the same programs, or in total, whichever is higher."""
        missed = (judged.segment.programs for judged in decision.segments if judged.misses)
        names = (os.path.basename(each.name) for programs in missed for each in programs)
        goal = " ".join(sorted(names)) or decision.code
        now, counts = time.monotonic(), []
        for key in (f"{request.session}\0{goal}", f"{request.session}\0"):
            times, at = self._refusals.pop(key, (0, now))
            times = times + 1 if now - at < BREAKER_S else 1
            self._refusals[key] = times, now
            counts.append(times)
        while len(self._refusals) > _GOALS:
            self._refusals.popitem(last=False)
        return max(counts)

    def _reset_refusals(self, request: ExecRequest) -> None:
        self._refusals.pop(f"{request.session}\0", None)

    def _write(
        self, request: ExecRequest, decision: Decision, verdict: str, *, by: str = "", **more: Any
    ) -> None:
        """Raises `ToolAuthorizationError` if an approval or a question cannot be logged."""
        self._audit.write(
            {
                "verdict": verdict,
                "code": decision.code,
                "reason": decision.reason,
                "rules": [
                    each.rule if isinstance(each, Match) else f"no rule: {each.reason}"
                    for judged in decision.segments
                    for each in judged.results
                ],
                "actor": by or POLICY,
                "agent": request.agent,
                "session": request.session,
                "host": request.host,
                "cwd": request.cwd,
                "command": request.command,
                "programs": [
                    {"resolved": each.resolved, "argv": [arg.text for arg in each.argv]}
                    for judged in decision.segments
                    for each in judged.segment.programs
                ],
                "security": decision.policy.security,
                "ask": decision.policy.ask,
                **more,
            }
        )


def _find_scripts(request: ExecRequest, decision: Decision) -> Sequence[ScriptFile]:
    """The scripts of a command, which is analyzed now if the decision did not need to."""
    if not _SCRIPTED.search(request.command):
        return ()
    from clawkit.approvals.analysis import analyze
    from clawkit.approvals.inline_code import find_scripts

    if decision.segments or decision.doubt is not None:
        return find_scripts([judged.segment for judged in decision.segments])
    return find_scripts(analyze(request.command, cwd=request.cwd, env=request.env).segments)


def _facts(request: ExecRequest, decision: Decision) -> dict[str, Any]:
    from clawkit.approvals.entries import describe_grants
    from clawkit.approvals.inline_code import how_called

    programs = [program for judged in decision.segments for program in judged.segment.programs]
    scripts = [
        os.path.join(program.cwd or request.cwd, script.text)
        for program in programs
        if (script := how_called(program).script) is not None
    ]
    return {
        "command": request.command,
        "run": decision.run,
        "argv": [[arg.text for arg in program.argv] for program in programs],
        "cwd": request.cwd,
        "env": request.env,
        "programs": [program.real for program in programs if program.real],
        "scripts": scripts,
        "agent": request.agent,
        "session": request.session,
        "modes": (*request.modes, decision.place, describe_grants(decision.grants)),
    }


def _key(request: ExecRequest) -> tuple[str, ...]:
    return request.agent, request.session, request.cwd, request.command
