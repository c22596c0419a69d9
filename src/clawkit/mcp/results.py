"""Converts the answer of a server to a call's result: text marked as untrusted, images, and a line
for any other block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from clawkit.content import Block, Image, Text
from clawkit.core.result import Result
from clawkit.external import wrap_external
from clawkit.mcp.connected_server import read_answer
from clawkit.mcp.definitions import clean_text
from clawkit.text import cut, human_size, one_line

MAX_BLOCKS = 200
MAX_CHARS = 400_000
"""Maximum characters of all texts; the model gets less, depending on its window."""
MAX_IMAGES = 8
MAX_IMAGE = 5 * 1024 * 1024
"""Maximum base64 characters of an image."""
MAX_STRUCTURED = 64 * 1024


class _Resource(Struct, rename="camel"):
    uri: str = ""
    mime_type: str = ""
    text: str | None = None
    blob: str = ""


class _Block(Struct, rename="camel"):
    type: str
    text: str = ""
    data: str = ""
    mime_type: str = ""
    uri: str = ""
    name: str = ""
    description: str = ""
    resource: _Resource | None = None


class _PromptMessage(Struct):
    role: str
    content: _Block | list[_Block]


class _Answer(Struct, rename="camel"):
    """The answer to `tools/call`, `resources/read` or `prompts/get`."""

    content: list[_Block] = []
    contents: list[_Resource] = []
    messages: list[_PromptMessage] = []
    structured_content: Any = None
    is_error: bool = False


def of_request(raw: Raw, server: str, kind: str, of: str) -> Result:
    """The result of a request about a `tool`, a `uri` or a `prompt`. Raises `ServerError` for an
    invalid answer."""
    answer = read_answer(raw, _Answer)
    details: dict[str, Any] = {"server": server, kind: one_line(of, 500)}
    parts = [("", each) for each in answer.content]
    parts += [("", _Block("resource", resource=each)) for each in answer.contents]
    for said in answer.messages:
        blocks = said.content if isinstance(said.content, list) else [said.content]
        parts += [(f"{one_line(said.role, 20)}: ", each) for each in blocks]
    texts: list[str] = []
    images: list[Image] = []
    for prefix, block in parts[:MAX_BLOCKS]:
        if isinstance(shown := _shown(block), Image):
            images.append(shown)
        else:
            texts.append(prefix + shown)
    if len(parts) > MAX_BLOCKS:
        texts.append(f"[{len(parts) - MAX_BLOCKS} more blocks were left out]")
    if answer.structured_content is not None:
        encoded = msgspec.json.encode(answer.structured_content)
        if len(encoded) <= MAX_STRUCTURED:
            details["structuredContent"] = answer.structured_content
        if not texts:
            texts.append(encoded.decode())
    if answer.is_error:
        words = one_line(clean_text("\n".join(texts), 2_000), 500, whole_words=True)
        details |= {"status": "error", "error": words or "the tool failed"}
    return _join(server, of, texts, images, details)


def of_list(entries: Iterable[Raw], server: str, kind: str) -> Result:
    """The entries of a list as JSON, one per line."""
    lines = [bytes(each).decode("utf-8", "replace") for each in entries]
    return _join(server, kind, lines, (), {"server": server, "count": len(lines)})


def _join(
    server: str, of: str, texts: Sequence[str], images: Sequence[Image], details: dict[str, Any]
) -> Result:
    blocks: list[Block] = []
    if texts:
        source = f"MCP server {server}, {one_line(of, 80)}"
        blocks.append(Text(wrap_external(cut("\n".join(texts), MAX_CHARS), source)))
    blocks += images[:MAX_IMAGES]
    if len(images) > MAX_IMAGES:
        blocks.append(Text(f"[{len(images) - MAX_IMAGES} more images were left out]"))
    return Result(tuple(blocks) or (Text("(no content)"),), details)


def _shown(block: _Block) -> str | Image:
    kind = one_line(block.mime_type, 60) or "unknown type"
    match block.type:
        case "text":
            return block.text
        case "image" if len(block.data) <= MAX_IMAGE:
            return Image(block.data, block.mime_type)
        case "resource_link":
            about = f"{one_line(block.name, 100)}: {one_line(block.description, 200)}".strip(": ")
            return f"[resource {one_line(block.uri, 500)} ({kind}) {about}]"
        case "resource" if (found := block.resource) is not None:
            if found.text is not None:
                return f"[resource {one_line(found.uri, 500)}]\n{found.text}"
            is_image = found.mime_type.startswith("image/")
            inner = _Block("image" if is_image else "blob", "", found.blob, found.mime_type)
            return _shown(inner)
    size = human_size(len(block.data) * 3 // 4)
    return f"[{one_line(block.type, 20)}, {kind}, {size}: not shown]"
