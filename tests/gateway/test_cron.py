"""Jobs in a real gateway: they run, report, and can be watched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.gateway.conftest import TOKEN, Ground, serve

from clawkit.config.modelref import ModelRef
from clawkit.config.sections.shared import SsrfPolicy
from clawkit.core.approval import Question
from clawkit.core.context import Sender
from clawkit.cron.jobs import JobAuthor
from clawkit.cron.webhook import route_to
from clawkit.errors import ToolError
from clawkit.gateway.job_runner import is_granted
from clawkit.gateway.open_agent import Opening
from clawkit.gateway.protocol import now_ms
from clawkit.gateway.scopes import READ, WRITE
from clawkit.gateway.watched_commands import MAX_LINE, MAX_READ
from clawkit.models.operator import Operator
from clawkit.models.protocols import ModelError
from clawkit.net.route import Route
from clawkit.runtime import Toolkit
from clawkit.session_cron import MAX_WAKE_UPS, queue_wake_up
from clawkit.testing import ScriptedModel, call

MAIN = "agent:main:main"


async def until(wanted: Callable[[], Any]) -> Any:
    for _ in range(3_000):
        if found := wanted():
            return found
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen")


async def finished(ground: Ground, name: str = "job", count: int = 1) -> list[dict[str, Any]]:
    """The runs of a job, the first one first, when there are so many."""
    jobs = ground.gateway.job_runner.jobs()

    def over() -> Any:
        entries = [run for run in jobs.runs(limit=100)["entries"] if run["jobName"] == name]
        entries = [run for run in entries if run["action"] == "finished"]
        is_sent = all(run["deliveryStatus"] != "unknown" for run in entries)
        return entries[::-1] if len(entries) >= count and is_sent else None

    found: list[dict[str, Any]] = await until(over)
    return found


def add(ground: Ground, **job: Any) -> dict[str, Any]:
    given = {"name": "job", "at": "+1s", "message": "What time is it?"}
    return ground.gateway.job_runner.jobs().add({**given, **job}, by="operator")


def texts(ground: Ground, key: str = MAIN) -> list[str]:
    session = ground.gateway.store.find(key)
    history = ground.gateway.store.history(session.id) if session else []
    return [
        "\n".join(getattr(b, "text", "") for b in getattr(each.message, "content", ()))
        for each in history
    ]


async def test_a_reminder_waits_in_the_mailbox_of_a_session_that_is_used_elsewhere() -> None:
    async with serve({}, ScriptedModel(then="Noted.")) as ground:
        session = ground.gateway.live.create("main", name="main")
        with ground.gateway.store.hold(session.id):
            reminder = {"kind": "systemEvent", "text": "call Ada"}
            job = {"name": "job", "at": "+1s", "payload": reminder}
            ground.gateway.job_runner.jobs().add(job, by="operator")
            [run] = await finished(ground)
        assert run["status"] == "ok"
        assert run["summary"].startswith("left for the next turn")
        [mail] = ground.gateway.store.mailbox.unread(session.id, sandboxed=False)
        assert mail.text == "call Ada"


async def test_a_turn_in_a_session_in_use_is_retried() -> None:
    async with serve({}, ScriptedModel(then="Noted.")) as ground:
        session = ground.gateway.live.create("main", name="notes")
        with ground.gateway.store.hold(session.id):
            added = add(ground, sessionTarget="session:notes")
            [run] = await finished(ground)
        assert (run["status"], run["errorReason"]) == ("error", "busy")
        assert ground.gateway.job_runner.jobs().get(added["id"])["enabled"]


async def test_an_answer_is_announced_in_the_main_session_without_a_turn() -> None:
    async with serve({}, ScriptedModel(then="It is noon.")) as ground:
        peer = await ground.join()
        await peer.call("sessions.subscribe")
        add(ground)
        [run] = await finished(ground)
        assert (run["status"], run["summary"], run["deliveryStatus"]) == (
            "ok",
            "It is noon.",
            "delivered",
        )
        assert run["sessionKey"].startswith("agent:main:cron:")
        [said] = texts(ground)
        assert "> It is noon." in said
        assert "not from the user" in said
        event = await peer.until(
            lambda each: each.get("event") == "cron" and each["payload"]["action"] == "finished"
        )
        assert event["payload"]["run"]["summary"] == "It is noon."
        asked = texts(ground, run["sessionKey"])
        assert asked[0].startswith("What time is it?\n")
        assert "the scheduled job 'job', due " in asked[0]


async def test_records_and_events_of_runs_contain_no_secrets() -> None:
    async with serve({}, ScriptedModel(then=f"The token is {TOKEN}.")) as ground:
        peer = await ground.join()
        add(ground)
        [run] = await finished(ground)
        assert run["summary"] == "The token is ***."
        await peer.until(
            lambda each: each.get("event") == "cron" and each["payload"]["action"] == "finished"
        )
        assert TOKEN not in str(peer.of("cron"))


async def test_a_flood_of_wake_ups_is_refused() -> None:
    async with serve({}) as ground:
        jobs, later = ground.gateway.job_runner.jobs(), now_ms() + 3_600_000
        for number in range(MAX_WAKE_UPS):
            queue_wake_up(jobs, "main", MAIN, f"{number} {'x' * 10_000}", later)
        peer = await ground.join()
        error = await peer.refused("wake", {"text": "one more"})
        assert "200 requests are already waiting" in error["message"]
        first = jobs.store.take("me", later, 1)[0]
        assert 0 < len(jobs.store.take_along(first, later)) < 10


async def test_the_session_of_a_job_has_its_model_and_its_tools() -> None:
    async with serve({"agents": {"entries": {"a": {"tools": {"deny": ["exec"]}}}}}) as ground:
        seen: list[Any] = []
        live = ground.gateway.live
        real = live.start

        async def start(key: str, *given: Any, **more: Any) -> Any:
            run = await real(key, *given, **more)
            there = live.find(key)
            seen.append(sorted(there.agent.kit.run.tools) if there else None)
            return run

        live.start = start  # type: ignore[method-assign]
        add(ground, name="none", toolsAllow=[])
        add(ground, name="some", toolsAllow=["read", "ls"])
        add(ground, name="denied", agentId="a", toolsAllow=["exec", "read"])
        for name in ("none", "some", "denied"):
            await finished(ground, name)
        assert sorted(seen) == [[], ["ls", "read"], ["read"]]


WEAK_LACKS_EXEC = {"tools": {"byProvider": {"weak": {"deny": ["exec"]}}}}
LACKS = "the run would have tools that the session which made this job lacks: "


def add_as_weak(ground: Ground, name: str, **job: Any) -> dict[str, Any]:
    """Add a job that a session with the model weak/m made."""
    author = JobAuthor(ModelRef("weak", "m"), Sender(owner=True), ())
    return ground.gateway.job_runner.jobs().add(
        {"name": name, "at": "+1s", "deleteAfterRun": False, **job},
        by="operator",
        sign=lambda job: replace(job, author=author),
    )


async def test_no_run_has_tools_that_the_author_of_its_job_lacks_by_then() -> None:
    """The settings may have changed since a model made the job."""
    async with serve(WEAK_LACKS_EXEC, ScriptedModel(then="Yes.")) as ground:
        make = partial(add_as_weak, ground)
        make("own", message="Hi", sessionTarget="isolated")
        make("main", text="Hi")
        make("code", payload={"script": "print(1)"})
        make("few", message="Hi", sessionTarget="isolated", toolsAllow=["read"])
        watch = {"schedule": {"kind": "stream", "command": ["echo", "x"]}, "at": None}
        stream = make("stream", message="Hi", toolsAllow=["read"], **watch)
        said = {name: (await finished(ground, name))[0] for name in ("own", "main", "code", "few")}
        assert said["own"]["error"].startswith(f"{LACKS}exec, code_execution; ")
        assert said["main"]["error"].startswith(LACKS)
        assert said["code"]["error"].startswith(f"{LACKS}code_execution; ")
        assert said["few"]["status"] == "ok"
        jobs = ground.gateway.job_runner.jobs()
        await until(lambda: not jobs.get(stream["id"])["enabled"])
        assert f"{LACKS}exec; " in jobs.get(stream["id"])["lastRunError"]


async def test_a_refused_run_leaves_no_message_and_no_session() -> None:
    async with serve(WEAK_LACKS_EXEC, ScriptedModel(then="Yes.")) as ground:
        store, main = ground.gateway.store, ground.gateway.live.create("main", name="main")
        add_as_weak(ground, "own", message="Hi", sessionTarget="isolated", delivery="none")
        add_as_weak(ground, "later", text="Hi", wakeMode="next-heartbeat")
        with store.hold(main.id):
            add_as_weak(ground, "held", text="Hi")
            for name in ("own", "later", "held"):
                [run] = await finished(ground, name)
                assert run["error"].startswith(f"{LACKS}exec, code_execution; "), name
        assert store.unused_since("cron:*", now_ms() + 1_000) == []
        mail = store.mailbox.unread(main.id, sandboxed=False)
        assert [each for each in mail if each.text == "Hi"] == []
        store.set_model(main.id, "weak/m")
        add_as_weak(ground, "weak", text="Hi", wakeMode="next-heartbeat")
        [run] = await finished(ground, "weak")
        assert run["summary"].startswith("left for the next turn")


async def test_the_tools_of_a_refused_call_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may hold a sandbox."""
    async with serve(WEAK_LACKS_EXEC) as ground:
        kits: list[Toolkit] = []
        real = Toolkit.open

        def opened(*given: Any, **more: Any) -> Toolkit:
            kits.append(real(*given, **more))
            return kits[-1]

        monkeypatch.setattr(Toolkit, "open", opened)
        job = add_as_weak(ground, "code", payload={"script": "print(1)"}, delivery="none")
        [run] = await finished(ground, "code")
        assert run["error"].startswith(LACKS)
        [kit] = [each for each in kits if each.run.scope.session == f"cron:{job['id']}"]
        late = await kit.call("exec", {"command": "echo hi"})
        assert "shutting down" in late.as_text()


