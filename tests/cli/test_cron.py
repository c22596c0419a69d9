"""`clawkit cron` and `clawkit wake` as a person or a program types them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace
from tests.cli.asking import PROGRAM
from tests.cli.test_terminal_approver import Terminal
from tests.cli.test_through_gateway import Home
from tests.ui.screen import READY, Screen

from clawkit.cli.main import run
from clawkit.cron.jobs import JobState
from clawkit.process import process_table
from clawkit.session_cron import cron_store
from clawkit.sessions.store import SessionStore

WAIT_S = 60.0


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Cron = Callable[..., Done]


@pytest.fixture
def cron(capsys: pytest.CaptureFixture[str]) -> Cron:
    """Run `clawkit cron ...` in this process."""

    def type_in(*args: str, command: str = "cron") -> Done:
        with pytest.raises(SystemExit) as end:
            run([command, *args])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        assert "unexpected" not in err
        assert isinstance(end.value.code, int)
        return Done(end.value.code, out, err)

    return type_in


@pytest.fixture
def home() -> Path:
    return Path(os.environ["CLAWKIT_HOME"])


def configure(home: Path, text: str) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    file = home / "clawkit.json5"
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)


def set_state(name: str, state: JobState, *, enabled: bool = True) -> None:
    store = cron_store()
    row = store.find(name)
    store.change(
        row.job.id, lambda row: (replace(row.job, enabled=enabled), state, row.planned_ms, None)
    )
    store.close()


# Adding and changing


def test_a_phrase_becomes_a_job_whose_meaning_and_next_times_are_shown(cron: Cron) -> None:
    done = cron(
        *("add", "every weekday at 9:00 Europe/Vienna", "--exact"),
        *("-m", "What is new?", "--name", "news"),
    )
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "when:    every weekday at 09:00 Europe/Vienna exactly"
    assert len(lines) == 8
    assert all(
        re.fullmatch(r" {9}(Mon|Tue|Wed|Thu|Fri) \d{4}-\d\d-\d\d 09:00 CES?T", line)
        for line in lines[1:6]
    )
    assert lines[6] == 'what:    the default agent answers "What is new?" in a new session'
    assert lines[7] == "result:  reported in the main session"
    assert done.err.startswith("added 'news' (")
    assert (
        "no scheduler is running: run `clawkit gateway start` or `clawkit cron serve`" in done.err
    )
    [job] = cron("list", "--json").json["jobs"]
    assert job["schedule"] == {
        "kind": "cron",
        "expr": "0 9 * * 1-5",
        "tz": "Europe/Vienna",
        "staggerMs": 0,
    }


def test_words_need_no_quotes_and_json_has_the_times(cron: Cron) -> None:
    found = cron("add", "every", "2", "hours", "-m", "x", "--json").json
    assert found["means"].startswith("every 2 hours from 20")
    assert len(found["next"]) == 5
    assert found["job"]["nextRunAtMs"] > 0
    assert "no scheduler" in found["note"]


def test_a_dry_run_adds_nothing(cron: Cron) -> None:
    done = cron("add", "every day at 9", "-m", "x", "--dry-run")
    assert done.code == 0
    assert "every day at 09:00" in done.out
    assert done.err == ""
    assert cron("list").out.startswith("There are no jobs yet.")
    assert cron("add", "at 9", "--event", "x", "--dry-run", "--json").json["job"].get("id") is None


@pytest.mark.parametrize(
    ("args", "payload", "more"),
    [
        (["--event", "Call Ada"], {"kind": "systemEvent", "text": "Call Ada"}, {}),
        (["--command", "a | b"], {"kind": "command", "argv": ["sh", "-c", "a | b"]}, {}),
        (["--command", "--", "ls", "-l"], {"kind": "command", "argv": ["ls", "-l"]}, {}),
        (
            ["-m", "x", "--model", "a/b", "--thinking", "low", "--timeout", "2m", "--tools", "a,b"],
            {
                "kind": "agentTurn",
                "message": "x",
                "model": "a/b",
                "thinking": "low",
                "timeoutSeconds": 120.0,
                "toolsAllow": ["a", "b"],
            },
            {"sessionTarget": "isolated", "delivery": {"mode": "announce"}},
        ),
        (["-m", "x", "--tools", ""], {"kind": "agentTurn", "message": "x", "toolsAllow": []}, {}),
        (
            ["-m", "x", "--session", "session:notes", "--timeout", "30"],
            {"kind": "agentTurn", "message": "x", "timeoutSeconds": 30.0},
            {"sessionTarget": "session:notes", "delivery": {"mode": "none"}},
        ),
        (
            ["-m", "x", "--announce=notes", "--overlap", "--agent", "main"],
            {"kind": "agentTurn", "message": "x"},
            {
                "delivery": {"mode": "announce", "to": "notes"},
                "overlap": True,
                "agentId": "main",
            },
        ),
        (
            ["-m", "x", "--webhook", "https://example.com/x", "--disabled"],
            {"kind": "agentTurn", "message": "x"},
            {
                "delivery": {"mode": "webhook", "to": "https://example.com/x"},
                "enabled": False,
            },
        ),
        (
            ["-m", "x", "--no-deliver", "--grant", "git push", "--grant", "ls"],
            {"kind": "agentTurn", "message": "x"},
            {"delivery": {"mode": "none"}, "grants": ["git push", "ls"]},
        ),
    ],
)
def test_every_option_ends_up_in_the_job(
    cron: Cron, args: list[str], payload: dict[str, Any], more: dict[str, Any]
) -> None:
    job = cron("add", "every day at 9", "--json", *args).json["job"]
    assert job["payload"] == payload
    assert {name: job[name] for name in more} == more


def test_a_job_that_runs_once_is_removed_after_it_unless_it_is_kept(cron: Cron) -> None:
    once = cron("add", "in 20 minutes", "--event", "x", "--json").json["job"]
    kept = cron("add", "in 20 minutes", "--event", "x", "--keep", "--json").json["job"]
    assert once["deleteAfterRun"] is True
    assert "deleteAfterRun" not in kept


def test_a_script_comes_from_a_file(cron: Cron, tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("print(1)\nprint(2)\n", encoding="utf-8")
    done = cron("add", "every day at 9", "--script", str(file))
    assert "runs a script of 2 lines" in done.out
    missing = cron("add", "every day at 9", "--script", str(tmp_path / "nothing"))
    assert missing.code == 2
    assert "No such file" in missing.err


def test_jobs_can_wait_for_commands(cron: Cron) -> None:
    ended = cron("add", "--on-exit", "make test", "-m", "x")
    assert ended.out.splitlines()[0] == "when:    when `make test` exits"
    lines = cron("add", "--stream", "tail -F a.log", "--match", "ERR", "-m", "x")
    assert lines.out.splitlines()[0] == "when:    when a line of `tail -F a.log` matches 'ERR'"
    exact = cron("add", "--on-exit", "make test", "--json", "--command", "--", "ls", "-l").json
    assert exact["job"]["payload"]["argv"] == ["ls", "-l"]
    assert "by event" in cron("list").out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["-m", "x"], "SCHEDULE is missing"),
        (["--announce", "every day at 9", "-m", "x"], "--announce takes the word after it"),
        (["every day at 9"], "say what to do: --message, --event, --command or --script"),
        (["every day at 9", "--model", "a/b"], "say what to do"),
        (["every dya at 9", "-m", "x"], "did you mean 'day'?"),
        (["0 99 * * *", "-m", "x"], "invalid hour '99'"),
        (["every second", "-m", "x"], "2,000"),
        (["2020-01-01", "-m", "x"], "is in the past"),
        (["every day at 9", "-m", "x", "--event", "y"], "--message and --event cannot be combined"),
        (
            ["every day at 9", "-m", "x", "--announce", "--no-deliver"],
            "--announce and --no-deliver cannot be combined",
        ),
        (["every day at 9", "-m", "x", "--tz", "Mars/Base"], "--tz: unknown time zone 'Mars/Base'"),
        (["every 2 hours", "-m", "x", "--tz", "UTC"], "'UTC' has no effect"),
        (["in 2 hours", "-m", "x", "--exact"], "'exactly' has no effect"),
        (
            ["every day at 9 UTC", "-m", "x", "--tz", "Europe/Vienna"],
            "--tz: the schedule already has a zone, UTC",
        ),
        (["every day at 9", "--on-exit", "ls", "-m", "x"], "give one of SCHEDULE, --on-exit"),
        (["--on-exit", "ls", "--tz", "UTC", "-m", "x"], "--tz and --exact require a SCHEDULE"),
        (["every day at 9", "--match", "x", "-m", "x"], "--match is for --stream"),
        (["every day at 9", "--command"], "--command needs a command"),
        (["every day at 9", "--command", "ls", "--model", "a/b"], "--model is for --message"),
        (["every day at 9", "--event", "x", "--tools", "read"], "--tools is for --message"),
        (["every day at 9", "--event", "x", "--timeout", "5m"], "--timeout is not for --event"),
        (["every day at 9", "-m", " "], "--message must not be empty"),
        (["every day at 9", "-m", "x", "--timeout", "soon"], "--timeout: invalid time 'soon'"),
        (
            ["every day at 9", "-m", "x", "--thinking", "hard"],
            "Invalid value for '--thinking': 'hard' is not one of",
        ),
        (["every day at 9", "-m", "x", "--session", "main"], "--session main is for --event"),
        (
            ["every day at 9", "--event", "x", "--session", "isolated"],
            "goes to sessionTarget 'main'",
        ),
        (["every day at 9", "-m", "x", "--session", "current"], "there is none here"),
        (["every day at 9", "-m", "x", "--webhook", "example.com"], "must be an address"),
        (["every day at 9", "-m", "x", "--agent", "nobody"], "--agent: unknown agent 'nobody'"),
        (["every day at 9", "-m", "x", "--name", " "], "name must have 1 to 200 characters"),
    ],
)
def test_invalid_input_is_refused_and_adds_nothing(cron: Cron, args: list[str], said: str) -> None:
    done = cron("add", *args)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert cron("list", "--json").json == {"jobs": [], "more": False}


def test_a_job_is_changed_by_the_options_of_add(cron: Cron) -> None:
    cron("add", "every day at 9 UTC", "-m", "x", "--name", "it", "--model", "a/b")
    changed = cron("edit", "it", "every friday at 17:00 UTC", "--exact", "--name", "other")
    assert changed.code == 0
    assert changed.out.startswith("when:    every friday at 17:00 UTC exactly\n")
    assert "changed 'other' (" in changed.err
    job = cron("edit", "other", "-m", "y", "--no-deliver", "--json").json["job"]
    assert job["payload"] == {"kind": "agentTurn", "message": "y", "model": "a/b"}
    assert job["delivery"] == {"mode": "none"}
    assert cron("edit", "other", "--model", "", "--json").json["job"]["payload"] == {
        "kind": "agentTurn",
        "message": "y",
    }
    nothing = cron("edit", "other")
    assert nothing.code == 2
    assert "say what to change" in nothing.err
    assert cron("edit", "other", "--session", "main").code == 2


def test_tools_and_a_model_that_do_not_exist_are_warned_of(cron: Cron) -> None:
    wrong = cron("add", "every day at 9", "-m", "x", "--tools", "raed,exec", "--model", "foo/bar")
    assert wrong.code == 0
    assert "in a new session with foo/bar\ntools:   raed, exec\n" in wrong.out
    assert "--tools: 'raed' matches no tool; did you mean 'read'?" in wrong.err
    assert "--model: unknown provider 'foo'" in wrong.err
    right = cron("add", "every day at 9", "-m", "x", "--tools", "", "--model", "clawkit/operator")
    assert "tools:   none\n" in right.out
    assert "--" not in right.err


def test_a_job_can_become_one_of_another_kind(cron: Cron) -> None:
    cron("add", "every day at 9 UTC", "--command", "ls", "--name", "it")
    reminder = cron("edit", "it", "--event", "stretch")
    assert 'the default agent gets "stretch" in the main session' in reminder.out
    turn = cron("edit", "it", "-m", "hello")
    assert 'the default agent answers "hello" in a new session' in turn.out
    assert cron("edit", "it", "--session", "session:notes").code == 0
    assert "in notes" in cron("edit", "it", "-m", "again").out


def test_grants_add_up_until_the_job_changes(cron: Cron) -> None:
    cron("add", "every day at 9 UTC", "-m", "x", "--name", "it")
    cron("edit", "it", "--grant", "git push")
    assert "granted: `git push`\ngranted: `ls`\n" in cron("edit", "it", "--grant", "ls").out
    assert "granted" not in cron("edit", "it", "-m", "y").out


def test_a_job_is_disabled_and_enabled(cron: Cron) -> None:
    cron("add", "every day at 9 UTC", "-m", "x", "--name", "it")
    assert "disabled 'it'" in cron("disable", "it").err
    assert re.search(r"it +disabled +every day at 09:00 UTC", cron("list").out)
    assert "(the job is disabled)" in cron("next", "it").out
    assert "09:0" in cron("enable", "it").out
    assert cron("show", "it", "--json").json["job"]["enabled"] is True


def test_what_does_not_exist_or_is_ambiguous_is_an_error_of_usage(cron: Cron) -> None:
    for args in (["show"], ["edit", "-m", "x"], ["remove", "-y"], ["enable"], ["run"], ["runs"]):
        done = cron(args[0], "nothing", *args[1:])
        assert done.code == 2, args
        assert "unknown job 'nothing'" in done.err
    for _ in range(2):
        cron("add", "every day at 9", "-m", "x", "--name", "twin")
    done = cron("show", "twin")
    assert done.code == 2
    ids = [each["id"] for each in cron("list", "--json").json["jobs"]]
    assert done.err.startswith("clawkit: 2 jobs match 'twin'; use an id: ")
    assert all(each in done.err for each in ids)
    assert cron("show", ids[0][:8]).code == 0


def test_either_all_named_jobs_are_removed_or_none(cron: Cron) -> None:
    for name in ("one", "two", "three"):
        cron("add", "every day at 9", "-m", "x", "--name", name)
    assert cron("remove", "one", "four", "--yes").code == 2
    refused = cron("remove", "one")
    assert refused.code == 2
    assert "there is no terminal to confirm on, so nothing was removed; add --yes" in refused.err
    assert len(cron("list", "--json").json["jobs"]) == 3
    done = cron("remove", "one", "two", "--yes")
    assert done.err.count("removed '") == 2
    assert [each["name"] for each in cron("list", "--json").json["jobs"]] == ["three"]


def test_on_a_terminal_remove_asks(cron: Cron, tmp_path: Path) -> None:
    cron("add", "every day at 9 UTC", "-m", "x", "--name", "it")
    terminal = Terminal("cron", "remove", "it", cwd=tmp_path)
    terminal.until("Remove this job? [y/N]:")
    assert "every day at 09:00 UTC" in terminal.shown
    terminal.type(b"n\n")
    assert terminal.end() == 3
    assert len(cron("list", "--json").json["jobs"]) == 1


def test_next_prints_times_of_a_phrase_and_of_a_job(cron: Cron) -> None:
    done = cron("next", "29", "february", "-n", "2")
    assert done.code == 2
    assert done.err.startswith("clawkit: cannot read the schedule '29 february': ")
    assert ". As a job: unknown job '29 february'" in done.err
    done = cron("next", "standup")
    assert done.err.startswith("clawkit: unknown job 'standup'")
    assert ". As a schedule: cannot read the schedule 'standup'" in done.err
    done = cron("next", "every year on 29 February at 6:00 UTC", "-n", "2")
    assert [line[4:] for line in done.out.splitlines()[1:]] == [
        "2028-02-29 06:00 UTC",
        "2032-02-29 06:00 UTC",
    ]
    cron("add", "every day at 9:30 UTC", "-m", "x", "--name", "it")
    assert len(cron("next", "it", "-n", "3", "--json").json["next"]) == 3


def test_more_jobs_than_a_page_are_listed(cron: Cron) -> None:
    cron("add", "every day at 9", "-m", "x", "--name", "first")
    store = cron_store()
    row = store.find("first")
    for number in range(205):
        store.add(replace(row.job, id=f"id-{number}", name=f"job {number}"), 0, 1)
    store.close()
    assert len(cron("list", "-n", "500", "--json").json["jobs"]) == 206
    short = cron("list", "-n", "204")
    assert len(short.out.splitlines()) == 206
    assert "There are more; -n 1020 shows up to 1020." in short.out


# Running


def test_without_a_running_scheduler_run_executes_the_job_itself(cron: Cron, home: Path) -> None:
    cron("add", "every day at 9", "-m", "!echo t$((1))wo", "--name", "say", "--tools", "exec")
    done = cron("run", "say")
    assert done.code == 0
    head, said = done.out.splitlines()
    assert re.search(r"  ok +say  by hand · .* · operator · delivered$", head)
    assert said == "  t1wo"
    assert "running 'say'" in done.err
    store = SessionStore(str(home / "sessions.sqlite"))
    main = store.find("agent:main:main")
    assert main is not None
    assert "t1wo" in str(store.history(main.id, 10)[-1].message)
    store.close()
    assert cron_store().owners() == []
    listed = cron("runs", "say", "--json").json
    assert [each["status"] for each in listed["runs"]] == ["ok"]


def test_a_run_that_failed_ends_with_1_and_says_when_it_is_tried_again(cron: Cron) -> None:
    cron("add", "every day at 9", "--command", "echo oh no; exit 3", "--name", "bad")
    done = cron("run", "bad")
    assert done.code == 1
    assert "  error     bad  by hand" in done.out
    assert "  oh no" in done.out
    assert "exited with code 3" in done.out
    assert re.search(r"  next try \w{3} \d{4}-", done.out)
    failed = cron("run", "bad", "--json")
    assert failed.code == 1
    assert failed.json["errorReason"] == "command"
    shown = cron("show", "bad")
    assert "failed:  2 times in a row" in shown.out
    assert "last run:" in shown.out
    assert re.search(r"bad .* error \d+s ago +2 ", cron("list").out)


def test_a_disabled_job_needs_force(cron: Cron) -> None:
    cron("add", "every day at 9", "--command", "true", "--name", "off", "--disabled")
    refused = cron("run", "off")
    assert refused.code == 1
    assert "it is disabled; --force runs it anyway" in refused.err
    assert cron("run", "off", "--force").code == 0


def test_jobs_that_are_switched_off_are_not_run(
    cron: Cron, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cron("add", "every day at 9", "--command", "true", "--name", "it")
    monkeypatch.setenv("CLAWKIT_SKIP_CRON", "1")
    done = cron("run", "it")
    assert (done.code, done.err) == (1, "clawkit: jobs do not run: CLAWKIT_SKIP_CRON is set\n")
    monkeypatch.delenv("CLAWKIT_SKIP_CRON")
    configure(home, "{cron: {enabled: false}}")
    assert "jobs do not run: cron.enabled is false" in cron("run", "it").err
    assert "cron.enabled is false" in cron("list").err
    assert cron("runs").out == "Nothing has run yet.\n"


def test_ctrl_c_stops_a_run_that_is_carried_out_here(cron: Cron) -> None:
    cron("add", "every day at 9", "--command", "sleep 60", "--name", "slow")
    process = subprocess.Popen(
        [*PROGRAM, "cron", "run", "slow"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    store = cron_store()
    while not (active := store.active()) or not active[0].begun:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_S)
    assert "Traceback" not in err
    assert process.returncode == 1, out + err
    assert "it was stopped" in out
    assert [each.status for each in store.history()[0]] == ["error"]


def test_a_run_that_was_not_started_is_withdrawn_with_ctrl_c(cron: Cron) -> None:
    cron("add", "every day at 9", "--command", "true", "--name", "it")
    store = cron_store()
    with store.owning():  # a process that does not get to it
        process = subprocess.Popen(
            [*PROGRAM, "cron", "run", "it"], stderr=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stderr is not None
        assert process.stderr.readline().startswith(b"running 'it'")
        assert [each.status for each in store.history()[0]] == ["queued"]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    assert b"It was not started" in err
    assert store.history() == ([], 0)


class Serving:
    """`clawkit cron serve`, and what it prints."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "clawkit", "cron", "serve"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        assert "running jobs; Ctrl-C stops" in self.process.stderr.readline()

    def until(self, text: str) -> str:
        assert self.process.stdout is not None
        shown = ""
        for line in self.process.stdout:
            shown += line
            if text in line:
                return shown
        raise AssertionError(f"it ended before {text!r}: {shown}")


