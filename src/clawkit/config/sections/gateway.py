"""The gateway, and what it runs: `gateway`, `cron`, `hooks`, heartbeats, and chat `commands`."""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from msgspec import Meta

from clawkit.config.gateway_address import read_address
from clawkit.config.section import Conflict, Count, Port, Positive, SecretInput, Section
from clawkit.config.sections.shared import People, SsrfPolicy, Switch, Thinking
from clawkit.text import parse_time

_OPEN_BINDS = ("lan", "tailnet")
_CLOCK = {"start": r"([01][0-9]|2[0-3]):[0-5][0-9]", "end": r"([01][0-9]|2[0-3]):[0-5][0-9]|24:00"}
_MIN_BEAT_S, _MAX_BEAT_S = 60, 30 * 86_400
_FINGERPRINT = re.compile(r"(?i)(sha256[:/=] ?)?([0-9a-f]{2}:?){31}[0-9a-f]{2}")


class RateLimit(Section):
    max_attempts: Positive = 10  #: Failures before a lockout.
    window_ms: Positive = 60_000  #: Milliseconds in which they count.
    lockout_ms: Positive = 300_000  #: Milliseconds of lockout.
    exempt_loopback: bool = True  #: Do not limit this machine.


class TrustedProxy(Section):
    user_header: str | None = None  #: Header with the user's name.
    required_headers: list[str] = []  #: Headers a request must have.
    allow_users: list[str] | None = None  #: Users who may log in; unset means all.
    allow_loopback: bool = False  #: Trust a proxy on this machine.


class GatewayAuth(Section):
    """Who may connect."""

    NEEDED = {"password": ("mode", "password")}

    mode: Literal["none", "token", "password", "trusted-proxy"] = "token"  #: How clients log in.
    token: SecretInput | None = None  #: The token; unset generates one at first start.
    password: SecretInput | None = None  #: The password.
    allow_tailscale: bool = False  #: Accept the identity Tailscale vouches for.
    rate_limit: RateLimit = RateLimit()  #: Limit on failed logins.
    trusted_proxy: TrustedProxy = TrustedProxy()  #: Login by a proxy in front of the gateway.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        yield from super().conflicts(raw)
        header = (raw.get("trustedProxy") or {}).get("userHeader")
        if raw.get("mode") == "trusted-proxy" and not header:
            yield (
                "trustedProxy",
                "has no userHeader although mode is 'trusted-proxy'",
                "Name the header with the user's name",
            )


class GatewayTls(Section):
    enabled: bool = False  #: Serve over TLS.
    auto_generate: bool = True  #: Generate a certificate if there is none.
    cert_path: str | None = None  #: File of the certificate.
    key_path: str | None = None  #: File of the private key.
    ca_path: str | None = None  #: File of certificates to trust.


class GatewayRemote(Section):
    url: str | None = None  #: Its address, ws:// or wss://.
    token: SecretInput | None = None  #: Its token.
    password: SecretInput | None = None  #: Its password.
    tls_fingerprint: str | None = None  #: SHA-256 fingerprint its certificate must have.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        yield from super().conflicts(raw)
        try:
            if isinstance(url := raw.get("url"), str) and url:
                read_address(url)
        except ValueError as error:
            yield "url", str(error), "clawkit config set gateway.remote.url wss://HOST:PORT"
        given = raw.get("tlsFingerprint")
        if isinstance(given, str) and not _FINGERPRINT.fullmatch(given):
            yield (
                "tlsFingerprint",
                "is not a SHA-256 fingerprint: 64 hexadecimal digits, with or without colons",
                "On its machine, this prints it: clawkit gateway status --json",
            )


class GatewayReload(Section):
    mode: Literal["hybrid", "off", "hot", "restart"] = "hybrid"
    """How a changed file is applied; `hot` never restarts, `off` does not watch it."""


class AllowDeny(Section):
    allow: list[str] = []  #: Allowed in addition to the built-in list.
    deny: list[str] = []  #: Never allowed.


class NodePairing(Section):
    auto_approve_local: bool = True  #: Approve nodes on this machine without asking.
    auto_approve_cidrs: list[str] = []  #: Networks whose nodes are approved without asking.


class NodeBrowser(Section):
    mode: Literal["auto", "manual", "off"] = "auto"  #: Use them always, on request, or never.
    node: str | None = None  #: Node to use.


class GatewayNodes(Section):
    """Devices that connect as nodes."""

    commands: AllowDeny = AllowDeny()  #: Commands that may be sent to nodes.
    allow_commands: list[str] = []  #: Older form of `commands.allow`.
    deny_commands: list[str] = []  #: Older form of `commands.deny`.
    pairing: NodePairing = NodePairing()  #: How nodes are approved.
    browser: NodeBrowser = NodeBrowser()  #: Browsers on nodes.


class ControlUi(Section):
    enabled: bool = True  #: Serve it.
    base_path: str | None = None  #: Path it is served at.
    allowed_origins: list[str] = []  #: Web origins that may connect besides the gateway's own.

    @property
    def base(self) -> str:
        """The path without a slash at its end."""
        return (self.base_path or "").rstrip("/")

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        yield from super().conflicts(raw)
        path = raw.get("basePath")
        if isinstance(path, str) and not re.fullmatch(r"(/[A-Za-z0-9_-]+)*/?", path):
            yield "basePath", "is not a path", "Use one such as /clawkit"


