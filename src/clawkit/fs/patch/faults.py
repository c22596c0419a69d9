"""What to say about a chunk of a patch that has no place in its file, or several."""

from __future__ import annotations

from collections.abc import Sequence

from clawkit.errors import ToolInputError
from clawkit.fs.edit.diff import Show
from clawkit.fs.masks import first_mask
from clawkit.fs.patch.parse import Chunk
from clawkit.text import printable

_SHOWN_LINES = 8
_SHOWN_CHARS = 160
_SHOWN_PLACES = 10


def misfit(path: str, chunk: Chunk, what: str) -> ToolInputError:
    """For a chunk that cannot be applied."""
    return ToolInputError(f"{path!r}: chunk {chunk.number} (line {chunk.line} of the patch) {what}")


def too_many(path: str, chunk: Chunk, places: Sequence[int], counted: int) -> ToolInputError:
    """For a chunk that fits several places, which were counted up to a limit."""
    count = f"{counted:,} or more" if len(places) == counted else str(len(places))
    shown = ", ".join(str(at + 1) for at in places[:_SHOWN_PLACES])
    more = ", …" if len(places) > _SHOWN_PLACES else ""
    return misfit(
        path,
        chunk,
        f"fits {count} places, at lines {shown}{more} of the file; add old lines around it, or "
        "'@@' and a line above it, until only one is left",
    )


def unclear_indent(path: str, chunk: Chunk, line: str, at: int) -> ToolInputError:
    """For a new line whose indentation does not follow from the old ones."""
    return misfit(
        path,
        chunk,
        f"fits line {at + 1} of the file only without regard to indentation, and how deep "
        f"{quote(line)} is meant to be cannot be told; write the old lines as the file has them",
    )


def no_context(
    path: str, chunk: Chunk, line: str, lines: Sequence[str], start: int, show: Show
) -> ToolInputError:
    """For context that is no line of the file from `start` on."""
    below = f" below line {start}" if start else ""
    what = f"has the context {quote(line)}, which is no line of the file{below}"
    return misfit(path, chunk, f"{what}. {_tell_near((line,), lines, show)}")


def no_lines(
    path: str, chunk: Chunk, old: Sequence[str], lines: Sequence[str], start: int, show: Show
) -> ToolInputError:
    """For old lines that are not in the file from `start` on."""
    place = " at its end" if chunk.at_end else f" below line {start}" if start else ""
    shown = "".join(f"\n  {quote(line)}" for line in old[:_SHOWN_LINES])
    more = f"\n  and {len(old) - _SHOWN_LINES} more" if len(old) > _SHOWN_LINES else ""
    what = f"does not fit: these lines are not in the file{place}:{shown}{more}"
    return misfit(path, chunk, f"{what}\n{_tell_near(old, lines, show)}")


def quote(line: str) -> str:
    """A line on which every blank counts."""
    line = printable(line)
    return repr(line if len(line) <= _SHOWN_CHARS else f"{line[: _SHOWN_CHARS - 1]}…")


def _tell_near(old: Sequence[str], lines: Sequence[str], show: Show) -> str:
    from clawkit.fs.edit.near import describe_near  # only where a patch fails

    text = "\n".join(lines)
    near = describe_near(text, "\n".join(old), show)
    told = near or "Nothing in it is like that; read it again"
    mask = first_mask("\n".join(old))
    if mask and mask not in text:
        told += (
            f"\n{mask!r} is how secrets are shown, not what the file holds; leave out lines that "
            "have it"
        )
    return told
