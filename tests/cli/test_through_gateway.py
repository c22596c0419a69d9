"""`clawkit agent` and other commands through a running gateway: as without one."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.cli.asking import PROGRAM, SLOW
from tests.ui.screen import PROMPT, READY, Screen

from clawkit.cli.gateway_turn import read_simple

WAIT_S = 60
LISTED = '"a.txt"\n'
CONFIG = """{
  tools: { rules: [{ tool: "read", params: { path: "*.txt" }, effect: "ask", reason: "mine" }] },
}"""


class Home:
    """A home with a gateway, and a directory to work in."""

    def __init__(self, place: Path) -> None:
        self.home, self.work = place / "home", place / "work"
        self.home.mkdir(mode=0o700)
        self.work.mkdir()
        (self.work / "a.txt").write_text("the text\n", encoding="utf-8")
        self.env = {**os.environ, "CLAWKIT_HOME": str(self.home), "CLAWKIT_CONFIG": ""}
        self.configure(CONFIG)

    def configure(self, text: str) -> None:
        file = self.home / "clawkit.json5"
        file.write_text(text, encoding="utf-8")
        file.chmod(0o600)

    @contextmanager
    def gateway(self, program: Sequence[str] = PROGRAM) -> Iterator[subprocess.Popen[str]]:
        """A gateway that runs; one that is killed or stopped has to be `SLOW`."""
        argv = [*program, "gateway", "run", "--port", "0"]
        process = subprocess.Popen(argv, env=self.env, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        try:
            first = process.stderr.readline()
            assert "clawkit gateway: ws://" in first, first + process.stderr.read()
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
            process.wait(WAIT_S)
            process.stderr.close()

    def run(
        self, *args: str, cwd: Path | None = None, given: str = ""
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*PROGRAM, *args],
            cwd=cwd or self.work,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
            input=given,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def start(self, *args: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*PROGRAM, "agent", *args], cwd=self.work, env=self.env, stdout=pipe, stderr=pipe,
            stdin=subprocess.DEVNULL, text=True,
        )  # fmt: skip


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A home whose gateway all tests share that do not stop it."""
    home = Home(tmp_path_factory.mktemp("near"))
    with home.gateway():
        yield home


@pytest.fixture
def own(tmp_path: Path) -> Home:
    return Home(tmp_path)


def plain(text: str) -> str:
    """An output without what differs from run to run."""
    text = re.sub(r"agent:main:[a-z0-9]+", "KEY", text)
    text = re.sub(r',"ids":\[[^\]]*\]', "", text)  # of the request
    return re.sub(r'"(atMs|durationMs|cpuMs|pid)":\d+|/tmp/\S*?clawkit\S*', "", text)


@pytest.mark.parametrize(
    "args",
    [
        ["-m", "list"],
        ["-m", "list", "--json"],
        ["-m", "!echo hi; exit 3"],
        ["-m", "!echo hi", "--json"],
        ["--json", "-m", "hi", "--model", "nope/x"],
        ["-m", "hi", "--model", "nope/x"],
        ["-m", "hi", "--workspace", "/nowhere/at/all"],
        ["-m", "hi", "--session", "a b"],
        ["-m", "list", "--max-turns", "1"],
        ["-m", "list", "--thinking", "low", "--agent", "other"],
        ["-m", "hi", "--continue", "--session", "x"],
        ["-m", " "],
    ],
)
def test_output_and_exit_code_are_those_without_a_gateway(near: Home, args: list[str]) -> None:
    through, local = near.run("agent", *args), near.run("agent", "--local", *args)
    assert through.returncode == local.returncode
    assert plain(through.stdout) == plain(local.stdout)
    ours, theirs = (each.stderr.splitlines()[-1:] for each in (through, local))
    # A mistake on the command line is reported by click without a gateway.
    first = re.compile("^(clawkit|Error): ")
    assert [first.sub("", each) for each in ours] == [first.sub("", each) for each in theirs]


