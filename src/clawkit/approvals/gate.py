"""The gate that every command passes: judged, written down, asked about, bound to the answer."""

from __future__ import annotations

import asyncio
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from clawkit.approvals.audit import FALLBACK, POLICY, Audit, ProgramFact
from clawkit.approvals.base import Decision, Match, Miss
from clawkit.approvals.binding import bind, check
from clawkit.approvals.decide import after_silence, named_programs
from clawkit.approvals.document import add_entry, note_use
from clawkit.approvals.interpreters import script_operand
from clawkit.approvals.judge import Judge
from clawkit.approvals.seam import Admitted, Approvals, Request, Waiting
from clawkit.core.approval import FINAL, Answer, Extent, Lasting, Question
from clawkit.core.bounded import in_thread
from clawkit.errors import ToolAuthorizationError
from clawkit.process import landlock
from clawkit.redact import MASK, Redactor, is_secret_name
from clawkit.text import one_line, printable

BREAKER = 3
"""Refusals after which the model is told to stop."""
BREAKER_S = 600.0
"""How long a refusal counts."""
TAME = MappingProxyType(
    {
        **dict.fromkeys(("GIT_PAGER", "MANPAGER", "PAGER"), "cat"),
        **dict.fromkeys(("EDITOR", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "VISUAL"), "false"),
        "LESSSECURE": "1",
        # What an earlier part of a command could have made of a directory, for git in a later one.
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "safe.bareRepository",
        "GIT_CONFIG_VALUE_0": "explicit",
        "GIT_CONFIG_KEY_1": "core.fsmonitor",
        "GIT_CONFIG_VALUE_1": "false",
    }
)
"""Variables of what runs unasked. In a terminal, whoever types could have a pager or an editor
start anything; and git could be led to settings that nobody looked at."""
_ACTIVE = "$`;|&<>(){}[]\\'\"~!?# \t\n"
"""What a shell does something about."""
_GOALS = 256
_LONG = 4_096
"""Characters of a command that is not judged while everything else waits."""
_TITLE = 200
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
        confines: bool | None = None,
    ) -> None:
        """`confines` says whether the kernel can hold commands; left out, it is asked."""
        self._judge = judge
        self._approvals = approvals
        self._audit = audit
        self._redactor = redactor
        self._timeout_s = timeout_s
        self._confines = landlock.available() if confines is None else confines
        self._has_warned = False
        self._waiting: dict[str, tuple[Decision, Mapping[str, Any]]] = {}
        self._refusals: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    async def admit(
        self, request: Request, ready: Callable[[], Awaitable[None]]
    ) -> Admitted | Waiting:
        decision = await self._judged(request)
        if decision.verdict != "deny":
            await ready()
        if decision.verdict == "allow":
            # While the command is being started, which takes longer than this.
            asyncio.get_running_loop().call_soon(self._write, request, decision, "allow")
            await self._note_use(decision)
            self._forgive(request)
            return self._admit_listed(decision)
        if decision.verdict == "deny":
            raise self._refuse(request, decision, decision.reason, "security")
        route = self._approvals().route()
        if route == "none":
            return self._unanswered(request, decision, "nobody can be asked here")
        question = self._question(request, decision)
        binding = bind(**_facts(request, decision))
        self._write(request, decision, "ask")
        if route == "later":
            pending = self._approvals().submit(question, binding)
            self._waiting[pending.id] = decision, binding
            return Waiting(pending, decision.reason, decision.to_allow)
        answer = await self._approvals().ask(question, binding)
        return await self._settle(request, decision, binding, answer)

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
        if answer.extent is not None:
            await self._remember(request, decision, answer.extent)
        self._write(request, decision, "allow", by=answer.by or "a person", extent=answer.extent)
        self._forgive(request)
        return Admitted(decision.run, None, asked=True)

    def _unanswered(self, request: Request, decision: Decision, why: str) -> Admitted:
        if after_silence(decision) == "allow":
            self._write(request, decision, "allow", by=f"{FALLBACK}, because {why}")
            return self._admit_listed(replace(decision, programs=named_programs(decision)))
        said = f"{decision.reason}. This needs a person's approval, and {why}"
        raise self._refuse(request, decision, said, "approval-unavailable")

    def _admit_listed(self, decision: Decision) -> Admitted:
        tame = TAME if decision.code != "full" else {}
        warning = ""
        if decision.programs is not None and not self._confines and not self._has_warned:
            self._has_warned = True
            warning = (
                "the kernel has no Landlock, so nothing but the analysis of commands keeps them to "
                "the programs that are allowed"
            )
        return Admitted(decision.run, decision.programs, env=tame, warning=warning)

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
        goal = " ".join(sorted(_names(decision))) or decision.code
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

    def _question(self, request: Request, decision: Decision) -> Question:
        return Question(
            tool="exec",
            params={},
            title="run a command",
            description=decision.reason,
            asked_by=", ".join(decision.policy.sources),
            to_allow=decision.to_allow,
            timeout_s=self._timeout_s,
            agent=request.agent,
            session=request.session,
            command=self._show(request.command),
            cwd=request.cwd,
            host=request.host,
            notes=tuple(map(self._show, (*_notes(decision), *_variables(request)))),
            lasting=tuple(Lasting(each.extent, each.words) for each in decision.offers),
        )

    def _show(self, text: str) -> str:
        """Without secrets, unless that would hide something from the person that acts."""
        masked = self._redactor.text(text)
        hides = any(text.count(char) != masked.count(char) for char in _ACTIVE)
        return text if hides else masked

    async def _remember(self, request: Request, decision: Decision, extent: Extent) -> None:
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
        self._audit.write(
            {
                "verdict": verdict,
                "code": decision.code,
                "reason": decision.reason,
                "rules": [_words(each) for judged in decision.segments for each in judged.results],
                "actor": by or POLICY,
                "agent": request.agent,
                "session": request.session,
                "host": request.host,
                "cwd": request.cwd,
                "command": request.command,
                "programs": list(_programs(decision)),
                "security": decision.policy.security,
                "ask": decision.policy.ask,
                **more,
            }
        )


