"""Shell syntax in JavaScript files: what can only be a mistake."""

from __future__ import annotations

import re

from clawkit.process.preflight.finding import MAX_CHARS, PIECE_CHARS, SHELL_SHEBANG, Finding
from clawkit.text import one_line

_TOKEN = re.compile(
    r"""(?P<space>[^\S\n]++|\n)
    | (?P<word>\#?[\w$]++)
    | (?P<string>["'])
    | (?P<template>`)
    | (?P<comment>//[^\n]*+|/\*)
    | (?P<slash>/)
    | (?P<bracket>[(){}\[\]])
    | (?P<sign>\+\+|--|<<|=>|\?\.(?!\d)|\.{3}|.)""",
    re.VERBOSE,
)
_STRING_ENDS = {
    '"': re.compile(r'[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"', re.DOTALL),
    "'": re.compile(r"[^'\\\n]*+(?:\\.[^'\\\n]*+)*+'", re.DOTALL),
}
_TEMPLATE = re.compile(r"[^`\\$]*+(?:(?:\\.|\$(?!\{))[^`\\$]*+)*+(?:`|\$\{)", re.DOTALL)
_REGEX = re.compile(r"(?:[^/\\\[\n]++|\\[^\n]|\[(?:[^\]\\\n]++|\\[^\n])*+\])++/\w*+")

_BEFORE_VALUE = frozenset(
    (
        *("return", "typeof", "instanceof", "in", "of", "new", "delete", "void", "throw", "case"),
        *("do", "else", "yield", "await", "default", "extends"),
    )
)
"""Words that a value follows, so that a slash after them begins a regular expression."""
_BEFORE_BLOCK = frozenset(("do", "else", "try", "finally"))
_BEFORE_CONDITION = frozenset(("if", "while", "for", "with"))
_MAX_TRIES = 100
"""Slashes that could have begun a regular expression and did not; after these it is given up."""

_NAME = r"(?!(?:in|instanceof|of|as|satisfies)\b)[A-Za-z_$][\w$]*+"
_NO_CALL = r"(?!(?:async|await|case|class|delete|function|new|of|return|throw|typeof|void|yield)\b)"
_STATEMENT = re.compile(
    rf"""^[ \t]*+(?P<piece>
      export[ \t]++(?P<export>[A-Za-z_]\w*+)=(?![=>])
    | (?P<echo>echo)[ \t]++(?:-[neE]++[ \t]++)?(?:"|{_NAME})
    | (?P<source>source)[ \t]++(?:\.{{1,2}}/|~/)
    | (?P<test>if|while)[ \t]++(?:![ \t]*+)?\[\[?[ \t]
    | (?P<block>if|elif|while|until|for)[ \t][^\n(]{{0,400}}?;[ \t]*+(?:then|do)[ \t]*+$
    | (?P<comment>\#)(?:[ \t#]|$)
    )""",
    re.MULTILINE | re.VERBOSE,
)
_DOLLAR = re.compile(
    rf"""(?<![\w$])\$(?:
      \{{(?P<name>[A-Za-z_]\w*+)(?::?[-=?+][^}}\n]{{0,80}})?\}}
    | (?P<command>\([ \t]*+{_NO_CALL}[A-Za-z_][\w-]*+[ \t]++{_NAME}[^)\n]{{0,80}}\)?)
    )""",
    re.VERBOSE,
)
_CLASS = re.compile(r"\b(?:class|extends)\s+$")
_WORD = re.compile(r"^(?:fi|done|esac|then)[ \t]*+;?[ \t]*+$", re.MULTILINE)
_OPENING = re.compile(r"[(\[{]")
_CLOSING = re.compile(r"[)\]}]")

_STATEMENTS = {
    "echo": ("a shell command", "Write console.log(…)."),
    "source": (
        "a shell command",
        "Set the variables with process.env, or source the file before the script is run.",
    ),
    "test": ("a shell test", "Write a JavaScript condition, such as if (fs.existsSync(…)) {."),
    "block": ("a shell block", "Write the JavaScript statement: (…) for the condition, {…} after."),
    "comment": ("a shell comment", "Begin comments with //."),
}


