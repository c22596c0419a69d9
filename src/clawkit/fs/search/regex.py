"""Expressions in ripgrep's syntax, for `re`.

Both are Unicode throughout, so most of an expression means the same in both. What differs is
written anew, and what `re` cannot do (or ripgrep would refuse) is refused with its position.
"""

from __future__ import annotations

import re
import sys
from typing import NamedTuple, NoReturn

from clawkit.errors import ToolInputError

MAX_DEPTH = 200
"""Groups within groups; `re` calls itself for each."""

_SPACE = r" \t\r\f\v\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""The white space of Unicode, without the line break."""
_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r" \t-\r",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a"}
_EDGES = {
    r"\b{start}": r"\b(?=\w)",
    r"\b{end}": r"\b(?<=\w)",
    r"\b{start-half}": r"(?<!\w)",
    r"\b{end-half}": r"(?!\w)",
    r"\<": r"\b(?=\w)",
    r"\>": r"\b(?<=\w)",
    r"\b": r"\b",
    r"\B": r"\B",
}
_ENDS = {"A": "^", "z": "$"}
_SHORT = frozenset("dDsSwW")
_EDGE = re.compile("|".join(map(re.escape, _EDGES)))
_HEX = re.compile(
    r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|[xuU]\{([0-9A-Fa-f]{1,8})\})"
)
_REPEAT = re.compile(r"(?:[*+?]|\{([0-9]+)(?:,([0-9]*))?\})\??")
_GROUP = re.compile(r"\((?:\?P?<[^\W\d]\w*>|(?!\?))")
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]+))?([:)])")
_POSIX_CLASS = re.compile(rf"\[:({'|'.join(_POSIX)}):\]")


class Regex(NamedTuple):
    """An expression that finds what ripgrep's would."""

    pattern: re.Pattern[str]
    whole: bool
    """It has to see the whole file: a match may go on in the next line, or ask where it ends."""


class _Flags(NamedTuple):
    i: bool
    m: bool = True
    s: bool = False


class _Group(NamedTuple):
    start: int
    flags: _Flags
    """Those that hold again after it."""
    wraps: list[str]
    """Groups opened for flags that were set inside it; in `re` a flag needs a group."""


def compile_regex(pattern: str, *, literal: bool, ignore_case: bool, multiline: bool) -> Regex:
    """Without `multiline`, what could match a line break does not; `^` and `$` are about lines."""
    reader = _Reader(pattern, ignore_case=ignore_case, multiline=multiline)
    text = reader.read_literal() if literal else reader.read()
    try:
        compiled = re.compile(text, re.MULTILINE | (re.IGNORECASE if ignore_case else 0))
    except (re.error, OverflowError) as error:
        raise ToolInputError(f"the pattern cannot be used: {error}") from None
    return Regex(compiled, reader.whole)


