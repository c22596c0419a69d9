"""`clawkit cron` and `clawkit wake`: jobs, their runs, and a process that runs them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from clawkit.cli import shared_options as cli
from clawkit.cli.cron_options import IN_ARGUMENTS, MAX_FILE, job_options, read_options
from clawkit.config.load import Loaded, load
from clawkit.config.paths import home
from clawkit.cron.jobs import JobState, read_job, show_job
from clawkit.cron.phrases import describe, read_phrase
from clawkit.cron.schedule import iso_time
from clawkit.cron.service import NOTHING_RUNS, SKIP_VARIABLE, CronService
from clawkit.errors import ClawkitError, ConflictError, ToolError, ToolInputError
from clawkit.policy.tool_names import Matcher, Universe, explain_unmatched
from clawkit.text import one_line, printable
from clawkit.ui import jobs as told

if TYPE_CHECKING:
    from clawkit.gateway.client import Link

_PAGE, _MAX_TIMES = 200, 1_000
_FOLLOW_S, _DELIVERY_S = 0.2, 20.0
_OWN_NAMES = {"id": "id_", "runId": "run", "patch": "raw", "includeDisabled": "include_disabled"}
_COLOURS = {"error": "red", "interrupted": "red", "skipped": "yellow"}


class Jobs:
    """The jobs for a command: those of this home, or of the remote gateway."""

    def __init__(self, loaded: Loaded, service: CronService, link: Link | None) -> None:
        self.loaded, self.service, self.link = loaded, service, link

    def call(self, method: str, **given: Any) -> Any:
        """Call a `cron.*` method of the gateway, or its local equivalent. Raises `ClawkitError`."""
        if self.link is not None:
            from clawkit.gateway.client import CallError

            try:
                return self.link.call(f"cron.{method}", given)
            except CallError as error:
                if error.error.get("code") == "INVALID_REQUEST":
                    raise ClawkitError(str(error)) from None
                raise
        if method == "add":
            return self.service.add(given, by="operator")
        by = {"by": "operator"} if method == "update" else {}
        named = {_OWN_NAMES.get(name, name): value for name, value in given.items()}
        return getattr(self.service, method)(**named, **by)

    def pages(self, method: str, limit: int, **given: Any) -> tuple[list[dict[str, Any]], bool]:
        """Up to `limit` entries, and whether there are more."""
        found: list[dict[str, Any]] = []
        offset: int | None = 0
        while offset is not None and len(found) <= limit:
            size = min(limit + 1 - len(found), _PAGE)
            page = self.call(method, limit=size, offset=offset, **given)
            found += page["jobs" if method == "list" else "entries"]
            offset = page["nextOffset"]
        return found[:limit], len(found) > limit

    @property
    def idle_note(self) -> str:
        """Why the jobs of this home do not run; empty if they do, or if the jobs are remote."""
        if self.link is not None:
            return ""
        if not self.service.is_enabled:
            is_set = os.environ.get(SKIP_VARIABLE) in ("1", "true")
            why = f"{SKIP_VARIABLE} is set" if is_set else "cron.enabled is false"
            return f"jobs do not run: {why}"
        return "" if self.service.store.owners() else NOTHING_RUNS

    def check_agent(self, name: str | None) -> str | None:
        """Validate an agent id for jobs of this home; None passes."""
        wanted, known = (name or "").strip().lower(), self.loaded.config.agents.ids()
        if name is None or self.link is not None or wanted in known:
            return wanted or None
        raise click.UsageError(f"--agent: unknown agent {name!r}{cli.suggest(wanted, known)}")

    def doubts(self, job: Mapping[str, Any]) -> Iterator[str]:
        """Warnings about a job of this home that will not work with the current configuration."""
        from clawkit.bundled import select_models

        payload, known, config = job["payload"], Universe.of({}), self.loaded.config
        if self.link is None and not (config.plugins or config.mcp):  # these may provide such tools
            matcher = Matcher(payload.get("toolsAllow") or (), "--tools", known)
            yield from (f"--tools: {explain_unmatched(each, known)}" for each in matcher.unmatched)
        try:
            if self.link is None and payload.get("model"):
                agent = job.get("agentId") or config.agents.default_id()
                select_models(self.loaded, agent).find(payload["model"])
        except ClawkitError as error:
            yield f"--model: {error}"

    @property
    def are_ours(self) -> bool:
        """Whether no other process would execute a run."""
        return self.link is None and not self.service.store.owners()


def _with_jobs(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--local` and `--config` to a command, and pass it the jobs."""

    @click.option("--local", is_flag=True, help="Use this home, even if gateway.mode is remote.")
    @cli.config_option
    @wraps(command)
    def run(local: bool, config_file: str | None, **options: Any) -> None:
        from clawkit.session_cron import open_cron

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
    from clawkit.session_cron import cron_store

    with suppress(ClawkitError, OSError):
        store = cron_store()
        for row in store.all() if store.exists else ():
            yield from (row.job.name, row.job.id)


