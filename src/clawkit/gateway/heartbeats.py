"""The heartbeats of the gateway's agents: their jobs, turns and results."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from clawkit.content import Source, Text, User
from clawkit.cron import heartbeat
from clawkit.cron.jobs import Job
from clawkit.cron.outcome import ACK_CHARS, Outcome, without_token
from clawkit.cron.store import CronRun, JobRow
from clawkit.errors import NotFoundError, ToolError, ToolInputError
from clawkit.gateway.open_agent import Opening
from clawkit.gateway.protocol import GatewayError, now_ms
from clawkit.gateway.scopes import READ
from clawkit.gateway.wake_ups import WakeUps
from clawkit.session_cron import heartbeat_facts, keep_heartbeat
from clawkit.sessions.protocols import session_key
from clawkit.text import one_line, parse_time

if TYPE_CHECKING:
    from clawkit.gateway.job_runner import JobRunner
    from clawkit.gateway.server import Gateway
    from clawkit.tools.heartbeat_respond import Params

LOOK_S = 60.0
"""Interval for checking HEARTBEAT.md."""
MAX_CONTEXT = 20_000
"""Tokens after which an agent's heartbeat session starts over."""
_MAIL = "Messages were left for you until this heartbeat; they follow."
_STOPPED = (
    "The heartbeats of {} are paused, because the model cannot be used: {}\nOnce that is fixed: "
    "clawkit heartbeat resume"
)
log = logging.getLogger(__name__)


class Reply:
    """Receives the answer of a heartbeat from its tool."""

    def __init__(self) -> None:
        self.given: Params | None = None
        self.delay_ms = 0

    def respond(self, params: Params) -> dict[str, Any]:
        if self.given is not None:
            raise ToolInputError("this heartbeat was already answered; it accepts only one answer")
        if params.next_check:
            try:
                self.delay_ms = round(parse_time(params.next_check) * 1000)
            except ValueError as error:
                raise ToolInputError(f"nextCheck: {error}") from None
        self.given = params
        size = len((params.scratch or "").encode())
        about = {"scratchBytes": size} if params.scratch is not None else {}
        shown = {"outcome": params.outcome, "notify": params.notify, "summary": params.summary}
        return {"status": "accepted", **shown, **about}


