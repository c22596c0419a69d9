"""Shell syntax in Python files: what can only be a mistake."""

from __future__ import annotations

import ast
import re
import warnings

from clawkit.process.preflight.finding import MAX_CHARS, PIECE_CHARS, SHELL_SHEBANG, Finding
from clawkit.text import one_line

_CODING = re.compile(r"[ \t\f]*+#[^\n]{0,200}?coding[:=][ \t]*+([-\w.]{1,40})")
_ASCII_BASED = re.compile(r"utf[-_]?8|(?:us-)?ascii|latin|iso[-_]?8859|cp125|koi8", re.IGNORECASE)

_MARK = re.compile(r"[#\\()\[\]{}]|\"\"\"|'''|[\"']")
_MARK_IN_BRACKETS = re.compile(rf"\n|{_MARK.pattern}")
_PREFIX = re.compile(r"(?<!\w)(?:[rR]?[fFtT]|[fFtT][rR])$")
_LINE = re.compile(r"[^\n]*+")
_STRING_ENDS = {
    '"': re.compile(r'[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"?', re.DOTALL),
    "'": re.compile(r"[^'\\\n]*+(?:\\.[^'\\\n]*+)*+'?", re.DOTALL),
    '"""': re.compile(r'[^"\\]*+(?:(?:\\.|"(?!""))[^"\\]*+)*+(?:""")?', re.DOTALL),
    "'''": re.compile(r"[^'\\]*+(?:(?:\\.|'(?!''))[^'\\]*+)*+(?:''')?", re.DOTALL),
}
_LITERAL_MARK = re.compile(r"\\[\\\"'\n]|\{\{|[{\n]|\"\"\"|'''|[\"']")
_FIELD_MARK = re.compile(r"[()\[\]{}:#]|\"\"\"|'''|[\"']")

# Words after which a name is not yet another one: `echo if x else y` is an expression.
_NAME = r"(?!(?:and|or|in|is|if|not|else|for|async)\b)[A-Za-z_]\w*+"
_STATEMENT = re.compile(
    rf"""^[ \t\f]*+(?P<piece>
      export[ \t]++(?P<export>[A-Za-z_]\w*+)(?:=|[ \t]*+$)
    | (?P<echo>echo)[ \t]++(?:-[neE]++[ \t]++)?(?:["$]|{_NAME})
    | (?P<source>source)[ \t]++(?:\.{{0,2}}/|~/|["$]|{_NAME})
    | (?P<test>if|elif|while|until)[ \t]++(?:![ \t]*+)?\[\[?[ \t]++
        (?:(?:![ \t]++)?-[A-Za-z][ \t]++(?:["$./~]|{_NAME})|[^\n]{{0,200}}?\][ \t]*+(?:;|&&|$))
    | (?P<block>if|elif|while|until|for|select)[ \t][^\n]{{0,400}}?;[ \t]*+(?:then|do)[ \t]*+$
    | (?P<word>fi|done|esac|then)[ \t]*+;?[ \t]*+$
    | (?P<bang>!!?)[ \t]*+[\w./~$]
    | (?P<magic>%%?)[A-Za-z_]
    )""",
    re.MULTILINE | re.VERBOSE,
)
_DOLLAR = re.compile(
    r"\$(?:(?P<name>[A-Za-z_]\w*+)|\{[#!]?(?P<braced>[A-Za-z_]\w*+)[^}\n]{0,80}\}?"
    r"|(?P<command>\([^)\n]{0,80}\)?)|(?P<number>[0-9])|(?P<all>[@*])|(?P<code>\?))"
)


def check_python(text: str) -> Finding | None:
    """The first piece of shell in a Python file; None when it is Python, or may well be."""
    if len(text) > MAX_CHARS or "\0" in text or not _is_ascii_based(text):
        return None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    finding = _find(text)
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


def _find(text: str) -> Finding | None:
    if shebang := SHELL_SHEBANG.match(text):
        fix = "Write the file in Python."
        return Finding(
            1, one_line(shebang[0], PIECE_CHARS), "the first line of a shell script", fix
        )
    masked = _mask(text)
    statement = _STATEMENT.search(masked)
    dollar = _DOLLAR.search(masked)
    # A statement begins before what is in it, so that the whole of it is told.
    if statement and (not dollar or statement.start("piece") <= dollar.start()):
        return _tell_statement(text, statement)
    return _tell_dollar(text, dollar) if dollar else None


