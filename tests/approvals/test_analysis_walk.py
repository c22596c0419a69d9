"""What commands start in which directory, with which input, and which files they open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clawkit.approvals.analysis import analyze
from clawkit.approvals.types import Analysis, FileUse, Program


@pytest.fixture
def here(tmp_path: Path) -> Path:
    place = tmp_path.resolve()
    (place / "sub/deep").mkdir(parents=True)
    (place / "far/away").mkdir(parents=True)
    (place / "link").symlink_to("far/away")
    (place / "file").write_text("x")
    return place


def look(command: str, here: Path) -> Analysis:
    return analyze(command, cwd=str(here), env={"PATH": "/usr/bin:/bin", "HOME": str(here)})


def programs(command: str, here: Path) -> Iterator[Program]:
    found = look(command.replace("$HERE", str(here)), here)
    assert found.doubt is None, found.doubt
    for segment in found.segments:
        yield from segment.programs


# Each `ls` in order, and the directory it starts in: relative to the first one, None if unknown.
DIRECTORIES: list[tuple[str, list[str | None]]] = [
    ("ls", [""]),
    ("cd sub; ls", ["sub"]),
    ("cd sub\nls", ["sub"]),
    ("cd sub && ls", ["sub"]),
    ("cd -- sub && ls", ["sub"]),
    ("cd ./sub/ && ls", ["sub"]),
    ("cd ~/sub && ls", ["sub"]),
    ("cd $HERE/sub; ls", ["sub"]),
    ("cd sub && cd deep && ls; ls", ["sub/deep", "sub/deep"]),
    ("cd sub && cd .. && ls", [""]),
    ("cd none; ls", [None]),
    ("cd file; ls", [None]),
    ("cd none && ls; ls", ["none", None]),
    ("cd none || ls; ls", ["", None]),
    ("cd sub || ls; ls", [None, None]),
    ("cd none; cd sub; ls; cd $HERE/sub; ls", [None, "sub"]),
    ("cd none || exit 1; ls", ["none"]),
    ("cd none || { echo no; exit 1; }; ls", ["none"]),
    ("cd none || exit 1 > out; ls", [None]),
    ("cd none || exit <<< x; ls", [None]),
    ("cd none && true; ls", [None]),
    ("cd sub && false; ls", ["sub"]),
    ("cd sub && false || ls", ["sub"]),
    ("exit; ls", [None]),
    ("(cd sub; ls); ls", ["sub", ""]),
    ("cd sub | ls; ls", ["", ""]),
    ("true | cd sub; ls", [""]),
    ("ls | { cd sub; ls; } ; ls", ["", "sub", ""]),
    ("{ cd sub; ls; }; ls", ["sub", "sub"]),
    ("{ cd sub; } > out; ls", [None]),
    ("{ cd sub; } > out && ls", ["sub"]),
    ("{ cd sub; } <<< x; ls", [None]),
    ("{ cd sub; } > /dev/null 2>&1; ls", ["sub"]),
    ("cd sub > out; ls", [None]),
    ("cd sub 2> /dev/null; ls", ["sub"]),
    ("! cd none && ls; ls", ["", None]),
    ("! cd none || ls", ["none"]),
    ("time cd sub; ls", ["sub"]),
    ("if cd none; then ls; else ls; fi; ls", ["none", "", None]),
    ("if cd none; then ls; elif cd sub; then ls; else ls; fi; ls", ["none", "sub", None, None]),
    ("if cd none; then ls; fi; ls", ["none", None]),
    ("if true; then cd sub; fi; ls", [None]),
    ("if true; then cd sub; else cd sub; fi; ls", ["sub"]),
    ("if ! cd none; then exit 1; fi; ls", ["none"]),
    ("for d in sub deep; do cd $d; ls; done; ls", ["sub", "sub/deep", "sub/deep"]),
    ("for d in sub sub; do cd $d; ls; done", ["sub", None]),
    ("for d in sub far; do (cd $d && ls); done; ls", ["sub", "far", ""]),
    ("cd link && ls", ["link"]),
    ("cd link && cd .. && ls", [None]),
    ("cd link/..; ls", [None]),
    ("cd sub/../far; ls", ["far"]),
    ("command cd sub && ls", ["sub"]),
    ("sh -c 'cd sub; ls'; ls", ["sub", ""]),
    ("cd sub; sh -c 'ls; cd deep && ls'; ls", ["sub", "sub/deep", "sub"]),
]


@pytest.mark.parametrize(("command", "expected"), DIRECTORIES)
def test_cd_is_followed_as_far_as_it_is_certain(
    here: Path, command: str, expected: list[str | None]
) -> None:
    found = [each.cwd for each in programs(command, here) if each.name == "ls"]
    assert found == [None if each is None else str(here / each) for each in expected]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("cd none; ./run", "cwd"),
        ("cd none; ls > out", "cwd"),
        ("cd none; ls < in", "cwd"),
        ("cd none; { ls; } > out", "cwd"),
        ("cd link/..; ./run", "cwd"),
        ("ls > link/../out", "path"),
        ("link/../run", "path"),
    ],
)
def test_a_relative_path_needs_a_certain_directory(here: Path, command: str, code: str) -> None:
    found = look(command, here)
    assert found.doubt is not None
    assert found.doubt.code == code
    assert found.doubt.at >= 0
    assert found.rebuilt == ""


def test_a_directory_that_is_not_absolute_is_not_known() -> None:
    for cwd in ("", "x", "/x\0y"):
        found = analyze("ls; ./x", cwd=cwd, env={"PATH": "/usr/bin:/bin"})
        assert found.segments[0].programs[0].cwd is None
        assert found.doubt is not None
        assert found.doubt.code == "cwd"


# The input of each program, in order.
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cat", [False]),
        ("cat < file", [False]),
        ("cat | cat", [False, True]),
        ("cat |& cat", [False, True]),
        ("cat | { cat; cat | cat; }; cat", [False, True, True, True, False]),
        ("cat | (cat; cat)", [False, True, True]),
        ("cat | timeout 5 cat", [False, True, True]),
        ("cat | sh -c 'cat; cat | cat'", [False, True, True, True, True]),
    ],
)
def test_a_program_that_reads_from_a_pipe_is_marked(
    here: Path, command: str, expected: list[bool]
) -> None:
    assert [each.piped for each in programs(command, here)] == expected


FILES = [
    ("ls > out", [("out", True)]),
    ("ls >> out", [("out", True)]),
    ("ls >| out", [("out", True)]),
    ("ls &> out", [("out", True)]),
    ("ls &>> out", [("out", True)]),
    ("ls 2> out", [("out", True)]),
    ("ls < file", [("file", False)]),
    ("ls 0> file", [("file", True)]),
    ("ls < file > out 2> err", [("file", False), ("out", True), ("err", True)]),
    ("ls > /dev/null 2>&1 < /dev/null", []),
    ("ls > /dev/../dev/null", []),
    ("ls >&2 2>&1 1<&2", []),
    ("> out", [("out", True)]),
    ("A=1 > out", [("out", True)]),
    ("echo x > ~/out", [("out", True)]),
    ("cd sub && ls > out", [("sub/out", True)]),
    ("cd sub > out", [("out", True)]),
    ("(ls) > out", [("out", True)]),
    ("{ cd sub; ls > a; } > b", [("b", True), ("sub/a", True)]),
    ("if ls; then ls; fi < file", [("file", False)]),
    ("for i in a b; do ls > $i; done", [("a", True), ("b", True)]),
    ("ls > ./sub/../out", [("out", True)]),
    ("ls > 'a b'", [("a b", True)]),
    ("sh -c 'ls > out'", [("out", True)]),
    ("exec ls > out", [("out", True)]),
]


@pytest.mark.parametrize(("command", "expected"), FILES)
def test_files_that_the_shell_opens_are_named(
    here: Path, command: str, expected: list[tuple[str, bool]]
) -> None:
    found = look(command, here)
    assert found.doubt is None
    files = [(file.path, file.writes) for each in found.segments for file in each.files]
    assert files == [(str(here / name), writes) for name, writes in expected]


def test_a_file_belongs_to_its_part_of_the_command(here: Path) -> None:
    found = look("ls 2> out; (ls) > out", here)
    assert found.segments[0].files == (FileUse(str(here / "out"), True),)
    assert [each.text for each in found.segments] == ["ls 2> out", "> out", "ls"]


@pytest.mark.parametrize(
    "redirection",
    [
        "> /dev/tcp/127.0.0.1/80",
        "> /dev//tcp/127.0.0.1/80",
        "> //dev/tcp/127.0.0.1/80",
        "< /dev/udp/127.0.0.1/80",
        "> /dev/stdout",
        "< /dev/stdin",
        "< /dev/fd/0",
        "> /dev/tty",
        "> /dev",
        "< /proc/self/environ",
        "> /proc/self/mem",
        "> sub/",
        "> sub/.",
        "> ''",
        "3> out",
        "3>&1",
        "2>&3",
        "2>&-",
        "<&-",
        "<&1",
        "0>&2",
        "0<&1",
        "1<<'E'",
        "3<<< x",
        "1<<< x",
    ],
)
def test_any_other_redirection_is_in_doubt(here: Path, redirection: str) -> None:
    end = "\nE\n" if redirection.endswith("'E'") else ""
    for command in (f"ls {redirection}{end}", f"{{ ls; }} {redirection}{end}"):
        found = look(command, here)
        assert found.doubt is not None
        assert found.doubt.code == "redirect"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("for f in *.txt; do ls; done", "dynamic-list"),
        ("for f in; do ls; done", "dynamic-list"),
        ("for f in $x; do ls; done", "dynamic-list"),
        ("for f in a 'b c'; do ls $f; done", "parameter"),
        ("for f in ''; do ls $f; done", "parameter"),
        ("for f in '*'; do ls $f; done", "parameter"),
        ("for f in 'a\\b'; do ls $f; done", "parameter"),
        ("for f in '[a]'; do ls $f; done", "parameter"),
        ("for f in 'a\tb'; do ls $f; done", "parameter"),
        ("for f in a; do ls; done; ls $f", "parameter"),
        ("for f in a; do ls $g; done", "parameter"),
        ("for f in a; do break; done", "builtin"),
        ("for f in a; do continue; done", "builtin"),
        ("for f in a; do f=b; ls $f; done", "assignment"),
        ("for f in a; do f=b ls $f; done", "assignment"),
        ("for f in a; do export f=b; ls $f; done", "assignment"),
        ("for f in a; do for f in b; do ls; done; ls $f; done", "assignment"),
        ("for INHERITED in a; do ls; done", "assignment"),
        ("for GIVEN in a; do ls; done", "assignment"),
        ("A=1; for A in a; do ls; done", "assignment"),
        ("export A=1; for A in a; do ls; done", "assignment"),
        ("for EMACS in a; do ls; done", "variable"),
        ("for f in a; do sh -c 'ls $f'; done", "parameter"),
        ("ls $HOME", "parameter"),
        ('ls "$x"', "parameter"),
        ("$x ls", "dynamic-program"),
        ("for f in 'ls -l'; do $f; done", "parameter"),
    ],
)
def test_a_loop_is_only_written_out_when_all_is_known(here: Path, command: str, code: str) -> None:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(here), "INHERITED": "x", "GIVEN": "y"}
    found = analyze(command, cwd=str(here), env=env, assigned=["GIVEN"])
    assert found.doubt is not None
    assert found.doubt.code == code
    assert found.rebuilt == ""


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("for f in a 'b c'; do ls \"$f\"; done", [["a"], ["b c"]]),
        ('for f in a b; do ls x$f.c "${f} d"; done', [["xa.c", "a d"], ["xb.c", "b d"]]),
        ("for f in a; do for g in $f x; do ls $f$g; done; done", [["aa"], ["ax"]]),
        ("for f in ~ {a,b}; do ls $f; done", [["$HERE"], ["a"], ["b"]]),
        ("for path in a; do ls $path; done; for path in b; do ls $path; done", [["a"], ["b"]]),
        ("for f in a; do ls $f*; done", [["a*"]]),
        ("for p in ls; do $p -l; done", [["-l"]]),
        ("for f in 'a;b'; do sh -c \"ls '$f'\"; done", [["-c", "ls 'a;b'"], ["a;b"]]),
    ],
)
def test_a_loop_is_written_out(here: Path, command: str, expected: list[list[str]]) -> None:
    found = [[arg.text for arg in each.argv[1:]] for each in programs(command, here)]
    assert found == [[text.replace("$HERE", str(here)) for text in each] for each in expected]


@pytest.mark.parametrize(
    "text",
    [
        "ls |& cat",
        "ls &> out",
        "ls &>> out",
        "cat <<< x",
        "time ls",
        "ls [^a]*",
        "for f in [^a]; do ls; done",
    ],
)
def test_a_text_for_another_shell_uses_only_common_syntax(here: Path, text: str) -> None:
    found = look(f"sh -c '{text}'", here)
    assert found.doubt is not None
    assert found.doubt.code == "shell"
    assert found.doubt.at == 6
    assert look(text, here).doubt is None or text.startswith("for")


def test_a_text_for_another_shell_is_analysed(here: Path) -> None:
    found = look("A=1 timeout 5 sh -c 'ls -l | cat; pwd > x' | cat", here)
    assert found.doubt is None
    assert [(each.text, each.builtin) for each in found.segments] == [
        ("A=1 timeout 5 sh -c 'ls -l | cat; pwd > x'", ""),
        ("ls -l", ""),
        ("cat", ""),
        ("pwd > x", "pwd"),
        ("cat", ""),
    ]
    first = found.segments[0].programs
    assert [(each.name, each.wrapper) for each in first] == [("timeout", True), ("sh", True)]
    assert [arg.text for arg in first[1].argv] == ["sh", "-c", "ls -l | cat; pwd > x"]
    inner = found.segments[1].programs[0]
    assert (inner.argv[1].at, inner.assigned) == (20, ("A",))


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("sh -c 'ls; $(x)'", "substitution"),
        ("sh -c 'ls; eval x'", "builtin"),
        ("sh -c ''", "empty"),
        ("sh -c 'bash -c \"sh -c ls\"'", "long"),
        ("sh -c 'ls' x", "shell-options"),
    ],
)
def test_a_doubt_about_a_text_for_another_shell_is_one_about_the_command(
    here: Path, command: str, code: str
) -> None:
    found = look(f"true; {command}", here)
    assert found.doubt is not None
    assert found.doubt.code == code
    assert 6 <= found.doubt.at <= 12
    assert found.segments[0].builtin == "true"


def test_shells_may_be_given_text_by_a_shell_once(here: Path) -> None:
    found = list(programs("sh -c 'bash -c \"ls\"'", here))
    assert [each.name for each in found] == ["sh", "bash", "ls"]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("for a in " + "x " * 60 + "; do for b in " + "y " * 60 + "; do ls; done; done", "long"),
        ("for a in " + "x " * 60 + "; do for b in " + "y " * 60 + "; do true; done; done", "long"),
        ("for a in " + "x " * 60 + "; do for b in " + "y " * 60 + "; do : ; done; done", "long"),
        (f"for a in '{'x' * 30_000}'; do for b in {'y ' * 10}; do ls \"$a\"; done; done", "long"),
        (f"for a in {'x ' * 9}; do sh -c 'ls {'y' * 8_000}'; done", "long"),
        ("( " * 30 + "sh -c '" + "( " * 30 + "ls" + " )" * 30 + "'" + " )" * 30, "deep"),
        (";".join(f"x{number}" for number in range(600)), "long"),
        (";".join(f"ls > x/../y{number}" for number in range(600)), "long"),
        ("cd sub;cd ..;" * 300, "long"),
    ],
)
def test_an_analysis_that_would_take_too_long_is_in_doubt(
    here: Path, command: str, code: str
) -> None:
    found = look(command, here)
    assert found.doubt is not None
    assert found.doubt.code == code


def test_variables_count_for_everything_after_them(here: Path) -> None:
    found = programs("ls 1; A=1 ls 2; B=2; ls 3; (export C=3); ls 4; D=4 B=5 ls 6", here)
    assert [(each.argv[1].text, each.assigned) for each in found] == [
        ("1", ()),
        ("2", ("A",)),
        ("3", ("B",)),
        ("4", ("B", "C")),
        ("6", ("B", "C", "D")),
    ]
