"""Which script files a command would run, as far as its text tells for certain."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

Language = Literal["python", "javascript"]

MAX_SCRIPTS = 8
MAX_PATH = 4_096
MAX_WORDS = 200
"""Words of one command that are looked at; the script is among the first."""

MAX_CHARS = 524_288
"""What a script may have to be looked at."""
PIECE_CHARS = 60
"""How much of a script a finding repeats."""

SHELL_SHEBANG = re.compile(
    r"\ufeff?#![ \t]*+(?:/\S{0,80}/)?(?:env[ \t]+(?:-\S{1,10}[ \t]+)?)?(?:ba|da|z|k|a)?sh(?=\s|$)"
)


class Script(NamedTuple):
    """A file that a command gives to an interpreter."""

    language: Language
    path: str


class Finding(NamedTuple):
    """A piece of a script that its language does not have."""

    line: int
    text: str
    """The piece, cut short."""
    what: str
    """What it is, such as `a shell variable`."""
    fix: str
    """What to write instead: a sentence."""


class _Word(NamedTuple):
    text: str
    known: bool
    """Whether the text is what the command gets, or the shell makes something else of it."""


class _Simple(NamedTuple):
    """A command without pipes and chains, and the operators around it."""

    words: list[_Word]
    before: str
    after: str
    writes: bool
    """Whether its output goes to a file."""


class _Options(NamedTuple):
    """The options of a program, as far as they decide which word is its first operand."""

    values: frozenset[str]
    """Those that have their value in the next word."""
    never: frozenset[str]
    """Those that make something else of the operand, or of the place it is looked for in."""


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _options(values: str = "", never: str = "") -> _Options:
    return _Options(_set(values), _set(never))


_PYTHON = _options("-X -W --check-hash-based-pycs", "-c -m -x -h -? -V --help --version")
_NODE = _options(
    "-r --require --import --loader --experimental-loader -C --conditions --env-file --title"
    " --env-file-if-exists --watch-path --input-type --icu-data-dir --openssl-config",
    "-e --eval -p --print -c --check -i --interactive -h --help -v --version --run",
)
_DENO = _options("-c --config --import-map -L --log-level --lock --cert --seed --location")
_BUN = _options(
    "-r --preload -c --config --env-file --filter --tsconfig-override --port",
    "-e --eval -p --print -h --help -v --version --cwd",
)
_UV = _options("--project --cache-dir --config-file --color", "--directory -h --help -V --version")
_UV_RUN = _options(
    "--with --with-editable --with-requirements -p --python --extra --group --no-group --package"
    " --only-group --env-file --index --default-index -i --index-url --extra-index-url -f"
    " --find-links --project -P --upgrade-package --cache-dir --config-file --color",
    "-m --module --directory -h --help -V --version",
)

_WRAPPERS = {
    "env": _options("-u --unset", "-S --split-string -C --chdir --help --version"),
    "exec": _options("-a"),
    "time": _options("-f --format -o --output", "--help -V --version"),
    "nohup": _options(never="--help --version"),
    "nice": _options("-n --adjustment", "--help --version"),
    "timeout": _options("-s --signal -k --kill-after", "--help --version"),
    "!": _options(),
}
"""Programs and words of the shell that run the command after them."""

_RESERVED = _set(
    "{ } if then elif else fi for while until do done case esac select function coproc"
)
_HARMLESS = _set(
    "cd export set unset readonly declare shopt umask ulimit true : test [ [[ echo printf pwd ls"
    " cat head tail wc grep rg date sleep which type source . mkdir chmod pip pip3 id whoami uname"
    " hostname printenv clear"
)
"""What does not change the scripts that are run after it; anything else may write them."""

_PYTHON_NAME = re.compile(r"python(?:3(?:\.\d+)?)?t?|pypy(?:3(?:\.\d+)?)?")
_HERE = re.compile(r"^(?:\./+)++")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_JAVASCRIPT_NAME = (".js", ".mjs", ".cjs")


def find_scripts(command: str, cwd: str) -> list[Script]:
    """The Python and JavaScript files that a command would run; none where it is not certain.

    What stands after a command that may itself write files is left out: the file that is there now
    need not be the one that will run.
    """
    found: list[Script] = []
    place: str | None = cwd
    moved = maybe_moved = may_have_failed = False
    for part in _split(command):
        if (part.before == "||" and place != cwd) or (part.before != "&&" and maybe_moved):
            place = None
        may_have_failed = may_have_failed or (moved and part.before != "&&")
        words = _unwrap(part.words)
        if words is None or (words and words[0].text in _RESERVED):
            break
        name = words[0].text if words else ""
        if name == "cd":
            place = _go(words[1:], place, up=not may_have_failed) if _is_certain(part) else None
            moved, maybe_moved = True, part.before == "&&"
        elif (script := _script(words)) and (place is not None or script.path.startswith("/")):
            found.append(script._replace(path=os.path.join(place or "/", script.path)))
        if len(found) == MAX_SCRIPTS:
            break
        harmless = name in _HARMLESS or not name
        if part.after not in ("|", "|&") and (part.writes or not harmless):
            break
    return found


def _is_certain(cd: _Simple) -> bool:
    """Whether what comes after a change of directory runs in it."""
    plain = ("", ";", "\n", "&&")
    return cd.before in plain and cd.after in plain


def _go(words: list[_Word], place: str | None, *, up: bool) -> str | None:
    """Where a change of directory leads.

    After one that may have failed it must not lead back up: nothing is looked at in a directory
    that is not there, but the one above it may be.
    """
    if words and words[0].text == "--":
        words = words[1:]
    if len(words) != 1 or not words[0].known or words[0].text in ("", "-"):
        return None
    if not words[0].text.startswith("/") and (place is None or (".." in words[0].text and not up)):
        return None
    gone = os.path.normpath(os.path.join(place or "/", words[0].text))
    return gone if len(gone) <= MAX_PATH else None


def _unwrap(words: list[_Word]) -> list[_Word] | None:
    """The command without assignments and the programs that only run it; None: not readable."""
    while words:
        name = os.path.basename(words[0].text)
        if _ASSIGNMENT.match(words[0].text):
            words = words[1:]
        elif name in _WRAPPERS:
            rest = _operands(words[1:], _WRAPPERS[name])
            if rest is None:
                return None
            words = rest[1:] if name == "timeout" else rest
        else:
            return words
    return words


def _operands(words: list[_Word], options: _Options) -> list[_Word] | None:
    """The words from the first operand on; None where an option decides otherwise."""
    at = 0
    while at < len(words):
        text = words[at].text
        if text == "--":
            return words[at + 1 :]
        if not words[at].known or text == "-" or not text.startswith("-"):
            return words[at:]
        names = [text.partition("=")[0]] if text.startswith("--") else [f"-{c}" for c in text[1:]]
        at += 1
        for place, name in enumerate(names):
            if name in options.never:
                return None
            if name in options.values:
                at += "=" not in text if text.startswith("--") else place == len(names) - 1
                break
    return []


def _script(words: list[_Word]) -> Script | None:
    """The script that a bare command runs, its path as written."""
    if not words or not words[0].known:
        return None
    name = os.path.basename(words[0].text)
    if _PYTHON_NAME.fullmatch(name):
        return _make("python", _operands(words[1:], _PYTHON), "")
    if name in ("node", "nodejs"):
        return _make("javascript", _operands(words[1:], _NODE), _JAVASCRIPT_NAME)
    if name == "deno" and len(words) > 1 and words[1].text == "run":
        return _make("javascript", _operands(words[2:], _DENO), _JAVASCRIPT_NAME)
    if name == "bun":
        rest = _operands(words[1:], _BUN)
        if rest and rest[0].text == "run":
            rest = _operands(rest[1:], _BUN)
        return _make("javascript", rest, _JAVASCRIPT_NAME)
    if name == "uv":
        rest = _operands(words[1:], _UV)
        if not rest or rest[0].text != "run":
            return None
        rest = _operands(rest[1:], _UV_RUN)
        if not rest or rest[0].text == "uv":
            return None
        return _make("python", rest, ".py") or _script(rest)
    return None


def _make(
    language: Language, operands: list[_Word] | None, endings: str | tuple[str, ...]
) -> Script | None:
    if not operands or not operands[0].known:
        return None
    path = operands[0].text
    if path in ("", "-") or not path.endswith(endings):
        return None
    return Script(language, _HERE.sub("", path))


_SPACE = re.compile(r"(?:[ \t]|\\\n)+|#[^\n]*")
_OPERATOR = re.compile(r"\n|&&|\|\||;;|;|\|&|&>>?|&|\||<<<|<<|<>|<&|<|>>|>\||>&|>|[()]")
_PLAIN = re.compile(r"[^ \t\n'\"\\$`|&;<>()*?\[{~]+")
_QUOTED = re.compile(r'[^"\\$`]+')
_VARIABLE = re.compile(r"\$(?:\w+|[@*#?!$-]|\{[^}'\"`$()\\]*\})")
_NO_FILES = frozenset(("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"))


class _UnreadableError(Exception):
    """The text goes on in a way that is not followed here."""


def _split(command: str) -> Iterator[_Simple]:
    """The simple commands of a text, up to where it is no longer simple."""
    words: list[_Word] = []
    before, writes, at = "", False, 0
    while at < len(command):
        try:
            kind, word, at = _next(command, at)
            if len(words) == MAX_WORDS:
                raise _UnreadableError
            if kind == "redirect":
                operator = word.text
                kind, word, at = _next(command, at)
                if kind == "redirect":
                    raise _UnreadableError
                if ">" in operator and word.text not in _NO_FILES:
                    writes = writes or not (operator == ">&" and re.match(r"\d+$|-$", word.text))
                if kind == "word":
                    continue
        except _UnreadableError:
            break
        if kind == "word":
            words.append(word)
        elif kind == "end":
            if words or writes:
                yield _Simple(words, before, word.text, writes)
                before = word.text
            words, writes = [], False
    if words:
        yield _Simple(words, before, "", writes)


def _next(command: str, at: int) -> tuple[str, _Word, int]:
    """The next word, redirection or end of a command, and where it ends itself."""
    while space := _SPACE.match(command, at):
        at = space.end()
    if at >= len(command):
        return "end", _Word("", True), at
    if operator := _OPERATOR.match(command, at):
        text = operator[0]
        if text in ("<<", ";;", "(", ")"):
            raise _UnreadableError
        redirect = "<" in text or ">" in text
        return "redirect" if redirect else "end", _Word(text, True), operator.end()
    start = at
    word, at = _read_word(command, at)
    if command[at : at + 1] in ("<", ">") and command[start:at].isdecimal():
        return _next(command, at)
    return "word", word, at


def _read_word(command: str, at: int) -> tuple[_Word, int]:
    parts: list[str] = []
    known = True
    start = at
    while at < len(command):
        char = command[at]
        if char in " \t\n|&;<>()":
            break
        if plain := _PLAIN.match(command, at):
            parts.append(plain[0])
            at = plain.end()
        elif char == "'":
            end = _find(command, "'", at + 1)
            parts.append(command[at + 1 : end])
            at = end + 1
        elif char == '"':
            known, at = _read_quoted(command, at + 1, parts, known)
        elif char == "\\":
            parts.append(command[at + 1 : at + 2].replace("\n", ""))
            at += 2
        elif char == "$":
            known, at = _read_dollar(command, at, parts, known)
        elif char == "`":
            raise _UnreadableError
        else:
            # A pattern, a list in braces, or a home directory: the shell puts others in its place.
            known = known and char == "~" and at != start
            parts.append(char)
            at += 1
    return _Word("".join(parts), known), at


def _read_quoted(command: str, at: int, parts: list[str], known: bool) -> tuple[bool, int]:
    while at < len(command):
        char = command[at]
        if char == '"':
            return known, at + 1
        if plain := _QUOTED.match(command, at):
            parts.append(plain[0])
            at = plain.end()
        elif char == "\\":
            escaped = command[at + 1 : at + 2]
            parts.append(escaped if escaped in ('"', "\\", "$", "`") else "\\" + escaped)
            if escaped == "\n":
                parts.pop()
            at += 2
        elif char == "$":
            known, at = _read_dollar(command, at, parts, known, quoted=True)
        else:
            break
    raise _UnreadableError


def _read_dollar(
    command: str, at: int, parts: list[str], known: bool, *, quoted: bool = False
) -> tuple[bool, int]:
    if variable := _VARIABLE.match(command, at):
        parts.append(variable[0])
        return False, variable.end()
    if command[at + 1 : at + 2] in (("(", "{") if quoted else ("(", "{", "'", '"')):
        raise _UnreadableError
    parts.append("$")
    return known, at + 1


def _find(command: str, char: str, at: int) -> int:
    end = command.find(char, at)
    if end < 0:
        raise _UnreadableError
    return end
