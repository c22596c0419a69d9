"""What OpenAI's two APIs have in common: one conversation with one endpoint, out and back.

`Dialect` is what a service with such an API takes: as configured, else as far as it is known.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

import msgspec

from clawkit.config.sections.shared import Thinking as Level
from clawkit.content import (
    Assistant,
    Block,
    Image,
    Message,
    Stop,
    Summary,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    User,
)
from clawkit.models.errors import cut_off
from clawkit.models.protocols import Delta, Endpoint, ModelError, Request
from clawkit.models.wire.answer import Answer
from clawkit.models.wire.request import (
    NO_IMAGE,
    Declarations,
    Piece,
    Pieces,
    as_object,
    encode,
    max_tokens_param,
    merge_params,
    room_for_answer,
    safe_name,
    short_id,
    summary_text,
)
from clawkit.net.sse import ServerEvent

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
_FORMATS = frozenset({"openrouter", "deepseek", "zai", "together", "qwen"})
_NO_EFFORT = frozenset({"mistral", "xai", "moonshot"})
_KEEPS_THINKING = _FORMATS | {"qwen-chat-template", "moonshot"}
"""Formats and services that want back what the model thought."""
_MISSES_THINKING = frozenset({"deepseek", "moonshot"})
"""Services that refuse a message with calls when the thinking before them is missing."""

_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_SAFE_EFFORTS = ("low", "medium", "high")
"""What every model that thinks can be expected to know."""
_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]+")
_WIDE_ID = re.compile(r"[A-Za-z0-9_.:-]+")
_NINE = re.compile(r"[A-Za-z0-9]{9}")
_MAX_CACHE_KEY = 64


def _service(endpoint: Endpoint) -> str:
    """Which of the known services this is, or the provider's own name."""
    try:
        host = urlsplit(endpoint.base_url).hostname or ""
    except ValueError:
        host = ""
    for end, name in _SERVICES.items():
        if host == end or host.endswith(f".{end}"):
            return name
    return endpoint.ref.provider


def _or(given: bool | None, default: bool) -> bool:
    return default if given is None else given


