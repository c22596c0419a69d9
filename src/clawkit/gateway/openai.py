"""`/v1/chat/completions` and `/v1/models`: agents as models, for programs that know that API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from clawkit.gateway.http import HttpError, answer, check_login, read_body
from clawkit.gateway.http_turn import MAX_BODY_BYTES, HttpTurn, Message, model_ids
from clawkit.gateway.protocol import Short, encode, now_ms

if TYPE_CHECKING:
    from clawkit.gateway.server import Gateway

_USAGE = ("prompt_tokens", "completion_tokens")


class StreamOptions(Struct, frozen=True):
    include_usage: bool = False


class Completion(Struct, frozen=True):
    """The body of a request. Fields that clawkit has no use for are ignored: programs send many."""

    model: Short
    messages: Annotated[list[Message], Meta(min_length=1, max_length=2_000)]
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: Short = ""


async def _enter(gateway: Gateway, request: Request) -> None:
    """The endpoints are not found unless they are turned on."""
    if not gateway.settings.http.endpoints.chat_completions.enabled:
        raise HttpError(404, "not_found", "Not found")
    await check_login(gateway, request)


async def list_models(gateway: Gateway, request: Request) -> Response:
    await _enter(gateway, request)
    return answer({"object": "list", "data": [_model(each) for each in model_ids(gateway)]})


async def show_model(gateway: Gateway, request: Request) -> Response:
    await _enter(gateway, request)
    id_ = request.path_params["model"]
    if id_ not in model_ids(gateway):
        raise HttpError(404, "not_found", f"Model not found: {id_[:80]}")
    return answer(_model(id_))


async def complete(gateway: Gateway, request: Request) -> Response:
    await _enter(gateway, request)
    body = await read_body(request, Completion, MAX_BODY_BYTES)
    turn = await HttpTurn.start(
        gateway, request, body.model, body.messages, user=body.user, space="openai"
    )
    if body.stream:
        usage = body.stream_options is not None and body.stream_options.include_usage
        return turn.stream(_stream(turn, body.model, usage=usage))
    await turn.finish()
    message = {"role": "assistant", "content": turn.run.text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    shown = _head(turn, body.model, "chat.completion")
    return answer(shown | {"choices": [choice], "usage": turn.usage(*_USAGE)})


async def _stream(turn: HttpTurn, model: str, *, usage: bool) -> AsyncIterator[bytes]:
    """The answer as it is written."""
    head = _head(turn, model, "chat.completion.chunk")

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _line(head | {"choices": [choice]})

    yield chunk({"role": "assistant"})
    async for piece in turn.pieces():
        yield chunk({"content": piece})
    if turn.failure:
        yield _line({"error": {"message": turn.failure, "type": "api_error"}})
    yield chunk({}, "stop")
    if usage:
        yield _line(head | {"choices": [], "usage": turn.usage(*_USAGE)})


def _line(payload: dict[str, Any]) -> bytes:
    return b"data: %s\n\n" % encode(payload)


def _model(id_: str) -> dict[str, Any]:
    return {"id": id_, "object": "model", "created": 0, "owned_by": "openclaw", "permission": []}


def _head(turn: HttpTurn, model: str, kind: str) -> dict[str, Any]:
    id_ = f"chatcmpl_{turn.run.id}"
    return {"id": id_, "object": kind, "created": now_ms() // 1000, "model": model}
