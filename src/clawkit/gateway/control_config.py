"""`/control-ui-config.json`: what a control page has to know before it connects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from clawkit.gateway.http import HttpError, answer, check_login
from clawkit.version import __version__

if TYPE_CHECKING:
    from clawkit.gateway.server import Gateway


class ControlConfig:
    """The endpoint; it answers 404 if control pages are turned off."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def read(self, request: Request) -> Response:
        gateway = self._gateway
        if not gateway.settings.control_ui.enabled:
            raise HttpError(404, "not_found", "Not found")
        await check_login(gateway, request, device_tokens=True)
        agents = gateway.loaded.config.agents
        agent = agents.get(agents.default_id())
        name = agent.identity.name or agent.name or "Assistant"
        return answer(
            {
                "basePath": gateway.settings.control_ui.base,
                "assistantName": name,
                "assistantAvatar": agent.identity.emoji or name[:1].upper(),
                "assistantAgentId": agents.default_id(),
                "serverVersion": __version__,
                "serverBuildId": __version__,
                "terminalEnabled": False,
            }
        )
