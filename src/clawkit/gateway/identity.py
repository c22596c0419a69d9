"""Device identities: an Ed25519 key whose owner signs the challenge of a connection."""

from __future__ import annotations

import base64
import hashlib
import string
from typing import Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from clawkit.gateway.protocol import Connect, DeviceClaim

MAX_SKEW_MS = 120_000
WORDS = {
    "DEVICE_AUTH_PUBLIC_KEY_INVALID": ("device public key invalid", "device-public-key"),
    "DEVICE_AUTH_DEVICE_ID_MISMATCH": ("device identity mismatch", "device-id-mismatch"),
    "DEVICE_AUTH_SIGNATURE_EXPIRED": ("device signature expired", "device-signature-stale"),
    "DEVICE_AUTH_NONCE_REQUIRED": ("device nonce required", "device-nonce-missing"),
    "DEVICE_AUTH_NONCE_MISMATCH": ("device nonce mismatch", "device-nonce-mismatch"),
    "DEVICE_AUTH_SIGNATURE_INVALID": ("device signature invalid", "device-signature"),
}
"""Message and reason of each problem."""
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def device_id(public_key: bytes) -> str:
    return hashlib.sha256(public_key).hexdigest()


def decode_key(text: str) -> bytes | None:
    """The 32 bytes of a key in base64url without padding; None if it is invalid."""
    data = _decode(text)
    return data if data is not None and len(data) == 32 else None


def _decode(text: str) -> bytes | None:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
    except ValueError:
        return None


def signed_text(connect: Connect, claim: DeviceClaim, version: Literal["v2", "v3"]) -> str:
    """The text that a client signs."""
    client, auth = connect.client, connect.auth
    token = auth.token or auth.device_token or auth.bootstrap_token or ""
    parts = [
        *(version, claim.id, client.id, client.mode, connect.role, ",".join(connect.scopes)),
        *(str(claim.signed_at), token, claim.nonce),
    ]
    if version == "v3":
        parts += [normal(client.platform), normal(client.device_family)]
    return "|".join(parts)


def normal(text: str) -> str:
    """A platform or device family, normalized for comparison: trimmed, ASCII in lower case."""
    return text.strip().translate(_LOWER)


def find_problem(connect: Connect, claim: DeviceClaim, nonce: str, now: int) -> str | None:
    """Why the identity of a device is not proven, a key of `WORDS`; None if it is. `now` is in
    milliseconds."""
    key = decode_key(claim.public_key)
    if key is None:
        return "DEVICE_AUTH_PUBLIC_KEY_INVALID"
    if device_id(key) != claim.id:
        return "DEVICE_AUTH_DEVICE_ID_MISMATCH"
    if abs(now - claim.signed_at) > MAX_SKEW_MS:
        return "DEVICE_AUTH_SIGNATURE_EXPIRED"
    if not claim.nonce:
        return "DEVICE_AUTH_NONCE_REQUIRED"
    if claim.nonce != nonce:
        return "DEVICE_AUTH_NONCE_MISMATCH"
    texts = (signed_text(connect, claim, "v3"), signed_text(connect, claim, "v2"))
    signature = _decode(claim.signature)
    if signature is None or not any(_is_signed(key, signature, text) for text in texts):
        return "DEVICE_AUTH_SIGNATURE_INVALID"
    return None


def _is_signed(key: bytes, signature: bytes, text: str) -> bool:
    try:
        # A text with lone surrogates cannot have been signed.
        Ed25519PublicKey.from_public_bytes(key).verify(signature, text.encode())
    except (InvalidSignature, ValueError):
        return False
    return True
