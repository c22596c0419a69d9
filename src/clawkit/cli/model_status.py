"""`clawkit models status`: the models in force, their credentials, and whether they answer."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import click

from clawkit.cli.model_choice import Choice, Source, access, host_of, in_force
from clawkit.config.load import Loaded
from clawkit.config.modelref import ModelRef
from clawkit.content import Assistant, Text, User
from clawkit.errors import ClawkitError, ConfigError
from clawkit.models.base import ModelError, Request
from clawkit.models.operator import REF as OPERATOR
from clawkit.models.resolve import Catalog
from clawkit.selection import Selection
from clawkit.text import human_time, one_line, printable

PROBE_S = 60.0
"""Longest time for an answer to `--probe`; a model on one's own machine may have to be loaded."""
PROBE = Request(
    "You are asked whether you can be reached. Answer with one word.",
    (User((Text("Say: ready"),)),),
    max_tokens=256,
    session="probe",
)
_SOURCES: dict[Source, str] = {
    "config": "",
    "found": "No model is chosen; this one was found by its credential.",
    "local": "No model is chosen and no key was found; this one runs on this machine.",
    "built-in": "No model is chosen and no key was found: what answers is built in and no AI.",
}
_TO_CHOOSE = "type clawkit onboard, or set a key such as ANTHROPIC_API_KEY"


async def look(loaded: Loaded, agent: str | None, *, probe: bool) -> dict[str, Any]:
    """Everything that is said, as programs read it."""
    selection = Selection(loaded, agent or loaded.config.agents.default_id())
    catalog = selection.catalog
    try:
        source, choices = in_force(catalog)
        if source == "built-in" and (local := await selection.find_local()):
            source, choices = "local", [Choice(str(local), "", local)]
        told = [_status_of(catalog, source, number, each) for number, each in enumerate(choices)]
        if probe:
            refs = [
                None if one["problem"] else each.ref
                for one, each in zip(told, choices, strict=True)
            ]
            answers = await asyncio.gather(*(_probe(selection, ref) for ref in refs))
            told = [one | {"probe": answer} for one, answer in zip(told, answers, strict=True)]
    finally:
        await selection.close()
    return {
        "agent": catalog.agent,
        "source": source,
        "directory": catalog.folder,
        "models": told,
    }


def _status_of(catalog: Catalog, source: Source, number: int, choice: Choice) -> dict[str, Any]:
    told: dict[str, Any] = {
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
        return told | {"problem": _TO_CHOOSE if source == "built-in" else None, "kind": "none"}
    if choice.ref is None:
        return told
    try:
        endpoint = catalog.endpoint(choice.ref)
    except ConfigError as error:
        return told | {"problem": str(error)}
    told |= {"api": endpoint.api, "endpoint": host_of(endpoint.base_url)}
    keys = access(catalog, choice.ref.provider)
    if not keys.credentials:
        why = keys.problem or f"there is no credential: {keys.missing}"
        return told | {"problem": why}
    first, *others = keys.credentials
    rest_ms = [round(catalog.credentials.cooldown_s(each) * 1000) for each in (first, *others)]
    told |= {"credential": first.id, "kind": first.kind, "cooldownMs": rest_ms[0]}
    told["others"] = [
        {"credential": each.id, "kind": each.kind, "cooldownMs": ms}
        for each, ms in zip(others, rest_ms[1:], strict=True)
    ]
    return told


async def _probe(selection: Selection, ref: ModelRef | None) -> dict[str, Any] | None:
    """What came of asking a model for one word; None when there is nobody to ask."""
    if ref is None or ref == OPERATOR:
        return None
    begun, said, why, kind = time.monotonic(), "", "", ""
    try:
        model = selection.one(ref)
        async with asyncio.timeout(PROBE_S):
            async for item in model.stream(PROBE):
                if isinstance(item, Assistant):
                    said = one_line(item.text, 60)
    except ModelError as error:
        why, kind = str(error), error.kind
    except ClawkitError as error:
        why, kind = str(error), "config"
    except TimeoutError:
        why, kind = f"no answer within {human_time(PROBE_S)}", "timeout"
    took_ms = round((time.monotonic() - begun) * 1000)
    if why:
        return {"ok": False, "ms": took_ms, "text": None, "error": why, "kind": kind}
    return {"ok": True, "ms": took_ms, "text": said, "error": None, "kind": None}


def print_status(report: dict[str, Any]) -> None:
    """The same for people."""
    click.echo(f"The agent {printable(report['agent'], '')} uses")
    for told in report["models"]:
        setting = f"  ({told['setting']})" if told["setting"] else ""
        word = "then " if told["role"] == "fallback" else ""
        name = printable(told["model"] or told["name"], "")
        click.echo(f"  {word}{click.style(name, bold=True)}{printable(setting, '')}")
        for text, colour in _lines(told):
            click.echo(f"      {click.style(printable(text, ''), fg=colour)}")
    if note := _SOURCES[report["source"]]:
        click.echo(note)
    click.echo(f"Its own models and credentials are in {printable(report['directory'], '')}")


def _lines(told: dict[str, Any]) -> list[tuple[str, str | None]]:
    """What is said about one model, and in which colour."""
    lines: list[tuple[str, str | None]] = []
    if told["endpoint"]:
        lines.append((f"at {told['endpoint']}, which speaks {told['api']}", None))
    keys = [told] if told["credential"] else []
    for number, key in enumerate([*keys, *told["others"]]):
        kind = {"none": "no credential is needed"}.get(key["kind"])
        what = kind or f"{'also' if number else 'with'} {key['credential']} ({key['kind']})"
        rest = human_time(key["cooldownMs"] / 1000)
        resting = f"; it was refused and rests for {rest}" if key["cooldownMs"] else ""
        lines.append((what + resting, "yellow" if resting else None))
    if told["problem"]:
        lines.append((told["problem"], "red"))
    if probe := told["probe"]:
        took = human_time(probe["ms"] / 1000)
        said = f": {probe['text']}" if probe["text"] else ""
        good = f"answered in {took}{said}"
        bad = f"failed after {took}: {probe['error']}"
        lines.append((good, "green") if probe["ok"] else (bad, "red"))
    return lines
