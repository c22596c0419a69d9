"""`clawkit cron` and `clawkit wake`: jobs, their runs, and a process that runs them."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import reduce, wraps
from typing import TYPE_CHECKING, Any

import click

from clawkit.cli import options as cli
from clawkit.config.load import Loaded, load
from clawkit.config.paths import home
from clawkit.cron.expression import find_zone
from clawkit.cron.jobs import JobState, patch_job, read_job, show_job
from clawkit.cron.phrases import describe, read_phrase
from clawkit.cron.schedule import (
    At,
    CronExpr,
    Schedule,
    iso_time,
    next_after,
    read_schedule,
    read_time,
    stagger_of,
    write_schedule,
)
from clawkit.cron.service import NOTHING_RUNS, SKIP_VARIABLE, CronService
from clawkit.errors import ClawkitError, ConflictError, ToolError, ToolInputError
from clawkit.terminal_text import truncate
from clawkit.text import human_time, one_line, parse_time, printable

if TYPE_CHECKING:
    from clawkit.gateway.client import Link

_HEAD = ("ID", "NAME", "AGENT", "NEXT", "LAST", "FAILED", "SCHEDULE")
_PAGE = 200
_TIMES = 5
_FOLLOW_S, _DELIVERY_S = 0.2, 20.0
_MAX_LINES, _MAX_FILE = 6, 1024**2
_WAYS = {"message": "agentTurn", "event": "systemEvent", "command": "command", "script": "script"}
_HERE = "*"
"""Stands for an option that can have a value, and was given none."""


class Jobs:
    """The jobs that a command is about: those of this home, or of the remote gateway."""

    def __init__(self, loaded: Loaded, service: CronService, link: Link | None) -> None:
        self.loaded, self.service, self.link = loaded, service, link

    def call(self, method: str, **given: Any) -> Any:
        """A method of the gateway, `cron.*`. Raises `ClawkitError` for what does not exist."""
        if self.link is not None:
            from clawkit.gateway.client import CallError

            try:
                return self.link.call(f"cron.{method}", given)
            except CallError as error:
                if error.error.get("code") == "INVALID_REQUEST":
                    raise ClawkitError(str(error)) from None
                raise
        with cli.wrong_usage():
            match method:
                case "list":
                    return self.service.list(include_disabled=True, **given)
                case "add":
                    return self.service.add(given, by="operator")
                case "update":
                    return self.service.update(given["id"], given["patch"], by="operator")
                case "runs":
                    run = given.pop("runId", "")
                    return self.service.runs(given.pop("id", ""), run=run, **given)
            return getattr(self.service, method)(*given.values())

    def every(self, method: str, limit: int, **given: Any) -> Iterator[dict[str, Any]]:
        """The entries of as many pages as are needed, and one more than `limit` if there are."""
        offset: int | None = 0
        while offset is not None and limit >= 0:
            size = min(limit + 1, _PAGE)
            page = self.call(method, limit=size, offset=offset, **given)
            found = page["jobs" if method == "list" else "entries"]
            yield from found
            limit, offset = limit - len(found), page["nextOffset"]


def _with_jobs(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--local` and `--config` to a command, and pass it the jobs."""

    @click.option("--local", is_flag=True, help="Use this home, even if gateway.mode is remote.")
    @cli.config_option
    @wraps(command)
    def run(local: bool, config_file: str | None, **options: Any) -> None:
        from clawkit.automation import open_cron

        loaded = load(config_file)
        cli.warn(map(str, loaded.warnings))
        service, link = open_cron(loaded), None
        settings = loaded.config.gateway
        if not local and settings is not None and settings.mode == "remote":
            from clawkit.gateway.client import connect, find_target

            link = connect(find_target(loaded))
        try:
            command(Jobs(loaded, service, link), **options)
        finally:
            service.store.close()
            if link is not None:
                link.close()

    return run


def _known_jobs() -> Iterator[str]:
    from clawkit.automation import cron_store

    with suppress(ClawkitError, OSError):
        store = cron_store()
        for row in store.all() if store.exists else ():
            yield from (row.job.name, row.job.id)


