"""What the writers of all APIs need: encodings made once, tools, parameters, safe names and ids."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from clawkit.content import (
    Assistant,
    Image,
    Message,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)
from clawkit.errors import SchemaError
from clawkit.models.protocols import Endpoint, Facts, ModelError, Request, ToolSpec
from clawkit.schema.choose import Provider, adapt, declare, target_for
from clawkit.schema.walk import map_schemas

if TYPE_CHECKING:
    from clawkit.models.wire.answer import AnswerDecoder

NO_IMAGE = "[an image was left out: the model takes no images]"
NO_OUTPUT = "(no output)"
BEGINNING = "(The conversation begins here.)"
"""The first message of the user where there is none: some APIs insist on one."""
UNREADABLE = "unreadable"
"""Key under which a model gets back arguments of its own that were not a JSON object."""
MAX_DEPTH = 100
"""Levels of one call's arguments; beyond that, reading them again could fail."""
BYTES_PER_TOKEN = 3
"""Few, so that a conversation is not taken for shorter than it is."""
LEAST_ANSWER = 1_024
"""Tokens left for an answer, however full the window seems."""

EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
_FIXED = frozenset({"messages", "input", "contents", "stream", "tools"})
"""Fields of a request that no parameter changes."""
OWN_PARAMS = frozenset(
    (
        *("cacheRetention", "cache_retention", "contextTokens", "extraBody", "extra_body"),
        *("fallbacks", "fastMode", "fast_mode", "maxTokens", "openaiWsWarmup"),
        *("responsesCompactThreshold", "responsesServerCompaction", "thinkingLevel"),
        *("timeoutMs", "timeoutSeconds", "transport"),
    )
)
"""Parameters that mean something to clawkit, not to a service."""
_MAX_TOKENS = 1 << 53
_MAX_NAME = 128
_NOT_IN_NAMES = r"[^a-zA-Z0-9_-]+"
_SURROGATE = "[\ud800-\udfff]"


class Piece(msgspec.Struct, frozen=True):
    """One message as an API is sent it."""

    role: str
    """The API's own word; `result` for the results of calls in OpenAI's APIs."""
    body: bytes = b""
    """JSON without brackets, with commas between items; empty when nothing is sent."""
    apart: bytes = b""
    """What has another place in the request. Google: a result, which comes first in its turn.
    OpenAI: what the user says once all results that belong together are given."""
    ids: tuple[str, ...] = ()
    """Of the calls it asks for."""
    images: int = 0
    """Bytes of `body` that are images: they say nothing about tokens."""


class Pieces:
    """How each message of a conversation is written: made once, kept while the message is in it."""

    def __init__(self, make: Callable[[Message], Piece]) -> None:
        self.make = make
        self._messages: tuple[Message, ...] = ()
        self._pieces: list[Piece] = []

    def of(self, messages: Sequence[Message]) -> list[Piece]:
        """The piece of every message; forgets those of all other messages."""
        now, before, pieces = tuple(messages), self._messages, self._pieces
        # Mostly a conversation only grows: the same objects are equal at once.
        start = len(before) if now[: len(before)] == before else 0
        known = (
            {} if start else {id(each): piece for each, piece in zip(before, pieces, strict=True)}
        )
        made = [known[id(each)] if id(each) in known else self.make(each) for each in now[start:]]
        self._messages, self._pieces = now, pieces[:start] + made
        return list(self._pieces)


class ApiWire(ABC):
    """One API for one endpoint and one conversation: each message and tool is encoded once."""

    FORM: ClassVar[Provider]
    """How tools are declared."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._takes_tools = endpoint.compat.supports_tools is not False
        make = self._piece
        self._pieces = Pieces(make if self._takes_tools else lambda each: make(flat(each)))
        self._unsupported = frozenset(endpoint.compat.unsupported_tool_schema_keywords)
        self._tools: tuple[ToolSpec, ...] = ()
        self._declared = b""

    @property
    def headers(self) -> Mapping[str, str]:
        """What the API wants besides the credential and the content type."""
        return {}

    @property
    @abstractmethod
    def path(self) -> str:
        """What comes after the base URL, with its query."""

    @abstractmethod
    def write(self, request: Request) -> bytes:
        """The body of the HTTP request. Work per message is done once, not once per request."""

    @abstractmethod
    def decoder(self) -> AnswerDecoder: ...
    @abstractmethod
    def _piece(self, message: Message) -> Piece: ...

    def _is_own(self, message: Assistant) -> bool:
        """Whether the same model said this through the same API: only then its signatures hold."""
        return message.api == self._endpoint.api and message.model == str(self._endpoint.ref)

    def _room(self, limit: int, budget: int) -> int:
        """Tokens of the answer: what the thinking takes is on top of what was asked for, as far as
        the model can."""
        facts = self._endpoint.facts
        raised = min((limit or facts.max_tokens) + budget, facts.max_tokens)
        return min(max(limit, raised), facts.window)

    def _declarations(self, tools: tuple[ToolSpec, ...]) -> bytes:
        """Tools as JSON without brackets; nothing for no tools, or where they are not supported.

        Raises `ModelError` ("invalid") for a tool that cannot be declared.
        """
        if not self._takes_tools:
            return b""
        if tools is not self._tools:
            self._declared = b",".join(encode(self._declare(tool)) for tool in tools)
            self._tools = tools
        return self._declared

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
            if is_openai and target != "openai":  # a relay passes the schema on as it is
                function["parameters"] = adapt(tool.schema, target)
        except SchemaError as error:
            message = f"{tool.name} cannot be offered to {endpoint.ref}: {error}"
            raise ModelError("invalid", message) from None
        if provider == "openai-responses" and strict is not False:
            # By default, this API makes a schema strict by itself.
            function.setdefault("strict", False)
        for key in ("input_schema", "parameters"):
            if self._unsupported and key in function:
                function[key] = _without(function[key], self._unsupported)
        return declared


def _without(schema: Any, keywords: frozenset[str]) -> Any:
    """The schema with these keywords left out at every level; names of properties stay."""
    if not isinstance(schema, Mapping):
        return schema
    visit: Callable[[Any], Any] = lambda child: _without(child, keywords)  # noqa: E731
    return {key: each for key, each in map_schemas(schema, visit).items() if key not in keywords}


def safe_name(name: str) -> str:
    """A tool's name that every service takes back, also where a model made it up."""
    return re.sub(_NOT_IN_NAMES, "_", name[:_MAX_NAME]) or "unnamed"


