"""Programs that run code: code among the arguments, code on the input, scripts."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.lacking import lack

from clawkit.approvals.inline_code import (
    how_called,
    is_interpreter,
    is_shell,
)
from clawkit.approvals.types import Arg, Program


def program(command: str, real: str = "", cwd: str | None = "/w") -> Program:
    """A program from its command; words with a star are patterns."""
    argv = tuple(Arg(word, glob="*" in word) for word in shlex.split(command))
    return Program(argv=argv, resolved=f"/usr/bin/{argv[0].text}", real=real, cwd=cwd)


def script(command: str) -> str:
    found = how_called(program(command)).script
    return found.text if found else ""


BRINGS_CODE = [
    "python3 -c 'print(1)'",
    "python3 '-cprint(1)'",
    "python3 -Bc 'print(1)'",
    "python3.11 -Ic 'print(1)'",
    "python2 -W error -X dev -c x",
    "pypy3 -c x",
    "python3 -c",
    "python3 -c *",
    "python3 -m timeit x",
    "python3 -mtimeit x",
    "python3 -m cProfile x.py",
    "python3 --unknown x.py",
    "python3 -J x.py",
    "python3 *",
    "node -e x",
    "node --eval x",
    "node --eval=x",
    "node -p x",
    "node -pe x",
    "node --title x -e y",
    "node --title=x --print=y",
    "node -e x -r y",
    "node -r y -e x",
    "node --import data:text/javascript,x y.js",
    "node --ev x",
    "node --unknown x.js",
    "node -C *",
    "node -*",
    "nodejs -e x",
    "bun -e x",
    "bun --print x",
    "bun exec ls",
    "deno eval x",
    "ruby -e x",
    "ruby -ne x",
    "ruby -W0e x",
    "ruby3.1 -rset -e x",
    "ruby -Ku -e x",
    "perl -e x",
    "perl -E x",
    "perl -ex",
    "perl -lane x",
    "perl -0777pe x",
    "perl -0x41le x",
    "perl -l012ne x",
    "perl '-w -ex'",
    "perl '-i.bak -ex' y",
    "perl -M'POSIX;x' y.pl",
    "perl -Mstrict -e x",
    "perl -d:Trace x.pl",
    "perl5.36-x86_64-linux-gnu -e x",
    "perl -e *",
    "php -r x",
    "php -R x",
    "php --run x",
    "php -d auto_prepend_file=x y.php",
    "php8.2 -B x",
    "lua -e x",
    "lua5.4 -e x y.lua",
    "luajit -e x",
    "lua x.lua -e y",
    "awk '{print}' x",
    "gawk -F, '{print}' x",
    "gawk -f x.awk -e '{print}'",
    "gawk --source '{print}'",
    "gawk --so '{print}'",
    "awk -v x=1 '{print}'",
    "awk -- '{print}'",
    "awk",
    "awk -W exec x",
    "awk --f x",
    "mawk *",
    "awk -f *",
    "sed s/a/b/ x",
    "sed -n p",
    "sed -e p x",
    "sed -f x.sed -e p",
    "sed -f x.sed y -e p",
    "sed --expression=p",
    "sed --exp p",
    "sed -nEi p x",
    "sed -- p x",
    "gsed",
    "R -e x",
    "Rscript -e x",
    "julia -E x",
    "julia --eval=x",
    "julia --ev x",
    "julia -qe x",
    "elixir --rpc-eval n x",
    "iex -e x",
    "elixir --erl '-eval x'",
    "osascript -e x",
    "expect -c x",
    "guile -c x",
    "guile -e main x.scm",
    "groovy -e x",
    "scala -e x",
    "scala-cli --script-snippet x",
    "clj -e x",
    "clojure --eval x",
    "raku -e x",
    "perl6 -e x",
    "ghc -e x",
    "ghci -e x",
    "erl -noshell -eval x",
    "erl -run m f",
    "werl -s m",
    "gdb -ex x",
    "gdb --ex x",
    "gdb --eval-command=x",
    "gdb -ev x",
    "gdb --init-eval-command x",
    "gdb -iex x",
    "gdb -eiex x",
    "gdb *",
    "gdb -x y",
    "gdb -qx y",
    "julia *",
    "xargs ls",
    "xargs",
    "make -f x",
    "make -fx",
    "make -kf x",
    "make --file=x",
    "make --makefile x",
    "make --ma x",
    "make --eval=x",
    "make --ev=x",
    "make -E x",
    "make all -f x",
    "make 'X!=ls'",
    "make 'X=$(shell ls)'",
    "make -- 'X=$(shell ls)'",
    "make '$(shell ls)=x'",
    "make MAKEFLAGS=-fx",
    "make SHELL=./x",
    "make .SHELLFLAGS:=x",
    "make t*",
    "make --unknown",
    "make -C",
    "gmake -f x",
    "perl -Mstrict x.pl",
    "perl -MList::Util=first,sum x.pl",
    "gawk -i lib -f x.awk",
    "gawk -E x.awk y",
    "Rscript x.R",
    "julia x.jl",
    "julia -O3 x.jl",
    "erl -noshell",
    "gdb -p 1",
    "gdb --pid=1",
    "julia --",
    "tclsh x.tcl",
    "ghc x.hs",
    "ruby -Ilib x.rb",
    "ruby -rset x.rb",
    "php -c x y.php",
    "php -- x.php",
    "lua -l x y.lua",
    "lua -i x.lua",
    "python3 -i x.py",
    "perl -d x.pl",
    "node --env-file=x y.js",
    "deno run -e x",
    "deno run x.ts --seed 1",
    "bun -- x.ts",
    "julia --version",
    "R --version",
    "node --stack-trace-limit=5 x.js",
    "php x.php -r y",
    "php -f x.php",
    "php -S localhost:80",
    "php x.php",
    "bun run x",
    "deno run x.ts",
]


def test_code_among_the_arguments_is_found() -> None:
    assert [each for each in BRINGS_CODE if not how_called(program(each)).code] == []


HAS_NO_CODE = [
    "python3 x.py -c y",
    "python3",
    "python3 -",
    "python3 -m pytest -c x",
    "python3 -V -c x",
    "python3 -- x.py",
    "python3 -- -c x",
    "python3 src/*.py",
    "python3-config --includes",
    "node x.js -e y",
    "node --title -e x.js",
    "node -v",
    "node --test",
    "ruby x.rb -e y",
    "ruby -Fe x.rb",
    "ruby -ie x.rb",
    "perl x.pl -e y",
    "perl -v",
    "perl -- -e",
    "awk -f x.awk y",
    "gawk --file=x.awk --assign=a=1 y",
    "awk -f x.awk -- y",
    "awk --version",
    "awk -f x.awk y -e z",
    "sed -f x.sed y",
    "sed -n --file x.sed y",
    "sed --version",
    "sed -f x.sed -- -e",
    "find . -name x -delete",
    "make",
    "make -j4 all",
    "make -C x -j 4 --silent --debug=v X=1 SHELLS=2",
    "make -Cf all",
    "make -v",
    "bash -c ls",
    "ls -e x",
    "jq .a",
]


def test_a_call_without_code_carries_none() -> None:
    assert [each for each in HAS_NO_CODE if how_called(program(each)).code] == []


READS_CODE = [
    "python3",
    "python3 -",
    "python3 - x",
    "python3 -u",
    "python3 -- -",
    "python3 /dev/stdin",
    "python3 /dev//fd/0",
    "python3 /proc/self/fd/0",
    "python3 ../dev/stdin",
    "python3 -i x.py",
    "python3 -ic x",
    "python3 -m code",
    "python3 -mIPython.terminal",
    "python3 -m pdb x.py",
    "python3 -W",
    "python3 -W *",
    "python3 --foo x.py",
    "python3 * x",
    "python3.12",
    "node",
    "node -",
    "node -i",
    "node --interactive -e x",
    "node --title x",
    "node --title=x --",
    "node -p",
    "node -r fs",
    "node --input-type=module",
    "node --max-old-space-size 5",
    "node --no-warnings=x y.js",
    "node inspect x.js",
    "node /dev/stdin",
    "node * x",
    "ruby",
    "ruby -",
    "ruby -w",
    "ruby -v -",
    "ruby -n",
    "ruby --encoding utf-8",
    "ruby --encoding=utf-8",
    "ruby --yjit",
    "ruby --foo x.rb",
    "perl",
    "perl -",
    "perl -w",
    "perl -d x.pl",
    "perl -de1",
    "perl --foo",
    "perl -l",
    "perl -I lib",
    "php",
    "php -",
    "php -a",
    "php -f -",
    "php -f/dev/stdin",
    "php -f",
    "php -n",
    "lua",
    "lua -",
    "lua -i x.lua",
    "lua -e x -",
    "lua -l x",
    "sh",
    "bash",
    "bash -s",
    "bash -",
    "bash -x",
    "bash +x x.sh",
    "bash --norc",
    "bash /dev/stdin",
    "bash *",
    "bash --version x",
    "zsh",
    "fish -",
    "awk -f -",
    "awk -f-",
    "gawk --file=-",
    "gawk --file /dev/stdin",
    "gawk -i - 1",
    "gawk -E -",
    "sed -f -",
    "sed -nf /dev/stdin x",
    "sed x --file=-",
    "make -f -",
    "make -f/dev/stdin",
    "make --makefile=-",
    "awk * x",
    "R",
    "R --vanilla",
    "R x.R",
    "Rscript -",
    "julia",
    "julia -q",
    "julia -t 4",
    "julia -i x.jl",
    "julia -qi -e x",
    "julia --inter -e x",
    "julia -e x --persist",
    "julia /dev/stdin",
    "deno",
    "deno repl",
    "deno run -",
    "bun -",
    "iex x.exs",
    "irb",
    "irb --version",
    "erl -eval x",
    "clojure -e x -r",
    "tclsh",
    "tclsh --version",
    "tclsh -x y z",
    "tclsh * x",
    "guile -e main",
    "m4",
    "julia -*",
    "julia -J=x",
    "erl +K x",
    "ocaml +x",
    "julia -e x",
    "julia --eval=x",
    "julia --project=. x.jl",
    "julia -t 4 x.jl",
    "julia --version",
    "tclsh x.tcl -y",
    "R --version",
    "ghc",
    "php -- x.php",
    "bun -- x.ts",
    "deno --version x.ts -",
    "bun +x",
    "ruby -v",
    "php -r x",
    "php -v",
    "php --version",
    "php -S localhost:80",
    "deno run -A --allow-net=x x.ts",
    "deno --version",
    "bun --help",
]


def test_code_on_the_standard_input_is_found() -> None:
    assert [each for each in READS_CODE if not how_called(program(each)).reads] == []


READS_NONE = [
    "python3 x.py",
    "python3 x.py -",
    "python3 -c x",
    "python3 -m pytest",
    "python3 --version",
    "python3 -V",
    "python3 -h",
    "python3 --help-all",
    "python3 --check-hash-based-pycs default x.py",
    "python3 -W error x.py",
    "python3 src/*.py",
    "node x.js -",
    "node -e x",
    "node -p x",
    "node --version",
    "node --test",
    "node -r x y.js",
    "ruby x.rb",
    "ruby -e x",
    "ruby --version",
    "perl x.pl",
    "perl -ne x -",
    "perl -v",
    "perl --version",
    "perl --help",
    "php x.php",
    "lua x.lua",
    "bash x.sh",
    "bash -c ls",
    "bash --version",
    "awk '{print}' -",
    "awk -f x.awk -",
    "sed p -",
    "sed -n p /dev/stdin",
    "make",
    "make -f x",
    "Rscript x.R",
    "julia x.jl",
    "deno run x.ts",
    "deno eval x",
    "deno test",
    "xargs",
    "ls",
    "sqlite3",
    "cat",
]


def test_a_program_that_has_its_code_does_not_read_it() -> None:
    assert [each for each in READS_NONE if how_called(program(each)).reads] == []


SCRIPTS = [
    ("python3 x.py -c y", "x.py"),
    ("python3 -u x.py", "x.py"),
    ("python3 -W error -Xdev ./x.py", "./x.py"),
    ("python3 -- -x.py", "-x.py"),
    ("node x.js", "x.js"),
    ("node --no-warnings -C a --title=y x.js", "x.js"),
    ("node --stack-size=900 -- x.js", "x.js"),
    ("node --stack_size=900 -- x.js", ""),
    ("bash x.sh", "x.sh"),
    ("/bin/sh ./x.sh -x", "./x.sh"),
    ("ruby -w x.rb", "x.rb"),
    ("ruby -E utf-8 x.rb", "x.rb"),
    ("perl -w x.pl", "x.pl"),
    ("perl -CS -T x.pl", "x.pl"),
    ("perl -i.bak x.pl", "x.pl"),
    ("python3", ""),
    ("python3 -", ""),
    ("python3 ''", ""),
    ("python3 *.py", ""),
    ("python3 src/*.py", ""),
    ("python3 -i x.py", ""),
    ("python3 -m x", ""),
    ("python3 /dev/stdin", ""),
    ("node -r y x.js", ""),
    ("node --unknown x.js", ""),
    ("node inspect x.js", ""),
    ("node --test x.js", ""),
    ("bash -x x.sh", ""),
    ("bash x*.sh", ""),
    ("bash -c x", ""),
    ("ruby -Ilib x.rb", ""),
    ("ruby -C dir x.rb", ""),
    ("ruby -S x.rb", ""),
    ("ruby -x x.rb", ""),
    ("perl -I lib x.pl", ""),
    ("perl -Mstrict x.pl", ""),
    ("perl -S x.pl", ""),
    ("perl -e 1 x.pl", ""),
    ("julia x.jl", ""),
    ("awk -f x.awk", ""),
    ("ls x.py", ""),
]


def test_the_script_is_named_only_if_it_is_certain() -> None:
    assert [each for each in SCRIPTS if script(each[0]) != each[1]] == []


def test_every_name_of_a_program_counts() -> None:
    assert how_called(program("x -c y", real="/usr/bin/python3.11")).code
    assert how_called(program("x", real="/bin/bash")).reads
    assert how_called(program("x y.py", real="/usr/bin/python3")).script == Arg("y.py")
    assert how_called(program("python3 y.py", real="/bin/bash")).script is None
    assert how_called(program("python3 -s", real="/bin/bash")).reads
    assert how_called(program("bash -e x", real="/usr/bin/perl")).code
    unresolved = Program(
        argv=(Arg("/opt/python3"), Arg("-c"), Arg("x")), resolved="", real="", cwd="/"
    )
    assert how_called(unresolved).code


def test_a_relative_script_counts_from_the_directory() -> None:
    assert how_called(program("python3 stdin", cwd="/dev")).reads
    assert how_called(program("python3 ../../dev/stdin", cwd=None)).reads
    assert how_called(program("python3 ../../dev/x.py", cwd="/a/b/c/d")).reads == ""


def _an_interpreter_is_known_with_any_version(name: str) -> None:
    assert is_interpreter({"x", name})
    assert not is_shell({"x", name})


def test_an_interpreter_is_known_with_any_version(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        "python",
        "python2",
        "python3",
        "python3.11",
        "python3.13t",
        "python3-dbg",
        "pypy3.10",
        "node",
        "nodejs",
        "node20",
        "bun",
        "deno",
        "ruby",
        "ruby3.1",
        "perl",
        "perl5.36.0",
        "perl5.36-x86_64-linux-gnu",
        "php",
        "php8.2",
        "php-cgi8.2",
        "lua5.4",
        "luajit-2.1.0-beta3",
        "awk",
        "gawk",
        "mawk",
        "sed",
        "R",
        "Rscript",
        "julia",
        "guile-3.0",
        "tclsh8.6",
        "python.exe",
    ]
    for name in cases:
        with subtests.test(name=name):
            _an_interpreter_is_known_with_any_version(name)


def _a_shell_is_known_with_any_version(name: str) -> None:
    assert is_shell(["x", name])
    assert not is_interpreter(["x", name])


def test_a_shell_is_known_with_any_version(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        "sh",
        "bash",
        "dash",
        "ash",
        "zsh",
        "ksh93",
        "bash5",
        "bash-static",
        "fish",
        "pwsh",
        "rbash",
        "csh",
        "cmd.exe",
    ]
    for name in cases:
        with subtests.test(name=name):
            _a_shell_is_known_with_any_version(name)


OTHERS = [
    "",
    "ls",
    "git",
    "make",
    "find",
    "sha256sum",
    "r2",
    "Python",
    "pythonx",
    "node-gyp",
    "python\0",
    "3",
    "python" * 20_000,
    "bash" + "5" * 70,
    "python" + "3" * 70,
    "\udcff",
]


def test_other_programs_are_neither_shell_nor_interpreter() -> None:
    assert not is_interpreter(OTHERS)
    assert not is_shell(OTHERS)


CODE = {
    "python3": ('print("input")', 'print("code")', 'print("script")'),
    "perl": ('print "input\\n"', 'print "code\\n"', 'print "script\\n"'),
    "bash": ("echo input", "echo code", "echo script"),
    "awk": ('BEGIN{print "input"}', 'BEGIN{print "code"}', 'BEGIN{print "script"}'),
}


@pytest.mark.parametrize("name", CODE)
@pytest.mark.parametrize(
    "words",
    [
        [],
        ["-"],
        ["FILE"],
        ["FILE", "-c", "CODE"],
        ["-c", "CODE"],
        ["-e", "CODE"],
        ["-f", "FILE"],
        ["-f", "-"],
        ["-cCODE"],
        ["-s"],
        ["-s", "FILE"],
        ["--", "FILE"],
        ["--", "-"],
        ["-x", "FILE"],
        ["-w -eCODE"],
        ["-le", "CODE"],
        ["-uc", "CODE"],
        ["-i", "FILE"],
        ["/dev/stdin"],
        ["CODE"],
        ["-V", "-c", "CODE"],
        ["-W", "-c", "CODE"],
    ],
)
def test_the_real_program_runs_nothing_that_was_not_told(
    name: str, words: list[str], tmp_path: Path
) -> None:
    path = shutil.which(name, path="/usr/bin:/bin")
    if path is None:
        lack(f"{name} is not installed")
    given, code, text = CODE[name]
    (tmp_path / "s").write_text(text + "\n")
    argv = [word.replace("CODE", code).replace("FILE", "s") for word in words]
    done = subprocess.run(
        [path, *argv],
        cwd=tmp_path,
        input=given + "\n",
        capture_output=True,
        text=True,
        timeout=40,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        start_new_session=True,
    )
    ran = {word for word in ("input", "code", "script") if word in done.stdout.split()}
    call = Program(argv=tuple(map(Arg, [name, *argv])), resolved=path, real=path, cwd=str(tmp_path))
    assert "input" not in ran or how_called(call).reads
    assert "code" not in ran or how_called(call).code or name == "bash"
    told = how_called(call).script
    assert told is None or ran <= {"script"}
    assert "script" not in ran or told in (None, Arg("s"))
