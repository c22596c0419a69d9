"""The Anthropic Messages API: thinking per model, requests, answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from clawkit import content
from clawkit.config.sections.models import Compat
from clawkit.config.sections.shared import Thinking as Level
from clawkit.models.protocols import Delta, Endpoint, Request
from clawkit.models.wire import answer
from clawkit.models.wire import request as wire

VERSION = "2023-06-01"

_ID = r"claude-(?:([a-z]+)-)?(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?(?:-([a-z]+))?"
_ALWAYS_THINK = frozenset({"fable", "mythos"})
BUDGETS: Mapping[str, int] = {
    "minimal": 1_024,
    "low": 4_096,
    "medium": 8_192,
    "high": 16_384,
    "xhigh": 32_768,
    "max": 65_536,
}
"""Thinking budget in tokens for each level."""
_LEAST_BUDGET = 1_024
_INTERLEAVED = "interleaved-thinking-2025-05-14"
_BINDING = "thinking-binding-controls-2026-08-01"
_IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_SAFE_ID = r"[a-zA-Z0-9_-]{1,64}"
_MAX_ID = 64
_MINIMAX_FAST = {"MiniMax-M2.7": "MiniMax-M2.7-highspeed"}


class Claude(msgspec.Struct, frozen=True):
    """Properties of a Claude model, derived from its id; all false for other models."""

    family: str = ""
    version: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, model_id: str) -> Claude:
        name = model_id.lower()
        if found := re.search(_ID, name):
            family = found[1] or found[4] or ""
            return cls(family, (int(found[2]), int(found[3] or 0)))
        return cls("mythos", (4, 6)) if "claude-mythos" in name else cls()

    @property
    def is_adaptive(self) -> bool:
        """Decides itself how long to think, and accepts an effort instead of a budget."""
        return self.version >= (4, 6)

    @property
    def is_bound(self) -> bool:
        """Rejects its earlier thinking if anything before that has changed."""
        return self.version >= (5, 1)

    @property
    def is_new(self) -> bool:
        """Accepts no temperature, has one more effort, and shows its thinking only on request."""
        return self.version >= (4, 7)

    @property
    def off(self) -> ThinkingPlan:
        """How to turn thinking off, as far as possible."""
        if self.family in _ALWAYS_THINK or (self.family == "opus" and self.version >= (5, 5)):
            # It cannot be turned off: use the lowest effort, and do not show the thinking.
            return ThinkingPlan({"type": "adaptive"}, "low")
        if self.version < (5, 0):
            return ThinkingPlan()
        is_sonnet = self.family == "sonnet" and self.version >= (5, 5)
        return ThinkingPlan({"type": "between_tools" if is_sonnet else "disabled"})

    def adaptive(self, effort: str, room: int) -> ThinkingPlan:
        is_hidden = self.is_new or self.family == "mythos"
        display = {"display": "summarized"} if is_hidden else {}
        return ThinkingPlan({"type": "adaptive"} | display, effort, room)


class ThinkingPlan(msgspec.Struct, frozen=True):
    """The fields of a request about thinking."""

    thinking: dict[str, Any] | None = None
    effort: str = ""
    budget: int = 0
    """Tokens of the answer that the thinking may use."""

    @property
    def is_on(self) -> bool:
        return self.thinking is not None and self.thinking.get("type") in ("enabled", "adaptive")


def plan(level: Level, claude: Claude, compat: Compat, levels: Mapping[str, Any]) -> ThinkingPlan:
    """The fields for a level. The model's own `levels` take precedence."""
    own = levels.get(level)
    if isinstance(own, Mapping):
        return ThinkingPlan(dict(own))
    if isinstance(own, str) and own and own != "off":
        return claude.adaptive(own, BUDGETS.get(level, 0))
    if isinstance(own, int | float) and own >= _LEAST_BUDGET:
        budget = int(own)
    elif level == "off" or level in levels:
        return claude.off
    elif claude.is_adaptive:
        return claude.adaptive(_effort(level, claude, compat), BUDGETS[level])
    else:
        budget = BUDGETS[level]
    return ThinkingPlan({"type": "enabled", "budget_tokens": budget}, budget=budget)


