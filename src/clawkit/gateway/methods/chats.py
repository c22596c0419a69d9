"""Methods of `clawkit chat`: a conversation that several terminals can follow.

Input is interpreted here, so that chat commands work on the agent itself; the terminal only
displays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import msgspec
from msgspec import Meta

from clawkit.agent.events import TurnEnded
from clawkit.agent_session import Agent
from clawkit.config.sections.shared import Thinking
from clawkit.content import Assistant, Block, Message, User
from clawkit.core.approval import Approver
from clawkit.errors import ClawkitError
from clawkit.gateway.hub import send
from clawkit.gateway.methods import terminals
from clawkit.gateway.methods.method import Method
from clawkit.gateway.methods.runs import GivenAttachment, IdempotencyKey, read_image, started_before
from clawkit.gateway.protocol import Closed, Short, answer, invalid
from clawkit.gateway.scopes import ADMIN
from clawkit.gateway.session_events import GatewayRun
from clawkit.media.protocols import Media

if TYPE_CHECKING:
    from clawkit.gateway.connection import GatewayConnection

RECALLED = 20
_COMMAND = "command"
"""Used instead of a digest for a run that is not a message."""
Push = Callable[[dict[str, Any]], None]
Report = Callable[[], None]
Override = Callable[[Mapping[str, Any]], None]
"""Overrides settings of the session while the chat is open."""


class HostedChat(Protocol):
    """A chat with a remote terminal."""

    agent: Agent
    cli_message: str
    """The message from the command line, which the person may not have written."""

    def read(self, text: str) -> tuple[str, bool]: ...
    def is_command(self, text: str) -> bool: ...
    def blocks(self, text: str) -> list[Block]: ...
    async def carry_out(self, text: str) -> dict[str, Any]:
        """Run a command; returns updates for the terminal. Raises `ClawkitError`."""

    def stop(self) -> bool:
        """Stop the command that is running; False if there is none."""

    def state(self) -> dict[str, Any]: ...
    def start(self) -> dict[str, Any]: ...
    def leave(self) -> None: ...


class ChatHost(Protocol):
    """Creates chats; implemented above, because this layer does not know the chat commands."""

    def wrap(self, approver: Approver) -> Approver: ...
    def open(
        self, agent: Agent, push: Push, report: Report, override: Override, *, keyboard: bool
    ) -> HostedChat: ...


class OpenChat(terminals.SessionPlace, frozen=True, kw_only=True):
    model: Short | None = None
    thinking: Thinking | None = None
    keyboard: bool = False
    """Whether a person types; piped input needs approval."""
    after: terminals.MessageNumber | None = None
    """Send the messages after this one: the chat was open before."""


class ChatKey(Closed, frozen=True):
    key: Short


class TypedLine(ChatKey, frozen=True, kw_only=True):
    line: str
    idempotency_key: IdempotencyKey
    later: bool = False
    """Read it when the agent is done, instead of during its work."""
    wait: bool = False
    """Answer a message twice, like `clawkit.turn`."""
    given: bool = False
    """Whether it comes from the command line and was not typed."""
    attachments: Annotated[list[GivenAttachment], Meta(max_length=10)] = msgspec.field(
        default_factory=list
    )


async def _open(caller: GatewayConnection, params: OpenChat, _id: str) -> Any:
    gateway = caller.gateway
    if gateway.chats is None:
        raise invalid("this gateway has no chat")
    try:
        session, is_new, doubts = terminals.find_session(caller, params)
        there = await gateway.live.open(session.key, owner=True)
        if params.model:
            there.agent.use_model(params.model)
        if params.thinking is not None:
            there.agent.use_thinking(params.thinking)
    except ClawkitError as error:
        raise terminals.refused(error) from None
    key = session.key
    caller.leave_chats()  # a terminal has only one chat at a time
    caller.attach(key, params.shows, only=True)
    push = partial(_push, caller, key)
    report = partial(gateway.live.report, key)
    override = partial(gateway.live.set_client_overrides, key, caller)
    chat = gateway.chats.open(there.agent, push, report, override, keyboard=params.keyboard)
    caller.chats[key] = chat
    if is_new:
        caller.on_leave.append(partial(gateway.live.discard_empty, key))
    said = [each for each in there.agent.conversation.history if _is_said(each)]
    if params.after is not None:
        terminals.replay(caller, session, params.after)
    return {
        "key": key,
        "name": session.name,
        "workspace": there.agent.kit.workspace,
        "warnings": [*doubts, *there.agent.warnings],
        "number": there.agent.last_number,
        "total": len(said),
        "history": msgspec.to_builtins(said[-RECALLED:]),
        "state": chat.state(),
        **chat.start(),
    }


def _is_said(message: Message) -> bool:
    """Whether it is for people to read; false for tool calls and their results."""
    return isinstance(message, User) or (
        isinstance(message, Assistant) and bool(message.text.strip())
    )


def _push(caller: GatewayConnection, key: str, payload: Mapping[str, Any]) -> None:
    send([caller], "clawkit.event", {"key": key, "run": "", **payload})


async def _find(caller: GatewayConnection, key: str) -> HostedChat:
    """The chat of this client with its current agent, which may have been closed and reopened."""
    chat = caller.chats.get(key)
    if chat is None:
        raise invalid("open the chat first")
    chat.agent = (await caller.gateway.live.open(key, owner=True)).agent
    return chat


async def _type(caller: GatewayConnection, params: TypedLine, id_: str) -> Any:
    """Run a chat command, or post a message."""
    chat, key, run_id = await _find(caller, params.key), params.key, params.idempotency_key
    text, is_later = chat.read(params.line)
    if params.given:
        chat.cli_message = text
    run = await started_before(caller, key, run_id)
    if run is not None and run.digest == _COMMAND:
        return await _tell_again(caller, chat, run)
    if run is None and chat.is_command(text):
        run = GatewayRun(run_id, key, caller.name, _COMMAND)
        run.decided.set()
        return await _run(caller, chat, text, run)
    media = chat.agent.kit.run.services[Media]
    pictures = [await read_image(media, each) for each in params.attachments]
    run = run or await started_before(caller, key, run_id)  # sent again in the meantime
    if run is None:
        said = [*chat.blocks(text), *pictures]
        mode: Any = "followup" if params.later or is_later or params.wait else None
        run = await caller.gateway.live.start(
            key, run_id, said, owner=True, client=caller.name, mode=mode
        )
    session = caller.gateway.store.find(key)
    if not params.wait or session is None:
        return {"runId": run.id, "state": chat.state()}
    caller.send(answer(id_, terminals.accepted(chat.agent, session, pictures)))
    return await terminals.end_of(run, chat.agent)


async def _run(caller: GatewayConnection, chat: HostedChat, text: str, run: GatewayRun) -> Any:
    live, ended = caller.gateway.live, TurnEnded("aborted")
    live.keep(run)
    try:
        there = await live.open(run.session, owner=True)
        chat.agent = there.agent
        with there.in_use():  # others wait for it, or get a busy error
            shown = await chat.carry_out(text)
        ended = TurnEnded("done", text=msgspec.json.encode(shown).decode())
    except ClawkitError as error:
        ended = TurnEnded("error", error=str(error))
        raise terminals.refused(error) from None
    finally:
        live.conclude(run, ended)
    return shown | {"state": chat.state()}


async def _tell_again(caller: GatewayConnection, chat: HostedChat, run: GatewayRun) -> Any:
    """Report the outcome of a command that was sent before, instead of running it twice."""
    await run.over.wait()
    if run.status != "ok":
        stopped = "the connection broke while the command ran, so it was stopped; type it again"
        raise invalid(run.error or stopped)
    shown: dict[str, Any] = msgspec.json.decode(run.text)
    lost = "It ran, but its output was lost with the connection."
    _push(caller, run.session, {"rows": [(lost, "warning", 0)]})
    return shown | {"state": chat.state()}


async def _stop(caller: GatewayConnection, params: ChatKey, _id: str) -> Any:
    """Stop the command that is running in this chat, else the turns of the session."""
    chat = caller.chats.get(params.key)
    if chat is not None and chat.stop():
        return {"stopped": True}
    return {"stopped": bool(await caller.gateway.live.abort(params.key))}


async def _state(caller: GatewayConnection, params: ChatKey, _id: str) -> Any:
    return (await _find(caller, params.key)).state()


async def _take_back(caller: GatewayConnection, params: ChatKey, _id: str) -> Any:
    """Withdraw the last message that the model has not read."""
    chat = await _find(caller, params.key)
    message = chat.agent.turns.take_back()
    texts: Iterable[Any] = message.content if message is not None else ()
    text = "\n".join(block.text for block in texts if hasattr(block, "text"))
    return {"text": text, "state": chat.state()}


METHODS = (
    Method("clawkit.chat.open", ADMIN, OpenChat, _open),
    Method("clawkit.chat.type", ADMIN, TypedLine, _type),
    Method("clawkit.chat.stop", ADMIN, ChatKey, _stop),
    Method("clawkit.chat.state", ADMIN, ChatKey, _state),
    Method("clawkit.chat.takeBack", ADMIN, ChatKey, _take_back),
)
