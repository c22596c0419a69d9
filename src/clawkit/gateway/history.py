"""`/sessions/<key>/history`: the messages of a session, for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from clawkit.gateway import wire
from clawkit.gateway.http import HttpError, answer, bad, check_login
from clawkit.gateway.protocol import encode

if TYPE_CHECKING:
    from clawkit.gateway.server import Gateway

PAGE_BYTES = 6 * 1024**2
_AT_ONCE = 20
"""Messages that are read at once: most pages are full long before their limit."""


class HistoryQuery(Struct, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 200
    cursor: Annotated[int, Meta(ge=1, le=2**31)] | None = None
    """Only messages before this number."""


async def read_history(gateway: Gateway, request: Request) -> Response:
    """A page of messages, oldest first; `nextCursor` leads to older ones."""
    await check_login(gateway, request)
    query = _read_query(request)
    key = gateway.live.resolve_key(request.path_params["key"])
    session = gateway.store.find(key)
    if session is None:
        raise HttpError(404, "not_found", f"Session not found: {key[:300]}")
    messages, has_more = _read_page(gateway, session.id, query)
    cursor = str(messages[0]["__openclaw"]["seq"]) if has_more else None
    shown: dict[str, Any] = {"sessionKey": key, "items": messages, "messages": messages}
    return answer(shown | {"hasMore": has_more, "nextCursor": cursor})


def _read_page(
    gateway: Gateway, session: str, query: HistoryQuery
) -> tuple[list[dict[str, Any]], bool]:
    """The latest messages that fit, oldest first, and whether there are older ones."""
    found, left = list[dict[str, Any]](), PAGE_BYTES
    upto = None if query.cursor is None else query.cursor - 1
    while len(found) < query.limit:
        count = min(_AT_ONCE, query.limit - len(found))
        page = gateway.store.page(session, count, upto=upto, tools=True)
        for entry in reversed(page.entries):
            message = wire.message(session, entry)
            left -= len(encode(message))
            if left < 0 and found:
                return found[::-1], True
            found.append(message)
            upto = entry.number - 1
        if page.total - page.newer <= len(page.entries):
            return found[::-1], False
    return found[::-1], True


def _read_query(request: Request) -> HistoryQuery:
    try:
        return msgspec.convert(dict(request.query_params), HistoryQuery, strict=False)
    except ValueError as error:
        raise bad(f"invalid query: {error}") from None
