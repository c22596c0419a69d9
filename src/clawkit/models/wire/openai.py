"""Writing requests: the code that OpenAI's two APIs share.

What a compatible server accepts is determined once per endpoint: by its configuration, else by what
is known about the provider.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, ClassVar
from urllib.parse import urlsplit

from clawkit.config.sections.shared import Thinking as Level
from clawkit.content import Assistant, Block, Image, Message, Text, ToolCall, ToolResult
from clawkit.models.protocols import Endpoint, Request
from clawkit.models.wire import request as wire
from clawkit.text import regex

_SERVICES = {
    "openrouter.ai": "openrouter",
    "deepseek.com": "deepseek",
    "z.ai": "zai",
    "bigmodel.cn": "zai",
    "together.xyz": "together",
    "together.ai": "together",
    "aliyuncs.com": "qwen",
    "moonshot.ai": "moonshot",
    "moonshot.cn": "moonshot",
    "mistral.ai": "mistral",
    "x.ai": "xai",
}
FORMATS = frozenset({"openrouter", "deepseek", "zai", "together", "qwen"})
"""Providers with their own way to turn thinking on."""
_NO_EFFORT = frozenset({"mistral", "xai", "moonshot", "zai"})
_SAFE_EFFORTS = ("low", "medium", "high")
"""Efforts that every thinking model should support."""
_PLAIN_ID = r"[A-Za-z0-9_-]+"
_WIDE_ID = r"[A-Za-z0-9_.:-]+"
_NINE = r"[A-Za-z0-9]{9}"
_MAX_CACHE_KEY = 64
_MAX_NAME = 64
_IMAGE_FOLLOWS = "[an image, which follows]"
_RESULT_IMAGES = "[images of the results above]"
_BRIDGE = wire.encode({"role": "assistant", "content": "[results received]"})
_LIMITS = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens"})
"""The APIs' names for the limit of an answer."""


