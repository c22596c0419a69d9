"""`clawkit tools`: list tools, explain why each is in force or not, and call them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Coroutine
from typing import Any, TypeVar

import click
from msgspec.structs import replace

from clawkit import runtime
from clawkit.agent.assemble import Assembly, assemble
from clawkit.agent.explanation import deferral_row, explain_tool, tool_row
from clawkit.agent.model import target_of
from clawkit.approvals.protocols import ExecGate
from clawkit.cli import shared_options as cli
from clawkit.cli.terminal_approver import TerminalApprover
from clawkit.core.approval import Approver
from clawkit.core.call import CallRequest, Event, OnEvent, Run
from clawkit.core.call import call as call_tool
from clawkit.core.catalog import CATALOG, canonical
from clawkit.core.context import InForce
from clawkit.core.result import Result, error_message
from clawkit.errors import ToolAuthorizationError, UnknownToolError
from clawkit.line_reader import LineReader
from clawkit.process.libc import hide_memory
from clawkit.schema.choose import PROVIDERS, Provider, declare
from clawkit.services import Services
from clawkit.text import human_size, one_line, printable

T = TypeVar("T")

MAX_LINE = 16 * 1024 * 1024
_complete = cli.completed_from(lambda: CATALOG)


def _open(
    options: dict[str, Any], tool: str = ""
) -> tuple[cli.ResolvedOptions, Assembly, list[str]]:
    """The settings, the tools, and warnings about both, limited to those relevant to `tool`."""
    settings = cli.read_settings(options)
    loaded, scope = settings.loaded, settings.scope
    extra = runtime.external_tools(loaded.config, scope, settings.workspace)
    assembly = assemble(loaded.config, scope, extra)
    remarks = [*map(str, loaded.warnings), *assembly.warnings]
    if not tool or canonical(tool) not in assembly.sources:  # its origin may be left out
        remarks += runtime.external_remarks(loaded.config)
    return settings, assembly, remarks


@click.command("list")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Include tools that policy removed, that are off, or that are not available.",
)
@cli.json_option
@cli.scope_options
def list_tools(everything: bool, as_json: bool, **options: Any) -> None:
    """List the tools in force, and how many tokens each costs per request."""
    settings, assembly, remarks = _open(options)
    provider = target_of(settings.scope.model)
    rows = [tool_row(name, assembly, provider) for name in assembly.sources]
    shown = [row for row in rows if everything or row["inForce"]]
    deferral = deferral_row(assembly)
    if as_json:
        cli.print_json({"tools": shown, "deferral": deferral, "warnings": remarks})
        return
    section = ""
    for row in shown:
        state = row["state"]
        if row["section"] != section:
            section = row["section"]
            click.secho(section, bold=True)
        note = f"{row['tokens']} tokens" if row["inForce"] else state
        if row["inForce"] and row["deferred"]:
            note = f"deferred, {note} if described"
        if not row["allowed"]:
            note = printable(f"{state.partition(' ')[0]}: {row['removedBy']['why']}")
        note = note if row["inForce"] else click.style(note, fg="yellow")
        about = printable(one_line(row["description"], 200))
        click.echo(f"  {row['tool']:<18} {about:<46} {note}")
    count = Counter(row["state"] for row in rows)
    click.echo(", ".join(f"{count[state]} {state}" for state in _STATES) + ".")
    if deferral["deferred"]:
        saved = deferral["tokensSaved"]
        effect = f"{'saves' if saved >= 0 else 'adds'} about {abs(saved):,} tokens per request"
        click.echo(f"Deferred: {deferral['deferred']} of those in force, which {effect}.")
    if not everything:
        click.echo(
            "Try: clawkit tools list --all, clawkit tools explain exec, clawkit tools call ls"
        )
    cli.warn(remarks)


_STATES = {
    "in force": "green",
    "removed by policy": "red",
    "off by settings": "yellow",
    "not available in this build": "yellow",
}


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=_complete)
@cli.json_option
@cli.scope_options
def explain(names: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Explain why a tool is in force or not: which step, setting and entry.

    Without NAME, all tools are explained.

    \b
    clawkit tools explain exec --agent support --model google/gemini-3-pro
    """
    settings, assembly, remarks = _open(options)
    provider = target_of(settings.scope.model)
    if any(canonical(name) not in assembly.sources for name in names):
        cli.warn(remarks)  # the tool may belong to something that was left out
    wanted = [_known(name, assembly) for name in names] or list(assembly.sources)
    config = settings.loaded.config
    rows = [explain_tool(name, assembly, provider, config) for name in wanted]
    if as_json:
        shown = rows[0] if len(names) == 1 else {"tools": rows}
        agent = {"id": settings.scope.agent, "chosenBy": settings.chosen_by or None}
        cli.print_json({**shown, "agent": agent, "warnings": remarks})
        return
    if by := settings.chosen_by:
        click.echo(f"{by} chooses the agent {printable(settings.scope.agent)}")
    for row in rows:
        state = row["state"]
        head = click.style(
            state if row["available"] or not row["allowed"] else f"allowed, but {state}",
            fg=_STATES[state],
        )
        if row["inForce"]:
            head += f", about {row['tokens']} tokens per request"
            head += " if it were not deferred (tools.toolSearch)" if row["deferred"] else ""
        click.echo(f"{click.style(row['tool'], bold=True)} ({row['source']}): {head}")
        for step in row["steps"]:
            mark = "keeps  " if step["effect"] == "allow" else "removes"
            why = printable(f"{step['step']}: {step['why']}")
            click.echo(f"  step {step['number']:>2} {mark} {why}")
        if not row["steps"]:
            click.echo("  no step restricts it")
        for rule in row["rules"]:
            action = {} if rule["action"] is None else {"action": rule["action"]}
            conditions = {**action, **rule["params"]}
            when = json.dumps(conditions) if conditions else "called"
            click.echo(f"  {rule['key']}: {rule['effect']} when {printable(when)}")
    cli.warn(remarks)


