"""The open agents, one for each session in use, and the runs of their clients.

A run belongs to the gateway, not to the client that started it: it continues when the client
leaves, and after a restart. Idle agents are closed; the next message reopens them with the then
current configuration.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import msgspec

from clawkit.agent.events import TurnEnded, both, no_listener
from clawkit.agent.loop import Words, as_message
from clawkit.agent_session import Agent
from clawkit.content import Source, Text, User
from clawkit.core.approval import Approver
from clawkit.cron.protocols import HeartbeatControl
from clawkit.errors import ClawkitError, ConflictError, ToolError, ToolInputError
from clawkit.gateway.open_agent import Open, Opening, merged, shutting_down
from clawkit.gateway.protocol import GatewayError, aside, invalid, now_ms
from clawkit.gateway.run_store import read_by_model
from clawkit.gateway.session_events import EventReporter, GatewayRun
from clawkit.models.protocols import Model
from clawkit.services import Services
from clawkit.session_cron import home_workspace
from clawkit.sessions.keys import parse_key
from clawkit.sessions.lanes import Mode
from clawkit.sessions.protocols import Session, check_name, session_key
from clawkit.store import private_dir
from clawkit.tools.gateway import GatewayControl

if TYPE_CHECKING:
    from clawkit.gateway.server import Gateway

IDLE_S = 300.0
GRACE_S = 5.0
"""Grace period for running turns when the gateway stops."""
MAX_TRIES = 3
"""Maximum times a turn is resumed: it may be what crashes the gateway."""
AGAIN_S = 1.0
"""Interval between attempts to resume a run in a session that is in use."""
WARM = 8
"""Maximum agents with a prestarted process for commands, which takes 5 MB each."""
RESETS = ("/new", "/reset")
STOPS = ("/stop",)
STARTED_ANEW = "A new conversation has started."
STOPPED = "Stopped."
NOTHING_TO_STOP = "There is nothing to stop."
RESUMED = (
    "The gateway was restarted while you were working. Continue where you stopped. A call that was "
    "interrupted may have taken effect: check that before you repeat it."
)
LOST = "the gateway was restarted during this run; send it again"
USUAL = Opening()
_RESTART = "restart"
"""The reason for runs that end with the gateway."""

log = logging.getLogger(__name__)


class LiveSessions:
    """The sessions in use."""

    def __init__(
        self,
        gateway: Gateway,
        approver: Approver,
        *,
        secrets: Sequence[str] = (),
        model: Model | None = None,
    ) -> None:
        """`secrets` of the gateway are masked in the input and output of agents. `model` replaces
        the configured one, for tests."""
        self._gateway, self._store, self._run_store = gateway, gateway.store, gateway.run_store
        self._approver, self.secrets, self._model = approver, secrets, model
        self._open: dict[str, Open] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Locks by session, while held or waited for."""
        self._client_overrides: dict[str, dict[object, Mapping[str, Any]]] = {}
        """By session: overrides that apply while their client is connected, oldest first."""
        self._runs: dict[str, GatewayRun] = {}
        self._entering: dict[str, GatewayRun] = {}
        """Runs that wait for the agent of their session."""
        self._unrecorded: dict[str, GatewayRun] = {}
        """Finished runs that are not stored yet."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._opening = asyncio.Lock()
        self.is_closed = False
        self._paused_lanes = ExitStack()
        self.hurry = asyncio.Event()
        """Set to stop running turns without a grace period."""

    def resolve_key(self, text: str, agent: str | None = None) -> str:
        """The key of a session given by its key or name, or with its id in place of the name, so
        that no session has two keys. Raises `GatewayError`."""
        main, given = self._gateway.loaded.config.session.main_key, text.strip()
        if not given.lower().startswith("agent:"):
            name = main if given.lower() in ("", "main") else given
            given = session_key(self.check_agent(agent), name)
        if self._store.find(given) is None:
            given = given.lower()
        try:
            key = parse_key(given, main)
            check_name(key.name)
        except ToolInputError as error:
            raise invalid(str(error)) from None
        self.check_agent(key.agent)
        if stored := self._store.find(given) or self._store.find(key.name):
            if stored.agent != key.agent:
                raise invalid(f"session key '{given}' does not belong to agent '{key.agent}'")
            given = stored.key
        if agent and agent.strip().lower() != key.agent:
            raise invalid(f"session key '{given}' does not belong to agent '{agent}'")
        return given

    def check_agent(self, agent: str | None) -> str:
        """The id of an existing agent, by default the default one."""
        agents = self._gateway.loaded.config.agents
        name = (agent or "").strip().lower() or agents.default_id()
        if name != agents.default_id() and name not in agents.by_id():
            raise invalid(f"unknown agent id '{name}'")
        return name

    @property
    def opened(self) -> int:
        return len(self._open)

    @property
    def running(self) -> int:
        """The number of running turns."""
        return sum(each.agent.turns.lane.is_busy for each in self._open.values())

    def find(self, key: str) -> Open | None:
        return self._open.get(key)

    def run(self, id_: str) -> GatewayRun | None:
        """A run, including runs that finished before the last restart."""
        return self._runs.get(id_) or self._run_store.get(id_)

    async def accepted(self, id_: str) -> GatewayRun | None:
        """An accepted run. Waits while it may still be refused or dropped."""
        while (run := self.run(id_)) is not None and not run.decided.is_set():
            await run.decided.wait()
        return run

    def active(self, key: str) -> list[str]:
        """Ids of the unfinished runs of a session."""
        if (there := self._open.get(key)) is not None:
            return list(there.runs)
        if ":subagent:" not in key:
            return []
        return [id_ for each in self._open.values() for id_ in each.reporter.runs_of(key)]

    async def open(self, key: str, *, owner: bool) -> Open:
        """The agent of a session, opened if needed, with or without owner rights."""
        async with self._entered(key, owner=owner) as there:
            return there

    async def note(self, key: str, message: User, *, owner: bool) -> None:
        """Add a message to a session without a turn; it is stored once this returns. Raises
        `ClawkitError` and `GatewayError`."""
        while True:
            async with self._entered(key, owner=owner) as there:
                if not there.has_turns:
                    return there.agent.conversation.note(message)
            await there.wait_idle()

    def _lock(self, key: str) -> asyncio.Lock:
        lock: asyncio.Lock = self._locks.setdefault(key, asyncio.Lock())
        return lock

    @asynccontextmanager
    async def _entered(
        self, key: str, *, owner: bool, opening: Opening = USUAL
    ) -> AsyncIterator[Open]:
        """Open the agent of a session, and hold the session's lock inside the `with` block."""
        owner = owner and not parse_key(key).is_shared
        while True:
            there = self._open.get(key)
            if there is not None and there.owner != owner:
                # Outside the lock: the people that the agent works for can still talk to it.
                await there.wait_idle()
            async with self._lock(key):
                there = self._open.get(key)
                if there is None or there.owner == owner or not there.has_turns:
                    yield await self._enter(key, owner=owner, opening=opening)
                    return

    async def _enter(self, key: str, *, owner: bool, opening: Opening) -> Open:
        if self.is_closed:
            raise shutting_down()
        if (there := self._open.get(key)) is not None:
            is_other, is_busy = there.owner != owner, there.is_busy
            if is_other and is_busy:
                # An agent has the tools of the person it was opened for.
                message = "the session is busy with background work of another client"
                raise GatewayError("UNAVAILABLE", message, retry_ms=5000)
            # Running work keeps the configuration it started with.
            if not is_busy and (is_other or there.loaded is not self._gateway.loaded):
                await self._shut(key)
        there = self._open.get(key) or await self._start(key, owner=owner, opening=opening)
        there.used_at = time.monotonic()
        return there

    async def _start(self, key: str, *, owner: bool, opening: Opening) -> Open:
        # Opening takes a while: let other clients get their events in between.
        await self._opening.acquire()
        asyncio.get_running_loop().call_soon(self._opening.release)
        loaded, stored = self._gateway.loaded, self._store.find(key)
        place = self.workspace(parse_key(key).agent, stored)
        opening = msgspec.structs.replace(
            opening,
            model=self._model or opening.model,
            approver=opening.approver or self._approver,
        )
        agent = opening.open(loaded, key, stored.id if stored else "", place, owner=owner)
        agent.kit.run.redactor.learn(self.secrets)
        session = agent.session
        if session is None or session.key != key:
            # Its rights and its lock belong to the key.
            await agent.close()
            raise ToolError("the session could not be stored under its key")
        reporter = EventReporter(self._gateway, session, agent)
        reporter.on_notice = partial(self._gateway.job_runner.heartbeats.wake_ups.notice, key)
        agent.conversation.tell = both(reporter, agent.conversation.tell)
        agent.turns.warms_up = len(self._open) < WARM
        agent.on_subagent_event = reporter.hear_subagent
        agent.on_results = lambda: self.report(key)
        agent.deliver = reporter.post
        if isinstance(services := agent.kit.run.services, Services):
            services.fill(GatewayControl, lambda: self._gateway.control(key))
            services[GatewayControl]  # created now, so that later runs of this agent have it
            if opening.heartbeat is not None:
                services.fill(HeartbeatControl, lambda: opening.heartbeat)
                services[HeartbeatControl]
        if owner and (overrides := self._client_overrides.get(key)):
            agent.set_temporary_overrides(merged(overrides))
        await agent.__aenter__()
        if self.is_closed:
            await agent.close()
            raise shutting_down()
        self._open[key] = Open(agent, reporter, loaded, owner=owner)
        return self._open[key]

    def workspace(self, agent: str, stored: Session | None = None) -> str:
        """The workspace of a session: the stored or configured one, or a directory in the home."""
        agents = self._gateway.loaded.config.agents
        if stored is not None and os.path.isdir(stored.workspace):
            return stored.workspace
        place = home_workspace(agents, agent)
        if not (agents.get(agent).workspace or agents.defaults.workspace):
            private_dir(place)
        return place

    def set_client_overrides(self, key: str, client: object, changes: Mapping[str, Any]) -> None:
        """Override settings of a session while a client is connected, even if its agent is
        reopened; an empty mapping removes the overrides."""
        old = self._client_overrides.get(key, {}).items()
        overrides = {each: own for each, own in old if each is not client}
        overrides |= {client: changes} if changes else {}
        if (there := self._open.get(key)) is not None and there.owner:
            there.agent.set_temporary_overrides(merged(overrides))
        self._client_overrides[key] = overrides
        if not overrides:
            del self._client_overrides[key]

    def report(self, key: str) -> None:
        """Have the model of a session read the results of its sub-agents."""
        if (there := self._open.get(key)) is not None:
            self._spawn(there.agent.report())

    def discard_empty(self, key: str) -> None:
        """Schedule `discard`."""
        self._spawn(self.discard(key))

    async def discard(self, key: str) -> None:
        """Delete an idle session without messages. Stops nothing, and keeps sessions needed by runs
        that are accepted, about to be accepted, or resumed."""
        async with self._lock(key):
            session, there = self._store.find(key), self._open.get(key)
            if session is None or (there is not None and there.is_busy):
                return
            if any(run.session == key for run in self._runs.values()):
                return
            if not self._store.history(session.id, 1):
                await self._shut(key)
                with suppress(ConflictError):  # another process has it open
                    self._store.delete(session.id)

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("work for a session failed: %r", error)

    async def start(
        self,
        key: str,
        run_id: str,
        words: Words,
        *,
        owner: bool,
        client: str = "",
        digest: str = "",
        mode: Mode | None = None,
        timeout_s: float | None = None,
        max_turns: int | None = None,
        max_cost: float | None = None,
        prepare: Callable[[Agent], Any] | None = None,
        opening: Opening = USUAL,
        on_text: Callable[[str], None] = no_listener,
    ) -> GatewayRun:
        """Post a message to a session. When this returns, the run is accepted and recorded; a
        client's run is resumed after a restart."""
        if self.run(run_id) is not None:
            raise invalid("idempotencyKey was already used")
        limits = timeout_s, max_turns, max_cost
        run = GatewayRun(run_id, key, client, digest, owner, *limits, on_text=on_text)
        self._runs[run.id] = run
        try:
            word = words.strip() if isinstance(words, str) else ""
            if word in RESETS:
                fresh = await self.reset(key)
                EventReporter(self._gateway, fresh).changed(reason="reset")
                return self._end_at_once(run, TurnEnded("done", text=STARTED_ANEW))
            if word in STOPS:
                text = STOPPED if await self.abort(key) else NOTHING_TO_STOP
                return self._end_at_once(run, TurnEnded("done", text=text))
            self._entering[run.id] = run
            async with self._entered(key, owner=owner, opening=opening) as there:
                if prepare is not None:
                    prepare(there.agent)
                message = msgspec.structs.replace(as_message(words), ids=(run.id, uuid.uuid4().hex))
                size = sum(len(getattr(each, "text", "")) for each in message.content)
                body = await aside(size, self._run_store.pack, message) if client else b""
                if run.over.is_set():
                    return run  # stopped in the meantime
                self._run_store.add(run, body)
                try:
                    self._post(there, run, message, mode)
                except BaseException:
                    self._run_store.remove(run.id)
                    raise
        except BaseException:
            self._runs.pop(run.id, None)
            raise
        finally:
            self._entering.pop(run.id, None)
            run.decided.set()
        return run

    def keep(self, run: GatewayRun) -> None:
        """Record a run without a turn, until `conclude` is called."""
        self._run_store.add(run, at_once=True)
        self._runs[run.id] = run

    def _end_at_once(self, run: GatewayRun, ended: TurnEnded) -> GatewayRun:
        try:
            if not run.decided.is_set():  # a resumed run is already recorded
                self.keep(run)
        except ToolError as error:  # the run itself must not be affected
            log.error("a run could not be recorded: %s", error)
        self.conclude(run, ended)
        if (there := self._open.get(run.session)) is not None:
            there.reporter.tell_end(run)
        return run

    def conclude(self, run: GatewayRun, ended: TurnEnded) -> None:
        """Record how a run ended."""
        run.settle(ended)
        self._unrecorded[run.id] = run
        self._record()

    def _record(self) -> None:
        """Record all ends, the latest first, so that a failing one does not block others."""
        for run in reversed(list(self._unrecorded.values())):
            try:
                self._run_store.end(run)
            except ToolError as error:
                # It stays in memory. After a restart, the transcript shows whether it was finished.
                log.error("the end of a run could not be recorded: %s", error)
                return
            del self._unrecorded[run.id]
            self._runs.pop(run.id, None)

    def _post(
        self,
        opened: Open,
        run: GatewayRun,
        message: User,
        mode: Mode | None,
        *,
        is_new: bool = True,
    ) -> None:
        def begin() -> None:
            opened.reporter.run = run
            opened.limit(run.max_turns, run.max_cost)

        turn = opened.agent.turns.post(message, mode, begin=begin, is_new=is_new)
        self._follow(opened, run, turn)
        opened.reporter.changed(reason="send")

    def _follow(self, opened: Open, run: GatewayRun, turn: asyncio.Future[TurnEnded]) -> None:
        opened.runs[run.id], run.turn = run, turn
        self._spawn(self._finish(opened, run, turn))

    def resume(self) -> None:
        """Resume the runs that were accepted before the gateway ended."""
        unfinished = self._run_store.unfinished()
        self._runs |= {run.id: run for run in unfinished}
        unfinished.sort(key=lambda run: run.session)  # stable: keeps the order within a session
        for key, runs in groupby(unfinished, lambda run: run.session):
            self._spawn(self._resume(key, list(runs)))

    async def _resume(self, key: str, runs: Sequence[GatewayRun]) -> None:
        """Post messages that the model has not read yet, and only those."""
        answers, last = read_by_model(self._store, key)
        # Clients can reuse their ids, so only the last id identifies one message.
        marks = {run.id: run.message.ids[-1] if run.message else "" for run in runs}
        is_owner = all(run.owner for run in runs if answers.get(marks[run.id], "") is None)
        going: tuple[Open, GatewayRun] | None = None
        left = [run for run in runs if run.turn is None and not run.over.is_set()]
        self._entering |= {run.id: run for run in left}
        for run in left:
            mark, message = marks[run.id], run.message
            try:
                if (answer := answers.get(mark)) is not None:
                    self.conclude(run, TurnEnded("done", text=answer))
                    continue
                if message is None:
                    raise ToolError(LOST)
                is_read = mark in answers
                if is_read:
                    # Others may have posted after a turn whose end could not be recorded.
                    if run.tries >= MAX_TRIES or last.isdisjoint(marks.values()):
                        raise ToolError(LOST)
                    if going is not None and going[1].turn is not None:
                        self._run_store.try_again(run.id)
                        self._follow(going[0], run, going[1].turn)
                        continue
                    source = Source("gateway", titles=("The gateway was restarted.",))
                    message = User((Text(RESUMED),), now_ms(), source, message.ids)
                async with self._entered(key, owner=is_owner if is_read else run.owner) as there:
                    if run.over.is_set():
                        continue  # stopped in the meantime
                    if is_read:
                        self._run_store.try_again(run.id)
                    self._post(there, run, message, "followup", is_new=False)
                going = (there, run) if is_read else going
            except (ClawkitError, GatewayError) as error:
                if self.is_closed:
                    return  # the next start resumes it
                if isinstance(error, ConflictError | GatewayError):  # in use, which is temporary
                    await asyncio.sleep(AGAIN_S)
                    if not self.is_closed:
                        self._spawn(self._resume(key, runs))
                    return
                log.warning("a run could not be resumed: %s", error)
                self.conclude(run, TurnEnded("error", error=str(error)))
            finally:
                self._entering.pop(run.id, None)

    async def _finish(self, opened: Open, run: GatewayRun, turn: asyncio.Future[TurnEnded]) -> None:
        """Wait for the end of a run, and announce it."""
        await asyncio.wait({turn}, timeout=run.timeout_s)
        if not turn.done():
            run.stop_reason = "timeout"
            await opened.agent.turns.lane.cancel(turn)
        if turn.cancelled():
            is_late = run.stop_reason == "timeout"
            said = "the time limit of the request was reached" if is_late else ""
            ended = TurnEnded("timeout" if is_late else "aborted", error=said)
        elif (error := turn.exception()) is not None:
            text = str(error) if isinstance(error, ClawkitError) else type(error).__name__
            ended = TurnEnded("error", error=text)
        else:
            ended = turn.result()
        opened.runs.pop(run.id, None)
        opened.used_at = time.monotonic()
        is_cut_off = run.stop_reason == _RESTART or ended.how == "error"
        if ended.how != "done" and self.is_closed and is_cut_off:
            run.settle(ended)  # it will be resumed
        else:
            self.conclude(run, ended)
        opened.reporter.tell_end(run)
        if not opened.has_turns and not self.is_closed:
            self._gateway.desk.drop_left(run.session)

    async def abort(self, key: str, run_id: str | None = None, reason: str = "rpc") -> list[str]:
        """Stop the runs of a session, or one of them; returns their ids."""
        waiting = [each for each in self._entering.values() if each.session == key]
        dropped = [each for each in waiting if run_id in (None, each.id)]
        for run in dropped:
            run.stop_reason = reason
            self._end_at_once(run, TurnEnded("aborted"))
            del self._entering[run.id]
        return [run.id for run in dropped] + await self._stop(key, run_id, reason)

    async def _stop(self, key: str, run_id: str | None, reason: str) -> list[str]:
        there = self._open.get(key)
        if there is None:
            return []
        found = [run for id_, run in there.runs.items() if run_id in (None, id_)]
        for run in found:
            run.stop_reason = run.stop_reason or reason
            if run.turn is not None:
                await there.agent.turns.lane.cancel(run.turn)
        return [run.id for run in found]

    async def close_session(self, key: str, why: str = "closed") -> None:
        """Stop everything that runs in a session, and close it."""
        await self._stop(key, None, why)
        async with self._lock(key):
            await self._shut(key)

    async def release(self, key: str) -> bool:
        """Close a session if it is idle; returns whether it was open."""
        async with self._lock(key):
            if (there := self._open.get(key)) is not None and there.is_busy:
                message = "the gateway is working in that session"
                raise GatewayError("UNAVAILABLE", message, retry_ms=5_000)
            await self._shut(key)
            return there is not None

    async def _shut(self, key: str) -> None:
        there = self._open.pop(key, None)
        if there is not None:
            await there.agent.close()

    async def reset(self, key: str) -> Session:
        """Start a new session under the same key. The old one is kept under another name."""
        await self.close_session(key)
        stored = self._store.find(key)
        if stored is None:
            parsed = parse_key(key)
            return self.create(parsed.agent, name=parsed.name)
        self._store.rename(stored.id, f"{stored.name}:before:{stored.id}"[:256])
        fresh = self.create(stored.agent, stored.label, stored.thinking, stored.name)
        override = stored.model_override
        return self._store.set_model(fresh.id, override) if override else fresh

    def create(self, agent: str, label: str = "", thinking: str = "", name: str = "") -> Session:
        """Create a session, by default with a new name."""
        name, place = name or f"dashboard:{uuid.uuid4()}", self.workspace(agent)
        return self._store.create(agent, workspace=place, name=name, label=label, thinking=thinking)

    async def sweep(self, idle_s: float = IDLE_S) -> None:
        """Close idle agents, and retry recording the ends of runs."""
        self._record()
        for key, there in list(self._open.items()):
            if time.monotonic() - there.used_at >= idle_s and not there.is_busy:
                async with self._lock(key):
                    if self._open.get(key) is there and not there.is_busy:
                        try:
                            await self._shut(key)
                        except ToolError as error:
                            log.warning("an idle session could not be closed: %s", error)

    async def drain(self) -> None:
        """Accept no more messages, start no turns, and give running ones a grace period."""
        self.is_closed = True
        lanes = [each.agent.turns.lane for each in self._open.values()]
        for lane in lanes:
            self._paused_lanes.enter_context(lane.paused())

        async def idle() -> None:
            for lane in lanes:
                await lane.idle()

        waits = {asyncio.ensure_future(idle()), asyncio.ensure_future(self.hurry.wait())}
        await asyncio.wait(waits, timeout=GRACE_S, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()

    async def close(self) -> None:
        """Stop everything. Unfinished runs are resumed at the next start."""
        self.is_closed = True
        for key, there in list(self._open.items()):
            there.agent.conversation.interrupter = "a restart of the gateway"
            with suppress(ConflictError):
                await self.close_session(key, _RESTART)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5.0)
        self._record()
