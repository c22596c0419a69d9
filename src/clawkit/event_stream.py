"""The events of an agent as an async iterator: of one turn, or including all sub-agents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import TYPE_CHECKING

from clawkit.agent.events import (
    CallWritten,
    Event,
    SubagentHappened,
    Tell,
    TextPiece,
    ThinkingPiece,
    no_listener,
)
from clawkit.content import Block

if TYPE_CHECKING:
    from clawkit.agent_session import Agent

MAX_BEHIND = 10_000
"""Events buffered for a slow reader; beyond that, text deltas are dropped: the complete answer
follows anyway."""
_PIECES = (TextPiece, ThinkingPiece, CallWritten)


async def stream_events(
    agent: Agent, said: str | Iterable[Block], *, tree: bool
) -> AsyncGenerator[Event]:
    """The events of a message's turn as they happen; the last one is a `TurnEnded` of the agent."""
    events: asyncio.Queue[Event | None] = asyncio.Queue()

    def put(event: Event) -> None:
        inner = event.event if isinstance(event, SubagentHappened) else event
        if events.qsize() < MAX_BEHIND or not isinstance(inner, _PIECES):
            events.put_nowait(event)

    before, below = agent.conversation.tell, agent.on_subagent_event
    if tree:
        agent.conversation.tell, agent.on_subagent_event = _both(put, before), _both(put, below)
        work = asyncio.ensure_future(agent.work(said))
    else:
        work = asyncio.ensure_future(agent.turns.send(said, tell=put))
    work.add_done_callback(lambda _: events.put_nowait(None))
    try:
        while (event := await events.get()) is not None:
            yield event
        await work
    finally:
        work.cancel()
        await asyncio.wait({work})
        if tree:
            agent.conversation.tell, agent.on_subagent_event = before, below


def _both(first: Tell, second: Tell) -> Tell:
    def tell(event: Event) -> None:
        first(event)
        second(event)

    return first if second is no_listener else tell
