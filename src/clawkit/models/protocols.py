"""What a model is to the rest of clawkit: requests, answers on their way, errors, endpoints."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, Protocol

import msgspec

from clawkit.config.modelref import ModelRef
from clawkit.config.sections.models import Compat, Cost
from clawkit.config.sections.shared import Thinking as Level
from clawkit.content import Assistant, Message
from clawkit.errors import ClawkitError

Api = Literal[
    "openai-completions", "openai-responses", "anthropic-messages", "google-generative-ai"
]
ErrorKind = Literal[
    "auth",  # the credential is missing, wrong or expired
    "billing",  # the account has no money or quota left
    "rate_limit",  # too many requests: later
    "overloaded",  # the service has no capacity: later
    "server",  # the service failed
    "network",  # no connection, or it broke before an answer came
    "cut",  # the stream broke off in the middle of an answer
    "timeout",  # no answer in time
    "malformed",  # an answer that is not what the API says it is
    "overflow",  # the conversation does not fit into the context
    "not_found",  # no such model, or no such address
    "invalid",  # the service refuses the request as it is
    "refused",  # clawkit does not connect there: a private address, no TLS, a bad proxy
]
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class ModelError(ClawkitError):
    """A model did not answer. The message is one line for a person: who, what, and what to do.

    It never holds a credential; what the service said is cut and made printable.
    """

    exit_code = 1

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        status: int = 0,
        retry_after_s: float | None = None,
        partial: Assistant | None = None,
    ) -> None:
        """`partial` is what of the answer had come; it holds complete parts only."""
        self.kind: ErrorKind = kind
        self.status = status
        self.retry_after_s = retry_after_s
        self.partial = partial
        super().__init__(message)


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as a model is offered it. `schema` is the tool's own, not yet adapted to an API."""

    name: str
    description: str
    schema: Mapping[str, Any]


class Request(msgspec.Struct, frozen=True):
    """One question to a model: the conversation so far, and what it may use."""

    system: str
    messages: Sequence[Message]
    """Consistent: every call has its result, in order, right after the message that asks for it.
    A message that was sent before is the same object again, so that its encoding can be kept."""
    tools: tuple[ToolSpec, ...] = ()
    thinking: Level = "off"
    max_tokens: int | None = None
    """Of the answer; the model's own limit when None."""
    session: str = ""
    """The same for all requests of a conversation: providers keep caches by it."""
    params: Mapping[str, Any] = _NOTHING
    """Further fields of the request, as the configuration has them for this model and agent."""
    tokens: int = 0
    """About how many it has, by what the service counted before; 0 when it did not."""


class TextDelta(msgspec.Struct, frozen=True):
    """More text of the answer."""

    text: str


class ThinkingDelta(msgspec.Struct, frozen=True):
    """More of what the model thinks."""

    text: str


class CallStarted(msgspec.Struct, frozen=True):
    """The model begins to write a call. `number` tells calls of one answer apart."""

    number: int
    id: str
    name: str


class CallDelta(msgspec.Struct, frozen=True):
    """More of the arguments of a call, as JSON text."""

    number: int
    text: str


class Again(msgspec.Struct, frozen=True):
    """What was streamed of this answer is void: another attempt follows."""

    reason: str
    """One line for a person."""
    wait_s: float
    """How long until then."""
    model: ModelRef
    """Who is asked next."""
    kind: ErrorKind | Literal[""] = ""
    """Why there was no answer."""


Delta = TextDelta | ThinkingDelta | CallStarted | CallDelta | Again


class Facts(msgspec.Struct, frozen=True):
    """What is known about a model."""

    name: str = ""
    context_window: int = 128_000
    """Tokens it can take in all."""
    context_tokens: int = 0
    """Tokens to use at most, as configured; 0 when there is no such limit."""
    max_tokens: int = 8_192
    """Tokens of one answer."""
    is_capped: bool = False
    """Whether that is configured."""
    images: bool = False
    reasoning: bool = False
    cost: Cost = Cost()

    @property
    def window(self) -> int:
        """Tokens that a conversation may use: the cap, where there is one below the window."""
        return min(self.context_window, self.context_tokens or self.context_window)


class Model(Protocol):
    """Something that answers. The last item of a stream is the whole answer.

    A stream raises `ModelError`, and nothing else, when there is no answer; closing it, or
    cancelling the task that reads it, ends the request.
    """

    @property
    def ref(self) -> ModelRef: ...
    @property
    def api(self) -> str: ...
    @property
    def facts(self) -> Facts: ...
    def stream(self, request: Request) -> AsyncIterator[Delta | Assistant]: ...


class Endpoint(msgspec.Struct, frozen=True):
    """A model and how it is reached, everything resolved but the credential."""

    ref: ModelRef
    api: Api
    base_url: str
    """Without a slash at the end."""
    facts: Facts = Facts()
    compat: Compat = Compat()
    """What the service can and cannot do; unset means what the API's own service does, or, where
    `is_native` is false, what an imitation of it can be expected to do."""
    is_native: bool = True
    """Whether this is the API's own service, not another one that imitates it."""
    params: Mapping[str, Any] = _NOTHING
    thinking_levels: Mapping[str, Any] = _NOTHING
    """Thinking level to the model's own word for it; None turns it off."""
    num_ctx: int | None = None
    """Context size that an Ollama server has to be told."""
