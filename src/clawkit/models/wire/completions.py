"""OpenAI's Chat Completions API, and compatible ones.

`Tags` separates thinking that a model writes into its text, between tags at the very beginning:
large providers move it to a separate field, small servers pass it through unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Literal

import msgspec

from clawkit.config.sections.models import Cost
from clawkit.content import Assistant, Stop, Summary, Thinking, ToolResult, Usage, User
from clawkit.models.protocols import Delta, Endpoint, ErrorKind, ModelError, Request
from clawkit.models.wire.answer import (
    AnswerDecoder,
    AnswerPart,
    Kind,
    arguments_text,
    decode,
    dict_of,
    list_of,
    malformed,
    read_name,
    str_of,
)
from clawkit.models.wire.openai import FORMATS, OpenAiWire, function_of, given_or, name_of
from clawkit.models.wire.request import Piece, blocks_of, clean, encode, tokens

_MARK = {"cache_control": {"type": "ephemeral"}}
_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_text")
"""Fields with thinking; providers that fill several send the same in each."""
_THINKING = frozenset({*_THOUGHTS, "reasoning_details"})
_KEEPS_THINKING = FORMATS | {"qwen-chat-template", "moonshot"}
"""Formats and providers that expect the model's thinking to be sent back."""
_MISSES_THINKING = frozenset({"deepseek", "moonshot"})
"""Providers that reject a message with calls if the thinking before them is missing."""


class CompletionsWire(OpenAiWire):
    path = "/chat/completions"
    FORM = "openai"
    LIST = "messages"
    TEXT = "text"

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        compat = endpoint.compat
        is_strict = compat.strict_message_keys
        returns = not (endpoint.is_native or is_strict or compat.requires_thinking_as_text)
        self._keeps_thinking = returns and bool({self._format, self._service} & _KEEPS_THINKING)
        """Whether the model's thinking is sent back in a separate field."""
        self._needs_thinking = (
            returns and self._service in _MISSES_THINKING and endpoint.facts.reasoning
        )
        """Whether a message with calls must have that field, even if empty."""
        self._has_marks = compat.cache_control_format == "anthropic" and not (
            compat.requires_string_content or is_strict
        )

    def decoder(self) -> AnswerDecoder:
        return CompletionsDecoder(self._endpoint)

    def _system_items(self, system: str) -> list[bytes]:
        marked = [{"type": "text", "text": system, **_MARK}]
        content = marked if self._has_marks else system
        return [encode({"role": self._system_role, "content": content})]

    def _marked(self, request: Request, pieces: list[Piece]) -> list[Piece]:
        """The pieces with a cache mark at the user's last text."""
        if not self._has_marks:
            return pieces
        for at in reversed(range(len(pieces))):
            message = request.messages[at]
            blocks = blocks_of(message) if isinstance(message, User | Summary) else []
            parts = self._parts(blocks)
            texts = [part for part in parts if part["type"] == "text"]
            if texts:
                texts[-1].update(_MARK)
                pieces[at] = Piece("user", encode({"role": "user", "content": parts}))
                break
        return pieces

    def _own_fields(self, request: Request, limit: int | None) -> dict[str, Any]:
        compat = self._endpoint.compat
        fields: dict[str, Any] = {}
        if compat.supports_usage_in_streaming is not False:
            fields["stream_options"] = {"include_usage": True}
        if limit is not None:
            usual = "max_completion_tokens" if self._endpoint.is_native else "max_tokens"
            fields[compat.max_tokens_field or usual] = limit
        if not self._endpoint.facts.reasoning:
            return fields
        is_on, word = self._is_on(request.thinking), self._effort(request.thinking)
        effort = {"reasoning_effort": word} if self._takes_effort and word else {}
        match self._format:
            case "openrouter":
                by_word = self._takes_effort and (word or not is_on)
                reasoning = {"effort": word or "none"} if by_word else {"enabled": is_on}
                return fields | {"reasoning": reasoning}
            case "deepseek" | "zai":
                fields["thinking"] = {"type": "enabled" if is_on else "disabled"}
            case "together":
                fields["reasoning"] = {"enabled": is_on}
            case "qwen":
                fields["enable_thinking"] = is_on
            case "qwen-chat-template":
                return fields | {"chat_template_kwargs": {"enable_thinking": is_on}}
            case _:
                return fields | effort
        return fields | (effort if is_on else {})

    def _image(self, url: str) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": url}}

    def _answer(self, message: Assistant) -> bytes:
        compat, calls, text = self._endpoint.compat, message.calls, message.text
        thoughts = [part for part in message.content if isinstance(part, Thinking)]
        thoughts = thoughts if self._is_own(message) else []
        if compat.requires_thinking_as_text:
            text = "\n\n".join(filter(None, (*(part.text for part in thoughts), text)))
        if not text.strip() and not calls:
            return b""
        empty = "" if compat.requires_string_content else None
        item: dict[str, Any] = {"role": "assistant", "content": text or empty}
        if calls:
            item["tool_calls"] = [
                {"id": self._call_id(call.id), "type": "function", "function": function_of(call)}
                for call in calls
            ]
        if self._keeps_thinking:
            item |= _thinking_fields(thoughts)
        if self._needs_thinking and calls:
            item.setdefault("reasoning_content", "")
        return encode(item)

    def _result_item(self, result: ToolResult, text: str) -> dict[str, Any]:
        call_id = self._call_id(result.call_id)
        item = {"role": "tool", "tool_call_id": call_id, "content": text}
        wants_name = self._endpoint.compat.requires_tool_result_name
        if given_or(wants_name, self._service == "mistral"):
            item["name"] = name_of(result.tool)
        return item