_complete = cli.completed_from(_known_jobs)
_JOB = click.argument("which", metavar="JOB", shell_complete=_complete)
_OPTIONS = (
    click.option("-m", "--message", help="Let an agent answer this."),
    click.option("--event", metavar="TEXT", help="Tell the main session this."),
    click.option(
        "--command",
        is_flag=False,
        flag_value=_HERE,
        help="Run a command in a shell; or an exact one, as in: --command -- PROGRAM ARGUMENT...",
    ),
    click.option("--script", metavar="FILE", help="Run Python code; - reads standard input."),
    click.option("--name", help="What to call the job."),
    click.option("--agent", help="Agent that does it. Default: the default agent."),
    click.option("--session", metavar="TARGET", help="main, isolated or session:ID."),
    click.option("--model", help="Model of the turn.", shell_complete=cli.complete_model),
    click.option("--thinking", help="How much the model may think: off, low, high and so on."),
    click.option("--timeout", metavar="TIME", help="How long it may take, such as 90s or 10m."),
    click.option("--tools", metavar="A,B", help="The only tools of the turn; '' for none."),
    click.option("--tz", metavar="ZONE", help="Time zone, such as Europe/Vienna."),
    click.option("--exact", is_flag=True, help="Run at the full hour, not minutes after it."),
    click.option(
        "--announce",
        metavar="[SESSION]",
        is_flag=False,
        flag_value=_HERE,
        help="Report the result in a session. Default: the main one.",
    ),
    click.option("--webhook", metavar="URL", help="Send the result to a web address."),
    click.option("--no-deliver", is_flag=True, help="Only keep the result, for `cron runs`."),
    click.option("--keep/--no-keep", default=None, help="Keep a job that runs once."),
    click.option("--disabled", is_flag=True, help="Do not run it until it is enabled."),
    click.option("--on-exit", metavar="COMMAND", help="Run it whenever this command exits."),
    click.option("--stream", metavar="COMMAND", help="Run it for lines that this command prints."),
    click.option("--match", metavar="REGEX", help="Only for lines of --stream that match."),
    click.option("--overlap/--no-overlap", default=None, help="Start although one still runs."),
    click.option("--dry-run", is_flag=True, help="Only print how it is understood."),
    cli.json_option,
)


def _job_options(command: Any) -> Any:
    return reduce(lambda made, option: option(made), reversed(_OPTIONS), command)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# What was typed, as a job


def _read_schedule(words: Sequence[str], given: Mapping[str, Any]) -> Schedule | None:
    """The schedule of a command line; None if there is none."""
    phrase, now_ms = " ".join(words).strip(), _now_ms()
    ways = [name for name in ("on_exit", "stream") if given[name]]
    if len(ways) + bool(phrase) > 1:
        raise click.UsageError("give one of SCHEDULE, --on-exit and --stream")
    if given["match"] and not given["stream"]:
        raise click.UsageError("--match is for --stream")
    if (given["tz"] or given["exact"]) and not phrase:
        raise click.UsageError("--tz and --exact are for a SCHEDULE; type it, too")
    if given["on_exit"]:
        return read_schedule({"kind": "on-exit", "command": given["on_exit"]}, now_ms)
    if given["stream"]:
        raw = {"kind": "stream", "command": given["stream"], "match": given["match"] or None}
        return read_schedule(raw, now_ms)
    if not phrase:
        return None
    try:
        zone = str(find_zone(given["tz"])) if given["tz"] else ""
    except ValueError as error:
        raise click.UsageError(f"--tz: {error}") from None
    return read_phrase(" ".join((phrase, zone, "exactly" * given["exact"])), now_ms)


def _read_options(words: Sequence[str], given: Mapping[str, Any], loaded: Loaded) -> dict[str, Any]:
    """What the options say about a job, as `cron.add` takes it."""
    _refuse_several(given, *_WAYS)
    _refuse_several(given, "announce", "webhook", "no_deliver")
    argv: Sequence[str] = ()
    if given["command"] == _HERE:
        at = 0 if given["on_exit"] or given["stream"] else 1
        words, argv = words[:at], words[at:]
        if not argv:
            raise click.UsageError("--command needs a command: --command TEXT, or at the end -- …")
    elif given["command"]:
        argv = ("sh", "-c", given["command"])
    job: dict[str, Any] = {
        "name": given["name"],
        "agentId": given["agent"] and loaded.config.agents.choose(given["agent"]),
        "sessionTarget": given["session"],
        "overlap": given["overlap"],
        "deleteAfterRun": None if given["keep"] is None else not given["keep"],
        "enabled": False if given["disabled"] else None,
    }
    with cli.wrong_usage():
        schedule = _read_schedule(words, given)
    job["schedule"] = write_schedule(schedule) if schedule is not None else None
    turn = {
        "model": given["model"],
        "thinking": given["thinking"],
        "timeoutSeconds": _seconds(given["timeout"]),
        "toolsAllow": None
        if given["tools"] is None
        else [each.strip() for each in given["tools"].split(",") if each.strip()],
    }
    payload: dict[str, Any] = {name: value for name, value in turn.items() if value is not None}
    if way := next((name for name in _WAYS if given[name] is not None), ""):
        payload["kind"] = _WAYS[way]
    if given["message"] is not None:
        payload["message"] = given["message"]
    elif given["event"] is not None:
        payload["text"] = given["event"]
    elif argv:
        payload["argv"] = list(argv)
    elif given["script"] is not None:
        code = cli.read_input(given["script"], _MAX_FILE)
        payload["script"] = code.decode("utf-8", "replace")
    if payload:
        job["payload"] = payload
    if given["announce"]:
        to = {} if given["announce"] == _HERE else {"to": given["announce"]}
        job["delivery"] = {"mode": "announce", **to}
    elif given["webhook"]:
        job["delivery"] = {"mode": "webhook", "to": given["webhook"]}
    elif given["no_deliver"]:
        job["delivery"] = {"mode": "none"}
    return {name: value for name, value in job.items() if value is not None}


