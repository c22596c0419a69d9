"""The gate that every command passes: judged, logged, asked about, bound to the answer.

Approvals for a session are remembered while clawkit runs, for exactly what was shown.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from clawkit.approvals.audit import FALLBACK, POLICY, Audit
from clawkit.approvals.binding import Binding, bind, check
from clawkit.approvals.file import add_entry, note_use
from clawkit.approvals.judge import Judge
from clawkit.approvals.protocols import (
    Admitted,
    Approvals,
    Confines,
    Ready,
    Request,
    Script,
    Waiting,
)
from clawkit.approvals.types import Decision, Match
from clawkit.core.approval import FINAL, Answer, StoredExtent
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
        # What an earlier part of a command could have made of a directory, for git in a later one.
        "GIT_CONFIG_COUNT": "3",
        "GIT_CONFIG_KEY_0": "safe.bareRepository",
        "GIT_CONFIG_VALUE_0": "explicit",
        "GIT_CONFIG_KEY_1": "core.fsmonitor",
        "GIT_CONFIG_VALUE_1": "false",
        # A command can make a repository, and with it hooks that would share what is granted.
        "GIT_CONFIG_KEY_2": "core.hooksPath",
        "GIT_CONFIG_VALUE_2": "/dev/null",
    }
)
"""Variables of what runs unasked. In a terminal, whoever types could have a pager or an editor
start anything; and git could be led to settings that nobody looked at."""
_GOALS = _MOST = 256
SESSION = "a person, for this session"  # the actor, in the log
_SCRIPTED = re.compile(r"py|node|deno|bun")
"""What is in every command that may run a script of `find_scripts`."""
_LONG = 4_096
"""Characters of a command that is not judged while everything else waits."""
_STOP = (
    " Several commands in a row have been refused. Stop trying to get it done in other ways: tell "
    "the person what you need and why, and wait."
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
    ) -> None:
        """Without `confines`, commands run unconfined: what an entry allows as well. `before` is
        called ahead of every command that may run."""
        self._judge = judge
        self._approvals = approvals
        self._audit = audit
        self._redactor = redactor
        self._timeout_s = timeout_s
        self._confines = confines
        self._before = before
        self._waiting: dict[str, tuple[Decision, Mapping[str, Any]]] = {}
        self._refusals: OrderedDict[str, tuple[int, float]] = OrderedDict()
        # Approvals for a session: none is stored, so none outlives the run.
        self._bindings: OrderedDict[tuple[str, ...], Binding] = OrderedDict()
        self._granted: dict[tuple[str, str], Grants] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def admit(self, request: Request, ready: Ready) -> Admitted | Waiting:
        granted = self._granted.get((request.agent, request.session), NO_GRANTS)
        request = request._replace(granted=granted)
        decision = await self._judged(request)
        if decision.verdict != "deny":
            await ready(_find_scripts(request, decision))
            if self._before is not None:
                await self._before()
        if decision.verdict == "allow":
            self._write(request, decision, "allow")
            await self._note_use(decision)
            self._forgive(request)
            return self._admit(request, decision)
        if decision.verdict == "deny":
            raise self._refuse(request, decision, decision.reason, "security")
        if self._was_allowed(request, decision):
            self._write(request, decision, "allow", by=SESSION)
            self._forgive(request)
            return self._admit(request, decision)._replace(asked=True)
        route = self._approvals().route()
        if route == "none":
            return self._unanswered(request, decision, "there is no one here to ask")
        from clawkit.approvals.prompt import make_question  # most commands ask nobody

        question = make_question(request, decision, self._redactor, timeout_s=self._timeout_s)
        binding = bind(**_facts(request, decision))
        self._write(request, decision, "ask")
        if route == "later":
            pending = self._approvals().submit(question, binding)
            self._waiting[pending.id] = decision, binding
            return Waiting(pending, decision.reason, decision.to_allow)
        answer = await self._approvals().ask(question, binding)
        return await self._settle(request, decision, binding, answer)

    def may_read(self, path: str) -> bool:
        return self._judge.may_read(path)

    async def settle(self, waiting: Waiting, request: Request) -> Admitted:
        try:
            answer = await self._approvals().outcome(waiting.pending)
        finally:
            decision, binding = self._waiting.pop(waiting.pending.id)
        return await self._settle(request, decision, binding, answer)

    async def _judged(self, request: Request) -> Decision:
        if len(request.command) < _LONG:
            return self._judge.judge(request)
        decision: Decision = await in_thread(self._judge.judge, request)
        return decision

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Until nothing waits for an answer any more, and what was allowed has been carried out."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def close(self) -> None:
        """Give up what still waits."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._audit.close()

    async def _settle(
        self, request: Request, decision: Decision, binding: Mapping[str, Any], answer: Answer
    ) -> Admitted:
        if answer.verdict != "allow":
            if answer.silent:
                return self._unanswered(request, decision, answer.reason)
            why = f" ({answer.reason})" if answer.reason else ""
            said = f"a person refused it{why}. {FINAL}"
            raise self._refuse(request, decision, said, "approval", by=answer.by)
        # The world may have moved while the person was thinking.
        now = await self._judged(request)
        changed = check(binding, **_facts(request, now))
        if now.verdict == "deny":
            changed = now.reason
        if changed:
            said = f"it was allowed, but not run: {changed}. Send it again"
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
            await self._remember(request, decision, answer.extent)
        self._forgive(request)
        return self._admit(request, decision)._replace(asked=True)

    def _was_allowed(self, request: Request, decision: Decision) -> bool:
        """Whether exactly this was allowed for the session: command, directory, variables,
        programs, scripts, and the way it runs are as they were. What was changed is forgotten."""
        binding = self._bindings.get(_key(request))
        if binding is None:
            return False
        from clawkit.approvals.prompt import lasts_for_session

        if lasts_for_session(decision) and not check(binding, **_facts(request, decision)):
            return True
        del self._bindings[_key(request)]
        return False

    def _unanswered(self, request: Request, decision: Decision, why: str) -> Admitted:
        from clawkit.approvals.decide import after_silence, as_listed

        if after_silence(decision) == "allow":
            self._write(request, decision, "allow", by=f"{FALLBACK}, because {why}")
            return self._admit(request, as_listed(decision))
        said = f"{decision.reason}. This needs a person's approval, and {why}"
        raise self._refuse(request, decision, said, "approval-unavailable")

    def _admit(self, request: Request, decision: Decision) -> Admitted:
        if decision.place == "host" or self._confines is None:
            tame = {} if decision.place == "host" else TAME
            return Admitted(decision.run, decision.programs, env=tame)
        if decision.place == "sandbox":
            host, hold, env = self._confines.in_sandbox(decision.grants)
            return Admitted(decision.run, None, host=host, hold=hold, env=env)
        host, hold, env = self._confines.by_entry(decision.grants)
        env = {**TAME, **env}
        return Admitted(decision.run, decision.programs, host=host, hold=hold, env=env)

    def _refuse(
        self, request: Request, decision: Decision, said: str, reason: str, *, by: str = ""
    ) -> ToolAuthorizationError:
        self._write(request, decision, "deny", by=by, why=said)
        text = f"{said}." if not said.endswith(".") else said
        if self._count(request, decision) >= BREAKER:
            text += _STOP
        if decision.to_allow and reason != "approval":
            # At the end, so that nothing sticks to what is to be typed.
            text += f" To allow it, a person can type: {decision.to_allow}"
        return ToolAuthorizationError(text, reason=reason)

    def _count(self, request: Request, decision: Decision) -> int:
        """How often this, or anything at all, has been refused in a row."""
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

    def _forgive(self, request: Request) -> None:
        self._refusals.pop(f"{request.session}\0", None)

    async def _remember(self, request: Request, decision: Decision, extent: StoredExtent) -> None:
        offer = next((each for each in decision.offers if each.extent == extent), None)
        for entry in offer.entries if offer is not None else ():
            await in_thread(add_entry, self._judge.document, request.agent, entry)

    async def _note_use(self, decision: Decision) -> None:
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

    def _write(
        self, request: Request, decision: Decision, verdict: str, *, by: str = "", **more: Any
    ) -> None:
        """Raises `ToolAuthorizationError` when an approval or a question cannot be logged."""
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


def _find_scripts(request: Request, decision: Decision) -> Sequence[Script]:
    """The scripts of a command, which is parsed now if the decision took no look at it."""
    if not _SCRIPTED.search(request.command):
        return ()
    from clawkit.approvals.analysis import analyze
    from clawkit.approvals.interpreters import find_scripts

    if decision.segments or decision.doubt is not None:
        return find_scripts([judged.segment for judged in decision.segments])
    return find_scripts(analyze(request.command, cwd=request.cwd, env=request.env).segments)


def _facts(request: Request, decision: Decision) -> dict[str, Any]:
    from clawkit.approvals.entries import describe_grants
    from clawkit.approvals.interpreters import how_called

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


def _key(request: Request) -> tuple[str, ...]:
    return request.agent, request.session, request.cwd, request.command
