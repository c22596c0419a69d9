"""The help texts of command groups; the commands themselves are imported on use."""

from __future__ import annotations

from clawkit.cli.main import LazyGroup

_SESSIONS = """List, show, search, rename, delete and export sessions.

ID is the id of a session, a prefix of it, its name, its label or its key.

\b
clawkit sessions list --here              sessions of this directory
clawkit sessions show k3mq                its messages
clawkit sessions search login page        messages with these words
clawkit sessions tree                     which session started which
clawkit agent --session k3mq -m "Go on"   resume it
"""
_AGENTS = """List, add and remove agents.

An agent has its own sessions, and may have its own workspace, model and tools.

\b
clawkit agents list                                      agents and their models
clawkit agents add research --workspace ~/research       add one with its own directory
clawkit agent --agent research -m "What is new?"         talk to it
clawkit agents remove research                           its sessions are kept
"""
_MODELS = """List models, choose one, and check that it answers.

\b
clawkit models list                           models you can use
clawkit models set anthropic/claude-opus-5    use this one
clawkit models status --probe                 does it answer?
"""
_SANDBOX = """Explain, list and recreate sandboxes, and run a command in one.

\b
clawkit sandbox explain                        which sandbox, why, and what it allows
clawkit sandbox explain -- git push            where a command would run
clawkit sandbox run -- python3 -m pytest       run something in it
clawkit sandbox list                           what exists on this machine
clawkit sandbox recreate --all                 remove them; the next use creates new ones
"""
_GATEWAY = """Share agents, sessions and approvals with other programs and devices.

\b
clawkit gateway run                      serve until Ctrl-C
clawkit gateway start                    serve in the background
clawkit gateway install                  start it at every login
clawkit gateway status                   is one running, and for whom?
clawkit gateway call sessions.list       call any method
clawkit gateway token                    what other programs log in with
"""
_CONFIG = """Read, change and check the configuration.

A PATH is written as a.b.c, a list entry as a.b[0], and a key that contains dots as a["b.c"].
"""
# Per command: the name of its function, with its module if that is another, and its short help.
# When a word is missing its group, `_Main.known_words` suggests the last group here that has it.
SUBCOMMANDS = {
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
    "gateway": {
        "call": ("call", "Call a method and print its answer as JSON."),
        "health": ("health", "Ask the running gateway for its health."),
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
    },
    "tools": {
        "call": ("call", "Call a tool and print its result as JSON."),
        "explain": ("explain", "Explain why a tool is in force or not."),
        "list": ("list_tools", "List the tools in force, and the tokens each costs per request."),
        "run": ("run", "Make the tool calls in a JSONL file, one after another."),
        "schema": ("schema", "Print the declarations of the tools in force as JSON."),
    },
}
_HELP = {
    "sessions": _SESSIONS,
    "agents": _AGENTS,
    "models": _MODELS,
    "tools": "List, explain, describe and call tools.",
    "sandbox": _SANDBOX,
    "config": _CONFIG,
    "gateway": _GATEWAY,
}


def make_group(name: str, module: str) -> LazyGroup:
    """The group whose commands are functions of a module."""
    table = {
        command: (function if ":" in function else f"{module}:{function}", about)
        for command, (function, about) in SUBCOMMANDS[name].items()
    }
    return LazyGroup(name, table=table, help=_HELP[name])
