"""Which files a search looks at."""

from __future__ import annotations

import pytest
from tests.tables import table

from clawkit.errors import ToolInputError
from clawkit.fs.search.ripgrep_globs import select

BASES = ("/real/ws", "/home/me/ws")


@table(
    ("globs", "names"),
    [
        (["*.py"], ("*.py",)),
        (["*.{ts,tsx}", "*.py", "*.py"], ("*.{ts,tsx}", "*.py")),
        (["**/*.py"], ("*.py",)),
        (["**/**/*.py"], ("*.py",)),
        (["**/Makefile"], ("Makefile",)),
    ],
)
def test_plain_names_are_left_to_the_program(globs: list[str], names: tuple[str, ...]) -> None:
    chosen = select(globs, BASES)
    assert chosen.accepts is None
    assert chosen.names == names


def test_names_are_compared_where_the_type_is_not_enough(subtests: pytest.Subtests) -> None:
    for glob, fits, others in [
        ("src/*.py", ["src/a.py"], ["a.py", "x/src/a.py", "src/x/a.py"]),
        ("./*.py", ["a.py"], ["src/a.py"]),
        ("src/**/*.ts", ["src/a.ts", "src/x/y/a.ts"], ["a.ts"]),
        ("**/test/*.py", ["test/a.py", "x/test/a.py"], ["test/x/a.py"]),
        ("src/", ["src/a", "src/x/b"], ["a"]),
        ("/real/ws/src/*.py", ["src/a.py"], ["x/src/a.py"]),
        ("/home/me/ws/*.py", ["a.py"], ["src/a.py"]),
        ("[ab]?.txt", ["a1.txt", "x/bé.txt"], ["c1.txt", "a.txt"]),
        ("a:b.txt", ["a:b.txt", "x/a:b.txt"], ["axb.txt"]),
        ("{src/a,lib/b}.py", ["src/a.py", "lib/b.py"], ["a.py", "src/b.py"]),
    ]:
        with subtests.test(glob=glob):
            for typed in (False, True):
                accepts = select([glob], BASES, typed=typed).accepts
                assert accepts is not None
                assert all(map(accepts, fits))
                assert not any(map(accepts, others))


def test_one_of_several_is_enough() -> None:
    accepts = select(["src/*.py", "*.md"], BASES).accepts
    assert accepts is not None
    assert [bool(accepts(path)) for path in ("src/a.py", "x/b.md", "b.py")] == [True, True, False]


@table("glob", ["*", "**", "**/*", "/real/ws/", "**/**"])
def test_everything_needs_no_comparing(glob: str) -> None:
    chosen = select([glob], BASES)
    assert chosen.names is None
    assert chosen.accepts is None or chosen.accepts("any/path")


def test_a_type_leaves_names_to_be_compared() -> None:
    chosen = select(["test_*"], BASES, typed=True)
    assert chosen.names is None
    assert chosen.accepts is not None
    assert chosen.accepts("x/test_a.py")


def test_exclusions_are_handed_on() -> None:
    chosen = select(["!*.min.js", "!/real/ws/gen/x", "!./top", "!a/b"], BASES)
    assert chosen.names is None
    assert chosen.accepts is None
    assert chosen.excluded == ("!*.min.js", "!/gen/x", "!/top", "!a/b")


def test_a_glob_that_cannot_be_read_is_explained(subtests: pytest.Subtests) -> None:
    for glob, words in [
        ("", "empty"),
        ("./", "empty"),
        ("/", "not below"),
        ("/etc/*", "not below"),
        ("../*.py", r"contains '\.\.'"),
        ("a/../b", r"contains '\.\.'"),
        ("a\0b", "NUL"),
        ("[a", "never closed"),
        ("{a", "never closed"),
        ("!", "what to exclude"),
        ("!/", "what to exclude"),
        ("![a", "never closed"),
    ]:
        with subtests.test(glob=glob), pytest.raises(ToolInputError, match=words):
            select([glob], BASES)
