"""The front matter of SKILL.md: a small part of YAML, with JSON5 for objects.

Plain and quoted scalars, `|` and `>` blocks, lists of scalars, maps, and JSON5 over several lines.
Anchors, aliases, tags and everything else are errors. Values are strings, booleans, lists and maps;
numbers stay strings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from clawkit.config.json5 import Json5Error
from clawkit.config.json5 import parse as parse_json5

MAX_DEPTH = 8
MAX_LINES = 1_000
_FENCE = re.compile(r"---[ \t]*")
_MEMBER = re.compile(r"([A-Za-z_][\w.-]*+|\"[^\"\\]++\"|'[^']++')[ \t]*+:(?:[ \t]++(.*))?")
_ITEM = re.compile(r"[ ]*+-[ \t]++(.+)")
_BLOCK = re.compile(r"([|>])(-?)")
_FOLDED = re.compile(r"(?m)^([^ \t\n].*+)(\n++)(?=[^ \t])")
_COMMENT = re.compile(r"(?:^|[ \t])#.*")
_QUOTED = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')[ \t]*+(?:(?<=[ \t])#.*)?""")
_WORD_LIST = re.compile(r"\[([^\[\]{}\"':#&*!|>%@`]*+)\]")
_UNSUPPORTED = re.compile(r"[&*!|>%@`{}\[\],#]|[-?:](?: |$)|.*(?:: |:$|\t)")
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_CONSTANTS: dict[str, str | bool] = {"null": "", "Null": "", "NULL": "", "~": ""} | {
    form: value for word, value in _WORDS.items() for form in (word, word.title(), word.upper())
}


class FrontMatterError(ValueError):
    """An error, and its line in the file."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")


def read_front_matter(text: str) -> dict[str, Any]:
    """The front matter of a file. Raises `FrontMatterError`."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n", MAX_LINES + 2)
    if not _FENCE.fullmatch(lines[0]):
        raise FrontMatterError(1, "the file does not start with front matter (`---`)")
    for end, line in enumerate(lines[1 : MAX_LINES + 2], 1):
        if _FENCE.fullmatch(line):
            return _read_map(lines[1:end], 2)
    raise FrontMatterError(len(lines), f"no closing `---` in the first {MAX_LINES} lines")


def _read_map(lines: Sequence[str], first: int, depth: int = 0) -> dict[str, Any]:
    """The map in lines that are not indented; `first` is the number of the first line."""
    if depth > MAX_DEPTH:
        raise FrontMatterError(first, "nested too deeply")
    found: dict[str, Any] = {}
    at = 0
    while at < len(lines):
        number = first + at
        line = lines[at].rstrip()
        at += 1
        if not line or line.startswith("#"):
            continue
        member = _MEMBER.fullmatch(line)
        if member is None:
            raise FrontMatterError(number, "expected `key: value`, indented like the line before")
        start = at
        while at < len(lines) and (not lines[at].strip() or lines[at][0] in " -"):
            at += 1
        key = member[1].strip("\"'")
        if key in found:
            raise FrontMatterError(number, f"{key!r} is set twice")
        found[key] = _read_value(member[2] or "", lines[start:at], number, depth)
    return found


def _read_value(text: str, below: Sequence[str], number: int, depth: int) -> Any:
    """The value after a key in line `number`, with the lines that belong to it."""
    plain = _COMMENT.sub("", text).rstrip()
    at = next((at for at, row in enumerate(below) if row.strip()), len(below))
    first = below[at].lstrip(" ") if at < len(below) else ""
    if block := _BLOCK.fullmatch(plain):
        rows = _dedent(below, number + 1)
        kept = (_fold(rows) if block[1] == ">" else "\n".join(rows)).rstrip("\n")
        return kept if block[2] or not kept else f"{kept}\n"
    if (plain or first).startswith(("{", "[")):
        return _read_flow("\n".join((text, *below)), number)
    if plain:
        if first:
            raise FrontMatterError(number + at + 1, "a value over several lines needs `>` or `|`")
        return _read_scalar(text, number)
    if not _ITEM.fullmatch(first):
        return _read_map(_dedent(below, number + 1), number + 1, depth + 1) if first else ""
    items = []
    for row, line in enumerate(_dedent(below, number + 1), number + 1):
        if line and not line.startswith("#"):
            if not line.startswith("-") or not (item := _ITEM.fullmatch(line)):
                raise FrontMatterError(row, "expected `- item`")
            items.append(_read_scalar(item[1], row))
    return items


def _dedent(lines: Sequence[str], number: int) -> list[str]:
    """The lines without the indentation of the first one."""
    indents = [len(line) - len(line.lstrip(" ")) for line in lines]
    indent = next((each for each, line in zip(indents, lines, strict=True) if line.strip()), 0)
    for at, line in enumerate(lines):
        if line.strip() and indents[at] < indent:
            raise FrontMatterError(number + at, "indented less than the lines it belongs to")
    return [line[indent:].rstrip() for line in lines]


def _fold(rows: Sequence[str]) -> str:
    """Join the lines of a paragraph; blank and indented lines keep their line breaks."""
    return _FOLDED.sub(lambda found: found[1] + (found[2][1:] or " "), "\n".join(rows))


def _read_scalar(text: str, number: int) -> str | bool:
    if text.startswith(('"', "'")):
        quoted = _QUOTED.fullmatch(text.rstrip())
        if quoted and text[0] == "'":
            return quoted[1][1:-1].replace("''", "'")
        try:
            return str(json.loads(quoted[1] if quoted else "", strict=False))
        except ValueError:
            why = "the quotes do not end on this line, or have an unsupported escape"
            raise FrontMatterError(number, why) from None
    plain = _COMMENT.sub("", text).rstrip()
    if _UNSUPPORTED.match(plain):
        raise FrontMatterError(number, "unsupported YAML; put the value in quotes")
    return _CONSTANTS.get(plain, plain)


def _read_flow(text: str, number: int) -> Any:
    if words := _WORD_LIST.fullmatch(_COMMENT.sub("", text).strip()):
        return [each.strip() for each in words[1].split(",") if each.strip()]
    try:
        return parse_json5(text).value
    except Json5Error as error:
        what = f"invalid JSON5: {error.message}"
        raise FrontMatterError(number + error.line - 1, what) from None
