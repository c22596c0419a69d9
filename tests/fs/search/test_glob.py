"""Globs: what fits, what is refused, and that no pattern takes forever."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from tests.lacking import needs

from clawkit.errors import ToolInputError
from clawkit.fs.search.ripgrep_globs import MAX_ALTERNATIVES, MAX_LENGTH, base_glob, compile_glob

RG = shutil.which("rg", path=os.path.dirname(sys.executable)) or shutil.which("rg")


def fits(pattern: str, path: str) -> bool:
    return compile_glob(pattern).match(path) is not None


FITS = [
    ("*.py", "a.py .py x/y/a.py .hid/a.py a\nb.py é.py", "a.pyc a.py/b py"),
    ("a*b*c", "abc aXbXc abcbc d/abc", "ab abcd acb a/bc"),
    ("?.txt", "a.txt é.txt x/b.txt", ".txt ab.txt x/.txt"),
    ("[a-c]x", "ax cx d/bx", "dx x a-x"),
    ("[!a-c]x", "dx -x z/!x", "ax x z/x"),
    ("[^a]x", "bx ^x", "ax"),
    ("[]a]x", "]x ax", "bx"),
    ("[a-]x", "ax -x", "bx"),
    ("[\\]]x", "]x", "\\x"),
    ("[{,}]x", "{x ,x }x", "ax"),
    ("{a,b{c,d}}.x", "a.x bc.x bd.x q/a.x", "b.x c.x"),
    ("foo{,.txt}", "foo foo.txt x/foo", "foo. .txt"),
    ("{}a{b}", "ab", "a {}ab"),
    ("a,b", "a,b", "a b"),
    ("\\*\\{\\?\\}\\[\\,", "*{?}[,", "a{?}[,"),
    ("{a\\,b,c}", "a,b c", "a b"),
    ("src/*.py", "src/a.py src/.py", "a.py src/x/a.py x/src/a.py"),
    ("/a.py", "a.py", "x/a.py"),
    ("./a.py", "a.py", "x/a.py"),
    (".//a.py", "a.py", "x/a.py"),
    ("src/**", "src/a src/a/b src/.x", "src a/src/b"),
    ("src/", "src/a src/a/b", "src a/src/b"),
    ("**", "a a/b .x", ""),
    ("/**", "a a/b", ""),
    ("**/x", "x a/x a/b/x", "ax a/xb x/a"),
    ("a/**/b", "a/b a/x/b a/x/y/b", "ab a/xb a/b/c"),
    ("**/a/**/b/c", "a/b/c x/a/y/b/b/c a/b/b/c", "a/c a/b/c/d b/c"),
    ("a/**/b/**/c", "a/b/c a/b/x/c a/x/b/c a/c/b/c", "a/c a/b a/b/cc"),
    ("**/**/x", "x a/x a/b/c/x", "y"),
    ("a**b/c", "ab/c aXXb/c", "a/b/c aXb"),
    ("***/b", "a/b abc/b", "b a/c/b"),
    ("{src/*,lib}/*.c", "src/a/b.c lib/a.c", "src/b.c x/lib/a.c"),
    ("{src/a,b}", "src/a b", "x/b a"),
    ("{/a,./b}", "a b", "x/b x/a"),
    ("{**/a,b/**}", "a x/a b/c", "b x/b/c"),
    ("a[/]b", "", "a/b a[/]b"),
    ("a[+-9]b/c", "a.b/c a5b/c", "a/b/c"),
    ("a[!x]b/c", "a-b/c", "a/b/c axb/c"),
    ("a?b/c", "a-b/c", "a/b/c"),
    ("\\a\\/b", "a/b", "x/a/b"),
    ("!a", "!a", "a"),
    ("#a", "#a", "a"),
]


def test_globs_match_the_expected_paths(subtests: pytest.Subtests) -> None:
    for pattern, yes, no in FITS:
        with subtests.test(pattern=pattern):
            glob = compile_glob(pattern)
            assert [path for path in yes.split(" ") if yes and not glob.match(path)] == []
            assert [path for path in no.split(" ") if no and glob.match(path)] == []


REFUSED = [
    ("src/[ab", "character 5"),
    ("[", "character 1"),
    ("[]", "character 1"),
    ("[!]", "character 1"),
    ("a{b,{c}", "character 2"),
    ("./{a", "character 3"),
    ("a}", "character 2"),
    ("a\\", "character 2"),
    ("[z-a]", "a-z"),
    ("", "empty"),
    ("/", "empty"),
    ("./", "empty"),
    ("a" * (MAX_LENGTH + 1), "4,096"),
    ("{a,b}" * 10, "1,000"),
    (f"{{{'a,' * 500}}}{'b' * 3000}", "characters"),
]


def test_a_bad_pattern_is_refused_with_its_position(subtests: pytest.Subtests) -> None:
    for pattern, says in REFUSED:
        with subtests.test(pattern=pattern):
            with pytest.raises(ToolInputError, match=says) as caught:
                compile_glob(pattern)
            assert len(str(caught.value)) < 200


def test_a_thousand_alternatives_are_accepted() -> None:
    many = "{0,1,2,3,4,5,6,7,8,9}" * 3
    assert len(range(10)) ** 3 == MAX_ALTERNATIVES
    assert fits(f"x{many}/y", "x407/y")
    assert not fits(f"x{many}/y", "x40/y")


BASES = [
    ("*.py", "*.py"),
    ("src/**/*.py", "*.py"),
    ("src/**", "*"),
    ("**", "*"),
    ("src/", "*"),
    ("a**b", "a*b"),
    ("src/Make*", "Make*"),
    ("src/*.{ts,tsx}", "*.{ts,tsx}"),
    ("{src,lib}/*.c", "*.c"),
    ("{src/a,b}.c", "*"),
    ("{src/*,b}", "*"),
    ("foo{,.txt}", "*"),
    ("?[!a].txt", "*.txt"),
    ("[Mm]akefile", "*akefile"),
    ("x/!a b\\*", "*"),
]


def test_the_glob_for_the_base_name(subtests: pytest.Subtests) -> None:
    for pattern, base in BASES:
        with subtests.test(pattern=pattern):
            assert base_glob(pattern) == base


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 40 + "b", "a" * 4_000),
        ("*a" * 2_000 + "*b", "a" * 4_000),
        ("*" * 4_000 + "b", "a" * 4_000),
        ("*?" * 1_000 + "b", "a" * 4_000),
        ("*[ab]" * 800 + "c", "ab" * 2_000),
        ("**/" * 1_000 + "x", "a/" * 2_000 + "y"),
        ("**/a/" * 800 + "x", "a/" * 2_000 + "y"),
        ("**/a*a*a*b/" * 300 + "x", "aaaaaaaa/" * 400 + "y"),
        ("**/*/" * 800 + "x", "a/" * 2_000 + "y"),
        ("**/" + "a/" * 1_000 + "**/x/y", "a/" * 1_999 + "b"),
        ("**/" + "a/" * 1_000 + "x", "a/" * 2_000 + "y"),
        ("*" + "a" * 4_000 + "b", "a" * 4_090),
        ("{*a*a*a*a*b,*a*a*a*a*c}" * 7, "a" * 4_000),
        ("{a,{a,{a,{a,{a,{a,b}}}}}}" * 3 + "x", "a" * 250),
    ],
)
def test_a_hostile_pattern_takes_no_longer_than_another(pattern: str, path: str) -> None:
    glob = compile_glob(pattern)
    assert glob.match(path) is None
    assert not any(glob.match(f"{path}/{number}") for number in range(20))


# A pattern as data: text, "*", "?", a class (chars, negated), or a list of alternatives.
Part = str | tuple[str, bool] | list["Glob"]
Glob = list[Part]

LETTERS = "ab."
CLASSES = st.tuples(st.text(LETTERS, min_size=1, max_size=2), st.booleans())


def parts(*, slashes: bool, empty: bool) -> st.SearchStrategy[Glob]:
    marks = ["*", "*", "?", "**/", "/", "/**"] if slashes else ["*", "*", "?", "**"]
    part: st.SearchStrategy[Part] = st.sampled_from([*LETTERS, *marks]) | CLASSES
    inner = st.lists(part, min_size=0 if empty else 1, max_size=3)
    braces: st.SearchStrategy[Part] = st.lists(inner, min_size=1, max_size=3)
    return st.lists(part | braces, min_size=1, max_size=6)


def render(glob: Glob) -> str:
    text = ""
    for part in glob:
        if isinstance(part, tuple):
            text += f"[{'!' if part[1] else ''}{part[0]}]"
        elif isinstance(part, list):
            text += f"{{{','.join(map(render, part))}}}"
        else:
            text += part
    return text


def choices(glob: Glob) -> list[list[str | tuple[str, bool]]]:
    """Every way to choose, marks taken apart into single characters."""
    ways = [
        [[*way] for each in part for way in choices(each)]
        if isinstance(part, list)
        else [[part] if isinstance(part, tuple) else list(part)]
        for part in glob
    ]
    return [[item for piece in way for item in piece] for way in product(*ways)]


def oracle(glob: Glob, path: str) -> bool:
    """The definition of a glob, tried in every way there is."""
    text = render(glob)
    anchored = "/" in text
    target = path if anchored else path.rpartition("/")[2]
    return any(oracle_path(way, target.split("/")) for way in choices(glob))


def oracle_path(way: list[str | tuple[str, bool]], names: list[str]) -> bool:
    components: list[tuple[str | tuple[str, bool], ...]] = [()]
    for item in way:
        if item == "/":
            components.append(())
        else:
            components[-1] += (item,)
    while len(components) > 1 and components[0] in ((), (".",)):
        del components[0]
    if len(components) > 1 and not components[-1]:
        components[-1] = ("*", "*")

    @cache
    def all_fit(at: int, name: int) -> bool:
        if at == len(components):
            return name == len(names)
        if components[at] == ("*", "*"):
            least = 1 if at == len(components) - 1 else 0
            return any(all_fit(at + 1, end) for end in range(name + least, len(names) + 1))
        return (
            name < len(names)
            and one_fits(components[at], names[name])
            and all_fit(at + 1, name + 1)
        )

    return all_fit(0, 0)


def one_fits(items: tuple[str | tuple[str, bool], ...], name: str) -> bool:
    if not items:
        return not name
    item, *rest = items
    if item == "*":
        return any(one_fits(tuple(rest), name[start:]) for start in range(len(name) + 1))
    if not name:
        return False
    fit = (name[0] in item[0]) != item[1] if isinstance(item, tuple) else item in ("?", name[0])
    return fit and one_fits(tuple(rest), name[1:])


PATHS = st.lists(st.text(LETTERS, min_size=1, max_size=4), min_size=1, max_size=4).map("/".join)


@given(
    parts(slashes=True, empty=True) | parts(slashes=False, empty=True), st.lists(PATHS, max_size=8)
)
@example(["a", "**/", "b"], ["a/b", "ab"])
@example([[["/"], ["a"]], "b"], ["b", "ab"])
def test_globs_agree_with_their_definition(glob: Glob, paths: list[str]) -> None:
    text = render(glob)
    assume(re.fullmatch(r"(\.?/)*", text) is None)
    compiled = compile_glob(text)
    for path in paths:
        assert (compiled.match(path) is not None) == oracle(glob, path), (text, path)
        if compiled.match(path):
            assert compile_glob(base_glob(text)).match(path.rpartition("/")[2]), (text, path)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tree")
    names = ["a", "b", "ab", "ba", ".a", "a.b", "aab", "b.a", "abab"]
    for folder in ("", "a.d", "b.d", "a.d/b.d", "a.d/b.d/a.d", "b.d/ab.d/b.d"):
        (place / folder).mkdir(exist_ok=True, parents=True)
        for name in names:
            (place / folder / name).touch()
    return place


@needs(RG, "ripgrep")
@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(parts(slashes=True, empty=False) | parts(slashes=False, empty=False))
def test_globs_agree_with_ripgrep(tree: Path, glob: Glob) -> None:
    text = render(glob)
    # Where ripgrep is not to be followed: its negated classes match a slash, an empty component
    # is a component, a slash at the end is about directories only, and two stars at the edge of
    # braces count as a component of their own, whatever stands beside the braces.
    odd = "//" in text or text.startswith(("/", "./", "{"))
    odd = odd or text.endswith(("/", "}")) or "{/" in text or ",/" in text
    stars = any(edge in text for edge in ("{**", ",**", "**}", "**,"))
    assume("[!" not in text and not stars and ("/" not in text or not odd))
    assert RG is not None
    anchored = f"/{text}" if "/" in text else text
    done = subprocess.run(
        [RG, "--files", "--hidden", "--no-ignore", "--no-config", "--null", f"--glob={anchored}"],
        cwd=tree,
        capture_output=True,
        check=False,
    )
    assert not done.stderr, (text, done.stderr)
    theirs = set(done.stdout.decode().split("\0")) - {""}
    every = [str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()]
    compiled = compile_glob(text)
    assert {path for path in every if compiled.match(path)} == theirs, text
