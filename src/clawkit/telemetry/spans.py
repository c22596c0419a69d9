"""Events of a conversation made into spans, and where these go.

A turn is a span; the requests to models and the calls in it are spans below it. Only the span of
the turn is open while things happen: the others are made when they are over. Names and attributes
follow the OpenTelemetry conventions for generative AI; content is masked and bounded. Spans are
sent to a collector from a thread of their own.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.context import Context, get_current
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import (
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from clawkit.agent import events
from clawkit.config.modelref import normalize_provider
from clawkit.config.sections.environment import CaptureContent, Otel
from clawkit.content import (
    Assistant,
    Image,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
)
from clawkit.redact import Redactor
from clawkit.text import cut, one_line
from clawkit.version import __version__

MAX_TEXT = 4_000
"""Characters of one text."""
MAX_PARTS = 64
"""Texts, calls and results of one attribute; the last ones are kept."""
MAX_NAME = 200


class Content:
    """Writes messages for spans; what may not be shown is left out."""

    def __init__(self, capture: CaptureContent, redactor: Redactor) -> None:
        self.capture = capture
        self._redactor = redactor

    def input(self, messages: Iterable[User | ToolResult]) -> str:
        """What the model reads."""
        return _json([self._message(each) for each in messages][-MAX_PARTS:])

    def output(self, answer: Assistant) -> str:
        """What it answers."""
        parts = [self._part(each) for each in answer.content[-MAX_PARTS:]]
        return _json([{"role": "assistant", "parts": parts, "finish_reason": answer.stop}])

    def text(self, text: str) -> str:
        """Some text on its own. Masked before it is cut: half a secret has no shape."""
        return encodable(cut(self._redactor.strict(text), MAX_TEXT))

    def value(self, value: Any) -> str:
        """Parameters as JSON."""
        return encodable(cut(_json(self._redactor.data(value, strict=True)), MAX_TEXT))

    def _message(self, message: User | ToolResult) -> dict[str, Any]:
        if isinstance(message, User):
            return {"role": "user", "parts": [self._block(each) for each in message.content]}
        part = {"type": "tool_call_response", "id": name(message.call_id)}
        if self.capture.tool_outputs:
            texts = (each.text for each in message.content if isinstance(each, Text))
            part["response"] = self.text("\n".join(texts))
        return {"role": "tool", "parts": [part]}

    def _block(self, block: Text | Image) -> dict[str, Any]:
        if isinstance(block, Text):
            return {"type": "text", "content": self.text(block.text)}
        return {"type": "blob", "modality": "image", "mime_type": name(block.mime_type)}

    def _part(self, part: Part) -> dict[str, Any]:
        match part:
            case Text(text=text):
                return {"type": "text", "content": self.text(text)}
            case Thinking(text=text):
                return {"type": "reasoning", "content": self.text(text)}
            case ToolCall(id=call_id, name=tool, arguments=arguments):
                said = {"type": "tool_call", "id": name(call_id), "name": name(tool)}
                if self.capture.tool_inputs:
                    said["arguments"] = self.value(arguments)
                return said


def name(text: str) -> str:
    """A name from outside, as an attribute can have it."""
    return encodable(one_line(text, MAX_NAME))


def encodable(text: str) -> str:
    """Text without the half characters that no collector could read."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


OTHER = "_OTHER"
"""The type of an error that has no other."""
_MAX_INT = (1 << 63) - 1
_PROVIDERS = {
    "amazon-bedrock": "aws.bedrock",
    "azure-openai": "azure.ai.openai",
    "google": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "moonshot-cn": "moonshot_ai",
    "xai": "x_ai",
}
"""Providers that the conventions have another name for."""

Attributes = dict[str, Any]


@dataclass(slots=True)
class _Asked:
    """A request that has no answer yet."""

    model: str
    start_ns: int
    first_ns: int = 0
    """When the first piece of the answer came."""


@dataclass(frozen=True, slots=True)
class _Called:
    """A call that goes on."""

    tool: str
    id: str
    start_ns: int
    params: Any = None


