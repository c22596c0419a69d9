"""Heartbeats and wake-ups in a real gateway."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.gateway.conftest import TOKEN, Ground, serve
from tests.gateway.test_cron import finished, texts, until

from clawkit.content import Assistant, Message, Text, ToolCall, Usage
from clawkit.cron.jobs import Job, JobState
from clawkit.cron.store import JobRow
from clawkit.errors import ToolError
from clawkit.gateway.protocol import now_ms
from clawkit.models.protocols import ModelError
from clawkit.session_cron import cron_store, queue_wake_up
from clawkit.testing import Gate, ScriptedModel, call, calls

MAIN, OWN, NAME = "agent:main:main", "agent:main:heartbeat", "heartbeat-main"
EXEC = {"tools": {"exec": {"security": "full", "ask": "off", "host": "gateway"}}}


def write(text: str, name: str = "HEARTBEAT.md") -> Path:
    place = Path(os.environ["CLAWKIT_HOME"]) / "workspace"
    place.mkdir(exist_ok=True)
    (place / name).write_text(text, encoding="utf-8")
    return place / name


def config(**settings: Any) -> dict[str, Any]:
    return {"agents": {"defaults": {"heartbeat": settings}}}


def answer(**given: Any) -> Any:
    plain = {"outcome": "no_change", "notify": False, "summary": "All is quiet."}
    return call("heartbeat_respond", {**plain, **given})


def words(message: Message) -> list[str]:
    return [getattr(each, "text", "") for each in getattr(message, "content", ())]


async def job_of(ground: Ground, agent: str = "main", *, enabled: bool = True) -> JobRow:
    def found() -> JobRow | None:
        row = ground.gateway.job_runner.jobs().heartbeat_job(agent)
        return row if row is not None and row.job.enabled == enabled else None

    row: JobRow = await until(found)
    return row


async def beat(ground: Ground, *, due: bool = False) -> dict[str, Any]:
    """Have a beat, because it is due or because someone asks for it; returns how it ended."""
    row, gateway = await job_of(ground), ground.gateway
    before = len(gateway.job_runner.jobs().runs()["entries"])

    def come(row: JobRow) -> tuple[Job, JobState, int, int | None]:
        return row.job, row.state, row.job.created_at_ms - 1, row.job.created_at_ms

    if due:
        gateway.job_runner.store.change(row.job.id, come)
        gateway.job_runner.scheduler.wake()
    else:
        assert gateway.job_runner.jobs().run(row.job.id, "force")["ran"]
    return (await finished(ground, NAME, before + 1))[-1]


async def test_there_is_no_heartbeat_until_the_file_has_content() -> None:
    async with serve({}) as ground:
        peer = await ground.join()
        off = {"enabled": False, "every": "0m", "everyMs": None}
        health = await peer.call("health")
        assert health["agents"][0]["heartbeat"] == off
        assert health["heartbeatSeconds"] == 0
        assert await peer.call("last-heartbeat") is None
        jobs = ground.gateway.job_runner.jobs()
        assert jobs.heartbeat_job("main") is None
        heartbeats = ground.gateway.job_runner.heartbeats
        file = write("# Nothing yet\n")
        heartbeats.keep()
        assert jobs.heartbeat_job("main") is None
        file.write_text("Check the door.", encoding="utf-8")
        heartbeats.look()
        row = await job_of(ground)
        assert row.next_ms is not None
        assert row.next_ms - row.job.created_at_ms == 1_800_000
        health = await peer.call("health")
        shown = health["agents"][0]["heartbeat"]
        assert (shown["enabled"], shown["every"], shown["everyMs"]) == (True, "30m", 1_800_000)
        assert (shown["target"], shown["ackMaxChars"]) == ("owner", 300)
        assert health["heartbeatSeconds"] == 1_800
        status = await peer.call("status")
        assert status["heartbeat"]["agents"][0]["enabled"] is True
        file.write_text("- \n", encoding="utf-8")
        heartbeats.look()
        assert (await job_of(ground, enabled=False)).next_ms is None


async def test_the_file_shows_nothing_that_rules_deny_and_no_secrets() -> None:
    write("what no model may read", "private.md")
    write("plain", "notes.md")
    file = write("x")
    deny = {"tool": "group:fs", "params": {"path": "private.md"}, "effect": "deny"}
    async with serve({"tools": {"rules": [deny]}}) as ground:

        def text() -> str | None:
            return ground.gateway.job_runner.heartbeats.facts("main")[0].text

        for target, shown in (("private.md", ""), ("notes.md", "plain")):
            file.unlink()
            file.symlink_to(target)
            assert text() == shown
        write(f"Use {TOKEN}.")
        assert text() == "Use ***."


async def test_a_beat_reads_the_file_and_its_answer_ends_the_turn() -> None:
    write("Check the door.")
    write("Be brief.", "AGENTS.md")
    told = {"notify": True, "outcome": "needs_attention", "priority": "high", "reason": "it rains"}
    said = answer(**told, summary="The door is open.", scratch="seen once", next_check="5m")
    model = ScriptedModel(said)
    cron_store().set_fact("heartbeat:main", {"summary": "It was shut.", "scratch": "look twice"})
    async with serve({}, model) as ground:
        peer = await ground.join(caps=["tool-events"])
        run = await beat(ground, due=True)
        assert (run["status"], run["why"], run["sessionKey"]) == ("ok", "schedule", OWN)
        assert run["deliveryStatus"] == "delivered"
        [request] = model.requests
        [asked] = request.messages
        file, ours = words(asked)
        assert file == "Check the door."
        for part in ("It was shut.", "look twice", "The time is "):
            assert part in ours
        assert "Be brief." in request.system
        [report] = texts(ground)
        assert "> [needs_attention, urgent] The door is open. (it rains)" in report
        fact = ground.gateway.job_runner.store.fact("heartbeat:main")
        assert fact == {"summary": "The door is open.", "scratch": "seen once"}
        row = await job_of(ground)
        assert row.next_ms is not None
        assert 290_000 < row.next_ms - now_ms() <= 300_000
        event = await peer.until(lambda each: each.get("event") == "heartbeat")
        last = await peer.call("last-heartbeat")
        assert event["payload"] == last
        assert (last["status"], last["hasMedia"]) == ("sent", False)
        assert last["preview"].startswith("[needs_attention, urgent] The door is open.")
        shown = [each for each in peer.of("agent") if each["sessionKey"] == OWN]
        assert shown
        assert all(each["isHeartbeat"] for each in shown)


async def test_a_quiet_answer_reaches_no_one() -> None:
    write("Check the door.")
    async with serve({}, ScriptedModel(answer())) as ground:
        run = await beat(ground)
        assert (run["deliverySuppressionReason"], run["delivered"]) == ("silent", False)
        assert run["summary"] == "[no_change] All is quiet."
        assert ground.gateway.store.find(MAIN) is None
        last = ground.gateway.job_runner.heartbeats.last()
        assert last is not None
        assert last["status"] == "ok-token"


@pytest.mark.parametrize(
    ("text", "announced"),
    [
        ("HEARTBEAT_OK", ""),
        ("**HEARTBEAT_OK**", ""),
        ("NO_REPLY", ""),
        ("All is well. HEARTBEAT_OK", ""),
        (f"HEARTBEAT_OK {'x' * 300}", ""),
        (f"HEARTBEAT_OK {'x' * 301}", "x" * 301),
        ("The door is open.", "The door is open."),
    ],
)
async def test_an_answer_in_words_is_announced_unless_it_is_an_acknowledgement(
    text: str, announced: str
) -> None:
    write("Check the door.")
    async with serve({}, ScriptedModel(text)) as ground:
        run = await beat(ground)
        assert run["delivered"] is bool(announced)
        assert [each.rpartition("> ")[2] for each in texts(ground)] == [announced][
            : bool(announced)
        ]


async def test_the_answer_is_taken_once_and_checked() -> None:
    write("Check the door.")
    wrong = (
        answer(summary=" "),
        answer(next_check="soon"),
        answer(scratch="é" * 131_073),
        answer(outcome="fine"),
    )
    one = ("heartbeat_respond", {"outcome": "done", "notify": False, "summary": "First."})
    two = ("heartbeat_respond", {"outcome": "done", "notify": True, "summary": "Second."})
    model = ScriptedModel(*wrong, calls(one, two))
    async with serve({}, model) as ground:
        run = await beat(ground)
        assert run["summary"] == "[done] First."
        session = ground.gateway.store.find(OWN)
        assert session is not None
        history = ground.gateway.store.history(session.id)
        results = [m.message for m in history if getattr(m.message, "tool", "")]
        said = ["\n".join(words(each)) for each in results]
        assert "summary must not be empty" in said[0]
        assert "nextCheck: invalid time 'soon'" in said[1]
        assert "262,144 bytes" in said[2]
        assert "outcome" in said[3]
        assert '"status": "accepted"' in said[4].replace('":"', '": "')
        assert "accepts only one" in said[5]
        assert ground.gateway.store.find(MAIN) is None


async def test_only_heartbeats_have_the_tool_for_their_answer() -> None:
    write("Check the door.")
    async with serve({}, ScriptedModel(answer(), then="Hi.")) as ground:
        await beat(ground)
        peer = await ground.join()
        await peer.call("chat.send", {"sessionKey": OWN, "message": "hi", "idempotencyKey": "k"})
        await peer.until_chat("final", "k")
        there = ground.gateway.live.find(OWN)
        assert there is not None
        assert "heartbeat_respond" in there.agent.kit.run.tools, "it was open for the beat"
        await ground.gateway.live.close_session(OWN)
        for number, key in enumerate((MAIN, OWN)):
            run = {"sessionKey": key, "message": "hi", "idempotencyKey": f"k{number}"}
            await peer.call("chat.send", run)
            await peer.until_chat("final", f"k{number}")
            there = ground.gateway.live.find(key)
            assert there is not None
            assert "heartbeat_respond" not in there.agent.kit.run.tools


async def test_a_busy_agent_is_not_disturbed() -> None:
    write("Check the door.")
    gate = Gate("Hello.")
    async with serve({}, ScriptedModel(gate, then="NO_REPLY")) as ground:
        peer = await ground.join()
        await peer.call("chat.send", {"sessionKey": MAIN, "message": "hi", "idempotencyKey": "k"})
        await gate.reached.wait()
        run = await beat(ground, due=True)
        assert (run["status"], run["errorReason"]) == ("skipped", "busy")
        gate.release()
        await peer.until_chat("final", "k")
        last = await peer.call("last-heartbeat")
        assert (last["status"], last["reason"], last["message"]) == (
            "skipped",
            "busy",
            "the agent is busy",
        )


async def test_a_model_that_cannot_be_paid_stops_heartbeats_until_they_are_resumed() -> None:
    write("Check the door.")
    model = ScriptedModel(ModelError("billing", "no credit is left"), then=answer())
    async with serve({}, model) as ground:
        peer = await ground.join()
        run = await beat(ground)
        assert (run["status"], run["errorReason"]) == ("error", "billing")
        await job_of(ground, enabled=False)
        [report] = texts(ground)
        assert "no credit is left" in report
        assert "clawkit heartbeat resume" in report
        asked = ground.gateway.job_runner.jobs().run(NAME, "force")
        assert asked["ran"]
        entry = (await finished(ground, NAME, 2))[-1]
        assert (entry["status"], entry["errorReason"]) == ("skipped", "paused")
        assert texts(ground) == [report], "it is reported once"
        assert (await peer.call("health"))["agents"][0]["heartbeat"]["enabled"] is False
        assert await peer.call("set-heartbeats", {"enabled": True}) == {"ok": True, "enabled": True}
        assert (await job_of(ground)).next_ms is not None


async def test_heartbeats_are_paused_for_all_and_this_outlives_the_gateway() -> None:
    write("Check the door.")
    async with serve({}, ScriptedModel(then=answer())) as ground:
        await job_of(ground)
        peer = await ground.join()
        assert await peer.call("set-heartbeats", {"enabled": False}) == {
            "ok": True,
            "enabled": False,
        }
        assert (await job_of(ground, enabled=False)).next_ms is None
    async with serve({}, ScriptedModel(then=answer())) as ground:
        ground.gateway.job_runner.heartbeats.keep()
        row = await job_of(ground, enabled=False)
        assert row.next_ms is None


async def test_the_daily_budget_counts_what_beats_cost() -> None:
    write("Check the door.")
    dear = Assistant((Text("NO_REPLY"),), usage=Usage(100, 10, cost=0.3))
    async with serve(config(maxCostPerDay=0.25), ScriptedModel(dear, then=answer())) as ground:
        run = await beat(ground)
        assert run["cost"] == 0.3
        again = await beat(ground)
        assert (again["status"], again["errorReason"]) == ("skipped", "budget")
        assert "$0.30" in again["error"]


async def test_a_beat_that_is_stopped_still_counts() -> None:
    write("Check the door.")
    long = ToolCall("c", "exec", {"command": "sleep 60"})
    dear = Assistant((long,), usage=Usage(9, 1, cost=0.2))
    settings = {**config(timeoutSeconds=1), **EXEC}
    async with serve(settings, ScriptedModel(dear, then="NO_REPLY")) as ground:
        run = await beat(ground)
        assert (run["status"], run["errorReason"]) == ("error", "timeout")
        assert run["cost"] == 0.2


async def test_a_session_of_its_own_each_time_is_deleted_with_those_of_jobs() -> None:
    write("Check the door.")
    settings = config(isolatedSession=True, every="2h") | {"cron": {"sessionRetention": "0s"}}
    async with serve(settings, ScriptedModel(then="NO_REPLY")) as ground:
        key = (await beat(ground))["sessionKey"]
        assert key.startswith("agent:main:heartbeat:")
        await ground.gateway.live.close_session(key)
        await asyncio.sleep(0.01)
        await ground.gateway.job_runner.forget_sessions()
        assert ground.gateway.store.find(key) is None


async def test_a_beat_in_another_session_has_no_tool_of_its_own() -> None:
    write("Check the door.")
    async with serve(config(session="garden"), ScriptedModel(then="The door is open.")) as ground:
        run = await beat(ground)
        assert run["sessionKey"] == "agent:main:garden"
        assert any("The door is open." in each for each in texts(ground))
        there = ground.gateway.live.find("agent:main:garden")
        assert there is not None
        assert "heartbeat_respond" not in there.agent.kit.run.tools


async def test_a_session_of_another_agent_is_an_error() -> None:
    write("Check the door.")
    async with serve(config(session="agent:other:main"), ScriptedModel(then="x")) as ground:
        run = await beat(ground)
        assert run["status"] == "error"
        assert run["error"].startswith("heartbeat.session: ")


async def test_light_context_prompt_and_no_target() -> None:
    write("Check the door.")
    write("I am Ada.", "USER.md")
    model = ScriptedModel(then="The door is open.")
    settings = config(lightContext=True, prompt="Just look.", target="none")
    async with serve(settings, model) as ground:
        run = await beat(ground)
        assert (run["status"], run["deliveryStatus"]) == ("ok", "not-requested")
        [request] = model.requests
        assert "I am Ada." not in request.system
        asked = words(request.messages[0])[1]
        assert "\n\nJust look.\n\nThe time is" in asked
        assert ground.gateway.store.find(MAIN) is None


async def test_a_long_session_of_heartbeats_starts_anew() -> None:
    write("Check the door.")
    long = Assistant((Text("NO_REPLY"),), usage=Usage(30_000, 10))
    async with serve({}, ScriptedModel(long, then="NO_REPLY")) as ground:
        first = (await beat(ground))["sessionId"]
        store = ground.gateway.job_runner.store
        with store._database.writing() as db:  # the flood guard: it was a minute ago
            db.execute("UPDATE run SET started_ms = started_ms - 60000")
        assert (await beat(ground))["sessionId"] != first


async def test_only_the_default_agent_and_those_with_settings_have_one(tmp_path: Path) -> None:
    agents = {
        "defaults": {"heartbeat": {"every": "1h"}},
        "list": [{"id": "main"}, {"id": "own", "heartbeat": {}}, {"id": "other"}],
    }
    file = tmp_path / "clawkit.json"
    file.write_text(
        json.dumps({"agents": agents, "gateway": {"auth": {"token": "T0KEN-for-tests"}}})
    )
    async with serve(str(file)) as ground:
        await job_of(ground)
        await job_of(ground, "own")
        jobs = ground.gateway.job_runner.jobs()
        assert jobs.heartbeat_job("other") is None
        other = jobs.add({"name": "mine", "every": "1h", "message": "hi"}, by="operator")
        # The file changes while the gateway runs.
        agents["defaults"] = {"heartbeat": {"every": "2h"}}
        agents["list"] = [{"id": "main"}]
        file.write_text(
            json.dumps({"agents": agents, "gateway": {"auth": {"token": "T0KEN-for-tests"}}})
        )
        await until(lambda: jobs.get(NAME)["schedule"]["everyMs"] == 7_200_000)
        await job_of(ground, "own", enabled=False)
        assert jobs.get("mine") == other


async def test_clients_can_connect_although_the_store_of_jobs_is_broken() -> None:
    Path(cron_store().path).parent.mkdir(exist_ok=True)
    Path(cron_store().path).write_bytes(b"not a database" * 100)
    async with serve({}) as ground:
        peer = await ground.join()
        assert (await peer.call("health"))["agents"][0]["heartbeat"]["enabled"] is False


async def test_clients_without_read_scope_receive_no_text() -> None:
    write("Check the door.")
    async with serve({}, ScriptedModel(then="The door is open.")) as ground:
        stranger = await ground.join(["operator.approvals"])
        await beat(ground)
        event = await stranger.until(lambda each: each.get("event") == "heartbeat")
        assert event["payload"].keys() == {"ts", "status", "durationMs"}


# Wake-ups


async def test_wake_ups_that_wait_for_a_session_are_one_turn_in_order() -> None:
    gate = Gate("Hello.")
    model = ScriptedModel(gate, then="I see.")
    async with serve({}, model) as ground:
        peer = await ground.join()
        await peer.call("chat.send", {"sessionKey": MAIN, "message": "hi", "idempotencyKey": "k"})
        await gate.reached.wait()
        for number in range(7):
            assert (await peer.call("wake", {"text": f"event {number}"}))["ok"]
        await peer.call("wake", {"text": "elsewhere", "sessionKey": "garden"})
        garden = await until(lambda: texts(ground, "agent:main:garden")[1:])
        assert garden == ["I see."], "another session does not wait"
        gate.release()
        runs = await finished(ground, NAME, 8)
        assert {run["status"] for run in runs} == {"ok"}
        said = "\n".join(texts(ground))
        found = [int(part[0]) for part in said.split("event ")[1:]]
        assert found == list(range(7)), "nothing is skipped"
        turns = [each for each in model.requests if each.session == MAIN]
        assert len(turns) <= 3, "the chat, the first one, and all others"


async def test_a_heartbeat_that_is_on_cannot_be_removed_as_a_job() -> None:
    async with serve(config(every="1h"), ScriptedModel(then=answer())) as ground:
        row, peer = await job_of(ground), await ground.join()
        refused = await peer.refused("cron.remove", {"id": row.job.id})
        assert "to stop it: clawkit heartbeat pause" in refused["message"]
        assert ground.gateway.job_runner.jobs().get(row.job.id)["enabled"]


async def test_a_wake_up_waits_in_the_mailbox_of_a_session_that_is_used_elsewhere() -> None:
    async with serve({}, ScriptedModel(then="I see.")) as ground:
        session = ground.gateway.live.create("main", name="main")
        peer = await ground.join()
        with ground.gateway.store.hold(session.id):
            await peer.call("wake", {"text": "The door!"})
            [run] = await finished(ground, NAME)
        assert (run["status"], run["summary"]) == ("ok", "left for the next turn")
        [mail] = ground.gateway.store.mailbox.unread(session.id, sandboxed=False)
        assert mail.text == "The door!"


async def test_a_wake_up_continues_after_a_restart() -> None:
    gate, model = Gate("Too late."), ScriptedModel(then="I see.")
    async with serve({}, ScriptedModel(gate)) as ground:
        peer = await ground.join()
        await peer.call("wake", {"text": "The door!"})
        await gate.reached.wait()
    async with serve({}, model) as ground:
        await until(lambda: texts(ground)[-1] == "I see.")
        assert sum("The door!" in each for each in texts(ground)) == 1
        assert len(model.requests) == 1


async def test_what_was_left_for_the_next_heartbeat_is_read_in_the_main_session() -> None:
    model = ScriptedModel("I see.", then=answer())
    async with serve(config(every="1h"), model) as ground:
        peer = await ground.join()
        await peer.call("wake", {"text": "The door!", "mode": "next-heartbeat"})
        assert await peer.call("system-event", {"text": "It rings."}) == {"ok": True}
        assert texts(ground) == []
        write("# Nothing else\n")
        heartbeats = ground.gateway.job_runner.heartbeats
        assert heartbeats.facts("main")[0].has_mail
        run = await beat(ground, due=True)
        assert (run["status"], run["sessionKey"]) == ("ok", MAIN)
        said = "\n".join(texts(ground))
        assert "> The door!" in said
        assert "> It rings." in said
        assert len(model.requests) == 1, "the file has nothing to check"


async def test_messages_of_others_do_not_start_a_heartbeat() -> None:
    async with serve(config(every="1h")) as ground:
        job_runner = ground.gateway.job_runner
        for sender in ("agent:other:main", "Web request to door"):
            job_runner.leave(MAIN, "main", sender, "Open it!")
        assert not job_runner.heartbeats.facts("main")[0].has_mail


async def test_wake_ups_of_a_session_that_cannot_be_opened_end_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serve({}) as ground:
        job_runner = ground.gateway.job_runner

        async def refuse(*_given: Any, **_more: Any) -> Any:
            raise ToolError("the model has no key")

        monkeypatch.setattr(ground.gateway.live, "start", refuse)
        due_ms = now_ms() + 300
        for text in ("The door!", "The bell!"):
            queue_wake_up(job_runner.jobs(), "main", MAIN, text, due_ms)
        job_runner.scheduler.wake()

        def over() -> bool:
            return [run.status for run in job_runner.store.history()[0]] == ["error", "error"]

        await until(over)


async def test_disabling_a_heartbeat_drops_no_wake_up() -> None:
    write("Check the door.")
    async with serve({"cron": {"maxConcurrentRuns": 1}}, ScriptedModel(then="I see.")) as ground:
        row, jobs = await job_of(ground), ground.gateway.job_runner.jobs()
        queue_wake_up(jobs, "main", MAIN, "The door!", now_ms() + 300)
        jobs.update(row.job.id, {"enabled": False}, by="operator")
        [run] = await finished(ground, NAME)
        assert (run["status"], run["why"]) == ("ok", "event")


# Events


def start(*words: str) -> list[Any]:
    """Calls of commands that say something once `let_end` is called."""
    waiting = "while [ ! -e go ]; do sleep 0.02; done; echo"
    return [call("exec", {"command": f"{waiting} {word}", "background": True}) for word in words]


async def send(ground: Ground) -> None:
    """A turn of a person who leaves then."""
    peer = await ground.join()
    await peer.call("chat.send", {"sessionKey": MAIN, "message": "go", "idempotencyKey": "go"})
    await peer.until_chat("final", "go")
    await peer.socket.close()
    there = ground.gateway.live.find(MAIN)
    assert there is not None
    await until(lambda: not there.has_turns)


def let_end() -> None:
    write("", "go")


async def test_the_end_of_a_command_has_a_turn_if_no_one_is_there() -> None:
    write("Check the door.")
    model = ScriptedModel(*start("built"), "Started.", then="It is built.")
    async with serve(EXEC, model) as ground:
        await job_of(ground)
        await send(ground)
        let_end()
        [run] = await finished(ground, NAME)
        assert (run["why"], run["sessionKey"], run["summary"]) == ("event", MAIN, "It is built.")
        said = texts(ground)
        assert any("> Background command" in each and "> built" in each for each in said)


async def test_events_close_together_are_read_in_one_turn() -> None:
    write("Check the door.")
    model = ScriptedModel(*start("one", "two", "three"), "Started.", then="Done.")
    async with serve(EXEC, model) as ground:
        row = await job_of(ground)
        await send(ground)
        first = now_ms()
        # A turn for an event was just now.
        ground.gateway.job_runner.heartbeats.wake_ups._events.append((first, MAIN))
        let_end()
        store = ground.gateway.job_runner.store

        def waiting() -> Any:
            found = [run for run in store.history(row.job.id)[0] if run.status == "queued"]
            return found if len(found) == 3 else None

        later = await until(waiting)
        assert {run.due_ms for run in later} == {first + 30_000}
        for run in later:
            store.record(replace(run, due_ms=now_ms()))
        ground.gateway.job_runner.scheduler.wake()
        await finished(ground, NAME, 3)
        assert len(model.requests) == 5
        said = "\n".join(words(model.requests[-1].messages[-1]))
        assert all(f"> {word}" in said for word in ("one", "two", "three"))


@pytest.mark.parametrize("why", ["off", "followed", "paused"])
async def test_the_end_of_a_command_has_no_turn_otherwise(why: str) -> None:
    if why != "off":
        write("Check the door.")
    model = ScriptedModel(*start("built"), "Started.", then="It is built.")
    async with serve(EXEC, model) as ground:
        watching = await ground.join()
        if why == "followed":
            await watching.call("sessions.messages.subscribe", {"key": MAIN})
        if why == "paused":
            await watching.call("set-heartbeats", {"enabled": False})
        await send(ground)
        let_end()
        there = ground.gateway.live.find(MAIN)
        assert there is not None
        await until(lambda: not there.works_in_background)
        await asyncio.sleep(0.3)
        assert ground.gateway.job_runner.store.history()[1] == 0
        assert len(model.requests) == 2


async def test_an_event_beyond_the_budget_is_left_for_the_next_turn() -> None:
    write("Check the door.")
    model = ScriptedModel(answer(), *start("built"), "Started.")
    async with serve(config(maxRunsPerDay=1) | EXEC, model) as ground:
        await beat(ground)
        await send(ground)
        let_end()
        session = ground.gateway.store.find(MAIN)
        assert session is not None
        mailbox = ground.gateway.store.mailbox
        [mail] = await until(lambda: mailbox.unread(session.id, sandboxed=False))
        assert "> built" in mail.text