class HttpEndpoint(Section):
    enabled: bool = False  #: Serve it.


class HttpEndpoints(Section):
    chat_completions: HttpEndpoint = HttpEndpoint()
    """`/v1/chat/completions` and `/v1/models`, with agents as models."""
    responses: HttpEndpoint = HttpEndpoint()  #: `/v1/responses`, with agents as models.


class GatewayHttp(Section):
    endpoints: HttpEndpoints = HttpEndpoints()  #: Endpoints that are off unless turned on.


class GatewaySettings(Section):
    """The server that other programs and devices connect to."""

    NEEDED = {"customBindHost": ("bind", "custom")}

    mode: Literal["local", "remote"] = "local"  #: Run it here (default), or use a remote one.
    port: Port = 18789  #: Port for WebSocket and HTTP.
    bind: Literal["loopback", "lan", "tailnet", "auto", "custom"] = "loopback"  #: Where it listens.
    custom_bind_host: str | None = None  #: Address to listen on for bind custom.
    auth: GatewayAuth = GatewayAuth()
    tls: GatewayTls = GatewayTls()  #: Encryption of connections.
    trusted_proxies: list[str] = []  #: Proxies whose forwarded client addresses are trusted.
    remote: GatewayRemote = GatewayRemote()  #: The gateway of mode remote.
    use_for_commands: bool = True  #: Commands use the gateway of this home while it is running.
    reload: GatewayReload = GatewayReload()  #: What happens when the configuration file changes.
    tools: AllowDeny = AllowDeny()  #: Tools that may be called over HTTP.
    http: GatewayHttp = GatewayHttp()  #: APIs of other vendors that the gateway serves.
    nodes: GatewayNodes = GatewayNodes()
    control_ui: ControlUi = ControlUi()  #: The web interface.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        yield from super().conflicts(raw)
        bind, auth = raw.get("bind"), raw.get("auth") or {}
        if bind in _OPEN_BINDS and auth.get("mode") == "none":
            yield (
                "bind",
                f"{bind!r} lets others connect, and auth.mode is 'none'",
                "Use loopback, or set auth.mode to token or password",
            )


class FailureAlert(Section):
    enabled: bool = False  #: Send alerts.
    after: Positive = 2  #: Failures in a row before an alert.
    cooldown_ms: Count = 3_600_000  #: Milliseconds between alerts of one job.
    include_skipped: bool = False  #: Count skipped runs as failures.
    mode: Literal["announce", "webhook"] | None = None  #: Send to a channel, or to a web address.
    channel: str | None = None  #: Channel to send to.
    to: str | None = None  #: Person, group or web address to send to.
    account_id: str | None = None  #: Account to send from.


class Cron(Section):
    """Scheduled jobs."""

    enabled: bool = True  #: Run scheduled jobs.
    max_concurrent_runs: Positive = 4  #: How many jobs run at once.
    skip_missed_jobs: bool = False  #: Skip runs missed while clawkit was down.
    triggers: Switch = Switch()  #: Conditions that decide whether a job runs.
    webhook_token: SecretInput | None = None  #: Bearer token sent with results to a web address.
    webhook_ssrf_policy: SsrfPolicy = SsrfPolicy()  #: Which addresses results may be sent to.
    session_retention: str | bool = "24h"  #: How long to keep sessions of jobs; false is forever.
    failure_alert: FailureAlert = FailureAlert()  #: Alerts about a job that keeps failing.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        if raw.get("sessionRetention") is True:
            yield "sessionRetention", "true is not a duration", "Use one such as 24h, or false"


class ActiveHours(Section):
    start: str | None = None  #: First minute, as HH:MM; unset is 00:00.
    end: str | None = None
    """First minute after them, as HH:MM; unset is 24:00. Before `start`: on the next day."""
    timezone: str | None = None
    """Time zone such as `Europe/Berlin`, `local` for the machine's; unset is the user's."""

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        for key in ("start", "end"):
            given = raw.get(key)
            if given is not None and not re.fullmatch(_CLOCK[key], given):
                yield key, f"{given!r} is not a time of day", "Write HH:MM; 24:00 only as end"
        if raw.get("start") and raw.get("start") == raw.get("end"):
            yield "end", "the same as start", "Remove both for the whole day"
        zone = raw.get("timezone")
        if zone not in (None, "user", "local") and not _is_zone(zone):
            yield "timezone", f"unknown time zone {zone!r}", "Use one such as Europe/Vienna"


def _is_zone(name: str) -> bool:
    from zoneinfo import ZoneInfo

    try:
        return bool(ZoneInfo(name))
    except (KeyError, ValueError, OSError):
        return False


