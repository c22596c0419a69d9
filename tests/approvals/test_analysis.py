"""What a command does, as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tables import table

from clawkit.approvals.analysis import analyze
from clawkit.approvals.types import Analysis

ENV = {"PATH": "/usr/bin:/bin", "HOME": "/home/somebody"}


def look(command: str, cwd: str = "/") -> Analysis:
    return analyze(command, cwd=cwd, env=ENV)


def test_a_command_is_split_in_order() -> None:
    found = look("cd /tmp && ls -la | grep -e 'x y' || echo none 2>&1; git status")
    assert found.doubt is None
    assert [(each.text, each.builtin) for each in found.segments] == [
        ("cd /tmp", "cd"),
        ("ls -la", ""),
        ("grep -e 'x y'", ""),
        ("echo none 2>&1", "echo"),
        ("git status", ""),
    ]
    assert found.rebuilt == (
        "\\cd -- /tmp && /usr/bin/ls -la | /usr/bin/grep -e 'x y' || \\echo none 2>&1\n"
        "/usr/bin/git status"
    )


def test_parts_before_a_doubt_are_kept() -> None:
    found = look("ls; echo x; eval y; pwd")
    assert [each.text for each in found.segments] == ["ls", "echo x"]
    assert found.doubt is not None
    assert (found.doubt.code, found.doubt.at) == ("builtin", 12)
    assert found.rebuilt == ""
    assert found.command == "ls; echo x; eval y; pwd"


def test_a_doubt_keeps_no_references() -> None:
    found = look("sh -c 'eval x'")
    assert found.doubt is not None
    assert found.doubt.__traceback__ is None
    assert found.doubt.__context__ is None


@pytest.mark.parametrize(
    "command",
    [
        "",
        " \n",
        "\0",
        "ls \0",
        "ls \udc80",
        "ls \ud800\udc00",
        "ls\r",
        "ls \x1b[2J",
        "ls\u200b",
        "\u202els",
        "ls &",
        "ls; (",
        "'",
        "((1))",
        "[[ x ]]",
        "x() { ls; }; x",
        "a[0]=1",
        "a=(1)",
        "a+=1",
        "coproc ls",
        "while true; do ls; done",
        "case x in x) ls;; esac",
        "select x in y; do ls; done",
        "ls $(x)",
        "ls `x`",
        "ls <(x)",
        "ls > >(x)",
        "ls ${x@P}",
        "ls $((1))",
        "ls $[1]",
        "ls ~root",
        "ls +(x)",
        "cat <<E\n$(x)\nE\n",
        "cat <<'E'\n",
        "x" * 70_000,
        "(" * 20_000,
        "{ " * 20_000,
        "if " * 20_000,
        "a|" * 30_000,
        "!" * 60_000,
        "'" * 60_001,
        "\\" * 60_001,
        "{a,b}" * 10_000,
        "ls " + "*" * 60_000,
        "ls > " * 10_000,
        "sh -c " * 10_000,
        "timeout 5 " * 6_000,
        "command " * 8_000,
        "A=1 " * 15_000,
        "/" * 60_000,
        "./" * 30_000,
        "../" * 20_000 + "x",
        "cd " + "a/" * 30_000,
        "ls > " + "../" * 20_000 + "x",
        "for i in " + "{1,2,3} " * 6_000 + "; do ls; done",
    ],
)
def test_analyze_never_raises(command: str, tmp_path: Path) -> None:
    found = look(command, str(tmp_path))
    assert (found.doubt is None) == bool(found.rebuilt)
    if found.doubt is not None:
        assert found.doubt.reason
        assert found.doubt.code
        assert 0 <= found.doubt.at <= len(command)


@pytest.mark.parametrize(
    "name",
    [
        "BASH_ENV",
        "BASHOPTS",
        "SHELLOPTS",
        "BASH_COMPAT",
        "GLOBIGNORE",
        "POSIXLY_CORRECT",
        "BASH_FUNC_ls%%",
        "BASH_FUNC_ls()",
    ],
)
def test_an_environment_that_steers_the_shell_is_in_doubt(name: str) -> None:
    found = analyze("ls", cwd="/", env={**ENV, name: "x"})
    assert found.doubt is not None
    assert found.doubt.code == "environment"
    assert name.partition("%")[0] in found.doubt.reason


@pytest.mark.parametrize("name", ["MY_BASH_FUNC_x", "BASH", "TERM", "ENV"])
def test_other_names_in_the_environment_do_no_harm(name: str) -> None:
    assert analyze("ls", cwd="/", env={**ENV, name: "x"}).doubt is None


def test_every_program_has_the_variables_of_the_call() -> None:
    found = analyze("A=1 ls; ls", cwd="/", env=ENV, assigned=["X", "A"])
    assert [each.programs[0].assigned for each in found.segments] == [("X", "A"), ("X", "A")]


@table(("cwd", "expected"), [("/tmp/", "/tmp"), ("//tmp", "/tmp"), ("/tmp/./", "/tmp"), ("/", "/")])
def test_the_directory_is_normalized(cwd: str, expected: str) -> None:
    assert look("ls", cwd).segments[0].programs[0].cwd == expected


@pytest.mark.parametrize(
    ("command", "locale", "code"),
    [
        ("ls é", {}, None),
        ("ls é", {"LANG": "de_DE.UTF-8"}, None),
        ("ls é", {"LANG": "de_DE.utf8@euro"}, None),
        ("ls é", {"LC_ALL": "C"}, None),
        ("ls é", {"LC_ALL": "zh_TW.EUC-TW", "LANG": "C"}, "locale"),
        ("ls é", {"LC_CTYPE": "de_DE"}, "locale"),
        ("ls é", {"LC_ALL": "C", "LANG": "zh_CN.GBK"}, None),
        ("ls e", {"LC_ALL": "zh_TW.EUC-TW"}, None),
        ("ls e", {"LOCPATH": "/tmp"}, "environment"),
    ],
)
def test_letters_are_read_only_where_they_are_unmistakable(
    command: str, locale: dict[str, str], code: str | None
) -> None:
    env = {"PATH": "/usr/bin:/bin", "HOME": "/", **locale}
    found = analyze(command, cwd="/", env=env)
    assert (found.doubt and found.doubt.code) == code


@pytest.mark.parametrize(
    "path", [None, "", ":/bin", "/bin:", "/bin::/usr/bin", ".", "bin", "~/bin:/bin"]
)
def test_a_path_that_leads_elsewhere_in_every_directory_is_in_doubt(path: str | None) -> None:
    env = {} if path is None else {"PATH": path}
    found = analyze("ls", cwd="/", env=env)
    assert found.doubt is not None
    assert found.doubt.code == "environment"