def _tell_statement(text: str, found: re.Match[str]) -> Finding:
    start = found.start("piece")
    line = text.count("\n", 0, start) + 1
    if name := found["export"]:
        fix = f'Write os.environ["{one_line(name, PIECE_CHARS)}"] = "…" (after import os).'
        return Finding(line, one_line(f"export {name}", PIECE_CHARS), "a shell export", fix)
    what, fix = next(_STATEMENTS[kind] for kind in _STATEMENTS if found[kind])
    end = _end(_LINE, text, start)
    return Finding(line, one_line(text[start:end], PIECE_CHARS), what, fix)


_STATEMENTS = {
    "echo": ("a shell command", "Write print(…)."),
    "source": (
        "a shell command",
        "Set the variables with os.environ, or source the file before the script is run.",
    ),
    "test": ("a shell test", "Write a Python condition, such as if os.path.isfile(…):"),
    "block": ("a shell block", "Write the Python statement, which ends in a colon."),
    "word": ("a word of shell blocks", "Take it out: Python blocks are told by their indentation."),
    "bang": ("an IPython command", "Write subprocess.run([…], check=True)."),
    "magic": ("an IPython command", "Take it out: only IPython and notebooks know it."),
}


def _tell_dollar(text: str, found: re.Match[str]) -> Finding:
    line = text.count("\n", 0, found.start()) + 1
    piece = one_line(text[found.start() : found.end()], PIECE_CHARS)
    if name := found["name"] or found["braced"]:
        name = one_line(name, PIECE_CHARS)
        fix = f'Write os.environ["{name}"] (after import os)'
        fix += "." if name.isupper() else f", or {name} if it is a variable of the script."
        return Finding(line, piece, "a shell variable", fix)
    if found["command"]:
        fix = "Write subprocess.run([…], capture_output=True, text=True, check=True).stdout."
        return Finding(line, piece, "a shell command", fix)
    if found["code"]:
        return Finding(line, piece, "a shell variable", "Use the returncode of subprocess.run(…).")
    fix = f"Write sys.argv[{found['number'] or '1:'}] (after import sys)."
    return Finding(line, piece, "a shell argument", fix)


def _mask(text: str) -> str:
    """The text with strings as quotes, comments as spaces, and every statement on one line.

    Each character stays where it is. Text that is not Python is read as far as it can be: a string
    ends with its line, and a closing bracket too many counts for nothing.
    """
    parts: list[str] = []
    at = depth = 0
    while found := (_MARK_IN_BRACKETS if depth else _MARK).search(text, at):
        start, mark = found.start(), found[0]
        parts.append(text[at:start])
        at = found.end()
        if mark == "#":
            at = _end(_LINE, text, at)
            parts.append(" " * (at - start))
        elif mark in _STRING_ENDS:
            if _has_fields(text, start):
                at = _end_of_fields(text, at, mark)
            else:
                at = _end(_STRING_ENDS[mark], text, at)
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


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _has_fields(text: str, quote_at: int) -> bool:
    before = text[max(0, quote_at - 3) : quote_at]
    return before[-1:].isalpha() and _PREFIX.search(before) is not None


def _end_of_fields(text: str, at: int, quote: str) -> int:
    """Where a string with fields in braces ends, whose quotes may stand in its fields again.

    The stack has a quote for every string that is open, `{` for a field and `(` for any other
    bracket. How a field is to be shown (`:>5`) counts as text of the string.
    """
    stack = [quote]
    while stack:
        if stack[-1] in ("{", "("):
            at = _step_in_field(text, at, stack)
            continue
        found = _LITERAL_MARK.search(text, at)
        if not found:
            return len(text)
        quote, mark, at = stack[-1], found[0], found.end()
        if mark == "{":
            stack.append("{")
        elif mark == "\n" and len(quote) == 1:
            return at - 1
        elif mark.startswith(quote):
            at = found.start() + len(quote)
            stack.pop()
    return at


def _step_in_field(text: str, at: int, stack: list[str]) -> int:
    found = _FIELD_MARK.search(text, at)
    if not found:
        stack.clear()
        return len(text)
    mark, start, at = found[0], found.start(), found.end()
    if mark in _STRING_ENDS:
        if not _has_fields(text, start):
            return _end(_STRING_ENDS[mark], text, at)
        stack.append(mark)
    elif mark == "#":
        return _end(_LINE, text, at)
    elif mark in "([{":
        stack.append("(")
    elif mark in ")]}":
        if stack[-1] == "(" or mark == "}":
            stack.pop()
    elif stack[-1] == "{":
        stack.pop()
    return at
