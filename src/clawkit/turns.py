"""Runs the turns for messages to an agent, one at a time, and streams their events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, get_args

from msgspec import Struct
from msgspec.structs import replace

from clawkit.agent.events import (
    CallWritten,
    Event,
    SubagentEvent,
    Tell,
    TextPiece,
    ThinkingPiece,
    TurnEnded,
    both,
)
from clawkit.agent.loop import Words, as_message
from clawkit.config.sections.shared import Queue
from clawkit.content import Block, Source, Text, User
from clawkit.core.tasks import unbroken
from clawkit.errors import ToolInputError
from clawkit.services import Services
from clawkit.sessions.lanes import Lane, LaneLimits, Lanes, Mode

if TYPE_CHECKING:
    from clawkit.agent_session import Agent

WARM_UP_S = 0.2
"""Seconds until the warm-up starts if it is not known whether the request was sent."""
MAX_BEHIND = 10_000
"""Events buffered for a slow reader; beyond that, text deltas are dropped."""
_PIECES = (TextPiece, ThinkingPiece, CallWritten)
LATER = "the message is read with the next turn there"


class Post(Struct, frozen=True, eq=False):
    message: User
    schema: str = ""
    """JSON Schema that the answer must match."""
    tell: Tell | None = None
    begin: Callable[[], None] | None = None
    """Called when the turn of the message begins, if it is the first one of that turn."""


class Turns:
    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.lane: Lane[Post, TurnEnded] = Lane(
            self._carry_out, self._steer, self._take_back, agent.kit.run.scope.agent
        )
        self.last: TurnEnded | None = None
        """The last turn, except those that answered another session."""
        self._steered: dict[int, User] = {}
        self._lanes: Lanes | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.closed = asyncio.Event()
        self.warms_up = True
        """Whether to start the helper process of commands before the first command."""

    def enter(self) -> Lanes:
        """Register this agent with the lanes of the running event loop, and return them. Raises
        RuntimeError in any other one: connections and commands are bound to the first."""
        agent, loop = self._agent, asyncio.get_running_loop()
        if loop is not (self._loop or loop):
            raise RuntimeError(
                "this agent is used in another event loop: make all calls in one `asyncio.run(…)`, "
                "or use `with` and `run_sync` instead of `asyncio.run`"
            )
        self._loop = loop
        if self._lanes is None:
            self._lanes = Lanes.of_running_loop(agent.store.path if agent.store else "")
            # The number of sub-agents is limited elsewhere.
            self.lane.slots = self._lanes.slots if agent.parent is None else None
            if agent.session_id:
                self._lanes.open[agent.session_id] = agent
        return self._lanes

    def leave(self) -> None:
        """Unregister, so that the session can be opened again."""
        if self._lanes is not None and self._agent.session_id:
            self._lanes.open.pop(self._agent.session_id, None)
        self.closed.set()

    @property
    def _queue(self) -> Queue:
        messages = self._agent.kit.config.messages
        return messages.queue if messages is not None else Queue()

    @property
    def _limits(self) -> LaneLimits:
        agents, queue = self._agent.kit.config.agents, self._queue
        own = agents.get(self._agent.kit.run.scope.agent).max_concurrent
        return LaneLimits(queue.cap, agents.defaults.max_concurrent, own)

    def post(
        self,
        message: Words,
        mode: Mode | None = None,
        *,
        schema: str = "",
        tell: Tell | None = None,
        begin: Callable[[], None] | None = None,
        group: Hashable = None,
        is_new: bool = True,
    ) -> asyncio.Future[TurnEnded]:
        """Post a message. The default mode is the one configured for the channel. With `is_new`
        false, the message was accepted before and is exempt from the queue's limit."""
        self.enter()
        if mode is not None and mode not in get_args(Mode):
            raise ToolInputError(f"unknown mode {mode!r}; use one of {', '.join(get_args(Mode))}")
        queue = self._queue
        mode = mode or queue.by_channel.get(self._agent.kit.run.scope.channel, queue.mode)
        limits = self._limits if is_new else replace(self._limits, cap=None)
        expanded = self._invoke_skill(as_message(message))
        return self.lane.post(Post(expanded, schema, tell, begin), mode, limits, group)

    def _invoke_skill(self, message: User) -> User:
        """Expand a message that begins with `/NAME` of a skill."""
        first = message.content[0] if message.content else None
        if message.source or not isinstance(first, Text) or not first.text.startswith("/"):
            return message
        if (skills := self._agent.skills) is None:
            return message
        return replace(message, content=(Text(skills.expand(first.text)), *message.content[1:]))

    async def send(
        self, message: Words, schema: str = "", *, tell: Tell | None = None
    ) -> TurnEnded:
        """Run a separate turn for a message. Cancelling the task aborts the turn."""
        return await self.follow(self.post(message, "followup", schema=schema, tell=tell))

    async def follow(self, turn: asyncio.Future[TurnEnded]) -> TurnEnded:
        """Wait for the turn of a posted message. Cancelling the task aborts the turn."""
        try:
            return await asyncio.shield(turn)
        except asyncio.CancelledError:
            await unbroken(self.lane.cancel(turn))
            raise

    @property
    def waiting(self) -> list[User]:
        """The person's messages that the model has not read yet."""
        unread = [each for each in self._agent.conversation.unread if id(each) in self._steered]
        posted = (post.message for post in self.lane.waiting)
        return [each for each in (*unread, *posted) if each.source is None]

    @property
    def queued(self) -> int:
        return self._agent.conversation.queued + len(self.lane.waiting)

    def take_back(self) -> User | None:
        """Withdraw and return the person's last message that the model has not read yet."""
        waiting = self.waiting
        if not waiting:
            return None
        self.lane.drop(lambda post: post.message is waiting[-1])
        return waiting[-1]

    def _steer(self, post: Post) -> bool:
        """Add a message to the current turn, if the model will still read it there."""
        talk = self._agent.conversation
        if not talk.is_in_turn or talk.queued >= self._queue.cap:
            return False
        if _is_from_session(post.message) and self._agent.has_overrides:
            return False
        talk.steer(post.message)
        self._steered[id(post.message)] = post.message
        return True

    def _take_back(self, post: Post) -> bool:
        self._steered.pop(id(post.message), None)
        return self._agent.conversation.withdraw(post.message)

    async def _carry_out(self, posts: Sequence[Post]) -> TurnEnded:
        """Run one turn. Returns a result even when cancelled."""
        agent, talk = self._agent, self._agent.conversation
        message = join([post.message for post in posts])
        if _is_from_session(message) and agent.has_overrides:
            # The owner's overrides must not serve others; the message stays in the mailbox.
            return TurnEnded("error", error=f"its owner has overridden settings there; {LATER}")
        if isinstance(agent.kit.run.services, Services):
            agent.kit.run.services.refresh_skills()
        await agent.update_tools()
        agent.refresh(posts[0].schema)
        listener = talk.tell
        if (tell := posts[0].tell) is not None:
            talk.tell = both(tell, listener)
        if (begin := posts[0].begin) is not None:
            begin()
        if agent.delegation:
            agent.delegation.begin_turn(message)
        if agent.messenger:
            agent.messenger.begin(message)
        sent = asyncio.Event()
        agent.models.on_sent = sent.set
        warming = asyncio.ensure_future(self._warm_up(sent))
        try:
            if agent.hooks is not None:
                await agent.hooks.receive(message)
            ended = await talk.turn(message)
            if agent.hooks is not None and ended.text:
                ended = replace(ended, text=await agent.hooks.send(ended.text))
        except asyncio.CancelledError:
            ended = TurnEnded("aborted", text=talk.last_text)
        finally:
            unread = [each for each in talk.unread if id(each) not in self._steered]
            for each in unread:
                talk.withdraw(each)
            # Messages that did get into the transcript are marked as read in the store.
            self._unclaim([*unread, *(post.message for post in posts)])
            if tell is not None:
                talk.tell = listener
            agent.models.on_sent = lambda: None
            warming.cancel()
            await asyncio.wait({warming})
        if agent.parent is not None or not _is_from_session(message):
            self.last = ended
        if ended.how == "done" and agent.messenger:
            agent.messenger.wake()
        return ended

    def _unclaim(self, messages: Sequence[User]) -> None:
        sources = [each.source for each in messages if each.source is not None]
        for source in sources:
            if self._agent.delegation:
                self._agent.delegation.subagents.unclaim(source.runs)
            if self._agent.messenger:
                self._agent.messenger.unclaim(source.mail)

    async def settle(self, schema: str = "", *, all_turns: bool = True) -> TurnEnded | None:
        """Wait until sub-agents have reported, messages to other sessions are answered and, with
        `all_turns`, no turn is running here. Returns the last turn, None if there was none."""
        agent, before, ended = self._agent, self.last, None
        while ended is None or ended.how == "done":
            if all_turns:
                await self.lane.idle()
            if (more := await self.report(schema)) is not None:
                ended = more
                continue
            waits: set[asyncio.Future[Any]] = set()
            if agent.messenger:
                waits |= agent.messenger.under_way
            subagents = agent.delegation.subagents if agent.delegation else None
            if subagents is not None and subagents.active(agent.session_id):
                left_s = agent.delegation.waiting.left_s if agent.delegation else None
                over = subagents.wait(agent.session_id, (), left_s)
                waits.add(asyncio.ensure_future(over))
            if not waits and not (all_turns and self.lane.is_busy):
                break
            await self._wait(waits)
        # Messages from other sessions to a sub-agent are part of its task.
        is_other = agent.parent is not None and self.last is not before
        return self.last if is_other else ended

    async def _wait(self, waits: set[asyncio.Future[Any]]) -> None:
        """Wait for one of them, releasing the slot of this turn meanwhile."""
        agent = self._agent
        keep = agent.messenger.under_way if agent.messenger else ()
        try:
            if agent.delegation and waits:
                with agent.delegation.subagents.resting(agent.session_id):
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits.difference(keep):
                each.cancel()

    async def report(self, schema: str = "") -> TurnEnded | None:
        """See `Agent.report`."""
        delegation = self._agent.delegation
        message = delegation.message() if delegation else None
        return None if message is None else await self.send(message, schema)

    async def _warm_up(self, sent: asyncio.Event) -> None:
        """Prepare for a first command after the request was sent, while the model is thinking."""
        with suppress(TimeoutError):
            await asyncio.wait_for(sent.wait(), WARM_UP_S)
        run = self._agent.kit.run
        if self.warms_up and "exec" in run.tools and isinstance(run.services, Services):
            await run.services.warm_up()


