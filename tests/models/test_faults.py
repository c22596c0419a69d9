"""Refusals of services as they really come, and what each one means."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from tests.tables import table

from clawkit.models.errors import AbsentError, cut_off, from_net, from_response
from clawkit.models.protocols import ErrorKind
from clawkit.net.route import NetError
from clawkit.redact import Redactor

NOW = 1_750_000_000.0
KEY = "9f8e7d6c5b4a39281706f5e4d3c2b1a0"


def openai(message: str, kind: str = "invalid_request_error", code: str | None = None) -> Any:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def anthropic(kind: str, message: str) -> Any:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def google(code: int, status: str, message: str, *details: Any) -> Any:
    body: dict[str, Any] = {"code": code, "message": message, "status": status}
    return {"error": body | ({"details": list(details)} if details else {})}


def quota(name: str) -> Any:
    return {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{"quotaMetric": "generate_content_requests", "quotaId": name}],
    }


RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"}
GOOGLE_QUOTA = "You exceeded your current quota, please check your plan and billing details."
TPM = (
    "Rate limit reached for gpt-5 in organization org-1 on tokens per min (TPM): Limit 30000, "
    "Used 29000, Requested 4000. Please try again in 6s. You can increase your rate limit by "
    "adding a payment method to your account at https://platform.openai.com/account/billing."
)

OVERFLOWS: list[tuple[int, Any]] = [
    (400, openai("Too long.", code="context_length_exceeded")),
    (400, openai("This model's maximum context length is 128000 tokens. However, you sent more.")),
    (400, openai("Your input exceeds the context window of this model. Please adjust it.")),
    (429, openai("Request too large for gpt-5 on tokens per min (TPM): Limit 30000", "tokens")),
    (400, anthropic("invalid_request_error", "prompt is too long: 213462 tokens > 200000 maximum")),
    (
        400,
        anthropic(
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000",
        ),
    ),
    (413, anthropic("request_too_large", "Request exceeds the maximum size")),
    (
        400,
        google(
            400,
            "INVALID_ARGUMENT",
            "The input token count (1196265) exceeds the maximum number of tokens allowed (9).",
        ),
    ),
    (
        400,
        google(
            400,
            "INVALID_ARGUMENT",
            "Unable to submit request because the input token count is 32798 but model only "
            "supports up to 32768.",
        ),
    ),
    (400, openai("This endpoint's maximum context length is 131072 tokens.")),  # OpenRouter
    (
        400,  # OpenRouter, with what the service behind it said
        {
            "error": {
                "message": "Provider returned error",
                "code": 400,
                "metadata": {"raw": json.dumps(openai("prompt is too long: 5 tokens > 4"))},
            }
        },
    ),
    (400, {"error": "prompt too long; exceeded max context length by 12 tokens"}),  # Ollama
    (500, {"error": "the input length exceeds the context length"}),  # Ollama
    (
        400,
        {
            "object": "error",
            "message": "The decoder prompt (length 9) is longer than the "
            "maximum model length of 8.",
            "type": "BadRequestError",
            "code": 400,
        },
    ),  # vLLM
    (400, openai("You passed 40961 input tokens. However, the model's context length is only 4")),
    (
        400,  # llama.cpp
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size, try increasing it",
                "type": "exceed_context_size_error",
            }
        },
    ),
    (500, {"error": {"code": 500, "message": "context size has been exceeded"}}),
    (400, {"error": "Trying to keep the first 9000 tokens when context the overflows."}),
    (400, {"error": "The number of tokens to keep is greater than the context length."}),
    (400, openai("Please reduce the length of the messages or completion.")),  # Groq, Cerebras
    (413, openai("Request too large for model `x` on TPM", "tokens", "rate_limit_exceeded")),
    (
        400,
        {
            "code": "Client specified an invalid argument",
            "error": "This model's maximum prompt "
            "length is 131072 but the request contains 537812 tokens.",
        },
    ),  # xAI
    (
        400,
        {
            "object": "error",
            "message": "Prompt contains 40000 tokens and 0 draft tokens, too "
            "large for model with 32768 maximum context length",
            "code": "3051",
        },
    ),  # Mistral
    (400, {"error": {"code": "1261", "message": "Prompt exceeds max length"}}),  # z.ai
    (400, {"error": {"code": "1261", "message": "Prompt 超长"}}),
    (400, {"base_resp": {"status_code": 2013, "status_msg": "context window exceeds limit"}}),
    (400, openai("Invalid request: Your request exceeded model token limit: 8192")),  # Kimi
    (
        400,
        openai(
            "prompt token count of 9 exceeds the limit of 8",
            code="model_max_prompt_tokens_exceeded",
        ),
    ),  # Copilot
    (400, {"message": "Input is too long for requested model."}),  # Bedrock
    (400, {"message": "too many tokens: total number of tokens in the prompt cannot exceed 4081"}),
    (422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 32769"}),
    (400, openai("Range of input length should be [1, 30720]")),  # Qwen
    (400, openai("The input (40000 tokens) is longer than the model's context length (4 tokens)")),
    (413, b""),
    (413, b"<html><head><title>413 Request Entity Too Large</title></head></html>"),
]

BILLINGS: list[tuple[int, Any]] = [
    (429, openai(GOOGLE_QUOTA, "insufficient_quota", "insufficient_quota")),
    (429, openai("Your account is not active, please check your billing details on our website.")),
    (400, openai("Billing hard limit has been reached", code="billing_hard_limit_reached")),
    (
        400,
        anthropic(
            "invalid_request_error",
            "Your credit balance is too low to access the Anthropic API. Please go to Plans.",
        ),
    ),
    (400, anthropic("invalid_request_error", "You have reached your specified API usage limits.")),
    (402, anthropic("billing_error", "There is an issue with your account")),
    (
        429,
        google(
            429,
            "RESOURCE_EXHAUSTED",
            GOOGLE_QUOTA,
            quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier"),
            RETRY,
        ),
    ),
    (429, google(429, "RESOURCE_EXHAUSTED", "Your prepayment credits are depleted.")),
    (429, google(429, "RESOURCE_EXHAUSTED", "Quota exceeded for metric: x, limit: 0, model: y")),
    (403, google(403, "PERMISSION_DENIED", "This API method requires billing to be enabled.")),
    (402, {"error": {"message": "Insufficient credits. Add more using the site", "code": 402}}),
    (403, {"error": {"message": "Key limit exceeded (total limit).", "code": 403}}),
    (429, {"error": {"message": "Rate limit exceeded: free-models-per-day", "code": 429}}),
    (402, openai("Insufficient Balance", "unknown_error")),  # DeepSeek
    (
        403,
        {
            "code": "The caller does not have permission",
            "error": "Your team has either used all "
            "available credits or reached its monthly spending limit.",
        },
    ),  # xAI
    (
        429,
        {
            "error": {
                "code": "1113",
                "message": "Insufficient balance or no resource package. Please recharge.",
            }
        },
    ),
    (429, {"error": {"code": "1113", "message": "余额不足或无可用资源包,请充值。"}}),
    (429, {"error": {"code": "1308", "message": "Usage limit reached for 5 hour."}}),
    (429, openai("The usage limit has been reached", "usage_limit_reached")),
    (429, openai("suspended, please check your plan", "exceeded_current_quota_error")),  # Kimi
    (
        400,
        {
            "code": "Arrearage",
            "message": "Access denied, please make sure your account is in good standing.",
        },
    ),  # Qwen
    (200, {"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}),  # MiniMax
    (403, {"code": 30001, "message": "Sorry, your account balance is insufficient"}),
    (402, b""),
]

OTHERS: list[tuple[int, Any, ErrorKind]] = [
    (401, openai("Incorrect API key provided.", code="invalid_api_key"), "auth"),
    (401, anthropic("authentication_error", "invalid x-api-key"), "auth"),
    (401, anthropic("authentication_error", "OAuth token has expired."), "auth"),
    (403, anthropic("permission_error", "Your account does not have permission"), "auth"),
    (400, google(400, "INVALID_ARGUMENT", "API key not valid. Please pass one."), "auth"),
    (400, google(400, "INVALID_ARGUMENT", "API key expired. Please renew the API key."), "auth"),
    (400, google(400, "INVALID_ARGUMENT", "Bad.", {"reason": "API_KEY_INVALID"}), "auth"),
    (400, google(400, "FAILED_PRECONDITION", "User location is not supported."), "auth"),
    (400, {"code": "invalid argument", "error": "Incorrect API key provided: xa***1"}, "auth"),
    (401, b"", "auth"),
    (403, b"<!DOCTYPE html><title>Attention Required! | Cloudflare</title>", "auth"),
    (407, b"proxy login needed", "refused"),
    (404, openai("The model `gpt-9` does not exist", code="model_not_found"), "not_found"),
    (403, openai("Project `p` does not have access to model `gpt-5`", code="x"), "not_found"),
    (404, anthropic("not_found_error", "model: claude-9"), "not_found"),
    (404, google(404, "NOT_FOUND", "models/x is not found for API version v1beta"), "not_found"),
    (400, openai("x/y is not a valid model ID"), "not_found"),  # OpenRouter
    (404, {"error": {"message": "No endpoints found for x/y.", "code": 404}}, "not_found"),
    (404, {"error": 'model "llama9" not found, try pulling it first'}, "not_found"),
    (400, {"object": "error", "message": "Invalid model: x", "type": "invalid_model"}, "not_found"),
    (400, openai("Model Not Exist"), "not_found"),  # DeepSeek
    (400, {"error": {"code": "1211", "message": "Unknown Model, please check it"}}, "not_found"),
    (
        400,
        openai("The model `x` has been decommissioned", code="model_decommissioned"),
        "not_found",
    ),
    (404, b"404 page not found", "not_found"),
    (405, b"", "not_found"),
    (308, b"", "not_found"),
    (
        400,
        openai("Unsupported parameter: 'max_tokens' is not supported with this model."),
        "invalid",
    ),
    (400, openai("Invalid schema for function 'x': object schema missing properties"), "invalid"),
    (
        400,
        anthropic(
            "invalid_request_error",
            "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens",
        ),
        "invalid",
    ),
    (400, anthropic("invalid_request_error", "messages.1: image exceeds 5 MB maximum"), "invalid"),
    (400, google(400, "INVALID_ARGUMENT", "Invalid JSON payload received."), "invalid"),
    (422, {"detail": [{"loc": ["body"], "msg": "Field required", "type": "missing"}]}, "invalid"),
    (403, {"error": {"message": "Your input was flagged", "code": 403}}, "invalid"),
    (400, b"", "invalid"),
    (408, b"", "timeout"),
    (504, b"<html><title>504 Gateway Time-out</title></html>", "timeout"),
    (524, b"", "timeout"),
    (504, google(504, "DEADLINE_EXCEEDED", "Deadline expired"), "timeout"),
    (500, openai("The server had an error", "server_error"), "server"),
    (500, anthropic("api_error", "Internal server error"), "server"),
    (500, google(500, "INTERNAL", "An internal error has occurred."), "server"),
    (502, b"<html><title>502 Bad Gateway</title></html>", "server"),
    (503, b"upstream connect error or disconnect/reset before headers", "server"),
    (520, b"", "server"),
    (409, b"", "server"),
    (529, anthropic("overloaded_error", "Overloaded"), "overloaded"),
    (503, google(503, "UNAVAILABLE", "The model is overloaded. Please try later."), "overloaded"),
    (503, openai("That model is currently overloaded", "server_error"), "overloaded"),
    (429, openai("The engine is currently overloaded", "engine_overloaded_error"), "overloaded"),
    (429, {"message": "Service tier capacity exceeded for this model."}, "overloaded"),
    (
        503,
        {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}},
        "overloaded",
    ),
    (503, {"error": "server busy, please try again. maximum pending requests"}, "overloaded"),
    (429, openai(TPM, "tokens", "rate_limit_exceeded"), "rate_limit"),
    (
        429,
        anthropic("rate_limit_error", "This request would exceed your account's rate limit"),
        "rate_limit",
    ),
    (
        429,
        google(
            429,
            "RESOURCE_EXHAUSTED",
            GOOGLE_QUOTA,
            quota("GenerateRequestsPerMinutePerProjectPerModel-FreeTier"),
            RETRY,
        ),
        "rate_limit",
    ),
    (
        429,
        google(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."),
        "rate_limit",
    ),
    (
        429,
        [google(429, "RESOURCE_EXHAUSTED", "Resource exhausted. Please try again later.")],
        "rate_limit",
    ),
    (429, {"error": {"code": "1302", "message": "High concurrency, reduce it"}}, "rate_limit"),
    (429, {"message": "Too many tokens, please wait before trying again."}, "rate_limit"),
    (
        429,
        {"error": {"message": "x is temporarily rate-limited upstream", "code": 429}},
        "rate_limit",
    ),
    (429, google(429, "RESOURCE_EXHAUSTED", GOOGLE_QUOTA), "rate_limit"),
    (429, b"", "rate_limit"),
    # The outer status says less than the inner one.
    (502, {"error": {"message": "Provider returned error", "code": 429}}, "rate_limit"),
    (
        500,
        {"error": {"message": json.dumps(google(503, "UNAVAILABLE", "is overloaded"))}},
        "overloaded",
    ),
    # Inside a stream, or with status 200.
    (200, {"error": {"message": "Provider disconnected", "code": 502}}, "server"),
    (
        200,
        {"error": {"message": "Rate limit exceeded", "code": "rate_limit_exceeded"}},
        "rate_limit",
    ),
    (200, anthropic("overloaded_error", "Overloaded"), "overloaded"),
    (200, anthropic("api_error", "Internal server error"), "server"),
    (200, anthropic("invalid_request_error", "tools: too deep"), "invalid"),
    (200, anthropic("authentication_error", "expired"), "auth"),
    (200, anthropic("not_found_error", "gone"), "not_found"),
    (200, anthropic("timeout_error", "Request timed out"), "timeout"),
    (200, {"error": "something odd"}, "server"),
    (200, {"hello": "world"}, "malformed"),
    (200, b"<html><title>Log in</title></html>", "not_found"),
    (200, b"", "malformed"),
    (200, b'event: error\ndata: {"error": {"type": "overloaded_error"}}\n\n', "overloaded"),
]


def raw(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def kinds(table: Sequence[tuple[Any, ...]], advice: str = "") -> list[Any]:
    """What each row of a table is taken for: status and kind, where the advice is the right one."""
    found = []
    for status, body, *_ in table:
        error = from_response("svc", status, {}, raw(body), now=NOW)
        right = advice in str(error) and error.status == status
        found.append((raw(body)[:60], error.kind if right else str(error)))
    return found


def test_a_conversation_that_is_too_long_is_recognised() -> None:
    expected = [(raw(body)[:60], "overflow") for _, body in OVERFLOWS]
    assert kinds(OVERFLOWS, "Shorten the conversation") == expected


def test_an_empty_account_is_recognised() -> None:
    expected = [(raw(body)[:60], "billing") for _, body in BILLINGS]
    assert kinds(BILLINGS, "Top up the account at svc") == expected


def test_status_and_words_give_the_kind() -> None:
    assert kinds(OTHERS) == [(raw(body)[:60], kind) for _, body, kind in OTHERS]


def test_when_to_ask_again_is_found(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ({"retry-after": "7"}, b"", 7),
        ({"retry-after": " 1.5 "}, b"", 1.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, b"", 0.25),
        ({"retry-after": "Sun, 15 Jun 2025 15:07:20 GMT"}, b"", 40),
        ({"retry-after": "Sun, 15 Jun 2025 15:00:00 GMT"}, b"", 0),
        ({"retry-after": "soon"}, b"", None),
        ({"retry-after": "-5"}, b"", None),
        ({"retry-after": "nan"}, b"", None),
        ({"retry-after": "9" * 400}, b"", None),
        ({"retry-after": "Sun, 99 Jun 2025 15:07:20 GMT"}, b"", None),
        ({"retry-after": "999999999"}, b"", 31 * 86_400),
        (
            {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"},
            b"",
            360,
        ),
        (
            {
                "x-ratelimit-remaining-requests": "9",
                "x-ratelimit-reset-requests": "9h",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "20ms",
            },
            b"",
            0.02,
        ),
        (
            {
                "anthropic-ratelimit-tokens-remaining": "0",
                "anthropic-ratelimit-tokens-reset": "2025-06-15T15:06:50Z",
            },
            b"",
            10,
        ),
        ({"anthropic-ratelimit-unified-reset": "1750000090"}, b"", 90),
        ({"x-ratelimit-reset": "1750000005000"}, b"", 5),
        ({"ratelimit-reset": "12"}, b"", 12),
        ({}, raw(google(429, "RESOURCE_EXHAUSTED", "Please wait", RETRY)), 34.07),
        ({}, raw(openai("Please try again in 7m12.5s. Visit us")), 432.5),
        ({}, raw(openai("Please try again in 20ms.")), 0.02),
        ({}, raw(openai("Please retry after 5 seconds")), 5),
        ({}, raw({"error": {"type": "rate_limit", "resets_in_seconds": 33}}), 33),
        ({}, raw({"error": {"type": "rate_limit", "retry_after": {"a": 1}}}), None),
        ({}, b"", None),
    ]
    for headers, body, wait in cases:
        with subtests.test(headers=headers, body=body, wait=wait):
            found = from_response("svc", 429, headers, body, now=NOW).retry_after_s
            assert found == (None if wait is None else pytest.approx(wait))


def test_a_daily_limit_without_a_time_counts_as_an_empty_account() -> None:
    body = raw(openai("Limit reached on tokens per day (TPD)"))
    assert from_response("svc", 429, {}, body).kind == "billing"
    assert from_response("svc", 429, {"retry-after": "400"}, body).kind == "rate_limit"


def test_the_message_says_who_what_and_what_to_do() -> None:
    body = raw(anthropic("authentication_error", "invalid x-api-key"))
    assert str(from_response("anthropic", 401, {}, body)) == (
        "anthropic rejected the credential (HTTP 401): invalid x-api-key. "
        "Check the key in ANTHROPIC_API_KEY or models.providers.anthropic.apiKey."
    )


def test_the_credential_to_check_is_named(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("google", "", "Check the key in GEMINI_API_KEY or models.providers.google.apiKey."),
        ("own", "", "Check models.providers.own.apiKey."),
        ("ollama", "none", "Check models.providers.ollama.apiKey."),
        ("google", "env:GOOGLE_API_KEY", "Check the key in GOOGLE_API_KEY."),
        ("openai", "openai:work", "Check the profile openai:work, or sign in again."),
        ("own", "models.providers.own.apiKey", "Check models.providers.own.apiKey."),
    ]
    for provider, credential, advice in cases:
        with subtests.test(provider=provider, credential=credential, advice=advice):
            error = from_response(provider, 401, {}, b"", credential=credential)
            assert str(error) == f"{provider} rejected the credential (HTTP 401). {advice}"


def test_the_message_names_the_time_to_wait() -> None:
    assert "Try again in 1m 30s, or" in str(from_response("svc", 429, {"retry-after": "90"}, b""))


def test_whatever_comes_the_message_is_one_short_printable_line(subtests: pytest.Subtests) -> None:
    status_cases: list[Any] = [200, 400, 429, 500]
    cases: list[Any] = [
        b"",
        b"\0" * 100_000,
        bytes(range(256)) * 4_000,
        b"x" * 5_000_000,
        b"[" * 200_000,
        b'{"error":' * 50_000,
        b"<html>" + b"<title>" * 100_000,
        b"model " * 20_000,
        b"input length " * 20_000,
        b'{"error": {"message": "\\ud800 \\u0000 \\u202e \\u001b[31m"}}',
        b'{"error": {"message": 5, "code": [], "type": {}}}',
        b'{"error": {"code": 1e999}}',
        b'{"error": {"message": "a\\r\\nb\\u2028c"}}',
        b"null",
        b"42",
        b'{"error": ' * 40 + b"1" + b"}" * 40,
        json.dumps([{"message": f"no {n}", "code": n} for n in range(500)]).encode(),
        json.dumps({"errors": [[{"message": f"no {n}"}] * 16 for n in range(99)]}).encode(),
        json.dumps({"error": {"message": json.dumps({"error": "x" * 9_000})}}).encode(),
    ]
    for status in status_cases:
        for body in cases:
            with subtests.test(body=body, status=status):
                message = str(from_response("svc", status, {}, body))
                assert message.isprintable()
                assert len(message) < 600
                assert message.startswith("svc ")


@table(
    "secret",
    ["sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789", "AIza" + "b" * 35, KEY],
)
def test_no_key_comes_back_in_a_message(secret: str) -> None:
    body = raw(openai(f"Incorrect API key provided: {secret}. " + f"{secret} " * 400))
    message = str(from_response("openai", 401, {}, body, secrets=[KEY]))
    assert secret not in message
    assert secret[8:20] not in message
    place = {"location": f"https://x.test/?api_key={secret}"}
    assert secret[8:20] not in str(from_response("openai", 307, place, b"", secrets=[KEY]))


def test_words_of_the_conversation_that_come_back_do_not_decide() -> None:
    body = raw({"detail": [{"msg": "Field required", "input": "prompt is too long, 429"}]})
    assert from_response("svc", 422, {}, body).kind == "invalid"


def test_a_web_page_is_named_as_such() -> None:
    message = str(from_response("svc", 502, {}, b"<html><title>Bad\n Gateway</title>"))
    assert "(HTTP 502): a web page instead of an answer, 'Bad Gateway'." in message


def test_a_redirection_is_told_with_its_place() -> None:
    message = str(from_response("svc", 301, {"location": "https://other.test/v1"}, b""))
    assert "it redirects to 'https://other.test/v1', which is not followed" in message


def test_failed_connections_have_kinds_too(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("refused", "refused"),
        ("dns", "not_found"),
        ("connect", "network"),
        ("absent", "network"),
        ("tls", "refused"),
        ("timeout", "timeout"),
        ("protocol", "malformed"),
        ("closed", "network"),
    ]
    for kind, expected in cases:
        with subtests.test(kind=kind, expected=expected):
            error = from_net("svc", NetError(kind, "no way to x.test"))
            assert (error.kind, error.status) == (expected, 0)
            assert str(error).startswith("svc: no way to x.test. ")
            assert isinstance(error, AbsentError) == (kind == "absent")


def test_a_service_of_this_machine_may_not_run() -> None:
    assert "and that ollama is running." in str(from_net("ollama", NetError("connect", "refused")))
    error = from_net("svc", NetError("absent", "cannot connect to localhost: Connection refused"))
    assert str(error).endswith(
        "refused. Check models.providers.svc, and that the server is running."
    )


def test_an_answer_that_broke_off_is_told() -> None:
    assert cut_off("svc", "closed.\n") == (
        "svc broke off in the middle of the answer: closed. Try again, or set fallbacks."
    )
    assert cut_off("svc").startswith("svc broke off in the middle of the answer. Try again")


def test_the_words_of_a_stream_that_refuses_the_credential_are_not_masked() -> None:
    body = b'{"error": {"type": "authentication_error", "message": "invalid x-api-key"}}'
    error = from_response("svc", 200, {}, body)
    assert Redactor([]).strict(str(error)) == str(error)
    assert "invalid x-api-key" in str(error)
