"""Globs in the syntax of ripgrep and .gitignore, compiled to expressions without catastrophic
backtracking.

`*` and `?` do not match a slash, `**` as a whole component matches any number of components,
`[a-z]` and `[!a-z]` one character, `{a,b}` either, and a backslash escapes the next character. A
pattern without a slash matches base names, at any depth; any other the whole path.

Between two stars the first match is as good as any later one, so it is final (an atomic group): the
work is linear in the length of the path. This is the dialect of searches and ignore files; that of
settings, where brackets and braces are literal, is `clawkit.globs`.

A selection says which files a search covers: partly decided by the search program, partly on its
output. A positive glob passed to ripgrep would include ignored files again. So base names are
passed as a file type, which does not, and the rest is compared here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple, NoReturn

from clawkit.errors import ToolInputError

MAX_LENGTH = 4_096
MAX_ALTERNATIVES = 1_000
MAX_EXPANDED = 32_768
"""Characters of all alternatives together; these compile in half a second."""

# A pattern is split into tokens: expressions that match one character each, and these marks.
# Literal characters are escaped, so they are never taken for a mark.
_STAR, _SLASH, _OPEN, _COMMA, _CLOSE = "*", "/", "{", ",", "}"
_ANY = "[^/]"
_CLASS = "(?!/)["
# An escaped character, a class (whose first character may be a bracket), or any character.
_TOKEN = re.compile(r"\\.|\[[!^]?+(?:\\.|[^\\])(?>(?:\\.|[^\\\]])*)\]|.", re.DOTALL)
_ITEM = re.compile(r"(\\?.)(?:-(\\?.))?", re.DOTALL)

Tokens = tuple[str, ...]
Accepts = Callable[[str], object]
"""Whether a path matches, as a truthy or falsy value."""

_ALL = frozenset({"*", "**"})
# Syntax with the same meaning in a type of ripgrep. (Its `?` and classes match bytes, and it drops
# empty alternatives.)
_CHARS = r"[\w.*@+=~%-]+"
_BASE = re.compile(rf"(?:{_CHARS}|\{{{_CHARS}(?:,{_CHARS})*\}})+")


def compile_glob(pattern: str) -> re.Pattern[str]:
    """An expression whose `match` tests a relative path.

    A leading `./` or `/` only anchors the pattern; a trailing slash matches everything below.
    Raises `ToolInputError` for an invalid or too large pattern.
    """
    return re.compile(_expression(*_alternatives(pattern, braces=True)))


def _expression(alternatives: Sequence[Tokens], whole: bool) -> str:
    if whole:
        return rf"(?:{'|'.join(map(_path, alternatives))})\Z"
    return rf"(?>(?s:.*/)?)(?:{'|'.join(map(_component, alternatives))})\Z"


def base_glob(pattern: str) -> str:
    """A glob without slashes for the base names of matching paths; it may match others too."""
    base = re.sub(r"\?|\[[!^]?[^\]\\/]+\]", _STAR, pattern.rpartition("/")[2])
    return re.sub(r"\*+", _STAR, base) if _BASE.fullmatch(base) else _STAR


def _alternatives(pattern: str, braces: bool) -> tuple[list[Tokens], bool]:
    """The alternatives of the braces, and whether the pattern matches whole paths."""
    if len(pattern) > MAX_LENGTH:
        raise ToolInputError(
            f"the glob is {len(pattern):,} characters long; at most {MAX_LENGTH:,} are allowed"
        )
    if re.fullmatch(r"(?>(?:\.?/)*)", pattern):
        raise ToolInputError(f"the glob {pattern!r} is empty; '**' matches every file")
    tokens: list[str] = []
    opened: list[int] = []
    for found in _TOKEN.finditer(pattern):
        text, at = found[0], found.start()
        char = text[-1]
        if text == "\\":
            _refuse(pattern, at, "nothing follows the backslash")
        if text == "[":
            _refuse(pattern, at, "'[' is never closed; write '\\[' for a literal '['")
        if text[0] == "[":
            negated = text[1] in "!^"
            items: list[str] = []
            for item in _ITEM.finditer(text, 1 + negated, len(text) - 1):
                low, high = item[1][-1], (item[2] or item[1])[-1]
                if low > high:
                    _refuse(
                        pattern, at + item.start(), f"the range is reversed; write {high}-{low}"
                    )
                items.append(f"{re.escape(low)}-{re.escape(high)}")
            token = f"{_CLASS}{'^' if negated else ''}{''.join(items)}]"
        elif text == "?":
            token = _ANY
        elif text == "*" or (braces and (text in "{}" or (text == "," and opened))):
            token = text
        else:
            token = _SLASH if char == "/" else "\\," if char == "," else re.escape(char)
        if token == _OPEN:
            opened.append(at)
        elif token == _CLOSE:
            if not opened:
                _refuse(pattern, at, "'}' closes nothing; write '\\}' for a literal '}'")
            opened.pop()
        tokens.append(token)
    if opened:
        _refuse(pattern, opened[-1], "'{' is never closed; write '\\{' for a literal '{'")
    return _expand(tokens), _SLASH in tokens


def _refuse(pattern: str, at: int, why: str) -> NoReturn:
    near = pattern[max(0, at - 20) : at + 20]
    raise ToolInputError(f"invalid glob at character {at + 1}, near {near!r}: {why}")


def _expand(tokens: Sequence[str]) -> list[Tokens]:
    """All combinations of the alternatives, without their marks."""
    outer: list[tuple[list[Tokens], list[Tokens]]] = []
    done: list[Tokens] = []
    current: list[Tokens] = [()]
    start = 0
    for at, token in enumerate(tokens):
        if token not in (_OPEN, _COMMA, _CLOSE):
            continue
        current = _join(current, [tuple(tokens[start:at])])
        start = at + 1
        if token == _OPEN:
            outer.append((current, done))
            done, current = [], [()]
        elif token == _COMMA:
            done, current = done + current, [()]
        else:
            before, outer_done = outer.pop()
            done, current = outer_done, _join(before, done + current)
    return _join(current, [tuple(tokens[start:])])


def _join(heads: Sequence[Tokens], tails: Sequence[Tokens]) -> list[Tokens]:
    count = len(heads) * len(tails)
    size = sum(map(len, heads)) * len(tails) + sum(map(len, tails)) * len(heads)
    if count > MAX_ALTERNATIVES or size > MAX_EXPANDED:
        raise ToolInputError(
            f"the braces of the glob expand to more than {MAX_ALTERNATIVES:,} patterns or "
            f"{MAX_EXPANDED:,} characters; use fewer alternatives"
        )
    return [head + tail for head in heads for tail in tails]


def _split(tokens: Tokens, mark: str) -> list[Tokens]:
    """The parts between the marks, like `str.split`."""
    ends = [at for at, token in enumerate(tokens) if token == mark]
    starts = [0, *(at + 1 for at in ends)]
    return [tokens[start:end] for start, end in zip(starts, [*ends, len(tokens)], strict=True)]


def _path(tokens: Tokens) -> str:
    """An expression for a whole path: runs of components, with any number of others for `**`."""
    components = _split(tokens, _SLASH)
    while len(components) > 1 and components[0] in ((), ("\\.",)):
        del components[0]
    if len(components) > 1 and not components[-1]:
        components[-1] = (_STAR, _STAR)
    runs: list[list[str]] = [[]]
    for component in components:
        if component == (_STAR, _STAR):
            runs.append([])
        else:
            runs[-1].append(_component(component))
    head, *middle, tail = (runs[0], *filter(None, runs[1:-1]), runs[-1])
    if len(runs) == 1:
        return "/".join(head)
    text = "".join(f"{component}/" for component in head)
    text += "".join(f"(?>(?:[^/]++/)*?{'/'.join(run)}/)" for run in middle)
    if not tail:
        return rf"{text}(?s:.+)"
    if len(tail) == 1:
        return rf"{text}(?>(?s:.*/)?){tail[0]}"
    rest = rf"[^/]++(?:/[^/]++){{{len(tail) - 1}}}\Z"
    return rf"{text}(?>(?:[^/]++/)*(?={rest})){'/'.join(tail)}"


def _component(tokens: Tokens) -> str:
    head, *others = ("".join(part) for part in _split(tokens, _STAR))
    if not others:
        return head
    *middle, tail = others
    # The last part must be at the end, so its star is greedy.
    return "".join((head, *(f"(?>[^/]*?{part})" for part in middle if part), f"(?>[^/]*{tail})"))


class FileSelection(NamedTuple):
    """Files whose name matches one of `names`, none of `excluded`, and whose path is accepted."""

    names: tuple[str, ...] | None = None
    """Globs for base names; None for all."""
    excluded: tuple[str, ...] = ()
    """Globs with a leading `!`, in the syntax of ignore files."""
    accepts: Accepts | None = None
    """Tests the path relative to the searched directory."""


def select(globs: Sequence[str], bases: Sequence[str], *, typed: bool = False) -> FileSelection:
    """The selection of globs below a directory with the absolute paths `bases`. With `typed`, the
    search already uses a file type. Raises `ToolInputError` for an invalid glob."""
    wanted = [tidy(glob, bases) for glob in globs if not glob.startswith("!")]
    excluded = tuple(_excluded(glob, bases) for glob in globs if glob.startswith("!"))
    if not wanted or not _ALL.isdisjoint(wanted):
        return FileSelection(None, excluded)
    first, *others = tests = [compile_glob(glob).match for glob in wanted]
    names = tuple(dict.fromkeys(map(base_glob, wanted)))
    by_type = not typed and _STAR not in names
    if by_type and set(names) == set(wanted):
        return FileSelection(names, excluded)
    accepts: Accepts = (lambda path: any(test(path) for test in tests)) if others else first
    return FileSelection(names if by_type else None, excluded, accepts)


def tidy(glob: str, bases: Sequence[str]) -> str:
    """Normalize a glob: relative to the searched directory, or for base names without a slash."""
    if glob.startswith("/"):
        glob = _below(glob, bases)
    while glob.startswith("**/") and ("/" not in glob[3:] or glob.startswith("**/**/")):
        glob = glob[3:]
    if not glob.strip("./"):
        raise ToolInputError("an empty glob matches nothing; '*' matches every name")
    if "\0" in glob or ".." in glob.split("/"):
        raise ToolInputError(
            f"the glob {glob[:80]!r} contains '..' or NUL; globs are relative to the searched "
            "directory: pass another one as path"
        )
    return glob


def _below(glob: str, bases: Sequence[str]) -> str:
    for base in bases:
        if glob.startswith(base.rstrip("/") + "/"):
            # With the leading dot it stays a path, even without another slash.
            return f"./{glob[len(base.rstrip('/')) :].lstrip('/') or '**'}"
    raise ToolInputError(
        f"the glob {glob[:80]!r} is not below the searched directory {bases[0]!r}; remove the "
        "leading slash, or pass another directory as path"
    )


def _excluded(glob: str, bases: Sequence[str]) -> str:
    rest = glob[1:]
    for base in (*bases, "."):
        if rest.startswith(base.rstrip("/") + "/"):
            rest = "/" + rest[len(base.rstrip("/")) :].lstrip("/")
    if not rest.strip("/") or "\0" in rest:
        raise ToolInputError(f"the glob {glob[:80]!r} does not say what to exclude")
    compile_glob(rest)
    return f"!{rest}"


class IgnoreRules:
    """Ordered rules, as in an ignore file. The last matching rule wins.

    As with git, rules from a file have no braces, and invalid ones match nothing. Otherwise an
    invalid rule raises `ToolInputError`, and there are no comments and no negated rules.
    """

    def __init__(self, lines: Sequence[str], *, from_file: bool) -> None:
        if from_file:
            ends = (re.sub(r"(?<!\\) +\Z", "", line.removesuffix("\r")) for line in lines)
            lines = [
                line
                for line in ends
                if not line.startswith("#") and line.removeprefix("!").strip("/")
            ]
        self._runs: list[tuple[bool, bool, re.Pattern[str]]] = []
        # Consecutive rules of the same kind become one expression, the last ones first.
        for keep, group in groupby(
            reversed(lines), key=lambda line: from_file and line.startswith("!")
        ):
            alike: dict[tuple[bool, bool], dict[Tokens, None]] = {}
            for line in group:
                # With a trailing slash, it matches only directories.
                glob = line[keep:].removesuffix("/")
                if from_file and not {"", "."}.isdisjoint(glob.removeprefix("/").split("/")):
                    continue  # as in git, no path has such a component
                try:
                    alternatives, whole = _alternatives(glob, braces=not from_file)
                except ToolInputError:
                    if from_file:
                        continue
                    raise
                key = (line.endswith("/"), whole)
                alike.setdefault(key, {}).update(dict.fromkeys(alternatives))
            for (directories, whole), each in alike.items():
                self._runs.append((keep, directories, re.compile(_expression([*each], whole))))

    def keeps(self, path: str, start: int, *, directory: bool) -> bool | None:
        """Whether the path from `start` on is kept or excluded; None if no rule matches."""
        for keep, directories, pattern in self._runs:
            if (directory or not directories) and pattern.match(path, start):
                return keep
        return None
