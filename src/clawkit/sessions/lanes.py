"""Turns of sessions: one at a time in each, in the order of arrival, and so many at once over all.

Nothing here knows what a turn is. A lane is given functions: one that carries out a turn, one that
lets something into the turn that goes on, and one that takes it back while it is unread.
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
"""What becomes of something that is said during a turn: `steer`: the model reads it before its next
answer, or in the next turn if this one ends first; `followup`: a turn of its own afterwards;
`collect`: one turn with all others of that mode that wait; `interrupt`: the turn is stopped."""
T = TypeVar("T")
R = TypeVar("R")


class Limits(Struct, frozen=True):
    """How much may wait, and how many turns there may be at once; None for any number."""

    cap: int = 20
    max_turns: int | None = None
    max_agent_turns: int | None = None


NO_LIMITS = Limits()


class _Wish(Struct, eq=False):
    agent: str
    limits: Limits
    granted: asyncio.Future[None]


class Slots:
    """How many turns there are at once. Whoever waits longest and may have one gets the next; a
    session asks for each of its turns anew, so that none keeps others waiting."""

    def __init__(self) -> None:
        self._busy: Counter[str] = Counter()
        self._wishes: list[_Wish] = []

    async def take(self, agent: str, limits: Limits) -> None:
        wish = _Wish(agent, limits, asyncio.get_running_loop().create_future())
        self._wishes.append(wish)
        self._grant()
        try:
            await wish.granted
        except asyncio.CancelledError:
            if wish in self._wishes:
                self._wishes.remove(wish)
            else:
                self.free(agent)  # it was granted meanwhile
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
        """Have one again at once, even if it is one too many."""
        self._busy[agent] += 1


class _Ticket(Struct, eq=False):
    """Something said, until the turn that read it is over."""

    item: Any
    mode: Mode
    group: Hashable
    limits: Limits
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
        """`turn` is given what the turn is about; it returns also when it is cancelled. Without
        `slots` a turn need not wait for others."""
        self._carry_out = turn
        self._steer = steer
        self._take_back = take_back
        self._agent = agent
        self.slots = slots
        self._waiting: deque[_Ticket] = deque()
        self._steered: list[_Ticket] = []
        self._running: list[_Ticket] = []
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
        """What waits for a turn of its own, in order."""
        return [ticket.item for ticket in self._waiting]

    def post(
        self, item: T, mode: Mode = "followup", limits: Limits = NO_LIMITS, group: Hashable = None
    ) -> asyncio.Future[R]:
        """Say something; the result is that of the turn which reads it. Cancelling the future takes
        it back, or stops the turn that is about it alone. `group` is None for the person, else the
        session that sent it: its messages are counted and put together apart from others, and their
        turn sees no context variables of the sender, such as what a person typed there. Raises
        `ConflictError` when too much waits, `ToolError` when the lane is closed.
        """
        if self.is_closed:
            raise ToolError("this session is closed; nothing more can be said in it")
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        context = contextvars.copy_context() if group is None else contextvars.Context()
        ticket = _Ticket(item, mode, group, limits, future, context)
        is_in_turn = self._turn is not None and not self._is_stopping
        if mode == "steer" and is_in_turn and self._steer(item):
            self._steered.append(ticket)
        else:
            if (count := sum(each.group == group for each in self._waiting)) >= limits.cap:
                raise ConflictError(
                    f"{count} messages wait in this session already (messages.queue.cap); "
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
    def held(self) -> Iterator[None]:
        """No turn begins meanwhile; one that goes on, goes on."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self._go_on()

    def _line_up(self, tickets: Sequence[_Ticket]) -> None:
        """In the order of arrival, but for those that interrupt."""
        self._waiting = deque(sorted(tickets, key=lambda ticket: ticket.mode != "interrupt"))

    def _forget(self, ticket: _Ticket, future: asyncio.Future[R]) -> None:
        if not future.cancelled():
            future.exception()  # nobody has to ask for it
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
        """Take back what fits and is unread."""
        for ticket in [*self._waiting, *self._steered]:
            if fits(ticket.item):
                ticket.future.cancel()
                self._forget(ticket, ticket.future)

    async def cancel(self, future: asyncio.Future[R]) -> None:
        """Take something back, or stop the turn that is about it alone, and wait for its end."""
        turn = self._turn if any(each.future is future for each in self._running) else None
        future.cancel()
        if turn is not None and len(self._running) == 1:
            self.stop()
            await asyncio.wait({turn})

    def stop(self) -> bool:
        """Stop the turn that goes on; false when there is none."""
        if self._turn is None:
            return False
        if not self._has_begun:  # it has not even said what it is about
            asyncio.get_running_loop().call_soon(self.stop)
        elif not self._is_stopping:  # once: what it does to end is not to be broken off
            self._is_stopping = True
            self._turn.cancel()
        return True

    async def _drive(self) -> None:
        """Turn after turn, as long as something waits."""
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

    def _next(self) -> list[_Ticket]:
        first = self._waiting.popleft()
        batch = [first]
        while (
            first.mode in ("collect", "steer")
            and self._waiting
            and (self._waiting[0].mode, self._waiting[0].group) == (first.mode, first.group)
        ):
            batch.append(self._waiting.popleft())
        return batch

    async def _run(self, batch: list[_Ticket]) -> None:
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
        """Wait until nothing goes on, and nothing waits."""
        while self._driver is not None and not self._driver.done():
            await asyncio.wait({self._driver})

    @contextmanager
    def resting(self) -> Iterator[None]:
        """While the turn waits for turns of other sessions, its slot is free. It does not wait to
        have it again, or all could wait for each other."""
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
        """Stop the turn that goes on. What waits is not said, and who said it learns so."""
        self.is_closed = True
        self._refuse(self._waiting)
        self._waiting.clear()
        if not self.stop() and self._driver is not None:
            self._driver.cancel()
        await self.idle()

    def _refuse(self, tickets: Sequence[_Ticket] | deque[_Ticket]) -> None:
        for ticket in tickets:
            if not ticket.future.done():
                ticket.future.set_exception(ToolError("the session was closed before it was read"))


class Lanes:
    """The sessions of one store that are open in one event loop, by id."""

    def __init__(self) -> None:
        self.slots = Slots()
        self.open: dict[str, Any] = {}
        self.waits_for: dict[str, list[str]] = {}
        """Sessions whose turn waits for turns of others."""

    @classmethod
    def here(cls, store: str) -> Lanes:
        """Those of the running event loop."""
        return _lanes.setdefault(asyncio.get_running_loop(), {}).setdefault(store, cls())

    def leads_to(self, session: str, other: str) -> bool:
        """Whether a session waits for another one, at last."""
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
