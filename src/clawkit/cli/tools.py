"""`clawkit tools`: what there is, why it is or is not in force, and calling it."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from clawkit.agent.assemble import SETTINGS, Assembly, assemble
from clawkit.agent.model import target_of
from clawkit.cli.options import (
    Settings,
    always_json,
    json_option,
    print_json,
    read_settings,
    scope_options,
    warn,
)
from clawkit.core.catalog import CATALOG, canonical
from clawkit.errors import ToolAuthorizationError, UnknownToolError
from clawkit.policy.pipeline import Trace
from clawkit.schema.declare import PROVIDERS, Provider, declare, token_cost
from clawkit.text import nearest, printable


@click.group()
def tools() -> None:
    """List, explain, describe and call tools."""


def _open(options: dict[str, Any]) -> tuple[Settings, Assembly]:
    settings = read_settings(options)
    assembly = assemble(settings.loaded.config, settings.scope)
    return settings, assembly


def _remarks(settings: Settings, assembly: Assembly) -> list[str]:
    return [*map(str, settings.loaded.warnings), *assembly.warnings]


def _row(name: str, assembly: Assembly, provider: Provider) -> dict[str, Any]:
    """One tool as programs read it."""
    verdict = assembly.decision.verdicts[name]
    entry, tool = CATALOG.get(name), assembly.tools.get(name)
    available = tool is not None or entry is None or entry.available
    row: dict[str, Any] = {
        "tool": name,
        "section": entry.section if entry else "Other",
        "description": entry.description if entry else tool.description if tool else "",
        "source": assembly.sources[name],
        "available": available,
        "allowed": verdict.kept,
        "inForce": tool is not None,
    }
    if tool is not None:
        row["tokens"] = token_cost(tool.name, tool.description, tool.offered, provider)
    if verdict.removed_by is not None:
        row["removedBy"] = _trace(verdict.removed_by)
    return row


def _trace(trace: Trace) -> dict[str, Any]:
    return trace._asdict()


@tools.command("list")
@click.option(
    "--all", "everything", is_flag=True, help="Also what policy removed, is off or is not built."
)
@json_option
@scope_options
def list_tools(everything: bool, as_json: bool, **options: Any) -> None:
    """List the tools in force, and how many tokens each costs per request."""
    settings, assembly = _open(options)
    provider = target_of(settings.scope.model)
    rows = [_row(name, assembly, provider) for name in assembly.sources]
    remarks = _remarks(settings, assembly)
    if as_json:
        shown = rows if everything else [row for row in rows if row["inForce"]]
        print_json({"tools": shown, "warnings": remarks})
        return
    _print_list(rows, everything)
    warn(remarks)


def _print_list(rows: list[dict[str, Any]], everything: bool) -> None:
    section = ""
    for row in rows:
        if not (everything or row["inForce"]):
            continue
        if row["section"] != section:
            section = row["section"]
            click.secho(section, bold=True)
        note = (
            f"{row['tokens']} tokens" if row["inForce"] else click.style(_absence(row), fg="yellow")
        )
        click.echo(f"  {row['tool']:<18} {row['description']:<46} {note}")
    in_force = sum(row["inForce"] for row in rows)
    off = sum(map(_is_off, rows))
    removed = sum(not row["allowed"] for row in rows) - off
    unbuilt = sum(row["allowed"] and not row["available"] for row in rows)
    click.echo(
        f"{in_force} in force, {removed} removed by policy, {off} off by settings, "
        f"{unbuilt} not available in this build."
    )
    if not everything:
        click.echo(
            "Try: clawkit tools list --all, clawkit tools explain exec, clawkit tools call ls"
        )


def _is_off(row: dict[str, Any]) -> bool:
    """Whether policy leaves a tool that other settings keep from the run."""
    return not row["allowed"] and row["removedBy"]["step"] == SETTINGS


def _absence(row: dict[str, Any]) -> str:
    if _is_off(row):
        return printable(f"off: {row['removedBy']['why']}")
    if not row["allowed"]:
        return printable(f"removed: {row['removedBy']['why']}")
    return "not available in this build"


@tools.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@json_option
@scope_options
def explain(names: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Say why a tool is in force or not: which step, which key, which entry.

    Without a name, every tool is explained.

    \b
    clawkit tools explain exec --agent support --model google/gemini-3-pro
    """
    settings, assembly = _open(options)
    provider = target_of(settings.scope.model)
    wanted = [_known(name, assembly) for name in names] or list(assembly.sources)
    rows = [
        _row(name, assembly, provider)
        | {
            "steps": [_trace(trace) for trace in assembly.decision.verdicts[name].traces],
            "rules": _rules_for(name, settings, assembly),
        }
        for name in wanted
    ]
    remarks = _remarks(settings, assembly)
    if as_json:
        print_json(
            {**rows[0], "warnings": remarks}
            if len(names) == 1
            else {"tools": rows, "warnings": remarks}
        )
        return
    for row in rows:
        _print_explanation(row)
    warn(remarks)