def test_the_turn_runs_in_the_gateway_in_this_directory_and_goes_on(near: Home) -> None:
    assert near.run("agent", "-m", "!pwd", "--session", "own").stdout.strip() == str(near.work)
    assert near.run("agent", "-m", "list", "--continue").stdout == LISTED
    found = json.loads(near.run("sessions", "list", "--json").stdout)["sessions"][0]
    assert (found["name"], found["turns"], found["workspace"]) == ("own", 2, str(near.work))
    held = near.run("agent", "--local", "--session", "own", "-m", "list")
    assert held.returncode == 0, "the gateway gives an idle session back"


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--no-session"], "--no-session does not go through the gateway"),
        (["--no-owner"], "--no-owner does not"),
        (["--channel", "telegram"], "--channel does not"),
        (["--sandboxed"], "--sandboxed does not"),
        (["--depth", "1"], "--depth does not"),
        (["--role", "x"], "--role does not"),
    ],
)
def test_options_the_gateway_cannot_honour_run_locally_with_a_notice(
    near: Home, args: list[str], why: str
) -> None:
    done = near.run("agent", "-m", "list", *args)
    assert why in done.stderr
    assert done.stderr.count("running without it") == 1
    assert done.stdout == LISTED


def test_an_image_that_cannot_be_read_is_named(near: Home) -> None:
    for command in (["agent", "-m", "look"], ["chat", "look"]):
        done = near.run(*command, "--image", "nope.png")
        assert done.returncode == 2
        assert done.stderr == "clawkit: nope.png: No such file or directory\n"


def test_a_session_of_another_directory_is_continued_locally_with_a_notice(
    near: Home, tmp_path: Path
) -> None:
    near.run("agent", "-m", "list", "--session", "placed")
    done = near.run("agent", "-m", "!pwd", "--session", "placed", cwd=tmp_path)
    there = f"{near.work} (to use it there: cd {near.work})"
    assert f"the session 'placed' works in {there}; running without it" in done.stderr
    assert done.stdout.strip() == str(tmp_path)


def test_sessions_that_the_gateway_has_open_can_be_renamed_and_deleted(near: Home) -> None:
    near.run("agent", "-m", "list", "--session", "first")
    assert near.run("sessions", "rename", "first", "second").returncode == 0
    near.run("agent", "-m", "list", "--session", "second")
    assert near.run("sessions", "delete", "second", "--yes").returncode == 0
    working = near.start("-m", "!sleep 60", "--session", "third", "--json")
    assert working.stdout is not None
    _until(working.stdout, '"type":"tool"')
    refused = near.run("sessions", "delete", "third", "--yes")
    assert refused.returncode == 1
    assert "the gateway is working in that session" in refused.stderr
    working.send_signal(signal.SIGINT)
    working.communicate(timeout=WAIT_S)


def _until(stream: Any, text: str) -> str:
    for line in stream:
        if text in line:
            return str(line)
    raise AssertionError(f"it ended before {text}")


def test_ctrl_c_stops_the_turn_and_leaves_the_gateway(near: Home) -> None:
    process = near.start("-m", "!sleep 60; echo over", "--session", "stopped", "--json")
    assert process.stdout is not None
    _until(process.stdout, '"type":"tool"')
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    assert json.loads(out.splitlines()[-1])["how"] == "aborted"
    assert err.endswith("interrupted\n")
    assert near.run("agent", "-m", "list", "--session", "stopped").returncode == 0


async def test_questions_are_asked_in_the_terminal(near: Home) -> None:
    env: Any = {"CLAWKIT_HOME": near.env["CLAWKIT_HOME"], "CLAWKIT_CONFIG": ""}
    screen = Screen("agent", "-m", "read a.txt", cwd=near.work, **env)
    try:
        await screen.until("Press a letter")
        screen.type("y")
        assert await screen.end() == 0
        assert "Allowed once." in screen.text
        assert "the text" in screen.text
    finally:
        screen.close()
    again = Screen("agent", "-m", "read a.txt", cwd=near.work, **env)
    try:
        await again.until("Press a letter")
        pending = json.loads(near.run("approvals", "pending", "--json").stdout)
        near.run("approvals", "resolve", pending[0]["id"], "deny")
        assert await again.end() == 0
        assert "No longer pending" in again.text
    finally:
        again.close()


