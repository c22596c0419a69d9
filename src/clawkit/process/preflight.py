"""A look at the scripts a command is about to run, for shell syntax that their language lacks.

It is a help, not a barrier: what cannot be read for certain is let through.
"""

from __future__ import annotations

import ast
import os
import re
import stat
import warnings
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from clawkit.core.tasks import in_thread
from clawkit.text import one_line

MAX_BYTES = 524_288
_PIECE_CHARS = 60
"""How much of a script a finding quotes."""
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Finding(NamedTuple):
    """A piece of a script that its language does not have."""

    line: int
    text: str
    """The piece, cut short."""
    what: str
    """What it is, such as `a shell variable`."""
    fix: str
    """What to write instead: a sentence."""


async def check(
    scripts: Iterable[tuple[str, str]], read: Callable[[str], Awaitable[bytes | None]]
) -> str:
    """What is wrong with scripts, and what to do about it; empty when nothing is.

    Each is a language, `python` or `javascript`, and an absolute path. `read` gives a file where
    the command is to run; None when it is missing, too large, binary, or not a regular file.
    """
    checks = {"python": ("Python", check_python), "javascript": ("JavaScript", check_javascript)}
    for name, path in scripts:
        data = await read(path)
        if data is None or len(data) > MAX_BYTES:
            continue
        language, find = checks[name]
        found: Finding | None = await in_thread(find, data.decode("utf-8-sig", "replace"))
        if found:
            head = f"{path!r}, line {found.line}: `{found.text}` is {found.what}, not {language}."
            text = f"{head} The command was not run. {found.fix}"
            if "shell" in found.what:
                text += " If the file is meant to be a shell script, name it .sh and run it with"
                text += " bash."
            return text
    return ""


async def read_script(
    path: str, *, workspace: str, may_read: Callable[[str], bool]
) -> bytes | None:
    """A script of this machine that is in the workspace and may be read, judged by its real path;
    None for any other, and when it is missing, too large, binary, or not a regular file."""
    data: bytes | None = await in_thread(_read, path, workspace, may_read)
    return data


def _read(path: str, workspace: str, may_read: Callable[[str], bool]) -> bytes | None:
    try:
        fd = os.open(path, _FLAGS)
    except (OSError, ValueError):
        return None
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_BYTES:
            return None
        # What is quoted from it reaches the model: it must be nothing that commands cannot read.
        place = _locate(fd, info)
        start = f"{os.path.realpath(workspace).rstrip('/')}/"
        if not place.startswith(start) or not may_read(place) or _locate(fd, info) != place:
            return None
        with open(fd, "rb", closefd=False) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError:
        return None
    finally:
        os.close(fd)
    return None if len(data) > MAX_BYTES or b"\0" in data else data


def _locate(fd: int, info: os.stat_result) -> str:
    """The path of an open file; empty, or OSError, when the file is no longer there."""
    place = os.readlink(f"/proc/self/fd/{fd}")
    found = os.lstat(place)
    return place if (found.st_dev, found.st_ino) == (info.st_dev, info.st_ino) else ""


_SHEBANG = re.compile(
    r"\ufeff?#![ \t]*+(?:/\S{0,80}/)?(?:env[ \t]+(?:-\S{1,10}[ \t]+)?)?(?:ba|da|z|k|a)?sh(?=\s|$)"
)
_NAMED = re.compile(r"(?:export[ \t]+|\$\{?[#!]?)([A-Za-z_]\w*)")
"""The variable that a piece is about."""
_SHELL_WORD = "a word of shell blocks"


def _report(
    text: str, found: re.Match[str], table: dict[str, tuple[str, str]], or_local: str = ""
) -> Finding:
    """The finding for a match in the masked text, by the name of its group. `or_local` continues
    the fix for a variable that may well be one of the script."""
    start = found.end() - len(found[0].lstrip())
    kind = found.lastgroup or ""
    named = _NAMED.match(text, start)
    name = one_line(named[1], _PIECE_CHARS) if named else ""
    what, fix = table[kind]
    if kind == "variable" and not name.isupper():
        fix = fix.removesuffix(".") + or_local
    if kind == "export":
        piece = f"export {name}"
    else:
        piece = text[start : found.end() if text[start] == "$" else _end_of_line(text, start)]
    line = text.count("\n", 0, start) + 1
    return Finding(line, one_line(piece, _PIECE_CHARS), what, fix.replace("NAME", name))


