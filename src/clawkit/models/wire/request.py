"""Shared by the writers of all APIs: cached encodings, tools, parameters, safe names and ids."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from clawkit import content
from clawkit.errors import SchemaError
from clawkit.models.protocols import Endpoint, Facts, ModelError, Request, ToolSpec
from clawkit.schema.choose import Provider, adapt, declare, target_for
from clawkit.schema.clean import map_schemas
from clawkit.text import regex

if TYPE_CHECKING:
    from clawkit.models.wire.answer import AnswerDecoder

NO_IMAGE = "[an image was left out: the model does not accept images]"
NO_OUTPUT = "(no output)"
BEGINNING = "(The conversation begins here.)"
"""Used if the conversation does not start with the user, which some APIs require."""
UNREADABLE = "unreadable"
"""Key for arguments of earlier calls that were not a JSON object."""
MAX_DEPTH = 100
"""Maximum nesting of a call's arguments; deeper ones might not be readable again."""
BYTES_PER_TOKEN = 3
"""A low estimate, so that the size of a conversation is not underestimated."""
LEAST_ANSWER = 1_024
"""Tokens always reserved for an answer."""

_DECLARED: deque[tuple[bytes, tuple[type, Endpoint, tuple[ToolSpec, ...]]]] = deque(maxlen=32)
"""The last declared tools: many conversations share them."""
EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
_FIXED = frozenset({"messages", "input", "contents", "stream", "tools"})
"""Fields of a request that parameters cannot change."""
OWN_PARAMS = frozenset(
    (
        *("cacheRetention", "cache_retention", "contextTokens", "extraBody", "extra_body"),
        *("fallbacks", "fastMode", "fast_mode", "maxTokens", "openaiWsWarmup"),
        *("responsesCompactThreshold", "responsesServerCompaction", "thinkingLevel"),
        *("timeoutMs", "timeoutSeconds", "transport"),
    )
)
"""Parameters for clawkit, which are not sent."""
_MAX_TOKENS = 1 << 53
_MAX_NAME = 128
_NOT_IN_NAMES = r"[^a-zA-Z0-9_-]+"
_SURROGATE = "[\ud800-\udfff]"


class Piece(msgspec.Struct, frozen=True):
    """One message, encoded for an API."""

    role: str
    """The API's name of the role; `result` for results of calls in OpenAI's APIs."""
    body: bytes = b""
    """JSON items separated by commas, without brackets; empty if nothing is sent."""
    apart: bytes = b""
    """The part that belongs elsewhere in the request. Google: a result, which comes first in its
    turn. OpenAI: a user message that follows all results of one answer."""
    ids: tuple[str, ...] = ()
    """Ids of its calls."""
    images: int = 0
    """Bytes of `body` that are images; unrelated to tokens."""


class Pieces:
    """Cache of the encoded messages of a conversation."""

    def __init__(self, make: Callable[[content.Message], Piece]) -> None:
        self.make = make
        self._messages: tuple[content.Message, ...] = ()
        self._pieces: list[Piece] = []

    def of(self, messages: Sequence[content.Message]) -> list[Piece]:
        """The encoded messages; drops those of all other messages."""
        now, before, pieces = tuple(messages), self._messages, self._pieces
        # Fast path: usually a conversation only grows, and identical objects compare quickly.
        start = len(before) if now[: len(before)] == before else 0
        old = () if start else zip(before, pieces, strict=True)
        known = {id(each): piece for each, piece in old}
        made = [known[id(each)] if id(each) in known else self.make(each) for each in now[start:]]
        self._messages, self._pieces = now, pieces[:start] + made
        return list(self._pieces)


