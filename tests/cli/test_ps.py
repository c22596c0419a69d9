"""`clawkit ps` and `clawkit kill`: what runs, and how to end it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.cli.asking import PROGRAM
from tests.forked import InTerminal
from tests.process.started import KEY, TOGETHER, Start, log_of, make, members, starting, until

from clawkit.cli.main import run
from clawkit.process import process_table, records
from clawkit.process.local_host import LocalHost
from clawkit.process.protocols import Launch
from clawkit.process.supervisor import Supervisor
from clawkit.terminal_text import truncate

GONE = 2**31 - 1
"""A process that there is not."""

pytestmark = TOGETHER


def test_these_tests_run_in_one_worker(request: pytest.FixtureRequest) -> None:
    """Without groups, tests in several workers would end each other's commands."""
    if request.config.getoption("loadgroup", False):
        assert request.node.nodeid.endswith("@records")


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Clawkit = Callable[..., Done]


@pytest.fixture
def folder() -> Path:
    return Path(os.environ["CLAWKIT_HOME"]) / "commands"


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    with starting(folder) as start:
        yield start


@pytest.fixture
def clawkit(capsys: pytest.CaptureFixture[str]) -> Clawkit:
    def type_in(*args: str) -> Done:
        with pytest.raises(SystemExit) as end:
            run(list(args))
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err
        assert "bug" not in shown.err
        return Done(end.value.code or 0 if isinstance(end.value.code, int) else 0, *shown)

    return type_in


