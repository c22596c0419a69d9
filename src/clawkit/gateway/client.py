"""A small client, for the command line and for programs."""

from __future__ import annotations

import asyncio
import hashlib
import os
import ssl
import sys
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from clawkit.config.load import Loaded
from clawkit.config.secrets import resolve
from clawkit.config.sections.gateway import GatewaySettings as Settings
from clawkit.errors import ToolError
from clawkit.gateway.protocol import MAX_FRAME, PROTOCOL
from clawkit.gateway.scopes import OWNER
from clawkit.gateway.server import read_secret
from clawkit.version import __version__

TIMEOUT_S = 30.0


class CallError(ToolError):
    """The gateway answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("message", "the gateway refused the request")))
        self.error = error


class Target(msgspec.Struct, frozen=True):
    """Which gateway to call, and its secret."""

    url: str
    secret: str
    is_password: bool = False
    fingerprint: str = ""
    """SHA-256 of the only certificate to accept; empty for any that an authority vouches for."""


def find_target(loaded: Loaded, url: str | None = None, token: str | None = None) -> Target:
    """The gateway that the configuration names: the local one, or `gateway.remote`.

    The secrets of the configuration are sent only to the address of the configuration.
    """
    settings = loaded.config.gateway or Settings()
    if url is not None:
        return Target(url, token or "")
    env = {**os.environ, **loaded.env}
    if settings.mode == "remote" and settings.remote.url:
        remote = settings.remote
        given = remote.token or remote.password
        secret = resolve(given, loaded.config, env) if given else ""
        is_password = remote.token is None and remote.password is not None
        return Target(settings.remote.url, token or secret, is_password)
    mode, secret = read_secret(loaded)
    host = settings.custom_bind_host if settings.bind == "custom" else None
    shown = f"[{host}]" if host and ":" in host else host or "127.0.0.1"
    return Target(f"ws://{shown}:{settings.port}/", token or secret, mode == "password")


class GatewayClient:
    """A connection that has logged in."""

    def __init__(self, socket: ClientConnection, hello: dict[str, Any]) -> None:
        self._socket = socket
        self.hello = hello

    async def call(self, method: str, params: Any = None, timeout_s: float = TIMEOUT_S) -> Any:
        """Call a method and return its payload; of two answers, the last. Raises `CallError`."""
        id_ = str(uuid.uuid4())
        frame = {"type": "req", "id": id_, "method": method, "params": params or {}}
        await self._socket.send(msgspec.json.encode(frame).decode())
        async with asyncio.timeout(timeout_s):
            while True:
                payload = await _answer(self._socket, id_)
                if not (isinstance(payload, dict) and payload.get("status") == "accepted"):
                    return payload


async def _answer(socket: ClientConnection, id_: str) -> Any:
    while True:
        frame = msgspec.json.decode(await socket.recv())
        if frame.get("type") == "res" and frame.get("id") == id_:
            if frame.get("ok"):
                return frame.get("payload")
            raise CallError(frame.get("error") or {})


@asynccontextmanager
async def open_client(
    target: Target, scopes: Sequence[str] = OWNER, timeout_s: float = TIMEOUT_S
) -> AsyncIterator[GatewayClient]:
    """Connect and log in. Raises `CallError` if refused, `ToolError` if there is no gateway."""
    try:
        async with connect(
            target.url,
            max_size=MAX_FRAME,
            compression=None,
            open_timeout=timeout_s,
            proxy=None,
            **_tls(target),
        ) as socket:
            _check_certificate(socket, target)
            async with asyncio.timeout(timeout_s):
                await socket.recv()
                hello = await _log_in(socket, target, scopes)
            yield GatewayClient(socket, hello)
    except TimeoutError:
        raise ToolError(f"{target.url}: the gateway did not answer in time") from None
    except ConnectionClosed as error:
        raise ToolError(f"{target.url}: the gateway closed the connection: {error}") from None
    except (OSError, WebSocketException) as error:
        raise ToolError(
            f"{target.url}: no gateway can be reached there ({error}); start one with: "
            "clawkit gateway start"
        ) from None


def _tls(target: Target) -> dict[str, Any]:
    if not target.fingerprint:
        return {}
    context = ssl.create_default_context()
    # The certificate is compared instead.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return {"ssl": context}


def _check_certificate(socket: ClientConnection, target: Target) -> None:
    """Before any secret is sent, make sure that it is the gateway. Raises `ToolError`."""
    if target.fingerprint:
        der = socket.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if hashlib.sha256(der).hexdigest() != target.fingerprint.replace(":", "").lower():
            raise ToolError(f"{target.url}: it has another certificate than the gateway")


async def _log_in(socket: ClientConnection, target: Target, scopes: Sequence[str]) -> Any:
    # Without a secret on this machine, only a backend may do without a device.
    kind = ("cli", "cli") if target.secret else ("gateway-client", "backend")
    field = "password" if target.is_password else "token"
    params = {
        "minProtocol": PROTOCOL,
        "maxProtocol": PROTOCOL,
        "client": {
            "id": kind[0],
            "version": __version__,
            "platform": sys.platform,
            "mode": kind[1],
        },
        "role": "operator",
        "scopes": list(scopes),
        "auth": {field: target.secret} if target.secret else {},
    }
    frame = {"type": "req", "id": "connect", "method": "connect", "params": params}
    await socket.send(msgspec.json.encode(frame).decode())
    return await _answer(socket, "connect")
