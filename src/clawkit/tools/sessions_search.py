"""sessions_search: full-text search over the messages of all visible sessions."""

from functools import partial
from typing import Annotated, Any

import msgspec

from clawkit.core.context import Context
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.sessions.protocols import MessageHit, Sessions
from clawkit.sessions.visibility import Sight
from clawkit.tools import _sessions as _s
from clawkit.tools._params import doc

MAX_RESULTS, MAX_BYTES = 25, 64 * 1024


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    query: Annotated[
        str, doc('Words that must all occur in a message; "in quotes" as a phrase', min_length=1)
    ]
    limit: Annotated[int, doc("How many messages to show; 25 at most", ge=1)] = 10


async def execute(params: Params, ctx: Context, sight: Sight = _s.DEFAULT_SIGHT) -> Result:
    view, store = _s.VisibleSessions(ctx, sight), ctx.use(Sessions)
    limit = min(params.limit, MAX_RESULTS)
    from clawkit.core.tasks import in_thread  # asyncio is not needed to describe a tool

    found = await in_thread(store.search, params.query, view.visible, limit)
    rows = [_to_row(hit) for hit in found.hits]
    fitting = _s.count_fitting(rows, _s.room_for(ctx, MAX_BYTES))
    payload: dict[str, Any] = {
        "query": params.query,
        "count": fitting,
        "results": rows[:fitting],
        "hasMore": found.more or fitting < len(rows),
        "limitApplied": limit,
    }
    if fitting < len(rows):
        payload["truncationReason"] = "byte-limit"
    if found.unsearched:
        payload["notIndexedYet"] = found.unsearched
        payload["warning"] = "some sessions are not indexed yet; search again to include them"
    return _s.to_result(payload | view.limits())


def _to_row(hit: MessageHit) -> dict[str, Any]:
    session = hit.session
    row: dict[str, Any] = {
        "sessionKey": session.key,
        "sessionId": session.id,
        "title": session.label or session.title,
        "messageId": str(hit.number),
        "role": hit.role,
        "timestamp": hit.at_ms,
        "snippet": hit.snippet,
    }
    return row | ({"archived": True} if session.archived_ms else {})


TOOL = Tool(
    name="sessions_search",
    label="Search sessions",
    description=(
        "Search what was said in all sessions. Shows the text around each match; "
        "sessions_history shows more."
    ),
    parameters=Params,
    execute=execute,
    effects=_s.reads_sessions,
    aliases={"q": "query", "text": "query", "pattern": "query"},
)
make_tool = partial(_s.with_sight, TOOL)
