"""Globs as ripgrep and .gitignore read them, compiled to expressions that cannot run away.

`*` and `?` stop at a slash, `**` as a whole component matches any number of components, `[a-z]`
and `[!a-z]` one character, `{a,b}` either, and a backslash takes the next character as it is. A
pattern without a slash is about the base name, at any depth; any other about the whole path.

Between two stars the first place that fits is as good as any later one, so it is final
(an atomic group): the work grows with the length of the path, never with the ways to read it.

A selection says which files a search looks at: what the search program can decide, and what is
decided on its output. A positive glob that is given to ripgrep as such would bring ignored files
back. So names are made a file type, which does not, and what a type cannot tell is compared here.
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
"""Characters of all alternatives together; that many compile in half a second."""

# A pattern is read into tokens: expressions that match one character each, and these marks. A
# character that stands for itself is escaped, so it is never taken for a mark.
_STAR, _SLASH, _OPEN, _COMMA, _CLOSE = "*", "/", "{", ",", "}"
_ANY = "[^/]"
_CLASS = "(?!/)["
# An escaped character, a class (whose first character may be a bracket), or any character.
_TOKEN = re.compile(r"\\.|\[[!^]?+(?:\\.|[^\\])(?:\\.|[^\\\]])*+\]|.", re.DOTALL)
_ITEM = re.compile(r"(\\?.)(?:-(\\?.))?", re.DOTALL)

Tokens = tuple[str, ...]
Accepts = Callable[[str], object]
"""Whether a path fits: anything that is true, or not."""

_ALL = frozenset({"*", "**"})
# What ripgrep reads in a type as it is read here. (Its `?` and classes are about bytes, and it
# drops an empty alternative.)
_CHARS = r"[\w.*@+=~%-]+"
_BASE = re.compile(rf"(?:{_CHARS}|\{{{_CHARS}(?:,{_CHARS})*\}})+")


def compile_glob(pattern: str) -> re.Pattern[str]:
    """An expression whose `match` tells whether a relative path fits.

    A leading `./` or `/` only says that the whole path is meant; a slash at the end stands for
    everything below. Raises `ToolInputError` for what cannot be read or stands for too much.
    """
    return re.compile(_expression(*_alternatives(pattern, braces=True)))


def _expression(alternatives: Sequence[Tokens], whole: bool) -> str:
    if whole:
        return rf"(?:{'|'.join(map(_path, alternatives))})\Z"
    return rf"(?s:.*/)?+(?:{'|'.join(map(_component, alternatives))})\Z"


def base_glob(pattern: str) -> str:
    """A glob without slashes for the base names of the paths that fit; it may fit others too."""
    base = re.sub(r"\?|\[[!^]?[^\]\\/]+\]", _STAR, pattern.rpartition("/")[2])
    return re.sub(r"\*+", _STAR, base) if _BASE.fullmatch(base) else _STAR


def _alternatives(pattern: str, braces: bool) -> tuple[list[Tokens], bool]:
    """What the braces stand for, and whether the pattern is about whole paths."""
    if len(pattern) > MAX_LENGTH:
        raise ToolInputError(
            f"the glob is {len(pattern):,} characters long; at most {MAX_LENGTH:,} are allowed"
        )
    if re.fullmatch(r"(?:\.?/)*+", pattern):
        raise ToolInputError(f"the glob {pattern!r} is empty; '**' matches every file")
    tokens = _read(pattern, braces)
    return _expand(tokens), _SLASH in tokens


def _read(pattern: str, braces: bool) -> list[str]:
    tokens: list[str] = []
    opened: list[int] = []
    for found in _TOKEN.finditer(pattern):
        text, at = found[0], found.start()
        char = text[-1]
        if text == "\\":
            _refuse(pattern, at, "nothing follows the backslash")
        if text == "[":
            _refuse(pattern, at, "'[' is never closed; write '\\[' for the character itself")
        if text[0] == "[":
            token = _read_class(pattern, at, text)
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
                _refuse(pattern, at, "'}' closes nothing; write '\\}' for the character itself")
            opened.pop()
        tokens.append(token)
    if opened:
        _refuse(pattern, opened[-1], "'{' is never closed; write '\\{' for the character itself")
    return tokens


def _read_class(pattern: str, at: int, text: str) -> str:
    """One character of a class. A slash is in none."""
    negated = text[1] in "!^"
    items: list[str] = []
    for item in _ITEM.finditer(text, 1 + negated, len(text) - 1):
        low, high = item[1][-1], (item[2] or item[1])[-1]
        if low > high:
            _refuse(pattern, at + item.start(), f"the range is reversed; write {high}-{low}")
        items.append(f"{re.escape(low)}-{re.escape(high)}")
    return f"{_CLASS}{'^' if negated else ''}{''.join(items)}]"


def _refuse(pattern: str, at: int, why: str) -> NoReturn:
    near = pattern[max(0, at - 20) : at + 20]
    raise ToolInputError(f"the glob is wrong at character {at + 1}, near {near!r}: {why}")


def _expand(tokens: Sequence[str]) -> list[Tokens]:
    """Every way to choose between alternatives, without the marks for them."""
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
            f"{MAX_EXPANDED:,} characters; ask for less at a time"
        )
    return [head + tail for head in heads for tail in tails]


def _split(tokens: Tokens, mark: str) -> list[Tokens]:
    """The parts between the marks, like `str.split`."""
    ends = [at for at, token in enumerate(tokens) if token == mark]
    starts = [0, *(at + 1 for at in ends)]
    return [tokens[start:end] for start, end in zip(starts, [*ends, len(tokens)], strict=True)]


def _path(tokens: Tokens) -> str:
    """A whole path: runs of components, with any number of others where a `**` is."""
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
        return rf"{text}(?s:.*/)?+{tail[0]}"
    rest = rf"[^/]++(?:/[^/]++){{{len(tail) - 1}}}\Z"
    return rf"{text}(?>(?:[^/]++/)*(?={rest})){'/'.join(tail)}"


def _component(tokens: Tokens) -> str:
    head, *others = ("".join(part) for part in _split(tokens, _STAR))
    if not others:
        return head
    *middle, tail = others
    # The last part has to be at the end, which is the last place where it can be.
    return "".join((head, *(f"(?>[^/]*?{part})" for part in middle if part), f"(?>[^/]*{tail})"))


class Selection(NamedTuple):
    """Files whose name fits one of `names`, none of `excluded`, and whose path is accepted."""

    names: tuple[str, ...] | None = None
    """Globs over base names; None for all."""
    excluded: tuple[str, ...] = ()
    """Globs with `!` in front, as in ignore files."""
    accepts: Accepts | None = None
    """Over the path from the directory that is searched."""


def select(globs: Sequence[str], bases: Sequence[str], *, typed: bool = False) -> Selection:
    """What globs select below a directory that goes by the names `bases`.

    With `typed`, the program's file types are taken already. Raises `ToolInputError` for a glob
    that cannot be read.
    """
    wanted = [tidy(glob, bases) for glob in globs if not glob.startswith("!")]
    excluded = tuple(_excluded(glob, bases) for glob in globs if glob.startswith("!"))
    if not wanted or not _ALL.isdisjoint(wanted):
        return Selection(None, excluded)
    first, *others = tests = [compile_glob(glob).match for glob in wanted]
    names = tuple(dict.fromkeys(map(base_glob, wanted)))
    by_type = not typed and _STAR not in names
    if by_type and set(names) == set(wanted):
        return Selection(names, excluded)
    accepts: Accepts = (lambda path: any(test(path) for test in tests)) if others else first
    return Selection(names if by_type else None, excluded, accepts)


def tidy(glob: str, bases: Sequence[str]) -> str:
    """A glob as one from the directory that is searched, or over base names if it has no slash."""
    if glob.startswith("/"):
        glob = _below(glob, bases)
    while glob.startswith("**/") and ("/" not in glob[3:] or glob.startswith("**/**/")):
        glob = glob[3:]
    if not glob.strip("./"):
        raise ToolInputError("an empty glob matches nothing; '*' matches every name")
    if "\0" in glob or ".." in glob.split("/"):
        raise ToolInputError(
            f"the glob {glob[:80]!r} contains '..' or NUL; globs start at the directory that is "
            "searched: name another one as path"
        )
    return glob


def _below(glob: str, bases: Sequence[str]) -> str:
    for base in bases:
        if glob.startswith(base.rstrip("/") + "/"):
            # With the dot it stays a path, however short it is.
            return f"./{glob[len(base.rstrip('/')) :].lstrip('/') or '**'}"
    raise ToolInputError(
        f"the glob {glob[:80]!r} is not below {bases[0]!r}, which is searched; remove the "
        "leading slash, or name another directory as path"
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


class Rules:
    """Rules in their order, as in an ignore file. The last one that fits decides.

    Rules from a file have no braces, and what cannot be read in them fits nothing, as with git;
    elsewhere it raises `ToolInputError`, and no rule is a comment or keeps what it fits.
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
        # Neighbours that say the same are compared at once, the last ones first.
        for keep, group in groupby(
            reversed(lines), key=lambda line: from_file and line.startswith("!")
        ):
            alike: dict[tuple[bool, bool], dict[Tokens, None]] = {}
            for line in group:
                # With a slash at the end, only directories are meant.
                glob = line[keep:].removesuffix("/")
                if from_file and not {"", "."}.isdisjoint(glob.removeprefix("/").split("/")):
                    continue  # to git, no path has such a component
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
        """Whether the path from `start` on is kept or left out; None when no rule fits it."""
        for keep, directories, pattern in self._runs:
            if (directory or not directories) and pattern.match(path, start):
                return keep
        return None
