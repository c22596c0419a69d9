"""The help texts of command groups; the commands themselves are imported on use."""

from __future__ import annotations

from collections.abc import Iterable

import click

from clawkit.cli.main import LazyGroup
from clawkit.text import nearest

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
clawkit models status --probe                 does it answer?
""",
    "approvals": """
An allowlisted command needs no approval.

\b
clawkit approvals check 'git status | head'      would it run, and why
clawkit approvals allowlist add git --args git   allow everyday git commands
clawkit approvals pending                        requests waiting for an answer
clawkit approvals resolve 3f2a allow-once        answer one
clawkit approvals watch                          answer requests at this terminal
""",
    "sandbox": """
\b
clawkit sandbox explain                        which sandbox, why, and what it allows
clawkit sandbox explain -- git push            where a command would run
clawkit sandbox run -- python3 -m pytest       run something in it
clawkit sandbox list                           what exists on this machine
clawkit sandbox recreate --all                 remove them; the next use creates new ones
""",
    "config": """
A PATH is written as a.b.c, a list entry as a.b[0], and a key that contains dots as a["b.c"].
""",
}
"""What follows the short help of a group."""
# Per command: the name of its function (a group has none) and its short help. When a word is
# missing its group, the last group here that has it is suggested.
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
        "explain": ("explain", "Explain which sandbox commands run in, and why."),
        "list": ("list_sandboxes", "List the sandboxes that exist."),
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
    "tools": {
        "call": ("call", "Call a tool and print its result as JSON."),
        "explain": ("explain", "Explain why a tool is in force or not."),
        "list": ("list_tools", "List the tools in force, and the tokens each costs per request."),
        "run": ("run", "Make the tool calls in a JSONL file, one after another."),
        "schema": ("schema", "Print the declarations of the tools in force as JSON."),
    },
}


def make_group(name: str, module: str, about: str) -> LazyGroup:
    """The group whose commands are functions of a module; `about` is its short help."""
    table = {
        command: (f"{module}:{function}", text)
        for command, (function, text) in SUBCOMMANDS[name].items()
    }
    return LazyGroup(name, table=table, help=f"{about}\n{_HELP.get(name, '')}")


def suggest_command(ctx: click.Context, word: str, names: Iterable[str]) -> str:
    """` Did you mean …?` with the closest command of a group, or of the groups below it."""
    path = ctx.command_path
    # The name of the group may be missing: `clawkit search` for `clawkit sessions search`.
    below = {
        each: f"{path} {group} {each}"
        for group, words in SUBCOMMANDS.items()
        if group in names
        for each in words
    }
    known = below | {name: f"{path} {name}" for name in names}
    close = nearest(word, known, 1)
    return f" Did you mean '{known[close[0]]}'?" if close else ""
