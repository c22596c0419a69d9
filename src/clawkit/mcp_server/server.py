"""The clients of one endpoint, in both eras of the protocol."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

from msgspec import Struct, field

from clawkit.mcp import protocol as mcp
from clawkit.mcp_server import client as clients

MAX_CLIENTS = 64
IDLE_S = 3_600.0
"""Idle time after which a client is closed."""


class RequestMeta(Struct):
    """Facts about the client in a request, from 2026-07-28 on."""

    version: str | None = field(default=None, name=mcp.META_VERSION)
    capabilities: clients.ClientAbilities | None = field(default=None, name=mcp.META_CAPABILITIES)
    info: clients.ClientName = field(default_factory=clients.ClientName, name=mcp.META_CLIENT)


class RequestParams(Struct):
    """The parameters that headers repeat."""

    meta: RequestMeta = field(default_factory=RequestMeta, name=mcp.META)
    name: str = ""


class _Initialize(Struct, rename="camel"):
    protocol_version: str
    capabilities: clients.ClientAbilities = field(default_factory=clients.ClientAbilities)
    client_info: clients.ClientName = field(default_factory=clients.ClientName)


class ServedClients:
    """All clients, by their identification."""

    def __init__(self, open_kit: clients.OpenKit, *, session: str = "") -> None:
        """With a `session`, all clients share it, as for a process with one client."""
        self.clients: dict[object, clients.ServedClient] = {}
        self._open_kit = open_kit
        self._session = session

    async def initialize(
        self, id_: mcp.Id, message: mcp.RpcMessage, key: str = ""
    ) -> tuple[str, bytes]:
        """Open a session: returns its id, which is `key` if given, and the answer. Raises
        `McpError`."""
        given = mcp.read(message.params, _Initialize)
        if key in self.clients:
            raise mcp.McpError(mcp.INVALID_REQUEST, "the session is already initialized")
        key = key or secrets.token_urlsafe(32)
        await self._add(key, given.client_info.name, given.capabilities)
        version = given.protocol_version
        result: dict[str, Any] = {
            "protocolVersion": version if version in mcp.LEGACY else mcp.LEGACY[0],
            "capabilities": clients.CAPABILITIES,
            "serverInfo": clients.SERVER,
            "instructions": clients.INSTRUCTIONS,
        }
        return key, mcp.answer(id_, result)

    async def find_modern(self, meta: RequestMeta, principal: str) -> clients.ServedClient:
        """The client of a request without a session. Requests with the same login, client name and
        capabilities to ask belong to one client. Raises `McpError`."""
        if meta.version is None or meta.capabilities is None:
            lacking = mcp.META_VERSION if meta.version is None else mcp.META_CAPABILITIES
            raise mcp.McpError(mcp.INVALID_PARAMS, f"_meta must have {lacking!r}")
        if meta.version != mcp.MODERN:
            facts = {"supported": mcp.VERSIONS, "requested": meta.version}
            raise mcp.McpError(mcp.UNSUPPORTED_VERSION, "unsupported protocol version", facts)
        key = principal, meta.info.name, meta.capabilities.can_ask
        if key not in self.clients:
            await self._add(key, meta.info.name, meta.capabilities, is_modern=True)
        return self.clients[key]

    async def _add(
        self, key: object, name: str, can: clients.ClientAbilities, *, is_modern: bool = False
    ) -> None:
        if len(self.clients) >= MAX_CLIENTS:
            idle = [each for each, client in self.clients.items() if not client.is_busy]
            if not idle:
                raise mcp.McpError(mcp.INTERNAL_ERROR, f"{MAX_CLIENTS} clients are connected")
            await self.remove(min(idle, key=lambda each: self.clients[each].used_at))
        session = self._session or f"mcp:{secrets.token_hex(8)}"
        self.clients[key] = clients.ServedClient(
            self._open_kit, session, name, can, is_modern=is_modern
        )

    def renew(self) -> None:
        """Reopen the tools of all clients after a configuration change."""
        for client in self.clients.values():
            client.renew()

    async def remove(self, key: object) -> None:
        """Remove a client, and stop all work for it."""
        if (client := self.clients.pop(key, None)) is not None:
            await client.close()

    async def sweep(self) -> None:
        """Close idle clients."""
        now = asyncio.get_running_loop().time()
        for key, client in list(self.clients.items()):
            if not client.is_busy and now - client.used_at > IDLE_S:
                await self.remove(key)

    async def close(self) -> None:
        for key in list(self.clients):
            await self.remove(key)
