"""The Google Generative Language API, which Gemini models speak."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from clawkit.content import (
    Assistant,
    Block,
    Image,
    Message,
    Part,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from clawkit.models.base import Endpoint, Request
from clawkit.models.wire.declared import (
    NO_OUTPUT,
    Declared,
    call_as_text,
    result_as_text,
    safe_name,
    text_of,
)
from clawkit.models.wire.gemini import Gemini, Plan, plan
from clawkit.models.wire.google_read import GoogleDecoder, is_made
from clawkit.models.wire.shared import (
    NO_IMAGE,
    OWN_PARAMS,
    Pieces,
    as_object,
    encode,
    max_tokens_param,
    merge_params,
    summary_text,
    tokens,
)
from clawkit.schema.walk import names

SKIP_SIGNATURE = "skip_thought_signature_validator"
"""Stands for the signature of a call that another model made."""
BEGINNING = "(The conversation begins here.)"
"""What a person says where nobody has said anything."""

_CONFIG = names(
    "audioTimestamp candidateCount enableAffectiveDialog enableEnhancedCivicAnswers "
    "frequencyPenalty imageConfig logprobs maxOutputTokens mediaResolution presencePenalty "
    "responseJsonSchema responseLogprobs responseMimeType responseModalities responseSchema "
    "routingConfig seed speechConfig stopSequences temperature thinkingConfig topK topP"
)
"""Fields of `generationConfig`; other parameters stand beside it."""
_OTHER_NAMES = {"max_tokens": "maxOutputTokens", "stop": "stopSequences"}


class Piece(NamedTuple):
    """One message: its parts as JSON, without brackets."""

    role: str
    body: bytes = b""
    result: bytes = b""
    """The result of a call, which stands before everything else."""


class GoogleWire:
    """Writes requests to one model and makes decoders for its answers."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._model = str(endpoint.ref)
        self._gemini = Gemini.of(endpoint.ref.id)
        self._takes_tools = endpoint.compat.supports_tools is not False
        self._declared = Declared(endpoint, "google")
        self._pieces = Pieces(self._piece if self._takes_tools else self._flat_piece)
        self._ids: set[str] = set()
        """Ids of calls that are sent: those of their results are, too."""

    @property
    def path(self) -> str:
        """What comes after the base URL, with its query."""
        model_id = quote(self._endpoint.ref.id.removeprefix("models/"), safe="/")
        return f"/models/{model_id}:streamGenerateContent?alt=sse"

    @property
    def headers(self) -> Mapping[str, str]:
        return {}

    def decoder(self) -> GoogleDecoder:
        return GoogleDecoder(self._endpoint)

    def write(self, request: Request) -> bytes:
        """The body of the HTTP request."""
        params = [_sorted(each) for each in (self._endpoint.params, request.params)]
        planned = self._plan(request, params)
        body: dict[str, Any] = {}
        if request.system.strip():
            body["systemInstruction"] = {"parts": [{"text": request.system}]}
        tools = self._declared.of(request.tools) if self._takes_tools else b""
        if tools:
            body["tools"] = [{"functionDeclarations": msgspec.Raw(b"[" + tools + b"]")}]
        config: dict[str, Any] = {}
        if planned.config is not None:
            config["thinkingConfig"] = planned.config
        body = merge_params(body | {"generationConfig": config}, *params)
        if not isinstance(body.get("generationConfig"), dict):
            body["generationConfig"] = {}
        body["generationConfig"]["maxOutputTokens"] = self._room(request, params, planned)
        if self._endpoint.compat.supports_temperature is False:
            body["generationConfig"].pop("temperature", None)
        if not tools:
            body.pop("toolConfig", None)
        # Conversations are large: they are copied once, by one join.
        contents = _contents(self._pieces.of(request.messages))
        return b"".join((encode(body)[:-1], *contents, b"}"))

    def _plan(self, request: Request, params: Iterable[Mapping[str, Any]]) -> Plan:
        endpoint, level = self._endpoint, request.thinking
        if any("thinkingConfig" in each.get("generationConfig", ()) for each in params):
            return Plan()  # somebody said it in the API's own words
        can_think = self._gemini.can_think or (endpoint.facts.reasoning and level != "off")
        if not can_think and level not in endpoint.thinking_levels:
            return Plan()
        return plan(level, self._gemini, endpoint.compat, endpoint.thinking_levels)

    def _room(self, request: Request, params: Iterable[Mapping[str, Any]], planned: Plan) -> int:
        """Tokens of the answer, thinking included."""
        facts = self._endpoint.facts
        given = [tokens(_config_of(each).get("maxOutputTokens")) for each in params]
        own = max_tokens_param(self._endpoint.params, request.params)
        wanted = request.max_tokens or own or given[-1] or given[0]
        raised = min((wanted or facts.max_tokens) + planned.budget, facts.max_tokens)
        return min(max(wanted, raised), facts.window)

    def _piece(self, message: Message) -> Piece:
        if isinstance(message, Assistant):
            return self._answer(message)
        if isinstance(message, ToolResult):
            return self._result(message)
        if isinstance(message, Summary):
            return Piece("user", encode({"text": summary_text(message)}))
        parts = [part for block in message.content if (part := self._block(block))]
        return Piece("user", b",".join(map(encode, parts)))

    def _answer(self, message: Assistant) -> Piece:
        is_own = message.api == self._endpoint.api and message.model == self._model
        parts: list[dict[str, Any]] = []
        wants_signature = self._gemini.is_third
        for each in message.content:
            if not isinstance(each, ToolCall):
                parts += self._words(each, is_own)
                continue
            part = self._call(each, is_own)
            if wants_signature and "thoughtSignature" not in part:
                part["thoughtSignature"] = SKIP_SIGNATURE
            wants_signature = False  # the first call of an answer stands for all of them
            parts.append(part)
        return Piece("model", b",".join(map(encode, parts)))

    def _words(self, part: Text | Thinking, is_own: bool) -> list[dict[str, Any]]:
        signature = {"thoughtSignature": part.signature} if is_own and part.signature else {}
        if isinstance(part, Text):
            return [{"text": part.text} | signature] if part.text.strip() or signature else []
        if self._endpoint.compat.requires_thinking_as_text:
            return [{"text": part.text}] if part.text.strip() else []
        # Thoughts that are not signed are for people only.
        return [{"text": part.text, "thought": True} | signature] if signature else []

    def _call(self, call: ToolCall, is_own: bool) -> dict[str, Any]:
        function = {"name": safe_name(call.name), "args": as_object(call.arguments)}
        if self._gemini.is_third or (is_own and not is_made(call.id)):
            self._ids.add(call.id)
            function["id"] = call.id
        part: dict[str, Any] = {"functionCall": function}
        if is_own and call.signature:
            part["thoughtSignature"] = call.signature
        return part

    def _result(self, result: ToolResult) -> Piece:
        images = [block for block in result.content if isinstance(block, Image)]
        shown = [part for image in images if "inlineData" in (part := self._block(image) or {})]
        text = text_of(result, "" if shown else NO_IMAGE)
        if shown and text == NO_OUTPUT:
            text = "(an image)" if self._gemini.is_third else "(an image, which follows)"
        function: dict[str, Any] = {
            "name": safe_name(result.tool),
            "response": {"error" if result.is_error else "output": text},
        }
        if self._gemini.is_third or result.call_id in self._ids:
            function["id"] = result.call_id
        if self._gemini.is_third and shown:
            function["parts"] = shown
            shown = []
        written = encode({"functionResponse": function})
        return Piece("user", b",".join(map(encode, shown)), written)

    def _flat_piece(self, message: Message) -> Piece:
        """The message for a model that takes no tools: calls and their results as text."""
        if isinstance(message, ToolResult):
            return Piece("user", encode({"text": result_as_text(message)}))
        if not isinstance(message, Assistant):
            return self._piece(message)
        content: list[Part] = [
            Text(call_as_text(part)) if isinstance(part, ToolCall) else part
            for part in message.content
        ]
        return self._answer(msgspec.structs.replace(message, content=tuple(content)))

    def _block(self, block: Block) -> dict[str, Any] | None:
        if isinstance(block, Text):
            return {"text": block.text} if block.text.strip() else None
        if not self._endpoint.facts.images or not block.data:
            return {"text": NO_IMAGE}
        return {"inlineData": {"mimeType": block.mime_type, "data": block.data}}