class ApiWire(ABC):
    """One API for one endpoint and one conversation; encodes each message and tool once."""

    FORM: ClassVar[Provider]
    """The format of tool declarations."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._takes_tools = endpoint.compat.supports_tools is not False
        make = self._piece
        self._pieces = Pieces(make if self._takes_tools else lambda each: make(flat(each)))
        self._unsupported = frozenset(endpoint.compat.unsupported_tool_schema_keywords)

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the API, besides the credential and the content type."""
        return {}

    @property
    @abstractmethod
    def path(self) -> str:
        """Path and query after the base URL."""

    @abstractmethod
    def write(self, request: Request) -> bytes:
        """The body of the HTTP request."""

    @abstractmethod
    def decoder(self) -> AnswerDecoder: ...
    @abstractmethod
    def _piece(self, message: content.Message) -> Piece: ...

    def _is_own(self, message: content.Assistant) -> bool:
        """Whether the message is from the same model and API: only then are signatures valid."""
        return message.api == self._endpoint.api and message.model == str(self._endpoint.ref)

    def _room(self, limit: int, budget: int) -> int:
        """Maximum tokens of the answer: the thinking budget is added to the limit, up to the
        model's maximum."""
        facts = self._endpoint.facts
        raised = min((limit or facts.max_tokens) + budget, facts.max_tokens)
        return min(max(limit, raised), facts.window)

    def _declarations(self, tools: tuple[ToolSpec, ...]) -> bytes:
        """Tools as JSON without brackets; empty if there are none, or they are not supported.
        Raises `ModelError` ("invalid") for a tool that cannot be declared."""
        if not self._takes_tools:
            return b""
        wanted = (type(self), self._endpoint, tools)
        for made, known in _DECLARED:
            if known == wanted:
                return made
        made = b",".join(encode(self._declare(tool)) for tool in tools)
        _DECLARED.append((made, wanted))
        return made

    def _declare(self, tool: ToolSpec) -> dict[str, Any]:
        endpoint, provider = self._endpoint, self.FORM
        is_openai = provider in ("openai", "openai-responses")
        target = target_for(endpoint.ref.provider, endpoint.ref.id, endpoint.api)
        strict = endpoint.compat.supports_strict_mode
        wants_strict = is_openai and strict is True and target == "openai"
        try:
            declared = declare(
                tool.name, tool.description, tool.schema, provider, strict=wants_strict
            )
            function = declared.get("function", declared)
            if is_openai and target != "openai":  # a relay passes the schema on unchanged
                function["parameters"] = adapt(tool.schema, target)
        except SchemaError as error:
            message = f"{tool.name} cannot be offered to {endpoint.ref}: {error}"
            raise ModelError("invalid", message) from None
        if provider == "openai-responses" and strict is not False:
            # The API's default is strict.
            function.setdefault("strict", False)
        for key in ("input_schema", "parameters"):
            if self._unsupported and key in function:
                function[key] = _without(function[key], self._unsupported)
        return declared


def _without(schema: Any, keywords: frozenset[str]) -> Any:
    """The schema without these keywords at any level; property names are kept."""
    if not isinstance(schema, Mapping):
        return schema
    kept = map_schemas(schema, lambda child: _without(child, keywords))
    return {key: each for key, each in kept.items() if key not in keywords}


def safe_name(name: str) -> str:
    """A tool name that every provider accepts, even if a model invented it."""
    return regex(_NOT_IN_NAMES).sub("_", name[:_MAX_NAME]) or "unnamed"


def flat(message: content.Message) -> content.Message:
    """The message for a request without tools: calls and their results as text."""
    if isinstance(message, content.ToolResult):
        what = "error of" if message.is_error else "result of"
        return content.User((content.Text(f"[{what} {message.tool}]\n{text_of(message)}"),))
    if not isinstance(message, content.Assistant) or not message.calls:
        return message
    thoughts = [part for part in message.content if isinstance(part, content.Thinking)]
    texts = [
        f"[called {part.name} with {encode(as_object(part.arguments)).decode()}]"
        if isinstance(part, content.ToolCall)
        else part.text
        for part in message.content
        if not isinstance(part, content.Thinking)
    ]
    text = content.Text("\n".join(filter(None, texts)))
    return msgspec.structs.replace(message, content=(*thoughts, text))


def blocks_of(
    message: content.User | content.Summary | content.ToolResult,
) -> list[content.Text | content.Image]:
    """The blocks of a message without empty texts, which providers reject."""
    if isinstance(message, content.Summary):
        return [content.Text(f"The conversation before this was summarised:\n\n{message.text}")]
    return [
        each for each in message.content if isinstance(each, content.Image) or each.text.strip()
    ]


