"""`clawkit agents`: the agents in the configuration."""

from __future__ import annotations

import os
import re
from typing import Any

import click

from clawkit.bundled import select_models
from clawkit.cli import shared_options as cli
from clawkit.cli.config import make_change
from clawkit.cli.onboarding.write import agent_path
from clawkit.config.file_edit import content, set_setting, unset_setting
from clawkit.config.load import load
from clawkit.config.lookup import Path, spelled, value_at
from clawkit.config.paths import abbreviate_home
from clawkit.config.sections.agents import MAIN, Agents
from clawkit.config.sections.shared import ModelChoice
from clawkit.errors import ClawkitError, ConflictError, EditError
from clawkit.text import one_line, printable

_ID = click.argument("agent_id", metavar="ID")
_VALID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@click.command("list")
@cli.json_option
@cli.config_option
def list_agents(as_json: bool, config_file: str | None) -> None:
    """List agents, the default one first.

    If the configuration has none, there is one agent, `main`.
    """
    loaded = load(config_file)
    agents = loaded.config.agents
    default, rows = agents.default_id(), [_to_json(agents, id_) for id_ in agents.ids()]
    if as_json:
        cli.print_json({"default": default, "agents": rows})
    else:
        cells = [
            (
                row["id"],
                "default" if row["default"] else "",
                row["name"] or "",
                row["model"] or "",
                abbreviate_home(row["workspace"] or ""),
                row["setting"] or "not in the configuration",
            )
            for row in rows
        ]
        head = ("ID", "", "NAME", "MODEL", "WORKSPACE", "SETTING")
        table = [[printable(one_line(cell, 80), "") for cell in row] for row in cells]
        cli.print_table(head, table)
    cli.warn(map(str, loaded.warnings))


def _to_json(agents: Agents, id_: str) -> dict[str, Any]:
    agent = agents.get(id_)
    choice = agent.model or agents.defaults.model
    return {
        "id": id_,
        "default": id_ == agents.default_id(),
        "name": agent.name,
        "model": choice.primary if isinstance(choice, ModelChoice) else choice,
        "workspace": agent.workspace or agents.defaults.workspace,
        "setting": agents.key_of(id_) or None,
    }


@click.command()
@_ID
@click.option("--name", help="Display name.")
@click.option("--workspace", metavar="DIR", help="Directory it works in.")
@click.option("--model", help="Model to use: provider/model, a model id or an alias.")
@cli.change_options
def add(
    agent_id: str, name: str | None, workspace: str | None, model: str | None, **how: Any
) -> None:
    """Add the agent ID to the configuration.

    ID consists of lower-case letters, digits, `-` and `_`. What you do not give is taken from
    agents.defaults. Comments in the file are kept, and the previous file is saved as a backup.

    \b
    clawkit agents add research --workspace ~/research --model claude-opus-5
    clawkit agents add support --name "Support desk"
    """
    if not _VALID.fullmatch(agent_id):
        raise click.UsageError(
            f"invalid agent id {one_line(agent_id, 60)!r}: use up to 64 lower-case letters, "
            "digits, - and _, starting with a letter or digit"
        )
    loaded = load(how["config_file"])
    if taken := loaded.config.agents.key_of(agent_id):
        raise ConflictError(f"the agent {agent_id!r} already exists, at {taken}")
    if workspace and not os.path.isdir(os.path.expanduser(workspace)):
        raise click.UsageError(f"{workspace!r} is not a directory; create it first")
    if workspace and not workspace.startswith("~"):
        workspace = os.path.abspath(workspace)
    if model:
        model = str(select_models(loaded, loaded.config.agents.default_id()).find(model))
    given = {"name": name, "workspace": workspace, "model": model}
    agent = {key: value for key, value in given.items() if value}
    path: Path = ("agents", "entries", agent_id)
    if loaded.config.agents.listed:
        # The file uses the list; there, the id is part of the entry.
        path, agent = ("agents", "list"), {"id": agent_id, **agent}

    def edit(text: str) -> str:
        is_list = path[-1] == "list"
        return set_setting(text, path, [agent] if is_list else agent, merge=is_list)

    make_change(edit, [path], **how)


@click.command()
@_ID
@click.option("--force", is_flag=True, help="Remove it even if it is the default or only agent.")
@cli.change_options
def remove(agent_id: str, force: bool, **how: Any) -> None:
    """Remove the agent ID from the configuration. Its sessions and files are kept."""
    agents = load(how["config_file"]).config.agents
    known = agents.by_id()
    path = agent_path(agents, agent_id)
    if path is None:
        listed = f"; it has {', '.join(known)}" if known else "; it has none"
        hint = cli.suggest(agent_id, known) or listed
        raise ClawkitError(f"the configuration has no agent {one_line(agent_id, 60)!r}{hint}")
    id_ = agent_id.strip().lower()
    if not force and (id_ == agents.default_id() or len(known) == 1):
        is_default = id_ == agents.default_id()
        role, then = ("default", "is used") if is_default else ("only", "is the only one")
        instead = f"; then {MAIN!r} {then}" if id_ != MAIN else ""
        raise EditError(f"{id_!r} is the {role} agent; add --force to remove it{instead}")

    def edit(text: str) -> str:
        root = content(text)
        entry = value_at(root, spelled(path, root))
        same = path[1] == "entries" or (
            isinstance(entry, dict) and str(entry.get("id", "")).strip().lower() == id_
        )
        if entry is None or not same:
            raise EditError(f"the agent {id_!r} is no longer in this file; try again")
        return unset_setting(text, path)

    make_change(edit, [path], allow_shrink=True, **how)
