"""OpenAI's Chat Completions API, and all the services that imitate it.

`Tags` is for thinking that a model writes into its text, between tags at the very beginning:
services that run models of others give it a field of its own; small ones pass on what they got.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from clawkit.content import Assistant, Image, Stop, Summary, Text, Thinking, ToolResult, Usage, User
from clawkit.models.errors import from_response
from clawkit.models.protocols import Decoder, Delta, Endpoint, ErrorKind, ModelError, Request
from clawkit.models.wire.answer import (
    Call,
    Words,
    decode,
    decode_event,
    dict_of,
    given_arguments,
    list_of,
    malformed,
    priced,
    read_name,
    str_of,
)
from clawkit.models.wire.openai import (
    IMAGE_FOLLOWS,
    RESULT_IMAGES,
    OpenAiDecoder,
    OpenAiWire,
    blocks_of,
    function_of,
    images_of,
    is_own,
    name_of,
)
from clawkit.models.wire.request import (
    NO_IMAGE,
    Piece,
    call_as_text,
    clean,
    data_url,
    encode,
    result_as_text,
    text_of,
    tokens,
)

_MARK = {"cache_control": {"type": "ephemeral"}}
_FIELDS = frozenset({"reasoning_content", "reasoning", "reasoning_text"})


class CompletionsWire(OpenAiWire):
    """One conversation with one endpoint."""

    PATH = "/chat/completions"
    FORM = "openai"
    LIST = "messages"
    TEXT = "text"

    def decoder(self) -> Decoder:
        return CompletionsDecoder(self._endpoint)

    def _system_item(self, system: str) -> bytes:
        content: object = system
        if self._dialect.cache_marks:
            content = [{"type": "text", "text": system, **_MARK}]
        return encode({"role": self._dialect.system_role, "content": content})

    def _marked(self, request: Request, pieces: list[Piece]) -> list[Piece]:
        """The pieces with a cache mark at the last text of the user."""
        if not self._dialect.cache_marks:
            return pieces
        for at in range(len(pieces) - 1, -1, -1):
            message = request.messages[at]
            if pieces[at].role == "user" and isinstance(message, User | Summary):
                parts = self._parts(blocks_of(message))
                texts = [part for part in parts if part["type"] == "text"]
                if texts:
                    texts[-1].update(_MARK)
                    marked = Piece("user", encode({"role": "user", "content": parts}))
                    return [*pieces[:at], marked, *pieces[at + 1 :]]
        return pieces

    def _fields(self, request: Request, limit: int | None) -> dict[str, Any]:
        dialect, endpoint = self._dialect, self._endpoint
        fields: dict[str, Any] = {"model": endpoint.ref.id}
        if dialect.usage:
            fields["stream_options"] = {"include_usage": True}
        if dialect.store:
            fields["store"] = False
        if limit is not None:
            fields[dialect.max_tokens_field] = limit
        if endpoint.num_ctx is not None:
            fields["options"] = {"num_ctx": endpoint.num_ctx}
        return {
            **fields,
            **dialect.cache_fields(request),
            **dialect.thinking_fields(request.thinking),
        }

    def _answer(self, message: Assistant) -> bytes:
        item = self._assistant(message)
        return encode(item) if item else b""

    def _image(self, image: Image) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": data_url(image)}}

    def _assistant(self, message: Assistant) -> dict[str, Any]:
        """Nothing for a message that says nothing: one without text or calls."""
        dialect, compat = self._dialect, self._endpoint.compat
        thoughts = [part for part in message.content if isinstance(part, Thinking)]
        thoughts = thoughts if is_own(message, self._endpoint) else []
        text = message.text
        if compat.requires_thinking_as_text:
            text = "\n\n".join(filter(None, (*(part.text for part in thoughts), text)))
        calls = message.calls
        if not dialect.takes_tools:
            text = "\n".join(filter(None, (text, *map(call_as_text, calls))))
            calls = ()
        if not text.strip() and not calls:
            return {}
        empty = "" if compat.requires_string_content else None
        item: dict[str, Any] = {"role": "assistant", "content": text or empty}
        if calls:
            item["tool_calls"] = [
                {"id": dialect.call_id(call.id), "type": "function", "function": function_of(call)}
                for call in calls
            ]
        if dialect.keeps_thinking:
            item |= _thinking_fields(thoughts)
        if dialect.needs_thinking and calls:
            item.setdefault("reasoning_content", "")
        return item

    def _result(self, result: ToolResult) -> Piece:
        if not self._dialect.takes_tools:
            text = result_as_text(result)
            return Piece("user", encode({"role": "user", "content": text}))
        images = images_of(result.content) if self._endpoint.facts.images else []
        item: dict[str, Any] = {
            "role": "tool",
            "tool_call_id": self._dialect.call_id(result.call_id),
            "content": text_of(result, IMAGE_FOLLOWS if images else NO_IMAGE),
        }
        if self._endpoint.compat.requires_tool_result_name:
            item["name"] = name_of(result.tool)
        after = b""
        if images:
            parts = self._parts([Text(RESULT_IMAGES), *images])
            after = encode({"role": "user", "content": parts})
        return Piece("result", encode(item), after)


def _thinking_fields(thoughts: list[Thinking]) -> dict[str, Any]:
    """Thinking in the field that it came in."""
    for thought in thoughts:
        if details := _details(thought.signature):
            return {"reasoning_details": details}
    text = "\n".join(part.text for part in thoughts if part.text)
    field = next((part.signature for part in thoughts if part.signature in _FIELDS), "")
    return {field or "reasoning_content": text} if text else {}


def _details(signature: str) -> list[Any]:
    if not signature.startswith("["):
        return []
    try:
        found = decode(signature)
    except ValueError:
        return []
    return found if isinstance(found, list) else []


OPEN, CLOSE = "<think>", "</think>"
_MAX_LEAD = 100
"""Blanks before a tag, at the most."""
Kind = Literal["text", "thinking"]


class Tags:
    """Takes text piece by piece, and tells the two apart. A tag may be cut anywhere."""

    def __init__(self) -> None:
        self._state: Literal["begins", "thinks", "turns", "speaks"] = "begins"
        self._held = ""
        """What may be the beginning of a tag."""

    def feed(self, text: str) -> list[tuple[Kind, str]]:
        text, self._held = self._held + text, ""
        if self._state == "begins":
            start = text.lstrip()
            if len(text) < _MAX_LEAD and len(start) < len(OPEN) and OPEN.startswith(start):
                self._held = text
                return []
            if not start.startswith(OPEN):
                self._state = "speaks"
                return [("text", text)]
            self._state = "thinks"
            text = start.removeprefix(OPEN).lstrip("\n")
        thought, rest = "", text
        if self._state == "thinks":
            thought, found, rest = text.partition(CLOSE)
            if not found:
                return self._hold_back(text)
            self._state = "turns"
        if self._state == "turns":
            rest = rest.lstrip("\n")
            self._state = "speaks" if rest else "turns"
        return [("thinking", thought.rstrip("\n")), ("text", rest)]

    def _hold_back(self, text: str) -> list[tuple[Kind, str]]:
        cut = next((n for n in range(len(CLOSE) - 1, 0, -1) if text.endswith(CLOSE[:n])), 0)
        thought, self._held = text[: len(text) - cut], text[len(text) - cut :]
        return [("thinking", thought)]

    def end(self) -> list[tuple[Kind, str]]:
        """What is left when nothing more comes."""
        held, self._held = self._held, ""
        return [("thinking" if self._state == "thinks" else "text", held)] if held else []


_STOPS: dict[str, Stop] = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "refusal",
    "content-filter": "refusal",
    "safety": "refusal",
    "sensitive": "refusal",
    "refusal": "refusal",
}
"""Everything else, known or not, is an answer that ended as it should."""
_FAILURES: dict[str, ErrorKind] = {
    "error": "server",
    "abort": "server",
    "network_error": "server",
    "engine_overloaded": "overloaded",
    "insufficient_system_resource": "overloaded",
}
_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_text")
"""Fields with thinking; services that fill several of them say the same in each."""
_DETAIL_TEXTS = ("text", "summary", "data")
_DETAIL_FIELDS = ("type", "id", "format", "index", "signature")
_MAX_DETAILS = 4_096
_MAX_PRICE = 10_000


class CompletionsDecoder(OpenAiDecoder):
    """One answer. Calls are told apart by index, by id, and where both are missing by name."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._by_index: dict[int, Call] = {}
        self._by_id: dict[str, Call] = {}
        self._last_call: Call | None = None
        self._details: list[dict[str, Any]] = []
        self._choice: int | None = None
        self._tags = Tags()

    def _seal(self) -> None:
        """Mark what cannot grow any more, and sign the thinking that goes back in its own form."""
        for kind, text in self._tags.end():
            self._say(kind, text)
        ended = self._stop is not None or self._done
        parts = self._answer.parts
        for part in parts:
            part.is_closed = ended or part is not parts[-1]
        if self._details:
            thoughts = (part for part in parts if isinstance(part, Words) and part.kind != "text")
            thought = next(thoughts, None)
            if thought is None:
                thought = Words("thinking")
                parts.insert(0, thought)
            thought.signature = encode([_detail(item) for item in self._details]).decode()
            thought.is_closed = True

    def _read(self, data: str, name: str) -> list[Delta]:
        chunk = decode_event(data)
        if _is_error(chunk, name):
            body = data.encode("utf-8", "replace")
            raise from_response(self._endpoint.ref.provider, 200, {}, body)
        out: list[Delta] = []
        for choice in list_of(chunk.get("choices")):
            if isinstance(choice, dict) and self._is_ours(choice):
                self._read_choice(choice, out)
        for holder in (chunk, dict_of(chunk.get("x_groq"))):
            if isinstance(usage := holder.get("usage"), dict):
                self._usage = self._read_usage(usage)
        return out

    def _is_ours(self, choice: dict[str, Any]) -> bool:
        """Only one choice is read, however many a service sends."""
        index = choice.get("index")
        if self._choice is None and isinstance(index, int):
            self._choice = index
        return not isinstance(index, int) or index == self._choice

    def _read_choice(self, choice: dict[str, Any], out: list[Delta]) -> None:
        delta = choice.get("delta")
        if not delta and not self._answer.parts:
            delta = choice.get("message")  # the whole answer at once
        if isinstance(delta, dict):
            self._read_delta(delta, out)
        if isinstance(usage := choice.get("usage"), dict):
            self._usage = self._read_usage(usage)
        reason = str_of(choice.get("finish_reason")).lower()
        if reason in _FAILURES:
            who = self._endpoint.ref.provider
            raise ModelError(
                _FAILURES[reason],
                f"{who} ended the answer with {reason!r}. Try again, or set fallbacks.",
            )
        if reason:
            self._stop = _STOPS.get(reason, "stop")

    def _read_delta(self, delta: dict[str, Any], out: list[Delta]) -> None:
        details = [item for item in list_of(delta.get("reasoning_details")) if _is_detail(item)]
        self._keep_details(details)
        field = next((name for name in _THOUGHTS if str_of(delta.get(name))), "")
        thought = str_of(delta.get(field)) if field else _detail_text(details)
        out += self._say("thinking", thought, field)
        out += self._read_content(delta.get("content"))
        if refusal := str_of(delta.get("refusal")):
            self._refused = True
            out += self._say("text", refusal)
        calls = delta.get("tool_calls")
        for item in calls if isinstance(calls, list) else [calls]:
            out += self._read_call(item)
        if isinstance(old := delta.get("function_call"), dict):
            out += self._read_call({"index": 0, "function": old})

    def _read_content(self, content: object) -> list[Delta]:
        """Text, or parts of which each says what it is."""
        if isinstance(content, str):
            return self._read_tagged(content)
        out: list[Delta] = []
        for item in list_of(content):
            if not isinstance(item, dict):
                continue
            if item.get("type") == "thinking":
                inner = item.get("thinking")
                texts = [inner] if isinstance(inner, str) else map(_text_of, list_of(inner))
                out += self._say("thinking", "".join(texts), "thinking")
            else:
                out += self._say("text", _text_of(item))
        return out

    def _read_tagged(self, text: str) -> list[Delta]:
        """Text of the answer; nobody but OpenAI itself is sure to keep thinking out of it."""
        if not text or self._endpoint.is_native:
            return self._say("text", text)
        return [delta for kind, piece in self._tags.feed(text) for delta in self._say(kind, piece)]

    def _say(self, kind: Any, text: str, field: str = "") -> list[Delta]:
        if not text:
            return []
        last = self._answer.parts[-1] if self._answer.parts else None
        if not isinstance(last, Words) or last.kind != kind:
            last = self._answer.words(kind)
            last.signature = field
        return [*self._answer.say(last, text)]

    def _keep_details(self, details: list[dict[str, Any]]) -> None:
        for item in details:
            last = self._details[-1] if self._details else None
            if last is None or any(last.get(name) != item.get(name) for name in ("type", "index")):
                last = {name: [] for name in _DETAIL_TEXTS}
                self._details.append(last)
            if len(self._details) > _MAX_DETAILS:
                raise malformed("its thinking has too many pieces")
            for name in _DETAIL_FIELDS:
                if isinstance(value := item.get(name), str | int):
                    last[name] = clean(value) if isinstance(value, str) else value
            for name in _DETAIL_TEXTS:
                if text := str_of(item.get(name)):
                    self._answer.limits.add_text(text)
                    last[name].append(text)

    def _read_call(self, item: object) -> list[Delta]:
        if not isinstance(item, dict):
            return []
        function = dict_of(item.get("function")) or item
        name, call_id = read_name(function.get("name")), str_of(item.get("id"))
        arguments = given_arguments(function.get("arguments"))
        index = item.get("index")
        index = index if isinstance(index, int) else None
        call = self._find(index, call_id, name, arguments)
        if call is None:
            call = self._answer.call(call_id, name)
        else:
            if call_id and not call.given_id:
                self._answer.rename(call, call_id)
            if name and (not call.pieces or not call.name):
                call.name = _joined(call.name, name)
        if index is not None:
            self._by_index[index] = call
        if call.given_id:
            self._by_id[call.given_id] = call
        self._last_call = call
        return [*self._answer.tell(call), *self._answer.argue(call, arguments)]

    def _find(self, index: int | None, call_id: str, name: str, arguments: str) -> Call | None:
        """The call that a piece belongs to; None when it begins one."""
        call = self._last_call
        if index is not None:
            call = self._by_index.get(index)
        elif call_id:
            call = self._by_id.get(call_id, None if name else call)
        if call is None or not name or not call.name:
            return call
        if call_id and call.given_id and call_id != call.given_id:
            return None
        if index is None and not call_id and call.name != name:
            return None
        # Nothing goes on with a brace after a complete object.
        return None if arguments.lstrip().startswith("{") and call.looks_whole() else call

    def _read_usage(self, usage: dict[str, Any]) -> Usage:
        details = dict_of(usage.get("prompt_tokens_details"))
        cached = (
            tokens(details.get("cached_tokens"))
            or tokens(usage.get("prompt_cache_hit_tokens"))
            or tokens(usage.get("cached_tokens"))
        )
        written = tokens(details.get("cache_write_tokens"))
        sent, received = tokens(usage.get("prompt_tokens")), tokens(usage.get("completion_tokens"))
        thought = tokens(dict_of(usage.get("completion_tokens_details")).get("reasoning_tokens"))
        if thought and tokens(usage.get("total_tokens")) == sent + received + thought:
            received += thought  # counted beside the output, not in it
        counted = Usage(max(0, sent - cached - written), received, cached, written)
        counted = priced(counted, self._endpoint.facts.cost)
        if self._endpoint.ref.provider == "openrouter" and not counted.cost:
            return msgspec.structs.replace(counted, cost=_price(usage.get("cost")))
        return counted


