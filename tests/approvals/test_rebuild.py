"""The command again: it must mean what was understood, and do what was asked."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.tables import table

from clawkit.approvals.analysis import analyze
from clawkit.approvals.expansion import (
    MAX_CHARS,
    ExpansionContext,
    ProgramFinder,
    Rebuilt,
    evaluate,
    quote_always,
    redirect,
)
from clawkit.approvals.shell_words import (
    RESERVED,
    LiteralText,
    Redirect,
    Tilde,
    Variable,
    Wildcard,
    Word,
)
from clawkit.approvals.types import Analysis, Doubt

ENV = {"PATH": "/usr/bin:/bin", "HOME": "/home/somebody", "LC_ALL": "C.UTF-8"}


def furnish(place: Path) -> Path:
    (place / "sub/deep").mkdir(parents=True)
    (place / "in").write_text("input\nlines\n")
    (place / "a b").write_text("x")
    (place / "fx").write_text("x")
    for name in ("prog", "sub/prog"):
        (place / name).write_text('#!/bin/sh\necho prog "$@"\n')
        (place / name).chmod(0o755)
    return place


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return furnish(tmp_path.resolve() / "here")


def look(command: str, here: Path) -> Analysis:
    return analyze(command, cwd=str(here), env=ENV)


def meant(found: Analysis) -> list[object]:
    """Everything that matters of an analysis, whatever the command was written like."""
    return [
        [
            segment.builtin,
            [(file.path, file.writes) for file in segment.files],
            [
                (
                    program.resolved,
                    [(arg.text, arg.glob) for arg in program.argv[1:]],
                    program.cwd,
                    program.assigned,
                    program.piped,
                    program.wrapper,
                )
                for program in segment.programs
            ],
        ]
        for segment in found.segments
        if segment.builtin != ":"  # what an empty loop becomes
    ]


def run(command: str, here: Path) -> tuple[int, str, dict[str, str]]:
    """The exit status, the output, and the files afterwards."""
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", command],
        cwd=here,
        env=ENV,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    files = {
        os.path.relpath(Path(folder) / name, here): (Path(folder) / name).read_text()
        for folder, _, names in os.walk(here)
        for name in names
    }
    return done.returncode, done.stdout, files


COMMANDS = [
    "echo a  b   'c  d' \"e  f\"",
    "echo '' \"\" x''y",
    "echo it\\'s '$HOME' \"\\$x\" '`ls`' \\* '~' ~ ~/x",
    "echo $'a\\tb' 'two\nlines' é '\U0001f600'",
    "echo * f? [a-f]* 'a'* [!f]* 's'ub/* 'f*' none*",
    "echo a=b {x,y}z '{x,y}' x#y '#' ! 'if' then",
    "/bin/echo -n x; /bin/echo y",
    "printf '%s|' a 'b c'; printf '%5.2f %03d\\n' 3.14159 7",
    "prog; ./prog 1 '2 3'; sub/prog; sub/../prog",
    "cat in | sort | tail -n 1",
    "cat in none |& grep -c .",
    "cat < in; cat <in >out; cat out; cat in >> out; sort out",
    "cat none 2>/dev/null || echo no",
    "cat none > out 2>&1; test -s out && echo err; rm out",
    "{ echo x; echo y >&2; } &> out; cat out",
    "echo x >&2; echo y 2>&1 1>&2; echo z >| out; cat out",
    "> out; cat out; A=1 > out2",
    "cat <<'E'\n$x `y` \\\n'q' \"r\"\nE\n",
    "cat <<'E' - <<'F'\nfirst\nE\nsecond\nEOF0\nF\n",
    "cat <<'E' | sort -r && { echo then; cat <<'F'\nb\na\nE\nc\nF\n}",
    "cat <<-'E'\n\ttabs\n\t\tgo\n\tE\n",
    "{ cat; cat; } <<'E'\nEOF0\nEOF1\nE\n",
    "for i in 1 2; do cat; done <<'E'\nx\nE\n",
    "if cat <<'E'\nx\nE\nthen echo yes; fi",
    "cat <<'E'\nE\n",
    "cat <<< 'a b'; cat <<< ~; cat <<< x''y",
    "true && echo 1 || echo 2; false && echo 3 || echo 4",
    "! true; echo 1; ! false && echo 2",
    "exit 3",
    "(exit 4) || echo no; (exit 5)",
    "{ echo a; exit 6; echo b; }",
    "( ( echo a ); echo b ) | cat",
    "{ { echo a; }; }",
    "set -e; echo 1; false; echo 2",
    "set -e; false || echo 1; if false; then echo 2; fi; for i in a; do false; done; echo 3",
    "set -euo pipefail; echo 1; false | true; echo 2",
    "set -o pipefail; false | true || echo failed; set +o pipefail; false | true && echo fine",
    "if true; then echo 1; fi; if false; then echo 2; fi; echo 3",
    "if false; then echo 1; elif true; then echo 2; else echo 3; fi",
    "if false; then echo 1; elif false; then echo 2; else echo 3; false; fi",
    "if [ -d sub ]; then echo dir; fi > out; cat out",
    "for i in a 'b c' ''; do echo \"<$i>\"; done",
    'for i in a b; do for j in x y; do echo $i$j "${i}-$j"; done; done | sort -r',
    "for i in a b; do test $i = a; done; for i in b a; do test $i = a; done && echo last",
    "for i in a b; do echo $i; done > out; cat out",
    "for d in sub none; do cd $d && pwd; done",
    "cd sub && pwd; cd deep; pwd; cd ..; pwd",
    "(cd sub && ./prog); ./prog",
    "cd none || cd sub; pwd",
    "cd none 2>/dev/null || echo no; test -d sub && echo still",
    "cd sub | cat; pwd",
    "A='b c' printenv A; printenv A || echo unset",
    "export A='b  c'; printenv A; A=d printenv A; (export A=e; printenv A); printenv A",
    "A=1; printenv A || echo private",
    "timeout 5 echo x; nice -n 1 echo y; env echo z; timeout 5 nice echo w",
    "command echo x; command -v echo; command -v cd; command -v nosuchprogram || echo none",
    "(exec echo x); exec ./prog y; echo never",
    "nosuchprogram; echo $'\\'' ; './none'; echo end",
    "'A=b'; '-p'; './if'; echo end",
    "time true 2>/dev/null; time -p { echo x; }; ! time false; echo end",
    "test a = b || test ! a = b && [ 1 -lt 2 ] && [ ! -f none ] && echo ok",
    "[ x ]; test '!' ; [ x '<' y ] && echo less",
    "# nothing but\necho x # a comment",
    "pwd -P; : anything; true; false",
]
SHELL_COMMANDS = [
    "sh -c 'echo a; cd sub && ./prog \"b c\"'; pwd",
    'sh -c \'for i in a "b c"; do echo "$i"; done | sort -r; exit 3\'',
    "bash -c 'cat; cat <<\"E\"\nit'\\''s $x\nE\n' < in",
    "for i in 'a b' c; do sh -c \"echo '$i'\"; done",
    "sh -c 'sh -c \"echo inner; exit 3\" || echo x'",
    "A='x y' sh -c 'printenv A; export B=1; printenv B'; printenv B",
    "sh -c 'if true; then echo 1; fi > out; cat out; echo *'",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_rebuilt_command_means_the_same(here: Path, command: str) -> None:
    found = look(command, here)
    assert found.doubt is None, found.doubt
    again = look(found.rebuilt, here)
    assert again.doubt is None, again.doubt
    assert meant(again) == meant(found)
    assert again.rebuilt == found.rebuilt


@pytest.mark.parametrize("command", [*COMMANDS, *SHELL_COMMANDS])
def test_the_rebuilt_command_does_the_same(tmp_path: Path, command: str) -> None:
    # One place for both, as it is part of what is printed.
    here = tmp_path.resolve() / "here"
    found = look(command, furnish(here))
    assert found.doubt is None, found.doubt
    expected = run(command, here)
    here.rename(tmp_path / "before")
    assert run(found.rebuilt, furnish(here)) == expected


class Writer:
    """Writes commands that print much and do little."""

    WORDS = ("a", "'b c'", '"d  e"', "*", "f*", "'*'", "[a-f]x", "~", "''", "$'x\\ty'", "x#y", "-n")
    PLAIN = ("true", "false", "cat", "cat in", "cd sub", "cd none", "cd ..", "pwd", "ls", "sort")
    MORE = ("[ -d sub ]", "A=1 printenv A", "export Z='q w'", "printenv Z", "exit 3", "./prog")
    REDIRECTS = ("2>&1", ">/dev/null", ">out", ">>out", "<in", "<<< 'h i'", "2>err", "1>&2")

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def chance(self, of: float) -> bool:
        return self.random.random() < of

    def word(self, names: str) -> str:
        if names and self.chance(0.4):
            name = self.random.choice(names)
            return self.random.choice((f'"${name}"', f"${name}", f'x"${{{name}}}"y'))
        return self.random.choice(self.WORDS)

    def simple(self, names: str) -> str:
        if self.chance(0.5):
            start = self.random.choice(("echo", "printf '%s|'", "/bin/echo", "nice echo"))
            return " ".join((start, *(self.word(names) for _ in range(2))))
        return self.random.choice((*self.PLAIN, *self.MORE))

    def redirected(self, command: str) -> str:
        while self.chance(0.2):
            command += " " + self.random.choice(self.REDIRECTS)
        return command

    def command(self, depth: int, names: str) -> str:
        kind = self.random.randrange(8) if depth else 0
        if kind < 4:
            return self.redirected(self.simple(names))
        first, second = (self.script(depth - 1, names) for _ in range(2))
        if kind == 4:
            return self.redirected(f"( {first} )")
        if kind == 5:
            return self.redirected(f"{{ {first}; }}")
        if kind == 6:
            return self.redirected(f"if {first}; then {second}; else {self.simple(names)}; fi")
        name = "ijklm"[len(names)]
        body = self.script(depth - 1, names + name)
        return self.redirected(f"for {name} in a 'b c' sub; do {body}; done")

    def script(self, depth: int, names: str = "") -> str:
        text = self.command(depth, names)
        while self.chance(0.4):
            operator = self.random.choice((" && ", " || ", " | ", "; ", "\n"))
            text += operator + self.command(depth, names)
        return text


@pytest.mark.parametrize("seed", range(10))
def test_whatever_is_understood_stays_the_same(here: Path, seed: int) -> None:
    writer = Writer(seed)
    understood = 0
    for _ in range(40):
        found = look(writer.script(2), here)
        if found.doubt is None:
            understood += 1
            again = look(found.rebuilt, here)
            assert again.doubt is None, found.rebuilt
            assert meant(again) == meant(found)
            assert again.rebuilt == found.rebuilt
    assert understood > 10


def word(*parts: LiteralText | Wildcard | Tilde | Variable) -> Word:
    return Word(parts, 3, 9)


MEANING = ExpansionContext({"f": "a b", "g": "c", "e": ""}, "/home/x")


@table(
    ("given", "text", "shown", "glob"),
    [
        (word(LiteralText("a b")), "a b", "'a b'", False),
        (word(LiteralText("")), "", "''", False),
        (word(Tilde()), "/home/x", "/home/x", False),
        (word(Tilde(), LiteralText("/a b")), "/home/x/a b", "'/home/x/a b'", False),
        (word(Variable("f", True)), "a b", "'a b'", False),
        (word(LiteralText("x"), Variable("g", False)), "xc", "xc", False),
        (word(Variable("e", True)), "", "''", False),
        (word(LiteralText("a*"), Wildcard("*"), LiteralText("b c")), "a**b c", "'a*'*'b c'", True),
        (
            word(Tilde(), LiteralText("/"), Wildcard("[!a-z]")),
            "/home/x/[!a-z]",
            "/home/x/[!a-z]",
            True,
        ),
        (word(Variable("f", True), Wildcard("?")), "a b?", "'a b'?", True),
        (word(Wildcard("[[:alpha:]0]")), "[[:alpha:]0]", "[[:alpha:]0]", True),
    ],
)
def test_a_word_is_quoted_but_for_its_patterns(
    given: Word, text: str, shown: str, glob: bool
) -> None:
    assert evaluate(given, MEANING) == (text, shown, glob)


@table(
    ("given", "code"),
    [
        (word(Variable("x", True)), "some"),
        (word(Variable("f", False)), "parameter"),
        (word(Variable("e", False)), "parameter"),
        (word(Wildcard("[$(x)]")), "glob"),
        (word(Wildcard("[a b]")), "glob"),
        (word(Wildcard("[a")), "glob"),
        (word(Wildcard("*;x")), "glob"),
        (word(Wildcard("")), "glob"),
    ],
)
def test_a_word_that_is_not_certain_is_in_doubt(given: Word, code: str) -> None:
    with pytest.raises(Doubt) as caught:
        evaluate(given, MEANING, "some")
    assert (caught.value.code, caught.value.at) == (code, 3)


def test_a_home_directory_that_is_not_known_is_in_doubt(here: Path) -> None:
    for home in ("", "relative", "/x\0"):
        found = analyze("ls ~", cwd=str(here), env={"PATH": "/usr/bin", "HOME": home})
        assert found.doubt is not None
        assert found.doubt.code == "tilde"


def _what_is_always_quoted_is_never_anything_but_a_word(name: str) -> None:
    shown = quote_always(name)
    assert shown != name
    done = subprocess.run(
        ["bash", "--norc", "-c", f"printf '%s' {shown}"], capture_output=True, text=True, check=True
    )
    assert done.stdout == name


def test_what_is_always_quoted_is_never_anything_but_a_word(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [*sorted(RESERVED), "ls", "A=b", "-p", "a'b", "x y"]
    for name in cases:
        with subtests.test(name=name):
            _what_is_always_quoted_is_never_anything_but_a_word(name)


def test_here_documents_wait_for_the_end_of_their_line() -> None:
    rebuilt = Rebuilt()
    finder = ProgramFinder({})
    for body in ("a\n", "", "EOF0\nEOF2\n"):
        rebuilt.put("cat")
        node = Redirect("<<", None, None, body)
        rebuilt.put_redirects([redirect(node, MEANING, "/", finder)])
        rebuilt.put(" | ")
    rebuilt.put("cat")
    assert rebuilt.finish() == (
        "cat <<'EOF0' | cat <<'EOF0' | cat <<'EOF1' | cat\na\nEOF0\nEOF0\nEOF0\nEOF2\nEOF1\n"
    )


@table(
    "node",
    [
        Redirect("<<", None, None, "no end"),
        Redirect("<<", 2, None, "x\n"),
        Redirect("&>", 2, Word((LiteralText("x"),), 0, 1)),
        Redirect(">", None, Word((Wildcard("*"),), 0, 1)),
        Redirect(">&", 2, Word((LiteralText("1-"),), 0, 1)),
        Redirect(">&", 2, Word((LiteralText("out"),), 0, 1)),
    ],
)
def test_a_redirection_that_cannot_be_written_again_is_in_doubt(node: Redirect) -> None:
    with pytest.raises(Doubt) as caught:
        redirect(node, MEANING, "/", ProgramFinder({}))
    assert caught.value.code == "redirect"


def test_a_text_of_several_lines_does_not_follow_a_here_document(here: Path) -> None:
    found = look("cat <<'E' | grep $'a\\nb'\nx\nE\n", here)
    assert found.doubt is not None
    assert found.doubt.code == "heredoc"


def test_the_length_of_a_rebuilt_command_is_limited() -> None:
    rebuilt = Rebuilt()
    rebuilt.put("x" * MAX_CHARS)
    with pytest.raises(Doubt):
        rebuilt.end_line()


def test_names_that_are_not_utf8_are_in_doubt() -> None:
    found = analyze("cd x", cwd="/tmp/\udcff", env={"PATH": "/bin"})
    assert found.doubt is not None
    assert found.doubt.code == "path"
    assert analyze("cd x", cwd="/tmp/é", env={"PATH": "/bin"}).rebuilt == "\\cd -- '/tmp/é/x'"