def _words(result: Match | Miss) -> str:
    return result.rule if isinstance(result, Match) else f"no rule: {result.reason}"


def _programs(decision: Decision) -> Iterator[ProgramFact]:
    for judged in decision.segments:
        for program, result in zip(judged.segment.programs, judged.results, strict=False):
            yield {
                "resolved": program.resolved,
                "argv": [arg.text for arg in program.argv],
                "code": result.code if isinstance(result, Miss) else "",
                "wrapper": program.wrapper,
            }


def _names(decision: Decision) -> Iterator[str]:
    """The programs that were in the way."""
    for judged in decision.segments:
        if judged.misses:
            yield from (os.path.basename(each.name) for each in judged.segment.programs)


def _notes(decision: Decision) -> Iterator[str]:
    """For the person: what each part starts, and what is missing."""
    for judged in decision.segments:
        shown = one_line(printable(judged.segment.text, ""), _TITLE)
        for result in judged.results:
            word = "allowed" if isinstance(result, Match) else "asks"
            why = result.rule if isinstance(result, Match) else result.reason
            yield f"{shown}: {word}: {why}"
    if decision.doubt is not None:
        yield f"not understood: {decision.doubt.reason}"


def _variables(request: Request) -> Iterator[str]:
    """What the call sets for the command."""
    for name in request.assigned:
        value = MASK if is_secret_name(name) else printable(request.env.get(name, ""), "")
        yield f"with {name}={one_line(value, _TITLE)}"


def _facts(request: Request, decision: Decision) -> dict[str, Any]:
    """What a yes is bound to."""
    programs = [program for judged in decision.segments for program in judged.segment.programs]
    scripts = [
        os.path.join(program.cwd or request.cwd, script.text)
        for program in programs
        if (script := script_operand(program)) is not None
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
    }
