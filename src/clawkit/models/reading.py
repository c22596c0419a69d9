"""Reads the body of an answer, whatever it turns out to be, into deltas and one message."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from clawkit.content import Assistant
from clawkit.models.base import Decoder, Delta, Endpoint, ModelError, ServerEvent
from clawkit.models.faults import from_response
from clawkit.models.wire.shared import priced
from clawkit.net.sse import EventStream

MAX_BODY = 256 * 1024 * 1024
"""Bytes of an answer with everything around it."""
MAX_WHOLE = 64 * 1024 * 1024
"""Bytes of an answer that does not come as a stream."""
_BLANKS = b"\xef\xbb\xbf \t\r\n"
_LAST = frozenset({"message_stop", "response.completed", "response.incomplete", "response.failed"})


class Reading:
    """One answer on its way. What a body is, is told by how it begins: many services name the
    wrong content type."""

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
        answer = self._decoder.finish()
        if answer.usage.cost:
            return answer
        usage = priced(answer.usage, self._endpoint.facts.cost)
        return msgspec.structs.replace(answer, usage=usage)

    def partial(self) -> Assistant:
        """What has come so far."""
        return self._decoder.partial()

    def _whole_events(self) -> list[ServerEvent]:
        """The events of an answer that came in one piece; an error where it is none."""
        # Few services do this, so others need not know how.
        from clawkit.models.unstreamed import events_of

        body = bytes(self._whole)
        events = events_of(self._endpoint.api, body)
        if not events:
            raise from_response(self._endpoint.ref.provider, 200, {}, body)
        return events

    def _malformed(self, what: str) -> ModelError:
        return ModelError("malformed", f"{self._endpoint.ref.provider} sent {what}.")
