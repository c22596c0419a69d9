"""Convert events of a conversation to spans, and export them.

A turn is a span; its requests to models and tool calls are child spans. Names and attributes follow
the OpenTelemetry conventions for generative AI; content is masked and truncated.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import requests
from opentelemetry.context import Context, get_current
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
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

from clawkit import content
from clawkit.agent import events
from clawkit.config.modelref import normalize_provider
from clawkit.config.sections.environment import CaptureContent, Otel
from clawkit.redact import Redactor
from clawkit.text import cut, one_line
from clawkit.version import __version__

MAX_TEXT = 4_000  # characters of one text
MAX_PARTS = 64  # texts, calls and results of one attribute; the last ones are kept
MAX_NAME = 200
OTHER = "_OTHER"  # error.type of errors without a known type
DEFAULT = "http://localhost:4318"
PATH = "/v1/traces"
MAX_ANSWER = 64 * 1024  # bytes of an answer of the collector
_MAX_INT = (1 << 63) - 1
_WORD = re.compile(r"[\w.:/\-]{1,128}", re.ASCII)
_PROVIDED = tuple(
    f"OTEL_PYTHON_EXPORTER_OTLP_HTTP_{kind}CREDENTIAL_PROVIDER" for kind in ("", "TRACES_")
)
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
"""Providers with another name in the conventions."""
# Its messages are for programs with a log; on a terminal they would appear between the answers.
logging.getLogger("opentelemetry").addHandler(logging.NullHandler())

Attributes = dict[str, Any]


class Spans:
    """A listener that converts events to spans, for one turn at a time."""

    def __init__(
        self,
        tracer: Tracer,
        agent: str,
        capture: CaptureContent,
        redactor: Redactor,
        env: Mapping[str, str],
    ) -> None:
        """`TRACEPARENT` in `env` may name the parent trace."""
        self._tracer, self._agent = tracer, name(agent)
        self._capture, self._redactor = capture, redactor
        self._carrier = {key: env.get(key.upper(), "") for key in ("traceparent", "tracestate")}
        self._turn: Span | None = None
        self._inside = Context()  # the parent of child spans
        self._session = ""
        self._requested_model = ""  # the model of the pending request
        self._asked_ns = self._first_ns = 0  # start of the request, and of its answer
        self._calls: dict[str, list[Span]] = {}  # by id, which a model may use twice
        self._new: deque[content.User | content.ToolResult] = deque(maxlen=MAX_PARTS)
        """Messages that are new in the next request."""
        self._user_messages: deque[content.User] = deque(
            maxlen=MAX_PARTS
        )  # messages of the user in this turn
        self._failure = ""  # why the last request failed

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.TurnStarted):
            context = get_current()
            if not get_current_span(context).get_span_context().is_valid:
                context = TraceContextTextMapPropagator().extract(self._carrier, context)
            self._session, self._failure = name(event.session), ""
            self._new.clear()
            self._user_messages.clear()
            attributes = self._attributes("invoke_agent", event.model)
            self._turn = self._tracer.start_span(
                f"invoke_agent {self._agent}", context, attributes=attributes
            )
            self._inside = set_span_in_context(self._turn, context)
        elif self._turn is not None:
            match event:
                case events.MessageAdded(message=said):
                    self._user_messages.append(said)
                    self._new.append(said)
                case events.ResultStored(message=result):
                    self._new.append(result)
                case events.RequestSent(model=model):
                    # After an empty answer the request is repeated without an event.
                    self._fail("empty")
                    self._ask(model)
                case events.TextPiece() | events.ThinkingPiece() | events.CallBegun():
                    self._first_ns = self._first_ns or time.time_ns()
                case events.AnswerRestarted(wait_s=wait_s, model=model, kind=kind, reason=reason):
                    self._fail(kind or OTHER, reason)
                    self._ask(model, wait_s)
                case events.RequestFailed(kind=kind, error=error):
                    self._fail(kind, error)
                    self._failure = kind
                case events.AnswerStored(message=message):
                    self._answered(message)
                case events.ToolEvent(event=happened):
                    self._tool(happened)
                case events.Compacted(tokens_before=before, tokens_after=after):
                    counts = {"clawkit.tokens.before": before, "clawkit.tokens.after": after}
                    self._turn.add_event("clawkit.compaction", _countable(counts))
                case events.TurnEnded():
                    self._end(event, self._turn)
                case _:
                    pass

    def _end(self, event: events.TurnEnded, turn: Span) -> None:
        self._fail(OTHER if event.how == "error" else event.how)
        for span in [span for spans in self._calls.values() for span in spans]:
            self._finish(span, "aborted")
        self._calls.clear()
        turn.set_attributes(_usage(event.usage))
        if self._capture.input_messages:
            turn.set_attribute("gen_ai.input.messages", self._input(self._user_messages))
        if event.text and self._capture.output_messages:
            answer = content.Assistant((content.Text(event.text),))
            turn.set_attribute("gen_ai.output.messages", self._output(answer))
        problem = self._failure or OTHER if event.how == "error" else str(event.how)
        problem = "" if event.how == "done" else problem
        self._finish(turn, problem, event.error, self._capture.output_messages)
        self._turn = None

    def _ask(self, model: str, wait_s: float = 0) -> None:
        self._requested_model, self._first_ns = model, 0
        self._asked_ns = time.time_ns() + int(wait_s * 1e9)

    def _answered(self, answer: content.Assistant) -> None:
        if not self._requested_model:
            return
        provider, model = _names(answer.model or self._requested_model)
        attributes: Attributes = {
            "gen_ai.provider.name": provider,
            "gen_ai.response.model": model,
            "gen_ai.response.finish_reasons": (answer.stop,),
            **_usage(answer.usage),
        }
        if self._capture.output_messages:
            attributes["gen_ai.output.messages"] = self._output(answer)
        self._request(attributes).end()
        self._new.clear()

    def _fail(self, kind: str, error: str = "") -> None:
        """End the pending request, if there is one, as failed."""
        # A retry that was still waiting was never sent.
        if self._requested_model and self._asked_ns <= time.time_ns():
            self._finish(self._request({}), kind, error, self._capture.output_messages)
        self._requested_model = ""

    def _request(self, outcome: Attributes) -> Span:
        model, self._requested_model = self._requested_model, ""
        attributes = self._attributes("chat", model) | {"gen_ai.request.stream": True}
        if self._first_ns:
            waited = max(self._first_ns - self._asked_ns, 0) / 1e9
            attributes["gen_ai.response.time_to_first_chunk"] = waited
        if self._capture.input_messages:
            attributes["gen_ai.input.messages"] = self._input(self._new)
        return self._tracer.start_span(
            f"chat {_names(model)[1]}",
            self._inside,
            SpanKind.CLIENT,
            attributes | outcome,
            start_time=min(self._asked_ns, time.time_ns()),
        )

    def _tool(self, event: Mapping[str, Any]) -> None:
        id_ = event["callId"]
        if event["type"] == "start":
            self._calls.setdefault(id_, []).append(self._call(event))
        elif event["type"] == "end":
            begun = self._calls.get(id_)
            # A refused call never started.
            span = begun.pop(0) if begun else self._call(event)
            is_shown = self._capture.tool_outputs
            if is_shown:
                texts = (each.get("text", "") for each in event["content"])
                span.set_attribute("gen_ai.tool.call.result", self._text("\n".join(texts)))
            self._finish(span, self._problem(event), event.get("error", ""), is_shown)

    def _call(self, event: Mapping[str, Any]) -> Span:
        tool = self._word(event["tool"])
        attributes = self._attributes("execute_tool") | {
            "gen_ai.tool.name": tool,
            "gen_ai.tool.call.id": name(event["callId"]),
            "gen_ai.tool.type": "function",
        }
        if self._capture.tool_inputs and event.get("params") is not None:
            attributes["gen_ai.tool.call.arguments"] = self._value(event["params"])
        return self._tracer.start_span(f"execute_tool {tool}", self._inside, attributes=attributes)

    def _attributes(self, operation: str, model: str = "") -> Attributes:
        attributes: Attributes = {
            "gen_ai.operation.name": operation,
            "gen_ai.agent.name": self._agent,
            "gen_ai.conversation.id": self._session,
        }
        if model:
            provider, model = _names(model)
            attributes |= {"gen_ai.provider.name": provider, "gen_ai.request.model": model}
        return attributes

    def _finish(self, span: Span, problem: str, error: str = "", is_shown: bool = False) -> None:
        """End a span. Error messages often repeat content, so they are treated as such."""
        if problem:
            span.set_attribute("error.type", problem)
            words = self._text(error) if is_shown and error else None
            span.set_status(Status(StatusCode.ERROR, words))
        span.end()

    def _input(self, messages: Iterable[content.User | content.ToolResult]) -> str:
        return _json([self._message(each) for each in messages])

    def _output(self, answer: content.Assistant) -> str:
        parts = [self._part(each) for each in answer.content[-MAX_PARTS:]]
        return _json([{"role": "assistant", "parts": parts, "finish_reason": answer.stop}])

    def _message(self, message: content.User | content.ToolResult) -> dict[str, Any]:
        if isinstance(message, content.User):
            return {"role": "user", "parts": [self._part(each) for each in message.content]}
        part = {"type": "tool_call_response", "id": name(message.call_id)}
        if self._capture.tool_outputs:
            texts = (each.text for each in message.content if isinstance(each, content.Text))
            part["response"] = self._text("\n".join(texts))
        return {"role": "tool", "parts": [part]}

    def _part(self, part: content.Part | content.Image) -> dict[str, Any]:
        match part:
            case content.Text(text=text):
                return {"type": "text", "content": self._text(text)}
            case content.Image(mime_type=mime_type):
                return {"type": "blob", "modality": "image", "mime_type": name(mime_type)}
            case content.Thinking(text=text):
                return {"type": "reasoning", "content": self._text(text)}
            case content.ToolCall(id=id_, name=tool, arguments=arguments):
                said = {"type": "tool_call", "id": name(id_), "name": self._word(tool)}
                if self._capture.tool_inputs:
                    said["arguments"] = self._value(arguments)
                return said

    def _word(self, text: str) -> str:
        """A name or code that a model or a tool chose. Anything else may be content."""
        is_plain = _WORD.fullmatch(text) and self._redactor.strict(text) == text
        return text if is_plain else OTHER

    def _problem(self, event: Mapping[str, Any]) -> str:
        """`error.type` of a call; empty if it succeeded."""
        if not event.get("isError"):
            return ""
        details = event.get("details") or {}
        kind = details.get("deniedReason") or details.get("code") or details.get("status")
        return self._word(str(kind)) if isinstance(kind, str | int) else OTHER

    def _text(self, text: str) -> str:
        # Mask before truncating: half of a secret is not recognized.
        return encodable(cut(self._redactor.strict(text), MAX_TEXT))

    def _value(self, value: Any) -> str:
        return encodable(cut(_json(self._redactor.data(value, strict=True)), MAX_TEXT))


def name(text: str) -> str:
    """An untrusted name as the value of an attribute."""
    return encodable(one_line(text, MAX_NAME))


def encodable(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _names(ref: str) -> tuple[str, str]:
    """Provider and model, by their names in the conventions."""
    provider, slash, model = ref.partition("/")
    provider = normalize_provider(provider) if slash else ""
    return name(_PROVIDERS.get(provider, provider) or "unknown"), name(model if slash else ref)


def _usage(usage: content.Usage) -> Attributes:
    """Tokens as the conventions count them: input includes tokens from a cache."""
    counts = {
        "input_tokens": usage.input + usage.cache_read + usage.cache_write,
        "output_tokens": usage.output,
        "cache_read.input_tokens": usage.cache_read,
        "cache_creation.input_tokens": usage.cache_write,
    }
    attributes = _countable({f"gen_ai.usage.{key}": count for key, count in counts.items()})
    return attributes | ({"clawkit.usage.cost": usage.cost} if usage.cost else {})


def _countable(counts: Mapping[str, int]) -> Attributes:
    """Clamp counts to what a collector accepts; a provider may report anything."""
    return {key: min(max(count, 0), _MAX_INT) for key, count in counts.items()}


class _Session(requests.Session):
    """Does not read the answers of the collector, which may be endless or a compression bomb, and
    follows no redirects: requests would read these, and send spans and headers elsewhere."""

    def request(self, *args: Any, **options: Any) -> requests.Response:
        answer = super().request(*args, **{**options, "stream": True})
        length = answer.headers.get("Content-Length", "")
        if length.isdecimal() and int(length) <= MAX_ANSWER:
            answer.raw.read(decode_content=False)  # so that the connection can be used again
        answer.close()
        if answer.is_redirect:  # which would count as success
            raise requests.TooManyRedirects(f"HTTP {answer.status_code}")
        return answer

    def get_redirect_target(self, resp: requests.Response) -> None:
        return None


class Export(OTLPSpanExporter):
    """Sends the spans of one conversation to a collector, in a thread."""

    def __init__(
        self,
        settings: Otel,
        headers: Mapping[str, str],
        agent: str,
        capture: CaptureContent,
        redactor: Redactor,
        env: Mapping[str, str],
    ) -> None:
        """Raises ValueError for invalid values of OpenTelemetry's own variables."""
        address = address_of(settings, env)
        # A credential provider named by OpenTelemetry's own variables brings its own session.
        session = None if any(map(env.get, _PROVIDED)) else _Session()
        super().__init__(endpoint=address, headers=dict(headers), session=session)
        self.address = redactor.strict(address)  # for messages
        self.lost = 0  # spans that were not accepted
        rate = settings.sample_rate
        self._provider = TracerProvider(
            sampler=None if rate is None else ParentBased(TraceIdRatioBased(rate)),
            resource=_resource(settings),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(self, schedule_delay_millis=settings.flush_interval_ms)
        )
        tracer = self._provider.get_tracer("clawkit", __version__)
        self.spans = Spans(tracer, agent, capture, redactor, env)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.lost += len(spans)
        result = super().export(spans)
        if result is SpanExportResult.SUCCESS:
            self.lost -= len(spans)
        return result

    def finish(self) -> None:
        """Send the remaining spans; blocks until that is done, or `shutdown` is called."""
        self._provider.shutdown()


def address_of(settings: Otel, env: Mapping[str, str]) -> str:
    """The URL for spans: from the configuration, the environment, or the default."""
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