class Spans:
    """Listens to a conversation and makes spans of it. One turn at a time."""

    def __init__(
        self, tracer: Tracer, agent: str, content: Content, env: Mapping[str, str]
    ) -> None:
        """`env` may say in `TRACEPARENT` which trace this is part of."""
        self._tracer = tracer
        self._agent = name(agent)
        self._content = content
        self._carrier = {key: env.get(key.upper(), "") for key in ("traceparent", "tracestate")}
        self._turn: Span | None = None
        self._inside = Context()
        """What is made in here is below the turn."""
        self._session = ""
        self._asked: _Asked | None = None
        self._calls: dict[str, list[_Called]] = {}
        """By id; a model may give two calls the same one."""
        self._told: deque[User | ToolResult] = deque(maxlen=MAX_PARTS)
        """What the next request says that the last one did not."""
        self._said: deque[User] = deque(maxlen=MAX_PARTS)
        """What the person said in this turn."""
        self._failure = ""
        """Why the last request has no answer."""

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.TurnStarted):
            self._begin(event)
        elif self._turn is not None:
            self._note(event, self._turn)

    def _note(self, event: events.Event, turn: Span) -> None:
        now = time.time_ns()
        match event:
            case events.Said(message=said):
                self._said.append(said)
                self._told.append(said)
            case events.ResultStored(message=result):
                self._told.append(result)
            case events.Requested(model=model):
                # An answer that says nothing is asked for once more, and not told of.
                self._fail("empty")
                self._asked = _Asked(model, now)
            case events.TextPiece() | events.ThinkingPiece() | events.CallBegun():
                if self._asked and not self._asked.first_ns:
                    self._asked.first_ns = now
            case events.Voided(wait_s=wait_s, model=model, kind=kind, reason=reason):
                self._fail(kind or OTHER, reason)
                self._asked = _Asked(model, now + int(wait_s * 1e9))
            case events.Unanswered(kind=kind, error=error):
                self._fail(kind, error)
                self._failure = kind
            case events.Answered(message=message):
                self._answered(message)
            case events.ToolHappened(event=happened):
                self._tool(happened, now)
            case events.Compacted(tokens_before=before, tokens_after=after):
                counts = {"clawkit.tokens.before": before, "clawkit.tokens.after": after}
                turn.add_event("clawkit.compaction", _countable(counts))
            case events.TurnEnded():
                self._end(event, turn)
            case _:
                pass

    def _begin(self, event: events.TurnStarted) -> None:
        context = get_current()
        if not get_current_span(context).get_span_context().is_valid:
            context = TraceContextTextMapPropagator().extract(self._carrier, context)
        self._session, self._failure = name(event.session), ""
        self._told.clear()
        self._said.clear()
        attributes = self._common("invoke_agent", event.model)
        self._turn = self._tracer.start_span(
            f"invoke_agent {self._agent}", context, attributes=attributes
        )
        self._inside = set_span_in_context(self._turn, context)

    def _end(self, event: events.TurnEnded, turn: Span) -> None:
        self._fail(OTHER if event.how == "error" else event.how)
        for call in [call for calls in self._calls.values() for call in calls]:
            self._call_ended(call, {}, "aborted")
        self._calls.clear()
        turn.set_attributes(_usage(event.usage))
        if self._content.capture.input_messages:
            turn.set_attribute("gen_ai.input.messages", self._content.input(self._said))
        if event.text and self._content.capture.output_messages:
            answer = Assistant((Text(event.text),))
            turn.set_attribute("gen_ai.output.messages", self._content.output(answer))
        if event.how != "done":
            kind = (self._failure or OTHER) if event.how == "error" else event.how
            turn.set_attribute("error.type", kind)
            turn.set_status(self._status(event.error, self._content.capture.output_messages))
        turn.end()
        self._turn = None

    def _answered(self, answer: Assistant) -> None:
        asked, self._asked = self._asked, None
        if asked is None:
            return
        provider, model = _names(answer.model or asked.model)
        attributes: Attributes = {
            "gen_ai.provider.name": provider,
            "gen_ai.response.model": model,
            "gen_ai.response.finish_reasons": (answer.stop,),
            **_usage(answer.usage),
        }
        if self._content.capture.output_messages:
            attributes["gen_ai.output.messages"] = self._content.output(answer)
        self._request(asked, attributes).end()
        self._told.clear()

    def _fail(self, kind: str, error: str = "") -> None:
        """The request that is open, if one is, has no answer."""
        asked, self._asked = self._asked, None
        if asked is None or asked.start_ns > time.time_ns():
            return  # the request that was to follow a wait was never sent
        span = self._request(asked, {"error.type": kind})
        span.set_status(self._status(error, self._content.capture.output_messages))
        span.end()

    def _request(self, asked: _Asked, came_of_it: Attributes) -> Span:
        attributes = self._common("chat", asked.model) | {"gen_ai.request.stream": True}
        if asked.first_ns:
            waited = max(asked.first_ns - asked.start_ns, 0) / 1e9
            attributes["gen_ai.response.time_to_first_chunk"] = waited
        if self._content.capture.input_messages:
            attributes["gen_ai.input.messages"] = self._content.input(self._told)
        return self._tracer.start_span(
            f"chat {_names(asked.model)[1]}",
            self._inside,
            SpanKind.CLIENT,
            attributes | came_of_it,
            start_time=min(asked.start_ns, time.time_ns()),
        )

    def _tool(self, event: Mapping[str, Any], now: int) -> None:
        call_id = event["callId"]
        if event["type"] == "start":
            call = _Called(event["tool"], call_id, now, event.get("params"))
            self._calls.setdefault(call_id, []).append(call)
        elif event["type"] == "end":
            begun = self._calls.get(call_id)
            # What was refused never began.
            call = begun.pop(0) if begun else _Called(event["tool"], call_id, now)
            if not begun:
                self._calls.pop(call_id, None)
            self._call_ended(call, event, _problem(event))

    def _call_ended(self, call: _Called, event: Mapping[str, Any], problem: str) -> None:
        capture = self._content.capture
        attributes: Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name(call.tool),
            "gen_ai.tool.call.id": name(call.id),
            "gen_ai.tool.type": "function",
            "gen_ai.agent.name": self._agent,
            "gen_ai.conversation.id": self._session,
        }
        if capture.tool_inputs and call.params is not None:
            attributes["gen_ai.tool.call.arguments"] = self._content.value(call.params)
        if capture.tool_outputs and event:
            texts = (each.get("text", "") for each in event["content"])
            attributes["gen_ai.tool.call.result"] = self._content.text("\n".join(texts))
        if problem:
            attributes["error.type"] = problem
        span = self._tracer.start_span(
            f"execute_tool {name(call.tool)}",
            self._inside,
            attributes=attributes,
            start_time=call.start_ns,
        )
        if problem:
            span.set_status(self._status(event.get("error", ""), capture.tool_outputs))
        span.end()

    def _common(self, operation: str, model: str) -> Attributes:
        provider, model = _names(model)
        return {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": model,
            "gen_ai.agent.name": self._agent,
            "gen_ai.conversation.id": self._session,
        }

    def _status(self, error: str, shown: bool) -> Status:
        """Failure. Its words often repeat what was said, so they are content, too."""
        return Status(StatusCode.ERROR, self._content.text(error) if shown and error else None)