async def test_turns_run_in_the_requested_session() -> None:
    async with serve({}, ScriptedModel(then="Yes.")) as ground:
        ground.gateway.live.create("main", name="garden")
        add(ground, name="there", sessionTarget="session:garden", delivery="none")
        add(ground, name="main", message=None, text="Tell me")
        add(ground, name="later", message=None, text="Some time", wakeMode="next-heartbeat")
        for name in ("there", "main", "later"):
            [run] = await finished(ground, name)
            assert run["status"] == "ok", run
        assert "Yes." in texts(ground, "agent:main:garden")
        assert any(each.startswith("Tell me") for each in texts(ground))
        main = ground.gateway.store.find(MAIN)
        assert main is not None
        mail = ground.gateway.store.mailbox.unread(main.id, sandboxed=False)
        read = any("Some time" in each for each in texts(ground))
        assert read or [each.text for each in mail] == ["Some time"]


async def test_a_failure_of_the_model_is_an_outcome_with_a_reason() -> None:
    model = ScriptedModel(ModelError("auth", "the key is wrong"), then="x")
    async with serve({}, model) as ground:
        job = add(ground)
        [run] = await finished(ground)
        assert (run["status"], run["errorReason"]) == ("error", "auth")
        assert "the key is wrong" in run["error"]
        shown = ground.gateway.job_runner.jobs().get(job["id"])
        assert (shown["enabled"], shown["lastRunStatus"]) == (False, "error")
        await until(lambda: [each for each in texts(ground) if "The job 'job' failed" in each])


