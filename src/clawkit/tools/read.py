"""read: what is in a file, page by page: text, pictures, documents, notebooks, or bare bytes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from clawkit.core.context import Context
from clawkit.core.effects import Effect, file_resource
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.errors import NotFoundError, ToolInputError
from clawkit.fs.base import CHUNK, File, FileSystem, read_all
from clawkit.fs.decode import UTF8, detect, find_codec, settle
from clawkit.fs.kinds import FileKind, identify
from clawkit.fs.masks import is_env_file, mask_env
from clawkit.fs.seen import Seen
from clawkit.redact import Redactor
from clawkit.text import human_size
from clawkit.tools.show_media import show_document, show_picture
from clawkit.tools.show_text import Wish, show_hex, show_made, show_text

KEY = "PRIVATE KEY-----"
MAX_ALIKE = 5
"""Names that are told when nobody can say which one was meant."""
MAX_MASKED_BYTES = 1024 * 1024
"""Files whose values are masked are masked as a whole, or a page could begin behind a name."""


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of read."""

    path: Annotated[
        str, Meta(description="File to read, relative to the workspace or absolute", min_length=1)
    ]
    offset: Annotated[int, Meta(description="First line to show, counted from 1", ge=1)] = 1
    limit: (
        Annotated[
            int,
            Meta(
                description="How many lines to show; as many as fit if left out", ge=1, le=100_000
            ),
        ]
        | UnsetType
    ) = UNSET
    cursor: Annotated[
        int, Meta(description="Characters to leave out at the beginning of the first line", ge=0)
    ] = 0
    encoding: Annotated[
        str, Meta(description="Read as text in this encoding; found out if left out")
    ] = ""
    format: Annotated[
        Literal["auto", "raw", "hex"],
        Meta(
            description=(
                "auto: pictures, PDFs and notebooks are shown as what they are; raw: as plain "
                "text; hex: any file as a hex dump, 16 bytes per line"
            )
        ),
    ] = "auto"
    pages: Annotated[str, Meta(description="Pages of a PDF: '3', '1-5' or '7-'")] = ""
    optional: Annotated[
        bool, Meta(description="A missing file is no error but an ordinary answer")
    ] = False


async def execute(params: Params, ctx: Context) -> Result:
    try:
        return await _read(params.path, params, ctx)
    except NotFoundError as missing:
        return await _read_other(missing, params, ctx)


async def _read(path: str, params: Params, ctx: Context, *notes: str) -> Result:
    async with ctx.use(FileSystem).open(path) as file:
        head = await file.read(CHUNK, 0)
        ctx.use(Seen).note(file.place, file.info, head if len(head) < CHUNK else None)
        wish = Wish(
            path, params.offset, params.limit, params.cursor, ctx.scope.context_window, notes
        )
        if is_env_file(path) or is_env_file(file.place):
            return await _show_settings(file, wish, params, ctx)
        if params.format == "hex" and KEY.encode() in head:
            raise ToolInputError(f"{path!r} holds a private key, so its bytes are not shown")
        if params.format == "hex":
            return await show_hex(file, head, wish)
        return await _show(file, head, wish, params, ctx)


async def _read_other(missing: NotFoundError, params: Params, ctx: Context) -> Result:
    """The file that may have been meant. Rules are asked: they only know the path as written."""
    path = params.path
    if len(missing.alike) == 1 and ctx.permits(missing.alike[0]):
        other = missing.alike[0]
        return await _read(other, params, ctx, f"{path!r} -> {other!r}, which looks alike")
    if len(missing.alike) > 1:
        names = ", ".join(map(repr, missing.alike[:MAX_ALIKE]))
        raise NotFoundError(f"{path!r} does not exist, but several names that look alike: {names}")
    if params.optional or _is_diary(path):
        details = {"kind": "not_found", "status": "not_found", "path": path, "optional": True}
        return Result.text(f"[there is no file {path!r}]", **details)
    raise missing