def test_the_gateway_notes_a_new_agent_that_may_be_a_typo(near: Home) -> None:
    said = "the agent 'mian' has no sessions yet. Did you mean 'main'?"
    for options in (["agent", "-m", "list"], ["chat", "list"]):
        first, second = (near.run(*options, "--agent", "mian") for _ in range(2))
        assert (first.returncode, said in first.stderr) == (0, True), first.stderr
        assert (second.returncode, said in second.stderr) == (0, False), second.stderr
        listed = json.loads(near.run("sessions", "list", "--agent", "mian", "--json").stdout)
        for each in listed["sessions"]:
            near.run("sessions", "delete", each["id"], "--agent", "mian", "--yes")


async def test_ctrl_c_at_a_question_stops_the_turn_in_the_gateway(near: Home) -> None:
    env: Any = {"CLAWKIT_HOME": near.env["CLAWKIT_HOME"], "CLAWKIT_CONFIG": ""}
    screen = Screen("agent", "-m", "read a.txt", cwd=near.work, **env)
    try:
        await screen.until("Press a letter")
        screen.type("\x03")
        assert await screen.end() == 130
        assert "Denied" not in screen.text
    finally:
        screen.close()
    assert json.loads(near.run("approvals", "pending", "--json").stdout) == []


@pytest.fixture
def screens(near: Home) -> Iterator[Callable[..., Screen]]:
    """Opens chats in terminals of their own."""
    made: list[Screen] = []
    env: Any = {"CLAWKIT_HOME": near.env["CLAWKIT_HOME"], "CLAWKIT_CONFIG": ""}

    def make(*args: str) -> Screen:
        made.append(Screen("chat", *args, cwd=near.work, **env))
        return made[-1]

    yield make
    for each in made:
        each.close()


async def test_terminals_follow_one_conversation_and_the_first_answer_counts(
    screens: Callable[..., Screen],
) -> None:
    one, other = screens("--session", "both"), screens("--session", "both")
    await one.until(READY)
    await other.until(READY)
    one.type("list\r")
    await one.until('"a.txt"')
    await other.until('"a.txt"')
    assert "list" in other.text
    other.type("read a.txt\r")
    await one.until("Press a letter")
    await other.until("Press a letter")
    one.type("y")
    await one.until("Allowed once.")
    await other.until("No longer pending")
    await one.until("the text")
    await other.until("the text")
    other.type("exit\r")
    assert await other.end() == 0
    assert "To continue later: clawkit chat --session both" in other.text
    one.type("\x04")
    assert await one.end() == 0


async def test_the_commands_of_the_chat_work_in_the_gateway(
    near: Home, screens: Callable[..., Screen]
) -> None:
    chat = screens()
    await chat.until(READY)
    chat.type("!sleep 60\r")
    await chat.until("exec sleep 60")
    chat.type("!echo again\r")
    await chat.until("the agent is working")
    chat.type("list\r")
    await chat.until("queued: list")
    chat.type("\x1b[A")
    await chat.until_gone("queued: list")
    chat.type("\x03")
    await chat.until("interrupted", 2)
    chat.type("\x03")
    await chat.until_gone(f"{PROMPT} list")
    chat.type("!echo $((6 * 7))\r")
    await chat.until("42")
    chat.type("/new planned\r")
    await chat.until("session planned")
    chat.type("/status\r")
    await chat.until("planned: (no title)")
    chat.type("/model nope/x\r")
    await chat.until("unknown provider 'nope'")
    chat.type("/nope\r")
    await chat.until("Unknown command /nope")
    chat.type("/quit\r")
    assert await chat.end() == 0
    names = [
        each["name"]
        for each in json.loads(near.run("sessions", "list", "--json").stdout)["sessions"]
    ]
    assert "planned" not in names, "nothing was said in it"


