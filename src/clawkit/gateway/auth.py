"""Whether a client may connect, as whom, and with which scopes: one pure function.

`decide` gets everything it depends on and changes nothing. It refuses everything it cannot admit.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, Literal

from msgspec import Struct

from clawkit.gateway.identity import WORDS, find_problem, normal
from clawkit.gateway.origin import BAD_ORIGIN, RequestOrigin
from clawkit.gateway.protocol import PROBE_PROTOCOL, PROTOCOL, Connect, GatewayError, Role, invalid
from clawkit.gateway.scopes import ALL, lacking

Mode = Literal["none", "token", "password", "trusted-proxy"]
Secret = Literal["token", "password"]
Method = Literal["none", "token", "password", "device-token", "bootstrap-token", "trusted-proxy"]
Reason = Literal["not-paired", "role-upgrade", "scope-upgrade", "metadata-upgrade"]
_TRUSTED_LOCAL = (("cli", "cli"), ("gateway-client", "backend"))
"""Programs on this machine that need no device of their own."""
_PAIRING = {
    "not-paired": "device is not approved yet",
    "role-upgrade": "device is asking for a role that is not approved yet",
    "scope-upgrade": "device is asking for more scopes than currently approved",
    "metadata-upgrade": "device has changed its platform or family",
}


_REFUSALS = {
    "TOKEN_MISMATCH": "unauthorized: gateway token mismatch",
    "TOKEN_MISSING": "unauthorized: gateway token missing",
    "PASSWORD_MISMATCH": "unauthorized: gateway password mismatch",
    "PASSWORD_MISSING": "unauthorized: gateway password missing",
    "DEVICE_TOKEN_MISMATCH": "unauthorized: device token mismatch",
    "BOOTSTRAP_TOKEN_INVALID": "unauthorized: bootstrap token invalid or expired",
    "SCOPE_MISMATCH": "device token scope mismatch",
    "TRUSTED_PROXY_REJECTED": (
        "unauthorized: no trusted proxy named a user who may log in; connect through the "
        "proxy (gateway.trustedProxies, gateway.auth.trustedProxy)"
    ),
    "RATE_LIMITED": "unauthorized: too many failed authentication attempts; retry later",
}
_GUESSES = (
    "TOKEN_MISMATCH",
    "PASSWORD_MISMATCH",
    "DEVICE_TOKEN_MISMATCH",
    "BOOTSTRAP_TOKEN_INVALID",
)
"""Refusals of a wrong secret."""


MIN_STRONG = 32
"""Minimum characters of a secret that is beyond guessing."""


class AuthPolicy(Struct, frozen=True):
    """How clients log in."""

    mode: Mode
    secret: str
    """In the mode trusted-proxy, a token for programs on this machine alone."""
    auto_approve: bool = True
    """Approve new devices on this machine, and nodes in `auto_networks`, without asking."""
    own_secret: str = ""
    """The secret of this home's commands: only they can read it, so they need no device even if a
    proxy hides that they are on this machine."""

    def is_strong(self, candidate: str | None) -> bool:
        """Whether it is the secret, and long enough not to be a guess."""
        return len(self.secret) >= MIN_STRONG and same(candidate or "", self.secret)


class Grant(Struct, frozen=True):
    """The approved scopes of a device in one role."""

    scopes: tuple[str, ...] = ()
    token_hash: str = ""
    """Hash of its device token; empty if revoked."""


class KnownDevice(Struct, frozen=True):
    """A paired device."""

    platform: str
    family: str
    grants: dict[str, Grant]


class Attempt(Struct, frozen=True):
    """A connect request and the known facts about its sender."""

    connect: Connect
    origin: RequestOrigin
    nonce: str
    now_ms: int
    device: KnownDevice | None = None
    """The paired device of that id."""
    in_auto_network: bool = False
    has_code: bool = False
    """Whether its `bootstrapToken` was a valid code, which is now used up."""


class Admit(Struct, frozen=True):
    """The client may connect."""

    role: Role
    scopes: tuple[str, ...]
    method: Method
    approve: bool = False
    """Whether to approve its device first, without asking."""


class Pair(Struct, frozen=True):
    """A person has to approve the device first."""

    role: Role
    reason: Reason


class Refuse(Struct, frozen=True):
    """The client may not connect."""

    error: GatewayError
    close: int = 1008
    is_guess: bool = False
    """Whether a secret was wrong, which counts towards the lockout."""


Decision = Admit | Pair | Refuse


def hash_token(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def same(candidate: str, expected: str) -> bool:
    """Compare two secrets in constant time; an empty one equals nothing."""
    one, other = (each.encode("utf-8", "surrogatepass") for each in (candidate, expected))
    return bool(one) and bool(other) and hmac.compare_digest(one, other)


def is_beyond_guessing(policy: AuthPolicy, connect: Connect, device: KnownDevice | None) -> bool:
    """Whether a client has a secret that we generated for it, or a long one. Those cannot be
    guessed, so the client neither waits for the guesses of others nor is locked out with them."""
    if policy.is_strong(connect.auth.token) or policy.is_strong(connect.auth.password):
        return True
    token = connect.auth.device_token or connect.auth.token or ""
    grant = device.grants.get(connect.role, Grant()) if device is not None else Grant()
    return same(token, policy.own_secret) or same(hash_token(token), grant.token_hash)


def decide(policy: AuthPolicy, attempt: Attempt) -> Decision:
    """Judge a connect request. An unexpected error also refuses the client."""
    connect = attempt.connect
    if (refused := _check_form(connect)) is not None:
        return refused
    role: Role = "node" if connect.role == "node" else "operator"
    if attempt.origin.bad_origin:
        return Refuse(invalid(BAD_ORIGIN, {"code": "CONTROL_UI_ORIGIN_NOT_ALLOWED"}))
    is_plain = connect.device is None and role == "operator" and not attempt.origin.is_browser
    if is_plain and same(connect.auth.token or "", policy.own_secret):
        return Admit(role, tuple(connect.scopes), "token")
    if connect.device is not None:
        problem = find_problem(connect, connect.device, attempt.nonce, attempt.now_ms)
        if problem is not None:
            message, reason = WORDS[problem]
            return Refuse(invalid(message, {"code": problem, "reason": reason}))
    method = _authenticate(policy, attempt, role)
    if isinstance(method, Refuse):
        return method
    if connect.device is None:
        return _admit_without_device(attempt, role, method)
    return _admit_device(policy, attempt, role, method)


def _check_form(connect: Connect) -> Refuse | None:
    low, high = connect.min_protocol, connect.max_protocol
    is_old_node = connect.role == "node" and connect.client.mode == "node"
    is_spoken = low <= PROTOCOL <= high or (is_old_node and low <= PROBE_PROTOCOL <= high)
    if not is_spoken:
        details = {
            "code": "PROTOCOL_MISMATCH",
            "clientMinProtocol": low,
            "clientMaxProtocol": high,
            "expectedProtocol": PROTOCOL,
            "minimumProbeProtocol": PROBE_PROTOCOL,
        }
        return Refuse(invalid("protocol mismatch", details), close=1002)
    if connect.role not in ("operator", "node"):
        return Refuse(invalid(f"invalid role: {connect.role}"))
    unknown = [scope for scope in connect.scopes if scope not in ALL]
    if unknown:
        return Refuse(invalid(f"invalid connect params: unknown scope '{unknown[0]}'"))
    return None


def _authenticate(policy: AuthPolicy, attempt: Attempt, role: Role) -> Method | Refuse:
    """The kind of secret that authenticates the client."""
    auth, device = attempt.connect.auth, attempt.connect.device
    given = [each for each in (auth.token, auth.password) if each]
    if policy.mode == "none":
        client = attempt.connect.client
        is_backend = (client.id, client.mode) == ("gateway-client", "backend")
        if device is None and not (is_backend and attempt.origin.is_local):
            return _needs_device()
        return "none"
    if policy.mode == "trusted-proxy":
        if attempt.origin.user:
            return "trusted-proxy"
        if not attempt.origin.is_local:
            return _refuse("TRUSTED_PROXY_REJECTED")
    kind: Secret = "password" if policy.mode == "password" else "token"
    wrong = _refuse(f"{kind.upper()}_{'MISMATCH' if given else 'MISSING'}")
    if any(same(each, policy.secret) for each in given):
        return kind
    if device is None:
        return wrong if given else _needs_device()
    if auth.bootstrap_token:
        is_valid = attempt.has_code and role == "operator"
        return "bootstrap-token" if is_valid else _refuse("BOOTSTRAP_TOKEN_INVALID")
    token = auth.device_token or auth.token or ""
    if not token:
        return wrong
    grant = attempt.device.grants.get(role) if attempt.device else None
    if grant is None or not same(hash_token(token), grant.token_hash):
        return _refuse("DEVICE_TOKEN_MISMATCH") if auth.device_token else wrong
    if lacking(grant.scopes, attempt.connect.scopes):
        return _refuse("SCOPE_MISMATCH")
    return "device-token"


def _admit_without_device(attempt: Attempt, role: Role, method: Method) -> Decision:
    client = attempt.connect.client
    if role == "node":
        return _needs_device()
    is_trusted = attempt.origin.is_local and (client.id, client.mode) in _TRUSTED_LOCAL
    is_trusted = is_trusted and not attempt.origin.is_browser
    return Admit(role, tuple(attempt.connect.scopes) if is_trusted else (), method)


def _admit_device(policy: AuthPolicy, attempt: Attempt, role: Role, method: Method) -> Decision:
    scopes = tuple(dict.fromkeys(attempt.connect.scopes))
    reason = _why_unpaired(attempt, role)
    if reason is None:
        return Admit(role, scopes, method)
    # A device token is valid only for what was approved.
    if method == "bootstrap-token":  # creating the code was the approval
        return Admit(role, scopes, method, approve=True)
    is_near = attempt.origin.is_local or (role == "node" and attempt.in_auto_network)
    if policy.auto_approve and is_near and method != "device-token":
        return Admit(role, scopes, method, approve=True)
    return Pair(role, reason)


def _why_unpaired(attempt: Attempt, role: Role) -> Reason | None:
    known, client = attempt.device, attempt.connect.client
    if known is None:
        return "not-paired"
    grant = known.grants.get(role)
    if grant is None:
        return "role-upgrade"
    if lacking(grant.scopes, attempt.connect.scopes):
        return "scope-upgrade"
    pairs = (client.platform, known.platform), (client.device_family, known.family)
    is_same = all(normal(now) == normal(before) for now, before in pairs)
    return None if is_same else "metadata-upgrade"


def _needs_device() -> Refuse:
    details = {"code": "DEVICE_IDENTITY_REQUIRED"}
    return Refuse(GatewayError("NOT_PAIRED", "device identity required", details))


def _refuse(code: str) -> Refuse:
    """A refusal from the table; errors of a secret count as guesses."""
    is_guess = code in _GUESSES
    step = "update_auth_credentials" if is_guess else "update_auth_configuration"
    return Refuse(invalid(_REFUSALS[code], _details(code, step)), is_guess=is_guess)


def _details(code: str, step: str) -> dict[str, Any]:
    reason = "scope-mismatch" if code == "SCOPE_MISMATCH" else code.lower()
    details = {"code": f"AUTH_{code}", "authReason": reason, "recommendedNextStep": step}
    is_ours = code in ("TOKEN_MISMATCH", "PASSWORD_MISMATCH")
    return details | {"canRetryWithDeviceToken": is_ours}


def rate_limited(retry_ms: int) -> GatewayError:
    details = _details("RATE_LIMITED", "wait_then_retry")
    return GatewayError("INVALID_REQUEST", _REFUSALS["RATE_LIMITED"], details, retry_ms=retry_ms)


def pairing_required(
    pair: Pair, connect: Connect, request_id: str, paired: KnownDevice | None
) -> GatewayError:
    """The answer to a device that waits for approval."""
    device = connect.device.id if connect.device else ""
    details: dict[str, Any] = {
        "code": "PAIRING_REQUIRED",
        "reason": pair.reason,
        "requestId": request_id,
        "deviceId": device,
        "requestedRole": pair.role,
        "requestedScopes": list(connect.scopes),
    }
    if paired is not None:
        grant = paired.grants.get(pair.role) or Grant()
        details |= {"approvedRoles": list(paired.grants), "approvedScopes": list(grant.scopes)}
    message = f"pairing required: {_PAIRING[pair.reason]}"
    return GatewayError("NOT_PAIRED", message, details)