def _is_diary(path: str) -> bool:
    """Whether a file is a day's notes, which are looked for before they are begun."""
    return re.fullmatch(r"(?:\./)*memory/\d{4}-\d\d-\d\d\.md", path) is not None


async def _show(file: File, head: bytes, wish: Wish, params: Params, ctx: Context) -> Result:
    is_auto = params.format == "auto" and not params.encoding
    kind = identify(head) if is_auto else None
    if params.pages and (kind is None or kind.family != "document"):
        raise ToolInputError(f"{wish.path!r} has no pages: 'pages' is for PDFs; use 'offset'")
    if kind is not None and kind.family == "image":
        return await show_picture(file, wish, ctx)
    if kind is not None and kind.family == "document":
        return await show_document(file, wish, params.pages, ctx)
    encoding = settle(find_codec(params.encoding), head) if params.encoding else detect(head)
    if kind is not None or (encoding is None and is_auto):
        return _refuse(wish.path, max(file.info.size, len(head)), kind)
    if is_auto and (wish.path.endswith(".ipynb") or file.place.endswith(".ipynb")):
        from clawkit.fs.notebook import MAX_BYTES, notebook_text

        if file.info.size <= MAX_BYTES and (text := notebook_text(await read_all(file, MAX_BYTES))):
            return await _show_made(text, wish, ctx, kind="notebook")
    encoding = encoding or UTF8
    if KEY.encode(encoding.name, "ignore") in head and len(head) < CHUNK:
        text = head[len(encoding.mark) :].decode(encoding.name, "replace")
        return await _show_made(text, wish, ctx)
    return await show_text(file, head, encoding, wish, tell_encoding=not params.encoding)


def _refuse(path: str, size: int, kind: FileKind | None) -> Result:
    what = f"{kind.name}, {human_size(size)}" if kind else human_size(size)
    message = f'{path!r} is a binary file ({what}), not text; format="hex" shows its bytes'
    return Result.error("read", message, code=400, kind="binary")


async def _show_settings(file: File, wish: Wish, params: Params, ctx: Context) -> Result:
    """A file full of secrets: there is no way to see it but masked."""
    if params.format == "hex" or params.encoding:
        raise ToolInputError(
            f"secrets in {wish.path!r} are masked, so it is only shown as plain text: leave out "
            "'format' and 'encoding'"
        )
    data = await read_all(file, MAX_MASKED_BYTES)
    encoding = detect(data)
    if encoding is None:
        return _refuse(wish.path, len(data), identify(data))
    text = data[len(encoding.mark) :].decode(encoding.name, "replace")
    return await _show_masked(text, wish, lambda whole: mask_env(whole, ctx.use(Redactor)))


async def _show_made(text: str, wish: Wish, ctx: Context, kind: str = "text") -> Result:
    """Pages of a text. One that begins inside a key would not be known for what it is."""
    if KEY in text:
        return await _show_masked(text, wish, ctx.use(Redactor).text, kind)
    return await show_made(text, wish, kind=kind)


async def _show_masked(
    text: str, wish: Wish, mask: Callable[[str], str], kind: str = "text"
) -> Result:
    """Pages of a text that is masked as a whole before any of it is shown."""
    masked = mask(text)
    if masked == text:
        return await show_made(text, wish, kind=kind)
    note = "secrets are masked; do not write the masks back"
    wish = wish._replace(notes=(*wish.notes, note))
    return await show_made(masked, wish, kind=kind, redacted=True)


def effects(params: Params, ctx: Context) -> tuple[Effect, ...]:
    return (Effect("read", file_resource(ctx.workspace, params.path)),)


TOOL = Tool(
    name="read",
    label="Read",
    description=(
        "Read a file: text, pictures, PDFs, notebooks. Long files come in pages; a notice at the "
        "end says how to go on. Other binary files can be shown with format=hex."
    ),
    parameters=Params,
    execute=execute,
    effects=effects,
    aliases={"file_path": "path", "file": "path", "filename": "path", "filepath": "path"},
    paths=("path",),
)