@pytest.mark.parametrize(
    "lines",
    [
        "list\n/nope\n/cost\n!echo x\n/tool ls {}\n",
        "/new lined\nlist\n/quit\nlist\n",
        "!exit 3\nread \\\nnowhere\n",
        "",
    ],
)
def test_a_piped_chat_prints_what_it_prints_without_a_gateway(near: Home, lines: str) -> None:
    done = []
    for options in (["chat"], ["chat", "--local"]):
        done.append(near.run(*options, given=lines))
        near.run("sessions", "delete", "lined", "--yes")
    through, local = done
    assert through.returncode == local.returncode
    assert plain(through.stdout) == plain(local.stdout)
    hide = re.compile("session [a-z0-9]{8},")
    assert hide.sub("", plain(through.stderr)) == hide.sub("", plain(local.stderr))


@pytest.mark.parametrize("options", [["chat"], ["chat", "--local"]])
def test_a_directory_cannot_control_the_terminal_of_a_piped_chat(
    near: Home, options: list[str]
) -> None:
    place = near.work.parent / "d\x1b]0;title\x07"
    place.mkdir(exist_ok=True)
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [*PROGRAM, *options], cwd=place, env={**near.env, "NO_COLOR": "1"}, stderr=theirs,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=WAIT_S, check=True,
        )  # fmt: skip
        shown = os.read(ours, 1 << 16)
    finally:
        os.close(ours)
        os.close(theirs)
    assert b"title" in shown
    assert b"\x1b]0;title" not in shown


def test_a_command_that_no_one_typed_waits_for_approval(own: Home) -> None:
    own.configure(
        """{
          tools: { exec: { ask: "always" } },
          models: { providers: { none: { baseUrl: "http://127.0.0.1:9", models: [{ id: "x" }] } } },
        }"""
    )
    chat = [*PROGRAM, "chat", "--model", "none/x"]
    pipe = subprocess.PIPE
    with own.gateway():
        for args, given in ((["!touch made"], ""), ([], "!touch made\n")):
            process = subprocess.Popen(
                [*chat, *args], cwd=own.work, env=own.env, stdin=pipe, stdout=pipe, stderr=pipe,
                text=True,
            )  # fmt: skip
            assert process.stdin is not None
            assert process.stderr is not None
            process.stdin.write(given)
            process.stdin.close()
            process.stdin = None
            waits = _until(process.stderr, "waiting for approval")
            id_ = re.findall(r"resolve (\w+) allow-once", waits)[0]
            assert own.run("approvals", "resolve", id_, "deny").returncode == 0
            process.communicate(timeout=WAIT_S)
            assert not (own.work / "made").exists()


async def test_a_command_that_starts_a_chat_asks(
    near: Home, screens: Callable[..., Screen]
) -> None:
    near.run("agent", "-m", "list", "--session", "given")
    chat = screens("--session", "given", '/tool read {"path": "a.txt"}')
    await chat.until("Press a letter")
    chat.type("n")
    await chat.until_gone("Press a letter")
    assert "the text" not in chat.text


async def test_a_chat_without_a_screen_says_how_to_continue(own: Home) -> None:
    env: Any = {"CLAWKIT_HOME": own.env["CLAWKIT_HOME"], "CLAWKIT_CONFIG": "", "TERM": "dumb"}
    chat = None
    try:
        with own.gateway():
            chat = Screen("chat", "--session", "plain", cwd=own.work, **env)
            await chat.until("\n>")
            chat.type("list\n")
            await chat.until('"a.txt"')
            chat.type("\x04")
            assert await chat.end() == 0
        assert chat.text.count("To continue later: clawkit chat --session plain") == 1
    finally:
        if chat is not None:
            chat.close()


