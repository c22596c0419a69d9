"""`clawkit models`: which there are, which one is used, and whether it answers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import click
import msgspec

from clawkit.agent.model_selection import Selection
from clawkit.cli.config import make_change
from clawkit.cli.models_status import (
    Access,
    ChosenModel,
    access,
    in_force,
    listening,
    look,
    print_status,
)
from clawkit.cli.onboarding.write import agent_path
from clawkit.cli.options import (
    columns,
    config_option,
    count_tokens,
    json_option,
    print_json,
    print_table,
    refuse_commands,
    warn,
    widths_of,
)
from clawkit.config.file_edit import content, set_setting
from clawkit.config.load import Loaded, load
from clawkit.config.modelref import ModelRef, normalize_provider
from clawkit.config.schema import Path, spelled, value_at
from clawkit.config.sections.models import Cost
from clawkit.errors import ToolInputError
from clawkit.models.catalog import Catalog, Entry
from clawkit.models.discover import find_local
from clawkit.models.known import known_model
from clawkit.models.operator import REF as OPERATOR
from clawkit.models.operator import Operator
from clawkit.models.protocols import Facts
from clawkit.terminal_text import text_width
from clawkit.text import nearest, one_line, printable

_AGENT = click.option("--agent", help="Agent whose models to show. Default: the default agent.")


@click.command("list")
@click.option("--all", "everything", is_flag=True, help="Include models without a key.")
@click.option("--provider", metavar="NAME", help="Only models of this provider.")
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
    """List the models you can use; with --all every known model.

    PRICE is in dollars per million tokens, input and output. KEY is where the credential comes
    from, or what is missing.
    """
    loaded = load(config_file)
    with listening() as remarks:
        catalog = Catalog.of(loaded, agent)
        wanted = normalize_provider(provider) if provider else ""
        known = [*catalog.services, OPERATOR.provider]
        if wanted and wanted not in known:
            raise ToolInputError(f"unknown provider {one_line(wanted, 60)!r}{_hint(wanted, known)}")
        source, choices = in_force(catalog)
        # As a turn would find it.
        if source == "built-in" and (local := find_local(catalog)):
            choices = [ChosenModel(str(local), "", local)]
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


def _hint(name: str, known: Iterable[str]) -> str:
    close = nearest(name, known)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def _summary(
    rows: Sequence[dict[str, Any]],
    shown: Sequence[dict[str, Any]],
    provider: str,
    catalog: Catalog,
) -> str:
    usable = sum(row["usable"] for row in rows)
    text = f"{usable} of {len(rows)} models can be used."
    if provider and not usable:
        keys = access(catalog, provider)
        if not rows:
            how = f" To use it: {keys.missing}." if keys.missing else ""
            no_list = f"clawkit has no list of {provider}'s models."
            return f"{no_list}{how} Use any of them as {provider}/NAME."
        them = "it" if len(rows) == 1 else "them"
        text += f" To use {them}: {keys.missing or keys.problem}."
    hidden = len(rows) - len(shown)
    return f"{text} {hidden} more with --all." if hidden else text


@click.command()
@click.option("--probe", is_flag=True, help="Ask each of them for one word; that costs a little.")
@json_option
@_AGENT
@config_option
def status(probe: bool, as_json: bool, agent: str | None, config_file: str | None) -> None:
    """Show the model in use, its fallbacks, and their credentials.

    The exit code is 1 if the first one cannot be used or, with --probe, does not answer.
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


@click.command("set")
@click.argument("name", metavar="MODEL")
@click.option(
    "--fallback",
    "fallbacks",
    multiple=True,
    metavar="MODEL",
    help="Model to use when it fails; can be given several times, in order.",
)
@click.option("--no-fallback", is_flag=True, help="Use no other model when it fails.")
@click.option(
    "--agent", help="Only for this agent. Default: all agents without a model of their own."
)
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

    Saves it in the configuration. Comments in the file stay, and the previous file is kept as a
    backup. Without --fallback the fallbacks do not change.

    \b
    clawkit models set claude-opus-5
    clawkit models set openai/gpt-5.4 --fallback anthropic/claude-sonnet-5
    """
    if fallbacks and no_fallback:
        raise click.UsageError("--fallback and --no-fallback cannot be combined")
    loaded = load(config_file)
    path = _model_setting(loaded, agent)
    with listening():
        selection = Selection(loaded, agent or loaded.config.agents.default_id())
        refs = [selection.find(each) for each in (name, *fallbacks)]
        remarks = _doubts(selection.catalog, refs)
    agents = loaded.config.agents
    own = agents.default_id()
    if agent is None and agents.get(own).model is not None:
        where = f"{agents.key_of(own)}.model"
        remarks += [f"the agent {own!r} has its own model ({where}); add --agent to change that"]
    primary, *rest = map(str, refs)
    others = rest if fallbacks or no_fallback else None

    def edit(text: str) -> str:
        return _with_model(text, path, primary, others)

    make_change(config_file, edit, [path], False, dry_run, as_json)
    warn(remarks)


@click.command()
@click.option("--agent", help="Agent whose file to write. Default: the default agent.")
@config_option
def write(agent: str | None, config_file: str | None) -> None:
    """Write the configured providers into the agent's models.json.

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
    path = agent_path(agents, agent)
    if path is None:
        hint = _hint(agent, agents.by_id()) or "."
        raise ToolInputError(
            f"unknown agent {one_line(agent, 60)!r}{hint} Without --agent, this sets the model of "
            "all agents"
        )
    return (*path, "model")


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
            what = f"{ref} is not a model that clawkit knows; the provider may have it"
            said[f"{what}{_hint(ref.id, known)}"] = None
        keys = access(catalog, ref.provider)
        if not keys.credentials:
            said[keys.problem or f"{ref.provider} needs a credential: {keys.missing}"] = None
    return list(said)


