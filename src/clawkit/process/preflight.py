"""Check scripts before a command runs them, for shell syntax in another language.

A convenience, not a security measure: anything unclear passes.
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
"""Maximum characters of a script that a finding quotes."""
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class ScriptFinding(NamedTuple):
    """A piece of a script that is not valid in its language."""

    line: int
    text: str
    """The piece, truncated."""
    description: str
    """A description, such as `a shell variable`."""
    fix: str
    """What to write instead, as a sentence."""


async def check(
    scripts: Iterable[tuple[str, str]], read: Callable[[str], Awaitable[bytes | None]]
) -> str:
    """The problems of scripts and their fixes; empty if there are none.

    Each script is a language, `python` or `javascript`, and an absolute path. `read` reads a file
    where the command will run; None if it is missing, too large, binary, or not a regular file.
    """
    checks = {"python": ("Python", check_python), "javascript": ("JavaScript", check_javascript)}
    for name, path in scripts:
        data = await read(path)
        if data is None or len(data) > MAX_BYTES:
            continue
        language, find = checks[name]
        found: ScriptFinding | None = await in_thread(find, data)
        if found:
            where, what = f"{path!r}, line {found.line}", f"`{found.text}` is {found.description}"
            text = f"{where}: {what}, not {language}. The command was not run. {found.fix}"
            if "shell" in found.description:
                text += " If the file is meant to be a shell script, name it .sh and run it with"
                text += " bash."
            return text
    return ""


async def read_script(
    path: str, *, workspace: str, may_read: Callable[[str], bool]
) -> bytes | None:
    """Read a script on this machine whose real path is in the workspace and may be read; None for
    any other, and if it is missing, too large, binary, or not a regular file."""
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
        # A finding quotes the script to the model, so commands must be able to read it too.
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
    """The path of an open file; empty, or OSError, if the file is no longer there."""
    place = os.readlink(f"/proc/self/fd/{fd}")
    found = os.lstat(place)
    return place if (found.st_dev, found.st_ino) == (info.st_dev, info.st_ino) else ""


_SHEBANG = re.compile(
    r"\ufeff?#![ \t]*+(?:/\S{0,80}/)?(?:env[ \t]+(?:-\S{1,10}[ \t]+)?)?(?:ba|da|z|k|a)?sh(?=\s|$)"
)
_NAMED = re.compile(r"(?:export[ \t]+|\$\{?[#!]?)([A-Za-z_]\w*)")
"""The variable in a piece."""


def _report(text: str, match: re.Match[str], start: int, what: str, fix: str) -> ScriptFinding:
    """The finding for a match; `start` is its position without indentation."""
    named = _NAMED.match(text, start)
    name = one_line(named[1], _PIECE_CHARS) if named else ""
    if match.lastgroup == "export":
        piece = f"export {name}"
    else:
        piece = match[0] if match[0].startswith("$") else text[start : _end_of_line(text, start)]
    line = text.count("\n", 0, start) + 1
    return ScriptFinding(line, one_line(piece, _PIECE_CHARS), what, fix.replace("NAME", name))


def _check_shebang(text: str, language: str) -> ScriptFinding | None:
    found = _SHEBANG.match(text)
    piece = one_line(found[0], _PIECE_CHARS) if found else ""
    what, fix = "the first line of a shell script", f"Write the file in {language}."
    return ScriptFinding(1, piece, what, fix) if found else None


def _unix_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return end if end >= 0 else len(text)


# Not one of these keywords: `echo if x else y` is a Python expression.
_PYTHON_NAME = r"(?!(?:and|or|in|is|if|not|else|for|async)\b)[A-Za-z_]\w*+"
_PYTHON_STATEMENT = rf"""(?x)[ \t\f]*+(?:
      (?P<export>export)[ \t]++[A-Za-z_]\w*+(?:=|[ \t]*+$)
    | (?P<echo>echo)[ \t]++(?:-[neE]++[ \t]++)?(?:["$]|{_PYTHON_NAME})
    | (?P<source>source)[ \t]++(?:\.{{0,2}}/|~/|["$]|{_PYTHON_NAME})
    | (?P<test>if|elif|while|until)[ \t]++(?:![ \t]*+)?\[\[?[ \t]++
        (?:(?:![ \t]++)?-[A-Za-z][ \t]++(?:["$./~]|{_PYTHON_NAME})
          |[^\n]{{0,200}}?\][ \t]*+(?:;|&&|$))
    | (?P<block>if|elif|while|until|for|select)[ \t][^\n]{{0,400}}?;[ \t]*+
        (?:then|do)[ \t]*+(?:\#|$)
    | (?P<bang>!!?)[ \t]*+[\w./~$]
    | (?P<magic>%%?)[A-Za-z_]
    )"""
_PYTHON_DOLLAR = r"""(?x)
      (?P<variable>\$(?:[A-Za-z_]\w*+|\{[#!]?[A-Za-z_]\w*+[^}\n]{0,80}\}?))
    | (?P<command>\$\([^)\n]{0,80}\)?)
    | (?P<argument>\$[0-9])
    | (?P<arguments>\$[@*])
    | (?P<code>\$\?)"""
_FIELDS = r"(?i)(?<!\w)(?:r?[ft]|[ft]r)[\"']"
"""The start of an f-string, which may contain the same quotes; older Pythons cannot parse that."""
_PYTHON_FIXES = {
    "export": ("a shell export", 'Write os.environ["NAME"] = "…" (after import os).'),
    "echo": ("a shell command", "Write print(…)."),
    "source": (
        "a shell command",
        "Set the variables with os.environ, or source the file before running the script.",
    ),
    "test": ("a shell test", "Write a Python condition, such as if os.path.isfile(…):"),
    "block": ("a shell block", "Write the Python statement, which ends in a colon."),
    "bang": ("an IPython command", "Write subprocess.run([…], check=True)."),
    "magic": ("an IPython command", "Remove it: it works only in IPython and notebooks."),
    "variable": (
        "a shell variable",
        'Write os.environ["NAME"] (after import os), or NAME if it is a variable of the script.',
    ),
    "command": (
        "a shell command",
        "Write subprocess.run([…], capture_output=True, text=True, check=True).stdout.",
    ),
    "argument": ("a shell argument", "Write sys.argv[{}] (after import sys)."),
    "arguments": ("a shell argument", "Write sys.argv[1:] (after import sys)."),
    "code": ("a shell variable", "Use the returncode of subprocess.run(…)."),
}


_CODING = rb"(?:[^\r\n]*+(?:\r\n?|\n))??[ \t\f]*+#[^\r\n]*?coding[:=][ \t]*+([-\w.]+)"
_ASCII_BASED = rb"(?i)utf[-_]?8|(?:us-)?ascii|latin|iso[-_]?8859|cp125|koi8"


def check_python(data: bytes) -> ScriptFinding | None:
    """Shell syntax at the place of a Python syntax error; None if there is no such thing."""
    declared = re.match(_CODING, data)
    if declared and not re.match(_ASCII_BASED, declared[1]):
        return None  # quotes may have other codes, and some encodings take minutes to decode
    text = _unix_lines(data.decode("utf-8-sig", "replace"))
    # Also as bytes, as Python reads it, in the declared encoding.
    error = _find_error(data) and _find_error(text)
    if error is None:
        return None
    if finding := _check_shebang(text, "Python"):
        return finding
    lines = text.split("\n")
    number, column = (error.lineno or 0) - 1, (error.offset or 0) - 1
    if not 0 <= number < len(lines):
        return None
    line, start = lines[number], sum(len(line) + 1 for line in lines[:number])
    if found := re.match(_PYTHON_STATEMENT, line):
        indent = len(line) - len(line.lstrip())
        return _report(text, found, start + indent, *_PYTHON_FIXES[found.lastgroup or ""])
    found = re.compile(_PYTHON_DOLLAR).match(line, max(0, column))
    if found is None or re.search(_FIELDS, line[:column]):
        return None
    what, fix = _PYTHON_FIXES[found.lastgroup or ""]
    if found.lastgroup == "variable" and found[0].strip("${}").isupper():
        fix = fix.partition(", or")[0].removesuffix(".") + "."
    return _report(text, found, start + column, what, fix.format(found[0][1:]))


def _find_error(source: bytes | str) -> SyntaxError | None:
    name = "<script before it is run>"
    # Unlike `catch_warnings` this is thread-safe, and no real module has that name.
    warnings.filterwarnings("ignore", module=name)
    try:
        compile(source, name, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except SyntaxError as error:
        return error
    except (ValueError, MemoryError, RecursionError, OverflowError):
        return None
    return None


_STRINGS = r"""\"(?>(?:[^\"\\\n]++|\\(?s:.))*)\"|'(?>(?:[^'\\\n]++|\\(?s:.))*)'"""
_TOKEN = re.compile(
    rf"""(?P<space>//[^\n]*+|/\*(?s:.*?)\*/|\A\#![^\n]*+)
    | (?P<string>{_STRINGS})
    | (?P<template>`(?>(?:[^`\\$]++|\\(?s:.)|\$(?!\{{)
        |\$\{{(?>(?:[^`{{}}'"/\n]++|{_STRINGS})*)\}})*)`)
    | (?P<regex>(?<![\w$)\]}}"'`.])(?<![\w$)\]}}"'`.][ \t])
        /(?!\*)(?>(?:[^/\\\[\n]|\\[^\n]|\[(?>(?:[^\]\\\n]|\\[^\n]){{0,60}})\]){{1,99}})/\w*+)
    | (?P<comment>^[ \t]*+\#(?=[ \t\#\n]|\Z))
    | (?P<unclear>["'`]|/\*|/(?=[^\n`]{{0,99}}+`)|(?<![\w$)\]<])<(?=[A-Za-z_$>!])|\#(?![\w$]))
    | (?P<code>[^"'`/<\#\n]++|(?s:.))""",
    re.VERBOSE | re.MULTILINE,
)
"""Enough of JavaScript to tell code from strings and comments. Only a template can span lines. A
slash before a backtick is unclear: it may start a regular expression that contains the backtick."""

_SCRIPT_NAME = r"(?!(?:in|instanceof|of|as|satisfies)\b)[A-Za-z_$][\w$]*+"
_NO_CALL = r"(?!(?:async|await|case|class|delete|function|new|of|return|throw|typeof|void|yield)\b)"
_JAVASCRIPT = rf"""(?mx)^[ \t]*+(?:
      (?P<export>export)[ \t]++[A-Za-z_]\w*+=(?![=>])
    | (?P<echo>echo)[ \t]++(?:-[neE]++[ \t]++)?(?:"|{_SCRIPT_NAME})
    | (?P<source>source)[ \t]++(?:\.{{1,2}}/|~/)
    | (?P<test>if|while)[ \t]++(?:![ \t]*+)?\[\[?[ \t]
    | (?P<block>if|elif|while|until|for)[ \t][^\n(]{{0,400}}?;[ \t]*+(?:then|do)[ \t]*+$
    | (?P<comment>\#)(?:[ \t#]|$)
    )
    | (?<![\w$])(?<!class[ ])(?<!extends[ ])
      (?P<variable>\$\{{[A-Za-z_]\w*+(?::?[-=?+][^}}\n]{{0,80}})?\}})
    | (?<![\w$])(?P<command>
        \$\([ \t]*+{_NO_CALL}[A-Za-z_][\w-]*+[ \t]++{_SCRIPT_NAME}[^)\n]{{0,80}}\)?)"""
_JAVASCRIPT_FIXES = {
    "export": ("a shell export", 'Write process.env.NAME = "…".'),
    "echo": ("a shell command", "Write console.log(…)."),
    "source": (
        "a shell command",
        "Set the variables with process.env, or source the file before running the script.",
    ),
    "test": ("a shell test", "Write a JavaScript condition, such as if (fs.existsSync(…)) {."),
    "block": ("a shell block", "Write the JavaScript statement: (…) for the condition, {…} after."),
    "comment": ("a shell comment", "Start comments with //."),
    "variable": ("a shell variable", "Write process.env.NAME."),
    "command": ("a shell command", "Write execFileSync(…) from node:child_process."),
}


def check_javascript(data: bytes) -> ScriptFinding | None:
    """The first piece of shell syntax in a JavaScript file; None if there is none."""
    text = _unix_lines(data.decode("utf-8-sig", "replace"))
    if finding := _check_shebang(text, "JavaScript"):
        return finding
    found = re.search(_JAVASCRIPT, _mask_javascript(text))
    if found is None:
        return None
    start = found.end() - len(found[0].lstrip())
    return _report(text, found, start, *_JAVASCRIPT_FIXES[found.lastgroup or ""])


def _mask_javascript(text: str) -> str:
    """The text with strings replaced by quotes, templates by backticks, regular expressions by
    zeros and comments by spaces, all of the same length. Ends with the first unclear line, in which
    variables are masked."""
    fillers = {"space": " ", "string": '"', "template": "`", "regex": "0"}
    parts: list[str] = []
    at = 0
    while found := _TOKEN.match(text, at):
        kind, at = found.lastgroup, found.end()
        if found[0] == "`":
            return ""  # what looks like code may be inside a template, such as a shell script
        if kind == "unclear":
            end = _end_of_line(text, found.start())
            parts.append(text[found.start() : end].replace("$", "_"))
            break
        parts.append(fillers[kind] * len(found[0]) if kind in fillers else found[0])
        if kind == "comment":
            end = _end_of_line(text, at)
            parts.append(" " * (end - at))
            at = end
    return "".join(parts)
