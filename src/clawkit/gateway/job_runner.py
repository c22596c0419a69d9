"""Executes jobs with the agents of the gateway: turns, commands, reports."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from clawkit.agent.events import no_listener
from clawkit.agent.model import default_model
from clawkit.bundled import search_services, select_models
from clawkit.config.secrets import resolve
from clawkit.config.sections.gateway import Cron
from clawkit.content import Source, Text, User
from clawkit.core.approval import Answer, Question
from clawkit.core.context import InForce, Scope
from clawkit.cron.jobs import (
    RUNNING,
    AgentTurn,
    CommandRun,
    Destination,
    HeartbeatPayload,
    HookPayload,
    Job,
    ScriptPayload,
    SystemEvent,
)
from clawkit.cron.outcome import Outcome, without_token
from clawkit.cron.scheduler import Scheduler
from clawkit.cron.service import CronService, iso, show, show_run
from clawkit.cron.store import CronRun, CronStore, JobRow
from clawkit.cron.webhook import post_outcome
from clawkit.errors import ClawkitError, ConflictError, SecretError, ToolError
from clawkit.external import wrap_external
from clawkit.gateway.heartbeats import Heartbeats
from clawkit.gateway.open_agent import Opening
from clawkit.gateway.protocol import GatewayError, now_ms
from clawkit.gateway.scopes import APPROVALS
from clawkit.gateway.session_events import GatewayRun
from clawkit.gateway.watched_commands import Watches
from clawkit.gateway.webhook_turns import OWN_SESSIONS, carry_out
from clawkit.runtime import Toolkit, external_tools
from clawkit.services import Services
from clawkit.session_cron import WEB_ANSWER, cron_store, leave, lost_tools
from clawkit.sessions.keys import parse_key
from clawkit.sessions.protocols import session_key
from clawkit.text import cut, one_line, parse_time, quote

if TYPE_CHECKING:
    from clawkit.agent_session import Agent
    from clawkit.gateway.server import Gateway

TURN_S, COMMAND_S = 3_600.0, 600.0
"""Default timeouts of a turn and a command of a job."""
POLL_S, SWEEP_S = 0.2, 3_600.0
MAX_SUMMARY = 20_000
_HEAD = "[The above is the scheduled job {!r}, due {}. No person is waiting here now.]"
_ANNOUNCED = (
    "[Your answer is reported to the person. If there is nothing to report, answer exactly "
    "NO_REPLY.]"
)
_RESULT = (
    "[This message is from clawkit, not from the user: it is {}. Lines starting with > are quoted.]"
)

log = logging.getLogger(__name__)


def _spent(agent: Agent) -> float:
    """The cost of a conversation and its sub-agents, in dollars."""
    return agent.conversation.usage.cost + agent.conversation.spent_elsewhere()


class Unattended:
    """Approves commands that a person granted to the job, else asks connected people. Without any,
    a question is refused immediately."""

    def __init__(self, gateway: Gateway, job: Job) -> None:
        self._gateway, self._job = gateway, job

    async def ask(self, request: Question) -> Answer:
        live = self._gateway.live
        place = live.workspace(live.check_agent(self._job.agent_id))
        if is_granted(request, self._job.grants, place):
            return Answer("allow", by=f"the grants of the job {self._job.id}")
        if not any(each.may(APPROVALS) for each in self._gateway.hub.clients.values()):
            how = f"clawkit cron edit {self._job.id} --grant {shlex.quote(request.command)}"
            how = how if request.tool == "exec" else request.to_allow
            return Answer("deny", f"no one can be asked. To allow it: {how}")
        return await self._gateway.desk.ask(request)


def is_granted(request: Question, grants: Sequence[str], workspace: str) -> bool:
    """Whether a question is about exactly a granted command under the usual conditions: another
    directory than `workspace`, other variables or more access are not granted."""
    is_here = os.path.realpath(request.cwd or workspace) == os.path.realpath(workspace)
    return request.tool == "exec" and request.plain and is_here and request.command in grants


def check_author(job: Job, kit: Toolkit, tool: str = "") -> None:
    """Raise `ToolError` for a run with tools, or with this one, that policy would remove for the
    author of the job under the current settings."""
    lost = kit.assembly.lost_in(kit.config, job.author.within(kit.run.scope)) if job.author else []
    _refuse([name for name in lost if tool in ("", name)])


def _refuse(lost: Sequence[str]) -> None:
    if names := ", ".join(lost):
        raise ToolError(
            f"the run would have tools that the session which made this job lacks: {names}; to "
            "allow them, add the job yourself (clawkit cron add)"
        )


class JobRunner:
    """The jobs of the gateway: creates and runs them, and notifies clients."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.store: CronStore = cron_store()
        self.scheduler = Scheduler(self.store, self, lambda: self.settings)
        self.watches = Watches(self)
        self.on_told: Callable[[dict[str, Any]], None] = lambda _shown: None
        """Called with every notification for clients."""
        self.heartbeats = Heartbeats(gateway, self)

    @property
    def settings(self) -> Cron:
        """The current settings: the configuration can change."""
        found = self._gateway.loaded.config.cron or Cron()
        return found if self.jobs(found).is_enabled else replace(found, enabled=False)

    def jobs(self, settings: Cron | None = None) -> CronService:
        """The jobs service for clients."""
        settings = settings or self._gateway.loaded.config.cron or Cron()
        return CronService(self.store, settings, now_ms, self.changed)

    def changed(self, action: str, row: JobRow) -> None:
        self.scheduler.wake()
        self.watches.look()
        self.tell(action, row)

    def look(self) -> None:
        """Check all jobs after a configuration change."""
        self.scheduler.wake()
        self.watches.look()
        self.heartbeats.look()

    async def run(self) -> None:
        """Run jobs until cancelled."""
        work = (self._sweep(), self.watches.run(), self.heartbeats.run())
        beside = [asyncio.ensure_future(each) for each in work]
        try:
            await self.scheduler.run()
        finally:
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)

    async def _sweep(self) -> None:
        while True:
            try:
                await self.forget_sessions()
            except ToolError as error:
                log.warning("sessions of jobs could not be deleted: %s", error)
            await asyncio.sleep(SWEEP_S)

    async def forget_sessions(self) -> None:
        """Delete old sessions of jobs."""
        keep, live = self.settings.session_retention, self._gateway.live
        if keep is False:
            return
        before_ms = now_ms() - round(parse_time(str(keep)) * 1000)
        unused = self._gateway.store.unused_since
        names = ("cron:*", "heartbeat:*", OWN_SESSIONS)
        for session in [each for name in names for each in unused(name, before_ms)]:
            if not live.active(session.key):
                await live.close_session(session.key)
                with suppress(ConflictError):  # another process has it open
                    self._gateway.store.delete(session.id)

    def preview(self, job: Mapping[str, Any]) -> dict[str, str]:
        """The destination of a job's results, for people."""
        delivery = job["delivery"]
        where = delivery.get("to") or job.get("sessionKey") or "the main session"
        label = "not requested" if delivery["mode"] == "none" else f"{delivery['mode']} -> {where}"
        return {"label": label, "detail": label}

    # For the scheduler

    def tell(self, action: str, row: JobRow, run: CronRun | None = None) -> None:
        shown: dict[str, Any] = {"jobId": row.job.id, "action": action}
        if action != "removed":
            shown["job"] = show(row)
        if row.next_ms is not None:
            shown["nextRunAtMs"] = row.next_ms
        if run is not None:
            shown |= {"run": show_run(run, row)}
        self._gateway.hub.broadcast("cron", shown)
        self.on_told(shown)
        if run is not None and isinstance(row.job.payload, HeartbeatPayload):
            self.heartbeats.tell(run)

    async def work(self, row: JobRow, run: CronRun, begin: Callable[[], None]) -> Outcome:
        match row.job.payload:
            case AgentTurn() | SystemEvent() as payload:
                return await self._turn(row.job, payload, run, begin)
            case CommandRun() as payload:
                given: dict[str, Any] = {
                    "command": shlex.join(payload.argv),
                    "workdir": payload.cwd,
                    "env": payload.env,
                    "timeout": payload.timeout_seconds or COMMAND_S,
                }
                if payload.input:
                    given["command"] = (
                        f"printf %s {shlex.quote(payload.input)} | {given['command']}"
                    )
                if payload.no_output_timeout_seconds:
                    given["noOutputTimeout"] = payload.no_output_timeout_seconds
                return await self._call(row.job, "exec", given, begin)
            case ScriptPayload(script=code, timeout_seconds=limit_s):
                given = {"code": code, "timeoutSeconds": limit_s}
                return await self._call(row.job, "code_execution", given, begin)
            case HeartbeatPayload():
                return await self.heartbeats.work(row, run, begin)
            case HookPayload():
                return await carry_out(self._gateway, row.job, run, begin)

    def approver_of(self, job: Job) -> Unattended:
        return Unattended(self._gateway, job)

    def agent_of(self, job: Job) -> str:
        return self._gateway.live.check_agent(job.agent_id)

    def _session_of(self, job: Job, agent: str) -> str:
        """The key of the session in which a job runs."""
        match job.session_target:
            case "isolated":
                return session_key(agent, f"cron:{job.id}:run:{uuid.uuid4()}")
            case "main":
                return self.main_of(agent)
            case "current":
                return self._gateway.live.resolve_key(job.session_key, job.agent_id or None)
            case target:
                return self._gateway.live.resolve_key(target.removeprefix("session:"), agent)

    def main_of(self, agent: str) -> str:
        return session_key(agent, self._gateway.loaded.config.session.main_key)

    async def _turn(
        self, job: Job, payload: AgentTurn | SystemEvent, run: CronRun, begin: Callable[[], None]
    ) -> Outcome:
        agent = self.agent_of(job)
        key = self._session_of(job, agent)
        at = iso(run.slot_ms or run.due_ms)
        title = f"Scheduled job: {one_line(job.title, 120)}"
        turn = AgentTurn(payload.text) if isinstance(payload, SystemEvent) else payload
        self._check_turn(job, agent, key, turn)
        if isinstance(payload, SystemEvent) and job.wake_mode == "next-heartbeat":
            begin()
            receipt = self.leave(key, agent, title, payload.text)
            return Outcome("ok", f"left for the next turn ({receipt})", session_key=key)
        parts = [turn.message, _HEAD.format(job.title, at)]
        if run.text:
            parts.append(run.text)
        if job.delivery.mode == "announce" or job.session_target == "main":
            parts.append(_ANNOUNCED)
        is_own = job.session_target == "isolated"
        opening = Opening(
            turn.model,
            turn.fallbacks,
            turn.thinking or None,
            None if turn.tools_allow in (None, ("*",)) else turn.tools_allow,
            turn.light_context,
            approver=self.approver_of(job) if is_own else None,
        )
        said = User(tuple(map(Text, parts)), now_ms(), Source("cron", (run.id,), (title,)))
        try:
            outcome = await self.turn(
                key,
                said,
                begin,
                job=job.id,
                opening=opening,
                timeout_s=turn.timeout_seconds or TURN_S,
                check=lambda agent: check_author(job, agent.kit),
            )
        except ConflictError:  # another process has it open, such as a chat
            if not isinstance(payload, SystemEvent):
                raise
            receipt = self.leave(key, agent, title, payload.text)
            return Outcome("ok", f"left for the next turn ({receipt})", session_key=key)
        is_heard = not is_own and self._is_at(job, key)
        return replace(outcome, is_heard=is_heard)

    def _check_turn(self, job: Job, agent: str, key: str, turn: AgentTurn) -> None:
        """Check the author of a job before anything is created or left. The agent of a turn is
        checked as well: it may be open with other settings."""
        if job.author is None:
            return
        loaded, place = self._gateway.loaded, self._gateway.live.workspace(agent)
        model = default_model(loaded.config, agent) or select_models(loaded, agent).model().ref
        own = Scope(agent=agent, model=model, search=search_services(loaded))
        extra = external_tools(loaded.config, own, place)
        _refuse(lost_tools(loaded, job.author, own, key, turn, extra))

    def _is_at(self, job: Job, key: str) -> bool:
        """Whether a result would be announced in the session that produced it."""
        return job.delivery.mode == "announce" and self._target(job, job.delivery.to) == key

    async def turn(
        self,
        key: str,
        message: User,
        begin: Callable[[], None],
        *,
        job: str,
        opening: Opening,
        timeout_s: float,
        owner: bool = True,
        settles: bool = True,
        check: Callable[[Agent], None] = no_listener,
    ) -> Outcome:
        """Run one turn in a session and, if it settles, the turns that read the results of its
        sub-agents. `check` may refuse its agent. Raises `ToolError` if it cannot start."""
        live, until = self._gateway.live, time.monotonic() + timeout_s
        run_id = f"cron-{uuid.uuid4()}"
        opened: list[tuple[Agent, float]] = []

        def prepare(agent: Agent) -> None:
            check(agent)
            opened.append((agent, _spent(agent)))

        begin()
        RUNNING.set(job)
        try:
            run = await live.start(
                key,
                run_id,
                message,
                owner=owner,
                mode="followup",
                timeout_s=timeout_s,
                prepare=prepare,
                opening=opening,
            )
        except GatewayError as error:
            raise ToolError(error.message) from None
        is_late = False
        try:
            await run.over.wait()
            there = live.find(key) if settles else None
            while there is not None and (there.has_turns or there.has_subagents):
                if is_late := time.monotonic() >= until:
                    await live.close_session(key)
                    break
                await asyncio.sleep(POLL_S)
        except asyncio.CancelledError:
            await live.abort(key, run.id, "stopped")
            raise
        # Includes the cost of a stopped turn and of its sub-agents.
        cost = sum(max(0.0, _spent(agent) - before) for agent, before in opened)
        if is_late:
            return Outcome("error", error="it took too long", reason="timeout", cost=cost)
        text = there.agent.conversation.last_text if there else run.text
        outcome = self.outcome(run, key, text)
        return replace(outcome, cost=cost) if settles else outcome

    def outcome(self, run: GatewayRun, key: str, text: str) -> Outcome:
        """The outcome of a turn to record and send, without secrets."""
        mask = self._gateway.redactor.text
        session, usage, ended = self._gateway.store.find(key), run.usage, run.ended
        names = {"input_tokens": "input", "output_tokens": "output", "total_tokens": "total"}
        is_ok = run.status == "ok"
        kind = run.status if run.status in ("timeout", "aborted") else ""
        return Outcome(
            "ok" if is_ok else "error",
            cut(mask(text), MAX_SUMMARY) if is_ok else "",
            "" if is_ok else mask(run.error or f"the turn ended: {run.status}"),
            "" if is_ok else kind or (ended.kind if ended else "") or "error",
            run.model,
            {name: usage.get(own, 0) for name, own in names.items()},
            ended.usage.cost if ended else 0.0,
            key,
            session.id if session else "",
        )

    @asynccontextmanager
    async def toolkit(self, job: Job, tool: str) -> AsyncIterator[Toolkit]:
        """The tools of a job's agent, for calls of one of them without a model. Raises `ToolError`
        if the job's author does not have it."""
        agent = self.agent_of(job)
        place, session = self._gateway.live.workspace(agent), f"cron:{job.id}"
        loaded = self._gateway.loaded
        kit = Toolkit.open(loaded, workspace=place, agent=agent, session=session, owner=True)
        async with kit:
            check_author(job, kit, tool)
            kit.run.redactor.learn(self._gateway.live.secrets)
            if isinstance(services := kit.run.services, Services):
                alone = replace(kit.assembly.in_force, is_one_shot=True)
                services.fill(InForce, lambda: alone)
            yield kit

    async def _call(
        self, job: Job, tool: str, params: dict[str, Any], begin: Callable[[], None]
    ) -> Outcome:
        """One tool call under the policy of the agent, without asking anyone."""
        async with self.toolkit(job, tool) as kit:
            begin()
            result = await kit.call(tool, params)
        text, details = cut(result.as_text(), MAX_SUMMARY), result.details
        code, status = details.get("exitCode"), details.get("status")
        if result.is_error or status not in ("completed", "ok") or code not in (None, 0):
            return Outcome("error", error=text or f"exit code {code}", reason="command")
        return Outcome("ok", text)

    # Reports

    def _target(self, job: Job, to: str) -> str:
        """The session for reports about a job."""
        agent = self.agent_of(job)
        if to:
            return self._gateway.live.resolve_key(
                to, agent if not to.startswith("agent:") else None
            )
        if job.session_key and self._gateway.store.find(job.session_key) is not None:
            return job.session_key
        return self.main_of(agent)

    async def deliver(self, job: Job, run: CronRun, text: str, destination: Destination) -> str:
        if destination.mode == "webhook":
            settings, loaded = self.settings, self._gateway.loaded
            env, given = {**os.environ, **loaded.env}, settings.webhook_token
            try:
                token = resolve(given, loaded.config, env) if given else ""
            except SecretError as error:
                raise ToolError(f"cron.webhookToken: {error}") from None
            payload = show_run(run) | {"text": text}
            return await post_outcome(destination.to, payload, token, settings.webhook_ssrf_policy)
        is_hook = isinstance(job.payload, HookPayload)
        title = f"{'Hook' if is_hook else 'Job'} {one_line(job.title, 60)}: {one_line(text, 200)}"
        try:
            key = self._target(job, destination.to)
        except GatewayError as error:
            raise ToolError(error.message) from None
        what = f"a report of the scheduled job {job.title!r}"
        if is_hook:  # the sender of the request may have dictated the answer
            what = f"{WEB_ANSWER} for the hook {job.title!r}"
            text = wrap_external(text, f"answer of the hook {job.title}", MAX_SUMMARY)
        return await self.announce(key, title, what, text)

    async def announce(self, key: str, title: str, label: str, text: str) -> str:
        """Add a report for people to a session, without a turn. Returns the id of the message.
        Raises `ToolError`."""
        words = f"{_RESULT.format(label)}\n\n{quote(without_token(text) or text)}"
        receipt = uuid.uuid4().hex
        said = User((Text(words),), now_ms(), Source("cron", titles=(title,)), (receipt,))
        try:
            await self._gateway.live.note(key, said, owner=True)
        except ConflictError:  # another process has it open
            return self.leave(key, parse_key(key).agent, one_line(label, 120), text)
        except (ClawkitError, GatewayError) as error:
            raise ToolError(str(error)) from None
        return receipt

    def leave(self, key: str, agent: str, sender: str, text: str) -> str:
        """Leave a message for the next turn of a session. Returns its id."""
        store = self._gateway.store
        session = store.find(key) or self._gateway.live.create(agent, name=key.split(":", 2)[2])
        return leave(store, session.id, sender, cut(text, MAX_SUMMARY))
