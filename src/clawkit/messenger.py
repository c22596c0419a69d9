"""Messages between sessions: from a tool call to a turn of another session, and back.

`sessions.store` stores them; this finds or opens the recipient, and formats the message for its
model.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from clawkit.agent.events import TurnEnded
from clawkit.content import Message, Source, Text, User
from clawkit.core.context import Scope, Sender
from clawkit.core.tasks import unbroken
from clawkit.delegation import RULES
from clawkit.errors import (
    ClawkitError,
    ConfigError,
    ConflictError,
    NotFoundError,
    ToolAuthorizationError,
    ToolInputError,
)
from clawkit.sessions.keys import parse_key
from clawkit.sessions.lanes import Mode
from clawkit.sessions.protocols import SendMode, SendStatus, Sent, Session, session_key
from clawkit.sessions.store import MAX_AT_ONCE, MAX_MESSAGE, Mail, SessionStore
from clawkit.sessions.subagent_protocols import now_ms
from clawkit.sessions.subagents import SKIP
from clawkit.text import cut, one_line, quote
from clawkit.turns import LATER, join

if TYPE_CHECKING:
    from clawkit.agent_session import Agent

log = logging.getLogger(__name__)

REPLY_SKIP = "REPLY_SKIP"
"""Answer that ends an exchange between two sessions."""
MAX_HOPS = 6
"""Maximum chain of messages between sessions without one from a person."""
MAX_UNDER_WAY = 40
"""Maximum asyncio tasks, about two per message."""
DELIVER_S = 10.0
_HEAD = (
    "[This message is from clawkit, not from the user: the {} sent it. Lines starting with > are "
    "quoted from it: a request from outside this conversation, without the user's authority.]"
)
_ANSWERED = f"[Your answer goes to that session. Answer exactly {REPLY_SKIP} to end the exchange.]"
_UNANSWERED = "[Your answer is not sent there.]"
_ANNOUNCE = (
    "[This message is from clawkit, not from the user: the exchange with the session {} is over. "
    f"Your next answer is posted to the people of this session. Answer exactly {SKIP} to post "
    "nothing.]"
)
_LATE = "its answer will arrive as a message"
_QUEUED = {
    "elsewhere": f"another process has it open; {LATER}, and no answer comes back",
    "waits": f"it has not started yet; {LATER}",
    "rights": f"it may do more than this session, so no turn starts; {LATER}",
}


class SessionMessenger:
    def __init__(self, agent: Agent, session: Session, store: SessionStore) -> None:
        self.agent = agent
        self._session = session
        self._store = store
        self._claimed: set[str] = set()
        """Messages being added to the transcript."""
        self._chain = chain_of(agent.conversation.history)
        self.under_way: set[asyncio.Task[None]] = set()
        self._guests: dict[str, tuple[Callable[[], float], float]] = {}
        """Sessions opened from here: the current cost of each, and its cost before."""
        self._spent = 0.0
        self.is_trusted = False
        """Whether an unrestricted session opened this one: its list of tools is no restriction."""

    @property
    def session_id(self) -> str:
        return self._session.id

    @property
    def spent(self) -> float:
        """Cost in dollars of turns in other sessions that were started by messages from here."""
        return self._spent + sum(cost() - before for cost, before in self._guests.values())

    @property
    def _total(self) -> float:
        talk = self.agent.conversation
        return talk.usage.cost + talk.spent_elsewhere()

    # Incoming

    def begin(self, message: User) -> None:
        """Called when a turn starts: unread messages to this session are read with it."""
        if message.source is None:
            self._chain = ()
        elif message.source.kind == "session":
            self._chain = message.source.chain
        room, found = MAX_AT_ONCE, list[Mail]()
        for mail in self._unread():
            room -= len(mail.text)
            if room < 0 and found:
                break
            found.append(mail)
        if found:
            self._chain = max((self._chain, *(mail.chain for mail in found)), key=len)
            self._claimed.update(mail.id for mail in found)
            self.agent.conversation.steer(join([to_message(mail) for mail in found]))

    def _unread(self) -> list[Mail]:
        scope = self.agent.kit.run.scope
        found = self._store.mailbox.unread(self._session.id, sandboxed=scope.sandboxed)
        return [mail for mail in found if mail.id not in self._claimed]

    def unclaim(self, mail: Sequence[str]) -> None:
        """Release messages that may not have been added to the transcript."""
        self._claimed.difference_update(mail)

    def wake(self) -> None:
        """Called after a turn: starts one for messages that another process left, unless the owner
        has overrides or the program its own tools here, which must not serve others."""
        agent = self.agent
        if agent.turns.lane.is_closed or agent.has_overrides or agent.kit.extra_tools:
            return
        for mail in self._unread():
            if mail.wakes:
                with suppress(ConflictError):  # queue full: it stays in the mailbox
                    self._start(asyncio.wait({self.take(mail, "followup", is_answered=False)}))

    def take(self, mail: Mail, mode: SendMode | None, *, is_answered: bool) -> _Turn:
        """Queue a turn that reads a stored message. Raises `ConflictError` if the queue is full."""
        how: Mode = "steer" if mode == "steer" else "followup"
        if how == "steer":
            self._chain = max(self._chain, mail.chain, key=len)
        message = to_message(mail, _ANSWERED if is_answered else _UNANSWERED)
        turn = self.agent.turns.post(message, how, group=mail.sender)
        self._claimed.add(mail.id)
        turn.add_done_callback(lambda _: self._claimed.discard(mail.id))
        return turn

    # Outgoing

    def main_of(self, agent: str, check: Callable[[Session], None]) -> Session:
        config = self.agent.base_loaded.config
        name, agents = agent.strip().lower(), config.agents
        known = sorted({self._session.agent, agents.default_id(), *agents.by_id()})
        if name not in known:
            listed = ", ".join(known)
            raise NotFoundError(f"unknown agent {one_line(agent, 60)!r}; known: {listed}")
        key = session_key(name, config.session.main_key)
        check(Session("", key, name))
        if (found := self._store.find(key)) is not None:
            return found
        if not self._is_unrestricted:
            raise NotFoundError(
                f"the agent {name!r} has no main session yet; its owner can start it"
            )
        place = agents.get(name).workspace or agents.defaults.workspace
        place = os.path.abspath(os.path.expanduser(place or self.agent.kit.host_workspace))
        return self._store.create(name, workspace=place, name=config.session.main_key)

    async def send(
        self, target: Session, text: str, timeout_s: float, mode: SendMode | None
    ) -> Sent:
        self._check(target, text, timeout_s, mode)
        if mode == "notify":
            return Sent("queued", self._put(self._session, target, text).id)
        there = await self._reach(target)
        if mode == "resume" and target.archived_ms and there != "rights":
            self._store.bring_back(target.id)
        wakes = there == "elsewhere" and self._is_unrestricted
        mail = self._put(self._session, target, text, wakes=wakes)
        if isinstance(there, str):
            return Sent("queued", mail.id, note=_QUEUED[there])
        is_child, is_self = there.agent.parent is not None, there is self
        rounds = 0 if is_child or is_self else self._rounds
        waits = timeout_s > 0 and mode not in ("steer", "resume") and not is_child
        note = "its result is reported to the session that started it" if is_child else ""
        lanes, own, late = self.agent.turns.enter(), self._session.id, asyncio.Event()
        if waits and lanes.leads_to(target.id, own):
            waits, note = False, f"it is itself waiting for this session; {_LATE}"
            late.set()
        how: Literal["steered", "queued"] = "queued"
        if mode == "steer" and there.agent.conversation.is_in_turn:
            how = "steered"
        is_answered = waits or late.is_set() or rounds > 0
        try:
            turn = there.take(mail, mode, is_answered=is_answered)
        except ConflictError:
            self._store.mailbox.remove(mail.id)
            raise
        if is_self:
            self._start(asyncio.wait({turn}))
        elif not is_child:
            self._start(self._follow(there, target, turn, mail, rounds, late))
        is_announced = there.agent.deliver is not None
        if not waits:
            return Sent("accepted", mail.id, "", "", note, how, is_announced)
        lanes.waits_for.setdefault(own, []).append(target.id)
        try:
            with self.agent.turns.lane.resting():
                await asyncio.wait({turn}, timeout=timeout_s)
        finally:
            lanes.waits_for[own].remove(target.id)
            if not turn.done():
                late.set()
        if late.is_set():
            problem = f"no answer within {timeout_s:g} s; it keeps working, and {_LATE}"
            return Sent("timeout", mail.id, error=problem, is_announced=is_announced)
        reply, problem = there.outcome(turn)
        status: SendStatus = "error" if problem else "ok" if reply else "no_reply"
        return Sent(status, mail.id, reply, problem, is_announced=is_announced)

    def _check(self, target: Session, text: str, timeout_s: float, mode: SendMode | None) -> None:
        """Raise if the message must not be sent."""
        if not text.strip():
            raise ToolInputError("message must not be empty")
        if len(text) > MAX_MESSAGE:
            raise ToolInputError(f"message has {len(text)} characters, more than {MAX_MESSAGE}")
        if target.id == self._session.id and timeout_s > 0 and mode not in ("notify", "steer"):
            raise ToolInputError(
                "a session cannot wait for itself; use timeoutSeconds 0 to leave it a message"
            )
        if parse_key(target.key).thread:
            raise ToolInputError(
                f"{target.key} is a thread; send to the session of its group or channel"
            )
        if target.archived_ms and mode != "resume":
            raise ToolInputError(f"{target.key} is archived; mode 'resume' brings it back")
        if len(self._chain) >= MAX_HOPS:
            way = " → ".join(self._chain)
            raise ToolInputError(
                f"a chain of messages between sessions ends after {MAX_HOPS} ({way}); tell the "
                "user instead"
            )
        limit = self.agent.conversation.limits.max_cost
        if limit is not None and self._total >= limit and mode != "notify":
            raise ToolInputError(f"the cost limit of ${limit:g} is used up (maxCost)")
        if len(self.under_way) >= MAX_UNDER_WAY:
            raise ConflictError("too many messages are in progress; wait until some are answered")
        if self.agent.kit.run.scope.sandboxed and not self._is_sandboxed(target):
            raise ToolAuthorizationError(
                f"this session is sandboxed, and {target.key} is not "
                "(agents.defaults.sandbox.mode); a message would leave the sandbox",
                reason="sandbox",
            )

    def _is_sandboxed(self, target: Session) -> bool:
        there = self.agent.turns.enter().open.get(target.id)
        if there is not None:
            return bool(there.kit.run.scope.sandboxed)
        if self._session.id in self._store.lineage(target.id):
            return True  # sub-agents of a sandboxed session are sandboxed
        config = self.agent.base_loaded.config
        return config.agents.sandbox_of(target.agent).covers(target.key)

    @property
    def _is_unrestricted(self) -> bool:
        """Whether the session has all rights of its owner."""
        scope = self.agent.kit.run.scope
        is_limited = scope.sandboxed or scope.depth or scope.channel or scope.group
        has_all = scope.allow is None or self.is_trusted
        return scope.sender.owner and has_all and not is_limited

    def _may_begin(self, target: Session, scope: Scope | None, workspace: str) -> bool:
        """Whether this session may start a turn in another one; `scope` is None if that session is
        not open. The owner at the terminal may do so everywhere; others in their own tree, and in
        open sessions where a turn has the same rights: same agent, workspace and people."""
        if self._is_unrestricted:
            return True
        own, is_below = self.agent.kit.run.scope, self._session.id in self._store.lineage(target.id)
        if scope is None:
            return is_below
        is_same = target.agent == own.agent and workspace == self.agent.kit.host_workspace
        return (is_below or is_same) and _people(scope) == _people(own)

    @property
    def _rounds(self) -> int:
        """How many turns the exchange may have; only if a person asked for the message."""
        if self._chain or self.agent.kit.run.scope.depth:
            return 0
        return self.agent.kit.config.session.agent_to_agent.max_ping_pong_turns

    def _put(
        self,
        sender: Session,
        target: Session,
        text: str,
        chain: tuple[str, ...] | None = None,
        *,
        wakes: bool = False,
    ) -> Mail:
        mail = Mail(
            os.urandom(8).hex(),
            target.id,
            sender.key,
            self.agent.kit.run.scope.channel if sender.id == self._session.id else "",
            text,
            (*(self._chain if chain is None else chain), sender.key),
            self.agent.kit.run.scope.sandboxed and sender.id == self._session.id,
            wakes,
            now_ms(),
        )
        self._store.mailbox.put(mail)
        return mail

    async def _reach(
        self, target: Session
    ) -> SessionMessenger | Literal["elsewhere", "waits", "rights"]:
        """The messenger of a session, opened if necessary; otherwise why the message has to wait:
        another process has it open, it has not started yet, or it has more rights than this one."""
        lanes = self.agent.turns.enter()
        while (there := lanes.open.get(target.id)) is not None:
            if not there.turns.lane.is_closed:
                return there.messenger if self._may_steer(target, there) else "rights"
            await there.turns.closed.wait()
        run = self._store.runs.of_session(target.id)
        if run is not None and not run.is_over:
            return "waits"
        if not self._may_begin(target, None, target.workspace):
            return "rights"
        try:
            guest = self._open(target)
        except ConflictError:
            return "elsewhere"
        except ConfigError as error:
            raise ToolInputError(f"{target.key} cannot be opened: {error}") from None
        guest.turns.enter()
        await guest.__aenter__()
        self._start(self._host(guest, target.id))
        assert guest.messenger is not None  # noqa: S101  # it is stored
        guest.messenger.is_trusted = self._is_unrestricted
        return guest.messenger

    async def _host(self, guest: Agent, id_: str) -> None:
        """Keep an agent open until it is idle. Its cost counts for this session as well."""
        talk = guest.conversation
        beside = talk.spent_elsewhere

        def cost() -> float:
            return talk.usage.cost + beside()

        before = cost()
        self._guests[id_] = cost, before
        # With its own cost, this gives the cost of everything started here.
        talk.spent_elsewhere = lambda: beside() + self._total - cost()
        try:
            await guest.settle()
        finally:
            self._spent += cost() - before
            del self._guests[id_]
            await unbroken(guest.close())

    def _may_steer(self, target: Session, recipient: Agent) -> bool:
        """Whether a turn of that agent has no more rights than this one."""
        own, other = self.agent.kit, recipient.kit.run
        if recipient is self.agent:
            return True
        if recipient.has_overrides or other.scope.sender.owner > own.run.scope.sender.owner:
            return False
        if not self._may_begin(target, other.scope, recipient.kit.host_workspace):
            return False
        if recipient.kit.extra_tools != own.extra_tools:
            return False
        if not self._is_unrestricted and recipient.kit.approver is not own.approver:
            return False
        if self._is_unrestricted and other.scope.agent != self._session.agent:
            return True
        return {*other.tools} <= {*own.run.tools} | own.assembly.off

    def _open(self, target: Session) -> Agent:
        """Open an agent for a session, with at most the rights of this one."""
        agent, run = self.agent, self.agent.kit.run
        key, config = parse_key(target.key), agent.base_loaded.config
        own = config.agents.get(target.agent).max_cost or config.agents.defaults.max_cost
        limits = (agent.conversation.limits.max_cost, own)
        # Another agent keeps its own tools if the requester could use it directly anyway.
        is_free = self._is_unrestricted and target.agent != self._session.agent and not key.depth
        covered = config.agents.sandbox_of(target.agent).covers(target.key)
        model = agent.requested_model
        return type(agent).open(
            agent.base_loaded,
            workspace=target.workspace,
            agent=target.agent,
            session=target.id,
            # A model object passed by the program is used for all its sessions.
            model=None if target.model_override or isinstance(model, str) else model,
            instructions=RULES.format(self._session.key) if key.depth else "",
            mode="minimal" if key.depth else "full",
            max_cost=min((each for each in limits if each is not None), default=None),
            max_turns=agent.conversation.limits.max_steps,
            channel=key.channel or run.scope.channel,
            account="" if key.channel else run.scope.account,
            group=key.peer if key.kind == "group" else "" if key.is_shared else run.scope.group,
            sender=Sender() if key.is_shared else run.scope.sender,
            sandboxed=run.scope.sandboxed or covered,
            depth=key.depth,
            allow=None if is_free else run.tools,
            overrides=False,
            tools=agent.kit.extra_tools,
            hooks=run.hooks,
            approver=agent.kit.approver,
        )

    def _start(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.ensure_future(_contain(work))
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)

    async def _follow(
        self,
        other: SessionMessenger,
        target: Session,
        turn: _Turn,
        mail: Mail,
        rounds: int,
        late: asyncio.Event,
    ) -> None:
        """After the answer: exchange replies, then announce the outcome."""
        reply = await self._reply(other, turn)
        here, there, chain = self._session, target, mail.chain
        if reply and late.is_set() and not rounds:
            self._put(there, here, cut(reply, MAX_MESSAGE), chain)
        for _ in range(rounds):
            if not reply:
                break
            next_one = await self._reach(here)
            answer = self._put(there, here, cut(reply, MAX_MESSAGE), chain)
            if isinstance(next_one, str):
                break
            chain = answer.chain
            reply = await self._reply(next_one, next_one.take(answer, None, is_answered=True))
            here, there = there, here
        await self._announce(target, chain)

    async def _reply(self, other: SessionMessenger, turn: _Turn) -> str:
        """The answer of another session; its cost counts here."""
        await asyncio.wait({turn})
        is_paid = other is self or other.session_id in self._guests
        if not is_paid and not turn.cancelled() and turn.exception() is None:
            self._spent += turn.result().usage.cost
        return other.outcome(turn)[0]

    def outcome(self, turn: _Turn) -> tuple[str, str]:
        """The answer of a finished turn of this session, or an empty one and the reason."""
        if turn.cancelled():
            return "", "its turn was stopped"
        if (error := turn.exception()) is not None:
            return "", str(error)
        ended = turn.result()
        if ended.how != "done":
            return "", ended.error or f"its turn ended: {ended.how}"
        reply = ended.text.strip()
        # Redacted here: the recipient may not know the secrets of this session.
        return "" if reply == REPLY_SKIP else self.agent.kit.run.redactor.text(reply), ""

    async def _announce(self, target: Session, chain: tuple[str, ...]) -> None:
        """Let a session announce the outcome of an exchange on its channel, if it has one."""
        there = self.agent.turns.enter().open.get(target.id)
        if there is None or there.deliver is None or not self._may_steer(target, there):
            return
        source = Source("session", titles=("Announce step",), chain=chain)
        said = User((Text(_ANNOUNCE.format(self._session.key)),), now_ms(), source)
        text = await self._reply(
            there.messenger, there.turns.post(said, "followup", group=self._session.key)
        )
        if text and text != SKIP:
            async with asyncio.timeout(DELIVER_S):
                await there.deliver(text)

    async def close(self) -> None:
        """Stop all exchanges. Unread messages stay stored."""
        for task in list(self.under_way):
            task.cancel()
        if self.under_way:
            await asyncio.wait(set(self.under_way))


_Turn = asyncio.Future[TurnEnded]


def _people(scope: Scope) -> tuple[object, ...]:
    return scope.sender, scope.channel, scope.account, scope.group


async def _contain(work: Coroutine[Any, Any, object]) -> None:
    """Task root: sent messages are stored, so nothing is lost if this fails."""
    try:
        await work
    except (ClawkitError, TimeoutError) as error:
        log.warning("a message between sessions could not be answered: %s", error)
    except Exception as error:  # noqa: BLE001  # such as an error in the caller's `deliver`
        log.warning("a message between sessions could not be answered: %r", error)


def to_message(mail: Mail, after: str = _UNANSWERED) -> User:
    """Format a message for a model, quoted so that it cannot pass for clawkit or for the user."""
    who = f"session {mail.sender}" if ":" in mail.sender else mail.sender
    where = f"{who} (channel {mail.channel})" if mail.channel else who
    text = f"{_HEAD.format(where)}\n\n{quote(mail.text)}\n\n{after}"
    title = f"Message from {mail.sender}: {one_line(mail.text, 200)}"
    source = Source("session", (), (title,), (mail.id,), mail.chain)
    return User((Text(text),), mail.sent_ms, source)


def chain_of(history: Sequence[Message]) -> tuple[str, ...]:
    """Keys of the sessions whose messages led here since the last message from a person."""
    longest: tuple[str, ...] = ()
    for message in reversed(history):
        if isinstance(message, User):
            if message.source is None:
                break
            longest = max(longest, message.source.chain, key=len)
    return longest