def _refuse_several(given: Mapping[str, Any], *names: str) -> None:
    used = [f"--{each.replace('_', '-')}" for each in names if given[each] not in (None, False)]
    if len(used) > 1:
        raise click.UsageError(f"{' and '.join(used)} cannot be combined")


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text) if re.fullmatch(r"[0-9.]+", text) else parse_time(text)
    except ValueError as error:
        raise click.UsageError(f"--timeout: {error}") from None


# Jobs, in words


def _schedule_of(job: Mapping[str, Any]) -> Schedule:
    raw = job["schedule"]
    if raw["kind"] == "at":  # it may be over, which is an error for a new one
        return At(read_time(raw["at"], find_zone("UTC"), 0))
    return read_schedule(raw, _now_ms())


def _words(job: Mapping[str, Any]) -> str:
    try:
        return describe(_schedule_of(job))
    except (ToolInputError, ValueError):  # such as a zone that this machine does not have
        return str(job["schedule"])


def _when(at_ms: int, schedule: Schedule | None = None) -> str:
    """A time in the zone of a schedule, else in the host's."""
    zone = find_zone(schedule.tz if isinstance(schedule, CronExpr) else "")
    at = datetime.fromtimestamp(at_ms / 1_000, zone)
    return at.strftime("%a %Y-%m-%d %H:%M:%S %Z").replace(":00 ", " ")


def _next_times(
    schedule: Schedule, count: int, job: str = "", first_ms: int | None = None
) -> list[int]:
    """The next times; `first_ms` is the first one of a job, which can be later than its slot."""
    times = [first_ms] if first_ms is not None else []
    while len(times) < count:
        last_ms = times[-1] if times else _now_ms()
        if (found := next_after(schedule, last_ms, job)) is None:
            break
        times.append(found)
    return times


def _doing(job: Mapping[str, Any]) -> str:
    payload, agent = job["payload"], job.get("agentId") or "the default agent"
    where = {"main": "the main session", "isolated": "a new session"}
    target = where.get(job["sessionTarget"], job["sessionTarget"].removeprefix("session:"))
    match payload["kind"]:
        case "agentTurn":
            return f"{agent} answers {one_line(payload['message'], 200)!r} in {target}"
        case "systemEvent":
            return f"{agent} is told {one_line(payload['text'], 200)!r} in {target}"
        case "command":
            return f"{agent} runs `{one_line(shlex.join(payload['argv']), 200)}`"
        case "script":
            lines = len(payload["script"].splitlines())
            return f"{agent} runs a script of {cli.counted(lines, 'line')}"
    return f"the heartbeat of {agent}"


def _delivery(job: Mapping[str, Any]) -> str:
    delivery = job["delivery"]
    if delivery["mode"] == "webhook":
        return f"sent to {delivery['to']}"
    if delivery["mode"] == "announce":
        return f"reported in {delivery.get('to') or job.get('sessionKey') or 'the main session'}"
    is_said = job["payload"]["kind"] in ("agentTurn", "systemEvent")
    is_seen = is_said and job["sessionTarget"] != "isolated"
    return "in that session" if is_seen else "kept for `clawkit cron runs`"


