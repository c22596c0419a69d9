"""Detects calls that make no progress: warns the model, then refuses them, then ends the turn.

A loop is the same call with the same result, again and again, or a few such calls alternating.
Whether it is one depends on what happens in between:

- A **step** is a call that may change something and whose outcome is new in this turn, or new
  output of a background command. After a step everything may be repeated: `pytest` after each edit
  is never refused, even if it fails the same way a hundred times.
- **News** is any other outcome that is new in this turn. A read-only call still counts with one
  piece of news in between: that is a loop with one moving part. With two or more, work is being
  done. For a call that acts (pressing a key, turning a page), one is enough.
- Anything else in between makes no difference, so a loop cannot hide behind other repeated calls.

The warning depends only on the number of equal results. A refused call counts as another repeat, so
that refusing does not start a new round. Calls are counted when the next message arrives, in the
order the model sent them.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Hashable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, TypeVar

import msgspec

from clawkit.config.sections.tools import LoopDetection
from clawkit.content import Text
from clawkit.core.call import Admission, GuardedCall
from clawkit.core.result import Result
from clawkit.guard.equivalence import CallOutcome, call_key, is_poll, outcome_of, parse_params
from clawkit.text import one_line

Detector = Literal[
    "generic_repeat",
    "known_poll_no_progress",
    "ping_pong",
    "argument_churn",
    "unknown_tool_repeat",
    "global_circuit_breaker",
    "compaction_loop_persisted",
]

FINAL: frozenset[Detector] = frozenset(("global_circuit_breaker", "compaction_loop_persisted"))
"""After these, no further call of the turn runs."""

_MAX_NAME = 80
_FOUND: dict[Detector, str] = {
    "generic_repeat": "{tool} was called {count} times with the same parameters and returned the "
    "same result each time",
    "known_poll_no_progress": "{tool} was polled {count} times and reported nothing new",
    "ping_pong": "the same calls ({tools}) alternated, {count} in a row, with the same results "
    "each time",
    "argument_churn": "{tool} failed {count} times in a row, with the same few parameters",
    "unknown_tool_repeat": "{tool} was called {count} times, but no such tool exists",
    "global_circuit_breaker": "{count} calls made no progress, most recently of {tool}",
    "compaction_loop_persisted": "{tool} keeps making the same call with the same result, "
    "even after the conversation was compacted",
}
_FAILING = "{count} commands in a row failed in the same way, whatever their parameters"
_REPEATED = "Do not repeat it: use its result, try another way, or answer with what you know"
_INSTEAD: dict[Detector, str] = {
    "known_poll_no_progress": "Do not poll again right away: wait longer in one call, find out "
    "what is blocking it, stop it, or answer that it is not done yet",
    "ping_pong": "Stop alternating: try another way, or answer with what you know",
    "unknown_tool_repeat": "Use only the tools you were given",
}
_NO_MORE = "No more calls run in this turn: answer with what you know"
_SECOND = "This is the second loop in this turn, so the turn ends here"


class LoopHit(msgspec.Struct, frozen=True):
    """A loop, or a potential one."""

    detector: Detector
    times: int  # all repeats, for the warning threshold
    stalled: int  # repeats without anything new in between, for the critical threshold
    tools: tuple[str, ...]  # first the tool of the call that triggered it
    about: tuple[object, ...] = ()  # identifies the subject, for one notice every BUCKET repeats
    failing: bool = False  # different commands that fail alike, not a single repeated call
    critical: bool = False

    @property
    def intervention(self) -> dict[str, Any]:
        level = "critical" if self.critical else "warning"
        return {"detector": self.detector, "level": level, "count": self._count}

    @property
    def notice(self) -> str:
        return f"[Loop guard: {self.summary}. {self.instead}.]"

    @property
    def summary(self) -> str:
        names = [repr(one_line(tool, _MAX_NAME)) for tool in self.tools]
        words = _FAILING if self.failing else _FOUND[self.detector]
        return words.format(tool=names[0], tools=", ".join(names), count=self._count)

    @property
    def instead(self) -> str:
        return _INSTEAD.get(self.detector, _REPEATED)

    @property
    def _count(self) -> int:
        return self.stalled if self.critical else self.times


PERIODS = (2, 3, 4)
"""Numbers of alternating calls that count as a loop; longer ones show as repeats of each call."""
UNKNOWN = 10
"""Calls of an unknown tool before they are refused."""
AFTER_COMPACTION = 3
"""If this many calls after compaction are all the same, the turn ends."""
BUCKET = 10
"""One notice about the same subject per this many repeats."""
EACH = 3
"""Failures of each parameter set before several of them count as churn."""
MAX_STREAKS, MAX_SEEN, MAX_NOTICES = 1_024, 4_096, 256

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _CallTicket(msgspec.Struct, eq=False):
    tool: str
    known: bool
    params: object
    key: str
    polls: bool
    turn: int
    notice: str = ""
    acts: bool = False
    outcome: CallOutcome | None = None


class _Streak(msgspec.Struct):
    """How often a call returned the same result, and the number of news and steps when it was last
    called."""

    mark: str
    number: int
    times: int = 0  # in total
    stalled: int = 0  # without anything new in between
    acts: bool = False
    news: int = 0
    steps: int = 0


class _Record(msgspec.Struct, frozen=True):
    key: str
    mark: str
    tool: str
    fruitless: bool


class _Cycle(msgspec.Struct, frozen=True):
    """Alternating calls: tools by the keys of the calls."""

    tools: dict[str, str]
    times: int
    news: int
    steps: int


class LoopGuard:
    """Watches the calls of one session; loops are detected within one turn.

    Unless `enabled` in the settings, it only detects a loop that continues after compaction.
    """

    def __init__(self, settings: LoopDetection) -> None:
        self._settings = settings
        self._turn = -1
        self._after: list[tuple[str, str]] | None = None  # the first few calls since compaction
        self.begin()

    def begin(self) -> None:
        self._turn += 1
        self._forget()
        self._refused = 0
        self._stop: LoopHit | None = None

    def compacted(self) -> None:
        """The conversation was compacted. The model may repeat calls whose results it has lost, but
        not keep making the same call."""
        self._forget()
        if self._settings.enabled is not False:
            self._after = []

    def _forget(self) -> None:
        self._streaks: OrderedDict[str, _Streak] = OrderedDict()
        self._begun = 0
        self._seen: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._noticed: OrderedDict[tuple[object, ...], int] = OrderedDict()
        self._records: deque[_Record] = deque(maxlen=self._settings.history_size)
        self._matches = dict.fromkeys(PERIODS, 0)
        """By period: how many of the last calls equal the one that many calls before."""
        self._refused_cycle: _Cycle | None = None  # alternating calls that were refused
        self._failure = ""
        self._failing = 0  # how many commands in a row failed like the last one
        self._news = self._steps = 0
        self._batch: list[_CallTicket] = []

    def admit(self, calls: Sequence[GuardedCall]) -> Admission:
        if self._stop is not None:
            return self._refuse([call.tool for call in calls], 0, self._stop)
        if not self._settings.enabled and self._after is None:
            return Admission([None] * len(calls))
        for each in self._batch:
            if each.outcome is not None:
                self._record(each, each.outcome)
        self._batch = []
        batch = [self._ticket(call) for call in calls]
        if self._settings.enabled:
            hits = [self._judge(ticket) for ticket in batch]
            for number, hit in enumerate(hits):
                if hit is not None and hit.critical:
                    self._hold(batch[number])
                    return self._refuse([call.tool for call in calls], number, hit)
            for ticket, hit in zip(batch, hits, strict=True):
                ticket.notice = self._notice(hit) if hit else ""
            self._batch = batch
        return Admission(batch)

    def _ticket(self, call: GuardedCall) -> _CallTicket:
        tool, sent = call.tool, parse_params(call.params)
        # For an unknown tool, parameters make no difference.
        key = call_key(tool, sent if call.known else None)
        return _CallTicket(tool, call.known, sent, key, is_poll(tool, sent), self._turn)

    def note(self, ticket: object, result: Result, *, acts: bool) -> Result:
        if not isinstance(ticket, _CallTicket) or ticket.turn != self._turn:
            return result
        ticket.acts = acts
        ticket.outcome = outcome = outcome_of(ticket.tool, ticket.params, result)
        if self._settings.enabled and ticket not in self._batch:
            self._record(ticket, outcome)  # the next message came first
        if ticket.notice:
            result = Result((*result.content, Text(ticket.notice)), result.details)
        if self._after is not None:
            self._after.append((ticket.key, outcome.mark))
            if len(self._after) == AFTER_COMPACTION:
                calls, self._after = set(self._after), None
                if len(calls) == 1:
                    return self._end(ticket.tool, result)
        return result

    def _end(self, tool: str, result: Result) -> Result:
        count = AFTER_COMPACTION
        hit = LoopHit("compaction_loop_persisted", count, count, (tool,), critical=True)
        self._stop = hit
        ending = {"intervention": hit.intervention, "terminate": True}
        return Result((*result.content, Text(hit.notice)), {**result.details, **ending})

    def _refuse(self, tools: Sequence[str], trigger: int, hit: LoopHit) -> Admission:
        """Refuse all calls of a message because of the one at `trigger`."""
        self._refused += 1
        if hit.detector in FINAL:
            self._stop = hit
            ends = True
            reason = others = f"not executed: {hit.summary}. {_NO_MORE}."
        else:
            ends = self._refused > 1
            reason = f"not executed: {hit.summary}. {_SECOND if ends else hit.instead}."
            others = "not executed: another call of the same message was refused as a loop. " + (
                "The turn ends here." if ends else "Send this one separately if you still need it."
            )
        more: dict[str, Any] = {"intervention": hit.intervention}
        more |= {"terminate": True} if ends else {}
        results = []
        for number, tool in enumerate(tools):
            why = reason if number == trigger else others
            results.append(Result.blocked(one_line(tool, _MAX_NAME), why, "tool-loop", **more))
        return Admission((), results)

    def _judge(self, ticket: _CallTicket) -> LoopHit | None:
        settings, mine = self._settings, (ticket.tool,)
        streak = self._streaks.get(ticket.key)
        if streak is None and not (ticket.tool == "exec" and self._failing):
            return None
        stalled = self._stalled(streak) if streak else 0
        suspicions = list(self._suspect(ticket, streak, stalled)) if ticket.known else []
        worst = max((stalled, *(each.stalled for each in suspicions)))
        if worst >= settings.global_circuit_breaker_threshold:
            return LoopHit("global_circuit_breaker", worst, worst, mine, critical=True)
        if not ticket.known and stalled >= min(UNKNOWN, settings.critical_threshold):
            return LoopHit("unknown_tool_repeat", stalled, stalled, mine, critical=True)
        for each in suspicions:
            if each.stalled >= settings.critical_threshold:
                return msgspec.structs.replace(each, critical=True)
        for each in suspicions:
            if each.times >= settings.warning_threshold:
                return each
        return None

    def _suspect(
        self, ticket: _CallTicket, streak: _Streak | None, stalled: int
    ) -> Iterator[LoopHit]:
        detect, mine = self._settings.detectors, (ticket.tool,)
        times, number = (streak.times, streak.number) if streak else (0, 0)
        about = (ticket.key, number)
        if ticket.polls and detect.known_poll_no_progress:
            yield LoopHit("known_poll_no_progress", times, stalled, mine, about)
        if detect.ping_pong and (cycle := self._cycle(ticket.key)):
            others = (tool for key, tool in cycle.tools.items() if key != ticket.key)
            keys = frozenset(cycle.tools)
            yield LoopHit("ping_pong", cycle.times, cycle.times, (*mine, *others), (keys,))
        if ticket.polls or not detect.generic_repeat:
            return
        yield LoopHit("argument_churn", self._churn(ticket), 0, mine, about)
        yield LoopHit("generic_repeat", times, stalled, mine, about)
        if ticket.tool == "exec":
            yield LoopHit(
                "generic_repeat", self._failing, self._failing, mine, (self._failure,), failing=True
            )

    def _stalled(self, streak: _Streak) -> int:
        """How often a call was repeated since anything changed."""
        if streak.steps != self._steps or self._news - streak.news > (0 if streak.acts else 1):
            return 0
        return streak.stalled

    def _cycle(self, key: str) -> _Cycle | None:
        held = self._refused_cycle
        if held and key in held.tools and held.steps == self._steps and self._news <= held.news + 1:
            return held
        for period in PERIODS:
            matches = self._matches[period]
            if matches >= period and self._records[-period].key == key:
                last = islice(reversed(self._records), period)
                tools = {record.key: record.tool for record in last}
                if len(tools) > 1:
                    return _Cycle(tools, matches + period + 1, self._news, self._steps)
        return None

    def _churn(self, ticket: _CallTicket) -> int:
        """How many of the last calls of a tool failed in the same way, alternating between a few
        parameter sets, including these, each of which failed several times."""
        last = self._records[-1] if self._records else None
        if last is None or not last.fruitless or last.tool != ticket.tool:
            return 0
        counts: Counter[str] = Counter()
        for record in reversed(self._records):
            if (record.tool, record.mark) != (last.tool, last.mark):
                break
            counts[record.key] += 1
        if len(counts) < 2 or ticket.key not in counts or min(counts.values()) < EACH:
            return 0
        return counts.total()

    def _notice(self, hit: LoopHit) -> str:
        about, bucket = (hit.detector, *hit.about), hit.times // BUCKET
        if self._noticed.get(about, -1) >= bucket:
            return ""
        _put(self._noticed, about, bucket, MAX_NOTICES)
        return hit.notice

    def _hold(self, ticket: _CallTicket) -> None:
        if streak := self._streaks.get(ticket.key):
            streak.times += 1
            streak.stalled += 1
        if ticket.tool == "exec" and self._failing:
            self._failing += 1
        if cycle := self._cycle(ticket.key):
            self._refused_cycle = msgspec.structs.replace(cycle, times=cycle.times + 1)

    def _record(self, ticket: _CallTicket, outcome: CallOutcome) -> None:
        key, mark, acts = ticket.key, outcome.mark, ticket.acts
        # A known failure with other parameters is not news.
        seen = (ticket.tool if outcome.fruitless else key, outcome.failure or mark)
        is_new = seen not in self._seen
        _put(self._seen, seen, None, MAX_SEEN)
        if is_new:
            self._news += 1
            is_done = not outcome.fruitless or bool(outcome.failure)
            self._steps += is_done and (acts or ticket.polls)
        streak = self._streaks.get(key)
        if streak is None or streak.mark != mark:
            self._begun += 1
            streak = _Streak(mark, self._begun)
        if streak.steps != self._steps:
            streak.stalled = 1
        elif not streak.times or self._stalled(streak):
            streak.stalled += 1
        streak.times += 1
        streak.acts = acts and not ticket.polls
        streak.news, streak.steps = self._news, self._steps
        _put(self._streaks, key, streak, MAX_STREAKS)
        is_alike = bool(outcome.failure) and outcome.failure == self._failure
        self._failing = self._failing + 1 if is_alike else int(bool(outcome.failure))
        self._failure = outcome.failure
        record = _Record(key, mark, ticket.tool, outcome.fruitless)
        for period in PERIODS:
            is_same = len(self._records) >= period and self._records[-period] == record
            self._matches[period] = self._matches[period] + 1 if is_same else 0
        self._records.append(record)


def _put(table: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    table[key] = value
    table.move_to_end(key)
    if len(table) > most:
        table.popitem(last=False)
