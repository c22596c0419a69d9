"""Shell syntax in Python files."""

from __future__ import annotations

import sysconfig
import time
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scale import FULL
from tests.tables import table

from clawkit.process import preflight


def check_python(text: str) -> preflight.ScriptFinding | None:
    return preflight.check_python(text.encode())


@table(
    ("text", "piece", "what", "fix"),
    [
        ("x = $HOME", "$HOME", "a shell variable", 'os.environ["HOME"] (after import os).'),
        ("x = ${API_KEY}", "${API_KEY}", "a shell variable", 'os.environ["API_KEY"]'),
        ("x = ${A:-b c}", "${A:-b c}", "a shell variable", 'os.environ["A"]'),
        ("print($name)", "$name", "a shell variable", "name if it is a variable of the script"),
        ("x = $(date +%s)", "$(date +%s)", "a shell command", "subprocess.run"),
        ("x = $1", "$1", "a shell argument", "sys.argv[1]"),
        ("x = $@", "$@", "a shell argument", "sys.argv[1:]"),
        ("x = $?", "$?", "a shell variable", "returncode"),
        ("export A=secret", "export A", "a shell export", 'os.environ["A"] = '),
        ("export A", "export A", "a shell export", 'os.environ["A"] = '),
        ("echo text", "echo text", "a shell command", "print("),
        ('  echo -n "a"', 'echo -n "a"', "a shell command", "print("),
        ("echo it's $HOME", "echo it's $HOME", "a shell command", "print("),
        ("source ./env.sh", "source ./env.sh", "a shell command", "os.environ"),
        ("if [ -f x ]; then", "if [ -f x ]; then", "a shell test", "isfile"),
        ("if ! [ -f /x ]; then", "if ! [ -f /x ]; then", "a shell test", "isfile"),
        ('if [ "$a" = b ]\nthen', 'if [ "$a" = b ]', "a shell test", "isfile"),
        ("if [[ a == b ]] && c", "if [[ a == b ]] && c", "a shell test", "isfile"),
        ("while [ 1 -lt 2 ]; do", "while [ 1 -lt 2 ]; do", "a shell test", "isfile"),
        ("if grep -q a b; then", "if grep -q a b; then", "a shell block", "colon"),
        ("for f in *.py; do # all", "for f in *.py; do # all", "a shell block", "colon"),
        ("!pip install x", "!pip install x", "an IPython command", "subprocess.run"),
        ("%matplotlib inline", "%matplotlib inline", "an IPython command", "notebooks"),
        ("%%bash\nls", "%%bash", "an IPython command", "notebooks"),
        ("#!/bin/sh\n1 1", "#!/bin/sh", "the first line of a shell script", "in Python"),
        ("#! /usr/bin/env -S bash -e\n1 1", "#! /usr/bin/env -S bash", "the first line", ""),
    ],
)
def test_shell_syntax_is_found(text: str, piece: str, what: str, fix: str) -> None:
    for before in ("", '"""$x\n"""\n', "# $x\n\n"):
        if before and text.startswith("#!"):
            continue
        finding = check_python(before + text)
        assert finding is not None
        assert finding.line == before.count("\n") + 1
        assert (finding.text, finding.description[: len(what)]) == (piece, what)
        assert fix in finding.fix


@table(
    "text",
    [
        "x = '$HOME'",
        'x = "\\"$HOME"',
        "x = r'\\\\' r'\\'' '$HOME'",
        "x = rb'$HOME' b\"$A\"",
        "x = '''a'\n$HOME\nexport A=1\n'''",
        'x = """\\"""$HOME"""',
        "x = 'a\\\n$HOME'",
        "# $HOME",
        "x = 1  # it's $HOME",
        "x = f'${HOME}'",
        "x = f\"{d['$a']}$b\"",
        "x = rf'\\{a} $b' Rf'$c'",
        "x = f'{a:{b}>{c}} $d'",
        "x = f'{{ {a!r} }} $b'",
        "x = f'{ {1: 2}[1]:x } $b'",
        "x = f'{a:\"^5} $b'",
        'x = f"{a:\'^{b}} $c"',
        "x = fn('$a')",
        "x = (a\n  % b)",
        "x = [\n  done\n]",
        "x = a + \\\ndone",
        "x = {\n  'a': 1,\n  fi: 2}",
        "if [a for a in b]: pass",
        "if [ -a, b ]: pass",
        "if [ -a for a in b ]: pass",
        "echo if a else b",
        "echo in b",
        "echo - n",
        "echo = 'a'",
        "echo('a')",
        "source.read()",
        "source = '/x'",
        "export = 1",
        "export in b",
        "x = 'if a; then'",
        "x: int = 1; done",
        "#!/usr/bin/env python3",
        "#!/home/sh/bin/python",
        "# coding: latin-1\nx = '$a'",
    ],
)
def test_what_python_has_is_not_found_even_when_something_else_is_wrong(text: str) -> None:
    assert check_python(text) is None
    assert check_python(text + "\n)") is None
    finding = check_python(text + "\nexport A=1\n")
    assert finding is not None
    assert (finding.line, finding.text) == (text.count("\n") + 2, "export A")


