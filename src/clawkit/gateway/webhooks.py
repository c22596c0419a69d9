"""Web hooks: requests of other programs with messages for an agent.

A request is untrusted, even with the right token: its text is marked, and its turn has no owner
rights. It counts as accepted once stored with the jobs, and then runs exactly once, even after a
crash.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import re
import uuid
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from clawkit.config.load import Loaded
from clawkit.config.secrets import resolve
from clawkit.config.sections.gateway import HookMapping, RateLimit, WebhookSettings
from clawkit.config.sections.shared import Thinking
from clawkit.core.tasks import in_thread
from clawkit.cron.jobs import MAX_TEXT, WakeMode
from clawkit.cron.store import new_run
from clawkit.errors import ClawkitError, SecretError
from clawkit.gateway.auth import same
from clawkit.gateway.http import SAFE_HEADERS, HttpError, answer, bad, read_bytes
from clawkit.gateway.limits import LoginLimiter
from clawkit.gateway.protocol import Closed, GatewayError, Ignored, Short, ignored, now_ms
from clawkit.gateway.webhook_text import Received, as_name, describe_event, read_json, render
from clawkit.gateway.webhook_turns import TURN_S, HookCall, job_of
from clawkit.sessions.keys import parse_key
from clawkit.text import cut, one_line

if TYPE_CHECKING:
    from clawkit.gateway.server import Gateway

MAX_BODY = 256 * 1024
MAX_WAITING = 200
"""Maximum waiting requests per hook."""
LIMIT = RateLimit(max_attempts=20, window_ms=60_000, lockout_ms=60_000, exempt_loopback=False)
MIN_SURE = 20
"""Minimum length of a secret that cannot be guessed, so that wrong guesses do not lock out its
holder."""
GITHUB = "github"
_TOKENS = ("x-openclaw-token", "x-clawkit-token")
_PRIVATE = ("authorization", "proxy-authorization", "cookie", *_TOKENS)
_Said = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
log = logging.getLogger(__name__)


class WakeBody(Closed, frozen=True):
    """The body of `wake`."""

    text: _Said
    mode: WakeMode = "now"


class AgentBody(Closed, frozen=True):
    """The body of `agent`."""

    message: _Said
    name: Short = ""
    agent_id: Short | None = None
    session_key: Short | None = None
    deliver: bool = True
    channel: Ignored = UNSET
    to: Ignored = UNSET
    model: Short = ""
    thinking: Thinking | None = None
    timeout_seconds: Annotated[float, Meta(gt=0, le=86_400)] | None = None
    wake_mode: Ignored = UNSET
    idempotency_key: Annotated[str, Meta(min_length=1, max_length=256)] | None = None


def hook_secrets(loaded: Loaded) -> dict[str, str]:
    """The secrets of hooks by setting. An unavailable one rejects every request."""
    hooks, env = loaded.config.hooks or WebhookSettings(), {**os.environ, **loaded.env}
    found = dict.fromkeys(("token", "github.secret"), "")
    for name, given in zip(found, (hooks.token, hooks.github.secret), strict=True):
        try:
            found[name] = resolve(given, loaded.config, env) if given else ""
        except SecretError as error:
            log.error("hooks.%s is not available, so all requests are rejected: %s", name, error)
    return found


class WebHooks:
    """The web hooks of a gateway, by the current configuration."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._limiter = LoginLimiter(LIMIT, gateway.metrics.lockouts.add)
        self._secrets: tuple[Loaded, dict[str, str]] | None = None
        self._asking = asyncio.Lock()

    @property
    def _settings(self) -> WebhookSettings:
        return self._gateway.loaded.config.hooks or WebhookSettings()

    async def receive(self, request: Request) -> Response | None:
        """The answer to a request; None if it is not for a hook."""
        settings, path = self._settings, f"/{request.path_params['path']}"
        below = f"{settings.path.rstrip('/')}/"
        if not settings.enabled or not path.startswith(below):
            return None
        try:
            return await self._accept(request, path.removeprefix(below))
        except HttpError as error:
            return _refusal(error)
        except GatewayError as error:  # such as an unknown agent
            return _refusal(bad(error.message))
        except ClawkitError as error:  # such as a full disk or too many requests
            return _refusal(HttpError(503, "unavailable", str(error), {"Retry-After": "60"}))

    async def _accept(self, request: Request, name: str) -> Response:
        if self._gateway.place_of(request.scope).bad_origin:
            raise HttpError(403, "forbidden", "Origin not allowed")
        if request.method != "POST":
            raise HttpError(405, "method_not_allowed", "Method Not Allowed", {"Allow": "POST"})
        if "token" in request.query_params:
            raise bad("the token must be in a header, such as Authorization: Bearer")
        if not self._gateway.is_ready:
            raise HttpError(503, "unavailable", "the gateway is stopping", {"Retry-After": "5"})
        if not (is_github := name == GITHUB and GITHUB in self._settings.presets):
            await self._check(request, "token", given_token(request))
        data = await read_bytes(request, MAX_BODY)
        if is_github:
            await self._check(request, "github.secret", signature=data)
        try:
            body = read_json(data)
        except ValueError as error:
            raise bad(f"invalid body: {error}") from None
        headers = {key: value for key, value in request.headers.items() if key not in _PRIVATE}
        received = Received(name, body, headers, dict(request.query_params))
        key = request.headers.get("idempotency-key", request.headers.get("x-github-delivery", ""))
        if name == "wake":
            wake = _convert(body, WakeBody)
            return self._wake(HookCall(wake.text, name, mode=wake.mode), None, key, {})
        if name == "agent":
            return self._run_agent(_convert(body, AgentBody), key)
        if is_github:  # its other headers are not signed
            key = f"signed:{hashlib.sha256(data).hexdigest()}"
        return self._map(received, key, is_github=is_github)

    async def _check(
        self, request: Request, name: str, candidate: str = "", signature: bytes | None = None
    ) -> None:
        """Refuse a request without the secret, or without a signature by it. Wrong guesses do not
        lock out a correct one. Raises `HttpError`."""
        loaded = self._gateway.loaded
        async with self._asking:  # resolving may start a program, so only once per configuration
            if self._secrets is None or self._secrets[0] is not loaded:
                self._secrets = loaded, await in_thread(hook_secrets, loaded)
        wanted = secret = self._secrets[1][name]
        if signature is not None:
            candidate = request.headers.get("x-hub-signature-256", "")
            made = hmac.new(secret.encode(), signature, hashlib.sha256).hexdigest()
            wanted = f"sha256={made}" if secret else ""
        place = self._gateway.place_of(request.scope)
        is_right, locked_s = same(candidate, wanted), self._limiter.locked_s(place)
        if is_right and (not locked_s or len(secret) >= MIN_SURE):
            return
        if locked_s:
            wait = {"Retry-After": str(round(locked_s) + 1)}
            raise HttpError(429, "rate_limited", "Too many failed attempts; retry later", wait)
        log.warning("wrong secret for a hook from %s", place.address)
        self._limiter.fail(place)
        raise HttpError(401, "unauthorized", "Unauthorized", {"WWW-Authenticate": "Bearer"})

    def _run_agent(self, body: AgentBody, key: str) -> Response:
        limit_s = body.timeout_seconds or TURN_S
        title, own = one_line(body.name, 120), (body.model, body.thinking, limit_s)
        call = HookCall(body.message, "agent", title, "", "", *own)
        settings, agent, session = self._settings, body.agent_id, ""
        if body.session_key and not settings.allow_request_session_key:
            raise bad("sessionKey: requests cannot choose it (hooks.allowRequestSessionKey)")
        if asked := body.session_key or settings.default_session_key or "":
            agent, session = self._session(asked, agent, is_asked=bool(body.session_key))
        agent, allowed = self._gateway.live.check_agent(agent), settings.allowed_agent_ids
        is_other = agent != self._gateway.loaded.config.agents.default_id()
        if is_other and allowed is not None and not {agent, "*"} & set(map(str.lower, allowed)):
            raise bad(f"agentId: requests cannot choose {agent!r} (hooks.allowedAgentIds)")
        key = body.idempotency_key or key
        return self._queue(call, agent, session, key, ignored(body), deliver=body.deliver)

    def _map(self, received: Received, key: str, *, is_github: bool) -> Response:
        """The action of the first matching mapping."""
        mappings = self._settings.mappings
        found = next((each for each in mappings if _fits(each, received)), None)
        if found is None and not is_github:
            raise HttpError(404, "not_found", "Not Found")
        event = received.headers.get("x-github-event", "")
        if is_github and not re.fullmatch("[a-z_]{1,60}", event):
            raise bad("X-GitHub-Event is missing")
        if is_github and event == "ping":
            return answer({"ok": True, "event": event})
        mapping = found or HookMapping(id=GITHUB, name=f"GitHub {event}")
        is_wake = mapping.action == "wake"
        template = (mapping.text_template if is_wake else mapping.message_template) or ""
        text, missing = render(template or "{{payload}}", received)
        if found is None:
            text = describe_event(event, received)
        if not text.strip():
            raise bad(f"the request lacks values of the template: {', '.join(missing)}")
        call = HookCall(
            cut(text, MAX_TEXT),
            mapping.id or mapping.match.path or f"mapping {mappings.index(mapping)}",
            one_line(mapping.name or "", 120),
            template,
            mapping.wake_mode if is_wake else "",
            mapping.model or "",
            mapping.thinking,
            mapping.timeout_seconds or TURN_S,
            not mapping.allow_unsafe_external_content,
        )
        more = {"missing": missing} if missing else {}
        if is_wake:
            return self._wake(call, mapping.agent_id, key, more)
        agent, session = mapping.agent_id, ""
        if asked := mapping.session_key or self._settings.default_session_key or "":
            name, lacking = render(asked, received, as_name)
            if lacking:
                raise bad(f"the session of this hook needs {', '.join(lacking)}")
            agent, session = self._session(name, agent, is_asked="{{" in asked)
        agent = self._gateway.live.check_agent(agent)
        return self._queue(call, agent, session, key, more, deliver=mapping.deliver)

    def _session(self, text: str, agent: str | None, *, is_asked: bool) -> tuple[str, str]:
        """The agent and key of a session; if the request chose it, it must be allowed."""
        key = self._gateway.live.resolve_key(text, agent)
        parsed = parse_key(key, self._gateway.loaded.config.session.main_key)
        prefixes = self._settings.allowed_session_key_prefixes
        prefixes = ["hook:"] if prefixes is None else [each for each in prefixes if each]
        is_allowed = any(each.startswith(tuple(prefixes)) for each in (parsed.name, key))
        if parsed.kind == "main":  # a prefix must not match it by accident
            is_allowed = parsed.name in prefixes or key in prefixes
        if (is_asked and not is_allowed) or parsed.depth or parsed.kind in ("cron", "node"):
            raise bad("sessionKey: not allowed for hooks (hooks.allowedSessionKeyPrefixes)")
        return parsed.agent, key

    def _wake(self, call: HookCall, agent: str | None, key: str, more: dict[str, Any]) -> Response:
        is_now, agent = call.mode == "now", self._gateway.live.check_agent(agent)
        shown = {"mode": call.mode, **more}
        return self._queue(call, agent, "", key, shown, deliver=is_now)

    def _queue(
        self,
        call: HookCall,
        agent: str,
        session: str,
        key: str,
        shown: dict[str, Any],
        *,
        deliver: bool,
    ) -> Response:
        """Accept a request, once per idempotency key."""
        job_runner = self._gateway.job_runner
        if not job_runner.settings.enabled:
            raise HttpError(503, "unavailable", "jobs are disabled, and hooks with them")
        row = job_runner.jobs().keep(job_of(call.hook, agent, deliver=deliver))
        if not row.job.enabled:
            raise HttpError(503, "unavailable", "this hook is disabled")
        name = hashlib.sha256(f"{call.hook}\0{agent}\0{key}".encode()).hexdigest()[:32]
        run = replace(
            new_run(row, "event", now_ms(), msgspec.json.encode(call).decode()),
            id=f"hook:{name if key else uuid.uuid4().hex}",
            session=session,
        )
        kept = job_runner.store.accept(run, MAX_WAITING, coalesce=bool(call.mode) and not key)
        if (kept.text, kept.session) != (run.text, run.session):
            raise bad("the idempotency key was used for another request")
        job_runner.scheduler.wake()
        is_new = kept is run
        if call.mode:
            outcome = "queued" if is_new else "coalesced"
            return answer({"ok": True, **shown, "eventOutcome": outcome})
        more = {} if is_new else {"duplicate": True}
        return answer({"ok": True, "runId": kept.id, **more, **shown}, 202 if is_new else 200)


def given_token(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return next((found for each in _TOKENS if (found := request.headers.get(each, ""))), "")


def _convert(body: dict[str, Any], kind: type[Any]) -> Any:
    try:
        return msgspec.convert(body, kind)
    except ValueError as error:
        raise bad(f"invalid body: {error}") from None


def _fits(mapping: HookMapping, received: Received) -> bool:
    path, source = mapping.match.path, mapping.match.source
    is_here = path is None or path.strip("/") == received.name
    return is_here and (source is None or source == received.body.get("source"))


def _refusal(error: HttpError) -> Response:
    if error.status in (401, 403, 404, 405):
        headers = SAFE_HEADERS | error.headers
        return PlainTextResponse(error.message, error.status, headers)
    return answer({"ok": False, "error": error.message}, error.status, error.headers)
