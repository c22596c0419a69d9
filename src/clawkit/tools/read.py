"""read: the content of a file, page by page: text, images, PDFs, notebooks, or raw bytes."""

import re
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from clawkit.core.context import Context
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.errors import NotFoundError
from clawkit.tools._params import FILE_ALIASES, doc, reads_path

MAX_ALIKE = 5
"""Maximum similar names listed in an error."""


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, doc("File to read, relative to the workspace or absolute", min_length=1)]
    offset: Annotated[int, doc("First line to show, counted from 1", ge=1)] = 1
    limit: (
        Annotated[int, doc("How many lines to show; as many as fit if left out", ge=1, le=100_000)]
        | UnsetType
    ) = UNSET
    cursor: Annotated[int, doc("Characters to skip at the start of the first line", ge=0)] = 0
    encoding: Annotated[str, doc("Read as text in this encoding; detected if left out")] = ""
    format: Annotated[
        Literal["auto", "raw", "hex"],
        doc(
            "auto: images, PDFs and notebooks are rendered; raw: shown as plain text; "
            "hex: any file as a hex dump, 16 bytes per line"
        ),
    ] = "auto"
    pages: Annotated[str, doc("Pages of a PDF: '3', '1-5' or '7-'")] = ""
    optional: Annotated[
        bool, doc("Return an ordinary result instead of an error when the file is missing")
    ] = False


async def execute(params: Params, ctx: Context) -> Result:
    from clawkit.tools._show import show_file  # imports all decoders

    path = params.path
    try:
        return await show_file(path, params, ctx)
    except NotFoundError as error:
        missing, alike = error, error.alike
    # Rules were applied to the path as written, so they must permit the other one as well.
    if len(alike) == 1 and ctx.permits(alike[0]):
        note = f"{path!r} -> {alike[0]!r}, the only similar name"
        return await show_file(alike[0], params, ctx, note)
    if len(alike) > 1:
        names = ", ".join(map(repr, alike[:MAX_ALIKE]))
        raise NotFoundError(f"{path!r} does not exist, but several similar names do: {names}")
    # Agents often read the notes of a day before they exist.
    is_diary = re.fullmatch(r"(?:\./)*memory/\d{4}-\d\d-\d\d\.md", path) is not None
    if params.optional or is_diary:
        details = {"kind": "not_found", "status": "not_found", "path": path, "optional": True}
        return Result.text(f"[no such file: {path!r}]", **details)
    raise missing


TOOL = Tool(
    name="read",
    label="Read",
    description=(
        "Read a file: text, images, PDFs, notebooks. Long files come in pages; a notice at the "
        "end says how to continue. Other binary files can be shown with format=hex."
    ),
    parameters=Params,
    execute=execute,
    effects=reads_path,
    aliases=FILE_ALIASES,
    paths=("path",),
)
