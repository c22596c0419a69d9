"""`/v1/chat/completions` and `/v1/models`: agents as models, for programs that know that API."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from clawkit.errors import ClawkitError
from clawkit.gateway.http import HttpError, answer, check_login, read_body
from clawkit.gateway.methods.status import agent_ids
from clawkit.gateway.narrator import Run
from clawkit.gateway.protocol import Short, encode, now_ms

if TYPE_CHECKING:
    from clawkit.gateway.server import Gateway

MAX_BODY_BYTES = 20 * 1024**2
PREFIXES = ("openclaw", "clawkit")
"""First words of model ids; the first is the one that is listed."""
_ROLES = {"user": "User", "assistant": "Assistant", "tool": "Tool", "function": "Tool"}


class Message(Struct, frozen=True):
    role: Short
    content: Any = None


class StreamOptions(Struct, frozen=True):
    include_usage: bool = False


class Completion(Struct, frozen=True):
    """The body of a request. Fields that clawkit has no use for are ignored: programs send many."""

    model: Short
    messages: Annotated[list[Message], Meta(min_length=1, max_length=2_000)]
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: Short = ""


class ChatCompletions:
    """The endpoints; they answer 404 unless they are turned on."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def _enter(self, request: Request) -> None:
        if not self._gateway.settings.http.endpoints.chat_completions.enabled:
            raise HttpError(404, "not_found", "Not found")
        await check_login(self._gateway, request)

    def _ids(self) -> list[str]:
        first = PREFIXES[0]
        return [first, f"{first}/default", *(f"{first}/{id_}" for id_ in agent_ids(self._gateway))]

    async def models(self, request: Request) -> Response:
        await self._enter(request)
        return answer({"object": "list", "data": [_model(each) for each in self._ids()]})

    async def model(self, request: Request) -> Response:
        await self._enter(request)
        id_ = request.path_params["model"]
        if id_ not in self._ids():
            raise HttpError(404, "not_found", f"Model not found: {id_[:80]}")
        return answer(_model(id_))

    def _agent(self, model: str, named: str) -> str:
        prefix, _, agent = model.strip().lower().partition("/")
        known = agent_ids(self._gateway)
        agent = named.strip().lower() or ("" if agent == "default" else agent) or known[0]
        if prefix not in PREFIXES or agent not in known:
            listed = ", ".join(self._ids())
            raise HttpError(400, "invalid_request_error", f"Unknown model; use one of {listed}")
        return agent

    async def complete(self, request: Request) -> Response:
        await self._enter(request)
        body = await read_body(request, Completion, MAX_BODY_BYTES)
        agent = self._agent(body.model, request.headers.get("x-openclaw-agent-id", ""))
        key = request.headers.get("x-openclaw-session-key", "").strip()
        if not key and body.user:
            key = f"openai-user:{uuid.uuid5(uuid.NAMESPACE_OID, body.user)}"
        text = _last_words(body.messages) if key else _conversation(body.messages)
        if not text.strip():
            raise HttpError(400, "invalid_request_error", "The last message must have text")
        key = self._gateway.live.resolve_key(key or f"openai:{uuid.uuid4()}", agent)
        pieces: asyncio.Queue[str | None] = asyncio.Queue()
        try:
            run = await self._gateway.live.start(
                key, str(uuid.uuid4()), text, owner=True, on_text=pieces.put_nowait
            )
        except ClawkitError as error:
            raise HttpError(409, "conflict", str(error)) from None
        if body.stream:
            usage = body.stream_options is not None and body.stream_options.include_usage
            chunks = self._stream(run, body.model, pieces, usage=usage)
            return StreamingResponse(chunks, media_type="text/event-stream")
        try:
            await run.over.wait()
        except asyncio.CancelledError:
            await self._gateway.live.abort(run.session, run.id)
            raise
        if run.status != "ok":
            raise HttpError(500, "api_error", run.error or f"the run ended: {run.status}")
        message = {"role": "assistant", "content": run.text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        shown = _head(run, body.model, "chat.completion")
        return answer(shown | {"choices": [choice], "usage": _usage(run)})

    async def _stream(
        self, run: Run, model: str, pieces: asyncio.Queue[str | None], *, usage: bool
    ) -> AsyncIterator[bytes]:
        """The answer as it is written. A client that leaves stops the run."""
        head = _head(run, model, "chat.completion.chunk")

        def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            return _line(head | {"choices": [choice]})

        waiting = asyncio.ensure_future(run.over.wait())
        waiting.add_done_callback(lambda _: pieces.put_nowait(None))
        try:
            yield chunk({"role": "assistant"})
            said = ""
            while (piece := await pieces.get()) is not None:
                said += piece
                yield chunk({"content": piece})
            if run.status != "ok":
                error = {"message": run.error or run.status, "type": "api_error"}
                yield _line({"error": error})
            elif not said and run.text:
                yield chunk({"content": run.text})
            yield chunk({}, "stop")
            if usage:
                yield _line(head | {"choices": [], "usage": _usage(run)})
            yield b"data: [DONE]\n\n"
        finally:
            waiting.cancel()
            if not run.over.is_set():
                await self._gateway.live.abort(run.session, run.id)


def _line(payload: dict[str, Any]) -> bytes:
    return b"data: %s\n\n" % encode(payload)


def _model(id_: str) -> dict[str, Any]:
    return {"id": id_, "object": "model", "created": 0, "owned_by": "openclaw", "permission": []}


def _head(run: Run, model: str, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl_{run.id}", "object": kind, "created": now_ms() // 1000, "model": model}


def _usage(run: Run) -> dict[str, int]:
    used = run.usage or {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}
    asked = used["input"] + used["cacheRead"] + used["cacheWrite"]
    return {
        "prompt_tokens": asked,
        "completion_tokens": used["output"],
        "total_tokens": asked + used["output"],
    }


def _text(content: Any) -> str:
    """The text of a message. Raises `HttpError` for anything else, such as images."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise HttpError(400, "invalid_request_error", "content must be text or a list of parts")
    words = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") not in ("text", "input_text"):
            raise HttpError(400, "invalid_request_error", "only parts of type text are supported")
        words.append(str(part.get("text", "")))
    return "\n".join(words)


def _system(messages: list[Message]) -> list[str]:
    return [_text(each.content) for each in messages if each.role in ("system", "developer")]


def _last_words(messages: list[Message]) -> str:
    """What is new in a conversation that the gateway keeps."""
    said = [each for each in messages if each.role == "user"]
    return "\n\n".join([*_system(messages), *(_text(each.content) for each in said[-1:])])


def _conversation(messages: list[Message]) -> str:
    """A whole conversation as one message, for one that the gateway does not keep."""
    said = [each for each in messages if each.role in _ROLES]
    if len(said) == 1:
        return _last_words(messages)
    lines = [f"{_ROLES[each.role]}: {_text(each.content)}" for each in said]
    return "\n\n".join([*_system(messages), *lines])