class OpenAiWire(wire.ApiWire):
    LIST: ClassVar[str]
    """The field with the conversation."""
    TEXT: ClassVar[str]
    """The type of a text part."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        compat, native = endpoint.compat, endpoint.is_native
        self._service = "" if native else _service_of(endpoint)
        takes_developer = native and endpoint.facts.reasoning
        takes_developer = takes_developer and compat.supports_developer_role is not False
        self._system_role = "developer" if takes_developer else "system"
        self._format = compat.thinking_format or (
            self._service if self._service in FORMATS else "openai"
        )
        """The provider's way to turn thinking on."""
        takes_effort = self._format in ("openai", "openrouter") and self._service not in _NO_EFFORT
        self._takes_effort = given_or(compat.supports_reasoning_effort, takes_effort)
        is_plain = native or "claude" in endpoint.ref.id.lower()
        self._id_pattern = regex(_PLAIN_ID if is_plain else _WIDE_ID)
        self._max_id = 40 if native and endpoint.api == "openai-completions" else 64
        self._system: tuple[str, list[bytes]] = ("", [])
        """The system prompt, and its items."""
        self._static_part: tuple[Any, bytes] = ((), b"")
        """Cache of everything but the conversation, with its inputs: usually the same in each
        request."""

    def write(self, request: Request) -> bytes:
        tools = self._declarations(request.tools)
        pieces = self._marked(request, self._pieces.of(request.messages))
        bridge = self._endpoint.compat.requires_assistant_after_tool_result
        items = arrange(pieces, bridge=bool(bridge))
        if request.system.strip():
            if request.system != self._system[0]:
                self._system = request.system, self._system_items(request.system)
            items[:0] = self._system[1]
        limit = self._limit(request, [*items, tools])
        given = tools, request.system, limit, request.thinking, request.session
        if (given, request.params) != self._static_part[0]:
            fields = wire.encode(self._fields(request, limit, has_tools=bool(tools)))
            before = b'],"tools":[%s],' % tools if tools else b"],"
            self._static_part = (given, {**request.params}), before + fields[1:]
        start, end = b'{"%s":[' % self.LIST.encode(), self._static_part[1]
        if not items:
            return start + end
        # Conversations are large: copy them only once, in one join.
        items[0] = start + items[0]
        items[-1] += end
        return b",".join(items)

    def _marked(self, _request: Request, pieces: list[wire.Piece]) -> list[wire.Piece]:
        """The pieces with cache marks, if the provider uses them."""
        return pieces

    def _limit(self, request: Request, items: list[bytes]) -> int | None:
        """The answer limit to request; `items` are the conversation and the tools."""
        given, facts = self._endpoint.params, self._endpoint.facts
        limit = request.max_tokens
        if limit is None:
            limit = wire.max_tokens_param(given, request.params)
        if limit is not None or not facts.is_capped or _LIMITS & {*given, *request.params}:
            return limit
        # The tokens of an image do not depend on its size in bytes.
        size = sum(len(item) for item in items if b";base64," not in item)
        return min(facts.max_tokens, wire.room_for_answer(request, facts, size))

    def _fields(self, request: Request, limit: int | None, *, has_tools: bool) -> dict[str, Any]:
        """All fields but the conversation and the tools."""
        endpoint, compat = self._endpoint, self._endpoint.compat
        given = {**endpoint.params, **request.params}
        fields: dict[str, Any] = {"model": endpoint.ref.id}
        if given_or(compat.supports_store, endpoint.is_native):
            fields["store"] = False
        if endpoint.num_ctx is not None:
            fields["options"] = {"num_ctx": endpoint.num_ctx}
        fields |= self._own_fields(request, limit)
        retention = given.get("cacheRetention", given.get("cache_retention"))
        takes_key = given_or(compat.supports_prompt_cache_key, endpoint.is_native)
        if retention != "none" and takes_key and (key := request.session):
            # Routes all requests of a conversation to the same cache.
            fits = len(key) <= _MAX_CACHE_KEY
            fields["prompt_cache_key"] = key if fits else wire.short_id(key, _MAX_CACHE_KEY)
        if retention == "long" and compat.supports_long_cache_retention:
            fields["prompt_cache_retention"] = "24h"
        wire.merge_params(fields, endpoint.params, request.params)
        unwanted = () if compat.supports_temperature is not False else ("temperature", "top_p")
        about_tools = () if has_tools else ("tool_choice", "parallel_tool_calls")
        for name in (*unwanted, *about_tools):
            fields.pop(name, None)
        form = fields.get("response_format")
        has_schema = isinstance(form, dict) and form.get("type") == "json_schema"
        if has_schema and compat.supports_json_schema_response_format is False:
            del fields["response_format"]
        return fields | {"stream": True}

    def _piece(self, message: Message) -> wire.Piece:
        if isinstance(message, Assistant):
            return wire.Piece("assistant", self._answer(message))
        if isinstance(message, ToolResult):
            return self._result(message)
        blocks = wire.blocks_of(message)
        if not blocks:
            return wire.Piece("user")
        return wire.Piece("user", wire.encode({"role": "user", "content": self._content(blocks)}))

    def _content(self, blocks: list[Block]) -> str | list[dict[str, Any]]:
        """A single text as a string, which every provider accepts; anything else as parts."""
        parts = self._parts(blocks)
        is_text = all("text" in part for part in parts)
        if is_text and (len(parts) == 1 or self._endpoint.compat.requires_string_content):
            return "\n".join(part["text"] for part in parts)
        return parts

    def _parts(self, blocks: list[Block]) -> list[dict[str, Any]]:
        takes_images = self._endpoint.facts.images
        return [
            self._image(f"data:{block.mime_type};base64,{block.data}")
            if isinstance(block, Image) and takes_images
            else {
                "type": self.TEXT,
                "text": block.text if isinstance(block, Text) else wire.NO_IMAGE,
            }
            for block in blocks
        ]

    def _result(self, result: ToolResult) -> wire.Piece:
        has_images = self._endpoint.facts.images
        images = [each for each in result.content if isinstance(each, Image) and has_images]
        after = b""
        if images:
            parts = self._parts([Text(_RESULT_IMAGES), *images])
            after = wire.encode({"role": "user", "content": parts})
        text = wire.text_of(result, _IMAGE_FOLLOWS if images else wire.NO_IMAGE)
        return wire.Piece("result", wire.encode(self._result_item(result, text)), after)

    def _call_id(self, call_id: str) -> str:
        """The id of a call: the provider's own unchanged, others made safe."""
        if self._service == "mistral":
            return call_id if regex(_NINE).fullmatch(call_id) else wire.short_id(call_id)[5:14]
        fits = len(call_id) <= self._max_id and self._id_pattern.fullmatch(call_id)
        return call_id if fits else wire.short_id(call_id)

    def _effort(self, level: Level) -> str | None:
        """The provider's name for a thinking level; None to send none."""
        endpoint, compat = self._endpoint, self._endpoint.compat
        if level in endpoint.thinking_levels:
            word = endpoint.thinking_levels[level]
            return word if isinstance(word, str) else None if word is None else level
        if level in compat.reasoning_effort_map:
            return compat.reasoning_effort_map[level]
        known = compat.supported_reasoning_efforts
        if level == "off":
            return "none" if known and "none" in known else None
        return wire.nearest_effort(level, known if known is not None else _SAFE_EFFORTS)

    def _is_on(self, level: Level) -> bool:
        """Whether the model should think."""
        return level != "off" and self._endpoint.thinking_levels.get(level, level) is not None

    @abstractmethod
    def _own_fields(self, request: Request, limit: int | None) -> dict[str, Any]:
        """Fields that only this API has."""

    @abstractmethod
    def _answer(self, message: Assistant) -> bytes:
        """The items of an answer; empty if it has no content."""

    @abstractmethod
    def _result_item(self, result: ToolResult, text: str) -> dict[str, Any]: ...
    @abstractmethod
    def _image(self, url: str) -> dict[str, Any]: ...
    @abstractmethod
    def _system_items(self, system: str) -> list[bytes]:
        """The system prompt as part of the conversation."""


