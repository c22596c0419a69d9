"""sessions_history: the messages of a session."""

from functools import partial
from typing import Annotated, Any

import msgspec

from clawkit.core.context import Context
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.errors import NotFoundError, ToolInputError
from clawkit.redact import Redactor
from clawkit.sessions.protocols import MessagePage, Session, Sessions
from clawkit.sessions.visibility import Sight
from clawkit.text import one_line
from clawkit.tools import _sessions as _s
from clawkit.tools._params import doc

MAX_BYTES, MAX_MESSAGES = 81_920, 1_000
TOO_LARGE = "[sessions_history omitted: message too large]"


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    session_key: Annotated[
        str, doc("Session to read: its key, id, name or label, 'main' or 'current'", min_length=1)
    ]
    limit: Annotated[int, doc("How many of the latest messages; at most 1000", ge=1)] = 50
    include_tools: Annotated[bool, doc("Also show the results of tools")] = False
    offset: Annotated[int, doc("How many of the latest to skip: nextOffset", ge=0)] = 0
    message_id: Annotated[str, doc("Show the messages up to the one with this id")] = ""


async def execute(params: Params, ctx: Context, sight: Sight = _s.DEFAULT_SIGHT) -> Result:
    view = _s.VisibleSessions(ctx, sight)
    session = view.find(params.session_key)
    page = _read(params, session, ctx.use(Sessions))
    transcript = _s.TranscriptText(ctx.use(Redactor))
    room = _s.room_for(ctx, MAX_BYTES)
    messages = [_bound(transcript.show(each), room) for each in page.entries]
    # The oldest messages are dropped if not all fit.
    kept = _s.count_fitting(reversed(messages), room)
    dropped = len(messages) - kept
    shown = messages[dropped:]
    end = page.newer + kept
    is_cut = transcript.is_cut or any(each.get("omitted") for each in shown)
    payload: dict[str, Any] = {
        "sessionKey": session.key,
        "sessionId": session.id,
        "messages": shown,
        "truncated": bool(dropped) or is_cut,
        "droppedMessages": dropped,
        "contentTruncated": is_cut,
        "bytes": len(msgspec.json.encode(shown)),
        "offset": page.newer,
        "hasMore": end < page.total,
        "totalMessages": page.total,
    }
    if end < page.total:
        payload["nextOffset"] = end
    return _s.to_result(payload)


def _read(params: Params, session: Session, store: Sessions) -> MessagePage:
    limit, tools = min(params.limit, MAX_MESSAGES), params.include_tools
    if not session.id:
        # The session of this run is not stored.
        return MessagePage((), 0)
    if not params.message_id:
        return store.page(session.id, limit, params.offset, tools=tools)
    if params.offset:
        raise ToolInputError("offset and messageId cannot be combined; leave one out")
    wanted = params.message_id.strip()
    number = int(wanted) if wanted.isdecimal() and len(wanted) <= 10 else -1
    page = store.page(session.id, limit, upto=number, tools=tools)
    if not page.entries or page.entries[-1].number != number:
        hint = "" if tools else "; results of tools need includeTools"
        what = f"the session {session.name!r} has no message {one_line(wanted, 40)!r}"
        raise NotFoundError(f"{what} to show{hint}")
    return page


def _bound(message: dict[str, Any], room: int) -> dict[str, Any]:
    if _s.size_of(message) <= room:
        return message
    kept = {name: message[name] for name in ("id", "role", "timestamp") if name in message}
    return kept | {"content": [{"type": "text", "text": TOO_LARGE}], "omitted": True}


TOOL = Tool(
    name="sessions_history",
    label="Session history",
    description=(
        "Read the messages of a session, the latest ones. Long texts are cut, and images and "
        "thinking left out."
    ),
    parameters=Params,
    execute=execute,
    effects=_s.reads_sessions,
    aliases=dict.fromkeys(("session", "key", "session_id", "label"), "sessionKey"),
    hidden=frozenset(("offset", "messageId")),
    unsupported={"pending_before": "pending messages are not listed"},
)
make_tool = partial(_s.with_sight, TOOL)
