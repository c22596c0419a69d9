"""What a server answers, as the result of a call: text that is marked as not to be trusted, images,
and a line about everything else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from clawkit.content import Block, Image, Text
from clawkit.core.result import Result
from clawkit.external import defuse, wrap_external
from clawkit.process.jsonrpc import UNREADABLE, ServerError
from clawkit.text import cut, human_size, one_line

MAX_BLOCKS = 200
MAX_CHARS = 400_000
"""Characters of all texts; what a model sees of them is less, and depends on its window."""
MAX_IMAGES = 8
MAX_IMAGE = 5 * 1024 * 1024
"""Base64 characters."""
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


class _Called(Struct, rename="camel"):
    content: list[_Block] = []
    structured_content: Any = None
    is_error: bool = False


class _Read(Struct):
    contents: list[_Resource] = []


class _Said(Struct):
    role: str
    content: _Block | list[_Block]


class _Prompt(Struct):
    messages: list[_Said] = []


def of_call(raw: Raw, server: str, tool: str) -> Result:
    """The result of `tools/call`. Raises `ServerError` for an answer that is not one."""
    called: _Called = _decode(raw, _Called)
    details: dict[str, Any] = {"server": server, "tool": tool}
    texts, images = _split(called.content)
    structured = called.structured_content
    if structured is not None:
        encoded = msgspec.json.encode(structured)
        if len(encoded) <= MAX_STRUCTURED:
            details["structuredContent"] = structured
        if not texts:
            texts.append(encoded.decode())
    if called.is_error:
        words = one_line(defuse("\n".join(texts)), 500) or "the tool failed"
        details |= {"status": "error", "error": words}
    return _join(server, tool, texts, images, details)


def of_resource(raw: Raw, server: str, uri: str) -> Result:
    found: _Read = _decode(raw, _Read)
    blocks = [_Block("resource", resource=each) for each in found.contents]
    return _join(server, uri, *_split(blocks), {"server": server, "uri": one_line(uri, 500)})


def of_prompt(raw: Raw, server: str, name: str) -> Result:
    texts: list[str] = []
    images: list[Image] = []
    for said in _decode(raw, _Prompt).messages[:MAX_BLOCKS]:
        content = said.content if isinstance(said.content, list) else [said.content]
        more, shown = _split(content)
        texts += [f"{one_line(said.role, 20)}: {text}" for text in more]
        images += shown
    return _join(server, name, texts, images, {"server": server, "prompt": one_line(name, 200)})


def of_list(entries: Iterable[Raw], server: str, what: str) -> Result:
    """The entries of a list, one a line, as JSON."""
    lines = [bytes(each).decode("utf-8", "replace") for each in entries]
    return _join(server, what, lines, (), {"server": server, "count": len(lines)})


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


def _split(content: Sequence[_Block]) -> tuple[list[str], list[Image]]:
    texts: list[str] = []
    images: list[Image] = []
    for block in content[:MAX_BLOCKS]:
        found = _shown(block)
        if isinstance(found, Image):
            images.append(found)
        else:
            texts.append(found)
    if len(content) > MAX_BLOCKS:
        texts.append(f"[{len(content) - MAX_BLOCKS} more blocks were left out]")
    return texts, images


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


def _decode(raw: Raw, kind: Any) -> Any:
    try:
        return msgspec.json.decode(raw, type=kind)
    except UNREADABLE:
        raise ServerError("it sent a result that is not one") from None