async def test_the_session_of_a_job_is_opened_as_configured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serve({}) as ground:
        given: list[Opening] = []
        real = Opening.open

        def opened(self: Opening, *args: Any, **more: Any) -> Any:
            given.append(self)
            return real(self, *args, **more)

        monkeypatch.setattr(Opening, "open", opened)
        own = {"thinking": "low", "fallbacks": ["clawkit/operator"], "lightContext": True}
        add(ground, payload={"message": "go", **own}, message=None)
        await finished(ground)
        [opening] = [each for each in given if each.is_light]
        assert (opening.thinking, opening.fallbacks) == ("low", ("clawkit/operator",))


async def test_silence_is_not_announced() -> None:
    async with serve({}, ScriptedModel(then="NO_REPLY")) as ground:
        add(ground)
        [run] = await finished(ground)
        assert (run["delivered"], run["deliverySuppressionReason"]) == (False, "silent")
        assert texts(ground) == []


async def test_commands_and_scripts_of_a_person_run_as_the_agents_own(tmp_path: Path) -> None:
    config = {"agents": {"defaults": {"workspace": str(tmp_path)}}}
    async with serve(config) as ground:
        argv = ["sh", "-c", "cat; echo $X; pwd"]
        add(
            ground,
            name="good",
            message=None,
            payload={"argv": argv, "input": "in ", "env": {"X": "1"}},
        )
        add(ground, name="bad", message=None, payload={"argv": ["sh", "-c", "echo no; exit 3"]})
        add(
            ground,
            name="slow",
            message=None,
            payload={"argv": ["sleep", "60"], "timeoutSeconds": 1},
        )
        quiet = {"argv": ["sleep", "60"], "noOutputTimeoutSeconds": 1}
        add(ground, name="quiet", message=None, payload=quiet)
        add(ground, name="out", message=None, payload={"argv": ["touch", "/usr/clawkit-test"]})
        add(ground, name="code", message=None, payload={"script": "print(6 * 7)"})
        found = {
            name: (await finished(ground, name))[0]
            for name in ("good", "bad", "slow", "quiet", "out", "code")
        }
        assert found["good"]["summary"].split() == ["in", "1", str(tmp_path)]
        assert found["code"]["summary"].strip() == "42"
        assert {name: run["status"] for name, run in found.items() if run["status"] == "error"} == {
            "bad": "error",
            "slow": "error",
            "quiet": "error",
            "out": "error",
        }
        assert "no" in found["bad"]["error"]
        assert not Path("/usr/clawkit-test").exists()


