"""Models as rows: for programs, and in a table or a list that fits the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
import msgspec

from clawkit.cli.columns import print_table, width_of, widths_of
from clawkit.cli.model_choice import Access, Choice, access
from clawkit.config.modelref import ModelRef
from clawkit.config.sections.models import Cost
from clawkit.models.base import Facts
from clawkit.models.operator import REF as OPERATOR
from clawkit.models.operator import Operator
from clawkit.models.resolve import Catalog, Entry
from clawkit.text import printable

HEAD = ("MODEL", "NAME", "CONTEXT", "OUTPUT", "INPUT", "THINKS", "PRICE", "KEY", "NOTE")
_INDENT = "    "


def make_rows(catalog: Catalog, choices: Sequence[Choice]) -> list[dict[str, Any]]:
    """Every model there is, those in force first, as programs read it."""
    roles = _roles(choices)
    listed = {entry.ref: entry for entry in catalog.list()}
    refs = dict.fromkeys((*roles, *listed, OPERATOR))
    keys: dict[str, Access] = {}
    rows = []
    for ref in refs:
        if ref == OPERATOR:
            rows.append(_operator(roles))
            continue
        if ref.provider not in keys:
            keys[ref.provider] = access(catalog, ref.provider)
        entry = listed.get(ref) or Entry(ref, catalog.facts(ref), "known", has_credential=False)
        rows.append(_row(catalog, entry, keys[ref.provider], roles))
    return rows


def _roles(choices: Sequence[Choice]) -> dict[ModelRef, str]:
    """What each model in force is: the one that is used, or the first, second … in its place."""
    found: dict[ModelRef, str] = {}
    for number, choice in enumerate(choices):
        if choice.ref is not None:
            found[choice.ref] = f"fallback {number}" if number else "default"
    return found


def _row(
    catalog: Catalog, entry: Entry, keys: Access, roles: Mapping[ModelRef, str]
) -> dict[str, Any]:
    problem = entry.problem or keys.problem
    is_allowed = catalog.is_allowed(entry.ref)
    return _facts(entry.ref, entry.facts) | {
        "source": entry.source,
        "usable": bool(keys.credentials) and not problem and is_allowed,
        "allowed": is_allowed,
        "auth": keys.credentials[0].id if keys.credentials else None,
        "missing": keys.missing or None,
        "aliases": list(entry.aliases),
        "role": roles.get(entry.ref),
        "problem": problem or None,
    }


def _operator(roles: Mapping[ModelRef, str]) -> dict[str, Any]:
    return _facts(OPERATOR, Operator().facts) | {
        "source": "built-in",
        "usable": True,
        "allowed": True,
        "auth": "none",
        "missing": None,
        "aliases": [],
        "role": roles.get(OPERATOR),
        "problem": None,
    }


def _facts(ref: ModelRef, facts: Facts) -> dict[str, Any]:
    known = facts.cost != Cost()
    return {
        "model": str(ref),
        "provider": ref.provider,
        "name": facts.name,
        "contextWindow": facts.context_window,
        "contextTokens": facts.window,
        "maxTokens": facts.max_tokens,
        "input": ["text", "image"] if facts.images else ["text"],
        "reasoning": facts.reasoning,
        "cost": {**_NO_COST, **msgspec.to_builtins(facts.cost)} if known else None,
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
    beside = bool(note) and width_of(model) + width_of(note) + 2 <= columns
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
        if line and width_of(longer) > columns - len(_INDENT):
            click.echo(_INDENT + line)
            longer = fact
        line = longer
    click.echo(_INDENT + line)


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """One model as people read it."""
    missing = row["missing"] and f"missing: {row['missing'].partition(' or models.')[0]}"
    cells = (
        row["model"],
        row["name"],
        _context(row),
        count(row["maxTokens"]),
        "+".join(row["input"]),
        "yes" if row["reasoning"] else "",
        _price(row["cost"]),
        missing or row["auth"] or "",
        _note(row),
    )
    return tuple(printable(" ".join(cell.split()), "") for cell in cells)


def _context(row: Mapping[str, Any]) -> str:
    window, cap = row["contextWindow"], row["contextTokens"]
    return count(window) if cap == window else f"{count(window)} (cap {count(cap)})"


def _price(cost: Mapping[str, float] | None) -> str:
    return f"${cost['input']:g}/${cost['output']:g}" if cost else ""


def _note(row: Mapping[str, Any]) -> str:
    notes = [row["role"] or "", *(f"alias {alias}" for alias in row["aliases"])]
    if not row["allowed"]:
        notes.append("not allowed by modelPolicy")
    if row["problem"]:
        notes.append(row["problem"])
    return ", ".join(filter(None, notes))


def count(tokens: int) -> str:
    """A number of tokens for people: `800`, `200k`, `1.5M`."""
    if tokens < 1_000:
        return str(tokens)
    if tokens < 999_500:
        return f"{tokens / 1_000:.0f}k"
    return f"{tokens / 1_000_000:.1f}".removesuffix(".0") + "M"