def _check_shebang(text: str, language: str) -> Finding | None:
    found = _SHEBANG.match(text)
    piece = one_line(found[0], _PIECE_CHARS) if found else ""
    what, fix = "the first line of a shell script", f"Write the file in {language}."
    return Finding(1, piece, what, fix) if found else None


def _unix_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return end if end >= 0 else len(text)


# Python

_CODING = re.compile(r"[ \t\f]*+#[^\n]{0,200}?coding[:=][ \t]*+([-\w.]{1,40})")
_ASCII_BASED = re.compile(r"utf[-_]?8|(?:us-)?ascii|latin|iso[-_]?8859|cp125|koi8", re.IGNORECASE)

_MARK = re.compile(r"[#\\()\[\]{}]|\"\"\"|'''|[\"']")
_MARK_IN_BRACKETS = re.compile(rf"\n|{_MARK.pattern}")
_PREFIX = re.compile(r"(?<!\w)(?:[rR]?[fFtT]|[fFtT][rR])$")
_STRING_ENDS = {
    '"': re.compile(r'[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"?', re.DOTALL),
    "'": re.compile(r"[^'\\\n]*+(?:\\.[^'\\\n]*+)*+'?", re.DOTALL),
    '"""': re.compile(r'[^"\\]*+(?:(?:\\.|"(?!""))[^"\\]*+)*+(?:""")?', re.DOTALL),
    "'''": re.compile(r"[^'\\]*+(?:(?:\\.|'(?!''))[^'\\]*+)*+(?:''')?", re.DOTALL),
}
_LITERAL_MARK = re.compile(r"\\[\\\"'\n]|\{\{|[{\n]|\"\"\"|'''|[\"']")
_FIELD_MARK = re.compile(r"[()\[\]{}:#]|\"\"\"|'''|[\"']")

# Words after which a name is not yet another one: `echo if x else y` is an expression.
_PYTHON_NAME = r"(?!(?:and|or|in|is|if|not|else|for|async)\b)[A-Za-z_]\w*+"
_PYTHON = re.compile(
    rf"""^[ \t\f]*+(?:
      (?P<export>export)[ \t]++[A-Za-z_]\w*+(?:=|[ \t]*+$)
    | (?P<echo>echo)[ \t]++(?:-[neE]++[ \t]++)?(?:["$]|{_PYTHON_NAME})
    | (?P<source>source)[ \t]++(?:\.{{0,2}}/|~/|["$]|{_PYTHON_NAME})
    | (?P<test>if|elif|while|until)[ \t]++(?:![ \t]*+)?\[\[?[ \t]++
        (?:(?:![ \t]++)?-[A-Za-z][ \t]++(?:["$./~]|{_PYTHON_NAME})
          |[^\n]{{0,200}}?\][ \t]*+(?:;|&&|$))
    | (?P<block>if|elif|while|until|for|select)[ \t][^\n]{{0,400}}?;[ \t]*+(?:then|do)[ \t]*+$
    | (?P<word>fi|done|esac|then)[ \t]*+;?[ \t]*+$
    | (?P<bang>!!?)[ \t]*+[\w./~$]
    | (?P<magic>%%?)[A-Za-z_]
    )
    | (?P<variable>\$(?:[A-Za-z_]\w*+|\{{[#!]?[A-Za-z_]\w*+[^}}\n]{{0,80}}\}}?))
    | (?P<command>\$\([^)\n]{{0,80}}\)?)
    | (?P<argument>\$[0-9])
    | (?P<arguments>\$[@*])
    | (?P<code>\$\?)""",
    re.MULTILINE | re.VERBOSE,
)
_PYTHON_FIXES = {
    "export": ("a shell export", 'Write os.environ["NAME"] = "…" (after import os).'),
    "echo": ("a shell command", "Write print(…)."),
    "source": (
        "a shell command",
        "Set the variables with os.environ, or source the file before running the script.",
    ),
    "test": ("a shell test", "Write a Python condition, such as if os.path.isfile(…):"),
    "block": ("a shell block", "Write the Python statement, which ends in a colon."),
    "word": (_SHELL_WORD, "Remove it: Python marks blocks by indentation."),
    "bang": ("an IPython command", "Write subprocess.run([…], check=True)."),
    "magic": ("an IPython command", "Remove it: only IPython and notebooks know it."),
    "variable": ("a shell variable", 'Write os.environ["NAME"] (after import os).'),
    "command": (
        "a shell command",
        "Write subprocess.run([…], capture_output=True, text=True, check=True).stdout.",
    ),
    "arguments": ("a shell argument", "Write sys.argv[1:] (after import sys)."),
    "code": ("a shell variable", "Use the returncode of subprocess.run(…)."),
}


