"""google-generative-ai: chunks with one candidate, calls always complete, lines with CRLF."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from clawkit.content import Text, Thinking, ToolCall
from clawkit.testing.answers import encode
from clawkit_testkit.fault import Kind
from clawkit_testkit.forms.protocol import ErrorForm, Event, Reply, Words

_FINISH = {"length": "MAX_TOKENS", "refusal": "SAFETY"}
_RATE = (
    "You exceeded your current quota, please check your plan and billing details. For more "
    "information on this error, head to: https://ai.google.dev/gemini-api/docs/rate-limits."
)
_AUTH = (
    "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie "
    "or other valid authentication credential."
)
_NOT_FOUND = (
    "models/scripted-model is not found for API version v1beta, or is not supported for "
    "generateContent. Call ListModels to see the list of available models and their supported "
    "methods."
)
_CREDIT = "Your prepayment credits are depleted. Please go to AI Studio to manage your billing."
_OVERFLOW = (
    "The input token count (2845475) exceeds the maximum number of tokens allowed (1048576)."
)
_SERVER = "An internal error has occurred. Please retry or report in the developer forum."
_BUSY = "The model is overloaded. Please try again later."
_WORDS: Mapping[Kind, Words] = {
    "invalid": Words(400, "INVALID_ARGUMENT", "* GenerateContentRequest.contents: not specified"),
    "bad_key": Words(
        400,
        "INVALID_ARGUMENT",
        "API key not valid. Please pass a valid API key.",
        "API_KEY_INVALID",
    ),
    "auth": Words(401, "UNAUTHENTICATED", _AUTH, "ACCESS_TOKEN_TYPE_UNSUPPORTED"),
    "billing": Words(402, "RESOURCE_EXHAUSTED", _CREDIT),
    "quota": Words(429, "RESOURCE_EXHAUSTED", _CREDIT),
    "forbidden": Words(403, "PERMISSION_DENIED", "The caller does not have permission"),
    "not_found": Words(404, "NOT_FOUND", _NOT_FOUND),
    "too_large": Words(
        413, "INVALID_ARGUMENT", "Request payload size exceeds the limit: 20971520 bytes."
    ),
    "rate_limit": Words(429, "RESOURCE_EXHAUSTED", _RATE),
    "server": Words(500, "INTERNAL", _SERVER),
    "unavailable": Words(503, "UNAVAILABLE", _BUSY),
    "overloaded": Words(503, "UNAVAILABLE", _BUSY),
    "overflow": Words(400, "INVALID_ARGUMENT", _OVERFLOW),
}


class Google:
    """The format of `:streamGenerateContent`."""

    words = _WORDS
    id_header = "x-goog-request-id"

    def events(self, reply: Reply) -> Iterator[Event]:
        for chunk, is_piece in _chunks(reply):
            yield Event(_event(chunk), is_piece)

    def whole(self, reply: Reply) -> bytes:
        """The chunks as a list, as sent without `alt=sse`."""
        return encode([chunk for chunk, _ in _chunks(reply)])

    def error(self, words: Words, request_id: str, retry_after: float | str | None) -> bytes:
        return encode(_error(words, retry_after))

    def error_event(self, words: Words, reply: Reply, form: ErrorForm) -> bytes:
        return _event(_error(words, None))


def _event(value: object) -> bytes:
    return b"data: %b\r\n\r\n" % encode(value)


def _error(words: Words, retry_after: float | str | None) -> dict[str, Any]:
    error: dict[str, Any] = {
        "code": words.status,
        "message": words.message,
        "status": words.type,
    }
    details: list[dict[str, Any]] = []
    google = "type.googleapis.com/google.rpc"
    if words.code:
        details.append(
            {
                "@type": f"{google}.ErrorInfo",
                "reason": words.code,
                "domain": "googleapis.com",
                "metadata": {"service": "generativelanguage.googleapis.com"},
            }
        )
    if isinstance(retry_after, int | float):
        details.append({"@type": f"{google}.RetryInfo", "retryDelay": f"{retry_after:g}s"})
    return {"error": error | ({"details": details} if details else {})}


def _chunks(reply: Reply) -> Iterator[tuple[dict[str, Any], bool]]:
    if reply.stop == "refusal" and not reply.parts:
        blocked = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}
        yield blocked | _top(reply, 0), False
        return
    finish = _FINISH.get(reply.stop, "STOP")
    thought = any(isinstance(part, Thinking) for part in reply.parts)
    for index, part in enumerate(reply.parts):
        match part:
            case Text(text=text):
                for piece in reply.pieces(text):
                    yield _chunk(reply, {"text": piece}), True
                if part.signature:
                    yield _chunk(reply, {"text": "", "thoughtSignature": part.signature}), False
            case Thinking(text=text):
                for piece in reply.pieces(text):
                    yield _chunk(reply, {"text": piece, "thought": True}), True
                if part.signature:
                    signed = {"text": "", "thought": True, "thoughtSignature": part.signature}
                    yield _chunk(reply, signed), False
            case ToolCall():
                call = _call(part)
                if call is None:
                    finish = finish if reply.stop == "length" else "MALFORMED_FUNCTION_CALL"
                    continue
                made: dict[str, Any] = {"functionCall": call}
                if part.signature or thought:
                    made["thoughtSignature"] = part.signature or reply.proof(part, index)
                    thought = False
                yield _chunk(reply, made), True
    yield _chunk(reply, {"text": ""}, finish), False


def _call(part: ToolCall) -> dict[str, Any] | None:
    """The call, or None if its arguments are not JSON, which this API cannot send."""
    arguments: object = part.arguments
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments)
        except (msgspec.MsgspecError, UnicodeEncodeError):
            return None
    return {"name": part.name, "args": arguments} | ({"id": part.id} if part.id else {})


def _chunk(reply: Reply, part: dict[str, Any], finish: str = "") -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": [part], "role": "model"}}
    if finish:
        candidate["finishReason"] = finish
    output = reply.usage.output if finish else 0
    return {"candidates": [candidate | {"index": 0}]} | _top(reply, output)


def _top(reply: Reply, output: int) -> dict[str, Any]:
    usage: dict[str, Any] = {"promptTokenCount": reply.prompt_tokens}
    if output:
        # Here thinking is counted separately from the answer.
        usage["candidatesTokenCount"] = output - reply.thinking_tokens
        if reply.thinking_tokens:
            usage["thoughtsTokenCount"] = reply.thinking_tokens
    usage["totalTokenCount"] = reply.prompt_tokens + output
    if reply.usage.cache_read:
        usage["cachedContentTokenCount"] = reply.usage.cache_read
    usage["promptTokensDetails"] = [{"modality": "TEXT", "tokenCount": reply.prompt_tokens}]
    return {
        "usageMetadata": usage,
        "modelVersion": reply.model,
        "responseId": reply.id("resp"),
    }
