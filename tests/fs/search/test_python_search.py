"""The search without ripgrep: the same results, nothing from outside, and it can be killed."""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fs.tricks import swapping, without_privileges
from tests.lacking import needs

from clawkit.errors import ToolInputError
from clawkit.fs.protocols import MAX_LINE
from clawkit.fs.search.python_search import FileWalk, SearchRequest, compile_pattern, main, run

PROGRAM = [sys.executable, "-I", "-m", "clawkit.fs.search.python_search"]
RG = shutil.which("rg", path=os.path.dirname(sys.executable)) or shutil.which("rg") or ""
GIT = shutil.which("git") or ""
needs_rg = needs(RG, "ripgrep")
ALIKE = [
    "--no-config", "--no-heading", "--with-filename", "--line-number", "--null", "--color=never",
    "--no-require-git", "--no-ignore-global", "--hidden", "--glob=!.git", "--crlf",
]  # fmt: skip
FLAGS = {
    "literal": ["--fixed-strings"],
    "ignore_case": ["--ignore-case"],
    "multiline": ["--multiline"],
    "ignored": ["--no-ignore"],
    "context": ["--context={}"],
    "output": {"files": ["--files-with-matches"], "count": ["--count"], "content": []},
    "globs": ["--glob={}"],
    "types": ["--type-add=wanted:{}"],
}


def search(place: Path, **request: Any) -> tuple[int, bytes, str]:
    """Exit status, output and notes of a search in this process."""
    out, notes = io.BytesIO(), io.StringIO()

    def note(text: str) -> None:
        print(f"note: {text}", file=notes)

    with contextlib.chdir(place):
        found = run(SearchRequest(**{"op": "grep", **request}), out, note)
    return 0 if found else 1, out.getvalue(), notes.getvalue()


def start(place: Path, argument: str, *wrapper: str) -> subprocess.CompletedProcess[bytes]:
    """The same in a process of its own."""
    argv = [*wrapper, *PROGRAM, argument]
    return subprocess.run(argv, cwd=place, capture_output=True, check=False)


def ripgrep(place: Path, **request: Any) -> tuple[int, bytes]:
    """What ripgrep makes of the same request."""
    arguments = list(ALIKE)
    for key, value in request.items():
        flags: Any = FLAGS.get(key, [])
        flags = flags[value] if isinstance(flags, dict) else flags if value else []
        values = value if isinstance(value, list) else [value]
        arguments += [flag.format(each) for flag in flags for each in values]
    if request.get("types"):
        arguments.append("--type=wanted")
    arguments += ["--files"] if request.get("op") == "files" else ["-e", request["pattern"]]
    done = subprocess.run(
        [RG, *arguments, request.get("target", ".")], cwd=place, capture_output=True, check=False
    )
    return done.returncode, done.stdout


def pieces(output: bytes, request: dict[str, Any]) -> list[bytes]:
    """Output in an order of its own: ripgrep takes files as they come."""
    if request.get("op") == "files" or request.get("output") == "files":
        return sorted(output.split(b"\0"))
    output = output.replace(b"\r\n", b"\n")
    return sorted(
        re.split(rb"(?m)^--\n", output) if request.get("context") else output.splitlines(True)
    )


WORDS = [
    "alpha", "beta", "Gamma", "delta_1", "naïve", "ÉCLAIR", "日本", "x=42", "//", "TODO:", "foo()",
    "[ok]", "ñandú", "ſtrasse", "'q'",
]  # fmt: skip