def _known(name: str, assembly: Assembly) -> str:
    key = canonical(name)
    if key in assembly.sources:
        return key
    close = nearest(key, tuple(assembly.sources), 3)
    hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
    raise UnknownToolError(f"there is no tool called {name!r}{hint}")


def _rules_for(name: str, settings: Settings, assembly: Assembly) -> list[dict[str, Any]]:
    """The argument rules that may speak up when the tool is called."""
    configured = settings.loaded.config.tools.rules
    return [
        {
            "key": f"tools.rules[{rule.number}]",
            "effect": rule.effect,
            "action": configured[rule.number].action,
            "params": configured[rule.number].params,
        }
        for rule in assembly.rules
        if rule.tools.find(name) is not None
    ]


def _print_explanation(row: dict[str, Any]) -> None:
    if _is_off(row):
        head = click.style("off by settings", fg="yellow")
    elif not row["allowed"]:
        head = click.style("removed by policy", fg="red")
    elif not row["available"]:
        head = click.style("allowed, but not available in this build", fg="yellow")
    else:
        head = click.style("in force", fg="green") + f", about {row['tokens']} tokens per request"
    click.echo(f"{click.style(row['tool'], bold=True)} ({row['source']}): {head}")
    for step in row["steps"]:
        mark = "keeps  " if step["effect"] == "allow" else "removes"
        why = printable(f"{step['step']}: {step['why']}")
        click.echo(f"  step {step['number']:>2} {mark} {why}")
    if not row["steps"]:
        click.echo("  no step restricts it")
    for rule in row["rules"]:
        action = {} if rule["action"] is None else {"action": rule["action"]}
        conditions = (
            json.dumps({**action, **rule["params"]}) if action or rule["params"] else "called"
        )
        click.echo(f"  {rule['key']}: {rule['effect']} when {printable(conditions)}")


@tools.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--provider",
    type=click.Choice(PROVIDERS),
    help="Model API to adapt to. Default: that of --model, else anthropic.",
)
@click.option("--strict", is_flag=True, help="OpenAI strict mode.")
@always_json
@scope_options
def schema(names: tuple[str, ...], provider: Provider | None, strict: bool, **options: Any) -> None:
    """Print the declarations of the tools in force as JSON, as a model API takes them."""
    settings, assembly = _open(options)
    target = provider or target_of(settings.scope.model)
    if strict and not target.startswith("openai"):
        raise click.UsageError("--strict goes with --provider openai or openai-responses")
    chosen = [_in_force(name, assembly) for name in names] or list(assembly.tools.values())
    print_json(
        [
            declare(tool.name, tool.description, tool.offered, target, strict=strict)
            for tool in chosen
        ]
    )


def _in_force(name: str, assembly: Assembly) -> Any:
    key = _known(name, assembly)
    if not assembly.decision.verdicts[key].kept:
        raise ToolAuthorizationError(assembly.decision.refusal(key))
    if key not in assembly.tools:
        raise UnknownToolError(f"the tool {key!r} is not available in this build")
    return assembly.tools[key]


@tools.command(short_help="Call a tool and print its result as JSON.")
@click.argument("name")
@click.argument("params", default="", metavar="[JSON]")
@click.option("--text", is_flag=True, help="Print only the text of the result.")
@always_json
@scope_options
def call(name: str, params: str, text: bool, **options: Any) -> None:
    """Call a tool and print its result as JSON: {"content": […], "details": {…}}.

    JSON is the parameters as an object; `-` reads them from standard input. The exit code is 0 for
    success, 1 when the tool failed, 3 when policy or a person refused.

    \b
    clawkit tools call read '{"path": "README.md", "limit": 5}' --text
    """
    from clawkit.cli.calling import run_one

    settings = read_settings(options)
    sys.exit(run_one(settings, name, params, text=text))


@tools.command()
@click.argument("file", metavar="FILE")
@click.option(
    "--later",
    is_flag=True,
    help="Do not refuse commands that nobody here can be asked about: have them wait for "
    "`clawkit approvals resolve`, and tell what became of them in lines of their own.",
)
@always_json
@scope_options
def run(file: str, later: bool, **options: Any) -> None:
    """Carry out the calls in a JSONL file (`-`: standard input), one after the other.

    Each line is {"tool": …, "params": …, "id": …}; each answer is one line with the same id. The
    exit code is that of the worst call.

    \b
    printf '{"tool":"ls"}\\n{"tool":"session_status"}\\n' | clawkit tools run -
    """
    from clawkit.cli.calling import run_many

    settings = read_settings(options)
    sys.exit(run_many(settings, file, later=later))