def _thinking_fields(thoughts: list[Thinking]) -> dict[str, Any]:
    """Thinking in the field that it was received in."""
    for thought in thoughts:
        with suppress(ValueError):
            details = decode(thought.signature) if thought.signature.startswith("[") else []
            if isinstance(details, list) and details:
                return {"reasoning_details": details}
    text = "\n".join(part.text for part in thoughts if part.text)
    field = next((part.signature for part in thoughts if part.signature in _THOUGHTS), "")
    return {field or "reasoning_content": text} if text else {}


OPEN, CLOSE = "<think>", "</think>"
_MAX_LEAD = 100
"""Maximum blanks before a tag."""


class Tags:
    """Separates thinking from text, piece by piece. A tag may be split anywhere."""

    def __init__(self) -> None:
        self._state: Literal["begins", "thinks", "turns", "speaks"] = "begins"
        self._partial_tag = ""
        """Text that may be the start of a tag."""

    def feed(self, text: str) -> list[tuple[Kind, str]]:
        text, self._partial_tag = self._partial_tag + text, ""
        if self._state == "begins":
            start = text.lstrip()
            if len(text) < _MAX_LEAD and len(start) < len(OPEN) and OPEN.startswith(start):
                self._partial_tag = text
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
                ends = (n for n in range(len(CLOSE) - 1, 0, -1) if text.endswith(CLOSE[:n]))
                cut = len(text) - next(ends, 0)
                self._partial_tag = text[cut:]
                return [("thinking", text[:cut])]
            self._state = "turns"
        if self._state == "turns":
            rest = rest.lstrip("\n")
            self._state = "speaks" if rest else "turns"
        return [("thinking", thought.rstrip("\n")), ("text", rest)]

    def end(self) -> list[tuple[Kind, str]]:
        """The rest, at the end of the text."""
        held, self._partial_tag = self._partial_tag, ""
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
"""Any other reason means that the answer ended normally."""
_FAILURES: dict[str, ErrorKind] = {
    "error": "server",
    "abort": "server",
    "network_error": "server",
    "engine_overloaded": "overloaded",
    "insufficient_system_resource": "overloaded",
}
_DETAIL_TEXTS = ("text", "summary", "data")
_DETAIL_FIELDS = ("type", "id", "format", "index", "signature")
_MAX_DETAILS = 4_096
_MAX_PRICE = 10_000


