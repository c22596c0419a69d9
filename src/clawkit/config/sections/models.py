"""Models and the services that run them: `models` and `auth`."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from clawkit.config.section import Name, Positive, SecretInput, Section
from clawkit.config.sections.shared import Headers, Request

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
    """What a service that imitates another one can and cannot do; unset is found out."""

    supports_tools: bool | None = None  #: Takes tools; if false none are sent.
    supports_developer_role: bool | None = None  #: Knows the developer role; not assumed.
    supports_store: bool | None = None  #: Knows the `store` field.
    supports_temperature: bool | None = None  #: Takes a temperature.
    supports_instructions: bool | None = None  #: Knows the `instructions` field.
    supports_strict_mode: bool | None = None  #: Takes strict tool schemas.
    supports_json_schema_response_format: bool | None = None  #: Takes a JSON schema for its answer.
    supports_usage_in_streaming: bool | None = None  #: Reports usage while streaming.
    supports_prompt_cache_key: bool | None = None  #: Takes a prompt cache key.
    supports_long_cache_retention: bool | None = None  #: Keeps its cache for long.
    supports_reasoning_effort: bool | None = None  #: Takes a reasoning effort.
    supported_reasoning_efforts: list[str] | None = None  #: Reasoning efforts it takes.
    reasoning_effort_map: dict[str, str] = {}  #: Thinking level to the service's own word for it.
    requires_string_content: bool | None = None  #: Takes messages as one string only, not as parts.
    requires_tool_result_name: bool | None = None  #: Wants the tool's name with its result.
    requires_assistant_after_tool_result: bool | None = None  #: Wants a reply after results.
    requires_thinking_as_text: bool | None = None  #: Takes earlier thinking as plain text only.
    strict_message_keys: bool | None = None  #: Refuses fields of a message it does not know.
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] | None = None
    """Name of the field with the output limit."""
    thinking_format: str | None = None  #: How thinking is turned on, such as `zai`.
    cache_control_format: Literal["anthropic"] | None = None  #: How cache marks are written.
    unsupported_tool_schema_keywords: list[str] = []  #: JSON Schema keywords to drop.


class Model(Section):
    """One model of a service."""

    id: Name  #: Id the service knows it by.
    name: str | None = None  #: Name for people.
    api: Api | None = None  #: API it speaks, if not the provider's.
    base_url: str | None = None  #: Address, if not the provider's.
    reasoning: bool | None = None  #: Whether it can think before it answers.
    input: list[Modality] | None = None  #: What it takes; images are sent only if listed here.
    cost: Cost | None = None  #: Prices in dollars for a million tokens.
    context_window: Positive | None = None  #: Context window, in tokens.
    context_tokens: Positive | None = None  #: Tokens to use at most, if less than it can take.
    max_tokens: Positive | None = None  #: Maximum tokens of one answer.
    thinking_level_map: dict[str, Any] = {}  #: Thinking level to the model's own; null disables it.
    params: dict[str, Any] = {}  #: Further fields of requests, sent as they are.
    headers: Headers = {}  #: Extra headers; values may be secret references.
    compat: Compat = Compat()  #: What the service can and cannot do.


class Provider(Section):
    """A service that runs models."""

    base_url: str | None = None  #: Address of its API.
    api: Api | None = None  #: API it speaks; a baseUrl alone means openai-completions.
    api_key: SecretInput | None = None  #: Its key, preferably a secret reference or `${NAME}`.
    auth: Literal["api-key", "token", "oauth", "aws-sdk"] | None = None  #: Kind of credential.
    auth_header: bool | None = None  #: Send the credential in the Authorization header.
    headers: Headers = {}  #: Extra headers; values may be secret references.
    request: Request = Request()  #: Transport settings of requests.
    region: str | None = None  #: Region, for services that have them.
    timeout_seconds: Positive | None = None  #: Longest time for one request, in seconds.
    context_window: Positive | None = None  #: Context window of its models, unless they set one.
    context_tokens: Positive | None = None  #: Tokens to use at most, where a model does not say.
    max_tokens: Positive | None = None  #: Maximum tokens of one answer, where a model does not say.
    inject_num_ctx: bool = msgspec.field(default=True, name="injectNumCtxForOpenAICompat")
    """Tell an Ollama server the context size (options.num_ctx)."""
    params: dict[str, Any] = {}  #: Further fields of requests, sent as they are.
    models: list[Model] = []  #: Its models.


class Models(Section):
    """Models beyond those clawkit knows."""

    mode: Literal["merge", "replace"] = "merge"  #: Add to the built-in providers, or replace them.
    providers: dict[str, Provider] = {}  #: Services that run models, by id.


class AuthProfile(Section):
    provider: Name  #: Provider it is for.
    mode: Literal["api-key", "api_key", "token", "oauth", "aws-sdk"] | None = None  #: Credential.
    email: str | None = None  #: Account it belongs to.
    display_name: str | None = None  #: Name for people.


class Auth(Section):
    """Which stored credentials are used."""

    profiles: dict[str, AuthProfile] = {}  #: Stored credentials, by name.
    order: dict[str, list[str]] = {}  #: Provider to its credentials in the order of use.
