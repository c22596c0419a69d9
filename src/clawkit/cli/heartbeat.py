"""`clawkit heartbeat`: whether agents check on their own, and why or why not."""

from __future__ import annotations

import os
import time
from datetime import datetime
from typing import Any

import click

from clawkit import session_cron
from clawkit.cli import shared_options as cli
from clawkit.config.load import Loaded, load
from clawkit.config.paths import abbreviate_home
from clawkit.cron.heartbeat import BeatFacts, is_told, next_beat, show_beat, why_off
from clawkit.cron.protocols import FILE
from clawkit.cron.schedule import Every
from clawkit.cron.service import NOTHING_RUNS, CronService
from clawkit.errors import ToolError
from clawkit.sessions.protocols import locate_store
from clawkit.sessions.store import SessionStore
from clawkit.text import human_time, printable

POLL_S = 0.1
_AGENT = click.option("--agent", metavar="ID", help="Agent. Default: the default one.")


class _Beats:
    """The heartbeats of this home."""

    def __init__(self, config_file: str | None) -> None:
        self.loaded: Loaded = load(config_file)
        self.cron: CronService = session_cron.open_cron(self.loaded)
        self.sessions = SessionStore(locate_store(self.loaded.config.session.store, os.environ))
        self.agents = self.loaded.config.agents.ids()

    def facts(self, agent: str) -> BeatFacts:
        # The text of the file is not shown.
        return session_cron.heartbeat_facts(self.loaded, self.cron, self.sessions, agent, str)[0]

    def show(self, agent: str) -> dict[str, Any]:
        facts, row = self.facts(agent), self.cron.heartbeat_job(agent)
        off, at_ms, last = why_off(facts), None, None
        if row is not None:
            runs = self.cron.store.history(row.job.id)[0]
            last = next((show_beat(run) for run in runs if is_told(run)), None)
            if off is None and isinstance(row.job.schedule, Every):
                at_ms = next_beat(facts, row.job.schedule, row.next_ms)
        place = session_cron.home_workspace(self.loaded.config.agents, agent)
        limits = {"maxRunsPerDay": facts.max_runs, "maxCostPerDay": facts.settings.max_cost_per_day}
        return {
            "agentId": agent,
            "enabled": off is None,
            "reason": off.message if off else None,
            "everyMs": facts.every_ms,
            "file": os.path.join(place, FILE),
            "isPlanned": row is not None,
            "nextBeatAtMs": at_ms,
            "last": last,
            "today": {"runs": facts.runs, "cost": round(facts.cost, 6), **limits},
        }

    def switch(self, is_on: bool) -> None:
        session_cron.switch_heartbeats(self.cron, is_on)
        for agent in self.agents:
            session_cron.keep_heartbeat(self.cron, agent, self.facts(agent))


@click.command()
@cli.json_option
@cli.config_option
def status(as_json: bool, config_file: str | None) -> None:
    """Show for every agent whether its heartbeat is on, and why or why not.

    A heartbeat is on if HEARTBEAT.md in the agent's workspace has content, or `every` is set.
    """
    beats = _Beats(config_file)
    rows = [beats.show(agent) for agent in beats.agents]
    is_run = bool(beats.cron.store.owners())
    if as_json:
        return cli.print_json({"running": is_run, "agents": rows})
    for row in rows:
        click.echo(printable("\n".join(_lines(row))))
    if not is_run and any(row["enabled"] for row in rows):
        click.echo(f"note: {NOTHING_RUNS}")
    return None


def _lines(row: dict[str, Any]) -> list[str]:
    if not row["enabled"]:
        found = [f"{row['agentId']}: off: {row['reason']}"]
        if "not set" in row["reason"]:
            found.append(
                f"  to turn it on: write what to check into {abbreviate_home(row['file'])}"
            )
        return found
    found = [f"{row['agentId']}: on, every {human_time(row['everyMs'] / 1000)}"]
    none = "none within a week" if row["isPlanned"] else "once something runs jobs"
    found.append(f"  next: {_clock(row['nextBeatAtMs']) or none}")
    if last := row["last"]:
        why = last.get("message") or last.get("preview", "")
        found.append(f"  last: {_clock(last['ts'])}, {last['status']}{f': {why}' if why else ''}")
    day = row["today"]
    runs, cost = f"{day['runs']} of {day['maxRunsPerDay']}", f"${day['cost']:.2f}"
    found.append(f"  today: {runs} beats, {cost} of ${day['maxCostPerDay']:.2f}")
    return found


def _clock(at_ms: int | None) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000):%Y-%m-%d %H:%M:%S}" if at_ms else ""


@click.command()
@_AGENT
@cli.json_option
@cli.config_option
def run(agent: str | None, as_json: bool, config_file: str | None) -> None:
    """Run a heartbeat now, even if it is not due, and print the outcome."""
    beats = _Beats(config_file)
    chosen = beats.loaded.config.agents.find(agent)
    store = beats.cron.store
    if not store.owners():
        raise ToolError(NOTHING_RUNS)
    started = beats.cron.run(beats.cron.wake_job(chosen).job.id, "force")
    if not started["ran"]:
        raise ToolError("a heartbeat of this agent is already running")
    while not (found := store.history(run=started["runId"])[0]) or not is_told(found[0]):
        time.sleep(POLL_S)
    shown = show_beat(found[0])
    said = shown.get("message") or shown.get("preview", "")
    if as_json:
        cli.print_json(shown)
    else:
        click.echo(printable(f"{shown['status']}{f': {said}' if said else ''}"))
    if shown["status"] == "failed":
        click.get_current_context().exit(1)


@click.command()
@cli.json_option
@cli.config_option
def pause(as_json: bool, config_file: str | None) -> None:
    """Pause the heartbeats of all agents, until they are resumed."""
    _Beats(config_file).switch(False)
    cli.print_done(as_json, {"ok": True, "enabled": False}, "Heartbeats are paused.")


@click.command()
@cli.json_option
@cli.config_option
def resume(as_json: bool, config_file: str | None) -> None:
    """Resume the heartbeats of all agents, including those that an error paused."""
    _Beats(config_file).switch(True)
    cli.print_done(as_json, {"ok": True, "enabled": True}, "Heartbeats are resumed.")