def _effort(level: Level, claude: Claude, compat: Compat) -> str:
    if compat.supports_reasoning_effort is False:
        return ""
    if level in compat.reasoning_effort_map:
        return compat.reasoning_effort_map[level]
    usual = wire.EFFORTS[1:] if claude.is_new else ("low", "medium", "high", "max")
    return wire.nearest_effort(level, compat.supported_reasoning_efforts or usual) or ""


class AnthropicWire(wire.ApiWire):
    FORM = "anthropic"

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._claude = Claude.of(endpoint.ref.id)
        self._is_binding = self._claude.is_bound and endpoint.is_native
        self._is_minimax = endpoint.ref.provider.startswith("minimax") or bool(
            re.match(r"https?://api\.minimaxi?\.", endpoint.base_url)
        )
        self._pieces = wire.Pieces(self._piece)
        self._without_thinking = wire.Pieces(lambda each: self._piece(each, with_thinking=False))
        self._flat = wire.Pieces(lambda each: self._piece(wire.flat(each), with_thinking=False))

    @property
    def path(self) -> str:
        has_version = self._endpoint.base_url.rstrip("/").endswith("/v1")
        return "/messages" if has_version else "/v1/messages"

    @property
    def headers(self) -> Mapping[str, str]:
        headers = {"anthropic-version": VERSION}
        if self._is_binding:
            headers["anthropic-beta"] = _BINDING
        elif self._claude.version >= (4, 0) and not self._claude.is_adaptive:
            # Thinking between calls; ignored if thinking is off.
            headers["anthropic-beta"] = _INTERLEAVED
        return headers

    def decoder(self) -> AnthropicDecoder:
        return AnthropicDecoder(self._endpoint)

    def write(self, request: Request) -> bytes:
        endpoint, tools = self._endpoint, self._declarations(request.tools)
        given = {**endpoint.params, **request.params}
        fields = wire.merge_params({}, endpoint.params, request.params)
        planned = self._plan(request, fields, is_given="thinking" in given)
        pieces = self._pieces_of(request.messages, planned, is_flat=not tools)
        size = sum(len(piece.body) - piece.images for piece in pieces)
        left = wire.room_for_answer(
            request, endpoint.facts, size + len(tools) + len(request.system)
        )
        limit = (
            request.max_tokens
            or wire.max_tokens_param(given)
            or wire.tokens(fields.get("max_tokens"))
        )
        room = min(self._room(limit, planned.budget), left)
        planned = _fitted(planned, room)
        mark = self._mark(given)
        model_id = endpoint.ref.id
        if self._is_minimax and given.get("fastMode", given.get("fast_mode")) is True:
            model_id = _MINIMAX_FAST.get(model_id, model_id)
        body: dict[str, Any] = {"model": model_id, "stream": True}
        if request.system.strip():
            body["system"] = _raw(wire.encode(_text(request.system)), mark)
        if tools:
            body["tools"] = _raw(tools, mark)
        if planned.effort:
            body["output_config"] = {"effort": planned.effort}
        wire.merge_params(body, endpoint.params, request.params)
        body["max_tokens"] = room
        # Remove fields that conflict with thinking, with having no tools, or with this model.
        has_tools = bool(tools)
        body["thinking"] = planned.thinking
        supports = self._endpoint.compat.supports_temperature
        takes = not self._claude.is_new if supports is None else supports
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
        return wire.write_turns(body, ("messages", "content"), pieces, _text(wire.BEGINNING), mark)

    def _plan(self, request: Request, fields: Mapping[str, Any], *, is_given: bool) -> ThinkingPlan:
        endpoint, level = self._endpoint, request.thinking
        can_think = endpoint.facts.reasoning or self._claude.is_adaptive
        if is_given or "thinking" in fields:
            # Configured explicitly, in the format of the API.
            own = answer.dict_of(fields.get("thinking"))
            planned = ThinkingPlan(dict(own) or None, budget=wire.tokens(own.get("budget_tokens")))
        elif level in endpoint.thinking_levels or (can_think and level != "off"):
            planned = plan(level, self._claude, endpoint.compat, endpoint.thinking_levels)
        elif self._is_minimax and level == "off":
            planned = ThinkingPlan({"type": "disabled"})
        else:
            planned = self._claude.off
        if self._is_binding and planned.is_on and planned.thinking is not None:
            # Compaction, a new system prompt and new tools change the text before the thinking.
            binding = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}
            return replace(planned, thinking=binding | planned.thinking)
        return planned

    def _mark(self, cache_control: Mapping[str, Any]) -> bytes:
        """The cache mark that ends a block: the request is cached up to there."""
        retention = cache_control.get("cacheRetention", cache_control.get("cache_retention"))
        if retention == "none":
            return b""
        supports = self._endpoint.compat.supports_long_cache_retention
        is_long = self._endpoint.is_native if supports is None else supports
        ttl = b',"ttl":"1h"' if retention == "long" and is_long else b""
        return b',"cache_control":{"type":"ephemeral"' + ttl + b"}}"

    def _pieces_of(
        self, messages: Sequence[content.Message], planned: ThinkingPlan, *, is_flat: bool
    ) -> list[wire.Piece]:
        pieces = self._pieces
        if is_flat:
            # Calls are rejected in a request without tools.
            pieces = self._flat
        elif self._claude.is_bound and planned.thinking is not None and not planned.is_on:
            # Even with thinking off, the API validates earlier thinking, so leave it out.
            pieces = self._without_thinking
        made = pieces.of(messages)
        if messages and isinstance(last := messages[-1], content.Assistant):
            made[-1] = pieces.make(_without_space_at_end(last))
        ids = [each for piece in made for each in piece.ids]
        if len(set(ids)) == len(ids):
            return made
        make = self._without_thinking.make if self._claude.is_bound else self._pieces.make
        return [make(message) for message in _with_own_ids(messages)]

    def _piece(self, message: content.Message, *, with_thinking: bool = True) -> wire.Piece:
        if isinstance(message, content.Assistant):
            return self._answer(message, with_thinking)
        blocks = wire.blocks_of(message)
        images = sum(len(block.data) for block in blocks if isinstance(block, content.Image))
        sent = [self._block(block) for block in blocks]
        if isinstance(message, content.ToolResult):
            result = {
                "type": "tool_result",
                "tool_use_id": safe_id(message.call_id),
                "content": sent or [_text(wire.NO_OUTPUT)],
            }
            sent = [result | {"is_error": True} if message.is_error else result]
        return wire.Piece("user", b",".join(map(wire.encode, sent)), images=images)

    def _answer(self, message: content.Assistant, with_thinking: bool) -> wire.Piece:
        keeps_thinking = with_thinking and self._is_own(message)
        blocks: list[dict[str, Any]] = []
        for part in message.content:
            if isinstance(part, content.Text):
                blocks += [_text(part.text)] if part.text.strip() else []
            elif isinstance(part, content.ToolCall):
                call = {
                    "type": "tool_use",
                    "id": safe_id(part.id),
                    "name": wire.safe_name(part.name),
                    "input": wire.as_object(part.arguments),
                }
                blocks.append(call)
            elif block := self._thought(part, keeps_thinking):
                blocks.append(block)
        while blocks and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
            blocks.pop()  # an answer that ends with thinking is rejected
        ids = tuple(block["id"] for block in blocks if block["type"] == "tool_use")
        return wire.Piece("assistant", b",".join(map(wire.encode, blocks)), ids=ids)

    def _thought(self, part: content.Thinking, is_kept: bool) -> dict[str, Any] | None:
        if self._endpoint.compat.requires_thinking_as_text:
            return _text(part.text) if part.text.strip() else None
        if not is_kept:
            return None
        if part.hidden:
            return {"type": "redacted_thinking", "data": part.signature}
        if not part.signature and self._endpoint.is_native:
            return None  # unsigned thinking is incomplete
        return {"type": "thinking", "thinking": part.text, "signature": part.signature}

    def _block(self, block: content.Block) -> dict[str, Any]:
        if isinstance(block, content.Text):
            return _text(block.text)
        if not self._endpoint.facts.images or not block.data:
            return _text(wire.NO_IMAGE)
        kind = block.mime_type.lower().replace("image/jpg", "image/jpeg")
        if kind not in _IMAGE_TYPES:
            return _text(f"[an image was left out: it is neither JPEG, PNG, GIF nor WebP: {kind}]")
        source = {"type": "base64", "media_type": kind, "data": block.data}
        return {"type": "image", "source": source}