@pytest.fixture
def serving() -> Iterator[Serving]:
    made = Serving()
    yield made
    if made.process.poll() is None:
        made.process.kill()
    made.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_runs_jobs_and_ends_cleanly(
    cron: Cron, serving: Serving, number: signal.Signals
) -> None:
    done = cron("add", "every 2 seconds", "--command", "echo t$((1))ick", "--name", "tick")
    assert "no scheduler" not in done.err
    assert "  t1ick" in serving.until("t1ick")
    status = cron("status")
    assert f"run by: clawkit cron serve, process {serving.process.pid}" in status.out
    assert status.err == ""
    second = cron("serve")
    assert second.code == 1
    assert f"already running for {os.environ['CLAWKIT_HOME']}: process {serving.process.pid}" in (
        second.err
    )
    gateway = cron("status", command="gateway")
    assert "or it is `clawkit cron serve`" in gateway.err
    cron("add", "every day at 9", "--command", "echo b$((2))y hand", "--name", "other")
    by_hand = cron("run", "other")
    assert by_hand.code == 0
    assert "b2y hand" in by_hand.out
    serving.process.send_signal(number)
    _, err = serving.process.communicate(timeout=WAIT_S)
    assert serving.process.returncode == 0
    assert err == "clawkit cron: stopped\n"
    assert "run by: no process" in cron("status").out


