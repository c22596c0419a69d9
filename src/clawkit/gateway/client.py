"""The client of clawkit's own commands: which gateway they use, the login, and calls.

It imports almost nothing: `clawkit agent` asks the gateway before it loads the rest. Annotations
are not postponed, because a NamedTuple compiles postponed ones.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from clawkit.config.gateway_address import read_address
from clawkit.config.paths import config_file, expand, home
from clawkit.errors import ToolError, ToolInputError
from clawkit.gateway.process_record import look, sign_file
from clawkit.gateway.scopes import OWNER
from clawkit.gateway.websocket import SocketClosedError, WebSocket
from clawkit.version import __version__

if TYPE_CHECKING:
    import ssl

    from clawkit.config.load import Loaded

TIMEOUT_S = 30.0
AGAIN_S = 10.0
SILENCE_S = 75.0
"""A gateway sends something at least every 30 seconds."""
_PROTOCOL = 4
_MAX_FILE = 4 * 1024**2
_ANSWERED_TWICE = ("agent", "clawkit.turn", "clawkit.chat.type")
"""Methods that answer twice: when a message is accepted, and when its turn is over."""
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
"""OpenSSL's error reasons for the answer of a server without TLS."""


class CallError(ToolError):
    """The gateway answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("message", "the gateway refused the request")))
        self.error = error

    @property
    def code(self) -> str:
        return str((self.error.get("details") or {}).get("code", ""))


class MalformedAnswerError(ToolError):
    """The gateway violated the protocol."""


class Target(NamedTuple):
    """A gateway and the login for it."""

    host: str
    port: int
    path: str = "/"
    secret: str = ""
    is_password: bool = False
    is_tls: bool = False
    fingerprint: str = ""
    """SHA-256 of the only certificate to accept."""
    is_own: bool = False
    """Whether it is the gateway of this home, where commands log in with its own secret."""

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'wss' if self.is_tls else 'ws'}://{host}:{self.port}{self.path}"


def parse_url(url: str, **login: Any) -> Target:
    """The gateway at an address. Raises `ToolInputError`."""
    try:
        host, port, path, is_tls = read_address(url)
    except ValueError as error:
        raise ToolInputError(str(error)) from None
    return Target(host, port, path, is_tls=is_tls, **login)


def find_target(loaded: "Loaded", url: str | None = None, token: str | None = None) -> Target:
    """The gateway at `url`, else the configured one: `gateway.remote`, or that of this home. Raises
    `ToolError`.

    The secrets of the configuration are sent only to the address of the configuration.
    """
    if url is not None:
        return parse_url(url, secret=token or "")
    settings = loaded.config.gateway
    if settings is not None and settings.mode == "remote":
        from clawkit.config.secrets import resolve

        remote = settings.remote
        if not remote.url:
            raise ToolInputError("gateway.mode is 'remote': set gateway.remote.url to its address")
        given = remote.token or remote.password
        env = {**os.environ, **loaded.env}
        return parse_url(
            remote.url,
            secret=token or (resolve(given, loaded.config, env) if given else ""),
            is_password=not token and remote.token is None and remote.password is not None,
            fingerprint=remote.tls_fingerprint or "",
        )
    found = _own()
    if found is None:
        raise ToolError(
            f"no gateway is running for {home(os.environ)}; start one with: clawkit gateway start"
        )
    return found._replace(secret=token) if token else found


def _own() -> Target | None:
    """The gateway of this home, if it is ready."""
    state = look()
    if state.record is None or not state.is_ready:
        return None
    record = state.record
    return Target(
        record.near,
        record.port,
        secret=record.secret,
        is_tls=bool(record.fingerprint),
        fingerprint=record.fingerprint,
        is_own=True,
    )


def find_for_command(given_config: str | None) -> Target | None:
    """The gateway that commands use: the configured remote one, or that of this home if it runs
    with the same configuration file; None to work without one. Raises `ToolError`, `ConfigError`.

    The configuration is loaded only if its files have changed since the gateway read them.
    """
    env = os.environ
    path = config_file(env) if given_config is None else expand(given_config, env)
    state = look()
    record = state.record if state.is_ready else None
    has_changed = False
    if record is not None:
        has_changed = any(sign_file(name) != at for name, at in record.files.items())
        is_same = record.config == (path if os.path.lexists(path) else None)
        if is_same and record.serves_commands and not has_changed:
            return _own()
    if not has_changed and not _may_say_remote(path):
        return None
    from clawkit.config.load import load

    loaded = load(given_config)
    settings = loaded.config.gateway
    if settings is not None and (settings.mode == "remote" or not settings.use_for_commands):
        return find_target(loaded) if settings.mode == "remote" else None
    return _own() if record is not None and record.config == loaded.file else None


def _may_say_remote(path: str) -> bool:
    """Whether a configuration file may name a remote gateway; saves loading most of them."""
    try:
        with open(path, "rb") as file:
            text = file.read(_MAX_FILE)
    except OSError:
        return False
    return any(word in text for word in (b"remote", b"$include", b"\\"))


class Link:
    """A connection that has logged in."""

    def __init__(self, socket: WebSocket, target: Target) -> None:
        self.socket = socket
        self.target = target
        self.hello: dict[str, Any] = {}
        self.events: list[dict[str, Any]] = []
        """Events that arrived while `call` waited for an answer."""
        self._count = 0

    def request(self, method: str, params: Any = None) -> str:
        """Send a request; returns its id."""
        self._count += 1
        id_ = str(self._count)
        frame = {"type": "req", "id": id_, "method": method, "params": params or {}}
        self.socket.send(json.dumps(frame))
        return id_

    def receive(self, timeout_s: float = SILENCE_S) -> dict[str, Any]:
        """The next frame: an event or an answer."""
        with explained(self.target):
            return read_frame(self.socket.receive(timeout_s))

    def read(self) -> Iterator[dict[str, Any]]:
        """Wait for more data; the frames that are complete. Raises OSError, `ToolError`."""
        self.socket.read()
        yield from map(read_frame, self.socket.messages())

    def call(self, method: str, params: Any = None, timeout_s: float = TIMEOUT_S) -> Any:
        """Call a method and return its payload; of two answers, the second. Raises `CallError`."""
        import time

        id_, deadline = self.request(method, params), time.monotonic() + timeout_s
        while True:
            frame = self.receive(deadline - time.monotonic())
            if frame.get("type") == "event":
                self.events.append(frame)
            elif frame.get("id") == id_:
                payload = payload_of(frame)
                if not is_first_answer(method, payload):
                    return payload

    def __enter__(self) -> "Link":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    @property
    def methods(self) -> Sequence[str]:
        """The methods of the gateway."""
        return as_object(self.hello.get("features")).get("methods") or ()


def is_first_answer(method: str, payload: Any) -> bool:
    """Whether another answer to the same request follows."""
    return method in _ANSWERED_TWICE and as_object(payload).get("status") == "accepted"


def as_object(value: Any) -> dict[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def read_frame(text: str) -> dict[str, Any]:
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError):
        frame = None
    if not isinstance(frame, dict):
        raise MalformedAnswerError("it sent a frame that is not a JSON object")
    return frame


def read_as(kind: Any, payload: Any) -> Any:
    """Validate an answer or event. Raises `MalformedAnswerError`."""
    import msgspec

    try:
        return msgspec.convert(payload, kind)
    except msgspec.ValidationError as error:
        raise MalformedAnswerError(
            f"this version does not understand an answer of the gateway ({error}). Is it a "
            "gateway, and of this version? See: clawkit gateway status"
        ) from None


def payload_of(frame: dict[str, Any]) -> Any:
    """The payload of an answer. Raises `CallError`."""
    if frame.get("ok"):
        return frame.get("payload")
    error = as_object(frame.get("error"))
    raise CallError(error | {"details": as_object(error.get("details"))})


@contextmanager
def explained(target: Target) -> Iterator[None]:
    """Within this block, connection errors name the gateway and a remedy."""
    try:
        yield
    except CallError:
        raise
    except TimeoutError:
        raise ToolError(
            f"{target.url}: the gateway does not answer; see: clawkit gateway status"
        ) from None
    except SocketClosedError as error:
        stops = "; it stops or restarts" if error.code == 1012 else ""
        raise SocketClosedError(
            error.code, f"{target.url}: the gateway closed the connection ({error}){stops}"
        ) from None
    except (OSError, ToolError) as error:
        if said := _explain_tls(error):
            raise ToolError(f"{target.url}: {said}") from None
        advice = "" if target.is_own else "; is it running, and is its port forwarded?"
        why = getattr(error, "strerror", "") or error
        raise ToolError(f"{target.url}: no gateway can be reached there ({why}){advice}") from None


def _explain_tls(error: Exception) -> str:
    """A remedy for a TLS error; empty for others. Compares names, to avoid importing the
    classes."""
    if why := getattr(error, "verify_message", ""):
        return (
            f"its certificate cannot be verified ({why}); if it is self-signed, set "
            "gateway.remote.tlsFingerprint to its fingerprint, which this prints on its machine: "
            "clawkit gateway status --json"
        )
    if getattr(error, "reason", "") in _NOT_TLS:
        return "that port is not encrypted; use ws:// through ssh, or enable gateway.tls there"
    return ""


def connect(target: Target, scopes: Sequence[str] = OWNER, timeout_s: float = TIMEOUT_S) -> Link:
    """Connect and log in. Raises `CallError` if refused, `ToolError` if there is no gateway."""
    link, challenge = _open(target, timeout_s)
    try:
        link.hello = as_object(_log_in(link, challenge, scopes, timeout_s))
    except BaseException:
        link.close()
        raise
    return link


def connect_again(target: Target) -> Link:
    """Connect to a gateway that may have been restarted. Raises like `connect`."""
    found = _own() if target.is_own else target
    if found is None:
        raise ToolError("it is not running")
    return connect(found, timeout_s=AGAIN_S)


def _open(target: Target, timeout_s: float) -> tuple[Link, dict[str, Any]]:
    """A connection, and its challenge."""
    with explained(target):
        tls = _tls(target.fingerprint) if target.is_tls else None
        socket = WebSocket.open(target.host, target.port, target.path, timeout_s=timeout_s, tls=tls)
    link = Link(socket, target)
    try:
        if target.fingerprint:
            _check_certificate(socket.certificate(), target)
        return link, as_object(link.receive(timeout_s).get("payload"))
    except BaseException:
        link.close()
        raise


def _tls(fingerprint: str) -> "ssl.SSLContext":
    import ssl

    context = ssl.create_default_context()
    if fingerprint:  # the fingerprint is compared instead, so no CA is needed
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def fingerprint_of(certificate: bytes) -> str:
    """SHA-256, in hexadecimal, with a colon after every byte."""
    import hashlib

    return hashlib.sha256(certificate).digest().hex(":").upper()


def _check_certificate(certificate: bytes, target: Target) -> None:
    import hmac

    found = fingerprint_of(certificate)
    wanted = target.fingerprint.replace(":", "").upper().removeprefix("SHA256").strip("/= ")
    if not hmac.compare_digest(found.replace(":", "").encode(), wanted.encode()):
        raise ToolError(
            f"{target.url}: its certificate has the fingerprint {found}, which is not "
            "gateway.remote.tlsFingerprint; no secret was sent"
        )


def _log_in(
    link: Link,
    challenge: dict[str, Any],
    scopes: Sequence[str],
    timeout_s: float,
) -> Any:
    target = link.target
    params: dict[str, Any] = {
        "minProtocol": _PROTOCOL,
        "maxProtocol": _PROTOCOL,
        "client": {"id": "cli", "version": __version__, "platform": sys.platform, "mode": "cli"},
        "role": "operator",
        "scopes": list(scopes),
        "caps": ["session-scoped-events"],
        "auth": {"password" if target.is_password else "token": target.secret},
    }
    if target.is_own:
        try:
            return link.call("connect", params, timeout_s)
        except CallError as error:
            how = "; omit --token: commands of this home need none"
            raise CallError(error.error | {"message": f"{error}{how}"}) from None
    from clawkit.gateway.own_device import log_in_as_device

    return log_in_as_device(link, params, challenge, timeout_s)
