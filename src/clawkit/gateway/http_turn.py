"""What `/v1/chat/completions` and `/v1/responses` have in common: which agent is asked, in which
session, what is said to it, and the one way to run a turn for a program."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import StreamingResponse

from clawkit.errors import ClawkitError
from clawkit.gateway.http import SAFE_HEADERS, HttpError, bad
from clawkit.gateway.narrator import GatewayRun
from clawkit.gateway.protocol import Short

if TYPE_CHECKING:
    from clawkit.gateway.server import Gateway

MAX_BODY_BYTES = 20 * 1024**2
PREFIXES = ("openclaw", "clawkit")
"""First words of model ids; the first is the one that is listed."""
_ROLES = {"user": "User", "assistant": "Assistant", "tool": "Tool", "function": "Tool"}
_SYSTEM = ("system", "developer")
_TEXTS = ("text", "input_text", "output_text")


class Message(Struct, frozen=True):
    role: Short
    content: Any = None


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
        raise bad(f"Unknown model; use one of {', '.join(model_ids(gateway))}")
    return agent


class HttpTurn:
    """A turn that an HTTP request has started."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._pieces: asyncio.Queue[str | None] = asyncio.Queue()
        self.run: GatewayRun

    @classmethod
    async def start(
        cls,
        gateway: Gateway,
        request: Request,
        model: str,
        messages: list[Message],
        *,
        user: str,
        space: str,
    ) -> HttpTurn:
        """Say the last message in the session that the request names by header or user, or the
        whole conversation in a new one below `space`. Raises `HttpError`."""
        agent = _find_agent(gateway, model, request)
        key = request.headers.get("x-openclaw-session-key", "").strip()
        if not key and user:
            key = f"{space}-user:{uuid.uuid5(uuid.NAMESPACE_OID, user)}"
        text = _last_words(messages) if key else _conversation(messages)
        if not text.strip():
            raise bad("The last message must have text")
        key = gateway.live.resolve_key(key or f"{space}:{uuid.uuid4()}", agent)
        turn, id_ = cls(gateway), str(uuid.uuid4())
        try:
            turn.run = await gateway.live.start(
                key, id_, text, owner=True, on_text=turn._pieces.put_nowait
            )
        except ClawkitError as error:
            raise HttpError(409, "conflict", str(error)) from None
        return turn

    @property
    def failure(self) -> str:
        """Why the run failed; empty if it did not."""
        run = self.run
        return "" if run.status == "ok" else run.error or f"the run ended: {run.status}"

    def usage(self, first: str, second: str) -> dict[str, int]:
        """What the run used, under these names, as these APIs count: cached input is input."""
        used = self.run.usage
        kinds = ("input", "cacheRead", "cacheWrite")
        given, written = sum(used.get(kind, 0) for kind in kinds), used.get("output", 0)
        return {first: given, second: written, "total_tokens": given + written}

    async def finish(self) -> None:
        """Wait until the run has succeeded. Raises `HttpError` if it failed."""
        try:
            await self.run.over.wait()
        except asyncio.CancelledError:
            await self._gateway.live.abort(self.run.session, self.run.id)
            raise
        if self.failure:
            raise HttpError(500, "api_error", self.failure)

    async def pieces(self) -> AsyncIterator[str]:
        """The text as it is written, until the run is over. Answers are separate paragraphs."""
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

    def stream(self, chunks: AsyncIterator[bytes]) -> StreamingResponse:
        """An answer of events. A client that leaves stops the run."""

        async def guarded() -> AsyncIterator[bytes]:
            try:
                async for chunk in chunks:
                    yield chunk
                yield b"data: [DONE]\n\n"
            finally:
                if not self.run.over.is_set():
                    await self._gateway.live.abort(self.run.session, self.run.id)

        return StreamingResponse(guarded(), headers=SAFE_HEADERS, media_type="text/event-stream")


def read_text(content: Any) -> str:
    """The text of a message. Raises `HttpError` for anything else, such as images."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise bad("content must be text or a list of parts")
    words = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") not in _TEXTS:
            raise bad("only parts of type text are supported")
        words.append(str(part.get("text", "")))
    return "\n".join(words)


def _system(messages: list[Message]) -> list[str]:
    return [read_text(each.content) for each in messages if each.role in _SYSTEM]


def _last_words(messages: list[Message]) -> str:
    """What is new in a conversation that the gateway keeps."""
    said = [each for each in messages if each.role == "user"]
    return "\n\n".join([*_system(messages), *(read_text(each.content) for each in said[-1:])])


def _conversation(messages: list[Message]) -> str:
    """A whole conversation as one message, for one that the gateway does not keep."""
    said = [each for each in messages if each.role in _ROLES]
    if len(said) == 1:
        return _last_words(messages)
    lines = [f"{_ROLES[each.role]}: {read_text(each.content)}" for each in said]
    return "\n\n".join([*_system(messages), *lines])
