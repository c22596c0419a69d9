"""Which files a search looks at: what the program can decide, and what is decided on its output.

A positive glob that is given to ripgrep as such would bring ignored files back. So names are made
a file type, which does not, and what a type cannot tell is compared here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from clawkit.errors import ToolInputError

Accepts = Callable[[str], object]
"""Whether a path fits: anything that is true, or not."""

_ALL = frozenset({"*", "**"})
_PLAIN_ONLY = frozenset("/?[:")
"""What a type reads in another way, or not at all."""


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
    from clawkit.fs.search.glob import base_glob

    wanted = [tidy(glob, bases) for glob in globs if not glob.startswith("!")]
    excluded = tuple(_excluded(glob, bases) for glob in globs if glob.startswith("!"))
    if not wanted or not _ALL.isdisjoint(wanted):
        return Selection(None, excluded)
    names = tuple(dict.fromkeys(base_glob(glob).replace(":", "?") for glob in wanted))
    by_type = not typed and "*" not in names
    exact = by_type and all(_PLAIN_ONLY.isdisjoint(glob) for glob in wanted)
    return Selection(names if by_type else None, excluded, None if exact else _accept(wanted))


def tidy(glob: str, bases: Sequence[str]) -> str:
    """A glob as one from the directory that is searched, or over base names if it has no slash."""
    if glob.startswith("/"):
        glob = _below(glob, bases)
    while glob.startswith("**/") and ("/" not in glob[3:] or glob.startswith("**/**/")):
        glob = glob[3:]
    if not glob.strip("./"):
        raise ToolInputError("an empty glob fits nothing; '*' fits every name")
    if "\0" in glob or ".." in glob.split("/"):
        raise ToolInputError(
            f"the glob {glob[:80]!r} goes up, or holds NUL; globs start at the directory that is "
            "searched: name another one as path"
        )
    return glob


def _below(glob: str, bases: Sequence[str]) -> str:
    for base in bases:
        if glob.startswith(base.rstrip("/") + "/"):
            # With the dot it stays a path, however short it is.
            return f"./{glob[len(base.rstrip('/')) :].lstrip('/') or '**'}"
    raise ToolInputError(
        f"the glob {glob[:80]!r} is not below {bases[0]!r}, which is searched; leave the first "
        "slash away, or name another directory as path"
    )


def _excluded(glob: str, bases: Sequence[str]) -> str:
    from clawkit.fs.search.glob import compile_glob

    rest = glob[1:]
    for base in (*bases, "."):
        if rest.startswith(base.rstrip("/") + "/"):
            rest = "/" + rest[len(base.rstrip("/")) :].lstrip("/")
    if not rest.strip("/") or "\0" in rest:
        raise ToolInputError(f"the glob {glob[:80]!r} names nothing that could be left out")
    compile_glob(rest)
    return f"!{rest}"


def _accept(globs: Sequence[str]) -> Accepts:
    from clawkit.fs.search.glob import compile_glob

    tests = [compile_glob(glob).match for glob in globs]
    return tests[0] if len(tests) == 1 else lambda path: any(test(path) for test in tests)
