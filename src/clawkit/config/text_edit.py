"""Edits JSON5 text and leaves the rest of it as written.

Only the changed value, its comma and the adjacent line break are touched. If an object replaces an
object, unchanged members are kept; if a list replaces a list that is not longer, its items are.
New text follows the style around it.

Raises `EditError` for an impossible edit and `Json5Error` for text that cannot be parsed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from clawkit.config import json5
from clawkit.errors import EditError

MAX_LINE = 100
MAX_FLAT_LIST = 80

_BREAK = re.compile("[\n\r\u2028\u2029]")
_NAME = re.compile("[A-Za-z_$][A-Za-z0-9_$]*")
_REST_OF_LINE = re.compile(
    "(?:[ \t]|/\\*(?:[^*\r\n]|\\*(?!/))*\\*/)*(?://[^\r\n\u2028\u2029]*)?\r?\n"
)

Edit = tuple[int, int, str]
"""Replace `text[start:end]`. The edits of one text never overlap."""
Entry = tuple[str | None, Any]
"""A key and its value, or None and a list element."""


class Style(NamedTuple):
    """The formatting of new text."""

    newline: str
    unit: str
    quoted: bool
    trailing: bool


class Slot(NamedTuple):
    """One member or element as written."""

    start: int
    end: int
    comma: int  # -1 if none follows
    value_start: int

    @property
    def stop(self) -> int:
        return self.end if self.comma < 0 else self.comma + 1


def apply(text: str, edits: Iterable[Edit]) -> str:
    """`text` after all of `edits`; edits at the same position apply in order."""
    pieces: list[str] = []
    done = 0
    for start, end, new in sorted(edits, key=lambda edit: edit[0]):
        pieces += (text[done:start], new)
        done = end
    return "".join((*pieces, text[done:]))


def rewrite(text: str, root: json5.Node, value: Any, *, keep_lines: bool = False) -> str:
    """`text` with the scalars of `value`, which has the structure of `root`; with `keep_lines`,
    multi-line scalars keep their number of lines."""
    edits = _changes(text, root, value, style_of(text, root))
    lines = "\n" if keep_lines else ""
    return apply(text, ((a, b, new + lines * text.count("\n", a, b)) for a, b, new in edits))


def newline_of(text: str) -> str:
    return "\r\n" if text[: text.find("\n") + 1].endswith("\r\n") else "\n"


def indent_of(text: str, pos: int) -> str:
    start = end = text.rfind("\n", 0, pos) + 1
    while end < pos and text[end] in " \t":
        end += 1
    return text[start:end]


def style_of(text: str, root: json5.Node) -> Style:
    """The style of a file, taken from its outermost object."""
    slots = _slots(text, root)
    lead = _lead(text, slots[0].start) if slots else None
    style = Style(newline_of(text), lead or "  ", quoted=False, trailing=False)
    return _style_inside(text, root, slots, style)


def _style_inside(text: str, node: json5.Node, slots: list[Slot], style: Style) -> Style:
    if slots:
        style = style._replace(trailing=slots[-1].comma >= 0)
    if node.members:
        quoted = all(text[member.key_start] in "\"'" for member in node.members.values())
        style = style._replace(quoted=quoted)
    return style


def render(value: Any, indent: str, style: Style) -> str:
    """`value` as text that starts on a line with `indent`; objects have a line per member."""
    if not isinstance(value, dict | list) or not value:
        return _flat(value, style)
    if isinstance(value, list) and not any(isinstance(item, dict | list) for item in value):
        flat = _flat(value, style)
        if len(indent) + len(flat) <= MAX_FLAT_LIST:
            return flat
    inner = indent + style.unit
    is_object = isinstance(value, dict)
    entries: Iterable[Entry] = value.items() if is_object else ((None, item) for item in value)
    lines = [inner + _entry(entry, render(entry[1], inner, style), style) for entry in entries]
    body = f",{style.newline}".join(lines) + ("," if style.trailing else "")
    opener, closer = "{}" if is_object else "[]"
    return f"{opener}{style.newline}{body}{style.newline}{indent}{closer}"


def _flat(value: Any, style: Style) -> str:
    if isinstance(value, dict):
        members = ", ".join(_entry(entry, _flat(entry[1], style), style) for entry in value.items())
        return f"{{ {members} }}" if members else "{}"
    if isinstance(value, list):
        return f"[{', '.join(_flat(item, style) for item in value)}]"
    return json5.quote(value) if isinstance(value, str) else json.dumps(value)


def _entry(entry: Entry, value: str, style: Style) -> str:
    key = entry[0]
    if key is None:
        return value
    return f"{key if _NAME.fullmatch(key) and not style.quoted else json5.quote(key)}: {value}"


def _slots(text: str, node: json5.Node) -> list[Slot]:
    slots = []
    spans = [(member.key_start, member.node) for member in node.members.values()]
    for start, value in spans or [(item.start, item) for item in node.items]:
        after = json5.skip_gap(text, value.end)
        slots.append(Slot(start, value.end, after if text[after] == "," else -1, value.start))
    return slots


def _lead(text: str, pos: int) -> str | None:
    """The white space before `pos`, if nothing else precedes it on its line."""
    start = _skip_back(text, pos, " \t")
    return text[start:pos] if start == 0 or text[start - 1] == "\n" else None


def _skip_back(text: str, pos: int, chars: str) -> int:
    while pos and text[pos - 1] in chars:
        pos -= 1
    return pos


def insert(
    text: str, node: json5.Node, entries: list[Entry], style: Style, base: str
) -> tuple[list[Edit], str | None]:
    """The edits that append `entries` to an object or list whose line has the indent `base`, and
    the new indent of its existing entries, if they are moved to separate lines."""
    slots = _slots(text, node)
    close = node.end - 1
    stop = _skip_back(text, close, json5.SPACE)
    if stop == node.start + 1:
        value = dict(entries) if isinstance(node.value, dict) else [item for _, item in entries]
        return [(node.start, node.end, render(value, base, style))], None
    style = _style_inside(text, node, slots, style)
    comma = [(slots[-1].end, slots[-1].end, ",")] if slots and not style.trailing else []
    tail = "," if style.trailing else ""
    one_line = not _BREAK.search(text, node.start, node.end)
    if slots and one_line:
        flat = ", ".join(_entry(entry, _flat(entry[1], style), style) for entry in entries)
        if _fits(text, node, flat):
            return [*comma, (stop, stop, f" {flat}{tail}")], None
    lead = _lead(text, slots[-1].start) if slots else None
    inner = base + style.unit if lead is None else lead
    line = style.newline + inner
    new = ",".join(line + _entry(entry, render(entry[1], inner, style), style) for entry in entries)
    if not one_line and (slots or "\n" in text[stop:close]):
        return [*comma, (stop, stop, new + tail)], None
    moves = [(_skip_back(text, slot.start, json5.SPACE), slot.start, line) for slot in slots]
    return [*moves, *comma, (stop, close, f"{new}{tail}{style.newline}{base}")], inner


def _fits(text: str, node: json5.Node, flat: str) -> bool:
    """Whether another entry fits on the line; always, if the line is too long already."""
    end = text.find("\n", node.end)
    length = (len(text) if end < 0 else end) - text.rfind("\n", 0, node.start) - 1
    return length > MAX_LINE or length + len(flat) + 2 <= MAX_LINE


def remove(text: str, node: json5.Node, starts: set[int]) -> list[Edit]:
    """The edits that remove the members or elements whose values start at `starts`."""
    if not starts:
        return []
    slots = _slots(text, node)
    kept = [slot for slot in slots if slot.value_start not in starts]
    cuts = [
        _cut(text, run[0].start, run[-1].stop, at_the_end=bool(kept) and run[0] > kept[-1])
        for run in _runs(text, slots, starts)
    ]
    if not kept:
        inner, close = node.start + 1, node.end - 1
        around = pairwise([(0, inner, ""), *cuts, (close, close, "")])
        is_empty = not any(text[a:b].strip(json5.SPACE) for (_, a, _), (b, _, _) in around)
        return [(inner, close, "")] if is_empty else cuts
    if slots[-1] is not kept[-1] and slots[-1].comma < 0:
        cuts.append((kept[-1].comma, kept[-1].comma + 1, ""))
    return cuts


def _runs(text: str, slots: list[Slot], starts: set[int]) -> Iterator[list[Slot]]:
    """The slots to remove; adjacent ones on a line together."""
    run: list[Slot] = []
    for slot in slots:
        going = slot.value_start in starts
        if run and (not going or text[run[-1].stop : slot.start].strip(" \t")):
            yield run
            run = []
        if going:
            run.append(slot)
    if run:
        yield run


def _cut(text: str, start: int, stop: int, *, at_the_end: bool) -> Edit:
    """Cut whole lines if nothing else is on them, else also the space on one side."""
    lead, rest = _lead(text, start), _REST_OF_LINE.match(text, stop)
    if lead is not None and rest:
        return start - len(lead), rest.end(), ""
    after = stop
    while text[after] in " \t":
        after += 1
    if at_the_end or text[after] in "\r\n":
        return _skip_back(text, start, " \t"), stop, ""
    return start, after, ""


Path = Sequence[str | int]


def set_value(text: str, path: Path, value: Any) -> str:
    """`text` with the value at `path` set. Missing parents are created."""
    text = _with_root(text)
    root = json5.parse(text)
    value, node, depth = _plain(value), root, 0
    while depth < len(path) and (below := json5.child(node, path[depth])):
        node, depth = below, depth + 1
    if depth < len(path):
        value = _with_entry(node, path, depth, value)
    return _assign(text, root, path[:depth], value)


def unset_value(text: str, path: Path) -> str:
    """`text` without the member or element at `path`, its comma and a comment on its line."""
    root = json5.parse(_with_root(text))
    if not path:
        raise EditError("the whole file cannot be unset")
    node = _find(root, path)
    return apply(text, remove(text, _find(root, path[:-1]), {node.start}))


def merge_patch(text: str, patch: Mapping[str, Any]) -> str:
    """`text` with `patch` merged in: objects merge, null deletes, anything else replaces."""
    text = _with_root(text)
    root = json5.parse(text)
    if not isinstance(root.value, dict):
        raise EditError("the file does not contain an object, so the patch cannot be merged")
    return _assign(text, root, (), merged(root.value, _plain(patch)))


def merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def _plain(value: Any) -> Any:
    """A copy that consists of JSON types only."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise EditError(f"this value cannot be written: {error}") from None


