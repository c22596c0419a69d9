"""The gateway itself: what its clients share, and the ASGI application around it."""

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
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from clawkit.agent_session import ConfigInput
from clawkit.approvals.broker import PendingStore, StoredQuestion
from clawkit.config.load import Loaded, load
from clawkit.config.paths import home, waiting_file
from clawkit.config.secrets import resolve
from clawkit.config.sections.gateway import GatewaySettings as Settings
from clawkit.errors import ConfigError, Issue, SecretError, ToolError
from clawkit.gateway.approvals import ApprovalDesk
from clawkit.gateway.auth import AuthPolicy, Mode
from clawkit.gateway.connection import GatewayConnection
from clawkit.gateway.devices import Devices, load_key
from clawkit.gateway.http import routes
from clawkit.gateway.hub import EVENTS, Hub
from clawkit.gateway.limits import CallLimiter, LoginLimiter, PendingLogins
from clawkit.gateway.live import LiveSessions
from clawkit.gateway.log import GatewayLog
from clawkit.gateway.methods import METHODS
from clawkit.gateway.methods.status import health
from clawkit.gateway.metrics import Metrics
from clawkit.gateway.nodes import Nodes
from clawkit.gateway.origin import (
    BAD_ORIGIN,
    NO_TLS,
    OriginPolicy,
    Place,
    ProxyLogin,
    check_policy,
    is_within,
    locate,
    own_names,
)
from clawkit.gateway.protocol import (
    MAX_ATTACHMENT,
    MAX_BUFFERED,
    MAX_FRAME,
    MAX_IMAGE,
    PROTOCOL,
    TICK_MS,
    now_ms,
)
from clawkit.gateway.scopes import READ
from clawkit.gateway.shelf import Shelf
from clawkit.runtime import load_config, make_redactor
from clawkit.services import known_secrets
from clawkit.sessions.protocols import locate_store
from clawkit.sessions.store import SessionStore
from clawkit.store import private_dir, write_atomic
from clawkit.version import __version__

if TYPE_CHECKING:
    from clawkit.models.protocols import Model

SWEEP_S, GOODBYE_S = 30.0, 2.5
MIN_SECRET = 8
log = logging.getLogger(__name__)


def token_file() -> str:
    """Where the generated token is."""
    return os.path.join(home(os.environ), "gateway", "token")


def read_secret(loaded: Loaded, *, generate: bool = False) -> tuple[Mode, str]:
    """How clients log in, and the secret: the configured one, `CLAWKIT_GATEWAY_TOKEN` or
    `CLAWKIT_GATEWAY_PASSWORD`, or the generated token, which `generate` makes if there is none.
    Raises `ConfigError`."""
    auth = (loaded.config.gateway or Settings()).auth
    env = {**os.environ, **loaded.env}
    if auth.mode == "none":
        return "none", ""
    is_password = auth.mode == "password"
    given = auth.password if is_password else auth.token
    found = resolve(given, loaded.config, env) if given else ""
    found = found or env.get(f"CLAWKIT_GATEWAY_{'PASSWORD' if is_password else 'TOKEN'}", "")
    if not found and not is_password:
        found = _generated_token(generate=generate)
    if not found and generate:
        raise ConfigError([Issue("gateway.auth.password", "is empty", hint="Set it")])
    return auth.mode, found


def _generated_token(*, generate: bool) -> str:
    path = token_file()
    with suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
        if found := file.read(200).strip():
            return found
    if not generate:
        return ""
    private_dir(os.path.dirname(path))
    token = secrets.token_urlsafe(32)
    write_atomic(path, f"{token}\n".encode())
    return token


def proxy_login(settings: Settings) -> ProxyLogin | None:
    """How proxies name users, in the mode trusted-proxy. Raises `ConfigError`."""
    if settings.auth.mode != "trusted-proxy":
        return None
    if not settings.trusted_proxies:
        hint = "Set gateway.trustedProxies to the address that the proxy connects from"
        message = "is 'trusted-proxy', and there is no trusted proxy"
        raise ConfigError([Issue("gateway.auth.mode", message, hint=hint)])
    given = settings.auth.trusted_proxy
    return ProxyLogin(
        (given.user_header or "").lower(),
        tuple(each.lower() for each in given.required_headers),
        None if given.allow_users is None else tuple(given.allow_users),
        given.allow_loopback,
    )


