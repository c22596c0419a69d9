"""Whether a conversation is traced, and which content its spans may contain."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from clawkit.agent.events import Event, Tell
from clawkit.config.load import Loaded
from clawkit.config.secrets import resolve
from clawkit.config.sections.environment import CaptureContent, Otel
from clawkit.core.tasks import bounded, in_thread
from clawkit.errors import SecretError
from clawkit.redact import Redactor

if TYPE_CHECKING:
    from clawkit.telemetry.spans import Export

FLUSH_S = 2.0  # seconds that the end of a conversation waits for sending its last spans
_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_EVERYTHING = CaptureContent(
    enabled=True, input_messages=True, output_messages=True, tool_inputs=True, tool_outputs=True
)

log = logging.getLogger(__name__)


class Telemetry:
    """The export of one conversation; does nothing without an `Export`."""

    def __init__(self, export: Export | None = None, warning: str = "") -> None:
        self._export = export
        self.warnings = (warning,) if warning else ()

    def beside(self, tell: Tell) -> Tell:
        """A listener that calls `tell`, then records the event; `tell` itself if disabled."""
        if self._export is None:
            return tell
        spans = self._export.spans

        def both(event: Event) -> None:
            try:
                tell(event)
            finally:
                spans(event)

        return both

    async def close(self) -> None:
        """Send the remaining spans, for at most `FLUSH_S`. Never fails."""
        export, self._export = self._export, None
        if export is None:
            return
        try:
            await bounded(in_thread(export.finish), FLUSH_S, 0.1)
        except TimeoutError:
            export.shutdown()  # type: ignore[no-untyped-call]
        if export.lost:
            log.warning("%d spans could not be sent to %s", export.lost, export.address)


def open_telemetry(loaded: Loaded, agent: str, redactor: Redactor) -> Telemetry:
    """Telemetry according to the configuration. Problems are warnings, never errors."""
    settings = loaded.config.diagnostics.otel
    if settings.protocol != "http/protobuf":
        return Telemetry(
            warning="diagnostics.otel.protocol: no spans are sent, because gRPC is not supported. "
            'Use "http/protobuf", and the collector\'s port for it, usually 4318'
        )
    try:
        from clawkit.telemetry.spans import Export
    except ImportError as error:
        if (error.name or "").startswith("clawkit"):
            raise
        from clawkit.installation import how_to_add

        return Telemetry(
            warning="diagnostics.otel: no spans are sent, because OpenTelemetry is not installed. "
            f"Run `{how_to_add('otel')}`, or turn it off"
        )
    headers: dict[str, str] = {}
    for name, value in settings.headers.items():
        try:
            headers[name] = resolve(value, loaded.config, loaded.env)
        except SecretError as error:
            at = f"diagnostics.otel.headers.{name}"
            return Telemetry(warning=f"{at}: no spans are sent: {error}")
    capture = captured(settings, os.environ)
    try:
        return Telemetry(Export(settings, headers, agent, capture, redactor, os.environ))
    except (ValueError, RuntimeError) as error:
        return Telemetry(warning=f"diagnostics.otel: no spans are sent: {error}")


def captured(settings: Otel, env: Mapping[str, str]) -> CaptureContent:
    """Which content is put into spans; none by default."""
    wanted = settings.capture_content
    if wanted is None:
        wanted = env.get(_CAPTURE, "").strip().lower() in ("true", "span_only", "span_and_event")
    if isinstance(wanted, bool):
        return _EVERYTHING if wanted else CaptureContent()
    return wanted if wanted.enabled else CaptureContent()