async def test_a_question_that_no_one_can_answer_is_refused_at_once() -> None:
    ask = call("exec", {"command": "uptime", "elevated": True})
    model = ScriptedModel(ask, "refused", ask, "allowed")
    async with serve({}, model) as ground:
        job = add(ground, at=None, every="1h")
        jobs = ground.gateway.job_runner.jobs()
        jobs.run(job["id"], "force")
        [run] = await finished(ground)
        said = "\n".join(texts(ground, run["sessionKey"]))
        assert "no one can be asked" in said
        assert f"clawkit cron edit {job['id']} --grant uptime" in said
        jobs.update(job["id"], {"grants": ["uptime"]}, by="operator")
        jobs.run(job["id"], "force")
        [_, second] = await finished(ground, count=2)
        assert "load average" in "\n".join(texts(ground, second["sessionKey"]))
        jobs.update(job["id"], {"description": "changed"}, by="model")
        assert jobs.get(job["id"]).get("grants") is None


@pytest.mark.parametrize(
    ("params", "is_fine"),
    [
        ({"timeout": 50, "elevated": True}, True),
        ({"env": {"NOISE": "1"}, "elevated": True}, False),
        ({"workdir": "/usr", "elevated": True}, False),
        ({"background": True, "elevated": True}, False),
        ({"pty": True, "elevated": True}, False),
        ({"access": {"read": ["/etc"]}}, False),
    ],
)
async def test_a_grant_is_for_one_command_in_the_usual_circumstances(
    params: dict[str, Any], is_fine: bool
) -> None:
    ask = call("exec", {"command": "uptime", **params})
    async with serve({}, ScriptedModel(ask, "over")) as ground:
        job = add(ground, at=None, every="1h", grants=["uptime"])
        ground.gateway.job_runner.jobs().run(job["id"], "force")
        [run] = await finished(ground)
        said = "\n".join(texts(ground, run["sessionKey"]))
        assert ("load average" in said) is is_fine
        assert ("no one can be asked" in said) is not is_fine


@pytest.mark.parametrize(
    ("asked", "is_fine"),
    [
        ({}, True),
        ({"cwd": "/srv"}, False),  # such as a sub-agent that works elsewhere
        ({"command": "ls -l"}, False),
        ({"tool": "write"}, False),
        ({"plain": False}, False),
    ],
)
def test_a_grant_is_for_exactly_one_command(asked: dict[str, Any], is_fine: bool) -> None:
    usual = {"tool": "exec", "command": "ls", "cwd": "/usr", "plain": True}
    question = Question(**{"params": {}, "title": "title", **usual, **asked})
    assert is_granted(question, ["ls"], "/usr") is is_fine


