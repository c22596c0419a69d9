"""The files of the control page: a table made at the start, so that no request names a path."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

if TYPE_CHECKING:
    from clawkit.gateway.http import Handler

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
        # Only what DOMPurify has cleaned can become HTML.
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


class PageFile(Struct, frozen=True):
    """A file, ready to be sent."""

    plain: bytes
    zipped: bytes
    headers: dict[str, str]


@cache
def prepare(path: Path) -> PageFile:
    plain = path.read_bytes()
    # The names of vendored files have their version; all others are asked for again every time.
    is_fixed = path.parent.name == "vendor"
    headers = {
        **HEADERS,
        "Cache-Control": "public, max-age=31536000, immutable" if is_fixed else "no-cache",
        "Content-Type": _TYPES[path.suffix],
        "ETag": f'W/"{hashlib.sha256(plain).hexdigest()[:24]}"',
    }
    return PageFile(plain, gzip.compress(plain, mtime=0), headers)


def page_routes(base: str) -> list[tuple[tuple[str, ...], Handler, str]]:
    """A row for each file, below the path `base`."""
    found = [path for path in sorted(PAGE.rglob("*")) if path.suffix in _TYPES]
    names = {path: f"{base}/{path.relative_to(PAGE).as_posix()}" for path in found}
    names[PAGE / "index.html"] = f"{base}/"
    return [((name,), _sender(path), "GET") for path, name in names.items()]


def _sender(path: Path) -> Handler:
    async def send(request: Request) -> Response:
        file = prepare(path)
        if request.headers.get("if-none-match") == file.headers["ETag"]:
            return Response(status_code=304, headers=file.headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(file.zipped, headers={**file.headers, "Content-Encoding": "gzip"})
        return Response(file.plain, headers=file.headers)

    return send
