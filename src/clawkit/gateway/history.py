"""`/sessions/<key>/history`: the messages of a session, for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from clawkit.gateway import wire
from clawkit.gateway.http import HttpError, answer, check_login
from clawkit.gateway.methods.chat import DEFAULT_LIMIT, MAX_BYTES
from clawkit.gateway.protocol import encode

if TYPE_CHECKING:
    from clawkit.gateway.server import Gateway


class HistoryQuery(Struct, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=1_000)] = DEFAULT_LIMIT
    cursor: Annotated[int, Meta(ge=1, le=2**31)] | None = None
    """Only messages before this number."""


class SessionHistory:
    """The endpoint."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def read(self, request: Request) -> Response:
        """A page of messages, oldest first; `nextCursor` leads to older ones."""
        gateway = self._gateway
        await check_login(gateway, request)
        query = _read_query(request)
        key = gateway.live.resolve_key(request.path_params["key"])
        session = gateway.shelf.find(key)
        if session is None:
            raise HttpError(404, "not_found", f"Session not found: {key[:300]}")
        upto = None if query.cursor is None else query.cursor - 1
        page = gateway.store.page(session.id, query.limit, upto=upto, tools=True)
        left, messages = MAX_BYTES, list[dict[str, Any]]()
        for entry in reversed(page.entries):
            message = wire.message(session.id, entry)
            left -= len(encode(message))
            if left < 0 and messages:
                break
            messages.insert(0, message)
        has_more = page.total - page.newer > len(messages)
        cursor = str(messages[0]["__openclaw"]["seq"]) if has_more and messages else None
        shown: dict[str, Any] = {"sessionKey": key, "items": messages, "messages": messages}
        return answer(shown | {"hasMore": has_more, "nextCursor": cursor})


def _read_query(request: Request) -> HistoryQuery:
    try:
        return msgspec.convert(dict(request.query_params), HistoryQuery, strict=False)
    except ValueError as error:
        raise HttpError(400, "invalid_request_error", f"invalid query: {error}") from None
