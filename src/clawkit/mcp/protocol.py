"""Messages, versions and error codes of the Model Context Protocol, for server and client.

There are two eras. Up to 2025-11-25, a client starts with `initialize`, which opens a session, and
both sides send requests. From 2026-07-28 on, every request declares its version and the client's
capabilities in `_meta`, and only clients send requests.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from clawkit.errors import ToolError

MODERN: Final = "2026-07-28"
LEGACY: Final = ("2025-11-25", "2025-06-18")
"""Versions with `initialize`, the newest first."""
VERSIONS: Final = (MODERN, *LEGACY)

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022
MODERN_CODES: Final = frozenset((HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION))
"""Error codes that only servers of the new era send, so that `initialize` need not be tried."""

META: Final = "_meta"
META_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
META_CLIENT: Final = "io.modelcontextprotocol/clientInfo"
META_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
META_SERVER: Final = "io.modelcontextprotocol/serverInfo"

VERSION_HEADER: Final = "mcp-protocol-version"
METHOD_HEADER: Final = "mcp-method"
NAME_HEADER: Final = "mcp-name"
SESSION_HEADER: Final = "mcp-session-id"

T = TypeVar("T")
Id: TypeAlias = int | str
"""The id of a request. Null, fractions and booleans are invalid."""
_EMPTY = Raw(b"{}")
_PLAIN_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?")


class McpError(ToolError):
    """A protocol error, sent by one side to the other."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        self.code, self.data = code, data
        super().__init__(message)


class Failure(Struct, omit_defaults=True):
    """The `error` of an answer."""

    code: int
    message: str = ""
    data: object = None


class RpcMessage(Struct):
    """A request has an id and a method, a notification only a method, an answer no method."""

    jsonrpc: Literal["2.0"]
    id: Id | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw = _EMPTY
    result: Raw | UnsetType = UNSET
    error: Failure | UnsetType = UNSET


class Annotations(Struct, rename="camel", omit_defaults=True):
    """Hints about what a tool does. Omitted hints have the defaults of the protocol."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolEntry(Struct, rename="camel", omit_defaults=True):
    """A tool in the format of `tools/list`."""

    name: str
    input_schema: Mapping[str, Any]
    title: str | None = None
    description: str | None = None
    output_schema: Mapping[str, Any] | None = None
    annotations: Annotations | None = None


_decoder = msgspec.json.Decoder(RpcMessage)
_encode = msgspec.json.Encoder().encode


def decode(data: bytes) -> RpcMessage:
    """The message in a line or a body. Raises `McpError` with the code to answer with."""
    try:
        return _decoder.decode(data)
    except (msgspec.ValidationError, RecursionError) as error:
        if data.lstrip()[:1] == b"[":
            raise McpError(INVALID_REQUEST, "batches are not supported") from None
        raise McpError(INVALID_REQUEST, f"invalid message: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise McpError(PARSE_ERROR, f"invalid JSON: {error}") from None


def read(data: Raw, kind: type[T]) -> T:
    """The parameters of a request, or the result of one. Raises `McpError`."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise McpError(INVALID_PARAMS, f"invalid parameters: {error}") from None


def encode(message: Mapping[str, object]) -> bytes:
    return _encode({"jsonrpc": "2.0", **message})


def request(id: Id, method: str, params: object) -> bytes:  # noqa: A002
    return encode({"id": id, "method": method, "params": params})


def notification(method: str, params: object) -> bytes:
    return encode({"method": method, "params": params})


def answer(id: Id, result: object) -> bytes:  # noqa: A002
    return encode({"id": id, "result": result})


def failure(id: Id | None, error: McpError) -> bytes:  # noqa: A002
    """An answer that reports an error. The id is None if that of the request could not be read."""
    return encode({"id": id, "error": Failure(error.code, str(error), error.data)})


def header_value(text: str) -> str:
    """Text as the value of an `Mcp-Name` or `Mcp-Param-…` header."""
    if _PLAIN_VALUE.fullmatch(text) and not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def read_header_value(value: str) -> str | None:
    """The inverse of `header_value`; None for an invalid value."""
    if not (value.startswith("=?base64?") and value.endswith("?=") and len(value) > 10):
        return value
    try:
        return base64.b64decode(value[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
