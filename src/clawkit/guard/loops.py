"""Finds calls that make no progress: warns the model, then refuses them, then ends the turn.

A loop is the same call with the same result, over and over; or a few such calls in turns. What
else happens in between decides whether it is one:

- A **step** is a call that may change something and whose outcome is new in this turn; so is new
  output of a command in the background. After a step everything may be looked at afresh: `pytest`
  after each edit is never refused, though it fail in the same way a hundred times.
- **News** is any other outcome that is new in this turn. A call that only looks still counts with
  one piece of news in between: that is a loop with one moving part. With two or more, work is being
  done. For a call that acts (a key that is pressed, a page that is turned) one is enough.
- Everything else in between makes no difference: no loop hides behind calls that are as old.

The warning comes by the number of equal results alone. A call that is refused counts as one more
repeat, so that refusing does not make room for the next round. Calls are counted when the next
message comes, in the order the model sent them.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Hashable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, TypeVar

import msgspec

from clawkit.config.sections.tools import LoopDetection
from clawkit.content import Text
from clawkit.core.call import Admission, Asked
from clawkit.core.result import Result
from clawkit.guard.outcome import Outcome, is_poll, key_of, outcome_of, read_sent
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
"""After these no call of the turn is carried out any more."""

_MAX_NAME = 80
_FOUND: dict[Detector, str] = {
    "generic_repeat": "{tool} was called {count} times with the same parameters and gave the same "
    "result each time",
    "known_poll_no_progress": "{tool} was asked {count} times and reported nothing new",
    "ping_pong": "the same calls ({tools}) alternated, {count} in a row, with the same results "
    "each time",
    "argument_churn": "{tool} failed {count} times in a row, with the same few parameters",
    "unknown_tool_repeat": "{tool} was called {count} times, and no such tool exists",
    "global_circuit_breaker": "{count} calls made no progress, the last ones of {tool}",
    "compaction_loop_persisted": "{tool} keeps making the same call with the same result, "
    "even after the conversation was shortened",
}
_FAILING = "{count} commands in a row failed in the same way, whatever their parameters were"
_REPEATED = "Do not send it again: use what it gave, try another way, or answer with what you know"
_INSTEAD: dict[Detector, str] = {
    "known_poll_no_progress": "Do not ask again right away: wait longer in one call, find out "
    "what is blocking it, stop it, or answer that it is not done yet",
    "ping_pong": "Stop alternating: try another way, or answer with what you know",
    "unknown_tool_repeat": "Use only the tools you were given",
}
_NO_MORE = "No further call is made in this turn: answer with what you know"
_SECOND = "This is the second loop in this turn, so the turn ends here"


class Hit(msgspec.Struct, frozen=True):
    """A loop that was found, or may become one."""

    detector: Detector
    times: int  # all repeats: these get a warning
    stalled: int  # repeats that nothing explains: these get a call refused
    tools: tuple[str, ...]  # first that of the call it was found at
    about: tuple[object, ...] = ()  # there is one notice about the same thing in a while
    failing: bool = False  # commands that fail alike, not one call that repeats
    critical: bool = False

    @property
    def intervention(self) -> dict[str, Any]:
        """For programs."""
        level = "critical" if self.critical else "warning"
        return {"detector": self.detector, "level": level, "count": self._count}

    @property
    def notice(self) -> str:
        """For the end of a result."""
        return f"[Loop guard: {self.found}. {self.instead}.]"

    @property
    def found(self) -> str:
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
"""How many calls in turns are seen as a loop; longer ones show as repeats of each call."""
UNKNOWN = 10
"""Calls of a tool that is not there until they are refused."""
AFTER_COMPACTION = 3
"""Calls after the conversation was shortened that must not all be the same."""
BUCKET = 10
"""There is one notice about the same thing in so many repeats."""
EACH = 3
"""Times that each set of parameters must have come to nothing for a few of them to be churn."""
MAX_STREAKS, MAX_SEEN, MAX_NOTICES = 1_024, 4_096, 256

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Ticket(msgspec.Struct, eq=False):
    """A call on its way."""

    tool: str
    known: bool
    params: object
    key: str
    polls: bool
    turn: int
    notice: str = ""
    acts: bool = False
    outcome: Outcome | None = None


class _Streak(msgspec.Struct):
    """How often a call gave the same result; how much news and how many steps there had been when
    it was last called."""

    mark: str
    number: int
    times: int = 0  # in all
    stalled: int = 0  # without anything in between that would explain it
    acts: bool = False
    news: int = 0
    steps: int = 0


class _Record(msgspec.Struct, frozen=True):
    """A call that has been made."""

    key: str
    mark: str
    tool: str
    fruitless: bool


class _Cycle(msgspec.Struct, frozen=True):
    """Calls in turns: the tools by the keys of the calls."""

    tools: dict[str, str]
    times: int
    news: int
    steps: int


class LoopGuard:
    """Watches the calls of one session; loops are looked for within one turn.

    Unless the settings say `enabled`, it only looks whether a loop goes on after the conversation
    was shortened.
    """

    def __init__(self, settings: LoopDetection) -> None:
        self._settings = settings
        self._turn = -1
        self._after: list[tuple[str, str]] | None = None
        """The calls since the conversation was shortened, while there are few of them."""
        self.begin()

    def begin(self) -> None:
        """A new turn begins."""
        self._turn += 1
        self._forget()
        self._refused = 0
        self._stop: Hit | None = None

    def compacted(self) -> None:
        """The conversation was shortened. The model may look again at what it has forgotten, but
        not go on with one and the same call."""
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
        """By period: how many of the last calls are the same as the one so many before."""
        self._held: _Cycle | None = None
        """Calls in turns that have been refused."""
        self._failure = ""
        self._failing = 0
        """How many commands in a row failed like the last one."""
        self._news = self._steps = 0
        self._batch: list[_Ticket] = []

    def admit(self, calls: Sequence[Asked]) -> Admission:
        """Let the calls of one message pass, or none of them."""
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

    def _ticket(self, asked: Asked) -> _Ticket:
        tool, sent = asked.tool, read_sent(asked.params)
        # Which parameters a tool is given that does not exist makes no difference.
        key = key_of(tool, sent if asked.known else None)
        return _Ticket(tool, asked.known, sent, key, is_poll(tool, sent), self._turn)

    def note(self, ticket: object, result: Result, *, acts: bool) -> Result:
        """Take note of a result; it goes out with a notice if there is something to say."""
        if not isinstance(ticket, _Ticket) or ticket.turn != self._turn:
            return result
        ticket.acts = acts
        ticket.outcome = outcome = outcome_of(ticket.tool, ticket.params, result)
        if self._settings.enabled and ticket not in self._batch:
            self._record(ticket, outcome)  # the next message was faster
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
        """A loop goes on after the conversation was shortened: the result ends the turn."""
        count = AFTER_COMPACTION
        hit = Hit("compaction_loop_persisted", count, count, (tool,), critical=True)
        self._stop = hit
        told = {"intervention": hit.intervention, "terminate": True}
        return Result((*result.content, Text(hit.notice)), {**result.details, **told})

    def _refuse(self, tools: Sequence[str], trigger: int, hit: Hit) -> Admission:
        """Carry out none of the calls of a message, because of the one at `trigger`."""
        self._refused += 1
        if hit.detector in FINAL:
            self._stop = hit
            ends = True
            reason = others = f"not executed: {hit.found}. {_NO_MORE}."
        else:
            ends = self._refused > 1
            reason = f"not executed: {hit.found}. {_SECOND if ends else hit.instead}."
            others = "not executed: another call of the same message was refused as a loop. " + (
                "The turn ends here." if ends else "Send this one without it if it is still needed."
            )
        results = []
        for number, tool in enumerate(tools):
            why = reason if number == trigger else others
            details = {
                "status": "blocked",
                "tool": one_line(tool, _MAX_NAME),
                "deniedReason": "tool-loop",
                "reason": why,
                "code": 403,
                "intervention": hit.intervention,
            }
            results.append(Result.text(why, **details, **({"terminate": True} if ends else {})))
        return Admission((), results)

    def _judge(self, ticket: _Ticket) -> Hit | None:
        settings, mine = self._settings, (ticket.tool,)
        streak = self._streaks.get(ticket.key)
        if streak is None and not (ticket.tool == "exec" and self._failing):
            return None
        stalled = self._stalled(streak) if streak else 0
        suspicions = list(self._suspect(ticket, streak, stalled)) if ticket.known else []
        worst = max((stalled, *(each.stalled for each in suspicions)))
        if worst >= settings.global_circuit_breaker_threshold:
            return Hit("global_circuit_breaker", worst, worst, mine, critical=True)
        if not ticket.known and stalled >= min(UNKNOWN, settings.critical_threshold):
            return Hit("unknown_tool_repeat", stalled, stalled, mine, critical=True)
        for each in suspicions:
            if each.stalled >= settings.critical_threshold:
                return msgspec.structs.replace(each, critical=True)
        for each in suspicions:
            if each.times >= settings.warning_threshold:
                return each
        return None

    def _suspect(self, ticket: _Ticket, streak: _Streak | None, stalled: int) -> Iterator[Hit]:
        """What a call may be part of."""
        detect, mine = self._settings.detectors, (ticket.tool,)
        times, number = (streak.times, streak.number) if streak else (0, 0)
        about = (ticket.key, number)
        if ticket.polls and detect.known_poll_no_progress:
            yield Hit("known_poll_no_progress", times, stalled, mine, about)
        if detect.ping_pong and (cycle := self._cycle(ticket.key)):
            others = (tool for key, tool in cycle.tools.items() if key != ticket.key)
            keys = frozenset(cycle.tools)
            yield Hit("ping_pong", cycle.times, cycle.times, (*mine, *others), (keys,))
        if ticket.polls or not detect.generic_repeat:
            return
        yield Hit("argument_churn", self._churn(ticket), 0, mine, about)
        yield Hit("generic_repeat", times, stalled, mine, about)
        if ticket.tool == "exec":
            yield Hit(
                "generic_repeat", self._failing, self._failing, mine, (self._failure,), failing=True
            )

    def _stalled(self, streak: _Streak) -> int:
        """How often a call was made in vain since something last changed."""
        if streak.steps != self._steps or self._news - streak.news > (0 if streak.acts else 1):
            return 0
        return streak.stalled

    def _cycle(self, key: str) -> _Cycle | None:
        held = self._held
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

    def _churn(self, ticket: _Ticket) -> int:
        """How many of the last calls of a tool came to nothing in the same way, each of a few sets
        of parameters several times, these among them."""
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

    def _notice(self, hit: Hit) -> str:
        about, bucket = (hit.detector, *hit.about), hit.times // BUCKET
        if self._noticed.get(about, -1) >= bucket:
            return ""
        _put(self._noticed, about, bucket, MAX_NOTICES)
        return hit.notice

    def _hold(self, ticket: _Ticket) -> None:
        if streak := self._streaks.get(ticket.key):
            streak.times += 1
            streak.stalled += 1
        if ticket.tool == "exec" and self._failing:
            self._failing += 1
        if cycle := self._cycle(ticket.key):
            self._held = msgspec.structs.replace(cycle, times=cycle.times + 1)

    def _record(self, ticket: _Ticket, outcome: Outcome) -> None:
        key, mark, acts = ticket.key, outcome.mark, ticket.acts
        # Failing in a known way with other parameters is nothing new.
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
