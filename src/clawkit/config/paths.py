"""The locations of clawkit's files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

SkillSource = Literal["workspace", "personal", "managed", "extra"]
CONFIG_NAME = "clawkit.json5"
OWN_SECRETS = ("gateway", "mcp", "agents", "exec-approvals.json")
"""What contains keys, tokens and credentials, in the state directory."""


def expand(path: str, env: Mapping[str, str]) -> str:
    """The absolute path; a leading `~` is `HOME` from `env`."""
    if path == "~" or path.startswith("~/"):
        path = (env.get("HOME") or os.path.expanduser("~")) + path[1:]
    return os.path.abspath(path)


def resolve(given: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
    """The absolute paths of a setting, with links resolved."""
    return tuple(os.path.realpath(expand(each, env)) for each in given)


def abbreviate_home(path: str) -> str:
    """The path with `~` for the user's home directory, for display."""
    own = os.path.expanduser("~")
    return f"~{path[len(own) :]}" if path == own or path.startswith(f"{own}/") else path


def home(env: Mapping[str, str]) -> str:
    """The state directory: `CLAWKIT_HOME`, or `~/.clawkit`."""
    return expand(env.get("CLAWKIT_HOME") or "~/.clawkit", env)


PLUGIN_RECORDS = "plugins-enabled.json"
"""In the state directory: the plugins that the owner enabled."""


def config_file(env: Mapping[str, str], given: str | None = None) -> str:
    """The configuration file: the one that was given, else `CLAWKIT_CONFIG`, else `clawkit.json5`
    in the state directory."""
    named = env.get("CLAWKIT_CONFIG") if given is None else given
    return expand(named, env) if named else os.path.join(home(env), CONFIG_NAME)


def _in_home(*names: str) -> Callable[[Mapping[str, str]], str]:
    return lambda env: os.path.join(home(env), *names)


commands_dir = _in_home("commands")
"""Records of running commands, and their output if it is long."""
gateway_dir = _in_home("gateway")
"""Keys and tokens of the gateway."""
mcp_dir = _in_home("mcp")
"""Listings of MCP servers, and tokens for them."""
approvals_file = _in_home("exec-approvals.json")
"""The approvals file, which people may edit; it has the token of the approval socket."""
waiting_file = _in_home("approvals.sqlite")
"""The database of pending approval requests."""
cron_file = _in_home("cron.sqlite")
"""The database of scheduled jobs."""
sessions_file = _in_home("sessions.sqlite")
"""The database of sessions, unless `session.store` names another."""
search_cache_file = _in_home("cache", "web-search.sqlite")
"""Cached answers of search services."""
audit_file = _in_home("logs", "exec-approvals.jsonl")
"""The log of every decision about a command."""
web_cache_file = _in_home("cache", "web.sqlite")
"""Cached pages."""
memory_dir = _in_home("memory")
"""The indexes of memory, one for each agent and workspace."""
skills_dir = _in_home("skills")
"""Skills that `clawkit skills install` has installed."""


def own_secrets(env: Mapping[str, str]) -> tuple[str, ...]:
    """What no tool and no command may open."""
    return tuple(os.path.join(home(env), name) for name in OWN_SECRETS)


def skill_dirs(
    env: Mapping[str, str], workspace: str, extra: Sequence[str] = ()
) -> list[tuple[str, SkillSource]]:
    """The existing directories with skills and their kinds, in order of precedence."""
    places: list[tuple[str, SkillSource]] = [
        (os.path.join(workspace, "skills"), "workspace"),
        (os.path.join(workspace, ".agents/skills"), "workspace"),
        (expand("~/.agents/skills", env), "personal"),
        (skills_dir(env), "managed"),
        *((expand(each, env), "extra") for each in extra),
    ]
    return [(path, kind) for path, kind in places if os.path.isdir(path)]


def include_roots(env: Mapping[str, str]) -> tuple[str, ...]:
    """Further directories that configuration files may be included from."""
    given = env.get("CLAWKIT_INCLUDE_ROOTS", "").split(os.pathsep)
    return tuple(expand(root, env) for root in given if root)


def attachments_dir(env: Mapping[str, str], session: str) -> str:
    """Attachments of a sub-agent's task, by the key of its session."""
    return os.path.join(home(env), "attachments", _digest(session))


def worktrees_dir(env: Mapping[str, str], session: str) -> str:
    """Worktrees of the sub-agents of a session, by its key."""
    return os.path.join(home(env), "worktrees", _digest(session))


def pages_dir(env: Mapping[str, str], session: str = "") -> str:
    """Pages that were too long for a result, by session key; without one, of all sessions."""
    folder = os.path.join(home(env), "pages")
    return os.path.join(folder, _digest(session)) if session else folder


def _digest(key: str) -> str:
    """A fixed-length name for a session key."""
    import hashlib  # few runs need it

    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def login_home() -> str:
    """The user's home directory from the password database, regardless of HOME."""
    import pwd  # few need it

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return os.path.expanduser("~")
