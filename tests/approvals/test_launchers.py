"""Programs that start others in ways that cannot be followed."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any

import pytest
from tests.tables import table

from clawkit.approvals.launchers import Opaque, look_through
from clawkit.approvals.options import is_device, may_be, may_be_option
from clawkit.approvals.types import Arg


def code(command: str) -> str:
    """The code of the doubt about a command; empty for an ordinary program."""
    argv = [Arg(word, glob="*" in word or "?" in word) for word in shlex.split(command)]
    found = look_through(frozenset({argv[0].text.rpartition("/")[2]}), argv)
    assert found is None or isinstance(found, Opaque)
    return found.code if found else ""


BLOCKED = """
sudo doas su runuser pkexec chroot unshare nsenter setpriv bwrap firejail systemd-run script
watch xvfb-run unbuffer proot gosu torify torsocks proxychains proxychains4 setarch linux32
linux64 numactl cpulimit catchsegv eatmydata ionice chrt taskset setsid strace ltrace gdb perf
valgrind at batch crontab parallel entr expect tmux screen dbus-run-session start-stop-daemon
daemonize dtach rlwrap sem chronic flock socat qemu-x86_64 s6-applyuidgid strace-6.1
sudo.exe gdb-static
""".split()  # noqa: SIM905  # one word per program


def test_what_changes_the_conditions_of_a_program_is_never_looked_through() -> None:
    for name in BLOCKED:
        assert code(f"{name} ls") == "blocked-wrapper"
        assert code(f"/usr/bin/{name}") == "blocked-wrapper"
        assert code(f"{name} --version") == "blocked-wrapper"


@table("command", ["ssh host", "ssh host ls", "mosh host", "/usr/bin/rsh host ls"])
def test_programs_that_run_commands_remotely_are_refused(command: str) -> None:
    assert code(command) == "remote"


CARRYING = [
    "xargs",
    "xargs ls",
    "gxargs -n1 ls",
    "npx cowsay",
    "npx --version",
    "pnpx cowsay",
    "bunx cowsay",
    "uvx ruff",
    "corepack yarn",
    "nix-shell -p x",
    "eval ls",
    "source x",
    ". x",
    "builtin eval ls",
    "find . -maxdepth 0 -exec touch x ;",
    "find . -execdir ls {} +",
    "find . -ok ls {} ;",
    "find -okdir",
    "gfind . -exec ls ;",
    "find *",
    "find . -ex*",
    "find . ????? ls",
    "find . [-]exec? ls",
    "fd -x ls",
    "fd -X ls",
    "fd -Hx ls",
    "fd --exec ls",
    "fd --exec=ls",
    "fd --exec-batch ls",
    "fdfind . -x ls",
    "fd *",
    "npm exec -- cowsay",
    "npm x cowsay",
    "npm exe cowsay",
    "npm init foo",
    "npm create foo",
    "npm innit foo",
    "npm cr foo",
    "npm explore x -- ls",
    "npm -s exec cowsay",
    "npm -s test",
    "npm --silent -s test",
    "npm --silent",
    "npm --prefix x test",
    "npm --yes exec cowsay",
    "npm -c ls",
    "npm *",
    "npm -s *",
    "npm --version exec cowsay",
    "pnpm exec ls",
    "pnpm dlx cowsay",
    "pnpm create foo",
    "pnpm -r exec ls",
    "pnpm recursive exec ls",
    "pnpm cowsay",
    "yarn exec ls",
    "yarn dlx cowsay",
    "yarn create foo",
    "yarn node x.js",
    "yarn cowsay",
    "yarn ./x",
    "yarnpkg dlx cowsay",
    "bun x cowsay",
    "bun exec 'ls'",
    "bun create foo",
    "bun cowsay",
    "bun -e 'x.y/z'",
    "pipx run cowsay",
    "pipx ru cowsay",
    "uv run x.py",
    "uv tool run ruff",
    "uv --quiet run x.py",
    "uv r*",
    "poetry run ls",
    "bundle exec ls",
    "bundle e ls",
    "conda run -n x ls",
    "mise x -- ls",
    "nix develop -c ls",
    "ip netns exec x ls",
    "ip net e x ls",
    "ip -b file",
    "deno x cowsay",
]


def test_programs_that_start_their_arguments_are_carriers() -> None:
    for command in CARRYING:
        assert code(command) == "carrier"


ORDINARY = [
    "find . -name '[a].py' -delete",
    "find src/* -name x",
    "find . -name *.py",
    "find . -name ?exec?",
    "find . -fprint x",
    "find . -name exec",
    "find ./-exec",
    "fd pattern",
    "fd -e py",
    "fd --extension py",
    "fd --exclude x",
    "fd src/*",
    "fd text",
    "npm test",
    "npm",
    "npm -v",
    "npm --version",
    "npm ci",
    "npm install x",
    "npm run build",
    "npm test -s",
    "npm ls exec",
    "pnpm install",
    "pnpm test *",
    "yarn",
    "yarn install",
    "yarnpkg test",
    "bun",
    "bun test",
    "bun x.ts",
    "bun ./x",
    "bun run build",
    "pipx list",
    "uv pip install x",
    "uv",
    "poetry install",
    "ip addr",
    "deno run x.ts",
    "cargo run",
    "go run .",
    "make",
    "git status",
    "tar xf x",
    "ldconfig",
    "ld -o x",
    "idle",
    "printenv",
]


def test_an_ordinary_call_is_an_ordinary_program() -> None:
    for command in ORDINARY:
        assert code(command) == ""


@table("name", ["", "ls", "sud", "sudox", "SUDO", "sudo\0", "\udcff", "ssh" * 30_000])
def test_programs_with_other_names_are_not_carriers(name: str) -> None:
    assert look_through(frozenset({name}), [Arg(name)]) is None


def test_a_reason_names_the_tool() -> None:
    found = look_through(frozenset({"npm"}), [Arg("npm"), Arg("exec")])
    assert isinstance(found, Opaque)
    assert "npm may start" in found.reason


def _a_pattern_may_be_an_option(text: str, glob: bool, expected: bool) -> None:
    assert may_be_option(Arg(text, glob=glob)) is expected


def test_a_pattern_may_be_an_option(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        ("-x", False, True),
        ("-", False, True),
        ("x", False, False),
        ("", False, False),
        ("*", True, True),
        ("?x", True, True),
        ("[-]x", True, True),
        ("-*", True, True),
        ("'-'*", True, True),
        ("\\-*", True, True),
        ("a*", True, False),
        ("./*", True, False),
        ("é*", True, False),
        ("", True, True),
    ]
    for text, glob, expected in cases:
        with subtests.test(text=text, glob=glob, expected=expected):
            _a_pattern_may_be_an_option(text, glob, expected)


def _a_pattern_may_be_a_word(text: str, glob: bool, expected: bool) -> None:
    assert may_be(Arg(text, glob=glob), ("-exec",)) is expected


def test_a_pattern_may_be_a_word(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        ("-exec", False, True),
        ("-exe?", False, False),
        ("-exe?", True, True),
        ("*", True, True),
        ("**********", True, True),
        ("*c", True, True),
        ("?????", True, True),
        ("??????", True, False),
        ("*.py", True, False),
        ("a*", True, False),
        ("dir/*", True, False),
        ("[-x]*", True, True),
        ("'a'*", True, True),
        ("*?" * 30_000, True, False),
        ("*" * 60_000, True, True),
    ]
    for text, glob, expected in cases:
        with subtests.test(text=text, glob=glob, expected=expected):
            _a_pattern_may_be_a_word(text, glob, expected)


def _a_path_may_lead_to_the_standard_input(text: str, cwd: str | None, expected: bool) -> None:
    assert is_device(text, cwd) is expected


def test_a_path_may_lead_to_the_standard_input(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        ("/dev/stdin", None, True),
        ("//dev/./stdin", None, True),
        ("/tmp/../dev/fd/0", None, True),
        ("/proc/self/fd/0", "/w", True),
        ("/dev/shm/x.py", None, False),
        ("/device/x", None, False),
        ("../dev/stdin", "/w", True),
        ("../dev/stdin", "/w/a", False),
        ("../x/dev/y", None, True),
        ("dev/x.py", None, False),
        ("dev/x.py", "/", True),
        ("stdin", "/dev", True),
        ("../stdin", "/dev/shm", True),
        ("x.py", "/dev/shm", False),
        ("x.py", "/home/dev/proc", False),
        ("x.py", "/w", False),
        ("../x.py", None, False),
        ("", None, False),
    ]
    for text, cwd, expected in cases:
        with subtests.test(text=text, cwd=cwd, expected=expected):
            _a_path_may_lead_to_the_standard_input(text, cwd, expected)
