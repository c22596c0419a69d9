"""OpenAI's APIs, with agents as models: `/v1/chat/completions`, `/v1/models`, `/v1/responses`.

Both APIs select an agent and a session and post a message; they share the code that runs the turn.
"""

from __future__ import annotations

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from clawkit.errors import ClawkitError
from clawkit.gateway import http
from clawkit.gateway.protocol import Short, encode, now_ms
from clawkit.gateway.session_events import GatewayRun

if TYPE_CHECKING:
    from clawkit.gateway.server import Gateway

MAX_BODY_BYTES = 20 * 1024**2
PREFIXES = ("openclaw", "clawkit")
"""Prefixes of model ids; the first one is used in lists."""
_ROLES = {"user": "User", "assistant": "Assistant", "tool": "Tool", "function": "Tool"}
_SYSTEM = ("system", "developer")
_TEXTS = ("text", "input_text", "output_text")
_USAGE = ("prompt_tokens", "completion_tokens")
_INPUT_ROLES = ("user", "assistant", "system", "developer")
_CONTINUE = "to continue a conversation, send `user` or the header x-openclaw-session-key"


class Message(Struct, frozen=True):
    role: Short
    content: Any = None


class ApiRequest(Struct, frozen=True, kw_only=True):
    """The body of a request. Unsupported fields, such as a temperature, are ignored, because
    programs send many."""

    model: Short
    stream: bool | None = False
    user: Short | None = None


def model_ids(gateway: Gateway) -> list[str]:
    """The agents, as names of models."""
    first = PREFIXES[0]
    return [
        first,
        f"{first}/default",
        *(f"{first}/{id_}" for id_ in gateway.loaded.config.agents.ids()),
    ]


def _find_agent(gateway: Gateway, model: str, request: Request) -> str:
    """The agent that a request is for. Raises `HttpError`."""
    named = request.headers.get("x-openclaw-agent-id", "").strip().lower()
    prefix, _, agent = model.strip().lower().partition("/")
    known = gateway.loaded.config.agents.ids()
    agent = named or ("" if agent == "default" else agent) or known[0]
    if prefix not in PREFIXES or agent not in known:
        raise http.bad(f"Unknown model; use one of {', '.join(model_ids(gateway))}")
    return agent


