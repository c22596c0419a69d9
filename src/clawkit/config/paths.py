"""The locations of clawkit's files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal

SkillSource = Literal["workspace", "personal", "managed", "extra"]
CONFIG_NAME = "clawkit.json5"


def expand(path: str, env: Mapping[str, str]) -> str:
    """The absolute path; a leading `~` is `HOME` from `env`."""
    if path == "~" or path.startswith("~/"):
        path = (env.get("HOME") or os.path.expanduser("~")) + path[1:]
    return os.path.abspath(path)


def abbreviate_home(path: str) -> str:
    """The path with `~` for the user's home directory, for display."""
    own = os.path.expanduser("~")
    return f"~{path[len(own) :]}" if path == own or path.startswith(f"{own}/") else path


def home(env: Mapping[str, str]) -> str:
    """The state directory: `CLAWKIT_HOME`, or `~/.clawkit`."""
    return expand(env.get("CLAWKIT_HOME") or "~/.clawkit", env)


def config_file(env: Mapping[str, str], given: str | None = None) -> str:
    """The configuration file: the one that was given, else `CLAWKIT_CONFIG`, else `clawkit.json5`
    in the state directory."""
    named = env.get("CLAWKIT_CONFIG") if given is None else given
    return expand(named, env) if named else os.path.join(home(env), CONFIG_NAME)


def commands_dir(env: Mapping[str, str]) -> str:
    """Records of running commands, and their output if it is long."""
    return os.path.join(home(env), "commands")


def gateway_dir(env: Mapping[str, str]) -> str:
    """Keys and tokens of the gateway, which no tool may read."""
    return os.path.join(home(env), "gateway")


def mcp_dir(env: Mapping[str, str]) -> str:
    """What MCP servers listed, and the tokens for them."""
    return os.path.join(home(env), "mcp")


def approvals_file(env: Mapping[str, str]) -> str:
    """The approvals file, which people may edit."""
    return os.path.join(home(env), "exec-approvals.json")


def waiting_file(env: Mapping[str, str]) -> str:
    """The database of pending approval requests."""
    return os.path.join(home(env), "approvals.sqlite")


def cron_file(env: Mapping[str, str]) -> str:
    """The database of scheduled jobs."""
    return os.path.join(home(env), "cron.sqlite")


def sessions_file(env: Mapping[str, str]) -> str:
    """The database of sessions, unless `session.store` names another."""
    return os.path.join(home(env), "sessions.sqlite")


def audit_file(env: Mapping[str, str]) -> str:
    """The log of every decision about a command."""
    return os.path.join(home(env), "logs", "exec-approvals.jsonl")


def skills_dir(env: Mapping[str, str]) -> str:
    """Skills that `clawkit skills install` has installed."""
    return os.path.join(home(env), "skills")


def skill_dirs(
    env: Mapping[str, str], workspace: str, extra: Sequence[str] = ()
) -> list[tuple[str, SkillSource]]:
    """The existing directories with skills, the one that wins first, each with its kind."""
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
    """Files that came with the task of a sub-agent, by the key of its session."""
    return os.path.join(home(env), "attachments", _digest(session))


def worktrees_dir(env: Mapping[str, str], session: str) -> str:
    """Worktrees of the sub-agents that a session started, by its key."""
    return os.path.join(home(env), "worktrees", _digest(session))


def _digest(key: str) -> str:
    """A name of one length for whatever a session is called."""
    import hashlib  # few runs need it

    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:32]
