"""What the adapters of all APIs need: remembered encodings, careful reading, limits, prices."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from clawkit.config.sections.models import Cost
from clawkit.content import Image, Message, Summary, Usage
from clawkit.models.base import Facts, ModelError, Request
from clawkit.text import one_line

T = TypeVar("T")

NO_IMAGE = "[an image was left out: the model takes no images]"
UNREADABLE = "unreadable"
"""Key under which a model gets back arguments of its own that were no JSON object."""

MAX_ARGUMENTS, MAX_ALL_ARGUMENTS = 8 * 1024 * 1024, 32 * 1024 * 1024
"""Characters of one call's arguments, and of all calls of an answer."""
MAX_CALLS = 512
MAX_TEXT = 32 * 1024 * 1024
"""Characters of an answer's text and thinking together."""
MAX_DEPTH = 100
"""Levels of one call's arguments; beyond that, reading them again could fail."""
MAX_INNER = 500_000
"""Lists and objects in one call's arguments: small as they are, each takes its time and memory."""
_MAX_SAID = 300
_MAX_TOKENS = 1 << 53

_FIXED = frozenset({"messages", "input", "contents", "stream", "tools"})
"""Fields of a request that no parameter changes."""
OWN_PARAMS = frozenset(
    {
        "cacheRetention",
        "cache_retention",
        "contextTokens",
        "extraBody",
        "extra_body",
        "fallbacks",
        "fastMode",
        "fast_mode",
        "maxTokens",
        "openaiWsWarmup",
        "responsesCompactThreshold",
        "responsesServerCompaction",
        "thinkingLevel",
        "timeoutMs",
        "timeoutSeconds",
        "transport",
    }
)
"""Parameters that mean something to clawkit, not to a service."""

BYTES_PER_TOKEN = 3
"""Few, so that a conversation is not taken for shorter than it is."""
LEAST_ANSWER = 1_024
"""Tokens left for an answer, however full the window seems."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def room_for_answer(request: Request, facts: Facts, size: int) -> int:
    """Tokens that are left in the window beside a request of so many bytes, but for pictures."""
    # What came since the service counted may be more than it was taken for.
    used = request.tokens + request.tokens // 20 or size // BYTES_PER_TOKEN
    return max(facts.window - used, LEAST_ANSWER)


class Pieces(Generic[T]):
    """How each message of a conversation is written: made once, kept while the message is in it."""

    def __init__(self, make: Callable[[Message], T]) -> None:
        self._make = make
        self._messages: tuple[Message, ...] = ()
        self._pieces: list[T] = []

    def of(self, messages: Sequence[Message]) -> list[T]:
        """The piece of every message; forgets those of all other messages."""
        now, before, pieces = tuple(messages), self._messages, self._pieces
        # Mostly a conversation only grows: the same objects are equal at once.
        start = len(before) if now[: len(before)] == before else 0
        known = (
            {} if start else {id(each): piece for each, piece in zip(before, pieces, strict=True)}
        )
        made = [known[id(each)] if id(each) in known else self._make(each) for each in now[start:]]
        self._messages, self._pieces = now, pieces[:start] + made
        return list(self._pieces)

    def __len__(self) -> int:
        return len(self._pieces)


def clean(text: str) -> str:
    """The text with halves of surrogate pairs joined, and those without the other half replaced."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def encode(value: object) -> bytes:
    """JSON of plain values; never fails for texts that are not valid Unicode."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_cleaned(value))


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]
    return value


def decode(text: str) -> Any:
    """JSON that somebody else wrote. Raises ValueError, and nothing else, where it is none.

    Control characters in strings are accepted, and halves of surrogate pairs: services cut texts
    between them.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        pass
    except RecursionError:
        raise ValueError("nested too deeply") from None
    import json

    try:
        return json.loads(text, strict=False, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def read_arguments(text: str, *, is_complete: bool = True) -> dict[str, Any] | str:
    """The arguments of a call, or the text as it came where they are no JSON object.

    Repaired is only what can mean one thing: nothing at all, a JSON text inside a JSON string, a
    code fence, control characters, and, unless the answer was cut (`is_complete` false), one
    missing brace at the end.
    """
    found = _object(text)
    if found is None and is_complete:
        found = _object(text + "}")
    return clean(text) if found is None or _is_deep(found) else _cleaned_object(found)


def _object(text: str) -> dict[str, Any] | None:
    stripped = _unfenced(text.strip())
    if not stripped or stripped == "null":
        return {}
    if stripped[0] not in '{"' or sum(map(stripped.count, "[{")) > MAX_INNER:
        return None
    try:
        value = decode(stripped)
        if isinstance(value, str):
            value = decode(value) if value.strip() else {}
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _unfenced(text: str) -> str:
    """What stands in a code fence; a text without one as it is."""
    if len(text) < 6 or not (text.startswith("```") and text.endswith("```")):
        return text
    kind, line_end, inner = text[3:-3].partition("\n")
    return inner.strip() if line_end and kind.rstrip(" \t").lower() in ("", "json") else text


def _cleaned_object(value: dict[str, Any]) -> dict[str, Any]:
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return {clean(key): _cleaned(item) for key, item in value.items()}
    return value


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in _children(node)]
        if not level:
            return False
    return True