def given_or(setting: bool | None, default: bool) -> bool:
    return default if setting is None else setting


def _service_of(endpoint: Endpoint) -> str:
    """The known provider at this endpoint, else the provider's configured name."""
    try:
        host = urlsplit(endpoint.base_url).hostname or ""
    except ValueError:
        host = ""
    ends = (end for end in _SERVICES if host == end or host.endswith(f".{end}"))
    return _SERVICES.get(next(ends, ""), endpoint.ref.provider)


def arrange(pieces: Sequence[wire.Piece], *, bridge: bool) -> list[bytes]:
    """The items in the order they are sent; `bridge` inserts an assistant message between results
    and the next user message."""
    if not bridge and not any(map(attrgetter("apart"), pieces)):
        return [piece.body for piece in pieces if piece.body]
    out: list[bytes] = []
    waiting: list[bytes] = []
    after_result = False
    for piece in pieces:
        if not piece.body:
            continue
        if after_result and piece.role != "result":
            if bridge and (waiting or piece.role == "user"):
                out.append(_BRIDGE)
            out += waiting
            waiting = []
        out.append(piece.body)
        if piece.apart:
            waiting.append(piece.apart)
        after_result = piece.role == "result"
    if waiting and bridge:
        out.append(_BRIDGE)
    return out + waiting


def function_of(call: ToolCall) -> dict[str, str]:
    """Name and arguments of an earlier call, in a form that every provider accepts."""
    arguments = wire.encode(wire.as_object(call.arguments)).decode()
    return {"name": name_of(call.name), "arguments": arguments}


def name_of(name: str) -> str:
    """A tool name, even one invented by a model, in a form that every provider accepts."""
    return wire.safe_name(name)[:_MAX_NAME]
