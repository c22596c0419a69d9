"""Wake-ups: turns for messages of others, or for events in a session."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from clawkit.content import Source, Text, User
from clawkit.cron.heartbeat import decide_beat, event_due_ms, why_off
from clawkit.cron.jobs import RUNNING, Job
from clawkit.cron.outcome import Outcome, ended
from clawkit.cron.store import CronRun
from clawkit.errors import ClawkitError, ConflictError
from clawkit.gateway.protocol import GatewayError, now_ms
from clawkit.session_cron import GUEST, is_wakeable, queue_wake_up
from clawkit.sessions.keys import parse_key
from clawkit.text import one_line, quote

if TYPE_CHECKING:
    from clawkit.gateway.job_runner import JobRunner
    from clawkit.gateway.server import Gateway
    from clawkit.gateway.session_events import GatewayRun

WAKE_S = 3_600.0
MAX_EVENTS = 100
_WOKEN = (
    "[The above is a wake-up and not from the user. If there is nothing to do or to say, answer "
    "exactly NO_REPLY.]"
)
_EVENT = "[This message is from clawkit: the following happened while the user was away.]\n\n"


class WakeUps:
    """Runs the turns of wake-ups."""

    def __init__(self, gateway: Gateway, job_runner: JobRunner) -> None:
        self._gateway, self._job_runner = gateway, job_runner
        self._events: deque[tuple[int, str]] = deque(maxlen=MAX_EVENTS)
        """Times of event turns, with their sessions, in order."""

    async def turn(self, job: Job, run: CronRun, text: str, begin: Callable[[], None]) -> Outcome:
        """Post a text to a session, by default the main one, with all waiting wake-ups. The turn is
        resumed after a restart, like those of clients."""
        live, store, agent = self._gateway.live, self._job_runner.store, job.agent_id
        key = run.session or self._job_runner.main_of(agent)
        begin()
        others = store.take_along(run, now_ms()) if run.session else []
        texts = [text, *(each.text for each in others)]
        titles = tuple(f"Wake-up: {one_line(each, 120)}" for each in texts)
        source = Source("cron", (run.id, *(each.id for each in others)), titles)
        said = User(tuple(map(Text, (*texts, _WOKEN))), now_ms(), source)
        sender = GUEST if run.record.is_guest else "a wake-up"
        RUNNING.set(job.id)
        try:
            woken = await live.start(
                key,
                f"wake-{run.id}",
                said,
                owner=not run.record.is_guest,
                client="wake",
                mode="followup",
                timeout_s=WAKE_S,
            )
            outcome = await self._wait(woken, key)
        except (ConflictError, GatewayError):  # it is in use elsewhere, or its queue is full
            for each in texts:
                self._job_runner.leave(key, agent, sender, each)
            outcome = Outcome("ok", "left for the next turn", session_key=key, is_heard=True)
        except ClawkitError as error:
            outcome = Outcome("error", error=str(error), reason=getattr(error, "kind", ""))
        for other in others:
            share = replace(outcome, usage={}, cost=0.0)  # counted once
            store.record(ended(other, share, now_ms(), delivers=False))
        return outcome

    async def _wait(self, woken: GatewayRun, key: str) -> Outcome:
        try:
            await woken.over.wait()
        except asyncio.CancelledError:
            if not self._gateway.live.is_closed:
                await self._gateway.live.abort(key, woken.id, "stopped")
            raise
        return replace(self._job_runner.outcome(woken, key, woken.text), is_heard=True)

    def notice(self, key: str, text: str) -> None:
        """Have the model read an event, if its heartbeat is on and no person is active."""
        gateway, agent, now = self._gateway, parse_key(key).agent, now_ms()
        there, clients = gateway.live.find(key), gateway.hub.clients.values()
        if there is None or there.has_turns or not there.owner or not is_wakeable(key):
            return
        if any(each.follows(key) or key in each.attached for each in clients):
            return
        facts = self._job_runner.heartbeats.facts(agent)[0]
        if why_off(facts) is not None:
            return
        said = _EVENT + quote(text)
        if decide_beat(replace(facts, text=said, last_ms=0)) is not None:
            self._job_runner.leave(key, agent, "clawkit", said)
            return
        own = [ms for ms, session in self._events if session == key]
        if own and own[-1] > now:  # a waiting wake-up will include this
            due_ms = own[-1]
        else:
            due_ms = event_due_ms(own, [ms for ms, _ in self._events], now)
            self._events.append((due_ms, key))
        try:
            queue_wake_up(self._job_runner.jobs(), agent, key, said, due_ms)
        except ConflictError:  # too many are waiting
            self._job_runner.leave(key, agent, "clawkit", said)
        self._job_runner.scheduler.wake()