def _explain(job: Mapping[str, Any]) -> Iterator[str]:
    """A job for people: when, what, and where the result goes."""
    yield f"when:    {_words(job)}"
    with suppress(ToolInputError, ValueError):
        schedule = _schedule_of(job)
        times = _next_times(schedule, _TIMES, job.get("id", ""), job.get("nextRunAtMs"))
        if job["enabled"]:
            yield from (f"         {_when(each, schedule)}" for each in times)
        if delay_ms := stagger_of(schedule, job.get("id", "")):
            late = human_time(delay_ms / 1_000)
            yield f"         {late} late, so that not all jobs start at once; see --exact"
    yield f"what:    {_doing(job)}"
    yield f"result:  {_delivery(job)}"


def _print_job(job: Mapping[str, Any]) -> None:
    for line in _explain(job):
        click.echo(printable(line))


def _show_json(job: Mapping[str, Any]) -> dict[str, Any]:
    with suppress(ToolInputError, ValueError):
        times = _next_times(_schedule_of(job), _TIMES, job.get("id", ""), job.get("nextRunAtMs"))
        return {"job": job, "means": _words(job), "next": list(map(iso_time, times))}
    return {"job": job, "means": _words(job), "next": []}


def _call(job: Mapping[str, Any]) -> str:
    return f"{one_line(job['name'], 60)!r} ({job['id'][:8]})"


# Commands


@click.command("list")
@click.option("--all", "everything", is_flag=True, help="Also what clawkit keeps for settings.")
@cli.limit_option(50, "Maximum number.")
@cli.json_option
@_with_jobs
def list_jobs(jobs: Jobs, everything: bool, limit: int, as_json: bool) -> None:
    """List jobs, the next one first."""
    found = list(jobs.every("list", limit))
    more, found = len(found) > limit, found[:limit]
    if not everything:
        found = [each for each in found if each["enabled"] or "declarationKey" not in each]
    if as_json:
        cli.print_json({"jobs": found, "more": more})
        return
    if not found:
        click.echo('There are no jobs yet. Add one: clawkit cron add "in 20 minutes" -m "…"')
        return
    rows = [[printable(one_line(cell, 200), "") for cell in _cells(each)] for each in found]
    cli.print_table(_HEAD, rows, min_last=20)
    if more:
        click.echo(f"There are more; -n {limit * 5} shows up to {limit * 5}.")
    if note := _idle_note(jobs):
        cli.warn([note])


def _cells(job: Mapping[str, Any]) -> tuple[str, ...]:
    state, now_ms = job["state"], _now_ms()
    last = ""
    if "lastRunAtMs" in state:
        ago = human_time(max(1, round((now_ms - state["lastRunAtMs"]) / 1_000)))
        last = f"{state['lastRunStatus']} {ago.partition(' ')[0]} ago"
    next_ms = job.get("nextRunAtMs")
    is_waiting = job["schedule"]["kind"] in ("on-exit", "stream")
    coming = _when(next_ms)[4:].rpartition(" ")[0] if next_ms else "by event" * is_waiting or "-"
    if not job["enabled"]:
        coming = "disabled: " + state["autoDisabled"] if "autoDisabled" in state else "disabled"
    return (
        job["id"][:8],
        truncate(one_line(job["name"], 80), 32),
        job.get("agentId", ""),
        truncate(coming, 40),
        last,
        str(state.get("consecutiveErrors", "")),
        re.sub("(every .+) from [^ ]+$", r"\1", _words(job)),
    )


def _idle_note(jobs: Jobs) -> str:
    """Why jobs of this home are not run now; empty if they are, or if a gateway has them."""
    if jobs.link is not None:
        return ""
    if not jobs.service.is_enabled:
        is_set = os.environ.get(SKIP_VARIABLE) in ("1", "true")
        why = f"{SKIP_VARIABLE} is set" if is_set else "cron.enabled is false"
        return f"jobs are not run: {why}"
    return "" if jobs.service.store.owners() else NOTHING_RUNS


@click.command()
@_JOB
@cli.json_option
@_with_jobs
def show(jobs: Jobs, which: str, as_json: bool) -> None:
    """Show a job, its next times, and how it went."""
    job = jobs.call("get", id=which)
    if as_json:
        cli.print_json(_show_json(job))
        return
    state, off = job["state"], "" if job["enabled"] else ", disabled"
    click.secho(printable(f"{job['name']} ({job['id']}){off}", ""), bold=True)
    _print_job(job)
    if why := state.get("autoDisabled"):
        click.echo(printable(f"disabled: {why}; to enable it: clawkit cron enable {job['id'][:8]}"))
    if fails := state.get("consecutiveErrors"):
        click.echo(f"failed:  {cli.counted(fails, 'time')} in a row")
    for entry in jobs.every("runs", 0, id=job["id"]):
        click.echo("last run:")
        _print_run(entry, is_latest=True, full=False)