class CompletionsDecoder(AnswerDecoder):
    """Assembles one answer. Calls are distinguished by index, by id, or else by name."""

    STOP_WHEN_DONE = "stop"

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._by_index: dict[int, AnswerPart] = {}
        self._by_id: dict[str, AnswerPart] = {}
        self._last_call: AnswerPart | None = None
        self._details: list[dict[str, Any]] = []
        self._choice: int | None = None
        self._tags = Tags()

    def _settle(self) -> None:
        """Close all parts, and sign the thinking that is sent back in its own format."""
        for kind, text in self._tags.end():
            self._say(kind, text)
        for part in self.parts:
            part.is_closed = self._stop is not None or part is not self.parts[-1]
        if self._details:
            thought = next((part for part in self.parts if part.kind == "thinking"), None)
            if thought is None:
                thought = AnswerPart("thinking")
                self.parts.insert(0, thought)
            whole = [
                {name: item[name] for name in _DETAIL_FIELDS if name in item}
                | {name: clean("".join(item[name])) for name in _DETAIL_TEXTS if item[name]}
                for item in self._details
            ]
            thought.signed = [encode(whole).decode()]
            thought.is_closed = True

    def _events(self, data: Any) -> list[dict[str, Any]]:
        return [data] if list_of(dict_of(data).get("choices")) else []

    def _read(self, data: dict[str, Any], name: str) -> list[Delta]:
        if _is_error(data, name):
            raise self._failure(data)
        out: list[Delta] = []
        for choice in map(dict_of, list_of(data.get("choices"))):
            index = choice.get("index")
            if self._choice is None and isinstance(index, int):
                self._choice = index
            # Only the first choice is read.
            if not isinstance(index, int) or index == self._choice:
                delta = choice.get("delta")
                if not delta and not self.parts:
                    delta = choice.get("message")  # the whole answer at once
                if delta and isinstance(delta, dict):
                    self._read_delta(delta, out)
                if usage := choice.get("usage"):
                    self._count(usage)
                reason = str_of(choice.get("finish_reason")).lower()
                if reason in _FAILURES:
                    what = f"{self._endpoint.ref.provider} ended the answer with {reason!r}"
                    raise ModelError(_FAILURES[reason], f"{what}. Try again, or set fallbacks.")
                if reason:
                    self._stop = _STOPS.get(reason, "stop")
        if usage := data.get("usage") or dict_of(data.get("x_groq")).get("usage"):
            self._count(usage)
        return out

    def _read_delta(self, delta: dict[str, Any], out: list[Delta]) -> None:
        if not _THINKING.isdisjoint(delta):
            given = map(dict_of, list_of(delta.get("reasoning_details")))
            details = [item for item in given if isinstance(item.get("type"), str)]
            self._keep_details(details)
            field = next((name for name in _THOUGHTS if str_of(delta.get(name))), "")
            texts = (str_of(item.get("text")) or str_of(item.get("summary")) for item in details)
            thought = str_of(delta.get(field)) if field else "".join(texts)
            out += self._say("thinking", thought, field)
        if content := delta.get("content"):
            out += self._read_content(content)
        if refusal := str_of(delta.get("refusal")):
            self._is_refused = True
            out += self._say("text", refusal)
        calls = delta.get("tool_calls")
        for item in calls if isinstance(calls, list) else [calls]:
            out += self._read_call(item)
        if isinstance(old := delta.get("function_call"), dict):
            out += self._read_call({"index": 0, "function": old})

    def _read_content(self, content: object) -> list[Delta]:
        if isinstance(content, str):
            # Only OpenAI itself reliably keeps thinking out of the text.
            pieces = [("text", content)] if self._endpoint.is_native else self._tags.feed(content)
            return [delta for kind, piece in pieces for delta in self._say(kind, piece)]
        out: list[Delta] = []
        for item in map(dict_of, list_of(content)):
            if item.get("type") == "thinking":
                inner = item.get("thinking")
                texts = [inner] if isinstance(inner, str) else map(_text_of, list_of(inner))
                out += self._say("thinking", "".join(texts), "thinking")
            else:
                out += self._say("text", _text_of(item))
        return out

    def _say(self, kind: Any, text: str, field: str = "") -> Iterable[Delta]:
        if not text:
            return ()
        if not self.parts or self.parts[-1].kind != kind:
            self.begin(kind).signed = [field]
        return self.add(self.parts[-1], text)

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
                    self.count(text)
                    last[name].append(text)

    def _read_call(self, item: object) -> Iterable[Delta]:
        if not isinstance(item, dict):
            return ()
        function = dict_of(item.get("function")) or item
        name, call_id = read_name(function.get("name")), str_of(item.get("id"))
        arguments = arguments_text(function.get("arguments"))
        index = item.get("index")
        index = index if isinstance(index, int) else None
        call = self._find(index, call_id, name, arguments)
        if call is None:
            call = self.call(call_id, name)
        else:
            if call_id and not call.given_id:
                self.rename(call, call_id)
            if name and (not call.pieces or not call.name):
                # A name may come in pieces, or repeatedly, complete or growing.
                is_longer = name.startswith(call.name)
                call.name = name if is_longer else read_name(call.name + name)
        if index is not None:
            self._by_index[index] = call
        if call.given_id:
            self._by_id[call.given_id] = call
        self._last_call = call
        return [*self.tell(call), *self.add(call, arguments)]

    def _find(
        self, index: int | None, call_id: str, name: str, arguments: str
    ) -> AnswerPart | None:
        """The call that a piece belongs to; None if it starts a new one."""
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
        # After a complete object, another opening brace starts a new call.
        return None if arguments.lstrip().startswith("{") and call.looks_whole() else call

    def _count(self, usage: object) -> None:
        if not isinstance(usage, dict):
            return
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
            received += thought  # counted separately from the output
        self._usage = Usage(max(0, sent - cached - written), received, cached, written)
        cost = usage.get("cost")
        is_relay = self._endpoint.ref.provider == "openrouter"
        if is_relay and isinstance(cost, int | float) and 0 < cost < _MAX_PRICE:
            has_price = self._endpoint.facts.cost != Cost()
            cost = 0.0 if has_price else float(cost)
            self._usage = msgspec.structs.replace(self._usage, cost=cost)


def _is_error(chunk: dict[str, Any], name: str) -> bool:
    if chunk.get("error") or name == "error" or "error" in (chunk.get("object"), chunk.get("type")):
        return True
    if "choices" in chunk:
        return False
    words = chunk.get("detail") or chunk.get("message")
    return bool(words or dict_of(chunk.get("base_resp")).get("status_code"))


def _text_of(item: object) -> str:
    return str_of(dict_of(item).get("text"))
