"""How the program starts: help, completion, no command at all, an early Ctrl-C."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import clawkit
from clawkit.cli.main import COMMANDS, HOME_COMMANDS, SUBCOMMANDS, main

SRC = Path(clawkit.__file__).parent
AS_SCRIPT = "import sys; from clawkit.cli.main import run; sys.exit(run(sys.argv[1:]))"


@pytest.mark.parametrize("start", [("-m", "clawkit"), ("-c", AS_SCRIPT)], ids=["module", "script"])
@pytest.mark.parametrize(
    ("module", "said"), [("click", ""), ("gettext", ""), ("msgspec", "interrupted\n")]
)
def test_an_interrupt_while_modules_are_loaded_ends_it_without_a_traceback(
    start: tuple[str, ...], module: str, said: str, tmp_path: Path
) -> None:
    # Found before the real one, as is an interrupt that comes while that is read.
    (tmp_path / f"{module}.py").write_text("raise KeyboardInterrupt\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, *start, "agent", "-m", "list", "--local"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr.lstrip()) == (130, "", said)


def test_an_interrupt_while_the_gateway_is_looked_for_ends_it_without_a_traceback(
    tmp_path: Path,
) -> None:
    (tmp_path / "socket.py").write_text("raise KeyboardInterrupt\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "clawkit", "agent", "-m", "list"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("args", "with_click"), [((), False), (("--json",), False), (("--thinking", "off"), True)]
)
def test_a_simple_turn_does_not_import_click(
    args: tuple[str, ...], with_click: bool, tmp_path: Path
) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "clawkit", "agent", "-m", "list", *args],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ("click.py" in done.stdout, done.returncode) == (not with_click, 130 * with_click)


def test_without_a_command_and_a_terminal_the_help_is_printed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "clawkit"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage: clawkit [OPTIONS] [COMMAND]" in done.stderr


def imported(*commands: str) -> set[str]:
    """The modules of clawkit that the help of commands imports, in one process."""
    script = (
        "import sys\nfrom clawkit.cli.main import run\n"
        f"for command in {commands!r}:\n"
        "    try:\n        run([command, '--help'])\n"
        "    except SystemExit as end:\n        assert end.code == 0\n"
        "print(*(name for name in sys.modules if name.startswith('clawkit')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


def test_the_help_of_a_conversation_does_not_import_the_agent() -> None:
    found = imported("chat", "agent")
    assert "clawkit.cli.agent" in found
    assert not {"clawkit.agent_session", "clawkit.runtime", "clawkit.config.load"} & found


def test_typing_extensions_are_not_loaded_but_can_be(tmp_path: Path) -> None:
    """msgspec would import them, although it needs nothing from them."""
    (tmp_path / "typing_extensions.py").write_text("print('loaded')\n", encoding="utf-8")
    script = (
        "import sys; from clawkit.cli.main import main;"
        "main.get_command(None, 'agent'); import msgspec; print(msgspec.__name__);"
        "import typing_extensions; main.get_command(None, 'ps')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["msgspec", "loaded"]


def leaves(group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in group.list_commands(click.Context(group)):
        found = group.get_command(click.Context(group), name)
        if isinstance(found, click.Group):
            yield from leaves(found, (*path, name))
        else:
            yield (*path, name), found


def test_what_can_be_kept_on_this_machine_says_so_in_its_help() -> None:
    # click keeps the first help option that it makes for a command.
    found = {
        path: command.get_help(click.Context(command, **main.context_settings))
        for path, command in leaves(main, ())
    }
    wanted = {"up", "chat", "agent", "cron", "wake", *HOME_COMMANDS}
    assert {path for path, text in found.items() if "--local" in text} == {
        path for path in found if path[0] in wanted
    }
    assert ("approvals", "allowlist", "add") in found


def test_the_help_of_a_group_imports_no_command_of_it() -> None:
    groups = ("sessions", "models", "tools", "approvals", "sandbox", "config")
    found = imported(*groups)
    assert "clawkit.cli.main" in found
    assert not {f"clawkit.cli.{each}" for each in (*groups, "options")} & found


@pytest.mark.parametrize(
    ("shell", "words", "at", "said"),
    [
        ("bash", "clawkit to", "1", "plain,tools"),
        ("zsh", "clawkit models se", "2", "plain\nset\n"),
        ("fish", "clawkit models set --fa", "--fa", "plain,--fallback\t"),
        ("bash", "clawkit tools explain gr", "3", "plain,grep\n"),
        ("bash", "clawkit config set tools.pro", "3", "plain,tools.profile\n"),
        ("bash", "clawkit config get tool", "3", "plain,tools.allow\n"),
        (
            "bash",
            "clawkit config unset agents.defaults.model.p",
            "3",
            "plain,agents.defaults.model.",
        ),
        ("bash", "clawkit config set a[.b", "3", ""),
        ("bash", "clawkit chat --model anthropic/claude-o", "3", "plain,anthropic/claude-opus-5\n"),
        (
            "bash",
            "clawkit approvals allowlist add git --args g",
            "6",
            "plain,git-read\nplain,git\n",
        ),
        ("bash", "clawkit config validate --config a", "4", "file,a\n"),
        ("bash", "clawkit chat --workspace a", "3", "file,a\n"),
        ("bash", "clawkit tools run a", "3", "file,a\n"),
    ],
)
def test_a_shell_completes_commands_and_options(shell: str, words: str, at: str, said: str) -> None:
    asked = {"_CLAWKIT_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": at}
    done = subprocess.run(
        [sys.executable, "-m", "clawkit"],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert said in done.stdout


def test_a_shell_completes_models_of_the_users_own_providers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAWKIT_CONFIG", str(file := tmp_path / "own.json5"))
    monkeypatch.setenv("_CLAWKIT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "clawkit agent --model home/")
    monkeypatch.setenv("COMP_CWORD", "3")
    provider = '{ baseUrl: "http://127.0.0.1:9/v1", models: [{ id: "m-1" }, { id: "m-2" }] }'
    for text, said in (
        (
            f"{{ models: {{ providers: {{ home: {provider} }} }} }}",
            ["plain,home/m-1", "plain,home/m-2"],
        ),
        ("{ tools: 1 }", []),
    ):
        file.write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, "-m", "clawkit"], capture_output=True, text=True)
        assert (done.returncode, done.stdout.split(), done.stderr) == (0, said, "")


def test_completing_after_a_misspelt_word_is_not_an_error() -> None:
    asked = {"_CLAWKIT_COMPLETE": "bash_complete", "COMP_WORDS": "clawkit tols l"}
    done = subprocess.run(
        [sys.executable, "-m", "clawkit"],
        env={**os.environ, **asked, "COMP_CWORD": "2"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_completing_the_first_word_imports_no_command(tmp_path: Path) -> None:
    asked = {"_CLAWKIT_COMPLETE": "bash_complete", "COMP_WORDS": "clawkit ", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "clawkit"],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == [f"plain,{name}" for name in COMMANDS]
    assert "clawkit.cli.agent" not in done.stderr


def test_messages_name_whole_commands() -> None:
    names = [f"{group} {name}" for group, names in SUBCOMMANDS.items() for name in names]
    short = re.compile(rf"`(?:{'|'.join(names)})\b")
    found = [
        (path.name, node.lineno, hit.group())
        for path in SRC.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for hit in short.finditer(" ".join(node.value.split()))
    ]
    assert found == [], "a person can only type them with clawkit before them"


@pytest.mark.parametrize(
    ("closed", "opened"), [("<&-", {0}), (">&-", {1}), ("<&- 2>&-", {0, 2}), ("<&- >&-", {0, 1})]
)
def test_only_the_closed_streams_are_opened(closed: str, opened: set[int]) -> None:
    code = (
        "import os, sys; from clawkit.cli import start\n"
        "def fds(): return {each for each in range(20) if os.path.exists(f'/dev/fd/{each}')}\n"
        "before = fds(); start._open_closed_streams()\n"
        "os.write(9, repr((fds() - before, os.get_inheritable(0))).encode())"
    )
    ours, theirs = os.pipe()
    line = f'exec "$@" 9>&{theirs} {theirs}>&- {closed}'
    with open(ours, "rb") as heard:
        argv = ["bash", "-c", line, "bash", sys.executable, "-c", code]
        subprocess.run(argv, check=True, pass_fds=[theirs])
        os.close(theirs)
        assert heard.read().decode() == repr((opened, True))
