"""Scheduling of turns: one at a time per session, in order of arrival, with limits across sessions.

Nothing here depends on what a turn is. A lane is given three functions: one runs a turn, one steers
an item into the current turn, and one withdraws a steered item that is still unread.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, Literal, TypeVar
from weakref import WeakKeyDictionary

from msgspec import Struct

from clawkit.errors import ConflictError, ToolError

log = logging.getLogger(__name__)

Mode = Literal["steer", "followup", "collect", "interrupt"]
"""How a message that arrives during a turn is handled: `steer`: the model reads it before its next
answer, or in the next turn if this one ends first; `followup`: a separate turn afterwards;
`collect`: one turn for all waiting messages of that mode; `interrupt`: stops the current turn."""
T = TypeVar("T")
R = TypeVar("R")


class LaneLimits(Struct, frozen=True):
    """Limits of waiting messages (`cap`) and of concurrent turns; None for no limit."""

    cap: int | None = 20
    max_turns: int | None = None
    max_agent_turns: int | None = None


NO_LIMITS = LaneLimits()


class _Wish(Struct, eq=False):
    agent: str
    limits: LaneLimits
    granted: asyncio.Future[None]


class Slots:
    """Limits concurrent turns. A free slot goes to the longest-waiting session whose limits permit
    it; a session requests a slot for every turn, so that none can starve the others."""

    def __init__(self) -> None:
        self._busy: Counter[str] = Counter()
        self._wishes: list[_Wish] = []

    async def take(self, agent: str, limits: LaneLimits) -> None:
        wish = _Wish(agent, limits, asyncio.get_running_loop().create_future())
        self._wishes.append(wish)
        self._grant()
        try:
            await wish.granted
        except asyncio.CancelledError:
            if wish in self._wishes:
                self._wishes.remove(wish)
            else:
                self.free(agent)  # it was granted in the meantime
            raise

    def free(self, agent: str) -> None:
        self._busy[agent] -= 1
        self._grant()

    def _grant(self) -> None:
        for wish in list(self._wishes):
            most, most_agent = wish.limits.max_turns, wish.limits.max_agent_turns
            fits = most is None or self._busy.total() < most
            if fits and (most_agent is None or self._busy[wish.agent] < most_agent):
                self._wishes.remove(wish)
                if not wish.granted.done():
                    self._busy[wish.agent] += 1
                    wish.granted.set_result(None)

    def retake(self, agent: str) -> None:
        """Take a slot immediately, even beyond the limit."""
        self._busy[agent] += 1


class _LaneTicket(Struct, eq=False):
    """A posted item, until the turn that reads it has ended."""

    item: Any
    mode: Mode
    group: Hashable
    limits: LaneLimits
    future: asyncio.Future[Any]
    context: contextvars.Context


class Lane(Generic[T, R]):
    """The turns of one session."""

    def __init__(
        self,
        turn: Callable[[Sequence[T]], Coroutine[Any, Any, R]],
        steer: Callable[[T], bool],
        take_back: Callable[[T], bool],
        agent: str = "",
        slots: Slots | None = None,
    ) -> None:
        """`turn` receives the items of the turn and must return a result even when cancelled.
        Without `slots`, turns do not wait for those of other sessions."""
        self._carry_out = turn
        self._steer = steer
        self._take_back = take_back
        self._agent = agent
        self.slots = slots
        self._waiting: deque[_LaneTicket] = deque()
        self._steered: list[_LaneTicket] = []
        self._running: list[_LaneTicket] = []
        self._turn: asyncio.Task[R] | None = None
        self._driver: asyncio.Task[None] | None = None
        self._has_begun = self._is_stopping = False
        self._rests = self._holds = 0
        self.is_closed = False

    @property
    def is_busy(self) -> bool:
        return self._driver is not None and not self._driver.done()

    @property
    def waiting(self) -> list[T]:
        """The items waiting for a turn, in order."""
        return [ticket.item for ticket in self._waiting]

    def post(
        self,
        item: T,
        mode: Mode = "followup",
        limits: LaneLimits = NO_LIMITS,
        group: Hashable = None,
    ) -> asyncio.Future[R]:
        """Queue an item; the future resolves to the turn that reads it. Cancelling it withdraws the
        item, or stops a turn for that item alone. `group` is None for the person, else the sending
        session: its items are counted and batched separately, and their turn sees no context
        variables of the sender, such as what a person typed there. Raises `ConflictError` if too
        many items are waiting, `ToolError` if the lane is closed."""
        if self.is_closed:
            raise ToolError("this session is closed; it accepts no more messages")
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        context = contextvars.copy_context() if group is None else contextvars.Context()
        ticket = _LaneTicket(item, mode, group, limits, future, context)
        is_in_turn = self._turn is not None and not self._is_stopping
        if mode == "steer" and is_in_turn and self._steer(item):
            self._steered.append(ticket)
        else:
            count = sum(each.group == group for each in self._waiting)
            if limits.cap is not None and count >= limits.cap:
                raise ConflictError(
                    f"{count} messages are already waiting in this session (messages.queue.cap); "
                    "try again when it has read some"
                )
            self._line_up([*self._waiting, ticket])
            if mode == "interrupt":
                self.stop()
            self._go_on()
        future.add_done_callback(partial(self._forget, ticket))
        return future

    def _go_on(self) -> None:
        if self._waiting and not self._holds and not self.is_busy:
            self._driver = asyncio.ensure_future(self._drive())

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Prevent turns from starting inside the `with` block; a running turn continues."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self._go_on()

    def _line_up(self, tickets: Sequence[_LaneTicket]) -> None:
        """Order of arrival, but interrupts first."""
        self._waiting = deque(sorted(tickets, key=lambda ticket: ticket.mode != "interrupt"))

    def _forget(self, ticket: _LaneTicket, future: asyncio.Future[R]) -> None:
        if not future.cancelled():
            future.exception()  # mark it as retrieved: callers may ignore the future
        elif ticket in self._waiting:
            self._waiting.remove(ticket)
        elif ticket in self._steered:
            if self._take_back(ticket.item):
                self._steered.remove(ticket)
        elif ticket in self._running:
            self._running.remove(ticket)
            if not self._running:
                self.stop()

    def drop(self, fits: Callable[[T], bool]) -> None:
        """Withdraw all unread items that match."""
        for ticket in [*self._waiting, *self._steered]:
            if fits(ticket.item):
                ticket.future.cancel()
                self._forget(ticket, ticket.future)

    async def cancel(self, future: asyncio.Future[R]) -> None:
        """Withdraw an item; if it is the only one of a running turn, stop that and wait for it."""
        turn = self._turn if any(each.future is future for each in self._running) else None
        future.cancel()
        if turn is not None and len(self._running) == 1:
            self.stop()
            await asyncio.wait({turn})

    def stop(self) -> bool:
        """Stop the current turn; false if there is none."""
        if self._turn is None:
            return False
        if not self._has_begun:  # cancelled now, the turn's coroutine would never run
            asyncio.get_running_loop().call_soon(self.stop)
        elif not self._is_stopping:  # once only: its cleanup must not be cancelled
            self._is_stopping = True
            self._turn.cancel()
        return True

    async def _drive(self) -> None:
        """Run turns until nothing is waiting."""
        while self._waiting and not self._holds:
            limits = self._waiting[0].limits
            if self.slots is not None:
                await self.slots.take(self._agent, limits)
            try:
                if self._waiting:
                    await self._run(self._next())
            finally:
                if self.slots is not None:
                    self.slots.free(self._agent)

    def _next(self) -> list[_LaneTicket]:
        first = self._waiting.popleft()
        batch = [first]
        while (
            first.mode in ("collect", "steer")
            and self._waiting
            and (self._waiting[0].mode, self._waiting[0].group) == (first.mode, first.group)
        ):
            batch.append(self._waiting.popleft())
        return batch

    async def _run(self, batch: list[_LaneTicket]) -> None:
        self._running = batch
        self._has_begun = self._is_stopping = False
        work = self._begin([ticket.item for ticket in batch])
        turn = asyncio.get_running_loop().create_task(work, context=batch[0].context)
        self._turn = turn
        await asyncio.wait({turn})
        self._turn = None
        unread = [ticket for ticket in self._steered if self._take_back(ticket.item)]
        read = [*self._running, *(each for each in self._steered if each not in unread)]
        self._running, self._steered = [], []
        if self.is_closed:
            self._refuse(unread)
        else:
            self._line_up([*unread, *self._waiting])
        error = None if turn.cancelled() else turn.exception()
        if error is not None and not read:
            log.warning("a turn failed: %r", error)
        for future in (ticket.future for ticket in read if not ticket.future.done()):
            if turn.cancelled():
                future.cancel()
            elif error is not None:
                future.set_exception(error)
            else:
                future.set_result(turn.result())

    async def _begin(self, items: Sequence[T]) -> R:
        self._has_begun = True
        return await self._carry_out(items)

    async def idle(self) -> None:
        """Wait until no turn is running or waiting."""
        while self._driver is not None and not self._driver.done():
            await asyncio.wait({self._driver})

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Free the slot while the turn waits for others; retaken at once, to avoid a deadlock."""
        slots = self.slots if self._turn is not None else None
        self._rests += 1
        if slots is not None and self._rests == 1:
            slots.free(self._agent)
        try:
            yield
        finally:
            self._rests -= 1
            if slots is not None and not self._rests:
                slots.retake(self._agent)

    async def close(self) -> None:
        """Stop the current turn. The futures of waiting items fail with `ToolError`."""
        self.is_closed = True
        self._refuse(self._waiting)
        self._waiting.clear()
        if not self.stop() and self._driver is not None:
            self._driver.cancel()
        await self.idle()

    def _refuse(self, tickets: Sequence[_LaneTicket] | deque[_LaneTicket]) -> None:
        for ticket in tickets:
            if not ticket.future.done():
                ticket.future.set_exception(ToolError("the session was closed; it was not read"))


class Lanes:
    """The sessions of one store that are open in one event loop, by id."""

    def __init__(self) -> None:
        self.slots = Slots()
        self.open: dict[str, Any] = {}
        self.waits_for: dict[str, list[str]] = {}
        """Session to the sessions that its turn is waiting for."""

    @classmethod
    def of_running_loop(cls, store: str) -> Lanes:
        """The lanes of the running event loop."""
        return _lanes.setdefault(asyncio.get_running_loop(), {}).setdefault(store, cls())

    def leads_to(self, session: str, other: str) -> bool:
        """Whether a session waits for another one, directly or indirectly."""
        seen, look = set[str](), [session]
        while look:
            each = look.pop()
            if each == other:
                return True
            if each not in seen:
                seen.add(each)
                look += self.waits_for.get(each, ())
        return False


_lanes: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Lanes]] = WeakKeyDictionary()