_complete = cli.completed_from(_known_jobs)
_JOB = click.argument("which", metavar="JOB", shell_complete=_complete)


def _call(job: Mapping[str, Any]) -> str:
    return f"{one_line(job['name'], 60)!r} ({job['id'][:8]})"


def _echo(lines: Iterator[str]) -> None:
    for line in lines:
        click.echo(printable(line))


def _echo_run(entry: Mapping[str, Any], *, is_latest: bool = True, full: bool = False) -> None:
    most = None if full else told.MAX_LINES
    head, *lines = told.explain_run(entry, is_latest=is_latest, most=most)
    click.secho(printable(head, ""), fg=_COLOURS.get(entry["state"]))
    _echo(iter(lines))


def _tell_job(jobs: Jobs, job: Mapping[str, Any], done: str, *, as_json: bool) -> None:
    """Print how a job is interpreted, and what was done with it, if anything."""
    note = jobs.idle_note if done and job["enabled"] else ""
    cli.warn(jobs.doubts(job))
    if as_json:
        shown: dict[str, Any] = {"job": job, "means": told.tell_schedule(job), "next": []}
        with suppress(ToolInputError):
            times = told.next_times(told.schedule_of(job), told.TIMES, job)
            shown["next"] = list(map(iso_time, times))
        cli.print_json(shown | ({"note": note} if note else {}))
        return
    _echo(told.explain_job(job))
    if done:
        click.echo(printable(f"{done} {_call(job)}"), err=True)
    cli.warn([note] if note else [])


@click.command("list")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Include disabled jobs that settings create, such as heartbeats.",
)
@cli.limit_option(50, "Maximum number.")
@cli.json_option
@_with_jobs
def list_jobs(jobs: Jobs, everything: bool, limit: int, as_json: bool) -> None:
    """List jobs, the next one first."""
    found, more = jobs.pages("list", limit, includeDisabled=True)
    if not everything:
        found = [each for each in found if each["enabled"] or "declarationKey" not in each]
    if as_json:
        cli.print_json({"jobs": found, "more": more})
        return
    if not found:
        click.echo('There are no jobs yet. Add one: clawkit cron add "in 20 minutes" -m "…"')
        return
    rows = [[printable(cell, "") for cell in told.job_cells(each)] for each in found]
    cli.print_table(told.HEAD, rows, min_last=20)
    cli.tell_more(more, limit)
    cli.warn(filter(None, [jobs.idle_note]))


@click.command()
@_JOB
@cli.json_option
@_with_jobs
def show(jobs: Jobs, which: str, as_json: bool) -> None:
    """Show a job, its next times and its last run."""
    job = jobs.call("get", id=which)
    if as_json:
        _tell_job(jobs, job, "", as_json=True)
        return
    state, off = job["state"], "" if job["enabled"] else ", disabled"
    click.secho(printable(f"{job['name']} ({job['id']}){off}", ""), bold=True)
    _echo(told.explain_job(job))
    if why := state.get("autoDisabled"):
        click.echo(printable(f"clawkit disabled it: {why}; see: clawkit cron enable --help"))
    if fails := state.get("consecutiveErrors"):
        click.echo(f"failed:  {cli.counted(fails, 'time')} in a row")
    for entry in jobs.pages("runs", 1, id=job["id"])[0]:
        click.echo("last run:")
        _echo_run(entry)


