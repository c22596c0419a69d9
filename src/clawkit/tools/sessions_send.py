"""sessions_send: send a message to another session."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from clawkit.config.model import Config
from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Tool
from clawkit.errors import NotFoundError, ToolAuthorizationError, ToolInputError
from clawkit.sessions.protocols import Filter, Messenger, SendMode, Sent, Session, Sessions
from clawkit.sessions.visibility import Sight
from clawkit.text import one_line
from clawkit.tools._params import doc
from clawkit.tools._sessions import DEFAULT_SIGHT, NO_AGENT, VisibleSessions, with_sight


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    message: Annotated[str, doc("Message to send", min_length=1)]
    session_key: Annotated[
        str, doc("Session to send to: its key, id or name, 'main' or 'current'")
    ] = ""
    label: Annotated[str, doc("Session to send to, by its label", max_length=512)] = ""
    agent_id: Annotated[
        str, doc("Agent of that session; alone: its main session", max_length=64)
    ] = ""
    timeout_seconds: Annotated[
        Annotated[float, Meta(ge=0)], doc("How long to wait for the answer; 0 does not wait")
    ] = 30
    mode: Annotated[
        SendMode,
        doc(
            "followup: a separate turn; steer: into the current turn; notify: read in its next "
            "turn, starts none; resume: even if archived. Only followup waits"
        ),
    ] = "followup"


async def execute(params: Params, ctx: Context, sight: Sight = DEFAULT_SIGHT) -> Result:
    if not (params.session_key or params.label or params.agent_id):
        raise ToolInputError("sessionKey, label or agentId is required: the session to send to")
    if params.session_key and params.label:
        raise ToolInputError("sessionKey and label cannot be combined; leave one out")
    messenger = ctx.use(Messenger)
    try:
        target = _find(params, VisibleSessions(ctx, sight), ctx, messenger)
        sent = await messenger.send(target, params.message, params.timeout_seconds, params.mode)
    except ToolAuthorizationError as error:
        refused = {"status": "forbidden", "deniedReason": error.reason}
        return Result.error("sessions_send", str(error), **refused)
    return _tell(sent, target)


def _find(params: Params, view: VisibleSessions, ctx: Context, messenger: Messenger) -> Session:
    """The recipient. Raises if it does not exist or may not be seen."""
    agent = params.agent_id.strip().lower()
    if params.label:
        wanted = Filter(label=params.label, agent=agent, main=view.sight.main)
        found = ctx.use(Sessions).listing(view.visible, wanted, 9)
        if len(found) > 1:
            listed = ", ".join(f"{each.id} ({each.key})" for each in found)
            raise ToolInputError(f"label is ambiguous; it matches {listed}; use sessionKey")
        if not found:
            raise NotFoundError(f"there is no session labelled {one_line(params.label, 60)!r}")
        return found[0]
    if params.session_key:
        return view.find(params.session_key, agent)
    return messenger.main_of(agent, view.check)


def _tell(sent: Sent, target: Session) -> Result:
    details: dict[str, Any] = {
        "status": sent.status,
        "runId": sent.id,
        "sessionKey": target.key,
    }
    if sent.status == "queued":
        details |= {"notificationId": sent.id, "durability": "disk", "runStarted": False}
        text = f"The message will be read in the next turn of {target.key}."
    else:
        pending = {"status": "pending" if sent.is_announced else "skipped", "mode": "announce"}
        details["delivery"] = pending
        text = f"Sent to {target.key}, which is working on it."
    if sent.disposition:
        details["targetDisposition"] = sent.disposition
    if sent.status == "ok":
        details["reply"] = sent.reply
        text = sent.reply
    elif sent.status == "no_reply":
        text = f"{target.key} has read it and did not answer."
    elif sent.error:
        details |= {"error": sent.error, "sentBeforeError": True}
        text = f"{target.key}: {sent.error}"
    if sent.note:
        details["note"] = sent.note
        text = f"{text} Note: {sent.note}."
    return Result.text(text, **details)


def effects(_params: Params, ctx: Context) -> tuple[Effect, ...]:
    return (Effect("send", f"session:{ctx.call_id}"),)


TOOL = Tool(
    name="sessions_send",
    label="Send to session",
    description=(
        "Send a message to another session and get its answer. The message is marked as coming "
        "from this session, not from the user."
    ),
    parameters=Params,
    execute=execute,
    effects=effects,
    aliases={
        **dict.fromkeys(("content", "text", "SendMessage"), "message"),
        **dict.fromkeys(("session", "key", "session_id", "sessionId"), "sessionKey"),
        "agent": "agentId",
    },
    hidden=frozenset({"mode"}),
)


def make_tool(config: Config, scope: Scope) -> Tool | str:
    return with_sight(TOOL, config, scope) if scope.delegates else NO_AGENT