def _with_root(text: str) -> str:
    """`text`, with an empty object appended if it contains no value yet."""
    if json5.skip_gap(text, 0) < len(text):
        return text
    newline = newline_of(text)
    if not text.strip(json5.SPACE):
        text = text[: text.startswith("\ufeff")]
    elif not text.endswith("\n"):
        text += newline
    return f"{text}{{}}{newline}"


def _with_entry(node: json5.Node, path: Path, depth: int, value: Any) -> Any:
    """The new value of `node`, the deepest existing node on `path`, with `value` added."""
    part, where = path[depth], json5.format_path(path)
    for below in reversed(path[depth + 1 :]):
        if isinstance(below, int) and below != 0:
            raise EditError(f"cannot set {where!r}: a new list starts with [0]")
        value = {below: value} if isinstance(below, str) else [value]
    if isinstance(node.value, dict):
        return node.value | {str(part): value}
    if not isinstance(node.value, list):
        above = json5.format_path(path[:depth]) or "the file"
        raise EditError(f"cannot set {where!r}: {above!r} is neither an object nor a list")
    if str(part) != str(len(node.items)):
        raise EditError(f"cannot set {where!r}: the next free index is {len(node.items)}")
    return [*node.value, value]


def _assign(text: str, root: json5.Node, path: Path, value: Any) -> str:
    """Make the existing value at `path` equal to `value`. Additions come last, so that none is
    inside text that another edit removes."""
    style = style_of(text, root)
    try:
        for phase in (_changes, _additions):
            if edits := list(phase(text, _find(root, path), value, style)):
                text = apply(text, edits)
                root = json5.parse(text)
    except json5.Json5Error as error:
        raise EditError(f"this value cannot be written: {error.message}") from None
    return text