async def stream_events(
    agent: Agent, message: str | Iterable[Block], *, tree: bool
) -> AsyncGenerator[Event]:
    """The events of a message's turn as they happen, with `tree` including those of all sub-agents;
    the last one is the agent's `TurnEnded`."""
    events: asyncio.Queue[Event | None] = asyncio.Queue()

    def put(event: Event) -> None:
        inner = event.event if isinstance(event, SubagentEvent) else event
        if events.qsize() < MAX_BEHIND or not isinstance(inner, _PIECES):
            events.put_nowait(event)

    before, below = agent.conversation.tell, agent.on_subagent_event
    if tree:
        agent.conversation.tell, agent.on_subagent_event = both(put, before), both(put, below)
        work = asyncio.ensure_future(agent.work(message))
    else:
        work = asyncio.ensure_future(agent.turns.send(message, tell=put))
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


def _is_from_session(message: User) -> bool:
    return message.source is not None and message.source.kind == "session"


def join(messages: Sequence[User]) -> User:
    if len(messages) == 1:
        return messages[0]
    content = [block for each in messages for block in each.content]
    sources = [each.source for each in messages if each.source is not None]
    source = None
    if len(sources) == len(messages):
        source = Source(
            sources[0].kind,
            tuple(run for each in sources for run in each.runs),
            tuple(title for each in sources for title in each.titles),
            tuple(mail for each in sources for mail in each.mail),
            max((each.chain for each in sources), key=len),
        )
    ids = tuple(id_ for each in messages for id_ in each.ids)
    return User(tuple(content), messages[-1].at_ms, source, ids)
