"""One simple command: programs, wrappers, builtins, variables."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tables import table

from clawkit.approvals.analysis import analyze
from clawkit.approvals.simple_command import UNREACHABLE, merge_cwd
from clawkit.approvals.types import Analysis, Arg


@pytest.fixture
def here(tmp_path: Path) -> Path:
    place = tmp_path.resolve()
    (place / "sub").mkdir()
    for name in ("run", "sub/run", "cd", "if"):
        (place / name).write_text("#!/usr/bin/env sh\n")
        (place / name).chmod(0o755)
    return place


def look(command: str, here: Path, **more: str) -> Analysis:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(here), **more}
    return analyze(command, cwd=str(here), env=env)


def fine(command: str, here: Path) -> Analysis:
    found = look(command, here)
    assert found.doubt is None, found.doubt
    return found


def code_of(command: str, here: Path) -> str:
    found = look(command, here)
    assert found.doubt is not None
    assert found.rebuilt == ""
    assert found.doubt.reason
    return found.doubt.code


def test_a_program_is_described_with_all_that_is_known(here: Path) -> None:
    (segment,) = fine("A=1 ls -l 'a b' *.c ~/x", here).segments
    assert (segment.text, segment.builtin) == ("A=1 ls -l 'a b' *.c ~/x", "")
    (program,) = segment.programs
    assert program.argv == (
        Arg("ls", at=4),
        Arg("-l", at=7),
        Arg("a b", at=10),
        Arg("*.c", glob=True, at=16),
        Arg(f"{here}/x", at=20),
    )
    assert (program.resolved, program.cwd) == ("/usr/bin/ls", str(here))
    assert program.real.endswith("/ls")
    assert (program.assigned, program.piped, program.wrapper) == (("A",), False, False)
    assert program.script == ()


def test_a_script_is_described_with_its_interpreters(here: Path) -> None:
    (segment,) = fine("./run x", here).segments
    assert segment.programs[0].resolved == f"{here}/run"
    assert segment.programs[0].script == ("/usr/bin/env", "/usr/bin/sh")
    assert not segment.programs[0].by_name


@pytest.mark.parametrize("command", ["nosuchprogram -x", "./none", "'A=b' x", "'-p'", "'a b'"])
def test_a_program_that_is_not_found_has_no_path(here: Path, command: str) -> None:
    found = fine(command, here)
    program = found.segments[0].programs[0]
    assert (program.resolved, program.real) == ("", "")
    assert found.rebuilt.startswith("'")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("~/run", "dynamic-program"),
        ("./r*", "dynamic-program"),
        ("l? x", "dynamic-program"),
        ("''", "dynamic-program"),
        ("'' x", "dynamic-program"),
        ("timeout 5 ''", "dynamic-program"),
        ("timeout 5 ~/run", "dynamic-program"),
        ("command ~/run", "dynamic-program"),
        ("$x", "dynamic-program"),
        ('"$x" y', "dynamic-program"),
        ("/lib64/ld-linux-x86-64.so.2 /usr/bin/ls", "loader"),
        ("timeout 5 ld.so ls", "loader"),
    ],
)
def test_a_program_must_be_named_plainly(here: Path, command: str, code: str) -> None:
    assert code_of(command, here) == code


@pytest.mark.parametrize(
    ("command", "names", "rebuilt"),
    [
        ("timeout 5 ls -l", ["timeout", "ls"], "/usr/bin/timeout 5 /usr/bin/ls -l"),
        ("nice -n 5 timeout 1 ls", ["nice", "timeout", "ls"], None),
        ("nice nice nice nice ls", ["nice"] * 4 + ["ls"], None),
        ("env ls", ["env", "ls"], "/usr/bin/env /usr/bin/ls"),
        ("command ls", ["ls"], r"\command /usr/bin/ls"),
        ("command -- ls", ["ls"], r"\command -- /usr/bin/ls"),
        ("command command ls", ["ls"], r"\command \command /usr/bin/ls"),
        ("exec ls", ["ls"], r"\exec /usr/bin/ls"),
        ("exec timeout 5 ls", ["timeout", "ls"], None),
        ("env true", ["env", "true"], "/usr/bin/env /usr/bin/true"),
        ("timeout 5 echo x", ["timeout", "echo"], "/usr/bin/timeout 5 /usr/bin/echo x"),
        ("exec echo x", ["echo"], r"\exec /usr/bin/echo x"),
        ("timeout 5 cd x", ["timeout", "cd"], "/usr/bin/timeout 5 'cd' x"),
        ("timeout 5 if", ["timeout", "if"], "/usr/bin/timeout 5 'if'"),
        ("timeout 5 ./run", ["timeout", "./run"], "/usr/bin/timeout 5 {here}/run"),
        ("timeout 5 nosuchprogram", ["timeout", "nosuchprogram"], None),
    ],
)
def test_wrappers_are_looked_through(
    here: Path, command: str, names: list[str], rebuilt: str | None
) -> None:
    found = fine(command, here)
    (segment,) = found.segments
    assert [each.name for each in segment.programs] == names
    assert [each.wrapper for each in segment.programs] == [True] * (len(names) - 1) + [False]
    assert segment.builtin == ""
    if rebuilt is not None:
        assert found.rebuilt == rebuilt.format(here=here)


def test_each_wrapper_has_its_own_syntax(here: Path) -> None:
    outer, inner = fine("timeout -k 3 5 ls -l", here).segments[0].programs
    assert [arg.text for arg in outer.argv] == ["timeout", "-k", "3", "5"]
    assert [arg.text for arg in inner.argv] == ["ls", "-l"]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("nice nice nice nice nice ls", "wrapper"),
        ("command command command command command ls", "wrapper"),
        ("sudo ls", "blocked-wrapper"),
        ("xargs rm", "carrier"),
        ("find . -exec rm {} +", "carrier"),
        ("command -p ls", "blocked-wrapper"),
        ("command -V ls", "builtin"),
        ("command", "blocked-wrapper"),
        ("exec", "blocked-wrapper"),
        ("exec > out", "blocked-wrapper"),
        ("exec -a x ls", "blocked-wrapper"),
        ("exec '~/x'", "tilde"),
        ("exec '~root/x'", "tilde"),
        ("command exec '~+/x'", "tilde"),
        ("'%' a", "builtin"),
        ("cd gone/.. && ls", "cwd"),
        ("sh -c 'ls {a,b}'", "shell"),
        ("command eval ls", "builtin"),
        ("command builtin eval ls", "builtin"),
        ("timeout 5 sh", "stdin"),
        ("sh -c *", "glob"),
        ("cd sub; command cd", "builtin"),
    ],
)
def test_programs_that_start_anything_are_in_doubt(here: Path, command: str, code: str) -> None:
    assert code_of(command, here) == code


@pytest.mark.parametrize(
    ("command", "builtin", "rebuilt"),
    [
        (":", ":", r"\:"),
        ("echo 'a b' *", "echo", r"\echo 'a b' *"),
        ("'echo' x", "echo", r"\echo x"),
        ("test -f x", "test", r"\test -f x"),
        ("[ -f x ]", "[", r"\[ -f x ']'"),
        ("pwd -P", "pwd", r"\pwd -P"),
        ("set -euo pipefail", "set", r"\set -euo pipefail"),
        ("exit 3", "exit", r"\exit 3"),
        ("export A='b c' D=", "export", r"\export 'A=b c' 'D='"),
        ("A=1 echo x", "echo", r"A=1 \echo x"),
        ("command -v ls nosuchprogram", "command", r"\command -v ls nosuchprogram"),
        ("command echo x", "echo", r"\command \echo x"),
        ("command command -v ls", "command", r"\command \command -v ls"),
        ("cd sub", "cd", r"\cd -- {here}/sub"),
        ("cd none", "cd", r"\cd -- {here}/none"),
        ("command cd sub", "cd", r"\command \cd -- {here}/sub"),
        ("printf '%s\\n' x", "printf", r"\printf '%s\n' x"),
    ],
)
def test_shell_builtins_are_named(here: Path, command: str, builtin: str, rebuilt: str) -> None:
    found = fine(command, here)
    assert [(each.builtin, each.programs) for each in found.segments] == [(builtin, ())]
    assert found.rebuilt == rebuilt.format(here=here)


@pytest.mark.parametrize(
    "command",
    [
        "eval ls",
        "source run",
        ". ./run",
        "type ls",
        "hash -p ./run ls",
        "read x",
        "unset x",
        "let x=1",
        "trap 'ls' EXIT",
        "alias ls=x",
        "builtin cd sub",
        "declare x=1",
        "local x=1",
        "readonly x=1",
        "mapfile x",
        "shopt -s extglob",
        "enable -f x y",
        "wait",
        "kill 1",
        "ulimit -n 1",
        "umask 0",
        "getopts a x",
        "'if' x",
        r"\time ls",
        "test -v x",
        "printf -v x y",
        "set -x",
        "export A",
        "export A=b *",
        "cd",
        "cd -",
        "cd *",
        "cd a b",
        "exit 256",
        "command -v *",
        "test *",
    ],
)
def test_other_builtins_are_in_doubt_and_never_looked_up(here: Path, command: str) -> None:
    assert code_of(command, here) == "builtin"


def test_case_makes_a_program_of_a_builtin(here: Path) -> None:
    assert fine("CD sub", here).segments[0].programs[0].name == "CD"


def test_a_path_to_the_name_of_a_builtin_is_a_program(here: Path) -> None:
    assert fine("./cd sub", here).segments[0].programs[0].resolved == f"{here}/cd"
    assert fine("./if", here).segments[0].builtin == ""


@pytest.mark.parametrize("command", ["cd sub", "command cd sub"])
def test_cd_is_in_doubt_where_a_variable_steers_it(here: Path, command: str) -> None:
    found = look(command, here, CDPATH="/")
    assert found.doubt is not None
    found = analyze(command, cwd=str(here), env={"PATH": "/bin"}, assigned=["CDPATH"])
    assert found.doubt is not None
    assert found.doubt.code == "builtin"


@pytest.mark.parametrize(
    "command",
    [
        "PATH=. ls",
        "PATH=.; ls",
        "export PATH=.",
        "LD_PRELOAD=x ls",
        "BASH_ENV=x sh -c ls",
        "HOME=. git status",
        "IFS=x",
        "IFS=x ls",
        "A=1 CDPATH=/ cd sub",
        "LANG=C",
        "LC_ALL=C echo x",
        "LC_ALL=ja_JP.SJIS ls",
        "GIT_DIR=x git status",
        "export EDITOR=x",
        "A='x:~'",
    ],
)
def test_variables_that_steer_are_in_doubt(here: Path, command: str) -> None:
    assert code_of(command, here) == "assignment"


@pytest.mark.parametrize(
    ("command", "rebuilt"),
    [
        ("A=1", "A=1"),
        ("A=", "A=''"),
        ("A='b c' B=x/y ls", "A='b c' B=x/y /usr/bin/ls"),
        ("LC_ALL=C.UTF-8 ls", "LC_ALL=C.UTF-8 /usr/bin/ls"),
        ("export LANG=C", r"\export 'LANG=C'"),
        ("A=1 B=2 > out", "A=1 B=2 >{here}/out"),
    ],
)
def test_other_variables_may_be_set(here: Path, command: str, rebuilt: str) -> None:
    assert fine(command, here).rebuilt == rebuilt.format(here=here)


@pytest.mark.parametrize(
    ("command", "calls", "rebuilt"),
    [
        (
            "find src -name '*.c' -exec grep -n x {} + -print",
            [["find", "src", "-name", "*.c", "-print"], ["grep", "-n", "x", "src/**"]],
            "/usr/bin/find src -name '*.c' -exec /usr/bin/grep -n x '{}' + -print",
        ),
        (
            "nice find -exec cat {} ';'",
            [["nice"], ["find"], ["cat", "./**"]],
            "/usr/bin/nice /usr/bin/find -exec /usr/bin/cat '{}' ';'",
        ),
        (
            "ls | xargs -0 wc -l",
            [["ls"], ["xargs", "-0"], ["wc", "-l", "*"]],
            "/usr/bin/ls | /usr/bin/xargs -0 /usr/bin/wc -l",
        ),
    ],
)
def test_programs_that_only_read_are_followed_into_find_and_xargs(
    here: Path, command: str, calls: list[list[str]], rebuilt: str
) -> None:
    found = fine(command, here)
    programs = [each for segment in found.segments for each in segment.programs]
    assert [[arg.text for arg in each.argv] for each in programs] == calls
    assert programs[-1].argv[-1].glob
    assert [each.name for each in programs if each.wrapper] in ([], ["nice"], ["xargs"])
    assert found.rebuilt == rebuilt


def test_a_reader_that_leads_elsewhere_is_in_doubt(here: Path) -> None:
    (here / "bin").mkdir()
    (here / "bin/cat").symlink_to("/bin/sh")
    found = analyze(
        "find . -exec cat {} +", cwd=str(here), env={"PATH": f"{here}/bin:/usr/bin", "HOME": "/"}
    )
    assert found.doubt is not None
    assert found.doubt.code == "carrier"
    gone = analyze("find . -exec cat {} +", cwd=str(here), env={"PATH": "/nowhere", "HOME": "/"})
    assert gone.segments[0].programs[1].resolved == ""


@table(
    ("one", "other", "expected"),
    [
        ("/a", "/a", "/a"),
        ("/a", "/b", None),
        (None, "/a", None),
        (None, None, None),
        (UNREACHABLE, "/a", "/a"),
        ("/a", UNREACHABLE, "/a"),
        (UNREACHABLE, None, None),
        (None, UNREACHABLE, None),
        (UNREACHABLE, UNREACHABLE, UNREACHABLE),
    ],
)
def test_one_of_two_directories_is_certain_only_if_they_agree(
    one: str | None, other: str | None, expected: str | None
) -> None:
    assert merge_cwd(one, other) == expected
