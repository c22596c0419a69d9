"""Where spans go: to a collector, from a thread of their own."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from clawkit.config.sections.diagnostics import CaptureContent, Otel
from clawkit.redact import Redactor
from clawkit.telemetry.content import Content
from clawkit.telemetry.spans import Spans
from clawkit.version import __version__

DEFAULT = "http://localhost:4318"
PATH = "/v1/traces"

# Its troubles are for programs that keep a log; on a terminal they would stand between the answers.
logging.getLogger("opentelemetry").addHandler(logging.NullHandler())


class Export:
    """The spans of one conversation and the way they take."""

    def __init__(
        self,
        settings: Otel,
        headers: Mapping[str, str],
        agent: str,
        capture: CaptureContent,
        redactor: Redactor,
        env: Mapping[str, str],
    ) -> None:
        """Raises ValueError for what OpenTelemetry's own variables may say and it cannot use."""
        address = address_of(settings, env)
        self.address = redactor.strict(address)
        """As it may be shown."""
        self._exporter = _Counting(address, headers)
        rate = settings.sample_rate
        self._provider = TracerProvider(
            sampler=None if rate is None else ParentBased(TraceIdRatioBased(rate)),
            resource=_resource(settings),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(self._exporter, schedule_delay_millis=settings.flush_interval_ms)
        )
        tracer = self._provider.get_tracer("clawkit", __version__)
        self.spans = Spans(tracer, agent, Content(capture, redactor), env)

    @property
    def lost(self) -> int:
        """Spans that could not be sent."""
        return self._exporter.waiting

    def finish(self) -> None:
        """Send what is left; takes as long as the collector lets it."""
        self._provider.shutdown()

    def give_up(self) -> None:
        """Stop sending."""
        self._exporter.shutdown()


class _Counting(SpanExporter):
    """Sends spans, and knows how many did not arrive."""

    def __init__(self, address: str, headers: Mapping[str, str]) -> None:
        self._inner = OTLPSpanExporter(endpoint=address, headers=dict(headers))
        self._is_down = False
        self.waiting = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.waiting += len(spans)
        result = self._inner.export(spans)
        if result is SpanExportResult.SUCCESS:
            self.waiting -= len(spans)
        return result

    def shutdown(self) -> None:
        if not self._is_down:
            self._is_down = True
            self._inner.shutdown()  # type: ignore[no-untyped-call]


def address_of(settings: Otel, env: Mapping[str, str]) -> str:
    """Where spans are sent: what is configured, else what the environment says, else here."""
    whole, base = settings.traces_endpoint, settings.endpoint
    if not whole and not base:
        whole = env.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
        base = env.get("OTEL_EXPORTER_OTLP_ENDPOINT") or DEFAULT
    if whole:
        return whole
    address = (base or DEFAULT).rstrip("/")
    return address if address.endswith(PATH) else address + PATH


def _resource(settings: Otel) -> Resource:
    said = {SERVICE_NAME: settings.service_name} if settings.service_name else {}
    resource = Resource.create({SERVICE_VERSION: __version__, **said})
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        return resource.merge(Resource({SERVICE_NAME: "clawkit"}))
    return resource