def _fitted(planned: ThinkingPlan, room: int) -> ThinkingPlan:
    """The plan with a budget that leaves tokens for the answer."""
    budget = wire.tokens(answer.dict_of(planned.thinking).get("budget_tokens"))
    if not budget:
        return planned
    budget = min(budget, room - room // 4)
    if budget < _LEAST_BUDGET:
        return ThinkingPlan()
    return replace(planned, thinking=answer.dict_of(planned.thinking) | {"budget_tokens": budget})


def _with_own_ids(messages: Iterable[content.Message]) -> Iterable[content.Message]:
    """The messages with unique call ids: some providers restart at 0 for each answer."""
    used: set[str] = set()
    names: dict[str, str] = {}
    for message in messages:
        if isinstance(message, content.Assistant):
            names = {}
            for call in message.calls:
                name, number = safe_id(call.id), 1
                while name in used:
                    number += 1
                    name = safe_id(f"{call.id}:{number}")
                used.add(name)
                names[call.id] = name
            parts = [
                replace(part, id=names[part.id]) if isinstance(part, content.ToolCall) else part
                for part in message.content
            ]
            yield replace(message, content=tuple(parts))
        elif isinstance(message, content.ToolResult):
            yield replace(message, call_id=names.get(message.call_id, message.call_id))
        else:
            yield message


def safe_id(text: str) -> str:
    """A stable call id that the API accepts."""
    return text if re.fullmatch(_SAFE_ID, text) else wire.short_id(text, _MAX_ID)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _raw(body: bytes, mark: bytes) -> msgspec.Raw:
    """Blocks as a JSON list, the last one marked."""
    return msgspec.Raw(b"[" + (body[:-1] + mark if mark else body) + b"]")


def _without_space_at_end(message: content.Assistant) -> content.Assistant:
    """Strip trailing space, which an answer at the end of a request must not have."""
    *others, last = message.content or (content.Text(""),)
    if not isinstance(last, content.Text):
        return message
    return replace(message, content=(*others, content.Text(last.text.rstrip())))


_STOP_REASONS: Mapping[str, content.Stop] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
_MAX_OPEN = 1_000
"""Maximum number of blocks open at the same time."""
_USAGE: Mapping[str, str] = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cache_read_input_tokens": "cache_read",
    "cache_creation_input_tokens": "cache_write",
}