class Heartbeats:
    """Executes the jobs of heartbeats and wake-ups."""

    def __init__(self, gateway: Gateway, job_runner: JobRunner) -> None:
        self._gateway, self._job_runner = gateway, job_runner
        self._changed = asyncio.Event()
        self._known: dict[str, heartbeat.BeatFacts] = {}
        self.wake_ups = WakeUps(gateway, job_runner)

    def look(self) -> None:
        """Request a check of the settings."""
        self._changed.set()

    async def run(self) -> None:
        """Keep the jobs in sync with the settings and HEARTBEAT.md, until cancelled."""
        while True:
            self._changed.clear()
            try:
                self.keep()
            except ToolError as error:
                log.error("the heartbeats could not be checked: %s", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._changed.wait()

    def keep(self) -> None:
        cron, ids = self._job_runner.jobs(), self._gateway.loaded.config.agents.ids()
        for agent in ids:
            keep_heartbeat(cron, agent, self.facts(agent)[0])
        for row in cron.store.declared("heartbeat:") if cron.store.exists else ():
            if row.job.agent_id not in ids:
                cron.adjust(row, replace(row.job, enabled=False))

    def facts(self, agent: str) -> tuple[heartbeat.BeatFacts, str]:
        loaded, cron = self._gateway.loaded, self._job_runner.jobs()
        mask = self._gateway.redactor.text
        found = heartbeat_facts(loaded, cron, self._gateway.store, agent, mask)
        self._known[agent] = found[0]
        return found

    def describe(self, agent: str, *, details: bool = True) -> dict[str, Any]:
        """The heartbeat of an agent, for clients."""
        off = {"enabled": False, "every": "0m", "everyMs": None}
        try:
            facts = self._known.get(agent) or self.facts(agent)[0]
        except ToolError:  # the store of jobs cannot be read; already logged
            return off
        if heartbeat.why_off(facts) is not None:
            return off
        settings = facts.settings
        shown = {"enabled": True, "every": settings.every or "30m", "everyMs": facts.every_ms}
        more = {"target": settings.target or "owner", "ackMaxChars": ACK_CHARS}
        return shown | more | {"prompt": settings.prompt or heartbeat.PROMPT} if details else shown

    async def work(self, row: JobRow, run: CronRun, begin: Callable[[], None]) -> Outcome:
        agent = self._job_runner.agent_of(row.job)
        if run.text:
            return await self.wake_ups.turn(row.job, run, run.text, begin)
        key, (facts, summary) = self._session_of(agent), self.facts(agent)
        beats = [each for each in self._job_runner.store.history(row.job.id)[0] if not each.session]
        places = map(self._gateway.live.find, (key, self._job_runner.main_of(agent)))
        is_late = any(each.begun and run.due_ms < each.ended_ms <= facts.now_ms for each in beats)
        is_busy = is_late or any(there is not None and there.has_turns for there in places)
        facts = replace(facts, is_asked=run.why == "manual", is_busy=is_busy)
        if (skip := heartbeat.decide_beat(facts)) is not None:
            return Outcome("skipped", error=skip.message, reason=skip.reason)
        if not facts.has_mail:
            return await self._beat(row.job, run, key, facts, summary, begin)
        read = await self.wake_ups.turn(row.job, run, _MAIL, begin)
        if read.status != "ok" or not (facts.has_content or facts.scratch or facts.settings.prompt):
            return await self._conclude(row.job, read, Reply())
        outcome = await self._beat(row.job, run, key, facts, summary, begin)
        return replace(outcome, cost=outcome.cost + read.cost)

    def _session_of(self, agent: str) -> str:
        live = self._gateway.live
        settings = heartbeat.settings_of(self._gateway.loaded.config.agents, agent)
        if settings.session:
            try:
                return live.resolve_key(settings.session, agent)
            except GatewayError as error:
                raise ToolError(f"heartbeat.session: {error.message}") from None
        return session_key(
            agent, f"heartbeat:{uuid.uuid4()}" if settings.isolated_session else "heartbeat"
        )

    async def _beat(
        self,
        job: Job,
        run: CronRun,
        key: str,
        facts: heartbeat.BeatFacts,
        summary: str,
        begin: Callable[[], None],
    ) -> Outcome:
        live, settings, reply = self._gateway.live, facts.settings, Reply()
        is_own = not settings.session
        if is_own:
            try:  # opened with the current settings, and with the tool for its answer
                await live.release(key)
            except GatewayError as error:
                return Outcome("skipped", error=error.message, reason="busy")
            stored = self._gateway.store.find(key)
            if stored is not None and stored.context_tokens > MAX_CONTEXT:
                await live.reset(key)
        opening = Opening(
            settings.model or "",
            is_light=settings.light_context,
            approver=self._job_runner.approver_of(job) if is_own else None,
            heartbeat=reply if is_own else None,
        )
        words = tuple(map(Text, heartbeat.write_message(facts, summary)))
        said = User(words, now_ms(), Source("cron", (run.id,), ("Heartbeat",)))
        outcome = await self._job_runner.turn(
            key,
            said,
            begin,
            job=job.id,
            opening=opening,
            timeout_s=heartbeat.timeout_s(facts),
            settles=is_own,
        )
        return await self._conclude(job, outcome, reply)

    async def _conclude(self, job: Job, outcome: Outcome, reply: Reply) -> Outcome:
        store, name, given = self._job_runner.store, f"heartbeat:{job.agent_id}", reply.given
        own = store.fact(name)
        if outcome.status != "ok":
            if outcome.reason in heartbeat.STOPPED_BY:
                said = _STOPPED.format(job.agent_id, outcome.error)
                store.set_fact(name, own | {"paused": one_line(said, 500)})
                self.look()
                main, title = self._job_runner.main_of(job.agent_id), "Heartbeats are paused"
                await self._job_runner.announce(main, title, "about its heartbeats", said)
            return outcome
        if given is None:
            summary = one_line(without_token(outcome.text), 500)
            store.set_fact(name, own | {"summary": summary})
            return outcome
        mask = self._gateway.redactor.text
        scratch = own.get("scratch", "") if given.scratch is None else mask(given.scratch)
        store.set_fact(name, own | {"summary": mask(given.summary), "scratch": scratch})
        if reply.delay_ms:
            with suppress(NotFoundError):
                self._job_runner.jobs().next_check(job.id, reply.delay_ms)
        text = (given.notification_text if given.notify else "") or given.summary
        mark = f"[{given.outcome}{', urgent' if given.priority == 'high' else ''}]"
        why = f" ({given.reason})" if given.reason else ""
        return replace(outcome, text=mask(f"{mark} {text}{why}"), is_silent=not given.notify)

    # For clients

    def tell(self, run: CronRun) -> None:
        """Notify clients of a finished heartbeat, after any delivery."""
        if heartbeat.is_told(run):
            shown, hub = heartbeat.show_beat(run), self._gateway.hub
            hub.broadcast("heartbeat", shown, lambda each: each.may(READ))
            bare = {name: shown[name] for name in ("ts", "status", "durationMs")}
            hub.broadcast("heartbeat", bare, lambda each: not each.may(READ))

    def last(self) -> dict[str, Any] | None:
        """The last heartbeat of all agents."""
        store = self._job_runner.store
        rows = store.declared("heartbeat:") if store.exists else []
        runs = [
            run for row in rows for run in store.history(row.job.id)[0] if heartbeat.is_told(run)
        ]
        return heartbeat.show_beat(max(runs, key=lambda run: run.ended_ms)) if runs else None