class HttpTurn(ABC):
    """A turn started by an HTTP request, and the answer to that request."""

    space: str
    """Name prefix for the sessions of requests that name none."""
    run: GatewayRun

    def __init__(self, gateway: Gateway, body: ApiRequest) -> None:
        self._gateway = gateway
        self._body: Any = body
        self._pieces: asyncio.Queue[str | None] = asyncio.Queue()
        self._made_at = now_ms() // 1000

    @abstractmethod
    def full_response(self) -> dict[str, Any]:
        """The answer to a request that does not stream."""

    @abstractmethod
    def events(self) -> AsyncIterator[bytes]:
        """The answer as it is generated, as events."""

    async def answer(self, request: Request, messages: list[Message]) -> Response:
        """Post the last message to the session named by header or user, or the whole conversation
        to a new one below `space`. Raises `HttpError`."""
        live, body = self._gateway.live, self._body
        agent = _find_agent(self._gateway, body.model, request)
        key = request.headers.get("x-openclaw-session-key", "").strip()
        if not key and body.user:
            key = f"{self.space}-user:{uuid.uuid5(uuid.NAMESPACE_OID, body.user)}"
        text = _last_words(messages) if key else _conversation(messages)
        if not text.strip():
            raise http.bad("The last message must have text")
        key = live.resolve_key(key or f"{self.space}:{uuid.uuid4()}", agent)
        said, hear = str(uuid.uuid4()), self._pieces.put_nowait
        try:
            self.run = await live.start(key, said, text, owner=True, on_text=hear)
        except ClawkitError as error:
            raise http.HttpError(409, "conflict", str(error)) from None
        if body.stream:
            kind = "text/event-stream"
            return StreamingResponse(self._stream(), headers=http.SAFE_HEADERS, media_type=kind)
        try:
            await self.run.over.wait()
        finally:
            await self._stop()
        if self.failure:
            raise http.HttpError(500, "api_error", self.failure)
        return http.answer(self.full_response())

    async def _stream(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self.events():
                yield chunk
            yield b"data: [DONE]\n\n"
        finally:
            await self._stop()

    async def _stop(self) -> None:
        """Stop the run of a disconnected client."""
        if not self.run.over.is_set():
            await self._gateway.live.abort(self.run.session, self.run.id)

    @property
    def failure(self) -> str:
        """Why the run failed; empty if it did not."""
        run = self.run
        return "" if run.status == "ok" else run.error or f"the run ended: {run.status}"

    def usage(self, first: str, second: str) -> dict[str, int]:
        """Token usage under the given names, as these APIs count: cached input is input."""
        used = self.run.usage
        kinds = ("input", "cacheRead", "cacheWrite")
        given, written = sum(used.get(kind, 0) for kind in kinds), used.get("output", 0)
        return {first: given, second: written, "total_tokens": given + written}

    async def pieces(self) -> AsyncIterator[str]:
        """The text as it is generated, until the run is over. Answers are separate paragraphs."""
        waiting = asyncio.ensure_future(self.run.over.wait())
        waiting.add_done_callback(lambda _: self._pieces.put_nowait(None))
        said, gap = False, ""
        try:
            while (piece := await self._pieces.get()) is not None:
                if piece:
                    yield gap + piece
                said, gap = True, "" if piece else "\n\n"
            if not said and self.run.text and not self.failure:
                yield self.run.text  # the gateway itself has answered
        finally:
            waiting.cancel()


def read_text(content: Any) -> str:
    """The text of a message. Raises `HttpError` for anything else, such as images."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise http.bad("content must be text or a list of parts")
    words = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") not in _TEXTS:
            raise http.bad("only parts of type text are supported")
        words.append(str(part.get("text", "")))
    return "\n".join(words)


def _system(messages: list[Message]) -> list[str]:
    return [read_text(each.content) for each in messages if each.role in _SYSTEM]


def _last_words(messages: list[Message]) -> str:
    """The new message of a conversation that the gateway stores."""
    said = [each for each in messages if each.role == "user"]
    return "\n\n".join([*_system(messages), *(read_text(each.content) for each in said[-1:])])


def _conversation(messages: list[Message]) -> str:
    """A whole conversation as one message, for a session that the gateway does not store."""
    said = [each for each in messages if each.role in _ROLES]
    if len(said) == 1:
        return _last_words(messages)
    lines = [f"{_ROLES[each.role]}: {read_text(each.content)}" for each in said]
    return "\n\n".join([*_system(messages), *lines])


async def _enter(gateway: Gateway, request: Request, *, is_on: bool) -> None:
    """Answer 404 unless the endpoint is enabled."""
    if not is_on:
        raise http.not_found()
    await http.check_login(gateway, request)


class StreamOptions(Struct, frozen=True):
    include_usage: bool = False


class Completion(ApiRequest, frozen=True, kw_only=True):
    messages: Annotated[list[Message], Meta(min_length=1, max_length=2_000)]
    stream_options: StreamOptions | None = None


async def list_models(gateway: Gateway, request: Request) -> Response:
    await _enter(gateway, request, is_on=gateway.settings.http.endpoints.chat_completions.enabled)
    return http.answer({"object": "list", "data": [_model(each) for each in model_ids(gateway)]})


async def show_model(gateway: Gateway, request: Request) -> Response:
    await _enter(gateway, request, is_on=gateway.settings.http.endpoints.chat_completions.enabled)
    id_ = request.path_params["model"]
    if id_ not in model_ids(gateway):
        raise http.not_found(f"Model not found: {id_[:80]}")
    return http.answer(_model(id_))


async def complete(gateway: Gateway, request: Request) -> Response:
    await _enter(gateway, request, is_on=gateway.settings.http.endpoints.chat_completions.enabled)
    body = await http.read_body(request, Completion, MAX_BODY_BYTES)
    return await CompletionTurn(gateway, body).answer(request, body.messages)


class CompletionTurn(HttpTurn):
    space = "openai"

    def _part(self, kind: str, name: str, said: Any, finish: str | None) -> dict[str, Any]:
        choice = {"index": 0, name: said, "finish_reason": finish}
        head = {"id": f"chatcmpl_{self.run.id}", "object": kind, "created": self._made_at}
        return head | {"model": self._body.model, "choices": [choice]}

    def full_response(self) -> dict[str, Any]:
        message = {"role": "assistant", "content": self.run.text}
        shown = self._part("chat.completion", "message", message, "stop")
        return shown | {"usage": self.usage(*_USAGE)}

    async def events(self) -> AsyncIterator[bytes]:
        def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
            return self._part("chat.completion.chunk", "delta", delta, finish)

        yield _line(chunk({"role": "assistant"}))
        async for piece in self.pieces():
            yield _line(chunk({"content": piece}))
        if self.failure:
            yield _line({"error": {"message": self.failure, "type": "api_error"}})
        yield _line(chunk({}, "stop"))
        options = self._body.stream_options
        if options is not None and options.include_usage:
            yield _line(chunk({}) | {"choices": [], "usage": self.usage(*_USAGE)})


def _line(payload: dict[str, Any]) -> bytes:
    return b"data: %s\n\n" % encode(payload)


def _model(id_: str) -> dict[str, Any]:
    return {"id": id_, "object": "model", "created": 0, "owned_by": "openclaw", "permission": []}


class InputItem(Struct, frozen=True):
    type: str = "message"
    role: str = ""
    content: Any = None


class TextFormat(Struct, frozen=True):
    type: str = "text"


class TextOptions(Struct, frozen=True):
    format: TextFormat | None = None


class ResponseRequest(ApiRequest, frozen=True, kw_only=True):
    """Unsupported fields that would change the answer are refused."""

    input: str | Annotated[list[InputItem], Meta(min_length=1, max_length=2_000)]
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    background: bool | None = False
    tools: list[Any] | None = None
    tool_choice: Any = None
    text: TextOptions | None = None


async def respond(gateway: Gateway, request: Request) -> Response:
    await _enter(gateway, request, is_on=gateway.settings.http.endpoints.responses.enabled)
    body = await http.read_body(request, ResponseRequest, MAX_BODY_BYTES)
    _check(body)
    return await ResponseTurn(gateway, body).answer(request, _read_input(body))


def _check(body: ResponseRequest) -> None:
    """Refuse unsupported fields. Raises `HttpError`."""
    form = body.text.format.type if body.text and body.text.format else "text"
    refused = {
        f"previous_response_id is not supported; {_CONTINUE}": body.previous_response_id,
        f"conversation is not supported; {_CONTINUE}": body.conversation is not None,
        "prompt is not supported; send instructions and input": body.prompt is not None,
        "background is not supported; use stream": body.background,
        "tools are not supported; agents use the tools of the gateway": body.tools
        or body.tool_choice not in (None, "auto", "none"),
        "text.format must be text": form != "text",
    }
    for why, is_asked in refused.items():
        if is_asked:
            raise http.bad(why)


def _read_input(body: ResponseRequest) -> list[Message]:
    items = [InputItem(role="user", content=body.input)]
    if not isinstance(body.input, str):
        items = body.input
    for number, item in enumerate(items):
        if item.type != "message":
            raise http.bad(f"input[{number}]: only items of type message are supported")
        if item.role not in _INPUT_ROLES:
            raise http.bad(f"input[{number}]: role must be one of {', '.join(_INPUT_ROLES)}")
    said = [Message(item.role, item.content) for item in items]
    if said[-1].role != "user" or not read_text(said[-1].content).strip():
        raise http.bad("the last item of input must be a message of the user with text")
    return [Message("system", body.instructions), *said] if body.instructions else said


class ResponseTurn(HttpTurn):
    space = "openresponses"
    _number = 0

    def full_response(self) -> dict[str, Any]:
        return self._response("completed")

    def _response(self, status: str, error: str = "") -> dict[str, Any]:
        is_done = status == "completed"
        shown: dict[str, Any] = {"id": f"resp_{self.run.id}", "object": "response"}
        shown |= {"created_at": self._made_at, "status": status, "model": self._body.model}
        shown["output"] = [self._item("completed", self.run.text)] if is_done else []
        usage = self.usage("input_tokens", "output_tokens")
        shown["usage"] = None if status == "in_progress" else usage
        code = {"code": "server_error", "message": error}
        return shown | {"error": code if error else None}

    def _item(self, status: str, text: str | None = None) -> dict[str, Any]:
        item: dict[str, Any] = {"type": "message", "role": "assistant"}
        item["content"] = [] if text is None else [_part(text)]
        return item | {"id": f"msg_{self.run.id}", "phase": "final_answer", "status": status}

    async def events(self) -> AsyncIterator[bytes]:
        """Deltas contain everything the agent writes; the final text is its last answer."""
        item = {"item_id": f"msg_{self.run.id}", "output_index": 0, "content_index": 0}
        yield self._event("created", response=self._response("in_progress"))
        yield self._event("in_progress", response=self._response("in_progress"))
        yield self._event("output_item.added", output_index=0, item=self._item("in_progress"))
        yield self._event("content_part.added", **item, part=_part(""))
        async for piece in self.pieces():
            yield self._event("output_text.delta", **item, delta=piece)
        if error := self.failure:
            yield self._event("failed", response=self._response("failed", error))
            return
        text = self.run.text
        yield self._event("output_text.done", **item, text=text)
        yield self._event("content_part.done", **item, part=_part(text))
        done = self._item("completed", text)
        yield self._event("output_item.done", output_index=0, item=done)
        yield self._event("completed", response=self.full_response())

    def _event(self, name: str, **fields: Any) -> bytes:
        kind = f"response.{name}"
        payload = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return b"event: %s\ndata: %s\n\n" % (kind.encode(), encode(payload))


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}
