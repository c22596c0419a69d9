"""A server only for MCP clients on this machine, with the login of the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from clawkit.config.load import Loaded
from clawkit.config.sections.gateway import GatewaySettings
from clawkit.gateway.auth import AuthPolicy
from clawkit.gateway.http import HttpError, answer, check_login
from clawkit.gateway.limits import LoginLimiter
from clawkit.gateway.mcp import McpEndpoint
from clawkit.gateway.origin import OriginPolicy, RequestOrigin, locate_request, own_names
from clawkit.gateway.serve import PLAIN, Http, listen
from clawkit.gateway.server import read_secret
from clawkit.mcp_server.client import OpenKit

HOST = "127.0.0.1"
PATH = "/mcp"
SWEEP_S = 60.0


class Entrance:
    """Admits clients on this machine that have the secret of the gateway."""

    def __init__(self, loaded: Loaded) -> None:
        settings = loaded.config.gateway or GatewaySettings()
        self.auth = AuthPolicy(*read_secret(loaded))
        self.logins = LoginLimiter(settings.auth.rate_limit)
        origins = tuple(settings.control_ui.allowed_origins)
        self._policy = OriginPolicy((), origins, own_names())

    def place_of(self, scope: Mapping[str, Any]) -> RequestOrigin:
        return locate_request(self._policy, scope)


def make_app(loaded: Loaded, open_kit: OpenKit) -> Starlette:
    """The server as an ASGI application. Raises `ConfigError`."""
    entrance, endpoint = Entrance(loaded), McpEndpoint(open_kit)

    async def serve(request: Request) -> Response:
        try:
            if why := entrance.place_of(request.scope).refused:
                raise HttpError(403, "forbidden", why)
            await check_login(entrance, request)
            return await endpoint.handle(request)
        except HttpError as error:
            shown = {"error": {"message": error.message, "type": error.kind}}
            return answer(shown, error.status, error.headers)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        sweeping = asyncio.ensure_future(_sweep(endpoint))
        try:
            yield
        finally:
            sweeping.cancel()
            await endpoint.server.close()

    methods = ["GET", "POST", "DELETE"]
    return Starlette(routes=[Route(PATH, serve, methods=methods)], lifespan=lifespan)


async def _sweep(endpoint: McpEndpoint) -> None:
    while True:
        await asyncio.sleep(SWEEP_S)
        await endpoint.server.sweep()


def serve_http(
    loaded: Loaded, open_kit: OpenKit, port: int, on_ready: Callable[[str], None]
) -> None:
    """Serve until SIGTERM or Ctrl-C; `on_ready` is called with the address. Raises `ConfigError`
    and `ToolError`."""
    application = make_app(loaded, open_kit)
    with listen(HOST, port) as sock:
        http: Any = partial(Http)
        config = uvicorn.Config(application, http=http, ws="none", **PLAIN)
        on_ready(f"http://{HOST}:{sock.getsockname()[1]}{PATH}")
        uvicorn.Server(config).run(sockets=[sock])
