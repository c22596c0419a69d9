"""OpenAI's Responses API, and compatible ones. Nothing is stored on the server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clawkit.content import Assistant, Image, Thinking, ToolCall, ToolResult, Usage
from clawkit.models.protocols import Delta, Endpoint, ModelError, Request
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
from clawkit.models.wire.openai import OpenAiWire, function_of
from clawkit.models.wire.request import Piece, blocks_of, encode, tokens

_LEAST_TOKENS = 16


class ResponsesWire(OpenAiWire):
    path = "/responses"
    FORM = "openai-responses"
    LIST = "input"
    TEXT = "input_text"

    def decoder(self) -> AnswerDecoder:
        return ResponsesDecoder(self._endpoint)

    def _system_items(self, system: str) -> list[bytes]:
        if self._endpoint.compat.supports_instructions:
            return []
        return [encode({"role": self._system_role, "content": system})]

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
                # Thinking is only accepted together with the item that follows it.
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
"""The role of a text in the answer; it must be sent back."""
_MAX_ITEMS = 20_000
_KINDS: dict[str, Kind] = {"message": "text", "reasoning": "thinking", "function_call": "call"}
_GROWS: dict[str, Kind] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_summary_text.delta": "thinking",
    "response.reasoning_summary.delta": "thinking",
    "response.reasoning_text.delta": "thinking",
    "response.reasoning.delta": "thinking",
    "response.function_call_arguments.delta": "call",
}
"""Events that add to a part."""
_ENDS = frozenset({"completed", "done", "incomplete", "failed", "cancelled"})


class ResponsesDecoder(AnswerDecoder):
    """Assembles one answer. Items are distinguished by id, or by position if there are no ids."""

    STOP_WHEN_DONE = "stop"

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._places: dict[int, AnswerPart] = {}
        self._items: dict[str, AnswerPart] = {}
        self._section: dict[AnswerPart, object] = {}
        """The current section of the summary of a thinking part."""

    def _events(self, data: Any) -> list[dict[str, Any]]:
        answer = dict_of(data)
        if not isinstance(answer.get("output"), list) or answer.get("error"):
            return []
        end = "incomplete" if answer.get("status") == "incomplete" else "completed"
        return [{"type": f"response.{end}", "response": answer}]

    def _read(self, data: dict[str, Any], name: str) -> Iterable[Delta]:
        name = str_of(data.get("type")) or name
        if name == "error" or (data.get("error") and "response" not in data):
            raise self._failure(data)
        if name in _GROWS:
            return self._grow(name, data)
        match name.removeprefix("response."):
            case "output_item.added":
                item = dict_of(data.get("item"))
                kind = _KINDS.get(str_of(item.get("type")))
                if kind is None:
                    return ()
                if kind == "call":
                    part = self.call(item.get("call_id") or item.get("id"), item.get("name"))
                else:
                    part = self.begin(kind)
                self._keep(part, str_of(item.get("id")), data.get("output_index"))
                return self.tell(part)
            case "output_item.done":
                return self._item_done(data, dict_of(data.get("item")))
            case "function_call_arguments.done":
                call = self._part(data, "call")
                call.name = call.name or read_name(data.get("name"))
                whole = arguments_text(data.get("arguments"))
                return [*self.tell(call), *self._complete(call, whole)]
            case end if end in _ENDS and end != name:
                return self._end(end, dict_of(data.get("response")))
        return ()

    def _part(self, event: dict[str, Any], kind: Kind) -> AnswerPart:
        """The part that an event belongs to; a new one if none was announced."""
        item_id, place = str_of(event.get("item_id")), event.get("output_index")
        found = self._items.get(item_id)
        if found is None and isinstance(place, int):
            found = self._places.get(place)
        if found is not None and found.kind == kind:
            return found
        last = self.parts[-1] if self.parts else None
        if last is not None and last.kind == kind and not last.is_closed:
            found = last
        elif kind == "call":
            found = self.call(event.get("call_id"), event.get("name"))
        else:
            found = self.begin(kind)
        return self._keep(found, item_id, place)

    def _keep(self, part: AnswerPart, item_id: str, index: object) -> AnswerPart:
        if len(self._items) + len(self._places) > _MAX_ITEMS:
            raise malformed("its answer has too many items")
        if item_id:
            self._items[item_id] = part
        if isinstance(index, int):
            self._places[index] = part
        return part

    def _grow(self, name: str, event: dict[str, Any]) -> Iterable[Delta]:
        kind, delta = _GROWS[name], event.get("delta")
        if kind == "call":
            return self.add(self._part(event, kind), arguments_text(delta))
        self._is_refused = self._is_refused or "refusal" in name
        if "summary" not in name:
            return self.add(self._part(event, kind), str_of(delta))
        text = str_of(delta) or str_of(dict_of(delta).get("text"))
        if not text:
            return ()
        thought, section = self._part(event, kind), event.get("summary_index")
        is_next = bool(thought.pieces) and self._section.get(thought) != section
        self._section[thought] = section
        return self.add(thought, f"\n\n{text}" if is_next else text)

    def _complete(self, part: AnswerPart, full_text: str) -> Iterable[Delta]:
        """Add the missing rest of the whole text, which takes precedence if the pieces differ."""
        old = "".join(part.pieces)
        if not full_text or full_text == old:
            return ()
        if full_text.startswith(old):
            return self.add(part, full_text[len(old) :])
        part.pieces.clear()
        self.add(part, full_text)
        return ()

    def _item_done(self, event: dict[str, Any], item: dict[str, Any]) -> Iterable[Delta]:
        kind = _KINDS.get(str_of(item.get("type")))
        if kind is None:
            return ()
        where = {"item_id": item.get("id"), "output_index": event.get("output_index")}
        part = self._part(where | item, kind)
        out: list[Delta] = []
        if kind == "call":
            part.name = read_name(item.get("name")) or part.name
            call_id = str_of(item.get("call_id"))
            if call_id and call_id != part.given_id and not part.is_told:
                self.rename(part, call_id)
            whole = arguments_text(item.get("arguments"))
            out += self.tell(part)
        elif kind == "thinking":
            part.signed = [_signature(item)]
            whole = "\n\n".join(_texts(item.get("summary"))) or "".join(_texts(item.get("content")))
        else:
            phase = str_of(item.get("phase"))
            part.signed = [phase if phase in PHASES else ""]
            whole = self._message_text(item.get("content"))
        out += self._complete(part, whole)
        part.is_closed = True
        return out

    def _message_text(self, content: object) -> str:
        if isinstance(content, str):
            return content
        parts = [dict_of(part) for part in list_of(content)]
        self._is_refused = self._is_refused or any(part.get("type") == "refusal" for part in parts)
        return "".join(str_of(part.get("text")) or str_of(part.get("refusal")) for part in parts)

    def _end(self, name: str, response: dict[str, Any]) -> Iterable[Delta]:
        if isinstance(usage := response.get("usage"), dict):
            details = dict_of(usage.get("input_tokens_details"))
            cached = tokens(details.get("cached_tokens"))
            written = tokens(details.get("cache_write_tokens"))
            sent, received = tokens(usage.get("input_tokens")), tokens(usage.get("output_tokens"))
            self._usage = Usage(max(0, sent - cached - written), received, cached, written)
        status = str_of(response.get("status")) or name
        if error := response.get("error"):
            raise self._failure({"error": error})
        if status in ("failed", "cancelled"):
            who = self._endpoint.ref.provider
            raise ModelError("server", f"{who} ended the answer with {status!r}. Try again.")
        streamed = {part.kind for part in self.parts}
        self._close_all()
        out: list[Delta] = []
        for item in map(dict_of, list_of(response.get("output"))):
            is_known = str_of(item.get("id")) in self._items
            # If items of its kind were streamed, an unknown id is a new id for one of them.
            if is_known or _KINDS.get(str_of(item.get("type"))) not in streamed:
                out += self._item_done({}, item)
        self._close_all()
        self._stop = "stop"
        if status == "incomplete":
            reason = dict_of(response.get("incomplete_details")).get("reason")
            self._stop = "refusal" if reason == "content_filter" else "length"
        return out

    def _close_all(self) -> None:
        for part in self.parts:
            part.is_closed = True


def _texts(parts: object) -> list[str]:
    return [text for part in list_of(parts) if (text := str_of(dict_of(part).get("text")))]


def _signature(item: dict[str, Any]) -> str:
    """The item as it is sent back: its encrypted content, else its plain text."""
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
