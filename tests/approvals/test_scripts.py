"""Which script files a command would run."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawkit.approvals.analysis import analyze
from clawkit.approvals.inline_code import MAX_SCRIPTS
from clawkit.approvals.inline_code import find_scripts as find_in
from clawkit.approvals.protocols import ScriptFile

ENV = {"PATH": "/usr/bin:/bin", "HOME": "/home/me"}


def find_scripts(command: str, cwd: str) -> list[ScriptFile]:
    return find_in(analyze(command, cwd=cwd, env=ENV).segments)


def found(command: str) -> list[str]:
    return [script.path for script in find_scripts(command, "/w")]


PYTHON = [
    "/usr/bin/env timeout -k5 10 nohup python x.py",
    "python x.py",
    "python3 ./x.py",
    "python3.11 x.py --flag value",
    "python3.13t x.py",
    "pypy3 x.py",
    "/usr/bin/python3 x.py",
    ".venv/bin/python x.py",
    "python -u x.py",
    "python -uBI -OO x.py",
    "python -X dev -W ignore x.py",
    "python -Xdev -Wignore x.py",
    "python -uX dev x.py",
    "python --check-hash-based-pycs always x.py",
    "python -- x.py",
    "time -p python x.py",
    "nice -n 5 python x.py",
    "! python x.py",
    "timeout 5 python x.py",
    "timeout -k 5 --signal=KILL -s 9 10m python x.py",
    "python x.py > out.txt 2>&1 < in.txt",
    "2>/dev/null python x.py",
    "python x.py | tee log",
    "curl example.org | python x.py",
    "python x.py; rm -f y",
    "python x.py # why",
    "# why\n\npython x.py\n",
    "python \\\n  x.py",
    "python 'x.py'",
    'python "x".py',
    "python x\\.py",
    "'python' x.py",
    "export A=1 && python x.py",
    "A=1; python x.py",
    "set -e\npython x.py",
    "[ -f x.py ] && python x.py",
    "echo start >&2; python x.py",
    "ls > /dev/null; python x.py",
    "cd /w && python x.py",
    "true && cd /w && python x.py",
    "cd nowhere | true; python /w/x.py",
    "(python x.py)",
    "{ python x.py; }",
    "if true; then python x.py; fi",
    "for x in 1 2; do python x.py; done",
    "bash -c 'python x.py'",
    "python $'x.py'",
    "cd a | python x.py",
    "cd a || python x.py",
]
JAVASCRIPT = [
    "node x.js",
    "nodejs ./x.js",
    "bun x.js",
    "deno run x.js",
    "bun run x.js",
]
PATHS = [
    ("python script", "/w/script"),
    ("python .//x.py", "/w/x.py"),
    ("python a/../x.py", "/w/a/../x.py"),
    ("python /abs/x.py", "/abs/x.py"),
    ("python 'a b.py'", "/w/a b.py"),
    ("python a~b.py", "/w/a~b.py"),
    ("python a#b.py", "/w/a#b.py"),
    ("python 5.py", "/w/5.py"),
    ('python "a\\$b\\"c\\d".py', '/w/a$b"c\\d.py'),
    ("node x.mjs", "/w/x.mjs"),
    ("node x.cjs", "/w/x.cjs"),
    ("cd a/b && python x.py", "/w/a/b/x.py"),
    ("cd /tmp\npython x.py", "/tmp/x.py"),
    ("python ~/x.py", "/home/me/x.py"),
    ("python {a,b}.py", "/w/a.py"),
]
NONE = [
    "bun *.js",
    "true || cd b; python x.py",
    "",
    "python",
    "python -",
    "python ''",
    "python -c 'import x' x.py",
    "python -Ic 'import x' x.py",
    "python -m pytest x.py",
    "python -x x.py",
    "python --version x.py",
    "python2 x.py",
    "ipython x.py",
    "uv run pytest x.py",
    "uv run -m x x.py",
    "uv run uv run x.py",
    "uv run --directory a x.py",
    "uv pip install x.py",
    "uv",
    "uv run",
    "node",
    "node x",
    "node x.ts",
    "node -e 1 x.js",
    "node -pe 1 x.js",
    "node --eval=1 x.js",
    "deno test x.js",
    "deno",
    "bun install x.js",
    "bun run dev",
    "bun --cwd a x.js",
    "cat x.py",
    "echo python x.py",
    "env -S 'python x.py'",
    "env -C a python x.py",
    "timeout",
    "# python x.py",
    "'python x.py'",
    "$PYTHON x.py",
    "python $NAME.py",
    'python "$NAME.py"',
    'python "${DIR}/x.py"',
    "python *.py",
    "python [xy].py",
    "python $FLAGS x.py",
    "python $(find . -name x.py)",
    "python x.py$(true)",
    "python `echo x`.py",
    "python ${X:-'a}'} x.py",
    "python 'x.py",
    'python "x.py',
    "f() { python x.py; }; f",
    "uv run x.py",
    "uv -q run x.py",
    "uv run -p 3.12 --with requests --with=rich x.py",
    "uv run python -u x.py",
    "uv run --script x.py",
    "A=1 B=$HOME python x.py",
    "env -u B A=1 python x.py",
    "env -uB -- python x.py",
    "exec -a name python x.py",
    "nohup python x.py &",
    'python x.py "$HOME" ${A:-b} *.txt',
    "python x.py $(date) y",
    "python x.py `date`",
    "python x.py <<EOF\ntext\nEOF",
    "source venv/bin/activate && python x.py",
    "cd .. && cd w && python x.py",
    "cd sub && cd .. && python x.py",
    "node --trace-warnings -r ./setup.js --import=tsx x.js",
    "node --env-file .env -C production x.js",
    "deno run -A --config deno.json x.js",
    "bun run --watch x.js",
    "bun --bun run x.js",
    "python $.py",
    "cd -- a; python x.py",
    "cd a && cd ../c && python x.py",
]
WRITTEN_FIRST = [
    "cat > x.py <<'EOF'\nprint()\nEOF\npython x.py",
    "echo 'print()' > x.py; python x.py",
    "echo 'print()' >> x.py && python x.py",
    "echo 'print()' &> x.py && python x.py",
    "echo 'print()' >& x.py && python x.py",
    "> x.py; python x.py",
    "sed -i s/a/b/ x.py && python x.py",
    "git pull && python x.py",
    "cp y.py x.py; python x.py",
    "printf x | tee x.py; python x.py",
    "(make x.py); python x.py",
    "echo $(make x.py); python x.py",
    "$MAKE && python x.py",
]
UNCERTAIN_DIRECTORY = [
    "cd && python x.py",
    "cd - && python x.py",
    "cd $DIR && python x.py",
    "cd a b && python x.py",
    "cd a || true; python x.py",
    "true && cd a; python x.py",
    "true || cd a && python x.py",
    "true && cd a && true; python x.py",
    "cd a && true || python x.py",
    "cd a & python x.py",
    "cd $DIR; cd b; python x.py",
    "cd a; cd .. && python x.py",
]


def test_python_scripts_are_found() -> None:
    expected = [ScriptFile("python", "/w/x.py")]
    assert [each for each in PYTHON if find_scripts(each, "/w") != expected] == []


def test_javascript_scripts_are_found() -> None:
    expected = [ScriptFile("javascript", "/w/x.js")]
    assert [each for each in JAVASCRIPT if find_scripts(each, "/w") != expected] == []


def test_the_path_of_a_script_is_absolute_and_as_the_shell_sees_it() -> None:
    assert [(command, found(command)) for command, path in PATHS if found(command) != [path]] == []


def test_what_runs_no_file_or_not_for_certain_gives_none() -> None:
    assert [(each, found(each)) for each in NONE if found(each)] == []


def test_a_script_that_may_be_written_first_is_left_out() -> None:
    assert [(each, found(each)) for each in WRITTEN_FIRST if found(each)] == []


def test_a_script_in_a_directory_that_is_not_certain_is_left_out() -> None:
    assert [(each, found(each)) for each in UNCERTAIN_DIRECTORY if found(each)] == []


def test_a_directory_that_is_certain_again_counts() -> None:
    assert found("true || cd b; cd /a && python x.py") == ["/a/x.py"]


def test_every_part_of_a_pipe_is_looked_at() -> None:
    assert found("python a.py | python b.py |& node c.js") == ["/w/a.py", "/w/b.py", "/w/c.js"]
    assert found("python a.py && python b.py") == ["/w/a.py"]


def test_the_number_of_scripts_looked_for_is_limited() -> None:
    many = " | ".join(f"python {number}.py" for number in range(50))
    assert len(found(many)) == MAX_SCRIPTS
    assert found("python x.py " + "arg " * 500) == ["/w/x.py"]


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1))
def test_any_quoted_name_is_read_back(name: str) -> None:
    paths = [os.path.normpath(path) for path in found(f"python {shlex.quote(name)}")]
    expected = [os.path.normpath(os.path.join("/w", name))]
    assert (
        paths in (expected, []) if name.startswith("-") or not name.isascii() else paths == expected
    )


@given(st.text(st.sampled_from("ab $'\"\\`|&;<>(){}*?[]~#!=-\n\t/0."), max_size=60))
def test_any_text_is_accepted(text: str) -> None:
    for command in (text, f"python {text}", f"cd {text} && python x.py"):
        assert all(path.startswith("/") for path in found(command))


PARTS = ["cd a", "cd b", "cd ..", "cd none", "true", "false", "python {}.py", "echo x", "cd a/b"]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.tuples(st.sampled_from(PARTS), st.sampled_from(["&&", "||", ";", "\n", "|"])),
        min_size=2,
        max_size=6,
    )
)
def test_a_shell_runs_the_script_where_it_was_said_to_be(
    tmp_path: Path, parts: list[tuple[str, str]]
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True, exist_ok=True)
    (tmp_path / "b").mkdir(exist_ok=True)
    (tmp_path / "bin").mkdir(exist_ok=True)
    interpreter = tmp_path / "bin" / "python"
    interpreter.write_text('#!/bin/sh\necho "$PWD/$1" >> "$LOG"\n')
    interpreter.chmod(0o755)
    log = tmp_path / "log"
    log.write_text("")
    command = "".join(part.format(n) + f" {end} " for n, (part, end) in enumerate(parts)) + "true"
    env = {"PATH": f"{interpreter.parent}:/usr/bin:/bin", "LOG": str(log)}
    subprocess.run(["bash", "-c", command], cwd=tmp_path, env=env, capture_output=True, timeout=30)
    ran = {os.path.basename(path): path for path in log.read_text().split()}
    for script in find_scripts(command, str(tmp_path)):
        name = os.path.basename(script.path)
        # `cd none; python 1.py` runs where it was; a script that is not there is not looked at.
        if name in ran and os.path.isdir(os.path.dirname(script.path)):
            assert script.path == ran[name], command
