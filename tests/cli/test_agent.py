"""`clawkit agent` as people and scripts use it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
from tests.agent.talking import APIS, KEY, config_for, store_of_home
from tests.cli.asking import PROGRAM, SLOW, Asker

from clawkit.cli.agent import MAX_MESSAGE
from clawkit.cli.main import run
from clawkit.testing.answers import Gate, call, calls, say
from clawkit_testkit.server import ScriptedServer

CLEAN_UP = "trap 'echo ended > ended; exit' TERM; echo ready; while :; do sleep 0.05; done"


@asynccontextmanager
async def asker(place: Path, *answers: Any, **more: Any) -> AsyncIterator[Asker]:
    async with ScriptedServer(*answers, then="Fine.") as server:
        yield Asker(place, {**config_for(server, APIS[0]), **more})


@pytest.fixture
def offline(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place to work in with the built-in model."""
    monkeypatch.chdir(workspace)
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    return workspace


def type_in(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    """Run the command in this process; for what ends before a model is asked."""
    with pytest.raises(SystemExit) as end:
        run(["agent", *args])
    shown = capsys.readouterr()
    assert "bug" not in shown.err
    return int(end.value.code or 0), shown.out, shown.err


def test_a_misspelt_agent_gets_a_suggestion(
    capsys: pytest.CaptureFixture[str], offline: Path
) -> None:
    code, _, err = type_in(capsys, "-m", "list", "--agent", "Helper")
    assert (code, "no agent called 'helper' is configured" in err) == (0, True)
    assert "Did you mean" not in err
    said = "warning: the agent 'hleper' has no sessions yet. Did you mean 'helper'?"
    for options in (("--no-session",), ("--session", "other"), ()):
        code, _, err = type_in(capsys, "-m", "list", "--agent", "hleper", *options)
        assert (code, said in err) == (0, bool(options))
    assert "Did you mean 'main'?" in type_in(capsys, "-m", "x", "--agent", "mian")[2]
    assert "warning" not in type_in(capsys, "-m", "list", "--agent", "main")[2]


def test_a_command_stopped_at_the_end_of_the_turn_is_reported(
    capsys: pytest.CaptureFixture[str], offline: Path
) -> None:
    file = offline / "own.json5"
    exec_ = '{mode: "full", backgroundMs: 10}'
    sandbox = '{mode: "off"}'
    file.write_text(f"{{tools: {{exec: {exec_}}}, agents: {{defaults: {{sandbox: {sandbox}}}}}}}")
    args = ("--model", "clawkit/operator", "--config", str(file))
    code, out, err = type_in(capsys, "-m", "!sleep 300", *args)
    assert (code, out[:22]) == (0, "Command still running ")
    id_ = out.partition("sessionId ")[2].partition(",")[0]
    assert err.endswith(f"clawkit: stopping {id_} (commands started with detach keep running)\n")


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        ((), 2, "a message is needed: -m TEXT"),
        (("hi",), 2, "after -m: clawkit agent -m hi"),
        (("--print-prompt", "hi"), 2, "clawkit agent -m hi"),
        (("-m", "mend", "it"), 2, "after -m: clawkit agent -m 'mend it'"),
        (("-m", ""), 2, "the message is empty"),
        (("-m", " \n"), 2, "the message is empty"),
        (("-m", "x" * (MAX_MESSAGE + 1)), 2, f"longer than {MAX_MESSAGE} bytes"),
        (("-m", "x", "--thinking", "lots"), 2, "'lots' is not one of"),
        (("-m", "x", "--max-turns", "0"), 2, "0 is not in the range"),
        (("-m", "x", "--max-cost", "0"), 2, "is not in the range"),
        (
            ("-m", "x", "--session", "a", "--continue"),
            2,
            "--continue and --session cannot be combined",
        ),
        (("-m", "x", "--continue"), 2, "the agent 'main' has no session in"),
        (("-m", "x", "--model", "nobody/m"), 2, "unknown provider 'nobody'"),
        (("-m", "x", "--model", "nope"), 2, "`clawkit models list --all` lists all"),
        (("-m", "x", "--image", "missing.png"), 2, "missing.png: No such file"),
        (("-m", "x", "--image", "a.txt"), 2, "a.txt: the image cannot be decoded"),
        (("-m", "x", "--workspace", "nowhere"), 2, "is not a directory"),
        (("-m", "x", "--config", "nowhere.json5"), 2, "does not exist"),
        (("-m", "x", "--session", "two words"), 2, "invalid name for a session"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_invalid_requests_are_errors_and_leave_no_session(
    offline: Path,
    capsys: pytest.CaptureFixture[str],
    args: tuple[str, ...],
    code: int,
    said: str,
    as_json: bool,
) -> None:
    ended, out, err = type_in(capsys, *args, *(["--json"] if as_json else []))
    assert ended == code
    assert said in err
    if as_json and "is not one of" not in err and "not in the range" not in err:
        (told,) = map(json.loads, out.splitlines())
        assert (told["type"], told["how"]) == ("turn_end", "error")
        assert said in told["error"]
    else:
        assert out == ""
    store = store_of_home()
    assert store.recent() == []
    store.close()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fake/big-modl", "has no model 'big-modl'. Add it there, or use 'big-model'"),
        ("fak/big-model", "Did you mean 'fake'?"),
        ("bigmodel", "Did you mean 'fake/big-model'?"),
    ],
)
def test_an_unknown_model_is_an_error_with_suggestions(
    offline: Path, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    models = [{"id": "big-model"}, {"id": "small-model"}]
    fake = {"baseUrl": "http://127.0.0.1:9", "api": "openai-completions", "models": models}
    config = Asker(offline, {"models": {"providers": {"fake": fake}}}).file
    code, _, err = type_in(capsys, "-m", "x", "--config", str(config), "--model", name)
    assert code == 2
    assert said in err


def test_the_prompt_is_shown_and_nothing_kept(
    offline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = type_in(capsys, "--print-prompt")
    assert code == 0
    assert str(offline) in out
    store = store_of_home()
    assert store.recent() == []
    store.close()


def test_a_workspace_that_is_everything_is_warned_about_once(
    offline: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for home, place, words in (
        (offline, offline, "the workspace is your home"),
        (offline, Path("/"), "the workspace is the root directory"),
        (offline.parent, offline, ""),
    ):
        monkeypatch.setenv("HOME", str(home))
        _, _, err = type_in(capsys, "--print-prompt", "--workspace", str(place))
        assert (
            err.count("the workspace is") == err.count(words or "the workspace is") == bool(words)
        )


async def test_the_prompt_plays_no_tricks_on_a_terminal(workspace: Path) -> None:
    (workspace / "AGENTS.md").write_text(f"Be {TRICKS} ki\u200dnd.", encoding="utf-8")
    line = [*PROGRAM, "agent", "--print-prompt"]
    text = (await on_a_terminal(line, workspace, TERM="xterm")).decode()
    assert "ki\\u{200d}nd." in text
    assert text.replace("\r\n", "").isprintable()


def test_a_model_that_takes_no_pictures_is_reported(
    offline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    PIL.Image.new("RGB", (4, 4)).save("dot.png")
    code, _, err = type_in(capsys, "-m", "list", "--image", "dot.png")
    assert code == 0
    assert "clawkit/operator does not accept images" in err
    _, out, err = type_in(capsys, "-m", "list", "--image", "dot.png", "--json")
    (told,) = [each for each in map(json.loads, out.splitlines()) if each["type"] == "notice"]
    assert told["level"] == "warning"
    assert "clawkit/operator does not accept images" in told["text"]
    assert err == ""


async def test_a_model_that_takes_pictures_is_sent_them_without_a_word(workspace: Path) -> None:
    PIL.Image.new("RGB", (4, 4)).save(workspace / "dot.png")
    async with asker(workspace) as clawkit:
        done = await clawkit.ask("-m", "Look.", "--image", "dot.png")
    assert (done.code, done.err) == (0, "")


def test_an_interrupt_before_the_turn_is_the_last_event(
    offline: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(Interrupted()))
    code, out, err = type_in(capsys, "-m", "-", "--json")
    assert (code, err.strip()) == (130, "interrupted")
    assert json.loads(out)["how"] == "aborted"


async def test_answers_go_to_stdout_and_calls_to_stderr(
    workspace: Path,
) -> None:
    async with asker(workspace, [say("Let me look."), call("ls")], "Two files.") as clawkit:
        done = await clawkit.ask("-m", "What is here?")
    assert (done.code, done.text) == (0, "Let me look.\nTwo files.\n")
    assert "· ls" in done.err


async def test_how_commands_end_is_on_standard_error(workspace: Path) -> None:
    """The results themselves are not: only that a command failed, or ended after its call."""
    free = {"exec": {"security": "full", "ask": "off", "host": "gateway"}}
    late = "until [ -e go ]; do sleep 0.01; done; touch over; exit 3"
    wait = "touch go; until [ -e over ]; do sleep 0.01; done; sleep 1"
    answers = [
        call("exec", {"command": "echo secret; exit 7"}),
        call("exec", {"command": late, "background": True}),
        call("exec", {"command": wait}),
        call("exec", {"command": "kill -9 $$"}),
        "Done.",
    ]
    async with asker(workspace, *answers, tools=free) as clawkit:
        done = await clawkit.ask("-m", "Try it.")
    assert (done.code, done.text) == (0, "Done.\n")
    assert sorted(line for line in done.err.splitlines() if line.startswith("·")) == sorted(
        [
            "· exec echo secret; exit 7",
            "· exec: exit code 7",
            f"· exec {late}",
            f"· exec {wait}",
            f"· exec {late}: exit code 3",
            "· exec kill -9 $$",
            "· exec failed: Command was killed by SIGKILL",
        ]
    )


def test_a_conversation_continues(offline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more in (("--session", "talk"), ("--session", "talk"), ("--continue",)):
        assert type_in(capsys, "-m", "list", *more)[0] == 0
    store = store_of_home()
    (session,) = store.recent()
    assert (session.name, session.turns) == ("talk", 3)
    store.close()


def test_an_id_prefix_continues_a_session_and_a_label_starts_one(
    offline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = store_of_home()
    one = store.create("main", workspace=str(offline), label="telegram:direct:42")
    theirs = store.create("other", workspace=str(offline))
    for text in (one.id[:5], one.id.upper(), "telegram:direct:42"):
        assert type_in(capsys, "-m", "list", "--session", text)[0] == 0
    assert store.get(one.id).turns == 2
    assert store.get("agent:main:telegram:direct:42").turns == 1
    code, _, err = type_in(capsys, "-m", "list", "--session", theirs.id[:5])
    assert (code, "belongs to the agent 'other', not to 'main'" in err) == (2, True)
    store.close()


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ("Grüße 世界\n".encode(), 0, ""),
        ("Gr\xfc\xdfe\n".encode("latin-1"), 0, ""),
        (b"\x7fELF\0\0\1", 2, "standard input is not text"),
        (b"x" * (MAX_MESSAGE + 10), 2, "longer than"),
        (b"", 2, "the message is empty"),
    ],
)
def test_the_message_can_come_from_standard_input(
    offline: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    given: bytes,
    code: int,
    said: str,
) -> None:
    # As in a locale that is strict about what it reads.
    stdin = io.TextIOWrapper(io.BytesIO(given), encoding="utf-8", errors="strict")
    monkeypatch.setattr("sys.stdin", stdin)
    ended, _, err = type_in(capsys, "-m", "-")
    assert ended == code
    assert said in err


async def test_a_locale_without_unicode_changes_nothing(workspace: Path) -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    said = "Grüße 世界"
    async with ScriptedServer("Zurück 🌍", then="Fine.") as server:
        clawkit = Asker(workspace, config_for(server, APIS[0]))
        done = await clawkit.ask("-m", said, env=plain, program=SLOW)
        await clawkit.ask("-m", b"caf\xe9", env=plain, program=SLOW)
        assert said in str(server.requests[0].body)
        assert "caf\ufffd" in str(server.requests[1].body)
    assert done.code == 0
    assert done.text == "Zurück 🌍\n"


async def test_json_lines_are_the_events(workspace: Path) -> None:
    several = calls(("read", {"path": "a.txt"}), ("nothing", {}))
    async with asker(workspace, several, "Halb \ud83d") as clawkit:
        done = await clawkit.ask("-m", "Go.", "--json")
    kinds = [event["type"] for event in done.events]
    assert (kinds[0], kinds[-1]) == ("turn_start", "turn_end")
    assert kinds.count("tool_result") == 2
    assert done.events[-1]["how"] == "done"
    assert done.err == ""


async def test_bindings_choose_the_agent_also_when_a_session_is_continued(workspace: Path) -> None:
    binding = {"agentId": "support", "match": {"channel": "telegram"}}
    agents = {"agents": {"entries": {"support": {"identity": {"name": "Desk"}}}}}
    config = {**agents, "bindings": [binding]}
    clawkit = Asker(workspace, config)
    done = await clawkit.ask("--print-prompt", "--channel", "telegram")
    assert done.text.startswith("You are Desk, an agent")
    first = await clawkit.ask("-m", "list", "--json", "--channel", "telegram")
    assert first.events[0]["session"].startswith("agent:support:")
    again = await clawkit.ask("-m", "list", "--json", "--channel", "telegram", "--continue")
    assert again.events[0]["session"] == first.events[0]["session"]
    other = await clawkit.ask("-m", "list", "--continue")
    assert "the agent 'main' has no session" in other.err


async def test_a_closed_output_ends_the_turn(workspace: Path) -> None:
    sleep = call("exec", {"command": "echo $$ > pid; exec sleep 1000"})
    for args in (("--json",), ()):
        read, write = os.pipe()
        os.close(read)
        async with asker(workspace, [say("Hello."), sleep]) as clawkit:
            asking = await clawkit.start("-m", "Go.", *args, stdout=write)
            os.close(write)
            done = await asking.done()
        assert done.code == 141  # as other programs that no one reads
        assert "failed" not in done.err


async def test_no_standard_output_at_all(workspace: Path) -> None:
    async with asker(workspace) as clawkit:
        line = " ".join((*SLOW, "agent", "--config", str(clawkit.file), "-m", "Go.", "--json"))
        process = await asyncio.create_subprocess_shell(
            f"{line} >&-", cwd=workspace, stderr=asyncio.subprocess.PIPE
        )
        _, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_command_can_be_interrupted_during_a_call(
    number: signal.Signals, workspace: Path
) -> None:
    async with asker(workspace, call("exec", {"command": CLEAN_UP})) as clawkit:
        asking = await clawkit.start("-m", "Go.", "--session", "talk", "--json")
        # What clawkit has heard of its command runs, and has set its trap.
        await asking.heard("ready")
        asking.send_signal(number)
        done = await asking.done()
        assert done.code == 130
        assert done.err.splitlines()[-1] == "interrupted"
        assert (workspace / "ended").exists()
        assert (await clawkit.ask("-m", "Go on.", "--session", "talk")).text == "Fine.\n"


async def test_the_command_can_be_interrupted_during_an_answer(workspace: Path) -> None:
    gate = Gate("One, two, three, four.", after=1)
    async with asker(workspace, gate) as clawkit:
        asking = await clawkit.start("-m", "Go.", "--json")
        await gate.reached.wait()
        asking.send_signal(signal.SIGINT)
        done = await asking.done()
    assert done.code == 130
    assert done.events[-1]["how"] == "aborted"


async def test_a_session_is_for_one_process_at_a_time(workspace: Path) -> None:
    gate = Gate("First.")
    async with asker(workspace, gate) as clawkit:
        first = await clawkit.start("-m", "Go.", "--session", "talk", program=SLOW)
        await gate.reached.wait()
        second = await clawkit.ask("-m", "Me, too.", "--session", "talk")
        assert second.code == 1
        assert f"'talk' is in use by process {first.process.pid}" in second.err
        third = await clawkit.ask("-m", "Me, too.", "--session", "talk", "--json")
        assert (third.code, len(third.events)) == (1, 1)
        assert "'talk' is in use" in third.events[0]["error"]
        gate.release()
        assert (await first.done()).text == "First.\n"


@pytest.mark.parametrize("place", ["~", "/"])
def test_a_workspace_that_holds_everything_is_warned_about(
    place: str, offline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = os.path.expanduser(place)
    for workspace, is_too_much in ((where, True), (str(offline), False)):
        _, _, err = type_in(capsys, "--print-prompt", "--no-session", "--workspace", workspace)
        assert ("the agent can change every file in it" in err) is is_too_much


@pytest.mark.parametrize("damage", ["bytes", "folder", "nowhere"])
def test_an_unusable_store_is_an_error(
    damage: str,
    offline: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    place = home / "sessions.sqlite"
    if damage == "bytes":
        place.write_bytes(b"no database" * 1_000)
        place.chmod(0o600)
    elif damage == "folder":
        place.mkdir()
    else:
        home = Path("/proc/self/nowhere")
    monkeypatch.setenv("CLAWKIT_HOME", str(home))
    for more in ((), ("--continue",)) if damage == "bytes" else ((),):
        code, out, err = type_in(capsys, "-m", "list", *more)
        assert (code, out) == (1, "")
        assert err.startswith(f"clawkit: {home}")
        assert len(err.splitlines()) == 1


def test_a_damaged_message_is_reported(offline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    type_in(capsys, "-m", "list", "--session", "talk")
    store = store_of_home()
    with store._database.writing() as db:
        db.execute("UPDATE message SET body = x'7b' WHERE place & 1 = 1")
    store.close()
    code, out, err = type_in(capsys, "-m", "list", "--session", "talk")
    assert (code, out) == (1, "")
    assert "is damaged" in err


async def on_a_terminal(line: list[str], place: Path, **env: str) -> bytes:
    """What a program writes to a terminal."""
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *line, cwd=place, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, **env}
    )
    os.close(theirs)
    written = b""
    loop = asyncio.get_running_loop()
    try:
        while more := await loop.run_in_executor(None, os.read, ours, 65536):
            written += more
    except OSError:
        pass  # the other side is closed
    os.close(ours)
    await process.wait()
    return written


TRICKS = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\u202c\r\x08"


@pytest.mark.parametrize("more", [(), ("--json",)])
async def test_no_trick_of_a_model_reaches_a_terminal(
    more: tuple[str, ...], workspace: Path
) -> None:
    told = call("exec", {"command": f"echo {TRICKS}"})
    async with asker(workspace, [say(TRICKS), told], TRICKS) as clawkit:
        line = [*PROGRAM, "agent", "--config", str(clawkit.file), "-m", "Go.", *more]
        written = await on_a_terminal(line, workspace, TERM="xterm", NO_COLOR="1")
    assert b"owned" in written
    text = written.decode()
    for trick in ("\x1b", "\x9b", "\x07", "\u202e", "\x08"):
        assert trick not in text
    assert "\r" not in text.replace("\r\n", "")


async def test_no_key_is_ever_shown_or_stored(workspace: Path) -> None:
    other = "hunter2-is-no-password-for-anybody"
    (workspace / "notes.txt").write_text(f"key {KEY}\npassword {other}\n", encoding="utf-8")
    (workspace / "AGENTS.md").write_text(f"The key is {KEY}.", encoding="utf-8")
    script: list[Any] = [
        [say("Look: "), call("read", {"path": "notes.txt"})],
        call("exec", {"command": f"cat notes.txt; echo {KEY}"}),
        "Done.",
    ]
    async with ScriptedServer(*script, then="Fine.") as server:
        config = config_for(server, APIS[0])
        config["env"] = {"DATABASE_PASSWORD": other}
        clawkit = Asker(workspace, config)
        done = await clawkit.ask("-m", f"My key is {KEY}", "--json", "--session", "talk")
        shown = await clawkit.ask("-m", "Again.", "--session", "talk")
        sent = b"".join(received.data for received in server.requests)
    assert done.code == 0
    results = [event for event in done.events if event["type"] in ("tool_result", "tool")]
    assert len(results) >= 4
    for secret in (KEY, other):
        assert secret not in str(results)
        assert secret not in done.err + shown.err + shown.text
        assert secret.encode() not in sent.replace(f"My key is {KEY}".encode(), b"").replace(
            f"echo {KEY}".encode(), b""
        )
        home = Path(os.environ["CLAWKIT_HOME"])
        for file in home.rglob("*"):
            if file.is_file():
                assert secret.encode() not in file.read_bytes(), file