class Dialect(msgspec.Struct, frozen=True):
    """Everything that is decided once for an endpoint."""

    endpoint: Endpoint
    service: str
    system_role: Literal["developer", "system"]
    format: str
    """How thinking is turned on."""
    takes_effort: bool
    keeps_thinking: bool
    """Whether the model's thinking goes back to it in a field of its own."""
    needs_thinking: bool
    """Whether a message with calls must have that field, empty if need be."""
    takes_tools: bool
    strict: bool | None
    store: bool
    usage: bool
    cache_key: bool
    cache_marks: bool
    max_tokens_field: str

    @classmethod
    def of(cls, endpoint: Endpoint) -> Dialect:
        compat, native = endpoint.compat, endpoint.is_native
        service = "" if native else _service(endpoint)
        form = compat.thinking_format or (service if service in _FORMATS else "openai")
        keeps = not (native or compat.strict_message_keys or compat.requires_thinking_as_text)
        developer = native and endpoint.facts.reasoning
        developer = developer and compat.supports_developer_role is not False
        effort = _or(compat.supports_reasoning_effort, service not in _NO_EFFORT)
        if form not in ("openai", "openrouter"):
            effort = compat.supports_reasoning_effort is True
        return cls(
            endpoint=endpoint,
            service=service,
            system_role="developer" if developer else "system",
            format=form,
            takes_effort=effort,
            keeps_thinking=keeps and (form in _KEEPS_THINKING or service in _KEEPS_THINKING),
            needs_thinking=keeps and service in _MISSES_THINKING and endpoint.facts.reasoning,
            takes_tools=compat.supports_tools is not False,
            strict=compat.supports_strict_mode,
            store=_or(compat.supports_store, native),
            usage=compat.supports_usage_in_streaming is not False,
            cache_key=_or(compat.supports_prompt_cache_key, native),
            cache_marks=compat.cache_control_format == "anthropic"
            and not (compat.requires_string_content or compat.strict_message_keys),
            max_tokens_field=compat.max_tokens_field
            or ("max_completion_tokens" if native else "max_tokens"),
        )

    def effort(self, level: Level) -> str | None:
        """The service's word for a level; None where there is none to send."""
        endpoint, compat = self.endpoint, self.endpoint.compat
        if level in endpoint.thinking_levels:
            word = endpoint.thinking_levels[level]
            return word if isinstance(word, str) else None if word is None else level
        if level in compat.reasoning_effort_map:
            return compat.reasoning_effort_map[level]
        known = compat.supported_reasoning_efforts
        if level == "off":
            return "none" if known and "none" in known else None
        return _nearest(level, known if known is not None else _SAFE_EFFORTS)

    def is_on(self, level: Level) -> bool:
        """Whether the model is to think."""
        return level != "off" and self.endpoint.thinking_levels.get(level, level) is not None

    def thinking_fields(self, level: Level) -> dict[str, Any]:
        """What turns thinking on or off in a request for chat completions."""
        if not self.endpoint.facts.reasoning:
            return {}
        is_on, word = self.is_on(level), self.effort(level)
        effort = {"reasoning_effort": word} if self.takes_effort and word else {}
        switch = {"type": "enabled" if is_on else "disabled"}
        if self.format == "openrouter":
            by_word = self.takes_effort and (word or not is_on)
            return {"reasoning": {"effort": word or "none"} if by_word else {"enabled": is_on}}
        if self.format in ("deepseek", "zai"):
            return {"thinking": switch} | (effort if is_on else {})
        if self.format == "together":
            return {"reasoning": {"enabled": is_on}} | (effort if is_on else {})
        if self.format == "qwen":
            return {"enable_thinking": is_on} | (effort if is_on else {})
        if self.format == "qwen-chat-template":
            return {"chat_template_kwargs": {"enable_thinking": is_on}}
        return effort

    def call_id(self, given: str) -> str:
        """The id of a call as the service takes it: its own as it came, others made safe."""
        if self.service == "mistral":
            return given if _NINE.fullmatch(given) else short_id(given)[5:14]
        native = self.endpoint.is_native
        pattern = _PLAIN_ID if native or "claude" in self.endpoint.ref.id.lower() else _WIDE_ID
        max_chars = 40 if native and self.endpoint.api == "openai-completions" else 64
        fits = len(given) <= max_chars and pattern.fullmatch(given)
        return given if fits else short_id(given)

    def cache_fields(self, request: Request) -> dict[str, str]:
        """What lets requests of one conversation find the same cache, and how long it is kept."""
        given = {**self.endpoint.params, **request.params}
        retention = given.get("cacheRetention", given.get("cache_retention"))
        fields: dict[str, str] = {}
        if retention == "none":
            return fields
        if self.cache_key and (key := request.session):
            fits = len(key) <= _MAX_CACHE_KEY
            fields["prompt_cache_key"] = key if fits else short_id(key, _MAX_CACHE_KEY)
        if retention == "long" and self.endpoint.compat.supports_long_cache_retention:
            fields["prompt_cache_retention"] = "24h"
        return fields


def _nearest(word: str, known: list[str] | tuple[str, ...]) -> str | None:
    """The effort that comes closest among those a model knows: the same, less, or else more."""
    if word in known:
        return word
    at = _EFFORTS.index(word)
    less = [each for each in _EFFORTS[1:at] if each in known]
    more = [each for each in _EFFORTS[at:] if each in known]
    return less[-1] if less else more[0] if more else None


IMAGE_FOLLOWS = "[an image, which follows]"
RESULT_IMAGES = "[images of the results above]"
BRIDGE = encode({"role": "assistant", "content": "[results received]"})
_MAX_NAME = 64
_SAMPLING = ("temperature", "top_p")
_LIMITS = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens"})
"""How the limit of an answer is called in the words of the APIs."""
_ABOUT_TOOLS = ("tool_choice", "parallel_tool_calls")