@pytest.mark.parametrize("is_working", [False, True])
async def test_a_chat_without_a_screen_can_be_left_while_the_gateway_is_gone(
    own: Home, is_working: bool
) -> None:
    env: Any = {"CLAWKIT_HOME": own.env["CLAWKIT_HOME"], "CLAWKIT_CONFIG": "", "TERM": "dumb"}
    chat = None
    try:
        with own.gateway(SLOW) as gateway:
            chat = Screen("chat", "--session", "plain", cwd=own.work, **env)
            await chat.until("\n>")
            chat.type("list\n")
            # The prompt: until the gateway has said that the turn is over, the chat waits for it.
            await chat.until('"a.txt"\n>')
            if is_working:
                chat.type("!sleep 100\n")
                await chat.until("· exec sleep 100")
            gateway.kill()
            await chat.until("the connection to the gateway was lost (connection lost); connecting")
            if is_working:
                chat.type("\x03")
                await chat.until("interrupted\n>")
            chat.type("\x04")
            assert await chat.end() == int(is_working)
        assert chat.text.count("To continue later: clawkit chat --session plain") == 1
    finally:
        if chat is not None:
            chat.close()


async def test_a_chat_outlives_the_gateway(own: Home) -> None:
    env: Any = {"CLAWKIT_HOME": own.env["CLAWKIT_HOME"], "CLAWKIT_CONFIG": ""}
    chat = None
    try:
        with own.gateway(SLOW) as gateway:
            chat = Screen("chat", "--session", "kept", cwd=own.work, **env)
            await chat.until(READY)
            chat.type("list\r")
            await chat.until('"a.txt"')
            gateway.kill()
            await chat.until("the connection to the gateway was lost (connection lost); connecting")
            await chat.say("!echo $((6 * 7))")
            await chat.until("queued: !echo $((6 * 7))")
            await chat.say("!echo not this")
            await chat.until("queued: !echo not this")
            chat.type("\x1b[A")
            await chat.until(f"{PROMPT} !echo not this")
            chat.type("\x03")
            await chat.until_gone("not this")
            chat.type("half of")
            await chat.until(f"{PROMPT} half of")
        with own.gateway() as gateway:
            await chat.until("connected again. Your /exec and /elevated settings no longer apply.")
            await chat.until("42")
            assert "queued" not in chat.live
            assert "not this" not in chat.live
            assert f"{PROMPT} half of" in chat.live
            chat.type(" a line\r")
            await chat.until(f"{PROMPT} half of a line")
            gateway.terminate()
            await chat.until("was lost (service restart)")
            await chat.until_gone("working")
        with own.gateway():
            await chat.until("connected again", 2)
            assert chat.text.count("half of a line") == chat.text.count("42") == 1
            assert chat.text.count(f"{PROMPT} list") == 1
            chat.type("\x04")
            assert await chat.end() == 0
            assert "To continue later: clawkit chat --session kept" in chat.text
    finally:
        if chat is not None:
            chat.close()


async def test_a_chat_that_ends_without_the_gateway_says_what_was_not_sent(own: Home) -> None:
    env: Any = {"CLAWKIT_HOME": own.env["CLAWKIT_HOME"], "CLAWKIT_CONFIG": ""}
    chat = None
    try:
        with own.gateway(SLOW) as gateway:
            chat = Screen("chat", "--session", "unsent", cwd=own.work, **env)
            await chat.until(READY)
            gateway.kill()
            await chat.until("connecting again")
            await chat.say("some words")
            await chat.until("queued: some words")
            chat.type("\x04")
            assert await chat.end() == 0
            assert "not sent: some words" in chat.text
    finally:
        if chat is not None:
            chat.close()


class Tunnel:
    """Forwards a port until it is broken."""

    def __init__(self) -> None:
        self.port, self.to = 0, 0
        self._server: asyncio.Server | None = None
        self._ends: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far, there = await asyncio.open_connection("127.0.0.1", self.to)
        self._ends |= {writer, there}

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                while data := await source.read(65_536):
                    sink.write(data)
            sink.close()

        await asyncio.gather(copy(reader, there), copy(far, writer))

    def breaks(self) -> None:
        assert self._server is not None
        self._server.close()
        for each in self._ends:
            each.transport.abort()
        self._ends = set()