def test_a_chat_can_have_the_session_that_jobs_report_in(cron: Cron, serving: Serving) -> None:
    cron("add", "in 1 second", "-m", "list", "--name", "once")
    assert "delivery unknown" not in serving.until("  ok        once")
    terminal = [*PROGRAM, "agent", "--session", "main", "-m", "!echo hi"]
    while True:
        done = subprocess.run(terminal, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            break
        assert "in use" in done.stderr
    assert done.stdout == "hi\n"
    assert cron("list").out.startswith("There are no jobs yet.")


def test_wake_tells_a_session(cron: Cron, home: Path) -> None:
    missing = cron("hello", command="wake")
    assert missing.code == 2
    assert "there is no session agent:main:main yet" in missing.err
    cron("add", "every day at 9", "-m", "list", "--name", "it")
    cron("run", "it")
    assert cron("hello", command="wake").err == "it reads it in its next turn\n"
    now = cron("hello", "--now", "--json", command="wake")
    assert now.json["note"] == "queued until a scheduler runs"
    empty = cron(" ", command="wake")
    assert (empty.code, "the text must not be empty" in empty.err) == (2, True)
    unknown = cron("hello", "--agent", "nobody", command="wake")
    assert unknown.code == 2
    assert "nobody" in unknown.err


def test_commands_of_an_agent_cannot_change_jobs(
    cron: Cron, monkeypatch: pytest.MonkeyPatch
) -> None:
    cron("add", "every day at 9", "-m", "x", "--name", "it")
    monkeypatch.setattr(process_table, "is_inside_command", lambda: True)
    for args in (
        ["add", "every day at 9", "-m", "x"],
        ["edit", "it", "-m", "y"],
        ["remove", "it", "-y"],
        ["enable", "it"],
        ["disable", "it"],
        ["run", "it"],
        ["serve"],
        ["import", "-"],
    ):
        done = cron(*args)
        assert done.code == 3, args
        assert "a command that clawkit runs cannot" in done.err
    assert cron("hello", command="wake").code == 3
    assert cron("list").code == 0


# Import

JOBS = {
    "version": 1,
    "jobs": [
        {
            "id": "59d5b7b9-9b2c-41bc-af03-c2ce8338e84f",
            "agentId": "main",
            "name": "Morning brief",
            "description": "Every morning",
            "enabled": True,
            "createdAtMs": 1772801713680,
            "updatedAtMs": 1772801713680,
            "schedule": {"kind": "cron", "expr": "0 7 * * *", "tz": "America/Los_Angeles"},
            "sessionTarget": "isolated",
            "wakeMode": "next-heartbeat",
            "payload": {
                "kind": "agentTurn",
                "message": "Summarize overnight updates.",
                "timeoutSeconds": 120,
            },
            "delivery": {
                "mode": "announce",
                "channel": "slack",
                "to": "channel:C1234567890",
                "accountId": "work",
                "bestEffort": True,
            },
            "state": {"nextRunAtMs": 1772866800000, "lastStatus": "ok", "consecutiveErrors": 0},
        },
        {
            "id": "2c1f",
            "name": "Deploys",
            "enabled": False,
            "schedule": {"kind": "every", "everyMs": 3600000, "anchorMs": 1772801713680},
            "sessionTarget": "isolated",
            "wakeMode": "now",
            "payload": {
                "kind": "agentTurn",
                "message": "Any news?",
                "deliver": True,
                "channel": "telegram",
                "to": "-1001234567890",
            },
            "isolation": {"postToMainPrefix": "Cron"},
            "state": {},
        },
        {
            "id": "77aa",
            "name": "Stretch",
            "enabled": True,
            "schedule": {"kind": "cron", "expr": "0 15 * * 1-5"},
            "sessionTarget": "main",
            "wakeMode": "now",
            "payload": {"kind": "systemEvent", "text": "Time to stretch"},
            "delivery": {"mode": "none"},
        },
    ],
}


@pytest.fixture
def jobs_file(tmp_path: Path) -> Callable[..., str]:
    def write(content: Any = JOBS) -> str:
        file = tmp_path / "jobs.json"
        file.write_text(
            content if isinstance(content, str) else json.dumps(content), encoding="utf-8"
        )
        return str(file)

    return write


def test_jobs_of_openclaw_are_added_with_what_was_left_out(
    cron: Cron, jobs_file: Callable[..., str]
) -> None:
    preview = cron("import", jobs_file(), "--dry-run")
    assert cron("list", "--json").json["jobs"] == []
    done = cron("import", jobs_file())
    assert (done.code, done.out) == (0, preview.out)
    assert done.err == "added 3 of 3 jobs\n"
    assert done.out == (
        "job: Morning brief\n"
        "  every day at 07:00 America/Los_Angeles\n"
        "  delivery: slack (accountId, channel, to) is dropped; results are reported in the main "
        "session\n"
        "job: Deploys\n"
        "  every hour from 2026-03-06T12:55:13.680Z\n"
        "  isolation is dropped: delivery decides how results are reported\n"
        "  delivery: telegram (channel, to) is dropped; results are reported in the main session\n"
        "job: Stretch\n"
        f"  {cron('next', '0 15 * * 1-5').out.splitlines()[0]}\n"
    )
    jobs = {each["name"]: each for each in cron("list", "--json").json["jobs"]}
    brief = jobs["Morning brief"]
    assert brief["id"] != JOBS["jobs"][0]["id"]  # type: ignore[index]
    assert brief["delivery"] == {"mode": "announce", "bestEffort": True}
    assert brief["payload"]["timeoutSeconds"] == 120
    assert brief["description"] == "Every morning"
    assert "lastRunStatus" not in brief
    assert jobs["Deploys"]["enabled"] is False
    assert jobs["Deploys"]["delivery"] == {"mode": "announce"}
    assert jobs["Stretch"]["sessionTarget"] == "main"


def test_nothing_is_imported_if_one_job_is_invalid(
    cron: Cron, jobs_file: Callable[..., str]
) -> None:
    broken = {
        "name": "Broken",
        "schedule": {"kind": "cron", "expr": "61 * * * *"},
        "payload": {"kind": "agentTurn", "message": "x"},
    }
    file = jobs_file([*JOBS["jobs"], broken, 5])  # type: ignore[misc]
    done = cron("import", file)
    assert done.code == 1
    assert "invalid: Broken\n" in done.out
    assert "invalid: jobs[4]\n  it must be an object\n" in done.out
    assert done.err == "added 0 of 5 jobs; --skip-invalid adds the valid ones\n"
    assert cron("list", "--json").json["jobs"] == []
    some = cron("import", file, "--skip-invalid", "--json").json
    assert len(some["added"]) == 3
    assert [bool(each["problem"]) for each in some["jobs"]] == [False, False, False, True, True]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "this is not a jobs file of OpenClaw"),
        ({"version": 2, "jobs": []}, "version 2 of this file is not supported; use 1"),
        ({"a": 1}, 'it has no list "jobs"'),
        ('"x"', 'it has no list "jobs"'),
    ],
)
def test_other_files_are_not_imported(
    cron: Cron, jobs_file: Callable[..., str], content: Any, said: str
) -> None:
    done = cron("import", jobs_file(content))
    assert done.code == 2
    assert said in done.err


