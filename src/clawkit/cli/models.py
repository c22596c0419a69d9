"""`clawkit models`: which there are, which one is used, and whether it answers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import click

from clawkit.cli.columns import columns
from clawkit.cli.config import make_change
from clawkit.cli.model_choice import Choice, access, in_force, listening
from clawkit.cli.model_rows import make_rows, print_rows
from clawkit.cli.model_status import look, print_status
from clawkit.cli.options import config_option, json_option, print_json, refuse_commands, warn
from clawkit.config.alter import content, set_setting
from clawkit.config.json5 import parse_path
from clawkit.config.known import Path, spelled, value_at
from clawkit.config.load import Loaded, load
from clawkit.config.modelref import ModelRef, normalize_provider
from clawkit.errors import ToolInputError
from clawkit.models.known import known_model
from clawkit.models.operator import REF as OPERATOR
from clawkit.models.resolve import Catalog
from clawkit.selection import Selection
from clawkit.text import nearest, one_line, printable

_AGENT = click.option("--agent", help="Agent whose models are meant. Default: the default one.")


@click.group()
def models() -> None:
    """Choose a model, see which there are and whether they answer.

    \b
    clawkit models list                           those that you can use
    clawkit models set anthropic/claude-opus-5    use this one
    clawkit models status --probe                 does it answer?
    """


@models.command("list")
@click.option("--all", "everything", is_flag=True, help="Also those that lack a key.")
@click.option("--provider", metavar="NAME", help="Only those of one provider.")
@json_option
@_AGENT
@config_option
def list_models(
    everything: bool,
    provider: str | None,
    as_json: bool,
    agent: str | None,
    config_file: str | None,
) -> None:
    """List the models that can be used, with --all every one that is known.

    PRICE is dollars for a million tokens, read and written. KEY says where the credential is from,
    or what is missing.
    """
    loaded = load(config_file)
    with listening() as remarks:
        catalog = Catalog.of(loaded, agent)
        wanted = _known_provider(provider, catalog) if provider else ""
        choices = _used(catalog)
        rows = make_rows(catalog, choices)
    rows = [row for row in rows if not wanted or row["provider"] == wanted]
    shown = sorted(
        (row for row in rows if everything or row["usable"] or row["role"]),
        key=lambda row: not (row["usable"] or row["role"]),
    )
    said = [*map(str, loaded.warnings), *remarks.heard]
    said += [f"{each.setting}: {each.problem}" for each in choices if each.problem]
    if as_json:
        print_json({"agent": catalog.agent, "models": shown, "warnings": said})
        return
    if shown:
        print_rows(shown, columns())
    click.echo(_summary(rows, shown, wanted, catalog))
    warn(said)


def _used(catalog: Catalog) -> list[Choice]:
    """What is in force, as a turn would find it."""
    source, choices = in_force(catalog)
    if source != "built-in":
        return choices
    from clawkit.cli.model_local import find_local

    local = find_local(catalog)
    return [Choice(str(local), "", local)] if local else choices


def _known_provider(name: str, catalog: Catalog) -> str:
    wanted = normalize_provider(name)
    known = [*catalog.services, OPERATOR.provider]
    if wanted in known:
        return wanted
    close = nearest(wanted, known)
    hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
    raise ToolInputError(f"there is no provider {one_line(name, 60)!r}{hint}")


def _summary(
    rows: Sequence[dict[str, Any]],
    shown: Sequence[dict[str, Any]],
    provider: str,
    catalog: Catalog,
) -> str:
    usable = sum(row["usable"] for row in rows)
    text = f"{usable} of {len(rows)} can be used."
    if provider and not rows:
        text = f"clawkit knows no model of {provider} by name."
        keys = access(catalog, provider)
        text += f" To use it: {keys.missing}." if keys.missing else ""
        return f"{text} Any that it has can be used: {provider}/NAME."
    if provider and not usable:
        keys = access(catalog, provider)
        them = "it" if len(rows) == 1 else "them"
        text += f" To use {them}: {keys.missing or keys.problem}."
    hidden = len(rows) - len(shown)
    return f"{text} {hidden} more with --all." if hidden else text


@models.command()
@click.option("--probe", is_flag=True, help="Ask each of them for a word; that costs a little.")
@json_option
@_AGENT
@config_option
def status(probe: bool, as_json: bool, agent: str | None, config_file: str | None) -> None:
    """Say which model is used, which ones in its place, and with what credentials.

    The exit code is 1 when the first of them cannot be used, or with --probe does not answer.
    """
    loaded = load(config_file)
    with listening() as remarks:
        report = asyncio.run(look(loaded, agent, probe=probe))
    said = [*map(str, loaded.warnings), *remarks.heard]
    if as_json:
        print_json(report | {"warnings": said})
    else:
        print_status(report)
        warn(said)
    first = report["models"][0]
    sys.exit(1 if first["problem"] or (first["probe"] and not first["probe"]["ok"]) else 0)


@models.command("set")
@click.argument("name", metavar="MODEL")
@click.option(
    "--fallback",
    "fallbacks",
    multiple=True,
    metavar="MODEL",
    help="What to use when it fails; several are used in this order.",
)
@click.option("--no-fallback", is_flag=True, help="Use nothing else when it fails.")
@click.option("--agent", help="Only for this agent. Default: for all without their own.")
@click.option("--dry-run", is_flag=True, help="Show and check the change, write nothing.")
@json_option
@config_option
def set_model(
    name: str,
    fallbacks: tuple[str, ...],
    no_fallback: bool,
    agent: str | None,
    dry_run: bool,
    as_json: bool,
    config_file: str | None,
) -> None:
    """Use MODEL: provider/model, a model id, or an alias.

    It is written into the configuration. Comments in the file stay, and the file before is kept as
    a backup. Without --fallback the fallbacks stay as they are.

    \b
    clawkit models set claude-opus-5
    clawkit models set openai/gpt-5.4 --fallback anthropic/claude-sonnet-5
    """
    if fallbacks and no_fallback:
        raise click.UsageError("--fallback and --no-fallback exclude each other")
    loaded = load(config_file)
    path = _model_setting(loaded, agent)
    with listening():
        selection = Selection(loaded, agent or loaded.config.agents.default_id())
        refs = [selection.find(each) for each in (name, *fallbacks)]
        remarks = [*_doubts(selection.catalog, refs), *_overruled(loaded, agent)]
    primary, *rest = map(str, refs)
    others = rest if fallbacks or no_fallback else None

    def edit(text: str) -> str:
        return _with_model(text, path, primary, others)

    make_change(config_file, edit, [path], False, dry_run, as_json)
    warn(remarks)


@models.command()
@click.option("--agent", help="Whose file. Default: that of the default agent.")
@config_option
def write(agent: str | None, config_file: str | None) -> None:
    """Write the configured services into the agent's models.json.

    For other programs that read this file. Secrets are not written: where one belongs, the file
    says where the configuration has it from. With models.mode "replace" the file holds nothing else
    afterwards; otherwise what is in it stays. An address in the file goes before that in the
    configuration from then on.
    """
    refuse_commands()
    catalog = Catalog.of(load(config_file), agent)
    click.echo(f"Wrote {printable(catalog.write_models_json())}")


def _model_setting(loaded: Loaded, agent: str | None) -> Path:
    """Where the model of an agent is written, or that of all."""
    if agent is None:
        return ("agents", "defaults", "model")
    agents = loaded.config.agents
    key = agents.key_of(agent)
    if not key:
        close = nearest(agent, agents.by_id())
        hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise ToolInputError(
            f"the configuration has no agent {one_line(agent, 60)!r}{hint}. Leave --agent out to "
            "set the model of all agents"
        )
    if key.startswith("agents.entries."):
        return ("agents", "entries", key.removeprefix("agents.entries."), "model")
    return (*parse_path(key), "model")


def _with_model(text: str, path: Path, primary: str, fallbacks: list[str] | None) -> str:
    root = content(text)
    before = value_at(root, spelled(path, root))
    if isinstance(before, dict):
        text = set_setting(text, (*path, "primary"), primary)
        if fallbacks is None:
            return text
        return set_setting(text, (*path, "fallbacks"), fallbacks)
    if fallbacks is None:
        return set_setting(text, path, primary)
    return set_setting(text, path, {"primary": primary, "fallbacks": fallbacks})


def _doubts(catalog: Catalog, refs: Sequence[ModelRef]) -> list[str]:
    """Why a model that is set may not answer."""
    said: dict[str, None] = {}
    for ref in refs:
        service = catalog.services.get(ref.provider)
        if service is None:
            continue
        known = [row.id for row in service.known.models] if service.known else []
        if known and ref.id not in service.models and known_model(ref.provider, ref.id) is None:
            close = nearest(ref.id, known)
            hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
            said[
                f"clawkit does not know {ref}; whether there is one, the provider decides{hint}"
            ] = None
        keys = access(catalog, ref.provider)
        if not keys.credentials:
            said[keys.problem or f"{ref.provider} needs a credential: {keys.missing}"] = None
    return list(said)


def _overruled(loaded: Loaded, agent: str | None) -> list[str]:
    """What keeps a general model from being used."""
    agents = loaded.config.agents
    name = agents.default_id()
    if agent is None and agents.get(name).model is not None:
        where = f"{agents.key_of(name)}.model"
        return [f"the agent {name!r} keeps its own model ({where}); add --agent to change that"]
    return []
