"""The commands of `clawkit`, loaded on use.

`--help` needs only this table; nothing else of clawkit is imported for it.
"""

from __future__ import annotations

import importlib

import click

from clawkit.version import __version__

COMMANDS = {
    "up": ("clawkit.cli.chat:up", "Talk with an agent in the terminal."),
    "chat": ("clawkit.cli.chat:chat", "Talk with an agent in the terminal."),
    "agent": ("clawkit.cli.agent:agent", "Give an agent one message and print its answer."),
    "onboard": ("clawkit.cli.onboard:onboard", "Choose a model, try it, write the configuration."),
    "configure": ("clawkit.cli.onboard:configure", "Change models, tools, approvals by questions."),
    "sessions": ("clawkit.cli.sessions:sessions", "List, show, rename, delete conversations."),
    "models": ("clawkit.cli.models:models", "Choose a model; see which there are."),
    "tools": ("clawkit.cli.tools:tools", "List, explain, describe and call tools."),
    "approvals": ("clawkit.cli.approvals:approvals", "Answer questions; allow commands."),
    "config": ("clawkit.cli.config:config", "Read, change and check the configuration."),
    "doctor": ("clawkit.cli.doctor:doctor", "Say what is missing or wrong, and what to type."),
    "ps": ("clawkit.cli.running:ps", "Show the commands that run."),
    "logs": ("clawkit.cli.logs:logs", "Show what a command wrote."),
    "kill": ("clawkit.cli.running:kill", "End commands, and all they started."),
}

# For those who leave out the first word.
SUBCOMMANDS = {
    "tools": ("list", "explain", "schema", "call", "run"),
    "approvals": ("check", "pending", "resolve", "allowlist", "log", "suggest", "watch"),
    "config": ("get", "set", "unset", "patch", "validate", "file"),
    "models": ("status",),
    "sessions": ("show", "rename", "delete", "export", "path"),
}

EPILOG = """\b
Try:
  clawkit chat
  clawkit tools list
  clawkit tools explain exec
  clawkit tools call ls
  clawkit config validate
  clawkit ps
"""


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from clawkit.text import nearest

            known = {name: name for name in COMMANDS}
            known |= {
                word: f"{name} {word}" for name, words in SUBCOMMANDS.items() for word in words
            }
            close = nearest(args[0], tuple(known), 1)
            hint = f" Did you mean 'clawkit {known[close[0]]}'?" if close else ""
            ctx.fail(f"There is no command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
)
@click.version_option(__version__, "--version", prog_name="clawkit")
@click.option("--debug", is_flag=True, help="Show Python tracebacks.")
def main(debug: bool) -> None:
    """An agent for your terminal, and the tool layer between any agent and a real machine.

    Exit codes: 0 ok, 1 a tool failed, 2 wrong usage or configuration, 3 refused by policy or by a
    person, 130 interrupted.
    """
