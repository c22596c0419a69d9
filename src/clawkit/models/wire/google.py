"""The Google Generative Language API: thinking per model, requests, answers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from clawkit import content
from clawkit.config.sections.models import Compat
from clawkit.config.sections.shared import Thinking as Level
from clawkit.models.protocols import Delta, Endpoint, Request
from clawkit.models.wire import answer
from clawkit.models.wire import request as wire
from clawkit.schema.clean import names

_ID = r"gemini-(\d{1,2})(?:\.(\d{1,2}))?(?=-|$)"
_LATEST = r"gemini-(?:\w+-)*latest"
_WITHOUT = ("-image", "-tts", "-embedding")
BUDGETS: Mapping[str, int] = {
    "minimal": 1_024,
    "low": 4_096,
    "medium": 8_192,
    "high": 16_384,
    "xhigh": 24_576,
    "max": 32_768,
}
"""Thinking budget in tokens for each level."""
_OTHER_LEVELS = {"off": "MINIMAL", "xhigh": "HIGH", "max": "HIGH"}
"""Levels that the API does not have."""
_MOST, _MOST_OF_PRO, _LEAST_OF_PRO = 24_576, 32_768, 128


class Gemini(msgspec.Struct, frozen=True):
    """Properties of a Gemini model, derived from its id; version 0 for other models."""

    version: tuple[int, int] = (0, 0)
    is_pro: bool = False
    can_think: bool = False

    @classmethod
    def of(cls, model_id: str) -> Gemini:
        name = model_id.lower()
        version = (3, 0) if re.search(_LATEST, name) else (0, 0)
        if found := re.search(_ID, name):
            version = (int(found[1]), int(found[2] or 0))
        can_think = version >= (2, 5) and not any(each in name for each in _WITHOUT)
        return cls(version, "-pro" in name, can_think)

    @property
    def is_third(self) -> bool:
        """Third generation or later: requires signatures and ids, accepts thinking levels."""
        return self.version >= (3, 0)


class ThinkingConfig(msgspec.Struct, frozen=True):
    """The fields of a request about thinking."""

    config: dict[str, Any] | None = None
    budget: int = 0
    """Tokens of the answer that the thinking may use."""


def plan(level: Level, gemini: Gemini, compat: Compat, levels: Mapping[str, Any]) -> ThinkingConfig:
    """The `thinkingConfig` for a level. The model's own `levels` take precedence."""
    if level in levels:
        own = levels[level]
        if isinstance(own, Mapping):
            return ThinkingConfig(dict(own))
        if isinstance(own, str) and own and own != "off":
            return _shown({"thinkingLevel": own.upper()}, level)
        if isinstance(own, int | float) and not isinstance(own, bool) and own:
            return _shown({"thinkingBudget": int(own)}, level)
        level = "off"
    if gemini.is_third:
        return _shown({"thinkingLevel": _word(level, gemini, compat)}, level)
    if level == "off":
        # Pro models cannot turn thinking off.
        return ThinkingConfig({"thinkingBudget": _LEAST_OF_PRO if gemini.is_pro else 0})
    most = _MOST_OF_PRO if gemini.is_pro else _MOST
    return _shown({"thinkingBudget": min(BUDGETS[level], most)}, level)


def _shown(config: dict[str, Any], level: Level) -> ThinkingConfig:
    if level == "off":
        return ThinkingConfig(config)
    return ThinkingConfig(config | {"includeThoughts": True}, BUDGETS[level])


def _word(level: Level, gemini: Gemini, compat: Compat) -> str:
    if level in compat.reasoning_effort_map:
        return compat.reasoning_effort_map[level].upper()
    word = _OTHER_LEVELS.get(level, level.upper())
    if gemini.is_pro and word == "MINIMAL":
        return "LOW"
    # Gemini 3.0 Pro has only two levels.
    return "HIGH" if gemini.is_pro and gemini.version == (3, 0) and word == "MEDIUM" else word


SKIP_SIGNATURE = "skip_thought_signature_validator"
"""Placeholder for the signature of a call by another model."""

_CONFIG = names(
    "audioTimestamp candidateCount enableAffectiveDialog enableEnhancedCivicAnswers "
    "frequencyPenalty imageConfig logprobs maxOutputTokens mediaResolution presencePenalty "
    "responseJsonSchema responseLogprobs responseMimeType responseModalities responseSchema "
    "routingConfig seed speechConfig stopSequences temperature thinkingConfig topK topP"
)
"""Fields of `generationConfig`; other parameters are outside it."""
_OTHER_NAMES = {"max_tokens": "maxOutputTokens", "stop": "stopSequences"}