def check_javascript(text: str) -> Finding | None:
    """The first piece of shell in a JavaScript file; None when it may well be JavaScript."""
    if len(text) > MAX_CHARS:
        return None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if shebang := SHELL_SHEBANG.match(text):
        piece = one_line(shebang[0], PIECE_CHARS)
        what = "the first line of a shell script"
        return Finding(1, piece, what, "Write the file in JavaScript.")
    masked = _mask(text)
    found = (_find_statement(text, masked), _find_dollar(text, masked), _find_word(text, masked))
    return min((each for each in found if each), default=None, key=lambda each: each.line)


def _find_statement(text: str, masked: str) -> Finding | None:
    found = _STATEMENT.search(masked)
    if not found:
        return None
    start = found.start("piece")
    if name := found["export"]:
        fix = f'Write process.env.{one_line(name, PIECE_CHARS)} = "…".'
        piece = one_line(f"export {name}", PIECE_CHARS)
        return Finding(_line(text, start), piece, "a shell export", fix)
    what, fix = next(_STATEMENTS[kind] for kind in _STATEMENTS if found[kind])
    return Finding(_line(text, start), _piece(text, start, _end_of_line(text, start)), what, fix)


def _find_dollar(text: str, masked: str) -> Finding | None:
    for found in _DOLLAR.finditer(masked):
        # A class may have the name `$`.
        if _CLASS.search(masked[max(0, found.start() - 20) : found.start()]):
            continue
        piece, line = _piece(text, found.start(), found.end()), _line(text, found.start())
        if name := found["name"]:
            fix = f"Write process.env.{one_line(name, PIECE_CHARS)}."
            return Finding(line, piece, "a shell variable", fix)
        fix = "Write execFileSync(…) from node:child_process."
        return Finding(line, piece, "a shell command", fix)
    return None


def _find_word(text: str, masked: str) -> Finding | None:
    """The end of a shell block, where no bracket is open: elsewhere it may be a name in a list."""
    depth = at = 0
    for found in _WORD.finditer(masked):
        between = masked[at : found.start()]
        depth += len(_OPENING.findall(between)) - len(_CLOSING.findall(between))
        at = found.start()
        if depth == 0 and not _goes_on(masked, found.start(), found.end()):
            fix = "Take it out: JavaScript blocks stand in braces."
            piece = _piece(text, found.start(), found.end())
            return Finding(_line(text, found.start()), piece, "a word of shell blocks", fix)
    return None


def _goes_on(masked: str, start: int, end: int) -> bool:
    """Whether a line may be the middle of an expression."""
    before = masked[max(0, start - 1_000) : start].rstrip()
    after = masked[end : end + 1_000].lstrip()
    if not before and start > 1_000:
        return True  # nothing but comments for so long: what is before them is not looked for
    return before[-1:] not in (";", "}", ")", '"', "") or not re.match(r"[\w$;]|$", after)


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _piece(text: str, start: int, end: int) -> str:
    return one_line(text[start:end], PIECE_CHARS)


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return end if end >= 0 else len(text)


def _mask(text: str) -> str:
    """The text with strings as quotes, templates as backticks, regular expressions as zeros and
    comments as spaces; each character stays where it is.

    It ends with the line on which the text stops being clear. It is empty when a template has no
    end: then what seems to be code may be what a template says, such as a shell script.
    """
    reader = _Reader(text)
    while reader.read():
        pass
    return "" if reader.is_in_template else "".join(reader.parts)


