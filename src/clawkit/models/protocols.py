"""The contracts of models: requests, streamed answers, errors, endpoints."""

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
    "billing",  # the account has no credit or quota left
    "rate_limit",  # too many requests; retry later
    "overloaded",  # the provider has no capacity; retry later
    "server",  # the provider failed
    "network",  # no connection, or it was lost before the answer
    "cut",  # the stream ended in the middle of an answer
    "timeout",  # no answer in time
    "malformed",  # the answer does not follow the API
    "overflow",  # the conversation does not fit into the context window
    "not_found",  # no such model, or no such address
    "invalid",  # the provider rejects the request
    "refused",  # clawkit refuses to connect: a private address, no TLS, a bad proxy
]
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class ModelError(ClawkitError):
    """A model did not answer. The message is one line for people: who, what, and what to do.

    It never contains a credential; text from the provider is truncated and made printable.
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
        """`partial` is the received part of the answer, complete blocks only."""
        self.kind: ErrorKind = kind
        self.status = status
        self.retry_after_s = retry_after_s
        self.partial = partial
        super().__init__(message)


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as offered to a model. `schema` is the tool's own, not yet adapted to an API."""

    name: str
    description: str
    schema: Mapping[str, Any]


class Request(msgspec.Struct, frozen=True):
    """One request to a model: the conversation so far, and the tools."""

    system: str
    messages: Sequence[Message]
    """Consistent: the results of calls follow the message with the calls directly, in order.
    A message that was sent before is the same object again, so that its encoding can be cached."""
    tools: tuple[ToolSpec, ...] = ()
    thinking: Level = "off"
    max_tokens: int | None = None
    """Limit of the answer; None for the model's own limit."""
    session: str = ""
    """The same for all requests of a conversation: providers use it for their caches."""
    params: Mapping[str, Any] = _NOTHING
    """Additional fields of the request, as configured for this model and agent."""
    tokens: int = 0
    """Estimated size, based on earlier counts by the provider; 0 if unknown."""


class TextDelta(msgspec.Struct, frozen=True):
    text: str


class ThinkingDelta(msgspec.Struct, frozen=True):
    text: str


class CallStarted(msgspec.Struct, frozen=True):
    """The model starts to write a call. `number` distinguishes the calls of one answer."""

    number: int
    id: str
    name: str


class CallDelta(msgspec.Struct, frozen=True):
    """More of the arguments of a call, as JSON text."""

    number: int
    text: str


class Again(msgspec.Struct, frozen=True):
    """Everything streamed of this answer is discarded: the request is retried."""

    reason: str
    """One line for people."""
    wait_s: float
    """Until the next attempt, with `model`."""
    model: ModelRef
    kind: ErrorKind | Literal[""] = ""


Delta = TextDelta | ThinkingDelta | CallStarted | CallDelta | Again


class Facts(msgspec.Struct, frozen=True):
    """Known facts about a model."""

    name: str = ""
    context_window: int = 128_000
    """Maximum tokens, input and output together."""
    context_tokens: int = 0
    """Configured limit of tokens to use; 0 for none."""
    max_tokens: int = 8_192
    """Maximum tokens of one answer."""
    is_capped: bool = False
    """Whether `max_tokens` is configured."""
    images: bool = False
    reasoning: bool = False
    cost: Cost = Cost()

    @property
    def window(self) -> int:
        """Tokens that a conversation may use: the window, or the configured limit if lower."""
        return min(self.context_window, self.context_tokens or self.context_window)


class Model(Protocol):
    """Answers requests. `ref` is its provider and name, `api` the name of its API, and `facts` are
    its context window, prices and abilities. `stream` yields pieces of the answer as they arrive,
    which is optional; its last item is the whole answer.

    If there is no answer, a stream raises `ModelError` and nothing else. Closing it, or cancelling
    the task that reads it, aborts the request.
    """

    @property
    def ref(self) -> ModelRef: ...
    @property
    def api(self) -> str: ...
    @property
    def facts(self) -> Facts: ...
    def stream(self, request: Request) -> AsyncIterator[Delta | Assistant]: ...


class ModelProvider(Protocol):
    """The models of a plugin, which are named `<id of the plugin>/<name>`."""

    def model(self, name: str) -> Model:
        """Makes no connection. Raises `ConfigError` if there is no such model."""


class Endpoint(msgspec.Struct, frozen=True):
    """A model and how to reach it, with everything resolved except the credential."""

    ref: ModelRef
    api: Api
    base_url: str
    """Without a trailing slash."""
    facts: Facts = Facts()
    compat: Compat = Compat()
    """Differences from the API. Unset values mean the behavior of the original service or, if
    `is_native` is false, of typical compatible ones."""
    is_native: bool = True
    """Whether this is the original service of the API, not a compatible one."""
    params: Mapping[str, Any] = _NOTHING
    thinking_levels: Mapping[str, Any] = _NOTHING
    """Thinking level -> the model's own name for it; None turns it off."""
    num_ctx: int | None = None
    """Context size to request from an Ollama server."""