def flat(message: Message) -> Message:
    """The message for a model that is offered no tools: calls and their results as text."""
    if isinstance(message, ToolResult):
        what = "error of" if message.is_error else "result of"
        return User((Text(f"[{what} {message.tool}]\n{text_of(message)}"),))
    if not isinstance(message, Assistant) or not message.calls:
        return message
    thoughts = [part for part in message.content if isinstance(part, Thinking)]
    texts = [
        f"[called {part.name} with {encode(as_object(part.arguments)).decode()}]"
        if isinstance(part, ToolCall)
        else part.text
        for part in message.content
        if not isinstance(part, Thinking)
    ]
    text = Text("\n".join(filter(None, texts)))
    return msgspec.structs.replace(message, content=(*thoughts, text))


def blocks_of(message: User | Summary | ToolResult) -> list[Text | Image]:
    """What a message holds for the model; services refuse empty texts."""
    if isinstance(message, Summary):
        return [Text(f"The conversation before this was summarised:\n\n{message.text}")]
    return [each for each in message.content if isinstance(each, Image) or each.text.strip()]


def write_turns(
    fields: dict[str, Any],
    names: tuple[str, str],
    pieces: Iterable[Piece],
    beginning: object,
    mark: bytes = b"",
) -> bytes:
    """The whole request: `fields`, and the conversation, one turn per change of role.

    `names` are those of the list of turns and of the parts of one; what is `apart` comes first in
    a turn. The first one is the user's: `beginning` where the conversation has none. The last two
    of the user end with `mark`.
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
    # Conversations are large: they are copied once, by one join.
    return b"".join(out)


def text_of(result: ToolResult, image: str = NO_IMAGE) -> str:
    """The text of a result, with `image` in the place of each image."""
    texts = [
        image if isinstance(block, Image) else block.text
        for block in result.content
        if not isinstance(block, Text) or block.text.strip()
    ]
    return "\n".join(filter(None, texts)) or NO_OUTPUT


def clean(text: str) -> str:
    """The text with halves of surrogate pairs joined, and those without the other half replaced."""
    if text.isascii() or not re.search(_SURROGATE, text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def encode(value: object) -> bytes:
    """JSON of plain values; never fails for texts that are not valid Unicode."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(cleaned(value))


def cleaned(value: object) -> object:
    """The value with every text in it `clean`."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {cleaned(key): cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(item) for item in value]
    return value


def is_deep(value: object, levels: int = MAX_DEPTH) -> bool:
    """Whether lists and objects are nested that deep. Does not recurse, however deep they are."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        inner = [node.values() if isinstance(node, dict) else node for node in level]
        level = [each for children in inner for each in children if isinstance(each, dict | list)]
        if not level:
            return False
    return True


def as_object(arguments: dict[str, Any] | str) -> dict[str, Any]:
    """The arguments of a call in a form that every service takes, readable or not."""
    if isinstance(arguments, str):
        return {UNREADABLE: arguments}
    return {UNREADABLE: "nested too deeply"} if is_deep(arguments) else arguments


def room_for_answer(request: Request, facts: Facts, size: int) -> int:
    """Tokens that are left in the window beside a request of so many bytes, but for pictures."""
    # What came since the service counted may be more than it was taken for.
    used = request.tokens + request.tokens // 20 or size // BYTES_PER_TOKEN
    return max(facts.window - used, LEAST_ANSWER)


def nearest_effort(level: str, known: Iterable[str]) -> str | None:
    """The effort that comes closest among those a model knows: the same, less, or else more."""
    ordered = [each for each in EFFORTS if each in known]
    less = [each for each in ordered if EFFORTS.index(each) <= EFFORTS.index(level)]
    return less[-1] if less else next(iter(ordered), None)


def tokens(value: object) -> int:
    """A number of tokens as a service or a setting has it; 0 for anything else."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0:
        return 0
    return int(value) if value < _MAX_TOKENS else 0


def merge_params(body: dict[str, Any], *params: Mapping[str, Any]) -> dict[str, Any]:
    """The body with parameters from the configuration, later ones over earlier ones.

    Objects are merged, null takes a field out. What makes up the conversation stays as it is, and
    clawkit's own parameters are not sent; `extra_body` holds more fields, of any name.
    """
    for given in params:
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
    """The output limit that the configuration sets by `maxTokens`; the last one counts."""
    given = [each["maxTokens"] for each in params if tokens(each.get("maxTokens"))]
    return int(given[-1]) if given else None


def short_id(text: str, max_chars: int = 40) -> str:
    """An id of letters, digits, `_` and `-` that always comes out the same for the same text."""
    import hashlib

    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"call_{digest}"[:max_chars]