def write_tree(place: Path) -> None:
    """Text of all kinds in a few directories, with ignore files of every kind."""
    pick = random.Random(7)
    for number in range(60):
        folder = place / pick.choice(
            ["", "src", "src/deep/er", "lib", "lib/.cfg", "build/out", "a b"]
        )
        folder.mkdir(parents=True, exist_ok=True)
        end = pick.choice(["\n", "\n", "\n", "\r\n"])
        lines = [
            " ".join(pick.choices(WORDS, k=pick.randrange(6))) for _ in range(pick.randrange(40))
        ]
        text = end.join(lines) + pick.choice([end, ""])
        ending = pick.choice(["py", "txt", "md", "log"])
        name = f"{pick.choice(['f', 'g', '.h', 'é'])}{number}.{ending}"
        encoding = pick.choice(["utf-8"] * 8 + ["utf-8-sig"])
        (folder / name).write_bytes(text.encode(encoding))
    (place / "big.txt").write_text("".join(f"line {n} {WORDS[n % 15]}\n" for n in range(20_000)))
    (place / "bin.dat").write_bytes(b"alpha\0beta\n" * 10)
    (place / "latin.txt").write_bytes("caf\xe9 alpha\nbeta \xff\n".encode("latin-1"))
    (place / "empty.txt").touch()
    (place / "blank.txt").write_bytes(b"\n\n\nalpha\n\n")
    (place / "odd\nname\udcff.txt").write_text("alpha\n")
    (place / "link.txt").symlink_to("big.txt")
    (place / "linked").symlink_to("src")
    (place / ".gitignore").write_text("*.log\n!f*.log\n/build/\n# no\n\nlib/*.md\n*.dat\n")
    (place / "src/.gitignore").write_text("!*.log\ndeep/**/g*\n")
    (place / "lib/.ignore").write_text("*.py\n!/é*.py\n")
    (place / "src/deep/.rgignore").write_text("*.txt\n")
    (place / ".git").mkdir()
    (place / ".git/config").write_text("alpha\n")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tree")
    write_tree(place)
    return place


REQUESTS: list[dict[str, Any]] = [
    {"pattern": "alpha"},
    {"pattern": "ALPHA|éclair|STRASSE|naÏve", "ignore_case": True},
    {"pattern": "foo()", "literal": True},
    {"pattern": "[OK]", "literal": True, "ignore_case": True},
    {"pattern": r"\bdelta_\d\b", "context": 2},
    {"pattern": "日本", "context": 3},
    {"pattern": "TODO", "context": 1},
    {"pattern": r"alpha$"},
    {"pattern": r"^$", "output": "count"},
    {"pattern": "", "output": "count"},
    {"pattern": r"\s+"},
    {"pattern": r"\S+\s[^\w\s]", "output": "count", "globs": ["!latin*"]},
    {"pattern": r"[^a-z\s]{3}"},
    {"pattern": r"alpha\s+beta", "multiline": True},
    {"pattern": r"alpha\s+beta", "multiline": True, "context": 1},
    {"pattern": r"\n\n\w+", "multiline": True},
    {"pattern": r"^\n", "multiline": True},
    {"pattern": r"alpha\n", "multiline": True, "output": "count"},
    {"pattern": r"(?s)TODO.{1,9}foo", "multiline": True, "output": "files"},
    {"pattern": "beta", "multiline": True, "output": "count"},
    {"pattern": "a", "output": "files"},
    {"pattern": "line 1999", "output": "count"},
    {"pattern": "line 7000 |line 7003 |line 19999", "context": 1},
    {"pattern": "line", "target": "./big.txt", "output": "count"},
    {"pattern": "alpha", "types": ["*.py", "[fg]*.md"]},
    {"pattern": "alpha", "globs": ["!*.py", "!/lib", "!**/er/"]},
    {"pattern": "alpha", "globs": ["!*.{txt,md}"], "output": "files"},
    {"pattern": "alpha", "ignored": True, "output": "files"},
    {"pattern": "no such thing"},
    {"op": "files"},
    {"op": "files", "ignored": True},
    {"op": "files", "types": ["*.txt"], "globs": ["!src/"]},
]


@needs_rg
def test_results_agree_with_ripgrep(tree: Path) -> None:
    wrong = []
    for request in REQUESTS:
        status, ours, notes = search(tree, **request)
        code, theirs = ripgrep(tree, **request)
        if (status, pieces(ours, request), notes) != (code, pieces(theirs, request), ""):
            wrong.append(request)
    assert wrong == []