# Doctor


def doctored(cron: Cron) -> list[tuple[str, str]]:
    found = cron("--json", command="doctor").json["findings"]
    return [(each["level"], each["what"]) for each in found if each["section"] == "jobs"]


def test_doctor_reports_jobs_that_nothing_runs_and_jobs_that_fail(
    cron: Cron, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doctored(cron) == []
    for name in ("fine", "bad", "off"):
        cron("add", "every day at 9", "-m", "x", "--name", name)
    assert doctored(cron) == [("warn", "3 jobs, 3 enabled, but no scheduler is running")]
    set_state("bad", JobState(consecutive_errors=2, last_error="no network"))
    set_state("off", JobState(auto_disabled="10 failures in a row", last_error="x"), enabled=False)
    store = cron_store()
    with store.owning():
        assert doctored(cron) == [
            ("ok", "3 jobs, 2 enabled"),
            ("warn", "the job 'bad' failed 2 times in a row: no network"),
            ("warn", "the job 'off' was disabled: 10 failures in a row: x"),
        ]
        assert re.search("off +disabled: 10 failures in a row", cron("list").out)
        assert "clawkit disabled it: 10 failures in a row" in cron("show", "off").out
    store.close()
    monkeypatch.setenv("CLAWKIT_SKIP_CRON", "1")
    assert "CLAWKIT_SKIP_CRON is set, so they do not run" in doctored(cron)[0][1]
    monkeypatch.delenv("CLAWKIT_SKIP_CRON")
    configure(home, "{cron: {enabled: false}}")
    assert "cron.enabled is false, so they do not run" in doctored(cron)[0][1]


def test_doctor_reports_a_store_that_cannot_be_used(cron: Cron, home: Path) -> None:
    cron("add", "every day at 9", "-m", "x")
    file = home / "cron.sqlite"
    file.chmod(0o644)
    [(level, what)] = doctored(cron)
    assert (level, what) == ("error", f"{file} is accessible to other users, so jobs do not run")
    file.chmod(0o600)
    file.write_bytes(b"x" * 4096)
    for each in home.glob("cron.sqlite-*"):
        each.unlink()
    [(level, what)] = doctored(cron)
    assert level == "error"
    assert "the store of jobs" in what


# A remote gateway


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("near"))
    home.configure("{}")
    with home.gateway():
        yield home