def arrange(pieces: Sequence[Piece], *, bridge: bool) -> list[bytes]:
    """The items in the order in which they are sent.

    With `bridge`, a message of the assistant stands between results and what a user says next.
    """
    out: list[bytes] = []
    waiting: list[bytes] = []
    after_result = False
    for role, body, after, *_ in pieces:
        if not body:
            continue
        if after_result and role != "result":
            if bridge and (waiting or role == "user"):
                out.append(BRIDGE)
            out += waiting
            waiting = []
        out.append(body)
        if after:
            waiting.append(after)
        after_result = role == "result"
    if waiting and bridge:
        out.append(BRIDGE)
    return out + waiting


def blocks_of(message: User | Summary) -> list[Text | Image]:
    """What a message holds for the model; services refuse empty texts."""
    if isinstance(message, Summary):
        return [Text(summary_text(message))]
    return [each for each in message.content if isinstance(each, Image) or each.text.strip()]


def images_of(blocks: Iterable[Text | Image]) -> list[Image]:
    return [block for block in blocks if isinstance(block, Image)]


def is_own(message: Assistant, endpoint: Endpoint) -> bool:
    """Whether the same model said this through the same API: only then its signatures hold."""
    return message.api == endpoint.api and message.model == str(endpoint.ref)


def function_of(call: ToolCall) -> dict[str, str]:
    """Name and arguments of a call of earlier, as every service takes them."""
    return {
        "name": name_of(call.name),
        "arguments": encode(as_object(call.arguments)).decode(),
    }


def name_of(name: str) -> str:
    """A tool's name, also one that a model made up, as every service takes it."""
    return safe_name(name)[:_MAX_NAME]


def max_tokens(request: Request, endpoint: Endpoint, items: list[bytes]) -> int | None:
    """The limit of the answer, where one is set. That of a model is not more than there is room
    for beside the conversation."""
    given = max_tokens_param(endpoint.params, request.params)
    given = given if request.max_tokens is None else request.max_tokens
    in_own_words = _LIMITS & {*endpoint.params, *request.params}
    if given is not None or in_own_words or not endpoint.facts.is_capped:
        return given
    # What pictures take has nothing to do with their size.
    size = sum(len(item) for item in items if b";base64," not in item)
    return min(endpoint.facts.max_tokens, room_for_answer(request, endpoint.facts, size))


def join_body(
    name: str,
    items: list[bytes],
    tools: bytes,
    fields: dict[str, Any],
    request: Request,
    endpoint: Endpoint,
) -> bytes:
    """The whole request: the conversation under `name`, tools, and fields with parameters."""
    merge_params(fields, endpoint.params, request.params)
    unwanted = () if endpoint.compat.supports_temperature is not False else _SAMPLING
    for key in (*unwanted, *(() if tools else _ABOUT_TOOLS)):
        fields.pop(key, None)
    if endpoint.compat.supports_json_schema_response_format is False:
        form = fields.get("response_format")
        if isinstance(form, dict) and form.get("type") == "json_schema":
            del fields["response_format"]
    fields["stream"] = True
    start = b'{"%s":[' % name.encode()
    end = b"]," + (b'"tools":[%s],' % tools if tools else b"") + encode(fields)[1:]
    if not items:
        return start + end
    # Conversations are large: they are copied once, by one join.
    items[0] = start + items[0]
    items[-1] += end
    return b",".join(items)