@click.command()
@click.argument("words", metavar="SCHEDULE", nargs=-1)
@_job_options
@_with_jobs
def add(jobs: Jobs, words: tuple[str, ...], dry_run: bool, as_json: bool, **given: Any) -> None:
    """Add a job, and print how it is understood.

    SCHEDULE is a phrase, or a cron expression. Without a zone it is in that of this machine.

    \b
    clawkit cron add "every weekday at 9:00 Europe/Vienna" -m "What is new in the tracker?"
    clawkit cron add "in 20 minutes" --event "Remind me to call Ada"
    clawkit cron add "0 3 * * *" --name backup --command -- pg_dump -Fc -f shop.dump shop
    clawkit cron add --stream "tail -F app.log" --match ERROR -m "What is wrong?"
    """
    cli.refuse_commands("add jobs")
    raw = _read_options(words, given, jobs.loaded)
    if "schedule" not in raw:
        hint = " (--announce takes the next word as its session)" if given["announce"] else ""
        raise click.UsageError(f"SCHEDULE is missing, such as 'every day at 9:00'{hint}")
    if "kind" not in raw.get("payload", {}):
        raise click.UsageError("say what to do: --message, --event, --command or --script")
    with cli.wrong_usage():
        made = read_job(raw, _now_ms(), by="operator")
    if dry_run:
        shown = show_job(made, JobState(), None)
        shown.pop("id")  # a job that is added has another one, and with it another delay
        cli.print_json(_show_json(shown)) if as_json else _print_job(shown)
        return
    _tell_job(jobs, jobs.call("add", **raw), "added", as_json=as_json)


def _tell_job(jobs: Jobs, job: Mapping[str, Any], done: str, *, as_json: bool) -> None:
    if not as_json:
        _print_job(job)
    note = _idle_note(jobs) if job["enabled"] else ""
    shown = _show_json(job) | ({"note": note} if note else {})
    cli.print_done(as_json, shown, f"{done} {_call(job)}")
    if note and not as_json:
        cli.warn([note])


@click.command()
@_JOB
@click.argument("words", metavar="[SCHEDULE]", nargs=-1)
@_job_options
@_with_jobs
def edit(
    jobs: Jobs, which: str, words: tuple[str, ...], dry_run: bool, as_json: bool, **given: Any
) -> None:
    """Change a job; takes the options of `clawkit cron add`.

    \b
    clawkit cron edit standup "every weekday at 9:30"
    clawkit cron edit standup --model anthropic/claude-opus-5 --no-deliver
    """
    cli.refuse_commands("change jobs")
    patch = _read_options(words, given, jobs.loaded)
    if not patch:
        raise click.UsageError("say what to change; `clawkit cron edit --help` lists the options")
    before = jobs.call("get", id=which)
    if dry_run:
        if jobs.link is not None:
            raise click.UsageError("--dry-run is for the jobs of this home")
        row = jobs.service.store.find(before["id"])
        with cli.wrong_usage():
            after = patch_job(row.job, patch, _now_ms(), by="operator")
        shown = show_job(after, row.state, None)
        cli.print_json(_show_json(shown)) if as_json else _print_job(shown)
        return
    job = jobs.call("update", id=before["id"], patch=patch)
    _tell_job(jobs, job, "changed", as_json=as_json)


def _switch(enabled: bool) -> Callable[..., None]:
    def switch(jobs: Jobs, which: str, as_json: bool) -> None:
        cli.refuse_commands("change jobs")
        job = jobs.call("update", id=which, patch={"enabled": enabled})
        if enabled:
            _tell_job(jobs, job, "enabled", as_json=as_json)
        else:
            cli.print_done(as_json, {"job": job}, f"disabled {_call(job)}")

    return switch


enable = click.command("enable", help="Enable a job; its failures count from 0 again.")(
    _JOB(cli.json_option(_with_jobs(_switch(enabled=True))))
)
disable = click.command("disable", help="Disable a job; a run that is under way goes on.")(
    _JOB(cli.json_option(_with_jobs(_switch(enabled=False))))
)


