"""The HTTP side of the gateway: probes, and tools and messages for programs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import msgspec
from msgspec import Meta, Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from clawkit.agent.nested_calls import withhold
from clawkit.config.sections.gateway import GatewaySettings as Settings
from clawkit.core.call import CallRequest, call
from clawkit.core.catalog import CARRIER, canonical
from clawkit.core.result import Result
from clawkit.errors import ClawkitError
from clawkit.gateway.auth import AuthPolicy, same
from clawkit.gateway.limits import LoginLimiter
from clawkit.gateway.metrics import CONTENT_TYPE, OTHER
from clawkit.gateway.origin import RequestOrigin
from clawkit.gateway.protocol import GatewayError, Ignored, Short, encode, ignored
from clawkit.version import __version__

if TYPE_CHECKING:
    from clawkit.gateway.server import Gateway

MAX_INVOKE_BYTES = 2 * 1024**2
BODY_S = 30.0
"""Seconds that a client may take to send its request."""
DENIED_TOOLS = frozenset(
    (
        *("exec", "process", "code_execution", "write", "edit", "apply_patch"),
        *("sessions_spawn", "sessions_send", "subagents", "cron", "gateway", "nodes"),
        *("whatsapp_login", "message", "browser", "canvas"),
    )
)
"""Tools that run commands, change files, speak for the owner or change the gateway: over HTTP only
if `gateway.tools.allow` names them."""

_ANYTHING = "/{path:path}"
_INVOKE = "/tools/invoke"
SAFE_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

log = logging.getLogger(__name__)
Handler = Callable[["Gateway", Request], Awaitable[Response]]
T = TypeVar("T")


class HttpError(Exception):
    """An error answer."""

    def __init__(
        self, status: int, kind: str, message: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.message, self.headers = status, kind, message, headers or {}


class Invoke(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The body of `/tools/invoke`."""

    tool: Short = ""
    name: Short = ""
    action: Short | None = None
    args: dict[str, Any] = msgspec.field(default_factory=dict)
    session_key: Short = "main"
    agent_id: Short | None = None
    idempotency_key: Ignored = msgspec.UNSET
    dry_run: bool = False