class GoogleWire(wire.ApiWire):
    FORM = "google"

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._gemini = Gemini.of(endpoint.ref.id)
        self._ids: set[str] = set()
        """Ids of calls that were sent: their results are sent with the id as well."""

    @property
    def path(self) -> str:
        model_id = quote(self._endpoint.ref.id.removeprefix("models/"), safe="/")
        return f"/models/{model_id}:streamGenerateContent?alt=sse"

    def decoder(self) -> GoogleDecoder:
        return GoogleDecoder(self._endpoint)

    def write(self, request: Request) -> bytes:
        params = [_sorted(each) for each in (self._endpoint.params, request.params)]
        level, levels = request.thinking, self._endpoint.thinking_levels
        can_think = self._gemini.can_think or (self._endpoint.facts.reasoning and level != "off")
        in_own_words = any("thinkingConfig" in each.get("generationConfig", ()) for each in params)
        planned = ThinkingConfig()
        if not in_own_words and (can_think or level in levels):
            planned = plan(level, self._gemini, self._endpoint.compat, levels)
        body: dict[str, Any] = {}
        if request.system.strip():
            body["systemInstruction"] = {"parts": [{"text": request.system}]}
        tools = self._declarations(request.tools)
        if tools:
            body["tools"] = [{"functionDeclarations": msgspec.Raw(b"[" + tools + b"]")}]
        thinking = {} if planned.config is None else {"thinkingConfig": planned.config}
        body = wire.merge_params(body | {"generationConfig": thinking}, *params)
        config = body["generationConfig"] = answer.dict_of(body.get("generationConfig"))
        given = [wire.tokens(_config_of(each).get("maxOutputTokens")) for each in params]
        own = wire.max_tokens_param(self._endpoint.params, request.params)
        limit = request.max_tokens or own or given[-1] or given[0]
        config["maxOutputTokens"] = self._room(limit, planned.budget)
        if self._endpoint.compat.supports_temperature is False:
            config.pop("temperature", None)
        if not tools:
            body.pop("toolConfig", None)
        pieces = self._pieces.of(request.messages)
        return wire.write_turns(body, ("contents", "parts"), pieces, {"text": wire.BEGINNING})

    def _piece(self, message: content.Message) -> wire.Piece:
        if isinstance(message, content.Assistant):
            is_own = self._is_own(message)
            parts: list[dict[str, Any]] = []
            wants_signature = self._gemini.is_third
            for each in message.content:
                if not isinstance(each, content.ToolCall):
                    parts += self._words(each, is_own)
                    continue
                part = self._call(each, is_own)
                if wants_signature and "thoughtSignature" not in part:
                    part["thoughtSignature"] = SKIP_SIGNATURE
                wants_signature = False  # only the first call of an answer needs one
                parts.append(part)
            return wire.Piece("model", b",".join(map(wire.encode, parts)))
        if isinstance(message, content.ToolResult):
            images = [
                self._block(block) for block in message.content if isinstance(block, content.Image)
            ]
            shown = [part for part in images if "inlineData" in part]
            text = wire.text_of(message, "" if shown else wire.NO_IMAGE)
            if shown and text == wire.NO_OUTPUT:
                text = "(an image)" if self._gemini.is_third else "(an image, which follows)"
            function: dict[str, Any] = {
                "name": wire.safe_name(message.tool),
                "response": {"error" if message.is_error else "output": text},
            }
            if self._gemini.is_third or message.call_id in self._ids:
                function["id"] = message.call_id
            if self._gemini.is_third and shown:
                function["parts"] = shown
                shown = []
            written = wire.encode({"functionResponse": function})
            return wire.Piece("user", b",".join(map(wire.encode, shown)), written)
        return wire.Piece(
            "user", b",".join(wire.encode(self._block(each)) for each in wire.blocks_of(message))
        )

    def _words(self, part: content.Text | content.Thinking, is_own: bool) -> list[dict[str, Any]]:
        signature = {"thoughtSignature": part.signature} if is_own and part.signature else {}
        if isinstance(part, content.Text):
            return [{"text": part.text} | signature] if part.text.strip() or signature else []
        if self._endpoint.compat.requires_thinking_as_text:
            return [{"text": part.text}] if part.text.strip() else []
        # Unsigned thinking is only for people.
        return [{"text": part.text, "thought": True} | signature] if signature else []

    def _call(self, call: content.ToolCall, is_own: bool) -> dict[str, Any]:
        function = {"name": wire.safe_name(call.name), "args": wire.as_object(call.arguments)}
        if self._gemini.is_third or (is_own and not call.id.startswith(MADE)):
            self._ids.add(call.id)
            function["id"] = call.id
        part: dict[str, Any] = {"functionCall": function}
        if is_own and call.signature:
            part["thoughtSignature"] = call.signature
        return part

    def _block(self, block: content.Block) -> dict[str, Any]:
        if isinstance(block, content.Text):
            return {"text": block.text}
        if not self._endpoint.facts.images or not block.data:
            return {"text": wire.NO_IMAGE}
        return {"inlineData": {"mimeType": block.mime_type, "data": block.data}}


