"""`/v1/responses`: agents as models, for programs that know that API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from clawkit.gateway.http import HttpError, answer, bad, check_login, read_body
from clawkit.gateway.http_turn import MAX_BODY_BYTES, HttpTurn, Message, read_text
from clawkit.gateway.protocol import encode, now_ms

if TYPE_CHECKING:
    from clawkit.gateway.server import Gateway

SPACE = "openresponses"
"""Where the sessions of requests that name none are."""
_INPUT_ROLES = ("user", "assistant", "system", "developer")
_CONTINUE = "to continue a conversation, send `user` or the header x-openclaw-session-key"


class InputItem(Struct, frozen=True):
    type: str = "message"
    role: str = ""
    content: Any = None


class TextFormat(Struct, frozen=True):
    type: str = "text"


class TextOptions(Struct, frozen=True):
    format: TextFormat | None = None


class ResponseRequest(Struct, frozen=True):
    """The body of a request. What would change the answer and is not supported is refused;
    other fields, such as a temperature, are ignored: programs send many."""

    model: str
    input: str | Annotated[list[InputItem], Meta(min_length=1, max_length=2_000)]
    instructions: str | None = None
    stream: bool | None = False
    user: str | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    background: bool | None = False
    tools: list[Any] | None = None
    tool_choice: Any = None
    text: TextOptions | None = None


async def respond(gateway: Gateway, request: Request) -> Response:
    """The endpoint is not found unless it is turned on."""
    if not gateway.settings.http.endpoints.responses.enabled:
        raise HttpError(404, "not_found", "Not found")
    await check_login(gateway, request)
    body = await read_body(request, ResponseRequest, MAX_BODY_BYTES)
    _check(body)
    turn = await HttpTurn.start(
        gateway, request, body.model, _read_input(body), user=body.user or "", space=SPACE
    )
    answered = _Answer(turn, body.model)
    if body.stream:
        return turn.stream(answered.stream())
    await turn.finish()
    return answer(answered.response("completed"))


def _check(body: ResponseRequest) -> None:
    """Refuse what is not supported. Raises `HttpError`."""
    if body.previous_response_id:
        raise bad(f"previous_response_id is not supported; {_CONTINUE}")
    if body.conversation is not None:
        raise bad(f"conversation is not supported; {_CONTINUE}")
    if body.prompt is not None:
        raise bad("prompt is not supported; send instructions and input")
    if body.background:
        raise bad("background is not supported; use stream")
    if body.tools or body.tool_choice not in (None, "auto", "none"):
        raise bad("tools are not supported; agents use the tools of the gateway")
    if body.text and body.text.format and body.text.format.type != "text":
        raise bad("text.format must be text")


def _read_input(body: ResponseRequest) -> list[Message]:
    items = [InputItem(role="user", content=body.input)]
    if not isinstance(body.input, str):
        items = body.input
    for number, item in enumerate(items):
        if item.type != "message":
            raise bad(f"input[{number}]: only items of type message are supported")
        if item.role not in _INPUT_ROLES:
            raise bad(f"input[{number}]: role must be one of {', '.join(_INPUT_ROLES)}")
    said = [Message(item.role, item.content) for item in items]
    if said[-1].role != "user" or not read_text(said[-1].content).strip():
        raise bad("the last item of input must be a message of the user with text")
    return [Message("system", body.instructions), *said] if body.instructions else said


class _Answer:
    """One answer, whole or as events."""

    def __init__(self, turn: HttpTurn, model: str) -> None:
        self._turn = turn
        self._head = {"id": f"resp_{turn.run.id}", "object": "response"}
        self._created_at = now_ms() // 1000
        self._model = model
        self._item_id = f"msg_{turn.run.id}"
        self._number = 0

    def response(self, status: str, error: str = "") -> dict[str, Any]:
        is_done = status == "completed"
        shown: dict[str, Any] = {**self._head, "created_at": self._created_at}
        shown |= {"status": status, "model": self._model}
        shown["output"] = [self._item("completed", self._turn.run.text)] if is_done else []
        usage = self._turn.usage("input_tokens", "output_tokens")
        shown["usage"] = None if status == "in_progress" else usage
        code = {"code": "server_error", "message": error}
        return shown | {"error": code if error else None}

    def _item(self, status: str, text: str | None = None) -> dict[str, Any]:
        item: dict[str, Any] = {"type": "message", "id": self._item_id, "role": "assistant"}
        item["content"] = [] if text is None else [_part(text)]
        return item | {"phase": "final_answer", "status": status}

    async def stream(self) -> AsyncIterator[bytes]:
        """Deltas are everything the agent says; what is done is its last answer."""
        item = {"item_id": self._item_id, "output_index": 0, "content_index": 0}
        yield self._event("created", response=self.response("in_progress"))
        yield self._event("in_progress", response=self.response("in_progress"))
        yield self._event("output_item.added", output_index=0, item=self._item("in_progress"))
        yield self._event("content_part.added", **item, part=_part(""))
        async for piece in self._turn.pieces():
            yield self._event("output_text.delta", **item, delta=piece)
        if error := self._turn.failure:
            yield self._event("failed", response=self.response("failed", error))
        else:
            text = self._turn.run.text
            yield self._event("output_text.done", **item, text=text)
            yield self._event("content_part.done", **item, part=_part(text))
            done = self._item("completed", text)
            yield self._event("output_item.done", output_index=0, item=done)
            yield self._event("completed", response=self.response("completed"))

    def _event(self, name: str, **fields: Any) -> bytes:
        kind = f"response.{name}"
        payload = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return b"event: %s\ndata: %s\n\n" % (kind.encode(), encode(payload))


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}
