"""OpenAI's Responses API, and the services that imitate it. Nothing is left on the server."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from clawkit.content import Assistant, Image, Thinking, ToolCall, ToolResult, Usage
from clawkit.models.protocols import Decoder, Delta, Endpoint, ModelError, Request
from clawkit.models.wire.answer import (
    AnswerDecoder,
    Call,
    Kind,
    Words,
    decode,
    dict_of,
    given_arguments,
    list_of,
    malformed,
    read_name,
    str_of,
)
from clawkit.models.wire.openai import OpenAiWire, function_of
from clawkit.models.wire.request import Piece, blocks_of, encode, tokens

_LEAST_TOKENS = 16


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
        return encode({"role": self._system_role, "content": system})

    def _own_fields(self, request: Request, limit: int | None) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if self._endpoint.compat.supports_instructions and request.system.strip():
            fields["instructions"] = request.system
        if limit is not None:
            fields["max_output_tokens"] = max(limit, _LEAST_TOKENS)
        if not self._endpoint.facts.reasoning:
            return fields
        fields["include"] = ["reasoning.encrypted_content"]
        reasoning: dict[str, str] = {}
        word = self._effort(request.thinking)
        if self._takes_effort and word:
            reasoning["effort"] = word
        if self._is_on(request.thinking) and self._endpoint.is_native:
            reasoning["summary"] = "auto"
        return fields | ({"reasoning": reasoning} if reasoning else {})

    def _image(self, url: str) -> dict[str, Any]:
        return {"type": "input_image", "image_url": url, "detail": "auto"}

    def _answer(self, message: Assistant) -> bytes:
        own = self._is_own(message)
        items: list[dict[str, Any]] = []
        thoughts: list[dict[str, Any]] = []
        for part in message.content:
            if isinstance(part, Thinking):
                thoughts += self._thought(part) if own else []
                continue
            item: dict[str, Any] = {}
            if isinstance(part, ToolCall):
                call_id = self._call_id(part.id)
                item = {"type": "function_call", "call_id": call_id, **function_of(part)}
            elif part.text.strip():
                phase = {"phase": part.signature} if own and part.signature in PHASES else {}
                item = {"role": "assistant", "content": part.text, **phase}
            if item:
                # A thought is sent with what came of it only: on its own it is refused.
                items += [*thoughts, item]
                thoughts = []
        return b",".join(map(encode, items))

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

    def _result(self, result: ToolResult) -> Piece:
        has_images = any(isinstance(each, Image) for each in result.content)
        if not (has_images and self._endpoint.facts.images and self._endpoint.is_native):
            return super()._result(result)
        parts = self._parts(blocks_of(result))
        return Piece("result", encode(self._result_item(result, parts)))

    def _result_item(self, result: ToolResult, output: object) -> dict[str, Any]:
        call_id = self._call_id(result.call_id)
        return {"type": "function_call_output", "call_id": call_id, "output": output}


PHASES = frozenset({"commentary", "final_answer"})
"""What a text is to the whole answer; the model wants to have it back."""
_MAX_ITEMS = 20_000
_KINDS: dict[str, Literal["text", "thinking", "call"]] = {
    "message": "text",
    "reasoning": "thinking",
    "function_call": "call",
}


class ResponsesDecoder(AnswerDecoder):
    """One answer. Its items are told apart by id, or by place where there are no ids."""

    STOP_WHEN_DONE = "stop"

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

    def _read(self, data: dict[str, Any], name: str) -> list[Delta]:
        kind = str_of(data.get("type")) or name
        if kind == "error" or (data.get("error") and "response" not in data):
            raise self._failure(data)
        reader = self._readers.get(kind)
        return [*reader(data)] if reader else []

    def _find(self, event: dict[str, Any]) -> Words | Call | None:
        found = self._ids.get(str_of(event.get("item_id")))
        place = event.get("output_index")
        if found is None and isinstance(place, int):
            found = self._places.get(place)
        return found

    def _words(self, event: dict[str, Any], kind: Kind) -> Words:
        """The text or thought that an event adds to; a new one where none was announced."""
        found, last = self._find(event), self._answer.last
        if not isinstance(found, Words) or found.kind != kind:
            is_open = isinstance(last, Words) and last.kind == kind and not last.is_closed
            found = last if isinstance(last, Words) and is_open else self._answer.words(kind)
            self._keep(found, str_of(event.get("item_id")), event.get("output_index"))
        return found

    def _call(self, event: dict[str, Any]) -> Call:
        found, last = self._find(event), self._answer.last
        if not isinstance(found, Call):
            is_open = isinstance(last, Call) and not last.is_closed
            found = last if isinstance(last, Call) and is_open else None
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
        self._is_refused = True
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
        whole = given_arguments(event.get("arguments"))
        return [*self._answer.tell(call), *self._complete(call, whole)]

    def _complete(self, part: Words | Call, whole: str) -> Iterable[Delta]:
        """What of the whole text had not come yet; it counts where the pieces differ from it."""
        old = "".join(part.pieces)
        if not whole or whole == old:
            return ()
        is_more = whole.startswith(old)
        rest = whole[len(old) :] if is_more else whole
        if not is_more:
            part.pieces.clear()
        if isinstance(part, Call):
            deltas = self._answer.argue(part, rest)
        else:
            deltas = self._answer.say(part, rest)
        return deltas if is_more else ()

    def _item_added(self, event: dict[str, Any]) -> Iterable[Delta]:
        item = dict_of(event.get("item"))
        kind = _KINDS.get(str_of(item.get("type")))
        if kind is None:
            return ()
        if kind != "call":
            self._keep(self._answer.words(kind), str_of(item.get("id")), event.get("output_index"))
            return ()
        call = self._answer.call(item.get("call_id") or item.get("id"), item.get("name"))
        self._keep(call, str_of(item.get("id")), event.get("output_index"))
        return self._answer.tell(call)

    def _item_done(self, event: dict[str, Any]) -> Iterable[Delta]:
        item = dict_of(event.get("item"))
        where = {"item_id": item.get("id"), "output_index": event.get("output_index")}
        kind = _KINDS.get(str_of(item.get("type")))
        if kind == "call":
            return self._call_done(self._call(where | item), item)
        if kind is None:
            return ()
        words = self._words(where, kind)
        words.is_closed = True
        if kind == "thinking":
            words.signature = _signature(item)
            summary, content = _texts(item.get("summary")), _texts(item.get("content"))
            return self._complete(words, "\n\n".join(summary) or "".join(content))
        phase = str_of(item.get("phase"))
        words.signature = phase if phase in PHASES else ""
        return self._complete(words, self._message_text(item))

    def _call_done(self, call: Call, item: dict[str, Any]) -> Iterable[Delta]:
        call.name = read_name(item.get("name")) or call.name
        call_id = str_of(item.get("call_id"))
        if call_id and call_id != call.given_id and not call.is_told:
            self._answer.rename(call, call_id)
        whole = given_arguments(item.get("arguments"))
        out = [*self._answer.tell(call), *self._complete(call, whole)]
        call.is_closed = True
        return out

    def _message_text(self, item: dict[str, Any]) -> str:
        content = item.get("content")
        if isinstance(content, str):
            return content
        parts = [dict_of(part) for part in list_of(content)]
        self._is_refused = self._is_refused or any(part.get("type") == "refusal" for part in parts)
        return "".join(str_of(part.get("text")) or str_of(part.get("refusal")) for part in parts)

    def _ended(self, event: dict[str, Any]) -> Iterable[Delta]:
        response = dict_of(event.get("response"))
        if isinstance(usage := response.get("usage"), dict):
            self._count(usage)
        name = str_of(event.get("type")).rpartition(".")[2]
        status = str_of(response.get("status")) or name
        if error := response.get("error"):
            raise self._failure({"error": error})
        if status in ("failed", "cancelled"):
            who = self._endpoint.ref.provider
            raise ModelError("server", f"{who} says that the answer {status}. Try again.")
        streamed = {"call" if isinstance(part, Call) else part.kind for part in self._answer.parts}
        self._answer.close_all()
        out: list[Delta] = []
        for item in list_of(response.get("output")):
            out += self._missed(dict_of(item), streamed)
        self._answer.close_all()
        self._stop = "stop"
        if status == "incomplete":
            reason = dict_of(response.get("incomplete_details")).get("reason")
            self._stop = "refusal" if reason == "content_filter" else "length"
        return out

    def _missed(self, item: dict[str, Any], streamed: set[str]) -> Iterable[Delta]:
        """An item of the whole answer: it settles what came of it, or all of it is new."""
        kind = _KINDS.get(str_of(item.get("type")))
        # Items under another id than before are those that came, where any of their kind came.
        if str_of(item.get("id")) not in self._ids and kind in streamed:
            return ()
        return self._item_done({"item": item})

    def _count(self, usage: dict[str, Any]) -> None:
        details = dict_of(usage.get("input_tokens_details"))
        cached = tokens(details.get("cached_tokens"))
        written = tokens(details.get("cache_write_tokens"))
        sent, received = tokens(usage.get("input_tokens")), tokens(usage.get("output_tokens"))
        self._usage = Usage(max(0, sent - cached - written), received, cached, written)


def _texts(parts: object) -> list[str]:
    return [text for part in list_of(parts) if (text := str_of(dict_of(part).get("text")))]


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
