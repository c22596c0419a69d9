"""The agent loop: ask the model, run its tool calls, return the results, until it makes no calls.

A turn can end or be aborted at any point, and the conversation can always be continued afterwards.
Cancelling the task that awaits a turn aborts it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, Protocol, cast

import msgspec
from msgspec import Struct, field

from clawkit import content
from clawkit.agent import compact as compacting
from clawkit.agent import events
from clawkit.agent.events import Ended, Event, Relay, Tell, TurnEnded, no_listener
from clawkit.config.model import Config
from clawkit.config.sections.agents import AgentSettings
from clawkit.config.sections.shared import Thinking as Level
from clawkit.core.argument_checks import check_type
from clawkit.core.call import CallRequest, Run, call_all
from clawkit.core.result import Result
from clawkit.errors import ConflictError, ToolError
from clawkit.models.protocols import (
    Again,
    CallDelta,
    CallStarted,
    Delta,
    Model,
    ModelError,
    Request,
    TextDelta,
    ThinkingDelta,
    ToolSpec,
)
from clawkit.sessions.subagent_protocols import now_ms
from clawkit.text import human_time

log = logging.getLogger(__name__)

MAX_STEPS = 200
"""Default maximum of model answers in one turn."""
_MAX_COMPACTIONS = 3
"""Maximum compactions in one turn after the provider reports that the context is too long."""
CUT_OFF = (
    "the call was cut off: the answer reached its token limit before the arguments were "
    "complete, so nothing was done. Send it again in smaller pieces"
)
ABORTED = "interrupted by {} before it finished; it may have taken partial effect"
SILENT: Mapping[str, str] = {
    "refusal": "refused to answer; rephrase it, or choose another model",
    "length": "reached its token limit without any output; ask for less at a time, have it "
    "think less, or raise the model's maxTokens",
}
"""Stop reasons that explain an empty answer: retrying would not help."""
Words = str | Iterable[content.Block] | content.User
"""A user message: text, blocks, or a `User` object."""
ENDS_TURN = "endsTurn"
"""Detail of a tool result that ends the turn."""


class TurnLimits(msgspec.Struct, frozen=True):
    max_steps: int = MAX_STEPS
    max_cost: float | None = None
    """Dollars, for the whole conversation."""
    timeout_s: float | None = None


def limits_of(
    config: Config,
    agent: AgentSettings,
    max_turns: int | None = None,
    max_cost: float | None = None,
) -> TurnLimits:
    """The requested limits, or else those configured for the agent or for all agents."""
    defaults = config.agents.defaults
    return TurnLimits(
        max_turns or agent.max_turns or defaults.max_turns or MAX_STEPS,
        (agent.max_cost or defaults.max_cost) if max_cost is None else max_cost,
        defaults.timeout_seconds,
    )


class EndOfTurn(Exception):  # noqa: N818  # not an error
    def __init__(self, how: Ended, error: str = "") -> None:
        self.how: Ended = how
        self.error = error
        super().__init__(error)


class Transcript(Protocol):
    """Where a conversation is stored. Messages are durable when a method returns."""

    def append(self, message: content.Message, *, is_redacted: bool = False) -> None:
        """`is_redacted`: secrets were already removed."""

    def compact(self, summary: content.Summary, kept: Sequence[content.Message]) -> None:
        """Replace everything but the kept messages by the summary."""


class PartialAnswer:
    def __init__(self, tell: Tell | None) -> None:
        self._tell = tell
        self._text: list[str] = []
        self._chars: dict[int, int] = {}

    def take(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            self._text.append(delta.text)
        elif isinstance(delta, Again):
            self._text, self._chars = [], {}
        if self._tell is not None:
            self._tell(self._event(delta))

    def _event(self, delta: Delta) -> Event:
        match delta:
            case TextDelta(text):
                return events.TextPiece(text)
            case ThinkingDelta(text):
                return events.ThinkingPiece(text)
            case CallStarted(number, _, name):
                self._chars[number] = 0
                return events.CallBegun(number, name)
            case CallDelta(number, text):
                self._chars[number] = self._chars.get(number, 0) + len(text)
                return events.CallWritten(number, self._chars[number])
            case Again(reason, wait_s, model, kind):
                return events.AnswerRestarted(reason, wait_s, str(model), kind)

    def parts(self) -> tuple[content.Text, ...]:
        """The parts without calls: an incomplete call must be neither run nor reported."""
        text = "".join(self._text)
        return (content.Text(text),) if text.strip() else ()


class Conversation(Struct, eq=False):
    """One conversation: its messages, its model and its tools. One turn at a time."""

    run: Run
    model: Model
    system: str
    tools: tuple[ToolSpec, ...]
    session: str = "main"
    transcript: Transcript | None = None
    """None to store nothing."""
    history: list[content.Message] = []
    """The messages of the next request; always consistent between turns."""
    tell: Tell = no_listener
    limits: TurnLimits = TurnLimits()  # frozen
    compaction: compacting.CompactionSettings = field(default_factory=compacting.CompactionSettings)
    view: compacting.PrunedHistory = field(
        default_factory=lambda: compacting.PrunedHistory(200_000)
    )
    thinking: Level = "off"
    params: Mapping[str, Any] = {}
    usage: content.Usage = content.Usage()  # frozen
    """Total of all answers so far."""
    spent_elsewhere: Callable[[], float] = float
    """Returns the cost in dollars of other sessions that count towards the same limit."""
    persist: Callable[[content.ToolResult], content.ToolResult] | None = None
    """Returns a result in the form to store."""
    is_flushed: bool = False
    """Whether notes were saved since the last compaction."""
    on_flush: Callable[[bool], None] = lambda _is_flushed: None
    """Called when `is_flushed` changes; may raise `ToolError` if it cannot be stored."""
    restate: Callable[[], str] = str
    """Returns text that a summary must include in addition to the conversation."""
    last_text: str = ""
    """The last answer of this turn, or of the previous one."""
    is_in_turn: bool = False
    """Whether the model would still read a new message in this turn."""
    interrupter: str = "the person"
    """Who stopped this conversation, for the results of unfinished calls."""
    _is_busy: bool = False
    _steering: deque[content.User] = field(default_factory=deque)
    _later: deque[content.User] = field(default_factory=deque)
    _context: int = 0
    """Tokens of the last request and its answer, as counted by the provider."""
    _counted: int = 0
    """Number of messages of the history included in that count."""
    _steps_left: int = 0
    """Answers that the turn may still use after the next one."""
    _unsaved: str = ""
    """The error that prevented storing the conversation."""

    def steer(self, message: Words) -> None:
        """Add a message that the model reads before its next answer."""
        self._steering.append(as_message(message))

    def follow_up(self, message: Words) -> None:
        """Add a message for when the model is done: it extends the turn."""
        self._later.append(as_message(message))

    def note(self, message: content.User) -> None:
        """Add a message without a turn; the model reads it with the next one. Raises `ToolError` if
        it cannot be stored, and `ConflictError` during a turn."""
        with self._alone():
            if self.transcript is not None:
                self.transcript.append(message)
            self.history.append(message)
            self._tell(events.MessageAdded(message, False))

    def withdraw(self, message: content.User) -> bool:
        """Withdraw a message; false if the model has already read it."""
        for queue in (self._steering, self._later):
            for number, each in enumerate(queue):
                if each is message:
                    del queue[number]
                    return True
        return False

    @property
    def unread(self) -> tuple[content.User, ...]:
        """Messages that the model has not read yet, in reading order."""
        return (*self._steering, *self._later)

    @property
    def queued(self) -> int:
        return len(self._steering) + len(self._later)

    @property
    def running(self) -> tuple[content.ToolCall, ...]:
        last = self.history[-1] if self.is_in_turn and self.history else None
        return last.calls if isinstance(last, content.Assistant) else ()

    @property
    def context_tokens(self) -> int:
        """Estimated number of tokens of the next request."""
        fresh = compacting.estimate(self.history[self._counted :])
        if self._context:
            return self._context + fresh
        chars = sum(len(tool.description) + len(str(tool.schema)) for tool in self.tools)
        return fresh + (len(self.system) + chars) // compacting.CHARS_PER_TOKEN

    async def turn(self, message: Words) -> TurnEnded:
        """Run one turn for a message. Failures are in the result. Raises `ConflictError` while
        another turn or a compaction is running."""
        with self._alone():
            self.is_in_turn = True
            try:
                return await self._turn(as_message(message))
            finally:
                self.is_in_turn = False

    async def _turn(self, message: content.User) -> TurnEnded:
        self._tell(events.TurnStarted(self.session, str(self.model.ref)))
        before, self.last_text = self.usage, ""
        how: Ended = "error"
        error, kind = "the turn was cut short", ""
        try:
            async with asyncio.timeout(self.limits.timeout_s):
                self._say(message)
                await self._work()
            how, error = "done", ""
        except EndOfTurn as end:
            how, error = end.how, end.error
        except (ModelError, ToolError) as failure:
            error, kind = str(failure), failure.kind if isinstance(failure, ModelError) else ""
        except TimeoutError:
            how = "timeout"
            error = f"the turn took longer than {human_time(self.limits.timeout_s or 0)}"
        except asyncio.CancelledError:
            how, error = "aborted", ""
            raise
        finally:
            ended = TurnEnded(how, self.usage.minus(before), error, self.last_text, kind)
            self._tell(ended)
        return ended

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._is_busy:
            raise ConflictError("this conversation is busy with a turn; wait for it, or steer it")
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False

    @property
    def _listening(self) -> bool:
        """Whether there is a listener; expensive events are only created for one."""
        tell = self.tell
        return not (tell is no_listener or (isinstance(tell, Relay) and tell.is_idle))

    def _tell(self, event: Event) -> None:
        """Notify the listener; its errors must not affect the conversation."""
        try:
            self.tell(event)
        except Exception as error:  # noqa: BLE001  # the listener's own code
            log.warning("a listener failed: %r", error)

    def _warn(self, text: str) -> None:
        self._tell(events.Notice(text, "warning"))

    def _say(self, message: content.User, *, steering: bool = False) -> None:
        self._add(message)
        self._tell(events.MessageAdded(message, steering))

    def _add(self, message: content.Message) -> None:
        """Store first: the model must never see more than is stored."""
        self._store(message)
        self.history.append(message)
        if isinstance(message, content.Assistant):
            self.last_text = message.text

    def _store(self, message: content.Message, *, is_redacted: bool = False) -> None:
        try:
            if self.transcript is not None:
                self.transcript.append(message, is_redacted=is_redacted)
        except ToolError as error:
            self._unsaved = str(error)

    def why_spent(self) -> str:
        """Why no further model requests are allowed; empty if they are."""
        most = self.limits.max_cost
        if most is None or (cost := self.usage.cost + self.spent_elsewhere()) < most:
            return ""
        return f"the session has cost ${cost:.2f}; the limit is ${most:g}"

    def spend(self, answer: content.Assistant) -> None:
        """Count the cost of an answer that a tool requested and the model does not see."""
        self.usage = self.usage.plus(answer.usage)
        self._store(msgspec.structs.replace(answer, content=()))

    async def _work(self) -> None:
        if self.run.watch is not None:
            self.run.watch.begin()
        self._steps_left = self.limits.max_steps
        while self._steps_left > 0:
            self._steps_left -= 1
            while self._steering:
                self._say(self._steering.popleft(), steering=True)
            self._check_stored()
            if why := self.why_spent():
                raise EndOfTurn("max-cost", f"stopped: {why}")
            answer = await self._answer()
            if answer.calls:
                await self._carry_out(answer)
            elif self._steering:
                continue
            elif self._later:
                self._say(self._later.popleft())
            else:
                return self._check_stored()
        raise EndOfTurn(
            "max-turns",
            f"reached the limit of answers ({self.limits.max_steps}); say `go on` to continue",
        )

    def _check_stored(self) -> None:
        """Raises `EndOfTurn` if storing failed: an agent must not act without a record."""
        if self._unsaved:
            why, self._unsaved = self._unsaved, ""
            raise EndOfTurn("error", f"the conversation could not be stored: {why}")

    async def _answer(self) -> content.Assistant:
        """The model's next answer, stored. Compacts the conversation if it does not fit."""
        if not self.is_flushed and compacting.is_near(
            self.context_tokens, self.model.facts, self.compaction
        ):
            await self._save_notes()
        if compacting.is_due(self.context_tokens, self.model.facts, self.compaction):
            compacting.check_last(self.history, self.model, self.compaction)
            await self._shorten()
        silent = 0
        for attempt in range(_MAX_COMPACTIONS + 2):
            try:
                answer = await self._stream()
            except ModelError as error:
                if error.kind != "overflow" or attempt >= _MAX_COMPACTIONS:
                    raise
                if not await self._shorten(tighter=attempt + 1):
                    raise
                continue
            self.usage = self.usage.plus(answer.usage)
            if answer.calls or answer.text.strip():
                break
            # Not sent to a model again, but its cost counts.
            self._store(answer)
            silent += 1
            if silent == 2 or answer.stop in SILENT:
                why = SILENT.get(answer.stop, "gave an empty answer twice; try again")
                raise EndOfTurn("error", f"{self.model.ref} {why}")
        self._add(answer)
        if answer.usage.context:
            self._context, self._counted = answer.usage.context, len(self.history)
        self._tell(events.AnswerStored(answer))
        if answer.stop == "refusal":
            self._warn(f"{answer.model or self.model.ref} refused to answer")
        if answer.stop == "length" and not answer.calls:
            self._warn("the answer reached its token limit and was cut off")
        return answer

    async def _save_notes(self) -> None:
        """Let the model save notes once before each compaction. A failure is only reported."""
        from clawkit.agent import memory_flush as notes

        if not notes.has_place(self.run) or not self._steps_left or self.why_spent():
            return
        settings = cast("compacting.FlushSettings", self.compaction.flush)
        self.is_flushed = True
        try:
            self.on_flush(True)
            if saved := await notes.flush(self, settings):
                self._tell(events.Notice(f"saved notes to {saved}"))
        except (ModelError, ToolError, TimeoutError) as error:
            why = str(error) or f"no answer within {settings.timeout_s:g} s"
            self._warn(f"no notes were saved before the conversation is shortened: {why}")

    def answered(self) -> Request:
        """The next request without the messages that the model has not answered."""
        end = len(self.history)
        while end and isinstance(self.history[end - 1], content.User):
            end -= 1
        return self._request(self.history[:end])

    def may_ask(self) -> bool:
        """Whether the limits of the turn allow another answer besides the next one; counts it."""
        if not self._steps_left or self.why_spent():
            return False
        self._steps_left -= 1
        return True

    def _request(self, history: Sequence[content.Message]) -> Request:
        return Request(
            self.system,
            self.view.show(history),
            self.tools,
            thinking=self.thinking,
            session=self.session,
            params=self.params,
            tokens=self.context_tokens if self._context else 0,
        )

    async def _stream(self) -> content.Assistant:
        """Stream one answer. If it fails, the part received so far is stored."""
        request = self._request(self.history)
        self._tell(events.RequestSent(str(self.model.ref)))
        received = PartialAnswer(self._tell if self._listening else None)
        # The stream is a generator: it must be closed to end the request.
        stream = cast("AsyncIterator[Any]", self.model.stream(request))
        try:
            async with aclosing(stream) as items:  # type: ignore[type-var]
                async for item in items:
                    if isinstance(item, content.Assistant):
                        return item
                    received.take(item)
        except ModelError as error:
            self._tell(events.RequestFailed(error.kind, str(error)))
            if error.kind != "overflow":
                self._keep(received, error)
            raise
        except asyncio.CancelledError as stopped:
            self._keep(received, stopped)
            raise
        raise ModelError("malformed", f"{self.model.ref} ended its stream without an answer")

    def _keep(self, received: PartialAnswer, error: ModelError | asyncio.CancelledError) -> None:
        """Store the received part of an incomplete answer and its cost; its calls are not run."""
        is_error = isinstance(error, ModelError)
        stop: content.Stop = "error" if is_error else "aborted"
        partial: content.Assistant | None = getattr(error, "partial", None)
        usage = partial.usage if partial else content.Usage()
        self.usage = self.usage.plus(usage)
        ref, api, why = str(self.model.ref), self.model.api, str(error) if is_error else ""
        message = content.Assistant(received.parts(), stop, ref, api, usage, why, now_ms())
        if message.content:
            self._add(message)
        elif usage != content.Usage():
            self._store(message)

    async def _carry_out(self, answer: content.Assistant) -> None:
        """Run the calls of an answer; each has a result afterwards."""
        calls = answer.calls
        stored: dict[int, content.ToolResult] = {}

        def keep(number: int, result: Result) -> None:
            call = calls[number]
            message = content.ToolResult(
                call.id, call.name, result.content, result.is_error, dict(result.details), now_ms()
            )
            is_own = self.persist is None
            message = self.persist(message) if self.persist else message
            self._store(message, is_redacted=is_own)
            self._tell(events.ResultStored(message))
            stored[number] = message

        for number, call in enumerate(calls):
            if answer.stop == "length" and isinstance(call.arguments, str):
                keep(number, Result.error(call.name, CUT_OFF))
        todo = [number for number in range(len(calls)) if number not in stored]

        def watch(event: Mapping[str, Any]) -> None:
            self._tell(events.ToolEvent(dict(event)))

        try:
            await call_all(
                self.run,
                [CallRequest(calls[n].name, calls[n].arguments, calls[n].id) for n in todo],
                watch if self._listening else None,
                on_result=lambda index, result: keep(todo[index], result),
                is_brief=lambda: getattr(self.tell, "is_brief", False),
            )
        finally:
            # Results are added in the order of the calls, not of their completion.
            for number in range(len(calls)):
                if number not in stored:
                    keep(number, Result.text(ABORTED.format(self.interrupter), status="aborted"))
                self.history.append(stored[number])
        if any(result.details.get("terminate") for result in stored.values()):
            raise EndOfTurn("loop", "stopped: the model kept repeating calls without progress")
        for result in stored.values():
            if result.details.get(ENDS_TURN):
                if said := str(result.details.get("acknowledgment", "")):
                    self.last_text = said
                    self._tell(events.Notice(said))
                raise EndOfTurn("done")

    async def compact(self, instructions: str = "") -> bool:
        """Replace the older part with a summary; False if there is nothing to summarize. Raises
        `ConflictError` during a turn, and `ToolError` if it cannot be stored."""
        with self._alone():
            return await self._shorten(instructions)

    async def _shorten(self, instructions: str = "", *, tighter: int = 0) -> bool:
        """Each step of `tighter` halves what is kept verbatim."""
        before = self.context_tokens
        settings = self.compaction
        if tighter:
            keep = settings.keep_recent_tokens >> tighter
            settings = msgspec.structs.replace(settings, keep_recent_tokens=keep, keep_turns=0)
        done = await compacting.compact(
            self.model, self.history, settings, instructions, self.session
        )
        if done is None:
            return False
        summary = done.summary
        if more := self.restate():
            summary = msgspec.structs.replace(summary, text=f"{summary.text}\n\n{more}")
        if self.transcript is not None:
            self.transcript.compact(summary, done.recent)
        self.usage = self.usage.plus(summary.usage)
        self.history[:] = [summary, *done.recent]
        self._context = self._counted = 0
        if self.run.watch is not None:
            self.run.watch.compacted()
        if done.trouble:
            self._warn(done.trouble)
        self._tell(events.Compacted(before, self.context_tokens, summary.text))
        if self.is_flushed:
            self.is_flushed = False
            self.on_flush(False)
        return True


def as_message(message: Words) -> content.User:
    if isinstance(message, content.User):
        return message
    if isinstance(message, str):
        return content.User((content.Text(message),), now_ms())
    expected = "a text, or a list of Text and Image blocks"
    check_type("the message", message, Iterable, expected)
    blocks = tuple(message)
    for block in blocks:
        check_type("the message", block, (content.Text, content.Image), expected)
    return content.User(blocks, now_ms())


def specs_of(run: Run) -> tuple[ToolSpec, ...]:
    """The tools of a run in the form offered to a model."""
    return tuple(
        ToolSpec(tool.name, tool.description, tool.offered)
        for name, tool in run.tools.items()
        if name not in run.deferred
    )
