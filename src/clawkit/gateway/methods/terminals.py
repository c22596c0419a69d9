"""Methods of clawkit's own commands: a turn as `clawkit agent` runs it, with its own events.

The caller chooses a working directory, so all of them need owner rights.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, field

from clawkit.agent.events import (
    AgentEvent,
    AnswerStored,
    Ended,
    MessageAdded,
    ResultStored,
    TurnEnded,
)
from clawkit.agent_session import Agent
from clawkit.config.paths import home
from clawkit.config.sections.shared import Thinking
from clawkit.content import Assistant, Block, Text, ToolResult, User
from clawkit.errors import ClawkitError
from clawkit.gateway import protocol
from clawkit.gateway.home_commands import why_not_here
from clawkit.gateway.hub import send
from clawkit.gateway.methods.method import Method
from clawkit.gateway.methods.runs import GivenAttachment, IdempotencyKey, read_image, started_before
from clawkit.gateway.open_agent import Open
from clawkit.gateway.protocol import Closed, GatewayError, Short, Shows, invalid
from clawkit.gateway.scopes import ADMIN
from clawkit.gateway.session_events import GatewayRun
from clawkit.media.local import LocalMedia
from clawkit.runtime import resolve_workspace
from clawkit.sessions.protocols import Session

if TYPE_CHECKING:
    from clawkit.gateway.connection import GatewayConnection

LOCAL_ONLY = "LOCAL_ONLY"
"""Error code for requests that the command can handle without a gateway."""
COMMAND_S = 60.0
MAX_OUTPUT = 10 * 1024**2
_CHUNK = 1 << 16
FolderPath = Annotated[str, Meta(min_length=1, max_length=4_096)]
MessageNumber = Annotated[int, Meta(ge=0)]
_HOW: dict[str, Ended] = {"ok": "done", "aborted": "aborted", "timeout": "timeout"}


class SessionPlace(Closed, frozen=True):
    """Selects a session by the options of a command."""

    cwd: FolderPath | None = None
    """Default working directory; None for remote clients."""
    workspace: FolderPath | None = None
    """Working directory; overrides the configured one."""
    agent_id: Short | None = None
    session: Short | None = None
    go_on: bool = False
    """Use the last session of the directory."""
    shows: Shows = "all"


class TurnParams(SessionPlace, frozen=True, kw_only=True):
    message: Annotated[str, Meta(min_length=1)]
    idempotency_key: IdempotencyKey
    model: Short | None = None
    thinking: Thinking | None = None
    max_turns: Annotated[int, Meta(ge=1)] | None = None
    max_cost: Annotated[float, Meta(gt=0)] | None = None
    attachments: Annotated[list[GivenAttachment], Meta(max_length=10)] = field(default_factory=list)
    after: MessageNumber | None = None
    """Follow an already started turn, from the message after this one."""


class Release(Closed, frozen=True):
    id: Short


class CommandLine(Closed, frozen=True):
    argv: Annotated[
        list[Annotated[str, Meta(max_length=100_000)]], Meta(min_length=1, max_length=1_000)
    ]


async def _turn(caller: GatewayConnection, params: TurnParams, id_: str) -> Any:
    """Answers twice: when the message is accepted, and when the agent and its sub-agents are
    done."""
    before = await caller.gateway.live.accepted(params.idempotency_key)
    if before is not None or params.after is not None:
        return await _follow(caller, params, before, id_)
    try:
        run, there, session, doubts = await _begin(caller, params)
    except ClawkitError as error:
        raise refused(error) from None

    async def finish() -> dict[str, Any]:
        try:
            return await end_of(run, there.agent)
        finally:
            if _has_limits(params):
                there.limit()

    first = accepted(there.agent, session, params.attachments, doubts)
    caller.send(protocol.answer(id_, first))
    return await asyncio.shield(finish())  # keeps its limits even if the client leaves


async def _follow(
    caller: GatewayConnection, params: TurnParams, run: GatewayRun | None, id_: str
) -> Any:
    """Resume the events of a turn for a client that lost its connection."""
    session = caller.gateway.store.find(run.session) if run is not None else None
    if run is None or session is None:
        raise invalid("the gateway no longer knows this turn")
    await started_before(caller, session.key, run.id)  # by this client, or it is refused
    agent = (await caller.gateway.live.open(session.key, owner=True)).agent
    caller.attach(session.key, params.shows)
    if params.after is None:  # it has received nothing of the turn
        first = accepted(agent, session, params.attachments) | {"number": 0}
        caller.send(protocol.answer(id_, first))
    replay(caller, session, params.after or 0, run.id)
    return await end_of(run, agent)


def replay(caller: GatewayConnection, session: Session, after: int, run_id: str = "") -> None:
    """Send a client the messages stored after a number: all, or those of a run and of following
    turns without a run."""
    run, is_over, is_its = "", True, not run_id
    for each in caller.gateway.store.history(session.id):
        event: AgentEvent | None = None
        match each.message:
            case User(ids=ids) as message:
                event = MessageAdded(message, steering=not is_over and message.source is None)
                if is_over or run_id in ids:
                    run = run_id if run_id in ids else next(iter(ids), "")
                    is_its = not run_id or run == run_id or (is_its and not run)
                is_over = False
            case Assistant() as message:
                event, is_over = AnswerStored(message), not message.calls
            case ToolResult() as message:
                event = ResultStored(message)
        if event is not None and is_its and each.number > after:
            about = {"key": session.key, "run": run, "number": each.number}
            send([caller], "clawkit.event", about | {"event": event})


async def _begin(
    caller: GatewayConnection, params: TurnParams
) -> tuple[GatewayRun, Open, Session, Sequence[str]]:
    """Post the message; the last value are warnings. On failure, leaves no session and no limits
    behind."""
    live, media = caller.gateway.live, LocalMedia()
    said: list[Block] = [Text(params.message)]
    said += [await read_image(media, each) for each in params.attachments]
    session, is_new, doubts = find_session(caller, params)
    async with AsyncExitStack() as undo:
        if is_new:
            undo.push_async_callback(live.discard, session.key)
        there = await live.open(session.key, owner=True)
        if _has_limits(params) and there.is_busy:  # by turns without these limits
            text = "the session is busy: limits can be set when it is idle"
            raise GatewayError("UNAVAILABLE", text, retry_ms=5_000)
        caller.attach(session.key, params.shows)
        with there.in_use():
            run = await live.start(
                session.key,
                params.idempotency_key,
                said,
                owner=True,
                client=caller.name,
                mode="followup",
                max_turns=params.max_turns,
                max_cost=params.max_cost,
                prepare=lambda agent: _prepare(agent, params),
            )
        undo.pop_all()
    return run, there, session, doubts


def accepted(
    agent: Agent, session: Session, attachments: Sequence[object], doubts: Sequence[str] = ()
) -> dict[str, Any]:
    """The first of two answers: the message is accepted."""
    model = agent.conversation.model
    return {
        "status": "accepted",
        "key": session.key,
        "name": session.name,
        "workspace": agent.kit.workspace,
        "number": agent.last_number,
        "warnings": [*doubts, *agent.warnings],
        "blind": str(model.ref) if attachments and not model.facts.images else "",
    }


async def end_of(run: GatewayRun, agent: Agent) -> dict[str, Any]:
    """The second answer: the agent and everything it started are done."""
    await run.over.wait()
    ended = run.ended or TurnEnded(
        _HOW.get(run.status, "error"), error=run.error, text=run.text
    )  # which was over before a restart
    if ended.how == "done" and _has_more(agent):
        await agent.settle()
        ended = agent.turns.last or ended
    return {"ended": msgspec.to_builtins(ended)}


def find_session(
    caller: GatewayConnection, params: SessionPlace
) -> tuple[Session, bool, Sequence[str]]:
    """The session that the options select, whether it is new, and warnings about its agent."""
    gateway = caller.gateway
    config, store = gateway.loaded.config, gateway.store
    agent = config.agents.choose(params.agent_id)
    settings = config.agents.get(agent)
    configured = settings.workspace or config.agents.defaults.workspace
    here = params.workspace or (None if configured else params.cwd or gateway.live.workspace(agent))
    place = resolve_workspace(config, agent, here)
    found = None
    if params.session:
        found = store.find(params.session, agent, is_short=True)
    elif params.go_on:
        found = next(iter(store.recent(agent, place, 1)), None)
        if found is None:
            raise ClawkitError(f"the agent {agent!r} has no session in {place} yet")
    if found is None:
        doubts = filter(None, [config.agents.doubt(agent, store.agents())])
        return store.create(agent, workspace=place, name=params.session), True, list(doubts)
    if found.agent != agent:
        what = f"the session {found.name!r} belongs to the agent {found.agent!r}"
        raise ClawkitError(f"{what}, not to {agent!r}")
    is_elsewhere = os.path.realpath(found.workspace) != os.path.realpath(place)
    if is_elsewhere and (params.cwd or params.workspace):
        there = f"{found.workspace} (to use it there: cd {shlex.quote(found.workspace)})"
        message = f"in the gateway, the session {found.name!r} works in {there}"
        raise invalid(message, {"code": LOCAL_ONLY})
    return found, False, ()


def _has_limits(params: TurnParams) -> bool:
    return params.max_turns is not None or params.max_cost is not None


def _prepare(agent: Agent, params: TurnParams) -> None:
    if params.model:
        agent.use_model(params.model)
    if params.thinking is not None:
        agent.use_thinking(params.thinking)


def _has_more(agent: Agent) -> bool:
    """Whether sub-agents or other sessions still work for this one."""
    delegation, messenger = agent.delegation, agent.messenger
    is_active = delegation is not None and delegation.subagents.active(agent.session_id)
    return bool(is_active or agent.has_results or (messenger and messenger.under_way))


def refused(error: ClawkitError) -> GatewayError:
    """An error with the exit code that the command has without a gateway."""
    return invalid(str(error), {"exitCode": error.exit_code})


async def _release(caller: GatewayConnection, params: Release, _id: str) -> Any:
    """Close an idle session, so that a command on this machine can use it."""
    session = caller.gateway.store.find(params.id)
    is_open = session is not None and await caller.gateway.live.release(session.key)
    return {"released": is_open}


def _environment(file: str) -> dict[str, str]:
    """The environment of a command for this home and configuration."""
    if file and not os.path.isfile(file):
        raise invalid("this gateway has no configuration file for commands to read")
    own = {"CLAWKIT_HOME": home(os.environ), "CLAWKIT_CONFIG": file, "NO_COLOR": "1"}
    return {**os.environ, **own}


async def _command(caller: GatewayConnection, params: CommandLine, _id: str) -> Any:
    """Run one of the commands that only use this home."""
    if why := why_not_here(params.argv):
        raise invalid(why)
    argv = (sys.executable, "-P", "-m", "clawkit", *params.argv)
    env = _environment(caller.gateway.loaded.file or "")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=home(env), env=env, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
    )
    size = 0

    async def read(stream: asyncio.StreamReader | None) -> str:
        """Its whole output; a command with too much output is stopped."""
        nonlocal size
        data = bytearray()
        while more := await stream.read(_CHUNK) if stream is not None else b"":
            size += len(more)
            if size <= MAX_OUTPUT:
                data += more
            elif process.returncode is None:
                process.kill()
        return data.decode(errors="replace")

    try:
        async with asyncio.timeout(COMMAND_S):
            out, err = await asyncio.gather(read(process.stdout), read(process.stderr))
            await process.wait()
    except TimeoutError:
        raise GatewayError("UNAVAILABLE", f"it took longer than {COMMAND_S:g} seconds") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if size > MAX_OUTPUT:
        raise invalid(f"its output is larger than {MAX_OUTPUT} bytes; use --limit")
    return {"stdout": out, "stderr": err, "code": process.returncode}


METHODS = (
    Method("clawkit.turn", ADMIN, TurnParams, _turn),
    Method("clawkit.release", ADMIN, Release, _release),
    Method("clawkit.command", ADMIN, CommandLine, _command),
)
