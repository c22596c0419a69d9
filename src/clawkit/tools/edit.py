"""edit: replace parts of a file."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from clawkit.core.context import Context
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.errors import NotFoundError, ToolInputError
from clawkit.fs.protocols import Change, FileSystem, Info, read_all
from clawkit.fs.read_versions import ReadVersions
from clawkit.text import cut, human_size
from clawkit.tools._files import Update, check_characters, commit, report
from clawkit.tools._params import FILE_ALIASES, doc, writes_path

if TYPE_CHECKING:
    from clawkit.fs.edit.replace import Replacement

MAX_BYTES = 32 * 1024 * 1024
MAX_EDITS = 1_000
MAX_DIFF = 4_000

Old = Annotated[str, doc("Text to replace, exactly as it is in the file")]
New = Annotated[str, doc("Text to put in its place; empty to delete")]
Every = Annotated[bool, doc("Replace all occurrences instead of exactly one")]


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    old_text: Old
    new_text: New
    replace_all: Every = False


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    path: Annotated[str, doc("File to change", min_length=1)]
    edits: Annotated[
        tuple[Edit, ...],
        doc(
            "Replacements, each found in the file as it is now; they must not overlap",
            max_length=MAX_EDITS,
        ),
    ] = ()
    old_text: Annotated[str | UnsetType, doc("For a single replacement, instead of edits")] = UNSET
    new_text: Annotated[str | UnsetType, doc("Goes with oldText")] = UNSET
    replace_all: Annotated[bool, doc("Goes with oldText: replace all occurrences")] = False


async def execute(params: Params, ctx: Context) -> Result:
    from clawkit.core.tasks import in_thread
    from clawkit.fs.edit.diff import diff_texts
    from clawkit.fs.edit.replace import apply, changed_lines
    from clawkit.fs.encoding import decode_whole, encode
    from clawkit.fs.masks import is_env_file, mask_settings, may_have_masks, refuse_masks
    from clawkit.redact import Redactor

    edits = _read_edits(params)
    files = ctx.use(FileSystem)
    place, info, data = await _read(files, params.path, edits)
    ctx.use(ReadVersions).check(place, info, data)
    text, encoding = decode_whole(data, params.path)
    redactor = ctx.use(Redactor)
    env = is_env_file(params.path) or is_env_file(place)
    show = mask_settings if env else redactor.text
    outcome = await in_thread(apply, text, edits, path=params.path, show=show)
    if not outcome.found:
        unchanged = f"the edit would not change {params.path!r}; nothing was written"
        return Result.text(unchanged, changed=False, path=params.path, edits=len(edits))
    if any(may_have_masks(edit.new) for edit in edits):
        await refuse_masks(text, outcome.text, redactor, path=params.path, env=env)
    diff = diff_texts(text, outcome.text, show)
    if env:
        # A secret is recognized by its name, which may be outside the diff.
        diff = diff._replace(text="", left_out="the file holds secrets")
    change = Change(params.path, encode(outcome.text, encoding), expect=info.version)
    _, problems = await commit(ctx, files, [Update(change, text, outcome.text)])
    count = len(outcome.found)
    places = f"{count} place{'s' if count > 1 else ''}"
    said = [f"replaced {places} in {params.path!r} ({changed_lines(outcome)})"]
    details: dict[str, Any] = {
        "changed": True,
        "path": params.path,
        "edits": len(edits),
        "places": count,
    }
    overlooked = {each.edit: each.overlooked for each in outcome.found if each.overlooked}
    if overlooked:
        details["overlooked"] = [{"edit": n, "what": what} for n, what in overlooked.items()]
        said += (
            f"{'oldText' if len(edits) == 1 else f'edits[{number}].oldText'} is not in the file as "
            f"given; a text that differs only in {what} was replaced"
            for number, what in overlooked.items()
        )
        said.append(f"Changed:\n{cut(diff.text, MAX_DIFF)}" if diff.text else "")
    return report(ctx, problems, said, details | diff.to_details())


def _read_edits(params: Params) -> "list[Replacement]":
    from clawkit.fs.edit.replace import Replacement

    old, new = params.old_text, params.new_text
    if params.edits:
        # Some models fill in every parameter.
        if old or new or params.replace_all:
            raise ToolInputError(
                "edit: give either edits, or oldText and newText for a single replacement, not both"
            )
        edits = [
            Replacement(each.old_text, each.new_text, each.replace_all) for each in params.edits
        ]
    elif isinstance(old, str) and isinstance(new, str):
        edits = [Replacement(old, new, params.replace_all)]
    else:
        why = "nothing to replace; give edits as a list of {oldText, newText}, or oldText and "
        why += "newText for a single replacement"
        if isinstance(old, str) or isinstance(new, str):
            missing = "newText" if isinstance(old, str) else "oldText"
            why = f"{missing} is missing; a replacement needs both texts"
        raise ToolInputError(f"edit: {why}")
    for number, edit in enumerate(edits):
        check_characters(edit.new, f"edits[{number}].newText" if params.edits else "newText")
    return edits


async def _read(
    files: FileSystem, path: str, edits: "Sequence[Replacement]"
) -> tuple[str, Info, bytes]:
    try:
        async with files.open(path) as file:
            if file.info.size > MAX_BYTES:
                size, most = human_size(file.info.size), human_size(MAX_BYTES)
                why = f"{path!r} is too large for edit ({size}; the limit is {most})"
                raise ToolInputError(f"{why}; change it with a program")
            return file.place, file.info, await read_all(file, MAX_BYTES)
    except NotFoundError as error:
        if any(edit.old for edit in edits):
            raise
        missing = f"{path!r} does not exist; use write to create a file"
        raise NotFoundError(missing, alike=error.alike) from None


TOOL = Tool(
    name="edit",
    label="Edit",
    description=(
        "Replace parts of a file. Each oldText must occur exactly once, unless replaceAll is set; "
        "copy it from the output of read, with enough lines around it to be unique. Make several "
        "edits of a file in one call. Nothing is written unless all of them match."
    ),
    parameters=Params,
    execute=execute,
    effects=writes_path,
    aliases={
        **FILE_ALIASES,
        **dict.fromkeys(("old_string", "old_str"), "oldText"),
        **dict.fromkeys(("new_string", "new_str"), "newText"),
    },
    paths=("path",),
)
