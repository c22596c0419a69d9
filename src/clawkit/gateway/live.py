"""The open agents, one for each session in use, and the runs of their clients.

A run belongs to the gateway and not to the client that started it: it goes on when the client
leaves. Agents that are not used for a while are closed; the next message opens them again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from clawkit.agent.events import Event, TurnEnded, TurnStarted, both
from clawkit.agent_session import Agent
from clawkit.config.load import Loaded
from clawkit.config.paths import home
from clawkit.content import Block, Text
from clawkit.core.approval import Approver
from clawkit.errors import ClawkitError, ConflictError, ToolError, ToolInputError
from clawkit.gateway.hub import Hub
from clawkit.gateway.metrics import Metrics, TurnMeter
from clawkit.gateway.narrator import GatewayRun, Narrator, settle
from clawkit.gateway.protocol import GatewayError, invalid, now_ms
from clawkit.models.protocols import Model
from clawkit.process.protocols import Commands
from clawkit.services import Services
from clawkit.sessions.keys import parse_key
from clawkit.sessions.lanes import Mode
from clawkit.sessions.protocols import Session, check_name, session_key
from clawkit.sessions.store import SessionStore
from clawkit.store import private_dir
from clawkit.tools._commands import owner_of

IDLE_S = 300.0
KEEP_RUNS, KEEP_RUNS_S = 1_000, 300.0
RESETS = ("/new", "/reset")
STOPS = ("/stop",)
STARTED_ANEW = "A new conversation has started."
STOPPED = "Stopped."
NOTHING_TO_STOP = "There is nothing to stop."

log = logging.getLogger(__name__)


def is_shared(key: str) -> bool:
    """Whether other people read and write in a session: what they said must not act for the
    owner."""
    parsed = parse_key(key)
    return bool(parsed.channel) or parsed.kind == "group"


class Open:
    """An open agent."""

    def __init__(self, agent: Agent, narrator: Narrator, *, owner: bool) -> None:
        self.agent = agent
        self.narrator = narrator
        self.owner = owner
        self.used_at = time.monotonic()
        self.runs: dict[str, tuple[GatewayRun, asyncio.Future[TurnEnded]]] = {}
        self._users = 0

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep it open inside the `with` block."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self.used_at = time.monotonic()

    @property
    def is_busy(self) -> bool:
        """Whether closing it would stop something."""
        return bool(self.runs) or self.agent.turns.lane.is_busy or self.works_in_background

    @property
    def works_in_background(self) -> bool:
        """Whether something runs that is not a turn: calls, sub-agents, commands."""
        agent, delegation = self.agent, self.agent.delegation
        if self._users or agent.has_results:
            return True
        if delegation and delegation.subagents.active(agent.session_id):
            return True
        run = agent.kit.run
        if not isinstance(run.services, Services) or not run.services.is_made(Commands):
            return False
        commands = run.services[Commands].all(owner_of(run.scope))
        return any(each.exit is None for each in commands)


class LiveSessions:
    """The sessions that are in use."""

    def __init__(
        self,
        loaded: Callable[[], Loaded],
        store: SessionStore,
        hub: Hub,
        approver: Approver,
        row: Callable[[Session], dict[str, Any]],
        metrics: Metrics,
        *,
        model: Model | None = None,
    ) -> None:
        """`model` replaces the configured one, for tests."""
        self._loaded = loaded
        self._store = store
        self._hub = hub
        self._approver = approver
        self._row = row
        self._metrics = metrics
        self._model = model
        self._open: dict[str, Open] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._runs: OrderedDict[str, GatewayRun] = OrderedDict()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.is_closed = False

    def resolve_key(self, text: str, agent: str | None = None) -> str:
        """The key of a session given by its key or name, or by its id in the place of the name: no
        session has two keys. Raises `GatewayError`."""
        main, given = self._loaded().config.session.main_key, text.strip()
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
        """The id of an agent that exists, by default of the default one."""
        agents = self._loaded().config.agents
        name = (agent or "").strip().lower() or agents.default_id()
        if name != agents.default_id() and name not in agents.by_id():
            raise invalid(f"unknown agent id '{name}'")
        return name

    @property
    def opened(self) -> int:
        """How many sessions are open."""
        return len(self._open)

    @property
    def running(self) -> int:
        """How many turns are under way."""
        return sum(each.agent.turns.lane.is_busy for each in self._open.values())

    def find(self, key: str) -> Open | None:
        return self._open.get(key)

    def run(self, id_: str) -> GatewayRun | None:
        return self._runs.get(id_)

    def active(self, key: str) -> list[str]:
        """Ids of the runs of a session that are not over."""
        if (there := self._open.get(key)) is not None:
            return list(there.runs)
        if ":subagent:" not in key:
            return []
        return [id_ for each in self._open.values() for id_ in each.narrator.runs_of(key)]

    async def open(self, key: str, *, owner: bool) -> Open:
        """The agent of a session, opened if needed, with the rights of the owner or without."""
        async with self._entered(key, owner=owner) as there:
            return there

    def _lock(self, key: str) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    @asynccontextmanager
    async def _entered(self, key: str, *, owner: bool) -> AsyncIterator[Open]:
        """Open the agent of a session, and hold the lock of the session inside the `with` block."""
        owner = owner and not is_shared(key)
        while True:
            there = self._open.get(key)
            if there is not None and there.owner != owner:
                # Outside the lock: those whom the agent works for can still talk to it.
                await there.agent.turns.lane.idle()
            async with self._lock(key):
                there = self._open.get(key)
                if there is None or there.owner == owner or not there.agent.turns.lane.is_busy:
                    yield await self._enter(key, owner=owner)
                    return

    async def _enter(self, key: str, *, owner: bool) -> Open:
        if self.is_closed:
            raise GatewayError("UNAVAILABLE", "the gateway is shutting down", retry_ms=1000)
        there = self._open.get(key)
        if there is not None and there.owner != owner:
            # The tools of an agent are those of the person it was opened for.
            if there.works_in_background:
                message = "the session is busy with background work of another client"
                raise GatewayError("UNAVAILABLE", message, retry_ms=5000)
            await self._shut(key)
            there = None
        if there is None:
            there = await self._start(key, owner=owner)
        there.used_at = time.monotonic()
        return there

    async def _start(self, key: str, *, owner: bool) -> Open:
        loaded, parsed = self._loaded(), parse_key(key)
        stored = self._store.find(key)
        agent = Agent.open(
            loaded,
            workspace=self.workspace(parsed.agent, stored),
            agent=parsed.agent,
            session=stored.id if stored else key.removeprefix(f"agent:{parsed.agent}:"),
            owner=owner,
            depth=parsed.depth,
            channel=parsed.channel,
            group=parsed.peer if parsed.kind == "group" else "",
            model=self._model,
            approver=self._approver,
        )
        session = agent.session
        if session is None or session.key != key:
            # Its rights and its lock are those of the key.
            await agent.close()
            raise ToolError("the session could not be stored under its key")
        narrator = Narrator(self._hub, self._store, session, self._row)
        heard, meter = agent.conversation.tell, TurnMeter(self._metrics)

        def tell(event: Event) -> None:
            meter(event)
            narrator(event)
            heard(event)

        agent.conversation.tell = tell
        agent.on_subagent_event = both(meter, narrator.hear_subagent)
        agent.on_results = lambda: self._spawn(agent.report())
        agent.deliver = narrator.post
        await agent.__aenter__()
        self._open[key] = Open(agent, narrator, owner=owner)
        return self._open[key]

    def workspace(self, agent: str, stored: Session | None = None) -> str:
        """Where a session works: where it began, what is configured, or a directory of ours."""
        agents = self._loaded().config.agents
        if stored is not None and os.path.isdir(stored.workspace):
            return stored.workspace
        if place := agents.get(agent).workspace or agents.defaults.workspace:
            return os.path.abspath(os.path.expanduser(place))
        place = os.path.join(home(os.environ), "workspace")
        private_dir(place)
        return place

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
        said: str | Sequence[Block],
        *,
        owner: bool,
        client: str = "",
        mode: Mode | None = None,
        timeout_s: float | None = None,
        prepare: Callable[[Agent], Any] | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> GatewayRun:
        """Say something in a session, for a client. The run is accepted once this returns."""
        run = GatewayRun(run_id, key, parse_key(key).agent, client)
        run.on_text = on_text
        self._remember(run)
        try:
            word = said.strip() if isinstance(said, str) else ""
            if word in RESETS:
                await self.reset(key)
                return self._end_at_once(run, STARTED_ANEW)
            if word in STOPS:
                stopped = await self.abort(key)
                return self._end_at_once(run, STOPPED if stopped else NOTHING_TO_STOP)
            async with self._entered(key, owner=owner) as there:
                if prepare is not None:
                    prepare(there.agent)
                self._post(there, run, said, mode, timeout_s)
        except BaseException:
            self._runs.pop(run.id, None)
            raise
        return run

    def _end_at_once(self, run: GatewayRun, text: str) -> GatewayRun:
        settle(run, TurnEnded("done", text=text))
        if (there := self._open.get(run.session)) is not None:
            there.narrator.tell_end(run)
        return run

    def _post(
        self,
        there: Open,
        run: GatewayRun,
        said: str | Sequence[Block],
        mode: Mode | None,
        timeout_s: float | None,
    ) -> None:
        def begin(event: Event) -> None:
            if isinstance(event, TurnStarted):
                there.narrator.run = run

        words = (Text(said),) if isinstance(said, str) else tuple(said)
        future = there.agent.turns.post(words, mode, tell=begin)
        there.runs[run.id] = run, future
        there.narrator.changed(reason="send")
        self._spawn(self._finish(there, run, future, timeout_s))

    async def _finish(
        self,
        there: Open,
        run: GatewayRun,
        future: asyncio.Future[TurnEnded],
        timeout_s: float | None,
    ) -> None:
        """Wait for the end of a run, and tell it."""
        await asyncio.wait({future}, timeout=timeout_s)
        if not future.done():
            run.stop_reason = "timeout"
            await there.agent.turns.lane.cancel(future)
        if future.cancelled():
            is_late = run.stop_reason == "timeout"
            said = "the time limit of the request was reached" if is_late else ""
            ended = TurnEnded("timeout" if is_late else "aborted", error=said)
        elif (error := future.exception()) is not None:
            text = str(error) if isinstance(error, ClawkitError) else f"{type(error).__name__}"
            ended = TurnEnded("error", error=text)
        else:
            ended = future.result()
        there.runs.pop(run.id, None)
        there.used_at = time.monotonic()
        settle(run, ended)
        there.narrator.tell_end(run)

    def _remember(self, run: GatewayRun) -> None:
        limit = now_ms() - KEEP_RUNS_S * 1000
        # Counted for each client, so that none can make the gateway forget the runs of others.
        own = sum(each.client == run.client for each in self._runs.values())
        for each in [each for each in self._runs.values() if each.over.is_set()]:
            is_own = each.client == run.client
            if each.ended_ms < limit or (is_own and own >= KEEP_RUNS):
                del self._runs[each.id]
                own -= is_own
        self._runs[run.id] = run

    async def abort(self, key: str, run_id: str | None = None, reason: str = "rpc") -> list[str]:
        """Stop the runs of a session, or one of them; returns which."""
        there = self._open.get(key)
        if there is None:
            return []
        found = [pair for id_, pair in there.runs.items() if run_id in (None, id_)]
        for run, future in found:
            run.stop_reason = reason
            await there.agent.turns.lane.cancel(future)
        return [run.id for run, _ in found]

    async def close_session(self, key: str) -> None:
        """Stop what runs in a session, and close it."""
        await self.abort(key, reason="closed")
        async with self._lock(key):
            await self._shut(key)

    async def _shut(self, key: str) -> None:
        there = self._open.pop(key, None)
        if there is not None:
            await there.agent.close()

    async def reset(self, key: str) -> Session:
        """Start a session anew under the same key. What was said stays, under another name."""
        await self.close_session(key)
        stored = self._store.find(key)
        if stored is None:
            parsed = parse_key(key)
            return self._create(parsed.agent, parsed.name)
        self._store.rename(stored.id, f"{stored.name}:before:{stored.id}"[:256])
        fresh = self._create(stored.agent, stored.name, thinking=stored.thinking)
        if stored.model_override:
            fresh = self._store.set_model(fresh.id, stored.model_override)
        return self._store.update(fresh.id, label=stored.label) if stored.label else fresh

    def _create(self, agent: str, name: str, label: str = "", thinking: str = "") -> Session:
        place = self.workspace(agent)
        return self._store.create(agent, workspace=place, name=name, label=label, thinking=thinking)

    def create(self, agent: str, label: str = "", thinking: str = "", name: str = "") -> Session:
        """A new session of its own, by default with a new name."""
        name = name or f"dashboard:{uuid.uuid4()}"
        return self._create(agent, name, label=label, thinking=thinking)

    async def sweep(self, idle_s: float = IDLE_S) -> None:
        """Close the agents that have not been used for a while."""
        for key, there in list(self._open.items()):
            if time.monotonic() - there.used_at >= idle_s and not there.is_busy:
                async with self._lock(key):
                    if self._open.get(key) is there and not there.is_busy:
                        await self._shut(key)
        for key in [key for key, lock in self._locks.items() if not lock.locked()]:
            if key not in self._open:
                del self._locks[key]

    async def renew(self) -> None:
        """Let idle sessions take up changed settings; busy ones do when they are idle."""
        await self.sweep(0.0)

    async def close(self) -> None:
        """Stop everything."""
        self.is_closed = True
        for key in list(self._open):
            with suppress(ConflictError):
                await self.close_session(key)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5.0)
