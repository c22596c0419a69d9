"""What the methods that start a run have in common."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta

from clawkit.agent_session import Agent
from clawkit.config.sections.shared import Thinking
from clawkit.content import Block, Image, Text
from clawkit.errors import ToolInputError
from clawkit.gateway.live import RESETS
from clawkit.gateway.methods.method import Caller, OfAgent
from clawkit.gateway.narrator import GatewayRun
from clawkit.gateway.protocol import (
    MAX_ATTACHMENT,
    MAX_IMAGE,
    Closed,
    GatewayError,
    Short,
    invalid,
    missing_scope,
)
from clawkit.gateway.scopes import ADMIN
from clawkit.media.protocols import Media
from clawkit.sessions.lanes import Mode

IdempotencyKey = Annotated[str, Meta(min_length=1, max_length=256)]
_MAX_SIDE = 1200
_MAX_PICTURE = 5 * 1024 * 1024


class GivenAttachment(Closed, frozen=True):
    content: str
    mime_type: Short = ""
    file_name: Short = ""
    type: Short = ""


class RunMessage(OfAgent, frozen=True, kw_only=True):
    """What all methods that start a run have."""

    message: str
    idempotency_key: IdempotencyKey
    deliver: bool = False
    thinking: Thinking | None = None


async def accept(
    caller: Caller,
    key: str,
    said: RunMessage,
    timeout_s: float = 0,
    *,
    mode: Mode | None = None,
    model: str | None = None,
    attachments: Sequence[GivenAttachment] = (),
) -> dict[str, Any]:
    """Start a run, or say what became of it if it was started before."""
    if said.deliver:
        raise invalid("deliver: clawkit has no channels to deliver answers to; leave it out")
    live, run_id, is_owner = caller.gateway.live, said.idempotency_key, caller.may(ADMIN)
    digest = _digest(said.message, attachments)  # at once: nothing may overtake it
    if (run := await started_before(caller, key, run_id, digest)) is not None:
        return _became(run)
    if said.message.strip() in RESETS and not is_owner:
        raise missing_scope(ADMIN)
    words: str | list[Block] = said.message

    def prepare(agent: Agent) -> None:
        if said.thinking is not None:
            agent.use_thinking(said.thinking)
        if model:
            agent.use_model(model)

    if attachments:
        media = (await live.open(key, owner=is_owner)).agent.kit.run.services[Media]
        words = [Text(said.message), *[await read_image(media, each) for each in attachments]]
        if (run := await started_before(caller, key, run_id, digest)) is not None:
            return _became(run)  # sent again in the meantime
    run = await live.start(
        key,
        run_id,
        words,
        owner=is_owner,
        client=caller.name,
        digest=digest,
        mode=mode,
        timeout_s=timeout_s or None,
        prepare=prepare,
    )
    return {"runId": run.id, "status": "started"}


async def started_before(
    caller: Caller, key: str, run_id: str, digest: str | None = None
) -> GatewayRun | None:
    """The run that was started with this idempotency key. Raises `GatewayError` if that was in
    another session, by another client, or for something else."""
    run = await caller.gateway.live.accepted(run_id)
    if run is not None and run.session != key:
        raise invalid("idempotencyKey was already used in another session")
    if run is not None and (run.client != caller.name or digest not in (None, run.digest)):
        raise invalid("idempotencyKey was already used by another client or for another message")
    return run


def _digest(message: str, attachments: Sequence[GivenAttachment]) -> str:
    digest = hashlib.sha256(message.encode("utf-8", "surrogatepass"))
    for each in attachments:
        digest.update(f"\0{len(each.content)}\0".encode())
        digest.update(each.content.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _became(run: GatewayRun) -> dict[str, Any]:
    return {"runId": run.id, "status": run.status if run.over.is_set() else "in_flight"}


async def stop(caller: Caller, key: str, run_id: str | None) -> dict[str, Any]:
    """Stop the runs of a session, or one of them."""
    stopped = await caller.gateway.live.abort(key, run_id)
    return {"ok": True, "aborted": bool(stopped), "runIds": stopped}


async def read_image(media: Any, given: GivenAttachment) -> Image:
    name = given.file_name[:80] or "attachment"
    if len(given.content) > MAX_ATTACHMENT * 4 // 3 + 4:
        raise invalid(f"{name}: larger than {MAX_ATTACHMENT} bytes")
    try:
        data = base64.b64decode(given.content.partition(",")[2] or given.content, validate=True)
    except ValueError:
        raise invalid(f"{name}: not base64") from None
    if len(data) > MAX_IMAGE:
        raise invalid(f"{name}: larger than {MAX_IMAGE} bytes")
    try:
        picture = await media.picture(data, max_side=_MAX_SIDE, max_bytes=_MAX_PICTURE)
    except ToolInputError as error:
        raise invalid(f"{name}: only images can be attached: {error}") from None
    return Image(base64.b64encode(picture.data).decode(), picture.mime_type)


def outcome(run: GatewayRun, session_id: str) -> dict[str, Any]:
    """The final answer to the method `agent`. Raises `GatewayError` for a run that failed."""
    provider, _, model = run.model.partition("/")
    if run.status in ("error", "timeout"):
        raise GatewayError("UNAVAILABLE", run.error or "the run failed", {"runId": run.id})
    return {
        "runId": run.id,
        "status": run.status if run.status != "aborted" else "error",
        "summary": "completed" if run.status == "ok" else run.status,
        "result": {
            "payloads": [{"text": run.text, "mediaUrl": None}] if run.text else [],
            "meta": {
                "durationMs": run.ended_ms - run.started_ms,
                "aborted": run.status == "aborted",
                "agentMeta": {
                    "sessionId": session_id,
                    "provider": provider,
                    "model": model,
                    "usage": run.usage,
                },
            },
        },
    }
