"""sessions_list: the sessions that the run may see, most recently used first."""

import os
import time
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

import msgspec

from clawkit.content import Assistant, Text, User
from clawkit.core.context import Context
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.redact import Redactor
from clawkit.sessions.keys import INTERNAL, Kind, parse_key
from clawkit.sessions.protocols import Filter, Relative, Session, Sessions
from clawkit.sessions.visibility import Sight
from clawkit.text import one_line
from clawkit.tools import _sessions as _s
from clawkit.tools._params import doc

MAX_ROWS, MAX_MESSAGES, MAX_BYTES = 200, 20, 64 * 1024
MAX_CHILDREN = 20
_PREVIEW, _LOOK_BACK = 200, 4


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    kinds: Annotated[list[Kind], doc("Only sessions of these kinds")] = []
    limit: Annotated[int, doc("How many to list; 200 at most", ge=1)] = 100
    active_minutes: Annotated[
        Annotated[int, msgspec.Meta(ge=1)] | None, doc("Only sessions used in the last N minutes")
    ] = None
    message_limit: Annotated[
        int, doc("Also show the last N messages of each, without tool results; 20 at most", ge=0)
    ] = 0
    offset: Annotated[int, doc("How many to skip, to continue a list: nextOffset", ge=0)] = 0
    search: Annotated[str, doc("Only those with this text in key, label or title")] = ""
    label: Annotated[str, doc("Only those with exactly this label", max_length=512)] = ""
    agent_id: Annotated[str, doc("Only those of this agent", max_length=64)] = ""
    archived: Annotated[
        bool | Literal["all"], doc("Archived ones instead of the others, or 'all'")
    ] = False
    include_derived_titles: Annotated[bool, doc("Also show the title of each")] = False
    include_last_message: Annotated[bool, doc("Also show the last message of each")] = False
    exclude_subagents: Annotated[bool, doc("Leave out sessions of sub-agents")] = False
    active_only: Annotated[bool, doc("Only sessions that a process is working in")] = False
    workspace_dir: Annotated[str, doc("Only those that work in this directory")] = ""


async def execute(params: Params, ctx: Context, sight: Sight = _s.DEFAULT_SIGHT) -> Result:
    view, store = _s.VisibleSessions(ctx, sight), ctx.use(Sessions)
    limit = min(params.limit, MAX_ROWS)
    page = store.listing(
        view.visible, _filter(params, sight.main, ctx.workspace), limit + 1, params.offset
    )
    shown = page[:limit]
    relatives = store.relatives(shown, view.visible)
    transcript = _s.TranscriptText(ctx.use(Redactor))
    rows = [
        _to_row(each, sight.main, params, store, transcript) | _family(each, relatives)
        for each in shown
    ]
    room = _s.room_for(ctx, MAX_BYTES)
    # A first row that is too large by itself loses its oldest messages.
    while rows and rows[0].get("messages") and _s.size_of(rows[0]) > room:
        rows[0]["messages"].pop(0)
        rows[0]["messagesOmitted"] = rows[0].get("messagesOmitted", 0) + 1
    fitting = _s.count_fitting(rows, room)
    more = len(page) > fitting
    payload: dict[str, Any] = {"count": fitting, "sessions": rows[:fitting], "hasMore": more}
    payload["limitApplied"] = limit
    if more:
        payload["nextOffset"] = params.offset + fitting
    if fitting < len(rows):
        payload["truncationReason"] = "byte-limit"
    return _s.to_result(payload | view.limits())


def _filter(params: Params, main: str, current: str) -> Filter:
    minutes, place = params.active_minutes, params.workspace_dir
    workspace = os.path.abspath(os.path.join(current, os.path.expanduser(place))) if place else ""
    return Filter(
        kinds=tuple(params.kinds),
        since_ms=0 if minutes is None else round((time.time() - 60 * minutes) * 1000),
        label=params.label,
        agent=params.agent_id.strip(),
        text=params.search.strip(),
        archived=None if params.archived == "all" else params.archived,
        sub_agents=not params.exclude_subagents,
        in_use=params.active_only,
        workspace=workspace,
        main=main,
    )


def _family(session: Session, relatives: Sequence[Relative]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for each in relatives:
        if each.id == session.parent:
            facts["parentSessionKey"] = each.key
    children = [each.key for each in relatives if each.parent == session.id]
    if children:
        facts["childSessions"] = children[:MAX_CHILDREN]
    if len(children) > MAX_CHILDREN:
        facts["childSessionsOmitted"] = len(children) - MAX_CHILDREN
    return facts


def _to_row(
    session: Session, main: str, params: Params, store: Sessions, transcript: _s.TranscriptText
) -> dict[str, Any]:
    key = parse_key(session.key, main)
    row: dict[str, Any] = {
        "key": session.key,
        "sessionId": session.id,
        "agentId": session.agent,
        "kind": key.kind,
        "channel": "internal" if key.kind in INTERNAL else key.channel or "unknown",
        "displayName": session.label or session.name,
        "updatedAt": session.updated_ms,
        "stateVersion": session.version,
        "model": session.model_override or session.model or None,
        "contextTokens": session.context_tokens,
        "totalTokens": session.usage.context,
    }
    row |= {"label": session.label} if session.label else {}
    row |= {"archived": True} if session.archived_ms else {}
    row |= {"derivedTitle": session.title} if params.include_derived_titles else {}
    if params.include_last_message:
        row["lastMessagePreview"] = _preview(session, store, transcript)
    if count := min(params.message_limit, MAX_MESSAGES):
        entries = store.page(session.id, count).entries
        row["messages"] = [transcript.show(each) for each in entries]
    return row


def _preview(session: Session, store: Sessions, transcript: _s.TranscriptText) -> str | None:
    """The last text of the session; None if there are only tool calls."""
    for entry in reversed(store.page(session.id, _LOOK_BACK).entries):
        if isinstance(entry.message, (User, Assistant)):
            parts = entry.message.content
            text = " ".join(part.text for part in parts if isinstance(part, Text))
            if text.strip():
                return one_line(transcript.cut(text), _PREVIEW)
    return None


TOOL = Tool(
    name="sessions_list",
    label="List sessions",
    description=(
        "List sessions, the last used first: key, agent, kind, model, tokens, label. "
        "Read one with sessions_history."
    ),
    parameters=Params,
    execute=execute,
    effects=_s.reads_sessions,
    hidden=frozenset(
        (
            *("offset", "search", "label", "agentId", "archived", "includeDerivedTitles"),
            *("includeLastMessage", "excludeSubagents", "activeOnly", "workspaceDir"),
        )
    ),
    unsupported={
        **dict.fromkeys(("relationship", "owner_id", "creator_id"), "sessions have no owners"),
        **dict.fromkeys(("project_id", "group"), "sessions do not belong to projects or groups"),
        "pinned": "sessions cannot be pinned",
    },
)
make_tool = partial(_s.with_sight, TOOL)
