"""`clawkit heartbeat` as a person types it; with a gateway, docs/heartbeat.md is run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from clawkit.cli.main import run
from clawkit.cron.store import CronRunRecord, new_run
from clawkit.session_cron import cron_store

Type = Callable[..., tuple[int, str, str]]


@pytest.fixture
def heartbeat(capsys: pytest.CaptureFixture[str]) -> Type:
    """Run `clawkit heartbeat ...` in this process."""

    def type_in(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            run(["heartbeat", *args])
        out, err = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return end.value.code, out, err

    return type_in


def configure(**agents: Any) -> Path:
    home = Path(os.environ["CLAWKIT_HOME"])
    file = home / "clawkit.json5"
    file.write_text(json.dumps({"agents": agents}), encoding="utf-8")
    file.chmod(0o600)
    place = home / "workspace"
    place.mkdir(exist_ok=True)
    return place / "HEARTBEAT.md"


def status(heartbeat: Type) -> list[Any]:
    code, out, _ = heartbeat("status", "--json")
    assert code == 0
    rows: list[Any] = json.loads(out)["agents"]
    return rows


def test_every_agent_is_explained(heartbeat: Type) -> None:
    configure(
        defaults={"heartbeat": {"maxCostPerDay": 0.5}},
        list=[{"id": "main"}, {"id": "own", "heartbeat": {"every": "2h"}}, {"id": "other"}],
    )
    code, out, _ = heartbeat("status")
    assert code == 0
    assert out.splitlines() == [
        "main: off: HEARTBEAT.md has no content, and heartbeat.every is not set",
        "  to turn it on: write what to check into ~/workspace/HEARTBEAT.md",
        "own: on, every 2h",
        "  next: once something runs jobs",
        "  today: 0 of 300 beats, $0.00 of $0.50",
        "other: off: only the default agent and those with heartbeat settings have one",
        "note: no scheduler is running: run `clawkit gateway start` or `clawkit cron serve`",
    ]
    assert [row["enabled"] for row in status(heartbeat)] == [False, True, False]


def test_pause_and_resume_work_without_a_gateway(heartbeat: Type) -> None:
    configure().write_text("Check the door.", encoding="utf-8")
    assert heartbeat("resume")[0] == 0
    [row] = status(heartbeat)
    assert row["nextBeatAtMs"] is not None
    store = cron_store()
    store.set_fact("heartbeat:main", {"paused": "no credit is left", "scratch": "x"})
    assert status(heartbeat)[0]["reason"] == "no credit is left"
    assert json.loads(heartbeat("pause", "--json")[1]) == {"ok": True, "enabled": False}
    [row] = status(heartbeat)
    assert "clawkit heartbeat resume" in row["reason"]
    [job] = store.declared("heartbeat:")
    assert (job.job.enabled, job.next_ms) == (False, None)
    assert heartbeat("resume")[2] == "Heartbeats are resumed.\n"
    assert status(heartbeat)[0]["enabled"]
    assert store.fact("heartbeat:main") == {"paused": "", "scratch": "x"}


def test_the_last_beat_and_the_cost_of_the_day_are_shown(heartbeat: Type) -> None:
    configure().write_text("Check the door.", encoding="utf-8")
    heartbeat("resume")
    store = cron_store()
    [row] = store.declared("heartbeat:")
    now = row.planned_ms - 10  # a start in the future would not count
    beat = new_run(row, "schedule", now)
    store.queue(beat)
    [taken] = store.take("me", now + 1, 9)
    store.begin(taken)
    record = CronRunRecord(summary="The door is open.", cost=0.25)
    store.record(replace(taken, status="ok", ended_ms=now + 9, delivery="delivered", record=record))
    [shown] = status(heartbeat)
    assert shown["today"]["runs"] == 1
    assert shown["today"]["cost"] == 0.25
    assert (shown["last"]["status"], shown["last"]["preview"]) == ("sent", "The door is open.")
    assert "sent: The door is open." in heartbeat("status")[1]
    assert "today: 1 of 300 beats, $0.25 of $1.00" in heartbeat("status")[1]


def test_run_needs_a_running_scheduler(heartbeat: Type) -> None:
    configure()
    code, _, err = heartbeat("run")
    assert (code, "no scheduler is running" in err) == (1, True)
    configure(list=[{"id": "main"}])
    code, _, err = heartbeat("run", "--agent", "nobody")
    assert (code, "there is no agent 'nobody'" in err) == (2, True)