class OpenAiWire(ABC):
    """Writes requests. Each message is written once, whatever the number of requests it is in."""

    PATH: ClassVar[str]
    FORM: ClassVar[Literal["openai", "openai-responses"]]
    LIST: ClassVar[str]
    """The field that holds the conversation."""
    TEXT: ClassVar[str]
    """What a part with text is called."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._dialect = Dialect.of(endpoint)
        self._declared = Declarations(endpoint, self.FORM)
        self._pieces: Pieces[Piece] = Pieces(self._piece)
        self._has_after = bool(endpoint.compat.requires_assistant_after_tool_result)
        self._system: tuple[str, bytes] = ("", b"")

    @property
    def path(self) -> str:
        return self.PATH

    @property
    def headers(self) -> Mapping[str, str]:
        return {}

    def write(self, request: Request) -> bytes:
        tools = self._declared.of(request.tools) if self._dialect.takes_tools else b""
        items = self._items(request)
        fields = self._fields(request, max_tokens(request, self._endpoint, [*items, tools]))
        return join_body(self.LIST, items, tools, fields, request, self._endpoint)

    def _items(self, request: Request) -> list[bytes]:
        """The conversation, the system prompt first."""
        pieces = self._marked(request, self._pieces.of(request.messages))
        if self._has_after:
            bridge = bool(self._endpoint.compat.requires_assistant_after_tool_result)
            items = arrange(pieces, bridge=bridge)
        else:
            items = [piece.body for piece in pieces if piece.body]
        if not self._says_system(request):
            return items
        if request.system != self._system[0]:
            self._system = (request.system, self._system_item(request.system))
        return [self._system[1], *items]

    def _says_system(self, request: Request) -> bool:
        """Whether the system prompt is part of the conversation."""
        return bool(request.system.strip())

    def _marked(self, _request: Request, pieces: list[Piece]) -> list[Piece]:
        """The pieces with marks for the provider's cache, where it wants some."""
        return pieces

    def _piece(self, message: Message) -> Piece:
        piece = self._make(message)
        self._has_after = self._has_after or bool(piece.apart)
        return piece

    def _make(self, message: Message) -> Piece:
        if isinstance(message, Assistant):
            return Piece("assistant", self._answer(message))
        if isinstance(message, ToolResult):
            return self._result(message)
        blocks = blocks_of(message)
        if not blocks:
            return Piece("user", b"")
        return Piece("user", encode({"role": "user", "content": self._content(blocks)}))

    def _content(self, blocks: list[Block]) -> str | list[dict[str, Any]]:
        """One text as a string, which every service takes; anything else as parts."""
        parts = self._parts(blocks)
        is_text = all("text" in part for part in parts)
        if is_text and (len(parts) == 1 or self._endpoint.compat.requires_string_content):
            return "\n".join(part["text"] for part in parts)
        return parts

    def _parts(self, blocks: list[Block]) -> list[dict[str, Any]]:
        takes_images = self._endpoint.facts.images
        return [
            self._image(block)
            if isinstance(block, Image) and takes_images
            else {"type": self.TEXT, "text": block.text if isinstance(block, Text) else NO_IMAGE}
            for block in blocks
        ]

    @abstractmethod
    def _answer(self, message: Assistant) -> bytes:
        """Items of an answer; empty for one that says nothing."""

    @abstractmethod
    def _result(self, result: ToolResult) -> Piece: ...
    @abstractmethod
    def _image(self, image: Image) -> dict[str, Any]: ...
    @abstractmethod
    def _system_item(self, system: str) -> bytes: ...
    @abstractmethod
    def _fields(self, request: Request, limit: int | None) -> dict[str, Any]:
        """What is beside the conversation; `limit` is that of the answer."""


class OpenAiDecoder(ABC):
    """Reads the events of one answer, to `[DONE]` or until it is clear that it is complete."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._answer = Answer(endpoint)
        self._usage = Usage()
        self._stop: Stop | None = None
        self._refused = False
        self._done = False

    def feed(self, event: ServerEvent) -> Iterable[Delta]:
        data = event.data.strip()
        if not data or self._done:
            return ()
        if data == "[DONE]":
            self._done = True
            return ()
        try:
            return self._read(data, event.name)
        except ModelError as error:
            error.partial = self._answer.failed(self.partial())
            raise

    def finish(self) -> Assistant:
        if self._stop is None and not self._done:
            message = cut_off(self._endpoint.ref.provider)
            raise ModelError("cut", message, partial=self._answer.failed(self.partial()))
        self._seal()
        stop: Stop = "refusal" if self._refused else self._stop or "stop"
        return self._answer.whole(stop, self._usage)

    def partial(self) -> Assistant:
        self._seal()
        return self._answer.partial(self._usage)

    def _seal(self) -> None:  # noqa: B027  # there may be nothing to settle
        """Settle what is known only when nothing more comes."""

    @abstractmethod
    def _read(self, data: str, name: str) -> Iterable[Delta]: ...