@click.command()
@click.argument("words", metavar="SCHEDULE", nargs=-1)
@job_options
@click.option("--dry-run", is_flag=True, help="Only print the job as understood.")
@_with_jobs
def add(jobs: Jobs, words: tuple[str, ...], dry_run: bool, as_json: bool, **given: Any) -> None:
    """Add a job, and print its schedule as understood.

    SCHEDULE is a phrase or a cron expression. The default time zone is that of this machine.

    \b
    clawkit cron add "every weekday at 9:00 Europe/Vienna" -m "What is new in the tracker?"
    clawkit cron add "in 20 minutes" --event "Remind me to call Ada"
    clawkit cron add "0 3 * * *" --name backup --command -- pg_dump -Fc -f shop.dump shop
    clawkit cron add --stream "tail -F app.log" --match ERROR -m "What is wrong?"
    """
    cli.refuse_commands("add jobs")
    if given["command"] not in (None, IN_ARGUMENTS):
        given["name"] = given["name"] or one_line(given["command"], 60)
    raw = read_options(words, given | {"agent": jobs.check_agent(given["agent"])})
    if "schedule" not in raw:
        hint = "; --announce takes the word after it as a session" if given["announce"] else ""
        raise click.UsageError(f"SCHEDULE is missing, such as 'every day at 9:00'{hint}")
    if "kind" not in raw.get("payload", {}):
        raise click.UsageError("say what to do: --message, --event, --command or --script")
    job = show_job(read_job(raw, told.now_ms(), by="operator"), JobState(), None)
    if dry_run:
        del job["id"]  # the added job gets another id, and thus another delay
    else:
        job = jobs.call("add", **raw)
    _tell_job(jobs, job, "" if dry_run else "added", as_json=as_json)


