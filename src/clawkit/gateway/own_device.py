"""The device identity of this home, for remote gateways.

A gateway gets the configured secret once, to pair this device. After that it gets a device token,
which is useless without the key of this home: another program that later listens at its address
learns no reusable secret. It can still relay a login to the gateway and use that connection: only
TLS with a known certificate binds a login to its channel.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from typing import Any

from clawkit.config.paths import home
from clawkit.errors import ToolError, ToolInputError
from clawkit.gateway.client import CallError, Link, as_object
from clawkit.store import private_dir, write_atomic

_MAX_BYTES = 1024**2


def tokens_file() -> str:
    """The file with this device's tokens, by gateway address."""
    return os.path.join(home(os.environ), "gateway", "device-tokens.json")


def log_in_as_device(
    link: Link, params: dict[str, Any], challenge: dict[str, Any], timeout_s: float
) -> Any:
    """Log in with the device token for this gateway, else with its secret; returns the hello."""
    url, tokens = link.target.url, _read_tokens()
    if token := tokens.get(url, ""):
        params["auth"] = {"deviceToken": token}
    elif not link.target.secret:
        params["auth"] = {}
    params["device"] = _claim(params, challenge)
    try:
        hello = link.call("connect", params, timeout_s)
    except CallError as error:
        raise CallError(error.error | {"message": f"{url}: {error}{_advise(error)}"}) from None
    given = as_object(as_object(hello).get("auth")).get("deviceToken")
    if given and isinstance(given, str) and given != token:
        private_dir(os.path.dirname(tokens_file()))
        write_atomic(tokens_file(), json.dumps(tokens | {url: given}).encode())
    return hello


def _advise(error: CallError) -> str:
    if error.code == "PAIRING_REQUIRED":
        from shlex import quote  # the command to type must not be injectable

        params = json.dumps({"requestId": error.error["details"].get("requestId", "")})
        how = f"clawkit gateway call device.pair.approve --params {quote(params)}"
        return f"; on its machine, type: {how}"
    if error.code in ("AUTH_DEVICE_TOKEN_MISMATCH", "AUTH_SCOPE_MISMATCH"):
        return (
            ". It no longer knows this device, or another program listens there. If you "
            f"trust it, remove {tokens_file()} to log in with its secret again"
        )
    if error.code.startswith("AUTH_"):
        return "; set gateway.remote.token or gateway.remote.password, or give --token"
    return ""


def _read_tokens() -> dict[str, str]:
    try:
        with open(tokens_file(), "rb") as file:
            found = json.loads(file.read(_MAX_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        raise ToolError(f"{tokens_file()} cannot be read; remove it, to pair again") from None
    return found if isinstance(found, dict) else {}


def own_identity() -> tuple[Any, str, str]:
    """The private key of this home, its id as a device, and its public key."""
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
    except ImportError:
        from clawkit.installation import how_to_add

        how = how_to_add("gateway")
        raise ToolInputError(f"a remote gateway needs cryptography; install with: {how}") from None
    from clawkit.gateway.devices import load_key

    seed = load_key(os.path.join(home(os.environ), "gateway", "own-device.key"))
    key = Ed25519PrivateKey.from_private_bytes(seed)
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return key, hashlib.sha256(public).hexdigest(), _base64(public)


def _claim(params: dict[str, Any], challenge: dict[str, Any]) -> dict[str, Any]:
    """This device, with a signature over the challenge."""
    (key, device, public), client, auth = own_identity(), params["client"], params["auth"]
    at, nonce = challenge.get("ts", 0), str(challenge.get("nonce", ""))
    secret = auth.get("token") or auth.get("deviceToken") or ""
    scopes = ",".join(params["scopes"])
    about = ("v3", device, client["id"], client["mode"], params["role"], scopes)
    text = "|".join((*about, str(at), secret, nonce, client["platform"], ""))
    return {
        "id": device,
        "publicKey": public,
        "signature": _base64(key.sign(text.encode())),
        "signedAt": at,
        "nonce": nonce,
    }


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