def check_python(text: str) -> Finding | None:
    """The first piece of shell in a Python file; None when it is Python, or may well be."""
    if len(text) > MAX_BYTES or "\0" in text or not _is_ascii_based(text):
        return None
    text = _unix_lines(text)
    finding = _check_shebang(text, "Python")
    if finding is None and (found := _PYTHON.search(_mask_python(text))):
        number = found[0][1:]
        table = _PYTHON_FIXES | {
            "argument": ("a shell argument", f"Write sys.argv[{number}] (after import sys).")
        }
        finding = _report(text, found, table, ", or NAME if it is a variable of the script.")
    return finding if finding and _is_broken(text) else None


def _is_ascii_based(text: str) -> bool:
    """Whether quotes and dollars are where they seem to be."""
    for line in text.split("\n", 2)[:2]:
        if declared := _CODING.match(line):
            return _ASCII_BASED.match(declared[1]) is not None
    return True


def _is_broken(text: str) -> bool:
    """Whether it is certainly not Python."""
    name = "<script before it is run>"
    # Unlike `catch_warnings` this is safe in a thread, and no other module has that name.
    warnings.filterwarnings("ignore", module=name)
    try:
        compile(text, name, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except SyntaxError:
        return True
    except (ValueError, MemoryError, RecursionError, OverflowError):
        return False
    return False


def _mask_python(text: str) -> str:
    """The text with strings as quotes, comments as spaces, and every statement on one line.

    Each character stays where it is. Text that is not Python is read as far as it can be: a string
    ends with its line, and an unmatched closing bracket is ignored.
    """
    parts: list[str] = []
    at = depth = 0
    while found := (_MARK_IN_BRACKETS if depth else _MARK).search(text, at):
        start, mark = found.start(), found[0]
        parts.append(text[at:start])
        at = found.end()
        if mark == "#":
            at = _end_of_line(text, at)
            parts.append(" " * (at - start))
        elif mark in _STRING_ENDS:
            at = (
                _end_of_fields(text, at, mark) if _has_fields(text, start) else _end(mark, text, at)
            )
            parts.append('"' * (at - start))
        elif mark == "\\" and text.startswith("\n", at):
            at += 1
            parts.append("  ")
        elif mark == "\n":
            parts.append(" ")
        else:
            parts.append(mark)
            depth = max(0, depth + (mark in "([{") - (mark in ")]}"))
    parts.append(text[at:])
    return "".join(parts)


def _end(quote: str, text: str, at: int) -> int:
    found = _STRING_ENDS[quote].match(text, at)
    return found.end() if found else at


def _has_fields(text: str, quote_at: int) -> bool:
    before = text[max(0, quote_at - 3) : quote_at]
    return before[-1:].isalpha() and _PREFIX.search(before) is not None


def _end_of_fields(text: str, at: int, quote: str) -> int:
    """Where a string with fields in braces ends, whose quotes may occur in its fields again.

    The stack has a quote for every string that is open, `{` for a field and `(` for any other
    bracket. The format of a field (`:>5`) counts as text of the string.
    """
    stack = [quote]
    while stack:
        top = stack[-1]
        is_field = top in ("{", "(")
        found = (_FIELD_MARK if is_field else _LITERAL_MARK).search(text, at)
        if not found:
            return len(text)
        mark, start, at = found[0], found.start(), found.end()
        if not is_field:
            if mark == "{":
                stack.append("{")
            elif mark == "\n" and len(top) == 1:
                return start
            elif mark.startswith(top):
                at = start + len(top)
                stack.pop()
        elif mark in _STRING_ENDS:
            if _has_fields(text, start):
                stack.append(mark)
            else:
                at = _end(mark, text, at)
        elif mark == "#":
            at = _end_of_line(text, at)
        elif mark in "([{":
            stack.append("(")
        elif mark == ":":
            if top == "{":
                stack.pop()
        elif top == "(" or mark == "}":
            stack.pop()
    return at


# JavaScript

_TOKEN = re.compile(
    r"""(?P<space>[^\S\n]++|\n)
    | (?P<word>\#?[\w$]++)
    | (?P<string>"[^"\\\n]*+(?:\\(?s:.)[^"\\\n]*+)*+"|'[^'\\\n]*+(?:\\(?s:.)[^'\\\n]*+)*+')
    | (?P<template>`)
    | (?P<comment>//[^\n]*+|/\*(?s:.*?)\*/)
    | (?P<unclear>["']|/\*)
    | (?P<slash>/)
    | (?P<open>[(\[{])
    | (?P<close>[)\]}])
    | (?P<sign>\+\+|--|<<|=>|\?\.(?!\d)|\.{3}|.)""",
    re.VERBOSE,
)
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

_SCRIPT_NAME = r"(?!(?:in|instanceof|of|as|satisfies)\b)[A-Za-z_$][\w$]*+"
_NO_CALL = r"(?!(?:async|await|case|class|delete|function|new|of|return|throw|typeof|void|yield)\b)"
_JAVASCRIPT = re.compile(
    rf"""^[ \t]*+(?:
      (?P<export>export)[ \t]++[A-Za-z_]\w*+=(?![=>])
    | (?P<echo>echo)[ \t]++(?:-[neE]++[ \t]++)?(?:"|{_SCRIPT_NAME})
    | (?P<source>source)[ \t]++(?:\.{{1,2}}/|~/)
    | (?P<test>if|while)[ \t]++(?:![ \t]*+)?\[\[?[ \t]
    | (?P<block>if|elif|while|until|for)[ \t][^\n(]{{0,400}}?;[ \t]*+(?:then|do)[ \t]*+$
    | (?P<comment>\#)(?:[ \t#]|$)
    )
    | ^(?P<word>fi|done|esac|then)[ \t]*+;?[ \t]*+$
    | (?<![\w$])(?P<variable>\$\{{[A-Za-z_]\w*+(?::?[-=?+][^}}\n]{{0,80}})?\}})
    | (?<![\w$])(?P<command>
        \$\([ \t]*+{_NO_CALL}[A-Za-z_][\w-]*+[ \t]++{_SCRIPT_NAME}[^)\n]{{0,80}}\)?)""",
    re.MULTILINE | re.VERBOSE,
)
_JAVASCRIPT_FIXES = {
    "export": ("a shell export", 'Write process.env.NAME = "…".'),
    "echo": ("a shell command", "Write console.log(…)."),
    "source": (
        "a shell command",
        "Set the variables with process.env, or source the file before running the script.",
    ),
    "test": ("a shell test", "Write a JavaScript condition, such as if (fs.existsSync(…)) {."),
    "block": ("a shell block", "Write the JavaScript statement: (…) for the condition, {…} after."),
    "comment": ("a shell comment", "Begin comments with //."),
    "word": (_SHELL_WORD, "Remove it: JavaScript blocks are in braces."),
    "variable": ("a shell variable", "Write process.env.NAME."),
    "command": ("a shell command", "Write execFileSync(…) from node:child_process."),
}
_CLASS = re.compile(r"\b(?:class|extends)\s+$")
_OPENING = re.compile(r"[(\[{]")
_CLOSING = re.compile(r"[)\]}]")


def check_javascript(text: str) -> Finding | None:
    """The first piece of shell in a JavaScript file; None when it may well be JavaScript."""
    if len(text) > MAX_BYTES:
        return None
    text = _unix_lines(text)
    if finding := _check_shebang(text, "JavaScript"):
        return finding
    masked = _mask_javascript(text)
    depth = at = 0
    for found in _JAVASCRIPT.finditer(masked):
        if found["word"]:
            # Where a bracket is open, it may be a name in a list.
            between = masked[at : found.start()]
            depth += len(_OPENING.findall(between)) - len(_CLOSING.findall(between))
            at = found.start()
            if depth or _goes_on(masked, found.start(), found.end()):
                continue
        elif found[0][0] == "$" and _CLASS.search(
            masked, max(0, found.start() - 20), found.start()
        ):
            continue  # a class may have the name `$`
        return _report(text, found, _JAVASCRIPT_FIXES, ".")
    return None


def _goes_on(masked: str, start: int, end: int) -> bool:
    """Whether a line may be the middle of an expression."""
    before = masked[max(0, start - 1_000) : start].rstrip()
    after = masked[end : end + 1_000].lstrip()
    if not before and start > 1_000:
        return True  # nothing but comments for so long: what is before them is not looked for
    return before[-1:] not in (";", "}", ")", '"', "") or not re.match(r"[\w$;]|$", after)


def _mask_javascript(text: str) -> str:
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
    """JavaScript token by token, as far as it takes to tell code from everything else."""

    def __init__(self, text: str) -> None:
        self.parts: list[str] = []
        self._text = text
        self._at = 0
        self._open: list[tuple[str, bool]] = []
        """Open brackets, each with whether it makes a value; `$` for those of templates."""
        self._last = ""
        """The token before, without spaces and comments."""
        self._is_value = False
        """Whether a value has just ended, so that a slash divides."""
        self._tries = 0
        if text.startswith("#!"):
            self._put(_end_of_line(text, 0), " ")

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
            self._put(end)
        elif kind == "comment":
            self._put(end, " ")
        elif kind == "unclear":
            return self._give_up()
        elif kind == "string":
            self._take('"', end, '"', is_value=True)
        elif kind == "word":
            is_name = mark not in _BEFORE_VALUE or self._last in (".", "?.")
            self._take(mark, end, is_value=is_name)
        elif kind == "template":
            return self._read_template(end)
        elif kind == "slash":
            return self._read_slash(end)
        elif kind == "open":
            makes_value = mark == "[" or (
                self._begins_object() if mark == "{" else self._last not in _BEFORE_CONDITION
            )
            self._open.append((mark, makes_value))
            self._take(mark, end, is_value=False)
        elif kind == "close":
            return self._close(mark, end)
        else:
            return self._read_sign(mark, end)
        return True

    def _put(self, end: int, filler: str = "") -> None:
        part = self._text[self._at : end]
        self.parts.append(filler * len(part) if filler else part)
        self._at = end

    def _take(self, token: str, end: int, filler: str = "", *, is_value: bool) -> None:
        self._put(end, filler)
        self._last, self._is_value = token, is_value

    def _give_up(self) -> bool:
        """Keep the rest of the line, which may be a shell's, but for its variables."""
        end = _end_of_line(self._text, self._at)
        self.parts.append(self._text[self._at : end].replace("$", "_"))
        return False

    def _read_template(self, at: int) -> bool:
        """The template up to its end, or to the next value in it."""
        found = _TEMPLATE.match(self._text, at)
        if not found:
            self._last = "`…"
            return False
        is_over = found[0].endswith("`")
        if not is_over:
            self._open.append(("$", True))
        self._take("`" if is_over else "${", found.end(), "`", is_value=is_over)
        return True

    def _read_slash(self, end: int) -> bool:
        if not self._is_value:
            if found := _REGEX.match(self._text, end):
                self._take("0", found.end(), "0", is_value=True)
                return True
            # After these brackets it may divide all the same.
            self._tries += 1
            if self._last not in (")", "}") or self._tries > _MAX_TRIES:
                return self._give_up()
        self._take("/", end, is_value=False)
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
        if opened + mark not in ("()", "[]", "{}", "$}"):
            return self._give_up()
        self._open.pop()
        if opened == "$":
            return self._read_template(end)
        self._take(mark, end, is_value=makes_value)
        return True

    def _read_sign(self, mark: str, end: int) -> bool:
        after = self._text[end : end + 1]
        if mark == "<" and not self._is_value and re.match(r"[A-Za-z_$>!]", after):
            return False  # a tag: what follows is text, not code
        if mark == "#":
            start = self._text.rfind("\n", 0, self._at) + 1
            if self._text[start : self._at].strip() or after not in (" ", "\t", "#", "\n", ""):
                return self._give_up()
            self._put(end)
            self._put(_end_of_line(self._text, end), " ")
            return True
        is_value = mark == "." and self._last.isdecimal()
        self._take(mark, end, is_value=self._is_value if mark in ("++", "--") else is_value)
        return True
