"""apply_patch: change any number of files, all or none."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from clawkit.config.model import Config
from clawkit.config.modelref import ModelRef
from clawkit.config.sections.tools import ApplyPatch
from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Tool, file_resource
from clawkit.errors import ToolInputError
from clawkit.fs.protocols import FileSystem, WorkspaceFiles
from clawkit.fs.read_versions import ReadVersions
from clawkit.text import printable
from clawkit.tools._commands import exec_settings
from clawkit.tools._files import Update, check_characters, commit, report
from clawkit.tools._params import doc

if TYPE_CHECKING:
    from clawkit.fs.edit.patch_draft import Draft

MAX_SHOWN = 100
MAX_NOTES = 5
_KEY = "tools.exec.applyPatch"
# Models trained on this format. Routers prefix the vendor: `openai/gpt-5.2`.
_OPENAI = re.compile(r"(?:^|[/._:-])(?:(?:chat)?gpt-|codex|o[134](?:-|$))", re.IGNORECASE)


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    input: Annotated[
        str, doc("The whole patch, from '*** Begin Patch' to '*** End Patch'", min_length=1)
    ]


async def execute(params: Params, ctx: Context, reach: type[FileSystem] = WorkspaceFiles) -> Result:
    from clawkit.fs.edit.patch_draft import Drafts
    from clawkit.fs.edit.patch_format import parse
    from clawkit.redact import Redactor

    check_characters(params.input, "input")
    sections = parse(params.input)
    files = ctx.use(reach)
    drafting = Drafts(files, ctx.use(ReadVersions), ctx.use(Redactor), ctx.workspace)
    drafts = await drafting.run(sections)
    summary = {
        name: [each.path for each in drafts if mark in each.marks]
        for name, mark in (("added", "A"), ("modified", "M"), ("deleted", "D"))
    }
    if not drafts:
        said = "Nothing to change: the patch is already applied."
        return Result.text(said, summary=summary, changed=False)
    updates = [Update(each.change(), *each.texts()) for each in drafts]
    _, problems = await commit(ctx, files, updates)
    details = {"summary": summary, "changed": True}
    return report(ctx, problems, [_summarize(drafts)], details, gap="\n\n")


def _summarize(drafts: "Sequence[Draft]") -> str:
    lines = [
        f"{mark} {printable(each.path)}{_counts(each) if mark != 'D' else ''}"
        for each in drafts
        for mark in each.marks
    ]
    shown = ["Applied the patch:", *lines[:MAX_SHOWN]]
    if (more := len(lines) - MAX_SHOWN) > 0:
        shown.append(f"and {more} more")
    for each in [draft for draft in drafts if draft.inexact][:MAX_NOTES]:
        chunks = ", ".join(map(str, each.inexact[:MAX_NOTES]))
        chunks += ", …" if len(each.inexact) > MAX_NOTES else ""
        shown.append(
            f"[{printable(each.path)}: chunk {chunks} differs from the file in indentation or in "
            "similar characters; added lines were indented to match the file]"
        )
    return "\n".join(shown)


def _counts(draft: "Draft") -> str:
    """Counts of added and removed lines, and the old name of a moved file."""
    counts = [f"+{draft.added}"] if draft.added else []
    counts += [f"-{draft.removed}"] if draft.removed else []
    parts = [" ".join(counts)] if counts else []
    parts += [f"moved from {printable(draft.moved_from)}"] if draft.moved_from else []
    return f" ({', '.join(parts)})" if parts else ""


def touches(params: Mapping[str, Any]) -> tuple[str, ...]:
    """Every path in the patch. Raises `ToolInputError` if it cannot be parsed."""
    from clawkit.fs.edit.patch_format import parse, paths_of

    text = params.get("input")
    if not isinstance(text, str):
        raise ToolInputError("the parameter input (the patch) is missing")
    return paths_of(parse(text))


def effects(params: Params, ctx: Context) -> tuple[Effect, ...]:
    try:
        paths = touches({"input": params.input})
    except ToolInputError:
        return ()  # `execute` will refuse it for the same reason
    return tuple(Effect("write", file_resource(ctx.workspace, path)) for path in paths)


TOOL = Tool(
    name="apply_patch",
    label="Patch",
    description=(
        "Apply a patch to one or more files: all of it or, if any part does not match, nothing. "
        "Between '*** Begin Patch' and '*** End Patch' come sections: '*** Add File: path' with "
        "every line prefixed by '+'; '*** Delete File: path'; '*** Update File: path', optionally "
        "'*** Move to: path', then chunks. A chunk is '@@' (or '@@ ' and a line above the change, "
        "such as a class or function; several in a row go inward), then lines prefixed by ' ' "
        "(context), '-' (removed) or '+' (added). Give about 3 lines of context around each "
        "change, so that it matches only one place, and order the chunks as in the file. "
        "'*** End of File' after a chunk anchors it to the end."
    ),
    parameters=Params,
    execute=execute,
    effects=effects,
    aliases={"patch": "input", "diff": "input"},
    touches=touches,
)


def make_tool(config: Config, scope: Scope) -> Tool | str:
    settings = exec_settings(config, scope).apply_patch
    if refusal := _withhold(settings, scope.model):
        return refusal
    if scope.cwd:
        return "patch paths start at the workspace, but this run starts in another directory (cwd)"
    if settings.workspace_only:
        return TOOL
    return replace(TOOL, execute=partial(execute, reach=FileSystem))


def _withhold(settings: ApplyPatch, model: ModelRef | None) -> str:
    """Why the tool is not offered to a model; empty if it is."""
    if settings.enabled is False:
        return f"{_KEY}.enabled is false"
    names = {name.strip().casefold() for name in settings.allow_models}
    is_listed = model is not None and bool(names & {str(model).casefold(), model.id.casefold()})
    if settings.enabled:
        if settings.allow_models and not is_listed:
            return f"{_KEY}.allowModels does not include the model {str(model or 'of this run')!r}"
        return ""
    if model is None or is_listed or model.provider.startswith(("openai", "azure-openai")):
        return ""
    if _OPENAI.search(model.id):
        return ""
    return (
        f"{_KEY} is for OpenAI models unless {_KEY}.enabled is true or {_KEY}.allowModels names "
        f"{str(model)!r}"
    )
