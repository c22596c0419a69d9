"""The control page: its files in a table built at the start, so that requests never name paths, and
the data that the page needs before it connects."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from clawkit.gateway.http import Handler, answer, check_login
from clawkit.version import __version__

if TYPE_CHECKING:
    from clawkit.gateway.server import Gateway

PAGE = Path(__file__).parent / "page"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
CSP = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # Only text sanitized by DOMPurify can become HTML.
        "require-trusted-types-for 'script'",
        "trusted-types dompurify",
    )
)
HEADERS = {
    "Content-Security-Policy": CSP,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

# The page has no service worker. One that another program left on this port is replaced by this
# when the browser checks for its update, at every visit.
_FAREWELL = """\
addEventListener('install', () => skipWaiting());
addEventListener('activate', (event) => event.waitUntil((async () => {
  await registration.unregister();
  for (const each of await clients.matchAll()) await each.navigate(each.url).catch(() => {});
})()));
"""


class PageFile(Struct, frozen=True):
    """A file, ready to be sent."""

    plain: bytes
    zipped: bytes
    headers: dict[str, str]


@cache
def prepare(path: Path) -> PageFile:
    plain = path.read_bytes()
    headers = {**HEADERS, "Content-Type": _TYPES[path.suffix]}
    if path.suffix == ".html":
        # A previous program on this port may have left files with our names in the browser cache.
        headers |= {"Cache-Control": "no-store", "Clear-Site-Data": '"cache"'}
    else:
        tag = f'W/"{hashlib.sha256(plain).hexdigest()[:24]}"'
        headers |= {"Cache-Control": "no-cache", "ETag": tag}
    return PageFile(plain, gzip.compress(plain, mtime=0), headers)


def page_routes(gateway: Gateway) -> dict[str, Handler]:
    """The routes of the page; empty if the control page is disabled."""
    ui = gateway.settings.control_ui
    if not ui.enabled:
        return {}
    found = [path for path in sorted(PAGE.rglob("*")) if path.suffix in _TYPES]
    names = {path: f"{ui.base}/{path.relative_to(PAGE).as_posix()}" for path in found}
    names[PAGE / "index.html"] = f"{ui.base}/"
    files = {name: _sender(path) for path, name in names.items()}
    return {"/control-ui-config.json": _show_config, **files}


def end_service_worker() -> Response:
    """The answer to a browser that requests the script of any service worker."""
    headers = {**HEADERS, "Cache-Control": "no-store", "Content-Type": _TYPES[".js"]}
    return Response(_FAREWELL, headers=headers)


async def _show_config(gateway: Gateway, request: Request) -> Response:
    await check_login(gateway, request, is_device=gateway.devices.is_operator)
    agents = gateway.loaded.config.agents
    agent = agents.get(agents.default_id())
    name = agent.identity.name or agent.name or "Assistant"
    shown = {
        "basePath": gateway.settings.control_ui.base,
        "assistantName": name,
        "assistantAvatar": agent.identity.emoji or name[:1].upper(),
        "assistantAgentId": agents.default_id(),
        **dict.fromkeys(("serverVersion", "serverBuildId"), __version__),
    }
    return answer(shown | {"terminalEnabled": False})


def _sender(path: Path) -> Handler:
    async def send(_gateway: Gateway, request: Request) -> Response:
        file = prepare(path)
        tag = file.headers.get("ETag")
        if tag and request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=file.headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(file.zipped, headers={**file.headers, "Content-Encoding": "gzip"})
        return Response(file.plain, headers=file.headers)

    return send
