"""TLS: the configured certificate, or a self-signed one."""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from clawkit.config.paths import expand
from clawkit.config.sections.gateway import GatewayTls
from clawkit.errors import ConfigError, Issue
from clawkit.gateway.client import fingerprint_of
from clawkit.store import private_dir, write_atomic

VALID = timedelta(days=397)
RENEW = timedelta(days=30)


class Certificate(Struct, frozen=True):
    """Files of a certificate and its key."""

    cert: str
    key: str
    fingerprint: str

    def context(self) -> ssl.SSLContext:
        """Raises OSError and ValueError if the files cannot be used."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        # The password argument keeps OpenSSL from prompting in the terminal.
        context.load_cert_chain(self.cert, self.key, password="")
        return context


def find_certificate(
    settings: GatewayTls, directory: str, names: Sequence[str]
) -> Certificate | None:
    """The certificate to serve with; None without TLS. A self-signed one is generated in
    `directory`, for `names` and the addresses of this machine. Raises `ConfigError`."""
    if not settings.enabled:
        return None
    if settings.ca_path:
        hint = "Remove it; certificates of a chain belong into certPath, after the gateway's own"
        raise _issue("caPath", "client certificates are not supported", hint)
    if settings.cert_path and settings.key_path:
        return _load(expand(settings.cert_path, os.environ), expand(settings.key_path, os.environ))
    if settings.cert_path or settings.key_path:
        missing = "keyPath" if settings.cert_path else "certPath"
        raise _issue(missing, "is missing", "Set both certPath and keyPath, or neither")
    if not settings.auto_generate:
        hint = "Set certPath and keyPath, or autoGenerate to true"
        raise _issue("autoGenerate", "is false, but there is no certificate", hint)
    cert, key = (os.path.join(directory, name) for name in ("tls-cert.pem", "tls-key.pem"))
    if not _is_current(cert, key):
        private_dir(directory)
        _generate(cert, key, names)
    return _load(cert, key)


def _issue(key: str, message: str, hint: str) -> ConfigError:
    return ConfigError([Issue(f"gateway.tls.{key}", message, hint=hint)])


def _load(cert: str, key: str) -> Certificate:
    try:
        Certificate(cert, key, "").context()
        with open(cert, encoding="ascii") as file:
            text = file.read()
    except (OSError, ValueError) as error:
        why = f"cannot be used with {key}: {getattr(error, 'strerror', None) or error}"
        hint = "Both must be matching PEM files, the key without a password"
        raise _issue("certPath", f"{cert} {why}", hint) from None
    end = "-----END CERTIFICATE-----"
    first = text[text.index("-----BEGIN CERTIFICATE-----") : text.index(end) + len(end)]
    return Certificate(cert, key, fingerprint_of(ssl.PEM_cert_to_DER_cert(first)))


def _is_current(cert: str, key: str) -> bool:
    """Whether our own certificate exists and does not expire soon."""
    from cryptography import x509

    with suppress(OSError, ValueError):
        with open(cert, "rb") as file:
            expires = x509.load_pem_x509_certificate(file.read()).not_valid_after_utc
        return os.path.exists(key) and datetime.now(UTC) < expires - RENEW
    return False


def _generate(cert: str, key: str, names: Sequence[str]) -> None:
    """Generate a key and a self-signed certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    made, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "clawkit gateway")])
    here = [x509.IPAddress(ipaddress.ip_address(each)) for each in ("127.0.0.1", "::1")]
    known = [x509.DNSName(each) for each in ("localhost", *names) if each.isascii()]
    signed = (
        x509.CertificateBuilder(who, who, made.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + VALID)
        .add_extension(x509.SubjectAlternativeName([*known, *here]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(made, hashes.SHA256())
    )
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    write_atomic(key, made.private_bytes(*form, serialization.NoEncryption()))
    write_atomic(cert, signed.public_bytes(serialization.Encoding.PEM))
