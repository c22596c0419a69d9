"""The server that other programs and devices connect to: `gateway`."""

from collections.abc import Iterable
from typing import Any, Literal

from clawkit.config.section import Conflict, Port, Positive, SecretInput, Section

_OPEN_BINDS = ("lan", "tailnet")


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

    mode: Literal["none", "token", "password", "trusted-proxy"] = "token"  #: How clients log in.
    token: SecretInput | None = None  #: The token; unset generates one at first start.
    password: SecretInput | None = None  #: The password.
    allow_tailscale: bool = False  #: Accept the identity Tailscale vouches for.
    rate_limit: RateLimit = RateLimit()  #: Limit on failed logins.
    trusted_proxy: TrustedProxy = TrustedProxy()  #: Login by a proxy in front of the gateway.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        if raw.get("mode") == "password" and not raw.get("password"):
            yield "password", "missing although mode is 'password'", "Set a password"
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


class GatewayReload(Section):
    mode: Literal["hybrid", "off", "hot", "restart"] = "hybrid"  #: How a changed file is applied.


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

    def allowed(self) -> list[str]:
        """Commands allowed by either spelling."""
        return [*self.commands.allow, *self.allow_commands]

    def denied(self) -> list[str]:
        """Commands denied by either spelling."""
        return [*self.commands.deny, *self.deny_commands]


class ControlUi(Section):
    enabled: bool = True  #: Serve it.
    base_path: str | None = None  #: Path it is served at.
    allowed_origins: list[str] = []  #: Web origins that may connect besides the gateway's own.


class HttpEndpoint(Section):
    enabled: bool = False  #: Serve it.


class HttpEndpoints(Section):
    chat_completions: HttpEndpoint = HttpEndpoint()
    """`/v1/chat/completions` and `/v1/models`, with agents as models."""
    responses: HttpEndpoint = HttpEndpoint()  #: `/v1/responses`, with agents as models.


class GatewayHttp(Section):
    endpoints: HttpEndpoints = HttpEndpoints()  #: Endpoints that are off unless turned on.


class Gateway(Section):
    """The server that other programs and devices connect to."""

    mode: Literal["local", "remote"] = "local"  #: Run it here (default), or use a remote one.
    port: Port = 18789  #: Port for WebSocket and HTTP.
    bind: Literal["loopback", "lan", "tailnet", "auto", "custom"] = "loopback"  #: Who can reach it.
    custom_bind_host: str | None = None  #: Address to listen on for bind custom.
    auth: GatewayAuth = GatewayAuth()
    tls: GatewayTls = GatewayTls()  #: Encryption of connections.
    trusted_proxies: list[str] = []  #: Proxies whose forwarded client addresses are trusted.
    remote: GatewayRemote = GatewayRemote()  #: The gateway of mode remote.
    reload: GatewayReload = GatewayReload()  #: What happens when the configuration file changes.
    tools: AllowDeny = AllowDeny()  #: Tools that may be called over HTTP.
    http: GatewayHttp = GatewayHttp()  #: APIs of others that the gateway serves, too.
    nodes: GatewayNodes = GatewayNodes()
    control_ui: ControlUi = ControlUi()  #: The web interface.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        bind, auth = raw.get("bind"), raw.get("auth") or {}
        if bind in _OPEN_BINDS and auth.get("mode") == "none":
            yield (
                "bind",
                f"{bind!r} lets others connect, and auth.mode is 'none'",
                "Use loopback, or set auth.mode to token or password",
            )
        if bind == "custom" and not raw.get("customBindHost"):
            yield "customBindHost", "missing although bind is 'custom'", "Set the address"