async def test_clients_make_watch_and_run_jobs(ground: Ground) -> None:
    peer = await ground.join()
    job = {
        "name": "job1",
        "enabled": True,
        "schedule": {"kind": "every", "everyMs": 600_000},
        "sessionTarget": "isolated",
        "wakeMode": "now",
        "delivery": {"mode": "none", "channel": "last"},
        "payload": {"kind": "agentTurn", "message": "go"},
    }
    added = await peer.call("cron.add", job)
    assert added["deliveryPreview"] == {"label": "not requested", "detail": "not requested"}
    page = await peer.call("cron.list", {"limit": 1})
    assert page["jobs"][0]["id"] == added["id"]
    assert page["snapshotRevision"].startswith("sha256:")
    assert (page["hasMore"], page["nextOffset"]) == (False, None)
    assert (await peer.call("cron.status"))["jobs"] >= 1
    patched = await peer.call("cron.update", {"id": added["id"], "patch": {"name": "job1b"}})
    assert patched["name"] == "job1b"
    assert (await peer.call("cron.get", {"jobId": added["id"]}))["name"] == "job1b"
    ran = await peer.call("cron.run", {"id": added["id"], "mode": "force"})
    assert ran["enqueued"]
    assert ran["runId"].startswith("manual:")
    await finished(ground, "job1b")
    [entry] = (await peer.call("cron.runs", {"id": added["id"]}))["entries"]
    assert (entry["runId"], entry["status"], entry["deliveryStatus"]) == (
        ran["runId"],
        "ok",
        "not-requested",
    )
    assert (await peer.call("cron.runs", {"runId": "nope"}))["entries"] == []
    off = await peer.call("cron.update", {"id": added["id"], "patch": {"enabled": False}})
    assert not off["enabled"]
    assert (await peer.call("cron.list", {"enabled": "enabled", "query": "job1b"}))["total"] == 0
    assert (await peer.call("cron.list", {"enabled": "disabled", "query": "job1b"}))["total"] == 1
    assert (await peer.call("cron.remove", {"id": added["id"]}))["removed"]
    assert not (await peer.call("cron.remove", {"id": added["id"]}))["removed"]
    actions = [each["action"] for each in peer.of("cron") if each["jobId"] == added["id"]]
    assert actions[0] == "added"
    assert actions[-1] == "removed"
    assert {"updated", "started", "finished"} <= set(actions)


async def test_who_may_write_wakes_a_session_without_the_rights_of_the_owner() -> None:
    tool = '/tool cron {"action": "status"}'
    async with serve({}, Operator()) as ground:
        guest, owner = await ground.join([READ, WRITE]), await ground.join()
        await guest.call("wake", {"text": tool, "mode": "now"})
        await until(lambda: any("owner-only" in each for each in texts(ground)))
        await owner.call("wake", {"text": tool, "mode": "now"})
        await until(lambda: any('"storage": "sqlite"' in each for each in texts(ground)))
        await guest.call("wake", {"text": "Hello", "mode": "next-heartbeat"})
        gateway = ground.gateway
        facts = gateway.job_runner.heartbeats.facts("main")[0]
        assert not facts.has_mail  # no heartbeat, which has these rights, reads it


@pytest.mark.parametrize(
    ("method", "params", "words"),
    [
        ("cron.get", {}, "id is required"),
        ("cron.get", {"id": "nope"}, "unknown job 'nope'"),
        ("cron.add", {"name": "x"}, "schedule is required"),
        ("cron.add", {"schedule": "every 1 second", "payload": "x"}, "must be 2,000"),
        ("cron.update", {"id": "nope", "patch": {}}, "unknown job"),
        ("cron.run", {"id": "nope"}, "unknown job"),
        ("cron.runs", {"id": "nope"}, "unknown job"),
        ("cron.runs", {"limit": 0}, "limit"),
        ("wake", {"text": ""}, "text"),
        ("wake", {"text": "x", "sessionKey": "agent:main:cron:x"}, "unwakeable"),
    ],
)
async def test_wrong_requests_are_explained(
    ground: Ground, method: str, params: dict[str, Any], words: str
) -> None:
    peer = await ground.join()
    add(ground, at=None, every="1h")
    assert words in (await peer.refused(method, params))["message"]


