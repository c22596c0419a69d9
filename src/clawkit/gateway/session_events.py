"""Reports events of a session to clients: translates agent events to protocol events."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

from clawkit.agent import events
from clawkit.agent.events import Event, TurnEnded, no_listener
from clawkit.call_summary import has_failed
from clawkit.content import User
from clawkit.gateway import formats
from clawkit.gateway.hub import send
from clawkit.gateway.protocol import now_ms
from clawkit.sessions.keys import is_heartbeat, parse_key
from clawkit.sessions.protocols import Session

if TYPE_CHECKING:
    from clawkit.agent_session import Agent
    from clawkit.gateway.server import Gateway

PIECE_S = 0.05
"""Minimum interval of text events, because every one repeats the whole text."""
_COMMANDS = ("exec", "process", "code_execution")
_KNOWN = ("exitCode", "durationMs", "cwd")
"""Reported facts about an ended command, if known."""
_NEVER_PLAIN = (
    *(events.RequestSent, events.RequestFailed, events.ThinkingPiece, events.CallBegun),
    *(events.CallWritten, events.ResultStored),
)
Status = Literal["running", "ok", "error", "aborted", "timeout"]


class RunRecord(Struct, eq=False, forbid_unknown_fields=True):
    """One message to an agent and its outcome: the part of a run that survives a restart."""

    id: str
    session: str
    client: str = ""
    digest: str = ""
    """Digest of the request: an id must not be reused for another one."""
    owner: bool = False
    timeout_s: float | None = None
    max_turns: int | None = None
    max_cost: float | None = None
    started_ms: int = field(default_factory=now_ms)
    ended_ms: int = 0
    status: Status = "running"
    text: str = ""
    error: str = ""
    model: str = ""
    usage: dict[str, Any] = {}


class GatewayRun(RunRecord, eq=False):
    """A run known to this gateway process."""

    message: User | None = None
    """The message of a run from before the last start; None if it must not be resumed."""
    tries: int = 0
    """Number of times it was resumed."""
    turn: asyncio.Future[TurnEnded] | None = None
    """Set when an agent has the message."""
    ended: TurnEnded | None = None
    seq: int = 0
    decided: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it is recorded, or was not accepted."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    stop_reason: str = ""
    """Why it was stopped from outside."""
    on_text: Callable[[str], None] = no_listener
    """Called with each new piece of an answer, and with an empty text at its end."""

    @property
    def agent(self) -> str:
        return parse_key(self.session).agent

    def settle(self, ended: TurnEnded) -> None:
        """Record how it ended."""
        how: dict[str, Status] = {"done": "ok", "aborted": "aborted", "timeout": "timeout"}
        usage, self.ended = ended.usage, ended
        self.status, self.text, self.error = how.get(ended.how, "error"), ended.text, ended.error
        self.usage = {"input": usage.input, "output": usage.output, "total": usage.context}
        self.usage |= {"cacheRead": usage.cache_read, "cacheWrite": usage.cache_write}
        self.ended_ms = now_ms()
        self.decided.set()
        self.over.set()


def is_plain(event: Event) -> bool:
    """Whether plain output shows or needs an event: answers with text, starts and failures of
    calls, news about earlier ones, and starts of sub-agents, which may ask questions."""
    match event:
        case events.ToolEvent(event=happened):
            kind = happened["type"]
            return kind in ("start", "notice") or (kind == "end" and has_failed(happened))
        case events.AnswerStored(message=message):
            return bool(message.text)
        case events.SubagentEvent(event=inner):
            return isinstance(inner, events.TurnStarted)
        case _:
            return not isinstance(event, _NEVER_PLAIN)


class EventReporter:
    """The listener of one open agent. Events without recipients are not created."""

    def __init__(
        self, gateway: Gateway, session: Session, agent: Agent | None = None, run_id: str = ""
    ) -> None:
        """Without an agent, terminals get no events. `run_id` is for turns that no client
        requested; by default each gets a new one."""
        self.run: GatewayRun | None = None
        """The run whose turn is running."""
        self._gateway, self._hub, self._store = gateway, gateway.hub, gateway.store
        self._metrics, self._began_s = gateway.metrics, 0.0
        self._id, self._key, self._name = session.id, session.key, session.agent
        self._agent = agent
        self._text, self._sent, self._answer = "", 0, 0
        self._is_replaced = False
        self._sent_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._run_id = run_id
        self._own: GatewayRun | None = None
        """A turn that no client requested, such as reading the results of sub-agents."""
        self._subagents: dict[str, EventReporter] = {}
        self.on_notice: Callable[[str], None] = lambda _text: None
        """Called with events outside turns, such as the end of a background command."""

    def __call__(self, event: Event) -> None:
        self._feed(event)
        if isinstance(event, events.TextPiece):
            return self._add(event.text)
        if self._timer is not None:
            self._flush()
        match event:
            case events.TurnStarted(model=model):
                self._start(model)
            case events.MessageAdded() | events.ResultStored():
                self._tell_message()
            case events.RequestSent(model=model):
                self._request(model)
            case events.AnswerRestarted():
                self._end_text()
                self._is_replaced = True
            case events.AnswerStored(message=message):
                self._metrics.used(message.model, message.usage)
                self._tell_message()
                self._tell("usage", {"outputTokens": message.usage.output})
                self._end_text()
                self._answer += 1
            case events.ToolEvent(event=details):
                self._tell_tool(details)
                if details.get("type") == "notice":
                    texts = (each.get("text", "") for each in details.get("content", ()))
                    self.on_notice("\n".join(texts))
            case events.TurnEnded():
                self._end(event)
            case _:
                pass
        return None

    @property
    def is_brief(self) -> bool:
        return self._hub.audience(self._key).is_brief

    def _feed(self, event: Event) -> None:
        """Send an unchanged event to the terminals that show it."""
        audience = self._hub.audience(self._key)
        if self._agent is None or not audience.terminals:
            return
        if clients := audience.terminals if is_plain(event) else audience.full:
            # Empty for a turn that no client requested.
            run = self.run.id if self.run is not None and self.run is not self._own else ""
            about = {"key": self._key, "run": run, "number": self._agent.last_number}
            send(clients, "clawkit.event", about | {"event": event})

    def _start(self, model: str) -> None:
        self._own = None
        if self.run is None or self.run.over.is_set():
            self.run = self._own = GatewayRun(self._run_id or str(uuid.uuid4()), self._key)
        self.run.model, self._began_s = model, time.monotonic()
        self._text, self._sent, self._answer = "", 0, 0
        self.changed(reason="agent.run.started")
        self._tell("lifecycle", {"phase": "start", "startedAt": self.run.started_ms})
        self.changed(phase="start", runId=self.run.id)

    def _request(self, model: str) -> None:
        if not self._hub.audience(self._key).near:
            return
        provider, name = formats.split_model(model)
        self._tell("run_status", {"phase": "starting_model"})
        self._chat("status", {"phase": "starting_model"})
        self._tell("lifecycle", {"phase": "model", "provider": provider, "model": name})

    def _end(self, ended: TurnEnded) -> None:
        run = self.run
        if run is None:
            return
        if not self._run_id:  # turns of sub-agents are part of their requester's turn
            self._metrics.turns.add(ended.how)
            self._metrics.turn_s.observe(time.monotonic() - self._began_s)
        stop = "stop" if ended.how == "done" else ended.how
        times = {"startedAt": run.started_ms, "endedAt": now_ms()}
        aborted = ended.how == "aborted"
        if ended.how in ("done", "aborted"):
            self._tell("lifecycle", {"phase": "finishing", "stopReason": stop, "aborted": aborted})
            reply = {"disposition": "visible" if ended.text else "silent", "text": ended.text}
            data = {"phase": "end", **times, "stopReason": stop, "aborted": aborted}
            self._tell("lifecycle", data | {"terminalReply": reply})
        else:
            self._tell("lifecycle", {"phase": "error", **times, "error": ended.error or stop})
        self.changed(phase="end", runId=run.id)
        if self._own is not None:
            self._own.settle(ended)
            self.tell_end(self._own)
        self.run = self._own = None

    def hear_subagent(self, event: Event) -> None:
        """Report events of a sub-agent, at any depth, like those of any other session."""
        self._feed(event)
        if not isinstance(event, events.SubagentEvent):
            return
        if event.run not in self._subagents and (session := self._store.find(event.session)):
            self._subagents[event.run] = EventReporter(self._gateway, session, run_id=event.run)
        if (found := self._subagents.get(event.run)) is not None:
            found(event.event)
        if isinstance(event.event, events.RunEnded):
            self._subagents.pop(event.run, None)

    def runs_of(self, key: str) -> list[str]:
        """Ids of the runs of sub-agents that work in a session."""
        return [id_ for id_, each in self._subagents.items() if each._key == key]

    async def post(self, text: str) -> None:
        """Post a message of the agent to people, outside a turn of theirs."""
        run = GatewayRun(str(uuid.uuid4()), self._key)
        run.settle(TurnEnded("done", text=text))
        self.tell_end(run)

    def tell_end(self, run: GatewayRun) -> None:
        """Report the end of a run to clients that wait for its answer."""
        if run.status == "ok":
            message = formats.text_message(run.text, run.ended_ms)
            self._chat("final", {"message": message, "stopReason": "stop"}, run)
        elif run.status == "aborted":
            self._chat("aborted", {"stopReason": run.stop_reason or "aborted"}, run)
        else:
            kind = "timeout" if run.status == "timeout" else "unknown"
            self._chat("error", {"errorMessage": run.error, "errorKind": kind}, run)
        self.changed(reason="agent.input.settled")

    def changed(self, **what: Any) -> None:
        """Notify followers of the session list that this one has changed."""
        clients = self._hub.wants("sessions.changed", lambda each: each.follows_sessions)
        if clients and (session := self._store.find(self._id)) is not None:
            payload = formats.session_event(self._gateway.session_list.row(session), **what)
            send(clients, "sessions.changed", payload, droppable=True)

    def _tell_message(self) -> None:
        """Report the last stored message."""
        clients = self._hub.audience(self._key).following
        session = self._store.find(self._id) if clients else None
        if session is None or not (entries := self._store.history(self._id, 1)):
            return
        message = formats.message(self._id, entries[-1], self.run.id if self.run else "")
        row = self._gateway.session_list.row(session)
        send(clients, "session.message", formats.message_event(row, message))

    def _add(self, text: str) -> None:
        self._text += text
        if self.run is not None:
            self.run.on_text(text)
        if self._timer is None and self._hub.audience(self._key).near:
            loop = asyncio.get_running_loop()
            wait_s = max(0.0, self._sent_at + PIECE_S - loop.time())
            self._timer = loop.call_later(wait_s, self._flush)

    def _end_text(self) -> None:
        if self._text and self.run is not None:
            self.run.on_text("")
        self._text, self._sent = "", 0

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        run, delta = self.run, self._text[self._sent :]
        if run is None or not delta:
            return
        self._sent, self._sent_at = len(self._text), asyncio.get_running_loop().time()
        item = f"{run.id}:{self._answer + 1}"
        self._tell("assistant", {"text": self._text, "delta": delta, "itemId": item})
        piece = {"deltaText": delta, "message": formats.text_message(self._text, now_ms())}
        self._chat("delta", piece | ({"replace": True} if self._is_replaced else {}))
        self._is_replaced = False

    def _tell_tool(self, event: dict[str, Any]) -> None:
        if not self._hub.audience(self._key).near:
            return None
        name, id_, phase = event["tool"], event["callId"], event["type"]
        call = {"name": name, "toolCallId": id_}
        item = {"itemId": f"tool:{id_}", **call, "kind": "tool"}
        if phase == "start":
            title = {"phase": "start", "title": name, "status": "running", "startedAt": now_ms()}
            self._tell("item", item | title)
            return self._tell_call({"phase": "start", **call, "args": event["params"]})
        details = event.get("details", {})
        result = {"content": event.get("content", []), "details": details}
        if phase == "update":
            status = "running"
            self._tell_call({"phase": "update", **call, "partialResult": result})
            output = "".join(each.get("text", "") for each in result["content"])
            shown = {"phase": "delta", "output": output}
        else:
            failed = bool(event.get("isError"))
            status = "failed" if failed else "completed"
            self._tell_call({"phase": "result", **call, "isError": failed, "result": result})
            self._tell("item", item | {"phase": "end", "status": status, "endedAt": now_ms()})
            known = [key for key in _KNOWN if details.get(key) is not None]
            shown = {"phase": "end", **{key: details[key] for key in known}}
        if name in _COMMANDS:
            about = {"itemId": f"command:{id_}", **call, "status": status}
            self._tell("command_output", about | shown)
        return None

    def tell_approval(self, phase: str, approval: str, call: str) -> None:
        self._tell("lifecycle", {"phase": phase, "approvalId": approval, "toolCallId": call})

    def _tell_call(self, data: dict[str, Any]) -> None:
        """Report calls to clients that asked for them, and to followers of the session."""
        audience = self._hub.audience(self._key)
        if (payload := self._payload("tool", data)) is not None:
            send(audience.calls, "agent", payload, droppable=True)
            send(audience.following, "session.tool", payload, droppable=True)

    def _tell(self, stream: str, data: dict[str, Any]) -> None:
        clients = self._hub.audience(self._key).near
        if clients and (payload := self._payload(stream, data)) is not None:
            send(clients, "agent", payload, droppable=True)

    def _payload(self, stream: str, data: dict[str, Any]) -> dict[str, Any] | None:
        run = self.run
        if run is None:
            return None
        run.seq += 1
        about: dict[str, Any] = {"runId": run.id, "sessionKey": self._key}
        about |= {"agentId": self._name, "stream": stream, "data": data}
        about |= {"sessionId": self._id, "seq": run.seq, "ts": now_ms()}
        return about | {"isHeartbeat": is_heartbeat(self._key)}

    def _chat(self, state: str, more: dict[str, Any], run: GatewayRun | None = None) -> None:
        run = run or self.run
        if run is None:
            return
        if clients := self._hub.audience(self._key).near:
            about = {"runId": run.id, "sessionKey": self._key, "agentId": self._name}
            payload = about | {"seq": run.seq, "state": state} | more
            send(clients, "chat", payload, droppable=state in ("status", "delta"))
