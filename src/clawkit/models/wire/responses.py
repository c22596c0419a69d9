"""OpenAI's Responses API, and the services that imitate it. Nothing is left on the server."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from clawkit.content import Assistant, Image, Text, Thinking, ToolCall, ToolResult, Usage
from clawkit.models.errors import from_response
from clawkit.models.protocols import Decoder, Delta, Endpoint, ModelError, Request
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
    function_of,
    images_of,
    is_own,
)
from clawkit.models.wire.request import (
    NO_IMAGE,
    Piece,
    call_as_text,
    data_url,
    encode,
    result_as_text,
    text_of,
    tokens,
)

_LEAST_TOKENS = 16
_ENCRYPTED = "reasoning.encrypted_content"


class ResponsesWire(OpenAiWire):
    """One conversation with one endpoint."""

    PATH = "/responses"
    FORM = "openai-responses"
    LIST = "input"
    TEXT = "input_text"

    def decoder(self) -> Decoder:
        return ResponsesDecoder(self._endpoint)

    def _says_system(self, request: Request) -> bool:
        return not self._endpoint.compat.supports_instructions and super()._says_system(request)

    def _system_item(self, system: str) -> bytes:
        return encode({"role": self._dialect.system_role, "content": system})

    def _fields(self, request: Request, limit: int | None) -> dict[str, Any]:
        dialect, endpoint = self._dialect, self._endpoint
        fields: dict[str, Any] = {"model": endpoint.ref.id}
        if endpoint.compat.supports_instructions and request.system.strip():
            fields["instructions"] = request.system
        if dialect.store:
            fields["store"] = False
        if limit is not None:
            fields["max_output_tokens"] = max(limit, _LEAST_TOKENS)
        if endpoint.num_ctx is not None:
            fields["options"] = {"num_ctx": endpoint.num_ctx}
        return {
            **fields,
            **dialect.cache_fields(request),
            **self._reasoning_fields(request),
        }

    def _reasoning_fields(self, request: Request) -> dict[str, Any]:
        dialect, endpoint = self._dialect, self._endpoint
        if not endpoint.facts.reasoning:
            return {}
        fields: dict[str, Any] = {"include": [_ENCRYPTED]}
        reasoning: dict[str, str] = {}
        word = dialect.effort(request.thinking)
        if dialect.takes_effort and word:
            reasoning["effort"] = word
        if dialect.is_on(request.thinking) and endpoint.is_native:
            reasoning["summary"] = "auto"
        return fields | ({"reasoning": reasoning} if reasoning else {})

    def _answer(self, message: Assistant) -> bytes:
        return b",".join(map(encode, self._assistant(message)))

    def _image(self, image: Image) -> dict[str, Any]:
        return {"type": "input_image", "image_url": data_url(image), "detail": "auto"}

    def _assistant(self, message: Assistant) -> list[dict[str, Any]]:
        own = is_own(message, self._endpoint)
        items: list[dict[str, Any]] = []
        thoughts: list[dict[str, Any]] = []
        for part in message.content:
            if isinstance(part, Thinking):
                thoughts += self._thought(part) if own else []
                continue
            item = self._call(part) if isinstance(part, ToolCall) else _said(part, own=own)
            if item:
                # A thought is sent with what came of it only: on its own it is refused.
                items += [*thoughts, item]
                thoughts = []
        return items

    def _thought(self, part: Thinking) -> list[dict[str, Any]]:
        compat = self._endpoint.compat
        if compat.requires_thinking_as_text:
            return [{"role": "assistant", "content": part.text}] if part.text.strip() else []
        if compat.strict_message_keys or not part.signature.startswith("{"):
            return []
        try:
            item = decode(part.signature)
        except ValueError:
            return []
        is_usable = item.get("encrypted_content") or not self._endpoint.is_native
        return [item] if item.get("type") == "reasoning" and is_usable else []

    def _call(self, call: ToolCall) -> dict[str, Any]:
        if not self._dialect.takes_tools:
            return {"role": "assistant", "content": call_as_text(call)}
        call_id = self._dialect.call_id(call.id)
        return {"type": "function_call", "call_id": call_id, **function_of(call)}

    def _result(self, result: ToolResult) -> Piece:
        if not self._dialect.takes_tools:
            text = result_as_text(result)
            return Piece("user", encode({"role": "user", "content": text}))
        images = images_of(result.content) if self._endpoint.facts.images else []
        output: object = text_of(result, IMAGE_FOLLOWS if images else NO_IMAGE)
        after = b""
        if images and self._endpoint.is_native:
            blocks = [each for each in result.content if isinstance(each, Image) or each.text]
            output = self._parts(blocks)
        elif images:
            parts = self._parts([Text(RESULT_IMAGES), *images])
            after = encode({"role": "user", "content": parts})
        call_id = self._dialect.call_id(result.call_id)
        item = {"type": "function_call_output", "call_id": call_id, "output": output}
        return Piece("result", encode(item), after)


def _said(part: Text, *, own: bool) -> dict[str, Any]:
    if not part.text.strip():
        return {}
    phase = {"phase": part.signature} if own and part.signature in PHASES else {}
    return {"role": "assistant", "content": part.text, **phase}


PHASES = frozenset({"commentary", "final_answer"})
"""What a text is to the whole answer; the model wants to have it back."""
_MAX_ITEMS = 20_000
_KINDS = {"message": "text", "reasoning": "thinking", "function_call": "call"}


class ResponsesDecoder(OpenAiDecoder):
    """One answer. Its items are told apart by id, or by place where there are no ids."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._places: dict[int, Words | Call] = {}
        self._ids: dict[str, Words | Call] = {}
        self._section: dict[Words, object] = {}
        """The section of its summary that a thought is at."""
        self._readers: dict[str, Callable[[dict[str, Any]], Iterable[Delta]]] = {
            "response.output_item.added": self._item_added,
            "response.output_item.done": self._item_done,
            "response.output_text.delta": self._text,
            "response.refusal.delta": self._refusal,
            "response.reasoning_summary_text.delta": self._summary,
            "response.reasoning_summary.delta": self._summary,
            "response.reasoning_text.delta": self._thought,
            "response.reasoning.delta": self._thought,
            "response.function_call_arguments.delta": self._arguments,
            "response.function_call_arguments.done": self._arguments_done,
            "response.completed": self._ended,
            "response.done": self._ended,
            "response.incomplete": self._ended,
            "response.failed": self._ended,
            "response.cancelled": self._ended,
        }

    def _read(self, data: str, name: str) -> list[Delta]:
        event = decode_event(data)
        kind = str_of(event.get("type")) or name
        if kind == "error" or (event.get("error") and "response" not in event):
            raise self._failure(event)
        reader = self._readers.get(kind)
        return [*reader(event)] if reader else []

    def _failure(self, event: dict[str, Any]) -> ModelError:
        return from_response(self._endpoint.ref.provider, 200, {}, encode(event))

    def _find(self, event: dict[str, Any]) -> Words | Call | None:
        found = self._ids.get(str_of(event.get("item_id")))
        place = event.get("output_index")
        if found is None and isinstance(place, int):
            found = self._places.get(place)
        return found

    def _words(self, event: dict[str, Any], kind: Any) -> Words:
        """The text or thought that an event adds to; a new one where none was announced."""
        found = self._find(event)
        if not isinstance(found, Words) or found.kind != kind:
            last = self._answer.parts[-1] if self._answer.parts else None
            is_open = isinstance(last, Words) and last.kind == kind and not last.is_closed
            found = last if isinstance(last, Words) and is_open else self._answer.words(kind)
            self._keep(found, str_of(event.get("item_id")), event.get("output_index"))
        return found

    def _call(self, event: dict[str, Any]) -> Call:
        found = self._find(event)
        if not isinstance(found, Call):
            calls = [part for part in self._answer.parts[-1:] if isinstance(part, Call)]
            found = calls[0] if calls and not calls[0].is_closed else None
            found = found or self._answer.call(event.get("call_id"), event.get("name"))
            self._keep(found, str_of(event.get("item_id")), event.get("output_index"))
        return found

    def _keep(self, part: Words | Call, item_id: str, place: object) -> None:
        if len(self._ids) + len(self._places) > _MAX_ITEMS:
            raise malformed("its answer has too many items")
        if item_id:
            self._ids[item_id] = part
        if isinstance(place, int):
            self._places[place] = part

    def _text(self, event: dict[str, Any]) -> Iterable[Delta]:
        return self._answer.say(self._words(event, "text"), str_of(event.get("delta")))

    def _refusal(self, event: dict[str, Any]) -> Iterable[Delta]:
        self._refused = True
        return self._text(event)

    def _thought(self, event: dict[str, Any]) -> Iterable[Delta]:
        return self._answer.say(self._words(event, "thinking"), str_of(event.get("delta")))

    def _summary(self, event: dict[str, Any]) -> Iterable[Delta]:
        delta = event.get("delta")
        text = str_of(delta) or str_of(dict_of(delta).get("text"))
        if not text:
            return ()
        thought = self._words(event, "thinking")
        section = event.get("summary_index")
        is_next = bool(thought.pieces) and self._section.get(thought) != section
        self._section[thought] = section
        return self._answer.say(thought, f"\n\n{text}" if is_next else text)

    def _arguments(self, event: dict[str, Any]) -> Iterable[Delta]:
        return self._answer.argue(self._call(event), given_arguments(event.get("delta")))

    def _arguments_done(self, event: dict[str, Any]) -> Iterable[Delta]:
        call = self._call(event)
        call.name = call.name or read_name(event.get("name"))
        return [*self._answer.tell(call), *self._argue_rest(call, event.get("arguments"))]

    def _argue_rest(self, call: Call, arguments: object) -> Iterable[Delta]:
        """What of the whole arguments had not come yet; they count where pieces say else."""
        whole = given_arguments(arguments)
        if not whole or whole == (old := call.text):
            return ()
        if whole.startswith(old):
            return self._answer.argue(call, whole[len(old) :])
        call.pieces.clear()
        told, call.is_told = call.is_told, False
        self._answer.argue(call, whole)
        call.is_told = told
        return ()

    def _say_rest(self, words: Words, whole: str) -> Iterable[Delta]:
        if not whole or whole == (old := "".join(words.pieces)):
            return ()
        if whole.startswith(old):
            return self._answer.say(words, whole[len(old) :])
        words.pieces.clear()
        self._answer.say(words, whole)
        return ()

    def _item_added(self, event: dict[str, Any]) -> Iterable[Delta]:
        item = dict_of(event.get("item"))
        kind = _KINDS.get(str_of(item.get("type")))
        if kind is None:
            return ()
        part: Words | Call
        if kind == "call":
            part = self._answer.call(item.get("call_id") or item.get("id"), item.get("name"))
        else:
            part = self._answer.words(kind)  # type: ignore[arg-type]  # the table's other values
        self._keep(part, str_of(item.get("id")), event.get("output_index"))
        return self._answer.tell(part) if isinstance(part, Call) else ()

    def _item_done(self, event: dict[str, Any]) -> Iterable[Delta]:
        item = dict_of(event.get("item"))
        where = {"item_id": item.get("id"), "output_index": event.get("output_index")}
        kind = _KINDS.get(str_of(item.get("type")))
        if kind == "call":
            return self._call_done(self._call(where | item), item)
        if kind == "text":
            words = self._words(where, "text")
            words.is_closed = True
            phase = str_of(item.get("phase"))
            words.signature = phase if phase in PHASES else ""
            return self._say_rest(words, self._message_text(item))
        if kind == "thinking":
            words = self._words(where, "thinking")
            words.is_closed = True
            words.signature = _signature(item)
            return self._say_rest(words, _thinking_text(item))
        return ()

    def _call_done(self, call: Call, item: dict[str, Any]) -> Iterable[Delta]:
        call.name = read_name(item.get("name")) or call.name
        call_id = str_of(item.get("call_id"))
        if call_id and call_id != call.given_id and not call.is_told:
            self._answer.rename(call, call_id)
        out = [*self._answer.tell(call), *self._argue_rest(call, item.get("arguments"))]
        call.is_closed = True
        return out

    def _message_text(self, item: dict[str, Any]) -> str:
        content = item.get("content")
        if isinstance(content, str):
            return content
        parts = [dict_of(part) for part in list_of(content)]
        self._refused = self._refused or any(part.get("type") == "refusal" for part in parts)
        return "".join(str_of(part.get("text")) or str_of(part.get("refusal")) for part in parts)

    def _ended(self, event: dict[str, Any]) -> Iterable[Delta]:
        response = dict_of(event.get("response"))
        if isinstance(usage := response.get("usage"), dict):
            self._usage = self._read_usage(usage)
        name = str_of(event.get("type")).rpartition(".")[2]
        status = str_of(response.get("status")) or name
        if error := response.get("error"):
            raise self._failure({"error": error})
        if status in ("failed", "cancelled"):
            who = self._endpoint.ref.provider
            raise ModelError("server", f"{who} says that the answer {status}. Try again.")
        streamed = {"call" if isinstance(part, Call) else part.kind for part in self._answer.parts}
        self._close_all()
        out: list[Delta] = []
        for item in list_of(response.get("output")):
            out += self._missed(dict_of(item), streamed)
        self._close_all()
        self._stop = "stop"
        if status == "incomplete":
            reason = dict_of(response.get("incomplete_details")).get("reason")
            self._stop = "refusal" if reason == "content_filter" else "length"
        return out

    def _close_all(self) -> None:
        for part in self._answer.parts:
            part.is_closed = True

    def _missed(self, item: dict[str, Any], streamed: set[str]) -> Iterable[Delta]:
        """An item of the whole answer: it settles what came of it, or all of it is new."""
        kind = _KINDS.get(str_of(item.get("type")))
        # Items under another id than before are those that came, where any of their kind came.
        if str_of(item.get("id")) not in self._ids and kind in streamed:
            return ()
        return self._item_done({"item": item})

    def _read_usage(self, usage: dict[str, Any]) -> Usage:
        details = dict_of(usage.get("input_tokens_details"))
        cached, written = (
            tokens(details.get("cached_tokens")),
            tokens(details.get("cache_write_tokens")),
        )
        sent, received = tokens(usage.get("input_tokens")), tokens(usage.get("output_tokens"))
        counted = Usage(max(0, sent - cached - written), received, cached, written)
        return priced(counted, self._endpoint.facts.cost)


def _texts(parts: object) -> list[str]:
    return [text for part in list_of(parts) if (text := str_of(dict_of(part).get("text")))]


def _thinking_text(item: dict[str, Any]) -> str:
    return "\n\n".join(_texts(item.get("summary"))) or "".join(_texts(item.get("content")))


def _signature(item: dict[str, Any]) -> str:
    """The item as it goes back: what it says in secret, or else in the open."""
    secret = str_of(item.get("encrypted_content"))
    texts = _texts(item.get("content"))
    if not secret and not texts:
        return ""
    summary = [{"type": "summary_text", "text": text} for text in _texts(item.get("summary"))]
    kept: dict[str, Any] = {"type": "reasoning", "id": str_of(item.get("id")), "summary": summary}
    if secret:
        kept["encrypted_content"] = secret
    else:
        kept["content"] = [{"type": "reasoning_text", "text": text} for text in texts]
    return encode(kept).decode()
