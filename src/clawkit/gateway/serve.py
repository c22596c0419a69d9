"""Serves the gateway with uvicorn: the listening address, and limits on sockets."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState

from clawkit.config.load import Loaded
from clawkit.config.paths import home
from clawkit.config.sections.gateway import GatewaySettings as Settings
from clawkit.errors import ConfigError, ConflictError, Issue, ToolError
from clawkit.gateway.daemon import check_home
from clawkit.gateway.methods.chats import ChatHost
from clawkit.gateway.origin import own_names
from clawkit.gateway.process_record import StartedBy, lock_file, look, without_record, write_record
from clawkit.gateway.protocol import MAX_FRAME, MAX_FRAME_BEFORE_HELLO, PING_S
from clawkit.gateway.server import Gateway, app
from clawkit.gateway.tls import Certificate, find_certificate
from clawkit.store import hold_lock

STOP_S = 10
HEAD_S = 15.0
"""Seconds that a client may take to send the head of a request."""
BACKLOG = 128
"""Connections accepted at once, before any of them can be refused."""
MAX_FILES = 4_096
MAX_PONGS = 1024**2
"""Maximum unread bytes of answers to pings."""
_ADVICE = {
    errno.EADDRINUSE: "stop the program that uses it, or choose another port with --port or: "
    "clawkit config set gateway.port PORT",
    errno.EADDRNOTAVAIL: "set gateway.bind to an address of this machine",
    errno.EACCES: "choose a port above 1023 with --port or gateway.port",
}
_TAILNET = ipaddress.ip_network("100.64.0.0/10")


class Http(H11Protocol):
    """An HTTP connection that is closed if its client takes too long to send a request, or
    immediately if there are too many."""

    def __init__(self, *args: Any, tls: ssl.SSLContext | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tls = tls
        self._deadline: asyncio.TimerHandle | None = None
        self._unread = 0
        self._encrypting: asyncio.Task[None] | None = None
        self._early: bytearray | None = None
        """Data that arrives between the end of the TLS handshake and its notification."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > max_connections():
            transport.abort()
        elif self._tls is not None:
            # Started here, not by the server, so that the limits apply.
            transport.pause_reading()
            self._early = bytearray()
            self._encrypting = asyncio.ensure_future(self._encrypt(transport, self._tls))

    async def _encrypt(self, transport: asyncio.Transport, context: ssl.SSLContext) -> None:
        made: Any = None
        with suppress(OSError):
            made = await self.loop.start_tls(transport, self, context, server_side=True)
        if made is None:  # it failed, or the client disconnected
            transport.abort()
            self.connection_lost(None)
            return
        super().connection_made(made)
        early, self._early = self._early, None
        if early:
            self.data_received(bytes(early))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._watch()

    def data_received(self, data: bytes) -> None:
        if self._early is not None:
            self._early += data
            return
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        """Run the timeout while no request is being answered. A connection that became a WebSocket
        is no longer counted here."""
        is_answered = self.cycle is None or self.cycle.response_complete
        if is_answered and self in self.connections:
            if self._deadline is None:
                self._unread = self.transport.get_write_buffer_size()
                self._deadline = self.loop.call_later(HEAD_S, self._expire)
        elif self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        """Close the connection, unless the client has read more of the answer."""
        self._deadline = None
        if self.transport.get_write_buffer_size() < self._unread:
            self._watch()
        else:
            self.transport.abort()


class Socket(WebSocketsSansIOProtocol):
    """A WebSocket that accepts only small frames, and sends no pings, until its client has logged
    in."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn.max_message_size = MAX_FRAME_BEFORE_HELLO
        self._is_admitted = False
        self._pongs = 0

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            own = {"admit": self._admit, "abort": self._abort}
            extensions: Any = self.scope["extensions"]
            extensions["clawkit"] = own

    def _admit(self) -> None:
        self._is_admitted = True
        self.conn.max_message_size = MAX_FRAME
        self.start_keepalive()

    def start_keepalive(self) -> None:
        if self._is_admitted:
            super().start_keepalive()

    def handle_ping(self) -> None:
        """Answer a ping, unless the client does not read the answers."""
        if self.transport.is_closing():
            return
        before = self.transport.get_write_buffer_size()
        super().handle_ping()
        added = self.transport.get_write_buffer_size() - before
        self._pongs = 0 if self.writable.is_set() else self._pongs + added
        if self._pongs > MAX_PONGS:
            self._abort()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self._abort()

    def shutdown(self) -> None:
        try:
            super().shutdown()
        except InvalidState:  # the client has closed it and will not read the answer
            self.transport.abort()

    def _abort(self) -> None:
        """Drop the connection without waiting for the client to read the rest."""
        if not self.disconnected:
            self.transport.abort()


def max_connections() -> int:
    """Half of the open-file limit; the rest is for the gateway itself."""
    return min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], MAX_FILES) // 2


def raise_file_limit() -> None:
    """Raise the limit of open files as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def choose_host(settings: Settings) -> str:
    """The address to listen on. Raises `ConfigError`."""
    if settings.bind in ("loopback", "auto"):
        return "127.0.0.1"
    if settings.bind == "custom":
        return settings.custom_bind_host or "127.0.0.1"
    return "0.0.0.0" if settings.bind == "lan" else _tailnet_address()  # noqa: S104