@table(
    "text",
    [
        "done",
        "fi\nesac",
        "if a: b; then",
        "source /etc",
        "#!/bin/sh\n'''exec' python \"$0\" \"$@\" #'''",
        "done\nx = '\\d'",
        "export\\\n in b",
    ],
)
def test_what_compiles_is_never_found(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_python(text) is None


@table(
    "text",
    [
        "",
        "x = $",
        "x = 1 $ 2",
        "# coding: iso-2022-jp\nx = '\x1b$B!'!\x1b(B'",
        "\n# vim: fileencoding=utf-7 :\nx = '+ACc-$HOME'",
        "x = $HOME\0",
        "a.b" + ".c" * 100_000 + "\ndone",
    ],
)
def test_doubtful_code_is_accepted(text: str) -> None:
    assert check_python(text) is None


@table(
    "text",
    [
        'x = f"{d["$a"]} $b"',
        'x = f"{f"{"$a"}"}" "$b"',
        'x = f"{a:"^{b}}" $c"',
        'x = f"{a[(b)]["$c"]:{"$d"}} {"$e"}"',
        "x = f'''{\n  a  # ({'\n} $b'''",
    ],
)
def test_strings_that_only_a_newer_python_reads_are_not_found(text: str) -> None:
    assert check_python(text) is None
    assert check_python(text + "\n)") is None


def test_the_first_of_several_problems_is_reported() -> None:
    text = "import os\r\nx = 1\rif [ -f a ]; then\n  echo $HOME\nfi\n"
    finding = check_python(text)
    assert finding is not None
    assert (finding.line, finding.text) == (3, "if [ -f a ]; then")
    later = check_python("x = (\n'a',\n$HOME)\necho text")
    assert later is not None
    assert (later.line, later.text) == (3, "$HOME")


def test_a_piece_is_short_and_shows_no_control_characters() -> None:
    for text in (
        "echo " + "a" * 999,
        "$" + "A" * 999,
        "echo a\x1b[31m\u202e",
        "export " + "A" * 99,
    ):
        finding = check_python(text)
        assert finding is not None
        assert len(finding.text) <= 60
        assert finding.text.isprintable()


def standard_library() -> list[Path]:
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py"))
    files = [file for file in files if "site-packages" not in file.parts]
    return files[:: len(files) // 150 + 1]


def is_python(text: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(text, "<file>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return False
    return True


def test_the_standard_library_is_python_and_what_is_added_is_not() -> None:
    seen = 0
    for file in standard_library():
        text = file.read_bytes().decode("utf-8", "replace")
        if len(text) > 60_000 or not is_python(text):
            continue
        seen += 1
        assert check_python(text) is None, file
        # One bracket too many keeps it from compiling, so that only the reading of it decides.
        assert check_python(text + "\n)\n") is None, file
        finding = check_python(text + "\nx = $HOME\n")
        assert finding is not None, file
        assert (finding.line, finding.text) == (len(text.split("\n")) + 1, "$HOME"), file
    assert seen > 75


@given(st.text(st.sampled_from("af $'\"\\{}()[]:#!%\n\r;rA=1."), max_size=80))
def test_what_compiles_is_never_found_whatever_it_is(text: str) -> None:
    finding = check_python(text)
    assert finding is None or not is_python(text)


LENGTH = 524_000 if FULL else 131_000


@pytest.mark.long
@pytest.mark.parametrize(
    "unit",
    [
        *("$", "'", '"', "\\", "{", "`", "(", "f'{", 'f"{a:', "f'{a:'\"", "'\n", '"""', "if [ "),
        *("if ;do x\n", "done\n"),
    ],
)
def test_a_long_text_is_read_in_time(unit: str) -> None:
    finding = check_python(unit * (LENGTH // len(unit)) + "\n$A")
    assert finding is None or len(finding.text) <= 60


def test_an_encoding_that_takes_long_to_decode_is_not_decoded(subtests: pytest.Subtests) -> None:
    text = b"x" * 250_000 + b"-" + b"a" * 250_000
    heads = b"# coding: punycode\n", b"#!python\r# coding=punycode\r", b"\n\f# coding:punycode "
    for head in heads:
        with subtests.test(head=head):
            started = time.thread_time()
            assert preflight.check_python(head + text) is None
            assert time.thread_time() - started < 5
