"""`clawkit models status`: the models in force, their credentials, and whether they answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import click

from clawkit.agent.model_selection import Selection
from clawkit.config.load import Loaded
from clawkit.config.modelref import ModelRef
from clawkit.errors import ConfigError
from clawkit.models.catalog import Catalog
from clawkit.models.credentials import Credential
from clawkit.models.discover import found_model
from clawkit.models.operator import REF as OPERATOR
from clawkit.text import human_time, printable

Source = Literal["config", "found", "local", "built-in"]


class ChosenModel(NamedTuple):
    """A model that is used, or would be if it could be."""

    name: str
    """As it is written."""
    setting: str
    """Where; empty when nothing says so."""
    ref: ModelRef | None
    problem: str = ""
    """Why the name means no model."""


def chosen(catalog: Catalog) -> list[ChosenModel]:
    """The agent's model and its fallbacks, also those whose names mean nothing."""
    found: dict[ModelRef | str, ChosenModel] = {}
    for setting, name in catalog.chosen():
        try:
            ref = catalog.find(name)
        except ConfigError as error:
            # Without the name of the setting, which is shown next to it.
            why = (
                f"{each.message}. {each.hint}" if each.hint else each.message
                for each in error.issues
            )
            found[setting] = ChosenModel(name, setting, None, "; ".join(why))
        else:
            found.setdefault(ref, ChosenModel(name, setting, ref))
    return list(found.values())


def in_force(catalog: Catalog) -> tuple[Source, list[ChosenModel]]:
    """What is chosen, else what is found; nothing is connected to."""
    if choices := chosen(catalog):
        return "config", choices
    if ref := found_model(catalog):
        return "found", [ChosenModel(str(ref), "", ref)]
    return "built-in", [ChosenModel(str(OPERATOR), "", OPERATOR)]


class Access(NamedTuple):
    """What a provider is asked with."""

    credentials: tuple[Credential, ...] = ()
    """In the order of use."""
    missing: str = ""
    """What to do where there is none: `set NAME or …`."""
    problem: str = ""


def access(catalog: Catalog, provider: str) -> Access:
    """The credentials of a provider, or what is wrong with them."""
    try:
        found = tuple(catalog.credentials.for_provider(provider))
    except ConfigError as error:
        return Access(problem=str(error))
    if found:
        return Access(found)
    return Access(missing=str(catalog.credentials.missing(provider)).partition(": ")[2])


class LoggedRemarks(logging.Handler):
    """Keeps what is remarked on credentials, each remark once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.heard: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.heard[record.getMessage()] = None


@contextmanager
def listening() -> Iterator[LoggedRemarks]:
    """Collect remarks on models instead of printing them wherever they are made."""
    logger, remarks = logging.getLogger("clawkit.models"), LoggedRemarks()
    propagates = logger.propagate
    logger.addHandler(remarks)
    logger.propagate = False
    try:
        yield remarks
    finally:
        logger.removeHandler(remarks)
        logger.propagate = propagates


PROBE_S = 60.0
"""Longest time for an answer to `--probe`; a local model may have to be loaded."""
_SOURCES: dict[Source, str] = {
    "config": "",
    "found": "No model is chosen; this one has a credential.",
    "local": "No model is chosen and no key was found; this one runs on this machine.",
    "built-in": "No model is chosen and no key was found: a built-in script answers.",
}
_TO_CHOOSE = "type clawkit onboard, or set a key such as ANTHROPIC_API_KEY"


async def look(loaded: Loaded, agent: str | None, *, probe: bool) -> dict[str, Any]:
    """Everything that is said, as programs read it."""
    selection = Selection(loaded, agent or loaded.config.agents.default_id())
    catalog = selection.catalog
    try:
        source, choices = in_force(catalog)
        if source == "built-in" and (local := await selection.find_local()):
            source, choices = "local", [ChosenModel(str(local), "", local)]
        rows = [_status_of(catalog, source, number, each) for number, each in enumerate(choices)]
        if probe:
            await asyncio.gather(
                *(_probe(selection, each.ref, row) for each, row in zip(choices, rows, strict=True))
            )
    finally:
        await selection.close()
    about = {"agent": catalog.agent, "source": source, "directory": catalog.folder}
    return {**about, "models": rows}


def _status_of(
    catalog: Catalog, source: Source, number: int, choice: ChosenModel
) -> dict[str, Any]:
    row: dict[str, Any] = {
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


async def _probe(selection: Selection, ref: ModelRef | None, row: dict[str, Any]) -> None:
    """Ask a model for one word, if there is one to ask, and add what came of it."""
    if ref is None or ref == OPERATOR or row["problem"]:
        return
    from clawkit.cli.onboarding.probe import ask_for_word

    trial = await ask_for_word(selection, ref, PROBE_S)
    kind = "config" if trial.kind == "setting" else trial.kind
    row["probe"] = {
        "ok": trial.ok,
        "ms": round(trial.seconds * 1000),
        "text": trial.said if trial.ok else None,
        "error": trial.problem or None,
        "kind": kind or None,
    }


def print_status(report: dict[str, Any]) -> None:
    """The same for people."""
    click.echo(f"The agent {printable(report['agent'], '')} uses")
    for row in report["models"]:
        setting = f"  ({row['setting']})" if row["setting"] else ""
        word = "then " if row["role"] == "fallback" else ""
        name = printable(row["model"] or row["name"], "")
        click.echo(f"  {word}{click.style(name, bold=True)}{printable(setting, '')}")
        for text, colour in _lines(row):
            click.echo(f"      {click.style(printable(text, ''), fg=colour)}")
    if note := _SOURCES[report["source"]]:
        click.echo(note)
    click.echo(f"Its own models and credentials are in {printable(report['directory'], '')}")


def _lines(row: dict[str, Any]) -> list[tuple[str, str | None]]:
    """What is said about one model, and in which colour."""
    lines: list[tuple[str, str | None]] = []
    if row["endpoint"]:
        lines.append((f"at {row['endpoint']}, which speaks {row['api']}", None))
    keys = [row] if row["credential"] else []
    for number, key in enumerate([*keys, *row["others"]]):
        what = f"{'also' if number else 'with'} {key['credential']} ({key['kind']})"
        what = "no credential is needed" if key["kind"] == "none" else what
        rest = human_time(key["cooldownMs"] / 1000)
        resting = f"; it was refused and is not used for {rest}" if key["cooldownMs"] else ""
        lines.append((what + resting, "yellow" if resting else None))
    if row["problem"]:
        lines.append((row["problem"], "red"))
    if probe := row["probe"]:
        took = human_time(probe["ms"] / 1000)
        said = f": {probe['text']}" if probe["text"] else ""
        good = f"answered in {took}{said}"
        bad = f"failed after {took}: {probe['error']}"
        lines.append((good, "green") if probe["ok"] else (bad, "red"))
    return lines