def _tailnet_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("100.100.100.100", 53))  # sends nothing
            address = str(probe.getsockname()[0])
        except OSError:
            address = ""
    if not address or ipaddress.ip_address(address) not in _TAILNET:
        hint = "Start Tailscale, or use another bind"
        raise ConfigError([Issue("gateway.bind", "this machine has no tailnet address", hint=hint)])
    return address


def check_exposure(loaded: Loaded, host: str) -> None:
    """Refuse to listen beyond this machine without authentication. Raises `ConfigError`."""
    try:
        is_near = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_near = host == "localhost"
    if (loaded.config.gateway or Settings()).auth.mode == "none" and not is_near:
        message = f"{host} can be reached from other machines, and gateway.auth.mode is 'none'"
        hint = "Set gateway.auth.mode to token or password, or gateway.bind to loopback"
        raise ConfigError([Issue("gateway.bind", message, hint=hint)])


@contextmanager
def only_one() -> Iterator[None]:
    """Hold the lock of this home. Raises a `ConflictError` that names the running gateway."""
    try:
        with hold_lock(lock_file(), "the gateway"):
            yield
    except ConflictError:
        with suppress(OSError), open(lock_file(), encoding="ascii") as file:
            pid = file.read(20).strip()
            what = "a gateway" if look().record else "a gateway or `clawkit cron serve`"
            raise ConflictError(
                f"{what} is already running for {home(os.environ)}: process {pid}; stop it with: "
                "clawkit gateway stop, or set CLAWKIT_HOME to another directory"
            ) from None
        raise


class Server(uvicorn.Server):
    """A server that notifies its clients before it closes their sockets, and leaves signals to
    us."""

    gateway: Gateway

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self.gateway.say_goodbye()
        await super().shutdown(sockets)

    def stop(self) -> None:
        """Stop gracefully; immediately if called again."""
        if self.should_exit:
            self.force_exit = True
            self.gateway.live.hurry.set()
        self.should_exit = True


PLAIN: dict[str, Any] = {
    "loop": "asyncio",
    "log_config": None,
    "access_log": False,
    "proxy_headers": False,
    "server_header": False,
    "timeout_graceful_shutdown": STOP_S,
}
"""Settings of every server here."""


def make_server(
    application: Starlette, host: str, port: int, certificate: Certificate | None = None
) -> Server:
    # h11 limits the size of headers, unlike httptools.
    http: Any = partial(Http, tls=certificate.context() if certificate else None)
    config = uvicorn.Config(
        application,
        host=host,
        port=port,
        ws=Socket,
        http=http,
        backlog=BACKLOG,
        lifespan="on",
        ws_max_size=MAX_FRAME,
        ws_per_message_deflate=False,
        ws_ping_interval=PING_S,
        ws_ping_timeout=PING_S,
        date_header=False,
        **PLAIN,
    )
    server = Server(config)
    server.gateway = application.state.gateway
    return server


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 chooses a free port. Raises `ToolError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets with an explicit TCP protocol.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        hint = _ADVICE.get(error.errno or 0, "check gateway.bind and gateway.port")
        why = "it is in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        raise ToolError(f"cannot listen on {shown}: {why}; {hint}") from None
    return sock


def run(
    loaded: Loaded,
    port: int | None,
    on_ready: Callable[[str, int, str], None],
    started_by: StartedBy = "run",
    chats: ChatHost | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C. `on_ready` is called with the host, the port and the
    fingerprint of the certificate. A restart replaces this process by a new one with the same
    command line. Raises `ConfigError`, `ToolError` and OSError."""
    settings = loaded.config.gateway or Settings()
    host = choose_host(settings)
    check_home()
    check_exposure(loaded, host)
    raise_file_limit()
    directory = os.path.dirname(lock_file())
    with only_one(), without_record():
        sock = listen(host, settings.port if port is None else port)
        application = app(loaded, chats=chats)
        gateway: Gateway = application.state.gateway
        gateway.port = sock.getsockname()[1]
        gateway.preflight = _preflight
        certificate = find_certificate(settings.tls, directory, own_names())
        fingerprint = certificate.fingerprint if certificate else ""
        server = make_server(application, host, gateway.port, certificate)

        def ready() -> None:
            write_record(
                *(host, gateway.port, started_by, loaded.file, port),
                secret=gateway.auth.own_secret,
                serves_commands=settings.use_for_commands and settings.mode == "local",
                files=loaded.files,
                fingerprint=fingerprint,
            )
            on_ready(host, gateway.port, fingerprint)

        gateway.on_started, gateway.on_restart = ready, server.stop
        with sock:
            asyncio.run(_serve(server, sock))
    if gateway.is_restarting:
        kept = ("--port", str(gateway.port)) if port == 0 else ()  # clients know it
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:], *kept])  # noqa: S606


def _preflight(loaded: Loaded) -> None:
    check_exposure(loaded, choose_host(loaded.config.gateway or Settings()))


async def _serve(server: Server, sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    gateway = server.gateway

    def stop() -> None:
        gateway.forget_restart()
        server.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGUSR1, gateway.request_restart, "SIGUSR1", 0.0)
    await server.serve([sock])
