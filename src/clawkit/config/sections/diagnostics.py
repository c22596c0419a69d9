"""What is told about runs to those who operate them: `diagnostics`."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from msgspec import Meta

from clawkit.config.section import Conflict, Name, Positive, Section
from clawkit.config.sections.shared import Headers


class CaptureContent(Section):
    """Which content of a conversation is put into spans; secrets in it are masked."""

    enabled: bool = False
    """Without this nothing is; default false."""
    input_messages: bool = False
    """What the model is told; default false."""
    output_messages: bool = False
    """What the model answers; default false."""
    tool_inputs: bool = False
    """Parameters of calls; default false."""
    tool_outputs: bool = False
    """Results of calls, and why they failed; default false."""


class Otel(Section):
    """Spans for OpenTelemetry: turns, requests to models, calls of tools."""

    enabled: bool | None = None
    """Send them; unset is what `CLAWKIT_OTEL` and the address in the environment say."""
    endpoint: Name | None = None
    """Address of the collector; unset is `OTEL_EXPORTER_OTLP_ENDPOINT`, or port 4318 here."""
    traces_endpoint: Name | None = None
    """Whole address for spans, where it is not `/v1/traces` under `endpoint`."""
    protocol: Literal["http/protobuf", "grpc"] = "http/protobuf"
    """How they are sent; clawkit speaks http/protobuf (default) only."""
    headers: Headers = {}
    """Extra headers for the collector; values may be secret references."""
    service_name: Name | None = None
    """Name of this service; unset is `OTEL_SERVICE_NAME`, or clawkit."""
    traces: bool = True
    """Send spans; default true."""
    sample_rate: Annotated[float, Meta(ge=0, le=1)] | None = None
    """Share of the turns that is sent, 0 to 1; unset is all of them."""
    flush_interval_ms: Positive | None = None
    """Milliseconds between two sendings; unset is 5000."""
    capture_content: bool | CaptureContent | None = None
    """Put what is said and done into spans, too; unset is not to."""

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        for key in ("endpoint", "tracesEndpoint"):
            if not raw.get(key, "http://").startswith(("http://", "https://", "$")):
                yield key, "not an address", "Start it with http:// or https://"


class Diagnostics(Section):
    """What is told about runs to those who operate them."""

    enabled: bool = True
    """Tell it, where it is configured; default true."""
    otel: Otel = Otel()
    """Spans for OpenTelemetry."""
