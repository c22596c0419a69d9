"""Reads the events of an answer that comes through the Anthropic Messages API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from clawkit.content import Assistant, Part, Stop, Thinking, ToolCall, Usage
from clawkit.models.base import Delta, Endpoint, ModelError, ServerEvent
from clawkit.models.faults import cut_off, from_response
from clawkit.models.wire.answer import Answer, Call, W, Words, dict_of, str_of
from clawkit.models.wire.declared import given_arguments
from clawkit.models.wire.shared import Limits, clean, decode, malformed, priced, said, tokens

_STOPS: Mapping[str, Stop] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
_MAX_OPEN = 1_000
"""Blocks that are written at the same time."""
_USAGE: Mapping[str, str] = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cache_read_input_tokens": "cache_read",
    "cache_creation_input_tokens": "cache_write",
}


class Thought(Words):
    """Thinking, also such that was signed but not told; or, with `is_hidden`, encrypted."""

    def __init__(self, *, is_hidden: bool = False) -> None:
        super().__init__("thinking")
        self.is_hidden = is_hidden
        self.signed: list[str] = []
        """The signature, in pieces."""

    def part(self, *, is_cut: bool) -> Part | None:
        if not self.pieces and not self.signed:
            return None
        return Thinking(self.text, clean("".join(self.signed)), self.is_hidden)


class AnthropicDecoder:
    """Puts one answer together."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._answer = Answer(endpoint)
        self._open: dict[int, Words | Call | None] = {}
        """Blocks that are being written; None for those that mean nothing here."""
        self._given: set[int] = set()
        """Calls whose arguments came with their beginning."""
        self._signed = Limits()
        self._counts: dict[str, int] = {}
        self._reason = ""
        self._explanation = ""
        self._is_over = False

    def feed(self, event: ServerEvent) -> Iterable[Delta]:
        """What the event adds."""
        text = event.data.strip()
        if self._is_over or not text or text == "[DONE]":
            return ()
        try:
            data = decode(text)
        except ValueError:
            raise malformed(f"an event is no JSON: {said(text[:200])!r}") from None
        if not isinstance(data, dict):
            raise malformed(f"an event is no JSON object: {said(text[:200])!r}")
        name = str_of(data.get("type")) or event.name
        match name:
            case "message_start":
                self._count(dict_of(data.get("message")).get("usage"))
            case "content_block_start":
                return self._start(data.get("index"), dict_of(data.get("content_block")))
            case "content_block_delta":
                return self._delta(data.get("index"), dict_of(data.get("delta")))
            case "content_block_stop":
                self._close(self._place(data.get("index")))
            case "message_delta":
                self._end(dict_of(data.get("delta")))
                self._count(data.get("usage"))
            case "message_stop":
                self._is_over = True
            case _ if name == "error" or data.get("error"):
                raise self._failed(text)
        return ()

    def finish(self) -> Assistant:
        """The whole answer. Raises "cut" when the stream ended before it."""
        if not self._is_over and not self._reason:
            message = cut_off(self._endpoint.ref.provider)
            raise ModelError("cut", message, partial=self.partial())
        answer = self._answer.whole(_STOPS.get(self._reason, "stop"), self._usage)
        if answer.stop != "refusal":
            return answer
        # Nothing is done for an answer that was taken back.
        kept = tuple(part for part in answer.content if not isinstance(part, ToolCall))
        return msgspec.structs.replace(answer, content=kept, error=self._explanation)

    def partial(self) -> Assistant:
        """What has come so far: complete parts and open text."""
        return self._answer.partial(self._usage)

    @property
    def _usage(self) -> Usage:
        return priced(Usage(**self._counts), self._endpoint.facts.cost)

    def _start(self, index: object, block: Mapping[str, Any]) -> Iterable[Delta]:
        match block.get("type"):
            case "text":
                words = self._begin(index, Words("text"))
                return self._answer.say(words, str_of(block.get("text")))
            case "thinking":
                thought = self._begin(index, Thought())
                self._sign(thought, block.get("signature"))
                return self._answer.say(thought, str_of(block.get("thinking")))
            case "redacted_thinking":
                self._sign(self._begin(index, Thought(is_hidden=True)), block.get("data"))
                return ()
            case "tool_use":
                return self._start_call(index, block)
        self._open[self._free(index)] = None
        return ()

    def _start_call(self, index: object, block: Mapping[str, Any]) -> Iterable[Delta]:
        place = self._free(index)
        call = self._answer.call(block.get("id"), block.get("name"))
        self._open[place] = call
        deltas = [*self._answer.tell(call)]
        if given := block.get("input"):
            self._given.add(call.number)
            deltas += self._answer.argue(call, given_arguments(given))
        return deltas

    def _delta(self, index: object, delta: Mapping[str, Any]) -> Iterable[Delta]:
        match delta.get("type"):
            case "text_delta":
                words = self._words(index, "text")
                return self._answer.say(words, str_of(delta.get("text"))) if words else ()
            case "thinking_delta":
                words = self._words(index, "thinking")
                return self._answer.say(words, str_of(delta.get("thinking"))) if words else ()
            case "signature_delta":
                if isinstance(thought := self._words(index, "thinking"), Thought):
                    self._sign(thought, delta.get("signature"))
            case "input_json_delta":
                call = self._open.get(self._place(index))
                if isinstance(call, Call):
                    return self._argue(call, delta.get("partial_json"))
        return ()

    def _argue(self, call: Call, given: object) -> Iterable[Delta]:
        text = given_arguments(given)
        if text and call.number in self._given:
            # They come once more, in pieces.
            self._given.discard(call.number)
            call.pieces.clear()
        return self._answer.argue(call, text)

    def _end(self, delta: Mapping[str, Any]) -> None:
        self._reason = str_of(delta.get("stop_reason")) or self._reason
        explanation = dict_of(delta.get("stop_details")).get("explanation")
        self._explanation = said(explanation) or self._explanation

    # Blocks. An index that is missing, or used again, is understood from the order of events.

    def _free(self, index: object) -> int:
        """The place of a new block; one that is still there ends."""
        if len(self._open) >= _MAX_OPEN:
            raise malformed(f"its answer has more than {_MAX_OPEN:,} open parts")
        place = index if isinstance(index, int) else max(self._open, default=-1) + 1
        self._close(place)
        return place

    def _place(self, index: object) -> int:
        return index if isinstance(index, int) else next(reversed(self._open), -1)

    def _begin(self, index: object, words: W) -> W:
        self._open[self._free(index)] = words
        return self._answer.add(words)

    def _words(self, index: object, kind: str) -> Words | None:
        """The open block of that kind, or a new one; None where what comes means nothing."""
        place = self._place(index)
        found = self._open.get(place)
        if isinstance(found, Words) and found.kind == kind:
            return found
        if found is None and place in self._open:
            return None
        return self._begin(index, Words("text") if kind == "text" else Thought())

    def _close(self, place: int) -> None:
        part = self._open.pop(place, None)
        if part is not None:
            part.is_closed = True

    def _sign(self, thought: Thought, signature: object) -> None:
        if text := str_of(signature):
            self._signed.add_text(text)
            thought.signed.append(text)

    def _count(self, usage: object) -> None:
        found = {own: tokens(dict_of(usage).get(name)) for name, own in _USAGE.items()}
        # Numbers are totals; a 0 at the end is what a service does not know.
        self._counts |= {own: number for own, number in found.items() if number}

    def _failed(self, text: str) -> ModelError:
        error = from_response(self._endpoint.ref.provider, 200, {}, clean(text).encode())
        error.partial = self.partial()
        return error