async def test_messages_a_chat_missed_are_shown_once(near: Home, own: Home) -> None:
    """A tunnel breaks and comes back; the gateway runs on."""
    tunnel = Tunnel()
    url = json.loads(near.run("gateway", "status", "--json").stdout)["url"]
    tunnel.to = int(url.rpartition(":")[2].strip("/"))
    await tunnel.open()
    token = near.run("gateway", "token").stdout.strip()
    remote = {"url": f"ws://127.0.0.1:{tunnel.port}", "token": token}
    own.configure(json.dumps({"gateway": {"mode": "remote", "remote": remote}}))
    env: Any = {"CLAWKIT_HOME": own.env["CLAWKIT_HOME"], "CLAWKIT_CONFIG": ""}
    chat = Screen("chat", "--session", "missed", cwd=own.work, **env)
    try:
        await chat.until(READY)
        chat.type("!echo one\r")
        await chat.until("one", 2)
        tunnel.breaks()
        await chat.until("connecting again")
        place = near.home / "workspace"
        done = await asyncio.to_thread(
            near.run, "agent", "-m", "!echo t$((1))wo", "--session", "missed", cwd=place
        )
        assert done.stdout == "t1wo\n"
        await tunnel.open()
        await chat.until("connected again")
        chat.type("!echo t$((2))hree\r")
        await chat.until("t2hree")
        assert chat.text.count("t1wo") == 1
        assert chat.text.count(f"{PROMPT} !echo t$((1))wo") == 1
    finally:
        chat.close()
        tunnel.breaks()


def test_a_piped_chat_outlives_the_gateway(own: Home) -> None:
    pipe = subprocess.PIPE
    with own.gateway(SLOW) as gateway:
        chat = subprocess.Popen(
            [*PROGRAM, "chat", "--session", "lines"], cwd=own.work, env=own.env, text=True,
            stdin=pipe, stdout=pipe, stderr=pipe, bufsize=1,
        )  # fmt: skip
        assert chat.stdin is not None
        assert chat.stdout is not None
        assert chat.stderr is not None
        chat.stdin.write("list\n")
        assert chat.stdout.readline() == LISTED
        gateway.kill()
        _until(chat.stderr, "connecting again")
        chat.stdin.write("!echo $((6 * 7))\nlist\n")
    with own.gateway():
        out, err = chat.communicate(timeout=WAIT_S)
    assert out == f"42\n{LISTED}"
    assert err.count("connected again") == 1
    assert chat.returncode == 0


def test_without_a_terminal_someone_else_can_answer(near: Home) -> None:
    process = near.start("-m", "read a.txt")
    assert process.stderr is not None
    line = _until(process.stderr, "waiting for approval")
    found = re.search(r"resolve (\S+) allow-once", line)
    assert found is not None
    assert near.run("approvals", "resolve", found[1], "allow-once").returncode == 0
    out, _ = process.communicate(timeout=WAIT_S)
    assert "the text" in out


def test_an_agents_command_does_not_use_the_gateway(near: Home) -> None:
    typed = f"!CLAWKIT_HOME={near.home} {sys.executable} -m clawkit gateway status"
    done = near.run("agent", "-m", typed)
    assert "cannot use the gateway" in done.stdout


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_turn_is_followed_into_the_next_gateway(own: Home, how: signal.Signals) -> None:
    with own.gateway(SLOW) as gateway:
        process = own.start("-m", "!sleep 60", "--session", "cut", "--json")
        assert process.stdout is not None
        before: list[str] = []
        while not before or json.loads(before[-1])["type"] != "tool":
            before.append(process.stdout.readline())
        gateway.send_signal(how)
        gateway.wait(WAIT_S)
    with own.gateway():
        out, err = process.communicate(timeout=WAIT_S)
    told = [json.loads(line) for line in (*before, *out.splitlines())]
    kinds = [each["type"] for each in told]
    assert (process.returncode, err) == (0, "")
    assert kinds.count("retry") == kinds.count("turn_end") == 1
    assert told[-1]["how"] == "done"
    answers = [each["message"] for each in told if each["type"] == "assistant"]
    assert len({json.dumps(each) for each in answers}) == len(answers) == 2
    assert told[-1]["text"] == answers[-1]["content"][0]["text"]


