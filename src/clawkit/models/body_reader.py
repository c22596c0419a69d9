"""Reads the body of an answer, whatever it turns out to be, into deltas and one message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from clawkit.content import Assistant
from clawkit.models.errors import from_response
from clawkit.models.protocols import Api, Decoder, Delta, Endpoint, ModelError
from clawkit.models.wire.answer import MAX_INNER, priced
from clawkit.net.sse import EventStream, ServerEvent

MAX_BODY = 256 * 1024 * 1024
"""Bytes of a stream with everything around the answer; they are not kept."""
MAX_WHOLE = 8 * 1024 * 1024
"""Bytes of an answer that does not come as a stream."""
_BLANKS = b"\xef\xbb\xbf \t\r\n"
_LAST = frozenset({"message_stop", "response.completed", "response.incomplete", "response.failed"})


class Reading:
    """One answer on its way. Its first byte decides what a body is: many services send a wrong
    content type."""

    def __init__(self, endpoint: Endpoint, decoder: Decoder) -> None:
        self._endpoint = endpoint
        self._decoder = decoder
        self._events: EventStream | None = None
        self._whole = bytearray()
        self._size = 0
        self.is_over = False
        """The last event has come; what follows does not matter."""
        self.has_begun = False
        """Something of an answer has come."""

    def feed(self, chunk: bytes) -> Iterator[Delta]:
        """What more of the body adds. Raises `ModelError`, as `end` and `finish` do."""
        self._size += len(chunk)
        if self._size > MAX_BODY:
            raise self._malformed(f"an answer of more than {MAX_BODY} bytes")
        if self._events is None:
            chunk = chunk if self._whole else chunk.lstrip(_BLANKS)
            if not chunk:
                return
            self.has_begun = True
            if self._whole or chunk[:1] in (b"{", b"[", b"<"):
                self._whole += chunk
                if len(self._whole) > MAX_WHOLE:
                    raise self._malformed(f"an answer of more than {MAX_WHOLE} bytes")
                return
            self._events = EventStream()
        try:
            events = self._events.feed(chunk)
        except ValueError as error:
            raise self._malformed(str(error)) from None
        decode = self._decoder.feed
        for event in events:
            yield from decode(event)
            if event.name in _LAST or event.data == "[DONE]":
                self.is_over = True

    def end(self) -> Iterator[Delta]:
        """What is left when the body is over."""
        if self.is_over:
            return
        for event in self._events.end() if self._events else self._whole_events():
            yield from self._decoder.feed(event)

    def finish(self) -> Assistant:
        """The whole answer, priced."""
        return self._priced(self._decoder.finish())

    def partial(self) -> Assistant:
        """What has come so far, priced."""
        return self._priced(self._decoder.partial())

    def _priced(self, answer: Assistant) -> Assistant:
        if answer.usage.cost:
            return answer
        usage = priced(answer.usage, self._endpoint.facts.cost)
        return msgspec.structs.replace(answer, usage=usage)

    def _whole_events(self) -> list[ServerEvent]:
        """The events of an answer that was not streamed. Raises the error that anything else is."""
        body = bytes(self._whole)
        events = events_of(self._endpoint.api, body)
        if not events:
            raise from_response(self._endpoint.ref.provider, 200, {}, body)
        return events

    def _malformed(self, what: str) -> ModelError:
        return ModelError("malformed", f"{self._endpoint.ref.provider} sent {what}.")


def events_of(api: Api, body: bytes) -> list[ServerEvent]:
    """A whole answer as events, for the API's decoder; none when the body is something else."""
    if body.count(b"[") + body.count(b"{") > MAX_INNER:
        return []
    try:
        items = _items(api, msgspec.json.decode(body))
        return [ServerEvent("", msgspec.json.encode(item).decode()) for item in items]
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return []


def _items(api: Api, data: Any) -> list[dict[str, Any]]:
    if api == "google-generative-ai":
        # A list of what would have been events, or the one answer there is.
        chunks = data if isinstance(data, list) else [data]
        has_answer = any(isinstance(each, dict) and "candidates" in each for each in chunks)
        return chunks if has_answer and all(isinstance(each, dict) for each in chunks) else []
    if not isinstance(data, dict):
        return []
    if api == "openai-responses":
        return _response_events(data)
    if api == "anthropic-messages":
        return _message_events(data)
    return [data] if isinstance(data.get("choices"), list) and data["choices"] else []


def _response_events(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    items = data.get("output")
    if not isinstance(items, list) or data.get("error"):
        return []
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.done", "output_index": index, "item": item}
        for index, item in enumerate(items)
    ]
    end = "incomplete" if data.get("status") == "incomplete" else "completed"
    return [*events, {"type": f"response.{end}", "response": data}]


def _message_events(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    blocks = data.get("content")
    if data.get("type") != "message" or not isinstance(blocks, list):
        return []
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**data, "content": []}}]
    for index, block in enumerate(blocks):
        start = {"type": "content_block_start", "index": index, "content_block": block}
        events += [start, {"type": "content_block_stop", "index": index}]
    delta = {"stop_reason": data.get("stop_reason"), "stop_details": data.get("stop_details")}
    events.append({"type": "message_delta", "delta": delta, "usage": data.get("usage")})
    return [*events, {"type": "message_stop"}]
