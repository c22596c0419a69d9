"""write: create a file, or replace all of its content."""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from clawkit.core.context import Context
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.errors import NotFoundError, ToolError, ToolInputError
from clawkit.fs.protocols import ABSENT, Change, Changed, FileSystem, Info, read_all
from clawkit.fs.read_versions import ReadVersions
from clawkit.text import human_size
from clawkit.tools._files import Update, check_characters, commit, report
from clawkit.tools._params import FILE_ALIASES, doc, writes_path

if TYPE_CHECKING:
    from clawkit.fs.encoding import Encoding

MAX_COMPARED = 32 * 1024 * 1024
"""Larger files are replaced without comparing their content."""


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, doc("File to write; missing directories are created", min_length=1)]
    content: Annotated[str, doc("Complete new content of the file; may be empty")]


class _Old(msgspec.Struct, frozen=True):
    """The existing file. `data` is None if it is too large, `text` if it is not text."""

    path: str
    info: Info
    data: bytes | None
    text: str | None
    encoding: "Encoding"


class _New(msgspec.Struct, frozen=True):
    data: bytes
    text: str
    encoding: "Encoding"
    notes: tuple[str, ...]


async def execute(params: Params, ctx: Context) -> Result:
    from clawkit.fs.masks import is_env_file, refuse_masks
    from clawkit.redact import Redactor

    check_characters(params.content, "content")
    path, files, redactor = params.path, ctx.use(FileSystem), ctx.use(Redactor)
    old = await _read_old(files, path)
    new = _encode(params.content, old)
    if old is not None:
        ctx.use(ReadVersions).check(old.path, old.info, old.data)
        if old.data == new.data:
            ctx.use(ReadVersions).note(old.path, old.info, old.data)
            same = f"{path!r} already has this content; nothing was written"
            return Result.text(same, **_facts(path, "unchanged", new))
    before = old.text if old is not None else None
    env = is_env_file(path) or (old is not None and is_env_file(old.path))
    await refuse_masks(before, new.text, redactor, path=path, env=env)
    change = Change(path, new.data, expect=ABSENT if old is None else old.info.version)
    (done,), problems = await commit(ctx, files, [Update(change, before, new.text)])
    moved_on = await _verify(files, path, done, new.data)
    details = _facts(path, "created" if old is None else "changed", new)
    size = f"{details['lines']} line{'' if details['lines'] == 1 else 's'}"
    verb = "created" if old is None else "replaced the content of"
    said = f"{verb} {path!r} ({size}, {human_size(len(new.data))})"
    if old is not None:
        from clawkit.fs.edit.diff import Diff, diff_texts

        if env:
            diff = Diff(left_out="the file holds secrets")
        elif old.text is None:
            diff = Diff(left_out=f"the file was {'too large' if old.data is None else 'binary'}")
        else:
            diff = diff_texts(old.text, new.text, redactor.text)
        details |= diff.to_details()
    return report(ctx, problems, [said, *new.notes, moved_on], details)


async def _read_old(files: FileSystem, path: str) -> _Old | None:
    from clawkit.fs.encoding import LOOK, UTF8, decode_whole, detect

    try:
        async with files.open(path) as file:
            place, info = file.place, file.info
            if info.size > MAX_COMPARED:
                head = await file.read(LOOK, 0)
                return _Old(place, info, None, None, detect(head) or UTF8)
            data = await read_all(file, MAX_COMPARED)
    except NotFoundError:
        return None
    try:
        text, encoding = decode_whole(data, path)
    except ToolInputError:
        return _Old(place, info, data, None, UTF8)
    return _Old(place, info, data, text, encoding)


def _encode(content: str, old: _Old | None) -> _New:
    """The content with the encoding and line endings of the existing file."""
    from clawkit.fs.encoding import UTF8, encode

    if old is None:
        return _New(content.encode(), content, UTF8, ())
    notes: list[str] = []
    encoding, before = old.encoding, old.text or ""
    if encoding.mark:
        content = content.removeprefix("\ufeff")
    has_only_crlf = 0 < before.count("\n") == before.count("\r\n")
    if "\n" in content and "\r" not in content and has_only_crlf:
        content = content.replace("\n", "\r\n")
        notes.append("its CRLF line endings were kept")
    try:
        data = encode(content, encoding)
    except ToolInputError:
        notes.append(f"it is now UTF-8: {encoding.name} cannot encode all of the characters")
        encoding = UTF8
        data = content.encode()
    if encoding != UTF8:
        kept = f"{encoding.name}{' with a byte order mark' if encoding.mark else ''}"
        notes.append(f"its encoding, {kept}, was kept")
    return _New(data, content, encoding, tuple(notes))


async def _verify(files: FileSystem, path: str, done: Changed, data: bytes) -> str:
    """Raises `ToolError` if the file does not have the written content. Returns a note if another
    process has already changed it again."""
    async with files.open(path) as file:
        if done.info is None or file.info.version != done.info.version:
            return "another process changed it right afterwards; read it again"
        if file.info.size == len(data) and await read_all(file, len(data)) == data:
            return ""
    raise ToolError(f"{path!r} does not contain what was written to it; the disk may be damaged")


def _facts(path: str, change: str, new: _New) -> dict[str, Any]:
    ended = not new.text or new.text.endswith("\n")
    facts: dict[str, Any] = {
        "path": path,
        "change": change,
        "changed": change != "unchanged",
        "bytes": len(new.data),
        "lines": new.text.count("\n") + (0 if ended else 1),
    }
    if change == "created":
        facts["created"] = True
    plain = new.encoding.name == "utf-8" and not new.encoding.mark
    return facts if plain else {**facts, "encoding": new.encoding.name}


TOOL = Tool(
    name="write",
    label="Write",
    description=(
        "Create a file, or replace all of its content. To change part of a file use edit. An "
        "existing file keeps its encoding and, if all of its lines end in CRLF, its line endings."
    ),
    parameters=Params,
    execute=execute,
    effects=writes_path,
    aliases={**FILE_ALIASES, **dict.fromkeys(("contents", "text", "file_text"), "content")},
    paths=("path",),
)
