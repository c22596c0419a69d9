"""The gateway itself: the state that its clients share, and the ASGI application around it."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from clawkit.agent_session import ConfigInput
from clawkit.approvals.broker import PendingStore
from clawkit.config.load import Loaded
from clawkit.config.paths import home, waiting_file
from clawkit.config.secrets import resolve
from clawkit.config.sections.gateway import GatewaySettings as Settings
from clawkit.content import Source, Text, User
from clawkit.core.approval import Approver
from clawkit.errors import ConfigError, Issue, ToolError
from clawkit.gateway import origin, protocol
from clawkit.gateway.agent_pool import LiveSessions
from clawkit.gateway.approvals import ApprovalDesk
from clawkit.gateway.auth import AuthPolicy, Mode
from clawkit.gateway.connection import GatewayConnection
from clawkit.gateway.devices import Devices, load_key
from clawkit.gateway.formats import SessionList
from clawkit.gateway.http import NOT_HERE, denied_tools, routes
from clawkit.gateway.hub import EVENTS, Hub
from clawkit.gateway.job_runner import JobRunner
from clawkit.gateway.limits import CallLimiter, LoginLimiter, PendingLogins
from clawkit.gateway.log import GatewayLog
from clawkit.gateway.login_codes import LoginCodes
from clawkit.gateway.methods import METHODS
from clawkit.gateway.methods.status import health
from clawkit.gateway.metrics import Metrics
from clawkit.gateway.nodes import Nodes
from clawkit.gateway.origin import (
    OriginPolicy,
    RequestOrigin,
    check_policy,
    locate_request,
    own_names,
)
from clawkit.gateway.protocol import TICK_MS, now_ms
from clawkit.gateway.reload import ConfigWatch
from clawkit.gateway.run_store import GatewayRunStore
from clawkit.gateway.scopes import READ
from clawkit.gateway.session_events import GatewayRun
from clawkit.gateway.tool_control import SessionControl
from clawkit.gateway.webhooks import WebHooks, hook_secrets
from clawkit.runtime import Toolkit, load_config, make_redactor
from clawkit.services import Services
from clawkit.sessions.protocols import locate_store
from clawkit.sessions.store import SessionStore
from clawkit.store import private_dir, write_atomic
from clawkit.version import __version__

if TYPE_CHECKING:
    from clawkit.gateway.mcp import McpEndpoint
    from clawkit.gateway.methods.chats import ChatHost
    from clawkit.models.protocols import Model

SWEEP_S, GOODBYE_S = 30.0, 2.5
RESTART_DELAY_S = 2.0
COOLDOWN_S = 30.0
"""Minimum interval between requested restarts."""
MODEL_WRITES = 3
"""Maximum changes of the gateway by models per minute."""
MIN_SECRET = 8
log = logging.getLogger(__name__)


def read_secret(loaded: Loaded) -> tuple[Mode, str]:
    """The login method and its secret: the configured one, `CLAWKIT_GATEWAY_TOKEN` or
    `CLAWKIT_GATEWAY_PASSWORD`, or a token that is generated once. Raises `ConfigError`."""
    auth = (loaded.config.gateway or Settings()).auth
    env = {**os.environ, **loaded.env}
    if auth.mode == "none":
        return "none", ""
    is_password = auth.mode == "password"
    given = auth.password if is_password else auth.token
    found = resolve(given, loaded.config, env) if given else ""
    found = found or env.get(f"CLAWKIT_GATEWAY_{'PASSWORD' if is_password else 'TOKEN'}", "")
    if not found and is_password:
        raise ConfigError([Issue("gateway.auth.password", "is empty", hint="Set it")])
    return auth.mode, found or _generated_token()


def _generated_token() -> str:
    path = os.path.join(home(os.environ), "gateway", "token")
    with suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
        if found := file.read(200).strip():
            return found
    private_dir(os.path.dirname(path))
    token = secrets.token_urlsafe(32)
    write_atomic(path, f"{token}\n".encode())
    return token


def _restart_mark() -> str:
    return os.path.join(home(os.environ), "gateway", "restarted")


def _cooldown_s() -> float:
    """Seconds until the next restart is allowed, robust against clock changes."""
    try:
        last = os.stat(_restart_mark()).st_mtime
    except OSError:  # no restart yet
        return 0.0
    return min(COOLDOWN_S, max(0.0, last + COOLDOWN_S - time.time()))


def _origin_policy(settings: Settings) -> OriginPolicy:
    """The allowed origins of requests. Raises `ConfigError`."""
    login = settings.auth.trusted_proxy if settings.auth.mode == "trusted-proxy" else None
    if login is not None and not settings.trusted_proxies:
        hint = "Set gateway.trustedProxies to the address that the proxy connects from"
        message = "is 'trusted-proxy', but there is no trusted proxy"
        raise ConfigError([Issue("gateway.auth.mode", message, hint=hint)])
    origins = tuple(settings.control_ui.allowed_origins)
    return OriginPolicy(tuple(settings.trusted_proxies), origins, own_names(), login)


class Gateway:
    """One gateway: its clients, sessions, approvals and devices."""

    def __init__(
        self, loaded: Loaded, *, model: Model | None = None, chats: ChatHost | None = None
    ) -> None:
        """`model` replaces the configured one, for tests. Raises `ConfigError`."""
        self.loaded = loaded
        self.settings = settings = loaded.config.gateway or Settings()
        self.chats = chats
        self.preflight: Callable[[Loaded], None] = lambda _loaded: None
        """Raises `ConfigError` for a configuration that a server could not start with."""
        mode, secret = self.check(loaded)
        own = secrets.token_urlsafe(32)
        self.auth = AuthPolicy(mode, secret, settings.nodes.pairing.auto_approve_local, own)
        self.origin = _origin_policy(settings)
        place = os.path.join(home(os.environ), "gateway")
        self.key = load_key(os.path.join(place, "key"))
        self.devices = Devices(os.path.join(place, "devices.sqlite"), self.key)
        self.metrics = Metrics(METHODS.__contains__)
        self.logins = LoginLimiter(settings.auth.rate_limit, self.metrics.lockouts.add)
        self.calls, self.waiting = CallLimiter(), PendingLogins()
        self.codes = LoginCodes()
        self.model_writes = CallLimiter(MODEL_WRITES)
        self.reading_usage = asyncio.Lock()
        """Reading all sessions takes long, so only one request at a time does it."""
        self.boot_id = str(uuid.uuid4())
        self.port = settings.port
        self.hub = Hub(self.boot_id)
        self.nodes = Nodes(self)
        self.redactor = make_redactor(loaded)
        learned = [own, *([secret] if len(secret) >= MIN_SECRET else [])]
        self.redactor.learn(learned)
        self.log = GatewayLog(os.path.join(home(os.environ), "logs"), self.redactor)
        store = locate_store(loaded.config.session.store, os.environ)
        self.store = SessionStore(store, self.redactor.text)
        self.run_store = GatewayRunStore(os.path.join(place, "runs.sqlite"), self.redactor.text)
        self.session_list = SessionList(self, model)
        pending = PendingStore(waiting_file(os.environ))
        self.desk = ApprovalDesk(pending, self)
        approver = chats.wrap(self.desk) if chats is not None else self.desk
        self.live = LiveSessions(self, approver, secrets=learned, model=model)
        self.memories: dict[str, tuple[Loaded, Services]] = {}
        """By agent: services for clients that search its notes, and their configuration."""
        self._started_at = time.monotonic()
        self._tasks: list[asyncio.Task[None]] = []
        self.is_ready = False
        self.on_started: Callable[[], None] = lambda: None
        self.on_restart: Callable[[], None] | None = None
        """Restarts the server; None if another program controls it."""
        self._restart: asyncio.TimerHandle | None = None
        self.watch = ConfigWatch(self)
        self.job_runner = JobRunner(self)
        self.hooks = WebHooks(self)
        self._mcp: McpEndpoint | None = None

    @property
    def mcp(self) -> McpEndpoint:
        """The endpoint for MCP clients."""
        if self._mcp is None:
            from clawkit.gateway.mcp import McpEndpoint

            self._mcp = McpEndpoint(self._open_mcp)
        return self._mcp

    def _open_mcp(self, session: str, workspace: str, approver: Approver | None) -> Toolkit:
        """Open the tools of an MCP client: those that programs can call over HTTP."""
        agent = self.loaded.config.agents.default_id()
        return Toolkit.open(
            self.loaded,
            workspace=workspace or self.live.workspace(agent),
            agent=agent,
            session=session,
            owner=True,
            approver=approver or self.desk,
            redactor=self.redactor,
            withheld=dict.fromkeys(sorted(denied_tools(self.settings)), NOT_HERE),
        )

    def take(self, loaded: Loaded) -> None:
        """Switch to another configuration. Running work keeps the old one."""
        self.loaded = loaded
        self.session_list.forget()
        if self._mcp is not None:
            self._mcp.server.renew()

    def check(self, loaded: Loaded) -> tuple[Mode, str]:
        """Refuse a configuration that cannot be served, or only less safely than it demands;
        returns the login method and its secret. Raises `ConfigError` and `SecretError`."""
        settings = loaded.config.gateway or Settings()
        if settings.auth.mode == "none" and settings.trusted_proxies:
            message = "clients of a proxy could connect, but gateway.auth.mode is 'none'"
            hint = "Set gateway.auth.mode to token or password"
            raise ConfigError([Issue("gateway.trustedProxies", message, hint=hint)])
        mode, secret = read_secret(loaded)
        for name, given in hook_secrets(loaded).items():
            if given and given == secret:  # callers of hooks must not be able to log in
                message = "is also the secret of the gateway"
                raise ConfigError([Issue(f"hooks.{name}", message, hint="Use another one")])
        check_policy(_origin_policy(settings))
        self.preflight(loaded)
        return mode, secret

    def control(self, session: str) -> SessionControl:
        """The control of the gateway for the model of a session."""
        return SessionControl(self, session)

    @property
    def uptime_ms(self) -> int:
        return round((time.monotonic() - self._started_at) * 1000)

    def place_of(self, scope: Mapping[str, Any]) -> RequestOrigin:
        """The origin of a request."""
        place = locate_request(self.origin, scope)
        if self.settings.tls.enabled and scope.get("scheme") not in ("https", "wss"):
            return RequestOrigin(place.address, refused=origin.NO_TLS)
        return place

    def hello(self, client: GatewayConnection, auth: dict[str, Any]) -> dict[str, Any]:
        """The answer to a client that has logged in."""
        agents, session = self.loaded.config.agents, self.loaded.config.session
        default, may_read = agents.default_id(), client.may(READ)
        return {
            "type": "hello-ok",
            "protocol": protocol.PROTOCOL,
            "server": {"version": __version__, "connId": client.id, "bootId": self.boot_id},
            "features": {
                "methods": list(METHODS),
                "events": ["connect.challenge", *EVENTS],
                "capabilities": [],
            },
            "snapshot": {
                "presence": self.hub.presence() if may_read else [],
                "health": health(self, details=may_read),
                "stateVersion": self.hub.state(),
                "uptimeMs": self.uptime_ms,
                "sessionDefaults": {
                    "defaultAgentId": default,
                    "modelConfigured": self.session_list.has_model(default),
                    "ownership": "sole",
                    "selectionRequired": False,
                    "mainKey": session.main_key,
                    "mainSessionKey": f"agent:{default}:{session.main_key}",
                    "scope": session.scope,
                },
            },
            "auth": auth,
            "policy": {
                "maxPayload": protocol.MAX_FRAME,
                "maxBufferedBytes": protocol.MAX_BUFFERED,
                "tickIntervalMs": TICK_MS,
                "attachments": {
                    "maxBytes": protocol.MAX_ATTACHMENT,
                    "maxImageBytes": protocol.MAX_IMAGE,
                },
            },
        }

    def request_restart(
        self, why: str, delay_s: float = RESTART_DELAY_S, session: str = "", note: str = ""
    ) -> dict[str, Any]:
        """Restart after a delay; pending requests share one restart, at the earliest of their
        times. The note is posted in the session after the restart, even if another program restarts
        the gateway."""
        if self.on_restart is None:
            return {"ok": False, "reason": "the program that embeds this gateway must restart it"}
        if session:
            words = Text(f"The gateway was restarted: {why}." + (f"\n{note}" if note else ""))
            source = Source("gateway", titles=(f"The gateway was restarted: {why}.",))
            run = GatewayRun(f"restart-{uuid.uuid4()}", session, owner=True)
            body = self.run_store.pack(User((words,), now_ms(), source, (run.id,)))
            self.run_store.add(run, body)
        loop, is_new = asyncio.get_running_loop(), self._restart is None
        delay_s = max(delay_s, _cooldown_s())
        if self._restart is None or loop.time() + delay_s < self._restart.when():
            if self._restart is not None:
                self._restart.cancel()
            log.info("restarting in %.1f seconds: %s", delay_s, why)
            self._restart = loop.call_later(delay_s, self.on_restart)
        delay_ms = round((self._restart.when() - loop.time()) * 1000)
        return {"ok": True, "coalesced": not is_new, "delayMs": max(0, delay_ms), "reason": why}

    @property
    def is_restarting(self) -> bool:
        return self._restart is not None

    def forget_restart(self) -> None:
        """Cancel any restart: the gateway is stopping."""
        self.on_restart = None
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None

    def mark_restart(self) -> None:
        """Record the time of the restart."""
        write_atomic(_restart_mark(), b"")

    async def start(self) -> None:
        work = (
            *(self._tick(), self._sweep(), self.desk.watch()),
            *(self.job_runner.run(), self.watch.watch()),
        )
        self._tasks = [asyncio.ensure_future(each) for each in work]
        await asyncio.sleep(0)  # now others can see that this process runs jobs
        self.is_ready = True
        log.info("the gateway is ready")
        try:
            self.live.resume()
        except ToolError as error:
            log.error("runs from before the start cannot be resumed: %s", error)
        self.on_started()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            self.hub.broadcast("tick", {"ts": now_ms()}, droppable=True)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            await self.live.sweep()
            if self._mcp is not None:
                await self._mcp.server.sweep()

    async def say_goodbye(self) -> None:
        """Let turns end, notify all clients of the shutdown, and disconnect them."""
        self.is_ready = False
        self.job_runner.scheduler.pause()
        await self.live.drain()
        shown: dict[str, Any] = {"reason": "gateway stopping"}
        if self.is_restarting:
            shown = {"reason": "gateway restarting", "restartExpectedMs": 2_000}
        self.hub.broadcast("shutdown", shown)
        for client in list(self.hub.clients.values()):
            client.close(1012, "service restart")
        with suppress(TimeoutError):
            await asyncio.wait_for(self.hub.empty.wait(), GOODBYE_S)

    async def stop(self) -> None:
        """Notify all clients, stop running work, and close everything."""
        if self.is_ready:
            await self.say_goodbye()
        self.desk.keeps_questions = True
        for task in self._tasks:  # jobs first: they are interrupted and not resumed
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.live.close()
        # Concurrently, because each may wait for its embedding service.
        await asyncio.gather(*(services.close() for _, services in self.memories.values()))
        if self._mcp is not None:
            await self._mcp.server.close()
        self.job_runner.store.close()
        self.devices.close()
        self.desk.store.close()
        self.store.close()
        self.run_store.close()
        if self.is_restarting:
            self.mark_restart()
        log.info("the gateway has stopped")
        self.log.close()

    async def serve(self, socket: WebSocket) -> None:
        """Serve one WebSocket client."""
        place = self.place_of(socket.scope)
        # Foreign pages get no socket: the number of sockets is limited, and a page could use up
        # all.
        if why := place.refused or (origin.BAD_ORIGIN if place.bad_origin else ""):
            log.warning("refused a connection from %s: %s", place.address, why)
            return await socket.close()
        await socket.accept()
        if not self.is_ready:
            return await socket.close(1013, "the gateway is not ready")
        return await GatewayConnection(self, socket, place).serve()


def app(
    config: ConfigInput = None, *, model: Model | None = None, chats: ChatHost | None = None
) -> Starlette:
    """The gateway as an ASGI application, to be served by uvicorn or mounted in another one.

    `config` is a file, a mapping or a loaded configuration; by default the user's file. `chats` is
    for `clawkit chat`. Raises `ConfigError`.
    """
    gateway = Gateway(load_config(config), model=model, chats=chats)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        await gateway.start()
        try:
            yield
        finally:
            await gateway.stop()

    socket = WebSocketRoute("/{path:path}", gateway.serve)
    application = Starlette(routes=[*routes(gateway), socket], lifespan=lifespan)
    application.router.redirect_slashes = False
    application.state.gateway = gateway
    return application
