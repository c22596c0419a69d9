"""The Anthropic Messages API."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from clawkit.content import (
    Assistant,
    Block,
    Image,
    Message,
    Part,
    Stop,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from clawkit.models.errors import cut_off, from_response
from clawkit.models.protocols import Delta, Endpoint, ModelError, Request
from clawkit.models.wire.answer import (
    Answer,
    Call,
    Growing,
    W,
    Words,
    decode_event,
    dict_of,
    given_arguments,
    malformed,
    priced,
    said,
    str_of,
)
from clawkit.models.wire.claude import BINDING, INTERLEAVED, LEAST_BUDGET, Claude, Plan, plan
from clawkit.models.wire.request import (
    BEGINNING,
    NO_IMAGE,
    NO_OUTPUT,
    Declarations,
    Piece,
    Pieces,
    as_object,
    call_as_text,
    clean,
    encode,
    max_tokens_param,
    merge_params,
    result_as_text,
    room_for_answer,
    safe_name,
    short_id,
    summary_text,
    tokens,
)
from clawkit.net.sse import ServerEvent

VERSION = "2023-06-01"

_IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_SAFE_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MAX_ID = 64
_MINIMAX_FAST = {"MiniMax-M2.7": "MiniMax-M2.7-highspeed"}
_NO_NAMES: Mapping[str, str] = {}


class AnthropicWire:
    """Writes requests to one model and makes decoders for its answers."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._model = str(endpoint.ref)
        self._claude = Claude.of(endpoint.ref.id)
        self._is_minimax = endpoint.ref.provider.startswith("minimax") or bool(
            re.match(r"https?://api\.minimaxi?\.", endpoint.base_url)
        )
        self._declared = Declarations(endpoint, "anthropic")
        self._pieces = Pieces(self._piece)
        self._without_thinking = Pieces(self._piece_without_thinking)
        self._flat = Pieces(self._flat_piece)

    @property
    def path(self) -> str:
        """What comes after the base URL."""
        has_version = self._endpoint.base_url.rstrip("/").endswith("/v1")
        return "/messages" if has_version else "/v1/messages"

    @property
    def headers(self) -> Mapping[str, str]:
        headers = {"anthropic-version": VERSION}
        if self._is_binding:
            headers["anthropic-beta"] = BINDING
        elif self._claude.version >= (4, 0) and not self._claude.is_adaptive:
            # Thinking between calls; means nothing to a request that does not think.
            headers["anthropic-beta"] = INTERLEAVED
        return headers

    def decoder(self) -> AnthropicDecoder:
        return AnthropicDecoder(self._endpoint)

    @property
    def _is_binding(self) -> bool:
        return self._claude.is_bound and self._endpoint.is_native

    def write(self, request: Request) -> bytes:
        """The body of the HTTP request."""
        takes_tools = self._endpoint.compat.supports_tools is not False
        tools = self._declared.of(request.tools) if takes_tools else b""
        given = {**self._endpoint.params, **request.params}
        fields = merge_params({}, self._endpoint.params, request.params)
        planned = self._plan(request, fields, is_given="thinking" in given)
        pieces = self._pieces_of(request.messages, planned, is_flat=not tools)
        size = sum(len(piece.body) - piece.images for piece in pieces)
        size += len(tools) + len(request.system)
        limit = request.max_tokens or max_tokens_param(given) or tokens(fields.get("max_tokens"))
        left = room_for_answer(request, self._endpoint.facts, size)
        room, planned = self._room(limit, planned, left)
        mark = self._mark(given)
        body: dict[str, Any] = {"model": self._model_id(given), "stream": True}
        if request.system.strip():
            body["system"] = _raw(encode(_text(request.system)), mark)
        if tools:
            body["tools"] = _raw(tools, mark)
        if planned.effort:
            body["output_config"] = {"effort": planned.effort}
        merge_params(body, self._endpoint.params, request.params)
        body["max_tokens"] = room
        self._leave_out(body, planned, has_tools=bool(tools))
        # Conversations are large: they are copied once, by one join.
        return b"".join((encode(body)[:-1], *_messages(pieces, mark), b"}"))

    def _plan(self, request: Request, fields: Mapping[str, Any], *, is_given: bool) -> Plan:
        endpoint, level = self._endpoint, request.thinking
        can_think = endpoint.facts.reasoning or self._claude.is_adaptive
        if is_given or "thinking" in fields:
            # Somebody said it in the API's own words.
            own = fields.get("thinking")
            own = dict(own) if isinstance(own, Mapping) else {}
            planned = Plan(own or None, budget=tokens(own.get("budget_tokens")))
        elif level in endpoint.thinking_levels or (can_think and level != "off"):
            planned = plan(level, self._claude, endpoint.compat, endpoint.thinking_levels)
        elif self._is_minimax and level == "off":
            planned = Plan({"type": "disabled"})
        else:
            planned = plan("off", self._claude, endpoint.compat, {})
        if self._is_binding and planned.is_on and planned.thinking is not None:
            # Compaction, a new system prompt and new tools all change what came before.
            binding = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}
            return planned._replace(thinking=binding | planned.thinking)
        return planned

    def _room(self, limit: int, planned: Plan, left: int) -> tuple[int, Plan]:
        """Tokens of the answer, thinking included, and the plan that fits into them."""
        facts = self._endpoint.facts
        # What the thinking takes is on top of what was asked for, as far as the model can.
        raised = min((limit or facts.max_tokens) + planned.budget, facts.max_tokens)
        room = min(max(limit, raised), left, facts.window)
        thinking = planned.thinking
        if thinking is None or not tokens(thinking.get("budget_tokens")):
            return room, planned
        budget = min(tokens(thinking["budget_tokens"]), room - room // 4)
        if budget < LEAST_BUDGET:
            return room, Plan()
        return room, planned._replace(thinking=thinking | {"budget_tokens": budget})

    def _mark(self, given: Mapping[str, Any]) -> bytes:
        """What ends a block up to which the service shall remember the request."""
        retention = given.get("cacheRetention", given.get("cache_retention"))
        if retention == "none":
            return b""
        supports = self._endpoint.compat.supports_long_cache_retention
        is_long = self._endpoint.is_native if supports is None else supports
        ttl = b',"ttl":"1h"' if retention == "long" and is_long else b""
        return b',"cache_control":{"type":"ephemeral"' + ttl + b"}}"

    def _model_id(self, given: Mapping[str, Any]) -> str:
        model_id = self._endpoint.ref.id
        is_fast = given.get("fastMode", given.get("fast_mode")) is True
        return _MINIMAX_FAST.get(model_id, model_id) if self._is_minimax and is_fast else model_id

    def _leave_out(self, body: dict[str, Any], planned: Plan, *, has_tools: bool) -> None:
        """Take out what does not go together with thinking, with no tools, or with this model."""
        body["thinking"] = planned.thinking
        supports = self._endpoint.compat.supports_temperature
        takes = self._claude.takes_temperature if supports is None else supports
        unwanted = {
            "thinking": planned.thinking is None,
            "tool_choice": not has_tools,
            "temperature": planned.is_on or not takes,
            "top_k": planned.is_on or not takes,
            "top_p": not takes,
        }
        for name, is_out in unwanted.items():
            if is_out:
                body.pop(name, None)

    def _pieces_of(
        self, messages: Sequence[Message], planned: Plan, *, is_flat: bool
    ) -> list[Piece]:
        make: Callable[[Message], Piece] = self._piece
        kept = self._pieces
        if is_flat:
            # Calls in a request that offers no tools are refused.
            make, kept = self._flat_piece, self._flat
        elif self._claude.is_bound and planned.is_off:
            # Turned off, it still looks at what it thought before, and cannot be told not to.
            make, kept = self._piece_without_thinking, self._without_thinking
        pieces = kept.of(messages)
        if messages and isinstance(last := messages[-1], Assistant):
            pieces[-1] = make(_without_space_at_end(last))
        return list(self._renamed(messages)) if _has_twins(pieces) else pieces

    def _renamed(self, messages: Iterable[Message]) -> Iterable[Piece]:
        """All messages, ids that come twice made different: some services count from 0 again."""
        used: set[str] = set()
        names: dict[str, str] = {}
        for message in messages:
            if isinstance(message, Assistant):
                names = {}
                for call in message.calls:
                    name, number = safe_id(call.id), 1
                    while name in used:
                        number += 1
                        name = safe_id(f"{call.id}:{number}")
                    used.add(name)
                    names[call.id] = name
            yield self._piece(message, names, with_thinking=not self._claude.is_bound)

    def _piece_without_thinking(self, message: Message) -> Piece:
        return self._piece(message, with_thinking=False)

    def _piece(
        self,
        message: Message,
        names: Mapping[str, str] = _NO_NAMES,
        *,
        with_thinking: bool = True,
    ) -> Piece:
        if isinstance(message, Assistant):
            return self._answer(message, names, with_thinking)
        if isinstance(message, Summary):
            return Piece("user", encode(_text(summary_text(message))))
        blocks = [self._block(block) for block in message.content]
        images = sum(len(block.data) for block in message.content if isinstance(block, Image))
        sent = [block for block in blocks if block]
        if isinstance(message, ToolResult):
            result = {
                "type": "tool_result",
                "tool_use_id": names.get(message.call_id) or safe_id(message.call_id),
                "content": sent or [_text(NO_OUTPUT)],
            }
            sent = [result | {"is_error": True} if message.is_error else result]
        return Piece("user", b",".join(map(encode, sent)), images=images)

    def _answer(self, message: Assistant, names: Mapping[str, str], with_thinking: bool) -> Piece:
        is_own = message.api == self._endpoint.api and message.model == self._model
        blocks: list[dict[str, Any]] = []
        for part in message.content:
            if isinstance(part, Text):
                blocks += [_text(part.text)] if part.text.strip() else []
            elif isinstance(part, ToolCall):
                call = {
                    "type": "tool_use",
                    "id": names.get(part.id) or safe_id(part.id),
                    "name": safe_name(part.name),
                    "input": as_object(part.arguments),
                }
                blocks.append(call)
            elif block := self._thought(part, is_own and with_thinking):
                blocks.append(block)
        while blocks and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
            blocks.pop()  # an answer that ends with thinking is refused
        ids = tuple(block["id"] for block in blocks if block["type"] == "tool_use")
        return Piece("assistant", b",".join(map(encode, blocks)), ids=ids)

    def _thought(self, part: Thinking, is_own: bool) -> dict[str, Any] | None:
        if self._endpoint.compat.requires_thinking_as_text:
            return _text(part.text) if part.text.strip() else None
        if not is_own:
            return None
        if part.hidden:
            return {"type": "redacted_thinking", "data": part.signature}
        if not part.signature and self._endpoint.is_native:
            return None  # what was not signed was not thought to its end
        return {"type": "thinking", "thinking": part.text, "signature": part.signature}

    def _flat_piece(self, message: Message) -> Piece:
        """The message for a request without tools: calls and their results as text."""
        if isinstance(message, ToolResult):
            return Piece("user", encode(_text(result_as_text(message))))
        if not isinstance(message, Assistant):
            return self._piece(message)
        texts = [
            call_as_text(part) if isinstance(part, ToolCall) else part.text
            for part in message.content
            if not isinstance(part, Thinking)
        ]
        blocks = [encode(_text(text)) for text in texts if text.strip()]
        return Piece("assistant", b",".join(blocks))

    def _block(self, block: Block) -> dict[str, Any] | None:
        if isinstance(block, Text):
            return _text(block.text) if block.text.strip() else None
        if not self._endpoint.facts.images or not block.data:
            return _text(NO_IMAGE)
        kind = block.mime_type.lower().replace("image/jpg", "image/jpeg")
        if kind not in _IMAGE_TYPES:
            return _text(f"[an image was left out: it is neither JPEG, PNG, GIF nor WebP: {kind}]")
        source = {"type": "base64", "media_type": kind, "data": block.data}
        return {"type": "image", "source": source}


def safe_id(text: str) -> str:
    """The id of a call as the API takes it, always the same for the same id."""
    return text if _SAFE_ID.fullmatch(text) else short_id(text, _MAX_ID)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _raw(body: bytes, mark: bytes) -> msgspec.Raw:
    """Blocks as a JSON list, the last one marked."""
    return msgspec.Raw(b"[" + (body[:-1] + mark if mark else body) + b"]")


def _messages(pieces: Iterable[Piece], mark: bytes) -> list[bytes]:
    """The field with the messages: one per change of role, the last two of the person marked."""
    turns: list[tuple[str, list[bytes]]] = []
    for piece in pieces:
        if piece.body and turns and turns[-1][0] == piece.role:
            turns[-1][1].extend((b",", piece.body))
        elif piece.body:
            turns.append((piece.role, [piece.body]))
    if not turns or turns[0][0] != "user":
        turns.insert(0, ("user", [encode(_text(BEGINNING))]))
    marked = [bodies for role, bodies in turns if role == "user"][-2:] if mark else ()
    for bodies in marked:
        bodies[-1] = bodies[-1][:-1] + mark
    out = [b',"messages":[']
    for role, bodies in turns:
        out += (b'{"role":"%s","content":[' % role.encode(), *bodies, b"]},")
    return [*out[:-1], b"]}]"]


def _has_twins(pieces: Iterable[Piece]) -> bool:
    ids = [each for piece in pieces for each in piece.ids]
    return len(set(ids)) < len(ids)


def _without_space_at_end(message: Assistant) -> Assistant:
    """The last message of a request must not end with space where it is an answer."""
    *others, last = message.content or (Text(""),)
    if not isinstance(last, Text):
        return message
    return msgspec.structs.replace(message, content=(*others, Text(last.text.rstrip())))


_STOP_REASONS: Mapping[str, Stop] = {
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
        self.signed: list[str] = Growing()
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
        self._counts: dict[str, int] = {}
        self._reason = ""
        self._explanation = ""
        self._is_over = False

    def feed(self, event: ServerEvent) -> Iterable[Delta]:
        """What the event adds."""
        text = event.data.strip()
        if self._is_over or not text or text == "[DONE]":
            return ()
        data = decode_event(text)
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
        answer = self._answer.whole(_STOP_REASONS.get(self._reason, "stop"), self._usage)
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
            self._answer.limits.add_text(text)
            thought.signed.append(text)

    def _count(self, usage: object) -> None:
        found = {own: tokens(dict_of(usage).get(name)) for name, own in _USAGE.items()}
        # Numbers are totals; a 0 at the end is what a service does not know.
        self._counts |= {own: number for own, number in found.items() if number}

    def _failed(self, text: str) -> ModelError:
        error = from_response(self._endpoint.ref.provider, 200, {}, clean(text).encode())
        error.partial = self.partial()
        return error
