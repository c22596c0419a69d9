"""Apply a patch in memory, section by section, each to the result of the previous ones."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from clawkit.core.tool import Effect, file_resource, resolve
from clawkit.errors import ConflictError, NotFoundError, ToolInputError
from clawkit.fs.edit.patch_apply import Applied, apply_chunks
from clawkit.fs.edit.patch_format import FilePatch, paths_of
from clawkit.fs.encoding import UTF8, decode_whole, encode
from clawkit.fs.masks import is_env_file, mask_settings, may_have_masks, refuse_masks
from clawkit.fs.protocols import ABSENT, Change, FileSystem, Info, OpenFile, read_all
from clawkit.fs.read_versions import MAX_HASHED, ReadVersions
from clawkit.redact import Redactor
from clawkit.text import human_size

MAX_FILE_BYTES = 32 * 1024 * 1024
MAX_BYTES = 128 * 1024 * 1024
"""Maximum size of all files of a patch together."""
_MAX_REPORTED = 5


@dataclass(slots=True)
class Draft:
    """A file before and after the patch."""

    path: str
    """As first written in the patch."""
    place: str = ""
    info: Info | None = None
    """The existing file; None if there is none."""
    before: bytes | None = None
    """Its content; None also for large files that are only deleted."""
    missing: NotFoundError | None = None
    there: bool = False
    now: bytes | None = None
    gone: Literal["", "deleted", "moved"] = ""
    moved_from: str = ""
    source: bytes | None = None
    """The content of the file that was moved here."""
    added: int = 0
    removed: int = 0
    inexact: tuple[int, ...] = ()
    suspect: bool = False
    """Whether something was added that may be a mask instead of a secret."""

    @property
    def is_env(self) -> bool:
        return any(map(is_env_file, (self.path, self.place, self.moved_from)))

    @property
    def changes(self) -> bool:
        if self.there:
            return self.info is None or self.now != self.before
        return self.info is not None

    @property
    def marks(self) -> str:
        """`A` for added, `M` for modified, `D` for deleted; `DA` for a file that replaces another,
        and empty for one that was moved away."""
        new = "" if not self.there else "M" if self.moved_from else "A"
        if self.info is None:
            return new
        return {"": "M", "moved": new, "deleted": f"D{new}"}[self.gone]

    def change(self) -> Change:
        expect = self.info.version if self.info else ABSENT
        return Change(self.path, self.now if self.there else None, expect, self.moved_from)

    def texts(self) -> tuple[str | None, str | None]:
        """The text before and after; None if there is none."""
        return _text(self.before), _text(self.now)


def _text(data: bytes | None) -> str | None:
    try:
        return None if data is None else decode_whole(data, "")[0]
    except ToolInputError:
        return None


class Drafts:
    """The files of one patch. Nothing on disk is changed here."""

    def __init__(
        self, files: FileSystem, seen: ReadVersions, redactor: Redactor, workspace: str
    ) -> None:
        self._files = files
        self._seen = seen
        self._redactor = redactor
        self._workspace = workspace
        self._by_name: dict[str, Draft] = {}
        self._by_place: dict[str, Draft] = {}
        self._bytes = 0

    async def run(self, sections: Sequence[FilePatch]) -> tuple[Draft, ...]:
        """The files that the sections would change. Raises `ToolInputError` if a section cannot be
        applied; for an update that does not match its file, together with other such updates."""
        problems: list[str] = []
        named: set[str] = set()
        for section in sections:
            fresh = section.path not in named
            named.update(paths_of((section,)))
            if problems and not (fresh and section.kind == "Update"):
                continue  # it depends on sections that were not applied
            try:
                await self._carry_out(section)
            except ToolInputError as error:
                if not problems and type(error) is not ToolInputError:
                    raise
                problems.append(str(error))
                if len(problems) == _MAX_REPORTED:
                    break
        if problems:
            raise ToolInputError("\n\n".join((*problems, "Nothing was changed.")))
        changed = tuple(each for each in self._by_place.values() if each.changes)
        for draft in changed:
            after = _text(draft.now) if draft.suspect else None
            if after is not None:
                before = _text(draft.before if draft.source is None else draft.source)
                redactor, env = self._redactor, draft.is_env
                await refuse_masks(before, after, redactor, path=draft.path, env=env)
        return changed

    async def _carry_out(self, section: FilePatch) -> None:
        draft = await self._open(section.path, whole=section.kind == "Update")
        if section.kind == "Add":
            if draft.there:
                raise _exists(section.path, section.line)
            draft.there, draft.now = True, encode(section.content, UTF8)
            draft.added += section.content.count("\n")
            draft.suspect |= may_have_masks(section.content)
            return
        self._need(draft, section)
        if section.kind == "Delete" or section.move_to:
            self._refuse_links(draft)
        if section.kind == "Delete":
            draft.there, draft.now, draft.gone = False, None, "deleted"
            return
        if section.chunks:
            await self._update(draft, section)
        if section.move_to:
            target = await self._open(section.move_to, whole=False)
            if draft.is_env and not target.is_env:
                raise ToolInputError(
                    f"{section.path!r} (line {section.line} of the patch) is shown with masked "
                    f"secrets; as {section.move_to!r} it would not be. Keep a name like .env"
                )
            if target is not draft:
                if target.there:
                    raise _exists(section.move_to, section.line)
                target.there, target.now = True, draft.now
                target.added, target.removed = draft.added, draft.removed
                target.inexact, target.suspect = draft.inexact, draft.suspect
                target.source = draft.before if draft.source is None else draft.source
                target.moved_from = draft.moved_from if draft.info is None else draft.path
                draft.there, draft.now, draft.gone = False, None, draft.gone or "moved"

    async def _open(self, path: str, *, whole: bool) -> Draft:
        """The draft of a file, which may have several names."""
        if path in self._by_name:
            return self._by_name[path]
        try:
            async with self._files.open(path) as file:
                draft = self._by_place.get(file.place) or await self._take_in(path, file, whole)
        except NotFoundError as error:
            [effect] = resolve([Effect("write", file_resource(self._workspace, path))])
            place = effect.resource
            draft = self._by_place.get(place) or Draft(path, place, missing=error)
        self._by_name[path] = self._by_place[draft.place] = draft
        return draft

    def _refuse_links(self, draft: Draft) -> None:
        # A file and a link to it have the same content, but are removed separately.
        names = {
            os.path.normpath(os.path.join(self._workspace, name)): name
            for name, each in self._by_name.items()
            if each is draft
        }
        if len(names) > 1:
            one, other, *_ = names.values()
            raise ToolInputError(
                f"{one!r} and {other!r} are the same file, so it is unclear which of them to "
                "remove; use one name only"
            )

    async def _take_in(self, path: str, file: OpenFile, whole: bool) -> Draft:
        data = None
        if whole or file.info.size <= MAX_HASHED:
            data = await read_all(file, MAX_FILE_BYTES)
            self._bytes += len(data)
            if self._bytes > MAX_BYTES:
                raise ToolInputError(
                    f"the files of the patch have more than {human_size(MAX_BYTES)} in total; "
                    "send it in parts"
                )
        return Draft(path, file.place, file.info, data, there=True, now=data)

    def _need(self, draft: Draft, section: FilePatch) -> None:
        if draft.info is not None:
            self._seen.check(draft.place, draft.info, draft.before)
        if draft.there:
            return
        if draft.missing is not None and not draft.gone:
            raise draft.missing
        raise ToolInputError(
            f"{section.path!r} (line {section.line} of the patch) is deleted or moved by an "
            "earlier section"
        )

    async def _update(self, draft: Draft, section: FilePatch) -> None:
        from clawkit.core.tasks import in_thread  # imports asyncio: not needed to describe a tool

        text, encoding = decode_whole(draft.now or b"", section.path)
        show = mask_settings if draft.is_env else self._redactor.text
        applied: Applied = await in_thread(
            apply_chunks, text, section.chunks, section.path, show=show
        )
        draft.now = encode(applied.text, encoding)
        draft.added += applied.added
        draft.removed += applied.removed
        draft.inexact += applied.inexact
        added = (line[1:] for chunk in section.chunks for line in chunk.body if line[0] == "+")
        draft.suspect |= any(map(may_have_masks, added))


def _exists(path: str, line: int) -> ConflictError:
    return ConflictError(
        f"{path!r} (line {line} of the patch) already exists, so it cannot be added or moved to; "
        "nothing was changed. Update it, or delete it in an earlier section"
    )
