"""The frames of the wire protocol: limits, errors, the connect request, and their JSON.

Times are in milliseconds only here. Frames are decoded once, into closed structs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec
from msgspec import Meta, Struct, field

from clawkit.core.tasks import in_thread

PROTOCOL, PROBE_PROTOCOL = 4, 3
MAX_FRAME_BEFORE_HELLO = 64 * 1024
BIG = 256 * 1024
"""Frames of at least this size are decoded in a thread."""
MAX_FRAME = 25 * 1024**2
MAX_BUFFERED = 50 * 1024**2
TICK_MS, PING_S = 30_000, 25.0
HELLO_S = 15.0
MAX_REASON_BYTES = 120
"""Maximum bytes of the reason in a close frame."""
ACCESS_CHANGED = 4001
"""Close code for a connection whose device has lost rights."""
MAX_ATTACHMENT, MAX_IMAGE = 19_464_192, 6_291_456

Code = Literal["INVALID_REQUEST", "UNAVAILABLE", "FORBIDDEN", "NOT_PAIRED", "APPROVAL_NOT_FOUND"]
Role = Literal["operator", "node"]
Shows = Literal["all", "plain"]
"""The events of an agent that a terminal shows: plain output shows fewer, for example no
results."""
_IDS = (
    "cli gateway-client openclaw-tui openclaw-control-ui webchat webchat-ui node-host "
    "openclaw-probe openclaw-macos openclaw-linux openclaw-ios openclaw-watchos openclaw-android "
    "openclaw-browser-copilot openclaw-worker test fingerprint"
)
ClientId = Annotated[str, Meta(pattern=f"^({'|'.join(_IDS.split())})$")]
ClientMode = Literal["cli", "ui", "webchat", "backend", "node", "probe", "worker", "test"]
Word = Annotated[str, Meta(min_length=1, max_length=200)]
Short = Annotated[str, Meta(max_length=1_000)]
"""A key, id, path or name; bounded, so that processing it is cheap."""
Words = Annotated[list[Word], Meta(max_length=200)]
Ignored = bool | int | Short | msgspec.UnsetType
"""Parameters that clients send but that have no effect: the answer lists them as `ignored`."""

T = TypeVar("T")


class GatewayError(Exception):
    """An error answer to a request."""

    def __init__(
        self,
        code: Code,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        retry_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code: Code = code
        self.message = message
        self.details = details
        self.retry_ms = retry_ms

    def to_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.details is not None:
            shown["details"] = dict(self.details)
        if self.retry_ms is not None:
            shown |= {"retryable": True, "retryAfterMs": self.retry_ms}
        return shown


def invalid(message: str, details: Mapping[str, Any] | None = None) -> GatewayError:
    return GatewayError("INVALID_REQUEST", message, details)


def missing_scope(scope: str) -> GatewayError:
    details = {"code": "MISSING_SCOPE", "missingScope": scope, "requiredScopes": [scope]}
    return GatewayError("FORBIDDEN", f"missing scope: {scope}", details)


class Closed(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Base of all parameters: an unknown key is an error."""


class RequestFrame(
    Struct, frozen=True, tag_field="type", tag="req", rename="camel", forbid_unknown_fields=True
):
    """A request frame. The parameters are decoded by the method."""

    id: Annotated[str, Meta(min_length=1, max_length=256)]
    method: Annotated[str, Meta(min_length=1, max_length=200)]
    params: msgspec.Raw = msgspec.Raw(b"{}")
    traceparent: Annotated[str, Meta(max_length=128)] = ""
    expected_profile_id: Annotated[str, Meta(max_length=128)] = ""


class ClientInfo(Closed, frozen=True):
    """The program that connects."""

    id: ClientId
    version: Annotated[str, Meta(max_length=200)]
    platform: Annotated[str, Meta(max_length=200)]
    mode: ClientMode
    display_name: Annotated[str, Meta(max_length=200)] = ""
    build_id: Annotated[str, Meta(max_length=96)] = ""
    device_family: Annotated[str, Meta(max_length=200)] = ""
    model_identifier: Annotated[str, Meta(max_length=200)] = ""
    time_zone: Annotated[str, Meta(max_length=64)] = ""
    instance_id: Annotated[str, Meta(max_length=200)] = ""


class ConnectAuth(Closed, frozen=True):
    """Secrets of a connect request; None and empty text count as no secret."""

    token: str | None = None
    password: str | None = None
    device_token: str | None = None
    bootstrap_token: str | None = None
    approval_runtime_token: str | None = None
    agent_runtime_identity_token: str | None = None