def test_patterns_are_python_expressions(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("abab\nAB\nx\\n\ntwo\r\n\n")
    for pattern, lines in (
        (r"(ab)\1", [1]),
        (r"a(?=b)", [1]),
        (r"(?i:AB)$", [1, 2]),
        (r"\Ax", [3]),
        (r"b\Z", [1]),
        (r"\\n", [3]),
        (r"[^\n]", [1, 2, 3, 4]),
        (r"[^a-z]", [2, 3]),
        ("two$", [4]),
        (r"two\r$", [4]),
        (r"two\s", []),
        ("^$", [5]),
    ):
        assert lines_in(search(tmp_path, pattern=pattern)[1]) == lines, pattern


def lines_in(output: bytes) -> list[int]:
    """The numbers of the lines in the results for one file."""
    return [int(line.partition(b"\0")[2].partition(b":")[0]) for line in output.split(b"\n")[:-1]]


def test_invalid_searches_are_explained() -> None:
    for pattern, says in (
        ("fo(o", "(character 3)"),
        ("foo)", "(character 4)"),
        ("*a", "(character 1): nothing to repeat; literal=true"),
        ("x[ab", "(character 2)"),
        ("[b-a]", "(character 2)"),
        ("a{3,2}", "(character 3)"),
        (r"\p{L}", "as a Python regular expression (character 1): bad escape"),
        ("a\\", "(character 2)"),
        (r"a\nb", "multiline=true"),
        (r"\\\n", "multiline=true"),
        ("a\nb", "multiline=true"),
        ("(" * 9_000 + ")" * 9_000, "recursion"),
        ("a{99999999999}", "too large"),
    ):
        with pytest.raises(ToolInputError) as caught:
            compile_pattern(SearchRequest(op="grep", pattern=pattern))
        assert says in str(caught.value), pattern


def test_a_wrong_request_is_refused(tmp_path: Path) -> None:
    for request, says in (
        ({"pattern": "a(\t"}, "character 2"),
        ({"pattern": "a\nb", "literal": True}, "multiline"),
        ({"pattern": "a", "types": ["["]}, "character 1"),
        ({"pattern": "a", "globs": ["!{"]}, "character 1"),
    ):
        with pytest.raises(ToolInputError) as caught:
            search(tmp_path, **request)
        assert says in str(caught.value), request
        assert "\n" not in str(caught.value)


def test_the_exit_status_tells_whether_there_were_matches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "f").write_text("alpha\n")
    monkeypatch.chdir(tmp_path)
    for argument, status, output, lines in (
        ('{"op": "grep", "pattern": "alpha"}', 0, b"./f\x001:alpha\n", 0),
        ('{"op": "grep", "pattern": "beta"}', 1, b"", 0),
        ('{"op": "grep", "pattern": "("}', 2, b"", 1),
    ):
        monkeypatch.setattr(sys, "argv", ["python_search", argument])
        assert main() == status, argument
        written = capfdbinary.readouterr()
        assert (written.out, written.err.count(b"\n")) == (output, lines), argument


def walk(place: Path, *, ignored: bool = False) -> tuple[list[str], list[str]]:
    """The files of a tree, and what is to be known about it."""
    notes: list[str] = []
    with contextlib.chdir(place):
        found = FileWalk(SearchRequest(op="files", ignored=ignored), notes.append).files()
        return sorted(path for path, _, _ in found), notes