@click.command()
@_JOB
@click.argument("words", metavar="[SCHEDULE]", nargs=-1)
@job_options
@_with_jobs
def edit(jobs: Jobs, which: str, words: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Change a job; takes the options of `clawkit cron add`.

    \b
    clawkit cron edit standup "every weekday at 9:30"
    clawkit cron edit standup --model anthropic/claude-opus-5 --no-deliver
    """
    cli.refuse_commands("change jobs")
    patch = read_options(words, given | {"agent": jobs.check_agent(given["agent"])})
    if not patch:
        raise click.UsageError("say what to change; `clawkit cron edit --help` lists the options")
    if (kind := patch.get("payload", {}).get("kind")) and "sessionTarget" not in patch:
        is_event = jobs.call("get", id=which)["sessionTarget"] == "main"
        if is_event != (kind == "systemEvent"):
            patch["sessionTarget"] = "isolated" if is_event else "main"
    if patch.keys() == {"grants"}:  # any other change removes the old ones
        patch["grants"] = [*jobs.call("get", id=which).get("grants", ()), *patch["grants"]]
    _tell_job(jobs, jobs.call("update", id=which, patch=patch), "changed", as_json=as_json)


@click.command()
@_JOB
@cli.json_option
@_with_jobs
def enable(jobs: Jobs, which: str, as_json: bool) -> None:
    """Enable a job, and reset its count of failures."""
    cli.refuse_commands("change jobs")
    job = jobs.call("update", id=which, patch={"enabled": True})
    _tell_job(jobs, job, "enabled", as_json=as_json)


@click.command()
@_JOB
@cli.json_option
@_with_jobs
def disable(jobs: Jobs, which: str, as_json: bool) -> None:
    """Disable a job; a run in progress continues."""
    cli.refuse_commands("change jobs")
    job = jobs.call("update", id=which, patch={"enabled": False})
    cli.print_done(as_json, {"job": job}, f"disabled {_call(job)}")


@click.command()
@click.argument("which", metavar="JOB...", nargs=-1, required=True, shell_complete=_complete)
@cli.yes_option()
@cli.json_option
@_with_jobs
def remove(jobs: Jobs, which: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Remove jobs. Runs in progress continue; the records of runs are kept for a week."""
    cli.refuse_commands("remove jobs")
    found = {job["id"]: job for job in (jobs.call("get", id=each) for each in which)}
    if not yes:
        what = "this job" if len(found) == 1 else f"these {len(found)} jobs"
        about = (f"{_call(job)}: {told.tell_schedule(job)}" for job in found.values())
        cli.confirm(f"Remove {what}?", "nothing was removed", about)
    for id_ in found:
        jobs.call("remove", id=id_)
    said = "\n".join(f"removed {_call(job)}" for job in found.values())
    cli.print_done(as_json, {"removed": list(found)}, said)


@click.command("next")
@click.argument("words", metavar="JOB|SCHEDULE", nargs=-1, required=True, shell_complete=_complete)
@cli.limit_option(told.TIMES, "How many times.")
@cli.json_option
@_with_jobs
def next_(jobs: Jobs, words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Print the next times of a job, or of any schedule.

    \b
    clawkit cron next standup
    clawkit cron next "last friday of the month at 17:00" -n 12
    """
    text, job = " ".join(words), dict[str, Any]()
    try:
        job = jobs.call("get", id=text)
        schedule = told.schedule_of(job)
    except ClawkitError as unknown:
        try:
            schedule = read_phrase(text, told.now_ms())
        except ToolInputError as error:
            reasons = f"{unknown}. As a schedule: {error}"
            if " " in text:  # names rarely contain spaces, schedules almost always
                reasons = f"{error}. As a job: {unknown}"
            raise ClawkitError(reasons) from None
    times = told.next_times(schedule, min(limit, _MAX_TIMES), job)
    if as_json:
        cli.print_json({"means": describe(schedule), "next": list(map(iso_time, times))})
        return
    off = "" if job.get("enabled", True) else " (the job is disabled)"
    _echo(iter((f"{describe(schedule)}{off}", *(told.tell_time(each, schedule) for each in times))))
    if not times:
        click.echo("It has no next time.")


@click.command()
@click.argument("which", metavar="[JOB]", default="", shell_complete=_complete)
@cli.limit_option(20, "Maximum number.")
@click.option("--full", is_flag=True, help="Show the full output.")
@cli.json_option
@_with_jobs
def runs(jobs: Jobs, which: str, limit: int, full: bool, as_json: bool) -> None:
    """Show past runs: output, cost, errors, and when they are retried."""
    entries, more = jobs.pages("runs", limit, **({"id": which} if which else {}))
    if as_json:
        cli.print_json({"runs": entries, "more": more})
        return
    seen: set[str] = set()
    for entry in entries:
        _echo_run(entry, is_latest=entry["jobId"] not in seen, full=full)
        seen.add(entry["jobId"])
    if not entries:
        click.echo("Nothing has run yet.")
    cli.tell_more(more, limit)


@click.command()
@_JOB
@click.option("--force", is_flag=True, help="Run it even if it is disabled.")
@cli.json_option
@_with_jobs
def run(jobs: Jobs, which: str, force: bool, as_json: bool) -> None:
    """Run a job now, and wait for the outcome. The exit code is 1 if it failed.

    The gateway or `clawkit cron serve` runs it; if there is none, this command does.
    """
    cli.refuse_commands("run jobs")
    job = jobs.call("get", id=which)
    if jobs.link is None and not jobs.service.is_enabled:
        raise ToolError(jobs.idle_note)
    if jobs.are_ours:
        from clawkit.cli.gateway import check_installed

        check_installed()
    started = jobs.call("run", id=job["id"], mode="force" if force else "if-enabled")
    if not started["ran"]:
        why = "it is already running; see: clawkit cron runs"
        if started["reason"] == "disabled":
            why = "it is disabled; --force runs it anyway"
        raise ToolError(f"{_call(job)} was not started: {why}")
    said = "" if as_json else f"running {_call(job)}: {told.doing(job)}"
    entry = _follow(jobs, started["runId"], said)
    cli.print_json(entry) if as_json else _echo_run(entry, full=True)
    sys.exit(0 if entry["status"] == "ok" else 1)


def _follow(jobs: Jobs, run_id: str, message: str) -> dict[str, Any]:
    """Wait for the end of a run and of its delivery; execute it if no other process does. Prints
    `message` first."""
    patience_s = _DELIVERY_S
    try:
        if message:
            click.echo(printable(message), err=True)
        while True:
            found = jobs.call("runs", runId=run_id, limit=1)["entries"]
            if not found:
                raise ToolError("the run was dropped: its job was removed or disabled")
            entry: dict[str, Any] = found[0]
            if entry["state"] == "queued" and jobs.are_ours:
                from clawkit.cli.cron_serve import run_here

                with suppress(ConflictError):  # another process has just started to run jobs
                    run_here(jobs.loaded, run_id)
                    continue
            is_over = entry["action"] == "finished"
            if is_over and (entry["deliveryStatus"] != "unknown" or patience_s <= 0):
                return entry
            patience_s -= _FOLLOW_S * is_over
            time.sleep(_FOLLOW_S)
    except KeyboardInterrupt:
        is_dropped = jobs.link is None and jobs.service.store.withdraw(run_id)
        left = "It was not started" if is_dropped else "It is still running; see: clawkit cron runs"
        click.echo(f"\n{left}", err=True)
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
    from clawkit.gateway.process_record import look

    state = look()
    name = "the gateway" if state.record else "clawkit cron serve"
    by = "the remote gateway" if jobs.link else f"{name}, process {state.pid}"
    coming = found["nextWakeAtMs"]
    click.echo(f"{cli.counted(found['jobs'], 'job')}, in {printable(found['storePath'], '')}")
    click.echo(f"next: {told.tell_time(coming)}" if coming else "next: none")
    click.echo(f"run by: {by if found['running'] else 'no process'}")
    cli.warn(filter(None, [jobs.idle_note]))


def _refuse_remote(loaded: Loaded, what: str) -> None:
    settings = loaded.config.gateway
    if settings is not None and settings.mode == "remote":
        raise ClawkitError(
            f"gateway.mode is 'remote', and `clawkit cron {what}` is for the jobs of this home "
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
        _refuse_remote(loaded, "serve")
    from clawkit.cli.gateway import check_installed

    check_installed()
    from clawkit.cli.cron_serve import serve_jobs

    def tell(shown: dict[str, Any]) -> None:
        if shown["action"] in ("started", "finished"):
            entry = shown["run"]
            if entry["deliveryStatus"] == "unknown":  # the result is delivered later
                entry = entry | {"deliveryStatus": ""}
            _echo_run(entry)

    serve_jobs(loaded, tell)
    click.echo("clawkit cron: stopped", err=True)


@click.command("import")
@click.argument("file", metavar="FILE")
@click.option("--skip-invalid", is_flag=True, help="Skip invalid jobs and add the others.")
@click.option("--dry-run", is_flag=True, help="Only print what would be added.")
@cli.json_option
@_with_jobs
def import_(jobs: Jobs, file: str, skip_invalid: bool, dry_run: bool, as_json: bool) -> None:
    """Add the jobs of an OpenClaw file, cron/jobs.json; - reads standard input.

    Jobs get new ids. For each one, fields without a counterpart are listed. If one is invalid, none
    is added, unless --skip-invalid is given.
    """
    cli.refuse_commands("add jobs")
    if jobs.link is not None:
        _refuse_remote(jobs.loaded, "import")
    from clawkit.cli.cron_import import read_jobs

    found = read_jobs(cli.read_input(file, MAX_FILE), told.now_ms())
    has_problem = any(each.problem for each in found) and not skip_invalid
    is_done = not dry_run and not has_problem
    added = [jobs.call("add", **each.raw)["id"] for each in found if is_done and not each.problem]
    if as_json:
        cli.print_json({"jobs": [each.to_json() for each in found], "added": added})
    else:
        for each in found:
            click.echo(printable(f"{'invalid' if each.problem else 'job'}: {each.name}"))
            _echo(f"  {line}" for line in (each.problem, each.means, *each.changes) if line)
        hint = "; --skip-invalid adds the valid ones" if has_problem and not dry_run else ""
        click.echo(f"added {len(added)} of {cli.counted(len(found), 'job')}{hint}", err=True)
    sys.exit(1 if has_problem else 0)


@click.command()
@click.argument("text", metavar="TEXT")
@click.option("--now", is_flag=True, help="Start a turn for it, instead of waiting for the next.")
@click.option("--agent", help="Agent to wake. Default: the default agent.")
@click.option("--session", metavar="KEY", help="Session to wake. Default: the main one.")
@cli.json_option
@_with_jobs
def wake(
    jobs: Jobs, text: str, now: bool, agent: str | None, session: str | None, as_json: bool
) -> None:
    """Leave a message for a session, which reads it in its next turn, or with --now right away."""
    cli.refuse_commands("wake sessions")
    mode = "now" if now else "next-heartbeat"
    if jobs.link is not None:
        given = {"agentId": agent, "sessionKey": session, "text": text, "mode": mode}
        found = jobs.link.call("wake", {key: each for key, each in given.items() if each})
    else:
        from clawkit.session_cron import wake as wake_session
        from clawkit.sessions.protocols import session_key

        config = jobs.loaded.config
        name = jobs.check_agent(agent) or config.agents.default_id()
        key = session or config.session.main_key
        key = key if key.startswith("agent:") else session_key(name, key)
        found = wake_session(jobs.loaded, jobs.service, name, key, text, mode)
    said = "it gets a turn for it now" if now else "it reads it in its next turn"
    note = f" ({found['note']})" if "note" in found else ""
    cli.print_done(as_json, found, said + note)