class DeviceClaim(Closed, frozen=True):
    """The claimed device of a client, with a signature over our nonce."""

    id: str
    public_key: str
    signature: str
    signed_at: int
    nonce: str = ""


class ModelCatalogWish(Closed, frozen=True):
    """Requests the models of a session together with the hello."""

    session_key: Short


class Connect(Closed, frozen=True):
    """Parameters of `connect`."""

    min_protocol: int
    max_protocol: int
    client: ClientInfo
    role: Word = "operator"
    scopes: Words = field(default_factory=list)
    caps: Words = field(default_factory=list)
    commands: Words = field(default_factory=list)
    permissions: dict[str, bool] = field(default_factory=dict)
    path_env: str = ""
    computer_use: Any = None
    worker_runs: Any = None
    auth: ConnectAuth = ConnectAuth()
    device: DeviceClaim | None = None
    model_catalog: ModelCatalogWish | None = None
    locale: str = ""
    user_agent: str = ""


class NoParams(Closed, frozen=True):
    """Parameters of a method that has none."""


def ignored(params: Struct) -> dict[str, list[str]]:
    """The parameters of a request that have no effect, for its answer."""
    found = [each for each in msgspec.structs.fields(params) if each.type == Ignored]
    names = [e.encode_name for e in found if getattr(params, e.name) is not msgspec.UNSET]
    return {"ignored": names} if names else {}


async def aside(size: int, work: Callable[..., T], *given: Any) -> T:
    """Run work on `size` bytes, in a thread if it would make other clients wait."""
    return cast("T", await in_thread(work, *given)) if size > BIG else work(*given)


def decode_request(text: str) -> RequestFrame:
    """Decode a frame. Raises ValueError, including for excessive nesting."""
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


_DECODER = msgspec.json.Decoder(RequestFrame)


def decode_params(kind: type[T], method: str, raw: msgspec.Raw) -> T:
    """Decode parameters; absent ones are an empty object. Raises `GatewayError`."""
    data = bytes(raw)
    try:
        return msgspec.json.decode(b"{}" if data == b"null" else data, type=kind)
    except RecursionError:
        raise invalid(f"invalid {method} params: nested too deeply") from None
    except ValueError as error:
        raise invalid(f"invalid {method} params: {_explain(str(error))}") from None


_AT = re.compile(r"(.*) - at `\$(.*)`", re.DOTALL)


def _explain(problem: str) -> str:
    """A validation error in the wording of the protocol."""
    found = _AT.fullmatch(problem)
    problem, path = (found[1], found[2]) if found else (problem, "")
    where = re.sub(r"\.|\[(\d+|\.\.\.)\]", lambda part: f"/{part[1] or ''}", path)
    if key := re.fullmatch(r"Object contains unknown field `(.*)`", problem, re.DOTALL):
        return f"at {where or 'root'}: unexpected property '{key[1]}'"
    if key := re.fullmatch(r"Object missing required field `(.*)`", problem):
        return f"{f'at {where}: ' if where else ''}must have required property '{key[1]}'"
    return f"{f'at {where}: ' if where else ''}{problem[:1].lower()}{problem[1:]}"


def encode(value: Any) -> bytes:
    """JSON of a value; lone surrogates in it are replaced."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(value, enc_hook=msgspec.json.decode)  # for embedded JSON
        return msgspec.json.encode(_repaired(plain))


def _repaired(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_repaired(each) for each in value]
    if isinstance(value, dict):
        return {_repaired(key): _repaired(each) for key, each in value.items()}
    return value


def answer(id_: str, payload: Any) -> bytes:
    return encode({"type": "res", "id": id_, "ok": True, "payload": payload})


def refusal(id_: str, error: GatewayError) -> bytes:
    return encode({"type": "res", "id": id_, "ok": False, "error": error.to_json()})


def event(
    name: str, payload: bytes, seq: int | None = None, state: dict[str, int] | None = None
) -> bytes:
    """An event frame around a payload that is already JSON."""
    end = b"" if seq is None else b',"seq":%d' % seq
    if state is not None:
        end += b',"stateVersion":' + encode(state)
    return b'{"type":"event","event":"%s","payload":%s%s}' % (name.encode(), payload, end)


def close_reason(text: str) -> str:
    """The text cut to what fits into a close frame."""
    return text.encode()[:MAX_REASON_BYTES].decode(errors="ignore")


def now_ms() -> int:
    return time.time_ns() // 1_000_000