class _Reader:
    """Reads an expression and writes it anew."""

    def __init__(self, source: str, *, ignore_case: bool, multiline: bool) -> None:
        self.whole = False
        self._source = source
        self._at = 0
        self._multiline = multiline
        self._flags = _Flags(ignore_case)
        self._groups = [_Group(0, self._flags, [])]
        self._out: list[str] = []
        self._repeatable = False

    def read_literal(self) -> str:
        for char in self._source:
            self._put_char(char)
        return "".join(self._out)

    def read(self) -> str:
        while self._at < len(self._source):
            char = self._source[self._at]
            if char == "(":
                self._open()
            elif char == ")":
                self._close()
            elif char == "|":
                wraps = self._groups[-1].wraps
                self._put(f"{')' * len(wraps)}|{''.join(wraps)}", 1, repeatable=False)
            elif repeat := _REPEAT.match(self._source, self._at):
                self._repeat(repeat)
            elif char in "^$":
                self._put_end(char, 1, by_line=self._flags.m)
            elif char == ".":
                every = self._flags.s and self._multiline
                self._put("(?s:.)" if every else ".", 1, whole=every)
            elif char == "[":
                self._read_class()
            elif char == "\\":
                self._read_escape()
            else:
                self._put_char(char)
        if len(self._groups) > 1:
            start = self._groups[-1].start
            self._refuse("this group is never closed; write '\\(' for the character", start)
        return "".join(self._out) + ")" * len(self._groups[0].wraps)

    def _put(self, text: str, length: int, *, repeatable: bool = True, whole: bool = False) -> None:
        """Writes what stands for the next `length` characters."""
        self._out.append(text)
        self._at += length
        self._repeatable = repeatable
        self.whole |= whole

    def _put_char(self, char: str, length: int = 1) -> None:
        if char == "\n" and not self._multiline:
            self._refuse("a line has no line break in it; set multiline to search across lines")
        self._put(re.escape(char), length, whole=char == "\n")

    def _put_end(self, end: str, length: int, *, by_line: bool) -> None:
        by_line = by_line or not self._multiline
        text = end if by_line else r"\A" if end == "^" else r"\Z"
        self._put(text, length, repeatable=False, whole=not by_line)

    def _refuse(self, why: str, at: int | None = None) -> NoReturn:
        at = self._at if at is None else at
        near = self._source[max(0, at - 20) : at + 20]
        raise ToolInputError(f"the pattern is wrong at character {at + 1}, near {near!r}: {why}")

    def _lack(self, what: str, at: int | None = None) -> NoReturn:
        self._refuse(f"{what} cannot be searched for without ripgrep; write it in another way", at)

    def _repeat(self, repeat: re.Match[str]) -> None:
        low, high = repeat[1], repeat[2]
        if not self._repeatable:
            self._refuse("there is nothing here that can be repeated; write '\\' before it")
        if low and high and int(low) > int(high):
            self._refuse(f"the least is more than the most; write {{{high},{low}}}")
        if _REPEAT.match(self._source, repeat.end()):
            self._lack("a repetition of a repetition")
        self._put(repeat[0], len(repeat[0]), repeatable=False)

    def _open(self) -> None:
        depth = len(self._groups) + sum(len(group.wraps) for group in self._groups)
        if depth > MAX_DEPTH:
            self._refuse(f"more than {MAX_DEPTH} groups are within each other here")
        if group := _GROUP.match(self._source, self._at):
            self._groups.append(_Group(self._at, self._flags, []))
            self._put("(?:", len(group[0]), repeatable=False)
        elif flags := _FLAGS.match(self._source, self._at):
            self._set_flags(*flags.groups(""), length=len(flags[0]))
        elif self._source.startswith(("(?=", "(?!", "(?<=", "(?<!"), self._at):
            self._refuse("look-around is not supported; look for more and choose from the hits")
        else:
            self._refuse("no such group; write '(?:…)', '(?P<name>…)' or '\\(' for the character")

    def _set_flags(self, on: str, off: str, end: str, *, length: int) -> None:
        if unknown := set(on) - set("imsu") or set(off) - set("imsxUR"):
            self._lack(f"the flag {min(unknown)!r}")
        before = self._flags
        change = {
            **dict.fromkeys(set(on) - {"u"}, True),
            **dict.fromkeys(set(off) & {*"ims"}, False),
        }
        flags = before._replace(**change)
        text = "(?:" if flags.i == before.i else "(?i:" if flags.i else "(?-i:"
        if end == ":":
            self._groups.append(_Group(self._at, before, []))
        elif flags.i == before.i:
            text = ""
        else:
            self._groups[-1].wraps.append(text)
        self._flags = flags
        self._put(text, length, repeatable=False)

    def _close(self) -> None:
        if len(self._groups) == 1:
            self._refuse("this closes no group; write '\\)' for the character")
        group = self._groups.pop()
        self._flags = group.flags
        self._put(")" * (len(group.wraps) + 1), 1)

    def _read_escape(self) -> None:
        letter = self._source[self._at + 1 : self._at + 2]
        if edge := _EDGE.match(self._source, self._at):
            self._put(_EDGES[edge[0]], len(edge[0]), repeatable=False)
        elif letter in _ENDS:
            self._put_end(_ENDS[letter], 2, by_line=False)
        elif letter in _SHORT:
            self._put_class(letter.isupper(), self._short(letter.lower()), 2)
        else:
            self._put_char(*self._escaped())

    def _escaped(self) -> tuple[str, int]:
        """The character that the escape here stands for, and how long it is."""
        letter = self._source[self._at + 1 : self._at + 2]
        if not letter:
            self._refuse("nothing follows the backslash")
        if letter in _CONTROLS:
            return _CONTROLS[letter], 2
        if hexadecimal := _HEX.match(self._source, self._at):
            code = int(hexadecimal[hexadecimal.lastindex or 0], 16)
            if code > sys.maxunicode or 0xD800 <= code < 0xE000:
                self._refuse("there is no character of this number")
            return chr(code), len(hexadecimal[0])
        if letter in "pP":
            self._lack("a Unicode class")
        if letter.isdigit():
            self._refuse("backreferences are not supported; write out what is to be repeated")
        if letter.isalnum() or not letter.isascii():
            self._refuse(f"this escape stands for nothing; write {letter!r} for the character")
        return letter, 2

    def _short(self, letter: str) -> str:
        """What a class like `\\d` has in it; a line break only if there can be one."""
        return _SPACE + r"\n" * self._multiline if letter == "s" else f"\\{letter}"

    def _put_class(self, negated: bool, items: str, length: int) -> None:
        text = f"[^{items}]" if negated else f"[{items}]"
        breaks = re.match(text, "\n") is not None
        if breaks and not self._multiline:
            # The first is much faster, but only a negated class can be made smaller like that.
            text = rf"[^{items}\n]" if negated else rf"(?!\n){text}"
        self._put(text, length, whole=breaks and self._multiline)

    def _read_class(self) -> None:
        start = self._at
        negated = self._source.startswith("^", start + 1)
        self._at = first = start + 1 + negated
        items: list[str] = []
        while self._at == first or not self._source.startswith("]", self._at):
            if self._at == len(self._source):
                self._refuse("this class is never closed; write '\\[' for the character", start)
            items.append(self._class_item())
        length = self._at + 1 - start
        self._at = start
        self._put_class(negated, "".join(items), length)

    def _class_item(self) -> str:
        if posix := _POSIX_CLASS.match(self._source, self._at):
            self._at = posix.end()
            return _POSIX[posix[1]]
        if self._source.startswith(("[", "&&", "--", "~~"), self._at):
            self._lack("a class that is made of others")
        low = high = self._class_char()
        if len(low) > 1:
            return low
        at = self._at
        if self._source.startswith("-", at) and self._source[at + 1 : at + 2] not in ("", "]", "-"):
            self._at += 1
            high = self._class_char()
            if len(high) > 1 or low > high:
                self._refuse("this range ends before it begins, or ends in no character", at - 1)
        return f"{re.escape(low)}-{re.escape(high)}"

    def _class_char(self) -> str:
        """One character, or what a shorthand stands for."""
        char = self._source[self._at]
        if char != "\\":
            self._at += 1
            return char
        letter = self._source[self._at + 1 : self._at + 2]
        if letter in _SHORT:
            self._at += 2
            return self._short(letter)
        char, length = self._escaped()
        self._at += length
        return char
