"""`clawkit models`: list models, choose one, and check that it answers."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import click
import msgspec

from clawkit.agent.model_selection import ModelSelection
from clawkit.bundled import select_models
from clawkit.cli import shared_options as cli
from clawkit.cli.config import make_change
from clawkit.cli.onboarding.write import agent_path
from clawkit.config.file_edit import content, set_setting
from clawkit.config.load import Loaded, load
from clawkit.config.lookup import Path, spelled, value_at
from clawkit.config.modelref import OPERATOR, ModelRef, normalize_provider
from clawkit.config.sections.models import Cost
from clawkit.errors import ConfigError, Issue
from clawkit.models.catalog import Catalog, ListedModel
from clawkit.models.credentials import Credential
from clawkit.models.discover import find_local, found_model
from clawkit.models.known import known_model
from clawkit.models.operator import Operator
from clawkit.terminal_text import wrap
from clawkit.text import human_time, one_line, printable

Row = dict[str, Any]
"""JSON data."""
_AGENT = click.option("--agent", help="Agent whose models to show. Default: the default agent.")


@click.command("list")
@click.option("--all", "everything", is_flag=True, help="Include models without a key.")
@click.option("--provider", metavar="NAME", help="Only models of this provider.")
@cli.json_option
@_AGENT
@cli.config_option
def list_models(
    everything: bool,
    provider: str | None,
    as_json: bool,
    agent: str | None,
    config_file: str | None,
) -> None:
    """List the models you can use; with --all, every known model.

    PRICE is dollars per million tokens, input/output. KEY is the source of the credential, or what
    is missing.
    """
    loaded = load(config_file)
    with listening() as remarks:
        catalog = Catalog.of(loaded, loaded.config.agents.find(agent))
        wanted = normalize_provider(provider) if provider else ""
        known = [*catalog.services, OPERATOR.provider]
        if wanted and wanted not in known:
            hint = cli.suggest(wanted, known) or f". Providers: {', '.join(known)}"
            raise click.UsageError(f"unknown provider {one_line(wanted, 60)!r}{hint}")
        _, choices = models_in_use(catalog)
        rows = make_rows(catalog, choices)
    rows = [row for row in rows if not wanted or row["provider"] == wanted]
    shown = sorted(
        (row for row in rows if everything or row["usable"] or row["role"]),
        key=lambda row: not (row["usable"] or row["role"]),
    )
    said = [*map(str, loaded.warnings), *remarks]
    said += [f"{each.setting}: {each.problem}" for each in choices if each.problem]
    if as_json:
        cli.print_json({"agent": catalog.agent, "models": shown, "warnings": said})
        return
    if shown:
        print_rows(shown, cli.columns())
    click.echo(_summary(rows, shown, wanted, catalog))
    cli.warn(said)


def _summary(rows: Sequence[Row], shown: Sequence[Row], provider: str, catalog: Catalog) -> str:
    usable = sum(row["usable"] for row in rows)
    text = f"{usable} of {len(rows)} models can be used."
    if provider and not rows:
        text = f"clawkit has no list of {provider}'s models. Use any of them as {provider}/NAME."
    if provider and not usable:
        keys = access(catalog, provider)
        them = "it" if len(rows) == 1 else "them"
        text += (
            f" To use {them}: {keys.missing or keys.problem}." if keys != CredentialAccess() else ""
        )
    hidden = len(rows) - len(shown)
    return f"{text} {hidden} more with --all." if hidden else text


@click.command()
@click.option("--probe", is_flag=True, help="Ask each model for one word; this costs a little.")
@cli.json_option
@_AGENT
@cli.config_option
def status(probe: bool, as_json: bool, agent: str | None, config_file: str | None) -> None:
    """Show the model in use, its fallbacks, and their credentials.

    The exit code is 1 if the first one cannot be used or, with --probe, does not answer.
    """
    loaded = load(config_file)
    with listening() as remarks:
        selection = select_models(loaded, loaded.config.agents.find(agent))
        catalog = selection.catalog
        source, choices = models_in_use(catalog)
        rows = [_status_of(catalog, source, number, each) for number, each in enumerate(choices)]
        if probe:
            asyncio.run(_probe_all(selection, choices, rows))
        about = {"agent": catalog.agent, "source": source, "directory": catalog.folder}
        report: Row = {**about, "models": rows}
    said = [*map(str, loaded.warnings), *remarks]
    if as_json:
        cli.print_json(report | {"warnings": said})
    else:
        click.echo(f"The agent {printable(report['agent'], '')} uses")
        for row in report["models"]:
            setting = f"  ({row['setting']})" if row["setting"] else ""
            word = "then " if row["role"] == "fallback" else ""
            name = printable(row["model"] or row["name"], "")
            click.echo(f"  {word}{click.style(name, bold=True)}{printable(setting, '')}")
            for text, colour in _about(row):
                click.echo(f"      {click.style(printable(text, ''), fg=colour)}")
        if note := _SOURCES[report["source"]]:
            click.echo(note)
        click.echo(f"Its own models and credentials are in {printable(report['directory'], '')}")
        cli.warn(said)
    first = report["models"][0]
    sys.exit(1 if first["problem"] or (first["probe"] and not first["probe"]["ok"]) else 0)


@click.command("set")
@click.argument("name", metavar="MODEL", shell_complete=cli.complete_model)
@click.option(
    "--fallback",
    "fallbacks",
    multiple=True,
    metavar="MODEL",
    shell_complete=cli.complete_model,
    help="Model to use if MODEL fails; repeatable, in order.",
)
@click.option("--no-fallback", is_flag=True, help="Use no other model if MODEL fails.")
@click.option("--agent", help="Only for this agent. Default: all agents without their own model.")
@cli.change_options
def set_model(
    name: str, fallbacks: tuple[str, ...], no_fallback: bool, agent: str | None, **how: Any
) -> None:
    """Use MODEL: provider/model, a model id, or an alias.

    Saves it in the configuration. Comments in the file are kept, and the previous file is saved as
    a backup. Without --fallback, the fallbacks do not change.

    \b
    clawkit models set claude-opus-5
    clawkit models set openai/gpt-5.4 --fallback anthropic/claude-sonnet-5
    """
    if fallbacks and no_fallback:
        raise click.UsageError("--fallback and --no-fallback cannot be combined")
    loaded = load(how["config_file"])
    path = _model_setting(loaded, agent)
    with listening():
        selection = select_models(loaded, agent or loaded.config.agents.default_id())
        refs = [selection.find(each) for each in (name, *fallbacks)]
        remarks = model_warnings(selection.catalog, refs)
    agents = loaded.config.agents
    own = agents.default_id()
    if agent is None and agents.get(own).model is not None:
        where = f"{agents.key_of(own)}.model"
        remarks += [f"the agent {own!r} has its own model ({where}); add --agent to change that"]
    primary, *rest = map(str, refs)
    chain: dict[str, Any] = {"primary": primary}
    if fallbacks or no_fallback:
        chain["fallbacks"] = rest

    def edit(text: str) -> str:
        root = content(text)
        if not isinstance(value_at(root, spelled(path, root)), dict):
            return set_setting(text, path, chain if "fallbacks" in chain else primary)
        for key, value in chain.items():
            text = set_setting(text, (*path, key), value)
        return text

    make_change(edit, [path], **how)
    cli.warn(remarks)


@click.command()
@click.option("--agent", help="Agent whose file to write. Default: the default agent.")
@cli.config_option
def write(agent: str | None, config_file: str | None) -> None:
    """Write the configured providers into the agent's models.json.

    This is for other programs that read the file. Secrets are not written, only where the
    configuration gets them from. With models.mode "replace", the file contains nothing else;
    otherwise its other entries are kept. From then on, an address in the file takes precedence over
    the one in the configuration.
    """
    cli.refuse_commands()
    loaded = load(config_file)
    catalog = Catalog.of(loaded, loaded.config.agents.find(agent))
    click.echo(f"Wrote {printable(catalog.write_models_json())}")


def _model_setting(loaded: Loaded, agent: str | None) -> Path:
    if agent is None:
        return ("agents", "defaults", "model")
    agents = loaded.config.agents
    path = agent_path(agents, agent)
    if path is None:
        hint = cli.suggest(agent, agents.by_id()) or "."
        raise click.UsageError(
            f"unknown agent {one_line(agent, 60)!r}{hint} Without --agent, this sets the model of "
            "all agents"
        )
    return (*path, "model")


def model_warnings(catalog: Catalog, refs: Sequence[ModelRef]) -> list[str]:
    said: dict[str, None] = {}
    for ref in refs:
        service = catalog.services.get(ref.provider)
        if service is None:
            continue
        known = [row.id for row in service.known.models] if service.known else []
        if known and ref.id not in service.models and known_model(ref.provider, ref.id) is None:
            what = f"clawkit does not know {ref}, but the provider may have it"
            said[f"{what}{cli.suggest(ref.id, known)}"] = None
        keys = access(catalog, ref.provider)
        if not keys.credentials:
            said[keys.problem or f"{ref.provider} needs a credential: {keys.missing}"] = None
    return list(said)


HEAD = ("MODEL", "NAME", "CONTEXT", "OUTPUT", "INPUT", "THINKS", "PRICE", "KEY", "NOTE")
_INDENT = "    "


def make_rows(catalog: Catalog, choices: Sequence[ChosenModel]) -> list[Row]:
    """All models as JSON data, those in use first."""
    roles: dict[ModelRef, str] = {}
    for number, choice in enumerate(choices):
        if choice.ref is not None:
            roles[choice.ref] = f"fallback {number}" if number else "default"
    listed = {entry.ref: entry for entry in catalog.list()}
    keys_of = cache(lambda provider: access(catalog, provider))
    rows = []
    for ref in dict.fromkeys((*roles, *listed, OPERATOR)):
        if ref == OPERATOR:
            entry = ListedModel(ref, Operator().facts, "known", has_credential=True)
            keys = CredentialAccess((Credential("none", "none", "", ref.provider),))
        else:
            entry = listed.get(ref) or ListedModel(
                ref, catalog.facts(ref), "known", has_credential=False
            )
            keys = keys_of(ref.provider)
        rows.append(_row(catalog, entry, keys) | {"role": roles.get(ref)})
    return rows


def _row(catalog: Catalog, entry: ListedModel, keys: CredentialAccess) -> Row:
    ref, facts, problem = entry.ref, entry.facts, entry.problem or keys.problem
    is_built_in = ref == OPERATOR
    is_allowed = is_built_in or catalog.is_allowed(ref)
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
        "source": "built-in" if is_built_in else entry.source,
        "usable": bool(keys.credentials) and not problem and is_allowed,
        "allowed": is_allowed,
        "auth": keys.credentials[0].id if keys.credentials else None,
        "missing": keys.missing or None,
        "aliases": list(entry.aliases),
        "problem": problem or None,
    }


_NO_COST = {"input": 0.0, "output": 0.0, "cacheRead": 0.0, "cacheWrite": 0.0}


def print_rows(rows: Sequence[Row], columns: int | None) -> None:
    """Print a table if it fits (with names if there is room), else a few lines per model."""
    cells = [_cells(row) for row in rows]
    for kept in (range(len(HEAD)), [0, *range(2, len(HEAD))]):
        head, *lines = ([line[at] for at in kept] for line in (HEAD, *cells))
        needed = sum(width + 2 for width in cli.widths_of([head, *lines])) - 2
        if columns is None or needed <= columns:
            cli.print_table(head, lines)
            return
    for line in cells:
        _print_block(line, columns or 0)


def _print_block(cells: Sequence[str], columns: int) -> None:
    model, name, context, output, takes, thinks, price, key, note = cells
    name = "" if name == model.partition("/")[2] else name
    facts = (name, f"{context} context", f"{output} output", takes, thinks and "thinks", price)
    click.secho(model, bold=True)
    for text in filter(None, (" · ".join(filter(None, facts)), note)):
        for row in wrap(text, columns + 1, _INDENT):
            click.echo(row.rstrip())
    click.echo(f"{_INDENT}{key}".rstrip())


def _cells(row: Row) -> tuple[str, ...]:
    window, cap, cost = row["contextWindow"], row["contextTokens"], row["cost"]
    missing = row["missing"] and f"missing: {row['missing'].partition(' or models.')[0]}"
    notes = [row["role"], *(f"alias {alias}" for alias in row["aliases"])]
    notes += ["" if row["allowed"] else "not allowed by modelPolicy", row["problem"]]
    cells = (
        row["model"],
        row["name"],
        cli.count_tokens(window) + ("" if cap == window else f" (cap {cli.count_tokens(cap)})"),
        cli.count_tokens(row["maxTokens"]),
        "+".join(row["input"]),
        "yes" if row["reasoning"] else "",
        f"${cost['input']:g}/${cost['output']:g}" if cost else "",
        missing or row["auth"] or "",
        ", ".join(filter(None, notes)),
    )
    return tuple(printable(" ".join(cell.split()), "") for cell in cells)


Source = Literal["config", "found", "local", "built-in"]


class ChosenModel(NamedTuple):
    """A configured or automatically found model, usable or not."""

    name: str
    """As written in the configuration."""
    setting: str
    """The setting that chose it; empty if no setting did."""
    ref: ModelRef | None
    problem: str = ""


def models_in_use(
    catalog: Catalog, look: Callable[[Mapping[str, str]], Iterable[str]] | None = None
) -> tuple[Source, list[ChosenModel]]:
    """The agent's model and its fallbacks, including those with unknown names; if none is
    configured, the one that a turn would find. `look` lists local models, as for `find_local`."""
    found: dict[ModelRef | str, ChosenModel] = {}
    for setting, name in catalog.chosen():
        try:
            ref = catalog.find(name)
        except ConfigError as error:
            # Leave out the setting, which is shown next to it.
            why = (
                f"{each.message}. {each.hint}" if each.hint else each.message
                for each in error.issues
            )
            found[setting] = ChosenModel(name, setting, None, "; ".join(why))
        else:
            found.setdefault(ref, ChosenModel(name, setting, ref))
    if found:
        return "config", list(found.values())
    if usable := found_model(catalog):
        return "found", [ChosenModel(str(usable), "", usable)]
    if local := find_local(catalog, look):
        return "local", [ChosenModel(str(local), "", local)]
    return "built-in", [ChosenModel(str(OPERATOR), "", OPERATOR)]


def unknown_models(loaded: Loaded) -> list[Issue]:
    """The models of all agents and their sub-agents that do not exist, or cannot be used by that
    name."""
    agents, found = loaded.config.agents, dict[Issue, None]()
    with listening():
        for agent in (agents.default_id(), *agents.by_id()):
            with suppress(ConfigError):  # `clawkit doctor` reports invalid files of an agent
                catalog = Catalog.of(loaded, agent)
                for setting, name in (*catalog.chosen(), *catalog.chosen_for_subagents()):
                    try:
                        catalog.find(name)
                    except ConfigError as error:
                        for each in error.issues:
                            found[each._replace(path=setting, file=loaded.file or "")] = None
    return list(found)


class CredentialAccess(NamedTuple):
    """The credentials of a provider, or why there are none."""

    credentials: tuple[Credential, ...] = ()
    """In order of use."""
    missing: str = ""
    """What to do if there is none: `set NAME or …`."""
    problem: str = ""


def access(catalog: Catalog, provider: str) -> CredentialAccess:
    try:
        found = tuple(catalog.credentials.for_provider(provider))
    except ConfigError as error:
        return CredentialAccess(problem=str(error))
    if found:
        return CredentialAccess(found)
    return CredentialAccess(missing=str(catalog.credentials.missing(provider)).partition(": ")[2])


@contextmanager
def listening() -> Iterator[dict[str, None]]:
    """Collect the warnings that the models package logs, each once, instead of printing them."""
    logger, heard = logging.getLogger("clawkit.models"), dict[str, None]()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard[record.getMessage()] = None

    listener, propagates = Listener(logging.WARNING), logger.propagate
    logger.addHandler(listener)
    logger.propagate = False
    try:
        yield heard
    finally:
        logger.removeHandler(listener)
        logger.propagate = propagates


PROBE_S = 60.0
"""Timeout of `--probe`; a local model may have to be loaded first."""
_SOURCES: dict[Source, str] = {
    "config": "",
    "found": "No model is configured; this one has a credential.",
    "local": "No model is configured and no API key was found; this one runs on this machine.",
    "built-in": "No model is configured and no API key was found: the built-in operator answers.",
}
_TO_CHOOSE = "type clawkit onboard, or set a key such as ANTHROPIC_API_KEY"


def _status_of(catalog: Catalog, source: Source, number: int, choice: ChosenModel) -> Row:
    row: Row = {
        "model": str(choice.ref) if choice.ref else None,
        "name": choice.name,
        "setting": choice.setting or None,
        "role": "fallback" if number else "primary",
        "api": None,
        "endpoint": None,
        "credential": None,
        "kind": None,
        "cooldownMs": 0,
        "others": [],
        "problem": choice.problem or None,
        "probe": None,
    }
    if choice.ref == OPERATOR:
        return row | {"problem": _TO_CHOOSE if source == "built-in" else None, "kind": "none"}
    if choice.ref is None:
        return row
    try:
        endpoint = catalog.endpoint(choice.ref)
    except ConfigError as error:
        return row | {"problem": str(error)}
    row |= {"api": endpoint.api, "endpoint": urlsplit(endpoint.base_url).netloc}
    keys = access(catalog, choice.ref.provider)
    if not keys.credentials:
        return row | {"problem": keys.problem or f"no credential: {keys.missing}"}
    first, *others = (
        {
            "credential": each.id,
            "kind": each.kind,
            "cooldownMs": round(catalog.credentials.cooldown_s(each) * 1000),
        }
        for each in keys.credentials
    )
    return row | first | {"others": others}


async def _probe_all(
    selection: ModelSelection, choices: Sequence[ChosenModel], rows: Sequence[Row]
) -> None:
    pairs = zip(choices, rows, strict=True)
    try:
        await asyncio.gather(*(_probe(selection, each.ref, row) for each, row in pairs))
    finally:
        await selection.close()


async def _probe(selection: ModelSelection, ref: ModelRef | None, row: Row) -> None:
    if ref is None or ref == OPERATOR or row["problem"]:
        return
    from clawkit.cli.onboarding.probe import ask_for_word

    trial = await ask_for_word(selection, ref, PROBE_S)
    kind = "config" if trial.kind == "setting" else trial.kind
    row["probe"] = {
        "ok": trial.ok,
        "ms": round(trial.seconds * 1000),
        "text": trial.answer if trial.ok else None,
        "error": trial.problem or None,
        "kind": kind or None,
    }


def _about(row: Row) -> Iterator[tuple[str, str | None]]:
    if row["endpoint"]:
        yield f"at {row['endpoint']} (API: {row['api']})", None
    for number, key in enumerate([*([row] if row["credential"] else ()), *row["others"]]):
        what = f"{'also' if number else 'with'} {key['credential']} ({key['kind']})"
        what = "no credential is needed" if key["kind"] == "none" else what
        if key["cooldownMs"]:
            rest = human_time(key["cooldownMs"] / 1000)
            yield f"{what}; it was rejected and is not used for {rest}", "yellow"
        else:
            yield what, None
    if row["problem"]:
        yield row["problem"], "red"
    if probe := row["probe"]:
        took = human_time(probe["ms"] / 1000)
        if probe["ok"]:
            yield f"answered in {took}" + (f": {probe['text']}" if probe["text"] else ""), "green"
        else:
            yield f"failed after {took}: {probe['error']}", "red"
