"""What both OpenAI APIs have in common when a conversation is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from clawkit.content import Assistant, Image, Summary, Text, ToolCall, User
from clawkit.models.base import Endpoint, Request
from clawkit.models.wire.declared import safe_name
from clawkit.models.wire.shared import (
    as_object,
    encode,
    max_tokens_param,
    merge_params,
    room_for_answer,
    summary_text,
)

IMAGE_FOLLOWS = "[an image, which follows]"
RESULT_IMAGES = "[images of the results above]"
BRIDGE = encode({"role": "assistant", "content": "[results received]"})
_MAX_NAME = 64
_SAMPLING = ("temperature", "top_p")
_LIMITS = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens"})
"""How the limit of an answer is called in the words of the APIs."""
_ABOUT_TOOLS = ("tool_choice", "parallel_tool_calls")


class Piece(NamedTuple):
    """A message as it is sent."""

    kind: Literal["user", "assistant", "result"]
    body: bytes
    """One item or more with commas between them; empty for a message that is not sent."""
    after: bytes = b""
    """What the user has to say once all results that stand together are given."""


def arrange(pieces: Sequence[Piece], *, bridge: bool) -> list[bytes]:
    """The items in the order in which they are sent.

    With `bridge`, a message of the assistant stands between results and what a user says next.
    """
    out: list[bytes] = []
    waiting: list[bytes] = []
    after_result = False
    for kind, body, after in pieces:
        if not body:
            continue
        if after_result and kind != "result":
            if bridge and (waiting or kind == "user"):
                out.append(BRIDGE)
            out += waiting
            waiting = []
        out.append(body)
        if after:
            waiting.append(after)
        after_result = kind == "result"
    if waiting and bridge:
        out.append(BRIDGE)
    return out + waiting


def blocks_of(message: User | Summary) -> list[Text | Image]:
    """What a message holds for the model; services refuse empty texts."""
    if isinstance(message, Summary):
        return [Text(summary_text(message))]
    return [each for each in message.content if isinstance(each, Image) or each.text.strip()]


def images_of(blocks: Iterable[Text | Image]) -> list[Image]:
    return [block for block in blocks if isinstance(block, Image)]


def is_own(message: Assistant, endpoint: Endpoint) -> bool:
    """Whether the same model said this through the same API: only then its signatures hold."""
    return message.api == endpoint.api and message.model == str(endpoint.ref)


def function_of(call: ToolCall) -> dict[str, str]:
    """Name and arguments of a call of earlier, as every service takes them."""
    return {
        "name": name_of(call.name),
        "arguments": encode(as_object(call.arguments)).decode(),
    }


def name_of(name: str) -> str:
    """A tool's name, also one that a model made up, as every service takes it."""
    return safe_name(name)[:_MAX_NAME]


def max_tokens(request: Request, endpoint: Endpoint, items: list[bytes]) -> int | None:
    """The limit of the answer, where one is set. That of a model is not more than there is room
    for beside the conversation."""
    given = max_tokens_param(endpoint.params, request.params)
    given = given if request.max_tokens is None else request.max_tokens
    in_own_words = _LIMITS & {*endpoint.params, *request.params}
    if given is not None or in_own_words or not endpoint.facts.is_capped:
        return given
    # What pictures take has nothing to do with their size.
    size = sum(len(item) for item in items if b";base64," not in item)
    return min(endpoint.facts.max_tokens, room_for_answer(request, endpoint.facts, size))


def join_body(
    name: str,
    items: list[bytes],
    tools: bytes,
    fields: dict[str, Any],
    request: Request,
    endpoint: Endpoint,
) -> bytes:
    """The whole request: the conversation under `name`, tools, and fields with parameters."""
    merge_params(fields, endpoint.params, request.params)
    unwanted = () if endpoint.compat.supports_temperature is not False else _SAMPLING
    for key in (*unwanted, *(() if tools else _ABOUT_TOOLS)):
        fields.pop(key, None)
    if endpoint.compat.supports_json_schema_response_format is False:
        form = fields.get("response_format")
        if isinstance(form, dict) and form.get("type") == "json_schema":
            del fields["response_format"]
    fields["stream"] = True
    start = b'{"%s":[' % name.encode()
    end = b"]," + (b'"tools":%s,' % tools if tools else b"") + encode(fields)[1:]
    if not items:
        return start + end
    # Conversations are large: they are copied once, by one join.
    items[0] = start + items[0]
    items[-1] += end
    return b",".join(items)