def test_ctrl_c_ends_a_turn_whose_gateway_is_gone(own: Home) -> None:
    with own.gateway(SLOW) as gateway:
        process = own.start("-m", "!sleep 60", "--session", "cut")
        assert process.stderr is not None
        _until(process.stderr, "sleep 60")
        gateway.kill()
        _until(process.stderr, "connecting again")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    said = "clawkit: the turn continues when the gateway is back"
    assert err.split("\n") == [said, "", "interrupted", ""]


def test_a_gateway_that_hangs_is_reported(own: Home) -> None:
    with own.gateway(SLOW) as gateway:
        gateway.send_signal(signal.SIGSTOP)
        done = own.run("gateway", "call", "health", "--timeout", "0.5")
        assert done.returncode == 1
        assert "the gateway does not answer; see: clawkit gateway status" in done.stderr
        status = own.run("gateway", "status", "--timeout", "0.5")
        assert "It holds the lock, but does not answer" in status.stderr


def test_a_gateway_of_another_version_is_not_used(own: Home) -> None:
    from clawkit.gateway.methods import METHODS

    code = (
        "from clawkit.gateway.methods import METHODS\n"
        "del METHODS['clawkit.turn']\n"
        "from clawkit.cli.main import run\n"
        "run(['gateway', 'run', '--port', '0'])"
    )
    assert "clawkit.turn" in METHODS
    old = subprocess.Popen(
        [sys.executable, "-c", code], env=own.env, stderr=subprocess.PIPE, text=True
    )
    assert old.stderr is not None
    try:
        assert "clawkit gateway: ws://" in old.stderr.readline()
        done = own.run("agent", "-m", "list")
        said = "has another version (to update it: clawkit gateway restart)"
        assert done.stderr.count(said) == 1
        assert done.stdout == LISTED
    finally:
        old.terminate()
        old.wait(WAIT_S)
        old.stderr.close()


def test_the_setting_turns_it_off(own: Home) -> None:
    own.configure("{ gateway: { useForCommands: false } }")
    with own.gateway():
        status = json.loads(own.run("gateway", "status", "--json").stdout)
        assert status["running"]
        own.run("agent", "-m", "list", "--session", "here")
        [found] = json.loads(own.run("sessions", "list", "--json").stdout)["sessions"]
        params = json.dumps({"id": found["id"]})
        calls = own.run("gateway", "call", "clawkit.release", "--params", params)
        assert json.loads(calls.stdout) == {"released": False}


def test_commands_use_the_remote_gateway(near: Home, own: Home) -> None:
    url = json.loads(near.run("gateway", "status", "--json").stdout)["url"]
    token = near.run("gateway", "token").stdout.strip()
    remote = {"url": url, "token": token}
    own.configure(json.dumps({"gateway": {"mode": "remote", "remote": remote}}))
    assert own.run("agent", "-m", "!pwd", "--session", "far").stdout.strip() == str(
        near.home / "workspace"
    )
    listed = json.loads(own.run("sessions", "list", "--json").stdout)["sessions"]
    assert "far" in [each["name"] for each in listed]
    assert own.run("sessions", "list", "--local").stderr == ""
    assert "has no session yet" in own.run("sessions", "list", "--local").stdout
    assert (
        own.run("sessions", "show", "nope").returncode
        == near.run("sessions", "show", "nope").returncode
    )
    refused = own.run("sessions", "export", "far", "-o", "x")
    assert refused.returncode == 2
    assert "gateway.mode is 'remote' (ws://" in refused.stderr
    assert "but -o does not go through a gateway. To run it on this machine" in refused.stderr
    assert "Did you mean 'clawkit sessions list'?" in own.run("sessions", "lst").stderr
    local = own.run("agent", "-m", "hi", "--no-session")
    assert local.returncode == 2
    assert "--no-session requires --local" in local.stderr
    assert f"the remote gateway {url} answers" in own.run("doctor").stdout
    for args in (["start", "--port", "0"], ["restart"], ["logs"], ["token"], ["stop"]):
        done = own.run("gateway", *args)
        assert done.returncode == 0, done.stderr
        assert "'remote'; this is about a gateway on this machine" in done.stderr
        if args == ["restart"]:
            names = [each.run("sessions", "list", "--json").stdout for each in (own, near)]
            assert names[0] == names[1], "not those of the gateway that runs here"
    assert "on this machine" not in near.run("gateway", "token").stderr