def finish(folder: Path, key: str, said: str = "", **fields: Any) -> None:
    """Write down a command that has ended."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    known = {"key": key, "id": key.rpartition("-")[0], "pid": GONE, "detached": True}
    records.write(str(folder), make(**{**known, **fields}))
    if said:
        (folder / f"{key}.exit").write_text(said, encoding="utf-8")


@pytest.mark.parametrize("args", [("ps",), ("ps", "--all"), ("kill", "--all")])
def test_ps_without_commands_prints_a_message(
    clawkit: Clawkit, args: tuple[str, ...], folder: Path
) -> None:
    done = clawkit(*args)
    assert done.code == 0
    assert done.out.startswith("No command is running")
    assert clawkit("ps", "--json").json == []
    assert not folder.exists()


def test_ps_lists_the_oldest_command_first(clawkit: Clawkit, start: Start, folder: Path) -> None:
    second = start("exec sleep 300", key="calm-otter-2", started=time.time() - 90)
    first = start("exec sleep 301", key="brave-fox-1", started=time.time() - 93_600, owner="helper")
    head, *rows = clawkit("ps").out.splitlines()
    assert head.split() == ["ID", "PID", "TIME", "AGENT", "STATUS", "DIRECTORY", "COMMAND"]
    assert [row.split()[:5] for row in rows] == [
        ["brave-fox", str(first.pid), "1d2h", "helper", "running"],
        ["calm-otter", str(second.pid), "1m30s", "main", "running"],
    ]
    assert rows[1].endswith("exec sleep 300")
    places = {line.index(word) for line, word in ((head, "STATUS"), (rows[0], "running"))}
    assert len(places) == 1


def test_ps_for_programs(clawkit: Clawkit, start: Start, folder: Path) -> None:
    at = time.time() - 5
    record = start("echo ready; exec sleep 300", started=at, terminal=(120, 30))
    (row,) = clawkit("ps", "--json").json
    assert 5_000 <= row.pop("runtimeMs") < 60_000
    assert row == {
        "sessionId": "calm-otter",
        "key": KEY,
        "pid": record.pid,
        "owner": "main",
        "command": "echo ready; exec sleep 300",
        "cwd": str(folder),
        "startedAt": round(at * 1000),
        "status": "running",
        "detached": False,
        "terminal": {"columns": 120, "rows": 30},
        "logPath": str(log_of(folder)),
        "logBytes": 6,
    }
    log_of(folder).unlink()
    (row,) = clawkit("ps", "--json").json
    assert (row["logPath"], row["logBytes"]) == (None, 0)


@pytest.mark.parametrize(
    ("said", "status", "time_", "facts"),
    [
        ("0 1042", "exit 0", "42s", {"status": "completed", "exitCode": 0, "exitReason": "exit"}),
        ("3 1042", "exit 3", "42s", {"status": "completed", "exitCode": 3, "exitReason": "exit"}),
        ("127 1042", "exit 127", "42s", {"status": "failed", "exitReason": "not-found"}),
        ("-15 1042", "SIGTERM", "42s", {"status": "failed", "exitSignal": "SIGTERM"}),
        ("", "exited, code unknown", "?", {"status": "failed", "exitReason": "lost"}),
        ("junk", "exited, code unknown", "?", {"exitCode": None}),
    ],
)
def test_ps_all_shows_how_detached_commands_ended(
    clawkit: Clawkit, folder: Path, said: str, status: str, time_: str, facts: dict[str, Any]
) -> None:
    finish(folder, KEY, said)
    assert "No command is running on this machine." in clawkit("ps").out
    row = clawkit("ps", "--all").out.splitlines()[1]
    assert status in row
    assert f" {time_} " in row
    (found,) = clawkit("ps", "--all", "--json").json
    assert {name: found[name] for name in facts} == facts


def test_ps_removes_records_of_a_dead_clawkit(clawkit: Clawkit, folder: Path) -> None:
    finish(folder, KEY, detached=False, keeper=2**22)
    finish(folder, "brave-fox-1", "0 1000")
    finish(folder, "far-away-1", place="another machine")
    assert [row["key"] for row in clawkit("ps", "--all", "--json").json] == ["brave-fox-1"]
    assert sorted(os.listdir(folder)) == ["brave-fox-1.exit", "brave-fox-1.json", "far-away-1.json"]


def test_what_a_detached_command_left_running_is_shown_and_ended(
    clawkit: Clawkit, start: Start, folder: Path
) -> None:
    record = start("(setsid sleep 300 &); echo ready", detached=True)
    until(lambda: members(record) == ["sleep"])
    (folder / f"{KEY}.exit").write_text(f"0 {record.started}", encoding="utf-8")
    assert "exit 0, 1 left running" in clawkit("ps").out
    (row,) = clawkit("ps", "--json").json
    assert row["leftRunning"][0]["name"] == "sleep"
    assert "stopped calm-otter: sleep (pid" in clawkit("kill", "--all").out
    assert clawkit("ps", "--json").json == []


def test_text_of_records_is_escaped_on_the_terminal(clawkit: Clawkit, start: Start) -> None:
    evil = "\x1b[2J\u202e\x07\r\nfake-id 1 2 3\u2028\x9b1m\udc80"
    start("exec sleep 300", text=f"rm {evil}", owner=f"main{evil}", cwd=f"/tmp/{evil}")
    shown = clawkit("ps").out
    assert len(shown.splitlines()) == 2
    assert shown.replace("\n", "").isprintable()
    (row,) = clawkit("ps", "--json").json
    assert row["command"] == f"rm {evil}"


def test_two_commands_of_one_id_are_shown_by_their_keys(clawkit: Clawkit, start: Start) -> None:
    start("exec sleep 300", key="calm-otter-aa1")
    start("exec sleep 300", key="calm-otter-bb1")
    ids = [line.split()[0] for line in clawkit("ps").out.splitlines()[1:]]
    assert ids == ["calm-otter-aa1", "calm-otter-bb1"]


def test_an_id_that_output_of_another_command_has_is_shown_by_its_key(
    clawkit: Clawkit, start: Start, folder: Path
) -> None:
    start("exec sleep 300")
    assert clawkit("ps").out.splitlines()[1].split()[0] == "calm-otter"
    log_of(folder, "calm-otter-fe1").write_text("old")
    assert clawkit("ps").out.splitlines()[1].split()[0] == KEY


@pytest.mark.parametrize("args", [("ps",), ("ps", "--json"), ("kill", "--all"), ("kill", "calm")])
def test_an_open_folder_is_not_trusted(
    clawkit: Clawkit, start: Start, folder: Path, args: tuple[str, ...]
) -> None:
    record = start("exec sleep 300")
    folder.chmod(0o770)
    done = clawkit(*args)
    assert done.code == 2
    assert f"{folder} is open to other users; run `chmod 700`" in done.err
    assert record.runs
    folder.chmod(0o700)


@pytest.mark.parametrize(
    ("text", "columns", "cut"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),
        ("a" * 100_000, 4, "aaa…"),
    ],
)
def test_text_is_cut_to_columns(text: str, columns: int, cut: str) -> None:
    assert truncate(text, columns) == cut


def on_terminal(columns: int, *args: str) -> str:
    """What clawkit writes to a terminal of its own."""
    env = {key: text for key, text in os.environ.items() if key not in ("COLUMNS", "LINES")}
    folder = Path(PROGRAM[0]).parent
    program = InTerminal(folder, *args, cwd=Path.cwd(), size=(columns, 24), env=env)
    shown = b""
    try:
        while piece := os.read(program.fd, 4096):
            shown += piece
    except OSError:
        pass
    os.close(program.fd)
    program.wait()
    return shown.decode()


def test_on_a_terminal_rows_fit_and_have_colours(start: Start, clawkit: Clawkit) -> None:
    start("exec sleep 300", text="echo " + "日本" * 400)
    shown = on_terminal(110, "ps")
    head, row = shown.splitlines()
    assert head.startswith("\x1b[1mID")
    assert row.endswith("…")
    assert 100 < len(row) + sum(ord(char) > 0x3000 for char in row) <= 110
    assert "\x1b" not in clawkit("ps").out


def test_quoted_text_cannot_control_the_terminal(tmp_path: Path) -> None:
    hostile = "x\x1b]52;c;cHdu\x07\x9b2J\u202e"
    calls = tmp_path / "calls.jsonl"
    calls.write_text(json.dumps({"tool": hostile, "id": hostile}) + "\n", encoding="utf-8")
    for args in (("config", "schema", hostile), ("tools", "run", str(calls))):
        shown = on_terminal(110, *args).replace("\r\n", "\n")
        assert "52;c;" in shown
        assert [each for each in shown if not each.isprintable() and each != "\n"] == []


def test_kill_ends_a_command_and_all_it_started(clawkit: Clawkit, start: Start) -> None:
    record = start("sleep 300 & echo ready; wait")
    until(lambda: members(record) == ["bash", "sleep"])
    other = start("exec sleep 300", key="brave-fox-1")
    done = clawkit("kill", "calm-otter")
    assert done.code == 0
    assert done.out.startswith(f"stopped calm-otter: bash (pid {record.pid}), sleep (pid ")
    assert done.err == ""
    assert not record.runs
    assert other.runs


def test_kill_all_ends_all(clawkit: Clawkit, start: Start) -> None:
    running = [start("exec sleep 300", key=f"calm-otter-{number}") for number in range(3)]
    done = clawkit("kill", "--all")
    assert done.code == 0
    assert done.out.count("stopped calm-otter") == 3
    assert not any(each.runs for each in running)


def test_kill_now_does_not_ask(clawkit: Clawkit, start: Start, folder: Path) -> None:
    record = start("trap 'echo asked; exit' TERM; echo ready; sleep 300 & wait")
    assert clawkit("kill", "--now", "calm-otter").code == 0
    assert log_of(folder).read_text(encoding="utf-8") == "ready\n"
    assert not record.runs


def test_kill_reports_what_it_waits_for(
    clawkit: Clawkit, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawkit.process.records.ASK_S", 2.5)
    record = start("trap '' TERM; echo ready; while :; do sleep 300; done")
    done = clawkit("kill", "calm-otter")
    assert done.code == 0
    assert [line.split()[0] for line in done.err.splitlines()] == ["waiting", "killing"]
    assert f"bash (pid {record.pid})" in done.err
    assert not record.runs


@pytest.mark.parametrize("name", ["USR1", "sigusr1", "SIGUSR1", " usr1 ", "10"])
def test_a_signal_is_all_that_is_sent(
    clawkit: Clawkit, start: Start, folder: Path, name: str
) -> None:
    record = start("trap 'echo got it' USR1; echo ready; while :; do sleep 0.05; done")
    done = clawkit("kill", "--signal", name, "calm-otter")
    assert done.code == 0
    assert done.out.startswith(f"sent SIGUSR1 to calm-otter: bash (pid {record.pid})")
    until(lambda: b"got it" in log_of(folder).read_bytes())
    assert record.runs


def test_killing_an_exited_command_succeeds(clawkit: Clawkit, folder: Path) -> None:
    finish(folder, KEY, "0 1000")
    done = clawkit("kill", "calm-otter")
    assert (done.code, done.out) == (0, "calm-otter had already exited\n")


@pytest.mark.parametrize("wanted", ["calm-otter-aa1", "calm-otter", "calm", " CALM-OTTER ", "c"])
def test_a_command_is_known_by_key_id_or_beginning(
    clawkit: Clawkit, start: Start, wanted: str
) -> None:
    record = start("exec sleep 300", key="calm-otter-aa1")
    start("exec sleep 300", key="brave-fox-1")
    assert clawkit("kill", wanted).code == 0
    assert not record.runs


def test_an_id_is_not_a_beginning_of_another_one(
    clawkit: Clawkit, start: Start, folder: Path
) -> None:
    finish(folder, "calm-otter-aa1", "0 1000")
    longer = start("exec sleep 300", key="calm-otter-2-aa2")
    assert "had already exited" in clawkit("kill", "calm-otter").out
    assert longer.runs
    assert clawkit("kill", "calm-otter-2").code == 0
    assert not longer.runs


def test_an_id_means_the_running_command_of_that_id(
    clawkit: Clawkit, start: Start, folder: Path
) -> None:
    finish(folder, "calm-otter-aa1", "0 1000")
    record = start("exec sleep 300", key="calm-otter-bb1")
    assert clawkit("kill", "calm-otter").code == 0
    assert not record.runs


@pytest.mark.parametrize("wanted", ["calm-otter", "calm", "calm-otter-"])
def test_an_ambiguous_prefix_matches_nothing(clawkit: Clawkit, start: Start, wanted: str) -> None:
    both = [
        start("exec sleep 300", key="calm-otter-aa1"),
        start("exec sleep 300", key="calm-otter-bb1", text="echo \x1b[2J"),
    ]
    done = clawkit("kill", wanted)
    assert done.code == 2
    assert f"{wanted!r} is ambiguous:" in done.err
    assert "  calm-otter-aa1  exec sleep 300" in done.err
    assert "  calm-otter-bb1  echo" in done.err
    assert "\x1b" not in done.err
    assert all(each.runs for each in both)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("calm-oter", "did you mean 'calm-otter'?"),
        ("zzz", "known: brave-fox, calm-otter"),
        ("", "known: brave-fox, calm-otter"),
        ("../../etc/passwd", "known: brave-fox, calm-otter"),
        ("\x1b[2J", "'\\x1b[2J'"),
        ("-1", "No such option"),
    ],
)
def test_an_unknown_command_is_an_error_with_suggestions(
    clawkit: Clawkit, start: Start, wanted: str, words: str
) -> None:
    running = [start("exec sleep 300", key=key) for key in ("calm-otter-1", "brave-fox-1")]
    done = clawkit("kill", wanted)
    assert done.code == (2 if wanted == "-1" else 1)
    assert words in done.err
    assert all(each.runs for each in running)


def test_kill_stops_the_known_commands_among_unknown_ones(clawkit: Clawkit, start: Start) -> None:
    record = start("exec sleep 300")
    done = clawkit("kill", "nobody", "calm-otter", "calm")
    assert done.code == 1
    assert "unknown command 'nobody'" in done.err
    assert done.out.count("stopped calm-otter") == 1
    assert not record.runs


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "give the ids of commands, or --all"),
        (("--all", "calm-otter"), "give the ids of commands, or --all"),
        (("--now", "--signal", "HUP", "calm-otter"), "cannot be combined"),
        (("--signal", "HUPP", "calm-otter"), "did you mean HUP"),
        (("--signal", "0", "calm-otter"), "unknown signal '0'"),
        (("--signal", "-9", "calm-otter"), "unknown signal '-9'"),
        (("--signal", "", "calm-otter"), "such as INT"),
        (("--signal", "999999", "calm-otter"), "unknown signal"),
    ],
)
def test_wrong_usage_of_kill_ends_nothing(
    clawkit: Clawkit, start: Start, args: tuple[str, ...], words: str
) -> None:
    record = start("exec sleep 300")
    done = clawkit("kill", *args)
    assert done.code == 2
    assert words in done.err
    assert record.runs


@pytest.mark.parametrize(
    "damage",
    [
        {"pid": 1},
        {"pid": 0},
        {"pid": -1},
        {"since": 0},
        {"key": "../calm-otter-ab1"},
    ],
    ids=str,
)
def test_a_damaged_record_stops_no_process(
    clawkit: Clawkit, start: Start, folder: Path, damage: dict[str, Any]
) -> None:
    record = start("exec sleep 300")
    file = folder / f"{KEY}.json"
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **damage}), encoding="utf-8")
    assert clawkit("ps", "--all", "--json").json == []
    assert clawkit("kill", "--all", "--now").code == 0
    assert clawkit("kill", "calm-otter", "--now").code == 1
    assert record.runs


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_command_of_another_user_is_not_ended() -> None:
    # What is needed later may lie where only root can read it.
    script = (
        "import os, sys; from clawkit.cli.main import run\n"
        "from clawkit.cli import ps; from clawkit.process import records; records.here()\n"
        "os.setuid(65534); run(['kill', 'calm-otter'])"
    )
    # The usual place for files of tests cannot be entered by others.
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "commands"
        with starting(folder) as start:
            record = start("exec sleep 300")
            for path in (folder.parent, folder, *folder.iterdir()):
                os.chown(path, 65_534, -1)
            done = subprocess.run(
                [sys.executable, "-c", script],
                env={**os.environ, "CLAWKIT_HOME": home},
                capture_output=True,
                text=True,
            )
            assert (done.returncode, done.stdout) == (1, "")
            said = (
                f"calm-otter: could not stop sleep (pid {record.pid}): "
                "not permitted to signal them: they run as another user"
            )
            assert said in done.stderr
            assert record.runs


async def type_outside(*args: str) -> tuple[int, str]:
    """Run clawkit as a separate process while another one runs in this process."""
    process = await asyncio.create_subprocess_exec(*PROGRAM, *args, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


async def test_commands_of_a_clawkit_that_runs_are_seen_and_ended(folder: Path) -> None:
    commands = Supervisor({"gateway": lambda: LocalHost(str(folder))}, str(folder))
    launch = Launch("sleep 300 & echo ready; wait", "/", dict(os.environ))
    try:
        session = await commands.start("gateway", launch, "main", background=True)
        await session.wait_for_news(0, 20)
        code, out = await type_outside("ps", "--json")
        (row,) = json.loads(out)
        assert (row["sessionId"], row["pid"], row["status"]) == (session.id, session.pid, "running")
        assert (row["logBytes"], code) == (6, 0)
        code, out = await type_outside("kill", session.id)
        assert (code, out.startswith(f"stopped {session.id}: bash")) == (0, True)
        exit_ = await session.wait(20)
        assert exit_ is not None
        assert exit_.signal == "SIGTERM"
        assert json.loads((await type_outside("ps", "--json"))[1]) == []
    finally:
        await commands.close()


@pytest.mark.parametrize(
    "settings",
    [
        '{agents: {defaults: {sandbox: {mode: "off"}}}, tools: {exec: {mode: "full"}}}',
        '{agents: {defaults: {sandbox: {backend: "landlock"}}}}',
        '{agents: {defaults: {sandbox: {backend: "bwrap"}}}}',
    ],
)
def test_what_the_exec_tool_runs_is_seen_read_and_ended(
    clawkit: Clawkit, folder: Path, workspace: Path, settings: str
) -> None:
    (folder.parent / "clawkit.json5").write_text(settings, "utf-8")
    other = subprocess.Popen(
        [*PROGRAM, "tools", "run", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=workspace,
        text=True,
    )
    assert other.stdin is not None
    assert other.stdout is not None
    try:
        params = {"command": "echo ready; sleep 300", "background": True}
        other.stdin.write(json.dumps({"tool": "exec", "params": params}) + "\n")
        other.stdin.flush()
        details = json.loads(other.stdout.readline())["details"]
        id_ = details["sessionId"]
        until(lambda: "ready" in clawkit("logs", id_).out)
        (row,) = clawkit("ps", "--json").json
        assert row["pid"] == details["pid"]
        assert process_table.is_tagged(row["pid"], row["key"])
        assert (row["sessionId"], row["owner"], row["cwd"]) == (id_, "main", str(workspace))
        assert clawkit("kill", id_).out.startswith(f"stopped {id_}: ")
        assert "No command is running" in clawkit("ps").out
    finally:
        other.communicate(timeout=30)


def test_a_killed_command_is_not_listed(clawkit: Clawkit, start: Start) -> None:
    record = start("exec sleep 300")
    os.kill(record.pid, signal.SIGKILL)
    until(lambda: not record.runs)
    assert clawkit("ps", "--all", "--json").json == []
    assert process_table.look(record.pid) is not None  # as nobody has noticed its end yet