async def test_a_job_waits_for_a_command_to_exit(tmp_path: Path) -> None:
    config = {"agents": {"defaults": {"workspace": str(tmp_path)}}}
    async with serve(config, ScriptedModel(then="Seen.")) as ground:
        schedule = {"kind": "on-exit", "command": "echo ready; exit 3"}
        job = add(ground, at=None, schedule=schedule, deleteAfterRun=False)
        [run] = await finished(ground)
        said = texts(ground, run["sessionKey"])[0]
        assert "code 3" in said
        assert "> ready" in said
        assert not ground.gateway.job_runner.jobs().get(job["id"])["enabled"]  # it is over


async def test_a_changed_job_waits_for_its_command_anew(tmp_path: Path) -> None:
    config = {"agents": {"defaults": {"workspace": str(tmp_path)}}}
    async with serve(config, ScriptedModel(then="Seen.")) as ground:
        wait = {"kind": "on-exit", "command": "touch began; exec sleep 600"}
        job = add(ground, at=None, schedule=wait, deleteAfterRun=False)
        jobs, watches = ground.gateway.job_runner.jobs(), ground.gateway.job_runner.watches
        await until((tmp_path / "began").exists)
        jobs.update(job["id"], {"enabled": False}, by="operator")
        await until(lambda: not watches.running)
        (tmp_path / "began").unlink()
        jobs.update(job["id"], {"enabled": True}, by="operator")
        await until((tmp_path / "began").exists)
        schedule = {"kind": "on-exit", "command": "echo changed; exit 3"}
        jobs.update(job["id"], {"schedule": schedule}, by="operator")
        [run] = await finished(ground)
        said = texts(ground, run["sessionKey"])[0]
        assert "> changed" in said
        assert "not known" not in said


async def test_the_turn_for_an_exit_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawkit.cron.outcome.BACKOFF_MS", (100,))
    config = {"agents": {"defaults": {"workspace": str(tmp_path)}}}
    model = ScriptedModel(ModelError("server", "is down"), then="Seen.")
    async with serve(config, model) as ground:
        schedule = {"kind": "on-exit", "command": "echo ready"}
        add(ground, at=None, schedule=schedule)
        first, second = await finished(ground, count=2)
        assert (first["status"], second["status"], second["why"]) == ("error", "ok", "retry")
        assert first["retryAtMs"]
        assert "> ready" in texts(ground, second["sessionKey"])[0]


async def test_lines_of_a_stream_become_runs_in_batches(tmp_path: Path) -> None:
    config = {"agents": {"defaults": {"workspace": str(tmp_path)}}}
    async with serve(config, ScriptedModel(then="Seen.")) as ground:
        code = "echo good 1; echo bad; echo good 2; touch done; exec sleep 600"
        schedule = {
            "kind": "stream",
            "command": ["sh", "-c", code],
            "mode": "match",
            "match": "good",
        }
        job = add(ground, at=None, schedule=schedule)
        [run, *_] = await finished(ground)
        said = texts(ground, run["sessionKey"])[0]
        assert "> good 1\n> good 2" in said
        assert "bad" not in said
        ground.gateway.job_runner.jobs().update(job["id"], {"enabled": False}, by="operator")
        watches = ground.gateway.job_runner.watches
        await until(lambda: not watches.running)


async def test_a_stream_without_end_does_not_hold_up_the_gateway(tmp_path: Path) -> None:
    """It is read in parts, and ended; what is found later in a large output is found, too."""
    config = {"agents": {"defaults": {"workspace": str(tmp_path)}}}
    async with serve(config, ScriptedModel(then="Seen.")) as ground:
        sizes: list[int] = []
        watches = ground.gateway.job_runner.watches
        real = watches._add

        async def add_lines(row: Any, schedule: Any, lines: list[str]) -> None:
            sizes.append(sum(map(len, lines)))
            await real(row, schedule, lines)

        watches._add = add_lines  # type: ignore[method-assign]
        code = "seq 1 100000; echo needle; exec sleep 600"
        schedule = {"kind": "stream", "command": ["sh", "-c", code], "mode": "match"}
        add(ground, at=None, schedule={**schedule, "match": "needle"})
        [run, *_] = await finished(ground)
        assert "> needle" in texts(ground, run["sessionKey"])[0]
        add(ground, name="yes", at=None, schedule={"kind": "stream", "command": ["yes"]})
        jobs = ground.gateway.job_runner.jobs()
        await until(lambda: "streamLastExitAtMs" in jobs.get("yes")["state"])
        assert max(sizes) <= MAX_READ + MAX_LINE