def _known(name: str, assembly: Assembly) -> str:
    key = canonical(name)
    if key in assembly.sources:
        return key
    raise UnknownToolError(f"unknown tool {name!r}{cli.suggest(key, assembly.sources)}")


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=_complete)
@click.option(
    "--provider",
    type=click.Choice(PROVIDERS),
    help="Model API to adapt to. Default: that of --model, else anthropic.",
)
@click.option("--strict", is_flag=True, help="OpenAI strict mode.")
@cli.always_json
@cli.scope_options
def schema(names: tuple[str, ...], provider: Provider | None, strict: bool, **options: Any) -> None:
    """Print the declarations of tools as JSON, in the format of a model API.

    Without NAME, those that a model is given: all tools in force, except deferred ones.
    """
    settings, assembly, _ = _open(options)
    target = provider or target_of(settings.scope.model)
    if strict and not target.startswith("openai"):
        raise click.UsageError("--strict requires --provider openai or openai-responses")
    chosen = [_in_force(name, assembly) for name in names] or list(assembly.direct.values())
    facts = ((each.name, each.description, each.offered) for each in chosen)
    cli.print_json([declare(*fact, target, strict=strict) for fact in facts])


def _in_force(name: str, assembly: Assembly) -> Any:
    key = _known(name, assembly)
    if not assembly.decision.verdicts[key].allowed:
        raise ToolAuthorizationError(assembly.decision.refusal(key))
    if key not in assembly.tools:
        raise UnknownToolError(f"the tool {key!r} is not available in this build")
    return assembly.tools[key]


@click.command()
@click.argument("name", shell_complete=_complete)
@click.argument("params", default="", metavar="[JSON]")
@click.option("--text", is_flag=True, help="Print only the text of the result.")
@cli.always_json
@cli.scope_options
def call(name: str, params: str, text: bool, **options: Any) -> None:
    """Call a tool and print its result as JSON: {"content": […], "details": {…}}.

    JSON is an object with the parameters; `-` reads it from standard input. A command runs to its
    end, unless the call has background or yieldMs. The exit code is 0 for success, 1 if the tool
    failed, 3 if policy or a person refused.

    \b
    clawkit tools call read '{"path": "README.md", "limit": 5}' --text
    """
    given, run = _read_params(params), _prepare(options, name)
    result = asyncio.run(_closing(run, _interruptible(run, CallRequest(name, given))))
    if text:
        cli.print_text(error_message(result.details) or result.as_text(), err=result.is_error)
    else:
        cli.print_json(result.to_json())
    sys.exit(exit_code(result))


@click.command()
@click.argument("file", metavar="FILE")
@click.option(
    "--later",
    is_flag=True,
    help="Let commands that need approval wait for `clawkit approvals resolve` instead of "
    "refusing them, and report each outcome on a separate line.",
)
@cli.always_json
@cli.scope_options
def run(file: str, later: bool, **options: Any) -> None:
    """Make the tool calls in a JSONL file (`-` for standard input), one after another.

    Each line is {"tool": …, "params": …, "id": …}; each answer is one line with the same id. The
    exit code is the highest of all calls.

    \b
    printf '{"tool":"ls"}\\n{"tool":"session_status"}\\n' | clawkit tools run -
    """
    run = _prepare(options, later=later)
    try:
        is_stdin = file == "-" and sys.stdin is not None
        fd = os.dup(sys.stdin.fileno()) if is_stdin else os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        os.read(fd, 0)  # fails for a directory
    except OSError as error:
        raise click.UsageError(f"cannot read {file!r}: {error.strerror}") from None
    try:
        lines = LineReader(fd, MAX_LINE)
        sys.exit(asyncio.run(_closing(run, _answer_all(run, lines, later=later))))
    finally:
        os.close(fd)