class Gateway:
    """One gateway: its clients, sessions, approvals and devices."""

    def __init__(self, loaded: Loaded, *, model: Model | None = None) -> None:
        """`model` replaces the configured one, for tests. Raises `ConfigError`."""
        self.loaded = loaded
        settings = loaded.config.gateway or Settings()
        self._check(settings)
        self.settings = settings
        mode, secret = read_secret(loaded, generate=True)
        self._check_hooks(secret)
        self.auth = AuthPolicy(mode, secret, settings.nodes.pairing.auto_approve_local)
        self.origin = OriginPolicy(
            tuple(settings.trusted_proxies),
            tuple(settings.control_ui.allowed_origins),
            own_names(),
            proxy_login(settings),
        )
        check_policy(self.origin)
        place = os.path.join(home(os.environ), "gateway")
        self.key = load_key(os.path.join(place, "key"))
        self.devices = Devices(os.path.join(place, "devices.sqlite"), self.key)
        self.metrics = Metrics(METHODS.__contains__)
        limit = settings.auth.rate_limit
        self.logins = LoginLimiter(
            limit.max_attempts,
            limit.window_ms / 1000,
            limit.lockout_ms / 1000,
            exempt_loopback=limit.exempt_loopback,
            on_lockout=self.metrics.lockouts.add,
        )
        self.calls, self.waiting = CallLimiter(), PendingLogins()
        self.boot_id = str(uuid.uuid4())
        self.port = settings.port
        self.hub = Hub(self.boot_id)
        self.nodes = Nodes(self)
        self.redactor = make_redactor(loaded)
        self.redactor.learn([secret] if len(secret) >= MIN_SECRET else [])
        self.log = GatewayLog(os.path.join(home(os.environ), "logs"), self.redactor)
        store = locate_store(loaded.config.session.store, os.environ)
        self.store = SessionStore(store, self.redactor.text)
        self.shelf = Shelf(self, model)
        pending = PendingStore(waiting_file(os.environ))
        self.desk = ApprovalDesk(pending, self.hub, self._note_question)
        self.live = LiveSessions(
            lambda: self.loaded,
            self.store,
            self.hub,
            self.desk,
            self.shelf.row,
            self.metrics,
            model=model,
        )
        self._started_at = time.monotonic()
        self._tasks: list[asyncio.Task[None]] = []
        self.is_ready = False
        self.on_started: Callable[[], None] = lambda: None

    def _check(self, settings: Settings) -> None:
        """Refuse what would be served less safely than it says."""
        if settings.auth.mode == "none" and settings.trusted_proxies:
            message = "clients of a proxy could connect, and gateway.auth.mode is 'none'"
            hint = "Set gateway.auth.mode to token or password"
            raise ConfigError([Issue("gateway.trustedProxies", message, hint=hint)])

    def _check_hooks(self, secret: str) -> None:
        """Who may call hooks must not be able to log in."""
        hooks, env = self.loaded.config.hooks, {**os.environ, **self.loaded.env}
        given = hooks.token if hooks is not None else None
        token = ""
        with suppress(SecretError):  # one that is not available lets no one in
            token = resolve(given, self.loaded.config, env) if given else ""
        if token and token == secret:
            message = "is the secret of the gateway, too"
            raise ConfigError([Issue("hooks.token", message, hint="Use another one")])

    @property
    def uptime_ms(self) -> int:
        return round((time.monotonic() - self._started_at) * 1000)

    def is_auto_network(self, address: str) -> bool:
        return is_within(address, self.settings.nodes.pairing.auto_approve_cidrs)

    def place_of(self, scope: Mapping[str, Any]) -> Place:
        """Where a request comes from."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        peer = scope.get("client")
        if self.settings.tls.enabled and scope.get("scheme") not in ("https", "wss"):
            return Place(peer[0] if peer else "", refused=NO_TLS)
        return locate(self.origin, peer[0] if peer else "", headers)

    def hello(self, client: GatewayConnection, auth: dict[str, Any]) -> dict[str, Any]:
        """The answer to a client that has logged in."""
        agents, session = self.loaded.config.agents, self.loaded.config.session
        default, may_read = agents.default_id(), client.may(READ)
        return {
            "type": "hello-ok",
            "protocol": PROTOCOL,
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
                    "modelConfigured": self.shelf.has_model(default),
                    "ownership": "sole",
                    "selectionRequired": False,
                    "mainKey": session.main_key,
                    "mainSessionKey": f"agent:{default}:{session.main_key}",
                    "scope": session.scope,
                },
            },
            "auth": auth,
            "policy": {
                "maxPayload": MAX_FRAME,
                "maxBufferedBytes": MAX_BUFFERED,
                "tickIntervalMs": TICK_MS,
                "attachments": {"maxBytes": MAX_ATTACHMENT, "maxImageBytes": MAX_IMAGE},
            },
        }

    def _note_question(self, phase: str, asked: StoredQuestion) -> None:
        if (there := self.live.find(asked.question.session)) is not None:
            there.narrator.tell_approval(phase, asked.id, asked.question.call_id)

    async def reload(self) -> None:
        """Take up a changed configuration file. Raises `ConfigError` if it is invalid."""
        self.loaded = load(self.loaded.file)
        self.redactor.learn(known_secrets(self.loaded))
        self.shelf.forget()
        await self.live.renew()

    async def start(self) -> None:
        work = (self._tick(), self._sweep(), self.desk.watch())
        self._tasks = [asyncio.ensure_future(each) for each in work]
        self.is_ready = True
        log.info("the gateway is ready")
        self.on_started()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            self.hub.broadcast("tick", {"ts": now_ms()}, droppable=True)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                await self.live.sweep()
            except ToolError as error:
                log.warning("an idle session could not be closed: %s", error)

    async def say_goodbye(self) -> None:
        """Tell all clients that the gateway stops, and disconnect them."""
        self.is_ready = False
        self.hub.broadcast("shutdown", {"reason": "gateway stopping"})
        for client in list(self.hub.clients.values()):
            client.close(1012, "service restart")
        with suppress(TimeoutError):
            await asyncio.wait_for(self.hub.empty.wait(), GOODBYE_S)

    async def stop(self) -> None:
        """Tell all clients, stop what runs, and close everything."""
        await self.say_goodbye()
        await self.live.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self.devices.close()
        self.desk.store.close()
        self.store.close()
        log.info("the gateway has stopped")
        self.log.close()

    async def serve(self, socket: WebSocket) -> None:
        """Serve one WebSocket client."""
        place = self.place_of(socket.scope)
        # A page of others gets no socket: those are counted, and it could use up all of them.
        if why := place.refused or (BAD_ORIGIN if place.bad_origin else ""):
            log.warning("refused a connection from %s: %s", place.address, why)
            return await socket.close()
        await socket.accept()
        if not self.is_ready:
            return await socket.close(1013, "the gateway is not ready")
        return await GatewayConnection(self, socket, place).serve()


def app(config: ConfigInput = None, *, model: Model | None = None) -> Starlette:
    """The gateway as an ASGI application, to be served by uvicorn or mounted in another one.

    `config` is a file, a mapping or a loaded configuration; by default the user's file. Raises
    `ConfigError`.
    """
    gateway = Gateway(load_config(config), model=model)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        await gateway.start()
        try:
            yield
        finally:
            await gateway.stop()

    async def socket(websocket: WebSocket) -> None:
        await gateway.serve(websocket)

    made: list[Route | WebSocketRoute] = [*routes(gateway), WebSocketRoute("/{path:path}", socket)]
    application = Starlette(routes=made, lifespan=lifespan)
    application.router.redirect_slashes = False
    application.state.gateway = gateway
    return application
