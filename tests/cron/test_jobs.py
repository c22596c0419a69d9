"""How jobs are read from lenient input, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.cron.clock import START_MS

from clawkit.cron.jobs import (
    AgentTurn,
    CommandRun,
    Delivery,
    Job,
    JobState,
    ScriptPayload,
    SystemEvent,
    patch_job,
    read_job,
    show_job,
)
from clawkit.cron.schedule import At, CronExpr, Every
from clawkit.errors import ToolInputError

HERE = "agent:main:main"


def read(**raw: Any) -> Job:
    return read_job(raw, START_MS, by="operator", agent="main")


def why_not(raw: dict[str, Any], by: Any = "operator", session: str = "") -> str:
    with pytest.raises(ToolInputError) as caught:
        read_job(raw, START_MS, by=by, session=session)
    return str(caught.value)


HOURLY = {"kind": "every", "everyMs": 3_600_000}


@pytest.mark.parametrize(
    ("raw", "payload"),
    [
        ({"message": "hi"}, AgentTurn("hi")),
        ({"text": "hi"}, SystemEvent("hi")),
        ({"script": "1"}, ScriptPayload("1")),
        ({"prompt": "hi"}, AgentTurn("hi")),
        ({"payload": "hi"}, AgentTurn("hi")),
        ({"payload": {"message": "hi"}}, AgentTurn("hi")),
        ({"payload": {"kind": "systemEvent", "message": "hi"}}, SystemEvent("hi")),
        ({"payload": {"kind": "agentTurn", "text": "hi"}}, AgentTurn("hi")),
        ({"message": "hi", "timeout_seconds": "20"}, AgentTurn("hi", timeout_seconds=20)),
        ({"payload": {"argv": ["ls"]}}, CommandRun(("ls",))),
        ({"message": "hi", "toolsAllow": ["*"]}, AgentTurn("hi")),
        ({"message": "hi", "toolsAllow": []}, AgentTurn("hi", tools_allow=())),
        ({"message": "hi", "model": None}, AgentTurn("hi")),
    ],
)
def test_payloads_are_found_where_models_put_them(raw: dict[str, Any], payload: Any) -> None:
    assert read(schedule=HOURLY, **raw).payload == payload


@pytest.mark.parametrize(
    "raw",
    [
        {"schedule": HOURLY, "message": "hi"},
        {"job": {"schedule": HOURLY, "message": "hi"}},
        {"data": {"job": {"schedule": HOURLY, "message": "hi"}}},
        {" schedule ": {"everyMs": 3_600_000}, "message": "hi", "description": None},
        {"everyMs": 3_600_000, "message": "hi"},
        {"every": "1h", "message": "hi"},
        {"schedule": "every hour", "message": "hi"},
    ],
)
def test_the_same_job_in_many_words(raw: dict[str, Any]) -> None:
    job = read_job(raw, START_MS, by="model")
    assert isinstance(job.schedule, Every)
    assert (job.schedule.every_ms, job.payload) == (3_600_000, AgentTurn("hi"))


def test_defaults_depend_on_what_is_asked_for() -> None:
    assert read(every="1h", message="hi").session_target == "isolated"
    here = read_job({"every": "1h", "message": "hi"}, START_MS, by="model", session=HERE)
    assert (here.session_target, here.session_key) == ("current", HERE)
    own = {"every": "1h", "message": "hi", "model": "x/y"}
    assert read_job(own, START_MS, by="model", session=HERE).session_target == "isolated"
    assert read(every="1h", text="hi").session_target == "main"
    assert read(every="1h", message="hi").delivery == Delivery("announce")
    assert read(every="1h", text="hi").delivery == Delivery()
    once = read(at="2026-01-02T00:00:00Z", message="a very long message " * 9)
    assert isinstance(once.schedule, At)
    assert once.delete_after_run
    assert 0 < len(once.name) <= 60
    assert not read(every="1h", message="hi").delete_after_run


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"message": "hi"}, "schedule is required"),
        ({"every": "1h"}, "payload is required"),
        ({"every": "1h", "message": ""}, "payload.message"),
        ({"every": "1h", "message": "hi", "sessionTarget": "main"}, "needs a systemEvent"),
        (
            {"every": "1h", "text": "hi", "sessionTarget": "isolated"},
            "goes to sessionTarget 'main'",
        ),
        ({"every": "1h", "message": "hi", "sessionTarget": "current"}, "there is none here"),
        ({"every": "1h", "message": "hi", "sessionTarget": "else"}, "unknown sessionTarget 'else'"),
        (
            {"every": "1h", "message": "hi", "sessionTarget": "session:x", "model": "a/b"},
            "isolated",
        ),
        ({"every": "1h", "message": "hi", "nmae": "x"}, "did you mean 'name'?"),
        ({"every": "1h", "payload": {"message": "hi", "modle": "x"}}, "did you mean 'model'?"),
        ({"every": "1h", "payload": {"kind": "poem"}}, "unknown payload.kind 'poem'"),
        ({"every": "1h", "payload": 7}, "payload must be an object"),
        ({"schedule": 7, "message": "hi"}, "schedule must be an object"),
        ({"every": "1h", "message": "hi", "enabled": "perhaps"}, "enabled"),
        ({"every": "1h", "message": "hi", "timeoutSeconds": -1}, "payload.timeoutSeconds"),
        ({"every": "1h", "message": "hi", "thinking": "hard"}, "payload.thinking"),
        ({"every": "1h", "message": "x" * 20_001}, "payload.message"),
        ({"every": "1h", "message": "hi", "name": "x" * 201}, "1 to 200 characters"),
        ({"every": "1h", "message": "hi", "delivery": {"mode": "webhook"}}, "delivery.to"),
        ({"every": "1h", "message": "hi", "delivery": "ftp://x"}, "delivery.to must be an address"),
        ({"every": "1h", "message": "hi", "delivery": {"mode": "none", "to": "x"}}, "no effect"),
        ({"every": "1h", "message": "hi", "delivery": {"channel": "telegram"}}, "not supported"),
        ({"every": "1h", "message": "hi", "delivery": {"accountId": "x"}}, "not supported"),
        (
            {"every": "1h", "message": "hi", "delivery": {"completionDestination": {"to": "x"}}},
            "webhook",
        ),
        ({"every": "1h", "message": "hi", "trigger": {"script": "x"}}, "not supported"),
        ({"every": "1h", "script": "x", "toolBudget": 5}, "a script cannot call tools"),
        ({"every": "1h", "message": "hi", "pacing": {"min": 2_000, "max": 1_000}}, "larger"),
        ({"every": "1h", "text": "hi", "grants": ["ls"]}, "grants need sessionTarget 'isolated'"),
        ({"every": "1h", "message": "hi", "agent": "a", "agentId": "b"}, "agentId is given twice"),
        ({"every": "1h", "message": "hi", "stream": "x"}, "unknown field 'stream'"),
        ({"every": "1h", "message": "hi", "declarationKey": "heartbeat:main"}, "declarationKey"),
        (
            {
                "schedule": {"kind": "stream", "command": ["x"]},
                "message": "hi",
                "deleteAfterRun": True,
            },
            "does not end",
        ),
    ],
)
def test_invalid_fields_are_named(raw: dict[str, Any], words: str) -> None:
    assert words in why_not(raw)


def test_models_can_make_neither_commands_nor_heartbeats_nor_grants() -> None:
    assert "only a person" in why_not({"every": "1h", "payload": {"argv": ["ls"]}}, "model")
    assert "heartbeats are configured" in why_not(
        {"every": "1h", "payload": {"kind": "heartbeat"}, "sessionTarget": "main"}, "model"
    )
    assert "only a person" in why_not({"every": "1h", "message": "x", "grants": ["ls"]}, "model")
    assert read(every="1h", payload={"argv": ["ls"]}).payload == CommandRun(("ls",))


def test_errors_about_times_have_the_current_time() -> None:
    assert "2026-01-01T00:00:00" in why_not({"at": "2020-01-01", "message": "hi"})
    assert "2026-01-01T00:00:00" in why_not({"cron": "61 * * * *", "message": "hi"})


def test_a_patch_changes_what_it_names() -> None:
    job = read(every="1h", message="hi", model="a/b", description="x", grants=["ls"])
    patched = patch_job(job, {"payload": {"message": "ho"}}, START_MS + 5, by="operator")
    assert patched.payload == AgentTurn("ho", model="a/b")
    assert patched.updated_at_ms == START_MS + 5
    assert patch_job(job, {"message": "ho"}, START_MS, by="operator").payload == patched.payload
    assert patch_job(job, {"description": None}, START_MS, by="operator").description == ""
    changed = patch_job(job, {"cron": "0 9 * * *", "tz": "UTC"}, START_MS, by="operator")
    assert changed.schedule == CronExpr("0 9 * * *", "UTC")
    webhook = patch_job(job, {"delivery": "https://example.com/x"}, START_MS, by="operator")
    assert webhook.delivery == Delivery("webhook", to="https://example.com/x")
    best = patch_job(job, {"delivery": {"bestEffort": True}, "id": "x"}, START_MS, by="operator")
    assert (best.delivery, best.id) == (Delivery("announce", best_effort=True), job.id)
    plain = patch_job(best, {"delivery": {"bestEffort": None}}, START_MS, by="operator")
    assert plain.delivery == Delivery("announce")
    for bad in ({}, {"payload": {"model": 7}}, {"sessionTarget": "main"}, {"nope": 1}):
        with pytest.raises(ToolInputError):
            patch_job(job, bad, START_MS, by="operator")


def test_grants_end_with_any_change_of_the_job() -> None:
    job = read(every="1h", message="hi", grants=["git push"])
    assert patch_job(job, {"enabled": False}, START_MS, by="model").grants == ("git push",)
    assert patch_job(job, {"message": "ho"}, START_MS, by="operator").grants == ()
    assert patch_job(job, {"message": "ho", "grants": ["ls"]}, START_MS, by="operator").grants == (
        "ls",
    )
    with pytest.raises(ToolInputError, match="only a person"):
        patch_job(job, {"grants": ["rm"]}, START_MS, by="model")


def test_the_revision_changes_with_the_definition_only() -> None:
    job = read(every="1h", message="hi")
    same = patch_job(job, {"enabled": False}, START_MS + 9, by="operator")
    other = patch_job(job, {"message": "ho"}, START_MS, by="operator")
    assert same.revision == job.revision != other.revision


def test_a_job_is_shown_with_what_became_of_it() -> None:
    job = read(at="2026-01-02T00:00:00Z", message="hi")
    state = JobState(
        last_run_at_ms=5, last_run_status="error", last_error="x", consecutive_errors=2
    )
    shown = show_job(job, state, 9)
    assert shown["schedule"] == {"kind": "at", "at": "2026-01-02T00:00:00Z"}
    assert shown["state"] == {
        "lastRunAtMs": 5,
        "lastRunStatus": "error",
        "lastStatus": "error",
        "lastError": "x",
        "consecutiveErrors": 2,
        "nextRunAtMs": 9,
    }
    assert (shown["nextRunAtMs"], shown["lastRunError"], shown["enabled"]) == (9, "x", True)
    assert shown["configRevision"].startswith("sha256:")


def test_a_job_survives_being_stored() -> None:
    for raw in (
        {"every": "1h", "message": "x"},
        {"at": "2026-02-01", "text": "x"},
        {"cron": "0 1 * * *", "script": "1"},
    ):
        job = read(**raw)
        assert msgspec.json.decode(msgspec.json.encode(job), type=Job) == job
