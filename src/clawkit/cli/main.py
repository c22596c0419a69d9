"""The entry point of `clawkit`, and its table of commands.

Commands are imported on use: `--help` needs only the table and click.
"""

from __future__ import annotations

import sys

try:
    import importlib
    import os
    from collections.abc import Mapping
    from typing import Any

    import click

    from clawkit.cli.start import finish, has_reader_left, import_msgspec
    from clawkit.text import printable
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
        "Change models, tools, approvals or search by answering questions.",
    ),
    "sessions": (
        "clawkit.cli.sessions:",
        "List, show, search, message, rename, delete and export sessions.",
    ),
    "agents": ("clawkit.cli.agents:", "List, add and remove agents."),
    "models": ("clawkit.cli.models:", "List, choose and probe models."),
    "tools": ("clawkit.cli.tools:", "List, explain and call tools; print their schemas."),
    "plugins": (
        "clawkit.cli.plugins:",
        "List, inspect, enable and disable plugins.",
    ),
    "skills": ("clawkit.cli.skills:", "List, check and install skills."),
    "memory": ("clawkit.cli.memory:", "Search, show and remove notes; manage their index."),
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
    "gateway": (
        "clawkit.cli.gateway:",
        "Share agents and sessions with other programs and devices.",
    ),
    "mcp": (
        "clawkit.cli.mcp_servers:",
        "Use the tools of MCP servers, and offer clawkit's own to MCP clients.",
    ),
    "cron": ("clawkit.cli.cron:", "Schedule and run jobs; show their history."),
    "wake": ("clawkit.cli.cron:wake", "Leave a message for a session, for its next turn or now."),
    "heartbeat": ("clawkit.cli.heartbeat:", "Show, run and pause the regular checks of agents."),
    "ps": ("clawkit.cli.ps:ps", "List running commands."),
    "logs": ("clawkit.cli.ps:logs", "Show the output of a command."),
    "kill": ("clawkit.cli.ps:kill", "Stop commands and everything they started."),
}
"""Per command, `module:function` and its short help; without a function it is a group."""
HOME_COMMANDS = ("sessions", "approvals", "heartbeat", "ps", "logs", "kill")
"""Commands about the home directory, or that of a remote gateway."""
_HELP = {
    "sessions": """
ID is the id of a session, a prefix of it, its name, its label or its key.

\b
clawkit sessions list --here              sessions of this directory
clawkit sessions show k3mq                its messages
clawkit sessions search login page        messages with these words
clawkit sessions tree                     which session started which
clawkit agent --session k3mq -m "Go on"   resume it
""",
    "agents": """
An agent has its own sessions, and may have its own workspace, model and tools.

\b
clawkit agents list                                      agents and their models
clawkit agents add research --workspace ~/research       add one with its own directory
clawkit agent --agent research -m "What is new?"         talk to it
clawkit agents remove research                           its sessions are kept
""",
    "models": """
\b
clawkit models list                           models you can use
clawkit models set anthropic/claude-opus-5    use this one
clawkit models status --probe                 check that it answers
""",
    "approvals": """
An allowlisted command needs no approval.

\b
clawkit approvals check 'git status | head'      whether it would run, and why
clawkit approvals allowlist add git --args git   allow everyday git commands
clawkit approvals pending                        requests waiting for an answer
clawkit approvals resolve 3f2a allow-once        answer one
clawkit approvals watch                          answer requests at this terminal
""",
    "skills": """
A skill is a directory with SKILL.md: instructions that the model reads when a task needs them.

\b
clawkit skills list                    skills, and what they cost
clawkit skills check                   why each is offered, or not
clawkit skills install weather.skill   install one from a file
""",
    "memory": """
Notes are Markdown files in the workspace: MEMORY.md and memory/. You can edit them yourself.

\b
clawkit memory status                the state of the index, and problems
clawkit memory search tea            what the agent finds
clawkit memory forget MEMORY.md:3    remove a line
""",
    "sandbox": """
\b
clawkit sandbox explain                        which sandbox, why, and what it allows
clawkit sandbox explain -- git push            where a command would run
clawkit sandbox run -- python3 -m pytest       run something in it
clawkit sandbox list                           the sandboxes on this machine
clawkit sandbox recreate --all                 remove them; the next use creates new ones
""",
    "plugins": """
ID is the id of a plugin, as it declares it.

\b
clawkit plugins list             plugins, and whether each is on
clawkit plugins info dice        what one adds, and its location
clawkit plugins enable dice      enable it, after showing what it declares
clawkit plugins disable dice     disable it
""",
    "gateway": """
\b
clawkit gateway run                      serve until Ctrl-C
clawkit gateway start                    serve in the background
clawkit gateway install                  start it at every login
clawkit gateway status                   whether one is running, and who is connected
clawkit gateway url                      open the control page
clawkit gateway call sessions.list       call any method
clawkit gateway token                    the token that other programs log in with
""",
    "mcp": """
\b
clawkit mcp refresh                           list the tools of the servers in mcp.servers
clawkit mcp login docs                        log in to one of them
clawkit mcp install --client claude-code      let Claude Code use clawkit's tools
clawkit mcp serve                             the command that a client runs
clawkit mcp serve --http                      a server for several clients
""",
    "cron": """
JOB is the id of a job, a prefix of it, or its name. The gateway runs jobs; without one, `clawkit
cron serve` does.

\b
clawkit cron add "every weekday at 9:00" -m "What is new?"    a turn of an agent
clawkit cron add "in 20 minutes" --event "Call Ada"           a reminder in the main session
clawkit cron next "last friday of the month at 17:00"         the next times of a schedule
clawkit cron list                                             jobs, with their next times
clawkit cron runs                                             past runs and their output
""",
    "config": """
A PATH is written as a.b.c, a list entry as a.b[0], and a key that contains dots as a["b.c"].
""",
}
"""Text after the short help of a group."""
# Per command: the name of its function (a group has none), with its module if different, and its
# short help. If a word lacks its group, the last group here with that word is suggested.
SUBCOMMANDS = {
    "approvals": {
        "allowlist": ("", "Manage the programs that run on the host without asking."),
        "check": ("check", "Print whether a command would run, and where, without running it."),
        "get": ("get", "Show the approvals file and its revision."),
        "log": ("log", "Show the most recent decisions about commands, newest last."),
        "pending": ("pending", "List the requests that are waiting for an answer."),
        "resolve": ("resolve", "Answer a request with allow-once, allow-always or deny."),
        "set": ("set_", "Replace the approvals file with another JSON file."),
        "suggest": ("suggest", "Suggest entries that would have avoided approval requests."),
        "watch": ("watch", "Answer approval requests at this terminal."),
    },
    "allowlist": {
        "add": ("add", "Let a program run on the host without asking, confined."),
        "list": ("list_", "List the entries, and when each was last used."),
        "remove": ("remove", "Remove an entry by its id, a prefix of its id, or its pattern."),
    },
    "sessions": {
        "delete": ("delete", "Delete sessions permanently."),
        "export": ("export", "Print a whole session, or write it to a file."),
        "list": ("list_sessions", "List sessions, the most recently used first."),
        "path": ("path", "Print where sessions are stored."),
        "rename": ("rename", "Rename a session to NAME, a word without spaces."),
        "search": ("search", "Search the messages of sessions."),
        "send": ("send", "Leave a message for a session, even while it is in use."),
        "show": ("show", "Show the messages and tool calls of a session."),
        "tree": ("tree", "Show which session started which, as a tree."),
    },
    "agents": {
        "add": ("add", "Add an agent to the configuration."),
        "list": ("list_agents", "List agents, the default one first."),
        "remove": ("remove", "Remove an agent from the configuration."),
    },
    "models": {
        "list": ("list_models", "List the models you can use; with --all every known model."),
        "set": ("set_model", "Use MODEL: provider/model, a model id, or an alias."),
        "status": ("status", "Show the model in use, its fallbacks, and their credentials."),
        "write": ("write", "Write the configured providers into the agent's models.json."),
    },
    "sandbox": {
        "build": ("build", "Build the image for docker and podman."),
        "explain": ("explain", "Explain which sandbox is used, and why."),
        "list": ("list_sandboxes", "List the existing sandboxes."),
        "recreate": ("recreate", "Remove sandboxes; the next use creates new ones."),
        "run": ("run", "Run a command in the sandbox."),
    },
    "config": {
        "file": ("file_", "Print the path of the file in use."),
        "get": ("get", "Print a setting as it is in the file, or all of them."),
        "patch": ("patch", "Change many settings at once: all of them or none."),
        "schema": ("schema", "Print the JSON Schema of the configuration, for editors."),
        "set": ("set_", "Set a setting."),
        "unset": ("unset", "Remove a setting, so that its default applies again."),
        "validate": ("validate", "Check the configuration."),
    },
    "gateway": {
        "call": ("call", "Call a method and print its answer as JSON."),
        "health": ("health", "Check the health of the running gateway."),
        "install": (
            "clawkit.cli.gateway_service:install",
            "Install a service that starts the gateway when you log in.",
        ),
        "logs": ("clawkit.cli.gateway_logs:logs", "Show the log of the gateway."),
        "restart": (
            "clawkit.cli.gateway_service:restart",
            "Stop the gateway gracefully and start it again.",
        ),
        "run": ("run", "Run the gateway until Ctrl-C or SIGTERM."),
        "start": ("clawkit.cli.gateway_service:start", "Start the gateway in the background."),
        "status": ("status", "Show whether a gateway is running, and who is connected."),
        "stop": ("clawkit.cli.gateway_service:stop", "Stop the gateway of this home."),
        "token": ("token", "Print the token that clients log in with."),
        "uninstall": (
            "clawkit.cli.gateway_service:uninstall",
            "Stop the service and remove its file.",
        ),
        "url": ("url", "Print a one-time address that opens the control page."),
    },
    "cron": {
        "add": ("add", "Add a job, and print its schedule as understood."),
        "disable": ("disable", "Disable a job; a run in progress continues."),
        "edit": ("edit", "Change a job."),
        "enable": ("enable", "Enable a job, and reset its count of failures."),
        "import": ("import_", "Add the jobs of an OpenClaw file, cron/jobs.json."),
        "list": ("list_jobs", "List jobs, the next one first."),
        "next": ("next_", "Print the next times of a job, or of a schedule."),
        "remove": ("remove", "Remove jobs."),
        "run": ("run", "Run a job now, and wait for the outcome."),
        "runs": ("runs", "Show past runs: output, cost and errors."),
        "serve": ("serve", "Run the jobs of this home until Ctrl-C or SIGTERM."),
        "show": ("show", "Show a job, its next times and its last run."),
        "status": ("status", "Show whether jobs are run, and when the next one is due."),
    },
    "heartbeat": {
        "pause": ("pause", "Pause the heartbeats of all agents, until they are resumed."),
        "resume": ("resume", "Resume the heartbeats of all agents."),
        "run": ("run", "Run a heartbeat now, and print the outcome."),
        "status": ("status", "Show for every agent whether its heartbeat is on, and why."),
    },
    "mcp": {
        "accept": (
            "accept_tools",
            "Accept the new and changed tools of a server, after showing them.",
        ),
        "install": (
            "clawkit.cli.mcp:install",
            "Add clawkit to the configuration of an MCP client.",
        ),
        "list": ("list_servers", "List the configured servers and their state."),
        "login": ("login", "Log in to a server with a browser."),
        "logout": ("logout", "Delete the stored token of a server."),
        "prompts": ("prompts", "List the prompts of a server."),
        "refresh": ("refresh", "Connect to servers, and list their tools again."),
        "resources": ("resources", "List the resources of a server."),
        "serve": ("clawkit.cli.mcp:serve", "Serve the tools in force to an MCP client."),
        "show": ("show", "Show a server and its tools."),
        "tools": ("tools", "List the tools of all servers, by the names they are offered under."),
    },
    "plugins": {
        "disable": ("disable", "Disable a plugin."),
        "enable": ("enable", "Enable a plugin, after showing what it declares."),
        "info": ("info", "Show what a plugin declares, its location and its settings."),
        "list": ("list_plugins", "List plugins, and whether each is on or why not."),
    },
    "skills": {
        "check": ("check", "Check all skills, or the one at PATH: is it valid, and is it offered?"),
        "info": ("info", "Show everything about a skill."),
        "install": ("install", "Install a skill from a directory or an archive."),
        "list": ("list_skills", "List skills, and how many tokens each costs in the prompt."),
    },
    "memory": {
        "forget": ("forget", "Remove a note, or some lines of it."),
        "index": ("index", "Update the index, including embeddings."),
        "prune": ("prune", "Remove the indexes of workspaces that no longer exist."),
        "search": ("search", "Search notes, as the agent does."),
        "show": ("show", "Show part of a note."),
        "status": ("status", "Show the state of the index, and problems."),
    },
    "tools": {
        "call": ("call", "Call a tool and print its result as JSON."),
        "explain": ("explain", "Explain why a tool is in force or not."),
        "list": ("list_tools", "List the tools in force, and the tokens each costs per request."),
        "run": ("run", "Make the tool calls in a JSONL file, one after another."),
        "schema": ("schema", "Print the declarations of the tools in force as JSON."),
    },
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


_LOCAL = click.Option(
    ["--local"],
    is_flag=True,
    expose_value=False,
    help="Work in the home of this machine, even if gateway.mode is remote.",
)
"""An option of all `HOME_COMMANDS`; handled before the command line is parsed."""


class LazyGroup(click.Group):
    """A group that knows its commands from a table like `COMMANDS`, and imports one to run it."""

    def __init__(
        self,
        *args: Any,
        table: Mapping[str, tuple[str, str]],
        is_of_home: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._table, self._is_of_home = table, is_of_home

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return None if ctx.resilient_parsing else self._find_plugin(cmd_name)
        path, about = self._table[cmd_name]
        is_main = self._table is COMMANDS
        is_of_home = self._is_of_home or (is_main and cmd_name in HOME_COMMANDS)
        module, _, function = path.partition(":")
        if not function:
            below = {
                name: (function if ":" in function else f"{module}:{function}", text)
                for name, (function, text) in SUBCOMMANDS[cmd_name].items()
            }
            help_ = f"{about}\n{_HELP.get(cmd_name, '')}"
            return LazyGroup(cmd_name, table=below, help=help_, is_of_home=is_of_home)
        import_msgspec()
        command: click.Command = getattr(importlib.import_module(module), function)
        if is_of_home and _LOCAL not in command.params:
            command.params.append(_LOCAL)
        for each in command.params:
            if each.metavar in ("FILE", "DIR") and each.type is click.STRING:
                each.type = click.Path(readable=False)  # lets shells complete paths
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # During shell completion the word is still being typed.
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            import shlex

            from clawkit.text import nearest, one_line

            known = self._known_words(ctx.command_path)
            close = nearest(args[0], known, 1)
            hint = f" Did you mean '{known[close[0]]}'?" if close else ""
            said = shlex.quote(one_line(" ".join(args), 60))
            if ctx.parent is None:
                hint = hint or f" To send it as a message: clawkit chat {said}"
            hint = hint or f" Use one of {', '.join(self._table)}."
            ctx.fail(f"Unknown command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def _find_plugin(self, name: str) -> click.Command | None:
        """The command of a plugin; only searched if clawkit has no command of this name."""
        if self._table is not COMMANDS or name.startswith("-"):
            return None
        import_msgspec()
        from clawkit.cli.plugins import find_command

        return find_command(name)

    def _known_words(self, path: str) -> dict[str, str]:
        """Words to suggest, each with its command line."""
        # The name of the group may be missing: `clawkit search` for `clawkit sessions search`.
        groups = {name: words for name, words in SUBCOMMANDS.items() if name in self._table}
        below = {word: f"{path} {name} {word}" for name, words in groups.items() for word in words}
        options = {"help": f"{path} --help"}
        if " " not in path:
            options["version"] = f"{path} --version"
        return options | below | {name: f"{path} {name}" for name in self._table}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._table.items()])
        if more := self._plugin_commands():
            with formatter.section("Commands of plugins"):
                formatter.write_dl([*more.items()])

    def _plugin_commands(self) -> dict[str, str]:
        """The commands of plugins with their short help. Imports no plugin, and nothing at all if
        none is enabled."""
        from clawkit.config.paths import PLUGIN_RECORDS, home

        if self._table is not COMMANDS or not os.path.exists(
            os.path.join(home(os.environ), PLUGIN_RECORDS)
        ):
            return {}
        import_msgspec()
        from clawkit.cli.plugins import list_commands

        return {name: text for name, text in list_commands() if name not in COMMANDS}

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        from click.shell_completion import CompletionItem

        texts = {name: text for name, (_, text) in self._table.items()} | self._plugin_commands()
        names = [name for name in texts if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=texts[name]) for name in names), *options]


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
    by a person, 130 interrupted, 141 broken pipe, such as by `| head`.
    """
    if context.invoked_subcommand is not None:
        return None
    if all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout)):
        from clawkit.cli.agent import chat

        return context.invoke(chat)
    click.echo(context.get_help(), err=True)
    return 2


def run(argv: list[str] | None = None) -> None:
    """Run the command line and exit. Errors have no traceback unless `--debug` is given."""
    args = list(sys.argv[1:] if argv is None else argv)
    first_word = next((i for i, arg in enumerate(args) if not arg.startswith("-")), len(args))
    finish(lambda: _run(args, first_word), debug="--debug" in args[:first_word])


def _run(args: list[str], first_word: int) -> object:
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown")
    color = False if is_plain else None
    try:
        code = _run_remotely(args, first_word)
        if code is not None:
            return code
        return main.main(args, prog_name="clawkit", standalone_mode=False, color=color)
    except click.ClickException as error:
        if isinstance(error, click.NoSuchOption):
            from clawkit.text import nearest

            said = error.message + _advise(error.option_name, error.ctx)
            # click's suggestions can be far off, such as --help for --level.
            letters = len(error.option_name.lstrip("-"))
            close = nearest(
                error.option_name, error.possibilities or (), limit=max(1, letters // 3)
            )
            error = click.NoSuchOption(error.option_name, said, close, error.ctx)
        # It may quote arguments, such as names of files.
        vars(error)["message"] = printable(error.message)
        error.show()
        return error.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None
    except SystemExit:
        if has_reader_left():  # click signals only this
            raise BrokenPipeError from None
        raise


def _run_remotely(args: list[str], at: int) -> int | None:
    """Run a command in the home of the remote gateway, if one is configured; `--local` prevents
    that."""
    if at == len(args) or args[at] not in HOME_COMMANDS or {"-h", "--help"} & set(args):
        return None
    if "--local" in args[: args.index("--") if "--" in args else None]:
        return None
    words = SUBCOMMANDS.get(args[at])
    if words is not None and not set(args[at + 1 : at + 2]) & set(words):
        return None  # the error suggests a correction
    from clawkit.cli.gateway_commands import run_remotely

    return run_remotely(args[at:])


def _advise(option: str, context: click.Context | None) -> str:
    """What to type instead of an option that the command does not have."""
    if option[1:].isdecimal():
        return f" Before a negative number, type --, as in: -- {option}"
    if context is None or context.parent is not None:
        return ""
    from clawkit.cli.agent import chat

    is_known = any(option in each.opts for each in chat.params)
    return f" It is an option of the chat: clawkit chat {option}" if is_known else ""
