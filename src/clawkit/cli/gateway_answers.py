"""The fields of a gateway's answers and events that commands use. They are validated once, on
arrival: the gateway may have another version, or another program may listen on its port."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from clawkit.agent.events import Event, TurnEnded
from clawkit.content import Assistant, Image, User
from clawkit.core.approval import Question
from clawkit.ui.paint import PaintedRow


class TurnAccepted(TypedDict):
    key: str
    name: str
    workspace: str
    number: int
    warnings: list[str]
    blind: str


class TurnOver(TypedDict):
    ended: TurnEnded


class ChatState(TypedDict):
    facts: NotRequired[str]
    waiting: list[str]
    working: list[str]
    busy: bool


class ChatOpened(TypedDict):
    key: str
    name: str
    workspace: str
    warnings: list[str]
    number: int
    total: int
    history: list[User | Assistant]
    state: ChatState
    rows: list[PaintedRow]
    words: dict[str, list[tuple[str, str]]]


class LineDone(TypedDict, total=False):
    state: ChatState
    over: bool
    showThinking: bool
    session: str
    ended: TurnEnded


class TakenBack(TypedDict):
    text: str
    state: ChatState


class ToldEvent(TypedDict):
    """An event of the session with that key: from its agent, or other output of a chat."""

    key: str
    run: str
    number: NotRequired[int]
    event: NotRequired[Event]
    rows: NotRequired[list[PaintedRow]]
    output: NotRequired[list[PaintedRow]]
    typed: NotRequired[str]
    call: NotRequired[dict[str, Any]]
    image: NotRequired[Image]
    interrupted: NotRequired[bool]
    state: NotRequired[ChatState]


class AskedApproval(TypedDict):
    id: str
    clawkit: Question


class ResolvedApproval(TypedDict):
    id: str


class StoppedRuns(TypedDict):
    aborted: bool


class CommandDone(TypedDict):
    stdout: str
    stderr: str
    code: int


class ReleasedSession(TypedDict):
    released: bool


class ConfigIssue(TypedDict):
    path: str
    message: str


class ConfigState(TypedDict, total=False):
    issues: list[ConfigIssue]
    restartNeeded: list[str]


class SessionCount(TypedDict):
    count: int


class AgentHealth(TypedDict):
    agentId: str
    sessions: SessionCount


class HealthAnswer(TypedDict):
    agents: list[AgentHealth]
    durationMs: float
    config: NotRequired[ConfigState]


class WaitingDevice(TypedDict):
    requestId: str
    role: str
    displayName: NotRequired[str]
    clientId: NotRequired[str]
    remoteIp: NotRequired[str]
    scopes: NotRequired[list[str]]


class WaitingDevices(TypedDict):
    pending: list[WaitingDevice]


class _Server(TypedDict):
    version: str


class _Login(TypedDict):
    method: str


class _HelloHealth(TypedDict):
    config: NotRequired[ConfigState]


class _Snapshot(TypedDict):
    health: _HelloHealth
    uptimeMs: float
    presence: list[dict[str, Any]]


class HelloAnswer(TypedDict):
    server: _Server
    auth: _Login
    snapshot: _Snapshot


class LoginCode(TypedDict):
    path: str
    code: str
    expiresAtMs: int
