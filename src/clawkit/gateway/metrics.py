"""Metrics of the gateway, in the Prometheus text format.

Labels have few values and never contain text from people: methods, routes, outcomes, models.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from clawkit.content import Usage

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REQUEST_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0)
TURN_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
MAX_SERIES = 1_000
"""Maximum label values of a metric; further ones are counted together."""
OTHER = "other"
_PREFIX = "clawkit_gateway_"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
Labels = tuple[str, ...]


class MetricCounter:
    """A counter by label values."""

    def __init__(self, name: str, help_text: str, labels: Sequence[str] = ()) -> None:
        self.name, self.help_text, self.labels = f"{_PREFIX}{name}", help_text, tuple(labels)
        self._values: dict[Labels, float] = {} if labels else {(): 0.0}

    def add(self, *values: str, by: float = 1.0) -> None:
        key = _bounded(self._values, values)
        self._values[key] = self._values.get(key, 0.0) + by

    def lines(self) -> Iterator[str]:
        yield from _head(self.name, self.help_text, "counter")
        for values, count in self._values.items():
            yield _sample(self.name, zip(self.labels, values, strict=True), count)


class MetricHistogram:
    """A histogram of durations in seconds, by label values."""

    def __init__(
        self, name: str, help_text: str, buckets: Sequence[float], labels: Sequence[str] = ()
    ) -> None:
        self.name, self.help_text, self.labels = f"{_PREFIX}{name}", help_text, tuple(labels)
        self._buckets = tuple(buckets)
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def observe(self, seconds: float, *values: str) -> None:
        key = _bounded(self._counts, values)
        counts = self._counts.setdefault(key, [0] * (len(self._buckets) + 1))
        counts[bisect_left(self._buckets, seconds)] += 1
        self._sums[key] = self._sums.get(key, 0.0) + seconds

    def lines(self) -> Iterator[str]:
        yield from _head(self.name, self.help_text, "histogram")
        bounds = [*map(_number, self._buckets), "+Inf"]
        for values, counts in self._counts.items():
            labels = list(zip(self.labels, values, strict=True))
            for bound, count in zip(bounds, accumulate(counts), strict=True):
                yield _sample(f"{self.name}_bucket", [*labels, ("le", bound)], count)
            yield _sample(f"{self.name}_sum", labels, self._sums[values])
            yield _sample(f"{self.name}_count", labels, sum(counts))


class Metrics:
    """All metrics; the parts of the gateway update them."""

    def __init__(self, methods: Callable[[str], bool] = lambda _: True) -> None:
        """`methods` says whether a method exists: a client can send any name."""
        self._is_method = methods
        self.requests = MetricCounter(
            "requests_total", "Requests over WebSocket.", ("method", "outcome")
        )
        self.request_s = MetricHistogram(
            "request_duration_seconds", "Time to answer a request.", REQUEST_BUCKETS, ("method",)
        )
        self.http = MetricCounter(
            "http_requests_total", "Requests over HTTP.", ("route", "method", "status")
        )
        self.turns = MetricCounter("turns_total", "Turns that have ended.", ("outcome",))
        self.turn_s = MetricHistogram("turn_duration_seconds", "Time of a turn.", TURN_BUCKETS)
        self.tokens = MetricCounter("tokens_total", "Tokens of models.", ("model", "kind"))
        self.cost = MetricCounter("cost_dollars_total", "Cost, where known.", ("model",))
        self.lockouts = MetricCounter("lockouts_total", "Lock-outs after too many wrong secrets.")

    def request(self, method: str, outcome: str, seconds: float) -> None:
        name = method if self._is_method(method) else OTHER
        self.requests.add(name, outcome)
        self.request_s.observe(seconds, name)

    def http_request(self, route: str, method: str, status: int) -> None:
        self.http.add(route, method if method in ("GET", "HEAD", "POST") else OTHER, str(status))

    def used(self, model: str, usage: Usage) -> None:
        for kind in ("input", "output", "cache_read", "cache_write"):
            if count := getattr(usage, kind):
                self.tokens.add(model, kind, by=count)
        self.cost.add(model, by=usage.cost)

    def render(self, gauges: Mapping[str, tuple[str, float]]) -> bytes:
        """Render all metrics. `gauges` are current values with descriptions, by name."""
        lines: list[str] = []
        for name, (about, value) in gauges.items():
            lines += _head(_PREFIX + name, about, "gauge")
            lines.append(_sample(_PREFIX + name, (), value))
        totals = (self.requests, self.http, self.turns, self.tokens, self.cost, self.lockouts)
        for metric in (*totals, self.request_s, self.turn_s):
            lines += metric.lines()
        return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _bounded(series: Mapping[Labels, object], values: Labels) -> Labels:
    if values in series or not values or len(series) < MAX_SERIES:
        return values
    return (OTHER,) * len(values)


def _head(name: str, help_text: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {help_text}"
    yield f"# TYPE {name} {kind}"


def _sample(name: str, labels: Iterable[tuple[str, str]], value: float) -> str:
    pairs = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels)
    return f"{name}{{{pairs}}} {_number(value)}" if pairs else f"{name} {_number(value)}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