def _sorted(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters, with fields of `generationConfig` moved there."""
    rest: dict[str, Any] = {}
    config = dict(_config_of(params))
    for key, value in params.items():
        name = _OTHER_NAMES.get(key) or re.sub(r"_([a-z])", lambda at: at[1].upper(), key)
        if name in _CONFIG and key not in wire.OWN_PARAMS:
            config[name] = value
        elif key != "generationConfig":
            rest[key] = value
    return rest | {"generationConfig": config} if config else rest


def _config_of(params: Mapping[str, Any]) -> Mapping[str, Any]:
    config = params.get("generationConfig")
    return config if isinstance(config, Mapping) else {}


_REFUSALS = names(
    "SAFETY RECITATION LANGUAGE BLOCKLIST PROHIBITED_CONTENT SPII IMAGE_SAFETY "
    "IMAGE_PROHIBITED_CONTENT IMAGE_RECITATION MODEL_ARMOR"
)
_BROKEN: Mapping[str, str] = {
    "MALFORMED_FUNCTION_CALL": "it wrote an invalid call",
    "MALFORMED_RESPONSE": "it is malformed",
    "MISSING_THOUGHT_SIGNATURE": "a signature of earlier thinking is missing",
    "TOO_MANY_TOOL_CALLS": "it wrote too many calls",
    "UNEXPECTED_TOOL_CALL": "it called a tool although none was offered",
}
MADE = "gc_"
"""Prefix of ids for calls without an id from the API."""


class GoogleDecoder(answer.AnswerDecoder):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._reason = ""
        self._message = ""

    def _events(self, data: Any) -> list[dict[str, Any]]:
        # A list of the events, or one answer.
        chunks = data if isinstance(data, list) else [data]
        are_objects = all(isinstance(each, dict) for each in chunks)
        return chunks if are_objects and any("candidates" in each for each in chunks) else []

    def _read(self, data: dict[str, Any], name: str) -> Iterable[Delta]:
        if data.get("error"):
            raise self._failure(data)
        self._count(answer.dict_of(data.get("usageMetadata")))
        blocked = answer.str_of(answer.dict_of(data.get("promptFeedback")).get("blockReason"))
        if blocked and blocked != "BLOCKED_REASON_UNSPECIFIED":
            self._stop, self._is_refused = "refusal", True
            self._explanation = f"the request was blocked: {answer.said(blocked)}"
        candidate = answer.dict_of(next(iter(answer.list_of(data.get("candidates"))), None))
        parts = answer.list_of(answer.dict_of(candidate.get("content")).get("parts"))
        deltas = [delta for part in parts for delta in self._part(answer.dict_of(part))]
        if reason := answer.str_of(candidate.get("finishReason")):
            self._reason = reason
            is_cut = reason == "MAX_TOKENS"
            self._stop = "refusal" if reason in _REFUSALS else "length" if is_cut else "stop"
        self._message = answer.said(candidate.get("finishMessage")) or self._message
        return deltas

    def _finish(self, stop: content.Stop) -> content.Assistant:
        """Raises "malformed" if the model failed to write an answer."""
        self._explanation = (
            self._explanation or f"the answer was blocked: {self._message or self._reason}"
        )
        whole = super()._finish(stop)
        why = _BROKEN.get(self._reason, "")
        if not whole.content and self._reason not in ("STOP", "MAX_TOKENS"):
            why = why or f"it ended for the reason {answer.said(self._reason)!r}"
        if stop != "refusal" and why and not whole.calls:
            raise answer.malformed(f"{why}: {self._message}" if self._message else why)
        return whole

    def _part(self, part: Mapping[str, Any]) -> Iterable[Delta]:
        signature = answer.str_of(part.get("thoughtSignature"))
        self.count(signature)
        function = part.get("functionCall")
        if isinstance(function, dict):
            return self._call(function, signature)
        text = part.get("text")
        if not isinstance(text, str) or not (text or signature):
            return ()
        kind: answer.Kind = "thinking" if part.get("thought") is True else "text"
        if not self.parts or self.parts[-1].kind != kind or self.parts[-1].is_closed:
            self._close()
            self.begin(kind)
        words = self.parts[-1]
        deltas = self.add(words, text)
        if signature:
            words.signed = [signature]
            if kind == "text" and not words.pieces:
                words.pieces.append("")  # an empty text with a signature
            self._close()
        return deltas

    def _close(self) -> None:
        if self.parts:
            self.parts[-1].is_closed = True

    def _call(self, function: Mapping[str, Any], signature: str) -> Iterable[Delta]:
        self._close()
        given = answer.str_of(function.get("id")) or f"{MADE}{os.urandom(12).hex()}"
        call = self.call(given, function.get("name"))
        call.signed = [signature]
        deltas = [*self.tell(call), *self.add(call, answer.arguments_text(function.get("args")))]
        call.is_closed = True
        return deltas

    def _count(self, usage: Mapping[str, Any]) -> None:
        if not usage:
            return
        cached = wire.tokens(usage.get("cachedContentTokenCount"))
        sent = wire.tokens(usage.get("promptTokenCount")) + wire.tokens(
            usage.get("toolUsePromptTokenCount")
        )
        received = wire.tokens(usage.get("candidatesTokenCount"))
        received += wire.tokens(usage.get("thoughtsTokenCount"))
        self._usage = content.Usage(max(0, sent - cached), received, cached)