def _is_error(chunk: dict[str, Any], name: str) -> bool:
    if chunk.get("error") or name == "error" or "error" in (chunk.get("object"), chunk.get("type")):
        return True
    if "choices" in chunk:
        return False
    words = chunk.get("detail") or chunk.get("message")
    return bool(words or dict_of(chunk.get("base_resp")).get("status_code"))


def _price(value: object) -> float:
    """What a service says that an answer cost; 0 where that cannot be."""
    return float(value) if isinstance(value, int | float) and 0 < value < _MAX_PRICE else 0.0


def _detail(item: dict[str, Any]) -> dict[str, Any]:
    """A detail whose texts came in pieces."""
    texts = {name: clean("".join(item[name])) for name in _DETAIL_TEXTS if item[name]}
    return {name: item[name] for name in _DETAIL_FIELDS if name in item} | texts


def _is_detail(item: object) -> bool:
    return isinstance(item, dict) and isinstance(item.get("type"), str)


def _detail_text(details: list[dict[str, Any]]) -> str:
    return "".join(str_of(item.get("text")) or str_of(item.get("summary")) for item in details)


def _text_of(item: object) -> str:
    return str_of(dict_of(item).get("text"))


def _joined(old: str, new: str) -> str:
    """A name that came in pieces, or again and again, as a whole or with more each time."""
    return new if new.startswith(old) else read_name(old + new)
