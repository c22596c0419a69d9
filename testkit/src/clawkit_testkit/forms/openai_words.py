"""Error messages of the two OpenAI APIs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clawkit_testkit.fault import Kind
from clawkit_testkit.forms.protocol import Words

_INVALID = "invalid_request_error"
_KEY = (
    "Incorrect API key provided: sk-scrip****test. You can find your API key at "
    "https://platform.openai.com/account/api-keys."
)
_QUOTA = (
    "You exceeded your current quota, please check your plan and billing details. For more "
    "information on this error, read the docs: "
    "https://platform.openai.com/docs/guides/error-codes/api-errors."
)
_RATE = (
    "Rate limit reached for scripted-model in organization org-scripted on requests per min "
    "(RPM): Limit 3, Used 3, Requested 1. Please try again in 20ms."
)
_SERVER = "The server had an error while processing your request. Sorry about that!"
_TOO_LONG = (
    "This model's maximum context length is 128000 tokens. However, your messages resulted in "
    "130541 tokens. Please reduce the length of the messages."
)
_TOO_LONG_INPUT = (
    "Your input exceeds the context window of this model. Please adjust your input and try again."
)

COMPLETIONS: Mapping[Kind, Words] = {
    "invalid": Words(400, _INVALID, "Invalid type for 'messages': expected an array of objects."),
    "bad_key": Words(401, _INVALID, _KEY, "invalid_api_key"),
    "auth": Words(401, _INVALID, _KEY, "invalid_api_key"),
    "billing": Words(402, "unknown_error", "Insufficient Balance", _INVALID),
    "quota": Words(429, "insufficient_quota", _QUOTA, "insufficient_quota"),
    "forbidden": Words(
        403,
        "request_forbidden",
        "Country, region, or territory not supported",
        "unsupported_country_region_territory",
    ),
    "not_found": Words(
        404,
        _INVALID,
        "The model `scripted-model` does not exist or you do not have access to it.",
        "model_not_found",
    ),
    "too_large": Words(413, _INVALID, "Maximum content size limit (26214400) exceeded"),
    "rate_limit": Words(429, "requests", _RATE, "rate_limit_exceeded"),
    "server": Words(500, "server_error", _SERVER),
    "unavailable": Words(
        503, "server_error", "The engine is currently overloaded, please try again later"
    ),
    "overloaded": Words(
        529, "overloaded_error", "The model is overloaded, try again later", "overloaded"
    ),
    "overflow": Words(400, _INVALID, _TOO_LONG, "context_length_exceeded", "messages"),
}
RESPONSES: Mapping[Kind, Words] = {
    **COMPLETIONS,
    "server": Words(500, "server_error", _SERVER, "server_error"),
    "overloaded": Words(
        503,
        "service_unavailable_error",
        "Our servers are currently overloaded. Please try again later.",
        "server_is_overloaded",
    ),
    "overflow": Words(400, _INVALID, _TOO_LONG_INPUT, "context_length_exceeded", "input"),
}


def openai_error(words: Words) -> dict[str, Any]:
    _, kind, message, code, param = words
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