@click.command()
@click.argument("which", metavar="JOB...", nargs=-1, required=True, shell_complete=_complete)
@cli.yes_option()
@cli.json_option
@_with_jobs
def remove(jobs: Jobs, which: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Remove jobs. Runs that are under way go on, and what ran is kept for a week."""
    cli.refuse_commands("remove jobs")
    found = {job["id"]: job for job in (jobs.call("get", id=each) for each in which)}
    if not yes:
        what = "this job" if len(found) == 1 else f"these {len(found)} jobs"
        about = (f"{_call(job)}: {_words(job)}" for job in found.values())
        cli.confirm(f"Remove {what}?", "nothing was removed", about)
    for id_ in found:
        jobs.call("remove", id=id_)
    said = "\n".join(f"removed {_call(job)}" for job in found.values())
    cli.print_done(as_json, {"removed": list(found)}, said)


@click.command("next")
@click.argument("words", metavar="JOB|SCHEDULE", nargs=-1, required=True, shell_complete=_complete)
@cli.limit_option(_TIMES, "How many times.")
@cli.json_option
@_with_jobs
def next_(jobs: Jobs, words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Print the next times of a job, or of a schedule that is not added.

    \b
    clawkit cron next standup
    clawkit cron next "last friday of the month at 17:00" -n 12
    """
    text, job = " ".join(words), {}
    try:
        job = jobs.call("get", id=text)
        schedule, first_ms = _schedule_of(job), job.get("nextRunAtMs")
    except ClawkitError as unknown:
        try:
            schedule, first_ms = read_phrase(text, _now_ms()), None
        except ToolInputError as error:
            raise ClawkitError(f"{unknown}. As a schedule: {error}") from None
    times = _next_times(schedule, min(limit, 1_000), job.get("id", ""), first_ms)
    if as_json:
        cli.print_json({"means": describe(schedule), "next": list(map(iso_time, times))})
        return
    off = "" if job.get("enabled", True) else " (the job is disabled)"
    click.echo(printable(f"{describe(schedule)}{off}"))
    for each in times:
        click.echo(_when(each, schedule))
    if not times:
        click.echo("It has no next time.")


@click.command()
@click.argument("which", metavar="[JOB]", default="", shell_complete=_complete)
@cli.limit_option(20, "Maximum number.")
@click.option("--full", is_flag=True, help="All that it said.")
@cli.json_option
@_with_jobs
def runs(jobs: Jobs, which: str, limit: int, full: bool, as_json: bool) -> None:
    """Show what ran, what it said, what it cost, what failed, and when it is retried."""
    wanted = {"id": which} if which else {}
    entries = list(jobs.every("runs", limit, **wanted))
    more, entries = len(entries) > limit, entries[:limit]
    if as_json:
        cli.print_json({"runs": entries, "more": more})
        return
    seen: set[str] = set()
    for entry in entries:
        _print_run(entry, is_latest=entry["jobId"] not in seen, full=full)
        seen.add(entry["jobId"])
    if not entries:
        click.echo("Nothing has run yet.")
    if more:
        click.echo(f"There are more; -n {limit * 5} shows up to {limit * 5}.")


_COLOURS = {"ok": "green", "error": "red", "interrupted": "red", "skipped": "yellow"}
_REACHED = {
    "delivered": "delivered",
    "not-delivered": "not delivered",
    "unknown": "delivery not known",
}


def _facts(entry: Mapping[str, Any]) -> Iterator[str]:
    yield {"schedule": "", "manual": "by hand", "event": "by an event"}.get(
        entry["why"], entry["why"]
    )
    if slots := entry.get("slots"):
        yield f"{cli.counted(slots, 'slot')} {entry.get('errorReason') or 'missed'}"
    if "durationMs" in entry:
        yield human_time(entry["durationMs"] / 1_000)
    yield entry.get("model", "")
    if tokens := entry.get("usage", {}).get("total_tokens"):
        yield f"{cli.count_tokens(tokens)} tokens"
    if cost := entry.get("cost"):
        yield f"${cost:.2f}" if cost >= 0.005 else "under $0.01"
    silent = entry.get("deliverySuppressionReason") == "silent"
    is_over = entry["action"] == "finished"
    yield "nothing to report" if silent else _REACHED.get(entry["deliveryStatus"], "") * is_over


def _print_run(entry: Mapping[str, Any], *, is_latest: bool, full: bool) -> None:
    state = click.style(f"{entry['state']:<8}", fg=_COLOURS.get(entry["state"]))
    head = f"{_when(entry['runAtMs'])[4:].rpartition(' ')[0]}  {state}  "
    facts = " · ".join(filter(None, _facts(entry)))
    name = one_line(entry["jobName"], 60) or entry["jobId"][:8]
    click.echo(head + printable(f"{name}  {facts}".rstrip(), ""))
    said = entry.get("error") or entry.get("summary", "")
    lines = said.strip().splitlines()
    for line in lines if full else lines[:_MAX_LINES]:
        click.echo(f"  {printable(line, '') if full else printable(truncate(line, 300), '')}")
    if not full and len(lines) > _MAX_LINES:
        click.secho(
            f"  … {len(lines) - _MAX_LINES} more lines; --full shows them", fg="bright_black"
        )
    if problem := entry.get("deliveryError"):
        click.echo(printable(f"  not delivered: {problem}"))
    if retry_ms := entry.get("retryAtMs"):
        click.echo(f"  retried {_when(retry_ms)}")
    elif is_latest and entry["status"] == "error" and "nextRunAtMs" in entry:
        click.echo(f"  next try {_when(entry['nextRunAtMs'])}")


@click.command()
@_JOB
@click.option("--force", is_flag=True, help="Also if it is disabled.")
@cli.json_option
@_with_jobs
def run(jobs: Jobs, which: str, force: bool, as_json: bool) -> None:
    """Run a job now, and wait for the outcome. The exit code is 1 if it failed.

    The gateway or `clawkit cron serve` runs it; if there is none, this command does.
    """
    cli.refuse_commands("run jobs")
    job = jobs.call("get", id=which)
    if jobs.link is None and not jobs.service.is_enabled:
        raise ToolError(_idle_note(jobs))
    if _is_ours(jobs):
        from clawkit.cli.gateway import check_installed

        check_installed()
    started = jobs.call("run", id=job["id"], mode="force" if force else "if-enabled")
    if not started["ran"]:
        why = {
            "disabled": "it is disabled; --force runs it nevertheless",
            "already-running": "it is running already; see: clawkit cron runs",
        }
        raise ToolError(f"{_call(job)} was not started: {why[started['reason']]}")
    if not as_json:
        click.echo(printable(f"running {_call(job)}: {_doing(job)}"), err=True)
    entry = _follow(jobs, started["runId"])
    cli.print_json(entry) if as_json else _print_run(entry, is_latest=True, full=True)
    sys.exit(0 if entry["status"] == "ok" else 1)


def _is_ours(jobs: Jobs) -> bool:
    """Whether no other process would carry out a run."""
    return jobs.link is None and not jobs.service.store.owners()


def _follow(jobs: Jobs, run_id: str) -> dict[str, Any]:
    """Wait for the end of a run, and of its delivery; carry it out if no other process does."""
    patience_s = _DELIVERY_S
    try:
        while True:
            found = jobs.call("runs", runId=run_id, limit=1)["entries"]
            if not found:
                raise ToolError("the run was dropped: its job was removed or disabled")
            entry: dict[str, Any] = found[0]
            if entry["state"] == "queued" and _is_ours(jobs):
                from clawkit.cli.cron_serve import run_here

                with suppress(ConflictError):  # another process has just begun to run jobs
                    run_here(jobs.loaded, run_id)
                    continue
            is_over = entry["action"] == "finished"
            if is_over and (entry["deliveryStatus"] != "unknown" or patience_s <= 0):
                return entry
            patience_s -= _FOLLOW_S * is_over
            time.sleep(_FOLLOW_S)
    except KeyboardInterrupt:
        click.echo("\nIt goes on without this terminal; see: clawkit cron runs", err=True)
        raise


@click.command()
@cli.json_option
@_with_jobs
def status(jobs: Jobs, as_json: bool) -> None:
    """Show whether jobs are run, by which process, and when the next one is due."""
    found = jobs.call("status")
    if as_json:
        cli.print_json(found)
        return
    by = "" if not found["running"] else "the remote gateway" if jobs.link else _holder()
    coming = found["nextWakeAtMs"]
    click.echo(f"{cli.counted(found['jobs'], 'job')}, in {printable(found['storePath'], '')}")
    click.echo(f"next: {_when(coming)}" if coming else "next: none has a time")
    click.echo(f"run by: {by or 'nothing'}")
    if note := _idle_note(jobs):
        cli.warn([note])


def _holder() -> str:
    from clawkit.gateway.record import look

    state = look()
    return f"{'the gateway' if state.record else 'clawkit cron serve'}, process {state.pid}"


def _refuse_remote(loaded: Loaded, what: str) -> None:
    settings = loaded.config.gateway
    if settings is not None and settings.mode == "remote":
        raise ClawkitError(
            f"gateway.mode is 'remote', and {what} is for the jobs of this home "
            f"({home(os.environ)}). To use them, add --local"
        )


@click.command()
@click.option("--local", is_flag=True, help="Run it here, even if gateway.mode is remote.")
@cli.config_option
def serve(local: bool, config_file: str | None) -> None:
    """Run the jobs of this home until Ctrl-C or SIGTERM, without a gateway.

    `clawkit gateway` runs them as well; only one process does it for a home.
    """
    cli.refuse_commands("run jobs")
    loaded = load(config_file)
    cli.warn(map(str, loaded.warnings))
    if not local:
        _refuse_remote(loaded, "`clawkit cron serve`")
    from clawkit.cli.gateway import check_installed

    check_installed()
    from clawkit.cli.cron_serve import serve_jobs

    def tell(shown: dict[str, Any]) -> None:
        if "run" in shown and shown["action"] == "started":
            click.echo(printable(f"{_when(_now_ms())}  started  {shown['run']['jobName']}", ""))
        elif "run" in shown and shown["action"] == "finished":
            _print_run(shown["run"], is_latest=True, full=False)

    serve_jobs(loaded, tell)
    click.echo("clawkit cron: stopped", err=True)


@click.command("import")
@click.argument("file", metavar="FILE")
@click.option("--skip-invalid", is_flag=True, help="Add the others if some are invalid.")
@click.option("--dry-run", is_flag=True, help="Only print what would be added.")
@cli.json_option
@_with_jobs
def import_(jobs: Jobs, file: str, skip_invalid: bool, dry_run: bool, as_json: bool) -> None:
    """Add the jobs of an OpenClaw file, cron/jobs.json; - reads standard input.

    Jobs get new ids. For each one, what has no counterpart is named. If one is invalid, none is
    added, unless --skip-invalid is given.
    """
    cli.refuse_commands("add jobs")
    if jobs.link is not None:
        _refuse_remote(jobs.loaded, "`clawkit cron import`")
    from clawkit.cli.cron_import import read_jobs

    found = read_jobs(cli.read_input(file, _MAX_FILE), _now_ms())
    invalid = [each for each in found if each.problem]
    added: list[dict[str, Any]] = []
    is_done = not dry_run and (skip_invalid or not invalid)
    for each in found:
        if not each.problem and is_done:
            added.append(jobs.call("add", **each.raw))
        if not as_json:
            click.echo(printable(f"{(each.problem and 'invalid') or 'job'}: {each.name}"))
            for line in filter(None, (each.problem, each.means, *each.changes)):
                click.echo(f"  {printable(line)}")
    if as_json:
        listed = [
            {"name": each.name, "problem": each.problem or None, "changes": each.changes}
            for each in found
        ]
        cli.print_json({"jobs": listed, "added": [each["id"] for each in added]})
    else:
        click.echo(f"added {cli.counted(len(added), 'job')} of {len(found)}", err=True)
        if invalid and not dry_run and not skip_invalid:
            click.echo("Nothing was added; --skip-invalid adds the valid ones.", err=True)
    sys.exit(1 if invalid and not skip_invalid else 0)


@click.command()
@click.argument("text", metavar="TEXT")
@click.option("--now", is_flag=True, help="Start a turn for it, instead of waiting for the next.")
@click.option("--agent", help="Agent to wake. Default: the default agent.")
@click.option("--session", metavar="KEY", help="Session to tell. Default: the main one.")
@cli.json_option
@_with_jobs
def wake(
    jobs: Jobs, text: str, now: bool, agent: str | None, session: str | None, as_json: bool
) -> None:
    """Tell a session something: it reads it with its next turn, or with --now at once."""
    cli.refuse_commands("wake sessions")
    mode = "now" if now else "next-heartbeat"
    if jobs.link is not None:
        given = {"agentId": agent, "sessionKey": session, "text": text, "mode": mode}
        found = jobs.link.call("wake", {key: each for key, each in given.items() if each})
    else:
        from clawkit import automation
        from clawkit.sessions.protocols import session_key

        config = jobs.loaded.config
        name = config.agents.choose(agent)
        key = session or config.session.main_key
        key = key if key.startswith("agent:") else session_key(name, key)
        with cli.wrong_usage():
            found = automation.wake(jobs.loaded, jobs.service, name, key, text, mode)
    note = f" ({found['note']})" if "note" in found else ""
    said = "it gets a turn for it now" if now else "it reads it with its next turn"
    cli.print_done(as_json, found, said + note)
