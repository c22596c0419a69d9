"""Tools as the OpenAI APIs are offered them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from clawkit.errors import SchemaError
from clawkit.models.base import Endpoint, ModelError, ToolSpec
from clawkit.models.wire.shared import encode
from clawkit.schema.choose import adapt, target_for
from clawkit.schema.declare import declare
from clawkit.schema.walk import map_schemas


class Offered:
    """The declarations of tools as JSON, kept while the tools are the same."""

    def __init__(self, endpoint: Endpoint, provider: Literal["openai", "openai-responses"]) -> None:
        self._endpoint = endpoint
        self._provider: Literal["openai", "openai-responses"] = provider
        self._unsupported = frozenset(endpoint.compat.unsupported_tool_schema_keywords)
        self._tools: tuple[ToolSpec, ...] = ()
        self._body = b""

    def of(self, tools: tuple[ToolSpec, ...]) -> bytes:
        """A list; nothing for no tools. Raises `ModelError` ("invalid") for an impossible one."""
        if tools is not self._tools:
            self._body = encode([self._declare(tool) for tool in tools]) if tools else b""
            self._tools = tools
        return self._body

    def _declare(self, tool: ToolSpec) -> dict[str, Any]:
        endpoint = self._endpoint
        target = target_for(endpoint.ref.provider, endpoint.ref.id, endpoint.api)
        strict = endpoint.compat.supports_strict_mode
        wants_strict = strict is True and target == "openai"
        try:
            declared = declare(
                tool.name, tool.description, tool.schema, self._provider, strict=wants_strict
            )
            function = declared.get("function", declared)
            if target != "openai":  # a relay passes the schema on as it stands
                function["parameters"] = adapt(tool.schema, target)
        except SchemaError as error:
            message = f"{tool.name} cannot be offered to {endpoint.ref}: {error}"
            raise ModelError("invalid", message) from None
        if self._provider == "openai-responses" and strict is not False:
            # Unless told otherwise, this API makes a schema strict by itself.
            function.setdefault("strict", False)
        if self._unsupported:
            function["parameters"] = _without(function["parameters"], self._unsupported)
        return declared


def _without(schema: Any, keywords: frozenset[str]) -> Any:
    """The schema with these keywords left out at every level; names of properties stay."""
    if not isinstance(schema, Mapping):
        return schema
    visit: Callable[[Any], Any] = lambda child: _without(child, keywords)  # noqa: E731
    return {key: each for key, each in map_schemas(schema, visit).items() if key not in keywords}
