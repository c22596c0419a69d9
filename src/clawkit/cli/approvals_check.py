"""`clawkit approvals check`: how a command would be judged, without running it."""

from __future__ import annotations

import json
from typing import Any, BinaryIO

import click

from clawkit.approvals.entries import describe_grants
from clawkit.approvals.prompt import show_command, warnings_about
from clawkit.approvals.types import Decision, Match, Miss, Program
from clawkit.cli.shared_options import print_json_line
from clawkit.command_check import NOT_ANALYSED, Checker, pair_results, to_json
from clawkit.process.protocols import NO_GRANTS
from clawkit.text import one_line

MAX_LINE = 16 * 1024 * 1024
_COLOURS = {"allow": "green", "ask": "yellow", "deny": "red"}


def say_place(decision: Decision, backend: str) -> str:
    """Where it runs, such as `in the sandbox (bwrap)`."""
    if decision.place == "sandbox":
        return f"in the sandbox ({backend})" if backend else "in the sandbox"
    how = "confined, by entry" if decision.place == "entry" else "unconfined"
    return f"on the host, {how}"


def show(decision: Decision, command: str, backend: str = "") -> None:
    """Print the decision for people; `backend` is the sandbox backend, if any."""
    place = say_place(decision, backend)
    click.secho(decision.verdict, fg=_COLOURS[decision.verdict], bold=True, nl=False)
    click.echo(f"{f', {place}' if decision.verdict == 'allow' else ''}: {_one(decision.reason)}")
    if decision.verdict == "ask":
        click.echo(f"  if approved, it runs {place}")
    for warning in warnings_about(command):
        click.echo(f"  warning: {warning}")
    if decision.grants != NO_GRANTS:
        click.echo(f"  granted beyond the sandbox: {describe_grants(decision.grants)}")
    # In the sandbox no part of it needs an entry.
    is_inside = decision.place == "sandbox"
    for judged in () if is_inside else decision.segments:
        click.echo(f"  {_short(judged.segment.text, 100)}")
        for program, result in pair_results(judged):
            _show_result(program, result, decision)
    if decision.doubt is not None and decision.doubt.code != "empty" and not is_inside:
        # Mark the position in the command where the parser gave up.
        start = command.rfind("\n", 0, decision.doubt.at) + 1
        end = command.find("\n", decision.doubt.at)
        line = command[start : end if end >= 0 else len(command)]
        left = max(0, decision.doubt.at - start - 40)
        before = _one(line[left : decision.doubt.at - start])
        click.echo(f"    {before}{_one(line[decision.doubt.at - start :][:60])}")
        click.echo(f"    {' ' * len(before)}^ here")
    if decision.verdict == "allow" and decision.segments and not is_inside:
        click.echo(f"  runs as: {_short(decision.run, 400)}")
        if decision.programs is not None:
            only = ", ".join(map(_one, decision.programs)) or "no program"
            click.echo(f"  the kernel (with Landlock) lets it start only: {only}")
    if decision.policy.sources:
        click.echo(f"  in force: {'; '.join(map(_one, decision.policy.sources))}")
    if advice := _advise(decision):
        click.echo(advice)


def _show_result(program: Program | None, result: Match | Miss, decision: Decision) -> None:
    path = f"{_one(program.resolved)}: " if program is not None and program.resolved else ""
    if isinstance(result, Match):
        click.secho("    ok    ", fg="green", nl=False)
        click.echo(f"{path}{_one(result.rule)}")
        return
    word, colour = ("no", "red") if decision.verdict == "deny" else ("asks", "yellow")
    click.secho(f"    {word:4}  ", fg=colour, nl=False)
    click.echo(f"{path}{_one(result.reason)}")
    # Pointless if there is advice for the whole command, or if no entry would help.
    is_about_rules = not decision.human_only and decision.policy.ask != "always"
    if result.to_allow and not decision.to_allow and is_about_rules:
        click.echo(f"          to allow it: {result.to_allow}")


def _advise(decision: Decision) -> str:
    if decision.to_allow:
        return f"To allow it from now on: {decision.to_allow}"
    if decision.verdict == "allow" or decision.code in (*NOT_ANALYSED, "sandbox"):
        return ""
    if decision.policy.ask == "always" and not decision.human_only:
        return "No allowlist entry changes that while every command needs approval."
    if decision.doubt is None and not decision.human_only:
        # An entry for a program that the agent can change is not suggested, but would help.
        return "No allowlist entry is suggested for this; a person can allow it each time."
    said = "No allowlist entry can allow it as written; a person can, each time."
    if decision.doubt is not None and decision.doubt.code != "empty":
        said += " Without the part marked above, each of its commands is checked separately."
    return said


def _one(text: str) -> str:
    return show_command(text, keep="")


def _short(text: str, most: int) -> str:
    return one_line(show_command(text), most)


def check_lines(checker: Checker, lines: BinaryIO) -> int:
    """Print one answer per line; returns 1 if a line is invalid, else 0."""
    worst, number = 0, 0
    while line := lines.readline(MAX_LINE + 1):
        number += 1
        if not line.strip():
            continue
        answer = _answer(checker, line, number)
        worst = max(worst, int("error" in answer))
        print_json_line(answer)
        while len(line) > MAX_LINE and not line.endswith(b"\n"):
            line = lines.readline(MAX_LINE + 1)
    return worst


def _answer(checker: Checker, line: bytes, number: int) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    try:
        if len(line) > MAX_LINE:
            raise ValueError(f"is longer than {MAX_LINE:,} bytes")
        try:
            case = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"is not JSON: {error}") from None
        if isinstance(case, dict) and isinstance(case.get("id"), str | int):
            answer["id"] = case["id"]
        return answer | to_json(checker.check(case))
    except ValueError as error:
        said = f"line {number} {error}"
        return answer | {"verdict": "deny", "error": said, "analysis": None, "segments": []}
