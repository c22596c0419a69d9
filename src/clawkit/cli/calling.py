"""Calling tools from the command line: parameters in, results and exit codes out."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

import click

from clawkit.agent.assemble import assemble
from clawkit.approvals.seam import Gate
from clawkit.cli.options import Settings, is_command, is_terminal, print_json, warn
from clawkit.cli.terminal import TerminalApprover
from clawkit.core.approval import Approver
from clawkit.core.bounded import in_thread
from clawkit.core.call import CallRequest, Event, OnEvent, Run, call
from clawkit.core.result import Result
from clawkit.process.base import Commands
from clawkit.process.hidden import hide_memory
from clawkit.runtime import close_run, make_run, resolve_workspace
from clawkit.services import Services
from clawkit.text import human_size, one_line, printable
from clawkit.tools.commanding import owner_of

T = TypeVar("T")

MAX_LINE = 16 * 1024 * 1024


def run_one(settings: Settings, name: str, params: str, *, text: bool) -> int:
    """One call; its result on standard output; the exit code that goes with it."""
    given = _read_params(params)
    run = _prepare(settings)
    result = asyncio.run(_closing(run, _interruptible(run, CallRequest(name, given))))
    if text:
        shown = str(result.details.get("error") or result.as_text())
        stream = sys.stderr if result.is_error else sys.stdout
        click.echo(printable(shown) if is_terminal(stream) else shown, file=stream)
    else:
        print_json(result.to_json())
    return exit_code(result)


def run_many(settings: Settings, file: str, *, later: bool = False) -> int:
    """One result line per call; the worst exit code. A bad line is an answer, not an end."""
    run = _prepare(settings, later=later)
    fd = _open_lines(file)
    try:
        return asyncio.run(_closing(run, _answer_all(run, _Lines(fd), later=later)))
    finally:
        os.close(fd)


async def _closing(run: Run, work: Coroutine[Any, Any, T]) -> T:
    """The work, and then the end of whatever it left running."""
    try:
        return await work
    finally:
        tell_ending(run)
        await close_run(run)


def tell_ending(run: Run) -> None:
    """Commands in the background that end now: nobody should have to wonder where they went."""
    if isinstance(run.services, Services) and run.services.is_made(Commands):
        mine = run.services[Commands].all(owner_of(run.scope))  # type: ignore[attr-defined]
        running = [each for each in mine if each.exit is None or each.left]
        names = [each.id for each in running if not each.launch.detach]
        if names:
            click.echo(
                f"clawkit: ending what still runs of {', '.join(names)} "
                "(with detach a command lives on)",
                err=True,
            )


class _Lines:
    """The lines of a file or a pipe. Commands in the background go on while one is waited for."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = b""

    async def next(self) -> bytes:
        """The next line, with its end; empty when there is none; at most one byte too long."""
        # By newline only: other line separators may stand inside JSON strings.
        parts, size = [self._buffer], len(self._buffer)
        while b"\n" not in parts[-1] and size <= MAX_LINE:
            more = await in_thread(os.read, self._fd, 1 << 16)
            if not more:
                break
            parts.append(more)
            size += len(more)
        data = b"".join(parts)
        end = min(data.find(b"\n") + 1 or len(data), MAX_LINE + 1)
        line, self._buffer = data[:end], data[end:]
        return line


async def _answer_all(run: Run, lines: _Lines, *, later: bool) -> int:
    worst, number = 0, 0
    watch = _print_notice if later else None
    while line := await lines.next():
        number += 1
        if not line.strip():
            continue
        result, given_id = await _answer(run, line, number, watch)
        answer = {"id": given_id, **result.to_json()} if given_id is not None else result.to_json()
        click.echo(json.dumps(answer, ensure_ascii=False))
        sys.stdout.flush()
        worst = max(worst, exit_code(result))
        if len(line) > MAX_LINE:
            break  # where the next line begins is anybody's guess
    if later and isinstance(run.services, Services) and run.services.is_made(Gate):
        gate: Any = run.services[Gate]
        await gate.finish()
    return worst


def _print_notice(event: Event) -> None:
    """What became of a call that was answered long ago."""
    if event["type"] == "notice":
        click.echo(json.dumps({"notice": event["callId"], **event}, ensure_ascii=False))
        sys.stdout.flush()


async def _answer(run: Run, line: bytes, number: int, watch: OnEvent | None) -> tuple[Result, Any]:
    if len(line) > MAX_LINE:
        return Result.error("", f"line {number} is longer than {MAX_LINE} bytes", code=400), None
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Result.error("", f"line {number} is not JSON: {error}", code=400), None
    if not isinstance(request, dict) or not isinstance(request.get("tool"), str):
        problem = f'line {number} must be an object like {{"tool": "ls", "params": {{}}}}'
        return Result.error("", problem, code=400), None
    given_id = request.get("id")
    if not (given_id is None or isinstance(given_id, (str, int))):
        return Result.error(
            "", f"line {number}: the id must be text or a whole number", code=400
        ), None
    unknown = sorted(set(request) - {"tool", "params", "id"})
    if unknown:
        problem = f"line {number} has unknown keys: {', '.join(unknown)}"
        return Result.error(request["tool"], problem, code=400), given_id
    call_id = "" if given_id is None else str(given_id)
    asked = CallRequest(request["tool"], request.get("params"), call_id)
    return await _interruptible(run, asked, watch), given_id


def _open_lines(file: str) -> int:
    if file == "-" and sys.stdin is not None:
        return os.dup(sys.stdin.fileno())
    try:
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise click.UsageError(f"cannot read {file!r}: {error.strerror}") from None


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
            "Give them as an object, in single quotes for the shell: "
            """'{"path": "README.md"}'"""
        ) from None


def _prepare(settings: Settings, *, later: bool = False) -> Run:
    loaded, scope = settings.loaded, settings.scope
    assembly = assemble(loaded.config, scope)
    warn([*map(str, loaded.warnings), *assembly.warnings])
    workspace = resolve_workspace(loaded.config, scope.agent, settings.workspace)
    if "exec" in assembly.tools:
        hide_memory()
    has_person = is_terminal(sys.stdin) and is_terminal(sys.stderr) and not is_command()
    approver: Approver | None = TerminalApprover() if has_person else None
    return make_run(loaded, assembly, scope, workspace, approver=approver, later=later)


async def _interruptible(run: Run, request: CallRequest, watch: OnEvent | None = None) -> Result:
    """The call, stopped cleanly by Ctrl-C or a polite kill."""
    progress = _show_progress if is_terminal(sys.stderr) else None
    task = asyncio.ensure_future(call(run, request, watch or progress))
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)


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
    """0 ok, 1 the tool failed, 3 refused."""
    if result.details.get("status") == "blocked":
        return 3
    return 1 if result.is_error else 0
