"""Models, their providers and credentials: `models` and `auth`."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from clawkit.config.section import Name, Positive, SecretInput, Section
from clawkit.config.sections.shared import Headers, RequestSettings

Api = Literal[
    "openai-completions",
    "openai-responses",
    "openai-chatgpt-responses",
    "openai-codex-responses",
    "azure-openai-responses",
    "anthropic-messages",
    "google-generative-ai",
    "google-vertex",
    "github-copilot",
    "bedrock-converse-stream",
    "ollama",
    "pi-messages",
]
Modality = Literal["text", "image", "audio", "video"]


class Cost(Section):
    input: Annotated[float, Meta(ge=0)] = 0  #: Tokens sent.
    output: Annotated[float, Meta(ge=0)] = 0  #: Tokens received.
    cache_read: Annotated[float, Meta(ge=0)] = 0  #: Tokens read from the cache.
    cache_write: Annotated[float, Meta(ge=0)] = 0  #: Tokens written to the cache.


class Compat(Section):
    """Differences of an API from the original; unset ones are inferred from the provider."""

    supports_tools: bool | None = None  #: Accepts tools; if false, none are sent.
    supports_developer_role: bool | None = None  #: If false, the system role is used instead.
    supports_store: bool | None = None  #: Accepts the `store` field.
    supports_temperature: bool | None = None  #: Accepts a temperature.
    supports_instructions: bool | None = None  #: Accepts the `instructions` field.
    supports_strict_mode: bool | None = None  #: Accepts strict tool schemas.
    supports_json_schema_response_format: bool | None = None  #: Accepts a schema for its answer.
    supports_usage_in_streaming: bool | None = None  #: Reports usage while streaming.
    supports_prompt_cache_key: bool | None = None  #: Accepts a prompt cache key.
    supports_long_cache_retention: bool | None = None  #: Can keep its cache for longer.
    supports_reasoning_effort: bool | None = None  #: Accepts a reasoning effort.
    supported_reasoning_efforts: list[str] | None = None  #: Reasoning efforts it accepts.
    reasoning_effort_map: dict[str, str] = {}  #: Thinking level to the provider's name for it.
    requires_string_content: bool | None = None  #: Accepts messages only as one string.
    requires_tool_result_name: bool | None = None  #: Requires the tool's name with its result.
    requires_assistant_after_tool_result: bool | None = None  #: Requires an answer after results.
    requires_thinking_as_text: bool | None = None  #: Accepts earlier thinking only as plain text.
    strict_message_keys: bool | None = None  #: Rejects messages with unknown fields.
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] | None = None
    """Name of the field with the output limit."""
    thinking_format: str | None = None  #: How thinking is turned on, such as `zai`.
    cache_control_format: Literal["anthropic"] | None = None  #: How cache marks are written.
    unsupported_tool_schema_keywords: list[str] = []  #: JSON Schema keywords to drop.


class ModelSettings(Section):
    """One model of a provider."""

    id: Name  #: Id at the provider.
    name: str | None = None  #: Display name.
    api: Api | None = None  #: API it speaks, if not the provider's.
    base_url: str | None = None  #: Address, if not the provider's.
    reasoning: bool | None = None  #: Whether it can think before it answers.
    input: list[Modality] | None = None  #: Input it accepts; images are sent only if listed here.
    cost: Cost | None = None  #: Prices in dollars per million tokens.
    context_window: Positive | None = None  #: Context window, in tokens.
    context_tokens: Positive | None = None  #: Maximum tokens to use, if less than the window.
    max_tokens: Positive | None = None  #: Maximum tokens of one answer.
    thinking_level_map: dict[str, Any] = {}  #: Thinking level to the model's own; null disables it.
    params: dict[str, Any] = {}  #: Further fields of requests, sent unchanged.
    headers: Headers = {}  #: Extra headers; values may be secret references.
    compat: Compat = Compat()  #: Differences of its API from the original.


class Provider(Section):
    """A service that runs models."""

    base_url: str | None = None  #: Address of its API.
    api: Api | None = None  #: API it speaks; a baseUrl alone means openai-completions.
    api_key: SecretInput | None = None  #: Its key, preferably a secret reference or `${NAME}`.
    auth: Literal["api-key", "token", "oauth", "aws-sdk"] | None = None  #: Kind of credential.
    auth_header: bool | None = None  #: Send the credential in the Authorization header.
    headers: Headers = {}  #: Extra headers; values may be secret references.
    request: RequestSettings = RequestSettings()  #: Transport settings of requests.
    region: str | None = None  #: Region, for services that have them.
    timeout_seconds: Positive | None = None  #: Timeout of one request, in seconds.
    context_window: Positive | None = None  #: Context window of its models, unless they set one.
    context_tokens: Positive | None = None  #: Maximum tokens to use, unless a model sets it.
    max_tokens: Positive | None = None  #: Maximum tokens of one answer, unless a model sets it.
    inject_num_ctx: bool = msgspec.field(default=True, name="injectNumCtxForOpenAICompat")
    """Send the context size to an Ollama server (options.num_ctx)."""
    params: dict[str, Any] = {}  #: Further fields of requests, sent unchanged.
    models: list[ModelSettings] = []  #: Its models.


class Models(Section):
    """Models and providers besides the built-in ones."""

    mode: Literal["merge", "replace"] = "merge"  #: Add to the built-in providers, or replace them.
    providers: dict[str, Provider] = {}  #: Services that run models, by id.


class AuthProfile(Section):
    provider: Name  #: Provider it is for.
    mode: Literal["api-key", "api_key", "token", "oauth", "aws-sdk"] | None = None
    """Kind of credential."""
    email: str | None = None  #: Account it belongs to.
    display_name: str | None = None  #: Display name.


class Auth(Section):
    """Stored credentials and the order of their use."""

    profiles: dict[str, AuthProfile] = {}  #: Stored credentials, by name.
    order: dict[str, list[str]] = {}  #: Provider to its credentials, in order of use.
