"""One request and its scripted answer, sent in the format of the API, complete or broken."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

import msgspec

from clawkit.content import Assistant
from clawkit.testing.answers import Gate, counted, whole
from clawkit_testkit.fault import Broken, Complaint, Odd, Raw
from clawkit_testkit.forms.protocol import Asked, Event, Form, Reply, read_asked
from clawkit_testkit.http11 import LAST_CHUNK, Line, Received, chunk, write_head

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding a body that is not JSON may raise."""

_STREAM = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
_AS_IT_SHOULD = Broken("")
_GARBAGE = b'data: {"type": "message_st\n\nthis line has no colon\n\ndata: \x00\xff{]\n\n'
# All names that an API uses, with values of wrong types.
_NONSENSE = b"".join(
    b'%bdata: {"type": %b, "id": [], "index": "no", "choices": 7, "candidates": 7, "delta": 7, '
    b'"message": 7, "response": 7, "content_block": 7, "item": 7, "usage": "much"}\n\n' % each
    for each in (
        (b"", b"7"),
        (b"event: message_start\n", b'"message_start"'),
        (b"event: content_block_delta\n", b'"content_block_delta"'),
        (b"event: response.output_item.added\n", b'"response.output_item.added"'),
        (b"event: response.output_text.delta\n", b'"response.output_text.delta"'),
    )
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer, and how it fails."""

    answer: Assistant
    broken: Broken = _AS_IT_SHOULD
    gate: Gate | None = None
    has_objects: bool = False


def make_plan(answer: object) -> Plan | Complaint | Raw:
    """The plan for an answer of a script. Raises TypeError for anything else."""
    match answer:
        case Complaint() | Raw():
            return answer
        case Broken():
            return Plan(whole(answer.answer), answer)
        case Odd():
            return Plan(whole(answer.answer), has_objects=True)
        case Gate():
            return Plan(whole(answer.answer), gate=answer)
        case _:
            return Plan(whole(answer))  # type: ignore[arg-type]  # raises TypeError itself


class Exchange:
    """One request and its answer."""

    def __init__(
        self, form: Form, received: Received, line: Line, seed: str, piece_chars: int
    ) -> None:
        self._form = form
        self._received = received
        self._line = line
        self._seed = seed
        self._piece_chars = piece_chars
        self._asked = Asked()

    def read(self) -> None:
        """Read what determines the format of the answer. Raises one of `UNREADABLE`."""
        received = self._received
        path, _, query = received.path.partition("?")
        if received.api == "google-generative-ai":
            model = unquote(path.rpartition("/")[2].partition(":")[0])
            self._asked = Asked(model, "alt=sse" in query.split("&"))
        else:
            self._asked = read_asked(received.data, with_options=path.endswith("completions"))
        received.model = self._asked.model

    async def play(self, plan: Plan | Complaint | Raw) -> bool:
        """Answer; False if the connection cannot be used again."""
        match plan:
            case Complaint():
                self._complain(plan)
            case Raw(body=body, status=status, content_type=content_type):
                self._line.send(status, body, self._headers({"content-type": content_type}))
            case Plan():
                try:
                    return await self._play(plan)
                except ConnectionError:
                    self._received.gone.set()
                    return False
        return True

    async def _play(self, plan: Plan) -> bool:
        broken, gate = plan.broken, plan.gate
        waits_first = gate is not None and not (gate.after and self._asked.stream)
        if gate and waits_first and not await self._outlasts_gate(gate):
            return False
        if broken.first_s and not await self._wait(broken.first_s):
            return False
        if broken.breakage == "drop":
            return False
        reply = self._reply(plan)
        if not self._asked.stream:
            return await self._send_whole(reply, plan)
        events = list(self._form.events(reply))
        at = len(events)
        if gate:
            at = _place(events, gate.after)
        elif broken.breakage != "none":
            at = _place(events, broken.after)
        head = write_head(200, self._headers(_STREAM), None)
        if not await self._send(head, events[:at], broken):
            return False
        if gate and not waits_first and not await self._outlasts_gate(gate):
            return False
        if broken.breakage != "none":
            return await self._break(reply, broken)
        return await self._send(b"", events[at:], broken, LAST_CHUNK)

    async def _send(
        self, before: bytes, events: Iterable[Event], broken: Broken, after: bytes = b""
    ) -> bool:
        if broken.delay_s:
            await self._line.write(before)
            for event in events:
                if not await self._wait(broken.delay_s):
                    return False
                await self._line.write(chunk(event.data))
            await self._line.write(after)
        elif size := broken.packet_bytes:
            await self._line.write(before)
            data = b"".join(event.data for event in events)
            for start in range(0, len(data), size):
                await self._line.write(chunk(data[start : start + size]))
                # Let the client read this packet separately.
                await asyncio.sleep(0)
            await self._line.write(after)
        else:
            chunks = [chunk(event.data) for event in events]
            await self._line.write(b"".join([before, *chunks, after]))
        return True

    async def _break(self, reply: Reply, broken: Broken) -> bool:
        match broken.breakage:
            case "silence":
                return await self._fall_silent()
            case "error":
                words = self._form.words[broken.kind]
                data = self._form.error_event(words, reply, broken.form)
            case "garbage":
                data = _GARBAGE
            case "nonsense":
                data = _NONSENSE
            case _:
                return False
        await self._line.write(chunk(data) + LAST_CHUNK)
        return True

    async def _send_whole(self, reply: Reply, plan: Plan) -> bool:
        body = self._form.whole(reply)
        headers = self._headers({"content-type": "application/json"})
        match plan.broken.breakage:
            case "cut":
                await self._line.write(write_head(200, headers, len(body)) + body[: len(body) // 2])
                return False
            case "silence":
                await self._line.write(write_head(200, headers, len(body)))
                return await self._fall_silent()
            case "error":
                self._complain(Complaint(plan.broken.kind))
                return True
            case "garbage":
                body = _GARBAGE
            case "nonsense":
                body = b'[{"choices": 7, "content": 7, "output": 7, "candidates": 7}]'
            case _:
                pass
        self._line.send(200, body, headers)
        return True

    def _complain(self, complaint: Complaint) -> None:
        words = self._form.words[complaint.kind]
        words = words._replace(
            status=complaint.status or words.status, message=complaint.message or words.message
        )
        request_id = f"req_{self._seed}"
        headers = {}
        if complaint.retry_after is not None:
            headers["retry-after"] = _retry_header(complaint.retry_after)
        body = self._form.error(words, request_id, complaint.retry_after)
        self._line.send(words.status, body, self._headers(headers))

    def _headers(self, more: Mapping[str, str]) -> dict[str, str]:
        return {**more, self._form.id_header: f"req_{self._seed}"}

    def _reply(self, plan: Plan) -> Reply:
        answer, asked = plan.answer, self._asked
        return Reply(
            answer.content,
            answer.stop,
            counted(answer, self._received.size),
            asked.model or "scripted-model",
            self._seed,
            int(time.time()),
            tells_usage=asked.tells_usage,
            has_objects=plan.has_objects,
            piece_chars=self._piece_chars,
        )

    async def _wait(self, seconds: float) -> bool:
        if await self._line.outlasts(asyncio.sleep(seconds)):
            return True
        self._received.gone.set()
        return False

    async def _outlasts_gate(self, gate: Gate) -> bool:
        if await self._line.outlasts(gate.wait()):
            return True
        self._received.gone.set()
        return False

    async def _fall_silent(self) -> bool:
        await self._line.hung_up()
        self._received.gone.set()
        return False


def _place(events: list[Event], pieces: int) -> int:
    """The number of events that contain so many pieces; the last events are never included."""
    if not pieces:
        return 0
    last = 0
    for number, event in enumerate(events, 1):
        if event.is_piece:
            last = number
            pieces -= 1
            if not pieces:
                break
    return last


def _retry_header(retry_after: float | str) -> str:
    return retry_after if isinstance(retry_after, str) else f"{retry_after:g}"