def test_the_doctor_says_whether_a_remote_gateway_lets_this_device_in(
    near: Home, own: Home
) -> None:
    url = json.loads(near.run("gateway", "status", "--json").stdout)["url"]
    token = near.run("gateway", "token").stdout.strip()
    for given, said in (("wrong", "refuses the login"), (token, "answers, and this device can")):
        remote = {"url": url, "token": given}
        own.configure(json.dumps({"gateway": {"mode": "remote", "remote": remote}}))
        checked = own.run("doctor").stdout
        assert said in checked
        assert ("gateway token mismatch" in checked) is (given == "wrong")
        assert ("→ clawkit config set gateway.remote.token" in checked) is (given == "wrong")


def test_an_address_that_would_be_refused_is_not_saved(own: Home) -> None:
    done = own.run("config", "set", "gateway.remote.url", "ws://example.org:18789")
    assert done.returncode == 2
    assert "gateway.remote.url: ws://example.org:18789 is not encrypted: use wss://" in done.stderr
    assert own.run("config", "set", "gateway.remote.url", "wss://example.org").returncode == 0
    assert own.run("config", "set", "gateway.remote.url", "ws://127.0.0.1:9").returncode == 0


def test_an_unreachable_remote_gateway_is_reported(own: Home) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"ws://127.0.0.1:{probe.getsockname()[1]}"
    own.configure(json.dumps({"gateway": {"mode": "remote", "remote": {"url": url}}}))
    for args in (["agent", "-m", "hi"], ["ps"]):
        done = own.run(*args)
        assert done.returncode == 1
        assert "no gateway can be reached there" in done.stderr
        assert "is its port forwarded?" in done.stderr
    assert "no gateway can be reached there" in own.run("doctor").stdout
    own.configure('{ gateway: { mode: "remote" } }')
    assert "gateway.remote.url is not set" in own.run("doctor").stdout
    own.configure('{ gateway: { mode: "remote", remote: { url: "http://127.0.0.1:1" } } }')
    checked = own.run("doctor").stdout
    assert "gateway.remote.url: the address of a gateway must be ws://" in checked
    assert "home/clawkit.json5, line 1" in checked


@pytest.mark.parametrize(
    ("args", "is_simple"),
    [
        (["-m", "hi"], True),
        (["--message", "hi there", "--json", "--session", "s"], True),
        (["-m", "hi", "--model", "x/y", "--agent", "main", "--continue"], True),
        (["-m", "-"], False),
        (["-m", "-x"], False),
        (["-m"], False),
        (["-m", "a", "-m", "b"], False),
        (["-m", "a", "--session", "--json"], False),
        (["-m", "a", "--model"], False),
        (["-m", "a", "more"], False),
        (["-m", "a", "--local"], False),
        (["-m", "a", "--config", "x"], False),
        (["-m=a"], False),
        (["-m", "a", "--continue", "--session", "x"], False),
        (["-m", "a\nb"], False),
        ([], False),
    ],
)
def test_only_what_is_certainly_valid_is_sent_before_it_is_parsed(
    args: Sequence[str], is_simple: bool
) -> None:
    assert (read_simple(args) is not None) is is_simple