class Heartbeat(Section):
    """A turn at regular intervals that checks whether something needs attention."""

    every: str | None = None
    """Time between turns, such as `1h`; `0m` is off. Unset is 30m if HEARTBEAT.md has content."""
    target: str | None = None
    """Where to report: `owner` or `last` is the main session, `none` is nowhere."""
    to: str | None = None  #: Person or group on that channel.
    account_id: str | None = None  #: Account to send from.
    session: str | None = None  #: Session in which the turn happens; unset is one of its own.
    direct_policy: Literal["allow", "block"] = "allow"  #: Whether reports may go to direct chats.
    model: str | None = None  #: Model of the turn, in a session of its own.
    prompt: str | None = None  #: Replaces the prompt of the turn, which follows HEARTBEAT.md.
    timeout_seconds: Positive | None = None
    """Seconds until the turn is stopped; unset is `every`, at most 600."""
    light_context: bool = False  #: Leave out workspace files, in a session of its own.
    isolated_session: bool = False  #: Use a fresh session each time.
    active_hours: ActiveHours = ActiveHours()  #: Time of day for these turns; unset is always.
    max_cost_per_day: Annotated[float, Meta(gt=0)] = 1.0  #: Dollars per day for these turns.
    max_runs_per_day: Positive | None = None
    """Turns per day; unset is 300, or as many as `every` gives."""

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        every = raw.get("every")
        if every is None:
            return
        try:
            seconds = parse_time(every)
        except ValueError as error:
            yield "every", str(error), "Write a number and m, h or d; 0m turns heartbeats off"
        else:
            if seconds and not _MIN_BEAT_S <= seconds <= _MAX_BEAT_S:
                yield "every", f"{every!r} is not between 1m and 30d", "Use 0m to turn them off"


class CommandSettings(Section):
    """Slash commands that people may type in a chat."""

    native: bool | Literal["auto"] = "auto"  #: Register commands with the channel.
    text: bool = True  #: Read commands from plain messages.
    bash: bool = False  #: Allow `!command`.
    bash_foreground_ms: Count = 2_000  #: Milliseconds until `!command` goes to the background.
    config: bool = False  #: Allow `/config`.
    debug: bool = False  #: Allow `/debug`.
    restart: bool = False  #: Allow restarting by command and by the `gateway` tool.
    allow_from: dict[str, People] | None = None  #: Channel to the senders who may use commands.
    owner_allow_from: People | None = None  #: Senders treated as owner, as `id` or `channel:id`.


class HookMatch(Section):
    path: str | None = None  #: Path below the hook path; unset is any.
    source: str | None = None  #: Value of `source` in the request; unset is any.


class HookMapping(Section):
    """What one kind of request does."""

    id: str | None = None  #: Display name of the mapping.
    match: HookMatch = HookMatch()  #: Which requests it is for.
    action: Literal["wake", "agent"] = "agent"  #: Report an event, or run an agent (default).
    name: str | None = None  #: Name shown for the request.
    agent_id: str | None = None  #: Agent that runs.
    session_key: str | None = None  #: Session in which it runs; unset is one for each request.
    wake_mode: Literal["now", "next-heartbeat"] = "now"  #: With action `wake`: when it is read.
    message_template: str | None = None
    """Message for the agent; `{{name}}` inserts values of the request. Unset is the whole body."""
    text_template: str | None = None  #: The same for action `wake`.
    deliver: bool = True  #: Announce the answer in the main session.
    channel: str | None = None  #: Channel of the reply.
    to: str | None = None  #: Person or group of the reply.
    model: str | None = None  #: Model of the run.
    thinking: Thinking | None = None  #: How long the model may think.
    timeout_seconds: Positive | None = None  #: Seconds until the run is stopped.
    allow_unsafe_external_content: bool = False  #: Do not mark the request as untrusted.


class GithubHook(Section):
    """Webhooks of GitHub."""

    secret: SecretInput | None = None  #: Secret of the webhook, with which GitHub signs requests.


class WebhookSettings(Section):
    """Webhooks: web requests that start a turn."""

    NEEDED = {"token": ("enabled", True)}

    enabled: bool = False  #: Accept webhooks.
    path: str = "/hooks"  #: Path on the gateway.
    token: SecretInput | None = None  #: Token that requests must send.
    default_session_key: str | None = None  #: Session for requests that name none.
    allow_request_session_key: bool = False  #: Let requests choose the session.
    allowed_session_key_prefixes: list[str] | None = None
    """Prefixes of the sessions they may use; unset is `hook:`."""
    allowed_agent_ids: list[str] | None = None  #: Agents requests may choose; unset means all.
    presets: list[Literal["github", "gmail"]] = []
    """Hooks that need no mapping: `github`. `gmail` has no effect in this version."""
    github: GithubHook = GithubHook()  #: Webhooks of GitHub, for the preset `github`.
    mappings: list[HookMapping] = []  #: What each kind of request does.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        yield from super().conflicts(raw)
        path = raw.get("path", "/hooks")
        if not re.fullmatch(r"(?:/[\w.~-]+)+/?", path):
            yield "path", "is not the path of an address", "Use one such as /hooks"
        is_used = raw.get("enabled") and "github" in raw.get("presets", ())
        if is_used and not (raw.get("github") or {}).get("secret"):
            yield "github", "secret is missing although presets has 'github'", "Set github.secret"
