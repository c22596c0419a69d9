"""The entry point of `clawkit`, and its table of commands.

Commands are imported on use: `--help` needs only the table and click.
"""

from __future__ import annotations

import gc
import sys

# Start-up creates many objects, all of which survive: collecting garbage among them would take a
# tenth of the time to the first request.
gc.set_threshold(100_000, 20, 20)

try:
    import errno
    import importlib
    import io
    import os
    from collections.abc import Iterable, Mapping
    from typing import Any

    import click

    from clawkit.version import __version__
except KeyboardInterrupt:
    # `run` would catch it, but does not exist yet.
    sys.exit(130)

COMMANDS = {
    "up": ("clawkit.cli.agent:chat", "Alias for chat."),
    "chat": ("clawkit.cli.agent:chat", "Chat with an agent in the terminal; the default command."),
    "agent": ("clawkit.cli.agent:agent", "Send an agent one message and print its answer."),
    "onboard": (
        "clawkit.cli.onboarding:onboard",
        "Choose a model, try it, and save it in the configuration.",
    ),
    "configure": (
        "clawkit.cli.onboarding:configure",
        "Change models, tools or approvals by answering questions.",
    ),
    "sessions": (
        "clawkit.cli.sessions",
        "List, show, search, message, rename, delete and export sessions.",
    ),
    "agents": ("clawkit.cli.agents", "List, add and remove agents."),
    "models": ("clawkit.cli.models", "List models, choose one, check that it answers."),
    "tools": ("clawkit.cli.tools", "List, explain, describe and call tools."),
    "approvals": (
        "clawkit.cli.approvals:approvals",
        "Answer approval requests; manage the allowlist.",
    ),
    "sandbox": (
        "clawkit.cli.sandbox",
        "Explain, list and recreate sandboxes; run a command in one.",
    ),
    "config": ("clawkit.cli.config", "Read, change and validate the configuration."),
    "doctor": (
        "clawkit.cli.doctor:doctor",
        "Check this installation, and report how to fix problems.",
    ),
    "gateway": (
        "clawkit.cli.gateway",
        "Share agents and sessions with other programs and devices.",
    ),
    "ps": ("clawkit.cli.ps:ps", "List running commands."),
    "logs": ("clawkit.cli.ps:logs", "Show the output of a command."),
    "kill": ("clawkit.cli.ps:kill", "Stop commands and everything they started."),
}

EPILOG = """\b
Try:
  clawkit
  clawkit tools list
  clawkit tools explain exec
  clawkit tools call ls
  clawkit config validate
  clawkit ps
"""


def _load(name: str, path: str) -> click.Command:
    """Import a command from `module:function`; a path without a function is a group's module."""
    module, _, attribute = path.partition(":")
    if not attribute:
        from clawkit.cli.groups import make_group

        return make_group(name, module)
    command: click.Command = getattr(importlib.import_module(module), attribute)
    return command


class Group(click.Group):
    """A group that suggests the closest command for an unknown one."""

    def known_words(self, ctx: click.Context) -> dict[str, str]:
        """Words to suggest, each with the command line to type."""
        return {name: f"{ctx.command_path} {name}" for name in self.list_commands(ctx)}

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # During shell completion the word is still being typed.
        if not ctx.resilient_parsing and args[0] not in self.list_commands(ctx):
            from clawkit.text import nearest

            known = self.known_words(ctx)
            close = nearest(args[0], known, 1)
            hint = f" Did you mean '{known[close[0]]}'?" if close else ""
            ctx.fail(f"Unknown command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """A group that knows its commands from a table, and imports one only to run it."""

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **options: Any) -> None:
        """`table` maps the name of each command to its import path and its short help."""
        super().__init__(*args, **options)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _load(cmd_name, self._table[cmd_name][0]) if cmd_name in self._table else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._table.items()])

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        from click.shell_completion import CompletionItem

        names = [name for name in self._table if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=self._table[name][1]) for name in names), *options]


class _Main(LazyGroup):
    def known_words(self, ctx: click.Context) -> dict[str, str]:
        from clawkit.cli.approvals import approvals
        from clawkit.cli.groups import SUBCOMMANDS

        # The name of the group may be missing: `clawkit search` for `clawkit sessions search`.
        groups: dict[str, Iterable[str]] = {"approvals": approvals.commands, **SUBCOMMANDS}
        path = ctx.command_path
        below = {word: f"{path} {name} {word}" for name, words in groups.items() for word in words}
        return below | super().known_words(ctx)


@click.group(
    cls=_Main,
    table=COMMANDS,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
)
@click.version_option(__version__, "--version", prog_name="clawkit")
@click.option("--debug", is_flag=True, help="Show Python tracebacks.")
@click.pass_context
def main(context: click.Context, debug: bool) -> Any:
    """An agent for your terminal, and the tool layer between any agent and a real machine.

    Without a command, opens the chat, or prints this help if there is no terminal.

    Exit codes: 0 success, 1 a tool failed, 2 usage or configuration error, 3 refused by policy or
    by a person, 130 interrupted.
    """
    if context.invoked_subcommand is not None:
        return None
    streams = (sys.stdin, sys.stdout)
    if all(stream is not None and stream.isatty() for stream in streams):
        return context.invoke(_load("chat", COMMANDS["chat"][0]))
    click.echo(context.get_help(), err=True)
    return 2


def run(argv: list[str] | None = None) -> None:
    """Run the command line and exit. Errors have no traceback unless `--debug` is given."""
    args = sys.argv[1:] if argv is None else argv
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Characters that the terminal's encoding lacks are escaped instead of raising.
            stream.reconfigure(errors="backslashreplace")
    first_word = next((i for i, arg in enumerate(args) if not arg.startswith("-")), len(args))
    debug = "--debug" in args[:first_word]
    try:
        is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown")
        color = False if is_plain else None
        code = main.main(args, prog_name="clawkit", standalone_mode=False, color=color)
        _end(code if isinstance(code, int) else 0)
    except click.ClickException as error:
        error.show()
        _end(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        _end(130)
    except OSError as error:
        click.echo(f"clawkit: {error.strerror or error}", err=True)
        _end(1)
    except Exception as error:  # top level of the program
        if debug:
            raise
        _end(_report(error))


def _report(error: Exception) -> int:
    from clawkit.text import printable

    exit_code: Any = getattr(error, "exit_code", None)
    if isinstance(exit_code, int):
        click.echo(f"clawkit: {printable(str(error))}", err=True)
        return exit_code
    click.echo(
        f"clawkit: unexpected {type(error).__name__}: {printable(str(error))}\n"
        "This is a bug in clawkit; `clawkit --debug …` shows where.",
        err=True,
    )
    return 1


def _end(code: int) -> None:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        # The rest cannot be written; keep the interpreter from failing on it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        # EIO: the terminal has gone, so exit as if by SIGHUP.
        code = code or (129 if error.errno == errno.EIO else 1)
    sys.exit(code)