HEAD = ("MODEL", "NAME", "CONTEXT", "OUTPUT", "INPUT", "THINKS", "PRICE", "KEY", "NOTE")
_INDENT = "    "


def make_rows(catalog: Catalog, choices: Sequence[ChosenModel]) -> list[dict[str, Any]]:
    """Every model there is, those in force first, as programs read it."""
    roles: dict[ModelRef, str] = {}
    for number, choice in enumerate(choices):
        if choice.ref is not None:
            roles[choice.ref] = f"fallback {number}" if number else "default"
    listed = {entry.ref: entry for entry in catalog.list()}
    keys = cache(lambda provider: access(catalog, provider))
    rows = []
    for ref in dict.fromkeys((*roles, *listed, OPERATOR)):
        if ref == OPERATOR:
            row = _facts(OPERATOR, Operator().facts) | _OPERATOR
        else:
            entry = listed.get(ref) or Entry(ref, catalog.facts(ref), "known", has_credential=False)
            row = _row(catalog, entry, keys(ref.provider))
        rows.append(row | {"role": roles.get(ref)})
    return rows


_OPERATOR = {
    "source": "built-in",
    "usable": True,
    "allowed": True,
    "auth": "none",
    "missing": None,
    "aliases": [],
    "problem": None,
}


def _row(catalog: Catalog, entry: Entry, keys: Access) -> dict[str, Any]:
    problem = entry.problem or keys.problem
    is_allowed = catalog.is_allowed(entry.ref)
    return _facts(entry.ref, entry.facts) | {
        "source": entry.source,
        "usable": bool(keys.credentials) and not problem and is_allowed,
        "allowed": is_allowed,
        "auth": keys.credentials[0].id if keys.credentials else None,
        "missing": keys.missing or None,
        "aliases": list(entry.aliases),
        "problem": problem or None,
    }


def _facts(ref: ModelRef, facts: Facts) -> dict[str, Any]:
    return {
        "model": str(ref),
        "provider": ref.provider,
        "name": facts.name,
        "contextWindow": facts.context_window,
        "contextTokens": facts.window,
        "maxTokens": facts.max_tokens,
        "input": ["text", "image"] if facts.images else ["text"],
        "reasoning": facts.reasoning,
        "cost": {**_NO_COST, **msgspec.to_builtins(facts.cost)} if facts.cost != Cost() else None,
    }


_NO_COST = {"input": 0.0, "output": 0.0, "cacheRead": 0.0, "cacheWrite": 0.0}


def print_rows(rows: Sequence[Mapping[str, Any]], columns: int | None) -> None:
    """A table where it fits, with names if there is room, else a few lines for each model."""
    cells = [_cells(row) for row in rows]
    for kept in (range(len(HEAD)), [0, *range(2, len(HEAD))]):
        head, *lines = ([line[at] for at in kept] for line in (HEAD, *cells))
        needed = sum(width + 2 for width in widths_of([head, *lines])) - 2
        if columns is None or needed <= columns:
            print_table(head, lines)
            return
    for line in cells:
        _print_block(line, columns or 0)


def _print_block(cells: Sequence[str], columns: int) -> None:
    model, name, context, output, takes, thinks, price, key, note = cells
    beside = bool(note) and text_width(model) + text_width(note) + 2 <= columns
    click.echo(click.style(model, bold=True) + (f"  {note}" if beside else ""))
    facts = (
        "" if name == model.partition("/")[2] else name,
        f"{context} context",
        f"{output} output",
        takes,
        thinks and "thinks",
        price,
        key,
        "" if beside else note,
    )
    line = ""
    for fact in filter(None, facts):
        longer = f"{line} · {fact}" if line else fact
        if line and text_width(longer) > columns - len(_INDENT):
            click.echo(_INDENT + line)
            longer = fact
        line = longer
    click.echo(_INDENT + line)


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """One model as people read it."""
    window, cap, cost = row["contextWindow"], row["contextTokens"], row["cost"]
    missing = row["missing"] and f"missing: {row['missing'].partition(' or models.')[0]}"
    cells = (
        row["model"],
        row["name"],
        count_tokens(window)
        if cap == window
        else f"{count_tokens(window)} (cap {count_tokens(cap)})",
        count_tokens(row["maxTokens"]),
        "+".join(row["input"]),
        "yes" if row["reasoning"] else "",
        f"${cost['input']:g}/${cost['output']:g}" if cost else "",
        missing or row["auth"] or "",
        _note(row),
    )
    return tuple(printable(" ".join(cell.split()), "") for cell in cells)


def _note(row: Mapping[str, Any]) -> str:
    notes = [row["role"], *(f"alias {alias}" for alias in row["aliases"])]
    notes += ["" if row["allowed"] else "not allowed by modelPolicy", row["problem"]]
    return ", ".join(filter(None, notes))
