"""How model and media providers are reached over HTTP."""

from collections.abc import Iterable
from typing import Any, Literal

from clawkit.config.section import Conflict, SecretInput, Section
from clawkit.config.sections.shared import Headers


class RequestAuth(Section):
    """How the credential is sent."""

    mode: Literal["provider-default", "authorization-bearer", "header"] = "provider-default"
    """The provider's own way, `Authorization: Bearer`, or a header of your choice."""
    token: SecretInput | None = None
    """Credential for `authorization-bearer`."""
    header_name: str | None = None
    """Header for mode `header`."""
    value: SecretInput | None = None
    """Credential for mode `header`."""
    prefix: str | None = None
    """Text before the credential in mode `header`."""

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        mode = raw.get("mode")
        needed = {"authorization-bearer": ("token",), "header": ("headerName", "value")}
        for key in needed.get(str(mode), ()):
            if raw.get(key) is None:
                yield key, f"missing although mode is {mode!r}", f"Set {key} or change mode"


class Tls(Section):
    """TLS settings of one connection; certificates are given as PEM text or secrets."""

    ca: SecretInput | None = None
    """Certificates to trust instead of the system's."""
    cert: SecretInput | None = None
    """Client certificate."""
    key: SecretInput | None = None
    """Private key of the client certificate."""
    passphrase: SecretInput | None = None
    """Passphrase of the private key."""
    server_name: str | None = None
    """Name to expect in the certificate."""
    insecure_skip_verify: bool = False
    """Accept any certificate; only for tests on your own machine."""


class RequestProxy(Section):
    """The HTTP proxy of a provider."""

    mode: Literal["env-proxy", "explicit-proxy"]
    """Take the proxy from HTTP_PROXY and HTTPS_PROXY, or from `url`."""
    url: str | None = None
    """Address of the proxy for mode `explicit-proxy`."""
    tls: Tls | None = None
    """TLS settings towards the proxy."""

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        if raw["mode"] == "explicit-proxy" and not raw.get("url"):
            yield "url", "missing although mode is 'explicit-proxy'", "Set url or change mode"


class Request(Section):
    """Transport settings of a provider's requests."""

    headers: Headers = {}
    """Extra headers; values may be secret references."""
    auth: RequestAuth | None = None
    """How the credential is sent."""
    proxy: RequestProxy | None = None
    """HTTP proxy for these requests."""
    tls: Tls | None = None
    """TLS settings for direct connections."""
    allow_private_network: bool | None = None
    """Allow addresses in private networks; unset allows this machine only, false not even that."""