@pytest.fixture
def far(near: Home, tmp_path: Path) -> Home:
    """A home whose configuration names the gateway of the other."""
    home = Home(tmp_path)
    url = json.loads(near.run("gateway", "status", "--json").stdout)["url"]
    remote = {"url": url, "token": near.run("gateway", "token").stdout.strip()}
    home.configure(json.dumps({"gateway": {"mode": "remote", "remote": remote}}))
    return home


def test_with_a_remote_gateway_commands_are_about_its_jobs(near: Home, far: Home) -> None:
    added = far.run("cron", "add", "every day at 9 UTC", "-m", "!echo t$((1))wo", "--name", "far")
    assert added.returncode == 0, added.stderr
    assert "no scheduler" not in added.stderr
    assert json.loads(near.run("cron", "show", "far", "--json").stdout)["job"]["name"] == "far"
    ran = far.run("cron", "run", "far")
    assert (ran.returncode, ran.stdout.splitlines()[1:]) == (0, ["  t1wo"]), ran.stderr
    assert "t1wo" in far.run("cron", "runs", "far").stdout
    assert "run by: the remote gateway" in far.run("cron", "status").stdout
    assert far.run("cron", "edit", "far", "every monday at 9 UTC").returncode == 0
    assert far.run("cron", "disable", "far").returncode == 0
    refused = far.run("cron", "run", "far")
    assert (refused.returncode, "it is disabled" in refused.stderr) == (1, True)
    assert re.search("far .*disabled .*every monday at 09:00 UTC", far.run("cron", "list").stdout)
    assert far.run("cron", "enable", "far").returncode == 0
    unknown = far.run("cron", "show", "nothing")
    assert (unknown.returncode, "unknown job 'nothing'" in unknown.stderr) == (2, True)
    assert far.run("cron", "list", "--local").stdout.startswith("There are no jobs yet.")
    for command in (["serve"], ["import", "jobs.json"]):
        done = far.run("cron", *command)
        assert done.returncode == 2
        assert f"`clawkit cron {command[0]}` is for the jobs of this home ({far.home})" in (
            done.stderr
        )
    assert far.run("wake", "hello").returncode == 0
    assert far.run("cron", "remove", "-y", "far").returncode == 0
    assert json.loads(near.run("cron", "list", "--json").stdout)["jobs"] == []


# In the chat


async def test_a_report_appears_in_an_open_chat(near: Home) -> None:
    place = near.home / "workspace"
    place.mkdir(exist_ok=True)
    near.run("agent", "--session", "main", "-m", "list", cwd=place)
    near.run(
        *("cron", "add", "every day at 9 UTC", "--name", "report"),
        *("-m", "!printf 'red\\ngr%s\\n' een"),
    )
    env: Any = {"CLAWKIT_HOME": near.env["CLAWKIT_HOME"], "CLAWKIT_CONFIG": ""}
    chat = Screen("chat", "--session", "main", cwd=place, **env)
    try:
        await chat.until(READY)
        done = await asyncio.to_thread(near.run, "cron", "run", "report")
        assert done.returncode == 0
        await chat.until("green")
        assert re.search(r"· Job report:\s*\n+red *\ngreen", chat.text)
        chat.type("/cron\r")
        await chat.until("every day at 09:00 UTC · next")
        await chat.until("by hand")
        chat.type("/cron nothing\r")
        await chat.until("unknown job 'nothing'")
    finally:
        chat.close()