class AnthropicDecoder(answer.AnswerDecoder):
    """Assembles one answer. A missing or reused index is resolved by the order of events."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._open: dict[int, answer.AnswerPart | None] = {}
        """Open blocks by index; None for blocks of unknown types."""
        self._complete_calls: set[int] = set()
        """Calls that started with complete arguments."""
        self._counts: dict[str, int] = {}

    def _events(self, data: Any) -> list[dict[str, Any]]:
        message = answer.dict_of(data)
        blocks = message.get("content")
        if message.get("type") != "message" or not isinstance(blocks, list):
            return []
        events: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
        for index, block in enumerate(blocks):
            start = {"type": "content_block_start", "index": index, "content_block": block}
            events += [start, {"type": "content_block_stop", "index": index}]
        delta = {"type": "message_delta", "delta": message, "usage": message.get("usage")}
        return [*events, delta, {"type": "message_stop"}]

    def _read(self, data: dict[str, Any], name: str) -> Iterable[Delta]:
        name, index = answer.str_of(data.get("type")) or name, data.get("index")
        match name:
            case "message_start":
                self._count(answer.dict_of(data.get("message")).get("usage"))
            case "content_block_start":
                return self._start(index, answer.dict_of(data.get("content_block")))
            case "content_block_delta":
                return self._delta(index, answer.dict_of(data.get("delta")))
            case "content_block_stop":
                self._close(self._block_index(index))
            case "message_delta":
                delta = answer.dict_of(data.get("delta"))
                if reason := answer.str_of(delta.get("stop_reason")):
                    self._stop = _STOP_REASONS.get(reason, "stop")
                explanation = answer.dict_of(delta.get("stop_details")).get("explanation")
                self._explanation = answer.said(explanation) or self._explanation
                self._count(data.get("usage"))
            case "message_stop":
                self._stop = self._stop or "stop"
                self._is_over = True
            case _ if name == "error" or data.get("error"):
                raise self._failure(data)
        return ()

    def _start(self, index: object, block: Mapping[str, Any]) -> Iterable[Delta]:
        match block.get("type"):
            case "text":
                return self.add(self._begin(index, "text"), answer.str_of(block.get("text")))
            case "thinking":
                thought = self._begin(index, "thinking")
                self._sign(thought, block.get("signature"))
                return self.add(thought, answer.str_of(block.get("thinking")))
            case "redacted_thinking":
                self._sign(self._begin(index, "thinking", is_hidden=True), block.get("data"))
            case "tool_use":
                place = self._free(index)
                call = self._open[place] = self.call(block.get("id"), block.get("name"))
                deltas = [*self.tell(call)]
                if given := block.get("input"):
                    self._complete_calls.add(call.number)
                    deltas += self.add(call, answer.arguments_text(given))
                return deltas
            case _:
                self._open[self._free(index)] = None
        return ()

    def _delta(self, index: object, delta: Mapping[str, Any]) -> Iterable[Delta]:
        match delta.get("type"):
            case "text_delta":
                words = self._words(index, "text")
                return self.add(words, answer.str_of(delta.get("text"))) if words else ()
            case "thinking_delta":
                words = self._words(index, "thinking")
                return self.add(words, answer.str_of(delta.get("thinking"))) if words else ()
            case "signature_delta":
                if words := self._words(index, "thinking"):
                    self._sign(words, delta.get("signature"))
            case "input_json_delta":
                call = self._open.get(self._block_index(index))
                if call is not None and call.kind == "call":
                    text = answer.arguments_text(delta.get("partial_json"))
                    if text and call.number in self._complete_calls:
                        # The arguments are sent again, in pieces.
                        self._complete_calls.discard(call.number)
                        call.pieces.clear()
                    return self.add(call, text)
        return ()

    def _free(self, index: object) -> int:
        """The index for a new block; closes a block that is still open there."""
        if len(self._open) >= _MAX_OPEN:
            raise answer.malformed(f"its answer has more than {_MAX_OPEN:,} open parts")
        place = index if isinstance(index, int) else max(self._open, default=-1) + 1
        self._close(place)
        return place

    def _block_index(self, index: object) -> int:
        return index if isinstance(index, int) else next(reversed(self._open), -1)

    def _begin(
        self, index: object, kind: answer.Kind, *, is_hidden: bool = False
    ) -> answer.AnswerPart:
        place = self._free(index)
        part = self._open[place] = self.begin(kind, is_hidden=is_hidden)
        return part

    def _words(self, index: object, kind: answer.Kind) -> answer.AnswerPart | None:
        """The open block of that kind, or a new one; None if the block is ignored."""
        place = self._block_index(index)
        found = self._open.get(place)
        if found is None and place in self._open:
            return None
        return found if found and found.kind == kind else self._begin(index, kind)

    def _close(self, index: int) -> None:
        if part := self._open.pop(index, None):
            part.is_closed = True

    def _sign(self, thought: answer.AnswerPart, signature: object) -> None:
        if text := answer.str_of(signature):
            self.count(text)
            thought.signed.append(text)

    def _count(self, usage: object) -> None:
        found = {own: wire.tokens(answer.dict_of(usage).get(name)) for name, own in _USAGE.items()}
        # Counts are totals; a final 0 means that the server does not know.
        self._counts |= {own: number for own, number in found.items() if number}
        self._usage = content.Usage(**self._counts)