def answer(payload: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    kind = "application/json"
    return Response(encode(payload), status, {**SAFE_HEADERS, **(headers or {})}, media_type=kind)


def bad(message: str) -> HttpError:
    return HttpError(400, "invalid_request_error", message)


def not_found(message: str = "Not found") -> HttpError:
    return HttpError(404, "not_found", message)


class HistoryQuery(Struct, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 200
    cursor: Annotated[int, Meta(ge=1, le=2**31)] | None = None
    """Only messages before this number."""


class Door(Protocol):
    """The checks for requests: implemented by the gateway, and by another server with its
    secret."""

    auth: AuthPolicy
    logins: LoginLimiter

    def place_of(self, scope: Mapping[str, Any]) -> RequestOrigin: ...


async def check_login(
    gateway: Door, request: Request, *, is_device: Callable[[str], bool] | None = None
) -> None:
    """Refuse a request unless it has the gateway's secret or a token that `is_device` accepts.
    Raises `HttpError`."""
    place = gateway.place_of(request.scope)
    if place.bad_origin:
        raise HttpError(403, "forbidden", "Origin not allowed")
    if gateway.auth.mode == "none":
        if not place.is_local:
            raise HttpError(401, "unauthorized", "Unauthorized")
        return
    unauthorized = HttpError(401, "unauthorized", "Unauthorized", {"WWW-Authenticate": "Bearer"})
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not secret:
        raise unauthorized
    async with gateway.logins.turn(place, is_sure=gateway.auth.is_strong(secret)) as locked_s:
        if locked_s:
            wait = {"Retry-After": str(round(locked_s) + 1)}
            raise HttpError(429, "rate_limited", "Too many failed attempts; retry later", wait)
        is_near = gateway.auth.mode != "trusted-proxy" or place.is_local
        is_known = is_near and same(secret, gateway.auth.secret)
        is_known = is_known or (is_device is not None and is_device(secret))
        if not is_known:
            log.warning("wrong secret over HTTP from %s", place.address)
            await asyncio.sleep(gateway.logins.fail(place))
            raise unauthorized


async def read_bytes(request: Request, max_bytes: int) -> bytes:
    """The body, which must be declared as JSON. Raises `HttpError`."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise bad("Content-Type must be application/json")
    too_big = HttpError(413, "payload_too_large", f"The body is larger than {max_bytes} bytes")
    # Read a slightly oversized body to its end: a disconnected client would not see the answer.
    most = 4 * max_bytes
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > most:
        raise too_big
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size > most:
                    raise too_big
                if size <= max_bytes:
                    body += chunk
    except TimeoutError:
        raise HttpError(408, "timeout", "The request took too long") from None
    if size > max_bytes:
        raise too_big
    return bytes(body)


async def read_body(request: Request, kind: type[T], max_bytes: int) -> T:
    """The decoded JSON body. Raises `HttpError`."""
    data = await read_bytes(request, max_bytes)
    try:
        return msgspec.json.decode(data, type=kind)
    except (ValueError, RecursionError) as error:
        raise bad(f"invalid body: {error}") from None


async def _live(_gateway: Gateway, _request: Request) -> Response:
    return answer({"ok": True, "status": "live"})


async def _ready(gateway: Gateway, _request: Request) -> Response:
    failing = [] if gateway.is_ready else ["startup-sidecars"]
    shown = {"ready": not failing, "failing": failing, "uptimeMs": gateway.uptime_ms}
    return answer(shown, 503 if failing else 200)


async def _started(gateway: Gateway, _request: Request) -> Response:
    shown = {"ok": True, "status": "started", "version": __version__}
    return answer(shown | {"uptimeMs": gateway.uptime_ms})


async def _metrics(gateway: Gateway, request: Request) -> Response:
    await check_login(gateway, request)
    gauges = {
        "clients": ("Connected clients.", len(gateway.hub.clients)),
        "sessions_open": ("Open sessions.", gateway.live.opened),
        "turns_running": ("Running turns.", gateway.live.running),
        "uptime_seconds": ("Time since the start.", gateway.uptime_ms / 1000),
    }
    headers = {**SAFE_HEADERS, "Content-Type": CONTENT_TYPE}
    return Response(gateway.metrics.render(gauges), headers=headers)


async def _history(gateway: Gateway, request: Request) -> Response:
    """A page of messages, oldest first; `nextCursor` leads to older ones."""
    await check_login(gateway, request)
    try:
        query = msgspec.convert(dict(request.query_params), HistoryQuery, strict=False)
    except ValueError as error:
        raise bad(f"invalid query: {error}") from None
    key = gateway.live.resolve_key(request.path_params["key"])
    session = gateway.store.find(key)
    if session is None:
        raise not_found(f"Session not found: {key[:300]}")
    newer = 0
    if query.cursor is not None:
        newer = gateway.store.page(session.id, 1, upto=query.cursor - 1, tools=True).newer
    page = gateway.session_list.messages(session, query.limit, newer)
    has_more = page.next_offset is not None
    cursor = str(page.messages[0]["__openclaw"]["seq"]) if has_more else None
    shown = {"sessionKey": key, "items": page.messages, "messages": page.messages}
    return answer(shown | {"hasMore": has_more, "nextCursor": cursor})


def routes(gateway: Gateway) -> list[Route]:
    """All routes. Paths match exactly; a wrong method is answered with 405."""
    from clawkit.gateway.openai import complete, list_models, respond, show_model
    from clawkit.gateway.static import page_routes

    table: dict[str, tuple[Handler, str]] = {
        **dict.fromkeys(("/health", "/healthz"), (_live, "GET")),
        **dict.fromkeys(("/ready", "/readyz"), (_ready, "GET")),
        **dict.fromkeys(("/startup", "/startupz"), (_started, "GET")),
        "/metrics": (_metrics, "GET"),
        "/sessions/{key:path}/history": (_history, "GET"),
        _INVOKE: (_invoke, "POST"),
        "/v1/models": (list_models, "GET"),
        "/v1/models/{model:path}": (show_model, "GET"),
        "/v1/chat/completions": (complete, "POST"),
        "/v1/responses": (respond, "POST"),
        "/mcp": (_serve_mcp, "*"),
        **{path: (handler, "GET") for path, handler in page_routes(gateway).items()},
        _ANYTHING: (_nothing, "*"),
    }
    found = [Route(path, _guarded(gateway, path, *each)) for path, each in table.items()]
    for route in found:
        route.methods = set()  # all methods: our handler rejects wrong ones, after the other checks
    return found


async def _serve_mcp(gateway: Gateway, request: Request) -> Response:
    """Serve an MCP client. Tools that `/tools/invoke` denies are not offered."""
    await check_login(gateway, request)
    return await gateway.mcp.handle(request)


async def _nothing(gateway: Gateway, request: Request) -> Response:
    """Serve a web hook, whose path can change at run time, or answer 404."""
    if (found := await gateway.hooks.receive(request)) is not None:
        return found
    raise not_found()


def _guarded(
    gateway: Gateway, path: str, handler: Handler, method: str
) -> Callable[[Request], Awaitable[Response]]:
    """Wrap a handler in the checks that every request must pass."""

    async def guarded(request: Request) -> Response:
        status = 500
        try:
            try:
                found = _check(gateway, request, method) or await handler(gateway, request)
            except (HttpError, GatewayError) as error:
                found = _refusal(error, is_tool=path == _INVOKE)
            except ClientDisconnect:
                found = Response(status_code=499)
            status = found.status_code
            return found
        finally:
            route = OTHER if path == _ANYTHING else path
            gateway.metrics.http_request(route, request.method, status)

    return guarded


def _check(gateway: Gateway, request: Request, method: str) -> Response | None:
    """Check a request before its route; returns an answer if that is already final. Raises
    `HttpError`."""
    from clawkit.gateway.static import end_service_worker

    if why := gateway.place_of(request.scope).refused:
        raise HttpError(403, "forbidden", why)
    if {"transfer-encoding", "content-length"} <= set(request.headers):
        # A proxy could interpret the end of the body as another request.
        raise HttpError(400, "invalid_request_error", "two lengths", {"Connection": "close"})
    if request.headers.get("service-worker") == "script":
        return end_service_worker()
    allowed = ("GET", "HEAD") if method == "GET" else (method,)
    if method != "*" and request.method not in allowed:
        headers = {"Allow": ", ".join(allowed)}
        raise HttpError(405, "method_not_allowed", "Method not allowed", headers)
    return None


def _refusal(error: HttpError | GatewayError, *, is_tool: bool) -> Response:
    if isinstance(error, GatewayError):
        wait = {"Retry-After": str((error.retry_ms or 0) // 1000 + 1)}
        is_busy = error.code == "UNAVAILABLE"
        busy = HttpError(503, "unavailable", error.message, wait)
        error = busy if is_busy else bad(error.message)
    shown: dict[str, Any] = {"error": {"message": error.message, "type": error.kind}}
    if is_tool and error.status not in (401, 405):
        shown = {"ok": False, **shown}
    return answer(shown, error.status, error.headers)


async def _invoke(gateway: Gateway, request: Request) -> Response:
    await check_login(gateway, request)
    body = await read_body(request, Invoke, MAX_INVOKE_BYTES)
    return answer(await invoke_tool(gateway, body, owner=True) | ignored(body))


NOT_HERE = "it cannot be called over HTTP unless gateway.tools.allow names it"


def denied_tools(settings: Settings) -> frozenset[str]:
    """The tools that programs cannot call over HTTP. Includes `tool_call`, because all tools can be
    called directly."""
    denied = DENIED_TOOLS.difference(map(canonical, settings.tools.allow))
    return denied.union(map(canonical, settings.tools.deny), (CARRIER,))


async def invoke_tool(gateway: Gateway, body: Invoke, *, owner: bool) -> dict[str, Any]:
    """Call a tool of a session, with or without owner rights. Raises `HttpError`."""
    name = canonical(body.tool or body.name)
    if not name:
        raise bad("tool is required")
    missing = not_found(f"Tool not available: {name[:80]}")
    denied = denied_tools(gateway.settings)
    if name in denied:
        raise missing
    key = gateway.live.resolve_key(body.session_key, body.agent_id)
    try:
        there = await gateway.live.open(key, owner=owner)
    except ClawkitError as error:
        raise HttpError(409, "conflict", str(error)) from None
    tool = there.agent.kit.run.tools.get(name)
    if tool is None:
        raise missing
    args = dict(body.args)
    if body.action is not None and "action" in tool.offered.get("properties", {}):
        args.setdefault("action", body.action)
    if body.dry_run:
        return {"ok": True, "dryRun": True, "tool": name, "args": args}
    with there.in_use():
        run = withhold(there.agent.kit.run, denied, NOT_HERE)
        result = await call(run, CallRequest(name, args))
    if result.is_error:
        raise _failure(result)
    content = [block.to_json() for block in result.content]
    return {"ok": True, "result": {"content": content, "details": dict(result.details)}}


def _failure(result: Result) -> HttpError:
    text, code = result.as_text()[:2_000], result.details.get("code")
    if result.details.get("status") == "blocked":
        return HttpError(403, "forbidden", text)
    return bad(text) if code in (400, 404, 409) else HttpError(500, "tool_error", text)
