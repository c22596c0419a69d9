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
    from collections.abc import Mapping
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
        "clawkit.cli.sessions:",
        "List, show, search, message, rename, delete and export sessions.",
    ),
    "agents": ("clawkit.cli.agents:", "List, add and remove agents."),
    "models": ("clawkit.cli.models:", "List models, choose one, check that it answers."),
    "tools": ("clawkit.cli.tools:", "List, explain, describe and call tools."),
    "approvals": ("clawkit.cli.approvals:", "Answer approval requests; manage the allowlist."),
    "sandbox": (
        "clawkit.cli.sandbox:",
        "Explain, list and recreate sandboxes; run a command in one.",
    ),
    "config": ("clawkit.cli.config:", "Read, change and validate the configuration."),
    "doctor": (
        "clawkit.cli.doctor:doctor",
        "Check this installation, and report how to fix problems.",
    ),
    "ps": ("clawkit.cli.ps:ps", "List running commands."),
    "logs": ("clawkit.cli.ps:logs", "Show the output of a command."),
    "kill": ("clawkit.cli.ps:kill", "Stop commands and everything they started."),
}
"""Per command, `module:function` and its short help; without a function it is a group."""

EPILOG = """\b
Try:
  clawkit
  clawkit tools list
  clawkit tools explain exec
  clawkit tools call ls
  clawkit config validate
  clawkit ps
"""


class LazyGroup(click.Group):
    """A group that knows its commands from a table like `COMMANDS`, and imports one to run it."""

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **options: Any) -> None:
        super().__init__(*args, **options)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return None
        path, about = self._table[cmd_name]
        module, _, function = path.partition(":")
        if not function:
            from clawkit.cli.groups import make_group

            return make_group(cmd_name, module, about)
        command: click.Command = getattr(importlib.import_module(module), function)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # During shell completion the word is still being typed.
        if not ctx.resilient_parsing and args[0] not in self._table:
            from clawkit.cli.groups import suggest_command

            ctx.fail(f"Unknown command {args[0]!r}.{suggest_command(ctx, args[0], self._table)}")
        return super().resolve_command(ctx, args)

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


@click.group(
    cls=LazyGroup,
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
        from clawkit.cli.agent import chat

        return context.invoke(chat)
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
