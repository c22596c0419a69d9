"""How text and bare bytes are shown, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType

from clawkit.core.result import Result
from clawkit.fs.base import CHUNK, File
from clawkit.fs.decode import UTF8, Encoding
from clawkit.fs.hexdump import ROW, ROW_CHARS, dump
from clawkit.fs.pages import HeldFile, Page, Want, take_page
from clawkit.text import human_size, result_cap, weigh, weight_cap

PAGE_LINES = 2_000
PAGE_BYTES = 50 * 1024
MAX_PAGES = 8
"""Pages that are joined when nobody says how many lines to show."""
MAX_PAGE_BYTES = 512 * 1024
CONTEXT_SHARE = 0.2
CHARS_PER_TOKEN = 4
MIN_PAGE_BYTES = 200
"""Even for the smallest of models: a page must hold something."""
NOTICE_ROOM = 400


class Wish(NamedTuple):
    """What to show of a file, and to whom."""

    path: str
    offset: int = 1
    limit: int | UnsetType = UNSET
    cursor: int = 0
    context_window: int | None = None
    notes: tuple[str, ...] = ()
    """What else is to be told."""

    @property
    def max_weight(self) -> int:
        """What the answer may weigh: one page, or several joined when nobody set a limit."""
        room = page_bytes(self.context_window, joined=self.limit is UNSET)
        return max(MIN_PAGE_BYTES, room - sum(map(weigh, self.notes)))


async def show_text(
    file: File,
    head: bytes,
    encoding: Encoding,
    wish: Wish,
    *,
    tell_encoding: bool = True,
    **more: Any,
) -> Result:
    """A page of a file whose first `CHUNK` bytes are `head`; `more` goes into the details."""
    notes = [*wish.notes]
    if encoding.name != "utf-8" and tell_encoding:
        notes.append(f"decoded from {encoding.name}")
    lines = PAGE_LINES * MAX_PAGES if isinstance(wish.limit, UnsetType) else wish.limit
    want = Want(wish.offset, wish.cursor, lines, wish.max_weight)
    page = await take_page(file, encoding, head, want)
    size = max(file.info.size, len(head))
    if page.damaged:
        notes.append(f"bytes that are not {encoding.name} are shown as \ufffd")
    if page.shrank:
        notes.append("the file became shorter while it was read")
    notes += _position(page, want, size)
    # Nothing but newlines would only blur where the notice stands.
    text = page.text if page.text.strip("\n") else ""
    details = {"path": wish.path, "kind": "text", **_facts(page, size), **more}
    if encoding.name != "utf-8" or encoding.mark:
        details["encoding"] = "utf-8-sig" if encoding.name == "utf-8" else encoding.name
    return Result.text(with_notes(text, notes), **details)


async def show_made(text: str, wish: Wish, **more: Any) -> Result:
    """A page of a text that was made of a file."""
    data = text.encode("utf-8", "replace")
    return await show_text(HeldFile(data), data[:CHUNK], UTF8, wish, **more)


async def show_hex(file: File, head: bytes, wish: Wish) -> Result:
    """Some lines of a hex dump."""
    size = max(file.info.size, len(head))
    at = (wish.offset - 1) * ROW
    # Places in large files have more than eight digits.
    count = wish.max_weight // (ROW_CHARS - 8 + max(8, len(f"{size:x}")))
    if not isinstance(wish.limit, UnsetType):
        count = min(count, wish.limit)
    lines = dump(await file.read(count * ROW, at), at) if at < size else []
    total = -(-size // ROW)
    following = wish.offset + len(lines)
    goes_on = bool(lines) and following <= total
    page = Page("\n".join(lines), len(lines), (following, 0) if goes_on else None, total)
    notes = [*wish.notes, *(["16 bytes per line"] if goes_on else [])]
    notes += _position(page, Want(wish.offset, 0, count, 0), size)
    return Result.text(
        with_notes(page.text, notes), path=wish.path, kind="hex", **_facts(page, size)
    )


def with_notes(text: str, notes: Sequence[str]) -> str:
    """The text and, below it, a notice."""
    if not notes:
        return text
    gap = "\n\n" if text else ""
    return f"{text}{gap}[{'; '.join(notes)}]"


def page_bytes(context_window: int | None, *, joined: bool = True) -> int:
    """What one answer may weigh: one page, or several if they are joined. A fifth of the model's
    window, within bounds, and never more than a result holds."""
    share = int((context_window or 0) * CHARS_PER_TOKEN * CONTEXT_SHARE) if joined else 0
    page = max(PAGE_BYTES, min(share, MAX_PAGE_BYTES, MAX_PAGES * PAGE_BYTES))
    room = min(result_cap(context_window), weight_cap(context_window)) - NOTICE_ROOM
    return max(MIN_PAGE_BYTES, min(page, room))


def _position(page: Page, want: Want, size: int) -> list[str]:
    """Where in the file the page is, and how to go on; nothing when it is the end of the file."""
    line, cursor = page.next or (0, 0)
    total = page.total_lines
    of = f"of {total}" if total is not None else f"of a file of {human_size(size)}"
    if page.lines:
        end = want.line + page.lines - 1
        said = f"lines {want.line}-{end} {of}" if page.next else ""
        if cursor:
            of = f"of {page.line_chars}" if page.line_chars is not None else of
            said = f"line {line} is shown in part (characters {want.cursor}-{cursor} {of})"
        elif not page.text.strip():
            said = f"lines {want.line}-{end} {of} are blank"
    elif page.line_chars is not None:
        said = f"nothing at cursor={want.cursor}: line {want.line} has {page.line_chars} characters"
    elif total:
        said = f"nothing at offset={want.line}: the file has {total} line{'s' * (total > 1)}"
    else:
        said = f"the file is empty ({size} bytes)"
    if page.next:
        said += f"; go on with offset={line}" + (f" cursor={cursor}" if cursor else "")
    return [said] if said else []


def _facts(page: Page, size: int) -> dict[str, Any]:
    """The same for programs."""
    line, cursor = page.next or (0, 0)
    truncation: dict[str, Any] = {
        "truncated": page.next is not None,
        "outputLines": page.lines,
        "firstLineExceedsLimit": cursor > 0,
        "totalBytes": size,
    }
    if page.total_lines is not None:
        truncation["totalLines"] = page.total_lines
    facts: dict[str, Any] = {"truncation": truncation}
    if page.endings != "lf":
        facts["lineEndings"] = page.endings
    if not page.final_newline:
        facts["finalNewline"] = False
    if page.next:
        facts["continuation"] = {"kind": "line", "offset": line}
    if cursor:
        facts["continuation"] = {"kind": "cursor", "offset": line, "cursor": cursor}
    return facts