def _children(node: object) -> Iterable[object]:
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [child for child in inner if isinstance(child, dict | list)]


def as_object(arguments: dict[str, Any] | str) -> dict[str, Any]:
    """The arguments of a call in a form that every service takes, readable or not."""
    if isinstance(arguments, str):
        return {UNREADABLE: arguments}
    return {UNREADABLE: "nested too deeply"} if _is_deep(arguments) else arguments


class Limits:
    """How large an answer may get. Raises `ModelError` ("malformed") for one that is larger."""

    def __init__(self) -> None:
        self._text = 0
        self._calls: dict[int, int] = {}
        self._arguments = 0

    def add_text(self, text: str) -> None:
        """Text or thinking came."""
        self._text += len(text)
        if self._text > MAX_TEXT:
            raise malformed(f"its answer is longer than {MAX_TEXT:,} characters")

    def add_call(self, number: int) -> None:
        """A call began."""
        self._calls[number] = 0
        if len(self._calls) > MAX_CALLS:
            raise malformed(f"its answer has more than {MAX_CALLS} calls")

    def add_arguments(self, number: int, text: str) -> None:
        """More of a call's arguments came."""
        size = self._calls[number] = self._calls.get(number, 0) + len(text)
        self._arguments += len(text)
        if size > MAX_ARGUMENTS:
            raise malformed(f"the arguments of a call exceed {MAX_ARGUMENTS:,} characters")
        if self._arguments > MAX_ALL_ARGUMENTS:
            raise malformed(f"the arguments of its calls exceed {MAX_ALL_ARGUMENTS:,} characters")


def malformed(what: str) -> ModelError:
    """The error for an answer that is not what the API says it is."""
    return ModelError("malformed", f"the model's answer cannot be used: {what}")


def said(text: object) -> str:
    """What a service said, as part of an error message."""
    return one_line(clean(text) if isinstance(text, str) else "", _MAX_SAID)


def tokens(value: object) -> int:
    """A number of tokens as a service tells it; 0 for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        return 0
    return int(value) if value < _MAX_TOKENS else 0


def cost_of(usage: Usage, cost: Cost) -> float:
    """What the tokens cost, in dollars."""
    return (
        usage.input * cost.input
        + usage.output * cost.output
        + usage.cache_read * cost.cache_read
        + usage.cache_write * cost.cache_write
    ) / 1_000_000


def priced(usage: Usage, cost: Cost) -> Usage:
    """The same tokens with what they cost."""
    return msgspec.structs.replace(usage, cost=cost_of(usage, cost))


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


def data_url(image: Image) -> str:
    """The image as a URL that holds it."""
    return f"data:{image.mime_type};base64,{image.data}"


def summary_text(summary: Summary) -> str:
    """What a model is told in place of the messages that a summary stands for."""
    return f"The conversation before this was summarised:\n\n{summary.text}"


def short_id(text: str, max_chars: int = 40) -> str:
    """An id of letters, digits, `_` and `-` that always comes out the same for the same text."""
    import hashlib

    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"call_{digest}"[:max_chars]