async def test_a_stream_that_ends_again_and_again_is_disabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawkit.gateway.watched_commands.AGAIN_S", 0.0)
    config = {"agents": {"defaults": {"workspace": str(tmp_path)}}}
    async with serve(config) as ground:
        job = add(ground, at=None, schedule={"kind": "stream", "command": ["false"]})
        jobs = ground.gateway.job_runner.jobs()
        await until(lambda: not jobs.get(job["id"])["enabled"])
        assert "its command ended 5 times" in jobs.get(job["id"])["state"]["autoDisabled"]


@pytest.mark.parametrize(
    ("url", "policy", "words"),
    [
        ("https://blocked.example/x", {"blocked_hostnames": ["*.example"]}, "blockedHostnames"),
        ("https://a.test/x", {"hostname_allowlist": ["b.test"]}, "hostnameAllowlist"),
        ("https://hooks.internal/x", {}, "cron.webhookSsrfPolicy.allowedHostnames can allow it"),
        ("file:///etc/passwd", {}, "file:///etc/passwd: "),
        ("https://user:pw@a.test/", {}, "https://user:pw@a.test/: "),
    ],
)
def test_some_webhooks_are_refused(url: str, policy: dict[str, Any], words: str) -> None:
    with pytest.raises(ToolError, match=words):
        route_to(url, SsrfPolicy(**policy))


def test_webhooks_reach_private_addresses_only_if_these_are_allowed() -> None:
    key = "cron.webhookSsrfPolicy"
    closed = Route(loopback=False, policy=key)
    assert route_to("http://169.254.169.254/x", SsrfPolicy()) == closed
    open_ = SsrfPolicy(allowed_hostnames=["*.home.test"])
    assert route_to("https://a.home.test/x", open_) == Route(private=True, policy=key)
    assert route_to("https://a.test/x", open_) == closed


async def test_a_webhook_gets_the_outcome_and_its_failure_repeats_nothing() -> None:
    got: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.read(65_536))
        status = b"200 OK" if b"/good" in got[-1] else b"500 Sorry"
        writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    config: dict[str, Any] = {
        "cron": {
            "webhookToken": "S3CRET-hook",
            "webhookSsrfPolicy": {"allowedHostnames": ["127.0.0.1"]},
        }
    }
    model = ScriptedModel(then="It is noon.")
    async with server, serve(config, model) as ground:
        add(ground, name="good", delivery=f"{url}/good")
        add(
            ground, name="bad", delivery={"mode": "webhook", "to": f"{url}/bad", "bestEffort": True}
        )
        [good] = await finished(ground, "good")
        [bad] = await finished(ground, "bad")
        assert (good["deliveryStatus"], good["receipt"]) == ("delivered", "HTTP 200")
        assert (bad["status"], bad["deliveryStatus"]) == ("ok", "not-delivered")
        assert "HTTP 500" in bad["deliveryError"]
        sent = next(each for each in got if b"/good" in each)
        assert b"Authorization: Bearer S3CRET-hook" in sent
        assert b'"summary":"It is noon."' in sent
        assert len(got) == 2
    async with serve({}, ScriptedModel(then="x")) as ground:
        add(ground, name="private", delivery=f"{url}/good")
        [run] = await finished(ground, "private")
        assert "cron.webhookSsrfPolicy" in run["deliveryError"]
        assert len(got) == 2


async def test_old_sessions_of_jobs_are_deleted() -> None:
    async with serve({"cron": {"sessionRetention": "1s"}}, ScriptedModel(then="x")) as ground:
        add(ground, delivery="none")
        [run] = await finished(ground)
        assert ground.gateway.store.find(run["sessionKey"]) is not None
        await asyncio.sleep(1.1)
        await ground.gateway.job_runner.forget_sessions()
        assert ground.gateway.store.find(run["sessionKey"]) is None


async def test_jobs_are_off_if_settings_or_the_environment_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serve({"cron": {"enabled": False}}) as ground:
        assert not ground.gateway.job_runner.settings.enabled
    monkeypatch.setenv("CLAWKIT_SKIP_CRON", "1")
    async with serve({}) as ground:
        peer = await ground.join()
        assert not (await peer.call("cron.status"))["enabled"]
        assert not ground.gateway.job_runner.settings.enabled