def _find(root: json5.Node, path: Path) -> json5.Node:
    node = json5.locate(root, path)
    if not node:
        raise EditError(f"{json5.format_path(path)!r} is not set")
    return node


def _changes(text: str, node: json5.Node, value: Any, style: Style) -> Iterator[Edit]:
    """The edits that remove or replace; additions are made by `_additions`."""
    old = node.value
    if isinstance(old, dict) and isinstance(value, dict):
        gone = {member.node.start for key, member in node.members.items() if key not in value}
        yield from remove(text, node, gone)
        for key, member in node.members.items():
            if key in value:
                yield from _changes(text, member.node, value[key], style)
    elif isinstance(old, list) and isinstance(value, list) and len(old) <= len(value):
        for item, new in zip(node.items, value, strict=False):
            yield from _changes(text, item, new, style)
    elif type(old) is not type(value) or old != value:
        yield node.start, node.end, render(value, indent_of(text, node.start), style)


def _additions(
    text: str, node: json5.Node, value: Any, style: Style, moved: str | None = None
) -> Iterator[Edit]:
    """The edits that add entries missing in `node`. `moved` is the indent of its line, if other
    edits move it; everything below is then on that line as well."""
    below: list[tuple[json5.Node, Any]] = []
    entries: list[Entry] = []
    if isinstance(node.value, dict):
        below = [(member.node, value[key]) for key, member in node.members.items()]
        entries = [(key, item) for key, item in value.items() if key not in node.members]
    elif isinstance(node.value, list):
        below = list(zip(node.items, value, strict=False))
        entries = [(None, item) for item in value[len(below) :]]
    if entries:
        base = indent_of(text, node.start) if moved is None else moved
        edits, inner = insert(text, node, entries, style, base)
        moved = moved if inner is None else inner
        yield from edits
    for item, item_value in below:
        yield from _additions(text, item, item_value, style, moved)
