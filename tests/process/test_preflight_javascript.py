"""Shell syntax in JavaScript files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lacking import lack
from tests.scale import FULL
from tests.tables import table

from clawkit.process import preflight


def check_javascript(text: str) -> preflight.ScriptFinding | None:
    return preflight.check_javascript(text.encode())


@table(
    ("text", "piece", "what", "fix"),
    [
        ("export A=secret", "export A", "a shell export", "process.env.A = "),
        ("export DIR=/tmp", "export DIR", "a shell export", "process.env.DIR = "),
        ("export A=1 # it's", "export A", "a shell export", "process.env.A = "),
        ('echo "a"', 'echo "a"', "a shell command", "console.log"),
        ("  echo -n 'a';", "echo -n 'a';", "a shell command", "console.log"),
        ("echo $HOME", "echo $HOME", "a shell command", "console.log"),
        ("echo it's", "echo it's", "a shell command", "console.log"),
        ("source ./env.sh", "source ./env.sh", "a shell command", "process.env"),
        ("source ~/.profile", "source ~/.profile", "a shell command", "process.env"),
        ("if [ -f x ]; then", "if [ -f x ]; then", "a shell test", "existsSync"),
        ("while [[ $a ]]; do", "while [[ $a ]]; do", "a shell test", "existsSync"),
        ("if ! [ -d x ]", "if ! [ -d x ]", "a shell test", "existsSync"),
        ("if grep -q a b; then", "if grep -q a b; then", "a shell block", "{…}"),
        ("for f in src/*.js; do", "for f in src/*.js; do", "a shell block", "{…}"),
        ("# it's a comment", "# it's a comment", "a shell comment", "//"),
        ("  ## comment", "## comment", "a shell comment", "//"),
        ("let x = ${HOME};", "${HOME}", "a shell variable", "process.env.HOME"),
        ("let x = ${A:-b};", "${A:-b}", "a shell variable", "process.env.A"),
        ("let x = $(git rev-parse HEAD);", "$(git rev-parse HEAD)", "a shell command", "execFile"),
    ],
)
def test_shell_syntax_is_found(text: str, piece: str, what: str, fix: str) -> None:
    line = text.count("\n") + 1
    for before in (
        "",
        "#!/usr/bin/env node\n",
        "let s = `\n# $(a b)\n`;\n",
        "/*\nexport A=1\n*/\n",
    ):
        finding = check_javascript(f"{before}{text}\n")
        assert finding is not None
        assert finding.line == before.count("\n") + line
        assert (finding.text, finding.description) == (piece, what)
        assert fix in finding.fix


@table("first", ["#!/bin/sh", "#!/usr/bin/env bash", "\ufeff#! /bin/zsh -e"])
def test_a_shell_script_is_known_by_its_first_line(first: str) -> None:
    finding = check_javascript(f"{first}\nlet x;\n")
    assert finding is not None
    assert (finding.line, finding.description) == (1, "the first line of a shell script")


@table(
    "text",
    [
        "",
        "export const a=1;",
        "export default a;",
        "export {a, b};",
        "export * from 'a';",
        "const a = '# b';\nlet $ = 1, $x = $;",
        "$(document).ready(x); $('a b'); $(a, b);",
        "$(function foo() {}); $(async x => x); $(typeof a); $(a in b); $(new Foo)",
        "$HOME; $API_KEY = 1;",
        "class ${a}",
        "class A extends ${b}",
        "class A {\n  #a = 1;\n  #b\n  done\n  then\n}",
        "class A {\n#a\nfi\n}",
        "class A {\na = f()\nfi\nb\n}",
        "f(\ndone\n)",
        "x = [\ndone\n]",
        "x = {a,\nfi\n}",
        "x = a +\ndone",
        "x = a + /* " + "b" * 2_000 + " */\ndone",
        "x = a;\ndone\n.then(y)",
        "export default\ndone",
        "x =\nthen\n? 1 : 2",
        "echo\n'a'",
        "echo('a'); echo `a`; echo = 1",
        "echo in b",
        "if (a) { b }",
        "if(a)[b].c",
        'x = `\nexport A=1\necho "a"\n# b\nfi\n`',
        "x = `${a}\nexport A=1\n`",
        "x = `\\`\n# a\n\\${b}`",
        "x = `$`; y = `$$`; z = `${a}$`",
        "x = 'a\\\n# b'",
        "x = \"${A}\" + '$(a b)'",
        "// ${A}\n/*\n# a\n*/",
        "x = /`/; y = `\n# a\n`",
        "x = /[/`]/g; y = `\n# a\n`",
        "x = /\\/`/; y = `\n# a\n`",
        "x.replace(/`/g, `\n# a\n`)",
        "function f() {}\n/`/.test(`\n# a\n`)",
        "a: {}\n/`/.test(`\n# a\n`)",
        "function f() {} / 2",
        "x = a << b; y = c<<d; if (e<f) {}",
    ],
)
def test_valid_javascript_is_accepted(text: str) -> None:
    assert check_javascript(text) is None
    finding = check_javascript(f"{text}\nexport A=1\n")
    assert finding is not None
    assert (finding.line, finding.text) == (text.count("\n") + 2, "export A")


@table(
    "text",
    [
        "x = `${`${b}\nexport A=1\n`}\necho 'a'\n`",
        "x = `${{a: {}}.a}\necho 'a'\n`",
        "if (a) /`/.test(`\n# a\n`)",
        "return /`/.test(`\n# a\n`)",
        "do {} while (a) /`/.test(`\n# a\n`)",
        "x = {} / `\n# a\n` / 2",
        "x = f({a: {} / `\n# a\n` / 2})",
        "return {} / `\n# a\n` / 2",
        "x = `${{} / `\n# a\n` / 2}`",
        "x = {} / 2; y = '/`'",
        "x = `${{} / 2 + '/`'}`",
        "x = a / `\n# a\n` / c",
        "x = (a) / `\n# a\n` / 2",
        "x = a++ / `\n# a\n` / 2",
        "x = a.in / `\n# a\n` / 2",
        'x = <pre>\n  echo "a"\n# b\n${c}\n</pre>',
        "x = <b>${c}</b>",
        "return <>\n# b\n</>",
        "<!-- it's\nx",
        "x = `a\nb ${c}\n`;\nexport A=1;\ny = `",
        "x = `${a\nexport A=1\n",
        "x = 'a\nexport A=1",
        "x /* a\nexport A=1",
        "x # a\nexport A=1",
        "x = 'it ${A}\n",
    ],
)
def test_doubtful_code_is_accepted(text: str) -> None:
    assert check_javascript(text) is None


def test_the_first_of_several_problems_is_reported() -> None:
    finding = check_javascript("let a;\r\nlet b = ${A};\recho 'a'\n")
    assert finding is not None
    assert (finding.line, finding.text) == (2, "${A}")
    finding = check_javascript("let a;\necho ${A}\n# b\n")
    assert finding is not None
    assert (finding.line, finding.text) == (2, "echo ${A}")


def test_a_piece_is_short_and_shows_no_control_characters() -> None:
    for text in (
        "echo " + "a" * 999,
        "${" + "A" * 999 + "}",
        "# a\x1b[31m\u202e",
        "export " + "A" * 59 + "=1",
    ):
        finding = check_javascript(text)
        assert finding is not None
        assert len(finding.text) <= 60
        assert finding.text.isprintable()


def real_files() -> list[Path]:
    roots = [Path(sys.prefix, "npm", "node_modules")]
    roots += [Path("/usr/share/nodejs"), Path("/usr/lib/node_modules")]
    names = ("*.js", "*.mjs", "*.cjs")
    files = sorted(file for root in roots for name in names for file in root.rglob(name))
    files = [file for file in files if file.is_file() and file.stat().st_size <= 200_000]
    return files[:: len(files) // 75 + 1]


def test_real_files_are_javascript_and_what_is_added_is_not() -> None:
    files = real_files()
    if not files:
        lack("no JavaScript on this machine")
    found = 0
    for file in files:
        text = file.read_bytes().decode("utf-8", "replace")
        assert check_javascript(text) is None, file
        # Some have templates in templates, or a division before one, and are not read to the end.
        if finding := check_javascript(text + "\nexport A=1\n"):
            assert finding.text == "export A"
            found += 1
    assert found > len(files) / 2


@given(st.text(st.sampled_from("ab $'\"\\`{}()[]/#!<>=;:.\n"), max_size=80))
def test_what_is_in_a_template_is_never_found(text: str) -> None:
    inside = text.replace("\\", "").replace("`", "").replace("${", "")
    if inside.endswith("$"):
        inside += " "
    assert check_javascript(f"x = `{inside}\n# a\necho 'a'`") is None


LENGTH = 524_000 if FULL else 131_000


@pytest.mark.long
@pytest.mark.parametrize(
    "unit",
    [
        *("$", "'", '"', "\\", "{", "`", "/", "(", "<", "#", "${", "`${", "/[", "{}/[", "{}/\n"),
        *("# \n", "fi\n", "(\nfi\n", "class ${a} ", "if ;do x\n", "/*", "$(a b"),
        "${/*\\$(\\",
    ],
)
def test_a_long_text_is_read_in_time(unit: str) -> None:
    finding = check_javascript(unit * (LENGTH // len(unit)))
    assert finding is None or len(finding.text) <= 60
