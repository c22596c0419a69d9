"""Usage of stored sessions: tokens, cost and latency by session, agent, model and day."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import date, datetime, timedelta, tzinfo
from itertools import chain, pairwise
from operator import itemgetter

from msgspec import Struct, field

from clawkit.content import Assistant, Message, Summary, ToolResult, Usage, User
from clawkit.errors import NotFoundError
from clawkit.sessions.protocols import Session
from clawkit.sessions.reader import SessionReader

Labels = tuple[str, ...]
LABELS = ("session", "agentId", "provider", "model", "date")
"""Labels that answers can be grouped by."""
_AT_ONCE = 100
"""Messages per batch; few, because they can be long."""


class Span(Struct, frozen=True):
    """The requested days, in one time zone."""

    zone: tzinfo | None
    """None for the time zone of the gateway."""
    first: date
    last: date

    @property
    def start_ms(self) -> int:
        return self._midnight_ms(self.first)

    @property
    def end_ms(self) -> int:
        return self._midnight_ms(self.last + timedelta(days=1))

    def _midnight_ms(self, day: date) -> int:
        at = datetime(day.year, day.month, day.day, tzinfo=self.zone)
        return round(at.timestamp() * 1000)

    def day(self, at_ms: int) -> str:
        return datetime.fromtimestamp(at_ms / 1000, self.zone).date().isoformat()


class UsageTotals(Struct):
    """The total usage of some answers."""

    usage: Usage = Usage()
    unpriced: int = 0
    times_ms: list[int] = field(default_factory=list)
    latencies: list[int] = field(default_factory=list)

    def add(self, other: UsageTotals) -> None:
        self.usage = self.usage.plus(other.usage)
        self.unpriced += other.unpriced
        self.times_ms += other.times_ms
        self.latencies += other.latencies


class UsageReport(Struct, frozen=True):
    """Some sessions and their usage in a period, by all labels."""

    span: Span
    sessions: list[Session]
    used: list[tuple[Labels, UsageTotals]]

    @classmethod
    def read(cls, store: SessionReader, sessions: list[Session], span: Span) -> UsageReport:
        """Read all messages, which takes long."""
        used: list[tuple[Labels, UsageTotals]] = []
        for session in sessions:
            with suppress(NotFoundError):  # deleted in the meantime
                used += _grouped(_answers_of(store, session, span), *LABELS)
        return cls(span, sessions, used)

    def total(self) -> UsageTotals:
        return next((each for _, each in _grouped(self.used)), UsageTotals())

    def by(self, *names: str) -> list[tuple[dict[str, str], UsageTotals]]:
        """Totals by some of the labels, in their order."""
        found = _grouped(self.used, *names)
        return [(dict(zip(names, labels, strict=True)), each) for labels, each in found]


def _answers_of(
    store: SessionReader, session: Session, span: Span
) -> Iterator[tuple[Labels, UsageTotals]]:
    """The usage of each answer of a session in a period, newest first."""
    # Messages copied from another session count only for that session.
    start_ms = max(span.start_ms, session.created_ms)
    for said, before in pairwise(chain(_newest_first(store, session), (None,))):
        if said is None or 0 < said.at_ms < start_ms:
            return
        if not isinstance(said, Assistant | Summary) or not start_ms <= said.at_ms < span.end_ms:
            continue
        latencies = []
        if isinstance(said, Assistant) and isinstance(before, User | ToolResult) and before.at_ms:
            latencies = [max(0, said.at_ms - before.at_ms)]
        # A summary is written by the model of the session.
        model = said.model if isinstance(said, Assistant) else session.model
        provider, _, name = model.partition("/")
        labels = (session.key, session.agent, provider, name, span.day(said.at_ms))
        unpriced = said.usage.context > 0 and not said.usage.cost
        yield labels, UsageTotals(said.usage, int(unpriced), [said.at_ms], latencies)


def _newest_first(store: SessionReader, session: Session) -> Iterator[Message | None]:
    before: int | None = None
    while some := store.history(session.id, _AT_ONCE, before):
        yield from (each.message for each in reversed(some))
        before = some[0].number


def _grouped(
    used: Iterable[tuple[Labels, UsageTotals]], *names: str
) -> list[tuple[Labels, UsageTotals]]:
    places = [LABELS.index(name) for name in names]
    found: dict[Labels, UsageTotals] = {}
    for labels, each in used:
        found.setdefault(tuple(labels[at] for at in places), UsageTotals()).add(each)
    return sorted(found.items(), key=itemgetter(0))