async def _closing(run: Run, work: Coroutine[Any, Any, T]) -> T:
    """Do the work, then stop everything it left running."""
    try:
        return await work
    finally:
        cli.tell_ending(run)
        await runtime.close_run(run)


async def _answer_all(run: Run, lines: LineReader, *, later: bool) -> int:
    """Answer every call with one line; returns the highest exit code. Continues after an invalid
    line."""
    worst, number = 0, 0
    watch = _print_notice if later else None
    while line := await lines.next():
        number += 1
        if not line.strip():
            continue
        result, given_id = await _answer(run, line, number, watch)
        id_ = {} if given_id is None else {"id": given_id}
        cli.print_json_line({**id_, **result.to_json()})
        worst = max(worst, exit_code(result))
        if len(line) > MAX_LINE:
            break  # the start of the next line is unknown
    if later and isinstance(run.services, Services) and run.services.is_created(ExecGate):
        gate: Any = run.services[ExecGate]
        await gate.finish()
    return worst


def _print_notice(event: Event) -> None:
    if event["type"] == "notice":
        cli.print_json_line({"notice": event["callId"], **event})


async def _answer(run: Run, line: bytes, number: int, watch: OnEvent | None) -> tuple[Result, Any]:
    def refuse(problem: str, tool: str = "", id_: Any = None) -> tuple[Result, Any]:
        return Result.error(tool, f"line {number}{problem}", code=400), id_

    if len(line) > MAX_LINE:
        return refuse(f" is longer than {MAX_LINE} bytes")
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        return refuse(f" is not JSON: {error}")
    if not isinstance(request, dict) or not isinstance(request.get("tool"), str):
        return refuse(' must be an object like {"tool": "ls", "params": {}}')
    given_id = request.get("id")
    if not (given_id is None or isinstance(given_id, (str, int))):
        return refuse(": the id must be a string or an integer")
    if unknown := sorted(set(request) - {"tool", "params", "id"}):
        return refuse(f" has unknown keys: {', '.join(unknown)}", request["tool"], given_id)
    call_id = "" if given_id is None else str(given_id)
    asked = CallRequest(request["tool"], request.get("params"), call_id)
    return await _interruptible(run, asked, watch), given_id


def _read_params(text: str) -> object:
    if text == "-":
        text = sys.stdin.read(MAX_LINE) if sys.stdin is not None else ""
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except RecursionError:
        raise click.UsageError("the parameters are nested too deeply") from None
    except ValueError as error:
        raise click.UsageError(
            f"the parameters are not JSON: {error}\n"
            "Pass an object, in single quotes for the shell: "
            """'{"path": "README.md"}'"""
        ) from None


def _prepare(options: dict[str, Any], tool: str = "", *, later: bool = False) -> Run:
    settings, assembly, remarks = _open(options, tool)
    cli.warn(remarks)
    loaded, scope = settings.loaded, settings.scope
    workspace = runtime.resolve_workspace(loaded.config, scope.agent, settings.workspace)
    if "exec" in assembly.tools:
        hide_memory()
    is_person = cli.can_ask() and not cli.is_command()
    approver: Approver | None = TerminalApprover() if is_person else None
    run = runtime.make_run(loaded, assembly, scope, workspace, approver=approver, later=later)
    if isinstance(run.services, Services):
        run.services.fill(InForce, lambda: replace(assembly.in_force, is_one_shot=True))
    return run


async def _interruptible(run: Run, request: CallRequest, watch: OnEvent | None = None) -> Result:
    """Make the call; Ctrl-C and SIGTERM stop it cleanly."""
    progress = _show_progress if cli.is_terminal(sys.stderr) else None
    task = asyncio.ensure_future(call_tool(run, request, watch or progress))
    with cli.cancelled_by_signals(task):
        try:
            return await task
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


def _show_progress(event: Event) -> None:
    facts = event.get("details", {})
    if event["type"] == "update" and "elapsedMs" in facts:
        last = one_line(facts["tail"].rstrip().rpartition("\n")[2], 120)
        said = f"… {facts['elapsedMs'] / 1000:.0f} s, {human_size(facts['bytes'])}: {last}"
        click.secho(printable(said), fg="bright_black", err=True)
    elif event["type"] in ("update", "notice"):
        for block in event.get("content", ()):
            text = printable(block.get("text", "[image]"))
            click.secho(f"… {text}", fg="bright_black", err=True)


def exit_code(result: Result) -> int:
    """0 success, 1 the tool failed, 3 refused."""
    return 3 if result.details.get("status") == "blocked" else int(result.is_error)