def _names(ref: str) -> tuple[str, str]:
    """Provider and model as the conventions name them."""
    provider, slash, model = ref.partition("/")
    provider = normalize_provider(provider) if slash else ""
    return name(_PROVIDERS.get(provider, provider) or "unknown"), name(model if slash else ref)


def _usage(usage: Usage) -> Attributes:
    """Tokens as the conventions count them: what came from a cache is input, too."""
    counts = {
        "input_tokens": usage.input + usage.cache_read + usage.cache_write,
        "output_tokens": usage.output,
        "cache_read.input_tokens": usage.cache_read,
        "cache_creation.input_tokens": usage.cache_write,
    }
    attributes = _countable({f"gen_ai.usage.{key}": count for key, count in counts.items()})
    return attributes | ({"clawkit.usage.cost": usage.cost} if usage.cost else {})


def _countable(counts: Mapping[str, int]) -> Attributes:
    """Counts as a collector can hold them; a provider may count anything."""
    return {key: min(max(count, 0), _MAX_INT) for key, count in counts.items()}


def _problem(event: Mapping[str, Any]) -> str:
    """What kind of failure a call ended in; empty when it did not."""
    if not event.get("isError"):
        return ""
    details = event.get("details") or {}
    kind = details.get("deniedReason") or details.get("code") or details.get("status")
    return name(str(kind)) if isinstance(kind, str | int) else OTHER


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
