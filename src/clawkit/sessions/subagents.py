"""The sub-agents of one process: queue, limits, and delivery of results to the requester.

This is in-memory state; `subagent_runs` stores what must survive a crash. One object serves a root
session and all sub-agents below it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from clawkit.config.paths import attachments_dir
from clawkit.config.sections.shared import Thinking
from clawkit.content import Usage
from clawkit.core.tasks import in_thread, unbroken
from clawkit.errors import NotFoundError, ToolAuthorizationError, ToolError, ToolInputError
from clawkit.sessions.keys import child_key
from clawkit.sessions.protocols import Session
from clawkit.sessions.store import SessionStore
from clawkit.sessions.subagent_protocols import (
    RunOutcome,
    RunState,
    RunStatus,
    SpawnRequest,
    SubagentRun,
    WindUp,
    Worktree,
    now_ms,
)
from clawkit.sessions.subagent_runs import EXITED, RunStore
from clawkit.text import human_time, one_line

if TYPE_CHECKING:
    from clawkit.sessions.attachments import AttachedFile

log = logging.getLogger(__name__)

SKIP = "ANNOUNCE_SKIP"
"""Last answer of a sub-agent that has nothing to report."""
LIMITS = "agents.defaults.subagents"
MAX_LABEL = 120
_STOP_S = 3.0
"""Seconds that a sub-agent may take to stop."""
_RETRIES_S = (0.1, 0.5, 1, 2, 5)
"""Seconds between attempts to store a result."""


class Spec(Struct, frozen=True):
    """A validated task for a sub-agent, and the resolved values of its request."""

    request: SpawnRequest
    """Without the contents of the attachments."""
    requester: Session
    depth: int
    """Depth of the sub-agent: 1 directly below a main session."""
    agent: str
    workspace: str
    model: str
    """Empty for the agent's model, or else the requester's."""
    fallbacks: tuple[str, ...]
    thinking: Thinking | None
    timeout_s: float
    sandboxed: bool
    keeps_attached: bool
    """Whether the attachments are kept with the session."""
    worktree: Worktree | None
    cwd: str
    """Working directory, relative to the workspace."""


class SubagentLimits(Struct, frozen=True):
    max_concurrent: int
    max_depth: int
    max_children: int


class RunningSubagent(Protocol):
    """A running sub-agent; created by the runtime."""

    async def work(self) -> RunOutcome:
        """Do the task, and wait for its own sub-agents. Raises nothing but `CancelledError`."""

    def steer(self, text: str) -> None: ...
    def note_stop(self, by: str) -> None:
        """Called before its work is cancelled."""

    @property
    def usage(self) -> Usage: ...
    @property
    def text(self) -> str:
        """Its latest text so far."""

    @property
    def step(self) -> str:
        """What it is doing, in a few words."""

    def ended(self, outcome: RunOutcome) -> None:
        """Called when its run has ended and the result is stored."""


class _Live(Struct):
    run: SubagentRun
    spec: Spec
    session: Session
    open_child: Callable[[Spec, Session], RunningSubagent]
    child: RunningSubagent | None = None
    task: asyncio.Task[None] | None = None
    ended_as: RunOutcome | None = None
    """The outcome, if it was decided from outside."""
    stopped_by: str = "its time limit"
    has_slot: bool = False
    is_ending: bool = False
    """Whether it may no longer start sub-agents."""


class Subagents:
    """The sub-agents below one session."""

    def __init__(self, root: Session, store: SessionStore, wind_up: WindUp) -> None:
        """The caller must hold the root's lock: unfinished runs are those of a dead process."""
        self.root = root
        self._store = store
        self._wind_up = wind_up
        self.runs.interrupt(root.id, wind_up)
        self._live: dict[str, _Live] = {}
        self._waiting: dict[str, deque[str]] = {}
        """Queued runs by requester; free slots are given to requesters in turn."""
        self._busy = 0
        self._max_busy = 1
        self._listeners: dict[str, Callable[[], None]] = {}
        self._claimed: set[str] = set()
        """Results being added to a transcript."""
        self._changed = asyncio.Condition()
        self._is_closed = False

    @property
    def runs(self) -> RunStore:
        return self._store.runs

    def spawn(
        self,
        spec: Spec,
        limits: SubagentLimits,
        open_child: Callable[[Spec, Session], RunningSubagent],
        files: Sequence[AttachedFile] = (),
    ) -> tuple[SubagentRun, Session]:
        """Queue a task; returns the run and its session. Raises `ToolAuthorizationError` if a limit
        is reached, `ToolError` if its attachments cannot be stored."""
        active = [each for each in self._live.values() if each.run.requester == spec.requester.id]
        if spec.depth > limits.max_depth:
            raise ToolAuthorizationError(
                f"sessions_spawn is not allowed at this depth (current depth: {spec.depth - 1}, "
                f"max: {limits.max_depth}; {LIMITS}.maxSpawnDepth)"
            )
        if len(active) >= limits.max_children:
            raise ToolAuthorizationError(
                f"this session has {len(active)} of at most {limits.max_children} active "
                f"sub-agents; wait for one to end ({LIMITS}.maxChildrenPerAgent)"
            )
        requester = self._live_of(spec.requester.id)
        if self._is_closed or (requester is not None and requester.is_ending):
            raise ToolError("this session is being stopped; no new sub-agents can start")
        self._max_busy = limits.max_concurrent
        request = spec.request
        key = child_key(spec.agent, spec.requester.key, str(uuid.uuid4()))
        place = attachments_dir(os.environ, key) if files else ""
        run = SubagentRun(
            os.urandom(8).hex(),
            "",
            spec.requester.id,
            self.root.id,
            request.name,
            one_line(request.label or request.task, MAX_LABEL if request.label else 60),
            request.task,
            created_ms=now_ms(),
            timeout_s=spec.timeout_s,
            cleanup=request.cleanup,
            attachments="" if spec.keeps_attached else place,
            worktree=spec.worktree,
        )
        session = self._store.create(
            spec.agent,
            workspace=spec.workspace,
            model=spec.model,
            name=key.removeprefix(f"agent:{spec.agent}:"),
            parent=spec.requester.id,
            thinking=spec.thinking or "",
            label=run.label,
            run=run,
            copy_of=spec.requester.id if request.fork else "",
        )
        if files:
            self._attach(run, session, place, files)
        live = _Live(replace(run, session=session.id), spec, session, open_child)
        self._live[run.id] = live
        self._waiting.setdefault(spec.requester.id, deque()).append(run.id)
        self._start_next()
        return live.run, session

    def _attach(
        self, run: SubagentRun, session: Session, directory: str, files: Sequence[AttachedFile]
    ) -> None:
        """Store the attachments. The run is already stored, so they are found after a crash."""
        from clawkit.sessions.attachments import write_attachments

        try:
            write_attachments(directory, files)
        except ToolError:
            self._store.delete(session.id)
            self.runs.forget(run.id)
            raise

    def _start_next(self) -> None:
        while self._busy < self._max_busy and self._waiting and not self._is_closed:
            requester, queue = next(iter(self._waiting.items()))
            live = self._live.get(queue.popleft())
            # To the end of the queue, so that other requesters come first.
            del self._waiting[requester]
            if queue:
                self._waiting[requester] = queue
            if live is not None:
                self._take_slot(live)
                live.task = asyncio.ensure_future(self._run(live))

    def _take_slot(self, live: _Live) -> None:
        if not live.has_slot:
            live.has_slot = True
            self._busy += 1

    def _free_slot(self, live: _Live) -> None:
        if live.has_slot:
            live.has_slot = False
            self._busy -= 1
            self._start_next()

    def _live_of(self, session: str) -> _Live | None:
        return next((each for each in self._live.values() if each.session.id == session), None)

    @contextmanager
    def resting(self, session: str) -> Iterator[None]:
        """Free the slot of a sub-agent while it waits for its own sub-agents. It is taken back
        without waiting, which could deadlock."""
        live = self._live_of(session)
        if live is None:
            yield
            return
        self._free_slot(live)
        try:
            yield
        finally:
            self._take_slot(live)

    async def _run(self, live: _Live) -> None:
        """Run one sub-agent from start to result; the root of its asyncio task."""
        outcome: RunOutcome
        try:
            self.runs.start(live.run.id)
            live.child = live.open_child(live.spec, live.session)
            outcome = await self._work(live, live.child)
        except asyncio.CancelledError:
            outcome = live.ended_as or self._partial(live, "interrupted", EXITED)
        except Exception as error:  # noqa: BLE001  # task root: every failure becomes a result
            log.warning("a sub-agent failed: %r", error)
            outcome = self._partial(live, "failed", str(error) or type(error).__name__)
        await unbroken(self._end(live, outcome))

    async def _work(self, live: _Live, child: RunningSubagent) -> RunOutcome:
        """Let it work until its deadline. One that does not stop when cancelled is abandoned."""
        limit_s = live.spec.timeout_s
        work = asyncio.ensure_future(child.work())
        try:
            await asyncio.wait({work}, timeout=limit_s or None)
        finally:
            if not work.done():
                child.note_stop(live.stopped_by)
                work.cancel()
                await asyncio.wait({work}, timeout=_STOP_S)
        if not work.done():
            log.warning("the sub-agent %s does not stop", live.run.id)
        elif not work.cancelled():
            return work.result()
        return self._partial(live, "timed_out", f"it took longer than {human_time(limit_s)}")

    def _partial(self, live: _Live, status: RunStatus, error: str) -> RunOutcome:
        child = live.child
        text, usage = (child.text, child.usage) if child else ("", Usage())
        return RunOutcome(status, text, error, usage=usage)

    async def _end(self, live: _Live, outcome: RunOutcome) -> None:
        """Store the result, then notify listeners. A completed run has waited for its sub-agents;
        otherwise they are stopped."""
        run = live.run
        live.is_ending = True
        await self._stop_below(live.session.id, "the end of its requester")
        if run.attachments or run.worktree:
            outcome = await in_thread(self._wind_up, run, outcome)
        is_silent = not live.spec.request.is_told or (
            # A worktree is always reported: it may have been kept.
            outcome.status == "completed" and outcome.text.strip() == SKIP and not run.worktree
        )
        await self._store_result(run, outcome, is_silent=is_silent)
        self._tell_end(live, outcome)
        self._live.pop(run.id, None)
        self._free_slot(live)
        if run.cleanup == "delete" and outcome.status == "completed":
            try:
                self._store.delete(live.session.id)
            except ToolError as error:
                log.warning("the session of a sub-agent could not be deleted: %s", error)
        try:
            # Even for a silent end: a waiting session must not wait forever.
            if listener := self._listeners.get(self.runs.listener(run.requester, self.root.id)):
                listener()
        except Exception as error:  # noqa: BLE001  # the listener's own code
            log.warning("a listener for results failed: %r", error)
        async with self._changed:
            self._changed.notify_all()

    def _tell_end(self, live: _Live, outcome: RunOutcome) -> None:
        try:
            if live.child is not None:
                live.child.ended(outcome)
        except Exception as error:  # noqa: BLE001  # the listener's own code
            log.warning("a listener for events failed: %r", error)

    async def _store_result(
        self, run: SubagentRun, outcome: RunOutcome, *, is_silent: bool
    ) -> None:
        for pause_s in (*_RETRIES_S, None):
            try:
                self.runs.finish(run.id, outcome, is_silent=is_silent)
                return
            except ToolError as error:
                # If all attempts fail, it stays `running` and is later reported as interrupted.
                log.warning("the result of a sub-agent could not be stored: %s", error)
            if pause_s is not None:
                await asyncio.sleep(pause_s)

    async def _stop_below(self, session: str, by: str) -> None:
        while below := self.active(session):
            for run in below:
                await self.cancel(run.id, by)

    def listen(self, session: str, listener: Callable[[], None] | None) -> None:
        """Call `listener` whenever a session has new results; None removes the listener."""
        if listener is None:
            self._listeners.pop(session, None)
        else:
            self._listeners[session] = listener

    def untold(self, session: str) -> list[SubagentRun]:
        """Results to be delivered to a session that were not claimed yet."""
        return [
            run
            for run in self.runs.untold(self.root.id)
            if run.id not in self._claimed
            and self.runs.listener(run.requester, self.root.id) == session
        ]

    def claim(self, session: str) -> list[SubagentRun]:
        """Like `untold`, but claims the results: each is returned only once."""
        found = self.untold(session)
        self._claimed.update(run.id for run in found)
        return found

    def unclaim(self, runs: Sequence[str]) -> None:
        """Release results that were not added to the transcript after all."""
        self._claimed.difference_update(runs)

    def active(self, requester: str) -> list[SubagentRun]:
        """Queued and running runs that a session started."""
        return [live.run for live in self._live.values() if live.run.requester == requester]

    def run_of(self, session: str) -> SubagentRun | None:
        """The active run in a session."""
        live = self._live_of(session)
        return live.run if live else None

    def state(self, run: SubagentRun) -> RunState:
        live = self._live.get(run.id)
        if live is None:
            return RunState(run, run.status, run.usage)
        if live.child is None:
            return RunState(run, "queued", run.usage)
        return RunState(run, "running", live.child.usage, live.child.step)

    def working(self) -> list[RunState]:
        """All running sub-agents of the tree."""
        return [self.state(each.run) for each in self._live.values() if each.child is not None]

    def spent_beside(self, session: str) -> float:
        """Cost in dollars of all sub-agents except one, including running ones."""
        live = (
            each.child.usage.cost
            for each in self._live.values()
            if each.child and each.session.id != session
        )
        return self.runs.cost(self.root.id) + sum(live)

    def find(self, requester: str, which: str) -> SubagentRun:
        """See `Delegates.find`."""
        mine = self.runs.of_requester(requester)
        if which == "last" and mine:
            return mine[-1]
        for fits in (
            lambda run: which in (run.id, run.session),
            lambda run: which == run.name,
            lambda run: which == run.label,
            lambda run: len(which) >= 4 and run.id.startswith(which),
        ):
            found = [run for run in mine if fits(run)]
            # Names can be reused: prefer an active run.
            found = [run for run in found if not run.is_over] or found
            if len(found) == 1:
                return found[0]
            if found:
                listed = ", ".join(f"{run.id} ({run.label})" for run in found[:8])
                raise ToolInputError(f"{which!r} is ambiguous; it matches {listed}; give the id")
        known = ", ".join(f"{run.id} ({run.label})" for run in mine[-8:]) or "none"
        raise NotFoundError(f"there is no sub-agent {one_line(which, 60)!r}; yours: {known}")

    async def wait(
        self, requester: str, ids: Sequence[str], timeout_s: float | None
    ) -> list[SubagentRun]:
        """Wait until one of the runs has ended, or for the timeout; returns those that have ended.
        Without ids, waits for all active runs of the requester."""
        wanted = list(ids) or [run.id for run in self.active(requester)]

        def over() -> list[str]:
            return [each for each in wanted if each not in self._live]

        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: bool(over()) or not wanted)
        except TimeoutError:
            pass
        return [run for each in over() if (run := self.runs.get(each)) is not None]

    async def cancel(self, id_: str, by: str) -> None:
        """Stop a run, and everything that it started."""
        live = self._live.get(id_)
        if live is None:
            return
        live.is_ending, live.stopped_by = True, by
        live.ended_as = self._partial(live, "cancelled", f"cancelled by {by}")
        await self._stop_below(live.session.id, by)
        await self._stop(live, live.ended_as)

    async def _stop(self, live: _Live, outcome: RunOutcome) -> None:
        if live.task is not None:
            live.task.cancel()
            await asyncio.wait({live.task})
        # A task cancelled before its first step never ran `_run`, so finish the run here.
        if live.run.id in self._live:
            await self._end(live, outcome)

    def steer(self, id_: str, text: str) -> None:
        live = self._live.get(id_)
        if live is None or live.child is None:
            state = "has not started yet" if live else "has ended"
            raise ToolInputError(f"the sub-agent {id_} {state} and cannot be steered")
        live.child.steer(text)

    async def close(self, by: str) -> None:
        """Stop all sub-agents; their partial results are stored as `interrupted`."""
        self._is_closed = True
        lives = list(self._live.values())
        for live in lives:
            live.is_ending, live.stopped_by = True, by
            if live.task is not None:
                live.task.cancel()
        for live in lives:
            await self._stop(live, self._partial(live, "interrupted", EXITED))