NAMES = ["a", "b", "ab", ".a", "a.b"]
RULES = st.lists(
    st.builds(
        "{}{}{}{}".format,
        st.sampled_from(["", "", "!"]),
        st.sampled_from(["", "", "/", "**/"]),
        st.lists(
            st.sampled_from(
                ["a", "b", "*", "?", "[ab]", "[!a]", "/", "/**/", ".", "d", "\\a", "#"]
            ),
            min_size=1,
            max_size=4,
        ).map("".join),
        st.sampled_from(["", "", "/", "/**", "/*", "  ", "\r"]),
    )
    # Two stars beside something else: git does not do what its manual says of them.
    .filter(lambda rule: not re.search(r"[^/!]\*\*|\*\*[^/\s]", rule)),
    max_size=5,
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("repository")
    folders = ("", "d", "d/a", "d/d", "b/d", "d/ab/d")
    for folder in folders:
        (place / folder).mkdir(parents=True, exist_ok=True)
    for folder in folders:
        for name in NAMES:
            if not (place / folder / name).exists():
                (place / folder / name).touch()
    if GIT:
        subprocess.run([GIT, "init", "-q"], cwd=place, check=True)
    return place


@needs(GIT, "git")
@given(RULES, RULES)
def test_ignore_files_agree_with_git(repository: Path, top: list[str], inner: list[str]) -> None:
    for name, rules in ((".gitignore", top), ("d/.gitignore", inner)):
        (repository / name).write_bytes("\n".join(rules).encode())
    done = subprocess.run(
        [GIT, "-c", "core.excludesFile=", "ls-files", "-z", "--others", "--exclude-standard"],
        cwd=repository,
        capture_output=True,
        check=True,
    )
    theirs = sorted(f"./{name}" for name in done.stdout.decode().split("\0")[:-1])
    assert walk(repository) == (theirs, [])


def test_ignore_files_are_read_to_the_letter(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_bytes(
        b"\xef\xbb\xbfbom\r\n#c\n\\#d\n\\!e\ntrail  \nspace\\ \n[bad\n*.{x,y}\nq[\\]]q\n/\n!\n"
    )
    names = ["bom", "#c", "#d", "!e", "trail", "space ", "[bad", "f.x", "f.{x,y}", "q]q", "kept"]
    for name in names:
        (tmp_path / name).touch()
    assert walk(tmp_path)[0] == ["./#c", "./.gitignore", "./[bad", "./f.x", "./kept"]
    assert len(walk(tmp_path, ignored=True)[0]) == len(names) + 1


def test_hidden_files_are_shown(tmp_path: Path) -> None:
    for name in (".a", ".b", "c", ".d/x", ".e/x", ".git/config"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".ignore").write_text("!.b\n!.e\n")
    shown = ["./.a", "./.b", "./.d/x", "./.e/x", "./.ignore", "./c"]
    assert walk(tmp_path)[0] == walk(tmp_path, ignored=True)[0] == shown


def test_a_git_file_is_left_out_like_the_directory(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: /elsewhere\n")
    (tmp_path / "a").touch()
    assert walk(tmp_path, ignored=True) == (["./a"], [])


def test_an_ignore_file_that_is_too_large_is_noted_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / ".ignore").write_text("a\n" + "#" * 256 * 1024)
    (tmp_path / ".rgignore").symlink_to("rules")
    (tmp_path / "rules").write_text("*")
    status, output, notes = search(tmp_path, op="files")
    assert (status, b"./a\0" in output) == (0, True)
    assert notes == "note: './.ignore' is ignored: it is larger than 256 KB\n"
    (tmp_path / ".ignore").write_text("a\n" * 20_000)
    assert "./a" not in walk(tmp_path)[0]


def test_a_hostile_ignore_file_does_not_hold_up_the_walk(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text(f"{'*a' * 500}b\n{'**/a*/' * 100}b\n")
    deep = tmp_path / "/".join(["a" * 20] * 20)
    deep.mkdir(parents=True)
    (deep / ("a" * 250)).touch()
    assert len(walk(tmp_path)[0]) == 2


def test_unreadable_files_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    (tmp_path / "link").symlink_to("closed")
    for number in range(10, 40):
        (tmp_path / f"secret{number}").touch(mode=0)
    (tmp_path / "open").write_text("alpha")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["python_search", '{"op": "grep", "pattern": "alpha"}'])
    assert without_privileges(main) == 0
    output, notes = capfdbinary.readouterr()
    assert output == b"./open\x001:alpha\n"
    lines = notes.decode().splitlines()
    assert len(lines) == 31
    assert "note: 'closed' cannot be read: Permission denied" in lines
    assert "note: 'secret10' cannot be read: Permission denied" in lines


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / ".gitignore")
    (tmp_path / "out").symlink_to("/etc/passwd")
    (tmp_path / "up").symlink_to("/")
    (tmp_path / "f").write_text("root\n")
    assert search(tmp_path, pattern="root|bin") == (0, b"./f\x001:root\n", "")


def test_an_endless_line_is_neither_held_nor_lost_count_of(tmp_path: Path) -> None:
    with (tmp_path / "f").open("wb") as file:
        file.write(b"alpha" + b"x" * 1024 * 1024)
        for _ in range(128):
            file.write(b"x" * 1024 * 1024)
        file.write(b"beta\nbeta\n")
    (tmp_path / "g").write_bytes(b"beta\n" + b"y" * 3 * 1024 * 1024 + b"beta")
    limit = ("sh", "-c", 'ulimit -v 100000 && exec "$@"', "sh")
    done = start(tmp_path, '{"op": "grep", "pattern": "alpha|beta"}', *limit)
    first, second, third, end = done.stdout.split(b"\n")
    assert (first[:12], len(first), second) == (b"./f\x001:alphax", 6 + MAX_LINE, b"./f\x002:beta")
    assert (third, end) == (b"./g\x001:beta", b"")
    status, output, notes = search(tmp_path, pattern=r"beta\nbeta", multiline=True)
    assert (status, output) == (1, b"")
    assert notes.startswith("note: './f' is larger than 64 MB")


def test_a_file_that_turns_binary_is_left_at_that_point(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"alpha\n" + b"line\n" * 100_000 + b"\0\nalpha\n")
    assert search(tmp_path, pattern="alpha")[1] == b"./f\x001:alpha\n"
    (tmp_path / "f").write_bytes(b"alpha\n\0")
    assert search(tmp_path, pattern="alpha")[:2] == (1, b"")


def test_a_tree_is_walked_as_deep_as_directories_can_be_open(tmp_path: Path) -> None:
    depth = 1_200
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        for level in range(depth):
            if level % 30 == 0:
                os.close(os.open("z", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
            os.mkdir("d", dir_fd=fd)
            inner = os.open("d", os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = inner
        os.close(fd)
        limits = ("sh", "-c", 'ulimit -n 60 && exec "$@"', "sh")
        done = start(tmp_path, '{"op": "files"}', *limits)
        shallow = ["./" + "d/" * level + "z" for level in (30, 0)]
        assert done.stdout.decode().split("\0")[:-1] == shallow[::-1]
        assert b"Too many open files" in done.stderr
        # The soft limit is not what counts.
        limits = ("sh", "-c", 'ulimit -Sn 60 && exec "$@"', "sh")
        done = start(tmp_path, '{"op": "files"}', *limits)
        assert done.stdout.count(b"\0") == depth / 30
        assert done.stderr == b""
    finally:
        # Nothing in Python removes a tree as deep as that.
        subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)


def test_a_directory_that_is_moved_away_is_still_the_one_that_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels = ["/".join(["d"] * depth) for depth in range(1, 40)]
    (tmp_path / levels[-1]).mkdir(parents=True)
    for level in ("", *levels):
        (tmp_path / level / "z").touch()
    monkeypatch.chdir(tmp_path)
    notes: list[str] = []
    files = FileWalk(SearchRequest(op="files"), notes.append).files()
    first = [next(files)[0] for _ in range(20)]
    assert first[-1] == f"./{levels[18]}/z"
    (tmp_path / levels[3]).rename(tmp_path / "aside")
    (tmp_path / levels[3]).symlink_to("/etc")
    assert [path for path, _, _ in files] == [f"./{level}/z" for level in levels[19:]]
    assert notes == []


def test_a_directory_swapped_for_a_link_shows_nothing_from_outside(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for place, text in ((root / "dir" / "sub", "inside\n"), (outside / "sub", "SECRET\n")):
        place.mkdir(parents=True)
        for number in range(20):
            (place / f"f{number}").write_text(text)
            (place.parent / f"f{number}").write_text(text)
    (outside / "leaked").write_text("inside\n")
    seen = set()
    with swapping(root):
        for _ in range(200):
            _, output, notes = search(root, pattern="inside|SECRET", ignored=True)
            assert b"SECRET" not in output
            assert b"leaked" not in output
            assert notes == ""
            seen.add(output)
    assert any(b"inside" in output for output in seen)


def test_an_expression_that_never_ends_is_ended_with_its_process(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("first b\n" + "a" * 60 + "b\n")
    (tmp_path / "e").write_text("b\n")
    argv = [*PROGRAM, '{"op": "grep", "pattern": "(a+)+$|^b"}']
    with subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"./e\x001:b\n"  # what was found is not held back
        assert process.poll() is None
        process.kill()
        assert process.wait() == -signal.SIGKILL


def test_the_program_ends_when_its_output_is_closed(tmp_path: Path) -> None:
    for number in range(3_000):
        (tmp_path / f"a-file-with-a-long-name-{number}").touch()
    receiver, sender = os.pipe()
    os.close(receiver)
    try:
        argv = [*PROGRAM, '{"op": "files"}']
        done = subprocess.run(
            argv, cwd=tmp_path, stdout=sender, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(sender)
    assert (done.returncode, done.stderr) == (1, b"")