def _contents(pieces: Iterable[Piece]) -> list[bytes]:
    """The field with the contents: one per change of role, results first in it."""
    turns: list[tuple[str, list[bytes], list[bytes]]] = []
    for role, body, result in pieces:
        if (body or result) and (not turns or turns[-1][0] != role):
            turns.append((role, [], []))
        if result:
            turns[-1][1].extend((result, b","))
        if body:
            turns[-1][2].extend((body, b","))
    if not turns or turns[0][0] != "user":
        turns.insert(0, ("user", [], [encode({"text": BEGINNING}), b","]))
    out = [b',"contents":[']
    for role, results, bodies in turns:
        out += (b'{"role":"%s","parts":[' % role.encode(), *(results + bodies)[:-1], b"]},")
    return [*out[:-1], b"]}]"]


def _sorted(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters, those that are fields of `generationConfig` moved there."""
    rest: dict[str, Any] = {}
    config = dict(_config_of(params))
    for key, value in params.items():
        name = _OTHER_NAMES.get(key) or re.sub(r"_([a-z])", lambda at: at[1].upper(), key)
        if name in _CONFIG and key not in OWN_PARAMS:
            config[name] = value
        elif key != "generationConfig":
            rest[key] = value
    return rest | {"generationConfig": config} if config else rest


def _config_of(params: Mapping[str, Any]) -> Mapping[str, Any]:
    config = params.get("generationConfig")
    return config if isinstance(config, Mapping) else {}
