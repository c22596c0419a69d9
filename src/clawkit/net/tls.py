"""TLS contexts, and readable messages for TLS errors."""

from __future__ import annotations

import ssl
from functools import lru_cache

from clawkit.net.route import NetError, Tls

# OpenSSL's verification codes.
_PROBLEMS = {
    9: "its certificate is not valid yet",
    10: "its certificate has expired",
    18: "its certificate is self-signed and not trusted",
    **dict.fromkeys((19, 20, 21), "its certificate was issued by an authority that is not trusted"),
    23: "its certificate was revoked",
    62: "its certificate is for another name",
    64: "its certificate is for another address",
}
_REASONS = {
    "WRONG_VERSION_NUMBER": "it does not speak TLS on this port",
    "HTTP_REQUEST": "it does not speak TLS on this port",
    "UNSUPPORTED_PROTOCOL": "it supports no TLS newer than 1.1",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it supports no TLS newer than 1.1",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it requires a client certificate (request.tls.cert)",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust our certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our certificate has expired",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "no common TLS settings, or it requires a certificate",
    "TLSV1_UNRECOGNIZED_NAME": "it does not know the requested name",
}


@lru_cache(maxsize=16)
def make_context(tls: Tls) -> ssl.SSLContext:
    """Raises `NetError` for invalid settings. Cached: reading the trust store is slow."""
    try:
        context = ssl.create_default_context(cadata=tls.ca or None)
    except (ssl.SSLError, ValueError, TypeError):
        # Without the message of the exception, which may contain parts of the PEM text.
        raise NetError("tls", "request.tls.ca is not a certificate in PEM format") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert:
        # Imported here: slow, and client certificates are rare.
        from tempfile import NamedTemporaryFile

        # OpenSSL only reads files. These are private, and gone once they are read. In one file, a
        # certificate in the key would count instead of the certificate.
        with NamedTemporaryFile(prefix="clawkit-tls-") as cert, NamedTemporaryFile() as key:
            for file, text in ((cert, tls.cert), (key, tls.key)):
                file.write(text.encode("utf-8", "replace"))
                file.flush()
            try:
                # A function, because otherwise OpenSSL would prompt for a missing passphrase.
                given = key.name if tls.key else None
                context.load_cert_chain(cert.name, given, password=lambda: tls.passphrase)
            except (ssl.SSLError, ValueError) as error:
                problem = "request.tls.cert, its key or its passphrase is wrong"
                if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
                    problem = "request.tls.key does not belong to request.tls.cert"
                raise NetError("tls", problem) from None
    elif tls.key:
        raise NetError("tls", "request.tls.key is set without request.tls.cert")
    return context


def describe(error: OSError) -> str:
    """Why a TLS handshake failed, for people."""
    if isinstance(error, ssl.SSLCertVerificationError):
        default = f"its certificate is invalid: {error.verify_message}"
        return _PROBLEMS.get(error.verify_code, default)
    if isinstance(error, ssl.SSLError):
        reason: str = getattr(error, "reason", None) or "no reason given"
        return _REASONS.get(reason) or f"TLS failed: {reason.replace('_', ' ').lower()}"
    return "it closed the connection before it was encrypted"