def write_turns(
    fields: dict[str, Any],
    names: tuple[str, str],
    pieces: Iterable[Piece],
    beginning: object,
    mark: bytes = b"",
) -> bytes:
    """The whole request: `fields`, and the conversation with one turn per change of role.

    `names` are the names of the list of turns and of the parts of a turn; `Piece.apart` comes first
    in a turn. If the first turn is not the user's, `beginning` is added. The user's last two turns
    end with `mark`.
    """
    turns: list[tuple[str, list[bytes], list[bytes]]] = []
    for piece in pieces:
        if (piece.body or piece.apart) and (not turns or turns[-1][0] != piece.role):
            turns.append((piece.role, [], []))
        if piece.apart:
            turns[-1][1].append(piece.apart)
        if piece.body:
            turns[-1][2].append(piece.body)
    if not turns or turns[0][0] != "user":
        turns.insert(0, ("user", [], [encode(beginning)]))
    for _, first, rest in [turn for turn in turns if turn[0] == "user"][-2:] if mark else ():
        parts = rest or first
        parts[-1] = parts[-1][:-1] + mark
    out = [encode(fields)[:-1], b',"%s":[' % names[0].encode()]
    for role, first, rest in turns:
        out.append(b'{"role":"%s","%s":[' % (role.encode(), names[1].encode()))
        for body in (*first, *rest):
            out += (body, b",")
        out[-1] = b"]}"
        out.append(b",")
    out[-1] = b"]}"
    # Conversations are large: copy them only once, in one join.
    return b"".join(out)


def text_of(result: content.ToolResult, image: str = NO_IMAGE) -> str:
    """The text of a result, with `image` for each image."""
    texts = [
        image if isinstance(block, content.Image) else block.text
        for block in result.content
        if not isinstance(block, content.Text) or block.text.strip()
    ]
    return "\n".join(filter(None, texts)) or NO_OUTPUT


def clean(text: str) -> str:
    """The text with split surrogate pairs joined, and lone surrogates replaced."""
    if text.isascii() or not re.search(_SURROGATE, text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def encode(value: object) -> bytes:
    """Encode plain values as JSON; strings may contain lone surrogates."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(cleaned(value))


def cleaned(value: object) -> object:
    """The value with `clean` applied to every string."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {cleaned(key): cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(item) for item in value]
    return value


def is_deep(value: object, levels: int = MAX_DEPTH) -> bool:
    """Whether lists and objects are nested deeper than this. Does not recurse."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(levels):
        inner = [node.values() if isinstance(node, dict) else node for node in level]
        level = [each for children in inner for each in children if isinstance(each, (dict, list))]
        if not level:
            return False
    return True


def as_object(arguments: dict[str, Any] | str) -> dict[str, Any]:
    """The arguments of a call as an object that every provider accepts."""
    if isinstance(arguments, str):
        return {UNREADABLE: arguments}
    return {UNREADABLE: "nested too deeply"} if is_deep(arguments) else arguments


def room_for_answer(request: Request, facts: Facts, size: int) -> int:
    """Tokens left in the window after a request of `size` bytes (without images)."""
    # Add 5 %, because messages since the last count are only estimated.
    used = request.tokens + request.tokens // 20 or size // BYTES_PER_TOKEN
    return max(facts.window - used, LEAST_ANSWER)


def nearest_effort(level: str, known: Iterable[str]) -> str | None:
    """The closest effort that a model supports: the same, else less, else more."""
    ordered = [each for each in EFFORTS if each in known]
    less = [each for each in ordered if EFFORTS.index(each) <= EFFORTS.index(level)]
    return less[-1] if less else next(iter(ordered), None)


def tokens(value: object) -> int:
    """A number of tokens from a provider or a setting; 0 for any other value."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0:
        return 0
    return int(value) if value < _MAX_TOKENS else 0


def merge_params(body: dict[str, Any], *params: Mapping[str, Any]) -> dict[str, Any]:
    """The body with configured parameters; later ones take precedence.

    Objects are merged, null removes a field. Fields with the conversation cannot be changed, and
    clawkit's own parameters are not sent; `extra_body` contains further fields of any name.
    """
    for given in filter(None, params):
        fields = {key: value for key, value in given.items() if key not in OWN_PARAMS}
        for key in ("extra_body", "extraBody"):
            if isinstance(extra := given.get(key), Mapping):
                fields.update(extra)
        _merge(body, {key: value for key, value in fields.items() if key not in _FIXED})
    return body


def _merge(into: dict[str, Any], fields: Mapping[str, Any]) -> None:
    for key, value in fields.items():
        old = into.get(key)
        if value is None:
            into.pop(key, None)
        elif isinstance(old, dict) and isinstance(value, Mapping):
            into[key] = dict(old)
            _merge(into[key], value)
        else:
            into[key] = value


def max_tokens_param(*params: Mapping[str, Any]) -> int | None:
    """The output limit from the parameter `maxTokens`; the last one counts."""
    given = [each["maxTokens"] for each in params if tokens(each.get("maxTokens"))]
    return int(given[-1]) if given else None


def short_id(text: str, max_chars: int = 40) -> str:
    """A stable id of letters, digits and `_` for a text."""
    import hashlib

    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"call_{digest}"[:max_chars]
