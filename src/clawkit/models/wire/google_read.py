"""Reads the events of an answer that comes through Google's Generative Language API."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from clawkit.content import Assistant, Part, Stop, ToolCall, Usage
from clawkit.models.base import Delta, Endpoint, ModelError, ServerEvent
from clawkit.models.faults import cut_off, from_response
from clawkit.models.wire.answer import Answer, Call, Words, dict_of, list_of, str_of
from clawkit.models.wire.declared import given_arguments
from clawkit.models.wire.shared import Limits, clean, decode, malformed, priced, said, tokens
from clawkit.schema.walk import names

_REFUSALS = names(
    "SAFETY RECITATION LANGUAGE BLOCKLIST PROHIBITED_CONTENT SPII IMAGE_SAFETY "
    "IMAGE_PROHIBITED_CONTENT IMAGE_RECITATION MODEL_ARMOR"
)
_BROKEN: Mapping[str, str] = {
    "MALFORMED_FUNCTION_CALL": "it wrote a call that is no call",
    "MALFORMED_RESPONSE": "it is malformed",
    "MISSING_THOUGHT_SIGNATURE": "a signature of earlier thinking is missing",
    "TOO_MANY_TOOL_CALLS": "it wrote too many calls",
    "UNEXPECTED_TOOL_CALL": "it called a tool where it was offered none",
}
_MADE = "gc_"
"""How ids begin that the API did not give."""


def is_made(call_id: str) -> bool:
    """Whether an id was made here because the API gave none."""
    return call_id.startswith(_MADE)


class _Signed(Call):
    """A call with a signature; it comes whole."""

    signature = ""

    def part(self, *, is_cut: bool) -> Part | None:
        part = super().part(is_cut=is_cut)
        if self.signature and isinstance(part, ToolCall):
            return msgspec.structs.replace(part, signature=self.signature)
        return part


class GoogleDecoder:
    """Puts one answer together."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._answer = Answer(endpoint)
        self._words: Words | None = None
        self._signed = Limits()
        self._usage = Usage()
        self._reason = ""
        self._blocked = ""
        self._message = ""

    def feed(self, event: ServerEvent) -> Iterable[Delta]:
        """What the event adds."""
        text = event.data.strip()
        if not text or text == "[DONE]":
            return ()
        try:
            data = decode(text)
        except ValueError:
            raise malformed(f"an event is no JSON: {said(text[:200])!r}") from None
        if not isinstance(data, dict):
            raise malformed(f"an event is no JSON object: {said(text[:200])!r}")
        if data.get("error"):
            error = from_response(self._endpoint.ref.provider, 200, {}, clean(text).encode())
            error.partial = self.partial()
            raise error
        self._count(dict_of(data.get("usageMetadata")))
        feedback = dict_of(data.get("promptFeedback"))
        reason = str_of(feedback.get("blockReason"))
        if reason and reason != "BLOCKED_REASON_UNSPECIFIED":
            self._blocked = said(reason)
        candidates = list_of(data.get("candidates"))
        candidate = dict_of(candidates[0]) if candidates else {}
        parts = list_of(dict_of(candidate.get("content")).get("parts"))
        deltas = [delta for part in parts for delta in self._part(dict_of(part))]
        self._reason = str_of(candidate.get("finishReason")) or self._reason
        self._message = said(candidate.get("finishMessage")) or self._message
        return deltas

    def finish(self) -> Assistant:
        """The whole answer. Raises "cut" when the stream ended before it, "malformed" when the
        model did not manage to write one."""
        if self._blocked:
            return self._refused(f"the request was blocked: {self._blocked}")
        if not self._reason:
            message = cut_off(self._endpoint.ref.provider)
            raise ModelError("cut", message, partial=self.partial())
        if self._reason in _REFUSALS:
            return self._refused(f"the answer was blocked: {self._message or self._reason}")
        stop: Stop = "length" if self._reason == "MAX_TOKENS" else "stop"
        answer = self._answer.whole(stop, self._usage)
        why = _BROKEN.get(self._reason, "")
        if not answer.content and self._reason not in ("STOP", "MAX_TOKENS"):
            why = why or f"it ended for the reason {said(self._reason)!r}"
        if why and not answer.calls:
            error = malformed(f"{why}: {self._message}" if self._message else why)
            error.partial = self.partial()
            raise error
        return answer

    def partial(self) -> Assistant:
        """What has come so far: complete parts and open text."""
        return self._answer.partial(self._usage)

    def _refused(self, why: str) -> Assistant:
        answer = self._answer.whole("refusal", self._usage)
        # Nothing is done for an answer that was taken back.
        kept = tuple(part for part in answer.content if not isinstance(part, ToolCall))
        return msgspec.structs.replace(answer, content=kept, error=why)

    def _part(self, part: Mapping[str, Any]) -> Iterable[Delta]:
        signature = clean(str_of(part.get("thoughtSignature")))
        self._signed.add_text(signature)
        function = part.get("functionCall")
        if isinstance(function, dict):
            return self._call(function, signature)
        text = part.get("text")
        if not isinstance(text, str) or not (text or signature):
            return ()
        words = self._open("thinking" if part.get("thought") is True else "text")
        deltas = self._answer.say(words, text)
        if signature:
            words.signature = signature
            if words.kind == "text" and not words.pieces:
                words.pieces.append("")  # a text that is nothing but its signature
            self._close()
        return deltas

    def _open(self, kind: Literal["text", "thinking"]) -> Words:
        """The text or the thought that is being written, or a new one."""
        if self._words is None or self._words.kind != kind:
            self._close()
            self._words = self._answer.words(kind)
        return self._words

    def _close(self) -> None:
        if self._words is not None:
            self._words.is_closed = True
        self._words = None

    def _call(self, function: Mapping[str, Any], signature: str) -> Iterable[Delta]:
        self._close()
        given = str_of(function.get("id")) or f"{_MADE}{os.urandom(12).hex()}"
        made = self._answer.call(given, function.get("name"))
        call = _Signed(made.number, made.id, made.name)
        call.signature = signature
        self._answer.parts[-1] = call
        arguments = given_arguments(function.get("args"))
        deltas = [*self._answer.tell(call), *self._answer.argue(call, arguments)]
        call.is_closed = True
        return deltas

    def _count(self, usage: Mapping[str, Any]) -> None:
        if not usage:
            return
        cached = tokens(usage.get("cachedContentTokenCount"))
        sent = tokens(usage.get("promptTokenCount")) + tokens(usage.get("toolUsePromptTokenCount"))
        received = tokens(usage.get("candidatesTokenCount"))
        received += tokens(usage.get("thoughtsTokenCount"))
        counted = Usage(max(0, sent - cached), received, cached)
        self._usage = priced(counted, self._endpoint.facts.cost)
