"""The options of `clawkit cron add`, and the job that they define."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial, reduce
from typing import Any

import click

from clawkit.cli import shared_options as cli
from clawkit.cron.expression import find_zone, known_zone
from clawkit.cron.phrases import read_phrase
from clawkit.cron.schedule import Schedule, read_schedule, write_schedule
from clawkit.text import parse_time
from clawkit.ui.jobs import now_ms as current_ms

MAX_FILE = 1024**2
IN_ARGUMENTS = "*"
"""Value of an option with an optional value that has none."""
_WAYS = {"message": "agentTurn", "event": "systemEvent", "command": "command", "script": "script"}
_option = click.option
_optional = partial(click.option, is_flag=False, flag_value=IN_ARGUMENTS)
_ABOUT_COMMAND = "Run a command in a shell, or directly with: --command -- PROGRAM ARGUMENT..."
_ABOUT_THINKING = f"How much the model may think: {', '.join(cli.THINKING)}."
_OPTIONS = (
    _option("-m", "--message", help="Message that an agent answers."),
    _option("--event", metavar="TEXT", help="Message for the main session."),
    _optional("--command", help=_ABOUT_COMMAND),
    _option("--script", metavar="FILE", help="Run Python code; - reads standard input."),
    _option("--name", help="Name of the job."),
    _option("--agent", help="Agent of the job. Default: the default agent."),
    _option("--session", metavar="TARGET", help="Session: main, isolated or session:ID."),
    _option("--model", help="Model of the turn.", shell_complete=cli.complete_model),
    _option(
        "--thinking", type=click.Choice(("", *cli.THINKING)), metavar="LEVEL", help=_ABOUT_THINKING
    ),
    _option("--timeout", metavar="TIME", help="Maximum duration of a run, such as 90s or 10m."),
    _option("--tools", metavar="A,B", help="Only these tools for the turn; '' for none."),
    _option("--grant", "grants", multiple=True, help="Allow exactly this command without asking."),
    _option("--tz", metavar="ZONE", help="Time zone, such as Europe/Vienna."),
    _option("--exact", is_flag=True, help="Run exactly on time, not up to 5 minutes later."),
    _optional("--announce", metavar="[SESSION]", help="Report the result in a session."),
    _option("--webhook", metavar="URL", help="Send the result to a URL."),
    _option(
        "--no-deliver",
        is_flag=True,
        help="Do not deliver the result; `clawkit cron runs` shows it.",
    ),
    _option(
        "--keep/--no-keep", default=None, help="Keep a job that runs once, instead of removing it."
    ),
    _option("--disabled", is_flag=True, help="Disable the job."),
    _option(
        "--on-exit",
        metavar="COMMAND",
        help="Run it when this command exits; with --keep, every time.",
    ),
    _option("--stream", metavar="COMMAND", help="Run it when this command prints lines."),
    _option("--match", metavar="REGEX", help="Only lines of --stream that match."),
    _option(
        "--overlap/--no-overlap", default=None, help="Start even if the last run has not ended."
    ),
    cli.json_option,
)


def job_options(command: Any) -> Any:
    return reduce(lambda made, option: option(made), reversed(_OPTIONS), command)


def _read_schedule(words: Sequence[str], options: Mapping[str, Any]) -> Schedule | None:
    """The schedule on a command line; None if there is none."""
    phrase, now_ms = " ".join(words).strip(), current_ms()
    if sum(map(bool, (phrase, options["on_exit"], options["stream"]))) > 1:
        raise click.UsageError("give one of SCHEDULE, --on-exit and --stream")
    if options["match"] and not options["stream"]:
        raise click.UsageError("--match is for --stream")
    if (options["tz"] or options["exact"]) and not phrase:
        raise click.UsageError("--tz and --exact require a SCHEDULE")
    if options["on_exit"]:
        return read_schedule({"kind": "on-exit", "command": options["on_exit"]}, now_ms)
    if options["stream"]:
        raw = {"kind": "stream", "command": options["stream"], "match": options["match"]}
        return read_schedule(raw, now_ms)
    if not phrase:
        return None
    try:
        zone = str(find_zone(options["tz"])) if options["tz"] else ""
    except ValueError as error:
        raise click.UsageError(f"--tz: {error}") from None
    last = phrase.rpartition(" ")[2]
    if zone and known_zone(last):
        raise click.UsageError(f"--tz: the schedule already has a zone, {last}; remove one of them")
    exactly = "exactly" if options["exact"] else ""
    return read_phrase(" ".join(filter(None, (phrase, zone, exactly))), now_ms)


def _check_combination(options: Mapping[str, Any]) -> None:
    """Refuse combinations whose errors would otherwise name fields that were not typed."""
    for way in ("message", "event", "command", "script"):
        if options[way] is not None and not options[way].strip():
            raise click.UsageError(f"--{way} must not be empty")
    if options["event"] is not None or options["command"] or options["script"]:
        for name in ("model", "thinking", "tools"):
            if options[name] is not None:
                raise click.UsageError(f"--{name} is for --message")
    if options["message"] is not None and options["session"] == "main":
        raise click.UsageError("--session main is for --event; --announce reports an answer there")
    if options["event"] is not None and options["timeout"] is not None:
        raise click.UsageError("--timeout is not for --event")


def read_options(words: Sequence[str], options: dict[str, Any]) -> dict[str, Any]:
    """The job on a command line, in the format of `cron.add`."""
    for names in (tuple(_WAYS), ("announce", "webhook", "no_deliver")):
        chosen = (each for each in names if options[each] not in (None, False))
        used = [f"--{each.replace('_', '-')}" for each in chosen]
        if len(used) > 1:
            raise click.UsageError(f"{' and '.join(used)} cannot be combined")
    _check_combination(options)
    if options["command"] == IN_ARGUMENTS:
        at = 0 if options["on_exit"] or options["stream"] else 1
        words, options["command"] = words[:at], list(words[at:])
        if not options["command"]:
            raise click.UsageError("--command needs a command: --command TEXT, or at the end -- …")
    elif options["command"]:
        options["command"] = ["sh", "-c", options["command"]]
    schedule = _read_schedule(words, options)
    job = {
        "schedule": write_schedule(schedule) if schedule is not None else None,
        "payload": _read_payload(options) or None,
        "name": options["name"],
        "agentId": options["agent"],
        "sessionTarget": options["session"],
        "overlap": options["overlap"],
        "grants": list(options["grants"]) or None,
        "deleteAfterRun": None if options["keep"] is None else not options["keep"],
        "enabled": False if options["disabled"] else None,
    }
    if options["announce"]:
        to = {} if options["announce"] == IN_ARGUMENTS else {"to": options["announce"]}
        job["delivery"] = {"mode": "announce", **to}
    elif options["webhook"]:
        job["delivery"] = {"mode": "webhook", "to": options["webhook"]}
    elif options["no_deliver"]:
        job["delivery"] = {"mode": "none"}
    return {name: value for name, value in job.items() if value is not None}


def _read_payload(options: Mapping[str, Any]) -> dict[str, Any]:
    tools, timeout, script = options["tools"], options["timeout"], options["script"]
    try:
        is_number = timeout is not None and re.fullmatch(r"[0-9]+", timeout)
        seconds = float(timeout) if is_number else timeout and parse_time(timeout)
    except ValueError as error:
        raise click.UsageError(f"--timeout: {error}") from None
    payload = {
        "kind": next((kind for way, kind in _WAYS.items() if options[way] is not None), None),
        "message": options["message"],
        "text": options["event"],
        "argv": options["command"],
        "script": script and cli.read_input(script, MAX_FILE).decode("utf-8", "replace"),
        "model": options["model"],
        "thinking": options["thinking"],
        "timeoutSeconds": seconds,
        "toolsAllow": tools
        if tools is None
        else [each for each in re.split("[ ,]+", tools) if each],
    }
    return {name: value for name, value in payload.items() if value is not None}