class _Reader:
    """JavaScript token by mark, as far as it takes to tell code from everything else."""

    def __init__(self, text: str) -> None:
        self.parts: list[str] = []
        self._text = text
        self._at = 0
        self._open: list[tuple[str, bool]] = []
        """Open brackets, each with whether it makes a value; `$` stands for those of templates."""
        self._last = ""
        """The token before, spaces and comments left out."""
        self._is_value = False
        """Whether a value has just ended, so that a slash divides."""
        self._tries = 0
        if text.startswith("#!"):
            self._fill(_end_of_line(text, 0), " ")

    @property
    def is_in_template(self) -> bool:
        return self._last == "`…" or any(bracket == "$" for bracket, _ in self._open)

    def read(self) -> bool:
        """Read a token; False at the end, or where the text stops being clear."""
        found = _TOKEN.match(self._text, self._at)
        if not found:
            return False
        kind, mark, end = found.lastgroup, found[0], found.end()
        if kind == "space":
            self._fill(end)
        elif kind == "comment":
            return self._read_comment(mark, end)
        elif kind == "word":
            self._is_value = mark not in _BEFORE_VALUE or self._last in (".", "?.")
            self._take(mark, end)
        elif kind == "string":
            return self._read_until(_STRING_ENDS[mark], end, '"')
        elif kind == "template":
            return self._read_template(end)
        elif kind == "slash":
            return self._read_slash(end)
        elif kind == "bracket":
            return self._open_bracket(mark, end) if mark in "([{" else self._close(mark, end)
        else:
            return self._read_sign(mark, end)
        return True

    def _fill(self, end: int, filler: str = "") -> None:
        part = self._text[self._at : end]
        self.parts.append(filler * len(part) if filler else part)
        self._at = end

    def _take(self, mark: str, end: int, filler: str = "") -> None:
        self._fill(end, filler)
        self._last = mark

    def _give_up(self) -> bool:
        """Keep the rest of the line, which may be a shell's, but for its variables."""
        end = _end_of_line(self._text, self._at)
        self.parts.append(self._text[self._at : end].replace("$", "_"))
        return False

    def _read_comment(self, mark: str, end: int) -> bool:
        if mark == "/*":
            end = self._text.find("*/", end) + 2
            if end < 2:
                return self._give_up()
        self._fill(end, " ")
        return True

    def _read_until(self, pattern: re.Pattern[str], at: int, filler: str) -> bool:
        found = pattern.match(self._text, at)
        if not found:
            return self._give_up()
        self._is_value = True
        self._take(filler, found.end(), filler)
        return True

    def _read_template(self, at: int) -> bool:
        """The template up to its end, or to the next value in it."""
        found = _TEMPLATE.match(self._text, at)
        if not found:
            self._last = "`…"
            return False
        self._is_value = found[0].endswith("`")
        if not self._is_value:
            self._open.append(("$", True))
        self._take("`" if self._is_value else "${", found.end(), "`")
        return True

    def _read_slash(self, end: int) -> bool:
        if not self._is_value:
            if _REGEX.match(self._text, end):
                return self._read_until(_REGEX, end, "0")
            # After these brackets it may divide all the same.
            self._tries += 1
            if self._last not in (")", "}") or self._tries > _MAX_TRIES:
                return self._give_up()
        self._is_value = False
        self._take("/", end)
        return True

    def _open_bracket(self, mark: str, end: int) -> bool:
        makes_value = True
        if mark == "(":
            makes_value = self._last not in _BEFORE_CONDITION
        elif mark == "{":
            makes_value = self._begins_object()
        self._open.append((mark, makes_value))
        self._is_value = False
        self._take(mark, end)
        return True

    def _begins_object(self) -> bool:
        last = self._last
        if last == ":":
            return bool(self._open) and self._open[-1] != ("{", False)
        if last[:1].isalnum() or last[:1] in ("_", "$", "#"):
            return last == "${" or (last in _BEFORE_VALUE and last not in _BEFORE_BLOCK)
        return last not in ("", ";", "{", "}", ")", "=>", '"', "`")

    def _close(self, mark: str, end: int) -> bool:
        opened, makes_value = self._open[-1] if self._open else ("", False)
        if opened == "$" and mark == "}":
            self._open.pop()
            return self._read_template(end)
        if opened + mark not in ("()", "[]", "{}"):
            return self._give_up()
        self._open.pop()
        self._is_value = makes_value
        self._take(mark, end)
        return True

    def _read_sign(self, mark: str, end: int) -> bool:
        after = self._text[end : end + 1]
        if mark == "<" and not self._is_value and re.match(r"[A-Za-z_$>!]", after):
            return False  # a tag: what follows is text, not code
        if mark == "#":
            start = self._text.rfind("\n", 0, self._at) + 1
            if self._text[start : self._at].strip() or after not in (" ", "\t", "#", "\n", ""):
                return self._give_up()
            self._fill(end)
            self._fill(_end_of_line(self._text, end), " ")
            return True
        if mark not in ("++", "--"):
            self._is_value = mark == "." and self._last.isdecimal()
        self._take(mark, end)
        return True
