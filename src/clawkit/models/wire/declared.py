"""Tools as they are offered, and as text where a service takes none."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from clawkit.content import Image, Text, ToolCall, ToolResult
from clawkit.errors import SchemaError
from clawkit.models.base import Endpoint, ModelError, ToolSpec
from clawkit.models.wire.shared import NO_IMAGE, as_object, encode, malformed
from clawkit.schema.declare import Provider, declare
from clawkit.schema.walk import map_schemas

NO_OUTPUT = "(no output)"
_MAX_NAME = 128
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]+")


class Declared:
    """The declarations of tools as JSON without brackets, kept while the tools are the same."""

    def __init__(self, endpoint: Endpoint, provider: Provider) -> None:
        self._endpoint = endpoint
        self._provider: Provider = provider
        self._unsupported = frozenset(endpoint.compat.unsupported_tool_schema_keywords)
        self._tools: tuple[ToolSpec, ...] = ()
        self._body = b""

    def of(self, tools: tuple[ToolSpec, ...]) -> bytes:
        """Nothing for no tools. Raises `ModelError` ("invalid") for one that cannot be declared."""
        if tools is not self._tools:
            self._body = b",".join(map(self._declare, tools))
            self._tools = tools
        return self._body

    def _declare(self, tool: ToolSpec) -> bytes:
        try:
            declared = declare(tool.name, tool.description, tool.schema, self._provider)
        except SchemaError as error:
            message = f"{tool.name} cannot be offered to {self._endpoint.ref}: {error}"
            raise ModelError("invalid", message) from None
        for key in ("input_schema", "parameters"):
            if self._unsupported and key in declared:
                declared[key] = _without(declared[key], self._unsupported)
        return encode(declared)


def _without(schema: Any, keywords: frozenset[str]) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    visit: Callable[[Any], Any] = lambda child: _without(child, keywords)  # noqa: E731
    return {key: each for key, each in map_schemas(schema, visit).items() if key not in keywords}


def safe_name(name: str) -> str:
    """A tool's name that every service takes back, also where a model made it up."""
    return _NOT_IN_NAMES.sub("_", name[:_MAX_NAME]) or "unnamed"


def given_arguments(given: object) -> str:
    """Arguments as text, also where they came as an object. Raises `ModelError` ("malformed").

    Never less than was given: a call without the arguments it came with is another call.
    """
    if isinstance(given, str):
        return given
    try:
        return "" if given is None else encode(given).decode()
    except (RecursionError, msgspec.MsgspecError):
        raise malformed("the arguments of a call are nested too deeply") from None


def call_as_text(call: ToolCall) -> str:
    """A call of earlier, for a model that is offered no tools now."""
    return f"[called {call.name} with {encode(as_object(call.arguments)).decode()}]"


def result_as_text(result: ToolResult) -> str:
    """What came of such a call, images left out."""
    what = "error of" if result.is_error else "result of"
    return f"[{what} {result.tool}]\n{text_of(result)}"


def text_of(result: ToolResult, image: str = NO_IMAGE) -> str:
    """The text of a result, with `image` in the place of each image."""
    texts = [
        image if isinstance(block, Image) else block.text
        for block in result.content
        if not isinstance(block, Text) or block.text.strip()
    ]
    return "\n".join(filter(None, texts)) or NO_OUTPUT
